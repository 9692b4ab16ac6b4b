/* controller_priv.h - what the controller's files share: the kinds of change, records being collected, results. */
#ifndef KB_CONTROLLER_PRIV_H
#define KB_CONTROLLER_PRIV_H

#include "base/arena.h"
#include "controller.h"
#include "effective.h"
#include "elect.h"
#include "kw_messages.h"
#include "store.h"
#include "wire/kerror.h"

#define KB_CLAIM_SIZE 264
#define KB_RECORDS_PER_CHANGE_MAX 10000 /* as Kafka's; what one client can make the log swallow at once */

struct kb_change_kind {
    /* Validates, sets each item's result, and collects records in k->records. */
    kw_err (*run)(struct kb_controller *k, struct kb_change *c);
    /* The i-th item's claim: what no two changes may touch at a time. false: none. */
    bool (*claim)(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n);
    /* What the i-th item names: two items that name the same are both refused. Same form as a claim. */
    bool (*names)(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n);
    struct kb_result *(*result)(struct kb_change *c, int32_t i);
    /* Runs on an image without anything under way, before what else is queued; and nothing else runs until it is applied. When `run` sets k->more, it is
     * called again in a later turn for the next batch, until it does not. */
    bool alone;
    bool soon; /* done does not wait for this node's own logs to open */
};

struct kb_pending_change { /* appended, not yet applied; outlives its change when that is cancelled */
    struct kw_list link;
    struct kb_change *change; /* NULL: cancelled */
    const struct kb_change_kind *kind;
    bool more;   /* not all of it is appended yet */
    bool elects; /* once it is applied, leaderless partitions may find a leader */
    int64_t commit_offset;
    struct kb_controller_counts counts; /* what it adds to them */
    int32_t claim_count;
    struct kb_claim {
        char key[KB_CLAIM_SIZE];
        size_t n;
    } claims[];
};

/* A walk over all partitions, after something became known of brokers or of what is allowed; one at a time, in batches. controller_sweep.c */
struct kb_sweep {
    struct kb_change change;
    struct kb_result result;
    bool submitted, begun;
    bool wants_all;        /* partitions may be in need of a leader though no broker changed */
    bool all;              /* this sweep visits all partitions; else those with a replica on a broker that changes */
    bool wants_balance, balance; /* preferred replicas shall lead */
    int32_t changing[16], changing_count; /* the brokers that something became known of; more of them: all */
    size_t topic_at;       /* the cursor */
    const struct kb_image_topic *topic;
    int32_t partition;
    bool last_known;         /* last.known.leader.enable */
    int8_t unclean, flushed; /* of this topic; -1: not asked yet */
    int32_t led_anew, leaderless, balanced;
    int64_t looked_at; /* partitions that an election was held for, of all sweeps */
    struct kw_timer retry;
};

/* A broker, as this controller has known it since it became active. controller_sessions.c */
enum { KB_BROKER_FENCE = 1, KB_BROKER_UNFENCE = 2, KB_BROKER_SHUT_DOWN = 4, KB_BROKER_LOST = 8, KB_BROKER_GONE = 16 /* and FENCE */ };
struct kb_session {
    int32_t id;
    int64_t epoch; /* of the incarnation that it is about */
    int64_t heard_us;
    const void *conn;      /* its heartbeats come by this one; NULL: none known */
    bool heard, closed;    /* in this session; the connection was closed since */
    int64_t closed_us;
    bool dialing;
    int refusals;
    int64_t grace_us;      /* it counts as dead from then on; KW_NEVER */
    int64_t redial_us;     /* KW_NEVER */
    bool served;           /* it was unfenced in this epoch, as far as is known */
    int64_t base_epoch;    /* a previous epoch from here on is as good as the registered one, while it has not served */
    uint8_t want, doing;   /* KB_BROKER_*: of the next sweep, and of the one that has begun */
    bool suspected;        /* FENCE is wanted for its silence alone */
    bool lost, weak;       /* of its incarnation: its machine went down before it */
    struct kw_list waiting; /* struct kb_heartbeat */
};

