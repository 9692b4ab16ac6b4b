/* node.h - one broker node's core: events in from the shell, actions out (disk queue, replies, closes). Single-threaded, no I/O.
 *
 * Called by main/shell_net/shell_disk and by the simulator, which is another shell over the same core. Calls dispatch (frames),
 * quorum/ (metadata), replica/ (partitions). After every event the shell: takes disk requests (kb_disk_take), takes connections
 * with something to do (kb_node_next_conn), and re-arms its timer to kb_node_deadline.
 */
#ifndef KB_NODE_H
#define KB_NODE_H

#include "base/map.h"
#include "base/rng.h"
#include "base/timers.h"
#include "config.h"
#include "event.h"
#include "log/log.h"

struct kb_node;
struct kb_conn;

struct kb_node_options {
    const struct kb_config *config; /* outlives the node; dynamic changes go through the image */
    uint64_t seed;                  /* for all randomness of the core: ids, jitter */
    struct kb_logger logger;
    struct kb_recorder recorder; /* is shown each frame of each connection that the node takes */
    const char *faults_json; /* rules of --faults FILE; NULL: none */
    uint16_t port;           /* of the first listener, bound by the shell before the node starts */
    const char
        *boot_id;   /* the operating system's, new after each of its starts: tells a killed process from a lost machine; NULL: unknown */
    int32_t open_files_max; /* segments that are kept open for reading; 0: 1024 */
    int64_t ahead_ms;       /* a virtual clock that was advanced before this node started; wall clocks that it is told of are already */
    bool ephemeral; /* nothing is ever synced: the data is to go at the end */
};

/* Life: new -> start -> (ready) -> stop -> stopped. */
kw_err kb_node_new(const struct kb_node_options *o, struct kb_node **node) KW_CHECK;
kw_err kb_node_start(struct kb_node *n, struct kb_now now) KW_CHECK; /* queues the loading; kb_node_state tells */
void kb_node_stop(struct kb_node *n, struct kb_now now); /* clean shutdown: refuses new work, syncs, writes checkpoints and the marker */
/* The end, at any time, once the shell has told of every connection's close and given back every disk request; without a stop before, it is
 * what a kill -9 leaves. drop lets go of everything: what the disk queue has then are closes of files, which the shell still carries out;
 * then free. */
void kb_node_drop(struct kb_node *n);
void kb_node_free(struct kb_node *n); /* NULL is fine */
enum kb_node_state { KB_NODE_NEW, KB_NODE_LOADING, KB_NODE_READY, KB_NODE_STOPPING, KB_NODE_STOPPED, KB_NODE_FAILED };
enum kb_node_state kb_node_state(const struct kb_node *n);
/* Connections are to be let in: from READY on, and in a quorum of several voters from when requests of the quorum can be served (all others
 * are refused until READY). Never in a state that does not come to READY. */
bool kb_node_accepts(const struct kb_node *n);
const char *kb_node_failure(const struct kb_node *n); /* what failed, where, why, what to do; NULL unless FAILED */

/* Time. */
int64_t kb_node_deadline(const struct kb_node *n);       /* monotonic us of the next timer; KW_NEVER */
void kb_node_tick(struct kb_node *n, struct kb_now now); /* runs due timers and end-of-turn work; the shell ends every turn with it */

/* A virtual clock (--clock virtual) is advanced by ms; now.wall_ms, here and from now on, is after that, now.mono_us is untouched: elections, sessions
 * between nodes and waits go on as they were. What policies time jumps (README.md, "Virtual clock"): what is due by then comes with the next
 * kb_node_tick. KW_EINVAL, and nothing happens: negative, or together over KB_AHEAD_MS_MAX. */
#define KB_AHEAD_MS_MAX INT64_C(3155760000000) /* a hundred years */
kw_err kb_node_advance(struct kb_node *n, int64_t ms, struct kb_now now) KW_CHECK;
int64_t kb_node_ahead_ms(const struct kb_node *n); /* by all advances together */

/* Disk. */
struct kb_disk *kb_node_disk(struct kb_node *n);
void kb_node_disk_done(struct kb_node *n, struct kb_disk_req *r, struct kb_now now);

/* Fault rules (README.md), changed while the node runs. As kb_faults_add, kb_faults_clear and kb_faults_list in fault.h. */
struct kb_fault_wrong { /* rules that were refused */
    int32_t rule;   /* the how-manieth of them, from 1; 0: what was sent is no list of rules */
    char field[40]; /* the one that is wrong, as it was sent (cut); "": the rule as a whole is */
    char text[500]; /* with the rule's number */
};
kw_err kb_node_faults_add(struct kb_node *n, const char *json, int32_t *first, struct kb_fault_wrong *wrong) KW_CHECK;
size_t kb_node_faults_clear(struct kb_node *n, int32_t number, struct kb_now now);
char *kb_node_faults_list(struct kb_node *n);
/* What it has counted since its start; names are constants. */
enum { KB_NODE_COUNTS = 14 };
struct kb_node_count {
    const char *name;
    int64_t value;
};
size_t kb_node_counts(const struct kb_node *n, struct kb_node_count out[KB_NODE_COUNTS]);
/* What it is and what it has counted since its start, as JSON (README.md, "Admin port"); kw_free. NULL: out of memory. */
char *kb_node_status(const struct kb_node *n);

