/* pid.h - the producer id: InitProducerId, asked again until it succeeds (KIP-98, KIP-360; CP-15). Called by sender.c in loop context. Calls core. */
#ifndef KC_PID_H
#define KC_PID_H

#include "core/core.h"

enum kc_pid_state { KC_PID_NONE, KC_PID_ASKING, KC_PID_PAUSED /* a try failed: backing off */, KC_PID_READY, KC_PID_FATAL };

struct kc_pid {
    struct kc_core *core;
    int64_t request_timeout_us, backoff_us, backoff_max_us;
    void (*changed)(struct kc_pid *pid, void *ctx); /* READY or FATAL */
    void *ctx;
    enum kc_pid_state state;
    int64_t id;          /* -1: none yet */
    int16_t epoch;
    kc_err last_err;     /* of the last try */
    uint32_t tries;
    struct kc_request rq;
    struct kw_timer timer;
};

void kc_pid_init(struct kc_pid *p, struct kc_core *core, const struct kc_settings *s, void (*changed)(struct kc_pid *, void *), void *ctx);
void kc_pid_want(struct kc_pid *p);  /* asks, unless there is an id or a try under way */
void kc_pid_renew(struct kc_pid *p); /* the present id is used up: asks for another */
bool kc_pid_busy(const struct kc_pid *p); /* a request is out: it must be done before the memory goes */
void kc_pid_stop(struct kc_pid *p);  /* cancels; done comes in a later turn */

#endif
