/* log.h - one partition's log: segments, indexes, epochs, producer state and the three marks, over the disk interface of event.h.
 *
 * Called by replica/partition (data) and quorum/store (metadata). Calls segment, index, recover, retention, epochs, pid_state.
 * The bytes on disk are Apache Kafka's own formats. KIP-32, 33, 98, 101, 107, 360.
 */
#ifndef KB_LOG_H
#define KB_LOG_H

#include "../event.h"
#include "base/timers.h"
#include "wire/batch.h"

struct kb_log_config { /* shared by the logs of a topic; replaced as a whole when a config changes */
    int64_t segment_bytes;          /* segment.bytes */
    int64_t segment_ms;             /* segment.ms (log.roll.ms) */
    int32_t index_interval_bytes, segment_index_bytes;
    int64_t retention_ms, retention_bytes; /* -1: none */
    int64_t file_delete_delay_ms;
    bool delete_policy;             /* cleanup.policy has delete */
    bool flush_on_ack;              /* appends are synced before they count as acknowledged */
    int64_t flush_messages, flush_ms;
    int64_t producer_expiration_ms; /* producer.id.expiration.ms */
    bool compact_policy;            /* cleanup.policy has compact: see compact.h */
    double min_dirty_ratio;         /* min.cleanable.dirty.ratio */
    int64_t min_compaction_lag_ms, max_compaction_lag_ms, delete_retention_ms;
};

struct kb_log_env { /* what every log of a node shares; outlives them and every request of theirs */
    struct kb_disk *disk;
    struct kw_timers *timers;
    struct kw_compressor *compressor;
    const struct kb_logger *logger;
    int64_t index_memory_max;       /* offset and time indexes of sealed segments kept in memory, all logs (least recently used go first) */
    int64_t index_memory_used;
    int32_t open_files_max, open_files; /* handles of sealed segments kept open, all logs */
    bool ephemeral;                 /* never syncs: what is written counts as synced */
    int64_t ahead_ms;               /* how far the wall clock was advanced (--clock virtual), and clients' clocks were not: see kb_seg_newest; 0 */
    struct kw_list file_lru, index_lru, spare_writes, doomed; /* the logs' own */
    size_t spare_write_count;
};
/* Index memory 8 MB, 1024 open files, not ephemeral: change the fields afterwards. */
void kb_log_env_init(struct kb_log_env *env, struct kb_disk *disk, struct kw_timers *timers, struct kw_compressor *compressor, const struct kb_logger *logger);
void kb_log_env_deinit(struct kb_log_env *env); /* after all logs are gone and the disk has no request left */

struct kb_log;
struct kb_log_owner { /* how a log tells its partition; never called from inside a call into the log */
    void (*marks_moved)(void *ctx, struct kb_log *log, struct kb_now now); /* written, synced or log start moved */
    void (*failed)(void *ctx, struct kb_log *log, struct kb_now now);      /* poisoned: reads and writes stop; text in log->failure */
    /* The disk was full: appends at or above log->leo were refused, which is back at written; who waits for them fails. May be NULL. Called once the
     * cut is durable, so that what is told to have failed does not come back after a crash (leo itself went back earlier, with `busy`). */
    void (*cut_back)(void *ctx, struct kb_log *log, struct kb_now now);
    void *ctx;
};

struct kb_segment;
struct kb_epochs;
struct kb_pid_state;
struct kb_log {
    struct kb_log_env *env;
    const struct kb_log_config *config;
    struct kb_log_owner owner;
    char *dir;                      /* …/topic-N */
    int64_t start, leo;             /* log start; log end = next offset to assign (queued) */
    int64_t written, synced;        /* offsets: everything below is written / synced */
    int64_t recovery_point;         /* what the checkpoint file may say now: synced, and all that recovery needs below it is on disk */
    int64_t size_bytes;             /* of all segments, queued appends included */
    int64_t hold_from;              /* the owner's: retention by time and compaction leave alone what reaches above it. INT64_MAX: nothing is held */
    struct kb_epochs *epochs;       /* leader-epoch-checkpoint */
    struct kb_pid_state *pids;
    bool poisoned, read_only;       /* read_only: ENOSPC; clears when an append succeeds again */
    int64_t cleaned;                /* compaction has been over everything below (compact.h); 0: nothing, or it is not known */
    bool uncleanable;               /* it cannot be: said why; until it is opened anew or set otherwise */
    bool busy;                      /* truncating, or cutting back: appends get KW_EBUSY until it is done (marks_moved) */
    char failure[224];
    struct kb_log_private *priv;
};

/* Who else has what this log had. What it holds is then held to more: by what nobody vouches for it may not come to lead. */
enum kb_others {
    KB_OTHERS_NONE,      /* nobody, or it is not known: all that may be right is kept */
    KB_OTHERS_MAY_COUNT, /* they may count on it: where something is wrong, KW_ECRC, and nothing of the damage is touched */
    KB_OTHERS_HAVE_IT,   /* they do not count on it any more, and have it: what nobody vouches for is cut off, to be fetched again */
    KB_OTHERS_LEAD,      /* and one of them leads now: so is what was synced once, from the first damage on */
};

