/* check_copies.c - every copy of every partition, as its files say: invariants 6 (no gaps), 7 (marks), 8 (the high watermark), 11 (a restart yields
 * what was there), 14 (producer state equals a replay: after each start, and when the node begins to lead), 15 (a log whose write or sync failed takes
 * nothing more), 21 (log matching: the same offset in the same epoch is the same batch behind the same batch), 22 (nothing that was committed is
 * truncated).
 *
 * Called after each turn of a node, and at its deaths. Batches are looked at once, when they are written. Calls check_leaders, check_files.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cluster.h"
#include "log/log_priv.h"
#include "node_priv.h"
#include "replica/isr_priv.h"
#include "scan.h"

enum { NO_EPOCH = INT32_MIN }; /* not -1: what a node without memory knows of a partition is that */

void sim_batches_add(struct sim_batches *v, const struct sim_batch_id *b) {
    v->v = sim_grow(v->v, v->count, &v->cap, sizeof *v->v);
    v->v[v->count++] = *b;
}

struct kb_partition *sim_node_partition(struct sim_broker *b, const char *topic, int partition) {
    if (!b->node) return NULL;
    for (struct kb_partition *p = NULL; (p = kb_partitions_next(b->node, p));)
        if (p->index == partition && strcmp(p->topic, topic) == 0 && p->state != KB_PART_DELETED) return p;
    return NULL;
}

static bool same(const struct sim_batch_id *a, const struct sim_batch_id *b) {
    return a->base == b->base && a->last == b->last && a->crc == b->crc && a->epoch == b->epoch && a->size == b->size;
}

/* ---- 21 ---- */

static void stamp(struct sim_cluster *c, struct sim_part *p, int node, const struct sim_batches *v, size_t i) {
    const char *name = p->name;
    const struct sim_batch_id *b = &v->v[i];
    struct sim_stamp s = {.epoch = b->epoch, .crc = b->crc, .prev_base = i ? b[-1].base : -1, .prev_epoch = i ? b[-1].epoch : -1};
    if (b->base < 0 || b->base > 10000000) sim_fail(&c->run->w, 6, "%s on node %d: a batch at offset %lld", name, node, (long long)b->base);
    while ((size_t)b->base >= p->head_count) {
        p->heads = sim_grow(p->heads, p->head_count, &p->head_cap, sizeof *p->heads);
        p->heads[p->head_count++] = 0;
    }
    for (int32_t k = p->heads[b->base]; k; k = p->stamps[k - 1].next) {
        const struct sim_stamp *o = &p->stamps[k - 1];
        if (o->epoch != s.epoch) continue;
        if (o->crc != s.crc)
            sim_fail(&c->run->w, 21, "%s on node %d: at offset %lld of epoch %d stands another batch than another node has had there", name, node,
                     (long long)b->base, b->epoch);
        if (i && o->prev_base >= 0 && (o->prev_base != s.prev_base || o->prev_epoch != s.prev_epoch))
            sim_fail(&c->run->w, 21, "%s on node %d: the batch at offset %lld of epoch %d follows %lld of epoch %d, elsewhere %lld of epoch %d", name, node,
                     (long long)b->base, b->epoch, (long long)s.prev_base, s.prev_epoch, (long long)o->prev_base, o->prev_epoch);
        return;
    }
    s.next = p->heads[b->base];
    p->stamps = sim_grow(p->stamps, p->stamp_count, &p->stamp_cap, sizeof *p->stamps);
    p->stamps[p->stamp_count++] = s;
    p->heads[b->base] = (int32_t)p->stamp_count;
}

/* ---- Following a log ---- */

static const uint8_t *segment_bytes(struct sim_cluster *c, int node, const char *name, int64_t segment, size_t *n) {
    char path[160] = SIM_DATA "/", *p = path + strlen(path);
    size_t k = strlen(name);
    memcpy(p, name, k);
    memcpy(p + k, "/00000000000000000000.log", 26);
    for (p += k + 20; segment; segment /= 10) *p-- = (char)('0' + segment % 10);
    return sim_disk_peek(c->run->nodes[node].disk, path, n);
}

