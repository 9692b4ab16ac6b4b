/* commit_peer.h - a consumer with a group.id on the virtual net of consume_peer.h, and a coordinator that keeps committed offsets and does what
 * the test says. */
#ifndef TESTS_CLIENT_COMMIT_PEER_H
#define TESTS_CLIENT_COMMIT_PEER_H

#include "consume_peer.h"

#include "consume/commit_priv.h"

enum { CG_ITEMS = 16, CG_HISTORY = 65536 };

struct cg_stored {
    bool present;
    int64_t offset;
    int32_t epoch;
    char metadata[64];
    int metadata_len;
};
struct cg_write { /* one partition of one OffsetCommit that was stored */
    int topic;
    int32_t partition;
    int64_t offset;
};
struct cg {
    struct cw *w;
    struct kc_commits *m;
    struct cg_stored stored[NET_TOPICS][CW_PARTS];
    struct cg_write history[CG_HISTORY];
    int history_count;
    int32_t node; /* the coordinator */
    int finds, commits, fetches;
    /* the last OffsetCommit */
    int32_t generation;
    char member_id[32], instance_id[32];
    bool has_instance;
    int16_t version;
    int parts;
    bool stable; /* the last OffsetFetch asked for it */
    int16_t fetch_version;
    int fetch_parts;
    /* the test's say */
    int16_t code; /* of the next `codes` OffsetCommits, nothing stored */
    int codes;
    int16_t fetch_code; /* likewise of OffsetFetch: of the group, or (fetch_of_part) of the partitions */
    int fetch_codes;
    bool fetch_of_part;
    int16_t (*judge)(struct cg *g, int topic, int32_t partition, const struct kw_offset_commit_request_partition *p);
    int32_t live_generation; /* commits of members must have it; 0: any */
    bool hold;               /* stores, and answers once cg_release is called */
    bool lose;               /* stores, and the connection breaks; once */
    bool mute, skip;         /* neither stores nor answers; the answer leaves partitions out */
    int strays;              /* partitions that nobody asked about come first in an answer to a commit */
    struct request held;
    struct kc_conn *held_conn;
    void *model; /* the test's */
    struct kw_out held_answer; /* whole frame */
    bool has_held;
    int refusals;
    kc_err refused;
    void (*on_refused)(struct cg *g, kc_err err);
};

static inline struct cg *cg_of(struct cw *w) {
    return w->ctx;
}

static inline void cg_answer_find(struct cg *g, struct request *rq) {
    struct net *n = g->w->net;
    struct kw_find_coordinator_request q;
    struct kw_find_coordinator_response m;
    kw_arena_reset(&n->arena);
    request_decode(n, rq, &kw_find_coordinator_request_desc, &q);
    kw_msg_init(&kw_find_coordinator_response_desc, &m);
    const char *host = "";
    int32_t port = -1;
    for (size_t i = 0; i < n->broker_count; i++)
        if (n->brokers[i].id == g->node && g->node >= 0) host = n->brokers[i].host, port = n->brokers[i].port;
    g->finds++;
    struct kw_find_coordinator_response_coordinator c = {
        .key = kw_str_of("g"), .node_id = g->node, .host = kw_str_of(host), .port = port, .error_message = kw_str_null()};
    if (g->node < 0) c.error_code = KE_COORDINATOR_NOT_AVAILABLE;
    m.coordinators.v = &c;
    m.coordinators.n = 1;
    m.error_code = c.error_code;
    m.node_id = c.node_id;
    m.host = c.host;
    m.port = c.port;
    if (rq->head.version >= 4) {
        assert_int_equal(q.coordinator_keys.n, 1);
        assert_true(kw_str_eq(((struct kw_str *)q.coordinator_keys.v)[0], c.key));
        m.error_code = 0;
        m.node_id = 0;
        m.host = kw_str_of("");
        m.port = 0;
    } else {
        assert_true(kw_str_eq(q.key, c.key));
        m.coordinators.n = 0;
    }
    net_answer(rq, &m);
}

/* KE_NONE: stored. */
static inline int16_t cg_store(struct cg *g, int topic, const struct kw_offset_commit_request_partition *p) {
    int16_t code = g->judge ? g->judge(g, topic, p->partition_index, p) : KE_NONE;
    if (code) return code;
    if (topic < 0 || p->partition_index >= g->w->net->topics[topic].partitions) return KE_UNKNOWN_TOPIC_OR_PARTITION;
    struct cg_stored *s = &g->stored[topic][p->partition_index];
    if (p->committed_metadata.len >= (int32_t)sizeof s->metadata) return KE_OFFSET_METADATA_TOO_LARGE;
    *s = (struct cg_stored){.present = true, .offset = p->committed_offset, .epoch = p->committed_leader_epoch, .metadata_len = p->committed_metadata.len};
    if (p->committed_metadata.len > 0) memcpy(s->metadata, p->committed_metadata.p, (size_t)p->committed_metadata.len);
    assert_true(g->history_count < CG_HISTORY);
    g->history[g->history_count++] = (struct cg_write){topic, p->partition_index, p->committed_offset};
    return KE_NONE;
}

