/* fuzz_log_recovery.c - a partition's folder made by the input: segments, indexes, producer snapshots, leader epochs, leftovers of crashes; it
 * is opened, read from end to end, appended to, searched by time, cut, stopped and opened again.
 *
 * Whatever lies there: it is opened or refused with a reason; offsets rise, and no batch is served that fails its CRC; what was appended is
 * read back; marks keep their order; what was there at the stop is there at the next start.
 */
#include "kit/gen.h"
#include "kit/scan.h"
#include "unit/broker/log_rig.h"

#include "base/crc32c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const size_t fuzz_head_size;
const size_t fuzz_head_size = 3;

enum { OPS_MAX = 60, FILE_MAX = 40000, BATCHES_MAX = 64, READS_MAX = 400 };
enum { OPT_CLEAN = 1, OPT_MEMORY = 2, OPT_SMALL_SEGMENTS = 4, OPT_FLUSH = 8, OPT_SLOW_DISK = 16, OPT_RETENTION = 32, OPT_POINTS = 64 };
enum { DO_TRUNCATE = 1, DO_RAISE = 2, DO_HOUSEKEEP = 4, DO_CRASH = 8, DO_POWER_LOSS = 16, DO_APPEND_FIRST = 32 };

struct run {
    struct rig r;
    struct kw_arena arena;
    struct fuzz_records records;
    int64_t base; /* of the last segment made */
    int64_t starts[BATCHES_MAX][2]; /* offset and position of its batches */
    size_t start_count;
    bool memory, corrupt; /* corrupt: something is there, or may be, that no start would leave: it is kept, or vouched for */
};

/* ---- Files ---- */

static void put(struct run *x, const char *name, const void *p, size_t n) {
    char path[200];
    snprintf(path, sizeof path, RIG_DIR "/%s", name);
    sim_disk_poke(x->r.disk, path, p, n);
}
static void put_numbered(struct run *x, int64_t base, const char *suffix, const void *p, size_t n) {
    char name[80];
    snprintf(name, sizeof name, "%020lld%s", (long long)base, suffix);
    put(x, name, p, n);
}
static void put_edited(struct run *x, int64_t base, const char *suffix, struct kw_out *out, struct fuzz_src *s) {
    if (kw_out_reserve(out, 16)) out->len -= 16;
    if (out->len) out->len = fuzz_edit(s, out->p, out->len);
    if (base >= 0) put_numbered(x, base, suffix, out->p, out->len);
    else put(x, suffix, out->p, out->len);
    kw_out_deinit(out);
}

static int64_t behind(int64_t base, uint64_t by) {
    return (int64_t)(((uint64_t)base + by) & INT64_MAX);
}

static int64_t draw_base(struct run *x, uint8_t arg, struct fuzz_src *s) {
    switch (arg & 7) {
    case 6: return (int64_t)(fuzz_bytes(s, 8) & INT64_MAX);
    case 5: return fuzz_u8(s);
    case 4: return behind(x->records.base_offset, INT32_MAX);
    case 3: return behind(x->records.base_offset, fuzz_u8(s));
    default: return x->records.base_offset;
    }
}

static void note_starts(struct run *x, const uint8_t *p, size_t n) {
    struct kw_entry e;
    x->start_count = 0;
    for (const uint8_t *q = p; x->start_count < BATCHES_MAX && kw_entry_next(&q, p + n, &e) == 1; x->start_count++) {
        x->starts[x->start_count][0] = (int64_t)kw_load64(e.p);
        x->starts[x->start_count][1] = e.p - p;
    }
}

