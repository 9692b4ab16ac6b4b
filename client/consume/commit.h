/* commit.h - a consumer's committed offsets: what is committed when, and what was committed. Exists only with group.id.
 *
 *   processed   what may be committed of each partition: kc_part.processed (EXPLICIT), or what poll has gone past (BY_POLL). part.c, commit_part.c
 *   slots       one a partition with something to commit: the newest offset asked for, by whomever. One OffsetCommit is outstanding at a time and
 *               takes all slots; what is asked for meanwhile waits in its slot for the next, so that an older commit never overtakes a newer
 *               one, and what is superseded before it was sent is not sent at all: it ends as the newer one does. commit.c
 *   calls       kc_consumer_commit: items, each of which ends once, when its slot's value is stored or refused, or at the call's deadline
 *   automatic   at its interval, before a revocation is acknowledged to the group, and at close. commit_auto.c
 *   fetches     OffsetFetch: for partitions in state KC_PART_COMMITTED, and for kc_consumer_committed. commit_fetch.c
 *
 * Membership. A manual assignment commits with generation -1. Of a group's member, group.c says who it is: kc_commits_member, and NULL while it is
 * nobody (from the answer to JoinGroup to that to SyncGroup, and while it has left). A commit that the coordinator refuses as somebody's that
 * the consumer no longer is (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS) is told to the group first; items whose
 * partition is still held afterwards, and was all the while, wait for the next kc_commits_member; the others end with KC_NOT_ASSIGNED.
 *
 * Errors. Retried until the deadline: no coordinator, one that loads, transport, the above. Told to the call, with the partition's own code: the
 * rest. An automatic commit that fails for good is told once by an ERROR event of the partition, and logged; it is tried again at the next interval.
 *
 * Locks. Loop context, but for what is marked; takes consume->lock. Callbacks (done, refused, drained) are called with no lock held, and never from
 * inside the call that began it, but for a call that has nothing to wait for.
 *
 * Called by handle_commit.c, handle_consumer.c, group*.c, tests. Calls core/coordinator.h, consumer.h. KIP-211, 320, 345, 447 (require_stable), 709.
 */
#ifndef KC_COMMIT_H
#define KC_COMMIT_H

#include "../core/coordinator.h"
#include "consumer.h"

#define KC_COMMIT_ITEMS_MAX 10000           /* in one request */
#define KC_COMMIT_BYTES_MAX (1024 * 1024)   /* of metadata in one request, but for one item */
#define KC_COMMIT_CALLS_MAX 100000          /* unfinished calls, and queries: more are refused with KC_QUEUE_FULL */

/* Who commits. The strings stay the group's, and stay put until the next kc_commits_member. */
struct kc_commit_member {
    int32_t generation;
    struct kw_str member_id;
    struct kw_str instance_id; /* null: not a static member */
};

/* One kc_consumer_commit. Filled by the façade, given to the loop, comes back by done. */
struct kc_commit_call;
struct kc_commit_item {
    struct kw_list link;     /* in its slot, by order of the calls */
    struct kc_commit_call *call;
    uint64_t order;
    kc_offset at;            /* in: what to commit (metadata borrowed until done); out: err */
    int32_t epoch;           /* at.leader_epoch, -1 where that means unknown: set by stamp and gather */
    uint64_t assignment;     /* kc_part.assignment of its partition when it was called; 0: not assigned then */
    uint32_t era;            /* kc_part.era likewise */
    bool settled;
    bool sent;               /* it may have taken effect, whatever err says */
};
struct kc_commit_call {
    struct kw_list link;
    struct kw_timer timer;
    struct kc_commits *commits;
    struct kc_commit_item *items;
    size_t count, left;
    int64_t deadline_us;
    struct kc_attempts *attempts;              /* out: what was tried in vain, a hold; NULL: nothing */
    void (*done)(struct kc_commit_call *call); /* all settled; free to release it */
    void *ctx;
};

/* One kc_consumer_committed, likewise. */
struct kc_committed_item {
    kc_offset at;     /* in: topic, partition; out: the rest. offset -1: none is committed */
    uint8_t *metadata; /* owned: what at.metadata shows; NULL */
    bool settled;
};
struct kc_committed_query {
    struct kw_list link;
    struct kw_timer timer; /* its deadline, or when it is to be asked again */
    struct kc_commits *commits;
    struct kc_committed_item *items;
    size_t count, left;
    int64_t deadline_us;
    struct kc_attempts *attempts; /* out, as in a call */
    void (*done)(struct kc_committed_query *q);
    void *ctx;
    /* commit_fetch.c's */
    bool asked, ending;
    int64_t not_before_us;
    int32_t errors;
};

