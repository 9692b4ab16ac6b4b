/* fuse.h - which of a block's ids may be in it, in 12 bits an entry and some: a 3-wise binary fuse filter (Graf, Lemire 2022) over 64-bit hashes. Says yes
 * to all that are in it, and to one in 4096 of the others. Called by run. Pure.
 *
 * In memory as in a file: `slots` numbers of 12 bits, packed.
 */
#ifndef KB_GUID_FUSE_H
#define KB_GUID_FUSE_H

#include "base/base.h"

struct kb_fuse {
    uint64_t seed;
    uint32_t segment_log2; /* a segment has so many slots */
    uint32_t segments;     /* where a first position may be: two more lie behind them. 0: no filter could be made, all may be in it */
    const uint8_t *bits;
};

static inline size_t kb_fuse_slots(const struct kb_fuse *f) {
    return f->segments ? ((size_t)f->segments + 2) << f->segment_log2 : 0;
}
static inline size_t kb_fuse_size(const struct kb_fuse *f) { return kb_fuse_slots(f) / 2 * 3; }
/* Sane enough to be asked: what comes out of a file. A block of 16 Ki has 20 segments of 2^10. */
static inline bool kb_fuse_valid(const struct kb_fuse *f) {
    return f->segment_log2 >= 2 && f->segment_log2 <= 18 && f->segments <= 1u << 12;
}

static inline uint64_t kb_fuse_mix(uint64_t h) {
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccd;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53;
    return h ^ h >> 33;
}
static inline void kb_fuse_at(const struct kb_fuse *f, uint64_t mixed, uint32_t at[3]) {
    uint32_t mask = (1u << f->segment_log2) - 1, span = f->segments << f->segment_log2;
    at[0] = (uint32_t)((unsigned __int128)mixed * span >> 64);
    at[1] = (at[0] + (1u << f->segment_log2)) ^ ((uint32_t)(mixed >> 18) & mask);
    at[2] = (at[0] + (2u << f->segment_log2)) ^ ((uint32_t)mixed & mask);
}
static inline uint32_t kb_fuse_get(const uint8_t *bits, uint32_t i) {
    const uint8_t *p = bits + (size_t)i * 3 / 2;
    uint32_t v = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    return v >> 4 * (i & 1) & 0xfff;
}
static inline uint32_t kb_fuse_print(uint64_t mixed) { return (uint32_t)(mixed ^ mixed >> 32) & 0xfff; }
static inline bool kb_fuse_has(const struct kb_fuse *f, uint64_t hash) {
    uint32_t at[3];
    if (f->segments == 0) return true;
    uint64_t mixed = kb_fuse_mix(hash ^ f->seed);
    kb_fuse_at(f, mixed, at);
    return (kb_fuse_get(f->bits, at[0]) ^ kb_fuse_get(f->bits, at[1]) ^ kb_fuse_get(f->bits, at[2])) == kb_fuse_print(mixed);
}

#define KB_FUSE_KEYS_MAX ((size_t)16 << 10)
/* What a filter is made in; for one block after another. */
struct kb_fuse_maker {
    uint64_t *sorted; /* by the segment, so that what is worked on together lies together */
    uint32_t *slots;  /* of each: how many keys, and which (xor) */
    uint32_t *alone;  /* slots that one key has for itself */
    uint32_t *order;  /* keys in the order in which they were taken off, and which of its slots each then had for itself */
};
kw_err kb_fuse_maker_init(struct kb_fuse_maker *m) KW_CHECK;
void kb_fuse_maker_deinit(struct kb_fuse_maker *m);
/* The shape for so many keys; f->bits is not set. */
void kb_fuse_shape(struct kb_fuse *f, size_t count);
/* count: at most KB_FUSE_KEYS_MAX, all different. bits: kb_fuse_size(f) bytes of the shape, into which f->bits then points. Where a seed does not do,
 * another is tried; where none did (tries): f->segments becomes 0. */
void kb_fuse_make(struct kb_fuse_maker *m, struct kb_fuse *f, const uint64_t *hashes, size_t count, uint64_t seed, int tries, uint8_t *bits);

#endif
