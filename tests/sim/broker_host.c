/* broker_host.c - see broker_host.h. A turn does what the real shell's does: events in, disk requests out, replies out, timer. */
#include "broker_host.h"

#include <stdio.h>
#include <stdlib.h>

#include "conn.h"

enum { ROUNDS_MAX = 2000, DRAIN_MAX = 100000, READS = 8, PIECE = 16384 };

struct sock {
    struct kw_list link;
    struct sim_conn *net;
    struct kb_conn *core;
    struct kw_list replies;
    size_t part, part_sent;
    bool judged;      /* the first reply in the list: whether it is to be damaged */
    uint8_t *damaged; /* what goes out in its place */
    size_t damaged_size, damaged_sent;
    bool fatal;       /* and it leaves the client no choice but to close; a body that is too short concerns its request alone */
};

static struct sock *sock_at(struct kw_list *l) {
    return KW_CONTAINER_OF(l, struct sock, link);
}

static void say(void *ctx, enum kb_level level, const char *text) {
    (void)level;
    struct sim_broker *b = ctx;
    sim_say(b->w, b->host.name, text);
}

/* ---- Connections ---- */

static void sock_close(struct sim_broker *b, struct sock *k, bool reset) {
    struct kw_list *l;
    kw_list_remove(&k->link);
    while ((l = kw_list_shift(&k->replies))) kb_reply_free(KW_CONTAINER_OF(l, struct kb_reply, link));
    kb_conn_closed(k->core, sim_broker_now(b));
    if (k->net) sim_close(k->net, SIM_BROKER, reset);
    free(k->damaged);
    free(k);
}

static bool take_connections(struct sim_broker *b) {
    struct sim_conn *c;
    bool any = false;
    while (kb_node_accepts(b->node) && (c = sim_accept(b->net, b->index))) {
        char peer[32], local[32];
        snprintf(local, sizeof local, "10.0.0.%d", b->net->servers[b->index].address);
        snprintf(peer, sizeof peer, "10.0.%d.%d:%u", sim_from_client(c), sim_from_client(c) ? c->from - SIM_SERVERS_MAX + 1 : c->from + 1,
                 40000 + (unsigned)(c->id % 20000));
        struct kb_conn_info info = {.local_host = local, .local_port = 9092, .peer = peer};
        struct sock *k = sim_need(calloc(1, sizeof *k));
        kw_list_init(&k->link);
        kw_list_init(&k->replies);
        k->net = c;
        k->core = kb_node_accept(b->node, &info, k, sim_broker_now(b));
        sim_trace(b->w, "%s accepts connection %llu of %s %d%s", b->host.name, (unsigned long long)c->id, sim_from_client(c) ? "client" : "node",
                  sim_from_client(c) ? c->from - SIM_SERVERS_MAX : c->from, k->core ? "" : ": refused");
        if (!k->core) {
            sim_close(c, SIM_BROKER, true);
            free(k);
            continue;
        }
        c->peer[SIM_BROKER] = k;
        kw_list_push(&b->socks, &k->link);
        any = true;
    }
    return any;
}

/* false: it is over. */
static bool receive(struct sim_broker *b, struct sock *k, bool *any) {
    for (int i = 0; i < READS; i++) {
        if (!sim_readable(k->net, SIM_BROKER) || !kb_conn_wants_read(k->core)) return true;
        uint8_t *p;
        size_t n;
        kb_conn_recv_buf(k->core, &p, &n);
        if (n == 0) return true;
        int64_t got = sim_read(k->net, SIM_BROKER, p, n);
        if (got == SIM_READ_NONE) {
            kb_conn_received(k->core, 0, sim_broker_now(b));
            return true;
        }
        if (got <= 0) {
            sim_trace(b->w, "%s: connection %llu %s", b->host.name, (unsigned long long)k->net->id, got == SIM_READ_EOF ? "ended" : "reset");
            return false;
        }
        *any = true;
        sim_hash(b->w, p, (size_t)got);
        kb_conn_received(k->core, (size_t)got, sim_broker_now(b));
    }
    return true;
}

