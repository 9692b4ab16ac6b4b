/* sender.c - a turn of the producer in loop context: take, expire, build requests, arm. Called by produce.c and the core. Calls accum, pid, core, wire.
 * Produce v3-v13, batches of magic 2 alone. KIP-98, KIP-91 (deadlines), KIP-219 (throttling).
 */
#include "sender.h"

#include "kw_messages.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    API_PRODUCE = 0,
    VERSION_MIN = 3,          /* record batch v2: Kafka 0.11 */
    VERSION_BY_NAME_MAX = 12,
    VERSION_MAX = 13,         /* topics by id */
    VERSION_ZSTD = 7,
    IDEMPOTENT_FLIGHT_MAX = 5, /* batches that a broker remembers of a producer */
    SERIAL_SHIFT = 32,        /* room between batches for the parts of a split one */
    TRIM_AFTER_US = 1000000,
};

/* ---- Life ---- */

static void turn_task(struct kc_task *t, void *ctx) {
    (void)t;
    kc_sender_turn(ctx);
}
static void on_timer(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)now_us;
    struct kc_sender *s = ctx;
    kw_err err = kw_timers_set(kc_core_timers(s->core), t, KW_NEVER - 1); /* it just left its place there */
    KW_ASSERT(!err);
    kc_sender_wake(s);
}
static void on_metadata(struct kc_metadata_listener *l) {
    struct kc_sender *s = KW_CONTAINER_OF(l, struct kc_sender, listener);
    s->metadata_changed = true;
    kc_sender_wake(s);
}
static void on_pid(struct kc_pid *pid, void *ctx) {
    struct kc_sender *s = ctx;
    if (pid->state == KC_PID_FATAL)
        kc_sender_fatal(s, pid->last_err,
                        pid->last_err == KC_UNSUPPORTED ? "the brokers are too old for an idempotent producer (Kafka 0.11): set enable.idempotence=false"
                                                        : "no producer id could be had");
    s->unpark = true;
    kc_sender_wake(s);
}

kw_err kc_sender_init(struct kc_sender *s, struct kc_core *core, struct kc_accum *a, const struct kc_settings *settings) {
    *s = (struct kc_sender){.core = core, .a = a, .settings = settings, .deadline_us = KW_NEVER, .retry_us = KW_NEVER, .held_us = KW_NEVER,
                            .trim_us = KW_NEVER};
    kw_list_init(&s->topics);
    kw_list_init(&s->brokers);
    kw_list_init(&s->parked);
    kw_list_init(&s->flight);
    kw_list_init(&s->done);
    kw_list_init(&s->parts);
    kw_arena_init(&s->arena, 0);
    kc_task_init(&s->task, turn_task, s);
    kw_timer_init(&s->timer, on_timer, s);
    kc_pid_init(&s->pid, core, settings, on_pid, s);
    s->listener.changed = on_metadata;
    s->compressor = kw_compressor_new();
    if (!s->compressor) return KW_ENOMEM;
    /* Armed from now on, if only for the end of time: moving an armed timer cannot fail. */
    kw_err err = kw_timers_set(kc_core_timers(core), &s->timer, KW_NEVER - 1);
    if (err) {
        kw_compressor_free(s->compressor);
        return err;
    }
    kc_metadata_listen(core, &s->listener);
    return KW_OK;
}

void kc_sender_deinit(struct kc_sender *s) {
    KW_ASSERT(kc_sender_idle(s));
    kc_pid_stop(&s->pid); /* an error that was on its way when it was stopped may have it wait to ask again */
    kw_timers_cancel(kc_core_timers(s->core), &s->timer);
    kc_task_cancel(&s->task);
    kc_metadata_unlisten(&s->listener);
    for (struct kw_list *n = s->topics.next; n != &s->topics; n = n->next)
        kc_metadata_unwant(s->core, KW_CONTAINER_OF(n, struct kc_ptopic, link)->topic);
    struct kw_list *n;
    while ((n = kw_list_shift(&s->brokers))) kw_free(KW_CONTAINER_OF(n, struct kc_pbroker, link));
    kw_compressor_free(s->compressor);
    kw_arena_deinit(&s->arena);
    kw_free(s->picked);
    kc_error_free(s->fatal);
}

