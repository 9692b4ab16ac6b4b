/* check_leaders.c - who leads, and what is committed: invariants 2 (a leader has what others committed before it), 16 (one leader an epoch,
 * epochs grow), 17 (the leader is in its ISR), 18 (what is below a leader's high watermark is on every member of the ISR), 19 (the high
 * watermark moves only with enough members, and all that its leader waits for), 20 (who joins the ISR has what was committed), 23 (who leads
 * was in the ISR), 26 (no ISR is empty; copies never become fewer than were asked for, or than are promised). Called by check_copies.c for each
 * partition of a node after its turn, and for every record of the metadata that is committed. */
#include <stdio.h>
#include <stdlib.h>

#include "cluster.h"

static bool is_suspect(const struct sim_part *p, int node) {
    return p->copies[node].suspect;
}

/* ---- What a leader says ---- */

/* What the node has written by now: it may have told its leader. */
static void catch_up(struct sim_cluster *c, struct sim_part *p, int node, int topic, int partition) {
    struct sim_broker *b = &c->run->nodes[node];
    struct kb_partition *x = sim_node_partition(b, c->run->model.topics[topic].name, partition);
    if (x && x->log && x->state == KB_PART_ONLINE && p->copies[node].life == b->lives && x->log->leo >= p->copies[node].end)
        sim_copy_follow(c, p, node, KW_MIN(x->log->written, x->log->leo));
}

/* A bit of the copy is turned, and its node has neither found it nor been seen ready: what it holds is looked at once it is mended (sim_check_returned). */
static bool is_rotten(const struct sim_cluster *c, const struct sim_part *p, int node) {
    return c->rot.part == p && c->rot.node == node;
}

/* It has all that was committed; of a rotten copy: as many. One that failed since it asked is looked at when it is back. */
static bool may_join(struct sim_cluster *c, struct sim_part *p, int node, int topic, int partition) {
    if (!is_rotten(c, p, node)) return sim_copy_agrees(p, node);
    struct kb_partition *x = sim_node_partition(&c->run->nodes[node], c->run->model.topics[topic].name, partition);
    return !x || !x->log || x->state != KB_PART_ONLINE || KW_MIN(x->log->written, x->log->leo) >= p->end;
}

static void check_members(struct sim_cluster *c, struct sim_part *p, int leader, int topic, int partition, const char *when) {
    for (int i = 0; i < p->isr_count; i++) {
        int m = p->isr[i];
        if (is_suspect(p, m)) continue;
        catch_up(c, p, m, topic, partition);
        if (!sim_copy_agrees(p, m))
            sim_fail(
                &c->run->w, 18,
                "%s-%d, leader node %d: %lld are below a high watermark, and node %d, in the ISR, has %lld of them and ends at %lld (%s)",
                c->run->model.topics[topic].name, partition, leader, (long long)p->end, m,
                (long long)(p->copies[m].agreed ? p->copies[m].have.v[p->copies[m].agreed - 1].last + 1 : 0), (long long)p->copies[m].end,
                when);
    }
}

static void commit(struct sim_cluster *c, struct sim_part *p, struct sim_broker *b, const struct kb_partition *x, int topic) {
    const struct sim_copy *y = &p->copies[b->index];
    for (size_t i = y->agreed; i < y->have.count && y->have.v[i].base < x->hw; i++) {
        const struct sim_batch_id *e = &y->have.v[i];
        if (e->last >= x->hw)
            sim_fail(&c->run->w, 19, "%s: the high watermark %lld of node %d lies in the middle of a batch from %lld to %lld", p->name,
                     (long long)x->hw, b->index, (long long)e->base, (long long)e->last);
        sim_batches_add(&p->committed, e);
        p->end = e->last + 1;
    }
    if (p->end < x->hw) p->end = x->hw; /* its log begins behind it */
    struct sim_log *l = sim_model_log(&c->run->model, topic, x->index);
    l->hw_max = KW_MAX(l->hw_max, p->end);
    check_members(c, p, b->index, topic, x->index, "the high watermark moved");
}

/* In one turn it may move and then hear of a shrink, be it that it heard of enough in this very turn. */
static bool has_had_enough(const struct sim_copy *y, const struct sim_broker *b, const struct kb_partition *x) {
    bool heard = y->look.life == b->lives && y->enough_epoch > y->look.partition_epoch && y->enough_epoch <= x->partition_epoch;
    return (y->led && y->enough) || heard;
}

