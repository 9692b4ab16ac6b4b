/* partitions_priv.h - what partition.c, opening.c and partitions.c share. Private to replica/. */
#ifndef KB_PARTITIONS_PRIV_H
#define KB_PARTITIONS_PRIV_H

#include "../node_priv.h"
#include "checkpoint.h"
#include "partition.h"
#include "purgatory.h"

enum kb_point { KB_POINT_RECOVERY, KB_POINT_START, KB_POINT_HW, KB_POINT_COUNT }; /* the three checkpoint files */

struct kb_point_file {
    struct kb_disk_req req;
    struct kb_iov iov;
    struct kw_out out;
    char *path;
    bool dirty, in_flight;
    uint64_t writes;        /* begun so far */
    struct kw_list waiters; /* struct kb_point_waiter */
};
struct kb_note { /* a partition of the image that is new or changed */
    struct kw_uuid topic_id;
    int32_t index;
};
struct kb_partitions {
    struct kw_list all, dirty, removed;
    size_t count, opening;
    bool loaded, stopping, failed;
    bool last_points; /* stopping: the logs are shut, the checkpoints are being written */
    struct kb_note *notes;
    size_t note_count, note_cap;
    bool configs_moved;
    struct kb_checkpoint found[KB_POINT_COUNT];
    bool found_clean;
    struct kb_point_file points[KB_POINT_COUNT];
    struct kw_timer hw_timer, point_timer, housekeep_timer, flush_timer;
    size_t stop_pending;
    void (*stop_done)(struct kb_node *n, bool clean, struct kb_now now);
};

struct kb_partition *kb_partition_new(struct kb_node *n, struct kb_image_topic *t, struct kb_image_partition *ip);
void kb_partition_take_image(struct kb_partition *p, const struct kb_image_topic *t, const struct kb_image_partition *ip);
void kb_partition_configure(struct kb_partition *p);
void kb_partition_try_free(struct kb_partition *p, struct kb_now now); /* a DELETED one, once nothing holds it */
void kb_partition_offline(struct kb_partition *p, const char *why);
void kb_partition_online(struct kb_partition *p, struct kb_log *log, int64_t hw_checkpoint, struct kb_now now);
struct kb_log_owner kb_partition_owner(struct kb_partition *p);
void kb_partitions_point_moved(struct kb_node *n, enum kb_point what); /* arms the timer that writes the checkpoint */
void kb_partitions_flush_due(struct kb_partition *p);
/* opening.c */
kw_err kb_opening_start(struct kb_partition *p, struct kb_now now) KW_CHECK;
void kb_opening_moved(struct kb_partition *p, struct kb_now now); /* the marks of the log that is being opened moved */
void kb_opening_free(struct kb_opening *o);                       /* NULL is fine */
kw_err kb_strays_start(struct kb_node *n,
                       const struct kb_found *found) KW_CHECK; /* names what is not ours, removes what was being deleted */
/* node.c */
void kb_node_opened(struct kb_node *n, struct kb_now now); /* no log is being opened any more */

#endif
