/* Commits of a group's member: who commits, what is said of it, what happens to commits over a rebalance, and before partitions go. Each case of
 * bug-cases is named by its id. */
#include "commit_peer.h"

#define AUTO_OFF "enable.auto.commit", "false"
#define EARLIEST "auto.offset.reset", "earliest"

static struct kc_commit_member member_of(int32_t generation, const char *id, const char *instance) {
    return (struct kc_commit_member){generation, kw_str_of(id), kw_str_of(instance)};
}
static void become(struct cg *g, int32_t generation, const char *id, const char *instance) {
    struct kc_commit_member m = member_of(generation, id, instance);
    kc_commits_member(g->m, &m);
}
static void begin(struct cg *g, int32_t partition, int n, int64_t from) {
    log_fill(&g->w->logs[0][partition], n, 10, 0);
    assert_int_equal(cw_assign(g->w, 0, partition, from), KC_OK);
}
/* As a group takes partitions away: with what is processed of it to be committed, or lost. */
static void take_away(struct cg *g, int32_t partition, bool lost) {
    kc_lock_take(&g->w->c.lock);
    struct kc_part *p = cw_part(g->w, 0, partition);
    assert_non_null(p);
    if (!lost) kc_part_leave(p);
    kc_part_remove(p);
    g->w->c.kick(g->w);
    kc_lock_give(&g->w->c.lock);
}

struct dr {
    struct kc_commit_drain d;
    int done;
    kc_err err;
};
static void dr_done(struct kc_commit_drain *d, kc_err err) {
    struct dr *r = d->ctx;
    r->done++;
    r->err = err;
}
static void dr_begin(struct dr *r, struct cg *g, int64_t timeout_us) {
    *r = (struct dr){.d = {.deadline_us = g->w->net->now.mono_us + timeout_us, .done = dr_done, .ctx = r}};
    kc_commits_drain(g->m, &r->d);
}
static void dr_expect(struct dr *r, kc_err err) {
    assert_int_equal(r->done, 1);
    assert_int_equal(r->err, err);
}

static void test_who_commits(void **state) {
    (void)state;
    static const int16_t versions[] = {2, 6, 7, 8, 9, 10};
    for (size_t i = 0; i < KW_COUNTOF(versions); i++) {
        int16_t v = versions[i];
        struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
        struct ct c;
        g->w->net->api_min[KW_API_OFFSET_COMMIT] = g->w->net->api_max[KW_API_OFFSET_COMMIT] = v;
        kc_commits_member(g->m, NULL); /* a subscription, not joined yet */
        begin(g, 0, 10, 0);
        ct_commit(&c, g, 0, 1);
        cw_advance(g->w, 1000000);
        assert_int_equal(c.done, 0);
        assert_int_equal(g->commits, 0);
        become(g, 5, "m-1", "i-1");
        cw_advance(g->w, 100000);
        ct_expect(&c, KC_OK);
        assert_int_equal(g->generation, 5);
        assert_string_equal(g->member_id, "m-1");
        assert_int_equal(g->has_instance, v >= 7);
        if (v >= 7) assert_string_equal(g->instance_id, "i-1");
        become(g, 6, "m-2", NULL);
        ct_commit(&c, g, 0, 2);
        cw_advance(g->w, 100000);
        ct_expect(&c, KC_OK);
        assert_int_equal(g->generation, 6);
        assert_false(g->has_instance);
        ct_commit(&c, g, 1, 2); /* somebody else's */
        cw_advance(g->w, 100000);
        ct_expect(&c, KC_NOT_ASSIGNED);
        become(g, -1, "", NULL); /* back to manual assignments */
        ct_commit(&c, g, 1, 2);
        cw_advance(g->w, 100000);
        ct_expect(&c, KC_OK);
        assert_int_equal(g->generation, -1);
        assert_string_equal(g->member_id, "");
        cg_free(g);
    }
}

/* One that waits for a connection goes as who we are then. */
static void test_a_commit_that_waits_goes_as_the_newest_member(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
    struct ct c;
    become(g, 5, "m", NULL);
    begin(g, 0, 10, 0);
    g->node = -1;
    ct_commit(&c, g, 0, 1);
    cw_advance(g->w, 1000000);
    kc_commits_member(g->m, NULL);
    g->node = 2;
    cw_advance(g->w, 3000000);
    assert_int_equal(g->commits, 0);
    become(g, 6, "m", NULL);
    cw_advance(g->w, 1000000);
    ct_expect(&c, KC_OK);
    assert_int_equal(g->generation, 6);
    cg_free(g);
}

/* ---- Refusals ---- */

