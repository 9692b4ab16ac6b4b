/* recover_state.c - producer state and leader epochs of a log from what its folder holds: the newest snapshot that is whole plus a replay of the
 * batches after it; the checkpoint of epochs, or, where it cannot be believed, the batches. Called by recover and cut (reload).
 */
#include "recover.h"

#include <inttypes.h>
#include <stdio.h>

#define SNAPSHOT_MAX (256 << 20)
#define EPOCHS_MAX (64 << 20)

static kw_err note_batch(struct kb_pid_state *pids, struct kb_scan *s, int64_t pos, const struct kb_entry *e) {
    const uint8_t *p;
    size_t n;
    struct kw_batch_header h;
    if (e->magic < 2) return KW_OK;
    kw_err err = kb_scan_bytes(s, pos, KB_ENTRY_PEEK, &p, &n);
    if (!err) err = kw_batch_parse(p, n, &h);
    return err ? err : kb_pid_update(pids, &h, e->base, e->last, -1);
}

struct replay {
    struct kb_fs *fs;
    int64_t from, to;         /* offsets */
    struct kb_pid_state *pids;
    struct kb_epochs *epochs; /* NULL: not wanted */
    int64_t last_pid_offset;
};

static kw_err replay_entry(struct replay *y, struct kb_scan *s, int64_t pos, const struct kb_entry *e) {
    if (e->last < y->from || e->base >= y->to) return KW_OK;
    kw_err err = y->pids ? note_batch(y->pids, s, pos, e) : KW_OK;
    if (!err && y->epochs && e->epoch >= 0 && e->epoch > kb_epochs_latest(y->epochs)) err = kb_epochs_assign(y->epochs, e->epoch, e->base);
    return err;
}

/* pos, or where it goes on behind what is corrupt there: what lies between the checked ranges of a segment that was scanned. *checked false: nobody has
 * looked at the checksum of what is there. */
static int64_t sound(const struct kb_found *g, int64_t pos, int64_t size, bool *checked) {
    *checked = g && g->scanned;
    for (size_t i = 0; *checked && i < g->checked_count; i++)
        if (pos < g->checked[i][1]) return KW_MAX(pos, g->checked[i][0]);
    if (*checked && g->checked_count < KB_FOUND_RANGES_MAX) return size;
    *checked = false;
    return pos;
}

/* A corrupt batch says nothing of producers, however sane its head looks, nor of where the next one's offsets begin. */
static kw_err replay_segment(struct replay *y, const char *path, const struct kb_found *g) {
    struct kb_scan s;
    bool missing;
    kw_err err = kb_scan_open(&s, y->fs, path, true, &missing);
    if (err) return missing ? KW_OK : err;
    int64_t pos = 0, previous = -1;
    while (pos < s.size && !err) {
        struct kb_entry e;
        bool checked;
        pos = sound(g, pos, s.size, &checked);
        if (pos >= s.size) break;
        err = kb_scan_entry(&s, pos, y->pids && !checked, &e);
        if (err == KW_ECRC) { /* kept when it was found, or not found yet */
            err = KW_OK;
            pos += e.size;
            continue;
        }
        if (!err && e.base > previous && e.base < y->to) {
            err = replay_entry(y, &s, pos, &e);
            previous = e.last;
            pos += e.size;
            continue;
        }
        if (err && err != KW_EDECODE) break;
        err = KW_OK;
        int64_t next = s.size; /* unreadable: go on where the scan found its feet */
        for (size_t i = 0; g && i < g->checked_count; i++)
            if (g->checked[i][0] > pos) {
                next = g->checked[i][0];
                break;
            }
        pos = next;
    }
    kb_scan_close(&s);
    return err;
}

/* A crash may have taken the snapshot of a roll: without it, older segments could not go, nor the log be cut, without forgetting producers. */
static void complete_snapshot(struct kb_recover *r, int64_t base) {
    for (size_t i = 0; i < r->snapshot_count; i++)
        if (r->snapshots[i] == base) return;
    struct kw_out out;
    kw_out_init(&out);
    char *path = kb_recover_path(r, base, ".snapshot");
    if (!path || kb_pid_encode(&r->pids, &out) || kb_fs_write_atomic(r->fs, r->dir, path, out.p, out.len))
        kb_recover_note(r, KB_WARN, "%s/%020" PRId64 ".snapshot: could not be stored", r->dir, base);
    kw_free(path);
    kw_out_deinit(&out);
}

static kw_err replay(struct kb_recover *r, struct replay *y) {
    y->fs = r->fs;
    kw_err err = KW_OK;
    for (size_t i = 0; i < r->seg_count && !err; i++) {
        const struct kb_found *g = &r->segs[i];
        if (y->pids && i > 0 && g->facts.base > y->from) complete_snapshot(r, g->facts.base);
        if (g->facts.size == 0 || (i + 1 < r->seg_count && r->segs[i + 1].facts.base <= y->from)) continue;
        char *path = kb_recover_path(r, g->facts.base, ".log");
        err = path ? replay_segment(y, path, g) : KW_ENOMEM;
        kw_free(path);
    }
    return err;
}

