/* check_guid.c - topics that look ids up: after each turn of a node every log's new records, one by one: 3 (an id stands there once within the window),
 * 6 (a hole has a first copy at a lower offset); retention by time takes nothing that the window still needs. And 14 of the index: what lookups say,
 * and at rest every index on every node, against what the logs hold.
 *
 * What is promised is a time from the append on, by the node's clock: this process's monotonic one, and over a restart what the wall clock says has
 * passed, so that a wall clock that jumped forward before a start takes so much off. Nothing is asked beyond the window.
 *
 * Called by workload.c, cluster.c, guid_app.c. Looks into the nodes and at their files.
 */
#include <stdio.h>
#include <stdlib.h>

#include "alloc.h"
#include "guid.h"
#include "node_priv.h"
#include "replica/guids.h"

#define SLACK_US (30 * SIM_MS)

/* ---- What a copy holds ---- */

static bool read_batch(struct sim_broker *b, const char *dir, int64_t segment, size_t position, struct sim_guid_batch *out, struct kw_batch_header *h,
                       const uint8_t **bytes) {
    char path[200];
    size_t n;
    snprintf(path, sizeof path, "%s/%020lld.log", dir, (long long)segment);
    const uint8_t *f = sim_disk_peek(b->disk, path, &n);
    if (!f || position >= n || kw_batch_parse(f + position, n - position, h) != KW_OK) return false;
    size_t size = (size_t)h->length + KW_BATCH_OVERHEAD;
    if (size > n - position || !kw_batch_crc_ok(f + position, size)) return false;
    *out = (struct sim_guid_batch){.base = h->base_offset, .last = h->base_offset + h->last_offset_delta, .segment = segment, .position = position,
                                   .size = size, .crc = h->crc, .epoch = h->leader_epoch};
    *bytes = f + position;
    return true;
}

static void pop(struct sim_guid_copy *c) {
    struct sim_guid_batch *last = &c->v[--c->count];
    while (c->e_count > last->first) {
        const struct sim_guid_record *e = &c->e[--c->e_count];
        if (e->guid != SIM_GUID_NONE) c->newest[e->guid] = e->prev;
    }
    c->end = last->base;
}

static struct sim_guid_record *newest(const struct sim_guid_copy *c, uint32_t guid) {
    return guid < c->newest_count && c->newest[guid] ? &c->e[c->newest[guid] - 1] : NULL;
}

static void add_record(struct sim_guid_copy *c, struct sim_guid_record e) {
    while (e.guid != SIM_GUID_NONE && e.guid >= c->newest_count) {
        c->newest = sim_grow(c->newest, c->newest_count, &c->newest_cap, sizeof *c->newest);
        c->newest[c->newest_count++] = 0;
    }
    c->e = sim_grow(c->e, c->e_count, &c->e_cap, sizeof *c->e);
    if (e.guid != SIM_GUID_NONE) e.prev = c->newest[e.guid];
    c->e[c->e_count++] = e;
    if (e.guid != SIM_GUID_NONE) c->newest[e.guid] = (uint32_t)c->e_count;
}

/* ---- 3 ---- */

struct place { /* of what is looked at */
    struct sim_run *r;
    struct sim_broker *b;
    struct kb_partition *x;
    int topic;
    struct sim_guid_part *p;
    struct sim_guid_copy *c;
};

/* How much of its time an entry of a copy has left, at least, on its node at some time; asked for since since_us. */
static int64_t time_left_us(const struct place *k, const struct sim_guid_record *e, int64_t since_us, int64_t at_us) {
    int64_t window = k->r->model.topics[k->topic].window_us, jumped_ms = sim_advances ? k->b->host.jumped_ms : k->b->host.jumped_at_boot_ms,
            early = KW_MAX(jumped_ms - e->jumped_ms, 0) * 1000 + SLACK_US;
    if (k->r->guids->change_count) return sim_guid_left_us(k->c, e->at_us, early, since_us, at_us);
    return window - window / 200 - early - (at_us - e->at_us);
}

/* Some node does not know all ids of the log: where it leads, it stores them again. */
static bool has_gap(const struct sim_guid_part *p) {
    bool any = false;
    for (int n = 0; n < SIM_NODES_MAX; n++) any |= p->blind[n];
    return any;
}

