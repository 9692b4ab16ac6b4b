/* offsets.h - what a group has committed: an offset a partition, as it is stored.
 *
 * A commit is pending from when its record is appended until it is committed by the replicas; what is told is what is stored. Records count
 * in the order of their log, so of those that succeed the newest stays.
 *
 * Called by coordinator.c. Calls base/ alone. KIP-211 (expiry), 320 (leader epochs), 496 (deletion).
 */
#ifndef KB_OFFSETS_H
#define KB_OFFSETS_H

#include "base/map.h"

struct kb_offset {
    int64_t offset;
    int32_t leader_epoch;         /* -1 */
    struct kw_uuid topic_id;      /* zero: not known */
    int64_t commit_ms, expire_ms; /* wall clock; expire_ms -1: by the group's rule */
    char *metadata;               /* kw_malloc, or NULL: "" */
    int32_t metadata_size;
};
struct kb_offset_entry {
    struct kb_offset_topic *topic;
    int32_t partition;
    int32_t pending;    /* commits and removals under way */
    bool removing;      /* a removal is among them */
    int64_t log_offset; /* of the record that is stored; -1: none, `stored` does not count */
    struct kb_offset stored;
};
struct kb_offset_topic {
    struct kw_map partitions; /* struct kb_offset_entry */
    int32_t len;
    char name[]; /* with a NUL behind it */
};
struct kb_committed {
    struct kw_map topics;   /* struct kb_offset_topic */
    size_t entries, stored; /* with those that are pending only; without */
};

void kb_committed_init(struct kb_committed *t);
void kb_committed_deinit(struct kb_committed *t);

/* A commit begins: its entry is there until its end, which so cannot fail. */
kw_err kb_committed_begin(struct kb_committed *t, struct kw_str topic, int32_t partition, struct kb_offset_entry **entry) KW_CHECK;
/* It ends: stored at log_offset (takes v's metadata), or not (v NULL: the entry may be gone afterwards). */
void kb_committed_end(struct kb_committed *t, struct kb_offset_entry *entry, int64_t log_offset, struct kb_offset *v);
/* A record was read from the log, or (v NULL) the removal of one. Takes v's metadata in any case. */
kw_err kb_committed_load(struct kb_committed *t, struct kw_str topic, int32_t partition, int64_t log_offset, struct kb_offset *v) KW_CHECK;
/* What the record at log_offset removes is gone, unless something later is stored. */
void kb_committed_forget(struct kb_committed *t, struct kw_str topic, int32_t partition, int64_t log_offset);

const struct kb_offset *kb_committed_get(const struct kb_committed *t, struct kw_str topic, int32_t partition); /* what is stored; NULL */
/* Topic by topic, in the order in which they were first committed: for (struct kb_committed_walk w = {0}; (e = kb_committed_next(t, &w));)
 * — also those that are pending only. Neither begin nor load meanwhile; the entry at hand may go. */
struct kb_committed_walk {
    size_t from, to, partition; /* the topic at hand lies between the two */
};
struct kb_offset_entry *kb_committed_next(const struct kb_committed *t, struct kb_committed_walk *w);

#endif
