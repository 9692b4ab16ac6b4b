/* node_priv.h - the node itself, as its own parts see it: api/, replica/, quorum/ read and use these fields; shells only know node.h. */
#ifndef KB_NODE_PRIV_H
#define KB_NODE_PRIV_H

#include "conn.h"
#include "quorum/controller.h"
#include "quorum/image.h"
#include "quorum/store.h"

struct kb_faults;
struct kb_fetch_cache;
struct kb_partitions;
struct kb_pid_source;

struct kb_node {
    const struct kb_config *config;
    struct kb_logger logger;
    struct kw_rng rng;
    struct kw_timers timers;
    struct kb_disk disk;
    struct kb_now now;               /* of the event under way */
    struct kw_compressor *compressor;
    struct kb_log_env log_env;
    enum kb_node_state state;
    char failure[640];
    int32_t id;                      /* node.id */
    const char *log_dir;             /* of log.dirs */
    struct kb_image image;
    struct kb_store *store;
    struct kb_controller *controller;
    struct kb_net net;
    struct kb_faults *faults;        /* NULL: no rules */
    struct kb_partitions *parts;
    struct kb_fetch_cache *fetch_cache;
    struct kb_pid_source *pid_source;
    struct kw_list dirty;            /* partitions whose logs have appends of this turn */
    struct kb_boot *boot;            /* loading and stopping, node.c */
};

/* The node cannot go on: says so, and the shell stops it. */
void kb_node_fail(struct kb_node *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
