/* test_recover.c - what a log is after a crash at any byte of its tail, with files missing, cut, zeroed or rotten (bug cases BL-01 to BL-13, BR-18). */
#include "log_rig.h"

#define LOG0 RIG_DIR "/00000000000000000000.log"
#define LOG3 RIG_DIR "/00000000000000000003.log"
#define LOG6 RIG_DIR "/00000000000000000006.log"
#define INDEX0 RIG_DIR "/00000000000000000000.index"
#define TIMES0 RIG_DIR "/00000000000000000000.timeindex"

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

/* Requirement S6: the last segment cut at each length keeps exactly the batches that are whole; garbage behind them changes nothing. */
static void test_cut_at_every_byte(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 1, NULL);
    rig_open(&r);
    rig_put(&r, 4, 120);
    rig_stop(&r);
    size_t n;
    uint8_t *all = rig_copy(&r, LOG0, &n);
    size_t each = n / 4;
    assert_int_equal(n, each * 4);
    for (size_t len = 0; len <= n; len++)
        for (int tail = 0; tail < (len % 7 ? 1 : 3); tail++) {
            uint8_t v[4096] = {0};
            memcpy(v, all, len);
            if (tail == 2) memset(v + len, 0xa5, 64);
            sim_disk_poke(r.disk, LOG0, v, len + (tail ? 64 : 0));
            size_t whole = 0; /* zeroes behind the cut may be what was cut */
            while (whole < 4 && (whole + 1) * each <= len + (tail ? 64 : 0) && memcmp(v + whole * each, all + whole * each, each) == 0) whole++;
            rig_recover(&r, 0);
            assert_int_equal(r.log->leo, whole);
            rig_read_all(&r, 3000);
            rig_put(&r, 1, 10);
            assert_int_equal(r.log->written, whole + 1);
            rig_drop(&r);
        }
    free(all);
    rig_deinit(&r);
}

/* BL-01: a batch below the one before ends the log, wherever it stands; an append below leo is refused. */
static void test_bl01_not_monotonic(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 1, NULL);
    rig_open(&r);
    rig_put(&r, 3, 100);
    struct rig_batch b = RIG_BATCH;
    struct kb_log_append a;
    b.base = 1;
    assert_int_equal(rig_try_append(&r, &b, &a), KW_EINVAL);
    assert_int_equal(r.log->leo, 3);
    rig_stop(&r);
    size_t n, k;
    uint8_t *p = rig_copy(&r, LOG0, &n), *bad = rig_build(&b, &k);
    p = realloc(p, n + 2 * k);
    memcpy(p + n, bad, k);
    memcpy(p + n + k, bad, k);
    sim_disk_poke(r.disk, LOG0, p, n + 2 * k);
    rig_recover(&r, 0);
    assert_int_equal(r.log->leo, 3);
    assert_non_null(strstr(r.lines, "below the one before"));
    rig_read_all(&r, 3000);
    free(p);
    free(bad);
    rig_deinit(&r);
}

/* BL-02, BL-03 at the log: killed, and a full disk, while it loads: the next load recovers in full. */
static void test_bl02_bl03_killed_while_loading(void **state) {
    (void)state;
    for (int64_t calls = 0; calls < 60; calls++) {
        struct rig r;
        rig_init(&r, (uint64_t)calls, NULL);
        r.config.segment_bytes = 1000;
        rig_open(&r);
        rig_put(&r, 30, 100);
        rig_kill(&r, false);
        sim_disk_remove(r.disk, INDEX0); /* something to rebuild and store */
        if (calls % 2) sim_disk_cut_job(r.disk, calls / 2);
        else sim_disk_faults(r.disk)->enospc_at = calls / 2;
        assert_int_equal(rig_open_start(&r), KW_OK);
        rig_idle(&r);
        if (calls % 2 && !r.log) assert_int_equal(r.open_err, KW_EIO);
        rig_drop(&r);
        sim_disk_faults(r.disk)->enospc_at = -1;
        rig_open(&r);
        assert_int_equal(r.log->leo, 30);
        rig_read_all(&r, 3000);
        rig_deinit(&r);
    }
}

/* BL-04: what was acknowledged as synced survives a power cut right after the roll, names and all. */
static void test_bl04_power_cut_after_roll(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed < 40; seed++) {
        struct rig r;
        rig_init(&r, seed, NULL);
        r.config.segment_bytes = 600;
        r.recovery_point = 0;
        rig_open(&r);
        rig_put(&r, 7, 200);
        assert_true(kb_log_segment_count(r.log) > 2);
        rig_sync(&r);
        int64_t synced = r.log->synced;
        rig_put(&r, 3, 200);
        rig_kill(&r, true);
        rig_open(&r);
        assert_true(r.log->leo >= synced);
        rig_read_all(&r, 3000);
        rig_deinit(&r);
    }
}

