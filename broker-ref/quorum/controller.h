/* controller.h - turns admin requests and what happens to brokers into metadata records, has the store append them, and answers once they are
 * committed and applied.
 *
 * It acts only while this node leads the metadata quorum (activate, resign); elsewhere every change is answered NOT_CONTROLLER. In a quorum of
 * one commit is "written and synced", and the node's own broker is registered by the store and never fenced.
 * Called by api/ (topics, configs, producer ids, brokers, in-sync replicas, reassignments) and by the node; calls store and image.
 * Works on plain C requests, not on wire messages, so that any version of any API can use it.
 */
#ifndef KB_CONTROLLER_H
#define KB_CONTROLLER_H

#include "../node.h"
#include "image.h"

struct kb_controller;
struct kb_store;

struct kb_controller_options {
    struct kb_store *store;
    const struct kb_image *image;
    const struct kb_config *config;
    struct kw_rng *rng; /* topic ids */
    const struct kb_logger *logger;
    struct kw_timers *timers; /* a zero-delay timer brings `done` in a later turn */
    /* Tries to connect to a broker that may be dead, and tells kb_controller_dialed, in a later turn. NULL: only sessions tell of dead brokers. */
    kw_err (*dial)(void *ctx, int32_t broker, const char *host, uint16_t port, struct kb_now now);
    void *ctx;
};
kw_err kb_controller_new(const struct kb_controller_options *o, struct kb_controller **k) KW_CHECK;
void kb_controller_free(struct kb_controller *k); /* changes still waiting are forgotten, done is not called */
/* The node calls it from the store's `applied`, when it has acted on the image: answers the changes that are in it. */
void kb_controller_applied(struct kb_controller *k, struct kb_now now);
/* Before that, as soon as the image has moved, whether or not this node has yet opened the logs of new partitions: what concerns the cluster
 * does not wait for them. */
void kb_controller_replayed(struct kb_controller *k, struct kb_now now);
/* This node became the active controller: the first record of its epoch is committed and applied, so the image has all that came before. All
 * broker sessions begin anew, in full. Or it ceased to be: what waits is answered NOT_CONTROLLER (and may or may not come to be), sessions are
 * forgotten. */
void kb_controller_activate(struct kb_controller *k, struct kb_now now);
void kb_controller_resign(struct kb_controller *k, struct kb_now now);
bool kb_controller_is_active(const struct kb_controller *k);
void kb_controller_refused(struct kb_controller *k, int64_t from,
                           struct kb_now now); /* the store's `refused`: those changes are answered KAFKA_STORAGE_ERROR */
void kb_controller_failed(struct kb_controller *k,
                          struct kb_now now); /* the store failed: everything waiting is answered KAFKA_STORAGE_ERROR */

struct kb_result {  /* of one item (a topic, a resource) */
    int16_t code;   /* enum kw_kerror */
    char text[200]; /* what failed, why, what to do; "" when ok */
};

/* One change in flight. The caller fills done and ctx in its request's arena and gets done(c) exactly once, in a later turn, unless it
 * cancels (its connection went, or its time is up). Changes that touch the same topic or resource run one after the other. */
struct kb_change {
    void (*done)(struct kb_change *c, struct kb_now now);
    void *ctx;
    /* the controller's */
    struct kw_list link;
    const struct kb_change_kind *kind;
    void *items;
    int32_t count;
    bool validate_only;
    struct kb_pending_change *pending;
};
/* done will not come; the memory of the change and its items may go. What was appended still happens. */
void kb_controller_cancel(struct kb_controller *k, struct kb_change *c);

struct kb_topic_create {
    struct kw_str name;
    int32_t partitions;         /* -1: num.partitions */
    int16_t replication_factor; /* -1: default */
    const struct kb_assignment {
        int32_t index;
        const int32_t *brokers;
        int32_t count;
    } * assignments;
    int32_t assignment_count; /* > 0: partitions and replication_factor must be -1 */
    const struct kb_config_kv {
        struct kw_str key, value;
        int8_t op;
    } * configs; /* value null: default; op of IncrementalAlterConfigs: 0 set 1 delete 2 append 3 subtract */
    int32_t config_count;
    /* out */
    struct kb_result result;
    struct kw_uuid id;
    int32_t partitions_made;
    int16_t rf_made;
};
/* Validates all, appends the records of the good ones as one atomic batch; each item has its own result. validate_only: nothing is
 * appended, done still comes. */
