/* commit_priv.h - what the files of commit*.c share: the struct, its slots, and who settles what. Loop context but for what is marked. */
#ifndef KC_COMMIT_PRIV_H
#define KC_COMMIT_PRIV_H

#include "commit.h"

/* One partition with something to commit. Lives while somebody waits for it, or a request names it. */
struct kc_slot {
    struct kw_list link;  /* in commits->pending or ->sent */
    struct kw_list items; /* kc_commit_item.link, by order: those not settled */
    int32_t topic, partition;
    struct kw_uuid topic_id; /* of the request under way */
    /* the newest value */
    uint64_t order, first;   /* of it; of the oldest one that has not ended */
    uint64_t assignment;     /* kc_part.assignment; 0: not assigned (manual only) */
    uint32_t era;
    uint64_t stamp;          /* membership under which it was asked for, or found to stand still */
    int64_t offset;
    int32_t epoch;
    uint8_t *metadata;
    int32_t metadata_len;
    bool automatic;          /* wanted by no item alone */
    /* the request under way */
    bool encoded;            /* its value is in it: the following are that */
    uint64_t sent_order, sent_assignment;
    uint32_t sent_era;
    int64_t sent_offset;
    bool answered;
    kc_err err;              /* of the answer */
};

struct kc_commits {
    struct kc_consume *consume;
    struct kc_core *core;
    const struct kc_settings *settings;
    struct kw_str group_id;
    void (*refused)(void *ctx, const struct kc_commit_member *as, kc_err err);
    void *ctx;
    struct kc_coordinator *coordinator;
    bool started, stopped;
    bool closed; /* the client was: nothing can be sent any more */
    bool prune_due; /* among what waits something may no longer stand, or be wanted */
    bool told_stopped;
    /* membership */
    bool managed;                   /* a subscription's */
    bool somebody;                  /* member is who we are */
    struct kc_commit_member member;
    uint64_t stamp, refused_stamp;  /* of the membership; of one that was refused: nothing is sent under it any more */
    /* commits */
    struct kw_map slots;            /* topic << 32 | partition -> kc_slot */
    struct kw_list pending, sent;   /* kc_slot.link */
    struct kc_request rq;
    struct kc_slot **batch;         /* of the request under way, by topic and partition; NULL: none */
    size_t batch_count;
    bool outstanding, encoded;
    uint64_t sent_stamp;
    int64_t not_before_us;
    int32_t errors;                 /* requests in a row that failed */
    struct kc_attempts *attempts;   /* of those */
    uint64_t orders;
    struct kw_list calls, ended;    /* kc_commit_call.link: with something to wait for; done is due */
    size_t call_count;
    struct kw_list drains;
    struct kc_task run;             /* the end of a turn: what ended is told, what waits is sent */
    struct kw_timer timer;          /* backoff, memory */
    struct kw_timer auto_timer;
    struct kw_list leaving;         /* kc_part.leave_link; under the lock */
    _Atomic bool left;              /* kc_part_leave: look at leaving */
    kc_err told;                    /* of automatic commits, of the group as a whole: not again until one succeeded */
    /* fetches */
    struct kw_list fetches;         /* outstanding */
    size_t fetch_count;
    struct kw_list queries, queries_ended;
    size_t query_count;
    bool short_of_memory;
};

/* commit.c */
void kc_commits_look(struct kc_commits *m); /* defers the end of the turn */
/* Something to commit. KC_NO_MEMORY: nothing changed. item NULL: automatic. */
struct kc_value {
    int32_t topic, partition;
    int64_t offset;
    int32_t epoch;
    uint64_t assignment;
    uint32_t era;
    kc_bytes metadata;
};
kc_err kc_slot_put(struct kc_commits *m, const struct kc_value *v, struct kc_commit_item *item);
/* Under the lock: whether automatic commits have something to do for it. */
bool kc_part_to_commit(const struct kc_part *p, int64_t processed);
int64_t kc_commits_backoff(struct kc_commits *m, int32_t errors); /* when to try again */

/* commit_auto.c */
void kc_commits_auto_init(struct kc_commits *m);
void kc_commits_auto_start(struct kc_commits *m);
void kc_commits_leave_run(struct kc_commits *m);                 /* what partitions left behind into slots */
void kc_commits_auto_run(struct kc_commits *m);                  /* what is processed of all partitions into slots */
/* How a value ended: what is processed may be committed again if that failed. tell: nobody but the application as a whole is to hear of the error. */
void kc_commits_auto_ended(struct kc_commits *m, const struct kc_slot *s, kc_err err, bool tell);
void kc_commits_drains_run(struct kc_commits *m);

/* commit_fetch.c */
void kc_commits_queries_run(struct kc_commits *m);
void kc_commits_fetches_stop(struct kc_commits *m);
bool kc_commits_fetches_stopped(const struct kc_commits *m);

#endif
