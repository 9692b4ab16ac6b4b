/* commit_fetch.c - committed offsets read: of partitions that begin where the group left off, and for kc_consumer_committed. Loop context.
 *
 * One OffsetFetch carries every partition that is due; a query has one of its own. An answer for an older generation of a partition is dropped.
 * Only a real answer moves a position; failures to ask are retried (CC-10). The leader epoch that comes with an offset is held against the leader's
 * log before anything is fetched (offsets.c, KIP-320). Offsets of open transactions are waited for (require_stable, KIP-447).
 *
 * Called by consumer.c in its turn, by commit.c, by handle_commit.c. Calls core/coordinator.h. KIP-709.
 */
#include "commit_priv.h"

#include <stdlib.h>

enum { VERSION_MIN = 1, VERSION_STABLE = 7, VERSION_GROUPS = 8, VERSION_BY_ID = 10, FETCHES_MAX = 32 };

struct fetch_item {
    struct kc_part *part; /* held; NULL: item `index` of the query */
    size_t index;
    uint64_t generation;
    int32_t topic, partition;
    struct kw_uuid topic_id;
    bool answered;
};
struct fetch { /* one OffsetFetch */
    struct kc_request rq;
    struct kw_list link; /* in commits->fetches */
    struct kc_commits *commits;
    struct kc_committed_query *query; /* NULL: of partitions, or given up */
    bool of_query;
    size_t count, cursor, entries; /* entries: of the answer, so far */
    struct fetch_item items[];
};

/* ---- Encoding ---- */

static int by_topic(const void *a, const void *b) {
    const struct fetch_item *x = a, *y = b;
    if (x->topic != y->topic) return x->topic < y->topic ? -1 : 1;
    if (x->partition != y->partition) return x->partition < y->partition ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* The numbers of one topic's partitions, each once; *n items are used up. */
static int32_t *run_of(const struct fetch *f, size_t from, size_t *n, int32_t *count, struct kw_arena *arena) {
    size_t to = from;
    while (to < f->count && f->items[to].topic == f->items[from].topic) to++;
    int32_t *v = kw_arena_alloc(arena, (to - from) * sizeof *v);
    *n = to - from;
    *count = 0;
    for (size_t i = from; v && i < to; i++)
        if (i == from || f->items[i].partition != f->items[i - 1].partition) v[(*count)++] = f->items[i].partition;
    return v;
}

static kw_err fill_group(struct fetch *f, struct kw_offset_fetch_request *q, struct kw_arena *arena) {
    struct kw_offset_fetch_request_group *g = kw_arena_calloc(arena, 1, sizeof *g);
    if (!g) return KW_ENOMEM;
    *g = (struct kw_offset_fetch_request_group){
        .group_id = f->commits->group_id, .member_id = kw_str_null(), .member_epoch = -1};
    g->topics.v = kw_arena_calloc(arena, f->count, sizeof *g->topics.v);
    if (!g->topics.v) return KW_ENOMEM;
    for (size_t i = 0, n; i < f->count; i += n) {
        struct kw_offset_fetch_request_topics *t = &g->topics.v[g->topics.n++];
        t->name = kc_topic_name(f->commits->core, f->items[i].topic);
        t->topic_id = f->items[i].topic_id;
        t->partition_indexes.v = run_of(f, i, &n, &t->partition_indexes.n, arena);
        if (!t->partition_indexes.v) return KW_ENOMEM;
    }
    q->groups.v = g;
    q->groups.n = 1;
    return KW_OK;
}

static kw_err fill_topics(struct fetch *f, struct kw_offset_fetch_request *q, struct kw_arena *arena) {
    q->group_id = f->commits->group_id;
    q->topics.v = kw_arena_calloc(arena, f->count, sizeof *q->topics.v);
    q->topics.n = 0;
    if (!q->topics.v) return KW_ENOMEM;
    for (size_t i = 0, n; i < f->count; i += n) {
        struct kw_offset_fetch_request_topic *t = &q->topics.v[q->topics.n++];
        t->name = kc_topic_name(f->commits->core, f->items[i].topic);
        t->partition_indexes.v = run_of(f, i, &n, &t->partition_indexes.n, arena);
        if (!t->partition_indexes.v) return KW_ENOMEM;
    }
    return KW_OK;
}

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct fetch *f = rq->ctx;
    struct kw_arena arena;
    struct kw_offset_fetch_request q;
    kw_msg_init(&kw_offset_fetch_request_desc, &q);
    if (rq->version >= VERSION_STABLE) q.require_stable = true;
    kw_arena_init(&arena, 0);
    kw_err err = (rq->version >= VERSION_GROUPS ? fill_group : fill_topics)(f, &q, &arena);
    if (err == KW_OK) err = kw_encode(&kw_offset_fetch_request_desc, rq->version, &q, out);
    kw_arena_deinit(&arena);
    return err;
}

