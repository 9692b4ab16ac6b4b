/* accum.h - the producer's thread-safe half: records go from the caller's memory straight into the open batch of their partition, in final
 * wire form, under one short lock. The other half (sender.h) takes the batches in loop context.
 *
 * One lock a producer, not one a partition: the critical section is an encode (tens of ns), and the queue's limits and the choice of a partition are
 * shared by all senders anyway. Two threads sending 100 byte records at full speed spend about as much CPU a record as one
 * (tests/bench/bench_producer.c -t 2).
 *
 * The loop is woken at most once a batch or linger period: `look_us` says when it will look by itself, `hungry` whether it would send a sealed batch at once.
 *
 * Called by handle_producer.c (send), produce.c, sender.c, reports.c, assign.c. Calls pool, partitioner, guid, wire/batch. C2, KIP-794.
 */
#ifndef KC_ACCUM_H
#define KC_ACCUM_H

#include <kclient/producer.h>

#include "base/rng.h"
#include "core/config.h"
#include "core/event.h"
#include "guid.h"
#include "base/lock.h"
#include "partitioner.h"
#include "pool.h"
#include "wire/batch.h"

#define KC_PARTITION_MAX 200000 /* an explicit partition above it cannot be meant: KC_INVALID */
#define KC_BATCH_FIRST_SIZE ((size_t)16 << 10) /* first block of a partition's first batch; later ones start at the size that they usually reach */
#define KC_NO_SEQUENCE (-1)

/* What is kept for a record beside its bytes in the batch: 16 bytes. */
struct kc_item {
    uint64_t opaque;    /* the application's; with KC_ITEM_WAITER a struct kc_report_waiter * */
    uint32_t size;      /* key + value bytes, and the flags below */
    int32_t ts_delta;   /* against the batch's base timestamp */
};
#define KC_ITEM_SIZE_MAX 0x1fffffffU
#define KC_ITEM_SILENT 0x80000000U  /* reported only when it fails */
#define KC_ITEM_WAITER 0x40000000U  /* a thread waits for it: no report in the containers */
#define KC_ITEM_PLACED 0x20000000U  /* staged with its partition given, which ts_delta holds */

/* Somebody in kc_producer_send_wait. */
struct kc_report_waiter {
    kc_report report;
    kc_error *error;     /* owned by whoever waits */
    uint64_t opaque;     /* the application's */
    _Atomic bool done;
};

/* Records of a batch that the broker knew by their ids; their first copies have consecutive offsets. */
struct kc_dup {
    uint32_t index, count;
    int64_t offset;            /* of the first; -1: not known any more */
    uint32_t flags;            /* enum kc_report_flag, besides KC_REPORT_DUPLICATE */
};

enum kc_batch_state { KC_BATCH_OPEN, KC_BATCH_SEALED, KC_BATCH_IN_FLIGHT, KC_BATCH_DONE };

