/* workload.c - one seed: draws its options, sets the world up, runs both phases, takes it apart. */
#include "workload.h"

#include "compact.h"
#include "guid.h"

#include <stdio.h>
#include <stdlib.h>

enum { BUSY_S = 90 };

/* ---- Drawing ---- */

uint32_t sim_often(struct sim_world *w, uint32_t chance, uint32_t lo_s, uint32_t hi_s) {
    if (sim_below(w, 100) >= chance) return 0;
    return (uint32_t)sim_range(w, lo_s, hi_s);
}
uint32_t sim_ppm(struct sim_world *w, uint32_t chance, uint32_t most) {
    return sim_below(w, 100) < chance ? 1 + (uint32_t)sim_below(w, most) : 0;
}

void sim_plan_draw_topics(struct sim_run *r) {
    static const char *const codecs[] = {"producer", "producer", "producer", "producer", "zstd", "lz4", "snappy", "gzip", "uncompressed"};
    struct sim_world *w = &r->w;
    struct sim_model *m = &r->model;
    m->topic_count = (int)sim_range(w, 1, 4);
    for (int t = 0; t < m->topic_count; t++) {
        struct sim_topic *s = &m->topics[t];
        const char **c = r->configs[t];
        size_t n = 0, v = 0;
        snprintf(s->name, sizeof s->name, "topic-%d", t);
        r->names[t] = s->name;
        s->partitions = (int32_t)sim_range(w, 1, sim_below(w, 4) ? 4 : 12);
        s->append_time = sim_below(w, 6) == 0;
        for (int p = 0; p < 64; p++) s->logs[p].poisoned_at = s->logs[p].hw = s->logs[p].told_end = -1;
        struct {
            const char *name;
            int64_t value;
        } numbers[] = {
            {"segment.bytes", sim_below(w, 3) ? sim_range(w, 20000, 400000) : 1 << 30},
            {"index.interval.bytes", sim_below(w, 2) ? 4096 : sim_range(w, 0, 3000)},
            {"retention.ms", -1},
            {"max.message.bytes", 2000000},
            {"file.delete.delay.ms", sim_range(w, 0, 30000)},
            {"segment.index.bytes", sim_below(w, 4) ? 10485760 : sim_range(w, 64, 4000)},
            {"compression.gzip.level", 1}, /* the quickest ones: how well it is compressed is of no account here */
            {"compression.lz4.level", 1},
        };
        for (size_t i = 0; i < KW_COUNTOF(numbers); i++) {
            snprintf(r->values[t][v], sizeof r->values[t][v], "%lld", (long long)numbers[i].value);
            c[n++] = numbers[i].name;
            c[n++] = r->values[t][v++];
        }
        c[n++] = "compression.type";
        c[n++] = codecs[sim_below(w, KW_COUNTOF(codecs))];
        if (s->append_time) {
            c[n++] = "message.timestamp.type";
            c[n++] = "LogAppendTime";
        }
    }
}

/* What is on, and how hard: drawn apart for each kind, so that seeds differ in what comes together. */
static void draw_network(struct sim_world *w, struct sim_plan *p) {
    p->net = (struct sim_net_faults){.refused = sim_ppm(w, 40, 200000),
                                     .syn_lost = sim_ppm(w, 30, 100000),
                                     .reset = sim_ppm(w, 60, 400000),
                                     .half_open = sim_ppm(w, 50, 500000),
                                     .one_byte = sim_ppm(w, 50, 300000),
                                     .short_send = sim_ppm(w, 60, 100000),
                                     .slow_reader = sim_ppm(w, 30, 300000),
                                     .clog = sim_ppm(w, 40, 3000),
                                     .resolve = sim_ppm(w, 40, 400000),
                                     .tail_delay = sim_ppm(w, 60, 20000),
                                     .delay_us = sim_range(w, 20, 3000)};
    p->cut_s = sim_often(w, 50, 5, 40);
    p->net.hostile_answer = sim_ppm(w, 30, 4000);
    p->attack_s = sim_often(w, 40, 1, 8);
    if (!p->net.one_byte && !p->net.short_send && !p->net.tail_delay) p->net.short_send = 50000; /* something is always wrong */
}

