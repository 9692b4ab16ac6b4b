/* retention.c - what leaves a log at its start: by time, by size, by DeleteRecords; and whole logs that are deleted.
 *
 * Segments go oldest first, each durably before the next, so that after any crash what is left is a suffix. Called by log's users through
 * log.h. Calls segment, append (roll), the disk. KIP-107.
 */
#include "log_priv.h"

#include <stdio.h>

/* ---- Segments ---- */

struct removal {
    struct kw_list link;
    struct kb_segment *seg;
    int step; /* of the chain below */
};

static void remove_next(struct kb_log *log);

enum { REMOVE_RENAME, REMOVE_UNLINK_LOG, REMOVE_UNLINK_INDEX, REMOVE_UNLINK_TIMES, REMOVE_UNLINK_TXN, REMOVE_UNLINK_SNAPSHOT, REMOVE_END };
static const char *const removal_suffix[] = {".log", ".log.deleted", ".index", ".timeindex", ".txnindex", ".snapshot"};

static void removed(struct kb_op *op, struct kb_now now) {
    (void)now;
    struct kb_log *log = op->log;
    struct removal *m = KW_CONTAINER_OF(log->priv->removals.next, struct removal, link);
    log->priv->removing = false;
    if (op->req.err && op->req.err != KB_DISK_ENOENT) {
        kb_say(log->env->logger, KB_WARN, "%s: could not be removed (%s); the next start tries again", op->path, kb_os_text(op->req.os_errno));
        m->step = REMOVE_END; /* what is left of it is below the log start */
    } else {
        m->step++;
    }
    if (m->step == REMOVE_END) {
        kw_list_remove(&m->link);
        kb_seg_unref(m->seg);
        kw_free(m);
    }
    remove_next(log);
}

static void remove_next(struct kb_log *log) {
    struct kb_log_private *p = log->priv;
    if (p->removing || kw_list_empty(&p->removals)) return;
    struct removal *m = KW_CONTAINER_OF(p->removals.next, struct removal, link);
    bool rename = m->step == REMOVE_RENAME;
    struct kb_op *op = kb_op_new(log, m->seg, rename ? KB_DISK_RENAME : KB_DISK_UNLINK, KB_LANE_ATOMIC, removed);
    if (op) op->path = kb_seg_path(log, m->seg->base, removal_suffix[m->step]);
    if (op && rename) op->path2 = kb_seg_path(log, m->seg->base, ".log.deleted");
    if (!op || !op->path || (rename && !op->path2)) {
        kb_op_free(op);
        return; /* housekeeping tries again */
    }
    op->req.flags = log->env->ephemeral ? 0 : KB_DISK_SYNC_FLAG;
    p->removing = true;
    kb_op_submit(op);
}

void kb_removals_free(struct kb_log *log) { /* what is left of them is below the log start: the next start removes it */
    for (struct kw_list *l; (l = kw_list_shift(&log->priv->removals));) {
        struct removal *m = KW_CONTAINER_OF(l, struct removal, link);
        kb_seg_unref(m->seg);
        kw_free(m);
    }
}

/* Drops the oldest segment. Readers that hold its handle read on. */
static kw_err drop_oldest(struct kb_log *log) {
    struct kb_log_private *p = log->priv;
    struct removal *m = kw_calloc(1, sizeof(*m));
    if (!m) return KW_ENOMEM;
    struct kb_segment *s = p->segs[0];
    m->seg = s;
    kw_list_push(&p->removals, &m->link);
    memmove(p->segs, p->segs + 1, --p->seg_count * sizeof(struct kb_segment *));
    log->size_bytes -= s->size;
    kb_seg_mark_gone(s);
    kb_seg_forget(s);
    log->start = KW_MAX(log->start, p->segs[0]->base);
    remove_next(log);
    return KW_OK;
}

/* Where a log ends its files say: the last that does goes when the next one is there for good, be it empty. Else a start would find nothing, and offsets
 * that were given would be given again. */
static bool is_there(struct kb_log *log, struct kb_segment *s) {
    struct kb_log_private *p = log->priv;
    kw_err err;
    if (!s->fresh && (log->env->ephemeral || s->name_at <= p->names_synced)) return true;
    if (p->stop) return false;
    if (s->fresh && (!p->young || log->env->ephemeral)) (void)kb_seg_file_want(s, &err); /* what fails is tried again with the next look */
    p->sync.wanted = true;
    kb_sync_step(log);
    return false;
}