void kc_sender_wake(struct kc_sender *s) { kc_core_defer(s->core, &s->task); }

bool kc_sender_idle(const struct kc_sender *s) { return kw_list_empty(&s->flight) && !kc_pid_busy(&s->pid); }

void kc_sender_stop(struct kc_sender *s) {
    s->stopping = true;
    kc_pid_stop(&s->pid);
    for (struct kw_list *n = s->flight.next; n != &s->flight; n = n->next)
        kc_core_cancel(s->core, &KW_CONTAINER_OF(n, struct kc_produce_rq, link)->rq);
}

/* ---- Partitions and brokers ---- */

static struct kc_pbroker *broker_of(struct kc_sender *s, int32_t node) {
    for (struct kw_list *n = s->brokers.next; n != &s->brokers; n = n->next) {
        struct kc_pbroker *b = KW_CONTAINER_OF(n, struct kc_pbroker, link);
        if (b->node == node) return b;
    }
    struct kc_pbroker *b = kw_malloc(sizeof *b);
    if (!b) return NULL;
    *b = (struct kc_pbroker){.node = node};
    kw_list_init(&b->ready);
    kw_list_push(&s->brokers, &b->link);
    return b;
}

static int32_t leader_of(struct kc_sender *s, const struct kc_part *p) {
    const struct kc_topic_meta *m = kc_metadata_topic(s->core, p->topic->topic);
    return m && m->known && p->index < m->partition_count ? m->partitions[p->index].leader : -1;
}

void kc_sender_park(struct kc_sender *s, struct kc_part *p, int64_t until_us) {
    kw_list_remove(&p->link);
    kw_list_push(&s->parked, &p->link);
    p->leader = -1;
    s->retry_us = KW_MIN(s->retry_us, until_us);
}

void kc_sender_activate(struct kc_sender *s, struct kc_part *p) {
    if (!kw_list_empty(&p->link) || (kw_list_empty(&p->queue) && !p->due)) return;
    if (p->retry_at_us > kc_core_now(s->core).mono_us) {
        kc_sender_park(s, p, p->retry_at_us);
        return;
    }
    int32_t leader = leader_of(s, p);
    if (leader < 0) { /* an answer that changes nothing is not told to us: where the partition itself is missing, look again */
        kc_metadata_refresh(s->core, "a partition to produce to has no leader");
        bool missing = kc_sender_is_missing(s, p);
        kc_sender_park(s, p, missing ? kc_core_now(s->core).mono_us + s->settings->retry_backoff_max_us : KW_NEVER);
        return;
    }
    struct kc_pbroker *b = broker_of(s, leader);
    if (!b) {
        kc_sender_park(s, p, kc_core_now(s->core).mono_us + s->settings->retry_backoff_us);
        return;
    }
    p->leader = leader;
    kw_list_push(&b->ready, &p->link);
}

void kc_sender_queue(struct kc_sender *s, struct kc_part *p, struct kc_batch *b) {
    (void)s;
    struct kw_list *at = &p->queue; /* from the tail: a new batch is the last, a retried one near the head of a short queue */
    while (at->prev != &p->queue && KW_CONTAINER_OF(at->prev, struct kc_batch, link)->serial > b->serial) at = at->prev;
    kw_list_insert_before(at, &b->link);
    b->state = KC_BATCH_SEALED;
}

/* ---- Taking ---- */

/* A freshly sealed batch behind all others. */
static void enqueue(struct kc_sender *s, struct kc_part *p, struct kc_batch *b) {
    b->serial = p->next_serial++ << SERIAL_SHIFT;
    kc_sender_queue(s, p, b);
    if (kw_list_empty(&p->all_link)) kw_list_push(&s->parts, &p->all_link);
}

static void adopt(struct kc_sender *s, struct kc_batch *b) {
    struct kc_part *p = b->part;
    enqueue(s, p, b);
    kc_sender_activate(s, p);
}

void kc_sender_take_topics(struct kc_sender *s, struct kw_list *fresh) {
    struct kw_list *n;
    while ((n = kw_list_shift(fresh))) {
        kw_list_push(&s->topics, n);
        kc_metadata_want(s->core, KW_CONTAINER_OF(n, struct kc_ptopic, link)->topic);
        if (s->settings->idempotence) kc_pid_want(&s->pid);
        s->metadata_changed = true; /* it may be known already */
    }
}

