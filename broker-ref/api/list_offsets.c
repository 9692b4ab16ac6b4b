/* list_offsets.c - ListOffsets v0-11: the first, last or newest offset of a partition, or the one at a time.
 *
 * Called by dispatch. Calls log (lookup by time, which may need the disk), partition. KIP-79, 207, 320, 405 (tiers: there are none), 734 (max
 * timestamp), 1005, 1023. Version 0 answers a list of offsets, newest first: segment borders on Apache Kafka, here the offset asked for and
 * the log start.
 */
#include "api.h"
#include "kw_messages.h"
#include "log/epochs.h"
#include "log/log.h"
#include "node_priv.h"
#include "replica/partition.h"

enum { LATEST = -1, EARLIEST = -2, MAX_TIMESTAMP = -3, EARLIEST_LOCAL = -4, LATEST_TIERED = -5, EARLIEST_PENDING_UPLOAD = -6 };

typedef struct kw_list_offsets_response_list_offsets_partition_response part_answer;

struct lookup {
    struct list_offsets *s;
    struct kb_partition *p;
    part_answer *answer;
    struct kb_find_time find;
    bool pending;
    int32_t list_max; /* v0 */
};
struct list_offsets {
    struct kb_request *rq;
    struct kw_list_offsets_request req;
    struct kw_list_offsets_response resp;
    struct lookup *lookups;
    size_t count, pending;
    bool starting;
};

static void give(struct lookup *l, int64_t offset, int64_t timestamp, int32_t epoch) {
    part_answer *a = l->answer;
    if (l->s->rq->head.version > 0) {
        a->offset = offset;
        a->timestamp = timestamp;
        if (l->s->rq->head.version >= 4) a->leader_epoch = epoch;
        return;
    }
    int64_t start = l->p->log->start, *v = kw_arena_alloc(&l->s->rq->arena, 2 * sizeof(*v));
    if (!v) {
        a->error_code = KE_KAFKA_STORAGE_ERROR;
        return;
    }
    a->old_style_offsets.v = v;
    if (l->list_max > 0) v[a->old_style_offsets.n++] = offset < 0 ? l->p->hw : offset;
    if (l->list_max > 1 && v[0] > start) v[a->old_style_offsets.n++] = start;
}

/* A new leader does not know yet how much was committed: it may not tell an end that is below one that was told before (KIP-207). */
static bool end_unknown(const struct lookup *l) {
    const struct kb_partition *p = l->p;
    return l->s->req.replica_id == -1 && p->replica_count > 1 && p->hw < p->epoch_start;
}

static void refuse_for_now(struct lookup *l) {
    l->answer->error_code = l->s->rq->head.version >= 5 ? KE_OFFSET_NOT_AVAILABLE : KE_LEADER_NOT_AVAILABLE;
}

static void take_found(struct lookup *l) {
    const struct kb_find_time *f = &l->find;
    if (f->err == KW_OK && f->offset < 0 && end_unknown(l))
        refuse_for_now(l);
    else if (f->err == KW_OK)
        give(l, f->offset, f->found_timestamp, f->offset >= 0 ? f->leader_epoch : -1);
    else
        l->answer->error_code = f->err == KW_ECRC ? KE_CORRUPT_MESSAGE : KE_KAFKA_STORAGE_ERROR;
}

static void maybe_answer(struct list_offsets *s) {
    if (s->pending == 0 && !s->starting) kb_request_reply(s->rq, &s->resp);
}

static void found(struct kb_find_time *f, struct kb_now now) {
    (void)now;
    struct lookup *l = f->ctx;
    struct kb_partition *p = l->p;
    l->pending = false;
    l->s->pending--;
    take_found(l);
    maybe_answer(l->s);
    kb_partition_unpin(p);
}

