/* node_parts.h - what a node is made of, for the files that act on its behalf (api/, replica/): the shell sees node.h only. */
#ifndef KB_NODE_PARTS_H
#define KB_NODE_PARTS_H

#include "node.h"

struct kb_image;
struct kb_store;
struct kb_controller;
struct kb_parts {
    const struct kb_config *config;
    const struct kb_logger *logger;
    struct kw_rng rng;
    struct kw_timers timers;
    struct kb_disk disk;
    struct kb_log_env log_env;
    struct kb_image *image;
    struct kb_store *store;
    struct kb_controller *controller;
};
struct kb_parts *kb_node_parts(struct kb_node *n);
int64_t kb_node_broker_epoch(const struct kb_node *n); /* of this broker's registration; -1: none yet, or no broker */

/* The address that clients on this connection are told to use: advertised.listeners, else where they connected to. */
void kb_conn_advertised(const struct kb_conn *c, struct kw_str *host, int32_t *port);

#endif