/* ---- Snapshots ---- */

static bool is_base(const struct kb_recover *r, int64_t offset) {
    for (size_t i = 0; i < r->seg_count; i++)
        if (r->segs[i].facts.base == offset) return true;
    return false;
}

static kw_err remove_snapshot(struct kb_recover *r, int64_t offset) {
    char *path = kb_recover_path(r, offset, ".snapshot");
    if (!path) return KW_ENOMEM;
    enum kb_disk_err err = r->fs->ops->unlink(r->fs, path);
    kw_free(path);
    r->dirty_names = true;
    return err ? KW_EIO : KW_OK;
}

/* The newest snapshot at or below leo that is whole; those above, broken ones and old ones that no segment needs go. from: -1 when none. */
static kw_err load_snapshot(struct kb_recover *r, int64_t *from) {
    *from = -1;
    kw_err err = KW_OK;
    for (size_t i = r->snapshot_count; i-- > 0 && !err;) {
        int64_t offset = r->snapshots[i];
        bool keep = !r->emptied && offset <= r->leo && (*from < 0 || is_base(r, offset));
        if (keep && *from < 0) {
            uint8_t *p = NULL;
            size_t n = 0;
            bool missing;
            char *path = kb_recover_path(r, offset, ".snapshot");
            err = path ? kb_fs_read_file(r->fs, path, SNAPSHOT_MAX, &p, &n, &missing) : KW_ENOMEM;
            if (!err) err = kb_pid_decode(&r->pids, p, n);
            kw_free(p);
            keep = !err;
            if (!err) *from = offset;
            else if (err != KW_ENOMEM) {
                kb_recover_note(r, KB_WARN, "%s: not a whole producer snapshot; removed", path);
                err = KW_OK;
            }
            kw_free(path);
        }
        if (!err && !keep) err = remove_snapshot(r, offset);
        if (!err && keep && !is_base(r, offset)) r->snapshot_kept = offset;
    }
    return err;
}

static kw_err producers(struct kb_recover *r) {
    int64_t from;
    kw_err err = load_snapshot(r, &from);
    if (err) return err;
    struct replay y = {.from = KW_MAX(from, 0), .to = r->leo, .pids = &r->pids};
    if (from < 0 && r->segs[0].facts.base > 0) r->pids.forgetful = true; /* older batches are gone, and with them who wrote them */
    err = replay(r, &y);
    struct kb_pid_entry *e;
    for (size_t it = 0; !err && (e = kw_map_next(&r->pids.by_pid, &it));)
        if (e->batch_count) r->last_pid_offset = KW_MAX(r->last_pid_offset, e->batches[e->batch_count - 1].last_offset);
    return err;
}

/* ---- Epochs ---- */

/* The checkpoint may begin above the log start: segments that were about to go are back. */
static kw_err earlier_epochs(struct kb_recover *r) {
    if (!r->epochs.count || r->epochs.v[0].start <= r->start) return KW_OK;
    struct kb_epochs all;
    kb_epochs_init(&all);
    struct replay y = {.from = r->start, .to = r->epochs.v[0].start, .epochs = &all};
    kw_err err = replay(r, &y);
    bool found = all.count > 0;
    for (size_t i = 0; i < r->epochs.count && !err && found; i++) err = kb_epochs_assign(&all, r->epochs.v[i].epoch, r->epochs.v[i].start);
    if (err || !found) {
        kb_epochs_deinit(&all);
        return err;
    }
    kb_epochs_deinit(&r->epochs);
    r->epochs = all;
    return KW_OK;
}

/* A log that must be whole is trusted up to a point that its owner knows (a snapshot), which may have come before the checkpoint was written
 * again: where an epoch began below that point only the batches know. What the checkpoint says of offsets below them stays. */
static kw_err epochs_of_batches(struct kb_recover *r) {
    struct kb_epochs found;
    kb_epochs_init(&found);
    struct replay y = {.from = r->start, .to = r->leo, .epochs = &found};
    kw_err err = replay(r, &y);
    if (!err && found.count) kb_epochs_truncate_end(&r->epochs, found.v[0].start);
    for (size_t i = 0; i < found.count && !err; i++) err = kb_epochs_assign(&r->epochs, found.v[i].epoch, found.v[i].start);
    kb_epochs_deinit(&found);
    return err;
}

