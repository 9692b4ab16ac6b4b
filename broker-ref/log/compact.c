/* compact.c - one pass of compaction over a log, beside its appends, reads and syncs. Contract: compact.h.
 *
 * Its states: CLEANING (the job reads and writes) -> for each result OPENING (its handle, while it still has its own name) -> QUIET (until nothing
 * loads or stores the old segments' indexes: those are known by their names) -> in memory the result is in place, pinned -> SWAPPING (on the disk,
 * too; AGAIN: it could not be, for want of memory or space) -> the next result, or CLEANING once more, or the end. Whatever else comes
 * (a truncation, a shutdown) waits for SWAPPING alone; else the pass is given up, and SWEEPING removes what it wrote.
 */
#include "compact.h"

#include <stdio.h>
#include <stdlib.h>

#include "compact_job.h"
#include "log_priv.h"

#define AGAIN_US 1000000
#define STEP_BYTES (INT64_C(1) << 30) /* so much is read, then put in place: what is there twice does not take more */

enum phase { CLEANING, OPENING, QUIET, SWAPPING, AGAIN, SWEEPING };

struct held { /* a source, as it was */
    struct kb_segment *seg; /* counted */
    uint32_t generation;
};
struct kb_compact {
    struct kb_log *log;
    enum phase phase;
    bool halted;
    kw_err err; /* of one that is being given up */
    struct kb_compact_job job;
    struct kb_compact_swap swap; /* one result at a time */
    struct kb_compact_source *sources;
    struct held *held;
    struct kb_compact_producer *producers;
    struct kb_segment *fresh; /* the result that is coming to its place; counted */
    struct kw_timer timer;
    kb_compact_done *done;
    void *ctx;
};

/* ---- How dirty ---- */

static int64_t first_dirty(const struct kb_log *log) {
    bool known = log->cleaned > log->start && log->cleaned <= log->leo;
    return known ? log->cleaned : log->start;
}

static bool too_young(const struct kb_log *log, const struct kb_segment *s, struct kb_now now) {
    int64_t lag = log->config->min_compaction_lag_ms;
    return lag > 0 && kb_seg_newest(s) > now.wall_ms - lag;
}

/* Sealed segments that a pass would be over, from the first on. */
static size_t look(const struct kb_log *log, int64_t hw, struct kb_now now, struct kb_compact_look *out) {
    const struct kb_log_private *p = log->priv;
    int64_t limit = KW_MIN(KW_MIN(hw, log->recovery_point), log->hold_from), oldest = INT64_MAX;
    size_t n = 0;
    *out = (struct kb_compact_look){.dirty = first_dirty(log), .end = log->start};
    for (; n + 1 < p->seg_count; n++) {
        const struct kb_segment *s = p->segs[n];
        int64_t end = p->segs[n + 1]->base;
        if (end > limit || (end > out->dirty && too_young(log, s, now))) break;
        out->end = end;
        if (end <= out->dirty) {
            out->clean_bytes += s->size;
            continue;
        }
        out->dirty_bytes += s->size;
        if (s->first_timestamp > 0) oldest = KW_MIN(oldest, kb_seg_time(s, s->first_timestamp, s->first_ahead_ms));
    }
    out->ratio = out->dirty_bytes > 0 ? (double)out->dirty_bytes / (double)(out->dirty_bytes + out->clean_bytes) : 0;
    out->overdue = out->dirty_bytes > 0 && oldest < now.wall_ms && now.wall_ms - oldest > log->config->max_compaction_lag_ms;
    return n;
}

bool kb_log_compact_look(const struct kb_log *log, int64_t hw, struct kb_now now, struct kb_compact_look *out) {
    look(log, hw, now, out);
    if (!log->config->compact_policy || log->uncleanable || log->poisoned || log->busy || log->priv->stop || log->priv->compact) return false;
    return out->dirty_bytes > 0 && (out->overdue || out->ratio > log->config->min_dirty_ratio);
}

/* ---- The end of a pass ---- */

static void free_pass(struct kb_compact *c) {
    kw_timers_cancel(c->log->env->timers, &c->timer);
    for (size_t i = 0; c->held && i < c->job.source_count; i++)
        if (c->held[i].seg) kb_seg_unref(c->held[i].seg);
    if (c->fresh) kb_seg_unref(c->fresh);
    kb_compact_job_deinit(&c->job);
    kw_free(c->sources);
    kw_free(c->held);
    kw_free(c->producers);
    kw_free(c);
}

