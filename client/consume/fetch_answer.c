/* fetch_answer.c - a Fetch answer: its pieces into the partitions' queues, errors, ends of partitions, the session's next step.
 *
 * Loop context, under the consumer's lock. Called by the core when a request of fetcher.c is done. KIP-74, 227, 392, 516, 951.
 */
#include <stdlib.h>

#include "consumer.h"

#define REPLICA_FOR_US ((int64_t)300000000)        /* a preferred replica is used so long, then the leader is asked anew */
#define REPLICA_AFTER_ERROR_US ((int64_t)30000000) /* after an error of a replica the leader serves so long at least */
#define COPY_SIZE_MAX 16384 /* an answer so small is copied, since its bytes may lie in the connection's own buffer */
#define STRAYS_MAX 100
#define ERRORS_TELL 10 /* an error that may pass is told when it was met so often in a row: after some seconds */

/* ---- Records ---- */

struct extent {    /* what a partition's records field holds */
    int64_t next;  /* where the next fetch begins: behind the last whole entry */
    int32_t epoch; /* of that entry */
    size_t whole;  /* bytes of whole entries */
    size_t cut;    /* size of a first entry that did not fit (CC-15), else 0 */
};

static struct extent measure(const uint8_t *p, const uint8_t *end, const struct kc_part *part) {
    const uint8_t *start = p;
    struct extent x = {.next = part->fetch_offset, .epoch = part->fetch_epoch};
    while (end - p >= KW_BATCH_OVERHEAD) {
        int64_t size = kw_batch_size_peek(p, (size_t)(end - p));
        if (size < 14 + KW_BATCH_OVERHEAD) break; /* no entry is so small: taking it will say that it is corrupt */
        if (size > end - p) {
            if (p == start) x.cut = (size_t)size;
            break;
        }
        int64_t last = (int64_t)kw_load64(p), delta = 0;
        bool batch = p[KW_BATCH_MAGIC] >= 2 && size >= KW_BATCH_HEADER_SIZE;
        if (batch) delta = (int32_t)kw_load32(p + KW_BATCH_LAST_OFFSET_DELTA);
        if (last < 0 || delta < 0 || last >= INT64_MAX - delta) break; /* likewise */
        last += delta;
        if (last + 1 > x.next) {
            x.next = last + 1;
            x.epoch = batch ? (int32_t)kw_load32(p + KW_BATCH_LEADER_EPOCH) : -1;
        }
        p += size;
    }
    x.whole = (size_t)(p - start);
    return x;
}

/* The bytes that chunks will show: the block of the answer, counted as a whole since one chunk alone keeps it; or a copy. */
static struct kc_answer *answer_new(struct kc_purse *purse, struct kw_blk *blk) {
    struct kc_answer *a = kw_calloc(1, sizeof *a);
    if (!a) return NULL;
    atomic_init(&a->refs, 1);
    a->blk = blk;
    a->purse = kc_purse_ref(purse);
    a->size = blk->cap;
    kc_purse_add(purse, (int64_t)a->size); /* in place of the reservation */
    return a;
}

struct reading { /* one answer */
    struct kc_fetcher *f;
    struct kw_blk *blk;
    size_t frame_size;
    struct kc_answer *shared; /* made by the first chunk of a large answer */
    int64_t now_us;
    int32_t strays; /* it names what is not in the session */
    const struct kw_fetch_response *m;
};

/* For one chunk; *p is moved into a copy where there is one. */
static struct kc_answer *answer_for(struct reading *r, const uint8_t **p, size_t size) {
    struct kc_purse *purse = r->f->consume->purse;
    if (r->frame_size <= COPY_SIZE_MAX) {
        struct kw_blk *copy = kw_blk_new(size);
        struct kc_answer *a = copy ? answer_new(purse, copy) : NULL;
        if (!a) {
            kw_blk_unref(copy);
            return NULL;
        }
        memcpy(copy->data, *p, size);
        *p = copy->data;
        return a;
    }
    if (!r->shared) {
        r->shared = answer_new(purse, kw_blk_ref(r->blk));
        if (!r->shared) kw_blk_unref(r->blk);
    } else {
        atomic_fetch_add_explicit(&r->shared->refs, 1, memory_order_relaxed);
    }
    return r->shared;
}

static int by_first_offset(const void *a, const void *b) {
    const struct kw_fetch_response_aborted_transaction *x = a, *y = b;
    return x->first_offset < y->first_offset ? -1 : x->first_offset > y->first_offset;
}

