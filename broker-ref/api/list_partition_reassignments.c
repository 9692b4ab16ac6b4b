/* list_partition_reassignments.c - ListPartitionReassignments v0: the moves under way, of the partitions named or of all. KIP-455.
 *
 * Called by dispatch. Reads the image, on the active controller only, so that what was just answered is seen.
 */
#include "admin.h"

typedef struct kw_list_partition_reassignments_response_ongoing_topic_reassignment topic_out;

static kw_err add_partition(struct kb_request *rq, const struct kb_image_topic *t, int32_t index, topic_out *out, int32_t room) {
    const struct kb_image_partition *p = &t->partitions[index];
    if (p->adding_count == 0 && p->removing_count == 0) return KW_OK;
    if (!out->partitions.v) out->partitions.v = kw_arena_calloc(&rq->arena, (size_t)room, sizeof(*out->partitions.v));
    if (!out->partitions.v) return KW_ENOMEM;
    struct kw_list_partition_reassignments_response_ongoing_partition_reassignment *o = &out->partitions.v[out->partitions.n++];
    o->partition_index = index;
    o->replicas.v = p->replicas, o->replicas.n = p->replica_count;
    o->adding_replicas.v = p->adding, o->adding_replicas.n = p->adding_count;
    o->removing_replicas.v = p->removing, o->removing_replicas.n = p->removing_count;
    return KW_OK;
}

static kw_err all(struct kb_request *rq, const struct kb_image *im, struct kw_list_partition_reassignments_response *res) {
    const struct kb_image_topic *t;
    kw_err err = KW_OK;
    res->topics.v = kw_arena_calloc(&rq->arena, im->topics_by_name.count + 1, sizeof(*res->topics.v));
    if (!res->topics.v) return KW_ENOMEM;
    for (size_t it = 0; !err && (t = kw_map_next(&im->topics_by_name, &it));) {
        topic_out *out = &res->topics.v[res->topics.n];
        for (int32_t i = 0; !err && i < t->partition_count; i++) err = add_partition(rq, t, i, out, t->partition_count);
        out->name = kw_str_of(t->name);
        if (out->partitions.n > 0) res->topics.n++;
    }
    return err;
}

static kw_err named(struct kb_request *rq, const struct kb_image *im, const struct kw_list_partition_reassignments_request *req,
                    struct kw_list_partition_reassignments_response *res) {
    kw_err err = KW_OK;
    res->topics.v = kw_arena_calloc(&rq->arena, (size_t)req->topics.n + 1, sizeof(*res->topics.v));
    if (!res->topics.v) return KW_ENOMEM;
    for (int32_t k = 0; !err && k < req->topics.n; k++) {
        const struct kb_image_topic *t = kb_image_topic(im, req->topics.v[k].name);
        int32_t n = req->topics.v[k].partition_indexes.n;
        if (!t) continue;
        topic_out *out = &res->topics.v[res->topics.n];
        for (int32_t i = 0; !err && i < n; i++) {
            int32_t index = req->topics.v[k].partition_indexes.v[i];
            if (index >= 0 && index < t->partition_count) err = add_partition(rq, t, index, out, n);
        }
        out->name = req->topics.v[k].name;
        if (out->partitions.n > 0) res->topics.n++;
    }
    return err;
}

void kb_api_list_partition_reassignments(struct kb_request *rq) {
    struct kw_list_partition_reassignments_request req;
    struct kw_list_partition_reassignments_response res;
    const struct kb_parts *p = kb_node_parts(rq->node);
    if (kb_request_decode(rq, &req)) return;
    kw_msg_init(&kw_list_partition_reassignments_response_desc, &res);
    kw_err err = KW_OK;
    if (!kb_controller_is_active(p->controller))
        res.error_code = KE_NOT_CONTROLLER;
    else
        err = req.topics.n < 0 ? all(rq, p->image, &res) : named(rq, p->image, &req, &res);
    if (err)
        kb_admin_no_memory(rq);
    else
        kb_request_reply(rq, &res);
}
