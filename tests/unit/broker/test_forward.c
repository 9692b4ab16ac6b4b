/* test_forward.c - requests that are the controller's to answer, on a node that is not: the form of the refusal in every API, retries until there is a
 * controller, what the client finds afterwards, and what becomes of connections and nodes that go meanwhile.
 */
#include "node_rig.h"

#include "forward.h"
#include "quorum/store_priv.h"

static struct rig r;
static struct rig_conn *c;

static int setup(void **state) {
    (void)state;
    rig_init(&r, 5);
    rig_start(&r);
    c = rig_connect(&r);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    rig_deinit(&r);
    return 0;
}

/* Nobody leads the quorum, as far as this node knows. */
static void lose_office(void) {
    r.node->parts.store->state = KB_STORE_STARTING;
}
static void take_office(void) {
    r.node->parts.store->state = KB_STORE_READY;
}

/* In so many ms. */
static bool answers_within(int16_t key, int16_t version, int32_t id, int64_t ms, void *resp) {
    rig_settle(&r);
    for (int64_t i = 0; i <= ms && c->conn; i += 10) {
        if (rig_response(c, key, version, id, resp)) return true;
        rig_pass(&r, 10000);
    }
    return false;
}

static struct kw_create_topics_request *create_request(const char *name, int32_t timeout_ms) {
    struct kw_create_topics_request *q = kw_arena_alloc(&r.arena, sizeof(*q));
    struct kw_create_topics_request_creatable_topic *t = kw_arena_calloc(&r.arena, 1, sizeof(*t));
    kw_msg_init(&kw_create_topics_request_desc, q);
    t->name = kw_str_of(name);
    t->num_partitions = 2;
    t->replication_factor = 1;
    q->topics.v = t;
    q->topics.n = 1;
    q->timeout_ms = timeout_ms;
    return q;
}

static bool text_has(struct kw_str s, const char *part) {
    return s.len >= 0 && memmem(s.p, (size_t)s.len, part, strlen(part));
}

/* ---- Without a controller, until the request's own timeout ---- */

static void test_create_topics(void **state) {
    (void)state;
    const struct kw_api *api = kw_api_by_key(KW_API_CREATE_TOPICS);
    lose_office();
    for (int16_t v = api->min; v <= api->max; v++) {
        struct kw_create_topics_response res;
        rig_request(c, api->key, v, 1000 + v, create_request("t", 300));
        assert_false(answers_within(api->key, v, 1000 + v, 280, &res));
        assert_true(answers_within(api->key, v, 1000 + v, 40, &res));
        assert_int_equal(res.topics.n, 1);
        assert_true(kw_str_eq(res.topics.v[0].name, kw_str_of("t")));
        assert_int_equal(res.topics.v[0].error_code, KE_REQUEST_TIMED_OUT);
        if (v >= 1) assert_true(text_has(res.topics.v[0].error_message, "controller"));
    }
    take_office();
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE); /* none of them came to be */
}

static void test_delete_topics(void **state) {
    (void)state;
    const struct kw_api *api = kw_api_by_key(KW_API_DELETE_TOPICS);
    lose_office();
    for (int16_t v = api->min; v <= api->max; v++) {
        struct kw_delete_topics_request q;
        struct kw_delete_topics_response res;
        struct kw_str names[] = {kw_str_of("a"), kw_str_of("b")};
        struct kw_delete_topics_request_delete_topic_state t[] = {{.name = names[0]}, {.name = names[1]}};
        kw_msg_init(&kw_delete_topics_request_desc, &q);
        q.timeout_ms = 100;
        if (v >= 6) {
            q.topics.v = t;
            q.topics.n = 2;
        } else {
            q.topic_names.v = names;
            q.topic_names.n = 2;
        }
        rig_request(c, api->key, v, 1, &q);
        assert_true(answers_within(api->key, v, 1, 200, &res));
        assert_int_equal(res.responses.n, 2);
        for (int i = 0; i < 2; i++) {
            assert_true(kw_str_eq(res.responses.v[i].name, names[i]));
            assert_int_equal(res.responses.v[i].error_code, KE_REQUEST_TIMED_OUT);
        }
    }
}

