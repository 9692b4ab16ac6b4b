/* sync.c - makes what was handed to the disk durable: the segments' bytes and the names of new files, then the mark synced moves; and the
 * epochs, then recovery_point follows. One round at a time; a wish during a round starts the next.
 *
 * Called by append, segment, cut, log. A failed fsync poisons the log: the kernel may have dropped the pages, so no retry can be trusted.
 * The epochs are stored a little later than the batches that began them: nothing waits for their file but the recovery point, since above it
 * the batches tell the epochs.
 */
#include "log_priv.h"

#define EPOCHS_DELAY_US 1000000
#define AGAIN_US 100000

static void raise_recovery_point(struct kb_log *log) {
    struct kb_log_private *p = log->priv;
    if (log->epochs->dirty || p->sync.storing) return;
    int64_t point = log->synced;
    for (size_t i = kb_log_seg_at(log, log->recovery_point); i + 1 < p->seg_count; i++)
        if (!p->segs[i]->index_durable) {
            point = KW_MIN(point, p->segs[i]->base);
            break;
        }
    if (point > log->recovery_point) log->recovery_point = point;
}

void kb_recovery_point_step(struct kb_log *log, struct kb_now now) {
    if (log->poisoned || log->priv->closed || log->busy) return;
    raise_recovery_point(log);
    kb_log_submit_writes(log, now);
}

static void finish(struct kb_log *log, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    struct kb_sync_state *y = &p->sync;
    y->running = false;
    if (log->poisoned) return;
    int64_t target = KW_MIN(y->target, log->written);
    if (y->failed) target = log->synced; /* not all of the round could be tried */
    if (target > log->synced) log->synced = target;
    raise_recovery_point(log);
    if (log->synced >= log->leo) p->unsynced_since_us = KW_NEVER;
    else if (!y->failed && !y->names_only) p->unsynced_since_us = now.mono_us;
    kb_log_tell(log, now);
    kb_log_submit_writes(log, now);
    if (!y->failed) kb_sync_step(log);
    else kb_log_again(log);
}

static void part_done(struct kb_log *log, struct kb_now now) {
    if (--log->priv->sync.outstanding == 0) finish(log, now);
}

static void file_synced(struct kb_op *op, struct kb_now now) {
    if (op->req.err) kb_log_poison(op->log, now, "fsync", op->log->dir, op->req.os_errno);
    else if (op->seg->synced_size < op->tag) op->seg->synced_size = op->tag;
    part_done(op->log, now);
}

enum { OF_LOG, OF_PARENT };

static void dir_synced(struct kb_op *op, struct kb_now now) {
    struct kb_log_private *p = op->log->priv;
    bool identity = op->req.op == KB_DISK_WRITE_ATOMIC;
    if (op->req.err == KB_DISK_ENOMEM || (identity && op->req.err == KB_DISK_ENOSPC)) { /* no descriptor, memory or space: nothing was synced */
        if (op->tag == OF_LOG) p->dir_unsynced = true;
        else p->parent_unsynced = true;
        p->sync.failed = true;
    } else if (op->req.err) {
        kb_log_poison(op->log, now, "fsync of the folder", op->path, op->req.os_errno);
    } else if (op->tag == OF_LOG) {
        p->young = false;
        p->names_synced = p->names_syncing;
        if (identity) kw_free(p->identity), p->identity = NULL;
    }
    part_done(op->log, now);
}

/* The same for the folder, and what it holds is told by it from then on. */
static struct kb_op *identity_op(struct kb_log *log) {
    struct kb_log_private *p = log->priv;
    struct kb_op *op = kb_op_new(log, NULL, KB_DISK_WRITE_ATOMIC, KB_LANE_ATOMIC, dir_synced);
    if (!op) return NULL;
    op->tag = OF_LOG;
    op->req.flags = KB_DISK_SYNC_FLAG;
    op->path = kb_log_path(log, "partition.metadata");
    op->bytes = kw_memdup(p->identity, p->identity_size);
    op->iov = (struct kb_iov){op->bytes, p->identity_size};
    if (op->path && op->bytes) return op;
    kb_op_free(op);
    return NULL;
}