static int32_t drop_while(struct kb_log *log, int64_t hw, struct kb_now now, bool (*due)(const struct kb_log *, const struct kb_segment *, struct kb_now)) {
    struct kb_log_private *p = log->priv;
    int32_t n = 0;
    if (p->compact) return 0; /* it reads them: next time */
    while (due(log, p->segs[0], now)) {
        struct kb_segment *s = p->segs[0];
        int64_t end = p->seg_count > 1 ? p->segs[1]->base : log->leo;
        if (end > hw || s->size != s->written_size) break; /* never above the high watermark */
        if (p->seg_count == 1) {
            if (s->size == 0 || kb_log_roll(log, log->leo, now)) break; /* an expired active segment is rolled first */
        }
        if (!is_there(log, p->segs[1]) || s->index_ops) break; /* it is being made, or its index is being stored: next time */
        if (drop_oldest(log)) break;
        n++;
    }
    return n;
}

static bool expired(const struct kb_log *log, const struct kb_segment *s, struct kb_now now) {
    int64_t ms = log->config->retention_ms;
    int64_t end = log->priv->seg_count > 1 ? log->priv->segs[1]->base : log->leo; /* of the first, which this is */
    if (end > log->hold_from) return false;
    return log->config->delete_policy && ms >= 0 && now.wall_ms - kb_seg_newest(s) > ms;
}

static bool too_much(const struct kb_log *log, const struct kb_segment *s, struct kb_now now) {
    (void)now;
    int64_t max = log->config->retention_bytes;
    return log->config->delete_policy && max >= 0 && log->size_bytes - s->size >= max;
}

static bool below_start(const struct kb_log *log, const struct kb_segment *s, struct kb_now now) {
    (void)s;
    (void)now;
    return log->priv->seg_count > 1 && log->priv->segs[1]->base <= log->start;
}

bool kb_log_has_due(const struct kb_log *log, int64_t hw, struct kb_now now) {
    const struct kb_segment *s = log->priv->segs[0];
    int64_t end = log->priv->seg_count > 1 ? log->priv->segs[1]->base : log->leo;
    if (log->poisoned || log->priv->stop || end > hw || (log->priv->seg_count == 1 && s->size == 0)) return false;
    return expired(log, s, now) || too_much(log, s, now) || below_start(log, s, now);
}

int32_t kb_log_housekeep(struct kb_log *log, int64_t hw, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    if (log->poisoned || log->busy || p->stop) return 0;
    int64_t start = log->start;
    kb_compact_again(log);
    remove_next(log);
    int32_t n = drop_while(log, hw, now, expired) + drop_while(log, hw, now, too_much) + drop_while(log, hw, now, below_start);
    if (log->start != start) kb_epochs_truncate_start(log->epochs, log->start);
    kb_epochs_later(log, now);
    int64_t flush_ms = log->config->flush_ms;
    bool limited = flush_ms >= 0 && flush_ms < INT64_MAX / 1000 && p->unsynced_since_us != KW_NEVER;
    bool old = limited && now.mono_us - p->unsynced_since_us >= flush_ms * 1000;
    if (old || p->sync.failed) p->sync.wanted = true;
    if (p->flush_again) kb_log_flush(log, now);
    for (size_t i = 0; i + 1 < p->seg_count; i++) kb_seg_store_again(p->segs[i]); /* a full disk, most likely */
    kb_sync_step(log);
    return n;
}

void kb_log_expire_producers(struct kb_log *log, struct kb_now now) {
    if (log->poisoned || log->busy || log->priv->stop || log->config->producer_expiration_ms <= 0) return;
    kb_pid_expire(log->pids, now.wall_ms - log->config->producer_expiration_ms);
}

kw_err kb_log_raise_start(struct kb_log *log, int64_t start, int64_t hw, struct kb_now now) {
    if (log->poisoned) return KW_EIO;
    if (log->busy) return KW_EBUSY;
    if (start > hw || start > log->leo) return KW_EINVAL;
    if (start <= log->start) return KW_OK;
    log->start = start;
    drop_while(log, hw, now, below_start);
    kb_epochs_truncate_start(log->epochs, log->start);
    kb_epochs_later(log, now);
    return KW_OK;
}

/* ---- Whole logs ---- */

struct kb_doomed { /* a renamed folder that waits for its delay */
    struct kw_list link;
    struct kb_disk_req req;
    struct kw_timer timer;
    struct kb_log_env *env;
    int64_t delay_us;
    char *path, *path2;
    kb_log_gone *gone;
    void *ctx;
};

static void doomed_free(struct kb_doomed *d) {
    kw_list_remove(&d->link);
    kw_timers_cancel(d->env->timers, &d->timer);
    kw_free(d->path);
    kw_free(d->path2);
    kw_free(d);
}

void kb_doomed_free(struct kb_log_env *env) { /* the next start removes the folders */
    while (!kw_list_empty(&env->doomed)) doomed_free(KW_CONTAINER_OF(env->doomed.next, struct kb_doomed, link));
}

