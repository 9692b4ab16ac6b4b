/* partition.h - a partition as its leader sees it: the log, the leader epoch, the high watermark, and who waits for it.
 *
 * Called by api/produce, api/fetch, api/list_offsets…; calls log/ and purgatory. Replication (followers, ISR) comes to stand beside it in isr.c
 * and follower.c: the high watermark is computed here from the log's marks and, later, the replicas'.
 */
#ifndef KB_PARTITION_H
#define KB_PARTITION_H

#include "../node.h"
#include "../quorum/image.h"

struct kb_partition {
    struct kb_node *node;
    char *topic;
    struct kw_uuid topic_id;
    int32_t index;
    int32_t leader_epoch;
    bool leader;
    enum { KB_PART_LOADING, KB_PART_ONLINE, KB_PART_OFFLINE, KB_PART_DELETED } state; /* OFFLINE: its log failed; KAFKA_STORAGE_ERROR */
    struct kb_log *log;
    struct kb_log_config log_config;
    struct kb_topic_config {    /* the topic's effective configs that do not concern the log */
        int32_t max_message_bytes, min_insync_replicas;
        int32_t max_decompressed_bytes; /* max.decompressed.message.bytes: of a batch's records */
        bool log_append_time;
        int64_t timestamp_before_max_ms, timestamp_after_max_ms;
        bool compact;
        int8_t compression; /* -1 producer */
    } config;
    int64_t hw;
    struct kw_list waiters;     /* struct kb_waiter, in purgatory.h */
    struct kw_list dirty_link;  /* in the node's list of logs to flush at the end of the turn */
};

/* By name or id from the image; the Kafka error that a client gets when it cannot be used (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
 * NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; epoch -1: not checked). */
int16_t kb_partition_find(struct kb_node *n, struct kw_str topic, struct kw_uuid id, int32_t index, int32_t leader_epoch, struct kb_partition **p);

#endif