/* Everything that the accumulator has for us. */
static void take(struct kc_sender *s, int64_t now_us) {
    struct kc_accum *a = s->a;
    struct kw_list topics, sealed, due, *n;
    kw_list_init(&topics);
    kw_list_init(&sealed);
    kw_list_init(&due);
    kc_lock_take(&a->lock);
    while ((n = kw_list_shift(&a->new_topics))) kw_list_push(&topics, n);
    while ((n = kw_list_shift(&a->sealed))) {
        kw_list_push(&sealed, n);
        KW_CONTAINER_OF(n, struct kc_batch, link)->part->due = false; /* what was due is what has come */
    }
    bool all = a->pressed || a->flushing || a->closed || !kw_list_empty(&a->space_waiters);
    a->pressed = false;
    while (!kw_list_empty(&a->open)) {
        struct kc_part *p = KW_CONTAINER_OF(a->open.next, struct kc_part, open_link);
        if (!all && p->open->opened_us + s->settings->linger_us > now_us) break;
        kw_list_remove(&p->open_link);
        kw_list_push(&a->due, &p->open_link);
        p->due = true;
        if (kw_list_empty(&p->link)) kw_list_push(&due, &p->link);
    }
    s->deadline_us = KW_MIN(s->deadline_us, a->deadline_us);
    a->deadline_us = KW_NEVER;
    kc_lock_give(&a->lock);
    if (!kw_list_empty(&sealed) || !kw_list_empty(&due)) {
        s->heartbeat_us = now_us + s->settings->linger_us;
        s->trim_us = now_us + TRIM_AFTER_US;
    }
    kc_sender_take_topics(s, &topics);
    while ((n = kw_list_shift(&due))) kc_sender_activate(s, KW_CONTAINER_OF(n, struct kc_part, link));
    while ((n = kw_list_shift(&sealed))) adopt(s, KW_CONTAINER_OF(n, struct kc_batch, link));
}

/* The oldest batch that can be sent; the open one is sealed for it when it is due. NULL: none. */
static struct kc_batch *head_of(struct kc_sender *s, struct kc_part *p) {
    if (kw_list_empty(&p->queue) && p->due) {
        struct kc_accum *a = s->a;
        kc_lock_take(&a->lock);
        struct kc_batch *b = kc_accum_seal(a, p);
        if (b) kw_list_remove(&b->link); /* from the shared list: it is ours at once */
        kc_lock_give(&a->lock);
        p->due = false;
        if (b) enqueue(s, p, b);
    }
    return kw_list_empty(&p->queue) ? NULL : KW_CONTAINER_OF(p->queue.next, struct kc_batch, link);
}

/* ---- Sequences ---- */

/* The bytes of a final batch are about to change: not under a request that still points at them. */
static bool own_bytes(struct kc_sender *s, struct kc_batch *b) {
    if (atomic_load(&b->blk->refs) == 1) return true;
    bool over;
    struct kw_blk *copy = kc_pool_blk(&s->a->pool, b->len, &over);
    if (!copy) return false;
    memcpy(copy->data, b->blk->data, b->len);
    kw_blk_unref(b->blk);
    b->blk = copy;
    return true;
}

/* A new epoch, from sequence 0, for whatever has no outcome yet. false: not yet possible. */
static bool resequence(struct kc_sender *s, struct kc_part *p) {
    if (p->flight_count > 0) return false;
    for (struct kw_list *n = p->queue.next; n != &p->queue; n = n->next)
        if (!own_bytes(s, KW_CONTAINER_OF(n, struct kc_batch, link))) return false;
    if (p->producer_id >= 0 && (p->need_new_id || p->producer_epoch == INT16_MAX)) {
        if (s->pid.id == p->producer_id) kc_pid_renew(&s->pid);
        if (s->pid.state != KC_PID_READY) return false;
        p->producer_id = s->pid.id;
        p->producer_epoch = s->pid.epoch;
    } else if (p->producer_id >= 0) {
        p->producer_epoch++;
    }
    for (struct kw_list *n = p->queue.next; n != &p->queue; n = n->next) {
        struct kc_batch *b = KW_CONTAINER_OF(n, struct kc_batch, link);
        b->base_sequence = KC_NO_SEQUENCE;
        b->final = false;
    }
    p->next_sequence = 0;
    p->resequence = p->need_new_id = false;
    return true;
}

