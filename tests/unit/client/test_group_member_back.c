/* test_group_member_back.c - members that come back, or that were at it for long: a static leader that is told to keep the share-out (KIP-814), and
 * limits in time that belong to what is long over.
 */
#include "group_peer.h"

#define SECOND 1000000

static int16_t answer_code;
static int answer_codes; /* so many answers to DescribeGroups have it */
static int16_t refuse_describing(struct gw *g, struct request *rq) {
    (void)g;
    return rq->head.api_key == KW_API_DESCRIBE_GROUPS && answer_codes > 0 && answer_codes-- ? answer_code : KE_NONE;
}

/* A static member that leads "f", which subscribes to the same topic; killed, and back under the same name while the topic has so many partitions. */
static struct gw *come_back(const char *assignor, int32_t before, int32_t after, struct gw_consumer **back) {
    struct gw *g = gw_new(PAIRS("group.id", "g", "group.instance.id", "i1", "partition.assignment.strategy", assignor, "metadata.max.age.ms", "1000"));
    int t = cw_topic(g->w, "t", before, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    gw_subscribe(o, t);
    gw_consume(o, SECOND);
    (void)gw_foreign(g, "f", assignor, "t");
    gw_consume(o, 10 * SECOND);
    assert_int_equal(gw_shared(g), before);
    assert_in_range(gw_parts(o), 1, before - 1);
    gw_kill(o);
    g->w->net->topics[t].partitions = after;
    for (int32_t p = before; p < after; p++) g->w->net->topics[t].leader[p] = 1;
    kc_metadata_want(g->w->net->core, g->w->topic[t]); /* as a process of its own would, it begins with metadata of now */
    cw_advance(g->w, 3 * SECOND);
    kc_metadata_unwant(g->w->net->core, g->w->topic[t]);
    g->script = refuse_describing;
    *back = gw_add(g, NULL);
    gw_subscribe(*back, t);
    gw_until(*back, KC_GROUP_STABLE, 5 * SECOND);
    return g;
}

static void kip814_partitions_that_were_added_meanwhile_are_shared_out(void **state) {
    (void)state;
    static const char *const assignors[] = {"range", "roundrobin", "sticky", "cooperative-sticky"};
    for (size_t i = 0; i < KW_COUNTOF(assignors); i++)
        for (int32_t added = 1; added < 4; added++) {
            struct gw_consumer *o;
            struct gw *g = come_back(assignors[i], 4, 4 + added, &o);
            gw_consume(o, 20 * SECOND);
            assert_int_equal(gw_state(o), KC_GROUP_STABLE);
            assert_int_equal(gw_shared(g), 4 + added);
            gw_free(g);
        }
}

/* It asks once, and nobody is disturbed. */
static void kip814_nothing_was_added(void **state) {
    (void)state;
    struct gw_consumer *o;
    struct gw *g = come_back("range", 4, 4, &o);
    int32_t generation = g->generation;
    gw_consume(o, 60 * SECOND);
    assert_int_equal(g->count[KW_API_DESCRIBE_GROUPS], 1);
    assert_int_equal(g->generation, generation);
    assert_int_equal(gw_parts(o), 2);
    gw_free(g);
}

/* Asked again where that may help; where it cannot be told, the group shares out anew. */
static void kip814_the_coordinator_does_not_say(void **state) {
    (void)state;
    static const int16_t codes[] = {KE_COORDINATOR_LOAD_IN_PROGRESS, KE_NOT_COORDINATOR, KE_GROUP_AUTHORIZATION_FAILED, GW_DROP, GW_MUTE};
    for (size_t i = 0; i < KW_COUNTOF(codes); i++)
        for (int32_t added = 0; added < 2; added++) {
            struct gw_consumer *o;
            struct gw *g = NULL;
            answer_code = codes[i];
            answer_codes = 2;
            g = come_back("roundrobin", 4, 4 + added, &o);
            gw_consume(o, 150 * (int64_t)SECOND);
            bool refused = codes[i] == KE_GROUP_AUTHORIZATION_FAILED;
            assert_int_equal(answer_codes, refused ? 1 : 0);
            assert_int_equal(g->count[KW_API_JOIN_GROUP], (refused || added ? 4 : 3));
            assert_int_equal(gw_shared(g), 4 + added);
            assert_int_equal(gw_state(o), KC_GROUP_STABLE);
            gw_free(g);
        }
}

/* Each allocation from the return on fails once. */
static void kip814_without_memory(void **state) {
    (void)state;
    for (int64_t fail = 0; fail < 60; fail++) {
        struct gw_consumer *o;
        answer_code = KE_COORDINATOR_LOAD_IN_PROGRESS;
        answer_codes = 1; /* so that it asks again, then */
        struct gw *g = come_back("range", 4, 5, &o);
        assert_int_equal(gw_shared(g), 4);
        kw_alloc_fail_after(fail);
        cw_advance(g->w, 10 * SECOND);
        kw_alloc_fail_after(-1);
        gw_consume(o, 10 * SECOND);
        assert_int_equal(gw_shared(g), 5);
        gw_free(g);
    }
}

/* ---- Limits ---- */

static int16_t refuse_joining(struct gw *g, struct request *rq) {
    (void)g;
    return rq->head.api_key == KW_API_JOIN_GROUP ? KE_UNKNOWN_SERVER_ERROR : KE_NONE;
}

/* It could not join for longer than max.poll.interval.ms, and kept what it had, since the group said that it is a member; then it subscribes to less.
 * What it gives up is revoked, with all the time there is, not lost. */
static void revoking_after_a_long_backoff_has_its_time(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "partition.assignment.strategy", "cooperative-sticky", "max.poll.interval.ms", "20000"));
    int t = cw_topic(g->w, "t", 1, 1), u = cw_topic(g->w, "u", 1, 1), more = cw_topic(g->w, "more", 1, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    const int32_t both[] = {g->w->topic[t], g->w->topic[u], g->w->topic[more]};
    assert_int_equal(kc_group_subscribe(o->c, both, 2, NULL), KC_OK);
    gw_consume(o, SECOND);
    assert_int_equal(gw_parts(o), 2);
    g->script = refuse_joining;
    assert_int_equal(kc_group_subscribe(o->c, both, 3, NULL), KC_OK);
    gw_consume(o, 50 * SECOND);
    assert_int_equal(gw_parts(o), 2);
    gw_until(o, KC_GROUP_BACKOFF, 5 * SECOND);
    assert_int_equal(gw_subscribe(o, t), KC_OK);
    g->script = NULL;
    gw_until(o, KC_GROUP_REVOKE, 5 * SECOND);
    kc_event *e = gw_expect(o, KC_EVENT_REVOKED, 1);
    int64_t left_us = kc_handover_deadline(e->handover) - g->w->net->now.mono_us;
    assert_in_range(left_us, 19 * (int64_t)SECOND, 20 * (int64_t)SECOND);
    gw_drop_event(e);
    gw_consume(o, 5 * SECOND);
    assert_int_equal(gw_parts(o), 1);
    assert_false(net_logged(g->w->net, 4, "partitions are lost"));
    gw_free(g);
}

