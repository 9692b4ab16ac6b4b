/* sim_disk.c - the simulated disk: takes requests, carries them out in virtual time, breaks as told. Called by the simulator's world and by the
 * log's tests; calls sim_tree. */
#include "sim_disk.h"

#include <stdio.h>
#include <stdlib.h>

#include "sim_tree.h"

struct sim_file { /* an open handle */
    struct sim_node *node;
    int64_t ordered_us, read_us, truncate_us; /* when the last of its kind is done */
};
struct pending {
    struct kb_disk_req *req;
    int64_t at_us;
    uint64_t order;
};
struct sim_disk {
    struct kw_rng rng;
    struct sim_disk_options o;
    struct sim_disk_faults faults;
    struct sim_node *root;
    struct pending *v; /* sorted by (at_us, order) */
    size_t count, cap;
    uint64_t next_order, next_change, ops, fired[SIM_DISK_FAULT_COUNT];
    size_t used; /* bytes in files, roughly */
    bool dead;
    bool job_cut;
    int64_t job_calls; /* left before the cut; -1: endless */
    struct kb_now now;
    struct kb_fs fs;
};

static void *need(void *p) {
    if (!p) abort();
    return p;
}

const char *sim_disk_fault_name(enum sim_disk_fault f) {
    static const char *const names[] = {"enospc", "eio read", "eio write", "eio sync", "short write", "slow", "rot", "misdirected",
                                        "kill", "torn write", "power loss", "lost sector", "lost name", "lost size", "job cut", "bad sector"};
    return f < SIM_DISK_FAULT_COUNT ? names[f] : "?";
}

struct sim_disk_faults *sim_disk_faults(struct sim_disk *d) { return &d->faults; }
uint64_t sim_disk_fired(const struct sim_disk *d, enum sim_disk_fault f) { return d->fired[f]; }
uint64_t sim_disk_ops(const struct sim_disk *d) { return d->ops; }

/* ---- Faults ---- */

static bool countdown(int64_t *n) { return *n >= 0 && (*n)-- == 0; }

static bool fails(struct sim_disk *d, int64_t *at, uint32_t ppm, enum sim_disk_fault f) {
    if (!countdown(at) && !(ppm && kw_rng_chance(&d->rng, ppm))) return false;
    d->fired[f]++;
    return true;
}

static bool no_space(struct sim_disk *d, size_t n) {
    bool full = d->faults.free_bytes >= 0 && (int64_t)n > d->faults.free_bytes;
    if (full) d->fired[SIM_DISK_ENOSPC]++;
    return full || fails(d, &d->faults.enospc_at, d->faults.enospc_ppm, SIM_DISK_ENOSPC);
}

static void space_taken(struct sim_disk *d, size_t before, size_t after) {
    if (d->faults.free_bytes < 0) return;
    d->faults.free_bytes -= (int64_t)after - (int64_t)before;
    if (d->faults.free_bytes < 0) d->faults.free_bytes = 0;
}

/* ---- Operations on the tree, shared by requests and jobs ---- */

static void put(struct sim_disk *d, struct sim_node *n, int64_t offset, const uint8_t *p, size_t len) {
    size_t before = n->size;
    if ((size_t)offset + len > n->size) sim_node_resize(n, (size_t)offset + len);
    if (len) memcpy(n->data + offset, p, len);
    sim_node_changed(n, (size_t)offset, (size_t)offset + len);
    if (n->bad && n->bad_at >= (size_t)offset && n->bad_at < (size_t)offset + len) n->bad = false;
    n->mtime_ms = d->now.wall_ms;
    space_taken(d, before, n->size);
    if (!d->o.writeback_ppm || !kw_rng_chance(&d->rng, d->o.writeback_ppm) || !n->size) return;
    size_t at = (size_t)kw_rng_below(&d->rng, n->size) / SIM_SECTOR * SIM_SECTOR, k = n->size - at < SIM_SECTOR ? n->size - at : SIM_SECTOR;
    sim_node_writeback(n, at, at + k);
}