/* BL-05, BR-18: an epoch checkpoint that is empty, cut, foreign or gone is rebuilt from the batches, epoch 0 included. */
static void test_bl05_br18_epochs_rebuilt(void **state) {
    (void)state;
    static const char *const broken[] = {"", "0\n", "0\n2\n0 0\n", "0\n1\n5 7", "1\n0\n", "0\n2\n3 0\n1 5\n", "garbage\n", NULL};
    static const char good[] = "0\n4\n0 0\n1 2\n2 4\n3 6\n";
    for (size_t i = 0; i < KW_COUNTOF(broken); i++)
        for (int clean = 0; clean < 2; clean++) {
            struct rig r;
            rig_init(&r, 1, NULL);
            rig_open(&r);
            struct rig_batch b = RIG_BATCH;
            for (int32_t e = 0; e < 4; e++) {
                b.leader_epoch = e;
                rig_append(&r, &b);
                rig_append(&r, &b);
            }
            rig_flush(&r);
            rig_stop(&r);
            const char *path = RIG_DIR "/leader-epoch-checkpoint";
            size_t n;
            uint8_t *p = rig_copy(&r, path, &n);
            assert_int_equal(n, strlen(good));
            assert_memory_equal(p, good, n);
            free(p);
            if (broken[i]) sim_disk_poke(r.disk, path, broken[i], strlen(broken[i]));
            else sim_disk_remove(r.disk, path);
            r.clean = clean;
            rig_open(&r);
            assert_int_equal(kb_epochs_latest(r.log->epochs), 3);
            for (int64_t o = 0; o < 8; o++) assert_int_equal(kb_epochs_at(r.log->epochs, o), o / 2);
            rig_deinit(&r);
        }
}

/* BL-06: offsets over 2^31-1 apart never share a segment; one that holds them is split when it is loaded. */
static void test_bl06_offset_overflow(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 1, NULL);
    rig_open(&r);
    rig_put(&r, 1, 100);
    struct rig_batch b = RIG_BATCH;
    const int64_t far = 3000000000, farther = 9000000000;
    b.base = far;
    rig_append(&r, &b);
    rig_flush(&r);
    assert_int_equal(kb_log_segment_count(r.log), 2);
    rig_stop(&r);
    size_t n, k;
    uint8_t *p = rig_copy(&r, LOG0, &n);
    b.base = farther;
    for (int i = 0; i < 3; i++, b.base++) { /* what a broken writer would have left */
        uint8_t *q = rig_build(&b, &k);
        p = realloc(p, n + k);
        memcpy(p + n, q, k);
        n += k;
        free(q);
    }
    sim_disk_remove(r.disk, RIG_DIR "/00000000003000000000.log");
    sim_disk_poke(r.disk, LOG0, p, n);
    free(p);
    r.clean = false;
    r.recovery_point = r.start_checkpoint = -1;
    rig_open(&r);
    assert_int_equal(kb_log_segment_count(r.log), 2);
    assert_int_equal(r.log->leo, farther + 3);
    assert_true(rig_exists(&r, RIG_DIR "/00000000009000000000.log"));
    assert_int_equal(rig_base_at(&r, 1, 100000), farther);
    rig_restart(&r);
    assert_int_equal(r.log->leo, farther + 3);
    rig_deinit(&r);
}

/* BL-07: cut to the base of the active segment, then append: its indexes have room, no second segment of the same base. */
static void test_bl07_truncate_to_base(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 1, NULL);
    r.config.segment_bytes = 1000;
    r.config.segment_index_bytes = 32; /* four entries */
    r.config.index_interval_bytes = 0;
    rig_open(&r);
    rig_put(&r, 9, 250);
    int64_t segs = kb_log_segment_count(r.log), base = 0;
    char path[128];
    for (int64_t o = 0; o < 9; o++) {
        snprintf(path, sizeof(path), RIG_DIR "/%020lld.log", (long long)o);
        if (rig_exists(&r, path)) base = o;
    }
    r.done = false;
    assert_int_equal(kb_log_truncate(r.log, base, rig_done, &r, r.now), KW_OK);
    struct rig_batch b = RIG_BATCH;
    struct kb_log_append a;
    assert_int_equal(rig_try_append(&r, &b, &a), KW_EBUSY);
    rig_idle(&r);
    assert_true(r.done && r.done_err == KW_OK);
    assert_int_equal(r.log->leo, base);
    assert_int_equal(kb_log_segment_count(r.log), segs);
    rig_put(&r, 9, 250);
    assert_int_equal(r.log->leo, base + 9);
    rig_read_all(&r, 3000);
    rig_restart(&r);
    assert_int_equal(r.log->leo, base + 9);
    rig_read_all(&r, 3000);
    rig_deinit(&r);
}

