/* cluster.c - one seed of the second world: draws the cluster, sets it up, runs both phases, takes it apart. Called by main.c. Calls
 * workload.c for what both worlds share. */
#include "cluster_faults.h"
#include "compact.h"
#include "guid.h"

#include <stdio.h>
#include <stdlib.h>

#include "node_priv.h"

enum { BUSY_S = 90, CONTROLLER_ID = 1000 };
#define QUIET_US (5 * SIM_S) /* in which the dead are found out, mostly; who is fenced by then is seen in the ISR */

int sim_cluster_node(const struct sim_cluster *c, int32_t id) {
    for (int i = 0; i < c->run->node_count; i++)
        if (c->ids[i] == id) return i;
    return -1;
}

/* ---- Drawing ---- */

static void draw_network(struct sim_world *w, struct sim_plan *p) {
    p->net = (struct sim_net_faults){.refused = sim_ppm(w, 30, 100000),
                                     .syn_lost = sim_ppm(w, 30, 50000),
                                     .reset = sim_ppm(w, 50, 200000),
                                     .half_open = sim_ppm(w, 40, 300000),
                                     .one_byte = sim_ppm(w, 30, 100000),
                                     .short_send = sim_ppm(w, 50, 50000),
                                     .slow_reader = sim_ppm(w, 20, 100000),
                                     .clog = sim_ppm(w, 30, 500),
                                     .tail_delay = sim_ppm(w, 50, 5000),
                                     .hostile_answer = sim_ppm(w, 25, 1000),
                                     .delay_us = sim_range(w, 20, sim_below(w, 3) ? 500 : 3000)};
    if (!p->net.short_send && !p->net.tail_delay) p->net.short_send = 20000; /* something is always wrong */
}

static void draw_faults(struct sim_world *w, struct sim_cluster_plan *p) {
    p->kill_s = sim_often(w, 60, 4, 40);
    p->kill_leader_s = sim_often(w, 50, 5, 20);
    p->kill_controller_s = sim_often(w, 50, 5, 20);
    p->kill_all_s = sim_often(w, 25, 15, 60);
    p->power_s = sim_often(w, 50, 3, 20);
    p->stop_s = sim_often(w, 40, 6, 40);
    p->pause_s = sim_often(w, 40, 6, 40);
    p->cut_s = sim_often(w, 40, 5, 30);
    p->mesh_s = sim_often(w, 30, 8, 50);
    p->isolate_s = sim_often(w, 40, 6, 40);
    p->wipe_s = sim_often(w, 30, 3, 20);
    p->image_s = sim_often(w, 30, 3, 15);
    p->jump_s = sim_often(w, 30, 5, 40);
    p->pause_client_s = sim_often(w, 20, 8, 60);
    p->client_kill_s = sim_often(w, 30, 10, 60);
    p->client_close_s = sim_often(w, 30, 10, 60);
    p->cut_client_s = sim_often(w, 40, 5, 40);
    p->hang_s = sim_often(w, 25, 8, 60);
    p->full_s = sim_often(w, 25, 8, 50);
    p->config_s = sim_often(w, 30, 5, 30);
    p->grow_s = sim_often(w, 25, 10, 60);
    p->delete_s = sim_often(w, 20, 10, 40);
    p->alloc_s = sim_often(w, 30, 1, 12);
    p->eio_s = sim_often(w, 25, 4, 30);
    p->bad_sector_s = sim_often(w, 20, 4, 30);
    p->slow_s = sim_often(w, 20, 8, 40);
    p->recreate_s = sim_often(w, 20, 15, 60);
    p->reassign_s = sim_often(w, 35, 4, 30);
    p->elect_s = sim_often(w, 25, 4, 30);
    p->unregister_s = sim_often(w, 20, 6, 40);
    p->attack_s = sim_often(w, 35, 1, 6);
    p->leave_s = sim_often(w, 30, 3, 20);
    p->spike_s = sim_often(w, 25, 8, 40);
    p->meta_rot_ppm = sim_ppm(w, 25, 900000);
    p->rot_ppm = sim_ppm(w, 25, 700000);
    p->misdirect_ppm = sim_ppm(w, 25, 700000);
    p->state_ppm = sim_ppm(w, 25, 500000);
    p->tamper_ppm = sim_ppm(w, 30, 700000);
    p->drift = sim_below(w, 4) == 0;
    if (!p->kill_leader_s && !p->kill_controller_s) p->kill_leader_s = (uint32_t)sim_range(w, 5, 15); /* each seed has its elections */
}

