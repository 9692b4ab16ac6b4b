/* pool.c - blocks in size classes. Called by accum.c and sender.c. Calls base/blk, core/outcome (budget). */
#include "pool.h"

struct kc_pool_free {
    struct kc_pool_free *next;
};

/* Index of the smallest class that holds `size`, or KC_POOL_CLASSES. */
static unsigned class_of(size_t size) {
    unsigned c = 0;
    while (c < KC_POOL_CLASSES && ((size_t)1 << (c + KC_POOL_CLASS_MIN)) + KC_POOL_SLACK < size) c++;
    return c;
}
static size_t class_size(unsigned c) { return ((size_t)1 << (c + KC_POOL_CLASS_MIN)) + KC_POOL_SLACK; }

kw_err kc_pool_init(struct kc_pool *p, struct kc_budget *budget) {
    *p = (struct kc_pool){.budget = budget};
    return kc_lock_init(&p->lock, KC_RANK_PARTITION);
}

static size_t free_kept(struct kc_pool *p) {
    size_t freed = 0;
    for (unsigned c = 0; c < KC_POOL_CLASSES; c++)
        while (p->free[c]) {
            struct kc_pool_free *f = p->free[c];
            p->free[c] = f->next;
            freed += class_size(c);
            kw_free(f);
        }
    KW_ASSERT(freed == p->kept);
    p->kept = 0;
    return freed;
}

void kc_pool_trim(struct kc_pool *p) {
    kc_lock_take(&p->lock);
    size_t freed = free_kept(p);
    p->idle = true;
    kc_lock_give(&p->lock);
    if (freed && p->budget) kc_budget_give(p->budget, KC_ROLE_PRODUCE, freed);
}

void kc_pool_deinit(struct kc_pool *p) {
    KW_ASSERT(p->used == 0);
    kc_pool_trim(p);
    kc_lock_deinit(&p->lock);
}

void *kc_pool_take(struct kc_pool *p, size_t size, size_t *cap, bool *over_budget) {
    unsigned c = class_of(size);
    size_t want = c < KC_POOL_CLASSES ? class_size(c) : size;
    void *mem = NULL;
    kc_lock_take(&p->lock);
    p->idle = false;
    if (c < KC_POOL_CLASSES && p->free[c]) {
        mem = p->free[c];
        p->free[c] = p->free[c]->next;
        p->kept -= want;
        p->used += want;
    }
    kc_lock_give(&p->lock);
    *over_budget = false;
    if (!mem) {
        if (p->budget && !kc_budget_take(p->budget, KC_ROLE_PRODUCE, want)) {
            kc_pool_trim(p); /* what lies unused in other classes counts too */
            *over_budget = !kc_budget_take(p->budget, KC_ROLE_PRODUCE, want);
            if (*over_budget) return NULL;
        }
        mem = kw_malloc(want);
        if (!mem) {
            if (p->budget) kc_budget_give(p->budget, KC_ROLE_PRODUCE, want);
            return NULL;
        }
        kc_lock_take(&p->lock);
        p->used += want;
        kc_lock_give(&p->lock);
    }
    *cap = want;
    return mem;
}

void kc_pool_give(struct kc_pool *p, void *mem, size_t cap) {
    if (!mem) return;
    unsigned c = class_of(cap);
    kc_lock_take(&p->lock);
    bool keep = c < KC_POOL_CLASSES && !p->idle;
    KW_ASSERT(p->used >= cap);
    p->used -= cap;
    if (keep) {
        struct kc_pool_free *f = mem;
        f->next = p->free[c];
        p->free[c] = f;
        p->kept += cap;
    }
    kc_lock_give(&p->lock);
    if (keep) return;
    kw_free(mem);
    if (p->budget) kc_budget_give(p->budget, KC_ROLE_PRODUCE, cap);
}

static void blk_release(struct kw_blk *b, void *ctx) { kc_pool_give(ctx, b, sizeof *b + b->cap); }

struct kw_blk *kc_pool_blk(struct kc_pool *p, size_t size, bool *over_budget) {
    *over_budget = false;
    if (size > UINT32_MAX - sizeof(struct kw_blk)) return NULL;
    size_t cap;
    struct kw_blk *b = kc_pool_take(p, size + sizeof *b, &cap, over_budget);
    if (!b) return NULL;
    *b = (struct kw_blk){.cap = (uint32_t)(cap - sizeof *b), .release = blk_release, .ctx = p, .data = (uint8_t *)(b + 1)};
    atomic_init(&b->refs, 1);
    return b;
}
