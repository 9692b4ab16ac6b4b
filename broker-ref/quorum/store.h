/* store.h - the metadata log `__cluster_metadata-0`, its snapshots, quorum-state and meta.properties: append, commit, replay into the
 * image.
 *
 * A node alone (no voters are configured) has the records of the first day: LeaderChange control record of each epoch, registration of itself,
 * feature levels; epoch raised and (epoch, vote) stored before anything is appended. Calls log/ with keep_offsets off, sync before commit.
 * Where voters are configured, be it this node only, the log is a replica: raft*.c elects, fetches, and moves the high watermark, up to
 * which records are committed; the broker's registration and the partitions' leaders are then the controller's to write.
 */
#ifndef KB_STORE_H
#define KB_STORE_H

#include "../node.h"
#include "image.h"

struct kb_store;
struct kb_store_options {
    struct kb_log_env *env; /* disk, timers, logger */
    struct kb_node *node;   /* whose links it opens; needed where there are other voters */
    const struct kb_config *config;
    struct kw_rng *rng;
    struct kb_image *image; /* initialised, empty */
    uint16_t port;          /* what a listener on port 0 got; registered instead of 0 */
    bool clean;             /* the last stop was clean (the node found and removed the marker): no recovery scan */
    bool unclean;           /* the machine went down since the last run: what was written and not synced may be lost */
    /* After records up to image->offset were applied: the node creates, changes, deletes partitions. */
    void (*applied)(void *ctx, struct kb_now now);
    /* The store is loaded, this node registered and unfenced, the image current (KW_OK), or it failed (kb_store_failure), then or later.
     * Of several voters: the image has reached what the leader had committed; registering is then the node's own business. A node that is no
     * broker is ready once loaded. */
    void (*ready)(void *ctx, kw_err err, struct kb_now now);
    /* This node became the active controller: the first record of its epoch (kb_store_epoch) is committed and applied. Or it ceased to be:
     * what it appended and did not see applied may or may not come to be. Told before anything of another leader is applied. In a quorum of one
     * told once, before ready. May be NULL. */
    void (*role)(void *ctx, bool leads, struct kb_now now);
    /* The disk was full: records at or above `from` were taken back and will never be committed. The node tells the controller. */
    void (*refused)(void *ctx, int64_t from, struct kb_now now);
    void *ctx;
};
kw_err kb_store_new(const struct kb_store_options *o, struct kb_store **s) KW_CHECK;
kw_err kb_store_start(struct kb_store *s, struct kb_now now) KW_CHECK;
void kb_store_stop(struct kb_store *s, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now);
/* Of several voters, where a stop begins: a leader hands over, and this node never stands again. done comes once, in a later turn, within a second
 * or so; then the stop may go on. */
void kb_store_resign(struct kb_store *s, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now);
void kb_store_free(struct kb_store *s);                 /* once the shell has no request of it left */
const char *kb_store_failure(const struct kb_store *s); /* what, where, why, what to do; NULL: none */

/* Appends records as one batch (atomic); *last_offset is theirs. Only while this node leads. KW_EIO: the log has failed, or another leads;
 * KW_ELIMIT: too much for one batch. Committed when synced by a majority of the voters; then applied, then kb_controller's changes answer. */
struct kb_store_record {
    int16_t type, version;
    const void *message;
};
kw_err kb_store_append(struct kb_store *s, const struct kb_store_record *records, size_t count, int64_t *last_offset,
                       struct kb_now now) KW_CHECK;
int64_t kb_store_end(const struct kb_store *s); /* the offset of the record that is appended next */
void kb_store_flush(struct kb_store *s, struct kb_now now); /* end of turn: what was appended goes to the disk, and its sync is asked for */
const char *
kb_store_cluster_id(const struct kb_store *s); /* meta.properties: mostly 22 characters, any text where another tool formatted the folder */
struct kw_uuid kb_store_directory_id(const struct kb_store *s);
int32_t kb_store_epoch(const struct kb_store *s);
/* Of this node's registration; -1 none yet. Of several voters the lifecycle sets it with the controller's answer. */
int64_t kb_store_broker_epoch(const struct kb_store *s);
void kb_store_set_broker_epoch(struct kb_store *s, int64_t broker_epoch);
/* The quorum's leader as far as it is known here, -1: none; and the epoch (that of kb_store_epoch). s may be NULL: none. */
int32_t kb_store_leader(const struct kb_store *s, int32_t *epoch);
/* Of a node alone: partitions that it leads as their last known leader, though the machine went down. */
int32_t kb_store_last_known_leaders(const struct kb_store *s);
bool kb_store_leads(const struct kb_store *s);     /* this node is the active controller: see role */
bool kb_store_is_single(const struct kb_store *s); /* a cluster of this node alone: no voters are configured */
bool kb_store_is_loaded(const struct kb_store *s); /* requests of the quorum can be served */
bool kb_store_has_file(const struct kb_store *s, const struct kb_file *file); /* a segment's of the metadata log */
bool kb_store_has_written(const struct kb_store *s); /* since the start: until then the log is as it was found */

#endif
