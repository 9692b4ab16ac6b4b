/* describe_log_dirs.c - DescribeLogDirs v0-5: the size of every log, and the room on the disk. KIP-113, 827. Called by dispatch. Calls the
 * disk queue. */
#include "api.h"
#include "kw_messages.h"
#include "log/log.h"
#include "node_priv.h"
#include "replica/partition.h"

typedef struct kw_describe_log_dirs_response_describe_log_dirs_topic topic_answer;
typedef struct kw_describe_log_dirs_response_describe_log_dirs_partition part_answer;

struct describe_log_dirs {
    struct kb_request *rq;
    struct kw_describe_log_dirs_request req;
    struct kw_describe_log_dirs_response resp;
    struct kw_describe_log_dirs_response_describe_log_dirs_result result;
    struct kb_disk_req space; /* the request stays until it is done, even when its connection goes */
};

static void add(const struct kb_image_topic *t, int32_t index, topic_answer *a) {
    const struct kb_partition *p = index >= 0 && index < t->partition_count ? t->partitions[index].local : NULL;
    if (p && p->log) a->partitions.v[a->partitions.n++] = (part_answer){.partition_index = index, .partition_size = p->log->size_bytes};
}

static kw_err fill_topic(struct kb_request *rq, const struct kb_image_topic *t, const int32_t *indexes, int32_t n, topic_answer *a) {
    a->name = kw_str_of(t->name);
    a->partitions.v = kw_arena_calloc(&rq->arena, (size_t)n, sizeof(part_answer));
    if (!a->partitions.v) return KW_ENOMEM;
    for (int32_t i = 0; i < n; i++) add(t, indexes ? indexes[i] : i, a);
    return KW_OK;
}

static kw_err fill(struct describe_log_dirs *s) {
    struct kb_request *rq = s->rq;
    struct kb_node *n = rq->node;
    size_t count = s->req.topics.n < 0 ? n->image.topics_by_name.count : (size_t)s->req.topics.n;
    topic_answer *v = kw_arena_calloc(&rq->arena, count, sizeof(*v));
    if (!v) return KW_ENOMEM;
    s->result.topics.v = v;
    kw_err err = KW_OK;
    if (s->req.topics.n < 0) {
        const struct kb_image_topic *t;
        for (size_t it = 0; err == KW_OK && (t = kw_map_next(&n->image.topics_by_name, &it));)
            err = fill_topic(rq, t, NULL, t->partition_count, &v[s->result.topics.n++]);
        return err;
    }
    for (int32_t i = 0; err == KW_OK && i < s->req.topics.n; i++) {
        const struct kw_describe_log_dirs_request_describable_log_dir_topic *q = &s->req.topics.v[i];
        const struct kb_image_topic *t = kb_image_topic(&n->image, q->topic);
        if (t) err = fill_topic(rq, t, q->partitions.v, q->partitions.n, &v[s->result.topics.n++]);
    }
    return err;
}

static void space_known(struct kb_disk_req *r, struct kb_now now) {
    (void)now;
    struct describe_log_dirs *s = r->ctx;
    if (r->err == KB_DISK_OK) {
        s->result.usable_bytes = r->result;
        s->result.total_bytes = r->offset;
    }
    kb_request_reply(s->rq, &s->resp);
}

void kb_api_describe_log_dirs(struct kb_request *rq) {
    struct describe_log_dirs *s = kw_arena_calloc(&rq->arena, 1, sizeof(*s));
    if (!s) goto fail;
    s->rq = rq;
    if (kb_request_decode(rq, &s->req) != KW_OK) return;
    kw_msg_init(&kw_describe_log_dirs_response_desc, &s->resp);
    s->result.log_dir = kw_str_of(rq->node->log_dir);
    s->result.total_bytes = s->result.usable_bytes = -1;
    s->resp.results.v = &s->result;
    s->resp.results.n = 1;
    if (fill(s) != KW_OK) goto fail;
    s->space = (struct kb_disk_req){.op = KB_DISK_SPACE, .lane = KB_LANE_READ, .path = rq->node->log_dir, .done = space_known, .ctx = s};
    kb_disk_submit(&rq->node->parts.disk, &s->space);
    return;
fail:
    kb_request_close(rq, "out of memory");
}
