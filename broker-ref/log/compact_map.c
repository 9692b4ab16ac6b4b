/* compact_map.c - the newest offset of each key. Contract: compact_map.h. */
#include "compact_map.h"

kw_err kb_compact_map_init(struct kb_compact_map *m, size_t bytes, const uint64_t seed[2]) {
    size_t cap = 32;
    while (cap * 2 * sizeof(*m->slots) <= bytes) cap *= 2;
    *m = (struct kb_compact_map){.slots = kw_calloc(cap, sizeof(*m->slots)), .cap = cap, .count_max = cap - cap / 10};
    if (!m->slots) return KW_ENOMEM;
    m->key[0] = seed[0];
    m->key[1] = seed[1];
    return KW_OK;
}

void kb_compact_map_deinit(struct kb_compact_map *m) {
    kw_free(m->slots);
    m->slots = NULL;
}

static inline uint64_t rotl(uint64_t x, int n) {
    return x << n | x >> (64 - n);
}

static inline void round_(uint64_t v[4]) {
    v[0] += v[1], v[1] = rotl(v[1], 13) ^ v[0], v[0] = rotl(v[0], 32);
    v[2] += v[3], v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotl(v[1], 17) ^ v[2], v[2] = rotl(v[2], 32);
}

static void absorb(uint64_t v[4], uint64_t w) {
    v[3] ^= w;
    round_(v);
    round_(v);
    v[0] ^= w;
}

/* SipHash-2-4 with 128 bits of result (Aumasson, Bernstein). */
static void hash_of(const struct kb_compact_map *m, struct kw_bytes key, uint64_t out[2]) {
    size_t n = (size_t)key.len, i = 0;
    uint64_t v[4] = {m->key[0] ^ 0x736f6d6570736575, m->key[1] ^ 0x646f72616e646f6d ^ 0xee, m->key[0] ^ 0x6c7967656e657261,
                     m->key[1] ^ 0x7465646279746573};
    for (; i + 8 <= n; i += 8) {
        uint64_t w;
        memcpy(&w, key.p + i, 8);
        absorb(v, w);
    }
    uint64_t last = (uint64_t)n << 56;
    for (size_t k = 0; i + k < n; k++) last |= (uint64_t)key.p[i + k] << (8 * k);
    absorb(v, last);
    v[2] ^= 0xee;
    for (int k = 0; k < 4; k++) round_(v);
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
    v[1] ^= 0xdd;
    for (int k = 0; k < 4; k++) round_(v);
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
}

static struct kb_compact_slot *slot_of(const struct kb_compact_map *m, const uint64_t hash[2]) {
    size_t i = (size_t)hash[0] & (m->cap - 1);
    while (m->slots[i].next && (m->slots[i].hash[0] != hash[0] || m->slots[i].hash[1] != hash[1])) i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

kw_err kb_compact_map_put(struct kb_compact_map *m, struct kw_bytes key, int64_t offset) {
    uint64_t hash[2];
    hash_of(m, key, hash);
    struct kb_compact_slot *s = slot_of(m, hash);
    if (!s->next) {
        if (m->count == m->count_max) return KW_ELIMIT;
        m->count++;
        s->hash[0] = hash[0];
        s->hash[1] = hash[1];
    }
    s->next = offset + 1;
    return KW_OK;
}

int64_t kb_compact_map_get(const struct kb_compact_map *m, struct kw_bytes key) {
    uint64_t hash[2];
    hash_of(m, key, hash);
    return slot_of(m, hash)->next - 1;
}
