/* answer.c - what became of a Produce request: outcomes, retries with backoff, order and sequences kept. Called by the core (done) and sender.c.
 * Calls core/metadata, accum. KIP-98, KIP-360 (epochs), KIP-467 (errors of single records), KIP-951 (leaders in answers), KIP-219 (throttling).
 */
#include "sender.h"

#include "kw_messages.h"

enum { BACKOFF_SHIFT_MAX = 20, GUID_RANGES_FROM = 9 /* the version of Produce whose answers tell of ids */ };

static bool numbered(const struct kc_batch *b) { return b->base_sequence != KC_NO_SEQUENCE; }

void kc_sender_detach(struct kc_sender *s, struct kc_batch *b) {
    (void)s;
    if (b->state == KC_BATCH_IN_FLIGHT) b->part->flight_count--;
    if (b->slot) b->slot->batch = NULL;
    b->slot = NULL;
    kw_list_remove(&b->link);
}

/* Once encoded, its bytes may be on their way although nothing was written yet. */
enum kc_outcome kc_sender_outcome(const struct kc_batch *b) {
    return b->maybe || (b->slot && (b->slot->blk || b->slot->rq->rq.sent)) ? KC_MAYBE_PERSISTED : KC_NOT_PERSISTED;
}

void kc_sender_complete(struct kc_sender *s, struct kc_batch *b, kc_err err, enum kc_outcome outcome, const char *detail) {
    struct kc_part *p = b->part;
    /* A number that was surely not used, and is the last one given, goes to the next batch. */
    if (err && numbered(b) && outcome == KC_NOT_PERSISTED && b->producer_id == p->producer_id && b->producer_epoch == p->producer_epoch &&
        kc_sequence_add(b->base_sequence, b->count) == p->next_sequence)
        p->next_sequence = b->base_sequence;
    kc_sender_detach(s, b);
    b->state = KC_BATCH_DONE;
    b->err = err;
    b->outcome = (int8_t)outcome;
    if (err && detail) {
        size_t n = strnlen(detail, 1024);
        kw_free(b->detail);
        b->detail = kw_malloc(n + 1); /* without memory the code must do */
        if (b->detail) {
            memcpy(b->detail, detail, n);
            b->detail[n] = 0;
        }
    }
    kw_blk_unref(b->blk);
    b->blk = NULL;
    kw_list_push(&s->done, &b->link);
    kc_sender_activate(s, p);
    kc_sender_wake(s);
}

/* ---- Retries ---- */

static int64_t backoff(struct kc_sender *s, uint32_t tries) {
    int64_t base = KW_MAX(s->settings->retry_backoff_us, (int64_t)1), max = KW_MAX(s->settings->retry_backoff_max_us, base);
    int64_t wait = tries > BACKOFF_SHIFT_MAX || base > max >> KW_MIN(tries, (uint32_t)BACKOFF_SHIFT_MAX) ? max : base << tries;
    return wait - wait / 5 + (int64_t)kw_rng_below(kc_core_rng(s->core), (uint64_t)(wait / 5) * 2 + 1); /* 20 % either way */
}

/* Back into its partition's queue, at its old place (CP-01). */
static void requeue(struct kc_sender *s, struct kc_batch *b, int64_t wait_us) {
    struct kc_part *p = b->part;
    kc_sender_detach(s, b);
    kc_sender_queue(s, p, b);
    s->retries++;
    if (wait_us > 0) {
        p->retry_at_us = KW_MAX(p->retry_at_us, kc_core_now(s->core).mono_us + wait_us);
        kw_list_remove(&p->link); /* from a ready list: it has to wait now */
    }
    kc_sender_activate(s, p);
    kc_sender_wake(s);
}

static void note(struct kc_sender *s, struct kc_batch *b, int32_t broker, kc_err cause, const char *phase, const char *detail) {
    if (!b->attempts) b->attempts = kc_attempts_new();
    kc_attempts_note(b->attempts, kc_core_now(s->core).wall_ms, broker, cause, phase, detail);
}