struct kc_part;
struct kc_ptopic;
struct kc_slot;
struct kc_batch {
    struct kw_list link;       /* staged, sealed, a partition's queue or flight, done, reports: one at a time */
    struct kc_part *part;
    struct kw_blk *blk;        /* the batch from its first header byte; NULL once done */
    uint32_t len, room, limit; /* with the header: used, the next record fits up to here without growing, and at all */
    uint32_t crc, crc_to;      /* CRC-32C of what is behind the header, up to there: taken while it is in the cache */
    uint32_t count, item_cap, waiters, silent;
    struct kc_item *items;
    size_t items_bytes;        /* of the block behind items */
    int64_t base_timestamp, max_timestamp;
    int64_t opened_us, deadline_us, timeout_us;
    int64_t bytes;             /* counted against the queue */
    uint64_t gen;              /* which flush waits for it */
    uint8_t state;             /* enum kc_batch_state */
    bool keyed;                /* staged: has records whose partition waits for the count, or is given */
    bool ids;                  /* has records with an id */
    bool hurried;              /* staged: has records that do not linger */
    /* the sender's */
    bool packed;               /* compressed, or found not to shrink */
    bool final;                /* header and CRC are set: these are the bytes, on every attempt (CP-02) */
    bool maybe;                /* an attempt may have reached the log and was not answered */
    bool loose;                /* an attempt was given up without an answer: a broker may read it later than what was sent after it */
    bool split;                /* came from a batch that was too large */
    uint8_t codec;
    int16_t producer_epoch;
    int32_t base_sequence;     /* KC_NO_SEQUENCE: none given */
    int64_t producer_id;
    int64_t loose_us;          /* since when, for the last of them */
    uint64_t serial;           /* order within the partition */
    uint64_t number;           /* counts the batches that were given a sequence */
    uint32_t tries, bumps;
    struct kc_slot *slot;      /* its place in the request under way */
    struct kc_attempts *attempts;
    /* the outcome */
    kc_err err;
    int8_t outcome;            /* enum kc_outcome */
    bool duplicate;            /* all of it, somewhere: DUPLICATE_SEQUENCE_NUMBER */
    bool deduped;              /* the topic looks ids up */
    bool unplaced;             /* … but where the records are could not be kept: no memory */
    struct kc_dup *dups;       /* records that were stored before, ascending; may be NULL */
    uint32_t dup_count;
    int64_t base_offset, log_append_ms; /* -1: unknown; CreateTime */
    int32_t bad_index;         /* KIP-467: the record at fault, -1 none */
    char *detail;              /* the broker's words; may be NULL */
};

/* One partition, or a topic's staging area (index -1) for records whose partition is not known yet. Lives as long as the producer. */
struct kc_part {
    struct kc_ptopic *topic;
    int32_t index;
    /* under the lock */
    struct kc_batch *open;
    struct kw_list open_link;  /* in accum.open or .due while `open` is set */
    uint32_t size_hint, count_hint; /* what its batches reach */
    int64_t size_limit;        /* a broker found larger ones too large */
    uint32_t waiting_bytes;    /* sealed or open or in flight: for adaptive partitioning */
    /* the sender's, loop context */
    struct kw_list link;       /* ready list of its broker, or parked; else unlinked */
    struct kw_list all_link;   /* of all partitions that the sender knows */
    struct kw_list queue;      /* batches to send, by serial */
    struct kw_list flight;     /* batches in requests */
    uint32_t flight_count;
    int32_t leader;            /* node where it was put on the ready list */
    bool due;                  /* its open batch has lingered long enough */
    bool resequence;           /* its sequence is broken: when nothing is in flight, go on in a new epoch */
    bool need_new_id;          /* … and by a new producer id */
    int64_t retry_at_us;
    uint64_t next_serial, next_number;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t next_sequence;
};

struct kc_ptopic {
    int32_t topic;             /* the client's number */
    struct kw_list link;       /* accum.new_topics, then the sender's list */
    /* under the lock */
    int32_t count;             /* of partitions, as senders see it; 0: not known yet, records are staged */
    struct kc_part **parts;
    int32_t part_cap;
    int32_t *available;        /* partitions with a leader */
    int32_t available_count;
    struct kc_sticky sticky;
    struct kc_part staging;
    struct kw_list staged;     /* sealed batches of staging */
    bool staging_used;         /* from then on, until the count is known, records with a partition given queue up there too */
    uint32_t *queued;          /* scratch for adaptive choices: part_cap of them */
    /* the sender's */
    uint32_t generation;       /* of the metadata last seen */
    struct kw_uuid id;
    bool listed, refused;      /* refused: the brokers will not have it (its name, our rights) */
    bool plain_told;           /* that it does not look ids up */
};

/* Waits for room in the queue. Granted in order of arrival, each with its place reserved, so that none can be overtaken forever. */
struct kc_space_waiter {
    struct kw_list link;
    int64_t bytes;
    _Atomic bool granted;
};

/* A flush: done once every batch that was there when it began has its outcome. */
struct kc_flush {
    struct kw_list link;
    uint64_t gen;
    size_t pending;
    void (*done)(struct kc_flush *f); /* loop context, no lock held; may free it */
};

