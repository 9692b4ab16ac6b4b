/** @file consumer.h
 * Consuming, by manual assignment or as a member of a group. One poll, events in order. KIP-227 (fetch sessions), KIP-320 (truncation
 * noticed), KIP-392 (rack), KIP-345 (static members), KIP-429 (cooperative rebalancing).
 *
 * Only poll and poll_one exclude each other (KC_BUSY); everything else may be called from any thread meanwhile.
 */
#ifndef KCLIENT_CONSUMER_H
#define KCLIENT_CONSUMER_H

#include "kclient.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Takes records in, assigned by hand or by its group. Of kc_consumer_new; kc_consumer_free. */
typedef struct kc_consumer kc_consumer;

/** What counts as processed, and may so be committed automatically: fixed at creation, since the two must not mix. BY_POLL: a poll marks what
 * the poll before it gave (never a close, free or wake; a poll that ends with an error or nothing marks it too). EXPLICIT: what
 * kc_consumer_processed is told. Without group.id it makes no difference. */
typedef int32_t kc_processed_mode;
enum { KC_PROCESSED_BY_POLL = 1, KC_PROCESSED_EXPLICIT = 2 };

/** Creates a consumer on a client, with nothing assigned. The configuration may be NULL (all from the client's), and stays the caller's. KC_CONFIG,
 * KC_INVALID (the mode). */
KC_API kc_err kc_consumer_new(kc_client *c, const kc_config *config, kc_processed_mode mode, kc_consumer **consumer, kc_error **error);

/** Special offsets for assign and seek. */
enum {
    KC_OFFSET_BEGINNING = -2,
    KC_OFFSET_END = -1,
    KC_OFFSET_RESET = -1001,     /**< as auto.offset.reset says */
    KC_OFFSET_COMMITTED = -1000, /**< where the group has committed; where it has not: KC_OFFSET_RESET. KC_INVALID without group.id */
};

/** Replaces the assignment. parts[].offset is where each starts (an offset, or a special one). Partitions kept from before go on where they
 * are when their offset is KC_OFFSET_RESET or KC_OFFSET_COMMITTED. n 0: none. leader_epoch, where it is greater than 0, is that of the record
 * before the offset: a log that lost it since is noticed (KIP-320). All or nothing: KC_INVALID for an unknown topic, a negative partition or an
 * impossible offset, and while there is a subscription. From its return on, poll and poll_one give nothing of what is no longer assigned, not
 * even the rest of an event that poll_one has begun. With group.id offsets may be committed for a manual assignment too. */
KC_API kc_err kc_consumer_assign(kc_consumer *c, const kc_topic_partition *parts, size_t stride, size_t n, kc_error **error);
/** Moves the position: takes effect before the next poll returns; what was fetched for the old one is dropped. offset and leader_epoch as
 * in kc_consumer_assign. Per-item errors in parts[].err (KC_NOT_ASSIGNED, KC_INVALID); returns the first of them. Of partitions that a group
 * has given, also before their ASSIGNED is acknowledged: then the committed offset does not count. Between kc_consumer_subscribe and the
 * first ASSIGNED of the subscription, of any partition: remembered for the partitions which that ASSIGNED names, forgotten for others. */
KC_API kc_err kc_consumer_seek(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n);
/** No records of these are delivered (and no more fetched) until resumed; what was fetched before waits, or is fetched again if others need
 * the room. Resuming what is not paused changes nothing (CC-08). Lasts over a rebalance for partitions that the group gives back at once. */
KC_API kc_err kc_consumer_pause(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n);
/** Ends a pause. Per-item errors in parts[].err (KC_NOT_ASSIGNED); returns the first of them. */
KC_API kc_err kc_consumer_resume(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n);
/** parts[].offset out: the next offset that poll will deliver; -1001 while it is being looked up. */
KC_API kc_err kc_consumer_position(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n);
/** parts[].offset out: how many offsets there are from the position to the end (the high watermark) as the last fetch told it; -1 while
 * either is unknown. */
