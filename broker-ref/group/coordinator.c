/* coordinator.c - which groups this node coordinates: offices taken and left with the leadership of partitions of __consumer_offsets,
 * groups found.
 *
 * Called by api/, node, replica/partitions (coordinator.h). Calls coordinator_load, coordinator_store, coordinator_expire, group, offsets.
 */
#include "coordinator_priv.h"

#include "replica/partitions_priv.h"

/* ---- The node's ---- */

static void expiry_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_coordinator *c = ctx;
    struct kb_now now = c->node->now;
    now.mono_us = KW_MAX(now.mono_us, now_us);
    (void)!kw_timers_set(&c->node->parts.timers, t, now_us + c->expiry_every_us); /* it has just fired: there is room */
    kb_coordinator_expire(c, now);
}

/* Groups of an office that is being taken have no sessions yet. */
void kb_coordinator_advance(struct kb_node *n, int64_t by_us) {
    struct kb_coordinator *c = n->coordinator;
    struct kb_shard *s;
    struct kb_group_entry *e;
    for (size_t i = 0; c && (s = kw_map_next(&c->shards, &i));)
        for (size_t k = 0; s->state == KB_SHARD_SERVING && (e = kw_map_next(&s->groups, &k));) kb_group_advance(e->group, by_us);
    if (c && kw_timer_armed(&c->expiry)) (void)!kw_timers_set(&n->parts.timers, &c->expiry, n->now.mono_us);
}

kw_err kb_coordinator_new(struct kb_node *n) {
    if (!(n->roles & KB_ROLE_BROKER)) return KW_OK;
    struct kb_coordinator *c = kw_calloc(1, sizeof(*c));
    if (!c) return KW_ENOMEM;
    const struct kb_config *config = n->parts.config;
    c->node = n;
    c->env = (struct kb_group_env){.timers = &n->parts.timers,
                                   .now = &n->now,
                                   .rng = &n->parts.rng,
                                   .logger = &n->logger,
                                   .members_max = (int32_t)kb_config_int(config, "group.max.size"),
                                   .initial_delay_us = kb_config_int(config, "group.initial.rebalance.delay.ms") * 1000,
                                   .store = kb_coordinator_store_group};
    c->retention_ms = kb_config_int(config, "offsets.retention.minutes") * 60000;
    c->expiry_every_us = kb_config_int(config, "offsets.retention.check.interval.ms") * 1000;
    c->commit_timeout_us = kb_config_int(config, "offsets.commit.timeout.ms") * 1000;
    kw_map_init(&c->shards);
    kw_list_init(&c->touched);
    kw_timer_init(&c->expiry, expiry_fire, c);
    n->coordinator = c;
    return KW_OK;
}

void kb_coordinator_free(struct kb_node *n) {
    struct kb_coordinator *c = n->coordinator;
    struct kb_shard *s;
    if (!c) return;
    for (size_t i = 0; (s = kw_map_next(&c->shards, &i));) {
        kb_shard_leave(s, n->now);
        kw_list_remove(&s->link);
        kb_group_batch_deinit(&s->batch);
        kw_map_deinit(&s->groups);
        kw_free(s);
    }
    kw_timers_cancel(&n->parts.timers, &c->expiry);
    kw_map_deinit(&c->shards);
    kw_free(c);
    n->coordinator = NULL;
}

/* ---- Offices ---- */

void kb_shard_touch(struct kb_shard *s) {
    if (kw_list_empty(&s->link)) kw_list_push(&s->c->touched, &s->link);
}

static struct kb_shard *shard_make(struct kb_coordinator *c, int32_t index) {
    struct kb_shard *s = kw_calloc(1, sizeof(*s));
    if (!s || kw_map_put_u64(&c->shards, (uint32_t)index, s)) {
        kw_free(s);
        return NULL;
    }
    s->c = c;
    s->index = index;
    kw_list_init(&s->link);
    kw_list_init(&s->tidy);
    kw_list_init(&s->unsent);
    kw_list_init(&s->sent);
    kw_map_init(&s->groups);
    kb_group_batch_init(&s->batch);
    return s;
}

void kb_coordinator_moved(struct kb_partition *p) {
    struct kb_coordinator *c = p->node->coordinator;
    if (!p->internal || !c || strcmp(p->topic, KB_OFFSETS_TOPIC) != 0) return;
    struct kb_shard *s = kw_map_get_u64(&c->shards, (uint32_t)p->index);
    if (!s && p->role != KB_PART_LEADS) return;
    if (!s) s = shard_make(c, p->index);
    if (s)
        kb_shard_touch(s);
    else
        kb_node_fail(p->node, "no memory for the groups of %s-%d", p->topic, p->index);
}

