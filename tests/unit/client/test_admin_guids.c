/* test_admin_guids.c - kc_admin_lookup_guids and kc_admin_guid_stats against two scripted brokers: each partition's leader is asked, and asked again where
 * it has moved, is silent or cannot be reached; what several partitions have; topics and brokers that look no ids up.
 */
#include <kclient/admin.h>
#include <string.h>

#include "base/arena.h"
#include "server.h"
#include "wire/kerror.h"

enum { PARTS = 4, IDS = 3 };

static struct server *srv[2]; /* brokers 1 and 2 */
static kc_client *client;
static pthread_mutex_t script_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int32_t leader[PARTS], told[PARTS]; /* who leads, and who does so by the metadata */
    int32_t looks_to_tell;              /* so many answers to metadata show `told`, then the truth */
    int16_t code[PARTS];                /* what its leader answers */
    int code_times;                     /* so many times; -1: always */
    int8_t state[PARTS][IDS];
    bool none, no_topic, silent, leave_out, short_answer;
    int32_t drop;
    int asked[2], metadata;
    int32_t ids_asked;
    bool stats_asked;
} script;
static struct kw_arena arena;

static void script_new(void) {
    memset(&script, 0, sizeof script);
    for (int i = 0; i < PARTS; i++) script.leader[i] = script.told[i] = 1 + i % 2;
    script.code_times = -1;
}

static void api_versions(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_api_versions_response m;
    struct kw_api_versions_response_api_version keys[128];
    kw_msg_init(&kw_api_versions_response_desc, &m);
    m.api_keys.v = keys;
    for (size_t i = 0; i < kw_api_count && i < KW_COUNTOF(keys); i++)
        if (!script.none || kw_apis[i].key != KW_API_LOOKUP_GUID)
            keys[m.api_keys.n++] = (struct kw_api_versions_response_api_version){
                .api_key = kw_apis[i].key, .min_version = kw_apis[i].min, .max_version = kw_apis[i].max};
    server_reply(c, h, &m);
}

static void metadata(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_metadata_request q;
    struct kw_metadata_response m;
    struct kw_metadata_response_broker b[2];
    struct kw_metadata_response_partition parts[PARTS];
    struct kw_metadata_response_topic t = {.name = kw_str_of("t"), .topic_id = {{9}}, .topic_authorized_operations = INT32_MIN};
    if (kw_decode(&kw_metadata_request_desc, h->version, body, &arena, &q) != KW_OK) return;
    kw_msg_init(&kw_metadata_response_desc, &m);
    for (int i = 0; i < 2; i++)
        b[i] = (struct kw_metadata_response_broker){.node_id = 1 + i, .host = kw_str_of("127.0.0.1"), .port = srv[i]->port, .rack = kw_str_null()};
    m.brokers.v = b;
    m.brokers.n = 2;
    m.controller_id = 1;
    bool asked = q.topics.n == 1;
    bool old = script.looks_to_tell > 0;
    if (asked) script.metadata++;
    if (asked && old) script.looks_to_tell--;
    for (int32_t i = 0; i < PARTS; i++) /* in any order */
        parts[PARTS - 1 - i] = (struct kw_metadata_response_partition){
            .partition_index = i, .leader_id = old ? script.told[i] : script.leader[i], .leader_epoch = 5};
    t.partitions.v = parts;
    t.partitions.n = PARTS;
    if (script.no_topic)
        t = (struct kw_metadata_response_topic){
            .name = kw_str_of("t"), .error_code = KE_UNKNOWN_TOPIC_OR_PARTITION, .topic_authorized_operations = INT32_MIN};
    m.topics.v = &t;
    m.topics.n = asked;
    server_reply(c, h, &m);
}

static struct kw_lookup_guid_response_stats stats_of(int32_t partition) {
    return (struct kw_lookup_guid_response_stats){.from = 1, .end = 100 + partition, .entries = 50 + partition, .runs = 3, .disk_bytes = 2700,
                                                  .memory_bytes = 400, .window_ms = 3600000, .finds = 60, .run_reads = 7, .hits = 9,
                                                  .flushes = 4, .merges = 2, .forgotten = 5};
}

