/* check_lookup.c - invariant 12 from outside: ListOffsets by time, of the start and of the end, against a full scan.
 * In a cluster of the leader's files. Called when all is through, by workload.c and cluster.c. */
#include <stdio.h>
#include <stdlib.h>

#include "cluster.h"
#include "node_priv.h"
#include "replica/partition.h"
#include "scan.h"

enum { TIMES = 6, LOOKUP_S = 60 };

struct times {
    struct timed { /* a record */
        int64_t time, offset, batch_last;
    } * v; /* in order */
    size_t count, cap;
};
static void one(void *ctx, const struct sim_batch *b, const struct kw_record_view *r) {
    struct times *t = ctx;
    t->v = sim_grow(t->v, t->count, &t->cap, sizeof *t->v);
    t->v[t->count++] = (struct timed){r->timestamp, r->offset, b->last};
}

/* What a full scan finds; without the batch that ends before `unread`, if that is not 0. */
static int64_t scan_for(const struct times *t, const struct kb_partition *p, int64_t time, int64_t unread) {
    for (size_t i = 0; i < t->count; i++) {
        const struct timed *x = &t->v[i];
        if (x->time >= time && x->offset >= p->log->start && x->offset < p->hw && !(unread && x->batch_last + 1 == unread)) return x->offset;
    }
    return -1;
}

static bool answered;
static void done(void *ctx, struct sim_lookup *items, size_t n) {
    (void)ctx, (void)items, (void)n;
    answered = true;
}

static void check_partition(struct sim_run *r, struct sim_broker *b, struct kb_partition *p, int topic, struct kw_compressor *c) {
    struct sim_world *w = &r->w;
    struct sim_scan s;
    struct times t = {0};
    sim_scan_log(b->disk, p->log->dir, &s);
    for (size_t i = 0; i < s.count; i++)
        if (!sim_scan_records(b->disk, &s, &s.v[i], c, one, &t))
            sim_fail(w, 10, "%s: the batch at %lld does not decode", p->log->dir, (long long)s.v[i].h.base_offset);
    struct sim_lookup q[TIMES + 2];
    int64_t expected[TIMES + 2], unread = r->cluster ? r->cluster->parts[topic][p->index].copies[b->index].unread : 0;
    for (int i = 0; i < TIMES; i++) {
        int64_t time = t.count ? t.v[sim_below(w, t.count)].time + sim_range(w, -2, 2) : 0;
        time = KW_MAX(time, 0); /* below are the special ones, and records without a time */
        expected[i] = scan_for(&t, p, time, 0);
        q[i] = (struct sim_lookup){topic, p->index, time, -9, KC_OK};
    }
    q[TIMES] = (struct sim_lookup){topic, p->index, -2, -9, KC_OK};
    expected[TIMES] = p->log->start;
    q[TIMES + 1] = (struct sim_lookup){topic, p->index, -1, -9, KC_OK};
    expected[TIMES + 1] = p->hw;
    answered = false;
    int64_t until = w->now_us + LOOKUP_S * SIM_S;
    if (!sim_consumer_lookup(r->verifier, q, TIMES + 2, LOOKUP_S * SIM_S, done, NULL)) abort();
    while (!answered && w->now_us <= until + SIM_S) sim_run_until(w, w->now_us + 10 * SIM_MS);
    for (int i = 0; i < TIMES + 2; i++) { /* retention goes on meanwhile */
        int64_t now = i < TIMES ? scan_for(&t, p, q[i].timestamp, 0) : i == TIMES ? p->log->start : p->hw;
        if (!answered || q[i].err != KC_OK)
            sim_fail(w, 36, "%s: a lookup of %lld: %s", p->log->dir, (long long)q[i].timestamp,
                     answered ? kc_err_name(q[i].err) : "no answer");
        bool hidden = i < TIMES && unread && q[i].offset == scan_for(&t, p, q[i].timestamp, unread); /* from the start that made the index */
        if (q[i].offset != expected[i] && q[i].offset != now && !hidden)
            sim_fail(w, 12, "%s: ListOffsets of %lld says %lld, a full scan %lld", p->log->dir, (long long)q[i].timestamp,
                     (long long)q[i].offset, (long long)expected[i]);
    }
    free(t.v);
    sim_scan_deinit(&s);
}

void sim_check_lookups(struct sim_run *r) {
    struct kw_compressor *c = sim_need(kw_compressor_new());
    for (int t = 0; t < r->model.topic_count; t++)
        for (int i = 0; i < r->model.topics[t].partitions && !r->model.topics[t].churned; i++) {
            struct sim_broker *b = &r->nodes[r->cluster ? KW_MAX(r->cluster->parts[t][i].leader, 0) : 0]; /* all is well: it has one */
            struct kb_partition *p = sim_node_partition(b, r->model.topics[t].name, i);
            if (p && p->log && !sim_model_log(&r->model, t, i)->tainted) check_partition(r, b, p, t, c);
        }
    kw_compressor_free(c);
}
