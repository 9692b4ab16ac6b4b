/* fetcher.c - one fetch session a broker (KIP-227): which partitions to ask for and how much, the request, when it is sent. The answer is
 * fetch_answer.c's.
 *
 * Loop context; the consumer's lock is held while partitions are looked at. A partition is asked for while little of it waits to be taken,
 * so that one with endless data cannot crowd out the others; those that gave data move to the end of the order (CC-01). The budget is
 * reserved before asking. A partition may leave a session at any time, also while it is in the outstanding request: the answer then passes
 * it by, and the next request takes it out of the broker's session. What wants data while a long poll goes on without it (after a seek, a
 * resume, or because it was full when the poll began) is asked for beside it.
 */
#include "consumer.h"

#define FETCH_VERSION_MAX 18
#define RESERVE_MIN 65536
#define RESERVE_LEAST 4096 /* among so many consumers that RESERVE_MIN is more than each may count on */
#define BUDGET_RETRY_US 20000
#define LATE_US 1000000           /* a broker that takes longer than it may wait plus so much may no longer lead */
#define BESIDE_AFTER_US 5000      /* a fetch that is on its way for so long may well be a long poll */
#define BESIDE_EMPTY_US 50000     /* what has nothing new is asked for beside it again after so long, then after twice as long … */
#define BESIDE_EMPTY_DOUBLINGS 4

/* ---- The session ---- */

static struct kc_fetcher *fetcher_of(struct kc_consume *c, int32_t broker, bool beside) {
    for (struct kw_list *it = c->fetchers.next; it != &c->fetchers; it = it->next) {
        struct kc_fetcher *f = KW_CONTAINER_OF(it, struct kc_fetcher, link);
        if (f->broker == broker && f->beside == beside) return f;
    }
    struct kc_fetcher *f = kw_calloc(1, sizeof *f);
    if (!f) return NULL;
    f->consume = c;
    f->broker = broker;
    f->beside = beside;
    kw_list_init(&f->parts);
    kw_list_init(&f->changed);
    kw_list_init(&f->asked);
    kw_list_init(&f->after);
    kw_list_push(&c->fetchers, &f->link);
    return f;
}

static kw_err forget_later(struct kc_fetcher *f, const struct kc_part *p) {
    if (f->beside || (f->session_id == 0 && !f->outstanding)) return KW_OK;
    if (f->forgotten_count == f->forgotten_cap) {
        size_t cap = f->forgotten_cap ? f->forgotten_cap * 2 : 8;
        struct kc_forgotten *grown = kw_realloc(f->forgotten, cap * sizeof *grown);
        if (!grown) return KW_ENOMEM;
        f->forgotten = grown;
        f->forgotten_cap = cap;
    }
    f->forgotten[f->forgotten_count++] = (struct kc_forgotten){p->topic, p->partition, false};
    return KW_OK;
}

void kc_session_reset(struct kc_fetcher *f) {
    f->session_id = 0;
    f->session_epoch = 0;
    f->forgotten_count = 0;
    f->broken = f->outstanding && f->encoded; /* what its answer would go on with is not what we know any more */
}

void kc_fetchers_forget(struct kc_part *p) {
    struct kc_fetcher *f = p->fetcher;
    if (!f) return;
    p->fetcher = NULL;
    kw_list_remove(&p->session_link);
    kw_list_remove(&p->asked_link);
    f->part_count--;
    if (forget_later(f, p) != KW_OK) kc_session_reset(f); /* a full request says it all */
    kc_part_unref(p);
}

static void session_add(struct kc_fetcher *f, struct kc_part *p) {
    for (size_t i = 0; i < f->forgotten_count; i++) {
        struct kc_forgotten *g = &f->forgotten[i];
        if (g->sent || g->topic != p->topic || g->partition != p->partition) continue;
        *g = f->forgotten[--f->forgotten_count];
        break;
    }
    kc_part_ref(p);
    p->fetcher = f;
    p->first_request = f->requests + 1;
    p->sent_offset = -1;
    kw_list_push(&f->parts, &p->session_link);
    kw_list_push(&f->changed, &p->asked_link);
    f->part_count++;
    f->no_replicas_until_us = KW_MAX(f->no_replicas_until_us, p->replica_not_before_us);
}