static void check(struct kb_waiter *w, struct kb_partition *moved, struct kb_now now) {
    struct kb_shard *s = w->ctx;
    if (kb_partition_error(moved, -1) != KE_NONE || moved->leader_epoch != s->epoch) {
        kb_shard_leave(s, now);
        kb_shard_touch(s); /* it may lead again, in another epoch */
    } else if (s->state == KB_SHARD_CATCHING && moved->hw >= s->load_end) {
        kb_shard_serve(s, now);
    } else if (s->state == KB_SHARD_SERVING) {
        kb_shard_progress(s, now);
    }
}

static void expire(struct kb_waiter *w, struct kb_now now) {
    struct kb_shard *s = w->ctx;
    if (s->state == KB_SHARD_LOADING) {
        kb_shard_load(s, now);
    } else if (s->state == KB_SHARD_FAILED) { /* for want of memory */
        kb_shard_leave(s, now);
        kb_shard_touch(s);
    } else {
        kb_shard_progress(s, now);
    }
}

static void take_office(struct kb_shard *s, struct kb_partition *p, struct kb_now now) {
    s->p = p;
    s->epoch = p->leader_epoch;
    s->state = KB_SHARD_LOADING;
    s->load_next = p->log->start;
    s->load_end = p->log->leo;
    s->load_began_us = now.mono_us;
    kb_waiter_init(&s->waiter, &s->hook, 1);
    s->waiter.node = s->c->node;
    s->waiter.check = check;
    s->waiter.expire = expire;
    s->waiter.ctx = s;
    kb_waiter_hook(&s->waiter, p);
    kb_shard_load(s, now);
}

void kb_shard_leave(struct kb_shard *s, struct kb_now now) {
    struct kb_group_entry *e;
    if (s->state == KB_SHARD_NONE) return;
    s->state = KB_SHARD_NONE;
    kb_waiter_done(&s->waiter, s->c->node);
    kb_shard_load_stop(s); /* may be the end of a partition that was deleted: nothing may hang on it any more */
    kb_shard_fail_writes(s, KE_NOT_COORDINATOR, now);
    for (size_t i = 0; (e = kw_map_next(&s->groups, &i));) kb_shard_drop_group(e, KE_NOT_COORDINATOR);
    s->p = NULL;
}

void kb_shard_serve(struct kb_shard *s, struct kb_now now) {
    struct kb_coordinator *c = s->c;
    struct kb_group_entry *e;
    s->state = KB_SHARD_SERVING;
    for (size_t i = 0; (e = kw_map_next(&s->groups, &i));) kb_group_begin(e->group, now);
    if (!kw_timer_armed(&c->expiry)) (void)!kw_timers_set(&c->node->parts.timers, &c->expiry, now.mono_us + c->expiry_every_us);
    KB_SAY(c->node, KB_DEBUG, "%s-%d: coordinates its %zu groups, read in %lld ms", KB_OFFSETS_TOPIC, (int)s->index, s->groups.count,
           (long long)(now.mono_us - s->load_began_us) / 1000);
}

static struct kb_partition *partition_of(const struct kb_shard *s) {
    struct kb_image_partition *ip = kb_image_partition(&s->c->node->image, kw_str_of(KB_OFFSETS_TOPIC), s->index);
    return ip ? ip->local : NULL;
}

static void look(struct kb_shard *s, struct kb_now now) {
    struct kb_partition *p = partition_of(s);
    bool leads = p && kb_partition_error(p, -1) == KE_NONE;
    if (s->state != KB_SHARD_NONE && (!leads || p != s->p || p->leader_epoch != s->epoch)) kb_shard_leave(s, now);
    if (s->state == KB_SHARD_NONE && leads && !s->c->stopped) take_office(s, p, now);
}

static void tidy(struct kb_group_entry *e, struct kb_now now) {
    uint64_t failed = e->failed_store;
    e->failed_store = 0;
    if (failed) kb_group_stored(e->group, failed, e->failed_code, now);
    if (kb_group_is_unused(e->group) && e->offsets.entries == 0 && e->changes == 0 && kb_group_since_ms(e->group) < 0)
        kb_shard_drop_group(e, KE_NONE); /* nothing came of it */
}

void kb_coordinator_run(struct kb_node *n, struct kb_now now) {
    struct kb_coordinator *c = n->coordinator;
    if (!c) return;
    for (struct kw_list *l; (l = kw_list_shift(&c->touched));) {
        struct kb_shard *s = KW_CONTAINER_OF(l, struct kb_shard, link);
        look(s, now);
        for (struct kw_list *t; (t = kw_list_shift(&s->tidy));) tidy(KW_CONTAINER_OF(t, struct kb_group_entry, link), now);
        if (s->state == KB_SHARD_SERVING) kb_shard_flush(s, now);
    }
}

void kb_coordinator_stop(struct kb_node *n, struct kb_now now) {
    struct kb_coordinator *c = n->coordinator;
    struct kb_shard *s;
    if (!c) return;
    c->stopped = true;
    for (size_t i = 0; (s = kw_map_next(&c->shards, &i));) kb_shard_leave(s, now);
    kw_timers_cancel(&n->parts.timers, &c->expiry);
}

/* ---- Groups ---- */