static struct kc_chunk *chunk_of(struct reading *r, const struct kw_fetch_response_partition_data *d, const struct extent *x) {
    struct kc_chunk *k = kc_chunk_new();
    if (!k) return NULL;
    if (d->aborted_transactions.n > 0) {
        k->aborted = kw_memdup(d->aborted_transactions.v, (size_t)d->aborted_transactions.n * sizeof *k->aborted);
        if (!k->aborted) goto fail;
        k->aborted_count = d->aborted_transactions.n;
        qsort(k->aborted, (size_t)k->aborted_count, sizeof *k->aborted, by_first_offset);
    }
    k->p = d->records.p;
    k->size = x->whole > 0 ? x->whole : (size_t)d->records.len; /* a malformed first entry is left for taking to report */
    k->answer = answer_for(r, &k->p, k->size);
    if (!k->answer) goto fail;
    k->end = k->p + k->size;
    k->high_watermark = d->high_watermark;
    return k;
fail:
    kc_chunk_unref(k);
    return NULL;
}

static void queue_end(struct kc_part *p, struct kc_chunk *k) { /* k may be NULL: nothing else came */
    const struct kc_settings *s = p->consume->settings;
    int64_t end = p->high_watermark;
    if (!s->partition_eof || end < 0 || p->fetch_offset < end || p->eof_offset == p->fetch_offset) return;
    struct kc_chunk *e = k ? k : kc_chunk_new();
    if (!e) return; /* the next answer tells it */
    p->eof_offset = p->fetch_offset;
    e->end_of_partition = true;
    e->end_offset = p->fetch_offset;
    e->high_watermark = p->high_watermark;
    if (!k) kc_part_queue(p, e);
}

/* An old broker cut the batch: asks for as much as it says. */
static void batch_cut(struct kc_part *p, size_t size, int64_t now_us) {
    const struct kc_settings *s = p->consume->settings;
    p->sent_offset = -1;
    if (size + 512 <= (size_t)s->receive_bytes_max && (int32_t)size > p->sent_size) {
        kc_part_fetch_size(p, (int32_t)size);
        return;
    }
    if (size + 512 <= (size_t)s->receive_bytes_max) { /* it was asked for as much, and did not come */
        p->not_before_us = kc_part_backoff(p, now_us);
        return;
    }
    p->state = KC_PART_FAILED;
    kc_part_tell(p, KC_TOO_BIG_ANSWER, p->fetch_offset,
                 "the batch at offset %lld has %zu bytes, more than receive.message.max.bytes=%d allows: raise that and seek here, or seek "
                 "past it",
                 (long long)p->fetch_offset, size, (int)s->receive_bytes_max);
}

static void part_records(struct reading *r, struct kc_part *p, const struct kw_fetch_response_partition_data *d) {
    struct extent x = measure(d->records.p, d->records.p + d->records.len, p);
    if (x.cut > 0) {
        batch_cut(p, x.cut, r->now_us);
        return;
    }
    struct kc_chunk *k = chunk_of(r, d, &x);
    if (!k) {
        p->sent_offset = -1;
        p->last_error = KC_NO_MEMORY;
        p->not_before_us = kc_part_backoff(p, r->now_us);
        return;
    }
    bool progress = x.next > p->fetch_offset;
    p->fetch_offset = x.next;
    p->fetch_epoch = x.epoch;
    p->since_us = r->now_us;
    p->empty_us = -1;
    p->empties = 0;
    kw_list_remove(&p->session_link); /* those that gave data go to the end of the order, as in the broker's session */
    kw_list_push(&r->f->parts, &p->session_link);
    if (progress) {
        p->errors_in_row = 0;
        kc_part_fetch_size(p, 0);
        queue_end(p, k);
    } else { /* nothing at or behind the offset, or garbage: not again at once */
        p->sent_offset = -1;
        p->last_error = KC_BAD_MESSAGE;
        p->not_before_us = kc_part_backoff(p, r->now_us);
        kc_core_log(p->consume->core, 4,
                    "broker %d answers a fetch of partition %d at offset %lld with %d bytes that hold nothing at or behind it",
                    (int)r->f->broker, (int)p->partition, (long long)p->fetch_offset, (int)d->records.len);
    }
    kc_part_queue(p, k);
}

/* ---- Errors ---- */

static void replica_failed(struct kc_part *p, int64_t now_us) {
    p->replica = -1;
    p->replica_not_before_us = now_us + REPLICA_AFTER_ERROR_US;
    if (p->fetcher) p->fetcher->no_replicas_until_us = KW_MAX(p->fetcher->no_replicas_until_us, p->replica_not_before_us);
}

