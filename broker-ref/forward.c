/* forward.c - contract: forward.h. Called by dispatch, api/metadata, node. Calls channel, dispatch (its table), fault (error answers),
 * request. */
#include "forward.h"

#include "channel.h"
#include "fault.h"
#include "kw_messages.h"
#include "node_priv.h"
#include "replica/partitions_priv.h"
#include "wire/kerror.h"

enum {
    RETRY_US = 30000,
    IMAGE_WAIT_US = 1000000,
    DEFAULT_WAIT_US = 30000000,  /* of a request without a timeout: what clients wait by default */
    SLACK_US = 1000000,          /* the controller's own word on the timeout is better than ours */
    WAIT_MAX_MS = 600000,
};

/* ---- Who serves what ---- */

static unsigned traits_of(int16_t key) {
    const struct kb_api_entry *e = kb_api_entry(key);
    return e ? e->traits : 0;
}

bool kb_forward_is_served(const struct kb_node *n, const struct kb_api_entry *e) {
    return ((n->roles & KB_ROLE_CONTROLLER) && (e->traits & KB_API_ON_CONTROLLER)) || ((n->roles & KB_ROLE_BROKER) && (e->traits & KB_API_ON_BROKER));
}

bool kb_forward_passes_on(int16_t api_key) {
    return (traits_of(api_key) & KB_API_FORWARDED) != 0;
}

bool kb_forward_is_due(const struct kb_request *rq) {
    const struct kb_node *n = rq->node;
    return kb_forward_passes_on(rq->head.api_key) && !rq->inner && n->parts.store && !kb_store_leads(n->parts.store);
}

/* ---- Under way ---- */

static void let_go(struct kb_forward *f) {
    kb_call_cancel(&f->call);
    kw_timers_cancel(&f->rq->node->parts.timers, &f->timer);
    kw_list_remove(&f->link);
    f->rq->abandon = NULL;
}

static void abandon(struct kb_request *rq) {
    struct kb_forward *f = rq->state;
    let_go(f);
    kw_blk_unref(f->blk);
    f->blk = NULL;
    kb_request_drop(rq);
}

static void finish(struct kb_forward *f, int16_t code) {
    struct kw_blk *blk = f->blk;
    let_go(f);
    f->blk = NULL;
    f->done(f, code, code ? NULL : &f->answer, code ? NULL : blk);
    kw_blk_unref(blk);
}

static void at(struct kb_forward *f, int64_t at_us) {
    (void)!kw_timers_set(&f->rq->node->parts.timers, &f->timer, at_us); /* armed from begin on, or just fired */
}

static void attempt(struct kb_forward *f, struct kb_now now) {
    struct kb_node *n = f->rq->node;
    if (now.mono_us >= f->deadline_us) {
        finish(f, KE_REQUEST_TIMED_OUT);
        return;
    }
    int64_t left = f->deadline_us - now.mono_us;
    /* The link's own deadline would end the connection for all others: it comes later. */
    kw_err err = kb_channel_relay(n, &f->call, f->api_key, f->version, f->body, f->size, left + 5 * SLACK_US, now);
    at(f, err ? KW_MIN(now.mono_us + RETRY_US, f->deadline_us) : f->deadline_us + SLACK_US);
}

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_forward *f = ctx;
    struct kb_node *n = f->rq->node;
    (void)t;
    n->now.mono_us = now_us;
    if (f->waiting)
        finish(f, KE_NONE); /* the image lags: the client is told all the same */
    else if (kb_call_is_under_way(&f->call))
        finish(f, KE_REQUEST_TIMED_OUT);
    else
        attempt(f, n->now);
}

static bool is_reached(const struct kb_forward *f) {
    const struct kb_node *n = f->rq->node;
    return f->offset >= 0 && n->image.offset >= f->offset && kb_partitions_opening(n) == 0;
}

