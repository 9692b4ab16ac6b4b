/* test_api_admin.c - the administration APIs over a whole node, every version that the schemas have: topics, partitions, configurations,
 * cluster, pages; timeouts, connections that go, a full disk, growth seen through Metadata (M2).
 */
#include "node_rig.h"
#include "quorum/controller.h"

static struct rig r;
static struct rig_conn *c;

static int setup(void **state) {
    (void)state;
    rig_init(&r, 5);
    rig_set(&r, "auto.create.topics.enable", "true");
    rig_start(&r);
    c = rig_connect(&r);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    rig_deinit(&r);
    return 0;
}

#define FOR_VERSIONS(v, key) for (int16_t v = kw_api_by_key(key)->min; v <= kw_api_by_key(key)->max; v++)

static bool text_has(struct kw_str s, const char *part) {
    return s.len >= 0 && memmem(s.p, (size_t)s.len, part, strlen(part));
}
static bool is(struct kw_str s, const char *z) {
    return kw_str_eq(s, kw_str_of(z));
}

/* ---- Metadata ---- */

static void metadata(int16_t version, const char *const *names, int32_t n, bool create, struct kw_metadata_response *res) {
    struct kw_metadata_request req;
    struct kw_metadata_request_topic t[8];
    kw_msg_init(&kw_metadata_request_desc, &req);
    for (int32_t i = 0; i < n; i++) t[i] = (struct kw_metadata_request_topic){.name = kw_str_of(names[i])};
    req.topics.v = t;
    req.topics.n = n;
    req.allow_auto_topic_creation = create || version < 4; /* older ones cannot say no */
    rig_call(c, KW_API_METADATA, version, &req, res);
}

static void test_metadata_every_version(void **state) {
    (void)state;
    struct kw_metadata_response res;
    assert_int_equal(rig_create(c, "t", 3, NULL, NULL), 0);
    FOR_VERSIONS(v, KW_API_METADATA) {
        static const char *const names[] = {"t", "t", "no/good"};
        metadata(v, names, 3, false, &res);
        assert_int_equal(res.brokers.n, 1);
        assert_int_equal(res.brokers.v[0].node_id, 0);
        assert_true(is(res.brokers.v[0].host, "127.0.0.1")); /* where the client connected to */
        assert_int_equal(res.brokers.v[0].port, 9092);
        if (v >= 1) assert_int_equal(res.controller_id, 0);
        if (v >= 2) assert_int_equal(res.cluster_id.len, 22);
        assert_int_equal(res.topics.n, 2); /* asked for twice, answered once */
        struct kw_metadata_response_topic *t = &res.topics.v[0];
        assert_int_equal(t->error_code, 0);
        assert_true(is(t->name, "t"));
        assert_int_equal(kw_uuid_is_zero(t->topic_id), v < 10);
        assert_int_equal(t->topic_authorized_operations, INT32_MIN);
        assert_int_equal(t->partitions.n, 3);
        for (int32_t i = 0; i < 3; i++) {
            struct kw_metadata_response_partition *p = &t->partitions.v[i];
            assert_int_equal(p->error_code, 0);
            assert_int_equal(p->partition_index, i);
            assert_int_equal(p->leader_id, 0);
            assert_int_equal(p->leader_epoch, v >= 7 ? 0 : -1);
            assert_int_equal(p->replica_nodes.n, 1);
            assert_int_equal(p->isr_nodes.n, 1);
            assert_int_equal(p->offline_replicas.n, 0);
        }
        assert_int_equal(res.topics.v[1].error_code, KE_INVALID_TOPIC_EXCEPTION);
        metadata(v, NULL, v == 0 ? 0 : -1, false, &res); /* all */
        assert_int_equal(res.topics.n, 1);
        if (v >= 1) {
            metadata(v, NULL, 0, false, &res); /* none */
            assert_int_equal(res.topics.n, 0);
            assert_int_equal(res.brokers.n, 1);
        }
    }
}

