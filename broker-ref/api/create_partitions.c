/* create_partitions.c - CreatePartitions v0-3: topics get more partitions, never fewer. KIP-195. The rules are the controller's. */
#include "admin.h"

struct grow {
    struct kw_create_partitions_request req;
    struct kb_topic_grow *topics;
};

static void answer(struct kb_admin_wait *w) {
    struct grow *g = w->items;
    struct kb_request *rq = w->rq;
    struct kw_create_partitions_response res;
    kw_msg_init(&kw_create_partitions_response_desc, &res);
    res.results.v = kw_arena_calloc(&rq->arena, (size_t)g->req.topics.n + 1, sizeof(*res.results.v));
    if (!res.results.v) {
        kb_admin_no_memory(rq);
        return;
    }
    for (int32_t i = 0; i < g->req.topics.n; i++) {
        const struct kb_result *r = &g->topics[i].result;
        res.results.v[res.results.n++] = (struct kw_create_partitions_response_create_partitions_topic_result){
            .name = g->topics[i].name, .error_code = kb_admin_code(w, r), .error_message = kb_admin_text(w, r)};
    }
    kb_request_reply(rq, &res);
}

/* An assignment names brokers only; its partitions are those that follow the topic's last. */
static kw_err copy_assignments(struct kb_request *rq, const struct kw_create_partitions_request_create_partitions_topic *t,
                               struct kb_topic_grow *out) {
    out->assignment_count = -1;
    if (t->assignments.n < 0) return KW_OK;
    struct kb_assignment *v = kw_arena_calloc(&rq->arena, (size_t)t->assignments.n + 1, sizeof(*v));
    if (!v) return KW_ENOMEM;
    const struct kb_image_topic *known = kb_image_topic(kb_node_parts(rq->node)->image, t->name);
    for (int32_t i = 0; i < t->assignments.n; i++) {
        v[i].index = (known ? known->partition_count : 0) + i;
        v[i].brokers = t->assignments.v[i].broker_ids.v;
        v[i].count = t->assignments.v[i].broker_ids.n;
    }
    out->assignments = v;
    out->assignment_count = t->assignments.n;
    return KW_OK;
}

void kb_api_create_partitions(struct kb_request *rq) {
    struct grow *g = kw_arena_alloc(&rq->arena, sizeof(*g));
    if (!g) {
        kb_admin_no_memory(rq);
        return;
    }
    if (kb_request_decode(rq, &g->req)) return;
    int32_t n = g->req.topics.n = KW_MAX(g->req.topics.n, 0);
    g->topics = kw_arena_calloc(&rq->arena, (size_t)n + 1, sizeof(*g->topics));
    struct kb_admin_wait *w = kb_admin_wait_new(rq, g, answer);
    kw_err err = g->topics && w ? KW_OK : KW_ENOMEM;
    for (int32_t i = 0; !err && i < n; i++) {
        const struct kw_create_partitions_request_create_partitions_topic *t = &g->req.topics.v[i];
        g->topics[i].name = t->name;
        g->topics[i].total = t->count;
        err = copy_assignments(rq, t, &g->topics[i]);
    }
    if (err) {
        kb_admin_no_memory(rq);
        return;
    }
    err = kb_controller_grow_topics(kb_node_parts(rq->node)->controller, g->topics, n, g->req.validate_only, &w->change, rq->arrived);
    kb_admin_wait_begin(w, err, g->req.timeout_ms);
}
