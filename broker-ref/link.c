/* link.c - contract: link.h (its users), node.h (the shell). Called by channel, lifecycle, quorum/, replica/follower and the shells.
 *
 * A link's connection lies in a dial of its own, which the shell may hold longer than the link lives: a link that was freed or dialed
 * again leaves a dial that only wants to be closed. Small answers are parsed where they were received; one that does not fit gets a
 * block of its own size, so that a fetched batch is appended from the memory that it was received into.
 */
#include "link.h"

#include <stdio.h>

#include "forward.h"
#include "kw_messages.h"
#include "node_priv.h"

enum {
    SMALL_SIZE = 4096,
    POOLED_MIN = 32 << 10, /* larger answers come from the node's pool */
    CALLS_MAX = 4096,
    OUT_KEPT_MAX = 64 << 10, /* memory for requests on their way out, while there are none */
    CONNECT_US = 1000000,
    ANSWER_SIZE_MIN = 4,         /* the correlation id */
    ANSWER_MORE_MAX = 16 << 20, /* over the largest request: a fetch answers with several partitions */
};

struct sent { /* a call, until its answer */
    struct kw_list link;
    struct kb_call *call; /* NULL: cancelled */
    const struct kw_api *api;
    int16_t version;
    int32_t correlation;
    int64_t deadline_us;
    uint64_t end; /* of its bytes in the dial's stream */
};
struct kb_dial {
    struct kw_list link, ready;
    struct kb_node *node;
    struct kb_link *l; /* NULL: it only wants to be closed */
    void *shell;
    bool connected;
    int64_t connect_by_us;
    struct kw_out out; /* requests on their way out, one behind the other */
    size_t out_sent;   /* of these bytes */
    uint64_t queued_end, sent_end;
    struct kw_blk *blk, *big;
    size_t pos, end, big_fill, big_size;
    uint16_t port;
    char host[];
};
struct kb_link {
    struct kb_link_options o;
    struct kb_dial *dial;
    struct kw_list sent, closing;
    struct sent *spare; /* for the next call; may be NULL */
    size_t sent_count;
    int32_t correlation;
    struct kw_timer timer; /* connecting, or the first answer that is due: may be armed too early, never too late */
    int depth;
    bool ending, dead; /* ending: calls are being failed; dead: freed from within */
    char host[];
};

/* ---- The node's ---- */

void kb_links_init(struct kb_links *ls, int32_t id) {
    snprintf(ls->client_id, sizeof(ls->client_id), "kbroker-%d", id);
    snprintf(ls->asking_id, sizeof(ls->asking_id), "kbroker-%d%s", id, KB_NODE_ASKS);
    kw_list_init(&ls->dials);
    kw_list_init(&ls->ready);
    kw_list_init(&ls->closing);
}

static void dial_free(struct kb_dial *d) {
    kw_list_remove(&d->link);
    kw_list_remove(&d->ready);
    kw_out_deinit(&d->out);
    kw_blk_unref(d->blk);
    kw_blk_unref(d->big);
    kw_free(d);
}

void kb_links_deinit(struct kb_links *ls) {
    if (!ls->dials.next) return;
    while (!kw_list_empty(&ls->dials)) {
        struct kb_dial *d = KW_CONTAINER_OF(ls->dials.next, struct kb_dial, link);
        KW_ASSERT(!d->l);
        dial_free(d);
    }
}

static void dial_ready(struct kb_dial *d) {
    if (kw_list_empty(&d->ready)) kw_list_push(&d->node->links.ready, &d->ready);
}

const char *kb_link_end_text(enum kb_link_end how) {
    switch (how) {
    case KB_LINK_CLOSED:
        return "this node closed the connection";
    case KB_LINK_CLOSED_BY_PEER:
        return "the other node closed the connection";
    case KB_LINK_RESET:
        return "the connection was reset";
    case KB_LINK_REFUSED:
        return "the connection was refused: no process listens there";
    case KB_LINK_UNREACHABLE:
        return "the address cannot be reached, or its name is not known";
    case KB_LINK_TIMED_OUT:
        return "no answer in time";
    default:
        return "the answer is not one of this protocol";
    }
}

