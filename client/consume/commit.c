/* commit.c - commits: calls into slots, slots into one OffsetCommit at a time, answers into what ended. Loop context.
 *
 * Whatever happens only changes slots and lists, and asks for the end of the turn (run): there what ended is told, and what waits is sent. So nothing
 * here is called back from inside, however many commits end at once (CX-16).
 *
 * Called by handle_commit.c, consumer.c, group*.c; calls commit_auto.c, commit_fetch.c, core/coordinator.h.
 */
#include "commit_priv.h"

#include <stdlib.h>

enum { VERSION_MIN = 2, VERSION_STATIC = 7, VERSION_BY_ID = 10 };
#define MEMORY_RETRY_US 100000

void kc_commits_look(struct kc_commits *m) {
    kc_core_defer(m->core, &m->run);
}

int64_t kc_commits_backoff(struct kc_commits *m, int32_t errors) {
    return kc_core_now(m->core).mono_us + kc_backoff_us(m->consume, errors);
}

/* ---- Calls ---- */

static void call_ended(struct kc_commit_call *call) {
    struct kc_commits *m = call->commits;
    kw_timers_cancel(kc_core_timers(m->core), &call->timer);
    kw_list_remove(&call->link);
    kw_list_push(&m->ended, &call->link);
    kc_commits_look(m);
}

static void settle(struct kc_commit_item *it, kc_err err, bool sent) {
    if (it->settled) return;
    struct kc_commit_call *call = it->call;
    kw_list_remove(&it->link);
    it->at.err = err;
    it->settled = true;
    it->sent = sent;
    if (err != KC_OK && !call->attempts && call->commits->attempts) call->attempts = kc_attempts_ref(call->commits->attempts);
    if (--call->left == 0) call_ended(call);
}

static struct kc_commit_item *first_item(const struct kc_slot *s) {
    return kw_list_empty(&s->items) ? NULL : KW_CONTAINER_OF(s->items.next, struct kc_commit_item, link);
}

static void settle_upto(struct kc_slot *s, uint64_t order, kc_err err, bool sent) {
    struct kc_commit_item *it;
    while ((it = first_item(s)) != NULL && it->order <= order) settle(it, err, sent);
}

static struct kc_slot *slot_of(struct kc_commits *m, int32_t topic, int32_t partition) {
    return kw_map_get_u64(&m->slots, kc_part_key(topic, partition));
}

/* What was asked for in a call that gave up may have been sent. */
static bool was_sent(struct kc_commits *m, const struct kc_commit_item *it) {
    const struct kc_slot *s = slot_of(m, it->at.topic, it->at.partition);
    return s && s->encoded && it->order <= s->sent_order;
}

static void call_give_up(struct kc_commits *m, struct kc_commit_call *call, kc_err err) {
    size_t count = call->count;
    m->prune_due = true;
    for (size_t i = 0; i < count; i++) settle(&call->items[i], err, was_sent(m, &call->items[i]));
}

static void call_late(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kc_commit_call *call = ctx;
    (void)t;
    (void)now_us;
    call_give_up(call->commits, call, KC_TIMED_OUT);
}

void kc_commits_call_cancel(struct kc_commits *m, struct kc_commit_call *call, kc_err err) {
    call_give_up(m, call, err);
}

/* UTF-8 as Kafka's strings have it: no overlong forms, no surrogates. */
static bool is_text(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n;) {
        uint8_t b = p[i];
        size_t len = b < 0x80 ? 1 : b >= 0xc2 && b < 0xe0 ? 2 : b >= 0xe0 && b < 0xf0 ? 3 : b >= 0xf0 && b < 0xf5 ? 4 : 0;
        if (len == 0 || len > n - i) return false;
        for (size_t k = 1; k < len; k++)
            if ((p[i + k] & 0xc0) != 0x80) return false;
        if ((b == 0xe0 && p[i + 1] < 0xa0) || (b == 0xed && p[i + 1] > 0x9f) || (b == 0xf0 && p[i + 1] < 0x90) || (b == 0xf4 && p[i + 1] > 0x8f))
            return false;
        i += len;
    }
    return true;
}

