/* pool.h - the blocks that large frames are received into: reused while traffic lasts, given back when it stops, bounded in sum.
 *
 * Called by conn. A block returns by itself when its last reference goes (the request answered, the append written).
 */
#ifndef KB_POOL_H
#define KB_POOL_H

#include "base/blk.h"
#include "base/timers.h"

#define KB_POOL_CLASSES 5
#define KB_POOL_KEPT_MAX 64 /* blocks kept a class */
#define KB_POOL_BYTES (24u << 20) /* kept for reuse in all; and what requests may take, unless queued.max.request.bytes says otherwise */
struct kb_pool {
    struct kb_pool_class {
        size_t count;
        struct kw_blk *free[KB_POOL_KEPT_MAX];
    } classes[KB_POOL_CLASSES];
    size_t free_bytes, free_bytes_max; /* kept for reuse */
    size_t idle_bytes;                 /* of these, what nothing has needed since the last trim */
    size_t used_bytes;                 /* blocks out there, by their capacity */
};

void kb_pool_init(struct kb_pool *p);
void kb_pool_deinit(struct kb_pool *p);                      /* every block must be back */
size_t kb_pool_round(size_t size);                           /* the capacity that a block for so many bytes would have */
struct kw_blk *kb_pool_take(struct kb_pool *p, size_t size); /* refs 1; NULL: out of memory. The caller minds used_bytes */
void kb_pool_trim(struct kb_pool *p);                        /* frees what was not needed since the last one */

#endif
