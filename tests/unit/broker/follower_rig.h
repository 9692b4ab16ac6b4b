/* follower_rig.h - the leader's side of what a follower fetches, played by the test: requests are looked at, answers written. For the follower's tests. */
#ifndef FOLLOWER_RIG_H
#define FOLLOWER_RIG_H

#include "replica_rig.h"

#include "log/epochs.h"
#include "wire/frame.h"

typedef struct kw_fetch_response_partition_data part_answer;
typedef struct kw_fetch_request_fetch_partition part_request;

struct lead { /* the leader's side of one fetch */
    struct cluster c;
    struct pipe *pipe; /* of the last fetch */
    int32_t correlation;
    struct kw_fetch_request rq;
    int32_t session; /* the id that is answered; 0: none */
    bool ahead;      /* it knows readFrom */
};

static inline void up(struct lead *l, uint64_t seed, int32_t partitions) {
    memset(l, 0, sizeof(*l));
    struct cluster *c = &l->c;
    cl_init(c, 2, seed);
    c->h[1].scripted = c->h[1].up = true;
    l->session = 77;
    cl_add_broker(c, 0, 100);
    cl_add_broker(c, 1, 200);
    cl_tell(c, (struct news){.kind = NEWS_TOPIC, .topic = 1});
    for (int32_t i = 0; i < partitions; i++) cl_add_partition(c, 1, i, 2, 1);
}
static inline void start(struct lead *l) {
    cl_boot(&l->c.h[0]);
    cl_pass(&l->c, 1000);
}
static inline void down(struct lead *l) {
    cl_deinit(&l->c);
}
static inline struct kb_log *log_of(struct lead *l, int32_t index) {
    return cl_partition(&l->c.h[0], 1, index)->log;
}
static inline const struct kb_follower_stats *stats(struct lead *l) {
    return kb_followers_stats(l->c.h[0].r.node);
}

/* The next fetch, waited for at most us; false: none. */
static inline bool fetched(struct lead *l, int64_t us) {
    struct cluster *c = &l->c;
    int64_t until = c->now.mono_us + us;
    for (;;) {
        for (int i = 0; i < PIPES_MAX; i++) {
            struct pipe *p = &c->pipes[i];
            if (!p->used || p->got_len < 4 || p->got_len < 4 + kw_load32(p->got)) continue;
            size_t n = kw_load32(p->got);
            const uint8_t *frame = kw_arena_dup(&c->h[0].r.arena, p->got + 4, n);
            memmove(p->got, p->got + 4 + n, p->got_len - 4 - n);
            p->got_len -= 4 + n;
            struct kw_in in;
            struct kw_frame_request h;
            kw_in_init(&in, frame, n);
            assert_int_equal(kw_frame_parse_request(&in, &h), KW_OK);
            assert_int_equal(h.api_key, KW_API_FETCH);
            assert_int_equal(kw_decode(h.api->request, h.version, &in, &c->h[0].r.arena, &l->rq), KW_OK);
            assert_int_equal(l->rq.replica_state.replica_id, 0);
            assert_int_equal(l->rq.replica_state.replica_epoch, 100);
            l->pipe = p;
            l->correlation = h.correlation_id;
            return true;
        }
        if (c->now.mono_us >= until) return false;
        cl_pass(c, KW_MIN(1000, until - c->now.mono_us));
    }
}
static inline int32_t asked_count(const struct lead *l) {
    int32_t n = 0;
    for (int32_t i = 0; i < l->rq.topics.n; i++) n += l->rq.topics.v[i].partitions.n;
    return n;
}
static inline const part_request *asked(const struct lead *l, int32_t index) {
    for (int32_t i = 0; i < l->rq.topics.n; i++)
        for (int32_t j = 0; j < l->rq.topics.v[i].partitions.n; j++)
            if (l->rq.topics.v[i].partitions.v[j].partition == index) return &l->rq.topics.v[i].partitions.v[j];
    return NULL;
}
static inline bool forgot(const struct lead *l, int32_t index) {
    for (int32_t i = 0; i < l->rq.forgotten_topics_data.n; i++)
        for (int32_t j = 0; j < l->rq.forgotten_topics_data.v[i].partitions.n; j++)
            if (l->rq.forgotten_topics_data.v[i].partitions.v[j] == index) return true;
    return false;
}
static inline void expect_asked(struct lead *l, int32_t index, int64_t offset, int32_t epoch, int32_t last_epoch) {
    const part_request *q = asked(l, index);
    assert_non_null(q);
    assert_int_equal(q->fetch_offset, offset);
    assert_int_equal(q->current_leader_epoch, epoch);
    assert_int_equal(q->last_fetched_epoch, last_epoch);
}