static void check_once(const struct place *k, const struct sim_guid_record *e) {
    const struct sim_guid_record *was = newest(k->c, e->guid);
    if (!was || was->offset < k->x->log->start) return;
    int64_t left = time_left_us(k, was, e->at_us, e->at_us);
    if (left <= 0 || has_gap(k->p)) {
        k->r->guids->expired++;
        return;
    }
    sim_fail(&k->r->w, 3, "%s on %s: id %u stands at offset %lld (record %u) and again at %lld (record %u), %lld ms later; the window is %lld ms",
             k->x->log->dir, k->b->host.name, e->guid, (long long)was->offset, was->content, (long long)e->offset, e->content,
             (long long)(e->at_us - was->at_us) / 1000, (long long)k->x->config.guid_window_ms);
}

/* ---- 6 ---- */

static bool is_of(const struct sim_guid_sent *s, const struct place *k, const struct kw_batch_header *h, size_t first) {
    bool may_be = s->topic == k->topic && s->partition == k->x->index && s->base_timestamp == h->base_timestamp && s->count == h->last_offset_delta + 1 &&
                  s->pid == h->producer_id && (h->producer_id < 0 || s->sequence == h->base_sequence);
    for (size_t i = first; may_be && i < k->c->e_count; i++) may_be = k->c->e[i].guid == s->guids[k->c->e[i].offset - h->base_offset];
    return may_be; /* else another client's, of the same millisecond */
}

/* Of a batch that an application of ours wrote, so that it is known what was where the holes are. */
static void check_holes(const struct place *k, const struct kw_batch_header *h, const struct sim_guid_batch *b) {
    struct sim_guids *g = k->r->guids;
    const struct sim_guid_sent *s = NULL;
    size_t matches = 0;
    for (size_t i = 0; i < g->sent_count; i++)
        if (is_of(&g->sent[i], k, h, b->first)) {
            s = &g->sent[i];
            matches++;
        }
    if (matches != 1) return; /* another's; or two of one millisecond */
    size_t at = b->first;
    for (int32_t i = 0; i < s->count; i++) {
        int64_t offset = h->base_offset + i;
        if (at < k->c->e_count && k->c->e[at].offset == offset) {
            at++;
            continue;
        }
        const struct sim_guid_record *first = s->guids[i] == SIM_GUID_NONE ? NULL : newest(k->c, s->guids[i]);
        while (first && first->offset >= offset) first = first->prev ? &k->c->e[first->prev - 1] : NULL;
        if (!first)
            sim_fail(&k->r->w, 6, "%s on %s: offset %lld is left empty, whose record has %s%u, and no copy stands below it", k->x->log->dir, k->b->host.name,
                     (long long)offset, s->guids[i] == SIM_GUID_NONE ? "no id, " : "id ", s->guids[i]);
        g->holes++;
    }
}

/* ---- Following ---- */

struct reading {
    const struct place *k;
    const struct sim_guid_batch *b;
    bool judge, anew;
};
static void one_record(struct reading *d, const struct kw_record_view *v) {
    const struct place *k = d->k;
    struct sim_guid_record e = {.guid = sim_guid_of(k->r->guids, v->headers, v->headers_size), .content = SIM_GUID_NONE, .offset = v->offset,
                                .at_us = d->b->at_us, .jumped_ms = d->b->jumped_ms};
    (void)sim_content_id(v->key, v->value, v->headers, v->headers_size, &e.content);
    if (d->anew) {
        k->p->offsets = sim_grow(k->p->offsets, k->p->offset_count, &k->p->offset_cap, sizeof *k->p->offsets);
        k->p->offsets[k->p->offset_count++] = v->offset;
    }
    if (d->judge && e.guid != SIM_GUID_NONE) check_once(k, &e);
    add_record(k->c, e);
}

static int64_t first_at(const struct sim_guid_copy *c, int64_t last, int64_t now_us) {
    for (size_t i = 0; i < c->mark_count; i++)
        if (c->marks[i].leo > last) return c->marks[i].at_us;
    return now_us;
}

