/* guid_app.c - an application of topics that look ids up, which writes the protocol itself: batches of records old and new under ids that others have sent,
 * send, or are about to, twice in one batch, again with another payload, with a wrong id; with and without a producer id, by all acks, told of duplicates
 * or not; sent again as they are, or by another producer. It looks ids up, and it reads as a consumer does that goes by records alone.
 *
 * Called by workload.c. Calls client/core (requests), the wire's schemas; guid_model.c, check_guid.c, check_reports.c judge.
 */
#include "guid.h"

#include <stdio.h>
#include <stdlib.h>

#include "kw_messages.h"
#include "node_priv.h"

enum { BATCH_MAX = SIM_GUID_SENT_MAX, BATCH_BYTES = 400000, RECORDS_BYTES = 300000, LOOKUPS = 8, TRIES_MAX = 4, FETCH_MAX = 200000 };
enum op { PID, PRODUCE, LOOKUP, FETCH };
struct app {
    struct sim_role role; /* first */
    struct sim_run *r;
    struct sim_world *w;
    struct sim_model *m;
    struct kw_compressor *compressor;
    struct sim_content content;
    struct kc_request rq;
    enum op op;
    bool busy, stopping;
    int64_t every_us;
    int topic, partition, node; /* node: which was asked, and in which life */
    uint64_t life;
    /* what it writes */
    int number; /* in the model */
    int16_t acks, pid_epoch;
    bool idempotent, told; /* told: asks for ranges */
    int64_t pid;
    int32_t sequence[SIM_TOPICS_MAX][SIM_GUID_PARTS];
    uint32_t order;
    uint32_t ids[BATCH_MAX], n;
    bool bad, sent; /* bad: a record's id is none; sent: it may have arrived */
    bool old;       /* all of it was sent before */
    int tries;
    uint8_t *batch;
    size_t size;
    uint32_t asked[LOOKUPS];
    uint8_t asked_ids[LOOKUPS][16];
    int64_t asked_us, position[SIM_TOPICS_MAX][SIM_GUID_PARTS];
};

/* ---- Producing ---- */

static uint32_t new_record(struct app *a) {
    struct sim_model *m = a->m;
    uint32_t id = sim_model_sent(m, a->number, a->topic, a->partition, a->order++, &a->role.client->host, KC_FOREVER), of = 0;
    m->records[id].placed = true;
    a->ids[a->n] = id;
    bool again = false;
    for (int k = 0; k < 30 && a->old && !again; k++) again = sim_guid_twin(m, a->topic, a->partition, &of) && m->records[of].state == SIM_OK;
    if (again)
        sim_guid_give_twin(m, id, of, false);
    else if (!a->bad && a->n > 0 && sim_below(a->w, 6) == 0 && m->records[a->ids[a->n - 1]].guid1)
        sim_guid_give_twin(m, id, a->ids[a->n - 1], sim_below(a->w, 3) == 0); /* twice in one batch */
    else if (!a->bad && sim_below(a->w, 4) && sim_guid_twin(m, a->topic, sim_below(a->w, 8) ? a->partition : -1, &of))
        sim_guid_give_twin(m, id, of, sim_below(a->w, 6) == 0);
    else
        sim_guid_give(m, id);
    return id;
}

static uint8_t *put_record(struct app *a, uint8_t *at, uint32_t id, bool bad, int64_t base) {
    static const uint8_t zeros[20];
    struct sim_record *rec = &a->m->records[id];
    sim_content_of(a->m, id, &a->content);
    struct kw_header_view headers[8];
    memcpy(headers, a->content.headers, sizeof a->content.headers);
    size_t n = a->content.header_count;
    if (bad && sim_below(a->w, 2)) headers[n++] = (struct kw_header_view){kw_str_of("guid"), {zeros, (int32_t)sim_below(a->w, 16)}};
    else if (bad)
        for (int i = 0; i < 2; i++) headers[n++] = (struct kw_header_view){kw_str_of("guid"), {zeros, 16}};
    if (!rec->has_timestamp && a->content.timestamp_back_ms >= 0) {
        rec->has_timestamp = true;
        rec->timestamp_ms = base - a->content.timestamp_back_ms;
    }
    struct kw_record_in in = {.timestamp_delta = (rec->has_timestamp ? rec->timestamp_ms : base) - base, .offset_delta = (int32_t)a->n, .key = a->content.key,
                              .value = a->content.value, .headers = headers, .header_count = n};
    size_t size = kw_record_size(&in);
    if ((size_t)(at - a->batch) + size > BATCH_BYTES) abort();
    return kw_record_write(at, &in, size);
}