static enum kb_disk_err op_write(struct sim_disk *d, struct sim_node *n, int64_t offset, const uint8_t *p, size_t len) {
    if (fails(d, &d->faults.eio_write_at, d->faults.eio_write_ppm, SIM_DISK_EIO_WRITE)) return KB_DISK_EIO;
    size_t grows = (size_t)offset + len > n->size ? (size_t)offset + len - n->size : 0;
    if (no_space(d, grows)) {
        size_t part = len ? (size_t)kw_rng_below(&d->rng, len) : 0; /* what fitted is there */
        if (part) d->fired[SIM_DISK_SHORT_WRITE]++;
        put(d, n, offset, p, part);
        return KB_DISK_ENOSPC;
    }
    bool spared = d->faults.spare && strstr(n->opened_as, d->faults.spare);
    if (!spared && countdown(&d->faults.misdirect_at) && n->size >= 2 * SIM_SECTOR) { /* lands on a sector that is not its */
        d->fired[SIM_DISK_MISDIRECTED]++;
        if (d->faults.misdirects) d->faults.misdirects(d->faults.misdirects_ctx, n->opened_as);
        sim_node_resize(n, n->size > (size_t)offset + len ? n->size : (size_t)offset + len);
        size_t at = (size_t)kw_rng_below(&d->rng, n->size / SIM_SECTOR) * SIM_SECTOR;
        put(d, n, (int64_t)at, p, len < n->size - at ? len : n->size - at);
        return KB_DISK_OK;
    }
    put(d, n, offset, p, len);
    return KB_DISK_OK;
}

static enum kb_disk_err op_open(struct sim_disk *d, const char *path, uint32_t flags, struct sim_file **f, int64_t *size) {
    const char *name;
    struct sim_node *dir = sim_tree_parent(d->root, path, &name);
    if (!dir) return KB_DISK_ENOENT;
    struct sim_node *n = sim_folder_get(dir, name);
    if (n && (flags & KB_DISK_EXCLUSIVE)) return KB_DISK_EEXIST;
    if (n && n->folder) return KB_DISK_EOTHER;
    if (!n && !(flags & KB_DISK_CREATE)) return KB_DISK_ENOENT;
    if (!n) {
        if (no_space(d, 1)) return KB_DISK_ENOSPC; /* its name takes some, too */
        n = sim_node_new(false);
        n->mtime_ms = d->now.wall_ms;
        sim_folder_set(dir, name, n, d->next_change++);
        sim_node_unref(n);
    }
    snprintf(n->opened_as, sizeof n->opened_as, "%s", path);
    *f = need(calloc(1, sizeof(**f)));
    (*f)->node = sim_node_ref(n);
    *size = (int64_t)n->size;
    return KB_DISK_OK;
}

static void op_close(struct sim_file *f) {
    sim_node_unref(f->node);
    free(f);
}

static enum kb_disk_err op_read(struct sim_disk *d, const struct sim_node *n, int64_t offset, uint8_t *buf, size_t len, size_t *got) {
    if (fails(d, &d->faults.eio_read_at, d->faults.eio_read_ppm, SIM_DISK_EIO_READ)) return KB_DISK_EIO;
    *got = 0;
    if ((size_t)offset >= n->size) return KB_DISK_OK;
    *got = n->size - (size_t)offset < len ? n->size - (size_t)offset : len;
    if (n->bad && n->bad_at >= (size_t)offset && n->bad_at < (size_t)offset + *got) {
        d->fired[SIM_DISK_BAD_SECTOR]++;
        return KB_DISK_EIO;
    }
    memcpy(buf, n->data + offset, *got);
    return KB_DISK_OK;
}

static enum kb_disk_err op_sync(struct sim_disk *d, struct sim_node *n) {
    if (fails(d, &d->faults.eio_sync_at, d->faults.eio_sync_ppm, SIM_DISK_EIO_SYNC)) {
        n->stuck = d->faults.sync_sticks;
        return KB_DISK_EIO;
    }
    if (!n->stuck) sim_node_sync(n);
    return KB_DISK_OK;
}

static void op_truncate(struct sim_disk *d, struct sim_node *n, int64_t length) {
    size_t before = n->size;
    if ((size_t)length <= n->bad_at) n->bad = false;
    sim_node_resize(n, (size_t)length);
    n->mtime_ms = d->now.wall_ms;
    space_taken(d, before, n->size);
}

