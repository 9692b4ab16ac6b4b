/* metadata.c - what the client knows of topics: numbers for names, partitions, leaders and epochs, and when it asks again.
 *
 * Called by produce/, consume/, admin (want, listen, refresh, hints), brokers (refresh); calls request, brokers. Only topics that someone
 * wants are asked for, all that are due in one request, one request at a time. KIP-320 (leader epochs), KIP-516 (topic ids), KIP-899 and
 * KIP-1102 (bootstrapping again), KIP-951 (leaders named in answers).
 */
#include "internal.h"

#define STARVED_RETRY_US 100000

#include <stdio.h>

enum {
    CHUNK_FIRST = 64,
    TOPICS_MAX = 1 << 24,
    TOPIC_NAME_SIZE_MAX = 249,
    PARTITIONS_MAX = 1 << 20,
    VERSION_EPOCHS_MIN = 9, /* before, leader epochs may be old ones (KAFKA-9212) */
    OLD_EPOCH_ROUNDS = 8,   /* a broker does not lag behind for so many answers in a row: some seconds */
};
#define MISSING_BACKOFF_MAX_US 5000000 /* of a topic that is not there: at most 17 or so questions a minute */
#define TOGETHER_US 2000               /* what falls due so soon after goes into the same request */

static void schedule(struct kc_core *core);
static void on_done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk);
static kw_err encode(struct kc_request *rq, struct kw_out *out);
static void ask(struct kc_task *task, void *ctx);
static void announce(struct kc_task *task, void *ctx);

static void on_timer(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    struct kc_core *core = ctx;
    kc_core_defer(core, &core->metadata.send);
}

static void on_rebootstrap_timer(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    struct kc_core *core = ctx;
    kc_brokers_rebootstrap(core, "no metadata for metadata.recovery.rebootstrap.trigger.ms");
    if (core->metadata.busy) kc_core_cancel(core, &core->metadata.rq);
}

/* Not from within the failure of a connection: brokers are freed by it. */
static void rebootstrap(struct kc_task *task, void *ctx) {
    (void)task;
    struct kc_core *core = ctx;
    if (kc_brokers_all_lost(core)) kc_brokers_rebootstrap(core, "no broker that is known can be reached");
}

kw_err kc_metadata_init(struct kc_core *core) {
    struct kc_metadata *md = &core->metadata;
    kw_map_init(&md->names);
    kw_map_init(&md->wanted);
    kw_map_init(&md->ids);
    kw_list_init(&md->listeners);
    kw_timer_init(&md->timer, on_timer, core);
    kw_timer_init(&md->rebootstrap_timer, on_rebootstrap_timer, core);
    kc_task_init(&md->send, ask, core);
    kc_task_init(&md->announce, announce, core);
    kc_task_init(&md->rebootstrap, rebootstrap, core);
    kc_request_init(&md->rq, KW_API_METADATA);
    md->rq.version_min = 1; /* in 0 no topics means all of them */
    md->rq.encode = encode;
    md->rq.done = on_done;
    md->rq.ctx = core;
    md->controller = -1;
    md->refresh_us = KW_NEVER;
    md->sent_us = INT64_MIN / 2;
    return KW_OK;
}

static struct kc_topic_slot **place_of(struct kc_metadata *md, int32_t index) {
    uint32_t v = (uint32_t)index / CHUNK_FIRST + 1;
    unsigned k = 31 - (unsigned)__builtin_clz(v);
    return md->chunks[k] + ((uint32_t)index - CHUNK_FIRST * ((1u << k) - 1));
}

static struct kc_topic_slot *slot_of(struct kc_core *core, int32_t topic) {
    if (topic < 1 || topic > atomic_load_explicit(&core->metadata.topic_count, memory_order_acquire)) return NULL;
    return *place_of(&core->metadata, topic - 1);
}

void kc_metadata_deinit(struct kc_core *core) {
    struct kc_metadata *md = &core->metadata;
    for (int32_t i = 1; i <= md->topic_count; i++) {
        struct kc_topic_slot *s = slot_of(core, i);
        kw_free(s->meta.partitions);
        kw_free(s->meta.name);
        kw_free(s);
    }
    for (size_t k = 0; k < KW_COUNTOF(md->chunks); k++) kw_free(md->chunks[k]);
    kw_map_deinit(&md->names);
    kw_map_deinit(&md->wanted);
    kw_map_deinit(&md->ids);
    kw_free(md->cluster_id);
    kc_core_disarm(core, &md->timer);
    kc_core_disarm(core, &md->rebootstrap_timer);
}