static void add_config(struct sim_run *r, int topic, const char *name, const char *value) {
    const char **c = r->configs[topic];
    size_t n = 0;
    while (c[n]) n++;
    c[n] = name;
    c[n + 1] = value;
}

static void draw_topics(struct sim_run *r) {
    static const char *const numbers[] = {"0", "1", "2", "3"};
    struct sim_world *w = &r->w;
    int brokers = 0;
    for (int i = 0; i < r->node_count; i++) brokers += r->cluster->broker[i];
    sim_plan_draw_topics(r);
    for (int t = 0; t < r->model.topic_count; t++) {
        struct sim_topic *s = &r->model.topics[t];
        s->partitions = KW_MIN(s->partitions, 5);
        if (r->model.topic_count == 1) s->partitions = KW_MAX(s->partitions, 3); /* a slow reader of one log has a long way to go */
        s->rf = (int16_t)KW_MIN(brokers, (int)(sim_below(w, 4) ? 3 : sim_range(w, 1, 3)));
        if (t == 0 && s->rf == 1) s->rf = 3;
        int min = (int)sim_range(w, 1, KW_MAX(s->rf - 1, 1)); /* the loss of one node never stops the writes */
        add_config(r, t, "min.insync.replicas", numbers[min]);
        s->unclean = s->rf > 1 && t > 0 && sim_below(w, 4) == 0;
        if (s->unclean) add_config(r, t, "unclean.leader.election.enable", "true");
    }
}

static void draw(struct sim_run *r) {
    struct sim_world *w = &r->w;
    struct sim_plan *p = &r->plan;
    struct sim_cluster *c = r->cluster;
    int shape = (int)sim_below(w, 13);
    bool five = shape == 10 || shape == 12;
    c->plan.voters = five ? 5 : 3;
    c->plan.apart = shape == 8 || shape == 9 || shape >= 11;
    c->plan.rest = c->plan.apart ? (int)sim_range(w, 3, shape == 11 ? 5 : 3) : shape < 5 ? 0 : (int)sim_range(w, five ? 0 : 1, 2);
    c->plan.joins = sim_below(w, 3) == 0;
    r->node_count = c->plan.voters + c->plan.rest;
    for (int i = 0; i < r->node_count; i++) {
        c->voter[i] = i < c->plan.voters;
        c->broker[i] = !(c->plan.apart && c->voter[i]);
        c->ids[i] = c->broker[i] ? (c->plan.apart ? i - c->plan.voters : i) : CONTROLLER_ID + i;
    }
    p->clients = (int)sim_range(w, 1, 3);
    p->records = (uint32_t)sim_range(w, 5200, 8000);
    p->calm_us = sim_range(w, SIM_S, 6 * SIM_S);
    p->disk = (struct sim_disk_options){.delay_min_us = 10,
                                        .delay_max_us = sim_range(w, 50, 3000),
                                        .inline_ppm = (uint32_t)sim_range(w, 300000, 950000),
                                        .writeback_ppm = (uint32_t)sim_below(w, 200000),
                                        .sync_max_us = sim_below(w, 2) ? 0 : sim_range(w, 1, 30 * SIM_MS)};
    p->slow_ppm = sim_ppm(w, 30, 5000);
    draw_network(w, p);
    draw_faults(w, &c->plan);
    draw_topics(r);
    sim_compact_draw(r);
}

/* ---- Nodes ---- */

