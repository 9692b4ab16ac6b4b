/* offsets.c - where to start and whether a position still stands: ListOffsets for lookups and queries, OffsetForLeaderEpoch for validation
 * (KIP-320).
 *
 * Loop context. One request a broker and kind at a time carries everything that is due for it. An answer for an older generation of a
 * partition is dropped. Only a real answer of the leader moves a position; failures to ask are retried (CC-10, CC-17).
 */
#include <stdio.h>
#include <stdlib.h>

#include "consumer.h"

#define LATE_US 1000000         /* a broker that takes longer may no longer lead */
#define MISSING_TELL_US 2000000 /* a topic that is being created may be missing for a moment */
#define MISSING_ASK_US_MAX 30000000

struct ask_item {
    struct kc_part *part;          /* or */
    struct kc_offset_query *query; /* NULL too: it was given up meanwhile */
    size_t index;
    uint64_t generation;
    int32_t topic, partition;
    int64_t timestamp;
    int32_t leader_epoch, position_epoch;
    bool answered;
};
struct ask { /* one request */
    struct kc_request rq;
    struct kw_list link; /* in consume->asks */
    bool cancelled;
    int64_t sent_us;
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

int64_t kc_backoff_us(struct kc_consume *c, int32_t errors) {
    const struct kc_settings *s = c->settings;
    int64_t wait = KW_MIN(s->retry_backoff_us << KW_MIN(KW_MAX(errors - 1, 0), 10), s->retry_backoff_max_us);
    return wait + (int64_t)kw_rng_below(kc_core_rng(c->core), (uint64_t)(wait / 5 + 1));
}

int64_t kc_part_backoff(struct kc_part *p, int64_t now_us) {
    if (p->errors_in_row < INT32_MAX) p->errors_in_row++;
    return now_us + kc_backoff_us(p->consume, p->errors_in_row);
}

void kc_part_unled(struct kc_part *p, int64_t now_us) {
    const struct kc_topic_meta *t = kc_metadata_topic(p->consume->core, p->topic);
    kc_metadata_refresh(p->consume->core, "a partition's leader is not known");
    if (!t->known) return;
    kc_err err = t->err != KE_NONE ? t->err : p->partition >= t->partition_count ? KE_UNKNOWN_TOPIC_OR_PARTITION : KE_NONE;
    if (err == KE_NONE) { /* just no leader now */
        p->missing_since_us = 0;
        return;
    }
    p->last_error = err;
    if (p->missing_since_us == 0) p->missing_since_us = now_us;
    int64_t again_us = KW_MIN(KW_MAX(now_us - p->missing_since_us, LATE_US), MISSING_ASK_US_MAX); /* a partition may be added any time */
    p->look_at_us = KW_MIN(p->look_at_us, now_us + again_us);
    int64_t tell_us = p->missing_since_us + (kc_err_retriable(err) ? MISSING_TELL_US : 0);
    if (tell_us > now_us)
        p->look_at_us = KW_MIN(p->look_at_us, tell_us);
    else
        kc_part_tell(p, err, -1, "%s", t->err == KE_NONE ? "the topic has no such partition (yet)" : kc_err_text(err));
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
        t->name = kc_topic_name(a->consume->core, a->items[i].topic);
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
        t->topic = kc_topic_name(a->consume->core, a->items[i].topic);
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
        if (it->partition == partition && kw_str_eq(kc_topic_name(a->consume->core, it->topic), topic)) {
            a->cursor = at + 1;
            it->answered = true;
            return it;
        }
    }
    return NULL;
}

/* Whether the item is still what was asked for. */
static bool current(const struct ask_item *it) {
    if (it->part) return it->part->assigned && it->part->generation == it->generation;
    return it->query && !it->query->items[it->index].settled;
}

static void query_settle(struct ask_item *it, kc_err err) {
    struct kc_offset_item *q = &it->query->items[it->index];
    q->tp.err = err;
    q->settled = true;
    it->query->left--;
}

