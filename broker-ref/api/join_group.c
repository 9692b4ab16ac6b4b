/* join_group.c - JoinGroup v0-9. Called by dispatch; waits in group/classic_join. KIP-62, 345, 394, 559, 814. */
#include "group_api.h"

struct join {
    struct kb_request *rq;
    struct kb_group_wait wait;
};

static void fill_members(struct kb_request *rq, const struct kb_group *g, struct kw_join_group_response *resp) {
    resp->members.v = kw_arena_calloc(&rq->arena, (size_t)kb_group_size(g), sizeof(*resp->members.v));
    for (const struct kb_member *m = NULL; resp->members.v && (m = kb_group_next(g, m));) {
        struct kb_member_view v;
        kb_member_view(g, m, &v);
        resp->members.v[resp->members.n++] =
            (struct kw_join_group_response_member){.member_id = v.id, .group_instance_id = v.instance_id, .metadata = v.metadata};
    }
}

static void joined(struct kb_group_wait *w, const struct kb_join_answer *a) {
    struct join *j = w->ctx;
    struct kb_request *rq = j->rq;
    struct kw_join_group_response resp;
    kw_msg_init(&kw_join_group_response_desc, &resp);
    resp.error_code = a->code;
    resp.generation_id = a->generation;
    resp.protocol_type = a->protocol_type;
    resp.protocol_name = a->protocol.len < 0 && rq->head.version < 7 ? kw_str_of("") : a->protocol;
    resp.leader = a->leader;
    resp.member_id = a->member_id;
    resp.skip_assignment = a->skip_assignment;
    if (a->members_of) fill_members(rq, a->members_of, &resp);
    if (a->members_of && !resp.members.v)
        kb_request_close(rq, "out of memory"); /* the member comes back */
    else
        kb_request_reply(rq, &resp);
}

static void refuse(struct join *j, int16_t code, struct kw_str member_id) {
    struct kb_join_answer a = {.code = code,
                               .generation = -1,
                               .protocol_type = kw_str_null(),
                               .protocol = kw_str_null(),
                               .leader = kw_str_of(""),
                               .member_id = member_id};
    joined(&j->wait, &a);
}

static void abandon(struct kb_request *rq) {
    struct join *j = rq->state;
    kb_group_forget(&j->wait, rq->node->now);
    kb_request_drop(rq);
}

static int16_t check(struct kb_request *rq, const struct kw_join_group_request *q) {
    const struct kb_config *c = rq->node->parts.config;
    if (q->group_id.len <= 0) return KE_INVALID_GROUP_ID;
    if (!kb_image_is_text(q->group_instance_id)) return KE_INVALID_REQUEST; /* the core's are C strings */
    bool texts = kb_image_is_text(q->protocol_type);
    for (int32_t i = 0; i < q->protocols.n; i++) texts = texts && kb_image_is_text(q->protocols.v[i].name);
    if (!texts) return KE_INCONSISTENT_GROUP_PROTOCOL;
    if (q->session_timeout_ms < kb_config_int(c, "group.min.session.timeout.ms") ||
        q->session_timeout_ms > kb_config_int(c, "group.max.session.timeout.ms"))
        return KE_INVALID_SESSION_TIMEOUT;
    return KE_NONE;
}

void kb_api_join_group(struct kb_request *rq) {
    struct kw_join_group_request q;
    struct kb_group_entry *e = NULL;
    if (kb_request_decode(rq, &q) != KW_OK) return;
    struct join *j = kw_arena_calloc(&rq->arena, 1, sizeof(*j));
    if (!j) {
        kb_request_close(rq, "out of memory");
        return;
    }
    j->rq = rq;
    j->wait = (struct kb_group_wait){.joined = joined, .ctx = j};
    rq->state = j;
    int16_t code = check(rq, &q);
    if (!code) code = kb_coordinator_group(rq->node, q.group_id, q.member_id.len <= 0, &e);
    if (!code && !e) code = KE_UNKNOWN_MEMBER_ID;
    if (code) {
        refuse(j, code, q.member_id);
        return;
    }
    struct kb_join in = {.member_id = q.member_id,
                         .instance_id = q.group_instance_id,
                         .protocol_type = q.protocol_type,
                         .client_id = rq->head.client_id,
                         .client_host = kb_group_host(rq),
                         .session_timeout_ms = q.session_timeout_ms,
                         .rebalance_timeout_ms = rq->head.version >= 1 ? KW_MAX(q.rebalance_timeout_ms, 0) : q.session_timeout_ms,
                         .protocols = q.protocols.v,
                         .protocol_count = q.protocols.n,
                         .id_required = rq->head.version >= 4,
                         .skips = rq->head.version >= 9};
    rq->abandon = abandon;
    kb_group_join(e->group, &in, &j->wait, rq->node->now);
}
