/* group_peer.h - consumers as members of a group, on the net of consume_peer.h: a coordinator of one classic group, which judges as Kafka's does.
 *
 * Members are the test's consumers and `foreign` ones, which the coordinator plays itself: they join again whenever the group rebalances
 * (unless they are told not to), and lead it when they came first. A connection on which JoinGroup or SyncGroup waits may carry nothing else: the rig
 * fails the test if it does, since a broker answers each connection in order.
 */
#ifndef TESTS_CLIENT_GROUP_PEER_H
#define TESTS_CLIENT_GROUP_PEER_H

#include "consume_peer.h"

#include "consume/group.h"

enum { GW_MEMBERS = 8, GW_BYTES = 4096, GW_CONSUMERS = 4 };
enum { GW_MUTE = -100, GW_DROP = -101 }; /* of a script: no answer, the connection is lost */
enum gw_phase { GW_EMPTY, GW_PREPARING, GW_COMPLETING, GW_STABLE };

struct gm { /* a member, as the coordinator knows it */
    bool used, foreign, idle, joined; /* idle: a foreign one that does not join */
    bool came_back;                   /* a static one, under another id: as a leader it is told to skip the share-out (KIP-814) */
    char id[64], instance[32];
    char protocols[4][32];
    uint8_t said[4][GW_BYTES];
    int32_t said_len[4], protocol_count;
    uint8_t share[GW_BYTES];
    int32_t share_len;
    int waits; /* API key of the request that waits; 0 */
    struct link *link;
    struct kc_conn *conn;
    struct kw_frame_request head;
};
struct gw_consumer { /* one of the test's */
    struct gw *g;
    struct kc_consume *c;
    struct kc_consume own; /* of all but the first */
    struct kc_task run;
    struct kc_commits *commits;
    struct kc_settings *settings;
    struct kc_handover *handover; /* of the last event that was taken and kept */
};
struct gw {
    struct cw *w;
    struct gw_consumer consumers[GW_CONSUMERS];
    int consumer_count;
    struct gm members[GW_MEMBERS];
    char pending[16][64];
    int pending_count;
    enum gw_phase phase;
    int32_t generation;
    int leader;
    char protocol[32];
    int next_id;
    int32_t coordinator; /* its node */
    int16_t find_error;
    int16_t (*script)(struct gw *g, struct request *rq);
    int64_t committed[NET_TOPICS][CW_PARTS];
    int count[128]; /* requests, by API key */
    char reason[300], left[64];
    void *ctx;
};

static inline struct kw_arena *gw_arena(struct gw *g) {
    return &g->w->net->arena;
}

static inline void gw_drop(struct gw *g, struct link *l) {
    (void)g;
    link_lost(l, KW_EIO, "connection reset by peer");
}

static inline struct gm *gw_member(struct gw *g, struct kw_str id) {
    for (int i = 0; i < GW_MEMBERS; i++)
        if (g->members[i].used && kw_str_eq(kw_str_of(g->members[i].id), id)) return &g->members[i];
    return NULL;
}

static inline int gw_member_count(const struct gw *g) {
    int n = 0;
    for (int i = 0; i < GW_MEMBERS; i++) n += g->members[i].used;
    return n;
}

static inline struct gm *gw_new_member(struct gw *g, const char *id) {
    for (int i = 0; i < GW_MEMBERS; i++) {
        struct gm *m = &g->members[i];
        if (m->used) continue;
        *m = (struct gm){.used = true};
        snprintf(m->id, sizeof m->id, "%s", id);
        return m;
    }
    abort();
}

/* ---- Answers ---- */

static inline bool gw_there(const struct gm *m) {
    return m->waits && m->link->conn == m->conn;
}