static void committed(struct sim_cluster *c, struct sim_part *p, struct sim_broker *b, struct kb_partition *x, int topic) {
    struct sim_copy *y = &p->copies[b->index];
    struct sim_world *w = &c->run->w;
    const char *name = c->run->model.topics[topic].name;
    if (!sim_copy_agrees(p, b->index))
        sim_fail(w, 2,
                 "%s-%d: node %d, leader of epoch %d, has a high watermark of %lld and another log than what was committed up to %lld (the "
                 "same for %zu batches)",
                 name, x->index, b->index, x->leader_epoch, (long long)x->hw, (long long)p->end, y->agreed);
    int32_t min = KW_MIN(x->config.min_insync_replicas, x->replica_count);
    if (x->isr_count < min && !has_had_enough(y, b, x))
        sim_fail(w, 19, "%s-%d: node %d moves the high watermark to %lld with %d in sync, %d are demanded", name, x->index, b->index,
                 (long long)x->hw, x->isr_count, min);
    commit(c, p, b, x, topic);
    for (int i = 0; i < x->isr_count; i++) { /* whom it waits for itself, be it that the metadata has moved on */
        int m = sim_cluster_node(c, x->isr[i]);
        if (sim_part_in_isr(p, m) || !sim_part_has_replica(p, m) || is_suspect(p, m)) continue; /* reassigned: its copy may be gone by now */
        catch_up(c, p, m, topic, x->index);
        if (!sim_copy_agrees(p, m))
            sim_fail(w, 19, "%s: node %d moves the high watermark to %lld; node %d, in sync as it knows, ends at %lld", p->name, b->index,
                     (long long)x->hw, m, (long long)p->copies[m].end);
    }
}

/* In this turn, and no more: it led when it was looked at last, or came to lead since, by metadata that it learned late and all at once. */
static bool has_led(const struct sim_copy *y, const struct kb_partition *x) {
    bool led = y->led || (y->named_epoch > y->looked_epoch && y->named_epoch <= x->leader_epoch);
    return led && x->role != KB_PART_LEADS;
}

/* Its log failed in this turn; what it told before counts. */
void sim_check_leader_failed(struct sim_cluster *c, struct sim_part *p, struct sim_broker *b, struct kb_partition *x, int topic) {
    struct sim_copy *y = &p->copies[b->index];
    if (!y->led || y->life != b->lives || !p->known || !kw_uuid_eq(p->id, x->topic_id)) return;
    y->led = false;
    if (x->hw <= p->end || x->log->leo < y->end) return;
    sim_copy_follow(c, p, b->index, KW_MIN(x->log->written, x->log->leo));
    if (sim_copy_agrees(p, b->index)) commit(c, p, b, x, topic);
}

void sim_check_leader(struct sim_cluster *c, struct sim_part *p, struct sim_broker *b, struct kb_partition *x, int topic) {
    struct sim_world *w = &c->run->w;
    const char *name = c->run->model.topics[topic].name;
    if (!p->known || !kw_uuid_eq(p->id, x->topic_id)) return;
    if (x->role != KB_PART_LEADS && x->replica_count == 1) { /* the only copy is what everyone has */
        if (x->hw > p->end) committed(c, p, b, x, topic);
        return;
    }
    if (has_led(&p->copies[b->index], x) && x->hw > p->end && sim_copy_agrees(p, b->index)) {
        commit(c, p, b, x, topic);
        return;
    }
    if (x->role != KB_PART_LEADS) {
        if (x->hw > p->end && !p->copies[b->index].suspect)
            sim_fail(w, 18, "%s-%d: node %d, which does not lead, has a high watermark of %lld; no leader has had more than %lld", name,
                     x->index, b->index, (long long)x->hw, (long long)p->end);
        return;
    }
    while ((size_t)x->leader_epoch >= p->leader_count) {
        p->leaders = sim_grow(p->leaders, p->leader_count, &p->leader_cap, sizeof *p->leaders);
        p->leaders[p->leader_count++] = 0;
    }
    int32_t *who = &p->leaders[x->leader_epoch];
    if (*who && *who != b->index + 1)
        sim_fail(w, 16, "%s-%d: node %d leads in epoch %d, and so does or did node %d", name, x->index, b->index, x->leader_epoch,
                 *who - 1);
    if (!*who && x->leader_epoch == p->leader_epoch && !p->copies[b->index].suspect && !sim_copy_agrees(p, b->index))
        sim_fail(w, 23, "%s-%d: node %d leads from epoch %d on and lacks something of what was committed up to %lld: it ends at %lld", name,
                 x->index, b->index, x->leader_epoch, (long long)p->end, (long long)p->copies[b->index].end);
    *who = b->index + 1;
    if (x->hw > p->end) committed(c, p, b, x, topic);
}

