/* net.c - see net.h. */
#include "net.h"

#include <stdlib.h>

enum { DELAY_MIN_US = 5, WINDOW_MIN = 2048 };

void sim_net_init(struct sim_net *n, struct sim_world *w) {
    memset(n, 0, sizeof *n);
    n->w = w;
    kw_list_init(&n->conns);
    n->faults.delay_us = 100;
    for (int i = 0; i < SIM_SERVERS_MAX; i++) n->servers[i] = (struct sim_server){.machine_up = true, .address = i + 1};
}

static void pipe_deinit(struct sim_pipe *p) {
    free(p->buf);
    free(p->segs);
}

static void conn_free(struct sim_conn *c) {
    kw_list_remove(&c->link);
    c->net->by_id[c->id] = NULL;
    pipe_deinit(&c->pipe[0]);
    pipe_deinit(&c->pipe[1]);
    c->net = NULL;
    free(c);
}

/* Events hold a connection's id, not its address. */
static struct sim_conn *by_id(struct sim_net *n, uint64_t id) {
    return n->by_id[id];
}

static bool is_over(const struct sim_conn *c) {
    for (int s = 0; s < 2; s++)
        if (c->open[s]) return false;
    return c->pipe[0].seg_count == 0 && c->pipe[1].seg_count == 0;
}

static void maybe_free(struct sim_conn *c) {
    if (!is_over(c)) return;
    const struct sim_server *s = &c->net->servers[c->server];
    for (size_t i = 0; i < s->accept_count; i++)
        if (s->accepts[i] == c) return;
    conn_free(c);
}

void sim_net_deinit(struct sim_net *n) {
    while (!kw_list_empty(&n->conns)) conn_free(KW_CONTAINER_OF(n->conns.next, struct sim_conn, link));
    free(n->by_id);
}

static int number_of(const struct sim_conn *c, enum sim_side side) { return side == SIM_BROKER ? c->server : c->from; }
static struct sim_host *host_of(const struct sim_conn *c, enum sim_side side) { return c->net->hosts[number_of(c, side)]; }
static bool machine_up(const struct sim_conn *c, enum sim_side side) {
    int h = number_of(c, side);
    return h >= SIM_SERVERS_MAX || c->net->servers[h].machine_up;
}

/* ---- On the way ---- */

static int64_t delay(struct sim_net *n) {
    struct sim_world *w = n->w;
    int64_t d = DELAY_MIN_US + (int64_t)sim_below(w, (uint64_t)n->faults.delay_us * 2);
    if (sim_chance(w, n->faults.tail_delay)) { /* heavy tail: each step ten times rarer and ten times longer */
        sim_fire(w, SIM_F_TAIL_DELAY);
        for (d = 5 * SIM_MS; d < 5 * SIM_S && sim_below(w, 4) == 0;) d *= 4;
        d += (int64_t)sim_below(w, (uint64_t)d);
    }
    return d;
}

/* When bytes that this side writes get through again; now, if nothing holds them. */
static int64_t free_at(const struct sim_conn *c, enum sim_side from) {
    int64_t t = c->net->cut_until_us[number_of(c, from)][number_of(c, !from)];
    return KW_MAX(t, (int64_t)c->clogged_until_us);
}

static uint64_t pack(const struct sim_conn *c, enum sim_side from) { return c->id << 1 | (uint64_t)from; }

static void arrive(void *ctx, uint64_t arg) {
    struct sim_net *n = ctx;
    struct sim_conn *c = by_id(n, arg >> 1);
    if (!c) return;
    enum sim_side from = arg & 1, to = !from;
    struct sim_pipe *p = &c->pipe[from];
    int64_t now = n->w->now_us, held = free_at(c, from);
    if (held > now) {
        sim_at(n->w, held + (int64_t)sim_below(n->w, 1000), arrive, n, arg);
        return;
    }
    bool any = false;
    while (p->seg_count && p->segs[p->seg_head].at_us <= now) {
        struct sim_segment *s = &p->segs[p->seg_head++];
        p->seg_count--;
        if (to == SIM_BROKER && s->bytes && !c->open[SIM_CLIENT] && c->open[SIM_BROKER]) sim_fire(n->w, SIM_F_LATE);
        p->arrived += s->bytes;
        p->fin |= s->fin;
        p->reset |= s->reset;
        any = true;
    }
    if (any && c->gone[to]) { /* nobody is there: a reset comes back, if the machine is up */
        p->arrived = p->len = 0;
        if (machine_up(c, to)) {
            c->pipe[to].reset = true;
            if (c->open[from]) sim_host_wake(host_of(c, from), now + delay(n));
        }
    } else if (any && c->open[to]) {
        sim_host_wake(host_of(c, to), now);
    }
    maybe_free(c);
}

