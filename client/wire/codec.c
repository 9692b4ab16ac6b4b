/* codec.c - decodes and encodes any message of any version by its descriptor. Called by wire/frame and whoever holds a message's
 * bytes. Calls base/buf, base/arena. KIP-482.
 *
 * A decoder allocates for arrays and nullable structs only, and only for a count that the remaining bytes can hold. Schemas nest a
 * fixed depth (schemagen.py checks it), so the recursion is bounded whatever the input says.
 */
#include "codec.h"

/* One field takes a few nanoseconds: a call for each is a third of that. */
#define HOT inline __attribute__((always_inline))

enum { STRING_SIZE_MAX = INT16_MAX }; /* in both forms, as Kafka has it */

static const size_t elem_size[] = {
    [KW_T_BOOL] = sizeof(bool),           [KW_T_I8] = 1,  [KW_T_I16] = 2, [KW_T_U16] = 2, [KW_T_I32] = 4,
    [KW_T_U32] = 4,                       [KW_T_I64] = 8, [KW_T_F64] = 8, [KW_T_UUID] = sizeof(struct kw_uuid),
    [KW_T_STRING] = sizeof(struct kw_str), [KW_T_BYTES] = sizeof(struct kw_bytes)};

static bool is_present(const struct kw_field *f, int16_t version) { return version >= f->min && version <= f->max; }
static bool is_nullable(const struct kw_field *f, int16_t version) {
    return f->null_min >= 0 && version >= f->null_min && version <= f->null_max;
}
static bool is_pointer(const struct kw_field *f) { return f->null_min >= 0; } /* of KW_T_STRUCT */

void kw_msg_init(const struct kw_desc *d, void *msg) { memcpy(msg, d->init, d->size); }

/* Decoding */

struct dec {
    struct kw_in *in;
    struct kw_arena *arena;
    int16_t version;
};

static void dec_struct(const struct dec *c, const struct kw_desc *d, uint8_t *msg);

/* The length in front of a string (wide false), or of bytes, records and arrays; -1 is null, which the field must allow. */
static int32_t dec_length(const struct dec *c, bool flexible, bool wide, bool nullable) {
    int64_t n = flexible ? (int64_t)kw_in_uvarint(c->in) - 1 : wide ? kw_in_i32(c->in) : kw_in_i16(c->in);
    if (KW_UNLIKELY(c->in->err != KW_OK)) return 0;
    if (KW_UNLIKELY(n > (wide ? INT32_MAX : STRING_SIZE_MAX) || n < -1 || (n == -1 && !nullable))) {
        kw_in_fail(c->in, KW_EDECODE);
        return 0;
    }
    return (int32_t)n;
}

static void dec_view(const struct dec *c, uint8_t type, bool flexible, bool nullable, uint8_t *at) {
    int32_t n = dec_length(c, flexible, type != KW_T_STRING, nullable);
    const uint8_t *p = n < 0 ? NULL : kw_in_take(c->in, (size_t)n);
    if (c->in->err != KW_OK) return;
    if (type == KW_T_STRING) *(struct kw_str *)(void *)at = (struct kw_str){(const char *)p, n};
    else if (type == KW_T_BYTES) *(struct kw_bytes *)(void *)at = (struct kw_bytes){p, n};
    else *(struct kw_records *)(void *)at = (struct kw_records){p, n, NULL};
}

static HOT void dec_scalar(struct kw_in *in, uint8_t type, void *at) {
    switch (type) {
    case KW_T_BOOL: *(bool *)at = kw_in_i8(in) != 0; break;
    case KW_T_I8: *(int8_t *)at = kw_in_i8(in); break;
    case KW_T_I16: *(int16_t *)at = kw_in_i16(in); break;
    case KW_T_U16: *(uint16_t *)at = (uint16_t)kw_in_i16(in); break;
    case KW_T_I32: *(int32_t *)at = kw_in_i32(in); break;
    case KW_T_U32: *(uint32_t *)at = (uint32_t)kw_in_i32(in); break;
    case KW_T_I64: *(int64_t *)at = kw_in_i64(in); break;
    case KW_T_F64: {
        int64_t bits = kw_in_i64(in);
        memcpy(at, &bits, 8);
        break;
    }
    case KW_T_UUID: {
        const uint8_t *p = kw_in_take(in, 16);
        if (p) memcpy(at, p, 16);
        break;
    }
    default: KW_ASSERT(type <= KW_T_UUID);
    }
}

