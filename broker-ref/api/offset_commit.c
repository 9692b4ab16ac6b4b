/* offset_commit.c - OffsetCommit v2-10: a group's positions are stored by its coordinator. Called by dispatch. Calls group/coordinator.
 *
 * From v10 topics are named by id. What the group says of one partition does not hinder the others; what is stored is stored together.
 */
#include "group_api.h"

typedef struct kw_offset_commit_response_topic topic_answer;
typedef struct kw_offset_commit_response_partition part_answer;

struct commit {
    struct kb_request *rq;
    struct kw_offset_commit_request req;
    struct kw_offset_commit_response resp;
    struct kb_commit *pending;
};

static void set_all(struct commit *c, int16_t code, bool over_good_ones_only) {
    for (int32_t i = 0; i < c->resp.topics.n; i++)
        for (int32_t k = 0; k < c->resp.topics.v[i].partitions.n; k++) {
            part_answer *a = &c->resp.topics.v[i].partitions.v[k];
            if (!over_good_ones_only || a->error_code == KE_NONE) a->error_code = code;
        }
}

static void done(void *ctx, int16_t code, struct kb_now now) {
    struct commit *c = ctx;
    (void)now;
    c->pending = NULL;
    c->rq->abandon = NULL;
    if (code) set_all(c, code, true);
    kb_request_reply(c->rq, &c->resp);
}

static void abandon(struct kb_request *rq) {
    struct commit *c = rq->state;
    kb_commit_forget(c->pending);
    kb_request_drop(rq);
}

static kw_err prepare(struct commit *c) {
    struct kb_request *rq = c->rq;
    kw_msg_init(&kw_offset_commit_response_desc, &c->resp);
    c->resp.topics.v = kw_arena_calloc(&rq->arena, (size_t)c->req.topics.n, sizeof(topic_answer));
    if (!c->resp.topics.v) return KW_ENOMEM;
    for (int32_t i = 0; i < c->req.topics.n; i++) {
        const struct kw_offset_commit_request_topic *t = &c->req.topics.v[i];
        topic_answer *a = &c->resp.topics.v[c->resp.topics.n++];
        a->name = t->name;
        a->topic_id = t->topic_id;
        a->partitions.v = kw_arena_calloc(&rq->arena, (size_t)t->partitions.n, sizeof(part_answer));
        if (!a->partitions.v) return KW_ENOMEM;
        for (int32_t k = 0; k < t->partitions.n; k++)
            a->partitions.v[a->partitions.n++].partition_index = t->partitions.v[k].partition_index;
    }
    return KW_OK;
}

static int64_t expiry(int64_t wall_ms, int64_t retention_ms) {
    if (retention_ms < 0) return -1;
    return retention_ms > INT64_MAX - wall_ms ? INT64_MAX : wall_ms + retention_ms;
}

/* The items to be stored; of the others the answers say why not. */
static size_t collect(struct commit *c, struct kb_commit_item *items) {
    struct kb_node *n = c->rq->node;
    int64_t metadata_max = kb_config_int(n->parts.config, "offset.metadata.max.bytes");
    size_t count = 0;
    for (int32_t i = 0; i < c->req.topics.n; i++) {
        const struct kw_offset_commit_request_topic *t = &c->req.topics.v[i];
        bool by_id = c->rq->head.version >= 10;
        const struct kb_image_topic *topic = by_id ? kb_image_topic_by_id(&n->image, t->topic_id) : kb_image_topic(&n->image, t->name);
        for (int32_t k = 0; k < t->partitions.n; k++) {
            const struct kw_offset_commit_request_partition *p = &t->partitions.v[k];
            part_answer *a = &c->resp.topics.v[i].partitions.v[k];
            if (!topic || p->partition_index < 0 || p->partition_index >= topic->partition_count)
                a->error_code = !topic && by_id ? KE_UNKNOWN_TOPIC_ID : KE_UNKNOWN_TOPIC_OR_PARTITION;
            else if (p->committed_metadata.len > metadata_max)
                a->error_code = KE_OFFSET_METADATA_TOO_LARGE;
            if (a->error_code) continue;
            items[count++] = (struct kb_commit_item){.topic = kw_str_of(topic->name),
                                                     .partition = p->partition_index,
                                                     .v = {.offset = p->committed_offset,
                                                           .leader_epoch = p->committed_leader_epoch,
                                                           .topic_id = topic->id,
                                                           .commit_ms = n->now.wall_ms,
                                                           .expire_ms = expiry(n->now.wall_ms, c->req.retention_time_ms),
                                                           .metadata = (char *)(uintptr_t)p->committed_metadata.p,
                                                           .metadata_size = KW_MAX(p->committed_metadata.len, 0)}};
        }
    }
    return count;
}

static int16_t may_commit(struct commit *c, struct kb_group_entry **e) {
    const struct kw_offset_commit_request *q = &c->req;
    int16_t code = kb_coordinator_group(c->rq->node, q->group_id, q->generation_id_or_member_epoch < 0, e);
    if (code) return code;
    if (!*e) return KE_ILLEGAL_GENERATION;
    return kb_group_may_commit((*e)->group, q->member_id, q->group_instance_id, q->generation_id_or_member_epoch, c->rq->node->now);
}

void kb_api_offset_commit(struct kb_request *rq) {
    struct commit *c = kw_arena_calloc(&rq->arena, 1, sizeof(*c));
    struct kb_group_entry *e = NULL;
    if (!c) {
        kb_request_close(rq, "out of memory");
        return;
    }
    c->rq = rq;
    if (kb_request_decode(rq, &c->req) != KW_OK) return;
    size_t count = 0;
    for (int32_t i = 0; i < c->req.topics.n; i++) count += (size_t)c->req.topics.v[i].partitions.n;
    struct kb_commit_item *items = kw_arena_alloc(&rq->arena, (count + 1) * sizeof(*items));
    if (!items || prepare(c)) {
        kb_request_close(rq, "out of memory");
        return;
    }
    int16_t code = may_commit(c, &e);
    count = code ? 0 : collect(c, items);
    if (!code && count > 0) code = kb_coordinator_commit(e, items, count, done, c, rq->node->now, &c->pending);
    if (code) set_all(c, code, e && count > 0);
    if (code || count == 0) {
        kb_request_reply(rq, &c->resp);
        return;
    }
    rq->state = c;
    rq->abandon = abandon;
}
