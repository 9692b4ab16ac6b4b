/* cluster_faults.c - what goes wrong in a cluster, and when; and the healing. Called by cluster.c. Each kind that is on comes again and
 * again, at random moments; what may be lost is cluster_atlas.c's to say. */
#include <stdio.h>
#include <stdlib.h>

#include "alloc.h"
#include "cluster_faults.h"
#include "node_priv.h"

typedef void fault_fn(struct sim_cluster *c);

static int any_node(struct sim_cluster *c) {
    return (int)sim_below(&c->run->w, (uint64_t)c->run->node_count);
}
static struct sim_broker *node_at(struct sim_cluster *c, int i) {
    return &c->run->nodes[i];
}
struct sim_broker *sim_any_node(struct sim_cluster *c) {
    return node_at(c, any_node(c));
}

void sim_steady(struct sim_cluster *c) {
    for (int i = 0; i < c->run->node_count; i++) {
        struct sim_disk_faults *f = sim_disk_faults(node_at(c, i)->disk);
        sim_alloc_heal(&node_at(c, i)->host);
        f->eio_read_at = f->eio_write_at = f->eio_sync_at = -1;
    }
}

bool sim_node_broken(struct sim_broker *b) {
    bool broken = false;
    for (struct kb_partition *p = NULL; b->life == SIM_UP && (p = kb_partitions_next(b->node, p));)
        broken |= p->state == KB_PART_OFFLINE || (p->log && p->log->poisoned);
    return broken;
}

/* ---- Lives ---- */

static uint64_t life_of(const struct sim_broker *b) {
    return b->lives << 8 | (uint64_t)b->index;
}

static void kill_starting(void *ctx, uint64_t arg);

static void start_node(void *ctx, uint64_t arg) {
    struct sim_cluster *c = ctx;
    struct sim_broker *b = node_at(c, (int)(arg & 0xff));
    if (b->life != SIM_DOWN || arg != life_of(b) || c->run->w.healed || c->gone[b->index]) return;
    sim_disks_before_start(c, b);
    sim_broker_start(b);
    if (sim_below(&c->run->w, 6) == 0 && c->plan.kill_s)
        sim_at(&c->run->w, c->run->w.now_us + sim_range(&c->run->w, 0, 40 * SIM_MS), kill_starting, c, life_of(b));
}

void sim_start_later(struct sim_cluster *c, struct sim_broker *b, int64_t most_us) {
    sim_at(&c->run->w, c->run->w.now_us + sim_range(&c->run->w, SIM_MS, most_us), start_node, c, life_of(b));
}

static void join(void *ctx, uint64_t node) {
    struct sim_cluster *c = ctx;
    struct sim_broker *b = node_at(c, (int)node);
    if (!c->late[node] || b->life != SIM_DOWN) return;
    c->late[node] = false;
    c->trouble_us = c->run->w.now_us;
    sim_fire(&c->run->w, SIM_F_JOINED);
    sim_trace(&c->run->w, "node %d joins", (int)node);
    sim_broker_start(b);
}
void sim_cluster_join_later(struct sim_cluster *c, int node) {
    sim_at(&c->run->w, c->run->w.now_us + sim_range(&c->run->w, 3 * SIM_S, 60 * SIM_S), join, c, (uint64_t)node);
}

static void strike_dead(struct sim_cluster *c, struct sim_broker *b) {
    if (b->life == SIM_DOWN) return;
    c->trouble_us = c->run->w.now_us;
    sim_broker_kill(b);
    sim_start_later(c, b, sim_below(&c->run->w, 3) ? SIM_S : sim_below(&c->run->w, 3) ? 6 * SIM_S : 20 * SIM_S);
}

static void kill_starting(void *ctx, uint64_t arg) {
    struct sim_cluster *c = ctx;
    struct sim_broker *b = node_at(c, (int)(arg & 0xff));
    if (life_of(b) != arg || c->run->w.healed || b->life == SIM_DOWN || sim_atlas_fragile(c)) return;
    strike_dead(c, b);
}

