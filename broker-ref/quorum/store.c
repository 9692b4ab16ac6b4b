/* store.c - the metadata log's life: append, commit when synced, apply to the image, tell the node. Contract: store.h.
 *
 * Called by the node and the controller. Loading is in store_load.c, an epoch's first records in store_boot.c, snapshots in store_snapshot.c.
 */
#include "store.h"

#include <stdarg.h>
#include <stdio.h>

#include "raft.h"
#include "store_priv.h"
#include "uuid.h"

static void marks_moved(void *ctx, struct kb_log *log, struct kb_now now);
static void log_failed(void *ctx, struct kb_log *log, struct kb_now now);
static void cut_back(void *ctx, struct kb_log *log, struct kb_now now);
static void sync_again(struct kw_timer *t, void *ctx, int64_t now_us);

#define SYNC_AGAIN_US 100000

static kw_err set_paths(struct kb_store *s) {
    const char *dir = kb_config_log_dir(s->o.config);
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    if (n > 4000) return KW_EINVAL;
    s->load.dir = kw_malloc(n + 1);
    s->load.meta_dir = kw_malloc(n + sizeof("/__cluster_metadata-0"));
    if (!s->load.dir || !s->load.meta_dir) return KW_ENOMEM;
    memcpy(s->load.dir, dir, n);
    s->load.dir[n] = 0;
    memcpy(s->load.meta_dir, dir, n);
    memcpy(s->load.meta_dir + n, "/__cluster_metadata-0", sizeof("/__cluster_metadata-0"));
    return KW_OK;
}

kw_err kb_store_new(const struct kb_store_options *o, struct kb_store **out) {
    struct kb_store *s = kw_calloc(1, sizeof(*s));
    if (!s) return KW_ENOMEM;
    s->o = *o;
    s->owner = (struct kb_log_owner){.marks_moved = marks_moved, .failed = log_failed, .cut_back = cut_back, .ctx = s};
    s->broker_epoch = -1;
    s->snapshot_end = s->snapshot_previous = -1;
    s->load.node_id = (int32_t)kb_config_int(o->config, "node.id");
    s->single = kb_config_is_single(o->config);
    kw_list_init(&s->pending);
    kb_image_init(&s->bootstrap);
    kw_timer_init(&s->sync_again, sync_again, s);
    s->load.single = s->single;
    s->load.rejoin = kb_config_bool(o->config, "controller.quorum.rejoin");
    kb_replay_init(&s->replay, o->image, o->env->compressor, s->single ? s->load.node_id : -1, 0);
    kw_out_init(&s->snap.bytes);
    kw_out_init(&s->vote_bytes);
    struct kb_voter v[KB_VOTERS_MAX];
    s->load.voter_count = kb_config_voters(o->config, v, KB_VOTERS_MAX);
    for (size_t i = 0; i < s->load.voter_count; i++) s->load.voters[i] = v[i].id;
    kw_err err = set_paths(s);
    if (!err && !s->single) err = kb_raft_new(s, &s->raft);
    if (err) {
        kb_store_free(s);
        return err;
    }
    *out = s;
    return KW_OK;
}

static void pending_free(struct kb_pending_batch *b) {
    kw_list_remove(&b->link);
    kw_blk_unref(b->blk);
    kw_free(b);
}

static void pending_drop(struct kb_store *s, struct kb_pending_batch *b) {
    s->pending_bytes -= b->size;
    pending_free(b);
}

static struct kb_pending_batch *pending_of(struct kw_list *l) {
    return KW_CONTAINER_OF(l, struct kb_pending_batch, link);
}

void kb_store_free(struct kb_store *s) {
    if (!s) return;
    kw_timers_cancel(s->o.env->timers, &s->sync_again);
    kb_raft_free(s->raft);
    if (s->reading) kb_read_cancel(&s->read);
    if (s->log) kb_log_free(s->log);
    while (!kw_list_empty(&s->pending)) pending_free(pending_of(s->pending.next));
    kb_replay_deinit(&s->replay);
    kb_image_deinit(&s->bootstrap);
    kb_store_snapshot_deinit(s);
    kw_out_deinit(&s->vote_bytes);
    kw_free(s->vote_path);
    kw_free(s->name_path);
    kw_free(s->load.snapshot);
    kw_free(s->load.dir);
    kw_free(s->load.meta_dir);
    kw_free(s);
}