static bool read_batch(struct sim_cluster *c, int node, const char *name, int64_t segment, size_t position, struct sim_batch_id *b) {
    size_t n;
    struct kw_batch_header h;
    const uint8_t *f = segment_bytes(c, node, name, segment, &n);
    if (!f || position >= n || kw_batch_parse(f + position, n - position, &h) != KW_OK) return false;
    size_t size = (size_t)h.length + KW_BATCH_OVERHEAD;
    if (size > n - position || !kw_batch_crc_ok(f + position, size)) return false;
    *b = (struct sim_batch_id){h.base_offset, h.base_offset + h.last_offset_delta, segment, position, size, h.crc, h.leader_epoch};
    return true;
}

/* Takes in what is written and was not looked at yet. */
static bool follow(struct sim_cluster *c, struct sim_part *p, int node, int64_t written) {
    struct sim_copy *y = &p->copies[node];
    struct sim_batches *v = &y->have;
    const char *name = p->name;
    while (y->end < written) {
        struct sim_batch_id b;
        const struct sim_batch_id *l = v->count ? &v->v[v->count - 1] : NULL;
        if (!(l && read_batch(c, node, name, l->segment, l->position + l->size, &b)) && !read_batch(c, node, name, y->end, 0, &b)) return false;
        if (b.base != y->end)
            sim_fail(&c->run->w, 6, "%s on node %d: behind offset %lld comes %lld", name, node, (long long)y->end - 1, (long long)b.base);
        sim_batches_add(v, &b);
        stamp(c, p, node, v, v->count - 1);
        y->end = b.last + 1;
    }
    return true;
}

void sim_copy_follow(struct sim_cluster *c, struct sim_part *p, int node, int64_t written) {
    if (!follow(c, p, node, written))
        sim_fail(&c->run->w, 11, "%s on node %d: %lld are written, and the files have no batch at %lld", p->name, node, (long long)written,
                 (long long)p->copies[node].end);
}

/* All that was committed and is at or above `to` is gone from a copy. */
static void cut(struct sim_cluster *c, struct sim_part *p, int node, int64_t to) {
    struct sim_copy *y = &p->copies[node];
    const char *name = p->name;
    struct sim_batches *v = &y->have;
    while (v->count && v->v[v->count - 1].last >= to) {
        if (v->v[v->count - 1].base < to)
            sim_fail(&c->run->w, 22, "%s on node %d: cut at %lld, in the middle of a batch from %lld to %lld", name, node, (long long)to,
                     (long long)v->v[v->count - 1].base, (long long)v->v[v->count - 1].last);
        v->count--;
        if (v->count >= y->agreed) continue;
        if (!y->suspect)
            sim_fail(&c->run->w, 22, "%s on node %d: truncated to %lld; what was committed up to %lld was there before", name, node, (long long)to,
                     (long long)v->v[v->count].last + 1);
        y->agreed = v->count;
    }
    y->end = to;
    if (y->unread > to) y->unread = 0;
}

void sim_copy_gone(struct sim_part *p, int node) {
    struct sim_copy *y = &p->copies[node];
    y->have.count = y->agreed = 0;
    y->end = y->unread = 0;
    y->life = 0;
    y->suspect = y->out = y->led = false;
    memset(&y->look, 0, sizeof y->look);
    y->hw_epoch = NO_EPOCH;
    y->again = true;
}

/* How far this copy is what was committed. */
static void compare(struct sim_part *p, struct sim_copy *y) {
    const struct sim_batches *a = &p->committed, *v = &y->have;
    if (y->agreed > v->count) y->agreed = v->count;
    if (!v->count || !a->count) return;
    size_t shift = 0; /* a copy that was begun anew further up lacks what comes before */
    while (shift < a->count && a->v[shift].base < v->v[0].base) shift++;
    while (y->agreed < v->count && y->agreed + shift < a->count && same(&v->v[y->agreed], &a->v[y->agreed + shift])) y->agreed++;
}

