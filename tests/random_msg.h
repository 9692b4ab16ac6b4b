/* random_msg.h - random instances of any message by its descriptor, and an encoding size computed apart from the codec.
 *
 * Used by unit/test_codec.c and interop/schema/schema_tool.c. Fills only what the version carries; the rest keeps its default.
 */
#ifndef RANDOM_MSG_H
#define RANDOM_MSG_H

#include "base/rng.h"
#include "wire/codec.h"

struct random_msg {
    struct kw_rng *rng;
    struct kw_arena *arena; /* without a budget */
    int16_t version;
    uint32_t count_max; /* of an array; 0: every array, string and tagged field is empty */
    uint32_t depth;
};

static inline bool random_in(const struct kw_field *f, int16_t v) { return v >= f->min && v <= f->max; }
static inline bool random_nullable(const struct kw_field *f, int16_t v) { return f->null_min >= 0 && v >= f->null_min && v <= f->null_max; }

static inline int64_t random_integer(struct kw_rng *r) {
    switch (kw_rng_below(r, 6)) {
    case 0: return 0;
    case 1: return -1;
    case 2: return (int64_t)kw_rng_below(r, 300);
    case 3: return kw_rng_below(r, 2) ? INT64_MAX : INT64_MIN;
    case 4: return (int32_t)kw_rng_next(r);
    default: return (int64_t)kw_rng_next(r);
    }
}

static inline int32_t random_length(struct random_msg *m) {
    if (m->count_max == 0) return 0;
    switch (kw_rng_below(m->rng, 40)) {
    case 0: return (int32_t)(126 + kw_rng_below(m->rng, 4));
    case 1: return m->depth == 0 ? (int32_t)(16380 + kw_rng_below(m->rng, 8)) : 200;
    case 2: case 3: case 4: return 0;
    default: return (int32_t)(1 + kw_rng_below(m->rng, 12));
    }
}

/* Text is valid UTF-8, so that a peer that checks it gives the same bytes back. */
static inline void random_view(struct random_msg *m, uint8_t type, bool nullable, void *at) {
    int32_t n = nullable && kw_rng_below(m->rng, 4) == 0 ? -1 : random_length(m);
    uint8_t *p = n < 0 ? NULL : kw_arena_alloc(m->arena, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        if (type != KW_T_STRING) p[i] = (uint8_t)kw_rng_next(m->rng);
        else if (i + 1 < n && kw_rng_below(m->rng, 8) == 0) memcpy(&p[i++], "\xc3\xa9", 2);
        else p[i] = (uint8_t)('a' + kw_rng_below(m->rng, 26));
    }
    if (type == KW_T_STRING) *(struct kw_str *)at = (struct kw_str){(char *)p, n};
    else if (type == KW_T_BYTES) *(struct kw_bytes *)at = (struct kw_bytes){p, n};
    else *(struct kw_records *)at = (struct kw_records){p, n, NULL};
}

static inline size_t random_scalar(struct kw_rng *r, uint8_t type, void *at) {
    int64_t v = random_integer(r);
    switch (type) {
    case KW_T_BOOL: *(bool *)at = v & 1; return sizeof(bool);
    case KW_T_I8: *(int8_t *)at = (int8_t)v; return 1;
    case KW_T_I16: *(int16_t *)at = (int16_t)v; return 2;
    case KW_T_U16: *(uint16_t *)at = (uint16_t)v; return 2;
    case KW_T_I32: *(int32_t *)at = (int32_t)v; return 4;
    case KW_T_U32: *(uint32_t *)at = (uint32_t)v; return 4;
    case KW_T_I64: *(int64_t *)at = v; return 8;
    case KW_T_F64: *(double *)at = (double)v; return 8;
    default:
        memset(at, 0, 16);
        for (int i = 0; i < 16 && v; i++) ((uint8_t *)at)[i] = (uint8_t)kw_rng_next(r);
        return 16;
    }
}

static inline void random_struct(struct random_msg *m, const struct kw_desc *d, uint8_t *msg);

static inline void random_array(struct random_msg *m, const struct kw_field *f, uint8_t *at) {
    struct kw_array a = {NULL, -1};
    if (!random_nullable(f, m->version) || kw_rng_below(m->rng, 4) != 0) {
        a.n = m->count_max ? (int32_t)kw_rng_below(m->rng, m->count_max + 1) : 0;
        if (m->count_max && kw_rng_below(m->rng, 30) == 0) a.n = m->depth == 0 ? 130 : 7;
        size_t size = f->elem == KW_T_STRUCT ? f->desc->size : sizeof(struct kw_str);
        uint8_t *v = a.v = kw_arena_calloc(m->arena, (size_t)a.n, size);
        m->depth++;
        for (int32_t i = 0; i < a.n; i++) {
            if (f->elem == KW_T_STRUCT) {
                kw_msg_init(f->desc, v);
                random_struct(m, f->desc, v);
                v += size;
            } else if (f->elem == KW_T_STRING || f->elem == KW_T_BYTES) {
                random_view(m, f->elem, false, v);
                v += size;
            } else {
                v += random_scalar(m->rng, f->elem, v);
            }
        }
        m->depth--;
    }
    memcpy(at, &a, sizeof a);
}

static inline void random_struct(struct random_msg *m, const struct kw_desc *d, uint8_t *msg) {
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        uint8_t *at = msg + f->offset;
        if (!random_in(f, m->version) || (f->tag >= 0 && (!m->count_max || kw_rng_below(m->rng, 3) == 0))) continue;
        if (f->type == KW_T_STRING || f->type == KW_T_BYTES || f->type == KW_T_RECORDS) {
            random_view(m, f->type, random_nullable(f, m->version), at);
        } else if (f->type == KW_T_ARRAY) {
            random_array(m, f, at);
        } else if (f->type == KW_T_STRUCT && f->null_min < 0) {
            random_struct(m, f->desc, at);
        } else if (f->type == KW_T_STRUCT) {
            if (random_nullable(f, m->version) && kw_rng_below(m->rng, 4) == 0) continue;
            uint8_t *s = kw_arena_dup(m->arena, f->desc->init, f->desc->size);
            random_struct(m, f->desc, s);
            memcpy(at, &s, sizeof s);
        } else {
            random_scalar(m->rng, f->type, at);
        }
    }
}

/* *msg lives in the arena. */
static inline void *random_message(const struct kw_desc *d, int16_t version, struct kw_rng *rng, struct kw_arena *a, uint32_t count_max) {
    struct random_msg m = {.rng = rng, .arena = a, .version = version, .count_max = count_max};
    void *msg = kw_arena_dup(a, d->init, d->size);
    random_struct(&m, d, msg);
    return msg;
}

#endif