static void advance(struct sim_broker *b, struct sock *k, size_t bytes) {
    kb_conn_sent(k->core, bytes, sim_broker_now(b));
    while (!kw_list_empty(&k->replies)) {
        struct kb_reply *r = KW_CONTAINER_OF(k->replies.next, struct kb_reply, link);
        while (k->part < r->part_count && bytes >= r->parts[k->part].len - k->part_sent) {
            bytes -= r->parts[k->part].len - k->part_sent;
            k->part_sent = 0;
            k->part++;
        }
        if (k->part < r->part_count) {
            k->part_sent += bytes;
            return;
        }
        kw_list_remove(&r->link);
        kb_reply_free(r);
        k->part = 0;
        k->judged = false;
    }
}

/* ---- Answers that are not what the node said ---- */

static uint8_t *gather(struct sim_broker *b, const struct kb_reply *r, size_t extra) {
    uint8_t *p = sim_need(malloc(r->total + extra)), *at = p;
    for (size_t i = 0; i < r->part_count; at += r->parts[i++].len) {
        const struct kb_part *x = &r->parts[i];
        if (x->p)
            memcpy(at, x->p, x->len);
        else if (sim_disk_pread(b->disk, x->file, x->offset, at, x->len) < x->len)
            sim_fail(b->w, 10, "a reply takes bytes of a file that it does not have");
    }
    return p;
}

/* Damage that can be told from the frame alone: the client must find it. What only a checksum could tell is not in the protocol's power. */
static void damage(struct sim_broker *b, struct sock *k, const struct kb_reply *r) {
    struct sim_world *w = b->w;
    if (r->total < 9 || k->net->from == sim_client_host(SIM_ATTACKER)) return;
    uint8_t *p = gather(b, r, 64);
    size_t n = r->total;
    int kind = (int)sim_below(w, 4);
    switch (kind) {
    case 0: /* the body ends too early */
        n = 8 + sim_below(w, n - 8);
        kw_store32(p, (uint32_t)(n - 4));
        sim_fire(w, SIM_F_ANSWER_CUT);
        break;
    case 1: {
        static const uint32_t lengths[] = {0xffffffffu, 0x80000000u, 0, 3, 0x7fffffffu, 0x15030100u};
        kw_store32(p, lengths[sim_below(w, KW_COUNTOF(lengths))]);
        sim_fire(w, SIM_F_ANSWER_LENGTH);
        break;
    }
    case 2:
        kw_store32(p + 4, kw_load32(p + 4) ^ (1u << sim_below(w, 32)));
        sim_fire(w, SIM_F_ANSWER_ID);
        break;
    default: /* a frame that nobody asked for comes first */
        memmove(p + 12, p, n);
        kw_store32(p, 8);
        kw_store32(p + 4, (uint32_t)kw_rng_next(&w->rng) | 0x40000000u);
        n += 12;
        sim_fire(w, SIM_F_ANSWER_UNASKED);
        break;
    }
    k->damaged = p;
    k->damaged_size = n;
    k->damaged_sent = 0;
    k->fatal = kind != 0;
    sim_trace(w, "an answer on connection %llu is damaged", (unsigned long long)k->net->id);
}

/* Bytes sent, 0 none now, -1 broken. */
static int64_t send_damaged(struct sim_broker *b, struct sock *k, size_t total) {
    int64_t n = sim_write(k->net, SIM_BROKER, k->damaged + k->damaged_sent, k->damaged_size - k->damaged_sent);
    if (n <= 0) return n;
    k->damaged_sent += (size_t)n;
    if (k->damaged_sent < k->damaged_size) return n;
    struct sim_pipe *p = &k->net->pipe[SIM_BROKER];
    if (k->fatal) p->poison_at = KW_MIN(p->poison_at, p->total);
    free(k->damaged);
    k->damaged = NULL;
    advance(b, k, total);
    return n;
}

/* Memory or a file's bytes, as they are now. */
static int64_t send_part(struct sim_broker *b, struct sock *k, const struct kb_part *p) {
    uint8_t piece[PIECE];
    const uint8_t *at = p->p ? p->p + k->part_sent : piece;
    size_t n = p->len - k->part_sent;
    if (!p->p) {
        n = KW_MIN(n, sizeof piece);
        size_t got = sim_disk_pread(b->disk, p->file, p->offset + (int64_t)k->part_sent, piece, n);
        if (got < n) { /* what a follower is sent may be cut off meanwhile, where this node led no longer: the connection ends */
            if (!sim_from_client(k->net)) return -1;
            sim_fail(b->w, 10, "a reply takes %zu bytes at %lld of a file that has %zu of them", n, (long long)p->offset, got);
        }
    }
    return sim_write(k->net, SIM_BROKER, at, n);
}

