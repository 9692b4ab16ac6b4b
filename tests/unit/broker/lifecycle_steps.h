/* lifecycle_steps.h - whole nodes in one virtual time, a real quorum among them: started, stopped, asked. What test_lifecycle.c and test_lifecycle_disks.c
 * share.
 */
#ifndef LIFECYCLE_STEPS_H
#define LIFECYCLE_STEPS_H

#include "replica_rig.h"

#include "lifecycle.h"
#include "log/epochs.h"
#include "quorum/store_priv.h"
#include "quorum/elect.h"

static struct cluster c;

/* hosts, of which the first `voters` are the quorum; the others are brokers alone. */
static inline void setup_hosts(int hosts, int voters, uint64_t seed) {
    char list[128] = "";
    memset(&c, 0, sizeof(c));
    c.hosts = hosts;
    c.now = (struct kb_now){1000000, 1700000000000};
    for (int i = 0; i < voters; i++) snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%d@n%d:9092", i ? "," : "", i, i);
    for (int i = 0; i < hosts; i++) {
        struct host *h = &c.h[i];
        char id[16], listener[64];
        rig_init(&h->r, seed * 16 + (uint64_t)i);
        h->c = &c;
        h->id = i;
        h->r.boot_id = "boot-1";
        snprintf(id, sizeof(id), "%d", i);
        snprintf(listener, sizeof(listener), "PLAINTEXT://n%d:9092", i);
        rig_set(&h->r, "node.id", id);
        rig_set(&h->r, "listeners", listener);
        rig_set(&h->r, "controller.quorum.voters", list);
        if (i >= voters) rig_set(&h->r, "process.roles", "broker");
    }
}

static inline void up(int i) {
    struct host *h = &c.h[i];
    char text[400];
    h->r.now = c.now;
    if (kb_config_finish(h->r.config, text, sizeof(text)) != KW_OK) fail_msg("%s", text);
    rig_load(&h->r);
    h->up = true;
}
static inline bool is_ready(int i) {
    return c.h[i].up && kb_node_state(c.h[i].r.node) == KB_NODE_READY;
}
static inline void until_ready(int from, int to, int64_t us) {
    for (int64_t t = 0; t < us; t += 1000) {
        bool all = true;
        for (int i = from; i < to; i++) all = all && is_ready(i);
        if (all) return;
        cl_pass(&c, 1000);
    }
    for (int i = from; i < to; i++)
        if (!is_ready(i)) fail_msg("node %d is not ready: %s", i, kb_node_failure(c.h[i].r.node));
}
static inline void down(int i) { /* once it has stopped, or failed */
    cl_turn(&c);
    cl_cut_off(&c.h[i]);
    rig_free_node(&c.h[i].r);
    c.h[i].up = false;
}
static inline void stop(int i, int64_t us) {
    struct host *h = &c.h[i];
    h->r.now = c.now;
    kb_node_stop(h->r.node, c.now);
    for (int64_t t = 0; kb_node_state(h->r.node) != KB_NODE_STOPPED; t += 1000) {
        if (t > us) fail_msg("node %d has not stopped", i);
        cl_pass(&c, 1000);
    }
    down(i);
}
static inline void teardown_hosts(void) {
    for (int i = 0; i < c.hosts; i++)
        if (c.h[i].up) cl_kill(&c.h[i], false);
    for (int i = 0; i < PIPES_MAX; i++) cl_pipe_close(&c.pipes[i], KB_LINK_RESET);
    for (int i = 0; i < c.hosts; i++) {
        kb_config_free(c.h[i].r.config);
        sim_disk_free(c.h[i].r.disk);
        kw_arena_deinit(&c.h[i].r.arena);
    }
}
static inline void begin(int hosts, int voters, uint64_t seed) {
    setup_hosts(hosts, voters, seed);
    for (int i = 0; i < hosts; i++) up(i);
    until_ready(0, hosts, 5000000);
}

static inline const struct kb_image_broker *broker_seen_by(int i, int32_t id) {
    return kb_image_broker(&c.h[i].r.node->image, id);
}
static inline int64_t epoch_of(int i) {
    return kb_node_broker_epoch(c.h[i].r.node);
}
static inline int controller(void) {
    for (int i = 0; i < c.hosts; i++)
        if (c.h[i].up && kb_store_leads(c.h[i].r.node->parts.store)) return i;
    return -1;
}

/* An admin's request over a connection of its own; how long it took. */
static inline int64_t ask(int i, int16_t key, int16_t version, const void *q, void *res) {
    static int32_t id = 1;
    struct rig_conn *k = rig_connect(&c.h[i].r);
    int64_t began = c.now.mono_us;
    assert_non_null(k->conn);
    rig_request(k, key, version, ++id, q);
    for (int t = 0; t < 60000; t++) {
        cl_turn(&c);
        if (rig_response(k, key, version, id, res)) return c.now.mono_us - began;
        if (!k->conn) fail_msg("the connection was closed");
        cl_pass(&c, 1000);
    }
    fail_msg("no answer");
    return 0;
}
static inline int16_t create(int i, const char *name, int32_t partitions, int16_t rf, int32_t timeout_ms) {
    struct kw_create_topics_request q;
    struct kw_create_topics_response res;
    struct kw_create_topics_request_creatable_topic t = {.name = kw_str_of(name), .num_partitions = partitions, .replication_factor = rf};
    kw_msg_init(&kw_create_topics_request_desc, &q);
    q.topics.v = &t;
    q.topics.n = 1;
    q.timeout_ms = timeout_ms;
    ask(i, KW_API_CREATE_TOPICS, 7, &q, &res);
    assert_int_equal(res.topics.n, 1);
    return res.topics.v[0].error_code;
}

/* With acks=-1, partition index of t; the offset must be that. */
static inline void put(int i, int32_t index, int64_t offset) {
    struct rig *r = &c.h[i].r;
    struct kw_produce_response res;
    size_t n;
    uint8_t *p = rig_batch(r, &(struct rig_batch){.pid = -1, .epoch = -1, .seq = -1, .count = 1, .value_size = 100}, &n);
    ask(i, KW_API_PRODUCE, 9, &rig_produce_msg(r, "t", index, -1, p, n)->req, &res);
    assert_int_equal(res.responses.v[0].partition_responses.v[0].error_code, KE_NONE);
    assert_int_equal(res.responses.v[0].partition_responses.v[0].base_offset, offset);
}
static inline const struct kb_image_partition *seen_by(int i, int32_t index) {
    return kb_image_partition(&c.h[i].r.node->image, kw_str_of("t"), index);
}
static inline const struct kb_partition *copy_at(int i, int32_t index) {
    return seen_by(i, index)->local;
}
static inline void until_in_sync(int i, int32_t index, int32_t count) {
    for (int t = 0; seen_by(i, index)->isr_count != count; t++) {
        if (t > 20000) fail_msg("%d are in sync, not %d", seen_by(i, index)->isr_count, count);
        cl_pass(&c, 1000);
    }
}

#endif
