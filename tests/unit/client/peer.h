/* peer.h - a shell for unit tests of the client's core: virtual time, no sockets, and brokers that do what the test says.
 *
 * A test makes a net, describes brokers and topics, and advances the clock; requests are answered by the test's hook, or by the default
 * broker (ApiVersions and Metadata from the description). Everything is deterministic.
 */
#ifndef TESTS_CLIENT_PEER_H
#define TESTS_CLIENT_PEER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/core.h"
#include "kw_messages.h"

/* Settings of one test: names and values in turn. */
#define PAIRS(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { NET_LINKS = 4096, NET_BROKERS = 8, NET_TOPICS = 8, NET_PARTITIONS = 8, NET_LOG = 64 };

struct net;
struct link { /* one connection, as the peer sees it */
    struct net *net;
    struct kc_conn *conn; /* NULL once closed */
    char host[64];
    int port;
    int address;      /* which of the resolved ones */
    bool up, pending; /* pending: connecting or resolving, held back by the test */
    uint8_t *bytes;   /* written by the client, not yet taken */
    size_t len, cap;
    uint64_t written;
};
struct model_broker {
    int32_t id;
    const char *host;
    int port;
    bool refuses, hangs, silent; /* hangs: a connection attempt gets no answer; silent: requests get none */
    uint32_t hanging_addresses;  /* a bit for each */
};
struct model_topic {
    const char *name;
    struct kw_uuid id;
    int16_t err;
    int32_t partitions;
    int32_t leader[NET_PARTITIONS], epoch[NET_PARTITIONS];
    int16_t partition_err[NET_PARTITIONS];
};
struct request {
    struct link *link;
    struct kw_frame_request head;
    struct kw_in body;
};
struct net {
    struct kc_core *core;
    struct kc_settings *settings;
    struct kc_config *config;
    struct kc_now now;
    struct link links[NET_LINKS];
    size_t link_count, opened, closed;
    struct model_broker brokers[NET_BROKERS];
    size_t broker_count;
    int32_t controller;
    struct model_topic topics[NET_TOPICS];
    size_t topic_count;
    int addresses;                                   /* how many a name resolves to; 0: none */
    size_t write_max, read_max;                      /* bytes a turn, 0 no limit */
    bool hold_writes;                                /* the socket is full */
    bool (*hook)(struct net *n, struct request *rq); /* true: handled */
    void *ctx;
    int16_t api_max[128], api_min[128]; /* what ApiVersions advertises; -1 not there */
    int32_t throttle_ms;
    int requests[128]; /* counted by API key */
    bool looks_ids_up; /* it advertises LookupGuid, whose key is beyond those arrays */
    char log[NET_LOG][512];
    int log_level[NET_LOG];
    size_t log_count;
    uint64_t ticks;
    struct kw_arena arena;
};

static inline void net_log(void *ctx, int level, const char *text) {
    struct net *n = ctx;
    n->log_level[n->log_count % NET_LOG] = level;
    snprintf(n->log[n->log_count++ % NET_LOG], sizeof n->log[0], "%s", text);
    if (getenv("PEER_LOG")) fprintf(stderr, "%10.3f %d %s\n", (double)n->now.mono_us / 1e6, level, text);
}

static inline bool net_logged(const struct net *n, int level, const char *part) {
    for (size_t i = 0; i < n->log_count && i < NET_LOG; i++) {
        if (n->log_level[i] == level && strstr(n->log[i], part)) return true;
    }
    return false;
}