static kc_err check_item(struct kc_commits *m, const struct kc_commit_item *it) {
    const kc_offset *at = &it->at;
    if (!kc_metadata_topic(m->core, at->topic) || at->partition < 0 || at->offset < 0) return KC_INVALID;
    if (at->metadata.size > 0 && !at->metadata.p) return KC_INVALID;
    if (at->metadata.size > INT16_MAX) return KE_OFFSET_METADATA_TOO_LARGE;
    if (!is_text(at->metadata.p, at->metadata.size)) return KC_INVALID;
    return m->managed && it->assignment == 0 ? KC_NOT_ASSIGNED : KC_OK;
}

static kc_err item_begin(struct kc_commits *m, struct kc_commit_item *it) {
    kc_err err = check_item(m, it);
    if (err != KC_OK) return err;
    struct kc_value v = {it->at.topic,
                         it->at.partition,
                         it->at.offset,
                         it->epoch,
                         it->assignment,
                         it->era,
                         it->at.metadata};
    return kc_slot_put(m, &v, it);
}

void kc_commits_call(struct kc_commits *m, struct kc_commit_call *call) {
    kc_err all = m->stopped ? KC_CLOSED : m->call_count >= KC_COMMIT_CALLS_MAX ? KC_QUEUE_FULL : KC_OK;
    call->commits = m;
    call->left = call->count + 1; /* one more, until all are begun */
    kw_timer_init(&call->timer, call_late, call);
    kw_list_init(&call->link);
    m->call_count++;
    if (all == KC_OK) {
        kw_list_push(&m->calls, &call->link);
        if (kw_timers_set(kc_core_timers(m->core), &call->timer, call->deadline_us) != KW_OK) all = KC_NO_MEMORY;
    }
    m->orders++;
    for (size_t i = 0; i < call->count; i++) {
        struct kc_commit_item *it = &call->items[i];
        kw_list_init(&it->link);
        it->call = call;
        it->settled = it->sent = false;
        kc_err err = all == KC_OK ? item_begin(m, it) : all;
        if (err != KC_OK) settle(it, err, false);
    }
    if (--call->left == 0) call_ended(call);
    if (m->stopped) {
        kw_list_remove(&call->link);
        m->call_count--;
        call->done(call);
        return;
    }
    kc_commits_look(m);
}

/* ---- Slots ---- */

static void slot_free(struct kc_commits *m, struct kc_slot *s) {
    KW_ASSERT(kw_list_empty(&s->items));
    (void)kw_map_remove_u64(&m->slots, kc_part_key(s->topic, s->partition));
    kw_list_remove(&s->link);
    kw_free(s->metadata);
    kw_free(s);
}

static struct kc_slot *slot_make(struct kc_commits *m, const struct kc_value *v) {
    struct kc_slot *s = kw_calloc(1, sizeof *s);
    if (!s) return NULL;
    if (kw_map_put_u64(&m->slots, kc_part_key(v->topic, v->partition), s) != KW_OK) {
        kw_free(s);
        return NULL;
    }
    kw_list_init(&s->link);
    kw_list_init(&s->items);
    s->topic = v->topic;
    s->partition = v->partition;
    s->offset = -1;
    return s;
}

static bool is_same(const struct kc_slot *s, const struct kc_value *v) {
    return s->offset == v->offset && s->epoch == v->epoch && s->assignment == v->assignment && s->era == v->era &&
           (size_t)s->metadata_len == v->metadata.size &&
           (v->metadata.size == 0 || memcmp(s->metadata, v->metadata.p, v->metadata.size) == 0);
}

static bool is_wanted(const struct kc_slot *s) {
    return s->automatic || !kw_list_empty(&s->items);
}

/* A partition that went and came back: what was asked for before is not to be committed as this. */
static void drop_older(struct kc_slot *s, uint64_t assignment) {
    if (s->assignment == assignment) return;
    for (struct kw_list *l = s->items.next, *next; l != &s->items; l = next) {
        next = l->next;
        struct kc_commit_item *it = KW_CONTAINER_OF(l, struct kc_commit_item, link);
        if (!s->encoded || it->order > s->sent_order) settle(it, KC_NOT_ASSIGNED, false);
    }
    s->automatic = false;
}

