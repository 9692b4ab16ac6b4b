/* offset_delete.c - OffsetDelete v0: forgets positions in topics that no member consumes. Called by dispatch. Calls group/coordinator.
 * KIP-496. */
#include "group_api.h"

struct delete_ {
    struct kb_request *rq;
    struct kw_offset_delete_request req;
    struct kw_offset_delete_response resp;
    struct kb_group_entry *e;
    struct kb_commit *pending;
};

static void set_good_ones(struct delete_ *d, int16_t code) {
    for (int32_t i = 0; i < d->resp.topics.n; i++)
        for (int32_t k = 0; k < d->resp.topics.v[i].partitions.n; k++)
            if (d->resp.topics.v[i].partitions.v[k].error_code == KE_NONE) d->resp.topics.v[i].partitions.v[k].error_code = code;
}

static void done(void *ctx, int16_t code, struct kb_now now) {
    struct delete_ *d = ctx;
    (void)now;
    d->pending = NULL;
    d->rq->abandon = NULL;
    if (code) set_good_ones(d, code);
    kb_request_reply(d->rq, &d->resp);
}

static void abandon(struct kb_request *rq) {
    struct delete_ *d = rq->state;
    kb_commit_forget(d->pending);
    kb_request_drop(rq);
}

static kw_err prepare(struct delete_ *d) {
    const struct kb_image *im = &d->rq->node->image;
    d->resp.topics.v = kw_arena_calloc(&d->rq->arena, (size_t)d->req.topics.n, sizeof(*d->resp.topics.v));
    if (!d->resp.topics.v) return KW_ENOMEM;
    for (int32_t i = 0; i < d->req.topics.n; i++) {
        const struct kw_offset_delete_request_topic *t = &d->req.topics.v[i];
        struct kw_offset_delete_response_topic *a = &d->resp.topics.v[d->resp.topics.n++];
        const struct kb_image_topic *topic = kb_image_topic(im, t->name);
        bool consumed = kb_group_subscribes(d->e->group, t->name);
        a->name = t->name;
        a->partitions.v = kw_arena_calloc(&d->rq->arena, (size_t)t->partitions.n, sizeof(*a->partitions.v));
        if (!a->partitions.v) return KW_ENOMEM;
        for (int32_t k = 0; k < t->partitions.n; k++) {
            int32_t index = t->partitions.v[k].partition_index;
            bool known = topic && index >= 0 && index < topic->partition_count;
            a->partitions.v[k].partition_index = index;
            a->partitions.v[k].error_code = consumed ? KE_GROUP_SUBSCRIBED_TO_TOPIC : known ? KE_NONE : KE_UNKNOWN_TOPIC_OR_PARTITION;
            a->partitions.n++;
        }
    }
    return KW_OK;
}

static bool is_asked(void *arg, const struct kb_offset_entry *o) {
    const struct delete_ *d = arg;
    for (int32_t i = 0; i < d->resp.topics.n; i++) {
        if (!kw_str_eq(d->resp.topics.v[i].name, (struct kw_str){o->topic->name, o->topic->len})) continue;
        for (int32_t k = 0; k < d->resp.topics.v[i].partitions.n; k++)
            if (d->resp.topics.v[i].partitions.v[k].partition_index == o->partition)
                return d->resp.topics.v[i].partitions.v[k].error_code == KE_NONE;
    }
    return false;
}

/* Of a group in use only where it is known what its members consume. */
static int16_t may_delete(struct delete_ *d) {
    int16_t code = kb_coordinator_group(d->rq->node, d->req.group_id, false, &d->e);
    if (code) return code;
    if (!d->e) return KE_GROUP_ID_NOT_FOUND;
    bool consumers = kw_str_eq(kb_group_protocol_type(d->e->group), kw_str_of("consumer"));
    return kb_group_state(d->e->group) == KB_GROUP_EMPTY || consumers ? KE_NONE : KE_NON_EMPTY_GROUP;
}

void kb_api_offset_delete(struct kb_request *rq) {
    struct delete_ *d = kw_arena_calloc(&rq->arena, 1, sizeof(*d));
    if (!d) {
        kb_request_close(rq, "out of memory");
        return;
    }
    d->rq = rq;
    if (kb_request_decode(rq, &d->req) != KW_OK) return;
    kw_msg_init(&kw_offset_delete_response_desc, &d->resp);
    d->resp.error_code = may_delete(d);
    if (!d->resp.error_code && prepare(d)) {
        kb_request_close(rq, "out of memory");
        return;
    }
    int16_t code =
        d->resp.error_code ? KE_NONE : kb_coordinator_remove(d->e, is_asked, d, SIZE_MAX, false, done, d, rq->node->now, &d->pending);
    if (code) set_good_ones(d, code);
    if (!d->pending) {
        kb_request_reply(rq, &d->resp);
        return;
    }
    rq->state = d;
    rq->abandon = abandon;
}
