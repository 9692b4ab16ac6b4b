/* cluster_rig.h - a controller over a real store (meta_rig.h) and brokers that are nothing but their heartbeats: register, beat, die, come back.
 *
 * The node itself is broker 1; the brokers of the tests are 10, 11, 12, … by their index from 0.
 */
#ifndef CLUSTER_RIG_H
#define CLUSTER_RIG_H

#include "meta_rig.h"
#include "quorum/elect.h"

#ifndef RIG_BROKERS
#define RIG_BROKERS 8
#endif
enum { BROKERS = RIG_BROKERS, ID0 = 10 };
struct rig_broker {
    int64_t epoch;
    uint8_t incarnation, dir;
    bool beats; /* on its own, every 500 ms */
    int64_t next_us;
    int conn; /* its address is the connection */
    bool open;
    const char *rack;
};
struct rig_beat {
    struct kb_heartbeat h;
    int done;
};
struct rig {
    struct meta m;
    struct rig_beat own[BROKERS];
    struct rig_broker b[BROKERS];
    int dials[BROKERS];
    bool dial_refused[BROKERS]; /* what comes of a dial */
    bool dial_pending[BROKERS];
    int dial_fails[BROKERS]; /* so many of the next ones fail at once */
    int64_t dial_us; /* how long it takes */
    int64_t dial_at[BROKERS];
};

static inline int32_t rig_id(int i) {
    return ID0 + i;
}

static inline kw_err rig_dial(void *ctx, int32_t broker, const char *host, uint16_t port, struct kb_now now) {
    struct rig *r = ctx;
    int i = broker - ID0;
    assert_in_range(i, 0, BROKERS - 1);
    assert_string_equal(host, "127.0.0.1");
    assert_int_equal(port, 9000 + i);
    r->dials[i]++;
    if (r->dial_fails[i] > 0) {
        r->dial_fails[i]--;
        return KW_EBUSY;
    }
    r->dial_pending[i] = true;
    r->dial_at[i] = now.mono_us + r->dial_us;
    return KW_OK;
}

static inline void rig_beat_done(struct kb_heartbeat *h, struct kb_now now) {
    (void)now;
    ((struct rig_beat *)h->ctx)->done++;
}
/* True: answered at once. */
static inline bool rig_beat_start(struct rig *r, int i, struct rig_beat *t, bool fence, bool stop) {
    struct rig_broker *b = &r->b[i];
    *t = (struct rig_beat){.h = {.id = rig_id(i),
                                 .epoch = b->epoch,
                                 .metadata_offset = r->m.image.offset,
                                 .want_fence = fence,
                                 .want_shut_down = stop,
                                 .conn = b->open ? &b->conn : NULL,
                                 .done = rig_beat_done,
                                 .ctx = t}};
    return kb_controller_heartbeat(r->m.controller, &t->h, r->m.now);
}

static inline bool rig_events(struct rig *r) {
    for (int i = 0; i < BROKERS; i++) {
        struct rig_broker *b = &r->b[i];
        if (r->dial_pending[i] && r->dial_at[i] <= r->m.now.mono_us) {
            r->dial_pending[i] = false;
            kb_controller_dialed(r->m.controller, rig_id(i), r->dial_refused[i], r->m.now);
            return true;
        }
        if (!b->beats || b->next_us > r->m.now.mono_us) continue;
        b->next_us = r->m.now.mono_us + 500000;
        if (r->own[i].h.link.next) kb_controller_heartbeat_cancel(&r->own[i].h);
        (void)rig_beat_start(r, i, &r->own[i], false, false);
        return true;
    }
    return false;
}

static inline int64_t rig_next(struct rig *r) {
    int64_t at = KW_MIN(sim_disk_next(r->m.sim), kw_timers_next(&r->m.timers));
    for (int i = 0; i < BROKERS; i++) {
        if (r->b[i].beats) at = KW_MIN(at, r->b[i].next_us);
        if (r->dial_pending[i]) at = KW_MIN(at, r->dial_at[i]);
    }
    return at;
}

/* Everything that happens within so long a time. */
static inline void rig_run(struct rig *r, int64_t us) {
    int64_t end = r->m.now.mono_us + us;
    for (int i = 0;; i++) {
        assert_true(i < 10000000);
        meta_turn(&r->m);
        struct kb_disk_req *q = sim_disk_pop(r->m.sim, r->m.now);
        if (q) {
            kb_disk_complete(&r->m.queue, q, r->m.now);
            continue;
        }
        if (rig_events(r)) continue;
        int64_t next = rig_next(r);
        if (next > end) break;
        int64_t to = KW_MAX(next, r->m.now.mono_us + 1);
        r->m.now.wall_ms += (to - r->m.now.mono_us) / 1000 + 1;
        r->m.now.mono_us = to;
    }
    r->m.now.mono_us = KW_MAX(end, r->m.now.mono_us);
}
static inline void rig_commit(struct rig *r) {
    rig_run(r, 20000);
}