kc_err kc_slot_put(struct kc_commits *m, const struct kc_value *v, struct kc_commit_item *item) {
    struct kc_slot *s = slot_of(m, v->topic, v->partition);
    uint8_t *metadata = NULL;
    bool fresh = !s;
    if (v->metadata.size > 0 && !(metadata = kw_memdup(v->metadata.p, v->metadata.size))) return KC_NO_MEMORY;
    if (!s && !(s = slot_make(m, v))) {
        kw_free(metadata);
        return KC_NO_MEMORY;
    }
    bool under_way = s->encoded && s->order == s->sent_order && is_same(s, v); /* the answer that is awaited answers this too */
    if (under_way) {
        kw_free(metadata);
    } else {
        drop_older(s, v->assignment);
        if (fresh || !is_wanted(s)) s->first = m->orders;
        s->order = m->orders;
        s->assignment = v->assignment;
        s->era = v->era;
        s->stamp = m->stamp;
        s->offset = v->offset;
        s->epoch = v->epoch;
        kw_free(s->metadata);
        s->metadata = metadata;
        s->metadata_len = (int32_t)v->metadata.size;
        if (kw_list_empty(&s->link)) kw_list_push(&m->pending, &s->link);
    }
    if (item) {
        item->order = s->order;
        kw_list_push(&s->items, &item->link);
    } else {
        s->automatic = true;
    }
    return KC_OK;
}

/* Whether what was asked for under an earlier membership may be committed under this one: the partition was held all the while. */
static bool stands(struct kc_commits *m, struct kc_slot *s) {
    struct kc_consume *c = m->consume;
    if (s->stamp == m->stamp) return true;
    bool held = !m->managed && s->assignment == 0;
    kc_lock_take(&c->lock);
    const struct kc_part *p = kc_part_find(c, s->topic, s->partition);
    held |= p && p->assignment == s->assignment;
    kc_lock_give(&c->lock);
    if (held) s->stamp = m->stamp;
    return held;
}

static void slot_take_newest(struct kc_slot *s) { /* what ends next is its newest value */
    s->sent_order = s->order;
    s->sent_assignment = s->assignment;
    s->sent_era = s->era;
    s->sent_offset = s->offset;
}

/* Drops what may no longer be committed, or nobody wants. */
static void prune(struct kc_commits *m, kc_err err) {
    m->prune_due = false;
    for (struct kw_list *l = m->pending.next, *next; l != &m->pending; l = next) {
        next = l->next;
        struct kc_slot *s = KW_CONTAINER_OF(l, struct kc_slot, link);
        if (is_wanted(s) && stands(m, s)) continue;
        settle_upto(s, UINT64_MAX, err, false);
        slot_take_newest(s);
        kc_commits_auto_ended(m, s, err, false); /* was not committed */
        slot_free(m, s);
    }
}

/* ---- Asking ---- */

static bool topic_id(struct kc_commits *m, int32_t topic, struct kw_uuid *id) {
    const struct kc_topic_meta *t = kc_metadata_topic(m->core, topic);
    if (!t || kw_uuid_is_zero(t->id)) return false;
    *id = t->id;
    return true;
}

static int by_topic(const void *a, const void *b) {
    const struct kc_slot *x = *(struct kc_slot *const *)a, *y = *(struct kc_slot *const *)b;
    if (x->topic != y->topic) return x->topic < y->topic ? -1 : 1;
    return x->partition < y->partition ? -1 : x->partition > y->partition;
}

static void slot_rest(struct kc_slot *s) { /* nothing of it is under way any more */
    s->encoded = s->answered = false;
    s->sent_order = 0;
}

/* The slots that the request takes, out of those that wait. */
static kw_err batch_take(struct kc_commits *m, bool by_id) {
    size_t n = 0, bytes = 0;
    for (struct kw_list *l = m->pending.next; l != &m->pending && n < KC_COMMIT_ITEMS_MAX; l = l->next) n++;
    m->batch = kw_calloc(n ? n : 1, sizeof *m->batch);
    if (!m->batch) return KW_ENOMEM;
    for (struct kw_list *l = m->pending.next, *next; l != &m->pending && m->batch_count < n; l = next) {
        next = l->next;
        struct kc_slot *s = KW_CONTAINER_OF(l, struct kc_slot, link);
        if (!is_wanted(s) || !stands(m, s) || (by_id && !topic_id(m, s->topic, &s->topic_id))) continue;
        bytes += (size_t)s->metadata_len;
        if (bytes > KC_COMMIT_BYTES_MAX && m->batch_count > 0) break;
        m->batch[m->batch_count++] = s;
        kw_list_remove(&s->link);
        kw_list_push(&m->sent, &s->link);
    }
    qsort(m->batch, m->batch_count, sizeof *m->batch, by_topic);
    return KW_OK;
}

