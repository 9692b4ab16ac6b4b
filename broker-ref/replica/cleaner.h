/* cleaner.h - compaction on this node: which log is due, one pass at a time, and cleaner-offset-checkpoint, which says how far each has come.
 *
 * Called by partitions, partition (what came, went, or was set otherwise). Calls log/compact, checkpoint, the disk. While no partition here has
 * cleanup.policy=compact it does nothing at all, and its file is not even read.
 */
#ifndef KB_CLEANER_H
#define KB_CLEANER_H

#include "checkpoint.h"
#include "partition.h"

struct kb_cleaner {
    struct kb_node *node;
    struct kw_timer timer; /* of the next look, while there is something to look at */
    enum { KB_CLEANER_UNREAD, KB_CLEANER_READING, KB_CLEANER_READ } file;
    struct kb_checkpoint found; /* what the last process left */
    struct kb_partition *current; /* a pass over its log is under way */
    struct kb_disk_req req;
    struct kb_iov iov;
    struct kw_out out;
    char *path;
    bool dirty, writing; /* the file */
    bool stopped;
    int64_t passes, uncleanable; /* counted since the start: passes that ended well; logs that cannot be compacted */
};
kw_err kb_cleaner_init(struct kb_cleaner *c, struct kb_node *n) KW_CHECK;
void kb_cleaner_deinit(struct kb_cleaner *c); /* also of one whose init failed */
void kb_cleaner_look(struct kb_partition *p); /* it came online, or its settings changed */
void kb_cleaner_left(struct kb_partition *p); /* it was deleted, or is offline */
/* true: nothing of it is under way; else kb_partitions_part_stopped is told. */
bool kb_cleaner_stop(struct kb_cleaner *c);

#endif