void kc_metadata_stop(struct kc_core *core) {
    kw_timers_cancel(&core->timers, &core->metadata.timer);
    kw_timers_cancel(&core->timers, &core->metadata.rebootstrap_timer);
    kc_core_defer(core, &core->metadata.announce); /* roles that wait for metadata wait in vain */
}

/* ---- Names ---- */

static bool is_legal_name(const char *name, size_t len) {
    if (len == 0 || len > TOPIC_NAME_SIZE_MAX) return false;
    if ((len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.')) return false;
    for (size_t i = 0; i < len; i++) {
        char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-')) return false;
    }
    return true;
}

int32_t kc_metadata_intern(struct kc_core *core, const char *name, size_t len) {
    struct kc_metadata *md = &core->metadata;
    if (!is_legal_name(name, len)) return 0;
    struct kc_topic_slot *s = kw_map_get(&md->names, name, len);
    if (s) return s->meta.topic;
    int32_t index = atomic_load_explicit(&md->topic_count, memory_order_relaxed);
    if (index >= TOPICS_MAX) return 0;
    uint32_t v = (uint32_t)index / CHUNK_FIRST + 1;
    unsigned k = 31 - (unsigned)__builtin_clz(v);
    if (!md->chunks[k]) {
        md->chunks[k] = kw_calloc((size_t)CHUNK_FIRST << k, sizeof **md->chunks);
        if (!md->chunks[k]) return 0;
    }
    s = kw_calloc(1, sizeof *s);
    char *copy = kw_malloc(len + 1);
    if (!s || !copy) goto fail;
    memcpy(copy, name, len);
    copy[len] = 0;
    s->meta.name = copy;
    s->meta.topic = index + 1;
    s->due_us = KW_NEVER;
    if (kw_map_put(&md->names, name, len, s) != KW_OK) goto fail;
    *place_of(md, index) = s;
    atomic_store_explicit(&md->topic_count, index + 1, memory_order_release);
    return index + 1;
fail:
    kw_free(copy);
    kw_free(s);
    return 0;
}

struct kc_topic_meta *kc_metadata_topic(struct kc_core *core, int32_t topic) {
    struct kc_topic_slot *s = slot_of(core, topic);
    return s ? &s->meta : NULL;
}

struct kc_topic_meta *kc_metadata_by_id(struct kc_core *core, struct kw_uuid id) {
    struct kc_topic_slot *s = kw_map_get(&core->metadata.ids, id.b, sizeof id.b);
    return s ? &s->meta : NULL;
}

/* ---- When to ask ---- */

static void set_due(struct kc_topic_slot *s, int64_t at_us) {
    s->due_us = KW_MIN(s->due_us, KW_MAX(at_us, s->not_before_us));
}

/* Without memory the topic is put on the list later (schedule). */
static bool add_wanted(struct kc_core *core, struct kc_topic_slot *s) {
    struct kc_metadata *md = &core->metadata;
    if (kw_map_put(&md->wanted, s->meta.name, strlen(s->meta.name), s) != KW_OK) {
        md->want_failed = true;
        kc_core_arm(core, &md->timer, kc_after(core->now.mono_us, STARVED_RETRY_US));
        return false;
    }
    return s->in_wanted = true;
}

static void add_left_out(struct kc_core *core) {
    core->metadata.want_failed = false;
    int32_t count = atomic_load_explicit(&core->metadata.topic_count, memory_order_acquire);
    for (int32_t i = 1; i <= count; i++) {
        struct kc_topic_slot *s = slot_of(core, i);
        if (s && s->wants > 0 && !s->in_wanted && add_wanted(core, s)) set_due(s, core->now.mono_us);
    }
}

void kc_metadata_want(struct kc_core *core, int32_t topic) {
    struct kc_topic_slot *s = slot_of(core, topic);
    if (!s) return;
    s->wants++;
    if (!s->in_wanted && !add_wanted(core, s)) return;
    bool fresh = s->meta.known && s->meta.err == KE_NONE && s->due_us != KW_NEVER;
    if (!fresh) set_due(s, core->now.mono_us);
    schedule(core);
}

void kc_metadata_unwant(struct kc_core *core, int32_t topic) {
    struct kc_topic_slot *s = slot_of(core, topic);
    if (!s || s->wants == 0) return;
    if (--s->wants == 0) s->idle_since_us = core->now.mono_us;
}

void kc_metadata_refresh(struct kc_core *core, const char *why) {
    struct kc_metadata *md = &core->metadata;
    if (core->stopping) return;
    int64_t wait = md->quiet_rounds > 0
                       ? kc_backoff(core, core->settings->retry_backoff_us, core->settings->retry_backoff_max_us, md->quiet_rounds)
                       : 0;
    int64_t at = KW_MAX(core->now.mono_us, kc_after(md->sent_us, wait));
    if (md->refresh_us <= at) return; /* asked for already */
    md->refresh_us = at;
    kc_core_log(core, 7, "metadata refresh in %lld ms: %s", (long long)((at - core->now.mono_us) / 1000), why);
    schedule(core);
}

static void schedule(struct kc_core *core) {
    struct kc_metadata *md = &core->metadata;
    if (core->stopping || md->busy) return; /* when the answer is there it is looked at again */
    if (md->want_failed) add_left_out(core);
    int64_t at = md->refresh_us;
    struct kc_topic_slot *s;
    for (size_t it = 0; (s = kw_map_next(&md->wanted, &it));) at = KW_MIN(at, s->due_us);
    if (at != KW_NEVER) at = KW_MAX(at, md->retry_us);
    if (at <= core->now.mono_us)
        kc_core_defer(core, &md->send);
    else
        kc_core_arm(core, &md->timer, at);
}

/* Topics that nobody has wanted for metadata.max.idle.ms are forgotten, except for their number. */
static void expire(struct kc_core *core) {
    struct kc_metadata *md = &core->metadata;
    struct kc_topic_slot *s;
    for (size_t it = 0; (s = kw_map_next(&md->wanted, &it));) {
        if (s->wants > 0 || kc_after(s->idle_since_us, core->settings->metadata_idle_us) > core->now.mono_us) continue;
        kw_map_remove(&md->wanted, s->meta.name, strlen(s->meta.name));
        if (kw_map_get(&md->ids, s->meta.id.b, 16) == s) kw_map_remove(&md->ids, s->meta.id.b, 16);
        s->in_wanted = s->meta.known = false;
        s->due_us = KW_NEVER;
    }
}

static void ask(struct kc_task *task, void *ctx) {
    (void)task;
    struct kc_core *core = ctx;
    struct kc_metadata *md = &core->metadata;
    if (core->stopping || md->busy) return;
    expire(core);
    int64_t now = core->now.mono_us;
    bool all = md->refresh_us <= now, any = all;
    struct kc_topic_slot *s;
    for (size_t it = 0; (s = kw_map_next(&md->wanted, &it));) {
        s->asking = (s->due_us <= now + TOGETHER_US) || (all && s->not_before_us <= now);
        any |= s->asking;
    }
    if (!any) {
        schedule(core);
        return;
    }
    if (all) md->refresh_us = KW_NEVER;
    md->busy = true;
    md->sent_us = now;
    if (core->settings->rebootstrap && !core->use_boots && !kw_timer_armed(&md->rebootstrap_timer))
        kc_core_arm(core, &md->rebootstrap_timer, kc_after(now, core->settings->rebootstrap_trigger_us));
    kc_core_send(core, &md->rq);
}

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct kc_core *core = rq->ctx;
    struct kc_metadata *md = &core->metadata;
    struct kw_metadata_request m;
    kw_msg_init(&kw_metadata_request_desc, &m);
    kw_arena_reset(&core->arena);
    size_t n = 0;
    struct kc_topic_slot *s;
    for (size_t it = 0; (s = kw_map_next(&md->wanted, &it));) n += s->asking;
    m.topics.v = kw_arena_calloc(&core->arena, KW_MAX(n, (size_t)1), sizeof *m.topics.v);
    if (!m.topics.v) return KW_ENOMEM;
    for (size_t it = 0; (s = kw_map_next(&md->wanted, &it));) {
        if (s->asking) m.topics.v[m.topics.n++].name = kw_str_of(s->meta.name);
    }
    m.allow_auto_topic_creation = core->settings->allow_auto_create || rq->version < 4; /* older versions cannot say no */
    return kw_encode(&kw_metadata_request_desc, rq->version, &m, out);
}

/* ---- The answer ---- */

/* Asked again with backoff while it is unusable. */
static void unusable(struct kc_core *core, struct kc_topic_slot *s, int64_t max_us) {
    if (s->rounds < 30) s->rounds++;
    s->not_before_us = kc_after(core->now.mono_us, kc_backoff(core, core->settings->retry_backoff_us, max_us, s->rounds));
    s->due_us = s->not_before_us;
}

static kw_err grow(struct kc_topic_meta *m, int32_t count) {
    if (count <= m->partition_count) return KW_OK;
    if (count > PARTITIONS_MAX) return KW_ELIMIT;
    struct kc_partition_meta *v = kw_realloc(m->partitions, (size_t)count * sizeof *v);
    if (!v) return KW_ENOMEM;
    for (int32_t i = m->partition_count; i < count; i++) v[i] = (struct kc_partition_meta){-1, -1, KE_LEADER_NOT_AVAILABLE};
    m->partitions = v;
    m->partition_count = count;
    m->generation++;
    return KW_OK;
}

/* Another topic of the same name: what was known of the old one does not hold for it (CX-02). */
static void take_id(struct kc_core *core, struct kc_topic_slot *s, struct kw_uuid id) {
    struct kc_topic_meta *m = &s->meta;
    if (kw_uuid_is_zero(id) || kw_uuid_eq(m->id, id)) return;
    if (!kw_uuid_is_zero(m->id)) {
        kc_core_log(core, 4, "topic %s was deleted and created anew", m->name);
        if (kw_map_get(&core->metadata.ids, m->id.b, 16) == s) kw_map_remove(&core->metadata.ids, m->id.b, 16);
        m->partition_count = 0;
    }
    if (kw_map_put(&core->metadata.ids, id.b, 16, s) != KW_OK) return; /* found by name until the next answer */
    m->id = id;
    m->generation++;
}

static bool take_partition(struct kc_core *core, struct kc_topic_slot *s, const struct kw_metadata_response_partition *p) {
    struct kc_topic_meta *m = &s->meta;
    struct kc_partition_meta *old = &m->partitions[p->partition_index];
    int32_t epoch = core->metadata.rq.version >= VERSION_EPOCHS_MIN ? p->leader_epoch : -1;
    /* An older view of the cluster. Without an id, it may as well be another topic of the same name: then it stays (CX-02). */
    bool old_view = epoch >= 0 && epoch < old->leader_epoch;
    if (old_view && !(kw_uuid_is_zero(m->id) && s->rounds >= OLD_EPOCH_ROUNDS)) return false;
    struct kc_partition_meta now = {p->leader_id, epoch, p->error_code};
    struct kc_broker *b = now.leader >= 0 ? kc_broker_get(core, now.leader) : NULL;
    if (now.err == KE_REPLICA_NOT_AVAILABLE) now.err = KE_NONE; /* some replica, not the leader */
    if (now.err == KE_NONE && (!b || b->gone)) now.err = KE_LEADER_NOT_AVAILABLE;
    if (now.err != KE_NONE) now.leader = -1;
    if (now.leader != old->leader || now.leader_epoch != old->leader_epoch || now.err != old->err) m->generation++;
    *old = now;
    return now.err == KE_NONE;
}

static void take_topic(struct kc_core *core, struct kc_topic_slot *s, const struct kw_metadata_response_topic *t) {
    struct kc_topic_meta *m = &s->meta;
    s->asking = false;
    s->due_us = KW_NEVER;
    s->not_before_us = 0;
    m->updated_us = core->now.mono_us;
    if (!m->known || m->err != t->error_code) m->generation++;
    m->known = true;
    m->err = t->error_code;
    if (t->error_code != KE_NONE) {
        if (kw_kerror_info(t->error_code)->retriable)
            unusable(core, s, MISSING_BACKOFF_MAX_US);
        else
            s->due_us = kc_after(core->now.mono_us, core->settings->metadata_age_max_us);
        return;
    }
    m->internal = t->is_internal;
    take_id(core, s, t->topic_id);
    bool usable = grow(m, t->partitions.n) == KW_OK && t->partitions.n > 0;
    for (int32_t i = 0; i < t->partitions.n && usable; i++) {
        const struct kw_metadata_response_partition *p = &t->partitions.v[i];
        if (p->partition_index < 0 || p->partition_index >= m->partition_count) usable = false;
    }
    if (!usable) {
        m->err = KE_LEADER_NOT_AVAILABLE;
        unusable(core, s, core->settings->retry_backoff_max_us);
        return;
    }
    for (int32_t i = 0; i < t->partitions.n; i++) usable &= take_partition(core, s, &t->partitions.v[i]);
    if (usable) s->rounds = 0;
    if (usable)
        s->due_us = kc_after(core->now.mono_us, core->settings->metadata_age_max_us);
    else
        unusable(core, s, core->settings->retry_backoff_max_us);
}

static struct kc_topic_slot *slot_for(struct kc_core *core, const struct kw_metadata_response_topic *t) {
    if (t->name.len > 0) return kw_map_get_str(&core->metadata.wanted, t->name);
    return kw_map_get(&core->metadata.ids, t->topic_id.b, 16);
}

static void take_brokers(struct kc_core *core, const struct kw_metadata_response *m) {
    if (m->brokers.n <= 0) return; /* a broker that is starting up: keep what is known */
    size_t taken = 0;
    for (int32_t i = 0; i < m->brokers.n; i++) {
        const struct kw_metadata_response_broker *b = &m->brokers.v[i];
        kw_err err = kc_broker_update(core, b->node_id, b->host, b->port);
        if (err == KW_OK)
            taken++;
        else
            kc_core_log(core, 3, "broker %d of a metadata answer is left out: %s", b->node_id, kc_err_text(kc_err_from(err)));
    }
    if (taken == 0) return;
    struct kc_broker *known;
    for (size_t it = 0; (known = kw_map_next(&core->brokers, &it));) {
        bool named = false;
        for (int32_t i = 0; i < m->brokers.n && !named; i++) named = m->brokers.v[i].node_id == known->id;
        if (!named) kc_broker_forget(core, known);
    }
    kc_brokers_known(core);
    kc_brokers_sweep(core);
}

static void take_cluster(struct kc_core *core, const struct kw_metadata_response *m) {
    struct kc_metadata *md = &core->metadata;
    md->controller = m->controller_id;
    if (m->cluster_id.len <= 0) return;
    if (md->cluster_id && strlen(md->cluster_id) == (size_t)m->cluster_id.len &&
        memcmp(md->cluster_id, m->cluster_id.p, (size_t)m->cluster_id.len) == 0)
        return;
    char *id = kw_malloc((size_t)m->cluster_id.len + 1);
    if (!id) return;
    memcpy(id, m->cluster_id.p, (size_t)m->cluster_id.len);
    id[m->cluster_id.len] = 0;
    if (md->cluster_id) kc_core_log(core, 4, "the cluster's id changed from %s to %s: is this still the same cluster?", md->cluster_id, id);
    kw_free(md->cluster_id);
    md->cluster_id = id;
}

static uint64_t generations(struct kc_metadata *md) {
    uint64_t sum = 0;
    struct kc_topic_slot *s;
    for (size_t it = 0; (s = kw_map_next(&md->wanted, &it));) sum += s->meta.generation;
    return sum;
}

static void take_answer(struct kc_core *core, const struct kw_metadata_response *m) {
    struct kc_metadata *md = &core->metadata;
    uint64_t before = generations(md);
    take_brokers(core, m);
    take_cluster(core, m);
    for (int32_t i = 0; i < m->topics.n; i++) {
        struct kc_topic_slot *s = slot_for(core, &m->topics.v[i]);
        if (s) take_topic(core, s, &m->topics.v[i]);
    }
    struct kw_metadata_response_topic missing = {.error_code = KE_UNKNOWN_TOPIC_OR_PARTITION};
    struct kc_topic_slot *s;
    for (size_t it = 0; (s = kw_map_next(&md->wanted, &it));) {
        if (s->asking) take_topic(core, s, &missing); /* asked for, and not in the answer */
    }
    md->changed = generations(md) != before || !md->known;
    md->known = true;
    if (md->changed)
        md->quiet_rounds = 0;
    else if (md->quiet_rounds < 30)
        md->quiet_rounds++;
    kw_timers_cancel(&core->timers, &md->rebootstrap_timer);
    if (md->changed) kc_core_defer(core, &md->announce);
    kc_core_route(core);
}

static kc_err read_answer(struct kc_core *core, struct kc_request *rq, struct kw_in *body) {
    struct kw_metadata_response m;
    kw_arena_reset(&core->arena);
    kw_err err = kw_decode(&kw_metadata_response_desc, rq->version, body, &core->arena, &m);
    if (err != KW_OK) {
        kc_core_log(core, 3, "a metadata answer of broker %d cannot be read: %s", rq->sent_to < 0 ? -1 : rq->sent_to,
                    kc_err_text(kc_err_from(err)));
        return kc_err_from(err);
    }
    kc_core_broker_throttle(core, rq->sent_to, m.throttle_time_ms);
    if (m.error_code == KE_REBOOTSTRAP_REQUIRED && core->settings->rebootstrap) kc_brokers_rebootstrap(core, "the broker asks for it");
    if (m.error_code != KE_NONE) return m.error_code;
    take_answer(core, &m);
    return KC_OK;
}

static void on_done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    (void)blk;
    struct kc_core *core = rq->ctx;
    struct kc_metadata *md = &core->metadata;
    md->busy = false;
    if (core->stopping) return;
    if (err == KC_OK) err = read_answer(core, rq, body);
    if (err == KC_OK) {
        md->failures = 0;
        md->retry_us = 0;
    } else {
        if (md->failures < 30) md->failures++;
        md->retry_us = kc_after(core->now.mono_us,
                                kc_backoff(core, core->settings->retry_backoff_us, core->settings->retry_backoff_max_us, md->failures));
        md->refresh_us = KW_MIN(md->refresh_us, md->retry_us);
        kc_core_log(core, 7, "metadata request failed: %s", kc_err_name(err));
    }
    schedule(core);
}

