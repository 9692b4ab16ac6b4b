/* group_join.c - JoinGroup, which waits until all members have joined, and SyncGroup, which waits for the leader's share-out. Loop context.
 *
 * Called by group_classic.c and, with the share-out, by group_lead.c. KIP-345 (static members), 394 (a new member is given its id first), 429, 559, 800, 814.
 */
#include "group.h"

#include <limits.h>
#include <stdlib.h>

#define PROTOCOL_TYPE "consumer"
#define JOIN_STATIC_VERSION_MIN 5
#define SYNC_STATIC_VERSION_MIN 3
#define PARTITIONS_MAX (1 << 20) /* of a topic, and of a member: a leader that gives more is mistaken */
#define ANSWER_SLACK_US 5000000 /* the broker waits for members as long as the rebalance timeout; its answer takes a while too */

static int32_t ms(int64_t us) {
    return (int32_t)KW_MIN(us / 1000, INT32_MAX);
}

/* ---- What it has ---- */

static int by_topic(const void *a, const void *b) {
    const kc_topic_partition *x = a, *y = b;
    if (x->topic != y->topic) return x->topic < y->topic ? -1 : 1;
    return x->partition < y->partition ? -1 : x->partition > y->partition;
}

/* Partitions by number as a share by name, in the arena. */
static kw_err name_share(struct kc_group *g, const kc_topic_partition *v, size_t n, struct kw_arena *a, struct kc_share *s) {
    *s = (struct kc_share){kw_arena_calloc(a, n + 1, sizeof(*s->topics)), 0};
    int32_t *partitions = kw_arena_alloc(a, (n + 1) * sizeof(*partitions));
    if (!s->topics || !partitions) return KW_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        partitions[i] = v[i].partition;
        if (i == 0 || v[i].topic != v[i - 1].topic) {
            struct kw_consumer_protocol_assignment_topic_partition *t = &s->topics[s->topic_count++];
            t->topic = kc_topic_name(g->consume->core, v[i].topic);
            t->partitions.v = &partitions[i];
        }
        s->topics[s->topic_count - 1].partitions.n++;
    }
    return KW_OK;
}

/* Those that it keeps over the rebalance. */
static kw_err owned(struct kc_group *g, struct kw_arena *a, struct kc_share *s) {
    struct kc_consume *c = g->consume;
    size_t n = 0, room = 0;
    kc_lock_take(&c->lock);
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) room++;
    kc_topic_partition *v = kw_arena_alloc(a, (room + 1) * sizeof(*v));
    for (struct kw_list *it = c->parts.next; v && it != &c->parts; it = it->next) {
        const struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (p->assigned && p->revoked == 0) v[n++] = (kc_topic_partition){.topic = p->topic, .partition = p->partition};
    }
    kc_lock_give(&c->lock);
    if (!v) return KW_ENOMEM;
    qsort(v, n, sizeof(*v), by_topic);
    return name_share(g, v, n, a, s);
}

/* ---- JoinGroup ---- */

static kw_err subscription(struct kc_group *g, struct kw_arena *a, struct kc_subscription *s) {
    struct kw_str *names = kw_arena_alloc(a, (g->joined_topics.count + 1) * sizeof(*names));
    if (!names) return KW_ENOMEM;
    for (size_t i = 0; i < g->joined_topics.count; i++) names[i] = kc_topic_name(g->consume->core, g->joined_topics.v[i]);
    const char *rack = g->consume->settings->rack;
    *s = (struct kc_subscription){.topics = names,
                                  .topic_count = (int32_t)g->joined_topics.count,
                                  .generation = -1,
                                  .rack = rack && *rack ? kw_str_of(rack) : kw_str_null()};
    return KW_OK;
}

static kw_err protocol(struct kc_group *g, enum kc_assignor how, struct kc_subscription s, struct kw_arena *a,
                       struct kw_join_group_request_protocol *p) {
    struct kw_out out;
    kw_err err = KW_OK;
    if (g->cooperative) {
        err = owned(g, a, &s.owned);
        s.generation = g->last_generation;
    } else if (how == KC_ASSIGN_STICKY) { /* what it had before it gave all of it up */
        s.owned = g->last_share;
        s.generation = g->last_generation;
    }
    kw_out_init(&out);
    if (err == KW_OK) err = kc_subscription_write(how, &s, &out);
    p->name = kw_str_of(kc_assignor_name(how));
    p->metadata = (struct kw_bytes){err == KW_OK ? kw_arena_dup(a, out.p, out.len) : NULL, (int32_t)out.len};
    kw_out_deinit(&out);
    return err == KW_OK && !p->metadata.p ? KW_ENOMEM : err;
}