/* BL-10: the batches at the end of a segment were compacted away: a read there goes on in the next. */
static void test_bl10_gap_at_the_border(void **state) {
    (void)state;
    struct rig r;
    three_segments(&r);
    size_t each = rig_size(&r, LOG0) / 3;
    sim_disk_cut(r.disk, LOG0, each); /* offsets 1 and 2 are gone, as the cleaner would leave it */
    sim_disk_remove(r.disk, INDEX0);
    sim_disk_remove(r.disk, TIMES0);
    rig_open(&r);
    for (int64_t o = 1; o <= 3; o++) assert_int_equal(rig_base_at(&r, o, 1 << 20), 3);
    rig_deinit(&r);
}

/* BL-11: index files of the last and of a middle segment missing, zeroed, cut or rotten. */
static void test_bl11_indexes_rebuilt(void **state) {
    (void)state;
    for (int how = 0; how < 6; how++)
        for (int clean = 0; clean < 2; clean++)
            for (int which = 0; which < 2; which++) {
                struct rig r;
                rig_init(&r, 1, NULL);
                r.config.segment_bytes = 3000;
                r.config.index_interval_bytes = 100;
                rig_open(&r);
                rig_put(&r, 60, 100);
                rig_stop(&r);
                const char *path = which ? TIMES0 : INDEX0;
                size_t n, m;
                uint8_t *before = rig_copy(&r, path, &n), *zero = calloc(1, 4096);
                assert_true(n > 24);
                if (how == 0) sim_disk_remove(r.disk, path);
                if (how == 1) sim_disk_poke(r.disk, path, zero, n);
                if (how == 2) sim_disk_poke(r.disk, path, zero, 0);
                if (how == 3) sim_disk_cut(r.disk, path, n - 5);
                if (how == 4) sim_disk_rot(r.disk, path, n - 1, 0x40);
                if (how == 5) { /* preallocated, as Kafka leaves it after a crash */
                    memcpy(zero, before, n);
                    sim_disk_poke(r.disk, path, zero, 4080);
                }
                r.clean = clean;
                rig_open(&r);
                assert_int_equal(r.log->leo, 60);
                rig_read_all(&r, 3000);
                struct kb_find_time f = rig_find_time(&r, 0, 60);
                assert_int_equal(f.offset, 0);
                uint8_t *after = rig_copy(&r, path, &m);
                assert_int_equal(n, m);
                assert_memory_equal(before, after, n);
                free(before);
                free(after);
                free(zero);
                rig_deinit(&r);
            }
}

/* BL-12: cut to 0, into the middle of a batch, to the end: every mark agrees with what can be read, at once and after a restart. */
static void test_bl12_truncate(void **state) {
    (void)state;
    static const int64_t to[] = {0, 7, 12, 30};
    static const int64_t want[] = {0, 6, 12, 30};
    for (size_t i = 0; i < KW_COUNTOF(to); i++) {
        struct rig r;
        rig_init(&r, i, NULL);
        r.config.segment_bytes = 700;
        rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        b.count = 3;
        for (int k = 0; k < 10; k++) {
            b.leader_epoch = k / 2;
            rig_append(&r, &b);
        }
        rig_sync(&r);
        rig_truncate(&r, to[i]);
        for (int pass = 0; pass < 2; pass++) {
            assert_int_equal(r.log->leo, want[i]);
            assert_int_equal(r.log->written, want[i]);
            assert_int_equal(r.log->synced, want[i]);
            assert_int_equal(r.log->recovery_point, want[i]);
            assert_int_equal(r.log->start, 0);
            assert_int_equal(kb_epochs_latest(r.log->epochs), want[i] ? (want[i] / 3 - 1) / 2 : -1);
            int64_t bytes = 0;
            for (int64_t at = 0; at < r.log->leo; at += 3) {
                struct rig_bytes x = rig_read(&r, at, 10);
                assert_int_equal(rig_first(&x).base_offset, at);
                bytes += (int64_t)x.n;
                free(x.p);
            }
            assert_int_equal(bytes, r.log->size_bytes);
            if (pass) break;
            rig_restart(&r);
        }
        rig_deinit(&r);
    }
}

