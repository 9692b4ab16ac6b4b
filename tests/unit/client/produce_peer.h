/* produce_peer.h - a producer's core on the virtual net of peer.h, and a broker that keeps logs, numbers of producers, and a script of faults.
 *
 * The broker judges what it is sent as Kafka does: structure and CRC of every batch, the leader, epoch and sequence, the last five batches of a producer.
 */
#ifndef TESTS_CLIENT_PRODUCE_PEER_H
#define TESTS_CLIENT_PRODUCE_PEER_H

#include "peer.h"

#include "produce/produce.h"
#include "wire/batch.h"

#define MS 1000
#define SECOND 1000000

enum { LOG_MAX = 1 << 17, PARTS_MAX = 8, PRODUCERS_MAX = 64, REMEMBERED = 5, REPORTS_MAX = 1 << 17, TRACE_MAX = 4096 };

struct stored {
    uint64_t value;       /* first bytes of the value, see send_n */
    int32_t key_len, value_len, header_count;
    int64_t timestamp;
    uint8_t guid[16];
    bool hole;            /* a duplicate's place */
};
struct producer_state {
    int64_t id;
    int16_t epoch;
    int32_t last_sequence;
    struct {
        int32_t first, last;
        int64_t offset;
    } recent[REMEMBERED];
    int recent_count;
};
struct part_log {
    struct stored *records;
    int64_t count;
    struct producer_state producers[PRODUCERS_MAX];
    int producer_count;
    bool forgets;         /* a producer's state is lost before the next batch */
};
enum verdict { /* of the script, for one partition of a request */
    V_SERVE = 0,
    V_ERROR = 1,          /* answer `code`, store nothing */
    V_STORE_ERROR = 2,    /* store, then answer `code` */
    V_LOSE = 3,           /* store, and the connection breaks before the answer */
    V_BREAK = 4,          /* the connection breaks, nothing stored */
    V_SILENT = 5,         /* nothing stored, no answer */
    V_STORE_SILENT = 6,
};
struct sent { /* one batch as it came */
    int32_t broker, partition, topic;
    struct kw_batch_header h;
    uint32_t crc, size;
    int64_t at_us;
    int16_t version, code; /* code: what it was answered */
    uint8_t *bytes;        /* with world.keep_bytes */
};
struct world {
    struct net *net;
    struct kc_produce *p;
    struct part_log logs[NET_TOPICS][PARTS_MAX];
    struct sent *trace;
    int trace_count;
    enum verdict (*script)(struct world *w, const struct sent *s, int16_t *code);
    int step;             /* the script's own */
    bool stored;          /* … and this */
    bool keep_bytes;
    int64_t next_pid;
    int16_t pid_error;
    int pid_requests;
    int32_t throttle_ms;
    bool hint_leader;     /* KIP-951 */
    int bad_index;        /* >= 0: record_errors for INVALID_RECORD */
    int32_t max_bytes;    /* 0: no limit */
    bool log_append_time;
    bool dedups;          /* the topics have message.guid.dedup=true */
    bool forgets_offsets; /* … but where its duplicates are is not known any more */
    void (*spoil)(struct kw_produce_response_guid_result *g); /* the answer's ranges, before they go out */
    int announced;        /* requests that asked for ranges */
    int64_t slow_us[NET_BROKERS];
    kc_report *reports;
    int report_count;
    kc_err last_message_err;
    char last_message[512];
    bool stopped, closed;
    kc_err closed_err;
    int reports_ready, space_ready, signals;
    int32_t topic;
    uint64_t next_value;
};

/* ---- The broker ---- */

static inline struct kw_compressor *peer_compressor(void) {
    static struct kw_compressor *c;
    if (!c) c = kw_compressor_new();
    if (!c) c = kw_compressor_new();
    return c;
}

static inline struct producer_state *state_of(struct part_log *l, int64_t id) {
    for (int i = 0; i < l->producer_count; i++)
        if (l->producers[i].id == id) return &l->producers[i];
    return NULL;
}

