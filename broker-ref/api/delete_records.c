/* delete_records.c - DeleteRecords v0-2: raises the start of logs. Answered once the new starts are stored, so that no restart brings the
 * records back.
 *
 * Called by dispatch. Calls log, replica/partitions (checkpoint). KIP-107.
 */
#include "api.h"
#include "kw_messages.h"
#include "log/log.h"
#include "node_priv.h"
#include "replica/partition.h"

typedef struct kw_delete_records_response_delete_records_partition_result part_answer;

struct delete_records {
    struct kb_request *rq;
    struct kw_delete_records_request req;
    struct kw_delete_records_response resp;
    struct kb_point_waiter waiter;
};

static void raise_start(struct kb_request *rq, struct kw_str topic, int64_t offset, part_answer *a) {
    struct kb_partition *p;
    a->low_watermark = -1;
    a->error_code = kb_partition_find(rq->node, topic, (struct kw_uuid){{0}}, a->partition_index, -1, &p);
    if (a->error_code != KE_NONE) return;
    if (p->internal || !p->log_config.delete_policy) {
        a->error_code = KE_POLICY_VIOLATION; /* a compacted topic's records go by compaction alone */
        return;
    }
    int64_t to = offset == -1 ? p->hw : offset;
    if (to < 0 || to > p->hw) {
        a->error_code = KE_OFFSET_OUT_OF_RANGE;
        return;
    }
    if (to > p->log->start && kb_log_raise_start(p->log, to, p->hw, rq->node->now) != KW_OK) {
        a->error_code = KE_KAFKA_STORAGE_ERROR;
        return;
    }
    a->low_watermark = p->log->start;
}

static void refuse_all(struct delete_records *s) {
    for (int32_t i = 0; i < s->resp.topics.n; i++)
        for (int32_t j = 0; j < s->resp.topics.v[i].partitions.n; j++) {
            part_answer *a = &s->resp.topics.v[i].partitions.v[j];
            if (a->error_code != KE_NONE) continue;
            a->error_code = KE_KAFKA_STORAGE_ERROR;
            a->low_watermark = -1;
        }
}

static void stored(struct kb_point_waiter *w, bool ok, struct kb_now now) {
    (void)now;
    struct delete_records *s = w->ctx;
    if (!ok) refuse_all(s);
    kb_request_reply(s->rq, &s->resp);
}

static void abandon(struct kb_request *rq) {
    struct delete_records *s = rq->state;
    kw_list_remove(&s->waiter.link);
    kb_request_drop(rq);
}

void kb_api_delete_records(struct kb_request *rq) {
    struct delete_records *s = kw_arena_calloc(&rq->arena, 1, sizeof(*s));
    if (!s) goto fail;
    s->rq = rq;
    if (kb_request_decode(rq, &s->req) != KW_OK) return;
    kw_msg_init(&kw_delete_records_response_desc, &s->resp);
    s->resp.topics.n = s->req.topics.n;
    s->resp.topics.v = kw_arena_calloc(&rq->arena, (size_t)s->req.topics.n, sizeof(*s->resp.topics.v));
    if (!s->resp.topics.v) goto fail;
    for (int32_t i = 0; i < s->req.topics.n; i++) {
        const struct kw_delete_records_request_delete_records_topic *t = &s->req.topics.v[i];
        s->resp.topics.v[i].name = t->name;
        s->resp.topics.v[i].partitions.v = kw_arena_calloc(&rq->arena, (size_t)t->partitions.n, sizeof(part_answer));
        if (!s->resp.topics.v[i].partitions.v) goto fail;
        s->resp.topics.v[i].partitions.n = t->partitions.n;
        for (int32_t j = 0; j < t->partitions.n; j++) {
            s->resp.topics.v[i].partitions.v[j].partition_index = t->partitions.v[j].partition_index;
            raise_start(rq, t->name, t->partitions.v[j].offset, &s->resp.topics.v[i].partitions.v[j]);
        }
    }
    s->waiter.done = stored;
    s->waiter.ctx = s;
    rq->state = s;
    rq->abandon = abandon;
    kb_partitions_store_starts(rq->node, &s->waiter);
    return;
fail:
    kb_request_close(rq, "out of memory");
}
