/* sender.h - the producer's half in loop context: sealed batches into requests, answers into outcomes.
 *
 * A turn (a core task: at most one at the end of a loop turn) takes what the accumulator sealed and what has lingered long enough, gives every broker with
 * room one request after another, and hands the outcomes on. Batches of a partition keep the order in which they were sealed, on retries too (CP-01).
 *
 * Idempotence (KIP-98, KIP-360): producer id, epoch and next sequence are the partition's own. A sequence, once given, goes with its batch in every attempt.
 * When a numbered batch is dropped with an unknown outcome, the next one just goes on: the broker accepts it if the dropped one was stored,
 * and answers OUT_OF_ORDER if not. Only then, and once nothing of the partition is in flight, it goes on at sequence 0 of its next epoch, which also
 * fences what may still come from the old one. So there is no waiting, and no doubt that costs a duplicate. One exception: a batch of which an attempt
 * went down with its connection keeps its number, since that attempt may be read late, together with the dropped one.
 *
 * Called by produce.c. Calls core (requests, metadata), accum, pid, wire. sender.c: turns and requests; answer.c: outcomes and retries; assign.c: metadata.
 */
#ifndef KC_SENDER_H
#define KC_SENDER_H

#include "accum.h"
#include "core/core.h"
#include "pid.h"

struct kc_produce_rq;
struct kc_slot {              /* a batch's place in a request */
    struct kc_batch *batch;   /* NULL: its outcome no longer depends on this request */
    struct kc_ptopic *topic;
    struct kc_produce_rq *rq;
    struct kw_blk *blk;       /* held from encode to done: the frame points into it */
    struct kw_uuid topic_id;
    int32_t index;
};

struct kc_pbroker {
    struct kw_list link;
    int32_t node;
    size_t flight;            /* requests given to the core */
    struct kw_list ready;     /* partitions with something to send, in turn */
};

struct kc_produce_rq {
    struct kc_request rq;
    struct kw_list link;      /* sender.flight */
    struct kc_sender *s;
    struct kc_pbroker *broker;
    size_t count;
    struct kc_slot slots[];
};

struct kc_sender {
    struct kc_core *core;
    struct kc_accum *a;
    const struct kc_settings *settings;
    struct kc_task task;
    struct kw_timer timer;
    struct kc_metadata_listener listener;
    struct kw_compressor *compressor;
    struct kw_arena arena;     /* of the message being encoded or decoded */
    struct kc_pid pid;
    struct kw_list topics;     /* kc_ptopic.link */
    struct kw_list brokers;
    struct kw_list parts;      /* kc_part.all_link: all that ever had a batch */
    struct kw_list parked;     /* partitions with work but no leader, id or patience */
    struct kw_list flight;     /* kc_produce_rq.link */
    struct kw_list done;       /* batches with an outcome, not yet handed on */
    size_t flight_count;
    struct kc_batch **picked;  /* scratch of the request being built */
    size_t picked_cap;
    int64_t deadline_us;       /* no batch here ends before it */
    int64_t retry_us;          /* no parked partition wants to go on before it */
    int64_t held_us;           /* a throttled broker can be used again */
    int64_t heartbeat_us;      /* while records keep coming: a linger period after the last batch */
    int64_t trim_us;           /* when the pool is trimmed if nothing happens */
    bool metadata_changed, unpark, stopping;
    bool refused;              /* some topic is */
    bool client_stopped, end_told; /* the client was closed first; its producers' applications know that no more reports come */
    void (*stopped)(struct kc_sender *s); /* after kc_sender_stop, once nothing is in flight: the end of a turn */
    uint64_t batches_sent, bytes_sent, retries; /* since the last delivery */
    kc_error *fatal;           /* under the accumulator's lock */
};

kw_err kc_sender_init(struct kc_sender *s, struct kc_core *core, struct kc_accum *a, const struct kc_settings *settings) KW_CHECK;
void kc_sender_deinit(struct kc_sender *s);  /* nothing is in flight */
void kc_sender_wake(struct kc_sender *s);    /* a turn at the end of this loop turn */
void kc_sender_turn(struct kc_sender *s);    /* that turn, at once */
/* Fails what has no outcome yet: KC_PURGE_QUEUED, KC_PURGE_IN_FLIGHT bits of `what`. */
void kc_sender_fail_all(struct kc_sender *s, int32_t what, kc_err err);
void kc_sender_fatal(struct kc_sender *s, kc_err err, const char *text); /* the producer is done for: every record fails with err */
void kc_sender_stop(struct kc_sender *s);    /* cancels requests; kc_sender_idle tells when the last is done */
bool kc_sender_idle(const struct kc_sender *s);

/* Between the files of the sender. */
void kc_sender_activate(struct kc_sender *s, struct kc_part *p); /* onto the ready list of its broker, or parked; nothing to send: neither */
void kc_sender_park(struct kc_sender *s, struct kc_part *p, int64_t until_us);
void kc_sender_take_topics(struct kc_sender *s, struct kw_list *fresh); /* from the accumulator, without its lock: their metadata is asked for */
void kc_sender_queue(struct kc_sender *s, struct kc_part *p, struct kc_batch *b); /* by serial */
bool kc_sender_is_missing(struct kc_sender *s, const struct kc_part *p); /* the topic is known, and has no such partition */
void kc_sender_fail_missing(struct kc_sender *s, struct kc_part *p);    /* what is older than the metadata that says so */
void kc_sender_topics_changed(struct kc_sender *s);             /* assign.c */
void kc_sender_look_at_refused(struct kc_sender *s);            /* assign.c */
bool kc_sender_knows_ids(struct kc_sender *s, int32_t node); /* answer.c: a broker that looks ids up, and tells of it in Produce answers */
void kc_sender_answer(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk); /* answer.c: done of a Produce request */
/* The batch has its outcome. `detail` (may be NULL) is copied. */
void kc_sender_complete(struct kc_sender *s, struct kc_batch *b, kc_err err, enum kc_outcome outcome, const char *detail);
enum kc_outcome kc_sender_outcome(const struct kc_batch *b);    /* of a batch that fails now without an answer */
void kc_sender_give_up(struct kc_sender *s, struct kc_batch *b); /* an attempt that may have reached the broker: no answer is waited for */
void kc_sender_detach(struct kc_sender *s, struct kc_batch *b); /* from its request and its partition's flight list */
kc_err kc_sender_split(struct kc_sender *s, struct kc_batch *b); /* split.c: two halves take its place in the queue */
void kc_sender_deliver(struct kc_sender *s);                    /* reports.c: hands `done` on */
static inline int32_t kc_sequence_add(int32_t sequence, uint32_t n) { /* 2^31 - 1 is followed by 0 (CP-04) */
    return (int32_t)(((uint32_t)sequence + n) & 0x7fffffffU);
}
/* A record read back from a batch; its views point into it. scratch grows. */
struct kc_rec_scratch {
    struct kw_header_view *headers;
    size_t cap;
};
kc_err kc_rec_read(struct kc_rec *r, const struct kw_record_view *v, struct kc_rec_scratch *scratch);

#endif
