/* guid_model.c - see guid.h: which topics look ids up, what the ids are, who has sent which, and what a report says of them (invariants 1 and 4). */
#include "guid.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Drawing ---- */

static void add_config(struct sim_run *r, int topic, const char *name, const char *value) {
    const char **c = r->configs[topic];
    size_t n = 0;
    while (c[n] && strcmp(c[n], name) != 0) n += 2;
    c[n] = name;
    c[n + 1] = value;
}

/* Records are kept as long as their ids are known, and no longer; or by size, and then ids go with their records. */
static void draw_retention(struct sim_run *r, struct kw_rng *own, int topic, int64_t window_ms) {
    struct sim_guids *g = r->guids;
    if (g->retention == SIM_KEEP_ALL) return;
    if (g->retention == SIM_KEEP_WINDOW) snprintf(g->keep, sizeof g->keep, "%lld", (long long)(window_ms + (int64_t)kw_rng_below(own, 2000)));
    else snprintf(g->keep, sizeof g->keep, "%d", (int)(200000 + kw_rng_below(own, 600000)));
    add_config(r, topic, g->retention == SIM_KEEP_WINDOW ? "retention.ms" : "retention.bytes", g->keep);
    add_config(r, topic, "segment.bytes", "30000");
}

void sim_guids_draw(struct sim_run *r) {
    struct kw_rng own;
    kw_rng_init(&own, r->w.seed ^ 0x67756964u);
    if (kw_rng_below(&own, 3)) return;
    struct sim_guids *g = r->guids = sim_need(calloc(1, sizeof *g));
    struct sim_model *m = &r->model;
    m->guids = g;
    g->run = r;
    g->compressor = sim_need(kw_compressor_new());
    g->shape = (int)kw_rng_below(&own, 3);
    g->twins = 2 + (uint32_t)kw_rng_below(&own, 5);
    g->damage_ppm = kw_rng_below(&own, 2) ? 1 + (uint32_t)kw_rng_below(&own, 900000) : 0;
    g->retention = kw_rng_below(&own, 2) ? SIM_KEEP_ALL : kw_rng_below(&own, 3) ? SIM_KEEP_WINDOW : SIM_KEEP_BYTES;
    uint64_t long_one = kw_rng_below(&own, 3);
    int64_t window_ms = long_one ? (long_one == 1 ? 3600000 : (int64_t)(20000 + kw_rng_below(&own, 100000))) : (int64_t)(2000 + kw_rng_below(&own, 15000));
    if (window_ms > 60000 && g->retention == SIM_KEEP_WINDOW) window_ms = (int64_t)(3000 + kw_rng_below(&own, 20000)); /* so that it comes to it */
    snprintf(g->window, sizeof g->window, "%lld", (long long)window_ms);
    snprintf(g->memory, sizeof g->memory, "%d", (int)(kw_rng_below(&own, 2) ? 64 << 20 : 2000 + kw_rng_below(&own, 200000)));
    int first = (int)kw_rng_below(&own, (uint64_t)m->topic_count), second = kw_rng_below(&own, 2) ? (first + 1) % m->topic_count : first;
    for (int t = 0; t < m->topic_count; t++) {
        if (t != first && t != second) continue;
        m->topics[t].guid = true;
        m->topics[t].window_us = window_ms * 1000;
        add_config(r, t, "message.guid.dedup", "true");
        add_config(r, t, "message.guid.window.ms", g->window);
        draw_retention(r, &own, t, window_ms);
    }
    sim_guids_draw_changes(g);
}

void sim_guids_broker(struct sim_run *r, struct sim_broker *b) {
    if (!r->guids) return;
    sim_broker_set(b, "guid.index.memory.bytes", r->guids->memory);
    if (r->guids->retention != SIM_KEEP_ALL) sim_broker_set(b, "log.retention.check.interval.ms", "700"); /* between two deaths, too */
}

static void copy_deinit(struct sim_guid_copy *c) {
    free(c->v);
    free(c->e);
    free(c->newest);
    free(c->marks);
    free(c->spans);
}

