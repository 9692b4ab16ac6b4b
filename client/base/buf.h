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

extern const uint8_t kw_in_none[];
static inline void kw_in_init(struct kw_in *in, const void *p, size_t n) {
    in->p = p ? p : kw_in_none; /* no bytes may come as NULL, which must not be counted from */
    in->end = in->p + n;
    in->err = KW_OK;
}
static inline size_t kw_in_left(const struct kw_in *in) { return (size_t)(in->end - in->p); }
/* A view of the next n bytes, NULL and KW_ESHORT when fewer. */
static inline const uint8_t *kw_in_take(struct kw_in *in, size_t n) {
    if (KW_UNLIKELY(in->err != KW_OK)) return NULL;
    if (KW_UNLIKELY(n > kw_in_left(in))) {
        in->err = KW_ESHORT;
        return NULL;
    }
    const uint8_t *p = in->p;
    in->p += n;
    return p;
}
static inline int8_t kw_in_i8(struct kw_in *in) {
    const uint8_t *p = kw_in_take(in, 1);
    return p ? (int8_t)*p : 0;
}
static inline int16_t kw_in_i16(struct kw_in *in) {
    const uint8_t *p = kw_in_take(in, 2);
    return p ? (int16_t)kw_load16(p) : 0;
}
static inline int32_t kw_in_i32(struct kw_in *in) {
    const uint8_t *p = kw_in_take(in, 4);
    return p ? (int32_t)kw_load32(p) : 0;
}
static inline int64_t kw_in_i64(struct kw_in *in) {
    const uint8_t *p = kw_in_take(in, 8);
    return p ? (int64_t)kw_load64(p) : 0;
}
uint32_t kw_in_uvarint(struct kw_in *in); /* unsigned LEB128, at most 5 bytes and 32 bits, else KW_EDECODE */
uint64_t kw_in_uvarlong(struct kw_in *in);
int32_t kw_in_varint(struct kw_in *in); /* zigzag */
int64_t kw_in_varlong(struct kw_in *in);
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
bool kw_out_grow(struct kw_out *o, size_t n);     /* makes room for n more bytes; false after a failure */
/* n writable bytes counted as written; NULL after a failure. */
static inline uint8_t *kw_out_reserve(struct kw_out *o, size_t n) {
    if (KW_UNLIKELY(o->err != KW_OK)) return NULL;
    if (KW_UNLIKELY(n > o->cap - o->len || !o->p) && !kw_out_grow(o, n)) return NULL;
    uint8_t *p = o->p + o->len;
    o->len += n;
    return p;
}
static inline void kw_out_i8(struct kw_out *o, int8_t v) {
    uint8_t *p = kw_out_reserve(o, 1);
    if (p) *p = (uint8_t)v;
}
static inline void kw_out_i16(struct kw_out *o, int16_t v) {
    uint8_t *p = kw_out_reserve(o, 2);
    if (p) kw_store16(p, (uint16_t)v);
}
static inline void kw_out_i32(struct kw_out *o, int32_t v) {
    uint8_t *p = kw_out_reserve(o, 4);
    if (p) kw_store32(p, (uint32_t)v);
}
static inline void kw_out_i64(struct kw_out *o, int64_t v) {
    uint8_t *p = kw_out_reserve(o, 8);
    if (p) kw_store64(p, (uint64_t)v);
}
void kw_out_uvarint(struct kw_out *o, uint32_t v);
void kw_out_uvarlong(struct kw_out *o, uint64_t v);
void kw_out_varint(struct kw_out *o, int32_t v);
void kw_out_varlong(struct kw_out *o, int64_t v);
void kw_out_bytes(struct kw_out *o, const void *p, size_t n);
/* Without `splice`, bytes in memory are copied in; a file slice cannot be: KW_EINVAL. */
void kw_out_add_splice(struct kw_out *o, const uint8_t *p, size_t n, void *ref);
void kw_out_fail(struct kw_out *o, kw_err err);

/* Compares first: most values are small, and bit scans are slow on some processors. */
static inline size_t kw_uvarint_size(uint64_t v) {
    if (v < 1u << 7) return 1;
    if (v < 1u << 14) return 2;
    return (size_t)((63 - __builtin_clzll(v)) / 7 + 1);
}
static inline uint64_t kw_zigzag(int64_t v) { return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63); }
static inline int64_t kw_unzigzag(uint64_t v) { return (int64_t)(v >> 1) ^ -(int64_t)(v & 1); }
static inline size_t kw_varint_size(int64_t v) { return kw_uvarint_size(kw_zigzag(v)); }

#endif