static void part_out_of_range(struct kc_part *p, int64_t now_us) {
    const struct kc_settings *s = p->consume->settings;
    if (p->replica >= 0) { /* a follower may be behind or ahead: the leader decides (CC-18) */
        replica_failed(p, now_us);
        return;
    }
    if (kc_part_position(p) < p->fetch_offset) { /* what was fetched before is handed out first; a later answer says it again */
        p->not_before_us = kc_part_backoff(p, now_us);
        return;
    }
    if (s->offset_reset != 0) {
        kc_core_log(p->consume->core, 4, "partition %d: offset %lld is out of range; going on at the %s (auto.offset.reset)",
                    (int)p->partition, (long long)p->fetch_offset, s->offset_reset == 1 ? "beginning" : "end");
        int64_t wait_until_us = p->errors_in_row > 0 ? kc_part_backoff(p, now_us) : 0; /* in a row: it was out of range again at once */
        p->errors_in_row = KW_MAX(p->errors_in_row, 1);
        kc_part_restart(p, s->offset_reset == 1 ? KC_OFFSET_BEGINNING : KC_OFFSET_END, -1, now_us);
        p->not_before_us = wait_until_us;
        return;
    }
    p->state = KC_PART_FAILED;
    kc_part_tell(p, KE_OFFSET_OUT_OF_RANGE, p->fetch_offset,
                 "there is no offset %lld any more, or not yet, and auto.offset.reset=none: seek to go on", (long long)p->fetch_offset);
}

/* KIP-951: another leader is known now, from this answer or since the fetch began, and can be asked at once. */
static bool take_hint(struct reading *r, struct kc_part *p, const struct kw_fetch_response_partition_data *d) {
    struct kw_str host = kw_str_null();
    int32_t port = 0, leader = d->current_leader.leader_id;
    if (leader < 0) return false;
    for (int32_t i = 0; i < r->m->node_endpoints.n; i++) {
        const struct kw_fetch_response_node_endpoint *e = &r->m->node_endpoints.v[i];
        if (e->node_id == leader) host = e->host, port = e->port;
    }
    return kc_metadata_leader_hint(p->consume->core, p->topic, p->partition, r->f->broker, leader, d->current_leader.leader_epoch, host, port);
}

static void part_error(struct reading *r, struct kc_part *p, const struct kw_fetch_response_partition_data *d) {
    int64_t now_us = r->now_us;
    const struct kw_kerror_info *info = kw_kerror_info(d->error_code);
    struct kc_consume *c = p->consume;
    p->last_error = d->error_code;
    p->sent_offset = -1; /* the session must name it again */
    if (d->error_code == KE_OFFSET_OUT_OF_RANGE) {
        part_out_of_range(p, now_us);
        return;
    }
    bool hinted = take_hint(r, p, d);
    if (info->refresh_metadata && !hinted) kc_metadata_refresh(c->core, info->name);
    if (p->replica >= 0) replica_failed(p, now_us);
    if (hinted) return;
    p->not_before_us = kc_part_backoff(p, now_us);
    if (info->retriable && p->errors_in_row < ERRORS_TELL) return; /* leaders move: nothing that the application has to know */
    kc_part_tell(p, d->error_code, p->fetch_offset, "at offset %lld the broker answers %s: %s", (long long)p->fetch_offset, info->name,
                 info->text);
}

static void part_answer(struct reading *r, struct kc_part *p, const struct kw_fetch_response_partition_data *d) {
    if (!kc_part_covered(p) || p->request_generation != p->generation || p->state != KC_PART_FETCHING)
        return; /* joined since, sought, or held against a new epoch (CC-09) */
    kc_part_look(p);
    if (d->error_code != KE_NONE) {
        part_error(r, p, d);
        return;
    }
    p->answered = true;
    p->last_error = KC_OK;
    if (p->told != KC_CORRUPT) p->told = KC_OK;
    p->high_watermark = p->consume->settings->read_committed && d->last_stable_offset >= 0 ? d->last_stable_offset : d->high_watermark;
    bool sent_away = d->preferred_read_replica >= 0 && d->preferred_read_replica != r->f->broker;
    if (sent_away && p->replica_not_before_us <= r->now_us) {
        p->replica = d->preferred_read_replica; /* KIP-392: it has what we want, nearer */
        p->replica_until_us = r->now_us + REPLICA_FOR_US;
    } else if (sent_away && d->records.len <= 0) { /* once more, though we did not ask for it */
        p->not_before_us = kc_part_backoff(p, r->now_us);
        return;
    }
    if (d->records.len > 0) {
        part_records(r, p, d);
    } else { /* null and empty alike (PR-10) */
        p->errors_in_row = 0;
        p->empty_us = r->now_us;
        p->empties++;
        queue_end(p, NULL);
    }
}

