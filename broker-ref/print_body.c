/* print_body.c - any message of any version as JSON, straight from its bytes by its descriptor: nothing is allocated but the text, and unknown tagged fields
 * are shown, which a decoder passes over. Called by print. Calls print_json, print_records. See print.h; the wire's forms: wire/codec.c, KIP-482.
 *
 * Schemas nest a fixed depth, so the recursion is bounded whatever the input says.
 */
#include <stdio.h>

#include "print.h"

struct body {
    const struct kb_print_frame *f;
    struct kw_in *in;
    struct kw_out *out;
    int16_t version;
};

static bool is_nullable(const struct kw_field *f, int16_t version) {
    return f->null_min >= 0 && version >= f->null_min && version <= f->null_max;
}

static void put_struct(const struct body *b, const struct kw_desc *d);

/* ---- What is not to be told ---- */

static bool has_part(const char *p, size_t n, const char *part) {
    size_t len = strlen(part);
    for (size_t i = 0; i + len <= n; i++) {
        size_t k = 0;
        while (k < len && ((uint8_t)p[i + k] | 0x20) == (uint8_t)part[k]) k++;
        if (k == len) return true;
    }
    return false;
}

/* Of a setting: whoever has its value gets in. */
static bool is_secret_name(struct kw_str name) {
    static const char *const parts[] = {"password", "secret", "jaas", "credential", "keystore.key", "private.key", "token"};
    for (size_t i = 0; name.len > 0 && i < KW_COUNTOF(parts); i++)
        if (has_part(name.p, (size_t)name.len, parts[i])) return true;
    return false;
}

static bool is_value(const struct kw_field *f) {
    return f->type == KW_T_STRING && (strcmp(f->name, "value") == 0 || strcmp(f->name, "configValue") == 0);
}
static bool is_name(const struct kw_field *f) {
    return f->type == KW_T_STRING && (strcmp(f->name, "name") == 0 || strcmp(f->name, "configName") == 0);
}

/* ---- Fields ---- */

static int64_t take_length(const struct body *b, bool flexible, bool wide, bool nullable) {
    int64_t n = flexible ? (int64_t)kw_in_uvarint(b->in) - 1 : wide ? kw_in_i32(b->in) : kw_in_i16(b->in);
    if (b->in->err == KW_OK && (n < -1 || (n == -1 && !nullable) || n > (wide ? INT32_MAX : INT16_MAX))) kw_in_fail(b->in, KW_EDECODE);
    return b->in->err == KW_OK ? n : -1;
}

static struct kw_str put_view(const struct body *b, uint8_t type, bool flexible, bool nullable, bool masked) {
    int64_t n = take_length(b, flexible, type != KW_T_STRING, nullable);
    const uint8_t *p = n < 0 ? NULL : kw_in_take(b->in, (size_t)n);
    if (!p)
        kb_json_text(b->out, "null");
    else if (masked)
        kb_json_text(b->out, "\"(masked)\"");
    else if (type == KW_T_STRING)
        kb_json_string(b->out, (const char *)p, (size_t)n);
    else if (type == KW_T_RECORDS)
        kb_print_records(b->f, p, (size_t)n, b->out);
    else
        kb_json_bytes(b->out, p, (size_t)n, b->f->print->bytes_max);
    return (struct kw_str){(const char *)p, p ? (int32_t)n : -1};
}

static void put_double(struct kw_out *out, int64_t bits) {
    char text[40];
    double v;
    memcpy(&v, &bits, 8);
    if (v - v == 0) /* neither infinite nor no number: JSON has none of these */
        snprintf(text, sizeof(text), "%.17g", v);
    else
        snprintf(text, sizeof(text), "\"%g\"", v);
    kb_json_text(out, text);
}

static void put_scalar(const struct body *b, uint8_t type) {
    switch (type) {
    case KW_T_BOOL: kb_json_text(b->out, kw_in_i8(b->in) ? "true" : "false"); break;
    case KW_T_I8: kb_json_int(b->out, kw_in_i8(b->in)); break;
    case KW_T_I16: kb_json_int(b->out, kw_in_i16(b->in)); break;
    case KW_T_U16: kb_json_int(b->out, (uint16_t)kw_in_i16(b->in)); break;
    case KW_T_I32: kb_json_int(b->out, kw_in_i32(b->in)); break;
    case KW_T_U32: kb_json_int(b->out, (uint32_t)kw_in_i32(b->in)); break;
    case KW_T_I64: kb_json_int(b->out, kw_in_i64(b->in)); break;
    case KW_T_F64: put_double(b->out, kw_in_i64(b->in)); break;
    case KW_T_UUID: {
        const uint8_t *p = kw_in_take(b->in, 16);
        struct kw_uuid id = {{0}};
        if (p) memcpy(&id, p, 16);
        kb_json_uuid(b->out, id);
        break;
    }
    default: KW_ASSERT(type <= KW_T_UUID);
    }
}