static void put_segment(struct sim_conn *c, enum sim_side from, struct sim_segment s) {
    struct sim_pipe *p = &c->pipe[from];
    if (p->seg_head && p->seg_head + p->seg_count == p->seg_cap) {
        memmove(p->segs, p->segs + p->seg_head, p->seg_count * sizeof *p->segs);
        p->seg_head = 0;
    }
    p->segs = sim_grow(p->segs, p->seg_head + p->seg_count, &p->seg_cap, sizeof *p->segs);
    if (p->seg_count) s.at_us = KW_MAX(s.at_us, p->segs[p->seg_head + p->seg_count - 1].at_us);
    p->segs[p->seg_head + p->seg_count++] = s;
    sim_at(c->net->w, s.at_us, arrive, c->net, pack(c, from));
}

static void append(struct sim_pipe *p, const void *b, size_t n) {
    if (p->head + p->len + n > p->cap) {
        if (p->head) memmove(p->buf, p->buf + p->head, p->len);
        p->head = 0;
        if (p->len + n > p->cap) {
            p->cap = (p->len + n) * 2;
            p->buf = sim_need(realloc(p->buf, p->cap));
        }
    }
    if (n) memcpy(p->buf + p->head + p->len, b, n);
    p->len += n;
}

/* Both ends see it broken: at once the one that is named, the other when word of it has come. */
static void break_at(struct sim_conn *c, enum sim_side side) {
    struct sim_world *w = c->net->w;
    bool silent = sim_chance(w, c->net->faults.half_open);
    c->pipe[!side].reset = true;
    if (silent) sim_fire(w, SIM_F_HALF_OPEN);
    else put_segment(c, side, (struct sim_segment){w->now_us + delay(c->net), 0, false, true});
    c->gone[side] = true;
    c->pipe[side].closed = true;
    if (c->open[side]) sim_host_wake(host_of(c, side), w->now_us);
}

int64_t sim_write(struct sim_conn *c, enum sim_side side, const void *b, size_t n) {
    struct sim_net *net = c->net;
    struct sim_world *w = net->w;
    struct sim_pipe *p = &c->pipe[side];
    if (c->pipe[!side].reset || p->closed) return -1;
    if (p->len >= p->window) {
        p->full = true;
        return 0;
    }
    n = KW_MIN(n, p->window - p->len);
    if (n > 1 && sim_chance(w, net->faults.short_send)) {
        sim_fire(w, SIM_F_SHORT_SEND);
        n = 1 + sim_below(w, n - 1);
    }
    bool breaks = p->total + n > p->reset_at;
    size_t sent = breaks ? (size_t)(p->reset_at - p->total) : n;
    if (net->tap && sent) net->tap(net->tap_ctx, c, side, b, sent);
    append(p, b, sent);
    p->total += n;
    if (sim_chance(w, net->faults.clog)) {
        sim_fire(w, SIM_F_CLOG);
        c->clogged_until_us = (uint64_t)(w->now_us + sim_range(w, 100 * SIM_MS, 20 * SIM_S));
    }
    for (size_t at = 0; at < sent;) { /* a few pieces */
        size_t k = sent - at > 1500 && sim_below(w, 3) == 0 ? 1 + sim_below(w, sent - at) : sent - at;
        put_segment(c, side, (struct sim_segment){w->now_us + delay(net), k, false, false});
        at += k;
    }
    if (breaks) {
        sim_fire(w, SIM_F_RESET);
        break_at(c, side);
    }
    return (int64_t)n;
}

