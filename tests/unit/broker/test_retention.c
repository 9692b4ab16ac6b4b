/* test_retention.c - segments leave by time, by size and by DeleteRecords, never above the high watermark, oldest first (requirement S4). */
#include "log_rig.h"

static void fill(struct rig *r, int n, int64_t timestamp, int64_t step) {
    struct rig_batch b = RIG_BATCH;
    b.value_size = 400;
    for (int i = 0; i < n; i++) {
        b.timestamp = timestamp + i * step;
        rig_append(r, &b);
    }
    rig_flush(r);
}

static void setup(struct rig *r, uint64_t seed) {
    rig_init(r, seed, NULL);
    r->config.segment_bytes = 1000; /* two batches */
    rig_open(r);
}

static size_t files(struct rig *r) {
    char **names;
    size_t n = sim_disk_names(r->disk, RIG_DIR, &names), logs = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]);
        logs += len > 4 && strcmp(names[i] + len - 4, ".log") == 0;
        free(names[i]);
    }
    free(names);
    return logs;
}

static void test_time(void **state) {
    (void)state;
    struct rig r;
    setup(&r, 1);
    fill(&r, 8, r.now.wall_ms, 1000);
    rig_sync(&r);
    assert_int_equal(kb_log_segment_count(r.log), 4);
    r.config.retention_ms = 10000;
    assert_int_equal(kb_log_housekeep(r.log, 8, r.now), 0);
    r.now.wall_ms += 12500; /* segments end at +1000, +3000, +5000, +7000 */
    assert_int_equal(kb_log_housekeep(r.log, 1, r.now), 0); /* not above the high watermark */
    assert_int_equal(kb_log_housekeep(r.log, 8, r.now), 1);
    rig_idle(&r);
    assert_int_equal(r.log->start, 2);
    assert_int_equal(files(&r), 3);
    r.now.wall_ms += 3600000; /* all of it: the active one is rolled first */
    assert_int_equal(kb_log_housekeep(r.log, 8, r.now), 2);
    rig_idle(&r);
    assert_int_equal(kb_log_housekeep(r.log, 8, r.now), 1); /* once its index is stored */
    rig_idle(&r);
    assert_int_equal(r.log->start, 8);
    assert_int_equal(r.log->leo, 8);
    assert_int_equal(kb_log_segment_count(r.log), 1);
    assert_int_equal(r.log->size_bytes, 0);
    assert_int_equal(kb_log_housekeep(r.log, 8, r.now), 0);
    fill(&r, 1, r.now.wall_ms, 0);
    assert_int_equal(r.log->leo, 9);
    rig_restart(&r);
    assert_int_equal(r.log->start, 8);
    assert_int_equal(r.log->leo, 9);
    rig_deinit(&r);
}

/* Where a file does not say when it was written, it is taken for new: it may hold ids that are to be known still. */
static void test_a_file_without_a_time(void **state) {
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct rig r;
        setup(&r, 3);
        fill(&r, 8, r.now.wall_ms, 1000);
        rig_sync(&r);
        rig_stop(&r);
        rig_advance(&r, 60000);
        sim_disk_faults(r.disk)->no_mtimes = fails;
        rig_open(&r);
        assert_int_equal(kb_log_since(r.log, r.now.wall_ms - 30000, r.now.mono_us - 30000000), fails ? 0 : 8);
        rig_deinit(&r);
    }
}

static void test_size_and_policy(void **state) {
    (void)state;
    struct rig r;
    setup(&r, 2);
    fill(&r, 8, r.now.wall_ms, 1);
    rig_sync(&r);
    int64_t segment = r.log->size_bytes / 4;
    r.config.retention_bytes = 2 * segment + 10;
    r.config.delete_policy = false; /* BL-16: a compacted topic loses nothing by time or size */
    r.config.retention_ms = 0;
    r.now.wall_ms += 1000000;
    assert_int_equal(kb_log_housekeep(r.log, 8, r.now), 0);
    r.config.delete_policy = true;
    r.config.retention_ms = -1;
    assert_int_equal(kb_log_housekeep(r.log, 8, r.now), 1); /* what stays is at least the limit, as in Kafka */
    rig_idle(&r);
    assert_int_equal(r.log->size_bytes, 3 * segment);
    assert_int_equal(r.log->start, 2);
    rig_deinit(&r);
}

