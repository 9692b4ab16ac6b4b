/* recover.c - what a partition's folder holds after any stop. See recover.h.
 *
 * A batch that does not hold together above the recovery point is a torn write: the log ends before it. Below it, those bytes were synced once:
 * they are rot, so they stay where they are, unreadable, and what follows stays readable. So they do in a log whose starts sync all that they
 * find (flush.on.ack, metadata), when an epoch begins behind them. Base offsets must ascend over the whole log (BL-01).
 *
 * A batch's offset is not under its checksum, and gaps are legal: compaction leaves them, here and in what a follower is sent. So one offset that is too high
 * is told by what is around it, or not at all: a lower one behind it, be it past damage; the next segment's base; and the recovery point, which was the
 * log's end once, so that no gap reaches over it. Below it a gap was synced as it is. Above it nothing vouches for one. A single replica keeps it: it may be
 * compaction's, and nobody else has what is behind it. Where others have all of it (enum kb_others), a log that ends above such a gap must neither lead nor
 * count: its start has the controller told first, and cuts it off. At the worst what was right is fetched once more. The same goes for
 * damage to what was synced: in sync, this replica could come to lead and not serve it.
 *
 * A compacted log may not be cut far back so: of a key whose deletion the leader has forgotten meanwhile, what lies below would be back. There gaps are
 * doubted in the last segment alone, where compaction has not been, above a recovery point that is known, and damage to what was synced is kept.
 */
#include "recover.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void kb_recover_init(struct kb_recover *r) {
    memset(r, 0, sizeof(*r));
    kb_epochs_init(&r->epochs);
    kb_pid_state_init(&r->pids);
    kw_out_init(&r->notes);
    r->snapshot_kept = -1;
    r->last_pid_offset = -1;
}

void kb_recover_deinit(struct kb_recover *r) {
    for (size_t i = 0; i < r->seg_count; i++) kb_facts_deinit(&r->segs[i].facts);
    kw_free(r->segs);
    kw_free(r->bases);
    kw_free(r->snapshots);
    kb_epochs_deinit(&r->epochs);
    kb_pid_state_deinit(&r->pids);
    kw_out_deinit(&r->notes);
}

