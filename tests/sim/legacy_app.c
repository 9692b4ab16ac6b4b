/* legacy_app.c - a client of old days: produces message sets of magic 0 and 1 (Produce v0 to v2), plain and in wrappers, and reads by Fetch
 * v0 to v3, which the broker converts both ways. One request of each kind at a time, no retries.
 *
 * Called by workload.c. Calls client/core (requests of a given version), wire/message_set, check_reports, check_reads.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kw_messages.h"
#include "roles.h"
#include "wire/message_set.h"

enum { BATCH_MAX = 12, PARTS_MAX = 16, BYTES_MIN = 3000, BYTES_MAX = 4 << 20, REQUEST_S = 20 };

struct legacy {
    struct sim_role role; /* first */
    struct sim_model *m;
    struct sim_world *w;
    struct kw_compressor *compressor;
    struct sim_content content;
    int number; /* in the model */
    int16_t acks;
    int64_t every_us;
    uint32_t quota, sent;
    bool stopping;
    /* one produce */
    struct kc_request produce;
    bool producing;
    struct kw_out set;
    uint32_t ids[BATCH_MAX], id_count;
    int topic, partition;
    /* one fetch */
    struct kc_request fetch;
    bool fetching;
    struct sim_tracker at, trackers[SIM_TOPICS_MAX][PARTS_MAX];
    int32_t bytes;
};

static int32_t leader(struct legacy *a, int topic, int partition) {
    const struct kc_topic_meta *t = kc_metadata_topic(a->role.client->core, topic + 1);
    return t && partition < t->partition_count ? t->partitions[partition].leader : -1;
}

static void begin(struct legacy *a, struct kc_request *rq, int16_t key, int16_t version, int32_t broker,
                  kw_err (*encode)(struct kc_request *, struct kw_out *),
                  void (*done)(struct kc_request *, kc_err, struct kw_in *, struct kw_blk *)) {
    kc_request_init(rq, key);
    rq->broker = broker;
    rq->channel = key == KW_API_PRODUCE ? KC_CHANNEL_PRODUCE : KC_CHANNEL_FETCH;
    rq->no_answer = key == KW_API_PRODUCE && a->acks == 0;
    rq->version_min = rq->version_max = version;
    rq->encode = encode;
    rq->done = done;
    rq->ctx = a;
    rq->deadline_us = sim_client_now(a->role.client).mono_us + REQUEST_S * SIM_S;
    kc_core_send(a->role.client->core, rq);
}

/* ---- Producing ---- */

static kw_err encode_produce(struct kc_request *rq, struct kw_out *out) {
    struct legacy *a = rq->ctx;
    struct kw_produce_request_partition_produce_data part = {.index = a->partition,
                                                             .records = {a->set.p, (int32_t)a->set.len, NULL}};
    struct kw_produce_request_topic_produce_data topic = {.name = kw_str_of(a->m->topics[a->topic].name), .partition_data = {&part, 1}};
    struct kw_produce_request m;
    kw_msg_init(&kw_produce_request_desc, &m);
    m.acks = a->acks;
    m.timeout_ms = 10000;
    m.topic_data.v = &topic;
    m.topic_data.n = 1;
    return kw_encode(&kw_produce_request_desc, rq->version, &m, out);
}

/* What is not known to have failed before it was sent may be in the log. */
static void report_all(struct legacy *a, kc_err err, int64_t base, bool maybe) {
    for (uint32_t i = 0; i < a->id_count; i++) {
        kc_report r = {.opaque = a->ids[i], .topic = a->topic + 1, .partition = a->partition, .offset = -1, .err = err};
        r.outcome = err ? (maybe ? KC_MAYBE_PERSISTED : KC_NOT_PERSISTED) : a->acks ? KC_PERSISTED : KC_MAYBE_PERSISTED;
        if (!err && a->acks) r.offset = base + i;
        sim_check_report(a->m, &r, &a->role.client->host);
    }
    sim_trace(a->w, "old producer %d: %u records to %d-%d: %s", a->number, a->id_count, a->topic, a->partition, kc_err_name(err));
    a->id_count = 0;
}

