/* test_compact_log.c - compaction of a log that lives on meanwhile: appends, syncs, reads and look-ups; truncations, resets, raised starts, shutdowns,
 * deletion; a full disk, a sick one, no memory; a crash at every step. BL-08, BL-09, BL-10; invariants 6, 7, 11, 12, 13, 14.
 */
#include "compact_rig.h"

#include "log/compact.h"

static bool all[RECORDS], must[RECORDS];
static bool over;
static struct kb_compact_report report;

static int setup_log(void **state) {
    setup(state);
    r.config.compact_policy = true;
    r.config.delete_policy = false;
    r.config.max_compaction_lag_ms = INT64_MAX;
    r.config.delete_retention_ms = 1000;
    memset(all, 1, sizeof(all));
    return 0;
}

static void pass_done(void *ctx, struct kb_log *log, const struct kb_compact_report *rep, struct kb_now now) {
    (void)ctx, (void)now;
    assert_ptr_equal(log, r.log);
    assert_false(over);
    over = true;
    report = *rep;
}

/* What was sealed becomes durable, and its epochs with it. */
static void settle(void) {
    rig_sync(&r);
    rig_advance(&r, 3000);
}

static kw_err begin(void) {
    struct kb_compact_order o = {.hw = r.log->written, .memory_max = 1 << 20, .seed = {5, 6}, .done = pass_done};
    over = false;
    return kb_log_compact(r.log, &o, r.now);
}

static void pass(void) {
    assert_int_equal(begin(), KW_OK);
    rig_idle(&r);
    assert_true(over);
    assert_int_equal(report.err, KW_OK);
}

/* Of all below `end` the newest of each key; what is above, whole. */
static void expect_below(int64_t end, bool *out) {
    int64_t newest[KEYS];
    for (int k = 0; k < KEYS; k++) newest[k] = -1;
    for (int64_t i = 0; i < end; i++)
        if (truth[i].key >= 0) newest[truth[i].key] = i;
    for (int64_t i = 0; i < RECORDS; i++) out[i] = i >= end || (truth[i].key >= 0 && newest[truth[i].key] == i);
}

static int64_t end_of_pass(void) {
    struct kb_compact_look look;
    (void)kb_log_compact_look(r.log, r.log->written, r.now, &look);
    return look.end;
}

static void check_files(void) {
    char **names;
    size_t n = sim_disk_names(r.disk, RIG_DIR, &names);
    int64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        char path[200];
        size_t len = strlen(names[i]);
        snprintf(path, sizeof(path), RIG_DIR "/%s", names[i]);
        if (strstr(names[i], ".cleaned") || strstr(names[i], ".swap")) fail_msg("%s is left", names[i]);
        if (len == 24 && strcmp(names[i] + 20, ".log") == 0) bytes += (int64_t)rig_size(&r, path);
        free(names[i]);
    }
    free(names);
    assert_int_equal(bytes, r.log->size_bytes);
}

static void test_a_pass(void **state) {
    for (int round = 0; round < 6; round++) {
        if (round) teardown(state), setup_log(state), kw_rng_init(&rng, (uint64_t)round);
        fill(900, round % 2);
        settle();
        int64_t before = kb_log_segment_count(r.log), end = end_of_pass();
        pass();
        assert_int_equal(r.log->cleaned, end);
        assert_true(report.records_out < report.records_in / 2 && report.bytes_out < report.bytes_in / 2);
        assert_true(kb_log_segment_count(r.log) <= before);
        expect_below(end, must);
        compare(must, must);
        check_files();
        struct kb_compact_look look;
        assert_false(kb_log_compact_look(r.log, r.log->written, r.now, &look));
        assert_int_equal(begin(), KW_EINVAL); /* nothing is dirty */
        rig_restart(&r);
        compare(must, must);
        assert_null(strstr(r.lines, "index"));
        r.log->cleaned = end; /* as its owner remembers */
        fill(1500, round % 2);
        settle();
        end = end_of_pass();
        pass();
        expect_below(end, must);
        compare(must, must);
        rig_kill(&r, true);
        rig_recover(&r, 0); /* nothing is vouched for, and all is there */
        compare(must, must);
        check_files();
    }
}

