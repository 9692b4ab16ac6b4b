/* batch.c - record batch v2: header, records, building. Called by produce, consume and the broker's log; calls compress and crc32c.
 * KIP-98 (format), KIP-82 (headers), KIP-32 (timestamps).
 */
#include "batch.h"

#include "../base/crc32c.h"
#include "record_read.h"

kw_err kw_batch_parse(const uint8_t *p, size_t n, struct kw_batch_header *h) {
    if (n < KW_BATCH_MAGIC + 1) return KW_ESHORT;
    if (p[KW_BATCH_MAGIC] != 2) return KW_EVERSION;
    if (n < KW_BATCH_HEADER_SIZE) return KW_ESHORT;
    int32_t length = (int32_t)kw_load32(p + KW_BATCH_LENGTH);
    if (length < KW_BATCH_HEADER_SIZE - KW_BATCH_OVERHEAD) return KW_EDECODE;
    *h = (struct kw_batch_header){
        .base_offset = (int64_t)kw_load64(p + KW_BATCH_BASE_OFFSET),
        .length = length,
        .leader_epoch = (int32_t)kw_load32(p + KW_BATCH_LEADER_EPOCH),
        .magic = 2,
        .crc = kw_load32(p + KW_BATCH_CRC),
        .attributes = (int16_t)kw_load16(p + KW_BATCH_ATTRIBUTES),
        .last_offset_delta = (int32_t)kw_load32(p + KW_BATCH_LAST_OFFSET_DELTA),
        .base_timestamp = (int64_t)kw_load64(p + KW_BATCH_BASE_TIMESTAMP),
        .max_timestamp = (int64_t)kw_load64(p + KW_BATCH_MAX_TIMESTAMP),
        .producer_id = (int64_t)kw_load64(p + KW_BATCH_PRODUCER_ID),
        .producer_epoch = (int16_t)kw_load16(p + KW_BATCH_PRODUCER_EPOCH),
        .base_sequence = (int32_t)kw_load32(p + KW_BATCH_BASE_SEQUENCE),
        .record_count = (int32_t)kw_load32(p + KW_BATCH_RECORD_COUNT),
    };
    return KW_OK;
}

void kw_batch_write_header(uint8_t *dst, const struct kw_batch_header *h) {
    kw_store64(dst + KW_BATCH_BASE_OFFSET, (uint64_t)h->base_offset);
    kw_store32(dst + KW_BATCH_LENGTH, (uint32_t)h->length);
    kw_store32(dst + KW_BATCH_LEADER_EPOCH, (uint32_t)h->leader_epoch);
    dst[KW_BATCH_MAGIC] = 2;
    kw_store32(dst + KW_BATCH_CRC, 0);
    kw_store16(dst + KW_BATCH_ATTRIBUTES, (uint16_t)h->attributes);
    kw_store32(dst + KW_BATCH_LAST_OFFSET_DELTA, (uint32_t)h->last_offset_delta);
    kw_store64(dst + KW_BATCH_BASE_TIMESTAMP, (uint64_t)h->base_timestamp);
    kw_store64(dst + KW_BATCH_MAX_TIMESTAMP, (uint64_t)h->max_timestamp);
    kw_store64(dst + KW_BATCH_PRODUCER_ID, (uint64_t)h->producer_id);
    kw_store16(dst + KW_BATCH_PRODUCER_EPOCH, (uint16_t)h->producer_epoch);
    kw_store32(dst + KW_BATCH_BASE_SEQUENCE, (uint32_t)h->base_sequence);
    kw_store32(dst + KW_BATCH_RECORD_COUNT, (uint32_t)h->record_count);
}

int64_t kw_batch_size_peek(const uint8_t *p, size_t n) {
    if (n < KW_BATCH_OVERHEAD) return -1;
    return (int64_t)(int32_t)kw_load32(p + KW_BATCH_LENGTH) + KW_BATCH_OVERHEAD;
}

int32_t kw_entry_next(const uint8_t **p, const uint8_t *end, struct kw_entry *e) {
    size_t left = (size_t)(end - *p);
    int64_t size = kw_batch_size_peek(*p, left);
    e->size = 0;
    if (size < 0 && left < KW_BATCH_OVERHEAD) return 0;
    static const int64_t size_min[] = {26, 34, KW_BATCH_HEADER_SIZE}; /* by magic */
    if (size < size_min[0]) return KW_EDECODE;
    e->size = (size_t)size;
    if (left <= KW_BATCH_MAGIC) return 0;
    int8_t magic = (int8_t)(*p)[KW_BATCH_MAGIC];
    if (magic < 0 || magic > 2) return KW_EVERSION;
    if (size < size_min[magic]) return KW_EDECODE;
    if (e->size > left) return 0;
    e->p = *p;
    e->magic = magic;
    *p += size;
    return 1;
}

