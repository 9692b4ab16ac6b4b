/* cut.c - takes everything at and above an offset away: on a follower that diverged, after a full disk, and when a log is emptied.
 *
 * While it runs the log is busy: no append, so that nothing refers to what goes. Files go newest first, each durably before the next and before
 * the new end is written to: after any crash the log is a prefix of the old one, at least as long as the new one. KIP-101, KIP-279.
 * Called by log's users through log.h, by append (ENOSPC) and woken by whatever it waits for. Calls cursor, segment, recover (reload).
 */
#include "log_priv.h"
#include "recover.h"

#include <stdio.h>

static void failed(struct kb_log *log, struct kb_now now, kw_err err) {
    struct kb_cut *k = &log->priv->cut;
    if (!log->priv->closed) kb_log_poison(log, now, err == KW_ENOMEM ? "truncation (out of memory)" : "truncation", log->dir, 0);
    k->phase = KB_CUT_IDLE;
    for (size_t i = 0; i < k->doomed_count; i++) kb_seg_unref(k->doomed[i]);
    kw_free(k->doomed);
    k->doomed = NULL;
    k->doomed_count = 0;
    log->busy = false;
    kb_log_done *done = k->done;
    k->done = NULL;
    if (done && !log->priv->closed) done(k->ctx, log, KW_EIO, now);
    kb_stop_step(log, now);
}

/* ---- In memory ---- */

/* A sealed segment becomes the active one again. */
static void unseal(struct kb_segment *s) {
    struct kb_index offsets = s->offsets, times = s->times;
    memset(&s->offsets, 0, sizeof(s->offsets));
    memset(&s->times, 0, sizeof(s->times));
    enum kb_avail state = s->index_state;
    if (!kw_list_empty(&s->index_lru)) {
        kw_list_remove(&s->index_lru);
        s->log->env->index_memory_used -= (int64_t)(offsets.cap + times.cap);
    }
    if (!kw_list_empty(&s->file_lru)) {
        kw_list_remove(&s->file_lru);
        s->log->env->open_files--;
    }
    s->offsets = offsets;
    s->times = times;
    s->index_state = state;
    s->sealed = false;
}

static void cut_segment(struct kb_segment *s, int64_t position, int64_t to) {
    s->generation++;
    s->size = s->submitted_size = s->written_size = position;
    s->synced_size = KW_MIN(s->synced_size, position);
    s->end = KW_MAX(to, s->base);
    kb_offsets_cut(&s->offsets, s->base, to);
    kb_times_cut(&s->times, s->base, to);
    kb_seg_check_cut(s, position);
    s->index_stored = s->index_crc_known = s->index_durable = false;
    s->cut_timestamp = KW_MAX(s->cut_timestamp, s->max_timestamp);
    s->max_timestamp = s->max_timestamp_offset = -1;
    size_t n = kb_times_count(&s->times);
    if (n) kb_times_get(&s->times, s->base, n - 1, &s->max_timestamp, &s->max_timestamp_offset);
    int64_t offset, from = 0;
    n = kb_offsets_count(&s->offsets);
    if (n) kb_offsets_get(&s->offsets, s->base, n - 1, &offset, &from);
    s->since_index = position - from;
    if (position == 0) {
        s->first_timestamp = -1;
        s->since_index = 0;
        s->dense = true;
        s->batch_size_max = 0;
    }
}