/* ---- Everything goes on ---- */

#define READS 6
struct reading {
    struct kb_read k;
    bool busy, done;
};
static struct reading reads[READS];

static void read_over(struct kb_read *k, struct kb_now now) {
    (void)now;
    KW_CONTAINER_OF(k, struct reading, k)->done = true;
}

/* Whole, as written, ascending; and no record that had to be there was passed over. */
static void judge(const struct kb_read *k) {
    uint8_t *bytes = malloc(k->bytes + 1);
    size_t n = 0;
    for (size_t i = 0; i < k->slice_count; i++) {
        const struct kb_slice *s = &k->slices[i];
        if (s->file) assert_int_equal(sim_disk_pread(r.disk, s->file, s->offset, bytes + n, s->len), s->len);
        else memcpy(bytes + n, s->p, s->len);
        n += s->len;
    }
    int64_t next = k->offset, last = -1;
    for (size_t at = 0; at < n;) {
        struct kw_batch_header h;
        struct kw_record_iter it;
        struct kw_record_view v;
        const uint8_t *body;
        size_t size, whole = n - at < KW_BATCH_HEADER_SIZE ? n - at + 1 : (size_t)kw_batch_size_peek(bytes + at, n - at);
        if (whole > n - at) break;
        assert_int_equal(kw_batch_parse(bytes + at, whole, &h), KW_OK);
        assert_true(kw_batch_crc_ok(bytes + at, whole));
        assert_true(h.base_offset > last && h.base_offset + h.last_offset_delta >= k->offset);
        last = h.base_offset + h.last_offset_delta;
        assert_int_equal(kw_batch_body(bytes + at, whole, &h, 1 << 20, r.compressor, &body, &size), KW_OK);
        kw_record_iter_init(&it, &h, body, size);
        while (kw_record_next(&it, &v) > 0) {
            assert_int_equal(v.timestamp, truth[v.offset].timestamp);
            for (; next < v.offset; next++) assert_false(must[next]);
            next = KW_MAX(next, v.offset + 1);
        }
        for (; next <= last; next++) assert_false(must[next]);
        at += whole;
    }
    free(bytes);
}

static void step_reads(void) {
    struct reading *x = &reads[below(READS)];
    if (!x->busy) {
        *x = (struct reading){.busy = true};
        x->k = (struct kb_read){.log = r.log, .offset = below((int32_t)r.log->written), .limit = r.log->written, .bytes_max = (size_t)(100 + below(3000)),
                                .min_one = true, .into_memory = below(2), .done = read_over};
        int32_t err = kb_log_read(&x->k, r.now);
        assert_true(err >= 0);
        x->done = err == 1;
    } else if (x->done) { /* maybe long after the files that it reads are gone */
        assert_int_equal(x->k.err, KW_OK);
        judge(&x->k);
        kb_read_release(&x->k);
        x->busy = false;
    }
}

static void end_reads(void) {
    rig_idle(&r);
    for (int i = 0; i < READS; i++) {
        if (!reads[i].busy) continue;
        assert_true(reads[i].done);
        assert_int_equal(reads[i].k.err, KW_OK);
        judge(&reads[i].k);
        kb_read_release(&reads[i].k);
        reads[i].busy = false;
    }
    rig_idle(&r);
}