static void make_batch(struct app *a) {
    int64_t base = sim_client_now(a->role.client).wall_ms, newest = INT64_MIN;
    uint8_t *at = a->batch + KW_BATCH_HEADER_SIZE;
    uint32_t want = 1 + (uint32_t)sim_below(a->w, BATCH_MAX);
    struct sim_guid_sent s = {.topic = (int8_t)a->topic, .partition = (int16_t)a->partition, .base_timestamp = base, .pid = a->pid};
    a->n = 0;
    a->tries = 0;
    a->sent = false;
    a->bad = sim_below(a->w, 15) == 0 && !a->r->guids->switches; /* what is no id is stored where nobody looks */
    a->old = !a->bad && sim_below(a->w, 4) == 0;
    uint32_t bad = (uint32_t)sim_below(a->w, want);
    while (a->n < want && at - a->batch < RECORDS_BYTES) {
        uint32_t id = new_record(a);
        bool this_one = a->bad && (a->n == bad);
        if (a->bad) a->m->records[id].guid1 = 0; /* nothing of it may be stored */
        at = put_record(a, at, id, this_one, base);
        const struct sim_record *rec = &a->m->records[id];
        newest = KW_MAX(newest, rec->has_timestamp ? rec->timestamp_ms : base);
        s.guids[a->n++] = rec->guid1 ? rec->guid1 - 1 : SIM_GUID_NONE;
    }
    if (a->bad && bad >= a->n) a->bad = false; /* it did not come to it */
    a->size = (size_t)(at - a->batch);
    s.sequence = a->pid >= 0 ? a->sequence[a->topic][a->partition] : -1;
    s.count = (uint8_t)a->n;
    *sim_guid_sent_new(a->r->guids) = s;
    struct kw_batch_header h = {.length = (int32_t)(a->size - KW_BATCH_OVERHEAD), .leader_epoch = -1, .magic = 2, .last_offset_delta = (int32_t)a->n - 1,
                                .base_timestamp = base, .max_timestamp = newest, .producer_id = a->pid, .producer_epoch = a->pid >= 0 ? a->pid_epoch : -1,
                                .base_sequence = s.sequence, .record_count = (int32_t)a->n};
    kw_batch_write_header(a->batch, &h);
    kw_batch_crc_set(a->batch, a->size);
    if (a->bad) sim_fire(a->w, SIM_F_GUID_BAD);
}

static void report(struct app *a, uint32_t i, kc_err err, int outcome, int64_t offset, uint32_t flags) {
    kc_report r = {.opaque = a->ids[i], .topic = a->topic + 1, .partition = a->partition, .offset = offset, .err = err, .flags = flags};
    r.outcome = outcome;
    sim_check_report(a->m, &r, &a->role.client->host);
}

/* It is given up, or what has become of it is not known. */
static void report_all(struct app *a, kc_err err, bool maybe) {
    sim_trace(a->w, "ids to %d-%d: %u records: %s", a->topic, a->partition, a->n, kc_err_name(err));
    for (uint32_t i = 0; i < a->n; i++) report(a, i, err, maybe ? KC_MAYBE_PERSISTED : KC_NOT_PERSISTED, -1, 0);
    a->n = 0;
}