static struct kb_op *dir_op(struct kb_log *log, bool parent) {
    if (!parent) log->priv->names_syncing = log->priv->names_made;
    if (!parent && log->priv->identity) return identity_op(log);
    struct kb_op *op = kb_op_new(log, NULL, KB_DISK_SYNC_DIR, KB_LANE_ATOMIC, dir_synced);
    if (!op) return NULL;
    op->tag = parent ? OF_PARENT : OF_LOG;
    op->path = parent ? kb_log_parent(log) : kw_memdup(log->dir, strlen(log->dir) + 1);
    if (op->path) return op;
    kb_op_free(op);
    return NULL;
}

kw_err kb_log_identity(struct kb_log *log, const char *text, size_t n) {
    struct kb_log_private *p = log->priv;
    kw_free(p->identity);
    p->identity = kw_memdup(text, n);
    p->identity_size = n;
    if (!p->identity) return KW_ENOMEM;
    p->dir_unsynced = true;
    return KW_OK;
}

/* ---- The epochs ---- */

static void epochs_stored(struct kb_op *op, struct kb_now now) {
    struct kb_log *log = op->log;
    struct kb_log_private *p = log->priv;
    p->stores--;
    p->sync.storing = false;
    if (op->req.err) {
        log->epochs->dirty = true;
        if (!p->closed) kb_say(log->env->logger, KB_ERROR, "%s: could not be stored (%s); it is tried again", op->path, kb_os_text(op->req.os_errno));
    }
    p->sync.epochs_failed = op->req.err != KB_DISK_OK;
    if (log->poisoned || p->closed) return;
    if (log->epochs->dirty) kb_epochs_later(log, now);
    raise_recovery_point(log);
    kb_log_submit_writes(log, now);
}

static struct kb_op *epochs_op(struct kb_log *log) {
    struct kb_op *op = kb_op_new(log, NULL, KB_DISK_WRITE_ATOMIC, KB_LANE_ATOMIC, epochs_stored);
    struct kw_out out;
    kw_out_init(&out);
    if (op) op->path = kb_log_path(log, "leader-epoch-checkpoint");
    if (!op || !op->path || kb_epochs_encode(log->epochs, &out)) {
        kw_out_deinit(&out);
        kb_op_free(op);
        return NULL;
    }
    op->bytes = out.p;
    op->iov = (struct kb_iov){out.p, out.len};
    op->req.flags = log->env->ephemeral ? 0 : KB_DISK_SYNC_FLAG;
    return op;
}

bool kb_epochs_store(struct kb_log *log) {
    struct kb_log_private *p = log->priv;
    if (log->env->ephemeral || log->poisoned || p->closed || p->sync.storing || !log->epochs->dirty) return false;
    if (log->busy && p->cut.phase != KB_CUT_DRAIN) return false; /* the cut stores them itself */
    struct kb_op *op = epochs_op(log);
    if (!op) return false;
    log->epochs->dirty = false;
    p->sync.storing = true;
    p->stores++;
    kb_op_submit(op);
    return true;
}

/* A new log's second segment waits for its names, and behind a gigabyte of the first that is to be written out they take a second. */
#define NAMES_AT_SIZE (16 << 20)

void kb_sync_names(struct kb_log *log) {
    struct kb_log_private *p = log->priv;
    if (p->segs[0]->written_size < NAMES_AT_SIZE || !p->dir_unsynced || p->sync.running) return;
    if (log->env->ephemeral || log->poisoned || p->closed || log->busy) return;
    struct kb_op *op = dir_op(log, false);
    if (!op) return; /* the second segment asks again */
    p->dir_unsynced = false;
    p->sync.running = p->sync.names_only = true;
    p->sync.failed = false;
    p->sync.target = log->synced;
    p->sync.outstanding = 1;
    kb_op_submit(op);
}

static void epochs_due(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_log *log = ctx;
    (void)t;
    if (!kb_epochs_store(log)) kb_epochs_later(log, (struct kb_now){.mono_us = now_us});
}

static void again_due(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_log *log = ctx;
    struct kb_log_private *p = log->priv;
    (void)t;
    if (log->poisoned || p->stop) return; /* a stop has a timer of its own */
    if (p->sync.failed) p->sync.wanted = true;
    if (p->flush_again) kb_log_flush(log, (struct kb_now){.mono_us = now_us});
    else kb_sync_step(log);
}

void kb_log_again(struct kb_log *log) {
    struct kb_log_private *p = log->priv;
    struct kw_timers *ts = log->env->timers;
    if (log->poisoned || p->closed || kw_timer_armed(&p->again_timer)) return;
    (void)!kw_timers_set(ts, &p->again_timer, ts->now_us + AGAIN_US); /* else the next append or housekeeping tries again */
}

