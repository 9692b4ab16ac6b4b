/** @file admin.h
 * Administration: topics, partitions, configurations, records, the cluster (KIP-4, KIP-107, KIP-113, KIP-133, KIP-339, KIP-455, KIP-460,
 * KIP-836). Each call is an operation; the short forms wait for it.
 *
 * What they share:
 * - timeout_us limits the whole call, in microseconds: KC_FOREVER, or 0 for default.api.timeout.ms (0 is not "do not block" here).
 * - Inputs are borrowed for the call: the _start forms copy them. A _start form gives an operation, to be freed by the caller, that ends in
 *   kc_op_wait or KC_READY_OP with the same opaque; its results come from kc_op_result_*. The short forms write results into the items.
 * - A call over items returns KC_OK when all succeeded, else the first item's error, or the call's. Items that the call did not get to have
 *   the call's error; a kc_error, where asked for, tells that of the first item.
 * - Errors of a call: KC_TIMED_OUT (its attempts say what was tried), KC_UNSUPPORTED (the broker lacks the API), KC_CANCELLED,
 *   KC_BAD_MESSAGE, and Kafka's codes, as each item's are. Retriable ones are retried within the limit.
 * - A request whose answer is lost is sent again. When the repeated one finds the work done (the topic there with the partitions and replicas
 *   asked for, or gone, or grown to that count), that counts as this call's own success.
 */
#ifndef KCLIENT_ADMIN_H
#define KCLIENT_ADMIN_H

#include "kclient.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A config to set. */
typedef struct kc_config_pair {
    const char *name;            /**< the config's */
    const char *value;           /**< what it is to be; NULL: back to the default */
    int32_t op;                  /**< alter: 0 set, 1 delete, 2 append, 3 subtract */
} kc_config_pair;

/** A topic to create, and what came of it. */
typedef struct kc_topic_new {
    const char *name;            /**< the topic's */
    int32_t partitions;          /**< 0: the broker's num.partitions */
    int32_t replication_factor;  /**< 0: the broker's default */
    const kc_config_pair *configs; /**< its configs */
    size_t config_count;         /**< how many configs */
    /** NULL: the cluster places the replicas. Else partitions * replication_factor broker ids, both given, partition by partition, the
     * preferred leader of each first. */
    const int32_t *replicas;
    /* out */
    kc_err err;                  /**< KC_OK, or why it failed */
    char message[256];           /**< what failed and what to do; "" when ok */
} kc_topic_new;

/** Creates topics (KIP-4, KIP-464); per-item results in items[].err and .message. validate_only 1: checked, nothing is changed. Per item:
 * TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG, POLICY_VIOLATION. */
KC_API kc_err kc_admin_create_topics(kc_client *c, kc_topic_new *items, size_t stride, size_t n, int32_t validate_only, int64_t timeout_us, kc_error **error);

/** The same as an operation; results: kc_op_result_items. */
KC_API kc_err kc_admin_create_topics_start(kc_client *c, const kc_topic_new *items, size_t stride, size_t n, int32_t validate_only, int64_t timeout_us,
                                           uint64_t opaque, kc_op **op, kc_error **error);

