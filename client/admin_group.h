/* admin_group.h - what the administration calls for groups share: which broker coordinates each group of a call, found in batches, and asked in
 * batches of one coordinator.
 *
 * Called by admin_groups.c, admin_group_offsets.c, admin_group_change.c. Calls admin_call.h. KIP-699 (many keys in one FindCoordinator).
 *
 * A call goes in rounds: FindCoordinator for the groups whose coordinator is not known, then a request a coordinator; a group that was told to ask
 * again, or whose coordinator could not be reached, waits for the next round, in which it is looked for anew. When there is no time for another
 * round, each gets the error that it waited with. A round sorts the groups that are left once: n log n.
 */
#ifndef KC_ADMIN_GROUP_H
#define KC_ADMIN_GROUP_H

#include "admin_call.h"

enum kc_route_state { ROUTE_FIND, ROUTE_ASK, ROUTE_WAIT, ROUTE_SETTLED };
struct kc_route {
    const char *group; /* the caller's, as long as the call */
    int32_t broker;    /* -1 unknown */
    kc_err err;        /* that it waits with, or has failed with */
    uint8_t state;
};
struct kc_routes {
    struct kc_route *v;
    size_t n;
    bool finding;      /* the round's first half */
    size_t *order;     /* of the half under way: those that it is about, by broker */
    size_t count, from, to; /* order[from..to) are in the request under way, what is behind goes later */
    int32_t rounds;
    bool unsent;       /* the request under way could not be sent once: a broker that the core had not heard of, as a rule */
    int16_t api, version_min, version_max; /* what is asked of coordinators */
    /* A group has failed: no coordinator, or no time left. text may be null. */
    void (*failed)(struct kc_admin *a, size_t i, kc_err err, struct kw_str text);
};

/* groups: each a pointer, `stride` bytes apart. KC_INVALID: one is NULL. To be freed after an error too. */
kc_err kc_routes_init(struct kc_routes *r, const void *groups, size_t stride, size_t n, int16_t api, int16_t version_min, int16_t version_max,
                      void (*failed)(struct kc_admin *a, size_t i, kc_err err, struct kw_str text));
void kc_routes_deinit(struct kc_routes *r);

/* The request of the step KW_API_FIND_COORDINATOR, and its answer. */
kw_err kc_routes_encode(struct kc_routes *r, int16_t version, struct kw_arena *arena, struct kw_out *out) KW_CHECK;
kc_err kc_routes_read(struct kc_admin *a, struct kc_routes *r, struct kw_in *body, struct kw_arena *arena);
/* In encode of a version that carries one group alone: the rest goes later. */
static inline void kc_routes_one(struct kc_routes *r) {
    r->to = r->from + 1;
}
static inline size_t kc_routes_batch(const struct kc_routes *r) {
    return r->to - r->from;
}
static inline size_t kc_routes_at(const struct kc_routes *r, size_t k) { /* the kth of the batch: its index in v */
    return r->order[r->from + k];
}
static inline void kc_routes_settle(struct kc_routes *r, size_t i) {
    r->v[i].state = ROUTE_SETTLED;
    r->v[i].err = KC_OK;
}
void kc_routes_fail(struct kc_admin *a, struct kc_routes *r, size_t i, kc_err err, struct kw_str text); /* settles it too, and calls failed */
static inline void kc_routes_wait(struct kc_routes *r, size_t i, kc_err err) {
    r->v[i].state = ROUTE_WAIT;
    r->v[i].err = err;
}
/* What an answer says of the ith: true: it waits for the next round, false: it is for the caller to settle. */
bool kc_routes_again(struct kc_admin *a, struct kc_routes *r, size_t i, int16_t code);
/* The next step: ADMIN_NEXT, ADMIN_AGAIN, or KC_OK: all are settled. */
kc_err kc_routes_next(struct kc_admin *a, struct kc_routes *r);
kc_err kc_routes_unreachable(struct kc_admin *a, struct kc_routes *r, kc_err err); /* for the kind's: answers as it does */

/* Answers name groups in any order: sorted, then found. */
struct kc_named {
    struct kw_str name;
    const void *v; /* what was said of it */
};
struct kc_names {
    struct kc_named *v;
    size_t n;
};
/* Of an answer's array: n structs of `stride` bytes, each with a struct kw_str at name_at. False: no memory. */
bool kc_names_make(struct kc_names *names, struct kw_arena *arena, const void *v, int32_t n, size_t stride, size_t name_at);
const void *kc_names_find(const struct kc_names *names, const char *name); /* NULL: not named */

/* ---- Calls that look at groups ---- */

/* Copies of the names. KC_INVALID: one is NULL. */
kc_err kc_group_keep_names(struct kw_arena *a, const char *const *groups, size_t n, const char ***out);
/* kc_admin_make for a call that changes nothing: one broker gets so long, and the limit ends it with what is known by then. */
kc_err kc_group_make(kc_client *c, const struct kc_admin_kind *kind, void *call, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);

#endif
