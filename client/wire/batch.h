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
/* CRC over attributes..end against the stored one; p has the whole batch. */
bool kw_batch_crc_ok(const uint8_t *p, size_t size);
void kw_batch_crc_set(uint8_t *p, size_t size);

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
/* 1: *r is filled; 0: all record_count records were read and the body ended there; < 0: malformed (KW_EDECODE/KW_ESHORT). */
int32_t kw_record_next(struct kw_record_iter *it, struct kw_record_view *r);
/* it: kw_in over headers. 1, 0 at the end, < 0 malformed. */
int32_t kw_record_header_next(struct kw_in *in, struct kw_header_view *h);

/* What a broker checks before it appends, and a follower or recovery after a crash: sizes, magic, CRC, record count against
 * last offset delta, each record's length, offset deltas 0,1,2…, varints, header counts; compressed bodies are decompressed (at most
 * `limit` bytes) and walked. `why` gets a static text on failure. KW_ECRC, KW_EDECODE, KW_ELIMIT, KW_EUNSUPPORTED, KW_ENOMEM. */
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
};
kw_err kw_batch_check(const uint8_t *p, size_t size, const struct kw_batch_check *c, struct kw_batch_facts *f, const char **why) KW_CHECK;

/* Building. Records are encoded straight into the caller's memory in final wire form. kw_record_size gives the exact bytes. */
struct kw_record_in {
    int64_t timestamp_delta;
    int32_t offset_delta;
    struct kw_bytes key, value;
    const struct kw_header_view *headers;
    size_t header_count;
};
size_t kw_record_size(const struct kw_record_in *r);               /* with the length prefix; SIZE_MAX when over INT32_MAX */
uint8_t *kw_record_write(uint8_t *dst, const struct kw_record_in *r, size_t size); /* size from kw_record_size; returns the end */
/* Writes the 61 header bytes (with length from h->length; crc left 0: kw_batch_crc_set afterwards). */
void kw_batch_write_header(uint8_t *dst, const struct kw_batch_header *h);

#endif
