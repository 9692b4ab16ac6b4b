/* log_priv.h - what the files of log/ share: segments, their indexes, writes in flight, the sync and cut state machines. Private to log/.
 *
 * Ownership: a log counts its pins (itself, and every request in flight); its memory goes with the last. A segment is counted by the log's
 * array and by reads, writes and requests. Everything runs on the core's thread, but for the job of recover.c, which shares nothing.
 */
#ifndef KB_LOG_PRIV_H
#define KB_LOG_PRIV_H

#include "entry.h"
#include "epochs.h"
#include "index.h"
#include "log.h"
#include "pid_state.h"

#define KB_IO_MAX (1 << 20)    /* bytes of one disk request */
#define KB_WRITE_IOV_MAX 512   /* pieces of one APPEND */
#define KB_WINDOW (16 << 10)   /* what a lookup reads at once */
#define KB_RANGES_MAX 8
#define KB_PATH_SUFFIX_MAX 48

struct kb_compact;
struct kb_cursor;
struct kb_doomed;
struct kb_range {
    int64_t from, to;
};

enum kb_avail { KB_ABSENT, KB_LOADING, KB_PRESENT };

struct kb_segment {
    uint32_t refs;
    struct kb_log *log;         /* not counted; outlives the segment's requests, each of which pins the log */
    int64_t base, end;          /* end: next offset after the last batch (queued included) */
    int64_t size, submitted_size, written_size; /* bytes: queued, handed to the disk, written */
    int64_t synced_size;        /* -1: unknown, nothing below it is vouched for */
    int64_t first_timestamp;    /* of the first batch; -1 none yet */
    int64_t max_timestamp, max_timestamp_offset; /* so far, last offset of its batch; -1: none */
    int64_t cut_timestamp; /* from a cut until its tail is read anew, max_timestamp may be too low: no time is above this; -1: it is right */
    int64_t appended_wall_ms, created_wall_ms;   /* of the last append (or the file's mtime); of creation */
    int64_t first_wall_ms, first_ahead_ms, appended_ahead_ms; /* of the first append, likewise; the env's ahead_ms at the first and the last */
    int64_t appended_us; /* by the clock that nobody sets, of the last append of this process; INT64_MIN: none */
    int64_t since_index;        /* bytes since the last index entry */
    int64_t batch_size_max;     /* INT64_MAX: unknown */
    bool dense;                 /* every batch but the first has an index entry: a lookup needs no scan */
    bool empties;               /* among what was checked, or written, there are batches without records */
    bool gone;                  /* truncated away or deleted: reads start over */
    bool fresh;                 /* its file is not there yet */
    uint64_t name_at;           /* how many names the log had made with its own: durable once names_synced is there */
    bool sealed;
    bool pinned;                /* its files do not have their names yet: handle and indexes stay in memory */
    bool index_stored;          /* the files hold what memory holds, or will */
    bool index_durable;         /* and it is durable: else the recovery point may not pass the segment, since recovery believes their files below it */
    int32_t index_ops;          /* requests in flight that load or store the indexes */
    kw_err index_err, file_err; /* of the last load or open, for those who wait */
    enum kb_avail file_state, index_state;
    uint32_t generation;        /* grows with each truncation */
    struct kb_file *file;
    struct kb_index offsets, times;
    bool index_proven;          /* a scan came to the same place: what is corrupt is the batch */
    uint32_t index_crc;         /* of both, when index_crc_known: what a reload must match */
    bool index_crc_known;
    struct kb_range checked[KB_RANGES_MAX]; /* bytes whose CRC this process has checked, ascending */
    size_t checked_count;
    struct kw_list file_lru, index_lru;     /* in the env's lists while sealed and present */
    struct kw_list waiters;     /* struct kb_waiter_link: who waits for the file or the index */
};

struct kb_seg_waiter {
    struct kw_list link;
    void (*wake)(struct kb_seg_waiter *w, struct kb_now now);
};

/* A request of the log's own, with what it must hold. */
struct kb_op {
    struct kb_disk_req req;
    struct kb_log *log;         /* pinned */
    struct kb_segment *seg;     /* referenced; may be NULL */
    void (*fn)(struct kb_op *op, struct kb_now now); /* the op is freed after it returns */
    void *ctx;
    int64_t tag;
    struct kb_iov iov;
    uint8_t *bytes;             /* kw_malloc, freed with the op */
    char *path, *path2;
};
struct kb_op *kb_op_new(struct kb_log *log, struct kb_segment *seg, enum kb_disk_op what, enum kb_lane lane,
                        void (*fn)(struct kb_op *op, struct kb_now now));