/* The request or the broker failed: tried again later, where that may help. */
static void item_failed(struct kc_consume *c, struct ask_item *it, kc_err err, int64_t now_us) {
    bool retriable = err == KC_BAD_MESSAGE || err == KC_CANCELLED || kc_err_retriable(err);
    if (it->part) {
        it->part->last_error = err;
        it->part->not_before_us = kc_part_backoff(it->part, now_us);
        if (!retriable)
            kc_part_tell(it->part, err, -1, "its %s cannot be looked up: %s",
                         it->part->state == KC_PART_LOOKUP ? "start offset" : "last epoch", kc_err_text(err));
        return;
    }
    struct kc_offset_item *q = &it->query->items[it->index];
    if (!retriable) {
        query_settle(it, err);
        return;
    }
    q->tp.err = err;
    if (q->errors < INT32_MAX) q->errors++;
    q->not_before_us = now_us + kc_backoff_us(c, q->errors);
}

static void item_error(struct kc_consume *c, struct ask_item *it, int16_t code, int64_t now_us) {
    const struct kw_kerror_info *info = kw_kerror_info(code);
    if (info->refresh_metadata) kc_metadata_refresh(c->core, info->name);
    item_failed(c, it, code, now_us);
}

/* Under the lock: the start of a partition is known. */
static void part_found(struct kc_part *p, int64_t offset, int32_t epoch, int64_t now_us) {
    p->last_error = p->told = KC_OK;
    p->state = KC_PART_FETCHING;
    p->position = p->fetch_offset = offset;
    p->position_epoch = p->fetch_epoch = epoch;
    if (p->begun_at == KC_BEGUN_UNKNOWN) p->begun_at = offset;
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
    if (it->part && it->part->state != KC_PART_LOOKUP) return; /* named twice */
    if (it->part) {
        if (r->offset < 0)
            item_failed(a->consume, it, KC_BAD_MESSAGE, now_us);
        else
            part_found(it->part, r->offset, r->leader_epoch, now_us);
        return;
    }
    struct kc_offset_item *q = &it->query->items[it->index];
    q->tp.offset = r->offset;
    q->tp.leader_epoch = r->leader_epoch;
    query_settle(it, KC_OK);
}

/* What was read before fetch_offset was read under position_epoch; the leader says where that epoch ended. */
static void epoch_answer(struct ask *a, struct ask_item *it, const struct kw_offset_for_leader_epoch_response_epoch_end_offset *r,
                         int64_t now_us) {
    struct kc_part *p = it->part;
    const struct kc_settings *s = a->consume->settings;
    if (!current(it) || p->state != KC_PART_VALIDATE) return;
    if (r->error_code != KE_NONE) {
        item_error(a->consume, it, r->error_code, now_us);
        return;
    }
    p->errors_in_row = 0;
    p->last_error = KC_OK;
    p->validated_epoch = it->leader_epoch;
    p->since_us = now_us;
    if (r->end_offset < 0 || r->end_offset >= p->fetch_offset) { /* unknown to the leader (no epochs kept), or nothing was lost */
        p->state = KC_PART_FETCHING;
        return;
    }
    int64_t end = r->end_offset, position = kc_part_position(p);
    if (position <= end) { /* only what was fetched ahead is gone */
        kc_part_restart(p, position, p->position_epoch, now_us);
        return;
    }
    kc_part_restart(p, end, r->leader_epoch, now_us);
    kc_part_anew(p, end);
    char more[80];
    if (s->offset_reset != 0) {
        snprintf(more, sizeof more, "; going on at offset %lld", (long long)end);
    } else {
        snprintf(more, sizeof more, ", and auto.offset.reset=none: seek to go on");
        p->state = KC_PART_FAILED;
    }
    kc_part_tell_lost(p, end, position, it->position_epoch, more);
}

struct answer { /* decoded before the lock is taken: a large one would hold up poll */
    struct kw_list_offsets_response list;
    struct kw_offset_for_leader_epoch_response epochs;
};