static enum kb_disk_err op_sync_dir(struct sim_disk *d, const char *path) {
    struct sim_node *n = sim_tree_find(d->root, path);
    if (!n || !n->folder) return KB_DISK_ENOENT;
    if (fails(d, &d->faults.eio_sync_at, d->faults.eio_sync_ppm, SIM_DISK_EIO_SYNC)) return KB_DISK_EIO;
    sim_folder_sync(n);
    return KB_DISK_OK;
}

static enum kb_disk_err op_rename(struct sim_disk *d, const char *from, const char *to, bool sync) {
    const char *a, *b;
    struct sim_node *da = sim_tree_parent(d->root, from, &a), *db = sim_tree_parent(d->root, to, &b);
    struct sim_node *n = da ? sim_folder_get(da, a) : NULL;
    if (!n || !db) return KB_DISK_ENOENT;
    sim_node_ref(n);
    uint64_t id = d->next_change++;
    sim_folder_set(db, b, n, id);
    sim_folder_set(da, a, NULL, id);
    sim_node_unref(n);
    if (!sync) return KB_DISK_OK;
    if (fails(d, &d->faults.eio_sync_at, d->faults.eio_sync_ppm, SIM_DISK_EIO_SYNC)) return KB_DISK_EIO;
    sim_folder_sync(da);
    sim_folder_sync(db);
    return KB_DISK_OK;
}

static enum kb_disk_err op_unlink(struct sim_disk *d, const char *path, bool recursive) {
    const char *name;
    struct sim_node *dir = sim_tree_parent(d->root, path, &name);
    struct sim_node *n = dir ? sim_folder_get(dir, name) : NULL;
    if (!n) return KB_DISK_OK;
    if (n->folder && !recursive) return KB_DISK_EOTHER;
    space_taken(d, n->size, 0);
    sim_folder_set(dir, name, NULL, d->next_change++);
    return KB_DISK_OK;
}

static enum kb_disk_err op_mkdir(struct sim_disk *d, const char *path) {
    const char *name;
    struct sim_node *dir = sim_tree_parent(d->root, path, &name);
    if (!dir) return KB_DISK_ENOENT;
    struct sim_node *n = sim_folder_get(dir, name);
    if (n) return n->folder ? KB_DISK_OK : KB_DISK_EEXIST;
    if (no_space(d, 1)) return KB_DISK_ENOSPC;
    n = sim_node_new(true);
    sim_folder_set(dir, name, n, d->next_change++);
    sim_node_unref(n);
    return KB_DISK_OK;
}

static enum kb_disk_err op_list(struct sim_disk *d, const char *path, uint8_t **names, int64_t *count) {
    struct sim_node *n = sim_tree_find(d->root, path);
    if (!n || !n->folder) return KB_DISK_ENOENT;
    size_t total = 1;
    for (size_t i = 0; i < n->now.count; i++) total += strlen(n->now.v[i].name) + 1;
    uint8_t *p = kw_malloc(total);
    if (!p) return KB_DISK_ENOMEM;
    *names = p;
    *count = (int64_t)n->now.count;
    for (size_t i = 0; i < n->now.count; i++) {
        size_t k = strlen(n->now.v[i].name) + 1;
        memcpy(p, n->now.v[i].name, k);
        p += k;
    }
    return KB_DISK_OK;
}

static enum kb_disk_err op_write_atomic(struct sim_disk *d, const char *path, const struct kb_iov *iov, size_t count, bool sync) {
    const char *name;
    struct sim_node *dir = sim_tree_parent(d->root, path, &name);
    size_t total = 0;
    if (!dir) return KB_DISK_ENOENT;
    for (size_t i = 0; i < count; i++) total += iov[i].len;
    if (fails(d, &d->faults.eio_write_at, d->faults.eio_write_ppm, SIM_DISK_EIO_WRITE)) return KB_DISK_EIO;
    if (no_space(d, total)) return KB_DISK_ENOSPC;
    if (sync && fails(d, &d->faults.eio_sync_at, d->faults.eio_sync_ppm, SIM_DISK_EIO_SYNC)) return KB_DISK_EIO;
    struct sim_node *n = sim_node_new(false);
    for (size_t i = 0, at = 0; i < count; at += iov[i++].len) put(d, n, (int64_t)at, iov[i].p, iov[i].len);
    if (sync) sim_node_sync(n);
    sim_folder_set(dir, name, n, d->next_change++);
    sim_node_unref(n);
    if (sync) sim_folder_sync(dir);
    return KB_DISK_OK;
}

