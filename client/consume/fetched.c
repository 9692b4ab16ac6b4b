/* fetched.c - from a fetched chunk to an event: batch by batch, CRC, decompression, views; positions move as records are handed out.
 *
 * The polling thread. A chunk leaves its partition's queue while it is worked on, so that no lock is held over CRC and codec; what is left
 * of it goes back to the front, unless the partition was sought or taken away meanwhile: then everything of it is dropped.
 */
#include "consumer.h"

#define RECORD_SIZE_MIN 7 /* seven one-byte fields */
#define SPAN_MAX ((size_t)UINT32_MAX)

struct taker {
    struct kc_consume *c;
    struct kc_part *part;
    struct kc_chunk *k;
    int64_t position;   /* moves on with what is read */
    int64_t corrupt_at; /* with err */
    kw_err err;
    const char *why;
    kc_event *e;
    size_t view_cap;
};

static kc_event *event_new(struct taker *t, int32_t kind) {
    kc_event *e = kw_calloc(1, sizeof *e);
    if (!e) return NULL;
    atomic_init(&e->refs, 1);
    e->kind = kind;
    e->topic = t->part->topic;
    e->partition = t->part->partition;
    e->offset = -1;
    e->high_watermark = t->k->high_watermark;
    e->leader_epoch = -1;
    e->timestamp_type = -1;
    return e;
}

static kc_view *views_for(struct taker *t, size_t more) {
    kc_event *e = t->e;
    if (e->count + more > t->view_cap) {
        size_t cap = KW_MAX(e->count + more, t->view_cap * 2);
        kc_view *grown = kw_realloc(e->views, cap * sizeof *grown);
        if (!grown) return NULL;
        e->views = grown;
        t->view_cap = cap;
    }
    return e->views + e->count;
}

static uint32_t at(const kc_event *e, const void *p) {
    return p ? (uint32_t)((const uint8_t *)p - e->span) : 0;
}

/* Views of one batch's records from the position on, over bytes inside the event's span. */
static kw_err add_records(struct taker *t, const struct kw_batch_header *h, const uint8_t *body, size_t size) {
    if (h->record_count < 0 || (size_t)h->record_count > size / RECORD_SIZE_MIN) return KW_EDECODE;
    kc_view *v = views_for(t, (size_t)h->record_count);
    if (!v) return KW_ENOMEM;
    kc_event *e = t->e;
    struct kw_record_iter it;
    struct kw_record_view r;
    int32_t rc;
    kw_record_iter_init(&it, h, body, size);
    while ((rc = kw_record_next(&it, &r)) == 1) {
        if (r.offset < t->position) continue; /* asked for the middle of the batch */
        *v++ = (kc_view){.offset = r.offset,
                         .timestamp_ms = e->timestamp_type == 1 ? h->max_timestamp : r.timestamp,
                         .key_at = at(e, r.key.p),
                         .value_at = at(e, r.value.p),
                         .key_size = r.key.len,
                         .value_size = r.value.len,
                         .headers_at = at(e, r.headers),
                         .header_count = (uint32_t)r.header_count};
    }
    e->count = (size_t)(v - e->views);
    return rc < 0 ? (kw_err)rc : KW_OK;
}

/* ---- read_committed: which batches belong to aborted transactions ---- */

static bool aborted(struct kc_chunk *k, const struct kw_batch_header *h) {
    while (k->aborted_next < k->aborted_count && k->aborted[k->aborted_next].first_offset <= h->base_offset + h->last_offset_delta)
        k->aborted_next++;
    if (!(h->attributes & KW_ATTR_TRANSACTIONAL)) return false;
    for (int32_t i = 0; i < k->aborted_next; i++)
        if (k->aborted[i].producer_id == h->producer_id) return true;
    return false;
}

/* An abort marker ends the producer's transaction; what it writes afterwards is another. A marker of a producer that is not listed changes
 * nothing (CC-04). */
static void control_batch(struct kc_chunk *k, const struct kw_batch_header *h, const uint8_t *body, size_t size) {
    struct kw_record_iter it;
    struct kw_record_view r;
    kw_record_iter_init(&it, h, body, size);
    if (kw_record_next(&it, &r) != 1 || r.key.len < 4 || kw_load16(r.key.p + 2) != 0 /* abort */) return;
    (void)aborted(k, h); /* transactions up to here have begun */
    for (int32_t i = 0; i < k->aborted_next; i++) {
        if (k->aborted[i].producer_id != h->producer_id) continue;
        k->aborted[i].producer_id = -1;
        return;
    }
}