static inline int16_t cg_whole_code(struct cg *g, const struct model_broker *b) {
    if (g->codes > 0) {
        g->codes--;
        return g->code;
    }
    if (b->id != g->node) return KE_NOT_COORDINATOR;
    if (g->live_generation > 0 && g->generation != g->live_generation) return KE_ILLEGAL_GENERATION;
    return KE_NONE;
}

static inline void cg_drop_held(struct cg *g) {
    g->has_held = false;
    kw_out_deinit(&g->held_answer);
}

static inline void cg_answer_commit(struct cg *g, struct request *rq) {
    struct net *n = g->w->net;
    struct kw_offset_commit_request q;
    struct kw_offset_commit_response m;
    kw_arena_reset(&n->arena);
    request_decode(n, rq, &kw_offset_commit_request_desc, &q);
    assert_int_equal(kw_in_left(&rq->body), 0);
    assert_true(kw_str_eq(q.group_id, kw_str_of("g")));
    g->commits++;
    g->version = rq->head.version;
    g->generation = q.generation_id_or_member_epoch;
    snprintf(g->member_id, sizeof g->member_id, "%.*s", q.member_id.len, q.member_id.p);
    g->has_instance = q.group_instance_id.len >= 0;
    snprintf(g->instance_id, sizeof g->instance_id, "%.*s", KW_MAX(q.group_instance_id.len, 0), g->has_instance ? q.group_instance_id.p : "");
    g->parts = 0;
    if (g->mute) return;
    if (g->has_held && g->held.link->conn != g->held_conn) cg_drop_held(g); /* its connection was given up */
    assert_false(g->has_held); /* one at a time */
    int16_t whole = cg_whole_code(g, net_broker_at(n, rq->link->host, rq->link->port));
    kw_msg_init(&kw_offset_commit_response_desc, &m);
    m.topics.v = net_calloc(n, (size_t)q.topics.n + 1, sizeof *m.topics.v);
    for (int32_t t = 0; t < q.topics.n; t++) {
        const struct kw_offset_commit_request_topic *from = &q.topics.v[t];
        int topic = rq->head.version >= 10 ? topic_by_id(n, from->topic_id) : topic_by_name(n, from->name);
        struct kw_offset_commit_response_topic *to = &m.topics.v[m.topics.n++];
        to->name = from->name;
        to->topic_id = from->topic_id;
        to->partitions.v = net_calloc(n, (size_t)(from->partitions.n + g->strays + 1), sizeof *to->partitions.v);
        for (int i = 0; i < g->strays; i++) to->partitions.v[to->partitions.n++] = (struct kw_offset_commit_response_partition){.partition_index = 77};
        for (int32_t i = 0; i < from->partitions.n; i++) {
            for (int32_t k = 0; k < i; k++) assert_int_not_equal(from->partitions.v[k].partition_index, from->partitions.v[i].partition_index);
            int16_t code = whole ? whole : cg_store(g, topic, &from->partitions.v[i]);
            g->parts++;
            if (g->skip) continue;
            to->partitions.v[to->partitions.n++] =
                (struct kw_offset_commit_response_partition){.partition_index = from->partitions.v[i].partition_index, .error_code = code};
        }
    }
    if (g->lose) {
        g->lose = false;
        link_lost(rq->link, KW_EIO, "reset");
        return;
    }
    if (!g->hold) {
        net_answer(rq, &m);
        return;
    }
    g->has_held = true;
    g->held = *rq;
    g->held_conn = rq->link->conn;
    kw_out_init(&g->held_answer);
    assert_int_equal(kw_frame_response(&g->held_answer, rq->head.api, rq->head.version, rq->head.correlation_id, &m), KW_OK);
}

/* The answer that was held back goes, if its connection is still there. */
static inline void cg_release(struct cg *g) {
    g->hold = false;
    if (!g->has_held) return;
    if (g->held.link->conn == g->held_conn) link_feed(g->held.link, g->held_answer.p, g->held_answer.len);
    cg_drop_held(g);
}

static inline void cg_fetched_part(struct cg *g, int topic, int32_t partition, int16_t code, struct kw_offset_fetch_response_partitions *to) {
    const struct cg_stored *s = topic >= 0 && partition < CW_PARTS ? &g->stored[topic][partition] : NULL;
    *to = (struct kw_offset_fetch_response_partitions){
        .partition_index = partition, .committed_offset = -1, .committed_leader_epoch = -1, .metadata = kw_str_of(""), .error_code = code};
    if (!s || !s->present || code) return;
    to->committed_offset = s->offset;
    to->committed_leader_epoch = s->epoch;
    to->metadata = (struct kw_str){s->metadata, s->metadata_len};
}

