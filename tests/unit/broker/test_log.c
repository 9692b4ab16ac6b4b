/* test_log.c - appending, marks, rolling, reading and finding times in one log on the simulated disk; full and failing disks; no memory. */
#include "log_rig.h"

#include "log/log_priv.h"

static void test_open_append_read(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 1, NULL);
    rig_open(&r);
    assert_int_equal(r.log->leo, 0);
    struct rig_batch b = RIG_BATCH;
    b.count = 3;
    assert_int_equal(rig_append(&r, &b), 0);
    assert_int_equal(r.log->leo, 3);
    assert_int_equal(r.log->written, 0);
    b.fill = 'y';
    assert_int_equal(rig_append(&r, &b), 3);
    rig_flush(&r);
    assert_int_equal(r.log->written, 6);
    assert_int_equal(r.log->synced, 0);
    assert_true(r.moved >= 1);
    bool async;
    struct rig_bytes x = rig_read_full(&r, 0, 6, 1 << 20, true, false, &async);
    assert_false(async); /* the tail needs no disk read */
    assert_int_equal(rig_first(&x).base_offset, 0);
    assert_int_equal(x.next, 6);
    free(x.p);
    x = rig_read_full(&r, 4, 6, 1 << 20, true, false, &async);
    assert_false(async);
    assert_int_equal(rig_first(&x).base_offset, 3);
    free(x.p);
    x = rig_read_full(&r, 6, 6, 1 << 20, true, false, &async);
    assert_int_equal(x.n, 0);
    assert_int_equal(x.err, KW_OK);
    free(x.p);
    x = rig_read_full(&r, 0, 3, 1 << 20, true, true, &async);
    assert_int_equal(rig_first(&x).base_offset, 0);
    assert_int_equal(x.n, rig_first(&x).length + KW_BATCH_OVERHEAD); /* nothing at or above the limit */
    free(x.p);
    rig_sync(&r);
    assert_int_equal(r.log->recovery_point, 6);
    rig_restart(&r);
    assert_int_equal(r.log->leo, 6);
    assert_int_equal(r.log->synced, 6);
    assert_int_equal(rig_base_at(&r, 5, 1 << 20), 3);
    rig_deinit(&r);
}

/* BL-14: a first batch over every limit is given whole when the caller may not starve, not at all otherwise. */
static void test_bl14_large_batch(void **state) {
    (void)state;
    for (int restart = 0; restart < 2; restart++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        b.value_size = 2 << 20;
        rig_append(&r, &b);
        b.value_size = 10;
        rig_append(&r, &b);
        rig_flush(&r);
        if (restart) rig_restart(&r); /* nothing of it is checked now: three reads sum it up */
        for (int memory = 0; memory < 2; memory++) {
            struct rig_bytes x = rig_read_full(&r, 0, 2, 1024, true, memory, NULL);
            assert_int_equal(rig_first(&x).base_offset, 0);
            assert_int_equal(x.n, rig_first(&x).length + KW_BATCH_OVERHEAD);
            free(x.p);
            x = rig_read_full(&r, 0, 2, 1024, false, memory, NULL);
            assert_int_equal(x.err, KW_OK);
            assert_int_equal(x.n, 0);
            free(x.p);
        }
        rig_deinit(&r);
    }
}

/* BL-15: the first offset whose timestamp is at or after the one asked, below the limit. */
static void test_bl15_times(void **state) {
    (void)state;
    static const int64_t ask[] = {1, 2, 3, 8, 9}, want[] = {0, 0, 1, 3, -1}, at[] = {2, 2, 4, 8, -1};
    for (int one_batch = 0; one_batch < 2; one_batch++)
        for (int restart = 0; restart < 2; restart++) {
            struct rig r;
            rig_init(&r, 1, NULL);
            r.config.segment_bytes = one_batch ? 1 << 20 : 300;
            rig_open(&r);
            assert_int_equal(rig_find_time(&r, 0, 0).offset, -1);
            assert_int_equal(rig_find_time(&r, 0, 0).found_timestamp, -1);
            assert_int_equal(rig_find_time(&r, KB_TS_MAX, 0).offset, -1);
            struct rig_batch b = RIG_BATCH;
            b.timestamp = 2;
            b.timestamp_step = 2;
            b.leader_epoch = 4;
            b.count = one_batch ? 4 : 1;
            for (int i = 0; i < (one_batch ? 1 : 4); i++, b.timestamp += 2) rig_append(&r, &b);
            rig_flush(&r);
            if (restart) rig_restart(&r);
            for (size_t i = 0; i < KW_COUNTOF(ask); i++) {
                struct kb_find_time f = rig_find_time(&r, ask[i], 4);
                assert_int_equal(f.err, KW_OK);
                assert_int_equal(f.offset, want[i]);
                assert_int_equal(f.found_timestamp, at[i]);
                if (f.offset >= 0) assert_int_equal(f.leader_epoch, 4);
            }
            assert_int_equal(rig_find_time(&r, 8, 3).offset, -1); /* the stable offset bounds it */
            assert_int_equal(rig_find_time(&r, KB_TS_MAX, 4).offset, 3);
            assert_int_equal(rig_find_time(&r, KB_TS_MAX, 4).found_timestamp, 8);
            assert_int_equal(kb_log_raise_start(r.log, 2, 4, r.now), KW_OK);
            rig_idle(&r);
            assert_int_equal(rig_find_time(&r, 1, 4).offset, 2);
            rig_deinit(&r);
        }
}