/* pairs: name, value, …, NULL. Without bootstrap.servers: b0:9092. */
static inline struct net *net_new(const char *const *pairs) {
    struct net *n = calloc(1, sizeof *n);
    kc_error *e = NULL;
    n->config = kc_config_new();
    assert_int_equal(kc_config_set(n->config, "bootstrap.servers", "b0:9092", &e), KC_OK);
    assert_int_equal(kc_config_set(n->config, "log_level", "7", &e), KC_OK);
    for (; pairs && pairs[0]; pairs += 2) assert_int_equal(kc_config_set(n->config, pairs[0], pairs[1], &e), KC_OK);
    assert_int_equal(kc_settings_new(n->config, NULL, &n->settings, &e), KC_OK);
    n->now = (struct kc_now){1000000000, 1700000000000};
    n->addresses = 1;
    n->controller = 1;
    kw_arena_init(&n->arena, 0);
    for (size_t i = 0; i < 128; i++) n->api_max[i] = -1;
    for (size_t i = 0; i < kw_api_count; i++) {
        if (kw_apis[i].key >= 128) continue;
        n->api_min[kw_apis[i].key] = kw_apis[i].min;
        n->api_max[kw_apis[i].key] = kw_apis[i].max;
    }
    struct kc_core_options o = {.settings = n->settings, .seed = 1, .now = n->now, .log = net_log, .ctx = n};
    assert_int_equal(kc_core_new(&o, &n->core), KW_OK);
    return n;
}

static inline struct model_broker *net_broker(struct net *n, int32_t id, const char *host, int port) {
    n->brokers[n->broker_count] = (struct model_broker){.id = id, .host = host, .port = port};
    return &n->brokers[n->broker_count++];
}

static inline struct model_topic *net_topic(struct net *n, const char *name, uint8_t id, int32_t partitions, int32_t leader) {
    struct model_topic *t = &n->topics[n->topic_count++];
    *t = (struct model_topic){.name = name, .partitions = partitions};
    t->id.b[0] = id;
    for (int i = 0; i < NET_PARTITIONS; i++) t->leader[i] = leader;
    return t;
}

static inline struct model_broker *net_broker_at(struct net *n, const char *host, int port) {
    for (size_t i = 0; i < n->broker_count; i++) {
        if (n->brokers[i].port == port && strcmp(n->brokers[i].host, host) == 0) return &n->brokers[i];
    }
    return NULL;
}

/* ---- Connections ---- */

static inline void link_lost(struct link *l, kw_err err, const char *text) {
    struct kc_conn *c = l->conn;
    if (!c) return;
    l->conn = NULL;
    l->up = l->pending = false;
    l->len = 0;
    l->net->closed++;
    kc_conn_closed(c, err, text, l->net->now);
}

static inline struct link *link_of(struct net *n, struct kc_conn *c) {
    struct link *l = kc_conn_shell(c);
    if (l) return l;
    assert_true(n->link_count < NET_LINKS);
    l = &n->links[n->link_count++];
    *l = (struct link){.net = n, .conn = c, .port = kc_conn_port(c), .pending = true};
    snprintf(l->host, sizeof l->host, "%s", kc_conn_host(c));
    kc_conn_shell_set(c, l);
    n->opened++;
    return l;
}

/* How many bytes the client took. */
static inline size_t link_feed(struct link *l, const void *p, size_t size) {
    const uint8_t *at = p;
    size_t all = size;
    while (size > 0 && l->conn) {
        uint8_t *buf;
        size_t room;
        kc_conn_recv_buf(l->conn, &buf, &room);
        if (room == 0) break;
        size_t k = room < size ? room : size;
        if (l->net->read_max && k > l->net->read_max) k = l->net->read_max;
        memcpy(buf, at, k);
        at += k;
        size -= k;
        kc_conn_received(l->conn, k, l->net->now);
    }
    return all - size;
}

static inline void *net_calloc(struct net *n, size_t count, size_t size) {
    void *p = kw_arena_calloc(&n->arena, count, size);
    return p ? p : kw_arena_calloc(&n->arena, count, size);
}

/* The answer to a request, encoded in its version. */
static inline void net_answer(struct request *rq, const void *msg) {
    struct kw_out out;
    kw_out_init(&out);
    /* An allocation failure that the test planned may hit us instead of the client: it happens once. */
    kw_err err = kw_frame_response(&out, rq->head.api, rq->head.version, rq->head.correlation_id, msg);
    if (err == KW_ENOMEM) err = kw_frame_response(&out, rq->head.api, rq->head.version, rq->head.correlation_id, msg);
    assert_int_equal(err, KW_OK);
    link_feed(rq->link, out.p, out.len);
    kw_out_deinit(&out);
}

/* ---- The default broker ---- */