/* A batch that is new to this copy, and maybe to all. */
static void take(const struct place *k, struct sim_guid_batch *b, const struct kw_batch_header *h, const uint8_t *bytes) {
    struct sim_guid_birth *birth = sim_guid_birth(k->p, b->base, b->epoch, b->crc);
    struct sim_world *w = &k->r->w;
    struct kw_record_iter it;
    struct kw_record_view v;
    const uint8_t *body;
    size_t body_size;
    int32_t rc;
    bool leads = !k->r->cluster || (k->x->role == KB_PART_LEADS && k->x->leader_epoch == b->epoch), anew = !birth;
    if (anew) {
        k->p->births = sim_grow(k->p->births, k->p->birth_count, &k->p->birth_cap, sizeof *k->p->births);
        birth = &k->p->births[k->p->birth_count++];
        *birth = (struct sim_guid_birth){b->base, first_at(k->c, b->last, w->now_us), 0, k->p->offset_count, (size_t)h->record_count, b->epoch, b->crc};
    }
    b->at_us = birth->at_us;
    b->jumped_ms = k->b->host.jumped_ms;
    b->first = k->c->e_count;
    struct reading d = {k, b, anew && leads, anew};
    kw_err err = kw_batch_body(bytes, b->size, h, 64 << 20, k->r->guids->compressor, &body, &body_size);
    if (err) sim_fail(w, 10, "%s on %s: the batch at %lld does not decode", k->x->log->dir, k->b->host.name, (long long)b->base);
    birth->size = body_size;
    kw_record_iter_init(&it, h, body, body_size);
    while ((rc = kw_record_next(&it, &v)) == 1) one_record(&d, &v);
    if (rc < 0) sim_fail(w, 10, "%s on %s: the batch at %lld does not decode", k->x->log->dir, k->b->host.name, (long long)b->base);
    k->c->v = sim_grow(k->c->v, k->c->count, &k->c->cap, sizeof *k->c->v);
    k->c->v[k->c->count++] = *b;
    k->c->end = b->last + 1;
    if (anew && leads && h->record_count <= h->last_offset_delta) check_holes(k, h, b);
}

/* What a copy had before is what a new life of its node finds, as far as it is the same: when each record came to it is kept. */
static void keep_times(struct sim_guid_copy *c, const struct sim_guid_batch *old, size_t old_count) {
    size_t k = 0;
    for (size_t i = 0; i < c->count; i++) {
        while (k < old_count && old[k].base < c->v[i].base) k++;
        if (k == old_count) return;
        if (old[k].base != c->v[i].base || old[k].crc != c->v[i].crc || old[k].epoch != c->v[i].epoch) continue;
        c->v[i].jumped_ms = old[k].jumped_ms;
        for (size_t e = c->v[i].first; e < (i + 1 < c->count ? c->v[i + 1].first : c->e_count); e++) c->e[e].jumped_ms = old[k].jumped_ms;
    }
}

/* false: the files do not go on where it ends. */
static bool follow(const struct place *k) {
    struct sim_guid_copy *c = k->c;
    const struct kb_log *g = k->x->log;
    struct kw_batch_header h;
    const uint8_t *bytes;
    struct sim_guid_batch b;
    int64_t to = KW_MIN(g->written, g->leo);
    while (c->count && c->v[c->count - 1].last >= g->leo) pop(c);
    while (c->count) { /* cut and written anew between two looks */
        const struct sim_guid_batch *l = &c->v[c->count - 1];
        if (!read_batch(k->b, g->dir, l->segment, l->position, &b, &h, &bytes) || (b.base == l->base && b.crc == l->crc && b.epoch == l->epoch)) break;
        pop(c);
    }
    while (c->end < to) {
        const struct sim_guid_batch *l = c->count ? &c->v[c->count - 1] : NULL;
        if (!(l && read_batch(k->b, g->dir, l->segment, l->position + l->size, &b, &h, &bytes)) &&
            !read_batch(k->b, g->dir, c->end, 0, &b, &h, &bytes))
            return false;
        if (b.base != c->end) return false;
        take(k, &b, &h, bytes);
    }
    return true;
}

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

static void begin(const struct place *k) {
    struct sim_guid_copy *c = k->c;
    struct sim_guid_batch *old = c->v;
    size_t old_count = c->count;
    c->v = NULL;
    c->count = c->cap = c->e_count = 0;
    if (c->newest_count) memset(c->newest, 0, c->newest_count * sizeof *c->newest);
    c->log = k->x->log;
    c->life = k->b->lives;
    c->end = first_segment(k->b, k->x->log);
    (void)follow(k); /* else whether that may be is for others to say */
    keep_times(c, old, old_count);
    free(old);
    c->mark_count = 0;
}

/* ---- Retention ---- */

