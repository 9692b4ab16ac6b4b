/* assign.c - what metadata changes for the producer: partition counts, leaders, topics that are gone or made anew; and the records that
 * waited for a partition count. Called by sender.c at the start of a turn. Calls core/metadata, accum. M2, KIP-516, CP-11, CX-02.
 */
#include "sender.h"

/* The list of partitions with a leader, for choices without a key. Without memory the old one stays. */
static void set_available(struct kc_accum *a, struct kc_ptopic *t, const struct kc_topic_meta *m) {
    int32_t *n = kw_malloc((size_t)m->partition_count * sizeof *n), count = 0;
    if (!n) return;
    for (int32_t i = 0; i < m->partition_count; i++)
        if (m->partitions[i].leader >= 0) n[count++] = i;
    bool stuck = true; /* the sticky choice has lost its leader, or is out of range */
    for (int32_t i = 0; i < count; i++) stuck &= n[i] != t->sticky.partition;
    kc_lock_take(&a->lock);
    int32_t *old = t->available;
    t->available = n;
    t->available_count = count == m->partition_count ? 0 : count; /* all: the same as no list */
    if (stuck) t->sticky.partition = -1;
    kc_lock_give(&a->lock);
    kw_free(old);
}

/* ---- Records without a partition ---- */

/* No memory for this one and those behind it in the staged batch: they fail as one. */
static void fail_rest(struct kc_sender *s, struct kc_batch *b, uint32_t from, int64_t moved_bytes, kc_err err) {
    memmove(b->items, b->items + from, (b->count - from) * sizeof *b->items);
    b->count -= from;
    b->waiters = b->silent = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        if (b->items[i].size & KC_ITEM_WAITER) b->waiters++;
        else if (b->items[i].size & KC_ITEM_SILENT) b->silent++;
    }
    b->bytes -= moved_bytes;
    kc_sender_complete(s, b, err, KC_NOT_PERSISTED, NULL);
}

static struct kc_part *part_for(struct kc_accum *a, struct kc_ptopic *t, int32_t count, struct kc_rec *r) {
    const struct kc_settings *set = a->settings;
    if (r->partition >= 0) return kc_accum_part(a, t, r->partition);
    if (!set->partitioner_ignore_keys)
        r->has_hash = kc_partitioner_hash(set->partitioner, r->key.len < 0 ? NULL : r->key.p, (size_t)KW_MAX(r->key.len, 0), &r->hash);
    if (r->has_guid) kc_rec_by_id(r);
    int32_t index = r->has_hash ? (int32_t)(r->hash % (uint32_t)count) : kc_accum_choose(a, t, count);
    return kc_accum_part(a, t, index);
}

/* Each record by itself: with its key, or in turn. */
static void deal_out(struct kc_sender *s, struct kc_ptopic *t, struct kc_batch *b, int32_t count) {
    struct kc_accum *a = s->a;
    struct kw_batch_header h = {.base_timestamp = b->base_timestamp, .record_count = (int32_t)b->count};
    struct kw_record_iter it;
    struct kw_record_view v;
    struct kc_rec_scratch scratch = {0};
    struct kc_rec r;
    int64_t bytes = b->bytes;
    uint32_t i = 0;
    kc_err err = KC_OK;
    kw_record_iter_init(&it, &h, b->blk->data + KW_BATCH_HEADER_SIZE, b->len - KW_BATCH_HEADER_SIZE);
    kc_lock_take(&a->lock);
    for (; i < b->count; i++) {
        int32_t got = kw_record_next(&it, &v);
        KW_ASSERT(got == 1); /* we wrote it */
        err = kc_rec_read(&r, &v, &scratch);
        if (err) break;
        const struct kc_item *item = &b->items[i];
        r.timeout_us = b->timeout_us;
        r.opaque = item->opaque;
        if (item->size & KC_ITEM_WAITER) r.waiter = (struct kc_report_waiter *)(uintptr_t)item->opaque;
        if (item->size & KC_ITEM_SILENT) r.flags = KC_NO_REPORT;
        if (item->size & KC_ITEM_PLACED) r.partition = item->ts_delta;
        struct kc_part *p = part_for(a, t, count, &r);
        err = p ? kc_accum_append(a, p, &r, b) : KC_NO_MEMORY;
        if (err) break;
        if (b->waiters) (void)kc_accum_seal(a, p); /* a thread waits: no lingering */
    }
    int64_t moved = i == b->count ? bytes : kc_accum_cost(b, i);
    t->staging.waiting_bytes -= (uint32_t)moved;
    if (b->hurried) a->pressed = true; /* taken in this turn */
    if (i == b->count) {
        kw_blk_unref(b->blk);
        b->blk = NULL;
        kc_accum_leave_gen(a, b);
        kc_batch_free(a, b);
    }
    kc_lock_give(&a->lock);
    kw_free(scratch.headers);
    if (err) fail_rest(s, b, i, moved, err == KC_QUEUE_FULL ? KC_NO_MEMORY : err);
}