static kw_err encode_join(struct kc_request *rq, struct kw_out *out) {
    struct kc_group *g = rq->ctx;
    const struct kc_settings *s = g->consume->settings;
    struct kw_join_group_request m;
    struct kw_join_group_request_protocol protocols[KC_ASSIGNOR_COUNT];
    struct kc_subscription said;
    kw_arena_reset(&g->arena);
    kw_msg_init(&kw_join_group_request_desc, &m);
    kw_err err = subscription(g, &g->arena, &said);
    for (size_t i = 0; i < g->assignor_count && err == KW_OK; i++) err = protocol(g, g->assignors[i], said, &g->arena, &protocols[i]);
    if (err != KW_OK) return err;
    m.group_id = kc_group_id(g);
    m.session_timeout_ms = ms(s->session_timeout_us);
    m.rebalance_timeout_ms = ms(s->poll_interval_max_us);
    m.member_id = kw_str_of(g->member_id);
    if (rq->version >= JOIN_STATIC_VERSION_MIN) m.group_instance_id = kc_group_instance(g);
    m.protocol_type = kw_str_of(PROTOCOL_TYPE);
    m.protocols.v = protocols;
    m.protocols.n = (int32_t)g->assignor_count;
    m.reason = kw_str_of(g->why);
    return kw_encode(&kw_join_group_request_desc, rq->version, &m, out);
}

static void request(struct kc_group *g, int16_t api, kw_err (*encode)(struct kc_request *, struct kw_out *),
                 void (*done)(struct kc_request *, kc_err, struct kw_in *, struct kw_blk *), int16_t static_version_min) {
    struct kc_consume *c = g->consume;
    int64_t patience_us = c->settings->poll_interval_max_us;
    kc_request_init(&g->rq, api);
    kc_coordinator_aim(kc_commits_coordinator(c->commits), &g->rq);
    g->rq.channel = g->lane;
    if (kc_group_is_static(g)) g->rq.version_min = static_version_min;
    g->rq.encode = encode;
    g->rq.done = done;
    g->rq.ctx = g;
    g->rq.answer_timeout_us = KW_MAX(c->settings->request_timeout_us, patience_us + ANSWER_SLACK_US);
    g->rq_busy = true;
    g->rq_void = false;
    g->rq_sent_us = kc_core_now(c->core).mono_us;
    c->requests++;
    kc_core_send(c->core, &g->rq);
}

/* What JoinGroup and SyncGroup fail with alike. */
static void refused(struct kc_group *g, struct kc_request *rq, kc_err err) {
    switch (err) {
    case KE_UNKNOWN_MEMBER_ID: /* the group does not know the member, or not this generation of it */
    case KE_ILLEGAL_GENERATION:
        kc_group_lose(g, err == KE_UNKNOWN_MEMBER_ID, kc_err_name(err));
        return;
    case KE_FENCED_INSTANCE_ID:
        kc_group_fenced(g);
        return;
    default:
        (void)kc_coordinator_failed(kc_commits_coordinator(g->consume->commits), rq, err);
        kc_group_retry(g, err);
    }
}

static kw_err choose(struct kc_group *g, const struct kw_join_group_response *m) {
    if (m->protocol_type.len > 0 && !kw_str_eq(m->protocol_type, kw_str_of(PROTOCOL_TYPE))) return KE_INCONSISTENT_GROUP_PROTOCOL;
    if (!kc_assignor_by_name(m->protocol_name, &g->how)) return KE_INCONSISTENT_GROUP_PROTOCOL;
    return KW_OK;
}