/* ---- Answers ---- */

struct found { /* of one partition */
    int32_t partition;
    int64_t offset;
    int32_t epoch;
    struct kw_str metadata;
    int16_t err;
};

static bool current(const struct fetch_item *it) {
    return it->part && it->part->assigned && it->part->generation == it->generation && it->part->state == KC_PART_COMMITTED;
}

/* Under the lock: tried again later; told once where trying may not help. */
static void part_failed(struct kc_commits *m, struct kc_part *p, kc_err err, int64_t now_us) {
    p->last_error = err;
    p->not_before_us = kc_part_backoff(p, now_us);
    if (!kc_err_retriable(err) && err != KC_BAD_MESSAGE)
        kc_part_tell(p, err, -1, "its offset committed by group %.*s cannot be read: %s", m->group_id.len, m->group_id.p, kc_err_text(err));
}

/* Under the lock: the group has committed nothing. */
static void part_none(struct kc_part *p, int64_t now_us) {
    int64_t offset = kc_part_reset_offset(p);
    kc_part_restart(p, offset == KC_OFFSET_RESET ? KC_OFFSET_END : offset, -1, now_us);
    p->begun_at = KC_BEGUN_FREE;
    if (offset != KC_OFFSET_RESET) return;
    p->state = KC_PART_FAILED;
    kc_part_tell(p, KE_OFFSET_OUT_OF_RANGE, -1, "the group has committed no offset, and auto.offset.reset=none: seek to go on");
}

/* Under the lock. */
static void part_found(struct kc_part *p, const struct found *r, int64_t now_us) {
    p->errors_in_row = 0;
    p->last_error = p->told = KC_OK;
    if (r->offset < 0) {
        part_none(p, now_us);
        return;
    }
    kc_part_restart(p, r->offset, r->epoch, now_us);
    kc_part_anew(p, r->offset);
    p->acked = p->asked = r->offset;
}

static void query_settle(struct kc_committed_query *q, size_t index, kc_err err) {
    struct kc_committed_item *it = &q->items[index];
    if (it->settled) return;
    it->at.err = err;
    it->settled = true;
    q->left--;
}

static void query_found(struct kc_committed_query *q, size_t index, const struct found *r) {
    struct kc_committed_item *it = &q->items[index];
    if (it->settled) return;
    if (r->metadata.len > 0 && r->offset >= 0) {
        it->metadata = kw_memdup(r->metadata.p, (size_t)r->metadata.len);
        if (!it->metadata) {
            query_settle(q, index, KC_NO_MEMORY);
            return;
        }
        it->at.metadata = (kc_bytes){it->metadata, (size_t)r->metadata.len};
    }
    it->at.offset = r->offset < 0 ? -1 : r->offset;
    it->at.leader_epoch = r->offset < 0 ? -1 : r->epoch;
    query_settle(q, index, KC_OK);
}

/* Whether the same may be asked again, with success. */
static bool may_retry(struct fetch *f, kc_err err) {
    struct kc_commits *m = f->commits;
    if (err == KE_UNKNOWN_TOPIC_OR_PARTITION) return !f->of_query;
    if (kw_kerror_info(err)->refresh_metadata) kc_metadata_refresh(m->core, "a committed offset could not be read");
    return kc_coordinator_failed(m->coordinator, &f->rq, err);
}

static void item_failed(struct fetch *f, struct fetch_item *it, kc_err err, bool retry, int64_t now_us) {
    if (!f->of_query) {
        if (current(it)) part_failed(f->commits, it->part, err, now_us);
    } else if (f->query && !retry) {
        query_settle(f->query, it->index, err);
    }
}

static void item_answered(struct fetch *f, struct fetch_item *it, const struct found *r, int64_t now_us) {
    it->answered = true;
    if (r->err != KE_NONE)
        item_failed(f, it, r->err, may_retry(f, r->err), now_us);
    else if (!f->of_query && current(it))
        part_found(it->part, r, now_us);
    else if (f->of_query && f->query)
        query_found(f->query, it->index, r);
}