/* ---- A link's life ---- */

static void timer_fire(struct kw_timer *t, void *ctx, int64_t now_us);

kw_err kb_link_new(const struct kb_link_options *o, struct kb_link **out) {
    size_t size = strlen(o->host) + 1;
    struct kb_link *l = kw_calloc(1, sizeof(*l) + size);
    if (!l) return KW_ENOMEM;
    l->o = *o;
    memcpy(l->host, o->host, size);
    l->o.host = l->host;
    kw_list_init(&l->sent);
    kw_list_init(&l->closing);
    kw_timer_init(&l->timer, timer_fire, l);
    *out = l;
    return KW_OK;
}

static struct kw_timers *timers_of(struct kb_link *l) {
    return &l->o.node->parts.timers;
}

/* The dial goes its own way. */
static void detach(struct kb_link *l) {
    struct kb_dial *d = l->dial;
    if (!d) return;
    l->dial = NULL;
    d->l = NULL;
    dial_ready(d);
}

static struct kb_call *take_call(struct kb_link *l, struct sent *s) {
    struct kb_call *c = s->call;
    kw_list_remove(&s->link);
    l->sent_count--;
    kw_free(l->spare);
    l->spare = s;
    if (c) c->cancel = NULL;
    return c;
}

static void leave(struct kb_link *l) {
    if (--l->depth > 0 || !l->dead) return;
    kw_free(l->spare);
    kw_free(l);
}

void kb_link_free(struct kb_link *l) {
    if (!l || l->dead) return;
    detach(l);
    kw_timers_cancel(timers_of(l), &l->timer);
    kw_list_remove(&l->closing);
    while (!kw_list_empty(&l->sent)) (void)take_call(l, KW_CONTAINER_OF(l->sent.next, struct sent, link));
    l->dead = true;
    l->depth++;
    leave(l);
}

static void end_link(struct kb_link *l, enum kb_link_end how, struct kb_now now) {
    detach(l);
    kw_timers_cancel(timers_of(l), &l->timer);
    kw_list_remove(&l->closing);
    l->ending = true;
    l->depth++;
    while (!kw_list_empty(&l->sent)) {
        struct kb_call *c = take_call(l, KW_CONTAINER_OF(l->sent.next, struct sent, link));
        if (c) c->done(c, KW_EIO, NULL, NULL, now);
    }
    l->ending = false;
    if (!l->dead && l->o.ended) l->o.ended(l->o.ctx, l, how, now);
    leave(l);
}

kw_err kb_link_dial(struct kb_link *l, struct kb_now now) {
    if (!kb_link_is_idle(l)) return KW_EBUSY;
    size_t size = strlen(l->host) + 1;
    struct kb_dial *d = kw_calloc(1, sizeof(*d) + size);
    if (!d) return KW_ENOMEM;
    if (kw_timers_set(timers_of(l), &l->timer, now.mono_us + CONNECT_US) != KW_OK) {
        kw_free(d);
        return KW_ENOMEM;
    }
    memcpy(d->host, l->host, size);
    d->port = l->o.port;
    d->node = l->o.node;
    d->connect_by_us = now.mono_us + CONNECT_US;
    kw_list_init(&d->link);
    kw_list_init(&d->ready);
    kw_out_init(&d->out);
    kw_list_push(&d->node->links.dials, &d->link);
    d->l = l;
    l->dial = d;
    dial_ready(d);
    return KW_OK;
}

void kb_link_close(struct kb_link *l, struct kb_now now) {
    (void)now;
    if (!l->dial) return;
    detach(l);
    kw_list_push(&l->o.node->links.closing, &l->closing);
}

void kb_links_end_of_turn(struct kb_node *n) {
    struct kw_list due; /* what is closed from within waits for the next turn's end */
    kw_list_init(&due);
    for (struct kw_list *l; (l = kw_list_shift(&n->links.closing));) kw_list_push(&due, l);
    while (!kw_list_empty(&due)) end_link(KW_CONTAINER_OF(due.next, struct kb_link, closing), KB_LINK_CLOSED, n->now);
}

