/* controller.h - turns admin requests into metadata records, has the store append them, and answers once they are committed and applied.
 *
 * One node: a quorum of one, so commit is "written and synced". Called by api/ (topics, configs, producer ids); calls store and image.
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
};
kw_err kb_controller_new(const struct kb_controller_options *o, struct kb_controller **k) KW_CHECK;
void kb_controller_free(struct kb_controller *k); /* changes still waiting are forgotten, done is not called */
/* The node calls it from the store's `applied`, when it has acted on the image: answers the changes that are in it. */
void kb_controller_applied(struct kb_controller *k, struct kb_now now);
/* This node became the active controller in this epoch, or ceased to be: nothing is changed, and what waits fails. */
void kb_controller_activate(struct kb_controller *k, int32_t epoch, struct kb_now now);
void kb_controller_resign(struct kb_controller *k, struct kb_now now);
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

#endif