static void draw_lives(struct sim_world *w, struct sim_plan *p) {
    p->kill_s = sim_often(w, 70, 3, 30);
    p->power_s = sim_often(w, 40, 5, 40);
    p->stop_s = sim_often(w, 40, 8, 40);
    p->pause_broker_s = sim_often(w, 30, 8, 60);
    p->pause_client_s = sim_often(w, 30, 8, 60);
    p->jump_s = sim_often(w, 30, 5, 40);
    p->client_kill_s = sim_often(w, 40, 10, 60);
    p->client_close_s = sim_often(w, 40, 10, 60);
    p->config_s = sim_often(w, 40, 5, 30);
    p->grow_s = sim_often(w, 30, 10, 60);
    p->recreate_s = sim_often(w, 25, 15, 60);
    p->delete_s = sim_often(w, 25, 10, 40);
    p->drift = sim_below(w, 4) == 0;
    p->tamper_ppm = sim_ppm(w, 40, 700000);
    p->rot_ppm = sim_ppm(w, 15, 700000);
    p->meta_rot_ppm = sim_ppm(w, 25, 700000);
    p->moves = sim_below(w, 4) == 0;
    p->image = sim_below(w, 10) == 0;
    p->alloc_s = sim_often(w, 30, 1, 12);
}

static void draw_disk(struct sim_world *w, struct sim_plan *p) {
    p->hang_s = sim_often(w, 30, 8, 60);
    p->eio_s = sim_often(w, 30, 8, 60);
    p->full_s = sim_often(w, 40, 6, 40);
    p->misdirect_s = sim_often(w, 20, 6, 40);
    p->slow_ppm = sim_ppm(w, 40, 20000);
}

void sim_plan_draw(struct sim_run *r) {
    struct sim_world *w = &r->w;
    struct sim_plan *p = &r->plan;
    p->clients = (int)sim_range(w, 1, 4);
    p->records = (uint32_t)sim_range(w, 5200, 9000);
    p->calm_us = sim_range(w, 0, 5 * SIM_S);
    p->disk = (struct sim_disk_options){.delay_min_us = 10, .delay_max_us = sim_range(w, 50, 4000), .inline_ppm = (uint32_t)sim_below(w, 900000),
                                        .writeback_ppm = (uint32_t)sim_below(w, 200000), .sync_max_us = sim_below(w, 2) ? 0 : sim_range(w, 1, 60 * SIM_MS)};
    draw_network(w, p);
    draw_lives(w, p);
    draw_disk(w, p);
    sim_plan_draw_topics(r);
}

/* ---- Roles ---- */

static struct kc_config *producer_config(struct sim_world *w) {
    static const char *const codecs[] = {"none", "none", "gzip", "snappy", "lz4", "zstd"};
    char text[32];
    struct kc_config *c = sim_config(NULL);
    int kind = (int)sim_below(w, 8); /* half of them idempotent */
    sim_config_set(c, "acks", kind < 6 ? "-1" : kind == 6 ? "1" : "0");
    bool idempotent = kind < 4;
    sim_config_set(c, "enable.idempotence", idempotent ? "true" : "false");
    snprintf(text, sizeof text, "%d", sim_below(w, 3) == 0 ? 1 : (int)sim_range(w, 2, 5));
    sim_config_set(c, "max.in.flight.requests.per.connection", text);
    sim_config_set(c, "compression.type", codecs[sim_below(w, KW_COUNTOF(codecs))]);
    sim_config_set(c, "compression.gzip.level", "1");
    snprintf(text, sizeof text, "%d", (int)(sim_below(w, 3) ? sim_range(w, 0, 200) : 0));
    sim_config_set(c, "linger.ms", text);
    snprintf(text, sizeof text, "%d", (int)(sim_below(w, 3) ? sim_range(w, 200, 30000) : 1000000));
    sim_config_set(c, "batch.size", text);
    snprintf(text, sizeof text, "%d", (int)sim_range(w, 4000, 60000));
    sim_config_set(c, "delivery.timeout.ms", text);
    if (sim_below(w, 4) == 0) {
        snprintf(text, sizeof text, "%d", (int)sim_range(w, 10, 500));
        sim_config_set(c, "queue.buffering.max.messages", text);
    }
    static const char *const partitioners[] = {"murmur2_random", "consistent_random", "fnv1a", "sticky", "round_robin", "random"};
    sim_config_set(c, "partitioner", partitioners[sim_below(w, KW_COUNTOF(partitioners))]);
    return c;
}