static void test_metadata_by_id_and_operations(void **state) {
    (void)state;
    struct kw_metadata_request req;
    struct kw_metadata_response res;
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), 0);
    metadata(12, NULL, -1, false, &res);
    struct kw_metadata_request_topic t[] = {{.topic_id = res.topics.v[0].topic_id, .name = kw_str_null()},
                                            {.topic_id = {{1, 2, 3}}, .name = kw_str_null()},
                                            {.name = kw_str_of("t")}};
    kw_msg_init(&kw_metadata_request_desc, &req);
    req.topics.v = t, req.topics.n = 3;
    req.include_topic_authorized_operations = true;
    for (int16_t v = 12; v <= 13; v++) {
        rig_call(c, KW_API_METADATA, v, &req, &res);
        assert_int_equal(res.topics.n, 3);
        assert_true(is(res.topics.v[0].name, "t"));
        assert_int_equal(res.topics.v[0].topic_authorized_operations, 0xdf8);
        assert_int_equal(res.topics.v[1].error_code, KE_UNKNOWN_TOPIC_ID);
        assert_int_equal(res.topics.v[1].name.len, -1);
        assert_true(is(res.topics.v[2].name, "t"));
    }
    req.topics.n = 1;
    t[0].name = kw_str_of("t");
    rig_call(c, KW_API_METADATA, 10, &req, &res); /* ids cannot be asked for yet */
    assert_int_equal(res.topics.v[0].error_code, KE_INVALID_REQUEST);
    req.include_cluster_authorized_operations = true;
    req.topics.n = -1;
    rig_call(c, KW_API_METADATA, 8, &req, &res);
    assert_int_equal(res.cluster_authorized_operations, 0x1fa0);
    req.include_cluster_authorized_operations = false;
    rig_call(c, KW_API_METADATA, 8, &req, &res);
    assert_int_equal(res.cluster_authorized_operations, INT32_MIN);
}

static void test_topics_made_on_first_use(void **state) {
    (void)state;
    struct kw_metadata_response res;
    static const char *const names[] = {"fresh", "..", "fresh2"};
    metadata(9, names, 3, false, &res); /* not allowed by the client */
    assert_int_equal(res.topics.v[0].error_code, KE_UNKNOWN_TOPIC_OR_PARTITION);
    metadata(9, names, 3, true, &res);
    assert_int_equal(res.topics.v[0].error_code, 0); /* usable at once */
    assert_int_equal(res.topics.v[0].partitions.n, 1);
    assert_int_equal(res.topics.v[0].partitions.v[0].leader_id, 0);
    assert_int_equal(res.topics.v[1].error_code, KE_INVALID_TOPIC_EXCEPTION);
    assert_int_equal(res.topics.v[2].error_code, 0);
    static const char *const clash[] = {"fresh.x", "fresh_x"};
    metadata(4, clash, 2, true, &res);
    assert_int_equal(res.topics.v[0].error_code, 0);
    assert_int_equal(res.topics.v[1].error_code, KE_INVALID_TOPIC_EXCEPTION);
    metadata(1, NULL, -1, true, &res);
    assert_int_equal(res.topics.n, 3);
    static const char *const old[] = {"old-client"};
    metadata(0, old, 1, true, &res); /* clients of the first version expect it too */
    assert_int_equal(res.topics.v[0].error_code, 0);
    rig_stop(&r);
    rig_set(&r, "auto.create.topics.enable", "false");
    rig_start(&r);
    c = rig_connect(&r);
    static const char *const more[] = {"more"};
    metadata(9, more, 1, true, &res); /* not allowed by the broker */
    assert_int_equal(res.topics.v[0].error_code, KE_UNKNOWN_TOPIC_OR_PARTITION);
}

/* M2: a running client sees added partitions through metadata, and can use them. */
static void grow(int16_t version, const char *name, int32_t total, bool validate_only, int16_t code, const char *says) {
    struct kw_create_partitions_request req;
    struct kw_create_partitions_response res;
    struct kw_create_partitions_request_create_partitions_topic t = {.name = kw_str_of(name), .count = total};
    kw_msg_init(&kw_create_partitions_request_desc, &req);
    t.assignments.n = -1;
    req.topics.v = &t, req.topics.n = 1;
    req.timeout_ms = 5000;
    req.validate_only = validate_only;
    rig_call(c, KW_API_CREATE_PARTITIONS, version, &req, &res);
    assert_int_equal(res.results.n, 1);
    assert_true(is(res.results.v[0].name, name));
    assert_int_equal(res.results.v[0].error_code, code);
    if (code)
        assert_true(text_has(res.results.v[0].error_message, says));
    else
        assert_int_equal(res.results.v[0].error_message.len, -1);
}

static void test_m2_growth_is_seen(void **state) {
    (void)state;
    struct kw_metadata_response res;
    static const char *const names[] = {"t"};
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), 0);
    int32_t n = 1;
    FOR_VERSIONS(v, KW_API_CREATE_PARTITIONS) {
        grow(v, "t", n + 2, true, 0, "");
        metadata(9, names, 1, false, &res);
        assert_int_equal(res.topics.v[0].partitions.n, n);
        n += 2;
        grow(v, "t", n, false, 0, "");
        metadata(9, names, 1, false, &res);
        assert_int_equal(res.topics.v[0].partitions.n, n);
        size_t size;
        struct rig_batch b = {.pid = -1, .epoch = -1, .seq = -1, .count = 1, .value_size = 5};
        uint8_t *p = rig_batch(&r, &b, &size);
        rig_produced done = rig_produce_bytes(c, "t", n - 1, 9, -1, p, size); /* at once */
        assert_int_equal(done.error_code, 0);
        grow(v, "t", 1, false, KE_INVALID_PARTITIONS, "cannot be made smaller");
        grow(v, "absent", 4, false, KE_UNKNOWN_TOPIC_OR_PARTITION, "absent");
    }
}

