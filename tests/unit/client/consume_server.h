/* consume_server.h - a broker for tests of a consumer on real sockets, and a consumer of it: server.h's, with a hook: topic t of three partitions
 * with records "PARTITION/OFFSET", in batches of 50, long polls held back until something comes. One a process at a time.
 */
#ifndef TESTS_CLIENT_CONSUME_SERVER_H
#define TESTS_CLIENT_CONSUME_SERVER_H

#include "server.h"

#include <kclient/consumer.h>
#include <kclient/kclient.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "wire/batch.h"
#include "wire/kerror.h"

enum { PARTS = 3, HELD = 16, BATCH = 50 };
#define PAIRS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define LONG_US 20000000 /* more than anything here takes */

/* ---- The broker ---- */

struct held { /* a fetch that found nothing */
    struct server_conn *conn;
    int fd;
    struct kw_frame_request head;
    int64_t until_us;
    int64_t offsets[PARTS]; /* asked for; -1: not */
};
static struct {
    _Atomic int64_t ends[PARTS];
    _Atomic int fetches, lists, held_count;
    _Atomic bool frozen; /* takes requests and says nothing, as a stopped process does */
    struct held held[HELD];
    struct kw_arena arena;
} peer; /* but for the atomics the server thread's */

static inline int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static inline uint8_t *batch_at(int32_t partition, int64_t base, int32_t n, size_t *size) {
    uint8_t *p = kw_arena_alloc(&peer.arena, KW_BATCH_HEADER_SIZE + (size_t)n * 64), *at = p + KW_BATCH_HEADER_SIZE;
    for (int32_t i = 0; i < n; i++) {
        char value[32];
        int len = snprintf(value, sizeof value, "%d/%lld", (int)partition, (long long)base + i);
        struct kw_header_view h = {.key = {"h", 1}, .value = {(const uint8_t *)value, len}};
        struct kw_record_in r = {.timestamp_delta = i,
                                 .offset_delta = i,
                                 .key = {NULL, -1},
                                 .value = {(const uint8_t *)value, len},
                                 .headers = &h,
                                 .header_count = 1};
        at = kw_record_write(at, &r, kw_record_size(&r));
    }
    *size = (size_t)(at - p);
    struct kw_batch_header h = {.base_offset = base,
                                .length = (int32_t)(*size - KW_BATCH_OVERHEAD),
                                .magic = 2,
                                .last_offset_delta = n - 1,
                                .base_timestamp = 1000,
                                .max_timestamp = 1000 + n,
                                .producer_id = -1,
                                .producer_epoch = -1,
                                .base_sequence = -1,
                                .record_count = n};
    kw_batch_write_header(p, &h);
    kw_batch_crc_set(p, *size);
    return p;
}

/* Answers when there is something, or `now`. */
static inline bool fetch_answer(struct server_conn *c, struct kw_frame_request *h, const int64_t *offsets, bool now) {
    struct kw_fetch_response m;
    struct kw_fetch_response_partition_data d[PARTS];
    struct kw_fetch_response_fetchable_topic_response t = {.topic = kw_str_of("t"), .topic_id = {{9}}, .partitions.v = d};
    bool any = false;
    kw_arena_reset(&peer.arena);
    for (int32_t p = 0; p < PARTS; p++) {
        if (offsets[p] < 0) continue;
        int64_t end = atomic_load(&peer.ends[p]);
        struct kw_fetch_response_partition_data *x = &d[t.partitions.n++];
        *x = (struct kw_fetch_response_partition_data){.partition_index = p,
                                                       .error_code = offsets[p] > end ? KE_OFFSET_OUT_OF_RANGE : KE_NONE,
                                                       .high_watermark = end,
                                                       .last_stable_offset = end,
                                                       .preferred_read_replica = -1,
                                                       .diverging_epoch = {-1, -1},
                                                       .current_leader = {-1, -1},
                                                       .snapshot_id = {-1, -1},
                                                       .aborted_transactions.n = -1};
        any |= offsets[p] != end;
        if (offsets[p] >= end) continue;
        size_t size;
        int64_t base = offsets[p] / BATCH * BATCH; /* a broker gives whole batches */
        const uint8_t *bytes = batch_at(p, base, (int32_t)(KW_MIN(base + BATCH, end) - base), &size);
        x->records = (struct kw_records){bytes, (int32_t)size, NULL};
    }
    if (!any && !now) return false;
    kw_msg_init(&kw_fetch_response_desc, &m);
    m.responses.v = &t;
    m.responses.n = 1;
    server_reply(c, h, &m);
    return true;
}