/* Loading: one job reads the folder (creating it when `create`), recovers what the last clean stop does not vouch for, rebuilds
 * missing or corrupt indexes and producer state, cuts a torn tail; done(ctx, log, err) in a later turn. `clean`: the clean-shutdown marker
 * was found (and removed before). start_checkpoint, recovery_point: from the checkpoint files, -1 when absent. */
struct kb_log_open {
    struct kb_log_env *env;
    const struct kb_log_config *config;
    struct kb_log_owner owner;
    const char *dir;                /* copied */
    bool create, clean;
    bool whole;                     /* from the recovery point on: no gaps; fails on damage to what was synced once, where else it is kept or cut off */
    bool identity;                  /* partition.metadata is to be as durable as the rest */
    int64_t start_checkpoint, recovery_point;
    enum kb_others others;
    bool killed;                    /* as in recover.h */
    int64_t committed;
    void (*done)(void *ctx, struct kb_log *log, kw_err err, struct kb_now now); /* log is NULL on error; the reason was logged */
    void *ctx;
};
kw_err kb_log_open(const struct kb_log_open *o) KW_CHECK;
/* What the folder's partition.metadata says: the next round of syncs makes it durable with the folder's names, so that nothing of the log is synced whose
 * topic could not be told afterwards. */
kw_err kb_log_identity(struct kb_log *log, const char *text, size_t n) KW_CHECK;
/* Drops the log; operations in flight finish behind it. Files are not synced (kb_log_shutdown does). */
void kb_log_free(struct kb_log *log);
/* Who works in the log's folder beside it: the log's memory stays, and its folder under its name, until this is taken back. */
void kb_log_pin(struct kb_log *log);
void kb_log_unpin(struct kb_log *log);
/* Writes what is queued, syncs, writes producer snapshot and epochs; done once (or when the log is poisoned). */
kw_err kb_log_shutdown(struct kb_log *log, void (*done)(void *ctx, struct kb_log *log, kw_err err, struct kb_now now), void *ctx, struct kb_now now) KW_CHECK;
/* Renames the folder to "<name>.<32 hex digits of uuid>-delete" and unlinks it after file_delete_delay_ms; frees the log. gone (may be NULL) comes in
 * a later turn, once: nothing of this log touches a folder of that name any more. KW_ENOMEM: nothing has happened. */
typedef void kb_log_gone(void *ctx, struct kb_now now);
kw_err kb_log_delete(struct kb_log *log, const uint8_t uuid[16], kb_log_gone *gone, void *ctx, struct kb_now now) KW_CHECK;
/* The same for a folder whose log could not be opened. */
kw_err kb_log_delete_folder(struct kb_log_env *env, const char *dir, int64_t delay_ms, const uint8_t uuid[16], kb_log_gone *gone, void *ctx) KW_CHECK;
void kb_log_config_set(struct kb_log *log, const struct kb_log_config *config, struct kb_now now);

/* Append. The batch was validated (kw_batch_check). As leader: assigns base offset = leo and stamps the leader epoch in place; as follower or
 * metadata replica (`keep_offsets`): base offset must be >= leo. The block is referenced until written; the bytes must not change.
 * Rolls a segment when due; notes epoch and producer (kb_pid_update). Nothing is submitted before kb_log_flush. Nothing has changed on an error:
 * KW_EIO: poisoned. KW_EBUSY: busy; or, with flush_on_ack, an epoch begins and what is in front of it is not synced: that was asked for now.
 * KW_EINVAL: not a v2 batch, or its offset is below leo. KW_ENOMEM. */
struct kb_log_append {
    struct kw_blk *blk;             /* holds `batch`; NULL: the log copies */
    uint8_t *batch;
    size_t size;
    int32_t leader_epoch;
    bool keep_offsets;
    int64_t max_timestamp;          /* of the batch; -1 none (it stays out of the time index) */
    /* out */
    int64_t base_offset, last_offset;
};
kw_err kb_log_append(struct kb_log *log, struct kb_log_append *a, struct kb_now now) KW_CHECK;
/* Submits what was appended this turn as few, coalesced disk requests (<= 1 MB each). The node calls it once a turn for each dirty log. */
void kb_log_flush(struct kb_log *log, struct kb_now now);
/* Asks for a sync of all that is written so far; marks_moved tells. Coalesced. Stores the epochs too, which the recovery point waits for. */
kw_err kb_log_sync(struct kb_log *log) KW_CHECK;

/* Read: whole batches are not promised at the end (as Kafka's protocol allows), always at the start. The slices hold references. Bytes that this process
 * did not itself check are checked first (KW_ECRC: a corrupt batch stands there; nothing of it is given). */
