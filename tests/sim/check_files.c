/* check_files.c - one log against a scan of its files: invariants 6 (offsets without gap), 12 (indexes), 14 (producer state equals a replay).
 *
 * Called by check_disk.c for one node, by check_copies.c and check_cluster.c for every copy.
 */
#include <stdio.h>
#include <stdlib.h>

#include "log/index.h"
#include "log/log.h"
#include "log/pid_state.h"
#include "scan.h"

/* ---- 6 ---- */

void sim_check_gaps(struct sim_world *w, const char *dir, const struct sim_scan *s, bool holes) {
    int64_t next = s->segment_count ? s->segments[0].base : 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct sim_batch *b = &s->v[i];
        if (i == 0 || s->v[i - 1].segment != b->segment) {
            if (s->segments[b->segment].base != b->h.base_offset)
                sim_fail(w, 6, "%s: the segment of offset %lld begins with offset %lld", dir, (long long)s->segments[b->segment].base,
                         (long long)b->h.base_offset);
        }
        if (b->h.base_offset != next || b->h.last_offset_delta < 0 || b->h.record_count > b->h.last_offset_delta + 1 ||
            (!holes && b->h.record_count != b->h.last_offset_delta + 1))
            sim_fail(w, 6, "%s: a batch of %d records from %lld to %lld, expected from %lld", dir, b->h.record_count,
                     (long long)b->h.base_offset, (long long)b->last, (long long)next);
        next = b->last + 1;
    }
}

/* ---- 12 ---- */

static void check_offset_index(struct sim_world *w, struct sim_disk *d, const struct sim_scan *s, size_t segment) {
    char path[160];
    size_t n;
    snprintf(path, sizeof path, "%s.index", s->segments[segment].path);
    const uint8_t *p = sim_disk_peek(d, path, &n);
    int64_t base = s->segments[segment].base, last = -1;
    for (size_t i = 0; p && i + KB_OFFSET_ENTRY <= n; i += KB_OFFSET_ENTRY) {
        int64_t offset = base + (int64_t)kw_load32(p + i), position = (int64_t)kw_load32(p + i + 4);
        if (i > 0 && offset == base && position == 0) break; /* room that was set aside */
        bool found = false;
        for (size_t k = 0; k < s->count && !found; k++)
            found = s->v[k].segment == segment && (int64_t)s->v[k].position == position && s->v[k].h.base_offset <= offset &&
                    offset <= s->v[k].last;
        if (!found || offset <= last)
            sim_fail(w, 12, "%s: entry %zu says offset %lld at position %lld, where the log has no such batch", path,
                     i / KB_OFFSET_ENTRY, (long long)offset, (long long)position);
        last = offset;
    }
}

struct time_facts {
    int64_t at, before; /* the newest time of the batch with that offset, and of all up to it */
};

/* What the files say of a segment's batches up to an offset; without the batch that ends before `unread`, if that is not 0. */
static struct time_facts times_up_to(const struct sim_scan *s, size_t segment, int64_t offset, int64_t unread) {
    struct time_facts f = {INT64_MIN, INT64_MIN};
    for (size_t k = 0; k < s->count && s->v[k].h.base_offset <= offset; k++) {
        if (s->v[k].segment != segment || s->v[k].h.record_count == 0) continue; /* one that compaction has emptied dates nothing */
        if (unread && s->v[k].last + 1 == unread) continue;
        f.before = KW_MAX(f.before, s->v[k].h.max_timestamp);
        if (s->v[k].last >= offset) f.at = s->v[k].h.max_timestamp;
    }
    return f;
}

static void check_time_index(struct sim_world *w, struct sim_disk *d, const struct sim_scan *s, size_t segment, int64_t unread) {
    char path[160];
    size_t n;
    snprintf(path, sizeof path, "%s.timeindex", s->segments[segment].path);
    const uint8_t *p = sim_disk_peek(d, path, &n);
    int64_t base = s->segments[segment].base, last_time = INT64_MIN, last = -1;
    for (size_t i = 0; p && i + KB_TIME_ENTRY <= n; i += KB_TIME_ENTRY) {
        int64_t time = (int64_t)kw_load64(p + i), offset = base + (int64_t)kw_load32(p + i + 8);
        if (i > 0 && time == 0 && offset == base) break;
        struct time_facts f = times_up_to(s, segment, offset, 0), without = times_up_to(s, segment, offset, unread);
        bool fits = (f.at == time && f.before <= time) || (unread && without.at == time && without.before <= time);
        if (!fits || time < last_time || offset < last)
            sim_fail(w, 12,
                     "%s: entry %zu says that offset %lld has time %lld and none before it a later one; the log says %lld and %lld", path,
                     i / KB_TIME_ENTRY, (long long)offset, (long long)time, (long long)f.at, (long long)f.before);
        last_time = time;
        last = offset;
    }
}

