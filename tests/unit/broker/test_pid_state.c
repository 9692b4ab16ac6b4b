/* test_pid_state.c - producer state: Kafka's rules, the five-batch window, wrapping sequences (CP-04), snapshots, restarts (BL-17 to BL-19). */
#include "log_rig.h"

static struct kw_batch_header head(int64_t pid, int16_t epoch, int32_t seq, int32_t count) {
    return (struct kw_batch_header){.producer_id = pid, .producer_epoch = epoch, .base_sequence = seq, .last_offset_delta = count - 1, .record_count = count,
                                    .max_timestamp = 7};
}

static void add(struct kb_pid_state *s, struct kw_batch_header h, int64_t offset) {
    struct kb_pid_batch dup;
    assert_int_equal(kb_pid_check(s, &h, &dup), KB_PID_APPEND);
    assert_int_equal(kb_pid_update(s, &h, offset, offset + h.last_offset_delta, 1000), KW_OK);
}

static void test_rules(void **state) {
    (void)state;
    struct kb_pid_state s;
    struct kb_pid_batch dup;
    kb_pid_state_init(&s);
    struct kw_batch_header h = head(1, 0, 17, 5);
    assert_int_equal(kb_pid_check(&s, &h, &dup), KB_PID_OUT_OF_ORDER); /* BL-17: no state, not at the beginning */
    add(&s, head(1, 0, 0, 17), 0);
    add(&s, head(1, 0, 17, 5), 17);
    h = head(1, 0, 30, 1);
    assert_int_equal(kb_pid_check(&s, &h, &dup), KB_PID_OUT_OF_ORDER);
    h = head(1, 0, 17, 5);
    assert_int_equal(kb_pid_check(&s, &h, &dup), KB_PID_DUPLICATE);
    assert_int_equal(dup.first_offset, 17);
    h = head(1, 0, 17, 4); /* another extent is not the same batch */
    assert_int_equal(kb_pid_check(&s, &h, &dup), KB_PID_OUT_OF_ORDER);
    h = head(1, 1, 22, 1);
    assert_int_equal(kb_pid_check(&s, &h, &dup), KB_PID_OUT_OF_ORDER); /* a new epoch begins at 0 */
    add(&s, head(1, 1, 0, 1), 22);
    h = head(1, 0, 22, 1);
    assert_int_equal(kb_pid_check(&s, &h, &dup), KB_PID_FENCED);
    for (int i = 1; i < 8; i++) add(&s, head(1, 1, i, 1), 22 + i);
    h = head(1, 1, 2, 1);
    assert_int_equal(kb_pid_check(&s, &h, &dup), KB_PID_OUT_OF_ORDER); /* older than five batches */
    h = head(1, 1, 3, 1);
    assert_int_equal(kb_pid_check(&s, &h, &dup), KB_PID_DUPLICATE);
    h = head(-1, -1, -1, 1);
    assert_int_equal(kb_pid_update(&s, &h, 40, 40, 1), KW_OK);
    assert_int_equal(s.by_pid.count, 1);
    assert_int_equal(kb_pid_expire(&s, 1000), 0);
    assert_int_equal(kb_pid_expire(&s, 1001), 1);
    h = head(1, 1, 8, 1);
    assert_int_equal(kb_pid_check(&s, &h, &dup), KB_PID_UNKNOWN); /* forgotten, and it knows that it forgets */
    kb_pid_state_deinit(&s);
}