static void told_ranges(struct app *a, const struct kw_produce_response_partition_produce_response *p) {
    int64_t offsets[BATCH_MAX];
    uint32_t flags[BATCH_MAX];
    int64_t behind = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        offsets[i] = p->base_offset + i;
        flags[i] = p->guid.deduped ? KC_REPORT_DEDUPED : 0;
    }
    for (int32_t k = 0; k < p->guid.ranges.n; k++) {
        const struct kw_produce_response_guid_range *g = &p->guid.ranges.v[k];
        if (g->index < behind || g->count <= 0 || (int64_t)g->index + g->count > a->n)
            sim_fail(a->w, 4, "ids to %d-%d: a range of %d records from %d on, of %u; behind %lld", a->topic, a->partition, g->count, g->index, a->n,
                     (long long)behind);
        behind = (int64_t)g->index + g->count;
        for (int32_t i = g->index; i < behind; i++) {
            if (!a->m->records[a->ids[i]].guid1)
                sim_fail(a->w, 4, "ids to %d-%d: record %u has none, and is said to be a duplicate", a->topic, a->partition, a->ids[i]);
            bool unknown = g->flags & 2;
            offsets[i] = unknown ? -1 : g->first_offset + (i - g->index);
            flags[i] |= KC_REPORT_DUPLICATE | (g->flags & 1 ? KC_REPORT_OTHER_PAYLOAD : 0u) | (unknown ? KC_REPORT_OFFSET_UNKNOWN : 0u);
            if (!unknown && g->first_offset < 0) sim_fail(a->w, 4, "ids to %d-%d: a first copy at %lld", a->topic, a->partition, (long long)g->first_offset);
        }
    }
    for (uint32_t i = 0; i < a->n; i++)
        if (!(flags[i] & KC_REPORT_DUPLICATE) && p->base_offset < 0)
            sim_fail(a->w, 4, "ids to %d-%d: record %u is stored, and the batch's offset is %lld", a->topic, a->partition, a->ids[i],
                     (long long)p->base_offset);
    for (uint32_t i = 0; i < a->n; i++) report(a, i, KC_OK, KC_PERSISTED, offsets[i], flags[i]);
}

/* Of a broker that was not asked to tell, as those see it that cannot ask: where one record is, or that all are there. */
static void told_nothing(struct app *a, int64_t base) {
    if (base < 0) sim_fail(a->w, 4, "ids to %d-%d: %u records are acknowledged with offset %lld", a->topic, a->partition, a->n, (long long)base);
    for (uint32_t i = 0; i < a->n; i++) {
        bool guid = a->m->records[a->ids[i]].guid1;
        if (a->n == 1 || !guid) report(a, i, KC_OK, KC_PERSISTED, base + i, 0);
        else report(a, i, KC_OK, KC_PERSISTED, -1, KC_REPORT_DUPLICATE);
    }
}

static bool worth_a_try(kc_err err) {
    return err == KE_NOT_LEADER_OR_FOLLOWER || err == KE_NOT_ENOUGH_REPLICAS || err == KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND || err == KE_REQUEST_TIMED_OUT ||
           err == KE_UNKNOWN_TOPIC_OR_PARTITION || err == KE_LEADER_NOT_AVAILABLE || err == KE_FENCED_LEADER_EPOCH || err == KC_TRANSPORT ||
           err == KC_TIMED_OUT || err == KE_KAFKA_STORAGE_ERROR;
}

static void begin_sequence_anew(struct app *a) { /* by another producer id */
    a->pid = -1;
    memset(a->sequence, 0, sizeof a->sequence);
}

static void acknowledged(struct app *a, const struct kw_produce_response_partition_produce_response *p) {
    sim_trace(a->w, "ids to %d-%d: %u records at %lld, %d ranges", a->topic, a->partition, a->n, (long long)p->base_offset, p->guid.ranges.n);
    if (a->acks == -1) sim_check_guid_acked(a->r, a->node, a->topic, a->partition, a->asked_us, a->life);
    if (a->bad) sim_fail(a->w, 4, "ids to %d-%d: a batch with a wrong id is acknowledged", a->topic, a->partition);
    if (p->error_code == KE_DUPLICATE_SEQUENCE_NUMBER)
        for (uint32_t i = 0; i < a->n; i++) report(a, i, KC_OK, KC_PERSISTED, -1, KC_REPORT_DUPLICATE);
    else if (a->told && p->guid.deduped)
        told_ranges(a, p);
    else
        told_nothing(a, p->base_offset);
    if (a->idempotent) a->sequence[a->topic][a->partition] += (int32_t)a->n;
    a->n = 0;
}

