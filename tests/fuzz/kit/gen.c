/* gen.c - messages out of choices, by the descriptors that the schemas give. Contract: gen.h. */
#include "gen.h"

enum { ELEMENTS_MAX = 400, TEXT_MAX = 32000 };

struct gen {
    int16_t version;
    const struct fuzz_dict *dict;
    struct fuzz_src *s;
    struct kw_arena *a;
    int elements; /* made so far: nested arrays must not multiply */
    int skip;     /* fields still to be kept */
};

static const size_t elem_size[] = {
    [KW_T_BOOL] = sizeof(bool),           [KW_T_I8] = 1,  [KW_T_I16] = 2, [KW_T_U16] = 2, [KW_T_I32] = 4,
    [KW_T_U32] = 4,                       [KW_T_I64] = 8, [KW_T_F64] = 8, [KW_T_UUID] = sizeof(struct kw_uuid),
    [KW_T_STRING] = sizeof(struct kw_str), [KW_T_BYTES] = sizeof(struct kw_bytes)};

static void *need(void *p) {
    FUZZ_CHECK(p, "no memory for the fuzzer's own message");
    return p;
}

/* The field's control byte. Small ones keep this field and some behind it, so that a change deep in a message costs few bytes. */
static uint8_t control(struct gen *g) {
    if (g->skip > 0) {
        g->skip--;
        return 0;
    }
    uint8_t c = fuzz_u8(g->s);
    if (c == 0 || c >= 16) return c;
    g->skip = c;
    return 0;
}

static bool nullable(const struct kw_field *f, int16_t version) {
    return f->null_min >= 0 && version >= f->null_min && version <= f->null_max;
}

/* ---- Values ---- */

/* What a request that means something has where its default means nothing. */
static int64_t fresh_number(const char *name, int64_t def) {
    static const struct {
        const char *name;
        int64_t value;
    } table[] = {{"acks", -1},         {"timeoutMs", 1000},        {"maxWaitMs", 0},          {"minBytes", 1},         {"maxBytes", 1 << 20},
                 {"numPartitions", 1}, {"partitionMaxBytes", 1 << 20}, {"replicationFactor", 1}, {"resourceType", 2}, {"count", 2},
                 {"timestamp", -1},    {"sessionEpoch", -1},       {"leaderEpoch", 0},        {"currentLeaderEpoch", -1}, {"responsePartitionLimit", 100},
                 {"leader", 0},        {"partitionEpoch", 0},      {"partitionId", 0},       {"isr", 1},              {"replicas", 1}};
    for (size_t i = 0; i < KW_COUNTOF(table); i++)
        if (strcmp(table[i].name, name) == 0) return table[i].value;
    return def;
}

static int64_t draw_number(struct gen *g, uint8_t c, int bytes) {
    static const int64_t special[] = {-1, -2, -3, -4, 0, 1, 2, 127, 128, 255, 256, INT16_MAX, INT16_MIN, 65535, 65536, INT32_MAX, INT32_MIN, UINT32_MAX,
                                      INT64_MAX, INT64_MIN, INT64_MAX - 1, INT32_MAX - 1, 1000, 100000};
    const struct fuzz_dict *d = g->dict;
    if (c < 0x50) return c - 16;
    if (c < 0x90 && d->number_count) return d->numbers[c % d->number_count];
    if (c < 0xc0) return special[c % KW_COUNTOF(special)];
    if (c < 0xd0) return -(c & 15);
    return (int64_t)fuzz_bytes(g->s, bytes);
}

static struct kw_str draw_text(struct gen *g, uint8_t c, bool may_be_null) {
    const struct fuzz_dict *d = g->dict;
    if (c < 0xa0) return kw_str_of(d->texts[c % d->text_count]);
    if (c < 0xa8) return may_be_null ? kw_str_null() : kw_str_of("");
    if (c < 0xb0) return kw_str_of("");
    size_t n = c < 0xf0 ? (size_t)c & 31 : fuzz_u16(g->s) % (TEXT_MAX + 1);
    char *p = need(kw_arena_alloc(g->a, n + 1));
    memset(p, 'a' + c % 26, n);
    for (size_t i = 0; c < 0xf0 && i < n && fuzz_left(g->s); i++) p[i] = (char)fuzz_u8(g->s);
    return (struct kw_str){p, (int32_t)n};
}