void kb_op_submit(struct kb_op *op);
void kb_op_free(struct kb_op *op); /* one that was not submitted */

/* One APPEND: bytes of whole batches, or a piece of a batch over 1 MB. */
struct kb_write {
    struct kb_disk_req req;
    struct kw_list link;        /* in the log's writes, in offset order; or the env's spare ones */
    struct kb_log *log;
    struct kb_segment *seg;
    int64_t position, size, end_offset; /* end_offset: the written mark once this and all before are done */
    bool submitted, finished;
    size_t count, cap;
    struct kb_iov *iov;
    struct kw_blk **blks;
};

struct kb_tail_entry { /* a batch near the end of the log */
    int64_t base, end, position;
    struct kb_segment *seg;
    int64_t size;
    int32_t record_count;
};
#define KB_TAIL_MAX 256
struct kb_tail { /* ring, oldest first */
    struct kb_tail_entry *v;
    uint32_t head, count, cap;
};

struct kb_spot { /* where a read ended */
    int64_t offset, position;
    struct kb_segment *seg; /* not counted; dropped when the segment goes */
};
#define KB_SPOTS 4

struct kb_sync_state {
    bool wanted, running, failed;
    bool names_only;             /* the round under way moves no mark */
    bool storing, epochs_failed; /* the epochs: on their way; the last time they could not be stored */
    int32_t outstanding;
    int64_t target;
};

/* Cutting the log back: wait for what is in flight, find the place, cut in memory, then on disk (newest first, durably), then read back what
 * memory no longer knows. */
enum kb_cut_phase { KB_CUT_IDLE, KB_CUT_DRAIN, KB_CUT_LOCATE, KB_CUT_RENAME, KB_CUT_TRUNCATE, KB_CUT_SYNC, KB_CUT_UNLINK, KB_CUT_EPOCHS, KB_CUT_RELOAD };
struct kb_cut {
    enum kb_cut_phase phase;
    int64_t to;
    int64_t reset_to;           /* -1: a truncation */
    bool begun;                 /* the file was asked for that tells where a log that was reset begins */
    bool disk_full;             /* after ENOSPC: `to` is written */
    bool in_flight;
    struct kb_segment **doomed; /* newest first; counted */
    size_t doomed_count, next, next_suffix;
    struct kb_cursor *cursor;   /* looking for the place */
    bool reload_pids;
    kb_log_done *done;
    void *ctx;
};

struct kb_log_private {
    uint32_t pins;
    bool closed;                /* kb_log_free was called */
    bool whole; /* as it was opened: where it begins its snapshots tell, too */
    bool dir_unsynced, parent_unsynced;
    uint64_t names_made, names_synced, names_syncing; /* of segments; all that a start finds are the first */
    uint8_t *identity; /* of partition.metadata, written instead of the folder's next sync, and with it; NULL: it is durable, or nobody's care */
    size_t identity_size;
    struct kb_segment **segs;   /* ascending; the last is active */
    size_t seg_count, seg_cap;
    struct kw_list writes;      /* struct kb_write, not yet finished in order */
    struct kw_list fresh;       /* struct kb_write that the written mark has just passed: only while that is told */
    struct kb_write *open_write; /* the last of them while it may still grow */
    int64_t submitted;          /* offset: all below was handed to the disk */
    int32_t stores;             /* index files and snapshots on their way */
    struct kb_tail tail;
    struct kb_spot spots[KB_SPOTS];
    uint32_t next_spot;
    struct kb_sync_state sync;
    struct kw_timer epochs_timer, again_timer;
    bool young;                 /* nothing was found when it was opened, and no name of it is durable yet: a second segment waits */
    bool flush_again;           /* something could not be submitted for want of memory */
    int64_t last_pid_offset;    /* of the newest batch with a producer id; INT64_MAX: unknown */
    int64_t unsynced_since_us;  /* KW_NEVER: nothing unsynced */
    struct kb_cut cut;
    struct kb_compact *compact; /* a pass of compaction under way */
    bool compact_said;          /* that it cannot be for now */
    struct kw_list cursors;     /* reads and lookups that wait */
    struct kb_stop *stop;       /* a shutdown under way */
    struct kw_list removals;    /* segments whose files are to go, oldest first (retention) */
    bool removing;
    struct kb_doomed *doomed;   /* the folder is to be deleted once nothing of the log is in flight; else NULL */
    int64_t start_snapshot;
};