static inline void gw_answer_join(struct gw *g, struct gm *m, int16_t err) {
    struct kw_join_group_response a;
    struct request rq = {.link = m->link, .head = m->head};
    kw_msg_init(&kw_join_group_response_desc, &a);
    m->waits = 0;
    a.error_code = err;
    a.member_id = kw_str_of(m->id);
    a.leader = kw_str_of("");
    a.protocol_name = kw_str_of("");
    if (err == KE_NONE) {
        a.generation_id = g->generation;
        a.protocol_type = kw_str_of("consumer");
        a.protocol_name = kw_str_of(g->protocol);
        a.leader = kw_str_of(g->members[g->leader].id);
        if (m == &g->members[g->leader]) {
            a.skip_assignment = m->came_back && m->head.version >= 9;
            a.members.v = net_calloc(g->w->net, GW_MEMBERS, sizeof *a.members.v);
            for (int i = 0; i < GW_MEMBERS; i++) {
                struct gm *o = &g->members[i];
                if (!o->used) continue;
                int at = 0;
                while (at < o->protocol_count - 1 && strcmp(o->protocols[at], g->protocol) != 0) at++;
                a.members.v[a.members.n++] = (struct kw_join_group_response_member){
                    .member_id = kw_str_of(o->id),
                    .group_instance_id = *o->instance ? kw_str_of(o->instance) : kw_str_null(),
                    .metadata = {o->said[at], o->said_len[at]}};
            }
        }
    }
    net_answer(&rq, &a);
}

static inline void gw_answer_sync(struct gw *g, struct gm *m, int16_t err) {
    struct kw_sync_group_response a;
    struct request rq = {.link = m->link, .head = m->head};
    kw_msg_init(&kw_sync_group_response_desc, &a);
    m->waits = 0;
    a.error_code = err;
    a.protocol_type = kw_str_of("consumer");
    a.protocol_name = kw_str_of(g->protocol);
    a.assignment = err == KE_NONE ? (struct kw_bytes){m->share, m->share_len} : (struct kw_bytes){(const uint8_t *)"", 0};
    net_answer(&rq, &a);
}

/* ---- Foreign members ---- */

/* An allocation failure that the test planned may hit us instead of the client: it happens once. */
#define GW_AGAIN(call)                                    \
    do {                                                  \
        kw_err gw_err_ = (call);                          \
        if (gw_err_ == KW_ENOMEM) gw_err_ = (call);       \
        assert_int_equal(gw_err_, KW_OK);                 \
    } while (0)

/* What a foreign member says: the topics, and what it was given last. */
static inline void gw_say(struct gw *g, struct gm *m, const char *const *topics, int32_t count) {
    struct kw_arena a;
    struct kw_out out;
    struct kw_str names[NET_TOPICS];
    struct kc_subscription s = {.topics = names, .topic_count = count, .generation = g->generation ? g->generation : -1, .rack = kw_str_null()};
    enum kc_assignor how;
    kw_arena_init(&a, 0);
    kw_out_init(&out);
    for (int32_t i = 0; i < count; i++) names[i] = kw_str_of(topics[i]);
    assert_true(kc_assignor_by_name(kw_str_of(m->protocols[0]), &how));
    if (kc_assignor_is_cooperative(how)) GW_AGAIN(kc_share_read((struct kw_bytes){m->share, m->share_len}, &a, &s.owned));
    GW_AGAIN((kw_out_reset(&out), out.err = KW_OK, kc_subscription_write(how, &s, &out)));
    assert_true(out.len < GW_BYTES);
    memcpy(m->said[0], out.p, out.len);
    m->said_len[0] = (int32_t)out.len;
    m->protocol_count = 1;
    kw_out_deinit(&out);
    kw_arena_deinit(&a);
}

static inline int32_t gw_partitions(void *ctx, struct kw_str name) {
    struct gw *g = ctx;
    int t = topic_by_name(g->w->net, name);
    return t < 0 ? 0 : g->w->net->topics[t].partitions;
}

/* A foreign leader shares out. */
static inline void gw_lead(struct gw *g) {
    struct kw_arena a;
    struct kc_member_in in[GW_MEMBERS];
    struct kc_share shares[GW_MEMBERS];
    int at[GW_MEMBERS], n = 0;
    enum kc_assignor how;
    kw_arena_init(&a, 0);
    assert_true(kc_assignor_by_name(kw_str_of(g->protocol), &how));
    for (int i = 0; i < GW_MEMBERS; i++) {
        struct gm *m = &g->members[i];
        if (!m->used) continue;
        in[n] = (struct kc_member_in){.id = kw_str_of(m->id), .instance_id = *m->instance ? kw_str_of(m->instance) : kw_str_null()};
        GW_AGAIN(kc_subscription_read(how, (struct kw_bytes){m->said[0], m->said_len[0]}, &a, &in[n].said));
        at[n++] = i;
    }
    GW_AGAIN(kc_assign(how, in, (size_t)n, gw_partitions, g, &a, shares));
    for (int i = 0; i < n; i++) {
        struct kw_out out;
        kw_out_init(&out);
        GW_AGAIN((kw_out_reset(&out), out.err = KW_OK, kc_share_write(&shares[i], &out)));
        assert_true(out.len < GW_BYTES);
        memcpy(g->members[at[i]].share, out.p, out.len);
        g->members[at[i]].share_len = (int32_t)out.len;
        kw_out_deinit(&out);
    }
    kw_arena_deinit(&a);
    g->phase = GW_STABLE;
}