struct asking {
    struct kb_find_time f;
    bool busy, done;
} ask;
static void found(struct kb_find_time *f, struct kb_now now) {
    (void)f, (void)now;
    ask.done = true;
}
/* The first record of that time that is still there: at or below the first that must be, at or above the first that ever was. */
static void step_times(void) {
    if (!ask.busy) {
        ask = (struct asking){.busy = true};
        ask.f = (struct kb_find_time){.log = r.log, .timestamp = 1700000000000 + below((int32_t)count * 10), .limit = r.log->written, .done = found};
        int32_t err = kb_log_find_time(&ask.f, r.now);
        assert_true(err >= 0);
        ask.done = err == 1;
    }
    if (!ask.done) return;
    assert_int_equal(ask.f.err, KW_OK);
    int64_t first = -1, sure = -1;
    for (int64_t i = 0; i < ask.f.limit; i++) {
        if (truth[i].timestamp < ask.f.timestamp) continue;
        if (first < 0) first = i;
        if (sure < 0 && must[i]) sure = i;
    }
    if (ask.f.offset < 0) assert_int_equal(sure, -1);
    else assert_true(ask.f.offset >= first && (sure < 0 || ask.f.offset <= sure) && truth[ask.f.offset].timestamp == ask.f.found_timestamp);
    ask.busy = false;
}

static void test_everything_goes_on(void **state) {
    for (uint64_t seed = 1; seed <= 25; seed++) {
        teardown(state);
        setup_log(state);
        r.config.delete_retention_ms = 1000000; /* tombstones stay */
        kw_rng_init(&rng, seed);
        if (seed % 3 == 0) r.env.open_files_max = 2, r.env.index_memory_max = 300; /* files and indexes come and go */
        fill(800, true);
        settle();
        rig_restart(&r); /* no index of a sealed segment is in memory */
        r.log->cleaned = 0;
        for (int turn = 0; turn < 3; turn++) {
            int64_t end = end_of_pass();
            expect_below(end, must);
            assert_int_equal(begin(), KW_OK);
            for (int i = 0; !over || i < 100; i++) {
                assert_true(i < 5000);
                step_reads();
                step_times();
                if (count < RECORDS - 50 && below(20) == 0) append(below(4));
                if (below(10) == 0) assert_int_equal(kb_log_sync(r.log), KW_OK);
                if (below(25) == 0) (void)kb_log_housekeep(r.log, r.log->written, r.now);
                (void)rig_step(&r);
            }
            while (ask.busy) rig_idle(&r), step_times();
            end_reads();
            assert_int_equal(report.err, KW_OK);
            assert_int_equal(r.log->cleaned, end);
            compare(must, must);
            fill(count + 200, true);
            settle();
            check_files();
        }
        rig_kill(&r, true);
        rig_recover(&r, 0);
        compare(must, must);
    }
}

/* ---- What comes in between ---- */

enum { TRUNCATE_ABOVE, TRUNCATE_BELOW, RESET, RAISE_START, SHUTDOWN, FREE, DELETE, ACTIONS };

static bool folder_gone;
static void gone(void *ctx, struct kb_now now) {
    (void)ctx, (void)now;
    folder_gone = true;
}

static void act(int action, int64_t end) {
    static const uint8_t id[16] = {1};
    r.done = false;
    switch (action) {
    case TRUNCATE_ABOVE:
    case TRUNCATE_BELOW:
        assert_int_equal(kb_log_truncate(r.log, action == TRUNCATE_ABOVE ? end + 3 : end / 2, rig_done, &r, r.now), KW_OK);
        break;
    case RESET:
        assert_int_equal(kb_log_reset(r.log, count + 10, rig_done, &r, r.now), KW_OK);
        break;
    case RAISE_START:
        assert_int_equal(kb_log_raise_start(r.log, end / 2, r.log->written, r.now), KW_OK);
        return;
    case SHUTDOWN:
        rig_stop(&r);
        return;
    case FREE:
        kb_log_free(r.log);
        r.log = NULL;
        rig_idle(&r);
        return;
    default:
        folder_gone = false;
        assert_int_equal(kb_log_delete(r.log, id, gone, NULL, r.now), KW_OK);
        r.log = NULL;
        rig_idle(&r);
        return;
    }
    rig_idle(&r);
    assert_true(r.done);
    assert_int_equal(r.done_err, KW_OK);
}

