/* test_group_advance.c - a group whose clock is advanced (kb_group_advance): sessions, rebalance timeouts and ids that were given out end as if so much time
 * had passed, each at its own time.
 */
#include "group_rig.h"

static void advance_ms(int64_t ms) {
    r.now.wall_ms += ms;
    kb_group_advance(r.g, ms * 1000);
    kw_timers_run(&r.timers, r.now.mono_us);
}

static int16_t beat(int i) {
    return kb_group_heartbeat(r.g, kw_str_of(r.s[i].id), kw_str_null(), r.s[i].generation, r.now);
}

static void stable_pair(void) {
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2; i++)
            if (!r.s[i].waits_join) join(i);
    sync_(1, NULL);
    sync_(0, "0=a,1=b");
    stored(KE_NONE);
    assert_int_equal(state_(), KB_GROUP_STABLE);
    assert_int_equal(kb_group_size(r.g), 2);
}

static void test_sessions(void **state) {
    (void)state;
    stable_pair();
    advance_ms(9000); /* of 10 s */
    assert_int_equal(beat(0), 0);
    assert_int_equal(kb_group_size(r.g), 2);
    advance_ms(1000); /* member 1 was silent */
    assert_int_equal(kb_group_size(r.g), 1);
    assert_int_equal(beat(0), KE_REBALANCE_IN_PROGRESS);
    wait_ms(9000); /* real time has gone on as before */
    assert_int_equal(kb_group_size(r.g), 1);
    advance_ms(1000);
    assert_int_equal(kb_group_size(r.g), 0);
    assert_int_equal(state_(), KB_GROUP_EMPTY);
}

static void test_a_day(void **state) {
    (void)state;
    stable_pair();
    advance_ms(86400000);
    assert_int_equal(kb_group_size(r.g), 0);
    r.s[0].id[0] = r.s[1].id[0] = 0;
    stored(KE_NONE);
    stable_pair(); /* the same clients, back at once */
    assert_int_equal(beat(0), 0);
    assert_int_equal(beat(1), 0);
}

static void test_rebalance_timeout(void **state) {
    (void)state;
    stable_pair();
    join_how(0, (struct how){.data = "other topics", .session_ms = 300000});
    assert_true(r.s[0].waits_join);
    assert_int_equal(beat(1), KE_REBALANCE_IN_PROGRESS);
    for (int i = 0; i < 9; i++) { /* member 1 lives, and does not join */
        advance_ms(6000);
        assert_int_equal(beat(1), KE_REBALANCE_IN_PROGRESS);
    }
    assert_true(r.s[0].waits_join);
    advance_ms(6000); /* 60 s */
    assert_false(r.s[0].waits_join);
    assert_int_equal(kb_group_size(r.g), 1);
    assert_int_equal(beat(1), KE_UNKNOWN_MEMBER_ID);
}

/* Who does not ask for its assignment in time is out. */
static void test_sync_timeout(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2; i++)
            if (!r.s[i].waits_join) join_how(i, (struct how){.session_ms = 300000});
    assert_int_equal(state_(), KB_GROUP_COMPLETING);
    sync_(0, "0=a,1=b");
    stored(KE_NONE);
    advance_ms(59000);
    assert_int_equal(kb_group_size(r.g), 2);
    advance_ms(1000);
    assert_int_equal(kb_group_size(r.g), 1);
}

static void test_pending_member(void **state) {
    (void)state;
    join_how(0, (struct how){.id_required = true});
    assert_int_equal(r.s[0].code, KE_MEMBER_ID_REQUIRED);
    assert_false(kb_group_is_unused(r.g));
    advance_ms(9999);
    assert_false(kb_group_is_unused(r.g));
    advance_ms(1);
    assert_true(kb_group_is_unused(r.g));
    join(0);
    assert_int_equal(r.s[0].code, KE_UNKNOWN_MEMBER_ID);
}

/* Who waits for an answer has a sign of life on the way. */
static void test_who_waits_stays(void **state) {
    (void)state;
    stable_pair();
    join_how(0, (struct how){.data = "other topics", .rebalance_ms = 86400000});
    assert_int_equal(beat(1), KE_REBALANCE_IN_PROGRESS);
    advance_ms(20000);
    assert_int_equal(kb_group_size(r.g), 1); /* member 1 has gone; 0 waited, and is answered */
    assert_false(r.s[0].waits_join);
    assert_int_equal(r.s[0].code, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_sessions, setup, teardown),          cmocka_unit_test_setup_teardown(test_a_day, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rebalance_timeout, setup, teardown), cmocka_unit_test_setup_teardown(test_sync_timeout, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pending_member, setup, teardown),    cmocka_unit_test_setup_teardown(test_who_waits_stays, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