static kc_err decode(struct ask *a, struct kw_in *body, struct kw_arena *arena, struct answer *m) {
    kw_err err = a->validate ? kw_decode(&kw_offset_for_leader_epoch_response_desc, a->rq.version, body, arena, &m->epochs)
                             : kw_decode(&kw_list_offsets_response_desc, a->rq.version, body, arena, &m->list);
    if (err == KW_OK)
        kc_core_broker_throttle(a->consume->core, a->rq.sent_to, a->validate ? m->epochs.throttle_time_ms : m->list.throttle_time_ms);
    return kc_err_from(err);
}

/* Under the lock. */
static void take_list(struct ask *a, const struct kw_list_offsets_response *m, int64_t now_us) {
    for (int32_t t = 0; t < m->topics.n; t++) {
        for (int32_t i = 0; i < m->topics.v[t].partitions.n; i++) {
            struct ask_item *it = find_item(a, m->topics.v[t].name, m->topics.v[t].partitions.v[i].partition_index);
            if (it) list_answer(a, it, &m->topics.v[t].partitions.v[i], now_us);
        }
    }
}

/* Under the lock. */
static void take_epochs(struct ask *a, const struct kw_offset_for_leader_epoch_response *m, int64_t now_us) {
    for (int32_t t = 0; t < m->topics.n; t++) {
        for (int32_t i = 0; i < m->topics.v[t].partitions.n; i++) {
            struct ask_item *it = find_item(a, m->topics.v[t].topic, m->topics.v[t].partitions.v[i].partition);
            if (it) epoch_answer(a, it, &m->topics.v[t].partitions.v[i], now_us);
        }
    }
}

static void give_up_item(struct ask_item *it) { /* under the lock */
    if (it->part) {
        it->part->lookups--;
        if (it->part->lookup_generation == it->generation) it->part->lookup_generation = 0;
        kc_part_look(it->part); /* it is in the assignment's list: that waits for lookups */
        kc_part_unref(it->part);
    } else if (it->query) {
        it->query->items[it->index].asked = false;
    }
}

static void release(struct ask *a) { /* under the lock */
    for (size_t i = 0; i < a->count; i++) give_up_item(&a->items[i]);
    kw_list_remove(&a->link);
    a->consume->requests--;
}

static void answered(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct ask *a = rq->ctx;
    struct kc_consume *c = a->consume;
    (void)blk;
    int64_t now_us = kc_core_now(c->core).mono_us;
    struct kw_arena arena;
    struct answer m;
    kw_arena_init(&arena, 0);
    if (err == KC_OK) err = decode(a, body, &arena, &m);
    kc_lock_take(&c->lock);
    if (err == KC_OK && a->validate) take_epochs(a, &m.epochs, now_us);
    if (err == KC_OK && !a->validate) take_list(a, &m.list, now_us);
    for (size_t i = 0; err == KC_OK && i < a->count; i++) { /* those that the answer passed over */
        if (current(&a->items[i]) && !a->items[i].answered) item_failed(c, &a->items[i], KC_BAD_MESSAGE, now_us);
    }
    for (size_t i = 0; err != KC_OK && i < a->count; i++) {
        struct ask_item *it = &a->items[i];
        if (!current(it)) continue;
        if (err == KC_UNSUPPORTED && a->validate) { /* an old broker keeps no epochs: there is nothing to hold the position against */
            it->part->state = KC_PART_FETCHING;
            it->part->validated_epoch = it->leader_epoch;
        } else if (err != KC_CANCELLED && err != KC_CLOSED) { /* cancelled: asked again at once, of another */
            item_failed(c, it, err, now_us);
        }
    }
    if (err == KC_CLOSED) c->closed = true;
    if (err != KC_OK && err != KC_CLOSED && err != KC_CANCELLED) kc_metadata_refresh(c->core, "an offset lookup failed");
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
        if (!grown) {
            g->consume->short_of_memory = true;
            return NULL;
        }
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
    if (!it) return;
    kc_part_ref(p);
    p->lookups++;
    p->lookup_generation = p->generation;
    p->lookup_validates = g->validate;
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
    const kc_topic_partition *tp = &q->items[index].tp;
    *it = (struct ask_item){
        .query = q, .index = index, .topic = tp->topic, .partition = tp->partition, .timestamp = tp->offset, .leader_epoch = epoch};
}