static void add_producer(struct sim_run *r, int i, uint32_t quota) {
    struct sim_world *w = &r->w;
    struct sim_producer_plan p = {.config = producer_config(w),
                                  .quota = quota,
                                  .burst_max = (uint32_t)(sim_below(w, 4) ? sim_range(w, 1, 40) : sim_range(w, 100, 800)),
                                  .timeout_us = sim_below(w, 3) ? 0 : sim_range(w, 200 * SIM_MS, 5 * SIM_S),
                                  .flush_ppm = (uint32_t)sim_below(w, 200000),
                                  .purge_ppm = sim_below(w, 4) ? 0 : 5000,
                                  .start_us = w->now_us};
    int64_t bursts = quota / (p.burst_max / 2 + 1) + 1;
    p.every_us = (BUSY_S * SIM_S * 2 / 3) / bursts;
    r->producers[i] = sim_producer_new(&r->clients[i], &r->model, &p);
}

static struct kc_config *consumer_config(struct sim_world *w) {
    char text[32];
    struct kc_config *c = sim_config(NULL);
    sim_config_set(c, "auto.offset.reset", "earliest");
    snprintf(text, sizeof text, "%d", (int)sim_range(w, 10, 1000));
    sim_config_set(c, "fetch.wait.max.ms", text);
    snprintf(text, sizeof text, "%d", (int)(sim_below(w, 2) ? 1048576 : sim_range(w, 500, 100000)));
    sim_config_set(c, "max.partition.fetch.bytes", text);
    snprintf(text, sizeof text, "%d", (int)(sim_below(w, 2) ? 52428800 : sim_range(w, 2000, 300000)));
    sim_config_set(c, "fetch.max.bytes", text);
    snprintf(text, sizeof text, "%d", (int)(sim_below(w, 2) ? 1 : sim_range(w, 1, 5000)));
    sim_config_set(c, "fetch.min.bytes", text);
    snprintf(text, sizeof text, "%d", (int)(sim_below(w, 2) ? 65536 : sim_range(w, 1, 200)));
    sim_config_set(c, "queued.max.messages.kbytes", text);
    snprintf(text, sizeof text, "%d", (int)(sim_below(w, 2) ? 10000 : sim_range(w, 1, 100)));
    sim_config_set(c, "max.poll.records", text);
    sim_config_set(c, "enable.partition.eof", sim_below(w, 2) ? "true" : "false");
    if (sim_below(w, 4) == 0) sim_config_set(c, "isolation.level", "read_committed");
    return c;
}

static void add_consumer(struct sim_run *r, int i, bool all) {
    struct sim_world *w = &r->w;
    bool fast = sim_below(w, 3), behind = sim_below(w, 4) == 0;
    struct sim_consumer_plan p = {.config = consumer_config(w),
                                  .every_us = fast ? sim_range(w, 5 * SIM_MS, 300 * SIM_MS) : sim_range(w, 500 * SIM_MS, 4 * SIM_S),
                                  .seek_ppm = sim_ppm(w, 50, 30000),
                                  .pause_ppm = sim_ppm(w, 50, 50000),
                                  .reassign_ppm = sim_ppm(w, 50, 10000),
                                  .events = behind ? 1 : 16,
                                  .all = all,
                                  .from_start = true};
    if (behind) { /* takes a few records at a time, and so always has more fetched than taken */
        sim_config_set(p.config, "max.poll.records", sim_below(w, 2) ? "3" : "20");
        p.every_us = sim_range(w, 50 * SIM_MS, 600 * SIM_MS);
    }
    r->consumers[i] = sim_consumer_new(&r->clients[i], &r->model, &p);
}

