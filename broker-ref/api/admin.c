/* admin.c - contract: admin.h. Called by the administration APIs; calls controller, image, partition. */
#include "admin.h"

#include "quorum/elect.h"
#include "replica/partition.h"

static struct kb_parts *parts_of(struct kb_request *rq) {
    return kb_node_parts(rq->node);
}

void kb_admin_no_memory(struct kb_request *rq) {
    kb_request_close(rq, "out of memory for the answer");
}

/* ---- Waiting ---- */

static void finish(struct kb_admin_wait *w) {
    struct kb_request *rq = w->rq;
    kw_timers_cancel(&parts_of(rq)->timers, &w->timer);
    rq->abandon = NULL;
    w->answer(w);
}

static void change_done(struct kb_change *c, struct kb_now now) {
    (void)now;
    finish(c->ctx);
}

static void time_is_up(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_admin_wait *w = ctx;
    (void)t;
    (void)now_us;
    kb_controller_cancel(parts_of(w->rq)->controller, &w->change);
    w->timed_out = true;
    finish(w);
}

static void abandon(struct kb_request *rq) {
    struct kb_admin_wait *w = rq->state;
    kb_controller_cancel(parts_of(rq)->controller, &w->change);
    kw_timers_cancel(&parts_of(rq)->timers, &w->timer);
    kb_request_drop(rq);
}

struct kb_admin_wait *kb_admin_wait_new(struct kb_request *rq, void *items, void (*answer)(struct kb_admin_wait *w)) {
    struct kb_admin_wait *w = kw_arena_calloc(&rq->arena, 1, sizeof(*w));
    if (!w) return NULL;
    w->rq = rq;
    w->items = items;
    w->answer = answer;
    w->change.done = change_done;
    w->change.ctx = w;
    kw_timer_init(&w->timer, time_is_up, w);
    return w;
}

struct kb_admin_wait *kb_admin_open(struct kb_request *rq, size_t size, void (*answer)(struct kb_admin_wait *w)) {
    void *items = kw_arena_calloc(&rq->arena, 1, size);
    if (!items) {
        kb_admin_no_memory(rq);
        return NULL;
    }
    if (kb_request_decode(rq, items)) return NULL;
    struct kb_admin_wait *w = kb_admin_wait_new(rq, items, answer);
    if (!w) kb_admin_no_memory(rq);
    return w;
}

void kb_admin_wait_begin(struct kb_admin_wait *w, kw_err err, int32_t timeout_ms) {
    struct kb_request *rq = w->rq;
    if (err) {
        kb_admin_no_memory(rq);
        return;
    }
    rq->state = w;
    rq->abandon = abandon;
    int64_t at = rq->arrived.mono_us + (int64_t)KW_MAX(timeout_ms, 0) * 1000;
    if (!kw_timers_set(&parts_of(rq)->timers, &w->timer, at)) return;
    kb_controller_cancel(parts_of(rq)->controller, &w->change);
    rq->abandon = NULL;
    kb_admin_no_memory(rq);
}

int16_t kb_admin_code(const struct kb_admin_wait *w, const struct kb_result *r) {
    return w->timed_out ? KE_REQUEST_TIMED_OUT : r->code;
}

struct kw_str kb_admin_text(const struct kb_admin_wait *w, const struct kb_result *r) {
    if (w->timed_out) return kw_str_of("the change was not committed within the request's timeout; it may still be");
    return r->code ? kw_str_of(r->text) : kw_str_null();
}

/* ---- Changing configurations ---- */

/* Neither request has a timeout: this is what clients wait by default. */
#define ALTER_WAIT_MS 30000

static void altered(struct kb_admin_wait *w) {
    const struct kb_alter *a = w->items;
    if (a->answer(w->rq, w, a) != KW_OK) kb_admin_no_memory(w->rq);
}

struct kb_alter *kb_alter_new(struct kb_request *rq, int32_t count,
                              kw_err (*answer)(struct kb_request *rq, const struct kb_admin_wait *w, const struct kb_alter *a)) {
    struct kb_alter *a = kw_arena_calloc(&rq->arena, 1, sizeof(*a));
    if (!a) return NULL;
    a->count = KW_MAX(count, 0);
    a->answer = answer;
    a->alters = kw_arena_calloc(&rq->arena, (size_t)a->count + 1, sizeof(*a->alters));
    return a->alters ? a : NULL;
}

struct kb_config_kv *kb_alter_resource(struct kb_request *rq, struct kb_config_alter *out, int8_t type, struct kw_str name, int32_t kv_count) {
    struct kb_config_kv *v = kw_arena_calloc(&rq->arena, (size_t)KW_MAX(kv_count, 0) + 1, sizeof(*v));
    *out = (struct kb_config_alter){.type = type, .name = name, .kvs = v, .kv_count = KW_MAX(kv_count, 0)};
    return v;
}

void kb_alter_run(struct kb_request *rq, struct kb_alter *a, bool validate_only) {
    struct kb_admin_wait *w = kb_admin_wait_new(rq, a, altered);
    if (!w) {
        kb_admin_no_memory(rq);
        return;
    }
    kw_err err = kb_controller_alter_configs(parts_of(rq)->controller, a->alters, a->count, validate_only, &w->change, rq->arrived);
    kb_admin_wait_begin(w, err, ALTER_WAIT_MS);
}

/* ---- Views ---- */

int32_t kb_admin_self(const struct kb_parts *p) {
    return (int32_t)kb_config_int(p->config, "node.id");
}

int32_t kb_admin_controller(const struct kb_parts *p) {
    int32_t leader = kb_store_leader(p->store, NULL);
    const struct kb_image_broker *b = leader >= 0 ? kb_image_broker(p->image, leader) : NULL;
    return b && !b->fenced && b->endpoint_count > 0 ? leader : kb_admin_self(p);
}

static bool is_offline(struct kb_parts *parts, const struct kb_image_partition *p, int32_t id, int32_t self) {
    const struct kb_image_broker *b = kb_image_broker(parts->image, id);
    const struct kb_partition *local = p->local;
    return !b || b->fenced || kb_elect_is_lost(p, id) || (id == self && local && local->state == KB_PART_OFFLINE);
}

kw_err kb_admin_view(struct kb_request *rq, const struct kb_image_partition *p, struct kb_partition_view *v) {
    struct kb_parts *parts = parts_of(rq);
    int32_t self = kb_admin_self(parts);
    *v = (struct kb_partition_view){.leader = p->leader, .leader_epoch = p->leader_epoch};
    for (int32_t i = 0; i < p->replica_count; i++) {
        int32_t id = p->replicas[i];
        if (!is_offline(parts, p, id, self)) continue;
        if (!v->offline) v->offline = kw_arena_alloc(&rq->arena, (size_t)p->replica_count * sizeof(*v->offline));
        if (!v->offline) return KW_ENOMEM;
        v->offline[v->offline_count++] = id;
        if (id == v->leader) v->leader = -1; /* nobody can be served there */
    }
    if (v->leader < 0) v->code = KE_LEADER_NOT_AVAILABLE;
    return KW_OK;
}

bool kb_admin_address(struct kb_request *rq, const struct kb_image_broker *b, struct kw_str *host, int32_t *port) {
    if (b->id == kb_admin_self(parts_of(rq)) && rq->conn) {
        kb_conn_advertised(rq->conn, host, port);
        return true;
    }
    if (b->endpoint_count == 0) return false;
    *host = kw_str_of(b->endpoints[0].host);
    *port = b->endpoints[0].port;
    return true;
}