static void on_turn(struct sim_broker *b) {
    sim_check_quorum(b);
    sim_check_copies(b);
    sim_check_guids(b);
}
static void on_ready(struct sim_broker *b) {
    sim_fault_meta_ready(b->ctx, b);
    sim_disks_ready(((struct sim_run *)b->ctx)->cluster, b);
}
static void on_death(struct sim_broker *b, enum sim_death how) {
    (void)how;
    sim_check_quorum_death(b);
    sim_check_copies_death(b);
}

static void set_number(struct sim_broker *b, const char *name, int64_t v) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)v);
    sim_broker_set(b, name, text);
}

static int address_of(const struct sim_run *r, int node) {
    return r->net.servers[node].address;
}

static void set_node(struct sim_run *r, int i, const char *voters) {
    struct sim_cluster *c = r->cluster;
    struct sim_world *w = &r->w;
    struct sim_broker *b = &r->nodes[i];
    char name[32], text[64];
    snprintf(name, sizeof name, "node %d", i);
    sim_broker_init(b, w, &r->net, i, name, &r->plan.disk);
    b->ctx = r;
    b->on_turn = on_turn;
    b->on_ready = on_ready;
    b->on_death = on_death;
    b->on_dead = sim_cluster_dead;
    b->on_broken = sim_check_copies_broken;
    set_number(b, "node.id", c->ids[i]);
    sim_broker_set(b, "process.roles", !c->broker[i] ? "controller" : c->voter[i] ? "broker,controller" : "broker");
    sim_broker_set(b, "controller.quorum.voters", voters);
    if (!c->broker[i]) {
        snprintf(text, sizeof text, "CONTROLLER://10.0.0.%d:9092", address_of(r, i));
        sim_broker_set(b, "listeners", text);
    }
    snprintf(text, sizeof text, "rack-%d", i % 2);
    sim_broker_set(b, "broker.rack", text);
    sim_broker_set(b, "auto.create.topics.enable", "false");
    sim_broker_set(b, "flush.on.ack", r->model.flush_on_ack ? "true" : "false");
    if (sim_below(w, 2)) set_number(b, "log.flush.interval.ms", sim_range(w, 100, 5000));
    set_number(b, "replica.high.watermark.checkpoint.interval.ms", sim_range(w, 200, 20000));
    set_number(b, "log.flush.offset.checkpoint.interval.ms", sim_range(w, 200, 60000));
    if (sim_below(w, 2)) set_number(b, "metadata.log.max.record.bytes.between.snapshots", sim_range(w, 400, 20000));
    if (sim_below(w, 3) == 0) set_number(b, "metadata.log.segment.bytes", sim_range(w, 1024, 8192));
    sim_compact_broker(r, b);
    sim_guids_broker(r, b);
    sim_groups_set_node(r, b);
}

/* Of the whole cluster, as its administrator would. */
static void set_timeouts(struct sim_run *r) {
    struct sim_world *w = &r->w;
    int64_t lag = sim_below(w, 2) ? 10000 : sim_range(w, 1000, 10000), session = sim_below(w, 2) ? 3000 : sim_range(w, 1000, 9000),
            heartbeat = session / sim_range(w, 3, 8);
    int64_t fetch = sim_below(w, 2) ? 1000 : sim_range(w, 400, 2000), election = sim_below(w, 2) ? 500 : sim_range(w, 200, 1000),
            most = sim_below(w, 2) ? 1048576 : sim_range(w, 1000, 200000);
    int64_t wait = sim_range(w, 50, 500), rebalance = sim_below(w, 2) ? 300 : sim_range(w, 2, 20);
    for (int i = 0; i < r->node_count; i++) {
        struct sim_broker *b = &r->nodes[i];
        set_number(b, "replica.lag.time.max.ms", lag);
        set_number(b, "broker.session.timeout.ms", session);
        set_number(b, "broker.heartbeat.interval.ms", heartbeat);
        set_number(b, "controller.quorum.fetch.timeout.ms", fetch);
        set_number(b, "controller.quorum.election.timeout.ms", election);
        set_number(b, "replica.fetch.max.bytes", most);
        set_number(b, "replica.fetch.wait.max.ms", wait);
        set_number(b, "leader.imbalance.check.interval.seconds", rebalance);
    }
}

