/* store_priv.h - the store itself, as store*.c, snapshot.c and raft*.c see it. */
#ifndef KB_STORE_PRIV_H
#define KB_STORE_PRIV_H

#include "election.h"
#include "meta_batch.h"
#include "store.h"

#define KB_CLUSTER_ID_MAX 100
#define KB_SNAPSHOT_SIZE_MAX (1ll << 30)

/* What is on the disk before the log is opened: read, checked and where needed written by one job on a lane's thread. The job touches
 * nothing else; texts of trouble come back in `why`. */
struct kb_store_load {
    struct kb_disk_req req;
    bool ephemeral;
    /* in */
    char *dir, *meta_dir;
    int32_t node_id;
    bool single; /* no voters are configured: a new folder gets its id at once, and each start is an epoch */
    int32_t voters[KB_VOTERS_MAX];
    size_t voter_count;
    bool rejoin;
    char new_cluster_id[KB_CLUSTER_ID_MAX + 1]; /* should the cluster be new */
    char cluster_id[KB_CLUSTER_ID_MAX + 1];     /* out: the folder's; "": it is not known yet */
    struct kw_uuid directory_id;                /* in: the new one, should the folder be new; out: the folder's */
    /* out */
    bool fresh;        /* the folder was empty */
    int32_t epoch;     /* single: of this start: above the stored one, and stored itself */
    bool has_vote;     /* others: quorum-state was there, and says: */
    struct kb_election_state vote;
    uint8_t *snapshot; /* newest valid one, NULL: none */
    size_t snapshot_size;
    int64_t snapshot_end, previous_end; /* exclusive end offsets of it and of the next older valid one; -1: none */
    int32_t snapshot_epoch, previous_epoch;
    char corrupt[48]; /* the newest snapshot found corrupt; "" none */
    char why[400];    /* not empty: the node must not serve */
};

struct kb_pending_batch { /* appended, not yet committed */
    struct kw_list link;
    struct kw_blk *blk;
    const uint8_t *data; /* in blk */
    size_t size;
    int64_t base, end;
};

struct kb_whole_file { /* being replaced by another of its name */
    struct kb_disk_req req;
    struct kb_iov iov;
};

struct kb_store_snapshot { /* one being written */
    struct kb_whole_file file;
    struct kb_disk_req unlink;
    bool writing, unlinking;
    struct kw_out bytes;
    char *path, *old_path;
    int64_t end;
    int32_t epoch;
};

struct kb_store {
    struct kb_store_options o;
    enum { KB_STORE_NEW, KB_STORE_LOADING, KB_STORE_STARTING, KB_STORE_READY, KB_STORE_STOPPING, KB_STORE_STOPPED, KB_STORE_FAILED } state;
    bool ready_told, has_written;
    bool single; /* no voters are configured */
    char failure[480];
    struct kb_store_load load;
    struct kb_log *log;
    struct kb_log_owner owner;
    struct kb_log_config log_config;
    bool opening;
    struct kb_replay replay;
    struct kb_read read;
    bool reading;
    int64_t replay_to; /* how far the log is being read into the image */
    void (*replayed)(struct kb_store *s, struct kb_now now);
    struct kw_list pending;
    size_t pending_bytes;
    bool catching_up, news; /* what is committed is read from the log; something was applied and not told */
    struct kb_raft *raft;   /* NULL: a node alone */
    struct kb_image bootstrap; /* features that formatting asked for */
    struct kw_timer sync_again;
    bool sync_unset; /* there was no memory for that timer */
    bool dirty; /* appended since the last flush */
    int32_t epoch;
    int64_t broker_epoch;
    struct kw_uuid incarnation;
    int32_t unclean_leads, leaderless; /* partitions that this node leads, or does not, after the machine went down */
    struct kb_whole_file vote; /* a second write of quorum-state, when the log knew a higher epoch */
    struct kw_out vote_bytes;
    char *vote_path;
    struct kb_disk_req name; /* the sync of the folder that holds the data folder */
    char *name_path;
    bool naming;
    /* snapshots */
    struct kb_store_snapshot snap;
    int64_t snapshot_end, snapshot_previous; /* ends of the newest and of the one before it; -1 none */
    int32_t snapshot_epoch, snapshot_previous_epoch;
    int64_t bytes_since_snapshot;
    void (*stop_done)(void *ctx, struct kb_now now);
    void *stop_ctx;
};