/* The staged batches in order, while new records still queue up behind them; then the count is made known to senders. */
static void assign_staged(struct kc_sender *s, struct kc_ptopic *t, int32_t count) {
    struct kc_accum *a = s->a;
    for (;;) {
        kc_lock_take(&a->lock);
        (void)kc_accum_seal(a, &t->staging);
        struct kw_list *n = kw_list_shift(&t->staged);
        struct kc_batch *b = n ? KW_CONTAINER_OF(n, struct kc_batch, link) : NULL;
        if (!b) {
            t->count = count;
        } else if (!b->keyed) { /* as a whole, as it is */
            struct kc_part *p = kc_accum_part(a, t, kc_accum_choose(a, t, count));
            if (p) {
                (void)kc_accum_seal(a, p); /* what it has of earlier records goes first */
                t->sticky.bytes += b->bytes;
                t->staging.waiting_bytes -= (uint32_t)b->bytes;
                p->waiting_bytes += (uint32_t)b->bytes;
                b->part = p;
                kw_list_push(&a->sealed, &b->link); /* taken below, or in the next turn */
                kc_lock_give(&a->lock);
                continue;
            }
        }
        kc_lock_give(&a->lock);
        if (!b) return;
        if (b->keyed) deal_out(s, t, b, count);
        else kc_sender_complete(s, b, KC_NO_MEMORY, KC_NOT_PERSISTED, NULL);
    }
}

/* ---- Changes ---- */

/* Moves what p has not sent, as far as it was there before a moment, to a list. With the lock. */
static void collect(struct kc_sender *s, struct kc_part *p, int64_t before_us, struct kw_list *out) {
    for (struct kw_list *b = p->queue.next, *after; b != &p->queue; b = after) {
        after = b->next;
        if (KW_CONTAINER_OF(b, struct kc_batch, link)->opened_us >= before_us) continue;
        kw_list_remove(b);
        kw_list_push(out, b);
    }
    if (!p->open || p->open->opened_us >= before_us) return;
    struct kc_batch *b = kc_accum_seal(s->a, p);
    kw_list_remove(&b->link);
    kw_list_push(out, &b->link);
}

static void fail_list(struct kc_sender *s, struct kw_list *l, kc_err err, const char *text) {
    struct kw_list *n;
    while ((n = kw_list_shift(l))) {
        struct kc_batch *b = KW_CONTAINER_OF(n, struct kc_batch, link);
        kc_sender_complete(s, b, err, kc_sender_outcome(b), text);
    }
}

/* The topic cannot be used: fails all that waits for it. What is in flight gets an answer of its own. */
static void fail_topic(struct kc_sender *s, struct kc_ptopic *t, kc_err err, const char *text) {
    struct kw_list failed, *n;
    kw_list_init(&failed);
    kc_lock_take(&s->a->lock);
    (void)kc_accum_seal(s->a, &t->staging);
    while ((n = kw_list_shift(&t->staged))) kw_list_push(&failed, n);
    for (int32_t i = 0; i < t->part_cap; i++)
        if (t->parts[i]) collect(s, t->parts[i], KW_NEVER, &failed);
    kc_lock_give(&s->a->lock);
    fail_list(s, &failed, err, text);
}

static int32_t leader_now(struct kc_sender *s, const struct kc_ptopic *t, int32_t index) {
    const struct kc_topic_meta *m = kc_metadata_topic(s->core, t->topic);
    return m && m->known && index < m->partition_count ? m->partitions[index].leader : -1;
}

/* What came for a refused topic since then (where a leader is known, each batch learns by itself): the brokers are asked once more, and what is
 * older than their answer fails. An answer that changes nothing is not told to us, so we look again. */
void kc_sender_look_at_refused(struct kc_sender *s) {
    s->refused = false;
    for (struct kw_list *n = s->topics.next; n != &s->topics; n = n->next) {
        struct kc_ptopic *t = KW_CONTAINER_OF(n, struct kc_ptopic, link);
        const struct kc_topic_meta *m = kc_metadata_topic(s->core, t->topic);
        if (!t->refused || !m) continue;
        s->refused = true;
        struct kw_list failed;
        kw_list_init(&failed);
        kc_lock_take(&s->a->lock);
        if (t->staging.open && t->staging.open->opened_us < m->updated_us) (void)kc_accum_seal(s->a, &t->staging);
        bool younger = t->staging.open != NULL;
        while (!kw_list_empty(&t->staged) && KW_CONTAINER_OF(t->staged.next, struct kc_batch, link)->opened_us < m->updated_us)
            kw_list_push(&failed, kw_list_shift(&t->staged));
        younger |= !kw_list_empty(&t->staged);
        for (int32_t i = 0; i < t->part_cap; i++) {
            struct kc_part *p = t->parts[i];
            if (!p || leader_now(s, t, i) >= 0) continue;
            collect(s, p, m->updated_us, &failed);
            younger |= p->open || !kw_list_empty(&p->queue);
        }
        kc_lock_give(&s->a->lock);
        fail_list(s, &failed, m->err, kw_kerror_info(m->err)->text);
        if (!younger) continue;
        kc_metadata_refresh(s->core, "records for a topic that was refused");
        s->retry_us = KW_MIN(s->retry_us, kc_core_now(s->core).mono_us + s->settings->retry_backoff_max_us);
    }
}