static void after(int action, int64_t end) {
    if (action == DELETE) {
        assert_true(folder_gone);
        char **names;
        size_t n = sim_disk_names(r.disk, RIG_DIR, &names);
        assert_int_equal(n, 0);
        free(names);
        return;
    }
    if (action == SHUTDOWN || action == FREE) rig_recover(&r, action == FREE ? 0 : r.recovery_point);
    if (action == RESET) {
        assert_int_equal(r.log->start, count + 10);
        assert_int_equal(r.log->leo, count + 10);
        return;
    }
    count = r.log->leo;
    expect_below(end, must);
    for (int64_t i = 0; i < r.log->start; i++) must[i] = false;
    rig_idle(&r);
    compare(must, all);
    assert_true(r.log->cleaned <= r.log->leo);
}

static void test_interrupted(void **state) {
    for (int action = 0; action < ACTIONS; action++)
        for (int step = 0; step < 30; step++) {
            teardown(state);
            setup_log(state);
            kw_rng_init(&rng, (uint64_t)step);
            r.config.delete_policy = true;
            fill(400, true);
            settle();
            int64_t end = end_of_pass();
            assert_int_equal(begin(), KW_OK);
            for (int i = 0; i < step; i++) (void)rig_step(&r);
            act(action, end);
            after(action, end);
            if (action >= RESET && action != RAISE_START) continue;
            rig_idle(&r);
            assert_true(over);
            (void)kb_log_housekeep(r.log, r.log->written, r.now);
            rig_idle(&r);
            assert_true(action != RAISE_START || r.log->start >= end / 2);
            fill(600, false); /* and it goes on as ever */
            settle();
            if (end_of_pass() > r.log->cleaned) pass();
            check_files();
            rig_restart(&r);
        }
}

static void test_a_crash_at_every_step(void **state) {
    (void)state;
    fill(500, true);
    settle();
    int64_t end = end_of_pass(), point = r.log->recovery_point;
    rig_stop(&r);
    sim_disk_sync_all(r.disk);
    struct sim_disk_image *image = sim_disk_image_take(r.disk);
    bool whole = false;
    for (int step = 0; !whole; step++)
        for (int again = 0; again < 8; again++) { /* a job that is cut off ends elsewhere each time */
            sim_disk_image_restore(r.disk, image);
            image = sim_disk_image_take(r.disk);
            r.clean = true;
            r.recovery_point = point;
            rig_open(&r);
            assert_int_equal(end_of_pass(), end);
            assert_int_equal(begin(), KW_OK);
            for (int i = 0; i < step; i++) (void)rig_step(&r);
            whole = over;
            rig_kill(&r, again % 2);
            rig_recover(&r, again % 3 ? point : 0);
            assert_int_equal(r.log->leo, count);
            expect_below(end, must);
            compare(must, all);
            check_files();
            settle();
            pass();
            assert_int_equal(r.log->cleaned, end);
            for (int64_t i = 0; i < count; i++) /* those that had been met before have had their time */
                if (truth[i].tombstone && i < end) must[i] = false;
            compare(must, all);
            check_files();
            rig_drop(&r);
        }
    sim_disk_image_free(image);
    rig_open(&r);
}

/* ---- What fails ---- */

static void test_a_full_disk(void **state) {
    for (int64_t at = 0; at < 60; at++) {
        teardown(state);
        setup_log(state);
        fill(500, true);
        settle();
        int64_t end = end_of_pass();
        sim_disk_faults(r.disk)->enospc_at = at;
        assert_int_equal(begin(), KW_OK);
        rig_idle(&r);
        sim_disk_faults(r.disk)->enospc_at = -1;
        assert_true(over);
        assert_false(r.log->poisoned || r.log->uncleanable);
        if (report.err) pass();
        expect_below(end, must);
        compare(must, must);
        check_files();
    }
}

