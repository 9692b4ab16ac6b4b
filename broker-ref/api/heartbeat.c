/* heartbeat.c - Heartbeat v0-4. Called by dispatch. Calls group/classic_sync. */
#include "group_api.h"

void kb_api_heartbeat(struct kb_request *rq) {
    struct kw_heartbeat_request q;
    struct kw_heartbeat_response resp;
    struct kb_group_entry *e = NULL;
    if (kb_request_decode(rq, &q) != KW_OK) return;
    kw_msg_init(&kw_heartbeat_response_desc, &resp);
    resp.error_code = kb_coordinator_group(rq->node, q.group_id, false, &e);
    /* While it is being read, a member need not fear anything, nor look for another coordinator. */
    if (resp.error_code == KE_COORDINATOR_LOAD_IN_PROGRESS)
        resp.error_code = KE_NONE;
    else if (!resp.error_code)
        resp.error_code =
            e ? kb_group_heartbeat(e->group, q.member_id, q.group_instance_id, q.generation_id, rq->node->now) : KE_UNKNOWN_MEMBER_ID;
    kb_request_reply(rq, &resp);
}
