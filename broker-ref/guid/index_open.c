/* index_open.c - an index's life: what its folder holds is taken over as far as the log bears it out; it is written, and let go. Contract: index.h.
 *
 * A run is believed as far as the log still has the records that it was made of: it ends at the latest where the log does, and where the caller's trust
 * does, and the log has its last record under the leader epoch under which it was indexed; one that reaches beyond the log's end, the log's last record
 * under that epoch. One offset in one epoch is one record, with all before it; so a mask that could not be stored, or a folder that stayed behind when
 * dedup was switched off, is found out.
 */
#include "index_priv.h"

#include <stdio.h>

#include "../log/epochs.h"
#include "base/rng.h"

/* ---- The job: reads guid/ ---- */

struct opening {
    struct kb_guid_index *ix;
    char *dir;
    int64_t trust_to;
    void (*done)(void *ctx, struct kb_guid_index *index, kw_err err, struct kb_now now);
    void *ctx;
    /* of the job */
    kw_err err;
    bool found_dir, found;
    struct kb_manifest manifest;
    struct kb_run_facts facts[KB_MANIFEST_RUNS_MAX];
    struct kb_run_tail tails[KB_MANIFEST_RUNS_MAX];
    size_t loaded; /* runs; what is above the first that could not be is not */
    char why[200]; /* something could not be read */
};

static void opening_free(struct opening *o) {
    if (!o) return;
    for (size_t i = 0; i < KB_MANIFEST_RUNS_MAX; i++) kb_run_tail_deinit(&o->tails[i]);
    kw_free(o->dir);
    kw_free(o);
}

static char *in_dir(const char *dir, const char *name) {
    size_t n = strlen(dir) + strlen(name) + 2;
    char *p = kw_malloc(n);
    if (p) snprintf(p, n, "%s/%s", dir, name);
    return p;
}

static const char *text_of(kw_err err) {
    return err == KW_ECRC ? "it fails its checksum" : err == KW_EIO ? "it cannot be read" : err == KW_ENOMEM ? "out of memory" : "it is not what it should be";
}

static kw_err read_manifest(struct opening *o, struct kb_fs *fs) {
    uint8_t p[KB_MANIFEST_SIZE_MAX + 1];
    void *file;
    int64_t size;
    size_t have = 0, got = 1;
    char *path = in_dir(o->dir, "manifest");
    if (!path) return KW_ENOMEM;
    enum kb_disk_err err = fs->ops->open(fs, path, 0, &file, &size);
    kw_free(path);
    if (err == KB_DISK_ENOENT) return KW_OK;
    if (err != KB_DISK_OK) return err == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO;
    while (err == KB_DISK_OK && got > 0 && have < sizeof(p)) {
        err = fs->ops->read(fs, file, (int64_t)have, p + have, sizeof(p) - have, &got);
        have += err == KB_DISK_OK ? got : 0;
    }
    fs->ops->close(fs, file);
    if (err != KB_DISK_OK) return KW_EIO;
    kw_err e = kb_manifest_decode(&o->manifest, p, have);
    o->found = e == KW_OK;
    return e;
}

static kw_err load_runs(struct opening *o, struct kb_fs *fs) {
    for (size_t i = 0; i < o->manifest.count; i++) {
        const struct kb_manifest_run *m = &o->manifest.runs[i];
        char name[32];
        snprintf(name, sizeof(name), "%016llx.run", (unsigned long long)m->seq);
        char *path = in_dir(o->dir, name);
        kw_err err = path ? kb_run_load(fs, path, m->seq, &o->facts[i], &o->tails[i]) : KW_ENOMEM;
        kw_free(path);
        if (err == KW_OK && (o->facts[i].base != m->base || o->facts[i].end < m->valid_to)) err = KW_EDECODE;
        if (err != KW_OK) {
            snprintf(o->why, sizeof(o->why), "%s: %s", name, text_of(err));
            return err == KW_ENOMEM ? err : KW_OK;
        }
        o->loaded++;
    }
    return KW_OK;
}

static bool is_named(const struct opening *o, const char *name) {
    char run[32];
    if (strcmp(name, "manifest") == 0) return true;
    for (size_t i = 0; i < o->manifest.count; i++) {
        snprintf(run, sizeof(run), "%016llx.run", (unsigned long long)o->manifest.runs[i].seq);
        if (strcmp(name, run) == 0) return true;
    }
    return false;
}

