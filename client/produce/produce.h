/* produce.h - a producer's core: accumulator and sender together, and what ends them: flush, purge, close.
 *
 * Called by handle_producer.c and the simulator. Everything but kc_accum_* (accum.h) and kc_reports_* is in loop context.
 */
#ifndef KC_PRODUCE_H
#define KC_PRODUCE_H

#include "reports.h"
#include "sender.h"

struct kc_produce {
    struct kc_accum accum;
    struct kc_sender sender;
    struct kc_flush *closing;  /* the flush behind a close under way */
    struct kw_timer close_timer;
    void (*closed)(struct kc_produce *p, void *ctx, kc_err err); /* every record has its outcome; KC_TIMED_OUT: some were failed for it */
    void *closed_ctx;
    bool cut_short;
};

/* The settings outlive it. */
kw_err kc_produce_init(struct kc_produce *p, struct kc_core *core, const struct kc_settings *settings, const struct kc_accum_calls *calls,
                       void *ctx) KW_CHECK;
/* Drops what has no outcome, untold; `stopped` (may come at once) says when kc_produce_detach may be called. */
void kc_produce_stop(struct kc_produce *p, void (*stopped)(struct kc_sender *s));
void kc_produce_detach(struct kc_produce *p); /* off the core; what is left is memory */
void kc_produce_deinit(struct kc_produce *p); /* any thread: the last user is gone */

void kc_produce_turn(struct kc_produce *p);   /* what accum_calls.wake asked for */
/* Sends all that is queued without lingering. f (kw_malloc) belongs to the producer until f->done, which may come at once and frees it. */
void kc_produce_flush(struct kc_produce *p, struct kc_flush *f);
void kc_produce_purge(struct kc_produce *p, int32_t what);
/* No record is accepted from now on; those that have no outcome at the deadline are failed with KC_CLOSED. KC_NO_MEMORY: nothing was done.
 * KC_BUSY: an earlier close is still under way. */
kc_err kc_produce_close(struct kc_produce *p, int64_t deadline_us, void (*closed)(struct kc_produce *, void *ctx, kc_err err), void *ctx);

#endif
