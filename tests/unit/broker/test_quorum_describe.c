/* test_quorum_describe.c - what a leader tells of those that fetch its metadata (DescribeQuorum): each node once, as what it is now. */
#include "quorum_rig.h"

struct told {
    struct kb_request rq;
    struct kw_describe_quorum_response_partition_data p;
};

static void describe(struct host *l, struct told *t) {
    *t = (struct told){.rq.node = l->r.node};
    kw_arena_init(&t->rq.arena, 1u << 20);
    l->r.node->now = l->q->now;
    assert_int_equal(kb_raft_describe(&t->rq, &t->p), KW_OK);
}
static void told_deinit(struct told *t) {
    kw_arena_deinit(&t->rq.arena);
}

static int times(const struct told *t, int32_t id) {
    int n = 0;
    for (int32_t i = 0; i < t->p.current_voters.n; i++) n += t->p.current_voters.v[i].replica_id == id;
    for (int32_t i = 0; i < t->p.observers.n; i++) n += t->p.observers.v[i].replica_id == id;
    return n;
}
static const struct kw_describe_quorum_response_replica_state *voter_of(const struct told *t, int32_t id) {
    for (int32_t i = 0; i < t->p.current_voters.n; i++)
        if (t->p.current_voters.v[i].replica_id == id) return &t->p.current_voters.v[i];
    fail_msg("%d is no voter", (int)id);
    return NULL;
}
static bool observes(const struct told *t, int32_t id) {
    for (int32_t i = 0; i < t->p.observers.n; i++)
        if (t->p.observers.v[i].replica_id == id) return true;
    return false;
}

/* A wiped voter fetches without its directory until it has caught up, and with it from then on: it is one row all the time. */
static void test_voter_that_forgot_is_told_once(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct quorum *q = malloc(sizeof(*q));
        struct told t;
        q_init(q, 3, 4, seed);
        q_boot_all(q);
        struct host *l = q_wait_leader(q, 5 * SECOND);
        assert_non_null(l);
        append_some(q, l, 10);
        q_agree(q, 5 * SECOND);
        struct host *wiped = &q->h[(l->id + 1) % 3];
        q_kill(wiped, false);
        q_wipe(wiped);
        q_boot(wiped);
        bool forgetful = false;
        for (int i = 0;; i++) {
            assert_true(i < 5000);
            q_pass(q, 1000);
            assert_ptr_equal(q_leader(q), l);
            describe(l, &t);
            for (int k = 0; k < 4; k++) assert_int_equal(times(&t, k), 1);
            const struct kw_describe_quorum_response_replica_state *v = voter_of(&t, wiped->id);
            bool named = !kw_uuid_is_zero(v->replica_directory_id);
            if (!named && v->last_fetch_timestamp > 0) {
                forgetful = true;
                assert_int_equal(v->log_end_offset, -1); /* it acknowledges nothing */
            }
            if (forgetful && named && v->log_end_offset == q_store(l)->log->leo) break;
            told_deinit(&t);
        }
        assert_int_equal(q_store(wiped)->raft->phase, KB_RAFT_MEMBER);
        for (int k = 0; k < 3; k++) assert_int_equal(voter_of(&t, k)->log_end_offset, q_store(l)->log->leo);
        assert_int_equal(t.p.observers.n, 1);
        assert_true(observes(&t, 3));
        told_deinit(&t);
        /* And back: the same voter without a directory again. */
        kb_raft_note_fetch(q_store(l)->raft, wiped->id, (struct kw_uuid){{0}}, 1, q->now);
        describe(l, &t);
        for (int k = 0; k < 4; k++) assert_int_equal(times(&t, k), 1);
        assert_int_equal(voter_of(&t, wiped->id)->log_end_offset, -1);
        assert_true(kw_uuid_is_zero(voter_of(&t, wiped->id)->replica_directory_id));
        told_deinit(&t);
        q_pass(q, SECOND); /* the true one fetched since */
        describe(l, &t);
        assert_int_equal(voter_of(&t, wiped->id)->log_end_offset, q_store(l)->log->leo);
        told_deinit(&t);
        q_deinit(q);
        free(q);
    }
}

/* As many observers as are noted came and went: a new one takes the place of those that are gone for long, and of no other. */
static void test_silent_observers_make_room(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    struct kw_uuid folder = {{7}};
    struct told t;
    q_init(q, 3, 3, 1);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    struct kb_raft *r = q_store(l)->raft;
    struct kb_now now = q->now;
    for (int32_t i = 0; i < KB_RAFT_OBSERVERS_MAX; i++) kb_raft_note_fetch(r, 100 + i, folder, 1, now);
    kb_raft_note_fetch(r, 5000, folder, 1, now); /* one too many */
    describe(l, &t);
    assert_int_equal(t.p.observers.n, KB_RAFT_OBSERVERS_MAX);
    assert_false(observes(&t, 5000));
    told_deinit(&t);
    now.mono_us += 200 * (int64_t)SECOND;
    kb_raft_note_fetch(r, 100, folder, 1, now);
    now.mono_us += 200 * (int64_t)SECOND;
    kb_raft_note_fetch(r, 5000, folder, 1, now);
    assert_int_equal(r->observers.count, 2);
    q->now = now;
    describe(l, &t);
    assert_int_equal(t.p.observers.n, 2);
    assert_true(observes(&t, 100) && observes(&t, 5000));
    told_deinit(&t);
    q_deinit(q);
    free(q);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_voter_that_forgot_is_told_once),
        cmocka_unit_test(test_silent_observers_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