kw_err kb_controller_create_topics(struct kb_controller *k, struct kb_topic_create *topics, int32_t count, bool validate_only,
                                   struct kb_change *c, struct kb_now now) KW_CHECK;

struct kb_topic_ref {
    struct kw_str name; /* null: by id */
    struct kw_uuid id;
    struct kb_result result;
};
kw_err kb_controller_delete_topics(struct kb_controller *k, struct kb_topic_ref *topics, int32_t count, struct kb_change *c,
                                   struct kb_now now) KW_CHECK;

struct kb_topic_grow {
    struct kw_str name;
    int32_t total;
    const struct kb_assignment *assignments;
    int32_t assignment_count; /* -1: none given */
    struct kb_result result;
};
kw_err kb_controller_grow_topics(struct kb_controller *k, struct kb_topic_grow *topics, int32_t count, bool validate_only,
                                 struct kb_change *c, struct kb_now now) KW_CHECK;

struct kb_config_alter {
    int8_t type; /* 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group */
    struct kw_str name;
    const struct kb_config_kv *kvs;
    int32_t kv_count;
    bool replace_all; /* AlterConfigs: what is not named goes back to its default */
    struct kb_result result;
};
kw_err kb_controller_alter_configs(struct kb_controller *k, struct kb_config_alter *alters, int32_t count, bool validate_only,
                                   struct kb_change *c, struct kb_now now) KW_CHECK;

/* A block of producer ids (ProducerIdsRecord), 1,000 at a time; the broker hands them out one by one. */
struct kb_pid_block {
    int64_t first;
    int32_t count;
    struct kb_result result;
};
/* A log was opened that holds producers of ids below this (of another cluster's making): no block begins below. */
void kb_controller_pids_from(struct kb_controller *k, int64_t next);
kw_err kb_controller_allocate_pids(struct kb_controller *k, struct kb_pid_block *b, struct kb_change *c, struct kb_now now) KW_CHECK;

/* ---- Brokers (KIP-631; specs: controller_brokers.c, controller_sessions.c) ---- */

struct kb_broker_register {
    int32_t id;
    struct kw_uuid incarnation;
    struct kw_str cluster_id; /* must be this one's: a new node has taken it over by then */
    const struct kw_register_broker_record_broker_endpoint *endpoints;
    int32_t endpoint_count;
    const struct kw_register_broker_record_broker_feature *features;
    int32_t feature_count;
    struct kw_str rack; /* may be null */
    const struct kw_uuid *log_dirs;
    int32_t log_dir_count;
    /* The epoch that the broker had when it last ran, where what it acknowledged then is still on its disk: it stopped cleanly, or its process
     * alone ended (kill -9). -1 when the machine went down, or nothing is known: then it may have lost what it had not synced, and leaves the
     * in-sync replicas. */
    int64_t previous_epoch;
    const void *conn; /* that it came by; NULL: this very node */
    /* out */
    struct kb_result result;
    int64_t epoch;
};
kw_err kb_controller_register_broker(struct kb_controller *k, struct kb_broker_register *r, struct kb_change *c, struct kb_now now) KW_CHECK;

struct kb_broker_unregister {
    int32_t id;
    struct kb_result result;
    int64_t epoch; /* the controller's: of the incarnation that goes; -1: none was registered */
};
kw_err kb_controller_unregister_broker(struct kb_controller *k, struct kb_broker_unregister *u, struct kb_change *c, struct kb_now now) KW_CHECK;

/* A broker says that it lives, how far its image is, and what it wants. Answered in place (true), or, when the answer depends on a change that
 * must be committed first (fenced, unfenced, leaderships moved away), by `done` in a later turn (false); never both. */
