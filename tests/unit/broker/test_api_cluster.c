/* test_api_cluster.c - the controller's APIs on the wire: brokers that register and live, in-sync replicas, elections, moves, producer ids; and the
 * dial that tells a dead broker from a lost connection. Node 0 is the controller, and a broker too; brokers 7 and 8 are connections of the test.
 */
#include <jansson.h>

#include "node_rig.h"

static struct rig r;
static struct rig_conn *admin, *conns[2];
static int64_t epochs[2];

static int64_t enlist(struct rig_conn *c, int32_t id, uint8_t incarnation, int64_t previous, int16_t code) {
    struct kw_broker_registration_request q;
    struct kw_broker_registration_response a;
    struct kw_broker_registration_request_listener l = {.name = kw_str_of("PLAINTEXT"), .host = kw_str_of("10.0.0.1"), .port = (uint16_t)(9000 + id)};
    struct kw_broker_registration_request_feature f = {.name = kw_str_of("metadata.version"), .min_supported_version = 7, .max_supported_version = 33};
    struct kw_uuid dir = {{(uint8_t)id, 1}};
    kw_msg_init(&kw_broker_registration_request_desc, &q);
    q.broker_id = id;
    q.cluster_id = kw_str_of(kb_store_cluster_id(r.node->parts.store));
    q.incarnation_id = (struct kw_uuid){{(uint8_t)id, incarnation}};
    q.listeners.v = &l, q.listeners.n = 1;
    q.features.v = &f, q.features.n = 1;
    q.rack = kw_str_of("r1");
    q.log_dirs.v = &dir, q.log_dirs.n = 1;
    q.previous_broker_epoch = previous;
    rig_call(c, KW_API_BROKER_REGISTRATION, 4, &q, &a);
    assert_int_equal(a.error_code, code);
    return a.broker_epoch;
}

static struct kw_broker_heartbeat_response beat(struct rig_conn *c, int32_t id, int64_t epoch, bool stop) {
    struct kw_broker_heartbeat_request q;
    struct kw_broker_heartbeat_response a;
    kw_msg_init(&kw_broker_heartbeat_request_desc, &q);
    q.broker_id = id;
    q.broker_epoch = epoch;
    q.current_metadata_offset = r.node->image.offset;
    q.want_shut_down = stop;
    rig_call(c, KW_API_BROKER_HEARTBEAT, 1, &q, &a);
    return a;
}

static int setup(void **state) {
    (void)state;
    rig_init(&r, 1);
    rig_start(&r);
    admin = rig_connect(&r);
    for (int i = 0; i < 2; i++) {
        conns[i] = rig_connect(&r);
        epochs[i] = enlist(conns[i], 7 + i, 1, -1, 0);
        struct kw_broker_heartbeat_response a = beat(conns[i], 7 + i, epochs[i], false);
        assert_int_equal(a.error_code, 0);
        assert_false(a.is_fenced);
        assert_true(a.is_caught_up);
    }
    return 0;
}
static int teardown(void **state) {
    (void)state;
    rig_kill(&r);
    rig_deinit(&r);
    return 0;
}

/* On brokers 7 and 8. */
static void make_topic(const char *name) {
    struct kw_create_topics_request q;
    struct kw_create_topics_response a;
    int32_t ids[] = {7, 8};
    struct kw_create_topics_request_creatable_replica_assignment as = {.partition_index = 0, .broker_ids = {ids, 2}};
    struct kw_create_topics_request_creatable_topic t;
    kw_msg_init(&kw_create_topics_request_desc, &q);
    memset(&t, 0, sizeof(t));
    t.name = kw_str_of(name);
    t.num_partitions = -1;
    t.replication_factor = -1;
    t.assignments.v = &as, t.assignments.n = 1;
    q.topics.v = &t, q.topics.n = 1;
    rig_call(admin, KW_API_CREATE_TOPICS, 5, &q, &a);
    assert_int_equal(a.topics.v[0].error_code, 0);
}
static struct kb_image_partition *part(const char *name) {
    return kb_image_partition(&r.node->image, kw_str_of(name), 0);
}

