/* node_rig.h - a whole node core on the simulated disk, in virtual time, with connections in memory: the shell of the node's tests. */
#ifndef NODE_RIG_H
#define NODE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "config.h"
#include "kw_messages.h"
#include "node_priv.h"
#include "replica/partition.h"
#include "sim_disk.h"
#include "wire/batch.h"

struct rig_conn {
    struct rig *rig;
    struct kb_conn *conn; /* NULL: closed */
    uint8_t *in;          /* what the node sent, not yet taken */
    size_t in_len, in_cap;
    bool stuck; /* the peer does not read: nothing is sent */
    struct rig_conn *next;
};
struct rig {
    struct sim_disk *disk;
    struct kb_config *config;
    struct kb_node *node;
    struct kb_now now;
    struct rig_conn *conns;
    struct kw_arena arena; /* decoded answers */
    char lines[16384];     /* what the node said at KB_WARN and above */
    const char *faults;
    bool ephemeral;
    const char *boot_id;
    struct kb_recorder recorder;
    int64_t ahead_ms; /* of a virtual clock that was advanced before the node starts */
    uint64_t seed;
};

static inline void rig_line(void *ctx, enum kb_level level, const char *text) {
    struct rig *r = ctx;
    if (getenv("RIG_LOG"))
        fprintf(stderr, "%10.6f node %d: [%d] %s\n", (double)r->now.mono_us / 1e6, (int)kb_config_int(r->config, "node.id"), (int)level, text);
    size_t n = strlen(r->lines);
    if (level >= KB_WARN) snprintf(r->lines + n, sizeof(r->lines) - n, "%s\n", text);
}

/* ---- Turns ---- */

static inline void rig_put(struct rig_conn *c, const void *p, size_t n) {
    if (c->in_len + n > c->in_cap) {
        c->in_cap = (c->in_len + n) * 2;
        c->in = realloc(c->in, c->in_cap);
        assert_non_null(c->in);
    }
    if (n > 0) memcpy(c->in + c->in_len, p, n);
    c->in_len += n;
}

static inline void rig_serve(struct rig *r, struct rig_conn *c) {
    struct kb_reply *reply;
    while (!c->stuck && (reply = kb_conn_take_reply(c->conn))) {
        size_t total = 0;
        for (size_t i = 0; i < reply->part_count; i++) {
            struct kb_part *p = &reply->parts[i];
            total += p->len;
            if (p->p) {
                rig_put(c, p->p, p->len);
                continue;
            }
            uint8_t *b = malloc(p->len);
            assert_int_equal(sim_disk_pread(r->disk, p->file, p->offset, b, p->len), p->len);
            rig_put(c, b, p->len);
            free(b);
        }
        assert_int_equal(total, reply->total);
        kb_reply_free(reply);
        kb_conn_sent(c->conn, total, r->now);
    }
    if (kb_conn_wants_close(c->conn)) {
        struct kb_conn *gone = c->conn;
        c->conn = NULL;
        kb_conn_closed(gone, r->now);
    }
}

/* One turn; true when anything happened. */
static inline bool rig_turn(struct rig *r) {
    bool any = false;
    kb_node_tick(r->node, r->now);
    sim_disk_take(r->disk, kb_node_disk(r->node), r->now);
    for (struct kb_disk_req *q; (q = sim_disk_pop(r->disk, r->now)); any = true) kb_node_disk_done(r->node, q, r->now);
    for (struct kb_conn *c; (c = kb_node_next_conn(r->node)); any = true) rig_serve(r, kb_conn_shell(c));
    return any;
}

/* Lets time pass until nothing is due before `until`; the disk is always waited for. */
static inline void rig_run(struct rig *r, int64_t until_us) {
    for (int i = 0; i < 1000000; i++) {
        if (rig_turn(r)) continue;
        int64_t disk = sim_disk_next(r->disk), next = KW_MIN(disk, kb_node_deadline(r->node));
        if (next > until_us && disk == KW_NEVER) break;
        if (next > until_us) next = disk;
        if (next > r->now.mono_us) {
            r->now.wall_ms += (next - r->now.mono_us + 999) / 1000;
            r->now.mono_us = next;
        }
    }
    if (until_us > r->now.mono_us) {
        r->now.wall_ms += (until_us - r->now.mono_us) / 1000;
        r->now.mono_us = until_us;
        kb_node_tick(r->node, r->now);
    }
}

