/* offsets.c - where to start and whether a position still stands: ListOffsets for lookups and queries, OffsetForLeaderEpoch for validation
 * (KIP-320).
 *
 * Loop context. One request a broker and kind at a time carries everything that is due for it. An answer for an older generation of a
 * partition is dropped. Only a real answer of the leader moves a position; failures to ask are retried (CC-10, CC-17).
 */
#include <stdlib.h>

#include "consumer.h"

struct ask_item {
    struct kc_part *part; /* or */
    struct kc_offset_query *query;
    size_t index;
    uint32_t generation;
    int32_t topic, partition;
    int64_t timestamp;
    int32_t leader_epoch, position_epoch;
};
struct ask { /* one request */
    struct kc_request rq;
    struct kw_list link; /* in consume->asks */
    bool cancelled;
    struct kc_consume *consume;
    bool validate; /* OffsetForLeaderEpoch */
    size_t count, cursor;
    struct ask_item items[];
};

int32_t kc_part_broker(struct kc_part *p, int64_t now_us, bool leader_only, int32_t *epoch) {
    *epoch = -1;
    struct kc_topic_meta *t = kc_metadata_topic(p->consume->core, p->topic);
    if (!t || p->partition >= t->partition_count) return -1;
    *epoch = t->partitions[p->partition].leader_epoch;
    if (!leader_only && p->replica >= 0 && now_us < p->replica_until_us) return p->replica;
    return t->partitions[p->partition].leader;
}

int64_t kc_part_backoff(struct kc_part *p, int64_t now_us) {
    const struct kc_settings *s = p->consume->settings;
    int64_t wait = s->retry_backoff_us << KW_MIN(p->errors_in_row, 10);
    if (wait > s->retry_backoff_max_us) wait = s->retry_backoff_max_us;
    p->errors_in_row++;
    wait += (int64_t)kw_rng_below(kc_core_rng(p->consume->core), (uint64_t)(wait / 5 + 1));
    return now_us + wait;
}

/* ---- Encoding ---- */

static int by_topic(const void *a, const void *b) {
    const struct ask_item *x = a, *y = b;
    if (x->topic != y->topic) return x->topic < y->topic ? -1 : 1;
    return x->partition < y->partition ? -1 : x->partition > y->partition;
}

static size_t topic_run(const struct ask *a, size_t from) { /* items of one topic from `from` on */
    size_t to = from + 1;
    while (to < a->count && a->items[to].topic == a->items[from].topic) to++;
    return to - from;
}

static struct kw_str topic_name(struct kc_core *core, int32_t topic) {
    struct kc_topic_meta *t = kc_metadata_topic(core, topic);
    return kw_str_of(t ? t->name : "");
}

static kw_err encode_list(struct kc_request *rq, struct kw_out *out) {
    struct ask *a = rq->ctx;
    struct kw_arena arena;
    kw_arena_init(&arena, 0);
    struct kw_list_offsets_request m;
    kw_msg_init(&kw_list_offsets_request_desc, &m);
    m.replica_id = -1;
    m.isolation_level = a->consume->settings->read_committed;
    m.timeout_ms = (int32_t)KW_MIN(a->consume->settings->request_timeout_us / 1000, INT32_MAX);
    m.topics.v = kw_arena_calloc(&arena, a->count, sizeof *m.topics.v);
    kw_err err = m.topics.v ? KW_OK : KW_ENOMEM;
    for (size_t i = 0, n; err == KW_OK && i < a->count; i += n) {
        n = topic_run(a, i);
        struct kw_list_offsets_request_list_offsets_topic *t = &m.topics.v[m.topics.n++];
        t->name = topic_name(a->consume->core, a->items[i].topic);
        t->partitions.v = kw_arena_calloc(&arena, n, sizeof *t->partitions.v);
        if (!t->partitions.v) err = KW_ENOMEM;
        for (size_t k = 0; err == KW_OK && k < n; k++) {
            const struct ask_item *it = &a->items[i + k];
            t->partitions.v[t->partitions.n++] =
                (struct kw_list_offsets_request_list_offsets_partition){.partition_index = it->partition,
                                                                        .current_leader_epoch = it->leader_epoch,
                                                                        .timestamp = it->timestamp,
                                                                        .max_num_offsets = 1};
        }
    }
    if (err == KW_OK) err = kw_encode(&kw_list_offsets_request_desc, rq->version, &m, out);
    kw_arena_deinit(&arena);
    return err;
}

