/* compact_map.h - the newest offset of each key, in bounded memory: 24 bytes a key, whatever its length. Called by compact_job. Pure.
 *
 * Keys are known by 128 bits of a keyed hash: two of them share one with a chance of 2^-83 among ten million, and nobody can look for such
 * a pair.
 */
#ifndef KB_COMPACT_MAP_H
#define KB_COMPACT_MAP_H

#include "base/base.h"

struct kb_compact_slot {
    uint64_t hash[2];
    int64_t next; /* behind the key's newest offset; 0: free, so that fresh pages need no touch */
};
struct kb_compact_map {
    struct kb_compact_slot *slots;
    size_t cap, cap_max, count, count_max; /* the first `cap` slots are in use, a power of two: more as keys come, so that few keys stay close together */
    uint64_t key[2];
};

/* As many keys as `bytes` hold at a load of 0.9, at least 16. seed: random. */
kw_err kb_compact_map_init(struct kb_compact_map *m, size_t bytes, const uint64_t seed[2]) KW_CHECK;
void kb_compact_map_deinit(struct kb_compact_map *m);
kw_err kb_compact_map_put(struct kb_compact_map *m, struct kw_bytes key,
                          int64_t offset) KW_CHECK;                              /* offsets ascend. KW_ELIMIT: full, nothing changed. KW_ENOMEM */
int64_t kb_compact_map_get(const struct kb_compact_map *m, struct kw_bytes key); /* -1: not in it */
/* The same in two steps, for many keys at a time: first the hashes, by which their slots are on their way from memory; then the rest. */
void kb_compact_map_hash(const struct kb_compact_map *m, struct kw_bytes key, uint64_t hash[2]);
kw_err kb_compact_map_put_hashed(struct kb_compact_map *m, const uint64_t hash[2], int64_t offset, int64_t *before) KW_CHECK; /* before: -1: none */
int64_t kb_compact_map_get_hashed(const struct kb_compact_map *m, const uint64_t hash[2]);

#endif
