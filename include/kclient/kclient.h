/** @file kclient.h
 * libkclient: errors, configuration, clients, events, operations, readiness. C callers, cffi, cgo and other FFIs.
 *
 * Conventions of every header here:
 * - Names are kc_<noun>_<verb>. Enumerations travel as int32_t, opaques as uint64_t, booleans as int32_t.
 * - Zero is the default: an array of zero-filled structs is valid input. Topic ids start at 1.
 * - A time given as an argument is a duration in microseconds: 0 does not block, KC_FOREVER (-1) has no limit; bigger values than the
 *   clock can hold saturate.
 * - Inputs are borrowed for the call. What a `new`, a `_start` or an out-parameter gives is the caller's to close and free. What an
 *   event, report or view shows is borrowed until its container is freed. Every free accepts NULL and never blocks.
 * - Functions over arrays of structs take the stride: the bytes from one to the next, at least sizeof the struct (KC_INVALID otherwise), so
 *   that structs may grow at their end.
 * - Out-parameters are untouched on error; a `kc_error **` may be NULL.
 * - Unless said otherwise a function may be called from any thread. After fork() a child may only free handles: every other call
 *   answers KC_FORKED.
 * - Any call that gives a kc_err may answer KC_CLOSED, KC_FORKED, KC_REENTRANT, KC_INVALID (NULL where something is needed) and
 *   KC_NO_MEMORY; a function's own comment names what is particular to it.
 * - A client has a thread of its own, or none (client.thread=none). Without one its loop runs inside kc_client_run_once, and inside
 *   whatever call has to wait, for the whole client: a program that sends and polls in turn needs nothing else. A call with a limit of 0
 *   does not run it. With one, a waiting caller mostly runs the loop itself too, which saves the wake-up of another thread.
 */
#ifndef KCLIENT_H
#define KCLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Marks what the library exports. */
#if defined(_WIN32)
#define KC_API
#else
#define KC_API __attribute__((visibility("default")))
#endif

/** Version of these headers: changes may break callers. */
#define KC_VERSION_MAJOR 0
/** Version of these headers: new things. */
#define KC_VERSION_MINOR 1
/** Version of these headers: mends. */
#define KC_VERSION_PATCH 0
/** The library's version as text, e.g. "0.1.0". Static. */
KC_API const char *kc_version(void);

/** As a limit of time: none. */
#define KC_FOREVER ((int64_t)-1)

/* ------------------------------------------------------------------ errors */

/** 0 is success; -1 and above are Kafka's protocol codes; -1000 and below are the library's own. */
typedef int32_t kc_err;

enum {
    KC_OK = 0,
    /* state of the handle or call: -1100 … */
    KC_CLOSED = -1100,       /**< the handle was closed */
    KC_FORKED = -1101,       /**< called in a forked child: only the free functions work there */
    KC_REENTRANT = -1102,    /**< called from inside a callback that must not call it */
    KC_BUSY = -1103,         /**< another thread is inside an exclusive call (consumer poll) */
    KC_WOKEN = -1104,        /**< kc_consumer_wake or kc_client_wake ended the wait */
    KC_INVALID = -1105,      /**< an argument is out of range or missing */
    KC_NO_MEMORY = -1106,    /**< an allocation failed, or the client's memory budget is used up */
    KC_CONFIG = -1107,       /**< a configuration name or value is wrong; the message names the nearest */
    KC_UNSUPPORTED = -1108,  /**< the broker, or this build, cannot do it; the message says which version could */
    KC_NOT_ASSIGNED = -1109, /**< the partition is not assigned to this consumer */
    KC_LOST = -1110,         /**< the assignment that the call belongs to is over */
    KC_CANCELLED = -1111,    /**< kc_op_cancel, purge, or a free ended it */
    KC_BAD_GUID = -1112,     /**< not one 16-byte id: a text that is no UUID, a record with two ids, or with another length of it */
    /* time and queues: -1200 … */
    KC_TIMED_OUT = -1200,    /**< the caller's own limit passed; the error's attempts say what was tried */
    KC_QUEUE_FULL = -1201,   /**< no room in the producer's queue within the time given; this record was not accepted */
    KC_EXPIRED = -1202,      /**< the record's deadline (delivery.timeout.ms or its own) passed */
    KC_TOO_LARGE = -1203,    /**< the record can never fit: max.request.size or message.max.bytes */
    /* transport: -1300 … */
    KC_TRANSPORT = -1300,    /**< a connection failed; the attempts say how */
    KC_RESOLVE = -1301,      /**< a host name could not be resolved */
    KC_ALL_BROKERS_DOWN = -1302, /**< no bootstrap address or known broker could be reached */
    KC_TLS = -1303,          /**< TLS failed */
    /* data: -1400 … */
    KC_BAD_MESSAGE = -1400,  /**< a broker's answer does not follow the protocol */
    KC_CORRUPT = -1401,      /**< a fetched batch fails its CRC or does not parse */
    KC_TOO_BIG_ANSWER = -1402, /**< an answer passes receive.message.max.bytes */
    KC_DATA_LOST = -1403,    /**< records that were consumed are no longer in the log: another leader did not have them (KIP-320) */
};