static void produced(struct app *a, kc_err err, struct kw_in *body, struct kw_arena *arena) {
    struct kw_produce_response m;
    const struct kw_produce_response_partition_produce_response *p = NULL;
    a->sent |= a->rq.sent || err == KC_OK;
    if (err == KC_OK && a->acks) {
        if (kw_decode(a->rq.api->response, a->rq.version, body, arena, &m) != KW_OK || m.responses.n != 1 || m.responses.v[0].partition_responses.n != 1)
            err = KC_BAD_MESSAGE;
        else
            err = (p = &m.responses.v[0].partition_responses.v[0])->error_code;
    }
    if (p && (err == KC_OK || (err == KE_DUPLICATE_SEQUENCE_NUMBER && a->idempotent))) {
        acknowledged(a, p);
        return;
    }
    if (err == KC_OK) {
        report_all(a, err, true);
        return;
    }
    if (worth_a_try(err) && ++a->tries < TRIES_MAX && sim_below(a->w, 6)) return; /* the same bytes once more */
    if (p && err == KE_INVALID_RECORD) {
        if (!a->bad) sim_fail(a->w, 4, "ids to %d-%d: %u sound records are refused as invalid", a->topic, a->partition, a->n);
        if (a->rq.version >= 8 && p->record_errors.n == 0) sim_fail(a->w, 4, "ids to %d-%d: which record is invalid is not said", a->topic, a->partition);
    }
    report_all(a, err, a->sent && !a->bad);
    if (a->idempotent) begin_sequence_anew(a);
}

/* ---- Requests ---- */

static kw_err encode_lookup(struct app *a, int16_t version, struct kw_out *out) {
    struct kw_bytes ids[LOOKUPS];
    for (int i = 0; i < LOOKUPS; i++) ids[i] = (struct kw_bytes){a->asked_ids[i], 16};
    struct kw_lookup_guid_request_partition p = {.index = a->partition, .current_leader_epoch = -1, .ids = {ids, LOOKUPS}};
    struct kw_lookup_guid_request_topic t = {.name = kw_str_of(a->m->topics[a->topic].name), .partitions = {&p, 1}};
    struct kw_lookup_guid_request m = {.topics = {&t, 1}};
    return kw_encode(&kw_lookup_guid_request_desc, version, &m, out);
}

static kw_err encode_fetch(struct app *a, int16_t version, struct kw_out *out) {
    struct kw_fetch_request_fetch_partition p = {.partition = a->partition, .current_leader_epoch = -1, .fetch_offset = a->position[a->topic][a->partition],
                                                 .last_fetched_epoch = -1, .log_start_offset = -1, .partition_max_bytes = FETCH_MAX,
                                                 .high_watermark = INT64_MAX};
    struct kw_fetch_request_fetch_topic t = {.topic = kw_str_of(a->m->topics[a->topic].name), .partitions = {&p, 1}};
    struct kw_fetch_request m;
    kw_msg_init(&kw_fetch_request_desc, &m);
    m.max_wait_ms = 50;
    m.min_bytes = 1;
    m.max_bytes = FETCH_MAX;
    m.session_epoch = -1;
    m.rack_id = kw_str_of("");
    m.topics.v = &t;
    m.topics.n = 1;
    return kw_encode(&kw_fetch_request_desc, version, &m, out);
}

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct app *a = rq->ctx;
    if (a->op == LOOKUP) return encode_lookup(a, rq->version, out);
    if (a->op == FETCH) return encode_fetch(a, rq->version, out);
    if (a->op == PID) {
        struct kw_init_producer_id_request m;
        kw_msg_init(&kw_init_producer_id_request_desc, &m);
        m.transaction_timeout_ms = 60000;
        return kw_encode(&kw_init_producer_id_request_desc, rq->version, &m, out);
    }
    struct kw_produce_request_partition_produce_data p = {.index = a->partition, .records = {a->batch, (int32_t)a->size, NULL}};
    struct kw_produce_request_topic_produce_data t = {.name = kw_str_of(a->m->topics[a->topic].name), .partition_data = {&p, 1}};
    struct kw_produce_request m;
    kw_msg_init(&kw_produce_request_desc, &m);
    m.acks = a->acks;
    m.timeout_ms = (int32_t)sim_range(a->w, 200, 6000);
    m.include_guid_ranges = a->told;
    m.topic_data.v = &t;
    m.topic_data.n = 1;
    return kw_encode(&kw_produce_request_desc, rq->version, &m, out);
}

