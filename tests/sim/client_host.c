/* client_host.c - see client_host.h. A turn does what the real shell's and loop's do together. */
#include "client_host.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS_MAX = 3000, READS = 16, IOVS = 16, STOP_ROUNDS_MAX = 1000 };

struct peer {
    struct kw_list link;
    struct kc_conn *core;
    struct sim_conn *net;
    bool connecting;
    int64_t resolved_at_us; /* SIM_NEVER: no lookup under way */
    int wrong_address;      /* of those that the name has, 1 past the wrong one: 0 none */
    int address;            /* the broker's, as the name server knows it */
};

static void say(void *ctx, int level, const char *text) {
    (void)level;
    struct sim_client *c = ctx;
    sim_say(c->w, c->host.name, text);
}

/* ---- Configuration ---- */

void sim_config_set(struct kc_config *c, const char *name, const char *value) {
    kc_error *e = NULL;
    if (kc_config_set(c, name, value, &e) == KC_OK) return;
    fprintf(stderr, "%s=%s: %s\n", name, value, kc_error_message(e));
    abort();
}

struct kc_config *sim_config(const char *const *pairs) {
    struct kc_config *c = sim_need(kc_config_new());
    for (; pairs && *pairs; pairs += 2) sim_config_set(c, pairs[0], pairs[1]);
    return c;
}

void sim_client_set(struct sim_client *c, const char *name, const char *value) { sim_config_set(c->config, name, value); }

struct kc_settings *sim_client_role_settings(struct sim_client *c, struct kc_config *role) {
    struct kc_settings *s = NULL;
    kc_error *e = NULL;
    if (kc_settings_new(c->config, role, &s, &e) == KC_OK) return s;
    fprintf(stderr, "settings: %s\n", kc_error_message(e));
    abort();
}

/* ---- Connections ---- */

static struct peer *peer_of(struct sim_client *c, struct kc_conn *core) {
    struct peer *p = kc_conn_shell(core);
    if (p) return p;
    p = sim_need(calloc(1, sizeof *p));
    p->core = core;
    p->resolved_at_us = SIM_NEVER;
    kw_list_init(&p->link);
    kw_list_push(&c->peers, &p->link);
    kc_conn_shell_set(core, p);
    return p;
}

static void peer_drop(struct peer *p, bool reset) {
    if (p->net) sim_close(p->net, SIM_CLIENT, reset);
    kw_list_remove(&p->link);
    free(p);
}

static void peer_closed(struct sim_client *c, struct peer *p, kw_err err, const char *text) {
    struct kc_conn *core = p->core;
    peer_drop(p, false);
    kc_conn_closed(core, err, text, sim_client_now(c));
}

static void resolve(struct sim_client *c, struct peer *p) {
    struct sim_world *w = c->w;
    const char *host = kc_conn_host(p->core);
    bool numeric = host[0] >= '0' && host[0] <= '9';
    p->address = numeric ? atoi(strrchr(host, '.') + 1) : c->net->servers[0].address;
    p->resolved_at_us = w->now_us + (numeric ? 0 : sim_range(w, 100, 30 * SIM_MS));
    p->wrong_address = !numeric && sim_below(w, 4) == 0 ? (int)(1 + sim_below(w, 2)) : 0;
    sim_host_wake(&c->host, p->resolved_at_us);
}

static void resolved(struct sim_client *c, struct peer *p) {
    struct sim_world *w = c->w;
    struct kc_address a[2] = {{.size = 1, .bytes = {0}}, {.size = 1, .bytes = {0}}};
    bool numeric = kc_conn_host(p->core)[0] <= '9';
    p->resolved_at_us = SIM_NEVER;
    if (!numeric && sim_chance(w, c->net->faults.resolve)) {
        sim_fire(w, SIM_F_RESOLVE);
        sim_trace(w, "%s: no address for %s", c->host.name, kc_conn_host(p->core));
        kc_conn_resolved(p->core, NULL, 0, "the name server has a bad day", sim_client_now(c));
        return;
    }
    a[0].bytes[1] = a[1].bytes[1] = (uint8_t)p->address;
    if (p->wrong_address) a[p->wrong_address - 1].bytes[0] = 1;
    if (p->wrong_address) sim_fire(w, SIM_F_WRONG_ADDRESS);
    kc_conn_resolved(p->core, a, p->wrong_address ? 2 : 1, NULL, sim_client_now(c));
}