kw_err kb_store_start(struct kb_store *s, struct kb_now now) {
    (void)now;
    KW_ASSERT(s->state == KB_STORE_NEW);
    kb_uuid_text(kb_uuid_random(s->o.rng), s->load.new_cluster_id);
    s->load.directory_id = kb_uuid_random(s->o.rng);
    s->incarnation = kb_uuid_random(s->o.rng);
    s->state = KB_STORE_LOADING;
    return kb_store_load_start(s);
}

void kb_store_fail(struct kb_store *s, struct kb_now now, const char *fmt, ...) {
    if (s->state == KB_STORE_FAILED || s->state == KB_STORE_STOPPED) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->failure, sizeof(s->failure), fmt, ap);
    va_end(ap);
    bool stopping = s->state == KB_STORE_STOPPING;
    s->state = KB_STORE_FAILED;
    kb_say(s->o.env->logger, KB_ERROR, "%s", s->failure);
    if (!stopping && s->o.ready) s->o.ready(s->o.ctx, KW_EIO, now);
}

/* ---- Append ---- */

kw_err kb_store_append_batch(struct kb_store *s, struct kb_meta_batch *b, bool control, struct kb_now now) {
    struct kb_pending_batch *p = kw_calloc(1, sizeof(*p));
    if (!p) return KW_ENOMEM;
    kw_list_init(&p->link);
    kw_err err = kb_meta_batch_finish(b, control, s->log->leo, s->epoch, now.wall_ms, &p->blk, &p->size);
    if (err) goto fail;
    struct kb_log_append a = {
        .blk = p->blk, .batch = p->blk->data, .size = p->size, .leader_epoch = s->epoch, .max_timestamp = now.wall_ms};
    s->has_written = true;
    err = kb_log_append(s->log, &a, now);
    if (err) goto fail;
    p->data = p->blk->data;
    p->base = a.base_offset;
    p->end = a.last_offset + 1;
    s->pending_bytes += p->size;
    kw_list_push(&s->pending, &p->link);
    s->dirty = true;
    return KW_OK;
fail:
    pending_free(p);
    return err;
}

kw_err kb_store_append(struct kb_store *s, const struct kb_store_record *records, size_t count, int64_t *last_offset, struct kb_now now) {
    if (!kb_store_leads(s)) return KW_EIO;
    struct kb_meta_batch b;
    kb_meta_batch_init(&b);
    kw_err err = KW_OK;
    for (size_t i = 0; !err && i < count; i++) err = kb_meta_batch_add(&b, records[i].type, records[i].version, records[i].message);
    if (!err) err = kb_store_append_batch(s, &b, false, now);
    kb_meta_batch_deinit(&b);
    if (!err) *last_offset = s->log->leo - 1;
    return err;
}

int32_t kb_store_last_known_leaders(const struct kb_store *s) {
    return s->unclean_leads;
}

int64_t kb_store_end(const struct kb_store *s) {
    return s->log->leo;
}

/* The log syncs what it writes (flush_on_ack); should a round of that have failed in a way that may pass, it is asked again a little later. Without
 * memory for the timer the end of a later turn sets it. */
static void sync_later(struct kb_store *s, struct kb_now now) {
    s->sync_unset = s->log->synced < s->log->written && !s->log->poisoned && !kw_timer_armed(&s->sync_again) &&
                    kw_timers_set(s->o.env->timers, &s->sync_again, now.mono_us + SYNC_AGAIN_US) != KW_OK;
}

void kb_store_flush(struct kb_store *s, struct kb_now now) {
    if (s->sync_unset) sync_later(s, now);
    if (!s->dirty || !s->log || s->log->poisoned) return;
    s->dirty = false;
    kb_log_flush(s->log, now); /* and syncs what it writes: flush_on_ack */
}

/* ---- Commit ---- */

static bool apply_batch(struct kb_store *s, struct kb_pending_batch *b, struct kb_now now) {
    size_t used;
    kw_err err = kb_replay_batches(&s->replay, b->data, b->size, &used);
    if (!err) return true;
    kb_store_fail(s, now, "%s: a committed record cannot be applied: %s", s->load.meta_dir, s->replay.why);
    return false;
}

static int64_t commit_end(const struct kb_store *s) {
    return s->raft ? KW_MIN(kb_raft_high_watermark(s->raft), s->log->synced) : s->log->synced;
}