/* ---- Choosing ---- */

/* Whether the partition wants data now. */
static bool part_wants(struct kc_part *p, int64_t now_us) {
    const struct kc_settings *s = p->consume->settings;
    if (!p->assigned || p->paused || p->held || p->state != KC_PART_FETCHING) return false;
    if (p->not_before_us > now_us) {
        p->look_at_us = KW_MIN(p->look_at_us, p->not_before_us);
        return false;
    }
    p->full = p->queued_bytes >= (size_t)s->fetch_partition_bytes_max; /* taking what waits has it looked at again */
    return !p->full;
}

/* The position was reached under an older leader epoch than the present one: ask first whether it still stands (KIP-320). */
static bool needs_validation(const struct kc_part *p, int32_t epoch) {
    return epoch >= 0 && p->fetch_epoch >= 0 && p->validated_epoch != epoch && p->fetch_epoch < epoch;
}

static int32_t wanted_size(const struct kc_part *p) {
    return KW_MAX(p->fetch_size, p->consume->settings->fetch_partition_bytes_max);
}

/* Another topic of the same name: no position of the old one means anything in it (CX-02). */
static void check_topic(struct kc_part *p, int64_t now_us) {
    const struct kc_topic_meta *t = kc_metadata_topic(p->consume->core, p->topic);
    if (!t || kw_uuid_is_zero(t->id) || kw_uuid_eq(t->id, p->topic_id)) return;
    bool first = kw_uuid_is_zero(p->topic_id);
    p->topic_id = t->id;
    if (first || !p->assigned) return;
    if (p->fetcher) kc_session_reset(p->fetcher);
    p->validated_epoch = -1;
    p->replica = -1;
    bool had_position = p->state != KC_PART_LOOKUP && p->state != KC_PART_COMMITTED;
    kc_part_restart(p, had_position ? KC_OFFSET_BEGINNING : p->start, -1, now_us);
    p->told = KC_OK;
    if (!had_position) return;
    if (p->consume->settings->offset_reset != 0) {
        kc_part_tell(p, KE_INCONSISTENT_TOPIC_ID, -1, "the topic was deleted and created anew: going on at the beginning of the new one");
        return;
    }
    p->state = KC_PART_FAILED;
    kc_part_tell(p, KE_OFFSET_OUT_OF_RANGE, -1,
                 "the topic was deleted and created anew, its offsets are gone, and auto.offset.reset=none: seek to go on");
}

static bool may_validate(struct kc_consume *c, int32_t broker) { /* brokers before 2.1 keep no epochs for consumers */
    int16_t min, max;
    return !kc_core_versions(c->core, broker, KW_API_OFFSET_FOR_LEADER_EPOCH, &min, &max) || max >= 2;
}

/* The broker's session, unless it waits for others' data: then beside it. NULL: no memory. */
static struct kc_fetcher *fetcher_for(struct kc_part *p, int32_t broker, int64_t now_us) {
    struct kc_consume *c = p->consume;
    struct kc_fetcher *f = fetcher_of(c, broker, false);
    if (!f || !f->outstanding || !f->encoded || c->settings->fetch_wait_us == 0) return f;
    if (p->fetcher == f && kc_part_in_request(p) && p->request_generation == p->generation) return f; /* it is being asked for */
    int64_t at_us = f->sent_us + BESIDE_AFTER_US;
    if (p->empty_us >= 0) at_us = KW_MAX(at_us, p->empty_us + ((int64_t)BESIDE_EMPTY_US << KW_MIN(p->empties - 1, BESIDE_EMPTY_DOUBLINGS)));
    if (at_us <= now_us) return fetcher_of(c, broker, true);
    p->look_at_us = KW_MIN(p->look_at_us, at_us);
    return f;
}

/* Whether the broker's session has it as it would be asked for now. */
static bool is_sent(const struct kc_part *p, int32_t epoch) {
    return p->sent_offset == p->fetch_offset && p->sent_epoch == epoch && p->sent_size == wanted_size(p);
}