/* Rolls: by size, by the records' time, by a full index; a segment is never empty in between. */
static void test_roll(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 1, NULL);
    r.config.segment_ms = 1000;
    rig_open(&r);
    struct rig_batch b = RIG_BATCH;
    rig_append(&r, &b);
    b.timestamp += 1000;
    rig_append(&r, &b);
    assert_int_equal(kb_log_segment_count(r.log), 1);
    b.timestamp += 1;
    rig_append(&r, &b);
    assert_int_equal(kb_log_segment_count(r.log), 2);
    r.config.segment_bytes = 100; /* every batch is larger: one a segment */
    rig_append(&r, &b);
    rig_append(&r, &b);
    assert_int_equal(kb_log_segment_count(r.log), 4);
    rig_flush(&r);
    rig_restart(&r);
    assert_int_equal(kb_log_segment_count(r.log), 4);
    assert_int_equal(r.log->leo, 5);
    rig_deinit(&r);
}

/* A full disk: what is written stays, what is not is refused and does not come back; the log takes appends again when there is room. */
static void test_disk_full(void **state) {
    (void)state;
    for (int64_t at = 0; at < 12; at++) {
        struct rig r;
        rig_init(&r, (uint64_t)at, NULL);
        r.config.segment_bytes = 1500;
        rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        b.pid = 3;
        b.epoch = 0;
        b.value_size = 400;
        b.seq = 0;
        rig_append(&r, &b);
        rig_flush(&r);
        sim_disk_faults(r.disk)->enospc_at = at;
        for (int i = 1; i < 9; i++) {
            b.seq = i;
            rig_append(&r, &b);
            kb_log_flush(r.log, r.now);
        }
        rig_idle(&r);
        assert_false(r.log->poisoned);
        assert_int_equal(r.log->leo, r.log->written);
        struct kb_pid_batch dup;
        struct kw_batch_header h = {.producer_id = 3, .base_sequence = (int32_t)r.log->leo, .record_count = 1};
        assert_int_equal(kb_pid_check(r.log->pids, &h, &dup), KB_PID_APPEND); /* the producer goes on where the log ends */
        if (r.log->leo < 9) {
            assert_int_equal(r.cut_back, 1);
            assert_true(r.log->read_only);
            assert_non_null(strstr(r.lines, "no space left"));
        }
        int64_t leo = r.log->leo;
        sim_disk_faults(r.disk)->enospc_at = -1;
        b.seq = (int32_t)leo;
        assert_int_equal(rig_append(&r, &b), leo);
        rig_flush(&r);
        assert_int_equal(r.log->written, leo + 1);
        assert_false(r.log->read_only);
        rig_kill(&r, false);
        rig_open(&r);
        assert_int_equal(r.log->leo, leo + 1);
        assert_int_equal(r.log->start, 0);
        rig_read_all(&r, 100);
        rig_deinit(&r);
    }
}

