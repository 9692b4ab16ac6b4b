/* end_quorum_epoch.c - EndQuorumEpoch v0-1: a leader steps down and says who had best stand next. KIP-595, KIP-853. Called by dispatch. */
#include "api.h"
#include "quorum_ask.h"

static void answer(struct kb_raft_ask *a) {
    struct kw_end_quorum_epoch_response res;
    struct kw_end_quorum_epoch_response_partition_data p = {
        .error_code = a->reply.error, .leader_id = a->reply.leader_id, .leader_epoch = a->reply.epoch};
    struct kw_end_quorum_epoch_response_topic_data t = {.topic_name = kw_str_of(KB_METADATA_TOPIC), .partitions = {&p, 1}};
    kw_msg_init(&kw_end_quorum_epoch_response_desc, &res);
    res.error_code = a->reply.top_error;
    if (!res.error_code) {
        res.topics.v = &t;
        res.topics.n = 1;
    }
    kb_request_reply(a->rq, &res);
}

static void take_successors(const struct kw_end_quorum_epoch_request_partition_data *p, struct kb_election_request *q) {
    for (int32_t i = 0; i < p->preferred_candidates.n && q->successor_count < KB_VOTERS_MAX; i++)
        q->successors[q->successor_count++] = p->preferred_candidates.v[i].candidate_id;
    if (q->successor_count > 0) return;
    for (int32_t i = 0; i < p->preferred_successors.n && q->successor_count < KB_VOTERS_MAX; i++)
        q->successors[q->successor_count++] = p->preferred_successors.v[i];
}

void kb_api_end_quorum_epoch(struct kb_request *rq) {
    struct kw_end_quorum_epoch_request req;
    if (kb_request_decode(rq, &req) != KW_OK) return;
    if (req.topics.n != 1 || req.topics.v[0].partitions.n != 1 || !kw_str_eq(req.topics.v[0].topic_name, kw_str_of(KB_METADATA_TOPIC))) {
        struct kb_raft_ask a = {.rq = rq, .reply = {.top_error = KE_INVALID_REQUEST}};
        answer(&a);
        return;
    }
    const struct kw_end_quorum_epoch_request_partition_data *p = &req.topics.v[0].partitions.v[0];
    struct kb_election_request q = {
        .kind = KB_END_EPOCH, .cluster_id = req.cluster_id, .voter_id = -1, .epoch = p->leader_epoch, .from = p->leader_id};
    take_successors(p, &q);
    kb_quorum_ask(rq, &q, answer);
}
