/* isr.c - the leader's view of a partition's other replicas. Contract: isr.h. */
#include "isr.h"

#include "isr_priv.h"
#include "partitions_priv.h"
#include "quorum/elect.h"

/* ---- Replicas ---- */

struct kb_remote *kb_isr_remote(const struct kb_isr *s, int32_t id) {
    for (int32_t i = 0; i < s->remote_count; i++)
        if (s->remotes[i].id == id) return &s->remotes[i];
    return NULL;
}

static bool in_isr(const struct kb_partition *p, int32_t id) {
    return kb_ids_have(p->isr, p->isr_count, id);
}

static bool wished(const struct kb_isr *s, int32_t id) {
    for (int32_t i = 0; i < s->wish_count; i++)
        if (s->wish[i].broker_id == id) return true;
    return false;
}

/* KIP-841, 858, 903: in this life, known to the controller, with a log that works, and here to stay. */
static bool eligible(const struct kb_partition *p, const struct kb_remote *r) {
    const struct kb_image_broker *b = kb_image_broker(&p->node->image, r->id);
    const struct kb_image_topic *t = kb_image_topic_by_id(&p->node->image, p->topic_id);
    if (t && p->index < t->partition_count && kb_elect_is_lost(&t->partitions[p->index], r->id)) return false;
    return b && !b->fenced && !b->in_controlled_shutdown && (r->broker_epoch < 0 || r->broker_epoch == b->epoch);
}

/* It has all that there is, or had, no longer than lag_max_us ago, all that there was. */
static bool caught_up(const struct kb_partition *p, const struct kb_remote *r, struct kb_now now) {
    return r->end == p->log->written || (r->caught_up_us >= 0 && now.mono_us - r->caught_up_us <= p->node->partitions->isrs.lag_max_us);
}

static struct kb_remote new_remote(const struct kb_partition *p, int32_t id, struct kb_now now) {
    return (struct kb_remote){.id = id,
                              .end = -1,
                              .log_start = -1,
                              .leader_end = INT64_MAX,
                              .goal_end = -1,
                              .broker_epoch = -1,
                              .fetched_us = -1,
                              .caught_up_us = in_isr(p, id) ? now.mono_us : -1};
}

/* One for each replica of the assignment but this node; those that are known stay as they are. */
static bool take_replicas(struct kb_partition *p, struct kb_now now) {
    struct kb_isr *s = p->in_sync;
    struct kb_remote *v = kw_calloc((size_t)p->replica_count, sizeof(*v));
    if (!v) {
        kb_node_fail(p->node, "no memory for the replicas of %s-%d", p->topic, p->index);
        return false;
    }
    int32_t n = 0;
    for (int32_t i = 0; i < p->replica_count; i++) {
        if (p->replicas[i] == p->node->id) continue;
        const struct kb_remote *known = kb_isr_remote(s, p->replicas[i]);
        v[n++] = known ? *known : new_remote(p, p->replicas[i], now);
    }
    kw_free(s->remotes);
    s->remotes = v;
    s->remote_count = n;
    return true;
}

/* ---- Life ---- */

void kb_isr_leave(struct kb_partition *p) {
    struct kb_isr *s = p->in_sync;
    if (!s) return;
    kb_isr_wish_drop(s);
    kw_list_remove(&s->link);
    kw_free(s->remotes);
    kw_free(s);
    p->in_sync = NULL;
}

void kb_isr_lead(struct kb_partition *p, struct kb_now now) {
    kb_isr_leave(p);
    if (p->replica_count <= 1) return;
    struct kb_isrs *all = &p->node->partitions->isrs;
    struct kb_isr *s = kw_calloc(1, sizeof(*s));
    if (!s) {
        kb_node_fail(p->node, "no memory for the replicas of %s-%d", p->topic, p->index);
        return;
    }
    s->p = p;
    kw_list_init(&s->link);
    kw_list_init(&s->wish_link);
    p->in_sync = s;
    if (!take_replicas(p, now)) {
        kb_isr_leave(p);
        return;
    }
    kw_list_push(&all->leading, &s->link);
    kb_isrs_watch(all, now);
}

