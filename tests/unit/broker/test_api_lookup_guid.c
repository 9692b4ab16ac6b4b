/* test_api_lookup_guid.c - LookupGuid: found, pending, unknown; errors; stats; fault rules and ApiVersions; what a topic's settings must be for dedup. */
#include "guid_rig.h"

struct ask {
    struct kw_lookup_guid_request req;
    struct kw_lookup_guid_request_topic topic;
    struct kw_lookup_guid_request_partition part;
    struct kw_bytes ids[GUIDS_MAX];
    uint8_t bytes[GUIDS_MAX][16];
};
static struct ask *asked(struct rig *r, const char *topic, const uint64_t *ids, int32_t n) {
    struct ask *a = kw_arena_calloc(&r->arena, 1, sizeof(*a));
    kw_msg_init(&kw_lookup_guid_request_desc, &a->req);
    a->req.topics.v = &a->topic;
    a->req.topics.n = 1;
    a->topic.name = kw_str_of(topic);
    a->topic.partitions.v = &a->part;
    a->topic.partitions.n = 1;
    a->part.current_leader_epoch = -1;
    a->part.ids.v = a->ids;
    a->part.ids.n = n;
    for (int32_t i = 0; i < n; i++) {
        guid_of(a->bytes[i], ids[i]);
        a->ids[i] = (struct kw_bytes){a->bytes[i], 16};
    }
    return a;
}
static struct kw_lookup_guid_response_partition_result lookup(struct rig_conn *c, struct ask *a) {
    struct kw_lookup_guid_response resp;
    rig_call(c, KW_API_LOOKUP_GUID, 0, &a->req, &resp);
    assert_int_equal(resp.topics.n, 1);
    assert_int_equal(resp.topics.v[0].partitions.n, 1);
    return resp.topics.v[0].partitions.v[0];
}
#define LOOK(r, c, ...) \
    lookup(c, asked(r, "t", (const uint64_t[]){__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)))

static void test_rule_23_states(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 1, 2, 2);
    lead_config(&l, "message.guid.dedup", "true");
    guid_send(l.c, 1, 1, GUIDS(IDS(1, 2, 3)));
    rig_settle(&l.r);
    struct rig_conn *c = rig_connect(&l.r);
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
    struct kw_lookup_guid_response_partition_result a = LOOK(&l.r, c, 3, 1, 9, 2);
    assert_int_equal(a.error_code, KE_NONE);
    assert_int_equal(a.high_watermark, 2);
    assert_int_equal(a.leader_epoch, 5);
    assert_null(a.stats);
    const int8_t states[] = {2, 1, 0, 1};
    const int64_t offsets[] = {2, 0, -1, 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(a.ids.v[i].state, states[i]);
        assert_int_equal(a.ids.v[i].offset, offsets[i]);
        assert_int_equal(a.ids.v[i].leader_epoch, offsets[i] >= 0 ? 5 : -1);
    }
    lead_fetch(&l, BY(.id = 1, .offset = 3, .last_epoch = 5));
    assert_int_equal(LOOK(&l.r, c, 3).ids.v[0].state, 1);
    /* By topic id, with the right epoch and a wrong one. */
    struct ask *q = asked(&l.r, "t", (const uint64_t[]){1}, 1);
    q->topic.name = kw_str_null();
    q->topic.topic_id = lead_topic_id();
    q->part.current_leader_epoch = 5;
    assert_int_equal(lookup(c, q).ids.v[0].state, 1);
    q->part.current_leader_epoch = 4;
    assert_int_equal(lookup(c, q).error_code, KE_FENCED_LEADER_EPOCH);
    q->part.current_leader_epoch = 6;
    assert_int_equal(lookup(c, q).error_code, KE_UNKNOWN_LEADER_EPOCH);
    static const int32_t both[] = {0, 1};
    lead_change(&l, 0, 1, both, 2); /* another leads */
    q->part.current_leader_epoch = -1;
    assert_int_equal(lookup(c, q).error_code, KE_NOT_LEADER_OR_FOLLOWER);
    lead_down(&l);
}