/* ---- The group ---- */

static inline void gw_complete(struct gw *g) {
    if (g->phase != GW_PREPARING) return;
    int n = 0;
    for (int i = 0; i < GW_MEMBERS; i++) {
        struct gm *m = &g->members[i];
        if (!m->used) continue;
        if (m->foreign && !m->idle) m->joined = true;
        if (!m->joined) return;
        n++;
    }
    if (n == 0) {
        g->phase = GW_EMPTY;
        return;
    }
    g->generation++;
    if (!g->members[g->leader].used) {
        g->leader = 0;
        while (!g->members[g->leader].used) g->leader++;
    }
    snprintf(g->protocol, sizeof g->protocol, "%s", g->members[g->leader].protocols[0]);
    g->phase = GW_COMPLETING;
    for (int i = 0; i < GW_MEMBERS; i++) {
        struct gm *m = &g->members[i];
        m->joined = false;
        if (m->used && m->waits == KW_API_JOIN_GROUP && gw_there(m)) gw_answer_join(g, m, KE_NONE);
        m->waits = 0;
    }
    if (g->members[g->leader].foreign) gw_lead(g);
}

static inline void gw_rebalance(struct gw *g) {
    if (g->phase != GW_PREPARING)
        for (int i = 0; i < GW_MEMBERS; i++)
            if (g->members[i].waits == KW_API_SYNC_GROUP && gw_there(&g->members[i])) gw_answer_sync(g, &g->members[i], KE_REBALANCE_IN_PROGRESS);
    g->phase = GW_PREPARING;
    gw_complete(g);
}

static inline void gw_remove(struct gw *g, struct gm *m) {
    m->used = false;
    if (g->phase != GW_EMPTY) gw_rebalance(g);
}

/* A foreign member that subscribes to one topic; it joins at once. */
static inline struct gm *gw_foreign(struct gw *g, const char *id, const char *protocol, const char *topic) {
    struct gm *m = gw_new_member(g, id);
    m->foreign = true;
    snprintf(m->protocols[0], sizeof m->protocols[0], "%s", protocol);
    gw_say(g, m, &topic, 1);
    gw_rebalance(g);
    return m;
}

static inline void gw_join(struct gw *g, struct request *rq) {
    struct kw_join_group_request q;
    kw_arena_reset(gw_arena(g));
    request_decode(g->w->net, rq, &kw_join_group_request_desc, &q);
    struct gm *m = gw_member(g, q.member_id), fresh = {0};
    bool is_static = q.group_instance_id.len > 0;
    if (q.reason.len > 0) snprintf(g->reason, sizeof g->reason, "%.*s", (int)q.reason.len, q.reason.p);
    for (int i = 0; i < GW_MEMBERS && is_static; i++) {
        if (!g->members[i].used || !kw_str_eq(kw_str_of(g->members[i].instance), q.group_instance_id)) continue;
        if (q.member_id.len > 0 && m != &g->members[i]) {
            fresh.waits = KW_API_JOIN_GROUP;
            fresh.link = rq->link;
            fresh.head = rq->head;
            gw_answer_join(g, &fresh, KE_FENCED_INSTANCE_ID);
            return;
        }
        m = &g->members[i]; /* it comes back under another id */
        m->came_back = q.member_id.len == 0 && g->phase == GW_STABLE;
        if (q.member_id.len == 0) snprintf(m->id, sizeof m->id, "m%d", g->next_id++);
    }
    if (!m) {
        bool pending = false;
        for (int i = 0; i < g->pending_count; i++) pending |= kw_str_eq(kw_str_of(g->pending[i]), q.member_id);
        if (q.member_id.len > 0 && !pending) {
            fresh.link = rq->link;
            fresh.head = rq->head;
            gw_answer_join(g, &fresh, KE_UNKNOWN_MEMBER_ID);
            return;
        }
        char id[64];
        if (q.member_id.len > 0)
            snprintf(id, sizeof id, "%.*s", (int)q.member_id.len, q.member_id.p);
        else
            snprintf(id, sizeof id, "m%d", g->next_id++);
        if (q.member_id.len == 0 && !is_static && rq->head.version >= 4) {
            assert_true(g->pending_count < 16);
            snprintf(g->pending[g->pending_count++], 64, "%s", id);
            snprintf(fresh.id, sizeof fresh.id, "%s", id);
            fresh.link = rq->link;
            fresh.head = rq->head;
            gw_answer_join(g, &fresh, KE_MEMBER_ID_REQUIRED);
            return;
        }
        m = gw_new_member(g, id);
        if (is_static) snprintf(m->instance, sizeof m->instance, "%.*s", (int)q.group_instance_id.len, q.group_instance_id.p);
    }
    assert_true(q.protocols.n > 0 && q.protocols.n <= 4);
    m->protocol_count = q.protocols.n;
    for (int32_t i = 0; i < q.protocols.n; i++) {
        snprintf(m->protocols[i], sizeof m->protocols[i], "%.*s", (int)q.protocols.v[i].name.len, q.protocols.v[i].name.p);
        assert_true(q.protocols.v[i].metadata.len < GW_BYTES);
        memcpy(m->said[i], q.protocols.v[i].metadata.p, (size_t)q.protocols.v[i].metadata.len);
        m->said_len[i] = q.protocols.v[i].metadata.len;
    }
    m->joined = true;
    m->waits = KW_API_JOIN_GROUP;
    m->link = rq->link;
    m->conn = rq->link->conn;
    m->head = rq->head;
    gw_rebalance(g);
}

