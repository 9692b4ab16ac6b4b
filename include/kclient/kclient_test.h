/** @file kclient_test.h
 * The test kit: clusters of real kbroker processes that a test starts, breaks, looks at and stops. Library kclient_test (pkg-config kclient_test, CMake
 * kclient::test), which stands on libkclient. The same concepts as kclient.testing in Python and kctest in Go.
 *
 *     kc_test_cluster *cluster;
 *     kc_test_options options = {.nodes = 3};
 *     kc_test_cluster_start(&options, sizeof options, &cluster, &error);
 *     … kc_config_set(config, "bootstrap.servers", kc_test_cluster_bootstrap(cluster), NULL) …
 *     kc_test_node_kill(cluster, 0, &error);
 *     kc_test_wait_leader(cluster, "orders", 0, 1, 0, NULL, &error);
 *     kc_test_cluster_free(cluster);
 *
 * A cluster is `kbroker cluster` as a child process: with one node it is ready in some ten milliseconds. It does not outlive the process that started it,
 * however that ends. Ports are picked freely, so that tests can run side by side; what is stored lies in a temporary folder and goes with the cluster, unless
 * options.data says where it is to stay. kbroker is looked for as options.kbroker, in the environment's KBROKER, beside this library, beside the program, and
 * on PATH.
 *
 * Conventions are kclient.h's, and besides:
 * - Functions may block, where they take no timeout for options.timeout_us at most. Any thread, several at once.
 * - Nodes are named by their ids: brokers from 0 on, controllers that are nothing else from 1000. Where a function takes a list of nodes, n 0 means all that
 *   run; n is KC_INVALID above 1000.
 * - In a timeout 0 is 30 s (0 is not "do not block" here), KC_FOREVER has no limit.
 * - Text that a function gives is freed by kc_test_text_free.
 * - Errors: KC_INVALID: a wrong argument, or what the cluster says is wrong or not there (no such node, a malformed rule: the text names the field).
 *   KC_UNSUPPORTED: it is not in the state for it (a clock that is not virtual, a node that does not run). KC_TIMED_OUT: the text says what was seen instead.
 *   KC_TRANSPORT: the cluster did not answer, or has ended: with what it said last. KC_BAD_MESSAGE: its answer is none. KC_CLOSED: it was stopped.
 */
#ifndef KCLIENT_TEST_H
#define KCLIENT_TEST_H

#include "admin.h"
#include "consumer.h"
#include "kclient.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ----------------------------------------------------------------- clusters */

/** A cluster of kbroker processes; kc_test_cluster_free. */
typedef struct kc_test_cluster kc_test_cluster;

/** What to start. Zero-filled members are defaults: one node, an ephemeral folder. */
typedef struct kc_test_options {
    int32_t nodes;                 /**< brokers; 0: 1 */
    int32_t controllers;           /**< nodes that are controllers and nothing else; 0: none, the first brokers are controllers too */
    int32_t virtual_clock;         /**< 1: the time of policies jumps when kc_test_advance says so */
    int32_t show_log;              /**< 1: what `kbroker cluster` says goes to standard error; else errors quote it. Of nodes: kc_test_node_log */
    const kc_config_pair *configs; /**< properties of the brokers (name and value; op is not looked at) */
    size_t config_count;           /**< how many there are */
    const char *profile;           /**< "reliable"; NULL: none */
    const char *data;              /**< the folder where all is stored, and stays; NULL: a temporary one */
    const char *from;              /**< a snapshot to begin with: its path, or its name in `data`; NULL: empty */
    const char *record;            /**< a file to which each request and response is appended (kbroker print shows it); NULL: none */
    const char *faults;            /**< a file of fault rules that the nodes have from their start on; NULL: none */
    const char *kbroker;           /**< the program; NULL: it is looked for, as above */
    const char *const *arguments;  /**< more words for `kbroker cluster`, up to a NULL; NULL: none */
    int64_t timeout_us;            /**< of the start, and of each later call; 0: 60 s */
} kc_test_options;