struct kb_controller {
    struct kb_controller_options o;
    bool active, single; /* single: a quorum of one */
    int32_t self;
    bool unbegun; /* active, but without memory for what that needs: tried again */
    int told;     /* lines about losses, of the change being run */
    struct kb_pending_change *alone; /* under way */
    bool more, elects; /* of the change being run */
    struct kb_sweep sweep;
    struct kw_map sessions; /* id -> struct kb_session */
    struct kw_timer session_timer, balance_timer;
    int64_t session_due_us;
    int64_t session_timeout_us, heartbeat_us;
    struct kb_controller_counts counts; /* of what came to be */
    struct kw_list queue;    /* not run yet: something that they touch is under way */
    struct kw_list waiting;  /* struct kb_pending_change, by offset */
    struct kw_list finished; /* nothing was to be appended: done comes with the timer */
    struct kw_map claims;    /* key -> struct kb_pending_change */
    struct kw_timer timer;
    struct kb_now now; /* of the last call */
    int64_t next_pid;  /* above all blocks handed out, committed or not, and above what the logs hold */
    bool failed, pumping;
    /* of the change being run */
    struct kb_controller_counts counting;
    struct kw_arena arena;
    struct kw_map seen; /* what its items name */
    struct kb_store_record *records;
    size_t record_count, record_cap;
};

/* Starts a change: it runs now, or when what it touches is free. */
kw_err kb_controller_submit(struct kb_controller *k, struct kb_change *c, const struct kb_change_kind *kind, void *items, int32_t count,
                            bool validate_only, struct kb_now now) KW_CHECK;
