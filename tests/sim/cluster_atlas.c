/* cluster_atlas.c - what may be broken so that no promise is broken with it: every loss that is seen is then a bug. Called by cluster_faults.c.
 *
 * What was acknowledged is on every member of the ISR; without flush.on.ack it may not be on their disks yet. So a copy may be lost (by its power, or with
 * its whole disk) while another member of the ISR has all of it, is alive and reachable, and stays so until the lost one has left the ISR or has caught
 * up. With flush.on.ack any number may lose their power at once. kill -9 takes nothing from anybody.
 */
#include "cluster.h"
#include "node_priv.h"
#include "quorum/raft_priv.h"

#define QUIET_US (2 * SIM_S)

static bool well(const struct sim_cluster *c, int node) {
    const struct sim_broker *b = &c->run->nodes[node];
    if (c->late[node] || c->gone[node]) return true; /* nobody counts on it */
    return b->life == SIM_UP && b->host.paused_until_us <= c->run->w.now_us;
}

static bool cut_off(const struct sim_cluster *c) {
    for (int a = 0; a < SIM_NODES_MAX; a++)
        for (int b = 0; b < SIM_NODES_MAX; b++)
            if (c->run->net.cut_until_us[a][b] > c->run->w.now_us) return true;
    for (const struct kw_list *l = c->run->net.conns.next; l != &c->run->net.conns; l = l->next) { /* a node whose heartbeats are stuck is as good as cut off */
        const struct sim_conn *n = KW_CONTAINER_OF(l, struct sim_conn, link);
        if (!sim_from_client(n) && (int64_t)n->clogged_until_us > c->run->w.now_us) return true;
    }
    return false;
}

/* A voter on an old image counts in the quorum, and has not caught up. */
static bool owes(struct sim_cluster *c, int n) {
    const struct sim_broker *b = &c->run->nodes[n];
    if (c->owes[n].offset < 0) return false;
    if (b->life != SIM_UP || !b->node->parts.store || !b->node->parts.store->raft || !b->node->parts.store->log) return true;
    const struct kb_raft *r = b->node->parts.store->raft;
    if (r->phase != KB_RAFT_MEMBER || b->node->parts.store->log->synced < c->owes[n].offset || r->election.stored.epoch < c->owes[n].epoch) return true;
    c->owes[n].offset = -1;
    return false;
}

bool sim_atlas_fragile(struct sim_cluster *c) {
    for (int t = 0; t < c->run->model.topic_count; t++)
        for (int i = 0; i < SIM_PARTS_MAX; i++)
            for (int n = 0; n < c->run->node_count; n++) {
                const struct sim_part *p = &c->parts[t][i];
                if (!sim_part_is_open(c, t, i) && p->copies[n].suspect && sim_part_in_isr(p, n)) return true;
            }
    for (int n = 0; n < c->run->node_count; n++)
        if (c->voter[n] && (c->nodes[n].wiped || owes(c, n))) return true;
    return sim_offsets_fragile(c);
}

/* The copy on this node is one of several, and the others are there to stay. */
static bool spare(const struct sim_cluster *c, const struct sim_part *p, int node) {
    if (!p->known) return true;
    bool replica = false;
    for (int i = 0; i < p->replica_count; i++) replica |= p->replicas[i] == node;
    if (!replica) return true;
    if (p->isr_count < 2 || p->isr_count < p->replica_count || c->run->w.now_us - p->moved_us < QUIET_US) return false;
    for (int i = 0; i < p->isr_count; i++)
        if (!well(c, p->isr[i]) || p->copies[p->isr[i]].suspect) return false;
    return true;
}

bool sim_atlas_may_lose(struct sim_cluster *c, int node, bool disk) {
    if (!disk && c->run->model.flush_on_ack) return !sim_atlas_fragile(c);
    if (sim_atlas_fragile(c) || cut_off(c) || c->run->w.now_us - c->trouble_us < QUIET_US) return false;
    for (int n = 0; n < c->run->node_count; n++)
        if (!well(c, n)) return false;
    for (int t = 0; t < c->run->model.topic_count; t++)
        for (int i = 0; i < SIM_PARTS_MAX; i++)
            if (!spare(c, &c->parts[t][i], node)) return false;
    return sim_offsets_spare(c, node);
}

/* Of a node that is down: the others have what is in its copy, and are there to stay. */
bool sim_atlas_may_rot(struct sim_cluster *c, const struct sim_part *p, int node) {
    int others = 0;
    if (!p->known || sim_atlas_fragile(c) || cut_off(c) || c->run->w.now_us - p->moved_us < QUIET_US / 2) return false;
    for (int n = 0; n < c->run->node_count; n++)
        if (n != node && !well(c, n)) return false;
    for (int i = 0; i < p->isr_count; i++) {
        if (p->isr[i] == node) continue;
        if (p->copies[p->isr[i]].suspect) return false;
        others++;
    }
    return others > 0;
}
