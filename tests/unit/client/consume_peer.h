/* consume_peer.h - a consumer's core on the virtual net of peer.h, and brokers that keep logs of batches, fetch sessions (KIP-227), leader
 * epochs and a script of faults.
 *
 * The brokers judge what they are sent as Kafka does: the session's epoch, the leader and its epoch, the offset. A fetch that finds nothing
 * waits for its time, as a long poll does.
 */
#ifndef TESTS_CLIENT_CONSUME_PEER_H
#define TESTS_CLIENT_CONSUME_PEER_H

#include "peer.h"

#include "consume/consumer.h"
#include "core/internal.h"
#include "wire/message_set.h"

enum { CW_PARTS = 8, CW_EPOCHS = 8, CW_ABORTED = 16, CW_WAITING = 16, CW_TRACE = 8192, CW_SESSION_PARTS = 64, CW_GOT = 1 << 17 };

struct cw_log {
    struct kw_out bytes;    /* entries, one after another */
    int64_t start, hw, lso; /* lso -1: as hw */
    struct {
        int32_t epoch;
        int64_t start;
    } epochs[CW_EPOCHS];
    int epoch_count;
    struct kw_fetch_response_aborted_transaction aborted[CW_ABORTED];
    int aborted_count;
};
struct cw_fetched { /* one partition of one Fetch, as asked */
    int32_t broker, topic, partition;
    int64_t offset, at_us;
    int32_t epoch, size_max, fetch; /* fetch: number of the request */
    bool named;                     /* by the request, not by the session alone */
};
struct cw_session {
    int32_t id, epoch;
    int32_t count;
    struct cw_fetched parts[CW_SESSION_PARTS];
};
struct cw_wait { /* a fetch that found nothing */
    bool used;
    struct link *link;
    struct kc_conn *conn;
    struct kw_frame_request head;
    int64_t until_us;
    struct cw_session view; /* of a fetch without a session */
    int32_t broker, max_bytes, isolation, fetch;
    bool full;
};
struct got {
    int32_t kind, topic, partition;
    int64_t offset;
    kc_err err;
    int64_t before; /* kc_event_position_before */
};
struct cw {
    struct net *net;
    struct kc_consume c;
    struct kc_task run;
    int notified;
    int32_t topic[NET_TOPICS]; /* the client's numbers of net->topics */
    struct cw_log logs[NET_TOPICS][CW_PARTS];
    struct cw_session sessions[NET_BROKERS];
    struct cw_wait waiting[CW_WAITING];
    struct cw_fetched trace[CW_TRACE];
    int trace_count, fetch_count, lists, epochs_asked, session_fetches;
    int32_t next_session;
    bool rack;                    /* the fetch being served names one */
    bool no_sessions, cut;        /* cut: an old broker that cuts the first batch too */
    /* The test's say, per partition of a fetch: an error to answer, or KE_NONE. */
    int16_t (*script)(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d);
    int16_t (*list_script)(struct cw *w, int32_t broker, int32_t topic, int32_t partition, int64_t timestamp);
    bool (*before)(struct cw *w, struct request *rq); /* true: the test handled it */
    int16_t top_error;
    int32_t frozen; /* the broker of this id answers no fetch */
    bool hint_leader; /* KIP-951 */
    struct got got[CW_GOT];
    int got_count;
    char message[512]; /* of the last error */
    void *ctx;
};

/* ---- Logs ---- */

struct batch_spec {
    int64_t base;
    int32_t n;          /* records, at base, base + step … */
    int32_t step;       /* 0: 1 */
    int32_t last_delta; /* 0: that of the last record */
    int codec;
    int16_t attributes;
    int64_t pid;
    int32_t epoch;
    int32_t value_size; /* 0: the offset as text alone */
    int64_t timestamp;
};