static void room(void *ctx, uint64_t arg) {
    struct sim_net *n = ctx;
    struct sim_conn *c = by_id(n, arg >> 1);
    enum sim_side writer = arg & 1;
    if (c && c->open[writer]) sim_host_wake(host_of(c, writer), n->w->now_us);
}

int64_t sim_read(struct sim_conn *c, enum sim_side side, void *b, size_t n) {
    struct sim_net *net = c->net;
    struct sim_world *w = net->w;
    struct sim_pipe *p = &c->pipe[!side];
    if (p->arrived == 0) return p->reset ? SIM_READ_RESET : p->fin ? SIM_READ_EOF : SIM_READ_NONE;
    if (p->read_chance && !kw_rng_chance(&w->rng, p->read_chance)) {
        sim_fire(w, SIM_F_SLOW_READER);
        sim_host_wake(host_of(c, side), w->now_us + sim_range(w, SIM_MS, 50 * SIM_MS));
        return SIM_READ_NONE;
    }
    size_t k = KW_MIN(n, p->arrived);
    if (p->one_byte && k > 1 && sim_chance(w, 300000)) {
        sim_fire(w, SIM_F_ONE_BYTE);
        k = 1;
    }
    memcpy(b, p->buf + p->head, k);
    p->head += k;
    p->len -= k;
    p->arrived -= k;
    p->taken += k;
    if (p->full && p->len < p->window) {
        p->full = false;
        sim_at(w, w->now_us + delay(net), room, net, pack(c, !side));
    }
    return (int64_t)k;
}

/* ---- Opening and closing ---- */

static void answer_syn(void *ctx, uint64_t arg) {
    struct sim_net *n = ctx;
    struct sim_conn *c = by_id(n, arg >> 1);
    if (!c || !c->open[SIM_CLIENT]) return;
    struct sim_world *w = n->w;
    struct sim_server *s = &n->servers[c->server];
    int64_t held = KW_MAX(n->cut_until_us[c->from][c->server], n->cut_until_us[c->server][c->from]);
    if (c->to != s->address) { /* it has moved: nobody is there, or somebody who does not serve */
        c->refused = sim_below(w, 2);
        if (c->refused) sim_host_wake(host_of(c, SIM_CLIENT), w->now_us + delay(n));
        return;
    }
    if (held > w->now_us) { /* the system sends the SYN again */
        sim_at(w, held + sim_range(w, 0, SIM_S), answer_syn, n, arg);
        return;
    }
    if (!s->machine_up) {
        sim_at(w, w->now_us + SIM_S, answer_syn, n, arg);
        return;
    }
    if (!s->listening || s->accept_count == KW_COUNTOF(s->accepts) || sim_chance(w, n->faults.refused)) {
        if (s->listening) sim_fire(w, SIM_F_REFUSED);
        c->refused = true;
    } else {
        c->established = true;
        s->accepts[s->accept_count++] = c;
        sim_host_wake(n->hosts[c->server], w->now_us);
    }
    sim_host_wake(host_of(c, SIM_CLIENT), w->now_us + delay(n));
}

/* Who is at an address; where nobody is, the first one, who is then found to be elsewhere. */
static int server_at(const struct sim_net *n, int address) {
    for (int i = 0; i < SIM_SERVERS_MAX; i++)
        if (n->hosts[i] && n->servers[i].address == address) return i;
    return 0;
}

