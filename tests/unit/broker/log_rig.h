/* log_rig.h - one log on the simulated disk, in virtual time, for the log's tests: build batches, append, read, crash, compare. */
#ifndef LOG_RIG_H
#define LOG_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "log/epochs.h"
#include "log/log.h"
#include "log/pid_state.h"
#include "sim_disk.h"
#include "wire/compress.h"

#define RIG_DIR "/data/t-0"

struct rig {
    struct sim_disk *disk;
    struct kb_disk queue;
    struct kw_timers timers;
    struct kw_compressor *compressor;
    struct kb_logger logger;
    struct kb_log_env env;
    struct kb_log_config config;
    struct kb_log *log;
    struct kb_now now;
    bool clean, whole, killed;
    enum kb_others others;
    int64_t start_checkpoint, recovery_point, committed;
    kw_err open_err, done_err;
    bool opened, done;
    int moved, failed, cut_back;
    char lines[8192]; /* what the log said at KB_WARN and above */
};

static inline void rig_say(void *ctx, enum kb_level level, const char *text) {
    struct rig *r = ctx;
    if (getenv("RIG_LOG")) fprintf(stderr, "[%d] %s\n", (int)level, text);
    size_t n = strlen(r->lines);
    if (level >= KB_WARN) snprintf(r->lines + n, sizeof(r->lines) - n, "%s\n", text);
}
static inline void rig_marks_moved(void *ctx, struct kb_log *log, struct kb_now now) {
    (void)now;
    struct rig *r = ctx;
    r->moved++;
    if (log->synced > log->written || log->written > log->leo || log->start > log->leo)
        fail_msg("start %lld synced %lld written %lld leo %lld", (long long)log->start, (long long)log->synced, (long long)log->written, (long long)log->leo);
}
static inline void rig_failed(void *ctx, struct kb_log *log, struct kb_now now) {
    (void)log, (void)now;
    ((struct rig *)ctx)->failed++;
}
static inline void rig_cut_back(void *ctx, struct kb_log *log, struct kb_now now) {
    (void)now;
    assert_int_equal(log->leo, log->written);
    ((struct rig *)ctx)->cut_back++;
}

static inline void rig_init(struct rig *r, uint64_t seed, const struct sim_disk_options *o) {
    memset(r, 0, sizeof(*r));
    r->disk = sim_disk_new(seed, o);
    sim_disk_poke(r->disk, "/data/.keep", "", 0);
    kb_disk_init(&r->queue);
    kw_timers_init(&r->timers);
    r->compressor = kw_compressor_new();
    r->logger = (struct kb_logger){rig_say, r, KB_INFO};
    kb_log_env_init(&r->env, &r->queue, &r->timers, r->compressor, &r->logger);
    r->config = (struct kb_log_config){.segment_bytes = 1 << 30, .segment_ms = 7LL * 86400000, .index_interval_bytes = 4096,
                                       .segment_index_bytes = 10 << 20,
                                       .retention_ms = -1, .retention_bytes = -1, .file_delete_delay_ms = 60000, .delete_policy = true,
                                       .flush_messages = INT64_MAX, .flush_ms = -1, .producer_expiration_ms = 86400000};
    r->now = (struct kb_now){1000000, 1700000000000};
    r->start_checkpoint = r->recovery_point = -1;
}

/* One event: something that is due, else the clock jumps to what comes next. false: nothing is left to happen. */
static inline bool rig_step(struct rig *r) {
    sim_disk_take(r->disk, &r->queue, r->now);
    struct kb_disk_req *q = sim_disk_pop(r->disk, r->now);
    if (q) {
        kb_disk_complete(&r->queue, q, r->now);
        sim_disk_take(r->disk, &r->queue, r->now);
        return true;
    }
    int64_t next = sim_disk_next(r->disk), timer = kw_timers_next(&r->timers);
    if (timer <= r->now.mono_us) {
        kw_timers_run(&r->timers, r->now.mono_us);
        return true;
    }
    if (next == INT64_MAX) return false;
    int64_t to = next > r->now.mono_us ? next : r->now.mono_us + 1;
    r->now.wall_ms += (to - r->now.mono_us) / 1000 + 1;
    r->now.mono_us = to;
    return true;
}
static inline void rig_idle(struct rig *r) {
    for (int i = 0; rig_step(r); i++) assert_true(i < 1000000); /* a busy loop is a bug */
}
static inline void rig_advance(struct rig *r, int64_t ms) {
    r->now.mono_us += ms * 1000;
    r->now.wall_ms += ms;
    kw_timers_run(&r->timers, r->now.mono_us);
    rig_idle(r);
}