/** Starts a cluster; *cluster serves when it returns. options NULL: all defaults; size: sizeof(kc_test_options) as the caller knows it. *cluster is the
 * caller's. KC_INVALID: kbroker is not found (the text names the places), a member is out of range; KC_TRANSPORT: it ended instead (the text says why it
 * did); KC_TIMED_OUT; KC_NO_MEMORY. */
KC_API kc_err kc_test_cluster_start(const kc_test_options *options, size_t size, kc_test_cluster **cluster, kc_error **error);
/** A cluster that somebody else has started: where is the URL of its admin port (http://HOST:PORT, as `kbroker cluster --admin` prints it) or the folder with
 * its data. All functions work on it but kc_test_cluster_stop; it outlives the handle. timeout_us: of this call and of each later one; 0: 60 s. KC_INVALID:
 * neither; KC_TRANSPORT: nobody answers there. */
KC_API kc_err kc_test_cluster_attach(const char *where, int64_t timeout_us, kc_test_cluster **cluster, kc_error **error);
/** Stops it as an operator would, and waits for that: nodes finish what they are at. What is ephemeral is gone then. KC_TRANSPORT: it ended by itself before,
 * or not cleanly; KC_TIMED_OUT: it does not end: free kills it; KC_CLOSED: it was stopped before; KC_INVALID: it was attached to. */
KC_API kc_err kc_test_cluster_stop(kc_test_cluster *cluster, kc_error **error);
/** Kills what still runs, as kill -9 does, waits for its end (milliseconds), and frees the handle; a temporary folder goes. In a forked child, or of a cluster
 * that was attached to, only the handle goes. NULL is fine. No other call on it may be under way. */
KC_API void kc_test_cluster_free(kc_test_cluster *cluster);

/** "127.0.0.1:PORT,…" of the brokers that it began with, for bootstrap.servers. Borrowed until the cluster is freed. */
KC_API const char *kc_test_cluster_bootstrap(const kc_test_cluster *cluster);
/** Where its admin port is: "http://127.0.0.1:PORT"; the folder, where it was attached to by that. Borrowed until the cluster is freed. */
KC_API const char *kc_test_cluster_admin(const kc_test_cluster *cluster);
/** The folder with its data. Borrowed until the cluster is freed. */
KC_API const char *kc_test_cluster_data(const kc_test_cluster *cluster);
/** The process of `kbroker cluster`; 0: it was attached to, or has ended. */
KC_API int64_t kc_test_cluster_pid(const kc_test_cluster *cluster);
/** The kit's own client, for kc_admin_… calls of a test. Borrowed until the cluster is freed: neither close nor free it. NULL: out of memory, or in a forked
 * child. */
KC_API kc_client *kc_test_cluster_client(kc_test_cluster *cluster);
/** Any request to the admin port: path with its query ("/status?node=0"), body JSON or NULL. *answer: the body, to be freed with kc_test_text_free, whatever
 * the status; status and answer may be NULL. KC_OK when there was an answer. */
KC_API kc_err kc_test_request(kc_test_cluster *cluster, const char *method, const char *path, const char *body, int32_t *status, char **answer,
                              kc_error **error);
/** Frees a text that a function of the kit gave; NULL does nothing. */
KC_API void kc_test_text_free(char *text);

/* -------------------------------------------------------------------- nodes */

/** What is done to nodes. */
enum kc_test_action {
    KC_TEST_STOP = 1,   /**< cleanly: leadership is handed over */
    KC_TEST_KILL = 2,   /**< kill -9 */
    KC_TEST_PAUSE = 3,  /**< stands still (SIGSTOP), as a machine that hangs: connections stay open, nothing is answered */
    KC_TEST_RESUME = 4, /**< goes on after a pause */
    KC_TEST_START = 5,  /**< one that was stopped or killed, on its old port with its old data; one that is paused goes on */
    KC_TEST_WIPE = 6,   /**< of one that is down: all of its data is lost; it stays down */
    KC_TEST_ADD = 7,    /**< a new broker of this id, started */
};
/** Does it to n nodes at the same moment, and returns when it has come about: ended, or serving again. KC_INVALID: no such node, or action; KC_UNSUPPORTED:
 * a node is not in the state for it, and nothing was done. n 0 is KC_INVALID here. */