/* As a process of its own: a new incarnation. previous: what it says of the epoch that it had; -2: the one it had. */
static inline int16_t rig_register(struct rig *r, int i, int64_t previous) {
    struct rig_broker *b = &r->b[i];
    struct meta_change c;
    struct kw_register_broker_record_broker_endpoint e = {
        .name = kw_str_of("PLAINTEXT"), .host = kw_str_of("127.0.0.1"), .port = (uint16_t)(9000 + i)};
    struct kw_uuid dir = {{1, (uint8_t)(i + 1), b->dir}};
    struct kb_broker_register q = {.id = rig_id(i),
                                   .incarnation = {{2, (uint8_t)(i + 1), b->incarnation}},
                                   .cluster_id = kw_str_of(kb_store_cluster_id(r->m.store)),
                                   .endpoints = &e,
                                   .endpoint_count = 1,
                                   .rack = kw_str_of(b->rack),
                                   .log_dirs = &dir,
                                   .log_dir_count = 1,
                                   .previous_epoch = previous == -2 ? b->epoch : previous,
                                   .conn = &b->conn};
    assert_int_equal(kb_controller_register_broker(r->m.controller, &q, meta_change(&c), r->m.now), KW_OK);
    rig_commit(r);
    assert_int_equal(c.done, 1);
    if (q.result.code == 0) {
        b->epoch = q.epoch;
        b->open = true;
    }
    return q.result.code;
}

/* Heartbeats until it is unfenced. */
static inline void rig_unfence(struct rig *r, int i) {
    struct rig_beat t;
    if (!rig_beat_start(r, i, &t, false, false)) {
        rig_commit(r);
        assert_int_equal(t.done, 1);
    }
    assert_int_equal(t.h.code, 0);
    assert_false(t.h.fenced);
    r->b[i].beats = true;
    r->b[i].next_us = r->m.now.mono_us + 500000;
}
/* Starts the process anew: -2 after a clean stop or kill -9, -1 after the machine went down. */
static inline void rig_up(struct rig *r, int i, int64_t previous) {
    r->b[i].incarnation++;
    r->dial_refused[i] = false;
    assert_int_equal(rig_register(r, i, previous), 0);
    rig_unfence(r, i);
}
/* kill -9: its connection closes, and nothing listens any more. */
static inline void rig_kill(struct rig *r, int i) {
    r->b[i].beats = false;
    r->b[i].open = false;
    r->dial_refused[i] = true;
    kb_controller_conn_closed(r->m.controller, &r->b[i].conn, r->m.now);
}
static inline void rig_mute(struct rig *r, int i) { /* the network swallows all it says */
    r->b[i].beats = false;
}

static inline void rig_init(struct rig *r, int brokers) {
    memset(r, 0, sizeof(*r));
    meta_init(&r->m, 1, NULL);
    r->m.dial = rig_dial;
    r->m.dial_ctx = r;
    r->dial_us = 300;
    meta_start(&r->m);
    for (int i = 0; i < brokers; i++) rig_up(r, i, -1);
}
static inline void rig_deinit(struct rig *r) {
    for (int i = 0; i < BROKERS; i++) r->b[i].beats = false;
    meta_crash(&r->m, false);
    meta_deinit(&r->m);
}

/* ---- Topics ---- */

/* One partition on these brokers (indexes), in this order. */
static inline int16_t rig_topic(struct rig *r, const char *name, int32_t partitions, const int *on, int32_t rf) {
    struct meta_change c;
    struct kb_assignment *a = calloc((size_t)partitions, sizeof(*a));
    int32_t ids[BROKERS];
    for (int32_t i = 0; i < rf; i++) ids[i] = rig_id(on[i]);
    for (int32_t i = 0; i < partitions; i++) a[i] = (struct kb_assignment){i, ids, rf};
    struct kb_topic_create t = {
        .name = kw_str_of(name), .partitions = -1, .replication_factor = -1, .assignments = a, .assignment_count = partitions};
    assert_int_equal(kb_controller_create_topics(r->m.controller, &t, 1, false, meta_change(&c), r->m.now), KW_OK);
    rig_commit(r);
    assert_int_equal(c.done, 1);
    free(a);
    return t.result.code;
}
static inline int16_t rig_config(struct rig *r, int8_t type, const char *name, const char *key, const char *value) {
    struct meta_change c;
    struct kb_config_kv kv = {.key = kw_str_of(key), .value = kw_str_of(value)};
    struct kb_config_alter a = {.type = type, .name = kw_str_of(name), .kvs = &kv, .kv_count = 1};
    assert_int_equal(kb_controller_alter_configs(r->m.controller, &a, 1, false, meta_change(&c), r->m.now), KW_OK);
    rig_commit(r);
    assert_int_equal(c.done, 1);
    return a.result.code;
}
static inline struct kb_image_partition *rig_partition(struct rig *r, const char *topic, int32_t index) {
    struct kb_image_partition *p = kb_image_partition(&r->m.image, kw_str_of(topic), index);
    assert_non_null(p);
    return p;
}
/* "0 (0,1)": the leader and the in-sync replicas, by index; "- (1)" without a leader. */
static inline const char *rig_state(struct rig *r, const char *topic, int32_t index) {
    static char text[2][120];
    static int at;
    char *s = text[at ^= 1];
    const struct kb_image_partition *p = rig_partition(r, topic, index);
    int n = p->leader < 0 ? snprintf(s, 120, "- (") : snprintf(s, 120, "%d (", p->leader - ID0);
    for (int32_t i = 0; i < p->isr_count; i++) n += snprintf(s + n, 120 - (size_t)n, i ? ",%d" : "%d", p->isr[i] - ID0);
    snprintf(s + n, 120 - (size_t)n, ")");
    return s;
}
#define STATE(r, topic, index, text) assert_string_equal(rig_state(r, topic, index), text)
static inline bool rig_fenced(struct rig *r, int i) {
    const struct kb_image_broker *b = kb_image_broker(&r->m.image, rig_id(i));
    assert_non_null(b);
    return b->fenced;
}

#endif