/* The session has to be told what it does not know of it. */
static void note_change(struct kc_part *p, int32_t epoch) {
    if (is_sent(p, epoch) && p->request_generation == p->generation) return;
    kw_list_remove(&p->asked_link);
    kw_list_push(&p->fetcher->changed, &p->asked_link);
}

static void place(struct kc_part *p, int32_t broker, int32_t epoch, int64_t now_us) {
    struct kc_consume *c = p->consume;
    struct kc_fetcher *f = fetcher_for(p, broker, now_us);
    if (!f) {
        c->short_of_memory = true;
        return;
    }
    if (p->fetcher != f) {
        kc_fetchers_forget(p);
        session_add(f, p);
    }
    if (kw_uuid_is_zero(p->topic_id)) f->nameless = true;
    if (p->replica >= 0) p->look_at_us = KW_MIN(p->look_at_us, p->replica_until_us);
    note_change(p, epoch);
}

static void place_part(struct kc_part *p, int64_t now_us) {
    struct kc_consume *c = p->consume;
    check_topic(p, now_us);
    if (p->back_off) {
        p->back_off = false;
        p->not_before_us = now_us + kc_backoff_us(c, p->corrupt_count);
    }
    int32_t epoch, broker = kc_part_broker(p, now_us, false, &epoch);
    bool wants = part_wants(p, now_us) && broker >= 0;
    if (wants && needs_validation(p, epoch) && may_validate(c, broker)) {
        p->state = KC_PART_VALIDATE;
        p->since_us = now_us;
        wants = false;
    }
    if (broker >= 0)
        p->missing_since_us = 0;
    else if (p->state == KC_PART_FETCHING && p->assigned && !p->paused && !p->held)
        kc_part_unled(p, now_us);
    if (broker >= 0 && p->fetcher && p->fetcher->broker != broker) kc_fetchers_forget(p);
    bool asked = kc_part_in_request(p) && p->state == KC_PART_FETCHING && p->request_generation == p->generation;
    bool may = kc_consume_may_queue(c);
    struct kw_list *later = NULL;
    if (wants && may && !(asked && p->fetcher->beside))
        place(p, broker, epoch, now_us);
    else if (asked) /* what is on its way is welcome; then it is decided anew */
        later = &p->fetcher->after;
    else
        kc_fetchers_forget(p);
    if (!later && wants && !may) later = &c->held; /* until something is taken */
    if (!later) return;
    kw_list_remove(&p->look_link);
    kw_list_push(later, &p->look_link);
}

void kc_fetchers_place(struct kc_consume *c, int64_t now_us) {
    if (c->stopped || c->closed) return;
    for (struct kw_list *it = c->turn.next, *next; it != &c->turn; it = next) {
        next = it->next;
        place_part(KW_CONTAINER_OF(it, struct kc_part, look_link), now_us);
    }
}

/* ---- The request ---- */

struct builder { /* entries of partitions, and of topics in the order of first appearance */
    struct kw_fetch_request_fetch_partition *parts;
    int32_t *topic_of;
    int32_t count;
};

static int32_t topic_entry(struct kw_fetch_request *m, const struct kc_topic_meta *t) {
    for (int32_t i = m->topics.n - 1; i >= 0; i--)
        if (m->topics.v[i].topic.p == t->name) return i;
    m->topics.v[m->topics.n].topic = kw_str_of(t->name);
    m->topics.v[m->topics.n].topic_id = t->id;
    return m->topics.n++;
}

