/* faults.c - what goes wrong, and when; and the healing. Called by workload.c. Each kind that is on comes again and again, at random
 * moments. */
#include <stdio.h>
#include <stdlib.h>

#include "alloc.h"
#include "replica/partition.h"
#include "workload.h"

typedef void fault_fn(struct sim_run *r);

/* ---- The network ---- */

static void cut(struct sim_run *r) {
    struct sim_world *w = &r->w;
    int c = (int)sim_below(w, (uint64_t)r->plan.clients + 1), side = (int)sim_below(w, 3);
    int64_t until = w->now_us + sim_range(w, 100 * SIM_MS, sim_below(w, 3) ? 3 * SIM_S : 30 * SIM_S);
    for (int s = 0; s < 2; s++)
        if (side == 2 || side == s) {
            int from = s == SIM_CLIENT ? sim_client_host(c) : 0, to = s == SIM_CLIENT ? 0 : sim_client_host(c);
            r->net.cut_until_us[from][to] = until;
        }
    sim_fire(w, side == 2 ? SIM_F_PARTITION : SIM_F_ONE_WAY);
    sim_trace(w, "client %d is cut off (%d) for %lld ms", c, side, (long long)(until - w->now_us) / 1000);
}

/* ---- The broker's lives ---- */

static void kill_starting(void *ctx, uint64_t arg);

static void start_broker(void *ctx, uint64_t arg) {
    struct sim_run *r = ctx;
    if (r->nodes[0].life != SIM_DOWN || arg != r->nodes[0].lives || r->w.healed) return;
    sim_faults_before_start(r);
    if (r->plan.moves && r->net.servers[0].address < 200 && sim_below(&r->w, 4) == 0) {
        r->net.servers[0].address++;
        sim_fire(&r->w, SIM_F_MOVED);
        sim_trace(&r->w, "the broker is at 10.0.0.%d from now on", r->net.servers[0].address);
    }
    sim_broker_start(&r->nodes[0]);
    if (sim_below(&r->w, 4) == 0 && (r->plan.kill_s || r->plan.power_s)) /* now and then it does not get far */
        sim_at(&r->w, r->w.now_us + sim_range(&r->w, 0, 20 * SIM_MS), kill_starting, r, r->nodes[0].lives);
}

static void start_later(struct sim_run *r, int64_t most_us) {
    sim_at(&r->w, r->w.now_us + sim_range(&r->w, SIM_MS, most_us), start_broker, r, r->nodes[0].lives);
}

static void kill_starting(void *ctx, uint64_t arg) {
    struct sim_run *r = ctx;
    if (r->nodes[0].lives != arg || r->w.healed || r->nodes[0].life == SIM_DOWN) return;
    if (r->plan.power_s && sim_below(&r->w, 3) == 0)
        sim_broker_power_loss(&r->nodes[0]);
    else
        sim_broker_kill(&r->nodes[0]);
    start_later(r, SIM_S);
}

static void kill_broker(struct sim_run *r) {
    if (r->nodes[0].life == SIM_DOWN) return;
    sim_broker_kill(&r->nodes[0]);
    start_later(r, sim_below(&r->w, 4) ? SIM_S : 15 * SIM_S);
}
static void power(struct sim_run *r) {
    if (r->nodes[0].life == SIM_DOWN) return;
    sim_broker_power_loss(&r->nodes[0]);
    start_later(r, sim_below(&r->w, 4) ? 2 * SIM_S : 15 * SIM_S);
}
static void stop(struct sim_run *r) {
    sim_broker_stop(&r->nodes[0]);
} /* on_dead starts it again */

void sim_faults_dead(struct sim_run *r) { /* also of itself: stopped, or given up */
    sim_fault_meta_dead(r, &r->nodes[0]);
    if (r->w.healed || r->nodes[0].death == SIM_DEATH_KILL || r->nodes[0].death == SIM_DEATH_POWER) return;
    start_later(r, 2 * SIM_S);
}

static void pause_broker(struct sim_run *r) {
    int64_t t = sim_range(&r->w, 100 * SIM_MS, sim_below(&r->w, 3) ? 5 * SIM_S : 40 * SIM_S);
    sim_fire(&r->w, SIM_F_PAUSE_BROKER);
    sim_trace(&r->w, "broker pauses for %lld ms", (long long)t / 1000);
    sim_host_pause(&r->nodes[0].host, t);
}
void sim_fault_pause_client(struct sim_run *r) {
    int c = (int)sim_range(&r->w, 0, r->plan.clients);
    int64_t t = sim_range(&r->w, 100 * SIM_MS, sim_below(&r->w, 3) ? 5 * SIM_S : 40 * SIM_S);
    sim_fire(&r->w, SIM_F_PAUSE_CLIENT);
    sim_trace(&r->w, "client %d pauses for %lld ms", c, (long long)t / 1000);
    sim_host_pause(&r->clients[c].host, t);
}

