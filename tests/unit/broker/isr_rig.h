/* isr_rig.h - a node that leads partitions of a cluster which is the test: brokers, topics and changes of leaders come as records of the image,
 * followers' fetches are scripted, and so are the controller's answers to AlterPartition. */
#ifndef ISR_RIG_H
#define ISR_RIG_H

#include "node_rig.h"

#include "log/log.h"
#include "replica/partitions_priv.h"

enum { LAG_US = 10000000 }; /* replica.lag.time.max.ms */

struct lead {
    struct rig r;
    struct rig_conn *c, *f[4]; /* a client; a connection of each follower */
    bool no_controller;
    struct kb_call *call; /* AlterPartition under way; NULL: none */
    int asks;
    struct kw_alter_partition_request rq; /* the last one */
};
static struct lead *lead_now; /* the hook has no other way to its test */

static inline void lead_cancelled(struct kb_call *c) {
    c->cancel = NULL;
    lead_now->call = NULL;
}
static inline kw_err lead_ask(struct kb_node *n, struct kb_call *c, const struct kw_desc *request, int16_t version, const void *msg,
                              int64_t timeout_us, struct kb_now now) {
    struct lead *l = lead_now;
    (void)n, (void)timeout_us, (void)now;
    if (l->no_controller) return KW_EBUSY;
    assert_null(l->call);
    assert_ptr_equal(request, &kw_alter_partition_request_desc);
    assert_int_equal(version, 3);
    struct kw_out out;
    struct kw_in in;
    kw_out_init(&out);
    assert_int_equal(kw_encode(request, version, msg, &out), KW_OK);
    const uint8_t *p = kw_arena_dup(&l->r.arena, out.p, out.len);
    kw_in_init(&in, p, out.len);
    assert_int_equal(kw_decode(request, version, &in, &l->r.arena, &l->rq), KW_OK);
    kw_out_deinit(&out);
    assert_int_equal(l->rq.broker_id, 0);
    c->cancel = lead_cancelled;
    l->call = c;
    l->asks++;
    return KW_OK;
}

/* ---- The image ---- */

static inline void lead_tell(struct lead *l, int16_t type, const void *record) {
    struct kb_image *im = &l->r.node->image;
    assert_int_equal(kb_image_apply(im, im->offset, im->epoch, type, record), KW_OK);
    kb_partitions_applied(l->r.node, l->r.now);
    rig_settle(&l->r);
}

struct lead_broker {
    int32_t id;
    int64_t epoch;
    bool fenced, leaving;
    const char *rack;
};
static inline void lead_broker(struct lead *l, struct lead_broker b) {
    struct kw_register_broker_record rec;
    struct kw_register_broker_record_broker_endpoint e = {.name = kw_str_of("PLAINTEXT"), .host = kw_str_of("h"), .port = 9000};
    kw_msg_init(&kw_register_broker_record_desc, &rec);
    rec.broker_id = b.id;
    rec.broker_epoch = b.epoch;
    rec.fenced = b.fenced;
    rec.in_controlled_shutdown = b.leaving;
    rec.rack = b.rack ? kw_str_of(b.rack) : kw_str_null();
    rec.end_points.v = &e;
    rec.end_points.n = 1;
    e.port = (uint16_t)(9000 + b.id);
    lead_tell(l, KW_RECORD_REGISTER_BROKER, &rec);
}