static void add_part(struct builder *b, struct kw_fetch_request *m, struct kc_part *p, int64_t now_us, bool full) {
    const struct kc_settings *s = p->consume->settings;
    struct kc_fetcher *f = p->fetcher;
    const struct kc_topic_meta *t = kc_metadata_topic(p->consume->core, p->topic);
    if (p->state != KC_PART_FETCHING || (f->by_id && kw_uuid_is_zero(t->id))) { /* sought just now, or it joined late: not in this one */
        p->first_request = f->requests + 1;
        return;
    }
    int32_t epoch;
    (void)kc_part_broker(p, now_us, false, &epoch);
    p->request_generation = p->generation;
    kw_list_remove(&p->asked_link);
    kw_list_push(&f->asked, &p->asked_link);
    /* The end of an empty partition is told at once. */
    if (s->partition_eof && !p->answered) m->max_wait_ms = 0;
    if (!full && is_sent(p, epoch)) return;
    p->sent_offset = p->fetch_offset;
    p->sent_epoch = epoch;
    p->sent_size = wanted_size(p);
    int32_t e = topic_entry(m, t);
    m->topics.v[e].partitions.n++;
    b->topic_of[b->count] = e;
    b->parts[b->count++] = (struct kw_fetch_request_fetch_partition){.partition = p->partition,
                                                                     .current_leader_epoch = epoch,
                                                                     .fetch_offset = p->fetch_offset,
                                                                     .last_fetched_epoch = -1,
                                                                     .log_start_offset = -1,
                                                                     .partition_max_bytes = p->sent_size,
                                                                     .high_watermark = INT64_MAX};
}

/* All of the session, or what changed in it. */
static void add_parts(struct kc_fetcher *f, struct builder *b, struct kw_fetch_request *m) {
    bool full = f->session_id == 0;
    int64_t now_us = kc_core_now(f->consume->core).mono_us;
    struct kw_list *all = full ? &f->parts : &f->changed;
    for (struct kw_list *it = all->next, *next; it != all; it = next) {
        next = it->next;
        struct kc_part *p = full ? KW_CONTAINER_OF(it, struct kc_part, session_link) : KW_CONTAINER_OF(it, struct kc_part, asked_link);
        add_part(b, m, p, now_us, full);
    }
}

/* Each topic's partitions together, in their order. */
static kw_err group_parts(const struct builder *b, struct kw_arena *a, struct kw_fetch_request *m) {
    struct kw_fetch_request_fetch_partition *v = kw_arena_alloc(a, ((size_t)b->count + 1) * sizeof *v);
    if (!v) return KW_ENOMEM;
    for (int32_t i = 0; i < m->topics.n; i++) {
        m->topics.v[i].partitions.v = v;
        v += m->topics.v[i].partitions.n;
        m->topics.v[i].partitions.n = 0;
    }
    for (int32_t i = 0; i < b->count; i++) {
        struct kw_fetch_request_fetch_topic *t = &m->topics.v[b->topic_of[i]];
        t->partitions.v[t->partitions.n++] = b->parts[i];
    }
    return KW_OK;
}

static kw_err add_forgotten(struct kc_fetcher *f, struct kw_arena *a, struct kw_fetch_request *m) {
    m->forgotten_topics_data.v = kw_arena_calloc(a, f->forgotten_count + 1, sizeof *m->forgotten_topics_data.v);
    if (!m->forgotten_topics_data.v) return KW_ENOMEM;
    for (size_t i = 0; i < f->forgotten_count; i++) {
        struct kc_topic_meta *t = kc_metadata_topic(f->consume->core, f->forgotten[i].topic);
        struct kw_fetch_request_forgotten_topic *e = &m->forgotten_topics_data.v[m->forgotten_topics_data.n++];
        e->topic = kw_str_of(t->name);
        e->topic_id = t->id;
        e->partitions.v = &f->forgotten[i].partition;
        e->partitions.n = 1;
        f->forgotten[i].sent = true;
    }
    return KW_OK;
}

static size_t list_count(const struct kw_list *l) {
    size_t n = 0;
    for (const struct kw_list *it = l->next; it != l; it = it->next) n++;
    return n;
}

/* The largest batch that is known to be there, of those larger than usual (CC-15); 0: none. */
static int32_t largest_size(struct kc_fetcher *f) {
    int32_t largest = 0;
    for (struct kw_list *it = f->parts.next; it != &f->parts && f->consume->large_batches > 0; it = it->next)
        largest = KW_MAX(largest, KW_CONTAINER_OF(it, struct kc_part, session_link)->fetch_size);
    return largest;
}