/* log.c */
void kb_log_poison(struct kb_log *log, struct kb_now now, const char *what, const char *path, int os_errno);
void kb_log_tell(struct kb_log *log, struct kb_now now); /* marks_moved, unless closed */
char *kb_log_path(const struct kb_log *log, const char *name);
char *kb_seg_path(const struct kb_log *log, int64_t base, const char *suffix);
static inline struct kb_segment *kb_log_active(const struct kb_log *log) { return log->priv->segs[log->priv->seg_count - 1]; }
size_t kb_log_seg_at(const struct kb_log *log, int64_t offset); /* index of the last segment with base <= offset; 0 when below all */
void kb_stop_step(struct kb_log *log, struct kb_now now);
char *kb_log_parent(const struct kb_log *log);

/* segment.c */
struct kb_segment *kb_seg_new(struct kb_log *log, int64_t base, struct kb_now now);
struct kb_segment *kb_seg_ref(struct kb_segment *s);
void kb_seg_unref(struct kb_segment *s);
bool kb_seg_file_want(struct kb_segment *s, kw_err *err);  /* true: the handle is open; else it is being opened, or *err */
bool kb_seg_index_want(struct kb_segment *s, kw_err *err); /* true: the indexes are in memory; else they are being loaded, or *err */
void kb_seg_wait(struct kb_segment *s, struct kb_seg_waiter *w);
void kb_seg_wake(struct kb_segment *s, struct kb_now now);
void kb_seg_drop_file(struct kb_segment *s);
void kb_seg_drop_index(struct kb_segment *s);
void kb_seg_mark_gone(struct kb_segment *s);
void kb_seg_forget(struct kb_segment *s);
bool kb_seg_checked(const struct kb_segment *s, int64_t from, int64_t to);
void kb_seg_check_add(struct kb_segment *s, int64_t from, int64_t to);
void kb_seg_check_cut(struct kb_segment *s, int64_t size);
kw_err kb_seg_store_index(struct kb_segment *s) KW_CHECK;
void kb_seg_store_again(struct kb_segment *s); /* a sealed one's, if that failed before */
void kb_seg_last_time(struct kb_segment *s);
void kb_seg_seal(struct kb_segment *s);
kw_err kb_log_roll(struct kb_log *log, int64_t base, struct kb_now now) KW_CHECK;
/* A record's timestamp (ms; -1: none) as retention and compaction take it. Clients stamp with a clock that was not advanced with the broker's: what
 * was appended when that was ahead by so much counts as so much newer, though never as newer than its append. */
int64_t kb_seg_time(const struct kb_segment *s, int64_t timestamp, int64_t ahead_ms);
int64_t kb_seg_newest(const struct kb_segment *s);
bool kb_seg_roll_due(const struct kb_segment *s, int64_t last, int64_t size, int64_t max_timestamp, struct kb_now now);
kw_err kb_log_snapshot(struct kb_log *log, int64_t offset) KW_CHECK;

/* append.c */
void kb_log_submit_writes(struct kb_log *log, struct kb_now now);
void kb_log_drop_writes(struct kb_log *log); /* those not submitted */
/* Bytes of the segment's file that were written just now, while that is told: they are still in memory. false: not those. */
bool kb_write_copy(const struct kb_log *log, const struct kb_segment *seg, int64_t from, int64_t to, uint8_t *out);
void kb_log_disk_full(struct kb_log *log, struct kb_now now, const char *what); /* what there is none of */
void kb_write_spare_free(struct kb_log_env *env);
void kb_tail_cut(struct kb_log *log, int64_t to);
void kb_tail_drop_segment(struct kb_log *log, const struct kb_segment *s);
const struct kb_tail_entry *kb_tail_find(const struct kb_log *log, int64_t offset); /* the batch that holds offset, or the first above; NULL: unknown */
int64_t kb_tail_whole(const struct kb_log *log, const struct kb_segment *s, int64_t from, int64_t to); /* where the last batch that ends in there ends;
                                                                                                          `to` where that is not known */

/* sync.c */
void kb_sync_step(struct kb_log *log);
void kb_sync_names(struct kb_log *log); /* of a young log, once it has grown a little */
void kb_recovery_point_step(struct kb_log *log, struct kb_now now); /* something that it waits for has come */
bool kb_epochs_store(struct kb_log *log);  /* true: on their way */
void kb_epochs_later(struct kb_log *log, struct kb_now now); /* they changed: stored in a while */
void kb_sync_init_timers(struct kb_log *log);
void kb_log_again(struct kb_log *log); /* no memory for a write or a sync, and nothing in flight comes back to it: soon again */