#define KB_READ_SLICES_MAX 8
struct kb_slice {
    struct kb_file *file;           /* file slice, or */
    struct kw_blk *blk;             /* memory slice */
    const uint8_t *p;
    int64_t offset;
    size_t len;
};
struct kb_read {
    struct kb_log *log;
    int64_t offset;                 /* log start <= offset <= limit */
    int64_t limit;                  /* nothing at or above this offset (HW for consumers, LSN, written for replicas) */
    size_t bytes_max;
    bool min_one;                   /* the first batch whole even when larger than bytes_max (KIP-74) */
    bool into_memory;               /* the caller needs the bytes (down-conversion, controller): memory slices only */
    bool skip_empty;                /* begin at the first batch that has records: compaction and dedup leave batches without any */
    void (*done)(struct kb_read *r, struct kb_now now);
    void *ctx;
    /* out */
    kw_err err;
    struct kb_slice slices[KB_READ_SLICES_MAX];
    size_t slice_count, bytes;
    int64_t next_offset_hint;       /* first offset not covered, when known; else -1 */
    int64_t skipped_to;             /* skip_empty: below it, from offset on, there are only batches without records; else -1 */
    void *priv;                     /* the log's */
};
/* 1: answered now (done is not called); 0: done will be called in a later turn; < 0: kw_err. */
int32_t kb_log_read(struct kb_read *r, struct kb_now now);
void kb_read_release(struct kb_read *r); /* drops the slices */
void kb_read_cancel(struct kb_read *r);  /* done will not be called */

/* ListOffsets by timestamp: the first offset whose timestamp >= ts, below limit; -1 when none. KB_TS_MAX: the offset of the highest timestamp (KIP-734). */
#define KB_TS_MAX (-3)
struct kb_find_time {
    struct kb_log *log;
    int64_t timestamp, limit;
    void (*done)(struct kb_find_time *f, struct kb_now now);
    void *ctx;
    kw_err err;
    int64_t offset, found_timestamp; /* -1, -1: none */
    int32_t leader_epoch;
    void *priv;
};
int32_t kb_log_find_time(struct kb_find_time *f, struct kb_now now); /* 1, 0, < 0 as kb_log_read */
void kb_find_time_cancel(struct kb_find_time *f);

/* Truncation: everything >= to goes, in files, indexes, epochs and producer state; marks follow. A `to` inside a batch drops that whole batch.
 * The log is busy until done, which is called once, in a later turn; the cut is durable then (unless ephemeral). A read in flight across it is
 * answered from what stays. It may take recovery_point back: the owner has the lower one in its checkpoint file before it appends again, or a
 * torn write behind it would pass for rot. KW_EBUSY: another is under way. */
typedef void kb_log_done(void *ctx, struct kb_log *log, kw_err err, struct kb_now now);
kw_err kb_log_truncate(struct kb_log *log, int64_t to, kb_log_done *done, void *ctx, struct kb_now now) KW_CHECK;
/* Empties the log; the next offset is `start` (a follower far behind, snapshots). As kb_log_truncate otherwise. */
kw_err kb_log_reset(struct kb_log *log, int64_t start, kb_log_done *done, void *ctx, struct kb_now now) KW_CHECK;
/* DeleteRecords and log-start propagation: raises the log start; whole segments below go. Never above `hw`. */
kw_err kb_log_raise_start(struct kb_log *log, int64_t start, int64_t hw, struct kb_now now) KW_CHECK;
/* Retention by time and size, segment roll by time, index budget; called by the node's housekeeping timer. Returns segments deleted: none while a
 * pass of compaction is under way, so that it does not lose what it reads. */
/* Housekeeping has not come to its end: what is to leave waits for something that is on its way to the disk. */
bool kb_log_has_due(const struct kb_log *log, int64_t hw, struct kb_now now);
int32_t kb_log_housekeep(struct kb_log *log, int64_t hw, struct kb_now now);
void kb_log_expire_producers(struct kb_log *log, struct kb_now now); /* those silent for producer_expiration_ms */
bool kb_log_has_file(const struct kb_log *log, const struct kb_file *file); /* a segment's, open now */
/* A virtual clock was advanced (kb_node_advance): what is timed by the monotonic clock is as much older, or due as much sooner. */
void kb_log_env_advance(struct kb_log_env *env, int64_t ms);
void kb_log_advance(struct kb_log *log, int64_t ms);
/* All that was appended at or after this time lies there or above: by the wall clock, or by the monotonic one where this process has appended it. */
int64_t kb_log_since(const struct kb_log *log, int64_t wall_ms, int64_t mono_us);
int64_t kb_log_next_segment(const struct kb_log *log, int64_t offset); /* where the segment begins that follows the one of this offset; the end: none */
int64_t kb_log_segment_count(const struct kb_log *log);

#endif
