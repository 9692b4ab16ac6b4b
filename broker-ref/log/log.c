/* log.c - one partition's log: its life (open, free, shutdown, delete), its marks, and how it fails. See log.h.
 *
 * Called by replica/partition and quorum/store. Calls recover (as a job), segment, sync, cut, retention.
 */
#include "log_priv.h"
#include "recover.h"

#include <inttypes.h>
#include <stdio.h>

struct kb_stop {
    kb_log_done *done;
    void *ctx;
    struct kw_timer timer; /* only to be called in a later turn when there is nothing to wait for */
    struct kb_now now;
    bool stored, timed, tried, epochs_tried;
};

/* ---- What logs share ---- */

void kb_log_env_init(struct kb_log_env *env, struct kb_disk *disk, struct kw_timers *timers, struct kw_compressor *compressor, const struct kb_logger *logger) {
    memset(env, 0, sizeof(*env));
    env->disk = disk;
    env->timers = timers;
    env->compressor = compressor;
    env->logger = logger;
    env->index_memory_max = 8 << 20;
    env->open_files_max = 1024;
    kw_list_init(&env->file_lru);
    kw_list_init(&env->index_lru);
    kw_list_init(&env->spare_writes);
    kw_list_init(&env->doomed);
}

void kb_log_env_deinit(struct kb_log_env *env) {
    kb_write_spare_free(env);
    kb_doomed_free(env);
}

/* ---- Paths ---- */

char *kb_log_path(const struct kb_log *log, const char *name) {
    size_t n = strlen(log->dir) + strlen(name) + 2;
    char *p = kw_malloc(n);
    if (p) snprintf(p, n, "%s/%s", log->dir, name);
    return p;
}

char *kb_seg_path(const struct kb_log *log, int64_t base, const char *suffix) {
    size_t n = strlen(log->dir) + 24 + strlen(suffix);
    char *p = kw_malloc(n);
    if (p) snprintf(p, n, "%s/%020" PRId64 "%s", log->dir, base, suffix);
    return p;
}

char *kb_log_parent(const struct kb_log *log) {
    const char *slash = strrchr(log->dir, '/');
    size_t n = slash ? (size_t)(slash - log->dir) : 1;
    char *p = kw_malloc(n + 2);
    if (!p) return NULL;
    memcpy(p, slash ? log->dir : ".", n);
    if (n == 0) p[n++] = '/';
    p[n] = 0;
    return p;
}

/* ---- Pins and marks ---- */

void kb_log_pin(struct kb_log *log) { log->priv->pins++; }

static void destroy(struct kb_log *log) {
    struct kb_log_private *p = log->priv;
    if (p) {
        KW_ASSERT(kw_list_empty(&p->writes) && kw_list_empty(&p->cursors) && !p->stop && !p->compact);
        kb_removals_free(log);
        if (p->doomed) kb_doomed_start(p->doomed);
        for (size_t i = 0; i < p->seg_count; i++) kb_seg_unref(p->segs[i]);
        kw_free(p->segs);
        kw_free(p->identity);
        kw_free(p->tail.v);
        kw_free(p);
    }
    if (log->epochs) kb_epochs_deinit(log->epochs);
    if (log->pids) kb_pid_state_deinit(log->pids);
    kw_free(log->epochs);
    kw_free(log->pids);
    kw_free(log->dir);
    kw_free(log);
}

void kb_log_unpin(struct kb_log *log) {
    KW_ASSERT(log->priv->pins > 0);
    if (--log->priv->pins == 0) destroy(log);
}

void kb_log_tell(struct kb_log *log, struct kb_now now) {
    if (!log->priv->closed && log->owner.marks_moved) log->owner.marks_moved(log->owner.ctx, log, now);
}