/* 0: append. Else the code; *dup_offset >= 0 with success: stored before. */
static inline int16_t judge(struct part_log *l, const struct kw_batch_header *h, int64_t *dup_offset) {
    *dup_offset = -1;
    if (h->producer_id < 0) return KE_NONE;
    int32_t last = (int32_t)(((uint32_t)h->base_sequence + (uint32_t)h->record_count - 1) & 0x7fffffff);
    if (l->forgets) {
        l->forgets = false;
        l->producer_count = 0;
        if (h->base_sequence != 0) return KE_UNKNOWN_PRODUCER_ID;
    }
    struct producer_state *s = state_of(l, h->producer_id);
    if (!s) {
        if (h->base_sequence != 0) return KE_OUT_OF_ORDER_SEQUENCE_NUMBER; /* KAFKA-15591 */
        assert_true(l->producer_count < PRODUCERS_MAX);
        s = &l->producers[l->producer_count++];
        *s = (struct producer_state){.id = h->producer_id, .epoch = h->producer_epoch, .last_sequence = -1};
    } else if (h->producer_epoch < s->epoch) {
        return KE_INVALID_PRODUCER_EPOCH;
    } else if (h->producer_epoch > s->epoch) {
        if (h->base_sequence != 0) return KE_OUT_OF_ORDER_SEQUENCE_NUMBER;
        *s = (struct producer_state){.id = h->producer_id, .epoch = h->producer_epoch, .last_sequence = -1};
    }
    for (int i = 0; i < s->recent_count; i++)
        if (s->recent[i].first == h->base_sequence && s->recent[i].last == last) {
            *dup_offset = s->recent[i].offset;
            return KE_NONE;
        }
    int32_t expected = (int32_t)(((uint32_t)s->last_sequence + 1) & 0x7fffffff);
    if (h->base_sequence != expected) return KE_OUT_OF_ORDER_SEQUENCE_NUMBER;
    s->last_sequence = last;
    if (s->recent_count == REMEMBERED) {
        memmove(&s->recent[0], &s->recent[1], sizeof s->recent[0] * (REMEMBERED - 1));
        s->recent_count--;
    }
    s->recent[s->recent_count].first = h->base_sequence;
    s->recent[s->recent_count].last = last;
    s->recent[s->recent_count++].offset = l->count;
    return KE_NONE;
}

static inline void store(struct world *w, struct part_log *l, const uint8_t *p, size_t size, const struct kw_batch_header *h) {
    const uint8_t *body;
    size_t body_size;
    kw_err err = kw_batch_body(p, size, h, 64 << 20, peer_compressor(), &body, &body_size);
    if (err == KW_ENOMEM) err = kw_batch_body(p, size, h, 64 << 20, peer_compressor(), &body, &body_size);
    assert_int_equal(err, KW_OK);
    struct kw_record_iter it;
    struct kw_record_view v;
    kw_record_iter_init(&it, h, body, body_size);
    while (kw_record_next(&it, &v) == 1) {
        assert_true(l->count < LOG_MAX);
        if (!l->records) l->records = calloc(LOG_MAX, sizeof *l->records);
        struct stored *s = &l->records[l->count++];
        *s = (struct stored){.key_len = v.key.len, .value_len = v.value.len, .header_count = v.header_count, .timestamp = v.timestamp};
        if (v.value.len >= 8) memcpy(&s->value, v.value.p, 8);
        struct kw_in in;
        struct kw_header_view hv;
        kw_in_init(&in, v.headers, v.headers_size);
        while (kw_record_header_next(&in, &hv) == 1)
            if (hv.value.len == 16) memcpy(s->guid, hv.value.p, 16);
    }
    (void)w;
}

