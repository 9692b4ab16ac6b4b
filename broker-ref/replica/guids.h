/* guids.h - the GUID index of a partition (message.guid.dedup) beside its log: opened when the log is online, caught up by reading it, told of
 * every append and cut, written at a clean stop, removed when the topic is deduped no more.
 *
 * Called by partition, partitions, follower_answer, follower_cut, cleaner (life), api/produce_guid and api/lookup_guid (use). Calls guid/index,
 * guid/extract, log/. A partition that is not deduped costs a NULL.
 *
 * Who waits for readiness hangs on the partition (purgatory.h): its waiters are asked when it is ready, or has gone back.
 */
#ifndef KB_GUIDS_H
#define KB_GUIDS_H

#include "guid/extract.h"
#include "guid/index.h"
#include "partition.h"

struct kb_guids; /* of a partition: p->guids */

/* The topic asks for it, by its present configuration; the index may be opening, or catching up. */
static inline bool kb_guids_wanted(const struct kb_partition *p) { return p->config.guid_dedup; }
/* NULL: the topic is not deduped, its index is not open yet, or is being cut. It may be behind the log. */
struct kb_guid_index *kb_guids_index(const struct kb_partition *p);
/* Everything up to the log's end is in it: a batch can be decided on. Never while the log is being cut. */
bool kb_guids_ready(const struct kb_partition *p);
/* The leader appended [base, end) to the log just now, with these ids (their final offsets). What cannot be added (no memory) leaves the index behind:
 * it reads it from the log. Nothing happens without an index. */
void kb_guids_appended(struct kb_partition *p, int64_t base, int64_t end, const struct kb_guid_entry *v, size_t n, struct kb_now now);
/* After a find ended with KW_EIO: the index has gone back, and catches up. */
void kb_guids_lost(struct kb_partition *p, struct kb_now now);

/* Whoever has a find under way hangs on the partition's guid_users. gone comes before the index goes: the find is to be cancelled in it. */
struct kb_guid_user {
    struct kw_list link;
    void (*gone)(struct kb_guid_user *u);
};
static inline void kb_guids_tell_users(struct kb_partition *p) { /* in front of kb_guid_free and kb_guid_remove */
    for (struct kw_list *l; (l = kw_list_shift(&p->guid_users));) {
        struct kb_guid_user *u = KW_CONTAINER_OF(l, struct kb_guid_user, link);
        u->gone(u);
    }
}

/* ---- Life ---- */

kw_err kb_guids_node_new(struct kb_node *n) KW_CHECK; /* n->guids */
void kb_guids_node_started(struct kb_node *n, struct kb_now now);
void kb_guids_node_advance(struct kb_node *n, int64_t ms); /* kb_node_advance */
void kb_guids_node_free(struct kb_node *n);
void kb_guids_look(struct kb_partition *p, struct kb_now now); /* it came online, its log's marks moved, its settings changed, or somebody waits for it */
void kb_guids_left(struct kb_partition *p);                    /* it is offline, or deleted: the index goes, its files stay */
void kb_guids_dropped(struct kb_node *n);                      /* the node is: nobody is told of anything any more */
/* A follower appended what stands in `records` from the log's end `from` on. */
void kb_guids_followed(struct kb_partition *p, int64_t from, const uint8_t *records, size_t size, struct kb_now now);
void kb_guids_cut_back(struct kb_partition *p, struct kb_now now); /* a full disk took back what was appended */
/* The log is going to be cut to end at `to`, or emptied (INT64_MIN). true: at once; else done comes, in a later turn, also when the partition leaves
 * before (the caller has it pinned). The log is cut in that same step, and kb_guids_look called when it is done; a log that is not cut after all is read
 * again. One at a time. */
bool kb_guids_cut(struct kb_partition *p, int64_t to, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now);
/* An unclean election takes back [from, to), which was committed: ids go with their records, and are counted. */
void kb_guids_lose_committed(struct kb_partition *p, int64_t from, int64_t to, struct kb_now now);
/* Before retention and compaction: expires, removes and writes what is due, and says to the log from where on it has to keep (log->hold_from). */
void kb_guids_housekeep(struct kb_partition *p, struct kb_now now);
/* A clean stop. true: nothing is to be waited for; else kb_partitions_part_stopped is told. */
bool kb_guids_stop(struct kb_partition *p, struct kb_now now);

struct kb_guids_stats { /* of the node */
    int64_t forgotten, caught_up_records, rotten;
};
void kb_guids_stats(const struct kb_node *n, struct kb_guids_stats *out);

#endif