static void test_brokers(void **state) {
    (void)state;
    assert_int_equal(beat(conns[0], 7, epochs[0] + 1, false).error_code, KE_STALE_BROKER_EPOCH);
    assert_int_equal(beat(conns[0], 9, 1, false).error_code, KE_BROKER_ID_NOT_REGISTERED);
    assert_int_equal(enlist(admin, 7, 2, -1, KE_DUPLICATE_BROKER_REGISTRATION), -1);
    assert_int_equal(enlist(admin, 0, 2, -1, KE_DUPLICATE_BROKER_REGISTRATION), -1); /* the node itself */
    assert_int_equal(enlist(admin, 7, 1, -1, 0), epochs[0]);                          /* again the same */
    make_topic("t");
    struct kw_broker_heartbeat_response a = beat(conns[0], 7, epochs[0], true);
    assert_int_equal(a.error_code, 0);
    assert_true(a.should_shut_down);
    assert_int_equal(part("t")->leader, 8);
    struct kw_unregister_broker_request u;
    struct kw_unregister_broker_response v;
    kw_msg_init(&kw_unregister_broker_request_desc, &u);
    u.broker_id = 7;
    rig_call(admin, KW_API_UNREGISTER_BROKER, 0, &u, &v);
    assert_int_equal(v.error_code, 0);
    rig_call(admin, KW_API_UNREGISTER_BROKER, 0, &u, &v);
    assert_int_equal(v.error_code, KE_BROKER_ID_NOT_REGISTERED);
    assert_null(kb_image_broker(&r.node->image, 7));
}

static struct kb_dial *dial_of(uint16_t port) {
    const char *host;
    uint16_t to;
    rig_settle(&r);
    struct kb_dial *d = kb_node_next_dial(r.node);
    assert_non_null(d);
    kb_dial_address(d, &host, &to);
    assert_string_equal(host, "10.0.0.1");
    assert_int_equal(to, port);
    kb_dial_set_shell(d, &r); /* the shell has taken it on */
    return d;
}

static void test_a_closed_connection_is_looked_into(void **state) {
    (void)state;
    make_topic("t");
    kb_conn_closed(conns[0]->conn, r.now);
    conns[0]->conn = NULL;
    struct kb_dial *d = dial_of(9007);
    kb_dial_connected(d, r.now); /* it listens: nothing is concluded, and the connection closes */
    rig_settle(&r);
    assert_ptr_equal(kb_node_next_dial(r.node), d);
    assert_true(kb_dial_wants_close(d));
    kb_dial_ended(d, KB_LINK_CLOSED, r.now);
    conns[0] = rig_connect(&r);
    assert_int_equal(beat(conns[0], 7, epochs[0], false).error_code, 0);
    rig_pass(&r, 200000);
    assert_null(kb_node_next_dial(r.node)); /* it was heard of */
    assert_int_equal(part("t")->leader, 7);
    kb_conn_closed(conns[0]->conn, r.now);
    conns[0]->conn = NULL;
    kb_dial_ended(dial_of(9007), KB_LINK_REFUSED, r.now);
    rig_pass(&r, 49000);
    assert_int_equal(part("t")->leader, 7);
    rig_pass(&r, 30000);
    assert_int_equal(part("t")->leader, 8);
    assert_true(kb_image_broker(&r.node->image, 7)->fenced);
}

/* A dial under way when the node goes. */
static void test_a_dial_at_the_end(void **state) {
    (void)state;
    kb_conn_closed(conns[0]->conn, r.now);
    conns[0]->conn = NULL;
    (void)dial_of(9007);
}

/* A number of the status; where: "counts" or NULL. */
static int64_t status_of(const char *where, const char *name) {
    char *text = kb_node_status(r.node);
    assert_non_null(text);
    json_t *all = json_loads(text, 0, NULL);
    assert_non_null(all);
    json_t *v = json_object_get(where ? json_object_get(all, where) : all, name);
    assert_true(json_is_integer(v));
    int64_t n = json_integer_value(v);
    json_decref(all);
    kw_free(text);
    return n;
}