void kb_forward_applied(struct kb_node *n, struct kb_now now) {
    struct kw_list due;
    (void)now;
    kw_list_init(&due);
    for (struct kw_list *l = n->forwards.next, *next; l != &n->forwards; l = next) {
        next = l->next;
        if (!is_reached(KW_CONTAINER_OF(l, struct kb_forward, link))) continue;
        kw_list_remove(l);
        kw_list_push(&due, l);
    }
    for (struct kw_list *l; (l = kw_list_shift(&due));) finish(KW_CONTAINER_OF(l, struct kb_forward, link), KE_NONE);
}

/* How far the controller had committed when the change was answered. */
static void committed_told(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct kb_forward *f = c->ctx;
    struct kw_describe_quorum_response r;
    struct kw_arena a;
    (void)blk, (void)now;
    kw_arena_init(&a, 1 << 20);
    f->offset = -1;
    if (!err && kw_decode(&kw_describe_quorum_response_desc, 2, body, &a, &r) == KW_OK && r.error_code == 0 && r.topics.n == 1 &&
        r.topics.v[0].partitions.n == 1 && r.topics.v[0].partitions.v[0].error_code == 0)
        f->offset = r.topics.v[0].partitions.v[0].high_watermark - 1;
    kw_arena_deinit(&a);
    if (f->offset < 0 || is_reached(f))
        finish(f, KE_NONE);
    else
        kw_list_push(&f->rq->node->forwards, &f->link);
}

static void wait_for_image(struct kb_forward *f, struct kb_now now) {
    struct kw_describe_quorum_request q;
    struct kw_describe_quorum_request_partition_data part = {.partition_index = 0};
    struct kw_describe_quorum_request_topic_data topic = {.topic_name = kw_str_of("__cluster_metadata"), .partitions = {&part, 1}};
    kw_msg_init(&kw_describe_quorum_request_desc, &q);
    q.topics.v = &topic;
    q.topics.n = 1;
    f->waiting = true;
    f->call = (struct kb_call){.done = committed_told, .ctx = f};
    if (kb_channel_call(f->rq->node, &f->call, &kw_describe_quorum_request_desc, 2, &q, 2 * IMAGE_WAIT_US, now) == KW_OK)
        at(f, now.mono_us + IMAGE_WAIT_US);
    else
        finish(f, KE_NONE);
}

/* ---- The answer ---- */

static bool has_code(const struct kw_desc *d, const void *msg, int16_t code) {
    for (size_t i = 0; i < d->field_count; i++) {
        const struct kw_field *f = &d->fields[i];
        const uint8_t *p = (const uint8_t *)msg + f->offset;
        int16_t v;
        if (f->type == KW_T_I16 && strcmp(f->name, "errorCode") == 0) {
            memcpy(&v, p, sizeof(v));
            if (v == code) return true;
        }
        if (f->type != KW_T_ARRAY || !f->desc) continue;
        struct kw_array a;
        memcpy(&a, p, sizeof(a));
        for (int32_t k = 0; k < a.n; k++)
            if (has_code(f->desc, (const uint8_t *)a.v + (size_t)k * f->desc->size, code)) return true;
    }
    return false;
}

/* KW_EBUSY: it comes of a node that is not the controller any more. */
static kw_err judge(const struct kb_forward *f, const struct kw_in *body) {
    const struct kw_desc *d = kw_api_by_key(f->api_key)->response;
    struct kw_arena a;
    struct kw_in in = *body;
    kw_arena_init(&a, KW_DECODE_EXPANSION_MAX * kw_in_left(body) + d->size + 64);
    void *msg = kw_arena_alloc(&a, d->size);
    kw_err err = msg ? kw_decode(d, f->version, &in, &a, msg) : KW_ENOMEM;
    if (!err && (has_code(d, msg, KE_NOT_CONTROLLER) || has_code(d, msg, KE_NOT_LEADER_OR_FOLLOWER))) err = KW_EBUSY;
    kw_arena_deinit(&a);
    return err;
}

