/* recover_names.c - the names in a partition's folder: segments and snapshots are collected, leftovers of crashes removed or finished.
 *
 * As Kafka does: `.deleted` and `.cleaned` go; a `.swap` is a finished replacement and takes its place, unless a `.cleaned` at or below it says
 * that it was not finished; indexes without a segment go. Ours: `.tmp` goes. Called by recover.
 */
#include "recover.h"

#include <inttypes.h>
#include <stdio.h>

enum name_kind { NAME_OTHER, NAME_LOG, NAME_INDEX, NAME_SNAPSHOT, NAME_LEFTOVER, NAME_SWAP };
struct name {
    enum name_kind kind;
    int64_t base; /* -1: none */
};

static bool ends(const char *z, const char *suffix) {
    size_t n = strlen(z), k = strlen(suffix);
    return n >= k && strcmp(z + n - k, suffix) == 0;
}

static struct name classify(const char *z) {
    struct name r = {NAME_OTHER, -1};
    int64_t base = 0;
    size_t i = 0;
    while (i < 20 && z[i] >= '0' && z[i] <= '9' && base <= (INT64_MAX - 9) / 10) base = base * 10 + (z[i++] - '0');
    bool numbered = i == 20 && z[i] == '.';
    if (numbered) r.base = base;
    if (ends(z, ".deleted") || ends(z, ".cleaned") || ends(z, ".tmp")) r.kind = NAME_LEFTOVER;
    else if (numbered && ends(z, ".swap")) r.kind = NAME_SWAP;
    else if (numbered && strcmp(z + i, ".log") == 0) r.kind = NAME_LOG;
    else if (numbered && (strcmp(z + i, ".index") == 0 || strcmp(z + i, ".timeindex") == 0 || strcmp(z + i, ".txnindex") == 0)) r.kind = NAME_INDEX;
    else if (numbered && strcmp(z + i, ".snapshot") == 0) r.kind = NAME_SNAPSHOT;
    return r;
}

static kw_err add(int64_t **v, size_t *count, size_t *cap, int64_t x) {
    if (*count == *cap) {
        size_t n = *cap ? *cap * 2 : 16;
        int64_t *p = kw_realloc(*v, n * sizeof(*p));
        if (!p) return KW_ENOMEM;
        *v = p;
        *cap = n;
    }
    (*v)[(*count)++] = x;
    return KW_OK;
}

static bool has(const int64_t *v, size_t n, int64_t x) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (v[mid] < x) lo = mid + 1;
        else hi = mid;
    }
    return lo < n && v[lo] == x;
}

static kw_err drop(struct kb_recover *r, const char *name) {
    size_t a = strlen(r->dir), b = strlen(name);
    char *path = kw_malloc(a + b + 2);
    if (!path) return KW_ENOMEM;
    snprintf(path, a + b + 2, "%s/%s", r->dir, name);
    enum kb_disk_err err = r->fs->ops->unlink(r->fs, path);
    kw_free(path);
    r->dirty_names = true;
    return err ? KW_EIO : KW_OK;
}

/* The old segments that a finished replacement covers go first, then it takes its name: a crash in between finds the swap again. */
static kw_err finish_swap(struct kb_recover *r, const char *names, int64_t count, int64_t base) {
    char *swap = kb_recover_path(r, base, ".log.swap");
    struct kb_scan s;
    bool missing;
    kw_err err = swap ? kb_scan_open(&s, r->fs, swap, true, &missing) : KW_ENOMEM;
    int64_t pos = 0, end = base;
    while (!err && pos < s.size) {
        struct kb_entry e;
        err = kb_scan_entry(&s, pos, false, &e);
        if (err == KW_EDECODE) {
            err = KW_OK;
            break;
        }
        if (!err) {
            end = e.last + 1;
            pos += e.size;
        }
    }
    if (swap && !err) kb_scan_close(&s);
    const char *z = names;
    for (int64_t i = 0; i < count && !err; i++, z += strlen(z) + 1) {
        struct name n = classify(z);
        if ((n.kind == NAME_LOG || n.kind == NAME_INDEX) && n.base >= base && n.base < end) err = drop(r, z);
    }
    if (!err && r->fs->ops->sync_dir(r->fs, r->dir)) err = KW_EIO;
    char *log = kb_recover_path(r, base, ".log");
    if (!err && !log) err = KW_ENOMEM;
    if (!err && r->fs->ops->rename(r->fs, swap, log)) err = KW_EIO;
    if (!err) kb_recover_note(r, KB_INFO, "%s: finished the replacement of a segment", log);
    kw_free(log);
    kw_free(swap);
    r->dirty_names = true;
    return err;
}

static kw_err leftovers(struct kb_recover *r, const char *names, int64_t count, bool *again) {
    int64_t cleaned = INT64_MAX;
    const char *z = names;
    for (int64_t i = 0; i < count; i++, z += strlen(z) + 1) {
        struct name n = classify(z);
        if (n.base >= 0 && ends(z, ".cleaned")) cleaned = KW_MIN(cleaned, n.base);
    }
    kw_err err = KW_OK;
    z = names;
    for (int64_t i = 0; i < count && !err; i++, z += strlen(z) + 1) {
        struct name n = classify(z);
        if (n.kind == NAME_LEFTOVER || (n.kind == NAME_SWAP && (n.base >= cleaned || !ends(z, ".log.swap")))) err = drop(r, z);
        else if (n.kind == NAME_SWAP) err = finish_swap(r, names, count, n.base);
        *again = *again || n.kind == NAME_SWAP;
    }
    return err;
}

static kw_err collect(struct kb_recover *r, const char *names, int64_t count) {
    kw_err err = KW_OK;
    const char *z = names;
    for (int64_t i = 0; i < count && !err; i++, z += strlen(z) + 1) { /* sorted, so the numbers ascend */
        struct name n = classify(z);
        if (n.kind == NAME_LOG) err = add(&r->bases, &r->base_count, &r->base_cap, n.base);
        else if (strcmp(z, "partition.metadata") == 0) r->has_metadata = true;
        else if (n.kind == NAME_SNAPSHOT) err = add(&r->snapshots, &r->snapshot_count, &r->snapshot_cap, n.base);
    }
    z = names;
    for (int64_t i = 0; i < count && !err; i++, z += strlen(z) + 1) {
        struct name n = classify(z);
        if (n.kind == NAME_INDEX && !has(r->bases, r->base_count, n.base)) err = drop(r, z);
    }
    return err;
}

kw_err kb_recover_names(struct kb_recover *r) {
    for (int pass = 0; pass < 2; pass++) {
        uint8_t *names = NULL;
        int64_t count = 0;
        bool again = false;
        enum kb_disk_err derr = r->fs->ops->list(r->fs, r->dir, &names, &count);
        if (derr == KB_DISK_ENOENT && r->create && pass == 0) {
            derr = r->fs->ops->mkdir(r->fs, r->dir);
            r->created = true;
            if (!derr) return KW_OK;
        }
        if (derr) {
            kb_recover_note(r, KB_ERROR, "%s: the folder cannot be read or made: %s", r->dir, kb_disk_text(derr));
            return derr == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO;
        }
        kw_err err = leftovers(r, (const char *)names, count, &again);
        if (!err && !again) err = collect(r, (const char *)names, count);
        kw_free(names);
        if (err || !again) return err;
    }
    return KW_EIO; /* a swap that does not go away */
}