/* ---- CreateTopics, DeleteTopics ---- */

static void test_create_topics_every_version(void **state) {
    (void)state;
    FOR_VERSIONS(v, KW_API_CREATE_TOPICS) {
        struct kw_create_topics_request req;
        struct kw_create_topics_response res;
        struct kw_create_topics_request_creatable_topic_config kv = {.name = kw_str_of("retention.ms"), .value = kw_str_of("777")};
        int32_t self = 0;
        struct kw_create_topics_request_creatable_replica_assignment by_hand[2] = {{.partition_index = 0}, {.partition_index = 1}};
        for (int i = 0; i < 2; i++) by_hand[i].broker_ids.v = &self, by_hand[i].broker_ids.n = 1;
        struct kw_create_topics_request_creatable_topic t[4] = {{.num_partitions = 3, .replication_factor = 1},
                                                                {.num_partitions = -1, .replication_factor = -1},
                                                                {.num_partitions = 1, .replication_factor = 5},
                                                                {.num_partitions = 1, .replication_factor = 1}};
        char names[4][16];
        for (int i = 0; i < 4; i++) {
            snprintf(names[i], 16, i == 3 ? "bad name" : "v%d-%d", v, i);
            t[i].name = kw_str_of(names[i]);
        }
        t[0].configs.v = &kv, t[0].configs.n = 1;
        t[1].assignments.v = by_hand, t[1].assignments.n = 2;
        kw_msg_init(&kw_create_topics_request_desc, &req);
        req.topics.v = t, req.topics.n = 4;
        req.timeout_ms = 5000;
        for (int pass = v >= 1 ? 0 : 1; pass < 2; pass++) {
            req.validate_only = pass == 0;
            rig_call(c, KW_API_CREATE_TOPICS, v, &req, &res);
            assert_int_equal(res.topics.n, 4);
            for (int i = 0; i < 2; i++) {
                struct kw_create_topics_response_creatable_topic_result *x = &res.topics.v[i];
                assert_true(is(x->name, names[i]));
                assert_int_equal(x->error_code, 0);
                assert_int_equal(x->error_message.len, v >= 1 ? -1 : x->error_message.len);
                if (v >= 5) {
                    assert_int_equal(x->num_partitions, i == 0 ? 3 : 2);
                    assert_int_equal(x->replication_factor, 1);
                    bool seen = false;
                    for (int32_t k = 0; k < x->configs.n; k++)
                        if (is(x->configs.v[k].name, "retention.ms")) {
                            seen = true;
                            assert_true(is(x->configs.v[k].value, i == 0 ? "777" : "604800000"));
                            assert_int_equal(x->configs.v[k].config_source, i == 0 ? 1 : 5);
                        }
                    assert_true(seen);
                }
                if (v >= 7) assert_int_equal(kw_uuid_is_zero(x->topic_id), pass == 0);
            }
            assert_int_equal(res.topics.v[2].error_code, KE_INVALID_REPLICATION_FACTOR);
            assert_int_equal(res.topics.v[3].error_code, KE_INVALID_TOPIC_EXCEPTION);
            if (v >= 1) assert_true(text_has(res.topics.v[2].error_message, "replication factor 5"));
            if (v >= 5) assert_int_equal(res.topics.v[2].num_partitions, -1);
        }
        rig_call(c, KW_API_CREATE_TOPICS, v, &req, &res);
        assert_int_equal(res.topics.v[0].error_code, KE_TOPIC_ALREADY_EXISTS);
    }
}