static kw_err encode_epochs(struct kc_request *rq, struct kw_out *out) {
    struct ask *a = rq->ctx;
    struct kw_arena arena;
    kw_arena_init(&arena, 0);
    struct kw_offset_for_leader_epoch_request m;
    kw_msg_init(&kw_offset_for_leader_epoch_request_desc, &m);
    m.replica_id = -1;
    m.topics.v = kw_arena_calloc(&arena, a->count, sizeof *m.topics.v);
    kw_err err = m.topics.v ? KW_OK : KW_ENOMEM;
    for (size_t i = 0, n; err == KW_OK && i < a->count; i += n) {
        n = topic_run(a, i);
        struct kw_offset_for_leader_epoch_request_offset_for_leader_topic *t = &m.topics.v[m.topics.n++];
        t->topic = topic_name(a->consume->core, a->items[i].topic);
        t->partitions.v = kw_arena_calloc(&arena, n, sizeof *t->partitions.v);
        if (!t->partitions.v) err = KW_ENOMEM;
        for (size_t k = 0; err == KW_OK && k < n; k++) {
            const struct ask_item *it = &a->items[i + k];
            t->partitions.v[t->partitions.n++] = (struct kw_offset_for_leader_epoch_request_offset_for_leader_partition){
                .partition = it->partition, .current_leader_epoch = it->leader_epoch, .leader_epoch = it->position_epoch};
        }
    }
    if (err == KW_OK) err = kw_encode(&kw_offset_for_leader_epoch_request_desc, rq->version, &m, out);
    kw_arena_deinit(&arena);
    return err;
}

/* ---- Answers ---- */

static struct ask_item *find_item(struct ask *a, struct kw_str topic, int32_t partition) {
    for (size_t i = 0; i < a->count; i++) { /* answers come in the order of the request, as a rule: the first look hits */
        size_t at = (a->cursor + i) % a->count;
        struct ask_item *it = &a->items[at];
        if (it->partition == partition && kw_str_eq(topic_name(a->consume->core, it->topic), topic)) {
            a->cursor = at + 1;
            return it;
        }
    }
    return NULL;
}

/* Whether the item is still what was asked for. */
static bool current(const struct ask_item *it) {
    if (it->part) return it->part->assigned && it->part->generation == it->generation;
    return !it->query->finished && !it->query->items[it->index].settled;
}

static void item_failed(struct kc_consume *c, struct ask_item *it, kc_err err, int64_t now_us) {
    if (it->part) {
        it->part->last_error = err;
        it->part->not_before_us = kc_part_backoff(it->part, now_us);
        return;
    }
    struct kc_offset_item *q = &it->query->items[it->index];
    q->tp.err = err;
    q->not_before_us = now_us + KW_MIN(c->settings->retry_backoff_us << KW_MIN(q->errors, 10), c->settings->retry_backoff_max_us);
    q->errors++;
    if (err > 0 && !kw_kerror_info(err)->retriable) {
        q->settled = true;
        it->query->left--;
    }
}

static void item_error(struct kc_consume *c, struct ask_item *it, int16_t code, int64_t now_us) {
    const struct kw_kerror_info *info = kw_kerror_info(code);
    if (info->refresh_metadata) kc_metadata_refresh(c->core, info->name);
    item_failed(c, it, code, now_us);
    if (it->part && !info->retriable && it->part->errors_in_row == 1) {
        kc_error *error = NULL;
        kc_error_make(&error, code, KC_NOT_PERSISTED, NULL, "partition %d: its start offset cannot be looked up: %s", (int)it->partition,
                      info->text);
        kc_part_queue_error(it->part, error, -1);
    }
}

/* Under the lock: the start of a partition is known. */
static void part_found(struct kc_part *p, int64_t offset, int32_t epoch, int64_t now_us) {
    p->errors_in_row = 0;
    p->last_error = KC_OK;
    p->state = KC_PART_FETCHING;
    p->position = p->fetch_offset = offset;
    p->fetch_epoch = epoch;
    p->since_us = now_us;
    p->not_before_us = 0;
}

static void list_answer(struct ask *a, struct ask_item *it, const struct kw_list_offsets_response_list_offsets_partition_response *r,
                        int64_t now_us) {
    if (!current(it)) return;
    if (r->error_code != KE_NONE) {
        item_error(a->consume, it, r->error_code, now_us);
        return;
    }
    int64_t offset = a->rq.version >= 1 ? r->offset : r->old_style_offsets.n > 0 ? r->old_style_offsets.v[0] : -1;
    if (it->part) {
        if (offset < 0)
            item_failed(a->consume, it, KC_BAD_MESSAGE, now_us);
        else
            part_found(it->part, offset, r->leader_epoch, now_us);
        return;
    }
    struct kc_offset_item *q = &it->query->items[it->index];
    q->tp.offset = offset;
    q->tp.leader_epoch = r->leader_epoch;
    q->tp.err = KC_OK;
    q->settled = true;
    it->query->left--;
}

