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
        cmocka_unit_test(test_only_voter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