static void lookup(int broker, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    static struct kw_lookup_guid_response_partition_result p[PARTS];
    static struct kw_lookup_guid_response_id_result ids[PARTS][1001];
    static struct kw_lookup_guid_response_stats stats[PARTS];
    struct kw_lookup_guid_request q;
    struct kw_lookup_guid_response m;
    if (kw_decode(&kw_lookup_guid_request_desc, h->version, body, &arena, &q) != KW_OK || q.topics.n != 1) return;
    kw_msg_init(&kw_lookup_guid_response_desc, &m);
    struct kw_lookup_guid_response_topic_result t = {.name = q.topics.v[0].name, .partitions = {p, 0}};
    script.asked[broker - 1]++;
    script.stats_asked = q.include_stats;
    for (int32_t i = 0; i < q.topics.v[0].partitions.n; i++) {
        const struct kw_lookup_guid_request_partition *a = &q.topics.v[0].partitions.v[i];
        int32_t index = a->index;
        script.ids_asked = a->ids.n;
        if (script.leave_out && index == 2) continue;
        struct kw_lookup_guid_response_partition_result *r = &p[t.partitions.n++];
        int16_t code = script.leader[index] != broker ? KE_NOT_LEADER_OR_FOLLOWER : script.code_times != 0 ? script.code[index] : 0;
        if (code && code == script.code[index] && script.code_times > 0) script.code_times--;
        *r = (struct kw_lookup_guid_response_partition_result){
            .index = index, .error_code = code, .error_message = code == KE_INVALID_REQUEST ? kw_str_of("message.guid.dedup is not true") : kw_str_null(),
            .leader_epoch = 5, .high_watermark = 90};
        r->ids.v = ids[index];
        for (int32_t k = 0; k < a->ids.n && !code; k++) {
            if (a->ids.v[k].len != 16) continue;
            uint8_t which = a->ids.v[k].p[15];
            int8_t state = which < IDS ? script.state[index][which] : 0;
            ids[index][r->ids.n++] = (struct kw_lookup_guid_response_id_result){
                .state = state, .offset = state ? 1000 * index + which : -1, .leader_epoch = state ? 3 : -1};
        }
        if (script.short_answer && r->ids.n > 0) r->ids.n--;
        stats[index] = stats_of(index);
        if (q.include_stats && !code) r->stats = &stats[index];
    }
    m.topics.v = &t;
    m.topics.n = 1;
    server_reply(c, h, &m);
}

static bool hook(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    pthread_mutex_lock(&script_lock);
    kw_arena_reset(&arena);
    bool mine = true;
    int broker = s == srv[0] ? 1 : 2;
    if (h->api_key == KW_API_API_VERSIONS) {
        api_versions(c, h);
    } else if (h->api_key == KW_API_METADATA) {
        metadata(c, h, body);
    } else if (h->api_key == KW_API_LOOKUP_GUID) {
        if (script.drop > 0) {
            script.drop--;
            shutdown(c->fd, SHUT_RDWR);
        } else if (!script.silent || broker == 1) {
            lookup(broker, c, h, body);
        }
    } else {
        mine = false;
    }
    pthread_mutex_unlock(&script_lock);
    return mine;
}

static int set_up(void **state) {
    (void)state;
    char text[64];
    kc_config *config = kc_config_new();
    kw_arena_init(&arena, 0);
    script_new();
    srv[0] = server_new_with(hook);
    srv[1] = server_new_with(hook);
    snprintf(text, sizeof text, "127.0.0.1:%d", srv[0]->port);
    assert_int_equal(kc_config_set(config, "bootstrap.servers", text, NULL), KC_OK);
    assert_int_equal(kc_config_set(config, "retry.backoff.ms", "5", NULL), KC_OK);
    assert_int_equal(kc_config_set(config, "retry.backoff.max.ms", "20", NULL), KC_OK);
    assert_int_equal(kc_client_new(config, &client, NULL), KC_OK);
    kc_config_free(config);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    kc_client_free(client);
    for (int i = 0; i < 2; i++) server_free(srv[i]);
    kw_arena_deinit(&arena);
    return 0;
}

static uint8_t guids[IDS][16] = {{[15] = 0}, {[15] = 1}, {[15] = 2}};

static kc_guid_list *look_up(kc_err wanted, size_t n, const int32_t *only, size_t only_count, kc_error **error) {
    kc_guid_list *l = NULL;
    assert_int_equal(kc_admin_lookup_guids(client, "t", guids[0], n, only, only_count, 20000000, &l, error), wanted);
    assert_true((l != NULL) == (wanted == KC_OK));
    return l;
}

static void assert_place(const kc_guid_list *l, size_t at, size_t guid, int32_t state, int32_t partition, kc_err err) {
    kc_guid_place p;
    assert_int_equal(kc_guid_list_get(l, at, &p), KC_OK);
    assert_int_equal(p.guid, guid);
    assert_int_equal(p.state, state);
    assert_int_equal(p.partition, partition);
    assert_int_equal(p.offset, partition < 0 ? -1 : 1000 * partition + (int64_t)guid);
    assert_int_equal(p.leader_epoch, partition < 0 ? -1 : 3);
    assert_int_equal(p.err, err);
}