static void test_errors_and_stats(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 2);
    assert_int_equal(rig_create(c, "u", 1, NULL, NULL), KE_NONE);
    guid_put(c, true, GUIDS(IDS(1, 2, 3)));
    guid_put(c, true, GUIDS(IDS(1, 2)));
    struct kw_lookup_guid_response_partition_result a = lookup(c, asked(&r, "u", (const uint64_t[]){1}, 1));
    assert_int_equal(a.error_code, KE_INVALID_REQUEST); /* it has no index */
    assert_non_null(strstr(a.error_message.p, "message.guid.dedup"));
    assert_int_equal(lookup(c, asked(&r, "nowhere", (const uint64_t[]){1}, 1)).error_code, KE_UNKNOWN_TOPIC_OR_PARTITION);
    struct ask *q = asked(&r, "t", (const uint64_t[]){1}, 1);
    q->ids[0].len = 15;
    assert_int_equal(lookup(c, q).error_code, KE_INVALID_REQUEST);
    q = asked(&r, "t", (const uint64_t[]){1}, 0);
    q->req.include_stats = true;
    a = lookup(c, q);
    assert_int_equal(a.error_code, KE_NONE);
    assert_int_equal(a.ids.n, 0);
    assert_non_null(a.stats);
    assert_int_equal(a.stats->entries, 3);
    assert_int_equal(a.stats->end, 3);
    assert_int_equal(a.stats->window_ms, 3600000);
    assert_int_equal(a.stats->hits, 2);
    assert_true(a.stats->memory_bytes > 0);
    rig_deinit(&r);
}

/* From run files, which have to be read: before and after restarts; while the topic goes, and the connection. */
static void test_from_files(void **state) {
    (void)state;
    struct rig r;
    struct kw_lookup_guid_response resp;
    struct rig_conn *c = guid_begin(&r, 3);
    guid_put(c, true, GUIDS(IDS(1, 2, 3)));
    for (int how = 0; how < 4; how++) {
        if (how == 1) rig_crash(&r);
        else rig_restart(&r);
        c = rig_connect(&r);
        rig_pass(&r, 1000000);
        struct kw_lookup_guid_response_partition_result a = LOOK(&r, c, 3, 9, 1);
        assert_int_equal(a.error_code, KE_NONE);
        assert_int_equal(a.ids.v[0].offset, 2);
        assert_int_equal(a.ids.v[1].state, 0);
        assert_int_equal(a.ids.v[2].offset, 0);
    }
    rig_restart(&r);
    c = rig_connect(&r);
    rig_pass(&r, 1000000);
    struct rig_conn *d = rig_connect(&r);
    rig_request(c, KW_API_LOOKUP_GUID, 0, 7, &asked(&r, "t", (const uint64_t[]){1}, 1)->req);
    rig_request(d, KW_API_LOOKUP_GUID, 0, 8, &asked(&r, "t", (const uint64_t[]){2}, 1)->req);
    kb_conn_closed(d->conn, r.now);
    d->conn = NULL;
    rig_delete(rig_connect(&r), "t");
    assert_true(rig_response(c, KW_API_LOOKUP_GUID, 0, 7, &resp));
    int16_t code = resp.topics.v[0].partitions.v[0].error_code;
    assert_true(code == KE_NONE || code == KE_UNKNOWN_TOPIC_OR_PARTITION);
    rig_deinit(&r);
}