/** Name of a code, e.g. "NOT_LEADER_OR_FOLLOWER", "KC_QUEUE_FULL". Never NULL; static. */
KC_API const char *kc_err_name(kc_err code);
/** What a code means, one sentence. Never NULL; static. */
KC_API const char *kc_err_text(kc_err code);
/** 1 when the same call may succeed later without a change, else 0. */
KC_API int32_t kc_err_retriable(kc_err code);

/** What became of a record or request. */
enum kc_outcome {
    KC_NOT_PERSISTED = 0,   /**< certainly not in the log */
    KC_MAYBE_PERSISTED = 1, /**< it was sent and no answer came */
    KC_PERSISTED = 2,       /**< in the log, as acks asked */
};
/** What the application is advised to do about an error. */
enum kc_action { KC_ACTION_NONE = 0, KC_ACTION_RETRY = 1, KC_ACTION_ABORT_TXN = 2, KC_ACTION_RECREATE = 3, KC_ACTION_FIX_CONFIG = 4 };

/** An error with its history. Owned by whoever received it; kc_error_free. Immutable, any thread. */
typedef struct kc_error kc_error;
/** What failed; KC_OK for NULL. */
KC_API kc_err kc_error_code(const kc_error *e);
/** The code's name: kc_err_name. */
KC_API const char *kc_error_name(const kc_error *e);
/** What failed, where, why, and what to do. */
KC_API const char *kc_error_message(const kc_error *e);
/** 1 when the same call may succeed later without a change. */
KC_API int32_t kc_error_retriable(const kc_error *e);
/** 1 when the handle cannot go on and must be made anew. */
KC_API int32_t kc_error_fatal(const kc_error *e);
KC_API int32_t kc_error_outcome(const kc_error *e); /**< enum kc_outcome */
KC_API int32_t kc_error_action(const kc_error *e);  /**< enum kc_action */
/** The attempts that led here, oldest first; long chains keep the first and the last ones. */
typedef struct kc_attempt {
    int64_t at_ms;               /**< wall clock, ms since 1970 */
    int32_t broker;              /**< node id; -1 a bootstrap address or none */
    kc_err cause;                /**< why it failed */
    const char *phase;           /**< "resolve", "connect", "negotiate", "send", "await answer", "answer", "queue" */
    const char *detail;          /**< address, error text of the system; "" when nothing more is known */
} kc_attempt;
/** How many attempts it keeps. */
KC_API size_t kc_error_attempt_count(const kc_error *e);
/** One attempt, index from 0; its texts are the error's. KC_INVALID past the end. */
KC_API kc_err kc_error_attempt(const kc_error *e, size_t index, kc_attempt *out);
/** An error of its own kind, for libraries that stand on this one and for bindings: without attempts; retriable, and action, as the code says. message is
 * copied, NULL: the code's text. outcome: enum kc_outcome. Never NULL: without memory it is a KC_NO_MEMORY. */
KC_API kc_error *kc_error_new(kc_err code, int32_t outcome, const char *message);
/** Frees it; NULL does nothing. */
KC_API void kc_error_free(kc_error *e);

/* ------------------------------------------------------------- process-wide */

/** Replaces malloc, realloc and free for everything the library allocates itself. Before any other call, once. KC_INVALID otherwise. */
KC_API kc_err kc_allocator_set(void *(*malloc_fn)(size_t, void *), void *(*realloc_fn)(void *, size_t, void *),
                               void (*free_fn)(void *, void *), void *ctx);

