/* guid.c - UUIDv7 with a monotonic counter in its random bits (RFC 9562 section 6.2, method 2). Called by accum.c. Calls base/rng. */
#include "guid.h"

#define HIGH_BITS 12
#define LOW_BITS 62
#define MS_MAX (((int64_t)1 << 48) - 1)

void kc_guid_make(struct kc_guid *g, struct kw_rng *rng, int64_t wall_ms, uint8_t id[16]) {
    if (wall_ms < 0) wall_ms = 0;
    if (wall_ms > MS_MAX) wall_ms = MS_MAX;
    if (wall_ms > g->ms) {
        g->ms = wall_ms;
        g->high = kw_rng_next(rng) >> (64 - HIGH_BITS + 1); /* the top bit stays 0: room to count up within the millisecond */
        g->low = kw_rng_next(rng) >> (64 - LOW_BITS);
    } else { /* by a random step, so that the next id cannot be guessed from this one */
        g->low += 1 + (kw_rng_next(rng) >> 32);
        g->high += g->low >> LOW_BITS;
        g->low &= ((uint64_t)1 << LOW_BITS) - 1;
        if (g->high >> HIGH_BITS) {
            g->high = 0;
            if (g->ms < MS_MAX) g->ms++;
        }
    }
    kw_store64(id, (uint64_t)g->ms << 16 | (uint64_t)7 << 12 | g->high);
    kw_store64(id + 8, (uint64_t)2 << 62 | g->low);
}