static void test_fault_rules_and_versions(void **state) {
    (void)state;
    struct rig r;
    struct kw_api_versions_request vq;
    struct kw_api_versions_response va;
    struct kb_fault_wrong wrong;
    struct rig_conn *c = guid_begin(&r, 4);
    kw_msg_init(&kw_api_versions_request_desc, &vq);
    vq.client_software_name = vq.client_software_version = kw_str_of("x");
    rig_call(c, KW_API_API_VERSIONS, 3, &vq, &va);
    int found = 0;
    for (int32_t i = 0; i < va.api_keys.n; i++) found += va.api_keys.v[i].api_key == 10000 && va.api_keys.v[i].max_version == 0;
    assert_int_equal(found, 1);
    int32_t first;
    const char *rule = "{\"api\":\"LookupGuid\",\"topic\":\"t\",\"partition\":0,\"error\":\"NOT_LEADER_OR_FOLLOWER\",\"times\":1}";
    assert_int_equal(kb_node_faults_add(r.node, rule, &first, &wrong), KW_OK);
    guid_put(c, true, GUIDS(IDS(1)));
    assert_int_equal(LOOK(&r, c, 1).error_code, KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(LOOK(&r, c, 1).ids.v[0].state, 1);
    /* After the effect, of a produce: it is stored, and said to have failed; whoever sends it again is told of the first copy. */
    rule = "{\"api\":\"Produce\",\"when\":\"after\",\"error\":\"REQUEST_TIMED_OUT\",\"times\":1}";
    assert_int_equal(kb_node_faults_add(r.node, rule, &first, &wrong), KW_OK);
    guid_expect(guid_put(c, true, GUIDS(IDS(5))), KE_REQUEST_TIMED_OUT, -1);
    rig_produced a = guid_put(c, true, GUIDS(IDS(5)));
    guid_expect(a, KE_NONE, 1);
    guid_ranges(a, "0+1@1");
    rig_deinit(&r);
}

/* ---- Settings ---- */

struct altered { /* a topic's entry, or with a resource of digits or "" a broker's */
    const char *resource, *key, *value; /* value NULL: it goes */
};
/* All in one request; what is said of the last one. */
static int16_t alter_all(struct rig_conn *c, const struct altered *v, int32_t n, const char **text) {
    struct kw_incremental_alter_configs_request req;
    struct kw_incremental_alter_configs_response resp;
    struct kw_incremental_alter_configs_request_alter_configs_resource res[4];
    struct kw_incremental_alter_configs_request_alterable_config kv[4];
    kw_msg_init(&kw_incremental_alter_configs_request_desc, &req);
    req.resources.v = res;
    req.resources.n = n;
    for (int32_t i = 0; i < n; i++) {
        bool broker = strspn(v[i].resource, "0123456789") == strlen(v[i].resource);
        kv[i] = (struct kw_incremental_alter_configs_request_alterable_config){
            .name = kw_str_of(v[i].key), .config_operation = v[i].value ? 0 : 1, .value = v[i].value ? kw_str_of(v[i].value) : kw_str_null()};
        res[i] = (struct kw_incremental_alter_configs_request_alter_configs_resource){
            .resource_type = broker ? 4 : 2, .resource_name = kw_str_of(v[i].resource), .configs = {&kv[i], 1}};
    }
    rig_call(c, KW_API_INCREMENTAL_ALTER_CONFIGS, 1, &req, &resp);
    *text = resp.responses.v[n - 1].error_message.len > 0 ? resp.responses.v[n - 1].error_message.p : "";
    return resp.responses.v[n - 1].error_code;
}
static int16_t alter_of(struct rig_conn *c, const char *resource, const char *key, const char *value, const char **text) {
    return alter_all(c, &(struct altered){resource, key, value}, 1, text);
}
static int16_t alter(struct rig_conn *c, const char *key, const char *value, const char **text) { return alter_of(c, "t", key, value, text); }

static void test_window_and_retention(void **state) {
    (void)state;
    struct rig r;
    const char *text;
    rig_init(&r, 5);
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, "retention.ms", "60000"), KE_NONE);
    assert_int_equal(alter(c, "message.guid.dedup", "true", &text), KE_INVALID_CONFIG);
    assert_non_null(strstr(text, "message.guid.window.ms=3600000"));
    assert_non_null(strstr(text, "retention.ms=60000"));
    assert_int_equal(alter(c, "message.guid.window.ms", "60001", &text), KE_NONE); /* nothing asks for it yet */
    assert_int_equal(alter(c, "message.guid.dedup", "true", &text), KE_INVALID_CONFIG);
    assert_int_equal(alter(c, "message.guid.window.ms", "60000", &text), KE_NONE);
    assert_int_equal(alter(c, "message.guid.dedup", "true", &text), KE_NONE);
    assert_int_equal(alter(c, "retention.ms", "59999", &text), KE_INVALID_CONFIG);
    assert_int_equal(alter(c, "message.guid.window.ms", NULL, &text), KE_INVALID_CONFIG); /* back to an hour */
    assert_int_equal(alter(c, "segment.bytes", "100000", &text), KE_NONE);
    assert_int_equal(alter(c, "cleanup.policy", "compact", &text), KE_NONE); /* nothing goes by time */
    assert_int_equal(alter(c, "retention.ms", "5", &text), KE_NONE);
    assert_int_equal(alter(c, "cleanup.policy", "compact,delete", &text), KE_INVALID_CONFIG);
    assert_int_equal(alter(c, "retention.ms", "-1", &text), KE_NONE);
    assert_int_equal(alter(c, "cleanup.policy", "delete", &text), KE_NONE);
    rig_deinit(&r);
}

