/* delete_records.c - DeleteRecords v0-2: raises the start of logs. Answered once the new starts are stored, so that no restart brings the
 * records back, and once every live replica has told that its log starts there too, so that no change of the leader does.
 *
 * Called by dispatch. Calls log, replica/partitions (checkpoint), replica/isr (the others' log starts), purgatory (waits). KIP-107.
 */
#include "api.h"
#include "kw_messages.h"
#include "log/log.h"
#include "node_priv.h"
#include "replica/isr.h"
#include "replica/purgatory.h"

typedef struct kw_delete_records_response_delete_records_partition_result part_answer;

struct wait { /* a partition with other replicas */
    struct kb_partition *p; /* NULL: no more */
    struct kb_wait_hook *hook;
    part_answer *answer;
    int64_t to;
    int32_t leader_epoch;
};
struct delete_records {
    struct kb_request *rq;
    struct kw_delete_records_request req;
    struct kw_delete_records_response resp;
    struct kb_point_waiter stored;
    bool is_stored;
    struct kb_waiter waiter;
    struct wait *waits;
    size_t wait_count, pending;
};

static void wait_for(struct delete_records *s, struct kb_partition *p, part_answer *a, int64_t to) {
    struct wait *w = &s->waits[s->wait_count++];
    *w = (struct wait){.p = p, .answer = a, .to = to, .leader_epoch = p->leader_epoch};
    w->hook = kb_waiter_hook(&s->waiter, p);
    s->pending++;
}

static void raise_start(struct delete_records *s, struct kw_str topic, int64_t offset, part_answer *a) {
    struct kb_request *rq = s->rq;
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
    if (p->in_sync) wait_for(s, p, a, to);
}

/* ---- Waiting ---- */

static void answer(struct delete_records *s) {
    kb_waiter_done(&s->waiter, s->rq->node);
    kb_request_reply(s->rq, &s->resp);
}

static void fail_wait(struct wait *w, int16_t code) {
    w->answer->error_code = code;
    w->answer->low_watermark = -1;
}

/* True when there is nothing more to wait for. */
static bool look(struct wait *w) {
    int16_t code = kb_partition_error(w->p, -1);
    if (code == KE_NONE && w->p->leader_epoch != w->leader_epoch) code = KE_NOT_LEADER_OR_FOLLOWER;
    if (code != KE_NONE) {
        fail_wait(w, code);
        return true;
    }
    w->answer->low_watermark = kb_isr_log_start(w->p);
    return w->answer->low_watermark >= w->to;
}

static void look_at(struct delete_records *s, const struct kb_partition *p) {
    for (size_t i = 0; i < s->wait_count; i++) {
        struct wait *w = &s->waits[i];
        if (!w->p || (p && w->p != p) || !look(w)) continue;
        kb_waiter_unhook(w->hook);
        w->p = NULL;
        s->pending--;
    }
}

static void check(struct kb_waiter *waiter, struct kb_partition *moved, struct kb_now now) {
    (void)now;
    struct delete_records *s = waiter->ctx;
    look_at(s, moved);
    if (s->pending == 0 && s->is_stored) answer(s);
}

static void expire(struct kb_waiter *waiter, struct kb_now now) {
    (void)now;
    struct delete_records *s = waiter->ctx;
    for (size_t i = 0; i < s->wait_count; i++)
        if (s->waits[i].p) fail_wait(&s->waits[i], KE_REQUEST_TIMED_OUT);
    answer(s);
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
    struct delete_records *s = w->ctx;
    s->is_stored = true;
    look_at(s, NULL);
    if (!ok) refuse_all(s);
    int64_t until = now.mono_us + (int64_t)KW_MAX(s->req.timeout_ms, 0) * 1000;
    if (!ok || s->pending == 0)
        answer(s);
    else if (kb_waiter_arm(&s->waiter, s->rq->node, until) != KW_OK)
        expire(&s->waiter, now); /* no memory to wait */
}

static void abandon(struct kb_request *rq) {
    struct delete_records *s = rq->state;
    kw_list_remove(&s->stored.link);
    kb_waiter_done(&s->waiter, rq->node);
    kb_request_drop(rq);
}

static kw_err prepare(struct delete_records *s) {
    size_t count = 0;
    for (int32_t i = 0; i < s->req.topics.n; i++) count += (size_t)s->req.topics.v[i].partitions.n;
    s->waits = kw_arena_alloc(&s->rq->arena, (count + 1) * sizeof(*s->waits));
    struct kb_wait_hook *hooks = kw_arena_alloc(&s->rq->arena, (count + 1) * sizeof(*hooks));
    if (!s->waits || !hooks) return KW_ENOMEM;
    kb_waiter_init(&s->waiter, hooks, count);
    s->waiter.check = check;
    s->waiter.expire = expire;
    s->waiter.ctx = s;
    kw_list_init(&s->stored.link);
    return KW_OK;
}

void kb_api_delete_records(struct kb_request *rq) {
    struct delete_records *s = kw_arena_calloc(&rq->arena, 1, sizeof(*s));
    if (!s) goto fail;
    s->rq = rq;
    if (kb_request_decode(rq, &s->req) != KW_OK) return;
    kw_msg_init(&kw_delete_records_response_desc, &s->resp);
    s->resp.topics.n = s->req.topics.n;
    s->resp.topics.v = kw_arena_calloc(&rq->arena, (size_t)s->req.topics.n, sizeof(*s->resp.topics.v));
    if (!s->resp.topics.v || prepare(s) != KW_OK) goto fail;
    for (int32_t i = 0; i < s->req.topics.n; i++) {
        const struct kw_delete_records_request_delete_records_topic *t = &s->req.topics.v[i];
        s->resp.topics.v[i].name = t->name;
        s->resp.topics.v[i].partitions.v = kw_arena_calloc(&rq->arena, (size_t)t->partitions.n, sizeof(part_answer));
        if (!s->resp.topics.v[i].partitions.v) goto fail_waiting;
        s->resp.topics.v[i].partitions.n = t->partitions.n;
        for (int32_t j = 0; j < t->partitions.n; j++) {
            s->resp.topics.v[i].partitions.v[j].partition_index = t->partitions.v[j].partition_index;
            raise_start(s, t->name, t->partitions.v[j].offset, &s->resp.topics.v[i].partitions.v[j]);
        }
    }
    s->stored.done = stored;
    s->stored.ctx = s;
    rq->state = s;
    rq->abandon = abandon;
    kb_partitions_store_starts(rq->node, &s->stored);
    return;
fail_waiting:
    kb_waiter_done(&s->waiter, rq->node);
fail:
    kb_request_close(rq, "out of memory");
}
