/* guid.h - record ids: UUIDv7 (RFC 9562), ascending within one producer. Called by accum.c, under its lock. Calls base/rng. */
#ifndef KC_GUID_H
#define KC_GUID_H

#include "base/rng.h"

#define KC_GUID_HEADER "guid" /* the record header that carries the 16 bytes */

struct kc_guid {
    int64_t ms;          /* of the last id */
    uint64_t high, low;  /* its 12 and 62 random bits, as one counter */
};
/* wall_ms may repeat or go back: the id is greater than the last one all the same, and then keeps the last one's time. */
void kc_guid_make(struct kc_guid *g, struct kw_rng *rng, int64_t wall_ms, uint8_t id[16]);

#endif
