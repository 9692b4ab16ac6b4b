/* test_admin_cluster.c - the administration calls for a cluster of several nodes, against a scripted broker: elections, moves, brokers removed,
 * the quorum, log directories, fenced brokers.
 */
#include <kclient/admin.h>

#include "server.h"
#include "wire/kerror.h"

static struct server *srv;
static kc_client *client;

/* What the scripted broker is to do, and what it saw. */
static pthread_mutex_t script_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int16_t whole[4];    /* error of the whole answer, of the nth request */
    int16_t codes[8];    /* of the items, in order of appearance */
    int requests, items; /* counted */
    int32_t drop;        /* close the connection on so many requests */
    int32_t topics, first_parts, type, replicas; /* of the last request */
    int16_t missing_api; /* not offered */
    int64_t seen_ms;     /* of the quorum's second voter */
} script;
static struct kw_arena arena;

static int16_t item_code(void) {
    return script.items < 8 ? script.codes[script.items++] : 0;
}
static int16_t whole_code(void) {
    return script.requests < 4 ? script.whole[script.requests++] : 0;
}

static void api_versions(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_api_versions_response m;
    struct kw_api_versions_response_api_version keys[100];
    kw_msg_init(&kw_api_versions_response_desc, &m);
    m.api_keys.v = keys;
    for (size_t i = 0; i < kw_api_count && i < KW_COUNTOF(keys); i++)
        if (kw_apis[i].key != script.missing_api || script.missing_api == 0)
            keys[m.api_keys.n++] = (struct kw_api_versions_response_api_version){
                .api_key = kw_apis[i].key, .min_version = kw_apis[i].min, .max_version = kw_apis[i].max};
    server_reply(c, h, &m);
}

/* Partitions of many topics, answered backwards: the 7th, 14th, … is not to be had, the rest need no election. */
static void elect_many(struct server_conn *c, struct kw_frame_request *h, const struct kw_elect_leaders_request *q) {
    struct kw_elect_leaders_response m;
    kw_msg_init(&kw_elect_leaders_response_desc, &m);
    int32_t topics = q->topic_partitions.n;
    struct kw_elect_leaders_response_replica_election_result *t = calloc((size_t)topics, sizeof *t);
    assert_non_null(t);
    for (int32_t i = 0; i < topics; i++) {
        const struct kw_elect_leaders_request_topic_partitions *from = &q->topic_partitions.v[topics - 1 - i];
        int32_t n = from->partitions.n;
        t[i].topic = from->topic;
        t[i].partition_result.v = calloc((size_t)n, sizeof *t[i].partition_result.v);
        assert_non_null(t[i].partition_result.v);
        for (int32_t k = 0; k < n; k++) {
            int32_t number = from->partitions.v[n - 1 - k];
            t[i].partition_result.v[t[i].partition_result.n++] = (struct kw_elect_leaders_response_partition_result){
                .partition_id = number, .error_code = number % 7 ? KE_ELECTION_NOT_NEEDED : KE_PREFERRED_LEADER_NOT_AVAILABLE, .error_message = kw_str_null()};
        }
    }
    m.replica_election_results.v = t;
    m.replica_election_results.n = topics;
    server_reply(c, h, &m);
    for (int32_t i = 0; i < topics; i++) free(t[i].partition_result.v);
    free(t);
}