static inline void gw_sync(struct gw *g, struct request *rq) {
    struct kw_sync_group_request q;
    kw_arena_reset(gw_arena(g));
    request_decode(g->w->net, rq, &kw_sync_group_request_desc, &q);
    struct gm *m = gw_member(g, q.member_id), fresh = {.link = rq->link, .head = rq->head};
    int16_t err = !m                                   ? KE_UNKNOWN_MEMBER_ID
                  : q.generation_id != g->generation   ? KE_ILLEGAL_GENERATION
                  : g->phase == GW_PREPARING           ? KE_REBALANCE_IN_PROGRESS
                                                       : KE_NONE;
    if (err != KE_NONE) {
        gw_answer_sync(g, &fresh, err);
        return;
    }
    m->waits = KW_API_SYNC_GROUP;
    m->link = rq->link;
    m->conn = rq->link->conn;
    m->head = rq->head;
    if (g->phase == GW_COMPLETING && m == &g->members[g->leader]) {
        for (int i = 0; i < GW_MEMBERS && !m->came_back; i++) g->members[i].share_len = 0;
        for (int32_t i = 0; i < q.assignments.n; i++) {
            struct gm *o = gw_member(g, q.assignments.v[i].member_id);
            assert_non_null(o);
            assert_true(q.assignments.v[i].assignment.len < GW_BYTES);
            o->share_len = q.assignments.v[i].assignment.len;
            memcpy(o->share, q.assignments.v[i].assignment.p, (size_t)o->share_len);
        }
        g->phase = GW_STABLE;
    }
    for (int i = 0; i < GW_MEMBERS && g->phase == GW_STABLE; i++)
        if (g->members[i].used && g->members[i].waits == KW_API_SYNC_GROUP && gw_there(&g->members[i])) gw_answer_sync(g, &g->members[i], KE_NONE);
}

static inline void gw_heartbeat(struct gw *g, struct request *rq, int16_t err) {
    struct kw_heartbeat_request q;
    struct kw_heartbeat_response a;
    kw_arena_reset(gw_arena(g));
    request_decode(g->w->net, rq, &kw_heartbeat_request_desc, &q);
    kw_msg_init(&kw_heartbeat_response_desc, &a);
    struct gm *m = gw_member(g, q.member_id);
    a.error_code = err != KE_NONE                       ? err
                   : !m                                 ? KE_UNKNOWN_MEMBER_ID
                   : q.generation_id != g->generation   ? KE_ILLEGAL_GENERATION
                   : g->phase == GW_PREPARING           ? KE_REBALANCE_IN_PROGRESS
                                                        : KE_NONE;
    net_answer(rq, &a);
}

