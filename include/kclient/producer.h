/** @file producer.h
 * Producing: records in, exactly one report each out. KIP-98 (idempotence), KIP-480/794 (partitioning without a key).
 */
#ifndef KCLIENT_PRODUCER_H
#define KCLIENT_PRODUCER_H

#include "kclient.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Sends records, each with exactly one report. Of kc_producer_new; kc_producer_free. */
typedef struct kc_producer kc_producer;

/** Flags of a record. */
enum kc_record_flag {
    KC_HAS_PARTITION = 1, /**< `partition` is meant, also when it is 0 */
    KC_HAS_TIMESTAMP = 2, /**< `timestamp_ms` is meant, also when it is 0 */
    KC_NO_REPORT = 4,     /**< a report only when the record fails */
    KC_SEND_NOW = 8,      /**< does not wait for linger.ms: it goes at once, and what lingers in this producer with it */
};

/** One record to send. Zero-filled members are defaults. */
typedef struct kc_record {
    int32_t topic;               /**< kc_client_topic; required */
    int32_t partition;           /**< with KC_HAS_PARTITION, or when > 0 */
    uint32_t flags;              /**< enum kc_record_flag */
    uint32_t header_count;       /**< how many headers */
    kc_bytes key;                /**< p NULL and size 0: null. p not NULL, size 0: empty */
    kc_bytes value;              /**< likewise */
    const kc_header *headers;    /**< header_count of them */
    int64_t timestamp_ms;        /**< 0 without its flag: now */
    int64_t timeout_us;          /**< this record's own deadline; 0: delivery.timeout.ms */
    const uint8_t *guid;         /**< its id, 16 bytes; NULL: none given (enable.guid makes one). A header `guid` of 16 bytes is the id too */
    uint64_t opaque;             /**< comes back in the report */
} kc_record;

/** Creates a producer on a client. The configuration may be NULL (all from the client's). */
KC_API kc_err kc_producer_new(kc_client *c, const kc_config *config, kc_producer **producer, kc_error **error);

/** Takes a copy of the record into its partition's open batch. Waits at most timeout_us for queue space.
 * KC_OK: accepted, one report will come. KC_QUEUE_FULL, KC_TOO_LARGE, KC_INVALID, KC_CLOSED, KC_FORKED, a fatal error's code: not accepted. Any thread;
 * those that wait are served in order. Records that one thread sends to one partition are stored in that order, whether the partition is given or
 * chosen, also while the topic is not known yet (with idempotence, or with one request in flight).
 * Reports not yet taken hold their places in the queue: a thread that both sends and takes reports must not wait here without limit, but take reports
 * on KC_QUEUE_FULL (or mark records KC_NO_REPORT, or set delivery.report.only.error).
 * A record without a timestamp gets the time to within one tick of the system's coarse clock (1 to 4 ms); the first of a batch gets it exactly.
 * With a partitioner of its own (kc_producer_partitioner_set) the first sends to a topic also wait until its partition count is known: KC_TIMED_OUT.
 * A record with an id whose partition is neither given nor decided by its key goes by the id: the same id to the same partition, with every producer
 * and partitioner, as long as the topic has as many partitions. KC_BAD_GUID: two ids (a header `guid` beside another, or beside the member), or, with
 * enable.guid, a header `guid` of another length. */
KC_API kc_err kc_producer_send(kc_producer *p, const kc_record *record, int64_t timeout_us);
/** Sends records[0 … n): returns how many were accepted (a prefix); *err says why it stopped, KC_OK when all were. stride: bytes from one to the next,
 * sizeof(kc_record) or more, 0 for that. */
KC_API size_t kc_producer_send_many(kc_producer *p, const kc_record *records, size_t stride, size_t n, int64_t timeout_us, kc_err *err);