static inline void answer_versions(struct net *n, struct request *rq) {
    struct kw_api_versions_response m;
    struct kw_api_versions_response_api_version keys[129];
    kw_msg_init(&kw_api_versions_response_desc, &m);
    m.api_keys.v = keys;
    for (int16_t i = 0; i < 128; i++) {
        if (n->api_max[i] < 0) continue;
        keys[m.api_keys.n++] =
            (struct kw_api_versions_response_api_version){.api_key = i, .min_version = n->api_min[i], .max_version = n->api_max[i]};
    }
    if (n->looks_ids_up) keys[m.api_keys.n++] = (struct kw_api_versions_response_api_version){.api_key = KW_API_LOOKUP_GUID};
    if (rq->head.version > n->api_max[18]) {
        m.error_code = KE_UNSUPPORTED_VERSION;
        rq->head.version = 0;
    }
    net_answer(rq, &m);
}

static inline void fill_topic(struct net *n, struct kw_metadata_response_topic *t, struct kw_str name) {
    *t = (struct kw_metadata_response_topic){
        .name = name, .error_code = KE_UNKNOWN_TOPIC_OR_PARTITION, .topic_authorized_operations = INT32_MIN};
    for (size_t i = 0; i < n->topic_count; i++) {
        struct model_topic *m = &n->topics[i];
        if (!kw_str_eq(kw_str_of(m->name), name)) continue;
        t->error_code = m->err;
        if (m->err) return;
        t->topic_id = m->id;
        t->partitions.v = net_calloc(n, (size_t)m->partitions, sizeof *t->partitions.v);
        for (int32_t k = 0; k < m->partitions; k++) {
            struct kw_metadata_response_partition *p = &t->partitions.v[t->partitions.n++];
            *p = (struct kw_metadata_response_partition){
                .partition_index = k, .leader_id = m->leader[k], .leader_epoch = m->epoch[k], .error_code = m->partition_err[k]};
        }
    }
}

/* Builds the default metadata answer to what was asked; the test may change it before it is sent. */
static inline void fill_metadata(struct net *n, struct request *rq, struct kw_metadata_response *m) {
    struct kw_metadata_request q;
    kw_arena_reset(&n->arena);
    struct kw_in again = rq->body;
    kw_err err = kw_decode(&kw_metadata_request_desc, rq->head.version, &rq->body, &n->arena, &q);
    if (err == KW_ENOMEM) {
        rq->body = again;
        err = kw_decode(&kw_metadata_request_desc, rq->head.version, &rq->body, &n->arena, &q);
    }
    assert_int_equal(err, KW_OK);
    assert_int_equal(kw_in_left(&rq->body), 0);
    kw_msg_init(&kw_metadata_response_desc, m);
    m->throttle_time_ms = n->throttle_ms;
    m->cluster_id = kw_str_of("cluster");
    m->controller_id = n->controller;
    m->brokers.v = net_calloc(n, n->broker_count + 1, sizeof *m->brokers.v);
    for (size_t i = 0; i < n->broker_count; i++) {
        if (n->brokers[i].id < 0) continue; /* a bootstrap address alone */
        struct kw_metadata_response_broker *b = &m->brokers.v[m->brokers.n++];
        *b = (struct kw_metadata_response_broker){
            .node_id = n->brokers[i].id, .host = kw_str_of(n->brokers[i].host), .port = n->brokers[i].port, .rack = kw_str_null()};
    }
    int32_t count = q.topics.n < 0 ? 0 : q.topics.n;
    m->topics.v = net_calloc(n, (size_t)count + 1, sizeof *m->topics.v);
    for (int32_t i = 0; i < count; i++) fill_topic(n, &m->topics.v[m->topics.n++], q.topics.v[i].name);
}

static inline void answer_metadata(struct net *n, struct request *rq) {
    struct kw_metadata_response m;
    fill_metadata(n, rq, &m);
    net_answer(rq, &m);
}

