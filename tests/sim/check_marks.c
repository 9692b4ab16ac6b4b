/* check_marks.c - the log's marks at every step: invariants 7 (start <= HW <= end, and never past what is written or synced), 8 (the HW
 * never goes down in an epoch, nor over a kill -9), 15 (a log whose write or sync failed accepts nothing more). Called after every turn of
 * the node. */
#include <stdio.h>

#include "node_priv.h"
#include "replica/partition.h"
#include "log/log_priv.h"
#include "workload.h"

static struct sim_log *log_of(struct sim_run *r, const struct kb_partition *p) {
    int t = sim_topic_number(p->topic);
    return t >= 0 && !r->model.topics[t].churned ? sim_model_log(&r->model, t, p->index) : NULL;
}

static void check(struct sim_run *r, struct kb_partition *p, struct sim_log *l) {
    struct sim_world *w = &r->w;
    const struct kb_log *g = p->log;
    int64_t promised = g->config->flush_on_ack ? g->synced : g->written;
    if (!(0 <= g->start && g->start <= p->hw && p->hw <= g->leo))
        sim_fail(w, 7, "%s: start %lld, high watermark %lld, end %lld", g->dir, (long long)g->start, (long long)p->hw, (long long)g->leo);
    if (!(g->synced <= g->written && g->written <= g->leo))
        sim_fail(w, 7, "%s: synced %lld, written %lld, queued %lld", g->dir, (long long)g->synced, (long long)g->written,
                 (long long)g->leo);
    bool fresh = l->life != r->nodes[0].lives;
    if (fresh) {
        l->life = r->nodes[0].lives;
        l->poisoned_at = -1;
    } else if (p->hw > promised && p->hw > l->hw && !l->tainted) { /* what recovery found counts as written */
        sim_fail(w, 7, "%s: the high watermark went to %lld, only %lld are %s", g->dir, (long long)p->hw, (long long)promised,
                 g->config->flush_on_ack ? "synced" : "written");
    }
    if (p->hw < l->hw && !l->tainted)
        sim_fail(w, 8, "%s: the high watermark went down from %lld to %lld", g->dir, (long long)l->hw, (long long)p->hw);
    l->hw = p->hw;
    l->epoch = p->leader_epoch;
    if (l->poisoned_at >= 0 && g->written > l->poisoned_at)
        sim_fail(w, 15, "%s: a write or sync failed when %lld were written; now %lld are", g->dir, (long long)l->poisoned_at,
                 (long long)g->written);
}

void sim_check_marks(struct sim_broker *b) {
    struct sim_run *r = b->ctx;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(b->node, p));) {
        struct sim_log *l = p->log ? log_of(r, p) : NULL;
        if (!l) continue;
        if (b->life == SIM_UP && p->state == KB_PART_ONLINE) check(r, p, l);
        if (b->life == SIM_UP || b->life == SIM_STOPPING) l->hw_max = KW_MAX(l->hw_max, p->hw); /* what it may have served */
    }
}

void sim_check_marks_broken(struct sim_broker *b, struct kb_file *f, bool sync) {
    struct sim_run *r = b->ctx;
    for (struct kb_partition *p = NULL; b->node && (p = kb_partitions_next(b->node, p));) {
        struct sim_log *l = p->log ? log_of(r, p) : NULL;
        for (size_t i = 0; l && i < p->log->priv->seg_count; i++)
            if (p->log->priv->segs[i]->file == f && l->poisoned_at < 0) {
                sim_trace(&r->w, "a %s of %s failed, %lld are written", sync ? "sync" : "write", p->log->dir, (long long)p->log->written);
                l->poisoned_at = p->log->written;
                l->life = b->lives;
            }
    }
}