/* EIO on a write, or a failed fsync, poisons the log for good: never acknowledged, nothing retried, and it says so. Invariant 15. */
static void test_failing_disk(void **state) {
    (void)state;
    for (int what = 0; what < 3; what++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        rig_append(&r, &b);
        rig_sync(&r);
        int64_t written = r.log->written;
        if (what == 0) sim_disk_faults(r.disk)->eio_write_at = 0;
        if (what == 1) sim_disk_faults(r.disk)->eio_sync_at = 0;
        rig_append(&r, &b);
        rig_flush(&r);
        if (what == 1) {
            assert_int_equal(kb_log_sync(r.log), KW_OK);
            rig_idle(&r);
            assert_int_equal(r.log->synced, 1);
            assert_int_equal(kb_log_sync(r.log), KW_EIO);
        }
        if (what == 2) {
            rig_drop(&r);
            rig_open(&r);
            sim_disk_faults(r.disk)->eio_read_at = 0;
            struct rig_bytes x = rig_read(&r, 0, 100);
            /* recovery had checked it all: served from the file */
            free(x.p);
            sim_disk_faults(r.disk)->eio_read_at = 0;
            x = rig_read_full(&r, 0, 2, 1000, true, true, NULL);
            assert_int_equal(x.err, KW_EIO);
            free(x.p);
        }
        assert_true(r.log->poisoned);
        assert_int_equal(r.failed, 1);
        assert_true(r.log->failure[0] != 0);
        if (what == 0) assert_int_equal(r.log->written, written);
        struct kb_log_append a;
        assert_int_equal(rig_try_append(&r, &b, &a), KW_EIO);
        struct kb_read k = {.log = r.log, .bytes_max = 10};
        assert_int_equal(kb_log_read(&k, r.now), KW_EIO);
        rig_deinit(&r);
    }
}

/* Every allocation may fail: nothing crashes, nothing leaks, nothing is acknowledged that is not there. */
static void test_no_memory(void **state) {
    (void)state;
    for (int64_t n = 0; n < 160; n++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        r.config.segment_bytes = 600;
        kw_alloc_fail_after(n % 80);
        kw_err err = rig_open_start(&r);
        rig_idle(&r);
        kw_alloc_fail_after(-1);
        if (!err && !r.log) assert_int_equal(r.open_err, KW_ENOMEM);
        if (!r.log) rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        b.pid = 8;
        b.epoch = 0;
        int64_t want = 0;
        for (int i = 0; i < 6; i++) {
            b.seq = (int32_t)want;
            b.leader_epoch = i;
            struct kb_log_append a;
            kw_alloc_fail_after(n / 4 + i);
            err = rig_try_append(&r, &b, &a);
            if (!err) assert_int_equal(a.base_offset, want++);
            kb_log_flush(r.log, r.now);
            kw_alloc_fail_after(-1);
            assert_int_equal(r.log->leo, want);
        }
        kw_alloc_fail_after(n / 8);
        rig_flush(&r);
        kw_alloc_fail_after(-1);
        kb_log_housekeep(r.log, r.log->written, r.now);
        rig_sync(&r);
        assert_int_equal(r.log->written, want);
        for (int64_t o = 0; o < want; o++) {
            kw_alloc_fail_after(n % 6);
            struct rig_bytes x = rig_read_full(&r, o, want, 200, true, n % 2, NULL);
            kw_alloc_fail_after(-1);
            if (x.err) assert_int_equal(x.err, KW_ENOMEM);
            else assert_int_equal(rig_first(&x).base_offset, o);
            free(x.p);
            kw_alloc_fail_after(n % 6);
            struct kb_find_time f = rig_find_time(&r, 0, want);
            kw_alloc_fail_after(-1);
            if (f.err) assert_int_equal(f.err, KW_ENOMEM);
            else assert_int_equal(f.offset, 0);
        }
        rig_deinit(&r);
    }
}

/* An allocator with room for so many blocks more. */
static int64_t room;
static void *take(size_t size, void *ctx) { return (void)ctx, room-- > 0 ? malloc(size) : NULL; }
static void *take_again(void *p, size_t size, void *ctx) { return (void)ctx, room-- > 0 ? realloc(p, size) : NULL; }
static void give(void *p, void *ctx) { (void)ctx, free(p); }

/* What found no memory to be written or synced is tried again without another append: a partition's acknowledgement, or its next fetch, waits for it. */
static void test_no_memory_for_a_moment(void **state) {
    (void)state;
    int waited = 0;
    room = INT64_MAX;
    kw_allocator_set(&(struct kw_allocator){take, take_again, give, NULL});
    for (int64_t n = 0; n < 60; n++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        r.config.segment_bytes = 300;
        r.config.flush_on_ack = true;
        rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        int64_t i = 0;
        for (; i < n % 4; i++) rig_append(&r, &b);
        rig_flush(&r);
        rig_append(&r, &b);
        room = n / 4;
        rig_flush(&r);
        rig_advance(&r, 250);
        room = INT64_MAX;
        waited += r.log->synced < r.log->leo;
        assert_int_equal(r.log->leo, i + 1);
        rig_advance(&r, 200);
        rig_advance(&r, 200);
        assert_int_equal(r.log->written, i + 1);
        assert_int_equal(r.log->synced, i + 1);
        rig_deinit(&r);
    }
    assert_true(waited > 10);
}

