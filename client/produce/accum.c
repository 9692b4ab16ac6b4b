/* accum.c - records into open batches. Called by handle_producer.c in any thread, by sender.c and assign.c in loop context, with the lock.
 * Calls pool, partitioner, guid, wire/batch. C2, KIP-480/794, KIP-91 (a batch's deadline is its first record's).
 */
#include "accum.h"

#include "../base/crc32c.h"

#include <kclient/kclient.h>

enum {
    RECORD_COST = 8,
    RECORD_OVERHEAD = 8, /* length, attributes, deltas: as good as always */
    ITEMS_FIRST = 64,
    SPARE_MAX = 256,
    HINT_ITEMS_MAX = 1 << 15,
    CRC_PIECE = 24 << 10
};

static int64_t cost_of(const struct kc_rec *r) { return (int64_t)r->tail + RECORD_COST; }

static int64_t add_saturating(int64_t a, int64_t b) {
    int64_t sum;
    return b < 0 || __builtin_add_overflow(a, b, &sum) ? KW_NEVER : sum;
}

/* ---- Life ---- */

kw_err kc_accum_init(struct kc_accum *a, const struct kc_settings *s, struct kc_budget *budget, uint64_t seed, struct kc_now now,
                     const struct kc_accum_calls *calls, void *ctx) {
    *a = (struct kc_accum){.settings = s, .calls = *calls, .ctx = ctx, .now = now, .look_us = KW_NEVER, .deadline_us = KW_NEVER};
    a->records_max = s->queue_records_max;
    a->bytes_max = s->queue_bytes_max;
    a->crc_piece = s->codec == KW_CODEC_NONE ? CRC_PIECE : UINT32_MAX; /* of the compressed bytes, it is the sender's to take */
    kw_list_init(&a->new_topics);
    kw_list_init(&a->space_waiters);
    kw_list_init(&a->open);
    kw_list_init(&a->due);
    kw_list_init(&a->sealed);
    kw_list_init(&a->reports);
    kw_list_init(&a->flushes);
    kw_rng_init(&a->rng, seed);
    uint32_t ignored;
    a->null_hashes = kc_partitioner_hash(s->partitioner, NULL, 0, &ignored);
    kw_err err = kc_pool_init(&a->pool, budget);
    if (err) return err;
    err = kc_lock_init(&a->lock, KC_RANK_ROLE);
    if (err) kc_pool_deinit(&a->pool);
    return err;
}

static void drop(struct kc_accum *a, struct kc_batch *b) {
    if (!b) return;
    kw_blk_unref(b->blk);
    b->blk = NULL;
    kc_batch_free(a, b);
}

static void drop_list(struct kc_accum *a, struct kw_list *l) {
    struct kw_list *n;
    while ((n = kw_list_shift(l))) drop(a, KW_CONTAINER_OF(n, struct kc_batch, link));
}

static void part_deinit(struct kc_accum *a, struct kc_part *p) {
    drop(a, p->open);
    drop_list(a, &p->queue);
    drop_list(a, &p->flight);
}

void kc_accum_deinit(struct kc_accum *a) {
    kc_lock_take(&a->lock);
    drop_list(a, &a->sealed);
    drop_list(a, &a->reports);
    for (int32_t i = 0; i < a->topic_cap; i++) {
        struct kc_ptopic *t = a->topics[i];
        if (!t) continue;
        drop_list(a, &t->staged);
        part_deinit(a, &t->staging);
        for (int32_t p = 0; p < t->part_cap; p++)
            if (t->parts[p]) {
                part_deinit(a, t->parts[p]);
                kw_free(t->parts[p]);
            }
        kw_free(t->parts);
        kw_free(t->queued);
        kw_free(t->available);
        kw_free(t);
    }
    kw_free(a->topics);
    while (a->spare) {
        struct kc_batch *b = a->spare;
        a->spare = (struct kc_batch *)(void *)b->link.next;
        kw_free(b);
    }
    kc_lock_give(&a->lock);
    kc_lock_deinit(&a->lock);
    kc_pool_deinit(&a->pool);
}

/* ---- Batches ---- */