static void caught_up(struct kb_store *s, struct kb_now now) {
    s->catching_up = false;
    s->news = true;
    kb_store_committed(s, now);
}

/* What is committed and not in memory is read: true, and it goes on from there. */
static bool catch_up(struct kb_store *s, int64_t end, struct kb_now now) {
    struct kb_pending_batch *b = kw_list_empty(&s->pending) ? NULL : pending_of(s->pending.next);
    if (!s->raft || s->replay.next >= end || (b && b->base <= s->replay.next)) return false;
    s->catching_up = true;
    kb_store_replay(s, b ? KW_MIN(end, b->base) : end, caught_up, now);
    return true;
}

void kb_store_told(struct kb_store *s, struct kb_now now) {
    s->news = false;
    if (s->state == KB_STORE_STARTING && kw_list_empty(&s->pending)) s->state = KB_STORE_READY;
    if (s->state == KB_STORE_STARTING) return; /* the image is current only with the last of the first batches */
    if (s->o.applied) s->o.applied(s->o.ctx, now);
    if (s->raft) {
        kb_raft_applied(s->raft, now);
    } else if (s->state == KB_STORE_READY && !s->ready_told) {
        s->ready_told = true;
        if (s->o.role) s->o.role(s->o.ctx, true, now);
        if (s->o.ready) s->o.ready(s->o.ctx, KW_OK, now);
    }
    kb_store_snapshot_maybe(s, now);
}

void kb_store_committed(struct kb_store *s, struct kb_now now) {
    if (s->naming || s->catching_up || !s->log) return; /* nothing counts before the folder itself would survive */
    int64_t end = commit_end(s);
    while (s->state != KB_STORE_FAILED) {
        if (catch_up(s, end, now)) return;
        struct kb_pending_batch *b = kw_list_empty(&s->pending) ? NULL : pending_of(s->pending.next);
        if (!b || b->end > end) break;
        if (b->end > s->replay.next) {
            if (!apply_batch(s, b, now)) return;
            s->bytes_since_snapshot += (int64_t)b->size;
            s->news = true;
        }
        pending_drop(s, b);
    }
    if (s->news) kb_store_told(s, now);
}

/* ---- A replica's ---- */

#define PENDING_BYTES_MAX (32u << 20) /* what is not committed for long is read again */

void kb_store_drop_pending(struct kb_store *s, int64_t to) {
    while (!kw_list_empty(&s->pending) && pending_of(s->pending.prev)->end > to) pending_drop(s, pending_of(s->pending.prev));
}

void kb_store_note_pending(struct kb_store *s, struct kw_blk *blk, const uint8_t *p, size_t n, int64_t from) {
    size_t at = 0;
    while (at < n && s->pending_bytes < PENDING_BYTES_MAX) {
        struct kw_batch_header h;
        struct kb_pending_batch *b = kw_calloc(1, sizeof(*b));
        if (!b) return;
        kw_list_init(&b->link);
        if (kw_batch_parse(p + at, n - at, &h)) { /* they were checked and appended */
            kw_free(b);
            return;
        }
        b->blk = kw_blk_ref(blk);
        b->data = p + at;
        b->size = (size_t)h.length + KW_BATCH_OVERHEAD;
        b->base = from;
        b->end = from + h.last_offset_delta + 1;
        from = b->end;
        at += b->size;
        s->pending_bytes += b->size;
        kw_list_push(&s->pending, &b->link);
    }
}

kw_err kb_store_replace_image(struct kb_store *s, struct kb_image *with, int64_t end) {
    int64_t timestamp = s->replay.last_timestamp;
    struct kb_led_by led_by = s->replay.led_by; /* a snapshot tells of no voters: the last that was heard of stays */
    kw_err err = kb_image_replace(s->o.image, with);
    kb_replay_deinit(&s->replay);
    kb_replay_init(&s->replay, s->o.image, s->o.env->compressor, -1, end);
    s->replay.last_timestamp = timestamp;
    s->replay.led_by = led_by;
    s->bytes_since_snapshot = 0;
    s->catching_up = false;
    return err;
}

static void marks_moved(void *ctx, struct kb_log *log, struct kb_now now) {
    struct kb_store *s = ctx;
    (void)log;
    if (s->state == KB_STORE_FAILED) return;
    sync_later(s, now);
    if (s->raft)
        kb_raft_marks_moved(s->raft, now);
    if (s->state != KB_STORE_FAILED) kb_store_committed(s, now);
}