static void answered(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct kb_forward *f = c->ctx;
    if (!err) err = judge(f, body);
    if (err) { /* another one will be found, or this one again */
        at(f, KW_MIN(now.mono_us + RETRY_US, KW_MAX(f->deadline_us, now.mono_us)));
        return;
    }
    f->blk = kw_blk_ref(blk);
    f->answer = *body;
    if (traits_of(f->api_key) & KB_API_CHANGES)
        wait_for_image(f, now);
    else
        finish(f, KE_NONE);
}

void kb_forward_begin(struct kb_forward *f, struct kb_now now) {
    struct kb_node *n = f->rq->node;
    kw_list_init(&f->link);
    kw_timer_init(&f->timer, fire, f);
    f->call = (struct kb_call){.done = answered, .ctx = f};
    f->waiting = false;
    f->blk = NULL;
    f->offset = -1;
    if (kw_timers_set(&n->parts.timers, &f->timer, now.mono_us) != KW_OK) {
        kb_request_close(f->rq, "out of memory");
        return;
    }
    f->rq->state = f;
    f->rq->abandon = abandon;
}

/* ---- A client's request as it is ---- */

/* By the client id that kb_link_frame gives it. Who forges one is told NOT_CONTROLLER, and has gained nothing. */
static bool from_a_node(const struct kb_request *rq) {
    struct kw_str id = rq->head.client_id, end = kw_str_of(KB_NODE_ASKS), begin = kw_str_of("kbroker-");
    if (id.len <= begin.len + end.len || memcmp(id.p, begin.p, (size_t)begin.len) != 0) return false;
    for (int32_t i = begin.len; i < id.len - end.len; i++)
        if (id.p[i] < '0' || id.p[i] > '9') return false;
    return memcmp(id.p + id.len - end.len, end.p, (size_t)end.len) == 0;
}

static int64_t timeout_us(const struct kw_desc *d, const void *msg) {
    for (size_t i = 0; i < d->field_count; i++) {
        int32_t ms;
        if (d->fields[i].type != KW_T_I32 || strcmp(d->fields[i].name, "timeoutMs") != 0) continue;
        memcpy(&ms, (const uint8_t *)msg + d->fields[i].offset, sizeof(ms));
        return (int64_t)KW_MIN(KW_MAX(ms, 0), WAIT_MAX_MS) * 1000;
    }
    return DEFAULT_WAIT_US;
}

static void refuse(struct kb_request *rq, int16_t code) {
    if (!kb_fault_mirror(rq, code,
                         code == KE_NOT_CONTROLLER ? "this node is not the active controller"
                                                   : "no active controller could be reached within the request's timeout: are a majority of the "
                                                     "voters running (kc cluster)? The change may still happen"))
        kb_request_close(rq, "out of memory");
}

static void request_done(struct kb_forward *f, int16_t code, struct kw_in *body, struct kw_blk *blk) {
    if (code)
        refuse(f->rq, code);
    else
        kb_request_relay(f->rq, body->p, kw_in_left(body), blk);
}

void kb_forward_request(struct kb_request *rq) {
    const struct kw_desc *d = rq->head.api->request;
    struct kw_in body = rq->body;
    struct kb_forward *f = kw_arena_alloc(&rq->arena, sizeof(*f));
    void *msg = kw_arena_alloc(&rq->arena, d->size);
    if (!f || !msg) {
        kb_request_close(rq, "out of memory");
        return;
    }
    if (kb_request_decode(rq, msg) != KW_OK) return;
    rq->body = body;
    if (from_a_node(rq)) { /* it took this node for the controller: it will find the right one */
        refuse(rq, KE_NOT_CONTROLLER);
        return;
    }
    *f = (struct kb_forward){.rq = rq,
                             .api_key = rq->head.api_key,
                             .version = rq->head.version,
                             .body = body.p,
                             .size = kw_in_left(&body),
                             .deadline_us = rq->arrived.mono_us + timeout_us(d, msg),
                             .done = request_done};
    kb_forward_begin(f, rq->node->now);
}
