/* guid.h - record ids: UUIDv7 (RFC 9562), ascending within one producer; the header that carries them; their text (kc_guid_from_text, kc_guid_to_text).
 * Called by accum.c, split.c, assign.c, handle_guid.c. Calls base/rng. */
#ifndef KC_GUID_H
#define KC_GUID_H

#include "base/rng.h"
#include "wire/batch.h"

#define KC_GUID_HEADER "guid" /* the record header that carries the 16 bytes */
#define KC_GUID_SIZE 16

struct kc_guid {
    int64_t ms;          /* of the last id */
    uint64_t high, low;  /* its 12 and 62 random bits, as one counter */
};
/* wall_ms may repeat or go back: the id is greater than the last one all the same, and then keeps the last one's time. */
void kc_guid_next(struct kc_guid *g, struct kw_rng *rng, int64_t wall_ms, uint8_t id[KC_GUID_SIZE]);
void kc_guid_put(uint8_t id[KC_GUID_SIZE], int64_t wall_ms, uint64_t high, uint64_t low); /* the low 12 and 62 bits of the last two */
/* How many of the headers are named `guid`; *id: the value of a single one that has 16 bytes, which is the record's id; else NULL. */
size_t kc_guid_headers(const struct kw_header_view *headers, size_t count, const uint8_t **id);

#endif