struct kc_batch *kc_batch_new(struct kc_accum *a, struct kc_part *p) {
    struct kc_batch *b = a->spare;
    if (b) {
        a->spare = (struct kc_batch *)(void *)b->link.next;
        a->spare_count--;
    } else if (!(b = kw_malloc(sizeof *b))) {
        return NULL;
    }
    *b = (struct kc_batch){.part = p,
                           .len = KW_BATCH_HEADER_SIZE,
                           .crc_to = KW_BATCH_HEADER_SIZE,
                           .base_sequence = KC_NO_SEQUENCE,
                           .producer_id = -1,
                           .producer_epoch = -1,
                           .base_offset = -1,
                           .log_append_ms = -1,
                           .bad_index = -1,
                           .gen = a->gen};
    kw_list_init(&b->link);
    a->gen_pending++;
    return b;
}

void kc_batch_free(struct kc_accum *a, struct kc_batch *b) {
    KW_ASSERT(!b->blk);
    kc_pool_give(&a->pool, b->items, b->items_bytes);
    kc_attempts_unref(b->attempts);
    kw_free(b->detail);
    kw_free(b->dups);
    if (a->spare_count == SPARE_MAX) {
        kw_free(b);
        return;
    }
    b->link.next = (struct kw_list *)(void *)a->spare;
    a->spare = b;
    a->spare_count++;
}

int64_t kc_batch_size(const struct kc_batch *b) { return b->len; }

static size_t batch_limit(const struct kc_accum *a, const struct kc_part *p) {
    int64_t limit = KW_MIN(a->settings->batch_bytes_max, a->settings->request_bytes_max);
    if (p->size_limit > 0) limit = KW_MIN(limit, p->size_limit);
    return (size_t)limit;
}

/* KC_QUEUE_FULL when it was the budget that refused: a release of what is queued helps. Nothing queued: nothing will. */
static kc_err no_block(struct kc_accum *a, bool over_budget) {
    if (!over_budget || a->records == 0) return KC_NO_MEMORY;
    a->starved = true;
    return KC_QUEUE_FULL;
}

static kc_err open_batch(struct kc_accum *a, struct kc_part *p, size_t need, int64_t timestamp_ms, int64_t timeout_us, const struct kc_now *now) {
    bool over = false;
    struct kc_batch *b = kc_batch_new(a, p);
    if (!b) return KC_NO_MEMORY;
    size_t want = KW_MAX((size_t)p->size_hint, KC_BATCH_FIRST_SIZE);
    b->blk = kc_pool_blk(&a->pool, KW_MAX(want, need), &over);
    if (!b->blk && want > need) b->blk = kc_pool_blk(&a->pool, need, &over);
    if (b->blk) {
        size_t count = KW_MIN(KW_MAX((size_t)p->count_hint, (size_t)ITEMS_FIRST), (size_t)a->settings->batch_records_max);
        b->items = kc_pool_take(&a->pool, count * sizeof(struct kc_item), &b->items_bytes, &over);
    }
    if (!b->items) {
        kw_blk_unref(b->blk);
        b->blk = NULL;
        b->items_bytes = 0;
        a->gen_pending--;
        kc_batch_free(a, b);
        return no_block(a, over);
    }
    b->item_cap = (uint32_t)(b->items_bytes / sizeof(struct kc_item));
    b->limit = (uint32_t)KW_MAX(batch_limit(a, p), need);
    b->room = KW_MIN(b->limit, b->blk->cap);
    b->base_timestamp = b->max_timestamp = timestamp_ms;
    b->timeout_us = timeout_us;
    b->opened_us = now->mono_us;
    b->deadline_us = add_saturating(now->mono_us, timeout_us);
    p->open = b;
    if (p->index >= 0) kw_list_push(&a->open, &p->open_link);
    return KC_OK;
}

static kc_err grow_block(struct kc_accum *a, struct kc_batch *b, size_t size) {
    size_t need = b->len + size, want = KW_MIN((b->blk->cap & ~(KC_POOL_SLACK - 1)) * 4, (size_t)b->limit);
    bool over;
    struct kw_blk *n = kc_pool_blk(&a->pool, KW_MAX(want, need), &over);
    if (!n && want > need) n = kc_pool_blk(&a->pool, need, &over);
    if (!n) return no_block(a, over);
    memcpy(n->data + KW_BATCH_HEADER_SIZE, b->blk->data + KW_BATCH_HEADER_SIZE, b->len - KW_BATCH_HEADER_SIZE);
    kw_blk_unref(b->blk);
    b->blk = n;
    b->room = KW_MIN(b->limit, n->cap);
    return KC_OK;
}