/* ---- What the metadata says ---- */

/* How many copies an acknowledgement promises, as the topic is configured now. */
static int promised(struct sim_cluster *c, const char *topic, const struct kb_image_partition *x) {
    const char *text = kb_image_config_get(&c->image, 2, kw_str_of(topic), "min.insync.replicas");
    return KW_MIN(text ? atoi(text) : 1, x->replica_count);
}

static void take(struct sim_cluster *c, struct sim_part *p, const char *topic, const struct kb_image_partition *x) {
    p->leader = sim_cluster_node(c, x->leader);
    p->leader_epoch = x->leader_epoch;
    if (p->leader >= 0) p->copies[p->leader].named_epoch = x->leader_epoch;
    if (p->leader >= 0 && x->isr_count >= promised(c, topic, x)) p->copies[p->leader].enough_epoch = x->partition_epoch;
    p->partition_epoch = x->partition_epoch;
    p->isr_count = p->replica_count = p->adding_count = 0;
    for (int32_t i = 0; i < x->isr_count; i++) p->isr[p->isr_count++] = sim_cluster_node(c, x->isr[i]);
    for (int32_t i = 0; i < x->replica_count; i++) p->replicas[p->replica_count++] = sim_cluster_node(c, x->replicas[i]);
    for (int32_t i = 0; i < x->adding_count; i++) p->adding[p->adding_count++] = sim_cluster_node(c, x->adding[i]);
}

/* The same record that ends a reassignment lets the last of those that were added, or of those that stay, into the ISR, as the old leader asked for,
 * and makes one of them lead: as joiners of the ISR they are looked at below. */
static bool joins_at_the_end(const struct sim_part *p, int node, const struct kb_image_partition *x) {
    for (int i = 0; i < p->adding_count && x->adding_count == 0; i++)
        if (p->adding[i] == node) return true;
    for (int i = 0; i < p->replica_count && x->adding_count == 0 && x->replica_count < p->replica_count; i++)
        if (p->replicas[i] == node) return true;
    return false;
}

static bool is_among(const int32_t *v, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (v[i] == id) return true;
    return false;
}

/* 26: as many copies as the topic was made with, each on a node of its own; who is in sync or leads has one. */
static void check_replicas(struct sim_cluster *c, const struct sim_part *p, const char *topic, int t, const struct kb_image_partition *x) {
    struct sim_world *w = &c->run->w;
    int rf = KW_MAX(c->run->model.topics[t].rf, 1), before = 0, after = 0;
    bool done = p->adding_count > 0 && x->adding_count == 0;
    if (x->replica_count < rf) sim_fail(w, 26, "%s-%d: %d replicas, %d were asked for", topic, x->index, x->replica_count, rf);
    for (int32_t i = 0; i < x->replica_count; i++)
        if (is_among(x->replicas, i, x->replicas[i])) sim_fail(w, 26, "%s-%d: two replicas on broker %d", topic, x->index, x->replicas[i]);
    for (int32_t i = 0; i < x->isr_count; i++)
        if (!is_among(x->replicas, x->replica_count, x->isr[i]))
            sim_fail(w, 26, "%s-%d: broker %d is in sync and has no replica", topic, x->index, x->isr[i]);
    for (int32_t i = 0; p->replica_count && i < x->replica_count; i++)
        if (!is_among(p->replicas, p->replica_count, sim_cluster_node(c, x->replicas[i])) && !is_among(x->adding, x->adding_count, x->replicas[i]))
            sim_fail(w, 26, "%s-%d: broker %d has a replica all at once, and is not in sync", topic, x->index, x->replicas[i]);
    for (int i = 0; i < p->adding_count; i++) done = done && is_among(x->replicas, x->replica_count, c->ids[p->adding[i]]); /* else it was given up */
    for (int i = 0; done && i < p->adding_count; i++)
        if (!is_among(x->isr, x->isr_count, c->ids[p->adding[i]]))
            sim_fail(w, 26, "%s-%d: moved, and node %d is not in sync", topic, x->index, p->adding[i]);
    before = p->isr_count;
    after = x->isr_count;
    if (done && after < KW_MIN(before, promised(c, topic, x)))
        sim_fail(w, 26, "%s-%d: moved, and %d are in sync, %d were before; %d are promised", topic, x->index, after, before, promised(c, topic, x));
}

