/* message_set.c - reading and writing message formats v0 and v1. Called by message_convert.c and by consumers of old brokers; calls compress
 * and crc32c. KIP-31 (relative inner offsets), KIP-32 (timestamps), KAFKA-5365.
 */
#include "message_set.h"

#include "../base/crc32c.h"

void kw_message_iter_init(struct kw_message_iter *it, const void *p, size_t n, size_t limit, struct kw_compressor *c) {
    *it = (struct kw_message_iter){.p = p, .end = (const uint8_t *)p + n, .limit = limit, .compressor = c, .left = n};
}

void kw_message_iter_deinit(struct kw_message_iter *it) {
    kw_free(it->inner);
    it->inner = NULL;
}

static kw_err read_bytes(struct kw_in *in, struct kw_bytes *b) {
    int32_t len = kw_in_i32(in);
    *b = (struct kw_bytes){NULL, -1};
    if (in->err || len < -1) return KW_EDECODE;
    if (len >= 0) *b = (struct kw_bytes){kw_in_take(in, (size_t)len), len};
    return in->err ? KW_EDECODE : KW_OK;
}

/* The message in a whole entry of magic 0 or 1, CRC and fields; offset as stored. */
static kw_err read_message(const struct kw_entry *e, struct kw_message_view *m) {
    if (kw_load32(e->p + KW_MESSAGE_CRC) != kw_crc32(0, e->p + KW_MESSAGE_MAGIC, e->size - KW_MESSAGE_MAGIC)) return KW_ECRC;
    struct kw_in in;
    kw_in_init(&in, e->p + KW_MESSAGE_TIMESTAMP, e->size - KW_MESSAGE_TIMESTAMP);
    m->offset = (int64_t)kw_load64(e->p);
    m->magic = e->magic;
    m->attributes = (int8_t)e->p[KW_MESSAGE_ATTRIBUTES];
    m->timestamp = e->magic == 0 ? -1 : kw_in_i64(&in);
    if (read_bytes(&in, &m->key) || read_bytes(&in, &m->value)) return KW_EDECODE;
    return in.p == in.end ? KW_OK : KW_EDECODE;
}

static int32_t fail(struct kw_message_iter *it, kw_err err) {
    it->err = err;
    return err;
}

/* The offset of the last inner message; its whole set is one of the wrapper's magic, uncompressed, and not empty. */
static kw_err inner_last_offset(const uint8_t *p, const uint8_t *end, int8_t magic, int64_t *last) {
    struct kw_entry e;
    bool any = false;
    int32_t rc;
    while ((rc = kw_entry_next(&p, end, &e)) == 1) {
        if (e.magic != magic || (e.p[KW_MESSAGE_ATTRIBUTES] & KW_ATTR_CODEC)) return KW_EDECODE;
        *last = (int64_t)kw_load64(e.p);
        any = true;
    }
    return rc == 0 && p == end && any ? KW_OK : KW_EDECODE;
}

static kw_err open_wrapper(struct kw_message_iter *it, const struct kw_message_view *m) {
    int codec = m->attributes & KW_ATTR_CODEC;
    if (codec > KW_CODEC_LZ4 || m->value.len < 0) return KW_EDECODE; /* zstd came after these formats */
    uint8_t *inner = NULL;
    size_t n = 0;
    kw_err err = kw_decompress(it->compressor, codec, m->magic, m->value.p, (size_t)m->value.len, it->limit, &inner, &n);
    if (err == KW_ESHORT || err == KW_ECRC) return KW_EDECODE; /* the message's own checksum was right: the producer's fault */
    if (err) return err;
    int64_t last = 0;
    err = inner_last_offset(inner, inner + n, m->magic, &last);
    if (err) {
        kw_free(inner);
        return err;
    }
    it->inner = inner;
    it->inner_p = inner;
    it->inner_end = inner + n;
    it->inner_magic = m->magic;
    it->inner_attributes = m->attributes;
    it->inner_timestamp = m->timestamp;
    /* v1: the wrapper has the last message's offset, the inner ones count from 0. Some producers leave the wrapper at 0; then the inner
     * offsets stand as they are. */
    it->inner_base = m->magic == 0 || m->offset == 0 ? 0 : (int64_t)((uint64_t)m->offset - (uint64_t)last);
    return KW_OK;
}

static int32_t next_inner(struct kw_message_iter *it, struct kw_message_view *m) {
    struct kw_entry e;
    if (kw_entry_next(&it->inner_p, it->inner_end, &e) != 1) return fail(it, KW_EDECODE);
    kw_err err = read_message(&e, m);
    if (err) return fail(it, err);
    m->offset = (int64_t)((uint64_t)m->offset + (uint64_t)it->inner_base);
    m->attributes = it->inner_attributes;
    if (m->magic == 1 && (it->inner_attributes & KW_ATTR_LOG_APPEND_TIME)) m->timestamp = it->inner_timestamp;
    return 1;
}