/* A failed attempt. counts: against message.send.max.retries. The attempt was noted. */
static void retry_or_fail(struct kc_sender *s, struct kc_batch *b, kc_err err, bool retriable, bool counts, int64_t wait_us, const char *detail) {
    bool spent = counts && b->tries >= (uint32_t)s->settings->retries_max;
    bool late = b->deadline_us <= kc_core_now(s->core).mono_us;
    if (!retriable || spent || late || s->stopping) {
        kc_sender_complete(s, b, err, b->maybe ? KC_MAYBE_PERSISTED : KC_NOT_PERSISTED, detail);
        return;
    }
    if (counts) b->tries++;
    requeue(s, b, wait_us);
}

void kc_sender_give_up(struct kc_sender *s, struct kc_batch *b) {
    b->maybe = b->loose = true;
    b->loose_us = kc_core_now(s->core).mono_us;
}

/* The request itself failed: no answer for any of its batches. */
static void no_answer(struct kc_sender *s, struct kc_slot *slot, kc_err err) {
    struct kc_batch *b = slot->batch;
    struct kc_produce_rq *r = slot->rq;
    char text[256];
    if (r->rq.sent) kc_sender_give_up(s, b);
    if (err == KC_CANCELLED && !s->stopping) { /* our own doing: another leader is known */
        requeue(s, b, 0);
        return;
    }
    kc_core_broker_status(s->core, r->broker->node, text, sizeof text);
    note(s, b, r->broker->node, err, r->rq.sent ? "await answer" : "send", text);
    bool retriable = kc_err_retriable(err) || err == KC_BAD_MESSAGE || err == KC_TOO_BIG_ANSWER;
    if (err != KC_NO_MEMORY) kc_metadata_refresh(s->core, "a Produce request failed");
    const char *detail = err == KC_UNSUPPORTED ? "the broker does not speak Produce 3 or later (Kafka 0.11)" : text;
    retry_or_fail(s, b, err, retriable, r->rq.sent, backoff(s, b->tries), detail);
}

/* ---- Answers ---- */

static bool has_earlier(const struct kw_list *l, const struct kc_batch *b) {
    for (const struct kw_list *n = l->next; n != l; n = n->next)
        if (KW_CONTAINER_OF(n, struct kc_batch, link)->serial < b->serial) return true;
    return false;
}

/* The broker does not accept the batch's number. */
static void out_of_sequence(struct kc_sender *s, struct kc_batch *b, int16_t code, const char *text) {
    struct kc_part *p = b->part;
    uint32_t bumps = b->bumps++;
    bool queued = has_earlier(&p->queue, b);
    if (queued || has_earlier(&p->flight, b)) { /* of course: that one comes first (CP-03) */
        requeue(s, b, queued ? 0 : backoff(s, bumps));
        return;
    }
    /* What came before is not in the log, or the broker has forgotten this producer. This one is not in it either, then; but an attempt on a connection
     * that is gone may yet be read, behind the one that is missing. Under its number the batch is stored once all the same; under a new one it could
     * be twice. So it keeps the number for as long as an answer may take, and then ends in doubt. */
    if (b->loose && code != KE_INVALID_PRODUCER_EPOCH && code != KE_INVALID_PRODUCER_ID_MAPPING) {
        int64_t since = kc_core_now(s->core).mono_us - b->loose_us;
        retry_or_fail(s, b, code, since < s->settings->request_timeout_us, bumps > 0, backoff(s, bumps), text);
        return;
    }
    b->maybe = false;
    p->resequence = true;
    if (code == KE_INVALID_PRODUCER_EPOCH || code == KE_INVALID_PRODUCER_ID_MAPPING) p->need_new_id = true;
    kc_core_log(s->core, 4, "produce: %s for sequence %d of partition %d: going on in a new epoch", kw_kerror_name(code), (int)b->base_sequence, (int)p->index);
    retry_or_fail(s, b, code, true, bumps > 0, bumps > 0 ? backoff(s, bumps) : 0, text);
}

/* ---- Ids ---- */

bool kc_sender_knows_ids(struct kc_sender *s, int32_t node) {
    int16_t min, max;
    return kc_core_versions(s->core, node, KW_API_LOOKUP_GUID, &min, &max) && max >= 0;
}