static void test_create_partitions(void **state) {
    (void)state;
    struct kw_create_partitions_request q;
    struct kw_create_partitions_response res;
    struct kw_create_partitions_request_create_partitions_topic t = {.name = kw_str_of("a"), .count = 3};
    kw_msg_init(&kw_create_partitions_request_desc, &q);
    t.assignments.n = -1;
    q.topics.v = &t;
    q.topics.n = 1;
    q.timeout_ms = 0;
    lose_office();
    rig_request(c, KW_API_CREATE_PARTITIONS, 3, 1, &q);
    assert_true(answers_within(KW_API_CREATE_PARTITIONS, 3, 1, 0, &res));
    assert_int_equal(res.results.n, 1);
    assert_true(kw_str_eq(res.results.v[0].name, kw_str_of("a")));
    assert_int_equal(res.results.v[0].error_code, KE_REQUEST_TIMED_OUT);
}

/* Neither has a timeout of its own: 30 s. */
static void test_alter_configs(void **state) {
    (void)state;
    struct kw_alter_configs_request q;
    struct kw_alter_configs_response res;
    struct kw_alter_configs_request_alter_configs_resource t = {.resource_type = 2, .resource_name = kw_str_of("a")};
    struct kw_incremental_alter_configs_request iq;
    struct kw_incremental_alter_configs_response ires;
    struct kw_incremental_alter_configs_request_alter_configs_resource it = {.resource_type = 4, .resource_name = kw_str_of("0")};
    kw_msg_init(&kw_alter_configs_request_desc, &q);
    kw_msg_init(&kw_incremental_alter_configs_request_desc, &iq);
    q.resources.v = &t, q.resources.n = 1;
    iq.resources.v = &it, iq.resources.n = 1;
    lose_office();
    rig_request(c, KW_API_ALTER_CONFIGS, 2, 1, &q);
    assert_false(answers_within(KW_API_ALTER_CONFIGS, 2, 1, 29900, &res));
    assert_true(answers_within(KW_API_ALTER_CONFIGS, 2, 1, 200, &res));
    assert_int_equal(res.responses.n, 1);
    assert_int_equal(res.responses.v[0].error_code, KE_REQUEST_TIMED_OUT);
    assert_int_equal(res.responses.v[0].resource_type, 2);
    assert_true(kw_str_eq(res.responses.v[0].resource_name, kw_str_of("a")));
    rig_request(c, KW_API_INCREMENTAL_ALTER_CONFIGS, 1, 2, &iq);
    assert_true(answers_within(KW_API_INCREMENTAL_ALTER_CONFIGS, 1, 2, 30100, &ires));
    assert_int_equal(ires.responses.v[0].error_code, KE_REQUEST_TIMED_OUT);
    assert_int_equal(ires.responses.v[0].resource_type, 4);
}

/* The other APIs that are the controller's, each in every version: an answer that can be read, with the error where that API has it. */
static bool says(const struct kw_desc *d, const void *msg, int16_t code) {
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        const uint8_t *p = (const uint8_t *)msg + f->offset;
        int16_t v;
        struct kw_array a;
        if (f->type == KW_T_I16 && strcmp(f->name, "errorCode") == 0) {
            memcpy(&v, p, sizeof(v));
            if (v == code) return true;
        }
        if (f->type != KW_T_ARRAY || !f->desc) continue;
        memcpy(&a, p, sizeof(a));
        for (int32_t k = 0; k < a.n; k++)
            if (says(f->desc, (const uint8_t *)a.v + (size_t)k * f->desc->size, code)) return true;
    }
    return false;
}

static void expect_timed_out(int16_t key, const void *q) {
    const struct kw_api *api = kw_api_by_key(key);
    uint64_t res[64];
    assert_true(api->response->size <= sizeof(res));
    lose_office();
    for (int16_t v = api->min; v <= api->max; v++) {
        rig_request(c, key, v, 300 + v, q);
        if (!answers_within(key, v, 300 + v, 30200, res)) fail_msg("%s v%d is not answered", api->name, v);
        if (!says(api->response, res, KE_REQUEST_TIMED_OUT)) fail_msg("%s v%d does not say it", api->name, v);
    }
    take_office();
}

