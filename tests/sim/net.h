/* net.h - the simulated network: connections of bytes between hosts (clients and brokers to brokers), with everything that goes wrong on the way.
 *
 * A connection is two pipes. What is written arrives in order, later, in pieces; the receiver may get one byte at a time, the sender may
 * get rid of a few bytes only. A connection can be reset at any byte, its peer can be gone without a word (half-open), its bytes can be
 * held back and then come all at once (clog, partition). All of it is drawn from the world's generator.
 *
 * Called by broker_host.c, client_host.c and attacker.c; faults are set by faults.c. Calls world.
 */
#ifndef SIM_NET_H
#define SIM_NET_H

#include "world.h"

enum sim_side { SIM_CLIENT, SIM_BROKER };
enum { SIM_READ_NONE = -1, SIM_READ_EOF = 0, SIM_READ_RESET = -2 };

struct sim_net_faults { /* chances per million, at each occasion */
    uint32_t refused, syn_lost, reset, half_open, one_byte, short_send, slow_reader, clog, resolve, tail_delay, hostile_answer;
    int64_t delay_us; /* typical, one way */
};

struct sim_segment {
    int64_t at_us;
    size_t bytes;
    bool fin, reset; /* the end, behind the bytes */
};
struct sim_pipe {
    uint8_t *buf; /* written and not read: [head, head + len) */
    size_t head, len, cap;
    size_t arrived;  /* of len */
    size_t window;   /* len at most */
    struct sim_segment *segs;
    size_t seg_head, seg_count, seg_cap;
    bool fin, reset;     /* have arrived */
    bool closed;         /* nothing more may be written */
    bool full;           /* the writer waits */
    uint64_t total, reset_at; /* bytes written; where the connection breaks (UINT64_MAX: nowhere) */
    bool one_byte;
    uint32_t read_chance; /* slow reader: how likely it reads at all in a turn, per million */
    uint64_t taken;       /* bytes read */
    uint64_t poison_at;   /* where something hostile ends: a reader that has come so far must not go on reading; UINT64_MAX: nowhere */
};
struct sim_conn {
    struct kw_list link; /* in the net's conns until both sides have let go */
    struct sim_net *net;
    uint64_t id;
    int from, to, server; /* hosts' numbers, but for to: the address that was asked for; server: who is there, as far as anybody knows */
    struct sim_pipe pipe[2]; /* [side]: what that side writes */
    bool open[2];            /* that side holds it */
    bool gone[2];            /* that side is no more, and the other was not told: what comes is answered with a reset, or not at all */
    bool established, refused, silent; /* client's view: silent, no answer to the SYN ever comes */
    uint64_t clogged_until_us;
    void *peer[2];
};

/* Hosts are numbered: the nodes from 0, then the clients. */
#define SIM_NODES_MAX 9     /* that the checkers keep account of */
#define SIM_SERVERS_MAX 64  /* that the network knows: growth.c has more nodes */
#define SIM_CLIENTS_MAX 8
#define SIM_ATTACKER (SIM_CLIENTS_MAX - 1) /* the hostile one among the clients' numbers */
#define SIM_HOSTS_MAX (SIM_SERVERS_MAX + SIM_CLIENTS_MAX)
static inline int sim_client_host(int client) { return SIM_SERVERS_MAX + client; }
struct sim_server { /* a node's end of the network */
    bool listening;  /* its process has the port */
    bool machine_up; /* its machine answers at all */
    int address;     /* it is at 10.0.0.<address> */
    struct sim_conn *accepts[64]; /* waiting to be accepted */
    size_t accept_count;
};
struct sim_net {
    struct sim_world *w;
    struct sim_net_faults faults;
    struct sim_host *hosts[SIM_HOSTS_MAX]; /* NULL: none of this number */
    struct sim_server servers[SIM_SERVERS_MAX];
    struct kw_list conns;
    uint64_t next_id;
    struct sim_conn **by_id; /* [id], NULL when it is over: events hold ids */
    size_t by_id_cap;
    void (*tap)(void *ctx, struct sim_conn *c, enum sim_side side, const void *p, size_t n); /* sees what is written; may be NULL */
    void *tap_ctx;
    int64_t cut_until_us[SIM_HOSTS_MAX][SIM_HOSTS_MAX]; /* [host that writes][host that would read]: nothing gets through before */
};

void sim_net_init(struct sim_net *n, struct sim_world *w);
void sim_net_deinit(struct sim_net *n);
void sim_net_heal(struct sim_net *n); /* everything that is held back goes on, nothing breaks any more */

/* SIM_CLIENT is the side that connects, be it a client or a node; established or refused turns true in time, or never. */
struct sim_conn *sim_connect(struct sim_net *n, int from, int to, void *peer);
struct sim_conn *sim_accept(struct sim_net *n, int server); /* NULL: nobody waits */
static inline int sim_net_servers(const struct sim_net *n) {
    int k = 0;
    for (int i = 0; i < SIM_SERVERS_MAX; i++) k += n->hosts[i] != NULL;
    return k;
}
static inline bool sim_from_client(const struct sim_conn *c) { return c->from >= SIM_SERVERS_MAX; }
/* Bytes taken, 0: none now (the host is woken when there is room), -1: the connection is broken. */
int64_t sim_write(struct sim_conn *c, enum sim_side side, const void *p, size_t n);
/* Bytes read, or SIM_READ_*. */
int64_t sim_read(struct sim_conn *c, enum sim_side side, void *p, size_t n);
/* What the side has read ends at or behind something hostile. */
static inline bool sim_poisoned(const struct sim_conn *c, enum sim_side side) { return c->pipe[!side].taken >= c->pipe[!side].poison_at; }
static inline bool sim_readable(const struct sim_conn *c, enum sim_side side) {
    const struct sim_pipe *p = &c->pipe[!side];
    return p->arrived > 0 || p->fin || p->reset;
}
void sim_close(struct sim_conn *c, enum sim_side side, bool reset); /* the caller lets go of it; it may be freed */
/* A node's process, or its machine, is gone: the other ends learn of it (a machine says nothing). */
void sim_net_node_died(struct sim_net *n, int server, bool machine);
void sim_net_cut(struct sim_net *n, int from, int to, int64_t until_us);

#endif
