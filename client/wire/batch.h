/* batch.h - record batch v2 (magic 2, KIP-98, KIP-32 timestamps): header access, validation, building and iterating records.
 *
 * Called by client/produce (build), client/consume (iterate), broker-ref (validate, patch, scan). Works on bytes in memory.
 */
#ifndef KW_BATCH_H
#define KW_BATCH_H

#include "../base/buf.h"
#include "compress.h"

/* Byte positions in a batch (all big-endian). */
enum {
    KW_BATCH_BASE_OFFSET = 0, KW_BATCH_LENGTH = 8, KW_BATCH_LEADER_EPOCH = 12, KW_BATCH_MAGIC = 16, KW_BATCH_CRC = 17,
    KW_BATCH_ATTRIBUTES = 21, KW_BATCH_LAST_OFFSET_DELTA = 23, KW_BATCH_BASE_TIMESTAMP = 27, KW_BATCH_MAX_TIMESTAMP = 35,
    KW_BATCH_PRODUCER_ID = 43, KW_BATCH_PRODUCER_EPOCH = 51, KW_BATCH_BASE_SEQUENCE = 53, KW_BATCH_RECORD_COUNT = 57,
    KW_BATCH_HEADER_SIZE = 61,
    KW_BATCH_OVERHEAD = 12, /* base offset + length: what `length` does not count; the same in v0/v1 */
};
enum { /* attributes */
    KW_ATTR_CODEC = 0x07, KW_ATTR_LOG_APPEND_TIME = 0x08, KW_ATTR_TRANSACTIONAL = 0x10, KW_ATTR_CONTROL = 0x20, KW_ATTR_DELETE_HORIZON = 0x40,
};

struct kw_batch_header {
    int64_t base_offset;
    int32_t length;         /* as stored; whole batch = length + KW_BATCH_OVERHEAD */
    int32_t leader_epoch;
    int8_t magic;
    uint32_t crc;
    int16_t attributes;
    int32_t last_offset_delta;
    int64_t base_timestamp, max_timestamp;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence, record_count;
};

/* Parses the fixed header of a v2 batch from at least KW_BATCH_HEADER_SIZE bytes. KW_ESHORT; KW_EVERSION when magic is not 2;
 * KW_EDECODE when length is impossible. Does not look at the CRC or the records. */
kw_err kw_batch_parse(const uint8_t *p, size_t n, struct kw_batch_header *h) KW_CHECK;
/* Whole size (12 + length) of the batch or legacy message set entry that starts at p, from its first 12 bytes; -1 when n < 12;
 * the length field is returned as is plus 12, so check it (smallest legacy entry: 14 + 12). */
int64_t kw_batch_size_peek(const uint8_t *p, size_t n);
/* One entry of a records field: a v2 batch, or a message (or wrapper) of v0/v1; formats may mix (PR-07). */
struct kw_entry {
    const uint8_t *p;
    size_t size;
    int8_t magic;
};
/* The entry at *p, which moves behind it. 1; 0 at the end or when the rest is cut off, then *p stays, and e->size is what the cut entry's
 * length field asks for (0: it is cut before that, or there is no rest); < 0: KW_EDECODE (impossible length), KW_EVERSION (magic). */
int32_t kw_entry_next(const uint8_t **p, const uint8_t *end, struct kw_entry *e);
/* CRC over attributes..end against the stored one; p has the whole batch. */
bool kw_batch_crc_ok(const uint8_t *p, size_t size);
void kw_batch_crc_set(uint8_t *p, size_t size);
/* The same when the CRC of the bytes behind the header, up to `to`, is known: only the rest is read. */
void kw_batch_crc_finish(uint8_t *p, size_t size, uint32_t body_crc, size_t to);