/* ---- Lookups ---- */

static void looked_up(struct app *a, struct kw_in *body, struct kw_arena *arena) {
    struct kw_lookup_guid_response m;
    if (kw_decode(a->rq.api->response, a->rq.version, body, arena, &m) != KW_OK) return; /* no memory, or not from a broker */
    if (m.topics.n != 1 || m.topics.v[0].partitions.n != 1)
        sim_fail(a->w, 14, "LookupGuid answers something else");
    const struct kw_lookup_guid_response_partition_result *p = &m.topics.v[0].partitions.v[0];
    sim_trace(a->w, "ids of %d-%d are looked up: %d", a->topic, a->partition, p->error_code);
    if (p->error_code) return;
    if (p->ids.n != LOOKUPS) sim_fail(a->w, 14, "LookupGuid answers %d ids of %d", p->ids.n, LOOKUPS);
    sim_fire(a->w, SIM_F_GUID_LOOKUP);
    for (int i = 0; i < LOOKUPS; i++) {
        const struct kw_lookup_guid_response_id_result *d = &p->ids.v[i];
        if (d->state < 0 || d->state > 2 || (d->state != 0) != (d->offset >= 0) || (d->state == 1 && d->offset >= p->high_watermark) ||
            (d->state == 2 && d->offset < p->high_watermark))
            sim_fail(a->w, 14, "LookupGuid: %d-%d, id %u: state %d, offset %lld, high watermark %lld", a->topic, a->partition, a->asked[i], d->state,
                     (long long)d->offset, (long long)p->high_watermark);
        sim_check_guid_lookup(a->r, a->node, a->topic, a->partition, a->asked[i], a->asked_us, a->life, p->leader_epoch, d->state, d->offset);
    }
}

/* ---- Reading by records alone ---- */

/* Consumers of old days begin where the last record that they were given ends, and take what was given without one for the end of the log. Before a
 * batch with records only a control batch may come, which they know. */
static void judge(struct app *a, const struct kw_fetch_response_partition_data *p, int64_t *at) {
    const uint8_t *v = p->records.p;
    size_t n = p->records.len > 0 ? (size_t)p->records.len : 0;
    bool first = true;
    for (size_t i = 0; i + KW_BATCH_HEADER_SIZE <= n;) {
        struct kw_batch_header h;
        size_t whole = (size_t)kw_batch_size_peek(v + i, n - i);
        if (whole > n - i) break;
        if (kw_batch_parse(v + i, whole, &h) != KW_OK || !kw_batch_crc_ok(v + i, whole))
            sim_fail(a->w, 10, "%d-%d: at offset %lld no sound batch was served", a->topic, a->partition, (long long)*at);
        bool control = h.attributes & KW_ATTR_CONTROL;
        if (first && h.record_count == 0 && !control)
            sim_fail(a->w, 36, "%d-%d: a consumer at offset %lld is given a batch without records first (%lld to %lld): it stalls there", a->topic,
                     a->partition, (long long)*at, (long long)h.base_offset, (long long)(h.base_offset + h.last_offset_delta));
        first = false;
        *at = KW_MAX(*at, h.base_offset + h.last_offset_delta + 1);
        i += whole;
    }
}

