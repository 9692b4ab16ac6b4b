/* store_snapshot.c - writes a snapshot when the log has grown enough, and cuts the log behind it. KIP-630.
 *
 * Called by store.c after each commit. Two snapshots are kept and the log is cut to the older one's end, so that a newest one that turns
 * out corrupt costs nothing.
 */
#include "store_priv.h"

char *kb_store_snapshot_path(const struct kb_store *s, int64_t end, int32_t epoch) {
    char name[KB_SNAPSHOT_NAME_SIZE];
    kb_snapshot_name(end, epoch, name);
    size_t dir = strlen(s->load.meta_dir), n = strlen(name);
    char *path = kw_malloc(dir + 1 + n + 1);
    if (!path) return NULL;
    memcpy(path, s->load.meta_dir, dir);
    path[dir] = '/';
    memcpy(path + dir + 1, name, n + 1);
    return path;
}

static void unlink_done(struct kb_disk_req *r, struct kb_now now) {
    struct kb_store *s = r->ctx;
    (void)now;
    s->snap.unlinking = false;
    if (r->err) kb_say(s->o.env->logger, KB_WARN, "%s: the old metadata snapshot could not be removed (%s)", r->path, kb_os_text(r->os_errno));
    kw_free(s->snap.old_path);
    s->snap.old_path = NULL;
}

/* Two are kept: the one that was the older until now goes, and the log below the one that now is. */
static void drop_older(struct kb_store *s, struct kb_now now) {
    if (s->snapshot_previous >= 0 && !s->snap.unlinking) {
        s->snap.old_path = kb_store_snapshot_path(s, s->snapshot_previous, s->snapshot_previous_epoch);
        if (s->snap.old_path) { /* without memory it stays, and goes unnoticed */
            s->snap.unlink =
                (struct kb_disk_req){.op = KB_DISK_UNLINK, .lane = KB_LANE_ATOMIC, .path = s->snap.old_path, .done = unlink_done, .ctx = s};
            s->snap.unlinking = true;
            kb_disk_submit(s->o.env->disk, &s->snap.unlink);
        }
    }
    s->snapshot_previous = s->snapshot_end;
    s->snapshot_previous_epoch = s->snapshot_epoch;
    if (s->snapshot_previous > s->log->start && !s->log->poisoned) {
        kw_err err = kb_log_raise_start(s->log, s->snapshot_previous, s->o.image->offset + 1, now);
        if (err) kb_say(s->o.env->logger, KB_WARN, "%s: the log could not be cut behind its snapshot", s->load.meta_dir);
    }
}

static void write_done(struct kb_disk_req *r, struct kb_now now) {
    struct kb_store *s = r->ctx;
    s->snap.writing = false;
    if (r->err) {
        kb_say(s->o.env->logger, KB_ERROR,
               "%s: the metadata snapshot could not be written (%s); the log is kept and another is tried later", r->path,
               kb_os_text(r->os_errno));
        s->bytes_since_snapshot = 0;
    } else if (s->state == KB_STORE_READY && s->snap.end > s->snapshot_end) { /* else a leader's later one was taken over meanwhile */
        drop_older(s, now);
        s->snapshot_end = s->snap.end;
        s->snapshot_epoch = s->snap.epoch;
    }
    kw_out_deinit(&s->snap.bytes);
    kw_free(s->snap.path);
    s->snap.path = NULL;
}

void kb_store_snapshot_maybe(struct kb_store *s, struct kb_now now) {
    if (s->state != KB_STORE_READY || s->snap.writing || s->replay.in_transaction) return;
    if (s->bytes_since_snapshot < kb_config_int(s->o.config, "metadata.log.max.record.bytes.between.snapshots")) return;
    struct kb_store_snapshot *p = &s->snap;
    p->end = s->o.image->offset + 1;
    p->epoch = s->o.image->epoch;
    s->bytes_since_snapshot = 0;
    kw_out_init(&p->bytes);
    p->path = kb_store_snapshot_path(s, p->end, p->epoch);
    kw_err err = p->path ? kb_snapshot_encode(s->o.image, s->replay.last_timestamp, now.wall_ms, &p->bytes) : KW_ENOMEM;
    if (err) {
        kb_say(s->o.env->logger, KB_ERROR, "%s: no memory for a metadata snapshot; the log is kept and another is tried later",
               s->load.meta_dir);
        kw_out_deinit(&p->bytes);
        kw_free(p->path);
        p->path = NULL;
        return;
    }
    p->writing = true;
    kb_store_write_file(s, &p->file, p->path, &p->bytes, write_done, s);
}

void kb_store_snapshot_deinit(struct kb_store *s) {
    kw_out_deinit(&s->snap.bytes);
    kw_free(s->snap.path);
    kw_free(s->snap.old_path);
}