static void test_delete_topics_every_version(void **state) {
    (void)state;
    FOR_VERSIONS(v, KW_API_DELETE_TOPICS) {
        struct kw_delete_topics_request req;
        struct kw_delete_topics_response res;
        struct kw_metadata_response all;
        assert_int_equal(rig_create(c, "a", 2, NULL, NULL), 0);
        assert_int_equal(rig_create(c, "b", 1, NULL, NULL), 0);
        metadata(12, NULL, -1, false, &all);
        struct kw_str names[] = {kw_str_of("a"), kw_str_of("nope")};
        struct kw_delete_topics_request_delete_topic_state states[] = {{.name = kw_str_of("a")},
                                                                       {.name = kw_str_of("nope")},
                                                                       {.name = kw_str_null(), .topic_id = all.topics.v[1].topic_id},
                                                                       {.name = kw_str_null(), .topic_id = {{5}}},
                                                                       {.name = kw_str_of("both"), .topic_id = {{5}}},
                                                                       {.name = kw_str_null()}};
        kw_msg_init(&kw_delete_topics_request_desc, &req);
        req.timeout_ms = 5000;
        if (v >= 6)
            req.topics.v = states, req.topics.n = 6;
        else
            req.topic_names.v = names, req.topic_names.n = 2;
        rig_call(c, KW_API_DELETE_TOPICS, v, &req, &res);
        assert_int_equal(res.responses.n, v >= 6 ? 6 : 2);
        assert_int_equal(res.responses.v[0].error_code, 0);
        assert_true(is(res.responses.v[0].name, "a"));
        assert_int_equal(res.responses.v[1].error_code, KE_UNKNOWN_TOPIC_OR_PARTITION);
        if (v >= 5) assert_true(text_has(res.responses.v[1].error_message, "nope"));
        if (v >= 6) {
            assert_int_equal(res.responses.v[2].error_code, 0);
            assert_true(kw_uuid_eq(res.responses.v[2].topic_id, states[2].topic_id));
            assert_int_equal(res.responses.v[3].error_code, KE_UNKNOWN_TOPIC_ID);
            assert_int_equal(res.responses.v[4].error_code, KE_INVALID_REQUEST);
            assert_int_equal(res.responses.v[5].error_code, KE_INVALID_REQUEST);
        }
        metadata(1, NULL, -1, false, &all);
        assert_int_equal(all.topics.n, v >= 6 ? 0 : 1);
        if (v < 6) {
            names[0] = kw_str_of("b");
            req.topic_names.n = 1;
            rig_call(c, KW_API_DELETE_TOPICS, v, &req, &res);
            assert_int_equal(res.responses.v[0].error_code, 0);
        }
    }
    rig_stop(&r);
    rig_set(&r, "delete.topic.enable", "false");
    rig_start(&r);
    c = rig_connect(&r);
    assert_int_equal(rig_create(c, "a", 1, NULL, NULL), 0);
    struct kw_str name = kw_str_of("a");
    for (int16_t v = 2; v <= 3; v++) {
        struct kw_delete_topics_request req;
        struct kw_delete_topics_response res;
        kw_msg_init(&kw_delete_topics_request_desc, &req);
        req.topic_names.v = &name, req.topic_names.n = 1;
        req.timeout_ms = 5000;
        rig_call(c, KW_API_DELETE_TOPICS, v, &req, &res);
        assert_int_equal(res.responses.v[0].error_code, v < 3 ? KE_INVALID_REQUEST : KE_TOPIC_DELETION_DISABLED);
    }
}

/* ---- Configurations ---- */

typedef struct kw_describe_configs_response_describe_configs_resource_result entry;

static struct kw_describe_configs_response describe(int16_t version, int8_t type, const char *name, const char *key) {
    struct kw_describe_configs_request req;
    struct kw_describe_configs_response res;
    struct kw_str keys[] = {kw_str_of(key)};
    struct kw_describe_configs_request_describe_configs_resource x = {.resource_type = type, .resource_name = kw_str_of(name)};
    x.configuration_keys.v = keys, x.configuration_keys.n = key ? 1 : -1;
    kw_msg_init(&kw_describe_configs_request_desc, &req);
    req.resources.v = &x, req.resources.n = 1;
    req.include_synonyms = version >= 1;
    req.include_documentation = version >= 3;
    rig_call(c, KW_API_DESCRIBE_CONFIGS, version, &req, &res);
    assert_int_equal(res.results.n, 1);
    assert_int_equal(res.results.v[0].resource_type, type);
    assert_true(is(res.results.v[0].resource_name, name));
    return res;
}

static entry one(int16_t version, int8_t type, const char *name, const char *key) {
    struct kw_describe_configs_response res = describe(version, type, name, key);
    assert_int_equal(res.results.v[0].error_code, 0);
    assert_int_equal(res.results.v[0].configs.n, 1);
    return res.results.v[0].configs.v[0];
}