static inline uint8_t *batch_build(const struct batch_spec *b, size_t *size) {
    size_t cap = KW_BATCH_HEADER_SIZE + (size_t)b->n * ((size_t)b->value_size + 128) + 64;
    uint8_t *p = malloc(cap), *at = p + KW_BATCH_HEADER_SIZE;
    char *value = calloc(1, (size_t)b->value_size + 64);
    for (int32_t i = 0; i < b->n; i++) {
        int32_t delta = i * (b->step ? b->step : 1);
        int len = sprintf(value, "v%lld", (long long)(b->base + delta));
        struct kw_record_in r = {
            .timestamp_delta = i, .offset_delta = delta, .key = {NULL, -1}, .value = {(const uint8_t *)value, KW_MAX(len, b->value_size)}};
        at = kw_record_write(at, &r, kw_record_size(&r));
    }
    *size = (size_t)(at - p);
    int32_t last = (b->n - 1) * (b->step ? b->step : 1);
    struct kw_batch_header h = {.base_offset = b->base,
                                .length = (int32_t)(*size - KW_BATCH_OVERHEAD),
                                .leader_epoch = b->epoch,
                                .magic = 2,
                                .attributes = b->attributes,
                                .last_offset_delta = b->last_delta ? b->last_delta
                                                     : last < 0    ? 0
                                                                   : last,
                                .base_timestamp = b->timestamp,
                                .max_timestamp = b->timestamp + b->n,
                                .producer_id = b->pid ? b->pid : -1,
                                .producer_epoch = 0,
                                .base_sequence = -1,
                                .record_count = b->n};
    kw_batch_write_header(p, &h);
    kw_batch_crc_set(p, *size);
    if (b->codec) {
        size_t room = KW_BATCH_HEADER_SIZE + kw_compress_bound(b->codec, *size);
        uint8_t *z = malloc(room);
        struct kw_compressor *c = kw_compressor_new();
        assert_int_equal(kw_batch_compress(c, b->codec, KW_LEVEL_DEFAULT, p, *size, z, room, size), KW_OK);
        kw_compressor_free(c);
        free(p);
        p = z;
    }
    free(value);
    return p;
}

static inline void log_raw(struct cw_log *l, const void *p, size_t size, int64_t hw) {
    kw_out_bytes(&l->bytes, p, size);
    if (hw > l->hw) l->hw = hw;
}
static inline void log_batch(struct cw_log *l, struct batch_spec b) {
    size_t size;
    uint8_t *p = batch_build(&b, &size);
    log_raw(l, p, size, b.base + (int32_t)kw_load32(p + KW_BATCH_LAST_OFFSET_DELTA) + 1);
    free(p);
}
/* n records, `per` a batch, from the log's end. */
static inline void log_fill(struct cw_log *l, int n, int per, int32_t value_size) {
    for (int i = 0; i < n; i += per)
        log_batch(l, (struct batch_spec){.base = l->hw,
                                         .n = per < n - i ? per : n - i,
                                         .value_size = value_size,
                                         .epoch = l->epoch_count ? l->epochs[l->epoch_count - 1].epoch : 0});
}
/* An end marker of a transaction: commit or abort. */
static inline void log_marker(struct cw_log *l, int64_t pid, bool commit) {
    uint8_t buf[256], key[4] = {0, 0, 0, commit ? 1 : 0}, value[6] = {0};
    struct kw_record_in r = {.key = {key, 4}, .value = {value, 6}};
    uint8_t *end = kw_record_write(buf + KW_BATCH_HEADER_SIZE, &r, kw_record_size(&r));
    size_t size = (size_t)(end - buf);
    struct kw_batch_header h = {.base_offset = l->hw,
                                .length = (int32_t)(size - KW_BATCH_OVERHEAD),
                                .magic = 2,
                                .attributes = KW_ATTR_CONTROL | KW_ATTR_TRANSACTIONAL,
                                .producer_id = pid,
                                .base_sequence = -1,
                                .record_count = 1};
    kw_batch_write_header(buf, &h);
    kw_batch_crc_set(buf, size);
    log_raw(l, buf, size, l->hw + 1);
}
static inline void log_reset(struct cw_log *l) {
    l->bytes.len = 0;
    l->start = l->hw = 0;
    l->aborted_count = l->epoch_count = 0;
}

/* ---- Answering ---- */

/* An allocation failure that the test planned may hit us instead of the client: it happens once. */
static inline void request_decode(struct net *n, struct request *rq, const struct kw_desc *desc, void *q) {
    struct kw_in again = rq->body;
    kw_err err = kw_decode(desc, rq->head.version, &rq->body, &n->arena, q);
    if (err == KW_ENOMEM) {
        rq->body = again;
        err = kw_decode(desc, rq->head.version, &rq->body, &n->arena, q);
    }
    assert_int_equal(err, KW_OK);
}

static inline int32_t broker_of(struct net *n, const struct link *l) {
    struct model_broker *b = net_broker_at(n, l->host, l->port);
    return b ? b->id : -1;
}