void sim_client_new_life(struct sim_run *r, int i) {
    struct sim_client *c = &r->clients[i];
    sim_client_start(c, r->names, (size_t)r->model.topic_count);
    if (r->left[i]) add_producer(r, i, r->left[i]);
    r->left[i] = 0;
    if (i == 1 || sim_below(&r->w, 2)) add_consumer(r, i, i == 1 || sim_below(&r->w, 2));
    sim_commits_new(r, i);
    sim_member_new(r, i);
    if (!r->w.healed && sim_below(&r->w, 3) == 0)
        r->legacy[i] = sim_legacy_new(c, &r->model, (uint32_t)sim_range(&r->w, 30, 300), sim_range(&r->w, 100 * SIM_MS, 2 * SIM_S));
    if (r->guids && sim_below(&r->w, 2)) sim_guid_app_new(c, r);
    if (!r->w.healed) return;
    if (r->producers[i]) sim_producer_hurry(r->producers[i]);
    if (r->consumers[i]) sim_consumer_calm(r->consumers[i]);
}

void sim_client_setup(struct sim_client *c, bool moves) {
    struct sim_world *w = c->w;
    char text[32];
    snprintf(text, sizeof text, "%d", (int)sim_range(w, 1000, 15000));
    sim_client_set(c, "request.timeout.ms", text);
    snprintf(text, sizeof text, "%d", (int)sim_range(w, 500, 8000));
    sim_client_set(c, "socket.connection.setup.timeout.ms", text);
    sim_client_set(c, "reconnect.backoff.max.ms", "3000");
    snprintf(text, sizeof text, "%d", (int)sim_range(w, 3000, 60000));
    sim_client_set(c, "metadata.max.age.ms", text);
    snprintf(text, sizeof text, "%d", (int)(sim_below(w, 2) ? 540000 : sim_range(w, 500, 20000)));
    sim_client_set(c, "connections.max.idle.ms", text);
    if (sim_below(w, 3) == 0) sim_client_set(c, "memory.max.bytes", "2000000");
    if (moves || sim_below(w, 3) == 0) sim_client_set(c, "metadata.recovery.rebootstrap.trigger.ms", "5000");
}

/* ---- The broker ---- */

static void on_ready(struct sim_broker *b) {
    sim_fault_meta_ready(b->ctx, b);
    sim_check_meta_ready(b);
    sim_check_disk_ready(b);
    sim_check_compact_ready(b->ctx, b);
}
static void on_dead(struct sim_broker *b, enum sim_death how) {
    sim_check_compact_dead(b->ctx, how);
    sim_check_disk_dead(b, how);
    sim_faults_dead(b->ctx);
}
static void on_death(struct sim_broker *b, enum sim_death how) {
    sim_check_meta_death(b);
    sim_check_disk_death(b, how);
    if (how == SIM_DEATH_POWER && !((struct sim_run *)b->ctx)->model.flush_on_ack) sim_groups_lost(b->ctx);
}
static void on_turn(struct sim_broker *b) {
    sim_check_marks(b);
    sim_check_guids(b);
}

static void set_broker(struct sim_run *r) {
    struct sim_world *w = &r->w;
    struct sim_broker *b = &r->nodes[0];
    char text[32];
    sim_broker_init(b, w, &r->net, 0, "broker", &r->plan.disk);
    b->ctx = r;
    b->on_ready = on_ready;
    b->on_turn = on_turn;
    b->on_death = on_death;
    b->on_dead = on_dead;
    b->on_broken = sim_check_marks_broken;
    sim_broker_set(b, "auto.create.topics.enable", "false");
    r->model.flush_on_ack = sim_below(w, 3) == 0;
    sim_broker_set(b, "flush.on.ack", r->model.flush_on_ack ? "true" : "false");
    if (sim_below(w, 4)) {
        snprintf(text, sizeof text, "%d", (int)sim_range(w, 100, sim_below(w, 2) ? 2000 : 10000));
        sim_broker_set(b, "log.flush.interval.ms", text);
    }
    snprintf(text, sizeof text, "%d", (int)sim_range(w, 200, 60000));
    sim_broker_set(b, "log.flush.offset.checkpoint.interval.ms", text);
    snprintf(text, sizeof text, "%d", (int)sim_range(w, 200, 60000));
    sim_broker_set(b, "replica.high.watermark.checkpoint.interval.ms", text);
    snprintf(text, sizeof text, "%d", (int)sim_range(w, 500, 60000));
    sim_broker_set(b, "log.retention.check.interval.ms", text);
    if (sim_below(w, 3) == 0) sim_broker_set(b, "metadata.log.max.record.bytes.between.snapshots", "400");
    sim_compact_broker(r, b);
    sim_guids_broker(r, b);
    sim_groups_set_node(r, b);
    sim_broker_start(b);
}