void kb_log_env_advance(struct kb_log_env *env, int64_t ms) {
    env->ahead_ms += ms;
    for (struct kw_list *l = env->doomed.next; l != &env->doomed; l = l->next)
        kw_timers_hasten(env->timers, &KW_CONTAINER_OF(l, struct kb_doomed, link)->timer, ms * 1000);
}

static void folder_unlinked(struct kb_disk_req *r, struct kb_now now) {
    (void)now;
    struct kb_doomed *d = KW_CONTAINER_OF(r, struct kb_doomed, req);
    if (r->err) kb_say(d->env->logger, KB_WARN, "%s: could not be removed (%s); the next start tries again", d->path2, kb_os_text(r->os_errno));
    doomed_free(d);
}

static void folder_due(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    struct kb_doomed *d = ctx;
    memset(&d->req, 0, sizeof(d->req));
    d->req.op = KB_DISK_UNLINK;
    d->req.lane = KB_LANE_ATOMIC;
    d->req.flags = KB_DISK_RECURSIVE;
    d->req.path = d->path2;
    d->req.done = folder_unlinked;
    kb_disk_submit(d->env->disk, &d->req);
}

static void folder_renamed(struct kb_disk_req *r, struct kb_now now) {
    struct kb_doomed *d = KW_CONTAINER_OF(r, struct kb_doomed, req);
    kb_log_gone *gone = d->gone;
    void *ctx = d->ctx;
    if (r->err && r->err != KB_DISK_ENOENT)
        kb_say(d->env->logger, KB_ERROR, "%s: could not be renamed for deletion (%s)", d->path, kb_os_text(r->os_errno));
    if (r->err || kw_timers_set(d->env->timers, &d->timer, now.mono_us + d->delay_us)) doomed_free(d); /* the next start removes what was renamed */
    if (gone) gone(ctx, now);
}

/* The new name is as long as Kafka makes it: a file name has 255 bytes. */
static kw_err doomed_new(struct kb_log_env *env, const char *dir, const uint8_t uuid[16], struct kb_doomed **out) {
    struct kb_doomed *d = kw_calloc(1, sizeof(*d));
    size_t n = strlen(dir);
    if (!d) return KW_ENOMEM;
    kw_list_init(&d->link);
    kw_timer_init(&d->timer, folder_due, d);
    d->env = env;
    d->path = kw_memdup(dir, n + 1);
    d->path2 = kw_malloc(n + 64);
    if (!d->path || !d->path2) {
        doomed_free(d);
        return KW_ENOMEM;
    }
    const char *slash = strrchr(dir, '/');
    size_t name = slash ? n - (size_t)(slash - dir) - 1 : n;
    if (name > 255 - 40) n -= name - (255 - 40);
    memcpy(d->path2, dir, n);
    char *p = d->path2 + n;
    *p++ = '.';
    for (int i = 0; i < 16; i++, p += 2) snprintf(p, 3, "%02x", uuid[i]);
    memcpy(p, "-delete", 8);
    *out = d;
    return KW_OK;
}

static void promise(struct kb_doomed *d, int64_t delay_ms, kb_log_gone *gone, void *ctx) {
    d->delay_us = delay_ms * 1000;
    d->gone = gone;
    d->ctx = ctx;
}

void kb_doomed_start(struct kb_doomed *d) {
    kw_list_push(&d->env->doomed, &d->link);
    d->req.op = KB_DISK_RENAME;
    d->req.lane = KB_LANE_ATOMIC;
    d->req.flags = d->env->ephemeral ? 0 : KB_DISK_SYNC_FLAG;
    d->req.path = d->path;
    d->req.path2 = d->path2;
    d->req.done = folder_renamed;
    kb_disk_submit(d->env->disk, &d->req);
}

kw_err kb_log_delete_folder(struct kb_log_env *env, const char *dir, int64_t delay_ms, const uint8_t uuid[16], kb_log_gone *gone, void *ctx) {
    struct kb_doomed *d;
    kw_err err = doomed_new(env, dir, uuid, &d);
    if (err) return err;
    promise(d, delay_ms, gone, ctx);
    kb_doomed_start(d);
    return KW_OK;
}

kw_err kb_log_delete(struct kb_log *log, const uint8_t uuid[16], kb_log_gone *gone, void *ctx, struct kb_now now) {
    (void)now;
    struct kb_doomed *d;
    kw_err err = doomed_new(log->env, log->dir, uuid, &d);
    if (err) return err;
    promise(d, log->config->file_delete_delay_ms, gone, ctx);
    log->priv->doomed = d; /* begins when nothing of the log is in flight: an open that came late would make a file in its successor's folder */
    kb_log_free(log);
    return KW_OK;
}
