/* partition.h - one partition on this node: its log, who leads it, the high watermark, and who waits for it.
 *
 * Called by api/produce, api/fetch, api/list_offsets…; calls log/, purgatory, isr (as leader), follower (as follower). The image says who leads:
 * kb_partition_take_image gives the partition its role, which it has from when its log is open.
 */
#ifndef KB_PARTITION_H
#define KB_PARTITION_H

#include "../node.h"
#include "../quorum/image.h"

struct kb_partition {
    struct kb_node *node;
    struct kw_list link; /* in the node's list of all */
    char *topic;
    struct kw_uuid topic_id;
    int32_t index;
    /* As the image, or the controller's answer to a change of the ISR, said last: by partition_epoch. */
    int32_t leader_id; /* -1: none */
    int32_t leader_epoch, partition_epoch;
    int32_t *replicas, *isr;
    int32_t isr_count, replica_count;
    enum { KB_PART_IDLE, KB_PART_LEADS, KB_PART_FOLLOWS } role; /* IDLE: whatever keeps it from both; see take_role */
    int64_t epoch_start;           /* of one that leads: its log's end when it began to */
    struct kb_isr *in_sync;        /* of one that leads and has other replicas; isr.c's */
    struct kb_follower *follower;  /* of one that follows; follower.c's */
    bool internal;
    enum { KB_PART_LOADING, KB_PART_ONLINE, KB_PART_OFFLINE, KB_PART_DELETED } state; /* OFFLINE: its log failed; KAFKA_STORAGE_ERROR */
    struct kb_log *log;
    struct kb_log_config log_config;
    struct kb_topic_config { /* the topic's effective configs that do not concern the log */
        int32_t max_message_bytes, min_insync_replicas;
        int32_t max_decompressed_bytes; /* max.decompressed.message.bytes: of a batch's records */
        bool log_append_time;
        int64_t timestamp_before_max_ms, timestamp_after_max_ms;
        bool compact;
        int8_t compression; /* -1 producer */
        bool guid_dedup;        /* message.guid.dedup; never of an internal topic */
        int64_t guid_window_ms; /* message.guid.window.ms */
    } config;
    int64_t hw;
    int64_t points[3];          /* recovery point, log start, high watermark as the checkpoint files have them, until it is online; -1: not in them */
    bool was_online;            /* the log knows better */
    bool known_at_start;        /* what the node found at its start may speak of it */
    struct kw_list guid_gate;   /* of a deduped topic: produced batches that wait, in order; api/produce_guid.c's */
    struct kw_list guid_users;  /* struct kb_guid_user: who has asked the index and was not answered yet */
    struct kb_guids *guids;     /* of a deduped topic, while the log is online; guids.c's */
    bool cleaned_known;         /* its log has been told how far it was compacted; cleaner.c's */
    bool untouched;             /* LOADING: nothing was done to its folder yet */
    struct kw_list waiters;     /* struct kb_wait_hook, in purgatory.h */
    struct kw_list config_link; /* in the node's list of those whose settings the image changed */
    struct kw_list dirty_link;  /* in the node's list of logs to flush at the end of the turn */
    uint32_t pins;              /* reads and lookups in flight: the log stays until they are done */
    struct kb_opening *opening; /* while LOADING */
    int64_t flush_due_us;       /* flush.ms: what is written and not synced is to be by then; KW_NEVER */
    struct kb_leaving *leaving; /* DELETED, once nothing uses it any more */
};

/* By name or id from the image; the Kafka error that a client gets when it cannot be used (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
 * NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH; epoch -1: not checked). The id counts when it is
 * not zero. */
int16_t kb_partition_find(struct kb_node *n, struct kw_str topic, struct kw_uuid id, int32_t index, int32_t leader_epoch,
                          struct kb_partition **p);
/* This node's; NULL: it has none. */
struct kb_partition *kb_partition_by_id(const struct kb_node *n, struct kw_uuid id, int32_t index);
/* Why a partition that was found before cannot be used now; 0 when it can. */
int16_t kb_partition_error(const struct kb_partition *p, int32_t leader_epoch);
/* The same two for what a follower may serve too: reads of consumers that ask for the nearest replica (KIP-392). */
int16_t kb_partition_find_copy(struct kb_node *n, struct kw_str topic, struct kw_uuid id, int32_t index, int32_t leader_epoch,
                               struct kb_partition **p);
/* The same of a topic that was found. */
int16_t kb_partition_of_topic(const struct kb_image_topic *t, int32_t index, int32_t leader_epoch, struct kb_partition **p);
int16_t kb_partition_copy_error(const struct kb_partition *p, int32_t leader_epoch);
/* Where the largest epoch up to `asked` ends that the log has; `end` is where the log does. A leader's own epoch begins there even before it has a record.
 * -1, -1: it has none, or may lack what comes next. KIP-101, 320. */
void kb_partition_epoch_end(const struct kb_partition *p, int32_t asked, int64_t log_end, int32_t *epoch, int64_t *end);
void kb_partition_dirty(struct kb_partition *p); /* its log was appended to: flushed at the end of the turn */
void kb_partition_pin(struct kb_partition *p);   /* an asynchronous read of its log is under way */
void kb_partition_unpin(struct kb_partition *p);
/* What a follower is told by its leader, kept between log start and log end; it goes back only with a log that was cut below it. Wakes who waits. */
void kb_partition_set_hw(struct kb_partition *p, int64_t hw, struct kb_now now);
/* DeleteRecords raised log starts: they are stored at once, and done comes when they are (false: not stored). */
struct kb_point_waiter {
    struct kw_list link;
    uint64_t from; /* the write that has to be done */
    bool patient;  /* hears of no failure: the write is tried again until it succeeds */
    void (*done)(struct kb_point_waiter *w, bool stored, struct kb_now now);
    void *ctx;
};
void kb_partitions_store_starts(struct kb_node *n, struct kb_point_waiter *w);

/* All partitions of the node. Called by node.c. */
kw_err kb_partitions_new(struct kb_node *n) KW_CHECK; /* hears the image from now on */
void kb_partitions_free(struct kb_node *n);
/* What a start found: the bytes of the three checkpoint files (NULL: absent), and the names in the data folder. */
struct kb_found {
    bool clean;              /* the marker of a clean stop was there */
    const uint8_t *files[3]; /* recovery points, log starts, high watermarks */
    int64_t sizes[3];
    const uint8_t *names; /* as KB_DISK_LIST */
    int64_t name_count;
};
kw_err kb_partitions_load(struct kb_node *n, const struct kb_found *found,
                          struct kb_now now) KW_CHECK;            /* the image is current: opens every log */
void kb_partitions_applied(struct kb_node *n, struct kb_now now); /* the image moved: creates, changes, deletes */
void kb_partitions_look_registered(struct kb_node *n, struct kb_now now); /* this node was told its broker epoch, maybe after the image had it */
size_t kb_partitions_opening(const struct kb_node *n);            /* logs that are being opened */
void kb_partitions_advance(struct kb_node *n, int64_t ms); /* kb_node_advance: what retention, compaction and expiry look at is looked at now */
void kb_partitions_flush(struct kb_node *n, struct kb_now now);   /* end of turn */
/* Clean stop: every log shut down, then the checkpoints; then done. clean: nothing failed. */
void kb_partitions_stop(struct kb_node *n, void (*done)(struct kb_node *n, bool clean, struct kb_now now), struct kb_now now);
/* for (struct kb_partition *p = NULL; (p = kb_partitions_next(n, p));) */
struct kb_partition *kb_partitions_next(const struct kb_node *n, const struct kb_partition *p);

#endif