static inline void net_serve(struct net *n, struct request *rq) {
    if (rq->head.api_key < 128) n->requests[rq->head.api_key]++;
    if (n->hook && n->hook(n, rq)) return;
    struct model_broker *b = net_broker_at(n, rq->link->host, rq->link->port);
    if (b && b->silent) return;
    if (rq->head.api_key == KW_API_API_VERSIONS)
        answer_versions(n, rq);
    else if (rq->head.api_key == KW_API_METADATA)
        answer_metadata(n, rq);
}

/* Takes one request off what the client wrote. An ApiVersions request of an unknown version still has its key and id. */
static inline bool link_take(struct link *l, struct request *rq, uint8_t **frame) {
    if (l->len < 4 || l->len < 4 + (size_t)kw_load32(l->bytes)) return false;
    size_t size = kw_load32(l->bytes);
    *frame = malloc(size ? size : 1);
    memcpy(*frame, l->bytes + 4, size);
    memmove(l->bytes, l->bytes + 4 + size, l->len - 4 - size);
    l->len -= 4 + size;
    rq->link = l;
    kw_in_init(&rq->body, *frame, size);
    kw_err err = kw_frame_parse_request(&rq->body, &rq->head);
    assert_int_equal(err, KW_OK);
    return true;
}

/* ---- Turns ---- */

static inline void act_resolve(struct net *n, struct link *l) {
    struct kc_address a[8] = {0};
    for (int i = 0; i < n->addresses; i++) {
        a[i].size = 1;
        a[i].bytes[0] = (uint8_t)i;
    }
    kc_conn_resolved(l->conn, a, (size_t)n->addresses, n->addresses ? NULL : "no such name", n->now);
}

static inline void act_connect(struct net *n, struct link *l) {
    struct model_broker *b = net_broker_at(n, l->host, l->port);
    l->address = kc_conn_address(l->conn)->bytes[0];
    if (b && (b->hangs || (b->hanging_addresses >> l->address & 1))) return;
    if (!b || b->refuses) {
        kc_conn_connected(l->conn, KW_EIO, "connection refused", n->now);
        return;
    }
    l->up = true;
    l->pending = false;
    kc_conn_connected(l->conn, KW_OK, NULL, n->now);
}

static inline void act_write(struct net *n, struct link *l) {
    struct kc_iov iov[16];
    size_t count;
    size_t room = n->write_max ? n->write_max : SIZE_MAX;
    while (!n->hold_writes && l->conn && room > 0 && (count = kc_conn_out(l->conn, iov, 16)) > 0) {
        size_t k = iov[0].len < room ? iov[0].len : room;
        if (l->len + k > l->cap) {
            l->cap = (l->len + k) * 2;
            l->bytes = realloc(l->bytes, l->cap);
        }
        memcpy(l->bytes + l->len, iov[0].p, k);
        l->len += k;
        l->written += k;
        if (room != SIZE_MAX) room -= k;
        kc_conn_written(l->conn, k, n->now);
    }
}

static inline void net_act(struct net *n, struct kc_conn *c, uint32_t wants) {
    struct link *l = link_of(n, c);
    if (wants & KC_WANT_CLOSE) {
        link_lost(l, KW_OK, NULL);
        return;
    }
    if (wants & KC_WANT_RESOLVE) act_resolve(n, l);
    if (wants & KC_WANT_CONNECT) act_connect(n, l);
    if (wants & KC_WANT_WRITE) act_write(n, l);
}

/* One turn at the present time: actions, answers, until nothing more is due. */
static inline void net_turn(struct net *n) {
    for (int i = 0; i < 1000; i++) {
        kc_core_tick(n->core, n->now);
        n->ticks++;
        struct kc_conn *c;
        uint32_t wants;
        bool any = false;
        for (int k = 0; k < 1000 && (c = kc_core_next_action(n->core, &wants)); k++) {
            net_act(n, c, wants);
            any = true;
        }
        for (size_t k = 0; k < n->link_count; k++) {
            struct request rq;
            uint8_t *frame;
            while (n->links[k].conn && link_take(&n->links[k], &rq, &frame)) {
                net_serve(n, &rq);
                free(frame);
                any = true;
            }
        }
        if (!any && kc_core_deadline(n->core) > n->now.mono_us) return;
        if (n->hold_writes && !any) return;
    }
    fail_msg("the core never comes to rest at one moment");
}