static void look_up(struct lookup *l, int64_t timestamp) {
    struct kb_partition *p = l->p;
    const struct kb_epochs *epochs = p->log->epochs;
    bool consumer = l->s->req.replica_id == -1;
    switch (timestamp) {
    case LATEST:
        if (end_unknown(l)) {
            refuse_for_now(l);
            return;
        }
        give(l, consumer ? p->hw : p->log->written, -1, kb_epochs_latest(epochs));
        return;
    case EARLIEST:
    case EARLIEST_LOCAL:
        give(l, p->log->start, -1, kb_epochs_at(epochs, p->log->start));
        return;
    case LATEST_TIERED:
    case EARLIEST_PENDING_UPLOAD:
        give(l, -1, -1, -1);
        return;
    default:
        break;
    }
    l->find = (struct kb_find_time){
        .log = p->log, .timestamp = timestamp == MAX_TIMESTAMP ? KB_TS_MAX : timestamp, .limit = p->hw, .done = found, .ctx = l};
    int32_t r = kb_log_find_time(&l->find, l->s->rq->node->now);
    if (r == 0) {
        l->pending = true;
        l->s->pending++;
        kb_partition_pin(p);
        return;
    }
    if (r < 0) l->find.err = r;
    take_found(l);
}

static bool timestamp_known(int64_t timestamp, int16_t version) {
    if (timestamp >= EARLIEST) return true;
    if (timestamp == MAX_TIMESTAMP) return version >= 7;
    if (timestamp == EARLIEST_LOCAL) return version >= 8;
    if (timestamp == LATEST_TIERED) return version >= 9;
    return timestamp == EARLIEST_PENDING_UPLOAD && version >= 11;
}

static void start(struct list_offsets *s, struct kw_str topic, const struct kw_list_offsets_request_list_offsets_partition *q,
                  part_answer *a) {
    *a = (part_answer){.partition_index = q->partition_index, .timestamp = -1, .offset = -1, .leader_epoch = -1};
    if (!timestamp_known(q->timestamp, s->rq->head.version)) {
        a->error_code = KE_UNSUPPORTED_VERSION;
        return;
    }
    struct lookup *l = &s->lookups[s->count++];
    *l = (struct lookup){.s = s, .answer = a, .list_max = q->max_num_offsets};
    a->error_code = kb_partition_find(s->rq->node, topic, (struct kw_uuid){{0}}, q->partition_index, q->current_leader_epoch, &l->p);
    if (a->error_code == KE_NONE) look_up(l, q->timestamp);
}

static void cleanup(struct kb_request *rq) {
    struct list_offsets *s = rq->state;
    for (size_t i = 0; i < s->count; i++) {
        if (!s->lookups[i].pending) continue;
        kb_find_time_cancel(&s->lookups[i].find);
        kb_partition_unpin(s->lookups[i].p);
    }
}

static void abandon(struct kb_request *rq) {
    kb_request_drop(rq);
}

void kb_api_list_offsets(struct kb_request *rq) {
    struct list_offsets *s = kw_arena_calloc(&rq->arena, 1, sizeof(*s));
    if (!s) goto fail;
    s->rq = rq;
    if (kb_request_decode(rq, &s->req) != KW_OK) return;
    rq->state = s;
    kw_msg_init(&kw_list_offsets_response_desc, &s->resp);
    size_t count = 0;
    for (int32_t i = 0; i < s->req.topics.n; i++) count += (size_t)s->req.topics.v[i].partitions.n;
    s->lookups = kw_arena_alloc(&rq->arena, count * sizeof(*s->lookups));
    s->resp.topics.n = s->req.topics.n;
    s->resp.topics.v = kw_arena_calloc(&rq->arena, (size_t)s->req.topics.n, sizeof(*s->resp.topics.v));
    if (!s->lookups || !s->resp.topics.v) goto fail;
    rq->cleanup = cleanup;
    rq->abandon = abandon;
    s->starting = true;
    for (int32_t i = 0; i < s->req.topics.n; i++) {
        const struct kw_list_offsets_request_list_offsets_topic *t = &s->req.topics.v[i];
        s->resp.topics.v[i].name = t->name;
        s->resp.topics.v[i].partitions.n = t->partitions.n;
        s->resp.topics.v[i].partitions.v = kw_arena_calloc(&rq->arena, (size_t)t->partitions.n, sizeof(part_answer));
        if (!s->resp.topics.v[i].partitions.v) goto fail;
        for (int32_t j = 0; j < t->partitions.n; j++) start(s, t->name, &t->partitions.v[j], &s->resp.topics.v[i].partitions.v[j]);
    }
    s->starting = false;
    maybe_answer(s);
    return;
fail:
    kb_request_close(rq, "out of memory");
}