/* What the records of a batch are to the log: duplicates become holes, and ranges of the answer. All of them: nothing but holes is stored. */
static inline void dedup(struct world *w, struct part_log *l, int64_t base, struct kw_produce_response_partition_produce_response *a, bool asked) {
    static struct kw_produce_response_guid_range ranges[4096];
    static const uint8_t none[16];
    int32_t n = 0;
    for (int64_t i = base; i < l->count; i++) {
        struct stored *s = &l->records[i];
        int64_t first = -1;
        for (int64_t k = 0; k < i && first < 0; k++)
            if (!l->records[k].hole && memcmp(l->records[k].guid, s->guid, 16) == 0 && memcmp(s->guid, none, 16) != 0) first = k;
        if (first < 0) continue;
        s->hole = true;
        int8_t flags = (int8_t)((l->records[first].value != s->value ? 1 : 0) | (w->forgets_offsets ? 2 : 0));
        int32_t index = (int32_t)(i - base);
        struct kw_produce_response_guid_range *last = n > 0 ? &ranges[n - 1] : NULL;
        if (last && last->index + last->count == index && last->first_offset + last->count == first && last->flags == flags) {
            last->count++;
        } else {
            assert_true(n < (int32_t)KW_COUNTOF(ranges));
            ranges[n++] = (struct kw_produce_response_guid_range){.index = index, .count = 1, .first_offset = w->forgets_offsets ? -1 : first, .flags = flags};
        }
    }
    if (!asked) return;
    a->guid.deduped = true;
    a->guid.ranges.v = net_calloc(w->net, (size_t)n + 1, sizeof *ranges);
    memcpy(a->guid.ranges.v, ranges, (size_t)n * sizeof *ranges);
    a->guid.ranges.n = n;
    if (w->spoil) w->spoil(&a->guid);
}

static inline int topic_at(struct net *n, struct kw_str name, struct kw_uuid id, bool by_id) {
    for (size_t i = 0; i < n->topic_count; i++)
        if (by_id ? kw_uuid_eq(n->topics[i].id, id) : kw_str_eq(kw_str_of(n->topics[i].name), name)) return (int)i;
    return -1;
}

