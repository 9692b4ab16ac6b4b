/* consumer.h - the inside of a consumer with manual assignment: partitions, what was fetched for them, and who may touch what.
 *
 *   app thread:   assign, seek, pause, take (event by event)           part.c, fetched.c
 *   loop context: offset lookups, validation, fetch requests, answers   offsets.c, fetcher.c, fetch_answer.c
 *
 * Between the two stands `lock` (KC_RANK_ROLE) and the queue of chunks of each partition. A chunk is one partition's piece of one Fetch
 * answer, still in wire form; it is checked, decompressed and turned into views by the application's thread, batch by batch.
 *
 * Called by handle_consumer.c, tests/sim, tests/unit/client. Calls core/core.h, wire/batch, wire/message_set. KIP-227, 320, 392, 516, 951.
 */
#ifndef KC_CONSUME_H
#define KC_CONSUME_H

#include <kclient/consumer.h>

#include "../core/core.h"
#include "base/lock.h"
#include "kw_messages.h"
#include "wire/batch.h"
#include "wire/message_set.h"

#define KC_FETCH_VERSION_BY_ID 13 /* from there on Fetch names topics by their ids */

struct kc_consume;
struct kc_fetcher;
struct kc_commits; /* commit.h */
struct kc_group;   /* group.h */
struct kc_handover;
struct kc_tie;

/* The bytes of one Fetch answer, or a copy of the few that mattered; counted against the budget until nobody looks at them any more. */
struct kc_answer {
    _Atomic uint32_t refs;
    struct kw_blk *blk;
    struct kc_purse *purse; /* held */
    size_t size;
};

/* One partition's piece of a Fetch answer, an error to tell, or the news of the partition's end. */
struct kc_chunk {
    struct kw_list link;      /* in its partition's queue */
    _Atomic uint32_t refs;    /* the queue's, and each event that shows bytes of it */
    struct kc_answer *answer; /* NULL: no records */
    const uint8_t *p, *end;   /* records not yet taken */
    size_t size;
    int64_t high_watermark;
    bool end_of_partition; /* the partition's end comes behind these records (or instead: p == end) */
    int64_t end_offset;
    /* read_committed. Transactions that were aborted: those begun and not over at p, then, by first offset, those still to begin. */
    struct kw_fetch_response_aborted_transaction *aborted;
    int32_t aborted_active, aborted_next, aborted_count;
    kc_error *error; /* instead of records */
    int64_t error_offset, position_before;
};

enum { KC_BEGUN_FREE = -1, KC_BEGUN_UNKNOWN = -2 };

enum kc_part_state {
    KC_PART_COMMITTED, /* the group's committed offset is asked for, or about to be; only with group.id */
    KC_PART_LOOKUP,   /* the start offset is asked for, or about to be */
    KC_PART_VALIDATE, /* the leader epoch changed: OffsetForLeaderEpoch says whether the position still stands */
    KC_PART_FETCHING,
    KC_PART_FAILED, /* nothing that trying again could mend (no such offset and no policy, a batch too large): waits for seek */
};