static size_t elem_wire_size_min(const struct dec *c, const struct kw_field *f, bool flexible) {
    switch (f->elem) {
    case KW_T_STRUCT: return f->desc->size_min[c->version - f->desc->min];
    case KW_T_STRING: return flexible ? 1 : 2;
    case KW_T_BYTES: return flexible ? 1 : 4;
    default: return elem_size[f->elem];
    }
}

static void dec_array(const struct dec *c, const struct kw_field *f, bool flexible, uint8_t *at) {
    int32_t n = dec_length(c, flexible, true, is_nullable(f, c->version));
    struct kw_array a = {NULL, n};
    if (c->in->err != KW_OK) return;
    if (n > 0) {
        if ((uint64_t)n * elem_wire_size_min(c, f, flexible) > kw_in_left(c->in)) {
            kw_in_fail(c->in, KW_ESHORT);
            return;
        }
        size_t size = f->elem == KW_T_STRUCT ? f->desc->size : elem_size[f->elem];
        uint8_t *v = a.v = kw_arena_alloc(c->arena, (size_t)n * size);
        if (!v) {
            kw_in_fail(c->in, KW_ENOMEM);
            return;
        }
        for (int32_t i = 0; i < n && c->in->err == KW_OK; i++, v += size) {
            if (f->elem == KW_T_STRUCT) {
                memcpy(v, f->desc->init, size);
                dec_struct(c, f->desc, v);
            } else if (f->elem == KW_T_STRING || f->elem == KW_T_BYTES) {
                dec_view(c, f->elem, flexible, false, v);
            } else {
                dec_scalar(c->in, f->elem, v);
            }
        }
    }
    memcpy(at, &a, sizeof a); /* the struct's own type of array: same layout, another type */
}

/* A nullable struct has a byte in front: 1, or -1 for null. */
static void dec_nullable_struct(const struct dec *c, const struct kw_field *f, uint8_t *at) {
    if (is_nullable(f, c->version)) {
        int8_t mark = kw_in_i8(c->in);
        if (mark == -1 || c->in->err != KW_OK) return; /* the default of a nullable struct is null */
        if (mark != 1) {
            kw_in_fail(c->in, KW_EDECODE);
            return;
        }
    }
    uint8_t *s = kw_arena_dup(c->arena, f->desc->init, f->desc->size);
    if (!s) {
        kw_in_fail(c->in, KW_ENOMEM);
        return;
    }
    dec_struct(c, f->desc, s);
    memcpy(at, &s, sizeof s);
}

static HOT void dec_field(const struct dec *c, const struct kw_field *f, bool flexible, uint8_t *at) {
    flexible = flexible && !f->flexible_none;
    switch (f->type) {
    case KW_T_STRING:
    case KW_T_BYTES:
    case KW_T_RECORDS: dec_view(c, f->type, flexible, is_nullable(f, c->version), at); break;
    case KW_T_ARRAY: dec_array(c, f, flexible, at); break;
    case KW_T_STRUCT:
        if (is_pointer(f)) dec_nullable_struct(c, f, at);
        else dec_struct(c, f->desc, at);
        break;
    default: dec_scalar(c->in, f->type, at);
    }
}

