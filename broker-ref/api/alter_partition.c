/* alter_partition.c - AlterPartition v0-3: a leader asks for other in-sync replicas. v1 adds the recovery state, v2 topic ids, v3 the replicas' broker
 * epochs. KIP-497, 704, 841, 903.
 *
 * Called by dispatch, sent by replica/isr_change. The rules are the controller's (controller_isr.c).
 */
#include "admin.h"

#define WAIT_MS 30000 /* the request has no timeout of its own; its sender's is shorter */

struct alter {
    struct kw_alter_partition_request req;
    struct kb_isr_request q;
    int32_t count;
};

static int16_t code_of(const struct kb_request *rq, const struct kb_isr_alter *a) {
    if (a->result.code == KE_INELIGIBLE_REPLICA && rq->head.version < 2) return KE_OPERATION_NOT_ATTEMPTED;
    if (a->result.code == KE_NEW_LEADER_ELECTED && rq->head.version < 2) return KE_FENCED_LEADER_EPOCH;
    return a->result.code;
}

/* Of the request as a whole: its sender is to find the controller, or to register anew. */
static int16_t whole_code(const struct kb_admin_wait *w, const struct alter *g) {
    if (w->timed_out) return KE_REQUEST_TIMED_OUT;
    if (g->q.stale) return KE_STALE_BROKER_EPOCH;
    bool all = g->count > 0;
    for (int32_t i = 0; i < g->count; i++) all = all && g->q.items[i].result.code == KE_NOT_CONTROLLER;
    return all ? KE_NOT_CONTROLLER : KE_NONE;
}

static void answer(struct kb_admin_wait *w) {
    const struct alter *g = w->items;
    struct kb_request *rq = w->rq;
    struct kw_alter_partition_response res;
    kw_msg_init(&kw_alter_partition_response_desc, &res);
    res.error_code = whole_code(w, g);
    int32_t n = res.error_code ? 0 : KW_MAX(g->req.topics.n, 0);
    const struct kb_isr_alter *a = g->q.items;
    res.topics.v = kw_arena_calloc(&rq->arena, (size_t)n + 1, sizeof(*res.topics.v));
    kw_err err = res.topics.v ? KW_OK : KW_ENOMEM;
    for (int32_t i = 0; !err && i < n; i++) {
        const struct kw_alter_partition_request_topic_data *t = &g->req.topics.v[i];
        struct kw_alter_partition_response_topic_data *out = &res.topics.v[res.topics.n++];
        int32_t m = KW_MAX(t->partitions.n, 0);
        out->topic_name = t->topic_name;
        out->topic_id = t->topic_id;
        out->partitions.v = kw_arena_calloc(&rq->arena, (size_t)m + 1, sizeof(*out->partitions.v));
        if (!out->partitions.v) err = KW_ENOMEM;
        for (int32_t j = 0; !err && j < m; j++, a++) {
            struct kw_alter_partition_response_partition_data *p = &out->partitions.v[out->partitions.n++];
            p->partition_index = a->partition;
            p->error_code = code_of(rq, a);
            if (p->error_code) continue;
            p->leader_id = a->leader;
            p->leader_epoch = a->now_leader_epoch;
            p->partition_epoch = a->now_partition_epoch;
            p->leader_recovery_state = a->now_recovery_state;
            p->isr.v = a->isr_room;
            p->isr.n = a->now_isr_count;
        }
    }
    if (err)
        kb_admin_no_memory(rq);
    else
        kb_request_reply(rq, &res);
}

static kw_err copy_one(struct kb_request *rq, const struct kw_alter_partition_request_topic_data *t,
                       const struct kw_alter_partition_request_partition_data *p, struct kb_isr_alter *a) {
    bool epochs = rq->head.version >= 3;
    int32_t n = KW_MAX(epochs ? p->new_isr_with_epochs.n : p->new_isr.n, 0);
    int32_t *ids = kw_arena_alloc(&rq->arena, ((size_t)n + 1) * sizeof(*ids));
    int64_t *known = kw_arena_alloc(&rq->arena, ((size_t)n + 1) * sizeof(*known));
    a->isr_room = kw_arena_alloc(&rq->arena, ((size_t)n + 1) * sizeof(*a->isr_room));
    if (!ids || !known || !a->isr_room) return KW_ENOMEM;
    for (int32_t i = 0; i < n; i++) {
        ids[i] = epochs ? p->new_isr_with_epochs.v[i].broker_id : p->new_isr.v[i];
        known[i] = epochs ? p->new_isr_with_epochs.v[i].broker_epoch : -1;
    }
    a->topic = rq->head.version < 2 ? t->topic_name : kw_str_null();
    a->topic_id = t->topic_id;
    a->partition = p->partition_index;
    a->leader_epoch = p->leader_epoch;
    a->partition_epoch = p->partition_epoch;
    a->isr = ids;
    a->broker_epochs = known;
    a->isr_count = n;
    a->recovery_state = p->leader_recovery_state;
    return KW_OK;
}

static kw_err copy(struct kb_request *rq, struct alter *g) {
    for (int32_t i = 0; i < g->req.topics.n; i++) g->count += KW_MAX(g->req.topics.v[i].partitions.n, 0);
    g->q.broker = g->req.broker_id;
    g->q.broker_epoch = g->req.broker_epoch;
    g->q.items = kw_arena_calloc(&rq->arena, (size_t)g->count + 1, sizeof(*g->q.items));
    if (!g->q.items) return KW_ENOMEM;
    struct kb_isr_alter *a = g->q.items;
    for (int32_t i = 0; i < g->req.topics.n; i++)
        for (int32_t j = 0; j < g->req.topics.v[i].partitions.n; j++) {
            kw_err err = copy_one(rq, &g->req.topics.v[i], &g->req.topics.v[i].partitions.v[j], a++);
            if (err) return err;
        }
    return KW_OK;
}

void kb_api_alter_partition(struct kb_request *rq) {
    struct kb_admin_wait *w = kb_admin_open(rq, sizeof(struct alter), answer);
    if (!w) return;
    struct alter *g = w->items;
    kw_err err = copy(rq, g);
    if (!err) err = kb_controller_alter_isr(kb_node_parts(rq->node)->controller, &g->q, g->count, &w->change, rq->arrived);
    kb_admin_wait_begin(w, err, WAIT_MS);
}
