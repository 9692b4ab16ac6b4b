/* admin_group_route.c - see admin_group.h. Loop context, but for making and freeing. */
#include "admin_group.h"

#include <stdlib.h>

#define BATCH_MAX 1000 /* groups in one request */

/* ---- Names ---- */

static int by_name(const void *a, const void *b) {
    return kc_admin_name_order(((const struct kc_named *)a)->name, ((const struct kc_named *)b)->name);
}

bool kc_names_make(struct kc_names *names, struct kw_arena *arena, const void *v, int32_t n, size_t stride, size_t name_at) {
    names->n = (size_t)KW_MAX(n, 0);
    names->v = kw_arena_calloc(arena, names->n + 1, sizeof *names->v);
    if (!names->v) return false;
    for (size_t k = 0; k < names->n; k++) {
        names->v[k].v = (const uint8_t *)v + stride * k;
        memcpy(&names->v[k].name, (const uint8_t *)names->v[k].v + name_at, sizeof names->v[k].name);
    }
    qsort(names->v, names->n, sizeof *names->v, by_name);
    return true;
}

const void *kc_names_find(const struct kc_names *names, const char *name) {
    const struct kc_named key = {.name = kw_str_of(name)};
    const struct kc_named *found = names->n > 0 ? bsearch(&key, names->v, names->n, sizeof key, by_name) : NULL;
    return found ? found->v : NULL;
}

/* ---- Calls that look ---- */

#define STEP_US 5000000 /* a broker that takes longer counts as unreachable */

kc_err kc_group_keep_names(struct kw_arena *a, const char *const *groups, size_t n, const char ***out) {
    const char **names = kw_arena_calloc(a, n + 1, sizeof *names);
    if (!names) return KC_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        if (!groups[i]) return KC_INVALID;
        names[i] = kw_arena_dup(a, groups[i], strlen(groups[i]) + 1);
        if (!names[i]) return KC_NO_MEMORY;
    }
    *out = names;
    return KC_OK;
}

kc_err kc_group_make(kc_client *c, const struct kc_admin_kind *kind, void *call, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    kc_err err = kc_admin_make(c, kind, call, timeout_us, opaque, op, error);
    if (err != KC_OK) return err;
    kc_admin_of(*op)->step_us = STEP_US;
    kc_admin_of(*op)->partial = true;
    return KC_OK;
}

/* ---- Made and freed ---- */

kc_err kc_routes_init(struct kc_routes *r, const void *groups, size_t stride, size_t n, int16_t api, int16_t version_min, int16_t version_max,
                      void (*failed)(struct kc_admin *a, size_t i, kc_err err, struct kw_str text)) {
    *r = (struct kc_routes){
        .n = n, .finding = true, .api = api, .version_min = version_min, .version_max = version_max, .failed = failed, .count = n};
    r->v = kw_calloc(n + 1, sizeof *r->v);
    r->order = kw_calloc(n + 1, sizeof *r->order);
    if (!r->v || !r->order) return KC_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        memcpy(&r->v[i].group, (const uint8_t *)groups + stride * i, sizeof r->v[i].group);
        if (!r->v[i].group) return KC_INVALID;
        r->v[i].broker = -1;
        r->order[i] = i;
    }
    r->to = KW_MIN(n, BATCH_MAX);
    return KC_OK;
}

void kc_routes_deinit(struct kc_routes *r) {
    kw_free(r->v);
    kw_free(r->order);
    *r = (struct kc_routes){0};
}

/* ---- Rounds ---- */

void kc_routes_fail(struct kc_admin *a, struct kc_routes *r, size_t i, kc_err err, struct kw_str text) {
    kc_routes_settle(r, i);
    r->v[i].err = err;
    r->failed(a, i, err, text);
}

struct ranked {
    int32_t broker;
    size_t at;
};
static int by_broker(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->broker != y->broker) return x->broker < y->broker ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Those in this state, by broker. Without memory for the sorting they are in the order of the call, and take more requests. */
static void collect(struct kc_routes *r, enum kc_route_state state) {
    r->count = r->from = r->to = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->v[i].state == state) r->order[r->count++] = i;
    struct ranked *ranked = state == ROUTE_ASK && r->count > 1 ? kw_calloc(r->count, sizeof *ranked) : NULL;
    if (!ranked) return;
    for (size_t k = 0; k < r->count; k++) ranked[k] = (struct ranked){r->v[r->order[k]].broker, r->order[k]};
    qsort(ranked, r->count, sizeof *ranked, by_broker);
    for (size_t k = 0; k < r->count; k++) r->order[k] = ranked[k].at;
    kw_free(ranked);
}

/* The request behind the last one, if the half under way has one. */
static bool next_batch(struct kc_admin *a, struct kc_routes *r) {
    r->from = r->to;
    r->unsent = false;
    if (r->from == r->count) return false;
    int32_t broker = r->v[r->order[r->from]].broker;
    while (r->to < r->count && r->to - r->from < BATCH_MAX && (r->finding || r->v[r->order[r->to]].broker == broker)) r->to++;
    if (r->finding) {
        kc_admin_step(a, KW_API_FIND_COORDINATOR, 0, KC_BROKER_ANY);
    } else {
        kc_admin_step(a, r->api, r->version_min, broker);
        a->version_max = r->version_max;
    }
    return true;
}

