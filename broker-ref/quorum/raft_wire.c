/* raft_wire.c - the quorum's requests and answers between what election.h says and what goes over the wire. Called by raft.c, raft_join.c,
 * raft_fetch.c, raft_install.c. KIP-595, KIP-853.
 */
#include "raft_priv.h"

kw_err kb_raft_send(struct kb_raft_peer *p, const struct kb_election_send *send, struct kb_now now) {
    const struct kb_election_request *q = &send->request;
    struct kw_str topic = kw_str_of(KB_METADATA_TOPIC);
    if (q->kind == KB_VOTE) {
        struct kw_vote_request_partition_data part;
        struct kw_vote_request_topic_data t = {.topic_name = topic, .partitions = {&part, 1}};
        struct kw_vote_request m = {.cluster_id = q->cluster_id, .voter_id = q->voter_id, .topics = {&t, 1}};
        part = (struct kw_vote_request_partition_data){.replica_epoch = q->epoch,
                                                       .replica_id = q->from,
                                                       .replica_directory_id = q->from_directory,
                                                       .voter_directory_id = q->voter_directory,
                                                       .last_offset_epoch = q->log_end.epoch,
                                                       .last_offset = q->log_end.offset,
                                                       .pre_vote = q->pre_vote};
        return kb_raft_call(p, &p->ask, &kw_vote_request_desc, kw_vote_request_desc.max, &m, send->timeout_us, now);
    }
    if (q->kind == KB_BEGIN_EPOCH) {
        struct kw_begin_quorum_epoch_request_partition_data part = {
            .voter_directory_id = q->voter_directory, .leader_id = q->from, .leader_epoch = q->epoch};
        struct kw_begin_quorum_epoch_request_topic_data t = {.topic_name = topic, .partitions = {&part, 1}};
        struct kw_begin_quorum_epoch_request m = {.cluster_id = q->cluster_id, .voter_id = q->voter_id, .topics = {&t, 1}};
        return kb_raft_call(p, &p->ask, &kw_begin_quorum_epoch_request_desc, kw_begin_quorum_epoch_request_desc.max, &m, send->timeout_us, now);
    }
    struct kw_end_quorum_epoch_request_replica_info candidates[KB_VOTERS_MAX];
    for (size_t i = 0; i < q->successor_count; i++)
        candidates[i] = (struct kw_end_quorum_epoch_request_replica_info){.candidate_id = q->successors[i]};
    struct kw_end_quorum_epoch_request_partition_data part = {
        .leader_id = q->from, .leader_epoch = q->epoch, .preferred_candidates = {candidates, (int32_t)q->successor_count}};
    struct kw_end_quorum_epoch_request_topic_data t = {.topic_name = topic, .partitions = {&part, 1}};
    struct kw_end_quorum_epoch_request m = {.cluster_id = q->cluster_id, .topics = {&t, 1}};
    return kb_raft_call(p, &p->ask, &kw_end_quorum_epoch_request_desc, kw_end_quorum_epoch_request_desc.max, &m, send->timeout_us, now);
}

kw_err kb_raft_read(struct kb_raft *r, const struct kw_desc *d, struct kw_in *body, void *m) {
    kw_arena_reset(&r->arena);
    return kw_decode(d, d->max, body, &r->arena, m);
}

/* The answers have one topic with one partition, or an error for all. */
#define TAKE(m, granted_value)                                                                                                             \
    do {                                                                                                                                   \
        reply->top_error = (m).error_code;                                                                                                 \
        if ((m).error_code) break;                                                                                                         \
        if ((m).topics.n != 1 || (m).topics.v[0].partitions.n != 1) {                                                                      \
            err = KW_EDECODE;                                                                                                              \
            break;                                                                                                                         \
        }                                                                                                                                  \
        reply->error = (m).topics.v[0].partitions.v[0].error_code;                                                                         \
        reply->leader_id = (m).topics.v[0].partitions.v[0].leader_id;                                                                      \
        reply->epoch = (m).topics.v[0].partitions.v[0].leader_epoch;                                                                       \
        reply->granted = (granted_value);                                                                                                  \
    } while (0)

kw_err kb_raft_read_answer(struct kb_raft *r, enum kb_election_kind kind, struct kw_in *body, struct kb_election_reply *reply) {
    kw_err err;
    *reply = (struct kb_election_reply){.leader_id = -1};
    if (kind == KB_VOTE) {
        struct kw_vote_response m;
        err = kb_raft_read(r, &kw_vote_response_desc, body, &m);
        if (!err) TAKE(m, m.topics.v[0].partitions.v[0].vote_granted);
    } else if (kind == KB_BEGIN_EPOCH) {
        struct kw_begin_quorum_epoch_response m;
        err = kb_raft_read(r, &kw_begin_quorum_epoch_response_desc, body, &m);
        if (!err) TAKE(m, false);
    } else {
        struct kw_end_quorum_epoch_response m;
        err = kb_raft_read(r, &kw_end_quorum_epoch_response_desc, body, &m);
        if (!err) TAKE(m, false);
    }
    /* Not up yet: as good as no answer. */
    return !err && reply->error == KE_BROKER_NOT_AVAILABLE ? KW_EBUSY : err;
}

/* ---- Fetch ---- */

/* One that has forgotten what it promised to later leaders, maybe, acknowledges nothing: without its directory a voter is none to a leader. */
struct kw_uuid kb_raft_directory(const struct kb_raft *r) {
    return r->phase == KB_RAFT_FORGETFUL ? (struct kw_uuid){{0}} : r->s->load.directory_id;
}

void kb_raft_fetch_init(const struct kb_raft *r, struct kb_raft_fetch_request *f) {
    const struct kb_store *s = r->s;
    struct kb_log_end end = kb_raft_log_end(r);
    int64_t most = r->set.fetch_bytes_max;
    kw_msg_init(&kw_fetch_request_desc, &f->req);
    f->topic = (struct kw_fetch_request_fetch_topic){
        .topic = kw_str_of(KB_METADATA_TOPIC), .topic_id = kb_metadata_topic_id, .partitions = {&f->partition, 1}};
    f->partition = (struct kw_fetch_request_fetch_partition){.current_leader_epoch = r->epoch,
                                                             .fetch_offset = end.offset,
                                                             .last_fetched_epoch = end.epoch,
                                                             .log_start_offset = -1,
                                                             .partition_max_bytes = (int32_t)most,
                                                             .replica_directory_id = kb_raft_directory(r),
                                                             .high_watermark = r->hw};
    f->req.cluster_id = s->load.cluster_id[0] ? kw_str_of(s->load.cluster_id) : kw_str_null();
    f->req.replica_state.replica_id = r->id;
    f->req.max_wait_ms = 500;
    f->req.max_bytes = (int32_t)most;
    f->req.topics.v = &f->topic;
    f->req.topics.n = 1;
}

kw_err kb_raft_read_fetch(struct kb_raft *r, struct kw_in *body, int16_t *top_error, struct kw_fetch_response_partition_data **p) {
    struct kw_fetch_response *m;
    kw_arena_reset(&r->arena);
    m = kw_arena_alloc(&r->arena, sizeof(*m));
    kw_err err = m ? kw_decode(&kw_fetch_response_desc, kw_fetch_response_desc.max, body, &r->arena, m) : KW_ENOMEM;
    if (err) return err;
    *top_error = m->error_code;
    if (m->error_code) return KW_OK;
    if (m->responses.n != 1 || m->responses.v[0].partitions.n != 1) return KW_EDECODE;
    *p = &m->responses.v[0].partitions.v[0];
    return KW_OK;
}