void kb_log_poison(struct kb_log *log, struct kb_now now, const char *what, const char *path, int os_errno) {
    if (log->poisoned) return;
    log->poisoned = true;
    const char *name = strrchr(path, '/');
    snprintf(log->failure, sizeof(log->failure), "%s: %s of %s failed (%s)", log->dir, what, name ? name + 1 : path, kb_os_text(os_errno));
    if (!log->priv->closed && !log->owner.failed) /* its owner says it, and what follows from it */
        kb_say(log->env->logger, KB_ERROR, "%s", log->failure);
    for (size_t i = 0; i < log->priv->seg_count; i++)
        if (log->priv->segs[i]->file) log->priv->segs[i]->file->poisoned = true;
    kb_log_drop_writes(log);
    if (!log->priv->closed && log->owner.failed) log->owner.failed(log->owner.ctx, log, now);
}

size_t kb_log_seg_at(const struct kb_log *log, int64_t offset) {
    size_t lo = 0, hi = log->priv->seg_count; /* bases below lo are <= offset */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (log->priv->segs[mid]->base <= offset) lo = mid + 1;
        else hi = mid;
    }
    return lo ? lo - 1 : 0;
}

bool kb_log_has_file(const struct kb_log *log, const struct kb_file *file) {
    for (size_t i = 0; i < log->priv->seg_count; i++)
        if (log->priv->segs[i]->file == file) return true;
    return false;
}

int64_t kb_log_since(const struct kb_log *log, int64_t wall_ms, int64_t mono_us) {
    for (size_t i = 0; i < log->priv->seg_count; i++) {
        const struct kb_segment *s = log->priv->segs[i];
        if (s->appended_wall_ms >= wall_ms || s->appended_us >= mono_us) return KW_MAX(s->base, log->start);
    }
    return log->leo;
}

void kb_log_advance(struct kb_log *log, int64_t ms) {
    for (size_t i = 0; i < log->priv->seg_count; i++) {
        struct kb_segment *s = log->priv->segs[i];
        if (s->appended_us > INT64_MIN) s->appended_us -= ms * 1000;
    }
}

int64_t kb_log_next_segment(const struct kb_log *log, int64_t offset) {
    size_t i = kb_log_seg_at(log, offset) + 1;
    return i < log->priv->seg_count ? log->priv->segs[i]->base : log->leo;
}

int64_t kb_log_segment_count(const struct kb_log *log) { return (int64_t)log->priv->seg_count; }

/* ---- Open ---- */

struct opening {
    struct kb_disk_req req;
    struct kb_recover recover;
    struct kb_log *log;
    void (*done)(void *ctx, struct kb_log *log, kw_err err, struct kb_now now);
    void *ctx;
};

static void open_run(void *arg, struct kb_fs *fs) { kb_recover_run(&((struct opening *)arg)->recover, fs); }

static void say_notes(struct kb_log *log, const struct kw_out *notes) {
    for (size_t i = 0; i < notes->len;) {
        const char *text = (const char *)notes->p + i + 1;
        kb_say(log->env->logger, (enum kb_level)notes->p[i], "%s", text);
        i += strlen(text) + 2;
    }
}

static struct kb_segment *take_found(struct kb_log *log, struct kb_found *g, bool active, struct kb_now now) {
    struct kb_segment *s = kb_seg_new(log, g->facts.base, now);
    if (!s) return NULL;
    struct kb_facts *f = &g->facts;
    s->fresh = g->mtime_ms < 0;
    s->name_at = 1;
    s->end = KW_MAX(f->end, f->base);
    s->size = s->submitted_size = s->written_size = f->size;
    s->synced_size = g->synced ? f->size : -1;
    s->first_timestamp = f->first_timestamp;
    s->max_timestamp = f->max_timestamp;
    s->max_timestamp_offset = f->max_timestamp_offset;
    if (g->mtime_ms > 0) s->appended_wall_ms = g->mtime_ms; /* one that cannot be asked is as new as can be */
    s->since_index = f->since_index;
    s->batch_size_max = f->batch_size_max;
    s->dense = f->dense;
    s->empties = f->empties;
    s->sealed = !active;
    s->index_durable = g->indexed;
    s->index_state = active || !g->indexed ? KB_PRESENT : KB_ABSENT;
    if (active || !g->indexed) {
        s->offsets = f->offsets;
        s->times = f->times;
        memset(&f->offsets, 0, sizeof(f->offsets));
        memset(&f->times, 0, sizeof(f->times));
    }
    for (size_t i = 0; i < g->checked_count; i++) kb_seg_check_add(s, g->checked[i][0], g->checked[i][1]);
    return s;
}

