/* node.h - a whole node on a disk of its own, as the targets that drive one begin and end it. Called by fuzz_broker_*.c and fuzz_metadata_replay.c;
 * calls the rig of the node's unit tests.
 */
#ifndef FUZZ_NODE_H
#define FUZZ_NODE_H

#include "kit/kit.h"
#include "unit/broker/node_rig.h"

/* The configuration is shared by all runs. */
static inline void fuzz_rig_init(struct rig *r, struct kb_config *config, bool slow_disk) {
    const struct sim_disk_options fast = {.inline_ppm = 1000000}, slow = {.delay_min_us = 20, .delay_max_us = 2000};
    r->config = config;
    r->seed = 7;
    r->disk = sim_disk_new(7, slow_disk ? &slow : &fast);
    sim_disk_poke(r->disk, "/data/.keep", "", 0);
    r->now = (struct kb_now){1000000, 1700000000000};
    kw_arena_init(&r->arena, 0);
}

static inline void fuzz_rig_deinit(struct rig *r) {
    sim_disk_free(r->disk);
    kw_arena_deinit(&r->arena);
}

static inline void fuzz_node_boot(struct rig *r) {
    rig_boot(r);
    FUZZ_CHECK(kb_node_state(r->node) == KB_NODE_READY, "the node does not start: %s", kb_node_failure(r->node));
}

/* In order; it is not freed. */
static inline void fuzz_node_stop(struct rig *r) {
    kb_node_stop(r->node, r->now);
    rig_settle(r);
    for (int i = 0; kb_node_state(r->node) == KB_NODE_STOPPING && i < 100; i++) rig_pass(r, 1000000);
    FUZZ_CHECK(kb_node_state(r->node) == KB_NODE_STOPPED, "the node does not stop: state %d", (int)kb_node_state(r->node));
}

#endif