/** A topic or a group to act on, and what came of it. */
typedef struct kc_admin_item {
    const char *name;            /**< a topic's, or a group's */
    int32_t count;               /**< create_partitions: the new total; not looked at otherwise */
    /* out */
    kc_err err;                  /**< KC_OK, or why it failed */
    char message[256];           /**< what failed and what to do; "" when ok */
} kc_admin_item;
/** Deletes topics with all their records. Per item: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED, INVALID_REQUEST. */
KC_API kc_err kc_admin_delete_topics(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
/** Lets topics grow to items[].count partitions (KIP-195); records keep theirs. Per item: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS (not
 * more than there are). */
KC_API kc_err kc_admin_create_partitions(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
/** Both as operations; results: kc_op_result_items. */
KC_API kc_err kc_admin_delete_topics_start(kc_client *c, const kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                                           kc_op **op, kc_error **error);
/** The same as an operation; results: kc_op_result_items. */
KC_API kc_err kc_admin_create_partitions_start(kc_client *c, const kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                                               kc_op **op, kc_error **error);
/** Deletes records below parts[].offset (KC_OFFSET_END, -1: all; KIP-107); out: the new log start in parts[].offset, or parts[].err
 * (OFFSET_OUT_OF_RANGE: above the high watermark; UNKNOWN_TOPIC_OR_PARTITION). parts[].topic: kc_client_topic. */
KC_API kc_err kc_admin_delete_records(kc_client *c, kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
/** Its results: kc_op_result_offsets (consumer.h). */
KC_API kc_err kc_admin_delete_records_start(kc_client *c, const kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                                            kc_op **op, kc_error **error);

/** Kinds of what has configs, by Kafka's numbers. */
enum kc_resource { KC_RESOURCE_TOPIC = 2, KC_RESOURCE_BROKER = 4 };
/** A topic or broker whose configs are to be changed, and what came of it. */
typedef struct kc_config_alter {
    int32_t resource;            /**< enum kc_resource */
    const char *name;            /**< topic, or broker id as text ("": all brokers) */
    const kc_config_pair *pairs; /**< what to change */
    size_t pair_count;           /**< how many pairs */
    /* out */
    kc_err err;                  /**< KC_OK, or why nothing was changed */
    char message[256];           /**< what failed and what to do; "" when ok */
} kc_config_alter;
/** Changes single configs of topics and brokers, the others stay (KIP-339; for a broker of before 2.3 KC_UNSUPPORTED). Each item is changed as a
 * whole or not at all. Per item: INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (no such broker). */
KC_API kc_err kc_admin_alter_configs(kc_client *c, kc_config_alter *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
/** The same as an operation; results: kc_op_result_items. */
KC_API kc_err kc_admin_alter_configs_start(kc_client *c, const kc_config_alter *items, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                                           kc_op **op, kc_error **error);

/** Results of the _start forms of create_topics, delete_topics, create_partitions, alter_configs, elect_leaders, alter_reassignments, and of
 * those that change groups, in the order of the items. Strings are borrowed until the operation is freed. Up to max; returns how many there are,
 * 0 while it is under way. */
typedef struct kc_admin_result {
    const char *name;            /**< the item's */
    const char *message;         /**< what failed and what to do; "" when ok */
    kc_err err;                  /**< KC_OK, or why it failed */
    int32_t partition;           /**< of the topic `name`; -1 where the items are no partitions */
} kc_admin_result;
/** Fills up to max results, stride bytes apart. */
KC_API size_t kc_op_result_items(const kc_op *op, kc_admin_result *out, size_t stride, size_t max);

/** Answers as an owned tree. Strings are borrowed until it is freed. */
typedef struct kc_config_list kc_config_list;
/** A config of a topic or broker. */
typedef struct kc_config_item {
    const char *name;            /**< the config's */
    const char *value;           /**< NULL: null, or sensitive */
    const char *source;          /**< "topic", "broker", "broker default", "static", "default" */
    int32_t read_only;           /**< 1: it cannot be changed while the broker runs */
    int32_t sensitive;           /**< 1: its value is not told */
    const char *doc;             /**< "" when the broker gave none */
} kc_config_item;
/** All configs of a topic or a broker (resource: enum kc_resource; name: as in kc_config_alter), defaults included; values are those in effect.
 * *out is the caller's. UNKNOWN_TOPIC_OR_PARTITION, KC_INVALID (no broker's number). A broker answers for itself: one that is not there is
 * waited for until the limit, KC_TIMED_OUT. */
KC_API kc_err kc_admin_describe_configs(kc_client *c, int32_t resource, const char *name, int64_t timeout_us, kc_config_list **out, kc_error **error);
/** The same as an operation; its result: kc_op_result_configs. */
KC_API kc_err kc_admin_describe_configs_start(kc_client *c, int32_t resource, const char *name, int64_t timeout_us, uint64_t opaque, kc_op **op,
                                              kc_error **error);
KC_API kc_config_list *kc_op_result_configs(kc_op *op); /**< yours from then on; NULL: not done, failed, or taken already */
/** How many configs. */
KC_API size_t kc_config_list_count(const kc_config_list *l);
/** One of them, index from 0; KC_INVALID past the end. */
KC_API kc_err kc_config_list_get(const kc_config_list *l, size_t index, kc_config_item *out);
/** Frees it, and with it what was borrowed from it. NULL does nothing. */
KC_API void kc_config_list_free(kc_config_list *l);

/** Brokers and topics at one moment; of its receiver, kc_cluster_info_free; does not change: any thread. */
typedef struct kc_cluster_info kc_cluster_info;
/** A broker, as the metadata tell of it. */
typedef struct kc_broker_info {
    int32_t id;                  /**< its node id */
    int32_t port;                /**< where it listens */
    const char *host;            /**< where it listens */
    const char *rack;            /**< NULL: none */
    int32_t fenced;              /**< 1: registered, but without a live session at the controller (KIP-1073: Kafka 4.0 on tells of these) */
} kc_broker_info;
/** A partition of a topic: who leads, who has it, its offsets. */
typedef struct kc_partition_info {
    int32_t partition;           /**< its number */
    int32_t leader;              /**< node id; -1: none */
    int32_t leader_epoch;        /**< the leader's epoch; -1 unknown */
    const int32_t *replicas;     /**< node ids of all replicas, the preferred leader first */
    const int32_t *isr;          /**< those in sync */
    const int32_t *offline;      /**< those that are down */
    size_t replica_count;        /**< how many replicas */
    size_t isr_count;            /**< how many in sync */
    size_t offline_count;        /**< how many down */
    int64_t log_start;           /**< the first offset; the leader's, where one topic was asked for; -1 unknown */
    int64_t high_watermark;      /**< up to where consumers read, likewise */
    int64_t log_end;             /**< the leader's log end, likewise */
    kc_err err;                  /**< KC_OK, or why its offsets are not known, or it has no leader */
} kc_partition_info;
/** A topic, as the metadata tell of it. */
typedef struct kc_topic_info {
    const char *name;            /**< its name */
    uint8_t id[16];              /**< its id (KIP-516); zeroes: unknown */
    int32_t internal;            /**< 1: the brokers' own, as __consumer_offsets */
    size_t partition_count;      /**< how many partitions: kc_cluster_info_partition */
    kc_err err;                  /**< KC_OK, or why it is not described */
} kc_topic_info;
/** Brokers, controller and topics. topic NULL: all of them, without offsets. Else that one, with the offsets of each partition: -1, and an err,
 * where its leader cannot be reached. A topic that is not there has topic_info.err UNKNOWN_TOPIC_OR_PARTITION, the call succeeds; nothing is
 * created by asking. *out is the caller's. */
KC_API kc_err kc_admin_describe(kc_client *c, const char *topic, int64_t timeout_us, kc_cluster_info **out, kc_error **error);
/** The same as an operation; its result: kc_op_result_cluster. */
KC_API kc_err kc_admin_describe_start(kc_client *c, const char *topic, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
KC_API kc_cluster_info *kc_op_result_cluster(kc_op *op); /**< yours from then on; NULL: not done, failed, or taken already */
KC_API const char *kc_cluster_info_id(const kc_cluster_info *i);         /**< "" unknown */
KC_API int32_t kc_cluster_info_controller(const kc_cluster_info *i);     /**< its node id; -1 unknown */
/* Indexes from 0; KC_INVALID past the end. */
/** How many brokers. */
KC_API size_t kc_cluster_info_broker_count(const kc_cluster_info *i);
/** A broker, in the order of their ids. */
KC_API kc_err kc_cluster_info_broker(const kc_cluster_info *i, size_t index, kc_broker_info *out);
/** How many topics. */
KC_API size_t kc_cluster_info_topic_count(const kc_cluster_info *i);
/** A topic. */
KC_API kc_err kc_cluster_info_topic(const kc_cluster_info *i, size_t index, kc_topic_info *out);
/** A partition of the topic with that index, by number. */
KC_API kc_err kc_cluster_info_partition(const kc_cluster_info *i, size_t topic, size_t index, kc_partition_info *out);
/** Frees it, and with it what was borrowed from it. NULL does nothing. */
KC_API void kc_cluster_info_free(kc_cluster_info *i);

/* ---- A cluster of several nodes: leaders, moves, quorum, disks ---- */

/** A partition to act on, and what came of it. */
typedef struct kc_partition_item {
    const char *topic;           /**< the topic's name */
    int32_t partition;           /**< its number */
    const int32_t *replicas;     /**< alter_reassignments: the brokers that are to hold it, the preferred leader first; NULL: stop its move */
    size_t replica_count;        /**< how many replicas */
    /* out */
    kc_err err;                  /**< KC_OK, or why it failed */
    char message[256];           /**< what failed and what to do; "" when ok */
} kc_partition_item;

/** Ways to choose a leader. */
enum kc_election {
    KC_ELECT_PREFERRED = 0, /**< the first replica of each, where it is in sync */
    KC_ELECT_UNCLEAN = 1,   /**< any live replica, where none in sync is left: records that only the others had are lost */
};
/** Elects leaders (KIP-460; Kafka 2.4 on). n 0: of all partitions that need it. Per item: ELECTION_NOT_NEEDED (the wanted one leads already;
 * no failure of the call), PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION. */
KC_API kc_err kc_admin_elect_leaders(kc_client *c, int32_t election, kc_partition_item *items, size_t stride, size_t n, int64_t timeout_us,
                                     kc_error **error);
/** The same as an operation; results: kc_op_result_items; with n 0 those that the broker answered with. */
KC_API kc_err kc_admin_elect_leaders_start(kc_client *c, int32_t election, const kc_partition_item *items, size_t stride, size_t n,
                                           int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);

/** Has partitions moved onto other brokers, or stops that (KIP-455). KC_OK says that the move began: kc_admin_list_reassignments shows it until
 * it is done. Per item: INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS (nothing to stop), UNKNOWN_TOPIC_OR_PARTITION. */
KC_API kc_err kc_admin_alter_reassignments(kc_client *c, kc_partition_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
/** The same as an operation; results: kc_op_result_items. */
KC_API kc_err kc_admin_alter_reassignments_start(kc_client *c, const kc_partition_item *items, size_t stride, size_t n, int64_t timeout_us,
                                                 uint64_t opaque, kc_op **op, kc_error **error);

/** Removes a broker that will not come back from the cluster's metadata (KIP-185, KIP-631). BROKER_ID_NOT_REGISTERED, INVALID_REQUEST. */
KC_API kc_err kc_admin_unregister_broker(kc_client *c, int32_t broker, int64_t timeout_us, kc_error **error);
/** The same as an operation; kc_op_wait has its result. */
KC_API kc_err kc_admin_unregister_broker_start(kc_client *c, int32_t broker, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);

/** Moves at one moment; of its receiver, kc_reassignment_list_free; does not change: any thread. */
typedef struct kc_reassignment_list kc_reassignment_list;
/** A partition that is being moved. */
typedef struct kc_reassignment {
    const char *topic;           /**< the topic's name */
    int32_t partition;           /**< its number */
    const int32_t *replicas;     /**< all brokers that hold it now or shall */
    const int32_t *adding;       /**< those that come */
    const int32_t *removing;     /**< those that go */
    size_t replica_count;        /**< how many replicas */
    size_t adding_count;         /**< how many come */
    size_t removing_count;       /**< how many go */
} kc_reassignment;
/** The partitions that are being moved (KIP-455). *out is the caller's, its strings and arrays are borrowed from it. */
KC_API kc_err kc_admin_list_reassignments(kc_client *c, int64_t timeout_us, kc_reassignment_list **out, kc_error **error);
/** The same as an operation; its result: kc_op_result_reassignments. */
KC_API kc_err kc_admin_list_reassignments_start(kc_client *c, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
KC_API kc_reassignment_list *kc_op_result_reassignments(kc_op *op); /**< yours from then on; NULL: not done, failed, or taken already */
/** How many partitions that are being moved. */
KC_API size_t kc_reassignment_list_count(const kc_reassignment_list *l);
KC_API kc_err kc_reassignment_list_get(const kc_reassignment_list *l, size_t index, kc_reassignment *out); /**< KC_INVALID past the end */
/** Frees it, and with it what was borrowed from it. NULL does nothing. */
KC_API void kc_reassignment_list_free(kc_reassignment_list *l);

/** The metadata quorum at one moment; of its receiver, kc_quorum_info_free; does not change: any thread. */
typedef struct kc_quorum_info kc_quorum_info;
/** A member or observer of the metadata quorum. */
typedef struct kc_quorum_replica {
    int32_t id;                  /**< its node id */
    int32_t voter;               /**< 0: an observer, as brokers are that are no controllers */
    int64_t log_end;             /**< of its copy of the metadata log; -1 unknown */
    int64_t fetched_ms_ago;      /**< by the leader's clock: when it last asked for more; -1 unknown */
    int64_t caught_up_ms_ago;    /**< when it last had all; -1 unknown */
    uint8_t directory[16];       /**< of its metadata log (KIP-853); zeroes: unknown */
} kc_quorum_replica;
/** The metadata quorum as its leader sees it (KIP-595, KIP-836). *out is the caller's. KC_UNSUPPORTED: a cluster without one (before 3.3). */
KC_API kc_err kc_admin_describe_quorum(kc_client *c, int64_t timeout_us, kc_quorum_info **out, kc_error **error);
/** The same as an operation; its result: kc_op_result_quorum. */
KC_API kc_err kc_admin_describe_quorum_start(kc_client *c, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
KC_API kc_quorum_info *kc_op_result_quorum(kc_op *op);                   /**< yours from then on; NULL: not done, failed, or taken already */
KC_API int32_t kc_quorum_info_leader(const kc_quorum_info *q);           /**< its node id; -1 none */
/** The leader's epoch. */
KC_API int32_t kc_quorum_info_epoch(const kc_quorum_info *q);
/** Up to where the metadata log is on a majority; -1 unknown. */
KC_API int64_t kc_quorum_info_high_watermark(const kc_quorum_info *q);
/** How many voters and observers. */
KC_API size_t kc_quorum_info_count(const kc_quorum_info *q);
KC_API kc_err kc_quorum_info_get(const kc_quorum_info *q, size_t index, kc_quorum_replica *out); /**< voters first; KC_INVALID past the end */
/** Frees it, and with it what was borrowed from it. NULL does nothing. */
KC_API void kc_quorum_info_free(kc_quorum_info *q);

/** A broker's log directories at one moment; of its receiver, kc_log_dir_list_free; does not change: any thread. */
typedef struct kc_log_dir_list kc_log_dir_list;
/** A log directory of a broker. */
typedef struct kc_log_dir {
    const char *path;            /**< its folder */
    kc_err err;                  /**< KAFKA_STORAGE_ERROR: offline */
    int64_t total_bytes;         /**< of its disk; -1 unknown */
    int64_t usable_bytes;        /**< of its disk; -1 unknown */
} kc_log_dir;
/** A replica in a log directory. */
typedef struct kc_log_dir_replica {
    size_t dir;                  /**< index of its log directory */
    const char *topic;           /**< the topic's name */
    int32_t partition;           /**< its number */
    int64_t size;                /**< bytes */
    int64_t lag;                 /**< records that it is behind the high watermark as its broker was last told of that; -1: unknown
                                      (a future one: behind the present copy) */
    int32_t future;              /**< 1: a copy that is being moved to this directory */
} kc_log_dir_replica;
/** A broker's log directories and the replicas in them (KIP-113, KIP-827). *out is the caller's. As each broker answers for itself, one that is
 * not there is waited for until the limit, KC_TIMED_OUT. */
KC_API kc_err kc_admin_describe_log_dirs(kc_client *c, int32_t broker, int64_t timeout_us, kc_log_dir_list **out, kc_error **error);
/** The same as an operation; its result: kc_op_result_log_dirs. */
KC_API kc_err kc_admin_describe_log_dirs_start(kc_client *c, int32_t broker, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
KC_API kc_log_dir_list *kc_op_result_log_dirs(kc_op *op); /**< yours from then on; NULL: not done, failed, or taken already */
/** How many log directories. */
KC_API size_t kc_log_dir_list_count(const kc_log_dir_list *l);
/** A log directory; KC_INVALID past the end. */
KC_API kc_err kc_log_dir_list_get(const kc_log_dir_list *l, size_t index, kc_log_dir *out);
/** How many replicas in all of them. */
KC_API size_t kc_log_dir_list_replica_count(const kc_log_dir_list *l);
/** A replica; KC_INVALID past the end. */
KC_API kc_err kc_log_dir_list_replica(const kc_log_dir_list *l, size_t index, kc_log_dir_replica *out);
/** Frees it, and with it what was borrowed from it. NULL does nothing. */
KC_API void kc_log_dir_list_free(kc_log_dir_list *l);

/** A node's counts at one moment; of its receiver, kc_count_list_free; does not change: any thread. */
typedef struct kc_count_list kc_count_list;
/** One of a node's counts. */
typedef struct kc_count {
    const char *name;            /**< "unclean_elections" */
    int64_t value;               /**< how often, since the node's start */
} kc_count;
/** What a node has counted since its start: elections that lost records, brokers fenced, logs cut back (broker-ref/README.md lists them). broker:
 * its id, or -1: the active controller, by way of any broker. *out is the caller's. KC_UNSUPPORTED: it tells none, as Apache Kafka's brokers (there
 * these are metrics). As each broker answers for itself, one that is not there is waited for until the limit, KC_TIMED_OUT. */
KC_API kc_err kc_admin_node_counts(kc_client *c, int32_t broker, int64_t timeout_us, kc_count_list **out, kc_error **error);
/** The same as an operation; its result: kc_op_result_counts. */
KC_API kc_err kc_admin_node_counts_start(kc_client *c, int32_t broker, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
KC_API kc_count_list *kc_op_result_counts(kc_op *op); /**< yours from then on; NULL: not done, failed, or taken already */
/** How many counts. */
KC_API size_t kc_count_list_count(const kc_count_list *l);
KC_API kc_err kc_count_list_get(const kc_count_list *l, size_t index, kc_count *out); /**< KC_INVALID past the end */
/** Frees it, and with it what was borrowed from it. NULL does nothing. */
KC_API void kc_count_list_free(kc_count_list *l);

/* ---- Records by their ids: topics with message.guid.dedup=true. By LookupGuid, an API of kbroker's own (no KIP) ---- */

#define KC_GUID_LOOKUP_MAX 1000 /**< ids of a call */

/** What became of a look for an id. */
enum kc_guid_state {
    KC_GUID_UNKNOWN = 0, /**< no record has the id, or it is older than message.guid.window.ms */
    KC_GUID_FOUND = 1,
    KC_GUID_PENDING = 2, /**< stored, but not (yet) on all in-sync replicas: consumers do not see it, and a change of leaders may take it back */
};
typedef struct kc_guid_list kc_guid_list; /**< of its receiver, kc_guid_list_free; does not change: any thread */
/** Where a record with an id is. */
typedef struct kc_guid_place {
    size_t guid;                 /**< index of the id, as asked for */
    int32_t state;               /**< enum kc_guid_state */
    int32_t partition;           /**< -1: unknown */
    int64_t offset;              /**< -1: unknown */
    int32_t leader_epoch;        /**< in which it was stored; -1: not told */
    kc_err err;                  /**< of an unknown one: a partition that may have it could not be asked, and why; KC_OK: none has it */
} kc_guid_place;
/** A partition that was asked for ids. */
typedef struct kc_guid_partition {
    int32_t partition;           /**< its number */
    int32_t leader;              /**< the broker that leads it; -1: none known */
    int32_t leader_epoch;        /**< the leader's epoch; -1 unknown */
    kc_err err;                  /**< it could not be asked: INVALID_REQUEST: the topic does not look ids up; KC_UNSUPPORTED: nor can the broker */
    const char *message;         /**< the same in words, the list's; "" when ok */
    int64_t high_watermark;      /**< -1: not told */
    /* Of kc_admin_guid_stats, 0 else: what its index holds, and what it has done since it was opened. */
    int64_t from;                /**< the first offset that it knows the records of */
    int64_t end;                 /**< the offset behind the last one; the log's end, unless it still has to catch up */
    int64_t entries;             /**< ids in the index */
    int64_t runs;                /**< sorted files of them */
    int64_t disk_bytes;          /**< of its files */
    int64_t memory_bytes;        /**< of what is not in files */
    int64_t window_ms;           /**< the topic's message.guid.window.ms */
    int64_t finds;               /**< ids looked for */
    int64_t run_reads;           /**< reads of run files */
    int64_t hits;                /**< ids met */
    int64_t flushes;             /**< runs written out of memory */
    int64_t merges;              /**< merges of runs */
    int64_t forgotten;           /**< ids that went with their records within the window (size retention, deleted records, an unclean election) */
} kc_guid_partition;
/** Looks records up by their ids: guids are n of 16 bytes each, one behind the other; 1 to KC_GUID_LOOKUP_MAX. partitions: in these alone;
 * partition_count 0: in all. Each partition's leader is asked. *out is the caller's: at least one place an id, in the order of the ids; more than one
 * where several partitions have it (its records had different keys). A partition whose leader cannot be had within some seconds does not fail the call, as
 * long as another one answered. UNKNOWN_TOPIC_OR_PARTITION; INVALID_REQUEST: the topic has not message.guid.dedup=true; KC_UNSUPPORTED: the cluster cannot
 * (Apache Kafka); KC_INVALID. */
KC_API kc_err kc_admin_lookup_guids(kc_client *c, const char *topic, const uint8_t *guids, size_t n, const int32_t *partitions, size_t partition_count,
                                    int64_t timeout_us, kc_guid_list **out, kc_error **error);
/** The same as an operation; its result: kc_op_result_guids. */
KC_API kc_err kc_admin_lookup_guids_start(kc_client *c, const char *topic, const uint8_t *guids, size_t n, const int32_t *partitions,
                                          size_t partition_count, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
/** What the indexes of a topic's partitions hold, and have done: of each partition, as its leader says. *out is the caller's, without places. Errors as
 * above. */
KC_API kc_err kc_admin_guid_stats(kc_client *c, const char *topic, int64_t timeout_us, kc_guid_list **out, kc_error **error);
/** The same as an operation; its result: kc_op_result_guids. */
KC_API kc_err kc_admin_guid_stats_start(kc_client *c, const char *topic, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
KC_API kc_guid_list *kc_op_result_guids(kc_op *op); /**< of both; yours from then on; NULL: not done, failed, or taken already */
/** How many places. */
KC_API size_t kc_guid_list_count(const kc_guid_list *l);
KC_API kc_err kc_guid_list_get(const kc_guid_list *l, size_t index, kc_guid_place *out); /**< KC_INVALID past the end */
/** How many partitions were asked. */
KC_API size_t kc_guid_list_partition_count(const kc_guid_list *l);
KC_API kc_err kc_guid_list_partition(const kc_guid_list *l, size_t index, kc_guid_partition *out); /**< by number; KC_INVALID past the end */
/** Frees it, and with it what was borrowed from it. NULL does nothing. */
KC_API void kc_guid_list_free(kc_guid_list *l);

/* ---- Consumer groups: KIP-88, 222, 229, 345, 496, 518, 699, 709, 848 (types), 1043 ----
 *
 * What a group has, its coordinator keeps: the broker that leads its part of __consumer_offsets. It is looked for, and looked for again when it
 * moves, is loading or cannot be reached, until the limit; groups of one coordinator go in one request. Only groups of the classic protocol are
 * described; the offsets of any are read. */

/** Groups at one moment; of its receiver, kc_group_list_free; does not change: any thread. */
typedef struct kc_group_list kc_group_list;
/** A group, as a broker lists it. */
typedef struct kc_group_listing {
    const char *group;           /**< its id */
    const char *protocol_type;   /**< "consumer"; "" none: only offsets are kept */
    const char *state;           /**< "Stable", "PreparingRebalance", "CompletingRebalance", "Empty", …; "" from a broker before 2.6 */
    const char *type;            /**< "classic", "consumer", …; "" from a broker that knows no types (KIP-848) */
    int32_t coordinator;         /**< the broker that told of it */
} kc_group_listing;
/** A broker whose groups are missing in the list. */
typedef struct kc_group_list_failure {
    int32_t broker;              /**< that could not be asked for its groups */
    kc_err err;                  /**< why not */
} kc_group_list_failure;
/** The groups of all brokers, by name. states, types: only those with one of them (any letter case); 0 of them: all. *out is the caller's. A broker
 * that cannot be asked does not fail the call: kc_group_list_failed tells of it, and its groups are missing. KC_UNSUPPORTED: states before Kafka 2.6,
 * types before KIP-848. */
KC_API kc_err kc_admin_list_groups(kc_client *c, const char *const *states, size_t state_count, const char *const *types, size_t type_count,
                                   int64_t timeout_us, kc_group_list **out, kc_error **error);
/** The same as an operation; its result: kc_op_result_groups. */
KC_API kc_err kc_admin_list_groups_start(kc_client *c, const char *const *states, size_t state_count, const char *const *types, size_t type_count,
                                         int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
KC_API kc_group_list *kc_op_result_groups(kc_op *op); /**< yours from then on; NULL: not done, failed, or taken already */
/** How many groups. */
KC_API size_t kc_group_list_count(const kc_group_list *l);
KC_API kc_err kc_group_list_get(const kc_group_list *l, size_t index, kc_group_listing *out); /**< KC_INVALID past the end */
KC_API kc_err kc_group_list_failed(const kc_group_list *l, size_t index, kc_group_list_failure *out); /**< the same */
/** Frees it, and with it what was borrowed from it. NULL does nothing. */
KC_API void kc_group_list_free(kc_group_list *l);

/** Groups described; of its receiver, kc_group_details_free; does not change: any thread. */
typedef struct kc_group_details kc_group_details;
/** A group, as its coordinator describes it. */
typedef struct kc_group_info {
    const char *group;           /**< its id */
    const char *state;           /**< as listed; "Dead": there is no such group, err says it too */
    const char *protocol_type;   /**< "consumer"; "" none */
    const char *protocol;        /**< what its members agreed on: "range", "cooperative-sticky", …; "" none, or not yet */
    int32_t coordinator;         /**< -1 unknown */
    size_t member_count;         /**< how many members: kc_group_details_member */
    kc_err err;                  /**< GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID; what kept its coordinator from answering in time */
    const char *message;         /**< what failed; "" when ok */
} kc_group_info;
/** A partition by its topic's name. */
typedef struct kc_group_partition {
    const char *topic;           /**< the topic's name */
    int32_t partition;           /**< its number */
} kc_group_partition;
/** A member of a group. */
typedef struct kc_group_member {
    const char *id;              /**< its member id, given by the coordinator */
    const char *client_id;       /**< its client.id */
    const char *host;            /**< from where it is connected */
    const char *instance_id;     /**< NULL: not static */
    const char *const *topics;   /**< that it subscribes to; a broker tells of it, and of what it has, once the group is stable */
    size_t topic_count;          /**< how many topics */
    const kc_group_partition *assigned; /**< the partitions that it has */
    size_t assigned_count;       /**< how many of those */
    kc_err err;                  /**< KC_BAD_MESSAGE: its subscription or assignment does not follow the consumer protocol; the last two have it */
    kc_bytes metadata;           /**< as it said; the form that topics shows is that of protocol_type "consumer" */
    kc_bytes assignment;         /**< as it was given, likewise */
} kc_group_member;
/** Describes groups, in the order of `groups`: the call succeeds, and each has an err of its own. *out is the caller's. */
KC_API kc_err kc_admin_describe_groups(kc_client *c, const char *const *groups, size_t n, int64_t timeout_us, kc_group_details **out, kc_error **error);
/** The same as an operation; its result: kc_op_result_group_details. */
KC_API kc_err kc_admin_describe_groups_start(kc_client *c, const char *const *groups, size_t n, int64_t timeout_us, uint64_t opaque, kc_op **op,
                                             kc_error **error);
KC_API kc_group_details *kc_op_result_group_details(kc_op *op); /**< yours from then on; NULL: not done, failed, or taken already */
/** How many groups. */
KC_API size_t kc_group_details_count(const kc_group_details *d);
/* Indexes from 0; KC_INVALID past the end. */
/** A group, in the order asked for. */
KC_API kc_err kc_group_details_get(const kc_group_details *d, size_t index, kc_group_info *out);
/** A member of the group with that index. */
KC_API kc_err kc_group_details_member(const kc_group_details *d, size_t group, size_t index, kc_group_member *out);
/** Frees it, and with it what was borrowed from it. NULL does nothing. */
KC_API void kc_group_details_free(kc_group_details *d);

/** Committed offsets of groups; of its receiver, kc_group_offsets_free; does not change: any thread. */
typedef struct kc_group_offsets kc_group_offsets;
/** A committed offset of a group. */
typedef struct kc_group_offset {
    const char *topic;           /**< the topic's name */
    int32_t partition;           /**< its number */
    int32_t leader_epoch;        /**< of the record before it; -1 unknown */
    int64_t offset;              /**< the next record to be read; -1: none is committed */
    const char *metadata;        /**< as committed with it; "" none */
    kc_err err;                  /**< KC_OK, or why it could not be read */
} kc_group_offset;
/** The committed offsets of groups. parts: of these partitions (topic and partition), of each of the groups; n 0: of all that have one. require_stable 1:
 * those with an open transaction are waited for (KIP-447). The call succeeds, and each group has an err of its own: kc_group_offsets_err. A group that
 * is not there has none committed. *out is the caller's. */
KC_API kc_err kc_admin_group_offsets(kc_client *c, const char *const *groups, size_t group_count, const kc_group_partition *parts, size_t stride, size_t n,
                                     int32_t require_stable, int64_t timeout_us, kc_group_offsets **out, kc_error **error);
/** The same as an operation; its result: kc_op_result_group_offsets. */
KC_API kc_err kc_admin_group_offsets_start(kc_client *c, const char *const *groups, size_t group_count, const kc_group_partition *parts, size_t stride,
                                           size_t n, int32_t require_stable, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
KC_API kc_group_offsets *kc_op_result_group_offsets(kc_op *op); /**< yours from then on; NULL: not done, failed, or taken already */
KC_API kc_err kc_group_offsets_err(const kc_group_offsets *o, size_t group); /**< why they could not be read; KC_INVALID past the end */
/** How many offsets of the group with that index (in the order asked for) there are. */
KC_API size_t kc_group_offsets_count(const kc_group_offsets *o, size_t group);
KC_API kc_err kc_group_offsets_get(const kc_group_offsets *o, size_t group, size_t index, kc_group_offset *out); /**< by topic and partition */
/** Frees it, and with it what was borrowed from it. NULL does nothing. */
KC_API void kc_group_offsets_free(kc_group_offsets *o);

/** A committed offset to change or forget, and what came of it. */
typedef struct kc_group_offset_item {
    const char *topic;           /**< the topic's name */
    int32_t partition;           /**< its number */
    int32_t leader_epoch;        /**< alter: of the record before it, where it is greater than 0 */
    int64_t offset;              /**< alter: the next record that the group is to read */
    const char *metadata;        /**< alter: kept with it; NULL: none */
    /* out */
    kc_err err;                  /**< KC_OK, or why it failed */
    char message[256];           /**< what failed and what to do; "" when ok */
} kc_group_offset_item;
/** Commits offsets in a group's place; one that is not there is made. Per item: UNKNOWN_MEMBER_ID (the group has members: only they commit),
 * UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, GROUP_AUTHORIZATION_FAILED. KC_INVALID: n 0, an offset below 0. */
KC_API kc_err kc_admin_alter_group_offsets(kc_client *c, const char *group, kc_group_offset_item *items, size_t stride, size_t n, int64_t timeout_us,
                                           kc_error **error);
/** The same as an operation; results: kc_op_result_items. */
KC_API kc_err kc_admin_alter_group_offsets_start(kc_client *c, const char *group, const kc_group_offset_item *items, size_t stride, size_t n,
                                                 int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
/** Forgets committed offsets (KIP-496). Per item: GROUP_SUBSCRIBED_TO_TOPIC (a member reads it), GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION. */
KC_API kc_err kc_admin_delete_group_offsets(kc_client *c, const char *group, kc_group_offset_item *items, size_t stride, size_t n, int64_t timeout_us,
                                            kc_error **error);
/** The same as an operation; results: kc_op_result_items. */
KC_API kc_err kc_admin_delete_group_offsets_start(kc_client *c, const char *group, const kc_group_offset_item *items, size_t stride, size_t n,
                                                  int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);

/** Deletes groups without members, with their offsets (KIP-229). items[].name: a group's. Per item: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND. */
KC_API kc_err kc_admin_delete_groups(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
/** The same as an operation; results: kc_op_result_items. */
KC_API kc_err kc_admin_delete_groups_start(kc_client *c, const kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                                           kc_op **op, kc_error **error);

/** A member to put out of its group, and what came of it. */
typedef struct kc_group_member_item {
    const char *name;            /**< its member id, or, is_static 1, its instance id */
    int32_t is_static;           /**< 1: name is an instance id */
    /* out */
    kc_err err;                  /**< KC_OK, or why it failed */
    char message[256];           /**< what failed and what to do; "" when ok */
} kc_group_member_item;
/** Puts members out of a group, in which the others share out anew (KIP-345; Kafka 2.4 on). n 0: all of them. reason: for the broker's log; NULL: none. A
 * member that still runs joins again. Per item: UNKNOWN_MEMBER_ID. */
KC_API kc_err kc_admin_remove_group_members(kc_client *c, const char *group, const char *reason, kc_group_member_item *items, size_t stride, size_t n,
                                            int64_t timeout_us, kc_error **error);
/** The same as an operation; results: kc_op_result_items. */
KC_API kc_err kc_admin_remove_group_members_start(kc_client *c, const char *group, const char *reason, const kc_group_member_item *items, size_t stride,
                                                  size_t n, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
/* Results of the _start forms of the last four: kc_op_result_items. */

#ifdef __cplusplus
}
#endif
#endif