static void start_connect(struct sim_client *c, struct peer *p) {
    if (p->net) sim_close(p->net, SIM_CLIENT, true); /* the address before this one */
    p->net = NULL;
    if (kc_conn_address(p->core)->bytes[0] == 1) {
        kc_conn_connected(p->core, KW_EIO, "connection refused by the wrong host", sim_client_now(c));
        return;
    }
    p->net = sim_connect(c->net, sim_client_host(c->index), kc_conn_address(p->core)->bytes[1], p);
    p->connecting = true;
    sim_trace(c->w, "%s connects: %llu", c->host.name, (unsigned long long)p->net->id);
}

/* false: p is gone. */
static bool do_write(struct sim_client *c, struct peer *p) {
    struct kc_iov iov[IOVS];
    size_t n;
    while (p->net && !p->connecting && (n = kc_conn_out(p->core, iov, IOVS)) > 0) {
        int64_t took = sim_write(p->net, SIM_CLIENT, iov[0].p, iov[0].len);
        if (took < 0) {
            peer_closed(c, p, KW_EIO, "connection reset by peer");
            return false;
        }
        if (took == 0) return true;
        kc_conn_written(p->core, (size_t)took, sim_client_now(c));
    }
    return true;
}

/* false: p is gone. */
static bool do_read(struct sim_client *c, struct peer *p, bool *any) {
    for (int i = 0; i < READS; i++) {
        uint8_t *buf;
        size_t size;
        if (!sim_readable(p->net, SIM_CLIENT) || !kc_conn_wants_read(p->core)) return true;
        kc_conn_recv_buf(p->core, &buf, &size);
        if (size == 0) return true;
        int64_t n = sim_read(p->net, SIM_CLIENT, buf, size);
        if (n == SIM_READ_NONE) return true;
        *any = true;
        if (n <= 0) {
            sim_trace(c->w, "%s: connection %llu %s", c->host.name, (unsigned long long)p->net->id, n == SIM_READ_EOF ? "ended" : "reset");
            peer_closed(c, p, n == SIM_READ_EOF ? KW_OK : KW_EIO, n == SIM_READ_EOF ? NULL : "connection reset by peer");
            return false;
        }
        sim_hash(c->w, buf, (size_t)n);
        kc_conn_received(p->core, (size_t)n, sim_client_now(c));
    }
    return true;
}

static bool run_peer(struct sim_client *c, struct peer *p) {
    bool any = false;
    if (p->resolved_at_us <= c->w->now_us) {
        resolved(c, p);
        return true;
    }
    if (!p->net) return false;
    if (p->connecting) {
        if (!p->net->refused && !p->net->established) return false;
        bool refused = p->net->refused;
        p->connecting = false;
        if (refused) {
            sim_close(p->net, SIM_CLIENT, true);
            p->net = NULL;
        }
        kc_conn_connected(p->core, refused ? KW_EIO : KW_OK, refused ? "connection refused" : NULL, sim_client_now(c));
        return true;
    }
    if (!do_write(c, p)) return true;
    (void)do_read(c, p, &any);
    return any;
}

static bool run_peers(struct sim_client *c) {
    bool any = false;
    struct kw_list *l, *next;
    for (l = c->peers.next; l != &c->peers; l = next) {
        next = l->next;
        any = run_peer(c, KW_CONTAINER_OF(l, struct peer, link)) || any;
    }
    return any;
}

static void act(struct sim_client *c, struct kc_conn *core, uint32_t wants) {
    struct peer *p = (wants & KC_WANT_CLOSE) ? kc_conn_shell(core) : peer_of(c, core);
    if (wants & KC_WANT_CLOSE) {
        if (p) peer_drop(p, c->dying);
        kc_conn_closed(core, KW_OK, NULL, sim_client_now(c));
        return;
    }
    if (wants & KC_WANT_RESOLVE) resolve(c, p);
    if (wants & KC_WANT_CONNECT) start_connect(c, p);
    if (wants & KC_WANT_WRITE) (void)do_write(c, p);
}

static void actions(struct sim_client *c) {
    struct kc_conn *core;
    uint32_t wants;
    while ((core = kc_core_next_action(c->core, &wants))) act(c, core, wants);
}

/* ---- Turns ---- */

/* What the core makes of a hostile answer: the connection is over. */
static void check_poison(struct sim_client *c) {
    for (struct kw_list *l = c->peers.next; l != &c->peers; l = l->next) {
        const struct peer *p = KW_CONTAINER_OF(l, struct peer, link);
        if (p->net && !p->connecting && sim_poisoned(p->net, SIM_CLIENT) && kc_conn_wants_read(p->core))
            sim_fail(c->w, 10, "%s goes on with connection %llu, whose answer was damaged", c->host.name, (unsigned long long)p->net->id);
    }
}

