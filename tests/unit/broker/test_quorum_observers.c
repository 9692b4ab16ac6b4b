/* test_quorum_observers.c - nodes that follow the metadata quorum and do not vote. */
#include "quorum_rig.h"

static void test_observers_follow(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 5, 11);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    append_some(q, l, 5);
    for (int round = 0; round < 3; round++) {
        q_agree(q, 10 * SECOND);
        for (int i = 3; i < 5; i++) {
            assert_int_equal(kb_node_state(q->h[i].r.node), KB_NODE_READY);
            assert_int_equal(q_store(&q->h[i])->raft->leader, q_leader(q)->id);
        }
        l = q_leader(q);
        q_kill(l, false);
        struct host *next = q_wait_leader(q, 5 * SECOND);
        assert_non_null(next);
        append_some(q, next, 5);
        q_boot(l);
    }
    q_agree(q, 10 * SECOND);
    q_kill(&q->h[4], true);
    append_some(q, q_leader(q), 5);
    q_boot(&q->h[4]);
    q_agree(q, 10 * SECOND);
    q_deinit(q);
    free(q);
}

/* A voter that has not noticed the leader's death yet tells an observer of it once more: the observer sees that nothing listens there, and asks again
 * soon. */
static void test_observer_is_told_of_a_dead_leader(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct quorum *q = malloc(sizeof(*q));
        q_init(q, 3, 4, seed);
        q_boot_all(q);
        struct host *l = q_wait_leader(q, 5 * SECOND);
        assert_non_null(l);
        append_some(q, l, 3);
        q_agree(q, SECOND);
        struct kb_raft *r = q_store(&q->h[3])->raft;
        int32_t epoch = r->epoch;
        q_kill(l, false);
        while (r->leader >= 0) q_step(q, q->now.mono_us + 1000);
        for (int times = 0; times < 3 && r->epoch == epoch; times++) {
            kb_election_heard(&r->election, (l->id + 1) % 3, l->id, epoch, q->now.mono_us);
            kb_raft_drain(r, q->now);
            q_turn(q);
        }
        struct host *next = q_wait_leader(q, 5 * SECOND);
        assert_non_null(next);
        q_pass(q, SECOND / 5);
        assert_int_equal(r->leader, next->id);
        q_boot(l); /* it lives again, and may be believed in again */
        q_agree(q, 5 * SECOND);
        q_kill(next, false);
        assert_non_null(q_wait_leader(q, 5 * SECOND));
        q_boot(next);
        q_agree(q, 5 * SECOND);
        q_deinit(q);
        free(q);
    }
}

/* One voter, and brokers that are elsewhere. */
static void test_only_voter(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 1, 3, 16);
    set_all(q, "metadata.log.max.record.bytes.between.snapshots", "2000");
    q_boot(&q->h[1]);
    q_pass(q, SECOND);
    q_boot_all(q);
    for (int round = 1; round <= 4; round++) {
        struct host *l = q_wait_leader(q, 5 * SECOND);
        assert_ptr_equal(l, &q->h[0]);
        append_some(q, l, 20);
        q_agree(q, 10 * SECOND);
        for (int i = 0; i < 3; i++) assert_int_equal(kb_node_state(q->h[i].r.node), KB_NODE_READY);
        assert_int_equal(q_store(l)->epoch, round);
        if (round == 3) q_stop(l);
        else q_kill(l, round % 2);
        q_pass(q, 2 * SECOND);
        q_boot(l);
    }
    q_agree(q, 10 * SECOND);
    q_deinit(q);
    free(q);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_observers_follow),
        cmocka_unit_test(test_observer_is_told_of_a_dead_leader),
        cmocka_unit_test(test_only_voter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