/* From here on the log ends at k->to. */
static kw_err cut_memory(struct kb_log *log, size_t keep, int64_t position, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    struct kb_cut *k = &p->cut;
    struct kb_segment *fresh = NULL;
    size_t first = keep + 1;
    if (k->reset_to >= 0) {
        first = 0;
        fresh = kb_seg_new(log, k->to, now);
        if (!fresh) return KW_ENOMEM;
    }
    size_t n = p->seg_count - first;
    if (n) {
        k->doomed = kw_malloc(n * sizeof(struct kb_segment *));
        if (!k->doomed) {
            if (fresh) kb_seg_unref(fresh);
            return KW_ENOMEM;
        }
    }
    for (size_t i = 0; i < n; i++) {
        struct kb_segment *s = p->segs[p->seg_count - 1 - i];
        k->doomed[i] = s;
        log->size_bytes -= s->size;
        kb_seg_mark_gone(s);
        kb_seg_forget(s);
    }
    k->doomed_count = n;
    p->seg_count = first;
    if (fresh) {
        p->segs[p->seg_count++] = fresh;
        log->start = k->to;
    } else {
        struct kb_segment *s = p->segs[keep];
        log->size_bytes -= s->size - position;
        unseal(s);
        for (size_t i = 0; i < KB_SPOTS; i++)
            if (p->spots[i].seg == s && p->spots[i].position > position) p->spots[i].seg = NULL;
        cut_segment(s, position, k->to);
    }
    kb_tail_cut(log, k->to);
    kb_epochs_truncate_end(log->epochs, fresh ? 0 : k->to); /* of a log that was emptied nothing is known any more */
    log->leo = p->submitted = k->to;
    log->written = KW_MIN(log->written, k->to);
    if (fresh) log->written = k->to;
    log->synced = fresh ? k->to : KW_MIN(log->synced, k->to);
    log->recovery_point = KW_MIN(log->recovery_point, k->to);
    log->cleaned = KW_MIN(log->cleaned, k->to);
    k->reload_pids = p->last_pid_offset >= k->to && !fresh;
    if (fresh) kb_pid_clear(log->pids);
    p->open_write = NULL;
    k->next = k->next_suffix = 0;
    return KW_OK;
}

/* ---- On disk ---- */

static void op_back(struct kb_op *op, struct kb_now now) {
    struct kb_log *log = op->log;
    struct kb_cut *k = &log->priv->cut;
    k->in_flight = false;
    if (op->req.err == KB_DISK_ENOSPC && op->req.op == KB_DISK_WRITE_ATOMIC) { /* the epochs: the next sync stores them, until then the batches tell */
        log->epochs->dirty = true;
        kb_cut_step(log, now);
        return;
    }
    if (op->req.err && !(op->req.err == KB_DISK_ENOENT && op->req.op != KB_DISK_TRUNCATE)) {
        kb_log_poison(log, now, "truncation", op->path ? op->path : log->dir, op->req.os_errno);
        failed(log, now, KW_EIO);
        return;
    }
    kb_cut_step(log, now);
}

static kw_err submit(struct kb_log *log, struct kb_op *op) {
    bool named = op && op->req.op != KB_DISK_TRUNCATE && op->req.op != KB_DISK_SYNC && op->req.op != KB_DISK_JOB;
    if (!op || (named && !op->path) || (op->req.op == KB_DISK_RENAME && !op->path2)) {
        kb_op_free(op);
        return KW_ENOMEM;
    }
    log->priv->cut.in_flight = true;
    kb_op_submit(op);
    return KW_OK;
}

static uint32_t sync_flag(const struct kb_log *log) { return log->env->ephemeral ? 0 : KB_DISK_SYNC_FLAG; }

static kw_err step_rename(struct kb_log *log) {
    struct kb_cut *k = &log->priv->cut;
    while (k->next < k->doomed_count && k->doomed[k->next]->fresh) k->next++; /* never had a file */
    if (k->next == k->doomed_count) {
        k->next = 0;
        k->phase = KB_CUT_TRUNCATE;
        return KW_OK;
    }
    struct kb_segment *s = k->doomed[k->next++];
    struct kb_op *op = kb_op_new(log, s, KB_DISK_RENAME, KB_LANE_ATOMIC, op_back);
    if (op) {
        op->path = kb_seg_path(log, s->base, ".log");
        op->path2 = kb_seg_path(log, s->base, ".log.deleted");
        op->req.flags = sync_flag(log);
    }
    return submit(log, op);
}