static inline struct kw_uuid lead_topic_id(void) {
    return (struct kw_uuid){{7, 7, 7}};
}
static inline void lead_topic(struct lead *l) {
    struct kw_topic_record t;
    kw_msg_init(&kw_topic_record_desc, &t);
    t.name = kw_str_of("t");
    t.topic_id = lead_topic_id();
    lead_tell(l, KW_RECORD_TOPIC, &t);
}
/* Replicas 0 .. rf-1, of which the first isr are in sync; 0 leads. */
static inline void lead_partition(struct lead *l, int32_t index, int32_t rf, int32_t isr) {
    static int32_t ids[] = {0, 1, 2, 3};
    struct kw_partition_record p;
    kw_msg_init(&kw_partition_record_desc, &p);
    p.topic_id = lead_topic_id();
    p.partition_id = index;
    p.replicas.v = p.isr.v = ids;
    p.replicas.n = rf;
    p.isr.n = isr;
    p.leader = 0;
    p.leader_epoch = 5;
    p.partition_epoch = 10;
    lead_tell(l, KW_RECORD_PARTITION, &p);
}
/* leader -2: as it is; isr_count -1: as it is. */
static inline void lead_change(struct lead *l, int32_t index, int32_t leader, const int32_t *isr, int32_t isr_count) {
    struct kw_partition_change_record p;
    kw_msg_init(&kw_partition_change_record_desc, &p);
    p.topic_id = lead_topic_id();
    p.partition_id = index;
    p.leader = leader;
    p.isr.v = (int32_t *)(uintptr_t)isr;
    p.isr.n = isr_count;
    lead_tell(l, KW_RECORD_PARTITION_CHANGE, &p);
}
static inline void lead_config(struct lead *l, const char *name, const char *value) {
    struct kw_config_record c;
    kw_msg_init(&kw_config_record_desc, &c);
    c.resource_type = 2;
    c.resource_name = kw_str_of("t");
    c.name = kw_str_of(name);
    c.value = kw_str_of(value);
    lead_tell(l, KW_RECORD_CONFIG, &c);
}

/* ---- Life ---- */

static inline void lead_start(struct lead *l) {
    rig_start(&l->r);
    l->r.node->partitions->isrs.ask = lead_ask;
    for (int32_t id = 1; id <= 3; id++) lead_broker(l, (struct lead_broker){.id = id, .epoch = 100 + id});
    l->c = rig_connect(&l->r);
    for (size_t i = 0; i < KW_COUNTOF(l->f); i++) l->f[i] = rig_connect(&l->r);
}
static inline void lead_init(struct lead *l, uint64_t seed) {
    memset(l, 0, sizeof(*l));
    lead_now = l;
    rig_init(&l->r, seed);
}
/* Partition 0 of topic t. */
static inline void lead_up(struct lead *l, uint64_t seed, int32_t rf, int32_t isr) {
    lead_init(l, seed);
    lead_start(l);
    lead_topic(l);
    lead_partition(l, 0, rf, isr);
}
static inline void lead_down(struct lead *l) {
    rig_deinit(&l->r);
}
static inline struct kb_partition *lead_part(struct lead *l, int32_t index) {
    return kb_image_topic(&l->r.node->image, kw_str_of("t"))->partitions[index].local;
}

/* ---- Followers and clients ---- */

struct lead_fetch {
    int32_t id, index, leader_epoch, last_epoch, max_wait_ms;
    int64_t offset, broker_epoch, log_start;
};
#define BY(...) ((struct lead_fetch){.leader_epoch = 5, .last_epoch = -1, .log_start = 0, __VA_ARGS__})

static inline struct rig_fetch_msg *lead_fetch_msg(struct lead *l, struct lead_fetch f) {
    struct rig_fetch_msg *m = rig_fetch_msg(&l->r, &RIG_FETCH(.version = 17, .topic = "t", .index = f.index, .offset = f.offset,
                                                              .leader_epoch = f.leader_epoch, .max_wait_ms = f.max_wait_ms));
    m->req.replica_state.replica_id = f.id;
    m->req.replica_state.replica_epoch = f.broker_epoch ? f.broker_epoch : 100 + f.id;
    m->part.last_fetched_epoch = f.last_epoch;
    m->part.log_start_offset = f.log_start;
    return m;
}
static inline rig_fetched *lead_fetch(struct lead *l, struct lead_fetch f) {
    struct kw_fetch_response resp;
    rig_call(l->f[f.id], KW_API_FETCH, 17, &lead_fetch_msg(l, f)->req, &resp);
    assert_int_equal(resp.error_code, KE_NONE);
    assert_int_equal(resp.responses.n, 1);
    return &resp.responses.v[0].partitions.v[0];
}