int32_t kw_message_iter_next(struct kw_message_iter *it, struct kw_message_view *m) {
    if (it->err) return it->err;
    if (it->inner && it->inner_p == it->inner_end) {
        kw_free(it->inner);
        it->inner = NULL;
    }
    if (it->inner) return next_inner(it, m);
    struct kw_entry e;
    int32_t rc = kw_entry_next(&it->p, it->end, &e);
    it->left = (size_t)(it->end - it->p);
    if (rc == 0) it->cut_size = e.size;
    if (rc < 0) return fail(it, rc);
    if (rc == 0) return 0;
    if (e.magic > 1) return fail(it, KW_EVERSION);
    kw_err err = read_message(&e, m);
    if (err) return fail(it, err);
    if ((m->attributes & KW_ATTR_CODEC) == 0) return 1;
    err = open_wrapper(it, m);
    return err ? fail(it, err) : next_inner(it, m);
}

/* Everything before the value's bytes: `size` is the whole message's. The CRC comes last. */
static uint8_t *write_front(uint8_t *p, int8_t magic, int64_t offset, int64_t timestamp, int8_t attributes, struct kw_bytes key, size_t size,
                            int32_t value_len) {
    kw_store64(p, (uint64_t)offset);
    kw_store32(p + KW_BATCH_LENGTH, (uint32_t)(size - KW_BATCH_OVERHEAD));
    p[KW_MESSAGE_MAGIC] = (uint8_t)magic;
    p[KW_MESSAGE_ATTRIBUTES] = (uint8_t)attributes;
    p += KW_MESSAGE_TIMESTAMP;
    if (magic == 1) {
        kw_store64(p, (uint64_t)timestamp);
        p += 8;
    }
    kw_store32(p, (uint32_t)key.len);
    p += 4;
    if (key.len > 0) p = (uint8_t *)memcpy(p, key.p, (size_t)key.len) + key.len;
    kw_store32(p, (uint32_t)value_len);
    return p + 4;
}

static size_t front_size(int8_t magic, struct kw_bytes key) {
    return KW_MESSAGE_TIMESTAMP + (magic == 1 ? 8u : 0u) + 4 + (key.len > 0 ? (size_t)key.len : 0) + 4;
}

static void write_crc(uint8_t *p, size_t size) {
    kw_store32(p + KW_MESSAGE_CRC, kw_crc32(0, p + KW_MESSAGE_MAGIC, size - KW_MESSAGE_MAGIC));
}

kw_err kw_message_write(struct kw_out *out, int8_t magic, int64_t offset, int64_t timestamp, int8_t attributes, struct kw_bytes key,
                        struct kw_bytes value) {
    KW_ASSERT(magic == 0 || magic == 1);
    size_t size = front_size(magic, key) + (value.len > 0 ? (size_t)value.len : 0);
    if (size > INT32_MAX) return KW_ELIMIT;
    uint8_t *p = kw_out_reserve(out, size);
    if (!p) return out->err;
    uint8_t *q = write_front(p, magic, offset, timestamp, attributes, key, size, value.len);
    if (value.len > 0) memcpy(q, value.p, (size_t)value.len);
    write_crc(p, size);
    return KW_OK;
}

kw_err kw_message_write_wrapper(struct kw_out *out, int8_t magic, int codec, int level, int64_t offset, int64_t max_timestamp,
                                bool log_append_time, const void *inner, size_t n, struct kw_compressor *c) {
    KW_ASSERT(magic == 0 || magic == 1);
    if (codec > KW_CODEC_LZ4) return KW_EUNSUPPORTED;
    if (n > INT32_MAX / 2) return KW_ELIMIT;
    const struct kw_bytes no_key = {NULL, -1};
    size_t start = out->len, front = front_size(magic, no_key), cap = kw_compress_bound(codec, n), len = 0;
    uint8_t *p = kw_out_reserve(out, front + cap);
    if (!p) return out->err;
    kw_err err = kw_compress(c, codec, level, magic, inner, n, p + front, cap, &len);
    out->len = err ? start : start + front + len;
    if (err) return err;
    int8_t attributes = (int8_t)(codec | (magic == 1 && log_append_time ? KW_ATTR_LOG_APPEND_TIME : 0));
    write_front(p, magic, offset, max_timestamp, attributes, no_key, front + len, (int32_t)len);
    write_crc(p, front + len);
    return KW_OK;
}
