/* channel.c - contract: channel.h. Called by lifecycle, forward, pid_source, replica/isr; the node makes and frees it.
 *
 * Two links a voter, dialed when something is to be sent: a call that went to one controller keeps its link while another takes over. What is
 * relayed for clients goes by the second, since a controller answers one request of a connection at a time, and an admin's may take long.
 */
#include "channel.h"

#include "kw_messages.h"
#include "node_priv.h"

enum lane { OWN, RELAYED, LANES };
enum { PAUSE_US = 50000 /* after a connection that did not come about */ };

struct kb_channel {
    struct kb_node *node;
    struct kb_voter_link peers[LANES * KB_VOTERS_MAX]; /* of one lane, then of the next */
    size_t peer_count;                        /* a lane */
    struct kw_list inners;
};
struct kb_inner { /* a request of this node to itself */
    struct kw_list link;
    struct kb_node *node;
    struct kb_request *rq; /* NULL: answered, and gone */
    struct kb_call *call;
    struct kw_timer timer; /* armed all its life, so that moving it cannot fail: to begin; then its deadline; then to tell */
    int64_t deadline_us;
    enum { FRESH, RUNNING, ANSWERED } state;
    kw_err err;
    struct kw_blk *blk; /* the answer's body */
    size_t size;
};

/* ---- To a voter ---- */

static void link_opened(void *ctx, struct kb_link *l, struct kb_now now) {
    struct kb_voter_link *v = ctx;
    (void)l, (void)now;
    v->opened = true;
}

static void link_ended(void *ctx, struct kb_link *l, enum kb_link_end how, struct kb_now now) {
    struct kb_voter_link *v = ctx;
    (void)l;
    v->pause_until_us = now.mono_us + (v->opened ? v->pause_us : PAUSE_US);
    v->opened = false;
    if (v->ended) v->ended(v->ctx, how, now);
}

kw_err kb_voter_link_want(struct kb_voter_link *v, struct kb_now now) {
    if (!v->link) {
        char host[KB_HOST_SIZE];
        struct kb_link_options o = {.node = v->node, .host = host, .opened = link_opened, .ended = link_ended, .ctx = v};
        if (!kb_channel_voter_address(v->node, v->id, host, &o.port)) return KW_EBUSY;
        kw_err err = kb_link_new(&o, &v->link);
        if (err) return err;
    }
    if (!kb_link_is_idle(v->link)) return KW_OK;
    return now.mono_us < v->pause_until_us ? KW_EBUSY : kb_link_dial(v->link, now);
}

void kb_voter_link_drop(struct kb_voter_link *v) {
    kb_link_free(v->link);
    v->link = NULL;
    v->opened = false;
    v->pause_until_us = 0;
}

/* ---- Life ---- */

kw_err kb_channel_new(struct kb_node *n) {
    struct kb_channel *ch = kw_calloc(1, sizeof(*ch));
    if (!ch) return KW_ENOMEM;
    struct kb_voter v[KB_VOTERS_MAX];
    ch->node = n;
    ch->peer_count = KW_MIN(kb_config_voters(n->parts.config, v, KB_VOTERS_MAX), (size_t)KB_VOTERS_MAX);
    for (size_t i = 0; i < LANES * ch->peer_count; i++) ch->peers[i] = (struct kb_voter_link){.node = n, .id = v[i % ch->peer_count].id};
    kw_list_init(&ch->inners);
    n->channel = ch;
    return KW_OK;
}

static void inner_free(struct kb_inner *in) {
    if (in->call) in->call->cancel = NULL;
    if (in->rq) in->rq->inner = NULL;
    kw_timers_cancel(&in->node->parts.timers, &in->timer);
    kw_list_remove(&in->link);
    kw_blk_unref(in->blk);
    kw_free(in);
}

void kb_channel_free(struct kb_node *n) {
    struct kb_channel *ch = n->channel;
    if (!ch) return;
    while (!kw_list_empty(&ch->inners)) inner_free(KW_CONTAINER_OF(ch->inners.next, struct kb_inner, link));
    for (size_t i = 0; i < LANES * ch->peer_count; i++) kb_voter_link_drop(&ch->peers[i]);
    kw_free(ch);
    n->channel = NULL;
}

/* ---- To itself ---- */

static void tell(struct kb_inner *in, struct kb_now now) {
    struct kb_call *c = in->call;
    struct kw_blk *blk = in->blk;
    struct kw_in body;
    kw_err err = in->state == ANSWERED ? in->err : KW_EIO;
    if (!err) kw_in_init(&body, blk->data, in->size);
    in->call = NULL;
    in->blk = NULL;
    inner_free(in);
    if (c) {
        c->cancel = NULL;
        c->done(c, err, err ? NULL : &body, err ? NULL : blk, now);
    }
    kw_blk_unref(blk);
}

static void inner_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_inner *in = ctx;
    struct kb_node *n = in->node;
    n->now.mono_us = now_us;
    if (in->state != FRESH) {
        tell(in, n->now);
        return;
    }
    in->state = RUNNING;
    (void)!kw_timers_set(&n->parts.timers, t, in->deadline_us); /* its own place has just become free */
    in->rq->started = true;
    in->rq->arrived = n->now;
    kb_dispatch_start(in->rq);
}

static void cancel_inner(struct kb_call *c) {
    ((struct kb_inner *)c->carrier)->call = NULL;
}