KC_API kc_err kc_test_nodes(kc_test_cluster *cluster, int32_t action, const int32_t *ids, size_t n, kc_error **error);
KC_API kc_err kc_test_node_stop(kc_test_cluster *cluster, int32_t id, kc_error **error);   /**< kc_test_nodes, KC_TEST_STOP, one node */
KC_API kc_err kc_test_node_kill(kc_test_cluster *cluster, int32_t id, kc_error **error);   /**< kc_test_nodes, KC_TEST_KILL, one node */
KC_API kc_err kc_test_node_pause(kc_test_cluster *cluster, int32_t id, kc_error **error);  /**< kc_test_nodes, KC_TEST_PAUSE, one node */
KC_API kc_err kc_test_node_resume(kc_test_cluster *cluster, int32_t id, kc_error **error); /**< kc_test_nodes, KC_TEST_RESUME, one node */
KC_API kc_err kc_test_node_start(kc_test_cluster *cluster, int32_t id, kc_error **error);  /**< kc_test_nodes, KC_TEST_START, one node */
KC_API kc_err kc_test_node_wipe(kc_test_cluster *cluster, int32_t id, kc_error **error);   /**< kc_test_nodes, KC_TEST_WIPE, one node */
KC_API kc_err kc_test_node_add(kc_test_cluster *cluster, int32_t id, kc_error **error);    /**< kc_test_nodes, KC_TEST_ADD, one node */

/** What a node is at. */
enum kc_test_node_state {
    KC_TEST_NODE_DOWN = 0,     /**< it does not run */
    KC_TEST_NODE_STARTING = 1, /**< it runs, and does not serve yet */
    KC_TEST_NODE_UP = 2,       /**< it serves */
    KC_TEST_NODE_PAUSED = 3,   /**< it stands still */
};
/** What a node is there for. */
enum kc_test_role {
    KC_TEST_BROKER = 1,     /**< it has partitions */
    KC_TEST_CONTROLLER = 2, /**< it has a vote on the cluster's metadata */
};
/** A node of the cluster. */
typedef struct kc_test_node {
    int32_t id;          /**< as `node.id` */
    int32_t roles;       /**< bits of enum kc_test_role */
    int32_t state;       /**< enum kc_test_node_state */
    int64_t pid;         /**< 0: it does not run */
    const char *address; /**< HOST:PORT */
} kc_test_node;
/** What a cluster was at one moment; kc_test_info_free. */
typedef struct kc_test_info kc_test_info;
/** What the cluster is at this moment. *out is the caller's; its strings are borrowed until it is freed. */
KC_API kc_err kc_test_describe(kc_test_cluster *cluster, kc_test_info **out, kc_error **error);
KC_API size_t kc_test_info_node_count(const kc_test_info *i);                             /**< how many nodes it has, running or not */
KC_API kc_err kc_test_info_node(const kc_test_info *i, size_t index, kc_test_node *out); /**< index from 0; KC_INVALID past the end */
KC_API const char *kc_test_info_version(const kc_test_info *i);                           /**< kbroker's */
KC_API const char *kc_test_info_json(const kc_test_info *i);                              /**< all of it, as the cluster tells it */
KC_API void kc_test_info_free(kc_test_info *i);                                           /**< NULL does nothing */

/** What a node has written to its log (DATA/node-ID.log), the last max_bytes of it in whole lines; 0: all. For the message of a test that fails. KC_INVALID:
 * there is no such log. */
KC_API kc_err kc_test_node_log(kc_test_cluster *cluster, int32_t id, size_t max_bytes, char **text, kc_error **error);

/** Creates a topic, and waits until each of its partitions has a leader. partitions, replication_factor 0: the brokers' defaults. As
 * kc_admin_create_topics, which has more to choose; KC_TIMED_OUT: it is there, and a partition has no leader. */
KC_API kc_err kc_test_topic_create(kc_test_cluster *cluster, const char *name, int32_t partitions, int32_t replication_factor, const kc_config_pair *configs,
                                   size_t config_count, kc_error **error);

/* ------------------------------------------------------------------- faults */