bool kc_sender_is_missing(struct kc_sender *s, const struct kc_part *p) {
    const struct kc_topic_meta *m = kc_metadata_topic(s->core, p->topic->topic);
    return m && m->known && !m->err && p->index >= m->partition_count;
}

void kc_sender_fail_missing(struct kc_sender *s, struct kc_part *p) {
    const struct kc_topic_meta *m = kc_metadata_topic(s->core, p->topic->topic);
    struct kw_list failed;
    kw_list_init(&failed);
    kc_lock_take(&s->a->lock);
    collect(s, p, m->updated_us, &failed);
    kc_lock_give(&s->a->lock);
    fail_list(s, &failed, KE_UNKNOWN_TOPIC_OR_PARTITION, "the topic has no such partition");
}

/* The same name, another topic: its partitions know nothing of our sequences (CX-02). */
static void made_anew(struct kc_sender *s, struct kc_ptopic *t) {
    for (struct kw_list *n = s->parts.next; n != &s->parts; n = n->next) {
        struct kc_part *p = KW_CONTAINER_OF(n, struct kc_part, all_link);
        if (p->topic == t && p->producer_id >= 0) p->resequence = true;
    }
}

static void topic_changed(struct kc_sender *s, struct kc_ptopic *t, const struct kc_topic_meta *m) {
    t->refused = m->err == KE_INVALID_TOPIC_EXCEPTION || m->err == KE_TOPIC_AUTHORIZATION_FAILED;
    if (t->refused) {
        s->refused = true;
        fail_topic(s, t, m->err, kw_kerror_info(m->err)->text);
        return;
    }
    if (!m->known || m->err || m->partition_count <= 0) return; /* what was known stays: an answer may be wrong for once (CP-11) */
    if (!kw_uuid_is_zero(t->id) && !kw_uuid_is_zero(m->id) && !kw_uuid_eq(t->id, m->id)) made_anew(s, t);
    t->id = m->id;
    set_available(s->a, t, m);
    if (t->count == 0) {
        assign_staged(s, t, m->partition_count);
    } else if (t->count != m->partition_count) {
        kc_lock_take(&s->a->lock);
        t->count = m->partition_count;
        if (t->sticky.partition >= t->count) t->sticky.partition = -1;
        kc_lock_give(&s->a->lock);
    }
}

/* Once encoded a request goes to its broker, cancelled or not. */
static bool is_out(const struct kc_produce_rq *r) {
    for (size_t i = 0; i < r->count; i++)
        if (r->slots[i].blk) return true;
    return false;
}

/* Requests to a broker that no longer leads: those that are not on their way yet are taken back. With idempotence what is on its way is given up too,
 * since the same batch under the same number may be sent again without a doubt (CP-13); without, only its answer tells. */
static void reroute(struct kc_sender *s) {
    for (struct kw_list *n = s->flight.next; n != &s->flight; n = n->next) {
        struct kc_produce_rq *r = KW_CONTAINER_OF(n, struct kc_produce_rq, link);
        bool moved = false, out = is_out(r);
        if (out && !s->settings->idempotence) continue;
        for (size_t i = 0; i < r->count; i++) {
            struct kc_slot *slot = &r->slots[i];
            if (!slot->batch) continue;
            int32_t leader = leader_now(s, slot->topic, slot->index);
            if (leader < 0 || leader == r->broker->node) continue;
            moved = true;
            if (!out) continue;
            struct kc_batch *b = slot->batch;
            kc_sender_give_up(s, b);
            kc_sender_detach(s, b);
            kc_sender_queue(s, b->part, b);
            kc_sender_activate(s, b->part);
        }
        if (moved && !out) kc_core_cancel(s->core, &r->rq);
    }
    for (struct kw_list *n = s->brokers.next; n != &s->brokers; n = n->next) {
        struct kc_pbroker *br = KW_CONTAINER_OF(n, struct kc_pbroker, link);
        for (struct kw_list *k = br->ready.next, *after; k != &br->ready; k = after) {
            after = k->next;
            struct kc_part *p = KW_CONTAINER_OF(k, struct kc_part, link);
            if (leader_now(s, p->topic, p->index) == br->node) continue;
            kw_list_remove(&p->link);
            kc_sender_activate(s, p);
        }
    }
}

void kc_sender_topics_changed(struct kc_sender *s) {
    bool any = false;
    for (struct kw_list *n = s->topics.next; n != &s->topics; n = n->next) {
        struct kc_ptopic *t = KW_CONTAINER_OF(n, struct kc_ptopic, link);
        const struct kc_topic_meta *m = kc_metadata_topic(s->core, t->topic);
        if (!m || (m->generation == t->generation && t->listed)) continue;
        t->generation = m->generation;
        t->listed = true;
        topic_changed(s, t, m);
        any = true;
    }
    if (any) reroute(s);
}
