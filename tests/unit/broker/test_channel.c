/* test_channel.c - calls to the controller: to this node itself by an internal request; to another by a link. */
#include "node_rig.h"

#include "channel.h"

struct test_call {
    struct kb_call c;
    int done;
    kw_err err;
    struct kw_arena arena;
    struct kw_create_topics_response res;
    struct kw_blk *kept;
};

static void done(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct test_call *t = c->ctx;
    (void)now;
    assert_false(kb_call_is_under_way(c));
    t->done++;
    t->err = err;
    if (err) return;
    assert_int_equal(kw_decode(&kw_create_topics_response_desc, 7, body, &t->arena, &t->res), KW_OK);
    assert_int_equal(kw_in_left(body), 0);
    t->kept = kw_blk_ref(blk);
}

static kw_err create(struct rig *r, struct test_call *t, const char *name, int64_t timeout_us, bool relayed) {
    memset(t, 0, sizeof(*t));
    t->c = (struct kb_call){.done = done, .ctx = t};
    kw_arena_init(&t->arena, 0);
    struct kw_create_topics_request q;
    struct kw_create_topics_request_creatable_topic topic = {.name = kw_str_of(name), .num_partitions = 2, .replication_factor = 1};
    kw_msg_init(&kw_create_topics_request_desc, &q);
    q.topics.v = &topic;
    q.topics.n = 1;
    if (!relayed) return kb_channel_call(r->node, &t->c, &kw_create_topics_request_desc, 7, &q, timeout_us, r->now);
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kw_encode(&kw_create_topics_request_desc, 7, &q, &out), KW_OK);
    kw_err err = kb_channel_relay(r->node, &t->c, KW_API_CREATE_TOPICS, 7, out.p, out.len, timeout_us, r->now);
    kw_out_deinit(&out);
    return err;
}

static void test_call_deinit(struct test_call *t) {
    kw_blk_unref(t->kept);
    kw_arena_deinit(&t->arena);
}

static void test_to_itself(void **state) {
    (void)state;
    struct rig r;
    struct test_call t[2];
    rig_init(&r, 1);
    r.faults = "[{\"api\":\"CreateTopics\",\"error\":\"NOT_CONTROLLER\"}]"; /* they strike what comes from outside */
    rig_start(&r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(create(&r, &t[i], i ? "b" : "a", 30000000, i), KW_OK);
        assert_int_equal(t[i].done, 0);
        rig_settle(&r);
        assert_int_equal(t[i].done, 1);
        assert_int_equal(t[i].err, KW_OK);
        assert_int_equal(t[i].res.topics.n, 1);
        assert_int_equal(t[i].res.topics.v[0].error_code, KE_NONE);
        assert_int_equal(t[i].res.topics.v[0].num_partitions, 2);
        assert_non_null(kb_image_topic(&r.node->image, kw_str_of(i ? "b" : "a")));
        test_call_deinit(&t[i]);
    }
    assert_true(kw_list_empty(&r.node->net.orphans));
    rig_deinit(&r);
}

/* Without an answer in time, given up, or refused: the request itself goes its way. */
static void test_no_answer(void **state) {
    (void)state;
    struct rig r;
    struct test_call t[3];
    rig_init(&r, 2);
    rig_start(&r);
    assert_int_equal(create(&r, &t[0], "late", 0, false), KW_OK);
    assert_int_equal(create(&r, &t[1], "cancelled", 1000000, false), KW_OK);
    kb_call_cancel(&t[1].c);
    kb_node_tick(r.node, r.now);
    assert_int_equal(t[0].done, 0);
    kb_node_tick(r.node, r.now);
    assert_true(t[0].done == 1 && t[0].err == KW_EIO);
    rig_settle(&r);
    assert_int_equal(t[0].done, 1);
    assert_int_equal(t[1].done, 0);
    assert_non_null(kb_image_topic(&r.node->image, kw_str_of("late")));
    assert_non_null(kb_image_topic(&r.node->image, kw_str_of("cancelled")));
    assert_true(kw_list_empty(&r.node->net.orphans));
    struct kb_call_body b = {.api_key = KW_API_CREATE_TOPICS, .version = 7, .bytes = (const uint8_t *)"\xff\xff\xff\xff\x0f", .size = 5};
    t[2] = (struct test_call){.c = {.done = done, .ctx = &t[2]}};
    assert_int_equal(kb_channel_to_self(r.node, &t[2].c, &b, 1000000, r.now), KW_OK);
    rig_settle(&r);
    assert_true(t[2].done == 1 && t[2].err == KW_EIO);
    test_call_deinit(&t[0]);
    test_call_deinit(&t[1]);
    rig_deinit(&r);
}