/* A cut between two segments, where one without a batch stands: it goes too. (fuzz_log_recovery: the end was above the cut.) */
static void test_truncate_before_an_empty_segment(void **state) {
    (void)state;
    struct rig r;
    three_segments(&r);
    sim_disk_cut(r.disk, LOG0, rig_size(&r, LOG0) / 3);
    sim_disk_cut(r.disk, LOG3, 0);
    rig_open(&r);
    rig_truncate(&r, 2);
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(r.log->leo, 1);
        assert_false(rig_exists(&r, LOG3));
        assert_false(rig_exists(&r, LOG6));
        if (pass) break;
        rig_restart(&r);
    }
    rig_put(&r, 2, 200);
    assert_int_equal(r.log->leo, 3);
    rig_read_all(&r, 3000);
    rig_deinit(&r);
}

/* A segment that begins before the one below it ends, empty or not: kept, it would hide what stands there, and what is appended to it would be
 * cut at the next start. (fuzz_log_recovery: stopped at 3 to 11, opened at 3 to 7.) */
static void test_overlapping_segments(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        bool clean = how & 1, empty = how & 2;
        struct rig r;
        three_segments(&r);
        size_t n;
        uint8_t *p = rig_copy(&r, LOG3, &n);
        sim_disk_poke(r.disk, RIG_DIR "/00000000000000000002.log", p, empty ? 0 : n);
        free(p);
        sim_disk_remove(r.disk, LOG3);
        sim_disk_remove(r.disk, LOG6);
        r.clean = clean;
        if (!clean) r.recovery_point = -1;
        rig_open(&r);
        for (int pass = 0; pass < 2; pass++) {
            assert_int_equal(r.log->leo, 3 + 5 * pass);
            assert_int_equal(r.log->start, 0);
            rig_read_all(&r, 10);
            if (pass) break;
            rig_put(&r, 5, 200);
            rig_restart(&r);
        }
        assert_non_null(strstr(r.lines, "dropped"));
        rig_deinit(&r);
    }
}

/* So many batches in one segment, and a clean stop. Returns the size of each. */
static size_t filled(struct rig *r, int n) {
    rig_open(r);
    rig_put(r, n, 200);
    rig_stop(r);
    return rig_size(r, LOG0) / (size_t)n;
}

/* BL-13: one bit flipped in the middle: never served, never cut silently, everything around it readable; after clean and unclean stops, in the
 * records, the length and the offset. */
static void test_bl13_bit_rot(void **state) {
    (void)state;
    static const size_t where[] = {KW_BATCH_HEADER_SIZE + 20, KW_BATCH_LENGTH + 2, KW_BATCH_LENGTH + 3, KW_BATCH_CRC, KW_BATCH_MAGIC,
                                   KW_BATCH_LAST_OFFSET_DELTA};
    for (size_t w = 0; w < KW_COUNTOF(where); w++)
        for (int clean = 0; clean < 2; clean++) {
            struct rig r;
            rig_init(&r, 1, NULL);
            r.config.index_interval_bytes = 300;
            size_t each = filled(&r, 20);
            sim_disk_rot(r.disk, LOG0, 10 * each + where[w], 0x10);
            r.clean = clean;
            r.recovery_point = 20;
            rig_open(&r);
            assert_int_equal(r.log->leo, 20);
            for (int64_t o = 0; o < 20; o++) {
                struct rig_bytes b = rig_read(&r, o, 300);
                if (o == 10) assert_int_equal(b.err, KW_ECRC);
                else if (o < 10 || b.err == KW_OK) assert_int_equal(rig_first(&b).base_offset, o);
                else assert_true(clean && o < 13); /* no way past it but from the next index entry on */
                free(b.p);
            }
            struct rig_bytes b = rig_read(&r, 8, 1 << 20); /* a long read stops before it */
            assert_int_equal(b.err, KW_OK);
            assert_int_equal(b.n, 2 * each);
            free(b.p);
            assert_non_null(strstr(r.lines, "corrupt"));
            rig_deinit(&r);
        }
}

/* BL-13, where others count on the log: of a process that was killed the last batch may be unfinished, and that is all. Whatever else does not hold together
 * was whole once: it is told, and stays as it is until that is known. What looks like an unfinished batch and was committed is told by the high watermark. */
