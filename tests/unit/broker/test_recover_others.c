/* test_recover_others.c - what a start believes of a log of which others have copies, or have not: offsets that rotted, which no checksum covers, and writes
 * that went astray (bug case BL-13). What one copy alone is after a crash: test_recover.c.
 */
#include "log_rig.h"

#define LOG0 RIG_DIR "/00000000000000000000.log"
#define LOG3 RIG_DIR "/00000000000000000003.log"
#define LOG6 RIG_DIR "/00000000000000000006.log"

/* Segments that begin at 0, 3 and 6, end 8, stopped in order. */
static void three_segments(struct rig *r) {
    rig_init(r, 1, NULL);
    r->config.segment_bytes = 900;
    rig_open(r);
    rig_put(r, 8, 200);
    rig_stop(r);
    assert_true(rig_exists(r, LOG3));
    assert_true(rig_exists(r, LOG6));
}

/* So many batches in one segment, and a clean stop. Returns the size of each. */
static size_t filled(struct rig *r, int n) {
    rig_open(r);
    rig_put(r, n, 200);
    rig_stop(r);
    return rig_size(r, LOG0) / (size_t)n;
}

/* What a start does in each of the roles that others may give it: the batch at `bad` is not what it was. told: KW_ECRC comes first, and nothing is touched. */
static void expect_ends(struct rig *r, int how, bool killed, bool clean, int64_t alone, int64_t cut) {
    static const enum kb_others roles[] = {KB_OTHERS_NONE, KB_OTHERS_MAY_COUNT, KB_OTHERS_HAVE_IT, KB_OTHERS_LEAD};
    uint64_t before = sim_disk_hash(r->disk);
    r->others = roles[how];
    r->killed = killed;
    r->clean = clean;
    if (how == 1) {
        assert_int_equal(rig_open_start(r), KW_OK);
        rig_idle(r);
        if (r->open_err != KW_ECRC) fail_msg("nobody is told: %d", r->open_err);
        assert_true(sim_disk_hash(r->disk) == before);
        return;
    }
    rig_open(r);
    int64_t want = how == 0 ? alone : cut;
    if (r->log->leo != want) fail_msg("role %d: the log ends at %lld, not at %lld", how, (long long)r->log->leo, (long long)want);
    if (how == 0) return;
    rig_read_all(r, 10);
    rig_put(r, 2, 200); /* it goes on, and the next start finds nothing wrong */
    rig_stop(r);
    r->others = KB_OTHERS_MAY_COUNT;
    rig_open(r);
    assert_int_equal(r->log->leo, want + 2);
}

/* The offset of a log's last batch is not under its checksum, and no batch behind it tells: with any bit of it turned upwards it seems to follow a gap, and the
 * log to end far above what it holds. A single replica keeps that; where others have it, nobody vouches for it above the recovery point, nor over it. */
static void test_bl13_an_offset_that_nobody_vouches_for(void **state) {
    (void)state;
    for (int bit = 0; bit < 62; bit++)
        for (int cell = 0; cell < 4 * 4; cell++) {
            struct rig r;
            bool clean = cell / 4 == 0, above = cell / 4 == 1, killed = cell / 4 != 3;
            if (19 & (INT64_C(1) << bit)) continue; /* downwards: it is below the one before */
            rig_init(&r, 1, NULL);
            size_t each = filled(&r, 20);
            assert_int_equal(r.recovery_point, 20);
            sim_disk_rot(r.disk, LOG0, 19 * each + 7 - (size_t)bit / 8, (uint8_t)(1 << bit % 8));
            if (above) r.recovery_point = 10;
            if (cell / 4 == 3) r.recovery_point = -1;
            expect_ends(&r, cell % 4, killed, clean, (19 | INT64_C(1) << bit) + 1, 19);
            rig_deinit(&r);
        }
}

/* Gaps that the recovery point vouches for are compaction's, and stay, whoever else there is; those of a compacted log without a recovery point, too: its
 * leader may have forgotten deletions since (simulator, cluster seed 1045, 13). */