/* ---- Batches ---- */

static bool joins(const struct taker *t,
                  const struct kw_batch_header *h) { /* whether an uncompressed batch can go into the event begun before */
    const kc_event *e = t->e;
    return !e->owned && e->timestamp_type == (h->attributes & KW_ATTR_LOG_APPEND_TIME ? 1 : 0) && e->leader_epoch == h->leader_epoch;
}

static kw_err begin(struct taker *t, const struct kw_batch_header *h, const uint8_t *span) {
    if (t->e) return KW_OK;
    t->e = event_new(t, KC_EVENT_RECORDS);
    if (!t->e) return KW_ENOMEM;
    t->e->timestamp_type = h->attributes & KW_ATTR_LOG_APPEND_TIME ? 1 : 0;
    t->e->leader_epoch = h->leader_epoch;
    t->e->span = span;
    return KW_OK;
}

static kw_err take_compressed(struct taker *t, const struct kw_batch_header *h, const uint8_t *p, size_t size) {
    size_t limit = KW_MAX((size_t)t->c->settings->receive_bytes_max, (size_t)64 << 20);
    uint8_t *bytes = NULL;
    size_t n = 0;
    kw_err err = kw_decompress(t->c->compressor, h->attributes & KW_ATTR_CODEC, 2, p + KW_BATCH_HEADER_SIZE, size - KW_BATCH_HEADER_SIZE,
                               KW_MIN(limit, SPAN_MAX), &bytes, &n);
    if (err != KW_OK) return err;
    err = begin(t, h, bytes);
    if (err != KW_OK) {
        kw_free(bytes);
        return err;
    }
    kc_event *e = t->e;
    e->owned = bytes;
    e->owned_size = e->span_size = n;
    e->budget = kc_core_budget(t->c->core);
    atomic_fetch_add(&e->budget->used[KC_ROLE_FETCH], (int64_t)n); /* it must be handed out to be given back: counted, never refused */
    return add_records(t, h, bytes, n);
}

/* One v2 batch. 1: go on with the next, 0: the event is full or cannot take this one (it stays); < 0: error. */
static int32_t take_batch(struct taker *t, size_t size) {
    struct kc_chunk *k = t->k;
    const uint8_t *p = k->p;
    struct kw_batch_header h;
    kw_err err = kw_batch_parse(p, size, &h);
    if (err != KW_OK) return err;
    int64_t next = h.base_offset + h.last_offset_delta + 1;
    bool compressed = (h.attributes & KW_ATTR_CODEC) != 0;
    bool skip = next <= t->position || (h.attributes & KW_ATTR_CONTROL) || h.record_count == 0;
    if (t->e && !skip && (compressed || !joins(t, &h) || t->e->count >= (size_t)t->c->settings->poll_records_max)) return 0;
    if (t->c->settings->check_crcs && !kw_batch_crc_ok(p, size)) return KW_ECRC;
    if (!skip && t->c->settings->read_committed) skip = aborted(k, &h);
    if (h.attributes & KW_ATTR_CONTROL) control_batch(k, &h, p + KW_BATCH_HEADER_SIZE, size - KW_BATCH_HEADER_SIZE);
    if (!skip) {
        if (compressed) {
            err = take_compressed(t, &h, p, size);
        } else {
            err = begin(t, &h, p);
            if (err == KW_OK) err = add_records(t, &h, p + KW_BATCH_HEADER_SIZE, size - KW_BATCH_HEADER_SIZE);
            if (err == KW_OK) t->e->span_size = (size_t)(p + size - t->e->span);
        }
        if (err != KW_OK) return err;
    }
    k->p += size;
    if (next > t->position) t->position = next;
    return t->e && compressed && !skip ? 0 : 1;
}

/* ---- Formats v0 and v1: copied, since wrappers have their own bytes ---- */

