/* init_producer_id.c - InitProducerId v0-5: ids for idempotent producers, one by one from blocks of the controller. KIP-98, 360, 730.
 *
 * Called by dispatch. Calls controller. With a transactional id: UNSUPPORTED_VERSION, final for every client, until there are transactions.
 */
#include "api.h"
#include "channel.h"
#include "kw_messages.h"
#include "node_priv.h"
#include "pid_source.h"

struct kb_pid_source {
    struct kb_node *node;
    int64_t next, end;
    int64_t floor; /* the logs hold ids below */
    struct kw_list waiting; /* struct wait */
    bool asking;
    struct kb_pid_block block;
    struct kb_change change;
    /* where the controller is another node */
    struct kb_call call;
    struct kw_timer retry;
    int64_t asked_us; /* since when */
};
struct wait {
    struct kw_list link;
    struct kb_request *rq;
};

static void retry_fire(struct kw_timer *t, void *ctx, int64_t now_us);

kw_err kb_pid_source_new(struct kb_node *n) {
    struct kb_pid_source *s = kw_calloc(1, sizeof(*s));
    if (!s) return KW_ENOMEM;
    s->node = n;
    kw_list_init(&s->waiting);
    kw_timer_init(&s->retry, retry_fire, s);
    n->pid_source = s;
    return KW_OK;
}

void kb_pid_source_free(struct kb_node *n) {
    if (!n->pid_source) return;
    kb_call_cancel(&n->pid_source->call);
    kw_timers_cancel(&n->parts.timers, &n->pid_source->retry);
    kw_free(n->pid_source);
    n->pid_source = NULL;
}

void kb_pid_source_from(struct kb_node *n, int64_t next) {
    struct kb_pid_source *s = n->pid_source;
    s->next = KW_MIN(KW_MAX(s->next, next), KW_MAX(s->end, s->next)); /* what is left of the block */
    s->floor = KW_MAX(s->floor, next);
    if (n->parts.controller) kb_controller_pids_from(n->parts.controller, next);
}

static void answer(struct kb_request *rq, int16_t code, int64_t pid) {
    struct kw_init_producer_id_response resp;
    kw_msg_init(&kw_init_producer_id_response_desc, &resp);
    resp.error_code = code;
    resp.producer_id = pid;
    resp.producer_epoch = code == KE_NONE ? 0 : -1;
    kb_request_reply(rq, &resp);
}

static void ask(struct kb_pid_source *s);

static void block_came(struct kb_change *c, struct kb_now now) {
    (void)now;
    struct kb_pid_source *s = c->ctx;
    s->asking = false;
    if (s->block.result.code == KE_NONE) {
        s->next = KW_MIN(KW_MAX(s->block.first, s->floor), s->block.first + s->block.count);
        s->end = s->block.first + s->block.count;
    }
    struct kw_list *l;
    while ((s->block.result.code != KE_NONE || s->next < s->end) && (l = kw_list_shift(&s->waiting))) {
        struct kb_request *rq = KW_CONTAINER_OF(l, struct wait, link)->rq;
        if (s->block.result.code == KE_NONE)
            answer(rq, KE_NONE, s->next++);
        else
            answer(rq, KE_COORDINATOR_NOT_AVAILABLE, -1); /* retriable: the metadata log may take records again */
    }
    if (!kw_list_empty(&s->waiting) && !s->asking) ask(s);
}

/* ---- A block of another node's ---- */

enum { CALL_US = 2000000, RETRY_US = 50000, GIVE_UP_US = 10000000 };

static void ask_controller(struct kb_pid_source *s, struct kb_now now);

static void ask_later(struct kb_pid_source *s, struct kb_now now) {
    struct kb_node *n = s->node;
    bool over = now.mono_us - s->asked_us >= GIVE_UP_US;
    if (!over && kw_timers_set(&n->parts.timers, &s->retry, now.mono_us + RETRY_US) == KW_OK) return;
    s->block.result.code = KE_COORDINATOR_NOT_AVAILABLE;
    block_came(&s->change, now);
}

static void retry_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_pid_source *s = ctx;
    (void)t;
    s->node->now.mono_us = now_us;
    ask_controller(s, s->node->now);
}

static void called(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct kb_pid_source *s = c->ctx;
    struct kw_allocate_producer_ids_response r;
    struct kw_arena none;
    (void)blk;
    kw_arena_init(&none, 1);
    if (!err) err = kw_decode(&kw_allocate_producer_ids_response_desc, 0, body, &none, &r);
    if (err || r.error_code || r.producer_id_len <= 0 || r.producer_id_start < 0 || r.producer_id_start > INT64_MAX - r.producer_id_len ||
        r.producer_id_start + r.producer_id_len <= s->floor) { /* the logs know of later ids: so will the controller, a block later */
        ask_later(s, now);
        return;
    }
    s->block.first = r.producer_id_start;
    s->block.count = r.producer_id_len;
    block_came(&s->change, now);
}

static void ask_controller(struct kb_pid_source *s, struct kb_now now) {
    struct kb_node *n = s->node;
    struct kw_allocate_producer_ids_request q;
    kw_msg_init(&kw_allocate_producer_ids_request_desc, &q);
    q.broker_id = n->id;
    q.broker_epoch = kb_node_broker_epoch(n);
    s->call = (struct kb_call){.done = called, .ctx = s};
    if (kb_channel_call(n, &s->call, &kw_allocate_producer_ids_request_desc, 0, &q, CALL_US, now) != KW_OK) ask_later(s, now);
}

static void ask(struct kb_pid_source *s) {
    s->asking = true;
    s->block = (struct kb_pid_block){0};
    s->change = (struct kb_change){.done = block_came, .ctx = s};
    if (s->node->lifecycle) {
        s->asked_us = s->node->now.mono_us;
        ask_controller(s, s->node->now);
        return;
    }
    if (kb_controller_allocate_pids(s->node->parts.controller, &s->block, &s->change, s->node->now) == KW_OK) return;
    s->block.result.code = KE_COORDINATOR_NOT_AVAILABLE;
    block_came(&s->change, s->node->now);
}

static void abandon(struct kb_request *rq) {
    struct wait *w = rq->state;
    kw_list_remove(&w->link);
    kb_request_drop(rq);
}

void kb_api_init_producer_id(struct kb_request *rq) {
    struct kb_pid_source *s = rq->node->pid_source;
    struct kw_init_producer_id_request req;
    if (kb_request_decode(rq, &req) != KW_OK) return;
    if (req.transactional_id.len >= 0) {
        answer(rq, req.transactional_id.len == 0 ? KE_INVALID_REQUEST : KE_UNSUPPORTED_VERSION, -1);
        return;
    }
    if (s->next < s->end) {
        answer(rq, KE_NONE, s->next++);
        return;
    }
    struct wait *w = kw_arena_alloc(&rq->arena, sizeof(*w));
    if (!w) {
        kb_request_close(rq, "out of memory");
        return;
    }
    w->rq = rq;
    kw_list_init(&w->link);
    kw_list_push(&s->waiting, &w->link);
    rq->state = w;
    rq->abandon = abandon;
    if (!s->asking) ask(s);
}
