/* compact_map.c - the newest offset of each key. Contract: compact_map.h. */
#include "compact_map.h"

#define CAP_FIRST 4096

kw_err kb_compact_map_init(struct kb_compact_map *m, size_t bytes, const uint64_t seed[2]) {
    size_t cap = 32;
    while (cap * 2 * sizeof(*m->slots) <= bytes) cap *= 2;
    *m = (struct kb_compact_map){.slots = kw_calloc(cap, sizeof(*m->slots)), .cap = KW_MIN(cap, CAP_FIRST), .cap_max = cap, .count_max = cap - cap / 10};
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

/* Twice as many slots, in place and in order: what is moved finds a free slot at or before its old one, or in the new half, and nothing in between that
 * is still to be moved. Those whose search went around the old end do not fit in, and are put aside first. */
static kw_err grow(struct kb_compact_map *m) {
    size_t old = m->cap, around = 0, n = 0;
    for (size_t i = 0; m->slots[i].next; i++) around += (m->slots[i].hash[0] & (old - 1)) > i;
    struct kb_compact_slot *aside = around ? kw_malloc(around * sizeof(*aside)) : NULL;
    if (around && !aside) return KW_ENOMEM;
    for (size_t i = 0; n < around; i++) {
        if ((m->slots[i].hash[0] & (old - 1)) <= i) continue;
        aside[n++] = m->slots[i];
        m->slots[i].next = 0;
    }
    m->cap *= 2;
    for (size_t i = 0; i < old; i++) {
        struct kb_compact_slot e = m->slots[i];
        if (!e.next) continue;
        m->slots[i].next = 0;
        *slot_of(m, e.hash) = e;
    }
    while (n > 0) {
        n--;
        *slot_of(m, aside[n].hash) = aside[n];
    }
    kw_free(aside);
    return KW_OK;
}

void kb_compact_map_hash(const struct kb_compact_map *m, struct kw_bytes key, uint64_t hash[2]) {
    hash_of(m, key, hash);
    __builtin_prefetch(&m->slots[hash[0] & (m->cap - 1)]);
}

kw_err kb_compact_map_put_hashed(struct kb_compact_map *m, const uint64_t hash[2], int64_t offset, int64_t *before) {
    struct kb_compact_slot *s = slot_of(m, hash);
    if (!s->next) {
        if (m->count == m->count_max) return KW_ELIMIT;
        if (m->count >= m->cap - m->cap / 4 && m->cap < m->cap_max) {
            kw_err err = grow(m);
            if (err) return err;
            s = slot_of(m, hash);
        }
        m->count++;
        *s = (struct kb_compact_slot){.hash = {hash[0], hash[1]}};
    }
    *before = s->next - 1;
    s->next = offset + 1;
    return KW_OK;
}

int64_t kb_compact_map_get_hashed(const struct kb_compact_map *m, const uint64_t hash[2]) {
    return slot_of(m, hash)->next - 1;
}

kw_err kb_compact_map_put(struct kb_compact_map *m, struct kw_bytes key, int64_t offset) {
    uint64_t hash[2];
    int64_t before;
    hash_of(m, key, hash);
    return kb_compact_map_put_hashed(m, hash, offset, &before);
}

int64_t kb_compact_map_get(const struct kb_compact_map *m, struct kw_bytes key) {
    uint64_t hash[2];
    hash_of(m, key, hash);
    return kb_compact_map_get_hashed(m, hash);
}
