/* fetcher.c - one fetch session a broker (KIP-227): which partitions to ask for and how much, the request, the answer's pieces into the
 * partitions' queues.
 *
 * Loop context; the consumer's lock is held while partitions are looked at. A partition is asked for while little of it waits to be taken,
 * so that one with endless data cannot crowd out the others; those that gave data move to the end of the order (CC-01). The budget is
 * reserved before asking.
 */
#include <stdlib.h>

#include "consumer.h"

#define FETCH_VERSION_MAX 18
#define FETCH_VERSION_BY_ID 13
#define BUDGET_STEP_MIN 65536
#define BUDGET_RETRY_US 10000
#define REPLICA_FOR_US ((int64_t)300000000)

/* ---- The session ---- */

static struct kc_fetcher *fetcher_of(struct kc_consume *c, int32_t broker) {
    for (struct kw_list *it = c->fetchers.next; it != &c->fetchers; it = it->next) {
        struct kc_fetcher *f = KW_CONTAINER_OF(it, struct kc_fetcher, link);
        if (f->broker == broker) return f;
    }
    struct kc_fetcher *f = kw_calloc(1, sizeof *f);
    if (!f) return NULL;
    f->consume = c;
    f->broker = broker;
    kw_list_push(&c->fetchers, &f->link);
    return f;
}

static kw_err forget_later(struct kc_fetcher *f, const struct kc_part *p) {
    if (f->session_id == 0) return KW_OK;
    if (f->forgotten_count == f->forgotten_cap) {
        size_t cap = f->forgotten_cap ? f->forgotten_cap * 2 : 8;
        struct kc_forgotten *grown = kw_realloc(f->forgotten, cap * sizeof *grown);
        if (!grown) return KW_ENOMEM;
        f->forgotten = grown;
        f->forgotten_cap = cap;
    }
    f->forgotten[f->forgotten_count++] = (struct kc_forgotten){p->topic, p->partition};
    return KW_OK;
}

static void session_reset(struct kc_fetcher *f) {
    f->session_id = 0;
    f->session_epoch = 0;
    f->forgotten_count = 0;
    for (size_t i = 0; i < f->part_count; i++) f->parts[i]->sent_offset = -1;
}

void kc_fetchers_forget(struct kc_part *p) {
    struct kc_fetcher *f = p->fetcher;
    if (!f) return;
    p->fetcher = NULL;
    for (size_t i = 0; i < f->part_count; i++) {
        if (f->parts[i] != p) continue;
        memmove(&f->parts[i], &f->parts[i + 1], (f->part_count - i - 1) * sizeof *f->parts);
        f->part_count--;
        break;
    }
    if (forget_later(f, p) != KW_OK) session_reset(f); /* a full request says it all */
    kc_part_unref(p);
}

static kw_err session_add(struct kc_fetcher *f, struct kc_part *p) {
    if (f->part_count == f->part_cap) {
        size_t cap = f->part_cap ? f->part_cap * 2 : 8;
        struct kc_part **grown = kw_realloc(f->parts, cap * sizeof(struct kc_part *));
        if (!grown) return KW_ENOMEM;
        f->parts = grown;
        f->part_cap = cap;
    }
    for (size_t i = 0; i < f->forgotten_count; i++) {
        if (f->forgotten[i].topic != p->topic || f->forgotten[i].partition != p->partition) continue;
        f->forgotten[i] = f->forgotten[--f->forgotten_count];
        break;
    }
    kc_part_ref(p);
    p->fetcher = f;
    p->sent_offset = -1;
    f->parts[f->part_count++] = p;
    return KW_OK;
}

/* ---- Choosing ---- */

/* Whether the partition wants data now; next_us: when to look again. */
static bool part_wants(struct kc_part *p, int64_t now_us, int64_t *next_us) {
    const struct kc_settings *s = p->consume->settings;
    if (!p->assigned || p->paused || p->state != KC_PART_FETCHING) return false;
    if (p->not_before_us > now_us) {
        *next_us = KW_MIN(*next_us, p->not_before_us);
        return false;
    }
    if (p->queued_bytes >= (size_t)s->fetch_partition_bytes_max || atomic_load(&p->consume->queued_bytes) >= s->prefetch_bytes_max) {
        atomic_store(&p->consume->starved, true);
        return false;
    }
    return true;
}

