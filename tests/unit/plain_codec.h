/* plain_codec.h - a second, naive encoder, for tests: it writes what it is told, also what the format forbids (a null where none may
 * be, a count of 2^31-1, unknown tagged fields), and says nothing about versions that lack a field. Used by test_codec*.c. */
#ifndef PLAIN_CODEC_H
#define PLAIN_CODEC_H

#include "wire/codec.h"

struct plain {
    struct kw_out *out;
    int16_t version;
    const void *lie_at;    /* the field in memory whose length is written as `lie` */
    int64_t lie;           /* -1: null */
    bool unknown;          /* every flexible struct gets an unknown tagged field */
    uint32_t unknown_size;
};
enum { PLAIN_TAG_MAX = 64, PLAIN_OURS = 10000, PLAIN_UNKNOWN_TAG = 20000 }; /* Kafka's tags, then ours; no schema has one between or above */

static const size_t plain_size[] = { /* in memory */
    [KW_T_BOOL] = 1, [KW_T_I8] = 1,  [KW_T_I16] = 2, [KW_T_U16] = 2,   [KW_T_I32] = 4,
    [KW_T_U32] = 4,  [KW_T_I64] = 8, [KW_T_F64] = 8, [KW_T_UUID] = 16, [KW_T_STRING] = sizeof(struct kw_str), [KW_T_BYTES] = sizeof(struct kw_bytes)};

static inline void plain_struct(struct plain *c, const struct kw_desc *d, const uint8_t *msg);

static inline void plain_length(struct plain *c, const void *at, int64_t n, bool flexible, bool wide) {
    if (at == c->lie_at) n = c->lie;
    if (flexible) kw_out_uvarint(c->out, (uint32_t)(n + 1));
    else if (wide) kw_out_i32(c->out, (int32_t)n);
    else kw_out_i16(c->out, (int16_t)n);
}

static inline void plain_value(struct plain *c, uint8_t type, bool flexible, const uint8_t *at) {
    if (type == KW_T_UUID) {
        kw_out_bytes(c->out, at, 16);
    } else if (type < KW_T_UUID) {
        uint8_t b[8];
        for (size_t i = 0; i < plain_size[type]; i++) b[i] = at[plain_size[type] - 1 - i];
        kw_out_bytes(c->out, b, plain_size[type]);
    } else {
        struct kw_bytes b;
        memcpy(&b, at, sizeof b);
        plain_length(c, at, b.len, flexible, type != KW_T_STRING);
        if (b.len > 0 && !(at == c->lie_at && c->lie < 0)) kw_out_bytes(c->out, b.p, (size_t)b.len);
    }
}

static inline void plain_field(struct plain *c, const struct kw_field *f, bool flexible, const uint8_t *at) {
    flexible = flexible && !f->flexible_none;
    if (f->type == KW_T_ARRAY) {
        struct kw_array a;
        memcpy(&a, at, sizeof a);
        plain_length(c, at, a.n, flexible, true);
        if (at == c->lie_at && c->lie < 0) return;
        const uint8_t *v = a.v;
        for (int32_t i = 0; i < a.n; i++) {
            if (f->elem == KW_T_STRUCT) plain_struct(c, f->desc, v);
            else plain_value(c, f->elem, flexible, v);
            v += f->elem == KW_T_STRUCT ? f->desc->size : plain_size[f->elem];
        }
    } else if (f->type == KW_T_STRUCT && f->null_min >= 0) {
        const uint8_t *s;
        memcpy(&s, at, sizeof s);
        bool null = s == NULL || (at == c->lie_at && c->lie < 0);
        kw_out_i8(c->out, null ? -1 : 1);
        if (!null) plain_struct(c, f->desc, s);
    } else if (f->type == KW_T_STRUCT) {
        plain_struct(c, f->desc, at);
    } else {
        plain_value(c, f->type, flexible, at);
    }
}

/* Same in memory as the default: compared value by value, with structs by their fields. */
static inline bool plain_is_default(const struct kw_field *f, const uint8_t *at, const uint8_t *init) {
    if (f->type == KW_T_STRUCT && f->null_min < 0) {
        for (size_t i = 0; i < f->desc->field_count; i++) {
            const struct kw_field *g = &f->desc->fields[i];
            if (!plain_is_default(g, at + g->offset, init + g->offset)) return false;
        }
        return true;
    }
    if (f->type <= KW_T_UUID) return memcmp(at, init, plain_size[f->type]) == 0;
    if (f->type == KW_T_STRUCT) return memcmp(at, init, sizeof(void *)) == 0;
    int32_t n, d; /* strings, bytes, arrays: none here has a default of its own content */
    memcpy(&n, at + offsetof(struct kw_array, n), sizeof n);
    memcpy(&d, init + offsetof(struct kw_array, n), sizeof d);
    return n == d;
}

static inline void plain_tagged(struct plain *c, const struct kw_desc *d, const struct kw_field *f, const uint8_t *msg) {
    if (plain_is_default(f, msg + f->offset, (const uint8_t *)d->init + f->offset)) return;
    struct kw_out content, *out = c->out;
    kw_out_init(&content);
    c->out = &content;
    plain_field(c, f, true, msg + f->offset);
    c->out = out;
    kw_out_uvarint(out, (uint32_t)f->tag);
    kw_out_uvarint(out, (uint32_t)content.len);
    kw_out_bytes(out, content.p, content.len);
    kw_out_deinit(&content);
}

static inline void plain_struct(struct plain *c, const struct kw_desc *d, const uint8_t *msg) {
    bool flexible = c->version >= d->flexible_min;
    uint32_t tags = c->unknown ? 1 : 0;
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        if (c->version < f->min || c->version > f->max) continue;
        if (f->tag < 0) plain_field(c, f, flexible, msg + f->offset);
        else if (!plain_is_default(f, msg + f->offset, (const uint8_t *)d->init + f->offset)) tags++;
    }
    if (!flexible) return;
    kw_out_uvarint(c->out, tags);
    for (int32_t tag = 0; tag <= PLAIN_OURS + PLAIN_TAG_MAX; tag = tag == PLAIN_TAG_MAX ? PLAIN_OURS : tag + 1) {
        for (size_t i = 0; i < d->field_count; i++) {
            const struct kw_field *f = &d->fields[i];
            if (f->tag == tag && c->version >= f->min && c->version <= f->max) plain_tagged(c, d, f, msg);
        }
    }
    if (c->unknown) {
        kw_out_uvarint(c->out, PLAIN_UNKNOWN_TAG);
        kw_out_uvarint(c->out, c->unknown_size);
        uint8_t *p = kw_out_reserve(c->out, c->unknown_size);
        if (p) memset(p, 0xa5, c->unknown_size);
    }
}

#endif
