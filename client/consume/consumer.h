/* consumer.h - the inside of a consumer with manual assignment: partitions, what was fetched for them, and who may touch what.
 *
 *   app thread:   assign, seek, pause, take (event by event)           part.c, fetched.c
 *   loop context: offset lookups, validation, fetch requests, answers   offsets.c, fetcher.c
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

struct kc_consume;
struct kc_fetcher;

/* One partition's piece of a Fetch answer. */
struct kc_chunk {
    struct kw_list link;      /* in its partition's queue */
    _Atomic uint32_t refs;    /* the queue's, and each event that shows bytes of it */
    struct kc_budget *budget; /* size is given back with the last reference */
    struct kw_blk *blk;       /* the answer */
    const uint8_t *p, *end;   /* records not yet taken */
    size_t size;
    int64_t high_watermark, last_stable;
    bool end_of_partition; /* the partition's end comes behind these records (or instead: p == end) */
    int64_t end_offset;
    struct kw_fetch_response_aborted_transaction *aborted; /* by first offset; read_committed */
    int32_t aborted_count, aborted_next;
    kc_error *error; /* instead of records */
    int64_t error_offset;
};

enum kc_part_state {
    KC_PART_LOOKUP,   /* the start offset is asked for, or about to be */
    KC_PART_VALIDATE, /* the leader epoch changed: OffsetForLeaderEpoch says whether the position still stands */
    KC_PART_FETCHING,
    KC_PART_FAILED, /* out of range and auto.offset.reset says error: waits for seek */
};

struct kc_part {
    struct kw_list link; /* in consume->parts, in order of delivery */
    struct kc_consume *consume;
    uint32_t refs; /* the assignment's, and requests in flight that name it (under the lock) */
    int32_t topic, partition;
    /* under the lock */
    bool assigned, paused;
    enum kc_part_state state;
    uint32_t generation;    /* grows with each seek or reset: answers for an older one are dropped */
    int64_t start;          /* what to look up: KC_OFFSET_BEGINNING, _END */
    int64_t position;       /* next to hand to the application; -1 not known */
    int64_t fetch_offset;   /* next to ask for */
    int32_t fetch_epoch;    /* leader epoch of the record before fetch_offset; -1 */
    int64_t eof_offset;     /* end last told; -1 */
    int64_t high_watermark; /* of the last answer; -1 */
    struct kw_list chunks;
    size_t queued_bytes;
    kc_err last_error;
    int64_t since_us;      /* of the present state or outstanding request */
    int64_t not_before_us; /* backoff after an error */
    bool back_off;         /* what was fetched did not stand: loop context is to wait before it fetches again */
    /* loop context */
    int32_t lookups; /* outstanding */
    int32_t errors_in_row;
    int32_t fetch_size;      /* grows for a batch that is larger than asked for (CC-15) */
    int32_t validated_epoch; /* leader epoch for which the position stands; -1 */
    int32_t replica;         /* preferred read replica (KIP-392), -1 the leader */
    int64_t replica_until_us;
    struct kc_fetcher *fetcher; /* whose session it is in; NULL */
    /* what the session knows of it */
    int64_t sent_offset;
    int32_t sent_epoch, sent_size;
    bool in_request; /* in the outstanding Fetch */
    uint32_t request_generation;
};

/* One broker's fetch session; at most one Fetch outstanding. Loop context. */
struct kc_fetcher {
    struct kw_list link; /* in consume->fetchers */
    struct kc_consume *consume;
    int32_t broker;
    struct kc_request request;
    bool outstanding;
    int64_t reserved; /* of the budget for the answer */
    int64_t not_before_us;
    int32_t session_id, session_epoch;
    bool by_id;             /* the session speaks topic ids (v13) */
    struct kc_part **parts; /* in the session, and in the request being built */
    size_t part_count, part_cap;
    struct kc_forgotten { /* to be taken out of the session */
        int32_t topic, partition;
    } * forgotten;
    size_t forgotten_count, forgotten_cap;
};

struct kc_offset_query; /* kc_consumer_offsets: one call */