static void test_bl13_guarded(void **state) {
    (void)state;
    static const struct {
        int what; /* 0 nothing, 1 a bit of batch `of` at `at`, 2 the file ends `at` bytes into the last */
        size_t of, at;
        uint8_t mask;
        bool power;
        int64_t committed;
        bool told;
        int64_t leo;
    } cells[] = {
        {0, 0, 0, 0, false, 20, false, 20},
        {1, 19, KW_BATCH_HEADER_SIZE + 20, 0x10, false, 0, true, 19},
        {1, 19, KW_BATCH_MAGIC, 0x10, false, 0, true, 19},
        {1, 19, KW_BATCH_BASE_OFFSET + 7, 0x10, false, 0, true, 19}, /* 3 */
        {1, 10, KW_BATCH_LENGTH + 1, 0x10, false, 0, true, 10},      /* others are whole behind it */
        {1, 19, KW_BATCH_LENGTH + 1, 0x10, false, 0, false, 19},     /* as if it were on its way … */
        {1, 19, KW_BATCH_LENGTH + 1, 0x10, false, 20, true, 19},     /* … but it was committed */
        {2, 19, 90, 0, false, 19, false, 19},
        {2, 19, 20, 0, false, 19, false, 19},
        {2, 19, 90, 0, false, 20, true, 19},
        {1, 19, KW_BATCH_HEADER_SIZE + 20, 0x10, true, 19, false, 19}, /* the machine's end leaves anything of what was not synced */
        {1, 19, KW_BATCH_HEADER_SIZE + 20, 0x10, true, 20, true, 19},
    };
    for (size_t i = 0; i < KW_COUNTOF(cells); i++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        size_t each = filled(&r, 20), n, m;
        if (cells[i].what == 1) sim_disk_rot(r.disk, LOG0, cells[i].of * each + cells[i].at, cells[i].mask);
        if (cells[i].what == 2) sim_disk_cut(r.disk, LOG0, cells[i].of * each + cells[i].at);
        r.clean = false;
        r.recovery_point = 0;
        r.others = KB_OTHERS_MAY_COUNT;
        r.killed = !cells[i].power;
        r.config.flush_on_ack = cells[i].power; /* else the machine's end may take what was committed */
        r.committed = cells[i].committed;
        uint8_t *before = rig_copy(&r, LOG0, &n);
        if (cells[i].told) {
            assert_int_equal(rig_open_start(&r), KW_OK);
            rig_idle(&r);
            if (r.open_err != KW_ECRC) fail_msg("cell %zu: %d", i, r.open_err);
            assert_null(r.log);
            uint8_t *after = rig_copy(&r, LOG0, &m);
            if (cells[i].committed < 20) assert_true(n == m && memcmp(before, after, n) == 0);
            free(after);
            r.others = KB_OTHERS_NONE;
        }
        rig_open(&r);
        if (r.log->leo != cells[i].leo) fail_msg("cell %zu: %lld", i, (long long)r.log->leo);
        free(before);
        rig_deinit(&r);
    }
}

/* Nothing is cut of what was synced without a word, either, when that is the end of it. */
static void test_bl13_guarded_and_vouched(void **state) {
    (void)state;
    for (int clean = 0; clean < 2; clean++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        size_t each = filled(&r, 20);
        sim_disk_rot(r.disk, LOG0, 19 * each + KW_BATCH_LENGTH + 1, 0x10);
        if (clean) sim_disk_cut(r.disk, INDEX0, 3); /* else the segment is not read */
        r.clean = clean;
        r.recovery_point = 20;
        r.others = KB_OTHERS_MAY_COUNT;
        assert_int_equal(rig_open_start(&r), KW_OK);
        rig_idle(&r);
        assert_int_equal(r.open_err, KW_ECRC);
        assert_int_equal(rig_size(&r, LOG0), 20 * each);
        r.others = KB_OTHERS_NONE;
        rig_open(&r);
        assert_int_equal(r.log->leo, 19);
        rig_deinit(&r);
    }
}

/* A snapshot of the metadata vouches for its log while the epochs' checkpoint is still an older one: an epoch that began in front of it is not taken to
 * begin behind it (simulator, cluster seed 895). Or that checkpoint begins at a later snapshot, which rotted (2050). */
static void test_epochs_of_a_whole_log(void **state) {
    (void)state;
    for (int64_t point = 1; point <= 8; point++)
        for (int32_t k = 2; k < 16; k++) {
            struct rig r;
            int32_t first = k / 2;
            bool clean = k & 1;
            rig_init(&r, 1, NULL);
            r.config.segment_bytes = 900;
            r.whole = true;
            rig_open(&r);
            struct rig_batch b = RIG_BATCH;
            for (int i = 0; i < 8; i++) {
                b.leader_epoch = i >= first;
                rig_append(&r, &b);
            }
            rig_sync(&r);
            rig_stop(&r);
            sim_disk_poke(r.disk, RIG_DIR "/leader-epoch-checkpoint", clean ? "0\n1\n1 7\n" : "0\n1\n0 0\n", 8);
            r.clean = clean;
            r.recovery_point = point;
            rig_open(&r);
            assert_int_equal(r.log->leo, 8);
            for (int64_t o = 0; o < 8; o++) assert_int_equal(kb_epochs_at(r.log->epochs, o), o >= first);
            rig_deinit(&r);
        }
}

