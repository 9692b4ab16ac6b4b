/* vote.c - Vote v0-2: a candidate asks for this voter's vote. KIP-595, KIP-853, KIP-996 (pre-vote).
 *
 * Called by dispatch. Calls quorum/raft, which answers once what the answer rests on is stored.
 */
#include "api.h"
#include "quorum_ask.h"

static void answer(struct kb_raft_ask *a) {
    struct kw_vote_response res;
    struct kw_vote_response_partition_data p = {
        .error_code = a->reply.error, .leader_id = a->reply.leader_id, .leader_epoch = a->reply.epoch, .vote_granted = a->reply.granted};
    struct kw_vote_response_topic_data t = {.topic_name = kw_str_of(KB_METADATA_TOPIC), .partitions = {&p, 1}};
    kw_msg_init(&kw_vote_response_desc, &res);
    res.error_code = a->reply.top_error;
    if (!res.error_code) {
        res.topics.v = &t;
        res.topics.n = 1;
    }
    kb_request_reply(a->rq, &res);
}

void kb_api_vote(struct kb_request *rq) {
    struct kw_vote_request req;
    struct kb_election_request q = {.kind = KB_VOTE};
    if (kb_request_decode(rq, &req) != KW_OK) return;
    if (req.topics.n != 1 || req.topics.v[0].partitions.n != 1 || !kw_str_eq(req.topics.v[0].topic_name, kw_str_of(KB_METADATA_TOPIC))) {
        struct kb_raft_ask a = {.rq = rq, .reply = {.top_error = KE_INVALID_REQUEST}};
        answer(&a);
        return;
    }
    const struct kw_vote_request_partition_data *p = &req.topics.v[0].partitions.v[0];
    q.cluster_id = req.cluster_id;
    q.voter_id = req.voter_id;
    q.voter_directory = p->voter_directory_id;
    q.epoch = p->replica_epoch;
    q.from = p->replica_id;
    q.from_directory = p->replica_directory_id;
    q.pre_vote = p->pre_vote;
    q.log_end = (struct kb_log_end){p->last_offset_epoch, p->last_offset};
    kb_quorum_ask(rq, &q, answer);
}
