/* recover.h - the job that reads a partition's folder: what the last clean stop or the recovery point vouches for is believed after cheap
 * checks, the rest is read batch by batch; then producer state and epochs. Called by log (open) and cut (reload). KIP-101, KIP-98.
 */
#ifndef KB_RECOVER_H
#define KB_RECOVER_H

#include "epochs.h"
#include "log.h"
#include "pid_state.h"
#include "scan.h"

#define KB_FOUND_RANGES_MAX 8

struct kb_found { /* a segment */
    struct kb_facts facts;       /* indexes: those of the last segment, and of one whose files could not be stored */
    int64_t mtime_ms;
    bool scanned;                /* every batch of it was checked, but for the gaps between the ranges */
    bool ends_damaged;           /* by what is kept: that is why it ends short of the next one */
    bool synced;
    bool indexed;                /* its index files are whole and durable; else facts has the indexes, of a sealed one too */
    int64_t checked[KB_FOUND_RANGES_MAX][2];
    size_t checked_count;
};

struct kb_recover {
    /* in */
    const char *dir;
    bool create, clean;
    bool whole; /* from the recovery point on: no gaps; damage to what was synced once, and an epoch below the one before, fail the recovery, and nothing is
                   touched */
    bool sync; /* all that is found is made durable: the log counts it as acknowledged (flush.on.ack) */
    int64_t start_checkpoint, recovery_point; /* -1: none */
    int32_t interval;
    enum kb_others others;
    bool compacted;    /* or to be: gaps are everywhere */
    bool killed;       /* the process alone ended, so that all that was written is whole, but for the end of what was on its way */
    int64_t committed; /* what is below was committed, and here, as far as it was kept (holds_committed) */
    /* out */
    kw_err err;
    struct kb_found *segs;       /* ascending, at least one */
    size_t seg_count, seg_cap;
    int64_t start, leo;
    bool cut_below_recovery_point, created;
    bool names_synced;           /* the folder's and its own name, after `sync` */
    bool emptied;                /* nothing is left: snapshots speak of what is gone */
    int64_t last_pid_offset;     /* -1: no batch with a producer id */
    int64_t snapshot_kept;       /* offset of a snapshot beyond the segments' own; -1 */
    struct kb_epochs epochs;
    struct kb_pid_state pids;
    struct kw_out notes;         /* lines for the log: level byte, text, NUL */
    /* the job's own */
    struct kb_fs *fs;
    int64_t *bases, *snapshots;
    size_t base_count, base_cap, snapshot_count, snapshot_cap;
    int64_t expected;
    int32_t epoch; /* the highest of the batches that were read */
    bool dirty_names, has_metadata; /* partition.metadata is there */
    bool identity;                  /* and is synced with the rest */
};
void kb_recover_init(struct kb_recover *r);
void kb_recover_run(struct kb_recover *r, struct kb_fs *fs);
void kb_recover_deinit(struct kb_recover *r);
void kb_recover_note(struct kb_recover *r, enum kb_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
char *kb_recover_path(const struct kb_recover *r, int64_t base, const char *suffix);
/* Lists the folder, removes or finishes what a crash left of renames and temporaries: bases and snapshots. recover_names.c */
kw_err kb_recover_names(struct kb_recover *r) KW_CHECK;
/* Producer state and epochs from snapshot, checkpoint and the segments found. recover_state.c */
kw_err kb_recover_state(struct kb_recover *r) KW_CHECK;

/* After a cut: producer state at `leo`, and what the last segment's tail says of its times (from the last index entry on). */
struct kb_reload {
    char *dir;
    int64_t *bases;
    size_t base_count;
    int64_t snapshot_extra;          /* offset of one that belongs to no segment; -1 */
    int64_t leo, tail_from, tail_to; /* positions in the last segment */
    struct kb_facts tail;            /* base given; since_index, max_timestamp* out */
    bool pids_wanted;
    struct kb_pid_state pids;
    kw_err err;
};
void kb_reload_run(struct kb_reload *r, struct kb_fs *fs);

#endif
