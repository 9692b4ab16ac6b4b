/* map.c - insertion-ordered hash map. Called by client and broker cores; calls base's allocator.
 *
 * Entries lie densely in `slots` in insertion order; `index` is an open-addressing table of slot numbers + 1 (0: empty) with linear
 * probing. A removed entry leaves a tombstone in `slots` (value NULL) but none in `index`: the entries behind it move back.
 * Tombstones go when `slots` is full. Byte strings are hashed with SipHash-1-3, so that names from the network cannot be
 * made to collide once the shell has set the key.
 */
#include "map.h"

#define KEY_IS_NUMBER UINT32_MAX
#define SLOTS_MAX ((size_t)1 << 30)

struct kw_map_slot {
    void *value; /* NULL: removed */
    union {
        uint64_t number;
        char *bytes;
    } key;
    uint32_t len; /* KEY_IS_NUMBER, or the length of key.bytes */
    uint32_t hash;
};

/* For new maps. Atomic, since one thread may seed while another makes a map; halves of two seeds make a key as good as any. */
static _Atomic uint64_t hash_key[2] = {0x736f6d6570736575u, 0x646f72616e646f6du};

void kw_map_seed(uint64_t k0, uint64_t k1) {
    atomic_store_explicit(&hash_key[0], k0, memory_order_relaxed);
    atomic_store_explicit(&hash_key[1], k1, memory_order_relaxed);
}

static inline uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

#define SIP_ROUND                                                                                            \
    do {                                                                                                     \
        v0 += v1, v1 = rotl(v1, 13) ^ v0, v0 = rotl(v0, 32);                                                 \
        v2 += v3, v3 = rotl(v3, 16) ^ v2;                                                                    \
        v0 += v3, v3 = rotl(v3, 21) ^ v0;                                                                    \
        v2 += v1, v1 = rotl(v1, 17) ^ v2, v2 = rotl(v2, 32);                                                 \
    } while (0)

static uint32_t hash_bytes(const uint64_t key[2], const uint8_t *p, size_t n) {
    uint64_t v0 = key[0] ^ 0x736f6d6570736575u, v1 = key[1] ^ 0x646f72616e646f6du;
    uint64_t v2 = key[0] ^ 0x6c7967656e657261u, v3 = key[1] ^ 0x7465646279746573u;
    uint64_t last = (uint64_t)n << 56, word;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        v3 ^= word;
        SIP_ROUND;
        v0 ^= word;
    }
    for (size_t i = 0; i < n; i++) last |= (uint64_t)p[i] << (8 * i);
    v3 ^= last;
    SIP_ROUND;
    v0 ^= last;
    v2 ^= 0xff;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    uint64_t h = v0 ^ v1 ^ v2 ^ v3;
    return (uint32_t)(h ^ (h >> 32));
}

static uint32_t hash_number(const uint64_t key[2], uint64_t x) {
    x ^= key[0];
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return (uint32_t)(x ^ (x >> 32));
}

struct lookup {
    const void *bytes;
    uint64_t number;
    uint32_t len, hash;
};

static struct lookup by_number(const struct kw_map *m, uint64_t key) {
    return (struct lookup){.number = key, .len = KEY_IS_NUMBER, .hash = hash_number(m->key, key)};
}

static struct lookup by_bytes(const struct kw_map *m, const void *key, size_t len) {
    return (struct lookup){.bytes = key, .len = (uint32_t)len, .hash = hash_bytes(m->key, key, len)};
}

static inline bool slot_matches(const struct kw_map_slot *s, const struct lookup *k) {
    if (s->hash != k->hash || s->len != k->len) return false;
    if (k->len == KEY_IS_NUMBER) return s->key.number == k->number;
    return k->len == 0 || memcmp(s->key.bytes, k->bytes, k->len) == 0;
}

/* Place in `index`, or SIZE_MAX. The load is at most 1/2, so that an empty place always ends the search. */
static size_t find(const struct kw_map *m, const struct lookup *k) {
    if (m->count == 0) return SIZE_MAX;
    size_t mask = m->index_cap - 1;
    for (size_t i = k->hash & mask; m->index[i]; i = (i + 1) & mask)
        if (slot_matches(&m->slots[m->index[i] - 1], k)) return i;
    return SIZE_MAX;
}

static void index_add(uint32_t *index, size_t cap, uint32_t hash, size_t slot) {
    size_t i = hash & (cap - 1);
    while (index[i]) i = (i + 1) & (cap - 1);
    index[i] = (uint32_t)slot + 1;
}

void kw_map_init(struct kw_map *m) {
    *m = (struct kw_map){.key = {atomic_load_explicit(&hash_key[0], memory_order_relaxed), atomic_load_explicit(&hash_key[1], memory_order_relaxed)}};
}

static void key_free(struct kw_map_slot *s) {
    if (s->len != KEY_IS_NUMBER) kw_free(s->key.bytes);
}

void kw_map_deinit(struct kw_map *m) {
    for (size_t i = 0; i < m->slot_count; i++)
        if (m->slots[i].value) key_free(&m->slots[i]);
    kw_free(m->slots);
    kw_free(m->index);
    kw_map_init(m);
}