static void elect_leaders(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_elect_leaders_request q;
    struct kw_elect_leaders_response m;
    struct kw_elect_leaders_response_replica_election_result t[8] = {0};
    struct kw_elect_leaders_response_partition_result p[8];
    size_t n = 0;
    if (kw_decode(&kw_elect_leaders_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    if (q.topic_partitions.n > 8) return elect_many(c, h, &q);
    kw_msg_init(&kw_elect_leaders_response_desc, &m);
    m.error_code = whole_code();
    m.replica_election_results.v = t;
    script.topics = q.topic_partitions.n;
    script.type = q.election_type;
    int32_t one[] = {4};
    struct kw_elect_leaders_request_topic_partitions any = {.topic = kw_str_of("any"), .partitions = {one, 1}};
    if (q.topic_partitions.n < 0) q.topic_partitions.v = &any, q.topic_partitions.n = 1;
    if (q.topic_partitions.n > 0) script.first_parts = q.topic_partitions.v[0].partitions.n;
    for (int32_t i = 0; i < q.topic_partitions.n && i < 8 && m.error_code == 0; i++) {
        t[i].topic = q.topic_partitions.v[i].topic;
        t[i].partition_result.v = &p[n];
        for (int32_t k = 0; k < q.topic_partitions.v[i].partitions.n && n < 8; k++, n++, t[i].partition_result.n++)
            p[n] = (struct kw_elect_leaders_response_partition_result){
                .partition_id = q.topic_partitions.v[i].partitions.v[k], .error_code = item_code(), .error_message = kw_str_null()};
        m.replica_election_results.n++;
    }
    server_reply(c, h, &m);
}

static void reassign(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_alter_partition_reassignments_request q;
    struct kw_alter_partition_reassignments_response m;
    struct kw_alter_partition_reassignments_response_reassignable_topic_response t[8] = {0};
    struct kw_alter_partition_reassignments_response_reassignable_partition_response p[8];
    size_t n = 0;
    if (kw_decode(&kw_alter_partition_reassignments_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    kw_msg_init(&kw_alter_partition_reassignments_response_desc, &m);
    m.error_code = whole_code();
    m.error_message = m.error_code ? kw_str_of("of the whole") : kw_str_null();
    m.responses.v = t;
    script.topics = q.topics.n;
    if (q.topics.n > 0) script.first_parts = q.topics.v[0].partitions.n, script.replicas = q.topics.v[0].partitions.v[0].replicas.n;
    for (int32_t i = 0; i < q.topics.n && i < 8 && m.error_code == 0; i++) {
        t[i].name = q.topics.v[i].name;
        t[i].partitions.v = &p[n];
        for (int32_t k = 0; k < q.topics.v[i].partitions.n && n < 8; k++, n++, t[i].partitions.n++) {
            int16_t code = item_code();
            p[n] = (struct kw_alter_partition_reassignments_response_reassignable_partition_response){
                .partition_index = q.topics.v[i].partitions.v[k].partition_index,
                .error_code = code,
                .error_message = code ? kw_str_of("the broker's own words") : kw_str_null()};
        }
        m.responses.n++;
    }
    server_reply(c, h, &m);
}

static void list_moves(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_list_partition_reassignments_request q;
    struct kw_list_partition_reassignments_response m;
    int32_t all[] = {1, 2, 3}, adding[] = {3}, removing[] = {1};
    struct kw_list_partition_reassignments_response_ongoing_partition_reassignment p[2] = {
        {.partition_index = 5, .replicas = {all, 3}, .adding_replicas = {adding, 1}, .removing_replicas = {removing, 1}},
        {.partition_index = 6, .replicas = {all, 3}, .adding_replicas = {NULL, 0}, .removing_replicas = {removing, 1}}};
    struct kw_list_partition_reassignments_response_ongoing_topic_reassignment t = {.name = kw_str_of("t"), .partitions = {p, 2}};
    if (kw_decode(&kw_list_partition_reassignments_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    kw_msg_init(&kw_list_partition_reassignments_response_desc, &m);
    m.error_code = whole_code();
    m.topics.v = &t;
    m.topics.n = m.error_code == 0 && q.topics.n == -1 ? 1 : 0;
    server_reply(c, h, &m);
}

static void quorum(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_describe_quorum_request q;
    struct kw_describe_quorum_response m;
    struct kw_describe_quorum_response_replica_state voters[2] = {{.replica_id = 1,
                                                                   .replica_directory_id = {{7}},
                                                                   .log_end_offset = 90,
                                                                   .last_fetch_timestamp = 1000000,
                                                                   .last_caught_up_timestamp = 1000000},
                                                                  {.replica_id = 2,
                                                                   .log_end_offset = 80,
                                                                   .last_fetch_timestamp = script.seen_ms,
                                                                   .last_caught_up_timestamp = 990000}};
    struct kw_describe_quorum_response_replica_state observer = {
        .replica_id = 3, .log_end_offset = 90, .last_fetch_timestamp = 1000100, .last_caught_up_timestamp = -1};
    struct kw_describe_quorum_response_partition_data p = {.leader_id = 1,
                                                           .leader_epoch = 8,
                                                           .high_watermark = 85,
                                                           .current_voters = {voters, 2},
                                                           .observers = {&observer, 1},
                                                           .error_message = kw_str_null()};
    struct kw_describe_quorum_response_topic_data t = {.topic_name = kw_str_of("__cluster_metadata"), .partitions = {&p, 1}};
    if (kw_decode(&kw_describe_quorum_request_desc, h->version, body, &arena, &q) != KW_OK || q.topics.n != 1) return;
    kw_msg_init(&kw_describe_quorum_response_desc, &m);
    m.error_code = whole_code();
    p.error_code = item_code();
    m.topics.v = &t;
    m.topics.n = m.error_code == 0;
    server_reply(c, h, &m);
}

static void log_dirs(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_describe_log_dirs_response m;
    struct kw_describe_log_dirs_response_describe_log_dirs_partition p[2] = {
        {.partition_index = 0, .partition_size = 100, .offset_lag = 0}, {.partition_index = 1, .partition_size = 50, .offset_lag = 12, .is_future_key = true}};
    struct kw_describe_log_dirs_response_describe_log_dirs_topic t = {.name = kw_str_of("t"), .partitions = {p, 2}};
    struct kw_describe_log_dirs_response_describe_log_dirs_result r[2] = {
        {.log_dir = kw_str_of("/bad"), .error_code = KE_KAFKA_STORAGE_ERROR, .total_bytes = -1, .usable_bytes = -1},
        {.log_dir = kw_str_of("/good"), .topics = {&t, 1}, .total_bytes = 1000, .usable_bytes = 400}};
    kw_msg_init(&kw_describe_log_dirs_response_desc, &m);
    m.error_code = whole_code();
    m.results.v = r;
    m.results.n = m.error_code == 0 ? 2 : 0;
    server_reply(c, h, &m);
}

static void describe_cluster(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_describe_cluster_request q;
    struct kw_describe_cluster_response m;
    struct kw_describe_cluster_response_describe_cluster_broker b[2] = {
        {.broker_id = 1, .host = kw_str_of("127.0.0.1"), .port = s->port, .rack = kw_str_null()},
        {.broker_id = 2, .host = kw_str_of("gone"), .port = 9, .rack = kw_str_of("r2"), .is_fenced = true}};
    if (kw_decode(&kw_describe_cluster_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    kw_msg_init(&kw_describe_cluster_response_desc, &m);
    m.brokers.v = b;
    m.brokers.n = q.include_fenced_brokers ? 2 : 1;
    server_reply(c, h, &m);
}

static void unregister(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_unregister_broker_request q;
    struct kw_unregister_broker_response m;
    if (kw_decode(&kw_unregister_broker_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    kw_msg_init(&kw_unregister_broker_response_desc, &m);
    script.first_parts = q.broker_id;
    m.error_code = whole_code();
    m.error_message = kw_str_null();
    server_reply(c, h, &m);
}

static bool answer(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    kw_arena_reset(&arena);
    if (h->api_key == KW_API_API_VERSIONS) return api_versions(c, h), true;
    if (h->api_key == KW_API_METADATA) return false;
    if (script.drop > 0) {
        script.drop--;
        shutdown(c->fd, SHUT_RDWR);
        return true;
    }
    switch (h->api_key) {
    case KW_API_ELECT_LEADERS:
        return elect_leaders(c, h, body), true;
    case KW_API_ALTER_PARTITION_REASSIGNMENTS:
        return reassign(c, h, body), true;
    case KW_API_LIST_PARTITION_REASSIGNMENTS:
        return list_moves(c, h, body), true;
    case KW_API_DESCRIBE_QUORUM:
        return quorum(c, h, body), true;
    case KW_API_DESCRIBE_LOG_DIRS:
        return log_dirs(c, h), true;
    case KW_API_DESCRIBE_CLUSTER:
        return describe_cluster(s, c, h, body), true;
    case KW_API_UNREGISTER_BROKER:
        return unregister(c, h, body), true;
    default:
        return false;
    }
}

static bool hook(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    pthread_mutex_lock(&script_lock);
    bool done = answer(s, c, h, body);
    pthread_mutex_unlock(&script_lock);
    return done;
}

static int32_t saw;
#define SAW(field) (pthread_mutex_lock(&script_lock), saw = (int32_t)script.field, pthread_mutex_unlock(&script_lock), saw)

static void begin(void) {
    pthread_mutex_lock(&script_lock);
    memset(&script, 0, sizeof script);
    pthread_mutex_unlock(&script_lock);
}

static void begin_with(int16_t whole, int16_t first, int16_t second) {
    begin();
    pthread_mutex_lock(&script_lock);
    script.whole[0] = whole;
    script.codes[0] = first;
    script.codes[1] = second;
    pthread_mutex_unlock(&script_lock);
}

static void drop(int32_t times) {
    pthread_mutex_lock(&script_lock);
    script.drop = times;
    pthread_mutex_unlock(&script_lock);
}

static kc_client *client_new(void) {
    kc_client *c = NULL;
    char address[40];
    snprintf(address, sizeof address, "127.0.0.1:%u", srv->port);
    kc_config *f = kc_config_new();
    (void)kc_config_set(f, "bootstrap.servers", address, NULL);
    (void)kc_config_set(f, "retry.backoff.ms", "10", NULL);
    (void)kc_client_new(f, &c, NULL);
    kc_config_free(f);
    return c;
}

static void test_elections(void **state) {
    (void)state;
    begin_with(KE_NOT_CONTROLLER, 0, KE_PREFERRED_LEADER_NOT_AVAILABLE); /* the first answer is of the whole and passes */
    kc_partition_item p[3] = {{.topic = "a", .partition = 0}, {.topic = "a", .partition = 1}, {.topic = "b", .partition = 0}};
    kc_error *e = NULL;
    assert_int_equal(kc_admin_elect_leaders(client, KC_ELECT_UNCLEAN, p, sizeof p[0], 3, 20000000, &e), KE_PREFERRED_LEADER_NOT_AVAILABLE);
    assert_int_equal(SAW(requests), 2); /* what is an answer is not asked for again, though the code is retriable elsewhere */
    assert_int_equal(SAW(topics), 2);
    assert_int_equal(SAW(first_parts), 2);
    assert_int_equal(SAW(type), 1);
    assert_int_equal(p[0].err, KC_OK);
    assert_int_equal(p[1].err, KE_PREFERRED_LEADER_NOT_AVAILABLE);
    assert_int_equal(p[2].err, KC_OK);
    assert_non_null(strstr(kc_error_message(e), "a [1]"));
    kc_error_free(e);
    /* The wanted one leads already: told, but no failure. */
    begin_with(0, KE_ELECTION_NOT_NEEDED, 0);
    assert_int_equal(kc_admin_elect_leaders(client, KC_ELECT_PREFERRED, p, sizeof p[0], 2, 20000000, NULL), KC_OK);
    assert_int_equal(p[0].err, KE_ELECTION_NOT_NEEDED);
    assert_int_equal(SAW(type), 0);
    /* After a lost answer the same code says that this call did it. */
    begin_with(0, KE_ELECTION_NOT_NEEDED, 0);
    drop(1);
    assert_int_equal(kc_admin_elect_leaders(client, KC_ELECT_PREFERRED, p, sizeof p[0], 1, 20000000, NULL), KC_OK);
    assert_int_equal(p[0].err, KC_OK);
    /* And after one that left it open, of the whole or of the partition. */
    begin_with(KE_REQUEST_TIMED_OUT, KE_ELECTION_NOT_NEEDED, 0);
    assert_int_equal(kc_admin_elect_leaders(client, KC_ELECT_PREFERRED, p, sizeof p[0], 1, 20000000, NULL), KC_OK);
    assert_int_equal(p[0].err, KC_OK);
    begin_with(0, KE_NOT_CONTROLLER, KE_ELECTION_NOT_NEEDED);
    assert_int_equal(kc_admin_elect_leaders(client, KC_ELECT_PREFERRED, p, sizeof p[0], 1, 20000000, NULL), KC_OK);
    assert_int_equal(p[0].err, KC_OK);
    begin();
    assert_int_equal(kc_admin_elect_leaders(client, 2, p, sizeof p[0], 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_elect_leaders(client, 0, p, 8, 1, 0, NULL), KC_INVALID);
    p[0].partition = -1;
    assert_int_equal(kc_admin_elect_leaders(client, 0, p, sizeof p[0], 1, 0, NULL), KC_INVALID);
    assert_int_equal(SAW(requests), 0);
}

/* Each of a hundred thousand has its own result, whatever the order of the answer. (A search through the answer for each would show as minutes.) */
static void test_elections_of_many(void **state) {
    (void)state;
    enum { TOPICS = 20, EACH = 5000, MANY = TOPICS * EACH };
    static char names[TOPICS][16];
    kc_partition_item *p = calloc(MANY, sizeof *p);
    assert_non_null(p);
    begin();
    for (int i = 0; i < TOPICS; i++) snprintf(names[i], sizeof names[i], "%s%d", i % 2 ? "t" : "tt", i);
    for (int i = 0; i < MANY; i++) p[i] = (kc_partition_item){.topic = names[i / EACH], .partition = i % EACH};
    assert_int_equal(kc_admin_elect_leaders(client, KC_ELECT_PREFERRED, p, sizeof *p, MANY, 60000000, NULL), KE_PREFERRED_LEADER_NOT_AVAILABLE);
    for (int i = 0; i < MANY; i++) assert_int_equal(p[i].err, i % EACH % 7 ? KE_ELECTION_NOT_NEEDED : KE_PREFERRED_LEADER_NOT_AVAILABLE);
    free(p);
}

/* Of a broker that counts nothing, as Apache Kafka's. (What kbroker tells: test_kc_cluster.c, and test_api_cluster.c on its side.) */
static void test_no_counts(void **state) {
    (void)state;
    kc_count_list *l = NULL;
    kc_op *op = NULL;
    begin();
    assert_int_equal(kc_admin_node_counts(client, 1, 20000000, &l, NULL), KC_UNSUPPORTED);
    assert_int_equal(kc_admin_node_counts(client, -1, 20000000, &l, NULL), KC_UNSUPPORTED);
    assert_null(l);
    assert_int_equal(kc_admin_node_counts(client, -2, 20000000, &l, NULL), KC_INVALID);
    assert_int_equal(kc_admin_node_counts(client, 1, 20000000, NULL, NULL), KC_INVALID);
    assert_int_equal(kc_admin_node_counts_start(client, 1, 20000000, 0, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, 20000000, NULL), KC_UNSUPPORTED);
    assert_null(kc_op_result_counts(op));
    kc_op_free(op);
    assert_int_equal(kc_count_list_count(NULL), 0);
    kc_count_list_free(NULL);
}

static void test_election_of_all(void **state) {
    (void)state;
    begin_with(0, KE_ELIGIBLE_LEADERS_NOT_AVAILABLE, 0);
    kc_op *op = NULL;
    kc_admin_result r;
    kc_error *e = NULL;
    assert_int_equal(kc_admin_elect_leaders_start(client, KC_ELECT_PREFERRED, NULL, 0, 0, 20000000, 0, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, 20000000, &e), KE_ELIGIBLE_LEADERS_NOT_AVAILABLE);
    assert_non_null(strstr(kc_error_message(e), "any [4]"));
    kc_error_free(e);
    assert_int_equal(SAW(topics), -1);
    assert_int_equal(kc_op_result_items(op, &r, sizeof r, 1), 1);
    assert_string_equal(r.name, "any");
    assert_int_equal(r.partition, 4);
    assert_int_equal(r.err, KE_ELIGIBLE_LEADERS_NOT_AVAILABLE);
    kc_op_free(op);

    begin_with(0, KE_REQUEST_TIMED_OUT, 0); /* that passes: asked for once more, by name */
    assert_int_equal(kc_admin_elect_leaders(client, KC_ELECT_PREFERRED, NULL, 0, 0, 20000000, NULL), KC_OK);
    assert_int_equal(SAW(requests), 2);
    assert_int_equal(SAW(topics), 1);
}

static void test_moves(void **state) {
    (void)state;
    begin_with(0, 0, KE_INVALID_REPLICA_ASSIGNMENT);
    int32_t onto[] = {3, 1};
    kc_partition_item p[2] = {{.topic = "a", .partition = 0, .replicas = onto, .replica_count = 2},
                              {.topic = "a", .partition = 1, .replicas = onto, .replica_count = 0}};
    assert_int_equal(kc_admin_alter_reassignments(client, p, sizeof p[0], 2, 20000000, NULL), KE_INVALID_REPLICA_ASSIGNMENT);
    assert_int_equal(SAW(topics), 1);
    assert_int_equal(SAW(first_parts), 2);
    assert_int_equal(SAW(replicas), 2);
    assert_int_equal(p[0].err, KC_OK);
    assert_string_equal(p[1].message, "the broker's own words");
    p[0] = p[1]; /* an empty list is sent as such: it must not stop a move */
    begin();
    assert_int_equal(kc_admin_alter_reassignments(client, p, sizeof p[0], 1, 20000000, NULL), KC_OK);
    assert_int_equal(SAW(replicas), 0);
    p[0].replicas = NULL;
    begin_with(0, KE_NO_REASSIGNMENT_IN_PROGRESS, 0);
    assert_int_equal(kc_admin_alter_reassignments(client, p, sizeof p[0], 1, 20000000, NULL), KE_NO_REASSIGNMENT_IN_PROGRESS);
    assert_int_equal(SAW(replicas), -1);
    begin_with(0, KE_NO_REASSIGNMENT_IN_PROGRESS, 0); /* stopped by the try whose answer was lost */
    drop(1);
    assert_int_equal(kc_admin_alter_reassignments(client, p, sizeof p[0], 1, 20000000, NULL), KC_OK);
    begin_with(KE_NOT_CONTROLLER, KE_NO_REASSIGNMENT_IN_PROGRESS, 0); /* by one whose controller lost its office meanwhile */
    assert_int_equal(kc_admin_alter_reassignments(client, p, sizeof p[0], 1, 20000000, NULL), KC_OK);
    begin_with(KE_CLUSTER_AUTHORIZATION_FAILED, 0, 0);
    kc_error *e = NULL;
    assert_int_equal(kc_admin_alter_reassignments(client, p, sizeof p[0], 1, 20000000, &e), KE_CLUSTER_AUTHORIZATION_FAILED);
    assert_int_equal(p[0].err, KE_CLUSTER_AUTHORIZATION_FAILED);
    assert_non_null(strstr(kc_error_message(e), "of the whole"));
    kc_error_free(e);
    p[0].replica_count = 1;
    assert_int_equal(kc_admin_alter_reassignments(client, p, sizeof p[0], 1, 0, NULL), KC_INVALID);

    begin_with(KE_NOT_CONTROLLER, 0, 0);
    kc_reassignment_list *l = NULL;
    kc_reassignment r;
    assert_int_equal(kc_admin_list_reassignments(client, 20000000, &l, NULL), KC_OK);
    assert_int_equal(SAW(requests), 2);
    assert_int_equal(kc_reassignment_list_count(l), 2);
    assert_int_equal(kc_reassignment_list_get(l, 0, &r), KC_OK);
    assert_string_equal(r.topic, "t");
    assert_int_equal(r.partition, 5);
    assert_int_equal(r.replica_count, 3);
    assert_int_equal(r.adding[0], 3);
    assert_int_equal(r.removing[0], 1);
    assert_int_equal(kc_reassignment_list_get(l, 1, &r), KC_OK);
    assert_int_equal(r.adding_count, 0);
    assert_int_equal(kc_reassignment_list_get(l, 2, &r), KC_INVALID);
    kc_reassignment_list_free(l);
}

static void test_unregister(void **state) {
    (void)state;
    begin();
    assert_int_equal(kc_admin_unregister_broker(client, 7, 20000000, NULL), KC_OK);
    assert_int_equal(SAW(first_parts), 7);
    begin_with(KE_BROKER_ID_NOT_REGISTERED, 0, 0);
    kc_error *e = NULL;
    assert_int_equal(kc_admin_unregister_broker(client, 7, 20000000, &e), KE_BROKER_ID_NOT_REGISTERED);
    assert_non_null(strstr(kc_error_message(e), "unregister"));
    kc_error_free(e);
    begin_with(KE_BROKER_ID_NOT_REGISTERED, 0, 0); /* by the try whose answer was lost */
    drop(1);
    assert_int_equal(kc_admin_unregister_broker(client, 7, 20000000, NULL), KC_OK);
    for (int k = 0; k < 2; k++) { /* by the try that ended in the open */
        begin_with(k == 0 ? KE_REQUEST_TIMED_OUT : KE_NOT_CONTROLLER, 0, 0);
        script.whole[1] = KE_BROKER_ID_NOT_REGISTERED;
        assert_int_equal(kc_admin_unregister_broker(client, 7, 20000000, NULL), KC_OK);
    }
    assert_int_equal(kc_admin_unregister_broker(client, -1, 0, NULL), KC_INVALID);
    kc_op *op = NULL;
    begin();
    assert_int_equal(kc_admin_unregister_broker_start(client, 7, 20000000, 0, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, 20000000, NULL), KC_OK);
    kc_op_free(op);
}

static void test_quorum(void **state) {
    (void)state;
    begin_with(0, KE_NOT_LEADER_OR_FOLLOWER, 0); /* the partition's, and passes */
    pthread_mutex_lock(&script_lock);
    script.seen_ms = 996000;
    pthread_mutex_unlock(&script_lock);
    kc_quorum_info *q = NULL;
    kc_quorum_replica r;
    assert_int_equal(kc_admin_describe_quorum(client, 20000000, &q, NULL), KC_OK);
    assert_int_equal(SAW(requests), 2);
    assert_int_equal(kc_quorum_info_leader(q), 1);
    assert_int_equal(kc_quorum_info_epoch(q), 8);
    assert_int_equal(kc_quorum_info_high_watermark(q), 85);
    assert_int_equal(kc_quorum_info_count(q), 3);
    assert_int_equal(kc_quorum_info_get(q, 0, &r), KC_OK);
    assert_int_equal(r.voter, 1);
    assert_int_equal(r.fetched_ms_ago, 0);
    assert_int_equal(r.directory[0], 7);
    assert_int_equal(kc_quorum_info_get(q, 1, &r), KC_OK);
    assert_int_equal(r.id, 2);
    assert_int_equal(r.log_end, 80);
    assert_int_equal(r.fetched_ms_ago, 4000);
    assert_int_equal(r.caught_up_ms_ago, 10000);
    assert_int_equal(kc_quorum_info_get(q, 2, &r), KC_OK);
    assert_int_equal(r.voter, 0);
    assert_int_equal(r.fetched_ms_ago, 0); /* not before the present, whatever the clocks say */
    assert_int_equal(r.caught_up_ms_ago, -1);
    assert_int_equal(kc_quorum_info_get(q, 3, &r), KC_INVALID);
    kc_quorum_info_free(q);
}

static void test_log_dirs(void **state) {
    (void)state;
    begin();
    kc_log_dir_list *l = NULL;
    kc_log_dir d;
    kc_log_dir_replica r;
    assert_int_equal(kc_admin_describe_log_dirs(client, 1, 20000000, &l, NULL), KC_OK);
    assert_int_equal(kc_log_dir_list_count(l), 2);
    assert_int_equal(kc_log_dir_list_get(l, 0, &d), KC_OK);
    assert_int_equal(d.err, KE_KAFKA_STORAGE_ERROR);
    assert_int_equal(kc_log_dir_list_get(l, 1, &d), KC_OK);
    assert_string_equal(d.path, "/good");
    assert_int_equal(d.usable_bytes, 400);
    assert_int_equal(kc_log_dir_list_replica_count(l), 2);
    assert_int_equal(kc_log_dir_list_replica(l, 1, &r), KC_OK);
    assert_string_equal(r.topic, "t");
    assert_int_equal(r.dir, 1);
    assert_int_equal(r.lag, 12);
    assert_int_equal(r.size, 50);
    assert_int_equal(r.future, 1);
    assert_int_equal(kc_log_dir_list_replica(l, 2, &r), KC_INVALID);
    kc_log_dir_list_free(l);
    assert_int_equal(kc_admin_describe_log_dirs(client, -1, 0, &l, NULL), KC_INVALID);
}

/* Brokers that are registered but away are shown, where the cluster can tell. */
static void test_fenced_brokers(void **state) {
    (void)state;
    begin();
    kc_cluster_info *i = NULL;
    kc_broker_info b;
    assert_int_equal(kc_admin_describe(client, NULL, 20000000, &i, NULL), KC_OK);
    assert_int_equal(kc_cluster_info_broker_count(i), 2);
    assert_int_equal(kc_cluster_info_broker(i, 0, &b), KC_OK);
    assert_int_equal(b.fenced, 0);
    assert_int_equal(kc_cluster_info_broker(i, 1, &b), KC_OK);
    assert_int_equal(b.id, 2);
    assert_int_equal(b.fenced, 1);
    assert_string_equal(b.host, "gone");
    assert_string_equal(b.rack, "r2");
    kc_cluster_info_free(i);
    pthread_mutex_lock(&script_lock);
    script.missing_api = KW_API_DESCRIBE_CLUSTER;
    pthread_mutex_unlock(&script_lock);
    kc_client *old = client_new();
    assert_int_equal(kc_admin_describe(old, NULL, 20000000, &i, NULL), KC_OK);
    assert_int_equal(kc_cluster_info_broker_count(i), 1);
    kc_cluster_info_free(i);
    kc_client_free(old);
    pthread_mutex_lock(&script_lock);
    script.missing_api = KW_API_DESCRIBE_QUORUM;
    pthread_mutex_unlock(&script_lock);
    old = client_new();
    kc_quorum_info *q = NULL;
    assert_int_equal(kc_admin_describe_quorum(old, 20000000, &q, NULL), KC_UNSUPPORTED);
    assert_null(q);
    kc_client_free(old);
}

/* As operations: what they give is taken once. */
static void test_started(void **state) {
    (void)state;
    begin();
    kc_op *op = NULL;
    assert_int_equal(kc_admin_describe_quorum_start(client, 20000000, 0, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, 20000000, NULL), KC_OK);
    assert_null(kc_op_result_log_dirs(op)); /* of another kind */
    assert_null(kc_op_result_reassignments(op));
    kc_quorum_info *q = kc_op_result_quorum(op);
    assert_non_null(q);
    assert_null(kc_op_result_quorum(op));
    kc_op_free(op);
    kc_quorum_info_free(q);
    assert_int_equal(kc_admin_list_reassignments_start(client, 20000000, 0, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, 20000000, NULL), KC_OK);
    kc_op_free(op); /* with its result */
    assert_int_equal(kc_admin_describe_log_dirs_start(client, 1, 20000000, 0, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, 20000000, NULL), KC_OK);
    kc_log_dir_list_free(kc_op_result_log_dirs(op));
    kc_op_free(op);
    int32_t *onto = malloc(sizeof *onto);
    kc_partition_item *p = malloc(sizeof *p);
    *onto = 3;
    *p = (kc_partition_item){.topic = "a", .replicas = onto, .replica_count = 1};
    assert_int_equal(kc_admin_alter_reassignments_start(client, p, sizeof *p, 1, 20000000, 0, &op, NULL), KC_OK);
    free(onto);
    free(p);
    kc_admin_result r;
    assert_int_equal(kc_op_wait(op, 20000000, NULL), KC_OK);
    assert_int_equal(kc_op_result_items(op, &r, sizeof r, 1), 1);
    assert_int_equal(r.partition, 0);
    kc_op_free(op);
    assert_int_equal(kc_admin_describe_quorum_start(client, 0, 0, NULL, NULL), KC_INVALID);
}

/* Memory runs out at each allocation in turn: an error or success, never a leak or a hang. */
static void test_allocation_failures(void **state) {
    (void)state;
    for (int64_t at = 0; at < 60; at++) {
        begin();
        kc_quorum_info *q = NULL;
        kc_reassignment_list *l = NULL;
        kc_log_dir_list *d = NULL;
        kc_partition_item p = {.topic = "a"};
        kw_alloc_fail_after(at);
        kc_err err = at % 4 == 0   ? kc_admin_describe_quorum(client, 3000000, &q, NULL)
                     : at % 4 == 1 ? kc_admin_list_reassignments(client, 3000000, &l, NULL)
                     : at % 4 == 2 ? kc_admin_describe_log_dirs(client, 1, 3000000, &d, NULL)
                                   : kc_admin_elect_leaders(client, 0, &p, sizeof p, 1, 3000000, NULL);
        kw_alloc_fail_after(-1);
        assert_true(err == KC_OK || err == KC_NO_MEMORY || err == KC_TRANSPORT || err == KC_BAD_MESSAGE || err == KC_TIMED_OUT);
        assert_true(err == KC_OK || (!q && !l && !d));
        kc_quorum_info_free(q);
        kc_reassignment_list_free(l);
        kc_log_dir_list_free(d);
    }
}

static int setup(void **state) {
    (void)state;
    kw_arena_init(&arena, 0);
    begin();
    srv = server_new_with(hook);
    client = client_new();
    return client ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    kc_client_free(client);
    server_free(srv);
    kw_arena_deinit(&arena);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elections),     cmocka_unit_test(test_elections_of_many), cmocka_unit_test(test_no_counts),
        cmocka_unit_test(test_election_of_all), cmocka_unit_test(test_moves),
        cmocka_unit_test(test_unregister),    cmocka_unit_test(test_quorum),          cmocka_unit_test(test_log_dirs),
        cmocka_unit_test(test_fenced_brokers), cmocka_unit_test(test_started),        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