void sim_guids_deinit(struct sim_run *r) {
    struct sim_guids *g = r->guids;
    if (!g) return;
    for (int t = 0; t < SIM_TOPICS_MAX; t++)
        for (int p = 0; p < SIM_GUID_PARTS; p++) {
            for (int n = 0; n < SIM_NODES_MAX; n++) copy_deinit(&g->parts[t][p].copies[n]);
            free(g->parts[t][p].births);
            free(g->parts[t][p].offsets);
        }
    free(g->sent);
    kw_compressor_free(g->compressor);
    free(g);
    r->guids = r->model.guids = NULL;
}

/* ---- Ids ---- */

/* By time as a client makes them, by chance, or by time but for a few that are from the far future. */
static uint64_t head_of(const struct sim_guids *g, uint32_t id) {
    uint64_t mixed = ((uint64_t)id + 1) * 0xd6e8feb86659fd93u;
    mixed ^= mixed >> 32;
    if (g->shape == 1) return mixed * 0xd6e8feb86659fd93u;
    if (g->shape == 2 && mixed % 50 == 0) return 0xffffffff00007000u | (mixed & 0xfff);
    return (UINT64_C(1700000000000) + id * 3u) << 16 | 0x7000u | (mixed & 0xfff);
}

void sim_guid_bytes(const struct sim_guids *g, uint32_t id, uint8_t out[16]) {
    kw_store64(out, head_of(g, id));
    kw_store64(out + 8, (uint64_t)id * 0x9e3779b97f4a7c15u);
}

uint32_t sim_guid_number(const struct sim_guids *g, const uint8_t in[16]) {
    uint64_t v = kw_load64(in + 8) * 0xf1de83e19937733du; /* the inverse of the factor above */
    if (v >= g->run->model.count || kw_load64(in) != head_of(g, (uint32_t)v)) return SIM_GUID_NONE;
    return (uint32_t)v;
}

uint32_t sim_guid_of(const struct sim_guids *g, const uint8_t *headers, size_t headers_size) {
    struct kw_in in;
    struct kw_header_view h;
    kw_in_init(&in, headers, headers_size);
    while (kw_record_header_next(&in, &h) == 1)
        if (kw_str_eq(h.key, kw_str_of("guid")) && h.value.len == 16) return sim_guid_number(g, h.value.p);
    return SIM_GUID_NONE;
}

void sim_content_of(const struct sim_model *m, uint32_t id, struct sim_content *c) {
    const struct sim_record *rec = &m->records[id];
    if (!rec->guid1) {
        sim_content_make(m->w->seed, id, rec->old, c);
        return;
    }
    sim_content_make(m->w->seed, rec->content, false, c);
    sim_guid_bytes(m->guids, rec->guid1 - 1, c->guid);
    c->headers[c->header_count++] = (struct kw_header_view){kw_str_of("guid"), {c->guid, 16}};
}

/* ---- Who sends what ---- */

bool sim_guid_twin(struct sim_model *m, int topic, int partition, uint32_t *of) {
    struct sim_guids *g = m->guids;
    if (!g || m->count == 0 || sim_below(m->w, g->twins)) return false;
    size_t back = sim_below(m->w, 2) ? KW_MIN(m->count, (size_t)150) : m->count; /* of late, or any */
    for (int i = 0; i < 40; i++) {
        uint32_t id = (uint32_t)(m->count - 1 - sim_below(m->w, back));
        const struct sim_record *rec = &m->records[id];
        if (!rec->guid1 || (topic >= 0 && rec->topic != topic) || (partition >= 0 && rec->partition != partition)) continue;
        *of = id;
        return true;
    }
    return false;
}

void sim_guid_give(struct sim_model *m, uint32_t id) {
    struct sim_record *rec = &m->records[id];
    if (!m->guids || !m->topics[rec->topic].guid || sim_below(m->w, 8) == 0) return;
    rec->guid1 = id + 1;
    rec->content = id;
}