/* Records with ids went to a topic that does not look at them, or of which the answer, in this version of Produce, cannot say it: that is told once. */
static void tell_plain(struct kc_sender *s, const struct kc_batch *b, int32_t node, int16_t version) {
    struct kc_ptopic *t = b->part->topic;
    if (t->plain_told) return;
    t->plain_told = true;
    const struct kc_topic_meta *m = kc_metadata_topic(s->core, t->topic);
    const char *name = m ? m->name : "?", *else_by = s->settings->idempotence ? "idempotence alone, within the life of this producer"
                                                                             : "nothing (enable.idempotence is off)";
    bool knows = kc_sender_knows_ids(s, node);
    if (knows && version < GUID_RANGES_FROM)
        kc_core_log(s->core, 4, "produce: whether topic %s dedups by id is not known: Produce %d, the newest version that broker %d takes, does not "
                    "tell (%d does). If it does not, copies are prevented by %s", name, (int)version, (int)node, GUID_RANGES_FROM, else_by);
    else
        kc_core_log(s->core, 4, "produce: topic %s does not dedup by id: %s. The ids travel as a header; copies are prevented by %s", name,
                    knows ? "message.guid.dedup=true is not set on it" : "these brokers cannot (no LookupGuid)", else_by);
}

/* Ascending, apart, within the batch. */
static bool are_ranges_sound(const struct kc_batch *b, const struct kw_produce_response_guid_result *g) {
    int64_t from = 0;
    for (int32_t i = 0; i < g->ranges.n; i++) {
        const struct kw_produce_response_guid_range *r = &g->ranges.v[i];
        if (r->index < from || r->count < 1 || r->first_offset < -1) return false;
        from = (int64_t)r->index + r->count;
        if (from > b->count) return false;
    }
    return true;
}

static void take_ranges(struct kc_batch *b, const struct kw_produce_response_guid_result *g) {
    enum { OTHER_PAYLOAD = 1, OFFSET_UNKNOWN = 2 };
    b->deduped = g->deduped;
    if (g->ranges.n <= 0) return;
    b->dups = kw_malloc((size_t)g->ranges.n * sizeof *b->dups);
    b->unplaced = !b->dups;
    for (int32_t i = 0; b->dups && i < g->ranges.n; i++) {
        const struct kw_produce_response_guid_range *r = &g->ranges.v[i];
        bool lost = (r->flags & OFFSET_UNKNOWN) || r->first_offset < 0;
        b->dups[b->dup_count++] = (struct kc_dup){.index = (uint32_t)r->index,
                                                  .count = (uint32_t)r->count,
                                                  .offset = lost ? -1 : r->first_offset,
                                                  .flags = (r->flags & OTHER_PAYLOAD ? (uint32_t)KC_REPORT_OTHER_PAYLOAD : 0) |
                                                           (lost ? (uint32_t)KC_REPORT_OFFSET_UNKNOWN : 0)};
    }
}

static void succeed(struct kc_sender *s, struct kc_batch *b, const struct kw_produce_response_partition_produce_response *a) {
    b->duplicate = a->error_code == KE_DUPLICATE_SEQUENCE_NUMBER;
    b->base_offset = a->base_offset;
    b->log_append_ms = b->duplicate ? -1 : a->log_append_time_ms;
    take_ranges(b, &a->guid);
    if (b->ids && !b->deduped) tell_plain(s, b, b->slot->rq->broker->node, b->slot->rq->rq.version);
    b->part->retry_at_us = 0;
    kc_sender_complete(s, b, KC_OK, KC_PERSISTED, NULL);
}

static void too_large(struct kc_sender *s, struct kc_batch *b, int16_t code, const char *text) {
    if (b->count > 1 && kc_sender_split(s, b) == KC_OK) return;
    kc_sender_complete(s, b, code, b->maybe ? KC_MAYBE_PERSISTED : KC_NOT_PERSISTED, text);
}

/* KIP-951: the answer names the new leader, so that the next attempt needs no metadata and no backoff. Not so a leader that lags behind the cluster and
 * names one that was before it. */
static bool take_hint(struct kc_sender *s, const struct kc_slot *slot, const struct kw_produce_response *m,
                      const struct kw_produce_response_partition_produce_response *a) {
    int32_t leader = a->current_leader.leader_id;
    if (leader < 0 || leader == slot->rq->broker->node) return false;
    for (int32_t i = 0; i < m->node_endpoints.n; i++) {
        const struct kw_produce_response_node_endpoint *e = &m->node_endpoints.v[i];
        if (e->node_id != leader) continue;
        return kc_metadata_leader_hint(s->core, slot->topic->topic, slot->index, slot->rq->broker->node, leader, a->current_leader.leader_epoch, e->host,
                                       e->port);
    }
    return false;
}

