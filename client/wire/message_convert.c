/* message_convert.c - between message sets (v0, v1) and record batches (v2). Called by the broker for old clients: up on produce, down on
 * fetch. Calls batch, message_set, compress.
 */
#include "message_set.h"

static kw_err refuse(kw_err err, const char *text, const char **why) {
    if (why) *why = text;
    return err;
}

struct up {
    struct kw_out body; /* records in v2 form */
    struct kw_batch_header h;
    int codec;
    size_t limit;
};

static kw_err up_add(struct up *u, const struct kw_message_view *m, const char **why) {
    if (u->h.record_count == 0) {
        u->h.base_timestamp = u->h.max_timestamp = m->timestamp;
    }
    if (u->h.record_count == INT32_MAX) return refuse(KW_ELIMIT, "too many messages", why);
    if (u->codec == KW_CODEC_NONE) u->codec = m->attributes & KW_ATTR_CODEC;
    struct kw_record_in r = {.timestamp_delta = (int64_t)((uint64_t)m->timestamp - (uint64_t)u->h.base_timestamp),
                             .offset_delta = u->h.record_count, .key = m->key, .value = m->value};
    size_t size = kw_record_size(&r);
    if (size > u->limit - u->body.len) return refuse(KW_ELIMIT, "decompressed messages are over the limit", why);
    uint8_t *p = kw_out_reserve(&u->body, size);
    if (!p) return refuse(KW_ENOMEM, "out of memory", why);
    kw_record_write(p, &r, size);
    u->h.max_timestamp = KW_MAX(u->h.max_timestamp, m->timestamp);
    u->h.record_count++;
    return KW_OK;
}

static kw_err up_read(struct up *u, const void *p, size_t n, struct kw_compressor *c, const char **why) {
    struct kw_message_iter it;
    struct kw_message_view m;
    kw_err err = KW_OK;
    int32_t rc;
    kw_message_iter_init(&it, p, n, u->limit, c);
    while ((rc = kw_message_iter_next(&it, &m)) == 1) {
        err = up_add(u, &m, why);
        if (err) break;
    }
    if (err == KW_OK && rc < 0) {
        err = refuse(rc, rc == KW_ECRC ? "a message's checksum does not match" : rc == KW_ELIMIT ? "decompressed messages are over the limit"
                         : rc == KW_ENOMEM ? "out of memory" : "a message is malformed", why);
    } else if (err == KW_OK && it.left > 0) {
        err = refuse(KW_EDECODE, "the last message is cut off", why);
    } else if (err == KW_OK && u->h.record_count == 0) {
        err = refuse(KW_EDECODE, "no message", why);
    }
    kw_message_iter_deinit(&it);
    return err;
}

/* The finished batch of the records in u, plain. */
static kw_err up_finish_plain(struct up *u, uint8_t **batch, size_t *size) {
    size_t total = KW_BATCH_HEADER_SIZE + u->body.len;
    if (total > INT32_MAX) return KW_ELIMIT;
    uint8_t *p = kw_malloc(total);
    if (!p) return KW_ENOMEM;
    u->h.length = (int32_t)total - KW_BATCH_OVERHEAD;
    u->h.last_offset_delta = u->h.record_count - 1;
    kw_batch_write_header(p, &u->h);
    memcpy(p + KW_BATCH_HEADER_SIZE, u->body.p, u->body.len);
    kw_batch_crc_set(p, total);
    *batch = p;
    *size = total;
    return KW_OK;
}

static kw_err up_compress(int codec, struct kw_compressor *c, uint8_t **batch, size_t *size) {
    size_t cap = KW_BATCH_HEADER_SIZE + kw_compress_bound(codec, *size - KW_BATCH_HEADER_SIZE), len = 0;
    uint8_t *p = kw_malloc(cap);
    if (!p) return KW_ENOMEM;
    kw_err err = kw_batch_compress(c, codec, KW_LEVEL_DEFAULT, *batch, *size, p, cap, &len);
    if (err) {
        kw_free(p);
        return err;
    }
    uint8_t *fitting = kw_realloc(p, len);
    kw_free(*batch);
    *batch = fitting ? fitting : p;
    *size = len;
    return KW_OK;
}

