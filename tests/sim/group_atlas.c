/* group_atlas.c - which copies of __consumer_offsets may be lost in a cluster, so that every commit that is lost is a bug; and who coordinates.
 *
 * As cluster_atlas.c has it for the topics of the model, by the metadata as it was committed; what is in the copies is not looked at, since
 * each of them is compacted by itself. Called by cluster_atlas.c, check_copies.c, commits_app.c.
 */
#include "cluster.h"
#include "group/coordinator.h"

#define QUIET_US (2 * SIM_S)

static const struct kb_image_topic *topic_of(const struct sim_cluster *c) {
    return c->run->groups.on ? kb_image_topic(&c->image, kw_str_of(KB_OFFSETS_TOPIC)) : NULL;
}

static bool has(const int32_t *ids, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

/* A node that is back under another broker epoch and in the ISR has all that was committed: its registration took it out. */
static bool suspect(struct sim_cluster *c, const struct kb_image_partition *p, struct sim_offsets_part *o, int node) {
    if (!o->suspect[node]) return false;
    const struct kb_image_broker *b = kb_image_broker(&c->image, c->ids[node]);
    if (!has(p->replicas, p->replica_count, c->ids[node])) o->suspect[node] = false;
    if (b && !b->fenced && b->epoch != o->lost_in[node] && has(p->isr, p->isr_count, c->ids[node])) o->suspect[node] = false;
    return o->suspect[node];
}

static struct sim_offsets_part *part(struct sim_cluster *c, const struct kb_image_topic *t, int32_t i) {
    struct sim_offsets_part *o = &c->run->groups.offsets[i];
    if (o->epoch != t->partitions[i].leader_epoch + 1) {
        o->epoch = t->partitions[i].leader_epoch + 1;
        o->moved_us = c->run->w.now_us;
    }
    return o;
}

void sim_offsets_lost(struct sim_cluster *c, int node) {
    const struct kb_image_broker *b = kb_image_broker(&c->image, c->ids[node]);
    if (!topic_of(c)) return;
    for (int i = 0; i < SIM_OFFSETS_PARTS; i++) {
        c->run->groups.offsets[i].suspect[node] = true;
        c->run->groups.offsets[i].lost_in[node] = b ? b->epoch : -1;
    }
}

bool sim_offsets_fragile(struct sim_cluster *c) {
    const struct kb_image_topic *t = topic_of(c);
    for (int32_t i = 0; t && i < KW_MIN(t->partition_count, SIM_OFFSETS_PARTS); i++)
        for (int n = 0; n < c->run->node_count; n++)
            if (suspect(c, &t->partitions[i], part(c, t, i), n) && has(t->partitions[i].isr, t->partitions[i].isr_count, c->ids[n])) return true;
    return false;
}

bool sim_offsets_spare(struct sim_cluster *c, int node) {
    const struct kb_image_topic *t = topic_of(c);
    for (int32_t i = 0; t && i < KW_MIN(t->partition_count, SIM_OFFSETS_PARTS); i++) {
        const struct kb_image_partition *p = &t->partitions[i];
        struct sim_offsets_part *o = part(c, t, i);
        if (!has(p->replicas, p->replica_count, c->ids[node])) continue;
        if (p->isr_count < 2 || c->run->w.now_us - o->moved_us < QUIET_US) return false;
        if (has(p->isr, p->isr_count, c->ids[node]) && p->isr_count < KW_MIN(p->replica_count, 3)) return false;
        for (int32_t k = 0; k < p->isr_count; k++) {
            int n = sim_cluster_node(c, p->isr[k]);
            if (n < 0 || c->gone[n] || suspect(c, p, o, n)) return false;
        }
    }
    return true;
}

int32_t sim_offsets_leader(struct sim_run *r, const char *group, int32_t *epoch) {
    *epoch = 0;
    if (!r->cluster) return 0;
    const struct kb_image_topic *t = topic_of(r->cluster);
    if (!t || t->partition_count == 0) return -1;
    const struct kb_image_partition *p = &t->partitions[kb_coordinator_partition_of(kw_str_of(group), t->partition_count)];
    *epoch = p->leader_epoch;
    return p->leader;
}