/* Tagged fields: a count, then tag, size, content of each, by rising tag. Unknown ones are skipped, known ones must fill their size. */
static void dec_tagged(const struct dec *c, const struct kw_desc *d, uint8_t *msg) {
    struct kw_in *in = c->in;
    uint32_t count = kw_in_uvarint(in);
    const struct kw_field *f = d->fields + d->tagged_from, *end = d->fields + d->field_count;
    int64_t last = -1;
    for (uint32_t i = 0; i < count && in->err == KW_OK; i++) { /* each takes two bytes: a huge count ends with the input */
        uint32_t tag = kw_in_uvarint(in), size = kw_in_uvarint(in);
        const uint8_t *p = kw_in_take(in, size);
        if (!p) return;
        if (tag <= last) {
            kw_in_fail(in, KW_EDECODE);
            return;
        }
        last = tag;
        while (f < end && (int64_t)f->tag < (int64_t)tag) f++;
        if (f == end || (int64_t)f->tag != (int64_t)tag || !is_present(f, c->version)) continue;
        struct kw_in content;
        kw_in_init(&content, p, size);
        struct dec sub = {&content, c->arena, c->version};
        dec_field(&sub, f, true, msg + f->offset);
        if (content.err == KW_ENOMEM) kw_in_fail(in, KW_ENOMEM);
        else if (content.err != KW_OK || kw_in_left(&content) != 0) kw_in_fail(in, KW_EDECODE);
    }
}

/* *msg holds the defaults already. */
static void dec_struct(const struct dec *c, const struct kw_desc *d, uint8_t *msg) {
    bool flexible = c->version >= d->flexible_min;
    const struct kw_field *end = d->fields + d->tagged_from;
    for (const struct kw_field *f = d->fields; f < end; f++) {
        if (is_present(f, c->version)) dec_field(c, f, flexible, msg + f->offset);
    }
    if (flexible) dec_tagged(c, d, msg);
}

kw_err kw_decode(const struct kw_desc *d, int16_t version, struct kw_in *in, struct kw_arena *a, void *msg) {
    kw_msg_init(d, msg);
    if (version < d->min || version > d->max) return KW_EVERSION;
    struct dec c = {in, a, version};
    dec_struct(&c, d, msg);
    if (in->err != KW_OK) kw_msg_init(d, msg);
    return in->err;
}

/* Encoding */

struct enc {
    struct kw_out *out;
    int16_t version;
};

static void enc_struct(const struct enc *c, const struct kw_desc *d, const uint8_t *msg);
static bool is_default(const struct kw_field *f, const uint8_t *at);

static bool is_default_struct(const struct kw_desc *d, const uint8_t *msg) {
    for (size_t i = 0; i < d->field_count; i++) {
        if (!is_default(&d->fields[i], msg + d->fields[i].offset)) return false;
    }
    return true;
}

static bool is_default(const struct kw_field *f, const uint8_t *at) {
    const void *p = at;
    switch (f->type) {
    case KW_T_BOOL: return *(const bool *)p == (f->def != 0);
    case KW_T_I8: return *(const int8_t *)p == f->def;
    case KW_T_I16: return *(const int16_t *)p == f->def;
    case KW_T_U16: return *(const uint16_t *)p == f->def;
    case KW_T_I32: return *(const int32_t *)p == f->def;
    case KW_T_U32: return *(const uint32_t *)p == f->def;
    case KW_T_I64: return *(const int64_t *)p == f->def;
    case KW_T_F64: return memcmp(p, &f->def, 8) == 0;
    case KW_T_UUID: return kw_uuid_is_zero(*(const struct kw_uuid *)p);
    case KW_T_STRING:
        if (f->def_str) return kw_str_eq(*(const struct kw_str *)p, kw_str_of(f->def_str));
        return ((const struct kw_str *)p)->len == f->def;
    case KW_T_BYTES: return ((const struct kw_bytes *)p)->len == f->def;
    case KW_T_RECORDS: return ((const struct kw_records *)p)->len == f->def;
    case KW_T_ARRAY: {
        struct kw_array a;
        memcpy(&a, at, sizeof a);
        return a.n == f->def;
    }
    default: break;
    }
    if (!is_pointer(f)) return is_default_struct(f->desc, at);
    const uint8_t *s;
    memcpy(&s, at, sizeof s);
    return s == NULL;
}

