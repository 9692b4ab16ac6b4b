/* fuse.c - making a binary fuse filter. Contract: fuse.h. */
#include "fuse.h"

#define SLOTS_MAX ((size_t)2 * KB_FUSE_KEYS_MAX)
#define SEGMENTS_MAX 128 /* that a shape has */

kw_err kb_fuse_maker_init(struct kb_fuse_maker *m) {
    *m = (struct kb_fuse_maker){.sorted = kw_malloc(KB_FUSE_KEYS_MAX * sizeof(*m->sorted)),
                                .slots = kw_malloc(SLOTS_MAX * sizeof(*m->slots)),
                                .alone = kw_malloc((SLOTS_MAX + 1) * sizeof(*m->alone)),
                                .order = kw_malloc(KB_FUSE_KEYS_MAX * sizeof(*m->order))};
    if (m->sorted && m->slots && m->alone && m->order) return KW_OK;
    kb_fuse_maker_deinit(m);
    return KW_ENOMEM;
}

void kb_fuse_maker_deinit(struct kb_fuse_maker *m) {
    kw_free(m->sorted);
    kw_free(m->slots);
    kw_free(m->alone);
    kw_free(m->order);
    *m = (struct kb_fuse_maker){0};
}

/* Binary logarithm, in sixteenths. */
static uint32_t log2_16(size_t n) {
    uint32_t whole = 63 - (uint32_t)__builtin_clzll(n), fraction = (uint32_t)((n << 4 >> whole) & 15);
    return whole * 16 + fraction;
}

/* The paper's: segments of 3.33^… slots, and the more room the fewer keys there are. */
void kb_fuse_shape(struct kb_fuse *f, size_t count) {
    *f = (struct kb_fuse){.segment_log2 = 2, .segments = 1};
    if (count < 2) return;
    uint32_t log16 = log2_16(count);
    f->segment_log2 = KW_MIN((uint32_t)((log16 * 576 + 2250 * 16) / 16000), 18u);
    uint64_t permille = KW_MAX(875 + 4983 * 16 / (uint64_t)log16, (uint64_t)1125);
    uint64_t slots = (uint64_t)count * permille / 1000 + 1, segments = (slots + (1u << f->segment_log2) - 1) >> f->segment_log2;
    f->segments = segments > 3 ? (uint32_t)segments - 2 : 1;
    KW_ASSERT(f->segments <= SEGMENTS_MAX);
}

/* The hashes under this seed, those of one segment behind those of the one before. */
static void mix(struct kb_fuse_maker *m, const struct kb_fuse *f, const uint64_t *hashes, size_t count) {
    uint32_t starts[SEGMENTS_MAX + 1] = {0};
    for (size_t i = 0; i < count; i++) starts[((unsigned __int128)kb_fuse_mix(hashes[i] ^ f->seed) * f->segments >> 64) + 1]++;
    for (size_t s = 1; s <= f->segments; s++) starts[s] += starts[s - 1];
    for (size_t i = 0; i < count; i++) {
        uint64_t mixed = kb_fuse_mix(hashes[i] ^ f->seed);
        m->sorted[starts[(unsigned __int128)mixed * f->segments >> 64]++] = mixed;
    }
}

/* Of a slot: in the lower half which keys it has (xor), above it how many: both have room for all keys of a filter. */
#define ONE_KEY (1u << 16)
static inline bool is_alone(uint32_t slot) { return slot >> 16 == 1; }

/* Takes off keys that have a slot for themselves, until none is left; false: some hold each other fast. First in, first out: so the processor works on the
 * next ones while it waits for one's memory. Whether a slot becomes alone nobody can guess, so there is no branch on it. */
static bool peel(struct kb_fuse_maker *m, const struct kb_fuse *f, size_t count) {
    size_t slots = kb_fuse_slots(f), taken = 0, waiting = 0;
    uint32_t at[5];
    memset(m->slots, 0, slots * sizeof(*m->slots));
    for (size_t i = 0; i < count; i++) {
        kb_fuse_at(f, m->sorted[i], at);
        for (int k = 0; k < 3; k++) m->slots[at[k]] = (m->slots[at[k]] ^ (uint32_t)i) + ONE_KEY;
    }
    for (size_t s = 0; s < slots; s++) {
        m->alone[waiting] = (uint32_t)s;
        waiting += is_alone(m->slots[s]);
    }
    for (size_t i = 0; i < waiting; i++) { /* a slot comes here once: as it is alone, or becomes so */
        uint32_t s = m->alone[i], key = m->slots[s] & (ONE_KEY - 1);
        if (!is_alone(m->slots[s])) continue; /* its key was taken off by another */
        kb_fuse_at(f, m->sorted[key], at);
        at[3] = at[0];
        at[4] = at[1];
        uint32_t which = (uint32_t)(at[1] == s) + 2 * (uint32_t)(at[2] == s);
        m->order[taken++] = key | which << 16;
        m->slots[s] = 0;
        for (int k = 1; k < 3; k++) { /* the other two */
            uint32_t other = at[which + (uint32_t)k];
            m->slots[other] = (m->slots[other] ^ key) - ONE_KEY;
            m->alone[waiting] = other;
            waiting += is_alone(m->slots[other]);
        }
    }
    return taken == count;
}

/* It is 0 yet. */
static inline void put(uint8_t *bits, uint32_t i, uint32_t v) {
    uint8_t *p = bits + (size_t)i * 3 / 2;
    v <<= 4 * (i & 1);
    p[0] |= (uint8_t)v;
    p[1] |= (uint8_t)(v >> 8);
}

void kb_fuse_make(struct kb_fuse_maker *m, struct kb_fuse *f, const uint64_t *hashes, size_t count, uint64_t seed, int tries, uint8_t *bits) {
    uint32_t at[3];
    KW_ASSERT(count <= KB_FUSE_KEYS_MAX);
    kb_fuse_shape(f, count);
    KW_ASSERT(kb_fuse_slots(f) <= SLOTS_MAX);
    f->bits = bits;
    memset(bits, 0, kb_fuse_size(f));
    for (int n = 0;; n++) {
        if (n == tries) {
            f->segments = 0;
            return;
        }
        f->seed = seed = kb_fuse_mix(seed + 0x9e3779b97f4a7c15);
        mix(m, f, hashes, count);
        if (peel(m, f, count)) break;
    }
    for (size_t i = count; i-- > 0;) {
        uint64_t mixed = m->sorted[m->order[i] & (ONE_KEY - 1)];
        kb_fuse_at(f, mixed, at);
        uint32_t v = kb_fuse_get(bits, at[0]) ^ kb_fuse_get(bits, at[1]) ^ kb_fuse_get(bits, at[2]);
        put(bits, at[m->order[i] >> 16], v ^ kb_fuse_print(mixed));
    }
}
