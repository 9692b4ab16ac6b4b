/* compact_job.h - the work of compaction, on the job lane: sealed segments are read, and written anew with the newest record of each key
 * alone.
 *
 * Two jobs. The first reads the dirty part for the newest offset of each key, as far as memory goes, then writes all segments up to there
 * anew beside themselves (`.cleaned`), small ones together. The second puts them in place (by way of `.swap`): after a crash at any moment
 * recovery (recover_names.c) finds the old segments or the new ones. In between and afterwards the log's owner does what memory needs
 * (compact.c).
 *
 * Kept: the newest record of a key; tombstones and what is newer than the map for delete.retention.ms from the first time they were met
 * (KIP-534: the batch says until when); of a producer's last batch at least its header, so that sequences stay known; offsets, epochs,
 * producer fields and codec of every batch; a segment's last batch, if only as a header, so that it reaches to the next. Records without a
 * key go. Batches of transactions and old formats are not understood here: KW_EUNSUPPORTED.
 *
 * Called by compact.c. Calls compact_map, scan, wire/batch, the file interface.
 */
#ifndef KB_COMPACT_JOB_H
#define KB_COMPACT_JOB_H

#include "scan.h"

struct kb_compact_source { /* a sealed segment */
    int64_t base, size;
};
struct kb_compact_producer {  /* by id */
    int64_t pid, last_offset; /* of its last batch */
};
struct kb_compact_result { /* what replaces the sources from base to before end; maybe without a record */
    int64_t base, end;
    struct kb_facts facts;
};
struct kb_compact_job {
    /* in; all of it lives until the second job is done */
    const char *dir;
    const struct kb_compact_source *sources; /* from the log's first on, one behind the other */
    size_t source_count;
    int64_t end;   /* of the last of them: where the next segment begins */
    int64_t dirty; /* the first offset that no compaction has been over; 0: none */
    const struct kb_compact_producer *producers;
    size_t producer_count;
    size_t memory_max; /* log.cleaner.dedupe.buffer.size */
    int64_t segment_bytes, wall_ms, delete_retention_ms;
    int32_t interval;
    bool ephemeral; /* nothing is synced */
    uint64_t seed[2];
    /* out */
    kw_err err;
    char why[200];      /* after a failure */
    int64_t cleaned_to; /* what is above is dirty the next time */
    struct kb_compact_result *results;
    size_t result_count;
    int64_t records_in, records_out, bytes_in, bytes_out;
};
void kb_compact_job_run(void *job, struct kb_fs *fs);
/* The results take the sources' places. On an error some have, and the files tell which; the log is to be opened anew. */
void kb_compact_swap_run(void *job, struct kb_fs *fs);
void kb_compact_job_deinit(struct kb_compact_job *j); /* its results */

#endif
