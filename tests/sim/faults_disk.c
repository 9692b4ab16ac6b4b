/* faults_disk.c - what goes wrong with the disk: files missing, cut, zeroed or rotten at a start, an old image of the whole; and, while the
 * broker runs, a disk that hangs, fails, is full, or writes where it should not. Called by faults.c. */
#include <stdio.h>
#include <stdlib.h>

#include "guid.h"
#include "replica/partition.h"
#include "scan.h"
#include "workload.h"

/* ---- Files, at a start ---- */

struct file_names {
    char v[600][128];
    size_t n;
};

static bool ends(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* meta: also those of the metadata's log. */
static void collect(struct sim_disk *d, struct file_names *f, bool (*pick)(const char *name), bool meta) {
    char **dirs;
    size_t n = sim_disk_names(d, SIM_DATA, &dirs);
    f->n = 0;
    for (size_t i = 0; i < n; i++) {
        char path[96], **names = NULL;
        snprintf(path, sizeof path, SIM_DATA "/%s", dirs[i]);
        bool folder = strncmp(dirs[i], "topic-", 6) == 0 || (meta && strcmp(dirs[i], "__cluster_metadata-0") == 0);
        size_t k = folder ? sim_disk_names(d, path, &names) : 0;
        if (k) {
            for (size_t j = 0; j < k; j++) {
                if (pick(names[j]) && f->n < KW_COUNTOF(f->v)) snprintf(f->v[f->n++], sizeof f->v[0], "%s/%s", path, names[j]);
                free(names[j]);
            }
        } else if (pick(dirs[i]) && f->n < KW_COUNTOF(f->v)) {
            snprintf(f->v[f->n++], sizeof f->v[0], "%s", path);
        }
        free(names);
        free(dirs[i]);
    }
    free(dirs);
}

static bool is_index(const char *n) {
    return ends(n, ".index") || ends(n, ".timeindex");
}
static bool is_checkpoint(const char *n) {
    return strcmp(n, "recovery-point-offset-checkpoint") == 0 || strcmp(n, "replication-offset-checkpoint") == 0 ||
           strcmp(n, "leader-epoch-checkpoint") == 0;
}
static bool is_snapshot(const char *n) {
    return ends(n, ".snapshot");
}
static bool is_log(const char *n) {
    return ends(n, ".log");
}

/* Files that are caches of the log, or can be done without. */
void sim_fault_tamper(struct sim_world *w, struct sim_broker *b, bool meta) {
    static struct file_names f;
    static bool (*const picks[])(const char *) = {is_index, is_checkpoint, is_snapshot};
    static const enum sim_fault kinds[] = {SIM_F_INDEX_GONE, SIM_F_CHECKPOINT_GONE, SIM_F_SNAPSHOT_GONE};
    struct sim_disk *d = b->disk;
    int kind = (int)sim_below(w, 3), times = (int)sim_range(w, 1, 4);
    collect(d, &f, picks[kind], meta);
    for (int i = 0; i < times && f.n; i++) {
        size_t k = sim_below(w, f.n), size;
        int how = (int)sim_below(w, 3);
        const uint8_t *p = sim_disk_peek(d, f.v[k], &size);
        if (!p) continue;
        if (how == 0) {
            sim_disk_remove(d, f.v[k]);
        } else if (how == 1) {
            if (size == 0) continue;
            sim_disk_cut(d, f.v[k], sim_below(w, size));
        } else {
            void *zeros = sim_need(calloc(1, size + 1));
            sim_disk_poke(d, f.v[k], zeros, size);
            free(zeros);
        }
        sim_fire(w, (enum sim_fault)((int)kinds[kind] + how));
        sim_trace(w, "%s: %s is %s", b->host.name, f.v[k], how == 0 ? "gone" : how == 1 ? "cut" : "all zeros");
    }
}

struct sim_log *sim_log_of_path(struct sim_run *r, const char *path) {
    int t, p;
    return sscanf(path, SIM_DATA "/topic-%d-%d/", &t, &p) == 2 ? sim_model_log(&r->model, t, p) : NULL;
}

/* The file of some log's segment that has anything in it. false: there is none. */
bool sim_fault_segment(struct sim_world *w, struct sim_broker *b, bool meta, char *path, size_t n, size_t *size) {
    static struct file_names f;
    collect(b->disk, &f, is_log, meta);
    if (!f.n) return false;
    snprintf(path, n, "%s", f.v[sim_below(w, f.n)]);
    return sim_disk_peek(b->disk, path, size) && *size > 0;
}

/* A bit of a log turns while nobody looks. What it hit may be lost; it must not be served. */
static void rot(struct sim_run *r) {
    static struct file_names f;
    struct sim_world *w = &r->w;
    collect(r->nodes[0].disk, &f, is_log, false);
    if (!f.n) return;
    size_t k = sim_below(w, f.n), size;
    struct sim_log *l = sim_log_of_path(r, f.v[k]);
    if (!sim_disk_peek(r->nodes[0].disk, f.v[k], &size) || size == 0 || !l) return;
    size_t at = sim_below(w, size);
    sim_disk_rot(r->nodes[0].disk, f.v[k], at, (uint8_t)(1u << sim_below(w, 8)));
    l->tainted = true;
    sim_trace(w, "%s: a bit turns at %zu", f.v[k], at);
}

/* ---- Rot of the metadata ---- */

#define META_DIR SIM_DATA "/__cluster_metadata-0"

static bool clean_stop(const struct sim_broker *b) {
    size_t n;
    return b->death == SIM_DEATH_STOP && sim_disk_peek(b->disk, SIM_DATA "/.kafka_cleanshutdown", &n);
}

/* Where rot in the metadata log can be told from a write that a crash tore: in front of the last epoch's beginning, since an epoch begins
 * only when all before it is synced; after a clean stop, anywhere. *file gets the segment. false: nowhere. */
static bool meta_log_place(struct sim_world *w, struct sim_broker *b, char *file, size_t size, size_t *at) {
    struct sim_scan s;
    sim_scan_log(b->disk, META_DIR, &s);
    size_t n = clean_stop(b) ? s.count : 0;
    for (size_t i = 0; i < s.count && !n; i++)
        if (s.v[s.count - 1 - i].h.attributes & KW_ATTR_CONTROL) n = s.count - 1 - i;
    if (n) {
        const struct sim_batch *x = &s.v[sim_below(w, n)];
        snprintf(file, size, "%s.log", s.segments[x->segment].path);
        *at = x->position + sim_below(w, x->size);
    }
    sim_scan_deinit(&s);
    return n > 0;
}

static bool is_meta_snapshot(const char *n) {
    return ends(n, ".checkpoint");
}

static bool meta_snapshot_place(struct sim_world *w, struct sim_broker *b, char *file, size_t size, size_t *at) {
    char **names;
    size_t n = sim_disk_names(b->disk, META_DIR, &names), found = 0, bytes;
    for (size_t i = 0; i < n; i++) {
        if (is_meta_snapshot(names[i]) && sim_below(w, ++found) == 0) snprintf(file, size, META_DIR "/%s", names[i]);
        free(names[i]);
    }
    free(names);
    if (!found || !sim_disk_peek(b->disk, file, &bytes) || !bytes) return false;
    *at = sim_below(w, bytes);
    return true;
}

/* One bit, one at a time. The node finds it, or does not need what it hit. */
void sim_fault_rot_meta(struct sim_run *r, struct sim_broker *b) {
    struct sim_meta_rot *x = &r->meta_rot;
    struct sim_world *w = &r->w;
    size_t n;
    if (x->there) return;
    bool found = sim_below(w, 3) ? meta_log_place(w, b, x->file, sizeof x->file, &x->at) : meta_snapshot_place(w, b, x->file, sizeof x->file, &x->at);
    if (!found) return;
    x->there = true;
    x->node = b->index;
    x->clean = clean_stop(b);
    x->mask = (uint8_t)(1u << sim_below(w, 8));
    sim_disk_rot(b->disk, x->file, x->at, x->mask);
    x->rotten = sim_disk_peek(b->disk, x->file, &n)[x->at];
    sim_fire(w, SIM_F_META_ROT);
    sim_trace(w, "%s: %s: a bit turns at %zu", b->host.name, x->file, x->at);
}

void sim_fault_meta_ready(struct sim_run *r, struct sim_broker *b) {
    struct sim_meta_rot *x = &r->meta_rot;
    size_t n;
    if (!x->there || x->node != b->index) return;
    const uint8_t *p = sim_disk_peek(b->disk, x->file, &n);
    if (p && x->at < n && p[x->at] == x->rotten) sim_disk_rot(b->disk, x->file, x->at, x->mask); /* mended before it is needed */
    x->there = false;
}

/* The node did not start: the administrator brings the file back from a copy. (So he does when a start after a clean stop is killed: the next
 * one does not know any more that the stop was clean.) */
void sim_fault_meta_dead(struct sim_run *r, struct sim_broker *b) {
    struct sim_meta_rot *x = &r->meta_rot;
    size_t n;
    bool failed = b->death == SIM_DEATH_FAILED;
    if (!x->there || x->node != b->index || !(failed || x->clean)) return;
    x->there = false;
    if (failed && !b->disk_was_broken) sim_fire(&r->w, SIM_F_META_REFUSED);
    if (!sim_disk_peek(b->disk, x->file, &n) || x->at >= n)
        sim_fail(&r->w, 24, "%s: %s: the start was refused, but what had rotted at %zu is cut off", b->host.name, x->file, x->at);
    sim_disk_rot(b->disk, x->file, x->at, x->mask);
}

void sim_faults_before_start(struct sim_run *r) {
    if (sim_chance(&r->w, r->plan.tamper_ppm)) sim_fault_tamper(&r->w, &r->nodes[0], false);
    sim_guids_before_start(r, &r->nodes[0]);
    if (sim_chance(&r->w, r->plan.rot_ppm)) rot(r);
    if (sim_chance(&r->w, r->plan.meta_rot_ppm)) sim_fault_rot_meta(r, &r->nodes[0]);
}

/* ---- While it runs ---- */

void sim_fault_hang(struct sim_run *r) {
    struct sim_disk_faults *f = sim_disk_faults(r->nodes[0].disk);
    if (r->nodes[0].life == SIM_DOWN) return;
    int64_t t = sim_range(&r->w, 50 * SIM_MS, sim_below(&r->w, 3) ? 2 * SIM_S : 20 * SIM_S);
    sim_fire(&r->w, SIM_F_HUNG);
    sim_trace(&r->w, "the disk hangs for %lld ms", (long long)t / 1000);
    f->hung_until_us = sim_broker_now(&r->nodes[0]).mono_us + t;
}

void sim_fault_eio(struct sim_run *r) {
    struct sim_disk_faults *f = sim_disk_faults(r->nodes[0].disk);
    int64_t n = (int64_t)sim_below(&r->w, 60);
    f->sync_sticks = sim_below(&r->w, 2);
    switch (sim_below(&r->w, 3)) {
    case 0:
        f->eio_read_at = n;
        break;
    case 1:
        f->eio_write_at = n;
        break;
    default:
        f->eio_sync_at = n / 4;
        break;
    }
    sim_trace(&r->w, "the disk is to fail");
}

static void enough_space(void *ctx, uint64_t arg) {
    struct sim_run *r = ctx;
    (void)arg;
    sim_disk_faults(r->nodes[0].disk)->enospc_at = -1;
    sim_disk_faults(r->nodes[0].disk)->free_bytes = -1;
    sim_trace(&r->w, "the disk has space again");
}
void sim_fault_full(struct sim_run *r) {
    struct sim_disk_faults *f = sim_disk_faults(r->nodes[0].disk);
    if (f->free_bytes >= 0) return;
    f->free_bytes = sim_below(&r->w, 3) ? (int64_t)sim_below(&r->w, 100000) : 0;
    if (sim_below(&r->w, 2)) f->enospc_at = (int64_t)sim_below(&r->w, 60); /* or at some one call, and nowhere else */
    sim_fire(&r->w, SIM_F_FULL);
    sim_trace(&r->w, "the disk has %lld bytes left", (long long)f->free_bytes);
    sim_at(&r->w, r->w.now_us + sim_range(&r->w, 100 * SIM_MS, 10 * SIM_S), enough_space, r, 0);
}

/* Called as it happens: all that is known of that log afterwards is that nothing wrong may be served. */
static void misdirects(void *ctx, const char *path) {
    struct sim_run *r = ctx;
    struct sim_log *l = sim_log_of_path(r, path);
    if (l) l->tainted = l->misdirected = true;
    sim_trace(&r->w, "a write of %s goes astray", path);
}

void sim_fault_misdirect(struct sim_run *r) {
    struct sim_disk_faults *f = sim_disk_faults(r->nodes[0].disk);
    f->spare = "__c"; /* of one copy of the metadata, or of __consumer_offsets, nothing can be asked */
    f->misdirects = misdirects;
    f->misdirects_ctx = r;
    f->misdirect_at = (int64_t)sim_below(&r->w, 20);
}
