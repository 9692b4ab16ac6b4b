/* produce.c - Produce v0-13: appends what producers send and answers when it is written (acks=1) or committed (acks=-1), or never (acks=0).
 *
 * Called by dispatch. Calls produce_check, produce_guid (topics with message.guid.dedup), log (append), purgatory (waits), partition, replica/isr,
 * leader_hint. KIP-13, 98, 467, 516, 951. Transactions: refused until there are any.
 *
 * A wait belongs to the leader epoch that the records were appended in: the next one may have cut them off.
 */
#include <stdio.h>

#include "api.h"
#include "leader_hint.h"
#include "log/log.h"
#include "log/pid_state.h"
#include "node_priv.h"
#include "produce_guid.h"
#include "replica/isr.h"

typedef kb_produced part_answer;
typedef struct kw_produce_response_topic_produce_response topic_answer;

void kb_produce_refuse(struct kb_produce *s, part_answer *a, int16_t code, const char *text) {
    a->error_code = code;
    a->base_offset = -1;
    a->log_append_time_ms = -1;
    a->log_start_offset = -1;
    a->error_message = kw_str_of(text);
    s->failed = true;
    s->failed_code = code;
}

/* ---- Waiting ---- */

static const char disk_text[] = "the disk did not take the records; see the broker's log";

static const char few_text[] = "the records were appended, but fewer replicas are in sync than min.insync.replicas; they may be lost";

static const char *text_of(int16_t code) {
    return code == KE_KAFKA_STORAGE_ERROR ? disk_text : code == KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND ? few_text : NULL;
}

/* 1: acknowledgeable, 0: not yet, < 0: never; *code says why. */
static int progress(const struct kb_produce *s, const struct kb_produce_wait *w, int16_t *code) {
    *code = kb_partition_error(w->p, -1);
    if (*code == KE_NONE && w->p->leader_epoch != w->leader_epoch) *code = KE_NOT_LEADER_OR_FOLLOWER;
    if (*code == KE_NONE && w->end > w->p->log->leo) *code = KE_KAFKA_STORAGE_ERROR; /* the disk was full: taken back */
    if (*code == KE_NONE && s->req.acks == -1 && !kb_isr_enough(w->p)) *code = KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND;
    if (*code != KE_NONE) return -1;
    return (s->req.acks == 1 ? w->p->log->written : w->p->hw) >= w->end;
}

static void tell_leaders(struct kb_produce *s) {
    struct kb_leader_hints hints = {0};
    for (int32_t i = 0; i < s->resp.responses.n && s->rq->head.version >= 10; i++)
        for (int32_t j = 0; j < s->resp.responses.v[i].partition_responses.n; j++) {
            const topic_answer *t = &s->resp.responses.v[i];
            part_answer *a = &t->partition_responses.v[j];
            if (a->error_code != KE_NOT_LEADER_OR_FOLLOWER) continue;
            (void)kb_leader_hint(s->rq, &hints, t->name, t->topic_id, a->index, false, &a->current_leader.leader_id,
                                 &a->current_leader.leader_epoch);
        }
    struct kw_produce_response_node_endpoint *v = hints.count ? kw_arena_calloc(&s->rq->arena, (size_t)hints.count, sizeof(*v)) : NULL;
    struct kb_leader_place p;
    s->resp.node_endpoints.v = v;
    for (int32_t i = 0; v && i < hints.count; i++)
        if (kb_leader_place(s->rq, &hints, i, &p))
            v[s->resp.node_endpoints.n++] =
                (struct kw_produce_response_node_endpoint){.node_id = p.id, .host = p.host, .port = p.port, .rack = p.rack};
}

static void finish_unacknowledged(struct kb_produce *s) {
    if (!s->failed) {
        kb_request_drop(s->rq);
        return;
    }
    char why[128];
    snprintf(why, sizeof(why), "a produce with acks=0 failed with %s, which only a closed connection can tell",
             kw_kerror_name(s->failed_code));
    kb_request_close(s->rq, why);
}

static void answer(struct kb_produce *s) {
    kb_waiter_done(&s->waiter, s->rq->node);
    if (s->req.acks == 0) {
        finish_unacknowledged(s);
        return;
    }
    if (s->failed) tell_leaders(s);
    kb_request_reply(s->rq, &s->resp);
}