static void test_a_sick_disk(void **state) {
    for (int kind = 0; kind < 3; kind++)
        for (int64_t at = 0; at < 70; at += kind ? 1 : 5) {
            teardown(state);
            setup_log(state);
            fill(500, true);
            settle();
            int64_t end = end_of_pass(), point = r.log->recovery_point;
            struct sim_disk_faults *f = sim_disk_faults(r.disk);
            *(kind == 0 ? &f->eio_read_at : kind == 1 ? &f->eio_write_at : &f->eio_sync_at) = at;
            assert_int_equal(begin(), KW_OK);
            rig_idle(&r);
            f->eio_read_at = f->eio_write_at = f->eio_sync_at = -1;
            assert_true(over);
            expect_below(end, must);
            if (report.err) assert_true(r.log->poisoned || r.log->uncleanable);
            if (!r.log->poisoned) compare(must, all);
            rig_kill(&r, at % 2);
            rig_recover(&r, point);
            compare(must, all);
            check_files();
        }
}

static void test_no_memory(void **state) {
    for (int64_t at = 0; at < 300; at += at < 60 ? 1 : 7) {
        teardown(state);
        setup_log(state);
        fill(300, true);
        settle();
        int64_t end = end_of_pass();
        kw_alloc_fail_after(at);
        kw_err err = begin();
        if (!err) rig_idle(&r);
        kw_alloc_fail_after(-1);
        assert_true(err == KW_OK || err == KW_ENOMEM);
        if (!err && !over) { /* it waits for its timer, or for housekeeping */
            (void)kb_log_housekeep(r.log, r.log->written, r.now);
            rig_idle(&r);
            rig_advance(&r, 3000);
            assert_true(over);
        }
        assert_false(r.log->poisoned || r.log->uncleanable);
        if (err || report.err) {
            rig_advance(&r, 3000);
            pass();
        }
        expect_below(end, must);
        compare(must, must);
        check_files();
    }
}

static void test_uncleanable(void **state) {
    (void)state;
    fill(500, true);
    settle();
    char path[100];
    look();
    snprintf(path, sizeof(path), RIG_DIR "/%020lld.log", (long long)sources[2].base);
    size_t n;
    uint8_t *p = rig_copy(&r, path, &n);
    rig_stop(&r);
    p[KW_BATCH_ATTRIBUTES + 1] |= KW_ATTR_TRANSACTIONAL;
    kw_batch_crc_set(p, (size_t)kw_batch_size_peek(p, n));
    sim_disk_poke(r.disk, path, p, n);
    free(p);
    rig_open(&r);
    assert_int_equal(begin(), KW_OK);
    rig_idle(&r);
    assert_true(over);
    assert_int_equal(report.err, KW_EUNSUPPORTED);
    assert_true(r.log->uncleanable && !r.log->poisoned);
    const char *said = strstr(r.lines, "cannot be compacted");
    assert_non_null(said);
    assert_null(strstr(said + 1, "cannot be compacted"));
    struct kb_compact_look l;
    assert_false(kb_log_compact_look(r.log, r.log->written, r.now, &l));
    compare(all, all);
    check_files();
    kb_log_config_set(r.log, &r.config, r.now); /* set otherwise: tried once more */
    assert_true(kb_log_compact_look(r.log, r.log->written, r.now, &l));
}

/* ---- When ---- */

