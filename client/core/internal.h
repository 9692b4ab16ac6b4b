/* internal.h - what the files of client/core share among themselves: the core, its brokers, their lanes and connections.
 *
 * A broker has a lane for each channel. A lane holds the requests that wait and at most one connection; connections that are being closed
 * have left their lane. A broker's pump (a task) moves requests from lanes onto ready connections; the core's router gives requests for
 * "any" and "the controller" a broker.
 */
#ifndef KC_CORE_INTERNAL_H
#define KC_CORE_INTERNAL_H

#include "core.h"

#include "kw_messages.h"

enum {
    KC_SMALL_SIZE = 16 * 1024, /* of a connection's reading buffer; answers that do not fit get a block of their own */
    KC_SETUP_ANSWER_SIZE_MAX = 1024 * 1024,
    KC_OUT_KEEP_SIZE = 64 * 1024,       /* a bigger writing buffer is given back once it is empty */
    KC_OUT_BYTES_MAX = 8 * 1024 * 1024, /* encoded and unwritten: no further request is encoded meanwhile */
    KC_FLIGHTS_MAX = 1024,
    KC_BROKERS_MAX = 10000,
    KC_ADDRESSES_MAX = 16,
    KC_BOOTSTRAP_MAX = 64,
    KC_ATTEMPTS_MAX = 4, /* to connect to "any broker" at a time */
    KC_OWN_LANES_MAX = 1024,
};
#define KC_BOOTSTRAP_ID_FIRST (INT32_MIN) /* bootstrap addresses count up from here; errors show them as -1 */
#define KC_SETTLED_US 1000000             /* a ready connection that breaks sooner and unused counts as a failure to connect */
#define KC_STAGGER_US 250000              /* a broker that is not connected so soon has the next one tried beside it; as RFC 8305 paces addresses */

enum kc_request_state { KC_RQ_IDLE, KC_RQ_ROUTING, KC_RQ_QUEUED, KC_RQ_FLIGHT, KC_RQ_FINISHED };

struct kc_version_range {
    int16_t min, max; /* max -1: not there */
};

/* A request on the wire. The ring keeps them in order of writing, which is the order of the answers. */
struct kc_flight {
    struct kc_request *rq; /* NULL: nobody waits any more (cancelled), or connection setup */
    const struct kw_api *api;
    int16_t version;
    bool no_answer;
    int32_t correlation_id;
    int64_t answer_by_us;
    uint64_t start, end; /* in the connection's stream of bytes */
    struct kw_blk *kept; /* copy of a cancelled request's unwritten splices */
};

enum kc_conn_state { KC_CONN_RESOLVING, KC_CONN_CONNECTING, KC_CONN_NEGOTIATING, KC_CONN_READY, KC_CONN_CLOSING };

struct kc_conn {
    struct kw_list action_link;
    uint32_t wants;
    uint8_t state; /* enum kc_conn_state */
    struct kc_core *core;
    struct kc_broker *broker; /* NULL once it has left its lane */
    enum kc_channel channel;
    struct kw_list closing_link;
    void *shell;
    char *host;
    uint16_t port;
    char peer[80]; /* "host:port (address)" for texts */
    struct kc_address *addresses;
    size_t address_count, address_at;
    int64_t opened_us, ready_us;
    int64_t since_us; /* of the present state; once ready, of the last use */
    uint64_t answers; /* after setup */
    struct kw_timer timer;
    /* writing */
    struct kw_out out;
    size_t out_at;                 /* of out's own bytes written */
    size_t splice_at, splice_done; /* next splice, and how much of it is written */
    uint64_t stream_queued, stream_written;
    struct kc_flight *flights;
    uint32_t flight_head, flight_count, flight_cap;
    int32_t next_correlation_id;
    /* reading */
    struct kw_blk *small;
    uint32_t small_at, small_len; /* parsed, received */
    struct kw_blk *big;
    uint32_t big_len;
    bool heard;                        /* a first byte came */
    struct kc_version_range *versions; /* by index into kw_apis */
};

struct kc_lane {
    struct kw_list queue; /* of kc_request */
    size_t queued;
    struct kc_conn *conn;
};

struct kc_broker {
    int32_t id;
    char *host;
    uint16_t port;
    bool gone; /* no longer in the metadata; kept while connections drain */
    struct kc_core *core;
    struct kc_lane lanes[KC_CHANNEL_COUNT];
    struct kc_lane **own; /* lanes of single senders, by channel - KC_CHANNEL_COUNT; NULL where this broker has none */
    size_t own_count;
    struct kc_address good; /* of its name's, the one that last worked; size 0: none yet */
    uint32_t failures; /* to connect, in a row */
    int64_t retry_at_us;
    int64_t throttled_until_us;
    int64_t failed_at_us;
    kc_err last_err;
    char last_text[160];
    struct kw_timer timer;
    struct kc_task pump;
    struct kc_version_range *versions; /* as last negotiated; NULL: never */
};