/* The position was reached under an older leader epoch than the present one: ask first whether it still stands (KIP-320). */
static bool needs_validation(const struct kc_part *p, int32_t epoch) {
    return epoch >= 0 && p->fetch_epoch >= 0 && p->validated_epoch != epoch && p->fetch_epoch < epoch;
}

static void place_part(struct kc_part *p, int64_t now_us, int64_t *next_us, bool *validate) {
    struct kc_consume *c = p->consume;
    if (p->back_off) {
        p->back_off = false;
        p->not_before_us = kc_part_backoff(p, now_us);
    }
    int32_t epoch, broker = kc_part_broker(p, now_us, false, &epoch);
    bool wants = part_wants(p, now_us, next_us) && broker >= 0;
    if (wants && needs_validation(p, epoch)) {
        int16_t min, max;
        if (!kc_core_versions(c->core, broker, KW_API_OFFSET_FOR_LEADER_EPOCH, &min, &max) || max >= 2) {
            p->state = KC_PART_VALIDATE;
            p->since_us = now_us;
            *validate = true;
            wants = false;
        }
    }
    if (p->state == KC_PART_FETCHING && p->assigned && broker < 0 && !p->paused)
        kc_metadata_refresh(c->core, "a partition's leader is not known");
    if (p->in_request) return; /* the outstanding answer first */
    if (p->fetcher && (!wants || p->fetcher->broker != broker)) kc_fetchers_forget(p);
    if (!wants || p->fetcher) return;
    struct kc_fetcher *f = fetcher_of(c, broker);
    if (f) (void)session_add(f, p); /* without memory: the next run tries again */
}

/* ---- The request ---- */

static bool part_changed(const struct kc_fetcher *f, const struct kc_part *p, int32_t epoch, int32_t size) {
    return f->session_id == 0 || p->sent_offset != p->fetch_offset || p->sent_epoch != epoch || p->sent_size != size;
}

/* Adds a partition under its topic's entry, making the entry when it is new. Order of the parts list is kept among topics of first
 * appearance. */
static kw_err add_fetch(struct kw_arena *a, struct kw_fetch_request *m, const struct kc_topic_meta *t,
                        const struct kw_fetch_request_fetch_partition *fp, size_t part_max) {
    struct kw_fetch_request_fetch_topic *e = NULL;
    for (int32_t i = m->topics.n - 1; i >= 0 && !e; i--)
        if (m->topics.v[i].topic.p == t->name) e = &m->topics.v[i];
    if (!e) {
        e = &m->topics.v[m->topics.n++];
        e->topic = kw_str_of(t->name);
        e->topic_id = t->id;
        e->partitions.v = kw_arena_alloc(a, (size_t)KW_MIN((size_t)t->partition_count, part_max) * sizeof *e->partitions.v);
        if (!e->partitions.v) return KW_ENOMEM;
    }
    e->partitions.v[e->partitions.n++] = *fp;
    return KW_OK;
}

static kw_err add_forgotten(struct kc_fetcher *f, struct kw_arena *a, struct kw_fetch_request *m) {
    m->forgotten_topics_data.v = kw_arena_calloc(a, f->forgotten_count + 1, sizeof *m->forgotten_topics_data.v);
    int32_t *numbers = kw_arena_alloc(a, (f->forgotten_count + 1) * sizeof *numbers);
    if (!m->forgotten_topics_data.v || !numbers) return KW_ENOMEM;
    for (size_t i = 0; i < f->forgotten_count; i++) {
        struct kc_topic_meta *t = kc_metadata_topic(f->consume->core, f->forgotten[i].topic);
        if (!t) continue;
        struct kw_fetch_request_forgotten_topic *e = &m->forgotten_topics_data.v[m->forgotten_topics_data.n++];
        e->topic = kw_str_of(t->name);
        e->topic_id = t->id;
        numbers[i] = f->forgotten[i].partition;
        e->partitions.v = &numbers[i];
        e->partitions.n = 1;
    }
    return KW_OK;
}