/* Of one that is no replica the controller cannot make a member. */
static bool is_possible(const struct kb_partition *p) {
    const struct kb_isr *s = p->in_sync;
    for (int32_t i = 0; i < s->wish_count; i++)
        if (!kb_ids_have(p->replicas, p->replica_count, s->wish[i].broker_id)) return false;
    return true;
}

void kb_isr_changed(struct kb_partition *p, bool later, struct kb_now now) {
    if (p->replica_count <= 1 || !p->in_sync) {
        kb_isr_lead(p, now);
        return;
    }
    if (later || !is_possible(p)) kb_isr_wish_drop(p->in_sync);
    (void)take_replicas(p, now); /* it said so */
}

/* ---- What followers tell ---- */

/* The broker epoch must be the one that the image has (KIP-903): a fetch of an earlier life, of one that this image does not know yet, or of a client
 * that only says that it is a replica, counts for nothing and reads nothing above the high watermark. */
int16_t kb_isr_may_fetch(const struct kb_partition *p, const struct kb_replica_fetch *f) {
    const struct kb_image_broker *b = kb_image_broker(&p->node->image, f->replica);
    const struct kb_remote *r = p->in_sync ? kb_isr_remote(p->in_sync, f->replica) : NULL;
    if (!r) return f->epoch_told ? KE_UNKNOWN_LEADER_EPOCH : KE_NOT_LEADER_OR_FOLLOWER; /* the image here may be the older one: it tries again */
    return b && f->broker_epoch == b->epoch ? KE_NONE : KE_NOT_LEADER_OR_FOLLOWER;
}

static void maybe_expand(struct kb_partition *p, struct kb_remote *r, struct kb_now now) {
    struct kb_isr *s = p->in_sync;
    if (in_isr(p, r->id) || s->wish || now.mono_us < s->rest_until_us) return;
    if (r->end < KW_MAX(p->hw, p->epoch_start) || !eligible(p, r)) return;
    kb_isr_wish(s, r->id, now);
}

void kb_isr_fetched(struct kb_partition *p, const struct kb_replica_fetch *f, struct kb_now now) {
    struct kb_remote *r = kb_isr_remote(p->in_sync, f->replica);
    int64_t end = p->log->written;
    if (f->offset >= end)
        r->caught_up_us = now.mono_us;
    else if (f->offset >= r->leader_end) /* all that there was at its last fetch */
        r->caught_up_us = KW_MAX(r->caught_up_us, r->fetched_us);
    if (f->offset >= r->goal_end) {
        if (r->goal_end >= 0) r->caught_up_us = KW_MAX(r->caught_up_us, r->goal_us);
        r->goal_end = end;
        r->goal_us = now.mono_us;
    }
    r->leader_end = end;
    r->fetched_us = now.mono_us;
    bool start_moved = r->log_start != f->log_start, end_moved = r->end != f->offset;
    r->end = f->offset;
    r->log_start = f->log_start;
    r->broker_epoch = f->broker_epoch;
    maybe_expand(p, r, now);
    if (end_moved) kb_partition_reckon(p, now);
    if (start_moved) kb_purgatory_moved(p, now); /* DeleteRecords may wait for it */
}

/* ---- What follows from it ---- */

static int32_t min_in_sync(const struct kb_partition *p) {
    return KW_MIN(p->config.min_insync_replicas, p->replica_count);
}

bool kb_isr_enough(const struct kb_partition *p) {
    return p->isr_count >= min_in_sync(p);
}

/* One that keeps up but is not in sync yet is waited for too: under a steady load it would never reach a high watermark that runs ahead of it. */
int64_t kb_isr_hw(const struct kb_partition *p, int64_t own, struct kb_now now) {
    const struct kb_isr *s = p->in_sync;
    if (!s || !kb_isr_enough(p)) return p->hw;
    int64_t hw = own;
    for (int32_t i = 0; i < s->remote_count; i++) {
        const struct kb_remote *r = &s->remotes[i];
        if (r->end >= hw) continue;
        if (in_isr(p, r->id) || wished(s, r->id) || (caught_up(p, r, now) && eligible(p, r))) hw = r->end;
    }
    return hw;
}