static inline void cg_answer_fetch(struct cg *g, struct request *rq) {
    struct net *n = g->w->net;
    struct kw_offset_fetch_request q;
    struct kw_offset_fetch_response m;
    kw_arena_reset(&n->arena);
    request_decode(n, rq, &kw_offset_fetch_request_desc, &q);
    assert_int_equal(kw_in_left(&rq->body), 0);
    g->fetches++;
    g->fetch_version = rq->head.version;
    g->stable = q.require_stable;
    g->fetch_parts = 0;
    if (g->mute) return;
    int16_t code = KE_NONE;
    if (g->fetch_codes > 0) {
        g->fetch_codes--;
        code = g->fetch_code;
    } else if (net_broker_at(n, rq->link->host, rq->link->port)->id != g->node) {
        code = KE_NOT_COORDINATOR;
    }
    int16_t whole = g->fetch_of_part || rq->head.version < 2 ? KE_NONE : code;
    kw_msg_init(&kw_offset_fetch_response_desc, &m);
    bool grouped = rq->head.version >= 8;
    if (grouped) {
        assert_int_equal(q.groups.n, 1);
        assert_true(kw_str_eq(q.groups.v[0].group_id, kw_str_of("g")));
        assert_int_equal(q.groups.v[0].member_epoch, -1);
    } else {
        assert_true(kw_str_eq(q.group_id, kw_str_of("g")));
    }
    int32_t count = grouped ? q.groups.v[0].topics.n : q.topics.n;
    struct kw_offset_fetch_response_group *gr = net_calloc(n, 1, sizeof *gr);
    gr->group_id = kw_str_of("g");
    gr->topics.v = net_calloc(n, (size_t)count + 1, sizeof *gr->topics.v);
    m.topics.v = net_calloc(n, (size_t)count + 1, sizeof *m.topics.v);
    for (int32_t t = 0; t < count; t++) {
        struct kw_str name = grouped ? q.groups.v[0].topics.v[t].name : q.topics.v[t].name;
        struct kw_uuid id = grouped ? q.groups.v[0].topics.v[t].topic_id : (struct kw_uuid){{0}};
        const struct kw_array *from = grouped ? (const void *)&q.groups.v[0].topics.v[t].partition_indexes : (const void *)&q.topics.v[t].partition_indexes;
        int topic = rq->head.version >= 10 ? topic_by_id(n, id) : topic_by_name(n, name);
        struct kw_offset_fetch_response_topics *to = &gr->topics.v[gr->topics.n++];
        struct kw_offset_fetch_response_topic *old = &m.topics.v[m.topics.n++];
        to->name = old->name = name;
        to->topic_id = id;
        to->partitions.v = net_calloc(n, (size_t)from->n + 1, sizeof *to->partitions.v);
        old->partitions.v = net_calloc(n, (size_t)from->n + 1, sizeof *old->partitions.v);
        for (int32_t i = 0; i < from->n; i++) {
            struct kw_offset_fetch_response_partitions p;
            cg_fetched_part(g, topic, ((int32_t *)from->v)[i], whole ? KE_NONE : code, &p);
            g->fetch_parts++;
            if (g->skip) continue;
            to->partitions.v[to->partitions.n++] = p;
            old->partitions.v[old->partitions.n++] = (struct kw_offset_fetch_response_partition){
                p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code};
        }
    }
    gr->error_code = whole;
    if (grouped) {
        m.topics.n = 0;
        m.groups.v = gr;
        m.groups.n = 1;
    } else {
        m.error_code = whole;
    }
    net_answer(rq, &m);
}

static inline bool cg_before(struct cw *w, struct request *rq) {
    struct cg *g = cg_of(w);
    struct model_broker *b = net_broker_at(w->net, rq->link->host, rq->link->port);
    if (b && b->silent) return false;
    if (g->has_held && g->held.link == rq->link && g->held_conn == rq->link->conn) cg_release(g); /* answers come in order */
    switch (rq->head.api_key) {
    case KW_API_FIND_COORDINATOR: cg_answer_find(g, rq); return true;
    case KW_API_OFFSET_COMMIT: cg_answer_commit(g, rq); return true;
    case KW_API_OFFSET_FETCH: cg_answer_fetch(g, rq); return true;
    default: return false;
    }
}

static inline void cg_refused(void *ctx, const struct kc_commit_member *as, kc_err err) {
    struct cg *g = ctx;
    (void)as;
    g->refusals++;
    g->refused = err;
    if (g->on_refused) g->on_refused(g, err);
}

