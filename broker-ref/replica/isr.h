/* isr.h - a partition's other replicas as its leader sees them: how far each is, who is in sync, what the high watermark may be.
 *
 * Called by partition (role, marks), api/fetch (what followers ask for), api/produce, delete_records, partitions (life). Calls partition, channel
 * (AlterPartition). KIP-16 (replica.lag.time.max.ms is a time, not a number of records), 392, 497, 704, 841, 903, 966.
 *
 * The ISR is the controller's: what the leader wants changed is a wish that is sent until it is answered, one at a time a partition, many
 * partitions a request. Until then the high watermark waits for all that are in sync or wished to be; a shrink has no effect before it is committed.
 */
#ifndef KB_ISR_H
#define KB_ISR_H

#include "../channel.h"
#include "partition.h"

struct kb_isrs { /* of a node */
    struct kb_node *node;
    struct kw_list leading;      /* struct kb_isr: all */
    struct kw_list unsent, sent; /* those with a wish */
    struct kb_call call;
    struct kw_timer send_timer, lag_timer;
    int64_t lag_max_us; /* replica.lag.time.max.ms */
    bool rack_aware;    /* replica.selector.class */
    bool stopped;
    int refusals; /* of whole requests, one after the other */
    kw_err (*ask)(struct kb_node *n, struct kb_call *c, const struct kw_desc *request, int16_t version, const void *msg, int64_t timeout_us,
                  struct kb_now now); /* kb_channel_call, but for tests */
};
/* Its memory is zero before. */
void kb_isrs_init(struct kb_isrs *s, struct kb_node *n);
void kb_isrs_stop(struct kb_isrs *s); /* nothing is asked of the controller any more */

/* p leads in a new leader epoch: what its replicas had told before counts no more. Nothing where it has no other replica. */
void kb_isr_lead(struct kb_partition *p, struct kb_now now);
void kb_isr_leave(struct kb_partition *p); /* it does not lead any more; nothing when it did not */
/* Replicas or ISR changed within the leader epoch: whatever was wished in an earlier partition epoch is void. later false: the partition epoch is the
 * same (the controller's answer told it and the ISR, the image tells what replicas the same record left): a wish of this epoch may be carried out. */
void kb_isr_changed(struct kb_partition *p, bool later, struct kb_now now);

struct kb_replica_fetch {
    int32_t replica;
    int64_t broker_epoch; /* -1: not told (before v15) */
    bool epoch_told;      /* the request had a leader epoch */
    int64_t offset;       /* everything below is on the replica's disk, as its topic's flush.on.ack wants it */
    int64_t log_start;    /* -1: not told */
};
/* Whether it may count at all: a replica of the assignment, in the very life that the image here has. p leads. The error of the answer; 0: it
 * may. */
int16_t kb_isr_may_fetch(const struct kb_partition *p, const struct kb_replica_fetch *f);
/* It counts: its leader epoch matches, its log agrees with this one below the offset, which is within this log. Moves the high watermark, and may
 * wish the replica into the ISR. Waiters are asked. */
void kb_isr_fetched(struct kb_partition *p, const struct kb_replica_fetch *f, struct kb_now now);

/* The high watermark that the replicas allow, at most own; the present one while too few are in sync. */
int64_t kb_isr_hw(const struct kb_partition *p, int64_t own, struct kb_now now);
bool kb_isr_enough(const struct kb_partition *p); /* as many are in sync as min.insync.replicas wants, or as there are replicas */
int64_t kb_isr_log_start(const struct kb_partition *p); /* the lowest of the live replicas, this one included; -1: not known of one */
/* The replica that a consumer in this rack is to read from (KIP-392); -1: this one. */
int32_t kb_isr_nearest(const struct kb_partition *p, struct kw_str rack, int64_t offset);

#endif
