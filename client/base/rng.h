/* rng.h - the one generator for all randomness in a core: xoshiro256**, seeded by the shell. Same seed, same sequence. */
#ifndef KW_RNG_H
#define KW_RNG_H

#include "base.h"

struct kw_rng {
    uint64_t s[4];
};
void kw_rng_init(struct kw_rng *r, uint64_t seed);
uint64_t kw_rng_next(struct kw_rng *r);
uint64_t kw_rng_below(struct kw_rng *r, uint64_t n); /* 0..n-1 without bias; n > 0 */
bool kw_rng_chance(struct kw_rng *r, uint32_t per_million);

#endif