static uint32_t batch_crc(const uint8_t *p, size_t size) {
    return kw_crc32c(0, p + KW_BATCH_ATTRIBUTES, size - KW_BATCH_ATTRIBUTES);
}

bool kw_batch_crc_ok(const uint8_t *p, size_t size) {
    return size >= KW_BATCH_HEADER_SIZE && kw_load32(p + KW_BATCH_CRC) == batch_crc(p, size);
}

void kw_batch_crc_set(uint8_t *p, size_t size) {
    KW_ASSERT(size >= KW_BATCH_HEADER_SIZE);
    kw_store32(p + KW_BATCH_CRC, batch_crc(p, size));
}

void kw_batch_crc_finish(uint8_t *p, size_t size, uint32_t body_crc, size_t to) {
    KW_ASSERT(to >= KW_BATCH_HEADER_SIZE && to <= size);
    uint32_t head = kw_crc32c(0, p + KW_BATCH_ATTRIBUTES, KW_BATCH_HEADER_SIZE - KW_BATCH_ATTRIBUTES);
    kw_store32(p + KW_BATCH_CRC, kw_crc32c_join(head, kw_crc32c(body_crc, p + to, size - to), size - KW_BATCH_HEADER_SIZE));
}

void kw_batch_set_max_timestamp(uint8_t *p, size_t size, int64_t max_timestamp, bool log_append_time) {
    uint16_t attributes = kw_load16(p + KW_BATCH_ATTRIBUTES);
    uint16_t wanted = (uint16_t)(log_append_time ? attributes | KW_ATTR_LOG_APPEND_TIME : attributes & ~KW_ATTR_LOG_APPEND_TIME);
    if (wanted == attributes && (int64_t)kw_load64(p + KW_BATCH_MAX_TIMESTAMP) == max_timestamp) return;
    kw_store16(p + KW_BATCH_ATTRIBUTES, wanted);
    kw_store64(p + KW_BATCH_MAX_TIMESTAMP, (uint64_t)max_timestamp);
    kw_batch_crc_set(p, size);
}

static kw_err read_bytes(struct kw_in *in, struct kw_bytes *b) {
    int32_t len = kw_in_varint(in);
    if (in->err) return in->err;
    *b = (struct kw_bytes){NULL, -1};
    if (len < -1) return KW_EDECODE;
    if (len >= 0) *b = (struct kw_bytes){kw_in_take(in, (size_t)len), len};
    return in->err;
}

static kw_err read_header(struct kw_in *in, struct kw_header_view *h) {
    struct kw_bytes key;
    kw_err err = read_bytes(in, &key);
    if (err) return err;
    if (key.len < 0) return KW_EDECODE;
    h->key = (struct kw_str){(const char *)key.p, key.len};
    return read_bytes(in, &h->value);
}

bool kw_headers_fast(const uint8_t *p, const uint8_t *end, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        int32_t len;
        if (end - p < 3 || !(p = kw_varint_fast(p, &len)) || len < 0 || end - p < (ptrdiff_t)len + 3) return false;
        p = kw_varint_fast(p + len, &len);
        if (!p || len < -1 || end - p < len) return false;
        if (len > 0) p += len;
    }
    return p == end;
}

kw_err kw_record_read_slow(const uint8_t *p, const uint8_t *end, struct kw_record_raw *r) {
    struct kw_in in;
    kw_in_init(&in, p, (size_t)(end - p));
    int32_t len = kw_in_varint(&in);
    if (in.err) return in.err;
    if (len < 0) return KW_EDECODE;
    if ((size_t)len > kw_in_left(&in)) return KW_ESHORT;
    in.end = in.p + len;
    (void)kw_in_i8(&in); /* attributes: none are defined; not judged */
    r->timestamp_delta = kw_in_varlong(&in);
    r->offset_delta = kw_in_varint(&in);
    if (read_bytes(&in, &r->key) || read_bytes(&in, &r->value)) return KW_EDECODE;
    r->header_count = kw_in_varint(&in);
    r->headers = in.p;
    r->end = in.end;
    if (in.err || r->header_count < 0) return KW_EDECODE;
    struct kw_header_view h;
    for (int32_t i = 0; i < r->header_count; i++) /* ends with the bytes, whatever the count claims: each header takes two at least */
        if (read_header(&in, &h)) return KW_EDECODE;
    return in.p == in.end ? KW_OK : KW_EDECODE;
}

int32_t kw_record_header_next(struct kw_in *in, struct kw_header_view *h) {
    if (in->err) return in->err;
    if (in->p == in->end) return 0;
    kw_err err = read_header(in, h);
    if (err) kw_in_fail(in, err);
    return err ? err : 1;
}