/* As a client is told, by the broker of itself and of the controller; -1: not told. */
static int64_t told(bool of_controller, bool asked, const char *name) {
    struct kw_describe_cluster_request cq;
    struct kw_describe_cluster_response ca;
    struct kw_describe_quorum_request qq;
    struct kw_describe_quorum_response qa;
    kw_msg_init(&kw_describe_cluster_request_desc, &cq);
    kw_msg_init(&kw_describe_quorum_request_desc, &qq);
    cq.include_counts = qq.include_counts = asked;
    if (of_controller)
        rig_call(admin, KW_API_DESCRIBE_QUORUM, 2, &qq, &qa);
    else
        rig_call(admin, KW_API_DESCRIBE_CLUSTER, 2, &cq, &ca);
    for (int32_t i = 0; i < (of_controller ? qa.counts.n : ca.counts.n); i++)
        if (kw_str_eq(of_controller ? qa.counts.v[i].name : ca.counts.v[i].name, kw_str_of(name)))
            return of_controller ? qa.counts.v[i].value : ca.counts.v[i].value;
    return -1;
}

static void test_status(void **state) {
    (void)state;
    static const char *const counts[] = {"brokers_fenced", "unclean_elections", "last_known_leaders",  "records_lost",   "truncations",
                                         "resets",         "unclean_truncations", "unclean_records", "corrupt_batches",
                                         "compactions",    "uncleanable_logs"};
    for (size_t i = 0; i < KW_COUNTOF(counts); i++) assert_int_equal(status_of("counts", counts[i]), 0);
    assert_int_equal(status_of(NULL, "node"), 0);
    assert_int_equal(status_of(NULL, "controller"), 0);
    assert_int_equal(status_of(NULL, "metadata_offset"), r.node->image.offset);
    assert_int_equal(status_of(NULL, "broker_epoch"), kb_node_broker_epoch(r.node));
    make_topic("t");
    kb_conn_closed(conns[0]->conn, r.now);
    conns[0]->conn = NULL;
    kb_dial_ended(dial_of(9007), KB_LINK_REFUSED, r.now);
    rig_pass(&r, 80000);
    assert_int_equal(status_of("counts", "brokers_fenced"), 1);
    assert_int_equal(status_of("counts", "unclean_elections"), 0);
    for (int of_controller = 0; of_controller < 2; of_controller++) {
        assert_int_equal(told(of_controller, true, "brokers_fenced"), 1);
        assert_int_equal(told(of_controller, true, "unclean_elections"), 0);
        assert_int_equal(told(of_controller, true, "corrupt_batches"), 0);
        assert_int_equal(told(of_controller, false, "brokers_fenced"), -1); /* nobody else is bothered with it */
    }
    rig_kill(&r);
    rig_start(&r); /* counts are of a start */
    assert_int_equal(status_of("counts", "brokers_fenced"), 0);
}

static int16_t alter(int16_t version, int32_t isr_count, int16_t *top) {
    struct kw_alter_partition_request q;
    struct kw_alter_partition_response a;
    struct kw_alter_partition_request_topic_data t;
    struct kw_alter_partition_request_partition_data p;
    struct kw_alter_partition_request_broker_state s[] = {{7, epochs[0]}, {8, epochs[1]}};
    int32_t ids[] = {7, 8};
    kw_msg_init(&kw_alter_partition_request_desc, &q);
    memset(&t, 0, sizeof(t));
    memset(&p, 0, sizeof(p));
    q.broker_id = 7;
    q.broker_epoch = epochs[0];
    q.topics.v = &t, q.topics.n = 1;
    t.topic_name = kw_str_of("t");
    t.topic_id = kb_image_topic(&r.node->image, kw_str_of("t"))->id;
    t.partitions.v = &p, t.partitions.n = 1;
    p.leader_epoch = part("t")->leader_epoch;
    p.partition_epoch = part("t")->partition_epoch;
    if (version >= 3)
        p.new_isr_with_epochs.v = s, p.new_isr_with_epochs.n = isr_count;
    else
        p.new_isr.v = ids, p.new_isr.n = isr_count;
    rig_call(conns[0], KW_API_ALTER_PARTITION, version, &q, &a);
    *top = a.error_code;
    if (a.error_code) return a.error_code;
    assert_int_equal(a.topics.v[0].partitions.n, 1);
    struct kw_alter_partition_response_partition_data *o = &a.topics.v[0].partitions.v[0];
    if (o->error_code == 0) {
        assert_int_equal(o->leader_id, 7);
        assert_int_equal(o->isr.n, isr_count);
        assert_int_equal(o->partition_epoch, part("t")->partition_epoch);
        assert_int_equal(part("t")->isr_count, isr_count);
    }
    return o->error_code;
}

