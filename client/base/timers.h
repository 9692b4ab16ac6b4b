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
    struct kw_timer **heap;
    size_t count, cap;
    uint64_t next_order;
};

void kw_timers_init(struct kw_timers *ts);
void kw_timers_deinit(struct kw_timers *ts);
void kw_timer_init(struct kw_timer *t, void (*fire)(struct kw_timer *, void *ctx, int64_t now_us), void *ctx);
kw_err kw_timers_set(struct kw_timers *ts, struct kw_timer *t, int64_t at_us) KW_CHECK; /* arms or moves */
kw_err kw_timers_reserve(struct kw_timers *ts, size_t count) KW_CHECK; /* afterwards set cannot fail for so many timers */
void kw_timers_cancel(struct kw_timers *ts, struct kw_timer *t);
static inline bool kw_timer_armed(const struct kw_timer *t) { return t->index != SIZE_MAX; }
int64_t kw_timers_next(const struct kw_timers *ts); /* KW_NEVER when none */
void kw_timers_run(struct kw_timers *ts, int64_t now_us); /* fires all that are due; a timer set while firing for <= now waits for the next run */

#endif