static kc_err grow_items(struct kc_accum *a, struct kc_batch *b) {
    bool over;
    size_t cap;
    struct kc_item *n = kc_pool_take(&a->pool, b->items_bytes * 2, &cap, &over);
    if (!n) return no_block(a, over);
    memcpy(n, b->items, b->count * sizeof *n);
    kc_pool_give(&a->pool, b->items, b->items_bytes);
    b->items = n;
    b->items_bytes = cap;
    b->item_cap = (uint32_t)KW_MIN(cap / sizeof *n, (size_t)INT32_MAX);
    return KC_OK;
}

struct kc_batch *kc_accum_seal(struct kc_accum *a, struct kc_part *p) {
    struct kc_batch *b = p->open;
    if (!b) return NULL;
    p->open = NULL;
    b->state = KC_BATCH_SEALED;
    p->size_hint = b->len >= p->size_hint ? b->len : p->size_hint - (p->size_hint - b->len) / 4;
    p->count_hint = b->count >= p->count_hint ? KW_MIN(b->count, (uint32_t)HINT_ITEMS_MAX) : p->count_hint - (p->count_hint - b->count) / 4;
    if (p->size_hint > batch_limit(a, p)) p->size_hint = (uint32_t)batch_limit(a, p);
    if (p->index < 0) {
        kw_list_push(&p->topic->staged, &b->link);
    } else {
        kw_list_remove(&p->open_link);
        kw_list_push(&a->sealed, &b->link);
    }
    return b;
}

void kc_accum_seal_all(struct kc_accum *a) {
    struct kw_list *lists[] = {&a->open, &a->due};
    for (size_t i = 0; i < KW_COUNTOF(lists); i++)
        while (!kw_list_empty(lists[i])) (void)kc_accum_seal(a, KW_CONTAINER_OF(lists[i]->next, struct kc_part, open_link));
    for (int32_t i = 0; i < a->topic_cap; i++)
        if (a->topics[i]) (void)kc_accum_seal(a, &a->topics[i]->staging);
}

/* ---- Topics and partitions ---- */

static void part_init(struct kc_part *p, struct kc_ptopic *t, int32_t index) {
    *p = (struct kc_part){.topic = t, .index = index, .leader = -1, .producer_id = -1, .producer_epoch = -1};
    kw_list_init(&p->open_link);
    kw_list_init(&p->link);
    kw_list_init(&p->all_link);
    kw_list_init(&p->queue);
    kw_list_init(&p->flight);
}

kc_err kc_accum_add_topic(struct kc_accum *a, int32_t topic) {
    kc_err err = KC_OK;
    kc_lock_take(&a->lock);
    if (topic >= a->topic_cap) {
        int32_t cap = KW_MAX(topic + 1, a->topic_cap * 2);
        struct kc_ptopic **n = kw_realloc(a->topics, (size_t)cap * sizeof *n);
        if (!n) {
            err = KC_NO_MEMORY;
            goto out;
        }
        memset(n + a->topic_cap, 0, (size_t)(cap - a->topic_cap) * sizeof *n);
        a->topics = n;
        a->topic_cap = cap;
    }
    if (a->topics[topic]) goto out; /* another thread was faster */
    struct kc_ptopic *t = kw_calloc(1, sizeof *t);
    if (!t) {
        err = KC_NO_MEMORY;
        goto out;
    }
    t->topic = topic;
    kw_list_init(&t->staged);
    kc_sticky_init(&t->sticky);
    part_init(&t->staging, t, -1);
    kw_list_push(&a->new_topics, &t->link);
    a->topics[topic] = t;
out:
    kc_lock_give(&a->lock);
    return err;
}

static struct kc_ptopic *topic_of(const struct kc_accum *a, int32_t topic) {
    return topic > 0 && topic < a->topic_cap ? a->topics[topic] : NULL;
}

int32_t kc_accum_partition_count(struct kc_accum *a, int32_t topic) {
    kc_lock_take(&a->lock);
    struct kc_ptopic *t = topic_of(a, topic);
    int32_t count = t ? t->count : -1;
    kc_lock_give(&a->lock);
    return count;
}