static inline void serve_batch(struct world *w, struct request *rq, int32_t broker, int topic, int32_t index, const struct kw_records *rec,
                               struct kw_produce_response_partition_produce_response *a, bool asked, enum verdict *worst) {
    struct sent s = {.broker = broker, .partition = index, .topic = topic, .size = (uint32_t)rec->len, .at_us = w->net->now.mono_us,
                     .version = rq->head.version};
    assert_int_equal(kw_batch_parse(rec->p, (size_t)rec->len, &s.h), KW_OK);
    s.crc = s.h.crc;
    struct kw_batch_check check = {.limit = 64 << 20, .compressor = peer_compressor()};
    struct kw_batch_facts facts;
    const char *why = "";
    kw_err err = kw_batch_check(rec->p, (size_t)rec->len, &check, &facts, &why);
    if (err == KW_ENOMEM) err = kw_batch_check(rec->p, (size_t)rec->len, &check, &facts, &why); /* a planned failure that hit us */
    if (err == KW_OK) assert_int_equal(facts.max_timestamp, s.h.max_timestamp);
    else fail_msg("a batch is not sound: %s", why);
    assert_true(w->trace_count < TRACE_MAX);
    if (w->keep_bytes) {
        s.bytes = malloc((size_t)rec->len);
        memcpy(s.bytes, rec->p, (size_t)rec->len);
    }
    struct sent *traced = &w->trace[w->trace_count++];
    *traced = s;
    int16_t code = KE_NONE;
    enum verdict v = w->script ? w->script(w, &s, &code) : V_SERVE;
    if (v != V_ERROR && v != V_STORE_ERROR) code = KE_NONE;
    a->index = index;
    a->log_append_time_ms = a->log_start_offset = a->base_offset = -1;
    a->error_message = kw_str_null();
    a->current_leader.leader_id = a->current_leader.leader_epoch = -1;
    if (v == V_SERVE || v == V_STORE_ERROR || v == V_LOSE || v == V_STORE_SILENT) {
        int64_t dup;
        struct model_topic *t = topic < 0 ? NULL : &w->net->topics[topic];
        int16_t refused = KE_NONE;
        if (!t || t->err) refused = rq->head.version >= 13 ? KE_UNKNOWN_TOPIC_ID : KE_UNKNOWN_TOPIC_OR_PARTITION;
        else if (index >= t->partitions) refused = KE_UNKNOWN_TOPIC_OR_PARTITION;
        else if (t->leader[index] != broker) refused = KE_NOT_LEADER_OR_FOLLOWER;
        else if (w->max_bytes && rec->len > w->max_bytes) refused = KE_MESSAGE_TOO_LARGE;
        if (!refused) refused = judge(&w->logs[topic][index], &s.h, &dup);
        if (refused) {
            code = refused;
            if (refused == KE_NOT_LEADER_OR_FOLLOWER && w->hint_leader) {
                a->current_leader.leader_id = t->leader[index];
                a->current_leader.leader_epoch = t->epoch[index];
            }
        } else if (dup >= 0) { /* the same batch once more: with ids, each of its records is looked up */
            struct part_log *l = &w->logs[topic][index];
            a->base_offset = dup;
            if (w->dedups) {
                int64_t was = l->count;
                store(w, l, rec->p, (size_t)rec->len, &s.h);
                dedup(w, l, was, a, asked);
                l->count = was;
            }
        } else {
            a->base_offset = w->logs[topic][index].count;
            store(w, &w->logs[topic][index], rec->p, (size_t)rec->len, &s.h);
            if (w->log_append_time) a->log_append_time_ms = 77;
            if (w->dedups) dedup(w, &w->logs[topic][index], a->base_offset, a, asked);
        }
    }
    a->error_code = traced->code = code;
    if (code) a->base_offset = -1;
    if (getenv("PEER_LOG"))
        fprintf(stderr, "%10.3f produce to %d: partition %d, %d records, epoch %d sequence %d: verdict %d code %d offset %lld\n", (double)s.at_us / 1e6,
                (int)broker, (int)index, (int)s.h.record_count, (int)s.h.producer_epoch, (int)s.h.base_sequence, (int)v, (int)code, (long long)a->base_offset);
    if (v > *worst) *worst = v;
}

static inline bool serve_produce(struct world *w, struct request *rq, int32_t broker) {
    struct kw_produce_request q;
    struct kw_produce_response m;
    static struct kw_produce_response_topic_produce_response topics[64];
    static struct kw_produce_response_partition_produce_response parts[512];
    static struct kw_produce_response_batch_index_and_error_message bad;
    static struct kw_produce_response_node_endpoint nodes[NET_BROKERS];
    struct kw_arena arena;
    kw_arena_init(&arena, 0);
    struct kw_in again = rq->body;
    kw_err err = kw_decode(&kw_produce_request_desc, rq->head.version, &rq->body, &arena, &q);
    if (err == KW_ENOMEM) {
        rq->body = again;
        err = kw_decode(&kw_produce_request_desc, rq->head.version, &rq->body, &arena, &q);
    }
    assert_int_equal(err, KW_OK);
    assert_int_equal(kw_in_left(&rq->body), 0);
    assert_true(q.topic_data.n > 0);
    w->announced += q.include_guid_ranges;
    kw_msg_init(&kw_produce_response_desc, &m);
    m.responses.v = topics;
    enum verdict worst = V_SERVE;
    int used = 0;
    for (int32_t i = 0; i < q.topic_data.n; i++) {
        const struct kw_produce_request_topic_produce_data *t = &q.topic_data.v[i];
        topics[i] = (struct kw_produce_response_topic_produce_response){.name = t->name, .topic_id = t->topic_id};
        topics[i].partition_responses.v = &parts[used];
        topics[i].partition_responses.n = t->partition_data.n;
        m.responses.n++;
        int at = topic_at(w->net, t->name, t->topic_id, rq->head.version >= 13);
        for (int32_t k = 0; k < t->partition_data.n; k++, used++) {
            memset(&parts[used], 0, sizeof parts[used]);
            serve_batch(w, rq, broker, at, t->partition_data.v[k].index, &t->partition_data.v[k].records, &parts[used], q.include_guid_ranges, &worst);
            if (parts[used].error_code == KE_INVALID_RECORD && w->bad_index >= 0) {
                bad.batch_index = w->bad_index;
                bad.batch_index_error_message = kw_str_of("this one is bad");
                parts[used].record_errors.v = &bad;
                parts[used].record_errors.n = 1;
            }
        }
    }
    int16_t acks = q.acks;
    kw_arena_deinit(&arena);
    if (worst == V_LOSE || worst == V_BREAK) {
        link_lost(rq->link, KW_EIO, "connection reset by peer");
        return true;
    }
    if (worst == V_SILENT || worst == V_STORE_SILENT || acks == 0) return true;
    m.throttle_time_ms = w->throttle_ms;
    if (w->hint_leader) {
        m.node_endpoints.v = nodes;
        for (size_t i = 0; i < w->net->broker_count; i++)
            nodes[m.node_endpoints.n++] = (struct kw_produce_response_node_endpoint){
                .node_id = w->net->brokers[i].id, .host = kw_str_of(w->net->brokers[i].host), .port = w->net->brokers[i].port, .rack = kw_str_null()};
    }
    net_answer(rq, &m);
    return true;
}