struct kc_part {
    struct kw_list link;       /* in consume->parts */
    struct kw_list look_link;  /* loop context has something to do with it: in consume->look, ->turn, ->waiting, ->held, or a fetcher's ->after.
                                  In none: a fetch goes on for it, or an answer, new metadata or a call is waited for (kc_part_look) */
    struct kw_list ready_link; /* in consume->ready while there is something to take and it is not paused */
    struct kc_consume *consume;
    uint32_t refs; /* the assignment's, its session's, and those in flight that name it (under the lock) */
    int32_t topic, partition;
    /* under the lock */
    bool assigned, paused;
    bool listed; /* by the assign call under way, or what a rebalance is to take away */
    bool held;   /* a group gave it, and ASSIGNED is not acknowledged, or it is being revoked: nothing is fetched or delivered */
    bool added;  /* to its topic after this member joined: begins at its beginning, not as auto.offset.reset says (CC-13) */
    uint64_t given, revoked; /* kc_handover.number of what it is held for; 0 */
    enum kc_part_state state;
    uint64_t generation;    /* a new one with each seek or reset, of the whole consumer: answers for an older one are dropped */
    int64_t start;          /* what to look up: KC_OFFSET_BEGINNING, _END */
    int64_t position;       /* next to take; -1 not known. What the application sees: kc_part_position */
    int32_t position_epoch; /* leader epoch of the record before position; -1 */
    int64_t fetch_offset;   /* next to ask for */
    int32_t fetch_epoch;    /* leader epoch of the record before fetch_offset; -1 */
    int64_t eof_offset;     /* end last told; -1 */
    int64_t high_watermark; /* of the last answer; -1 */
    kc_event *kept;         /* taken, and not handed out from kept_at on */
    size_t kept_at;
    struct kw_list chunks;
    size_t queued_bytes;
    kc_err last_error;
    kc_err told;            /* the error last told to the application: not again until something went well */
    int64_t corrupt_at;     /* a batch that does not stand; -1 */
    int32_t corrupt_count;  /* how often it was met */
    int64_t since_us;       /* of the present state or outstanding request */
    int64_t not_before_us;  /* backoff after an error */
    bool back_off;          /* what was fetched did not stand: loop context is to wait before it fetches again */
    bool full;              /* not asked for since so much of it waits to be taken */
    bool answered;          /* since the last seek or reset */
    /* with group.id; under the lock (commit_part.c) */
    uint64_t assignment;    /* a new one each time that it becomes assigned, of the whole consumer */
    int64_t begun_at;       /* where it began, after a seek or reset: not committed before something past it is processed; KC_BEGUN_FREE: may be, as
                               nothing else is committed and auto.offset.reset chose it; KC_BEGUN_UNKNOWN: not looked up yet */
    int64_t processed;      /* EXPLICIT: up to where; -1 */
    int32_t processed_epoch;
    int64_t delivered;      /* end of the last event of records; -1: none since it began */
    int64_t submitted;      /* what was processed when last a commit of it was asked for; -1: nothing, or it failed */
    int64_t asked, acked;   /* last offset that was asked to be committed, and was, since it began; -1. Nothing below them is committed unasked */
    uint32_t era;           /* grows when it begins anew: commits from before say nothing of it */
    struct kw_list leave_link; /* kc_part_leave: in commits->leaving, with a reference */
    int64_t left_at;           /* what is to be committed of it, though it is gone */
    int32_t left_epoch;
    kc_err commit_told;            /* of automatic commits: the error last told; not again until one succeeded */
    uint64_t committed_generation; /* loop context: of its OffsetFetch under way; 0: none */
    /* loop context */
    bool wanted; /* its topic is kept known for it */
    struct kw_uuid topic_id;
    int64_t missing_since_us; /* its topic or partition is not there; 0 */
    int32_t lookups;          /* outstanding */
    uint64_t lookup_generation;
    bool lookup_validates;
    int32_t errors_in_row;
    int32_t fetch_size;      /* grows for a batch that is larger than asked for (CC-15) */
    int32_t validated_epoch; /* leader epoch for which the position stands; -1 */
    int32_t replica;         /* preferred read replica (KIP-392), -1 the leader */
    int64_t replica_until_us, replica_not_before_us;
    int64_t look_at_us;         /* of the look under way: when the next one is due */
    struct kc_fetcher *fetcher; /* whose session it is in; NULL */
    /* what the session knows of it */
    struct kw_list session_link; /* in fetcher->parts */
    struct kw_list asked_link;   /* in fetcher->changed, or, named in the request under way, ->asked */
    uint64_t first_request;      /* number of the fetcher's first request that covers it */
    int64_t sent_offset;
    int32_t sent_epoch, sent_size;
    uint64_t request_generation;
    int64_t empty_us; /* when the last answer came, if it had nothing; -1 */
    int32_t empties;  /* such answers in a row */
};