static bool passes_by(const struct kb_compact *c, kw_err err) {
    return err == KW_ENOMEM || c->job.disk_err == KB_DISK_ENOSPC || c->job.disk_err == KB_DISK_ENOMEM;
}

static void say_end(struct kb_compact *c, kw_err err) {
    struct kb_log *log = c->log;
    const struct kb_compact_job *j = &c->job;
    const struct kb_logger *logger = log->env->logger;
    if (!err) {
        kb_say(logger, KB_INFO, "%s: compacted below offset %lld: of %lld records %lld stay, of %lld bytes %lld", log->dir, (long long)j->cleaned_to,
               (long long)j->records_in, (long long)j->records_out, (long long)j->bytes_in, (long long)j->bytes_out);
        log->priv->compact_said = false;
    } else if (err == KW_EBUSY || log->poisoned) {
        return;
    } else if (!passes_by(c, err)) {
        log->uncleanable = true;
        kb_say(logger, KB_WARN, "%s: cannot be compacted, and is left as it is: %s", log->dir, j->why[0] ? j->why : "it failed");
    } else if (!log->priv->compact_said) {
        log->priv->compact_said = true;
        kb_say(logger, KB_WARN, "%s: cannot be compacted now, and is tried again: %s", log->dir, j->why[0] ? j->why : "out of memory");
    }
}

static void end(struct kb_compact *c, kw_err err, struct kb_now now) {
    struct kb_log *log = c->log;
    log->priv->compact = NULL;
    kb_compact_done *done = log->priv->closed ? NULL : c->done;
    void *ctx = c->ctx;
    struct kb_compact_report report = {err, c->job.records_in, c->job.records_out, c->job.bytes_in, c->job.bytes_out};
    if (!log->priv->closed) say_end(c, err);
    free_pass(c);
    if (done) done(ctx, log, &report, now);
}

static bool lost(const struct kb_compact *c) { return c->log->priv->closed || c->log->poisoned; }

static struct kb_op *op_of(struct kb_compact *c, enum kb_disk_op what, void (*fn)(struct kb_op *op, struct kb_now now)) {
    struct kb_op *op = kb_op_new(c->log, NULL, what, KB_LANE_CLEAN, fn);
    if (op) op->ctx = c;
    return op;
}

static struct kb_op *job_of(struct kb_compact *c, void (*run)(void *arg, struct kb_fs *fs), void *arg, void (*fn)(struct kb_op *op, struct kb_now now)) {
    struct kb_op *op = op_of(c, KB_DISK_JOB, fn);
    if (!op) return NULL;
    op->req.job = run;
    op->req.job_arg = arg;
    return op;
}

static void swept(struct kb_op *op, struct kb_now now) {
    struct kb_compact *c = op->ctx;
    end(c, c->err, now);
}

static void give_up(struct kb_compact *c, kw_err err, struct kb_now now) {
    struct kb_op *op = lost(c) ? NULL : job_of(c, kb_compact_sweep_run, &c->job, swept);
    if (!op) { /* the next pass, or the next start, removes what is left */
        end(c, err, now);
        return;
    }
    c->err = err;
    c->phase = SWEEPING;
    kb_op_submit(op);
}

/* ---- In place ---- */

static size_t first_source(const struct kb_compact *c, int64_t base) {
    size_t i = 0;
    while (i < c->job.source_count && c->sources[i].base < base) i++;
    return i;
}

/* The segments from the next result's first on are still what the job has read, and nothing is about to change that. */
static bool intact(const struct kb_compact *c) {
    const struct kb_log *log = c->log;
    const struct kb_log_private *p = log->priv;
    if (c->halted || log->busy || lost(c)) return false;
    bool written = c->swap.from < c->job.result_count;
    size_t first = written ? first_source(c, c->job.results[c->swap.from].base) : c->job.next;
    size_t at = first < c->job.source_count ? kb_log_seg_at(log, c->sources[first].base) : 0;
    for (size_t i = first; i < c->job.source_count; i++, at++)
        if (at + 1 >= p->seg_count || p->segs[at] != c->held[i].seg || p->segs[at]->generation != c->held[i].generation || !p->segs[at]->sealed) return false;
    return true;
}