/* A batch's leader epoch is not under its checksum. In the metadata no epoch comes behind a later one: a start that reads so finds rot, and touches nothing;
 * it does not take the epoch for one that there was, of which nobody else knows. (Simulator, cluster seed 59: such a node never came up.) */
static void test_rot_in_an_epoch_of_a_whole_log(void **state) {
    (void)state;
    for (int how = 0; how < 8 * 32; how++) {
        struct rig r;
        size_t at = (size_t)how / 32;
        int32_t epochs[8] = {4, 4, 4, 9, 9, 9, 9, 9}, highest = 0;
        rig_init(&r, 1, NULL);
        r.config.segment_bytes = 900;
        r.config.flush_on_ack = r.whole = true;
        rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        b.value_size = 200;
        for (int i = 0; i < 8; i++) {
            b.leader_epoch = epochs[i];
            rig_append(&r, &b);
            rig_sync(&r);
        }
        rig_stop(&r);
        const char *path = at < 3 ? LOG0 : at < 6 ? LOG3 : LOG6;
        size_t place = at % 3 * (rig_size(&r, LOG6) / 2) + KW_BATCH_LEADER_EPOCH, size, before = rig_size(&r, path);
        sim_disk_rot(r.disk, path, place + (size_t)how % 32 / 8, (uint8_t)(1 << how % 8));
        epochs[at] = (int32_t)kw_load32(sim_disk_peek(r.disk, path, &size) + place);
        bool falls = false;
        for (int i = 0; i < 8; i++) {
            falls = falls || epochs[i] < highest;
            highest = KW_MAX(highest, epochs[i]);
        }
        r.clean = false, r.recovery_point = -1;
        assert_int_equal(rig_open_start(&r), KW_OK);
        rig_idle(&r);
        if (falls) assert_int_equal(r.open_err, KW_EDECODE);
        else assert_int_equal(r.log->leo, 8);
        assert_int_equal(rig_size(&r, path), before);
        rig_deinit(&r);
    }
}

/* Above the recovery point, but in front of an epoch that a start began, which had synced all of this (flush.on.ack): rot, no torn write. In the
 * records, or in any bit of the offset, which no checksum covers. Without the epoch, or without the syncs, it is the end. */
static void test_bl13_rot_before_an_epoch(void **state) {
    (void)state;
    for (int how = 0; how < 65 * 4; how++) {
        struct rig r;
        int bit = how / 4;
        bool synced = how & 1, later = how & 2;
        rig_init(&r, 1, NULL);
        r.config.flush_on_ack = synced;
        size_t each = filled(&r, 10);
        rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        b.leader_epoch = later;
        for (int i = 0; i < 5; i++) rig_append(&r, &b);
        rig_sync(&r);
        rig_stop(&r);
        sim_disk_rot(r.disk, LOG0, 6 * each + (size_t)(bit < 64 ? bit / 8 : KW_BATCH_HEADER_SIZE + 20), (uint8_t)(1 << bit % 8));
        r.clean = false;
        r.recovery_point = -1;
        rig_open(&r);
        int64_t end = synced && later ? 15 : 6;
        bool near = bit >= 56 && bit < 64; /* an offset that its neighbours may have: read alone, nothing tells that it is wrong */
        if (r.log->leo != end) fail_msg("case %d: the log ends at offset %lld", how, (long long)r.log->leo);
        for (int64_t o = 0; o < end && !near; o++) {
            struct rig_bytes x = rig_read(&r, o, 10);
            int64_t got = x.err == KW_OK ? rig_first(&x).base_offset : -1;
            if (got != o && !(o == 6 && (got < 0 || got == 7))) fail_msg("case %d: offset %d gives %lld, error %d", how, (int)o, (long long)got, x.err);
            free(x.p);
        }
        rig_deinit(&r);
    }
}

/* The same when the epoch begins in a later segment. (Simulator, cluster seed 951: the metadata's segments behind the rot were dropped.) Also when it is the
 * segment's last batch: what is short there is no lost tail (7036). */