kw_err kw_message_set_to_batch(const void *p, size_t n, size_t limit, struct kw_compressor *c, uint8_t **batch, size_t *size,
                               const char **why) {
    struct up u = {.limit = limit, .h = {.magic = 2, .leader_epoch = -1, .producer_id = -1, .producer_epoch = -1, .base_sequence = -1}};
    uint8_t *done = NULL;
    size_t done_size = 0;
    kw_out_init(&u.body);
    kw_err err = up_read(&u, p, n, c, why);
    if (err) goto fail;
    err = up_finish_plain(&u, &done, &done_size);
    if (err == KW_OK && u.codec != KW_CODEC_NONE) err = up_compress(u.codec, c, &done, &done_size);
    if (err) {
        refuse(err, err == KW_ENOMEM ? "out of memory" : "converted batch is too large", why);
        goto fail;
    }
    kw_out_deinit(&u.body);
    *batch = done;
    *size = done_size;
    return KW_OK;
fail:
    kw_free(done);
    kw_out_deinit(&u.body);
    return err;
}

struct down {
    int8_t magic, attributes;
    int64_t first_offset; /* messages below are left out */
    int64_t base;         /* taken from the offsets: the first inner message's in a v1 wrapper */
    int64_t last, max_timestamp;
    bool any;
};

/* Every record from first_offset on as a message in out. */
static kw_err down_records(struct down *d, const struct kw_batch_header *h, const uint8_t *body, size_t size, bool relative,
                           struct kw_out *out) {
    struct kw_record_iter it;
    struct kw_record_view r;
    int32_t rc;
    kw_record_iter_init(&it, h, body, size);
    while ((rc = kw_record_next(&it, &r)) == 1) {
        if (r.offset < d->first_offset) continue;
        if (!d->any) {
            d->base = relative ? r.offset : 0;
            d->max_timestamp = r.timestamp;
        }
        d->any = true;
        d->last = r.offset;
        d->max_timestamp = KW_MAX(d->max_timestamp, r.timestamp);
        int64_t offset = (int64_t)((uint64_t)r.offset - (uint64_t)d->base);
        kw_err err = kw_message_write(out, d->magic, offset, r.timestamp, d->attributes, r.key, r.value);
        if (err) return err;
    }
    return rc;
}

static kw_err down_compressed(struct down *d, const struct kw_batch_header *h, int codec, const uint8_t *body, size_t size,
                              struct kw_compressor *c, struct kw_out *out) {
    struct kw_out inner;
    kw_out_init(&inner);
    kw_err err = down_records(d, h, body, size, d->magic == 1, &inner);
    if (err == KW_OK && d->any)
        err = kw_message_write_wrapper(out, d->magic, codec, KW_LEVEL_DEFAULT, d->last, d->max_timestamp,
                                       d->attributes & KW_ATTR_LOG_APPEND_TIME, inner.p, inner.len, c);
    kw_out_deinit(&inner);
    return err;
}

kw_err kw_batch_to_message_set(const uint8_t *p, size_t n, int8_t magic, int64_t first_offset, size_t limit, struct kw_compressor *c,
                               struct kw_out *out) {
    KW_ASSERT(magic == 0 || magic == 1);
    struct kw_batch_header h;
    kw_err err = kw_batch_parse(p, n, &h);
    if (err) return err;
    if ((uint64_t)h.length + KW_BATCH_OVERHEAD != n) return KW_EDECODE;
    if (h.attributes & KW_ATTR_CONTROL) return KW_OK;
    int codec = h.attributes & KW_ATTR_CODEC;
    if (codec == KW_CODEC_ZSTD) return KW_EUNSUPPORTED;
    const uint8_t *body;
    size_t size, start = out->len;
    err = kw_batch_body(p, n, &h, limit, c, &body, &size);
    if (err) return err;
    struct down d = {.magic = magic, .first_offset = first_offset};
    if (magic == 1 && (h.attributes & KW_ATTR_LOG_APPEND_TIME)) d.attributes = KW_ATTR_LOG_APPEND_TIME;
    err = codec == KW_CODEC_NONE ? down_records(&d, &h, body, size, false, out) : down_compressed(&d, &h, codec, body, size, c, out);
    if (err) out->len = start;
    return err;
}