struct kb_heartbeat {
    int32_t id;
    int64_t epoch, metadata_offset;
    bool want_fence, want_shut_down;
    const struct kw_uuid *offline_dirs; /* KIP-858: it cannot use these any more. All that it registered: as want_fence */
    int32_t offline_dir_count;
    const void *conn; /* that it came by: its close is told by kb_controller_conn_closed; NULL: this very node */
    void (*done)(struct kb_heartbeat *h, struct kb_now now);
    void *ctx;
    /* out */
    int16_t code;
    bool caught_up, fenced, shut_down;
    /* the controller's */
    struct kw_list link;
};
bool kb_controller_heartbeat(struct kb_controller *k, struct kb_heartbeat *h, struct kb_now now);
void kb_controller_heartbeat_cancel(struct kb_heartbeat *h); /* while done has not come */
void kb_controller_conn_closed(struct kb_controller *k, const void *conn, struct kb_now now); /* one that a heartbeat or registration came by */
/* What came of `dial`: nothing listens there (the process is dead), or anything else. */
void kb_controller_dialed(struct kb_controller *k, int32_t broker, bool refused, struct kb_now now);

/* ---- Partitions: in-sync replicas (KIP-497, 841, 903), elections (KIP-460), reassignments (KIP-455) ---- */

struct kb_isr_alter {
    struct kw_str topic; /* null: by id */
    struct kw_uuid topic_id;
    int32_t partition, leader_epoch, partition_epoch;
    const int32_t *isr;
    const int64_t *broker_epochs; /* of isr's members, -1: not known; NULL: none is known */
    int32_t isr_count;
    int8_t recovery_state; /* 1: still recovering from an unclean election; then alone */
    /* out: the code in result, and, when it is 0, what the partition is now */
    struct kb_result result;
    int32_t leader, now_leader_epoch, now_partition_epoch;
    int32_t *isr_room; /* the caller's, for isr_count of them: who is in sync now */
    int32_t now_isr_count;
    int8_t now_recovery_state;
};
struct kb_isr_request {
    int32_t broker; /* that leads them */
    int64_t broker_epoch;
    struct kb_isr_alter *items;
    bool stale; /* out: of another incarnation of the broker: STALE_BROKER_EPOCH for all */
};
kw_err kb_controller_alter_isr(struct kb_controller *k, struct kb_isr_request *q, int32_t count, struct kb_change *c, struct kb_now now) KW_CHECK;

struct kb_dir_assign { /* KIP-858 */
    struct kw_uuid topic_id;
    int32_t partition;
    struct kw_uuid directory; /* one that the broker registered, or kb_directory_lost: its log failed */
    struct kb_result result;
};
struct kb_dirs_request {
    int32_t broker; /* whose replicas they are */
    int64_t broker_epoch;
    struct kb_dir_assign *items;
    bool stale; /* out: of another incarnation of the broker: STALE_BROKER_EPOCH for all */
    /* the controller's, for its log line */
    int32_t lost, found, led_anew, leaderless;
};
kw_err kb_controller_assign_dirs(struct kb_controller *k, struct kb_dirs_request *d, int32_t count, struct kb_change *c, struct kb_now now) KW_CHECK;

enum { KB_ELECT_PREFERRED = 0, KB_ELECT_UNCLEAN = 1 };
struct kb_leader_elect {
    struct kw_str topic;
    int32_t partition;
    int8_t type;
    struct kb_result result;
};
kw_err kb_controller_elect_leaders(struct kb_controller *k, struct kb_leader_elect *v, int32_t count, struct kb_change *c, struct kb_now now) KW_CHECK;

struct kb_reassign {
    struct kw_str topic;
    int32_t partition;
    const int32_t *replicas; /* NULL: cancel the one under way */
    int32_t replica_count;
    bool keep_factor; /* the number of replicas must stay */
    struct kb_result result;
};
kw_err kb_controller_reassign(struct kb_controller *k, struct kb_reassign *v, int32_t count, struct kb_change *c, struct kb_now now) KW_CHECK;

/* For another broker than this node: its epoch is checked. */
struct kb_pid_grant {
    int32_t broker;
    int64_t broker_epoch;
    struct kb_pid_block block;
};
kw_err kb_controller_grant_pids(struct kb_controller *k, struct kb_pid_grant *g, struct kb_change *c, struct kb_now now) KW_CHECK;

/* Since this node's start, while it was the controller. */
struct kb_controller_counts {
    int64_t unclean_elections;  /* of leaders that were not in sync: records were lost */
    int64_t last_known_leaders; /* the last in-sync replica leads after its machine went down: records may be lost */
    int64_t brokers_fenced;
};
const struct kb_controller_counts *kb_controller_counts(const struct kb_controller *k);

#endif