struct kc_accum_calls { /* to the handle; any thread, the producer's lock may be held */
    struct kc_now (*clock)(void *ctx);  /* precise; once a batch */
    void (*wake)(void *ctx);            /* run the sender's turn */
    void (*signal)(void *ctx);          /* a waiter's condition came true */
    void (*ready)(void *ctx, int32_t kind); /* KC_READY_REPORTS, KC_READY_SPACE */
};

struct kc_accum {
    struct kc_lock lock;       /* KC_RANK_ROLE: everything below */
    const struct kc_settings *settings;
    struct kc_pool pool;
    struct kw_rng rng;
    struct kc_guid guid;
    struct kc_accum_calls calls;
    void *ctx;
    bool null_hashes;          /* records without a key hash to a partition too */
    struct kc_now now;         /* what records without a timestamp get: at most one tick of the coarse clock old */
    struct kc_ptopic **topics; /* by number */
    int32_t topic_cap;
    struct kw_list new_topics;
    /* the queue */
    int64_t records, bytes, records_max, bytes_max;
    uint32_t crc_piece; /* a batch's CRC is taken in pieces of so many bytes */
    bool starved;              /* the client's memory budget refused a block: wait for a release */
    bool space_armed;          /* a send was refused: say when there is room again */
    struct kw_list space_waiters;
    /* batches */
    struct kw_list open;       /* partitions with an open batch, oldest first */
    struct kw_list due;        /* … whose linger is over, as the sender knows */
    struct kw_list sealed;     /* for the sender, in order of sealing */
    struct kc_batch *spare;    /* unused structs */
    size_t spare_count;
    int64_t look_us;           /* when the sender looks by itself */
    bool hungry;               /* it would send a sealed batch at once */
    bool pressed;              /* since the sender last looked a send was refused, or one came that does not linger: linger is over for all */
    int64_t deadline_us;       /* no batch opened since the sender last looked ends before it */
    uint32_t flushing;         /* linger is over for all while flushes run */
    bool closed;
    kc_err fatal;
    /* outcomes */
    struct kw_list reports;    /* done batches with something to tell */
    size_t report_batches;
    uint64_t gen;
    size_t gen_pending;        /* batches of the present generation without an outcome */
    struct kw_list flushes;
    kc_producer_stats stats;
};

/* One record on its way in: what a caller's form (kc_record, kc_flat) was turned into, before any lock. */
struct kc_rec {
    int32_t topic, partition;  /* -1: to be chosen */
    uint32_t flags;
    struct kw_bytes key, value;
    struct kw_header_view *headers; /* room for one more behind them, for the id */
    size_t header_count;
    bool has_timestamp, has_hash, has_guid, reserved;
    int64_t timestamp_ms, timeout_us;
    uint64_t opaque;
    uint32_t hash;
    uint8_t guid[KC_GUID_SIZE];
    uint32_t payload;          /* key + value */
    size_t tail;               /* wire bytes behind the offset delta */
    struct kc_report_waiter *waiter;
};

kw_err kc_accum_init(struct kc_accum *a, const struct kc_settings *s, struct kc_budget *budget, uint64_t seed, struct kc_now now,
                     const struct kc_accum_calls *calls, void *ctx) KW_CHECK;
void kc_accum_deinit(struct kc_accum *a); /* drops whatever is left */

/* Completes a rec: id, hash, sizes. KC_TOO_LARGE when the record can never be sent; KC_BAD_GUID. No lock. */
kc_err kc_accum_prepare(struct kc_accum *a, struct kc_rec *r);
/* Takes the record. now: NULL to use the last one. urgent: seal the batch at once. *wake: the sender wants a turn. KC_QUEUE_FULL, KC_CLOSED,
 * KC_NO_MEMORY, KC_INVALID (no such topic number: after kc_accum_add_topic), the fatal error's code. */