static void test_found_pending_unknown(void **state) {
    (void)state;
    script.state[3][0] = KC_GUID_FOUND;
    script.state[2][1] = KC_GUID_PENDING;
    kc_guid_list *l = look_up(KC_OK, IDS, NULL, 0, NULL);
    assert_int_equal(kc_guid_list_count(l), 3);
    assert_place(l, 0, 0, KC_GUID_FOUND, 3, KC_OK);
    assert_place(l, 1, 1, KC_GUID_PENDING, 2, KC_OK);
    assert_place(l, 2, 2, KC_GUID_UNKNOWN, -1, KC_OK);
    kc_guid_place p;
    assert_int_equal(kc_guid_list_get(l, 3, &p), KC_INVALID);
    assert_int_equal(kc_guid_list_partition_count(l), PARTS);
    for (size_t i = 0; i < PARTS; i++) {
        kc_guid_partition part;
        assert_int_equal(kc_guid_list_partition(l, i, &part), KC_OK);
        assert_int_equal(part.partition, i);
        assert_int_equal(part.leader, 1 + i % 2);
        assert_int_equal(part.leader_epoch, 5);
        assert_int_equal(part.err, KC_OK);
        assert_string_equal(part.message, "");
        assert_int_equal(part.high_watermark, 90);
        assert_int_equal(part.entries, 0);
    }
    assert_int_equal(script.asked[0], 1); /* all its partitions at once */
    assert_int_equal(script.asked[1], 1);
    assert_false(script.stats_asked);
    kc_guid_list_free(l);
}

static void test_one_id_in_several_partitions(void **state) {
    (void)state;
    for (int i = 1; i < PARTS; i++) script.state[i][1] = KC_GUID_FOUND;
    kc_guid_list *l = look_up(KC_OK, IDS, NULL, 0, NULL);
    assert_int_equal(kc_guid_list_count(l), 5);
    assert_place(l, 0, 0, KC_GUID_UNKNOWN, -1, KC_OK);
    for (int i = 1; i < PARTS; i++) assert_place(l, (size_t)i, 1, KC_GUID_FOUND, i, KC_OK);
    assert_place(l, 4, 2, KC_GUID_UNKNOWN, -1, KC_OK);
    kc_guid_list_free(l);
}

