/* message_set.h - message formats v0 and v1 (magic 0 and 1): reading, writing, and conversion to and from batch v2.
 *
 * Wrapper (compressed) messages carry an inner set with absolute (v0) or relative (v1, KIP-31) offsets. Old clients only.
 * v1 adds the timestamp and its type (KIP-32).
 */
#ifndef KW_MESSAGE_SET_H
#define KW_MESSAGE_SET_H

#include "batch.h"

/* Byte positions in a message; offset and size are where a batch has them (KW_BATCH_OVERHEAD), size counts from the CRC on. */
enum { KW_MESSAGE_CRC = 12, KW_MESSAGE_MAGIC = 16, KW_MESSAGE_ATTRIBUTES = 17, KW_MESSAGE_TIMESTAMP = 18, KW_MESSAGE_SIZE_MIN = 26 };

struct kw_message_view {
    int64_t offset;         /* absolute, also for inner messages of wrappers */
    int64_t timestamp;      /* -1 in v0 */
    int8_t magic;
    int8_t attributes;      /* of an inner message: its wrapper's, which has the codec and the timestamp type */
    struct kw_bytes key, value;
};

/* Walks a message set of magic 0/1 (entries may mix), unpacking wrappers (one level; deeper is KW_EDECODE), checking every CRC-32.
 * Views stay valid until the next call of kw_message_iter_next / deinit. A cut entry at the end ends the walk (0), with
 * `cut_size` set to the size that its length field names, when it is there (else 0). `left` counts the bytes of a cut entry: a caller
 * that wants whole sets only checks it. An entry of magic 2 is KW_EVERSION: split mixed sets by kw_entry_next. */
struct kw_message_iter {
    const uint8_t *p, *end;
    uint8_t *inner;          /* decompressed wrapper */
    const uint8_t *inner_p, *inner_end;
    int64_t inner_base;      /* what is added to the inner messages' offsets */
    int8_t inner_magic, inner_attributes;
    int64_t inner_timestamp; /* the wrapper's: every inner message's when its type is LogAppendTime */
    size_t limit, cut_size, left;
    struct kw_compressor *compressor;
    kw_err err;              /* a failure stays */
};
void kw_message_iter_init(struct kw_message_iter *it, const void *p, size_t n, size_t limit, struct kw_compressor *c);
int32_t kw_message_iter_next(struct kw_message_iter *it, struct kw_message_view *m); /* 1, 0 end, < 0 KW_ECRC, KW_EDECODE, KW_ELIMIT… */
void kw_message_iter_deinit(struct kw_message_iter *it);

/* Writing: one message appended to out (plain), or a wrapper around an inner set. Offsets as given. */
kw_err kw_message_write(struct kw_out *out, int8_t magic, int64_t offset, int64_t timestamp, int8_t attributes, struct kw_bytes key,
                        struct kw_bytes value) KW_CHECK;
/* Compresses `inner` (a message set whose offsets are 0,1,2… for magic 1, absolute for magic 0) into one wrapper message at `offset`
 * (the last inner message's absolute offset). KW_EUNSUPPORTED for zstd. On failure out->len is as before. */
kw_err kw_message_write_wrapper(struct kw_out *out, int8_t magic, int codec, int level, int64_t offset, int64_t max_timestamp,
                                bool log_append_time, const void *inner, size_t n, struct kw_compressor *c) KW_CHECK;

/* Up-conversion on produce: a whole v0/v1 message set becomes one v2 batch at base offset 0 (records in order; the codec of its first
 * wrapper; timestamp type CreateTime). Empty sets, empty wrappers and cut entries are KW_EDECODE. `limit` bounds each wrapper's and all
 * records' decompressed size. *batch is of kw_malloc, its CRC is set. */
kw_err kw_message_set_to_batch(const void *p, size_t n, size_t limit, struct kw_compressor *c, uint8_t **batch, size_t *size,
                               const char **why) KW_CHECK;
/* Down-conversion on fetch: a v2 batch becomes messages of magic 0/1 appended to out (headers and producer fields fall away, control
 * batches vanish; same codec, zstd becomes KW_EUNSUPPORTED). Messages below first_offset are left out. On failure out->len is as before.
 * The CRC is not checked. */
kw_err kw_batch_to_message_set(const uint8_t *p, size_t n, int8_t magic, int64_t first_offset, size_t limit, struct kw_compressor *c,
                               struct kw_out *out) KW_CHECK;

#endif
