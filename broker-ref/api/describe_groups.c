/* describe_groups.c - DescribeGroups v0-6. Called by dispatch. Calls group/coordinator. KIP-345, 430, 1043 (v6: GROUP_ID_NOT_FOUND for
 * state Dead). */
#include "group_api.h"

enum { GROUP_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 /* read, delete, describe: KIP-430 */ };

static kw_err fill(struct kb_request *rq, const struct kb_group *g, struct kw_describe_groups_response_described_group *a) {
    struct kw_str protocol = kb_group_protocol(g);
    a->group_state = kw_str_of(kb_group_state_text(kb_group_state(g)));
    a->protocol_type = kb_group_protocol_type(g);
    if (kb_group_state(g) == KB_GROUP_STABLE && protocol.len > 0) a->protocol_data = protocol;
    a->members.v = kw_arena_calloc(&rq->arena, (size_t)kb_group_size(g), sizeof(*a->members.v));
    if (!a->members.v) return KW_ENOMEM;
    for (const struct kb_member *m = NULL; (m = kb_group_next(g, m));) {
        struct kb_member_view v;
        bool stable = kb_group_state(g) == KB_GROUP_STABLE; /* before, what they say and have is in flux */
        kb_member_view(g, m, &v);
        a->members.v[a->members.n++] = (struct kw_describe_groups_response_described_group_member){
            .member_id = v.id,
            .group_instance_id = v.instance_id,
            .client_id = v.client_id,
            .client_host = v.client_host,
            .member_metadata = stable ? v.metadata : (struct kw_bytes){(const uint8_t *)"", 0},
            .member_assignment = stable ? v.assignment : (struct kw_bytes){(const uint8_t *)"", 0}};
    }
    return KW_OK;
}

void kb_api_describe_groups(struct kb_request *rq) {
    struct kw_describe_groups_request q;
    struct kw_describe_groups_response resp;
    if (kb_request_decode(rq, &q) != KW_OK) return;
    kw_msg_init(&kw_describe_groups_response_desc, &resp);
    resp.groups.v = kw_arena_calloc(&rq->arena, (size_t)q.groups.n, sizeof(*resp.groups.v));
    bool ok = resp.groups.v;
    for (int32_t i = 0; ok && i < q.groups.n; i++) {
        struct kb_group_entry *e = NULL;
        struct kw_describe_groups_response_described_group *a = &resp.groups.v[resp.groups.n++];
        *a = (struct kw_describe_groups_response_described_group){.group_id = q.groups.v[i],
                                                                  .error_message = kw_str_null(),
                                                                  .group_state = kw_str_of(""),
                                                                  .protocol_type = kw_str_of(""),
                                                                  .protocol_data = kw_str_of(""),
                                                                  .authorized_operations =
                                                                      q.include_authorized_operations ? GROUP_OPERATIONS : INT32_MIN};
        a->error_code = kb_coordinator_group(rq->node, q.groups.v[i], false, &e);
        if (a->error_code) continue;
        if (e) {
            ok = fill(rq, e->group, a) == KW_OK;
        } else {
            a->group_state = kw_str_of("Dead");
            if (rq->head.version < 6) continue;
            a->error_code = KE_GROUP_ID_NOT_FOUND;
            a->error_message = kw_str_of("there is no such group");
        }
    }
    if (ok)
        kb_request_reply(rq, &resp);
    else
        kb_request_close(rq, "out of memory");
}