static inline bool world_hook(struct net *n, struct request *rq) {
    struct world *w = n->ctx;
    struct model_broker *b = net_broker_at(n, rq->link->host, rq->link->port);
    if (b && b->silent) return true;
    if (rq->head.api_key == KW_API_PRODUCE) return serve_produce(w, rq, b ? b->id : -1);
    if (rq->head.api_key == KW_API_INIT_PRODUCER_ID) {
        struct kw_init_producer_id_response m;
        kw_msg_init(&kw_init_producer_id_response_desc, &m);
        w->pid_requests++;
        m.error_code = w->pid_error;
        m.producer_id = w->pid_error ? -1 : w->next_pid++;
        m.producer_epoch = w->pid_error ? -1 : 0;
        net_answer(rq, &m);
        return true;
    }
    return false;
}

/* ---- The producer ---- */

static inline struct kc_now world_clock(void *ctx) { return ((struct world *)ctx)->net->now; }
static inline void world_wake(void *ctx) { kc_produce_turn(((struct world *)ctx)->p); }
static inline void world_signal(void *ctx) { ((struct world *)ctx)->signals++; }
static inline void world_ready(void *ctx, int32_t kind) {
    struct world *w = ctx;
    if (kind == KC_READY_REPORTS) w->reports_ready++;
    else w->space_ready++;
}
static const struct kc_accum_calls world_calls = {.clock = world_clock, .wake = world_wake, .signal = world_signal, .ready = world_ready};

/* One broker (id 1, b0:9092) and topic "t" with `partitions`, unless the test makes its own. */
static inline struct world *world_new(const char *const *pairs, int32_t partitions) {
    struct world *w = calloc(1, sizeof *w);
    w->trace = calloc(TRACE_MAX, sizeof *w->trace);
    w->reports = calloc(REPORTS_MAX, sizeof *w->reports);
    w->net = net_new(pairs);
    w->net->ctx = w;
    w->net->hook = world_hook;
    w->next_pid = 1000;
    w->bad_index = -1;
    net_broker(w->net, 1, "b0", 9092);
    if (partitions > 0) net_topic(w->net, "t", 1, partitions, 1);
    w->p = calloc(1, sizeof *w->p);
    assert_int_equal(kc_produce_init(w->p, w->net->core, w->net->settings, &world_calls, w), KW_OK);
    w->topic = kc_metadata_intern(w->net->core, "t", 1);
    assert_true(w->topic > 0);
    assert_int_equal(kc_accum_add_topic(&w->p->accum, w->topic), KC_OK);
    return w;
}