static void enc_length(const struct enc *c, int32_t n, bool flexible, bool wide, bool nullable) {
    if (KW_UNLIKELY(n < -1 || (n == -1 && !nullable) || (!wide && n > STRING_SIZE_MAX))) kw_out_fail(c->out, KW_EINVAL);
    else if (flexible) kw_out_uvarint(c->out, (uint32_t)(n + INT64_C(1)));
    else if (wide) kw_out_i32(c->out, n);
    else kw_out_i16(c->out, (int16_t)n);
}

static void enc_view(const struct enc *c, uint8_t type, bool flexible, bool nullable, const uint8_t *at) {
    const void *p;
    int32_t n;
    if (type == KW_T_STRING) {
        const struct kw_str *s = (const void *)at;
        p = s->p;
        n = s->len;
    } else {
        const struct kw_bytes *b = (const void *)at;
        p = b->p;
        n = b->len;
    }
    enc_length(c, n, flexible, type != KW_T_STRING, nullable);
    if (n <= 0) return;
    if (!p) kw_out_fail(c->out, KW_EINVAL);
    else kw_out_bytes(c->out, p, (size_t)n);
}

static void enc_records(const struct enc *c, const struct kw_field *f, bool flexible, const uint8_t *at) {
    const struct kw_records *r = (const void *)at;
    enc_length(c, r->len, flexible, true, is_nullable(f, c->version));
    if (r->len > 0) kw_out_add_splice(c->out, r->p, (size_t)r->len, r->ref);
}

static HOT void enc_scalar(struct kw_out *out, uint8_t type, const void *at) {
    switch (type) {
    case KW_T_BOOL: kw_out_i8(out, *(const bool *)at ? 1 : 0); break;
    case KW_T_I8: kw_out_i8(out, *(const int8_t *)at); break;
    case KW_T_I16: kw_out_i16(out, *(const int16_t *)at); break;
    case KW_T_U16: kw_out_i16(out, (int16_t)*(const uint16_t *)at); break;
    case KW_T_I32: kw_out_i32(out, *(const int32_t *)at); break;
    case KW_T_U32: kw_out_i32(out, (int32_t)*(const uint32_t *)at); break;
    case KW_T_I64: kw_out_i64(out, *(const int64_t *)at); break;
    case KW_T_F64: {
        int64_t bits;
        memcpy(&bits, at, 8);
        kw_out_i64(out, bits);
        break;
    }
    case KW_T_UUID: kw_out_bytes(out, at, 16); break;
    default: KW_ASSERT(type <= KW_T_UUID);
    }
}

static void enc_array(const struct enc *c, const struct kw_field *f, bool flexible, const uint8_t *at) {
    struct kw_array a;
    memcpy(&a, at, sizeof a);
    enc_length(c, a.n, flexible, true, is_nullable(f, c->version));
    if (a.n > 0 && !a.v) kw_out_fail(c->out, KW_EINVAL);
    size_t size = f->elem == KW_T_STRUCT ? f->desc->size : elem_size[f->elem];
    const uint8_t *v = a.v;
    for (int32_t i = 0; i < a.n && c->out->err == KW_OK; i++, v += size) {
        if (f->elem == KW_T_STRUCT) enc_struct(c, f->desc, v);
        else if (f->elem == KW_T_STRING || f->elem == KW_T_BYTES) enc_view(c, f->elem, flexible, false, v);
        else enc_scalar(c->out, f->elem, v);
    }
}

static void enc_nullable_struct(const struct enc *c, const struct kw_field *f, const uint8_t *at) {
    const uint8_t *s;
    memcpy(&s, at, sizeof s);
    bool nullable = is_nullable(f, c->version);
    if (!s && !nullable) kw_out_fail(c->out, KW_EINVAL);
    if (nullable) kw_out_i8(c->out, s ? 1 : -1);
    if (s) enc_struct(c, f->desc, s);
}