static void test_bl13_rot_segments_before_an_epoch(void **state) {
    (void)state;
    for (int how = 0; how < 8; how++) {
        struct rig r;
        bool synced = how & 1, later = how & 2, last = how & 4;
        rig_init(&r, 1, NULL);
        r.config.flush_on_ack = synced;
        r.config.segment_bytes = 1500;
        rig_open(&r);
        rig_put(&r, 10, 200);
        rig_stop(&r);
        rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        b.leader_epoch = later;
        for (int i = 0; i < 5; i++) rig_append(&r, &b);
        rig_sync(&r);
        rig_stop(&r);
        sim_disk_rot(r.disk, LOG0, last ? rig_size(&r, LOG0) - 20 : rig_size(&r, LOG0) / 2, 1);
        sim_disk_poke(r.disk, RIG_DIR "/partition.metadata", "ours", 4);
        r.clean = false;
        r.recovery_point = -1;
        rig_open(&r);
        if (synced && later) assert_int_equal(r.log->leo, 15);
        else assert_in_range(r.log->leo, 1, 4);
        rig_deinit(&r);
    }
}

/* A clean start reads no records. What it takes from headers that rotted must not spoil what it writes at its own end. (Simulator, seed 571: an
 * assertion, as the time index went back.) */
static void test_bl13_rot_in_a_timestamp(void **state) {
    (void)state;
    for (size_t bit = 0; bit < 64; bit++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        size_t each = filled(&r, 10);
        sim_disk_rot(r.disk, LOG0, 4 * each + KW_BATCH_MAX_TIMESTAMP + bit / 8, (uint8_t)(1 << bit % 8));
        r.clean = true;
        rig_open(&r);
        assert_int_equal(r.log->leo, 10);
        rig_put(&r, 1, 200);
        rig_restart(&r);
        assert_int_equal(r.log->leo, 11);
        rig_deinit(&r);
    }
}

/* BL-13 for what a batch's checksum leaves out, its offset, in a sealed segment and in the last one, whatever the bit; and for the end of a sealed
 * segment. Nothing behind it is dropped. */
static void test_bl13_rot_in_an_offset(void **state) {
    (void)state;
    for (int how = 0; how < 64 * 4 + 4; how++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        r.config.segment_bytes = 1500;
        rig_open(&r);
        rig_put(&r, 20, 200);
        rig_stop(&r);
        bool clean = how & 1, sealed = how & 2;
        const char *path = RIG_DIR "/00000000000000000005.log", *index = RIG_DIR "/00000000000000000005.index";
        if (!sealed) path = RIG_DIR "/00000000000000000015.log", index = RIG_DIR "/00000000000000000015.index";
        size_t each = rig_size(&r, path) / 5;
        assert_int_equal(rig_size(&r, path), each * 5);
        int64_t bad = sealed ? 6 : 16;
        if (how < 64 * 4) {
            sim_disk_rot(r.disk, path, each + (size_t)(how / 4) / 8, (uint8_t)(1 << (how / 4) % 8));
        } else {
            if (!sealed) path = RIG_DIR "/00000000000000000005.log", index = RIG_DIR "/00000000000000000005.index";
            sim_disk_rot(r.disk, path, 4 * each + KW_BATCH_HEADER_SIZE + 20, 0x10); /* its last batch */
            bad = 9;
        }
        sim_disk_remove(r.disk, index); /* so that it is read */
        r.clean = clean;
        r.recovery_point = 20;
        rig_open(&r);
        assert_int_equal(r.log->leo, 20);
        for (int64_t o = 0; o < 20; o++) {
            struct rig_bytes b = rig_read(&r, o, 10);
            int64_t got = b.err == KW_OK ? rig_first(&b).base_offset : -1;
            bool near = how >= 56 * 4 && how < 64 * 4; /* an offset that its neighbours may have: read alone, nothing tells that it is wrong */
            if (got != o && !near && !(o == bad && (got < 0 || got == bad + 1)))
                fail_msg("case %d: offset %d gives %lld, error %d", how, (int)o, (long long)got, b.err);
            free(b.p);
        }
        rig_put(&r, 3, 200); /* and it goes on */
        rig_stop(&r);
        r.clean = true;
        rig_open(&r);
        assert_int_equal(r.log->leo, 23);
        rig_deinit(&r);
    }
}

static void assert_sequences(const struct kb_log *log, const int32_t want[KB_PID_BATCHES]) {
    const struct kb_pid_entry *e = kb_pid_get(log->pids, 7);
    assert_non_null(e);
    assert_int_equal(e->batch_count, KB_PID_BATCHES);
    for (int i = 0; i < KB_PID_BATCHES; i++) assert_int_equal(e->batches[i].first_seq, want[i]);
}