static kw_err build(struct kc_fetcher *f, int16_t version, struct kw_arena *a, struct kw_fetch_request *m) {
    struct kc_consume *c = f->consume;
    const struct kc_settings *s = c->settings;
    kw_msg_init(&kw_fetch_request_desc, m);
    bool by_id = version >= KC_FETCH_VERSION_BY_ID;
    if (f->session_id != 0 && f->by_id != by_id) kc_session_reset(f);
    f->broken = false;
    if (f->session_id == 0) f->forgotten_count = 0;
    f->by_id = by_id;
    m->max_wait_ms = f->beside ? 0 : (int32_t)KW_MIN(s->fetch_wait_us / 1000, INT32_MAX);
    m->isolation_level = s->read_committed;
    m->session_id = f->session_id;
    m->session_epoch = f->beside ? -1 : f->session_epoch; /* -1: none is wanted */
    size_t count = f->session_id == 0 ? f->part_count : list_count(&f->changed);
    struct builder b = {.parts = kw_arena_alloc(a, (count + 1) * sizeof *b.parts),
                        .topic_of = kw_arena_alloc(a, (count + 1) * sizeof *b.topic_of)};
    m->topics.v = kw_arena_calloc(a, count + 1, sizeof *m->topics.v);
    if (!m->topics.v || !b.parts || !b.topic_of) return KW_ENOMEM;
    add_parts(f, &b, m);
    /* A leader that knows our rack may send us to a replica there; not right after that did not work. */
    if (version >= 11 && s->rack && f->no_replicas_until_us <= f->sent_us) m->rack_id = kw_str_of(s->rack);
    m->max_bytes = (int32_t)KW_MIN(f->reserved, (int64_t)KW_MAX(s->fetch_max_bytes, largest_size(f)));
    m->min_bytes = KW_MIN(s->fetch_min_bytes, m->max_bytes); /* a broker might wait for what it cannot send */
    kw_err err = group_parts(&b, a, m);
    return err == KW_OK && f->session_id != 0 ? add_forgotten(f, a, m) : err;
}

static kw_err encode_fetch(struct kc_request *rq, struct kw_out *out) {
    struct kc_fetcher *f = rq->ctx;
    struct kw_arena arena;
    struct kw_fetch_request m;
    kw_arena_init(&arena, 0);
    kc_lock_take(&f->consume->lock);
    f->encoded = true;
    f->requests++;
    f->sent_us = kc_core_now(f->consume->core).mono_us;
    kw_err err = build(f, rq->version, &arena, &m);
    kc_lock_give(&f->consume->lock);
    if (err == KW_OK) err = kw_encode(&kw_fetch_request_desc, rq->version, &m, out);
    kw_arena_deinit(&arena);
    return err;
}

/* ---- Sending ---- */

/* The smallest reservation: a consumer's floor has room for one. */
static int64_t reserve_least(const struct kc_consume *c) {
    int64_t each = kc_purse_floor(c->purse);
    return each > 0 && each < RESERVE_MIN ? KW_MAX(each, RESERVE_LEAST) : RESERVE_MIN;
}

/* As much of what one answer may bring as there is room for; 0: none now. Of what the consumer may have its fetchers get the same each, and there is
 * room left for one more: else the first ones' long polls, with nothing in sight, would hold it all. */
static int64_t reserve(struct kc_fetcher *f) {
    struct kc_consume *c = f->consume;
    const struct kc_settings *s = c->settings;
    int64_t room = kc_purse_room(c->purse), all = room, least = reserve_least(c), fetchers = 0;
    for (struct kw_list *it = c->fetchers.next; it != &c->fetchers; it = it->next) {
        const struct kc_fetcher *o = KW_CONTAINER_OF(it, struct kc_fetcher, link);
        all += o->reserved;
        fetchers += o->part_count > 0;
    }
    int64_t larger = largest_size(f), largest = KW_MAX((int64_t)s->fetch_max_bytes, larger);
    int64_t want = (int64_t)KW_MIN(f->part_count, (size_t)INT32_MAX) * s->fetch_partition_bytes_max + larger;
    want = KW_MAX(KW_MIN(want, largest), RESERVE_MIN);
    want = KW_MIN(KW_MIN(want, KW_MAX((all - least) / fetchers, least)), room);
    return want >= least && kc_purse_take(c->purse, want) ? want : 0;
}