static void test_other_apis(void **state) {
    (void)state;
    int32_t zero = 0;
    struct kw_elect_leaders_request elect;
    struct kw_elect_leaders_request_topic_partitions tp = {.topic = kw_str_of("t"), .partitions = {&zero, 1}};
    kw_msg_init(&kw_elect_leaders_request_desc, &elect);
    elect.topic_partitions.v = &tp;
    elect.topic_partitions.n = 1;
    elect.timeout_ms = 50;
    expect_timed_out(KW_API_ELECT_LEADERS, &elect);
    elect.topic_partitions.n = -1; /* all */
    const struct kw_api *api = kw_api_by_key(KW_API_ELECT_LEADERS);
    struct kw_elect_leaders_response er;
    lose_office();
    rig_request(c, api->key, api->max, 1, &elect);
    assert_true(answers_within(api->key, api->max, 1, 100, &er));
    assert_int_equal(er.error_code, KE_REQUEST_TIMED_OUT);
    struct kw_alter_partition_reassignments_request move;
    struct kw_alter_partition_reassignments_request_reassignable_partition mp = {.partition_index = 0, .replicas = {&zero, 1}};
    struct kw_alter_partition_reassignments_request_reassignable_topic mt = {.name = kw_str_of("t"), .partitions = {&mp, 1}};
    kw_msg_init(&kw_alter_partition_reassignments_request_desc, &move);
    move.topics.v = &mt;
    move.topics.n = 1;
    move.timeout_ms = 50;
    expect_timed_out(KW_API_ALTER_PARTITION_REASSIGNMENTS, &move);
    struct kw_list_partition_reassignments_request list;
    kw_msg_init(&kw_list_partition_reassignments_request_desc, &list);
    list.topics.n = -1;
    list.timeout_ms = 50;
    expect_timed_out(KW_API_LIST_PARTITION_REASSIGNMENTS, &list);
    struct kw_unregister_broker_request gone;
    kw_msg_init(&kw_unregister_broker_request_desc, &gone);
    gone.broker_id = 5;
    expect_timed_out(KW_API_UNREGISTER_BROKER, &gone);
    struct kw_describe_quorum_request quorum;
    struct kw_describe_quorum_request_partition_data qp = {.partition_index = 0};
    struct kw_describe_quorum_request_topic_data qt = {.topic_name = kw_str_of("__cluster_metadata"), .partitions = {&qp, 1}};
    kw_msg_init(&kw_describe_quorum_request_desc, &quorum);
    quorum.topics.v = &qt;
    quorum.topics.n = 1;
    expect_timed_out(KW_API_DESCRIBE_QUORUM, &quorum);
}

/* ---- Until there is one ---- */

static void test_goes_on_with_a_controller(void **state) {
    (void)state;
    struct kw_create_topics_response res;
    const struct kw_api *api = kw_api_by_key(KW_API_CREATE_TOPICS);
    for (int16_t v = api->min; v <= api->max; v++) {
        char name[16];
        snprintf(name, sizeof(name), "t%d", v);
        lose_office();
        rig_request(c, api->key, v, 1000 + v, create_request(name, 5000));
        assert_false(answers_within(api->key, v, 1000 + v, 500, &res));
        take_office();
        assert_true(answers_within(api->key, v, 1000 + v, 1200, &res));
        assert_int_equal(res.topics.v[0].error_code, KE_NONE);
        if (v >= 5) assert_int_equal(res.topics.v[0].num_partitions, 2);
        assert_non_null(kb_image_topic(&r.node->image, kw_str_of(name)));
    }
    assert_true(kw_list_empty(&r.node->forwards));
}

