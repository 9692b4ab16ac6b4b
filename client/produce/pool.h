/* pool.h - the producer's memory: blocks in classes of powers of two, kept for reuse, counted against the client's budget.
 *
 * Called by accum.c (open batches), sender.c (compressed ones), from any thread. Calls base/blk, lock.h.
 */
#ifndef KC_POOL_H
#define KC_POOL_H

#include "base/blk.h"
#include "core/budget.h"
#include "base/lock.h"

enum { KC_POOL_CLASS_MIN = 10, KC_POOL_CLASS_MAX = 20, KC_POOL_CLASSES = KC_POOL_CLASS_MAX - KC_POOL_CLASS_MIN + 1 };
/* Blocks are this much larger than their power of two: the head of a kw_blk does not push a round size into the next class. */
#define KC_POOL_SLACK ((size_t)64)

struct kc_pool_free;
struct kc_pool {
    struct kc_lock lock; /* KC_RANK_PARTITION */
    struct kc_budget *budget;  /* NULL: none */
    struct kc_pool_free *free[KC_POOL_CLASSES];
    size_t kept;               /* bytes in `free` */
    size_t used;               /* bytes handed out */
    bool idle;                 /* trimmed, and nothing was taken since */
};
kw_err kc_pool_init(struct kc_pool *p, struct kc_budget *budget) KW_CHECK;
void kc_pool_deinit(struct kc_pool *p); /* everything was given back */
/* At least `size` bytes; *cap is how many. Blocks over the largest class are not kept. NULL: no memory, or (*over_budget) over the budget. */
void *kc_pool_take(struct kc_pool *p, size_t size, size_t *cap, bool *over_budget);
void kc_pool_give(struct kc_pool *p, void *mem, size_t cap);
/* The same as a counted block, whose last reference gives it back; cap >= size. */
struct kw_blk *kc_pool_blk(struct kc_pool *p, size_t size, bool *over_budget);
void kc_pool_trim(struct kc_pool *p); /* frees what is kept, and keeps nothing until the next take */

#endif