static void number(struct kc_sender *s, struct kc_part *p, struct kc_batch *b) {
    if (!s->settings->idempotence || b->base_sequence != KC_NO_SEQUENCE) return;
    if (p->producer_id < 0) {
        p->producer_id = s->pid.id;
        p->producer_epoch = s->pid.epoch;
    }
    b->producer_id = p->producer_id;
    b->producer_epoch = p->producer_epoch;
    b->base_sequence = p->next_sequence;
    b->number = p->next_number++;
    p->next_sequence = kc_sequence_add(p->next_sequence, b->count);
    b->final = false;
}

/* ---- Requests ---- */

/* A broker knows a batch again while it is among the last five of its producer. So nothing may be sent that would push one out whose outcome is open,
 * be it in flight or waiting to be tried again: afterwards "out of order" could mean that it was stored long ago. */
static bool window_open(const struct kc_part *p) {
    const struct kw_list *lists[] = {&p->queue, &p->flight};
    const struct kc_batch *head = kw_list_empty(&p->queue) ? NULL : KW_CONTAINER_OF(p->queue.next, struct kc_batch, link);
    uint64_t next = head && head->base_sequence != KC_NO_SEQUENCE ? head->number : p->next_number;
    for (size_t i = 0; i < KW_COUNTOF(lists); i++)
        for (const struct kw_list *n = lists[i]->next; n != lists[i]; n = n->next) {
            const struct kc_batch *b = KW_CONTAINER_OF(n, struct kc_batch, link);
            if (b->base_sequence == KC_NO_SEQUENCE) break; /* of the queue: those behind have none either */
            if (b->number < next && next - b->number >= IDEMPOTENT_FLIGHT_MAX) return false;
        }
    return true;
}

/* Whether the partition may have one more batch in flight; if not, it waits off the list for what will let it go on. */
static bool may_send(struct kc_sender *s, struct kc_part *p) {
    const struct kc_settings *set = s->settings;
    if (p->resequence && !resequence(s, p)) {
        if (p->flight_count == 0) kc_sender_park(s, p, kc_core_now(s->core).mono_us + set->retry_backoff_us);
        else kw_list_remove(&p->link); /* the last answer activates it */
        return false;
    }
    if (set->idempotence && p->producer_id < 0 && s->pid.id < 0) {
        kc_pid_want(&s->pid);
        kc_sender_park(s, p, KW_NEVER);
        return false;
    }
    uint32_t limit = set->idempotence ? KW_MIN((uint32_t)set->producer_in_flight_max, (uint32_t)IDEMPOTENT_FLIGHT_MAX)
                     : set->producer_in_flight_max == 1 ? 1 : UINT32_MAX;
    if (p->flight_count >= limit || (set->idempotence && !window_open(p))) {
        kw_list_remove(&p->link);
        return false;
    }
    return true;
}

static bool pick(struct kc_sender *s, size_t count, struct kc_batch *b) {
    if (count == s->picked_cap) {
        size_t cap = KW_MAX(s->picked_cap * 2, (size_t)16);
        struct kc_batch **n = kw_realloc(s->picked, cap * sizeof *n);
        if (!n) return false;
        s->picked = n;
        s->picked_cap = cap;
    }
    s->picked[count] = b;
    return true;
}

/* One batch from each ready partition, as far as one request may hold them. Partitions with more go to the end of the list. */
static size_t pick_all(struct kc_sender *s, struct kc_pbroker *br) {
    size_t count = 0;
    int64_t size = 0;
    struct kw_list again;
    kw_list_init(&again);
    while (!kw_list_empty(&br->ready)) {
        struct kc_part *p = KW_CONTAINER_OF(br->ready.next, struct kc_part, link);
        if (!may_send(s, p)) continue;
        struct kc_batch *b = head_of(s, p);
        if (!b) {
            kw_list_remove(&p->link);
            continue;
        }
        if ((count > 0 && size + b->len > s->settings->request_bytes_max) || !pick(s, count, b)) break;
        count++;
        size += b->len;
        kw_list_remove(&b->link);
        kw_list_push(&p->flight, &b->link);
        b->state = KC_BATCH_IN_FLIGHT;
        p->flight_count++;
        number(s, p, b);
        kw_list_remove(&p->link);
        if (!kw_list_empty(&p->queue) || p->due) kw_list_push(&again, &p->link);
    }
    struct kw_list *n;
    while ((n = kw_list_shift(&again))) kw_list_push(&br->ready, n);
    return count;
}