/* ---- The session ---- */

static bool is_named(const struct kc_fetcher *f, int32_t topic, const struct kw_fetch_response_fetchable_topic_response *t) {
    const struct kc_topic_meta *m = kc_metadata_topic(f->consume->core, topic);
    return f->request.version >= KC_FETCH_VERSION_BY_ID ? kw_uuid_eq(m->id, t->topic_id) : kw_str_eq(kw_str_of(m->name), t->topic);
}

/* Answers keep the order of requests, as a rule, or name few: the cursor hits, or the map by number. */
static struct kc_part *session_part(struct kc_fetcher *f, const struct kw_fetch_response_fetchable_topic_response *t, int32_t partition) {
    struct kc_consume *c = f->consume;
    struct kc_part *p = f->cursor != &f->parts ? KW_CONTAINER_OF(f->cursor, struct kc_part, session_link) : NULL;
    if (!p || p->partition != partition || !is_named(f, p->topic, t)) {
        const struct kc_topic_meta *m = f->request.version >= KC_FETCH_VERSION_BY_ID ? kc_metadata_by_id(c->core, t->topic_id) : NULL;
        p = m ? kc_part_find(c, m->topic, partition) : NULL;
        if (p && p->fetcher != f) p = NULL;
    }
    for (struct kw_list *it = f->parts.next; it != &f->parts && !p; it = it->next) { /* by name, or no longer assigned */
        p = KW_CONTAINER_OF(it, struct kc_part, session_link);
        if (p->partition != partition || !is_named(f, p->topic, t)) p = NULL;
    }
    if (p) f->cursor = p->session_link.next;
    return p;
}

/* It left the session, and the next request will say so. */
static bool leaving(const struct kc_fetcher *f, const struct kw_fetch_response_fetchable_topic_response *t, int32_t partition) {
    for (size_t i = 0; i < f->forgotten_count; i++) {
        const struct kc_forgotten *g = &f->forgotten[i];
        if (!g->sent && g->partition == partition && is_named(f, g->topic, t)) return true;
    }
    return false;
}

static void session_next(struct kc_fetcher *f, const struct kw_fetch_response *m) {
    if (f->beside || f->broken || f->request.version < 7 || m->session_id == 0) {
        kc_session_reset(f);
        return;
    }
    f->session_id = m->session_id;
    f->session_epoch = f->session_epoch == INT32_MAX ? 1 : f->session_epoch + 1;
    size_t kept = 0;
    for (size_t i = 0; i < f->forgotten_count; i++)
        if (!f->forgotten[i].sent) f->forgotten[kept++] = f->forgotten[i];
    f->forgotten_count = kept;
}

static void read_partitions(struct reading *r, const struct kw_fetch_response *m) {
    struct kc_fetcher *f = r->f;
    bool incremental = f->session_id != 0;
    session_next(f, m);
    f->cursor = f->parts.next;
    for (int32_t t = 0; t < m->responses.n; t++) {
        for (int32_t i = 0; i < m->responses.v[t].partitions.n && r->strays < STRAYS_MAX; i++) {
            const struct kw_fetch_response_partition_data *d = &m->responses.v[t].partitions.v[i];
            struct kc_part *p = session_part(f, &m->responses.v[t], d->partition_index);
            if (p)
                part_answer(r, p, d);
            else if (!f->beside && !leaving(f, &m->responses.v[t], d->partition_index))
                r->strays++;
        }
    }
    /* Of those that an incremental answer does not name nothing changed. */
    for (struct kw_list *it = f->asked.next; it != &f->asked && incremental; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, asked_link);
        if (p->request_generation != p->generation || p->state != KC_PART_FETCHING || p->answered) continue;
        p->answered = true;
        queue_end(p, NULL);
    }
    if (r->strays) kc_session_reset(f); /* the broker's session has what ours has not: begin anew */
}

