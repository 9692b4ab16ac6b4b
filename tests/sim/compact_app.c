/* compact_app.c - an application of a compacted topic: makes it, writes few keys over and over, deletes some, and reads it from the beginning, again
 * and again. Calls client/core (requests), the wire's schemas; check_compact.c judges.
 */
#include <stdio.h>
#include <stdlib.h>

#include "compact.h"
#include "kw_messages.h"

enum { BATCH_MAX = 12, BATCH_SIZE = 8192, FETCH_MAX = 30000 };
enum op { CREATE, PRODUCE, FETCH };
struct app {
    struct sim_role role; /* first */
    struct sim_run *run;
    struct sim_world *w;
    struct kw_compressor *compressor;
    struct kc_request rq;
    enum op op;
    bool made, busy, stopping;
    int partition, node;
    uint32_t first, n; /* of what is being written */
    uint32_t losses;   /* of power, when it was asked */
    uint8_t batch[BATCH_SIZE];
    size_t size;
    int64_t position[SIM_COMPACT_PARTS];
};

/* ---- Drawing ---- */

void sim_compact_draw(struct sim_run *r) {
    struct kw_rng own;
    kw_rng_init(&own, r->w.seed ^ 0x636f6d70616374u);
    if (kw_rng_below(&own, 4)) return;
    struct sim_plan *p = &r->plan;
    struct sim_cluster_plan *c = r->cluster ? &r->cluster->plan : NULL;
    r->compact = sim_need(calloc(1, sizeof *r->compact));
    *r->compact = (struct sim_compact){.on = true, .rf = c ? 3 : 1, .retention_ms = c ? 60000 : 4000};
    snprintf(r->compact->numbers[0], 24, "%d", (int)(1500 + kw_rng_below(&own, 12000)));
    snprintf(r->compact->numbers[1], 24, "%d", (int)(100 + kw_rng_below(&own, 2000)));
    snprintf(r->compact->numbers[2], 24, "%d", kw_rng_below(&own, 3) ? 1 << 20 : 700); /* memory for keys: all, or not all of them */
    snprintf(r->compact->numbers[3], 24, "%d", r->compact->retention_ms);
    /* What takes from a log what was promised is left to the other seeds. */
    p->rot_ppm = p->misdirect_s = 0;
    p->image = false;
    r->compact->steady_clocks = c ? !c->jump_s && !c->drift : !p->jump_s && !p->drift;
    if (!c) return;
    c->power_s = c->wipe_s = c->image_s = c->rot_ppm = c->misdirect_ppm = c->leave_s = 0;
}

void sim_compact_broker(struct sim_run *r, struct sim_broker *b) {
    if (!r->compact) return;
    sim_broker_set(b, "log.cleaner.backoff.ms", r->compact->numbers[1]);
    sim_broker_set(b, "log.cleaner.dedupe.buffer.size", r->compact->numbers[2]);
}

void sim_compact_deinit(struct sim_run *r) {
    if (!r->compact) return;
    for (int i = 0; i < SIM_COMPACT_PARTS; i++) free(r->compact->by_offset[i]);
    free(r->compact->v);
    free(r->compact);
    r->compact = NULL;
}

/* ---- Requests ---- */

static void make_batch(struct app *a) {
    struct sim_compact *s = a->run->compact;
    struct sim_world *w = a->w;
    uint8_t *at = a->batch + KW_BATCH_HEADER_SIZE, value[400];
    int64_t wall = sim_client_now(a->role.client).wall_ms;
    a->first = (uint32_t)s->count;
    a->n = 1 + (uint32_t)sim_below(w, BATCH_MAX);
    a->partition = (int)sim_below(w, SIM_COMPACT_PARTS);
    memset(value, 'v', sizeof value);
    for (uint32_t i = 0; i < a->n; i++) {
        s->v = sim_grow(s->v, s->count, &s->cap, sizeof *s->v);
        struct sim_compact_record *x = &s->v[s->count++];
        *x = (struct sim_compact_record){.partition = (int16_t)a->partition,
                                         .key = (uint8_t)sim_below(w, sim_below(w, 3) ? 8 : SIM_COMPACT_KEYS),
                                         .tombstone = sim_below(w, 6) == 0,
                                         .acked = SIM_COMPACT_UNKNOWN,
                                         .seen = SIM_COMPACT_UNKNOWN};
        uint8_t key[2] = {'k', x->key}, id[4];
        kw_store32(id, a->first + i);
        struct kw_header_view h = {.key = kw_str_of("id"), .value = {id, 4}};
        struct kw_record_in rec = {.offset_delta = (int32_t)i,
                                   .key = {key, 2},
                                   .value = {value, x->tombstone ? -1 : (int32_t)sim_below(w, sizeof value)},
                                   .headers = &h,
                                   .header_count = 1};
        at = kw_record_write(at, &rec, kw_record_size(&rec));
    }
    a->size = (size_t)(at - a->batch);
    struct kw_batch_header h = {.length = (int32_t)(a->size - KW_BATCH_OVERHEAD),
                                .leader_epoch = -1,
                                .magic = 2,
                                .last_offset_delta = (int32_t)a->n - 1,
                                .base_timestamp = wall,
                                .max_timestamp = wall,
                                .producer_id = -1,
                                .producer_epoch = -1,
                                .base_sequence = -1,
                                .record_count = (int32_t)a->n};
    kw_batch_write_header(a->batch, &h);
    kw_batch_crc_set(a->batch, a->size);
}

