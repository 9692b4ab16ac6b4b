/* snapshot.c - the image as a file: `<end offset>-<epoch>.checkpoint`, a header control record, the image's records, a footer. KIP-630.
 *
 * Called by store_load.c (names, loading) and store.c (writing when the log has grown). The end offset is exclusive: the image holds
 * everything below it. Two snapshots are kept and the log is cut to the older one's end, so that one that turns out corrupt costs nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kw_messages.h"
#include "store_priv.h"

#define SNAPSHOT_BATCH_SIZE (256u << 10)

void kb_snapshot_name(int64_t end, int32_t epoch, char name[KB_SNAPSHOT_NAME_SIZE]) {
    snprintf(name, KB_SNAPSHOT_NAME_SIZE, "%020lld-%010d.checkpoint", (long long)end, (int)epoch);
}

bool kb_snapshot_name_parse(const char *name, int64_t *end, int32_t *epoch) {
    char again[KB_SNAPSHOT_NAME_SIZE];
    if (strlen(name) != 20 + 1 + 10 + 11) return false;
    long long e = strtoll(name, NULL, 10), p = strtoll(name + 21, NULL, 10);
    if (e < 0 || p < 0 || p > INT32_MAX) return false;
    kb_snapshot_name(e, (int32_t)p, again);
    if (strcmp(again, name) != 0) return false;
    *end = e;
    *epoch = (int32_t)p;
    return true;
}

/* ---- Reading ---- */

static bool is_control_of(const uint8_t *p, size_t size, uint16_t type) {
    struct kw_batch_header h;
    struct kw_record_iter it;
    struct kw_record_view v;
    if (kw_batch_parse(p, size, &h) || !(h.attributes & KW_ATTR_CONTROL) || (h.attributes & KW_ATTR_CODEC)) return false;
    kw_record_iter_init(&it, &h, p + KW_BATCH_HEADER_SIZE, size - KW_BATCH_HEADER_SIZE);
    return kw_record_next(&it, &v) == 1 && v.key.len >= 4 && kw_load16(v.key.p + 2) == type;
}

bool kb_snapshot_whole(const uint8_t *p, size_t n) {
    size_t at = 0;
    bool footer = false;
    while (at < n) {
        int64_t size = kw_batch_size_peek(p + at, n - at);
        if (size < KW_BATCH_HEADER_SIZE || (uint64_t)size > n - at || !kw_batch_crc_ok(p + at, (size_t)size)) return false;
        if (at == 0 && !is_control_of(p, (size_t)size, KB_CONTROL_SNAPSHOT_HEADER)) return false;
        footer = is_control_of(p + at, (size_t)size, KB_CONTROL_SNAPSHOT_FOOTER);
        at += (size_t)size;
    }
    return footer;
}

kw_err kb_snapshot_load(const uint8_t *p, size_t n, int64_t end, int32_t epoch, int32_t node_id, struct kw_compressor *compressor, struct kb_image *image,
                        char *why, size_t why_size) {
    struct kb_replay r;
    size_t used;
    kb_replay_init(&r, image, compressor, node_id, 0);
    kw_err err = kb_replay_batches(&r, p, n, &used);
    if (err) {
        snprintf(why, why_size, "%s", r.why);
    } else if (used != n || !r.footer_last || !(r.control_seen & 1 << KB_CONTROL_SNAPSHOT_HEADER) || r.in_transaction) {
        snprintf(why, why_size, "it is not whole");
        err = KW_EDECODE;
    } else {
        image->offset = end - 1;
        image->epoch = epoch;
    }
    kb_replay_deinit(&r);
    return err;
}

/* ---- Writing ---- */

struct writer {
    struct kb_meta_batch batch;
    struct kw_out *out;
    int64_t next, wall_ms;
    int32_t epoch;
};

static kw_err write_batch(struct writer *w, bool control) {
    struct kw_blk *blk;
    size_t size;
    if (w->batch.count == 0) return KW_OK;
    int32_t count = w->batch.count;
    kw_err err = kb_meta_batch_finish(&w->batch, control, w->next, w->epoch, w->wall_ms, &blk, &size);
    if (err) return err;
    w->next += count;
    kw_out_bytes(w->out, blk->data, size);
    kw_blk_unref(blk);
    return w->out->err;
}

static kw_err write_record(void *ctx, int16_t type, int16_t version, const void *record) {
    struct writer *w = ctx;
    kw_err err = w->batch.body.len >= SNAPSHOT_BATCH_SIZE ? write_batch(w, false) : KW_OK;
    return err ? err : kb_meta_batch_add(&w->batch, type, version, record);
}

