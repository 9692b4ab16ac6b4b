/* buf.c - the bounded cursor and the growing writer. Called by wire/ and whatever reads or writes a format. Calls base. */
#include "buf.h"

enum { OUT_FIRST_SIZE = 256, SPLICE_FIRST_COUNT = 4 };

const uint8_t kw_in_none[1];

void kw_in_fail(struct kw_in *in, kw_err err) {
    KW_ASSERT(err != KW_OK);
    if (in->err == KW_OK) in->err = err;
}

/* LEB128 of at most `bits` bits. Longer than needed (trailing zero groups) is accepted up to the byte limit, bits past it are not. */
static inline uint64_t leb128(struct kw_in *in, unsigned bits) {
    if (KW_UNLIKELY(in->err != KW_OK)) return 0;
    uint64_t v = 0;
    const uint8_t *p = in->p;
    for (unsigned shift = 0; shift < bits; shift += 7) {
        if (KW_UNLIKELY(p == in->end)) {
            in->err = KW_ESHORT;
            return 0;
        }
        uint8_t b = *p++;
        if (KW_UNLIKELY(bits - shift < 7 && (b >> (bits - shift)) != 0)) break; /* too many bits, or a further byte */
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            in->p = p;
            return v;
        }
    }
    in->err = KW_EDECODE;
    return 0;
}

uint32_t kw_in_uvarint(struct kw_in *in) {
    if (KW_LIKELY(in->err == KW_OK && in->p != in->end && *in->p < 0x80)) return *in->p++;
    return (uint32_t)leb128(in, 32);
}

uint64_t kw_in_uvarlong(struct kw_in *in) { return leb128(in, 64); }
int32_t kw_in_varint(struct kw_in *in) { return (int32_t)kw_unzigzag(kw_in_uvarint(in)); }
int64_t kw_in_varlong(struct kw_in *in) { return kw_unzigzag(leb128(in, 64)); }

void kw_out_init(struct kw_out *o) { *o = (struct kw_out){0}; }

void kw_out_init_fixed(struct kw_out *o, void *p, size_t cap) {
    *o = (struct kw_out){.p = p, .cap = cap, .fixed = true};
}

void kw_out_deinit(struct kw_out *o) {
    if (!o->fixed) kw_free(o->p);
    kw_free(o->splices);
    *o = (struct kw_out){0};
}

void kw_out_reset(struct kw_out *o) {
    o->len = 0;
    o->err = KW_OK;
    o->splice_count = 0;
    o->splice_bytes = 0;
}

void kw_out_fail(struct kw_out *o, kw_err err) {
    KW_ASSERT(err != KW_OK);
    if (o->err == KW_OK) o->err = err;
}

bool kw_out_grow(struct kw_out *o, size_t n) {
    if (o->fixed || n > SIZE_MAX / 4 || o->cap > SIZE_MAX / 4) {
        o->err = KW_ENOMEM;
        return false;
    }
    size_t cap = KW_MAX(o->cap * 2, (size_t)OUT_FIRST_SIZE);
    cap = KW_MAX(cap, o->len + n);
    uint8_t *p = kw_realloc(o->p, cap);
    if (!p) {
        o->err = KW_ENOMEM;
        return false;
    }
    o->p = p;
    o->cap = cap;
    return true;
}

void kw_out_uvarlong(struct kw_out *o, uint64_t v) {
    uint8_t *p = kw_out_reserve(o, kw_uvarint_size(v));
    if (!p) return;
    for (; v >= 0x80; v >>= 7) *p++ = (uint8_t)(v | 0x80);
    *p = (uint8_t)v;
}

void kw_out_uvarint(struct kw_out *o, uint32_t v) { kw_out_uvarlong(o, v); }
void kw_out_varint(struct kw_out *o, int32_t v) { kw_out_uvarlong(o, kw_zigzag(v)); }
void kw_out_varlong(struct kw_out *o, int64_t v) { kw_out_uvarlong(o, kw_zigzag(v)); }

void kw_out_bytes(struct kw_out *o, const void *p, size_t n) {
    uint8_t *d = kw_out_reserve(o, n);
    if (d && n) memcpy(d, p, n);
}

void kw_out_add_splice(struct kw_out *o, const uint8_t *p, size_t n, void *ref) {
    if (o->err != KW_OK) return;
    if (!o->splice) {
        if (p || n == 0) kw_out_bytes(o, p, n);
        else o->err = KW_EINVAL;
        return;
    }
    if (o->splice_count == o->splice_cap) {
        size_t cap = KW_MAX(o->splice_cap * 2, (size_t)SPLICE_FIRST_COUNT);
        if (cap > SIZE_MAX / sizeof *o->splices) {
            o->err = KW_ENOMEM;
            return;
        }
        struct kw_splice *s = kw_realloc(o->splices, cap * sizeof *s);
        if (!s) {
            o->err = KW_ENOMEM;
            return;
        }
        o->splices = s;
        o->splice_cap = cap;
    }
    o->splices[o->splice_count++] = (struct kw_splice){.at = o->len, .p = p, .len = n, .ref = ref};
    o->splice_bytes += n;
}
