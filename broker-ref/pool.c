/* pool.c - size classes of receive blocks, last in first out, so that the memory touched is the memory still in the cache. Memory that goes back to
 * the system costs more the next time (a page fault for every 4 kB, and zeros) than to receive into it: so what a load uses is kept while it lasts.
 */
#include "pool.h"

/* A producer's batch.size of 16 kB, 1 MB (librdkafka: 1,000,000; Java users: 1,048,576) and its frame around it. */
static const size_t class_size[KB_POOL_CLASSES] = {64u << 10, 256u << 10, (1u << 20) + (64u << 10), (2u << 20) + (64u << 10),
                                                   (4u << 20) + (64u << 10)};

void kb_pool_init(struct kb_pool *p) {
    memset(p, 0, sizeof(*p));
    p->free_bytes_max = KB_POOL_BYTES;
}

static void drop(struct kb_pool *p, size_t i) {
    struct kw_blk *b = p->classes[i].free[--p->classes[i].count];
    p->free_bytes -= b->cap;
    kw_free(b);
}

void kb_pool_trim(struct kb_pool *p) {
    size_t keep = p->free_bytes - p->idle_bytes;
    for (size_t i = KB_POOL_CLASSES; i-- > 0;)
        while (p->classes[i].count > 0 && p->free_bytes >= keep + class_size[i]) drop(p, i);
    p->idle_bytes = p->free_bytes;
}

void kb_pool_deinit(struct kb_pool *p) {
    KW_ASSERT(p->used_bytes == 0);
    for (size_t i = 0; i < KB_POOL_CLASSES; i++)
        while (p->classes[i].count > 0) drop(p, i);
}

static size_t class_of(size_t size) {
    size_t i = 0;
    while (i < KB_POOL_CLASSES && class_size[i] < size) i++;
    return i;
}

size_t kb_pool_round(size_t size) {
    size_t i = class_of(size);
    return i < KB_POOL_CLASSES ? class_size[i] : size;
}

static void give_back(struct kw_blk *b, void *ctx) {
    struct kb_pool *p = ctx;
    size_t i = class_of(b->cap);
    KW_ASSERT(p->used_bytes >= b->cap);
    p->used_bytes -= b->cap;
    if (i < KB_POOL_CLASSES && p->classes[i].count < KB_POOL_KEPT_MAX && p->free_bytes + b->cap <= p->free_bytes_max) {
        p->classes[i].free[p->classes[i].count++] = b;
        p->free_bytes += b->cap;
        return;
    }
    kw_free(b);
}

struct kw_blk *kb_pool_take(struct kb_pool *p, size_t size) {
    size_t i = class_of(size);
    struct kw_blk *b;
    if (i < KB_POOL_CLASSES && p->classes[i].count > 0) {
        b = p->classes[i].free[--p->classes[i].count];
        p->free_bytes -= b->cap;
        p->idle_bytes = KW_MIN(p->idle_bytes, p->free_bytes);
        atomic_store_explicit(&b->refs, 1, memory_order_relaxed);
    } else {
        b = kw_blk_new(i < KB_POOL_CLASSES ? class_size[i] : size);
        if (!b) return NULL;
        b->release = give_back;
        b->ctx = p;
    }
    p->used_bytes += b->cap;
    return b;
}
