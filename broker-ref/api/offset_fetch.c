/* offset_fetch.c - OffsetFetch v1-10: the positions that groups have stored; one group (up to v7) or many. Called by dispatch. Calls
 * group/coordinator. KIP-447 (requireStable: nothing is ever unstable here yet), 709.
 *
 * No position: offset -1, without an error. One that was stored for an earlier topic of the name is none.
 */
#include "group_api.h"

/* The forms of the two halves of the API differ in names alone; the newer one is filled, and the older taken from it. */
typedef struct kw_offset_fetch_request_group asked_group;
typedef struct kw_offset_fetch_response_group group_answer;
typedef struct kw_offset_fetch_response_topics topic_answer;
typedef struct kw_offset_fetch_response_partitions part_answer;

struct fetch {
    struct kb_request *rq;
    struct kw_offset_fetch_request req;
    struct kw_offset_fetch_response resp;
    bool by_id;
};

static const struct kb_image_topic *topic_of(struct fetch *f, struct kw_str name, struct kw_uuid id) {
    const struct kb_image *im = &f->rq->node->image;
    return f->by_id ? kb_image_topic_by_id(im, id) : kb_image_topic(im, name);
}

static void fill(part_answer *a, int32_t partition, const struct kb_offset *v, const struct kb_image_topic *t) {
    *a = (part_answer){.partition_index = partition, .committed_offset = -1, .committed_leader_epoch = -1, .metadata = kw_str_of("")};
    if (!v || (t && !kw_uuid_is_zero(v->topic_id) && !kw_uuid_eq(v->topic_id, t->id))) return;
    a->committed_offset = v->offset;
    a->committed_leader_epoch = v->leader_epoch;
    a->metadata = (struct kw_str){v->metadata ? v->metadata : "", v->metadata_size};
}

static kw_err fill_asked(struct fetch *f, const struct kb_group_entry *e, const asked_group *q, int16_t code, group_answer *a) {
    a->topics.v = kw_arena_calloc(&f->rq->arena, (size_t)q->topics.n, sizeof(topic_answer));
    if (!a->topics.v) return KW_ENOMEM;
    for (int32_t i = 0; i < q->topics.n; i++) {
        topic_answer *t = &a->topics.v[a->topics.n++];
        const struct kb_image_topic *topic = topic_of(f, q->topics.v[i].name, q->topics.v[i].topic_id);
        struct kw_str name = f->by_id && topic ? kw_str_of(topic->name) : q->topics.v[i].name;
        t->name = q->topics.v[i].name;
        t->topic_id = q->topics.v[i].topic_id;
        t->partitions.v = kw_arena_calloc(&f->rq->arena, (size_t)q->topics.v[i].partition_indexes.n, sizeof(part_answer));
        if (!t->partitions.v) return KW_ENOMEM;
        for (int32_t k = 0; k < q->topics.v[i].partition_indexes.n; k++) {
            part_answer *p = &t->partitions.v[t->partitions.n++];
            int32_t index = q->topics.v[i].partition_indexes.v[k];
            bool unknown = f->by_id && !topic;
            fill(p, index, e && !code && !unknown ? kb_committed_get(&e->offsets, name, index) : NULL, topic);
            p->error_code = code ? code : unknown ? KE_UNKNOWN_TOPIC_ID : KE_NONE;
        }
    }
    return KW_OK;
}

static kw_err fill_all(struct fetch *f, const struct kb_group_entry *e, group_answer *a) {
    struct kb_offset_entry *o;
    topic_answer *t = NULL;
    const struct kb_image_topic *topic = NULL;
    if (!e) return KW_OK;
    a->topics.v = kw_arena_calloc(&f->rq->arena, e->offsets.topics.count, sizeof(topic_answer));
    if (!a->topics.v) return KW_ENOMEM;
    const struct kb_offset_topic *at = NULL;
    for (struct kb_committed_walk w = {0}; (o = kb_committed_next(&e->offsets, &w));) {
        if (o->log_offset < 0) continue;
        if (o->topic != at) {
            at = o->topic;
            struct kw_str name = {at->name, at->len};
            topic = kb_image_topic(&f->rq->node->image, name);
            t = f->by_id && !topic ? NULL : &a->topics.v[a->topics.n++];
            if (!t) continue;
            t->name = name;
            if (topic) t->topic_id = topic->id;
            t->partitions.v = kw_arena_calloc(&f->rq->arena, at->partitions.count, sizeof(part_answer));
            if (!t->partitions.v) return KW_ENOMEM;
        }
        if (t) fill(&t->partitions.v[t->partitions.n++], o->partition, &o->stored, topic);
    }
    return KW_OK;
}