/** A record without pointers: places in one arena, for FFIs where pointers cost. Sizes of -1 are null. */
typedef struct kc_flat {
    int32_t topic;               /**< kc_client_topic; required */
    int32_t partition;           /**< as kc_record.partition */
    uint32_t flags;              /**< enum kc_record_flag */
    uint32_t header_count;       /**< headers at headers_at */
    int64_t timestamp_ms;        /**< as kc_record.timestamp_ms */
    int64_t timeout_us;          /**< as kc_record.timeout_us */
    uint64_t opaque;             /**< comes back in the report */
    uint32_t key_at;             /**< where the key begins */
    uint32_t value_at;           /**< where the value begins */
    int32_t key_size;            /**< bytes of the key; -1 null */
    int32_t value_size;          /**< bytes of the value; -1 null */
    uint32_t headers_at;         /**< header_count times: int32 name size, int32 value size (-1 null), name, value; host order, unaligned */
    uint32_t guid_at;            /**< 16 bytes at guid_at - 1; 0: none */
} kc_flat;
/** kc_producer_send_many over flat records: places (key_at, value_at, headers_at, guid_at - 1) are offsets from arena, within arena_size, else the
 * record is refused with KC_INVALID. The arena is borrowed for the call. */
KC_API size_t kc_producer_send_flat(kc_producer *p, const kc_flat *records, size_t stride, size_t n, const void *arena, size_t arena_size,
                                    int64_t timeout_us, kc_err *err);

/** Flags of a report. */
enum kc_report_flag {
    /** The broker had it already, and stored nothing: by an earlier attempt of this send, an earlier send of the same id, or another producer. offset is
     * the first copy's, or -1 unknown; timestamp_ms as sent. */
    KC_REPORT_DUPLICATE = 1,
    KC_REPORT_OTHER_PAYLOAD = 2,  /**< a duplicate by its id whose first copy has another key or value, which is the one that stays */
    KC_REPORT_OFFSET_UNKNOWN = 4, /**< it is stored, but where is not known (any more) */
    KC_REPORT_DEDUPED = 8,        /**< the topic looks ids up: where the record has one, it is stored once */
    KC_REPORT_PERHAPS_OWN = 16,   /**< a duplicate, and an earlier attempt of this very send was not answered: the first copy may be of that */
};
/** The outcome of one record. */
typedef struct kc_report {
    uint64_t opaque;             /**< the record's */
    int32_t topic;               /**< the record's */
    int32_t partition;           /**< where it went; -1: it was not chosen yet */
    int64_t offset;              /**< -1: unknown (acks=0, failed) */
    int64_t timestamp_ms;        /**< as stored */
    kc_err err;                  /**< KC_OK, or why it failed */
    int32_t outcome;             /**< enum kc_outcome */
    uint32_t flags;              /**< enum kc_report_flag */
    uint32_t size;               /**< key + value bytes */
} kc_report;

/** Sends one record and waits for its outcome; drives the loop itself where it can, which saves two wake-ups. It leaves at once, linger
 * does not hold it back. Returns the record's error; *error (may be NULL) has the attempts. timeout: the record's. */
KC_API kc_err kc_producer_send_wait(kc_producer *p, const kc_record *record, kc_report *report, kc_error **error);

/** A container of reports, some hundreds or thousands at a time. */
typedef struct kc_reports kc_reports;
/** Waits at most timeout_us for reports. KC_OK: *reports has at least one; KC_TIMED_OUT: none; KC_CLOSED: closed and drained. Reports not yet
 * taken count against the queue. */
KC_API kc_err kc_producer_reports(kc_producer *p, kc_reports **reports, int64_t timeout_us);
/** How many reports it holds, taken or not. */
KC_API size_t kc_reports_count(const kc_reports *r);
/** 1: *out is the next report; 0: no more. */
KC_API int32_t kc_reports_next(kc_reports *r, kc_report *out);
/** Fills up to max reports at out, stride bytes apart; returns how many. */
KC_API size_t kc_reports_take(kc_reports *r, kc_report *out, size_t stride, size_t max);
/** The attempts behind the failed report last returned by kc_reports_next; NULL when it did not fail. Borrowed until the next one is asked for,
 * or the container is freed. */