static inline void rig_settle(struct rig *r) {
    rig_run(r, r->now.mono_us);
}
static inline void rig_pass(struct rig *r, int64_t us) {
    rig_run(r, r->now.mono_us + us);
}

/* ---- Life ---- */

static inline void rig_set(struct rig *r, const char *name, const char *value) {
    char text[400];
    if (kb_config_set(r->config, name, value, text, sizeof(text), NULL, NULL) != KW_OK) fail_msg("%s=%s: %s", name, value, text);
}

static inline void rig_init(struct rig *r, uint64_t seed) {
    memset(r, 0, sizeof(*r));
    r->seed = seed;
    r->disk = sim_disk_new(seed, NULL);
    sim_disk_poke(r->disk, "/data/.keep", "", 0);
    r->now = (struct kb_now){1000000, 1700000000000};
    kw_arena_init(&r->arena, 0);
    assert_int_equal(kb_config_new(&r->config), KW_OK);
    rig_set(r, "log.dirs", "/data");
}

/* A node that loads; its time is the caller's to pass. */
static inline void rig_load(struct rig *r) {
    struct kb_node_options o = {.config = r->config,
                                .seed = r->seed++,
                                .logger = {rig_line, r, KB_INFO},
                                .recorder = r->recorder,
                                .faults_json = r->faults,
                                .port = 9092,
                                .ephemeral = r->ephemeral,
                                .boot_id = r->boot_id,
                                .ahead_ms = r->ahead_ms};
    assert_int_equal(kb_node_new(&o, &r->node), KW_OK);
    assert_int_equal(kb_node_start(r->node, r->now), KW_OK);
}
/* One turn, or where nothing happens the time of the disk's next answer. */
static inline void rig_load_step(struct rig *r) {
    if (rig_turn(r)) return;
    int64_t next = sim_disk_next(r->disk);
    if (next != KW_NEVER && next > r->now.mono_us) r->now.mono_us = next;
}

static inline void rig_boot(struct rig *r) {
    rig_load(r);
    for (int i = 0; i < 1000 && kb_node_state(r->node) == KB_NODE_LOADING; i++) rig_pass(r, 1000);
}

static inline void rig_start(struct rig *r) {
    char text[400];
    if (kb_config_finish(r->config, text, sizeof(text)) != KW_OK) fail_msg("%s", text);
    rig_boot(r);
    if (kb_node_state(r->node) != KB_NODE_READY) fail_msg("not ready: %s", kb_node_failure(r->node));
}

static inline void rig_close_conns(struct rig *r) {
    for (struct rig_conn *c; (c = r->conns);) {
        r->conns = c->next;
        if (c->conn) kb_conn_closed(c->conn, r->now);
        free(c->in);
        free(c);
    }
}

static inline void rig_drain(struct rig *r) {
    for (int i = 0; i < 100000 && (kb_node_disk(r->node)->outstanding > 0 || sim_disk_next(r->disk) != KW_NEVER); i++) {
        sim_disk_take(r->disk, kb_node_disk(r->node), r->now);
        int64_t next = sim_disk_next(r->disk);
        if (next != KW_NEVER && next > r->now.mono_us) r->now.mono_us = next;
        for (struct kb_disk_req *q; (q = sim_disk_pop(r->disk, r->now));) kb_node_disk_done(r->node, q, r->now);
    }
}

static inline void rig_free_node(struct rig *r) {
    rig_close_conns(r);
    rig_drain(r);
    kb_node_drop(r->node);
    rig_drain(r);
    kb_node_free(r->node);
    r->node = NULL;
}

static inline void rig_stop(struct rig *r) {
    kb_node_stop(r->node, r->now);
    rig_settle(r);
    assert_int_equal(kb_node_state(r->node), KB_NODE_STOPPED);
    rig_free_node(r);
}

/* kill -9: what was written stays, nothing else is done. */
static inline void rig_kill(struct rig *r) {
    rig_close_conns(r);
    sim_disk_kill9(r->disk, r->now);
    rig_free_node(r);
    sim_disk_restart(r->disk);
}

static inline void rig_restart(struct rig *r) {
    rig_stop(r);
    rig_start(r);
}
static inline void rig_crash(struct rig *r) {
    rig_kill(r);
    rig_start(r);
}

static inline void rig_deinit(struct rig *r) {
    if (r->node) rig_stop(r);
    kb_config_free(r->config);
    sim_disk_free(r->disk);
    kw_arena_deinit(&r->arena);
}

/* ---- Connections ---- */