static void kill_any(struct sim_cluster *c) {
    strike_dead(c, node_at(c, any_node(c)));
}

static void kill_leader(struct sim_cluster *c) {
    int t = (int)sim_below(&c->run->w, (uint64_t)c->run->model.topic_count),
        i = (int)sim_below(&c->run->w, (uint64_t)c->run->model.topics[t].partitions);
    struct sim_part *p = &c->parts[t][i];
    if (!p->known || p->leader < 0 || node_at(c, p->leader)->life == SIM_DOWN) return;
    sim_fire(&c->run->w, SIM_F_KILL_LEADER);
    strike_dead(c, node_at(c, p->leader));
}

static void kill_controller(struct sim_cluster *c) {
    int leader = c->controller_count ? c->controllers[c->controller_count - 1] - 1 : -1;
    if (leader < 0 || node_at(c, leader)->life == SIM_DOWN) return;
    sim_fire(&c->run->w, SIM_F_KILL_CONTROLLER);
    strike_dead(c, node_at(c, leader));
}

static void kill_all(struct sim_cluster *c) {
    int up = 0;
    for (int i = 0; i < c->run->node_count; i++) up += node_at(c, i)->life != SIM_DOWN;
    if (up < 2) return;
    if (c->plan.apart && sim_disks_kill_all_rotten(c)) return;
    sim_fire(&c->run->w, SIM_F_KILL_ALL);
    for (int i = 0; i < c->run->node_count; i++) strike_dead(c, node_at(c, i));
}

static void power(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    int node = any_node(c);
    bool more = c->run->model.flush_on_ack && sim_below(w, 3) == 0;
    int struck = 0;
    for (int i = 0; i < c->run->node_count; i++) {
        struct sim_broker *b = node_at(c, (node + i) % c->run->node_count);
        if ((i && (!more || sim_below(w, 2))) || b->life == SIM_DOWN || !sim_atlas_may_lose(c, b->index, false)) continue;
        c->trouble_us = w->now_us;
        sim_steady(c);
        sim_broker_power_loss(b);
        sim_start_later(c, b, sim_below(w, 4) ? 2 * SIM_S : 15 * SIM_S);
        struck++;
    }
    if (struck > 1) sim_fire(w, SIM_F_POWER_SEVERAL);
}

static void stop(struct sim_cluster *c) {
    struct sim_broker *b = node_at(c, any_node(c));
    if (b->life != SIM_UP) return;
    c->trouble_us = c->run->w.now_us;
    sim_broker_stop(b); /* sim_cluster_dead starts it again */
}

void sim_cluster_dead(struct sim_broker *b, enum sim_death how) {
    struct sim_run *r = b->ctx;
    sim_fault_meta_dead(r, b);
    sim_disks_after_death(r->cluster, b);
    if (how == SIM_DEATH_POWER) sim_check_copies_lost(r->cluster, b->index, false);
    if (r->w.healed || how == SIM_DEATH_KILL || how == SIM_DEATH_POWER) return;
    sim_start_later(r->cluster, b, 2 * SIM_S);
}

static void pause_node(struct sim_cluster *c) {
    struct sim_broker *b = node_at(c, any_node(c));
    struct sim_world *w = &c->run->w;
    int64_t t = sim_range(w, 100 * SIM_MS, sim_below(w, 3) ? 4 * SIM_S : 30 * SIM_S);
    sim_fire(w, SIM_F_PAUSE_BROKER);
    sim_trace(w, "%s pauses for %lld ms", b->host.name, (long long)t / 1000);
    c->trouble_us = w->now_us;
    sim_host_pause(&b->host, t);
}