/* A follower may have heard of it from its leader, which was looked at then. */
static bool begins_elsewhere(const struct place *k, int64_t start) {
    for (int i = 0; i < k->r->node_count; i++) {
        struct sim_broker *b = &k->r->nodes[i];
        const struct kb_partition *x = b == k->b ? NULL : sim_node_partition(b, k->x->topic, k->x->index);
        if (x && x->log && x->log->start >= start) return true;
    }
    return false;
}

static void check_start(const struct place *k, bool leads) {
    struct sim_log *l = sim_model_log(&k->r->model, k->topic, k->x->index);
    int64_t start = k->x->log->start;
    if (start <= l->start || (!leads && begins_elsewhere(k, start))) return;
    for (size_t i = 0; i < k->c->e_count && k->r->guids->retention != SIM_KEEP_BYTES; i++) {
        const struct sim_guid_record *e = &k->c->e[i];
        if (e->offset < KW_MAX(l->start, k->p->start_judged) || e->offset >= start || e->guid == SIM_GUID_NONE) continue;
        int64_t left = time_left_us(k, e, k->r->w.now_us, k->r->w.now_us);
        if (left > 0)
            sim_fail(&k->r->w, 3, "%s on %s: the log begins at %lld now, and the record at %lld has an id that is to be known for another %lld ms",
                     k->x->log->dir, k->b->host.name, (long long)start, (long long)e->offset, (long long)left / 1000);
    }
    if (k->r->guids->retention != SIM_KEEP_ALL) sim_fire(&k->r->w, SIM_F_GUID_RETENTION);
    if (k->r->guids->change_count) k->p->start_judged = KW_MAX(k->p->start_judged, start);
    if (leads) l->start = start; /* from now on it may be gone for who reads */
}

/* ---- After a turn ---- */

/* Where nobody looks ids up, records go as they do anywhere. */
static void see_settings(const struct place *k) {
    struct sim_guid_copy *c = k->c;
    sim_guid_saw(k->r->guids, c, k->b, k->x, k->topic);
    if (c->start != k->x->log->start && sim_guid_was_off(c, c->looked_us)) k->p->start_judged = KW_MAX(k->p->start_judged, k->x->log->start);
    c->looked_us = k->r->w.now_us;
}

static void look(const struct place *k) {
    struct sim_guid_copy *c = k->c;
    const struct kb_log *g = k->x->log;
    if (k->r->guids->change_count) see_settings(k);
    bool leads = !k->r->cluster || k->x->role == KB_PART_LEADS, enough = k->x->isr_count >= KW_MIN(k->x->config.min_insync_replicas, k->x->replica_count);
    if (!leads || enough) c->short_us = INT64_MAX;
    else if (c->short_us == INT64_MAX) c->short_us = k->r->w.now_us;
    if (c->log == g && c->life == k->b->lives && c->leo == g->leo && c->written == g->written && c->start == g->start && c->led == leads) return;
    while (c->mark_count && c->marks[c->mark_count - 1].leo > g->leo) c->mark_count--;
    if (g->leo > (c->mark_count ? c->marks[c->mark_count - 1].leo : c->end)) {
        c->marks = sim_grow(c->marks, c->mark_count, &c->mark_cap, sizeof *c->marks);
        c->marks[c->mark_count++] = (struct sim_guid_mark){g->leo, k->r->w.now_us};
    }
    /* One that was begun anew may have gone on since the last look. */
    if (c->log != g || c->life != k->b->lives || (c->count == 0 && c->end != g->start) || !follow(k)) begin(k);
    size_t done = 0;
    while (done < c->mark_count && c->marks[done].leo <= c->end) done++;
    if (done > 0) memmove(c->marks, c->marks + done, (c->mark_count - done) * sizeof *c->marks);
    c->mark_count -= done;
    if (c->start != g->start || (leads && !c->led)) check_start(k, leads); /* one that begins to lead may begin further up than who led before */
    c->leo = g->leo;
    c->written = g->written;
    c->start = g->start;
    c->led = leads;
}

static bool is_open(const struct sim_run *r, int topic, int partition) {
    return r->model.topics[topic].churned || r->model.topics[topic].logs[partition].tainted;
}

static bool place_of(struct sim_broker *b, struct kb_partition *x, struct place *k) {
    struct sim_run *r = b->ctx;
    int t = x->log && x->state == KB_PART_ONLINE ? sim_topic_number(x->topic) : -1;
    if (t < 0 || t >= r->model.topic_count || !r->model.topics[t].guid || x->index >= SIM_GUID_PARTS || is_open(r, t, x->index)) return false;
    struct sim_guid_part *p = &r->guids->parts[t][x->index];
    *k = (struct place){r, b, x, t, p, &p->copies[b->index]};
    if (!r->cluster) return true;
    const struct sim_part *part = &r->cluster->parts[t][x->index];
    p->blind[b->index] |= part->copies[b->index].unread > 0;
    return !(r->cluster->rot.part == part && r->cluster->rot.node == b->index);
}