static inline int topic_by_name(struct net *n, struct kw_str name) {
    for (size_t i = 0; i < n->topic_count; i++)
        if (kw_str_eq(kw_str_of(n->topics[i].name), name)) return (int)i;
    return -1;
}
static inline int topic_by_id(struct net *n, struct kw_uuid id) {
    for (size_t i = 0; i < n->topic_count; i++)
        if (kw_uuid_eq(n->topics[i].id, id)) return (int)i;
    return -1;
}

static inline void log_entries(const struct cw_log *l, int64_t offset, int64_t upto, size_t max, bool first_whole, bool cut,
                               const uint8_t **p, size_t *size) {
    const uint8_t *at = l->bytes.p, *end = at + l->bytes.len;
    *p = NULL;
    *size = 0;
    while (end - at >= KW_BATCH_OVERHEAD) {
        size_t n = (size_t)kw_batch_size_peek(at, (size_t)(end - at));
        int64_t base = (int64_t)kw_load64(at), last = base;
        if (at[KW_BATCH_MAGIC] == 2) last += (int32_t)kw_load32(at + KW_BATCH_LAST_OFFSET_DELTA);
        if (last >= offset && base < upto) {
            if (!*p && n > max && !first_whole && !cut) return;
            if (*p && *size + n > max) return;
            if (!*p) *p = at;
            if (cut && *size + n > max) n = max - *size;
            *size += n;
        }
        at += n;
    }
}

static inline void data_init(struct kw_fetch_response_partition_data *d, int32_t partition) {
    *d = (struct kw_fetch_response_partition_data){.partition_index = partition,
                                                   .high_watermark = -1,
                                                   .last_stable_offset = -1,
                                                   .log_start_offset = -1,
                                                   .preferred_read_replica = -1,
                                                   .diverging_epoch = {-1, -1},
                                                   .current_leader = {-1, -1},
                                                   .snapshot_id = {-1, -1},
                                                   .aborted_transactions = {.n = -1}};
}

/* KE_NONE with or without records, or the error. */
static inline void fetch_part(struct cw *w, const struct cw_fetched *f, int32_t isolation, size_t max, bool first_whole,
                              struct kw_fetch_response_partition_data *d) {
    struct net *n = w->net;
    struct model_topic *t = &n->topics[f->topic];
    data_init(d, f->partition);
    d->error_code = w->script ? w->script(w, f, d) : KE_NONE;
    if (d->error_code || d->records.len != 0 || d->preferred_read_replica >= 0) return;
    if (f->partition >= t->partitions || t->err) {
        d->error_code = KE_UNKNOWN_TOPIC_OR_PARTITION;
        return;
    }
    if (t->leader[f->partition] != f->broker) {
        d->error_code = KE_NOT_LEADER_OR_FOLLOWER;
        if (w->hint_leader) d->current_leader.leader_id = t->leader[f->partition], d->current_leader.leader_epoch = t->epoch[f->partition];
        return;
    }
    if (f->epoch >= 0 && f->epoch != t->epoch[f->partition]) {
        d->error_code = f->epoch < t->epoch[f->partition] ? KE_FENCED_LEADER_EPOCH : KE_UNKNOWN_LEADER_EPOCH;
        return;
    }
    struct cw_log *l = &w->logs[f->topic][f->partition];
    int64_t lso = l->lso >= 0 ? l->lso : l->hw;
    d->high_watermark = l->hw;
    d->last_stable_offset = lso;
    d->log_start_offset = l->start;
    if (f->offset < l->start || f->offset > l->hw) {
        d->error_code = KE_OFFSET_OUT_OF_RANGE;
        return;
    }
    const uint8_t *p;
    size_t size;
    log_entries(l, f->offset, isolation ? lso : l->hw, KW_MIN(max, (size_t)f->size_max), first_whole, w->cut, &p, &size);
    d->records = (struct kw_records){p, (int32_t)size, NULL};
    if (isolation) {
        d->aborted_transactions.n = l->aborted_count;
        d->aborted_transactions.v = l->aborted;
    }
}

