/* admin_call.h - one administrative call on its way: a request sent, retried while that makes sense and time is left, read, and sent on to
 * the next broker where a call has to ask several.
 *
 * Called by the other admin*.c, which say how to encode and read. Calls handle.h, core/core.h.
 */
#ifndef KC_ADMIN_CALL_H
#define KC_ADMIN_CALL_H

#include <kclient/admin.h>

#include "handle.h"
#include "kw_messages.h"

#define ADMIN_AGAIN (-1999) /* read: send the same step again after a pause (a retriable error in the answer) */
#define ADMIN_NEXT (-1998)  /* read: another step follows (encode is called for it, with `broker` set) */

struct kc_admin;
struct kc_admin_kind {
    const char *what; /* "create topics" */
    int16_t api, version_min;
    int32_t broker;
    kw_err (*encode)(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out);
    /* KC_OK: done. Another code without an *error gets one that names the call and what was tried. */
    kc_err (*read)(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error);
    void (*unsure)(struct kc_admin *a); /* may be NULL: a request was lost, or its answer leaves open whether it had its effect; it is sent again */
    /* May be NULL: the step's broker cannot be reached, or does not speak the API of a step behind the first. It may set another step, and
     * answers as read does: ADMIN_AGAIN, ADMIN_NEXT, KC_OK. */
    kc_err (*unreachable)(struct kc_admin *a, kc_err err);
    void (*free_call)(void *call);
};
struct kc_admin {
    struct kc_op op;
    struct kc_request rq;
    struct kw_timer timer;
    struct kc_attempts *attempts;
    int64_t deadline_us;
    const struct kc_admin_kind *kind;
    int32_t tries;
    bool outstanding;
    /* 0, or how long one broker may take over a step: one that is frozen must not take the whole call's time. Then it counts as unreachable. Only for
     * calls that change nothing. Set once it is made. */
    int64_t step_us;
    bool partial; /* at the limit too `unreachable` is asked, which ends the call with what is known. Set once it is made. */
    kc_err last; /* of a retriable failure: the reason when the time is up */
    /* of the step: as the kind says at first; read and unreachable may set another */
    int16_t api, version_min, version_max;
    int32_t broker;
    void *call;
};

/* An operation that makes the call within timeout_us (0: default.api.timeout.ms) once it is started. Takes `call`, also when it fails. */
kc_err kc_admin_make(kc_client *c, const struct kc_admin_kind *kind, void *call, int64_t timeout_us, uint64_t opaque, kc_op **op,
                     kc_error **error);
static inline struct kc_admin *kc_admin_of(const kc_op *op) {
    return KW_CONTAINER_OF(op, struct kc_admin, op);
}
/* What it was made for: NULL when it is something else, or not done. */
void *kc_admin_done_call(const kc_op *op, const struct kc_admin_kind *kind);
void *kc_admin_done_freed_by(const kc_op *op, void (*free_call)(void *)); /* the same for all kinds whose call is of that sort */
/* Starts what was made and hands it out; else the error of making it. */
kc_err kc_admin_begin(kc_err made, kc_op *op, kc_op **out);

#define ADMIN_METADATA_MIN 4 /* from there on asking does not create a topic */
/* For read and unreachable: what ADMIN_NEXT and ADMIN_AGAIN send. */
static inline void kc_admin_step(struct kc_admin *a, int16_t api, int16_t version_min, int32_t broker) {
    a->api = api;
    a->version_min = version_min;
    a->version_max = INT16_MAX; /* the step's maker may lower it */
    a->broker = broker;
}
/* For read: the answer into *m, and its throttle time, a field of it, to the core (KIP-219). */
kc_err kc_admin_decode(struct kc_admin *a, const struct kw_desc *d, struct kw_in *body, struct kw_arena *arena, void *m,
                       int32_t *throttle_ms) KW_CHECK;
/* For read: an error of the whole answer, in the broker's words or ours: ADMIN_AGAIN, or the code with its error made; KC_OK: none. */
kc_err kc_admin_whole(struct kc_admin *a, int16_t code, struct kw_str text, kc_error **error);
/* Makes and runs the call; *op is the caller's to free where it was made. For the public calls that wait. */
kc_err kc_admin_run(kc_client *c, const struct kc_admin_kind *kind, void *call, int64_t timeout_us, kc_op **op, kc_error **error);
/* For read: whether an item's error means "ask again" (asks for fresh metadata where that helps). */
bool kc_admin_again(struct kc_admin *a, int16_t code);
bool kc_admin_leaves_open(int16_t code); /* the change of which a broker says so may have happened, or happen yet */
int32_t kc_admin_time_left_ms(const struct kc_admin *a);
int64_t kc_admin_again_at_us(const struct kc_admin *a); /* when ADMIN_AGAIN would send; from deadline_us on it ends the call */
void kc_admin_message(char *out, size_t size, struct kw_str text, int16_t code); /* the broker's own words, or the table's */
int kc_admin_name_order(struct kw_str x, struct kw_str y); /* for qsort and bsearch: any order, the cheapest */
const char *kc_admin_keep_str(struct kw_arena *a, struct kw_str s); /* a NUL-terminated copy, of null an empty one; NULL: no memory */
/* For read: a copy of an array of node ids; *ok becomes false when there is no memory for it. */
const int32_t *kc_admin_keep_ids(struct kw_arena *a, const int32_t *v, int32_t n, size_t *count, bool *ok);
kc_err kc_admin_invalid(const struct kc_admin_kind *kind, kc_error **error);

#endif