/* Runs the clock forward, stopping at every deadline of the core. */
static inline void net_advance(struct net *n, int64_t us) {
    int64_t end = n->now.mono_us + us;
    net_turn(n);
    for (;;) {
        int64_t next = kc_core_deadline(n->core);
        if (next > end) break;
        assert_true(next > n->now.mono_us);
        n->now.wall_ms += (next - n->now.mono_us) / 1000;
        n->now.mono_us = next;
        net_turn(n);
    }
    n->now.wall_ms += (end - n->now.mono_us) / 1000;
    n->now.mono_us = end;
    net_turn(n);
}

static inline size_t net_up(const struct net *n) {
    size_t up = 0;
    for (size_t i = 0; i < n->link_count; i++) up += n->links[i].up;
    return up;
}
/* The newest open connection to a host, or NULL. */
static inline struct link *net_link(struct net *n, const char *host) {
    for (size_t i = n->link_count; i-- > 0;) {
        if (n->links[i].up && strcmp(n->links[i].host, host) == 0) return &n->links[i];
    }
    return NULL;
}

static inline void net_free(struct net *n) {
    n->hold_writes = false;
    kc_core_stop(n->core, n->now);
    net_turn(n);
    assert_true(kc_core_stopped(n->core));
    assert_int_equal(n->opened, n->closed);
    kc_core_free(n->core);
    for (size_t i = 0; i < n->link_count; i++) free(n->links[i].bytes);
    kw_arena_deinit(&n->arena);
    kc_settings_free(n->settings);
    kc_config_free(n->config);
    free(n);
}

/* ---- A request of the test's own ---- */

struct call {
    struct kc_request rq;
    const void *msg;
    int done;
    kc_err err;
    struct kc_core *core;
    void (*then)(struct call *c, struct kw_in *body, struct kw_blk *blk);
    void *ctx;
};

static inline kw_err call_encode(struct kc_request *rq, struct kw_out *out) {
    struct call *c = KW_CONTAINER_OF(rq, struct call, rq);
    return kw_encode(rq->api->request, rq->version, c->msg, out);
}
static inline void call_done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct call *c = KW_CONTAINER_OF(rq, struct call, rq);
    c->done++;
    c->err = err;
    if (c->then) c->then(c, body, blk);
}
static inline void call_init(struct call *c, struct net *n, int16_t api, int32_t broker, const void *msg) {
    *c = (struct call){.msg = msg, .core = n->core};
    kc_request_init(&c->rq, api);
    c->rq.broker = broker;
    c->rq.encode = call_encode;
    c->rq.done = call_done;
}

/* Metadata of no topic: the smallest question that any broker answers. */
static inline void ask_call(struct call *c, struct net *n, int32_t broker) {
    static struct kw_metadata_request m;
    kw_msg_init(&kw_metadata_request_desc, &m);
    call_init(c, n, KW_API_METADATA, broker, &m);
}
/* A fetch of nothing from broker 1, on the lane for fetches, and what its broker does with it. */
static inline void fetch_call(struct call *c, struct net *n) {
    static struct kw_fetch_request m;
    kw_msg_init(&kw_fetch_request_desc, &m);
    call_init(c, n, KW_API_FETCH, 1, &m);
    c->rq.channel = KC_CHANNEL_FETCH;
}
static inline bool never_fetch(struct net *n, struct request *rq) {
    (void)n;
    return rq->head.api_key == KW_API_FETCH;
}
static inline bool answer_fetches(struct net *n, struct request *rq) {
    (void)n;
    if (rq->head.api_key != KW_API_FETCH) return false;
    struct kw_fetch_response m;
    kw_msg_init(&kw_fetch_response_desc, &m);
    net_answer(rq, &m);
    return true;
}
/* Broker 1 at b0:9092, with a connection to it, as the metadata has named it. */
static inline struct net *known_broker(const char *const *pairs) {
    struct net *n = net_new(pairs);
    net_broker(n, 1, "b0", 9092);
    kc_metadata_refresh(n->core, "test");
    net_turn(n);
    return n;
}

#endif
