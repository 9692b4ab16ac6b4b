/* cluster_admin.c - what an administrator does to a cluster while everything goes on: configurations, partitions, replicas, leaders. Called by
 * cluster_faults.c; admin_app.c carries it out. */
#include <stdio.h>

#include "cluster_faults.h"

void sim_admins_config(struct sim_cluster *c) {
    static const char *const names[] = {"min.insync.replicas", "segment.bytes", "flush.messages", "segment.ms", "flush.ms", "index.interval.bytes"};
    struct sim_world *w = &c->run->w;
    char value[24];
    int t = (int)sim_below(w, (uint64_t)c->run->model.topic_count), k = (int)sim_below(w, KW_COUNTOF(names));
    int64_t v = k == 0   ? sim_range(w, 1, KW_MAX(c->run->model.topics[t].rf - 1, 1))
                : k == 1 ? sim_range(w, 20000, 400000)
                : k == 2 ? sim_range(w, 1, 2000)
                : k == 3 ? sim_range(w, 1000, 60000)
                         : sim_range(w, 0, 5000);
    snprintf(value, sizeof value, "%lld", (long long)v);
    sim_fire(w, SIM_F_CONFIG);
    sim_admin_config(c->run->admin, t, names[k], value);
}

void sim_admins_grow(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    struct sim_topic *t = &c->run->model.topics[sim_below(w, (uint64_t)c->run->model.topic_count)];
    if (t->partitions >= SIM_PARTS_MAX - 4 || t->churned) return;
    t->partitions += (int32_t)sim_range(w, 1, 2);
    sim_fire(w, SIM_F_GROWTH);
    sim_admin_grow(c->run->admin, (int)(t - c->run->model.topics), t->partitions);
}

void sim_admins_delete_records(struct sim_cluster *c) {
    struct sim_run *r = c->run;
    int t = (int)sim_below(&r->w, (uint64_t)r->model.topic_count), p = (int)sim_below(&r->w, (uint64_t)r->model.topics[t].partitions);
    struct sim_log *l = sim_model_log(&r->model, t, p);
    if ((int64_t)l->count < l->start + 20 || sim_part_is_open(c, t, p)) return;
    int64_t before = l->start + (int64_t)sim_below(&r->w, (uint64_t)((int64_t)l->count - l->start) / 2 + 1);
    l->start = KW_MAX(l->start, before); /* from now on it may be gone */
    sim_fire(&r->w, SIM_F_DELETE_RECORDS);
    sim_admin_delete_records(r->admin, t, p, before);
}

/* What was in it is gone, and what comes into which of the two nobody can tell. */
void sim_admins_recreate(struct sim_cluster *c) {
    struct sim_model *m = &c->run->model;
    if (m->topic_count < 2) return;
    m->topics[m->topic_count - 1].churned = true;
    sim_fire(&c->run->w, SIM_F_RECREATE);
    sim_admin_recreate(c->run->admin, m->topic_count - 1);
}

/* ---- Replicas and leaders ---- */

static struct sim_part *any_part(struct sim_cluster *c, int *topic, int *partition) {
    struct sim_world *w = &c->run->w;
    *topic = (int)sim_below(w, (uint64_t)c->run->model.topic_count);
    *partition = (int)sim_below(w, (uint64_t)c->run->model.topics[*topic].partitions);
    return &c->parts[*topic][*partition];
}

static void cancel(void *ctx, uint64_t arg) {
    struct sim_cluster *c = ctx;
    if (c->run->w.healed) return;
    sim_fire(&c->run->w, SIM_F_CANCEL);
    sim_admin_reassign(c->run->admin, (int)(arg >> 8), (int)(arg & 0xff), NULL, -1);
}