/* arg: 0-2 where it begins, 3 old formats may come, 4-5 how much more, 6-7 leader epoch. */
static void make_segment(struct run *x, struct fuzz_op *op, const char *suffix) {
    struct kw_out out;
    kw_out_init(&out);
    x->base = KW_MAX(draw_base(x, op->arg, &op->src), 0);
    x->records.base_offset = x->base;
    x->records.v2_only = !(op->arg & 8);
    x->records.leader_epoch = op->arg >> 6;
    for (int i = 0; i <= (op->arg >> 4 & 3) && out.len < FILE_MAX; i++) {
        if (x->records.base_offset > INT64_MAX - 1000) break;
        struct kw_bytes b = fuzz_records_make(&op->src, &x->records, &x->arena);
        if (b.len > 0) kw_out_bytes(&out, b.p, (size_t)b.len);
    }
    if (kw_out_reserve(&out, 16)) out.len -= 16;
    if (out.len) out.len = fuzz_edit(&op->src, out.p, out.len);
    note_starts(x, out.p, out.len);
    put_numbered(x, x->base, suffix, out.p, out.len);
    kw_out_deinit(&out);
    kw_arena_reset(&x->arena);
}

static void make_index(struct run *x, struct fuzz_op *op, bool times) {
    struct kw_out out;
    kw_out_init(&out);
    for (size_t i = op->arg & 1; i < x->start_count; i++) {
        int64_t relative = x->starts[i][0] - x->base + (op->arg & 2 ? (int8_t)fuzz_u8(&op->src) : 0);
        if (times) kw_out_i64(&out, 1700000000000 + (int64_t)i * 10 + (op->arg & 4 ? (int8_t)fuzz_u8(&op->src) : 0));
        kw_out_i32(&out, (int32_t)relative);
        if (!times) kw_out_i32(&out, (int32_t)x->starts[i][1] + (op->arg & 4 ? (int8_t)fuzz_u8(&op->src) : 0));
    }
    if (op->arg & 8) /* as a preallocated file that nobody cut */
        for (int i = 0; i < 24; i++) kw_out_i8(&out, 0);
    put_edited(x, x->base, times ? ".timeindex" : ".index", &out, &op->src);
}

static void make_snapshot(struct run *x, struct fuzz_op *op) {
    struct kb_pid_state st;
    struct kw_out out;
    kw_out_init(&out);
    kb_pid_state_init(&st);
    for (int i = 0; i <= (op->arg & 3); i++) {
        uint8_t c = fuzz_u8(&op->src);
        struct kw_batch_header h = {.producer_id = c & 3, .producer_epoch = c >> 2 & 1, .base_sequence = c >> 3, .last_offset_delta = c & 7,
                                    .record_count = (c & 7) + 1, .max_timestamp = 1700000000000, .magic = 2};
        if (kb_pid_update(&st, &h, i * 8, i * 8 + (c & 7), 1700000000000)) abort();
    }
    if (kb_pid_encode(&st, &out)) abort();
    kb_pid_state_deinit(&st);
    if (kw_out_reserve(&out, 16)) out.len -= 16;
    out.len = fuzz_edit(&op->src, out.p, out.len);
    if ((op->arg & 8) && out.len > 6) kw_store32(out.p + 2, kw_crc32c(0, out.p + 6, out.len - 6));
    put_numbered(x, op->arg & 4 ? x->records.base_offset : x->base, ".snapshot", out.p, out.len);
    kw_out_deinit(&out);
}

static void make_epochs(struct run *x, struct fuzz_op *op) {
    struct kw_out out;
    char line[64];
    int count = op->arg & 7, epoch = 0;
    long long start = 0;
    kw_out_init(&out);
    kw_out_bytes(&out, line, (size_t)snprintf(line, sizeof line, "%d\n%d\n", op->arg >> 6 & 1, count));
    for (int i = 0; i < count; i++) {
        kw_out_bytes(&out, line, (size_t)snprintf(line, sizeof line, "%d %lld\n", epoch, start));
        epoch += (int)fuzz_u8(&op->src) % 4;
        start += (int8_t)fuzz_u8(&op->src);
    }
    put_edited(x, -1, "leader-epoch-checkpoint", &out, &op->src);
}