static void jump(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    int k = (int)sim_below(w, (uint64_t)(c->run->node_count + c->run->plan.clients + 1)), client = k - c->run->node_count;
    struct sim_host *h = client < 0 ? &node_at(c, k)->host : &c->run->clients[client].host;
    int64_t ms = sim_range(w, -20 * 60 * 1000, 20 * 60 * 1000) / 4;
    sim_fire(w, SIM_F_CLOCK_JUMP);
    sim_trace(w, "%s: the wall clock jumps %lld ms", h->name, (long long)ms);
    if (client < 0)
        sim_broker_jump(node_at(c, k), ms);
    else
        sim_host_jump(h, ms);
}

/* ---- The network ---- */

static int64_t how_long(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    int64_t t = sim_range(w, 100 * SIM_MS, sim_below(w, 3) ? 4 * SIM_S : 30 * SIM_S);
    c->trouble_us = KW_MAX(c->trouble_us, w->now_us + t);
    return w->now_us + t;
}

/* side: 0 from a to b, 1 from b to a, 2 both. */
static void cut_pair(struct sim_cluster *c, int a, int b, int side, int64_t until) {
    if (side != 1) sim_net_cut(&c->run->net, a, b, until);
    if (side != 0) sim_net_cut(&c->run->net, b, a, until);
}

static void cut(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    int a = any_node(c), b = any_node(c), side = (int)sim_below(w, 4);
    int64_t until = how_long(c);
    if (a == b) return;
    sim_fire(w, side > 1 ? SIM_F_PARTITION : SIM_F_ONE_WAY);
    cut_pair(c, a, b, KW_MIN(side, 2), until);
    sim_trace(w, "nodes %d and %d are cut off from each other (%d) for %lld ms", a, b, side, (long long)(until - w->now_us) / 1000);
}

/* One node, from all others; clients may still see it. */
static void isolate(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    int node = any_node(c), side = (int)sim_below(w, 4);
    if (sim_below(w, 3) == 0 && c->controller_count) node = KW_MAX(c->controllers[c->controller_count - 1] - 1, 0);
    int64_t until = how_long(c);
    for (int i = 0; i < c->run->node_count; i++)
        if (i != node) cut_pair(c, node, i, KW_MIN(side, 2), until);
    for (int i = 0; i <= c->run->plan.clients && sim_below(w, 2); i++) cut_pair(c, node, sim_client_host(i), 2, until);
    sim_fire(w, SIM_F_ISOLATED);
    sim_trace(w, "node %d is cut off from the others (%d) for %lld ms", node, side, (long long)(until - w->now_us) / 1000);
}

static void mesh(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    int64_t until = how_long(c);
    int holes = 0;
    for (int a = 0; a < c->run->node_count; a++)
        for (int b = a + 1; b < c->run->node_count; b++)
            if (sim_below(w, 3) == 0) cut_pair(c, a, b, (int)sim_range(w, 0, 2), until), holes++;
    if (!holes) return;
    sim_fire(w, SIM_F_MESH);
    sim_trace(w, "the mesh has holes for %lld ms", (long long)(until - w->now_us) / 1000);
}

static void calm_again(void *ctx, uint64_t arg) {
    struct sim_cluster *c = ctx;
    (void)arg;
    if (!c->run->w.healed) c->run->net.faults = c->run->plan.net;
}
/* Everything takes long, all at once: longer than some wait for an answer. */
static void spike(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    int64_t t = sim_range(w, 200 * SIM_MS, 5 * SIM_S);
    c->run->net.faults.delay_us = sim_range(w, 20 * SIM_MS, 1500 * SIM_MS);
    sim_fire(w, SIM_F_SPIKE);
    sim_trace(w, "bytes take about %lld ms for %lld ms", (long long)c->run->net.faults.delay_us / 1000, (long long)t / 1000);
    c->trouble_us = KW_MAX(c->trouble_us, w->now_us + t + 2 * SIM_S);
    sim_at(w, w->now_us + t, calm_again, c, 0);
}