static void begin_half(struct kc_routes *r, bool finding) {
    r->finding = finding;
    collect(r, finding ? ROUTE_FIND : ROUTE_ASK);
}

/* Those that wait are looked for anew; false: there are none. */
static bool begin_round(struct kc_routes *r) {
    for (size_t i = 0; i < r->n; i++) {
        if (r->v[i].state != ROUTE_WAIT) continue;
        r->v[i].state = ROUTE_FIND;
        r->v[i].broker = -1;
    }
    begin_half(r, true);
    return r->count > 0;
}

kc_err kc_routes_next(struct kc_admin *a, struct kc_routes *r) {
    if (next_batch(a, r)) return ADMIN_NEXT;
    if (r->finding) {
        begin_half(r, false);
        if (next_batch(a, r)) return ADMIN_NEXT;
    }
    a->tries = r->rounds; /* each a little later */
    bool in_time = kc_admin_again_at_us(a) < a->deadline_us;
    for (size_t i = 0; i < r->n && !in_time; i++) {
        if (r->v[i].state != ROUTE_WAIT) continue;
        kc_routes_fail(a, r, i, r->v[i].err, kw_str_null());
    }
    if (!begin_round(r)) return KC_OK;
    if (r->rounds < INT32_MAX) r->rounds++;
    (void)next_batch(a, r);
    return ADMIN_AGAIN;
}

bool kc_routes_again(struct kc_admin *a, struct kc_routes *r, size_t i, int16_t code) {
    if (!kc_admin_again(a, code)) return false;
    kc_routes_wait(r, i, code);
    return true;
}

kc_err kc_routes_unreachable(struct kc_admin *a, struct kc_routes *r, kc_err err) {
    if (r->finding) return ADMIN_AGAIN; /* of any broker: the next time of another */
    if (!a->rq.sent && !r->unsent && err != KC_UNSUPPORTED && kc_admin_again_at_us(a) < a->deadline_us) {
        r->unsent = true; /* metadata is asked for meanwhile */
        return ADMIN_AGAIN;
    }
    for (size_t k = 0; k < kc_routes_batch(r); k++) {
        size_t i = kc_routes_at(r, k);
        if (r->v[i].state != ROUTE_ASK) continue;
        if (err != KC_UNSUPPORTED) {
            kc_routes_wait(r, i, err);
            continue;
        }
        kc_routes_fail(a, r, i, err, kw_str_null());
    }
    return kc_routes_next(a, r);
}

/* ---- FindCoordinator ---- */

kw_err kc_routes_encode(struct kc_routes *r, int16_t version, struct kw_arena *arena, struct kw_out *out) {
    struct kw_find_coordinator_request m;
    kw_msg_init(&kw_find_coordinator_request_desc, &m);
    if (version < 4) {
        kc_routes_one(r);
        m.key = kw_str_of(r->v[kc_routes_at(r, 0)].group);
        return kw_encode(&kw_find_coordinator_request_desc, version, &m, out);
    }
    m.coordinator_keys.v = kw_arena_calloc(arena, kc_routes_batch(r) + 1, sizeof *m.coordinator_keys.v);
    if (!m.coordinator_keys.v) return KW_ENOMEM;
    for (size_t k = 0; k < kc_routes_batch(r); k++) m.coordinator_keys.v[m.coordinator_keys.n++] = kw_str_of(r->v[kc_routes_at(r, k)].group);
    return kw_encode(&kw_find_coordinator_request_desc, version, &m, out);
}

static void found(struct kc_admin *a, struct kc_routes *r, size_t i, int16_t code, int32_t broker, struct kw_str text) {
    if (code == KE_NONE && broker < 0) code = KE_COORDINATOR_NOT_AVAILABLE;
    if (code == KE_NONE) {
        r->v[i].broker = broker;
        r->v[i].state = ROUTE_ASK;
    } else if (!kc_routes_again(a, r, i, code)) {
        kc_routes_fail(a, r, i, code, text);
    }
}

kc_err kc_routes_read(struct kc_admin *a, struct kc_routes *r, struct kw_in *body, struct kw_arena *arena) {
    struct kw_find_coordinator_response m;
    kc_err err = kc_admin_decode(a, &kw_find_coordinator_response_desc, body, arena, &m, &m.throttle_time_ms);
    if (err != KC_OK) return err;
    if (a->rq.version < 4) {
        found(a, r, kc_routes_at(r, 0), m.error_code, m.node_id, m.error_message);
        return kc_routes_next(a, r);
    }
    struct kc_names names;
    if (!kc_names_make(&names, arena, m.coordinators.v, m.coordinators.n, sizeof *m.coordinators.v,
                       offsetof(struct kw_find_coordinator_response_coordinator, key)))
        return KC_NO_MEMORY;
    for (size_t k = 0; k < kc_routes_batch(r); k++) {
        size_t i = kc_routes_at(r, k);
        const struct kw_find_coordinator_response_coordinator *c = kc_names_find(&names, r->v[i].group);
        if (c) {
            found(a, r, i, c->error_code, c->node_id, c->error_message);
        } else {
            kc_routes_fail(a, r, i, KC_BAD_MESSAGE, kw_str_of("the answer does not name it"));
        }
    }
    return kc_routes_next(a, r);
}