static void loses_partition_1(struct cg *g, kc_err err) {
    (void)err;
    take_away(g, 1, true);
    kc_commits_member(g->m, NULL);
}
static void loses_nothing(struct cg *g, kc_err err) {
    (void)g, (void)err;
}

/* A commit of an old generation: what is still held, and was all the while, is committed under the new one; what is lost is told. CC-11. */
static void test_cc11_a_commit_overlaps_a_rebalance(void **state) {
    (void)state;
    static const int16_t codes[] = {KE_ILLEGAL_GENERATION, KE_UNKNOWN_MEMBER_ID};
    for (size_t i = 0; i < KW_COUNTOF(codes); i++) {
        struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
        struct ct c;
        become(g, 5, "m", NULL);
        for (int32_t p = 0; p < 2; p++) begin(g, p, 10, 0);
        cg_poll_until(g, 0, 10);
        g->code = codes[i];
        g->codes = 1;
        g->on_refused = loses_partition_1;
        ct_init(&c, g, 60000000);
        (void)ct_add(&c, 0, 4, NULL);
        (void)ct_add(&c, 1, 5, NULL);
        ct_begin(&c);
        cw_advance(g->w, 1000000);
        assert_int_equal(g->refusals, 1);
        assert_int_equal(g->refused, codes[i]);
        assert_int_equal(c.done, 0);
        assert_true(c.items[1].settled);
        become(g, 6, "m", NULL);
        cw_advance(g->w, 1000000);
        ct_end(&c);
        assert_int_equal(c.items[0].at.err, KC_OK);
        assert_int_equal(c.items[1].at.err, codes[i]); /* once */
        assert_int_equal(g->generation, 6);
        assert_int_equal(cg_stored(g, 0), 4);
        assert_int_equal(cg_stored(g, 1), -1);
        log_fill(&g->w->logs[0][0], 10, 10, 0); /* and what is assigned now is fetched */
        cg_poll_until(g, 0, 20);
        cg_free(g);
    }
}

/* The answer to JoinGroup is on its way: nothing is lost, the same identity is not tried twice. */
static void test_a_refusal_while_the_group_moves_on(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
    struct ct c, d;
    become(g, 5, "m", NULL);
    begin(g, 0, 10, 0);
    g->live_generation = 6;
    g->on_refused = loses_nothing;
    ct_commit(&c, g, 0, 4);
    cw_advance(g->w, 5000000);
    assert_int_equal(g->commits, 1);
    assert_int_equal(g->refusals, 1);
    kc_commits_member(g->m, NULL);
    ct_commit(&d, g, 0, 5);
    cw_advance(g->w, 1000000);
    assert_int_equal(g->commits, 1);
    become(g, 6, "m", NULL);
    cw_advance(g->w, 1000000);
    ct_expect(&c, KC_OK);
    ct_expect(&d, KC_OK);
    assert_int_equal(g->commits, 2);
    assert_int_equal(cg_stored(g, 0), 5);
    /* It was given away and came back: what was asked for before is not this partition's. */
    g->live_generation = 8;
    ct_commit(&c, g, 0, 6);
    cw_advance(g->w, 1000000);
    take_away(g, 0, true);
    assert_int_equal(cw_assign(g->w, 0, 0, KC_OFFSET_COMMITTED), KC_OK);
    become(g, 8, "m", NULL);
    cw_advance(g->w, 1000000);
    ct_expect(&c, KC_NOT_ASSIGNED);
    assert_int_equal(cg_stored(g, 0), 5);
    cg_free(g);
}

static void test_rebalance_in_progress_is_waited_for(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
    struct ct c, d;
    become(g, 5, "m", NULL);
    begin(g, 0, 10, 0);
    g->code = KE_REBALANCE_IN_PROGRESS;
    g->codes = 3;
    ct_commit(&c, g, 0, 4);
    cw_advance(g->w, 5000000);
    ct_expect(&c, KC_OK);
    assert_int_equal(g->commits, 4);
    assert_int_equal(g->refusals, 3);
    assert_int_equal(g->refused, KE_REBALANCE_IN_PROGRESS);
    g->codes = 1000;
    ct_init(&d, g, 2000000);
    (void)ct_add(&d, 0, 5, NULL);
    ct_begin(&d);
    cw_advance(g->w, 3000000);
    ct_expect(&d, KC_TIMED_OUT);
    cg_free(g);
}