void kb_produce_maybe_answer(struct kb_produce *s) {
    if (s->pending == 0 && !s->starting) answer(s);
}

struct kb_produce_wait *kb_produce_place(struct kb_produce *s, struct kb_partition *p, part_answer *a) {
    struct kb_produce_wait *w = &s->waits[s->wait_count++];
    *w = (struct kb_produce_wait){.p = p, .answer = a, .leader_epoch = p->leader_epoch, .hook = kb_waiter_hook(&s->waiter, p)};
    w->hook->of = w;
    s->pending++;
    return w;
}

void kb_produce_place_done(struct kb_produce *s, struct kb_produce_wait *w) {
    kb_waiter_unhook(w->hook);
    w->p = NULL;
    s->pending--;
}

static void check(struct kb_waiter *waiter, struct kb_partition *moved, struct kb_now now) {
    (void)moved;
    struct kb_produce *s = waiter->ctx;
    struct kb_produce_wait *w = waiter->asked->of;
    int16_t code;
    if (w->gated) {
        kb_produce_guid_moved(w->gated, now);
        return;
    }
    int r = progress(s, w, &code);
    if (r == 0) return;
    if (r < 0) kb_produce_refuse(s, w->answer, code, text_of(code));
    kb_produce_place_done(s, w);
    kb_produce_maybe_answer(s);
}

static void expire(struct kb_waiter *waiter, struct kb_now now) {
    struct kb_produce *s = waiter->ctx;
    kb_produce_guid_leave(s, KE_REQUEST_TIMED_OUT, now);
    for (size_t i = 0; i < s->wait_count; i++)
        if (s->waits[i].p)
            kb_produce_refuse(s, s->waits[i].answer, KE_REQUEST_TIMED_OUT,
                              "the records were appended, but not acknowledgeable within the request's timeout");
    answer(s);
}

static void abandon(struct kb_request *rq) {
    struct kb_produce *s = rq->state;
    kb_produce_guid_leave(s, KE_NONE, rq->node->now);
    kb_waiter_done(&s->waiter, rq->node);
    kb_request_drop(rq);
}

/* One with acks=0 that still waits to be appended does not end with its connection, only with the node. */
static void cleanup(struct kb_request *rq) {
    struct kb_produce *s = rq->state;
    kb_produce_guid_drop(s);
    kb_waiter_done(&s->waiter, rq->node);
}

void kb_produce_await(struct kb_produce *s, struct kb_partition *p, part_answer *a, int64_t end, struct kb_produce_wait *w) {
    struct kb_produce_wait none = {.p = p, .leader_epoch = p->leader_epoch}, *q = w ? w : &none;
    int16_t code;
    q->end = end;
    int r = s->req.acks == 0 ? 1 : progress(s, q, &code);
    if (r < 0) kb_produce_refuse(s, a, code, text_of(code)); /* a duplicate of what is just being taken back */
    if (r != 0) {                                            /* or of what is long committed */
        if (w) kb_produce_place_done(s, w);
        return;
    }
    if (!w) kb_produce_place(s, p, a)->end = end;
}

/* ---- One partition ---- */

void kb_produce_refuse_sequence(struct kb_produce *s, part_answer *a, enum kb_pid_verdict verdict) {
    if (verdict == KB_PID_OUT_OF_ORDER)
        kb_produce_refuse(s, a, KE_OUT_OF_ORDER_SEQUENCE_NUMBER, "the sequence does not follow the producer's last one in this partition");
    else if (verdict == KB_PID_FENCED)
        kb_produce_refuse(s, a, KE_INVALID_PRODUCER_EPOCH, "a producer with the same id and a newer epoch has written here");
    else
        kb_produce_refuse(s, a, KE_UNKNOWN_PRODUCER_ID, "the partition has no record of this producer any more");
}

/* Success, with the offset of then (BL-18). Where records were left out, since their ids were there already, their places cannot be reckoned from it:
 * then that it is stored is all that is said. */