static inline struct rig_conn *rig_connect(struct rig *r) {
    struct rig_conn *c = calloc(1, sizeof(*c));
    struct kb_conn_info info = {.local_host = "127.0.0.1", .local_port = 9092, .peer = "127.0.0.1:50000"};
    c->rig = r;
    c->conn = kb_node_accept(r->node, &info, c, r->now);
    c->next = r->conns;
    r->conns = c;
    return c;
}

/* As much as the node wants to read; returns what it took. */
static inline size_t rig_send(struct rig_conn *c, const void *p, size_t n) {
    size_t sent = 0;
    while (c->conn && sent < n) {
        uint8_t *to;
        size_t room;
        kb_conn_recv_buf(c->conn, &to, &room);
        if (room == 0) {
            if (!rig_turn(c->rig)) break;
            continue;
        }
        size_t take = KW_MIN(room, n - sent);
        memcpy(to, (const uint8_t *)p + sent, take);
        sent += take;
        kb_conn_received(c->conn, take, c->rig->now);
        if (take == n - sent) continue;
        while (c->conn && kb_conn_wants_close(c->conn)) rig_turn(c->rig);
    }
    return sent;
}

static inline void rig_request(struct rig_conn *c, int16_t key, int16_t version, int32_t correlation_id, const void *msg) {
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kw_frame_request(&out, kw_api_by_key(key), version, correlation_id, kw_str_of("rig"), msg), KW_OK);
    assert_int_equal(rig_send(c, out.p, out.len), out.len);
    kw_out_deinit(&out);
}

/* The next whole answer, as it lies in c->in: its bytes without the length; NULL: none yet. Freed by the arena. */
static inline const uint8_t *rig_frame(struct rig_conn *c, size_t *n) {
    if (c->in_len < 4) return NULL;
    *n = kw_load32(c->in);
    if (c->in_len < 4 + *n) return NULL;
    uint8_t *p = kw_arena_dup(&c->rig->arena, c->in + 4, *n);
    memmove(c->in, c->in + 4 + *n, c->in_len - 4 - *n);
    c->in_len -= 4 + *n;
    return p;
}

static inline bool rig_response(struct rig_conn *c, int16_t key, int16_t version, int32_t correlation_id, void *msg) {
    const struct kw_api *api = kw_api_by_key(key);
    struct kw_in in;
    size_t n;
    int32_t got;
    const uint8_t *p = rig_frame(c, &n);
    if (!p) return false;
    kw_in_init(&in, p, n);
    assert_int_equal(kw_frame_parse_response(&in, api, version, &got), KW_OK);
    assert_int_equal(got, correlation_id);
    assert_int_equal(kw_decode(api->response, version, &in, &c->rig->arena, msg), KW_OK);
    assert_int_equal(kw_in_left(&in), 0);
    return true;
}

/* Sends, waits (at most a virtual minute) and decodes. */
static inline void rig_call(struct rig_conn *c, int16_t key, int16_t version, const void *req, void *resp) {
    static int32_t next = 100;
    int32_t id = next++;
    rig_request(c, key, version, id, req);
    rig_settle(c->rig);
    for (int i = 0; i < 6000 && c->conn; i++) {
        if (rig_response(c, key, version, id, resp)) return;
        rig_pass(c->rig, 10000);
    }
    if (rig_response(c, key, version, id, resp)) return;
    fail_msg("no answer to %s v%d%s", kw_api_by_key(key)->name, version, c->conn ? "" : ": the connection was closed");
}

/* ---- Topics and batches ---- */

static inline int16_t rig_create(struct rig_conn *c, const char *name, int32_t partitions, const char *key, const char *value) {
    struct kw_create_topics_request req;
    struct kw_create_topics_response resp;
    struct kw_create_topics_request_creatable_topic t;
    struct kw_create_topics_request_creatable_topic_config kv = {.name = kw_str_of(key), .value = kw_str_of(value)};
    kw_msg_init(&kw_create_topics_request_desc, &req);
    memset(&t, 0, sizeof(t));
    t.name = kw_str_of(name);
    t.num_partitions = partitions;
    t.replication_factor = 1;
    t.configs.v = &kv;
    t.configs.n = key ? 1 : 0;
    req.topics.v = (void *)&t;
    req.topics.n = 1;
    req.timeout_ms = 5000;
    rig_call(c, KW_API_CREATE_TOPICS, 7, &req, &resp);
    return resp.topics.v[0].error_code;
}

