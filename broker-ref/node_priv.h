/* node_priv.h - the node itself, as node, conn, dispatch, replica/ and the data APIs see it. What others need of it is in node_parts.h. */
#ifndef KB_NODE_PRIV_H
#define KB_NODE_PRIV_H

#include "conn.h"
#include "link.h"
#include "node_parts.h"
#include "quorum/controller.h"
#include "quorum/image.h"
#include "quorum/store.h"

struct kb_faults;
struct kb_fetch_cache;
struct kb_coordinator;
struct kb_partitions;
struct kb_followers;
struct kb_guids_node;
struct kb_pid_source;
struct kb_produce_guids;
struct kb_boot;
struct kb_channel;
struct kb_lifecycle;
struct kb_dialer;

struct kb_node {
    struct kb_parts parts; /* config, logger, rng, timers, disk, log_env, image, store, controller */
    struct kb_logger logger;
    struct kb_image image;
    struct kb_now now; /* of the event under way */
    struct kw_compressor *compressor;
    enum kb_node_state state;
    bool dropped;
    bool leaving;                     /* a clean stop has begun: leaderships are being handed over */
    bool start_marked, start_unclean; /* the last stop was in order; the machine went down since the last run, which did not stop so */
    char failure[640];
    int32_t id;            /* node.id */
    int roles;             /* KB_ROLE_* */
    uint16_t port;         /* what the shell listens on */
    char *boot_id;         /* NULL: unknown */
    char *log_dir;         /* of log.dirs */
    char *advertised_host; /* of advertised.listeners; NULL: the address that the client connected to */
    int32_t advertised_port;
    struct kb_recorder recorder;
    struct kb_net net;
    struct kb_links links;
    struct kb_channel *channel;
    struct kw_list forwards; /* forward.c: answers that wait for the image */
    struct kb_lifecycle *lifecycle; /* NULL: this node registers itself, or is no broker */
    struct kb_dialer *dialer; /* the controller's; NULL before the store is started */
    struct kb_faults *faults; /* NULL: no rules */
    struct kb_partitions *partitions;
    struct kb_coordinator *coordinator; /* NULL: no broker */
    struct kb_followers *followers;
    struct kb_guids_node *guids; /* what the GUID indexes share */
    struct kb_fetch_cache *fetch_cache;
    struct kb_pid_source *pid_source;
    struct kb_produce_guids *produce_guids; /* NULL: nothing was deduped yet */
    struct kb_boot *boot; /* loading and stopping, node.c */
};

/* The node cannot go on: says so, and the shell stops it. The first failure stays. */
void kb_node_fail(struct kb_node *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void kb_node_unfenced(struct kb_node *n, struct kb_now now);   /* lifecycle: this node is READY */
#define KB_SAY(n, level, ...) kb_say(&(n)->logger, (level), __VA_ARGS__)

#endif