/* What a broker changes in place. Base offset and leader epoch lie before the CRC's range, so that it stays valid. */
static inline void kw_batch_set_base_offset(uint8_t *p, int64_t offset) { kw_store64(p + KW_BATCH_BASE_OFFSET, (uint64_t)offset); }
static inline void kw_batch_set_leader_epoch(uint8_t *p, int32_t epoch) { kw_store32(p + KW_BATCH_LEADER_EPOCH, (uint32_t)epoch); }
/* Sets the max timestamp and the timestamp type, and the CRC if either changed. With log_append_time every record has max_timestamp. */
void kw_batch_set_max_timestamp(uint8_t *p, size_t size, int64_t max_timestamp, bool log_append_time);

struct kw_record_view {
    int64_t offset, timestamp;
    int32_t offset_delta;
    struct kw_bytes key, value;     /* len -1: null */
    int32_t header_count;
    const uint8_t *headers;         /* wire bytes of the headers, headers_size of them; iterate with kw_record_header_next */
    size_t headers_size;
    size_t wire_size;               /* with its length prefix */
};
struct kw_header_view {
    struct kw_str key;
    struct kw_bytes value;
};

/* Iterates the records of a batch body (uncompressed bytes after the header). */
struct kw_record_iter {
    struct kw_in in;
    struct kw_batch_header h;
    int32_t index;
};
void kw_record_iter_init(struct kw_record_iter *it, const struct kw_batch_header *h, const void *body, size_t size);
/* 1: *r is filled; 0: all record_count records were read and the body ended there; < 0: malformed (KW_EDECODE/KW_ESHORT). The headers
 * of a record that was given out are sound. Offset deltas are not judged: that is kw_batch_check's matter. */
int32_t kw_record_next(struct kw_record_iter *it, struct kw_record_view *r);
/* it: kw_in over headers. 1, 0 at the end, < 0 malformed. */
int32_t kw_record_header_next(struct kw_in *in, struct kw_header_view *h);

/* The body (what follows the header) of the whole batch at p, decompressed if need be, at most `limit` bytes then: a view of the batch, or
 * of the compressor until its next use. */
kw_err kw_batch_body(const uint8_t *p, size_t size, const struct kw_batch_header *h, size_t limit, struct kw_compressor *c,
                     const uint8_t **body, size_t *body_size) KW_CHECK;

/* What a broker checks before it appends, and a follower or recovery after a crash: sizes, magic, CRC, record count against
 * last offset delta, each record's length, offset deltas 0,1,2…, varints, null header keys; compressed bodies are decompressed (at most
 * `limit` bytes) and walked. `why` gets a static text on failure. KW_ECRC, KW_EDECODE, KW_ESHORT, KW_EVERSION, KW_ELIMIT,
 * KW_EUNSUPPORTED, KW_ENOMEM. Control batches and producer fields are the caller's matter; so is a header's max timestamp that
 * differs from the one found. An empty batch (count 0) passes only with allow_holes. */
struct kw_batch_check {
    bool allow_holes;        /* compacted or deduped batches (followers, recovery): deltas ascend strictly, count <= last delta + 1 */
    bool skip_crc;
    size_t limit;            /* of the decompressed body */
    struct kw_compressor *compressor;
};
struct kw_batch_facts {      /* found on the walk */
    int64_t max_timestamp;   /* over the records (base timestamp + delta); INT64_MIN when no record */
    int32_t offset_of_max_timestamp; /* delta */
    size_t body_size;        /* uncompressed */
    bool any_null_key;       /* compacted topics refuse these */
    bool any_headers;
};
kw_err kw_batch_check(const uint8_t *p, size_t size, const struct kw_batch_check *c, struct kw_batch_facts *f, const char **why) KW_CHECK;