static void make_nodes(struct sim_run *r) {
    struct sim_cluster *c = r->cluster;
    char voters[256];
    size_t n = 0;
    for (int i = 0; i < r->node_count; i++) r->net.servers[i].address = i + 1;
    for (int i = 0; i < c->plan.voters; i++)
        n += (size_t)snprintf(voters + n, sizeof voters - n, "%s%d@10.0.0.%d:9092", i ? "," : "", c->ids[i], address_of(r, i));
    r->model.flush_on_ack = sim_below(&r->w, 3) == 0;
    if (!r->model.flush_on_ack && c->plan.power_s) c->plan.power_s = KW_MIN(c->plan.power_s, 2); /* the atlas seldom lets it */
    if (c->plan.wipe_s) c->plan.wipe_s = KW_MIN(c->plan.wipe_s, 3);
    if (c->plan.image_s) c->plan.image_s = KW_MIN(c->plan.image_s, 3);
    for (int i = 0; i < r->node_count; i++) set_node(r, i, voters);
    set_timeouts(r);
    int brokers = 0;
    for (int i = 0; i < r->node_count; i++) brokers += c->broker[i];
    for (int i = 0; i < r->node_count; i++) {
        c->late[i] = c->plan.joins && !c->voter[i] && brokers > 3 && sim_below(&r->w, 2);
        if (c->late[i])
            sim_cluster_join_later(c, i);
        else
            sim_broker_start(&r->nodes[i]);
    }
}

static void set_bootstrap(struct sim_run *r, struct sim_client *cl) {
    char text[256];
    size_t n = 0;
    for (int i = 0; i < r->node_count; i++)
        if (r->cluster->broker[i]) n += (size_t)snprintf(text + n, sizeof text - n, "%s10.0.0.%d:9092", n ? "," : "", address_of(r, i));
    sim_client_set(cl, "bootstrap.servers", text);
}

static struct sim_cluster *make(struct sim_run *r) {
    struct sim_cluster *c = sim_need(calloc(1, sizeof *c));
    c->run = r;
    c->compressor = sim_need(kw_compressor_new());
    kb_image_init(&c->image);
    c->image.observer = (struct kb_image_observer){.partition = sim_check_partition_record, .ctx = c};
    kb_replay_init(&c->replay, &c->image, c->compressor, -1, 0);
    snprintf(c->meta.name, sizeof c->meta.name, "__cluster_metadata-0");
    for (int t = 0; t < SIM_TOPICS_MAX; t++)
        for (int i = 0; i < SIM_PARTS_MAX; i++) {
            snprintf(c->parts[t][i].name, sizeof c->parts[t][i].name, "topic-%d-%d", t, i);
            c->parts[t][i].leader = -1;
        }
    for (int i = 0; i < SIM_NODES_MAX; i++) c->nodes[i].offset = c->owes[i].offset = -1;
    c->state.node = -1;
    return c;
}

/* ---- The run ---- */

/* A node that stays down at first, where a quorum and all partitions can be served without it. */
static void choose_core(struct sim_run *r) {
    struct sim_cluster *c = r->cluster;
    if (sim_below(&r->w, 3) == 0 || sim_atlas_fragile(c) || r->w.now_us - c->trouble_us < QUIET_US)
        return; /* else some may still be taken for dead */
    int node = (int)sim_below(&r->w, (uint64_t)r->node_count);
    if (c->gone[node]) return;
    for (int i = 0; i < r->node_count && c->voter[node]; i++)
        if (c->owes[i].offset >= 0) return;
    for (int t = 0; t < r->model.topic_count && c->broker[node]; t++) {
        if (r->model.topics[t].rf == 1) return;
        for (int i = 0; i < r->model.topics[t].partitions; i++) {
            const struct sim_part *p = &c->parts[t][i];
            bool other = false;
            for (int k = 0; k < p->isr_count; k++) other |= p->isr[k] != node && r->nodes[p->isr[k]].life == SIM_UP;
            if (!p->known || (sim_part_in_isr(p, node) && !other)) return; /* nobody else may be able to lead */
        }
    }
    int brokers = 0, rf = 0;
    for (int i = 0; i < r->node_count; i++) brokers += c->broker[i] && !c->gone[i];
    for (int t = 0; t < r->model.topic_count; t++) rf = KW_MAX(rf, r->model.topics[t].rf);
    if (!sim_admin_idle(r->admin) && c->broker[node] && brokers - 1 < rf) return; /* a topic that is still to be made could not be */
    c->left_out[node] = true;
    sim_fire(&r->w, SIM_F_LEFT_OUT);
    sim_trace(&r->w, "node %d stays down", node);
}

