/** @file admin.h
 * Administration: topics, partitions, configurations, records, the cluster. Each call is an operation; the short forms wait for it.
 *
 * The _start forms copy what they are given, keep the limit timeout_us (0: default.api.timeout.ms), and end in kc_op_wait or KC_READY_OP;
 * their results come from kc_op_result_*. A request whose answer is lost is sent again. When the repeated one finds the work done (the topic
 * there with the partitions and replicas asked for, or gone, or grown to that count), that counts as this call's own success.
 */
#ifndef KCLIENT_ADMIN_H
#define KCLIENT_ADMIN_H

#include "kclient.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kc_config_pair {
    const char *name, *value; /**< value NULL: back to the default */
    int32_t op;               /**< alter: 0 set, 1 delete, 2 append, 3 subtract */
} kc_config_pair;

typedef struct kc_topic_new {
    const char *name;
    int32_t partitions;          /**< 0: the broker's num.partitions */
    int32_t replication_factor;  /**< 0: the broker's default */
    const kc_config_pair *configs;
    size_t config_count;
    /* out */
    kc_err err;
    char message[256];           /**< what failed and what to do; "" when ok */
} kc_topic_new;

/** Creates topics; per-item results in items[].err. Returns the first item's error, or the call's. validate_only: nothing is changed. */
KC_API kc_err kc_admin_create_topics(kc_client *c, kc_topic_new *items, size_t stride, size_t n, int32_t validate_only, int64_t timeout_us, kc_error **error);

KC_API kc_err kc_admin_create_topics_start(kc_client *c, const kc_topic_new *items, size_t stride, size_t n, int32_t validate_only, int64_t timeout_us,
                                           uint64_t opaque, kc_op **op, kc_error **error);

typedef struct kc_admin_item {
    const char *name;
    int32_t count;               /**< create_partitions: the new total */
    kc_err err;
    char message[256];
} kc_admin_item;
KC_API kc_err kc_admin_delete_topics(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
KC_API kc_err kc_admin_create_partitions(kc_client *c, kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
KC_API kc_err kc_admin_delete_topics_start(kc_client *c, const kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                                           kc_op **op, kc_error **error);
KC_API kc_err kc_admin_create_partitions_start(kc_client *c, const kc_admin_item *items, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                                               kc_op **op, kc_error **error);
/** Deletes records below parts[].offset (KC_OFFSET_END: all); out: the new log start, or parts[].err. */
KC_API kc_err kc_admin_delete_records(kc_client *c, kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
/** Its results: kc_op_result_offsets (consumer.h). */
KC_API kc_err kc_admin_delete_records_start(kc_client *c, const kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                                            kc_op **op, kc_error **error);

enum kc_resource { KC_RESOURCE_TOPIC = 2, KC_RESOURCE_BROKER = 4 };
typedef struct kc_config_alter {
    int32_t resource;            /**< enum kc_resource */
    const char *name;            /**< topic, or broker id as text ("": all brokers) */
    const kc_config_pair *pairs;
    size_t pair_count;
    kc_err err;
    char message[256];
} kc_config_alter;
KC_API kc_err kc_admin_alter_configs(kc_client *c, kc_config_alter *items, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
KC_API kc_err kc_admin_alter_configs_start(kc_client *c, const kc_config_alter *items, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                                           kc_op **op, kc_error **error);

/** Results of the _start forms of create_topics, delete_topics, create_partitions and alter_configs, in the order of the items. Strings are
 * borrowed until the operation is freed. Up to max; returns how many there are, 0 while it is under way. */
typedef struct kc_admin_result {
    const char *name, *message;  /**< message: what failed and what to do; "" when ok */
    kc_err err;
} kc_admin_result;
KC_API size_t kc_op_result_items(const kc_op *op, kc_admin_result *out, size_t stride, size_t max);

/** Answers as an owned tree. Strings are borrowed until it is freed. */
typedef struct kc_config_list kc_config_list;
typedef struct kc_config_item {
    const char *name, *value;    /**< value NULL: null or sensitive */
    const char *source;          /**< "topic", "broker", "broker default", "static", "default" */
    int32_t read_only, sensitive;
    const char *doc;             /**< "" when the broker gave none */
} kc_config_item;
KC_API kc_err kc_admin_describe_configs(kc_client *c, int32_t resource, const char *name, int64_t timeout_us, kc_config_list **out, kc_error **error);
KC_API kc_err kc_admin_describe_configs_start(kc_client *c, int32_t resource, const char *name, int64_t timeout_us, uint64_t opaque, kc_op **op,
                                              kc_error **error);
KC_API kc_config_list *kc_op_result_configs(kc_op *op); /**< yours from then on; NULL: not done, failed, or taken already */
KC_API size_t kc_config_list_count(const kc_config_list *l);
KC_API kc_err kc_config_list_get(const kc_config_list *l, size_t index, kc_config_item *out);
KC_API void kc_config_list_free(kc_config_list *l);

typedef struct kc_cluster_info kc_cluster_info;
typedef struct kc_broker_info {
    int32_t id, port;
    const char *host, *rack;     /**< rack NULL: none */
} kc_broker_info;
typedef struct kc_partition_info {
    int32_t partition, leader, leader_epoch; /**< leader -1: none */
    const int32_t *replicas, *isr, *offline;
    size_t replica_count, isr_count, offline_count;
    int64_t log_start, high_watermark, log_end; /**< filled by kc_admin_describe_topic; -1 unknown */
    kc_err err;
} kc_partition_info;
typedef struct kc_topic_info {
    const char *name;
    uint8_t id[16];
    int32_t internal;
    size_t partition_count;
    kc_err err;
} kc_topic_info;
/** Brokers, controller and topics (name NULL: all; else one, with offsets of each partition: -1, and an err, where its leader cannot be
 * reached). */
KC_API kc_err kc_admin_describe(kc_client *c, const char *topic, int64_t timeout_us, kc_cluster_info **out, kc_error **error);
KC_API kc_err kc_admin_describe_start(kc_client *c, const char *topic, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
KC_API kc_cluster_info *kc_op_result_cluster(kc_op *op); /**< yours from then on; NULL: not done, failed, or taken already */
KC_API const char *kc_cluster_info_id(const kc_cluster_info *i);
KC_API int32_t kc_cluster_info_controller(const kc_cluster_info *i);
KC_API size_t kc_cluster_info_broker_count(const kc_cluster_info *i);
KC_API kc_err kc_cluster_info_broker(const kc_cluster_info *i, size_t index, kc_broker_info *out);
KC_API size_t kc_cluster_info_topic_count(const kc_cluster_info *i);
KC_API kc_err kc_cluster_info_topic(const kc_cluster_info *i, size_t index, kc_topic_info *out);
KC_API kc_err kc_cluster_info_partition(const kc_cluster_info *i, size_t topic, size_t index, kc_partition_info *out);
KC_API void kc_cluster_info_free(kc_cluster_info *i);

#ifdef __cplusplus
}
#endif
#endif