static inline void gw_leave(struct gw *g, struct request *rq) {
    struct kw_leave_group_request q;
    struct kw_leave_group_response a;
    kw_arena_reset(gw_arena(g));
    request_decode(g->w->net, rq, &kw_leave_group_request_desc, &q);
    kw_msg_init(&kw_leave_group_response_desc, &a);
    struct kw_str id = rq->head.version < 3 ? q.member_id : q.members.v[0].member_id;
    struct gm *m = gw_member(g, id);
    snprintf(g->left, sizeof g->left, "%.*s", (int)id.len, id.p);
    if (!m) a.error_code = KE_UNKNOWN_MEMBER_ID;
    net_answer(rq, &a);
    if (m) gw_remove(g, m);
}

static inline void gw_find(struct gw *g, struct request *rq, int16_t err) {
    struct kw_find_coordinator_request q;
    struct kw_find_coordinator_response a;
    struct kw_find_coordinator_response_coordinator one = {0};
    struct net *n = g->w->net;
    kw_arena_reset(gw_arena(g));
    request_decode(n, rq, &kw_find_coordinator_request_desc, &q);
    kw_msg_init(&kw_find_coordinator_response_desc, &a);
    if (g->find_error) err = g->find_error;
    struct model_broker *b = NULL;
    for (size_t i = 0; i < n->broker_count; i++)
        if (n->brokers[i].id == g->coordinator) b = &n->brokers[i];
    one.key = q.coordinator_keys.n > 0 ? q.coordinator_keys.v[0] : kw_str_of("");
    one.error_message = kw_str_null();
    one.error_code = err;
    one.node_id = err || !b ? -1 : b->id;
    one.host = err || !b ? kw_str_of("") : kw_str_of(b->host);
    one.port = err || !b ? -1 : b->port;
    if (rq->head.version >= 4) {
        a.coordinators.v = &one;
        a.coordinators.n = 1;
    } else {
        a.error_code = err;
        a.node_id = one.node_id;
        a.host = one.host;
        a.port = one.port;
    }
    net_answer(rq, &a);
}

static inline int64_t *gw_offset(struct gw *g, struct kw_str topic, int32_t partition) {
    int t = topic_by_name(g->w->net, topic);
    assert_true(t >= 0 && partition >= 0 && partition < CW_PARTS);
    return &g->committed[t][partition];
}

static inline void gw_offset_fetch(struct gw *g, struct request *rq) {
    struct kw_offset_fetch_request q;
    struct kw_offset_fetch_response a;
    struct kw_offset_fetch_response_group group = {0};
    struct net *n = g->w->net;
    kw_arena_reset(gw_arena(g));
    request_decode(n, rq, &kw_offset_fetch_request_desc, &q);
    kw_msg_init(&kw_offset_fetch_response_desc, &a);
    assert_true(rq->head.version >= 8 && rq->head.version <= 9 && q.groups.n == 1);
    group.group_id = q.groups.v[0].group_id;
    group.topics.v = net_calloc(n, (size_t)q.groups.v[0].topics.n + 1, sizeof *group.topics.v);
    for (int32_t i = 0; i < q.groups.v[0].topics.n; i++) {
        const struct kw_offset_fetch_request_topics *in = &q.groups.v[0].topics.v[i];
        struct kw_offset_fetch_response_topics *t = &group.topics.v[group.topics.n++];
        t->name = in->name;
        t->partitions.v = net_calloc(n, (size_t)in->partition_indexes.n + 1, sizeof *t->partitions.v);
        for (int32_t k = 0; k < in->partition_indexes.n; k++)
            t->partitions.v[t->partitions.n++] =
                (struct kw_offset_fetch_response_partitions){.partition_index = in->partition_indexes.v[k],
                                                             .committed_offset = *gw_offset(g, in->name, in->partition_indexes.v[k]),
                                                             .committed_leader_epoch = -1,
                                                             .metadata = kw_str_of("")};
    }
    a.groups.v = &group;
    a.groups.n = 1;
    net_answer(rq, &a);
}