static void produced(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct legacy *a = rq->ctx;
    struct kw_produce_response m;
    struct kw_arena arena;
    int64_t base = -1;
    bool maybe = rq->sent || err == KC_OK;
    (void)blk;
    a->producing = false;
    kw_arena_init(&arena, 0);
    if (err == KC_OK && a->acks) {
        if (kw_decode(&kw_produce_response_desc, rq->version, body, &arena, &m) != KW_OK || m.responses.n != 1 ||
            m.responses.v[0].partition_responses.n != 1) {
            err = KC_BAD_MESSAGE;
        } else {
            err = m.responses.v[0].partition_responses.v[0].error_code;
            base = m.responses.v[0].partition_responses.v[0].base_offset;
        }
    }
    kw_arena_deinit(&arena);
    if (!a->stopping) report_all(a, err, base, maybe);
    kw_out_reset(&a->set);
}

static kw_err add_message(struct legacy *a, struct kw_out *out, int8_t magic, int64_t offset, uint32_t order) {
    struct sim_model *m = a->m;
    uint32_t id = sim_model_sent(m, a->number, a->topic, a->partition, order, &a->role.client->host, KC_FOREVER);
    m->records[id].old = true;
    m->records[id].placed = true;
    sim_content_make(a->w->seed, id, true, &a->content);
    int64_t back = KW_MAX(a->content.timestamp_back_ms, 0), time = sim_client_now(a->role.client).wall_ms - back;
    if (magic == 1) {
        m->records[id].has_timestamp = true;
        m->records[id].timestamp_ms = time;
    }
    kw_err err = kw_message_write(out, magic, offset, magic ? time : -1, 0, a->content.key, a->content.value);
    if (err)
        sim_model_unsent(m, id);
    else
        a->ids[a->id_count++] = id;
    return err;
}

static kw_err fill_set(struct legacy *a, int8_t magic) {
    static const int codecs[] = {KW_CODEC_NONE, KW_CODEC_NONE, KW_CODEC_GZIP, KW_CODEC_SNAPPY, KW_CODEC_LZ4};
    int codec = codecs[sim_below(a->w, KW_COUNTOF(codecs))];
    uint32_t n = 1 + (uint32_t)sim_below(a->w, BATCH_MAX);
    struct kw_out inner;
    kw_err err = KW_OK;
    kw_out_init(&inner);
    for (uint32_t i = 0; i < n && !err && a->sent + i < a->quota; i++)
        err = add_message(a, codec == KW_CODEC_NONE ? &a->set : &inner, magic, i, a->sent + i);
    if (!err && codec != KW_CODEC_NONE)
        err = kw_message_write_wrapper(&a->set, magic, codec, 0, a->id_count - 1, sim_client_now(a->role.client).wall_ms, false, inner.p,
                                       inner.len, a->compressor);
    kw_out_deinit(&inner);
    return err;
}

static void produce(struct legacy *a) {
    int16_t version = (int16_t)sim_below(a->w, 3);
    int8_t magic = version == 2 ? (int8_t)sim_below(a->w, 2) : 0;
    a->topic = (int)sim_below(a->w, (uint64_t)a->m->topic_count);
    a->partition = (int)sim_below(a->w, (uint64_t)a->m->topics[a->topic].partitions);
    int32_t broker = leader(a, a->topic, a->partition);
    if (broker < 0) return;
    kw_out_reset(&a->set);
    kw_err err = fill_set(a, magic);
    a->sent += a->id_count;
    if (err) { /* no memory for it */
        report_all(a, KC_NO_MEMORY, -1, false);
        return;
    }
    a->producing = true;
    sim_fire(a->w, SIM_F_OLD_PRODUCE);
    begin(a, &a->produce, KW_API_PRODUCE, version, broker, encode_produce, produced);
}

/* ---- Fetching ---- */

static kw_err encode_fetch(struct kc_request *rq, struct kw_out *out) {
    struct legacy *a = rq->ctx;
    struct kw_fetch_request_fetch_partition part;
    memset(&part, 0, sizeof part);
    part.partition = a->at.partition;
    part.current_leader_epoch = part.last_fetched_epoch = -1;
    part.fetch_offset = a->at.next;
    part.log_start_offset = -1;
    part.partition_max_bytes = a->bytes;
    struct kw_fetch_request_fetch_topic topic = {.topic = kw_str_of(a->m->topics[a->at.topic].name), .partitions = {&part, 1}};
    struct kw_fetch_request m;
    kw_msg_init(&kw_fetch_request_desc, &m);
    m.max_wait_ms = 100;
    m.min_bytes = 1;
    m.max_bytes = BYTES_MAX;
    m.topics.v = &topic;
    m.topics.n = 1;
    return kw_encode(&kw_fetch_request_desc, rq->version, &m, out);
}