/* ---- Those who follow ---- */

void kc_metadata_listen(struct kc_core *core, struct kc_metadata_listener *l) {
    kw_list_push(&core->metadata.listeners, &l->link);
}
void kc_metadata_unlisten(struct kc_metadata_listener *l) {
    kw_list_remove(&l->link);
}

/* A listener may take itself or others off meanwhile: the list is emptied into another one and filled again. */
static void announce(struct kc_task *task, void *ctx) {
    (void)task;
    struct kc_core *core = ctx;
    struct kw_list turn, *l, *list = &core->metadata.listeners;
    kw_list_init(&turn);
    while ((l = kw_list_shift(list))) kw_list_push(&turn, l);
    while ((l = kw_list_shift(&turn))) {
        kw_list_push(list, l);
        struct kc_metadata_listener *m = KW_CONTAINER_OF(l, struct kc_metadata_listener, link);
        m->changed(m);
    }
}

bool kc_metadata_leader_hint(struct kc_core *core, int32_t topic, int32_t partition, int32_t asked, int32_t leader, int32_t epoch,
                             struct kw_str host, int32_t port) {
    struct kc_topic_slot *s = slot_of(core, topic);
    if (!s || partition < 0 || partition >= s->meta.partition_count || leader < 0) return false;
    struct kc_partition_meta *p = &s->meta.partitions[partition];
    if (epoch <= p->leader_epoch) return p->leader >= 0 && p->leader != asked;
    if (host.len > 0 && kc_broker_update(core, leader, host, port) != KW_OK) return false;
    struct kc_broker *b = kc_broker_get(core, leader);
    if (!b || b->gone) return false;
    *p = (struct kc_partition_meta){leader, epoch, KE_NONE};
    s->meta.generation++;
    kc_core_defer(core, &core->metadata.announce);
    return leader != asked;
}

struct kw_str kc_metadata_cluster_id(struct kc_core *core) {
    return kw_str_of(core->metadata.cluster_id);
}
