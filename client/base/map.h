/* map.h - hash maps: 64-bit integers or byte strings to pointers. Open addressing, insertion order kept for iteration, so that
 * iterating never depends on addresses or on the hash (replay). Keys of a string map are copied in. */
#ifndef KW_MAP_H
#define KW_MAP_H

#include "base.h"

struct kw_map_slot;
struct kw_map {
    struct kw_map_slot *slots; /* dense, in insertion order, with tombstones */
    uint32_t *index;
    size_t count, slot_count, slot_cap, index_cap;
    uint64_t key[2]; /* of its hash */
};

/* The key of the hash in maps that are made from now on: a shell sets a random one, so that a peer cannot choose colliding names. Results and
 * iteration order do not depend on it. Any thread, at any time: a map keeps the key that it was made with. */
void kw_map_seed(uint64_t k0, uint64_t k1);

void kw_map_init(struct kw_map *m);
void kw_map_deinit(struct kw_map *m); /* frees the map's own memory, not the values; the map is empty afterwards */
/* Inserts, or replaces and keeps the entry's place in the order. KW_ENOMEM: nothing changed. */
kw_err kw_map_put_u64(struct kw_map *m, uint64_t key, void *value) KW_CHECK;
void *kw_map_get_u64(const struct kw_map *m, uint64_t key);                        /* NULL when absent; values are never NULL */
void *kw_map_remove_u64(struct kw_map *m, uint64_t key);
kw_err kw_map_put(struct kw_map *m, const void *key, size_t len, void *value) KW_CHECK;
void *kw_map_get(const struct kw_map *m, const void *key, size_t len);
void *kw_map_remove(struct kw_map *m, const void *key, size_t len);
static inline void *kw_map_get_str(const struct kw_map *m, struct kw_str k) { return kw_map_get(m, k.p, k.len < 0 ? 0 : (size_t)k.len); }
/* for (size_t it = 0; (v = kw_map_next(m, &it));) — entries may be removed during the walk, not added. */
void *kw_map_next(const struct kw_map *m, size_t *it);

#endif