void kw_record_iter_init(struct kw_record_iter *it, const struct kw_batch_header *h, const void *body, size_t size) {
    kw_in_init(&it->in, body, size);
    it->h = *h;
    it->index = 0;
}

int32_t kw_record_next(struct kw_record_iter *it, struct kw_record_view *r) {
    if (KW_UNLIKELY(it->index >= it->h.record_count)) return it->h.record_count >= 0 && it->in.p == it->in.end ? 0 : KW_EDECODE;
    struct kw_record_raw raw;
    const uint8_t *start = it->in.p;
    kw_err err = kw_record_read(start, it->in.end, &raw);
    if (KW_UNLIKELY(err)) return err;
    it->in.p = raw.end;
    it->index++;
    /* Added as unsigned: a hostile base may overflow, which is then just a wrong number. */
    r->offset = (int64_t)((uint64_t)it->h.base_offset + (uint64_t)(int64_t)raw.offset_delta);
    r->timestamp = it->h.attributes & KW_ATTR_LOG_APPEND_TIME ? it->h.max_timestamp
                                                               : (int64_t)((uint64_t)it->h.base_timestamp + (uint64_t)raw.timestamp_delta);
    r->offset_delta = raw.offset_delta;
    r->key = raw.key;
    r->value = raw.value;
    r->header_count = raw.header_count;
    r->headers = raw.headers;
    r->headers_size = (size_t)(raw.end - raw.headers);
    r->wire_size = (size_t)(raw.end - start);
    return 1;
}

kw_err kw_batch_body(const uint8_t *p, size_t size, const struct kw_batch_header *h, size_t limit, struct kw_compressor *c,
                     const uint8_t **body, size_t *body_size) {
    if (size < KW_BATCH_HEADER_SIZE) return KW_ESHORT;
    int codec = h->attributes & KW_ATTR_CODEC;
    if (codec >= KW_CODEC_COUNT) return KW_EDECODE;
    if (codec == KW_CODEC_NONE) {
        *body = p + KW_BATCH_HEADER_SIZE;
        *body_size = size - KW_BATCH_HEADER_SIZE;
        return KW_OK;
    }
    return kw_decompress_view(c, codec, 2, p + KW_BATCH_HEADER_SIZE, size - KW_BATCH_HEADER_SIZE, limit, body, body_size);
}

size_t kw_record_headers_size(const struct kw_header_view *headers, size_t count) {
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        KW_ASSERT(headers[i].key.len >= 0);
        size += kw_varint_size(headers[i].key.len) + (size_t)headers[i].key.len + kw_varint_size(headers[i].value.len);
        if (headers[i].value.len > 0) size += (size_t)headers[i].value.len;
        if (size > INT32_MAX) return SIZE_MAX;
    }
    return size;
}

static uint8_t *write_bytes(uint8_t *p, const void *src, int32_t len) {
    p = kw_put_uvarint(p, kw_zigzag(len));
    return len > 0 ? (uint8_t *)memcpy(p, src, (size_t)len) + len : p;
}

uint8_t *kw_record_headers_write(uint8_t *dst, const struct kw_header_view *headers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        dst = write_bytes(dst, headers[i].key.p, headers[i].key.len);
        dst = write_bytes(dst, headers[i].value.p, headers[i].value.len);
    }
    return dst;
}

kw_err kw_batch_compress(struct kw_compressor *c, int codec, int level, const uint8_t *src, size_t size, uint8_t *dst, size_t cap,
                         size_t *out_size) {
    KW_ASSERT(size >= KW_BATCH_HEADER_SIZE && (src[KW_BATCH_ATTRIBUTES + 1] & KW_ATTR_CODEC) == 0);
    if (cap < KW_BATCH_HEADER_SIZE) return KW_ELIMIT;
    size_t n = 0;
    kw_err err = kw_compress(c, codec, level, 2, src + KW_BATCH_HEADER_SIZE, size - KW_BATCH_HEADER_SIZE, dst + KW_BATCH_HEADER_SIZE,
                             cap - KW_BATCH_HEADER_SIZE, &n);
    if (err) return err;
    if (n > INT32_MAX - KW_BATCH_HEADER_SIZE) return KW_ELIMIT;
    memcpy(dst, src, KW_BATCH_HEADER_SIZE);
    dst[KW_BATCH_ATTRIBUTES + 1] |= (uint8_t)codec;
    size_t total = KW_BATCH_HEADER_SIZE + n;
    kw_store32(dst + KW_BATCH_LENGTH, (uint32_t)(total - KW_BATCH_OVERHEAD));
    kw_batch_crc_set(dst, total);
    *out_size = total;
    return KW_OK;
}
