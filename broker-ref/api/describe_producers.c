/* describe_producers.c - DescribeProducers v0: the idempotent producers that a partition knows. KIP-664. Called by dispatch. Calls
 * log/pid_state. */
#include "api.h"
#include "kw_messages.h"
#include "log/log.h"
#include "log/pid_state.h"
#include "node_priv.h"
#include "replica/partition.h"

static kw_err list(struct kb_request *rq, const struct kb_partition *p, struct kw_describe_producers_response_partition_response *a) {
    const struct kw_map *m = &p->log->pids->by_pid;
    a->active_producers.v = kw_arena_calloc(&rq->arena, m->count, sizeof(*a->active_producers.v));
    if (m->count > 0 && !a->active_producers.v) return KW_ENOMEM;
    const struct kb_pid_entry *e;
    for (size_t it = 0; (e = kw_map_next(m, &it));) {
        struct kw_describe_producers_response_producer_state *s = &a->active_producers.v[a->active_producers.n++];
        s->producer_id = e->pid;
        s->producer_epoch = e->epoch;
        s->last_sequence = e->batch_count > 0 ? e->batches[e->batch_count - 1].last_seq : -1;
        s->last_timestamp = e->last_timestamp;
        s->coordinator_epoch = e->coordinator_epoch;
        s->current_txn_start_offset = e->txn_first_offset;
    }
    return KW_OK;
}

void kb_api_describe_producers(struct kb_request *rq) {
    struct kw_describe_producers_request req;
    struct kw_describe_producers_response resp;
    if (kb_request_decode(rq, &req) != KW_OK) return;
    kw_msg_init(&kw_describe_producers_response_desc, &resp);
    resp.topics.n = req.topics.n;
    resp.topics.v = kw_arena_calloc(&rq->arena, (size_t)req.topics.n, sizeof(*resp.topics.v));
    if (!resp.topics.v) goto fail;
    for (int32_t i = 0; i < req.topics.n; i++) {
        int32_t n = req.topics.v[i].partition_indexes.n;
        resp.topics.v[i].name = req.topics.v[i].name;
        resp.topics.v[i].partitions.n = n;
        resp.topics.v[i].partitions.v = kw_arena_calloc(&rq->arena, (size_t)n, sizeof(*resp.topics.v[i].partitions.v));
        if (!resp.topics.v[i].partitions.v) goto fail;
        for (int32_t j = 0; j < n; j++) {
            struct kw_describe_producers_response_partition_response *a = &resp.topics.v[i].partitions.v[j];
            struct kb_partition *p;
            a->partition_index = req.topics.v[i].partition_indexes.v[j];
            a->error_message = kw_str_null();
            a->error_code = kb_partition_find(rq->node, req.topics.v[i].name, (struct kw_uuid){{0}}, a->partition_index, -1, &p);
            if (a->error_code == KE_NONE && list(rq, p, a) != KW_OK) goto fail;
        }
    }
    kb_request_reply(rq, &resp);
    return;
fail:
    kb_request_close(rq, "out of memory");
}