static struct kc_part *make_part(struct kc_ptopic *t, int32_t index) {
    if (index >= t->part_cap) {
        int32_t cap = KW_MAX(KW_MAX(index + 1, t->count), KW_MIN(t->part_cap * 2, KC_PARTITION_MAX + 1));
        struct kc_part **n = kw_realloc(t->parts, (size_t)cap * sizeof *n);
        if (!n) return NULL;
        t->parts = n;
        memset(n + t->part_cap, 0, (size_t)(cap - t->part_cap) * sizeof *n);
        t->part_cap = cap;
    }
    struct kc_part *p = kw_malloc(sizeof *p);
    if (!p) return NULL;
    part_init(p, t, index);
    return t->parts[index] = p;
}

struct kc_part *kc_accum_make_part(struct kc_ptopic *t, int32_t index) {
    KW_ASSERT(index >= 0 && index <= KC_PARTITION_MAX);
    return make_part(t, index);
}

/* Bytes waiting for each partition that can be chosen. false: no memory, so choose evenly. */
static bool queued_of(struct kc_ptopic *t, const struct kc_choice *c) {
    int32_t n = c->available_count > 0 ? c->available_count : c->count;
    uint32_t *q = kw_realloc(t->queued, (size_t)n * sizeof *q);
    if (!q) return false;
    t->queued = q;
    for (int32_t i = 0; i < n; i++) {
        int32_t index = c->available_count > 0 ? c->available[i] : i;
        q[i] = index < t->part_cap && t->parts[index] ? t->parts[index]->waiting_bytes : 0;
    }
    return true;
}

int32_t kc_accum_choose(struct kc_accum *a, struct kc_ptopic *t, int32_t count) {
    const struct kc_settings *s = a->settings;
    struct kc_choice c = {.count = count, .available = t->available, .available_count = t->available_count};
    if (s->partitioner == KC_PARTITIONER_ROUND_ROBIN) return kc_choose_next(&t->sticky, &c, &a->rng);
    if (s->partitioner == KC_PARTITIONER_RANDOM) return kc_choose_random(&c, &a->rng);
    if (t->sticky.partition < 0 || t->sticky.bytes >= s->batch_bytes_max || a->now.mono_us >= t->sticky.until_us) {
        if (s->partitioner_adaptive && queued_of(t, &c)) c.queued = t->queued;
        t->sticky.partition = kc_choose_random(&c, &a->rng);
        t->sticky.bytes = 0;
        t->sticky.until_us = s->sticky_linger_us > 0 ? add_saturating(a->now.mono_us, s->sticky_linger_us) : KW_NEVER;
    }
    return t->sticky.partition;
}

static bool waits_for_count(const struct kc_accum *a, const struct kc_rec *r) {
    return r->has_hash || a->settings->partitioner == KC_PARTITIONER_ROUND_ROBIN || a->settings->partitioner == KC_PARTITIONER_RANDOM;
}

static inline struct kc_part *pick(struct kc_accum *a, struct kc_ptopic *t, const struct kc_rec *r, int64_t cost) {
    if (KW_UNLIKELY(t->count == 0 && (r->partition < 0 || t->staging_used))) { /* those that wait may turn out to be for the same partition */
        t->staging_used = true;
        return &t->staging;
    }
    if (r->partition >= 0) return kc_accum_part(a, t, r->partition);
    if (r->has_hash) return kc_accum_part(a, t, (int32_t)(r->hash % (uint32_t)t->count));
    int32_t index = t->sticky.partition;
    if (KW_UNLIKELY(index < 0 || t->sticky.bytes >= a->settings->batch_bytes_max || a->now.mono_us >= t->sticky.until_us))
        index = kc_accum_choose(a, t, t->count);
    t->sticky.bytes += cost;
    return kc_accum_part(a, t, index);
}

/* ---- Records ---- */

/* The id that the record has, or is to have. A header of the caller's may be it: so ids go on with records that are copied. */
static kc_err id_of(struct kc_rec *r, bool make) {
    const uint8_t *id;
    size_t named = r->header_count > 0 ? kc_guid_headers(r->headers, r->header_count, &id) : 0;
    if (named > 0) {
        if (r->has_guid || (make && !id)) return KC_BAD_GUID;
        if (!id) return KC_OK; /* a header like any other, unless the topic knows better */
        memcpy(r->guid, id, sizeof r->guid);
        r->has_guid = true;
    } else if (r->has_guid || make) {
        r->headers[r->header_count++] = (struct kw_header_view){
            .key = {KC_GUID_HEADER, (int32_t)sizeof KC_GUID_HEADER - 1}, .value = {r->guid, sizeof r->guid}};
    }
    return KC_OK;
}