static int by_place(const void *a, const void *b) {
    const struct kc_part *x = (*(struct kc_batch *const *)a)->part, *y = (*(struct kc_batch *const *)b)->part;
    if (x->topic->topic != y->topic->topic) return x->topic->topic < y->topic->topic ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Compresses once, then header and CRC. */
static void finish_batch(struct kc_sender *s, struct kc_batch *b, int16_t version) {
    const struct kc_settings *set = s->settings;
    struct kw_batch_header h = {.length = (int32_t)b->len - KW_BATCH_OVERHEAD,
                                .leader_epoch = -1,
                                .magic = 2,
                                .attributes = b->codec,
                                .last_offset_delta = (int32_t)b->count - 1,
                                .base_timestamp = b->base_timestamp,
                                .max_timestamp = b->max_timestamp,
                                .producer_id = b->base_sequence == KC_NO_SEQUENCE ? -1 : b->producer_id,
                                .producer_epoch = b->base_sequence == KC_NO_SEQUENCE ? -1 : b->producer_epoch,
                                .base_sequence = b->base_sequence,
                                .record_count = (int32_t)b->count};
    kw_batch_write_header(b->blk->data, &h);
    if (!b->packed && set->codec != KW_CODEC_NONE && (set->codec != KW_CODEC_ZSTD || version >= VERSION_ZSTD)) {
        bool over;
        size_t size = 0;
        struct kw_blk *n = kc_pool_blk(&s->a->pool, b->len, &over); /* more than it has now is nothing saved */
        kw_err err = n ? kw_batch_compress(s->compressor, set->codec, set->level, b->blk->data, b->len, n->data, b->len, &size) : KW_ENOMEM;
        if (!err && size < b->len) {
            kw_blk_unref(b->blk);
            b->blk = n;
            b->len = (uint32_t)size;
            b->codec = (uint8_t)set->codec;
            b->crc_to = KW_BATCH_HEADER_SIZE; /* what was counted is gone */
            b->crc = 0;
            b->packed = b->final = true;
            return;
        }
        kw_blk_unref(n);
    }
    b->packed = true;
    if (b->crc_to > KW_BATCH_HEADER_SIZE)
        kw_batch_crc_finish(b->blk->data, b->len, b->crc, b->crc_to);
    else
        kw_batch_crc_set(b->blk->data, b->len);
    b->final = true;
}

/* The topics' arrays of one request, in the order of its slots. */
static kw_err fill_topics(struct kc_sender *s, struct kc_produce_rq *r, struct kw_produce_request *m) {
    struct kw_produce_request_topic_produce_data *topics = kw_arena_calloc(&s->arena, r->count, sizeof *topics);
    struct kw_produce_request_partition_produce_data *parts = kw_arena_calloc(&s->arena, r->count, sizeof *parts);
    if (!topics || !parts) return KW_ENOMEM;
    struct kc_ptopic *last = NULL;
    int32_t n = 0;
    for (size_t i = 0; i < r->count; i++) {
        struct kc_slot *slot = &r->slots[i];
        struct kc_batch *b = slot->batch;
        if (!b) continue;
        if (slot->topic != last) {
            const struct kc_topic_meta *meta = kc_metadata_topic(s->core, slot->topic->topic);
            if (!meta) return KW_EINVAL;
            topics[n].name = kw_str_of(meta->name);
            topics[n].topic_id = meta->id;
            topics[n++].partition_data.v = parts;
            last = slot->topic;
        }
        if (!b->final) finish_batch(s, b, r->rq.version);
        m->include_guid_ranges |= b->ids;
        s->batches_sent++;
        s->bytes_sent += b->len;
        slot->topic_id = topics[n - 1].topic_id;
        slot->blk = kw_blk_ref(b->blk);
        parts->index = slot->index;
        parts->records = (struct kw_records){b->blk->data, (int32_t)b->len, NULL};
        parts++;
        topics[n - 1].partition_data.n++;
    }
    m->topic_data.v = topics;
    m->topic_data.n = n;
    return n > 0 ? KW_OK : KC_CANCELLED; /* every batch found its end before its turn came */
}

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct kc_produce_rq *r = rq->ctx;
    struct kc_sender *s = r->s;
    struct kw_produce_request m;
    kw_msg_init(&kw_produce_request_desc, &m);
    m.acks = s->settings->acks;
    m.timeout_ms = (int32_t)KW_MIN(KW_MAX(s->settings->request_timeout_produce_us / 1000, 1), (int64_t)INT32_MAX);
    kw_arena_reset(&s->arena);
    kw_err err = fill_topics(s, r, &m);
    m.include_guid_ranges = m.include_guid_ranges && kc_sender_knows_ids(s, r->broker->node);
    if (!err) err = kw_encode(&kw_produce_request_desc, rq->version, &m, out);
    if (err)
        for (size_t i = 0; i < r->count; i++) { /* nothing of it goes out */
            kw_blk_unref(r->slots[i].blk);
            r->slots[i].blk = NULL;
        }
    return err;
}

