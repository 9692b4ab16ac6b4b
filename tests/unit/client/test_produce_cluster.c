/* test_produce_cluster.c - a producer while its cluster fails: too few replicas in sync, leaders that move and say so, fenced and unknown epochs, brokers
 * that are all replaced. Acked is stored, in order, once. Cases CP-13, CP-05's kin; KIP-899, 951, 1102.
 */
#include "produce_peer.h"

#include "base/rng.h"

/* ---- Too few replicas in sync ---- */

/* Until a moment, the step, the partition's leader refuses: before the append, or behind it. */
static enum verdict too_few_before(struct world *w, const struct sent *s, int16_t *code) {
    *code = KE_NOT_ENOUGH_REPLICAS;
    return s->at_us < w->step * (int64_t)SECOND ? V_ERROR : V_SERVE;
}
static enum verdict too_few_behind(struct world *w, const struct sent *s, int16_t *code) {
    *code = KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND;
    return s->at_us < w->step * (int64_t)SECOND ? V_STORE_ERROR : V_SERVE;
}

static void set_end(struct world *w, int64_t in_us) { /* in whole seconds */
    w->step = (int)((w->net->now.mono_us + in_us) / SECOND);
}

/* Ten seconds below min.insync.replicas, with records coming all the time and several requests in flight. */
static void test_not_enough_replicas_is_waited_out(void **state) {
    (void)state;
    for (int behind = 0; behind < 2; behind++) {
        struct world *w = world_new(idempotent, 1);
        set_end(w, 10 * SECOND);
        w->script = behind ? too_few_behind : too_few_before;
        int n = 0;
        for (; n < 200; n++) {
            world_send_n(w, 0, 1, 16);
            net_advance(w->net, 60 * MS);
        }
        net_advance(w->net, 10 * SECOND);
        assert_log(w, 0, n);
        assert_all_ok(w, n);
        assert_first_epoch(w);
        assert_true(w->trace_count < n + 600); /* with backoff */
        assert_false(net_logged(w->net, 4, "new epoch"));
        world_free(w);
    }
}

/* The deadline passes first. Whoever was only refused is not stored, and says so; whoever may be is in doubt. Records sent later go on in order. */
static void test_not_enough_replicas_until_the_deadline(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "5", "delivery.timeout.ms", "3000", "request.timeout.ms", "1000", NULL};
    for (int behind = 0; behind < 2; behind++) {
        struct world *w = world_new(pairs, 1);
        set_end(w, 8 * SECOND);
        w->script = behind ? too_few_behind : too_few_before;
        world_send_batches(w, 0, 4);
        int64_t start = w->net->now.mono_us, at = 0;
        while (w->report_count < 4 && w->net->now.mono_us - start < 6 * SECOND) {
            net_advance(w->net, 50 * MS);
            world_drain(w);
            at = w->net->now.mono_us - start;
        }
        assert_int_equal(w->report_count, 4);
        assert_in_range(at, 2900 * MS, 3200 * MS);
        for (int i = 0; i < 4; i++) {
            assert_int_not_equal(w->reports[i].err, KC_OK);
            assert_int_equal(w->reports[i].outcome, behind ? KC_MAYBE_PERSISTED : KC_NOT_PERSISTED);
        }
        assert_non_null(strstr(w->last_message, "in sync")); /* not "timed out" alone */
        int64_t stored = w->logs[0][0].count;
        if (!behind) assert_int_equal(stored, 0);
        net_advance(w->net, 6 * SECOND);
        world_send_batches(w, 0, 5);
        net_advance(w->net, 5 * SECOND);
        world_drain(w);
        assert_int_equal(w->report_count, 9);
        struct part_log *l = &w->logs[0][0];
        assert_int_equal(l->count, stored + 5);
        for (int i = 0; i < 5; i++) assert_int_equal(l->records[stored + i].value, 5 + i);
        for (int i = 4; i < 9; i++) assert_int_equal(w->reports[i].err, KC_OK);
        world_free(w);
    }
}

/* ---- A storm of all of it ---- */

struct storm {
    struct kw_rng rng;
    int64_t until_us;
};
static struct storm storm;

static enum verdict any_trouble(struct world *w, const struct sent *s, int16_t *code) {
    static const int16_t codes[] = {KE_NOT_ENOUGH_REPLICAS,   KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, KE_NOT_LEADER_OR_FOLLOWER, KE_FENCED_LEADER_EPOCH,
                                    KE_UNKNOWN_LEADER_EPOCH,  KE_LEADER_NOT_AVAILABLE,             KE_KAFKA_STORAGE_ERROR,    KE_REQUEST_TIMED_OUT,
                                    KE_UNKNOWN_TOPIC_OR_PARTITION};
    (void)w;
    if (s->at_us >= storm.until_us || kw_rng_below(&storm.rng, 2) == 0) return V_SERVE;
    size_t at = (size_t)kw_rng_below(&storm.rng, KW_COUNTOF(codes) + 3);
    if (at == KW_COUNTOF(codes)) return V_LOSE;
    if (at == KW_COUNTOF(codes) + 1) return V_BREAK;
    if (at == KW_COUNTOF(codes) + 2) return V_STORE_SILENT;
    *code = codes[at];
    bool may_follow = *code == KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND || *code == KE_REQUEST_TIMED_OUT || *code == KE_NOT_LEADER_OR_FOLLOWER;
    return *code == KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND || (may_follow && kw_rng_below(&storm.rng, 2)) ? V_STORE_ERROR : V_ERROR;
}

