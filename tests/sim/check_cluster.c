/* check_cluster.c - invariant 36 for a cluster, after healing: all nodes that belong to the core are up, every partition has a leader,
 * every record its report, every consumer all that is committed, and in the end every replica is in sync; all within a bounded time. And
 * when all is over: 1, 3 to 5, 27 (by check_final.c, from the leaders' logs) and 2, 6, 9, 10 over all copies. Called by cluster.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cluster.h"
#include "node_priv.h"
#include "quorum/store_priv.h"
#include "scan.h"

enum { LIVE_S = 180, STOP_S = 60 };

bool sim_cluster_has(void *run, int topic, int partition, int64_t offset) {
    const struct sim_part *p = &((struct sim_run *)run)->cluster->parts[topic][partition];
    for (size_t i = 0; i < p->committed.count; i++)
        if (p->committed.v[i].base <= offset && offset <= p->committed.v[i].last) return true;
    return false;
}

/* ---- 36 ---- */

static bool nodes_are_up(struct sim_run *r, char *why, size_t size) {
    bool leads = false;
    for (int i = 0; i < r->node_count; i++) {
        struct sim_broker *b = &r->nodes[i];
        if (r->cluster->left_out[i] || r->cluster->gone[i]) continue;
        if (b->life != SIM_UP) {
            snprintf(why, size, "node %d is not up (%d, %s)", i, b->life,
                     b->node && kb_node_failure(b->node) ? kb_node_failure(b->node) : "");
            return false;
        }
        leads |= kb_store_leads(b->node->parts.store);
    }
    if (!leads) snprintf(why, size, "no controller is active");
    return leads;
}

/* Every node has heard of all that was committed. */
static bool metadata_is_everywhere(struct sim_run *r, char *why, size_t size) {
    for (int i = 0; i < r->node_count; i++) {
        if (r->nodes[i].life != SIM_UP || r->nodes[i].node->image.offset >= r->cluster->image.offset) continue;
        snprintf(why, size, "node %d has the metadata up to %lld of %lld", i, (long long)r->nodes[i].node->image.offset,
                 (long long)r->cluster->image.offset);
        return false;
    }
    return true;
}

static bool copy_is_whole(struct sim_run *r, const struct sim_part *p, int node, int topic, int partition,
                          const struct kb_partition *leader, char *why, size_t size) {
    const char *name = r->model.topics[topic].name;
    const struct kb_partition *x = sim_node_partition(&r->nodes[node], name, partition);
    if (x && x->state == KB_PART_ONLINE && x->log && !x->log->poisoned && !x->log->busy && x->log->leo == leader->log->leo &&
        x->hw == leader->hw && x->hw == x->log->leo && sim_part_in_isr(p, node))
        return true;
    snprintf(why, size,
             "%s-%d on node %d: %s, state %d, end %lld, high watermark %lld, epoch %d; its leader, node %d, has %lld, %lld, %d%s", name,
             partition, node, sim_part_in_isr(p, node) ? "in sync" : "not in sync", x ? (int)x->state : -1,
             x && x->log ? (long long)x->log->leo : -1, x ? (long long)x->hw : -1, x ? x->leader_epoch : -1, p->leader,
             (long long)leader->log->leo, (long long)leader->hw, leader->leader_epoch, x && x->log && x->log->busy ? " (busy)" : "");
    return false;
}

static bool partition_is_whole(struct sim_run *r, int topic, int partition, bool whole, char *why, size_t size) {
    struct sim_part *p = &r->cluster->parts[topic][partition];
    const char *name = r->model.topics[topic].name;
    if (!p->known || p->leader < 0) {
        snprintf(why, size, "%s-%d has no leader%s", name, partition, p->known ? "" : " and is not known");
        return false;
    }
    const struct kb_partition *x = sim_node_partition(&r->nodes[p->leader], name, partition);
    if (!x || x->state != KB_PART_ONLINE || x->role != KB_PART_LEADS || x->leader_epoch != p->leader_epoch || !x->log || x->log->poisoned) {
        snprintf(why, size, "%s-%d: node %d does not lead in epoch %d, as the metadata has it (state %d, role %d, epoch %d)", name,
                 partition, p->leader, p->leader_epoch, x ? (int)x->state : -1, x ? (int)x->role : -1, x ? x->leader_epoch : -1);
        return false;
    }
    if (whole && p->adding_count) {
        snprintf(why, size, "%s-%d is still to be moved", name, partition);
        return false;
    }
    for (int i = 0; i < p->replica_count && whole; i++)
        if (!copy_is_whole(r, p, p->replicas[i], topic, partition, x, why, size)) return false;
    return true;
}

static bool consumed(struct sim_run *r, struct sim_role *role, const char *name, char *why, size_t size) {
    for (int t = 0; t < r->model.topic_count; t++)
        for (int i = 0; i < r->model.topics[t].partitions; i++) {
            const struct sim_part *p = &r->cluster->parts[t][i];
            int64_t at;
            if (!sim_consumer_position(role, t, i, &at) || at >= p->end) continue;
            int n = snprintf(why, size, "%s is at %lld of %lld in %s;", name, (long long)at, (long long)p->end, p->name);
            sim_consumer_describe(role, why + n, size - (size_t)n);
            return false;
        }
    return true;
}