/** Where 0 is meant in a fault, and not the default. */
enum kc_test_fault_flag {
    KC_TEST_HAS_VERSIONS = 1,  /**< version_min and version_max are meant */
    KC_TEST_HAS_PARTITION = 2, /**< `partition` is meant */
    KC_TEST_HAS_BROKER = 4,    /**< `broker` is meant */
    KC_TEST_HAS_CORRUPT = 8,   /**< `corrupt` is meant */
};
/** A fault rule: which requests, and what happens to them. Zero-filled members are not given. What each means: "Fault rules" in kbroker's README. */
typedef struct kc_test_fault {
    uint32_t flags;         /**< enum kc_test_fault_flag */
    /* which */
    const char *api;        /**< "Produce", or its key as text; NULL: any */
    int32_t version_min;    /**< with KC_TEST_HAS_VERSIONS, or when version_max > 0 */
    int32_t version_max;    /**< the last one */
    const char *client_id;  /**< as the request says; NULL: any */
    const char *topic;      /**< that the request names, by name or id; NULL: any */
    const char *group;      /**< that the request names, as a member's, of offsets or about it; NULL: any */
    const char *from;       /**< "clients", or "nodes": what the cluster's nodes ask of each other; NULL: both */
    int32_t partition;      /**< with KC_TEST_HAS_PARTITION, or when > 0 */
    int32_t broker;         /**< only on this node; with KC_TEST_HAS_BROKER, or when > 0 */
    int64_t after;          /**< the first so many are let pass */
    int64_t nth;            /**< only this one */
    int64_t every;          /**< every so-manieth */
    double percent;         /**< some, at random */
    int64_t times;          /**< at most so many strikes */
    const char *disk;       /**< in place of requests: "read", "write" or "sync" of logs */
    /* what */
    int32_t after_effect;   /**< 1: the request has its effect first ("when": "after") */
    int32_t close;          /**< 1: the connection is closed in place of an answer */
    int32_t stall;          /**< 1: there is no answer, ever */
    int64_t delay_ms;       /**< it waits; goes with any other */
    int64_t throttle_ms;    /**< the answer's throttle time */
    int64_t drip_bytes_per_s; /**< the pace of the answer's bytes */
    const char *error;      /**< name or number of a Kafka error; with `disk` "EIO", "ENOSPC" */
    int32_t corrupt;        /**< a bit of the answer's byte at this place flips, negative: from its end; with KC_TEST_HAS_CORRUPT, or when not 0 */
    const char *note;       /**< for who reads the log */
} kc_test_fault;

/** Rules that were added by one call, on one node or several. They stay until they are removed, or their node ends: one that starts again has none of them. */
typedef struct kc_test_rule kc_test_rule;
/** Adds a rule to n nodes (0: all that run). size: sizeof(kc_test_fault) as the caller knows it. *rule is the caller's; rule may be NULL. KC_INVALID: the
 * text names the field that is wrong. */
KC_API kc_err kc_test_fault_add(kc_test_cluster *cluster, const kc_test_fault *fault, size_t size, const int32_t *nodes, size_t n, kc_test_rule **rule,
                                kc_error **error);
/** The same with rules as JSON: one rule, an array, or {"rules": […]}. The handle stands for all of them. */
KC_API kc_err kc_test_fault_add_json(kc_test_cluster *cluster, const char *json, const int32_t *nodes, size_t n, kc_test_rule **rule, kc_error **error);
/** How often it has struck, on all of its nodes together; of nodes that cannot be asked (any more) what was known last. Never less than told before. */
KC_API kc_err kc_test_rule_hits(kc_test_rule *rule, int64_t *hits, kc_error **error);
/** Waits until it has struck so often. KC_TIMED_OUT: the text says how often it has. */
KC_API kc_err kc_test_rule_wait(kc_test_rule *rule, int64_t hits, int64_t timeout_us, kc_error **error);
/** Takes it away: who was stalled by it goes on. On nodes that have ended since there is nothing to do. Again: KC_CLOSED. KC_UNSUPPORTED: a node is paused. */
KC_API kc_err kc_test_rule_remove(kc_test_rule *rule, kc_error **error);
/** Frees the handle; the rule stays. Before its cluster is freed. */
KC_API void kc_test_rule_free(kc_test_rule *rule);
/** Takes all rules of n nodes away. */
KC_API kc_err kc_test_faults_clear(kc_test_cluster *cluster, const int32_t *nodes, size_t n, kc_error **error);
/** The rules of n nodes, with what they have seen and struck: {"nodes": [{"id": 0, "rules": […]}]}. */
KC_API kc_err kc_test_faults_list(kc_test_cluster *cluster, const int32_t *nodes, size_t n, char **json, kc_error **error);