/* With flush.on.ack no epoch begins before what is in front of it is synced: by that, recovery tells rot from a torn write. (Simulator, cluster seed 541: a
 * follower took batches of three epochs at once; after a loss of power the holes in them were kept as rot.) */
static void test_an_epoch_waits_for_the_sync(void **state) {
    (void)state;
    for (int flush = 0; flush < 2; flush++)
        for (int keep = 0; keep < 3; keep++) { /* 2: the epoch is known before its first record, as a leader's is */
            struct rig r;
            rig_init(&r, 1, NULL);
            r.config.flush_on_ack = flush;
            rig_open(&r);
            struct rig_batch b = RIG_BATCH;
            size_t size;
            uint8_t *p;
            for (int64_t i = 0; i < 4; i++) {
                b.leader_epoch = (int32_t)i / 2;
                if (keep == 1) b.base = i;
                if (keep == 2 && i % 2 == 0) assert_int_equal(kb_epochs_assign(r.log->epochs, b.leader_epoch, i), KW_OK);
                p = rig_build(&b, &size);
                struct kb_log_append a = {.batch = p, .size = size, .leader_epoch = b.leader_epoch, .keep_offsets = keep == 1, .max_timestamp = b.timestamp};
                kw_err err = kb_log_append(r.log, &a, r.now);
                assert_int_equal(err, flush && i == 2 ? KW_EBUSY : KW_OK);
                if (err) {
                    assert_int_equal(r.log->leo, i);
                    assert_int_equal(kb_epochs_latest(r.log->epochs), keep == 2);
                    rig_flush(&r);
                    rig_advance(&r, 100);
                    assert_int_equal(r.log->synced, i);
                    assert_int_equal(kb_log_append(r.log, &a, r.now), KW_OK);
                }
                free(p);
            }
            assert_int_equal(r.log->leo, 4);
            assert_int_equal(kb_epochs_at(r.log->epochs, 2), 1);
            rig_deinit(&r);
        }
}

struct told {
    int64_t from;
    size_t max, memory, file;
    uint8_t bytes[70000];
};

static void read_when_told(void *ctx, struct kb_log *log, struct kb_now now) {
    struct told *t = ctx;
    struct kb_read k = {.log = log, .offset = t->from, .limit = log->written, .bytes_max = t->max, .min_one = true, .done = rig_read_done};
    assert_int_equal(kb_log_read(&k, now), 1);
    assert_int_equal(k.slice_count, 1);
    if (k.slices[0].file) t->file += k.bytes;
    else memcpy(t->bytes + t->memory, k.slices[0].p, k.slices[0].len), t->memory += k.bytes;
    kb_read_release(&k);
}

/* Who waits for what is being written has it without a read of the file, as long as it is little; what is older, or more, comes from the file. */
static void test_fresh_from_memory(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 3, NULL);
    rig_open(&r);
    struct rig_batch b = RIG_BATCH;
    for (int i = 0; i < 3; i++) rig_append(&r, &b);
    rig_flush(&r);
    size_t before = (size_t)r.log->size_bytes, each = before / 3;
    struct told t = {.from = 4, .max = 1 << 20};
    struct kb_log_owner owner = r.log->owner;
    r.log->owner.marks_moved = read_when_told;
    r.log->owner.ctx = &t;
    for (int i = 0; i < 4; i++) rig_append(&r, &b);
    t.max = 3 * each - 1; /* whole ones alone */
    rig_flush(&r);
    assert_int_equal(t.memory, 2 * each); /* from 4 on: two of three */
    assert_int_equal(t.file, 0);
    size_t n;
    uint8_t *file = rig_copy(&r, RIG_DIR "/00000000000000000000.log", &n);
    assert_memory_equal(t.bytes, file + before + each, 2 * each);
    free(file);
    rig_append(&r, &b);
    t.from = 6; /* the one before, too */
    t.max = 1 << 20;
    rig_flush(&r);
    assert_int_equal(t.memory, 2 * each);
    assert_int_equal(t.file, 2 * each);
    t.from = 8;
    for (size_t i = 0; i * each <= 16 << 10; i++) rig_append(&r, &b);
    rig_flush(&r);
    assert_int_equal(t.memory, 2 * each);
    assert_true(t.file > (16 << 10));
    r.log->owner = owner;
    rig_drop(&r);
    rig_deinit(&r);
}

