/* check_compact.c - invariant 13: compaction keeps the last value of each key, at its offset, and a tombstone for its time; what was deleted does not
 * come back; of what it has been over each key is there once. And 2, 3, 4, 6, 10, 12, 14 of a log with holes.
 *
 * Called by compact_app.c for what is read, by the hooks of both worlds at starts and at the end. Calls scan, check_files; looks into the nodes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "alloc.h"
#include "compact.h"
#include "log/log_priv.h"
#include "node_priv.h"
#include "scan.h"

static struct sim_compact_record *at_offset(struct sim_compact *s, int partition, int64_t offset) {
    size_t i = (size_t)offset;
    return i < s->by_offset_count[partition] && s->by_offset[partition][i] ? &s->v[s->by_offset[partition][i] - 1] : NULL;
}

static uint32_t *slot(struct sim_compact *s, int partition, int64_t offset) {
    if (offset < 0 || offset > 10000000) abort();
    while ((size_t)offset >= s->by_offset_count[partition]) {
        s->by_offset[partition] = sim_grow(s->by_offset[partition], s->by_offset_count[partition], &s->by_offset_cap[partition], sizeof(uint32_t));
        s->by_offset[partition][s->by_offset_count[partition]++] = 0;
    }
    return &s->by_offset[partition][offset];
}

static bool same_key(const struct sim_compact_record *a, const struct sim_compact_record *b) {
    return a->partition == b->partition && a->key == b->key;
}

static int64_t place(const struct sim_compact_record *x) {
    return x->acked >= 0 ? x->acked : x->seen;
}

/* Its key was written again behind it, or that may be. */
static bool is_superseded(const struct sim_compact *s, const struct sim_compact_record *x, int64_t offset) {
    for (const struct sim_compact_record *y = x + 1; y < s->v + s->count; y++)
        if (same_key(x, y) && (place(y) > offset || place(y) == SIM_COMPACT_UNKNOWN)) return true;
    for (const struct sim_compact_record *y = s->v; y < x; y++) /* one that was long on its way */
        if (same_key(x, y) && (place(y) > offset || place(y) == SIM_COMPACT_UNKNOWN)) return true;
    return false;
}

static bool has_had_its_time(const struct sim_run *r, const struct sim_compact_record *x) {
    return x->tombstone && (!r->compact->steady_clocks || r->w.now_us - x->acked_us > r->compact->retention_ms * INT64_C(900));
}

/* ---- What is read ---- */

void sim_compact_content(struct sim_run *r, const char *where, int partition, int64_t offset, const struct kw_record_view *v, uint32_t *id) {
    struct sim_compact *s = r->compact;
    struct kw_in in;
    struct kw_header_view h;
    kw_in_init(&in, v->headers, v->headers_size);
    if (v->header_count != 1 || kw_record_header_next(&in, &h) != 1 || h.value.len != 4 || (*id = kw_load32(h.value.p)) >= s->count)
        sim_fail(&r->w, 10, "%s: " SIM_COMPACT_TOPIC "-%d offset %lld holds a record that nobody wrote", where, partition, (long long)offset);
    struct sim_compact_record *x = &s->v[*id];
    bool as_sent = v->key.len == 2 && v->key.p[0] == 'k' && v->key.p[1] == x->key && (v->value.len < 0) == x->tombstone && x->partition == partition;
    for (int32_t i = 0; as_sent && i < v->value.len; i++) as_sent = v->value.p[i] == 'v';
    if (!as_sent)
        sim_fail(&r->w, 10, "%s: " SIM_COMPACT_TOPIC "-%d offset %lld, record %u is not what was written", where, partition, (long long)offset, *id);
    if (x->acked == SIM_COMPACT_LOST || x->seen == SIM_COMPACT_LOST) return;
    if (place(x) >= 0 && place(x) != offset)
        sim_fail(&r->w, 4, "%s: " SIM_COMPACT_TOPIC "-%d: record %u is at offset %lld, and was at %lld", where, partition, *id, (long long)offset,
                 (long long)place(x));
    uint32_t *k = slot(s, partition, offset);
    if (*k && *k != *id + 1)
        sim_fail(&r->w, 2, "%s: " SIM_COMPACT_TOPIC "-%d offset %lld is record %u, and was record %u", where, partition, (long long)offset, *id, *k - 1);
    *k = *id + 1;
    x->seen = offset;
}

