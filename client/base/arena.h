/* arena.h - a bump allocator for one decoded message: everything it holds goes at once.
 *
 * An arena has a budget: an allocation past it fails with NULL, so that a short frame can never make a decoder take much memory.
 */
#ifndef KW_ARENA_H
#define KW_ARENA_H

#include "base.h"

struct kw_arena_chunk;
struct kw_arena {
    struct kw_arena_chunk *chunks;
    uint8_t *p, *end;
    size_t used, budget; /* budget 0: none */
};

void kw_arena_init(struct kw_arena *a, size_t budget);
void *kw_arena_alloc(struct kw_arena *a, size_t size); /* 8-byte aligned, not zeroed; NULL: no memory or over budget */
void *kw_arena_calloc(struct kw_arena *a, size_t count, size_t size);
void *kw_arena_dup(struct kw_arena *a, const void *p, size_t size);
void kw_arena_reset(struct kw_arena *a); /* forgets all, keeps the first chunk for the next message */
void kw_arena_deinit(struct kw_arena *a);

#endif