static void test_alter_partition(void **state) {
    (void)state;
    int16_t top;
    make_topic("t");
    for (int16_t v = 0; v <= 3; v++)
        for (int32_t n = 1; n <= 2; n++) assert_int_equal(alter(v, n, &top), 0);
    assert_int_equal(alter(3, 0, &top), KE_INVALID_REQUEST);
    epochs[1]--;
    assert_int_equal(alter(3, 2, &top), KE_INELIGIBLE_REPLICA);
    epochs[0]--;
    assert_int_equal(alter(3, 1, &top), KE_STALE_BROKER_EPOCH);
    assert_int_equal(top, KE_STALE_BROKER_EPOCH);
    epochs[0]++;
    kb_conn_closed(conns[1]->conn, r.now);
    conns[1]->conn = NULL;
    kb_dial_ended(dial_of(9008), KB_LINK_REFUSED, r.now);
    rig_pass(&r, 100000);
    assert_int_equal(part("t")->isr_count, 1);
    assert_int_equal(alter(2, 2, &top), KE_INELIGIBLE_REPLICA);
    assert_int_equal(alter(1, 2, &top), KE_OPERATION_NOT_ATTEMPTED); /* before there was a code of its own */
}

struct move {
    struct kw_alter_partition_reassignments_request q;
    struct kw_alter_partition_reassignments_request_reassignable_topic t;
    struct kw_alter_partition_reassignments_request_reassignable_partition p[2];
};
/* t-0 to these replicas (NULL: back), and a partition that is not there. */
static struct kw_alter_partition_reassignments_response move(struct move *m, int16_t version, int32_t *to, int32_t n, bool free) {
    struct kw_alter_partition_reassignments_response a;
    memset(m, 0, sizeof(*m));
    kw_msg_init(&kw_alter_partition_reassignments_request_desc, &m->q);
    m->t.name = kw_str_of("t");
    m->t.partitions.v = m->p, m->t.partitions.n = 2;
    m->p[0].replicas.v = to, m->p[0].replicas.n = n;
    m->p[1].partition_index = 5;
    m->p[1].replicas.n = -1;
    m->q.topics.v = &m->t, m->q.topics.n = 1;
    m->q.allow_replication_factor_change = free;
    rig_call(admin, KW_API_ALTER_PARTITION_REASSIGNMENTS, version, &m->q, &a);
    assert_int_equal(a.error_code, 0);
    assert_int_equal(a.responses.v[0].partitions.v[1].error_code, KE_UNKNOWN_TOPIC_OR_PARTITION);
    return a;
}
#define MOVED(code, ...) assert_int_equal(move(&m, __VA_ARGS__).responses.v[0].partitions.v[0].error_code, code)

static void test_elections(void **state) {
    (void)state;
    struct move m;
    int32_t to[] = {8, 7};
    make_topic("t");
    MOVED(0, 1, to, 2, true);
    assert_int_equal(part("t")->replicas[0], 8);
    assert_int_equal(part("t")->leader, 7);
    struct kw_elect_leaders_request e;
    struct kw_elect_leaders_response f;
    kw_msg_init(&kw_elect_leaders_request_desc, &e);
    e.topic_partitions.n = -1; /* whatever needs it */
    rig_call(admin, KW_API_ELECT_LEADERS, 2, &e, &f);
    assert_int_equal(f.error_code, 0);
    assert_int_equal(f.replica_election_results.n, 1);
    assert_int_equal(f.replica_election_results.v[0].partition_result.n, 1);
    assert_int_equal(f.replica_election_results.v[0].partition_result.v[0].error_code, 0);
    assert_int_equal(part("t")->leader, 8);
    int32_t zero = 0;
    struct kw_elect_leaders_request_topic_partitions named = {.topic = kw_str_of("t"), .partitions = {&zero, 1}};
    e.topic_partitions.v = &named, e.topic_partitions.n = 1;
    rig_call(admin, KW_API_ELECT_LEADERS, 0, &e, &f);
    assert_int_equal(f.replica_election_results.v[0].partition_result.v[0].error_code, KE_ELECTION_NOT_NEEDED);
    e.election_type = 9;
    rig_call(admin, KW_API_ELECT_LEADERS, 1, &e, &f);
    assert_int_equal(f.error_code, KE_INVALID_REQUEST);
}