void kb_produce_answer_repeat(const struct kb_partition *p, const struct kb_pid_batch *dup, part_answer *a) {
    a->log_start_offset = p->log->start;
    a->base_offset = a->log_append_time_ms = -1;
    if (dup->holes) {
        a->error_code = KE_DUPLICATE_SEQUENCE_NUMBER;
        a->error_message = kw_str_of("the records are stored already, some of them elsewhere than the others");
        return;
    }
    a->base_offset = dup->first_offset;
    a->log_append_time_ms = p->config.log_append_time ? dup->timestamp : -1;
}

/* Idempotence: true when the batch is to be appended. */
static bool check_producer(struct kb_produce *s, struct kb_partition *p, const struct kw_batch_header *h, part_answer *a) {
    struct kb_pid_batch dup;
    if (h->producer_id < 0) return true;
    enum kb_pid_verdict verdict = kb_pid_check(p->log->pids, h, &dup);
    if (verdict == KB_PID_APPEND) return true;
    if (verdict != KB_PID_DUPLICATE) {
        kb_produce_refuse_sequence(s, a, verdict);
        return false;
    }
    kb_produce_answer_repeat(p, &dup, a);
    kb_produce_await(s, p, a, dup.last_offset + 1, NULL);
    return false;
}

int16_t kb_produce_may_write(const struct kb_produce *s, const struct kb_partition *p) {
    if (p->internal) return KE_INVALID_TOPIC_EXCEPTION;
    if (s->req.acks == -1 && !kb_isr_enough(p)) return KE_NOT_ENOUGH_REPLICAS;
    return KE_NONE;
}

bool kb_produce_append(struct kb_produce *s, struct kb_partition *p, const struct kb_checked *c, part_answer *a, int64_t *base, int64_t *end) {
    struct kb_log_append ap = {
        .blk = c->blk, .batch = c->batch, .size = c->size, .leader_epoch = p->leader_epoch, .max_timestamp = c->max_timestamp};
    kw_err err = kb_log_append(p->log, &ap, s->rq->node->now);
    if (err != KW_OK) {
        const char *text = err == KW_EIO     ? "the partition's log has failed; see the broker's log"
                           : err == KW_EBUSY ? "the partition's log is being cut back, or synced before the leader's first record; try again"
                                             : "the broker is out of memory; try again";
        kb_produce_refuse(s, a, KE_KAFKA_STORAGE_ERROR, text);
        return false;
    }
    kb_partition_dirty(p);
    a->base_offset = ap.base_offset;
    a->log_append_time_ms = p->config.log_append_time ? c->max_timestamp : -1;
    a->log_start_offset = p->log->start;
    *base = ap.base_offset;
    *end = ap.last_offset + 1;
    return true;
}

bool kb_produce_take(struct kb_produce *s, struct kb_partition *p, const struct kw_produce_request_partition_produce_data *d, part_answer *a,
                     struct kb_checked *out) {
    struct kb_verdict v = kb_produce_check(s->rq, p, d->records, out);
    if (v.code == KE_NONE) return true;
    if (v.code == KE_CORRUPT_MESSAGE && s->rq->conn) /* many clients show its name alone */
        kb_conn_say(s->rq->conn, KB_WARN, "a batch for %s-%d was refused: %s", p->topic, (int)d->index, v.text);
    kb_produce_refuse(s, a, v.code, v.text);
    a->record_errors.v = v.record_errors;
    a->record_errors.n = v.record_error_count;
    return false;
}

static void produce_one(struct kb_produce *s, const struct kw_produce_request_topic_produce_data *t,
                        const struct kw_produce_request_partition_produce_data *d, part_answer *a) {
    struct kb_partition *p;
    struct kw_uuid id = s->rq->head.version >= 13 ? t->topic_id : (struct kw_uuid){{0}};
    a->index = d->index;
    int16_t code = s->rq->head.version >= 13 && kw_uuid_is_zero(id) ? KE_UNKNOWN_TOPIC_ID
                                                                    : kb_partition_find(s->rq->node, t->name, id, d->index, -1, &p);
    if (code == KE_NONE) code = kb_produce_may_write(s, p);
    if (code != KE_NONE) {
        kb_produce_refuse(s, a, code, code == KE_INVALID_TOPIC_EXCEPTION ? "clients may not write to an internal topic" : NULL);
        return;
    }
    if (KW_UNLIKELY(kb_produce_is_gated(p))) {
        kb_produce_guid(s, p, d, a);
        return;
    }
    struct kb_checked c;
    int64_t base, end;
    if (!kb_produce_take(s, p, d, a, &c)) return;
    if (check_producer(s, p, &c.header, a) && kb_produce_append(s, p, &c, a, &base, &end)) kb_produce_await(s, p, a, end, NULL);
    kw_blk_unref(c.blk);
}