int64_t kb_isr_log_start(const struct kb_partition *p) {
    const struct kb_isr *s = p->in_sync;
    int64_t low = p->log->start;
    for (int32_t i = 0; s && i < s->remote_count; i++) {
        const struct kb_image_broker *b = kb_image_broker(&p->node->image, s->remotes[i].id);
        if (b && !b->fenced) low = KW_MIN(low, s->remotes[i].log_start);
    }
    return low;
}

static bool stands_in(const struct kb_partition *p, int32_t id, struct kw_str rack) {
    const struct kb_image_broker *b = kb_image_broker(&p->node->image, id);
    return b && !b->fenced && b->rack && kw_str_eq(kw_str_of(b->rack), rack);
}

int32_t kb_isr_nearest(const struct kb_partition *p, struct kw_str rack, int64_t offset) {
    const struct kb_isr *s = p->in_sync;
    const struct kb_remote *best = NULL;
    if (!s || rack.len <= 0 || !p->node->partitions->isrs.rack_aware || stands_in(p, p->node->id, rack)) return -1;
    for (int32_t i = 0; i < s->remote_count; i++) {
        const struct kb_remote *r = &s->remotes[i];
        if (!in_isr(p, r->id) || !stands_in(p, r->id, rack)) continue;
        if (offset < r->log_start || offset > r->end) continue;
        if (!best || r->end > best->end || (r->end == best->end && r->caught_up_us > best->caught_up_us)) best = r;
    }
    return best ? best->id : -1;
}

/* ---- Those that fell behind ---- */

static void maybe_shrink(struct kb_isr *s, struct kb_now now) {
    struct kb_partition *p = s->p;
    if (s->wish || now.mono_us < s->rest_until_us) return;
    bool any = false;
    for (int32_t i = 0; i < s->remote_count; i++) {
        struct kb_remote *r = &s->remotes[i];
        r->behind = in_isr(p, r->id) && !caught_up(p, r, now);
        any = any || r->behind;
    }
    if (any) kb_isr_wish(s, -1, now);
}

static void lag_fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t, (void)now_us;
    struct kb_isrs *all = ctx;
    struct kb_now now = all->node->now;
    for (struct kw_list *l = all->leading.next; l != &all->leading; l = l->next) {
        struct kb_isr *s = KW_CONTAINER_OF(l, struct kb_isr, link);
        maybe_shrink(s, now);
        kb_partition_reckon(s->p, now); /* one that the high watermark waited for may have been too slow */
    }
    kb_isrs_watch(all, now);
}

void kb_isrs_watch(struct kb_isrs *all, struct kb_now now) {
    if (kw_list_empty(&all->leading) || kw_timer_armed(&all->lag_timer) || all->stopped) return;
    int64_t every = KW_MAX(all->lag_max_us / 2, 1000);
    if (kw_timers_set(&all->node->parts.timers, &all->lag_timer, now.mono_us + every) != KW_OK)
        kb_node_fail(all->node, "no memory for the timer that watches the replicas");
}

void kb_isrs_init(struct kb_isrs *all, struct kb_node *n) {
    const char *selector = kb_config_get(n->parts.config, "replica.selector.class");
    *all = (struct kb_isrs){.node = n, .lag_max_us = kb_partitions_config_us(n, "replica.lag.time.max.ms")};
    all->rack_aware = selector && strstr(selector, "RackAwareReplicaSelector");
    all->ask = kb_channel_call;
    kw_list_init(&all->leading);
    kw_list_init(&all->unsent);
    kw_list_init(&all->sent);
    kw_timer_init(&all->lag_timer, lag_fire, all);
    kb_isrs_init_wishes(all);
}

void kb_isrs_stop(struct kb_isrs *all) {
    all->stopped = true;
    kb_call_cancel(&all->call);
    kw_timers_cancel(&all->node->parts.timers, &all->lag_timer);
    kw_timers_cancel(&all->node->parts.timers, &all->send_timer);
}
