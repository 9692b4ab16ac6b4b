/* core.h - the client's single-threaded state machine: brokers and their connections, requests, metadata. No I/O, no clock, no locks.
 *
 * Used by produce/, consume/, admin.c (to send requests and follow metadata), driven by handle.c/shell.c and the simulator through event.h.
 * Everything here runs under whoever owns the loop at the moment; the thread-safe façade is handle.c, the lock of the sending path is produce/accum's.
 */
#ifndef KC_CORE_H
#define KC_CORE_H

#include <kclient/kclient.h>
#include "base/map.h"
#include "base/rng.h"
#include "budget.h"
#include "config.h"
#include "event.h"
#include "outcome.h"
#include "wire/codec.h"
#include "wire/frame.h"
#include "wire/kerror.h"

/* Per broker there is one connection each for produce, fetch and the rest, since brokers answer in order. From KC_CHANNEL_COUNT on: lanes of
 * single senders (kc_core_lane_take), the second consumer's long polls among them. */
enum kc_channel { KC_CHANNEL_CONTROL, KC_CHANNEL_PRODUCE, KC_CHANNEL_FETCH, KC_CHANNEL_COUNT };
#define KC_BROKER_ANY (-1)        /* least loaded live one, or a bootstrap address */
#define KC_BROKER_CONTROLLER (-2) /* as metadata says; else any */
#define KC_BROKER_COORDINATOR (-3) /* rq->coordinator's: kc_coordinator_aim of coordinator.h */
struct kc_coordinator;

struct kc_core_options {
    const struct kc_settings *settings; /* config.h: parsed values; outlive the core */
    uint64_t seed;
    struct kc_now now;
    void (*log)(void *ctx, int level, const char *text);
    void *ctx;
};
kw_err kc_core_new(const struct kc_core_options *o, struct kc_core **core) KW_CHECK;
/* In a forked child: gives the memory back without looking at requests, timers and listeners of others, which may be gone already. */
void kc_core_abandon(struct kc_core *core);
void kc_core_free(struct kc_core *core); /* the shell has closed its sockets; outstanding requests have been failed by kc_core_stop */
void kc_core_stop(struct kc_core *core, struct kc_now now); /* fails every request with KC_CLOSED, wants every connection closed */
bool kc_core_stopping(const struct kc_core *core);           /* kc_core_stop was called; metadata listeners are told */
bool kc_core_stopped(const struct kc_core *core);            /* no connection is left */
struct kc_now kc_core_now(const struct kc_core *core);       /* of the running event */
int64_t kc_after(int64_t now_us, int64_t duration_us);       /* saturating; a negative duration: KW_NEVER */
struct kc_attempts *kc_core_trouble(struct kc_core *core); /* the latest failures to connect to anyone: why metadata, or a leader, is missing */
struct kc_budget *kc_core_budget(struct kc_core *core);
struct kw_timers *kc_core_timers(struct kc_core *core);
struct kw_rng *kc_core_rng(struct kc_core *core);
/* Sets a timer and never fails: without memory for it the core, and through their metadata listeners the roles, look at everything again soon. */
void kc_core_arm(struct kc_core *core, struct kw_timer *t, int64_t at_us);
/* Work for the end of the turn under way: after all its events, before its actions are taken. Deferring what is deferred already does nothing. A task that
 * is deferred while tasks run waits for the next turn (which is due at once). */
