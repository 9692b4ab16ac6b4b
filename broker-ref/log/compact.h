/* compact.h - compaction of one log (cleanup.policy=compact): how dirty it is, and one pass over it, beside everything else that the log does.
 *
 * A pass reads and writes on a lane of its own (compact_job.h); what it has written takes the place of the old segments in memory first, then
 * on the disk. Readers that hold old files read on; those under way begin anew. Nothing at or above the high watermark, the recovery point
 * and the active segment is looked at, so replicas of a partition are compacted each for itself and become the same again in time.
 *
 * Called by replica/cleaner. Calls compact_job, segment, the disk. KIP-58, KIP-354, KIP-534.
 */
#ifndef KB_COMPACT_H
#define KB_COMPACT_H

#include "log.h"

struct kb_compact_look { /* Kafka's measures */
    int64_t dirty, end;  /* a pass would be over all below `end`; no pass has been over what is at or above `dirty` */
    int64_t clean_bytes, dirty_bytes;
    double ratio;        /* of dirty bytes among these */
    bool overdue;        /* dirty for longer than max.compaction.lag.ms */
};
/* true: min.cleanable.dirty.ratio, or max.compaction.lag.ms, says that it is time. */
bool kb_log_compact_look(const struct kb_log *log, int64_t hw, struct kb_now now, struct kb_compact_look *out);

struct kb_compact_report {
    kw_err err;          /* KW_EBUSY: given up for something more urgent. What else there was to say has been said; uncleanable is set where it is for good */
    int64_t records_in, records_out, bytes_in, bytes_out;
};
/* Called once, in a later turn, unless the log is freed before. On success log->cleaned has moved. */
typedef void kb_compact_done(void *ctx, struct kb_log *log, const struct kb_compact_report *report, struct kb_now now);
struct kb_compact_order {
    int64_t hw;
    size_t memory_max;   /* of the map of keys */
    uint64_t seed[2];    /* random */
    kb_compact_done *done;
    void *ctx;
};
/* KW_EBUSY: another pass, a truncation or a shutdown is under way. KW_EINVAL: there is nothing to be done. KW_ENOMEM. */
kw_err kb_log_compact(struct kb_log *log, const struct kb_compact_order *order, struct kb_now now) KW_CHECK;

#endif