/* KW_ENOMEM: the client has none for what it was given; something may have been read in front of it. */
static kw_err take_messages(struct legacy *a, struct kw_records r, int8_t magic_max, bool *any) {
    struct kw_message_iter it;
    struct kw_message_view v;
    int32_t rc;
    kw_message_iter_init(&it, r.p, (size_t)KW_MAX(r.len, 0), BYTES_MAX * 8, a->compressor);
    while ((rc = kw_message_iter_next(&it, &v)) == 1) {
        if (v.offset < a->at.next) continue; /* a wrapper is given whole */
        if (v.magic > magic_max)
            sim_fail(a->w, 10, "old consumer %d: %d-%d offset %lld has magic %d, asked for was %d at most", a->number, a->at.topic,
                     a->at.partition, (long long)v.offset, v.magic, magic_max);
        bool timed = v.magic == 1 && !(v.attributes & KW_ATTR_LOG_APPEND_TIME);
        sim_check_read_old(a->m, &a->at, v.offset, timed ? v.timestamp : -1, v.key, v.value);
        *any = true;
    }
    kw_message_iter_deinit(&it);
    if (rc < 0 && rc != KW_ENOMEM)
        sim_fail(a->w, 10, "old consumer %d: %d-%d behind offset %lld: what was served does not follow the format: %s", a->number, a->at.topic,
                 a->at.partition, (long long)a->at.next - 1, kc_err_name(kc_err_from(rc)));
    return rc;
}

static void wander(struct legacy *a) { /* elsewhere in the log, since here it does not go on */
    struct sim_log *l = sim_model_log(a->m, a->at.topic, a->at.partition);
    a->at.next = l->start + (int64_t)sim_below(a->w, (uint64_t)KW_MAX((int64_t)l->count - l->start, 1));
    a->at.may_jump = true;
}

/* Of batches without records he knows nothing: he is given the next record, wherever it is, if there is one. */
static void stalls(struct legacy *a, int64_t at, int64_t end) {
    struct sim_model *m = a->m;
    const struct sim_log *l = sim_model_log(m, a->at.topic, a->at.partition);
    if (!m->topics[a->at.topic].guid || m->topics[a->at.topic].churned || l->tainted || l->loss_count || l->start > at) return;
    size_t size = sim_guid_next(m, a->at.topic, a->at.partition, at, end);
    if (size > 0 && 4 * size < (size_t)a->bytes)
        sim_fail(a->w, 36, "old consumer %d: %d-%d has records between offset %lld and %lld, and nothing is given", a->number, a->at.topic, a->at.partition,
                 (long long)at, (long long)end);
}

static void fetched(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct legacy *a = rq->ctx;
    struct kw_fetch_response m;
    struct kw_arena arena;
    bool any = false;
    (void)blk;
    a->fetching = false;
    if (a->stopping) return;
    kw_arena_init(&arena, 0);
    if (err == KC_OK && kw_decode(&kw_fetch_response_desc, rq->version, body, &arena, &m) != KW_OK) err = KC_BAD_MESSAGE;
    if (err == KC_OK && m.responses.n == 1 && m.responses.v[0].partitions.n == 1) {
        const struct kw_fetch_response_partition_data *p = &m.responses.v[0].partitions.v[0];
        err = p->error_code;
        int64_t before = a->at.next;
        kw_err taken = err == KC_OK ? take_messages(a, p->records, rq->version < 2 ? 0 : 1, &any) : KW_OK;
        if (any) a->bytes = BYTES_MAX / 16;
        if (err == KC_OK && taken == KW_OK && !any && p->high_watermark > before) stalls(a, before, p->high_watermark);
        if (err == KC_OK && !any && p->high_watermark > before) a->bytes *= 4; /* not even one fits */
        sim_trace(a->w, "old consumer %d: %d-%d from %lld to %lld: %s", a->number, a->at.topic, a->at.partition, (long long)before,
                  (long long)a->at.next, kc_err_name(err));
        if (err == KE_OFFSET_OUT_OF_RANGE || err == KE_UNSUPPORTED_COMPRESSION_TYPE || a->bytes > BYTES_MAX) wander(a);
        if (a->bytes > BYTES_MAX) a->bytes = BYTES_MAX;
        a->trackers[a->at.topic][a->at.partition] = a->at;
    }
    kw_arena_deinit(&arena);
}