kc_err kc_accum_prepare(struct kc_accum *a, struct kc_rec *r) {
    const struct kc_settings *s = a->settings;
    if (r->has_guid || s->enable_guid || r->header_count > 0) {
        kc_err err = id_of(r, s->enable_guid);
        if (err) return err;
    }
    size_t headers = r->header_count > 0 ? kw_record_headers_size(r->headers, r->header_count) : 0;
    if (headers == SIZE_MAX) return KC_TOO_LARGE;
    r->payload = (uint32_t)(KW_MAX(r->key.len, 0)) + (uint32_t)KW_MAX(r->value.len, 0);
    r->tail = kw_varint_size(r->key.len) + kw_varint_size(r->value.len) + kw_uvarint_size(2 * (uint64_t)r->header_count) + headers + r->payload;
    if (r->payload > KC_ITEM_SIZE_MAX || r->tail + RECORD_OVERHEAD + KW_BATCH_HEADER_SIZE > (size_t)s->request_bytes_max ||
        cost_of(r) > s->queue_bytes_max)
        return KC_TOO_LARGE;
    if (r->partition < 0 && !s->partitioner_ignore_keys && (r->key.len >= 0 || a->null_hashes))
        r->has_hash = kc_partitioner_hash(s->partitioner, r->key.len < 0 ? NULL : r->key.p, (size_t)KW_MAX(r->key.len, 0), &r->hash);
    if (r->timeout_us == 0) r->timeout_us = s->delivery_timeout_us;
    return KC_OK;
}

/* Where no key does, an id decides the partition, so that the same id meets its first copy whoever sends it again. */
static void give_id(struct kc_accum *a, struct kc_rec *r) {
    if (!r->has_guid) {
        kc_guid_next(&a->guid, &a->rng, a->now.wall_ms, r->guid);
        r->has_guid = true;
    }
    kc_rec_by_id(r);
}

/* Whether the record may share the batch's deadline: it may end a little early for it, as records that join late do anyway. */
static bool same_deadline(const struct kc_accum *a, const struct kc_batch *b, int64_t timeout_us) {
    if (KW_LIKELY(b->timeout_us == timeout_us)) return true;
    if (timeout_us < 0 || b->timeout_us < 0) return false;
    int64_t slack = KW_MAX(timeout_us >> 6, (int64_t)10000), at = add_saturating(a->now.mono_us, timeout_us);
    return at >= b->deadline_us && at - b->deadline_us <= slack;
}

/* Bytes of the record behind its length prefix, as the next one of b (NULL: a new batch). */
static inline size_t body_of(const struct kc_batch *b, const struct kc_rec *r, int64_t ts) {
    return 1 + kw_varint_size(b ? ts - b->base_timestamp : 0) + kw_varint_size(b ? b->count : 0) + r->tail;
}
static inline size_t size_of(size_t body) { return kw_uvarint_size(2 * (uint64_t)body) + body; }

/* Whether the record may go on in the open batch, its bytes aside. */
static inline bool same_batch(const struct kc_accum *a, const struct kc_batch *b, const struct kc_rec *r, int64_t ts) {
    int64_t delta = (int64_t)((uint64_t)ts - (uint64_t)b->base_timestamp);
    bool far = (int32_t)delta != delta; /* an item keeps 32 bits of it */
    return KW_LIKELY(!far) && same_deadline(a, b, r->timeout_us);
}

/* Room in p's open batch for the record, sealing, opening and growing as needed. */
static kc_err make_room(struct kc_accum *a, struct kc_part *p, const struct kc_rec *r, int64_t ts, const struct kc_now *now, bool *opened) {
    struct kc_batch *b = p->open;
    if (b && (!same_batch(a, b, r, ts) || b->len + size_of(body_of(b, r, ts)) > b->limit)) {
        (void)kc_accum_seal(a, p);
        b = NULL;
    }
    size_t size = size_of(body_of(b, r, ts));
    if (!b) {
        *opened = true;
        return open_batch(a, p, KW_BATCH_HEADER_SIZE + size, ts, r->timeout_us, now);
    }
    kc_err err = KC_OK;
    if (b->len + size > b->room) err = grow_block(a, b, size);
    if (!err && b->count == b->item_cap) err = grow_items(a, b);
    return err;
}