/* Told once nothing of these partitions is to be committed any more. */
struct kc_commit_drain {
    struct kw_list link;
    uint64_t order; /* what was asked for up to then counts */
    int64_t deadline_us;
    struct kw_timer timer;
    struct kc_commits *commits;
    kc_err err;
    void (*done)(struct kc_commit_drain *d, kc_err err); /* KC_OK; KC_TIMED_OUT: the deadline passed first; KC_LOST; KC_CLOSED */
    void *ctx;
};

struct kc_commits;

struct kc_commits_options {
    struct kc_consume *consume;
    struct kw_str group_id; /* stays put */
    kc_processed_mode mode;
    /* The coordinator refused a commit of this member with ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or REBALANCE_IN_PROGRESS.
     * The group joins again or fails, and takes away the partitions that it has lost, before it returns. NULL: manual assignments only. Not
     * called for a member that kc_commits_member has replaced since. */
    void (*refused)(void *ctx, const struct kc_commit_member *as, kc_err err);
    void *ctx;
};

/* Makes it, and sets consume->commits. Any thread, before anything runs. */
kw_err kc_commits_new(const struct kc_commits_options *o, struct kc_commits **m) KW_CHECK;
void kc_commits_free(struct kc_commits *m); /* after kc_commits_stopped, or when the core is gone; NULL is fine */

void kc_commits_start(struct kc_commits *m); /* with kc_consume_start: opens the coordinator */
/* Cancels: every call and query ends with KC_CLOSED, every drain too; no request is sent any more. kc_consume_stop calls it. */
void kc_commits_stop(struct kc_commits *m);
bool kc_commits_stopped(const struct kc_commits *m); /* nothing is outstanding; kc_consume_run is called when that comes true */

/* The coordinator of group.id: the membership's requests are aimed at the same. NULL before kc_commits_start, or without memory then (each later
 * need tries again). */
struct kc_coordinator *kc_commits_coordinator(struct kc_commits *m);

/* ---- The group's part ---- */

/* A manual assignment until this is first called, and when member_id is empty. NULL: a subscription, and nobody now: commits wait. What waited
 * under an earlier membership goes on, by the rules above. */
void kc_commits_member(struct kc_commits *m, const struct kc_commit_member *member);
/* Under consume->lock, any thread, before a partition that the application gives up (a revocation's ack, unsubscribe, close; not one that is lost)
 * is taken out of the assignment: with enable.auto.commit what is processed of it is committed all the same, soon. Later calls for it are
 * refused with KC_NOT_ASSIGNED. Never fails. Does nothing without commits (p->consume->commits NULL). */
void kc_part_leave(struct kc_part *p);
/* Then, in loop context, before the group goes on: d->done comes once everything asked for so far has ended (kc_part_leave and calls), and, with
 * enable.auto.commit, what is processed of the partitions that are still there; or at the deadline. After a KC_TIMED_OUT what is left is
 * still tried, until its own limit. KC_LOST: there is no membership to commit with. Not from inside the call, unless it is stopped. No lock
 * held. */
void kc_commits_drain(struct kc_commits *m, struct kc_commit_drain *d);
void kc_commits_drain_cancel(struct kc_commits *m, struct kc_commit_drain *d); /* done is not called any more */

/* ---- The façade's part ---- */

/* Any thread: fills count items for all that is processed and not asked to be committed yet; *items from kw_malloc, NULL for none. KC_NO_MEMORY. */
kc_err kc_commits_gather(struct kc_commits *m, struct kc_commit_item **items, size_t *count);
/* Any thread, when the application calls: stamps each item with its partition's assignment, so that one that is taken away until the
 * loop comes round is noticed. */
void kc_commits_stamp(struct kc_commits *m, struct kc_commit_item *items, size_t count);
void kc_commits_call(struct kc_commits *m, struct kc_commit_call *call);        /* always ends in done, not from inside, unless it is stopped */
void kc_commits_call_cancel(struct kc_commits *m, struct kc_commit_call *call, kc_err err); /* done follows in the turn under way */
void kc_commits_query(struct kc_commits *m, struct kc_committed_query *q);      /* likewise */
void kc_commits_query_cancel(struct kc_commits *m, struct kc_committed_query *q, kc_err err);
/* ---- The consumer's part ---- */

/* In a turn, under consume->lock: asks for the committed offsets of those parts that are looked at and wait for it. */
void kc_commits_ask(struct kc_commits *m, int64_t now_us);

#endif