/* A topic of so many partitions on brokers 7 and 8; its replicas then change places, and who leads does not. */
static void make_large(const char *name, int32_t partitions) {
    struct kw_create_topics_request q;
    struct kw_create_topics_response a;
    struct kw_create_topics_request_creatable_topic t;
    struct kw_create_topics_request_creatable_replica_assignment *as = calloc((size_t)partitions, sizeof(*as));
    struct kw_alter_partition_reassignments_request w;
    struct kw_alter_partition_reassignments_response b;
    struct kw_alter_partition_reassignments_request_reassignable_topic u = {.name = kw_str_of(name)};
    struct kw_alter_partition_reassignments_request_reassignable_partition *p = calloc((size_t)partitions, sizeof(*p));
    int32_t ids[] = {7, 8}, turned[] = {8, 7};
    kw_msg_init(&kw_create_topics_request_desc, &q);
    kw_msg_init(&kw_alter_partition_reassignments_request_desc, &w);
    memset(&t, 0, sizeof(t));
    for (int32_t i = 0; i < partitions; i++) {
        as[i].partition_index = p[i].partition_index = i;
        as[i].broker_ids.v = ids, as[i].broker_ids.n = 2;
        p[i].replicas.v = turned, p[i].replicas.n = 2;
    }
    t.name = kw_str_of(name);
    t.num_partitions = -1;
    t.replication_factor = -1;
    t.assignments.v = as, t.assignments.n = partitions;
    q.topics.v = &t, q.topics.n = 1;
    rig_call(admin, KW_API_CREATE_TOPICS, 5, &q, &a);
    assert_int_equal(a.topics.v[0].error_code, 0);
    u.partitions.v = p, u.partitions.n = partitions;
    w.topics.v = &u, w.topics.n = 1;
    rig_call(admin, KW_API_ALTER_PARTITION_REASSIGNMENTS, 1, &w, &b);
    assert_int_equal(b.responses.v[0].partitions.v[partitions - 1].error_code, 0);
    free(as);
    free(p);
}

/* More than one change may do: all of it is done, in slices. */
static void test_an_election_of_very_many(void **state) {
    (void)state;
    struct kw_elect_leaders_request e;
    struct kw_elect_leaders_response f;
    int32_t elected = 0;
    make_large("a", 6000);
    make_large("b", 6001);
    kw_msg_init(&kw_elect_leaders_request_desc, &e);
    e.topic_partitions.n = -1;
    rig_call(admin, KW_API_ELECT_LEADERS, 2, &e, &f);
    assert_int_equal(f.error_code, 0);
    assert_int_equal(f.replica_election_results.n, 2);
    for (int32_t i = 0; i < f.replica_election_results.n; i++)
        for (int32_t j = 0; j < f.replica_election_results.v[i].partition_result.n; j++) {
            assert_int_equal(f.replica_election_results.v[i].partition_result.v[j].error_code, 0);
            elected++;
        }
    assert_int_equal(elected, 12001);
    for (int i = 0; i < 2; i++) {
        const struct kb_image_topic *t = kb_image_topic(&r.node->image, kw_str_of(i ? "b" : "a"));
        for (int32_t j = 0; j < t->partition_count; j++) assert_int_equal(t->partitions[j].leader, 8);
    }
    rig_call(admin, KW_API_ELECT_LEADERS, 2, &e, &f); /* nothing is left to do */
    assert_int_equal(f.replica_election_results.n, 0);
}

/* When the time is up, what was done is told apart from what was not. */
static void test_an_election_that_takes_too_long(void **state) {
    (void)state;
    struct kw_elect_leaders_request e;
    struct kw_elect_leaders_response f;
    int32_t counts[2] = {0}, led = 0;
    make_large("a", 6000);
    kw_msg_init(&kw_elect_leaders_request_desc, &e);
    e.topic_partitions.n = -1;
    e.timeout_ms = 2;
    rig_call(admin, KW_API_ELECT_LEADERS, 2, &e, &f);
    assert_int_equal(f.replica_election_results.n, 1);
    assert_int_equal(f.replica_election_results.v[0].partition_result.n, 6000);
    for (int32_t j = 0; j < 6000; j++) {
        int16_t code = f.replica_election_results.v[0].partition_result.v[j].error_code;
        assert_true(code == 0 || code == KE_REQUEST_TIMED_OUT);
        counts[code != 0]++;
    }
    const struct kb_image_topic *t = kb_image_topic(&r.node->image, kw_str_of("a"));
    for (int32_t j = 0; j < 6000; j++) led += t->partitions[j].leader == 8;
    assert_in_range(counts[0], 1000, 5000);
    assert_in_range(led, counts[0], counts[0] + 1000); /* the slice that was under way may have come to be */
}