void sim_check_guid_acked(struct sim_run *r, int node, int topic, int partition, int64_t asked_us, uint64_t life) {
    struct sim_broker *b = &r->nodes[node];
    struct kb_partition *x = sim_node_partition(b, r->model.topics[topic].name, partition);
    struct place k;
    if (!r->cluster || b->life != SIM_UP || b->lives != life || !x || !place_of(b, x, &k)) return; /* one that is not looked at is not known to be short */
    if (k.c->life != life || k.c->short_us >= asked_us) return;
    sim_fail(&r->w, 1, "%d-%d: node %d acknowledges with acks=-1 what it was sent %lld ms ago; for %lld ms fewer than must be are in sync", topic, partition,
             node, (long long)(r->w.now_us - asked_us) / 1000, (long long)(r->w.now_us - k.c->short_us) / 1000);
}

void sim_check_guids(struct sim_broker *b) {
    struct sim_run *r = b->ctx;
    if (!r->guids) return;
    struct sim_host *turn = sim_alloc_turn(NULL);
    struct place k;
    for (struct kb_partition *x = NULL; (x = kb_partitions_next(b->node, x));)
        if (place_of(b, x, &k)) look(&k);
    (void)sim_alloc_turn(turn);
}

/* ---- 14 ---- */

static const struct sim_guid_record *at_offset(const struct sim_guid_copy *c, uint32_t guid, int64_t offset) {
    const struct sim_guid_record *e = newest(c, guid);
    while (e && e->offset > offset) e = e->prev ? &c->e[e->prev - 1] : NULL;
    return e && e->offset == offset ? e : NULL;
}

/* The index said that an id stands at an offset (-1: nowhere), some time after asked_us. */
static void check_said(const struct place *k, const char *how, uint32_t guid, int64_t asked_us, int64_t offset) {
    const struct kb_log *g = k->x->log;
    if (offset >= 0) {
        if (offset >= g->start && offset < k->c->end && !at_offset(k->c, guid, offset))
            sim_fail(&k->r->w, 14, "%s on %s: %s of id %u says offset %lld, where the log has another record, or none", g->dir, k->b->host.name, how, guid,
                     (long long)offset);
        return;
    }
    if (k->p->blind[k->b->index]) return;
    for (const struct sim_guid_record *e = newest(k->c, guid); e; e = e->prev ? &k->c->e[e->prev - 1] : NULL) {
        if (e->offset < g->start || e->at_us >= asked_us) continue;
        int64_t left = time_left_us(k, e, asked_us, k->r->w.now_us);
        if (left > 0)
            sim_fail(&k->r->w, 14, "%s on %s: %s of id %u finds nothing; it stands at offset %lld, for another %lld ms at least", g->dir, k->b->host.name, how,
                     guid, (long long)e->offset, (long long)left / 1000);
    }
}

void sim_check_guid_lookup(struct sim_run *r, int node, int topic, int partition, uint32_t guid, int64_t asked_us, uint64_t life, int32_t epoch, int state,
                            int64_t offset) {
    struct place k;
    struct sim_broker *b = &r->nodes[node];
    struct kb_partition *x = sim_node_partition(b, r->model.topics[topic].name, partition);
    if (b->life != SIM_UP || b->lives != life || !x || !place_of(b, x, &k) || k.c->log != x->log || k.c->life != life) return;
    if (x->leader_epoch != epoch || (r->cluster && x->role != KB_PART_LEADS)) return; /* what it was when it said so may have been cut */
    r->guids->lookups++;
    check_said(&k, "a lookup", guid, asked_us, state == 0 ? -1 : offset);
}

/* ---- At rest ---- */

struct asked { /* all ids that were given in a topic, in pieces */
    struct kb_guid_find find;
    bool done;
    uint32_t guids[256];
    uint8_t ids[256 * KB_GUID_SIZE];
    struct kb_guid_entry found[256];
};
static void found(struct kb_guid_find *f, struct kb_now now) {
    (void)now;
    ((struct asked *)f->ctx)->done = true;
}