/* One broker's fetch session; at most one Fetch outstanding. Loop context.
 *
 * What wants data while a long poll without it is outstanding is asked for beside it: by a second fetcher of the broker that has no session,
 * does not wait, and uses the control connection, since a broker answers each connection in order. */
struct kc_fetcher {
    struct kw_list link; /* in consume->fetchers */
    struct kc_consume *consume;
    int32_t broker;
    bool beside;
    struct kc_request request;
    bool outstanding, encoded; /* until it is encoded, partitions may still join and leave */
    int64_t sent_us;
    int64_t reserved; /* of the budget for the answer */
    int64_t not_before_us;
    int32_t errors_in_row;
    uint64_t requests; /* encoded so far */
    int32_t session_id, session_epoch;
    bool broken;          /* the session is to begin anew after the outstanding request */
    bool by_id;           /* the session speaks topic ids (v13) */
    bool nameless;        /* has a topic without an id */
    struct kw_list parts; /* in the session, in the order in which they are asked for */
    size_t part_count;
    struct kw_list changed;       /* those that the next request has to name */
    struct kw_list asked;         /* those that the request under way names */
    struct kw_list after;         /* look_link: to be looked at when it is answered */
    struct kw_list *cursor;       /* what the answer is expected to name next */
    int64_t no_replicas_until_us; /* not to be sent to replicas before */
    struct kc_forgotten { /* to be taken out of the session */
        int32_t topic, partition;
        bool sent; /* with the outstanding request */
    } * forgotten;
    size_t forgotten_count, forgotten_cap;
};

struct kc_offset_query; /* kc_consumer_offsets: one call */

struct kc_consume {
    struct kc_core *core;
    const struct kc_settings *settings;
    struct kc_lock lock;
    struct kw_list parts;             /* struct kc_part.link */
    struct kw_list ready;             /* struct kc_part.ready_link, by turn */
    struct kw_list look, turn;        /* struct kc_part.look_link: to be looked at; being looked at */
    struct kw_list waiting, held;     /* likewise: not before waiting_until_us; until less is queued */
    int64_t waiting_until_us;
    bool look_all; /* at every partition: new metadata, or the end */
    struct kc_purse *purse;           /* what this consumer holds of the memory budget */
    struct kw_map by_id;              /* topic << 32 | partition -> struct kc_part * */
    struct kw_compressor *compressor; /* of the polling thread */
    uint64_t generations;             /* given out; under the lock */
    _Atomic uint32_t changes;         /* grows when something that is being handed out may no longer be wanted */
    /* One record at a time. The polling thread's, but for `part` (under the lock): what kc_part_position looks at. */
    struct kc_one {
        kc_event *e;
        size_t at; /* the record last handed out */
        uint32_t changes;
        struct kc_part *part; /* held; NULL: sought or taken away meanwhile */
        _Atomic int64_t next;   /* offset of the next one */
        _Atomic int64_t passed; /* that of the one at hand: what is before it is processed */
        int64_t from;           /* under the lock: where the event begins, and the leader epoch of the record before; -1 */
        int32_t epoch_before;
    } one;
    /* With a subscription (else NULL): group.h. Set once, under the lock */
    _Atomic(struct kc_group *) group;
    struct kc_tie *tie;
    struct kw_list news;        /* struct kc_handover.news_link: for poll, before anything else */
    struct kc_handover *handed; /* given by poll, and not acknowledged; held */
    uint64_t handovers;         /* numbers given out */
    _Atomic uint32_t polls;     /* grows with each poll; odd: one waits */
    _Atomic bool poll_wanted;   /* the member waits for a poll: kick */
    _Atomic int64_t session_by_us; /* monotonic: from then on its partitions may be somebody else's (kc_group_lapsed); KW_NEVER: no member */
    int32_t (*intern)(void *ctx, const char *name, size_t len); /* NULL: kc_metadata_intern, nobody else does meanwhile */
    /* With group.id (else NULL): commit.h. */
    struct kc_commits *commits;
    bool explicit_processed; /* KC_PROCESSED_EXPLICIT */
    uint64_t assignments; /* given out; under the lock */
    struct kc_hand { /* the event that poll gave last and has not gone past: under the lock. poll_one's is `one` */
        struct kc_part *part; /* held; NULL: none, or sought or taken away meanwhile */
        int64_t from;         /* what is processed of it, without this event */
        int32_t epoch;
    } hand;
    /* loop context */
    struct kw_list fetchers;
    enum kc_channel channel; /* of its sessions; KC_CHANNEL_CONTROL: none taken yet */
    struct kw_list queries; /* struct kc_offset_query.link */
    struct kw_list asks;    /* offset requests outstanding */
    struct kc_metadata_listener listener;
    struct kw_timer timer; /* backoffs and retries */
    bool started, stopped;
    bool closed;       /* the client was: nothing can be sent any more */
    bool told_stopped; /* stopped, nothing outstanding any more, and kick was called for it */
    bool short_of_memory; /* something could not be done now: look again soon */
    int32_t large_batches; /* partitions whose fetch_size has grown */
    int32_t requests;     /* outstanding: all done before the core part may go */
    uint64_t looks;       /* at partitions, so far: tests see by it that an answer costs what is in it */
    /* towards the façade */
    void (*notify)(void *ctx); /* something to take; any thread, under the lock */
    void (*kick)(void *ctx);   /* call kc_consume_run in loop context soon; any thread, under the lock */
    void *ctx;
    _Atomic int64_t queued_bytes;
};