KC_API kc_err kc_consumer_lag(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n);

/* ------------------------------------------------------------------ groups */

/** Joins group.id, for these topics (names), in place of an earlier subscription; n 0: as kc_consumer_unsubscribe. Joining goes on in the
 * background; what the group gives comes as ASSIGNED from poll. Topics need not exist yet. Topics, and partitions, that come to be later are
 * taken up within metadata.max.age.ms (topic.metadata.refresh.interval.ms). KC_CONFIG: no group.id; KC_INVALID: an illegal name, or a manual
 * assignment is in force. A consumer that poll was not called on for max.poll.interval.ms leaves the group (its partitions are LOST) and
 * joins again with the next poll. */
KC_API kc_err kc_consumer_subscribe(kc_consumer *c, const char *const *topics, size_t n, kc_error **error);
/** The same, for all topics that one of the patterns matches: POSIX extended regular expressions (regcomp), which match anywhere in the name
 * unless anchored with ^ and $. Which topics there are is asked once in metadata.max.age.ms. Internal topics do not count unless
 * exclude.internal.topics=false, nor do those of topic.blacklist. KC_INVALID: a pattern does not compile; the error says which, and why. */
KC_API kc_err kc_consumer_subscribe_regex(kc_consumer *c, const char *const *patterns, size_t n, kc_error **error);
/** Ends the subscription. The partitions are given up at once, without a REVOKED; with enable.auto.commit what is processed is committed
 * first; then the member leaves the group (one with group.instance.id too: it is the caller's wish). Does not wait for any of it. */
KC_API kc_err kc_consumer_unsubscribe(kc_consumer *c, kc_error **error);
/** Waits until the group has given this member its partitions, if only none: an ASSIGNED waits for poll, or was taken since the consumer last
 * joined. KC_OK, KC_TIMED_OUT (kc_consumer_why tells on whom it waits), KC_WOKEN, KC_CLOSED, KC_INVALID: no subscription; the group's error
 * when it is one that does not pass by itself. */
KC_API kc_err kc_consumer_await_assigned(kc_consumer *c, int64_t timeout_us, kc_error **error);
/** The membership at this moment: *generation -1 while there is none. Copies the member id (cut to size, with a NUL) and returns its length; 0:
 * none yet. generation, id may be NULL. */
KC_API size_t kc_consumer_member(kc_consumer *c, int32_t *generation, char *id, size_t size);

/** An offset with what else is committed with it. The first fields are those of kc_topic_partition. */
typedef struct kc_offset {
    int32_t topic;               /**< kc_client_topic */
    int32_t partition;           /**< its partition */
    int64_t offset;              /**< the next one to be consumed: that of the last record processed + 1 */
    int32_t leader_epoch;        /**< of the record before it; 0 or -1 unknown */
    kc_err err;                  /**< out, per item */
    kc_bytes metadata;           /**< the application's, UTF-8; size 0: none */
} kc_offset;

/** Marks records as processed, up to before parts[].offset, and so what automatic commits, and kc_consumer_commit without items, commit. Never
 * goes back (a smaller offset changes nothing; only a seek does). Per-item errors in parts[].err, returns the first of them: KC_NOT_ASSIGNED,
 * which includes a partition that was taken away and given back since the record was delivered; KC_INVALID: an offset beyond what poll has
 * delivered, or a mode other than EXPLICIT. */
KC_API kc_err kc_consumer_processed(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n);
/** Commits offsets to the group and waits for the outcome; timeout_us 0: default.api.timeout.ms. NULL and n 0: all that is processed and not
 * committed yet (in mode BY_POLL without what the last poll gave: its kc_event_offset, given as an item, commits that). What is passing (no
 * coordinator, a rebalance under way) is tried again until the time is up. Per-item errors in offsets[].err, returns the first of them:
 * KC_NOT_ASSIGNED (with a subscription: the partition is not, or no longer, this member's: items that are go through), KC_INVALID (a negative
 * offset, metadata that is not sound), Kafka's codes (OFFSET_METADATA_TOO_LARGE, …). KC_CONFIG: no group.id. Commits reach the coordinator in
 * the order of the calls; one that a later call supersedes for a partition before it was sent is not sent, and ends as that one does. */