/* Building. Records are encoded straight into the caller's memory in final wire form. kw_record_size gives the exact bytes. */
struct kw_record_in {
    int64_t timestamp_delta;
    int32_t offset_delta;
    struct kw_bytes key, value;     /* len -1: null */
    const struct kw_header_view *headers; /* keys are never null */
    size_t header_count;
};
size_t kw_record_headers_size(const struct kw_header_view *headers, size_t count); /* without the count; SIZE_MAX when over INT32_MAX */
uint8_t *kw_record_headers_write(uint8_t *dst, const struct kw_header_view *headers, size_t count);
static inline size_t kw_record_size(const struct kw_record_in *r);   /* with the length prefix; SIZE_MAX when over INT32_MAX */
static inline uint8_t *kw_record_write(uint8_t *dst, const struct kw_record_in *r, size_t size); /* size from kw_record_size; returns the end */
/* Writes the 61 header bytes (with length from h->length; crc left 0: kw_batch_crc_set afterwards). */
void kw_batch_write_header(uint8_t *dst, const struct kw_batch_header *h);
/* Writes the finished uncompressed batch src anew at dst with its body compressed: attributes, length and CRC set. KW_ELIMIT when it takes
 * more than cap bytes. KW_BATCH_HEADER_SIZE + kw_compress_bound(codec, body) is always enough. */
kw_err kw_batch_compress(struct kw_compressor *c, int codec, int level, const uint8_t *src, size_t size, uint8_t *dst, size_t cap,
                         size_t *out_size) KW_CHECK;

/* The two below run once a record on the application's thread: inline, one pass, no call but memcpy. */
static inline uint8_t *kw_put_uvarint(uint8_t *p, uint64_t v) {
    if (KW_LIKELY(v < 1u << 7)) {
        *p = (uint8_t)v;
        return p + 1;
    }
    if (KW_LIKELY(v < 1u << 14)) {
        p[0] = (uint8_t)(v | 0x80);
        p[1] = (uint8_t)(v >> 7);
        return p + 2;
    }
    for (; v >= 0x80; v >>= 7) *p++ = (uint8_t)(v | 0x80);
    *p++ = (uint8_t)v;
    return p;
}
static inline size_t kw_record_size(const struct kw_record_in *r) {
    size_t body = 1 + kw_varint_size(r->timestamp_delta) + kw_varint_size(r->offset_delta) + kw_varint_size(r->key.len) +
                  kw_varint_size(r->value.len) + kw_uvarint_size(2 * (uint64_t)r->header_count);
    if (r->key.len > 0) body += (size_t)r->key.len;
    if (r->value.len > 0) body += (size_t)r->value.len;
    if (r->header_count > 0) {
        size_t headers = kw_record_headers_size(r->headers, r->header_count);
        if (KW_UNLIKELY(headers == SIZE_MAX)) return SIZE_MAX;
        body += headers;
    }
    size_t size = kw_uvarint_size(2 * (uint64_t)body) + body;
    return KW_LIKELY(size <= INT32_MAX) ? size : SIZE_MAX;
}
/* With the size of its body known: what follows the length prefix. */
static inline uint8_t *kw_record_write_body(uint8_t *dst, const struct kw_record_in *r, size_t body) {
    uint8_t *p = kw_put_uvarint(dst, 2 * (uint64_t)body);
    *p++ = 0; /* attributes: none are defined */
    p = kw_put_uvarint(p, kw_zigzag(r->timestamp_delta));
    p = kw_put_uvarint(p, kw_zigzag(r->offset_delta));
    p = kw_put_uvarint(p, kw_zigzag(r->key.len));
    if (r->key.len > 0) p = (uint8_t *)memcpy(p, r->key.p, (size_t)r->key.len) + r->key.len;
    p = kw_put_uvarint(p, kw_zigzag(r->value.len));
    if (r->value.len > 0) p = (uint8_t *)memcpy(p, r->value.p, (size_t)r->value.len) + r->value.len;
    p = kw_put_uvarint(p, 2 * (uint64_t)r->header_count);
    if (r->header_count > 0) p = kw_record_headers_write(p, r->headers, r->header_count);
    return p;
}
static inline uint8_t *kw_record_write(uint8_t *dst, const struct kw_record_in *r, size_t size) {
    /* The prefix's own size follows from the whole: taking the largest that it may have, and correcting once. */
    size_t prefix = kw_uvarint_size(2 * (uint64_t)(size - kw_uvarint_size(2 * (uint64_t)size)));
    return kw_record_write_body(dst, r, size - prefix);
}

#endif
