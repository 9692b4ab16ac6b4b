/* handle_guid.c - kc_guid_make: an id without a producer. Called by applications. Calls produce/guid, the system's clock and random source. */
#include "handle.h"
#include "produce/guid.h"

#include <errno.h>
#include <sys/random.h>

kc_err kc_guid_make(uint8_t guid[16]) {
    uint64_t bits[2];
    if (!guid) return KC_INVALID;
    ssize_t n;
    do n = getrandom(bits, sizeof bits, 0); /* not a state of ours: a fork would share it, and make the same ids twice */
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof bits) return KC_TRANSPORT;
    kc_guid_put(guid, kc_clock_now().wall_ms, bits[0], bits[1]);
    return KC_OK;
}