static kw_err build(struct kc_fetcher *f, int16_t version, struct kw_arena *a, struct kw_fetch_request *m) {
    struct kc_consume *c = f->consume;
    const struct kc_settings *s = c->settings;
    kw_msg_init(&kw_fetch_request_desc, m);
    bool by_id = version >= FETCH_VERSION_BY_ID;
    if (version >= 7 && f->session_id != 0 && f->by_id != by_id) session_reset(f);
    f->by_id = by_id;
    m->max_wait_ms = (int32_t)KW_MIN(s->fetch_wait_us / 1000, INT32_MAX);
    m->min_bytes = s->fetch_min_bytes;
    m->max_bytes = (int32_t)f->reserved;
    m->isolation_level = s->read_committed;
    m->session_id = f->session_id;
    m->session_epoch = f->session_epoch;
    if (version >= 11 && s->rack) m->rack_id = kw_str_of(s->rack);
    m->topics.v = kw_arena_calloc(a, f->part_count + 1, sizeof *m->topics.v);
    if (!m->topics.v) return KW_ENOMEM;
    int64_t now_us = kc_core_now(c->core).mono_us;
    for (size_t i = 0; i < f->part_count; i++) {
        struct kc_part *p = f->parts[i];
        int32_t epoch;
        (void)kc_part_broker(p, now_us, false, &epoch);
        int32_t size = p->fetch_size ? p->fetch_size : s->fetch_partition_bytes_max;
        if (s->partition_eof && p->eof_offset != p->fetch_offset && p->high_watermark < 0)
            m->max_wait_ms = 0; /* the end of an empty partition is told at once */
        if (!part_changed(f, p, epoch, size)) continue;
        struct kw_fetch_request_fetch_partition fp;
        memset(&fp, 0, sizeof fp);
        fp.partition = p->partition;
        fp.current_leader_epoch = epoch;
        fp.fetch_offset = p->fetch_offset;
        fp.last_fetched_epoch = -1;
        fp.log_start_offset = -1;
        fp.partition_max_bytes = size;
        fp.high_watermark = INT64_MAX;
        struct kc_topic_meta *t = kc_metadata_topic(c->core, p->topic);
        kw_err err = add_fetch(a, m, t, &fp, f->part_count);
        if (err != KW_OK) return err;
        p->sent_offset = p->fetch_offset;
        p->sent_epoch = epoch;
        p->sent_size = size;
    }
    return f->session_id != 0 ? add_forgotten(f, a, m) : KW_OK;
}

static kw_err encode_fetch(struct kc_request *rq, struct kw_out *out) {
    struct kc_fetcher *f = rq->ctx;
    struct kw_arena arena;
    struct kw_fetch_request m;
    kw_arena_init(&arena, 0);
    kc_lock_take(&f->consume->lock);
    for (size_t i = 0; i < f->part_count; i++) f->parts[i]->request_generation = f->parts[i]->generation;
    kw_err err = build(f, rq->version, &arena, &m);
    kc_lock_give(&f->consume->lock);
    if (err == KW_OK) err = kw_encode(&kw_fetch_request_desc, rq->version, &m, out);
    kw_arena_deinit(&arena);
    return err;
}

/* ---- The answer ---- */

/* Where the next fetch begins after these records: behind the last whole entry. *cut: the size of a first entry that did not fit (CC-15),
 * else 0. */
static int64_t next_offset(const uint8_t *p, const uint8_t *end, int64_t from, int32_t *epoch, size_t *whole, size_t *cut) {
    const uint8_t *start = p;
    int64_t next = from;
    *cut = 0;
    while (end - p >= KW_BATCH_OVERHEAD) {
        int64_t size = kw_batch_size_peek(p, (size_t)(end - p));
        if (size < 14 + KW_BATCH_OVERHEAD) break; /* no entry is so small: taking it will say that it is corrupt */
        if (size > end - p) {
            if (p == start) *cut = (size_t)size;
            break;
        }
        int64_t last = (int64_t)kw_load64(p);
        if (p[KW_BATCH_MAGIC] >= 2 && size >= KW_BATCH_HEADER_SIZE) {
            last += (int32_t)kw_load32(p + KW_BATCH_LAST_OFFSET_DELTA);
            *epoch = (int32_t)kw_load32(p + KW_BATCH_LEADER_EPOCH);
        }
        if (last + 1 > next) next = last + 1;
        p += size;
    }
    *whole = (size_t)(p - start);
    return next;
}