bool kb_link_is_open(const struct kb_link *l) {
    return l->dial && l->dial->connected;
}

bool kb_link_is_idle(const struct kb_link *l) {
    return !l->dial && !l->ending && kw_list_empty(&l->closing);
}

size_t kb_link_call_count(const struct kb_link *l) {
    return l->sent_count;
}

/* The first answer due may have come, and with it the reason to be here: then the timer moves on to the next one. */
static void timer_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_link *l = ctx;
    struct kb_node *n = l->o.node;
    n->now.mono_us = now_us;
    int64_t next = l->dial && !l->dial->connected ? l->dial->connect_by_us : KW_NEVER;
    for (const struct kw_list *i = l->sent.next; i != &l->sent; i = i->next)
        next = KW_MIN(next, KW_CONTAINER_OF(i, const struct sent, link)->deadline_us);
    if (next > now_us)
        (void)!kw_timers_set(timers_of(l), t, next); /* its own place has just become free */
    else
        end_link(l, KB_LINK_TIMED_OUT, n->now);
}

/* ---- Calls ---- */

static void cancel_sent(struct kb_call *c) {
    ((struct sent *)c->carrier)->call = NULL;
}

void kb_call_cancel(struct kb_call *c) {
    void (*cancel)(struct kb_call *) = c->cancel;
    c->cancel = NULL;
    if (cancel) cancel(c);
}

struct request {
    const struct kw_api *api;
    int16_t version;
    const void *msg;
    const uint8_t *body; /* in place of msg */
    size_t size;
};

kw_err kb_link_frame(struct kb_node *n, struct kw_out *out, const struct kw_api *api, int16_t version, int32_t correlation, const void *msg,
                     const uint8_t *body, size_t size) {
    struct kw_str id = kw_str_of(kb_forward_passes_on(api->key) ? n->links.asking_id : n->links.client_id);
    if (msg) return kw_frame_request(out, api, version, correlation, id, msg);
    struct kw_request_header h = {.request_api_key = api->key,
                                  .request_api_version = version,
                                  .correlation_id = correlation,
                                  .client_id = id};
    size_t start = out->len;
    kw_out_i32(out, 0);
    kw_err err = kw_encode(&kw_request_header_desc, kw_request_header_version(api, version), &h, out);
    if (err) return err;
    kw_out_bytes(out, body, size);
    if (out->err) return out->err;
    if (out->len - start - 4 > INT32_MAX) return KW_ELIMIT;
    kw_store32(out->p + start, (uint32_t)(out->len - start - 4));
    return KW_OK;
}

static kw_err begin(struct kb_link *l, struct kb_call *c, const struct request *rq, int64_t timeout_us, struct kb_now now) {
    struct kb_dial *d = l->dial;
    KW_ASSERT(rq->api && c->done && !kb_call_is_under_way(c));
    if (!d || l->ending) return KW_EBUSY;
    struct kb_node *n = l->o.node;
    size_t before = d->out.len;
    if (l->sent_count >= CALLS_MAX || before - d->out_sent > n->net.frame_size_max) return KW_ELIMIT;
    struct sent *s = l->spare ? l->spare : kw_malloc(sizeof(*s));
    l->spare = s;
    if (!s) return KW_ENOMEM;
    kw_err err = kb_link_frame(n, &d->out, rq->api, rq->version, l->correlation, rq->msg, rq->body, rq->size);
    int64_t deadline = now.mono_us + timeout_us;
    if (!err && (!kw_timer_armed(&l->timer) || l->timer.at_us > deadline)) err = kw_timers_set(timers_of(l), &l->timer, deadline);
    if (err) {
        d->out.len = before;
        d->out.err = KW_OK;
        return err;
    }
    l->spare = NULL;
    d->queued_end += d->out.len - before;
    *s = (struct sent){.call = c,
                       .api = rq->api,
                       .version = rq->version,
                       .correlation = l->correlation,
                       .deadline_us = deadline,
                       .end = d->queued_end};
    l->correlation = l->correlation == INT32_MAX ? 0 : l->correlation + 1;
    kw_list_init(&s->link);
    kw_list_push(&l->sent, &s->link);
    l->sent_count++;
    c->carrier = s;
    c->cancel = cancel_sent;
    if (d->connected) dial_ready(d);
    return KW_OK;
}

