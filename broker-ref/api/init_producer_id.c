/* init_producer_id.c - InitProducerId v0-5: ids for idempotent producers, one by one from blocks of the controller. KIP-98, 360, 730.
 *
 * Called by dispatch. Calls controller. With a transactional id: UNSUPPORTED_VERSION, final for every client, until there are transactions.
 */
#include "api.h"
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
};
struct wait {
    struct kw_list link;
    struct kb_request *rq;
};

kw_err kb_pid_source_new(struct kb_node *n) {
    struct kb_pid_source *s = kw_calloc(1, sizeof(*s));
    if (!s) return KW_ENOMEM;
    s->node = n;
    kw_list_init(&s->waiting);
    n->pid_source = s;
    return KW_OK;
}

void kb_pid_source_free(struct kb_node *n) {
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

static void ask(struct kb_pid_source *s) {
    s->asking = true;
    s->block = (struct kb_pid_block){0};
    s->change = (struct kb_change){.done = block_came, .ctx = s};
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