static void one_answer(struct kc_sender *s, struct kc_slot *slot, const struct kw_produce_response *m,
                       const struct kw_produce_response_partition_produce_response *a) {
    struct kc_batch *b = slot->batch;
    int16_t code = a->error_code;
    if (code == KE_NONE || (code == KE_DUPLICATE_SEQUENCE_NUMBER && numbered(b))) {
        if (are_ranges_sound(b, &a->guid)) succeed(s, b, a);
        else no_answer(s, slot, KC_BAD_MESSAGE);
        return;
    }
    char text[256];
    size_t n = (size_t)KW_MIN(KW_MAX(a->error_message.len, 0), (int32_t)sizeof text - 1);
    memcpy(text, n ? a->error_message.p : "", n);
    text[n] = 0;
    if (n == 0 && a->record_errors.n > 0 && a->record_errors.v[0].batch_index_error_message.len > 0) {
        n = (size_t)KW_MIN(a->record_errors.v[0].batch_index_error_message.len, (int32_t)sizeof text - 1);
        memcpy(text, a->record_errors.v[0].batch_index_error_message.p, n);
        text[n] = 0;
    }
    if (a->record_errors.n > 0) b->bad_index = a->record_errors.v[0].batch_index;
    note(s, b, slot->rq->broker->node, code, "answer", text);
    switch (code) {
    case KE_OUT_OF_ORDER_SEQUENCE_NUMBER:
    case KE_UNKNOWN_PRODUCER_ID:
    case KE_INVALID_PRODUCER_EPOCH:
    case KE_INVALID_PRODUCER_ID_MAPPING:
        if (numbered(b)) {
            out_of_sequence(s, b, code, text);
            return;
        }
        break;
    case KE_MESSAGE_TOO_LARGE:
    case KE_RECORD_LIST_TOO_LARGE: too_large(s, b, code, text); return;
    case KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND: /* it is in the leader's log */
    case KE_REQUEST_TIMED_OUT:
    case KE_NOT_LEADER_OR_FOLLOWER: /* these may come after the append, too: from a leader that was deposed meanwhile, or whose disk failed */
    case KE_KAFKA_STORAGE_ERROR:
    case KE_UNKNOWN_SERVER_ERROR: b->maybe = true; break;
    default: break;
    }
    const struct kw_kerror_info *info = kw_kerror_info(code);
    bool hinted = take_hint(s, slot, m, a);
    if (info->refresh_metadata && !hinted) kc_metadata_refresh(s->core, info->name);
    retry_or_fail(s, b, code, info->retriable, true, hinted ? 0 : backoff(s, b->tries), text);
}

/* The slot of an answer; the answers mostly come in the order of the request. */
static struct kc_slot *slot_of(struct kc_produce_rq *r, size_t *hint, const struct kw_produce_response_topic_produce_response *t, int32_t index) {
    for (size_t k = 0; k < r->count; k++) {
        struct kc_slot *slot = &r->slots[(*hint + k) % r->count];
        if (slot->index != index) continue;
        if (r->rq.version >= 13) {
            if (!kw_uuid_eq(slot->topic_id, t->topic_id)) continue;
        } else {
            const struct kc_topic_meta *meta = kc_metadata_topic(r->s->core, slot->topic->topic);
            if (!meta || !kw_str_eq(kw_str_of(meta->name), t->name)) continue;
        }
        *hint = (size_t)(slot - r->slots) + 1;
        return slot;
    }
    return NULL;
}

static kc_err answers(struct kc_sender *s, struct kc_produce_rq *r, struct kw_in *body) {
    struct kw_produce_response m;
    struct kw_arena arena; /* not the sender's: what an answer sets off may encode */
    kw_arena_init(&arena, kw_in_left(body) * KW_DECODE_EXPANSION_MAX + 1024);
    kw_err err = kw_decode(&kw_produce_response_desc, r->rq.version, body, &arena, &m);
    if (!err) {
        size_t hint = 0;
        if (m.throttle_time_ms > 0) kc_core_broker_throttle(s->core, r->broker->node, m.throttle_time_ms);
        for (int32_t i = 0; i < m.responses.n; i++)
            for (int32_t k = 0; k < m.responses.v[i].partition_responses.n; k++) {
                const struct kw_produce_response_partition_produce_response *a = &m.responses.v[i].partition_responses.v[k];
                struct kc_slot *slot = slot_of(r, &hint, &m.responses.v[i], a->index);
                if (slot && slot->batch) one_answer(s, slot, &m, a);
            }
    }
    kw_arena_deinit(&arena);
    return err ? kc_err_from(err) : KC_OK;
}