static kw_err encode_create(struct app *a, int16_t version, struct kw_out *out) {
    struct kw_create_topics_request_creatable_topic_config configs[] = {
        {.name = kw_str_of("cleanup.policy"), .value = kw_str_of("compact")},
        {.name = kw_str_of("segment.bytes"), .value = kw_str_of(a->run->compact->numbers[0])},
        {.name = kw_str_of("min.cleanable.dirty.ratio"), .value = kw_str_of("0.2")},
        {.name = kw_str_of("delete.retention.ms"), .value = kw_str_of(a->run->compact->numbers[3])},
        {.name = kw_str_of("min.insync.replicas"), .value = kw_str_of(a->run->compact->rf > 1 ? "2" : "1")},
    };
    struct kw_create_topics_request_creatable_topic t = {.name = kw_str_of(SIM_COMPACT_TOPIC),
                                                         .num_partitions = SIM_COMPACT_PARTS,
                                                         .replication_factor = (int16_t)a->run->compact->rf,
                                                         .configs = {configs, KW_COUNTOF(configs)}};
    struct kw_create_topics_request m = {.topics = {&t, 1}, .timeout_ms = 5000};
    return kw_encode(&kw_create_topics_request_desc, version, &m, out);
}

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct app *a = rq->ctx;
    struct kw_str name = kw_str_of(SIM_COMPACT_TOPIC);
    if (a->op == CREATE) return encode_create(a, rq->version, out);
    if (a->op == PRODUCE) {
        struct kw_produce_request_partition_produce_data p = {.index = a->partition, .records = {a->batch, (int32_t)a->size, NULL}};
        struct kw_produce_request_topic_produce_data t = {.name = name, .partition_data = {&p, 1}};
        struct kw_produce_request m;
        kw_msg_init(&kw_produce_request_desc, &m);
        m.acks = -1;
        m.timeout_ms = 3000;
        m.topic_data.v = &t;
        m.topic_data.n = 1;
        return kw_encode(&kw_produce_request_desc, rq->version, &m, out);
    }
    struct kw_fetch_request_fetch_partition p = {.partition = a->partition,
                                                 .current_leader_epoch = -1,
                                                 .fetch_offset = a->position[a->partition],
                                                 .last_fetched_epoch = -1,
                                                 .log_start_offset = -1,
                                                 .partition_max_bytes = FETCH_MAX,
                                                 .high_watermark = INT64_MAX};
    struct kw_fetch_request_fetch_topic t = {.topic = name, .partitions = {&p, 1}};
    struct kw_fetch_request m;
    kw_msg_init(&kw_fetch_request_desc, &m);
    m.max_wait_ms = 50;
    m.min_bytes = 1;
    m.max_bytes = FETCH_MAX;
    m.session_epoch = -1;
    m.rack_id = kw_str_of("");
    m.topics.v = &t;
    m.topics.n = 1;
    return kw_encode(&kw_fetch_request_desc, rq->version, &m, out);
}

/* ---- Answers ---- */

/* It may tell of what the power took. */
static bool is_stale(const struct app *a) { return a->losses != a->run->compact->losses; }

static void produced(struct app *a, struct kc_request *rq, struct kw_in *body, struct kw_arena *arena) {
    struct kw_produce_response m;
    if (kw_decode(rq->api->response, rq->version, body, arena, &m) != KW_OK) return;
    if (m.responses.n != 1 || m.responses.v[0].partition_responses.n != 1) return;
    const struct kw_produce_response_partition_produce_response *p = &m.responses.v[0].partition_responses.v[0];
    sim_trace(a->w, "compacted-%d: %u records from number %u on: %d, offset %lld", a->partition, a->n, a->first, p->error_code,
              (long long)p->base_offset);
    for (uint32_t i = 0; i < a->n && p->error_code == KE_NONE; i++) sim_compact_acked(a->run, a->first + i, p->base_offset + i, is_stale(a));
}

/* What one answer holds, batch by batch; where it goes on. */
static int64_t judge(struct app *a, const uint8_t *p, size_t n, int64_t from) {
    int64_t next = from;
    for (size_t at = 0; at + KW_BATCH_HEADER_SIZE <= n;) {
        struct kw_batch_header h;
        const uint8_t *body;
        size_t size, whole = (size_t)kw_batch_size_peek(p + at, n - at);
        if (whole > n - at) break;
        if (kw_batch_parse(p + at, whole, &h) != KW_OK || !kw_batch_crc_ok(p + at, whole) ||
            kw_batch_body(p + at, whole, &h, 1 << 20, a->compressor, &body, &size) != KW_OK)
            sim_fail(a->w, 10, "compacted-%d: at offset %lld no sound batch was served", a->partition, (long long)next);
        int64_t last = h.base_offset + h.last_offset_delta;
        if (last < next)
            sim_fail(a->w, 6, "compacted-%d: at offset %lld comes a batch that ends with %lld", a->partition, (long long)next, (long long)last);
        struct kw_record_iter it;
        struct kw_record_view v;
        kw_record_iter_init(&it, &h, body, size);
        while (kw_record_next(&it, &v) > 0) {
            uint32_t id;
            sim_compact_content(a->run, "read", a->partition, v.offset, &v, &id);
            if (v.offset < next) continue;
            sim_compact_passed(a->run, a->partition, next, v.offset);
            next = v.offset + 1;
            a->run->compact->read++;
        }
        sim_compact_passed(a->run, a->partition, next, last + 1);
        next = last + 1;
        at += whole;
    }
    return next;
}