/* ------------------------------------------------------------ configuration */

/** Properties by name: Kafka's, librdkafka's and the old producers' names all work. Not thread-safe. */
typedef struct kc_config kc_config;
KC_API kc_config *kc_config_new(void); /**< NULL: out of memory */
/** Sets one property. KC_CONFIG: unknown (the message names the nearest) or a bad value (it names the range). */
KC_API kc_err kc_config_set(kc_config *c, const char *name, const char *value, kc_error **error);
/** The effective value as text; NULL when the name is unknown or has no value. Borrowed until the next set or free. */
KC_API const char *kc_config_get(const kc_config *c, const char *name);
KC_API kc_config *kc_config_dup(const kc_config *c); /**< a copy of its own; NULL: out of memory */
/** Frees it; what was made with it keeps what it needs. NULL does nothing. */
KC_API void kc_config_free(kc_config *c);

/** The table behind it, for documentation and `kc config explain`. Index from 0; KC_INVALID past the end. Static strings. */
typedef struct kc_config_entry {
    const char *name;            /**< the property */
    const char *aliases;         /**< other names, comma-separated; "" none */
    const char *scope;           /**< "client", "producer", "consumer" */
    const char *type;            /**< "integer", "decimal", "boolean", "choice", "text", "addresses" */
    const char *range;           /**< what it may be, in words; "" anything */
    const char *def;             /**< the default as text; "" none */
    const char *text;            /**< what it means, one or two sentences */
} kc_config_entry;
/** One entry of the table. */
KC_API kc_err kc_config_describe(size_t index, kc_config_entry *out);

/* ------------------------------------------------------------------ clients */

/** Owns connections, metadata, memory budget and loop; producers, consumers and admin calls attach to it. */
typedef struct kc_client kc_client;

/** Creates a client; copies what it needs of the configuration, which stays the caller's in every case (CX-15). Does not wait for a
 * connection. KC_CONFIG, KC_NO_MEMORY, KC_TRANSPORT (a thread or descriptor could not be had). */
KC_API kc_err kc_client_new(const kc_config *config, kc_client **client, kc_error **error);
/** Closes connections; roles of the client must have been closed before, else their records are failed. Returns within timeout_us:
 * KC_TIMED_OUT when it is still under way. New calls answer KC_CLOSED from then on; reports and results that are left may still be taken. */
KC_API kc_err kc_client_close(kc_client *c, int64_t timeout_us, kc_error **error);
/** Drops the caller's hold. Roles, events and operations hold the client too, so any order of frees is right. */
KC_API void kc_client_free(kc_client *c);

/** Topic names become small numbers (from 1) for the life of the client. 0: out of memory or an invalid name. */
KC_API int32_t kc_client_topic(kc_client *c, const char *name);
KC_API const char *kc_client_topic_name(kc_client *c, int32_t topic); /**< NULL: unknown; lives as long as the client */

/* Readiness, and the application's own loop. */

/** A descriptor (eventfd) that is readable when something is ready, in both modes; with client.thread=none also when the loop has to run. Never
 * read or close it; kc_client_ready drains it. */
KC_API int kc_client_fd(kc_client *c);
/** What became ready. */
enum kc_ready_kind { KC_READY_REPORTS = 1, KC_READY_EVENT = 2, KC_READY_SPACE = 3, KC_READY_OP = 4, KC_READY_LOG = 5 };
/** Something that became ready. */
typedef struct kc_ready {
    int32_t kind;                /**< enum kc_ready_kind; unknown kinds are to be ignored */
    uint64_t opaque;             /**< of the role (its configuration's `opaque`) or the operation */
    void *role;                  /**< kc_producer *, kc_consumer * or kc_op *; NULL for KC_READY_LOG */
} kc_ready;
/** Up to max things that became ready since they were last drained. Returns how many; while that is max, there may be more. SPACE comes after a
 * refused send, OP once, when an operation of a _start function ends. */
KC_API size_t kc_client_ready(kc_client *c, kc_ready *out, size_t stride, size_t max);
/** client.thread=none: one turn of the loop: waits at most timeout_us for something to do, then works at most about budget_us (0: no bound).
 * KC_INVALID with a thread inside; KC_BUSY when another thread runs it; KC_REENTRANT. */