/* ---- Jobs' file interface ---- */

static bool job_dies(struct kb_fs *fs) {
    struct sim_disk *d = fs->ctx;
    d->ops++;
    if (d->job_calls < 0) return false;
    if (d->job_calls > 0) {
        d->job_calls--;
        return false;
    }
    if (!d->job_cut) d->fired[SIM_DISK_JOB_CUT]++;
    d->job_cut = true;
    return true;
}
static enum kb_disk_err fs_open(struct kb_fs *fs, const char *path, uint32_t flags, void **file, int64_t *size) {
    if (job_dies(fs)) return KB_DISK_EIO;
    struct sim_file *f;
    enum kb_disk_err err = op_open(fs->ctx, path, flags, &f, size);
    if (!err) *file = f;
    return err;
}
static void fs_close(struct kb_fs *fs, void *file) {
    (void)fs;
    op_close(file);
}
static enum kb_disk_err fs_read(struct kb_fs *fs, void *file, int64_t offset, void *buf, size_t n, size_t *got) {
    if (job_dies(fs)) return KB_DISK_EIO;
    return op_read(fs->ctx, ((struct sim_file *)file)->node, offset, buf, n, got);
}
static enum kb_disk_err fs_write(struct kb_fs *fs, void *file, int64_t offset, const void *buf, size_t n) {
    if (job_dies(fs)) return KB_DISK_EIO;
    return op_write(fs->ctx, ((struct sim_file *)file)->node, offset, buf, n);
}
static enum kb_disk_err fs_truncate(struct kb_fs *fs, void *file, int64_t length) {
    if (job_dies(fs)) return KB_DISK_EIO;
    op_truncate(fs->ctx, ((struct sim_file *)file)->node, length);
    return KB_DISK_OK;
}
static enum kb_disk_err fs_sync(struct kb_fs *fs, void *file) { return job_dies(fs) ? KB_DISK_EIO : op_sync(fs->ctx, ((struct sim_file *)file)->node); }
static enum kb_disk_err fs_rename(struct kb_fs *fs, const char *from, const char *to) {
    return job_dies(fs) ? KB_DISK_EIO : op_rename(fs->ctx, from, to, false);
}
static enum kb_disk_err fs_unlink(struct kb_fs *fs, const char *path) { return job_dies(fs) ? KB_DISK_EIO : op_unlink(fs->ctx, path, false); }
static enum kb_disk_err fs_sync_dir(struct kb_fs *fs, const char *path) { return job_dies(fs) ? KB_DISK_EIO : op_sync_dir(fs->ctx, path); }
static enum kb_disk_err fs_mkdir(struct kb_fs *fs, const char *path) { return job_dies(fs) ? KB_DISK_EIO : op_mkdir(fs->ctx, path); }
static enum kb_disk_err fs_list(struct kb_fs *fs, const char *path, uint8_t **names, int64_t *count) {
    return job_dies(fs) ? KB_DISK_EIO : op_list(fs->ctx, path, names, count);
}
static enum kb_disk_err fs_mtime(struct kb_fs *fs, const char *path, int64_t *wall_ms) {
    if (job_dies(fs)) return KB_DISK_EIO;
    struct sim_disk *d = fs->ctx;
    struct sim_node *n = sim_tree_find(d->root, path);
    if (!n) return KB_DISK_ENOENT;
    if (d->faults.no_mtimes) return KB_DISK_EIO;
    *wall_ms = n->mtime_ms;
    return KB_DISK_OK;
}
static const struct kb_fs_ops fs_ops = {fs_open,   fs_close,  fs_read,     fs_write, fs_truncate, fs_sync,
                                        fs_rename, fs_unlink, fs_sync_dir, fs_mkdir, fs_list,     fs_mtime, NULL};

