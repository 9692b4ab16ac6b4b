/* prober.c - asks for offsets all the time, in every version of ListOffsets: invariants 8 (the end that was told never goes down, nor does
 * the start) and 12 (the start is the log's; by time, what a full scan finds).
 *
 * Called by workload.c. Calls client/core (requests of a given version), scan; looks into the node.
 */
#include <stdio.h>
#include <stdlib.h>

#include "kw_messages.h"
#include "node_priv.h"
#include "replica/partition.h"
#include "roles.h"
#include "scan.h"
#include "cluster.h"

enum { EVERY_MS = 600, REQUEST_S = 20 };

struct prober {
    struct sim_role role; /* first */
    struct sim_run *run;
    struct sim_world *w;
    struct kw_compressor *compressor;
    struct kc_request rq;
    bool busy, stopping;
    /* the question, and what was known then */
    int topic, partition;
    int64_t timestamp; /* -1: the end, -2: the start */
    struct sim_broker *at; /* the node that was asked, and its life then */
    uint64_t life;
    int64_t asked_us;
    size_t losses;
    int64_t hw, start;
};

/* On the node, or on the leader of a cluster, as the metadata says. */
static struct kb_partition *partition_of(struct prober *p, struct sim_broker **at) {
    const struct sim_cluster *c = p->run->cluster;
    int leader = c ? c->parts[p->topic][p->partition].leader : 0;
    struct sim_broker *b = &p->run->nodes[KW_MAX(leader, 0)];
    if (leader < 0 || b->life != SIM_UP) return NULL;
    *at = b;
    for (struct kb_partition *x = NULL; (x = kb_partitions_next(b->node, x));)
        if (strcmp(x->topic, p->run->model.topics[p->topic].name) == 0 && x->index == p->partition)
            return x->log && x->state == KB_PART_ONLINE ? x : NULL;
    return NULL;
}

/* In a cluster another leader may have answered, or one that has ceased to be: what it says is old, and true for its time. */
static bool is_from_leader(const struct prober *p) {
    const struct sim_cluster *c = p->run->cluster;
    const struct sim_part *x = c ? &c->parts[p->topic][p->partition] : NULL;
    return !x || (x->leader == p->at->index && x->moved_us < p->asked_us && p->at->life == SIM_UP && p->at->lives == p->life);
}

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct prober *p = rq->ctx;
    struct kw_list_offsets_request_list_offsets_partition part = {
        .partition_index = p->partition, .current_leader_epoch = -1, .timestamp = p->timestamp, .max_num_offsets = 1};
    struct kw_list_offsets_request_list_offsets_topic topic = {.name = kw_str_of(p->run->model.topics[p->topic].name), .partitions = {&part, 1}};
    struct kw_list_offsets_request m;
    kw_msg_init(&kw_list_offsets_request_desc, &m);
    m.replica_id = -1;
    m.topics.v = &topic;
    m.topics.n = 1;
    return kw_encode(&kw_list_offsets_request_desc, rq->version, &m, out);
}

/* ---- By time, against the log ---- */

struct first {
    int64_t from, before, timestamp; /* offsets [from, before) */
    bool found;
    int64_t offset; /* the first one late enough */
};
static void one(void *ctx, const struct sim_batch *b, const struct kw_record_view *r) {
    struct first *f = ctx;
    (void)b;
    if (f->found || r->offset < f->from || r->offset >= f->before || r->timestamp < f->timestamp) return;
    f->found = true;
    f->offset = r->offset;
}

/* `told`: what the broker answered. Records up to it (or up to what was the end when it was asked) are there to stay. */
static void check_time(struct prober *p, const struct kb_partition *x, int64_t told) {
    struct sim_world *w = p->w;
    struct sim_scan s;
    struct first f = {.from = x->log->start, .before = told < 0 ? p->hw : told + 1, .timestamp = p->timestamp};
    sim_scan_log(p->at->disk, x->log->dir, &s);
    for (size_t i = 0; i < s.count && !f.found; i++) {
        const struct sim_batch *b = &s.v[i];
        if (b->last < f.from || b->h.base_offset >= f.before || b->h.max_timestamp < p->timestamp) continue;
        if (!sim_scan_records(p->at->disk, &s, b, p->compressor, one, &f))
            sim_fail(w, 10, "%s: the batch at %lld does not decode", x->log->dir, (long long)b->h.base_offset);
    }
    sim_scan_deinit(&s);
    if (told >= 0 && told < x->log->start) return; /* deleted since */
    if (f.found ? f.offset != told : told >= 0)
        sim_fail(w, 12, "%s: ListOffsets v%d of time %lld says %lld, a full scan %lld", x->log->dir, p->rq.version, (long long)p->timestamp,
                 (long long)told, f.found ? (long long)f.offset : -1);
}

