/* world.c - see world.h. */
#include "world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "alloc.h"
#include "base/crc32c.h"

enum { TURNS_A_SECOND_MAX = 200000, HEAP_MAX = 5000000, HEAP_WAYS = 4 };
#define WALL_START_MS INT64_C(1790000000000)

struct sim_world *sim_the_world;

const char *sim_fault_name(enum sim_fault f) {
    static const char *const names[] = {
#define F(name, text) text,
        SIM_FAULTS(F)
#undef F
    };
    return names[f];
}

void *sim_need(void *p) {
    if (!p) {
        fprintf(stderr, "the simulator itself is out of memory\n");
        abort();
    }
    return p;
}

void *sim_grow(void *v, size_t count, size_t *cap, size_t size) {
    if (count < *cap) return v;
    *cap = *cap ? *cap * 2 : 16;
    return sim_need(realloc(v, *cap * size));
}

void sim_world_init(struct sim_world *w, uint64_t seed) {
    memset(w, 0, sizeof *w);
    w->seed = seed;
    kw_rng_init(&w->rng, seed);
    w->now_us = 1000 * SIM_S;
    w->hash = 14695981039346656037u;
    w->replay = "";
    sim_the_world = w;
}

void sim_world_deinit(struct sim_world *w) {
    free(w->heap);
    if (sim_the_world == w) sim_the_world = NULL;
}

/* ---- Events ---- */

static bool before(const struct sim_event *a, const struct sim_event *b) { return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order; }

void sim_at(struct sim_world *w, int64_t at_us, sim_fn *fn, void *ctx, uint64_t arg) {
    struct sim_event e = {at_us < w->now_us ? w->now_us : at_us, w->next_order++, arg, fn, ctx};
    if (w->heap_count > HEAP_MAX) sim_fail(w, 37, "%zu events wait: something asks for ever more", w->heap_count);
    w->heap = sim_grow(w->heap, w->heap_count, &w->heap_cap, sizeof *w->heap);
    size_t i = w->heap_count++;
    for (; i > 0 && before(&e, &w->heap[(i - 1) / HEAP_WAYS]); i = (i - 1) / HEAP_WAYS) w->heap[i] = w->heap[(i - 1) / HEAP_WAYS];
    w->heap[i] = e;
}

static struct sim_event pop(struct sim_world *w) {
    struct sim_event top = w->heap[0], last = w->heap[--w->heap_count];
    size_t i = 0, n = w->heap_count;
    for (size_t k; (k = HEAP_WAYS * i + 1) < n; i = k) {
        size_t end = KW_MIN(k + HEAP_WAYS, n);
        for (size_t j = k + 1; j < end; j++)
            if (before(&w->heap[j], &w->heap[k])) k = j;
        if (!before(&w->heap[k], &last)) break;
        w->heap[i] = w->heap[k];
    }
    if (n) w->heap[i] = last;
    return top;
}

bool sim_step(struct sim_world *w) {
    if (!w->heap_count) return false;
    struct sim_event e = pop(w);
    w->now_us = e.at_us;
    w->events++;
    e.fn(e.ctx, e.arg);
    return true;
}

void sim_run_until(struct sim_world *w, int64_t at_us) {
    while (w->heap_count && w->heap[0].at_us <= at_us) (void)sim_step(w);
    if (w->now_us < at_us) w->now_us = at_us;
}

/* ---- Trace ---- */

void sim_hash(struct sim_world *w, const void *p, size_t n) {
    uint64_t k = kw_crc32c(0, p, n) | (uint64_t)n << 32;
    w->hash = (w->hash ^ k) * 1099511628211u;
}

static char *line_of(struct sim_world *w) { return w->trace[w->trace_count++ % SIM_TRACE_LINES]; }

void sim_trace(struct sim_world *w, const char *fmt, ...) {
    char *line = line_of(w);
    int64_t t = w->now_us - 1000 * SIM_S;
    int n = snprintf(line, SIM_TRACE_SIZE, "%6lld.%06lld ", (long long)(t / SIM_S), (long long)(t % SIM_S));
    va_list ap;
    va_start(ap, fmt);
    int k = vsnprintf(line + n, SIM_TRACE_SIZE - (size_t)n, fmt, ap);
    va_end(ap);
    n = KW_MIN(n + k, SIM_TRACE_SIZE - 1);
    sim_hash(w, line, (size_t)n);
    if (w->loud) fprintf(stderr, "%s\n", line);
}

void sim_say(struct sim_world *w, const char *who, const char *text) {
    char *line = line_of(w);
    snprintf(line, SIM_TRACE_SIZE, "              %s: %s", who, text);
    if (w->loud) fprintf(stderr, "%s\n", line);
}

void sim_fire(struct sim_world *w, enum sim_fault f) { w->fired[f]++; }

