/* index.h - the ids of one partition's records: where a record with a given id lies (message.guid.dedup). A small LSM over offset ranges:
 * a table in memory for the newest, sorted run files in the log's folder for the rest, each with a filter in memory.
 *
 * It is a pure function of the log, and a cache of its replay: all in [from, end) that carries an id is in it, unless it is older than the
 * window. Whatever appends to the log or cuts it tells the index; what it has missed it reads from the log (guids.c). An entry counts while
 * log start <= offset < log end and its run is alive: the run's newest append is less than the window ago, by this process's monotonic
 * clock, and, across a restart, by the wall clock as it stood when the process started.
 *
 * Called by guids.c (life, catching up, cutting, retention) and by guid/dedup.c, api/lookup_guid.c (finding). Calls table, run, merge, the disk.
 */
#ifndef KB_GUID_INDEX_H
#define KB_GUID_INDEX_H

#include "../event.h"
#include "../log/log.h"

#define KB_GUID_SIZE 16
#define KB_GUID_SIZES 48

struct kb_guid_entry { /* as it is stored: 24 bytes, the offset relative to its run's */
    uint8_t id[KB_GUID_SIZE];
    int64_t offset;
    uint32_t payload; /* CRC-32C of key and value, their lengths included: the same payload or not, without a read of the log */
};

struct kb_guid_env { /* of a node; outlives its indexes and their requests */
    struct kb_disk *disk;
    const struct kb_logger *logger;
    struct kw_rng *rng;     /* keys of the hashes */
    bool ephemeral;         /* nothing is synced */
    struct kb_now started;  /* the process, by both clocks: what happens to the wall clock after it makes nothing older */
    int64_t memory_max;     /* tables of all indexes (guid.index.memory.bytes, 64 MiB): over it the largest is written out first, at twice nothing is
                               added before something was */
    int64_t memory_used, memory_frozen; /* frozen: of what is about to be written */
    int32_t open_files_max, open_files; /* runs, all indexes: least recently used go first (256) */
    struct kw_list indexes, file_lru;   /* the indexes' own */
    struct kw_list open_by_size[KB_GUID_SIZES]; /* indexes that have an open table, by the power of two that its memory reaches: the largest is at hand */
};
/* What the wall clock says now, or would say, had nobody set it since the process started: the earlier, and the later of them. What is stamped with the
 * later and judged by the earlier is never taken for older than it is. */
static inline int64_t kb_guid_wall_unset(const struct kb_guid_env *env, struct kb_now now) {
    return env->started.wall_ms + (now.mono_us - env->started.mono_us) / 1000;
}
static inline int64_t kb_guid_wall_early(const struct kb_guid_env *env, struct kb_now now) { return KW_MIN(now.wall_ms, kb_guid_wall_unset(env, now)); }
static inline int64_t kb_guid_wall_late(const struct kb_guid_env *env, struct kb_now now) { return KW_MAX(now.wall_ms, kb_guid_wall_unset(env, now)); }
void kb_guid_env_init(struct kb_guid_env *env, struct kb_disk *disk, const struct kb_logger *logger, struct kw_rng *rng);

struct kb_guid_index;
struct kb_guid_open {
    struct kb_guid_env *env;
    struct kb_log *log;     /* open; outlives the index */
    int64_t window_ms;
    int64_t trust_to;       /* of runs nothing above it counts, and is read again: after the machine went down the recovery point, else the log's
                               end. Of a run whose last offset has another leader epoch in the log than it was written under nothing counts */
    /* Once, in a later turn, unless the index is freed before. What the folder held and could not be read is dropped, and said. What does not count
     * is masked durably by then: only then may the log be appended to. */
    void (*done)(void *ctx, struct kb_guid_index *index, kw_err err, struct kb_now now);
    /* A file could not be read: its run is dropped with all above it, the index ends lower and has to catch up. In a turn of the disk's. May be NULL. */
    void (*went_back)(void *ctx, struct kb_guid_index *index, struct kb_now now);
    void *ctx;
};
kw_err kb_guid_open(const struct kb_guid_open *o, struct kb_guid_index **index, struct kb_now now) KW_CHECK;
/* Operations in flight finish behind it, and keep the log's folder where it is until then; tables that were not written are read from the log again.
 * Finds under way were cancelled before. */