struct kb_fs *sim_disk_fs(struct sim_disk *d) { return &d->fs; }
void sim_disk_cut_job(struct sim_disk *d, int64_t n) { d->job_calls = n; }

/* ---- Requests ---- */

static void do_append(struct sim_disk *d, struct kb_disk_req *r, struct sim_file *f) {
    int64_t at = r->offset;
    for (size_t i = 0; i < r->iov_count && !r->err; at += (int64_t)r->iov[i++].len) r->err = op_write(d, f->node, at, r->iov[i].p, r->iov[i].len);
    r->result = at;
}

static void do_read_file(struct sim_disk *d, struct kb_disk_req *r) {
    struct sim_node *n = sim_tree_find(d->root, r->path);
    if (!n || n->folder) r->err = KB_DISK_ENOENT;
    else if ((int64_t)n->size > r->length) r->err = KB_DISK_EFBIG;
    else if (fails(d, &d->faults.eio_read_at, d->faults.eio_read_ppm, SIM_DISK_EIO_READ)) r->err = KB_DISK_EIO;
    else if (n->bad) r->err = KB_DISK_EIO, d->fired[SIM_DISK_BAD_SECTOR]++;
    else if (!(r->data = kw_malloc(n->size))) r->err = KB_DISK_ENOMEM;
    else {
        if (n->size) memcpy(r->data, n->data, n->size);
        r->result = (int64_t)n->size;
    }
}

static void do_file(struct sim_disk *d, struct kb_disk_req *r) {
    struct sim_file *f = r->file->shell;
    size_t got = 0;
    switch (r->op) {
    case KB_DISK_OPEN:
        r->err = op_open(d, r->path, r->flags, &f, &r->result);
        if (!r->err) r->file->shell = f;
        break;
    case KB_DISK_CLOSE:
        op_close(f);
        r->file->shell = NULL;
        break;
    case KB_DISK_APPEND:
        do_append(d, r, f);
        break;
    case KB_DISK_READ:
        r->err = op_read(d, f->node, r->offset, r->buf, (size_t)r->length, &got);
        r->result = (int64_t)got;
        break;
    case KB_DISK_SYNC:
        r->err = op_sync(d, f->node);
        break;
    default:
        op_truncate(d, f->node, r->length);
        break;
    }
}

static void do_path(struct sim_disk *d, struct kb_disk_req *r) {
    switch (r->op) {
    case KB_DISK_WRITE_ATOMIC:
        r->err = op_write_atomic(d, r->path, r->iov, r->iov_count, r->flags & KB_DISK_SYNC_FLAG);
        break;
    case KB_DISK_READ_FILE:
        do_read_file(d, r);
        break;
    case KB_DISK_RENAME:
        r->err = op_rename(d, r->path, r->path2, r->flags & KB_DISK_SYNC_FLAG);
        break;
    case KB_DISK_UNLINK:
        r->err = op_unlink(d, r->path, r->flags & KB_DISK_RECURSIVE);
        break;
    case KB_DISK_MKDIR:
        r->err = op_mkdir(d, r->path);
        break;
    case KB_DISK_SYNC_DIR:
        r->err = op_sync_dir(d, r->path);
        break;
    case KB_DISK_LIST:
        r->err = op_list(d, r->path, &r->data, &r->result);
        break;
    case KB_DISK_SPACE:
        r->result = d->faults.free_bytes >= 0 ? d->faults.free_bytes : INT64_MAX;
        break;
    default:
        d->job_cut = false;
        r->job(r->job_arg, &d->fs);
        d->job_calls = -1;
        if (d->job_cut) r->err = KB_DISK_EIO;
        break;
    }
}

static bool on_file(const struct kb_disk_req *r) { return r->op <= KB_DISK_TRUNCATE && r->op != KB_DISK_WRITE_ATOMIC; }

static void carry_out(struct sim_disk *d, struct kb_disk_req *r) {
    d->ops++;
    if (on_file(r)) do_file(d, r);
    else do_path(d, r);
    if (r->err) r->os_errno = r->err == KB_DISK_ENOSPC ? 28 : r->err == KB_DISK_ENOENT ? 2 : 5;
}