static int16_t incremental(int16_t version, int8_t type, const char *name, const char *key, const char *value, int8_t op,
                           bool validate_only, const char *says) {
    struct kw_incremental_alter_configs_request req;
    struct kw_incremental_alter_configs_response res;
    struct kw_incremental_alter_configs_request_alterable_config kv = {
        .name = kw_str_of(key), .value = kw_str_of(value), .config_operation = op};
    struct kw_incremental_alter_configs_request_alter_configs_resource x = {.resource_type = type, .resource_name = kw_str_of(name)};
    x.configs.v = &kv, x.configs.n = 1;
    kw_msg_init(&kw_incremental_alter_configs_request_desc, &req);
    req.resources.v = &x, req.resources.n = 1;
    req.validate_only = validate_only;
    rig_call(c, KW_API_INCREMENTAL_ALTER_CONFIGS, version, &req, &res);
    assert_int_equal(res.responses.n, 1);
    assert_int_equal(res.responses.v[0].resource_type, type);
    assert_true(is(res.responses.v[0].resource_name, name));
    if (says) assert_true(text_has(res.responses.v[0].error_message, says));
    return res.responses.v[0].error_code;
}

static void test_describe_configs_every_version(void **state) {
    (void)state;
    assert_int_equal(rig_create(c, "t", 1, "retention.ms", "777"), 0);
    assert_int_equal(incremental(1, 4, "", "log.retention.ms", "888", 0, false, NULL), 0);
    assert_int_equal(incremental(1, 4, "0", "log.retention.ms", "999", 0, false, NULL), 0);
    FOR_VERSIONS(v, KW_API_DESCRIBE_CONFIGS) {
        struct kw_describe_configs_response all = describe(v, 2, "t", NULL);
        assert_true(all.results.v[0].configs.n > 35);
        entry e = one(v, 2, "t", "retention.ms");
        assert_true(is(e.value, "777"));
        assert_false(e.read_only);
        assert_false(e.is_default);
        if (v >= 1) {
            assert_int_equal(e.config_source, 1);
            assert_int_equal(e.synonyms.n, 4); /* topic, this broker, all brokers, default */
            assert_true(is(e.synonyms.v[0].value, "777"));
            assert_true(is(e.synonyms.v[1].value, "999"));
            assert_int_equal(e.synonyms.v[1].source, 2);
            assert_true(is(e.synonyms.v[2].value, "888"));
            assert_int_equal(e.synonyms.v[2].source, 3);
            assert_true(is(e.synonyms.v[3].name, "log.retention.hours"));
            assert_int_equal(e.synonyms.v[3].source, 5);
        }
        if (v >= 3) {
            assert_int_equal(e.config_type, 5);
            assert_true(e.documentation.len > 10);
        }
        e = one(v, 2, "t", "segment.bytes");
        assert_int_equal(e.is_default, v == 0);
        if (v >= 1) assert_int_equal(e.config_source, 5);
        e = one(v, 4, "0", "log.retention.ms");
        assert_true(is(e.value, "999"));
        assert_false(e.read_only);
        e = one(v, 4, "0", "node.id");
        assert_true(e.read_only);
        struct kw_describe_configs_response dynamic = describe(v, 4, "", NULL);
        assert_int_equal(dynamic.results.v[0].configs.n, 1);
        assert_true(is(dynamic.results.v[0].configs.v[0].value, "888"));
        e = one(v, 8, "0", "root");
        assert_true(is(e.value, "INFO"));
        assert_int_equal(describe(v, 2, "no", NULL).results.v[0].error_code, KE_UNKNOWN_TOPIC_OR_PARTITION);
        assert_int_equal(describe(v, 2, "no/", NULL).results.v[0].error_code, KE_INVALID_TOPIC_EXCEPTION);
        assert_int_equal(describe(v, 4, "7", NULL).results.v[0].error_code, KE_INVALID_REQUEST);
        assert_int_equal(describe(v, 8, "7", NULL).results.v[0].error_code, KE_INVALID_REQUEST);
        assert_int_equal(describe(v, 16, "m", NULL).results.v[0].error_code, KE_INVALID_REQUEST);
        assert_int_equal(describe(v, 99, "m", NULL).results.v[0].error_code, KE_INVALID_REQUEST);
        assert_int_equal(describe(v, 2, "t", "no.such").results.v[0].configs.n, 0);
    }
}