/* Files of jobs that did not come to be named, and those that were to go. */
static void open_run(void *arg, struct kb_fs *fs) {
    struct opening *o = arg;
    uint8_t *names = NULL;
    int64_t count = 0;
    enum kb_disk_err derr = fs->ops->list(fs, o->dir, &names, &count);
    if (derr == KB_DISK_ENOENT) return;
    o->found_dir = derr == KB_DISK_OK;
    o->err = derr == KB_DISK_ENOMEM ? KW_ENOMEM : KW_OK;
    if (derr != KB_DISK_OK) snprintf(o->why, sizeof(o->why), "the folder: %s", kb_disk_text(derr));
    kw_err err = derr == KB_DISK_OK ? read_manifest(o, fs) : KW_OK;
    if (err != KW_OK) snprintf(o->why, sizeof(o->why), "manifest: %s", text_of(err));
    if (err == KW_ENOMEM) o->err = err;
    if (o->err == KW_OK && o->found) o->err = load_runs(o, fs);
    const char *z = (const char *)names;
    for (int64_t i = 0; i < count && o->err == KW_OK; i++, z += strlen(z) + 1) {
        char *path = is_named(o, z) ? NULL : in_dir(o->dir, z);
        if (path) (void)fs->ops->unlink(fs, path);
        kw_free(path);
    }
    kw_free(names);
}

/* ---- What of it counts ---- */

/* The log has the record below `end` that was there when this was written. */
static bool borne_out(const struct kb_log *log, int64_t end, int32_t epoch) {
    return end <= log->leo && (end <= log->start || kb_epochs_at(log->epochs, end - 1) == epoch);
}

/* false: nothing of it does, nor of what is above it. */
static bool take_run(struct opening *o, size_t i, struct kb_now now) {
    struct kb_guid_index *ix = o->ix;
    const struct kb_log *log = ix->log;
    struct kb_manifest_run m = o->manifest.runs[i];
    int64_t limit = KW_MIN(o->trust_to, log->leo), newest = o->facts[i].newest_wall_ms, oldest = KW_MIN(o->facts[i].oldest_wall_ms, newest);
    if (m.base >= limit) return false;
    if (m.valid_to <= log->leo && !borne_out(log, m.valid_to, m.epoch)) return false;
    if (m.valid_to > log->leo && kb_epochs_at(log->epochs, log->leo - 1) != m.epoch) return false; /* an earlier one may have had others there */
    struct kb_guid_run *r = kb_guid_run_new(ix, &o->facts[i], &o->tails[i]);
    if (!r) {
        o->err = KW_ENOMEM;
        return false;
    }
    r->valid_to = m.valid_to;
    r->epoch = m.epoch;
    if (m.valid_to > limit) {
        r->valid_to = limit;
        r->epoch = kb_epochs_at(log->epochs, limit - 1);
    }
    /* The wall clock says how old it is; never younger than new. A clock that was set since the start has made nothing older. */
    int64_t longest = INT64_MAX / 4000;
    r->newest_us = now.mono_us - KW_MIN(KW_MAX(kb_guid_wall_early(ix->env, now) - newest, INT64_C(0)), longest) * 1000;
    r->oldest_us = r->newest_us - KW_MIN(newest - oldest, longest) * 1000;
    r->forgotten_to = KW_MAX(r->forgotten_to, KW_MIN(log->start, r->valid_to));
    uint64_t version = ix->version;
    kb_guid_run_insert(ix, ix->run_count, r);
    ix->version = r->valid_to < m.valid_to ? version + 1 : version;
    return r->valid_to == m.valid_to;
}