kw_err kb_snapshot_encode(const struct kb_image *image, int64_t last_timestamp, int64_t wall_ms, struct kw_out *out) {
    struct writer w = {.out = out, .wall_ms = wall_ms, .epoch = image->epoch};
    struct kw_snapshot_header_record header;
    struct kw_snapshot_footer_record footer;
    kw_msg_init(&kw_snapshot_header_record_desc, &header);
    kw_msg_init(&kw_snapshot_footer_record_desc, &footer);
    header.last_contained_log_timestamp = last_timestamp;
    kb_meta_batch_init(&w.batch);
    kw_err err = kb_meta_batch_add_control(&w.batch, KB_CONTROL_SNAPSHOT_HEADER, &kw_snapshot_header_record_desc, 0, &header);
    if (!err) err = write_batch(&w, true);
    if (!err) err = kb_image_emit(image, write_record, &w);
    if (!err) err = write_batch(&w, false);
    if (!err) err = kb_meta_batch_add_control(&w.batch, KB_CONTROL_SNAPSHOT_FOOTER, &kw_snapshot_footer_record_desc, 0, &footer);
    if (!err) err = write_batch(&w, true);
    kb_meta_batch_deinit(&w.batch);
    return err;
}

static char *snapshot_path(const struct kb_store *s, int64_t end, int32_t epoch) {
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
    if (r->err) kb_say(s->o.env->logger, KB_WARN, "%s: the old metadata snapshot could not be removed (error %d)", r->path, r->os_errno);
    kw_free(s->snap.old_path);
    s->snap.old_path = NULL;
}

/* Two are kept: the one that was the older until now goes, and the log below the one that now is. */
static void drop_older(struct kb_store *s, struct kb_now now) {
    if (s->snapshot_previous >= 0 && !s->snap.unlinking) {
        s->snap.old_path = snapshot_path(s, s->snapshot_previous, s->snapshot_previous_epoch);
        if (s->snap.old_path) { /* without memory it stays, and goes unnoticed */
            s->snap.unlink = (struct kb_disk_req){.op = KB_DISK_UNLINK, .lane = KB_LANE_ATOMIC, .path = s->snap.old_path, .done = unlink_done, .ctx = s};
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
        kb_say(s->o.env->logger, KB_ERROR, "%s: the metadata snapshot could not be written (error %d); the log is kept and another is tried later", r->path,
               r->os_errno);
        s->bytes_since_snapshot = 0;
    } else if (s->state == KB_STORE_READY) {
        drop_older(s, now);
        s->snapshot_end = s->snap.end;
        s->snapshot_epoch = s->snap.epoch;
    }
    kw_out_deinit(&s->snap.bytes);
    kw_free(s->snap.path);
    s->snap.path = NULL;
}

void kb_store_snapshot_maybe(struct kb_store *s, struct kb_now now) {
    int64_t limit = kb_config_int(s->o.config, "metadata.log.max.record.bytes.between.snapshots");
    if (s->state != KB_STORE_READY || s->snap.writing || s->bytes_since_snapshot < limit || s->replay.in_transaction) return;
    struct kb_store_snapshot *p = &s->snap;
    p->end = s->o.image->offset + 1;
    p->epoch = s->o.image->epoch;
    s->bytes_since_snapshot = 0;
    kw_out_init(&p->bytes);
    p->path = snapshot_path(s, p->end, p->epoch);
    kw_err err = p->path ? kb_snapshot_encode(s->o.image, s->replay.last_timestamp, now.wall_ms, &p->bytes) : KW_ENOMEM;
    if (err) {
        kb_say(s->o.env->logger, KB_ERROR, "%s: no memory for a metadata snapshot; the log is kept and another is tried later", s->load.meta_dir);
        kw_out_deinit(&p->bytes);
        kw_free(p->path);
        p->path = NULL;
        return;
    }
    p->iov = (struct kb_iov){p->bytes.p, p->bytes.len};
    p->write = (struct kb_disk_req){
        .op = KB_DISK_WRITE_ATOMIC, .lane = KB_LANE_ATOMIC, .flags = s->o.env->ephemeral ? 0 : KB_DISK_SYNC_FLAG, .path = p->path, .iov = &p->iov, .iov_count = 1,
        .done = write_done, .ctx = s};
    p->writing = true;
    kb_disk_submit(s->o.env->disk, &p->write);
}

void kb_store_snapshot_deinit(struct kb_store *s) {
    kw_out_deinit(&s->snap.bytes);
    kw_free(s->snap.path);
    kw_free(s->snap.old_path);
}