static inline void rig_opened(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    (void)now;
    struct rig *r = ctx;
    r->log = log;
    r->open_err = err;
    r->opened = true;
}
static inline kw_err rig_open_start(struct rig *r) {
    struct kb_log_open o = {.env = &r->env, .config = &r->config, .owner = {rig_marks_moved, rig_failed, rig_cut_back, r}, .dir = RIG_DIR, .create = true,
                            .clean = r->clean, .whole = r->whole, .start_checkpoint = r->start_checkpoint, .recovery_point = r->recovery_point,
                            .others = r->others, .killed = r->killed, .committed = r->committed, .done = rig_opened, .ctx = r};
    r->opened = false;
    r->open_err = KW_OK;
    r->log = NULL;
    kw_err err = kb_log_open(&o);
    r->clean = false; /* the marker goes before loading begins (BL-02) */
    return err;
}
static inline void rig_open(struct rig *r) {
    assert_int_equal(rig_open_start(r), KW_OK);
    rig_idle(r);
    assert_true(r->opened);
    assert_int_equal(r->open_err, KW_OK);
    assert_non_null(r->log);
}
static inline void rig_done(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    (void)log, (void)now;
    struct rig *r = ctx;
    assert_false(r->done);
    r->done = true;
    r->done_err = err;
}
static inline void rig_drop(struct rig *r) { /* frees the log; what is in flight runs out */
    if (r->log) kb_log_free(r->log);
    r->log = NULL;
    rig_idle(r);
}
/* As the node does: stop, then remember what its checkpoint files and marker would say. */
static inline void rig_stop(struct rig *r) {
    r->done = false;
    assert_int_equal(kb_log_shutdown(r->log, rig_done, r, r->now), KW_OK);
    rig_idle(r);
    assert_true(r->done);
    assert_int_equal(r->done_err, KW_OK);
    assert_int_equal(r->log->synced, r->log->leo);
    r->recovery_point = r->log->recovery_point;
    r->start_checkpoint = r->log->start;
    r->clean = true;
    rig_drop(r);
}
static inline void rig_restart(struct rig *r) {
    rig_stop(r);
    rig_open(r);
}
/* The start after an unclean stop, with this for the recovery point that the checkpoint file names. */
static inline void rig_recover(struct rig *r, int64_t recovery_point) {
    r->clean = false;
    r->recovery_point = recovery_point;
    rig_open(r);
}
static inline void rig_kill(struct rig *r, bool power) {
    if (r->log) r->log->owner = (struct kb_log_owner){0}; /* nobody is there to hear of it */
    if (power) sim_disk_power_loss(r->disk, r->now);
    else sim_disk_kill9(r->disk, r->now);
    rig_idle(r);
    rig_drop(r);
    kb_log_env_deinit(&r->env);
    sim_disk_restart(r->disk);
    kb_log_env_init(&r->env, &r->queue, &r->timers, r->compressor, &r->logger);
    r->clean = false;
}
static inline void rig_deinit(struct rig *r) {
    rig_drop(r);
    kb_log_env_deinit(&r->env);
    assert_int_equal(r->queue.outstanding, 0);
    assert_int_equal(r->queue.queued_append_bytes, 0);
    assert_int_equal(r->env.open_files, 0);
    assert_int_equal(r->env.index_memory_used, 0);
    kw_timers_deinit(&r->timers);
    kw_compressor_free(r->compressor);
    sim_disk_free(r->disk);
}

/* ---- Batches ---- */