void kb_recover_note(struct kb_recover *r, enum kb_level level, const char *fmt, ...) {
    char b[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(b, sizeof(b), fmt, ap);
    va_end(ap);
    if (n < 0 || r->notes.err || r->notes.len > (32 << 10)) return; /* a line less when memory is short */
    kw_out_i8(&r->notes, (int8_t)level);
    kw_out_bytes(&r->notes, b, strlen(b) + 1);
}

char *kb_recover_path(const struct kb_recover *r, int64_t base, const char *suffix) {
    size_t n = strlen(r->dir) + 24 + strlen(suffix);
    char *p = kw_malloc(n);
    if (p) snprintf(p, n, "%s/%020" PRId64 "%s", r->dir, base, suffix);
    return p;
}

static kw_err insert_base(struct kb_recover *r, size_t at, int64_t base) {
    if (r->base_count == r->base_cap) {
        size_t cap = r->base_cap ? r->base_cap * 2 : 16;
        int64_t *v = kw_realloc(r->bases, cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        r->bases = v;
        r->base_cap = cap;
    }
    memmove(r->bases + at + 1, r->bases + at, (r->base_count - at) * sizeof(*r->bases));
    r->bases[at] = base;
    r->base_count++;
    return KW_OK;
}

static kw_err fs_err(enum kb_disk_err e) { return e == KB_DISK_OK ? KW_OK : e == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO; }

/* ---- A segment that is believed ---- */

/* The last entry of an index file, if its size makes sense. found false: empty or all zeroes. */
static kw_err last_entry(struct kb_recover *r, int64_t base, const char *suffix, size_t entry, uint8_t *e, bool *found, bool *sane) {
    char *path = kb_recover_path(r, base, suffix);
    if (!path) return KW_ENOMEM;
    void *f;
    int64_t size;
    *found = false;
    *sane = false;
    enum kb_disk_err err = r->fs->ops->open(r->fs, path, 0, &f, &size);
    kw_free(path);
    if (err) return err == KB_DISK_ENOMEM ? KW_ENOMEM : KW_OK;
    if (size % (int64_t)entry == 0) {
        size_t got = 0;
        *sane = true;
        if (size && (r->fs->ops->read(r->fs, f, size - (int64_t)entry, e, entry, &got) || got != entry)) *sane = false;
        for (size_t i = 0; size && i < entry; i++) *found = *found || e[i];
        if (size && !*found) *sane = false; /* a preallocated file that was never trimmed */
    }
    r->fs->ops->close(r->fs, f);
    return KW_OK;
}

#define INDEX_CUT (1 << 20) /* an index without an entry for so long is not whole; less only costs a longer scan (other index.interval.bytes) */

/* Cheap checks instead of a scan: the last index entry names a batch that stands there, the batches from it on reach exactly to the end of the
 * file, they are not more than an interval's worth, and end at most at that offset where there are gaps among them. *ok false: scan it. */
static kw_err believe(struct kb_recover *r, struct kb_found *g, int64_t base, int64_t end_max, bool *ok) {
    uint8_t oe[KB_OFFSET_ENTRY], te[KB_TIME_ENTRY];
    bool has_offset, has_time, sane, times_sane, missing;
    *ok = false;
    kw_err err = last_entry(r, base, ".index", sizeof(oe), oe, &has_offset, &sane);
    if (!err) err = last_entry(r, base, ".timeindex", sizeof(te), te, &has_time, &times_sane);
    if (err || !sane || !times_sane) return err;
    char *path = kb_recover_path(r, base, ".log");
    struct kb_scan s;
    err = path ? kb_scan_open(&s, r->fs, path, true, &missing) : KW_ENOMEM;
    kw_free(path);
    if (err) return err;
    struct kb_facts *f = &g->facts;
    kb_facts_init(f, base, INT32_MAX); /* no index from this walk */
    int64_t pos = has_offset ? (int64_t)kw_load32(oe + 4) : 0, want = has_offset ? base + (int64_t)kw_load32(oe) : -1, from = pos, since = 0;
    bool good = pos == 0 || pos < s.size, gaps = false;
    struct kb_entry e = {0};
    while (good && !err && pos < s.size) {
        if (since > r->interval && (!has_offset || since > INDEX_CUT)) good = false; /* more entries were due: it was cut */
        if (good) err = kb_scan_entry(&s, pos, false, &e);
        good = good && !err && e.base >= f->end && (pos > from || want < 0 || e.last == want) && e.last - base <= INT32_MAX;
        if (!good) break;
        gaps = gaps || (e.base > f->end && (pos > from || pos == 0));
        if ((err = kb_facts_add(f, &e, pos))) break;
        pos += e.size;
        since += e.size;
    }
    if (err == KW_EDECODE) err = KW_OK, good = false;
    good = good && !err && (!gaps || f->end <= end_max) && (has_time || f->max_timestamp < 0);
    if (good && has_time) { /* a time entry of a later time or offset than the segment has is not its own */
        int64_t t = (int64_t)kw_load64(te), o = base + (int64_t)kw_load32(te + 8);
        good = o < f->end && t >= 0 && (f->max_timestamp <= t || f->max_timestamp_offset > o); /* nor is a batch before it with a later one */
        if (t > f->max_timestamp) f->max_timestamp = t, f->max_timestamp_offset = o;
    }
    if (good && s.size) { /* rolling by time counts from the first batch */
        if ((err = kb_scan_entry(&s, 0, false, &e)) == KW_OK) f->first_timestamp = e.max_timestamp;
        else if (err == KW_EDECODE) err = KW_OK, good = false;
    }
    f->size = s.size;
    f->interval = r->interval;
    f->since_index = since;
    f->dense = false;
    f->batch_size_max = INT64_MAX;
    kb_scan_close(&s);
    if (err || !good) kb_facts_deinit(f);
    *ok = good && !err;
    return err;
}

static kw_err read_index(struct kb_recover *r, int64_t base, const char *suffix, struct kb_index *x) {
    char *path = kb_recover_path(r, base, suffix);
    bool missing;
    uint8_t *p;
    size_t n;
    kw_err err = path ? kb_fs_read_file(r->fs, path, 64 << 20, &p, &n, &missing) : KW_ENOMEM;
    kw_free(path);
    if (err) return err;
    kb_index_deinit(x);
    *x = (struct kb_index){p, n, KW_MAX(n, 1)};
    return KW_OK;
}

/* ---- A segment that is scanned ---- */

struct walk {
    struct kb_recover *r;
    struct kb_found *g;
    struct kb_scan scan;
    int64_t pos, checked_from;
    int64_t vouched; /* offsets below were synced once: nothing of them is cut */
    int64_t limit;   /* the next segment's base; INT64_MAX: this is the last */
    bool resynced;   /* what is at pos follows damage */
    int64_t ordered_to, base_behind; /* whole batches in order up to there; the next whole one behind it, INT64_MAX: there is none (look_ahead) */
    bool unvouched;  /* what is at pos may be right, and nothing vouches for the gap in front of it */
    bool cut;        /* the log ends at pos */
    bool all_there;  /* what is wrong at pos has all of its bytes */
    int64_t split;   /* the segment ends at pos, another begins there with this base; -1 */
    const char *why;
};

static void close_range(struct walk *w) {
    struct kb_found *g = w->g;
    if (w->pos > w->checked_from && g->checked_count < KB_FOUND_RANGES_MAX) { /* what finds no room is checked again when read */
        g->checked[g->checked_count][0] = w->checked_from;
        g->checked[g->checked_count++][1] = w->pos;
    }
}

/* The next place from `from` on where a whole batch of this log stands; the file's size when there is none. */
static kw_err resync(struct walk *w, int64_t from, int64_t *at, struct kb_entry *e) {
    while (from < w->scan.size) {
        const uint8_t *p;
        size_t n;
        kw_err err = kb_scan_bytes(&w->scan, from, 4096, &p, &n);
        if (err) return err;
        n = KW_MIN(n, 4096);
        for (size_t i = 0; i + KB_ENTRY_PEEK <= n; i++) {
            if (p[i] || p[i + KW_BATCH_MAGIC] > 2 || kb_entry_parse(p + i, n - i, e)) continue;
            if (e->base < w->r->expected || e->last - w->g->facts.base > INT32_MAX || e->size > w->scan.size - from - (int64_t)i) continue;
            if (e->last >= w->limit) continue;
            err = kb_scan_entry(&w->scan, from + (int64_t)i, true, e);
            if (err && err != KW_ECRC && err != KW_EDECODE) return err;
            if (!err) {
                *at = from + (int64_t)i;
                return KW_OK;
            }
            if ((err = kb_scan_bytes(&w->scan, from, 4096, &p, &n))) return err;
            n = KW_MIN(n, 4096);
        }
        if (n <= KB_ENTRY_PEEK) break;
        from += (int64_t)n - KB_ENTRY_PEEK + 1;
    }
    *at = w->scan.size;
    return KW_OK;
}

/* A quorum's LeaderChange record: the first of its epoch. */
static kw_err leader_change(struct walk *w, int64_t at, const struct kb_entry *e, bool *yes) {
    const uint8_t *p;
    size_t n;
    struct kw_batch_header h;
    struct kw_record_iter it;
    struct kw_record_view v;
    *yes = false;
    if (!(e->attributes & KW_ATTR_CONTROL)) return KW_OK;
    kw_err err = kb_scan_bytes(&w->scan, at, (size_t)e->size, &p, &n);
    if (err || n < (size_t)e->size || kw_batch_parse(p, n, &h)) return err;
    kw_record_iter_init(&it, &h, p + KW_BATCH_HEADER_SIZE, (size_t)e->size - KW_BATCH_HEADER_SIZE);
    *yes = kw_record_next(&it, &v) == 1 && v.key.len >= 4 && kw_load16(v.key.p + 2) == 2;
    return KW_OK;
}

/* An epoch begins here: a LeaderChange, or a batch of a later epoch than one in front of it (the smallest of those is *first). */
static kw_err begins_epoch(struct walk *w, int64_t at, const struct kb_entry *e, int32_t *first, bool *yes) {
    kw_err err = leader_change(w, at, e, yes);
    if (e->epoch > *first) *yes = true;
    *first = KW_MIN(*first, e->epoch);
    return err;
}

/* The same of the segments behind w's. */
static kw_err begins_behind(struct walk *w, int32_t *first, bool *yes) {
    struct kb_recover *r = w->r;
    kw_err err = KW_OK;
    for (size_t i = 0; i < r->base_count && !err && !*yes; i++) {
        if (r->bases[i] < w->limit) continue;
        struct walk v = {.r = r};
        struct kb_entry e;
        bool missing;
        char *path = kb_recover_path(r, r->bases[i], ".log");
        err = path ? kb_scan_open(&v.scan, r->fs, path, false, &missing) : KW_ENOMEM;
        kw_free(path);
        if (err) break;
        for (int64_t at = 0; !err && !*yes && at < v.scan.size; at += e.size) {
            err = kb_scan_entry(&v.scan, at, true, &e);
            if (!err) err = begins_epoch(&v, at, &e, first, yes);
        }
        kb_scan_close(&v.scan);
        if (err == KW_ECRC || err == KW_EDECODE) err = KW_OK; /* seen when that one is read */
    }
    return err;
}

/* A start makes all that it finds durable before anything of its epoch is appended (r->sync). So what lies before the beginning of an epoch was
 * synced: damage there is no torn write. Both batches that tell of a beginning have to be whole and behind the damage: the first one may be of
 * the damaged one's epoch. That one is e, at `at`. */
static kw_err synced_once(struct walk *w, int64_t at, struct kb_entry *e, bool *yes) {
    int32_t first = INT32_MAX;
    kw_err err = KW_OK;
    *yes = false;
    while (!err && !*yes && at < w->scan.size) {
        err = begins_epoch(w, at, e, &first, yes);
        if (!err) err = resync(w, at + e->size, &at, e);
    }
    return err || *yes || w->limit == INT64_MAX ? err : begins_behind(w, &first, yes);
}

/* What a process that was killed leaves unfinished is the beginning of a batch, and nothing behind it. Anything else was whole, and may have been counted
 * as acknowledged. */
static kw_err was_whole(struct walk *w, bool *yes) {
    struct kb_entry e;
    const uint8_t *p;
    size_t n;
    int64_t next;
    *yes = w->all_there;
    if (*yes) return KW_OK;
    kw_err err = kb_scan_bytes(&w->scan, w->pos, KB_ENTRY_PEEK, &p, &n);
    if (err) return err;
    *yes = n >= KB_ENTRY_PEEK && kb_entry_parse(p, n, &e);
    if (*yes) return KW_OK;
    err = resync(w, w->pos + 1, &next, &e);
    *yes = !err && next < w->scan.size;
    return err;
}

/* Others may count on it. */
static kw_err tell_first(const struct walk *w) {
    kb_recover_note(w->r, KB_ERROR, "%s/%020" PRId64 ".log: %s at position %" PRId64 " (%s), offset %" PRId64 ": left as it is while others may count on it",
                    w->r->dir, w->g->facts.base, w->unvouched ? "not to be trusted" : "damaged", w->pos, w->why, w->r->expected);
    return KW_ECRC;
}

/* The log ends at pos, if that may be. */
static kw_err cut_here(struct walk *w, bool rot) {
    struct kb_recover *r = w->r;
    bool may_count = r->others == KB_OTHERS_MAY_COUNT, loss = rot || w->unvouched;
    kw_err err = may_count && r->killed && !loss ? was_whole(w, &loss) : KW_OK;
    if (err || !may_count || !loss) {
        w->cut = !err;
        return err;
    }
    return tell_first(w);
}

static bool is_vouched(const struct walk *w) { return KW_MAX(w->r->expected, w->g->facts.base) < w->vouched; }

/* The bytes at pos are not the batch that must follow. */
static kw_err damaged(struct walk *w) {
    struct kb_recover *r = w->r;
    struct kb_entry e;
    int64_t next;
    bool rot = is_vouched(w);
    kw_err err = rot || r->sync ? resync(w, w->pos + 1, &next, &e) : KW_OK;
    if (!err && !rot && r->sync) err = synced_once(w, next, &e, &rot);
    if (err) return err;
    if (!rot) return cut_here(w, false);
    bool at_end = next == w->scan.size && w->limit == INT64_MAX;
    if (r->whole && (at_end || r->expected >= r->recovery_point)) {
        kb_recover_note(r, KB_ERROR, "%s/%020" PRId64 ".log: damaged at position %" PRId64 " (%s), offset %" PRId64 ", though synced once; it is left as it is",
                        r->dir, w->g->facts.base, w->pos, w->why, r->expected);
        return KW_EDECODE;
    }
    if (at_end) { /* nothing whole behind it: there is nothing to keep, but this must be told loudly */
        kb_recover_note(r, KB_ERROR, "%s/%020" PRId64 ".log: from position %" PRId64 " on (%s) it is lost, though synced once: the log ends at offset %" PRId64,
                        r->dir, w->g->facts.base, w->pos, w->why, r->expected);
        return cut_here(w, true);
    }
    bool doubted = !r->compacted || w->unvouched;
    if (r->others == KB_OTHERS_MAY_COUNT && doubted) return tell_first(w);
    if ((r->others == KB_OTHERS_LEAD && doubted) || (r->others == KB_OTHERS_HAVE_IT && w->unvouched)) return cut_here(w, true);
    kb_recover_note(r, KB_ERROR, "%s/%020" PRId64 ".log: %" PRId64 " bytes at position %" PRId64 " are corrupt (%s); they are kept and never served", r->dir,
                    w->g->facts.base, next - w->pos, w->pos, w->why);
    close_range(w);
    w->g->facts.since_index = INT32_MAX; /* an index entry for what follows: there is no way past the damage but that */
    w->g->facts.dense = false;
    w->g->facts.batch_size_max = INT64_MAX;
    w->pos = w->checked_from = next;
    w->resynced = true;
    return KW_OK;
}

/* From the batch at pos on, up to where whole batches in ascending order end: what stands behind that, looked at once for all batches in front of it. (Several
 * may have been written elsewhere at once.) Behind damage a gap is as it should be, and only the next batch tells. */
static kw_err look_ahead(struct walk *w, const struct kb_entry *e) {
    int64_t at = w->pos + e->size, last = e->last;
    struct kb_entry next;
    kw_err err = KW_OK;
    if (w->pos < w->ordered_to) return KW_OK;
    while (!err && at < w->scan.size) {
        err = kb_scan_entry(&w->scan, at, true, &next);
        if (err || next.base <= last || w->resynced) break;
        at += next.size;
        last = next.last;
    }
    w->ordered_to = at;
    if (w->resynced && (err == KW_ECRC || err == KW_EDECODE))
        err = KW_OK, at = w->scan.size;
    else if (!err || err == KW_ECRC || err == KW_EDECODE)
        err = resync(w, at, &at, &next);
    w->base_behind = !err && at < w->scan.size ? next.base : INT64_MAX;
    return err;
}

/* What is wrong with a batch's offset, by what is around it; *why stays NULL when it fits. */
static kw_err misplaced(struct walk *w, const struct kb_entry *e, const char **why) {
    struct kb_recover *r = w->r;
    int64_t follows = w->pos ? r->expected : w->g->facts.base;
    bool vouched = is_vouched(w), above;
    if (r->whole && e->base != follows && (r->expected >= r->recovery_point || (vouched && !w->resynced))) *why = "its offset does not follow";
    else if (e->base < r->expected || e->last < w->g->facts.base) *why = "its offset is below the one before";
    else if (vouched && e->last >= w->limit) *why = "its offset is in the next segment";
    if (*why || e->base <= follows) return KW_OK;
    kw_err err = look_ahead(w, e);
    if (err) return err;
    above = w->base_behind >= r->expected && w->base_behind <= e->last;
    w->unvouched = !above && r->others != KB_OTHERS_NONE && !w->resynced && (follows >= r->recovery_point || e->base > r->recovery_point) &&
                   (!r->compacted || (r->recovery_point >= 0 && w->limit == INT64_MAX));
    if (above) *why = "its offset is above the one behind";
    else if (w->unvouched) *why = "nothing vouches for the gap in front of it";
    return KW_OK;
}

/* The metadata's epochs never go down, and no torn write makes two whole batches that follow each other say so. Which of the two is wrong nothing tells. */
static kw_err check_epoch(struct walk *w, const struct kb_entry *e) {
    struct kb_recover *r = w->r;
    if (!r->whole || e->epoch >= r->epoch) {
        r->epoch = KW_MAX(r->epoch, e->epoch);
        return KW_OK;
    }
    kb_recover_note(r, KB_ERROR,
                    "%s/%020" PRId64 ".log: damaged at or in front of position %" PRId64 ", offset %" PRId64 ": epoch %d stands behind epoch %d; it is left "
                    "as it is",
                    r->dir, w->g->facts.base, w->pos, e->base, (int)e->epoch, (int)r->epoch);
    return KW_EDECODE;
}

static kw_err scan_one(struct walk *w) {
    struct kb_recover *r = w->r;
    struct kb_entry e;
    const char *why = NULL;
    bool torn = false;
    w->unvouched = false;
    kw_err err = kb_scan_entry(&w->scan, w->pos, true, &e);
    if (!err) err = misplaced(w, &e, &why);
    else if (err == KW_ECRC) why = "checksum", err = KW_OK;
    else if (err == KW_EDECODE) why = "no whole batch", torn = true, err = KW_OK;
    if (err) return err;
    if (why) {
        w->why = why;
        w->all_there = !torn;
        return damaged(w);
    }
    w->resynced = false;
    if ((err = check_epoch(w, &e))) return err;
    if (e.last - w->g->facts.base > INT32_MAX) {
        if (w->pos == 0 && e.last - e.base > INT32_MAX) return KW_EDECODE;
        w->split = e.base;
        return KW_OK;
    }
    err = kb_facts_add(&w->g->facts, &e, w->pos);
    if (err) return err;
    w->pos += e.size;
    r->expected = e.last + 1;
    return KW_OK;
}

/* Moves the batches from `from` on into a segment of their own (BL-06). The new one is whole and durable before the old one is cut. */
static kw_err split_off(struct walk *w, const char *path) {
    struct kb_recover *r = w->r;
    const struct kb_fs_ops *ops = r->fs->ops;
    char *tmp = kb_recover_path(r, w->split, ".log.tmp"), *log = kb_recover_path(r, w->split, ".log");
    kw_err err = tmp && log ? KW_OK : KW_ENOMEM;
    void *f = NULL;
    int64_t size;
    if (!err) err = fs_err(ops->open(r->fs, tmp, KB_DISK_CREATE, &f, &size));
    if (!err) err = fs_err(ops->truncate(r->fs, f, 0));
    for (int64_t at = w->pos; !err && at < w->scan.size;) {
        const uint8_t *p;
        size_t n;
        err = kb_scan_bytes(&w->scan, at, (size_t)KW_MIN(w->scan.size - at, 128 << 10), &p, &n);
        if (!err) err = fs_err(ops->write(r->fs, f, at - w->pos, p, n));
        at += err ? 0 : (int64_t)n;
    }
    if (!err) err = fs_err(ops->sync(r->fs, f));
    if (f) ops->close(r->fs, f);
    if (!err) err = fs_err(ops->rename(r->fs, tmp, log));
    if (!err) err = fs_err(ops->sync_dir(r->fs, r->dir));
    if (!err) kb_recover_note(r, KB_WARN, "%s: its offsets span more than an index can say; split at offset %" PRId64, path, w->split);
    kw_free(tmp);
    kw_free(log);
    return err;
}

static kw_err cut_file(struct kb_recover *r, const char *path, int64_t size) {
    void *f;
    int64_t old;
    kw_err err = fs_err(r->fs->ops->open(r->fs, path, 0, &f, &old));
    if (err) return err;
    err = fs_err(r->fs->ops->truncate(r->fs, f, size));
    if (!err) err = fs_err(r->fs->ops->sync(r->fs, f));
    r->fs->ops->close(r->fs, f);
    return err;
}

static kw_err sync_file(struct kb_recover *r, const char *path) {
    void *f;
    int64_t size;
    kw_err err = fs_err(r->fs->ops->open(r->fs, path, 0, &f, &size));
    if (err) return err;
    err = fs_err(r->fs->ops->sync(r->fs, f));
    r->fs->ops->close(r->fs, f);
    return err;
}

static void store_index(struct kb_recover *r, struct kb_found *g) {
    static const char *const suffixes[] = {".index", ".timeindex"};
    g->indexed = true;
    for (int i = 0; i < 2; i++) {
        char *path = kb_recover_path(r, g->facts.base, suffixes[i]);
        const struct kb_index *x = i ? &g->facts.times : &g->facts.offsets;
        if (!path || kb_fs_write_atomic(r->fs, r->dir, path, x->p, x->len)) {
            kb_recover_note(r, KB_WARN, "%s/%020" PRId64 "%s: the rebuilt index could not be stored; it is kept in memory", r->dir, g->facts.base,
                            suffixes[i]);
            g->indexed = false; /* what the disk has under that name is older */
        }
        kw_free(path);
    }
}

static kw_err drop_segment(struct kb_recover *r, int64_t base) {
    static const char *const suffixes[] = {".log", ".index", ".timeindex", ".txnindex"};
    kw_err err = KW_OK;
    for (size_t i = 0; i < KW_COUNTOF(suffixes) && !err; i++) {
        char *path = kb_recover_path(r, base, suffixes[i]);
        err = path ? fs_err(r->fs->ops->unlink(r->fs, path)) : KW_ENOMEM;
        kw_free(path);
    }
    r->dirty_names = true;
    return err;
}

/* Newest first, each durably: never a hole with something behind it. */
static kw_err drop_from(struct kb_recover *r, size_t i) {
    kw_err err = KW_OK;
    while (r->base_count > i && !err) {
        int64_t base = r->bases[r->base_count - 1];
        kb_recover_note(r, KB_WARN, "%s/%020" PRId64 ".log: dropped, the log ends before it", r->dir, base);
        err = drop_segment(r, base);
        if (!err) err = fs_err(r->fs->ops->sync_dir(r->fs, r->dir));
        if (!err) r->base_count--;
    }
    return err;
}

/* Reads the whole segment. *cut: the log ends in it. */
static kw_err scan_segment(struct kb_recover *r, struct kb_found *g, size_t i, bool *cut) {
    struct walk w = {.r = r, .g = g, .split = -1, .vouched = r->clean ? INT64_MAX : r->recovery_point, .limit = INT64_MAX, .why = ""};
    int64_t base = r->bases[i];
    bool missing, last = i + 1 == r->base_count;
    if (!last) w.limit = r->bases[i + 1];
    char *path = kb_recover_path(r, base, ".log");
    kw_err err = path ? kb_scan_open(&w.scan, r->fs, path, false, &missing) : KW_ENOMEM;
    if (err) {
        kw_free(path);
        return err;
    }
    kb_facts_init(&g->facts, base, r->interval);
    g->facts.end = KW_MAX(base, r->expected);
    r->expected = KW_MAX(r->expected, 0);
    while (!err && !w.cut && w.split < 0 && w.pos < w.scan.size) err = scan_one(&w);
    close_range(&w);
    if (!err && w.split >= 0) err = split_off(&w, path);
    int64_t size = w.scan.size;
    kb_scan_close(&w.scan);
    if (!err && (w.cut || w.split >= 0)) {
        if (w.cut)
            kb_recover_note(r, KB_WARN, "%s: cut from %" PRId64 " to %" PRId64 " bytes at offset %" PRId64 " (%s)", path, size, w.pos, r->expected, w.why);
        if (w.cut) err = drop_from(r, i + 1); /* first what comes behind: a start that dies in between must not find a gap */
        if (!err) err = cut_file(r, path, w.pos);
        size = w.pos;
    }
    if (!err && w.split >= 0 && !(i + 1 < r->base_count && r->bases[i + 1] == w.split)) err = insert_base(r, i + 1, w.split);
    if (w.split >= 0) last = false;
    *cut = w.cut;
    g->ends_damaged = w.resynced && !w.cut;
    g->facts.size = size;
    g->scanned = true;
    if (!err && !last && !w.cut) {
        err = kb_facts_seal(&g->facts);
        if (!err && !r->clean) err = sync_file(r, path); /* what is sealed is durable before anything relies on it */
        if (!err) store_index(r, g);
        g->synced = !err;
    }
    kw_free(path);
    return err;
}

static struct kb_found *found_add(struct kb_recover *r) {
    if (r->seg_count == r->seg_cap) {
        size_t cap = r->seg_cap ? r->seg_cap * 2 : 8;
        struct kb_found *v = kw_realloc(r->segs, cap * sizeof(*v));
        if (!v) return NULL;
        r->segs = v;
        r->seg_cap = cap;
    }
    struct kb_found *g = &r->segs[r->seg_count++];
    memset(g, 0, sizeof(*g));
    return g;
}

/* A clean stop left its log's end as the recovery point. Above it only an offset that rotted can be. */
static int64_t end_at_stop(const struct kb_recover *r) {
    return r->others != KB_OTHERS_NONE && r->recovery_point >= 0 ? r->recovery_point : INT64_MAX;
}

static kw_err segment(struct kb_recover *r, size_t i, bool trusted, bool *cut) {
    struct kb_found *g = found_add(r);
    if (!g) return KW_ENOMEM;
    int64_t base = r->bases[i];
    bool last = i + 1 == r->base_count, ok = false;
    kw_err err = KW_OK;
    char *path = kb_recover_path(r, base, ".log");
    if (!path) return KW_ENOMEM;
    if (r->fs->ops->mtime(r->fs, path, &g->mtime_ms)) g->mtime_ms = 0;
    kw_free(path);
    if (trusted && base >= r->expected) {
        int64_t expected = r->expected, most = last ? end_at_stop(r) : r->bases[i + 1];
        err = believe(r, g, base, most, &ok);
        if (!err && ok && last) { /* the active one's indexes live in memory */
            err = read_index(r, base, ".index", &g->facts.offsets);
            if (!err) err = read_index(r, base, ".timeindex", &g->facts.times);
            if (!err && (!kb_offsets_sane(&g->facts.offsets, base, g->facts.size) || !kb_times_sane(&g->facts.times))) {
                kb_facts_deinit(&g->facts);
                ok = false;
            }
        }
        if (err) return err;
        if (ok) {
            g->synced = g->indexed = true;
            r->expected = KW_MAX(expected, g->facts.end);
            return KW_OK;
        }
        kb_recover_note(r, KB_WARN, "%s/%020" PRId64 ".log: its indexes are missing, cut or do not match; reading the segment to rebuild them", r->dir, base);
    }
    memset(&g->facts, 0, sizeof(g->facts));
    return scan_segment(r, g, i, cut);
}

/* Every segment begins where the one before ended when it was rolled. So a gap behind one that nothing vouches for is a lost tail, in a folder that is
 * known to be ours; in one taken over from elsewhere, and over a span that no lost tail explains, it is what compaction left. */
#define GAP_MAX (1 << 30)

static kw_err lost_tail(struct kb_recover *r, size_t i, bool trusted, bool *lost) {
    if (trusted || i + 1 >= r->base_count || (r->recovery_point < 0 && !r->has_metadata)) return KW_OK;
    int64_t gap = r->bases[i + 1] - KW_MAX(r->expected, r->bases[i]);
    if (gap <= 0 || gap > GAP_MAX || r->segs[r->seg_count - 1].ends_damaged) return KW_OK;
    *lost = true;
    kb_recover_note(r, KB_WARN, "%s/%020" PRId64 ".log: ends at offset %" PRId64 ", %" PRId64 " short of the next: its tail was lost",
                    r->dir, r->bases[i], r->expected, gap);
    return r->others == KB_OTHERS_MAY_COUNT && r->killed ? KW_ECRC : KW_OK; /* no kill takes a tail */
}

/* The next one begins before this one ends: it would hide what stands here. It goes, with what comes behind it, and this one is the last: it is looked at
 * once more as such. Where others may count on all that, they are told first. */
static kw_err overlapped(struct kb_recover *r, size_t i, int64_t expected, int32_t epoch) {
    kb_recover_note(r, KB_WARN, "%s/%020" PRId64 ".log: begins below offset %" PRId64 ", where the one before it ends", r->dir, r->bases[i + 1], r->expected);
    if (r->others == KB_OTHERS_MAY_COUNT) return KW_ECRC;
    kw_err err = drop_from(r, i + 1);
    kb_facts_deinit(&r->segs[--r->seg_count].facts);
    r->expected = expected;
    r->epoch = epoch;
    return err;
}

static kw_err segments(struct kb_recover *r) {
    kw_err err = KW_OK;
    bool cut = false;
    for (size_t i = 0; i < r->base_count && !err && !cut; i++) {
        bool trusted = r->clean || (i + 1 < r->base_count && r->bases[i + 1] <= r->recovery_point);
        int64_t expected = r->expected;
        int32_t epoch = r->epoch;
        err = segment(r, i, trusted, &cut);
        if (!err && !cut && i + 1 < r->base_count && r->bases[i + 1] < r->expected) {
            err = overlapped(r, i, expected, epoch);
            i--; /* once more */
            continue;
        }
        if (!err && !cut) err = lost_tail(r, i, trusted, &cut);
        if (!err && cut) err = drop_from(r, i + 1);
        if (err || i + 1 >= r->base_count) continue;
        struct kb_found *g = &r->segs[r->seg_count - 1];
        if (g->indexed) kb_facts_deinit(&g->facts); /* a sealed one's are loaded when needed */
    }
    return err;
}

/* An empty folder, or one whose data ends below the log start that was checkpointed. */
static kw_err fresh(struct kb_recover *r, int64_t base) {
    kw_err err = drop_from(r, 0);
    for (size_t i = 0; i < r->seg_count; i++) kb_facts_deinit(&r->segs[i].facts);
    r->seg_count = 0;
    struct kb_found *g = err ? NULL : found_add(r);
    if (!g) return err ? err : KW_ENOMEM;
    kb_facts_init(&g->facts, base, r->interval);
    g->mtime_ms = -1; /* no file yet */
    r->leo = base;
    r->emptied = true;
    return KW_OK;
}

/* Sealed segments are synced when they are scanned; this does the last one, and the names. */
static kw_err sync_all(struct kb_recover *r) {
    const struct kb_found *g = &r->segs[r->seg_count - 1];
    const char *slash = strrchr(r->dir, '/');
    char *path = kb_recover_path(r, g->facts.base, ".log");
    char *parent = slash && slash > r->dir ? kw_memdup(r->dir, (size_t)(slash - r->dir) + 1) : NULL;
    kw_err err = path ? KW_OK : KW_ENOMEM;
    if (!err && g->mtime_ms >= 0) err = sync_file(r, path);
    if (!err && r->identity && r->has_metadata) {
        kw_free(path);
        size_t size = strlen(r->dir) + sizeof("/partition.metadata");
        path = kw_malloc(size);
        if (path) snprintf(path, size, "%s/partition.metadata", r->dir);
        err = path ? sync_file(r, path) : KW_ENOMEM;
    }
    if (!err) err = fs_err(r->fs->ops->sync_dir(r->fs, r->dir));
    if (!err && slash && slash > r->dir) {
        if (!parent) {
            err = KW_ENOMEM;
        } else {
            parent[slash - r->dir] = 0;
            err = fs_err(r->fs->ops->sync_dir(r->fs, parent));
        }
    }
    r->names_synced = !err;
    kw_free(path);
    kw_free(parent);
    return err;
}

/* Others count on all that was written where the process alone ended, on all that was synced where the machine did and this log synced what it
 * acknowledged: what is missing at its end is then as bad as what is wrong. */
static bool holds_committed(const struct kb_recover *r) {
    return r->others == KB_OTHERS_MAY_COUNT && (r->killed || r->sync);
}

void kb_recover_run(struct kb_recover *r, struct kb_fs *fs) {
    r->fs = fs;
    r->expected = 0;
    kw_err err = kb_recover_names(r);
    if (!err) err = segments(r);
    if (!err && r->seg_count) {
        const struct kb_found *g = &r->segs[r->seg_count - 1];
        r->leo = KW_MAX(g->facts.end, g->facts.base);
        if (r->start_checkpoint > r->leo)
            kb_recover_note(r, KB_ERROR, "%s: the log ends at offset %" PRId64 ", below its start %" PRId64 ": nothing of it is left", r->dir, r->leo,
                            r->start_checkpoint);
    }
    if (!err && !r->seg_count && r->start_checkpoint > 0)
        kb_recover_note(r, KB_ERROR, "%s: no segment, though the log starts at %" PRId64 ": nothing of it is left", r->dir, r->start_checkpoint);
    if (!err && (!r->seg_count || r->start_checkpoint > r->leo)) err = fresh(r, KW_MAX(r->start_checkpoint, 0));
    if (!err && r->committed > r->leo && holds_committed(r)) {
        kb_recover_note(r, KB_ERROR, "%s: ends at offset %" PRId64 ", and was committed up to %" PRId64, r->dir, r->leo, r->committed);
        err = KW_ECRC;
    }
    if (!err) {
        r->start = KW_MAX(r->start_checkpoint, r->segs[0].facts.base);
        r->cut_below_recovery_point = r->leo < r->recovery_point;
        err = kb_recover_state(r);
    }
    if (!err && r->dirty_names) err = fs_err(fs->ops->sync_dir(fs, r->dir));
    if (!err && r->sync && !r->clean && !r->emptied) err = sync_all(r); /* of an empty log there is nothing to lose: its first sync does the names */
    if (err == KW_EIO) kb_recover_note(r, KB_ERROR, "%s: cannot be loaded: reading or repairing it failed", r->dir);
    r->err = err;
}