static kw_err step_truncate(struct kb_log *log, bool sync) {
    struct kb_cut *k = &log->priv->cut;
    struct kb_segment *s = kb_log_active(log);
    if (s->fresh || (sync && log->env->ephemeral)) {
        k->phase = KB_CUT_UNLINK;
        return KW_OK;
    }
    kw_err err;
    if (!kb_seg_file_want(s, &err)) return err; /* its open comes back here */
    struct kb_op *op = kb_op_new(log, s, sync ? KB_DISK_SYNC : KB_DISK_TRUNCATE, KB_LANE_LOG, op_back);
    if (op) {
        op->req.file = s->file;
        op->req.length = s->size;
    }
    k->phase = sync ? KB_CUT_UNLINK : KB_CUT_SYNC;
    return submit(log, op);
}

/* A log that was emptied has a file all the same, from whose name the next start knows where it begins and ends. true: it is being made; its open comes back
 * here. Where it cannot be made, for want of space or memory, the first append does it. */
static bool begins(struct kb_log *log) {
    struct kb_cut *k = &log->priv->cut;
    struct kb_segment *s = kb_log_active(log);
    kw_err err = KW_OK;
    if (k->reset_to <= 0 || log->priv->whole || log->env->ephemeral || !s->fresh) return false;
    if (s->file_state == KB_LOADING) return true;
    if (k->begun) return false;
    k->begun = true;
    return !kb_seg_file_want(s, &err) && err == KW_OK;
}

/* The files of the segments that went, and the snapshots that speak of what is gone. */
static kw_err step_unlink(struct kb_log *log) {
    static const char *const suffixes[] = {".log.deleted", ".index", ".timeindex", ".txnindex", ".snapshot"};
    struct kb_log_private *p = log->priv;
    struct kb_cut *k = &p->cut;
    struct kb_op *op;
    if (k->next < k->doomed_count) {
        struct kb_segment *s = k->doomed[k->next];
        op = kb_op_new(log, s, KB_DISK_UNLINK, KB_LANE_ATOMIC, op_back);
        if (op) op->path = kb_seg_path(log, s->base, suffixes[k->next_suffix]);
        if (++k->next_suffix == KW_COUNTOF(suffixes)) {
            k->next_suffix = 0;
            k->next++;
        }
        return submit(log, op);
    }
    if (p->start_snapshot > k->to || (k->reset_to >= 0 && p->start_snapshot >= 0)) {
        op = kb_op_new(log, NULL, KB_DISK_UNLINK, KB_LANE_ATOMIC, op_back);
        if (op) op->path = kb_seg_path(log, p->start_snapshot, ".snapshot");
        p->start_snapshot = -1;
        return submit(log, op);
    }
    if (begins(log)) return KW_OK;
    if (log->env->ephemeral) {
        k->phase = KB_CUT_EPOCHS;
        return KW_OK;
    }
    op = kb_op_new(log, NULL, KB_DISK_SYNC_DIR, KB_LANE_ATOMIC, op_back);
    if (op) op->path = kw_memdup(log->dir, strlen(log->dir) + 1);
    k->phase = KB_CUT_EPOCHS;
    return submit(log, op);
}

static kw_err step_epochs(struct kb_log *log) {
    log->priv->cut.phase = KB_CUT_RELOAD;
    if (!log->epochs->dirty) return KW_OK;
    struct kw_out out;
    kw_out_init(&out);
    struct kb_op *op = kb_op_new(log, NULL, KB_DISK_WRITE_ATOMIC, KB_LANE_ATOMIC, op_back);
    if (op) op->path = kb_log_path(log, "leader-epoch-checkpoint");
    if (!op || !op->path || kb_epochs_encode(log->epochs, &out)) {
        kw_out_deinit(&out);
        kb_op_free(op);
        return KW_ENOMEM;
    }
    op->bytes = out.p;
    op->iov = (struct kb_iov){out.p, out.len};
    op->req.flags = sync_flag(log);
    log->epochs->dirty = false;
    return submit(log, op);
}

/* ---- What memory no longer knows ---- */

static void reload_free(struct kb_reload *r) {
    kw_free(r->dir);
    kw_free(r->bases);
    kb_facts_deinit(&r->tail);
    kb_pid_state_deinit(&r->pids);
    kw_free(r);
}

