/* fetched.c - from a fetched chunk to an event: batch by batch, CRC, decompression, views; positions move as records are handed out.
 *
 * The polling thread. A chunk leaves its partition's queue while it is worked on, so that no lock is held over CRC and codec; what is left
 * of it goes back to the front, unless the partition was sought or taken away meanwhile: then everything of it is dropped.
 *
 * An event with more records than max.poll.records, and one that poll_one has begun, is handed out piece by piece: the rest is kept with
 * its partition (part->kept), and goes with it when that is sought or taken away.
 */
#include "group.h"

#define RECORD_SIZE_MIN 7 /* seven one-byte fields */
#define SPAN_MAX ((size_t)UINT32_MAX)

struct taker {
    struct kc_consume *c;
    struct kc_part *part;
    struct kc_chunk *k;
    int64_t position; /* moves on with what is read */
    int32_t epoch;    /* of the last batch read; -1 none */
    kw_err err;
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
    int32_t rc, last = -1;
    kw_record_iter_init(&it, h, body, size);
    while ((rc = kw_record_next(&it, &r)) == 1) {
        if (r.offset_delta <= last || r.offset_delta > h->last_offset_delta) return KW_EDECODE; /* the position would go back */
        last = r.offset_delta;
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
    if (rc < 0) return (kw_err)rc; /* none of a malformed batch is handed out */
    e->count = (size_t)(v - e->views);
    return KW_OK;
}

/* ---- read_committed: which batches belong to aborted transactions ---- */

/* Transactions that begin up to `last` are under way. */
static void aborted_begin(struct kc_chunk *k, int64_t last) {
    while (k->aborted_next < k->aborted_count && k->aborted[k->aborted_next].first_offset <= last)
        k->aborted[k->aborted_active++] = k->aborted[k->aborted_next++];
}

static bool aborted(struct kc_chunk *k, const struct kw_batch_header *h) {
    aborted_begin(k, h->base_offset + h->last_offset_delta);
    if (!(h->attributes & KW_ATTR_TRANSACTIONAL)) return false;
    for (int32_t i = 0; i < k->aborted_active; i++)
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
    aborted_begin(k, h->base_offset + h->last_offset_delta);
    for (int32_t i = 0; i < k->aborted_active; i++) {
        if (k->aborted[i].producer_id != h->producer_id) continue;
        k->aborted[i] = k->aborted[--k->aborted_active];
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

/* How large a compressed batch may become. */
static size_t decompressed_max(const struct taker *t) {
    return KW_MIN(KW_MAX((size_t)t->c->settings->receive_bytes_max, (size_t)64 << 20), SPAN_MAX);
}

static kw_err take_compressed(struct taker *t, const struct kw_batch_header *h, const uint8_t *p, size_t size) {
    uint8_t *bytes = NULL;
    size_t n = 0;
    kw_err err = kw_decompress(t->c->compressor, h->attributes & KW_ATTR_CODEC, 2, p + KW_BATCH_HEADER_SIZE, size - KW_BATCH_HEADER_SIZE,
                               decompressed_max(t), &bytes, &n);
    if (err != KW_OK) return err;
    err = begin(t, h, bytes);
    if (err != KW_OK) {
        kw_free(bytes);
        return err;
    }
    kc_event *e = t->e;
    e->owned = bytes;
    e->owned_size = e->span_size = n;
    e->purse = kc_purse_ref(t->c->purse);
    kc_purse_add(e->purse, (int64_t)n); /* it must be handed out to be given back: counted, never refused */
    return add_records(t, h, bytes, n);
}

/* One v2 batch. 1: go on with the next, 0: the event is full or cannot take this one (it stays); < 0: error. */
static int32_t take_batch(struct taker *t, size_t size) {
    struct kc_chunk *k = t->k;
    const uint8_t *p = k->p;
    struct kw_batch_header h;
    kw_err err = kw_batch_parse(p, size, &h);
    if (err != KW_OK) return err;
    if (h.base_offset < 0 || h.last_offset_delta < 0 || h.base_offset >= INT64_MAX - h.last_offset_delta) return KW_EDECODE;
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
    if (next > t->position) {
        t->position = next;
        t->epoch = h.leader_epoch;
    }
    return t->e && compressed && !skip ? 0 : 1;
}

/* ---- Formats v0 and v1: copied, since wrappers have their own bytes ---- */

static kw_err legacy_put(struct taker *t, const struct kw_message_view *m) {
    kc_event *e = t->e;
    if (e->count > 0 && m->offset <= e->views[e->count - 1].offset) return KW_EDECODE; /* the position would go back */
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

/* false: no offset. Else *next lies behind it. */
static bool offset_sound(int64_t offset, int64_t *next) {
    if (offset < 0 || offset == INT64_MAX) return false;
    if (offset + 1 > *next) *next = offset + 1;
    return true;
}

static int32_t take_legacy(struct taker *t, size_t size) {
    if (t->e) return 0;
    struct kw_message_iter it;
    struct kw_message_view m;
    kw_message_iter_init(&it, t->k->p, size, decompressed_max(t), t->c->compressor);
    int64_t next = 0;
    kw_err err = KW_OK;
    int32_t rc = 0;
    if (!offset_sound((int64_t)kw_load64(t->k->p), &next)) err = KW_EDECODE;
    while (err == KW_OK && (rc = kw_message_iter_next(&it, &m)) == 1) {
        if (!offset_sound(m.offset, &next)) err = KW_EDECODE;
        if (m.offset < t->position) continue;
        if (err == KW_OK && !t->e && !(t->e = event_new(t, KC_EVENT_RECORDS))) err = KW_ENOMEM;
        if (err == KW_OK) err = legacy_put(t, &m);
    }
    kw_message_iter_deinit(&it);
    if (err == KW_OK && rc < 0) err = rc;
    if (t->e) {
        t->e->legacy = true;
        t->e->span = t->e->owned;
        t->e->span_size = t->e->owned_size;
        t->e->purse = kc_purse_ref(t->c->purse);
        kc_purse_add(t->e->purse, (int64_t)t->e->owned_size);
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

bool kc_consume_ready(struct kc_consume *c) {
    kc_lock_take(&c->lock);
    bool ready = !kw_list_empty(&c->ready) || !kw_list_empty(&c->news);
    kc_lock_give(&c->lock);
    return ready;
}

static void take_special(struct taker *t) { /* an error, or the end of the partition */
    struct kc_chunk *k = t->k;
    t->e = event_new(t, k->error ? KC_EVENT_ERROR : KC_EVENT_PARTITION_END);
    if (!t->e) {
        t->err = KW_ENOMEM;
    } else if (k->error) {
        t->e->offset = k->error_offset;
        t->e->position_before = k->position_before;
        t->e->error = k->error;
        k->error = NULL;
    } else {
        t->e->offset = k->end_offset;
        k->end_of_partition = false;
    }
}

static void give_up_bytes(struct kc_part *p, struct kc_chunk *k) {
    atomic_fetch_sub(&p->consume->queued_bytes, (int64_t)k->size);
    p->queued_bytes -= k->size;
}

/* The chunk has more to give, or has to be taken once more. */
static void put_back(struct kc_part *p, struct kc_chunk *k) {
    kw_list_insert_before(p->chunks.next, &k->link);
}

static const char *corrupt_text(kw_err err) {
    switch (err) {
    case KW_ECRC:
        return "its checksum does not match; it is fetched again now and then, or seek past it";
    case KW_ELIMIT:
        return "decompressed it is larger than receive.message.max.bytes allows: raise that and seek here, or seek past it";
    case KW_EUNSUPPORTED:
        return "it uses a codec that this build of the library left out: seek past it";
    default:
        return "it is malformed; it is fetched again now and then, or seek past it";
    }
}

/* A batch that cannot be handed out. It may have been damaged on its way, or another replica may lead soon, so it is fetched again: quietly
 * the first time, then with the error told once and waits in between. What cannot get better waits for a seek. */
static void corrupt(struct taker *t) {
    struct kc_part *p = t->part;
    int64_t where = t->position;
    bool hopeless = t->err == KW_ELIMIT || t->err == KW_EUNSUPPORTED;
    if (p->corrupt_at != where) {
        p->corrupt_at = where;
        p->corrupt_count = 0;
    }
    p->corrupt_count++;
    kc_part_restart(p, where, p->position_epoch, p->since_us);
    p->back_off = true;
    p->last_error = t->err == KW_EUNSUPPORTED ? KC_UNSUPPORTED : KC_CORRUPT;
    if (hopeless) p->state = KC_PART_FAILED;
    if (hopeless || p->corrupt_count > 1)
        kc_part_tell(p, p->last_error, where, "the batch at offset %lld: %s", (long long)where, corrupt_text(t->err));
}

/* Under the lock again: what the work means for the partition. */
static void settle(struct taker *t, uint64_t generation) {
    struct kc_consume *c = t->c;
    struct kc_part *p = t->part;
    struct kc_chunk *k = t->k;
    bool kick = false;
    if (!p->assigned || p->generation != generation) { /* the restart has cleared the partition's count */
        (void)kc_event_drop(t->e);
        t->e = NULL;
        atomic_fetch_sub(&c->queued_bytes, (int64_t)k->size);
        kc_chunk_unref(k);
    } else if (t->err == KW_ENOMEM) { /* nothing is lost: it is there for the next try */
        put_back(p, k);
        p->last_error = KC_NO_MEMORY;
    } else if (t->err != KW_OK) {
        give_up_bytes(p, k);
        kc_chunk_unref(k);
        corrupt(t);
        kick = true;
    } else {
        if (t->position > p->position) {
            p->corrupt_at = -1;
            if (p->told == KC_CORRUPT) p->told = KC_OK;
        }
        p->position = t->position;
        if (t->epoch >= 0) p->position_epoch = t->epoch;
        if (k->p < k->end || k->end_of_partition) {
            put_back(p, k);
        } else {
            give_up_bytes(p, k);
            kc_chunk_unref(k);
        }
    }
    if (p->assigned && p->full && p->queued_bytes < (size_t)c->settings->fetch_partition_bytes_max) {
        kc_part_look(p);
        kick = true;
    }
    kw_list_remove(&p->ready_link); /* its turn is over */
    kc_part_show(p);
    if (!kw_list_empty(&c->held) && (kc_consume_may_queue(c) || kw_list_empty(&c->ready))) kick = true;
    if (t->e && t->e->kind == KC_EVENT_RECORDS) t->e->offset = t->position;
    if (kick) c->kick(c->ctx);
}

/* From the next partition's chunks, or what was kept of it, from *at on. NULL: nothing is ready, or (*err) there is no memory to take it.
 * With a reference to the partition in *part when there is an event. */
static kc_event *take_whole(struct kc_consume *c, size_t *at, struct kc_part **part, int32_t *epoch_before, kc_err *err) {
    *at = 0;
    *epoch_before = -1;
    *err = KC_OK;
    while (!kw_list_empty(&c->ready)) {
        struct kc_part *p = KW_CONTAINER_OF(c->ready.next, struct kc_part, ready_link);
        kc_part_ref(p);
        if (p->kept) {
            kc_event *e = p->kept;
            *at = p->kept_at;
            if (*at > 0) *epoch_before = e->leader_epoch;
            p->kept = NULL;
            kw_list_remove(&p->ready_link);
            kc_part_show(p);
            *part = p;
            return e;
        }
        struct taker t = {.c = c,
                          .part = p,
                          .k = KW_CONTAINER_OF(kw_list_shift(&p->chunks), struct kc_chunk, link),
                          .position = p->position,
                          .epoch = -1};
        uint64_t generation = p->generation;
        *epoch_before = p->position_epoch;
        kc_lock_give(&c->lock);
        if (t.k->p < t.k->end && !t.k->error)
            work(&t);
        else if (t.k->error || t.k->end_of_partition)
            take_special(&t);
        if (t.e && t.e->kind == KC_EVENT_RECORDS && !t.e->owned) {
            t.e->chunk = t.k;
            atomic_fetch_add_explicit(&t.k->refs, 1, memory_order_relaxed);
        }
        kc_lock_take(&c->lock);
        settle(&t, generation);
        *part = p;
        if (t.e) return t.e;
        kc_part_unref(p);
        if (t.err != KW_ENOMEM) continue;
        *err = KC_NO_MEMORY;
        return NULL;
    }
    return NULL;
}

/* Records of `whole` from `at` on, at most so many; the rest is kept. Under the lock. NULL: no memory, all of it is kept. */
static kc_event *slice(struct kc_consume *c, struct kc_part *p, kc_event *whole, size_t at) {
    size_t n = KW_MIN(whole->count - at, (size_t)c->settings->poll_records_max);
    if (at == 0 && n == whole->count) return whole;
    kc_event *e = kw_calloc(1, sizeof *e);
    bool rest = !e || at + n < whole->count;
    if (e) {
        *e = (kc_event){.kind = whole->kind,
                        .topic = whole->topic,
                        .partition = whole->partition,
                        .offset = rest ? whole->views[at + n].offset : whole->offset,
                        .high_watermark = whole->high_watermark,
                        .count = n,
                        .views = whole->views + at,
                        .span = whole->span,
                        .span_size = whole->span_size,
                        .parent = whole,
                        .timestamp_type = whole->timestamp_type,
                        .leader_epoch = whole->leader_epoch,
                        .legacy = whole->legacy};
        atomic_init(&e->refs, 1);
    }
    if (!rest) return e; /* our reference is the slice's now */
    if (e) kc_event_ref(whole);
    p->kept = whole;
    p->kept_at = e ? at + n : at;
    kc_part_show(p);
    return e;
}

/* Under the lock: what is handed out, and is not processed before poll is called again. */
static void in_hand(struct kc_consume *c, struct kc_part *p, const kc_event *e, int32_t epoch_before) {
    kc_hand_drop(c);
    kc_part_ref(p);
    c->hand = (struct kc_hand){p, e->views[0].offset, epoch_before};
    p->delivered = e->offset;
}

kc_err kc_consume_take(struct kc_consume *c, kc_event **event) {
    size_t at;
    struct kc_part *p;
    int32_t epoch_before;
    kc_err err;
    kc_lock_take(&c->lock);
    kc_group_passed(c);
    err = KC_OK;
    kc_event *news = kc_group_take(c, &err);
    if (news || err != KC_OK) {
        kc_lock_give(&c->lock);
        if (news) *event = news;
        return err;
    }
    kc_event *e = take_whole(c, &at, &p, &epoch_before, &err);
    if (e) {
        if (e->kind == KC_EVENT_RECORDS) e = slice(c, p, e, at);
        if (!e) err = KC_NO_MEMORY;
        if (e && e->kind == KC_EVENT_RECORDS && c->commits) in_hand(c, p, e, epoch_before);
        kc_part_unref(p);
    } else if (err == KC_OK) {
        err = KC_BUSY;
    }
    kc_lock_give(&c->lock);
    if (e) *event = e;
    return err;
}

/* ---- One at a time ---- */

/* Under the lock: poll_one has nothing at hand any more. */
static void one_clear(struct kc_consume *c) {
    (void)kc_event_drop(c->one.e);
    c->one.e = NULL;
    if (c->one.part) kc_part_unref(c->one.part);
    c->one.part = NULL;
}

/* Under the lock: what is left of the event at hand is kept with its partition, in front. */
static void one_keep(struct kc_consume *c) {
    struct kc_part *p = c->one.part;
    if (p && c->one.at + 1 < c->one.e->count) {
        p->kept = c->one.e;
        p->kept_at = c->one.at + 1;
        c->one.e = NULL;
        kc_part_show(p);
        if (!kw_list_empty(&p->ready_link)) { /* it was its turn */
            kw_list_remove(&p->ready_link);
            kw_list_insert_before(c->ready.next, &p->ready_link);
        }
    }
    one_clear(c);
}

void kc_consume_one_drop(struct kc_consume *c) {
    kc_lock_take(&c->lock);
    one_keep(c);
    kc_lock_give(&c->lock);
}

/* The event at hand goes on, though something changed, unless its partition was sought, taken away (one.part is NULL then) or paused. */
static bool one_goes_on(struct kc_consume *c) {
    struct kc_one *one = &c->one;
    if (!one->e) return false;
    one->changes = atomic_load(&c->changes);
    if (one->part && one->part->paused) one_keep(c);
    if (one->part && one->at + 1 < one->e->count) return true;
    one_clear(c);
    return false;
}

kc_err kc_consume_one(struct kc_consume *c, kc_event **event) {
    struct kc_one *one = &c->one;
    size_t at;
    struct kc_part *p;
    int32_t epoch_before;
    kc_err err = KC_OK;
    kc_lock_take(&c->lock);
    kc_group_passed(c);
    if (!kw_list_empty(&c->news)) {
        one_keep(c);
        *event = kc_group_take(c, &err);
    } else if (one_goes_on(c)) {
        one->at++;
    } else {
        kc_event *e = take_whole(c, &at, &p, &epoch_before, &err);
        if (!e) {
            if (err == KC_OK) err = KC_BUSY;
        } else if (e->kind == KC_EVENT_RECORDS) {
            one->e = e;
            one->at = at;
            one->part = p;
            one->from = e->views[at].offset;
            one->epoch_before = epoch_before;
            one->changes = atomic_load(&c->changes);
            p->delivered = e->offset;
        } else {
            *event = e;
            kc_part_unref(p);
        }
    }
    if (one->e) {
        atomic_store_explicit(&one->passed, one->e->views[one->at].offset, memory_order_relaxed);
        atomic_store_explicit(&one->next, kc_one_next(one), memory_order_relaxed);
    }
    kc_lock_give(&c->lock);
    return err;
}