/* What the client keeps of a topic beside its public face. */
struct kc_topic_slot {
    struct kc_topic_meta meta; /* first: the public pointer is the slot's */
    uint32_t wants;
    bool in_wanted, asking; /* asking: named in the request under way */
    uint32_t rounds;        /* answers in a row that left it unusable */
    int64_t not_before_us;  /* backoff of an unusable topic (CX-11) */
    int64_t due_us;         /* when to ask; KW_NEVER */
    int64_t idle_since_us;  /* wants fell to 0 */
};

struct kc_metadata {
    struct kc_topic_slot **chunks[20]; /* chunk k holds 64 << k topics and never moves: other threads add names (handle) */
    _Atomic int32_t topic_count;
    struct kw_map names;  /* name -> slot; under the façade's lock */
    struct kw_map wanted; /* name -> slot; loop context */
    struct kw_map ids;    /* topic id (16 bytes) -> slot */
    struct kw_list listeners;
    struct kc_request rq;
    struct kw_timer timer, rebootstrap_timer;
    struct kc_task send, announce, rebootstrap;
    bool busy, known;    /* known: an answer came since the last bootstrap */
    bool want_failed;    /* a wanted topic is not in `wanted` for lack of memory */
    bool brokers_wanted; /* asked for without a topic (controller) */
    bool changed;
    uint32_t quiet_rounds; /* refreshes in a row that brought nothing new */
    uint32_t failures;     /* requests in a row without an answer */
    int64_t sent_us, refresh_us, retry_us;
    char *cluster_id;
    int32_t controller;
};

/* Coordinators of keys: coordinator.c. */
struct kc_coordinators {
    struct kw_map by_key[2]; /* by enum kc_coordinator_type: key -> kc_coordinator */
    struct kw_list finds;    /* FindCoordinator requests outstanding */
    struct kc_task find;
    struct kw_timer timer; /* the next find that backs off */
};

struct kc_core {
    const struct kc_settings *settings;
    struct kc_now now;
    struct kw_rng rng;
    struct kw_timers timers;
    struct kc_budget budget;
    void (*log)(void *ctx, int level, const char *text);
    void *ctx;
    struct kw_list actions; /* connections that want something */
    struct kw_list tasks, turn_end;
    struct kw_list finished;        /* requests whose done is due */
    struct kw_list any, controller; /* requests that wait for a route */
    struct kw_list closing;         /* connections that left their lanes */
    struct kw_map brokers;          /* id -> kc_broker, those of the metadata */
    struct kc_broker *boots[KC_BOOTSTRAP_MAX];
    size_t boot_count;
    bool use_boots; /* no metadata yet, or bootstrapping again */
    bool stopping, all_down, abandoned;
    int64_t starved_until_us; /* a timer could not be set for lack of memory: look again then */
    struct kw_timer route_timer;
    struct kc_task route;
    struct kc_attempts *trouble; /* recent failures to connect */
    struct kw_arena arena;       /* for answers decoded here */
    uint64_t own_lanes[KC_OWN_LANES_MAX / 64]; /* given out, a bit each */
    size_t fetch_users; /* of KC_CHANNEL_FETCH: one, unless there are no lanes left */
    struct kc_metadata metadata;
    struct kc_coordinators coordinators;
};

/* core.c */
void kc_core_disarm(struct kc_core *core, struct kw_timer *t);
void kc_core_want(struct kc_conn *c, uint32_t want);
int64_t kc_jittered(struct kc_core *core, int64_t us, unsigned percent);
int64_t kc_backoff(struct kc_core *core, int64_t first_us, int64_t max_us, uint32_t failures); /* exponential, +-20 % */

/* request.c */
void kc_request_finish(struct kc_core *core, struct kc_request *rq,
                       kc_err err); /* out of whatever list it is in; done follows at the end of the turn */
void kc_request_note(struct kc_core *core, struct kc_request *rq, int32_t broker, kc_err cause, const char *phase, const char *detail);
void kc_request_queue(struct kc_broker *b, struct kc_request *rq);
void kc_request_reroute(struct kc_core *core, struct kc_request *rq);
void kc_lane_fail(struct kc_broker *b, enum kc_channel ch, kc_err err, const char *phase, const char *detail); /* what waits there */
void kc_core_route(struct kc_core *core);                                                                      /* defers the router */
void kc_core_route_run(struct kc_task *task, void *ctx);