kw_err kc_consume_init(struct kc_consume *c, struct kc_core *core, const struct kc_settings *s, void (*notify)(void *),
                       void (*kick)(void *), void *ctx) KW_CHECK;
void kc_consume_deinit(struct kc_consume *c); /* after kc_consume_stopped, or when the core is gone */

/* ---- any thread: part.c ---- */
kc_err kc_consume_assign(struct kc_consume *c, const kc_topic_partition *parts, size_t stride, size_t n, int64_t now_us);
void kc_consume_seek(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n, int64_t now_us);
void kc_consume_pause(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n, bool pause);
void kc_consume_position(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n);
void kc_consume_lag(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n);
/* The polling thread: poll is called again: in mode BY_POLL what it gave before counts as processed. */
void kc_consume_passed(struct kc_consume *c);
void kc_hand_drop(struct kc_consume *c); /* under the lock */
/* kc_consumer_processed; may: the mode allows it. */
void kc_consume_processed(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n, bool may);
/* Under the lock: its position is now a new one that the application, the group or auto.offset.reset chose: nothing is processed of what comes
 * from there. An offset, or KC_BEGUN_.... */
void kc_part_anew(struct kc_part *p, int64_t begun_at);
/* Under the lock. What is processed of it and may be committed; -1: nothing. *epoch: the leader epoch of the record before; -1. */
int64_t kc_part_processed(const struct kc_part *p, int32_t *epoch);
/* Under the lock: what assign does with each partition. */
kc_err kc_part_make(struct kc_consume *c, int32_t topic, int32_t partition, struct kw_list *fresh); /* to its end; KC_NO_MEMORY */
void kc_parts_unmake(struct kc_consume *c, struct kw_list *fresh);                   /* all of them */
void kc_part_begin(struct kc_part *p, const kc_topic_partition *tp, int64_t now_us); /* where tp says, from anew */
void kc_part_still(struct kc_part *p); /* drops what was fetched, and fetches nothing: its position stays what the application has seen */
void kc_part_remove(struct kc_part *p); /* no longer assigned: loop context takes it out of everything */
int64_t kc_part_reset_offset(const struct kc_part *p); /* auto.offset.reset: KC_OFFSET_BEGINNING, _END; KC_OFFSET_RESET: none */
bool kc_part_is_start(const struct kc_consume *c, int64_t offset); /* an offset, or a special one */
static inline uint64_t kc_part_key(int32_t topic, int32_t partition) { /* in maps */
    return (uint64_t)(uint32_t)topic << 32 | (uint32_t)partition;
}
struct kc_part *kc_part_find(struct kc_consume *c, int32_t topic, int32_t partition); /* under the lock */
void kc_part_ref(struct kc_part *p);                                                  /* under the lock */
void kc_part_unref(struct kc_part *p);                                                /* under the lock */
void kc_part_look(struct kc_part *p); /* under the lock: loop context is to look at it at its next run */
/* Under the lock. When nothing can be taken, and what was fetched for paused partitions leaves no room for others: drops that. */
bool kc_consume_drop_paused(struct kc_consume *c);
bool kc_consume_may_queue(const struct kc_consume *c); /* whether more may be fetched, as far as what waits to be taken goes */
int64_t kc_part_position(const struct kc_part *p); /* under the lock: the next offset that the application will see; -1 not known */
void kc_part_fetch_size(struct kc_part *p, int32_t size); /* under the lock; 0: the usual */
void kc_part_show(struct kc_part *p);              /* under the lock: what it has to take changed, or may be taken now */
void kc_part_restart(struct kc_part *p, int64_t offset, int32_t epoch,
                     int64_t now_us);              /* under the lock: a new position, offset or special; drops what was fetched */
