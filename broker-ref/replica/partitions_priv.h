/* partitions_priv.h - what partition.c, opening.c and partitions.c share. Private to replica/. */
#ifndef KB_PARTITIONS_PRIV_H
#define KB_PARTITIONS_PRIV_H

#include "../node_priv.h"
#include "checkpoint.h"
#include "cleaner.h"
#include "isr.h"
#include "partition.h"
#include "purgatory.h"

enum kb_point { KB_POINT_RECOVERY, KB_POINT_START, KB_POINT_HW, KB_POINT_COUNT }; /* the three checkpoint files */

struct kb_point_file {
    struct kb_disk_req req;
    struct kb_iov iov;
    struct kw_out out;
    struct kw_timer timer; /* of the next write, when dirty */
    char *path;
    bool dirty, in_flight;
    uint64_t writes;        /* begun so far */
    struct kw_list waiters; /* struct kb_point_waiter */
};
struct kb_note { /* a partition of the image that is new or changed */
    struct kw_uuid topic_id;
    int32_t index;
};
/* Recovery points and log starts, written anew until both files are durable: then they speak no more of what is gone. */
struct kb_points_waiter {
    struct kb_point_waiter files[3];
    int32_t left;
    void (*done)(void *ctx, struct kb_now now);
    void *ctx;
};
/* A deleted partition on its way out. A new one of the same name, made meanwhile, waits for it: until its folder has gone, and until the checkpoint
 * files do not speak of it any more, or the new one would be started where the old one ended. */
struct kb_leaving {
    struct kb_partition *p;
    struct kb_points_waiter points;
    int32_t left; /* what is still to be done */
};
struct kb_dirs { /* directories.c */
    struct kb_node *node;
    struct kb_call call;
    struct kw_timer timer;
    int64_t pause_us;   /* after a failure */
    int64_t refused_us; /* until what the controller refused is told again */
    kw_err (*ask)(struct kb_node *n, struct kb_call *c, const struct kw_desc *request, int16_t version, const void *msg, int64_t timeout_us,
                  struct kb_now now); /* kb_channel_call, but for tests */
    bool stopped, complained;
};
struct kb_partitions {
    struct kw_list all, dirty, removed;
    struct kw_list leaving; /* DELETED ones, until nothing is left of them */
    struct kw_list parked;  /* struct kb_opening that wait for those */
    size_t opening;
    int64_t lost; /* records known to have been committed and to be lost, by the logs that were opened */
    bool loaded, stopping, failed;
    bool registered; /* as it was when the image last moved */
    uint64_t broker_news; /* of the image, likewise */
    bool stale_points; /* the checkpoint files name partitions that the metadata does not know: nothing is opened until that has ended */
    struct kb_points_waiter stale;
    bool last_points; /* stopping: the logs are shut, the checkpoints are being written */
    struct kb_note *notes;
    size_t note_count, note_cap;
    struct kw_list configured; /* their settings changed since the image was last looked at */
    bool found_clean; /* of the logs that are opened at the start */
    struct kb_isrs isrs;
    struct kb_dirs dirs;
    struct kb_cleaner cleaner;
    struct kb_point_file points[KB_POINT_COUNT];
    struct kw_timer housekeep_timer, flush_timer, producers_timer;
    int hurries; /* left: after an advance of the clock housekeeping looks again at once while something is due */
    size_t stop_pending;
    void (*stop_done)(struct kb_node *n, bool clean, struct kb_now now);
};

static inline bool kb_ids_have(const int32_t *ids, int32_t count, int32_t id) {
    for (int32_t i = 0; i < count; i++)
        if (ids[i] == id) return true;
    return false;
}

struct kb_partition *kb_partition_new(struct kb_node *n, struct kb_image_topic *t, struct kb_image_partition *ip);
/* Who leads, who is in sync, what this node is to do: whatever the image says, unless it is older than what is known already. The caller wakes the
 * waiters. */