/* Answers if there is something to say (or `now`). */
static inline bool fetch_answer(struct cw *w, struct request *rq, struct cw_session *s, int32_t isolation, int32_t max_bytes, int32_t fetch,
                                bool full, bool now) {
    struct net *n = w->net;
    struct kw_fetch_response m;
    struct kw_fetch_response_partition_data *d = calloc(CW_SESSION_PARTS, sizeof *d);
    struct kw_fetch_response_fetchable_topic_response topics[CW_SESSION_PARTS];
    memset(topics, 0, sizeof topics);
    kw_msg_init(&kw_fetch_response_desc, &m);
    m.session_id = s->id;
    m.responses.v = topics;
    size_t left = (size_t)max_bytes;
    bool any = false, say = false;
    struct cw_fetched gave[CW_SESSION_PARTS], *order = malloc(sizeof s->parts);
    int kept = 0, given = 0;
    for (int i = 0; i < s->count; i++) {
        struct cw_fetched *f = &s->parts[i];
        f->fetch = fetch;
        f->at_us = n->now.mono_us;
        fetch_part(w, f, isolation, left, !any, &d[i]);
        bool data = d[i].records.len > 0;
        if (data) {
            any = true;
            left -= KW_MIN(left, (size_t)d[i].records.len);
        }
        bool speaks = data || d[i].error_code || d[i].preferred_read_replica >= 0;
        say |= speaks;
        if (speaks || full || f->named) {
            struct kw_fetch_response_fetchable_topic_response *t = &topics[m.responses.n++];
            t->topic = kw_str_of(n->topics[f->topic].name);
            t->topic_id = n->topics[f->topic].id;
            t->partitions.v = &d[i];
            t->partitions.n = 1;
        }
        if (data)
            gave[given++] = *f;
        else
            order[kept++] = *f;
    }
    if (say || now) {
        memcpy(s->parts, order, (size_t)kept * sizeof *order);
        memcpy(s->parts + kept, gave, (size_t)given * sizeof *gave);
        for (int i = 0; i < s->count; i++) s->parts[i].named = false;
        struct kw_fetch_response_node_endpoint nodes[NET_BROKERS];
        m.node_endpoints.v = nodes;
        for (size_t i = 0; i < n->broker_count && w->hint_leader; i++)
            nodes[m.node_endpoints.n++] = (struct kw_fetch_response_node_endpoint){
                .node_id = n->brokers[i].id, .host = kw_str_of(n->brokers[i].host), .port = n->brokers[i].port, .rack = kw_str_null()};
        net_answer(rq, &m);
    }
    free(order);
    free(d);
    return say || now;
}

static inline struct cw_fetched *session_find(struct cw_session *s, int topic, int32_t partition) {
    for (int i = 0; i < s->count; i++)
        if (s->parts[i].topic == topic && s->parts[i].partition == partition) return &s->parts[i];
    return NULL;
}

static inline void session_error_answer(struct request *rq, int16_t code) {
    struct kw_fetch_response m;
    kw_msg_init(&kw_fetch_response_desc, &m);
    m.error_code = code;
    net_answer(rq, &m);
}

