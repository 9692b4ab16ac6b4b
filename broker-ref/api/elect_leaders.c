/* elect_leaders.c - ElectLeaders v0-2: the preferred replicas shall lead, or (v1) any that is alive. Without a list: all that need it. KIP-183, 460.
 *
 * Called by dispatch. The rules are the controller's (controller_elect.c), which is asked for one slice after the other: however many partitions there
 * are, others' requests come in between, and what is under way at a time is bounded.
 */
#include "admin.h"

enum { SLICE_MAX = 1000 };

struct election {
    struct kw_elect_leaders_request req;
    struct kb_leader_elect *v;
    int32_t count, done, asked; /* the slice under way is [done, asked) */
    void (*all_done)(struct kb_change *c, struct kb_now now);
};

static bool is_active(struct kb_request *rq) {
    return kb_controller_is_active(kb_node_parts(rq->node)->controller);
}

/* Items of one topic follow each other. */
static int32_t topic_run(const struct election *g, int32_t from) {
    int32_t to = from + 1;
    while (to < g->count && kw_str_eq(g->v[to].topic, g->v[from].topic)) to++;
    return to - from;
}

static void answer(struct kb_admin_wait *w) {
    const struct election *g = w->items;
    struct kb_request *rq = w->rq;
    struct kw_elect_leaders_response res;
    kw_msg_init(&kw_elect_leaders_response_desc, &res);
    bool elsewhere = !is_active(rq) && rq->head.version >= 1; /* before, each partition says it */
    if (elsewhere) res.error_code = KE_NOT_CONTROLLER;
    int32_t count = elsewhere ? 0 : g->count;
    res.replica_election_results.v = kw_arena_calloc(&rq->arena, (size_t)count + 1, sizeof(*res.replica_election_results.v));
    kw_err err = res.replica_election_results.v ? KW_OK : KW_ENOMEM;
    for (int32_t i = 0, n; !err && i < count; i += n) {
        struct kw_elect_leaders_response_replica_election_result *out = &res.replica_election_results.v[res.replica_election_results.n++];
        n = topic_run(g, i);
        out->topic = g->v[i].topic;
        out->partition_result.v = kw_arena_calloc(&rq->arena, (size_t)n, sizeof(*out->partition_result.v));
        if (!out->partition_result.v) err = KW_ENOMEM;
        for (int32_t j = 0; !err && j < n; j++) {
            struct kw_elect_leaders_response_partition_result *p = &out->partition_result.v[out->partition_result.n++];
            p->partition_id = g->v[i + j].partition;
            const struct kb_result *r = &g->v[i + j].result;
            p->error_code = i + j < g->done ? r->code : kb_admin_code(w, r); /* what was done before the time was up is told */
            p->error_message = i + j < g->done ? (r->code ? kw_str_of(r->text) : kw_str_null()) : kb_admin_text(w, r);
        }
    }
    if (err)
        kb_admin_no_memory(rq);
    else
        kb_request_reply(rq, &res);
}

static kw_err copy_named(struct kb_request *rq, struct election *g) {
    for (int32_t i = 0; i < g->req.topic_partitions.n; i++) g->count += KW_MAX(g->req.topic_partitions.v[i].partitions.n, 0);
    g->v = kw_arena_calloc(&rq->arena, (size_t)g->count + 1, sizeof(*g->v));
    if (!g->v) return KW_ENOMEM;
    int32_t n = 0;
    for (int32_t i = 0; i < g->req.topic_partitions.n; i++)
        for (int32_t j = 0; j < g->req.topic_partitions.v[i].partitions.n; j++)
            g->v[n++] = (struct kb_leader_elect){.topic = g->req.topic_partitions.v[i].topic,
                                                 .partition = g->req.topic_partitions.v[i].partitions.v[j],
                                                 .type = g->req.election_type};
    return KW_OK;
}

static bool needs(const struct kb_image_partition *p, int8_t type) {
    return p->replica_count > 0 && (type == KB_ELECT_PREFERRED ? p->leader != p->replicas[0] : p->leader < 0);
}

/* The names are copied: a topic may go while the request waits. */
static kw_err copy_all(struct kb_request *rq, struct election *g) {
    const struct kb_image *im = kb_node_parts(rq->node)->image;
    const struct kb_image_topic *t;
    int32_t cap = 0;
    for (size_t it = 0; (t = kw_map_next(&im->topics_by_name, &it));)
        for (int32_t i = 0; i < t->partition_count; i++) cap += needs(&t->partitions[i], g->req.election_type);
    g->v = kw_arena_calloc(&rq->arena, (size_t)cap + 1, sizeof(*g->v));
    if (!g->v) return KW_ENOMEM;
    for (size_t it = 0; (t = kw_map_next(&im->topics_by_name, &it));) {
        struct kw_str name = kw_str_null();
        for (int32_t i = 0; i < t->partition_count && g->count < cap; i++) {
            if (!needs(&t->partitions[i], g->req.election_type)) continue;
            if (name.len < 0) {
                size_t n = strlen(t->name);
                name = (struct kw_str){kw_arena_dup(&rq->arena, t->name, n + 1), (int32_t)n};
                if (!name.p) return KW_ENOMEM;
            }
            g->v[g->count++] = (struct kb_leader_elect){.topic = name, .partition = i, .type = g->req.election_type};
        }
    }
    return KW_OK;
}

static kw_err next_slice(struct kb_admin_wait *w, struct kb_now now) {
    struct election *g = w->items;
    g->asked = KW_MIN(g->count, g->done + SLICE_MAX);
    return kb_controller_elect_leaders(kb_node_parts(w->rq->node)->controller, g->v + g->done, g->asked - g->done, &w->change, now);
}

static void slice_done(struct kb_change *c, struct kb_now now) {
    struct kb_admin_wait *w = c->ctx;
    struct election *g = w->items;
    g->done = g->asked;
    if (g->done < g->count && next_slice(w, now) == KW_OK) return;
    for (; g->done < g->count; g->done++)
        g->v[g->done].result = (struct kb_result){KE_UNKNOWN_SERVER_ERROR, "the node is out of memory: try again later"};
    g->all_done(c, now);
}

static void refuse(struct kb_request *rq, int16_t code) {
    struct kw_elect_leaders_response res;
    kw_msg_init(&kw_elect_leaders_response_desc, &res);
    res.error_code = code;
    kb_request_reply(rq, &res);
}

void kb_api_elect_leaders(struct kb_request *rq) {
    struct election *g = kw_arena_calloc(&rq->arena, 1, sizeof(*g));
    if (!g) {
        kb_admin_no_memory(rq);
        return;
    }
    if (kb_request_decode(rq, &g->req)) return;
    if (!is_active(rq) && rq->head.version >= 1) {
        refuse(rq, KE_NOT_CONTROLLER);
        return;
    }
    if (g->req.election_type != KB_ELECT_PREFERRED && g->req.election_type != KB_ELECT_UNCLEAN) {
        refuse(rq, KE_INVALID_REQUEST);
        return;
    }
    struct kb_admin_wait *w = kb_admin_wait_new(rq, g, answer);
    if (!w || (g->req.topic_partitions.n < 0 ? copy_all(rq, g) : copy_named(rq, g))) {
        kb_admin_no_memory(rq);
        return;
    }
    g->all_done = w->change.done;
    w->change.done = slice_done;
    kb_admin_wait_begin(w, next_slice(w, rq->arrived), g->req.timeout_ms);
}