kc_err kc_accum_put(struct kc_accum *a, struct kc_rec *r, const struct kc_now *now, bool urgent, bool *wake);
/* Several under one hold of the lock: stops at the first that is refused; returns how many were taken. */
size_t kc_accum_put_many(struct kc_accum *a, struct kc_rec *recs, size_t n, const struct kc_now *now, bool *wake, kc_err *err);
kc_err kc_accum_add_topic(struct kc_accum *a, int32_t topic); /* the caller knows that the number is good */
int32_t kc_accum_partition_count(struct kc_accum *a, int32_t topic); /* 0: not known yet; -1: the topic is not known here */

/* Room. A caller that got KC_QUEUE_FULL may wait: add, wait for granted, put with rec.reserved; or give up: remove gives a granted place back. */
void kc_accum_wait_add(struct kc_accum *a, struct kc_space_waiter *w, const struct kc_rec *r, bool *wake);
void kc_accum_wait_remove(struct kc_accum *a, struct kc_space_waiter *w);
bool kc_accum_is_over(struct kc_accum *a); /* closed, or a fatal error */
void kc_accum_tell_over(struct kc_accum *a); /* after it became so: whoever waits for room, or was refused, learns of it */
bool kc_accum_is_ended(struct kc_accum *a); /* closed, and every record has its outcome */
bool kc_accum_wait_over(struct kc_accum *a, struct kc_space_waiter *w); /* granted, or there is nothing to wait for any more */
void kc_accum_arm_space(struct kc_accum *a); /* a send was refused: KC_READY_SPACE once there is room */
void kc_accum_release(struct kc_accum *a, int64_t records, int64_t bytes); /* with the lock: gives back, grants */
void kc_accum_poke(struct kc_accum *a); /* with the lock: memory came back; grants where that was what was missing */

/* For the sender, with the lock. */
struct kc_batch *kc_accum_seal(struct kc_accum *a, struct kc_part *p); /* the open batch, if any, goes to sealed (staged) */
void kc_accum_seal_all(struct kc_accum *a);
struct kc_part *kc_accum_make_part(struct kc_ptopic *t, int32_t index);
static inline struct kc_part *kc_accum_part(struct kc_accum *a, struct kc_ptopic *t, int32_t index) { /* made when missing; NULL: no memory */
    (void)a;
    return KW_LIKELY(index < t->part_cap && t->parts[index]) ? t->parts[index] : kc_accum_make_part(t, index);
}
/* Whether an id decides: nothing else does. Sets the rec's hash. */
static inline void kc_rec_by_id(struct kc_rec *r) {
    if (r->partition >= 0 || (r->has_hash && r->key.len >= 0)) return;
    r->hash = kc_partitioner_hash_id(r->guid);
    r->has_hash = true;
}
int32_t kc_accum_choose(struct kc_accum *a, struct kc_ptopic *t, int32_t count); /* a partition, of count, for records without a key */
/* A staged record into its partition, outside of the queue's limits; `from` gives its age, deadline and generation. */
kc_err kc_accum_append(struct kc_accum *a, struct kc_part *p, struct kc_rec *r, const struct kc_batch *from);

int64_t kc_accum_cost(const struct kc_batch *b, uint32_t count); /* what the first records of an uncompressed batch count */
/* Generations (kc_flush). A new batch belongs to the present one. */
void kc_accum_join_gen(struct kc_accum *a, struct kc_batch *b, uint64_t gen); /* to an older one, if it is older */
void kc_accum_leave_gen(struct kc_accum *a, struct kc_batch *b); /* it ends without an outcome of its own: others took its records */
size_t *kc_accum_gen(struct kc_accum *a, uint64_t gen);          /* its count of batches */

/* Batches, with or without the lock as they are owned. */
struct kc_batch *kc_batch_new(struct kc_accum *a, struct kc_part *p); /* takes the lock's spare list: with the lock */
void kc_batch_free(struct kc_accum *a, struct kc_batch *b);           /* with the lock; its blk was released */
int64_t kc_batch_size(const struct kc_batch *b);

#endif