static inline void gw_offset_commit(struct gw *g, struct request *rq) {
    struct kw_offset_commit_request q;
    struct kw_offset_commit_response a;
    struct net *n = g->w->net;
    kw_arena_reset(gw_arena(g));
    request_decode(n, rq, &kw_offset_commit_request_desc, &q);
    kw_msg_init(&kw_offset_commit_response_desc, &a);
    struct gm *m = gw_member(g, q.member_id);
    bool manual = q.generation_id_or_member_epoch < 0 && q.member_id.len <= 0 && gw_member_count(g) == 0;
    int16_t err = manual                                             ? KE_NONE
                  : !m                                               ? KE_UNKNOWN_MEMBER_ID
                  : q.generation_id_or_member_epoch != g->generation ? KE_ILLEGAL_GENERATION
                  : g->phase == GW_COMPLETING                        ? KE_REBALANCE_IN_PROGRESS
                                                                     : KE_NONE;
    a.topics.v = net_calloc(n, (size_t)q.topics.n + 1, sizeof *a.topics.v);
    for (int32_t i = 0; i < q.topics.n; i++) {
        a.topics.v[a.topics.n].name = q.topics.v[i].name;
        a.topics.v[a.topics.n].partitions.v = net_calloc(n, (size_t)q.topics.v[i].partitions.n + 1, sizeof *a.topics.v->partitions.v);
        for (int32_t k = 0; k < q.topics.v[i].partitions.n; k++) {
            const struct kw_offset_commit_request_partition *p = &q.topics.v[i].partitions.v[k];
            if (err == KE_NONE) *gw_offset(g, q.topics.v[i].name, p->partition_index) = p->committed_offset;
            a.topics.v[a.topics.n].partitions.v[a.topics.v[a.topics.n].partitions.n++] =
                (struct kw_offset_commit_response_partition){.partition_index = p->partition_index, .error_code = err};
        }
        a.topics.n++;
    }
    net_answer(rq, &a);
}