kw_err kb_link_call(struct kb_link *l, struct kb_call *c, const struct kw_desc *request, int16_t version, const void *msg,
                    int64_t timeout_us, struct kb_now now) {
    struct request rq = {.api = kw_api_by_key(request->api_key), .version = version, .msg = msg};
    return begin(l, c, &rq, timeout_us, now);
}

kw_err kb_link_relay(struct kb_link *l, struct kb_call *c, int16_t api_key, int16_t version, const uint8_t *body, size_t n,
                     int64_t timeout_us, struct kb_now now) {
    struct request rq = {.api = kw_api_by_key(api_key), .version = version, .body = body, .size = n};
    return begin(l, c, &rq, timeout_us, now);
}

/* ---- The shell: what to do ---- */

struct kb_dial *kb_node_next_dial(struct kb_node *n) {
    for (struct kw_list *l; (l = kw_list_shift(&n->links.ready));) {
        struct kb_dial *d = KW_CONTAINER_OF(l, struct kb_dial, ready);
        if (d->l || d->shell) return d;
        dial_free(d); /* no longer wanted before the shell saw it */
    }
    return NULL;
}

void kb_dial_address(const struct kb_dial *d, const char **host, uint16_t *port) {
    *host = d->host;
    *port = d->port;
}

void kb_dial_set_shell(struct kb_dial *d, void *shell) {
    d->shell = shell;
}

void *kb_dial_shell(const struct kb_dial *d) {
    return d->shell;
}

bool kb_dial_wants_close(const struct kb_dial *d) {
    return !d->l;
}

size_t kb_dial_send(const struct kb_dial *d, struct kb_iov *iov, size_t max) {
    if (!d->l || !d->connected || d->out_sent == d->out.len || max == 0) return 0;
    iov[0] = (struct kb_iov){d->out.p + d->out_sent, d->out.len - d->out_sent};
    return 1;
}

void kb_dial_sent(struct kb_dial *d, size_t bytes, struct kb_now now) {
    struct kw_out *o = &d->out;
    d->node->now = now;
    KW_ASSERT(bytes <= o->len - d->out_sent);
    d->sent_end += bytes;
    d->out_sent += bytes;
    if (d->out_sent < o->len / 2 + OUT_KEPT_MAX && d->out_sent < o->len) return;
    if (o->cap > OUT_KEPT_MAX && d->out_sent == o->len) {
        kw_out_deinit(o);
    } else { /* what is left moves to the front: seldom, and at most as much as was sent */
        memmove(o->p, o->p + d->out_sent, o->len - d->out_sent);
        o->len -= d->out_sent;
    }
    d->out_sent = 0;
}

/* ---- The shell: what came ---- */

static void broken(struct kb_dial *d, const char *why, struct kb_now now) {
    KB_SAY(d->node, KB_WARN, "connection to %s:%u: %s; it is closed", d->host, d->port, why);
    end_link(d->l, KB_LINK_BROKEN, now);
}

void kb_dial_connected(struct kb_dial *d, struct kb_now now) {
    d->node->now = now;
    KW_ASSERT(!d->connected);
    d->connected = true;
    if (!d->l) return;
    dial_ready(d);
    if (d->l->o.opened) d->l->o.opened(d->l->o.ctx, d->l, now);
}

static bool renew_small(struct kb_dial *d) {
    size_t have = d->end - d->pos;
    struct kw_blk *b = kw_blk_new(SMALL_SIZE);
    if (!b) return false;
    if (have > 0) memcpy(b->data, d->blk->data + d->pos, have);
    kw_blk_unref(d->blk);
    d->blk = b;
    d->pos = 0;
    d->end = have;
    return true;
}