KC_API kc_err kc_client_run_once(kc_client *c, int64_t timeout_us, int64_t budget_us);
/** Microseconds until kc_client_run_once is next due: 0 now, KC_FOREVER when only I/O can bring work. */
KC_API int64_t kc_client_next_deadline_us(kc_client *c);
/** Ends a wait in kc_client_run_once. Safe in a signal handler. */
KC_API void kc_client_wake(kc_client *c);

/** One log line, pulled. 1: filled, 0: none waiting. level: 3 error, 4 warning, 6 info, 7 debug. text is cut to size. */
KC_API int32_t kc_client_log(kc_client *c, int32_t *level, int64_t *at_ms, char *text, size_t size);

/* --------------------------------------------------------------- operations */

/** A slow call that runs by itself. Free detaches it (its effect goes on); cancel stops waiting (outcome MAYBE). */
typedef struct kc_op kc_op;
/** Waits for the result. KC_OK: done and succeeded; else its error. KC_TIMED_OUT with kc_op_done 0: not done yet, wait again (1: the call's own
 * limit passed). Several threads may wait; each gets the error. */
KC_API kc_err kc_op_wait(kc_op *op, int64_t timeout_us, kc_error **error);
KC_API int32_t kc_op_done(const kc_op *op); /**< 1 once there is a result */
KC_API uint64_t kc_op_opaque(const kc_op *op); /**< as given to its _start */
/** Ends it with KC_CANCELLED soon, unless it is done already; what was sent may still take effect. */
KC_API void kc_op_cancel(kc_op *op);
/** Drops the caller's hold, whether it is done or not. NULL does nothing. */
KC_API void kc_op_free(kc_op *op);

/* --------------------------------------------------------------- record ids */

/* A record's id is 16 bytes in its header `guid`. A topic with message.guid.dedup=true (kbroker) stores an id once within its window, whoever sends it,
 * and finds the record by it (kc_admin_lookup_guids). */

#define KC_GUID_TEXT_SIZE 37 /**< of a UUID as text, with its NUL */
/** A new UUIDv7 (RFC 9562) of the system's clock and random source, for whoever needs an id before there is a producer: stored with the order, say, so
 * that it is the same when the order is sent again. Those of one millisecond are in no order (kc_producer_guid_make: ascending). KC_TRANSPORT: the system
 * gives no random bytes; KC_INVALID: guid NULL. Also in a forked child. */
KC_API kc_err kc_guid_make(uint8_t guid[16]);
/** A UUID's text (8-4-4-4-12 or 32 hexadecimal digits, any letter case; any version) as 16 bytes. size: bytes of the text, 0: up to its NUL. KC_BAD_GUID: it is
 * none, and guid is as it was; KC_INVALID: NULL. */
KC_API kc_err kc_guid_from_text(const char *text, size_t size, uint8_t guid[16]);
/** Writes the text, 36 characters in lower case and a NUL, and returns it; 16 bytes of any kind. */
KC_API const char *kc_guid_to_text(const uint8_t guid[16], char text[KC_GUID_TEXT_SIZE]);

/* ------------------------------------------------------------- shared shapes */

/** Bytes somewhere: of the caller's where they go in, borrowed from their container where they come out. */
typedef struct kc_bytes {
    const void *p;               /**< NULL: Kafka's null, when size is 0 */
    size_t size;                 /**< how many */
} kc_bytes;
/** A record's header. */
typedef struct kc_header {
    const char *name;            /**< UTF-8, name_size bytes (0: up to its NUL) */
    size_t name_size;            /**< bytes of the name; 0, going in: up to its NUL */
    kc_bytes value;              /**< what it says; p NULL and size 0: null */
} kc_header;
/** A partition, with an offset in or out, and an outcome of its own. */
typedef struct kc_topic_partition {
    int32_t topic;               /**< kc_client_topic */
    int32_t partition;           /**< its number, from 0 */
    int64_t offset;              /**< or a timestamp, a special offset, as the call says */
    int32_t leader_epoch;        /**< -1 unknown */
    kc_err err;                  /**< out, per item */
} kc_topic_partition;

#ifdef __cplusplus
}
#endif
#endif