/* Onto others, as many as before or one more; of three brokers in another order at least. */
void sim_admins_reassign(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    int topic, partition;
    struct sim_part *p = any_part(c, &topic, &partition);
    int32_t ids[SIM_NODES_MAX];
    int n = 0;
    if (!p->known) return;
    for (int i = 0; i < c->run->node_count; i++)
        if (c->broker[i] && !c->gone[i]) ids[n++] = c->ids[i];
    int want = c->run->model.topics[topic].rf + (sim_below(w, 4) == 0);
    for (int i = 0; i < n; i++) {
        int k = i + (int)sim_below(w, (uint64_t)(n - i));
        int32_t id = ids[i];
        ids[i] = ids[k];
        ids[k] = id;
    }
    sim_fire(w, SIM_F_REASSIGN);
    sim_admin_reassign(c->run->admin, topic, partition, ids, KW_MIN(want, n));
    if (sim_below(w, 3) == 0) sim_at(w, w->now_us + sim_range(w, 0, 2 * SIM_S), cancel, c, (uint64_t)topic << 8 | (uint64_t)partition);
}

void sim_admins_elect(struct sim_cluster *c) {
    int topic, partition;
    (void)any_part(c, &topic, &partition);
    sim_fire(&c->run->w, SIM_F_ELECT);
    sim_admin_elect(c->run->admin, topic, partition, c->run->model.topics[topic].unclean && sim_below(&c->run->w, 2));
}

/* One that is dead, mostly: it comes back as one that was never there; one that lives registers again. */
void sim_admins_unregister(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    struct sim_broker *b = sim_any_node(c);
    if (!c->broker[b->index] || c->gone[b->index] || (b->life != SIM_DOWN && sim_below(w, 8))) return;
    c->trouble_us = w->now_us;
    sim_fire(w, SIM_F_UNREGISTER);
    sim_trace(w, "node %d (%d) is unregistered", b->index, b->life);
    sim_admin_unregister(c->run->admin, c->ids[b->index]);
}

/* What has a replica on a node that will not come back gets another one. */
static void evacuate(void *ctx, uint64_t node) {
    struct sim_cluster *c = ctx;
    if (c->ending) return;
    for (int t = 0; t < c->run->model.topic_count && sim_admin_idle(c->run->admin); t++)
        for (int i = 0; i < c->run->model.topics[t].partitions; i++) {
            const struct sim_part *p = &c->parts[t][i];
            int32_t ids[SIM_NODES_MAX];
            int n = 0;
            if (!p->known || !sim_part_has_replica(p, (int)node)) continue;
            for (int k = 0; k < p->replica_count; k++)
                if (!c->gone[p->replicas[k]]) ids[n++] = c->ids[p->replicas[k]];
            for (int k = 0; k < c->run->node_count && n < c->run->model.topics[t].rf; k++)
                if (c->broker[k] && !c->gone[k] && !sim_part_has_replica(p, k)) ids[n++] = c->ids[k];
            sim_admin_reassign(c->run->admin, t, i, ids, n);
        }
    sim_at(&c->run->w, c->run->w.now_us + 3 * SIM_S, evacuate, c, node);
}

void sim_admins_leave(struct sim_cluster *c) {
    struct sim_world *w = &c->run->w;
    struct sim_broker *b = sim_any_node(c);
    int stay = 0, rf = 0;
    for (int i = 0; i < c->run->node_count; i++) stay += c->broker[i] && !c->gone[i] && !c->late[i];
    for (int t = 0; t < c->run->model.topic_count; t++) rf = KW_MAX(rf, c->run->model.topics[t].rf);
    if (c->voter[b->index] || c->gone[b->index] || b->life != SIM_UP || stay <= rf || !sim_atlas_may_lose(c, b->index, true)) return;
    sim_fire(w, SIM_F_LEFT);
    c->trouble_us = w->now_us;
    c->gone[b->index] = true;
    sim_steady(c);
    sim_broker_kill(b);
    sim_trace(w, "node %d has left for ever", b->index);
    sim_check_copies_lost(c, b->index, true);
    sim_admin_unregister(c->run->admin, c->ids[b->index]);
    evacuate(c, (uint64_t)b->index);
}
