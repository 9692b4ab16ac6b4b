/* test_replica_deaths.c - the ways in which a leader's death can go, with three node cores: what its followers have, what is told to producers, what is
 * lost where it may be, and that the replicas end equal. One partition, replicas (0,1,2), all in sync; the test is the controller.
 */
#include "replica_steps.h"

/* BL-18, at a new leader. It dies before it has answered, when one follower has the record: the producer sends it again. One copy with idempotence; two
 * without. */
static void test_bl18_answer_lost(void **state) {
    (void)state;
    for (int idempotent = 0; idempotent < 2; idempotent++) {
        struct cluster *c = up(1 + (uint64_t)idempotent);
        int64_t pid = idempotent ? 5000 : -1;
        struct sent s;
        put(c, 0, -1, 0);
        hold(c, false, true);
        send(c, &s, 0, -1, pid, 0);
        cl_pass(c, 100000);
        assert_false(answered(&s));
        assert_int_equal(part(c, 1)->log->leo, 2);
        assert_int_equal(part(c, 2)->log->leo, 1);
        assert_int_equal(part(c, 0)->hw, 1);
        leader_dies(c);
        hold(c, false, false);
        send(c, &s, 1, -1, pid, 0);
        expect_stored(c, &s, idempotent ? 1 : 2);
        returns(c, 0);
        expect_equal(c, idempotent ? 2 : 3, 7);
    }
}

/* acks=1, and it dies before anyone has fetched: told to be stored, and lost. */
static void test_acks_1_lost(void **state) {
    (void)state;
    struct cluster *c = up(3);
    put(c, 0, -1, 0);
    hold(c, true, true);
    put(c, 0, 1, 1);
    assert_int_equal(part(c, 0)->hw, 1);
    leader_dies(c);
    hold(c, false, false);
    put(c, 1, -1, 1); /* another in its place */
    returns(c, 0);
    cl_pass(c, 1000000);
    assert_int_equal(kb_followers_stats(c->h[0].r.node)->truncations, 1);
    expect_equal(c, 2, 7);
}

/* It dies when one follower has record 4, the other 4 and 5: the first leads, the other drops 5. */
static void test_uneven_followers(void **state) {
    (void)state;
    struct cluster *c = up(4);
    for (int64_t i = 0; i < 3; i++) put(c, 0, -1, i);
    hold(c, true, true);
    put(c, 0, 1, 3);
    hold(c, false, true);
    for (int i = 0; i < 100000 && part(c, 1)->log->leo < 4; i++)
        if (!cl_turn(c)) cl_pass(c, 50);
    hold(c, true, true); /* before it has told so */
    put(c, 0, 1, 4);
    hold(c, true, false);
    for (int i = 0; i < 100000 && part(c, 2)->log->leo < 5; i++)
        if (!cl_turn(c)) cl_pass(c, 50);
    hold(c, true, true);
    cl_pass(c, 20000);
    assert_int_equal(part(c, 1)->log->leo, 4);
    assert_int_equal(part(c, 2)->log->leo, 5);
    assert_int_equal(part(c, 0)->hw, 3);
    leader_dies(c);
    hold(c, false, false);
    cl_pass(c, 1000000);
    assert_int_equal(part(c, 2)->log->leo, 4);
    assert_int_equal(part(c, 2)->hw, 4);
    assert_int_equal(kb_followers_stats(c->h[2].r.node)->truncations, 1);
    put(c, 1, -1, 4);
    returns(c, 0);
    expect_equal(c, 5, 7);
}