/* There is room. */
static inline void write_record(const struct kc_accum *a, struct kc_part *p, struct kc_batch *b, const struct kc_rec *r, int64_t ts, size_t body,
                                int64_t cost) {
    const struct kw_record_in in = {.timestamp_delta = ts - b->base_timestamp,
                                    .offset_delta = (int32_t)b->count,
                                    .key = r->key,
                                    .value = r->value,
                                    .headers = r->headers,
                                    .header_count = r->header_count};
    uint8_t *at = b->blk->data + b->len, *end = kw_record_write_body(at, &in, body);
    uint32_t flags = 0;
    if (KW_UNLIKELY(r->waiter != NULL)) {
        flags = KC_ITEM_WAITER;
        b->waiters++;
    } else if (r->flags & KC_NO_REPORT) {
        flags = KC_ITEM_SILENT;
        b->silent++;
    }
    b->ids |= r->has_guid;
    struct kc_item *item = &b->items[b->count++];
    item->opaque = KW_UNLIKELY(r->waiter != NULL) ? (uint64_t)(uintptr_t)r->waiter : r->opaque;
    item->size = r->payload | flags;
    item->ts_delta = (int32_t)in.timestamp_delta;
    b->len += (uint32_t)(end - at);
    KW_ASSERT(b->len <= b->blk->cap && b->count <= b->item_cap);
    if (ts > b->max_timestamp) b->max_timestamp = ts;
    if (KW_UNLIKELY(b->len - b->crc_to >= a->crc_piece)) {
        b->crc = kw_crc32c(b->crc, b->blk->data + b->crc_to, b->len - b->crc_to);
        b->crc_to = b->len;
    }
    b->bytes += cost;
    p->waiting_bytes += (uint32_t)cost;
}

/* The sender has something to look at from `at_us` on. */
static void want_look(struct kc_accum *a, int64_t at_us, bool *wake) {
    if (at_us >= a->look_us) return;
    a->look_us = at_us;
    *wake = true;
}
static void want_sealed(struct kc_accum *a, bool *wake) {
    if (!a->hungry) return;
    a->hungry = false;
    *wake = true;
}

/* The queue is full, or somebody waits: what lingers goes out now. */
static void press(struct kc_accum *a, bool *wake) {
    if (a->pressed) return;
    a->pressed = true;
    want_look(a, INT64_MIN, wake);
}

/* A new batch, or one that is full or too small by now. */
static kc_err append_slowly(struct kc_accum *a, struct kc_part *p, struct kc_rec *r, int64_t *ts, const struct kc_now *now, bool *wake) {
    struct kc_now opening = a->now;
    if (!now) { /* a new batch gets the exact time */
        opening = a->now = a->calls.clock(a->ctx);
        if (!r->has_timestamp) *ts = opening.wall_ms;
    }
    bool opened = false;
    struct kc_batch *before = p->open;
    kc_err err = make_room(a, p, r, *ts, &opening, &opened);
    if (before && p->open != before) want_sealed(a, wake);
    if (err || !opened) return err;
    want_look(a, add_saturating(p->open->opened_us, a->flushing ? 0 : a->settings->linger_us), wake);
    want_look(a, p->open->deadline_us, wake);
    a->deadline_us = KW_MIN(a->deadline_us, p->open->deadline_us);
    return KC_OK;
}

/* What dealing the batch out will have to know of its last record. */
static void mark_staged(const struct kc_accum *a, struct kc_batch *b, const struct kc_rec *r) {
    struct kc_item *item = &b->items[b->count - 1];
    if (r->partition >= 0) {
        item->size |= KC_ITEM_PLACED;
        item->ts_delta = r->partition;
    }
    if (r->partition >= 0 || waits_for_count(a, r)) b->keyed = true;
    if (r->flags & KC_SEND_NOW) b->hurried = true;
}

static inline kc_err append(struct kc_accum *a, struct kc_part *p, struct kc_rec *r, const struct kc_now *now, int64_t cost, bool urgent, bool *wake) {
    int64_t ts = r->has_timestamp ? r->timestamp_ms : a->now.wall_ms;
    struct kc_batch *b = p->open;
    size_t body = body_of(b, r, ts), size = size_of(body);
    if (KW_UNLIKELY(!b || !same_batch(a, b, r, ts) || b->len + size > b->room || b->count == b->item_cap)) {
        kc_err err = append_slowly(a, p, r, &ts, now, wake);
        if (err) return err;
        b = p->open;
        body = body_of(b, r, ts);
        size = size_of(body);
    }
    write_record(a, p, b, r, ts, body, cost);
    a->records++;
    a->bytes += cost;
    if (KW_UNLIKELY(p->index < 0)) mark_staged(a, b, r);
    if (KW_UNLIKELY(urgent || b->len + size > b->limit || b->count >= (uint32_t)a->settings->batch_records_max)) { /* nor would the next one like it fit */
        (void)kc_accum_seal(a, p);
        want_sealed(a, wake);
        if (urgent) want_look(a, INT64_MIN, wake);
    }
    return KC_OK;
}