static void test_a_fenced_member_commits_no_more(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
    struct ct c, d;
    become(g, 5, "m", "i");
    for (int32_t p = 0; p < 2; p++) begin(g, p, 10, 0);
    g->code = KE_FENCED_INSTANCE_ID;
    g->codes = 1;
    ct_commit(&c, g, 0, 4);
    ct_commit(&d, g, 1, 4);
    cw_advance(g->w, 1000000);
    ct_expect(&c, KE_FENCED_INSTANCE_ID);
    ct_expect(&d, KE_FENCED_INSTANCE_ID);
    assert_int_equal(g->refusals, 1);
    assert_int_equal(g->commits, 1);
    cg_free(g);
}

/* A late answer to who we were says nothing of who we are. */
static void test_a_refusal_that_comes_late(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
    struct ct c;
    become(g, 5, "m", NULL);
    begin(g, 0, 10, 0);
    g->code = KE_ILLEGAL_GENERATION;
    g->codes = 1;
    g->hold = true;
    ct_commit(&c, g, 0, 4);
    cw_advance(g->w, 100000);
    become(g, 6, "m", NULL);
    cg_release(g);
    cw_advance(g->w, 100000);
    ct_expect(&c, KC_OK);
    assert_int_equal(g->refusals, 0);
    assert_int_equal(g->generation, 6);
    cg_free(g);
}

/* ---- Partitions that go ---- */

/* CC-06: 50 is processed, the partition goes and comes back, another member has committed 90 meanwhile: 50 is nowhere any more. */
static void test_cc06_a_committed_offset_never_goes_back(void **state) {
    (void)state;
    for (int way = 0; way < 4; way++) { /* lost or given up; known to the coordinator or not */
        kc_processed_mode mode = way & 2 ? KC_PROCESSED_EXPLICIT : KC_PROCESSED_BY_POLL;
        bool lost = way & 1;
        struct cg *g = cg_new(mode, PAIRS(EARLIEST, "auto.commit.interval.ms", "1000"));
        become(g, 5, "m", NULL);
        cg_put(g, 0, 0, -1);
        begin(g, 0, 100, KC_OFFSET_COMMITTED);
        cg_poll_until(g, 0, 50);
        kc_topic_partition tp = {.topic = g->w->topic[0], .partition = 0, .offset = 50};
        kc_consume_processed(&g->w->c, &tp, sizeof tp, 1, mode == KC_PROCESSED_EXPLICIT);
        kc_consume_passed(&g->w->c);
        take_away(g, 0, lost);
        kc_commits_member(g->m, NULL);
        cw_advance(g->w, 3000000);
        int before = g->history_count;
        cg_put(g, 0, 90, -1);
        assert_int_equal(cw_assign(g->w, 0, 0, KC_OFFSET_COMMITTED), KC_OK);
        become(g, 7, "m", NULL);
        kc_consume_processed(&g->w->c, &tp, sizeof tp, 1, true); /* late news of before */
        cw_advance(g->w, 3000000);
        assert_int_equal(cg_stored(g, 0), 90);
        assert_int_equal(g->history_count, before);
        assert_int_equal(cw_position(g->w, 0, 0), 90);
        cg_free(g);
    }
}

static void test_what_is_given_up_is_committed_first(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100000"));
    struct ct c;
    struct dr d;
    become(g, 5, "m", NULL);
    for (int32_t p = 0; p < 4; p++) begin(g, p, 10, KC_OFFSET_COMMITTED);
    for (int32_t p = 0; p < 4; p++) cg_poll_until(g, p, 10);
    (void)cg_poll(g);
    g->hold = true;
    ct_commit(&c, g, 3, 3);
    cw_advance(g->w, 1000);
    take_away(g, 0, false);
    take_away(g, 2, true); /* lost */
    dr_begin(&d, g, 10000000);
    assert_int_equal(d.done, 0);
    struct ct late;
    ct_commit(&late, g, 0, 9);
    cw_advance(g->w, 100000);
    ct_expect(&late, KC_NOT_ASSIGNED);
    assert_int_equal(d.done, 0);
    cg_release(g);
    cw_advance(g->w, 100000);
    ct_expect(&c, KC_OK);
    dr_expect(&d, KC_OK);
    assert_int_equal(cg_stored(g, 0), 10);
    assert_int_equal(cg_stored(g, 1), 10); /* of what stays too */
    assert_int_equal(cg_stored(g, 2), -1);
    assert_int_equal(cg_stored(g, 3), 3); /* the application knows why */
    assert_int_equal(g->generation, 5);
    dr_begin(&d, g, 10000000); /* nothing more */
    cw_advance(g->w, 0);
    dr_expect(&d, KC_OK);
    cg_free(g);
}

