/* describe_quorum.c - DescribeQuorum v0-2: the metadata quorum's leader, its high watermark, and how far voters and observers are. KIP-595,
 * KIP-836, KIP-853.
 *
 * Called by dispatch. Only the leader knows; the others name it, and clients ask there (a broker passes the request on: forward).
 */
#include "api.h"
#include "node_priv.h"
#include "quorum_ask.h"
#include "quorum/store_priv.h"

typedef struct kw_describe_quorum_response_partition_data part_answer;

/* A quorum of one. */
static kw_err describe_self(struct kb_request *rq, part_answer *out) {
    const struct kb_store *s = rq->node->parts.store;
    out->current_voters.v = kw_arena_calloc(&rq->arena, 1, sizeof(*out->current_voters.v));
    if (!out->current_voters.v) return KW_ENOMEM;
    out->current_voters.n = 1;
    out->current_voters.v[0] = (struct kw_describe_quorum_response_replica_state){.replica_id = rq->node->id,
                                                                                  .replica_directory_id = s->load.directory_id,
                                                                                  .log_end_offset = s->log->leo,
                                                                                  .last_fetch_timestamp = rq->node->now.wall_ms,
                                                                                  .last_caught_up_timestamp = rq->node->now.wall_ms};
    out->leader_id = rq->node->id;
    out->leader_epoch = s->epoch;
    out->high_watermark = rq->node->image.offset + 1;
    return KW_OK;
}

static kw_err fill(struct kb_request *rq, const struct kw_describe_quorum_request_topic_data *t,
                   const struct kw_describe_quorum_request_partition_data *q, part_answer *out) {
    const struct kb_store *s = rq->node->parts.store;
    *out = (part_answer){.partition_index = q->partition_index, .error_message = kw_str_null(), .leader_id = -1, .high_watermark = -1};
    if (!kw_str_eq(t->topic_name, kw_str_of(KB_METADATA_TOPIC)) || q->partition_index != 0) {
        out->error_code = KE_UNKNOWN_TOPIC_OR_PARTITION;
        return KW_OK;
    }
    if (!s->raft) return describe_self(rq, out);
    int32_t epoch;
    int32_t leader = kb_store_leader(s, &epoch);
    if (kb_store_leads(s)) return kb_raft_describe(rq, out);
    out->error_code = KE_NOT_LEADER_OR_FOLLOWER;
    out->leader_id = leader;
    out->leader_epoch = epoch;
    return KW_OK;
}

static kw_err nodes(struct kb_request *rq, struct kw_describe_quorum_response *res) {
    struct kb_voter v[KB_VOTERS_MAX];
    size_t n = kb_config_voters(rq->node->parts.config, v, KB_VOTERS_MAX);
    struct kw_describe_quorum_response_listener *l = kw_arena_calloc(&rq->arena, n + 1, sizeof(*l));
    res->nodes.v = kw_arena_calloc(&rq->arena, n + 1, sizeof(*res->nodes.v));
    if (!l || !res->nodes.v) return KW_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        l[i] = (struct kw_describe_quorum_response_listener){.name = kw_str_of("CONTROLLER"), .host = v[i].host, .port = v[i].port};
        res->nodes.v[i] = (struct kw_describe_quorum_response_node){.node_id = v[i].id, .listeners = {&l[i], 1}};
    }
    res->nodes.n = (int32_t)n;
    return KW_OK;
}

static kw_err add_counts(struct kb_request *rq, struct kw_describe_quorum_response *res) {
    struct kb_node_count c[KB_NODE_COUNTS];
    size_t n = kb_node_counts(rq->node, c);
    res->counts.v = kw_arena_calloc(&rq->arena, n, sizeof(*res->counts.v));
    if (!res->counts.v) return KW_ENOMEM;
    for (; (size_t)res->counts.n < n; res->counts.n++)
        res->counts.v[res->counts.n] = (struct kw_describe_quorum_response_node_count){kw_str_of(c[res->counts.n].name), c[res->counts.n].value};
    return KW_OK;
}

static kw_err describe(struct kb_request *rq, const struct kw_describe_quorum_request *req, struct kw_describe_quorum_response *res) {
    struct kw_describe_quorum_response_topic_data *topics = kw_arena_calloc(&rq->arena, (size_t)KW_MAX(req->topics.n, 0) + 1, sizeof(*topics));
    if (!topics) return KW_ENOMEM;
    for (int32_t i = 0; i < req->topics.n; i++) {
        const struct kw_describe_quorum_request_topic_data *t = &req->topics.v[i];
        part_answer *parts = kw_arena_calloc(&rq->arena, (size_t)KW_MAX(t->partitions.n, 0) + 1, sizeof(*parts));
        if (!parts) return KW_ENOMEM;
        for (int32_t j = 0; j < t->partitions.n; j++) {
            kw_err err = fill(rq, t, &t->partitions.v[j], &parts[j]);
            if (err) return err;
        }
        topics[i] = (struct kw_describe_quorum_response_topic_data){.topic_name = t->topic_name, .partitions = {parts, t->partitions.n}};
    }
    res->topics.v = topics;
    res->topics.n = req->topics.n;
    return nodes(rq, res);
}

void kb_api_describe_quorum(struct kb_request *rq) {
    struct kw_describe_quorum_request req;
    struct kw_describe_quorum_response res;
    if (kb_request_decode(rq, &req) != KW_OK) return;
    kw_msg_init(&kw_describe_quorum_response_desc, &res);
    if (describe(rq, &req, &res) || (req.include_counts && add_counts(rq, &res)))
        kb_request_close(rq, "out of memory");
    else
        kb_request_reply(rq, &res);
}