static void take(struct opening *o, struct kb_now now) {
    struct kb_guid_index *ix = o->ix;
    const struct kb_manifest *m = &o->manifest;
    size_t i = 0;
    ix->dir_made = o->found_dir;
    if (!o->found) {
        ix->key[0] = kw_rng_next(ix->env->rng);
        ix->key[1] = kw_rng_next(ix->env->rng);
        return;
    }
    ix->key[0] = m->key[0];
    ix->key[1] = m->key[1];
    ix->next_seq = m->next_seq;
    while (i < o->loaded && take_run(o, i, now)) i++;
    ix->end = ix->run_count > 0 ? ix->runs[ix->run_count - 1]->valid_to : 0;
    if (ix->run_count < m->count) ix->version++;
    bool whole = i == m->count && m->end <= o->trust_to;
    if (whole && m->end > ix->end && borne_out(ix->log, m->end, m->end_epoch)) ix->end = m->end;
    kb_guid_expire(ix, now);
}

static void opened_end(void *ctx, struct kb_now now) {
    struct opening *o = ctx;
    struct kb_guid_index *ix = o->ix;
    void (*done)(void *, struct kb_guid_index *, kw_err, struct kb_now) = o->done;
    void *of = o->ctx;
    ix->opening = NULL;
    opening_free(o);
    done(of, ix, KW_OK, now);
}

static void opened(struct kb_guid_op *op, struct kb_now now) {
    struct opening *o = op->ctx;
    struct kb_guid_index *ix = o->ix;
    if (ix->closed) {
        opening_free(o);
        return;
    }
    if (op->req.err != KB_DISK_OK) o->err = KW_EIO;
    if (o->why[0]) kb_say(ix->env->logger, KB_WARN, "%s: %s; its ids are read from the log again", ix->dir, o->why);
    if (o->err == KW_OK) take(o, now);
    if (o->err != KW_OK) {
        kw_err err = o->err;
        void (*done)(void *, struct kb_guid_index *, kw_err, struct kb_now) = o->done;
        void *ctx = o->ctx;
        opening_free(o);
        kb_guid_free(ix);
        done(ctx, NULL, err, now);
        return;
    }
    if (ix->version == ix->stored) {
        opened_end(o, now);
        return;
    }
    ix->cut_version = ix->version; /* what does not count is masked, before anything is appended */
    ix->cut_done = opened_end;
    ix->cut_ctx = ix->opening = o;
    kb_guid_manifest_step(ix, now);
    if (!ix->writing_version) { /* no memory for it: the epochs are what is left */
        ix->cut_done = NULL;
        opened_end(o, now);
    }
}

kw_err kb_guid_open(const struct kb_guid_open *in, struct kb_guid_index **index, struct kb_now now) {
    struct kb_guid_index *ix = kw_calloc(1, sizeof(*ix));
    struct opening *o = kw_calloc(1, sizeof(*o));
    (void)now;
    if (!ix || !o) goto fail;
    ix->env = in->env;
    ix->log = in->log;
    ix->start_seen = in->log->start;
    ix->went_back = in->went_back;
    ix->owner_ctx = in->ctx;
    ix->highest = 0;
    ix->lowest = ~(kb_id128)0;
    kb_guid_window_set(ix, in->window_ms);
    kw_list_init(&ix->link);
    kw_list_init(&ix->by_size);
    kw_list_init(&ix->doomed);
    kw_list_init(&ix->searches);
    ix->dir = in_dir(in->log->dir, "guid");
    o->dir = in_dir(in->log->dir, "guid");
    o->ix = ix;
    o->trust_to = in->trust_to;
    o->done = in->done;
    o->ctx = in->ctx;
    struct kb_guid_op *op = kb_guid_op_new(ix, KB_DISK_JOB, KB_LANE_JOB, opened);
    if (!op || !ix->dir || !o->dir) {
        kb_guid_op_free(op);
        goto fail;
    }
    op->ctx = op->req.job_arg = o;
    op->req.job = open_run;
    kb_guid_op_submit(op);
    kw_list_push(&in->env->indexes, &ix->link);
    *index = ix;
    return KW_OK;
fail:
    opening_free(o);
    if (ix) kw_free(ix->dir);
    kw_free(ix);
    return KW_ENOMEM;
}

/* ---- The end ---- */

static void destroy(struct kb_guid_index *ix) {
    KW_ASSERT(kw_list_empty(&ix->searches) && !ix->flush && !ix->merge);
    opening_free(ix->opening);
    while (ix->table_count > 0) kb_guid_table_drop(ix, ix->table_count - 1);
    for (size_t i = 0; i < ix->run_count; i++) kb_guid_run_unref(ix->runs[i]);
    for (struct kw_list *l; (l = kw_list_shift(&ix->doomed));) kb_guid_run_unref(KW_CONTAINER_OF(l, struct kb_guid_run, doomed));
    kw_list_remove(&ix->link);
    kw_free(ix->dir);
    kw_free(ix);
}