static void turn(struct sim_host *h) {
    struct sim_client *c = (struct sim_client *)h;
    if (!c->core) return;
    bool more = true;
    for (int i = 0; more && c->core; i++) {
        if (i == ROUNDS_MAX) sim_fail(c->w, 37, "%s has had %d rounds at one moment and still finds something to do", h->name, i);
        more = run_peers(c);
        for (size_t k = 0; k < c->role_count; k++) more = c->roles[k]->work(c->roles[k]) || more;
        kc_core_tick(c->core, sim_client_now(c));
        actions(c);
        more = more || kc_core_deadline(c->core) <= sim_client_now(c).mono_us;
    }
    check_poison(c);
    sim_host_wake_mono(h, kc_core_deadline(c->core));
    for (size_t k = 0; k < c->role_count; k++) {
        sim_host_wake(h, c->roles[k]->next_us);
        if (c->roles[k]->check) c->roles[k]->check(c->roles[k]);
    }
}

size_t sim_client_connections(const struct sim_client *c) {
    size_t n = 0;
    for (const struct kw_list *l = c->peers.next; l != &c->peers; l = l->next) n++;
    return n;
}

/* ---- Lives ---- */

void sim_client_init(struct sim_client *c, struct sim_world *w, struct sim_net *net, int index) {
    char name[16];
    memset(c, 0, sizeof *c);
    snprintf(name, sizeof name, "client %d", index);
    sim_host_init(&c->host, w, name, index + 1, turn);
    c->w = w;
    c->net = net;
    c->index = index;
    net->hosts[sim_client_host(index)] = &c->host;
    kw_list_init(&c->peers);
    c->config = sim_config(NULL);
    sim_client_set(c, "bootstrap.servers", "kafka:9092");
    sim_client_set(c, "log_level", w->loud ? "7" : "4");
}

void sim_client_start(struct sim_client *c, const char *const *topics, size_t n) {
    KW_ASSERT(!c->core);
    c->settings = sim_client_role_settings(c, NULL);
    sim_host_boot(&c->host, false);
    struct kc_core_options o = {.settings = c->settings, .seed = kw_rng_next(&c->w->rng), .now = sim_client_now(c), .log = say, .ctx = c};
    if (kc_core_new(&o, &c->core) != KW_OK) abort();
    c->lives++;
    c->dying = false;
    for (size_t i = 0; i < n; i++)
        if (kc_metadata_intern(c->core, topics[i], strlen(topics[i])) != (int32_t)i + 1) abort();
    sim_trace(c->w, "%s starts, life %llu", c->host.name, (unsigned long long)c->lives);
}

void sim_client_add(struct sim_client *c, struct sim_role *r) {
    if (c->role_count == SIM_ROLES_MAX) abort();
    r->client = c;
    c->roles[c->role_count++] = r;
    sim_client_wake(c);
}

/* The process is gone for the world at once. For the sake of its memory its cores are then taken apart in order, without anyone to talk to. */
void sim_client_kill(struct sim_client *c) {
    if (!c->core) return;
    sim_trace(c->w, "%s dies", c->host.name);
    c->dying = true;
    for (size_t k = 0; k < c->role_count; k++) c->roles[k]->stop(c->roles[k]);
    for (int i = 0;; i++) {
        if (i == STOP_ROUNDS_MAX) sim_fail(c->w, 37, "%s cannot be taken apart: a role does not stop", c->host.name);
        bool all = true;
        kc_core_tick(c->core, sim_client_now(c));
        actions(c);
        for (size_t k = 0; k < c->role_count; k++) all &= c->roles[k]->stopped(c->roles[k]);
        if (all) break;
    }
    for (size_t k = 0; k < c->role_count; k++) c->roles[k]->free(c->roles[k]);
    c->role_count = 0;
    kc_core_stop(c->core, sim_client_now(c));
    for (int i = 0; !kc_core_stopped(c->core); i++) {
        if (i == STOP_ROUNDS_MAX) sim_fail(c->w, 37, "%s: its core does not stop", c->host.name);
        kc_core_tick(c->core, sim_client_now(c));
        actions(c);
    }
    kc_core_free(c->core);
    c->core = NULL;
    if (!kw_list_empty(&c->peers)) sim_fail(c->w, 37, "%s: connections are left over after its core's end", c->host.name);
    kc_settings_free(c->settings);
    c->settings = NULL;
}

void sim_client_deinit(struct sim_client *c) {
    sim_client_kill(c);
    kc_config_free(c->config);
}