/* false: the connection is broken. */
static bool send_some(struct sim_broker *b, struct sock *k, bool *any) {
    for (;;) {
        for (struct kb_reply *r; (r = kb_conn_take_reply(k->core));) {
            kw_list_push(&k->replies, &r->link);
            if (k->replies.next == &r->link && r->total == 0) advance(b, k, 0);
        }
        if (kw_list_empty(&k->replies)) return true;
        struct kb_reply *r = KW_CONTAINER_OF(k->replies.next, struct kb_reply, link);
        if (!k->judged && sim_chance(b->w, b->net->faults.hostile_answer)) damage(b, k, r);
        k->judged = true;
        bool damaged = k->damaged != NULL;
        int64_t n = damaged ? send_damaged(b, k, r->total) : send_part(b, k, &r->parts[k->part]);
        if (n < 0) return false;
        if (n == 0) return true;
        *any = true;
        if (!damaged) advance(b, k, (size_t)n);
    }
}

static bool serve(struct sim_broker *b, struct sock *k) {
    bool any = false;
    if (!send_some(b, k, &any) || (kb_conn_wants_close(k->core) && kw_list_empty(&k->replies))) {
        sock_close(b, k, false);
        return true;
    }
    return any;
}

struct call { /* a dial, as this shell sees it */
    struct kw_list link;
    struct kb_dial *core;
    struct sim_conn *net;
    bool connecting;
};
static struct call *call_at(struct kw_list *l) {
    return KW_CONTAINER_OF(l, struct call, link);
}

/* Behind a length that cannot be there is nothing to be read. */
static void check_poison(struct sim_broker *b) {
    for (struct kw_list *l = b->socks.next; l != &b->socks; l = l->next) {
        struct sock *k = sock_at(l);
        if (sim_poisoned(k->net, SIM_BROKER) && kb_conn_wants_read(k->core))
            sim_fail(b->w, 37, "%s reads on behind an impossible length on connection %llu", b->host.name, (unsigned long long)k->net->id);
    }
    for (struct kw_list *l = b->dials.next; l != &b->dials; l = l->next) {
        struct call *k = call_at(l);
        if (!k->connecting && sim_poisoned(k->net, SIM_CLIENT) && !kb_dial_wants_close(k->core))
            sim_fail(b->w, 37, "%s reads on behind an impossible answer on connection %llu", b->host.name, (unsigned long long)k->net->id);
    }
}

static bool run_connections(struct sim_broker *b) {
    bool any = false;
    struct kw_list *l, *next;
    for (l = b->socks.next; l != &b->socks; l = next) {
        next = l->next;
        struct sock *k = sock_at(l);
        if (!receive(b, k, &any)) {
            sock_close(b, k, false);
            any = true;
        }
    }
    for (struct kb_conn *c; (c = kb_node_next_conn(b->node));) any = serve(b, kb_conn_shell(c)) || any;
    for (l = b->socks.next; l != &b->socks; l = next) { /* those whose pipe has room again */
        next = l->next;
        struct sock *k = sock_at(l);
        if (!kw_list_empty(&k->replies)) any = serve(b, k) || any;
    }
    return any;
}

/* ---- Connections that the node opens ---- */

static void call_end(struct sim_broker *b, struct call *k, enum kb_link_end how) {
    struct kb_dial *core = k->core;
    sim_trace(b->w, "%s: its connection %llu: %s", b->host.name, (unsigned long long)k->net->id, kb_link_end_text(how));
    sim_close(k->net, SIM_CLIENT, how == KB_LINK_RESET);
    kw_list_remove(&k->link);
    free(k);
    kb_dial_ended(core, how, sim_broker_now(b));
}