void kb_inner_answered(struct kb_inner *in, const void *msg) {
    struct kb_request *rq = in->rq;
    struct kw_out out;
    in->err = KW_EIO;
    in->rq = NULL;
    rq->inner = NULL;
    in->state = ANSWERED;
    kw_out_init(&out);
    if (msg && in->call && kw_encode(rq->head.api->response, rq->head.version, msg, &out) == KW_OK && (in->blk = kw_blk_new(out.len))) {
        memcpy(in->blk->data, out.p, out.len);
        in->size = out.len;
        in->err = KW_OK;
    }
    kw_out_deinit(&out);
    (void)!kw_timers_set(&in->node->parts.timers, &in->timer, in->node->now.mono_us); /* armed */
}

kw_err kb_channel_to_self(struct kb_node *n, struct kb_call *c, const struct kb_call_body *b, int64_t timeout_us, struct kb_now now) {
    struct kw_out out;
    const struct kw_api *api = kw_api_by_key(b->api_key);
    KW_ASSERT(api && c->done && !kb_call_is_under_way(c));
    struct kw_blk *blk = NULL;
    struct kb_inner *in = kw_calloc(1, sizeof(*in));
    kw_out_init(&out);
    kw_err err = in ? kb_link_frame(n, &out, api, b->version, 0, b->msg, b->bytes, b->size) : KW_ENOMEM;
    if (err) goto end;
    err = KW_ENOMEM;
    blk = kw_blk_new(out.len);
    if (!blk) goto end;
    memcpy(blk->data, out.p, out.len);
    kw_timer_init(&in->timer, inner_fire, in);
    if (kw_timers_set(&n->parts.timers, &in->timer, now.mono_us) != KW_OK) goto end;
    in->rq = kb_request_new_inner(n, in, blk, blk->data + 4, out.len - 4);
    if (!in->rq) {
        kw_timers_cancel(&n->parts.timers, &in->timer);
        goto end;
    }
    in->node = n;
    in->call = c;
    in->deadline_us = now.mono_us + timeout_us;
    kw_list_init(&in->link);
    kw_list_push(&n->channel->inners, &in->link);
    c->carrier = in;
    c->cancel = cancel_inner;
    in = NULL;
    err = KW_OK;
end:
    kw_free(in);
    kw_blk_unref(blk);
    kw_out_deinit(&out);
    return err;
}

/* ---- To the controller ---- */

static struct kb_voter_link *peer_of(struct kb_channel *ch, int32_t id, enum lane lane) {
    struct kb_voter_link *p = ch->peers + (size_t)lane * ch->peer_count;
    for (size_t i = 0; i < ch->peer_count; i++)
        if (p[i].id == id) return &p[i];
    return NULL;
}

static kw_err send_on(struct kb_node *n, struct kb_call *c, const struct kb_call_body *b, int64_t timeout_us, struct kb_now now) {
    int32_t leader = kb_store_leader(n->parts.store, NULL);
    if (leader < 0) return KW_EBUSY;
    if (leader == n->id) return kb_store_leads(n->parts.store) ? kb_channel_to_self(n, c, b, timeout_us, now) : KW_EBUSY;
    struct kb_voter_link *p = peer_of(n->channel, leader, b->msg ? OWN : RELAYED);
    if (!p) return KW_EBUSY;
    kw_err err = kb_voter_link_want(p, now);
    if (err) return err;
    return b->msg ? kb_link_call(p->link, c, kw_api_by_key(b->api_key)->request, b->version, b->msg, timeout_us, now)
                  : kb_link_relay(p->link, c, b->api_key, b->version, b->bytes, b->size, timeout_us, now);
}

kw_err kb_channel_call(struct kb_node *n, struct kb_call *c, const struct kw_desc *request, int16_t version, const void *msg,
                       int64_t timeout_us, struct kb_now now) {
    struct kb_call_body b = {.api_key = request->api_key, .version = version, .msg = msg};
    return send_on(n, c, &b, timeout_us, now);
}

kw_err kb_channel_relay(struct kb_node *n, struct kb_call *c, int16_t api_key, int16_t version, const uint8_t *body, size_t size,
                        int64_t timeout_us, struct kb_now now) {
    struct kb_call_body b = {.api_key = api_key, .version = version, .bytes = body, .size = size};
    return send_on(n, c, &b, timeout_us, now);
}

/* ---- Addresses ---- */

static bool put_host(char host[KB_HOST_SIZE], struct kw_str h) {
    if (h.len <= 0 || h.len >= KB_HOST_SIZE) return false;
    memcpy(host, h.p, (size_t)h.len);
    host[h.len] = 0;
    return true;
}

bool kb_channel_voter_address(const struct kb_node *n, int32_t id, char host[KB_HOST_SIZE], uint16_t *port) {
    struct kb_voter v[KB_VOTERS_MAX];
    size_t count = KW_MIN(kb_config_voters(n->parts.config, v, KB_VOTERS_MAX), (size_t)KB_VOTERS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (v[i].id != id || !put_host(host, v[i].host)) continue;
        *port = v[i].port;
        return true;
    }
    return false;
}

bool kb_channel_broker_address(const struct kb_node *n, int32_t id, char host[KB_HOST_SIZE], uint16_t *port) {
    const struct kb_image_broker *b = kb_image_broker(&n->image, id);
    const char *name = kb_config_get(n->parts.config, "inter.broker.listener.name");
    if (!b || b->endpoint_count == 0) return false;
    const struct kb_image_endpoint *e = &b->endpoints[0];
    for (int32_t i = 0; name && i < b->endpoint_count; i++)
        if (strcmp(b->endpoints[i].name, name) == 0) e = &b->endpoints[i];
    if (e->port <= 0 || e->port > UINT16_MAX || !put_host(host, kw_str_of(e->host))) return false;
    *port = (uint16_t)e->port;
    return true;
}