static void send_fetch(struct kc_fetcher *f, int64_t now_us, int64_t *next_us) {
    struct kc_consume *c = f->consume;
    f->reserved = reserve(f);
    if (f->reserved == 0 && kc_consume_drop_paused(c)) f->reserved = reserve(f);
    if (f->reserved == 0) { /* the application holds it all, in events that it may free on any thread: look again */
        *next_us = KW_MIN(*next_us, now_us + BUDGET_RETRY_US);
        return;
    }
    kc_request_init(&f->request, KW_API_FETCH);
    f->request.version_min = 4;
    f->request.version_max = FETCH_VERSION_MAX;
    f->request.broker = f->broker;
    if (!f->beside && c->channel == KC_CHANNEL_CONTROL) c->channel = kc_core_fetch_take(c->core);
    f->request.channel = f->beside ? KC_CHANNEL_CONTROL : c->channel;
    f->request.deadline_us = KW_NEVER;
    f->request.answer_timeout_us = c->settings->fetch_wait_us + c->settings->request_timeout_us;
    f->request.encode = encode_fetch;
    f->request.done = kc_fetch_answered;
    f->request.ctx = f;
    if (f->nameless) f->request.version_max = KC_FETCH_VERSION_BY_ID - 1;
    f->outstanding = true;
    f->encoded = false;
    c->requests++;
    kc_core_send(c->core, &f->request);
}

/* The leader may be frozen and another one elected: nothing else would tell. One that waits to be sent is the core's to get there. */
static void watch(struct kc_fetcher *f, int64_t now_us, int64_t *next_us) {
    struct kc_consume *c = f->consume;
    int64_t late_us = (f->encoded ? f->sent_us : now_us) + c->settings->fetch_wait_us + LATE_US;
    if (late_us <= now_us) {
        kc_metadata_refresh(c->core, "a fetch takes long");
        late_us = now_us + LATE_US;
    }
    *next_us = KW_MIN(*next_us, late_us);
}

void kc_fetchers_run(struct kc_consume *c, int64_t now_us, int64_t *next_us) {
    bool idle = c->stopped || c->closed;
    for (struct kw_list *next, *it = c->fetchers.next; it != &c->fetchers; it = next) {
        struct kc_fetcher *f = KW_CONTAINER_OF(it, struct kc_fetcher, link);
        next = it->next;
        if (f->outstanding) {
            /* One that was sent is waited for, wanted or not: the broker answers in order, so nothing behind it would come sooner. What
             * cannot wait is asked for beside it. */
            if (c->stopped || (!f->encoded && f->part_count == 0))
                kc_core_cancel(c->core, &f->request);
            else
                watch(f, now_us, next_us);
            continue;
        }
        if (idle || f->part_count == 0) continue;
        int64_t due = KW_MAX(f->not_before_us, kc_core_broker_held_until(c->core, f->broker));
        if (due > now_us) {
            *next_us = KW_MIN(*next_us, due);
            continue;
        }
        send_fetch(f, now_us, next_us);
        if (!f->outstanding) continue;
        watch(f, now_us, next_us);
        kw_list_remove(&f->link); /* where the budget does not do for all, who went without comes first when an answer gives some back */
        kw_list_push(&c->fetchers, &f->link);
    }
}

void kc_fetchers_free(struct kc_consume *c) {
    struct kw_list *n;
    while ((n = kw_list_shift(&c->fetchers)) != NULL) {
        struct kc_fetcher *f = KW_CONTAINER_OF(n, struct kc_fetcher, link);
        struct kw_list *it;
        while ((it = kw_list_shift(&f->parts)) != NULL) {
            struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, session_link);
            p->fetcher = NULL;
            kw_list_remove(&p->asked_link);
            kw_list_remove(&p->look_link); /* it may be in f->after */
            kc_part_unref(p);
        }
        kw_free(f->forgotten);
        kw_free(f);
    }
}