/* A read or lookup given up while it waits is never answered; the log may go while requests are out. */
static void test_cancel(void **state) {
    (void)state;
    for (int steps = 0; steps < 6; steps++) {
        struct rig r;
        rig_init(&r, 1, NULL);
        rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        for (int i = 0; i < 50; i++) rig_append(&r, &b);
        rig_flush(&r);
        rig_restart(&r);
        bool done = false;
        struct kb_read k = {.log = r.log, .offset = 30, .limit = 50, .bytes_max = 5000, .min_one = true, .into_memory = true, .done = rig_read_done,
                            .ctx = &done};
        struct kb_find_time f = {.log = r.log, .timestamp = 5, .limit = 50, .done = rig_found, .ctx = &done};
        assert_int_equal(kb_log_read(&k, r.now), 0);
        assert_int_equal(kb_log_find_time(&f, r.now), 0);
        for (int i = 0; i < steps; i++) rig_step(&r);
        if (done) kb_read_release(&k);
        if (k.priv) kb_read_cancel(&k);
        if (f.priv) kb_find_time_cancel(&f);
        rig_append(&r, &b);
        kb_log_flush(r.log, r.now);
        bool was = done;
        rig_drop(&r);
        assert_int_equal(done, was);
        rig_deinit(&r);
    }
}

/* The folder of a deleted log goes after its delay; appends in flight and pinned readers do not mind. */
static void test_delete(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 1, NULL);
    rig_open(&r);
    struct rig_batch b = RIG_BATCH;
    rig_append(&r, &b);
    rig_flush(&r);
    struct kb_read k = {.log = r.log, .offset = 0, .limit = 1, .bytes_max = 5000, .min_one = true};
    assert_int_equal(kb_log_read(&k, r.now), 1);
    rig_append(&r, &b);
    kb_log_flush(r.log, r.now);
    static const uint8_t id[16] = {0xab, 1, 2};
    assert_int_equal(kb_log_delete(r.log, id, NULL, NULL, r.now), KW_OK);
    r.log = NULL;
    rig_idle(&r);
    char **names;
    size_t n = sim_disk_names(r.disk, "/data", &names), found = 0;
    for (size_t i = 0; i < n; i++) {
        found += strcmp(names[i], "t-0.ab010200000000000000000000000000-delete") == 0;
        assert_string_not_equal(names[i], "t-0");
        free(names[i]);
    }
    free(names);
    assert_int_equal(found, 1);
    uint8_t byte;
    assert_int_equal(sim_disk_pread(r.disk, k.slices[0].file, 0, &byte, 1), 1);
    kb_read_release(&k);
    rig_advance(&r, 60001);
    n = sim_disk_names(r.disk, "/data", &names);
    assert_int_equal(n, 1); /* .keep */
    free(names[0]);
    free(names);
    rig_open(&r);
    assert_int_equal(r.log->leo, 0);
    rig_deinit(&r);
}

/* The first request of a kind comes back with this error; the others go on as they do. */
static void refuse_one(struct rig *r, enum kb_disk_op op, enum kb_disk_err err) {
    struct kw_list held;
    struct kb_disk_req *q, *found = NULL;
    kw_list_init(&held);
    while ((q = kb_disk_take(&r->queue))) {
        if (!found && q->op == op) found = q;
        else kw_list_push(&held, &q->link);
    }
    for (struct kw_list *l; (l = kw_list_shift(&held));) kw_list_push(&r->queue.queue, l);
    assert_non_null(found);
    found->err = err;
    kb_disk_complete(&r->queue, found, r->now);
}

/* No descriptor is left: appends are refused and the log stays; what could not be tried is tried again. */
static void test_no_descriptor(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 1, NULL);
    rig_open(&r);
    struct rig_batch b = RIG_BATCH;
    rig_append(&r, &b);
    kb_log_flush(r.log, r.now);
    refuse_one(&r, KB_DISK_OPEN, KB_DISK_ENOMEM);
    rig_idle(&r);
    assert_false(r.log->poisoned);
    assert_int_equal(r.cut_back, 1);
    assert_int_equal(r.log->leo, 0);
    assert_non_null(strstr(r.lines, "no descriptor"));
    rig_append(&r, &b);
    rig_flush(&r);
    assert_int_equal(r.log->written, r.log->leo);
    assert_true(r.log->leo > 0);
    assert_int_equal(kb_log_sync(r.log), KW_OK);
    refuse_one(&r, KB_DISK_SYNC_DIR, KB_DISK_ENOMEM);
    assert_false(r.log->poisoned);
    assert_int_equal(r.log->synced, 0);
    rig_idle(&r);
    rig_advance(&r, 150);
    assert_int_equal(r.log->synced, r.log->leo);
    rig_deinit(&r);
}