static struct call *call_begin(struct sim_broker *b, struct kb_dial *core) {
    const char *host;
    uint16_t port;
    struct call *k = sim_need(calloc(1, sizeof *k));
    kb_dial_address(core, &host, &port);
    kw_list_init(&k->link);
    kw_list_push(&b->dials, &k->link);
    k->core = core;
    k->connecting = true;
    k->net = sim_connect(b->net, b->index, atoi(strrchr(host, '.') + 1), k);
    kb_dial_set_shell(core, k);
    sim_trace(b->w, "%s connects to %s: %llu", b->host.name, host, (unsigned long long)k->net->id);
    return k;
}

/* false: it is over. */
static bool call_send(struct sim_broker *b, struct call *k, bool *any) {
    struct kb_iov iov[4];
    while (!k->connecting && kb_dial_send(k->core, iov, KW_COUNTOF(iov)) > 0) {
        int64_t n = sim_write(k->net, SIM_CLIENT, iov[0].p, iov[0].len);
        if (n < 0) return false;
        if (n == 0) return true;
        *any = true;
        kb_dial_sent(k->core, (size_t)n, sim_broker_now(b));
    }
    return true;
}

/* 1: goes on; 0: the peer closed; -1: broken. */
static int call_receive(struct sim_broker *b, struct call *k, bool *any) {
    for (int i = 0; i < READS && !kb_dial_wants_close(k->core); i++) {
        uint8_t *p;
        size_t n;
        if (!sim_readable(k->net, SIM_CLIENT)) return 1;
        kb_dial_recv_buf(k->core, &p, &n);
        if (n == 0) return 1;
        int64_t got = sim_read(k->net, SIM_CLIENT, p, n);
        if (got > 0) sim_hash(b->w, p, (size_t)got); /* while it is there: the core may free it */
        kb_dial_received(k->core, got > 0 ? (size_t)got : 0, sim_broker_now(b));
        if (got == SIM_READ_NONE) return 1;
        if (got <= 0) return got == SIM_READ_EOF ? 0 : -1;
        *any = true;
    }
    return 1;
}

static bool run_call(struct sim_broker *b, struct call *k) {
    bool any = false;
    if (kb_dial_wants_close(k->core)) {
        call_end(b, k, KB_LINK_CLOSED);
        return true;
    }
    if (k->connecting) {
        if (k->net->refused) {
            call_end(b, k, KB_LINK_REFUSED);
            return true;
        }
        if (!k->net->established) return false;
        k->connecting = false;
        kb_dial_connected(k->core, sim_broker_now(b));
        return true;
    }
    int rc = call_receive(b, k, &any);
    if (rc <= 0 || !call_send(b, k, &any)) {
        call_end(b, k, rc == 0 ? KB_LINK_CLOSED_BY_PEER : KB_LINK_RESET);
        return true;
    }
    return any;
}

static bool run_calls(struct sim_broker *b) {
    bool any = false;
    struct kw_list *l, *next;
    for (struct kb_dial *d; (d = kb_node_next_dial(b->node));) {
        struct call *k = kb_dial_shell(d);
        any = run_call(b, k ? k : call_begin(b, d)) || any;
    }
    for (l = b->dials.next; l != &b->dials; l = next) {
        next = l->next;
        any = run_call(b, call_at(l)) || any;
    }
    return any;
}

static bool run_disk(struct sim_broker *b) {
    bool any = false;
    struct kb_now now = sim_broker_now(b);
    sim_disk_take(b->disk, kb_node_disk(b->node), now);
    for (struct kb_disk_req *r; (r = sim_disk_pop(b->disk, now));) {
        any = true;
        if (r->err == KB_DISK_EIO) {
            b->disk_was_broken = true;
            if (b->on_broken && (r->op == KB_DISK_APPEND || r->op == KB_DISK_SYNC)) b->on_broken(b, r->file, r->op == KB_DISK_SYNC);
        } else if (r->err == KB_DISK_ENOSPC) {
            b->disk_was_broken = true;
        }
        kb_node_disk_done(b->node, r, now);
        sim_disk_take(b->disk, kb_node_disk(b->node), now);
    }
    return any;
}

/* ---- Lives ---- */

static void close_all(struct sim_broker *b) {
    while (!kw_list_empty(&b->socks)) {
        struct sock *k = sock_at(b->socks.next);
        k->net = NULL; /* its end was told of by sim_net_node_died */
        sock_close(b, k, false);
    }
    while (!kw_list_empty(&b->dials)) free(call_at(kw_list_shift(&b->dials))); /* the node lets go of its dials by itself */
}