static void joined(struct kc_group *g, const struct kw_join_group_response *m, struct kw_blk *blk) {
    struct kc_consume *c = g->consume;
    kw_err err = kc_group_member_set(g, m->member_id);
    if (err == KW_OK) err = choose(g, m);
    if (err == KW_OK && m->generation_id < 0) err = KW_EDECODE;
    g->leading = kw_str_eq(m->leader, m->member_id);
    g->skip_assignment = m->skip_assignment;
    if (err == KW_OK && g->leading) err = kc_group_read_members(g, m);
    if (err != KW_OK) {
        kc_group_retry(g, kc_err_from(err));
        return;
    }
    if (g->leading) g->join_blk = kw_blk_ref(blk);
    kc_lock_take(&c->lock);
    g->generation = m->generation_id;
    kc_lock_give(&c->lock);
    g->heard_us = kc_core_now(c->core).mono_us; /* its session began anew when the last member had joined, which was just now */
    g->beat_due_us = kc_core_now(c->core).mono_us + c->settings->heartbeat_us;
    kc_group_publish(g, false);
    kc_core_log(c->core, 7, "group %s: generation %d, %s%s", c->settings->group_id, (int)g->generation, kc_assignor_name(g->how),
                g->leading ? ", leading" : "");
    kc_group_enter(g, g->leading ? KC_GROUP_LEAD : KC_GROUP_SYNC);
    if (!g->leading) kc_group_sync(g);
}

static void join_refused(struct kc_group *g, struct kc_request *rq, kc_err err, const struct kw_join_group_response *m) {
    if (err != KE_MEMBER_ID_REQUIRED)
        refused(g, rq, err);
    else if (*g->member_id || m->member_id.len <= 0) /* it has one, or was given none */
        kc_group_retry(g, err);
    else if (kc_group_member_set(g, m->member_id) != KW_OK)
        kc_group_retry(g, KC_NO_MEMORY);
    else
        kc_group_join(g); /* again, under the name that it is given (KIP-394) */
}

/* Whether the answer is still of interest; ends the request. */
static bool ended(struct kc_group *g, kc_err err) {
    g->rq_busy = false;
    g->consume->requests--;
    return !g->stopped && !g->rq_void && err != KC_CANCELLED && err != KC_CLOSED;
}

static void join_done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct kc_group *g = rq->ctx;
    struct kc_consume *c = g->consume;
    struct kw_join_group_response m;
    kw_msg_init(&kw_join_group_response_desc, &m);
    if (ended(g, err)) {
        kw_arena_reset(&g->arena);
        if (err == KC_OK) err = kc_err_from(kw_decode(&kw_join_group_response_desc, rq->version, body, &g->arena, &m));
        if (err == KC_OK) {
            kc_core_broker_throttle(c->core, rq->sent_to, m.throttle_time_ms);
            err = m.error_code;
        }
        if (err == KC_OK)
            joined(g, &m, blk);
        else
            join_refused(g, rq, err, &m);
    }
    kc_consume_run(c);
}

void kc_group_join(struct kc_group *g) {
    struct kc_consume *c = g->consume;
    if (!g->has_lane) {
        g->lane = kc_core_lane_take(c->core);
        g->has_lane = true;
    }
    struct kc_numbers said = {NULL, 0};
    if (!kc_commits_coordinator(c->commits) || kc_numbers_set(&said, g->topics.v, g->topics.count) != KW_OK) {
        kc_group_retry(g, KC_NO_MEMORY);
        return;
    }
    kc_numbers_free(&g->joined_topics);
    g->joined_topics = said;
    g->rejoin = false;
    kc_group_lead_over(g);
    kc_group_enter(g, KC_GROUP_JOIN);
    request(g, KW_API_JOIN_GROUP, encode_join, join_done, JOIN_STATIC_VERSION_MIN);
}

/* ---- SyncGroup ---- */

static kw_err encode_sync(struct kc_request *rq, struct kw_out *out) {
    struct kc_group *g = rq->ctx;
    struct kw_sync_group_request m;
    kw_msg_init(&kw_sync_group_request_desc, &m);
    m.group_id = kc_group_id(g);
    m.generation_id = g->generation;
    m.member_id = kw_str_of(g->member_id);
    if (rq->version >= SYNC_STATIC_VERSION_MIN) m.group_instance_id = kc_group_instance(g);
    m.protocol_type = kw_str_of(PROTOCOL_TYPE);
    m.protocol_name = kw_str_of(kc_assignor_name(g->how));
    if (!g->leading || g->skip_assignment) return kw_encode(&kw_sync_group_request_desc, rq->version, &m, out);
    m.assignments.v = kw_arena_calloc(&g->arena, g->member_count + 1, sizeof(*m.assignments.v));
    if (!m.assignments.v) return KW_ENOMEM;
    for (size_t i = 0; i < g->member_count; i++) {
        struct kw_out share;
        kw_out_init(&share);
        kw_err err = kc_share_write(&g->shares[i], &share);
        struct kw_sync_group_request_assignment *a = &m.assignments.v[m.assignments.n++];
        a->member_id = g->members[i].id;
        a->assignment = (struct kw_bytes){err == KW_OK ? kw_arena_dup(&g->arena, share.p, share.len) : NULL, (int32_t)share.len};
        kw_out_deinit(&share);
        if (err != KW_OK || !a->assignment.p) return err != KW_OK ? err : KW_ENOMEM;
    }
    return kw_encode(&kw_sync_group_request_desc, rq->version, &m, out);
}