/* Network. The shell asks where to read, so that a large frame lands once, in the block that the log will write from. */
struct kb_conn_info {
    const char *local_host; /* the address that the client connected to: advertised unless configured */
    uint16_t local_port;
    const char *peer; /* "127.0.0.1:51234" for log lines and DescribeX answers */
};
struct kb_conn *kb_node_accept(struct kb_node *n, const struct kb_conn_info *info, void *shell,
                               struct kb_now now); /* NULL: refused (limits, stopping); the shell closes */
/* Bytes wanted next: *n 0 means stop reading until kb_conn_wants_read turns true (backpressure). */
void kb_conn_recv_buf(struct kb_conn *c, uint8_t **p, size_t *n);
void kb_conn_received(struct kb_conn *c, size_t n, struct kb_now now);
bool kb_conn_wants_read(const struct kb_conn *c);
void kb_conn_closed(struct kb_conn *c,
                    struct kb_now now); /* the peer closed, or the socket failed, or the shell carried out a close; c is gone afterwards */

/* Connections with actions: replies to send, a close to carry out, or a change of wants_read. NULL when none are left. */
struct kb_conn *kb_node_next_conn(struct kb_node *n);
struct kb_reply *kb_conn_take_reply(struct kb_conn *c); /* in order; the shell frees it when sent or when the connection goes */
bool kb_conn_wants_close(const struct kb_conn *c);      /* after the replies taken so far are sent */
void kb_conn_sent(struct kb_conn *c, size_t bytes, struct kb_now now); /* progress: output backpressure */
void *kb_conn_shell(const struct kb_conn *c);

/* Connections that the node opens (link.h). A dial is one of them as the shell sees it: from the wish to connect to the shell's last word.
 * The shell gives a new dial (kb_dial_shell NULL) its own object, looks the host up where it is a name, connects, and tells of it; then
 * bytes go both ways; then it ends: kb_dial_ended is the last call on a dial, made after the socket was closed. Its order of events:
 * [connected, then received and sent in any order,] ended. A dial may want to be closed at any time, before it is connected too.
 * Names are looked up without holding up the loop; a failed lookup is UNREACHABLE. The end of a node's life: the shell closes its sockets
 * and forgets its dials; kb_node_drop lets go of them. */
enum kb_link_end {
    KB_LINK_CLOSED, /* by this node */
    KB_LINK_CLOSED_BY_PEER,
    KB_LINK_RESET,       /* by the peer, or the network */
    KB_LINK_REFUSED,     /* nothing listens there: the process is not there */
    KB_LINK_UNREACHABLE, /* any other way in which connecting failed */
    KB_LINK_TIMED_OUT,   /* connecting, or an answer, took too long */
    KB_LINK_BROKEN,      /* what came is not what was to come */
};
const char *kb_link_end_text(enum kb_link_end how); /* as a person reads it: "the connection was refused" */
struct kb_dial;
/* Dials with something to do: to be connected, bytes to send, to be closed. NULL when none are left. */
struct kb_dial *kb_node_next_dial(struct kb_node *n);
void kb_dial_address(const struct kb_dial *d, const char **host, uint16_t *port);
void kb_dial_set_shell(struct kb_dial *d, void *shell);
void *kb_dial_shell(const struct kb_dial *d);
bool kb_dial_wants_close(const struct kb_dial *d); /* at once, whatever is unsent: close, then kb_dial_ended(KB_LINK_CLOSED) */
void kb_dial_connected(struct kb_dial *d, struct kb_now now);
size_t kb_dial_send(const struct kb_dial *d, struct kb_iov *iov, size_t max); /* what is unsent, in order; 0: nothing, or not connected */
void kb_dial_sent(struct kb_dial *d, size_t bytes, struct kb_now now);
void kb_dial_recv_buf(struct kb_dial *d, uint8_t **p, size_t *n); /* n 0: nothing is to be read any more */
void kb_dial_received(struct kb_dial *d, size_t n, struct kb_now now); /* 0 gives the buffer back */
void kb_dial_ended(struct kb_dial *d, enum kb_link_end how, struct kb_now now); /* CLOSED_BY_PEER, RESET, REFUSED, UNREACHABLE, or CLOSED */

#endif