/* Back to the front of those that wait. */
static void batch_give_back(struct kc_commits *m) {
    struct kw_list *at = m->pending.next, *l;
    while ((l = kw_list_shift(&m->sent)) != NULL) kw_list_insert_before(at, l);
}

static void batch_drop(struct kc_commits *m) {
    kw_free(m->batch);
    m->batch = NULL;
    m->batch_count = 0;
    m->encoded = false;
}

static void fill_partition(struct kc_slot *s, struct kw_offset_commit_request_partition *p) {
    *p = (struct kw_offset_commit_request_partition){
        .partition_index = s->partition,
        .committed_offset = s->offset,
        .committed_leader_epoch = s->epoch,
        .commit_timestamp = -1,
        .committed_metadata = s->metadata_len > 0 ? (struct kw_str){(const char *)s->metadata, s->metadata_len} : kw_str_of(""),
    };
    s->encoded = true;
    slot_take_newest(s);
}

/* The batch's slots at their newest values. */
static kw_err fill_topics(struct kc_commits *m, struct kw_offset_commit_request *q, struct kw_arena *arena) {
    struct kw_offset_commit_request_topic *t = NULL;
    q->topics.v = kw_arena_calloc(arena, m->batch_count + 1, sizeof *q->topics.v);
    if (!q->topics.v) return KW_ENOMEM;
    for (size_t i = 0; i < m->batch_count; i++) {
        struct kc_slot *s = m->batch[i];
        if (i == 0 || s->topic != m->batch[i - 1]->topic) {
            size_t n = 1;
            while (i + n < m->batch_count && m->batch[i + n]->topic == s->topic) n++;
            t = &q->topics.v[q->topics.n++];
            t->name = kc_topic_name(m->core, s->topic);
            t->topic_id = s->topic_id;
            t->partitions.v = kw_arena_calloc(arena, n, sizeof *t->partitions.v);
            if (!t->partitions.v) return KW_ENOMEM;
        }
        fill_partition(s, &t->partitions.v[t->partitions.n++]);
    }
    return KW_OK;
}

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct kc_commits *m = rq->ctx;
    struct kw_arena arena;
    struct kw_offset_commit_request q;
    kw_msg_init(&kw_offset_commit_request_desc, &q);
    q.group_id = m->group_id;
    q.generation_id_or_member_epoch = -1;
    if (m->managed) {
        q.generation_id_or_member_epoch = m->member.generation;
        q.member_id = m->member.member_id;
        if (rq->version >= VERSION_STATIC) q.group_instance_id = m->member.instance_id;
    }
    kw_arena_init(&arena, 0);
    kw_err err = batch_take(m, rq->version >= VERSION_BY_ID);
    if (err == KW_OK) err = fill_topics(m, &q, &arena);
    if (err == KW_OK) err = kw_encode(&kw_offset_commit_request_desc, rq->version, &q, out);
    kw_arena_deinit(&arena);
    m->encoded = true;
    m->sent_stamp = m->stamp;
    if (err != KW_OK) {
        for (size_t i = 0; i < m->batch_count; i++) slot_rest(m->batch[i]);
        batch_give_back(m);
        batch_drop(m);
    }
    return err;
}

static bool may_send(const struct kc_commits *m) {
    if (!m->started || m->stopped || m->outstanding || kw_list_empty(&m->pending)) return false;
    if (m->managed && (!m->somebody || m->stamp == m->refused_stamp)) return false;
    return m->not_before_us <= kc_core_now(m->core).mono_us;
}

static void answered(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk);

static void commit_send(struct kc_commits *m) {
    struct kw_uuid id;
    if (!may_send(m)) return;
    if (!kc_commits_coordinator(m)) {
        m->short_of_memory = true;
        return;
    }
    kc_request_init(&m->rq, KW_API_OFFSET_COMMIT);
    m->rq.version_min = VERSION_MIN;
    for (struct kw_list *l = m->pending.next; l != &m->pending; l = l->next)
        if (!topic_id(m, KW_CONTAINER_OF(l, struct kc_slot, link)->topic, &id)) m->rq.version_max = KW_MIN(m->rq.version_max, VERSION_BY_ID - 1);
    if (!m->attempts) m->attempts = kc_attempts_new(); /* without: nothing is noted */
    m->rq.attempts = m->attempts;
    m->rq.encode = encode;
    m->rq.done = answered;
    m->rq.ctx = m;
    kc_coordinator_aim(m->coordinator, &m->rq);
    m->outstanding = true;
    kc_core_send(m->core, &m->rq);
}