/* The process was frozen for longer than its session: nothing is handed out before LOST, though poll comes before the loop. */
static void a_frozen_member_hands_out_nothing_stale(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest", "session.timeout.ms", "10000", "max.poll.records", "1"));
    int t = cw_topic(g->w, "t", 1, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    struct net *n = g->w->net;
    assert_false(kc_group_lapsed(o->c, n->now.mono_us));
    log_fill(&g->w->logs[t][0], 20, 10, 0);
    gw_subscribe(o, t);
    gw_until(o, KC_GROUP_STABLE, SECOND);
    gw_drop_event(gw_expect(o, KC_EVENT_ASSIGNED, 1));
    cw_advance(g->w, SECOND);
    gw_drop_event(gw_expect(o, KC_EVENT_RECORDS, -1));
    for (int i = 0; i < 100; i++) { /* while it is heard of, never */
        assert_false(kc_group_lapsed(o->c, n->now.mono_us));
        cw_advance(g->w, SECOND);
    }
    n->now.mono_us += 9 * SECOND; /* frozen; heard of 3 s ago, or less */
    bool lapsed = kc_group_lapsed(o->c, n->now.mono_us);
    assert_true(!lapsed || gw_state(o) == KC_GROUP_STABLE);
    n->now.mono_us += 3 * SECOND;
    assert_true(kc_group_lapsed(o->c, n->now.mono_us));
    int notified = g->w->notified;
    cw_advance(g->w, 1000);
    assert_true(g->w->notified > notified);
    assert_false(kc_group_lapsed(o->c, n->now.mono_us));
    gw_drop_event(gw_expect(o, KC_EVENT_LOST, 1));
    kc_consume_stop(o->c);
    kc_consume_run(o->c);
    assert_false(kc_group_lapsed(o->c, n->now.mono_us + 1000 * (int64_t)SECOND));
    gw_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kip814_partitions_that_were_added_meanwhile_are_shared_out),
        cmocka_unit_test(kip814_nothing_was_added),
        cmocka_unit_test(kip814_the_coordinator_does_not_say),
        cmocka_unit_test(kip814_without_memory),
        cmocka_unit_test(a_frozen_member_hands_out_nothing_stale),
        cmocka_unit_test(revoking_after_a_long_backoff_has_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
