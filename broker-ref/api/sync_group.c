/* sync_group.c - SyncGroup v0-5. Called by dispatch; waits in group/classic_sync. KIP-345, 559. */
#include "group_api.h"

struct sync {
    struct kb_request *rq;
    struct kb_group_wait wait;
};

static void synced(struct kb_group_wait *w, const struct kb_sync_answer *a) {
    struct sync *s = w->ctx;
    struct kw_sync_group_response resp;
    kw_msg_init(&kw_sync_group_response_desc, &resp);
    resp.error_code = a->code;
    resp.protocol_type = a->protocol_type;
    resp.protocol_name = a->protocol;
    resp.assignment = a->assignment;
    kb_request_reply(s->rq, &resp);
}

static void abandon(struct kb_request *rq) {
    struct sync *s = rq->state;
    kb_group_forget(&s->wait, rq->node->now);
    kb_request_drop(rq);
}

void kb_api_sync_group(struct kb_request *rq) {
    struct kw_sync_group_request q;
    struct kb_group_entry *e = NULL;
    if (kb_request_decode(rq, &q) != KW_OK) return;
    struct sync *s = kw_arena_calloc(&rq->arena, 1, sizeof(*s));
    if (!s) {
        kb_request_close(rq, "out of memory");
        return;
    }
    s->rq = rq;
    s->wait = (struct kb_group_wait){.synced = synced, .ctx = s};
    rq->state = s;
    int16_t code = kb_coordinator_group(rq->node, q.group_id, false, &e);
    if (!code && !e) code = KE_UNKNOWN_MEMBER_ID;
    if (code) {
        struct kb_sync_answer a = {
            .code = code, .protocol_type = kw_str_null(), .protocol = kw_str_null(), .assignment = {(const uint8_t *)"", 0}};
        synced(&s->wait, &a);
        return;
    }
    struct kb_sync in = {.member_id = q.member_id,
                         .instance_id = q.group_instance_id,
                         .protocol_type = q.protocol_type,
                         .protocol = q.protocol_name,
                         .generation = q.generation_id,
                         .assignments = q.assignments.v,
                         .assignment_count = q.assignments.n};
    rq->abandon = abandon;
    kb_group_sync(e->group, &in, &s->wait, rq->node->now);
}