/* ---- The request ---- */

static kw_err prepare(struct kb_produce *s) {
    struct kb_request *rq = s->rq;
    size_t count = 0;
    kw_msg_init(&kw_produce_response_desc, &s->resp);
    s->resp.responses.n = s->req.topic_data.n;
    s->resp.responses.v = kw_arena_calloc(&rq->arena, (size_t)s->req.topic_data.n, sizeof(topic_answer));
    if (!s->resp.responses.v) return KW_ENOMEM;
    for (int32_t i = 0; i < s->req.topic_data.n; i++) {
        const struct kw_produce_request_topic_produce_data *t = &s->req.topic_data.v[i];
        topic_answer *a = &s->resp.responses.v[i];
        a->name = t->name;
        a->topic_id = t->topic_id;
        a->partition_responses.n = t->partition_data.n;
        a->partition_responses.v = kw_arena_calloc(&rq->arena, (size_t)t->partition_data.n, sizeof(part_answer));
        if (!a->partition_responses.v) return KW_ENOMEM;
        for (int32_t j = 0; j < t->partition_data.n; j++) {
            a->partition_responses.v[j].error_message = kw_str_null();
            a->partition_responses.v[j].current_leader.leader_id = a->partition_responses.v[j].current_leader.leader_epoch = -1;
        }
        count += (size_t)t->partition_data.n;
    }
    s->waits = kw_arena_alloc(&rq->arena, count * sizeof(*s->waits));
    struct kb_wait_hook *hooks = kw_arena_alloc(&rq->arena, count * sizeof(*hooks));
    if (count > 0 && (!s->waits || !hooks)) return KW_ENOMEM;
    kb_waiter_init(&s->waiter, hooks, count);
    s->waiter.check = check;
    s->waiter.expire = expire;
    s->waiter.ctx = s;
    return KW_OK;
}

static void run(struct kb_produce *s) {
    bool acks_ok = s->req.acks >= -1 && s->req.acks <= 1;
    for (int32_t i = 0; i < s->req.topic_data.n; i++)
        for (int32_t j = 0; j < s->req.topic_data.v[i].partition_data.n; j++) {
            const struct kw_produce_request_partition_produce_data *d = &s->req.topic_data.v[i].partition_data.v[j];
            part_answer *a = &s->resp.responses.v[i].partition_responses.v[j];
            if (acks_ok) {
                produce_one(s, &s->req.topic_data.v[i], d, a);
                continue;
            }
            a->index = d->index;
            kb_produce_refuse(s, a, KE_INVALID_REQUIRED_ACKS, "acks is 0, 1 or -1 (all)");
        }
}

void kb_api_produce(struct kb_request *rq) {
    struct kb_produce *s = kw_arena_calloc(&rq->arena, 1, sizeof(*s));
    if (!s) {
        kb_request_close(rq, "out of memory");
        return;
    }
    s->rq = rq;
    rq->state = s;
    if (kb_request_decode(rq, &s->req) != KW_OK) return;
    if (prepare(s) != KW_OK) {
        kb_request_close(rq, "out of memory");
        return;
    }
    s->starting = true;
    run(s);
    s->starting = false;
    if (s->pending == 0) {
        answer(s);
        return;
    }
    if (s->gated) rq->cleanup = cleanup;
    if (kb_waiter_arm(&s->waiter, rq->node, rq->node->now.mono_us + (int64_t)KW_MAX(s->req.timeout_ms, 0) * 1000) != KW_OK) {
        kb_produce_guid_leave(s, KE_NONE, rq->node->now);
        kb_waiter_done(&s->waiter, rq->node);
        kb_request_close(rq, "out of memory");
    } else if (s->req.acks != 0) {
        rq->abandon = abandon;
    }
}