static void test_some_partitions_alone(void **state) {
    (void)state;
    static const int32_t only[] = {3, 1, 3, 77};
    for (int i = 0; i < PARTS; i++) script.state[i][0] = KC_GUID_FOUND;
    kc_guid_list *l = look_up(KC_OK, 1, only, 4, NULL);
    assert_int_equal(kc_guid_list_count(l), 2);
    assert_place(l, 0, 0, KC_GUID_FOUND, 1, KC_OK);
    assert_place(l, 1, 0, KC_GUID_FOUND, 3, KC_OK);
    kc_guid_partition part;
    assert_int_equal(kc_guid_list_partition_count(l), 3);
    assert_int_equal(kc_guid_list_partition(l, 2, &part), KC_OK);
    assert_int_equal(part.partition, 77);
    assert_int_equal(part.err, KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(script.asked[0], 0);
    kc_guid_list_free(l);
}

static void test_leaders_that_moved(void **state) {
    (void)state;
    script.state[0][0] = script.state[3][2] = KC_GUID_FOUND;
    script.told[0] = 2; /* told wrong, twice */
    script.told[3] = -1;
    script.looks_to_tell = 2;
    kc_guid_list *l = look_up(KC_OK, IDS, NULL, 0, NULL);
    assert_int_equal(kc_guid_list_count(l), 3);
    assert_place(l, 0, 0, KC_GUID_FOUND, 0, KC_OK);
    assert_place(l, 2, 2, KC_GUID_FOUND, 3, KC_OK);
    assert_true(script.metadata >= 3);
    kc_guid_list_free(l);
}

static void test_retriable_answers_and_lost_connections(void **state) {
    (void)state;
    script.state[1][0] = KC_GUID_FOUND;
    script.code[1] = KE_LEADER_NOT_AVAILABLE;
    script.code_times = 2;
    script.drop = 1;
    kc_guid_list *l = look_up(KC_OK, 1, NULL, 0, NULL);
    assert_int_equal(kc_guid_list_count(l), 1);
    assert_place(l, 0, 0, KC_GUID_FOUND, 1, KC_OK);
    kc_guid_list_free(l);
}

static void test_a_partition_that_cannot_be_asked(void **state) {
    (void)state;
    script.state[0][0] = KC_GUID_FOUND;
    script.leader[1] = script.told[1] = -1;
    kc_guid_list *l = look_up(KC_OK, 2, NULL, 0, NULL);
    assert_place(l, 0, 0, KC_GUID_FOUND, 0, KC_OK);
    assert_place(l, 1, 1, KC_GUID_UNKNOWN, -1, KE_LEADER_NOT_AVAILABLE); /* it may have it */
    kc_guid_partition part;
    assert_int_equal(kc_guid_list_partition(l, 1, &part), KC_OK);
    assert_int_equal(part.err, KE_LEADER_NOT_AVAILABLE);
    kc_guid_list_free(l);
}

static void test_a_silent_leader(void **state) {
    (void)state;
    script.state[2][1] = KC_GUID_FOUND;
    script.silent = true;
    kc_guid_list *l = look_up(KC_OK, 2, NULL, 0, NULL);
    assert_place(l, 0, 0, KC_GUID_UNKNOWN, -1, KC_TIMED_OUT);
    assert_place(l, 1, 1, KC_GUID_FOUND, 2, KC_OK);
    kc_guid_list_free(l);
}

static void test_nobody_looks_ids_up(void **state) {
    (void)state;
    kc_error *e = NULL;
    for (int i = 0; i < PARTS; i++) script.code[i] = KE_INVALID_REQUEST;
    look_up(KE_INVALID_REQUEST, 1, NULL, 0, &e);
    assert_non_null(strstr(kc_error_message(e), "message.guid.dedup is not true"));
    assert_non_null(strstr(kc_error_message(e), "topic t"));
    kc_error_free(e);
    script.no_topic = true;
    look_up(KE_UNKNOWN_TOPIC_OR_PARTITION, 1, NULL, 0, &e);
    assert_non_null(strstr(kc_error_message(e), "topic t"));
    kc_error_free(e);
}

static void test_brokers_that_cannot(void **state) {
    (void)state;
    pthread_mutex_lock(&script_lock);
    script.none = true;
    pthread_mutex_unlock(&script_lock);
    look_up(KC_UNSUPPORTED, 1, NULL, 0, NULL);
    assert_int_equal(script.asked[0] + script.asked[1], 0);
}

static void test_answers_that_make_no_sense(void **state) {
    (void)state;
    script.leave_out = true;
    look_up(KC_BAD_MESSAGE, 1, NULL, 0, NULL);
    script.leave_out = false;
    script.short_answer = true;
    look_up(KC_BAD_MESSAGE, 2, NULL, 0, NULL);
}

static void test_stats(void **state) {
    (void)state;
    kc_guid_list *l = NULL;
    assert_int_equal(kc_admin_guid_stats(client, "t", 20000000, &l, NULL), KC_OK);
    assert_true(script.stats_asked);
    assert_int_equal(script.ids_asked, 0);
    assert_int_equal(kc_guid_list_count(l), 0);
    for (size_t i = 0; i < PARTS; i++) {
        kc_guid_partition p;
        struct kw_lookup_guid_response_stats s = stats_of((int32_t)i);
        assert_int_equal(kc_guid_list_partition(l, i, &p), KC_OK);
        const int64_t got[] = {p.from,  p.end,       p.entries, p.runs,    p.disk_bytes, p.memory_bytes, p.window_ms,
                               p.finds, p.run_reads, p.hits,    p.flushes, p.merges,     p.forgotten};
        const int64_t wanted[] = {s.from,  s.end,       s.entries, s.runs,    s.disk_bytes, s.memory_bytes, s.window_ms,
                                  s.finds, s.run_reads, s.hits,    s.flushes, s.merges,     s.forgotten};
        assert_memory_equal(got, wanted, sizeof got);
    }
    kc_guid_list_free(l);
}

static void test_operations(void **state) {
    (void)state;
    kc_op *op = NULL;
    script.state[0][0] = KC_GUID_FOUND;
    assert_int_equal(kc_admin_lookup_guids_start(client, "t", guids[0], 1, NULL, 0, 20000000, 42, &op, NULL), KC_OK);
    assert_int_equal(kc_op_opaque(op), 42);
    assert_int_equal(kc_op_wait(op, KC_FOREVER, NULL), KC_OK);
    kc_guid_list *l = kc_op_result_guids(op);
    assert_non_null(l);
    assert_null(kc_op_result_guids(op)); /* taken */
    kc_op_free(op);
    assert_place(l, 0, 0, KC_GUID_FOUND, 0, KC_OK);
    kc_guid_list_free(l);
    assert_int_equal(kc_admin_guid_stats_start(client, "t", 20000000, 0, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, KC_FOREVER, NULL), KC_OK);
    kc_op_free(op); /* with what it has */
    static uint8_t many[KC_GUID_LOOKUP_MAX + 1][16];
    assert_int_equal(kc_admin_lookup_guids(client, "t", many[0], KC_GUID_LOOKUP_MAX, NULL, 0, 20000000, &l, NULL), KC_OK);
    assert_int_equal(kc_guid_list_count(l), KC_GUID_LOOKUP_MAX);
    kc_guid_list_free(l);
}

static void test_invalid(void **state) {
    (void)state;
    static const int32_t bad = -1;
    kc_guid_list *l = NULL;
    kc_op *op = NULL;
    kc_guid_place place;
    kc_guid_partition part;
    assert_int_equal(kc_admin_lookup_guids(client, "t", guids[0], 0, NULL, 0, 0, &l, NULL), KC_INVALID);
    assert_int_equal(kc_admin_lookup_guids(client, "t", NULL, 1, NULL, 0, 0, &l, NULL), KC_INVALID);
    assert_int_equal(kc_admin_lookup_guids(client, NULL, guids[0], 1, NULL, 0, 0, &l, NULL), KC_INVALID);
    assert_int_equal(kc_admin_lookup_guids(client, "", guids[0], 1, NULL, 0, 0, &l, NULL), KC_INVALID);
    assert_int_equal(kc_admin_lookup_guids(client, "t", guids[0], 1, NULL, 0, 0, NULL, NULL), KC_INVALID);
    assert_int_equal(kc_admin_lookup_guids(client, "t", guids[0], 1, &bad, 1, 0, &l, NULL), KC_INVALID);
    assert_int_equal(kc_admin_lookup_guids(client, "t", guids[0], 1, NULL, 1, 0, &l, NULL), KC_INVALID);
    assert_int_equal(kc_admin_lookup_guids(client, "t", guids[0], KC_GUID_LOOKUP_MAX + 1, NULL, 0, 0, &l, NULL), KC_INVALID);
    assert_int_equal(kc_admin_lookup_guids_start(client, "t", guids[0], 1, NULL, 0, 0, 0, NULL, NULL), KC_INVALID);
    assert_int_equal(kc_admin_guid_stats(client, NULL, 0, &l, NULL), KC_INVALID);
    assert_int_equal(kc_admin_guid_stats(client, "t", 0, NULL, NULL), KC_INVALID);
    assert_int_equal(kc_admin_guid_stats_start(client, NULL, 0, 0, &op, NULL), KC_INVALID);
    assert_null(kc_op_result_guids(NULL));
    assert_int_equal(kc_guid_list_count(NULL), 0);
    assert_int_equal(kc_guid_list_partition_count(NULL), 0);
    assert_int_equal(kc_guid_list_get(NULL, 0, &place), KC_INVALID);
    assert_int_equal(kc_guid_list_partition(NULL, 0, &part), KC_INVALID);
    kc_guid_list_free(NULL);
}

static void test_memory_ends_anywhere(void **state) {
    (void)state;
    kc_guid_list *l = look_up(KC_OK, 1, NULL, 0, NULL);
    kc_guid_list_free(l);
    int good = 0;
    for (int64_t at = 0; at < 60; at++) {
        l = NULL;
        kw_alloc_fail_after(at);
        kc_err err = kc_admin_lookup_guids(client, "t", guids[0], IDS, NULL, 0, 5000000, &l, NULL);
        kw_alloc_fail_after(-1);
        assert_true((l != NULL) == (err == KC_OK));
        if (err == KC_OK) assert_int_equal(kc_guid_list_count(l), IDS);
        good += err == KC_OK;
        kc_guid_list_free(l);
    }
    assert_true(good > 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_found_pending_unknown),
        TEST(test_one_id_in_several_partitions),
        TEST(test_some_partitions_alone),
        TEST(test_leaders_that_moved),
        TEST(test_retriable_answers_and_lost_connections),
        TEST(test_a_partition_that_cannot_be_asked),
        TEST(test_a_silent_leader),
        TEST(test_nobody_looks_ids_up),
        TEST(test_brokers_that_cannot),
        TEST(test_answers_that_make_no_sense),
        TEST(test_stats),
        TEST(test_operations),
        TEST(test_invalid),
        TEST(test_memory_ends_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
