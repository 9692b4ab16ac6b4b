/* check_disk.c - what is on the disk of one node alone: invariants 10 (sound bytes), 11 (a restart yields a beginning of the old log with all that was
 * promised to it), 16 (epochs grow); and 6, 12, 14 by check_files.c.
 *
 * Called by broker_host.c's hooks at each death and each start, and at the end. Looks into the node and at the simulated files. Calls check_files, scan.
 */
#include <stdio.h>
#include <stdlib.h>

#include "node_priv.h"
#include "replica/partition.h"
#include "scan.h"
#include "workload.h"

struct claim { /* what a log was, when its process died */
    bool known;
    struct sim_scan scan; /* its files then */
    int64_t written, synced, leo, start;
    int32_t epoch;
    bool old;   /* its disk is an old image: whatever came later is lost, acknowledged or not */
    bool lossy; /* the power went since: only what was synced is promised */
    bool taking_back; /* a full disk's batch was being cut off: nobody was told that it is there, and it may still be */
};
static struct claim claims[SIM_TOPICS_MAX][64], images[SIM_TOPICS_MAX][64]; /* images: as it was when an image was taken */

static bool place(const struct kb_partition *p, int *topic) {
    *topic = sim_topic_number(p->topic);
    return *topic >= 0;
}

static void folder(char *dir, size_t size, const struct sim_model *m, int topic, int partition) {
    snprintf(dir, size, SIM_DATA "/%s-%d", m->topics[topic].name, partition);
}

void sim_check_disk_deinit(void) {
    for (int t = 0; t < SIM_TOPICS_MAX; t++)
        for (int p = 0; p < 64; p++) {
            sim_scan_deinit(&claims[t][p].scan);
            sim_scan_deinit(&images[t][p].scan);
            claims[t][p] = images[t][p] = (struct claim){0};
        }
}

bool sim_check_disk_has(void *run, int topic, int partition, int64_t offset) {
    struct sim_run *r = run;
    struct sim_scan s;
    char dir[96];
    bool has = false;
    folder(dir, sizeof dir, &r->model, topic, partition);
    sim_scan_log(r->nodes[0].disk, dir, &s);
    for (size_t i = 0; i < s.count && !has; i++) has = s.v[i].h.base_offset <= offset && offset <= s.v[i].last;
    sim_scan_deinit(&s);
    return has;
}

/* ---- Deaths ---- */

void sim_check_disk_death(struct sim_broker *b, enum sim_death how) {
    struct sim_run *r = b->ctx;
    (void)how;
    if (b->life == SIM_STOPPING) sim_check_marks(b); /* it dies in the middle of a turn */
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(b->node, p));) {
        int t;
        if (!place(p, &t) || !p->log || p->state == KB_PART_DELETED || p->state == KB_PART_LOADING) continue;
        struct claim *c = &claims[t][p->index];
        char dir[96];
        folder(dir, sizeof dir, &r->model, t, p->index);
        bool lossy = c->known && c->lossy, old = c->known && c->old; /* a start that did not get far: what the power took was not looked at yet */
        sim_scan_deinit(&c->scan);
        sim_scan_log(b->disk, dir, &c->scan);
        *c = (struct claim){true, c->scan, p->log->written, p->log->synced, p->log->leo, p->log->start, p->leader_epoch, old, lossy,
                            p->log->busy || p->log->poisoned};
    }
}

/* ---- Old images ---- */

void sim_check_disk_image(struct sim_broker *b) {
    struct sim_run *r = b->ctx;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(b->node, p));) {
        int t;
        if (!place(p, &t)) continue;
        struct claim *c = &images[t][p->index];
        char dir[96];
        folder(dir, sizeof dir, &r->model, t, p->index);
        sim_scan_deinit(&c->scan);
        sim_scan_log(b->disk, dir, &c->scan);
        *c = (struct claim){true, c->scan, p->log->written, p->log->synced, p->log->leo, p->log->start, p->leader_epoch, true, false, false};
    }
}

void sim_check_disk_restored(struct sim_run *r) {
    for (int t = 0; t < SIM_TOPICS_MAX; t++)
        for (int p = 0; p < 64; p++) {
            struct sim_log *l = sim_model_log(&r->model, t, p);
            sim_scan_deinit(&claims[t][p].scan);
            claims[t][p] = images[t][p];
            images[t][p] = (struct claim){0};
            if (!l) continue;
            for (size_t i = 0; i < l->loss_count; i++) l->losses[i].epoch = -1; /* nobody is left who could still have that */
            l->hw = l->told_end = -1;
            if (claims[t][p].known) continue;
            sim_log_lose(&r->model, l, 0, -1, false); /* it was not made yet */
            l->hw_max = 0;
        }
}

void sim_check_disk_dead(struct sim_broker *b, enum sim_death how) {
    (void)b;
    if (how != SIM_DEATH_POWER) return;
    for (int t = 0; t < SIM_TOPICS_MAX; t++)
        for (int p = 0; p < 64; p++)
            if (claims[t][p].known) claims[t][p].lossy = true;
}

/* ---- Starts ---- */

static bool same(const struct kw_batch_header *a, const struct kw_batch_header *b) {
    return a->base_offset == b->base_offset && a->crc == b->crc && a->length == b->length && a->leader_epoch == b->leader_epoch;
}