static void test_alter_configs_every_version(void **state) {
    (void)state;
    assert_int_equal(rig_create(c, "t", 1, "retention.ms", "777"), 0);
    FOR_VERSIONS(v, KW_API_ALTER_CONFIGS) {
        struct kw_alter_configs_request req;
        struct kw_alter_configs_response res;
        struct kw_alter_configs_request_alterable_config kv = {.name = kw_str_of("segment.ms"), .value = kw_str_of("55")};
        struct kw_alter_configs_request_alter_configs_resource x[2] = {{.resource_type = 2, .resource_name = kw_str_of("t")},
                                                                       {.resource_type = 2, .resource_name = kw_str_of("absent")}};
        for (int i = 0; i < 2; i++) x[i].configs.v = &kv, x[i].configs.n = 1;
        kw_msg_init(&kw_alter_configs_request_desc, &req);
        req.resources.v = x, req.resources.n = 2;
        req.validate_only = true;
        rig_call(c, KW_API_ALTER_CONFIGS, v, &req, &res);
        assert_int_equal(res.responses.v[0].error_code, 0);
        req.validate_only = false;
        rig_call(c, KW_API_ALTER_CONFIGS, v, &req, &res);
        assert_int_equal(res.responses.n, 2);
        assert_int_equal(res.responses.v[0].error_code, 0);
        assert_int_equal(res.responses.v[1].error_code, KE_UNKNOWN_TOPIC_OR_PARTITION);
        assert_true(is(res.responses.v[1].resource_name, "absent"));
        assert_true(is(one(4, 2, "t", "segment.ms").value, "55"));
        assert_true(is(one(4, 2, "t", "retention.ms").value, "604800000")); /* not named: gone */
        kv.value = kw_str_of("never");
        rig_call(c, KW_API_ALTER_CONFIGS, v, &req, &res);
        assert_int_equal(res.responses.v[0].error_code, KE_INVALID_CONFIG);
        assert_true(text_has(res.responses.v[0].error_message, "whole number"));
    }
}

static void test_incremental_alter_configs_every_version(void **state) {
    (void)state;
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), 0);
    FOR_VERSIONS(v, KW_API_INCREMENTAL_ALTER_CONFIGS) {
        assert_int_equal(incremental(v, 2, "t", "cleanup.policy", "compact", 2, true, NULL), 0);
        assert_true(is(one(4, 2, "t", "cleanup.policy").value, "delete"));
        assert_int_equal(incremental(v, 2, "t", "cleanup.policy", "compact", 2, false, NULL), 0);
        assert_true(is(one(4, 2, "t", "cleanup.policy").value, "delete,compact"));
        assert_int_equal(incremental(v, 2, "t", "cleanup.policy", NULL, 1, false, NULL), 0);
        assert_true(is(one(4, 2, "t", "cleanup.policy").value, "delete"));
        assert_int_equal(incremental(v, 2, "t", "cleanup.polic", "x", 0, false, "did you mean cleanup.policy"), KE_INVALID_CONFIG);
        assert_int_equal(incremental(v, 4, "0", "node.id", "4", 0, false, "restart"), KE_INVALID_CONFIG);
        assert_int_equal(incremental(v, 8, "0", "root", "DEBUG", 0, false, "--verbose"), KE_INVALID_REQUEST);
    }
    /* A change takes effect at once. */
    assert_int_equal(incremental(1, 2, "t", "max.message.bytes", "100", 0, false, NULL), 0);
    struct rig_batch big = {.count = 1, .value_size = 500}, small = {.count = 1, .value_size = 5};
    assert_int_equal(rig_produce(c, "t", big).error_code, KE_MESSAGE_TOO_LARGE);
    assert_int_equal(rig_produce(c, "t", small).error_code, 0);
    assert_int_equal(incremental(1, 2, "t", "max.message.bytes", NULL, 1, false, NULL), 0);
    assert_int_equal(rig_produce(c, "t", big).error_code, 0);
    assert_int_equal(incremental(1, 4, "", "message.max.bytes", "100", 0, false, NULL), 0); /* and so does the brokers' default */
    assert_int_equal(rig_produce(c, "t", big).error_code, KE_MESSAGE_TOO_LARGE);
}

/* ---- Cluster, pages, lists ---- */

static void test_describe_cluster_every_version(void **state) {
    (void)state;
    FOR_VERSIONS(v, KW_API_DESCRIBE_CLUSTER) {
        struct kw_describe_cluster_request req;
        struct kw_describe_cluster_response res;
        kw_msg_init(&kw_describe_cluster_request_desc, &req);
        req.include_cluster_authorized_operations = v > 0;
        rig_call(c, KW_API_DESCRIBE_CLUSTER, v, &req, &res);
        assert_int_equal(res.error_code, 0);
        assert_int_equal(res.cluster_id.len, 22);
        assert_int_equal(res.controller_id, 0);
        assert_int_equal(res.brokers.n, 1);
        assert_true(is(res.brokers.v[0].host, "127.0.0.1"));
        assert_false(res.brokers.v[0].is_fenced);
        assert_int_equal(res.cluster_authorized_operations, v > 0 ? 0x1fa0 : INT32_MIN);
        if (v == 0) continue;
        req.endpoint_type = 2;
        rig_call(c, KW_API_DESCRIBE_CLUSTER, v, &req, &res);
        assert_int_equal(res.error_code, KE_MISMATCHED_ENDPOINT_TYPE);
        req.endpoint_type = 3;
        rig_call(c, KW_API_DESCRIBE_CLUSTER, v, &req, &res);
        assert_int_equal(res.error_code, KE_UNSUPPORTED_ENDPOINT_TYPE);
    }
}