/* A partition may be named only once in a request: what else is to be asked of it goes with the next, which is gathered right after. */
static void drop_repeated(struct ask *a) {
    size_t kept = 1;
    for (size_t i = 1; i < a->count; i++) {
        if (by_topic(&a->items[i], &a->items[kept - 1]) == 0)
            give_up_item(&a->items[i]);
        else
            a->items[kept++] = a->items[i];
    }
    a->count = kept;
}

static void gather_send(struct gather *g) {
    struct ask *a = g->ask;
    if (!a) return;
    struct kc_consume *c = g->consume;
    qsort(a->items, a->count, sizeof *a->items, by_topic);
    drop_repeated(a);
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
    a->sent_us = kc_core_now(c->core).mono_us;
    c->requests++;
    kw_list_push(&c->asks, &a->link);
    kc_core_send(c->core, &a->rq);
}

/* Whether somebody still waits for it, and its broker may know: one that no longer leads what it was asked about need not be waited for
 * (CC-17). */
static bool is_wanted(const struct ask *a, int64_t now_us) {
    bool any = false;
    for (size_t i = 0; i < a->count; i++) {
        const struct ask_item *it = &a->items[i];
        if (!current(it)) continue;
        int32_t epoch, broker = it->part ? kc_part_broker(it->part, now_us, true, &epoch)
                                         : query_broker(a->consume, &it->query->items[it->index], &epoch);
        if (broker >= 0 && broker != a->rq.broker) return false;
        any = true;
    }
    return any;
}

static void watch(struct kc_consume *c, int64_t now_us, int64_t *next_us) {
    for (struct kw_list *it = c->asks.next; it != &c->asks; it = it->next) {
        struct ask *a = KW_CONTAINER_OF(it, struct ask, link);
        if (a->cancelled) continue;
        if (c->stopped || !is_wanted(a, now_us)) {
            a->cancelled = true;
            kc_core_cancel(c->core, &a->rq);
            continue;
        }
        int64_t late_us = a->sent_us + LATE_US; /* it may be frozen, and another one elected: nothing else would tell */
        if (late_us <= now_us) {
            kc_metadata_refresh(c->core, "an offset lookup takes long");
            late_us = now_us + LATE_US;
        }
        *next_us = KW_MIN(*next_us, late_us);
    }
}

static bool part_due(struct kc_part *p, bool validate, int64_t now_us) {
    if (!p->assigned || p->state != (validate ? KC_PART_VALIDATE : KC_PART_LOOKUP)) return false;
    if (p->lookups > 0 && p->lookup_generation == p->generation && p->lookup_validates == validate) return false;
    if (p->not_before_us <= now_us) return true;
    p->look_at_us = KW_MIN(p->look_at_us, p->not_before_us);
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
    for (struct kw_list *it = c->turn.next; it != &c->turn; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, look_link);
        if (!part_due(p, g->validate, now_us)) continue;
        int32_t broker = kc_part_broker(p, now_us, true, &epoch);
        if (broker < 0) {
            kc_part_unled(p, now_us);
            continue;
        }
        p->missing_since_us = 0;
        if (g->broker < 0) g->broker = broker;
        if (g->broker == broker) gather_part(g, p, epoch);
    }
    for (struct kw_list *it = c->queries.next; !g->validate && it != &c->queries; it = it->next) {
        struct kc_offset_query *q = KW_CONTAINER_OF(it, struct kc_offset_query, link);
        *next_us = KW_MIN(*next_us, q->deadline_us);
        for (size_t i = 0; i < q->count; i++) {
            struct kc_offset_item *item = &q->items[i];
            if (item->settled || item->asked) continue;
            if (!item->wanted) {
                item->wanted = true;
                kc_metadata_want(c->core, item->tp.topic);
            }
            if (item->not_before_us > now_us) {
                *next_us = KW_MIN(*next_us, item->not_before_us);
                continue;
            }
            int32_t broker = query_broker(c, item, &epoch);
            if (broker < 0) {
                kc_metadata_refresh(c->core, "a partition's leader is not known");
                *next_us = KW_MIN(*next_us, now_us + LATE_US);
                continue;
            }
            if (g->broker < 0) g->broker = broker;
            if (g->broker == broker) gather_query(g, q, i, epoch);
        }
    }
    return g->ask ? g->broker : -1;
}

