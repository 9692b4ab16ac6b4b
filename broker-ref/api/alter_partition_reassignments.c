/* alter_partition_reassignments.c - AlterPartitionReassignments v0-1: partitions move onto other replicas; null replicas cancel a move under way. v1 can
 * forbid a change of the number of replicas. KIP-455, 860.
 *
 * Called by dispatch. The rules are the controller's (controller_reassign.c).
 */
#include "admin.h"

struct moves {
    struct kw_alter_partition_reassignments_request req;
    struct kb_reassign *v;
    int32_t count;
};

static void answer(struct kb_admin_wait *w) {
    const struct moves *g = w->items;
    struct kb_request *rq = w->rq;
    struct kw_alter_partition_reassignments_response res;
    kw_msg_init(&kw_alter_partition_reassignments_response_desc, &res);
    res.allow_replication_factor_change = g->req.allow_replication_factor_change;
    const struct kb_reassign *a = g->v;
    int32_t n = KW_MAX(g->req.topics.n, 0);
    if (!kb_controller_is_active(kb_node_parts(rq->node)->controller)) {
        res.error_code = KE_NOT_CONTROLLER;
        n = 0;
    }
    res.responses.v = kw_arena_calloc(&rq->arena, (size_t)n + 1, sizeof(*res.responses.v));
    kw_err err = res.responses.v ? KW_OK : KW_ENOMEM;
    for (int32_t i = 0; !err && i < n; i++) {
        struct kw_alter_partition_reassignments_response_reassignable_topic_response *out = &res.responses.v[res.responses.n++];
        int32_t m = KW_MAX(g->req.topics.v[i].partitions.n, 0);
        out->name = g->req.topics.v[i].name;
        out->partitions.v = kw_arena_calloc(&rq->arena, (size_t)m + 1, sizeof(*out->partitions.v));
        if (!out->partitions.v) err = KW_ENOMEM;
        for (int32_t j = 0; !err && j < m; j++, a++) {
            struct kw_alter_partition_reassignments_response_reassignable_partition_response *p = &out->partitions.v[out->partitions.n++];
            p->partition_index = a->partition;
            p->error_code = kb_admin_code(w, &a->result);
            p->error_message = kb_admin_text(w, &a->result);
        }
    }
    if (err)
        kb_admin_no_memory(rq);
    else
        kb_request_reply(rq, &res);
}

static kw_err copy(struct kb_request *rq, struct moves *g) {
    static const int32_t none[1];
    for (int32_t i = 0; i < g->req.topics.n; i++) g->count += KW_MAX(g->req.topics.v[i].partitions.n, 0);
    g->v = kw_arena_calloc(&rq->arena, (size_t)g->count + 1, sizeof(*g->v));
    if (!g->v) return KW_ENOMEM;
    int32_t n = 0;
    for (int32_t i = 0; i < g->req.topics.n; i++)
        for (int32_t j = 0; j < g->req.topics.v[i].partitions.n; j++) {
            const struct kw_alter_partition_reassignments_request_reassignable_partition *p = &g->req.topics.v[i].partitions.v[j];
            g->v[n++] = (struct kb_reassign){.topic = g->req.topics.v[i].name,
                                             .partition = p->partition_index,
                                             .replicas = p->replicas.n < 0 ? NULL : p->replicas.n == 0 ? none : p->replicas.v,
                                             .replica_count = KW_MAX(p->replicas.n, 0),
                                             .keep_factor = !g->req.allow_replication_factor_change};
        }
    return KW_OK;
}

void kb_api_alter_partition_reassignments(struct kb_request *rq) {
    struct kb_admin_wait *w = kb_admin_open(rq, sizeof(struct moves), answer);
    if (!w) return;
    struct moves *g = w->items;
    kw_err err = copy(rq, g);
    if (!err) err = kb_controller_reassign(kb_node_parts(rq->node)->controller, g->v, g->count, &w->change, rq->arrived);
    kb_admin_wait_begin(w, err, g->req.timeout_ms);
}