static void test_when(void **state) {
    (void)state;
    struct kb_compact_look l;
    fill(1000, false);
    settle();
    r.now.wall_ms += 100000;
    r.config.min_dirty_ratio = 0.5;
    assert_true(kb_log_compact_look(r.log, r.log->written, r.now, &l));
    assert_true(l.ratio == 1 && l.dirty == 0 && !l.overdue);
    int64_t end = l.end;
    assert_true(end > 900 && end <= r.log->leo);
    assert_false(kb_log_compact_look(r.log, 0, r.now, &l)); /* nothing is committed */
    (void)kb_log_compact_look(r.log, end / 2, r.now, &l);
    assert_true(l.end > 0 && l.end <= end / 2);
    r.log->cleaned = end / 2;
    (void)kb_log_compact_look(r.log, r.log->written, r.now, &l);
    assert_true(l.ratio > 0.4 && l.ratio < 0.65 && l.dirty == end / 2);
    r.config.min_dirty_ratio = l.ratio - 0.01;
    assert_true(kb_log_compact_look(r.log, r.log->written, r.now, &l));
    r.config.min_dirty_ratio = l.ratio;
    assert_false(kb_log_compact_look(r.log, r.log->written, r.now, &l));
    int64_t age = r.now.wall_ms - truth[end / 2].timestamp;
    r.config.max_compaction_lag_ms = age / 2;
    assert_true(kb_log_compact_look(r.log, r.log->written, r.now, &l) && l.overdue);
    r.config.max_compaction_lag_ms = INT64_MAX;
    r.config.min_dirty_ratio = 0;
    r.config.min_compaction_lag_ms = r.now.wall_ms - truth[end * 3 / 4].timestamp; /* what is younger stays as it is */
    (void)kb_log_compact_look(r.log, r.log->written, r.now, &l);
    assert_true(l.end < end);
    r.config.min_compaction_lag_ms = INT64_MAX;
    assert_false(kb_log_compact_look(r.log, r.log->written, r.now, &l));
    r.config.min_compaction_lag_ms = 0;
    r.log->cleaned = r.log->leo + 1; /* another log's offset: from the start */
    assert_true(kb_log_compact_look(r.log, r.log->written, r.now, &l) && l.dirty == 0);
    r.log->cleaned = 0;
    r.config.compact_policy = false;
    assert_false(kb_log_compact_look(r.log, r.log->written, r.now, &l));
}

static void test_tombstones_and_their_time(void **state) {
    (void)state;
    fill(1000, false);
    settle();
    pass();
    int64_t first = r.log->cleaned;
    expect_below(first, must);
    compare(must, must);
    r.now.wall_ms += 5000; /* delete.retention.ms is over */
    fill(1300, false);
    settle();
    pass();
    expect_below(r.log->cleaned, must);
    for (int64_t i = 0; i < first; i++) must[i] = must[i] && !truth[i].tombstone;
    compare(must, must);
}

/* compact,delete: what compaction left goes by size and by DeleteRecords, too. */
static void test_compact_and_delete(void **state) {
    (void)state;
    r.config.delete_policy = true;
    fill(1500, true);
    settle();
    pass();
    expect_below(r.log->cleaned, must);
    r.config.retention_bytes = r.log->size_bytes / 2;
    assert_true(kb_log_housekeep(r.log, r.log->written, r.now) > 0);
    rig_idle(&r);
    assert_true(r.log->start > 0);
    for (int64_t i = 0; i < r.log->start; i++) must[i] = false;
    compare(must, must);
    check_files();
    r.config.retention_bytes = -1;
    int64_t to = (r.log->start + r.log->leo) / 2;
    assert_int_equal(kb_log_raise_start(r.log, to, r.log->written, r.now), KW_OK);
    rig_restart(&r);
    assert_int_equal(r.log->start, to);
}

/* ---- Cases ---- */