/* retention.c */
void kb_removals_free(struct kb_log *log);
void kb_doomed_start(struct kb_doomed *d);
void kb_doomed_free(struct kb_log_env *env);

/* cursor.c: finds places in the log and reads there, as far as it gets without waiting; then it is woken. */
enum { KB_STEP_DONE = 1, KB_STEP_WAIT = 0, KB_STEP_END = 2 }; /* END: nothing at or above the target is written */
enum kb_find_phase { KB_FIND_SEGMENT, KB_FIND_PLACE, KB_FIND_SCAN, KB_FIND_FOUND, KB_FIND_END };
struct kb_cursor {
    struct kb_seg_waiter wait;
    struct kw_list link;        /* in the log's cursors */
    struct kb_log *log;         /* pinned (not by a probe) */
    struct kb_disk_req req;
    bool probe;                 /* on the stack: starts nothing */
    bool in_flight, waiting, cancelled;
    void (*step)(struct kb_cursor *c, struct kb_now now); /* woken */
    void *owner;
    kw_err err;
    struct kb_segment *seg;     /* counted (not by a probe) */
    uint32_t generation;
    size_t seg_index;
    /* the window: bytes of seg in memory */
    uint8_t *win;
    size_t win_cap, win_len;
    int64_t win_at;
    /* find */
    enum kb_find_phase find;
    int64_t target, at;         /* the place: position of the first batch whose last offset >= target */
    struct kb_entry entry;      /* what stands there, when entry_known */
    bool entry_known, from_index, distrust;
    int64_t previous_last;
    /* whole batches or ranges into memory */
    struct kw_blk *blk;
    int64_t blk_from, blk_to, blk_have;
    /* read */
    int phase;
    int64_t end, stop, check_at, scan_at, next_offset;
    int64_t skip_from, skipped_bytes;
    struct kb_entry_sum sum;
    struct kb_entry checking;
    int64_t checked_last;       /* last offset of the last batch that passed */
    bool summing;
};
void kb_cursor_init(struct kb_cursor *c, struct kb_log *log, bool probe);
struct kb_cursor *kb_cursor_new(struct kb_log *log, void (*step)(struct kb_cursor *c, struct kb_now now), void *owner);
void kb_cursor_free(struct kb_cursor *c); /* not while in flight */
void kb_cursor_cancel(struct kb_cursor *c);
void kb_cursor_restart(struct kb_cursor *c);
bool kb_cursor_stale(const struct kb_cursor *c); /* its segment was cut or deleted: start over */
int32_t kb_cursor_file(struct kb_cursor *c);     /* KB_STEP_DONE: the segment's handle is open */
int32_t kb_cursor_index(struct kb_cursor *c);
/* At least `need` bytes at `at` (fewer only at the written end), reading `wish` of them. */
int32_t kb_cursor_window(struct kb_cursor *c, int64_t at, size_t need, size_t wish, const uint8_t **p, size_t *n);
int32_t kb_cursor_find(struct kb_cursor *c);     /* target -> seg, at */
int32_t kb_cursor_entry(struct kb_cursor *c, int64_t at, struct kb_entry *e); /* parses what stands there; KW_ECRC when nothing sane does */
int32_t kb_cursor_load(struct kb_cursor *c, int64_t from, int64_t to);        /* into blk */
void kb_cursor_seg_set(struct kb_cursor *c, size_t i);
size_t kb_cursor_next_index(const struct kb_cursor *c); /* of the segment behind its own, which is not gone */

/* compact.c */
bool kb_compact_swapping(const struct kb_log *log); /* files are taking the places of others: neither may be touched */
void kb_compact_step(struct kb_log *log, struct kb_now now); /* something that a pass may wait for has come */
void kb_compact_again(struct kb_log *log);                   /* what there was no memory or space for */
void kb_compact_cut(struct kb_log *log, int64_t to);         /* the log will end at `to`: a pass over what goes is over */
bool kb_compact_halt(struct kb_log *log, struct kb_now now); /* the log is to be shut down. true: nothing is under way */
void kb_compact_drop(struct kb_log *log);                    /* the log is freed */

/* cut.c */
kw_err kb_cut_start(struct kb_log *log, int64_t to, int64_t reset_to, bool disk_full, kb_log_done *done, void *ctx, struct kb_now now) KW_CHECK;
void kb_cut_step(struct kb_log *log, struct kb_now now);

#endif