static int64_t when(struct sim_disk *d, struct kb_disk_req *r, struct kb_now now) {
    int64_t t = now.mono_us;
    uint64_t spread = (uint64_t)(d->o.delay_max_us - d->o.delay_min_us + 1);
    if (!kw_rng_chance(&d->rng, d->o.inline_ppm)) t += d->o.delay_min_us + (int64_t)kw_rng_below(&d->rng, spread);
    if (d->o.sync_max_us && (r->op == KB_DISK_SYNC || r->op == KB_DISK_SYNC_DIR)) t += (int64_t)kw_rng_below(&d->rng, (uint64_t)d->o.sync_max_us);
    if (d->faults.slow_ppm && kw_rng_chance(&d->rng, d->faults.slow_ppm)) {
        t += d->faults.slow_us;
        d->fired[SIM_DISK_SLOW]++;
    }
    t = KW_MAX(t, d->faults.hung_until_us);
    if (!on_file(r) || r->op == KB_DISK_OPEN) return t;
    struct sim_file *f = r->file->shell;
    if (!f) { /* an operation on a file that is not open */
        fprintf(stderr, "sim_disk: operation %d on a file that is not open\n", (int)r->op);
        abort();
    }
    t = KW_MAX(t, f->truncate_us);
    if (r->op == KB_DISK_READ) {
        f->read_us = KW_MAX(f->read_us, t);
        return t;
    }
    t = KW_MAX(t, f->ordered_us);
    if (r->op == KB_DISK_TRUNCATE || r->op == KB_DISK_CLOSE) t = KW_MAX(t, f->read_us);
    if (r->op == KB_DISK_TRUNCATE) f->truncate_us = t;
    f->ordered_us = t;
    return t;
}

void sim_disk_take(struct sim_disk *d, struct kb_disk *q, struct kb_now now) {
    struct kb_disk_req *r;
    d->now = now;
    while ((r = kb_disk_take(q))) {
        if (d->count == d->cap) {
            d->cap = d->cap ? d->cap * 2 : 64;
            d->v = need(realloc(d->v, d->cap * sizeof(*d->v)));
        }
        struct pending p = {r, d->dead ? now.mono_us : when(d, r, now), d->next_order++};
        size_t i = d->count++;
        for (; i > 0 && d->v[i - 1].at_us > p.at_us; i--) d->v[i] = d->v[i - 1];
        d->v[i] = p;
    }
}

int64_t sim_disk_next(const struct sim_disk *d) { return d->count ? d->v[0].at_us : INT64_MAX; }

struct kb_disk_req *sim_disk_pop(struct sim_disk *d, struct kb_now now) {
    d->now = now;
    if (!d->count || d->v[0].at_us > now.mono_us) return NULL;
    struct kb_disk_req *r = d->v[0].req;
    memmove(d->v, d->v + 1, --d->count * sizeof(*d->v));
    if (!d->dead) {
        carry_out(d, r);
        return r;
    }
    if (r->op == KB_DISK_CLOSE) { /* the process is gone: so are its handles */
        op_close(r->file->shell);
        r->file->shell = NULL;
    }
    r->err = KB_DISK_EIO;
    r->os_errno = 5;
    return r;
}

size_t sim_disk_pread(struct sim_disk *d, const struct kb_file *f, int64_t offset, void *buf, size_t n) {
    (void)d;
    const struct sim_file *s = f->shell;
    if (!s || (size_t)offset >= s->node->size) return 0;
    size_t k = s->node->size - (size_t)offset < n ? s->node->size - (size_t)offset : n;
    memcpy(buf, s->node->data + offset, k);
    return k;
}

/* ---- Crashes ---- */