static kw_err fill_group(struct fetch *f, const asked_group *q, group_answer *a) {
    struct kb_group_entry *e = NULL;
    a->group_id = q->group_id;
    a->error_code = kb_coordinator_group(f->rq->node, q->group_id, false, &e);
    if (q->topics.n < 0) return a->error_code ? KW_OK : fill_all(f, e, a);
    return f->rq->head.version >= 8 && a->error_code ? KW_OK : fill_asked(f, e, q, f->rq->head.version < 2 ? a->error_code : KE_NONE, a);
}

/* Up to v7: one group, in other words. */
static kw_err as_one_group(struct fetch *f) {
    asked_group q = {.group_id = f->req.group_id, .topics = {NULL, f->req.topics.n}};
    group_answer a = {0};
    q.topics.v = kw_arena_calloc(&f->rq->arena, (size_t)KW_MAX(f->req.topics.n, 0), sizeof(*q.topics.v));
    if (!q.topics.v && f->req.topics.n > 0) return KW_ENOMEM;
    for (int32_t i = 0; i < f->req.topics.n; i++) {
        q.topics.v[i].name = f->req.topics.v[i].name;
        q.topics.v[i].partition_indexes.v = f->req.topics.v[i].partition_indexes.v;
        q.topics.v[i].partition_indexes.n = f->req.topics.v[i].partition_indexes.n;
    }
    if (fill_group(f, &q, &a)) return KW_ENOMEM;
    f->resp.error_code = a.error_code;
    f->resp.topics.v = kw_arena_calloc(&f->rq->arena, (size_t)a.topics.n, sizeof(*f->resp.topics.v));
    if (!f->resp.topics.v) return KW_ENOMEM;
    for (int32_t i = 0; i < a.topics.n; i++) {
        struct kw_offset_fetch_response_topic *t = &f->resp.topics.v[f->resp.topics.n++];
        t->name = a.topics.v[i].name;
        t->partitions.v = kw_arena_calloc(&f->rq->arena, (size_t)a.topics.v[i].partitions.n, sizeof(*t->partitions.v));
        if (!t->partitions.v) return KW_ENOMEM;
        for (int32_t k = 0; k < a.topics.v[i].partitions.n; k++) {
            const part_answer *p = &a.topics.v[i].partitions.v[k];
            t->partitions.v[t->partitions.n++] =
                (struct kw_offset_fetch_response_partition){.partition_index = p->partition_index,
                                                            .committed_offset = p->committed_offset,
                                                            .committed_leader_epoch = p->committed_leader_epoch,
                                                            .metadata = p->metadata,
                                                            .error_code = p->error_code};
        }
    }
    return KW_OK;
}

static kw_err as_groups(struct fetch *f) {
    f->resp.groups.v = kw_arena_calloc(&f->rq->arena, (size_t)f->req.groups.n, sizeof(group_answer));
    if (!f->resp.groups.v) return KW_ENOMEM;
    for (int32_t i = 0; i < f->req.groups.n; i++)
        if (fill_group(f, &f->req.groups.v[i], &f->resp.groups.v[f->resp.groups.n++])) return KW_ENOMEM;
    return KW_OK;
}

void kb_api_offset_fetch(struct kb_request *rq) {
    struct fetch f = {.rq = rq, .by_id = rq->head.version >= 10};
    if (kb_request_decode(rq, &f.req) != KW_OK) return;
    kw_msg_init(&kw_offset_fetch_response_desc, &f.resp);
    if (rq->head.version >= 8 ? as_groups(&f) : as_one_group(&f))
        kb_request_close(rq, "out of memory");
    else
        kb_request_reply(rq, &f.resp);
}