/* The position was consumed under position_epoch; the leader says where that epoch ended. */
static void epoch_answer(struct ask *a, struct ask_item *it, const struct kw_offset_for_leader_epoch_response_epoch_end_offset *r,
                         int64_t now_us) {
    struct kc_part *p = it->part;
    if (!current(it) || p->state != KC_PART_VALIDATE) return;
    if (r->error_code != KE_NONE) {
        item_error(a->consume, it, r->error_code, now_us);
        return;
    }
    p->errors_in_row = 0;
    p->validated_epoch = it->leader_epoch;
    if (r->end_offset < 0 || r->end_offset >= p->fetch_offset) { /* unknown to the leader (no epochs kept), or nothing was lost */
        p->state = KC_PART_FETCHING;
        p->since_us = now_us;
        return;
    }
    int64_t lost_from = r->end_offset, position = p->position;
    if (position <= lost_from) { /* only what was fetched ahead is lost: it is dropped, and nobody has seen it */
        kc_part_restart(p, position, now_us);
        p->fetch_epoch = r->leader_epoch;
        return;
    }
    kc_error *error = NULL;
    kc_error_make(
        &error, KE_OFFSET_OUT_OF_RANGE, KC_NOT_PERSISTED, NULL,
        "partition %d was truncated: offsets %lld to %lld, already consumed, were lost when leader epoch %d ended; going on at %lld",
        (int)p->partition, (long long)lost_from, (long long)position - 1, (int)it->position_epoch, (long long)lost_from);
    kc_part_restart(p, lost_from, now_us);
    p->fetch_epoch = r->leader_epoch;
    kc_part_queue_error(p, error, lost_from);
}

static kw_err read_list(struct ask *a, struct kw_in *body, struct kw_arena *arena, int64_t now_us) {
    struct kw_list_offsets_response m;
    kw_err err = kw_decode(&kw_list_offsets_response_desc, a->rq.version, body, arena, &m);
    if (err != KW_OK) return err;
    kc_core_broker_throttle(a->consume->core, a->rq.sent_to, m.throttle_time_ms);
    for (int32_t t = 0; t < m.topics.n; t++) {
        for (int32_t i = 0; i < m.topics.v[t].partitions.n; i++) {
            struct ask_item *it = find_item(a, m.topics.v[t].name, m.topics.v[t].partitions.v[i].partition_index);
            if (it) list_answer(a, it, &m.topics.v[t].partitions.v[i], now_us);
        }
    }
    return KW_OK;
}

static kw_err read_epochs(struct ask *a, struct kw_in *body, struct kw_arena *arena, int64_t now_us) {
    struct kw_offset_for_leader_epoch_response m;
    kw_err err = kw_decode(&kw_offset_for_leader_epoch_response_desc, a->rq.version, body, arena, &m);
    if (err != KW_OK) return err;
    kc_core_broker_throttle(a->consume->core, a->rq.sent_to, m.throttle_time_ms);
    for (int32_t t = 0; t < m.topics.n; t++) {
        for (int32_t i = 0; i < m.topics.v[t].partitions.n; i++) {
            struct ask_item *it = find_item(a, m.topics.v[t].topic, m.topics.v[t].partitions.v[i].partition);
            if (it) epoch_answer(a, it, &m.topics.v[t].partitions.v[i], now_us);
        }
    }
    return KW_OK;
}

static void release(struct ask *a) { /* under the lock */
    for (size_t i = 0; i < a->count; i++) {
        struct ask_item *it = &a->items[i];
        if (it->part) {
            it->part->lookups--;
            kc_part_unref(it->part);
        } else {
            it->query->items[it->index].asked = false;
            it->query->outstanding--;
        }
    }
    kw_list_remove(&a->link);
    a->consume->requests--;
}