static HOT void enc_field(const struct enc *c, const struct kw_field *f, bool flexible, const uint8_t *at) {
    flexible = flexible && !f->flexible_none;
    switch (f->type) {
    case KW_T_STRING:
    case KW_T_BYTES: enc_view(c, f->type, flexible, is_nullable(f, c->version), at); break;
    case KW_T_RECORDS: enc_records(c, f, flexible, at); break;
    case KW_T_ARRAY: enc_array(c, f, flexible, at); break;
    case KW_T_STRUCT:
        if (is_pointer(f)) enc_nullable_struct(c, f, at);
        else enc_struct(c, f->desc, at);
        break;
    default: enc_scalar(c->out, f->type, at);
    }
}

/* The size comes before the content: one byte is left for it, and the content moves where it needs more. */
static void enc_tagged_field(const struct enc *c, const struct kw_field *f, const uint8_t *at) {
    struct kw_out *out = c->out;
    kw_out_uvarint(out, (uint32_t)f->tag);
    size_t start = out->len;
    kw_out_i8(out, 0);
    enc_field(c, f, true, at);
    if (out->err != KW_OK) return;
    size_t size = out->len - start - 1, extra = kw_uvarint_size(size) - 1;
    if (size > INT32_MAX) {
        kw_out_fail(out, KW_EINVAL);
        return;
    }
    if (extra && kw_out_reserve(out, extra)) memmove(out->p + start + 1 + extra, out->p + start + 1, size);
    if (out->err != KW_OK) return;
    size_t end = out->len;
    out->len = start;
    kw_out_uvarint(out, (uint32_t)size);
    out->len = end;
}

static bool is_tag_written(const struct kw_field *f, int16_t version, const uint8_t *msg) {
    return is_present(f, version) && !is_default(f, msg + f->offset);
}

static void enc_tagged(const struct enc *c, const struct kw_desc *d, const uint8_t *msg) {
    const struct kw_field *first = d->fields + d->tagged_from, *end = d->fields + d->field_count;
    uint32_t count = 0;
    for (const struct kw_field *f = first; f < end; f++) count += is_tag_written(f, c->version, msg);
    kw_out_uvarint(c->out, count);
    for (const struct kw_field *f = first; f < end && count; f++) {
        if (is_tag_written(f, c->version, msg)) enc_tagged_field(c, f, msg + f->offset);
    }
}

static void enc_struct(const struct enc *c, const struct kw_desc *d, const uint8_t *msg) {
    bool flexible = c->version >= d->flexible_min;
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        if (!is_present(f, c->version)) {
            if (!f->ignorable && !is_default(f, msg + f->offset)) kw_out_fail(c->out, KW_EINVAL);
        } else if (i < d->tagged_from) {
            enc_field(c, f, flexible, msg + f->offset);
        }
    }
    if (flexible) enc_tagged(c, d, msg);
}

kw_err kw_encode(const struct kw_desc *d, int16_t version, const void *msg, struct kw_out *out) {
    if (version < d->min || version > d->max) return KW_EVERSION;
    struct enc c = {out, version};
    enc_struct(&c, d, msg);
    return out->err;
}

/* Tables */

const struct kw_api *kw_api_by_key(int16_t key) {
    size_t lo = 0, hi = kw_api_count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (kw_apis[mid].key == key) return &kw_apis[mid];
        if (kw_apis[mid].key < key) lo = mid + 1;
        else hi = mid;
    }
    return NULL;
}

const struct kw_api *kw_api_by_name(const char *name) {
    for (size_t i = 0; i < kw_api_count; i++) {
        if (strcmp(kw_apis[i].name, name) == 0) return &kw_apis[i];
    }
    return NULL;
}

const struct kw_desc *kw_metadata_record_by_type(int16_t type) {
    for (size_t i = 0; i < kw_metadata_record_count; i++) {
        if (kw_metadata_records[i]->api_key == type) return kw_metadata_records[i];
    }
    return NULL;
}