static void fetched(struct app *a, struct kc_request *rq, struct kw_in *body, struct kw_arena *arena) {
    struct kw_fetch_response m;
    if (kw_decode(rq->api->response, rq->version, body, arena, &m) != KW_OK) return;
    if (m.error_code || m.responses.n != 1 || m.responses.v[0].partitions.n != 1) return;
    const struct kw_fetch_response_partition_data *p = &m.responses.v[0].partitions.v[0];
    int64_t *at = &a->position[a->partition];
    if (p->error_code == KE_OFFSET_OUT_OF_RANGE) *at = 0;
    if (p->error_code) return;
    if (p->records.len > 0 && !a->run->compact->lossy[a->partition] && !is_stale(a)) *at = judge(a, p->records.p, (size_t)p->records.len, *at);
    if (*at >= p->high_watermark) *at = 0; /* once more */
}

static void done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct app *a = rq->ctx;
    (void)blk;
    a->busy = false;
    if (a->stopping) return;
    struct kw_arena arena;
    kw_arena_init(&arena, 0);
    if (err == KC_OK && a->op == CREATE) {
        struct kw_create_topics_response m;
        if (kw_decode(rq->api->response, rq->version, body, &arena, &m) == KW_OK && m.topics.n == 1)
            a->made = m.topics.v[0].error_code == KE_NONE || m.topics.v[0].error_code == KE_TOPIC_ALREADY_EXISTS;
    } else if (err == KC_OK && a->op == PRODUCE) {
        produced(a, rq, body, &arena);
    } else if (err == KC_OK) {
        fetched(a, rq, body, &arena);
    }
    kw_arena_deinit(&arena);
    a->role.next_us = a->w->now_us + sim_range(a->w, 5 * SIM_MS, 120 * SIM_MS);
    sim_host_wake(&a->role.client->host, a->role.next_us);
}

/* Of several nodes one after the other: who does not lead says so. */
static int32_t whom_to_ask(struct app *a) {
    const struct sim_cluster *c = a->run->cluster;
    if (!c || a->op == CREATE) return KC_BROKER_ANY;
    do a->node = (a->node + 1) % a->run->node_count;
    while (!c->broker[a->node]);
    return c->ids[a->node];
}

static bool work(struct sim_role *r) {
    static const int16_t apis[] = {KW_API_CREATE_TOPICS, KW_API_PRODUCE, KW_API_FETCH};
    static const int16_t versions[] = {7, 9, 11}; /* those that name topics */
    struct app *a = (struct app *)r;
    if (a->busy || a->stopping || r->next_us > a->w->now_us) return false;
    a->op = !a->made ? CREATE : !a->run->compact->enough && sim_below(a->w, 3) ? PRODUCE : FETCH;
    if (a->op == PRODUCE) make_batch(a);
    if (a->op == FETCH) a->partition = (int)sim_below(a->w, SIM_COMPACT_PARTS);
    kc_request_init(&a->rq, apis[a->op]);
    a->rq.version_max = versions[a->op];
    a->rq.encode = encode;
    a->rq.done = done;
    a->rq.ctx = a;
    a->rq.broker = whom_to_ask(a);
    a->rq.deadline_us = sim_client_now(r->client).mono_us + 5 * SIM_S;
    a->busy = true;
    a->losses = a->run->compact->losses;
    r->next_us = SIM_NEVER;
    kc_core_send(r->client->core, &a->rq);
    return true;
}

static void stop(struct sim_role *r) {
    struct app *a = (struct app *)r;
    a->stopping = true;
    if (a->busy) kc_core_cancel(r->client->core, &a->rq);
}
static bool stopped(const struct sim_role *r) {
    return !((const struct app *)r)->busy;
}
static void free_role(struct sim_role *r) {
    struct app *a = (struct app *)r;
    kw_compressor_free(a->compressor);
    free(a);
}

struct sim_role *sim_compact_new(struct sim_client *c, struct sim_run *r) {
    struct app *a = sim_need(calloc(1, sizeof *a));
    a->role = (struct sim_role){.next_us = c->w->now_us, .work = work, .stop = stop, .stopped = stopped, .free = free_role};
    a->run = r;
    a->w = c->w;
    a->compressor = sim_need(kw_compressor_new());
    sim_client_add(c, &a->role);
    return &a->role;
}