/* What a group gave and the application has not acknowledged: it may still say where to begin, so not even that is committed. */
static void test_nothing_is_processed_before_the_ack(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100"));
    become(g, 5, "m", NULL);
    begin(g, 0, 10, KC_OFFSET_COMMITTED);
    struct kc_part *p = cw_part(g->w, 0, 0);
    p->held = true;
    p->given = 1;
    cw_advance(g->w, 1000000);
    assert_int_equal(cw_position(g->w, 0, 0), 0);
    assert_int_equal(g->commits, 0);
    p->held = false;
    p->given = 0;
    cw_advance(g->w, 1000000);
    assert_int_equal(cg_stored(g, 0), 0);
    cg_free(g);
}

static void test_a_drain_has_a_limit(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100000"));
    struct dr d, e;
    become(g, 5, "m", NULL);
    begin(g, 0, 10, KC_OFFSET_COMMITTED);
    cg_poll_until(g, 0, 10);
    (void)cg_poll(g);
    g->mute = true;
    take_away(g, 0, false);
    dr_begin(&d, g, 1000000);
    cw_advance(g->w, 900000);
    assert_int_equal(d.done, 0);
    dr_begin(&e, g, 1000000);
    kc_commits_drain_cancel(g->m, &e.d);
    cw_advance(g->w, 200000);
    dr_expect(&d, KC_TIMED_OUT);
    g->mute = false;
    kc_commits_member(g->m, NULL); /* the group goes on without it */
    cw_advance(g->w, 40000000);
    assert_int_equal(cg_stored(g, 0), -1); /* and nobody commits it as somebody else */
    become(g, 6, "m", NULL);
    cw_advance(g->w, 5000000);
    assert_int_equal(cg_stored(g, 0), -1);
    assert_int_equal(e.done, 0);
    kc_commits_member(g->m, NULL);
    dr_begin(&d, g, 1000000);
    cw_advance(g->w, 0);
    dr_expect(&d, KC_OK); /* nothing to commit, so it does not matter */
    assert_int_equal(cw_assign(g->w, 0, 1, 0), KC_OK);
    struct ct c;
    ct_commit(&c, g, 1, 5);
    dr_begin(&d, g, 1000000);
    cw_advance(g->w, 0);
    dr_expect(&d, KC_LOST); /* nobody to commit it as */
    dr_begin(&d, g, 1000000);
    kc_consume_stop(&g->w->c);
    cw_advance(g->w, 0);
    dr_expect(&d, KC_CLOSED);
    ct_expect(&c, KC_CLOSED);
    dr_begin(&d, g, 1000000);
    dr_expect(&d, KC_CLOSED);
    cg_free(g);
}

/* A manual assignment that is replaced: what is processed of what goes is committed too. */
static void test_a_manual_assignment_that_is_replaced(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100000"));
    begin(g, 0, 10, KC_OFFSET_COMMITTED);
    cg_poll_until(g, 0, 10);
    (void)cg_poll(g);
    assert_int_equal(cw_assign_alone(g->w, 0, 1, KC_OFFSET_COMMITTED), KC_OK);
    cw_advance(g->w, 100000);
    assert_int_equal(cg_stored(g, 0), 10);
    cg_free(g);
}

/* An automatic commit for which no request could be made tells which offset it is. */
static void test_automatic_failure_before_any_request(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100"));
    g->w->net->api_max[KW_API_OFFSET_COMMIT] = 1; /* a broker of long ago */
    begin(g, 0, 10, KC_OFFSET_BEGINNING);
    cg_poll_until(g, 0, 10);
    (void)cg_poll(g);
    cw_advance(g->w, 1000000);
    while (cg_poll(g)) {
    }
    assert_int_equal(g->commits, 0);
    assert_int_equal(cw_first(g->w, KC_EVENT_ERROR)->err, KC_UNSUPPORTED);
    assert_non_null(strstr(g->w->message, "offset 10 could not be committed"));
    cg_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_commits),
        cmocka_unit_test(test_a_commit_that_waits_goes_as_the_newest_member),
        cmocka_unit_test(test_cc11_a_commit_overlaps_a_rebalance),
        cmocka_unit_test(test_a_refusal_while_the_group_moves_on),
        cmocka_unit_test(test_rebalance_in_progress_is_waited_for),
        cmocka_unit_test(test_a_fenced_member_commits_no_more),
        cmocka_unit_test(test_a_refusal_that_comes_late),
        cmocka_unit_test(test_cc06_a_committed_offset_never_goes_back),
        cmocka_unit_test(test_what_is_given_up_is_committed_first),
        cmocka_unit_test(test_nothing_is_processed_before_the_ack),
        cmocka_unit_test(test_a_drain_has_a_limit),
        cmocka_unit_test(test_a_manual_assignment_that_is_replaced),
        cmocka_unit_test(test_automatic_failure_before_any_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