/* Wall clocks only: the monotonic one has its name for a reason. */
static void jump(struct sim_run *r) {
    int c = (int)sim_range(&r->w, -1, r->plan.clients);
    int64_t ms = sim_range(&r->w, -20 * 60 * 1000, 20 * 60 * 1000);
    struct sim_host *h = c < 0 ? &r->nodes[0].host : &r->clients[c].host;
    if (c >= 0) ms /= 4; /* a broker refuses records from too far in its future */
    sim_fire(&r->w, SIM_F_CLOCK_JUMP);
    sim_trace(&r->w, "%s: the wall clock jumps %lld ms", h->name, (long long)ms);
    if (c < 0)
        sim_broker_jump(&r->nodes[0], ms);
    else
        sim_host_jump(h, ms);
}

/* ---- Clients ---- */

static void new_life(void *ctx, uint64_t arg) {
    struct sim_run *r = ctx;
    if (!r->clients[arg].core) sim_client_new_life(r, (int)arg);
}

static void end_client(struct sim_run *r, int c) {
    if (r->producers[c]) r->left[c] = sim_producer_left(r->producers[c]);
    r->producers[c] = r->consumers[c] = r->legacy[c] = NULL;
    sim_client_kill(&r->clients[c]);
    sim_at(&r->w, r->w.now_us + sim_range(&r->w, 0, 3 * SIM_S), new_life, r, (uint64_t)c);
}

void sim_fault_kill_client(struct sim_run *r) {
    int c = (int)sim_range(&r->w, 1, r->plan.clients);
    if (!r->clients[c].core) return;
    sim_fire(&r->w, SIM_F_CLIENT_KILL);
    end_client(r, c);
}

static void closed(void *ctx, uint64_t arg) { /* looks every 50 ms whether the close is through */
    struct sim_run *r = ctx;
    int c = (int)(arg & 0xff);
    if (!r->clients[c].core || r->clients[c].lives != arg >> 8 || !r->producers[c]) return;
    if (sim_producer_closed(r->producers[c]))
        end_client(r, c);
    else
        sim_at(&r->w, r->w.now_us + 50 * SIM_MS, closed, r, arg);
}

void sim_fault_close_client(struct sim_run *r) {
    int c = (int)sim_range(&r->w, 1, r->plan.clients);
    if (!r->clients[c].core || !r->producers[c] || r->clients[c].host.paused_until_us > r->w.now_us) return;
    sim_fire(&r->w, SIM_F_CLIENT_CLOSE);
    sim_producer_close(r->producers[c], sim_range(&r->w, 0, 5 * SIM_S));
    sim_at(&r->w, r->w.now_us, closed, r, r->clients[c].lives << 8 | (uint64_t)c);
}

/* ---- Memory, and people who mean harm ---- */

static void no_memory(struct sim_run *r) {
    int c = (int)sim_range(&r->w, -1, r->plan.clients);
    struct sim_host *h = c < 0 ? &r->nodes[0].host : &r->clients[c].host;
    sim_alloc_refuse(h, sim_below(&r->w, sim_below(&r->w, 2) ? 50 : 3000), sim_below(&r->w, 4) ? 1 : (uint32_t)sim_range(&r->w, 2, 20));
}

static void attack(struct sim_run *r) {
    sim_attacker_strike(&r->attacker);
}

/* ---- An old image ---- */

static void take_image(void *ctx, uint64_t arg) {
    struct sim_run *r = ctx;
    (void)arg;
    if (r->w.healed || r->image) return;
    bool whole = r->nodes[0].life == SIM_UP && sim_admin_idle(r->admin);
    for (struct kb_partition *p = NULL; whole && (p = kb_partitions_next(r->nodes[0].node, p));)
        whole = p->state == KB_PART_ONLINE && !p->log->poisoned;
    if (!whole) { /* an image that could not be started from is none */
        sim_at(&r->w, r->w.now_us + 300 * SIM_MS, take_image, r, 0);
        return;
    }
    r->image = sim_disk_image_take(r->nodes[0].disk);
    sim_check_disk_image(&r->nodes[0]);
    sim_check_meta_death(&r->nodes[0]);
    r->meta_image = r->meta;
    sim_trace(&r->w, "an image of the disk is taken");
}