/* Nobody works with a file of them by its name. */
static bool quiet(const struct kb_compact *c) {
    const struct kb_compact_result *r = &c->job.results[c->swap.from];
    for (size_t i = first_source(c, r->base); i < c->job.source_count && c->sources[i].base < r->end; i++)
        if (c->held[i].seg->index_ops || c->held[i].seg->file_state == KB_LOADING) return false;
    return true;
}

static struct kb_segment *segment_of(struct kb_compact *c, struct kb_compact_result *r, struct kb_now now) {
    struct kb_segment *s = kb_seg_new(c->log, r->base, now);
    if (!s) return NULL;
    struct kb_facts *f = &r->facts;
    s->fresh = false;
    s->sealed = s->pinned = true;
    s->end = KW_MAX(f->end, f->base);
    s->size = s->submitted_size = s->written_size = s->synced_size = f->size;
    s->first_timestamp = f->first_timestamp;
    s->max_timestamp = f->max_timestamp;
    s->max_timestamp_offset = f->max_timestamp_offset;
    s->since_index = f->since_index;
    s->batch_size_max = f->batch_size_max;
    s->dense = f->dense;
    s->empties = f->empties;
    kb_index_trim(&f->offsets);
    kb_index_trim(&f->times);
    s->offsets = f->offsets;
    s->times = f->times;
    memset(&f->offsets, 0, sizeof(f->offsets));
    memset(&f->times, 0, sizeof(f->times));
    s->index_crc = kb_index_sum(&s->offsets, &s->times);
    s->index_crc_known = s->index_stored = s->index_durable = true;
    kb_seg_check_add(s, 0, s->size); /* written by this process */
    s->appended_wall_ms = s->created_wall_ms = s->first_wall_ms = s->appended_ahead_ms = s->first_ahead_ms = 0;
    for (size_t i = first_source(c, r->base); i < c->job.source_count && c->sources[i].base < r->end; i++) {
        s->appended_wall_ms = KW_MAX(s->appended_wall_ms, c->held[i].seg->appended_wall_ms);
        s->appended_us = KW_MAX(s->appended_us, c->held[i].seg->appended_us);
        s->created_wall_ms = KW_MAX(s->created_wall_ms, c->held[i].seg->created_wall_ms);
        s->appended_ahead_ms = KW_MAX(s->appended_ahead_ms, c->held[i].seg->appended_ahead_ms);
        s->first_wall_ms = KW_MAX(s->first_wall_ms, c->held[i].seg->first_wall_ms);
        s->first_ahead_ms = KW_MAX(s->first_ahead_ms, c->held[i].seg->first_ahead_ms);
    }
    return s;
}

/* From now on the log reads the result, by the handle that it has. */
static void replace(struct kb_compact *c) {
    struct kb_log *log = c->log;
    struct kb_log_private *p = log->priv;
    const struct kb_compact_result *r = &c->job.results[c->swap.from];
    size_t first = kb_log_seg_at(log, r->base), n = 0;
    while (first + n < p->seg_count && p->segs[first + n]->base < r->end) {
        struct kb_segment *s = p->segs[first + n++];
        log->size_bytes -= s->size;
        kb_seg_mark_gone(s);
        kb_seg_forget(s);
        kb_seg_unref(s);
    }
    KW_ASSERT(n > 0 && first + n < p->seg_count);
    p->segs[first] = kb_seg_ref(c->fresh);
    memmove(p->segs + first + 1, p->segs + first + n, (p->seg_count - first - n) * sizeof(struct kb_segment *));
    p->seg_count -= n - 1;
    log->size_bytes += c->fresh->size;
}

static void next_result(struct kb_compact *c, struct kb_now now);
static void swapped(struct kb_op *op, struct kb_now now);

static bool submit_swap(struct kb_compact *c) {
    struct kb_op *op = job_of(c, kb_compact_swap_run, &c->swap, swapped);
    if (!op) return false;
    if (c->phase == QUIET) replace(c);
    c->phase = SWAPPING;
    kb_op_submit(op);
    return true;
}

static void again(struct kb_compact *c) {
    struct kw_timers *ts = c->log->env->timers;
    c->phase = AGAIN;
    (void)!kw_timers_set(ts, &c->timer, ts->now_us + AGAIN_US); /* else housekeeping tries */
}

static void again_due(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    struct kb_compact *c = ctx;
    if (!lost(c) && c->phase == AGAIN && !submit_swap(c)) again(c);
}