void kb_sync_init_timers(struct kb_log *log) {
    kw_timer_init(&log->priv->epochs_timer, epochs_due, log);
    kw_timer_init(&log->priv->again_timer, again_due, log);
}

void kb_epochs_later(struct kb_log *log, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    if (log->env->ephemeral || log->poisoned || p->closed || !log->epochs->dirty || kw_timer_armed(&p->epochs_timer)) return;
    if (kw_timers_set(log->env->timers, &p->epochs_timer, now.mono_us + EPOCHS_DELAY_US)) (void)!kb_epochs_store(log);
}

/* ---- Rounds ---- */

static struct kb_op *file_op(struct kb_segment *s) {
    struct kb_op *op = kb_op_new(s->log, s, KB_DISK_SYNC, KB_LANE_LOG, file_synced);
    if (!op) return NULL;
    op->req.file = s->file;
    op->tag = s->submitted_size;
    return op;
}

/* false: no memory; or the file is being opened, which comes back to kb_sync_step. */
static bool add_file(struct kb_segment *s, struct kb_op **op, bool *opening) {
    kw_err err = KW_OK;
    if (!s->fresh && kb_seg_file_want(s, &err)) return (*op = file_op(s)) != NULL;
    *opening = err == KW_OK;
    return false;
}

#define ROUND_MAX 8 /* segments of one round: the rest wait for the next */

/* Collects the requests of a round: all or none, so that a failed allocation only postpones it. false: not now. */
static bool collect(struct kb_log *log, struct kb_op **ops, size_t *count, int64_t *target) {
    struct kb_log_private *p = log->priv;
    size_t n = 0, files = 0;
    bool ok = true, opening = false;
    *target = p->submitted;
    for (size_t i = kb_log_seg_at(log, log->synced); i < p->seg_count && ok; i++) {
        struct kb_segment *s = p->segs[i];
        if (s->submitted_size == 0 || s->synced_size >= s->submitted_size) continue;
        if (files == ROUND_MAX) {
            *target = s->base;
            p->sync.wanted = true;
            break;
        }
        ok = add_file(s, &ops[n], &opening);
        if (ok) n++, files++;
    }
    if (ok && p->dir_unsynced) ok = (ops[n] = dir_op(log, false)) != NULL, n += ok;
    if (ok && p->parent_unsynced) ok = (ops[n] = dir_op(log, true)) != NULL, n += ok;
    if (ok && n == 0 && *target > log->synced) { /* all of it is durable already: one more fsync brings the news in a later turn */
        size_t i = p->seg_count - 1;
        while (i > 0 && p->segs[i]->fresh) i--;
        ok = add_file(p->segs[i], &ops[n], &opening);
        n += ok;
    }
    if (!ok)
        while (n) kb_op_free(ops[--n]);
    if (!ok && !opening) kb_log_again(log);
    *count = n;
    return ok;
}

void kb_sync_step(struct kb_log *log) {
    struct kb_log_private *p = log->priv;
    struct kb_sync_state *y = &p->sync;
    if (log->env->ephemeral || log->poisoned || p->closed || y->running || !y->wanted) return;
    if (log->busy && (p->cut.phase != KB_CUT_DRAIN || p->cut.disk_full)) return;
    struct kb_op *ops[ROUND_MAX + 2];
    size_t n;
    int64_t target;
    if (p->submitted <= log->synced && !p->dir_unsynced && !p->parent_unsynced && p->submitted == log->leo) {
        y->wanted = false;
        return;
    }
    y->wanted = false;
    if (!collect(log, ops, &n, &target)) {
        y->wanted = true;
        return;
    }
    if (target < log->leo && log->config->flush_on_ack) y->wanted = true; /* what is not handed over yet */
    if (n == 0) return;
    p->dir_unsynced = p->parent_unsynced = false;
    y->running = true;
    y->failed = y->names_only = false;
    y->target = target;
    y->outstanding = (int32_t)n;
    for (size_t i = 0; i < n; i++) kb_op_submit(ops[i]);
}

kw_err kb_log_sync(struct kb_log *log) {
    if (log->poisoned) return KW_EIO;
    log->priv->sync.wanted = true;
    kb_sync_step(log);
    (void)!kb_epochs_store(log); /* else they come later */
    return KW_OK;
}