/* Squeezes tombstones out in place and points the index at the entries' new places. */
static void compact(struct kw_map *m) {
    size_t kept = 0;
    memset(m->index, 0, m->index_cap * sizeof(*m->index));
    for (size_t i = 0; i < m->slot_count; i++) {
        if (!m->slots[i].value) continue;
        m->slots[kept] = m->slots[i];
        index_add(m->index, m->index_cap, m->slots[kept].hash, kept);
        kept++;
    }
    m->slot_count = kept;
}

/* Makes place for one more entry. */
static kw_err make_room(struct kw_map *m) {
    if (m->slot_count < m->slot_cap) return KW_OK;
    if (m->count < m->slot_cap - m->slot_cap / 4) {
        compact(m);
        return KW_OK;
    }
    size_t cap = m->slot_cap ? 2 * m->slot_cap : 8;
    if (cap > SLOTS_MAX) return KW_ENOMEM;
    uint32_t *index = kw_calloc(2 * cap, sizeof(*index));
    if (!index) return KW_ENOMEM;
    struct kw_map_slot *slots = kw_realloc(m->slots, cap * sizeof(*slots));
    if (!slots) {
        kw_free(index);
        return KW_ENOMEM;
    }
    kw_free(m->index);
    m->slots = slots;
    m->slot_cap = cap;
    m->index = index;
    m->index_cap = 2 * cap;
    compact(m);
    return KW_OK;
}

static kw_err put(struct kw_map *m, const struct lookup *k, void *value) {
    KW_ASSERT(value);
    size_t at = find(m, k);
    if (at != SIZE_MAX) {
        m->slots[m->index[at] - 1].value = value;
        return KW_OK;
    }
    kw_err err = make_room(m);
    if (err) return err;
    struct kw_map_slot *s = &m->slots[m->slot_count];
    if (k->len == KEY_IS_NUMBER) {
        s->key.number = k->number;
    } else {
        s->key.bytes = kw_malloc(k->len > 0 ? k->len : 1);
        if (!s->key.bytes) return KW_ENOMEM;
        if (k->len > 0) memcpy(s->key.bytes, k->bytes, k->len);
    }
    s->value = value;
    s->len = k->len;
    s->hash = k->hash;
    index_add(m->index, m->index_cap, k->hash, m->slot_count);
    m->slot_count++;
    m->count++;
    return KW_OK;
}

/* Empties place `hole` of the index and moves back every later entry of the run that may not be found past it otherwise. */
static void index_remove(struct kw_map *m, size_t hole) {
    size_t mask = m->index_cap - 1;
    for (size_t i = (hole + 1) & mask; m->index[i]; i = (i + 1) & mask) {
        size_t home = m->slots[m->index[i] - 1].hash & mask;
        if (((i - home) & mask) < ((i - hole) & mask)) continue; /* its home lies behind the hole */
        m->index[hole] = m->index[i];
        hole = i;
    }
    m->index[hole] = 0;
}

static void *remove_entry(struct kw_map *m, const struct lookup *k) {
    size_t at = find(m, k);
    if (at == SIZE_MAX) return NULL;
    struct kw_map_slot *s = &m->slots[m->index[at] - 1];
    void *value = s->value;
    index_remove(m, at);
    key_free(s);
    s->value = NULL;
    m->count--;
    while (m->slot_count > 0 && !m->slots[m->slot_count - 1].value) m->slot_count--;
    return value;
}

kw_err kw_map_put_u64(struct kw_map *m, uint64_t key, void *value) {
    struct lookup k = by_number(m, key);
    return put(m, &k, value);
}

void *kw_map_get_u64(const struct kw_map *m, uint64_t key) {
    struct lookup k = by_number(m, key);
    size_t at = find(m, &k);
    return at == SIZE_MAX ? NULL : m->slots[m->index[at] - 1].value;
}

void *kw_map_remove_u64(struct kw_map *m, uint64_t key) {
    struct lookup k = by_number(m, key);
    return remove_entry(m, &k);
}

kw_err kw_map_put(struct kw_map *m, const void *key, size_t len, void *value) {
    if (len >= KEY_IS_NUMBER) return KW_ENOMEM;
    struct lookup k = by_bytes(m, key, len);
    return put(m, &k, value);
}

void *kw_map_get(const struct kw_map *m, const void *key, size_t len) {
    if (m->count == 0 || len >= KEY_IS_NUMBER) return NULL;
    struct lookup k = by_bytes(m, key, len);
    size_t at = find(m, &k);
    return at == SIZE_MAX ? NULL : m->slots[m->index[at] - 1].value;
}

void *kw_map_remove(struct kw_map *m, const void *key, size_t len) {
    if (m->count == 0 || len >= KEY_IS_NUMBER) return NULL;
    struct lookup k = by_bytes(m, key, len);
    return remove_entry(m, &k);
}

void *kw_map_next(const struct kw_map *m, size_t *it) {
    while (*it < m->slot_count) {
        void *value = m->slots[(*it)++].value;
        if (value) return value;
    }
    return NULL;
}
