/* admin_items.h - the items of an administrative call that changes things: a copy of the caller's, what became of each, and, where an answer was
 * lost, whether an earlier try of this very call did it already.
 *
 * Called by admin.c, admin_cluster.c and admin_group_change.c. Calls admin_call.h.
 */
#ifndef KC_ADMIN_ITEMS_H
#define KC_ADMIN_ITEMS_H

#include "admin_call.h"

struct items;

/* Where the caller's structs keep what all of them have, and what their answers mean. */
struct shape {
    const char *verb; /* "create topic" */
    size_t size, name_at, err_at, message_at;
    ptrdiff_t resource_at; /* -1: the item is a topic */
    bool unknown_is_final; /* UNKNOWN_TOPIC_OR_PARTITION is the answer, not a topic on its way */
    int16_t done_code;     /* what a repeated request gets when it had its effect before; 0: a repeated one gets the same as the first */
    bool verified;         /* done_code alone does not tell: metadata has to show it */
    bool partitioned;      /* `resource` is the number of a partition, `name` its topic */
    int16_t quiet_code;    /* an item's result that is no failure of the call; 0: none */
    bool (*final)(int16_t code); /* may be NULL: these are the answer, though retriable elsewhere */
    bool (*valid)(const void *item); /* may be NULL: all are that have a name */
    bool (*copy)(struct items *it, void *item); /* what the item points to, but for its name, into the arena; may be NULL */
};
#define SHAPE(type, verb, resource, unknown, done, verified, valid, copy) \
    { verb, sizeof(type), offsetof(type, name), offsetof(type, err), offsetof(type, message), resource, unknown, done, verified, false, 0, NULL, valid, copy }

enum item_state { ITEM_OPEN, ITEM_VERIFY, ITEM_SETTLED };
struct item_mark {
    uint8_t state; /* enum item_state: only open ones are sent (again) */
    bool unsure;   /* an earlier try may have had its effect */
};
struct items {
    struct kw_arena arena;
    const struct shape *shape;
    void *v; /* n of shape->size bytes */
    size_t n;
    int32_t flag;
    struct item_mark *marks;
    /* of calls that add something of their own; else NULL */
    const char *about; /* what errors say behind an item: " in group g" */
    void *more;
    void (*more_free)(void *more);
};
struct result { /* one of an answer */
    int32_t resource;
    struct kw_str name, text;
    int16_t code;
    size_t at; /* kc_items_take's own */
};

void kc_items_free(void *it);
void kc_items_unsure(struct kc_admin *a);
bool kc_items_dup_pairs(struct items *it, const kc_config_pair **pairs, size_t count);

/* The nth item, if it is (still) to be asked for; else NULL. */
static inline void *kc_items_open(const struct items *it, size_t i) {
    return it->marks[i].state == ITEM_OPEN ? (uint8_t *)it->v + it->shape->size * i : NULL;
}

/* Puts an answer's results into the items, and the results into another order. Those whose error passes are asked for again, they alone. */
kc_err kc_items_take(struct kc_admin *a, struct result *r, size_t count, kc_error **error);
/* The same by parts, for a call whose requests carry only some of its items: in order, one item, the end. */
void kc_items_sort(struct result *r, size_t count);
bool kc_items_take_one(struct kc_admin *a, size_t i, const struct result *r, size_t count); /* true: the item is to be sent again */
void kc_items_settle(const struct items *it, size_t i, kc_err err, struct kw_str text);
kc_err kc_items_end(struct kc_admin *a, kc_error **error);          /* another step, or the first error */
/* The step that looks whether an earlier try did it: metadata of the topics in question. */
kw_err kc_items_verify_encode(struct kc_admin *a, int16_t version, struct kw_arena *arena, struct kw_out *out);
/* shows: 1: this is what was asked for; 0: it is not; -1: not yet known, ask again. */
kc_err kc_items_verify_read(struct kc_admin *a, struct kw_in *body, struct kw_arena *arena, kc_error **error,
                            int32_t (*shows)(const void *item, const struct kw_metadata_response_topic *t));

/* A call of items: what the public functions have in common. KC_INVALID: a stride too small, an item without a name or that is not valid. */
kc_err kc_items_call(kc_client *c, const struct kc_admin_kind *kind, const struct shape *shape, int32_t flag, void *v, size_t stride, size_t n,
                     int64_t timeout_us, kc_error **error);
/* For calls that make their own of these: *err KC_INVALID, KC_NO_MEMORY; what became of the items, into the caller's. */
struct items *kc_items_new(const void *v, size_t stride, size_t n, const struct shape *shape, int32_t flag, kc_err *err);
void kc_items_give(const kc_op *op, const struct items *it, void *v, size_t stride, size_t n);
kc_err kc_items_start(kc_client *c, const struct kc_admin_kind *kind, const struct shape *shape, int32_t flag, const void *v, size_t stride,
                      size_t n, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);

#endif