KC_API const kc_error *kc_reports_error(const kc_reports *r);
/** The tries of that report's record that went wrong, oldest first, index from 0, also where a later one succeeded: what a retry was for. Long chains keep
 * the first and the last ones. KC_INVALID past the end, or before the first report. The text is borrowed until the container is freed. */
KC_API kc_err kc_reports_attempt(const kc_reports *r, size_t index, kc_attempt *out);
/** Frees the container, and with it what it showed. NULL does nothing. */
KC_API void kc_reports_free(kc_reports *r);

/** Sends all that is queued without waiting for linger; returns when each has its outcome (reports may still wait to be taken), or KC_TIMED_OUT. */
KC_API kc_err kc_producer_flush(kc_producer *p, int64_t timeout_us, kc_error **error);
/** The same as an operation: it ends when all that was accepted before it has its outcome. */
KC_API kc_err kc_producer_flush_start(kc_producer *p, uint64_t opaque, kc_op **op, kc_error **error);
/** What kc_producer_purge fails. */
enum kc_purge { KC_PURGE_QUEUED = 1, KC_PURGE_IN_FLIGHT = 2 };
/** Fails what is queued (NOT_PERSISTED) and, if asked, what is in flight (MAYBE_PERSISTED), with KC_CANCELLED. */
KC_API kc_err kc_producer_purge(kc_producer *p, int32_t what);

/** What waits and what was done. */
typedef struct kc_producer_stats {
    uint64_t queued_records;     /**< accepted, no outcome yet, or report not taken */
    uint64_t queued_bytes;       /**< their bytes */
    uint64_t in_flight_requests; /**< sent, not answered */
    uint64_t records_ok;         /**< with the outcome PERSISTED, or sent with acks=0 */
    uint64_t records_failed;     /**< reported with an error */
    uint64_t batches_sent;       /**< batches sent, retries included */
    uint64_t bytes_sent;         /**< bytes of those batches */
    uint64_t retries;            /**< batches tried again */
    uint64_t records_duplicate;  /**< of records_ok: those that the broker had already */
} kc_producer_stats;
/** size: sizeof(kc_producer_stats) as the caller knows it; so many bytes are filled. */
KC_API kc_err kc_producer_stats_get(kc_producer *p, kc_producer_stats *out, size_t size);

/** The fatal error that ended the producer, NULL if none. Owned by the caller. */
KC_API kc_error *kc_producer_fatal(kc_producer *p);

/** Completes every accepted record with exactly one report: sends what it can within the limit and fails the rest. Reports can be taken
 * afterwards, until kc_producer_reports answers KC_CLOSED. KC_TIMED_OUT: some were failed for it; KC_BUSY: an earlier close is still under way; KC_CLOSED. */
KC_API kc_err kc_producer_close(kc_producer *p, int64_t timeout_us, kc_error **error);
/** The same as an operation, with the same errors. */
KC_API kc_err kc_producer_close_start(kc_producer *p, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error);
/** Never blocks. Records without an outcome are dropped unsent: close first. */
KC_API void kc_producer_free(kc_producer *p);

/** The application's own partitioner, called in the sending thread for records without a partition: returns 0 … count-1, or -1 to use the
 * configured one. It must not call the library (KC_REENTRANT). Set before the first send. */
typedef int32_t (*kc_partitioner_fn)(void *ctx, int32_t topic, const void *key, size_t key_size, int32_t has_key, int32_t partition_count);
/** Sets it; NULL: none. ctx is given to each call. */
KC_API kc_err kc_producer_partitioner_set(kc_producer *p, kc_partitioner_fn fn, void *ctx);

/** Fills 16 bytes with a UUIDv7 (RFC 9562), ascending within the producer, as enable.guid does for each record. KC_INVALID: NULL. Any
 * thread. KC_FORKED in a forked child (kc_guid_make works there); KC_CLOSED. */
KC_API kc_err kc_producer_guid_make(kc_producer *p, uint8_t guid[16]);

#ifdef __cplusplus
}
#endif
#endif