void sim_guid_give_twin(struct sim_model *m, uint32_t id, uint32_t of, bool other_payload) {
    struct sim_record *rec = &m->records[id], *was = &m->records[of];
    rec->guid1 = was->guid1;
    rec->content = other_payload ? id : was->content;
    rec->shared = true;
    sim_fire(m->w, other_payload ? SIM_F_GUID_OTHER : SIM_F_GUID_TWIN);
    m->records[rec->guid1 - 1].shared = m->records[rec->content].shared = was->shared = true;
    if (other_payload) return;
    rec->has_timestamp = m->records[rec->content].has_timestamp;
    rec->timestamp_ms = m->records[rec->content].timestamp_ms;
}

bool sim_guid_same(const struct sim_model *m, uint32_t a, uint32_t b) {
    return a == b || (m->records[a].guid1 && m->records[a].guid1 == m->records[b].guid1);
}

static bool same(struct kw_bytes a, struct kw_bytes b) { return a.len == b.len && (a.len <= 0 || memcmp(a.p, b.p, (size_t)a.len) == 0); }

bool sim_guid_payload_same(const struct sim_model *m, uint32_t a, uint32_t b) {
    static struct sim_content x, y;
    if (a == b || (m->records[a].guid1 && m->records[b].guid1 && m->records[a].content == m->records[b].content)) return true;
    sim_content_of(m, a, &x);
    sim_content_of(m, b, &y);
    return same(x.key, y.key) && same(x.value, y.value);
}

/* The batch that stands, or stood, at an offset, of those that were committed; of one node alone in its log. */
static const struct sim_guid_birth *batch_at(const struct sim_guids *g, int topic, int partition, int64_t offset) {
    const struct sim_guid_part *p = &g->parts[topic][partition];
    const struct sim_cluster *c = g->run->cluster;
    const struct sim_guid_copy *one = &p->copies[0];
    size_t lo = 0, hi = c ? c->parts[topic][partition].committed.count : one->count;
    while (lo < hi) { /* the first that ends at or behind it */
        size_t mid = (lo + hi) / 2;
        int64_t last = c ? c->parts[topic][partition].committed.v[mid].last : one->v[mid].last;
        if (last < offset) lo = mid + 1;
        else hi = mid;
    }
    if (lo == (c ? c->parts[topic][partition].committed.count : one->count)) return NULL;
    const struct sim_batch_id *x = c ? &c->parts[topic][partition].committed.v[lo] : NULL;
    return sim_guid_birth(p, x ? x->base : one->v[lo].base, x ? x->epoch : one->v[lo].epoch, x ? x->crc : one->v[lo].crc);
}

bool sim_guid_holes(const struct sim_model *m, int topic, int partition, int64_t from, int64_t to) {
    if (!m->guids || !m->topics[topic].guid || partition >= SIM_GUID_PARTS) return false;
    const struct sim_guid_part *p = &m->guids->parts[topic][partition];
    for (int64_t i = from; i < to; i++) {
        const struct sim_guid_birth *b = batch_at(m->guids, topic, partition, i);
        if (!b || b->base > i) return false;
        for (size_t k = b->first; k < b->first + b->count; k++)
            if (p->offsets[k] == i) return false;
    }
    return true;
}

size_t sim_guid_next(const struct sim_model *m, int topic, int partition, int64_t from, int64_t to) {
    if (!m->guids || !m->topics[topic].guid || partition >= SIM_GUID_PARTS) return 0;
    for (int64_t i = from; i < to; i++) {
        const struct sim_guid_birth *b = batch_at(m->guids, topic, partition, i);
        if (b && b->base <= i && !sim_guid_holes(m, topic, partition, i, i + 1)) return b->size + KW_BATCH_HEADER_SIZE;
    }
    return 0;
}

struct sim_guid_birth *sim_guid_birth(const struct sim_guid_part *p, int64_t base, int32_t epoch, uint32_t crc) {
    for (size_t i = p->birth_count; i-- > 0;) /* mostly it is one of the last */
        if (p->births[i].base == base && p->births[i].epoch == epoch && p->births[i].crc == crc) return &p->births[i];
    return NULL;
}

