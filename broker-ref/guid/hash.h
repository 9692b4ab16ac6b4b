/* hash.h - the keyed hash by which ids are found: SipHash-1-3 over the 16 bytes (Aumasson, Bernstein; without the block that tells the length, which
 * is always the same). Nobody who does not know the key can choose ids that meet. Called by everything in guid/. Pure.
 */
#ifndef KB_GUID_HASH_H
#define KB_GUID_HASH_H

#include "base/base.h"

#define KB_SIP_ROUND                                                                                                                                  \
    do {                                                                                                                                              \
        a += b, b = b << 13 | b >> 51, b ^= a, a = a << 32 | a >> 32;                                                                                 \
        c += d, d = d << 16 | d >> 48, d ^= c;                                                                                                        \
        a += d, d = d << 21 | d >> 43, d ^= a;                                                                                                        \
        c += b, b = b << 17 | b >> 47, b ^= c, c = c << 32 | c >> 32;                                                                                 \
    } while (0)

static inline uint64_t kb_guid_hash(const uint64_t key[2], const uint8_t id[16]) {
    uint64_t w[2];
    memcpy(w, id, sizeof(w));
    uint64_t a = key[0] ^ 0x736f6d6570736575, b = key[1] ^ 0x646f72616e646f6d, c = key[0] ^ 0x6c7967656e657261, d = key[1] ^ 0x7465646279746573;
    for (int i = 0; i < 2; i++) {
        d ^= w[i];
        KB_SIP_ROUND;
        a ^= w[i];
    }
    c ^= 0xff;
    for (int i = 0; i < 3; i++) KB_SIP_ROUND;
    return a ^ b ^ c ^ d;
}
#undef KB_SIP_ROUND

static inline bool kb_guid_eq(const uint8_t x[16], const uint8_t y[16]) {
    uint64_t a[2], b[2];
    memcpy(a, x, 16);
    memcpy(b, y, 16);
    return ((a[0] ^ b[0]) | (a[1] ^ b[1])) == 0;
}

typedef unsigned __int128 kb_id128; /* an id as a number, in the order of memcmp */
static inline kb_id128 kb_id_number(const uint8_t id[16]) { return (kb_id128)kw_load64(id) << 64 | kw_load64(id + 8); }

#endif