/* Sends one record without waiting. */
static inline void lead_send(struct lead *l, struct rig_conn *c, int32_t index, int16_t acks, int32_t correlation) {
    size_t n;
    uint8_t *p = rig_batch(&l->r, &(struct rig_batch){.count = 1, .value_size = 100, .pid = -1, .epoch = -1, .seq = -1}, &n);
    rig_request(c, KW_API_PRODUCE, 10, correlation, &rig_produce_msg(&l->r, "t", index, acks, p, n)->req);
    rig_settle(&l->r);
}
/* What it was answered; -100: nothing yet. */
static inline int16_t lead_produced(struct rig_conn *c, int32_t correlation) {
    struct kw_produce_response resp;
    if (!rig_response(c, KW_API_PRODUCE, 10, correlation, &resp)) return -100;
    return resp.responses.v[0].partition_responses.v[0].error_code;
}
/* n records with acks=1. */
static inline void lead_fill(struct lead *l, int32_t index, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        lead_send(l, l->c, index, 1, 1);
        assert_int_equal(lead_produced(l->c, 1), KE_NONE);
    }
}

/* ---- The controller ---- */

static inline const struct kw_alter_partition_request_partition_data *lead_asked(struct lead *l, int32_t index) {
    for (int32_t i = 0; i < l->rq.topics.n; i++)
        for (int32_t j = 0; j < l->rq.topics.v[i].partitions.n; j++)
            if (l->rq.topics.v[i].partitions.v[j].partition_index == index) return &l->rq.topics.v[i].partitions.v[j];
    return NULL;
}
/* "0,1:101": ids with their broker epochs (none for this node's own, and where not told). */
static inline const char *lead_asked_isr(struct lead *l, int32_t index) {
    const struct kw_alter_partition_request_partition_data *q = lead_asked(l, index);
    char *text = kw_arena_calloc(&l->r.arena, 1, 200);
    size_t at = 0;
    for (int32_t i = 0; q && i < q->new_isr_with_epochs.n; i++) {
        const struct kw_alter_partition_request_broker_state *b = &q->new_isr_with_epochs.v[i];
        if (i) text[at++] = ',';
        at += (size_t)snprintf(text + at, 200 - at, b->broker_id && b->broker_epoch >= 0 ? "%d:%lld" : "%d", b->broker_id,
                               (long long)b->broker_epoch);
    }
    return text;
}
struct lead_answer {
    int16_t top, code;
    int32_t leader_epoch, partition_epoch;
    const int32_t *isr;
    int32_t isr_count;
};
/* To every partition of the request. err: the connection failed instead. */
static inline void lead_answer(struct lead *l, kw_err err, struct lead_answer a) {
    struct kw_alter_partition_response resp;
    struct kw_alter_partition_response_partition_data parts[16];
    struct kw_alter_partition_response_topic_data t = {.topic_id = lead_topic_id(), .partitions = {parts, 0}};
    struct kb_call *c = l->call;
    struct kw_out out;
    struct kw_in in;
    assert_non_null(c);
    l->call = NULL;
    c->cancel = NULL;
    kw_msg_init(&kw_alter_partition_response_desc, &resp);
    resp.error_code = a.top;
    resp.topics.v = &t;
    resp.topics.n = a.top == 0;
    for (int32_t i = 0; i < l->rq.topics.v[0].partitions.n; i++)
        parts[t.partitions.n++] = (struct kw_alter_partition_response_partition_data){
            .partition_index = l->rq.topics.v[0].partitions.v[i].partition_index,
            .error_code = a.code,
            .leader_epoch = a.leader_epoch,
            .partition_epoch = a.partition_epoch,
            .isr = {(int32_t *)(uintptr_t)a.isr, a.isr_count}};
    kw_out_init(&out);
    assert_int_equal(kw_encode(&kw_alter_partition_response_desc, 3, &resp, &out), KW_OK);
    kw_in_init(&in, out.p, out.len);
    c->done(c, err, &in, NULL, l->r.now);
    kw_out_deinit(&out);
    rig_settle(&l->r);
}
/* What was asked for is committed: the answer alone. */
static inline void lead_commit(struct lead *l, int32_t partition_epoch, const int32_t *isr, int32_t isr_count) {
    lead_answer(l, KW_OK, (struct lead_answer){.leader_epoch = 5, .partition_epoch = partition_epoch, .isr = isr, .isr_count = isr_count});
}

#endif