static void test_window_at_creation(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 6);
    rig_set(&r, "log.message.guid.dedup", "true");
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "a", 1, "retention.ms", "3599999"), KE_INVALID_CONFIG);
    assert_int_equal(rig_create(c, "b", 1, "retention.ms", "3600000"), KE_NONE);
    assert_int_equal(rig_create(c, "c", 1, NULL, NULL), KE_NONE);
    assert_int_equal(rig_create(c, "d", 1, "message.guid.window.ms", "604800001"), KE_INVALID_CONFIG);
    assert_int_equal(rig_create(c, "e", 1, "message.guid.window.ms", "0"), KE_INVALID_CONFIG);
    rig_deinit(&r);
    char text[400];
    struct kb_config *config;
    assert_int_equal(kb_config_new(&config), KW_OK);
    assert_int_equal(kb_config_set(config, "log.message.guid.dedup", "true", text, sizeof(text), NULL, NULL), KW_OK);
    assert_int_equal(kb_config_set(config, "log.retention.minutes", "59", text, sizeof(text), NULL, NULL), KW_OK);
    assert_int_equal(kb_config_finish(config, text, sizeof(text)), KW_EINVAL);
    assert_non_null(strstr(text, "3540000"));
    kb_config_free(config);
}

/* What topics inherit is held to the same: of all brokers, of one, by each of the four settings; topics with a value of their own do not mind. */
static void test_window_and_brokers(void **state) {
    (void)state;
    struct rig r;
    const char *text;
    rig_init(&r, 8);
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    for (int i = 0; i < 2; i++) { /* by the default of all, and by one of its own */
        const char *broker = i == 0 ? "" : "0";
        char name[] = {"abcd"[i], 0}, own[] = {"uvwx"[i], 0};
        assert_int_equal(rig_create(c, name, 1, "message.guid.dedup", "true"), KE_NONE);
        assert_int_equal(rig_create(c, own, 1, "retention.ms", "7200000"), KE_NONE);
        assert_int_equal(alter_of(c, own, "message.guid.dedup", "true", &text), KE_NONE);
        assert_int_equal(alter_of(c, broker, "log.retention.ms", "3599999", &text), KE_INVALID_CONFIG);
        assert_non_null(strstr(text, "message.guid.window.ms=3600000"));
        assert_non_null(strstr(text, "retention.ms=3599999"));
        assert_non_null(strstr(text, i == 0 ? "1 deduped topic: a" : "2 deduped topics: a, b"));
        assert_int_equal(alter_of(c, broker, "log.retention.ms", "3600000", &text), KE_NONE);
        assert_int_equal(alter_of(c, broker, "log.message.guid.window.ms", "3600001", &text), KE_INVALID_CONFIG);
        assert_non_null(strstr(text, "message.guid.window.ms=3600001"));
        assert_int_equal(alter_of(c, broker, "log.cleanup.policy", "compact", &text), KE_NONE);
        assert_int_equal(alter_of(c, broker, "log.retention.ms", "1000", &text), KE_NONE); /* nothing goes by time */
        assert_int_equal(alter_of(c, broker, "log.cleanup.policy", NULL, &text), KE_INVALID_CONFIG); /* it would now */
        assert_int_equal(alter_of(c, broker, "log.retention.ms", NULL, &text), KE_NONE);
        assert_int_equal(alter_of(c, broker, "log.cleanup.policy", NULL, &text), KE_NONE);
        assert_int_equal(alter_of(c, broker, "log.message.guid.window.ms", "604800001", &text), KE_INVALID_CONFIG); /* than a week */
        assert_int_equal(alter_of(c, broker, "log.segment.bytes", "1000000", &text), KE_NONE);
    }
    assert_int_equal(rig_create(c, "y", 1, NULL, NULL), KE_NONE);
    assert_int_equal(alter_of(c, "a", "retention.ms", "-1", &text), KE_NONE);
    assert_int_equal(alter_of(c, "b", "retention.ms", "-1", &text), KE_NONE);
    assert_int_equal(alter_of(c, "", "log.retention.ms", "1000", &text), KE_NONE); /* those that are left have their own */
    assert_int_equal(alter_of(c, "", "log.message.guid.dedup", "true", &text), KE_INVALID_CONFIG);
    assert_non_null(strstr(text, "1 deduped topic: y"));
    /* In one request, in either order; and a topic is held to what a broker has of its own. */
    struct altered both[] = {{"y", "message.guid.dedup", "true"}, {"", "log.retention.ms", "2000"}, {"y", "message.guid.dedup", "true"}};
    assert_int_equal(alter_of(c, "", "log.retention.ms", NULL, &text), KE_NONE);
    assert_int_equal(alter_all(c, both, 2, &text), KE_INVALID_CONFIG);
    assert_int_equal(alter_of(c, "y", "message.guid.dedup", NULL, &text), KE_NONE);
    assert_int_equal(alter_all(c, both + 1, 2, &text), KE_INVALID_CONFIG);
    assert_int_equal(alter_of(c, "", "log.retention.ms", NULL, &text), KE_NONE);
    assert_int_equal(alter_of(c, "0", "log.retention.ms", "2000", &text), KE_NONE);
    assert_int_equal(alter_of(c, "y", "message.guid.dedup", "true", &text), KE_INVALID_CONFIG);
    assert_non_null(strstr(text, "retention.ms=2000"));
    assert_int_equal(rig_create(c, "z", 1, "message.guid.dedup", "true"), KE_INVALID_CONFIG);
    rig_deinit(&r);
}