/* brokers.c */
kw_err kc_brokers_init(struct kc_core *core) KW_CHECK;
void kc_brokers_deinit(struct kc_core *core);
struct kc_broker *kc_broker_get(struct kc_core *core, int32_t id); /* also bootstrap ones; NULL */
kw_err kc_broker_update(struct kc_core *core, int32_t id, struct kw_str host, int32_t port) KW_CHECK;
void kc_broker_forget(struct kc_core *core, struct kc_broker *b);
void kc_brokers_sweep(struct kc_core *core);
void kc_brokers_known(struct kc_core *core); /* metadata has named brokers: they take the bootstrap addresses' place */
void kc_brokers_rebootstrap(struct kc_core *core, const char *why);
bool kc_brokers_all_lost(struct kc_core *core); /* it is time to start again from bootstrap.servers (KIP-899) */
void kc_broker_failed(struct kc_broker *b, kc_err err, const char *phase, const char *text); /* an attempt to connect */
void kc_broker_up(struct kc_broker *b);
int32_t kc_broker_shown(const struct kc_broker *b); /* its id, -1 for a bootstrap address */
struct kc_broker_label {
    char text[24];
};
struct kc_broker_label kc_broker_label(const struct kc_broker *b); /* for log lines: "broker 3", "the bootstrap broker" */
void kc_broker_pump(struct kc_broker *b);           /* defers it */
size_t kc_broker_load(const struct kc_broker *b);
static inline size_t kc_lane_count(const struct kc_broker *b) {
    return KC_CHANNEL_COUNT + b->own_count;
}
static inline struct kc_lane *kc_lane_at(const struct kc_broker *b, size_t i) { /* NULL: an own lane that the broker does not have */
    return i < KC_CHANNEL_COUNT ? (struct kc_lane *)&b->lanes[i] : i < kc_lane_count(b) ? b->own[i - KC_CHANNEL_COUNT] : NULL;
}
struct kc_lane *kc_lane_make(struct kc_broker *b, enum kc_channel ch); /* NULL: no memory */

/* conn.c, conn_out.c, conn_in.c, negotiate.c */
struct kc_conn *kc_conn_open(struct kc_broker *b, enum kc_channel ch);                  /* NULL: no memory */
void kc_conn_close(struct kc_conn *c, kc_err err, const char *phase, const char *text); /* err KC_OK: quietly */
void kc_conn_fail(struct kc_conn *c, kc_err err, const char *text);                     /* it broke; by its state, a failure to connect */
void kc_conn_ready(struct kc_conn *c);                                                  /* versions are known */
void kc_conn_pump(struct kc_conn *c);                                                   /* encodes what waits in its lane */
void kc_conn_release(struct kc_conn *c);
struct kc_flight *kc_conn_flight(struct kc_conn *c, uint32_t i);
kw_err kc_conn_append(struct kc_conn *c, struct kc_request *rq, const struct kw_api *api, int16_t version, const void *msg,
                      int64_t answer_by_us) KW_CHECK;
void kc_conn_abandon(struct kc_conn *c, struct kc_request *rq); /* the flight goes on without its request */
void kc_conn_flights_fail(struct kc_conn *c, kc_err err, const char *phase, const char *text);
bool kc_conn_unwritten(const struct kc_conn *c);
void kc_conn_out_deinit(struct kc_conn *c);
void kc_conn_in_deinit(struct kc_conn *c);
kw_err kc_negotiate_start(struct kc_conn *c, int16_t version) KW_CHECK;
void kc_negotiate_answer(struct kc_conn *c, struct kw_in *in, int16_t version);
const struct kc_version_range *kc_versions_of(const struct kc_version_range *v, const struct kw_api *api);
bool kc_version_choose(const struct kc_version_range *r, int16_t min, int16_t max, int16_t *version);

/* coordinator.c */
void kc_coordinators_init(struct kc_core *core);
void kc_coordinators_deinit(struct kc_core *core);
void kc_coordinators_stop(struct kc_core *core);
void kc_coordinators_look(struct kc_core *core);      /* whether one is to be asked for */
void kc_coordinator_route(struct kc_request *rq);     /* to its broker, or to wait until that is known */
void kc_coordinator_lost(struct kc_coordinator *c, int32_t broker); /* that one cannot be reached; forgets it, unless another one is known by now */

/* metadata.c */
kw_err kc_metadata_init(struct kc_core *core) KW_CHECK;
void kc_metadata_deinit(struct kc_core *core);
void kc_metadata_stop(struct kc_core *core);

#endif