bool sim_copy_agrees(struct sim_part *p, int node) {
    struct sim_copy *y = &p->copies[node];
    compare(p, y);
    if (y->end < p->end) return false;
    if (!p->committed.count || !y->have.count) return p->end == 0 || y->end >= p->end;
    return y->agreed > 0 ? y->have.v[y->agreed - 1].last + 1 >= p->end : y->have.v[0].base >= p->end;
}

/* ---- A node's turn ---- */

static int64_t first_segment(struct sim_broker *b, const struct kb_log *g) {
    char **names;
    int64_t base = -1;
    size_t n = sim_disk_names(b->disk, g->dir, &names);
    for (size_t i = 0; i < n; i++) { /* sorted */
        if (base < 0 && strlen(names[i]) == 24 && strcmp(names[i] + 20, ".log") == 0) base = strtoll(names[i], NULL, 10);
        free(names[i]);
    }
    free(names);
    return base < 0 ? g->start : base;
}

/* The producers as the log knows them, against a replay of its files. */
static void check_pids(struct sim_cluster *c, const struct sim_part *p, struct sim_broker *b, const struct kb_log *g) {
    struct sim_scan scan;
    if (p == &c->meta || g->written != g->leo || g->busy || g->poisoned) return;
    sim_scan_log(b->disk, g->dir, &scan);
    if (sim_scan_end(&scan) == g->leo) sim_check_pids(&c->run->w, g, &scan, p->copies[b->index].unread); /* else a cut is still to be carried out */
    sim_scan_deinit(&scan);
}

/* What was there when the process died is there: all that was written, or after a loss of power all that was synced; where a cut was under way, all
 * that was committed. */
static void check_kept(struct sim_cluster *c, const struct sim_part *p, int node, const struct sim_batches *old, size_t agreed, int64_t start) {
    const struct sim_copy *y = &p->copies[node];
    size_t count = y->was_cut ? agreed : old->count;
    for (size_t i = 0, k = 0; i < count && !(y->powerless && old->v[i].last >= y->synced); i++) {
        if (old->v[i].last < start) continue;
        while (k < y->have.count && y->have.v[k].base < old->v[i].base) k++;
        if (k == y->have.count || !same(&y->have.v[k], &old->v[i]))
            sim_fail(&c->run->w, 11, "%s on node %d: after the start the batch from %lld to %lld is not there, which was %s", p->name, node,
                     (long long)old->v[i].base, (long long)old->v[i].last, y->powerless ? "synced" : "written");
    }
}

/* The first look at a log in this life of its node. anew: it is another log, begun where its leader's begins. */
static void begin(struct sim_cluster *c, struct sim_part *p, struct sim_broker *b, const struct kb_log *g, bool anew) {
    struct sim_copy *y = &p->copies[b->index];
    struct sim_batches old = y->have;
    size_t agreed = y->agreed;
    y->have = (struct sim_batches){0};
    y->end = g->start == g->leo ? g->start : first_segment(b, g); /* of one that was emptied, or begins anew, files may be on their way out */
    y->agreed = 0;
    sim_copy_follow(c, p, b->index, g->written);
    if (anew)
        y->unread = 0;
    else
        check_kept(c, p, b->index, &old, agreed, g->start);
    check_pids(c, p, b, g);
    free(old.v);
    compare(p, y);
    y->life = b->lives;
    y->hw_epoch = NO_EPOCH;
    y->led = y->enough = y->powerless = y->was_cut = false;
    y->failed_at = -1;
    y->looked_epoch = INT32_MAX;
}

void sim_copy_look(struct sim_cluster *c, struct sim_part *p, struct sim_broker *b, const struct kb_log *g) {
    struct sim_copy *y = &p->copies[b->index];
    if (y->life != b->lives) begin(c, p, b, g, false);
    if (g->leo < y->end && y->again) {
        y->again = false;
        begin(c, p, b, g, true);
    }
    if (g->leo < y->end) cut(c, p, b->index, g->leo);
    if (g->start > y->end) { /* begun anew where its leader's log begins */
        y->have.count = y->agreed = 0;
        y->end = g->start;
    }
    if (!follow(c, p, b->index, KW_MIN(g->written, g->leo))) begin(c, p, b, g, true); /* it was begun anew since the last look */
    y->synced = g->synced;
}