/* All items of that partition: a query may name one twice. */
static void answer_part(struct fetch *f, struct kw_str name, const struct kw_uuid *id, const struct found *r, int64_t now_us) {
    bool hit = false;
    if (f->entries++ >= 2 * f->count) return; /* what goes on so long is no answer to what was asked */
    for (size_t i = 0; i < f->count; i++) {
        size_t at = (f->cursor + i) % f->count;
        struct fetch_item *it = &f->items[at];
        bool same = it->partition == r->partition && (id ? kw_uuid_eq(it->topic_id, *id) : kw_str_eq(kc_topic_name(f->commits->core, it->topic), name));
        if (!same && hit) return;
        if (!same) continue;
        hit = true;
        f->cursor = at + 1;
        if (!it->answered) item_answered(f, it, r, now_us);
    }
}

static kc_err read_group(struct fetch *f, const struct kw_offset_fetch_response_group *g, int64_t now_us) {
    if (!kw_str_eq(g->group_id, f->commits->group_id)) return KC_OK;
    for (int32_t t = 0; g->error_code == KE_NONE && t < g->topics.n; t++) {
        const struct kw_offset_fetch_response_topics *topic = &g->topics.v[t];
        for (int32_t i = 0; i < topic->partitions.n; i++) {
            const struct kw_offset_fetch_response_partitions *p = &topic->partitions.v[i];
            struct found r = {p->partition_index, p->committed_offset, p->committed_leader_epoch, p->metadata, p->error_code};
            answer_part(f, topic->name, f->rq.version >= VERSION_BY_ID ? &topic->topic_id : NULL, &r, now_us);
        }
    }
    return g->error_code;
}

/* Before the lock is taken: a large answer would hold up poll. */
static kc_err decode(struct fetch *f, struct kw_in *body, struct kw_arena *arena, struct kw_offset_fetch_response *m) {
    kw_err err = kw_decode(&kw_offset_fetch_response_desc, f->rq.version, body, arena, m);
    if (err == KW_OK) kc_core_broker_throttle(f->commits->core, f->rq.sent_to, m->throttle_time_ms);
    return kc_err_from(err);
}

/* Under the lock. */
static kc_err take_answer(struct fetch *f, const struct kw_offset_fetch_response *m, int64_t now_us) {
    kc_err all = m->error_code;
    for (int32_t g = 0; g < m->groups.n; g++) {
        kc_err of_group = read_group(f, &m->groups.v[g], now_us);
        if (all == KC_OK) all = of_group;
    }
    for (int32_t t = 0; all == KC_OK && t < m->topics.n; t++) {
        const struct kw_offset_fetch_response_topic *topic = &m->topics.v[t];
        for (int32_t i = 0; i < topic->partitions.n; i++) {
            const struct kw_offset_fetch_response_partition *p = &topic->partitions.v[i];
            struct found r = {p->partition_index, p->committed_offset, p->committed_leader_epoch, p->metadata, p->error_code};
            answer_part(f, topic->name, NULL, &r, now_us);
        }
    }
    return all;
}

static void fetch_release(struct fetch *f) { /* under the lock */
    for (size_t i = 0; i < f->count; i++) {
        struct kc_part *p = f->items[i].part;
        if (!p) continue;
        p->lookups--;
        if (p->committed_generation == f->items[i].generation) p->committed_generation = 0;
        kc_part_look(p);
        kc_part_unref(p);
    }
    kw_list_remove(&f->link);
}

/* What of the query is left is asked again after a while, or the query ends. */
static void query_rest(struct fetch *f, kc_err err) {
    struct kc_commits *m = f->commits;
    struct kc_committed_query *q = f->query;
    if (!q) return;
    q->asked = false;
    if (q->left == 0 || q->ending) return;
    if (q->errors < INT32_MAX) q->errors++;
    q->not_before_us = kc_commits_backoff(m, q->errors);
    if (err != KC_OK) kc_attempts_note(q->attempts, kc_core_now(m->core).wall_ms, f->rq.sent_to, err, "answer", kc_err_text(err));
    if (kw_timers_set(kc_core_timers(m->core), &q->timer, KW_MIN(q->not_before_us, q->deadline_us)) != KW_OK) m->short_of_memory = true;
}

