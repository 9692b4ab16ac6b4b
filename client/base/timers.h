/* timers.h - deadlines of a core: a binary heap keyed by time, ties broken by insertion, so that a run replays exactly.
 *
 * Intrusive: a timer lives in its owner. The core never reads a clock: time is what the event brought.
 */
#ifndef KW_TIMERS_H
#define KW_TIMERS_H

#include "base.h"

#define KW_NEVER INT64_MAX

struct kw_timer {
    int64_t at_us;
    uint64_t order;
    size_t index; /* in the heap; SIZE_MAX when idle */
    void (*fire)(struct kw_timer *t, void *ctx, int64_t now_us);
    void *ctx;
};
struct kw_timers {
    struct kw_timer **heap; /* [0, count) the heap, then `late` timers that were set for now while firing */
    size_t count, late, cap;
    uint64_t next_order;
    int64_t now_us; /* of the run under way */
    bool running;
};

void kw_timers_init(struct kw_timers *ts);
void kw_timers_deinit(struct kw_timers *ts); /* timers still armed become idle */
void kw_timer_init(struct kw_timer *t, void (*fire)(struct kw_timer *, void *ctx, int64_t now_us), void *ctx);
/* Arms or moves. KW_NEVER disarms. On failure (KW_ENOMEM, only for a timer that was idle) nothing changed. */
kw_err kw_timers_set(struct kw_timers *ts, struct kw_timer *t, int64_t at_us) KW_CHECK;
kw_err kw_timers_reserve(struct kw_timers *ts, size_t count) KW_CHECK; /* afterwards set cannot fail for so many timers */
void kw_timers_cancel(struct kw_timers *ts, struct kw_timer *t);
void kw_timers_hasten(struct kw_timers *ts, struct kw_timer *t, int64_t by_us); /* one that is armed fires so much earlier */
static inline bool kw_timer_armed(const struct kw_timer *t) { return t->index != SIZE_MAX; }
int64_t kw_timers_next(const struct kw_timers *ts); /* KW_NEVER when none */
/* Fires all that are due, in order of time, then of setting; a timer is idle while it fires, and its owner may free it. A timer set
 * while firing for <= now waits for the next run. */
void kw_timers_run(struct kw_timers *ts, int64_t now_us);

#endif