/* KAFKA-7385, KAFKA-8335: nothing but empty batches, kept for their producers. */
static void test_bl_08_only_empty_batches(void **state) {
    (void)state;
    fill(300, true);
    int64_t kept[4];
    memcpy(kept, last_of, sizeof(kept));
    int64_t from = count;
    fill(900, false); /* every key is written again, by nobody in particular */
    settle();
    pass();
    bool any = false;
    for (int64_t i = 0; i < from; i++) any = any || (i < r.log->cleaned && must[i]);
    expect_below(r.log->cleaned, must);
    for (int64_t i = 0; i < from; i++) assert_false(must[i]);
    compare(must, must);
    rig_stop(&r);
    char **names;
    size_t n = sim_disk_names(r.disk, RIG_DIR, &names);
    for (size_t i = 0; i < n; i++) {
        char path[200];
        snprintf(path, sizeof(path), RIG_DIR "/%s", names[i]);
        if (strstr(names[i], ".snapshot")) sim_disk_remove(r.disk, path);
        free(names[i]);
    }
    free(names);
    rig_recover(&r, 0);
    for (int i = 0; i < 4; i++) {
        const struct kb_pid_entry *e = kb_pid_get(r.log->pids, 100 + i);
        assert_non_null(e);
        assert_int_equal(e->batches[e->batch_count - 1].last_offset, kept[i]);
    }
    struct kb_find_time f = rig_find_time(&r, KB_TS_MAX, r.log->written);
    int64_t newest = 0;
    for (int64_t i = 0; i < count; i++)
        if (must[i] && truth[i].timestamp > truth[newest].timestamp) newest = i;
    assert_int_equal(f.found_timestamp, truth[newest].timestamp);
    fill(1200, true); /* the producers have newer ones: the empty batches go */
    fill(1500, false);
    settle();
    pass();
    struct rig_bytes b = rig_read_full(&r, 0, r.log->leo, 1 << 20, true, true, NULL);
    int empty = 0;
    for (size_t at = 0; at + KW_BATCH_HEADER_SIZE <= b.n; at += (size_t)kw_batch_size_peek(b.p + at, b.n - at)) {
        struct kw_batch_header h;
        assert_int_equal(kw_batch_parse(b.p + at, b.n - at, &h), KW_OK);
        if (h.record_count == 0 && h.base_offset < from) empty++;
    }
    assert_true(empty <= 1); /* but for one that reaches to the next segment */
    free(b.p);
}

/* KAFKA-8764: gaps where segments meet, as other tools leave them: each pass comes to its end, and has come further. */
static void test_bl_09_gaps_between_segments(void **state) {
    (void)state;
    fill(200, false);
    int64_t offset = r.log->leo;
    for (int i = 0; i < 40; i++) {
        struct rig_batch b = RIG_BATCH;
        b.base = offset += 1 + below(500);
        b.value_size = 400;
        rig_append(&r, &b);
        kb_log_flush(r.log, r.now);
        rig_idle(&r);
        if (i % 5 == 4) { /* the last batch of a segment is lost to something else's compaction */
            offset += 100000;
        }
    }
    settle();
    int64_t end = end_of_pass();
    pass();
    assert_int_equal(r.log->cleaned, end);
    assert_false(kb_log_compact_look(r.log, r.log->written, r.now, &(struct kb_compact_look){0}));
    int64_t leo = r.log->leo;
    rig_restart(&r);
    assert_int_equal(r.log->leo, leo);
    rig_kill(&r, true);
    rig_recover(&r, end);
    assert_int_equal(r.log->leo, leo);
}

/* brod 263: a read in what was compacted away at a segment's end gets what comes next. */
static void test_bl_10_reads_in_holes(void **state) {
    (void)state;
    fill(1200, false);
    settle();
    pass();
    expect_below(r.log->cleaned, must);
    for (int64_t at = 0; at < r.log->leo; at++) {
        int64_t next = at, first = at;
        while (first < r.log->leo && !must[first]) first++;
        for (int tries = 0; next <= first && next < r.log->leo; tries++) { /* empty batches, and what of a batch lies below, lead on */
            struct rig_bytes b = rig_read(&r, next, 500);
            struct kw_batch_header h = rig_first(&b);
            assert_true(h.base_offset + h.last_offset_delta >= next && h.base_offset <= first && tries < 100);
            next = h.base_offset + h.last_offset_delta + 1;
            free(b.p);
        }
    }
}

int main(void) {
#define T(t) cmocka_unit_test_setup_teardown(t, setup_log, teardown)
    const struct CMUnitTest tests[] = {
        T(test_a_pass),
        T(test_everything_goes_on),
        T(test_interrupted),
        T(test_a_crash_at_every_step),
        T(test_a_full_disk),
        T(test_a_sick_disk),
        T(test_no_memory),
        T(test_uncleanable),
        T(test_when),
        T(test_tombstones_and_their_time),
        T(test_compact_and_delete),
        T(test_bl_08_only_empty_batches),
        T(test_bl_09_gaps_between_segments),
        T(test_bl_10_reads_in_holes),
    };
    return cmocka_run_group_tests_name("compact_log", tests, NULL, NULL);
}