/* What the image lacks is lost, and it may have been promised: nothing on one copy can prevent that. With the clients that saw it gone (their
 * producer ids are given out anew), all else must hold. */
static void old_image(void *ctx, uint64_t arg) {
    struct sim_run *r = ctx;
    (void)arg;
    if (r->w.healed) return;
    if (!r->image) {
        sim_at(&r->w, r->w.now_us + 3 * SIM_S, old_image, r, 0);
        return;
    }
    if (r->nodes[0].life != SIM_DOWN) sim_broker_kill(&r->nodes[0]);
    for (int c = 1; c <= r->plan.clients; c++)
        if (r->clients[c].core) end_client(r, c);
    sim_client_first_life(r);
    sim_disk_image_restore(r->nodes[0].disk, r->image);
    r->image = NULL;
    r->meta = r->meta_image;
    r->meta_rot.there = false;
    sim_check_disk_restored(r);
    sim_groups_lost(r);
    r->groups.made = false;
    sim_fire(&r->w, SIM_F_OLD_IMAGE);
    sim_trace(&r->w, "the disk is what it was in its image");
    start_later(r, SIM_S);
}

/* ---- Administration ---- */

static void config(struct sim_run *r) {
    static const char *const names[] = {"segment.bytes", "index.interval.bytes", "flush.messages",
                                        "flush.ms",      "segment.ms",           "max.message.bytes"};
    char value[24];
    int t = (int)sim_below(&r->w, (uint64_t)r->model.topic_count), k = (int)sim_below(&r->w, KW_COUNTOF(names));
    int64_t v = k == 0   ? sim_range(&r->w, 20000, 400000)
                : k == 1 ? sim_range(&r->w, 0, 5000)
                : k == 2 ? sim_range(&r->w, 1, 2000)
                : k == 3 ? sim_range(&r->w, 0, 5000)
                : k == 4 ? sim_range(&r->w, 1000, 60000)
                         : 2000000;
    snprintf(value, sizeof value, "%lld", (long long)v);
    sim_fire(&r->w, SIM_F_CONFIG);
    sim_admin_config(r->admin, t, names[k], value);
}

static void grow(struct sim_run *r) {
    struct sim_topic *t = &r->model.topics[sim_below(&r->w, (uint64_t)r->model.topic_count)];
    if (t->partitions >= 12 || t->churned) return;
    t->partitions += (int32_t)sim_range(&r->w, 1, 2);
    sim_fire(&r->w, SIM_F_GROWTH);
    sim_admin_grow(r->admin, (int)(t - r->model.topics), t->partitions);
}

static void recreate(struct sim_run *r) {
    if (r->model.topic_count < 2) return;
    struct sim_topic *t = &r->model.topics[r->model.topic_count - 1];
    t->churned = true;
    sim_fire(&r->w, SIM_F_RECREATE);
    sim_admin_recreate(r->admin, r->model.topic_count - 1);
}

static void delete_records(struct sim_run *r) {
    int t = (int)sim_below(&r->w, (uint64_t)r->model.topic_count), p = (int)sim_below(&r->w, (uint64_t)r->model.topics[t].partitions);
    struct sim_log *l = sim_model_log(&r->model, t, p);
    if ((int64_t)l->count < l->start + 20 || r->model.topics[t].churned) return;
    int64_t before = l->start + (int64_t)sim_below(&r->w, (uint64_t)((int64_t)l->count - l->start) / 2 + 1);
    l->start = KW_MAX(l->start, before); /* from now on it may be gone */
    sim_fire(&r->w, SIM_F_DELETE_RECORDS);
    sim_admin_delete_records(r->admin, t, p, before);
}

/* ---- All together ---- */

static const struct {
    fault_fn *fn;
    size_t every; /* offset of its rate in the plan */
} kinds[] = {
    {cut, offsetof(struct sim_plan, cut_s)},
    {kill_broker, offsetof(struct sim_plan, kill_s)},
    {power, offsetof(struct sim_plan, power_s)},
    {stop, offsetof(struct sim_plan, stop_s)},
    {pause_broker, offsetof(struct sim_plan, pause_broker_s)},
    {sim_fault_pause_client, offsetof(struct sim_plan, pause_client_s)},
    {jump, offsetof(struct sim_plan, jump_s)},
    {sim_fault_kill_client, offsetof(struct sim_plan, client_kill_s)},
    {sim_fault_close_client, offsetof(struct sim_plan, client_close_s)},
    {sim_fault_hang, offsetof(struct sim_plan, hang_s)},
    {sim_fault_eio, offsetof(struct sim_plan, eio_s)},
    {sim_fault_full, offsetof(struct sim_plan, full_s)},
    {config, offsetof(struct sim_plan, config_s)},
    {grow, offsetof(struct sim_plan, grow_s)},
    {recreate, offsetof(struct sim_plan, recreate_s)},
    {delete_records, offsetof(struct sim_plan, delete_s)},
    {no_memory, offsetof(struct sim_plan, alloc_s)},
    {attack, offsetof(struct sim_plan, attack_s)},
    {sim_fault_misdirect, offsetof(struct sim_plan, misdirect_s)},
};