static void make_other(struct run *x, struct fuzz_op *op) {
    static const char *const names[] = {"partition.metadata", "leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp", "junk",
                                        "00000000000000000000.log.deleted", "99999999999999999999.log", "1.log",
                                        "00000000000000000005.index", "00000000000000000000.txnindex",
                                        "00000000000000000010.snapshot", "00000000000000000000.kbroker-summary"};
    put(x, names[op->arg % KW_COUNTOF(names)], op->src.p, fuzz_left(&op->src));
}

static void run_op(struct run *x, struct fuzz_op *op) {
    static const char *const swaps[] = {".log.swap", ".log.cleaned", ".log.deleted", ".log.tmp"};
    switch (op->kind & 15) {
    case 5:
    case 6:
        make_index(x, op, false);
        break;
    case 7:
    case 8:
        make_index(x, op, true);
        break;
    case 9:
    case 10:
        make_snapshot(x, op);
        break;
    case 11:
    case 12:
        make_epochs(x, op);
        break;
    case 13:
        make_segment(x, op, swaps[op->kind >> 4 & 3]);
        break;
    case 14:
        make_other(x, op);
        break;
    default:
        make_segment(x, op, ".log");
    }
}

/* ---- What holds of an open log ---- */

static void check_marks(const struct kb_log *log) {
    FUZZ_CHECK(log->start >= 0 && log->start <= log->leo && log->synced <= log->written && log->written <= log->leo,
               "start %lld synced %lld written %lld leo %lld", (long long)log->start, (long long)log->synced, (long long)log->written, (long long)log->leo);
}

/* The whole batches at the start of what a read gave; returns the offset behind them. */
static int64_t check_batches(const struct rig_bytes *b, int64_t offset, uint64_t *hash) {
    const uint8_t *p = b->p, *end = b->p + b->n;
    struct kw_entry e;
    int64_t next = offset;
    for (bool first = true; kw_entry_next(&p, end, &e) == 1; first = false) {
        int64_t base = (int64_t)kw_load64(e.p), last = base;
        if (e.magic == 2) {
            FUZZ_CHECK(kw_batch_crc_ok(e.p, e.size), "a batch at %lld is served that fails its checksum", (long long)base);
            last += (int32_t)kw_load32(e.p + KW_BATCH_LAST_OFFSET_DELTA);
        }
        FUZZ_CHECK(last >= next && (first || base >= next), "a batch at %lld to %lld where %lld is due", (long long)base, (long long)last, (long long)next);
        next = last + 1;
        for (size_t i = 0; i < e.size; i++) *hash = (*hash ^ e.p[i]) * 1099511628211u;
    }
    FUZZ_CHECK(b->n == 0 || next > offset, "a read at %lld gives %zu bytes and no batch", (long long)offset, b->n);
    return next;
}

/* true: all of it could be read. */
static bool read_all(struct run *x, uint64_t *hash) {
    struct kb_log *log = x->r.log;
    int64_t at = log->start;
    *hash = 14695981039346656037u;
    for (int i = 0; i < READS_MAX && at < log->written; i++) {
        struct rig_bytes b = rig_read_full(&x->r, at, log->written, i & 1 ? 1 : 30000, true, x->memory, NULL);
        if (b.err) FUZZ_CHECK(b.n == 0, "a read failed and gives %zu bytes", b.n);
        int64_t next = b.err ? at : check_batches(&b, at, hash);
        bool failed = b.err != KW_OK, empty = b.n == 0;
        free(b.p);
        if (failed) return false;
        if (empty) return true; /* the log ends in a hole */
        at = next;
    }
    return true;
}

static void search(struct run *x) {
    static const int64_t times[] = {KB_TS_MAX, 0, 1, 1700000000000, 1700000000005, 1700000000100, INT64_MAX};
    struct kb_log *log = x->r.log;
    for (size_t i = 0; i < KW_COUNTOF(times); i++) {
        struct kb_find_time f = rig_find_time(&x->r, times[i], log->written);
        if (f.err == KW_OK)
            FUZZ_CHECK(f.offset == -1 || (f.offset >= log->start && f.offset < log->written), "time %lld: offset %lld, the log is %lld to %lld",
                       (long long)times[i], (long long)f.offset, (long long)log->start, (long long)log->written);
    }
}

