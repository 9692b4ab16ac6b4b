/* model.c - see model.h: the tables, and the records' contents. */
#include "model.h"

#include <stdlib.h>

void sim_model_init(struct sim_model *m, struct sim_world *w) {
    memset(m, 0, sizeof *m);
    m->w = w;
}

void sim_model_deinit(struct sim_model *m) {
    for (int t = 0; t < SIM_TOPICS_MAX; t++) {
        for (size_t p = 0; p < KW_COUNTOF(m->topics[t].logs); p++) {
            free(m->topics[t].logs[p].slots);
            free(m->topics[t].logs[p].losses);
        }
    }
    free(m->records);
    free(m->producers);
}

struct sim_log *sim_model_log(struct sim_model *m, int topic, int partition) {
    if (topic < 0 || topic >= m->topic_count || partition < 0 || (size_t)partition >= KW_COUNTOF(m->topics[topic].logs)) return NULL;
    return &m->topics[topic].logs[partition];
}

struct sim_slot *sim_log_slot(struct sim_log *l, int64_t offset) {
    if (offset < 0 || offset > 10000000) abort();
    while ((size_t)offset >= l->count) {
        l->slots = sim_grow(l->slots, l->count, &l->cap, sizeof *l->slots);
        l->slots[l->count++] = (struct sim_slot){0, -1};
    }
    return &l->slots[offset];
}

bool sim_log_lost(const struct sim_model *m, const struct sim_log *l, int64_t offset, const struct sim_record *r) {
    for (size_t i = 0; i < l->loss_count; i++)
        if (offset >= l->losses[i].from && r->sent_us <= l->losses[i].at_us && (!l->losses[i].acks1 || m->producers[r->producer].acks == 1)) return true;
    return false;
}

bool sim_log_stale(const struct sim_log *l, int64_t offset, int32_t epoch) {
    for (size_t i = 0; i < l->loss_count; i++)
        if (offset >= l->losses[i].from && epoch <= l->losses[i].epoch && !l->losses[i].acks1) return true;
    return false;
}

void sim_log_lose(struct sim_model *m, struct sim_log *l, int64_t from, int32_t epoch, bool acks1) {
    l->losses = sim_grow(l->losses, l->loss_count, &l->loss_cap, sizeof *l->losses);
    l->losses[l->loss_count++] = (struct sim_loss){from, m->w->now_us, epoch, acks1};
    for (size_t i = (size_t)from; i < l->count && !acks1; i++) {
        if (l->slots[i].id1) m->records[l->slots[i].id1 - 1].first_offset = -1;
        l->slots[i] = (struct sim_slot){0, -1};
    }
    if (!acks1) l->count = KW_MIN(l->count, (size_t)from);
}

/* ---- Content ---- */

#define MAGIC "kcSIM"
enum { MAGIC_SIZE = 5, ID_SIZE = 8, VALUE_MIN = MAGIC_SIZE + ID_SIZE };

static void put_id(uint8_t *p, uint32_t id) { kw_store64(p, (uint64_t)id * 0x9e3779b97f4a7c15u); }
static bool get_id(const uint8_t *p, uint32_t *id) {
    uint64_t v = kw_load64(p) * 0xf1de83e19937733du; /* the inverse of the factor above */
    if (v > UINT32_MAX) return false;
    *id = (uint32_t)v;
    return true;
}

static size_t value_size(struct kw_rng *r) {
    switch (kw_rng_below(r, 64)) {
    case 0: return 20000 + kw_rng_below(r, 60000);
    case 1: case 2: case 3: return 1000 + kw_rng_below(r, 6000);
    default: return VALUE_MIN + kw_rng_below(r, 200);
    }
}

/* The value behind its number, eight bytes at a time: it is made at every read. Compressible: the same eight bytes, now and then others. */
static void fill(struct kw_rng *r, uint8_t *v, size_t n) {
    uint64_t word = kw_rng_next(r);
    size_t i = VALUE_MIN;
    for (; i < n && i % 8; i++) v[i] = (uint8_t)(word >> (i % 8 * 8));
    for (; i + 8 <= n; i += 8) {
        if (i % 64 == 0) word = kw_rng_next(r);
        kw_store64(v + i, __builtin_bswap64(word));
    }
    if (i < n && i % 64 == 0) word = kw_rng_next(r);
    for (; i < n; i++) v[i] = (uint8_t)(word >> (i % 8 * 8));
}