static struct kw_uuid draw_id(struct gen *g, uint8_t c) {
    struct kw_uuid id = {{0}};
    if (c < 0xd0) return g->dict->ids[c % g->dict->id_count];
    if (c >= 0xe0)
        for (size_t i = 0; i < 16; i++) id.b[i] = fuzz_u8(g->s);
    return id;
}

static void put_scalar(struct gen *g, uint8_t type, uint8_t c, void *at) {
    int64_t v = type == KW_T_UUID ? 0 : draw_number(g, c, (int)elem_size[type]);
    switch (type) {
    case KW_T_BOOL: *(bool *)at = v & 1; break;
    case KW_T_I8: *(int8_t *)at = (int8_t)v; break;
    case KW_T_I16: *(int16_t *)at = (int16_t)v; break;
    case KW_T_U16: *(uint16_t *)at = (uint16_t)v; break;
    case KW_T_I32: *(int32_t *)at = (int32_t)v; break;
    case KW_T_U32: *(uint32_t *)at = (uint32_t)v; break;
    case KW_T_I64: *(int64_t *)at = v; break;
    case KW_T_F64: memcpy(at, &v, 8); break;
    default: *(struct kw_uuid *)at = draw_id(g, c);
    }
}

static void fresh_scalar(const struct gen *g, const struct kw_field *f, uint8_t type, void *at) {
    int64_t v = fresh_number(f->name, f->type == KW_T_ARRAY ? 0 : f->def);
    switch (type) {
    case KW_T_I8: *(int8_t *)at = (int8_t)v; break;
    case KW_T_I16: *(int16_t *)at = (int16_t)v; break;
    case KW_T_I32: *(int32_t *)at = (int32_t)v; break;
    case KW_T_I64: *(int64_t *)at = v; break;
    case KW_T_UUID: *(struct kw_uuid *)at = g->dict->ids[0]; break;
    default: break;
    }
}

static void view(struct gen *g, uint8_t type, bool may_be_null, bool fresh, uint8_t *at) {
    uint8_t c = control(g);
    struct kw_str *s = (void *)at;
    if (type == KW_T_STRING) {
        if (c) *s = draw_text(g, c, may_be_null);
        else if (fresh && s->len <= 0) *s = kw_str_of(g->dict->texts[0]);
    } else if (c) {
        struct kw_str t = draw_text(g, c, may_be_null);
        *(struct kw_bytes *)(void *)at = (struct kw_bytes){(const uint8_t *)t.p, t.len};
    } else if (fresh && !may_be_null && ((struct kw_bytes *)(void *)at)->len < 0) {
        ((struct kw_bytes *)(void *)at)->len = 0;
    }
}

static void records(struct gen *g, const struct kw_field *f, bool fresh, struct kw_records *r) {
    uint8_t c = control(g);
    if (c >= 0xf8) *r = (struct kw_records){NULL, nullable(f, g->version) ? -1 : 0, NULL};
    else if ((c || fresh) && g->dict->records) g->dict->records(g->dict->ctx, g->s, g->a, r);
    if (r->len < 0 && !nullable(f, g->version)) r->len = 0;
}

/* ---- Structure ---- */

static void message(struct gen *g, const struct kw_desc *d, uint8_t *msg, bool fresh);

/* Arrays without which a request means more than with an element of defaults. */
static bool stays_empty(const struct kw_field *f) {
    return strcmp(f->name, "assignments") == 0 || strcmp(f->name, "forgottenTopicsData") == 0;
}