/* A deletion that its client had given up waiting for may be carried out after the topic was made anew: its administrator makes it once more. */
static void make_again(struct sim_run *r) {
    for (int t = 0; t < r->model.topic_count; t++)
        if (r->model.topics[t].churned && sim_admin_idle(r->admin) && !kb_image_topic(&r->cluster->image, kw_str_of(r->model.topics[t].name)))
            sim_admin_create(r->admin, t, r->configs[t]);
}

static bool through(struct sim_run *r, bool whole, char *why, size_t size) {
    make_again(r);
    if (!nodes_are_up(r, why, size)) return false;
    if (!sim_admin_idle(r->admin)) {
        snprintf(why, size, "the administrator has not had its will");
        return false;
    }
    for (int t = 0; t < r->model.topic_count; t++)
        for (int i = 0; i < r->model.topics[t].partitions; i++)
            if (!partition_is_whole(r, t, i, whole, why, size)) return false;
    for (int i = 1; i <= r->plan.clients; i++) {
        char name[32];
        snprintf(name, sizeof name, "client %d", i);
        if (r->producers[i] && !sim_producer_done(r->producers[i])) {
            snprintf(why, size, "%s has not had all its reports (%u records unsent)", name, sim_producer_left(r->producers[i]));
            return false;
        }
        if (r->consumers[i] && !consumed(r, r->consumers[i], name, why, size)) return false;
    }
    if (whole && !metadata_is_everywhere(r, why, size)) return false;
    return !whole || (consumed(r, r->verifier, "the verifier", why, size) && sim_commits_through(r, why, size) &&
                      sim_members_through(r, why, size));
}

void sim_check_cluster_live(struct sim_run *r, bool whole) {
    struct sim_world *w = &r->w;
    int64_t until = w->now_us + LIVE_S * SIM_S;
    char why[2000] = "";
    while (!through(r, whole, why, sizeof why)) {
        if (w->now_us >= until) {
            sim_check_reports_late(&r->model);
            sim_fail(w, 36, "%d s after %s: %s", LIVE_S, whole ? "healing" : "a core was healed", why);
        }
        sim_run_until(w, w->now_us + 200 * SIM_MS);
    }
    sim_trace(w, "all is through%s", whole ? "" : " in the core");
}

/* ---- The end ---- */

struct look {
    struct sim_run *r;
    int topic, partition;
};
static void one_record(void *ctx, const struct sim_batch *b, const struct kw_record_view *v) {
    struct look *k = ctx;
    uint32_t id;
    sim_check_content(&k->r->model, "on disk", k->topic, k->partition, v->offset, b->h.leader_epoch,
                      b->h.attributes & KW_ATTR_LOG_APPEND_TIME ? 1 : 0, v->timestamp, v->key, v->value, v->headers, v->headers_size, &id);
    k->r->model.records[id].copies++;
}

struct ends { /* of a copy, by its files */
    int node;
    const struct sim_scan *scan;
    int64_t end;
};

/* Retention takes one copy's batches before another's, and may have taken all of them: such a copy begins where it ends, and that must be where the others
 * end. What both have is the same. */
static void compare(struct sim_run *r, int invariant, const char *name, struct ends a, struct ends b) {
    const struct sim_scan *x = a.scan, *y = b.scan;
    int64_t x_begin = x->count ? x->v[0].h.base_offset : a.end, y_begin = y->count ? y->v[0].h.base_offset : b.end;
    size_t i = 0, k = 0;
    while (i < x->count && x->v[i].last < y_begin) i++; /* one of them may begin later */
    while (k < y->count && y->v[k].last < x_begin) k++;
    for (; i < x->count && k < y->count; i++, k++)
        if (x->v[i].h.base_offset != y->v[k].h.base_offset || x->v[i].h.crc != y->v[k].h.crc || x->v[i].size != y->v[k].size ||
            x->v[i].h.leader_epoch != y->v[k].h.leader_epoch)
            sim_fail(&r->w, invariant, "%s: node %d and node %d differ at offsets %lld and %lld", name, a.node, b.node,
                     (long long)x->v[i].h.base_offset, (long long)y->v[k].h.base_offset);
    if (i < x->count || k < y->count || a.end != b.end)
        sim_fail(&r->w, invariant, "%s: node %d ends at %lld, node %d at %lld", name, a.node, (long long)a.end, b.node, (long long)b.end);
}