/* The group, with what each member has. */
static inline void gw_describe(struct gw *g, struct request *rq, int16_t err) {
    static const char *const states[] = {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"};
    struct kw_describe_groups_request q;
    struct kw_describe_groups_response a;
    struct net *n = g->w->net;
    kw_arena_reset(gw_arena(g));
    request_decode(n, rq, &kw_describe_groups_request_desc, &q);
    kw_msg_init(&kw_describe_groups_response_desc, &a);
    struct kw_describe_groups_response_described_group d = {.error_code = err,
                                                            .error_message = kw_str_null(),
                                                            .group_id = q.groups.v[0],
                                                            .group_state = kw_str_of(err ? "" : states[g->phase]),
                                                            .protocol_type = kw_str_of("consumer"),
                                                            .protocol_data = kw_str_of(g->protocol)};
    d.members.v = net_calloc(n, GW_MEMBERS, sizeof *d.members.v);
    for (int i = 0; i < GW_MEMBERS && !err; i++) {
        struct gm *m = &g->members[i];
        if (!m->used) continue;
        d.members.v[d.members.n++] = (struct kw_describe_groups_response_described_group_member){
            .member_id = kw_str_of(m->id),
            .group_instance_id = kw_str_null(),
            .client_id = kw_str_of(""),
            .client_host = kw_str_of(""),
            .member_metadata = {(const uint8_t *)"", 0},
            .member_assignment = {m->share, g->phase == GW_STABLE ? m->share_len : 0}};
    }
    a.groups.v = &d;
    a.groups.n = 1;
    net_answer(rq, &a);
}

/* An answer with an error instead, in the place that each API has for it. */
static inline void gw_refuse_leave(struct request *rq, int16_t err) {
    struct kw_leave_group_response a;
    kw_msg_init(&kw_leave_group_response_desc, &a);
    a.error_code = err;
    net_answer(rq, &a);
}

static inline void gw_refuse(struct gw *g, struct request *rq, int16_t err) {
    struct gm fresh = {.link = rq->link, .head = rq->head};
    if (rq->head.api_key == KW_API_JOIN_GROUP)
        gw_answer_join(g, &fresh, err);
    else if (rq->head.api_key == KW_API_SYNC_GROUP)
        gw_answer_sync(g, &fresh, err);
    else if (rq->head.api_key == KW_API_HEARTBEAT)
        gw_heartbeat(g, rq, err);
    else if (rq->head.api_key == KW_API_FIND_COORDINATOR)
        gw_find(g, rq, err);
    else if (rq->head.api_key == KW_API_LEAVE_GROUP)
        gw_refuse_leave(rq, err);
    else if (rq->head.api_key == KW_API_DESCRIBE_GROUPS)
        gw_describe(g, rq, err);
    else
        abort();
}

static inline bool gw_before(struct cw *w, struct request *rq) {
    struct gw *g = w->ctx;
    int16_t key = rq->head.api_key;
    for (int i = 0; i < GW_MEMBERS; i++)
        if (g->members[i].waits && gw_there(&g->members[i])) assert_ptr_not_equal(g->members[i].link, rq->link); /* the broker would not read it yet */
    struct model_broker *b = net_broker_at(w->net, rq->link->host, rq->link->port);
    bool group = key == KW_API_JOIN_GROUP || key == KW_API_SYNC_GROUP || key == KW_API_HEARTBEAT || key == KW_API_LEAVE_GROUP ||
                 key == KW_API_OFFSET_COMMIT || key == KW_API_OFFSET_FETCH || key == KW_API_DESCRIBE_GROUPS;
    if (!group && key != KW_API_FIND_COORDINATOR) return false;
    g->count[key]++;
    if (b && b->silent) return true;
    int16_t err = g->script ? g->script(g, rq) : KE_NONE;
    if (err == GW_DROP) gw_drop(g, rq->link);
    if (err == GW_DROP || err == GW_MUTE) return true;
    if (err == KE_NONE && group && b && b->id != g->coordinator) err = KE_NOT_COORDINATOR;
    if (err != KE_NONE) {
        gw_refuse(g, rq, err);
        return true;
    }
    switch (key) {
    case KW_API_FIND_COORDINATOR:
        gw_find(g, rq, KE_NONE);
        break;
    case KW_API_JOIN_GROUP:
        gw_join(g, rq);
        break;
    case KW_API_SYNC_GROUP:
        gw_sync(g, rq);
        break;
    case KW_API_HEARTBEAT:
        gw_heartbeat(g, rq, KE_NONE);
        break;
    case KW_API_LEAVE_GROUP:
        gw_leave(g, rq);
        break;
    case KW_API_OFFSET_FETCH:
        gw_offset_fetch(g, rq);
        break;
    case KW_API_DESCRIBE_GROUPS:
        gw_describe(g, rq, KE_NONE);
        break;
    default:
        gw_offset_commit(g, rq);
        break;
    }
    return true;
}

/* ---- The test's consumers ---- */

static inline void gw_run(struct kc_task *task, void *ctx) {
    (void)task;
    struct gw_consumer *o = ctx;
    if (!o->c->started && !o->c->stopped) kc_consume_start(o->c);
    kc_consume_run(o->c);
}
static inline void gw_kick(void *ctx) {
    struct gw_consumer *o = ctx;
    kc_core_defer(o->g->w->net->core, &o->run);
}
static inline void gw_notify(void *ctx) {
    ((struct gw_consumer *)ctx)->g->w->notified++;
}

static inline void gw_commits(struct gw_consumer *o, const struct kc_settings *s) {
    struct kc_commits_options options = {
        .consume = o->c, .group_id = kw_str_of(s->group_id), .mode = KC_PROCESSED_BY_POLL, .refused = kc_group_refused, .ctx = o->c};
    assert_int_equal(kc_commits_new(&options, &o->commits), KW_OK);
}

static inline struct gw_consumer *gw_add(struct gw *g, const char *const *pairs) {
    struct net *n = g->w->net;
    struct gw_consumer *o = &g->consumers[g->consumer_count++];
    struct kc_config *config = kc_config_new();
    o->g = g;
    o->c = g->consumer_count == 1 ? &g->w->c : &o->own;
    for (; pairs && pairs[0]; pairs += 2) assert_int_equal(kc_config_set(config, pairs[0], pairs[1], NULL), KC_OK);
    assert_int_equal(kc_settings_new(n->config, config, &o->settings, NULL), KC_OK);
    kc_config_free(config);
    kc_task_init(&o->run, gw_run, o);
    if (g->consumer_count == 1) kc_consume_deinit(o->c);
    assert_int_equal(kc_consume_init(o->c, n->core, o->settings, gw_notify, gw_kick, o), KW_OK);
    gw_commits(o, o->settings);
    gw_kick(o);
    return o;
}

/* One broker, no topic; consumers as gw_add. */
static inline struct gw *gw_new(const char *const *pairs) {
    struct gw *g = calloc(1, sizeof *g);
    g->w = cw_new(pairs);
    cw_stop(g->w); /* the rig's own consumer makes room for one with a group */
    kc_task_cancel(&g->w->run);
    g->w->ctx = g;
    g->w->before = gw_before;
    g->coordinator = 1;
    g->w->net->api_max[KW_API_OFFSET_FETCH] = 9;
    g->w->net->api_max[KW_API_OFFSET_COMMIT] = 9;
    for (int t = 0; t < NET_TOPICS; t++)
        for (int p = 0; p < CW_PARTS; p++) g->committed[t][p] = -1;
    return g;
}

static inline void gw_free(struct gw *g) {
    for (int i = g->consumer_count - 1; i >= 0; i--) {
        struct gw_consumer *o = &g->consumers[i];
        if (!o->c->stopped) kc_consume_stop(o->c);
        net_turn(g->w->net);
        assert_true(kc_consume_stopped(o->c));
        kc_task_cancel(&o->run);
        if (i > 0) kc_consume_deinit(o->c);
    }
    struct kc_settings *s = g->consumers[0].settings;
    for (int i = 1; i < g->consumer_count; i++) kc_settings_free(g->consumers[i].settings);
    cw_free(g->w);
    kc_settings_free(s);
    free(g);
}

static inline kc_err gw_subscribe(struct gw_consumer *o, int topic) {
    return kc_group_subscribe(o->c, &o->g->w->topic[topic], 1, NULL);
}

/* The next event of the consumer: NULL: none. */
static inline kc_event *gw_poll(struct gw_consumer *o) {
    kc_event *e = NULL;
    kc_consume_passed(o->c);
    kc_err err = kc_consume_take(o->c, &e);
    if (err == KC_BUSY) return NULL;
    assert_int_equal(err, KC_OK);
    return e;
}
static inline void gw_drop_event(kc_event *e) {
    assert_null(kc_event_drop(e));
}
/* The next event must be of this kind, with so many partitions (-1: any). */
static inline kc_event *gw_expect(struct gw_consumer *o, int32_t kind, int partitions) {
    kc_event *e = gw_poll(o);
    assert_non_null(e);
    assert_int_equal(e->kind, kind);
    if (partitions >= 0) assert_int_equal(kc_event_partitions(e, NULL, 0, 0), partitions);
    return e;
}
static inline enum kc_group_state gw_state(const struct gw_consumer *o) {
    const struct kc_group *group = atomic_load(&o->c->group);
    return group ? group->state : KC_GROUP_IDLE;
}
/* Until it has that state, at most so long. */
static inline void gw_until(struct gw_consumer *o, enum kc_group_state state, int64_t us) {
    int64_t end = o->g->w->net->now.mono_us + us;
    while (gw_state(o) != state && o->g->w->net->now.mono_us < end) cw_advance(o->g->w, 1000);
    assert_int_equal(gw_state(o), state);
}
/* Polls, and takes records into w->got, for so long; group events are taken and acknowledged by the next poll. */
static inline void gw_consume(struct gw_consumer *o, int64_t us) {
    int64_t end = o->g->w->net->now.mono_us + us;
    do {
        kc_event *e;
        while ((e = gw_poll(o)) != NULL) {
            if (o->c == &o->g->w->c) cw_note(o->g->w, e);
            gw_drop_event(e);
        }
        cw_advance(o->g->w, KW_MIN(KW_MAX(end - o->g->w->net->now.mono_us, 0), 5000));
    } while (o->g->w->net->now.mono_us < end);
}
/* Its process is killed: nobody is told. */
static inline void gw_kill(struct gw_consumer *o) {
    kc_consume_stop(o->c);
    cw_advance(o->g->w, 1000);
    assert_true(kc_consume_stopped(o->c));
}
/* How many partitions all members have by the coordinator. */
static inline int gw_shared(struct gw *g) {
    struct kw_arena a;
    int n = 0;
    kw_arena_init(&a, 0);
    for (int i = 0; i < GW_MEMBERS; i++) {
        struct kc_share s;
        if (!g->members[i].used) continue;
        GW_AGAIN(kc_share_read((struct kw_bytes){g->members[i].share, g->members[i].share_len}, &a, &s));
        for (int32_t t = 0; t < s.topic_count; t++) n += s.topics[t].partitions.n;
    }
    kw_arena_deinit(&a);
    return n;
}
/* How many partitions it has. */
static inline int gw_parts(const struct gw_consumer *o) {
    int n = 0;
    for (const struct kw_list *it = o->c->parts.next; it != &o->c->parts; it = it->next)
        n += KW_CONTAINER_OF(it, struct kc_part, link)->assigned;
    return n;
}

#endif