static inline void serve_fetch(struct cw *w, struct request *rq) {
    struct net *n = w->net;
    struct kw_fetch_request q;
    kw_arena_reset(&n->arena);
    request_decode(n, rq, &kw_fetch_request_desc, &q);
    assert_int_equal(kw_in_left(&rq->body), 0);
    int32_t broker = broker_of(n, rq->link);
    int32_t fetch = w->fetch_count++;
    for (int i = 0; i < CW_WAITING; i++) /* brokers answer in order: a second one would wait behind the first */
        assert_false(w->waiting[i].used && w->waiting[i].conn == rq->link->conn);
    w->rack = q.rack_id.len > 0;
    if (w->top_error) {
        session_error_answer(rq, w->top_error);
        return;
    }
    struct cw_session local = {0}, *s = &w->sessions[broker];
    bool full = q.session_id == 0;
    if (rq->head.version < 7 || w->no_sessions || q.session_epoch < 0) {
        s = &local;
        full = true;
    } else if (full) {
        *s = (struct cw_session){.id = ++w->next_session, .epoch = 1};
    } else {
        w->session_fetches++;
        if (s->id != q.session_id) {
            session_error_answer(rq, KE_FETCH_SESSION_ID_NOT_FOUND);
            return;
        }
        if (s->epoch != q.session_epoch) {
            session_error_answer(rq, KE_INVALID_FETCH_SESSION_EPOCH);
            return;
        }
        s->epoch++;
    }
    assert_true(rq->head.version < 3 || q.min_bytes <= q.max_bytes); /* else a broker may wait for what it cannot send */
    for (int32_t i = 0; i < q.topics.n; i++) {
        int topic = rq->head.version >= 13 ? topic_by_id(n, q.topics.v[i].topic_id) : topic_by_name(n, q.topics.v[i].topic);
        for (int32_t k = 0; k < q.topics.v[i].partitions.n; k++) {
            const struct kw_fetch_request_fetch_partition *p = &q.topics.v[i].partitions.v[k];
            if (topic < 0) continue; /* a test with unknown ids handles it itself */
            struct cw_fetched *f = session_find(s, topic, p->partition);
            if (!f) {
                assert_true(s->count < CW_SESSION_PARTS);
                f = &s->parts[s->count++];
            }
            *f = (struct cw_fetched){.broker = broker,
                                     .topic = topic,
                                     .partition = p->partition,
                                     .offset = p->fetch_offset,
                                     .epoch = p->current_leader_epoch,
                                     .size_max = p->partition_max_bytes,
                                     .at_us = n->now.mono_us,
                                     .fetch = fetch,
                                     .named = true};
        }
    }
    for (int32_t i = 0; i < q.forgotten_topics_data.n; i++) { /* after the additions, as Kafka does */
        int topic = rq->head.version >= 13 ? topic_by_id(n, q.forgotten_topics_data.v[i].topic_id)
                                           : topic_by_name(n, q.forgotten_topics_data.v[i].topic);
        for (int32_t k = 0; k < q.forgotten_topics_data.v[i].partitions.n; k++) {
            struct cw_fetched *f = session_find(s, topic, q.forgotten_topics_data.v[i].partitions.v[k]);
            if (!f) continue;
            memmove(f, f + 1, (size_t)(&s->parts[s->count] - (f + 1)) * sizeof *f);
            s->count--;
        }
    }
    for (int i = 0; i < s->count && w->trace_count < CW_TRACE; i++) w->trace[w->trace_count++] = s->parts[i];
    if (fetch_answer(w, rq, s, q.isolation_level, q.max_bytes, fetch, full, q.max_wait_ms == 0)) return;
    for (int i = 0; i < CW_WAITING; i++) {
        struct cw_wait *h = &w->waiting[i];
        if (h->used) continue;
        *h = (struct cw_wait){.used = true,
                              .link = rq->link,
                              .conn = rq->link->conn,
                              .head = rq->head,
                              .until_us = n->now.mono_us + (int64_t)q.max_wait_ms * 1000,
                              .view = local,
                              .broker = broker,
                              .max_bytes = q.max_bytes,
                              .isolation = q.isolation_level,
                              .fetch = fetch,
                              .full = full};
        return;
    }
    fail_msg("too many fetches wait");
}

static inline void serve_list(struct cw *w, struct request *rq) {
    struct net *n = w->net;
    struct kw_list_offsets_request q;
    kw_arena_reset(&n->arena);
    request_decode(n, rq, &kw_list_offsets_request_desc, &q);
    w->lists++;
    struct kw_list_offsets_response m;
    kw_msg_init(&kw_list_offsets_response_desc, &m);
    m.topics.v = net_calloc(n, (size_t)q.topics.n + 1, sizeof *m.topics.v);
    int32_t broker = broker_of(n, rq->link);
    for (int32_t i = 0; i < q.topics.n; i++) {
        int topic = topic_by_name(n, q.topics.v[i].name);
        struct kw_list_offsets_response_list_offsets_topic_response *t = &m.topics.v[m.topics.n++];
        t->name = q.topics.v[i].name;
        t->partitions.v = net_calloc(n, (size_t)q.topics.v[i].partitions.n + 1, sizeof *t->partitions.v);
        for (int32_t k = 0; k < q.topics.v[i].partitions.n; k++) {
            const struct kw_list_offsets_request_list_offsets_partition *p = &q.topics.v[i].partitions.v[k];
            struct kw_list_offsets_response_list_offsets_partition_response *r = &t->partitions.v[t->partitions.n++];
            *r = (struct kw_list_offsets_response_list_offsets_partition_response){
                .partition_index = p->partition_index, .timestamp = -1, .offset = -1, .leader_epoch = -1};
            if (topic < 0 || p->partition_index >= n->topics[topic].partitions) {
                r->error_code = KE_UNKNOWN_TOPIC_OR_PARTITION;
                continue;
            }
            bool twice = false; /* Kafka refuses a partition that is named twice */
            for (int32_t o = 0; o < q.topics.v[i].partitions.n; o++) twice |= o != k && q.topics.v[i].partitions.v[o].partition_index == p->partition_index;
            if (twice) {
                r->error_code = KE_INVALID_REQUEST;
                continue;
            }
            r->error_code = w->list_script ? w->list_script(w, broker, topic, p->partition_index, p->timestamp) : KE_NONE;
            if (r->error_code) continue;
            if (n->topics[topic].leader[p->partition_index] != broker) {
                r->error_code = KE_NOT_LEADER_OR_FOLLOWER;
                continue;
            }
            struct cw_log *l = &w->logs[topic][p->partition_index];
            r->leader_epoch = n->topics[topic].epoch[p->partition_index];
            if (p->timestamp == -2) {
                r->offset = l->start;
            } else if (p->timestamp == -1) {
                r->offset = q.isolation_level && l->lso >= 0 ? l->lso : l->hw;
            } else { /* the first batch that reaches the time; records of a batch count up from its base */
                const uint8_t *at = l->bytes.p, *end = at + l->bytes.len;
                for (; r->offset < 0 && at < end; at += kw_batch_size_peek(at, (size_t)(end - at))) {
                    struct kw_batch_header h;
                    assert_int_equal(kw_batch_parse(at, (size_t)(end - at), &h), KW_OK);
                    for (int32_t x = 0; r->offset < 0 && x < h.record_count; x++)
                        if (h.base_timestamp + x >= p->timestamp) {
                            r->offset = h.base_offset + x;
                            r->timestamp = h.base_timestamp + x;
                        }
                }
            }
        }
    }
    net_answer(rq, &m);
}