void kb_dial_recv_buf(struct kb_dial *d, uint8_t **p, size_t *n) {
    *p = NULL;
    *n = 0;
    if (!d->l || !d->connected) return;
    if (d->big) {
        *p = d->big->data + d->big_fill;
        *n = d->big_size - d->big_fill;
        return;
    }
    bool shared = d->blk && atomic_load_explicit(&d->blk->refs, memory_order_acquire) > 1;
    if (d->blk && d->pos == d->end && !shared) d->pos = d->end = 0;
    if ((!d->blk || d->blk->cap - d->end < ANSWER_SIZE_MIN + 4) && !renew_small(d)) {
        broken(d, "no memory to receive into", d->node->now);
        return;
    }
    *p = d->blk->data + d->end;
    *n = d->blk->cap - d->end;
}

/* Hands one answer over. The dial stays; its link may be gone afterwards. */
static void answer(struct kb_dial *d, struct kw_blk *blk, const uint8_t *p, size_t size, struct kb_now now) {
    struct kb_link *l = d->l;
    struct sent *s = kw_list_empty(&l->sent) ? NULL : KW_CONTAINER_OF(l->sent.next, struct sent, link);
    struct kw_in in;
    int32_t id;
    kw_in_init(&in, p, size);
    if (!s || s->end > d->sent_end) {
        broken(d, "an answer came that nothing asked for", now);
        return;
    }
    if (kw_frame_parse_response(&in, s->api, s->version, &id) != KW_OK || id != s->correlation) {
        broken(d, "an answer came that is not the next one due", now);
        return;
    }
    struct kb_call *c = take_call(l, s);
    if (!c) return;
    kw_blk_ref(blk);
    c->done(c, KW_OK, &in, blk, now);
    kw_blk_unref(blk);
}

static void take_big(struct kb_dial *d, size_t size, struct kb_now now) {
    d->big = size >= POOLED_MIN ? kb_pool_take(&d->node->net.pool, size) : kw_blk_new(size);
    if (!d->big) {
        broken(d, "no memory for an answer", now);
        return;
    }
    d->big_size = size;
    d->big_fill = d->end - d->pos;
    memcpy(d->big->data, d->blk->data + d->pos, d->big_fill);
    kw_blk_unref(d->blk);
    d->blk = NULL;
    d->pos = d->end = 0;
}

static void parse(struct kb_dial *d, struct kb_now now) {
    while (d->l && d->blk && d->end - d->pos >= 4) {
        size_t size = kw_load32(d->blk->data + d->pos), whole = size + 4;
        if (size < ANSWER_SIZE_MIN || size > d->node->net.frame_size_max + ANSWER_MORE_MAX) {
            broken(d, "an answer of an impossible length came", now);
            return;
        }
        if (d->end - d->pos < whole) {
            if (whole > d->blk->cap - d->pos) take_big(d, whole, now);
            return;
        }
        const uint8_t *p = d->blk->data + d->pos + 4;
        d->pos += whole;
        answer(d, d->blk, p, size, now);
    }
}

void kb_dial_received(struct kb_dial *d, size_t n, struct kb_now now) {
    d->node->now = now;
    if (!d->l || n == 0) return;
    if (!d->big) {
        KW_ASSERT(d->blk && n <= d->blk->cap - d->end);
        d->end += n;
        parse(d, now);
        return;
    }
    KW_ASSERT(n <= d->big_size - d->big_fill);
    d->big_fill += n;
    if (d->big_fill < d->big_size) return;
    struct kw_blk *b = d->big;
    d->big = NULL;
    answer(d, b, b->data + 4, d->big_size - 4, now);
    kw_blk_unref(b);
}

void kb_dial_ended(struct kb_dial *d, enum kb_link_end how, struct kb_now now) {
    struct kb_link *l = d->l;
    d->node->now = now;
    if (l) {
        l->dial = NULL;
        d->l = NULL;
    }
    dial_free(d);
    if (l) end_link(l, how, now);
}