void kc_part_queue(struct kc_part *p, struct kc_chunk *k); /* under the lock */
/* An error for the application, once: the same code again only after p->told was cleared. Under the lock. */
void kc_part_tell(struct kc_part *p, kc_err code, int64_t offset, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* An automatic commit of it failed for good: an error for the application, with what was to be committed. Under the lock. */
void kc_part_tell_commit(struct kc_part *p, kc_err code, int64_t offset, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Records from `end` up to before `position`, the application's, were lost with a leader epoch; more: what follows from it. Under the lock. */
void kc_part_tell_lost(struct kc_part *p, int64_t end, int64_t position, int32_t epoch, const char *more);
struct kc_chunk *kc_chunk_new(void);
void kc_chunk_unref(struct kc_chunk *k); /* any thread */

/* ---- the polling thread: fetched.c ---- */
/* KC_OK: the next event; its records count as handed out, and it holds nothing of the client yet. KC_BUSY: nothing now. KC_NO_MEMORY. */
kc_err kc_consume_take(struct kc_consume *c, kc_event **event);
/* poll_one beyond the event at hand: KC_OK: the next record is c->one.at of c->one.e, or *event is something else; else as take. */
kc_err kc_consume_one(struct kc_consume *c, kc_event **event);
void kc_consume_one_drop(struct kc_consume *c); /* the event at hand goes back: what is left of it comes first next time */
bool kc_consume_ready(struct kc_consume *c);    /* whether take may give something */

/* One reference less. With the last one the event goes; what it held of the client is the caller's then (NULL: nothing). */
kc_client *kc_event_drop(kc_event *e);

struct kc_event {
    _Atomic uint32_t refs;
    int32_t kind, topic, partition;
    int64_t offset, high_watermark, position_before;
    size_t count;
    kc_view *views;
    const uint8_t *span;
    size_t span_size;
    kc_event *parent; /* whose views and bytes these are */
    struct kc_chunk *chunk;
    uint8_t *owned; /* decompressed or converted bytes behind span */
    size_t owned_size;
    struct kc_purse *purse; /* held, where the owned bytes count */
    int32_t timestamp_type, leader_epoch;
    bool legacy; /* format v0/v1: no headers */
    kc_error *error;
    kc_client *client; /* held */
    struct kc_handover *handover; /* of ASSIGNED, REVOKED, LOST; a reference */
    bool in_child;                /* freed after a fork: acknowledges nothing */
};

/* "": the client has no such topic. */
static inline struct kw_str kc_topic_name(struct kc_core *core, int32_t topic) {
    const struct kc_topic_meta *t = kc_metadata_topic(core, topic);
    return kw_str_of(t ? t->name : "");
}

/* The polling thread alone adds. */
static inline void kc_polls_add(struct kc_consume *c, uint32_t n) {
    atomic_store_explicit(&c->polls, atomic_load_explicit(&c->polls, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline int64_t kc_one_next(const struct kc_one *one) {
    return one->at + 1 < one->e->count ? one->e->views[one->at + 1].offset : one->e->offset;
}

/* ---- loop context: consumer.c, fetcher.c, fetch_answer.c, offsets.c, why.c ---- */
void kc_consume_start(struct kc_consume *c);
void kc_consume_run(struct kc_consume *c);           /* looks at everything: after a kick, an answer, new metadata, a timer */
void kc_consume_stop(struct kc_consume *c);          /* cancels; no request is sent any more */
bool kc_consume_stopped(const struct kc_consume *c); /* stopped, and nothing is outstanding */
size_t kc_consume_why(struct kc_consume *c, kc_why *out, size_t stride, size_t max);
void kc_fetchers_run(struct kc_consume *c, int64_t now_us, int64_t *next_us);
void kc_fetchers_forget(struct kc_part *p); /* takes it out of its session */
void kc_fetchers_place(struct kc_consume *c, int64_t now_us); /* what is looked at goes into the sessions that it belongs to */
void kc_fetchers_free(struct kc_consume *c);
void kc_fetch_answered(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk); /* fetch_answer.c */
void kc_session_reset(struct kc_fetcher *f);
void kc_offsets_settle(struct kc_consume *c, int64_t now_us, int64_t *next_us); /* gives the lock away in between */
void kc_offsets_ask(struct kc_consume *c, bool validate, int64_t now_us, int64_t *next_us); /* for what is looked at, and for queries */
int64_t kc_part_backoff(struct kc_part *p, int64_t now_us); /* counts an error; when to go on */
int64_t kc_backoff_us(struct kc_consume *c, int32_t errors); /* after so many errors in a row */

/* Whether the request under way covers it; once it is answered, whether it did. */
static inline bool kc_part_covered(const struct kc_part *p) {
    return p->fetcher && p->first_request <= p->fetcher->requests;
}
static inline bool kc_part_in_request(const struct kc_part *p) {
    return p->fetcher && p->fetcher->outstanding && p->fetcher->encoded && kc_part_covered(p);
}

/* What a part's broker is now: the leader, or the preferred replica; -1 unknown. *epoch: the leader's. */
int32_t kc_part_broker(struct kc_part *p, int64_t now_us, bool leader_only, int32_t *epoch);
/* No leader is known: asks for metadata, and tells the application when its topic or partition stays missing. */
void kc_part_unled(struct kc_part *p, int64_t now_us);

/* One kc_consumer_offsets: filled by the façade, given to the loop, comes back by done. */
struct kc_offset_item {
    kc_topic_partition tp; /* offset in: special or timestamp; out: the answer */
    bool settled, asked, wanted;
    int64_t not_before_us;
    int32_t errors;
};
struct kc_offset_query {
    struct kw_list link;
    struct kc_offset_item *items;
    size_t count, left;
    int64_t deadline_us;
    bool cancelled;
    void (*done)(struct kc_offset_query *q); /* all settled, cancelled, or the deadline passed: those not settled have an err. The limit is
                                                kept whatever brokers do: what is still outstanding is detached */
    void *ctx;
};
void kc_consume_query(struct kc_consume *c, struct kc_offset_query *q);
void kc_consume_query_cancel(struct kc_consume *c, struct kc_offset_query *q);

#endif