struct sim_guid_sent *sim_guid_sent_new(struct sim_guids *g) {
    g->sent = sim_grow(g->sent, g->sent_count, &g->sent_cap, sizeof *g->sent);
    struct sim_guid_sent *s = &g->sent[g->sent_count++];
    memset(s, 0, sizeof *s);
    return s;
}

/* ---- What reports say ---- */

static bool is_open(const struct sim_model *m, const struct sim_record *rec, const struct sim_log *l) {
    return !l || m->topics[rec->topic].churned || l->tainted || (m->replicated && m->producers[rec->producer].acks == 1);
}

void sim_guid_reported(struct sim_model *m, uint32_t id, const kc_report *r) {
    struct sim_record *rec = &m->records[id];
    const struct sim_log *l = sim_model_log(m, rec->topic, rec->partition);
    if (is_open(m, rec, l) || sim_log_lost(m, l, r->offset, rec)) return;
    if (m->producers[rec->producer].acks == -1 && r->offset >= l->hw_max)
        sim_fail(m->w, 1, "record %u was acknowledged (acks=-1) at %d-%d offset %lld%s, and the high watermark has never been above %lld", id, rec->topic,
                 rec->partition, (long long)r->offset, r->flags & KC_REPORT_DUPLICATE ? " as a duplicate" : "", (long long)l->hw_max);
    if ((size_t)r->offset >= l->count || !l->slots[r->offset].id1) return;
    uint32_t there = l->slots[r->offset].id1 - 1;
    if (!sim_guid_same(m, id, there))
        sim_fail(m->w, 4, "record %u (id %u) was acknowledged at %d-%d offset %lld%s, where record %u was read", id, rec->guid1 - 1, rec->topic,
                 rec->partition, (long long)r->offset, r->flags & KC_REPORT_DUPLICATE ? " as a duplicate" : "", there);
    if (!(r->flags & KC_REPORT_DEDUPED)) return;
    bool other = !sim_guid_payload_same(m, id, there), says_other = r->flags & KC_REPORT_DUPLICATE && r->flags & KC_REPORT_OTHER_PAYLOAD;
    m->guids->mismatches += other;
    if (other != says_other)
        sim_fail(m->w, 4, "record %u (id %u) was acknowledged at %d-%d offset %lld with flags %u, where record %u stands, whose payload is %s", id,
                 rec->guid1 - 1, rec->topic, rec->partition, (long long)r->offset, (unsigned)r->flags, there, other ? "another" : "the same");
}

/* Somewhere in the log, if its offset is not known. */
static bool is_there(const struct sim_model *m, const struct sim_log *l, uint32_t id) {
    for (size_t i = 0; i < l->count; i++)
        if (l->slots[i].id1 && sim_guid_same(m, id, l->slots[i].id1 - 1)) return true;
    return false;
}

void sim_guid_acked(struct sim_model *m, uint32_t id) {
    const struct sim_record *rec = &m->records[id];
    const struct sim_log *l = sim_model_log(m, rec->topic, rec->partition);
    int64_t at = rec->offset;
    if (is_open(m, rec, l) || m->producers[rec->producer].acks == 0) return;
    if (at >= 0 ? at < l->start || sim_log_lost(m, l, at, rec) : l->start > 0 || l->loss_count > 0) return; /* deleted; or the power took it */
    if (at < 0) {
        if (!is_there(m, l, id))
            sim_fail(m->w, 1, "record %u (id %u) was acknowledged to %d-%d as a duplicate, and its id is nowhere", id, rec->guid1 - 1, rec->topic,
                     rec->partition);
        return;
    }
    uint32_t there1 = (size_t)at < l->count ? l->slots[at].id1 : 0;
    if (!there1)
        sim_fail(m->w, 1, "record %u (id %u) was acknowledged (acks=%d) at %d-%d offset %lld, and nothing is there", id, rec->guid1 - 1,
                 m->producers[rec->producer].acks, rec->topic, rec->partition, (long long)at);
    if (!sim_guid_same(m, id, there1 - 1))
        sim_fail(m->w, 4, "record %u (id %u) was acknowledged at %d-%d offset %lld, where record %u is", id, rec->guid1 - 1, rec->topic, rec->partition,
                 (long long)at, there1 - 1);
}