static void queue_end(struct kc_part *p, struct kc_chunk *k) { /* under the lock; k may be NULL: nothing else came */
    const struct kc_settings *s = p->consume->settings;
    int64_t end = p->high_watermark;
    if (!s->partition_eof || end < 0 || p->fetch_offset < end || p->eof_offset == p->fetch_offset) return;
    struct kc_chunk *e = k ? k : kc_chunk_new();
    if (!e) return;
    p->eof_offset = p->fetch_offset;
    e->end_of_partition = true;
    e->end_offset = p->fetch_offset;
    e->high_watermark = p->high_watermark;
    if (!k) kc_part_queue(p, e);
}

static int by_first_offset(const void *a, const void *b) {
    const struct kw_fetch_response_aborted_transaction *x = a, *y = b;
    return x->first_offset < y->first_offset ? -1 : x->first_offset > y->first_offset;
}

static kw_err queue_records(struct kc_part *p, const struct kw_fetch_response_partition_data *d, struct kw_blk *blk, int64_t now_us) {
    size_t whole = 0, cut = 0;
    int32_t epoch = p->fetch_epoch;
    const uint8_t *end = d->records.p + d->records.len;
    int64_t next = next_offset(d->records.p, end, p->fetch_offset, &epoch, &whole, &cut);
    if (cut > 0) { /* an old broker cut the batch: ask for as much as it says */
        p->fetch_size = (int32_t)KW_MIN(cut, (size_t)p->consume->settings->receive_bytes_max / 2);
        if ((size_t)p->fetch_size < cut) return KW_ELIMIT;
        return KW_OK;
    }
    struct kc_chunk *k = kc_chunk_new();
    if (!k) return KW_ENOMEM;
    if (d->aborted_transactions.n > 0) {
        size_t bytes = (size_t)d->aborted_transactions.n * sizeof *k->aborted;
        k->aborted = kw_memdup(d->aborted_transactions.v, bytes);
        if (!k->aborted) {
            kc_chunk_unref(k);
            return KW_ENOMEM;
        }
        k->aborted_count = d->aborted_transactions.n;
        qsort(k->aborted, (size_t)k->aborted_count, sizeof *k->aborted, by_first_offset);
    }
    k->blk = kw_blk_ref(blk);
    k->p = d->records.p;
    k->end = whole > 0 ? d->records.p + whole : end; /* a malformed first entry is left for taking to report */
    k->size = (size_t)d->records.len;
    k->budget = kc_core_budget(p->consume->core);
    atomic_fetch_add(&k->budget->used[KC_ROLE_FETCH], (int64_t)k->size); /* in place of the reservation, given back as a whole */
    k->high_watermark = d->high_watermark;
    k->last_stable = d->last_stable_offset;
    p->fetch_offset = next;
    p->fetch_epoch = epoch;
    p->fetch_size = 0;
    p->since_us = now_us;
    queue_end(p, k);
    kc_part_queue(p, k);
    return KW_OK;
}