void sim_compact_acked(struct sim_run *r, uint32_t id, int64_t offset, bool stale) {
    struct sim_compact *s = r->compact;
    struct sim_compact_record *x = &s->v[id];
    if (x->acked == SIM_COMPACT_LOST || x->seen == SIM_COMPACT_LOST) return; /* the power went while the answer was on its way */
    if (stale && x->seen < 0 && !s->lossy[x->partition]) return; /* so it did, and what was found then did not have it: whose answer is it? */
    if (x->seen >= 0 && x->seen != offset)
        sim_fail(&r->w, 4, SIM_COMPACT_TOPIC "-%d: record %u is acknowledged at offset %lld, and was at %lld", x->partition, id, (long long)offset,
                 (long long)x->seen);
    x->acked = offset;
    x->acked_us = r->w.now_us;
    *slot(s, x->partition, offset) = id + 1;
}

void sim_compact_passed(struct sim_run *r, int partition, int64_t from, int64_t to) {
    struct sim_compact *s = r->compact;
    for (int64_t at = from; at < to; at++) {
        const struct sim_compact_record *x = at_offset(s, partition, at);
        if (!x || x->acked < 0 || is_superseded(s, x, at) || has_had_its_time(r, x)) continue;
        sim_fail(&r->w, 13, SIM_COMPACT_TOPIC "-%d: the log goes from offset %lld to %lld, and %lld is key %d's last record%s (number %d)", partition,
                 (long long)from - 1, (long long)to, (long long)at, x->key, x->tombstone ? ", a tombstone" : "", (int)(x - s->v));
    }
}

/* ---- A log as its files are ---- */

struct key_facts {
    int64_t newest, oldest; /* offsets that are there; -1 */
    int below;              /* how many below what compaction has been over */
};
struct look {
    struct sim_run *r;
    int partition;
    int64_t cleaned;
    struct key_facts keys[256];
};
static void one(void *ctx, const struct sim_batch *b, const struct kw_record_view *v) {
    struct look *k = ctx;
    uint32_t id;
    (void)b;
    sim_compact_content(k->r, "on disk", k->partition, v->offset, v, &id);
    struct key_facts *f = &k->keys[k->r->compact->v[id].key];
    if (f->oldest < 0) f->oldest = v->offset;
    f->newest = KW_MAX(f->newest, v->offset);
    f->below += v->offset < k->cleaned;
}

static void check_gaps(struct sim_world *w, const char *dir, const struct sim_scan *s) {
    int64_t next = 0;
    if (s->torn) sim_fail(w, 10, "%s: a torn or corrupt end", dir);
    for (size_t i = 0; i < s->count; i++) {
        const struct sim_batch *b = &s->v[i];
        if (b->h.base_offset < next || b->h.last_offset_delta < 0 || b->h.record_count > b->h.last_offset_delta + 1 ||
            b->h.base_offset < s->segments[b->segment].base || (b->segment + 1 < s->segment_count && b->last >= s->segments[b->segment + 1].base))
            sim_fail(w, 6, "%s: a batch of %d records from %lld to %lld behind offset %lld", dir, b->h.record_count, (long long)b->h.base_offset,
                     (long long)b->last, (long long)next - 1);
        next = b->last + 1;
    }
}

/* acked: all that was acknowledged must be in it. */
static void check_log(struct sim_run *r, struct sim_broker *b, const struct kb_partition *p, bool acked, bool cleaned) {
    struct sim_compact *s = r->compact;
    struct sim_host *turn = sim_alloc_turn(NULL);
    struct kw_compressor *c = sim_need(kw_compressor_new());
    struct sim_scan scan;
    struct look k = {.r = r, .partition = p->index, .cleaned = cleaned ? p->log->cleaned : 0};
    for (size_t i = 0; i < KW_COUNTOF(k.keys); i++) k.keys[i] = (struct key_facts){-1, -1, 0};
    sim_scan_log(b->disk, p->log->dir, &scan);
    check_gaps(&r->w, p->log->dir, &scan);
    for (size_t i = 0; i < scan.count; i++)
        if (!sim_scan_records(b->disk, &scan, &scan.v[i], c, one, &k))
            sim_fail(&r->w, 10, "%s: the batch at %lld does not decode", p->log->dir, (long long)scan.v[i].h.base_offset);
    if (p->log->leo != sim_scan_end(&scan))
        sim_fail(&r->w, 11, "%s: the log says that it ends at %lld, its files at %lld", p->log->dir, (long long)p->log->leo, (long long)sim_scan_end(&scan));
    for (int key = 0; key < SIM_COMPACT_KEYS; key++)
        if (k.keys[key].below > 1)
            sim_fail(&r->w, 13, "%s: key %d is there %d times below offset %lld, where compaction has been", p->log->dir, key, k.keys[key].below,
                     (long long)k.cleaned);
    for (size_t i = 0; i < s->count && acked; i++) {
        const struct sim_compact_record *x = &s->v[i];
        const struct key_facts *f = &k.keys[x->key];
        if (x->partition != p->index || x->acked < 0 || f->newest >= x->acked) continue;
        if (!has_had_its_time(r, x) && !is_superseded(s, x, x->acked))
            sim_fail(&r->w, 13, "%s on %s: key %d's last record (offset %lld, number %zu) is not there; its newest is at %lld", p->log->dir, b->host.name,
                     x->key, (long long)x->acked, i, (long long)f->newest);
        if (x->tombstone && f->newest >= 0)
            sim_fail(&r->w, 13, "%s on %s: key %d was deleted at offset %lld, and is back with offset %lld", p->log->dir, b->host.name, x->key,
                     (long long)x->acked, (long long)f->newest);
    }
    sim_scan_deinit(&scan);
    kw_compressor_free(c);
    (void)sim_alloc_turn(turn);
}

