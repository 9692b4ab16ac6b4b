/* compact_job.h - the work of compaction, on a lane of its own: sealed segments are read, and written anew with the newest record of each
 * key alone.
 *
 * Two jobs, by turns. The first reads, when it runs for the first time, the dirty part for the newest offset of each key, as far as memory
 * goes; then it writes segments anew beside themselves (`.cleaned`), small ones together, as many as step_bytes says. The second puts
 * one of them in place (by way of `.swap`): after a crash at any moment recovery (recover_names.c) finds the old segments or the new one.
 * In between and afterwards the log's owner does what memory needs (compact.c).
 *
 * Kept: the newest record of a key; tombstones and what is newer than the map for delete.retention.ms from the first time they were met
 * (KIP-534: the batch says until when); of a producer's last batch at least its header, so that sequences stay known; offsets, epochs,
 * producer fields and codec of every batch; a segment's last batch, if only as a header, so that it reaches to the next. Segments of which
 * little stays become one. Records without a
 * key go. Batches of transactions and old formats are not understood here: KW_EUNSUPPORTED.
 *
 * Called by compact.c. Calls compact_map, scan, wire/batch, the file interface.
 */
#ifndef KB_COMPACT_JOB_H
#define KB_COMPACT_JOB_H

#include <stdatomic.h>

#include "compact_map.h"
#include "scan.h"

struct kb_compact_source { /* a sealed segment */
    int64_t base, size;
};
struct kb_compact_producer {  /* by id */
    int64_t pid, last_offset; /* of its last batch */
};
int kb_compact_by_pid(const void *a, const void *b); /* their order, for qsort and bsearch */
struct kb_compact_result { /* what replaces the sources from base to before end; maybe without a record */
    int64_t base, end;
    struct kb_facts facts;
    int renamed; /* how far its swap has come */
};
struct kb_compact_job {
    /* in; all of it lives until the last job is done */
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
    int64_t step_bytes; /* a run of the first job ends once it has read so many of them; 0: with the last */
    _Atomic bool stop;  /* from the other thread: the first job ends at the next batch, with KW_EBUSY */
    /* out */
    kw_err err;
    enum kb_disk_err disk_err; /* of KW_EIO, where it was the disk's */
    char why[200];             /* after a failure */
    bool more;                 /* the first job is to be run again, when its results are in place and were given back (kb_compact_results_free) */
    int64_t cleaned_to; /* what is above is dirty the next time */
    struct kb_compact_result *results;
    size_t result_count;
    int64_t records_in, records_out, bytes_in, bytes_out;
    /* the job's own */
    struct kb_compact_map map;
    uint8_t *overwritten; /* a bit for each offset from `dirty` on: its key came again. NULL: the map is asked */
    bool mapped;
    size_t next, count; /* the sources: the next one, and how many are below cleaned_to */
};
void kb_compact_job_run(void *job, struct kb_fs *fs);
/* The results [from, from + count) take the sources' places. After an error it is run again, and goes on where it was; or the log is opened
 * anew, and its recovery does. */
struct kb_compact_swap {
    struct kb_compact_job *job; /* err, why */
    size_t from, count;
};
void kb_compact_swap_run(void *swap, struct kb_fs *fs);
/* Removes the results that will not be put in place: one of them that stayed could pass for the beginning of a later replacement. */
void kb_compact_sweep_run(void *job, struct kb_fs *fs);
void kb_compact_results_free(struct kb_compact_job *j);
void kb_compact_job_deinit(struct kb_compact_job *j); /* its results and its map */

#endif
