/* buf.h - the only code that touches wire bytes: a bounded reader and a growing writer.
 *
 * Both are sticky: after the first failure every further call is a no-op and `err` says what went wrong, so that a decoder
 * checks once at its end (and before it allocates). Kafka protocol guide "Protocol Primitive Types"; KIP-482 for the compact forms.
 */
#ifndef KW_BUF_H
#define KW_BUF_H

#include "base.h"

struct kw_in {
    const uint8_t *p, *end;
    kw_err err; /* KW_OK, KW_ESHORT or KW_EDECODE */
};

static inline void kw_in_init(struct kw_in *in, const void *p, size_t n) {
    in->p = p;
    in->end = (const uint8_t *)p + n;
    in->err = KW_OK;
}
static inline size_t kw_in_left(const struct kw_in *in) { return (size_t)(in->end - in->p); }
int8_t kw_in_i8(struct kw_in *in);
int16_t kw_in_i16(struct kw_in *in);
int32_t kw_in_i32(struct kw_in *in);
int64_t kw_in_i64(struct kw_in *in);
uint32_t kw_in_uvarint(struct kw_in *in); /* unsigned LEB128, at most 5 bytes and 32 bits, else KW_EDECODE */
uint64_t kw_in_uvarlong(struct kw_in *in);
int32_t kw_in_varint(struct kw_in *in); /* zigzag */
int64_t kw_in_varlong(struct kw_in *in);
const uint8_t *kw_in_take(struct kw_in *in, size_t n); /* a view of the next n bytes, NULL and KW_ESHORT when fewer */
void kw_in_fail(struct kw_in *in, kw_err err);         /* keeps the first failure */

/* A writer collects bytes in one growing buffer. With `splice` on, a large byte field may be left out of the buffer and
 * remembered as a splice: the shell sends buf[0..at) , then the splice's bytes (memory, or a file slice when p is NULL), then the rest. */
struct kw_splice {
    size_t at;         /* offset in buf where the bytes belong */
    const uint8_t *p;  /* NULL: the bytes come from `ref` (a file slice) */
    size_t len;
    void *ref;
};
struct kw_out {
    uint8_t *p;
    size_t len, cap;
    kw_err err; /* KW_OK or KW_ENOMEM, KW_EINVAL */
    bool fixed; /* p is the caller's and never grows: running over is KW_ENOMEM */
    bool splice;
    struct kw_splice *splices;
    size_t splice_count, splice_cap;
    size_t splice_bytes; /* sum of len: frame length = len + splice_bytes */
};

void kw_out_init(struct kw_out *o);
void kw_out_init_fixed(struct kw_out *o, void *p, size_t cap);
void kw_out_deinit(struct kw_out *o);
void kw_out_reset(struct kw_out *o);              /* empties, keeps the memory */
uint8_t *kw_out_reserve(struct kw_out *o, size_t n); /* n writable bytes counted as written; NULL after a failure */
void kw_out_i8(struct kw_out *o, int8_t v);
void kw_out_i16(struct kw_out *o, int16_t v);
void kw_out_i32(struct kw_out *o, int32_t v);
void kw_out_i64(struct kw_out *o, int64_t v);
void kw_out_uvarint(struct kw_out *o, uint32_t v);
void kw_out_uvarlong(struct kw_out *o, uint64_t v);
void kw_out_varint(struct kw_out *o, int32_t v);
void kw_out_varlong(struct kw_out *o, int64_t v);
void kw_out_bytes(struct kw_out *o, const void *p, size_t n);
void kw_out_add_splice(struct kw_out *o, const uint8_t *p, size_t n, void *ref);
void kw_out_fail(struct kw_out *o, kw_err err);

static inline size_t kw_uvarint_size(uint64_t v) { return (size_t)((63 - __builtin_clzll(v | 1)) / 7 + 1); }
static inline uint64_t kw_zigzag(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }
static inline int64_t kw_unzigzag(uint64_t v) { return (int64_t)(v >> 1) ^ -(int64_t)(v & 1); }
static inline size_t kw_varint_size(int64_t v) { return kw_uvarint_size(kw_zigzag(v)); }

#endif