static void grant(struct kc_accum *a);

static kc_err put_locked(struct kc_accum *a, struct kc_rec *r, const struct kc_now *now, bool urgent, bool *wake) {
    int64_t cost = cost_of(r);
    bool reserved = r->reserved;
    if (reserved) {
        r->reserved = false;
        a->records--;
        a->bytes -= cost;
    }
    if (KW_UNLIKELY(a->closed || a->fatal)) return a->fatal ? a->fatal : KC_CLOSED;
    struct kc_ptopic *t = topic_of(a, r->topic);
    if (KW_UNLIKELY(!t)) return KC_INVALID;
    if (reserved) {
        /* its place was kept for it */
    } else if (KW_UNLIKELY(a->records >= a->records_max || a->bytes + cost > a->bytes_max || a->starved || !kw_list_empty(&a->space_waiters))) {
        press(a, wake);
        return KC_QUEUE_FULL;
    }
    if (r->has_guid || a->settings->enable_guid) give_id(a, r);
    struct kc_part *p = pick(a, t, r, cost);
    if (KW_UNLIKELY(!p)) return KC_NO_MEMORY;
    kc_err err = append(a, p, r, now, cost, urgent, wake);
    if (KW_UNLIKELY((r->flags & KC_SEND_NOW) && !err)) press(a, wake);
    return err;
}

/* A place that was kept and is not used after all. With nothing left in the queue there is no release to wait for, either. */
static void pass_on(struct kc_accum *a) {
    if (a->records == 0) a->starved = false;
    if (!kw_list_empty(&a->space_waiters) || a->space_armed) grant(a);
}

kc_err kc_accum_put(struct kc_accum *a, struct kc_rec *r, const struct kc_now *now, bool urgent, bool *wake) {
    kc_lock_take(&a->lock);
    if (now) a->now = *now;
    bool reserved = r->reserved;
    kc_err err = put_locked(a, r, now, urgent, wake);
    if (KW_UNLIKELY(err && reserved)) pass_on(a);
    kc_lock_give(&a->lock);
    return err;
}

size_t kc_accum_put_many(struct kc_accum *a, struct kc_rec *recs, size_t n, const struct kc_now *now, bool *wake, kc_err *err) {
    size_t done = 0;
    *err = KC_OK;
    kc_lock_take(&a->lock);
    if (now) a->now = *now;
    for (; done < n; done++) {
        *err = put_locked(a, &recs[done], now, false, wake);
        if (*err) break;
    }
    kc_lock_give(&a->lock);
    return done;
}

size_t *kc_accum_gen(struct kc_accum *a, uint64_t gen) {
    if (gen == a->gen) return &a->gen_pending;
    for (struct kw_list *n = a->flushes.next; n != &a->flushes; n = n->next) {
        struct kc_flush *f = KW_CONTAINER_OF(n, struct kc_flush, link);
        if (f->gen == gen) return &f->pending;
    }
    KW_ASSERT(false && "a generation lives as long as its batches");
    return NULL;
}

void kc_accum_join_gen(struct kc_accum *a, struct kc_batch *b, uint64_t gen) {
    if (gen >= b->gen) return;
    --*kc_accum_gen(a, b->gen);
    ++*kc_accum_gen(a, gen);
    b->gen = gen;
}

void kc_accum_leave_gen(struct kc_accum *a, struct kc_batch *b) { --*kc_accum_gen(a, b->gen); }

int64_t kc_accum_cost(const struct kc_batch *b, uint32_t count) {
    struct kw_batch_header h = {.record_count = (int32_t)b->count};
    struct kw_record_iter it;
    struct kw_record_view v;
    int64_t cost = 0;
    kw_record_iter_init(&it, &h, b->blk->data + KW_BATCH_HEADER_SIZE, b->len - KW_BATCH_HEADER_SIZE);
    for (uint32_t i = 0; i < count && kw_record_next(&it, &v) == 1; i++)
        cost += RECORD_COST + KW_MAX(v.key.len, 0) + KW_MAX(v.value.len, 0) +
                (int64_t)(kw_varint_size(v.key.len) + kw_varint_size(v.value.len) + kw_uvarint_size(2 * (uint64_t)v.header_count) + v.headers_size);
    return cost;
}