static kw_err legacy_put(struct taker *t, const struct kw_message_view *m) {
    kc_event *e = t->e;
    size_t need = e->owned_size + (size_t)KW_MAX(m->key.len, 0) + (size_t)KW_MAX(m->value.len, 0);
    if (need > SPAN_MAX) return KW_ELIMIT;
    if (need > e->span_size) { /* span_size: room, until the entry is done */
        size_t cap = KW_MAX(need, e->span_size * 2 + 256);
        uint8_t *grown = kw_realloc(e->owned, cap);
        if (!grown) return KW_ENOMEM;
        e->owned = grown;
        e->span_size = cap;
    }
    kc_view *v = views_for(t, 1);
    if (!v) return KW_ENOMEM;
    *v = (kc_view){.offset = m->offset,
                   .timestamp_ms = m->timestamp,
                   .key_at = (uint32_t)e->owned_size,
                   .key_size = m->key.len,
                   .value_size = m->value.len};
    if (m->key.len > 0) memcpy(e->owned + e->owned_size, m->key.p, (size_t)m->key.len);
    e->owned_size += (size_t)KW_MAX(m->key.len, 0);
    v->value_at = (uint32_t)e->owned_size;
    if (m->value.len > 0) memcpy(e->owned + e->owned_size, m->value.p, (size_t)m->value.len);
    e->owned_size += (size_t)KW_MAX(m->value.len, 0);
    e->count++;
    if (m->magic == 1) e->timestamp_type = m->attributes & KW_ATTR_LOG_APPEND_TIME ? 1 : 0;
    return KW_OK;
}

static int32_t take_legacy(struct taker *t, size_t size) {
    if (t->e) return 0;
    struct kw_message_iter it;
    struct kw_message_view m;
    kw_message_iter_init(&it, t->k->p, size, KW_MAX((size_t)t->c->settings->receive_bytes_max, (size_t)64 << 20), t->c->compressor);
    int64_t next = (int64_t)kw_load64(t->k->p) + 1;
    kw_err err = KW_OK;
    int32_t rc = 0;
    while (err == KW_OK && (rc = kw_message_iter_next(&it, &m)) == 1) {
        if (m.offset < t->position) continue;
        if (!t->e && !(t->e = event_new(t, KC_EVENT_RECORDS))) err = KW_ENOMEM;
        if (err == KW_OK) err = legacy_put(t, &m);
        if (m.offset + 1 > next) next = m.offset + 1;
    }
    kw_message_iter_deinit(&it);
    if (err == KW_OK && rc < 0) err = rc;
    if (t->e) {
        t->e->legacy = true;
        t->e->span = t->e->owned;
        t->e->span_size = t->e->owned_size;
        t->e->budget = kc_core_budget(t->c->core);
        atomic_fetch_add(&t->e->budget->used[KC_ROLE_FETCH], (int64_t)t->e->owned_size);
    }
    if (err != KW_OK) return err;
    t->k->p += size;
    if (next > t->position) t->position = next;
    return t->e ? 0 : 1;
}

/* Works on the chunk until there is an event or nothing is left; t->err tells of a corrupt place. */
static void work(struct taker *t) {
    struct kc_chunk *k = t->k;
    int32_t go = 1;
    while (go == 1 && k->end - k->p >= KW_BATCH_OVERHEAD) {
        size_t left = (size_t)(k->end - k->p);
        int64_t size = kw_batch_size_peek(k->p, left);
        if (size < 14 + KW_BATCH_OVERHEAD || size > (int64_t)left)
            go = KW_EDECODE;
        else if (k->p[KW_BATCH_MAGIC] < 2)
            go = take_legacy(t, (size_t)size);
        else
            go = take_batch(t, (size_t)size);
    }
    if (go < 0 && t->e && t->e->count > 0 && !t->e->owned) return; /* hand out what is sound first; the next take meets the error again */
    if (go < 0) {
        t->err = go;
        (void)kc_event_drop(t->e);
        t->e = NULL;
    }
    if (go == 1) k->p = k->end;
    if (t->e && t->e->count == 0) { /* all of it lay before the position */
        (void)kc_event_drop(t->e);
        t->e = NULL;
    }
}

/* ---- Taking ---- */

static struct kc_part *first_ready(struct kc_consume *c) {
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (p->assigned && !p->paused && !kw_list_empty(&p->chunks)) return p;
    }
    return NULL;
}