static inline void rig_delete(struct rig_conn *c, const char *name) {
    struct kw_delete_topics_request req;
    struct kw_delete_topics_response resp;
    struct kw_str names[] = {kw_str_of(name)};
    kw_msg_init(&kw_delete_topics_request_desc, &req);
    req.topic_names.v = names;
    req.topic_names.n = 1;
    req.timeout_ms = 1000;
    rig_call(c, KW_API_DELETE_TOPICS, 3, &req, &resp);
    assert_int_equal(resp.responses.v[0].error_code, KE_NONE);
}

static inline struct kb_partition *rig_partition(struct rig *r, const char *topic, int32_t index) {
    struct kb_partition *p;
    assert_int_equal(kb_partition_find(r->node, kw_str_of(topic), (struct kw_uuid){{0}}, index, -1, &p), KE_NONE);
    return p;
}

struct rig_batch {
    int64_t pid;
    int16_t epoch;
    int32_t seq, count;
    int64_t timestamp;
    int16_t attributes;
    size_t value_size;
    bool null_key;
};

/* A batch of count records "kN" -> value bytes; in the arena. */
static inline uint8_t *rig_batch(struct rig *r, const struct rig_batch *b, size_t *size) {
    size_t cap = KW_BATCH_HEADER_SIZE + (size_t)b->count * (b->value_size + 64);
    uint8_t *p = kw_arena_alloc(&r->arena, cap), *at = p + KW_BATCH_HEADER_SIZE, *value = kw_arena_calloc(&r->arena, 1, b->value_size + 1);
    assert_non_null(p);
    memset(value, 'v', b->value_size);
    for (int32_t i = 0; i < b->count; i++) {
        char key[16];
        int n = snprintf(key, sizeof(key), "k%d", i);
        struct kw_record_in rec = {
            .offset_delta = i, .key = {(const uint8_t *)key, b->null_key ? -1 : n}, .value = {value, (int32_t)b->value_size}};
        at = kw_record_write(at, &rec, kw_record_size(&rec));
    }
    *size = (size_t)(at - p);
    int64_t ts = b->timestamp ? b->timestamp : r->now.wall_ms;
    struct kw_batch_header h = {.length = (int32_t)(*size - KW_BATCH_OVERHEAD),
                                .leader_epoch = -1,
                                .magic = 2,
                                .attributes = b->attributes,
                                .last_offset_delta = b->count - 1,
                                .base_timestamp = ts,
                                .max_timestamp = ts,
                                .producer_id = b->pid,
                                .producer_epoch = b->epoch,
                                .base_sequence = b->seq,
                                .record_count = b->count};
    kw_batch_write_header(p, &h);
    kw_batch_crc_set(p, *size);
    return p;
}

/* A produce request of one partition, in the arena; msg points into it. */
struct rig_produce {
    struct kw_produce_request req;
    struct kw_produce_request_topic_produce_data topic;
    struct kw_produce_request_partition_produce_data part;
};
static inline struct rig_produce *rig_produce_msg(struct rig *r, const char *topic, int32_t index, int16_t acks, const void *p, size_t n) {
    struct rig_produce *m = kw_arena_calloc(&r->arena, 1, sizeof(*m));
    kw_msg_init(&kw_produce_request_desc, &m->req);
    m->req.acks = acks;
    m->req.timeout_ms = 30000;
    m->req.topic_data.v = &m->topic;
    m->req.topic_data.n = 1;
    m->topic.name = kw_str_of(topic);
    m->topic.partition_data.v = &m->part;
    m->topic.partition_data.n = 1;
    m->part.index = index;
    m->part.records = (struct kw_records){p, (int32_t)n, NULL};
    return m;
}

typedef struct kw_produce_response_partition_produce_response rig_produced;
static inline rig_produced rig_produce_bytes(struct rig_conn *c, const char *topic, int32_t index, int16_t version, int16_t acks,
                                             const void *p, size_t n) {
    struct kw_produce_response resp;
    struct rig_produce *m = rig_produce_msg(c->rig, topic, index, acks, p, n);
    rig_call(c, KW_API_PRODUCE, version, &m->req, &resp);
    assert_int_equal(resp.responses.n, 1);
    assert_int_equal(resp.responses.v[0].partition_responses.n, 1);
    return resp.responses.v[0].partition_responses.v[0];
}

static inline rig_produced rig_produce(struct rig_conn *c, const char *topic, struct rig_batch b) {
    size_t n;
    if (b.pid == 0) b.pid = -1, b.epoch = -1, b.seq = -1;
    uint8_t *p = rig_batch(c->rig, &b, &n);
    return rig_produce_bytes(c, topic, 0, 9, -1, p, n);
}