kc_err kc_accum_append(struct kc_accum *a, struct kc_part *p, struct kc_rec *r, const struct kc_batch *from) {
    bool opened = false;
    struct kc_now opening = {.mono_us = from->opened_us, .wall_ms = a->now.wall_ms};
    kc_err err = make_room(a, p, r, r->timestamp_ms, &opening, &opened);
    if (err) return err;
    struct kc_batch *b = p->open;
    write_record(a, p, b, r, r->timestamp_ms, body_of(b, r, r->timestamp_ms), cost_of(r));
    b->deadline_us = KW_MIN(b->deadline_us, from->deadline_us);
    kc_accum_join_gen(a, b, from->gen); /* a flush that waits for the staged record waits for this batch now */
    if (b->count >= (uint32_t)a->settings->batch_records_max) (void)kc_accum_seal(a, p);
    return KC_OK;
}

/* ---- Room ---- */

static void grant(struct kc_accum *a) {
    if (a->starved || a->records > a->records_max - a->records_max / 4 || a->bytes > a->bytes_max - a->bytes_max / 4) return;
    bool any = false;
    while (!kw_list_empty(&a->space_waiters)) {
        struct kc_space_waiter *w = KW_CONTAINER_OF(a->space_waiters.next, struct kc_space_waiter, link);
        if (a->records >= a->records_max || a->bytes + w->bytes > a->bytes_max) break;
        a->records++;
        a->bytes += w->bytes;
        kw_list_remove(&w->link);
        atomic_store(&w->granted, true);
        any = true;
    }
    if (any) a->calls.signal(a->ctx);
    if (a->space_armed && kw_list_empty(&a->space_waiters)) {
        a->space_armed = false;
        a->calls.ready(a->ctx, KC_READY_SPACE);
    }
}

void kc_accum_wait_add(struct kc_accum *a, struct kc_space_waiter *w, const struct kc_rec *r, bool *wake) {
    kc_lock_take(&a->lock);
    w->bytes = cost_of(r);
    atomic_init(&w->granted, false);
    kw_list_init(&w->link);
    kw_list_push(&a->space_waiters, &w->link);
    press(a, wake);
    grant(a);
    kc_lock_give(&a->lock);
}

void kc_accum_wait_remove(struct kc_accum *a, struct kc_space_waiter *w) {
    kc_lock_take(&a->lock);
    kw_list_remove(&w->link);
    if (atomic_load(&w->granted)) kc_accum_release(a, 1, w->bytes);
    else grant(a); /* those behind may fit where this one did not */
    kc_lock_give(&a->lock);
}

bool kc_accum_is_over(struct kc_accum *a) {
    kc_lock_take(&a->lock);
    bool over = a->closed || a->fatal;
    kc_lock_give(&a->lock);
    return over;
}

void kc_accum_tell_over(struct kc_accum *a) {
    kc_lock_take(&a->lock);
    bool armed = a->space_armed;
    a->space_armed = false;
    kc_lock_give(&a->lock);
    a->calls.signal(a->ctx);
    if (armed) a->calls.ready(a->ctx, KC_READY_SPACE);
}

bool kc_accum_is_ended(struct kc_accum *a) {
    kc_lock_take(&a->lock);
    bool ended = a->closed && a->gen_pending == 0 && kw_list_empty(&a->flushes);
    kc_lock_give(&a->lock);
    return ended;
}

bool kc_accum_wait_over(struct kc_accum *a, struct kc_space_waiter *w) { return atomic_load(&w->granted) || kc_accum_is_over(a); }

void kc_accum_arm_space(struct kc_accum *a) {
    kc_lock_take(&a->lock);
    a->space_armed = true;
    grant(a);
    kc_lock_give(&a->lock);
}

void kc_accum_release(struct kc_accum *a, int64_t records, int64_t bytes) {
    KW_ASSERT(a->records >= records && a->bytes >= bytes);
    a->records -= records;
    a->bytes -= bytes;
    kc_accum_poke(a);
}

void kc_accum_poke(struct kc_accum *a) {
    a->starved = false;
    if (!kw_list_empty(&a->space_waiters) || a->space_armed) grant(a);
}