/* The first ordered operation of a file that is under way may have come part of its way; one path operation or job too. */
static void in_part(struct sim_disk *d, struct kb_disk_req *r) {
    if (r->op == KB_DISK_APPEND) {
        struct sim_file *f = r->file->shell;
        size_t total = (size_t)r->length, part = (size_t)kw_rng_below(&d->rng, total + 1);
        if (part && part < total) d->fired[SIM_DISK_TORN_WRITE]++;
        int64_t at = r->offset;
        for (size_t i = 0; i < r->iov_count && part; i++) {
            size_t k = r->iov[i].len < part ? r->iov[i].len : part;
            put(d, f->node, at, r->iov[i].p, k);
            at += (int64_t)k;
            part -= k;
        }
    } else if (r->op == KB_DISK_JOB) {
        d->job_calls = (int64_t)kw_rng_below(&d->rng, 40);
        carry_out(d, r);
    } else if (r->op != KB_DISK_OPEN && r->op != KB_DISK_READ && r->op != KB_DISK_CLOSE && r->op != KB_DISK_READ_FILE && r->op != KB_DISK_LIST) {
        if (kw_rng_below(&d->rng, 2)) carry_out(d, r);
    } else if (r->op == KB_DISK_OPEN && (r->flags & KB_DISK_CREATE) && kw_rng_below(&d->rng, 2)) {
        struct sim_file *f;
        int64_t size;
        if (!op_open(d, r->path, r->flags, &f, &size)) op_close(f);
    }
}

static void stop(struct sim_disk *d, struct kb_now now) {
    d->now = now;
    for (size_t i = 0; i < d->count; i++) {
        struct kb_disk_req *r = d->v[i].req;
        bool first = true; /* of its file: what stands behind another cannot have begun */
        for (size_t k = 0; k < i && on_file(r) && first; k++) first = d->v[k].req->file != r->file || d->v[k].req->op == KB_DISK_READ;
        if (first) in_part(d, r);
        if (r->data) {
            kw_free(r->data);
            r->data = NULL;
        }
        d->v[i].at_us = now.mono_us;
    }
    d->dead = true;
}

void sim_disk_kill9(struct sim_disk *d, struct kb_now now) {
    d->fired[SIM_DISK_KILL]++;
    stop(d, now);
}

void sim_disk_power_loss(struct sim_disk *d, struct kb_now now) {
    d->fired[SIM_DISK_POWER_LOSS]++;
    stop(d, now);
    struct sim_losses l = {0};
    sim_tree_power_loss(d->root, &d->rng, &l);
    d->fired[SIM_DISK_LOST_SECTOR] += l.sectors;
    d->fired[SIM_DISK_LOST_NAME] += l.names;
    d->fired[SIM_DISK_LOST_SIZE] += l.sizes;
}

void sim_disk_restart(struct sim_disk *d) {
    if (d->count) abort(); /* requests of the dead process are still out */
    d->dead = false;
    d->job_calls = -1;
    sim_tree_unstick(d->root);
}

/* ---- Life, and the outside's view ---- */

struct sim_disk *sim_disk_new(uint64_t seed, const struct sim_disk_options *o) {
    static const struct sim_disk_options usual = {.delay_min_us = 20, .delay_max_us = 2000};
    struct sim_disk *d = need(calloc(1, sizeof(*d)));
    kw_rng_init(&d->rng, seed);
    d->o = o ? *o : usual;
    d->faults.enospc_at = d->faults.free_bytes = d->faults.eio_read_at = d->faults.eio_write_at = d->faults.eio_sync_at = d->faults.misdirect_at = -1;
    d->root = sim_node_new(true);
    d->job_calls = -1;
    d->fs = (struct kb_fs){&fs_ops, d};
    return d;
}

void sim_disk_free(struct sim_disk *d) {
    if (d->count) abort();
    sim_node_unref(d->root);
    free(d->v);
    free(d);
}

const uint8_t *sim_disk_peek(struct sim_disk *d, const char *path, size_t *n) {
    static const uint8_t none;
    struct sim_node *x = sim_tree_find(d->root, path);
    if (!x || x->folder) return NULL;
    *n = x->size;
    return x->data ? x->data : &none;
}

void sim_disk_poke(struct sim_disk *d, const char *path, const void *p, size_t n) {
    char part[512];
    for (const char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(s - path), path);
        if (op_mkdir(d, part)) abort();
        const char *last;
        sim_folder_sync(sim_tree_parent(d->root, part, &last));
    }
    const char *name;
    struct sim_node *dir = sim_tree_parent(d->root, path, &name), *x = sim_folder_get(dir, name);
    if (!x) {
        x = sim_node_new(false);
        sim_folder_set(dir, name, x, d->next_change++);
        sim_node_unref(x);
    }
    sim_node_resize(x, n);
    if (n) memcpy(x->data, p, n);
    sim_node_changed(x, 0, n);
    sim_tree_sync_all(x);
    sim_folder_sync(dir);
}

