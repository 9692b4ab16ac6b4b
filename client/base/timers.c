/* timers.c - a binary heap of intrusive timers. Called by the client's and the broker's core; calls base's allocator.
 *
 * While a run fires, timers set for <= now are kept behind the heap ("late"), since in the heap they would fire in the same run
 * and a timer that always re-arms itself for now would never let it end.
 */
#include "timers.h"

void kw_timers_init(struct kw_timers *ts) { memset(ts, 0, sizeof(*ts)); }

void kw_timers_deinit(struct kw_timers *ts) {
    KW_ASSERT(!ts->running);
    for (size_t i = 0; i < ts->count; i++) ts->heap[i]->index = SIZE_MAX;
    kw_free(ts->heap);
    memset(ts, 0, sizeof(*ts));
}

void kw_timer_init(struct kw_timer *t, void (*fire)(struct kw_timer *, void *ctx, int64_t now_us), void *ctx) {
    t->at_us = KW_NEVER;
    t->order = 0;
    t->index = SIZE_MAX;
    t->fire = fire;
    t->ctx = ctx;
}

static inline bool before(const struct kw_timer *a, const struct kw_timer *b) {
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static inline void place(struct kw_timers *ts, struct kw_timer *t, size_t i) {
    ts->heap[i] = t;
    t->index = i;
}

static void sift_up(struct kw_timers *ts, struct kw_timer *t, size_t i) {
    while (i > 0) {
        size_t parent = (i - 1) / 2;
        if (!before(t, ts->heap[parent])) break;
        place(ts, ts->heap[parent], i);
        i = parent;
    }
    place(ts, t, i);
}

static void sift_down(struct kw_timers *ts, struct kw_timer *t, size_t i) {
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= ts->count) break;
        if (child + 1 < ts->count && before(ts->heap[child + 1], ts->heap[child])) child++;
        if (!before(ts->heap[child], t)) break;
        place(ts, ts->heap[child], i);
        i = child;
    }
    place(ts, t, i);
}

static void heap_push(struct kw_timers *ts, struct kw_timer *t) {
    if (ts->late > 0) place(ts, ts->heap[ts->count], ts->count + ts->late); /* the heap's next place is a late timer's */
    ts->count++;
    sift_up(ts, t, ts->count - 1);
}

static void unlink_timer(struct kw_timers *ts, struct kw_timer *t) {
    size_t i = t->index;
    if (i >= ts->count) {
        ts->late--;
        size_t last = ts->count + ts->late;
        if (i != last) place(ts, ts->heap[last], i);
    } else {
        ts->count--;
        struct kw_timer *moved = ts->heap[ts->count];
        if (moved != t) {
            if (i > 0 && before(moved, ts->heap[(i - 1) / 2]))
                sift_up(ts, moved, i);
            else
                sift_down(ts, moved, i);
        }
        if (ts->late > 0) place(ts, ts->heap[ts->count + ts->late], ts->count);
    }
    t->index = SIZE_MAX;
}

kw_err kw_timers_reserve(struct kw_timers *ts, size_t count) {
    if (count <= ts->cap) return KW_OK;
    if (count < 2 * ts->cap) count = 2 * ts->cap; /* callers reserve one more at a time */
    if (count > SIZE_MAX / sizeof(*ts->heap)) return KW_ENOMEM;
    struct kw_timer **heap = kw_realloc(ts->heap, count * sizeof(*heap));
    if (!heap) return KW_ENOMEM;
    ts->heap = heap;
    ts->cap = count;
    return KW_OK;
}

kw_err kw_timers_set(struct kw_timers *ts, struct kw_timer *t, int64_t at_us) {
    if (at_us == KW_NEVER) {
        kw_timers_cancel(ts, t);
        return KW_OK;
    }
    size_t used = ts->count + ts->late;
    if (!kw_timer_armed(t)) {
        if (used == ts->cap) {
            kw_err err = kw_timers_reserve(ts, KW_MAX(used + 1, (size_t)16));
            if (err) return err;
        }
    } else {
        unlink_timer(ts, t);
    }
    t->at_us = at_us;
    t->order = ts->next_order++;
    if (ts->running && at_us <= ts->now_us) {
        place(ts, t, ts->count + ts->late);
        ts->late++;
    } else {
        heap_push(ts, t);
    }
    return KW_OK;
}

void kw_timers_cancel(struct kw_timers *ts, struct kw_timer *t) {
    if (kw_timer_armed(t)) unlink_timer(ts, t);
}

void kw_timers_hasten(struct kw_timers *ts, struct kw_timer *t, int64_t by_us) {
    if (kw_timer_armed(t)) (void)!kw_timers_set(ts, t, t->at_us - by_us); /* armed: it has its place */
}

int64_t kw_timers_next(const struct kw_timers *ts) {
    int64_t at = ts->count > 0 ? ts->heap[0]->at_us : KW_NEVER;
    for (size_t i = 0; i < ts->late; i++) at = KW_MIN(at, ts->heap[ts->count + i]->at_us);
    return at;
}

void kw_timers_run(struct kw_timers *ts, int64_t now_us) {
    KW_ASSERT(!ts->running);
    ts->running = true;
    ts->now_us = now_us;
    while (ts->count > 0 && ts->heap[0]->at_us <= now_us) {
        struct kw_timer *t = ts->heap[0];
        unlink_timer(ts, t);
        t->fire(t, t->ctx, now_us);
    }
    ts->running = false;
    while (ts->late > 0) {
        ts->late--;
        ts->count++;
        sift_up(ts, ts->heap[ts->count - 1], ts->count - 1);
    }
}