/* CP-04: sequences run ..., 2147483647, 0, 1; a batch that straddles the wrap is known as a duplicate. */
static void test_cp04_wrap(void **state) {
    (void)state;
    struct kb_pid_state s, t;
    struct kb_pid_batch dup;
    kb_pid_state_init(&s);
    kb_pid_state_init(&t);
    struct kw_batch_header h = head(9, 0, 0, INT32_MAX - 2);
    add(&s, h, 0);
    int64_t at = INT32_MAX - 2;
    int32_t seq = INT32_MAX - 2;
    for (int i = 0; i < 6; i++, at++, seq = seq == INT32_MAX ? 0 : seq + 1) add(&s, head(9, 0, seq, 1), at);
    assert_int_equal(seq, 3);
    h = head(9, 0, INT32_MAX, 1);
    assert_int_equal(kb_pid_check(&s, &h, &dup), KB_PID_DUPLICATE);
    struct kb_pid_state w;
    kb_pid_state_init(&w);
    add(&w, head(9, 0, 0, INT32_MAX - 1), 0); /* next: 2^31-2 */
    add(&w, head(9, 0, INT32_MAX - 1, 5), INT32_MAX - 1);
    h = head(9, 0, INT32_MAX - 1, 5);
    assert_int_equal(kb_pid_check(&w, &h, &dup), KB_PID_DUPLICATE);
    assert_int_equal(dup.last_seq, 2);
    add(&w, head(9, 0, 3, 1), (int64_t)INT32_MAX + 4);
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kb_pid_encode(&w, &out), KW_OK);
    assert_int_equal(kb_pid_decode(&t, out.p, out.len), KW_OK);
    assert_int_equal(kb_pid_check(&t, &h, &dup), KB_PID_DUPLICATE); /* after a restart too */
    kw_out_deinit(&out);
    kb_pid_state_deinit(&s);
    kb_pid_state_deinit(&t);
    kb_pid_state_deinit(&w);
}

/* Kafka's own snapshot has no trailer; every flipped byte of ours is noticed. */
static void test_snapshot(void **state) {
    (void)state;
    struct kb_pid_state s, t;
    kb_pid_state_init(&s);
    kb_pid_state_init(&t);
    for (int i = 0; i < 5; i++) add(&s, head(77, 3, i * 10, 10), i * 10);
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kb_pid_encode(&s, &out), KW_OK);
    static const uint8_t kafka[] = {0, 1, 0xab, 0x2d, 0x8b, 0x0c, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 77, 0, 3, 0, 0, 0, 49, 0, 0, 0, 0, 0, 0, 0, 49,
                                    0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 3, 0xe8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    assert_memory_equal(out.p + 6, kafka + 6, sizeof(kafka) - 6); /* what Kafka reads; the sum covers the trailer as well */
    for (size_t i = 0; i < out.len; i++) {
        out.p[i] ^= 0x20;
        assert_true(kb_pid_decode(&t, out.p, out.len) < 0);
        out.p[i] ^= 0x20;
        assert_true(kb_pid_decode(&t, out.p, i) < 0);
    }
    assert_int_equal(kb_pid_decode(&t, out.p, out.len), KW_OK);
    assert_int_equal(kb_pid_get(&t, 77)->batch_count, 5);
    kw_out_deinit(&out);
    kb_pid_state_deinit(&s);
    kb_pid_state_deinit(&t);
}

/* BL-18, BL-19: five batches stored, answers lost, all five sent again in order, and the oldest alone: known with their offsets, after a kill -9, after a
 * clean restart, and after a cut behind them. */
static void test_bl18_bl19_restart(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        r.config.segment_bytes = how == 3 ? 300 : 1 << 20;
        rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        b.pid = 5;
        b.epoch = 2;
        b.count = 2;
        for (int i = 0; i < 7; i++) {
            b.seq = i * 2;
            assert_int_equal(rig_append(&r, &b), i * 2);
        }
        rig_flush(&r);
        if (how == 0) rig_kill(&r, false);
        if (how == 1 || how == 3) rig_stop(&r);
        if (how < 2 || how == 3) rig_open(&r);
        if (how == 2) {
            rig_append(&r, &(struct rig_batch){.count = 1, .value_size = 10, .pid = 5, .epoch = 2, .seq = 14, .base = -1, .timestamp = 1});
            rig_flush(&r);
            rig_truncate(&r, 14);
        }
        for (int pass = 0; pass < 2; pass++)
            for (int i = pass ? 2 : 6; i >= 2; i--) {
                struct kw_batch_header h = head(5, 2, i * 2, 2);
                struct kb_pid_batch dup;
                assert_int_equal(kb_pid_check(r.log->pids, &h, &dup), KB_PID_DUPLICATE);
                assert_int_equal(dup.first_offset, i * 2);
                assert_int_equal(dup.last_offset, i * 2 + 1);
            }
        struct kw_batch_header h = head(5, 2, 14, 1);
        struct kb_pid_batch dup;
        assert_int_equal(kb_pid_check(r.log->pids, &h, &dup), KB_PID_APPEND);
        rig_deinit(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules), cmocka_unit_test(test_cp04_wrap), cmocka_unit_test(test_snapshot), cmocka_unit_test(test_bl18_bl19_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