static void marks(struct sim_cluster *c, struct sim_part *p, struct sim_broker *b, const struct kb_partition *x) {
    struct sim_copy *y = &p->copies[b->index];
    const struct kb_log *g = x->log;
    struct sim_world *w = &c->run->w;
    bool reset = g->leo == g->start; /* begun anew where its leader's log begins: the high watermark follows with the end of that */
    if (!(0 <= g->start && (g->start <= x->hw || reset) && x->hw <= g->leo) || !(g->synced <= g->written && g->written <= g->leo))
        sim_fail(w, 7, "node %d: %s: start %lld, high watermark %lld, synced %lld, written %lld, end %lld", b->index, g->dir, (long long)g->start,
                 (long long)x->hw, (long long)g->synced, (long long)g->written, (long long)g->leo);
    if (x->leader_epoch < y->leader_epoch && kb_node_state(b->node) != KB_NODE_FAILED) /* one without memory to take its epoch over has ended */
        sim_fail(w, 16, "node %d: %s: leader epoch %d, and it was %d", b->index, g->dir, x->leader_epoch, y->leader_epoch);
    /* An empty log may have to begin lower, with the batch that its leader's start lies in, and have that batch in the same turn. */
    bool empty = y->look.life == b->lives && y->look.leo == y->look.start;
    bool doubtful = y->suspect && !y->led; /* it may hold anything, and begin anew */
    if (y->hw_epoch == x->leader_epoch && x->hw < y->hw && !reset && !empty && !doubtful)
        sim_fail(w, 8, "node %d: %s: the high watermark went down in epoch %d, from %lld to %lld", b->index, g->dir, x->leader_epoch, (long long)y->hw,
                 (long long)x->hw);
    if (y->failed_at >= 0 && g->written > y->failed_at)
        sim_fail(w, 15, "node %d: %s: a write or sync failed when %lld were written; now %lld are", b->index, g->dir, (long long)y->failed_at,
                 (long long)g->written);
    y->leader_epoch = x->leader_epoch;
    y->hw = x->hw;
    y->hw_epoch = reset ? NO_EPOCH : x->leader_epoch; /* it has told nobody of the records below where it began */
}

/* What the checks of the next turns need of this one: until then nothing of it changes. */
static void note(struct sim_cluster *c, struct sim_copy *y, const struct kb_partition *x) {
    y->led = x->role == KB_PART_LEADS;
    y->looked_epoch = x->leader_epoch;
    y->enough = x->isr_count >= KW_MIN(x->config.min_insync_replicas, x->replica_count);
    y->view_count = 0;
    if (!y->led) return;
    for (int32_t i = 0; i < x->isr_count; i++) y->view[y->view_count++] = sim_cluster_node(c, x->isr[i]);
    for (int32_t i = 0; x->in_sync && i < x->in_sync->wish_count; i++) {
        int n = sim_cluster_node(c, x->in_sync->wish[i].broker_id);
        if (!sim_copy_awaits(y, n)) y->view[y->view_count++] = n;
    }
}

static struct sim_look look_at(const struct sim_part *p, const struct sim_broker *b, const struct kb_partition *x) {
    const struct kb_log *g = x->log;
    struct sim_look l;
    memset(&l, 0, sizeof l); /* they are compared as bytes */
    l.log = g;
    l.life = b->lives;
    l.start = g->start;
    l.written = g->written;
    l.synced = g->synced;
    l.leo = g->leo;
    l.hw = x->hw;
    l.committed = p->end;
    l.leader_epoch = x->leader_epoch;
    l.role = (int32_t)x->role;
    l.partition_epoch = x->partition_epoch;
    l.isr_count = x->isr_count;
    l.wish_count = x->in_sync ? x->in_sync->wish_count : 0;
    l.isr_min = x->config.min_insync_replicas;
    l.known = p->known && kw_uuid_eq(p->id, x->topic_id);
    l.suspect = p->copies[b->index].suspect;
    return l;
}