static inline void world_stopped(struct kc_sender *s) {
    struct kc_produce *p = KW_CONTAINER_OF(s, struct kc_produce, sender);
    ((struct world *)p->accum.ctx)->stopped = true;
}

static inline void world_drain(struct world *w) {
    struct kc_reports *r;
    while (kc_reports_collect(&w->p->accum, NULL, &r) == KC_OK) {
        kc_report one;
        size_t before = (size_t)w->report_count;
        while (kc_reports_next(r, &one)) {
            assert_true(w->report_count < REPORTS_MAX);
            w->reports[w->report_count++] = one;
            if (one.err) {
                const kc_error *e = kc_reports_error(r);
                assert_non_null(e);
                w->last_message_err = kc_error_code(e);
                snprintf(w->last_message, sizeof w->last_message, "%s", kc_error_message(e));
            }
        }
        assert_int_equal((size_t)w->report_count - before, kc_reports_count(r));
        kc_reports_give_back(r);
    }
}

static inline void world_free(struct world *w) {
    kc_produce_stop(w->p, world_stopped);
    net_turn(w->net);
    net_advance(w->net, 1);
    assert_true(w->stopped);
    world_drain(w);
    kc_produce_detach(w->p);
    assert_false(kw_timer_armed(&w->p->sender.timer) || kw_timer_armed(&w->p->sender.pid.timer) || kw_timer_armed(&w->p->close_timer));
    assert_int_equal(w->p->accum.records, 0); /* every place in the queue was given back */
    assert_int_equal(w->p->accum.bytes, 0);
    kc_produce_deinit(w->p);
    free(w->p);
    net_free(w->net);
    for (int t = 0; t < NET_TOPICS; t++)
        for (int i = 0; i < PARTS_MAX; i++) free(w->logs[t][i].records);
    for (int i = 0; i < w->trace_count; i++) free(w->trace[i].bytes);
    free(w->trace);
    free(w->reports);
    free(w);
}

struct rec_room {
    struct kw_header_view headers[16];
};
/* partition -1: free choice. */
static inline kc_err world_send(struct world *w, int32_t partition, const void *key, int32_t key_len, const void *value, int32_t value_len,
                                uint64_t opaque) {
    struct rec_room room;
    struct kc_rec r = {.topic = w->topic, .partition = partition, .key = {key, key_len}, .value = {value, value_len}, .headers = room.headers,
                       .opaque = opaque};
    kc_err err = kc_accum_prepare(&w->p->accum, &r);
    if (err) return err;
    bool wake = false;
    err = kc_accum_put(&w->p->accum, &r, &w->net->now, false, &wake);
    if (wake) kc_produce_turn(w->p);
    return err;
}

/* n records with ascending values of `size` bytes; the opaque is the value. Each is accepted. */
static inline void world_send_n(struct world *w, int32_t partition, int n, int32_t size) {
    uint8_t value[4096] = {0};
    assert_true(size >= 8 && size <= (int32_t)sizeof value);
    for (int i = 0; i < n; i++) {
        uint64_t v = ++w->next_value;
        memcpy(value, &v, 8);
        assert_int_equal(world_send(w, partition, NULL, -1, value, size, v), KC_OK);
    }
}
/* One with a limit of its own; `urgent` leaves at once. */
static inline void world_send_within(struct world *w, int32_t partition, int64_t timeout_us, bool urgent) {
    struct rec_room room;
    uint64_t v = ++w->next_value;
    struct kc_rec r = {.topic = w->topic, .partition = partition, .key = {NULL, -1}, .value = {(const uint8_t *)&v, 8}, .headers = room.headers,
                       .opaque = v, .timeout_us = timeout_us};
    bool wake = false;
    assert_int_equal(kc_accum_prepare(&w->p->accum, &r), KC_OK);
    assert_int_equal(kc_accum_put(&w->p->accum, &r, &w->net->now, urgent, &wake), KC_OK);
    if (wake) kc_produce_turn(w->p);
}
/* n records as world_send_n has them, each in a batch of its own. */
static inline void world_send_batches(struct world *w, int32_t partition, int n) {
    for (int i = 0; i < n; i++) {
        world_send_n(w, partition, 1, 16);
        kc_lock_take(&w->p->accum.lock);
        kc_accum_seal_all(&w->p->accum);
        kc_lock_give(&w->p->accum.lock);
        kc_produce_turn(w->p);
    }
}