static void ask(const struct place *k, struct asked *a, size_t n) {
    struct sim_world *w = &k->r->w;
    a->done = false;
    a->find = (struct kb_guid_find){.index = kb_guids_index(k->x), .ids = a->ids, .stride = KB_GUID_SIZE, .count = n, .found = a->found, .done = found,
                                    .ctx = a};
    int64_t asked_us = w->now_us;
    int32_t rc = kb_guid_find(&a->find, sim_broker_now(k->b));
    if (rc == 0) sim_host_wake(&k->b->host, w->now_us); /* it asks the disk */
    for (int i = 0; rc == 0 && !a->done && i < 1000; i++) sim_run_until(w, w->now_us + 10 * SIM_MS);
    if (rc == 0 && !a->done) sim_fail(w, 36, "%s on %s: the index has not answered within 10 s", k->x->log->dir, k->b->host.name);
    if (rc < 0 || (rc == 0 && a->find.err)) return; /* a run was rotten, or memory was refused: it is asked again when it has caught up */
    for (size_t i = 0; i < n; i++) {
        struct kb_guid_entry probed;
        check_said(k, "a find", a->guids[i], asked_us, a->found[i].offset);
        if (kb_guid_probe(kb_guids_index(k->x), a->find.ids + i * KB_GUID_SIZE, &probed)) check_said(k, "a probe", a->guids[i], asked_us, probed.offset);
    }
}

static bool is_ready(struct sim_world *w, const struct place *k) {
    for (int i = 0; i < 600 && !kb_guids_ready(k->x); i++) sim_run_until(w, w->now_us + 100 * SIM_MS);
    return kb_guids_ready(k->x);
}

/* What the administrator has set last is what a node goes by. */
static void check_settings(const struct place *k) {
    const struct sim_guids *g = k->r->guids;
    int64_t window_ms = g->windows[k->topic][g->window_count[k->topic] - 1];
    const struct kb_partition *x = k->x;
    for (int i = 0; i < 600 && (!x->config.guid_dedup || x->config.guid_window_ms != window_ms); i++) sim_run_until(&k->r->w, k->r->w.now_us + 100 * SIM_MS);
    if (!x->config.guid_dedup || x->config.guid_window_ms != window_ms)
        sim_fail(&k->r->w, 36, "%s on %s: dedup is %d with a window of %lld ms; set were 1 and %lld ms", x->log->dir, k->b->host.name, x->config.guid_dedup,
                 (long long)x->config.guid_window_ms, (long long)window_ms);
}

static void check_index(const struct place *k) {
    struct sim_run *r = k->r;
    struct sim_world *w = &r->w;
    static struct asked a;
    size_t n = 0;
    if (r->guids->change_count) check_settings(k);
    if (!is_ready(w, k)) sim_fail(w, 36, "%s on %s: the index of ids is not there 60 s after all came to rest", k->x->log->dir, k->b->host.name);
    if (k->c->log != k->x->log || k->c->end != k->x->log->leo) look(k);
    for (uint32_t id = 0; id <= r->model.count; id++) {
        if (n == KW_COUNTOF(a.guids) || (id == r->model.count && n > 0)) {
            if (is_ready(w, k)) ask(k, &a, n);
            n = 0;
        }
        if (id == r->model.count || r->model.records[id].topic != k->topic || r->model.records[id].guid1 != id + 1) continue;
        a.guids[n] = id;
        sim_guid_bytes(r->guids, id, a.ids + n++ * KB_GUID_SIZE);
    }
}

void sim_check_guids_final(struct sim_run *r) {
    if (!r->guids) return;
    for (int n = 0; n < r->node_count; n++)
        for (int t = 0; t < r->model.topic_count; t++)
            for (int i = 0; i < r->model.topics[t].partitions && i < SIM_GUID_PARTS && r->model.topics[t].guid; i++) {
                struct place k;
                struct kb_partition *x = r->nodes[n].life == SIM_UP ? sim_node_partition(&r->nodes[n], r->model.topics[t].name, i) : NULL;
                if (x && x->log && !x->log->poisoned && place_of(&r->nodes[n], x, &k)) check_index(&k);
            }
    sim_trace(&r->w, "ids: %llu holes known, %llu lookups, %llu with other payloads, %llu stored again", (unsigned long long)r->guids->holes,
              (unsigned long long)r->guids->lookups, (unsigned long long)r->guids->mismatches, (unsigned long long)r->guids->expired);
}