void sim_cluster_run(struct sim_run *r, uint64_t seed, bool loud) {
    struct sim_world *w = &r->w;
    memset(r, 0, sizeof *r);
    sim_world_init(w, seed ^ 0x636c7573746572u);
    w->seed = seed;
    w->loud = loud;
    w->replay = "--cluster ";
    sim_net_init(&r->net, w);
    sim_model_init(&r->model, w);
    r->cluster = make(r);
    r->model.in_files = sim_cluster_has;
    r->model.replicated = true;
    r->model.ctx = r;
    draw(r);
    sim_groups_draw(r);
    sim_guids_draw(r);
    make_nodes(r);
    for (int i = 0; i <= r->plan.clients; i++) {
        sim_client_init(&r->clients[i], w, &r->net, i);
        sim_client_setup(&r->clients[i], true);
        set_bootstrap(r, &r->clients[i]);
        r->left[i] = i ? r->plan.records / (uint32_t)r->plan.clients : 0;
    }
    sim_attacker_init(&r->attacker, w, &r->net);
    r->attacker.servers = r->node_count;
    r->attacker.forge = sim_cluster_forge;
    r->attacker.forge_ctx = r->cluster;
    sim_client_first_life(r);
    for (int i = 1; i <= r->plan.clients; i++) sim_client_new_life(r, i);
    sim_cluster_faults_start(r);
    sim_guids_faults_start(r);
    sim_run_until(w, w->now_us + BUSY_S * SIM_S);
    w->healed = true;
    choose_core(r);
    sim_trace(w, "healed");
    sim_cluster_faults_heal(r);
    sim_check_cluster_live(r, false);
    memset(r->cluster->left_out, 0, sizeof r->cluster->left_out);
    sim_consumer_restart(r->verifier);
    sim_check_cluster_live(r, true);
    sim_check_lookups(r);
    for (int i = 1; i <= r->plan.clients; i++)
        if (r->producers[i]) sim_producer_close(r->producers[i], 10 * SIM_S);
    sim_run_until(w, w->now_us + 11 * SIM_S);
    for (int i = 0; i <= r->plan.clients; i++) sim_client_kill(&r->clients[i]);
    sim_check_compact_final(r);
    sim_check_guids_final(r);
    sim_check_cluster_final(r);
    sim_check_compact_files(r);
    sim_check_final(&r->model);
}

static void part_deinit(struct sim_part *p) {
    free(p->committed.v);
    free(p->leaders);
    free(p->stamps);
    free(p->heads);
    for (int n = 0; n < SIM_NODES_MAX; n++) free(p->copies[n].have.v);
}

void sim_cluster_deinit(struct sim_run *r) {
    struct sim_cluster *c = r->cluster;
    if (!c) return;
    for (int t = 0; t < SIM_TOPICS_MAX; t++)
        for (int i = 0; i < SIM_PARTS_MAX; i++) part_deinit(&c->parts[t][i]);
    part_deinit(&c->meta);
    sim_disks_forget_damage(c);
    for (int n = 0; n < SIM_NODES_MAX; n++) {
        free(c->nodes[n].ballots);
        sim_disk_image_free(c->old[n]);
    }
    free(c->hashes);
    free(c->controllers);
    kb_replay_deinit(&c->replay);
    kb_image_deinit(&c->image);
    kw_compressor_free(c->compressor);
    free(c);
    r->cluster = NULL;
}