void kb_partition_take_image(struct kb_partition *p, const struct kb_image_topic *t, const struct kb_image_partition *ip, struct kb_now now);
/* The controller committed an ISR that was asked for, in the present leader epoch; ahead of the image. Wakes the waiters. */
void kb_partition_take_isr(struct kb_partition *p, int32_t partition_epoch, const int32_t *isr, int32_t count, struct kb_now now);
void kb_partition_reckon(struct kb_partition *p, struct kb_now now); /* what the replicas have, or how many must, moved: the high watermark may */
int64_t kb_partitions_config_us(const struct kb_node *n, const char *name); /* a property in ms */
/* An IDLE one looks again whether it may lead or follow: what kept it from it has ended. */
void kb_partition_retake_role(struct kb_partition *p, struct kb_now now);
bool kb_partitions_registered(const struct kb_node *n);
void kb_partition_leave_role(struct kb_partition *p); /* deleted, or offline: it neither leads nor follows */
void kb_partition_freed(struct kb_partition *p);      /* its memory, but for the log */
void kb_partition_configure(struct kb_partition *p);
void kb_partition_try_free(struct kb_partition *p, struct kb_now now); /* a DELETED one, once nothing holds it */
void kb_partitions_store_point(struct kb_node *n, enum kb_point what, struct kb_point_waiter *w); /* as kb_partitions_store_starts */
/* done comes once, in a later turn. */
void kb_partitions_forget_points(struct kb_node *n, struct kb_points_waiter *w, void (*done)(void *ctx, struct kb_now now), void *ctx);
bool kb_partition_same_name(const struct kb_partition *a, const struct kb_partition *b);
bool kb_partitions_leaving(const struct kb_partition *p); /* another of its name is on its way out, or may lie in the checkpoint files */
void kb_partition_offline(struct kb_partition *p, const char *why);
void kb_partition_online(struct kb_partition *p, struct kb_log *log, struct kb_now now);
struct kb_log_owner kb_partition_owner(struct kb_partition *p);
void kb_partitions_point_moved(struct kb_node *n, enum kb_point what); /* arms the timer that writes the checkpoint */
void kb_partitions_flush_due(struct kb_partition *p);
void kb_partitions_part_stopped(struct kb_node *n, struct kb_now now); /* one of what a stop waits for */
/* directories.c */
void kb_dirs_init(struct kb_dirs *d, struct kb_node *n);
void kb_dirs_stop(struct kb_dirs *d);
/* The partition's log or what the image says of it changed (ip, where the caller has it): the controller is told where they differ. */
void kb_dirs_look(struct kb_partition *p, const struct kb_image_partition *ip, struct kb_now now);
void kb_dirs_look_at_all(struct kb_node *n, struct kb_now now);
void kb_dirs_failed(struct kb_partition *p, struct kb_now now); /* its log did just now: perhaps it is the disk */
/* opening.c */
kw_err kb_opening_start(struct kb_partition *p, struct kb_now now) KW_CHECK;
void kb_opening_moved(struct kb_partition *p, struct kb_now now); /* the marks of the log that is being opened moved */
/* Begins those parked that need not wait any more. gone: only that one has left, so only those of its name are looked at; NULL: all are. */
void kb_openings_unpark(struct kb_node *n, const struct kb_partition *gone, struct kb_now now);
bool kb_opening_lacks(const struct kb_partition *p); /* its log lost what others may count on, and the controller does not know yet */
void kb_opening_asks(struct kb_partition *p);        /* it is being told */
void kb_opening_answered(struct kb_partition *p, bool known, struct kb_now now); /* goes on where it was asked and is known */
char *kb_partition_folder(const struct kb_partition *p); /* kw_malloc; NULL: no memory */
void kb_opening_free(struct kb_opening *o);              /* NULL is fine */
kw_err kb_strays_start(struct kb_node *n,
                       const struct kb_found *found) KW_CHECK; /* names what is not ours, removes what was being deleted */
/* node.c */
void kb_node_opened(struct kb_node *n, struct kb_now now); /* no log is being opened any more */

#endif
