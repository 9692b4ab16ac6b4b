/* follower.h - the partitions that this node follows: one fetch session a leader broker, appends, truncation by leader epoch, marks from the
 * leader.
 *
 * Called by partitions.c (follow, leave, marks), node.c (life, the image's news). Calls link (fetches), log/ (append, truncate, reset), partition
 * (high watermark). KIP-101, 227, 279, 320, 595 (diverging epoch), 903. A fetch names only what is written here, or synced where the topic has
 * flush.on.ack.
 *
 * Of a partition `follower` is its own; it cuts the log, and takes hw and the recovery point back with it. Nothing is done, dialed or timed by a
 * node that follows nothing, and nothing a partition and fetch for those at rest.
 */
#ifndef KB_FOLLOWER_H
#define KB_FOLLOWER_H

#include "partition.h"

struct kb_followers; /* of a node: node->followers */
struct kb_follower;  /* of a partition: partition->follower; NULL: it does not follow */

kw_err kb_followers_new(struct kb_node *n) KW_CHECK;
/* After it nothing comes back: links are freed, truncations under way find no partition. Before the partitions are freed. */
void kb_followers_free(struct kb_node *n);
/* Starts to follow p's leader_id in p's leader_epoch, or moves there; said again in the same epoch it changes nothing. p is ONLINE, its leader
 * another broker. What the last leader has in flight is ignored. Nothing is appended before both agree on the last (offset, epoch). A failure to
 * get memory is tried again by itself. */
void kb_follower_follow(struct kb_partition *p, struct kb_now now);
/* Before p leads, has no leader, is deleted or goes offline; no-op when it does not follow. What is in flight is ignored; a truncation that was begun
 * ends (the log is busy until then, and its end tells marks_moved). */
void kb_follower_leave(struct kb_partition *p);
/* With the partition, which nothing is in flight for any more (what is, pins it). */
void kb_follower_free(struct kb_partition *p);
/* From the log's marks_moved: what is written or synced may be named by the next fetch. */
void kb_follower_marks_moved(struct kb_partition *p, struct kb_now now);
/* The image moved: brokers may have another address or epoch, or be gone. Cheap: it looks at the leaders followed only. */
void kb_followers_applied(struct kb_node *n);
void kb_followers_turn(struct kb_node *n); /* a turn begins */
/* End of a turn, after the logs were flushed: dials and fetches. */
void kb_followers_flush(struct kb_node *n, struct kb_now now);
/* What the checkpoint file may say at most of p's recovery point: before a log is cut, it is told. INT64_MAX: anything. */
int64_t kb_follower_recovery_max(const struct kb_partition *p);
/* Records from its log's end to the leader's high watermark, as far as this broker was told of that; 0: it does not follow; -1: it was told nothing yet. */
int64_t kb_follower_lag(const struct kb_partition *p);
/* Clean stop: no more fetches, links closed; before the logs are shut down. */
void kb_followers_stop(struct kb_node *n);

/* For metrics and tests. */
struct kb_follower_stats {
    int64_t fetches;              /* sent */
    int64_t batches, bytes;       /* appended */
    int64_t truncations, resets;  /* logs cut to what the leader has; emptied for being behind its start */
    int64_t corrupt;              /* batches refused */
    int64_t unclean_truncations;  /* below the high watermark, after an unclean election */
    int64_t unclean_records;      /* offsets that those dropped below it */
};
const struct kb_follower_stats *kb_followers_stats(const struct kb_node *n);

#endif
