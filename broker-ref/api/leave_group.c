/* leave_group.c - LeaveGroup v0-5: one member (v0-2), or many, static ones by their instance's id, too. Called by dispatch. KIP-345, 800.
 */
#include "group_api.h"

static int16_t leave(struct kb_group_entry *e, struct kw_str member_id, struct kw_str instance_id, struct kw_str reason,
                     struct kb_now now) {
    return e ? kb_group_leave(e->group, member_id, instance_id, reason, now) : KE_UNKNOWN_MEMBER_ID;
}

void kb_api_leave_group(struct kb_request *rq) {
    struct kw_leave_group_request q;
    struct kw_leave_group_response resp;
    struct kb_group_entry *e = NULL;
    struct kb_now now = rq->node->now;
    if (kb_request_decode(rq, &q) != KW_OK) return;
    kw_msg_init(&kw_leave_group_response_desc, &resp);
    resp.error_code = kb_coordinator_group(rq->node, q.group_id, false, &e);
    if (resp.error_code || rq->head.version <= 2) {
        if (!resp.error_code) resp.error_code = leave(e, q.member_id, kw_str_null(), kw_str_null(), now);
        kb_request_reply(rq, &resp);
        return;
    }
    resp.members.v = kw_arena_calloc(&rq->arena, (size_t)q.members.n, sizeof(*resp.members.v));
    if (!resp.members.v) {
        kb_request_close(rq, "out of memory");
        return;
    }
    for (int32_t i = 0; i < q.members.n; i++) {
        const struct kw_leave_group_request_member_identity *m = &q.members.v[i];
        resp.members.v[resp.members.n++] =
            (struct kw_leave_group_response_member_response){.member_id = m->member_id,
                                                             .group_instance_id = m->group_instance_id,
                                                             .error_code = leave(e, m->member_id, m->group_instance_id, m->reason, now)};
    }
    kb_request_reply(rq, &resp);
}