void sim_disk_rot(struct sim_disk *d, const char *path, size_t offset, uint8_t mask) {
    struct sim_node *x = sim_tree_find(d->root, path);
    if (!x || offset >= x->size) abort();
    x->data[offset] ^= mask;
    if (offset < x->durable_size) x->durable[offset] ^= mask;
    d->fired[SIM_DISK_ROT]++;
}

void sim_disk_patch(struct sim_disk *d, const char *path, size_t offset, const uint8_t *p, size_t n) {
    struct sim_node *x = sim_tree_find(d->root, path);
    if (!x || offset + n > x->size) abort();
    memcpy(x->data + offset, p, n);
    if (offset < x->durable_size) memcpy(x->durable + offset, p, x->durable_size - offset < n ? x->durable_size - offset : n);
}

void sim_disk_misdirect(struct sim_disk *d, const char *path, size_t from, size_t n, size_t to) {
    struct sim_node *x = sim_tree_find(d->root, path);
    if (!x || from + n > x->size || to >= x->size) abort();
    uint8_t *copy = need(calloc(2, n));
    memcpy(copy, x->data + from, n);
    sim_disk_patch(d, path, from, copy + n, n);
    sim_disk_patch(d, path, to, copy, n < x->size - to ? n : x->size - to);
    free(copy);
    d->fired[SIM_DISK_MISDIRECTED]++;
}

void sim_disk_bad_sector(struct sim_disk *d, const char *path, size_t offset) {
    struct sim_node *x = sim_tree_find(d->root, path);
    if (!x || offset >= x->size) abort();
    x->bad = true;
    x->bad_at = offset;
}

static void remap(struct sim_node *n) {
    n->bad = false;
    for (size_t i = 0; i < n->now.count; i++) remap(n->now.v[i].node);
}
void sim_disk_remap(struct sim_disk *d) { remap(d->root); }

void sim_disk_cut(struct sim_disk *d, const char *path, size_t size) {
    struct sim_node *x = sim_tree_find(d->root, path);
    if (!x) abort();
    sim_node_resize(x, size);
    sim_node_sync(x);
}

void sim_disk_remove(struct sim_disk *d, const char *path) {
    const char *name;
    struct sim_node *dir = sim_tree_parent(d->root, path, &name);
    if (!dir || !sim_folder_get(dir, name)) abort();
    sim_folder_set(dir, name, NULL, d->next_change++);
    sim_folder_sync(dir);
}

size_t sim_disk_names(struct sim_disk *d, const char *dir, char ***names) {
    struct sim_node *n = sim_tree_find(d->root, dir);
    *names = NULL;
    if (!n || !n->folder) return 0;
    *names = need(calloc(n->now.count + 1, sizeof(char *)));
    for (size_t i = 0; i < n->now.count; i++) (*names)[i] = need(strdup(n->now.v[i].name));
    return n->now.count;
}

struct sim_disk_image {
    struct sim_node *root;
};
struct sim_disk_image *sim_disk_image_take(struct sim_disk *d) {
    struct sim_disk_image *i = need(calloc(1, sizeof(*i)));
    i->root = sim_tree_copy(d->root);
    return i;
}
void sim_disk_image_restore(struct sim_disk *d, struct sim_disk_image *i) {
    if (d->count || d->dead) abort();
    sim_node_unref(d->root);
    d->root = sim_node_ref(i->root);
    sim_disk_image_free(i);
}
void sim_disk_image_free(struct sim_disk_image *i) {
    if (!i) return;
    sim_node_unref(i->root);
    free(i);
}

void sim_disk_sync_all(struct sim_disk *d) { sim_tree_sync_all(d->root); }
uint64_t sim_disk_hash(struct sim_disk *d) { return sim_tree_hash(d->root, 14695981039346656037u); }
