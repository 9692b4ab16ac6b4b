/* count.c - see count.h. */
#include "count.h"

#include <malloc.h>
#include <stdlib.h>
#include <time.h>

/* ---- Steps and time ---- */

static struct grow_work *whose, nobody;
static uint64_t steps, steps_noted;
static int64_t cpu_noted_ns;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
    steps++;
}

static int64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct grow_work *grow_count_for(struct grow_work *w) {
    struct grow_work *was = whose;
    int64_t t = cpu_ns();
    was->steps += steps - steps_noted;
    was->cpu_ns += t - cpu_noted_ns;
    steps_noted = steps;
    cpu_noted_ns = t;
    whose = w ? w : &nobody;
    return was == &nobody ? NULL : was;
}

/* ---- Memory ---- */

static void hold(int64_t n) {
    whose->held += n;
    if (whose->held > whose->held_max) whose->held_max = whose->held;
}

static void *take(size_t n, void *ctx) {
    (void)ctx;
    void *p = sim_need(malloc(n));
    whose->allocs++;
    hold((int64_t)malloc_usable_size(p));
    return p;
}
static void *take_again(void *p, size_t n, void *ctx) {
    (void)ctx;
    hold(p ? -(int64_t)malloc_usable_size(p) : 0);
    p = sim_need(realloc(p, n));
    whose->allocs++;
    hold((int64_t)malloc_usable_size(p));
    return p;
}
static void give(void *p, void *ctx) {
    (void)ctx;
    if (p) hold(-(int64_t)malloc_usable_size(p));
    free(p);
}

/* ---- Frames ---- */

enum { REQUEST_HEAD = 6, ANSWER_HEAD = 4 }; /* length, and a request's key */
struct flow {                               /* one connection */
    struct {
        size_t have, left;
        uint8_t head[REQUEST_HEAD];
    } side[2];
    int16_t *keys; /* of requests that have no answer yet, in order */
    size_t first, count, cap;
};
static struct flow **flows;
static size_t flow_count, flow_cap;
static struct grow_apis *apis;

static struct flow *flow_of(uint64_t id) {
    while (flow_count <= id) {
        flows = sim_grow(flows, flow_count, &flow_cap, sizeof(struct flow *));
        flows[flow_count++] = NULL;
    }
    if (!flows[id]) flows[id] = sim_need(calloc(1, sizeof(struct flow)));
    return flows[id];
}

static void begin(struct flow *f, enum sim_side side) {
    const uint8_t *h = f->side[side].head;
    uint64_t size = (uint64_t)kw_load32(h) + 4;
    f->side[side].left = (size_t)size - (side == SIM_CLIENT ? REQUEST_HEAD : ANSWER_HEAD);
    if (side == SIM_CLIENT) {
        int16_t key = (int16_t)kw_load16(h + 4);
        if (key < 0 || key >= GROW_KEYS_MAX) key = GROW_KEYS_MAX - 1;
        f->keys = sim_grow(f->keys, f->count, &f->cap, sizeof *f->keys);
        f->keys[f->count++] = key;
        apis->of[key].requests++;
        apis->of[key].bytes += size;
    } else if (f->first < f->count) {
        apis->of[f->keys[f->first++]].answer_bytes += size;
        if (f->first == f->count) f->first = f->count = 0;
    }
}

static void tap(void *ctx, struct sim_conn *c, enum sim_side side, const void *bytes, size_t n) {
    (void)ctx;
    if (sim_from_client(c)) return;
    struct flow *f = flow_of(c->id);
    size_t head = side == SIM_CLIENT ? REQUEST_HEAD : ANSWER_HEAD;
    for (const uint8_t *p = bytes; n;) {
        size_t k;
        if (f->side[side].have < head) {
            k = KW_MIN(n, head - f->side[side].have);
            memcpy(f->side[side].head + f->side[side].have, p, k);
            f->side[side].have += k;
            if (f->side[side].have == head) begin(f, side);
        } else {
            k = KW_MIN(n, f->side[side].left);
            f->side[side].left -= k;
        }
        if (f->side[side].have == head && f->side[side].left == 0) f->side[side].have = 0;
        p += k;
        n -= k;
    }
}

void grow_count_init(struct sim_net *net, struct grow_apis *a) {
    static const struct kw_allocator counting = {take, take_again, give, NULL};
    kw_allocator_set(&counting);
    whose = &nobody;
    apis = a;
    net->tap = tap;
    steps_noted = steps;
    cpu_noted_ns = cpu_ns();
}

void grow_count_deinit(void) {
    for (size_t i = 0; i < flow_count; i++) {
        if (flows[i]) free(flows[i]->keys);
        free(flows[i]);
    }
    free(flows);
    flows = NULL;
    flow_count = flow_cap = 0;
}