struct rig_batch {
    int32_t count;          /* records; offsets 0..count-1 */
    size_t value_size;      /* of each */
    uint8_t fill;
    int64_t timestamp, timestamp_step;
    int64_t pid;            /* -1 none */
    int16_t epoch;
    int32_t seq;
    int32_t leader_epoch;
    int64_t base;           /* -1: as leader */
};
#define RIG_BATCH {.count = 1, .value_size = 100, .fill = 'x', .timestamp = 1700000000000, .timestamp_step = 1, .pid = -1, .epoch = -1, .seq = -1, .base = -1}

static inline uint8_t *rig_build(const struct rig_batch *b, size_t *size) {
    uint8_t *value = malloc(b->value_size + 1);
    memset(value, b->fill, b->value_size);
    size_t cap = KW_BATCH_HEADER_SIZE + (size_t)b->count * (b->value_size + 32);
    uint8_t *p = calloc(1, cap), *at = p + KW_BATCH_HEADER_SIZE;
    for (int32_t i = 0; i < b->count; i++) {
        struct kw_record_in rec = {.timestamp_delta = i * b->timestamp_step, .offset_delta = i, .key = {NULL, -1}, .value = {value, (int32_t)b->value_size}};
        at = kw_record_write(at, &rec, kw_record_size(&rec));
    }
    *size = (size_t)(at - p);
    struct kw_batch_header h = {.base_offset = b->base >= 0 ? b->base : 0, .length = (int32_t)(*size - KW_BATCH_OVERHEAD),
                                .leader_epoch = b->leader_epoch, .magic = 2, .last_offset_delta = b->count - 1, .base_timestamp = b->timestamp,
                                .max_timestamp = b->timestamp + (b->count - 1) * KW_MAX(b->timestamp_step, 0),
                                .producer_id = b->pid, .producer_epoch = b->epoch, .base_sequence = b->seq, .record_count = b->count};
    kw_batch_write_header(p, &h);
    kw_batch_crc_set(p, *size);
    free(value);
    return p;
}

static inline kw_err rig_try_append(struct rig *r, const struct rig_batch *b, struct kb_log_append *a) {
    size_t size;
    uint8_t *p = rig_build(b, &size);
    struct kw_blk *blk = kw_blk_new(size);
    if (!blk) {
        free(p);
        return KW_ENOMEM;
    }
    memcpy(blk->data, p, size);
    free(p);
    *a = (struct kb_log_append){.blk = blk, .batch = blk->data, .size = size, .leader_epoch = b->leader_epoch, .keep_offsets = b->base >= 0,
                                .max_timestamp = b->timestamp + (b->count - 1) * KW_MAX(b->timestamp_step, 0)};
    kw_err err = kb_log_append(r->log, a, r->now);
    kw_blk_unref(blk);
    return err;
}
static inline int64_t rig_append(struct rig *r, const struct rig_batch *b) {
    struct kb_log_append a;
    assert_int_equal(rig_try_append(r, b, &a), KW_OK);
    return a.base_offset;
}
static inline void rig_flush(struct rig *r) {
    kb_log_flush(r->log, r->now);
    rig_idle(r);
}
static inline void rig_sync(struct rig *r) {
    rig_flush(r);
    assert_int_equal(kb_log_sync(r->log), KW_OK);
    rig_idle(r);
    assert_int_equal(r->log->synced, r->log->leo);
}
/* So many batches of one record of this size, each written before the next is appended. */
static inline void rig_put(struct rig *r, int n, size_t size) {
    struct rig_batch b = RIG_BATCH;
    b.value_size = size;
    for (int i = 0; i < n; i++) {
        b.timestamp += i * 10;
        b.fill = (uint8_t)('a' + i % 26);
        rig_append(r, &b);
        kb_log_flush(r->log, r->now);
    }
    rig_idle(r);
}
static inline void rig_truncate(struct rig *r, int64_t to) {
    r->done = false;
    assert_int_equal(kb_log_truncate(r->log, to, rig_done, r, r->now), KW_OK);
    rig_idle(r);
    assert_true(r->done);
    assert_int_equal(r->done_err, KW_OK);
}

/* ---- Files ---- */