/* 19: the high watermark waits for all that are in sync or about to be, so whoever joins is one that the leader has waited for, since it asked for it. */
static void check_asked(struct sim_cluster *c, const struct sim_part *p, const char *topic, const struct kb_image_partition *x, int joins) {
    const struct sim_copy *y = p->leader >= 0 ? &p->copies[p->leader] : NULL;
    if (!y || !y->led || y->leader_epoch != x->leader_epoch || x->leader_epoch != p->leader_epoch || y->life != c->run->nodes[p->leader].lives) return;
    if (c->run->nodes[p->leader].life == SIM_DOWN || sim_copy_awaits(y, joins)) return;
    sim_fail(&c->run->w, 19, "%s-%d: node %d joins the ISR in epoch %d.%d, and its leader, node %d, does not wait for it", topic, x->index, joins,
             x->leader_epoch, x->partition_epoch, p->leader);
}

/* Its topic allows it. What was committed may be lost from here on, and the record says so. true. */
static bool unclean_election(struct sim_cluster *c, struct sim_part *p, int topic, const struct kb_image_partition *x) {
    struct sim_world *w = &c->run->w;
    for (int i = 0; i < p->isr_count; i++) {
        const struct kb_image_broker *k = kb_image_broker(&c->image, c->ids[p->isr[i]]);
        const struct kb_partition *there = sim_node_partition(&c->run->nodes[p->isr[i]], c->run->model.topics[topic].name, x->index);
        if (there && there->state == KB_PART_OFFLINE) continue; /* its disk failed there, and it said so */
        if (k && !k->fenced && !k->in_controlled_shutdown && !p->copies[p->isr[i]].suspect)
            sim_fail(w, 23, "topic-%d-%d: an unclean election in epoch %d, though node %d is in sync and alive", topic, x->index, x->leader_epoch, p->isr[i]);
    }
    if (x->recovery_state != 1)
        sim_fail(w, 23, "topic-%d-%d: an unclean election in epoch %d is not told: the recovery state is %d", topic, x->index, x->leader_epoch,
                 x->recovery_state);
    sim_fire(w, SIM_F_UNCLEAN);
    sim_model_log(&c->run->model, topic, x->index)->tainted = true;
    p->end = 0;
    return true;
}

static void check_change(struct sim_cluster *c, struct sim_part *p, const char *topic, int t, const struct kb_image_partition *x) {
    struct sim_world *w = &c->run->w;
    int leader = sim_cluster_node(c, x->leader);
    bool lost = false;
    if (x->leader_epoch < p->leader_epoch || x->partition_epoch < p->partition_epoch)
        sim_fail(w, 16, "%s-%d: the metadata goes from leader epoch %d, partition epoch %d to %d, %d", topic, x->index, p->leader_epoch,
                 p->partition_epoch, x->leader_epoch, x->partition_epoch);
    if (leader != p->leader) {
        if (x->leader_epoch == p->leader_epoch)
            sim_fail(w, 16, "%s-%d: the leader goes from node %d to node %d within epoch %d", topic, x->index, p->leader, leader,
                     x->leader_epoch);
        bool outside = leader >= 0 && !sim_part_in_isr(p, leader) && !joins_at_the_end(p, leader, x);
        bool doubtful = leader >= 0 && p->copies[leader].suspect && x->recovery_state == 1; /* in sync by name: its machine went down since */
        if ((outside || doubtful) && c->run->model.topics[t].unclean)
            lost = unclean_election(c, p, t, x);
        else if (outside)
            sim_fail(w, 23, "%s-%d: node %d is elected in epoch %d, and it was not in the ISR", topic, x->index, leader, x->leader_epoch);
        c->leader_elections++;
        p->moved_us = w->now_us;
    }
    bool isr_has = false;
    for (int32_t i = 0; i < x->isr_count; i++) {
        int m = sim_cluster_node(c, x->isr[i]);
        const struct kb_image_broker *k = kb_image_broker(&c->image, x->isr[i]);
        isr_has |= x->isr[i] == x->leader;
        if (sim_part_in_isr(p, m)) continue;
        if (!lost) check_asked(c, p, topic, x, m);
        if (!k || k->fenced || k->in_controlled_shutdown)
            sim_fail(w, 20, "%s-%d: node %d joins the ISR, and it is %s", topic, x->index, m,
                     !k          ? "not registered"
                     : k->fenced ? "fenced"
                                 : "shutting down");
        if (sim_part_is_open(c, t, x->index)) continue;
        catch_up(c, p, m, t, x->index);
        if (!may_join(c, p, m, t, x->index))
            sim_fail(w, 20, "%s-%d: node %d joins the ISR and lacks something of what was committed up to %lld: it ends at %lld", topic,
                     x->index, m, (long long)p->end, (long long)p->copies[m].end);
        if (p->copies[m].out && !is_rotten(c, p, m)) p->copies[m].suspect = p->copies[m].out = false;
    }
    if (x->leader >= 0 && !isr_has)
        sim_fail(w, 17, "%s-%d: node %d leads in epoch %d and is not in the ISR", topic, x->index, leader, x->leader_epoch);
    if (x->isr_count == 0) sim_fail(w, 26, "%s-%d: the ISR is empty", topic, x->index);
}

