/* describe_topic_partitions.c - DescribeTopicPartitions v0: topics in order of their names, page by page. KIP-966.
 *
 * A page ends at the asked number of partitions, at most PAGE_MAX; the cursor says where the next begins.
 */
#include <stdlib.h>

#include "admin.h"

#define PAGE_MAX 2000 /* Kafka's max.request.partition.size.limit */

struct page {
    struct kb_request *rq;
    struct kw_describe_topic_partitions_request req;
    struct kw_describe_topic_partitions_response res;
    struct kw_str *names;
    size_t name_count;
    int32_t left;
};

static int by_name(const void *a, const void *b) {
    const struct kw_str *x = a, *y = b;
    int c = memcmp(x->p, y->p, (size_t)KW_MIN(x->len, y->len));
    return c ? c : (x->len > y->len) - (x->len < y->len);
}

/* Sorted, each once, from the cursor's topic on. */
static kw_err collect_names(struct page *p) {
    struct kb_image *im = kb_node_parts(p->rq->node)->image;
    bool all = p->req.topics.n <= 0;
    size_t count = all ? im->topics_by_name.count : (size_t)p->req.topics.n, n = 0;
    p->names = kw_arena_alloc(&p->rq->arena, (count + 1) * sizeof(*p->names));
    if (!p->names) return KW_ENOMEM;
    struct kb_image_topic *t;
    for (size_t it = 0; all && (t = kw_map_next(&im->topics_by_name, &it));) p->names[n++] = kw_str_of(t->name);
    for (int32_t i = 0; !all && i < p->req.topics.n; i++) p->names[n++] = p->req.topics.v[i].name;
    qsort(p->names, n, sizeof(*p->names), by_name);
    for (size_t i = 0; i < n; i++) {
        if (p->name_count && kw_str_eq(p->names[p->name_count - 1], p->names[i])) continue;
        if (p->req.cursor && by_name(&p->names[i], &p->req.cursor->topic_name) < 0) continue;
        p->names[p->name_count++] = p->names[i];
    }
    return KW_OK;
}

static kw_err add_partition(struct page *p, const struct kb_image_partition *part,
                            struct kw_describe_topic_partitions_response_partition *out) {
    struct kb_partition_view v;
    kw_err err = kb_admin_view(p->rq, part, &v);
    if (err) return err;
    *out = (struct kw_describe_topic_partitions_response_partition){
        .error_code = v.code, .partition_index = part->index, .leader_id = v.leader, .leader_epoch = v.leader_epoch};
    out->replica_nodes.v = part->replicas, out->replica_nodes.n = part->replica_count;
    out->isr_nodes.v = part->isr, out->isr_nodes.n = part->isr_count;
    out->offline_replicas.v = v.offline, out->offline_replicas.n = v.offline_count;
    out->eligible_leader_replicas.v = part->elr, out->eligible_leader_replicas.n = part->elr_count;
    out->last_known_elr.v = part->last_known_elr, out->last_known_elr.n = part->last_known_elr_count;
    return KW_OK;
}

static kw_err set_cursor(struct page *p, struct kw_str name, int32_t partition) {
    p->res.next_cursor = kw_arena_alloc(&p->rq->arena, sizeof(*p->res.next_cursor));
    if (!p->res.next_cursor) return KW_ENOMEM;
    p->res.next_cursor->topic_name = name;
    p->res.next_cursor->partition_index = partition;
    return KW_OK;
}

/* false in *more: the page is full, the cursor set. */
static kw_err add_topic(struct page *p, struct kw_str name, bool *more) {
    const struct kb_image_topic *t = kb_image_topic(kb_node_parts(p->rq->node)->image, name);
    struct kw_describe_topic_partitions_response_topic *out = &p->res.topics.v[p->res.topics.n++];
    *out = (struct kw_describe_topic_partitions_response_topic){.name = name, .topic_authorized_operations = KB_OPERATIONS_NOT_ASKED};
    if (!t) {
        out->error_code = kb_topic_name_problem(name) ? KE_INVALID_TOPIC_EXCEPTION : KE_UNKNOWN_TOPIC_OR_PARTITION;
        return KW_OK;
    }
    out->topic_id = t->id;
    out->is_internal = t->internal;
    out->topic_authorized_operations = KB_TOPIC_OPERATIONS;
    bool here = p->req.cursor && kw_str_eq(p->req.cursor->topic_name, name);
    int32_t first = here ? KW_MAX(p->req.cursor->partition_index, 0) : 0;
    int32_t last = first >= t->partition_count ? first : first + KW_MIN(t->partition_count - first, p->left);
    out->partitions.v = kw_arena_alloc(&p->rq->arena, ((size_t)(last - first) + 1) * sizeof(*out->partitions.v));
    if (!out->partitions.v) return KW_ENOMEM;
    kw_err err = KW_OK;
    for (int32_t i = first; !err && i < last; i++) err = add_partition(p, &t->partitions[i], &out->partitions.v[out->partitions.n++]);
    p->left -= last - first;
    if (err || last >= t->partition_count) return err;
    *more = false;
    return set_cursor(p, name, last);
}

static kw_err fill(struct page *p) {
    kw_err err = collect_names(p);
    if (err) return err;
    p->res.topics.v = kw_arena_alloc(&p->rq->arena, (p->name_count + 1) * sizeof(*p->res.topics.v));
    if (!p->res.topics.v) return KW_ENOMEM;
    bool more = true;
    for (size_t i = 0; !err && more && i < p->name_count; i++) {
        if (p->left == 0) return set_cursor(p, p->names[i], 0);
        err = add_topic(p, p->names[i], &more);
    }
    return err;
}

void kb_api_describe_topic_partitions(struct kb_request *rq) {
    struct page p = {.rq = rq};
    if (kb_request_decode(rq, &p.req)) return;
    kw_msg_init(&kw_describe_topic_partitions_response_desc, &p.res);
    if (p.req.response_partition_limit <= 0) {
        kb_request_close(rq, "DescribeTopicPartitions asks for no partitions at all");
        return;
    }
    p.left = KW_MIN(p.req.response_partition_limit, PAGE_MAX);
    if (fill(&p))
        kb_admin_no_memory(rq);
    else
        kb_request_reply(rq, &p.res);
}