static inline void fetch(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_fetch_request q;
    int64_t offsets[PARTS] = {-1, -1, -1};
    kw_arena_reset(&peer.arena);
    if (kw_decode(&kw_fetch_request_desc, h->version, body, &peer.arena, &q) != KW_OK) abort();
    for (int32_t i = 0; i < q.topics.n; i++)
        for (int32_t k = 0; k < q.topics.v[i].partitions.n; k++)
            offsets[q.topics.v[i].partitions.v[k].partition] = q.topics.v[i].partitions.v[k].fetch_offset;
    atomic_fetch_add(&peer.fetches, 1);
    if (fetch_answer(c, h, offsets, q.max_wait_ms == 0)) return;
    for (int i = 0; i < HELD; i++) {
        struct held *w = &peer.held[i];
        if (w->conn) continue;
        *w = (struct held){c, c->fd, *h, now_us() + (int64_t)q.max_wait_ms * 1000, {0}};
        memcpy(w->offsets, offsets, sizeof offsets);
        atomic_fetch_add(&peer.held_count, 1);
        return;
    }
    abort();
}

static inline void tick(struct server *s) {
    (void)s;
    for (int i = 0; i < HELD; i++) {
        struct held *w = &peer.held[i];
        if (!w->conn || (w->conn->fd == w->fd && atomic_load(&peer.frozen))) continue;
        if (w->conn->fd == w->fd && !fetch_answer(w->conn, &w->head, w->offsets, now_us() >= w->until_us)) continue;
        w->conn = NULL;
        atomic_fetch_sub(&peer.held_count, 1);
    }
}

static inline void metadata(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_metadata_request q;
    struct kw_metadata_response m;
    struct kw_metadata_response_broker b = {.node_id = 1, .host = kw_str_of("127.0.0.1"), .port = s->port, .rack = kw_str_null()};
    struct kw_metadata_response_partition parts[PARTS] = {{0}};
    struct kw_metadata_response_topic t = {.name = kw_str_of("t"), .topic_id = {{9}}, .topic_authorized_operations = INT32_MIN};
    kw_arena_reset(&peer.arena);
    if (kw_decode(&kw_metadata_request_desc, h->version, body, &peer.arena, &q) != KW_OK) abort();
    for (int32_t i = 0; i < PARTS; i++) parts[i] = (struct kw_metadata_response_partition){.partition_index = i, .leader_id = 1};
    t.partitions.v = parts;
    t.partitions.n = PARTS;
    kw_msg_init(&kw_metadata_response_desc, &m);
    m.brokers.v = &b;
    m.brokers.n = 1;
    m.controller_id = 1;
    m.topics.v = &t;
    m.topics.n = q.topics.n != 0;
    server_reply(c, h, &m);
}

/* The broker coordinates group "g" itself. */
static inline void find_coordinator(struct server *s, struct server_conn *c, struct kw_frame_request *h) {
    struct kw_find_coordinator_response m;
    struct kw_find_coordinator_response_coordinator one = {
        .key = kw_str_of("g"), .node_id = 1, .host = kw_str_of("127.0.0.1"), .port = s->port, .error_message = kw_str_null()};
    kw_msg_init(&kw_find_coordinator_response_desc, &m);
    m.coordinators.v = &one;
    m.coordinators.n = 1;
    server_reply(c, h, &m);
}

static inline void list_offsets(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_list_offsets_request q;
    struct kw_list_offsets_response m;
    struct kw_list_offsets_response_list_offsets_partition_response p[PARTS];
    struct kw_list_offsets_response_list_offsets_topic_response t = {.name = kw_str_of("t"), .partitions.v = p};
    kw_arena_reset(&peer.arena);
    if (kw_decode(&kw_list_offsets_request_desc, h->version, body, &peer.arena, &q) != KW_OK || q.topics.n != 1) abort();
    for (int32_t i = 0; i < q.topics.v[0].partitions.n; i++) {
        const struct kw_list_offsets_request_list_offsets_partition *a = &q.topics.v[0].partitions.v[i];
        p[t.partitions.n++] = (struct kw_list_offsets_response_list_offsets_partition_response){
            .partition_index = a->partition_index,
            .timestamp = -1,
            .offset = a->timestamp == -1 ? atomic_load(&peer.ends[a->partition_index]) : 0,
            .leader_epoch = -1};
    }
    kw_msg_init(&kw_list_offsets_response_desc, &m);
    m.topics.v = &t;
    m.topics.n = 1;
    atomic_fetch_add(&peer.lists, 1);
    server_reply(c, h, &m);
}

static server_hook more; /* the test's own, asked first; set before the server begins */

static inline bool hook(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    if (atomic_load(&peer.frozen)) return true;
    if (more && more(s, c, h, body)) return true;
    if (h->api_key == KW_API_METADATA)
        metadata(s, c, h, body);
    else if (h->api_key == KW_API_FETCH)
        fetch(c, h, body);
    else if (h->api_key == KW_API_LIST_OFFSETS)
        list_offsets(c, h, body);
    else
        return false;
    return true;
}

/* ---- A consumer of it ---- */

struct rig {
    struct server *server;
    kc_client *client;
    kc_consumer *consumer;
    int32_t topic;
    int64_t next[PARTS]; /* expected */
};

static const char *const *const modes[] = {NULL, PAIRS("client.thread", "none")};