static uint32_t every(const struct sim_run *r, uint64_t k) {
    uint32_t s;
    memcpy(&s, (const char *)&r->plan + kinds[k].every, sizeof s);
    return s;
}

static void strike(void *ctx, uint64_t k) {
    struct sim_run *r = ctx;
    if (r->w.healed) return;
    kinds[k].fn(r);
    sim_at(&r->w, r->w.now_us + sim_range(&r->w, SIM_MS, 2 * every(r, k) * SIM_S), strike, r, k);
}

static void begin(void *ctx, uint64_t arg) {
    struct sim_run *r = ctx;
    (void)arg;
    r->net.faults = r->plan.net;
    sim_disk_faults(r->nodes[0].disk)->slow_ppm = r->plan.slow_ppm;
    sim_disk_faults(r->nodes[0].disk)->slow_us = sim_range(&r->w, SIM_MS, 300 * SIM_MS);
    for (uint64_t k = 0; k < KW_COUNTOF(kinds); k++)
        if (every(r, k)) sim_at(&r->w, r->w.now_us + sim_range(&r->w, SIM_MS, 2 * every(r, k) * SIM_S), strike, r, k);
    if (r->plan.image) {
        int64_t at = r->w.now_us + sim_range(&r->w, 5 * SIM_S, 40 * SIM_S);
        sim_at(&r->w, at, take_image, r, 0);
        sim_at(&r->w, at + sim_range(&r->w, SIM_S, 30 * SIM_S), old_image, r, 0);
    }
    for (int c = -1; c <= r->plan.clients && r->plan.drift; c++) {
        sim_fire(&r->w, SIM_F_DRIFT);
        sim_host_drift(c < 0 ? &r->nodes[0].host : &r->clients[c].host, sim_range(&r->w, -2000, 2000));
    }
}

void sim_faults_start(struct sim_run *r) {
    sim_at(&r->w, r->w.now_us + r->plan.calm_us, begin, r, 0);
}

/* A log that has failed is whole again after a start; and so is a node that gave up. */
static void mend(void *ctx, uint64_t arg) {
    struct sim_run *r = ctx;
    struct sim_broker *b = &r->nodes[0];
    (void)arg;
    bool broken = false;
    if (r->ending) return;
    if (b->life == SIM_DOWN) sim_broker_start(b);
    for (struct kb_partition *p = NULL; b->life == SIM_UP && (p = kb_partitions_next(b->node, p));) {
        char path[96];
        snprintf(path, sizeof path, SIM_DATA "/%s-%d/", p->topic, p->index);
        const struct sim_log *l = sim_log_of_path(r, path);
        broken |= !(l && l->tainted) && (p->state == KB_PART_OFFLINE || (p->log && p->log->poisoned));
    }
    if (broken) sim_broker_kill(b);
    sim_at(&r->w, r->w.now_us + SIM_S, mend, r, 0);
}

void sim_faults_heal(struct sim_run *r) {
    struct sim_disk_faults *f = sim_disk_faults(r->nodes[0].disk);
    sim_net_heal(&r->net);
    sim_alloc_heal(&r->nodes[0].host);
    for (int i = 0; i <= r->plan.clients; i++) sim_alloc_heal(&r->clients[i].host);
    f->enospc_at = f->free_bytes = f->eio_read_at = f->eio_write_at = f->eio_sync_at = f->misdirect_at = -1;
    f->slow_ppm = 0;
    f->hung_until_us = 0;
    r->nodes[0].host.paused_until_us = KW_MIN(r->nodes[0].host.paused_until_us, r->w.now_us + 20 * SIM_S);
    mend(r, 0);
    for (int i = 0; i <= r->plan.clients; i++) {
        if (i && !r->clients[i].core) sim_client_new_life(r, i);
        if (i && r->producers[i]) sim_producer_hurry(r->producers[i]);
        if (i && r->consumers[i]) sim_consumer_calm(r->consumers[i]);
    }
}