static void test_dropped_under_way(void **state) {
    (void)state;
    for (int ticks = 0; ticks < 3; ticks++) {
        struct rig r;
        struct test_call t;
        rig_init(&r, 3);
        rig_start(&r);
        assert_int_equal(create(&r, &t, "a", 1000000, false), KW_OK);
        for (int i = 0; i < ticks; i++) kb_node_tick(r.node, r.now);
        rig_kill(&r);
        assert_int_equal(t.done, 0);
        assert_false(kb_call_is_under_way(&t.c));
        test_call_deinit(&t);
        rig_start(&r);
        rig_deinit(&r);
    }
}

/* What the disk's end answers nobody: a change that is settled and not yet told of lies in its request's memory. */
static void test_dropped_when_settled(void **state) {
    (void)state;
    struct rig r;
    struct test_call t;
    rig_init(&r, 6);
    rig_start(&r);
    assert_int_equal(create(&r, &t, "no/name", 1000000, false), KW_OK);
    kb_node_tick(r.node, r.now);
    assert_false(kw_list_empty(&r.node->net.orphans));
    rig_kill(&r);
    assert_int_equal(t.done, 0);
    assert_false(kb_call_is_under_way(&t.c));
    test_call_deinit(&t);
    rig_start(&r);
    rig_deinit(&r);
}

static void test_no_memory(void **state) {
    (void)state;
    struct rig r;
    struct test_call t;
    rig_init(&r, 4);
    rig_start(&r);
    int i = 0;
    for (;; i++) {
        kw_alloc_fail_after(i);
        kw_err err = create(&r, &t, "a", 1000000, false);
        kw_alloc_fail_after(-1);
        if (!err) break;
        assert_int_equal(err, KW_ENOMEM);
        assert_false(kb_call_is_under_way(&t.c));
        assert_true(kw_list_empty(&r.node->net.orphans));
    }
    assert_true(i >= 2);
    for (int k = 0; k < 40; k++) { /* wherever it fails further on, the call hears of it once */
        rig_settle(&r);
        if (k > 0) {
            char name[16];
            snprintf(name, sizeof(name), "n%d", k);
            assert_int_equal(create(&r, &t, name, 1000000, false), KW_OK);
        }
        kw_alloc_fail_after(k);
        kb_node_tick(r.node, r.now);
        kb_node_tick(r.node, r.now);
        kw_alloc_fail_after(-1);
        rig_pass(&r, 1000000);
        assert_int_equal(t.done, 1);
        test_call_deinit(&t);
    }
    rig_deinit(&r);
}

static void test_addresses(void **state) {
    (void)state;
    struct rig r;
    char host[KB_HOST_SIZE];
    uint16_t port;
    rig_init(&r, 5);
    rig_set(&r, "listeners", "PLAINTEXT://127.0.0.1:9092,INTERNAL://10.1.2.3:9093");
    rig_set(&r, "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT");
    rig_start(&r);
    rig_set(&r, "controller.quorum.voters", "0@c0.example:9095");
    assert_true(kb_channel_broker_address(r.node, 0, host, &port));
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(port, 9092);
    rig_set(&r, "inter.broker.listener.name", "INTERNAL");
    assert_true(kb_channel_broker_address(r.node, 0, host, &port));
    assert_string_equal(host, "10.1.2.3");
    assert_int_equal(port, 9093);
    assert_false(kb_channel_broker_address(r.node, 1, host, &port));
    assert_true(kb_channel_voter_address(r.node, 0, host, &port));
    assert_string_equal(host, "c0.example");
    assert_int_equal(port, 9095);
    assert_false(kb_channel_voter_address(r.node, 1, host, &port));
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_to_itself),    cmocka_unit_test(test_no_answer), cmocka_unit_test(test_dropped_under_way),
        cmocka_unit_test(test_dropped_when_settled), cmocka_unit_test(test_no_memory), cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