/* Java's String.hashCode: over UTF-16 units; what is no UTF-8 counts as the replacement character, as Java reads it. */
static uint32_t java_hash(struct kw_str s) {
    const uint8_t *p = (const uint8_t *)s.p, *end = p + KW_MAX(s.len, 0);
    uint32_t h = 0;
    while (p < end) {
        uint32_t c = *p++;
        int more = c < 0x80 ? 0 : c >= 0xc2 && c < 0xe0 ? 1 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xf0 && c < 0xf5 ? 3 : -1;
        const uint8_t *q = p;
        uint32_t v = more > 0 ? c & (0x3fu >> more) : c;
        for (int k = 0; k < more && q < end && (*q & 0xc0) == 0x80; k++) v = v << 6 | (*q++ & 0x3f);
        bool whole = more >= 0 && q - p == more;
        p = whole ? q : p;
        if (!whole) v = 0xfffd;
        if (v >= 0x10000) {
            h = h * 31 + (0xd7c0 + (v >> 10));
            v = 0xdc00 | (v & 0x3ff);
        }
        h = h * 31 + v;
    }
    return h;
}

int32_t kb_coordinator_partition_of(struct kw_str id, int32_t partition_count) {
    int32_t h = (int32_t)java_hash(id);
    return (h == INT32_MIN ? 0 : h < 0 ? -h : h) % partition_count;
}

void kb_group_entry_tidy(struct kb_group_entry *e) {
    if (kw_list_empty(&e->link)) kw_list_push(&e->shard->tidy, &e->link);
    kb_shard_touch(e->shard);
}

struct kb_group_entry *kb_shard_group(struct kb_shard *s, struct kw_str id, bool make) {
    struct kb_group_entry *e = kw_map_get_str(&s->groups, id);
    if (e || !make) return e;
    e = kw_calloc(1, sizeof(*e));
    if (!e) return NULL;
    e->group = kb_group_new(&s->c->env, id, e);
    if (!e->group || kw_map_put(&s->groups, id.p, (size_t)id.len, e)) {
        if (e->group) kb_group_free(e->group, KE_NONE);
        kw_free(e);
        return NULL;
    }
    e->shard = s;
    kw_list_init(&e->link);
    kb_committed_init(&e->offsets);
    return e;
}

void kb_shard_drop_group(struct kb_group_entry *e, int16_t code) {
    struct kw_str id = kb_group_id(e->group);
    kw_map_remove(&e->shard->groups, id.p, (size_t)id.len);
    kw_list_remove(&e->link);
    kb_group_free(e->group, code);
    kb_committed_deinit(&e->offsets);
    kw_free(e->loaded);
    kw_free(e);
}

int16_t kb_coordinator_group(struct kb_node *n, struct kw_str id, bool make, struct kb_group_entry **e) {
    struct kb_coordinator *c = n->coordinator;
    const struct kb_image_topic *t = kb_image_topic(&n->image, kw_str_of(KB_OFFSETS_TOPIC));
    if (id.len <= 0 || !kb_image_is_text(id)) return KE_INVALID_GROUP_ID; /* the core's are C strings */
    if (!c || c->stopped || !t || t->partition_count == 0) return KE_NOT_COORDINATOR;
    struct kb_shard *s = kw_map_get_u64(&c->shards, (uint32_t)kb_coordinator_partition_of(id, t->partition_count));
    if (!s) return KE_NOT_COORDINATOR;
    if (!kw_list_empty(&s->link)) look(s, n->now); /* it may have moved in this very turn */
    switch (s->state) {
    case KB_SHARD_NONE:
        return KE_NOT_COORDINATOR;
    case KB_SHARD_LOADING:
    case KB_SHARD_CATCHING:
        return KE_COORDINATOR_LOAD_IN_PROGRESS;
    case KB_SHARD_FAILED:
        return KE_COORDINATOR_NOT_AVAILABLE;
    case KB_SHARD_SERVING:
        break;
    }
    struct kb_group_entry *found = kb_shard_group(s, id, make);
    if (!found && make) return KE_COORDINATOR_NOT_AVAILABLE;
    if (found && make) kb_group_entry_tidy(found); /* should nothing come of it */
    *e = found;
    return KE_NONE;
}

int16_t kb_coordinator_each(struct kb_node *n, void (*visit)(void *ctx, struct kb_group_entry *e), void *ctx) {
    struct kb_coordinator *c = n->coordinator;
    struct kb_shard *s;
    struct kb_group_entry *e;
    int16_t code = KE_NONE;
    for (size_t i = 0; c && (s = kw_map_next(&c->shards, &i));) {
        if (s->state == KB_SHARD_LOADING || s->state == KB_SHARD_CATCHING) code = KE_COORDINATOR_LOAD_IN_PROGRESS;
        for (size_t k = 0; s->state == KB_SHARD_SERVING && (e = kw_map_next(&s->groups, &k));) visit(ctx, e);
    }
    return code;
}