static void compare(struct sim_run *r, int t, int index, struct kb_partition *p) {
    struct sim_world *w = &r->w;
    struct claim *c = &claims[t][index];
    struct sim_log *l = sim_model_log(&r->model, t, index);
    struct sim_scan s;
    char dir[96];
    folder(dir, sizeof dir, &r->model, t, index);
    sim_scan_log(r->nodes[0].disk, dir, &s);
    int64_t end = s.segment_count ? sim_scan_end(&s) : p->log->start, promised = c->lossy ? c->synced : c->written;
    if (!l->tainted) {
        if (s.torn) sim_fail(w, 10, "%s: recovery left a torn or corrupt end behind offset %lld", dir, (long long)end);
        if (p->log->leo != end)
            sim_fail(w, 11, "%s: the log says that it ends at %lld, its files at %lld", dir, (long long)p->log->leo, (long long)end);
        sim_check_gaps(w, dir, &s, r->model.topics[t].guid);
        if (end < promised)
            sim_fail(w, 11, "%s ends at %lld after the start; %s before were %lld (end then %lld)", dir, (long long)end,
                     c->lossy ? "synced" : "written", (long long)promised, (long long)c->leo);
        if (end > c->leo && !c->taking_back)
            sim_fail(w, 11, "%s ends at %lld after the start, and ended at %lld before", dir, (long long)end, (long long)c->leo);
        size_t k = 0;
        for (size_t i = 0; i < s.count; i++) { /* what both have is the same; what was still being written may have come to be */
            while (k < c->scan.count && c->scan.v[k].last < s.v[i].h.base_offset) k++;
            if (k == c->scan.count) break;
            if (c->scan.v[k].h.base_offset <= s.v[i].last && !same(&s.v[i].h, &c->scan.v[k].h))
                sim_fail(w, 11, "%s: the batch at offset %lld is not the one that was there before (at %lld)", dir,
                         (long long)s.v[i].h.base_offset, (long long)c->scan.v[k].h.base_offset);
        }
        if (p->leader_epoch <= c->epoch)
            sim_fail(w, 16, "%s: leader epoch %d after the start, %d before: offsets could be given twice in one epoch", dir,
                     p->leader_epoch, c->epoch);
        sim_check_pids(w, p->log, &s, 0);
    }
    if (c->old) sim_log_lose(&r->model, l, 0, -1, false); /* what an earlier loss had replaced may be back */
    if (c->old) l->hw_max = p->hw;
    if (c->lossy && !c->old) sim_log_lose(&r->model, l, end, c->epoch, r->model.flush_on_ack);
    if (c->lossy && !c->old && !r->model.flush_on_ack) {
        l->hw = l->told_end = -1;
        l->hw_max = p->hw;
    }
    if (c->old || (c->lossy && !r->model.flush_on_ack)) { /* a client may have begun anew, and looked elsewhere, since the image was put back */
        for (int i = 0; i <= r->plan.clients; i++)
            if (r->consumers[i]) sim_consumer_lost(r->consumers[i], t, index, end);
        for (int i = 0; i <= r->plan.clients; i++)
            if (r->legacy[i]) sim_legacy_lost(r->legacy[i], t, index, end);
        sim_members_lost(r, t, index);
    }
    sim_scan_deinit(&s);
}

void sim_check_disk_ready(struct sim_broker *b) {
    struct sim_run *r = b->ctx;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(b->node, p));) {
        int t;
        if (!place(p, &t) || p->state != KB_PART_ONLINE || !claims[t][p->index].known) continue;
        if (!r->model.topics[t].churned) compare(r, t, p->index, p);
        claims[t][p->index].known = false;
    }
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

/* All clients are gone; the broker is there, at rest. */
void sim_check_disk_final(struct sim_run *r) {
    struct sim_broker *b = &r->nodes[0];
    struct sim_world *w = &r->w;
    struct kw_compressor *c = sim_need(kw_compressor_new());
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(b->node, p));) {
        int t;
        if (!place(p, &t) || p->state != KB_PART_ONLINE || r->model.topics[t].churned || sim_model_log(&r->model, t, p->index)->tainted)
            continue;
        struct sim_scan s;
        sim_scan_log(b->disk, p->log->dir, &s);
        sim_check_pids(w, p->log, &s, 0);
        sim_scan_deinit(&s);
    }
    sim_broker_stop(b);
    sim_run_until(w, w->now_us + 60 * SIM_S);
    if (b->life != SIM_DOWN) sim_fail(w, 36, "the broker has not stopped within 60 s");
    for (int t = 0; t < r->model.topic_count; t++) {
        for (int p = 0; p < r->model.topics[t].partitions; p++) {
            struct sim_scan s;
            struct look k = {r, t, p};
            char dir[96];
            folder(dir, sizeof dir, &r->model, t, p);
            sim_scan_log(b->disk, dir, &s);
            if (!sim_model_log(&r->model, t, p)->tainted) {
                if (s.torn) sim_fail(w, 10, "%s: a torn or corrupt end after a clean stop", dir);
                sim_check_gaps(w, dir, &s, r->model.topics[t].guid);
                sim_check_indexes(w, b->disk, &s, 0);
            }
            for (size_t i = 0; i < s.count; i++)
                if (!sim_scan_records(b->disk, &s, &s.v[i], c, one_record, &k))
                    sim_fail(w, 10, "%s: the batch at %lld does not decode", dir, (long long)s.v[i].h.base_offset);
            sim_scan_deinit(&s);
        }
    }
    kw_compressor_free(c);
}