static void test_moves(void **state) {
    (void)state;
    struct move m;
    int32_t more[] = {7, 8, 0}, zero = 0;
    make_topic("t");
    MOVED(KE_INVALID_REPLICATION_FACTOR, 1, more, 3, false);
    MOVED(0, 0, more, 3, true);
    struct kw_list_partition_reassignments_request l;
    struct kw_list_partition_reassignments_response now;
    struct kw_list_partition_reassignments_request_list_partition_reassignments_topics named = {.name = kw_str_of("t"),
                                                                                                    .partition_indexes = {&zero, 1}};
    kw_msg_init(&kw_list_partition_reassignments_request_desc, &l);
    for (int i = 0; i < 2; i++) {
        rig_call(admin, KW_API_LIST_PARTITION_REASSIGNMENTS, 0, &l, &now);
        assert_int_equal(now.topics.n, 1);
        assert_int_equal(now.topics.v[0].partitions.v[0].replicas.n, 3);
        assert_int_equal(now.topics.v[0].partitions.v[0].adding_replicas.v[0], 0);
        assert_int_equal(now.topics.v[0].partitions.v[0].removing_replicas.n, 0);
        l.topics.v = &named, l.topics.n = 1; /* then by name */
    }
    MOVED(0, 1, NULL, -1, true); /* cancelled */
    MOVED(KE_NO_REASSIGNMENT_IN_PROGRESS, 1, NULL, -1, true);
    rig_call(admin, KW_API_LIST_PARTITION_REASSIGNMENTS, 0, &l, &now);
    assert_int_equal(now.topics.n, 0);
}

static void test_producer_ids(void **state) {
    (void)state;
    struct kw_allocate_producer_ids_request q;
    struct kw_allocate_producer_ids_response a;
    kw_msg_init(&kw_allocate_producer_ids_request_desc, &q);
    q.broker_id = 8;
    q.broker_epoch = epochs[1];
    for (int i = 0; i < 2; i++) {
        rig_call(conns[1], KW_API_ALLOCATE_PRODUCER_IDS, 0, &q, &a);
        assert_int_equal(a.error_code, 0);
        assert_int_equal(a.producer_id_start, i * 1000);
        assert_int_equal(a.producer_id_len, 1000);
    }
    q.broker_epoch++;
    rig_call(conns[1], KW_API_ALLOCATE_PRODUCER_IDS, 0, &q, &a);
    assert_int_equal(a.error_code, KE_STALE_BROKER_EPOCH);
}

/* Elsewhere: each of them says so. */
static void test_not_the_controller(void **state) {
    (void)state;
    int16_t top;
    make_topic("t");
    kb_controller_resign(r.node->parts.controller, r.now);
    assert_int_equal(beat(conns[0], 7, epochs[0], false).error_code, KE_NOT_CONTROLLER);
    (void)enlist(conns[0], 7, 3, -1, KE_NOT_CONTROLLER);
    assert_int_equal(alter(3, 1, &top), KE_NOT_CONTROLLER);
    assert_int_equal(top, KE_NOT_CONTROLLER);
    struct kw_allocate_producer_ids_request q;
    struct kw_allocate_producer_ids_response a;
    kw_msg_init(&kw_allocate_producer_ids_request_desc, &q);
    rig_call(conns[1], KW_API_ALLOCATE_PRODUCER_IDS, 0, &q, &a);
    assert_int_equal(a.error_code, KE_NOT_CONTROLLER);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_brokers),         TEST(test_a_closed_connection_is_looked_into), TEST(test_a_dial_at_the_end), TEST(test_alter_partition),
        TEST(test_elections),       TEST(test_moves),                              TEST(test_producer_ids),     TEST(test_not_the_controller),
        TEST(test_status),            TEST(test_an_election_of_very_many),               TEST(test_an_election_that_takes_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