/* A node that lost its power or its disk serves again: where it counts as in sync, it has what was committed. */
void sim_check_returned(struct sim_cluster *c) {
    for (int n = 0; n < c->run->node_count; n++) {
        const struct kb_image_broker *k = kb_image_broker(&c->image, c->ids[n]);
        if (!k || k->fenced) continue;
        for (int t = 0; t < c->run->model.topic_count; t++)
            for (int i = 0; i < SIM_PARTS_MAX; i++) {
                struct sim_part *p = &c->parts[t][i];
                struct sim_copy *y = &p->copies[n];
                if (sim_part_is_open(c, t, i) || !y->suspect || k->epoch <= y->lost_in || !sim_part_in_isr(p, n) || y->life != c->run->nodes[n].lives) continue;
                catch_up(c, p, n, t, i);
                if (!sim_copy_agrees(p, n))
                    sim_fail(&c->run->w, 18,
                             "%s: node %d is back in broker epoch %lld, counts as in sync, and lacks something of what was committed up to "
                             "%lld: it ends at %lld",
                             p->name, n, (long long)k->epoch, (long long)p->end, (long long)y->end);
                y->suspect = y->out = false;
            }
    }
}

kw_err sim_check_partition_record(void *cluster, struct kb_image_topic *topic, struct kb_image_partition *x) {
    struct sim_cluster *c = cluster;
    int t = sim_topic_number(topic->name);
    if (t < 0 || x->index >= SIM_PARTS_MAX) return KW_OK;
    struct sim_part *p = &c->parts[t][x->index];
    if (!p->known || !kw_uuid_eq(p->id, topic->id)) {
        p->id = topic->id;
        p->known = true;
        p->isr_count = p->replica_count = p->adding_count = 0; /* of another topic of this name */
        for (int n = 0; n < SIM_NODES_MAX; n++) p->copies[n].named_epoch = p->copies[n].enough_epoch = -1;
        p->moved_us = c->run->w.now_us;
        p->end = 0;
    } else if (!c->run->model.topics[t].churned) {
        check_change(c, p, topic->name, t, x);
    }
    check_replicas(c, p, topic->name, t, x);
    bool had[SIM_NODES_MAX]; /* who comes to be a replica begins anew: one that led when it was moved away was looked at until it had heard of that */
    for (int n = 0; n < SIM_NODES_MAX; n++) had[n] = sim_part_has_replica(p, n);
    take(c, p, topic->name, x);
    for (int n = 0; n < SIM_NODES_MAX; n++) {
        if (p->copies[n].life && !(had[n] && sim_part_has_replica(p, n))) sim_copy_gone(p, n);
        if (p->copies[n].suspect && !sim_part_in_isr(p, n)) p->copies[n].out = true;
    }
    sim_trace(&c->run->w, "metadata %lld: %s-%d: leader node %d, epoch %d.%d, %d in sync", (long long)c->image.offset, topic->name,
              x->index, p->leader, p->leader_epoch, p->partition_epoch, p->isr_count);
    return KW_OK;
}