static kw_err take(struct kb_log *log, struct kb_recover *r, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    if (r->err) return r->err;
    p->segs = kw_malloc((r->seg_count + 4) * sizeof(struct kb_segment *));
    if (!p->segs) return KW_ENOMEM;
    p->seg_cap = r->seg_count + 4;
    for (size_t i = 0; i < r->seg_count; i++) {
        struct kb_segment *s = take_found(log, &r->segs[i], i + 1 == r->seg_count, now);
        if (!s) return KW_ENOMEM;
        p->segs[p->seg_count++] = s;
        log->size_bytes += s->size;
    }
    log->start = r->start;
    log->leo = log->written = p->submitted = r->leo;
    /* Sealed segments are durable: vouched for, or synced by the job. Of the last one nothing is sure after a crash: the checkpoint may be older than
     * a cut below it. */
    bool safe = (r->clean || r->sync) && !r->cut_below_recovery_point;
    p->young = r->emptied;
    log->synced = safe || log->env->ephemeral ? r->leo : KW_MIN(r->segs[r->seg_count - 1].facts.base, r->leo);
    if (safe) {
        struct kb_segment *active = kb_log_active(log);
        active->synced_size = active->size;
    }
    log->recovery_point = KW_MIN(log->synced, KW_MAX(r->recovery_point, 0));
    p->sync.wanted = log->synced < log->leo;
    p->unsynced_since_us = log->synced < log->leo ? now.mono_us : KW_NEVER;
    p->dir_unsynced = !r->clean && !r->names_synced;
    p->whole = r->whole;
    p->names_made = 1;
    p->names_synced = p->dir_unsynced ? 0 : 1;
    p->parent_unsynced = r->created || (!r->clean && !r->names_synced);
    p->last_pid_offset = r->last_pid_offset;
    p->start_snapshot = r->snapshot_kept;
    *log->epochs = r->epochs;
    *log->pids = r->pids;
    kb_epochs_init(&r->epochs);
    kb_pid_state_init(&r->pids);
    struct kb_pid_entry *e;
    for (size_t it = 0; (e = kw_map_next(&log->pids->by_pid, &it));)
        if (e->last_timestamp < 0) e->last_timestamp = now.wall_ms; /* replayed: expiry counts from now */
    kb_recovery_point_step(log, now);
    return KW_OK;
}

static void opened(struct kb_disk_req *req, struct kb_now now) {
    struct opening *o = KW_CONTAINER_OF(req, struct opening, req);
    struct kb_log *log = o->log;
    say_notes(log, &o->recover.notes);
    kw_err err = req->err ? KW_EIO : take(log, &o->recover, now);
    kb_recover_deinit(&o->recover);
    if (err) {
        if (err != KW_ECRC)
            kb_say(log->env->logger, KB_ERROR, "%s: the log cannot be opened: %s", log->dir,
                   req->err ? kb_disk_text(req->err) : err == KW_ENOMEM ? "out of memory" : "what its folder holds cannot be used, or not be mended");
        kb_log_free(log);
        log = NULL;
    }
    if (log) kb_log_pin(log);
    o->done(o->ctx, log, err, now);
    if (log) {
        kb_epochs_later(log, now);
        kb_sync_step(log);
        kb_log_unpin(log);
    }
    kw_free(o);
}