static void finish(struct kb_log *log, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    struct kb_cut *k = &p->cut;
    k->phase = KB_CUT_IDLE;
    for (size_t i = 0; i < k->doomed_count; i++) kb_seg_unref(k->doomed[i]);
    kw_free(k->doomed);
    k->doomed = NULL;
    k->doomed_count = 0;
    kb_log_active(log)->cut_timestamp = -1;
    bool disk_full = k->disk_full;
    k->disk_full = false;
    log->busy = false;
    kb_log_done *done = k->done;
    k->done = NULL;
    /* Only now, that a crash cannot bring them back, those who wait hear that their batches were refused. */
    if (disk_full && !p->closed && log->owner.cut_back) log->owner.cut_back(log->owner.ctx, log, now);
    kb_log_tell(log, now);
    if (done && !p->closed) done(k->ctx, log, KW_OK, now);
    kb_epochs_later(log, now);
    kb_sync_step(log);
    kb_stop_step(log, now);
}

static void reload_run(void *arg, struct kb_fs *fs) { kb_reload_run(arg, fs); }

/* `to` was in a gap: the log ends with its last batch, as it will after a restart. What speaks of offsets inside of the gap goes, too. */
static void end_before_gap(struct kb_log *log, int64_t end) {
    struct kb_log_private *p = log->priv;
    struct kb_cut *k = &p->cut;
    log->leo = kb_log_active(log)->end = p->submitted = k->to = end;
    log->written = KW_MIN(log->written, end);
    log->synced = KW_MIN(log->synced, end);
    log->recovery_point = KW_MIN(log->recovery_point, end);
    log->cleaned = KW_MIN(log->cleaned, end);
    kb_epochs_truncate_end(log->epochs, end);
    k->reload_pids = k->reload_pids || p->last_pid_offset >= end;
    k->phase = KB_CUT_UNLINK; /* and the reload once more */
}

static kw_err take_pids(struct kb_log *log, struct kb_reload *r, struct kb_now now) {
    struct kb_pid_entry *e;
    kw_err err = kb_pid_merge(&r->pids, log->pids, log->leo);
    for (size_t it = 0; (e = kw_map_next(&r->pids.by_pid, &it));)
        if (e->last_timestamp < 0) e->last_timestamp = now.wall_ms;
    struct kb_pid_state old = *log->pids;
    *log->pids = r->pids;
    r->pids = old;
    return err;
}

static void reloaded(struct kb_op *op, struct kb_now now) {
    struct kb_log *log = op->log;
    struct kb_reload *r = op->ctx;
    log->priv->cut.in_flight = false;
    kw_err err = op->req.err ? KW_EIO : r->err;
    int64_t end = log->leo;
    if (!err && r->tail_to > r->tail_from) {
        struct kb_segment *s = kb_log_active(log);
        s->since_index = r->tail.since_index;
        if (r->tail.size == r->tail_to) end = KW_MIN(end, KW_MAX(r->tail.end, log->start));
        if (r->tail.max_timestamp > s->max_timestamp) {
            s->max_timestamp = r->tail.max_timestamp;
            s->max_timestamp_offset = r->tail.max_timestamp_offset;
        }
    }
    bool gap = end < log->leo;
    if (!err && gap) end_before_gap(log, end);
    else if (!err && r->pids_wanted) err = take_pids(log, r, now);
    reload_free(r);
    if (err) failed(log, now, err);
    else if (gap) kb_cut_step(log, now);
    else finish(log, now);
}