/* Three records, stored; the offset of the first. */
static inline int64_t rig_produce_three(struct rig_conn *c, const char *topic) {
    rig_produced a = rig_produce(c, topic, (struct rig_batch){.count = 3, .value_size = 50});
    assert_int_equal(a.error_code, KE_NONE);
    return a.base_offset;
}

/* ---- Fetch ---- */

struct rig_fetch {
    int16_t version;
    const char *topic;
    int32_t index, max_wait_ms, min_bytes, max_bytes, part_max_bytes, session_id, session_epoch, leader_epoch;
    int64_t offset;
    bool empty; /* names no partition: an incremental request without changes */
};
struct rig_fetch_msg {
    struct kw_fetch_request req;
    struct kw_fetch_request_fetch_topic topic;
    struct kw_fetch_request_fetch_partition part;
};
#pragma GCC diagnostic ignored "-Woverride-init" /* defaults first, then what a test says */
#define RIG_FETCH(...)                                                                                                                     \
    ((struct rig_fetch){.version = 11,                                                                                                     \
                        .max_wait_ms = 0,                                                                                                  \
                        .min_bytes = 1,                                                                                                    \
                        .max_bytes = 1 << 20,                                                                                              \
                        .part_max_bytes = 1 << 20,                                                                                         \
                        .session_epoch = -1,                                                                                               \
                        .leader_epoch = -1,                                                                                                \
                        __VA_ARGS__})

static inline struct rig_fetch_msg *rig_fetch_msg(struct rig *r, const struct rig_fetch *f) {
    struct rig_fetch_msg *m = kw_arena_calloc(&r->arena, 1, sizeof(*m));
    kw_msg_init(&kw_fetch_request_desc, &m->req);
    m->req.max_wait_ms = f->max_wait_ms;
    m->req.min_bytes = f->min_bytes;
    m->req.max_bytes = f->version >= 3 ? f->max_bytes : INT32_MAX;
    m->req.session_id = f->version >= 7 ? f->session_id : 0;
    m->req.session_epoch = f->version >= 7 ? f->session_epoch : -1;
    m->req.rack_id = kw_str_of("");
    m->req.topics.v = &m->topic;
    m->req.topics.n = f->empty ? 0 : 1;
    m->topic.topic = kw_str_of(f->topic);
    if (f->version >= 13) m->topic.topic_id = kb_image_topic(&r->node->image, kw_str_of(f->topic))->id;
    m->topic.partitions.v = &m->part;
    m->topic.partitions.n = 1;
    m->part = (struct kw_fetch_request_fetch_partition){.partition = f->index,
                                                        .current_leader_epoch = f->version >= 9 ? f->leader_epoch : -1,
                                                        .fetch_offset = f->offset,
                                                        .last_fetched_epoch = -1,
                                                        .log_start_offset = -1,
                                                        .partition_max_bytes = f->part_max_bytes,
                                                        .high_watermark = INT64_MAX};
    return m;
}

static inline struct kw_fetch_response rig_fetch(struct rig_conn *c, struct rig_fetch f) {
    struct kw_fetch_response resp;
    rig_call(c, KW_API_FETCH, f.version, &rig_fetch_msg(c->rig, &f)->req, &resp);
    return resp;
}

typedef struct kw_fetch_response_partition_data rig_fetched;
static inline rig_fetched *rig_fetch_one(struct rig_conn *c, struct rig_fetch f) {
    struct kw_fetch_response resp = rig_fetch(c, f);
    assert_int_equal(resp.error_code, KE_NONE);
    assert_int_equal(resp.responses.n, 1);
    assert_int_equal(resp.responses.v[0].partitions.n, 1);
    return &resp.responses.v[0].partitions.v[0];
}
/* What a client that has just connected is told of partition 0. */
static inline int64_t rig_hw(struct rig *r, const char *topic) {
    return rig_fetch_one(rig_connect(r), RIG_FETCH(.topic = topic))->high_watermark;
}

/* A node just started, with topic t. */
static inline struct rig_conn *rig_begin(struct rig *r, uint64_t seed, int32_t partitions) {
    rig_init(r, seed);
    rig_start(r);
    struct rig_conn *c = rig_connect(r);
    assert_int_equal(rig_create(c, "t", partitions, NULL, NULL), KE_NONE);
    return c;
}

#endif