static void test_describe_topic_partitions_pages(void **state) {
    (void)state;
    static const char *const names[] = {"c", "a", "b"};
    for (int i = 0; i < 3; i++) assert_int_equal(rig_create(c, names[i], 3 + i, NULL, NULL), 0); /* c 3, a 4, b 5 */
    for (int32_t limit = 1; limit < 14; limit++) {
        struct kw_describe_topic_partitions_request req;
        struct kw_describe_topic_partitions_response res;
        struct kw_describe_topic_partitions_request_cursor cursor;
        int seen[3] = {0}, pages = 0;
        kw_msg_init(&kw_describe_topic_partitions_request_desc, &req);
        req.response_partition_limit = limit;
        do {
            rig_call(c, KW_API_DESCRIBE_TOPIC_PARTITIONS, 0, &req, &res);
            int32_t here = 0;
            for (int32_t i = 0; i < res.topics.n; i++) {
                assert_int_equal(res.topics.v[i].error_code, 0);
                assert_int_equal(res.topics.v[i].topic_authorized_operations, 0xdf8);
                int *at = &seen[res.topics.v[i].name.p[0] - 'a'];
                for (int32_t k = 0; k < res.topics.v[i].partitions.n; k++, here++)
                    assert_int_equal(res.topics.v[i].partitions.v[k].partition_index, (*at)++);
            }
            assert_true(here <= limit);
            if (!res.next_cursor) break;
            assert_int_equal(here, limit); /* a page that is not the last is full */
            cursor = (struct kw_describe_topic_partitions_request_cursor){res.next_cursor->topic_name, res.next_cursor->partition_index};
            req.cursor = &cursor;
        } while (++pages < 20);
        assert_int_equal(seen[0], 4);
        assert_int_equal(seen[1], 5);
        assert_int_equal(seen[2], 3);
    }
    struct kw_describe_topic_partitions_request req;
    struct kw_describe_topic_partitions_response res;
    struct kw_describe_topic_partitions_request_topic_request t[] = {
        {kw_str_of("b")}, {kw_str_of("zz")}, {kw_str_of("b")}, {kw_str_of("/")}};
    kw_msg_init(&kw_describe_topic_partitions_request_desc, &req);
    req.topics.v = t, req.topics.n = 4;
    rig_call(c, KW_API_DESCRIBE_TOPIC_PARTITIONS, 0, &req, &res);
    assert_int_equal(res.topics.n, 3);
    assert_int_equal(res.topics.v[0].error_code, KE_INVALID_TOPIC_EXCEPTION);
    assert_int_equal(res.topics.v[1].error_code, 0);
    assert_int_equal(res.topics.v[2].error_code, KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_null(res.next_cursor);
}

static void test_list_config_resources(void **state) {
    (void)state;
    struct kw_list_config_resources_request req;
    struct kw_list_config_resources_response res;
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), 0);
    kw_msg_init(&kw_list_config_resources_request_desc, &req);
    rig_call(c, KW_API_LIST_CONFIG_RESOURCES, 0, &req, &res);
    assert_int_equal(res.config_resources.n, 0);
    rig_call(c, KW_API_LIST_CONFIG_RESOURCES, 1, &req, &res);
    assert_int_equal(res.config_resources.n, 3); /* the topic, the broker, its logger */
    int8_t types[] = {2};
    req.resource_types.v = types, req.resource_types.n = 1;
    rig_call(c, KW_API_LIST_CONFIG_RESOURCES, 1, &req, &res);
    assert_int_equal(res.config_resources.n, 1);
    assert_true(is(res.config_resources.v[0].resource_name, "t"));
    types[0] = 3;
    rig_call(c, KW_API_LIST_CONFIG_RESOURCES, 1, &req, &res);
    assert_int_equal(res.error_code, KE_UNSUPPORTED_VERSION);
    assert_int_equal(res.config_resources.n, 0);
}

/* ---- When it takes too long, or someone leaves ---- */

