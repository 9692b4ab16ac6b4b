/* rng.c - xoshiro256** (Blackman and Vigna), seeded through splitmix64. Called by every core that needs randomness; calls nothing. */
#include "rng.h"

static inline uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

void kw_rng_init(struct kw_rng *r, uint64_t seed) {
    for (int i = 0; i < 4; i++) { /* splitmix64: never gives four zeros, the one state that xoshiro cannot leave */
        seed += 0x9e3779b97f4a7c15u;
        uint64_t z = seed;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        r->s[i] = z ^ (z >> 31);
    }
}

uint64_t kw_rng_next(struct kw_rng *r) {
    uint64_t *s = r->s;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

uint64_t kw_rng_below(struct kw_rng *r, uint64_t n) {
    KW_ASSERT(n > 0);
    /* The high half of a 128-bit product; draws that would favour some results are drawn again (Lemire 2019). */
    unsigned __int128 m = (unsigned __int128)kw_rng_next(r) * n;
    if ((uint64_t)m < n) {
        uint64_t threshold = -n % n;
        while ((uint64_t)m < threshold) m = (unsigned __int128)kw_rng_next(r) * n;
    }
    return (uint64_t)(m >> 64);
}

bool kw_rng_chance(struct kw_rng *r, uint32_t per_million) { return kw_rng_below(r, 1000000) < per_million; }