static void test_made_on_first_use(void **state) {
    (void)state;
    struct kw_metadata_request q;
    struct kw_metadata_response res;
    struct kw_metadata_request_topic t = {.name = kw_str_of("fresh")};
    kw_msg_init(&kw_metadata_request_desc, &q);
    q.topics.v = &t;
    q.topics.n = 1;
    q.allow_auto_topic_creation = true;
    lose_office();
    rig_request(c, KW_API_METADATA, 9, 1, &q);
    assert_false(answers_within(KW_API_METADATA, 9, 1, 500, &res));
    take_office();
    assert_true(answers_within(KW_API_METADATA, 9, 1, 1200, &res));
    assert_int_equal(res.topics.n, 1);
    assert_int_equal(res.topics.v[0].error_code, KE_NONE);
    assert_int_equal(res.topics.v[0].partitions.n, 1);
    lose_office();
    t.name = kw_str_of("never");
    rig_request(c, KW_API_METADATA, 9, 2, &q);
    assert_false(answers_within(KW_API_METADATA, 9, 2, 4900, &res));
    assert_true(answers_within(KW_API_METADATA, 9, 2, 200, &res));
    assert_int_equal(res.topics.v[0].error_code, KE_LEADER_NOT_AVAILABLE); /* the client asks again */
}

/* What needs no controller is answered all the while, and what comes behind a waiting request waits for it. */
static void test_order(void **state) {
    (void)state;
    struct kw_metadata_request q;
    struct kw_metadata_response res;
    struct kw_create_topics_response created;
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
    kw_msg_init(&kw_metadata_request_desc, &q);
    q.topics.n = -1;
    lose_office();
    struct rig_conn *other = rig_connect(&r);
    rig_request(c, KW_API_CREATE_TOPICS, 7, 1, create_request("u", 1000));
    rig_request(c, KW_API_METADATA, 9, 2, &q);
    rig_call(other, KW_API_METADATA, 9, &q, &res);
    assert_int_equal(res.topics.n, 1);
    assert_false(rig_response(c, KW_API_CREATE_TOPICS, 7, 1, &created));
    take_office();
    assert_true(answers_within(KW_API_CREATE_TOPICS, 7, 1, 1200, &created));
    assert_int_equal(created.topics.v[0].error_code, KE_NONE);
    assert_true(answers_within(KW_API_METADATA, 9, 2, 0, &res));
    assert_int_equal(res.topics.n, 2);
}

/* ---- Refused at once ---- */

/* Another node took this one for the controller. */
static void test_from_a_node(void **state) {
    (void)state;
    struct kw_create_topics_response res;
    struct kw_out out;
    kw_out_init(&out);
    lose_office();
    assert_int_equal(kw_frame_request(&out, kw_api_by_key(KW_API_CREATE_TOPICS), 7, 77, kw_str_of("kbroker-3 (node)"), create_request("t", 60000)), KW_OK);
    rig_send(c, out.p, out.len);
    kw_out_deinit(&out);
    assert_true(answers_within(KW_API_CREATE_TOPICS, 7, 77, 0, &res));
    assert_int_equal(res.topics.v[0].error_code, KE_NOT_CONTROLLER);
}

/* A client of a user may have a name like a node's. */
static void test_named_as_a_node(void **state) {
    (void)state;
    static const char *const names[] = {"kbroker-3", "kbroker-", "kbroker- (node)", "kbroker-x (node)", "kbroker-3 (node) ", " (node)", ""};
    struct kw_create_topics_response res;
    for (size_t i = 0; i < KW_COUNTOF(names); i++) {
        char topic[8];
        struct kw_out out;
        kw_out_init(&out);
        snprintf(topic, sizeof(topic), "t%zu", i);
        lose_office();
        assert_int_equal(kw_frame_request(&out, kw_api_by_key(KW_API_CREATE_TOPICS), 7, 77, kw_str_of(names[i]), create_request(topic, 5000)), KW_OK);
        rig_send(c, out.p, out.len);
        kw_out_deinit(&out);
        assert_false(answers_within(KW_API_CREATE_TOPICS, 7, 77, 500, &res));
        take_office();
        assert_true(answers_within(KW_API_CREATE_TOPICS, 7, 77, 1200, &res));
        assert_int_equal(res.topics.v[0].error_code, KE_NONE);
    }
}

static void test_malformed(void **state) {
    (void)state;
    struct kw_out out;
    kw_out_init(&out);
    lose_office();
    assert_int_equal(kw_frame_request(&out, kw_api_by_key(KW_API_CREATE_TOPICS), 7, 77, kw_str_of("x"), create_request("t", 60000)), KW_OK);
    kw_store32(out.p, (uint32_t)out.len - 4 - 3); /* it ends too early */
    rig_send(c, out.p, out.len - 3);
    kw_out_deinit(&out);
    rig_settle(&r);
    assert_null(c->conn);
}