/* Before the lock is taken: a large answer would hold up poll. */
static kc_err decode(struct reading *r, struct kw_in *body, struct kw_arena *arena, struct kw_fetch_response *m) {
    struct kc_fetcher *f = r->f;
    r->frame_size = kw_in_left(body);
    kw_err err = kw_decode(&kw_fetch_response_desc, f->request.version, body, arena, m);
    if (err != KW_OK) return kc_err_from(err);
    kc_core_broker_throttle(f->consume->core, f->broker, m->throttle_time_ms);
    r->m = m;
    return m->error_code;
}

static bool session_error(kc_err err) {
    return err == KE_FETCH_SESSION_ID_NOT_FOUND || err == KE_INVALID_FETCH_SESSION_EPOCH || err == KE_FETCH_SESSION_TOPIC_ID_ERROR;
}

static void failed(struct kc_fetcher *f, kc_err err, int64_t now_us) {
    struct kc_consume *c = f->consume;
    kc_session_reset(f);
    if (err == KC_CANCELLED) return;
    if (err == KC_CLOSED) {
        c->closed = true;
        return;
    }
    f->errors_in_row++;
    if (f->errors_in_row > 1 || !session_error(err)) /* a lost session is begun anew at once */
        f->not_before_us = now_us + KW_MIN(kc_backoff_us(c, f->errors_in_row), KW_MAX(c->settings->fetch_backoff_us, 1000));
    if (!session_error(err)) kc_metadata_refresh(c->core, "a fetch failed");
    for (struct kw_list *it = f->parts.next; it != &f->parts; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, session_link);
        kc_part_look(p);
        p->last_error = err;
        if (p->replica == f->broker) replica_failed(p, now_us);
        if (err == KC_UNSUPPORTED)
            kc_part_tell(p, err, p->fetch_offset,
                         "broker %d is older than Kafka 0.11 or newer than this client: no version of Fetch in common", (int)f->broker);
        else if (err == KC_TOO_BIG_ANSWER)
            kc_part_tell(
                p, err, p->fetch_offset,
                "an answer to a fetch at offset %lld is larger than receive.message.max.bytes=%d: raise that, or seek past the batch "
                "there",
                (long long)p->fetch_offset, (int)c->settings->receive_bytes_max);
        else if (err == KC_BAD_MESSAGE || (err > 0 && !kc_err_retriable(err)))
            kc_part_tell(p, err, p->fetch_offset, "broker %d answers a fetch at offset %lld with %s", (int)f->broker,
                         (long long)p->fetch_offset, err > 0 ? kc_err_name(err) : "what is no answer to it");
    }
}

/* What the request named is known to the session now; what waited for its end is looked at. */
static void close_request(struct kc_fetcher *f) {
    while (kw_list_shift(&f->asked)) {
    }
    struct kw_list *n;
    while ((n = kw_list_shift(&f->after)) != NULL) kc_part_look(KW_CONTAINER_OF(n, struct kc_part, look_link));
    for (struct kw_list *it = f->parts.next; it != &f->parts && f->beside; it = it->next) /* back into the session, or once more */
        kc_part_look(KW_CONTAINER_OF(it, struct kc_part, session_link));
    /* Those that were to be asked for beside this one and were not yet, for want of memory, say: they need not wait behind its next poll as well. */
    for (n = f->consume->fetchers.next; n != &f->consume->fetchers && !f->beside; n = n->next) {
        struct kc_fetcher *b = KW_CONTAINER_OF(n, struct kc_fetcher, link);
        if (!b->beside || b->broker != f->broker || b->outstanding) continue;
        for (struct kw_list *it = b->parts.next; it != &b->parts; it = it->next) kc_part_look(KW_CONTAINER_OF(it, struct kc_part, session_link));
    }
}

void kc_fetch_answered(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct kc_fetcher *f = rq->ctx;
    struct kc_consume *c = f->consume;
    struct reading r = {.f = f, .blk = blk, .now_us = kc_core_now(c->core).mono_us};
    struct kw_arena arena;
    struct kw_fetch_response m;
    kw_arena_init(&arena, 0);
    if (err == KC_OK) err = decode(&r, body, &arena, &m);
    kc_lock_take(&c->lock);
    f->outstanding = false;
    c->requests--;
    if (err == KC_OK) read_partitions(&r, &m);
    kc_purse_give(c->purse, f->reserved);
    f->reserved = 0;
    if (err == KC_OK)
        f->errors_in_row = 0;
    else
        failed(f, err, r.now_us);
    close_request(f);
    kc_lock_give(&c->lock);
    kw_arena_deinit(&arena);
    kc_consume_run(c);
}