/* A batch that rotted says nothing of its producer, at a start nor after a cut, and does not hide those behind it, though its head look sane (simulator,
 * cluster seed 86: its last offset was far beyond the log's end). */
static void test_bl13_rot_and_producers(void **state) {
    (void)state;
    static const size_t where[] = {KW_BATCH_HEADER_SIZE + 20, KW_BATCH_LENGTH + 2, KW_BATCH_LAST_OFFSET_DELTA + 1};
    for (size_t w = 0; w < KW_COUNTOF(where); w++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        rig_open(&r);
        for (int i = 0; i < 10; i++) {
            struct rig_batch b = RIG_BATCH;
            b.pid = 7;
            b.epoch = 0;
            b.seq = i;
            rig_append(&r, &b);
        }
        rig_idle(&r);
        rig_stop(&r);
        size_t each = rig_size(&r, LOG0) / 10;
        sim_disk_remove(r.disk, RIG_DIR "/00000000000000000010.snapshot"); /* so that all is replayed */
        sim_disk_rot(r.disk, LOG0, 7 * each + where[w], 0x08);
        r.clean = false;
        r.recovery_point = 10;
        rig_open(&r);
        assert_int_equal(r.log->leo, 10);
        assert_sequences(r.log, (const int32_t[]){4, 5, 6, 8, 9});
        if (where[w] != KW_BATCH_LENGTH + 2) {
            rig_truncate(&r, 9);
            assert_sequences(r.log, (const int32_t[]){3, 4, 5, 6, 8});
        }
        rig_deinit(&r);
    }
}

/* Leftovers: temporaries and deleted files go, a finished swap takes its place, an unfinished one does not. */
static void test_leftovers(void **state) {
    (void)state;
    struct rig r;
    three_segments(&r);
    size_t n;
    uint8_t *p = rig_copy(&r, LOG0, &n);
    static const char *const names[] = {"00000000000000000000.log.deleted", "00000000000000000005.log.cleaned", "00000000000000000006.index.swap", "x.tmp",
                                        "00000000000000000099.index", "00000000000000000006.log.swap"};
    for (size_t i = 0; i < KW_COUNTOF(names); i++) {
        char path[128];
        snprintf(path, sizeof(path), RIG_DIR "/%s", names[i]);
        sim_disk_poke(r.disk, path, p, 50);
    }
    sim_disk_poke(r.disk, RIG_DIR "/notes.txt", "mine", 4);
    sim_disk_poke(r.disk, RIG_DIR "/00000000000000000000.log.swap", p, n); /* below the .cleaned: finished */
    r.clean = false;
    rig_open(&r);
    assert_int_equal(r.log->leo, 8);
    rig_read_all(&r, 3000);
    for (size_t i = 0; i < KW_COUNTOF(names); i++) {
        char path[128];
        snprintf(path, sizeof(path), RIG_DIR "/%s", names[i]);
        assert_false(rig_exists(&r, path));
    }
    assert_false(rig_exists(&r, RIG_DIR "/00000000000000000000.log.swap"));
    assert_true(rig_exists(&r, RIG_DIR "/notes.txt"));
    free(p);
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_bl01_not_monotonic),
        cmocka_unit_test(test_bl02_bl03_killed_while_loading),
        cmocka_unit_test(test_bl04_power_cut_after_roll),
        cmocka_unit_test(test_bl05_br18_epochs_rebuilt),
        cmocka_unit_test(test_bl06_offset_overflow),
        cmocka_unit_test(test_bl07_truncate_to_base),
        cmocka_unit_test(test_bl10_gap_at_the_border),
        cmocka_unit_test(test_bl11_indexes_rebuilt),
        cmocka_unit_test(test_bl12_truncate),
        cmocka_unit_test(test_truncate_before_an_empty_segment),
        cmocka_unit_test(test_overlapping_segments),
        cmocka_unit_test(test_bl13_bit_rot),
        cmocka_unit_test(test_bl13_guarded),
        cmocka_unit_test(test_bl13_guarded_and_vouched),
        cmocka_unit_test(test_bl13_rot_in_an_offset),
        cmocka_unit_test(test_bl13_rot_and_producers),
        cmocka_unit_test(test_epochs_of_a_whole_log),
        cmocka_unit_test(test_rot_in_an_epoch_of_a_whole_log),
        cmocka_unit_test(test_bl13_rot_before_an_epoch),
        cmocka_unit_test(test_bl13_rot_segments_before_an_epoch),
        cmocka_unit_test(test_bl13_rot_in_a_timestamp),
        cmocka_unit_test(test_leftovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