static void answered(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct ask *a = rq->ctx;
    struct kc_consume *c = a->consume;
    (void)blk;
    int64_t now_us = kc_core_now(c->core).mono_us;
    struct kw_arena arena;
    kw_arena_init(&arena, 0);
    kc_lock_take(&c->lock);
    if (err == KC_OK && (a->validate ? read_epochs : read_list)(a, body, &arena, now_us) != KW_OK) err = KC_BAD_MESSAGE;
    for (size_t i = 0; err != KC_OK && i < a->count; i++) {
        struct ask_item *it = &a->items[i];
        if (err == KC_UNSUPPORTED && it->part &&
            a->validate) { /* an old broker keeps no epochs: there is nothing to hold the position against */
            it->part->state = KC_PART_FETCHING;
            it->part->validated_epoch = it->leader_epoch;
        } else if (current(it)) {
            item_failed(c, it, err, now_us);
        }
    }
    if (err != KC_OK && err != KC_CLOSED) kc_metadata_refresh(c->core, "an offset lookup failed");
    release(a);
    kc_lock_give(&c->lock);
    kw_arena_deinit(&arena);
    kw_free(a);
    kc_consume_run(c);
}

/* ---- Asking ---- */

static int32_t query_broker(struct kc_consume *c, const struct kc_offset_item *i, int32_t *epoch);

struct gather {
    struct kc_consume *consume;
    int32_t broker;
    bool validate;
    struct ask *ask;
    size_t cap;
};

static struct ask_item *gather_slot(struct gather *g) {
    if (!g->ask || g->ask->count == g->cap) {
        size_t cap = g->cap ? g->cap * 2 : 16;
        struct ask *grown = kw_realloc(g->ask, sizeof *grown + cap * sizeof *grown->items);
        if (!grown) return NULL;
        if (!g->ask) memset(grown, 0, sizeof *grown);
        g->ask = grown;
        g->cap = cap;
    }
    struct ask_item *it = &g->ask->items[g->ask->count++];
    memset(it, 0, sizeof *it);
    return it;
}

static void gather_part(struct gather *g, struct kc_part *p, int32_t epoch) {
    struct ask_item *it = gather_slot(g);
    if (!it) return; /* no memory: the next run tries again */
    kc_part_ref(p);
    p->lookups++;
    *it = (struct ask_item){.part = p,
                            .generation = p->generation,
                            .topic = p->topic,
                            .partition = p->partition,
                            .timestamp = p->start,
                            .leader_epoch = epoch,
                            .position_epoch = p->fetch_epoch};
}

static void gather_query(struct gather *g, struct kc_offset_query *q, size_t index, int32_t epoch) {
    struct ask_item *it = gather_slot(g);
    if (!it) return;
    q->items[index].asked = true;
    q->outstanding++;
    const kc_topic_partition *tp = &q->items[index].tp;
    *it = (struct ask_item){
        .query = q, .index = index, .topic = tp->topic, .partition = tp->partition, .timestamp = tp->offset, .leader_epoch = epoch};
}

static void gather_send(struct gather *g) {
    struct ask *a = g->ask;
    if (!a) return;
    struct kc_consume *c = g->consume;
    qsort(a->items, a->count, sizeof *a->items, by_topic);
    a->consume = c;
    a->validate = g->validate;
    kc_request_init(&a->rq, g->validate ? KW_API_OFFSET_FOR_LEADER_EPOCH : KW_API_LIST_OFFSETS);
    a->rq.version_min = g->validate ? 2 : 1;
    a->rq.broker = g->broker;
    a->rq.channel = KC_CHANNEL_CONTROL;
    a->rq.deadline_us = KW_NEVER;
    a->rq.encode = g->validate ? encode_epochs : encode_list;
    a->rq.done = answered;
    a->rq.ctx = a;
    c->requests++;
    kw_list_push(&c->asks, &a->link);
    kc_core_send(c->core, &a->rq);
}

/* A broker that no longer leads what it was asked about need not be waited for (CC-17). */
static void cancel_stale(struct kc_consume *c, int64_t now_us) {
    for (struct kw_list *it = c->asks.next; it != &c->asks; it = it->next) {
        struct ask *a = KW_CONTAINER_OF(it, struct ask, link);
        bool stale = c->stopped;
        for (size_t i = 0; i < a->count && !stale; i++) {
            int32_t epoch, broker = a->items[i].part ? kc_part_broker(a->items[i].part, now_us, true, &epoch)
                                                     : query_broker(c, &a->items[i].query->items[a->items[i].index], &epoch);
            stale = broker >= 0 && broker != a->rq.broker;
        }
        if (!stale || a->cancelled) continue;
        a->cancelled = true;
        kc_core_cancel(c->core, &a->rq);
    }
}

