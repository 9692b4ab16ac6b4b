/* replica_steps.h - three node cores and one partition, replicas (0,1,2), all in sync, min.insync.replicas 2; the test is the controller. Steps that
 * tests of a leader's death and of bug cases share. */
#ifndef REPLICA_STEPS_H
#define REPLICA_STEPS_H

#include "replica_rig.h"

/* sets: properties of all three, each a name and a value, and NULL; NULL: none. */
static inline struct cluster *up_with(uint64_t seed, const char *const *sets) {
    struct cluster *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    cl_init(c, 3, seed);
    for (; sets && sets[0]; sets += 2)
        for (int i = 0; i < 3; i++) rig_set(&c->h[i].r, sets[0], sets[1]);
    for (int32_t i = 0; i < 3; i++) cl_add_broker(c, i, 100 + i);
    cl_tell(c, (struct news){.kind = NEWS_TOPIC, .topic = 1});
    cl_tell(c, (struct news){.kind = NEWS_CONFIG, .topic = 1, .key = "min.insync.replicas", .value = "2"});
    cl_add_partition(c, 1, 0, 3, 0);
    for (int i = 0; i < 3; i++) cl_boot(&c->h[i]);
    cl_pass(c, 200000);
    return c;
}
static inline struct cluster *up(uint64_t seed) {
    return up_with(seed, NULL);
}
static inline struct kb_partition *part(struct cluster *c, int host) {
    return cl_partition(&c->h[host], 1, 0);
}

/* Followers' fetches are held, or let go on. */
static inline void hold(struct cluster *c, bool first, bool second) {
    c->held[1] = first;
    c->held[2] = second;
}

struct sent {
    struct rig_conn *conn;
    rig_produced answer;
};
static inline void send(struct cluster *c, struct sent *s, int host, int16_t acks, int64_t pid, int32_t seq) {
    struct rig *r = &c->h[host].r;
    struct rig_batch b = {.pid = pid, .epoch = pid < 0 ? -1 : 0, .seq = pid < 0 ? -1 : seq, .count = 1, .value_size = 100};
    size_t n;
    uint8_t *p = rig_batch(r, &b, &n);
    s->conn = rig_connect(r);
    rig_request(s->conn, KW_API_PRODUCE, 9, 1, &rig_produce_msg(r, "t1", 0, acks, p, n)->req);
}
static inline bool answered(struct sent *s) {
    struct kw_produce_response resp;
    if (!rig_response(s->conn, KW_API_PRODUCE, 9, 1, &resp)) return false;
    s->answer = resp.responses.v[0].partition_responses.v[0];
    return true;
}
static inline void expect_stored(struct cluster *c, struct sent *s, int64_t offset) {
    for (int i = 0; i < 2000; i++) {
        if (answered(s)) {
            assert_int_equal(s->answer.error_code, KE_NONE);
            assert_int_equal(s->answer.base_offset, offset);
            return;
        }
        cl_pass(c, 1000);
        cl_read_all(c);
    }
    fail_msg("no answer");
}
static inline void put(struct cluster *c, int host, int16_t acks, int64_t offset) {
    struct sent s;
    send(c, &s, host, acks, -1, -1);
    expect_stored(c, &s, offset);
}

static inline void leader_dies(struct cluster *c) {
    cl_kill(&c->h[0], false);
    c->dead[0] = true;
    cl_elect(c, 1, 0, 1, 6, false); /* the first of the ISR that lives, not the one with the longest log */
    cl_read_all(c);
}
static inline void returns(struct cluster *c, int host) {
    c->dead[host] = false;
    cl_add_broker(c, host, 500 + host);
    cl_boot(&c->h[host]);
    cl_read_all(c);
}

static inline void expect_equal(struct cluster *c, int64_t end, unsigned isr) {
    for (int i = 0; i < 5; i++) {
        cl_pass(c, 1000000);
        cl_read_all(c);
    }
    assert_int_equal(c->parts[1][0].isr, isr);
    size_t n = 0, m;
    uint8_t *first = NULL;
    for (int i = 0; i < 3; i++) {
        if (!(isr & 1u << i)) continue;
        assert_int_equal(part(c, i)->log->leo, end);
        assert_int_equal(part(c, i)->hw, end);
        assert_int_equal(kb_followers_stats(c->h[i].r.node)->unclean_truncations, 0);
        cl_stop(&c->h[i]);
        uint8_t *b = cl_log_bytes(&c->h[i], 0, first ? &m : &n);
        if (first) {
            assert_int_equal(n, m);
            assert_memory_equal(first, b, n);
            free(b);
        } else {
            first = b;
        }
    }
    free(first);
    cl_deinit(c);
    free(c);
}

#endif