/* Many topics: some are named, the rest counted, and the text is whole. */
static void test_window_and_many_topics(void **state) {
    (void)state;
    struct rig r;
    const char *text;
    rig_init(&r, 9);
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    for (int i = 0; i < 5; i++) {
        char name[250];
        memset(name, 'a' + i, sizeof(name) - 1);
        name[249] = 0;
        assert_int_equal(rig_create(c, name, 1, "message.guid.dedup", "true"), KE_NONE);
    }
    assert_int_equal(alter_of(c, "", "log.retention.ms", "1", &text), KE_INVALID_CONFIG);
    assert_non_null(strstr(text, "5 deduped topics: "));
    assert_non_null(strstr(text, ", ..."));
    rig_deinit(&r);
}

/* More partitions are allowed, and said to be what they are. */
static void test_growth_is_said(void **state) {
    (void)state;
    struct rig r;
    struct kw_create_partitions_request req;
    struct kw_create_partitions_response resp;
    struct kw_create_partitions_request_create_partitions_topic t = {.name = kw_str_of("t"), .count = 3, .assignments = {NULL, -1}};
    struct rig_conn *c = guid_begin(&r, 7);
    kw_msg_init(&kw_create_partitions_request_desc, &req);
    req.topics.v = &t;
    req.topics.n = 1;
    req.timeout_ms = 5000;
    rig_call(c, KW_API_CREATE_PARTITIONS, 3, &req, &resp);
    assert_int_equal(resp.results.v[0].error_code, KE_NONE);
    assert_non_null(strstr(r.lines, "topic t gets 3 partitions instead of 1"));
    rig_deinit(&r);
}

#define TEST(f) cmocka_unit_test(f)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_rule_23_states),       TEST(test_errors_and_stats),   TEST(test_from_files),     TEST(test_fault_rules_and_versions),
        TEST(test_window_and_retention), TEST(test_window_at_creation), TEST(test_growth_is_said),
        TEST(test_window_and_brokers),   TEST(test_window_and_many_topics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
