/* alloc.c - see alloc.h. */
#include "alloc.h"

#include <limits.h>
#include <malloc.h>
#include <stdlib.h>

static size_t blocks;
static struct sim_host *running;

static bool refused(void) {
    struct sim_host *h = running;
    if (!h || !h->alloc_refusals) return false;
    if (h->alloc_after) {
        h->alloc_after--;
        return false;
    }
    h->alloc_refusals--;
    sim_fire(h->w, h->id == 0 || h->id > SIM_HOST_NODE ? SIM_F_ALLOC_BROKER : SIM_F_ALLOC_CLIENT);
    sim_trace(h->w, "%s gets no memory", h->name);
    return true;
}

static void *take(size_t n, void *ctx) {
    (void)ctx;
    void *p = refused() ? NULL : malloc(n);
    if (p) blocks++;
    return p;
}
static void *take_again(void *p, size_t n, void *ctx) {
    (void)ctx;
    void *q = refused() ? NULL : realloc(p, n);
    if (q && !p) blocks++;
    return q;
}
static void give(void *p, void *ctx) {
    (void)ctx;
    if (p) blocks--;
    free(p);
}

/* A seed is short: what it has had from the system it keeps. */
void sim_alloc_init(void) {
    mallopt(M_MMAP_THRESHOLD, INT_MAX);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_TOP_PAD, 32 << 20);
    static const struct kw_allocator counting = {take, take_again, give, NULL};
    kw_allocator_set(&counting);
}

size_t sim_alloc_blocks(void) { return blocks; }

struct sim_host *sim_alloc_turn(struct sim_host *h) {
    struct sim_host *was = running;
    running = h;
    return was;
}

void sim_alloc_refuse(struct sim_host *h, uint64_t after, uint32_t times) {
    h->alloc_after = after;
    h->alloc_refusals = times;
}

void sim_alloc_heal(struct sim_host *h) { h->alloc_refusals = 0; }