static void judge(struct prober *p, int64_t told) {
    struct sim_world *w = p->w;
    struct sim_log *l = sim_model_log(&p->run->model, p->topic, p->partition);
    struct sim_broker *at = NULL;
    const struct kb_partition *x = partition_of(p, &at);
    if (p->run->model.topics[p->topic].churned || l->tainted || l->loss_count != p->losses || !is_from_leader(p)) return;
    if (p->timestamp == -1) {
        if (told < l->told_end)
            sim_fail(w, 8, "%d-%d: ListOffsets v%d says that the end is %lld, and has said %lld", p->topic, p->partition, p->rq.version,
                     (long long)told, (long long)l->told_end);
        if (told > l->hw_max)
            sim_fail(w, 8, "%d-%d: ListOffsets v%d says that the end is %lld, the high watermark has never been above %lld", p->topic, p->partition,
                     p->rq.version, (long long)told, (long long)l->hw_max);
        l->told_end = told;
        return;
    }
    if (!x || at != p->at || at->lives != p->life) return; /* the start may fall back by a crash; what else was known then is gone */
    if (p->timestamp == -2) {
        if (told < p->start || told > x->log->start)
            sim_fail(w, 12, "%d-%d: ListOffsets v%d says that the start is %lld, it was %lld and is %lld", p->topic, p->partition, p->rq.version,
                     (long long)told, (long long)p->start, (long long)x->log->start);
        return;
    }
    check_time(p, x, told);
}

static void done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct prober *p = rq->ctx;
    struct kw_list_offsets_response m;
    struct kw_arena arena;
    int64_t told = -1;
    (void)blk;
    p->busy = false;
    if (p->stopping) return;
    kw_arena_init(&arena, 0);
    if (err == KC_OK && kw_decode(&kw_list_offsets_response_desc, rq->version, body, &arena, &m) != KW_OK) err = KC_BAD_MESSAGE;
    if (err == KC_OK && (m.topics.n != 1 || m.topics.v[0].partitions.n != 1)) sim_fail(p->w, 12, "ListOffsets answers something else");
    if (err == KC_OK) {
        const struct kw_list_offsets_response_list_offsets_partition_response *r = &m.topics.v[0].partitions.v[0];
        err = r->error_code;
        told = rq->version > 0 ? r->offset : r->old_style_offsets.n ? r->old_style_offsets.v[0] : -1;
    }
    kw_arena_deinit(&arena);
    sim_trace(p->w, "prober: %d-%d, v%d of %lld: %lld, %s", p->topic, p->partition, rq->version, (long long)p->timestamp, (long long)told,
              kc_err_name(err));
    if (err == KC_OK) judge(p, told);
}

/* ---- Asking ---- */

static void ask(struct prober *p) {
    struct sim_run *r = p->run;
    p->topic = (int)sim_below(p->w, (uint64_t)r->model.topic_count);
    p->partition = (int)sim_below(p->w, (uint64_t)r->model.topics[p->topic].partitions);
    const struct kc_topic_meta *t = kc_metadata_topic(p->role.client->core, p->topic + 1);
    const struct kb_partition *x = partition_of(p, &p->at);
    if (!t || p->partition >= t->partition_count || t->partitions[p->partition].leader < 0 || !x) return;
    const struct sim_log *l = sim_model_log(&r->model, p->topic, p->partition);
    int kind = (int)sim_below(p->w, 3);
    p->timestamp = kind == 0 ? -1 : kind == 1 ? -2 : sim_host_now(&p->role.client->host).wall_ms - sim_range(p->w, -1000, 100000);
    kc_request_init(&p->rq, KW_API_LIST_OFFSETS);
    p->rq.version_max = (int16_t)sim_range(p->w, kind == 2 ? 1 : 0, p->rq.version_max); /* v0 answers by time in segments */
    p->rq.version_min = KW_MIN(p->rq.version_max, 1);
    if (r->cluster && sim_cluster_node(r->cluster, t->partitions[p->partition].leader) != p->at->index) return; /* it has not heard of it yet */
    p->rq.broker = t->partitions[p->partition].leader;
    p->rq.encode = encode;
    p->rq.done = done;
    p->rq.ctx = p;
    p->rq.deadline_us = sim_client_now(p->role.client).mono_us + REQUEST_S * SIM_S;
    p->life = p->at->lives;
    p->asked_us = p->w->now_us;
    p->losses = l->loss_count;
    p->hw = x->hw;
    p->start = x->log->start;
    p->busy = true;
    if (p->rq.version_max == 0) sim_fire(p->w, SIM_F_OLD_LIST);
    kc_core_send(p->role.client->core, &p->rq);
}

static bool work(struct sim_role *r) {
    struct prober *p = (struct prober *)r;
    if (p->stopping || r->next_us > p->w->now_us) return false;
    r->next_us = p->w->now_us + sim_range(p->w, EVERY_MS * SIM_MS / 2, EVERY_MS * SIM_MS * 3 / 2);
    if (!p->busy) ask(p);
    return true;
}

static void stop(struct sim_role *r) {
    struct prober *p = (struct prober *)r;
    p->stopping = true;
    if (p->busy) kc_core_cancel(r->client->core, &p->rq);
}
static bool stopped(const struct sim_role *r) {
    return !((const struct prober *)r)->busy;
}
static void free_role(struct sim_role *r) {
    struct prober *p = (struct prober *)r;
    kw_compressor_free(p->compressor);
    free(p);
}

struct sim_role *sim_prober_new(struct sim_client *c, struct sim_run *run) {
    struct prober *p = sim_need(calloc(1, sizeof *p));
    p->role = (struct sim_role){.next_us = c->w->now_us, .work = work, .stop = stop, .stopped = stopped, .free = free_role};
    p->run = run;
    p->w = c->w;
    p->compressor = sim_need(kw_compressor_new());
    for (int t = 0; t < run->model.topic_count; t++) kc_metadata_want(c->core, t + 1);
    sim_client_add(c, &p->role);
    return &p->role;
}