static void fetched(struct app *a, struct kw_in *body, struct kw_arena *arena) {
    struct kw_fetch_response m;
    if (kw_decode(a->rq.api->response, a->rq.version, body, arena, &m) != KW_OK) return;
    if (m.error_code || m.responses.n != 1 || m.responses.v[0].partitions.n != 1) return;
    const struct kw_fetch_response_partition_data *p = &m.responses.v[0].partitions.v[0];
    int64_t *at = &a->position[a->topic][a->partition], was = *at;
    const struct sim_log *l = sim_model_log(a->m, a->topic, a->partition);
    if (p->error_code == KE_OFFSET_OUT_OF_RANGE) *at = KW_MAX(p->log_start_offset, 0);
    if (p->error_code || l->tainted || a->m->topics[a->topic].churned) return;
    judge(a, p, at);
    if (*at == was && was < p->high_watermark && p->records.len <= 0)
        sim_fail(a->w, 36, "%d-%d: a consumer at offset %lld is given nothing, and the high watermark is %lld", a->topic, a->partition, (long long)was,
                 (long long)p->high_watermark);
    if (*at >= p->high_watermark) *at = (int64_t)sim_below(a->w, (uint64_t)KW_MAX(p->high_watermark, 1));
}

/* ---- One request after the other ---- */

static void done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct app *a = rq->ctx;
    struct kw_arena arena;
    (void)blk;
    a->busy = false;
    if (a->stopping) return;
    kw_arena_init(&arena, 0);
    if (a->op == PRODUCE) produced(a, err, body, &arena);
    if (a->op == LOOKUP && err == KC_OK) looked_up(a, body, &arena);
    if (a->op == FETCH && err == KC_OK) fetched(a, body, &arena);
    if (a->op == PID && err == KC_OK) {
        struct kw_init_producer_id_response m;
        if (kw_decode(rq->api->response, rq->version, body, &arena, &m) == KW_OK && m.error_code == 0) {
            a->pid = m.producer_id;
            a->pid_epoch = m.producer_epoch;
        }
    }
    kw_arena_deinit(&arena);
    a->role.next_us = a->w->now_us + a->every_us / 2 + (int64_t)sim_below(a->w, (uint64_t)a->every_us);
    sim_host_wake(&a->role.client->host, a->role.next_us);
}

static int32_t leader(struct app *a) {
    const struct kc_topic_meta *t = kc_metadata_topic(a->role.client->core, a->topic + 1);
    return t && a->partition < t->partition_count ? t->partitions[a->partition].leader : -1;
}

static bool choose(struct app *a) { /* what to do, and where */
    struct sim_world *w = a->w;
    if (a->n == 0) {
        do a->topic = (int)sim_below(w, (uint64_t)a->m->topic_count);
        while (!a->m->topics[a->topic].guid);
        a->partition = (int)sim_below(w, (uint64_t)KW_MIN(a->m->topics[a->topic].partitions, SIM_GUID_PARTS));
        int what = (int)sim_below(w, 8);
        a->op = what < 4 && !w->healed ? PRODUCE : what < 6 ? LOOKUP : FETCH;
        if (a->op == PRODUCE && a->idempotent && a->pid < 0) a->op = PID;
    } else {
        a->op = PRODUCE;
    }
    if (a->op == PID) return true;
    int32_t id = leader(a);
    if (id < 0) return false;
    a->rq.broker = id;
    a->node = a->r->cluster ? sim_cluster_node(a->r->cluster, id) : 0;
    if (a->node < 0) return false;
    a->life = a->r->nodes[a->node].lives;
    return true;
}

static void fill_lookup(struct app *a) {
    for (int i = 0; i < LOOKUPS; i++) {
        uint32_t of = 0;
        bool any = false;
        for (int k = 0; k < 30 && !any; k++) any = sim_guid_twin(a->m, a->topic, i < 6 ? a->partition : -1, &of);
        a->asked[i] = any ? a->m->records[of].guid1 - 1 : UINT32_MAX - 1; /* nobody's */
        sim_guid_bytes(a->r->guids, a->asked[i], a->asked_ids[i]);
    }
}

