/* list_groups.c - ListGroups v0-5: the groups that this node coordinates. Called by dispatch. Calls group/coordinator. KIP-518 (states),
 * 848 (types). */
#include <strings.h>

#include "group_api.h"

struct list {
    struct kb_request *rq;
    struct kw_list_groups_request req;
    struct kw_list_groups_response resp;
    size_t count;
};

/* Names of states and types are compared without regard to case, as Apache Kafka does. */
static bool is_wanted(const struct kw_str *v, int32_t n, const char *name) {
    size_t len = strlen(name);
    for (int32_t i = 0; i < n; i++)
        if (v[i].len == (int32_t)len && strncasecmp(v[i].p, name, len) == 0) return true;
    return n <= 0;
}

static bool wanted(const struct list *l, const struct kb_group_entry *e) {
    return is_wanted(l->req.states_filter.v, l->req.states_filter.n, kb_group_state_text(kb_group_state(e->group))) &&
           is_wanted(l->req.types_filter.v, l->req.types_filter.n, "classic");
}

static void count(void *ctx, struct kb_group_entry *e) {
    struct list *l = ctx;
    l->count += wanted(l, e);
}

static void add(void *ctx, struct kb_group_entry *e) {
    struct list *l = ctx;
    if (!wanted(l, e)) return;
    l->resp.groups.v[l->resp.groups.n++] =
        (struct kw_list_groups_response_listed_group){.group_id = kb_group_id(e->group),
                                                      .protocol_type = kb_group_protocol_type(e->group),
                                                      .group_state = kw_str_of(kb_group_state_text(kb_group_state(e->group))),
                                                      .group_type = kw_str_of("classic")};
}

void kb_api_list_groups(struct kb_request *rq) {
    struct list l = {.rq = rq};
    if (kb_request_decode(rq, &l.req) != KW_OK) return;
    kw_msg_init(&kw_list_groups_response_desc, &l.resp);
    (void)kb_coordinator_each(rq->node, count, &l);
    l.resp.groups.v = kw_arena_calloc(&rq->arena, l.count, sizeof(*l.resp.groups.v));
    if (!l.resp.groups.v) {
        kb_request_close(rq, "out of memory");
        return;
    }
    l.resp.error_code = kb_coordinator_each(rq->node, add, &l);
    kb_request_reply(rq, &l.resp);
}