/* A zeroed message (defaults set) in the arena, noted as the next record; NULL: out of memory. */
void *kb_controller_record(struct kb_controller *k, int16_t type, int16_t version);
void kb_result_set(struct kb_result *r, int16_t code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void kb_controller_pump(struct kb_controller *k);
/* Besides this node's own broker there are others, or other voters. */
bool kb_controller_is_cluster(const struct kb_controller *k);
bool kb_claim_topic(struct kw_str name, char key[KB_CLAIM_SIZE], size_t *n);
bool kb_names_topic(struct kw_str name, char key[KB_CLAIM_SIZE], size_t *n);
bool kb_names_partition(struct kw_str topic, int32_t index, char key[KB_CLAIM_SIZE], size_t *n);

/* place.c: replicas for partitions [first, first + count) of a topic. */
struct kb_place {
    const int32_t *brokers; /* the live ones, ascending, then the others */
    const int32_t *racks;   /* their numbers */
    int32_t live_count, broker_count, rack_count, shift;
};
kw_err kb_place_init(struct kb_controller *k, struct kb_place *p) KW_CHECK;
bool kb_place_ok(const struct kb_place *p, int32_t rf, struct kb_result *r); /* are there brokers for so many replicas? */
void kb_place_partition(const struct kb_place *p, int32_t partition, int32_t rf, int32_t *out);
/* Given by hand: KE code and text in r, or 0. rf: what all must have, -1 when the first decides. */
bool kb_place_check(struct kb_controller *k, const struct kb_assignment *a, int32_t count, int32_t first, int32_t rf, struct kb_result *r);
kw_err kb_place_record(struct kb_controller *k, struct kw_uuid topic, int32_t partition, const int32_t *replicas, int32_t rf) KW_CHECK;

/* controller_brokers.c */
void kb_cluster_begin(struct kb_controller *k); /* in office, and there are other nodes */
void kb_balance_init(struct kb_controller *k);
void kb_balance_arm(struct kb_controller *k);

/* controller_sweep.c */
void kb_sweep_init(struct kb_controller *k);
void kb_sweep_request(struct kb_controller *k); /* sessions' wants, or wants_all, wants_balance, are set */
void kb_sweep_stop(struct kb_controller *k);
/* The states of a partition's replicas, in the arena. NULL: out of memory. */
uint8_t *kb_replica_states(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p);
bool kb_topic_is_flushed(struct kb_controller *k, const struct kb_image_topic *t); /* flush.on.ack */
struct kb_elect_rules kb_elect_rules_of(struct kb_controller *k, const struct kb_image_topic *t);
/* A partition change that carries out an election; fields of reassignments are the caller's to add. e's array is kept. NULL: out of memory. */
struct kw_partition_change_record *kb_election_record(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p,
                                                      const struct kb_elected *e);
/* r says where the replicas that a partition has from now on are, when that differs from what it had. */
struct kb_replicas {
    const int32_t *ids, *isr;
    int32_t count, isr_count; /* isr_count 0: nobody's place is known anew */
};
kw_err kb_change_directories(struct kb_controller *k, const struct kb_image_partition *p, struct kw_partition_change_record *r,
                             const struct kb_replicas *now) KW_CHECK;
/* The last record, r, gets the version that its fields need. */
void kb_change_version(struct kb_controller *k, const struct kw_partition_change_record *r);
/* Counts it, and says it where records are lost. */
void kb_election_tell(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p, const struct kb_elected *e);

/* controller_reassign.c: what a partition is to become. Arrays are the arena's, or the image's where they do not change. */
struct kb_target {
    const int32_t *replicas, *isr, *adding, *removing;
    int32_t replica_count, isr_count, adding_count, removing_count;
    int32_t leader;
    bool led_anew, lossy;
    int8_t recovery_state; /* -1: as it is */
};
struct kb_target kb_target_of(const struct kb_image_partition *p); /* as it is */
/* Ends the reassignment when all replicas that stay are in sync. */
kw_err kb_target_complete(struct kb_controller *k, struct kb_target *x) KW_CHECK;
/* Who leads it then; also drops in-sync replicas that are not alive. */
kw_err kb_target_elect(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p, struct kb_target *x) KW_CHECK;
/* The record of what differs; *made: there was something. */
kw_err kb_target_record(struct kb_controller *k, const struct kb_image_topic *t, const struct kb_image_partition *p, const struct kb_target *x,
                        bool *made) KW_CHECK;

/* controller_sessions.c */
void kb_sessions_init(struct kb_controller *k);
void kb_sessions_deinit(struct kb_controller *k);
kw_err kb_sessions_begin(struct kb_controller *k) KW_CHECK; /* all anew */
void kb_sessions_end(struct kb_controller *k);
void kb_sessions_swept(struct kb_controller *k, bool done); /* what was being done is done, or has to be done again */
struct kb_session *kb_session_find(const struct kb_controller *k, int32_t id);
struct kb_session *kb_session_make(struct kb_controller *k, int32_t id); /* NULL: out of memory */
void kb_session_renew(struct kb_session *s, int64_t epoch, const void *conn, struct kb_now now); /* another incarnation */
bool kb_session_lives(const struct kb_controller *k, const struct kb_session *s);
void kb_sessions_arm(struct kb_controller *k);

/* controller_guid.c */
/* With the records from `from` on applied, of which those from `mark` on are this resource's: the GUIDs of the topic, or of all topics where a broker's
 * values change (name "": all brokers'), are known no longer than their records are kept; else the result says why not. type: 2 topic, 4 broker. */
bool kb_guid_config_ok(struct kb_controller *k, int8_t type, struct kw_str name, size_t mark, size_t from, struct kb_result *r);
void kb_guid_warn_of_growth(struct kb_controller *k, const struct kb_image_topic *t, int32_t total);

/* controller_configs.c */
bool kb_config_entry_check(struct kb_controller *k, const struct kb_config_kv *kv, int scope, struct kb_result *r);
kw_err kb_config_record(struct kb_controller *k, int8_t type, struct kw_str resource, struct kw_str name, struct kw_str value) KW_CHECK;

#endif