static void part_out_of_range(struct kc_part *p, int64_t now_us) {
    const struct kc_settings *s = p->consume->settings;
    if (p->replica >= 0) { /* a follower may be behind or ahead: the leader decides (CC-18) */
        p->replica = -1;
        return;
    }
    if (!kw_list_empty(&p->chunks)) return; /* what was fetched before is handed out first; the next answer says it again */
    if (s->offset_reset == 1 || s->offset_reset == 2) {
        kc_core_log(p->consume->core, 4, "partition %d: offset %lld is out of range; going on at the %s (auto.offset.reset)",
                    (int)p->partition, (long long)p->fetch_offset, s->offset_reset == 1 ? "beginning" : "end");
        kc_part_restart(p, s->offset_reset == 1 ? KC_OFFSET_BEGINNING : KC_OFFSET_END, now_us);
        return;
    }
    kc_error *error = NULL;
    kc_error_make(&error, KE_OFFSET_OUT_OF_RANGE, KC_NOT_PERSISTED, NULL,
                  "partition %d has no offset %lld any more or not yet, and auto.offset.reset=error: seek to go on", (int)p->partition,
                  (long long)p->fetch_offset);
    p->state = KC_PART_FAILED;
    p->last_error = KE_OFFSET_OUT_OF_RANGE;
    kc_part_queue_error(p, error, p->fetch_offset);
}

static void part_error(struct kc_part *p, const struct kw_fetch_response_partition_data *d, int64_t now_us) {
    const struct kw_kerror_info *info = kw_kerror_info(d->error_code);
    struct kc_consume *c = p->consume;
    p->last_error = d->error_code;
    p->sent_offset = -1; /* the session must name it again */
    if (d->error_code == KE_OFFSET_OUT_OF_RANGE) {
        part_out_of_range(p, now_us);
        return;
    }
    if (d->current_leader.leader_id >= 0)
        kc_metadata_leader_hint(c->core, p->topic, p->partition, d->current_leader.leader_id, d->current_leader.leader_epoch, kw_str_null(),
                                0);
    if (info->refresh_metadata) kc_metadata_refresh(c->core, info->name);
    p->replica = -1;
    bool first = p->errors_in_row == 0;
    p->not_before_us = kc_part_backoff(p, now_us);
    if (info->retriable && info->refresh_metadata) return; /* leaders move: nothing that the application has to know */
    if (!first) return;
    kc_error *error = NULL;
    kc_error_make(&error, d->error_code, KC_NOT_PERSISTED, NULL, "partition %d, offset %lld: the broker answers %s: %s", (int)p->partition,
                  (long long)p->fetch_offset, info->name, info->text);
    kc_part_queue_error(p, error, p->fetch_offset);
}

static void part_answer(struct kc_fetcher *f, struct kc_part *p, const struct kw_fetch_response_partition_data *d, struct kw_blk *blk,
                        int64_t now_us) {
    if (!p->assigned || p->fetcher != f || !p->in_request || p->request_generation != p->generation || p->state != KC_PART_FETCHING)
        return; /* seek, epoch check (CC-09) */
    if (d->error_code != KE_NONE) {
        part_error(p, d, now_us);
        return;
    }
    p->errors_in_row = 0;
    p->last_error = KC_OK;
    p->high_watermark = p->consume->settings->read_committed && d->last_stable_offset >= 0 ? d->last_stable_offset : d->high_watermark;
    if (d->preferred_read_replica >= 0 && d->preferred_read_replica != f->broker) { /* KIP-392: it has what we want, nearer */
        p->replica = d->preferred_read_replica;
        p->replica_until_us = now_us + REPLICA_FOR_US;
    }
    if (d->records.len <= 0) { /* null and empty alike (PR-10) */
        queue_end(p, NULL);
        return;
    }
    kw_err err = queue_records(p, d, blk, now_us);
    if (err == KW_OK) return;
    p->not_before_us = kc_part_backoff(p, now_us);
    p->sent_offset = -1;
    p->last_error = err == KW_ELIMIT ? KC_TOO_BIG_ANSWER : KC_NO_MEMORY;
    if (err != KW_ELIMIT) return;
    kc_error *error = NULL;
    kc_error_make(&error, KC_TOO_BIG_ANSWER, KC_NOT_PERSISTED, NULL,
                  "partition %d, offset %lld: the batch there is larger than receive.message.max.bytes=%d allows: raise it",
                  (int)p->partition, (long long)p->fetch_offset, (int)p->consume->settings->receive_bytes_max);
    kc_part_queue_error(p, error, p->fetch_offset);
}