/* ---- Answers ---- */

static struct kc_slot *find_slot(struct kc_commits *m, struct kw_str name, const struct kw_uuid *id, int32_t partition, size_t *cursor) {
    for (size_t i = 0; i < m->batch_count; i++) { /* answers come in the order of the request, as a rule: the first look hits */
        size_t at = (*cursor + i) % m->batch_count;
        struct kc_slot *s = m->batch[at];
        if (s->partition != partition || !(id ? kw_uuid_eq(s->topic_id, *id) : kw_str_eq(kc_topic_name(m->core, s->topic), name))) continue;
        *cursor = at + 1;
        return s;
    }
    return NULL;
}

static kc_err read_answer(struct kc_commits *m, struct kw_in *body) {
    struct kw_offset_commit_response r;
    struct kw_arena arena;
    size_t cursor = 0, entries = 0;
    kw_arena_init(&arena, 0);
    kw_err err = kw_decode(&kw_offset_commit_response_desc, m->rq.version, body, &arena, &r);
    bool by_id = m->rq.version >= VERSION_BY_ID;
    for (int32_t t = 0; err == KW_OK && t < r.topics.n; t++) {
        const struct kw_offset_commit_response_topic *topic = &r.topics.v[t];
        for (int32_t i = 0; i < topic->partitions.n && entries++ < 2 * m->batch_count; i++) { /* what goes on beyond is of no request of ours */
            struct kc_slot *s = find_slot(m, topic->name, by_id ? &topic->topic_id : NULL, topic->partitions.v[i].partition_index, &cursor);
            if (!s) continue;
            s->answered = true;
            s->err = topic->partitions.v[i].error_code;
        }
    }
    if (err == KW_OK) kc_core_broker_throttle(m->core, m->rq.sent_to, r.throttle_time_ms);
    kw_arena_deinit(&arena);
    return kc_err_from(err);
}

/* What the coordinator says of the member, not of the offset. */
static bool is_refusal(kc_err err) {
    return err == KE_ILLEGAL_GENERATION || err == KE_UNKNOWN_MEMBER_ID || err == KE_FENCED_INSTANCE_ID || err == KE_REBALANCE_IN_PROGRESS;
}

/* The value that was sent has ended. */
static void slot_ended(struct kc_commits *m, struct kc_slot *s, kc_err err) {
    bool newest = s->order == s->sent_order;
    bool tell = s->automatic && newest && kw_list_empty(&s->items);
    settle_upto(s, s->sent_order, err, s->encoded);
    kc_commits_auto_ended(m, s, err, tell);
    if (newest) s->automatic = false;
    slot_rest(s);
    if (is_wanted(s))
        s->first = first_item(s) ? KW_MIN(first_item(s)->order, s->order) : s->order;
    else
        slot_free(m, s);
}

struct verdict { /* of one answer */
    bool again, any_good;
    kc_err refusal;
};

static void slot_answered(struct kc_commits *m, struct kc_slot *s, kc_err err, struct verdict *v) {
    if (is_refusal(err) && m->managed) {
        v->refusal = err;
        v->again |= err == KE_REBALANCE_IN_PROGRESS;
        slot_rest(s);
        return;
    }
    bool final = err == KC_OK || is_refusal(err) || err == KE_UNKNOWN_TOPIC_OR_PARTITION; /* waiting mends none of these */
    if (!final && kc_coordinator_failed(m->coordinator, &m->rq, err)) {
        if (kw_kerror_info(err)->refresh_metadata) kc_metadata_refresh(m->core, "a commit failed");
        kc_attempts_note(m->attempts, kc_core_now(m->core).wall_ms, m->rq.sent_to, err, "answer", kc_err_text(err));
        v->again = true;
        slot_rest(s);
        return;
    }
    v->any_good |= err == KC_OK;
    slot_ended(m, s, err);
}

