/* blk.h - a reference-counted block of bytes: what the shells read into and write from, shared without copying between
 * a connection, a log append in flight, a fetched batch and the application.
 *
 * Reference counts are atomic, since an application may free a fetched event on any thread.
 */
#ifndef KW_BLK_H
#define KW_BLK_H

#include "base.h"

struct kw_blk {
    _Atomic uint32_t refs;
    uint32_t cap;              /* bytes behind data */
    void (*release)(struct kw_blk *, void *ctx); /* NULL: kw_free; else called once refs is 0 (pools, budgets) */
    void *ctx;
    uint8_t *data;
};

struct kw_blk *kw_blk_new(size_t cap); /* refs 1; data follows the header in one allocation; NULL: out of memory */
static inline struct kw_blk *kw_blk_ref(struct kw_blk *b) {
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}
void kw_blk_unref(struct kw_blk *b); /* NULL is fine */

#endif
