/* coordinator_priv.h - what the coordinator's files share: offices, what they are storing. */
#ifndef KB_COORDINATOR_PRIV_H
#define KB_COORDINATOR_PRIV_H

#include "coordinator.h"
#include "group_record.h"
#include "log/log.h"
#include "node_priv.h"
#include "replica/purgatory.h"
#include "wire/kerror.h"

struct kb_shard {        /* the office of one partition */
    struct kw_list link; /* in coordinator->touched */
    struct kb_coordinator *c;
    struct kb_partition *p; /* NULL: not held */
    int32_t index, epoch;   /* the leader epoch of the office */
    enum {
        KB_SHARD_NONE,
        KB_SHARD_LOADING,  /* reads its log */
        KB_SHARD_CATCHING, /* has read it; waits until all of that is committed */
        KB_SHARD_SERVING,
        KB_SHARD_FAILED, /* its log cannot be read */
    } state;
    struct kw_map groups; /* id -> struct kb_group_entry */
    struct kw_list tidy;  /* struct kb_group_entry.link */
    struct kb_waiter waiter;
    struct kb_wait_hook hook;
    /* loading */
    struct kb_read read;
    bool reading;
    int64_t load_next, load_end, load_began_us;
    /* storing */
    struct kb_group_batch batch;
    struct kw_list unsent, sent; /* struct kb_group_write: in the batch; in the log, in its order */
};

/* Records that are on their way into the log, and what hangs on them. */
struct kb_group_write {
    struct kw_list link;
    struct kb_shard *shard;
    int32_t first, count; /* in the batch */
    int64_t offset;       /* of the first, once sent */
    int64_t deadline_us;
    bool answered;
    /* Once: KE_NONE, stored; or why it isn't known to be, as members are told. It may still come to be stored. */
    void (*answer)(struct kb_group_write *w, int16_t code, struct kb_now now);
    /* Once, last: stored for good at `offset`, or (false) never, or no longer this node's matter. Frees it. */
    void (*settle)(struct kb_group_write *w, bool stored, struct kb_now now);
};

struct kb_coordinator {
    struct kb_node *node;
    struct kb_group_env env;
    struct kw_map shards; /* partition -> struct kb_shard */
    struct kw_list touched;
    struct kw_timer expiry;
    int64_t retention_ms, expiry_every_us, commit_timeout_us;
    bool stopped;
};

/* coordinator.c */
void kb_shard_touch(struct kb_shard *s);
void kb_shard_leave(struct kb_shard *s, struct kb_now now);
struct kb_group_entry *kb_shard_group(struct kb_shard *s, struct kw_str id, bool make); /* NULL: none, or out of memory */
void kb_shard_drop_group(struct kb_group_entry *e, int16_t code);
void kb_group_entry_tidy(struct kb_group_entry *e); /* is looked at at the end of the turn */
void kb_shard_serve(struct kb_shard *s, struct kb_now now);

/* coordinator_load.c */
void kb_shard_load(struct kb_shard *s, struct kb_now now);
void kb_shard_load_stop(struct kb_shard *s);

/* coordinator_store.c */
/* The records are in the batch already, from `first` on: w waits for them. */
void kb_shard_write(struct kb_shard *s, struct kb_group_write *w, int32_t first, struct kb_now now);
int16_t kb_shard_room(struct kb_shard *s); /* whether anything can be stored now */
/* Records are added to the batch, by `add`, the first as its record `first`. RECORD_LIST_TOO_LARGE: they are more than a batch may hold. */
int16_t kb_shard_put(struct kb_shard *s, kw_err (*add)(struct kb_group_batch *b, void *ctx), void *ctx, int32_t *first, struct kb_now now);
void kb_shard_flush(struct kb_shard *s, struct kb_now now);
void kb_shard_progress(struct kb_shard *s, struct kb_now now); /* what was sent: committed by now, or lost? */
void kb_shard_fail_writes(struct kb_shard *s, int16_t code, struct kb_now now);
void kb_coordinator_store_group(struct kb_group *g, uint64_t number, struct kb_now now); /* env->store */

/* coordinator_expire.c */
void kb_coordinator_expire(struct kb_coordinator *c, struct kb_now now);

#endif