/* ---- The run ---- */

static void verifier(struct sim_run *r) { /* has nothing assigned until the end; looks offsets up meanwhile */
    struct sim_consumer_plan p = {.config = consumer_config(&r->w), .every_us = 10 * SIM_MS, .events = 16, .all = true};
    r->verifier = sim_consumer_new(&r->clients[0], &r->model, &p);
}

void sim_client_first_life(struct sim_run *r) {
    struct sim_client *c = &r->clients[0];
    bool again = c->lives > 0;
    sim_client_kill(c);
    sim_client_start(c, r->names, (size_t)r->model.topic_count);
    r->admin = sim_admin_new(c, &r->model);
    for (int t = 0; t < r->model.topic_count; t++) sim_admin_create(r->admin, t, r->configs[t]);
    for (int t = 0; t < r->model.topic_count && again; t++) sim_admin_grow(r->admin, t, r->model.topics[t].partitions);
    if (again) sim_guids_admin_again(r);
    verifier(r);
    sim_prober_new(c, r);
    if (r->compact) sim_compact_new(c, r);
    if (r->guids) sim_guid_app_new(c, r);
}

void sim_run_seed(struct sim_run *r, uint64_t seed, bool loud) {
    struct sim_world *w = &r->w;
    memset(r, 0, sizeof *r);
    r->node_count = 1;
    sim_world_init(w, seed);
    w->loud = loud;
    sim_net_init(&r->net, w);
    sim_model_init(&r->model, w);
    r->model.in_files = sim_check_disk_has;
    r->model.ctx = r;
    sim_plan_draw(r);
    sim_compact_draw(r);
    sim_groups_draw(r);
    sim_guids_draw(r);
    set_broker(r);
    for (int i = 0; i <= r->plan.clients; i++) {
        sim_client_init(&r->clients[i], w, &r->net, i);
        sim_client_setup(&r->clients[i], r->plan.moves);
        r->left[i] = i ? r->plan.records / (uint32_t)r->plan.clients : 0;
    }
    sim_attacker_init(&r->attacker, w, &r->net);
    sim_client_first_life(r);
    for (int i = 1; i <= r->plan.clients; i++) sim_client_new_life(r, i);
    sim_faults_start(r);
    sim_guids_faults_start(r);
    sim_run_until(w, w->now_us + BUSY_S * SIM_S);
    w->healed = true;
    sim_trace(w, "healed");
    sim_faults_heal(r);
    sim_check_live(r);
    sim_consumer_restart(r->verifier);
    sim_check_live(r);
    sim_check_lookups(r);
    for (int i = 1; i <= r->plan.clients; i++)
        if (r->producers[i]) sim_producer_close(r->producers[i], 10 * SIM_S);
    sim_run_until(w, w->now_us + 11 * SIM_S);
    for (int i = 0; i <= r->plan.clients; i++) sim_client_kill(&r->clients[i]);
    sim_check_compact_final(r);
    sim_check_guids_final(r);
    r->ending = true;
    sim_check_disk_final(r);
    sim_check_compact_files(r);
    sim_check_final(&r->model);
}

void sim_run_deinit(struct sim_run *r) {
    for (int i = 0; i <= r->plan.clients; i++) sim_client_deinit(&r->clients[i]);
    sim_disk_image_free(r->image);
    for (int i = 0; i < r->node_count; i++) sim_broker_deinit(&r->nodes[i]);
    sim_cluster_deinit(r);
    sim_compact_deinit(r);
    sim_guids_deinit(r);
    sim_attacker_deinit(&r->attacker);
    sim_net_deinit(&r->net);
    sim_check_disk_deinit();
    sim_model_deinit(&r->model);
    sim_world_deinit(&r->w);
}