static inline void serve_epochs(struct cw *w, struct request *rq) {
    struct net *n = w->net;
    struct kw_offset_for_leader_epoch_request q;
    kw_arena_reset(&n->arena);
    request_decode(n, rq, &kw_offset_for_leader_epoch_request_desc, &q);
    w->epochs_asked++;
    struct kw_offset_for_leader_epoch_response m;
    kw_msg_init(&kw_offset_for_leader_epoch_response_desc, &m);
    m.topics.v = net_calloc(n, (size_t)q.topics.n + 1, sizeof *m.topics.v);
    for (int32_t i = 0; i < q.topics.n; i++) {
        int topic = topic_by_name(n, q.topics.v[i].topic);
        struct kw_offset_for_leader_epoch_response_offset_for_leader_topic_result *t = &m.topics.v[m.topics.n++];
        t->topic = q.topics.v[i].topic;
        t->partitions.v = net_calloc(n, (size_t)q.topics.v[i].partitions.n + 1, sizeof *t->partitions.v);
        for (int32_t k = 0; k < q.topics.v[i].partitions.n; k++) {
            const struct kw_offset_for_leader_epoch_request_offset_for_leader_partition *p = &q.topics.v[i].partitions.v[k];
            struct kw_offset_for_leader_epoch_response_epoch_end_offset *r = &t->partitions.v[t->partitions.n++];
            struct cw_log *l = &w->logs[topic][p->partition];
            *r = (struct kw_offset_for_leader_epoch_response_epoch_end_offset){
                .partition = p->partition, .leader_epoch = -1, .end_offset = -1};
            for (int e = 0; e < l->epoch_count; e++) {
                if (l->epochs[e].epoch > p->leader_epoch) break;
                r->leader_epoch = l->epochs[e].epoch;
                r->end_offset = e + 1 < l->epoch_count ? l->epochs[e + 1].start : l->hw;
            }
        }
    }
    net_answer(rq, &m);
}

static inline bool cw_hook(struct net *n, struct request *rq) {
    struct cw *w = n->ctx;
    struct model_broker *b = net_broker_at(n, rq->link->host, rq->link->port);
    if (w->before && w->before(w, rq)) return true;
    if (b && b->silent) return true;
    switch (rq->head.api_key) {
    case KW_API_FETCH:
        if (!b || b->id != w->frozen) serve_fetch(w, rq);
        return true;
    case KW_API_LIST_OFFSETS:
        serve_list(w, rq);
        return true;
    case KW_API_OFFSET_FOR_LEADER_EPOCH:
        serve_epochs(w, rq);
        return true;
    default:
        return false;
    }
}

/* ---- The consumer ---- */

static inline void cw_run(struct kc_task *task, void *ctx) {
    (void)task;
    kc_consume_run(ctx);
}
static inline void cw_kick(void *ctx) {
    struct cw *w = ctx;
    kc_core_defer(w->net->core, &w->run);
}
static inline void cw_notify(void *ctx) {
    ((struct cw *)ctx)->notified++;
}