/* An old leader comes back with a tail that nobody else has: it is cut off, and what the others have instead is fetched. */
static void test_old_leader_returns(void **state) {
    (void)state;
    for (int power = 0; power < 2; power++) {
        struct cluster *c = up(5 + (uint64_t)power);
        for (int64_t i = 0; i < 4; i++) put(c, 0, -1, i);
        hold(c, true, true);
        for (int64_t i = 4; i < 9; i++) put(c, 0, 1, i);
        if (power) {
            cl_kill(&c->h[0], true);
            c->dead[0] = true;
            cl_elect(c, 1, 0, 1, 6, false);
            cl_read_all(c);
        } else {
            leader_dies(c);
        }
        hold(c, false, false);
        for (int64_t i = 4; i < 7; i++) put(c, 1, -1, i);
        returns(c, 0);
        expect_equal(c, 7, 7);
    }
}

/* Too few in sync: what needs more copies is refused, and what acks=1 stores stays unseen until there are enough again. */
static void test_below_min_isr(void **state) {
    (void)state;
    struct cluster *c = up(7);
    put(c, 0, -1, 0);
    cl_pass(c, 100000); /* the followers hear of the high watermark */
    cl_kill(&c->h[0], false);
    cl_kill(&c->h[2], false);
    c->dead[0] = c->dead[2] = true;
    cl_elect(c, 1, 0, 1, 2, false);
    cl_read_all(c);
    struct sent s;
    send(c, &s, 1, -1, -1, -1);
    for (int i = 0; i < 100 && !answered(&s); i++) cl_pass(c, 10000);
    assert_int_equal(s.answer.error_code, KE_NOT_ENOUGH_REPLICAS);
    put(c, 1, 1, 1);
    cl_pass(c, 12000000); /* nobody is waited for any more */
    assert_int_equal(part(c, 1)->hw, 1);
    returns(c, 2);
    for (int i = 0; i < 3; i++) {
        cl_pass(c, 1000000);
        cl_read_all(c);
    }
    assert_int_equal(c->parts[1][0].isr, 6);
    assert_int_equal(part(c, 1)->hw, 2);
    returns(c, 0);
    expect_equal(c, 2, 7);
}

/* A leader whose epoch began, and whose disk was full before anything of it was stored. An older leader comes back with a tail of an epoch in between: it
 * drops that, and does not begin anew, below what was committed (simulator, cluster seed 239). */
static void test_a_full_disk_keeps_the_epoch(void **state) {
    (void)state;
    struct cluster *c = up(9);
    struct sent s;
    for (int64_t i = 0; i < 4; i++) put(c, 0, -1, i);
    cl_pass(c, 100000);
    hold(c, true, true);
    c->held[0] = true;
    cl_elect(c, 1, 0, 1, 7, false);
    cl_read_all(c);
    put(c, 1, 1, 4); /* nobody else has it */
    cl_kill(&c->h[1], false);
    c->dead[1] = true;
    cl_elect(c, 1, 0, 2, 5, false);
    cl_read_all(c);
    sim_disk_faults(c->h[2].r.disk)->free_bytes = 0;
    send(c, &s, 2, 1, -1, -1);
    for (int i = 0; i < 100 && !answered(&s); i++) cl_pass(c, 10000);
    assert_int_equal(s.answer.error_code, KE_KAFKA_STORAGE_ERROR);
    assert_int_equal(part(c, 2)->log->leo, 4);
    hold(c, false, false);
    c->held[0] = false;
    returns(c, 1);
    cl_pass(c, 1000000);
    assert_int_equal(part(c, 1)->log->leo, 4);
    assert_int_equal(kb_followers_stats(c->h[1].r.node)->truncations, 1);
    assert_int_equal(kb_followers_stats(c->h[1].r.node)->resets, 0);
    sim_disk_faults(c->h[2].r.disk)->free_bytes = -1;
    cl_pass(c, 2000000);
    put(c, 2, -1, 4);
    expect_equal(c, 5, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bl18_answer_lost), cmocka_unit_test(test_acks_1_lost),
                                       cmocka_unit_test(test_uneven_followers), cmocka_unit_test(test_old_leader_returns),
                                       cmocka_unit_test(test_below_min_isr), cmocka_unit_test(test_a_full_disk_keeps_the_epoch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
