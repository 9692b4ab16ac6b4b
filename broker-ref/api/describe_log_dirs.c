/* describe_log_dirs.c - DescribeLogDirs v0-5: the size of every log, how far it is behind its leader's, and the room on the disk. KIP-113, 827.
 * Called by dispatch. Calls follower (how far), the disk queue. A log that failed is shown as a directory of its own, its folder, with
 * KAFKA_STORAGE_ERROR: the others beside it work. So is one whose last append found no room, with 0 usable bytes.
 */
#include <stdio.h>

#include "api.h"
#include "kw_messages.h"
#include "log/log.h"
#include "node_priv.h"
#include "replica/follower.h"
#include "replica/partition.h"
#include "wire/kerror.h"

typedef struct kw_describe_log_dirs_response_describe_log_dirs_topic topic_answer;
typedef struct kw_describe_log_dirs_response_describe_log_dirs_partition part_answer;

struct describe_log_dirs {
    struct kb_request *rq;
    struct kw_describe_log_dirs_request req;
    struct kw_describe_log_dirs_response resp;
    struct kw_describe_log_dirs_response_describe_log_dirs_result *results; /* the data folder, then the logs that failed */
    struct kb_disk_req space; /* the request stays until it is done, even when its connection goes */
};

typedef struct kw_describe_log_dirs_response_describe_log_dirs_result dir_answer;

static const struct kb_partition *local_of(const struct kb_image_topic *t, int32_t index) {
    return index >= 0 && index < t->partition_count ? t->partitions[index].local : NULL;
}

static bool has_failed(const struct kb_partition *p) {
    return p && (p->state == KB_PART_OFFLINE || (p->log && p->log->read_only));
}

static kw_err add_failed(struct describe_log_dirs *s, const struct kb_partition *p) {
    struct kb_request *rq = s->rq;
    size_t size = strlen(rq->node->log_dir) + strlen(p->topic) + 16;
    char *dir = kw_arena_alloc(&rq->arena, size);
    topic_answer *t = kw_arena_calloc(&rq->arena, 1, sizeof(*t));
    part_answer *a = kw_arena_calloc(&rq->arena, 1, sizeof(*a));
    if (!dir || !t || !a) return KW_ENOMEM;
    snprintf(dir, size, "%s/%s-%d", rq->node->log_dir, p->topic, (int)p->index);
    *a = (part_answer){.partition_index = p->index, .partition_size = p->log ? p->log->size_bytes : 0, .offset_lag = kb_follower_lag(p)};
    t->name = kw_str_of(p->topic);
    t->partitions.v = a, t->partitions.n = 1;
    dir_answer *d = &s->results[s->resp.results.n++];
    *d = (dir_answer){.error_code = KE_KAFKA_STORAGE_ERROR, .log_dir = kw_str_of(dir), .total_bytes = -1, .usable_bytes = p->state == KB_PART_OFFLINE ? -1 : 0};
    d->topics.v = t, d->topics.n = 1;
    return KW_OK;
}

static kw_err fill_topic(struct describe_log_dirs *s, const struct kb_image_topic *t, const int32_t *indexes, int32_t n) {
    topic_answer *a = &s->results[0].topics.v[s->results[0].topics.n++];
    kw_err err = KW_OK;
    a->name = kw_str_of(t->name);
    a->partitions.v = kw_arena_calloc(&s->rq->arena, (size_t)n + 1, sizeof(part_answer));
    if (!a->partitions.v) return KW_ENOMEM;
    for (int32_t i = 0; err == KW_OK && i < n; i++) {
        int32_t index = indexes ? indexes[i] : i;
        const struct kb_partition *p = local_of(t, index);
        if (has_failed(p))
            err = add_failed(s, p);
        else if (p && p->log)
            a->partitions.v[a->partitions.n++] =
                (part_answer){.partition_index = index, .partition_size = p->log->size_bytes, .offset_lag = kb_follower_lag(p)};
    }
    return err;
}

/* As many answers as there can be: a name that is asked for twice counts twice. */
static kw_err make_room(struct describe_log_dirs *s) {
    struct kb_node *n = s->rq->node;
    size_t topics = s->req.topics.n < 0 ? n->image.topics_by_name.count : (size_t)s->req.topics.n, failed = 0;
    for (struct kb_partition *p = NULL; s->req.topics.n < 0 && (p = kb_partitions_next(n, p));) failed += has_failed(p);
    for (int32_t i = 0; i < s->req.topics.n; i++) {
        const struct kb_image_topic *t = kb_image_topic(&n->image, s->req.topics.v[i].topic);
        for (int32_t j = 0; t && j < s->req.topics.v[i].partitions.n; j++) failed += has_failed(local_of(t, s->req.topics.v[i].partitions.v[j]));
    }
    s->results = kw_arena_calloc(&s->rq->arena, failed + 1, sizeof(*s->results));
    topic_answer *v = kw_arena_calloc(&s->rq->arena, topics + 1, sizeof(*v));
    if (!s->results || !v) return KW_ENOMEM;
    s->results[0] = (dir_answer){.log_dir = kw_str_of(n->log_dir), .total_bytes = -1, .usable_bytes = -1};
    s->results[0].topics.v = v;
    s->resp.results.v = s->results;
    s->resp.results.n = 1;
    return KW_OK;
}

static kw_err fill(struct describe_log_dirs *s) {
    struct kb_node *n = s->rq->node;
    kw_err err = make_room(s);
    if (s->req.topics.n < 0) {
        const struct kb_image_topic *t;
        for (size_t it = 0; err == KW_OK && (t = kw_map_next(&n->image.topics_by_name, &it));) err = fill_topic(s, t, NULL, t->partition_count);
        return err;
    }
    for (int32_t i = 0; err == KW_OK && i < s->req.topics.n; i++) {
        const struct kw_describe_log_dirs_request_describable_log_dir_topic *q = &s->req.topics.v[i];
        const struct kb_image_topic *t = kb_image_topic(&n->image, q->topic);
        if (t) err = fill_topic(s, t, q->partitions.v, q->partitions.n);
    }
    return err;
}

static void space_known(struct kb_disk_req *r, struct kb_now now) {
    (void)now;
    struct describe_log_dirs *s = r->ctx;
    if (r->err == KB_DISK_OK) {
        s->results[0].usable_bytes = r->result;
        s->results[0].total_bytes = r->offset;
    } else {
        s->results[0].error_code = KE_KAFKA_STORAGE_ERROR; /* the folder cannot even be looked at */
    }
    kb_request_reply(s->rq, &s->resp);
}

void kb_api_describe_log_dirs(struct kb_request *rq) {
    struct describe_log_dirs *s = kw_arena_calloc(&rq->arena, 1, sizeof(*s));
    if (!s) goto fail;
    s->rq = rq;
    if (kb_request_decode(rq, &s->req) != KW_OK) return;
    kw_msg_init(&kw_describe_log_dirs_response_desc, &s->resp);
    if (fill(s) != KW_OK) goto fail;
    s->space = (struct kb_disk_req){.op = KB_DISK_SPACE, .lane = KB_LANE_READ, .path = rq->node->log_dir, .done = space_known, .ctx = s};
    kb_disk_submit(&rq->node->parts.disk, &s->space);
    return;
fail:
    kb_request_close(rq, "out of memory");
}