static void drain(struct sim_broker *b) {
    struct kb_now now = sim_broker_now(b);
    struct kb_disk *q = kb_node_disk(b->node);
    for (int i = 0; i < DRAIN_MAX && (q->outstanding || !kw_list_empty(&q->queue) || sim_disk_next(b->disk) != INT64_MAX); i++) {
        sim_disk_take(b->disk, q, now);
        struct kb_disk_req *r = sim_disk_pop(b->disk, (struct kb_now){INT64_MAX - 1, now.wall_ms});
        if (r) kb_node_disk_done(b->node, r, now);
    }
}

/* What a process leaves behind when it is gone, however. */
static void bury(struct sim_broker *b, enum sim_death how) {
    struct kb_now now = sim_broker_now(b);
    if (b->on_death) b->on_death(b, how);
    sim_trace(b->w, "%s dies: %s", b->host.name,
              how == SIM_DEATH_STOP    ? "stopped"
              : how == SIM_DEATH_KILL  ? "kill -9"
              : how == SIM_DEATH_POWER ? "power loss"
                                       : "gave up");
    b->death = how;
    sim_net_node_died(b->net, b->index, how == SIM_DEATH_POWER);
    close_all(b);
    if (how == SIM_DEATH_POWER)
        sim_disk_power_loss(b->disk, now);
    else if (how != SIM_DEATH_STOP)
        sim_disk_kill9(b->disk, now);
    b->life = SIM_DOWN;
    drain(b);
    kb_node_drop(b->node);
    drain(b);
    kb_node_free(b->node);
    b->node = NULL;
    sim_disk_restart(b->disk);
    if (b->on_dead) b->on_dead(b, how);
}

void sim_broker_kill(struct sim_broker *b) {
    if (b->life == SIM_DOWN) return;
    sim_fire(b->w, b->life == SIM_STARTING ? SIM_F_KILL_STARTING : SIM_F_KILL);
    bury(b, SIM_DEATH_KILL);
}

void sim_broker_power_loss(struct sim_broker *b) {
    if (b->life == SIM_DOWN) return;
    sim_fire(b->w, SIM_F_POWER);
    bury(b, SIM_DEATH_POWER);
}

bool sim_advances;

void sim_broker_jump(struct sim_broker *b, int64_t ms) {
    sim_host_jump(&b->host, ms);
    if (!sim_advances || ms <= 0 || b->life == SIM_DOWN || !b->node) return;
    kw_err err = kb_node_advance(b->node, ms, sim_broker_now(b));
    KW_ASSERT(err == KW_OK);
}

void sim_broker_stop(struct sim_broker *b) {
    if (b->life != SIM_UP) return;
    sim_fire(b->w, SIM_F_STOP);
    sim_trace(b->w, "%s stops", b->host.name);
    b->life = SIM_STOPPING;
    b->net->servers[b->index].listening = false;
    b->stop_since_us = b->w->now_us;
    kb_node_stop(b->node, sim_broker_now(b));
    sim_host_wake(&b->host, b->w->now_us);
}

void sim_broker_start(struct sim_broker *b) {
    if (b->life != SIM_DOWN) return;
    char boot_id[32], text[400];
    bool machine = b->death == SIM_DEATH_POWER || b->rebooted;
    b->rebooted = false;
    b->boots += machine;
    snprintf(boot_id, sizeof boot_id, "boot %llu", (unsigned long long)b->boots);
    struct kb_node_options o = {.config = b->config,
                                .seed = kw_rng_next(&b->w->rng),
                                .logger = {say, b, b->w->loud ? KB_DEBUG : KB_INFO},
                                .port = 9092,
                                .boot_id = boot_id};
    if (b->lives++ == 0 && kb_config_finish(b->config, text, sizeof text) != KW_OK) sim_fail(b->w, 37, "configuration: %s", text);
    sim_disk_faults(b->disk)->hung_until_us = 0;
    sim_trace(b->w, "%s starts, life %llu", b->host.name, (unsigned long long)b->lives);
    sim_host_boot(&b->host, machine);
    b->net->servers[b->index].machine_up = true;
    b->life = SIM_STARTING;
    b->start_since_us = b->w->now_us;
    b->disk_was_broken = false;
    if (kb_node_new(&o, &b->node) != KW_OK || kb_node_start(b->node, sim_broker_now(b)) != KW_OK)
        sim_fail(b->w, 37, "the node cannot be made");
}