static struct kc_part *session_part(struct kc_fetcher *f, const struct kw_fetch_response_fetchable_topic_response *t, int32_t partition) {
    struct kc_consume *c = f->consume;
    for (size_t i = 0; i < f->part_count; i++) {
        struct kc_part *p = f->parts[i];
        if (p->partition != partition) continue;
        struct kc_topic_meta *m = kc_metadata_topic(c->core, p->topic);
        if (m && (f->request.version >= FETCH_VERSION_BY_ID ? kw_uuid_eq(m->id, t->topic_id) : kw_str_eq(kw_str_of(m->name), t->topic)))
            return p;
    }
    return NULL;
}

/* Those that gave data go to the end of the order, here and in the broker's session. */
static void rotate(struct kc_fetcher *f, struct kc_part *p) {
    for (size_t i = 0; i + 1 < f->part_count; i++) {
        if (f->parts[i] != p) continue;
        memmove(&f->parts[i], &f->parts[i + 1], (f->part_count - i - 1) * sizeof *f->parts);
        f->parts[f->part_count - 1] = p;
        return;
    }
}

static void session_next(struct kc_fetcher *f, const struct kw_fetch_response *m) {
    if (f->request.version < 7 || m->session_id == 0) {
        session_reset(f);
        return;
    }
    f->session_id = m->session_id;
    f->session_epoch = f->session_epoch == INT32_MAX ? 1 : f->session_epoch + 1;
    f->forgotten_count = 0;
}

static kc_err read_answer(struct kc_fetcher *f, struct kw_in *body, struct kw_blk *blk, int64_t now_us) {
    struct kc_consume *c = f->consume;
    struct kw_arena arena;
    struct kw_fetch_response m;
    kw_arena_init(&arena, 0);
    kc_err err = KC_OK;
    if (kw_decode(&kw_fetch_response_desc, f->request.version, body, &arena, &m) != KW_OK) {
        err = KC_BAD_MESSAGE;
    } else if (m.error_code != KE_NONE) { /* the session is gone: start it anew, at once */
        session_reset(f);
        kc_core_broker_throttle(c->core, f->broker, m.throttle_time_ms);
        bool known = m.error_code == KE_FETCH_SESSION_ID_NOT_FOUND || m.error_code == KE_INVALID_FETCH_SESSION_EPOCH ||
                     m.error_code == KE_FETCH_SESSION_TOPIC_ID_ERROR;
        if (!known) f->not_before_us = now_us + c->settings->fetch_backoff_us;
    } else {
        kc_core_broker_throttle(c->core, f->broker, m.throttle_time_ms);
        session_next(f, &m);
        for (int32_t t = 0; t < m.responses.n; t++) {
            for (int32_t i = 0; i < m.responses.v[t].partitions.n; i++) {
                const struct kw_fetch_response_partition_data *d = &m.responses.v[t].partitions.v[i];
                struct kc_part *p = session_part(f, &m.responses.v[t], d->partition_index);
                if (!p) continue;
                part_answer(f, p, d, blk, now_us);
                if (d->records.len > 0) rotate(f, p);
            }
        }
    }
    kw_arena_deinit(&arena);
    return err;
}

static void fetch_done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct kc_fetcher *f = rq->ctx;
    struct kc_consume *c = f->consume;
    int64_t now_us = kc_core_now(c->core).mono_us;
    kc_lock_take(&c->lock);
    f->outstanding = false;
    c->requests--;
    if (err == KC_OK) err = read_answer(f, body, blk, now_us);
    kc_budget_give(kc_core_budget(c->core), KC_ROLE_FETCH, (size_t)f->reserved);
    f->reserved = 0;
    if (err != KC_OK) {
        session_reset(f);
        f->not_before_us = now_us + c->settings->fetch_backoff_us;
        if (err != KC_CLOSED && err != KC_CANCELLED) kc_metadata_refresh(c->core, "a fetch failed");
    }
    for (size_t i = 0; i < f->part_count; i++) {
        f->parts[i]->in_request = false;
        if (err != KC_OK) f->parts[i]->last_error = err;
    }
    kc_lock_give(&c->lock);
    kc_consume_run(c);
}

/* ---- Sending ---- */