/* `pairs` configures client and consumer alike. One broker b0 (id 1); topics and further brokers are the test's to add before cw_assign. */
static inline struct cw *cw_new(const char *const *pairs) {
    struct cw *w = calloc(1, sizeof *w);
    w->net = net_new(pairs);
    w->net->ctx = w;
    w->net->hook = cw_hook;
    net_broker(w->net, 1, "b0", 9092);
    for (int t = 0; t < NET_TOPICS; t++)
        for (int p = 0; p < CW_PARTS; p++) {
            kw_out_init(&w->logs[t][p].bytes);
            w->logs[t][p].lso = -1;
        }
    kc_task_init(&w->run, cw_run, &w->c);
    assert_int_equal(kc_consume_init(&w->c, w->net->core, w->net->settings, cw_notify, cw_kick, w), KW_OK);
    kc_consume_start(&w->c);
    return w;
}

/* Topic number index + 1 of the net, with its partitions led by `leader`. */
static inline int cw_topic(struct cw *w, const char *name, int32_t partitions, int32_t leader) {
    int i = (int)w->net->topic_count;
    net_topic(w->net, name, (uint8_t)(i + 1), partitions, leader);
    w->topic[i] = kc_metadata_intern(w->net->core, name, strlen(name));
    return i;
}

/* The partition's leader epoch from its log's end on. */
static inline void cw_epoch(struct cw *w, int topic, int32_t partition, int32_t epoch) {
    struct cw_log *l = &w->logs[topic][partition];
    w->net->topics[topic].epoch[partition] = epoch;
    assert_in_range(l->epoch_count, 0, CW_EPOCHS - 1);
    l->epochs[l->epoch_count].epoch = epoch;
    l->epochs[l->epoch_count++].start = l->hw;
}

static inline void cw_poke(struct cw *w) { /* fetches that wait look again */
    for (int i = 0; i < CW_WAITING; i++) {
        struct cw_wait *h = &w->waiting[i];
        if (!h->used) continue;
        if (h->link->conn != h->conn) {
            h->used = false;
            continue;
        }
        struct model_broker *b = net_broker_at(w->net, h->link->host, h->link->port);
        if ((b && b->silent) || h->broker == w->frozen) continue;
        struct request rq = {.link = h->link, .head = h->head};
        struct cw_session *s = h->view.count || w->sessions[h->broker].id == 0 ? &h->view : &w->sessions[h->broker];
        if (fetch_answer(w, &rq, s, h->isolation, h->max_bytes, h->fetch, h->full, h->until_us <= w->net->now.mono_us)) h->used = false;
    }
}

static inline void cw_advance(struct cw *w, int64_t us) {
    int64_t end = w->net->now.mono_us + us;
    do {
        int64_t step = KW_MIN(end - w->net->now.mono_us, 1000);
        cw_poke(w);
        net_advance(w->net, step);
    } while (w->net->now.mono_us < end);
    cw_poke(w);
    net_turn(w->net);
}

static inline kc_err cw_assign(struct cw *w, int topic, int32_t partition, int64_t offset) { /* one more; the others stay */
    kc_topic_partition tp[64];
    size_t n = 0;
    for (struct kw_list *it = w->c.parts.next; it != &w->c.parts; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (p->assigned) tp[n++] = (kc_topic_partition){.topic = p->topic, .partition = p->partition, .offset = KC_OFFSET_RESET};
    }
    tp[n++] = (kc_topic_partition){.topic = w->topic[topic], .partition = partition, .offset = offset};
    return kc_consume_assign(&w->c, tp, sizeof *tp, n, w->net->now.mono_us);
}
/* So many records in batches of ten in each of the topic's partitions, all assigned from `from` on. */
static inline void cw_fill_assign(struct cw *w, int topic, int n, int64_t from) {
    for (int32_t p = 0; p < w->net->topics[topic].partitions; p++) {
        log_fill(&w->logs[topic][p], n, 10, 0);
        assert_int_equal(cw_assign(w, topic, p, from), KC_OK);
    }
}
static inline kc_err cw_assign_alone(struct cw *w, int topic, int32_t partition, int64_t offset) { /* no other stays */
    kc_topic_partition tp = {.topic = w->topic[topic], .partition = partition, .offset = offset};
    return kc_consume_assign(&w->c, &tp, sizeof tp, 1, w->net->now.mono_us);
}
static inline kc_err cw_seek(struct cw *w, int topic, int32_t partition, int64_t offset) {
    kc_topic_partition tp = {.topic = w->topic[topic], .partition = partition, .offset = offset};
    kc_consume_seek(&w->c, &tp, sizeof tp, 1, w->net->now.mono_us);
    return tp.err;
}
static inline kc_err cw_pause(struct cw *w, int topic, int32_t partition, bool pause) {
    kc_topic_partition tp = {.topic = w->topic[topic], .partition = partition};
    kc_consume_pause(&w->c, &tp, sizeof tp, 1, pause);
    return tp.err;
}
static inline int64_t cw_position(struct cw *w, int topic, int32_t partition) {
    kc_topic_partition tp = {.topic = w->topic[topic], .partition = partition};
    kc_consume_position(&w->c, &tp, sizeof tp, 1);
    return tp.err ? -9 : tp.offset;
}
static inline struct kc_part *cw_part(struct cw *w, int topic, int32_t partition) {
    return kc_part_find(&w->c, w->topic[topic], partition);
}