kw_err kb_log_open(const struct kb_log_open *in) {
    struct opening *o = kw_calloc(1, sizeof(*o));
    struct kb_log *log = kw_calloc(1, sizeof(*log));
    if (!o || !log) goto fail;
    log->env = in->env;
    log->config = in->config;
    log->owner = in->owner;
    log->hold_from = INT64_MAX;
    log->dir = kw_memdup(in->dir, strlen(in->dir) + 1);
    log->epochs = kw_malloc(sizeof(*log->epochs));
    log->pids = kw_malloc(sizeof(*log->pids));
    log->priv = kw_calloc(1, sizeof(*log->priv));
    if (log->epochs) kb_epochs_init(log->epochs);
    if (log->pids) kb_pid_state_init(log->pids);
    if (!log->priv) goto fail;
    kw_list_init(&log->priv->writes);
    kw_list_init(&log->priv->fresh);
    kw_list_init(&log->priv->cursors);
    kw_list_init(&log->priv->removals);
    kb_sync_init_timers(log);
    if (!log->dir || !log->epochs || !log->pids) goto fail;
    log->priv->pins = 1;
    log->priv->unsynced_since_us = KW_NEVER;
    kb_recover_init(&o->recover);
    o->recover.dir = log->dir;
    o->recover.create = in->create;
    o->recover.clean = in->clean;
    o->recover.whole = in->whole;
    o->recover.identity = in->identity;
    o->recover.sync = in->config->flush_on_ack && !in->env->ephemeral;
    o->recover.start_checkpoint = in->start_checkpoint;
    o->recover.recovery_point = in->recovery_point;
    o->recover.interval = in->config->index_interval_bytes;
    o->recover.others = in->others;
    o->recover.compacted = in->config->compact_policy;
    o->recover.killed = in->killed;
    o->recover.committed = in->committed;
    o->log = log;
    o->done = in->done;
    o->ctx = in->ctx;
    o->req.op = KB_DISK_JOB;
    o->req.lane = KB_LANE_JOB;
    o->req.job = open_run;
    o->req.job_arg = o;
    o->req.done = opened;
    kb_disk_submit(in->env->disk, &o->req);
    return KW_OK;
fail:
    if (log) destroy(log);
    kw_free(o);
    return KW_ENOMEM;
}

void kb_log_config_set(struct kb_log *log, const struct kb_log_config *config, struct kb_now now) {
    (void)now;
    log->config = config;
    log->uncleanable = false; /* it may be another now: tried once more */
}

void kb_log_free(struct kb_log *log) {
    struct kb_log_private *p = log->priv;
    p->closed = true;
    kb_compact_drop(log);
    kb_log_drop_writes(log);
    kw_timers_cancel(log->env->timers, &p->epochs_timer);
    kw_timers_cancel(log->env->timers, &p->again_timer);
    if (p->stop) {
        kw_timers_cancel(log->env->timers, &p->stop->timer);
        kw_free(p->stop);
        p->stop = NULL;
    }
    for (size_t i = 0; i < p->seg_count; i++) { /* out of the shared caches now; handles close behind what is in flight */
        kb_seg_forget(p->segs[i]);
    }
    kb_log_unpin(log);
}

/* ---- Shutdown: everything queued is written, indexes and snapshot stored, everything synced ---- */


static void stop_end(struct kb_log *log, kw_err err, struct kb_now now) {
    struct kb_stop *s = log->priv->stop;
    log->priv->stop = NULL;
    kw_timers_cancel(log->env->timers, &s->timer);
    kb_log_done *done = s->done;
    void *ctx = s->ctx;
    kw_free(s);
    done(ctx, log, err, now);
}

static void stop_store(struct kb_log *log) {
    struct kb_segment *s = kb_log_active(log);
    for (size_t i = 0; i + 1 < log->priv->seg_count; i++) kb_seg_store_again(log->priv->segs[i]);
    if (s->fresh && s->size == 0) return; /* never had a file */
    kb_seg_last_time(s);
    if (kb_seg_store_index(s)) kb_say(log->env->logger, KB_WARN, "%s: out of memory to store the index; the next start rebuilds it", log->dir);
    if (kb_log_snapshot(log, log->leo)) kb_say(log->env->logger, KB_WARN, "%s: out of memory to store the producer snapshot; the next start replays", log->dir);
}