static void test_raise_start(void **state) {
    (void)state;
    struct rig r;
    setup(&r, 3);
    fill(&r, 8, r.now.wall_ms, 1);
    rig_sync(&r);
    assert_int_equal(kb_log_raise_start(r.log, 9, 8, r.now), KW_EINVAL);
    assert_int_equal(kb_log_raise_start(r.log, 7, 6, r.now), KW_EINVAL);
    assert_int_equal(kb_log_raise_start(r.log, 5, 8, r.now), KW_OK);
    rig_idle(&r);
    assert_int_equal(r.log->start, 5);
    assert_int_equal(files(&r), 2);
    struct kb_read k = {.log = r.log, .offset = 4, .limit = 8, .bytes_max = 100};
    assert_int_equal(kb_log_read(&k, r.now), KW_EINVAL);
    assert_int_equal(rig_base_at(&r, 5, 100), 5);
    assert_int_equal(kb_log_raise_start(r.log, 3, 8, r.now), KW_OK); /* never back */
    assert_int_equal(r.log->start, 5);
    assert_int_equal(kb_log_raise_start(r.log, 8, 8, r.now), KW_OK);
    rig_idle(&r);
    assert_int_equal(r.log->start, 8);
    fill(&r, 1, 1, 1);
    rig_restart(&r);
    assert_int_equal(r.log->start, 8);
    assert_int_equal(r.log->leo, 9);
    rig_deinit(&r);
}

/* Killed and cut off from power at every step of a deletion: what is left is a suffix without holes, and nothing above it suffers. */
static void test_crash_while_deleting(void **state) {
    (void)state;
    for (int steps = 0; steps < 40; steps++) {
        struct rig r;
        setup(&r, (uint64_t)steps);
        r.recovery_point = 0;
        fill(&r, 12, r.now.wall_ms, 1);
        rig_sync(&r);
        r.recovery_point = steps % 3 ? r.log->recovery_point : 0;
        assert_int_equal(kb_log_raise_start(r.log, 9, 12, r.now), KW_OK);
        for (int i = 0; i < steps; i++) rig_step(&r);
        rig_kill(&r, steps % 2);
        rig_open(&r);
        assert_int_equal(r.log->leo, 12);
        assert_true(r.log->start <= 9 && r.log->start % 2 == 0);
        rig_read_all(&r, 100);
        rig_deinit(&r);
    }
}

/* The same when all of it goes, the active segment too: that it ends where it ended is still to be seen, or its offsets would be given once more. */
static void test_crash_while_all_goes(void **state) {
    (void)state;
    for (int steps = 0; steps < 80; steps++) {
        struct rig r;
        setup(&r, (uint64_t)steps);
        r.recovery_point = 0;
        fill(&r, 7, r.now.wall_ms, 1);
        rig_sync(&r);
        r.recovery_point = steps % 3 ? r.log->recovery_point : 0;
        r.config.retention_ms = 1000;
        r.now.wall_ms += 3600000;
        bool more = true;
        for (int i = 0; i < steps && more; i++) {
            kb_log_housekeep(r.log, 7, r.now);
            more = rig_step(&r);
        }
        if (!more) assert_int_equal(r.log->start, 7);
        rig_kill(&r, steps % 2);
        rig_open(&r);
        assert_int_equal(r.log->leo, 7);
        rig_read_all(&r, 100);
        rig_deinit(&r);
    }
}

/* A log that is begun anew further up has no batch yet. Once that is done, a start finds that it begins there. */
static void test_begun_anew(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct rig r;
        setup(&r, (uint64_t)i);
        if (i % 4 > 1) fill(&r, 7, r.now.wall_ms, 1);
        rig_sync(&r);
        r.done = false;
        assert_int_equal(kb_log_reset(r.log, i < 4 ? 20 : 6, rig_done, &r, r.now), KW_OK); /* one of the segments begins at 6 */
        while (!r.done) assert_true(rig_step(&r));
        rig_kill(&r, i % 2);
        rig_open(&r);
        assert_int_equal(r.log->start, i < 4 ? 20 : 6);
        assert_int_equal(r.log->leo, i < 4 ? 20 : 6);
        fill(&r, 3, r.now.wall_ms, 1);
        rig_restart(&r);
        assert_int_equal(r.log->leo, i < 4 ? 23 : 9);
        rig_deinit(&r);
    }
}