static struct kb_partition *partition_on(struct sim_broker *b, int index) {
    for (struct kb_partition *p = NULL; b->life == SIM_UP && (p = kb_partitions_next(b->node, p));)
        if (strcmp(p->topic, SIM_COMPACT_TOPIC) == 0 && p->index == index && p->log && p->state == KB_PART_ONLINE && !p->log->poisoned) return p;
    return NULL;
}

/* ---- Deaths and starts ---- */

void sim_check_compact_dead(struct sim_run *r, enum sim_death how) {
    if (!r->compact || how != SIM_DEATH_POWER) return;
    for (int i = 0; i < SIM_COMPACT_PARTS; i++) r->compact->lossy[i] = true;
    r->compact->losses += !r->model.flush_on_ack;
}

static void lose_from(struct sim_compact *s, int partition, int64_t from) {
    for (size_t i = 0; i < s->count; i++) {
        struct sim_compact_record *x = &s->v[i];
        if (x->partition != partition || (x->acked < from && x->seen < from)) continue;
        x->acked = x->seen = SIM_COMPACT_LOST;
    }
    for (size_t i = (size_t)from; i < s->by_offset_count[partition]; i++) s->by_offset[partition][i] = 0;
}

void sim_check_compact_ready(struct sim_run *r, struct sim_broker *b) {
    if (!r->compact) return;
    for (int i = 0; i < SIM_COMPACT_PARTS; i++) {
        const struct kb_partition *p = partition_on(b, i);
        if (!p || p->log->busy) continue;
        if (r->compact->lossy[i] && !r->model.flush_on_ack) lose_from(r->compact, i, p->log->leo);
        r->compact->lossy[i] = false; /* one that could not be read at this start tells at a later one what was lost */
        check_log(r, b, p, true, false);
    }
}

/* ---- The end ---- */

static bool at_work(struct sim_run *r) {
    for (int n = 0; n < r->node_count; n++)
        for (int i = 0; i < SIM_COMPACT_PARTS; i++) {
            const struct kb_partition *p = partition_on(&r->nodes[n], i);
            if (p && (p->log->busy || p->log->priv->compact || p->log->written < p->log->leo)) return true;
        }
    return false;
}

void sim_check_compact_final(struct sim_run *r) {
    struct sim_world *w = &r->w;
    if (!r->compact) return;
    for (int i = 0; i < 600 && at_work(r); i++) sim_run_until(w, w->now_us + 100 * SIM_MS);
    if (at_work(r)) sim_fail(w, 36, "compaction has not come to its end within 60 s");
    for (int i = 0; i < SIM_COMPACT_PARTS; i++) {
        int64_t end = 0;
        for (size_t k = 0; k < r->compact->count; k++)
            if (r->compact->v[k].partition == i) end = KW_MAX(end, r->compact->v[k].acked + 1);
        for (int n = 0; n < r->node_count; n++) {
            const struct kb_partition *p = partition_on(&r->nodes[n], i);
            if (!p) continue;
            if (p->log->cleaned > 0) sim_fire(w, SIM_F_COMPACTED);
            check_log(r, &r->nodes[n], p, p->log->leo >= end, !r->cluster);
            if (p->role == KB_PART_LEADS && p->log->leo < end)
                sim_fail(w, 1, SIM_COMPACT_TOPIC "-%d: its leader's log ends at %lld, and %lld were acknowledged", i, (long long)p->log->leo, (long long)end);
        }
    }
}

/* After a clean stop. */
void sim_check_compact_files(struct sim_run *r) {
    for (int n = 0; n < r->node_count && r->compact; n++)
        for (int i = 0; i < SIM_COMPACT_PARTS; i++) {
            struct sim_scan s;
            char dir[96];
            snprintf(dir, sizeof dir, SIM_DATA "/" SIM_COMPACT_TOPIC "-%d", i);
            if (r->nodes[n].life != SIM_DOWN) continue;
            sim_scan_log(r->nodes[n].disk, dir, &s);
            check_gaps(&r->w, dir, &s);
            sim_check_indexes(&r->w, r->nodes[n].disk, &s, 0);
            sim_scan_deinit(&s);
        }
}