/* As much of what one answer may bring as the budget has; 0: none now. */
static int64_t reserve(struct kc_consume *c, size_t parts) {
    int64_t want = (int64_t)parts * c->settings->fetch_partition_bytes_max;
    if (want > c->settings->fetch_max_bytes) want = c->settings->fetch_max_bytes;
    for (int64_t least = KW_MIN(want, BUDGET_STEP_MIN); want >= least; want /= 2)
        if (kc_budget_take(kc_core_budget(c->core), KC_ROLE_FETCH, (size_t)want)) return want;
    return 0;
}

static void send_fetch(struct kc_fetcher *f, int64_t now_us, int64_t *next_us) {
    struct kc_consume *c = f->consume;
    f->reserved = reserve(c, f->part_count);
    if (f->reserved == 0) { /* the application holds it all, in events that it may free on any thread: look again */
        *next_us = KW_MIN(*next_us, now_us + BUDGET_RETRY_US);
        return;
    }
    kc_request_init(&f->request, KW_API_FETCH);
    f->request.version_min = 4;
    f->request.version_max = FETCH_VERSION_MAX;
    f->request.broker = f->broker;
    f->request.channel = KC_CHANNEL_FETCH;
    f->request.deadline_us = KW_NEVER;
    f->request.answer_timeout_us = c->settings->fetch_wait_us + c->settings->request_timeout_us;
    f->request.encode = encode_fetch;
    f->request.done = fetch_done;
    f->request.ctx = f;
    for (size_t i = 0; i < f->part_count; i++) {
        struct kc_part *p = f->parts[i];
        struct kc_topic_meta *t = kc_metadata_topic(c->core, p->topic);
        if (!t || kw_uuid_is_zero(t->id)) f->request.version_max = FETCH_VERSION_BY_ID - 1;
        p->in_request = true;
        p->request_generation = p->generation;
    }
    f->outstanding = true;
    c->requests++;
    kc_core_send(c->core, &f->request);
}

static bool session_stale(const struct kc_fetcher *f,
                          int64_t now_us) { /* nothing of the outstanding request is wanted from this broker any more */
    for (size_t i = 0; i < f->part_count; i++) {
        struct kc_part *p = f->parts[i];
        int32_t epoch, broker = kc_part_broker(p, now_us, false, &epoch);
        if (p->assigned && !p->paused && p->request_generation == p->generation && (broker < 0 || broker == f->broker)) return false;
    }
    return true;
}

void kc_fetchers_run(struct kc_consume *c, int64_t now_us, int64_t *next_us) {
    bool validate = false;
    atomic_store(&c->starved, false);
    for (struct kw_list *it = c->parts.next; it != &c->parts && !c->stopped; it = it->next)
        place_part(KW_CONTAINER_OF(it, struct kc_part, link), now_us, next_us, &validate);
    if (validate) kc_offsets_run(c, now_us, next_us);
    for (struct kw_list *it = c->fetchers.next; it != &c->fetchers; it = it->next) {
        struct kc_fetcher *f = KW_CONTAINER_OF(it, struct kc_fetcher, link);
        if (f->outstanding) {
            if (c->stopped || session_stale(f, now_us)) kc_core_cancel(c->core, &f->request);
            continue;
        }
        if (c->stopped || f->part_count == 0) continue;
        int64_t due = KW_MAX(f->not_before_us, kc_core_broker_held_until(c->core, f->broker));
        if (due > now_us)
            *next_us = KW_MIN(*next_us, due);
        else
            send_fetch(f, now_us, next_us);
    }
}

void kc_fetchers_free(struct kc_consume *c) {
    struct kw_list *n;
    while ((n = kw_list_shift(&c->fetchers)) != NULL) {
        struct kc_fetcher *f = KW_CONTAINER_OF(n, struct kc_fetcher, link);
        for (size_t i = 0; i < f->part_count; i++) {
            f->parts[i]->fetcher = NULL;
            kc_part_unref(f->parts[i]);
        }
        kw_free(f->parts);
        kw_free(f->forgotten);
        kw_free(f);
    }
}