/* Who dies is missed at once: connections end with a word, and dials are answered. */
void sim_net_deaths_are_seen(struct sim_cluster *c, int64_t for_us) {
    struct sim_net_faults *f = &c->run->net.faults;
    f->half_open = f->syn_lost = f->clog = f->tail_delay = 0;
    for (struct kw_list *l = c->run->net.conns.next; l != &c->run->net.conns; l = l->next)
        KW_CONTAINER_OF(l, struct sim_conn, link)->clogged_until_us = 0;
    sim_at(&c->run->w, c->run->w.now_us + for_us, calm_again, c, 0);
}

static void cut_client(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    int client = (int)sim_below(w, (uint64_t)c->run->plan.clients + 1), side = (int)sim_below(w, 3);
    int64_t until = w->now_us + sim_range(w, 100 * SIM_MS, sim_below(w, 3) ? 3 * SIM_S : 30 * SIM_S);
    int from = 0;
    for (int i = 0; i < c->run->node_count; i++)
        if (sim_below(w, 2)) cut_pair(c, sim_client_host(client), i, side, until), from++;
    if (!from) return;
    sim_fire(w, side == 2 ? SIM_F_PARTITION : SIM_F_ONE_WAY);
    sim_trace(w, "client %d is cut off from some (%d) for %lld ms", client, side, (long long)(until - w->now_us) / 1000);
}

/* ---- Clients, memory ---- */

static void pause_client(struct sim_cluster *c) {
    sim_fault_pause_client(c->run);
}
static void kill_client(struct sim_cluster *c) {
    sim_fault_kill_client(c->run);
}
static void close_client(struct sim_cluster *c) {
    sim_fault_close_client(c->run);
}

/* A node that had none for something may give up: like a kill -9. */
static void no_memory(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    int k = (int)sim_below(w, (uint64_t)(c->run->node_count + c->run->plan.clients + 1)), client = k - c->run->node_count;
    struct sim_host *h = client < 0 ? &node_at(c, k)->host : &c->run->clients[client].host;
    if (client < 0 && sim_atlas_fragile(c)) return;
    if (client < 0) c->trouble_us = w->now_us;
    sim_alloc_refuse(h, sim_below(w, sim_below(w, 2) ? 50 : 3000), sim_below(w, 4) ? 1 : (uint32_t)sim_range(w, 2, 20));
}

static void attack(struct sim_cluster *c) {
    sim_attacker_strike(&c->run->attacker);
}

/* ---- All together ---- */