static void follow(struct sim_broker *b) {
    struct sim_server *s = &b->net->servers[b->index];
    if (b->life == SIM_STARTING && !s->listening && kb_node_accepts(b->node)) { /* of several voters, before it is ready */
        s->listening = true;
        if (kb_node_state(b->node) != KB_NODE_READY) sim_host_wake(&b->host, b->w->now_us);
    }
    switch (kb_node_state(b->node)) {
    case KB_NODE_READY:
        if (b->life != SIM_STARTING) return;
        b->life = SIM_UP;
        b->ready_lives++;
        b->failed_in_row = 0;
        sim_trace(b->w, "%s is ready", b->host.name);
        if (b->on_ready) b->on_ready(b);
        sim_host_wake(&b->host, b->w->now_us);
        return;
    case KB_NODE_FAILED:
        sim_fire(b->w, SIM_F_NODE_FAILED);
        if (b->w->healed && ++b->failed_in_row > 3) sim_fail(b->w, 36, "the node does not start any more: %s", kb_node_failure(b->node));
        bury(b, SIM_DEATH_FAILED);
        return;
    case KB_NODE_STOPPED: {
        bool flushed = true;
        for (struct kw_list *l = b->socks.next; l != &b->socks; l = l->next) flushed &= kw_list_empty(&sock_at(l)->replies);
        if (flushed || b->w->now_us - b->stop_since_us > 2 * SIM_S)
            bury(b, SIM_DEATH_STOP);
        else
            sim_host_wake(&b->host, b->w->now_us + 100 * SIM_MS);
        return;
    }
    default:
        return;
    }
}

static void turn(struct sim_host *h) {
    struct sim_broker *b = (struct sim_broker *)h;
    if (!b->node) return;
    bool more = true;
    for (int i = 0; more; i++) {
        if (i == ROUNDS_MAX) sim_fail(b->w, 37, "the node has had %d rounds at one moment and still finds something to do", i);
        kb_node_tick(b->node, sim_broker_now(b));
        more = run_disk(b);
        more = take_connections(b) || more;
        more = run_connections(b) || more;
        more = run_calls(b) || more;
        more = more || kb_node_deadline(b->node) <= sim_broker_now(b).mono_us || !kw_list_empty(&kb_node_disk(b->node)->queue);
    }
    check_poison(b);
    sim_host_wake_mono(h, kb_node_deadline(b->node));
    sim_host_wake_mono(h, sim_disk_next(b->disk));
    follow(b);
    if (b->node && b->on_turn) b->on_turn(b);
}

void sim_broker_set(struct sim_broker *b, const char *name, const char *value) {
    char text[400];
    if (kb_config_set(b->config, name, value, text, sizeof text, NULL, NULL) != KW_OK) {
        fprintf(stderr, "%s=%s: %s\n", name, value, text);
        abort();
    }
}

void sim_broker_init(struct sim_broker *b, struct sim_world *w, struct sim_net *net, int index, const char *name, const struct sim_disk_options *o) {
    char text[64];
    memset(b, 0, sizeof *b);
    sim_host_init(&b->host, w, name, index ? SIM_HOST_NODE + index : 0, turn);
    b->index = index;
    b->w = w;
    b->net = net;
    net->hosts[index] = &b->host;
    kw_list_init(&b->socks);
    kw_list_init(&b->dials);
    b->disk = sim_disk_new(kw_rng_next(&w->rng), o);
    if (kb_config_new(&b->config) != KW_OK) abort();
    sim_broker_set(b, "log.dirs", SIM_DATA);
    snprintf(text, sizeof text, "PLAINTEXT://10.0.0.%d:9092", net->servers[index].address);
    sim_broker_set(b, "listeners", text);
}

void sim_broker_deinit(struct sim_broker *b) {
    if (b->node) bury(b, SIM_DEATH_KILL);
    kb_config_free(b->config);
    sim_disk_free(b->disk);
}