static void removed(struct kb_guid_op *op, struct kb_now now) {
    struct kb_guid_index *ix = op->ix;
    if (op->req.err != KB_DISK_OK)
        kb_say(ix->env->logger, KB_WARN, "%s cannot be removed (%s): what of it does not fit the log will not be believed", ix->dir, kb_disk_text(op->req.err));
    if (ix->gone) ix->gone(ix->gone_ctx, now);
    ix->gone = NULL;
}

void kb_guid_try_destroy(struct kb_guid_index *ix) {
    if (!ix->closed || ix->ops > 0) return;
    if (ix->removing) {
        ix->removing = false;
        struct kb_guid_op *op = ix->remove;
        ix->remove = NULL;
        kb_guid_op_submit(op);
        return;
    }
    destroy(ix);
}

static void close_index(struct kb_guid_index *ix) {
    ix->closed = true;
    ix->cut_done = NULL;
    ix->stop_done = NULL;
    kw_list_remove(&ix->link);
    while (ix->table_count > 0 && !ix->tables[ix->table_count - 1]->writing) kb_guid_table_drop(ix, ix->table_count - 1);
    if (ix->merge) atomic_store_explicit(&ix->merge->stop, true, memory_order_relaxed);
    kb_guid_try_destroy(ix);
}

void kb_guid_free(struct kb_guid_index *ix) {
    if (ix) close_index(ix);
}

kw_err kb_guid_remove(struct kb_guid_index *ix, void (*gone)(void *ctx, struct kb_now now), void *ctx) {
    ix->remove = kb_guid_op_new(ix, KB_DISK_UNLINK, KB_LANE_JOB, removed);
    if (ix->remove) ix->remove->path = kw_memdup(ix->dir, strlen(ix->dir) + 1);
    if (!ix->remove || !ix->remove->path) {
        kb_guid_op_free(ix->remove);
        ix->remove = NULL;
        return KW_ENOMEM;
    }
    ix->remove->req.flags = KB_DISK_RECURSIVE;
    ix->removing = true;
    ix->gone = gone;
    ix->gone_ctx = ctx;
    close_index(ix);
    return KW_OK;
}

/* ---- A clean stop ---- */

static void nothing(void *arg, struct kb_fs *fs) {
    (void)arg, (void)fs;
}
static void nudged(struct kb_guid_op *op, struct kb_now now) {
    op->ix->stop_turned = true;
    kb_guid_work(op->ix, now);
}

void kb_guid_stop_step(struct kb_guid_index *ix, struct kb_now now) {
    if (!ix->stop_done || !ix->stop_turned || ix->flush || ix->merge || ix->writing_version) return;
    bool tables = ix->table_count > 0 && !ix->stop_tried && !ix->log->poisoned;
    if (tables && ix->log->written < ix->tables[0]->end) return; /* the log is being written; else it could not be begun */
    if (!ix->stop_written && ix->dir_made && !ix->log->poisoned) { /* and how far all that reaches */
        ix->stop_written = true;
        ix->version++;
        ix->manifest_retry_us = 0;
        kb_guid_manifest_step(ix, now);
        if (ix->writing_version) return;
    }
    void (*done)(void *, struct kb_now) = ix->stop_done;
    ix->stop_done = NULL;
    done(ix->stop_ctx, now);
}

kw_err kb_guid_shutdown(struct kb_guid_index *ix, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now) {
    struct kb_guid_op *op = kb_guid_op_new(ix, KB_DISK_JOB, KB_LANE_JOB, nudged);
    if (!op) return KW_ENOMEM;
    op->req.job = nothing;
    ix->stopping = true;
    ix->stop_done = done;
    ix->stop_ctx = ctx;
    ix->flush_retry_us = 0;
    kb_guid_freeze(ix);
    if (ix->merge) atomic_store_explicit(&ix->merge->stop, true, memory_order_relaxed);
    kb_guid_op_submit(op);
    kb_guid_work(ix, now);
    return KW_OK;
}