static void answered(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct fetch *f = rq->ctx;
    struct kc_commits *m = f->commits;
    int64_t now_us = kc_core_now(m->core).mono_us;
    struct kw_arena arena;
    struct kw_offset_fetch_response answer;
    (void)blk;
    kw_arena_init(&arena, 0);
    bool gone = err == KC_CANCELLED || err == KC_CLOSED;
    if (err == KC_OK) err = decode(f, body, &arena, &answer);
    kc_lock_take(&m->consume->lock);
    if (err == KC_OK) err = take_answer(f, &answer, now_us);
    bool retry = gone || (err != KC_OK && may_retry(f, err));
    for (size_t i = 0; i < f->count && !gone; i++) /* those that the answer passed over, or all */
        if (!f->items[i].answered) item_failed(f, &f->items[i], err == KC_OK ? KC_BAD_MESSAGE : err, retry || err == KC_OK, now_us);
    if (err == KC_OK) (void)kc_coordinator_failed(m->coordinator, rq, KC_OK);
    if (err == KC_CLOSED) m->closed = m->consume->closed = true;
    fetch_release(f);
    query_rest(f, err);
    m->fetch_count--;
    kc_lock_give(&m->consume->lock);
    kw_arena_deinit(&arena);
    kw_free(f);
    kc_commits_look(m);
    kc_consume_run(m->consume);
}

/* ---- Asking ---- */

static struct fetch *fetch_new(struct kc_commits *m, size_t count) {
    struct fetch *f = kw_calloc(1, sizeof *f + count * sizeof *f->items);
    if (!f || !kc_commits_coordinator(m)) {
        kw_free(f);
        return NULL;
    }
    f->commits = m;
    kw_list_init(&f->link);
    return f;
}

static void fetch_send(struct fetch *f, int64_t deadline_us, struct kc_attempts *attempts) {
    struct kc_commits *m = f->commits;
    kc_request_init(&f->rq, KW_API_OFFSET_FETCH);
    f->rq.version_min = VERSION_MIN;
    for (size_t i = 0; i < f->count; i++) {
        const struct kc_topic_meta *t = kc_metadata_topic(m->core, f->items[i].topic);
        if (t && !kw_uuid_is_zero(t->id))
            f->items[i].topic_id = t->id;
        else
            f->rq.version_max = KW_MIN(f->rq.version_max, VERSION_BY_ID - 1);
    }
    qsort(f->items, f->count, sizeof *f->items, by_topic);
    f->rq.deadline_us = deadline_us;
    f->rq.attempts = attempts;
    f->rq.encode = encode;
    f->rq.done = answered;
    f->rq.ctx = f;
    kc_coordinator_aim(m->coordinator, &f->rq);
    kw_list_push(&m->fetches, &f->link);
    m->fetch_count++;
    kc_core_send(m->core, &f->rq);
}

static bool part_due(struct kc_part *p, int64_t now_us) {
    if (!p->assigned || p->state != KC_PART_COMMITTED || p->committed_generation == p->generation) return false;
    if (p->not_before_us <= now_us) return true;
    p->look_at_us = KW_MIN(p->look_at_us, p->not_before_us);
    return false;
}

void kc_commits_ask(struct kc_commits *m, int64_t now_us) {
    struct kc_consume *c = m->consume;
    size_t n = 0;
    if (atomic_exchange(&m->left, false)) kc_commits_look(m);
    if (m->stopped || m->closed || !m->started) return;
    for (struct kw_list *it = c->turn.next; it != &c->turn; it = it->next) n += part_due(KW_CONTAINER_OF(it, struct kc_part, look_link), now_us);
    if (n == 0) return;
    struct fetch *f = fetch_new(m, KW_MIN(n, (size_t)KC_COMMIT_ITEMS_MAX));
    if (!f) {
        c->short_of_memory = true;
        c->look_all = true; /* those that were due are looked at again */
        return;
    }
    for (struct kw_list *it = c->turn.next; it != &c->turn; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, look_link);
        if (!part_due(p, now_us)) continue;
        if (f->count == KC_COMMIT_ITEMS_MAX) { /* the rest goes with the next */
            p->look_at_us = now_us;
            continue;
        }
        kc_part_ref(p);
        p->lookups++;
        p->committed_generation = p->generation;
        f->items[f->count++] = (struct fetch_item){.part = p, .generation = p->generation, .topic = p->topic, .partition = p->partition};
    }
    fetch_send(f, KW_NEVER, NULL);
}

/* ---- Queries ---- */