static void put_array(const struct body *b, const struct kw_field *f, bool flexible) {
    int64_t n = take_length(b, flexible, true, is_nullable(f, b->version));
    if (n < 0) {
        kb_json_text(b->out, "null");
        return;
    }
    kw_out_i8(b->out, '[');
    for (int64_t i = 0; i < n && b->in->err == KW_OK && b->out->err == KW_OK; i++) {
        if (kw_in_left(b->in) == 0 || b->out->len > KB_PRINT_LINE_MAX) { /* an element takes a byte at least */
            kw_in_fail(b->in, b->out->len > KB_PRINT_LINE_MAX ? KW_ELIMIT : KW_ESHORT);
            return;
        }
        if (i > 0) kw_out_i8(b->out, ',');
        if (f->elem == KW_T_STRUCT)
            put_struct(b, f->desc);
        else if (f->elem == KW_T_STRING || f->elem == KW_T_BYTES)
            (void)put_view(b, f->elem, flexible, false, false);
        else
            put_scalar(b, f->elem);
    }
    kw_out_i8(b->out, ']');
}

/* A nullable struct has a byte in front: 1, or -1 for null. */
static void put_nested(const struct body *b, const struct kw_field *f) {
    int8_t mark = is_nullable(f, b->version) ? kw_in_i8(b->in) : 1;
    if (mark == 1) {
        put_struct(b, f->desc);
        return;
    }
    if (mark != -1) kw_in_fail(b->in, KW_EDECODE);
    kb_json_text(b->out, "null");
}

/* The text of a string field, for what its neighbours make of it. */
static struct kw_str put_field(const struct body *b, const struct kw_field *f, bool flexible, bool masked) {
    flexible = flexible && !f->flexible_none;
    switch (f->type) {
    case KW_T_STRING:
    case KW_T_BYTES:
    case KW_T_RECORDS: return put_view(b, f->type, flexible, is_nullable(f, b->version), masked);
    case KW_T_ARRAY: put_array(b, f, flexible); break;
    case KW_T_STRUCT: put_nested(b, f); break;
    default: put_scalar(b, f->type);
    }
    return kw_str_null();
}

/* ---- Tagged fields ---- */

static void put_known_tag(const struct body *b, const struct kw_field *f, const uint8_t *p, size_t n, bool *first) {
    struct kw_in content;
    kw_in_init(&content, p, n);
    struct body sub = {b->f, &content, b->out, b->version};
    kb_json_name(b->out, first, f->name);
    (void)put_field(&sub, f, true, false);
    if (content.err != KW_OK || kw_in_left(&content) != 0) kw_in_fail(b->in, content.err ? content.err : KW_EDECODE);
}

static void put_unknown_tag(const struct body *b, uint32_t tag, const uint8_t *p, size_t n, bool *first, bool *any) {
    if (!*any) {
        kb_json_name(b->out, first, "unknownTaggedFields");
        kw_out_i8(b->out, '[');
    } else {
        kw_out_i8(b->out, ',');
    }
    *any = true;
    kb_json_text(b->out, "{\"tag\":");
    kb_json_int(b->out, tag);
    kb_json_text(b->out, ",\"data\":");
    kb_json_bytes(b->out, p, n, b->f->print->bytes_max);
    kw_out_i8(b->out, '}');
}

static const struct kw_field *tagged(const struct kw_desc *d, uint32_t tag, int16_t version) {
    for (size_t i = d->tagged_from; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        if ((int64_t)f->tag == (int64_t)tag && version >= f->min && version <= f->max) return f;
    }
    return NULL;
}

/* Twice over the same bytes: those that are known stand among the other fields, the unknown ones together behind them. */
static void put_tags(const struct body *b, const struct kw_desc *d, bool *first) {
    struct kw_in again = *b->in, *const passes[] = {b->in, &again};
    bool any = false;
    for (size_t pass = 0; pass < 2; pass++) {
        struct kw_in *in = passes[pass];
        uint32_t count = kw_in_uvarint(in);
        for (uint32_t i = 0; i < count && in->err == KW_OK && b->out->err == KW_OK; i++) {
            uint32_t tag = kw_in_uvarint(in), size = kw_in_uvarint(in);
            const uint8_t *p = kw_in_take(in, size);
            const struct kw_field *f = tagged(d, tag, b->version);
            if (!p) return;
            if (f && pass == 0) put_known_tag(b, f, p, size, first);
            if (!f && pass == 1) put_unknown_tag(b, tag, p, size, first, &any);
        }
    }
    if (any) kw_out_i8(b->out, ']');
}

static void put_struct(const struct body *b, const struct kw_desc *d) {
    bool flexible = b->version >= d->flexible_min, first = true;
    struct kw_str name = kw_str_null();
    kw_out_i8(b->out, '{');
    for (size_t i = 0; i < d->tagged_from && b->in->err == KW_OK; i++) {
        const struct kw_field *f = &d->fields[i];
        if (b->version < f->min || b->version > f->max) continue;
        kb_json_name(b->out, &first, f->name);
        struct kw_str text = put_field(b, f, flexible, is_value(f) && is_secret_name(name));
        if (is_name(f)) name = text;
    }
    if (flexible && b->in->err == KW_OK) put_tags(b, d, &first);
    kw_out_i8(b->out, '}');
}

kw_err kb_print_body(const struct kb_print_frame *f, const struct kw_desc *d, int16_t version, struct kw_in *in, struct kw_out *out) {
    struct body b = {f, in, out, version};
    if (version < d->min || version > d->max) return KW_EVERSION;
    put_struct(&b, d);
    return in->err;
}