static void unpick(struct kc_sender *s, size_t count) {
    for (size_t i = 0; i < count; i++) {
        struct kc_batch *b = s->picked[i];
        kc_sender_detach(s, b);
        kc_sender_queue(s, b->part, b);
        b->part->retry_at_us = kc_core_now(s->core).mono_us + s->settings->retry_backoff_us;
        kw_list_remove(&b->part->link);
        kc_sender_activate(s, b->part);
    }
}

/* One request for the broker; false: nothing to send now. */
static bool send_one(struct kc_sender *s, struct kc_pbroker *br) {
    size_t count = pick_all(s, br);
    if (count == 0) {
        if (!kw_list_empty(&br->ready)) s->held_us = kc_core_now(s->core).mono_us + s->settings->retry_backoff_us; /* no memory */
        return false;
    }
    struct kc_produce_rq *r = kw_malloc(sizeof *r + count * sizeof r->slots[0]);
    if (!r) {
        unpick(s, count);
        return false;
    }
    if (count > 1) qsort(s->picked, count, sizeof s->picked[0], by_place);
    *r = (struct kc_produce_rq){.s = s, .broker = br, .count = count};
    kc_request_init(&r->rq, API_PRODUCE);
    r->rq.version_min = VERSION_MIN;
    r->rq.version_max = VERSION_MAX;
    r->rq.broker = br->node;
    r->rq.channel = KC_CHANNEL_PRODUCE;
    r->rq.answer_timeout_us = s->settings->request_timeout_produce_us; /* and no deadline: each batch's own end comes by itself */
    r->rq.no_answer = s->settings->acks == 0;
    r->rq.encode = encode;
    r->rq.done = kc_sender_answer;
    r->rq.ctx = r;
    for (size_t i = 0; i < count; i++) {
        struct kc_batch *b = s->picked[i];
        struct kc_ptopic *t = b->part->topic;
        r->slots[i] = (struct kc_slot){.batch = b, .topic = t, .rq = r, .index = b->part->index};
        b->slot = &r->slots[i];
        const struct kc_topic_meta *meta = kc_metadata_topic(s->core, t->topic);
        if (!meta || kw_uuid_is_zero(meta->id)) r->rq.version_max = VERSION_BY_NAME_MAX;
    }
    kw_list_init(&r->link);
    kw_list_push(&s->flight, &r->link);
    br->flight++;
    s->flight_count++;
    kc_core_send(s->core, &r->rq);
    return true;
}

static void send_all(struct kc_sender *s, int64_t now_us) {
    s->held_us = KW_NEVER;
    if (s->stopping) return;
    for (struct kw_list *n = s->brokers.next; n != &s->brokers; n = n->next) {
        struct kc_pbroker *br = KW_CONTAINER_OF(n, struct kc_pbroker, link);
        while (br->flight < (size_t)s->settings->producer_in_flight_max && !kw_list_empty(&br->ready)) {
            int64_t held = kc_core_broker_held_until(s->core, br->node);
            if (held > now_us) { /* throttled or reconnecting: batches go on growing meanwhile (CX-12) */
                s->held_us = KW_MIN(s->held_us, held);
                break;
            }
            if (!send_one(s, br)) break;
        }
    }
}