void sim_check_copies(struct sim_broker *b) {
    struct sim_run *r = b->ctx;
    struct sim_cluster *c = r->cluster;
    for (struct kb_partition *x = NULL; (x = kb_partitions_next(b->node, x));) {
        int t = x->log && (x->state == KB_PART_ONLINE || x->state == KB_PART_OFFLINE) ? sim_topic_number(x->topic) : -1;
        if (t < 0 || x->index >= SIM_PARTS_MAX || sim_part_is_open(c, t, x->index)) continue;
        struct sim_part *p = &c->parts[t][x->index];
        if (c->rot.part == p && c->rot.node == b->index) continue; /* until it is mended, or found */
        struct sim_copy *y = &p->copies[b->index];
        if (y->life == b->lives) y->was_cut = x->log->busy || x->log->poisoned;
        if (x->state == KB_PART_OFFLINE) { /* in the turn in which its log failed: what it has served before that was committed */
            sim_check_leader_failed(c, p, b, x, t);
            continue;
        }
        if (p->known && !sim_part_has_replica(p, b->index) && x->role != KB_PART_LEADS) continue; /* on its way out, and has heard of it */
        struct sim_look now = look_at(p, b, x), *last = &y->look;
        if (memcmp(&now, last, sizeof now) == 0) continue;
        bool first = y->life != b->lives;
        sim_copy_look(c, p, b, x->log);
        marks(c, p, b, x);
        if (x->role == KB_PART_LEADS && !y->led) check_pids(c, p, b, x->log);
        sim_check_leader(c, p, b, x, t);
        note(c, y, x);
        *last = look_at(p, b, x);
        if (first && now.suspect) sim_check_returned(c); /* it may be in the ISR since before it was mended */
    }
}

void sim_check_copies_death(struct sim_broker *b) {
    if (b->life == SIM_UP || b->life == SIM_STOPPING || b->life == SIM_STARTING) sim_check_copies(b);
}

void sim_check_copies_broken(struct sim_broker *b, struct kb_file *f, bool sync) {
    struct sim_run *r = b->ctx;
    for (struct kb_partition *x = NULL; b->node && (x = kb_partitions_next(b->node, x));) {
        int t = x->log ? sim_topic_number(x->topic) : -1;
        if (t < 0 || x->index >= SIM_PARTS_MAX || sim_part_is_open(r->cluster, t, x->index)) continue;
        struct sim_copy *y = &r->cluster->parts[t][x->index].copies[b->index];
        for (size_t i = 0; i < x->log->priv->seg_count; i++)
            if (x->log->priv->segs[i]->file == f && y->life == b->lives && y->failed_at < 0) {
                sim_trace(&r->w, "%s: a %s of %s failed, %lld are written", b->host.name, sync ? "sync" : "write", x->log->dir, (long long)x->log->written);
                y->failed_at = x->log->written;
            }
    }
}

static void lose(struct sim_cluster *c, struct sim_part *p, int node, bool all, bool promised) {
    struct sim_copy *y = &p->copies[node];
    if (all) y->have.count = 0;
    y->powerless = true;
    while (y->agreed > y->have.count || (y->agreed && y->have.v[y->agreed - 1].last >= y->synced)) y->agreed--;
    if (promised && !all) return;
    y->suspect = true; /* though all that was committed be there: it may have acknowledged more, and its leader count on that */
    y->out = !sim_part_in_isr(p, node);
    const struct kb_image_broker *k = kb_image_broker(&c->image, c->ids[node]);
    y->lost_in = k ? k->epoch : -1;
}

void sim_check_copies_lost(struct sim_cluster *c, int node, bool all) {
    lose(c, &c->meta, node, all, true);
    if (all || !c->run->model.flush_on_ack) sim_offsets_lost(c, node);
    for (int t = 0; t < c->run->model.topic_count; t++)
        for (int i = 0; i < SIM_PARTS_MAX; i++)
            if (c->parts[t][i].copies[node].life && !sim_part_is_open(c, t, i)) lose(c, &c->parts[t][i], node, all, c->run->model.flush_on_ack);
}