static void test_vouched_gaps_stay(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++)
        for (int point = 7; point <= 9; point++) {
            struct rig r;
            rig_init(&r, 1, NULL);
            rig_open(&r);
            struct rig_batch b = RIG_BATCH;
            static const int64_t bases[] = {0, 1, 4, 5, 7, 8};
            for (size_t i = 0; i < KW_COUNTOF(bases); i++) {
                b.base = bases[i];
                rig_append(&r, &b);
            }
            rig_sync(&r);
            rig_stop(&r);
            r.recovery_point = point == 7 ? -1 : point;
            r.config.compact_policy = point == 7;
            r.others = (enum kb_others)how;
            r.killed = true;
            r.clean = false;
            rig_open(&r);
            assert_int_equal(r.log->leo, 9);
            assert_int_equal(rig_base_at(&r, 2, 10), 4);
            rig_deinit(&r);
        }
}

/* A write that went astray, to the beginning of its file: where it should be are zeros, and a whole batch of a later offset stands in front of what is left of
 * the first ones. Nothing behind that is hidden. Damage to what was synced is cut off where another replica leads that has it; else it is kept. */
static void test_bl13_misdirected(void **state) {
    (void)state;
    for (int cell = 0; cell < 4 * 8; cell++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        size_t each = filled(&r, 20), count = cell / 16 ? 3 : 1;
        bool synced = cell / 4 & 1, first = cell / 4 & 2;
        int64_t from = first ? 15 : 6, role = cell % 4, to = first ? 0 : 9;
        /* To the beginning, or amidst it; in front of what is left of a batch. */
        sim_disk_misdirect(r.disk, LOG0, (size_t)from * each, count * each, (size_t)to * each);
        sim_disk_rot(r.disk, LOG0, ((size_t)to + count) * each + KW_BATCH_MAGIC, 0x40);
        r.recovery_point = synced ? 20 : 0;
        r.clean = false;
        int64_t bad = first ? 0 : 6, kept = synced ? 20 : bad;
        if (role == 2 && synced) kept = 20;
        if (role == 2 || role == 0) {
            r.others = (enum kb_others)role;
            rig_open(&r);
            if (r.log->leo != kept) fail_msg("cell %d: %lld", cell, (long long)r.log->leo);
            for (int64_t o = 0; o < kept; o++) {
                struct rig_bytes x = rig_read(&r, o, 10);
                int64_t got = x.err == KW_OK ? rig_first(&x).base_offset : -1;
                bool hit = (o >= from && o < from + (int64_t)count) || (o >= to && o <= to + (int64_t)count);
                if (got != o && !hit) fail_msg("cell %d: offset %lld gives %lld, error %d", cell, (long long)o, (long long)got, x.err);
                free(x.p);
            }
        } else {
            expect_ends(&r, (int)role, true, false, kept, bad);
        }
        rig_deinit(&r);
    }
}

/* Segments behind one that ends below the next, or above where it begins, go only when nobody counts on them any more. */
static void test_bl13_segments_that_do_not_meet(void **state) {
    (void)state;
    for (int cell = 0; cell < 2 * 2; cell++) {
        struct rig r;
        bool tail = cell & 1, told = cell & 2;
        three_segments(&r);
        size_t each = rig_size(&r, LOG3) / 3;
        if (tail)
            sim_disk_cut(r.disk, LOG3, 2 * each);
        else
            sim_disk_rot(r.disk, LOG3, 2 * each + 7, 8); /* 5 becomes 13 */
        r.clean = false;
        r.recovery_point = 0;
        r.others = told ? KB_OTHERS_HAVE_IT : KB_OTHERS_MAY_COUNT;
        r.killed = true;
        assert_int_equal(rig_open_start(&r), KW_OK);
        rig_idle(&r);
        assert_int_equal(r.open_err, told ? KW_OK : KW_ECRC);
        assert_int_equal(rig_exists(&r, LOG6), !told);
        if (told) assert_int_equal(r.log->leo, 5);
        rig_deinit(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bl13_an_offset_that_nobody_vouches_for),
        cmocka_unit_test(test_vouched_gaps_stay),
        cmocka_unit_test(test_bl13_misdirected),
        cmocka_unit_test(test_bl13_segments_that_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