/* Says it, keeps it, tells the node once. Everything after is refused. */
void kb_store_fail(struct kb_store *s, struct kb_now now, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* store_load.c: the job, then the replay of snapshot and log; calls kb_store_boot at its end. */
kw_err kb_store_load_start(struct kb_store *s) KW_CHECK;
/* store_files.c: meta.properties and quorum-state as text. */
kw_err kb_store_properties_write(struct kw_out *out, int32_t node_id, const char *cluster_id, struct kw_uuid directory_id) KW_CHECK;
kw_err kb_store_properties_read(struct kb_store_load *l, const uint8_t *p, size_t n) KW_CHECK; /* KW_EINVAL: why is filled */
kw_err kb_store_vote_write(struct kw_out *out, int32_t node_id, int32_t epoch) KW_CHECK;
kw_err kb_store_vote_read(const uint8_t *p, size_t n, int32_t *epoch) KW_CHECK;
/* Of several voters. Reading gives the voters that the file names, at most KB_VOTERS_MAX; more is KW_EDECODE. */
kw_err kb_store_state_write(struct kw_out *out, const struct kb_election_state *st, const int32_t *voters, size_t count) KW_CHECK;
kw_err kb_store_state_read(const uint8_t *p, size_t n, struct kb_election_state *st, int32_t voters[KB_VOTERS_MAX], size_t *count) KW_CHECK;
/* store_boot.c: the first batches of an epoch: all that a quorum of one needs, or each for itself. */
void kb_store_boot(struct kb_store *s, struct kb_now now);
kw_err kb_store_boot_leader_change(struct kb_store *s, struct kb_meta_batch *b, const int32_t *voters, const bool *granted, size_t count,
                                   struct kb_now now) KW_CHECK;
kw_err kb_store_boot_abort(struct kb_store *s, struct kb_meta_batch *b, struct kb_now now) KW_CHECK;
kw_err kb_store_boot_features(struct kb_store *s, struct kb_meta_batch *b, struct kb_now now) KW_CHECK;
/* store_files.c: a file replaced whole, durable once done is called (but for an ephemeral node's). Path and bytes live until then. */
void kb_store_write_file(const struct kb_store *s, struct kb_whole_file *f, const char *path, const struct kw_out *bytes,
                         void (*done)(struct kb_disk_req *q, struct kb_now now), void *ctx);
/* store_replay.c: reads the log into the image, from where it is up to the offset `to`; then calls `then`, maybe before it returns. Damage
 * fails the store. */
void kb_store_replay(struct kb_store *s, int64_t to, void (*then)(struct kb_store *s, struct kb_now now), struct kb_now now);
/* store.c */
kw_err kb_store_append_batch(struct kb_store *s, struct kb_meta_batch *b, bool control, struct kb_now now) KW_CHECK;
void kb_store_committed(struct kb_store *s, struct kb_now now);
void kb_store_drop_pending(struct kb_store *s, int64_t to); /* those that end above it */
/* n bytes of whole batches in blk, just appended from offset `from` on. Without memory they are read from the log again. */
void kb_store_note_pending(struct kb_store *s, struct kw_blk *blk, const uint8_t *p, size_t n, int64_t from);
void kb_store_told(struct kb_store *s, struct kb_now now); /* the image moved: tells who must know */
/* The image is now `with`, which is emptied; what follows begins at `end`. KW_ENOMEM: the store is to fail. */
kw_err kb_store_replace_image(struct kb_store *s, struct kb_image *with, int64_t end) KW_CHECK;
/* snapshot.c, store_snapshot.c */
#define KB_SNAPSHOT_NAME_SIZE 48
void kb_snapshot_name(int64_t end, int32_t epoch, char name[KB_SNAPSHOT_NAME_SIZE]);
bool kb_snapshot_name_parse(const char *name, int64_t *end, int32_t *epoch);
/* Into an empty image. Header first, footer last, every batch whole and with its checksum, offsets without gaps; on failure the image is
 * not to be used. */
kw_err kb_snapshot_load(const uint8_t *p, size_t n, int64_t end, int32_t epoch, int32_t node_id, struct kw_compressor *compressor,
                        struct kb_image *image, char *why, size_t why_size) KW_CHECK;
bool kb_snapshot_whole(const uint8_t *p, size_t n); /* the same without the records' meaning */
kw_err kb_snapshot_encode(const struct kb_image *image, int64_t last_timestamp, int64_t wall_ms, struct kw_out *out) KW_CHECK;
char *kb_store_snapshot_path(const struct kb_store *s, int64_t end, int32_t epoch); /* kw_malloc; NULL: no memory */
void kb_store_snapshot_maybe(struct kb_store *s, struct kb_now now);
void kb_store_snapshot_deinit(struct kb_store *s);

#endif