/* ------------------------------------------------ status, clock, snapshots */

/** What n nodes are and have counted: {"nodes": [{"id": 0, "status": {…}}]}. */
KC_API kc_err kc_test_status(kc_test_cluster *cluster, const int32_t *nodes, size_t n, char **json, kc_error **error);
/** One of the counts ("unclean_elections", "guid_duplicates", …), added up over the nodes that run, since each one's start. KC_INVALID: there is none of
 * this name. */
KC_API kc_err kc_test_count(kc_test_cluster *cluster, const char *name, int64_t *sum, kc_error **error);

/** Has the clock of a cluster with a virtual one jump: what is due by then has happened, or is under way, when it returns. advance_ms: 1 or more.
 * KC_UNSUPPORTED: the clock is real. */
KC_API kc_err kc_test_advance(kc_test_cluster *cluster, int64_t advance_ms, kc_error **error);
/** What its clock says (ms since 1970), and by how much it was advanced in all; each may be NULL. */
KC_API kc_err kc_test_clock(kc_test_cluster *cluster, int64_t *wall_ms, int64_t *advanced_ms, kc_error **error);

/** Saves the state of all nodes, of one moment, under a name (in the cluster's data folder, so that it goes with an ephemeral one) or, with a / in it, a
 * path. replace 1: in place of one that has this name. *bytes: its size; may be NULL. KC_UNSUPPORTED: there is one of this name. */
KC_API kc_err kc_test_snapshot_save(kc_test_cluster *cluster, const char *name, int32_t replace, int64_t *bytes, kc_error **error);
/** Puts all nodes back to it, and returns when they serve: nodes that run are killed for it, and come up on their old ports. */
KC_API kc_err kc_test_snapshot_restore(kc_test_cluster *cluster, const char *name, kc_error **error);
/** Takes it away. KC_INVALID: there is none of this name. */
KC_API kc_err kc_test_snapshot_delete(kc_test_cluster *cluster, const char *name, kc_error **error);
/** Which there are, as the cluster tells it (JSON). */
KC_API kc_err kc_test_snapshot_list(kc_test_cluster *cluster, char **json, kc_error **error);

/* ------------------------------------------------------------------ waiting */

/** In place of a broker's id. */
enum kc_test_leader {
    KC_TEST_ANYBODY = -1, /**< whoever it is */
    KC_TEST_NOBODY = -2,  /**< there is no leader */
};
/** Waits until a partition is led by this broker, by KC_TEST_ANYBODY, or by KC_TEST_NOBODY. *leader: who leads then (-1: nobody); may be NULL. KC_TIMED_OUT:
 * the text says who leads, and who is in sync. */
KC_API kc_err kc_test_wait_leader(kc_test_cluster *cluster, const char *topic, int32_t partition, int32_t wanted, int64_t timeout_us, int32_t *leader,
                                  kc_error **error);
/** Waits until exactly these brokers are in sync with a partition, in any order. */
KC_API kc_err kc_test_wait_isr(kc_test_cluster *cluster, const char *topic, int32_t partition, const int32_t *brokers, size_t n, int64_t timeout_us,
                               kc_error **error);
/** Waits until a group has given a consumer its partitions (kc_consumer_await_assigned: it then has to poll for them). KC_TIMED_OUT: the text says on what, and
 * on whom, it waits. */
KC_API kc_err kc_test_wait_assigned(kc_consumer *consumer, int64_t timeout_us, kc_error **error);

#ifdef __cplusplus
}
#endif
#endif