static inline void cw_note(struct cw *w, const kc_event *e) {
    if (e->kind != KC_EVENT_RECORDS) {
        w->got[w->got_count++] = (struct got){e->kind, e->topic, e->partition, e->offset, kc_error_code(e->error), kc_event_position_before(e)};
        if (e->error) snprintf(w->message, sizeof w->message, "%s", kc_error_message(e->error));
        return;
    }
    for (size_t i = 0; i < e->count; i++) {
        kc_message m;
        char want[32];
        assert_int_equal(kc_event_message(e, i, &m), KC_OK);
        int len = sprintf(want, "v%lld", (long long)m.offset);
        assert_true((int)m.value.size >= len);
        assert_memory_equal(m.value.p, want, (size_t)len);
        assert_true(w->got_count < CW_GOT);
        w->got[w->got_count++] = (struct got){e->kind, e->topic, e->partition, m.offset, 0, -1};
    }
}
/* One event, noted and freed. 0: none. */
static inline int32_t cw_take(struct cw *w) {
    kc_event *e = NULL;
    kc_err err = kc_consume_take(&w->c, &e);
    if (err == KC_BUSY) return 0;
    assert_int_equal(err, KC_OK);
    int32_t kind = e->kind;
    cw_note(w, e);
    assert_null(kc_event_drop(e));
    return kind;
}
static inline void cw_take_all(struct cw *w) {
    while (cw_take(w)) {
    }
}
/* Takes whatever comes for so long. */
static inline void cw_consume(struct cw *w, int64_t us) {
    int64_t end = w->net->now.mono_us + us;
    cw_take_all(w);
    while (w->net->now.mono_us < end) {
        cw_advance(w, KW_MIN(end - w->net->now.mono_us, 5000));
        cw_take_all(w);
    }
}

static inline int cw_count(const struct cw *w, int32_t kind, int32_t partition) {
    int n = 0;
    for (int i = 0; i < w->got_count; i++) n += w->got[i].kind == kind && (partition < 0 || w->got[i].partition == partition);
    return n;
}
static inline const struct got *cw_first(const struct cw *w, int32_t kind) {
    for (int i = 0; i < w->got_count; i++)
        if (w->got[i].kind == kind) return &w->got[i];
    return NULL;
}
/* Records of the partition came once each, in order, from `from` up to before `to`, nothing else. */
static inline void cw_expect(const struct cw *w, int topic, int32_t partition, int64_t from, int64_t to) {
    int64_t next = from;
    for (int i = 0; i < w->got_count; i++) {
        if (w->got[i].kind != KC_EVENT_RECORDS || w->got[i].partition != partition || w->got[i].topic != w->topic[topic]) continue;
        assert_int_equal(w->got[i].offset, next);
        next++;
    }
    assert_int_equal(next, to);
}

static inline void cw_stop(struct cw *w) {
    kc_consume_stop(&w->c);
    net_turn(w->net);
    assert_true(kc_consume_stopped(&w->c));
}
static inline void cw_free(struct cw *w) {
    if (!w->c.stopped) cw_stop(w);
    for (size_t i = 0; i < w->net->topic_count; i++) /* nobody keeps a topic known for a consumer that is gone */
        assert_int_equal(((struct kc_topic_slot *)kc_metadata_topic(w->net->core, w->topic[i]))->wants, 0);
    kc_task_cancel(&w->run);
    struct kc_budget *b = kc_core_budget(w->net->core);
    kc_consume_deinit(&w->c);
    assert_int_equal(atomic_load(&b->used[KC_ROLE_FETCH]), 0);
    for (int t = 0; t < NET_TOPICS; t++)
        for (int p = 0; p < CW_PARTS; p++) kw_out_deinit(&w->logs[t][p].bytes);
    net_free(w->net);
    free(w);
}

#endif