struct sim_conn *sim_connect(struct sim_net *n, int from, int to, void *peer) {
    struct sim_world *w = n->w;
    struct sim_conn *c = sim_need(calloc(1, sizeof *c));
    c->net = n;
    c->id = ++n->next_id;
    n->by_id = sim_grow(n->by_id, (size_t)c->id, &n->by_id_cap, sizeof(struct sim_conn *));
    n->by_id[c->id] = c;
    c->from = from;
    c->to = to;
    c->server = server_at(n, to);
    kw_list_init(&c->link);
    kw_list_push(&n->conns, &c->link);
    c->open[SIM_CLIENT] = true;
    c->peer[SIM_CLIENT] = peer;
    for (int s = 0; s < 2; s++) {
        struct sim_pipe *p = &c->pipe[s];
        p->poison_at = UINT64_MAX;
        p->window = (size_t)sim_range(w, WINDOW_MIN, 1 << 18);
        p->reset_at = sim_chance(w, n->faults.reset) ? sim_below(w, sim_below(w, 2) ? 300 : 200000) : UINT64_MAX;
        p->one_byte = sim_chance(w, n->faults.one_byte);
        p->read_chance = sim_chance(w, n->faults.slow_reader) ? 200000 : 0;
    }
    if (sim_chance(w, n->faults.syn_lost)) {
        sim_fire(w, SIM_F_SYN_LOST);
        c->silent = true;
        return c;
    }
    sim_at(w, w->now_us + delay(n), answer_syn, n, pack(c, SIM_CLIENT));
    return c;
}

struct sim_conn *sim_accept(struct sim_net *n, int server) {
    struct sim_server *s = &n->servers[server];
    while (s->accept_count) {
        struct sim_conn *c = s->accepts[0];
        memmove(s->accepts, s->accepts + 1, --s->accept_count * sizeof *s->accepts);
        c->open[SIM_BROKER] = true;
        return c;
    }
    return NULL;
}

void sim_close(struct sim_conn *c, enum sim_side side, bool reset) {
    struct sim_world *w = c->net->w;
    c->open[side] = false;
    c->peer[side] = NULL;
    if (!c->pipe[side].closed && !c->gone[side]) {
        c->pipe[side].closed = true;
        /* What was not read makes the system answer with a reset. */
        put_segment(c, side, (struct sim_segment){w->now_us + delay(c->net), 0, !reset && !c->pipe[!side].arrived, reset || c->pipe[!side].arrived});
    }
    c->gone[side] = true;
    maybe_free(c);
}

static void side_died(struct sim_conn *c, enum sim_side side, bool machine) {
    if (c->gone[side] || !(c->established || c->open[side])) return;
    if (machine) { /* not a word; what it had sent may still be on its way */
        c->open[side] = false;
        c->gone[side] = true;
        c->pipe[side].closed = true;
        maybe_free(c);
    } else {
        sim_close(c, side, sim_below(c->net->w, 2));
    }
}

void sim_net_node_died(struct sim_net *n, int server, bool machine) {
    struct sim_server *s = &n->servers[server];
    s->listening = false;
    s->accept_count = 0;
    if (machine) s->machine_up = false;
    struct kw_list *l, *next;
    for (l = n->conns.next; l != &n->conns; l = next) {
        next = l->next;
        struct sim_conn *c = KW_CONTAINER_OF(l, struct sim_conn, link);
        if (c->server == server)
            side_died(c, SIM_BROKER, machine);
        else if (c->from == server)
            side_died(c, SIM_CLIENT, machine);
    }
}

void sim_net_cut(struct sim_net *n, int from, int to, int64_t until_us) {
    n->cut_until_us[from][to] = KW_MAX(n->cut_until_us[from][to], until_us);
}

void sim_net_heal(struct sim_net *n) {
    struct sim_world *w = n->w;
    int64_t usual = n->faults.delay_us;
    memset(&n->faults, 0, sizeof n->faults);
    n->faults.delay_us = KW_MIN(usual, 500);
    memset(n->cut_until_us, 0, sizeof n->cut_until_us);
    struct kw_list *l;
    for (l = n->conns.next; l != &n->conns; l = l->next) {
        struct sim_conn *c = KW_CONTAINER_OF(l, struct sim_conn, link);
        c->clogged_until_us = 0;
        for (int s = 0; s < 2; s++) {
            c->pipe[s].one_byte = false;
            c->pipe[s].read_chance = 0;
            c->pipe[s].reset_at = UINT64_MAX;
            if (c->open[s]) sim_host_wake(host_of(c, s), w->now_us);
            sim_at(w, w->now_us, arrive, n, pack(c, s));
        }
    }
}