KC_API kc_err kc_consumer_commit(kc_consumer *c, kc_offset *offsets, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
/** The same as an operation; kc_op_result_offsets gives the items with their errors. Copies the items. */
KC_API kc_err kc_consumer_commit_start(kc_consumer *c, const kc_offset *offsets, size_t stride, size_t n, uint64_t opaque, kc_op **op,
                                       kc_error **error);
/** The group's committed offsets of any partitions. parts[].offset and leader_epoch out; offset -1: none is committed. timeout_us 0:
 * default.api.timeout.ms. Per-item errors in parts[].err; returns the first of them. KC_CONFIG: no group.id. */
KC_API kc_err kc_consumer_committed(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
/** The same as an operation; results: kc_op_result_offsets, or kc_op_result_committed. Copies the items. */
KC_API kc_err kc_consumer_committed_start(kc_consumer *c, const kc_topic_partition *parts, size_t stride, size_t n, uint64_t opaque,
                                          kc_op **op, kc_error **error);
/** Results of kc_consumer_committed_start with their metadata, which is borrowed until the operation is freed (kc_op_result_offsets gives
 * them without). Up to max items; returns how many there are. */
KC_API size_t kc_op_result_committed(const kc_op *op, kc_offset *out, size_t stride, size_t max);

/* ------------------------------------------------------------------ events */

/** What an event tells. */
enum kc_event_kind {
    KC_EVENT_RECORDS = 1,       /**< records of one partition */
    KC_EVENT_PARTITION_END = 2, /**< the end was reached (enable.partition.eof) */
    KC_EVENT_ERROR = 3,         /**< kc_event_error, told once; the consumer goes on, with this partition too unless it asks for a seek */
    KC_EVENT_ASSIGNED = 4, /**< kc_event_partitions are the consumer's from now on, besides those that it has; perhaps none. Nothing of them is
                              delivered before it is acknowledged, so that offsets kept elsewhere can be sought first */
    KC_EVENT_REVOKED = 5,  /**< kc_event_partitions are to be given up: nothing of them is delivered any more; offsets may be committed until it
                              is acknowledged */
    KC_EVENT_LOST = 6,     /**< kc_event_partitions are no longer the consumer's: another member may have them already. Needs no acknowledgement */
};
/** Reference-counted; readable after the assignment changed; freed from any thread. */
typedef struct kc_event kc_event;

/** The next event, waiting at most timeout_us. KC_OK: *event; KC_TIMED_OUT; KC_WOKEN; KC_BUSY: another thread is inside; KC_CLOSED;
 * KC_NO_MEMORY: nothing is lost, the next poll tries again. In mode BY_POLL it marks the event before as processed. */
KC_API kc_err kc_consumer_poll(kc_consumer *c, kc_event **event, int64_t timeout_us);
/** Ends a poll, or the next one (sticky), with KC_WOKEN, however much there is to take: nothing is lost by it. Safe in a signal handler. */
KC_API void kc_consumer_wake(kc_consumer *c);

/** Partitions of an ASSIGNED, REVOKED or LOST: up to max; returns how many there are. offset: the position (of an ASSIGNED mostly
 * KC_OFFSET_RESET: the committed offset is still asked for); err: KC_OK. */
KC_API size_t kc_event_partitions(const kc_event *e, kc_topic_partition *out, size_t stride, size_t max);
/** The application has done what it had to: an ASSIGNED's partitions are fetched; a REVOKED's are given up, after a commit of what is processed
 * with enable.auto.commit, and the group goes on. Takes effect before it returns: from then on a commit of a revoked partition gives
 * KC_NOT_ASSIGNED. The next poll, and freeing the event, acknowledge too (freeing marks nothing as processed). Any thread. KC_OK, also when
 * that has happened already and for events that need none; KC_LOST: too late, the partitions are lost. */
KC_API kc_err kc_event_ack(kc_event *e);
/** How long there still is to acknowledge; then the partitions are LOST. 0: over; KC_FOREVER: no limit, or none needed. */
KC_API int64_t kc_event_deadline_us(const kc_event *e);

KC_API int32_t kc_event_kind(const kc_event *e); /**< enum kc_event_kind; unknown kinds are to be ignored */
/** The topic of RECORDS, PARTITION_END and ERROR (kc_client_topic); 0: of none. */
KC_API int32_t kc_event_topic(const kc_event *e);
/** Their partition; -1: of none. */
KC_API int32_t kc_event_partition(const kc_event *e);
KC_API const kc_error *kc_event_error(const kc_event *e); /**< of KC_EVENT_ERROR; borrowed */
KC_API int64_t kc_event_offset(const kc_event *e); /**< PARTITION_END: the end; RECORDS: position after the event; ERROR: where, or -1 */
/** Of an ERROR with KC_DATA_LOST: the position that the consumer had. Records from kc_event_offset, where it goes on, up to before this one were
 * consumed and are gone from the log; others may stand in their place. Else -1. */
KC_API int64_t kc_event_position_before(const kc_event *e);
KC_API int64_t kc_event_high_watermark(const kc_event *e); /**< as of the fetch; -1 unknown */
KC_API size_t kc_event_count(const kc_event *e);           /**< records */

/** A record inside an event's span. Frozen: later fields get accessors. Offsets are into the span of the event. */
typedef struct kc_view {
    int64_t offset;              /**< the record's place in the partition */
    int64_t timestamp_ms;        /**< ms since 1970; -1 none */
    uint32_t key_at;             /**< where the key begins */
    uint32_t value_at;           /**< where the value begins */
    int32_t key_size;            /**< bytes of the key; -1: null */
    int32_t value_size;          /**< bytes of the value; -1: null */
    uint32_t headers_at;         /**< where the headers begin, as the record format has them: kc_event_headers parses them */
    uint32_t header_count;       /**< how many headers */
} kc_view;
/** All views of a RECORDS event, kc_event_count of them, contiguous, and the bytes that they point into. Borrowed until the event is freed.
 */
KC_API const kc_view *kc_event_views(const kc_event *e);
/** The bytes that the views point into, *size of them. */
KC_API const uint8_t *kc_event_span(const kc_event *e, size_t *size);

/** One record as pointers, for C callers. Borrowed until the event is freed. */
typedef struct kc_message {
    int32_t topic;               /**< kc_client_topic */
    int32_t partition;           /**< its partition */
    int64_t offset;              /**< its place in the partition */
    int64_t timestamp_ms;        /**< ms since 1970; -1 none */
    kc_bytes key;                /**< p NULL: null */
    kc_bytes value;              /**< p NULL: null */
    uint32_t header_count;       /**< how many headers: kc_event_headers */
    int32_t timestamp_type;      /**< 0 create time, 1 log append time, -1 none */
    int32_t leader_epoch;        /**< in which it was stored; -1 unknown */
} kc_message;
/** index from 0; KC_INVALID past the end or for another kind of event. */
KC_API kc_err kc_event_message(const kc_event *e, size_t index, kc_message *out);
/** Headers of one record, parsed on demand: returns how many there are; fills up to max. Names are not NUL-terminated (name_size). */
KC_API size_t kc_event_headers(const kc_event *e, size_t index, kc_header *out, size_t stride, size_t max);

KC_API kc_event *kc_event_ref(kc_event *e); /**< one more hold, to be freed too; returns e */
KC_API void kc_event_free(kc_event *e);     /**< drops a hold; the last one gives its bytes back to the memory budget */

/** One record at a time, for simple loops: *out is borrowed until the next call of poll_one, poll or free on this consumer. Same results as
 * kc_consumer_poll; events that are not records end it with KC_OK and *event set (to be freed), otherwise *event is NULL. May be mixed with
 * kc_consumer_poll, which goes on behind the record last given. */
KC_API kc_err kc_consumer_poll_one(kc_consumer *c, kc_message *out, kc_event **event, int64_t timeout_us);
/** Headers of the record last given by kc_consumer_poll_one. */
KC_API size_t kc_consumer_headers(kc_consumer *c, kc_header *out, size_t stride, size_t max);

/** Offset lookups, of any partitions, assigned or not. offset in: KC_OFFSET_BEGINNING, KC_OFFSET_END, or a timestamp in ms (>= 0); out: the
 * offset, -1 when there is none at or after the timestamp. timeout_us 0: default.api.timeout.ms, which is also the _start form's limit. Per-item
 * errors in parts[].err; returns the first of them. */
KC_API kc_err kc_consumer_offsets(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, kc_error **error);
/** The same as an operation; results: kc_op_result_offsets. Copies the items. */
KC_API kc_err kc_consumer_offsets_start(kc_consumer *c, const kc_topic_partition *parts, size_t stride, size_t n, uint64_t opaque,
                                        kc_op **op, kc_error **error);
/** Results of kc_consumer_offsets_start, or of kc_admin_delete_records_start: up to max items; returns how many there are. */
KC_API size_t kc_op_result_offsets(const kc_op *op, kc_topic_partition *out, size_t stride, size_t max);

/** What a partition waits for. With a subscription the first item is the membership itself: topic 0, partition -1. */
typedef struct kc_why {
    int32_t topic;               /**< kc_client_topic; 0: the membership itself */
    int32_t partition;           /**< its number; -1: the membership itself */
    int32_t state;               /**< 0 delivering, 1 paused, 2 offset lookup, 3 leader unknown, 4 connecting, 5 fetch outstanding, 6 at the end, 7
                          backing off after an error, or waiting for a seek, 8 held back by the memory budget or undelivered records, 9 the
                          committed offset is asked for, 10 ASSIGNED is not acknowledged, 11 being revoked.
                          Of the membership: 20 stable, 21 finding the coordinator, 22 joining: waits for the other members, 23 syncing:
                          waits for the leader's share-out, 24 revoking: waits for the application, or for the commit before partitions go,
                          25 backing off after an error, 26 left since poll was not called (max.poll.interval.ms), 27 failed for good, 28
                          leading, and waiting for metadata of topics, or looking for topics that match, 29 leaving */
    int32_t broker;              /**< on whom (of the membership: the coordinator), -1 nobody */
    int64_t since_us;            /**< how long */
    kc_err last_error;           /**< KC_OK: the last answer was good */
    char text[240];              /**< the same as a sentence */
} kc_why;
/** Up to max partitions of the assignment; *count is how many there are. Asks loop context, so it takes as long as its turn under way. */
KC_API kc_err kc_consumer_why(kc_consumer *c, kc_why *out, size_t stride, size_t max, size_t *count);

/** Ends consuming, within timeout_us (KC_TIMED_OUT: still under way; it then ends without waiting any further). Of a group's member:
 * partitions are given up without a REVOKED, what is processed is committed (enable.auto.commit), and the member leaves the group unless it
 * has a group.instance.id. Events already handed out stay readable. */
KC_API kc_err kc_consumer_close(kc_consumer *c, int64_t timeout_us, kc_error **error);
/** The same as an operation. */
KC_API kc_err kc_consumer_close_start(kc_consumer *c, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
/** Without a close before it nothing is committed, and the group is not told: it finds out by session.timeout.ms. */
KC_API void kc_consumer_free(kc_consumer *c);

#ifdef __cplusplus
}
#endif
#endif
