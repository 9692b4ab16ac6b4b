/* snapshot.c - the image as a file: `<end offset>-<epoch>.checkpoint`, a header control record, the image's records, a footer. KIP-630.
 *
 * Called by store_load.c and store_snapshot.c; does no I/O. The end offset is exclusive: the image holds everything below it.
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
        struct kw_batch_header h;
        int64_t size = kw_batch_size_peek(p + at, n - at);
        if (size < KW_BATCH_HEADER_SIZE || (uint64_t)size > n - at || kw_batch_parse(p + at, n - at, &h) ||
            !kw_batch_crc_ok(p + at, (size_t)size))
            return false;
        if (at == 0 && !is_control_of(p, (size_t)size, KB_CONTROL_SNAPSHOT_HEADER)) return false;
        footer = is_control_of(p + at, (size_t)size, KB_CONTROL_SNAPSHOT_FOOTER);
        at += (size_t)size;
    }
    return footer;
}

kw_err kb_snapshot_load(const uint8_t *p, size_t n, int64_t end, int32_t epoch, int32_t node_id, struct kw_compressor *compressor,
                        struct kb_image *image, char *why, size_t why_size) {
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