struct kc_task {
    struct kw_list link;
    void (*run)(struct kc_task *task, void *ctx);
    void *ctx;
};
void kc_task_init(struct kc_task *task, void (*run)(struct kc_task *, void *), void *ctx);
void kc_core_defer(struct kc_core *core, struct kc_task *task);
void kc_task_cancel(struct kc_task *task);
void kc_core_log(struct kc_core *core, int level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- Requests ---- */

/* One request. Owned by the sender, who embeds it; lives until done is called, exactly once, never from inside kc_core_send or _cancel. It waits in
 * its broker's queue until the connection is up and its in-flight limit allows; only then is it encoded, since only then is the version known. Requests
 * of one broker and channel are written in the order in which they were sent.
 *
 * What ends it: the answer; its deadline (KC_TIMED_OUT; KC_ALL_BROKERS_DOWN when nobody could be reached); no answer in time (KC_TIMED_OUT, sent; the
 * connection closes); a connection that failed (KC_TRANSPORT or the like; `sent` says whether it may have arrived). A request to a given
 * broker also fails with KC_TRANSPORT (not sent) when an attempt to connect failed, so that its sender can look for another leader; sent again it waits out
 * the broker's reconnect backoff before the next attempt. Requests to ANY or CONTROLLER go round the brokers until their deadline. */
struct kc_request {
    struct kw_list link;
    const struct kw_api *api;
    int16_t version_min, version_max; /* what the sender can do; the highest common with the broker is used; none: KC_UNSUPPORTED */
    int16_t version;                  /* chosen; valid in encode and done */
    int32_t broker;                   /* node id, KC_BROKER_ANY, KC_BROKER_CONTROLLER, KC_BROKER_COORDINATOR */
    struct kc_coordinator *coordinator; /* of KC_BROKER_COORDINATOR */
    enum kc_channel channel;
    int64_t deadline_us;              /* monotonic; waiting and in flight together; KW_NEVER none */
    int64_t answer_timeout_us;        /* from the moment it is written; 0: request.timeout.ms */
    bool no_answer;                   /* acks=0: done(KW_OK, NULL) once written to the socket */
    /* Appends the body in rq->version (header and length are the core's). Splices of memory are allowed; the memory must live until done. */
    kw_err (*encode)(struct kc_request *rq, struct kw_out *out);
    /* err KC_OK: body is the answer's body and blk the block that it lies in (take a reference to keep views). Else what went wrong, in
     * attempts. `sent`: whether any byte may have reached the broker (MAYBE_PERSISTED). */
    void (*done)(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk);
    bool sent;                        /* valid in done, not before */
    int32_t sent_to;                  /* node id it went to */
    struct kc_attempts *attempts;     /* may be NULL: nobody asks */
    void *ctx;
    /* the core's */
    struct kc_conn *conn;
    struct kw_timer timer;
    kc_err err;
    uint8_t state;
    int32_t to;                       /* the broker that it was routed to */
};
void kc_request_init(struct kc_request *rq, int16_t api_key);
void kc_core_send(struct kc_core *core, struct kc_request *rq); /* always ends in done */
void kc_core_cancel(struct kc_core *core, struct kc_request *rq); /* done(KC_CANCELLED) comes in the next turn; an answer that arrives later is dropped */
/* A lane for one sender alone, for requests whose answers may be minutes in coming, such as JoinGroup: nothing else of this client waits
 * behind them, nor do they wait behind another's. KC_CHANNEL_CONTROL: there is none left. */
enum kc_channel kc_core_lane_take(struct kc_core *core);
void kc_core_lane_rest(struct kc_core *core, enum kc_channel lane); /* closes its connections on which nobody waits for an answer any more */
void kc_core_lane_give(struct kc_core *core, enum kc_channel lane); /* after its last request was done; rests it too */
/* Where a consumer sends its long polls: KC_CHANNEL_FETCH for the first one, a lane for each further one, since a long poll of one would hold up the
 * others'. Given back after its last request was done. */
enum kc_channel kc_core_fetch_take(struct kc_core *core);
void kc_core_fetch_give(struct kc_core *core, enum kc_channel channel);
/* What the broker advertised for an API, from its connection: false while unknown. */
bool kc_core_versions(struct kc_core *core, int32_t broker, int16_t api_key, int16_t *min, int16_t *max);
size_t kc_core_in_flight(struct kc_core *core, int32_t broker, enum kc_channel channel); /* written or being written, unanswered */
/* Throttled or backing off until (monotonic us), 0: no. (CX-12, KIP-219) */
int64_t kc_core_broker_held_until(struct kc_core *core, int32_t broker);
void kc_core_broker_throttle(struct kc_core *core, int32_t broker, int32_t throttle_ms); /* from answers' throttle_time_ms */
/* For kc_consumer_why and error texts: "connecting to 127.0.0.1:9092 since 2.1 s: connection refused". */
void kc_core_broker_status(struct kc_core *core, int32_t broker, char *text, size_t size);

/* ---- Metadata (metadata.c) ---- */

struct kc_partition_meta {
    int32_t leader;        /* -1: none or unknown */
    int32_t leader_epoch;  /* -1 unknown */
    int16_t err;
};
struct kc_topic_meta {
    int32_t topic;         /* the client's number, from 1 */
    char *name;
    struct kw_uuid id;     /* zero: unknown (old brokers) */
    int16_t err;           /* of the last answer; KE_NONE when usable */
    bool known;            /* an answer has named it */
    bool internal;
    int32_t partition_count; /* 0 until known; only grows under one id */
    struct kc_partition_meta *partitions;
    uint32_t generation;   /* grows on every change */
    int64_t updated_us;
};
/* Topic numbers; also called by handle.c under its lock (name table only). 0: no memory or invalid name. */
int32_t kc_metadata_intern(struct kc_core *core, const char *name, size_t len);
struct kc_topic_meta *kc_metadata_topic(struct kc_core *core, int32_t topic); /* NULL: no such number */
struct kc_topic_meta *kc_metadata_by_id(struct kc_core *core, struct kw_uuid id);
void kc_metadata_want(struct kc_core *core, int32_t topic);   /* keep it known: ask when unknown or stale (metadata.max.age.ms) */
void kc_metadata_unwant(struct kc_core *core, int32_t topic);
void kc_metadata_refresh(struct kc_core *core, const char *why); /* soon; coalesced, with backoff and jitter (CX-11) */
/* A newer leader named in a Produce or Fetch answer of `asked` (KIP-951). True: another than that one leads now, as far as is known, so that it can be
 * asked at once. False: the hint is older than what is known, or of no use. */
bool kc_metadata_leader_hint(struct kc_core *core, int32_t topic, int32_t partition, int32_t asked, int32_t leader, int32_t epoch, struct kw_str host,
                             int32_t port);
/* Told after every answer that changed something, and when a topic turned out not to exist. */
struct kc_metadata_listener {
    struct kw_list link;
    void (*changed)(struct kc_metadata_listener *l);
};
void kc_metadata_listen(struct kc_core *core, struct kc_metadata_listener *l);
void kc_metadata_unlisten(struct kc_metadata_listener *l);
struct kw_str kc_metadata_cluster_id(struct kc_core *core);

#endif