static void swapped(struct kb_op *op, struct kb_now now) {
    struct kb_compact *c = op->ctx;
    struct kb_log *log = c->log;
    kw_err err = op->req.err ? KW_EIO : c->job.err;
    if (lost(c)) {
        end(c, KW_EIO, now);
        return;
    }
    if (err && !op->req.err && passes_by(c, err)) {
        again(c);
        return;
    }
    if (err) { /* some files have their new names, some do not: the next start sorts them out */
        kb_log_poison(log, now, "compaction (segments that take others' places)", c->job.why[0] ? c->job.why : log->dir, 0);
        end(c, KW_EIO, now);
        return;
    }
    struct kb_segment *s = c->fresh;
    c->fresh = NULL;
    s->pinned = false;
    (void)!kb_seg_file_want(s, &err); /* into the caches, as any other */
    (void)!kb_seg_index_want(s, &err);
    kb_seg_unref(s);
    c->swap.from++;
    next_result(c, now);
}

static void step_quiet(struct kb_compact *c, struct kb_now now) {
    if (!intact(c)) {
        give_up(c, KW_EBUSY, now);
        return;
    }
    if (!quiet(c)) return; /* what is under way comes back to kb_compact_step */
    if (!submit_swap(c)) give_up(c, KW_ENOMEM, now);
}

static void opened(struct kb_op *op, struct kb_now now) {
    struct kb_compact *c = op->ctx;
    if (op->req.err) {
        kb_file_unref(op->req.file);
        c->job.disk_err = op->req.err;
        snprintf(c->job.why, sizeof(c->job.why), "%s: %s", op->path, kb_os_text(op->req.os_errno));
        give_up(c, op->req.err == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO, now);
        return;
    }
    c->fresh->file = op->req.file;
    c->fresh->file_state = KB_PRESENT;
    c->phase = QUIET;
    if (lost(c)) end(c, KW_EIO, now);
}

static bool submit_open(struct kb_compact *c, int64_t base) {
    struct kb_op *op = op_of(c, KB_DISK_OPEN, opened);
    struct kb_file *f = kb_file_new(c->log->env->disk);
    if (op) op->path = kb_seg_path(c->log, base, ".log.cleaned");
    if (!op || !f || !op->path) {
        kb_file_unref(f);
        kb_op_free(op);
        return false;
    }
    c->phase = OPENING;
    op->req.file = f;
    kb_op_submit(op);
    return true;
}

/* ---- The job ---- */

static bool submit_clean(struct kb_compact *c);

static void next_result(struct kb_compact *c, struct kb_now now) {
    struct kb_compact_job *j = &c->job;
    if (c->swap.from == j->result_count) {
        kb_compact_results_free(j);
        c->swap.from = 0;
        if (!j->more) {
            c->log->cleaned = j->cleaned_to;
            end(c, KW_OK, now);
        } else if (c->halted) {
            end(c, KW_EBUSY, now);
        } else if (!submit_clean(c)) {
            end(c, KW_ENOMEM, now);
        }
        return;
    }
    if (!intact(c)) {
        give_up(c, KW_EBUSY, now);
        return;
    }
    struct kb_compact_result *r = &j->results[c->swap.from];
    c->fresh = segment_of(c, r, now);
    if (!c->fresh || !submit_open(c, r->base)) give_up(c, KW_ENOMEM, now);
}

static void cleaned(struct kb_op *op, struct kb_now now) {
    struct kb_compact *c = op->ctx;
    kw_err err = op->req.err ? KW_EIO : c->job.err;
    if (lost(c)) end(c, KW_EIO, now);
    else if (err && !intact(c)) end(c, KW_EBUSY, now); /* it lost what it read */
    else if (err) end(c, err, now);
    else next_result(c, now);
}

static bool submit_clean(struct kb_compact *c) {
    struct kb_op *op = job_of(c, kb_compact_job_run, &c->job, cleaned);
    if (!op) return false;
    c->phase = CLEANING;
    kb_op_submit(op);
    return true;
}