static bool part_due(struct kc_part *p, bool validate, int64_t now_us, int64_t *next_us) {
    if (!p->assigned || p->lookups > 0 || p->state != (validate ? KC_PART_VALIDATE : KC_PART_LOOKUP)) return false;
    if (p->not_before_us <= now_us) return true;
    *next_us = KW_MIN(*next_us, p->not_before_us);
    return false;
}

static int32_t query_broker(struct kc_consume *c, const struct kc_offset_item *i, int32_t *epoch) {
    struct kc_topic_meta *t = kc_metadata_topic(c->core, i->tp.topic);
    *epoch = -1;
    if (!t || i->tp.partition >= t->partition_count) return -1;
    *epoch = t->partitions[i->tp.partition].leader_epoch;
    return t->partitions[i->tp.partition].leader;
}

/* Everything of one kind that is due for one broker goes with the first that is found; -1 when nothing is due. */
static int32_t gather_all(struct gather *g, int64_t now_us, int64_t *next_us) {
    struct kc_consume *c = g->consume;
    int32_t epoch;
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (!part_due(p, g->validate, now_us, next_us)) continue;
        int32_t broker = kc_part_broker(p, now_us, true, &epoch);
        if (broker < 0) {
            kc_metadata_refresh(c->core, "a partition's leader is not known");
            continue;
        }
        if (g->broker < 0) g->broker = broker;
        if (g->broker == broker) gather_part(g, p, epoch);
    }
    for (struct kw_list *it = c->queries.next; !g->validate && it != &c->queries; it = it->next) {
        struct kc_offset_query *q = KW_CONTAINER_OF(it, struct kc_offset_query, link);
        *next_us = KW_MIN(*next_us, q->deadline_us);
        for (size_t i = 0; !q->finished && i < q->count; i++) {
            struct kc_offset_item *item = &q->items[i];
            if (item->settled || item->asked) continue;
            if (item->not_before_us > now_us) {
                *next_us = KW_MIN(*next_us, item->not_before_us);
                continue;
            }
            int32_t broker = query_broker(c, item, &epoch);
            if (broker < 0) {
                kc_metadata_refresh(c->core, "a partition's leader is not known");
                continue;
            }
            if (g->broker < 0) g->broker = broker;
            if (g->broker == broker) gather_query(g, q, i, epoch);
        }
    }
    return g->ask ? g->broker : -1;
}

static void finish_queries(struct kc_consume *c, int64_t now_us) {
    for (struct kw_list *it = c->queries.next, *next; it != &c->queries; it = next) {
        next = it->next;
        struct kc_offset_query *q = KW_CONTAINER_OF(it, struct kc_offset_query, link);
        if (q->left > 0 && now_us < q->deadline_us && !q->finished && !c->stopped) continue;
        q->finished = true;
        if (q->outstanding > 0) continue; /* their answers still name it */
        for (size_t i = 0; i < q->count; i++)
            if (!q->items[i].settled && q->items[i].tp.err == KC_OK) q->items[i].tp.err = c->stopped ? KC_CLOSED : KC_TIMED_OUT;
        kw_list_remove(&q->link);
        kc_lock_give(&c->lock);
        q->done(q);
        kc_lock_take(&c->lock);
        next = c->queries.next; /* done may have changed the list */
    }
}

void kc_offsets_run(struct kc_consume *c, int64_t now_us, int64_t *next_us) {
    cancel_stale(c, now_us);
    for (int validate = 0; validate < 2 && !c->stopped; validate++) {
        for (;;) {
            struct gather g = {.consume = c, .broker = -1, .validate = validate};
            if (gather_all(&g, now_us, next_us) < 0) break;
            gather_send(&g);
        }
    }
    finish_queries(c, now_us);
}

void kc_consume_query(struct kc_consume *c, struct kc_offset_query *q) {
    kc_lock_take(&c->lock);
    q->left = q->count;
    for (size_t i = 0; i < q->count; i++) {
        q->items[i].tp.err = KC_OK;
        if (q->items[i].tp.topic <= 0 || q->items[i].tp.partition < 0 || q->items[i].tp.offset < KC_OFFSET_BEGINNING) {
            q->items[i].tp.err = KC_INVALID;
            q->items[i].settled = true;
            q->left--;
        }
    }
    kw_list_push(&c->queries, &q->link);
    kc_lock_give(&c->lock);
    kc_consume_run(c);
}

void kc_consume_query_cancel(struct kc_consume *c, struct kc_offset_query *q) {
    kc_lock_take(&c->lock);
    q->finished = true;
    kc_lock_give(&c->lock);
    kc_consume_run(c);
}