static void sync_again(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_store *s = ctx;
    if (!s->log || s->state == KB_STORE_FAILED || s->log->poisoned || s->log->synced >= s->log->written) return;
    (void)!kw_timers_set(s->o.env->timers, t, now_us + SYNC_AGAIN_US); /* its own place has just become free; this try may fail as well */
    (void)!kb_log_sync(s->log); /* poisoned: log_failed tells */
}

static void log_failed(void *ctx, struct kb_log *log, struct kb_now now) {
    struct kb_store *s = ctx;
    kb_store_fail(s, now, "%s: the metadata log failed: %s", s->load.meta_dir, log->failure);
}

static void cut_back(void *ctx, struct kb_log *log, struct kb_now now) {
    struct kb_store *s = ctx;
    kb_store_drop_pending(s, log->leo);
    if (s->raft) kb_raft_cut_back(s->raft, now);
    if (s->state == KB_STORE_STARTING) {
        kb_store_fail(s, now, "%s: the disk is full: the node cannot take up its epoch; make room and start again", s->load.meta_dir);
        return;
    }
    if (s->o.refused) s->o.refused(s->o.ctx, log->leo, now);
}

/* ---- Stop ---- */

static void stopped(struct kb_store *s, struct kb_now now) {
    if (s->state != KB_STORE_FAILED) s->state = KB_STORE_STOPPED;
    void (*done)(void *, struct kb_now) = s->stop_done;
    s->stop_done = NULL;
    if (done) done(s->stop_ctx, now);
}

static void log_stopped(void *ctx, struct kb_log *log, kw_err err, struct kb_now now) {
    struct kb_store *s = ctx;
    if (err)
        kb_say(s->o.env->logger, KB_WARN, "%s: the metadata log could not be closed cleanly%s%s", s->load.meta_dir,
               log->failure[0] ? ": " : "", log->failure);
    stopped(s, now);
}

void kb_store_stop(struct kb_store *s, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now) {
    s->stop_done = done;
    s->stop_ctx = ctx;
    if (s->state != KB_STORE_FAILED) s->state = KB_STORE_STOPPING;
    if (s->raft) kb_raft_stop(s->raft, now);
    if (!s->log || s->opening || s->log->poisoned) {
        stopped(s, now); /* nothing of it is worth waiting for */
        return;
    }
    if (kb_log_shutdown(s->log, log_stopped, s, now)) stopped(s, now);
}

/* ---- Facts ---- */

const char *kb_store_failure(const struct kb_store *s) {
    return s->state == KB_STORE_FAILED ? s->failure : NULL;
}
const char *kb_store_cluster_id(const struct kb_store *s) {
    return s->load.cluster_id;
}
bool kb_store_has_file(const struct kb_store *s, const struct kb_file *file) {
    return s->log && kb_log_has_file(s->log, file);
}

struct kw_uuid kb_store_directory_id(const struct kb_store *s) {
    return s->load.directory_id;
}
int32_t kb_store_epoch(const struct kb_store *s) {
    return s->epoch;
}
bool kb_store_has_written(const struct kb_store *s) {
    return s->has_written;
}
int64_t kb_store_broker_epoch(const struct kb_store *s) {
    return s->broker_epoch;
}
void kb_store_set_broker_epoch(struct kb_store *s, int64_t broker_epoch) {
    s->broker_epoch = broker_epoch;
}
bool kb_store_is_single(const struct kb_store *s) {
    return s->single;
}
bool kb_store_is_loaded(const struct kb_store *s) {
    return s && s->state == KB_STORE_READY && (!s->raft || kb_raft_is_up(s->raft));
}
bool kb_store_leads(const struct kb_store *s) {
    return s && s->state == KB_STORE_READY && (!s->raft || kb_raft_leads(s->raft));
}
int32_t kb_store_leader(const struct kb_store *s, int32_t *epoch) {
    if (epoch) *epoch = s ? s->epoch : 0;
    if (s && s->raft) return s->state == KB_STORE_READY ? kb_raft_leader(s->raft) : -1;
    return kb_store_leads(s) ? s->load.node_id : -1;
}
void kb_store_resign(struct kb_store *s, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now) {
    KW_ASSERT(s->raft);
    kb_raft_resign(s->raft, done, ctx, now);
}