static void fetch(struct legacy *a) {
    int topic = (int)sim_below(a->w, (uint64_t)a->m->topic_count);
    int partition = (int)sim_below(a->w, (uint64_t)KW_MIN(a->m->topics[topic].partitions, PARTS_MAX));
    int32_t broker = leader(a, topic, partition);
    if (broker < 0) return;
    a->at = a->trackers[topic][partition];
    a->bytes = sim_below(a->w, 2) ? BYTES_MAX / 16 : (int32_t)sim_range(a->w, BYTES_MIN, 50000);
    if (a->at.next < 0) {
        a->at = (struct sim_tracker){topic, partition, 0, false};
        if (sim_model_log(a->m, topic, partition)->start > 0) wander(a);
    }
    a->fetching = true;
    sim_fire(a->w, SIM_F_OLD_FETCH);
    begin(a, &a->fetch, KW_API_FETCH, (int16_t)sim_below(a->w, 4), broker, encode_fetch, fetched);
}

void sim_legacy_lost(struct sim_role *r, int topic, int partition, int64_t from) {
    struct legacy *a = (struct legacy *)r;
    if (partition >= PARTS_MAX) return;
    struct sim_tracker *t = &a->trackers[topic][partition];
    if (t->next > from) t->may_jump = true;
    if (a->at.topic == topic && a->at.partition == partition) a->at.may_jump = true;
}

/* ---- Life ---- */

static bool work(struct sim_role *r) {
    struct legacy *a = (struct legacy *)r;
    if (a->stopping || r->next_us > a->w->now_us) return false;
    r->next_us = a->w->now_us + a->every_us / 2 + (int64_t)sim_below(a->w, (uint64_t)a->every_us);
    if (!a->producing && a->sent < a->quota && !a->w->healed) produce(a);
    if (!a->fetching) fetch(a);
    return true;
}

static void stop(struct sim_role *r) {
    struct legacy *a = (struct legacy *)r;
    a->stopping = true;
    sim_model_dropped(a->m, a->number);
    if (a->producing) kc_core_cancel(r->client->core, &a->produce);
    if (a->fetching) kc_core_cancel(r->client->core, &a->fetch);
}
static bool stopped(const struct sim_role *r) {
    const struct legacy *a = (const struct legacy *)r;
    return !a->producing && !a->fetching;
}
static void free_role(struct sim_role *r) {
    struct legacy *a = (struct legacy *)r;
    kw_out_deinit(&a->set);
    kw_compressor_free(a->compressor);
    sim_content_deinit(&a->content);
    free(a);
}

struct sim_role *sim_legacy_new(struct sim_client *c, struct sim_model *m, uint32_t quota, int64_t every_us) {
    struct legacy *a = sim_need(calloc(1, sizeof *a));
    a->role = (struct sim_role){.next_us = c->w->now_us, .work = work, .stop = stop, .stopped = stopped, .free = free_role};
    a->m = m;
    a->w = c->w;
    a->compressor = sim_need(kw_compressor_new());
    a->quota = quota;
    a->every_us = every_us;
    a->acks = sim_below(a->w, 4) == 0 ? (int16_t)sim_below(a->w, 2) : -1;
    a->number = (int)m->producer_count;
    kw_out_init(&a->set);
    for (int t = 0; t < SIM_TOPICS_MAX; t++)
        for (int p = 0; p < PARTS_MAX; p++) a->trackers[t][p].next = -1;
    m->producers = sim_grow(m->producers, m->producer_count, &m->producer_cap, sizeof *m->producers);
    m->producers[m->producer_count++] = (struct sim_producer_facts){.ordered = true, .acks = a->acks, .delivery_timeout_us = KC_FOREVER, .alive = true};
    sim_trace(a->w, "old producer %d on %s: acks %d", a->number, c->host.name, a->acks);
    for (int t = 0; t < m->topic_count; t++) kc_metadata_want(c->core, t + 1);
    sim_client_add(c, &a->role);
    return &a->role;
}
