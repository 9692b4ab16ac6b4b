/* partitioner.c - hashes and choices. Called by accum.c and core/config.c. Calls base/crc32c, base/rng. KIP-480, KIP-794. */
#include "partitioner.h"

#include "base/crc32c.h"

#include <strings.h>

static const struct {
    const char *name, *java; /* Java's class, where it has one */
} names[KC_PARTITIONER_COUNT] = {
    [KC_PARTITIONER_MURMUR2_RANDOM] = {"murmur2_random", "DefaultPartitioner"},
    [KC_PARTITIONER_MURMUR2] = {"murmur2", NULL},
    [KC_PARTITIONER_CONSISTENT_RANDOM] = {"consistent_random", NULL},
    [KC_PARTITIONER_CONSISTENT] = {"consistent", NULL},
    [KC_PARTITIONER_FNV1A_RANDOM] = {"fnv1a_random", NULL},
    [KC_PARTITIONER_FNV1A] = {"fnv1a", NULL},
    [KC_PARTITIONER_RANDOM] = {"random", NULL},
    [KC_PARTITIONER_STICKY] = {"sticky", "UniformStickyPartitioner"},
    [KC_PARTITIONER_ROUND_ROBIN] = {"round_robin", "RoundRobinPartitioner"},
};

const char *kc_partitioner_name(int kind) { return kind >= 0 && kind < KC_PARTITIONER_COUNT ? names[kind].name : NULL; }

int kc_partitioner_by_name(const char *name) {
    static const char package[] = "org.apache.kafka.clients.producer.";
    if (strncmp(name, package, sizeof package - 1) == 0) {
        name += sizeof package - 1;
        if (strncmp(name, "internals.", 10) == 0) name += 10;
    }
    if (strcasecmp(name, "default") == 0) return KC_PARTITIONER_MURMUR2_RANDOM;
    if (strcasecmp(name, "roundrobin") == 0) return KC_PARTITIONER_ROUND_ROBIN;
    if (strcasecmp(name, "uniform_sticky") == 0) return KC_PARTITIONER_STICKY;
    for (int i = 0; i < KC_PARTITIONER_COUNT; i++)
        if (strcasecmp(name, names[i].name) == 0 || (names[i].java && strcmp(name, names[i].java) == 0)) return i;
    return -1;
}

uint32_t kc_murmur2(const void *key, size_t size) {
    const uint32_t m = 0x5bd1e995;
    const uint8_t *p = key;
    uint32_t h = 0x9747b28cU ^ (uint32_t)size;
    for (; size >= 4; size -= 4, p += 4) {
        uint32_t k = __builtin_bswap32(kw_load32(p)) * m; /* little endian */
        h = (h * m) ^ ((k ^ (k >> 24)) * m);
    }
    switch (size) {
    case 3: h ^= (uint32_t)p[2] << 16; /* fall through */
    case 2: h ^= (uint32_t)p[1] << 8;  /* fall through */
    case 1: h = (h ^ p[0]) * m; break;
    default: break;
    }
    h = (h ^ (h >> 13)) * m;
    return h ^ (h >> 15);
}

uint32_t kc_fnv1a(const void *key, size_t size) {
    const uint8_t *p = key;
    uint32_t h = 0x811C9DC5U;
    for (size_t i = 0; i < size; i++) h = (h ^ p[i]) * 0x01000193U;
    return h > INT32_MAX ? 0U - h : h; /* 2^31 has no positive counterpart and stays */
}

static uint32_t hash_by(int kind, const void *key, size_t size) {
    switch (kind) {
    case KC_PARTITIONER_CONSISTENT:
    case KC_PARTITIONER_CONSISTENT_RANDOM: return kw_crc32(0, key, size);
    case KC_PARTITIONER_FNV1A:
    case KC_PARTITIONER_FNV1A_RANDOM: return kc_fnv1a(key, size);
    default: return kc_murmur2(key, size) & 0x7fffffffU; /* masked, not negated, as Java does */
    }
}

bool kc_partitioner_hash(int kind, const void *key, size_t size, uint32_t *hash) {
    switch (kind) {
    case KC_PARTITIONER_RANDOM:
    case KC_PARTITIONER_STICKY:
    case KC_PARTITIONER_ROUND_ROBIN: return false;
    case KC_PARTITIONER_CONSISTENT_RANDOM:
        if (size == 0) return false;
        break;
    case KC_PARTITIONER_MURMUR2_RANDOM:
    case KC_PARTITIONER_FNV1A_RANDOM:
        if (!key) return false;
        break;
    default: break;
    }
    *hash = hash_by(kind, key ? key : "", size);
    return true;
}

uint32_t kc_partitioner_hash_id(const uint8_t id[16]) { return kc_murmur2(id, 16) & 0x7fffffffU; }

void kc_sticky_init(struct kc_sticky *s) { *s = (struct kc_sticky){.partition = -1, .round = -1}; }

static bool among_available(const struct kc_choice *c) { return c->available && c->available_count > 0; }

int32_t kc_choose_random(const struct kc_choice *c, struct kw_rng *rng) {
    int32_t n = among_available(c) ? c->available_count : c->count;
    int32_t at = -1;
    if (c->queued) { /* the longer a queue against the longest, the smaller its share (KIP-794) */
        uint64_t longest = 0, sum = 0;
        for (int32_t i = 0; i < n; i++) longest = KW_MAX(longest, (uint64_t)c->queued[i]);
        for (int32_t i = 0; i < n; i++) sum += longest + 1 - c->queued[i];
        uint64_t pick = kw_rng_below(rng, sum);
        for (at = 0; at < n - 1; at++) {
            uint64_t share = longest + 1 - c->queued[at];
            if (pick < share) break;
            pick -= share;
        }
    } else {
        at = (int32_t)kw_rng_below(rng, (uint64_t)n);
    }
    return among_available(c) ? c->available[at] : at;
}

int32_t kc_choose_next(struct kc_sticky *s, const struct kc_choice *c, struct kw_rng *rng) {
    int32_t n = among_available(c) ? c->available_count : c->count;
    s->round = s->round < 0 ? (int32_t)kw_rng_below(rng, (uint64_t)n) : (s->round + 1) % n;
    return among_available(c) ? c->available[s->round] : s->round;
}