/* A log without any file is one that never had a batch, or was begun anew where its leader's begins, and ends: its memory says which. */
static struct ends copy_ends(struct sim_run *r, const struct sim_part *p, int topic, int partition, int node, const struct sim_scan *s) {
    const struct kb_partition *x = sim_node_partition(&r->nodes[node], r->model.topics[topic].name, partition);
    bool empty = x && x->log && x->log->start == x->log->leo;
    if (!s->count && !empty) sim_fail(&r->w, 9, "%s on node %d: no batch is there, and the log does not know that it is empty", p->name, node);
    return (struct ends){node, s, s->segment_count || !empty ? sim_scan_end(s) : x->log->leo};
}

static void scan_copies(struct sim_run *r, int topic, int partition, struct kw_compressor *c) {
    struct sim_part *p = &r->cluster->parts[topic][partition];
    struct sim_scan first, other;
    struct look k = {r, topic, partition};
    char dir[96];
    snprintf(dir, sizeof dir, SIM_DATA "/%s", p->name);
    sim_scan_log(r->nodes[p->leader].disk, dir, &first);
    for (size_t i = 0; i < first.count; i++)
        if (!sim_scan_records(r->nodes[p->leader].disk, &first, &first.v[i], c, one_record, &k))
            sim_fail(&r->w, 10, "%s on node %d: the batch at %lld does not decode", p->name, p->leader,
                     (long long)first.v[i].h.base_offset);
    for (int i = 0; i < p->replica_count; i++) {
        int node = p->replicas[i];
        sim_scan_log(r->nodes[node].disk, dir, &other);
        if (other.torn) sim_fail(&r->w, 10, "%s on node %d: a torn or corrupt end, at rest", p->name, node);
        compare(r, 9, p->name, copy_ends(r, p, topic, partition, p->leader, &first), copy_ends(r, p, topic, partition, node, &other));
        sim_scan_deinit(&other);
    }
    sim_scan_deinit(&first);
}

/* 12, 6: after a clean stop every copy's indexes are whole. */
static void scan_indexes(struct sim_run *r, int topic, int partition) {
    struct sim_part *p = &r->cluster->parts[topic][partition];
    for (int i = 0; i < p->replica_count; i++) {
        struct sim_disk *d = r->nodes[p->replicas[i]].disk;
        struct sim_scan s;
        char dir[96];
        snprintf(dir, sizeof dir, SIM_DATA "/%s", p->name);
        sim_scan_log(d, dir, &s);
        if (s.torn) sim_fail(&r->w, 10, "%s on node %d: a torn or corrupt end after a clean stop", p->name, p->replicas[i]);
        sim_check_gaps(&r->w, dir, &s, r->model.topics[topic].guid);
        sim_check_indexes(&r->w, d, &s, p->copies[p->replicas[i]].unread);
        sim_scan_deinit(&s);
    }
}

/* 24: the metadata's log is the same on every node; one that was begun anew with a snapshot may have no file yet. */
static void scan_metadata(struct sim_run *r) {
    struct sim_scan first = {0}, other;
    int one = -1;
    int64_t end = -1;
    for (int i = 0; i < r->node_count; i++) {
        if (r->nodes[i].life != SIM_UP) continue; /* it has left for good */
        int64_t leo = r->nodes[i].node->parts.store->log->leo;
        if (end >= 0 && leo != end) sim_fail(&r->w, 24, "the metadata: node %d ends at %lld, another at %lld", i, (long long)leo, (long long)end);
        end = leo;
        sim_scan_log(r->nodes[i].disk, SIM_DATA "/__cluster_metadata-0", &other);
        if (!first.count) {
            sim_scan_deinit(&first);
            first = other;
            one = i;
            continue;
        }
        if (other.count) compare(r, 24, "the metadata", (struct ends){one, &first, sim_scan_end(&first)}, (struct ends){i, &other, sim_scan_end(&other)});
        sim_scan_deinit(&other);
    }
    sim_scan_deinit(&first);
}

/* All clients are gone; the nodes are there, at rest. */
void sim_check_cluster_final(struct sim_run *r) {
    struct sim_world *w = &r->w;
    struct kw_compressor *c = sim_need(kw_compressor_new());
    for (int t = 0; t < r->model.topic_count; t++)
        for (int i = 0; i < r->model.topics[t].partitions; i++) scan_copies(r, t, i, c);
    kw_compressor_free(c);
    scan_metadata(r);
    r->cluster->ending = true;
    bool one_by_one = sim_below(w, 2);
    for (int i = 0; i < r->node_count; i++) {
        sim_broker_stop(&r->nodes[i]);
        if (one_by_one || i == r->node_count - 1) sim_run_until(w, w->now_us + STOP_S * SIM_S);
        if (one_by_one && r->nodes[i].life != SIM_DOWN) sim_fail(w, 36, "node %d has not stopped within %d s", i, STOP_S);
    }
    for (int i = 0; i < r->node_count; i++)
        if (r->nodes[i].life != SIM_DOWN) sim_fail(w, 36, "node %d has not stopped within %d s", i, STOP_S);
    for (int t = 0; t < r->model.topic_count; t++)
        for (int i = 0; i < r->model.topics[t].partitions && !r->model.topics[t].churned; i++) scan_indexes(r, t, i);
}