static inline bool rig_exists(struct rig *r, const char *path) {
    size_t n;
    return sim_disk_peek(r->disk, path, &n) != NULL;
}
static inline size_t rig_size(struct rig *r, const char *path) {
    size_t n;
    assert_non_null(sim_disk_peek(r->disk, path, &n));
    return n;
}
static inline uint8_t *rig_copy(struct rig *r, const char *path, size_t *n) {
    const uint8_t *p = sim_disk_peek(r->disk, path, n);
    assert_non_null(p);
    uint8_t *c = malloc(*n + 1);
    memcpy(c, p, *n);
    return c;
}

/* ---- Reading ---- */

struct rig_bytes {
    uint8_t *p;
    size_t n;
    kw_err err;
    int64_t next;
};
static inline void rig_read_done(struct kb_read *k, struct kb_now now) {
    (void)now;
    *(bool *)k->ctx = true;
}
/* The bytes that a fetch would send; frees nothing of the caller's. */
static inline struct rig_bytes rig_read_full(struct rig *r, int64_t offset, int64_t limit, size_t max, bool min_one, bool memory, bool *async) {
    bool done = false;
    struct kb_read k = {.log = r->log, .offset = offset, .limit = limit, .bytes_max = max, .min_one = min_one, .into_memory = memory,
                        .done = rig_read_done, .ctx = &done};
    int32_t x = kb_log_read(&k, r->now);
    if (async) *async = x == 0;
    if (x == 0) {
        rig_idle(r);
        assert_true(done);
    }
    struct rig_bytes b = {calloc(1, k.bytes + 1), k.bytes, x < 0 ? x : k.err, k.next_offset_hint};
    size_t at = 0;
    for (size_t i = 0; i < k.slice_count; i++) {
        if (k.slices[i].file) assert_int_equal(sim_disk_pread(r->disk, k.slices[i].file, k.slices[i].offset, b.p + at, k.slices[i].len), k.slices[i].len);
        else memcpy(b.p + at, k.slices[i].p, k.slices[i].len);
        at += k.slices[i].len;
    }
    assert_int_equal(at, k.bytes);
    kb_read_release(&k);
    rig_idle(r);
    return b;
}
static inline struct rig_bytes rig_read(struct rig *r, int64_t offset, size_t max) { return rig_read_full(r, offset, r->log->written, max, true, false, NULL); }

/* Checks the first batch of an answer and returns its head. */
static inline struct kw_batch_header rig_first(const struct rig_bytes *b) {
    struct kw_batch_header h;
    assert_int_equal(b->err, KW_OK);
    assert_true(b->n >= KW_BATCH_HEADER_SIZE);
    assert_int_equal(kw_batch_parse(b->p, b->n, &h), KW_OK);
    assert_true((size_t)h.length + KW_BATCH_OVERHEAD <= b->n);
    assert_true(kw_batch_crc_ok(b->p, (size_t)h.length + KW_BATCH_OVERHEAD));
    return h;
}

/* Where the batch begins that a read at this offset gives. */
static inline int64_t rig_base_at(struct rig *r, int64_t offset, size_t max) {
    struct rig_bytes b = rig_read(r, offset, max);
    struct kw_batch_header h = rig_first(&b);
    free(b.p);
    return h.base_offset;
}
/* Every offset from the start on is readable, each batch whole; `max` bytes a read. */
static inline void rig_read_all(struct rig *r, size_t max) {
    for (int64_t at = r->log->start; at < r->log->leo;) {
        struct rig_bytes b = rig_read(r, at, max);
        struct kw_batch_header h = rig_first(&b);
        assert_int_equal(h.base_offset, at);
        at = h.base_offset + h.last_offset_delta + 1;
        free(b.p);
    }
}

static inline void rig_found(struct kb_find_time *f, struct kb_now now) {
    (void)now;
    *(bool *)f->ctx = true;
}
static inline struct kb_find_time rig_find_time(struct rig *r, int64_t timestamp, int64_t limit) {
    bool done = false;
    struct kb_find_time f = {.log = r->log, .timestamp = timestamp, .limit = limit, .done = rig_found, .ctx = &done};
    int32_t x = kb_log_find_time(&f, r->now);
    if (x == 0) {
        rig_idle(r);
        assert_true(done);
    }
    if (x < 0) f.err = x;
    return f;
}

#endif