static kw_err step_reload(struct kb_log *log, bool *done) {
    struct kb_log_private *p = log->priv;
    struct kb_segment *s = kb_log_active(log);
    if (s->size == 0 && !p->cut.reload_pids) {
        *done = true;
        return KW_OK;
    }
    struct kb_reload *r = kw_calloc(1, sizeof(*r));
    if (!r) return KW_ENOMEM;
    kb_pid_state_init(&r->pids);
    kb_facts_init(&r->tail, s->base, log->config->index_interval_bytes);
    r->dir = kw_memdup(log->dir, strlen(log->dir) + 1);
    r->bases = kw_malloc(p->seg_count * sizeof(*r->bases));
    r->snapshot_extra = p->start_snapshot;
    struct kb_op *op = kb_op_new(log, NULL, KB_DISK_JOB, KB_LANE_JOB, reloaded);
    if (!r->dir || !r->bases || !op) {
        reload_free(r);
        kb_op_free(op);
        return KW_ENOMEM;
    }
    for (size_t i = 0; i < p->seg_count; i++) r->bases[i] = p->segs[i]->base;
    r->base_count = p->seg_count - (s->fresh ? 1 : 0);
    r->leo = log->leo;
    r->tail_to = s->size;
    r->tail_from = s->size - s->since_index;
    r->pids_wanted = p->cut.reload_pids && r->base_count;
    if (p->cut.reload_pids && !r->pids_wanted) kb_pid_clear(log->pids);
    op->ctx = r;
    op->req.job = reload_run;
    op->req.job_arg = r;
    return submit(log, op);
}

/* ---- The machine ---- */

static void place_known(struct kb_log *log, size_t keep, int64_t position, struct kb_now now) {
    kw_err err = cut_memory(log, keep, position, now);
    if (err) {
        failed(log, now, err);
        return;
    }
    log->priv->cut.phase = KB_CUT_RENAME;
    kb_cut_step(log, now);
}

/* The place of `to`: KB_STEP_DONE with seg_index, at; the segment's indexes are in memory, since it becomes the active one. */
static int32_t locate(struct kb_cursor *c, struct kb_cut *k) {
    struct kb_log *log = c->log;
    if (!c->phase && k->disk_full && k->to >= log->written) { /* the end of what is written, in the last segment that has any */
        size_t i = log->priv->seg_count - 1;
        while (i > 0 && log->priv->segs[i]->written_size == 0) i--;
        kb_cursor_seg_set(c, i);
        c->at = c->seg->written_size;
        c->phase = 1;
    }
    if (!c->phase) {
        int32_t x = kb_cursor_find(c);
        if (x == KB_STEP_END) { /* nothing stands at or above it */
            kb_cursor_seg_set(c, log->priv->seg_count - 1);
            c->at = c->seg->size;
        } else if (x == KB_STEP_DONE && !c->entry_known) {
            x = kb_cursor_entry(c, c->at, &c->entry);
            c->entry_known = x == KB_STEP_DONE;
        }
        if (x != KB_STEP_DONE && x != KB_STEP_END) return x;
        if (x == KB_STEP_DONE && c->entry.base < k->to) k->to = KW_MAX(c->entry.base, log->start); /* never half a batch */
        while (c->seg->base > k->to && c->seg_index > 0) { /* in a gap between two segments; empty ones may stand in it */
            kb_cursor_seg_set(c, c->seg_index - 1);
            c->at = c->seg->size;
        }
        if (c->at == 0) k->to = KW_MAX(c->seg->base, log->start);
        c->phase = 1;
    }
    return kb_cursor_index(c);
}

static void locate_step(struct kb_cursor *c, struct kb_now now) {
    struct kb_log *log = c->log;
    struct kb_cut *k = &log->priv->cut;
    int32_t x = log->poisoned || log->priv->closed ? KW_EIO : c->err ? c->err : locate(c, k);
    if (x == KB_STEP_WAIT) return;
    kb_log_pin(log);
    size_t keep = c->seg_index;
    int64_t position = c->at;
    k->cursor = NULL;
    kb_cursor_free(c);
    if (x == KB_STEP_DONE) place_known(log, keep, position, now);
    else failed(log, now, x);
    kb_log_unpin(log);
}

static kw_err step_locate(struct kb_log *log, struct kb_now now) {
    struct kb_cut *k = &log->priv->cut;
    if (k->cursor) return KW_OK;
    if (k->reset_to >= 0) {
        place_known(log, 0, 0, now);
        return KW_OK;
    }
    if (k->to >= log->leo) { /* nothing to do */
        k->phase = KB_CUT_RELOAD;
        return KW_OK;
    }
    k->cursor = kb_cursor_new(log, locate_step, NULL);
    if (!k->cursor) return KW_ENOMEM;
    k->cursor->target = k->to;
    locate_step(k->cursor, now);
    return KW_OK;
}