static void query_end(struct kc_committed_query *q, kc_err err) {
    struct kc_commits *m = q->commits;
    if (q->ending) return;
    q->ending = true;
    for (size_t i = 0; i < q->count; i++) query_settle(q, i, err);
    for (struct kw_list *l = m->fetches.next; l != &m->fetches; l = l->next) {
        struct fetch *f = KW_CONTAINER_OF(l, struct fetch, link);
        if (f->query != q) continue;
        f->query = NULL;
        f->rq.attempts = NULL;
        kc_core_cancel(m->core, &f->rq);
    }
    kw_timers_cancel(kc_core_timers(m->core), &q->timer);
    kw_list_remove(&q->link);
    kw_list_push(&m->queries_ended, &q->link);
    kc_commits_look(m);
}

static void query_timer(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kc_committed_query *q = ctx;
    (void)t;
    if (now_us >= q->deadline_us) query_end(q, KC_TIMED_OUT);
    kc_commits_look(q->commits);
}

static void query_ask(struct kc_commits *m, struct kc_committed_query *q) {
    struct fetch *f = fetch_new(m, KW_MIN(q->left, (size_t)KC_COMMIT_ITEMS_MAX));
    if (!f) {
        m->short_of_memory = true;
        return;
    }
    for (size_t i = 0; i < q->count && f->count < KC_COMMIT_ITEMS_MAX; i++) {
        if (q->items[i].settled) continue;
        f->items[f->count++] = (struct fetch_item){.index = i, .topic = q->items[i].at.topic, .partition = q->items[i].at.partition};
    }
    f->query = q;
    f->of_query = true;
    q->asked = true;
    (void)!kw_timers_set(kc_core_timers(m->core), &q->timer, q->deadline_us); /* moves one that is set */
    fetch_send(f, KW_NEVER, q->attempts);
}

void kc_commits_queries_run(struct kc_commits *m) {
    struct kw_list *l, *next, now;
    int64_t now_us = kc_core_now(m->core).mono_us;
    for (l = m->queries.next; l != &m->queries; l = next) {
        next = l->next;
        struct kc_committed_query *q = KW_CONTAINER_OF(l, struct kc_committed_query, link);
        if (m->stopped || m->closed)
            query_end(q, KC_CLOSED);
        else if (q->left == 0)
            query_end(q, KC_OK);
        else if (!q->asked && q->not_before_us <= now_us && m->fetch_count < FETCHES_MAX) /* the rest as these are answered */
            query_ask(m, q);
    }
    kw_list_init(&now);
    while ((l = kw_list_shift(&m->queries_ended)) != NULL) kw_list_push(&now, l);
    while ((l = kw_list_shift(&now)) != NULL) {
        struct kc_committed_query *q = KW_CONTAINER_OF(l, struct kc_committed_query, link);
        m->query_count--;
        q->done(q);
    }
}

void kc_commits_query(struct kc_commits *m, struct kc_committed_query *q) {
    q->commits = m;
    q->left = q->count;
    q->asked = q->ending = false;
    q->errors = 0;
    q->not_before_us = 0;
    kw_timer_init(&q->timer, query_timer, q);
    kw_list_init(&q->link);
    if (!q->attempts) q->attempts = kc_attempts_new(); /* without: nothing is noted */
    for (size_t i = 0; i < q->count; i++) {
        q->items[i].settled = false;
        if (!kc_metadata_topic(m->core, q->items[i].at.topic) || q->items[i].at.partition < 0) query_settle(q, i, KC_INVALID);
    }
    bool timed = kw_timers_set(kc_core_timers(m->core), &q->timer, q->deadline_us) == KW_OK, full = m->query_count >= KC_COMMIT_CALLS_MAX;
    for (size_t i = 0; i < q->count && (m->stopped || !timed || full); i++)
        query_settle(q, i, m->stopped ? KC_CLOSED : full ? KC_QUEUE_FULL : KC_NO_MEMORY);
    if (m->stopped) {
        kw_timers_cancel(kc_core_timers(m->core), &q->timer);
        q->done(q);
        return;
    }
    m->query_count++;
    kw_list_push(&m->queries, &q->link);
    kc_commits_look(m);
}

void kc_commits_query_cancel(struct kc_commits *m, struct kc_committed_query *q, kc_err err) {
    (void)m;
    query_end(q, err);
}

void kc_commits_fetches_stop(struct kc_commits *m) {
    for (struct kw_list *l = m->fetches.next; l != &m->fetches; l = l->next) kc_core_cancel(m->core, &KW_CONTAINER_OF(l, struct fetch, link)->rq);
}

bool kc_commits_fetches_stopped(const struct kc_commits *m) {
    return m->fetch_count == 0 && kw_list_empty(&m->queries) && kw_list_empty(&m->queries_ended);
}