/* Brokers b0 (1, leads) and b1 (2, coordinates); topic t of four partitions; nothing committed. */
static inline struct cg *cg_new(kc_processed_mode mode, const char *const *pairs) {
    struct cg *g = calloc(1, sizeof *g);
    g->w = cw_new(pairs);
    g->w->ctx = g;
    g->w->before = cg_before;
    g->node = 2;
    net_broker(g->w->net, 2, "b1", 9092);
    cw_topic(g->w, "t", 4, 1);
    struct kc_commits_options o = {.consume = &g->w->c, .group_id = kw_str_of("g"), .mode = mode, .refused = cg_refused, .ctx = g};
    assert_int_equal(kc_commits_new(&o, &g->m), KW_OK);
    kc_commits_start(g->m);
    return g;
}
static inline void cg_free(struct cg *g) {
    cg_release(g);
    cw_free(g->w);
    free(g);
}
static inline int64_t cg_stored(const struct cg *g, int32_t partition) {
    return g->stored[0][partition].present ? g->stored[0][partition].offset : -1;
}
static inline void cg_put(struct cg *g, int32_t partition, int64_t offset, int32_t epoch) {
    g->stored[0][partition] = (struct cg_stored){.present = true, .offset = offset, .epoch = epoch};
}

/* As kc_consumer_poll takes: with what came before gone past. What is kept of it until the next. */
static inline int32_t cg_poll(struct cg *g) {
    kc_consume_passed(&g->w->c);
    return cw_take(g->w);
}
/* Until so many records of the partition came, in turns of a millisecond. */
static inline void cg_poll_until(struct cg *g, int32_t partition, int n) {
    for (int i = 0; cw_count(g->w, KC_EVENT_RECORDS, partition) < n; i++) {
        assert_true(i < 20000);
        if (!cg_poll(g)) cw_advance(g->w, 1000);
    }
}

/* ---- Calls ---- */

struct ct { /* one kc_consumer_commit */
    struct kc_commit_call call;
    struct kc_commit_item items[CG_ITEMS];
    int done;
    struct ct *then; /* begun from inside done */
    struct cg *g;
};
static inline void ct_done(struct kc_commit_call *call) {
    struct ct *c = call->ctx;
    c->done++;
    if (c->then) kc_commits_call(c->g->m, &c->then->call);
}
static inline void ct_init(struct ct *c, struct cg *g, int64_t timeout_us) {
    memset(c, 0, sizeof *c);
    c->g = g;
    c->call.items = c->items;
    c->call.deadline_us = timeout_us < 0 ? KW_NEVER : g->w->net->now.mono_us + timeout_us;
    c->call.done = ct_done;
    c->call.ctx = c;
}
static inline struct kc_commit_item *ct_add(struct ct *c, int32_t partition, int64_t offset, const char *metadata) {
    struct kc_commit_item *it = &c->items[c->call.count++];
    it->at = (kc_offset){.topic = c->g->w->topic[0], .partition = partition, .offset = offset, .metadata = {metadata, metadata ? strlen(metadata) : 0}};
    return it;
}
static inline void ct_begin(struct ct *c) {
    kc_commits_stamp(c->g->m, c->items, c->call.count);
    kc_commits_call(c->g->m, &c->call);
}
static inline void ct_commit(struct ct *c, struct cg *g, int32_t partition, int64_t offset) { /* without a limit */
    ct_init(c, g, -1);
    (void)ct_add(c, partition, offset, NULL);
    ct_begin(c);
}
static inline void ct_end(struct ct *c) {
    assert_int_equal(c->done, 1);
    kc_attempts_unref(c->call.attempts);
    c->call.attempts = NULL;
}
static inline void ct_expect(struct ct *c, kc_err err) { /* of its only item */
    ct_end(c);
    assert_int_equal(c->items[0].at.err, err);
}

struct cq { /* one kc_consumer_committed */
    struct kc_committed_query q;
    struct kc_committed_item items[CG_ITEMS];
    int done;
};
static inline void cq_done(struct kc_committed_query *q) {
    ((struct cq *)q->ctx)->done++;
}
static inline void cq_init(struct cq *c, struct cg *g, int64_t timeout_us) {
    memset(c, 0, sizeof *c);
    c->q.items = c->items;
    c->q.deadline_us = timeout_us < 0 ? KW_NEVER : g->w->net->now.mono_us + timeout_us;
    c->q.done = cq_done;
    c->q.ctx = c;
}
static inline void cq_add(struct cq *c, int32_t topic, int32_t partition) {
    c->items[c->q.count++].at = (kc_offset){.topic = topic, .partition = partition, .offset = -1};
}
static inline void cq_free(struct cq *c) {
    assert_int_equal(c->done, 1);
    for (size_t i = 0; i < c->q.count; i++) kw_free(c->items[i].metadata);
    kc_attempts_unref(c->q.attempts);
}

#endif
