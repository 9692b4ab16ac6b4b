/* pid.c - InitProducerId for an idempotent producer without transactions. Any broker answers it. Called by sender.c. Calls core. KIP-98, KIP-360. */
#include "pid.h"

#include "kw_messages.h"

enum { API_INIT_PRODUCER_ID = 22, VERSION_MAX = 4 };

static void ask(struct kc_pid *p);

static void resume(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t, (void)now_us;
    struct kc_pid *p = ctx;
    if (p->state == KC_PID_PAUSED) ask(p);
}

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct kw_init_producer_id_request m;
    kw_msg_init(&kw_init_producer_id_request_desc, &m);
    m.transactional_id = kw_str_null();
    m.transaction_timeout_ms = INT32_MAX; /* without a transactional id it means nothing */
    return kw_encode(&kw_init_producer_id_request_desc, rq->version, &m, out);
}

static void pause_or_fail(struct kc_pid *p, kc_err err) {
    p->last_err = err;
    bool fatal = err == KC_UNSUPPORTED || err == KE_UNSUPPORTED_VERSION || err == KE_CLUSTER_AUTHORIZATION_FAILED ||
                 err == KE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
    if (fatal) {
        p->state = KC_PID_FATAL;
        p->changed(p, p->ctx);
        return;
    }
    if (err == KC_CLOSED || err == KC_CANCELLED) {
        p->state = KC_PID_NONE;
        return;
    }
    int64_t wait = p->backoff_us << KW_MIN(p->tries, 10u);
    wait = KW_MIN(wait, p->backoff_max_us);
    wait += (int64_t)kw_rng_below(kc_core_rng(p->core), (uint64_t)wait / 5 + 1);
    p->tries++;
    p->state = KC_PID_PAUSED;
    kc_core_arm(p->core, &p->timer, kc_core_now(p->core).mono_us + wait);
    if (!kw_timer_armed(&p->timer)) p->state = KC_PID_NONE; /* no memory: the core has its listeners look again, and the sender asks */
}

static void done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    (void)blk;
    struct kc_pid *p = rq->ctx;
    struct kw_init_producer_id_response m;
    if (!err) {
        struct kw_arena none; /* the answer has no arrays */
        kw_arena_init(&none, 1);
        err = kw_decode(&kw_init_producer_id_response_desc, rq->version, body, &none, &m);
        if (err) err = kc_err_from(err);
        else if (m.throttle_time_ms > 0) kc_core_broker_throttle(p->core, rq->sent_to, m.throttle_time_ms);
    }
    if (!err) err = m.error_code;
    if (!err && (m.producer_id < 0 || m.producer_epoch < 0)) err = KC_BAD_MESSAGE;
    if (err) {
        pause_or_fail(p, err);
        return;
    }
    p->id = m.producer_id;
    p->epoch = m.producer_epoch;
    p->tries = 0;
    p->state = KC_PID_READY;
    p->changed(p, p->ctx);
}

static void ask(struct kc_pid *p) {
    p->state = KC_PID_ASKING;
    kc_request_init(&p->rq, API_INIT_PRODUCER_ID);
    p->rq.version_min = 0;
    p->rq.version_max = VERSION_MAX;
    p->rq.broker = KC_BROKER_ANY;
    p->rq.channel = KC_CHANNEL_CONTROL;
    p->rq.deadline_us = kc_core_now(p->core).mono_us + p->request_timeout_us;
    p->rq.encode = encode;
    p->rq.done = done;
    p->rq.ctx = p;
    kc_core_send(p->core, &p->rq);
}

void kc_pid_init(struct kc_pid *p, struct kc_core *core, const struct kc_settings *s, void (*changed)(struct kc_pid *, void *), void *ctx) {
    *p = (struct kc_pid){.core = core,
                         .request_timeout_us = KW_MAX(s->request_timeout_us, (int64_t)1000),
                         .backoff_us = KW_MAX(s->retry_backoff_us, (int64_t)1000),
                         .backoff_max_us = KW_MAX(s->retry_backoff_max_us, (int64_t)1000),
                         .changed = changed,
                         .ctx = ctx,
                         .id = -1,
                         .epoch = -1};
    kw_timer_init(&p->timer, resume, p);
}

void kc_pid_want(struct kc_pid *p) {
    if (p->state == KC_PID_NONE) ask(p);
}

void kc_pid_renew(struct kc_pid *p) {
    if (p->state != KC_PID_READY) return;
    p->state = KC_PID_NONE;
    ask(p);
}

bool kc_pid_busy(const struct kc_pid *p) { return p->state == KC_PID_ASKING; }

void kc_pid_stop(struct kc_pid *p) {
    kw_timers_cancel(kc_core_timers(p->core), &p->timer);
    if (p->state == KC_PID_ASKING) kc_core_cancel(p->core, &p->rq);
    else p->state = KC_PID_NONE;
}