static bool work(struct sim_role *r) {
    static const int16_t apis[] = {KW_API_INIT_PRODUCER_ID, KW_API_PRODUCE, KW_API_LOOKUP_GUID, KW_API_FETCH};
    struct app *a = (struct app *)r;
    if (a->busy || a->stopping || r->next_us > a->w->now_us) return false;
    struct kc_request rq;
    kc_request_init(&rq, KW_API_PRODUCE);
    a->rq = rq;
    bool go = choose(a);
    int32_t broker = a->rq.broker;
    if (go) kc_request_init(&a->rq, apis[a->op]);
    a->rq.broker = a->op == PID ? KC_BROKER_ANY : broker;
    if (!go) {
        if (a->n && ++a->tries > 4 * TRIES_MAX) report_all(a, KC_TIMED_OUT, a->sent);
        r->next_us = a->w->now_us + a->every_us;
        sim_host_wake(&r->client->host, r->next_us);
        return false;
    }
    if (a->op == PRODUCE && a->n == 0) make_batch(a);
    if (a->op == LOOKUP) fill_lookup(a);
    if (a->op == PRODUCE) {
        a->rq.channel = KC_CHANNEL_PRODUCE;
        a->rq.no_answer = a->acks == 0;
        a->rq.version_max = a->told ? 12 : (int16_t)sim_range(a->w, 3, 12); /* those that name topics */
        a->rq.version_min = 3;
    }
    if (a->op == FETCH) a->rq.version_max = (int16_t)sim_range(a->w, 4, 11);
    if (a->op == FETCH) a->rq.version_min = 4;
    a->asked_us = a->w->now_us;
    a->rq.encode = encode;
    a->rq.done = done;
    a->rq.ctx = a;
    a->rq.deadline_us = sim_client_now(r->client).mono_us + 12 * SIM_S;
    a->busy = true;
    r->next_us = SIM_NEVER;
    kc_core_send(r->client->core, &a->rq);
    return true;
}

/* ---- Life ---- */

static void stop(struct sim_role *r) {
    struct app *a = (struct app *)r;
    a->stopping = true;
    sim_model_dropped(a->m, a->number);
    if (a->busy) kc_core_cancel(r->client->core, &a->rq);
}
static bool stopped(const struct sim_role *r) {
    return !((const struct app *)r)->busy;
}
static void free_role(struct sim_role *r) {
    struct app *a = (struct app *)r;
    sim_content_deinit(&a->content);
    kw_compressor_free(a->compressor);
    free(a->batch);
    free(a);
}

struct sim_role *sim_guid_app_new(struct sim_client *c, struct sim_run *r) {
    struct app *a = sim_need(calloc(1, sizeof *a));
    struct sim_model *m = &r->model;
    a->role = (struct sim_role){.next_us = c->w->now_us, .work = work, .stop = stop, .stopped = stopped, .free = free_role};
    a->r = r;
    a->w = c->w;
    a->m = m;
    a->compressor = sim_need(kw_compressor_new());
    a->batch = sim_need(malloc(BATCH_BYTES));
    a->every_us = sim_range(a->w, 20 * SIM_MS, 300 * SIM_MS);
    int kind = (int)sim_below(a->w, 8);
    a->acks = kind < 6 ? -1 : kind == 6 ? 1 : 0;
    a->idempotent = kind < 3;
    a->told = sim_below(a->w, 4) > 0;
    a->pid = -1;
    a->number = (int)m->producer_count;
    m->producers = sim_grow(m->producers, m->producer_count, &m->producer_cap, sizeof *m->producers);
    m->producers[m->producer_count++] = (struct sim_producer_facts){.acks = a->acks, .delivery_timeout_us = KC_FOREVER, .alive = true};
    sim_trace(a->w, "producer %d of ids on %s: acks %d, idempotent %d, told %d", a->number, c->host.name, a->acks, a->idempotent, a->told);
    for (int t = 0; t < m->topic_count; t++) kc_metadata_want(c->core, t + 1);
    sim_client_add(c, &a->role);
    return &a->role;
}