static void test_CP_13_any_trouble_keeps_order_and_no_duplicates(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "2", "request.timeout.ms", "1500", NULL};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct world *w = world_new(pairs, 1);
        net_broker(w->net, 2, "b1", 9092);
        net_broker(w->net, 3, "b2", 9092);
        kw_rng_init(&storm.rng, seed);
        storm.until_us = w->net->now.mono_us + 12 * SECOND;
        w->script = any_trouble;
        w->hint_leader = seed % 2;
        int n = 0;
        for (; n < 150; n++) {
            world_send_n(w, 0, 1, 16);
            net_advance(w->net, 20 * MS + (int64_t)kw_rng_below(&storm.rng, 80 * MS));
            if (kw_rng_below(&storm.rng, 12) == 0) world_move(w, 1 + (int32_t)kw_rng_below(&storm.rng, 3), kw_rng_below(&storm.rng, 3) == 0);
        }
        net_advance(w->net, 60 * SECOND);
        assert_log(w, 0, n);
        assert_all_ok(w, n);
        assert_first_epoch(w);
        world_free(w);
    }
}

/* ---- Leaders that say who leads ---- */

/* The one that metadata names lags behind the cluster and still takes another for the leader: it is not asked again at once, over and over, but after a
 * backoff, and the brokers are asked who leads. Until a moment, the step. */
static bool stale_hint(struct net *n, struct request *rq) {
    struct world *w = n->ctx;
    struct model_broker *b = net_broker_at(n, rq->link->host, rq->link->port);
    if (rq->head.api_key != KW_API_PRODUCE || !b || b->id != 1 || n->now.mono_us >= w->step * (int64_t)SECOND) return world_hook(n, rq);
    struct kw_produce_request q;
    struct kw_produce_response m;
    struct kw_produce_response_node_endpoint e = {.node_id = 2, .host = kw_str_of("b1"), .port = 9092, .rack = kw_str_null()};
    kw_arena_reset(&n->arena);
    assert_int_equal(kw_decode(&kw_produce_request_desc, rq->head.version, &rq->body, &n->arena, &q), KW_OK);
    struct kw_produce_response_partition_produce_response p = {
        .error_code = KE_NOT_LEADER_OR_FOLLOWER, .base_offset = -1, .error_message = kw_str_null(), .current_leader = {2, n->topics[0].epoch[0] - 1}};
    struct kw_produce_response_topic_produce_response t = {
        .name = q.topic_data.v[0].name, .topic_id = q.topic_data.v[0].topic_id, .partition_responses = {&p, 1}};
    kw_msg_init(&kw_produce_response_desc, &m);
    m.responses.v = &t;
    m.responses.n = 1;
    m.node_endpoints.v = &e;
    m.node_endpoints.n = 1;
    net_answer(rq, &m);
    return true;
}

static void test_a_stale_hint_is_no_reason_to_hurry(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    net_broker(w->net, 2, "b1", 9092);
    w->net->topics[0].epoch[0] = 5;
    world_first(w);
    set_end(w, 3 * SECOND);
    w->net->hook = stale_hint;
    int produces = w->net->requests[KW_API_PRODUCE], metadata = w->net->requests[KW_API_METADATA];
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 6 * SECOND);
    assert_log(w, 0, 2);
    assert_all_ok(w, 2);
    assert_in_range(w->net->requests[KW_API_PRODUCE] - produces, 2, 20);
    assert_true(w->net->requests[KW_API_METADATA] > metadata);
    world_free(w);
}

/* KIP-951: the leader that an answer names may be a broker of which nothing was known yet. */
static void test_kip951_a_leader_not_heard_of_before(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    world_first(w);
    net_broker(w->net, 7, "new", 9092);
    w->hint_leader = true;
    world_move(w, 7, false);
    int metadata = w->net->requests[KW_API_METADATA];
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 20 * MS);
    assert_log(w, 0, 2);
    assert_int_equal(world_last(w)->broker, 7);
    assert_int_equal(w->net->requests[KW_API_METADATA], metadata);
    world_free(w);
}

/* ---- All brokers replaced ---- */

/* The cluster moves to other machines; bootstrap.servers' name leads to them. What was accepted is stored there, in order. */
static void test_KIP_899_all_brokers_are_replaced(void **state) {
    (void)state;
    static const char *const pairs[] = {"bootstrap.servers", "entry:9092", "linger.ms", "5", NULL};
    struct world *w = world_new(pairs, 1);
    net_broker(w->net, -1, "entry", 9092);
    world_first(w);
    world_send_n(w, 0, 3, 16);
    w->net->brokers[0].host = "n0"; /* the same broker, elsewhere */
    for (size_t i = 0; i < w->net->link_count; i++)
        if (w->net->links[i].up) link_lost(&w->net->links[i], KW_EIO, "reset");
    int64_t start = w->net->now.mono_us;
    world_send_n(w, 0, 5, 16);
    while (w->logs[0][0].count < 9 && w->net->now.mono_us - start < 600 * (int64_t)SECOND) net_advance(w->net, 100 * MS);
    assert_true(w->net->now.mono_us - start < 30 * (int64_t)SECOND); /* well within delivery.timeout.ms */
    net_advance(w->net, SECOND);
    assert_log(w, 0, 9);
    assert_all_ok(w, 9);
    world_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_enough_replicas_is_waited_out),
        cmocka_unit_test(test_not_enough_replicas_until_the_deadline),
        cmocka_unit_test(test_CP_13_any_trouble_keeps_order_and_no_duplicates),
        cmocka_unit_test(test_a_stale_hint_is_no_reason_to_hurry),
        cmocka_unit_test(test_kip951_a_leader_not_heard_of_before),
        cmocka_unit_test(test_KIP_899_all_brokers_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