/* The first record of a world goes to partition 0 and is stored: the connection is there, and the producer id. */
static inline void world_first(struct world *w) {
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100 * MS);
    assert_int_equal(w->trace_count, 1);
    assert_int_equal(w->logs[0][0].count, 1);
}
/* Another leader; the client is told when it asks, or at once. */
static inline void world_move(struct world *w, int32_t to, bool told) {
    w->net->topics[0].leader[0] = to;
    w->net->topics[0].epoch[0]++;
    if (told) kc_metadata_refresh(w->net->core, "test");
}
static inline const struct sent *world_last(const struct world *w) {
    assert_true(w->trace_count > 0);
    return &w->trace[w->trace_count - 1];
}
static inline void assert_first_epoch(const struct world *w) { /* nothing was sent in another */
    for (int i = 0; i < w->trace_count; i++) assert_int_equal(w->trace[i].h.producer_epoch, 0);
}

/* The log of a partition holds values 1 … n in order, each once. */
static inline void assert_log(struct world *w, int32_t partition, int n) {
    struct part_log *l = &w->logs[0][partition];
    assert_int_equal(l->count, n);
    for (int i = 0; i < n; i++) assert_int_equal(l->records[i].value, i + 1);
}
/* One report for each of 1 … n, all stored at the offset told. */
static inline void assert_all_ok(struct world *w, int n) {
    world_drain(w);
    assert_int_equal(w->report_count, n);
    char *seen = calloc((size_t)n + 1, 1);
    for (int i = 0; i < n; i++) {
        const kc_report *r = &w->reports[i];
        assert_in_range(r->opaque, 1, n);
        assert_false(seen[r->opaque]);
        seen[r->opaque] = 1;
        assert_int_equal(r->err, KC_OK);
        assert_int_equal(r->outcome, KC_PERSISTED);
        if (r->offset >= 0) assert_int_equal(w->logs[0][r->partition].records[r->offset].value, r->opaque);
        else assert_true(r->flags & KC_REPORT_DUPLICATE);
    }
    free(seen);
}
static inline int count_err(struct world *w, kc_err err) {
    int n = 0;
    for (int i = 0; i < w->report_count; i++) n += w->reports[i].err == err;
    return n;
}

/* ---- What several tests use ---- */

static const char *const plain[] = {"enable.idempotence", "false", "linger.ms", "5", NULL};
static const char *const idempotent[] = {"linger.ms", "5", NULL};

static inline enum verdict fail_first(struct world *w, const struct sent *s, int16_t *code) {
    (void)s;
    *code = KE_NOT_ENOUGH_REPLICAS;
    return w->step++ == 0 ? V_ERROR : V_SERVE;
}
static inline enum verdict lose_first(struct world *w, const struct sent *s, int16_t *code) {
    (void)s, (void)code;
    return w->step++ == 0 ? V_LOSE : V_SERVE;
}
static inline enum verdict break_first(struct world *w, const struct sent *s, int16_t *code) {
    (void)s, (void)code;
    return w->step++ == 0 ? V_BREAK : V_SERVE;
}
static inline enum verdict never_answer(struct world *w, const struct sent *s, int16_t *code) {
    (void)w, (void)s, (void)code;
    return V_SILENT;
}
static inline enum verdict store_silent_first(struct world *w, const struct sent *s, int16_t *code) {
    (void)s, (void)code;
    return w->step++ == 0 ? V_STORE_SILENT : V_SERVE;
}
static inline enum verdict silent_first(struct world *w, const struct sent *s, int16_t *code) {
    (void)s, (void)code;
    return w->step++ == 0 ? V_SILENT : V_SERVE;
}

#endif