void sim_check_indexes(struct sim_world *w, struct sim_disk *d, const struct sim_scan *s, int64_t unread) {
    for (size_t i = 0; i < s->segment_count; i++) {
        check_offset_index(w, d, s, i);
        check_time_index(w, d, s, i, unread);
    }
}

/* ---- 14 ---- */

struct replayed {
    int64_t pid;
    int16_t epoch;
    int count;
    struct kb_pid_batch v[KB_PID_BATCHES];
};

static void replay_one(struct replayed *e, const struct sim_batch *b) {
    const struct kw_batch_header *h = &b->h;
    if (e->epoch != h->producer_epoch) {
        e->epoch = h->producer_epoch;
        e->count = 0;
    }
    if (e->count == KB_PID_BATCHES) memmove(e->v, e->v + 1, (size_t)--e->count * sizeof *e->v);
    e->v[e->count++] =
        (struct kb_pid_batch){h->base_sequence, (int32_t)(((uint32_t)h->base_sequence + (uint32_t)h->last_offset_delta) & 0x7fffffff),
                              h->base_offset, b->last, h->max_timestamp, h->record_count <= h->last_offset_delta};
}

static size_t replay_all(struct replayed **v, const struct sim_scan *s, int64_t without) {
    size_t n = 0, cap = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct kw_batch_header *h = &s->v[i].h;
        if (h->producer_id < 0 || h->base_sequence < 0 || s->v[i].last + 1 == without) continue;
        size_t k = 0;
        while (k < n && (*v)[k].pid != h->producer_id) k++;
        if (k == n) {
            *v = sim_grow(*v, n, &cap, sizeof **v);
            (*v)[n++] = (struct replayed){.pid = h->producer_id, .epoch = h->producer_epoch};
        }
        replay_one(&(*v)[k], &s->v[i]);
    }
    return n;
}

static bool is_as(const struct kb_pid_entry *e, const struct replayed *x) {
    bool ok = e->epoch == x->epoch && e->batch_count == x->count;
    for (int i = 0; ok && i < x->count; i++)
        ok = e->batches[i].first_seq == x->v[i].first_seq && e->batches[i].last_seq == x->v[i].last_seq &&
             e->batches[i].first_offset == x->v[i].first_offset && e->batches[i].last_offset == x->v[i].last_offset;
    return ok;
}

/* The producer as it is without the batch that could not be read. */
static bool is_known_without(const struct kb_log *log, const struct sim_scan *s, int64_t unread, int64_t pid) {
    struct replayed *v = NULL;
    size_t n = replay_all(&v, s, unread), k = 0;
    const struct kb_pid_entry *e = kb_pid_get(log->pids, pid);
    while (k < n && v[k].pid != pid) k++;
    bool ok = k < n ? e && is_as(e, &v[k]) : !e;
    free(v);
    return ok;
}

void sim_check_pids(struct sim_world *w, const struct kb_log *log, const struct sim_scan *s, int64_t unread) {
    struct replayed *v = NULL;
    if (log->start > 0 || (s->segment_count && s->segments[0].base > 0)) return; /* the beginning is gone, and its producers may be */
    size_t n = replay_all(&v, s, 0), absent = 0;
    const char *dir = log->dir;
    for (size_t k = 0; k < n; k++) {
        const struct kb_pid_entry *e = kb_pid_get(log->pids, v[k].pid);
        absent += !e;
        if (e && is_as(e, &v[k])) continue;
        if (unread > 0 && is_known_without(log, s, unread, v[k].pid)) continue;
        if (!e) sim_fail(w, 14, "%s does not know producer %lld, its log does", dir, (long long)v[k].pid);
        if (e->epoch != v[k].epoch || e->batch_count != v[k].count)
            sim_fail(w, 14, "%s, producer %lld: epoch %d and %d batches, its log says %d and %d", dir, (long long)v[k].pid, e->epoch,
                     e->batch_count, v[k].epoch, v[k].count);
        for (int i = 0; i < v[k].count; i++) {
            const struct kb_pid_batch *a = &e->batches[i], *x = &v[k].v[i];
            if (a->first_seq != x->first_seq || a->last_seq != x->last_seq || a->first_offset != x->first_offset ||
                a->last_offset != x->last_offset)
                sim_fail(w, 14, "%s, producer %lld: batch %d is sequence %d to %d at %lld, in its log %d to %d at %lld", dir,
                         (long long)v[k].pid, i, a->first_seq, a->last_seq, (long long)a->first_offset, x->first_seq, x->last_seq,
                         (long long)x->first_offset);
        }
    }
    if (log->pids->by_pid.count != n - absent)
        sim_fail(w, 14, "%s knows %zu producers, its log has %zu", dir, log->pids->by_pid.count, n - absent);
    free(v);
}
