/* assign_replicas_to_dirs.c - AssignReplicasToDirs v0: a broker says in which directory its replicas are, or that their logs failed. KIP-858.
 *
 * Called by dispatch, sent by replica/directories. The rules are the controller's (controller_dirs.c).
 */
#include "admin.h"

#define WAIT_MS 30000 /* the request has no timeout of its own; its sender's is shorter */

struct assignment {
    struct kw_assign_replicas_to_dirs_request req;
    struct kb_dirs_request d;
    int32_t count;
};
typedef struct kw_assign_replicas_to_dirs_request_directory_data dir_asked;
typedef struct kw_assign_replicas_to_dirs_request_topic_data topic_asked;
typedef struct kw_assign_replicas_to_dirs_response_directory_data dir_answer;
typedef struct kw_assign_replicas_to_dirs_response_topic_data topic_answer;
typedef struct kw_assign_replicas_to_dirs_response_partition_data part_answer;

/* Of the request as a whole: its sender is to find the controller, or to register anew. */
static int16_t whole_code(const struct kb_admin_wait *w, const struct assignment *g) {
    if (w->timed_out) return KE_REQUEST_TIMED_OUT;
    if (g->d.stale) return KE_STALE_BROKER_EPOCH;
    bool all = g->count > 0;
    for (int32_t i = 0; i < g->count; i++) all = all && g->d.items[i].result.code == KE_NOT_CONTROLLER;
    return all ? KE_NOT_CONTROLLER : KE_NONE;
}

static kw_err answer_topic(struct kb_request *rq, const topic_asked *t, const struct kb_dir_assign *a, topic_answer *out) {
    int32_t n = KW_MAX(t->partitions.n, 0);
    out->topic_id = t->topic_id;
    out->partitions.v = kw_arena_calloc(&rq->arena, (size_t)n + 1, sizeof(part_answer));
    if (!out->partitions.v) return KW_ENOMEM;
    for (; out->partitions.n < n; a++)
        out->partitions.v[out->partitions.n++] = (part_answer){.partition_index = a->partition, .error_code = a->result.code};
    return KW_OK;
}

static void answer(struct kb_admin_wait *w) {
    const struct assignment *g = w->items;
    struct kb_request *rq = w->rq;
    struct kw_assign_replicas_to_dirs_response res;
    kw_msg_init(&kw_assign_replicas_to_dirs_response_desc, &res);
    res.error_code = whole_code(w, g);
    int32_t n = res.error_code ? 0 : KW_MAX(g->req.directories.n, 0);
    const struct kb_dir_assign *a = g->d.items;
    res.directories.v = kw_arena_calloc(&rq->arena, (size_t)n + 1, sizeof(dir_answer));
    kw_err err = res.directories.v ? KW_OK : KW_ENOMEM;
    for (int32_t i = 0; !err && i < n; i++) {
        const dir_asked *d = &g->req.directories.v[i];
        dir_answer *out = &res.directories.v[res.directories.n++];
        int32_t m = KW_MAX(d->topics.n, 0);
        out->id = d->id;
        out->topics.v = kw_arena_calloc(&rq->arena, (size_t)m + 1, sizeof(topic_answer));
        if (!out->topics.v) err = KW_ENOMEM;
        for (int32_t j = 0; !err && j < m; j++) {
            err = answer_topic(rq, &d->topics.v[j], a, &out->topics.v[out->topics.n++]);
            a += KW_MAX(d->topics.v[j].partitions.n, 0);
        }
    }
    if (err)
        kb_admin_no_memory(rq);
    else
        kb_request_reply(rq, &res);
}

static int32_t fill(const struct assignment *g, struct kb_dir_assign *v) {
    int32_t n = 0;
    for (int32_t i = 0; i < g->req.directories.n; i++) {
        const dir_asked *d = &g->req.directories.v[i];
        for (int32_t j = 0; j < d->topics.n; j++)
            for (int32_t x = 0; x < d->topics.v[j].partitions.n; x++, n++)
                if (v)
                    v[n] = (struct kb_dir_assign){.topic_id = d->topics.v[j].topic_id,
                                                  .partition = d->topics.v[j].partitions.v[x].partition_index,
                                                  .directory = d->id};
    }
    return n;
}

void kb_api_assign_replicas_to_dirs(struct kb_request *rq) {
    struct kb_admin_wait *w = kb_admin_open(rq, sizeof(struct assignment), answer);
    if (!w) return;
    struct assignment *g = w->items;
    g->count = fill(g, NULL);
    g->d.broker = g->req.broker_id;
    g->d.broker_epoch = g->req.broker_epoch;
    g->d.items = kw_arena_calloc(&rq->arena, (size_t)g->count + 1, sizeof(*g->d.items));
    kw_err err = g->d.items ? KW_OK : KW_ENOMEM;
    if (!err) fill(g, g->d.items);
    if (!err) err = kb_controller_assign_dirs(kb_node_parts(rq->node)->controller, &g->d, g->count, &w->change, rq->arrived);
    kb_admin_wait_begin(w, err, WAIT_MS);
}