/* The next start believes the index files: an older one under that name must not pass for one of now. */
static bool indexes_durable(const struct kb_log *log) {
    for (size_t i = 0; i < log->priv->seg_count; i++) {
        const struct kb_segment *s = log->priv->segs[i];
        if (!s->index_durable && !(s->fresh && s->size == 0)) return false;
    }
    return true;
}

/* Twice in vain, on a full disk: the next start recovers. */
static void stop_sync(struct kb_log *log, struct kb_now now) {
    struct kb_stop *s = log->priv->stop;
    if (s->tried && log->priv->sync.failed) {
        stop_end(log, KW_EIO, now);
        return;
    }
    s->tried = true;
    log->priv->sync.wanted = true;
    kb_sync_step(log);
}

static void stop_try(struct kb_log *log, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    struct kb_stop *s = p->stop;
    if (log->poisoned) {
        if (!p->sync.running && !p->stores && kw_list_empty(&p->writes)) stop_end(log, KW_EIO, now);
        return;
    }
    if (!kb_compact_halt(log, now) || log->busy) return;
    if (!kw_list_empty(&p->writes)) {
        kb_log_submit_writes(log, now);
        if (!p->sync.running && p->sync.failed && p->young) stop_sync(log, now); /* they wait for a sync that failed */
        return;
    }
    if (kb_log_active(log)->fresh && kb_log_active(log)->file_state == KB_LOADING) return; /* retention has it made: then it has indexes, too */
    if (!s->stored) {
        s->stored = true;
        stop_store(log);
    }
    if (p->stores || p->sync.running) return;
    if (!log->env->ephemeral && log->epochs->dirty) {
        if ((s->epochs_tried && p->sync.epochs_failed) || !kb_epochs_store(log)) stop_end(log, KW_EIO, now);
        else s->epochs_tried = true;
        return;
    }
    if (!log->env->ephemeral && (log->synced < log->leo || p->dir_unsynced || p->parent_unsynced)) {
        stop_sync(log, now);
        return;
    }
    stop_end(log, log->env->ephemeral || indexes_durable(log) ? KW_OK : KW_EIO, now);
}

/* What could not be begun for want of memory is tried again: nothing in flight would come back to it. */
#define STOP_RETRY_US 50000

void kb_stop_step(struct kb_log *log, struct kb_now now) {
    struct kb_stop *s = log->priv->stop;
    if (!s || !s->timed) return;
    kb_log_pin(log);
    stop_try(log, now);
    if (log->priv->stop == s && !kw_timer_armed(&s->timer) && kw_timers_set(log->env->timers, &s->timer, now.mono_us + STOP_RETRY_US))
        stop_end(log, KW_EIO, now);
    kb_log_unpin(log);
}

static void stop_turn(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    struct kb_log *log = ctx;
    log->priv->stop->timed = true;
    kb_stop_step(log, (struct kb_now){now_us, log->priv->stop->now.wall_ms + (now_us - log->priv->stop->now.mono_us) / 1000});
}

kw_err kb_log_shutdown(struct kb_log *log, void (*done)(void *ctx, struct kb_log *log, kw_err err, struct kb_now now), void *ctx, struct kb_now now) {
    if (log->priv->stop) return KW_EBUSY;
    struct kb_stop *s = kw_calloc(1, sizeof(*s));
    if (!s) return KW_ENOMEM;
    s->done = done;
    s->ctx = ctx;
    s->now = now;
    kw_timer_init(&s->timer, stop_turn, log);
    kw_err err = kw_timers_set(log->env->timers, &s->timer, now.mono_us);
    if (err) {
        kw_free(s);
        return err;
    }
    log->priv->stop = s;
    return KW_OK;
}