static void append_some(struct run *x) {
    struct kb_log *log = x->r.log;
    for (int i = 0; i < 3; i++) {
        struct rig_batch b = RIG_BATCH;
        b.count = 1 + i;
        b.value_size = 10 + (size_t)i * 700;
        b.leader_epoch = KW_MIN(kb_epochs_latest(log->epochs), INT32_MAX - 2) + 1;
        struct kb_log_append a;
        int64_t leo = log->leo;
        if (leo > INT64_MAX - 100 || rig_try_append(&x->r, &b, &a) != KW_OK) return;
        FUZZ_CHECK(a.base_offset == leo && a.last_offset == leo + i && log->leo == leo + i + 1, "appended at %lld to %lld, the end was %lld and is %lld",
                   (long long)a.base_offset, (long long)a.last_offset, (long long)leo, (long long)log->leo);
        rig_flush(&x->r);
        if (log->poisoned) return;
        FUZZ_CHECK(log->written == log->leo, "flushed, and not written");
        struct rig_bytes back = rig_read_full(&x->r, leo, log->written, 100000, true, x->memory, NULL);
        FUZZ_CHECK(back.err == KW_OK && back.n >= KW_BATCH_HEADER_SIZE && (int64_t)kw_load64(back.p) == leo && kw_batch_crc_ok(back.p, back.n),
                   "what was appended at %lld is not read back (%d, %zu bytes)", (long long)leo, back.err, back.n);
        free(back.p);
    }
}

/* ---- The log's life ---- */

static void cut_done(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    (void)log, (void)err, (void)now;
    *(bool *)ctx = true;
}

static void change(struct run *x, uint8_t what, uint8_t where) {
    struct kb_log *log = x->r.log;
    int64_t span = log->leo - log->start, to = log->start + (span > 0 ? where % KW_MIN(span + 1, INT64_C(256)) : 0);
    if (what & DO_RAISE) {
        if (kb_log_raise_start(log, to, log->written, x->r.now) == KW_OK) FUZZ_CHECK(log->start >= to || log->poisoned, "the start was not raised");
        rig_idle(&x->r);
        to = KW_MAX(to, log->start);
    }
    if ((what & DO_TRUNCATE) && !log->poisoned) {
        bool done = false;
        if (kb_log_truncate(log, to, cut_done, &done, x->r.now) == KW_OK) {
            rig_idle(&x->r);
            FUZZ_CHECK(done, "a cut never ends");
            FUZZ_CHECK(log->poisoned || log->leo <= to, "cut at %lld, and the end is %lld", (long long)to, (long long)log->leo);
        }
    }
    if (what & DO_HOUSEKEEP) {
        rig_advance(&x->r, 1000LL * 86400000);
        kb_log_housekeep(log, log->written, x->r.now);
        rig_idle(&x->r);
        rig_advance(&x->r, 100000);
    }
    check_marks(log);
}

static bool open_again(struct run *x) {
    struct rig *r = &x->r;
    r->lines[0] = 0;
    FUZZ_CHECK(rig_open_start(r) == KW_OK, "an open cannot begin");
    rig_idle(r);
    FUZZ_CHECK(r->opened, "an open never ends");
    FUZZ_CHECK(r->open_err == KW_OK || r->lines[0], "an open failed (%d) without a word", r->open_err);
    x->corrupt = x->corrupt || strstr(r->lines, "never served") || strstr(r->lines, "corrupt");
    if (r->log) check_marks(r->log);
    return r->log != NULL;
}