static int32_t array_size(struct gen *g, const struct kw_field *f, int32_t now, bool fresh) {
    uint8_t c = control(g);
    if (c == 0) return fresh && now <= 0 && !stays_empty(f) ? 1 : now;
    if (c < 0x20) return nullable(f, g->version) ? -1 : 0;
    return c < 0xf0 ? c & 7 : (int32_t)fuzz_u8(g->s);
}

static void array(struct gen *g, const struct kw_field *f, bool fresh, uint8_t *at) {
    struct kw_array a;
    memcpy(&a, at, sizeof a);
    int32_t old = KW_MAX(a.n, 0), n = array_size(g, f, a.n, fresh);
    if (n > ELEMENTS_MAX - g->elements) n = KW_MAX(ELEMENTS_MAX - g->elements, 0);
    if (n > 0) g->elements += n;
    size_t size = f->elem == KW_T_STRUCT ? f->desc->size : elem_size[f->elem];
    uint8_t *v = n > 0 ? need(kw_arena_calloc(g->a, (size_t)n, size)) : NULL;
    for (int32_t i = 0; i < n; i++) {
        uint8_t *e = v + (size_t)i * size;
        bool is_new = i >= old;
        if (!is_new) memcpy(e, (uint8_t *)a.v + (size_t)i * size, size);
        else if (f->elem == KW_T_STRUCT) memcpy(e, f->desc->init, size);
        if (f->elem == KW_T_STRUCT) message(g, f->desc, e, is_new);
        else if (f->elem == KW_T_STRING || f->elem == KW_T_BYTES) view(g, f->elem, false, is_new, e);
        else {
            uint8_t c = control(g);
            if (c) put_scalar(g, f->elem, c, e);
            else if (is_new) fresh_scalar(g, f, f->elem, e);
        }
    }
    a = (struct kw_array){v, n};
    memcpy(at, &a, sizeof a);
}

static void nullable_struct(struct gen *g, const struct kw_field *f, bool fresh, uint8_t *at) {
    uint8_t *p, c = control(g);
    memcpy(&p, at, sizeof p);
    if (c >= 16 && c < 0x60 && nullable(f, g->version)) p = NULL;
    else if (!p && (c >= 0x60 || fresh || !nullable(f, g->version))) {
        p = need(kw_arena_alloc(g->a, f->desc->size));
        memcpy(p, f->desc->init, f->desc->size);
        message(g, f->desc, p, true);
    } else if (p) {
        uint8_t *copy = need(kw_arena_dup(g->a, p, f->desc->size));
        message(g, f->desc, p = copy, false);
    }
    memcpy(at, &p, sizeof p);
}

static void field(struct gen *g, const struct kw_field *f, bool fresh, uint8_t *at) {
    bool plain = fresh && f->tag < 0; /* tagged fields are there when somebody wants them */
    switch (f->type) {
    case KW_T_STRING:
    case KW_T_BYTES:
        view(g, f->type, nullable(f, g->version), plain && !nullable(f, g->version), at);
        break;
    case KW_T_RECORDS:
        records(g, f, plain, (void *)at);
        break;
    case KW_T_ARRAY:
        array(g, f, plain, at);
        break;
    case KW_T_STRUCT:
        if (f->null_min >= 0) nullable_struct(g, f, plain, at);
        else message(g, f->desc, at, plain);
        break;
    default: {
        uint8_t c = control(g);
        if (c) put_scalar(g, f->type, c, at);
        else if (plain) fresh_scalar(g, f, f->type, at);
    }
    }
}

static void message(struct gen *g, const struct kw_desc *d, uint8_t *msg, bool fresh) {
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        if (g->version >= f->min && g->version <= f->max) field(g, f, fresh, msg + f->offset);
    }
}

void fuzz_message(const struct kw_desc *d, int16_t version, const struct fuzz_dict *dict, struct fuzz_src *s, struct kw_arena *a, void *msg,
                  bool fresh) {
    struct gen g = {.version = version, .dict = dict, .s = s, .a = a};
    message(&g, d, msg, fresh);
}
