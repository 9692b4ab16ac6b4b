/* coordinator.h - the groups that this node coordinates: those whose id falls to a partition of __consumer_offsets that this node leads.
 *
 * A partition led is an office: taken by reading the whole log (COORDINATOR_LOAD_IN_PROGRESS until then), left with the leadership
 * (NOT_COORDINATOR, also for everything that is still being stored: the next coordinator alone knows what of it stayed). What groups and
 * commits have to store in a turn goes into the log as one batch at the turn's end, and counts once the high watermark has passed it.
 *
 * Called by api/ (find_coordinator, join_group, sync_group, heartbeat, leave_group, offset_commit, offset_fetch, offset_delete,
 * describe_groups, list_groups, delete_groups), by node and replica/partitions. Calls group, offsets, group_record, log, replica/purgatory.
 * KIP-98 (of transactions that commit offsets nothing is known yet), 211, 229, 496, 709.
 */
#ifndef KB_COORDINATOR_H
#define KB_COORDINATOR_H

#include "group.h"
#include "offsets.h"
#include "request.h"

#define KB_OFFSETS_TOPIC "__consumer_offsets"

struct kb_partition;
struct kb_shard;

/* ---- The node's ---- */
kw_err kb_coordinator_new(struct kb_node *n) KW_CHECK;
void kb_coordinator_free(struct kb_node *n);
/* A partition's role or leader epoch is another. Looked at at the end of the turn; nothing where it is of another topic. */
void kb_coordinator_moved(struct kb_partition *p);
void kb_coordinator_run(struct kb_node *n, struct kb_now now);  /* end of a turn, before logs are flushed */
void kb_coordinator_advance(struct kb_node *n, int64_t by_us); /* kb_node_advance: sessions, and what expires */
void kb_coordinator_stop(struct kb_node *n, struct kb_now now); /* a clean stop: all offices are left */
/* Of a topic that was removed no offset is kept. */
void kb_coordinator_topic_removed(struct kb_node *n, struct kw_str topic);

/* ---- Who coordinates ---- */
int32_t kb_coordinator_partition_of(struct kw_str id, int32_t partition_count); /* as Apache Kafka's clients and brokers agree */
/* ---- A group ---- */
struct kb_group_entry {
    struct kb_shard *shard;
    struct kb_group *group;
    struct kb_committed offsets;
    uint64_t failed_store; /* this number could not even be begun; told at the end of the turn, with this code */
    int16_t failed_code;
    int32_t changes;       /* of its offsets, under way: until they are settled it stays */
    uint8_t *loaded;       /* while its office is being taken: the newest record of it */
    int32_t loaded_size;
    struct kw_list link; /* in the shard's list of those that have something to be told or tidied */
};
/* KE_NONE and the group; NULL: there is none (and !make). INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
 * COORDINATOR_NOT_AVAILABLE. */
int16_t kb_coordinator_group(struct kb_node *n, struct kw_str id, bool make, struct kb_group_entry **e);
/* All groups of this node: visit(ctx, e) for each, in the order of partitions and of making; the same groups may not be removed meanwhile.
 * Returns COORDINATOR_LOAD_IN_PROGRESS when an office is still being taken (its groups are not among them). */
int16_t kb_coordinator_each(struct kb_node *n, void (*visit)(void *ctx, struct kb_group_entry *e), void *ctx);

/* ---- Changes that are stored ---- */
/* A change to a group's offsets, on its way: all of it is stored, or nothing. done comes once, in a later turn, with KE_NONE or why it is
 * not known to be; not after kb_commit_forget. Any other result than KE_NONE: nothing has happened, and done does not come. */
struct kb_commit;
typedef void kb_commit_done(void *ctx, int16_t code, struct kb_now now);
struct kb_commit_item {
    struct kw_str topic;
    int32_t partition;
    bool skip;          /* not to be stored */
    struct kb_offset v; /* its metadata is copied */
};
/* INVALID_COMMIT_OFFSET_SIZE: more than one batch holds. */
int16_t kb_coordinator_commit(struct kb_group_entry *e, struct kb_commit_item *items, size_t count, kb_commit_done *done, void *ctx,
                              struct kb_now now, struct kb_commit **c);
/* Stored offsets that `which` wants (NULL: all) and that are not being forgotten already, at most max, are forgotten; with `group` and when
 * that leaves none, the group, too. *c NULL: nothing was to be done, and done does not come. */
int16_t kb_coordinator_remove(struct kb_group_entry *e, bool (*which)(void *arg, const struct kb_offset_entry *o), void *arg, size_t max,
                              bool group, kb_commit_done *done, void *ctx, struct kb_now now, struct kb_commit **c);
/* The group and its offsets: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or as above. */
int16_t kb_coordinator_delete(struct kb_node *n, struct kw_str id, kb_commit_done *done, void *ctx, struct kb_now now,
                              struct kb_commit **c);
void kb_commit_forget(struct kb_commit *c); /* nobody waits any more; it goes on */

#endif