/* A stop, or a cut, that comes while the file is made which is to tell the end. */
static void test_stop_and_cut_while_all_goes(void **state) {
    (void)state;
    for (int steps = 0; steps < 40; steps++) {
        struct rig r;
        setup(&r, (uint64_t)steps);
        fill(&r, 7, r.now.wall_ms, 1);
        rig_sync(&r);
        r.config.retention_ms = 1000;
        r.now.wall_ms += 3600000;
        assert_int_equal(kb_log_housekeep(r.log, 7, r.now), 3);
        for (int i = 0; i < steps / 2 && rig_step(&r); i++) {}
        if (steps % 2) {
            r.done = false;
            assert_int_equal(kb_log_truncate(r.log, 7, rig_done, &r, r.now), KW_OK);
            rig_idle(&r);
            assert_true(r.done);
        }
        rig_restart(&r);
        assert_int_equal(r.log->leo, 7);
        fill(&r, 1, r.now.wall_ms, 1);
        assert_int_equal(r.log->leo, 8);
        rig_deinit(&r);
    }
}

static void test_producers_expire(void **state) {
    (void)state;
    struct rig r;
    setup(&r, 4);
    struct rig_batch b = RIG_BATCH;
    b.pid = 1;
    b.epoch = 0;
    b.seq = 0;
    rig_append(&r, &b);
    rig_flush(&r);
    r.now.wall_ms += 86400000 - 1000;
    kb_log_housekeep(r.log, 1, r.now);
    kb_log_expire_producers(r.log, r.now);
    assert_non_null(kb_pid_get(r.log->pids, 1));
    r.now.wall_ms += 2000;
    kb_log_housekeep(r.log, 1, r.now);
    kb_log_expire_producers(r.log, r.now);
    assert_null(kb_pid_get(r.log->pids, 1));
    assert_true(r.log->pids->forgetful);
    rig_deinit(&r);
}

/* flush.ms and flush.messages. */
static void test_flush_limits(void **state) {
    (void)state;
    struct rig r;
    setup(&r, 5);
    r.config.segment_bytes = 1 << 20;
    r.config.flush_ms = 500;
    fill(&r, 1, 1, 1);
    assert_int_equal(r.log->synced, 0);
    kb_log_housekeep(r.log, 1, r.now);
    rig_idle(&r);
    assert_int_equal(r.log->synced, 0);
    r.now.mono_us += 600000;
    kb_log_housekeep(r.log, 1, r.now);
    rig_idle(&r);
    assert_int_equal(r.log->synced, 1);
    r.config.flush_messages = 3;
    fill(&r, 2, 1, 1);
    assert_int_equal(r.log->synced, 1);
    fill(&r, 1, 1, 1);
    assert_int_equal(r.log->synced, 4);
    r.config.flush_on_ack = true;
    fill(&r, 1, 1, 1);
    assert_int_equal(r.log->synced, 5);
    rig_deinit(&r);
}

static void at_time(struct rig *r, int64_t timestamp) {
    struct rig_batch b = RIG_BATCH;
    b.value_size = 400;
    b.timestamp = timestamp;
    rig_append(r, &b);
}

/* While a look-up waits in the second segment, the first one goes: what comes behind its own is not behind the same number any more. */
static void test_a_lookup_goes_on_behind_its_segment(void **state) {
    (void)state;
    struct rig r;
    setup(&r, 8);
    static const int64_t times[] = {1, 2, 900, 3, 901, 4, 902, 5, 6};
    for (size_t i = 0; i < KW_COUNTOF(times); i++) at_time(&r, 1700000000000 + times[i]); /* two a segment */
    rig_flush(&r);
    rig_restart(&r); /* no index is in memory */
    bool done = false;
    struct kb_find_time f = {.log = r.log, .timestamp = 1700000000000 + 900, .limit = r.log->leo, .done = rig_found, .ctx = &done};
    assert_int_equal(kb_log_find_time(&f, r.now), 0);
    assert_int_equal(kb_log_raise_start(r.log, 3, r.log->leo, r.now), KW_OK); /* the first segment, and the batch that it looks for */
    rig_idle(&r);
    assert_true(done);
    assert_int_equal(f.err, KW_OK);
    assert_int_equal(f.offset, 4);
    assert_int_equal(f.found_timestamp, 1700000000000 + 901);
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time), cmocka_unit_test(test_a_file_without_a_time),
        cmocka_unit_test(test_size_and_policy),      cmocka_unit_test(test_raise_start),
        cmocka_unit_test(test_crash_while_deleting), cmocka_unit_test(test_crash_while_all_goes), cmocka_unit_test(test_stop_and_cut_while_all_goes),
        cmocka_unit_test(test_begun_anew),
        cmocka_unit_test(test_producers_expire), cmocka_unit_test(test_flush_limits),
        cmocka_unit_test(test_a_lookup_goes_on_behind_its_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