static inline struct rig rig_new(const char *const *mode, const char *const *pairs) {
    struct rig r = {0};
    for (int p = 0; p < PARTS; p++) atomic_store(&peer.ends[p], 0);
    atomic_store(&peer.fetches, 0);
    atomic_store(&peer.lists, 0);
    atomic_store(&peer.frozen, false);
    r.server = server_new_with(hook);
    atomic_store(&r.server->tick, tick);
    kc_config *c = kc_config_new();
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%u", r.server->port);
    assert_int_equal(kc_config_set(c, "bootstrap.servers", address, NULL), KC_OK);
    for (; mode && mode[0]; mode += 2) assert_int_equal(kc_config_set(c, mode[0], mode[1], NULL), KC_OK);
    for (; pairs && pairs[0]; pairs += 2) assert_int_equal(kc_config_set(c, pairs[0], pairs[1], NULL), KC_OK);
    assert_int_equal(kc_client_new(c, &r.client, NULL), KC_OK);
    assert_int_equal(kc_consumer_new(r.client, NULL, KC_PROCESSED_BY_POLL, &r.consumer, NULL), KC_OK);
    kc_config_free(c);
    r.topic = kc_client_topic(r.client, "t");
    assert_true(r.topic > 0);
    return r;
}
static inline void rig_free(struct rig *r) {
    kc_consumer_free(r->consumer);
    kc_client_free(r->client);
    server_free(r->server);
    memset(peer.held, 0, sizeof peer.held);
    atomic_store(&peer.held_count, 0);
    kw_arena_deinit(&peer.arena);
    kw_arena_init(&peer.arena, 0);
}

static inline kc_topic_partition part(const struct rig *r, int32_t partition, int64_t offset) {
    return (kc_topic_partition){.topic = r->topic, .partition = partition, .offset = offset};
}
static inline void assign_all(struct rig *r, int64_t offset) {
    kc_topic_partition tp[PARTS];
    for (int32_t p = 0; p < PARTS; p++) {
        tp[p] = part(r, p, offset);
        r->next[p] = offset < 0 ? 0 : offset;
    }
    assert_int_equal(kc_consumer_assign(r->consumer, tp, sizeof tp[0], PARTS, NULL), KC_OK);
}
static inline void append(int32_t partition, int64_t n) {
    atomic_fetch_add(&peer.ends[partition], n);
}

static inline void check_message(struct rig *r, const kc_message *m, const kc_header *h, size_t headers) {
    char want[32];
    int len = snprintf(want, sizeof want, "%d/%lld", (int)m->partition, (long long)m->offset);
    assert_int_equal(m->topic, r->topic);
    assert_int_equal(m->offset, r->next[m->partition]);
    assert_int_equal(m->value.size, len);
    assert_memory_equal(m->value.p, want, (size_t)len);
    assert_null(m->key.p);
    assert_int_equal(headers, 1);
    assert_int_equal(h->value.size, len);
    assert_memory_equal(h->value.p, want, (size_t)len);
    r->next[m->partition]++;
}
static inline size_t check_event(struct rig *r, const kc_event *e) {
    assert_int_equal(kc_event_kind(e), KC_EVENT_RECORDS);
    for (size_t i = 0; i < kc_event_count(e); i++) {
        kc_message m;
        kc_header h;
        assert_int_equal(kc_event_message(e, i, &m), KC_OK);
        check_message(r, &m, &h, kc_event_headers(e, i, &h, sizeof h, 1));
    }
    return kc_event_count(e);
}

/* Polls until `n` records came, by batches or one by one. */
static inline void read_batches(struct rig *r, size_t n) {
    while (n > 0) {
        kc_event *e = NULL;
        assert_int_equal(kc_consumer_poll(r->consumer, &e, LONG_US), KC_OK);
        size_t got = check_event(r, e);
        assert_true(got <= n);
        n -= got;
        kc_event_free(e);
    }
}
static inline void read_one(struct rig *r) {
    kc_message m;
    kc_header h;
    kc_event *e = NULL;
    assert_int_equal(kc_consumer_poll_one(r->consumer, &m, &e, LONG_US), KC_OK);
    assert_null(e);
    check_message(r, &m, &h, kc_consumer_headers(r->consumer, &h, sizeof h, 1));
}
/* All is read, and a fetch waits at the broker. */
static inline void until_a_fetch_waits(struct rig *r) {
    kc_event *e = NULL;
    while (atomic_load(&peer.held_count) == 0) assert_int_equal(kc_consumer_poll(r->consumer, &e, 1000), KC_TIMED_OUT);
}
static inline void nothing_left(struct rig *r) {
    kc_event *e = NULL;
    kc_message m;
    assert_int_equal(kc_consumer_poll(r->consumer, &e, 50000), KC_TIMED_OUT);
    assert_int_equal(kc_consumer_poll_one(r->consumer, &m, &e, 50000), KC_TIMED_OUT);
    for (int p = 0; p < PARTS; p++) assert_int_equal(r->next[p], atomic_load(&peer.ends[p]));
}

#endif