/* A fault rule sees what is relayed as it sees what this node does itself. */
static void test_faults(void **state) {
    (void)state;
    struct rig f;
    struct kw_create_topics_response res;
    rig_init(&f, 9);
    f.faults = "[{\"api\":\"CreateTopics\",\"error\":\"POLICY_VIOLATION\",\"when\":\"after\"}]";
    rig_start(&f);
    struct rig_conn *k = rig_connect(&f);
    f.node->parts.store->state = KB_STORE_STARTING;
    rig_request(k, KW_API_CREATE_TOPICS, 7, 1, create_request("t", 5000));
    rig_pass(&f, 100000);
    f.node->parts.store->state = KB_STORE_READY;
    rig_pass(&f, 1200000);
    assert_true(rig_response(k, KW_API_CREATE_TOPICS, 7, 1, &res));
    assert_int_equal(res.topics.v[0].error_code, KE_POLICY_VIOLATION);
    assert_non_null(kb_image_topic(&f.node->image, kw_str_of("t")));
    rig_deinit(&f);
}

/* ---- What goes meanwhile ---- */

static void test_connection_goes(void **state) {
    (void)state;
    for (int phase = 0; phase < 2; phase++) {
        struct rig_conn *k = rig_connect(&r);
        lose_office();
        rig_request(k, KW_API_CREATE_TOPICS, 7, 1, create_request(phase ? "b" : "a", 5000));
        rig_pass(&r, 100000);
        if (phase == 1) {
            take_office();
            rig_turn(&r);
        }
        struct kb_conn *gone = k->conn;
        k->conn = NULL;
        kb_conn_closed(gone, r.now);
        take_office();
        rig_pass(&r, 2000000);
        assert_true(kw_list_empty(&r.node->net.orphans));
        assert_true(kw_list_empty(&r.node->forwards));
    }
}

static void test_node_stops_and_dies(void **state) {
    (void)state;
    lose_office();
    rig_request(c, KW_API_CREATE_TOPICS, 7, 1, create_request("a", 5000));
    rig_pass(&r, 100000);
    rig_kill(&r);
    rig_start(&r);
    c = rig_connect(&r);
    assert_null(kb_image_topic(&r.node->image, kw_str_of("a")));
}

static void test_no_memory(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) { /* answered, or closed; never silent */
        struct kw_create_topics_response res;
        struct rig_conn *k = rig_connect(&r);
        char name[16];
        snprintf(name, sizeof(name), "m%d", i);
        lose_office();
        struct kw_out out;
        kw_out_init(&out);
        assert_int_equal(kw_frame_request(&out, kw_api_by_key(KW_API_CREATE_TOPICS), 7, 1, kw_str_of("x"), create_request(name, 2000)), KW_OK);
        kw_alloc_fail_after(i);
        rig_send(k, out.p, out.len);
        kw_alloc_fail_after(-1);
        kw_out_deinit(&out);
        rig_pass(&r, 10000);
        take_office();
        kw_alloc_fail_after(i);
        r.now.mono_us += 30000;
        for (int k2 = 0; k2 < 3; k2++) kb_node_tick(r.node, r.now); /* relayed, and run; not yet applied, where a node without memory ends */
        kw_alloc_fail_after(-1);
        rig_pass(&r, 5000000);
        assert_true(!k->conn || rig_response(k, KW_API_CREATE_TOPICS, 7, 1, &res));
        assert_true(kw_list_empty(&r.node->forwards));
    }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_create_topics),     TEST(test_delete_topics),   TEST(test_create_partitions),
        TEST(test_alter_configs),     TEST(test_order),           TEST(test_goes_on_with_a_controller),
        TEST(test_made_on_first_use), TEST(test_from_a_node),     TEST(test_malformed),
        TEST(test_named_as_a_node),
        TEST(test_faults),            TEST(test_connection_goes), TEST(test_node_stops_and_dies),
        TEST(test_no_memory),         TEST(test_other_apis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