/* A second segment waits until the folder's names are durable. They are made so early, while there is little else to write out; it moves no mark. */
static void test_names_of_a_new_log(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 1, NULL);
    r.config.segment_bytes = 1 << 30;
    rig_open(&r);
    struct rig_batch b = RIG_BATCH;
    b.value_size = 1 << 20;
    for (int i = 0; i < 17; i++) {
        (void)rig_append(&r, &b);
        rig_flush(&r);
        if (i < 15) assert_true(r.log->priv->young);
    }
    assert_false(r.log->priv->young);
    assert_int_equal(r.log->synced, 0);
    rig_deinit(&r);
}

/* A cut into a gap that compaction has left: the log ends with its last batch, in front of the gap, and what memory, a snapshot or the epochs know from
 * inside of it goes as it would with a restart. */
static void test_truncate_into_a_gap(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct rig r;
        struct kb_pid_state pids;
        struct kw_out out;
        bool loaded = how & 1, snapshot = how & 2;
        rig_init(&r, 1, NULL);
        rig_open(&r);
        struct rig_batch b = RIG_BATCH;
        b.epoch = 0;
        for (int i = 0; i < 3; i++) {
            b.pid = i < 2 || loaded ? 7 + i / 2 : -1; /* loaded: the cut takes a producer's batch, and so reads them all anew */
            b.seq = b.pid < 0 ? -1 : i % 2;
            b.base = (int64_t[]){0, 1, 5}[i];
            rig_append(&r, &b);
        }
        rig_sync(&r);
        rig_stop(&r);
        kb_pid_state_init(&pids);
        kw_out_init(&out);
        struct kw_batch_header h = {.producer_id = 7, .producer_epoch = 0, .base_sequence = 0, .last_offset_delta = 0, .record_count = 1};
        for (int i = 0; i < 3; i++) {
            h.base_sequence = i;
            assert_int_equal(kb_pid_update(&pids, &h, i, i, 1700000000000), KW_OK);
        }
        assert_int_equal(kb_pid_encode(&pids, &out), KW_OK);
        sim_disk_remove(r.disk, RIG_DIR "/00000000000000000006.snapshot");
        if (snapshot) sim_disk_poke(r.disk, RIG_DIR "/00000000000000000004.snapshot", out.p, out.len); /* what stood at offset 2 is gone since */
        kw_out_deinit(&out);
        kb_pid_state_deinit(&pids);
        sim_disk_poke(r.disk, RIG_DIR "/leader-epoch-checkpoint", "0\n2\n0 0\n1 3\n", 12);
        r.clean = true;
        rig_open(&r);
        assert_int_equal(r.log->leo, 6);
        rig_truncate(&r, 4);
        for (int pass = 0; pass < 2; pass++) {
            assert_int_equal(r.log->leo, 2);
            assert_int_equal(kb_epochs_latest(r.log->epochs), 0);
            assert_false(rig_exists(&r, RIG_DIR "/00000000000000000004.snapshot"));
            assert_null(kb_pid_get(r.log->pids, 8));
            const struct kb_pid_entry *e = kb_pid_get(r.log->pids, 7);
            assert_non_null(e);
            assert_int_equal(e->batch_count, 2);
            assert_int_equal(e->batches[1].last_offset, 1);
            if (!pass) rig_restart(&r);
        }
        rig_deinit(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_of_a_new_log),
        cmocka_unit_test(test_open_append_read), cmocka_unit_test(test_bl14_large_batch), cmocka_unit_test(test_bl15_times), cmocka_unit_test(test_roll),
        cmocka_unit_test(test_disk_full),        cmocka_unit_test(test_failing_disk),     cmocka_unit_test(test_no_memory),  cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_fresh_from_memory),
        cmocka_unit_test(test_delete),           cmocka_unit_test(test_no_descriptor),    cmocka_unit_test(test_no_memory_for_a_moment),
        cmocka_unit_test(test_an_epoch_waits_for_the_sync),
        cmocka_unit_test(test_truncate_into_a_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
