/* cluster.h - `kbroker cluster`: many nodes on one machine under one foreground parent, and the commands that act on them.
 *
 * Called by main.c. cluster.c is the parent, cluster_children.c its processes, cluster_http.c its admin port, cluster_command.c what that is told to do,
 * cluster_relay.c what it asks the nodes, cluster_options.c its command line (cluster_priv.h: what these share); cluster_plan.c says which nodes there are,
 * cluster_ask.c is the command that talks to a running parent.
 */
#ifndef KB_CLUSTER_H
#define KB_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KB_CLUSTER_NODES_MAX = 64, KB_CLUSTER_BROKERS_MAX = 9, KB_CLUSTER_CONTROLLERS_MAX = 9, KB_CLUSTER_FIRST_CONTROLLER = 1000 };

struct kb_cluster_node {
    int32_t id;
    bool broker, controller;
    uint16_t port;
};
struct kb_cluster_plan {
    struct kb_cluster_node nodes[KB_CLUSTER_NODES_MAX];
    size_t count;
};

/* argv[1] is "cluster". The exit code. */
int kb_cluster_main(int argc, char **argv);

/* ---- cluster_plan.c ---- */

/* Brokers 0 to nodes - 1 at base_port and on; controllers 0: the first 1, 3 or 5 of them vote too, else so many nodes from id 1000 on do
 * nothing else. base_port 0: free ports. -1, with what is wrong in text. */
int kb_cluster_plan_make(struct kb_cluster_plan *p, int nodes, int controllers, int base_port, char *text, size_t size);
int kb_cluster_plan_add(struct kb_cluster_plan *p, int32_t id, char *text, size_t size); /* a broker; -1 as above */
/* The port that is wanted, when it is another node's of the plan, or (but for strict) when the machine has it in use: a free one. wanted 0: a free one. -1 as
 * above. */
int kb_cluster_plan_port(const struct kb_cluster_plan *p, struct kb_cluster_node *n, int wanted, bool strict, char *text, size_t size);
/* The nodes' ports are kept from others for as long as this process lives, also while a node is down. */
void kb_cluster_plan_hold(const struct kb_cluster_plan *p);
/* DIR/cluster.json. 1: read; 0: there is none; -1 as above. */
int kb_cluster_plan_read(struct kb_cluster_plan *p, const char *dir, char *text, size_t size);
int kb_cluster_plan_write(const struct kb_cluster_plan *p, const char *dir, char *text, size_t size);
char *kb_cluster_plan_voters(const struct kb_cluster_plan *p); /* for controller.quorum.voters; free() */
struct kb_cluster_node *kb_cluster_plan_find(struct kb_cluster_plan *p, int32_t id);
const char *kb_cluster_roles(const struct kb_cluster_node *n); /* for process.roles */

/* ---- cluster_ask.c ---- */

int kb_cluster_ask(int argc, char **argv); /* argv[2] is the command */
bool kb_cluster_is_command(const char *word);
extern const char *const kb_cluster_commands[];
extern const size_t kb_cluster_command_count;

#endif