bool kc_consume_ready(struct kc_consume *c) {
    kc_lock_take(&c->lock);
    bool ready = first_ready(c) != NULL;
    kc_lock_give(&c->lock);
    return ready;
}

static void take_special(struct taker *t) { /* an error, or the end of the partition */
    struct kc_chunk *k = t->k;
    if (k->error) {
        t->e = event_new(t, KC_EVENT_ERROR);
        if (!t->e) return;
        t->e->offset = k->error_offset;
        t->e->error = k->error;
        k->error = NULL;
    } else if (k->end_of_partition && k->p == k->end) {
        t->e = event_new(t, KC_EVENT_PARTITION_END);
        if (!t->e) return;
        t->e->offset = k->end_offset;
        k->end_of_partition = false;
    }
}

static void give_up_bytes(struct kc_consume *c, struct kc_part *p, struct kc_chunk *k, bool of_part) {
    atomic_fetch_sub(&c->queued_bytes, (int64_t)k->size);
    if (of_part) p->queued_bytes -= k->size;
}

/* Under the lock again: what the work means for the partition. */
static void settle(struct taker *t, uint32_t generation) {
    struct kc_consume *c = t->c;
    struct kc_part *p = t->part;
    struct kc_chunk *k = t->k;
    if (!p->assigned || p->generation != generation) {
        (void)kc_event_drop(t->e);
        t->e = NULL;
        give_up_bytes(c, p, k, false);
        kc_chunk_unref(k);
    } else if (t->err != KW_OK) {
        int64_t where = t->position;
        kc_error *error = NULL;
        kc_error_make(&error,
                      t->err == KW_ENOMEM         ? KC_NO_MEMORY
                      : t->err == KW_EUNSUPPORTED ? KC_UNSUPPORTED
                                                  : KC_CORRUPT,
                      KC_NOT_PERSISTED, NULL, "partition %d, offset %lld: %s; it is fetched again, or seek past it", (int)p->partition,
                      (long long)where,
                      t->err == KW_ECRC           ? "the batch fails its CRC"
                      : t->err == KW_ENOMEM       ? "no memory to take the batch apart"
                      : t->err == KW_ELIMIT       ? "the batch is larger than receive.message.max.bytes once decompressed"
                      : t->err == KW_EUNSUPPORTED ? "the batch uses a codec that this build left out"
                                                  : "the batch is malformed");
        give_up_bytes(c, p, k, true);
        kc_chunk_unref(k);
        kc_part_restart(p, where, 0);
        p->last_error = KC_CORRUPT;
        kc_part_queue_error(p, error, where);
        p->back_off = true;
    } else {
        p->position = t->position;
        if (k->p < k->end || k->end_of_partition || k->error) {
            kw_list_insert_before(p->chunks.next, &k->link); /* the rest comes first next time */
        } else {
            give_up_bytes(c, p, k, true);
            kc_chunk_unref(k);
        }
        kw_list_remove(&p->link); /* its turn is over */
        kw_list_push(&c->parts, &p->link);
    }
    if (t->e && t->e->kind == KC_EVENT_RECORDS) t->e->offset = t->position;
    if (atomic_exchange(&c->starved, false) || t->err != KW_OK) c->kick(c->ctx);
}

kc_event *kc_consume_take(struct kc_consume *c, kc_client *owner) {
    for (;;) {
        kc_lock_take(&c->lock);
        struct kc_part *p = first_ready(c);
        if (!p) {
            kc_lock_give(&c->lock);
            return NULL;
        }
        struct taker t = {
            .c = c, .part = p, .k = KW_CONTAINER_OF(kw_list_shift(&p->chunks), struct kc_chunk, link), .position = p->position};
        uint32_t generation = p->generation;
        kc_part_ref(p);
        kc_lock_give(&c->lock);
        if (t.k->p < t.k->end && !t.k->error)
            work(&t);
        else
            take_special(&t);
        if (t.e && t.e->kind == KC_EVENT_RECORDS && !t.e->owned) {
            t.e->chunk = t.k;
            atomic_fetch_add_explicit(&t.k->refs, 1, memory_order_relaxed);
        }
        kc_lock_take(&c->lock);
        settle(&t, generation);
        kc_part_unref(p);
        kc_lock_give(&c->lock);
        if (!t.e) continue;
        t.e->client = owner;
        return t.e;
    }
}