void sim_content_make(uint64_t seed, uint32_t id, bool old, struct sim_content *c) {
    static const char *const names[] = {"id", "a", "trace", "x-y"};
    struct kw_rng r;
    kw_rng_init(&r, seed * 1000003 + id);
    uint64_t shape = kw_rng_below(&r, 32);
    if (old) shape = 31;
    size_t key_size = kw_rng_below(&r, 24), n = shape < 2 ? 0 : value_size(&r), at = 0, extra = kw_rng_below(&r, 4) ? 0 : kw_rng_below(&r, 4);
    bool in_header = shape < 2;
    if (old) extra = 0;
    c->timestamp_back_ms = kw_rng_below(&r, 3) ? -1 : (int64_t)kw_rng_below(&r, kw_rng_below(&r, 8) ? 2000 : 100000000);
    c->bytes = c->cap < key_size + n + 256 ? sim_need(realloc(c->bytes, c->cap = key_size + n + 256)) : c->bytes;
    for (size_t i = 0; i < key_size; i++) c->bytes[at++] = (uint8_t)kw_rng_next(&r);
    c->key = (struct kw_bytes){c->bytes, kw_rng_below(&r, 3) ? (int32_t)key_size : -1};
    if (c->key.len < 0) c->key.p = NULL;
    uint8_t *v = c->bytes + at;
    if (n) {
        memcpy(v, MAGIC, MAGIC_SIZE);
        put_id(v + MAGIC_SIZE, id);
        fill(&r, v, n);
    }
    c->value = (struct kw_bytes){shape == 0 ? NULL : v, shape == 0 ? -1 : (int32_t)n};
    at += n;
    c->header_count = 0;
    for (size_t i = in_header ? 0 : 1; i < extra + (in_header ? 1 : 0) && i < KW_COUNTOF(names); i++) {
        size_t size = i == 0 ? ID_SIZE : kw_rng_below(&r, 12);
        uint8_t *h = c->bytes + at;
        if (i == 0) put_id(h, id);
        else for (size_t k = 0; k < size; k++) h[k] = (uint8_t)kw_rng_next(&r);
        at += size;
        bool null = i > 0 && kw_rng_below(&r, 4) == 0;
        c->headers[c->header_count++] = (struct kw_header_view){kw_str_of(names[i]), {null ? NULL : h, null ? -1 : (int32_t)size}};
    }
}

void sim_content_deinit(struct sim_content *c) { free(c->bytes); }

bool sim_content_id(struct kw_bytes key, struct kw_bytes value, const uint8_t *headers, size_t headers_size, uint32_t *id) {
    (void)key;
    if (value.len >= VALUE_MIN) return memcmp(value.p, MAGIC, MAGIC_SIZE) == 0 && get_id(value.p + MAGIC_SIZE, id);
    struct kw_in in;
    struct kw_header_view h;
    if (headers_size == SIM_NO_HEADERS) return false;
    kw_in_init(&in, headers, headers_size);
    if (kw_record_header_next(&in, &h) != 1 || h.value.len != ID_SIZE) return false;
    return get_id(h.value.p, id);
}

static bool same(struct kw_bytes a, struct kw_bytes b) { return a.len == b.len && (a.len <= 0 || memcmp(a.p, b.p, (size_t)a.len) == 0); }

const char *sim_content_differs(const struct sim_content *c, struct kw_bytes key, struct kw_bytes value, const uint8_t *headers, size_t headers_size) {
    if (!same(c->key, key)) return "the key";
    if (!same(c->value, value)) return "the value";
    if (headers_size == SIM_NO_HEADERS) return NULL;
    struct kw_in in;
    struct kw_header_view h;
    kw_in_init(&in, headers, headers_size);
    for (size_t i = 0; i < c->header_count; i++) {
        if (kw_record_header_next(&in, &h) != 1) return "the number of headers";
        if (!kw_str_eq(h.key, c->headers[i].key)) return "a header's name";
        if (!same(h.value, c->headers[i].value)) return "a header's value";
    }
    return kw_record_header_next(&in, &h) == 0 ? NULL : "the number of headers";
}
