/* offset_for_leader_epoch.c - OffsetForLeaderEpoch v0-4: where a leader epoch ended, by which clients find out that a log was cut. KIP-101,
 * 279, 320.
 *
 * Called by dispatch. Calls log/epochs.
 */
#include "api.h"
#include "kw_messages.h"
#include "log/log.h"
#include "node_priv.h"
#include "replica/partition.h"

static void look_up(struct kb_request *rq, struct kw_str topic,
                    const struct kw_offset_for_leader_epoch_request_offset_for_leader_partition *q,
                    struct kw_offset_for_leader_epoch_response_epoch_end_offset *a) {
    struct kb_partition *p;
    *a = (struct kw_offset_for_leader_epoch_response_epoch_end_offset){.partition = q->partition, .leader_epoch = -1, .end_offset = -1};
    a->error_code = kb_partition_find(rq->node, topic, (struct kw_uuid){{0}}, q->partition, q->current_leader_epoch, &p);
    if (a->error_code == KE_NONE) kb_partition_epoch_end(p, q->leader_epoch, p->log->written, &a->leader_epoch, &a->end_offset);
}

void kb_api_offset_for_leader_epoch(struct kb_request *rq) {
    struct kw_offset_for_leader_epoch_request req;
    struct kw_offset_for_leader_epoch_response resp;
    if (kb_request_decode(rq, &req) != KW_OK) return;
    kw_msg_init(&kw_offset_for_leader_epoch_response_desc, &resp);
    resp.topics.n = req.topics.n;
    resp.topics.v = kw_arena_calloc(&rq->arena, (size_t)req.topics.n, sizeof(*resp.topics.v));
    if (!resp.topics.v) goto fail;
    for (int32_t i = 0; i < req.topics.n; i++) {
        int32_t n = req.topics.v[i].partitions.n;
        resp.topics.v[i].topic = req.topics.v[i].topic;
        resp.topics.v[i].partitions.n = n;
        resp.topics.v[i].partitions.v = kw_arena_calloc(&rq->arena, (size_t)n, sizeof(*resp.topics.v[i].partitions.v));
        if (!resp.topics.v[i].partitions.v) goto fail;
        for (int32_t j = 0; j < n; j++)
            look_up(rq, req.topics.v[i].topic, &req.topics.v[i].partitions.v[j], &resp.topics.v[i].partitions.v[j]);
    }
    kb_request_reply(rq, &resp);
    return;
fail:
    kb_request_close(rq, "out of memory");
}
