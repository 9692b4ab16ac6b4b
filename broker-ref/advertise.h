/* advertise.h - what a broker says of itself when it is registered: where it is reached, which features it knows.
 *
 * Called by quorum/store_boot (a quorum of one registers itself) and lifecycle (by request).
 */
#ifndef KB_ADVERTISE_H
#define KB_ADVERTISE_H

#include "config.h"

/* Levels of metadata.version: ours (4.4-IV2: the record versions that we write are this level's), and the least that we read. */
enum { KB_METADATA_VERSION = 33, KB_METADATA_VERSION_MIN = 7 };
enum { KB_ENDPOINTS_MAX = 16, KB_PROTOCOL_PLAINTEXT = 0 };

/* advertised.listeners, else listeners; an address that means all of them becomes localhost, port 0 what the shell got. Returns how many. */
size_t kb_advertise_endpoints(const struct kb_config *c, uint16_t port, struct kb_listener out[KB_ENDPOINTS_MAX]);

struct kb_advertised_feature {
    const char *name;
    int16_t min, max;
};
extern const struct kb_advertised_feature kb_advertised_features[];
extern const size_t kb_advertised_feature_count;

#endif
