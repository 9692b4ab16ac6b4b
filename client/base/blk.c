/* blk.c - reference-counted blocks of bytes. Called by the shells, produce, consume and log code; calls base's allocator. */
#include "blk.h"

struct kw_blk *kw_blk_new(size_t cap) {
    if (cap > UINT32_MAX) return NULL;
    struct kw_blk *b = kw_malloc(sizeof(*b) + cap);
    if (!b) return NULL;
    atomic_init(&b->refs, 1);
    b->cap = (uint32_t)cap;
    b->release = NULL;
    b->ctx = NULL;
    b->data = (uint8_t *)(b + 1);
    return b;
}

void kw_blk_unref(struct kw_blk *b) {
    if (!b) return;
    /* Release: our writes come before the free. Acquire: so do those of the owners that left earlier. */
    uint32_t before = atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel);
    KW_ASSERT(before > 0);
    if (before > 1) return;
    if (b->release)
        b->release(b, b->ctx);
    else
        kw_free(b);
}