void kb_cut_step(struct kb_log *log, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    struct kb_cut *k = &p->cut;
    kb_log_pin(log);
    kw_err err = KW_OK;
    bool done = false;
    while (k->phase != KB_CUT_IDLE && !k->in_flight && !err && !done) {
        enum kb_cut_phase was = k->phase;
        if (log->poisoned || p->closed) {
            err = KW_EIO;
            break;
        }
        switch (k->phase) {
        case KB_CUT_DRAIN:
            kb_log_submit_writes(log, now);
            if (kw_list_empty(&p->writes) && !p->stores && !p->sync.running && !p->removing && !kb_compact_swapping(log)) k->phase = KB_CUT_LOCATE;
            break;
        case KB_CUT_LOCATE:
            err = step_locate(log, now);
            break;
        case KB_CUT_RENAME:
            err = step_rename(log);
            break;
        case KB_CUT_TRUNCATE:
            err = step_truncate(log, false);
            break;
        case KB_CUT_SYNC:
            err = step_truncate(log, true);
            break;
        case KB_CUT_UNLINK:
            err = step_unlink(log);
            break;
        case KB_CUT_EPOCHS:
            err = step_epochs(log);
            break;
        case KB_CUT_RELOAD:
            err = step_reload(log, &done);
            break;
        case KB_CUT_IDLE:
            break;
        }
        if (k->phase == was && !k->in_flight && !done && !err) break; /* waits for something else */
    }
    if (err && k->phase != KB_CUT_IDLE && !k->in_flight && !k->cursor) failed(log, now, err);
    else if (done) finish(log, now);
    kb_log_unpin(log);
}

kw_err kb_cut_start(struct kb_log *log, int64_t to, int64_t reset_to, bool disk_full, kb_log_done *done, void *ctx, struct kb_now now) {
    struct kb_cut *k = &log->priv->cut;
    KW_ASSERT(k->phase == KB_CUT_IDLE);
    (void)now;
    memset(k, 0, sizeof(*k));
    k->phase = KB_CUT_DRAIN;
    k->to = reset_to >= 0 ? reset_to : to;
    k->reset_to = reset_to;
    k->disk_full = disk_full;
    k->done = done;
    k->ctx = ctx;
    log->busy = true;
    kb_compact_cut(log, k->to);
    if (disk_full) kb_log_drop_writes(log);
    return KW_OK;
}

/* A request that does nothing: when nothing else is in flight, its return begins the cut in a later turn. */
static void nudged(struct kb_op *op, struct kb_now now) {
    (void)op;
    (void)now;
}
static void nothing(void *arg, struct kb_fs *fs) {
    (void)arg;
    (void)fs;
}

static kw_err begin(struct kb_log *log, int64_t to, int64_t reset_to, kb_log_done *done, void *ctx, struct kb_now now) {
    if (log->poisoned) return KW_EIO;
    if (log->busy || log->priv->stop) return KW_EBUSY;
    struct kb_op *op = kb_op_new(log, NULL, KB_DISK_JOB, KB_LANE_JOB, nudged);
    if (!op) return KW_ENOMEM;
    op->req.job = nothing;
    kw_err err = kb_cut_start(log, to, reset_to, false, done, ctx, now);
    kb_op_submit(op);
    return err;
}

kw_err kb_log_truncate(struct kb_log *log, int64_t to, kb_log_done *done, void *ctx, struct kb_now now) {
    if (to < log->start || to < 0) return KW_EINVAL;
    return begin(log, to, -1, done, ctx, now);
}

kw_err kb_log_reset(struct kb_log *log, int64_t start, kb_log_done *done, void *ctx, struct kb_now now) {
    if (start < 0) return KW_EINVAL;
    return begin(log, start, start, done, ctx, now);
}