/* Nothing that is still outstanding names it any more. */
static void query_detach(struct kc_consume *c, struct kc_offset_query *q) {
    kw_list_remove(&q->link);
    for (struct kw_list *it = c->asks.next; it != &c->asks; it = it->next) {
        struct ask *a = KW_CONTAINER_OF(it, struct ask, link);
        for (size_t i = 0; i < a->count; i++)
            if (a->items[i].query == q) a->items[i].query = NULL;
    }
    for (size_t i = 0; i < q->count; i++)
        if (q->items[i].wanted) kc_metadata_unwant(c->core, q->items[i].tp.topic);
}

static kc_err unsettled_error(struct kc_consume *c, const struct kc_offset_query *q, const struct kc_offset_item *item) {
    if (q->cancelled) return KC_CANCELLED;
    if (c->stopped || c->closed) return KC_CLOSED;
    if (item->tp.err != KC_OK) return item->tp.err;
    const struct kc_topic_meta *t = kc_metadata_topic(c->core, item->tp.topic);
    if (t->known && t->err != KE_NONE) return t->err;
    return t->known && item->tp.partition >= t->partition_count ? KE_UNKNOWN_TOPIC_OR_PARTITION : KC_TIMED_OUT;
}

static void finish_queries(struct kc_consume *c, int64_t now_us) {
    struct kw_list done, *it, *next;
    kw_list_init(&done);
    for (it = c->queries.next; it != &c->queries; it = next) {
        next = it->next;
        struct kc_offset_query *q = KW_CONTAINER_OF(it, struct kc_offset_query, link);
        if (q->left > 0 && now_us < q->deadline_us && !q->cancelled && !c->stopped && !c->closed) continue;
        query_detach(c, q);
        for (size_t i = 0; i < q->count; i++)
            if (!q->items[i].settled) q->items[i].tp.err = unsettled_error(c, q, &q->items[i]);
        kw_list_push(&done, &q->link);
    }
    if (kw_list_empty(&done)) return;
    kc_lock_give(&c->lock);
    while ((it = kw_list_shift(&done)) != NULL) {
        struct kc_offset_query *q = KW_CONTAINER_OF(it, struct kc_offset_query, link);
        q->done(q);
    }
    kc_lock_take(&c->lock);
}

void kc_offsets_settle(struct kc_consume *c, int64_t now_us, int64_t *next_us) {
    finish_queries(c, now_us);
    watch(c, now_us, next_us);
}

void kc_offsets_ask(struct kc_consume *c, bool validate, int64_t now_us, int64_t *next_us) {
    while (!c->stopped && !c->closed) {
        struct gather g = {.consume = c, .broker = -1, .validate = validate};
        if (gather_all(&g, now_us, next_us) < 0) break;
        gather_send(&g);
        *next_us = KW_MIN(*next_us, now_us + LATE_US); /* to watch it */
    }
}

void kc_consume_query(struct kc_consume *c, struct kc_offset_query *q) {
    kc_lock_take(&c->lock);
    q->left = q->count;
    for (size_t i = 0; i < q->count; i++) {
        const kc_topic_partition *tp = &q->items[i].tp;
        bool valid = kc_metadata_topic(c->core, tp->topic) && tp->partition >= 0 && tp->offset >= KC_OFFSET_BEGINNING;
        q->items[i].tp.err = valid ? KC_OK : KC_INVALID;
        q->items[i].settled = !valid;
        if (!valid) q->left--;
    }
    kw_list_push(&c->queries, &q->link);
    kc_lock_give(&c->lock);
    kc_consume_run(c);
}

void kc_consume_query_cancel(struct kc_consume *c, struct kc_offset_query *q) {
    q->cancelled = true;
    kc_consume_run(c);
}
