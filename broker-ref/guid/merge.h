/* merge.h - the two jobs that make a run: of a table (flush), or of adjacent runs (merge). Each writes `path`.tmp, syncs it, gives it its name and syncs
 * the folder: what has its name is whole. Which runs count is the manifest's to say.
 *
 * Called by index (as KB_DISK_JOB). Calls table, run, the file interface.
 */
#ifndef KB_GUID_MERGE_H
#define KB_GUID_MERGE_H

#include <stdatomic.h>

#include "run.h"
#include "table.h"

#define KB_MERGE_INPUTS_MAX 8

struct kb_merge_input {
    char *path;
    struct kb_run_facts facts;
    int64_t valid_to; /* entries from there on are left out */
};
struct kb_guid_job {
    /* in; all of it lives until the job is done */
    char *log_dir, *dir, *path; /* dir: the folder of the runs, made when make_dir */
    bool make_dir, sync;
    uint64_t key[2], seed;
    const struct kb_guid_table *table; /* flush: nothing else changes it meanwhile but what is not read here */
    size_t count;                      /* its entries */
    struct kb_merge_input inputs[KB_MERGE_INPUTS_MAX];
    size_t input_count; /* merge */
    int64_t from;       /* entries below are left out: the log begins there */
    _Atomic bool stop;  /* from the other thread: ends soon, with KW_EBUSY */
    /* in and out: seq, base, end, times and epoch are the caller's */
    struct kb_run_facts facts;
    /* out */
    kw_err err; /* KW_EINVAL: nothing is left to be written, and there is no file */
    struct kb_run_tail tail;
    int rotten; /* the input that could not be read; -1 */
    enum kb_disk_err disk_err;
};
void kb_guid_flush_run(void *job, struct kb_fs *fs);
void kb_guid_merge_run(void *job, struct kb_fs *fs);
void kb_guid_job_deinit(struct kb_guid_job *j);

#endif