static kw_err take_producers(struct kb_compact *c) {
    const struct kb_pid_state *s = c->log->pids;
    struct kb_pid_entry *e;
    if (s->by_pid.count == 0) return KW_OK;
    c->producers = kw_malloc(s->by_pid.count * sizeof(*c->producers));
    if (!c->producers) return KW_ENOMEM;
    for (size_t it = 0; (e = kw_map_next(&s->by_pid, &it));)
        if (e->batch_count > 0)
            c->producers[c->job.producer_count++] = (struct kb_compact_producer){e->pid, e->batches[e->batch_count - 1].last_offset};
    if (c->job.producer_count) qsort(c->producers, c->job.producer_count, sizeof(*c->producers), kb_compact_by_pid);
    c->job.producers = c->producers;
    return KW_OK;
}

static kw_err take_sources(struct kb_compact *c, size_t n) {
    c->sources = kw_malloc(n * sizeof(*c->sources));
    c->held = kw_calloc(n, sizeof(*c->held));
    if (!c->sources || !c->held) return KW_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        struct kb_segment *s = c->log->priv->segs[i];
        c->sources[i] = (struct kb_compact_source){.base = s->base, .size = s->size};
        c->held[i] = (struct held){kb_seg_ref(s), s->generation};
    }
    c->job.sources = c->sources;
    c->job.source_count = n;
    return take_producers(c);
}

kw_err kb_log_compact(struct kb_log *log, const struct kb_compact_order *o, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    struct kb_compact_look found;
    if (log->poisoned || log->busy || p->stop || p->compact) return KW_EBUSY;
    size_t n = look(log, o->hw, now, &found);
    if (found.dirty_bytes == 0) return KW_EINVAL;
    struct kb_compact *c = kw_calloc(1, sizeof(*c));
    if (!c) return KW_ENOMEM;
    c->log = log;
    c->done = o->done;
    c->ctx = o->ctx;
    kw_timer_init(&c->timer, again_due, c);
    struct kb_compact_job *j = &c->job;
    j->dir = log->dir;
    j->end = found.end;
    j->dirty = j->cleaned_to = found.dirty;
    j->memory_max = o->memory_max;
    j->segment_bytes = log->config->segment_bytes;
    j->wall_ms = now.wall_ms;
    j->delete_retention_ms = log->config->delete_retention_ms;
    j->interval = log->config->index_interval_bytes;
    j->ephemeral = log->env->ephemeral;
    j->seed[0] = o->seed[0];
    j->seed[1] = o->seed[1];
    j->step_bytes = STEP_BYTES;
    c->swap = (struct kb_compact_swap){.job = j, .count = 1};
    if (take_sources(c, n) || !submit_clean(c)) {
        free_pass(c);
        return KW_ENOMEM;
    }
    p->compact = c;
    return KW_OK;
}

/* ---- What else happens to the log ---- */

bool kb_compact_swapping(const struct kb_log *log) {
    const struct kb_compact *c = log->priv->compact;
    return c && (c->phase == SWAPPING || c->phase == AGAIN);
}

void kb_compact_step(struct kb_log *log, struct kb_now now) {
    struct kb_compact *c = log->priv->compact;
    if (c && c->phase == QUIET && !log->priv->closed) step_quiet(c, now);
}

void kb_compact_again(struct kb_log *log) {
    struct kb_compact *c = log->priv->compact;
    if (c && c->phase == AGAIN && !kw_timer_armed(&c->timer) && !lost(c)) (void)submit_swap(c);
}

void kb_compact_cut(struct kb_log *log, int64_t to) {
    struct kb_compact *c = log->priv->compact;
    if (c && to < c->job.end) atomic_store_explicit(&c->job.stop, true, memory_order_relaxed);
}

bool kb_compact_halt(struct kb_log *log, struct kb_now now) {
    struct kb_compact *c = log->priv->compact;
    if (!c) return true;
    c->halted = true;
    atomic_store_explicit(&c->job.stop, true, memory_order_relaxed);
    if (c->phase == QUIET) give_up(c, KW_EBUSY, now);
    else if (c->phase == AGAIN) end(c, KW_EBUSY, now); /* the next start goes on */
    return log->priv->compact == NULL;
}

void kb_compact_drop(struct kb_log *log) {
    struct kb_compact *c = log->priv->compact;
    if (!c) return;
    c->halted = true;
    atomic_store_explicit(&c->job.stop, true, memory_order_relaxed);
    if (c->phase != QUIET && c->phase != AGAIN) return; /* a request comes back, and ends it */
    log->priv->compact = NULL;
    free_pass(c);
}