/* Stopped in order and opened again, it is what it was. */
static void stop_and_compare(struct run *x, bool whole, uint64_t hash) {
    struct rig *r = &x->r;
    int64_t start = r->log->start, leo = r->log->leo;
    r->done = false;
    FUZZ_CHECK(kb_log_shutdown(r->log, rig_done, r, r->now) == KW_OK, "a stop cannot begin");
    rig_idle(r);
    FUZZ_CHECK(r->done, "a stop never ends");
    x->corrupt = x->corrupt || strstr(r->lines, "corrupt"); /* found by a read of this life */
    r->clean = r->done_err == KW_OK;
    r->recovery_point = r->log->recovery_point;
    r->start_checkpoint = r->log->start;
    bool clean = r->clean;
    rig_drop(r);
    if (!open_again(x)) FUZZ_CHECK(!clean, "a log that was stopped in order does not open");
    if (!r->log || !clean) return;
    x->corrupt = x->corrupt || strstr(r->lines, "corrupt");
    FUZZ_CHECK(x->corrupt || (r->log->start == start && r->log->leo == leo), "stopped at %lld to %lld, opened at %lld to %lld", (long long)start,
               (long long)leo, (long long)r->log->start, (long long)r->log->leo);
    uint64_t again;
    bool still = read_all(x, &again);
    x->corrupt = x->corrupt || strstr(r->lines, "corrupt");
    /* Where something corrupt is kept, a read may stop at it or find its way round it. */
    FUZZ_CHECK(x->corrupt || (whole == still && (!whole || again == hash)), "the log reads otherwise than before it was stopped");
}

static void live(struct run *x, uint8_t what, uint8_t where) {
    uint64_t hash;
    if (what & DO_APPEND_FIRST) append_some(x);
    (void)read_all(x, &hash);
    search(x);
    change(x, what, where);
    append_some(x);
    search(x);
    if (what & (DO_CRASH | DO_POWER_LOSS)) {
        int64_t synced = x->r.log->poisoned ? -1 : x->r.log->synced, start = x->r.log->start;
        x->r.recovery_point = x->r.log->recovery_point;
        x->r.start_checkpoint = start;
        rig_kill(&x->r, what & DO_POWER_LOSS);
        if (!open_again(x)) return;
        (void)synced;
    }
    bool whole = read_all(x, &hash);
    if (!x->r.log->poisoned) stop_and_compare(x, whole, hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct run x;
    const struct sim_disk_options fast = {.inline_ppm = 1000000}, slow = {.delay_min_us = 20, .delay_max_us = 2000};
    struct fuzz_src input = {data, data + size};
    struct fuzz_op op;
    uint8_t options = fuzz_u8(&input), what = fuzz_u8(&input), where = fuzz_u8(&input);
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    memset(&x, 0, sizeof x);
    fuzz_memory_count();
    fuzz_memory = (struct fuzz_memory){.live_max = 24u << 20, .one_max = 9u << 20};
    rig_init(&x.r, 5, options & OPT_SLOW_DISK ? &slow : &fast);
    kw_arena_init(&x.arena, 0);
    x.records = (struct fuzz_records){.timestamp = 1700000000000, .body_max = 3000, .v2_only = true};
    x.memory = options & OPT_MEMORY;
    x.r.clean = options & OPT_CLEAN;
    x.corrupt = options & (OPT_CLEAN | OPT_POINTS); /* a marker that vouches for anything */
    if (options & OPT_SMALL_SEGMENTS) x.r.config.segment_bytes = 1000, x.r.config.index_interval_bytes = 100;
    x.r.config.flush_on_ack = options & OPT_FLUSH;
    if (options & OPT_RETENTION) x.r.config.retention_ms = 1000, x.r.config.retention_bytes = 2000;
    if (options & OPT_POINTS) x.r.start_checkpoint = where & 15, x.r.recovery_point = where >> 4;
    else if (options & OPT_CLEAN) x.r.recovery_point = INT64_MAX - 1;
    for (int i = 0; i < OPS_MAX && fuzz_op_next(&input, &op); i++) run_op(&x, &op);
    if (open_again(&x)) live(&x, what, where);
    kw_arena_deinit(&x.arena);
    fuzz_compressor_drop();
    rig_deinit(&x.r);
    FUZZ_CHECK(fuzz_memory.live == 0, "%zu bytes are never given back", fuzz_memory.live);
    return 0;
}