/* ---- Time ---- */

static void unpark(struct kc_sender *s) {
    s->unpark = false;
    s->retry_us = KW_NEVER;
    struct kw_list parked, *n;
    kw_list_init(&parked);
    while ((n = kw_list_shift(&s->parked))) kw_list_push(&parked, n);
    while ((n = kw_list_shift(&parked))) {
        struct kc_part *p = KW_CONTAINER_OF(n, struct kc_part, link);
        if (kc_sender_is_missing(s, p)) kc_sender_fail_missing(s, p);
        kc_sender_activate(s, p); /* which may park it again */
    }
}

static const char *why_waiting(struct kc_sender *s, const struct kc_part *p, char *text, size_t size) {
    int32_t leader = p->index < 0 ? -1 : leader_of(s, p);
    if (leader >= 0 && s->settings->idempotence && p->producer_id < 0 && s->pid.id < 0)
        snprintf(text, size, "no producer id yet: %s", s->pid.last_err ? kc_err_name(s->pid.last_err) : "not answered");
    else if (leader >= 0)
        kc_core_broker_status(s->core, leader, text, size);
    else
        snprintf(text, size, "the partition's leader is not known");
    return text;
}

static void expire(struct kc_sender *s, struct kc_batch *b) {
    char text[256];
    int64_t wall = kc_core_now(s->core).wall_ms;
    const struct kc_topic_meta *m = kc_metadata_topic(s->core, b->part->topic->topic);
    if (!b->attempts) b->attempts = kc_attempts_new();
    kc_err last = kc_attempts_last(b->attempts);
    kc_attempts_note(b->attempts, wall, b->part->index < 0 ? -1 : leader_of(s, b->part), KC_EXPIRED, b->slot ? "await answer" : "queue",
                     why_waiting(s, b->part, text, sizeof text));
    kc_err err = b->part->flight_count == 0 && m && m->err ? m->err : KC_EXPIRED; /* that the topic does not exist says more */
    if (last > 0) snprintf(text, sizeof text, "the last answer was %s: %s", kc_err_name(last), kc_err_text(last));
    kc_sender_complete(s, b, err, kc_sender_outcome(b), text);
}

static void expire_list(struct kc_sender *s, struct kw_list *l, int64_t now_us, int64_t *next_us) {
    for (struct kw_list *n = l->next, *after; n != l; n = after) {
        after = n->next;
        struct kc_batch *b = KW_CONTAINER_OF(n, struct kc_batch, link);
        if (b->deadline_us <= now_us) expire(s, b);
        else *next_us = KW_MIN(*next_us, b->deadline_us);
    }
}

/* Some batch's deadline is due: looks at all of them. Rare, since s->deadline_us is a batch's that was mostly done long ago. */
static void expire_all(struct kc_sender *s, int64_t now_us) {
    int64_t next = KW_NEVER;
    struct kw_list staged, *n;
    kw_list_init(&staged);
    kc_lock_take(&s->a->lock);
    for (n = s->a->sealed.next; n != &s->a->sealed; n = n->next) /* since this turn took the others: the next one looks at them */
        next = KW_MIN(next, KW_CONTAINER_OF(n, struct kc_batch, link)->deadline_us);
    for (n = s->topics.next; n != &s->topics; n = n->next) { /* open ones first: sealed, they are found below */
        struct kc_ptopic *t = KW_CONTAINER_OF(n, struct kc_ptopic, link);
        if (t->staging.open && t->staging.open->deadline_us <= now_us) (void)kc_accum_seal(s->a, &t->staging);
        else if (t->staging.open) next = KW_MIN(next, t->staging.open->deadline_us);
        for (struct kw_list *b = t->staged.next, *after; b != &t->staged; b = after) {
            after = b->next;
            int64_t at = KW_CONTAINER_OF(b, struct kc_batch, link)->deadline_us;
            if (at > now_us) next = KW_MIN(next, at);
            else {
                kw_list_remove(b);
                kw_list_push(&staged, b);
            }
        }
        for (int32_t i = 0; i < t->part_cap; i++) {
            struct kc_part *p = t->parts[i];
            if (!p || !p->open) continue;
            if (p->open->deadline_us > now_us) next = KW_MIN(next, p->open->deadline_us);
            else {
                struct kc_batch *b = kc_accum_seal(s->a, p);
                kw_list_remove(&b->link);
                enqueue(s, p, b);
            }
        }
    }
    kc_lock_give(&s->a->lock);
    while (!kw_list_empty(&staged)) expire(s, KW_CONTAINER_OF(staged.next, struct kc_batch, link));
    for (n = s->parts.next; n != &s->parts; n = n->next) {
        struct kc_part *p = KW_CONTAINER_OF(n, struct kc_part, all_link);
        expire_list(s, &p->queue, now_us, &next);
        expire_list(s, &p->flight, now_us, &next);
    }
    s->deadline_us = next;
}