/* No answer that could be read. */
static void failed(struct kc_commits *m, kc_err err, struct kc_slot **batch, size_t count, struct verdict *v) {
    bool gone = err == KC_CANCELLED || err == KC_CLOSED;
    v->again = !gone && kc_coordinator_failed(m->coordinator, &m->rq, err);
    if (gone || v->again) {
        for (size_t i = 0; i < count; i++) slot_rest(batch[i]);
        return;
    }
    for (struct kw_list *l = m->pending.next, *next; l != &m->pending; l = next) { /* what holds for one holds for all */
        next = l->next;
        struct kc_slot *s = KW_CONTAINER_OF(l, struct kc_slot, link);
        slot_take_newest(s);
        slot_ended(m, s, err);
    }
}

/* The coordinator does not take us for who we said we are. */
static void refuse(struct kc_commits *m, kc_err err) {
    if (m->sent_stamp != m->stamp || !m->somebody) { /* we are somebody else by now, or nobody */
        m->prune_due = true;
        return;
    }
    if (err != KE_REBALANCE_IN_PROGRESS) m->refused_stamp = m->stamp;
    struct kc_commit_member as = m->member;
    if (m->refused) m->refused(m->ctx, &as, err);
    if (err == KE_REBALANCE_IN_PROGRESS) return;
    for (struct kw_list *l = m->pending.next; l != &m->pending; l = l->next) { /* what was taken away meanwhile is lost */
        struct kc_slot *s = KW_CONTAINER_OF(l, struct kc_slot, link);
        s->stamp = 0;
        if (err == KE_FENCED_INSTANCE_ID || !m->refused) s->assignment = UINT64_MAX; /* for good */
    }
    prune(m, err);
}

static void answered(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct kc_commits *m = rq->ctx;
    struct verdict v = {0};
    (void)blk;
    if (err == KC_OK) err = read_answer(m, body);
    struct kc_slot **batch = m->batch;
    size_t count = m->batch_count;
    m->batch = NULL;
    batch_give_back(m);
    batch_drop(m);
    m->outstanding = false;
    if (err != KC_OK) failed(m, err, batch, count, &v);
    for (size_t i = 0; err == KC_OK && i < count; i++) slot_answered(m, batch[i], batch[i]->answered ? batch[i]->err : KC_BAD_MESSAGE, &v);
    kw_free(batch);
    m->prune_due = true; /* who waited for what is to go again may have given up */
    if (count == 0 && !kw_list_empty(&m->pending)) v.again = true; /* nothing could go: not at once again */
    if (v.any_good) (void)kc_coordinator_failed(m->coordinator, rq, KC_OK);
    if (v.again) {
        if (m->errors < INT32_MAX) m->errors++;
        m->not_before_us = kc_commits_backoff(m, m->errors);
    } else if (err == KC_OK) {
        m->errors = 0;
        m->not_before_us = 0;
        kc_attempts_unref(m->attempts);
        m->attempts = NULL;
    }
    if (err == KC_CLOSED) m->closed = true;
    if (v.refusal != KC_OK) refuse(m, v.refusal);
    kc_commits_look(m);
}

/* ---- Membership ---- */

void kc_commits_member(struct kc_commits *m, const struct kc_commit_member *member) {
    m->managed = !member || member->member_id.len > 0;
    m->somebody = member != NULL;
    if (member) m->member = *member;
    m->stamp++;
    m->prune_due = true;
    m->not_before_us = 0;
    if (m->outstanding && !m->encoded) kc_core_cancel(m->core, &m->rq); /* goes again, as who we are then */
    kc_commits_look(m);
}

struct kc_coordinator *kc_commits_coordinator(struct kc_commits *m) {
    if (!m->coordinator && m->started && !m->stopped)
        m->coordinator = kc_coordinator_open(m->core, KC_COORDINATOR_GROUP, m->group_id);
    return m->coordinator;
}

/* ---- Turns, life ---- */

static void tell_ended(struct kc_commits *m) {
    struct kw_list now, *l;
    kw_list_init(&now);
    while ((l = kw_list_shift(&m->ended)) != NULL) kw_list_push(&now, l);
    while ((l = kw_list_shift(&now)) != NULL) {
        struct kc_commit_call *call = KW_CONTAINER_OF(l, struct kc_commit_call, link);
        m->call_count--;
        call->done(call);
    }
}

