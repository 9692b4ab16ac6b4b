/* broker_host.h - a node's process in the simulated world: a real node core over the simulated disk and network, and its lives.
 *
 * Called by faults.c (kill, stop, start) and check_*.c (which look inside). Calls broker-ref/node.h, sim_disk, net.
 */
#ifndef SIM_BROKER_HOST_H
#define SIM_BROKER_HOST_H

#include "net.h"
#include "node.h"
#include "sim_disk.h"

#define SIM_DATA "/data"

enum sim_life { SIM_DOWN, SIM_STARTING, SIM_UP, SIM_STOPPING };
enum sim_death { SIM_DEATH_STOP, SIM_DEATH_KILL, SIM_DEATH_POWER, SIM_DEATH_FAILED };

/* A request that came back from the disk broken, by the folder of its partition. */
struct sim_broken {
    char dir[96];
    bool sync;
};
struct sim_broker {
    struct sim_host host; /* first */
    struct sim_world *w;
    struct sim_net *net;
    int index; /* among the nodes, and their hosts */
    struct sim_disk *disk;
    struct kb_config *config;
    struct kb_node *node; /* NULL while down */
    enum sim_life life;
    enum sim_death death; /* the last one */
    uint64_t lives, ready_lives;
    uint64_t boots; /* of its machine */
    int failed_in_row;
    struct kw_list socks, dials; /* accepted, and opened by the node */
    bool rebooted; /* its machine is started anew with it, though the power was not lost */
    int64_t stop_since_us, start_since_us;
    bool disk_was_broken; /* since the present start: a failure of the node is no wonder */
    /* Called by those that check. */
    void (*on_turn)(struct sim_broker *b);                     /* after each turn of a node that is up */
    void (*on_ready)(struct sim_broker *b);                    /* a start is through */
    void (*on_death)(struct sim_broker *b, enum sim_death how); /* the node is still there, and so is what it knew; the disk not yet hit */
    void (*on_dead)(struct sim_broker *b, enum sim_death how);  /* the node is gone, the disk is what it will be at the next start */
    void (*on_broken)(struct sim_broker *b, struct kb_file *file, bool sync); /* an append or sync failed with EIO */
    void *ctx;
};

void sim_broker_init(struct sim_broker *b, struct sim_world *w, struct sim_net *net, int index, const char *name, const struct sim_disk_options *o);
void sim_broker_deinit(struct sim_broker *b);
void sim_broker_set(struct sim_broker *b, const char *name, const char *value); /* a property, before the first start */
void sim_broker_start(struct sim_broker *b);
void sim_broker_stop(struct sim_broker *b); /* in order; takes its time */
void sim_broker_kill(struct sim_broker *b);
void sim_broker_power_loss(struct sim_broker *b);
/* Its wall clock jumps. With --advance, forward, the node is told (kb_node_advance): then it is time that has passed for its policies. */
void sim_broker_jump(struct sim_broker *b, int64_t ms);
extern bool sim_advances; /* --advance */
static inline struct kb_now sim_broker_now(const struct sim_broker *b) {
    struct sim_clock c = sim_host_now(&b->host);
    return (struct kb_now){c.mono_us, c.wall_ms};
}

#endif