/* When to look again, and whether a sealed batch could leave before that. true: there is something already. */
static bool arm(struct kc_sender *s, int64_t now_us) {
    struct kc_accum *a = s->a;
    bool room = kw_list_empty(&s->brokers);
    for (struct kw_list *n = s->brokers.next; n != &s->brokers && !room; n = n->next)
        room = KW_CONTAINER_OF(n, struct kc_pbroker, link)->flight < (size_t)s->settings->producer_in_flight_max;
    int64_t next = KW_MIN(KW_MIN(s->deadline_us, s->retry_us), s->held_us);
    kc_lock_take(&a->lock);
    bool more = !kw_list_empty(&a->sealed) || !kw_list_empty(&a->new_topics) || a->pressed;
    next = KW_MIN(KW_MIN(next, s->trim_us), a->deadline_us);
    if (!kw_list_empty(&a->open)) {
        const struct kc_part *p = KW_CONTAINER_OF(a->open.next, struct kc_part, open_link);
        next = KW_MIN(next, p->open->opened_us + (a->flushing ? 0 : s->settings->linger_us));
    }
    /* While records keep coming, look after a linger period anyway: then no sender has to wake us for the batch that it opens. */
    if (s->heartbeat_us > now_us) next = KW_MIN(next, s->heartbeat_us);
    a->stats.in_flight_requests = s->flight_count;
    a->hungry = room && !more;
    a->look_us = more ? INT64_MIN : next;
    kc_lock_give(&a->lock);
    kw_err err = kw_timers_set(kc_core_timers(s->core), &s->timer, KW_MIN(next, KW_NEVER - 1));
    KW_ASSERT(!err); /* it is armed all the time */
    return more;
}

/* The client was closed under us: no record is accepted any more, and what is queued fails. What is in flight ends by itself. */
static void client_stops(struct kc_sender *s) {
    if (!s->client_stopped) {
        s->client_stopped = true;
        kc_lock_take(&s->a->lock);
        s->a->closed = true;
        kc_lock_give(&s->a->lock);
        kc_accum_tell_over(s->a);
    }
    kc_sender_fail_all(s, KC_PURGE_QUEUED, KC_CLOSED);
}

void kc_sender_turn(struct kc_sender *s) {
    int64_t now_us = kc_core_now(s->core).mono_us;
    take(s, now_us);
    if (s->metadata_changed) {
        s->metadata_changed = false;
        kc_sender_topics_changed(s);
        s->unpark = true;
        take(s, now_us); /* what waited for a partition */
    }
    if (now_us >= s->deadline_us) expire_all(s, now_us);
    if (kc_core_stopping(s->core)) client_stops(s);
    if (s->unpark || now_us >= s->retry_us) unpark(s);
    if (s->refused) kc_sender_look_at_refused(s);
    if (now_us >= s->trim_us) {
        s->trim_us = KW_NEVER;
        kc_pool_trim(&s->a->pool);
    }
    send_all(s, now_us);
    kc_sender_deliver(s);
    if (s->client_stopped && !s->end_told && kc_accum_is_ended(s->a)) { /* there is something to learn: that no more will come */
        s->end_told = true;
        s->a->calls.ready(s->a->ctx, KC_READY_REPORTS);
        s->a->calls.signal(s->a->ctx);
    }
    if (arm(s, now_us)) kc_sender_wake(s);
    if (s->stopping && kc_sender_idle(s) && s->stopped) s->stopped(s); /* which may free it */
}
