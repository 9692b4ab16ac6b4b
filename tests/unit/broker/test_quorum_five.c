/* test_quorum_five.c - a quorum of five: two are dead, two were wiped one after the other, the network parts three from two and one from all. */
#include "quorum_rig.h"

/* The n-th behind the leader in the ring. */
static struct host *next_to(struct quorum *q, const struct host *l, int n) {
    return &q->h[(l->id + n) % 5];
}

static struct host *begin(struct quorum *q, uint64_t seed) {
    q_init(q, 5, 6, seed);
    if (seed % 2) set_all(q, "metadata.log.max.record.bytes.between.snapshots", "1500");
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    append_some(q, l, 10);
    q_agree(q, 5 * SECOND);
    return q_leader(q);
}

static void end(struct quorum *q) {
    q_boot_all(q);
    q_agree(q, 20 * SECOND);
    append_some(q, q_leader(q), 5);
    q_agree(q, 5 * SECOND);
    q_deinit(q);
    free(q);
}

/* Three of five go on, with another leader too; two do not, and lose nothing that the five had. */
static void test_two_of_five_are_dead(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct quorum *q = malloc(sizeof(*q));
        struct host *l = begin(q, seed);
        q_kill(next_to(q, l, 1), seed % 3 == 0);
        append_some(q, l, 5);
        q_kill(l, seed % 3 == 1); /* the leader is the second */
        struct host *next = q_wait_leader(q, 5 * SECOND);
        assert_non_null(next);
        append_some(q, next, 20);
        int64_t committed = q->committed, offset;
        for (int i = 1; i < 5; i++)
            if (next_to(q, next, i)->up) {
                q_kill(next_to(q, next, i), true);
                break;
            }
        for (int i = 0; i < 3; i++) (void)q_append(next, &offset);
        q_pass(q, 5 * SECOND);
        assert_null(q_leader(q));
        assert_true(q->committed <= committed + 3); /* acknowledged before the third went, at most */
        q_boot(l);
        next = q_wait_leader(q, 10 * SECOND);
        assert_non_null(next);
        append_some(q, next, 5);
        end(q);
    }
}

/* The second is wiped once the first votes again; while the first does not, a dead leader leaves three that vote. */
static void test_two_of_five_are_wiped_one_after_the_other(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct quorum *q = malloc(sizeof(*q));
        struct host *l = begin(q, seed);
        struct host *first = next_to(q, l, 1), *second = next_to(q, l, 2);
        q_kill(first, true);
        q_wipe(first);
        append_some(q, l, 10);
        q_kill(l, false);
        q_boot(first);
        struct host *next = q_wait_leader(q, 5 * SECOND);
        assert_non_null(next);
        append_some(q, next, 5);
        q_pass(q, SECOND);
        assert_int_equal(q_store(first)->raft->phase, KB_RAFT_FORGETFUL); /* the dead one may hold its vote */
        q_boot(l);
        q_agree(q, 10 * SECOND);
        assert_int_equal(q_store(first)->raft->phase, KB_RAFT_MEMBER);
        q_kill(second, true);
        q_wipe(second);
        q_boot(second);
        q_agree(q, 10 * SECOND);
        assert_int_equal(q_store(second)->raft->phase, KB_RAFT_MEMBER);
        /* What was committed before is with any three, the two among them. */
        for (int i = 0, down = 0; i < 5 && down < 2; i++)
            if (&q->h[i] != first && &q->h[i] != second) q_kill(&q->h[i], false), down++;
        next = q_wait_leader(q, 5 * SECOND);
        assert_non_null(next);
        append_some(q, next, 5);
        end(q);
    }
}

static void part(struct quorum *q, const bool *side) {
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++)
            if (side[i] != side[k]) q->cut[i][k] = true;
}

/* The leader with one other on the small side: it appends, and nothing of that is committed; the three elect; together again they are one. */
static void test_five_part_in_three_and_two(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct quorum *q = malloc(sizeof(*q));
        struct host *l = begin(q, seed);
        bool side[5] = {0};
        int64_t offset, committed = q->committed;
        side[l->id] = side[next_to(q, l, 1 + (int)(seed % 4))->id] = true;
        part(q, side);
        for (int i = 0; i < 9; i++) assert_true(q_append(l, &offset));
        q_pass(q, 4 * SECOND);
        assert_false(q_leads(l));
        assert_int_equal(l->r.node->image.offset, committed);
        struct host *next = q_leader(q);
        assert_non_null(next);
        assert_false(side[next->id]);
        append_some(q, next, 40);
        memset(q->cut, 0, sizeof(q->cut));
        /* One way: the leader is heard, and hears nobody. */
        struct host *deaf = q_leader(q);
        for (int i = 0; i < 5; i++)
            if (i != deaf->id) q->cut[i][deaf->id] = true;
        q_pass(q, 4 * SECOND);
        assert_false(q_leads(deaf));
        assert_non_null(q_leader(q));
        memset(q->cut, 0, sizeof(q->cut));
        end(q);
    }
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_of_five_are_dead),
        cmocka_unit_test(test_two_of_five_are_wiped_one_after_the_other),
        cmocka_unit_test(test_five_part_in_three_and_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