static void give_up_all(struct kc_commits *m, kc_err err) {
    while (!kw_list_empty(&m->calls)) call_give_up(m, KW_CONTAINER_OF(m->calls.next, struct kc_commit_call, link), err);
    for (struct kw_list *l = m->pending.next; l != &m->pending; l = l->next) KW_CONTAINER_OF(l, struct kc_slot, link)->automatic = false;
    m->prune_due = true;
}

static void run(struct kc_task *task, void *ctx) {
    struct kc_commits *m = ctx;
    int64_t now_us = kc_core_now(m->core).mono_us, next_us = KW_NEVER;
    (void)task;
    m->short_of_memory = false;
    if (m->stopped || m->closed)
        give_up_all(m, KC_CLOSED);
    else
        kc_commits_leave_run(m);
    if (m->prune_due) prune(m, KC_NOT_ASSIGNED);
    tell_ended(m);
    kc_commits_queries_run(m);
    kc_commits_drains_run(m);
    commit_send(m);
    if (!m->stopped && !m->outstanding && !kw_list_empty(&m->pending) && m->not_before_us > now_us) next_us = m->not_before_us;
    if (m->short_of_memory) next_us = KW_MIN(next_us, now_us + MEMORY_RETRY_US);
    kc_core_arm(m->core, &m->timer, next_us);
    if (m->started && !m->stopped) kc_commits_auto_start(m);
    if (m->stopped && kc_commits_stopped(m) && !m->told_stopped) {
        m->told_stopped = true;
        kc_consume_run(m->consume);
    }
}

static void on_timer(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    kc_commits_look(ctx);
}

kw_err kc_commits_new(const struct kc_commits_options *o, struct kc_commits **out) {
    struct kc_commits *m = kw_calloc(1, sizeof *m);
    if (!m) return KW_ENOMEM;
    m->consume = o->consume;
    m->core = o->consume->core;
    m->settings = o->consume->settings;
    m->group_id = o->group_id;
    m->refused = o->refused;
    m->ctx = o->ctx;
    m->stamp = 1;
    kw_map_init(&m->slots);
    struct kw_list *lists[] = {&m->pending, &m->sent, &m->calls, &m->ended, &m->drains, &m->leaving, &m->fetches, &m->queries, &m->queries_ended};
    for (size_t i = 0; i < KW_COUNTOF(lists); i++) kw_list_init(lists[i]);
    kc_task_init(&m->run, run, m);
    kw_timer_init(&m->timer, on_timer, m);
    kc_commits_auto_init(m);
    o->consume->explicit_processed = o->mode == KC_PROCESSED_EXPLICIT;
    o->consume->commits = m;
    *out = m;
    return KW_OK;
}

void kc_commits_start(struct kc_commits *m) {
    m->started = true;
    (void)kc_commits_coordinator(m); /* without memory: at the first need */
    kc_commits_auto_start(m);
    kc_commits_look(m);
}

void kc_commits_stop(struct kc_commits *m) {
    if (m->stopped) return;
    m->stopped = true;
    kw_timers_cancel(kc_core_timers(m->core), &m->auto_timer);
    if (m->outstanding) kc_core_cancel(m->core, &m->rq);
    kc_commits_fetches_stop(m);
    kc_commits_look(m);
}

bool kc_commits_stopped(const struct kc_commits *m) {
    return m->stopped && !m->outstanding && kc_commits_fetches_stopped(m) && kw_list_empty(&m->calls) && kw_list_empty(&m->ended) &&
           kw_list_empty(&m->drains) && kw_list_empty(&m->pending);
}

void kc_commits_free(struct kc_commits *m) {
    struct kw_list *l;
    if (!m) return;
    kc_task_cancel(&m->run);
    kw_timers_cancel(kc_core_timers(m->core), &m->timer);
    kw_timers_cancel(kc_core_timers(m->core), &m->auto_timer);
    while ((l = kw_list_shift(&m->leaving)) != NULL) kc_part_unref(KW_CONTAINER_OF(l, struct kc_part, leave_link));
    struct kw_list *lists[] = {&m->pending, &m->sent};
    for (size_t i = 0; i < KW_COUNTOF(lists); i++)
        while (!kw_list_empty(lists[i])) slot_free(m, KW_CONTAINER_OF(lists[i]->next, struct kc_slot, link));
    kw_map_deinit(&m->slots);
    kw_free(m->batch);
    kc_attempts_unref(m->attempts);
    kc_coordinator_unref(m->coordinator);
    kw_free(m);
}