void kc_sender_answer(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    (void)blk;
    struct kc_produce_rq *r = rq->ctx;
    struct kc_sender *s = r->s;
    r->broker->flight--;
    s->flight_count--;
    kw_list_remove(&r->link);
    if (!err && !rq->no_answer) err = answers(s, r, body);
    for (size_t i = 0; i < r->count; i++) {
        struct kc_slot *slot = &r->slots[i];
        if (slot->batch && !err && rq->no_answer) {
            if (slot->batch->ids && !kc_sender_knows_ids(s, r->broker->node)) tell_plain(s, slot->batch, r->broker->node, rq->version);
            kc_sender_complete(s, slot->batch, KC_OK, KC_MAYBE_PERSISTED, NULL);
        } else if (slot->batch) no_answer(s, slot, err ? err : KC_BAD_MESSAGE); /* an answer without this partition is none */
        kw_blk_unref(slot->blk);
    }
    kw_free(r);
    kc_sender_wake(s);
}

/* ---- The end ---- */

static void fail_list(struct kc_sender *s, struct kw_list *l, kc_err err, const char *text) {
    while (!kw_list_empty(l)) {
        struct kc_batch *b = KW_CONTAINER_OF(l->prev, struct kc_batch, link); /* from the end: unused numbers are taken back */
        kc_sender_complete(s, b, err, kc_sender_outcome(b), text);
    }
}

static void fail_with(struct kc_sender *s, int32_t what, kc_err err, const char *text) {
    struct kw_list queued, fresh, *n;
    kw_list_init(&queued);
    kw_list_init(&fresh);
    if (what & KC_PURGE_QUEUED) {
        kc_lock_take(&s->a->lock);
        while ((n = kw_list_shift(&s->a->new_topics))) kw_list_push(&fresh, n);
        kc_lock_give(&s->a->lock);
        kc_sender_take_topics(s, &fresh); /* what comes later needs their partitions */
        kc_lock_take(&s->a->lock);
        kc_accum_seal_all(s->a);
        while ((n = kw_list_shift(&s->a->sealed))) kw_list_push(&queued, n);
        for (n = s->topics.next; n != &s->topics; n = n->next) {
            struct kw_list *staged = &KW_CONTAINER_OF(n, struct kc_ptopic, link)->staged, *b;
            while ((b = kw_list_shift(staged))) kw_list_push(&queued, b);
        }
        kc_lock_give(&s->a->lock);
    }
    if (what & KC_PURGE_IN_FLIGHT)
        for (n = s->parts.next; n != &s->parts; n = n->next) fail_list(s, &KW_CONTAINER_OF(n, struct kc_part, all_link)->flight, err, text);
    if (what & KC_PURGE_QUEUED)
        for (n = s->parts.next; n != &s->parts; n = n->next) fail_list(s, &KW_CONTAINER_OF(n, struct kc_part, all_link)->queue, err, text);
    fail_list(s, &queued, err, text);
}

void kc_sender_fail_all(struct kc_sender *s, int32_t what, kc_err err) { fail_with(s, what, err, NULL); }

void kc_sender_fatal(struct kc_sender *s, kc_err err, const char *text) {
    kc_error *e = NULL;
    kc_error_make(&e, err, KC_NOT_PERSISTED, NULL, "the producer cannot go on: %s: %s", kc_err_name(err), text);
    kc_lock_take(&s->a->lock);
    if (!s->a->fatal) {
        s->a->fatal = err;
        s->fatal = e;
        e = NULL;
    }
    kc_lock_give(&s->a->lock);
    kc_error_free(e);
    kc_accum_tell_over(s->a);
    kc_core_log(s->core, 3, "produce: cannot go on: %s: %s", kc_err_name(err), text);
    fail_with(s, KC_PURGE_QUEUED | KC_PURGE_IN_FLIGHT, err, text);
}