void sim_fail(struct sim_world *w, int invariant, const char *fmt, ...) {
    uint64_t n = w->trace_count < SIM_TRACE_LINES ? w->trace_count : SIM_TRACE_LINES;
    fflush(stdout);
    fprintf(stderr, "--- the trace's end, seed %llu ---\n", (unsigned long long)w->seed);
    for (uint64_t i = w->trace_count - KW_MIN(n, 80u); i < w->trace_count && !w->loud; i++) fprintf(stderr, "%s\n", w->trace[i % SIM_TRACE_LINES]);
    int64_t t = w->now_us - 1000 * SIM_S;
    fprintf(stderr, "--- seed %llu, at %lld.%06lld s: invariant %d does not hold\n    ", (unsigned long long)w->seed, (long long)(t / SIM_S),
            (long long)(t % SIM_S), invariant);
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n    replay: tests/sim/run %s--seed %llu --trace\n", w->replay, (unsigned long long)w->seed);
    printf("failed seed %llu invariant %d\n", (unsigned long long)w->seed, invariant);
    fflush(stdout);
    fflush(stderr);
    _exit(1);
}

/* ---- Hosts ---- */

static int64_t mono_at(const struct sim_host *h, int64_t now_us) {
    int64_t d = now_us - h->base_us;
    return h->mono_base_us + d + d * h->drift_ppm / 1000000;
}

struct sim_clock sim_host_now(const struct sim_host *h) {
    int64_t mono = mono_at(h, h->w->now_us);
    return (struct sim_clock){mono, h->wall_base_ms + (mono - h->mono_base_us) / 1000};
}

static void rebase(struct sim_host *h) {
    struct sim_clock c = sim_host_now(h);
    h->base_us = h->w->now_us;
    h->mono_base_us = c.mono_us;
    h->wall_base_ms = c.wall_ms;
}

void sim_host_init(struct sim_host *h, struct sim_world *w, const char *name, int id, void (*turn)(struct sim_host *h)) {
    *h = (struct sim_host){.w = w, .id = id, .turn = turn, .wake_us = SIM_NEVER, .base_us = w->now_us, .mono_base_us = 5 * SIM_S + id * 7777777};
    h->wall_base_ms = WALL_START_MS + (w->now_us - 1000 * SIM_S) / 1000;
    snprintf(h->name, sizeof h->name, "%s", name);
}

void sim_host_boot(struct sim_host *h, bool machine) {
    rebase(h);
    if (machine) h->mono_base_us = 3 * SIM_S;
    h->paused_until_us = 0;
    h->jumped_at_boot_ms = h->jumped_ms;
    sim_host_wake(h, h->w->now_us);
}

void sim_host_jump(struct sim_host *h, int64_t wall_ms) {
    rebase(h);
    h->wall_base_ms += wall_ms;
    h->jumped_ms += KW_MAX(wall_ms, 0);
}

void sim_host_drift(struct sim_host *h, int64_t ppm) {
    rebase(h);
    h->drift_ppm = ppm;
}

static void due(void *ctx, uint64_t arg) {
    struct sim_host *h = ctx;
    struct sim_world *w = h->w;
    if (arg != h->wake_count || h->wake_us == SIM_NEVER) return; /* an earlier wake has taken its place */
    h->wake_us = SIM_NEVER;
    if (h->paused_until_us > w->now_us) {
        sim_host_wake(h, h->paused_until_us);
        return;
    }
    int64_t second = w->now_us / SIM_S;
    if (second != h->second) {
        h->turns_in_second = 0;
        h->second = second;
    }
    h->turns++;
    if (++h->turns_in_second > h->turns_in_second_max) h->turns_in_second_max = h->turns_in_second;
    if (h->turns_in_second > TURNS_A_SECOND_MAX) sim_fail(w, 37, "%s had %d turns in one second: a busy loop", h->name, TURNS_A_SECOND_MAX);
    (void)sim_alloc_turn(h);
    h->turn(h);
    (void)sim_alloc_turn(NULL);
}

void sim_host_wake(struct sim_host *h, int64_t at_us) {
    if (at_us == SIM_NEVER) return;
    if (at_us < h->paused_until_us) at_us = h->paused_until_us;
    if (at_us < h->w->now_us) at_us = h->w->now_us;
    if (at_us >= h->wake_us) return;
    h->wake_us = at_us;
    sim_at(h->w, at_us, due, h, ++h->wake_count);
}

void sim_host_wake_mono(struct sim_host *h, int64_t mono_us) {
    if (mono_us == SIM_NEVER) return;
    int64_t d = mono_us - h->mono_base_us, at = h->base_us;
    if (d > INT64_C(1000000000000)) return; /* more than 11 days: not in this world's life */
    if (d > 0) at += d * 1000000 / (1000000 + h->drift_ppm);
    while (mono_at(h, at) < mono_us) at++;
    sim_host_wake(h, at);
}

void sim_host_pause(struct sim_host *h, int64_t for_us) {
    struct sim_world *w = h->w;
    int64_t until = w->now_us + for_us, from = KW_MAX(w->now_us, h->paused_until_us);
    if (until <= from) return;
    h->paused_total_us += until - from;
    h->paused_until_us = until;
    if (h->wake_us != SIM_NEVER) return; /* its event looks at the pause itself */
    sim_host_wake(h, until);
}