static void test_timeout_and_gone_connections(void **state) {
    (void)state;
    struct kw_create_topics_request req;
    struct kw_create_topics_response res;
    struct kw_create_topics_request_creatable_topic t = {.name = kw_str_of("slow"), .num_partitions = 1, .replication_factor = 1};
    kw_msg_init(&kw_create_topics_request_desc, &req);
    req.topics.v = &t, req.topics.n = 1;
    req.timeout_ms = 100;
    sim_disk_faults(r.disk)->hung_until_us = r.now.mono_us + 5000000;
    rig_call(c, KW_API_CREATE_TOPICS, 7, &req, &res);
    assert_int_equal(res.topics.v[0].error_code, KE_REQUEST_TIMED_OUT);
    assert_true(text_has(res.topics.v[0].error_message, "it may still be"));
    struct rig_conn *leaver = rig_connect(&r);
    t.name = kw_str_of("left");
    req.timeout_ms = 60000;
    rig_request(leaver, KW_API_CREATE_TOPICS, 7, 1, &req);
    kb_conn_closed(leaver->conn, r.now);
    leaver->conn = NULL;
    rig_pass(&r, 6000000);
    static const char *const names[] = {"slow", "left"};
    struct kw_metadata_response all;
    metadata(9, names, 2, false, &all);
    assert_int_equal(all.topics.v[0].error_code, 0); /* both happened */
    assert_int_equal(all.topics.v[1].error_code, 0);
    req.timeout_ms = 0; /* nothing can be committed in no time */
    t.name = kw_str_of("zero");
    rig_call(c, KW_API_CREATE_TOPICS, 7, &req, &res);
    assert_int_equal(res.topics.v[0].error_code, KE_REQUEST_TIMED_OUT);
}

static void test_full_disk_says_so(void **state) {
    (void)state;
    struct kw_metadata_response res;
    static const char *const names[] = {"wanted"};
    sim_disk_faults(r.disk)->free_bytes = 0;
    assert_int_equal(rig_create(c, "full", 1, NULL, NULL), KE_KAFKA_STORAGE_ERROR);
    metadata(9, names, 1, true, &res);
    assert_int_equal(res.topics.v[0].error_code, KE_KAFKA_STORAGE_ERROR);
    sim_disk_faults(r.disk)->free_bytes = -1;
    assert_int_equal(rig_create(c, "full", 1, NULL, NULL), 0);
    metadata(9, names, 1, true, &res);
    assert_int_equal(res.topics.v[0].error_code, 0);
}

static void test_failing_allocation(void **state) {
    (void)state;
    assert_int_equal(rig_create(c, "t", 2, NULL, NULL), 0);
    static const int16_t keys[] = {KW_API_METADATA, KW_API_DESCRIBE_CLUSTER, KW_API_DESCRIBE_TOPIC_PARTITIONS,
                                   KW_API_LIST_CONFIG_RESOURCES};
    for (size_t k = 0; k < KW_COUNTOF(keys); k++) {
        const struct kw_api *api = kw_api_by_key(keys[k]);
        bool done = false;
        for (int64_t n = 0; !done; n++) {
            void *req = kw_arena_calloc(&r.arena, 1, api->request->size);
            void *res = kw_arena_calloc(&r.arena, 1, api->response->size);
            kw_msg_init(api->request, req);
            struct kw_out out;
            kw_out_init(&out);
            assert_int_equal(kw_frame_request(&out, api, api->max, 1, kw_str_of("x"), req), KW_OK);
            struct rig_conn *one_shot = rig_connect(&r);
            kw_alloc_fail_after(n);
            rig_send(one_shot, out.p, out.len);
            rig_settle(&r);
            kw_alloc_fail_after(-1);
            rig_settle(&r);
            kw_out_deinit(&out);
            done = one_shot->conn &&
                   rig_response(one_shot, keys[k], api->max, 1, res); /* else the connection was closed: nothing is left hanging */
            if (!done) assert_null(one_shot->conn);
            if (one_shot->conn) {
                kb_conn_closed(one_shot->conn, r.now);
                one_shot->conn = NULL;
            }
            assert_in_range(n, 0, 500);
        }
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_metadata_every_version),
        TEST(test_metadata_by_id_and_operations),
        TEST(test_topics_made_on_first_use),
        TEST(test_m2_growth_is_seen),
        TEST(test_create_topics_every_version),
        TEST(test_delete_topics_every_version),
        TEST(test_describe_configs_every_version),
        TEST(test_alter_configs_every_version),
        TEST(test_incremental_alter_configs_every_version),
        TEST(test_describe_cluster_every_version),
        TEST(test_describe_topic_partitions_pages),
        TEST(test_list_config_resources),
        TEST(test_timeout_and_gone_connections),
        TEST(test_full_disk_says_so),
        TEST(test_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