/* By number, each once; partitions of topics whose name cannot be one are left out. */
static kw_err number_share(struct kc_group *g, const struct kc_share *s, struct kw_arena *a, kc_topic_partition **out, size_t *count) {
    size_t room = 0, n = 0;
    for (int32_t i = 0; i < s->topic_count; i++) room += (size_t)KW_MAX(s->topics[i].partitions.n, 0);
    kc_topic_partition *v = kw_arena_alloc(a, (room + 1) * sizeof(*v));
    if (!v) return KW_ENOMEM;
    for (int32_t i = 0; i < s->topic_count; i++) {
        int32_t topic = kc_group_intern(g, s->topics[i].topic);
        for (int32_t k = 0; topic > 0 && k < s->topics[i].partitions.n; k++)
            if (s->topics[i].partitions.v[k] >= 0 && s->topics[i].partitions.v[k] < PARTITIONS_MAX)
                v[n++] = (kc_topic_partition){.topic = topic, .partition = s->topics[i].partitions.v[k], .leader_epoch = -1};
    }
    qsort(v, n, sizeof(*v), by_topic);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || by_topic(&v[kept - 1], &v[i]) != 0) v[kept++] = v[i];
    *out = v;
    *count = kept;
    return kept <= PARTITIONS_MAX ? KW_OK : KW_ELIMIT;
}

static kc_err take_share(struct kc_group *g, struct kw_bytes bytes) {
    struct kc_consume *c = g->consume;
    struct kc_share s;
    kc_topic_partition *v = NULL;
    size_t n = 0, gone = 0;
    int64_t now_us = kc_core_now(c->core).mono_us;
    kw_arena_reset(&g->share_arena);
    g->last_share = (struct kc_share){NULL, 0};
    kw_err err = kc_share_read(bytes, &g->share_arena, &s);
    if (err == KW_OK) err = number_share(g, &s, &g->share_arena, &v, &n);
    if (err == KW_OK) err = name_share(g, v, n, &g->share_arena, &g->last_share); /* by our own names: the answer's bytes go */
    if (err == KW_OK) err = kc_group_note_counts(g, v, n);
    if (err != KW_OK) {
        g->last_share = (struct kc_share){NULL, 0};
        return kc_err_from(err);
    }
    kc_lock_take(&c->lock);
    bool first = !g->joined;
    kc_err given = kc_group_give(g, v, n, first, now_us, &gone);
    kc_lock_give(&c->lock);
    if (given != KC_OK) return given;
    g->last_generation = g->generation;
    kc_group_settled(g, gone > 0);
    return KC_OK;
}

static void sync_failed(struct kc_group *g, struct kc_request *rq, kc_err err) {
    if (err != KE_REBALANCE_IN_PROGRESS) {
        refused(g, rq, err);
        return;
    }
    g->why = "the group rebalances";
    kc_group_again(g);
}

static void sync_done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct kc_group *g = rq->ctx;
    struct kc_consume *c = g->consume;
    struct kw_sync_group_response m;
    struct kw_arena arena;
    (void)blk;
    if (ended(g, err)) {
        kw_arena_init(&arena, 0);
        kw_msg_init(&kw_sync_group_response_desc, &m);
        if (err == KC_OK) err = kc_err_from(kw_decode(&kw_sync_group_response_desc, rq->version, body, &arena, &m));
        if (err == KC_OK) {
            kc_core_broker_throttle(c->core, rq->sent_to, m.throttle_time_ms);
            err = m.error_code;
        }
        if (err == KC_OK) {
            g->heard_us = KW_MAX(g->heard_us, g->rq_sent_us);
            err = take_share(g, m.assignment);
        }
        if (err != KC_OK) sync_failed(g, rq, err);
        kw_arena_deinit(&arena);
    }
    kc_consume_run(c);
}

void kc_group_sync(struct kc_group *g) {
    request(g, KW_API_SYNC_GROUP, encode_sync, sync_done, SYNC_STATIC_VERSION_MIN);
}