struct kc_consume {
    struct kc_core *core;
    const struct kc_settings *settings;
    struct kc_lock lock;
    struct kw_list parts;             /* struct kc_part.link; the application's order of delivery */
    struct kw_map by_id;              /* topic << 32 | partition -> struct kc_part * */
    struct kw_compressor *compressor; /* of the polling thread */
    /* loop context */
    struct kw_list fetchers;
    struct kw_list queries; /* struct kc_offset_query.link */
    struct kw_list asks;    /* offset requests outstanding */
    struct kc_metadata_listener listener;
    struct kw_timer timer; /* backoffs and retries */
    bool started, stopped;
    bool told_stopped;    /* stopped, nothing outstanding any more, and kick was called for it */
    int32_t requests;     /* outstanding: all done before the core part may go */
    struct kw_map wanted; /* topics that metadata keeps known for us */
    /* towards the façade */
    void (*notify)(void *ctx); /* something to take; any thread, under the lock */
    void (*kick)(void *ctx);   /* call kc_consume_run in loop context soon; any thread, under the lock */
    void *ctx;
    _Atomic bool starved; /* a fetch was held back for room: kick when something is taken or freed */
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
size_t kc_consume_why(struct kc_consume *c, kc_why *out, size_t stride, size_t max, int64_t now_us);
struct kc_part *kc_part_find(struct kc_consume *c, int32_t topic, int32_t partition); /* under the lock */
void kc_part_ref(struct kc_part *p);                                                  /* under the lock */
void kc_part_unref(struct kc_part *p);                                                /* under the lock */
void kc_part_drop_chunks(struct kc_part *p);                                          /* under the lock */
void kc_part_restart(struct kc_part *p, int64_t offset, int64_t now_us);      /* under the lock: a new position, offset or special */
void kc_part_queue(struct kc_part *p, struct kc_chunk *k);                    /* under the lock */
void kc_part_queue_error(struct kc_part *p, kc_error *error, int64_t offset); /* under the lock; takes the error */
struct kc_chunk *kc_chunk_new(void);
void kc_chunk_unref(struct kc_chunk *k); /* any thread */

/* ---- the polling thread: fetched.c ---- */
/* The next event that is ready, or NULL. Marks its records as handed out. `owner` is referenced by the event. */
kc_event *kc_consume_take(struct kc_consume *c, kc_client *owner);
bool kc_consume_ready(struct kc_consume *c); /* whether take may give something */

/* One reference less. With the last one the event goes; what it held of the client is the caller's then (NULL: nothing). */
kc_client *kc_event_drop(kc_event *e);

struct kc_event {
    _Atomic uint32_t refs;
    int32_t kind, topic, partition;
    int64_t offset, high_watermark;
    size_t count;
    kc_view *views;
    const uint8_t *span;
    size_t span_size;
    struct kc_chunk *chunk;
    uint8_t *owned; /* decompressed or converted bytes behind span */
    size_t owned_size;
    struct kc_budget *budget;
    int32_t timestamp_type, leader_epoch;
    bool legacy; /* format v0/v1: no headers */
    kc_error *error;
    kc_client *client; /* held */
};

/* ---- loop context: fetcher.c, offsets.c ---- */
kw_err kc_consume_start(struct kc_consume *c);
void kc_consume_run(struct kc_consume *c);           /* looks at everything: after a kick, an answer, new metadata, a timer */
void kc_consume_stop(struct kc_consume *c);          /* cancels; no request is sent any more */
bool kc_consume_stopped(const struct kc_consume *c); /* stopped, and nothing is outstanding */
void kc_fetchers_run(struct kc_consume *c, int64_t now_us, int64_t *next_us);
void kc_fetchers_forget(struct kc_part *p); /* takes it out of its session */
void kc_fetchers_free(struct kc_consume *c);
void kc_offsets_run(struct kc_consume *c, int64_t now_us, int64_t *next_us);
int64_t kc_part_backoff(struct kc_part *p, int64_t now_us); /* counts an error; when to go on */

/* What a part's broker is now: the leader, or the preferred replica; -1 unknown. *epoch: the leader's. */
int32_t kc_part_broker(struct kc_part *p, int64_t now_us, bool leader_only, int32_t *epoch);

/* One kc_consumer_offsets: filled by the façade, given to the loop, comes back by done. */
struct kc_offset_item {
    kc_topic_partition tp; /* offset in: special or timestamp; out: the answer */
    bool settled, asked;
    int64_t not_before_us;
    int32_t errors;
};
struct kc_offset_query {
    struct kw_list link;
    struct kc_offset_item *items;
    size_t count, left;
    int64_t deadline_us;
    void (*done)(
        struct kc_offset_query *q); /* all settled, or the deadline passed (unsettled ones have err KC_TIMED_OUT or the last error) */
    void *ctx;
    uint32_t outstanding; /* requests */
    bool finished;
};
void kc_consume_query(struct kc_consume *c, struct kc_offset_query *q);
void kc_consume_query_cancel(struct kc_consume *c, struct kc_offset_query *q); /* done comes once nothing is outstanding */

#endif