static kw_err epochs(struct kb_recover *r) {
    uint8_t *p = NULL;
    size_t n = 0;
    bool missing;
    size_t len = strlen(r->dir) + 32;
    char *path = kw_malloc(len);
    if (!path) return KW_ENOMEM;
    snprintf(path, len, "%s/leader-epoch-checkpoint", r->dir);
    kw_err err = kb_fs_read_file(r->fs, path, EPOCHS_MAX, &p, &n, &missing);
    if (!err) err = kb_epochs_decode(&r->epochs, p, n);
    kw_free(p);
    struct replay y = {.to = r->leo, .epochs = &r->epochs};
    if (err == KW_ENOMEM) goto out;
    if (err) { /* never believed by half: the batches know (BL-05) */
        if (!missing) kb_recover_note(r, KB_WARN, "%s: not readable; rebuilt from the batches", path);
        kb_epochs_deinit(&r->epochs);
        r->epochs.dirty = r->leo > r->segs[0].facts.base || !missing;
        err = r->leo > r->segs[0].facts.base ? replay(r, &y) : KW_OK;
    } else {
        kb_epochs_truncate_end(&r->epochs, r->leo);
        for (size_t i = 0; i < r->seg_count && !err; i++) { /* what was scanned may be newer than the checkpoint */
            if (!r->segs[i].scanned) continue;
            y.from = r->segs[i].facts.base;
            if (r->segs[i].facts.size) kb_epochs_truncate_end(&r->epochs, y.from);
            err = replay(r, &y);
            break;
        }
    }
    bool late = !r->epochs.count || r->epochs.v[0].start > r->start; /* cut at a snapshot that is no more: the log begins further down again */
    if (!err && r->whole && (late || !r->clean)) err = epochs_of_batches(r);
    else if (!err && !r->clean) err = earlier_epochs(r);
    if (!err) kb_epochs_truncate_start(&r->epochs, r->start);
out:
    kw_free(path);
    return err;
}

kw_err kb_recover_state(struct kb_recover *r) {
    kw_err err = producers(r);
    return err ? err : epochs(r);
}

/* ---- After a cut ---- */

static char *reload_path(const struct kb_reload *r, int64_t base, const char *suffix) {
    size_t n = strlen(r->dir) + 24 + strlen(suffix);
    char *p = kw_malloc(n);
    if (p) snprintf(p, n, "%s/%020" PRId64 "%s", r->dir, base, suffix);
    return p;
}

static kw_err reload_snapshot(struct kb_reload *r, struct kb_fs *fs, int64_t offset, bool *found) {
    uint8_t *p = NULL;
    size_t n = 0;
    bool missing;
    char *path = reload_path(r, offset, ".snapshot");
    kw_err err = path ? kb_fs_read_file(fs, path, SNAPSHOT_MAX, &p, &n, &missing) : KW_ENOMEM;
    if (!err) err = kb_pid_decode(&r->pids, p, n);
    kw_free(p);
    kw_free(path);
    *found = !err;
    return err == KW_ENOMEM ? err : KW_OK;
}

static kw_err reload_pids(struct kb_reload *r, struct kb_fs *fs) {
    struct replay y = {.fs = fs, .to = r->leo, .pids = &r->pids};
    kw_err err = KW_OK;
    bool found = false;
    int64_t extra = r->snapshot_extra <= r->leo ? r->snapshot_extra : -1;
    for (size_t i = r->base_count; i-- > 0 && !found && !err;) {
        if (extra > r->bases[i]) {
            err = reload_snapshot(r, fs, extra, &found);
            if (found) y.from = extra;
            extra = -1;
        }
        if (err || found) break;
        err = reload_snapshot(r, fs, r->bases[i], &found);
        if (found) y.from = r->bases[i];
    }
    if (!err && !found && r->bases[0] > 0) r->pids.forgetful = true;
    for (size_t i = 0; i < r->base_count && !err; i++) {
        if (i + 1 < r->base_count && r->bases[i + 1] <= y.from) continue;
        char *path = reload_path(r, r->bases[i], ".log");
        err = path ? replay_segment(&y, path, NULL) : KW_ENOMEM;
        kw_free(path);
    }
    return err;
}

void kb_reload_run(struct kb_reload *r, struct kb_fs *fs) {
    struct kb_scan s;
    bool missing;
    kw_err err = KW_OK;
    if (r->tail_to > r->tail_from) {
        char *path = reload_path(r, r->tail.base, ".log");
        err = path ? kb_scan_open(&s, fs, path, true, &missing) : KW_ENOMEM;
        kw_free(path);
        int64_t interval = r->tail.interval, since = 0;
        r->tail.interval = INT32_MAX; /* only its times are wanted */
        for (int64_t pos = r->tail_from; !err && pos < r->tail_to;) {
            struct kb_entry e;
            err = kb_scan_entry(&s, pos, false, &e);
            if (!err) err = kb_facts_add(&r->tail, &e, pos);
            if (!err) pos += e.size, since += e.size;
        }
        if (path && (!err || s.buf)) kb_scan_close(&s);
        r->tail.interval = (int32_t)interval;
        r->tail.since_index = since;
        if (err == KW_EDECODE) err = KW_OK; /* corrupt there: the index entry before it says what is known */
    }
    if (!err && r->pids_wanted) err = reload_pids(r, fs);
    r->err = err;
}