static const struct {
    fault_fn *fn;
    size_t every; /* offset of its rate in the plan */
    bool breaks;  /* not while a copy that counts may lack something */
} kinds[] = {
#define K(fn, name, breaks)                                                                                                                \
    { fn, offsetof(struct sim_cluster_plan, name##_s), breaks }
    K(kill_any, kill, true),
    K(kill_leader, kill_leader, true),
    K(kill_controller, kill_controller, true),
    K(kill_all, kill_all, true),
    K(power, power, true),
    K(stop, stop, true),
    K(pause_node, pause, true),
    K(cut, cut, true),
    K(mesh, mesh, true),
    K(isolate, isolate, true),
    K(spike, spike, true),
    K(sim_disks_wipe, wipe, true),
    K(sim_disks_old_image, image, true),
    K(jump, jump, false),
    K(pause_client, pause_client, false),
    K(kill_client, client_kill, false),
    K(close_client, client_close, false),
    K(cut_client, cut_client, false),
    K(sim_disks_hang, hang, true),
    K(sim_disks_full, full, true),
    K(sim_disks_eio, eio, true),
    K(sim_disks_bad_sector, bad_sector, true),
    K(sim_disks_slow, slow, true),
    K(sim_admins_config, config, false),
    K(sim_admins_grow, grow, false),
    K(sim_admins_delete_records, delete, false),
    K(sim_admins_recreate, recreate, false),
    K(sim_admins_reassign, reassign, false),
    K(sim_admins_elect, elect, false),
    K(sim_admins_unregister, unregister, true),
    K(sim_admins_leave, leave, true),
    K(no_memory, alloc, false),
    K(attack, attack, false),
#undef K
};

static uint32_t every(const struct sim_cluster *c, uint64_t k) {
    uint32_t s;
    memcpy(&s, (const char *)&c->plan + kinds[k].every, sizeof s);
    return s;
}

static void strike(void *ctx, uint64_t k) {
    struct sim_cluster *c = ctx;
    struct sim_world *w = &c->run->w;
    if (w->healed) return;
    if (!kinds[k].breaks || !sim_atlas_fragile(c)) kinds[k].fn(c);
    sim_at(w, w->now_us + sim_range(w, SIM_MS, 2 * every(c, k) * SIM_S), strike, c, k);
}

static void begin(void *ctx, uint64_t arg) {
    struct sim_cluster *c = ctx;
    struct sim_world *w = &c->run->w;
    (void)arg;
    c->run->net.faults = c->run->plan.net;
    for (int i = 0; i < c->run->node_count; i++) {
        sim_disk_faults(node_at(c, i)->disk)->slow_ppm = c->run->plan.slow_ppm;
        sim_disk_faults(node_at(c, i)->disk)->slow_us = sim_range(w, SIM_MS, 300 * SIM_MS);
    }
    for (uint64_t k = 0; k < KW_COUNTOF(kinds); k++)
        if (every(c, k)) sim_at(w, w->now_us + sim_range(w, SIM_MS, 2 * every(c, k) * SIM_S), strike, c, k);
    for (int i = 0; i < c->run->node_count + c->run->plan.clients + 1 && c->plan.drift; i++) {
        struct sim_host *h = i < c->run->node_count ? &node_at(c, i)->host : &c->run->clients[i - c->run->node_count].host;
        sim_fire(w, SIM_F_DRIFT);
        sim_host_drift(h, sim_range(w, -2000, 2000));
    }
}

void sim_cluster_faults_start(struct sim_run *r) {
    sim_at(&r->w, r->w.now_us + r->plan.calm_us, begin, r->cluster, 0);
}

/* Nodes that are down come back, but for those that are left out of the core. */
static void mend(void *ctx, uint64_t arg) {
    struct sim_cluster *c = ctx;
    (void)arg;
    if (c->ending) return;
    for (int i = 0; i < c->run->node_count; i++) {
        struct sim_broker *b = node_at(c, i);
        if (b->life == SIM_DOWN && !c->left_out[i] && !c->gone[i]) sim_broker_start(b);
        if (sim_node_broken(b)) sim_broker_kill(b);
    }
    sim_at(&c->run->w, c->run->w.now_us + SIM_S, mend, c, 0);
}

void sim_cluster_faults_heal(struct sim_run *r) {
    struct sim_cluster *c = r->cluster;
    bool known = true;
    sim_net_heal(&r->net);
    for (int i = 0; i < r->node_count; i++) {
        struct sim_broker *b = &r->nodes[i];
        sim_disks_heal(c, b);
        sim_alloc_heal(&b->host);
        b->host.paused_until_us = KW_MIN(b->host.paused_until_us, r->w.now_us + 20 * SIM_S);
        if (!c->left_out[i] || b->life == SIM_DOWN) continue;
        sim_broker_kill(b);
        known = false;
    }
    /* That death is seen before others: else a new controller might take for a leader, alone in sync, who is gone for good (the rest in sync comes
     * back from kill -9, and a new incarnation is not counted while others seem to live). */
    if (known) mend(c, 0);
    else sim_at(&r->w, r->w.now_us + 2 * SIM_S, mend, c, 0);
    for (int i = 0; i <= r->plan.clients; i++) {
        sim_alloc_heal(&r->clients[i].host);
        if (i && !r->clients[i].core) sim_client_new_life(r, i);
        if (i && r->producers[i]) sim_producer_hurry(r->producers[i]);
        if (i && r->consumers[i]) sim_consumer_calm(r->consumers[i]);
    }
}