static inline void answer_none(struct lead *l);
/* The next fetch that names the partition; those before it are told that there is nothing. True: it was taken out of the session meanwhile. */
static inline bool wait_asked(struct lead *l, int32_t index) {
    bool out = false;
    for (int i = 0; i < 1000; i++) {
        assert_true(fetched(l, 2000000));
        if (asked(l, index)) return out;
        out = out || forgot(l, index);
        cl_pass(&l->c, l->rq.max_wait_ms * 1000LL);
        answer_none(l);
    }
    fail_msg("partition %d is not asked for any more", index);
    return out;
}

static inline part_answer plain(int32_t index, int64_t hw) {
    return (part_answer){.partition_index = index,
                         .high_watermark = hw,
                         .last_stable_offset = hw,
                         .log_start_offset = 0,
                         .preferred_read_replica = -1,
                         .diverging_epoch = {-1, -1},
                         .current_leader = {-1, -1},
                         .snapshot_id = {-1, -1},
                         .records = {.len = -1}};
}
static inline part_answer plain_from(int32_t index, int64_t hw, int64_t start) {
    part_answer a = plain(index, hw);
    a.log_start_offset = start;
    return a;
}
static inline void answer_all(struct lead *l, const part_answer *v, int32_t n, int16_t error) {
    struct kw_fetch_response resp;
    struct kw_fetch_response_fetchable_topic_response t = {.topic_id = cl_topic_id(1), .partitions = {(part_answer *)(uintptr_t)v, n}};
    struct kw_out out;
    kw_msg_init(&kw_fetch_response_desc, &resp);
    resp.error_code = error;
    resp.session_id = error ? 0 : l->session;
    resp.reads_ahead = l->ahead;
    resp.responses.v = &t;
    resp.responses.n = n > 0;
    kw_out_init(&out);
    assert_int_equal(kw_frame_response(&out, kw_api_by_key(KW_API_FETCH), 18, l->correlation, &resp), KW_OK);
    assert_int_equal(cl_back_bytes(l->pipe, out.p, out.len), out.len);
    kw_out_deinit(&out);
}
static inline void answer(struct lead *l, part_answer a) {
    answer_all(l, &a, 1, KE_NONE);
}
static inline void answer_none(struct lead *l) {
    answer_all(l, NULL, 0, KE_NONE);
}

/* A batch as a leader has it. */
static inline struct kw_records batch_at(struct lead *l, int64_t base, int32_t epoch, int32_t count, size_t value_size) {
    size_t n;
    struct rig_batch b = {.pid = -1, .epoch = -1, .seq = -1, .count = count, .value_size = value_size};
    uint8_t *p = rig_batch(&l->c.h[0].r, &b, &n);
    kw_batch_set_base_offset(p, base);
    kw_batch_set_leader_epoch(p, epoch);
    return (struct kw_records){.p = p, .len = (int32_t)n};
}
static inline struct kw_records joined(struct lead *l, struct kw_records a, struct kw_records b) {
    uint8_t *p = kw_arena_alloc(&l->c.h[0].r.arena, (size_t)(a.len + b.len));
    memcpy(p, a.p, (size_t)a.len);
    memcpy(p + a.len, b.p, (size_t)b.len);
    return (struct kw_records){.p = p, .len = a.len + b.len};
}
/* Partition 0 gets count records of that epoch, in answer to the fetch at hand. */
static inline void give(struct lead *l, int64_t base, int32_t epoch, int32_t count, int64_t hw) {
    part_answer a = plain(0, hw);
    a.records = batch_at(l, base, epoch, count, 20);
    answer(l, a);
}

/* Logs that are opened later join the session later. The fetch at hand is the last one's. */
static inline void join_all(struct lead *l, int32_t partitions) {
    assert_true(fetched(l, 100000));
    for (int32_t joined = 0; (joined += asked_count(l)) < partitions;) {
        answer_none(l);
        assert_true(fetched(l, 100000));
    }
}
static inline int64_t hw_of(struct lead *l) {
    return cl_partition(&l->c.h[0], 1, 0)->hw;
}

#endif