void kb_guid_free(struct kb_guid_index *index);
/* The same, and then the files go; gone (may be NULL) in a later turn, once. */
kw_err kb_guid_remove(struct kb_guid_index *index, void (*gone)(void *ctx, struct kb_now now), void *ctx) KW_CHECK;
/* Writes what is in memory (which waits for the log to be written, so kb_guid_work is called while it is); done once, in a later turn, also when that
 * failed: then the next start reads it from the log. After a clean stop a start reads nothing of the log. */
kw_err kb_guid_shutdown(struct kb_guid_index *index, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now) KW_CHECK;
void kb_guid_window_set(struct kb_guid_index *index, int64_t window_ms);

int64_t kb_guid_end(const struct kb_guid_index *index);   /* all below was looked at */
/* A virtual clock was advanced (kb_node_advance): all that is known is as much older, and the process began as much earlier by the wall clock. */
void kb_guid_env_advance(struct kb_guid_env *env, int64_t ms);
/* All below `to` that was not looked at is gone, or older than the window: it need not be. An index without a run begins there. */
void kb_guid_skip(struct kb_guid_index *index, int64_t to);
/* The lowest offset whose record a live run (or the table) may name; INT64_MAX: none. Retention by time and compaction stay below it. */
int64_t kb_guid_hold_from(const struct kb_guid_index *index);

/* So many ids in [from, to) are known; of a run that lies there in part, in proportion. */
int64_t kb_guid_count(const struct kb_guid_index *index, int64_t from, int64_t to);

/* What was appended: ids in offset order, then the batch's end. `base` below the index's end: what was there before has been taken back
 * (a full disk), and is dropped here. `base` above it: KW_EINVAL, it must catch up. KW_ENOMEM: nothing has changed, and the index stays
 * behind until it has caught up. */
kw_err kb_guid_add(struct kb_guid_index *index, int64_t base, int64_t end, const struct kb_guid_entry *v, size_t n, struct kb_now now) KW_CHECK;
/* The log will be cut to end at `to` (INT64_MIN: emptied): masks of runs that reach beyond are durable before done comes; only then may the log be
 * cut. 1: at once, done is not called. */
int32_t kb_guid_cut(struct kb_guid_index *index, int64_t to, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now);
/* End of turn, and now and then (housekeeping): tables that are full or old are written, runs merged, dead ones removed. */
void kb_guid_work(struct kb_guid_index *index, struct kb_now now);

/* In memory only: what was added lately, whatever has been added since the last find among it. */
bool kb_guid_probe(const struct kb_guid_index *index, const uint8_t id[KB_GUID_SIZE], struct kb_guid_entry *out);
/* Everywhere. The answers are those of the moment of the return, or of the call of done, with whatever was added, cut or deleted meanwhile: who decides
 * and adds in that same step needs no probe. */
struct kb_guid_find {
    struct kb_guid_index *index;
    const uint8_t *ids; /* the first of them; live until done */
    size_t stride;      /* from one to the next: KB_GUID_SIZE, or sizeof(struct kb_guid_entry) */
    size_t count;
    struct kb_guid_entry *found; /* out: `count` of them; offset -1: nowhere. Of several copies (a topic that was not always deduped) the lowest
                                    offset from the log's start on */
    size_t hits;                 /* out: so many of them are somewhere */
    kw_err err;                  /* out: KW_EIO: a run could not be read. It is dropped, the index goes back and has to catch up. KW_ENOMEM */
    void (*done)(struct kb_guid_find *f, struct kb_now now);
    void *ctx;
    void *priv;
};
int32_t kb_guid_find(struct kb_guid_find *f, struct kb_now now); /* 1: answered now; 0: done will be called in a later turn; < 0: kw_err */
void kb_guid_find_cancel(struct kb_guid_find *f);               /* done will not be called; of one that was answered: nothing */

struct kb_guid_stats {
    int64_t from, end, entries, runs, disk_bytes, memory_bytes, window_ms;
    /* Counted since it was opened. forgotten: ids that went with their records within the window; of a run of which a part went, in proportion.
     * finds, hits: ids that were looked for, and met. */
    int64_t finds, run_reads, hits, flushes, merges, rotten, forgotten;
};
void kb_guid_stats(const struct kb_guid_index *index, struct kb_guid_stats *out);

#endif
