/* produce.c - a producer's life in loop context. Called by handle_producer.c and the simulator. Calls accum, sender, core. */
#include "produce.h"

static void close_late(struct kw_timer *t, void *ctx, int64_t now_us);

kw_err kc_produce_init(struct kc_produce *p, struct kc_core *core, const struct kc_settings *settings, const struct kc_accum_calls *calls, void *ctx) {
    *p = (struct kc_produce){0};
    kw_timer_init(&p->close_timer, close_late, p);
    kw_err err = kc_accum_init(&p->accum, settings, kc_core_budget(core), kw_rng_next(kc_core_rng(core)), kc_core_now(core), calls, ctx);
    if (err) return err;
    err = kc_sender_init(&p->sender, core, &p->accum, settings);
    if (err) kc_accum_deinit(&p->accum);
    return err;
}

void kc_produce_turn(struct kc_produce *p) { kc_sender_wake(&p->sender); }

/* ---- Flush ---- */

void kc_produce_flush(struct kc_produce *p, struct kc_flush *f) {
    struct kc_accum *a = &p->accum;
    kc_lock_take(&a->lock);
    kc_accum_seal_all(a);
    f->gen = a->gen++;
    f->pending = a->gen_pending;
    a->gen_pending = 0;
    bool done = f->pending == 0 && kw_list_empty(&a->flushes);
    kw_list_init(&f->link);
    if (!done) {
        kw_list_push(&a->flushes, &f->link);
        a->flushing++; /* records that wait for their partition are sent at once when it is known */
    }
    kc_lock_give(&a->lock);
    if (done) f->done(f);
    else kc_sender_wake(&p->sender);
}

void kc_produce_purge(struct kc_produce *p, int32_t what) { kc_sender_fail_all(&p->sender, what, KC_CANCELLED); }

/* ---- Close ---- */

struct closing {
    struct kc_flush flush;
    struct kc_produce *p;
};

static void close_done(struct kc_flush *f) {
    struct closing *c = KW_CONTAINER_OF(f, struct closing, flush);
    struct kc_produce *p = c->p;
    kw_timers_cancel(kc_core_timers(p->sender.core), &p->close_timer);
    p->closing = NULL;
    kw_free(c);
    if (p->closed) p->closed(p, p->closed_ctx, p->cut_short ? KC_TIMED_OUT : KC_OK);
}

static void close_late(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t, (void)now_us;
    struct kc_produce *p = ctx;
    p->cut_short = true;
    kc_sender_fail_all(&p->sender, KC_PURGE_QUEUED | KC_PURGE_IN_FLIGHT, KC_CLOSED);
}

kc_err kc_produce_close(struct kc_produce *p, int64_t deadline_us, void (*closed)(struct kc_produce *, void *ctx, kc_err err), void *ctx) {
    if (p->closing) return KC_BUSY;
    struct closing *c = kw_calloc(1, sizeof *c);
    if (!c) return KC_NO_MEMORY;
    if (kw_timers_set(kc_core_timers(p->sender.core), &p->close_timer, deadline_us)) {
        kw_free(c);
        return KC_NO_MEMORY;
    }
    kc_lock_take(&p->accum.lock);
    p->accum.closed = true;
    kc_lock_give(&p->accum.lock);
    kc_accum_tell_over(&p->accum);
    p->closed = closed;
    p->closed_ctx = ctx;
    p->closing = &c->flush;
    c->p = p;
    c->flush.done = close_done;
    kc_produce_flush(p, &c->flush);
    return KC_OK;
}

/* ---- The end ---- */

void kc_produce_stop(struct kc_produce *p, void (*stopped)(struct kc_sender *s)) {
    struct kc_accum *a = &p->accum;
    kc_lock_take(&a->lock);
    a->closed = true;
    kc_lock_give(&a->lock);
    kc_sender_fail_all(&p->sender, KC_PURGE_QUEUED | KC_PURGE_IN_FLIGHT, KC_CANCELLED); /* flushes end with them */
    p->sender.stopped = stopped;
    kc_sender_stop(&p->sender);
    kc_sender_wake(&p->sender);
}

void kc_produce_detach(struct kc_produce *p) {
    kw_timers_cancel(kc_core_timers(p->sender.core), &p->close_timer);
    kc_sender_deinit(&p->sender);
}

void kc_produce_deinit(struct kc_produce *p) { kc_accum_deinit(&p->accum); }
