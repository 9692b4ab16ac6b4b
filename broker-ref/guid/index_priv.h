/* index_priv.h - what the files of one index share. Private to guid/.
 *
 * index.c: tables and runs in memory, adding, cutting, expiry. index_disk.c: flushes, merges, the manifest, files that go. index_open.c: life. find.c:
 * finding.
 */
#ifndef KB_GUID_INDEX_PRIV_H
#define KB_GUID_INDEX_PRIV_H

#include "../log/log_priv.h"
#include "manifest.h"
#include "merge.h"
#include "run.h"
#include "table.h"

#define KB_GUID_TABLES_MAX 6
#define KB_GUID_RUNS_MAX 64    /* no table is written while there are so many: merging comes first */
#define KB_GUID_LIVE_MAX 22    /* above it any two neighbours are merged */
#define KB_GUID_SPAN_PARTS 16  /* of the window: what a run may span */
#define KB_GUID_RETRY_US 1000000

struct kb_guid_run { /* of an index, or of what still reads it */
    uint32_t refs;
    bool live; /* in the index */
    struct kb_guid_env *env;
    struct kb_run_facts facts;
    struct kb_run_tail tail;
    int64_t valid_to, forgotten_to;
    int32_t epoch;
    int64_t oldest_us, newest_us;
    char *path;
    struct kb_file *file; /* NULL: not open */
    bool opening;
    struct kw_list lru;    /* in the env's, while open */
    struct kw_list doomed; /* in the index's: its file goes once the manifest of that version is stored */
    uint64_t doomed_at;
};

struct kb_guid_index {
    struct kw_list link; /* in the env's */
    struct kw_list by_size; /* in the env's open_by_size[size]; nowhere: it has no open table with an entry */
    unsigned size;
    struct kb_guid_env *env;
    struct kb_log *log;
    int64_t window_us;
    uint64_t key[2], next_seq;
    int64_t end, start_seen; /* start_seen: the log's, when it was last looked at */
    struct kb_guid_run *runs[KB_MANIFEST_RUNS_MAX]; /* ascending */
    kb_id128 min[KB_MANIFEST_RUNS_MAX], max[KB_MANIFEST_RUNS_MAX], lowest, highest;
    size_t run_count;
    struct kb_guid_table *tables[KB_GUID_TABLES_MAX]; /* ascending, above the runs; the last may be open, the first may be being written */
    size_t table_count, last_count; /* last_count: entries of the last that was full */
    int64_t memory, memory_frozen;  /* as counted in the env */
    char *dir;
    /* disk */
    uint32_t ops;
    bool closed, removing, dir_made;
    struct kb_guid_job *flush, *merge; /* under way */
    struct kb_guid_run *merging[KB_MERGE_INPUTS_MAX]; /* counted */
    int64_t flush_retry_us, merge_retry_us, manifest_retry_us;
    bool said; /* that it cannot be written */
    uint64_t picked_at; /* the version at which there was nothing to merge */
    uint64_t version, stored, writing_version; /* of the manifest: as it is to be, as it is, as it is being written (0: not) */
    struct kw_list doomed;
    void (*cut_done)(void *ctx, struct kb_now now);
    void *cut_ctx;
    uint64_t cut_version;
    bool stopping, stop_turned, stop_tried, stop_written;
    void (*stop_done)(void *ctx, struct kb_now now);
    void *stop_ctx;
    void (*went_back)(void *ctx, struct kb_guid_index *index, struct kb_now now);
    void *owner_ctx;
    void *opening; /* struct opening, while what does not count is being masked */
    struct kb_guid_op *remove;
    void (*gone)(void *ctx, struct kb_now now);
    void *gone_ctx;
    struct kw_list searches;
    struct kb_guid_stats counts;
};

/* A request of an index's own: it stays, and its log's folder, until the request is done. */
struct kb_guid_op {
    struct kb_disk_req req;
    struct kb_guid_index *ix;
    void (*fn)(struct kb_guid_op *op, struct kb_now now); /* the op is freed after it returns */
    void *ctx;
    struct kb_iov iov;
    uint8_t *bytes; /* kw_malloc, freed with the op */
    char *path;
};
struct kb_guid_op *kb_guid_op_new(struct kb_guid_index *ix, enum kb_disk_op what, enum kb_lane lane, void (*fn)(struct kb_guid_op *op, struct kb_now now));
void kb_guid_op_submit(struct kb_guid_op *op);
void kb_guid_op_free(struct kb_guid_op *op); /* one that was not submitted */
char *kb_guid_path(const struct kb_guid_index *ix, const char *name);

/* index.c */
struct kb_guid_run *kb_guid_run_new(struct kb_guid_index *ix, const struct kb_run_facts *facts, struct kb_run_tail *tail); /* takes the tail */
void kb_guid_run_unref(struct kb_guid_run *r);
void kb_guid_run_close(struct kb_guid_run *r);
void kb_guid_run_insert(struct kb_guid_index *ix, size_t at, struct kb_guid_run *r); /* the reference becomes the index's */
void kb_guid_run_drop(struct kb_guid_index *ix, size_t at);                          /* and dooms its file; the manifest is to be written */
void kb_guid_table_drop(struct kb_guid_index *ix, size_t at);
void kb_guid_freeze(struct kb_guid_index *ix); /* the open table is full; an empty one goes */
void kb_guid_account(struct kb_guid_index *ix);
void kb_guid_expire(struct kb_guid_index *ix, struct kb_now now);
void kb_guid_rotten(struct kb_guid_index *ix, struct kb_guid_run *r, const char *why, struct kb_now now); /* r is live */
int64_t kb_guid_covered(const struct kb_guid_index *ix); /* up to where the files tell all */
/* index_disk.c */
void kb_guid_manifest_step(struct kb_guid_index *ix, struct kb_now now);
/* index_open.c */
void kb_guid_stop_step(struct kb_guid_index *ix, struct kb_now now);
void kb_guid_try_destroy(struct kb_guid_index *ix);
/* find.c */
void kb_guid_searches_cut(struct kb_guid_index *ix, int64_t to);
void kb_guid_searches_fail(struct kb_guid_index *ix);                      /* all under way end with KW_EIO */
void kb_guid_searches_step(struct kb_guid_index *ix, struct kb_now now);   /* from a request's return */

#endif
