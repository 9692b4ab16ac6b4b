/* record_read.h - reading one record of a v2 batch, shared by the iterator (batch.c), the check (batch_check.c) and the broker's guid/extract.c. Not for
 * others.
 *
 * A broker and a consumer do this once a record, so the usual record (few headers, varints of up to three bytes, not at the very end of
 * the batch) is read inline with few bounds checks; every other goes to kw_record_read_slow, which alone decides what is malformed.
 */
#ifndef KW_RECORD_READ_H
#define KW_RECORD_READ_H

#include "batch.h"

#define KW_RECORD_SIZE_MIN 7 /* length, attributes, two deltas, lengths of key and value, header count */

struct kw_record_raw {
    int64_t timestamp_delta;
    int32_t offset_delta, header_count;
    struct kw_bytes key, value;
    const uint8_t *headers, *end;
};

/* Everything of the record is checked but the offset delta. A structure that ends past the record's own length is KW_EDECODE; KW_ESHORT
 * is left for records that end past `end`. */
kw_err kw_record_read_slow(const uint8_t *p, const uint8_t *end, struct kw_record_raw *r) KW_CHECK;

/* Reads up to three bytes without looking for an end; NULL when the number is longer. */
static inline const uint8_t *kw_varint_fast(const uint8_t *p, int32_t *v) {
    uint32_t u = p[0];
    if (u < 0x80) {
        p += 1;
    } else if (p[1] < 0x80) {
        u = (u & 0x7f) | (uint32_t)p[1] << 7;
        p += 2;
    } else if (p[2] < 0x80) {
        u = (u & 0x7f) | (uint32_t)(p[1] & 0x7f) << 7 | (uint32_t)p[2] << 14;
        p += 3;
    } else {
        return NULL;
    }
    *v = (int32_t)(u >> 1) ^ -(int32_t)(u & 1);
    return p;
}

/* A length and its bytes; `behind` more bytes are left after them. */
static inline const uint8_t *kw_bytes_fast(const uint8_t *p, const uint8_t *end, int behind, struct kw_bytes *b) {
    int32_t len;
    p = kw_varint_fast(p, &len);
    if (KW_UNLIKELY(!p)) return NULL;
    if (len < 0) {
        *b = (struct kw_bytes){NULL, -1};
        return len == -1 ? p : NULL;
    }
    if (KW_UNLIKELY(end - p < (ptrdiff_t)len + behind)) return NULL;
    *b = (struct kw_bytes){p, len};
    return p + len;
}

/* `count` headers fill the bytes; false: they do not, or it takes the slow way to tell. */
bool kw_headers_fast(const uint8_t *p, const uint8_t *end, int32_t count);

/* All but the headers, which are not looked at. The fields may for a moment be read past the record's own end, never past `end`; that the last one, or the
 * headers, ends just where the record does shows that none lay outside. */
static inline __attribute__((always_inline)) bool kw_record_head_fast(const uint8_t *p, const uint8_t *end, struct kw_record_raw *r) {
    int32_t len, timestamp_delta, offset_delta;
    struct kw_bytes key, value;
    if (KW_UNLIKELY(end - p < 24)) return false; /* lengths and deltas of up to 3 bytes each, attributes, header count, and some */
    p = kw_varint_fast(p, &len);
    if (KW_UNLIKELY(!p || len < 6 || len > end - p)) return false;
    const uint8_t *record_end = p + len;
    p = kw_varint_fast(p + 1, &timestamp_delta);
    if (KW_UNLIKELY(!p)) return false;
    p = kw_varint_fast(p, &offset_delta);
    if (KW_UNLIKELY(!p)) return false;
    p = kw_bytes_fast(p, end, 4, &key); /* value length and header count */
    if (KW_UNLIKELY(!p)) return false;
    p = kw_bytes_fast(p, end, 1, &value);
    if (KW_UNLIKELY(!p || p >= record_end || (*p & 0x81))) return false; /* a header count of up to 63 */
    int32_t count = *p++ >> 1;
    *r = (struct kw_record_raw){timestamp_delta, offset_delta, count, key, value, p, record_end};
    return true;
}

static inline bool kw_record_read_fast(const uint8_t *p, const uint8_t *end, struct kw_record_raw *r) {
    if (KW_UNLIKELY(!kw_record_head_fast(p, end, r))) return false;
    return KW_LIKELY(r->header_count > 0 ? kw_headers_fast(r->headers, r->end, r->header_count) : r->headers == r->end);
}

static inline kw_err kw_record_read(const uint8_t *p, const uint8_t *end, struct kw_record_raw *r) {
    if (KW_LIKELY(kw_record_read_fast(p, end, r))) return KW_OK;
    struct kw_record_raw slow; /* of its own, so that *r can live in registers */
    kw_err err = kw_record_read_slow(p, end, &slow);
    if (KW_LIKELY(err == KW_OK)) *r = slow;
    return err;
}

#endif
