/* index_disk.c - what an index does on the disk while it lives: tables are written, runs merged, the manifest kept, files removed. Contract: index.h.
 *
 * One flush and one merge at a time. A table is written once the log has written all that it covers, so that what a full disk takes back is never in a
 * run. The manifest is written after the files that it names, and before those that it does not name any more go.
 */
#include "index_priv.h"

#include <stdio.h>

#include "../log/epochs.h"

/* ---- Requests ---- */

struct kb_guid_op *kb_guid_op_new(struct kb_guid_index *ix, enum kb_disk_op what, enum kb_lane lane, void (*fn)(struct kb_guid_op *op, struct kb_now now)) {
    struct kb_guid_op *op = kw_calloc(1, sizeof(*op));
    if (!op) return NULL;
    op->ix = ix;
    op->fn = fn;
    op->req.op = what;
    op->req.lane = lane;
    return op;
}

void kb_guid_op_free(struct kb_guid_op *op) {
    if (!op) return;
    kw_free(op->bytes);
    kw_free(op->path);
    kw_free(op);
}

static void op_done(struct kb_disk_req *r, struct kb_now now) {
    struct kb_guid_op *op = KW_CONTAINER_OF(r, struct kb_guid_op, req);
    struct kb_guid_index *ix = op->ix;
    struct kb_log *log = ix->log;
    op->fn(op, now);
    kb_guid_op_free(op);
    ix->ops--;
    kb_guid_try_destroy(ix);
    kb_log_unpin(log);
}

void kb_guid_op_submit(struct kb_guid_op *op) {
    op->ix->ops++;
    kb_log_pin(op->ix->log); /* its folder is not renamed before this is done: a file that came late would lie in a successor's */
    op->req.path = op->path;
    op->req.done = op_done;
    if (op->bytes) {
        op->req.iov = &op->iov;
        op->req.iov_count = 1;
    }
    kb_disk_submit(op->ix->env->disk, &op->req);
}

char *kb_guid_path(const struct kb_guid_index *ix, const char *name) {
    size_t n = strlen(ix->dir) + strlen(name) + 2;
    char *p = kw_malloc(n);
    if (p) snprintf(p, n, "%s/%s", ix->dir, name);
    return p;
}

static void say_failed(struct kb_guid_index *ix, const char *what, const char *why) {
    if (ix->said) return;
    ix->said = true;
    kb_say(ix->env->logger, KB_WARN, "%s: %s cannot be written (%s); it is tried again, and until then a start reads more of the log", ix->dir, what, why);
}

/* ---- The manifest ---- */

static kw_err encode(const struct kb_guid_index *ix, struct kw_out *out) {
    struct kb_manifest *m = kw_calloc(1, sizeof(*m));
    if (!m) return KW_ENOMEM;
    m->key[0] = ix->key[0];
    m->key[1] = ix->key[1];
    m->next_seq = ix->next_seq;
    m->end = KW_MIN(kb_guid_covered(ix), ix->log->written); /* a full disk takes back the rest, and other records come to stand there */
    m->end_epoch = m->end > 0 ? kb_epochs_at(ix->log->epochs, m->end - 1) : -1;
    for (size_t i = 0; i < ix->run_count; i++) {
        const struct kb_guid_run *r = ix->runs[i];
        m->runs[m->count++] = (struct kb_manifest_run){r->facts.seq, r->facts.base, r->valid_to, r->epoch};
        m->end = KW_MAX(m->end, r->valid_to);
    }
    kw_err err = kb_manifest_encode(m, out);
    kw_free(m);
    return err;
}

static void unlinked(struct kb_guid_op *op, struct kb_now now) {
    (void)op, (void)now; /* one that stays is nobody's, and goes at the next opening */
}

static void remove_doomed(struct kb_guid_index *ix) {
    while (!kw_list_empty(&ix->doomed)) {
        struct kb_guid_run *r = KW_CONTAINER_OF(ix->doomed.next, struct kb_guid_run, doomed);
        if (r->doomed_at > ix->stored) return;
        struct kb_guid_op *op = kb_guid_op_new(ix, KB_DISK_UNLINK, KB_LANE_ATOMIC, unlinked);
        if (!op) return;
        op->path = r->path;
        r->path = NULL;
        kw_list_remove(&r->doomed);
        kb_guid_run_unref(r);
        kb_guid_op_submit(op);
    }
}

static void stored(struct kb_guid_index *ix, uint64_t version, struct kb_now now) {
    ix->stored = KW_MAX(ix->stored, version);
    remove_doomed(ix);
    if (ix->cut_done && ix->stored >= ix->cut_version) {
        void (*done)(void *, struct kb_now) = ix->cut_done;
        ix->cut_done = NULL;
        done(ix->cut_ctx, now);
    }
}

/* There is none any more, so no run counts: a cut may go on. Should that have failed, too, the leader epochs tell at the next opening (index_open.c). */
static void manifest_removed(struct kb_guid_op *op, struct kb_now now) {
    struct kb_guid_index *ix = op->ix;
    uint64_t version = ix->writing_version;
    ix->writing_version = 0;
    if (ix->closed) return;
    stored(ix, version, now);
    if (!ix->closed) ix->version++; /* written anew, later */
    if (!ix->closed) kb_guid_stop_step(ix, now);
}

static void manifest_written(struct kb_guid_op *op, struct kb_now now) {
    struct kb_guid_index *ix = op->ix;
    uint64_t version = ix->writing_version;
    if (op->req.err == KB_DISK_OK || ix->closed) {
        ix->writing_version = 0;
        if (ix->closed) return;
        stored(ix, version, now);
        if (!ix->closed) kb_guid_work(ix, now);
        return;
    }
    say_failed(ix, "the list of its files", kb_disk_text(op->req.err));
    ix->manifest_retry_us = now.mono_us + KB_GUID_RETRY_US;
    struct kb_guid_op *rm = kb_guid_op_new(ix, KB_DISK_UNLINK, KB_LANE_ATOMIC, manifest_removed);
    if (rm) rm->path = kb_guid_path(ix, "manifest");
    if (!rm || !rm->path) { /* tried again as it is */
        kb_guid_op_free(rm);
        ix->writing_version = 0;
        return;
    }
    rm->req.flags = ix->env->ephemeral ? 0 : KB_DISK_SYNC_FLAG;
    kb_guid_op_submit(rm);
}

void kb_guid_manifest_step(struct kb_guid_index *ix, struct kb_now now) {
    if (ix->closed || ix->writing_version || ix->stored >= ix->version || !ix->dir_made || now.mono_us < ix->manifest_retry_us) return;
    struct kw_out out;
    kw_out_init(&out);
    struct kb_guid_op *op = kb_guid_op_new(ix, KB_DISK_WRITE_ATOMIC, KB_LANE_ATOMIC, manifest_written);
    if (op) op->path = kb_guid_path(ix, "manifest");
    if (!op || !op->path || encode(ix, &out) != KW_OK) {
        kb_guid_op_free(op);
        kw_out_deinit(&out);
        return; /* the next step tries again */
    }
    op->bytes = out.p;
    op->iov = (struct kb_iov){out.p, out.len};
    op->req.flags = ix->env->ephemeral ? 0 : KB_DISK_SYNC_FLAG;
    ix->writing_version = ix->version;
    kb_guid_op_submit(op);
}

/* ---- Jobs ---- */

static struct kb_guid_job *job_new(struct kb_guid_index *ix) {
    char name[32];
    struct kb_guid_job *j = kw_calloc(1, sizeof(*j));
    if (!j) return NULL;
    snprintf(name, sizeof(name), "%016llx.run", (unsigned long long)ix->next_seq);
    j->path = kb_guid_path(ix, name);
    j->dir = kw_memdup(ix->dir, strlen(ix->dir) + 1);
    j->log_dir = kw_memdup(ix->log->dir, strlen(ix->log->dir) + 1);
    j->make_dir = !ix->dir_made;
    j->sync = !ix->env->ephemeral;
    j->key[0] = ix->key[0];
    j->key[1] = ix->key[1];
    j->seed = kb_fuse_mix(ix->key[0] ^ ix->next_seq);
    j->facts.seq = ix->next_seq++;
    if (j->path && j->dir && j->log_dir) return j;
    kb_guid_job_deinit(j);
    kw_free(j);
    return NULL;
}

static void job_free(struct kb_guid_job *j) {
    if (!j) return;
    kb_guid_job_deinit(j);
    kw_free(j);
}

static bool job_submit(struct kb_guid_index *ix, struct kb_guid_job *j, enum kb_lane lane, void (*run)(void *arg, struct kb_fs *fs),
                       void (*fn)(struct kb_guid_op *op, struct kb_now now)) {
    struct kb_guid_op *op = kb_guid_op_new(ix, KB_DISK_JOB, lane, fn);
    if (!op) return false;
    op->req.job = run;
    op->req.job_arg = op->ctx = j;
    kb_guid_op_submit(op);
    return true;
}

static void discard(struct kb_guid_index *ix, struct kb_guid_job *j) { /* its file */
    struct kb_guid_op *op = kb_guid_op_new(ix, KB_DISK_UNLINK, KB_LANE_ATOMIC, unlinked);
    if (!op) return;
    op->path = j->path;
    j->path = NULL;
    kb_guid_op_submit(op);
}

/* ---- A table becomes a run ---- */

static struct kb_guid_run *run_of_table(struct kb_guid_index *ix, struct kb_guid_job *j, const struct kb_guid_table *t) {
    struct kb_guid_run *r = kb_guid_run_new(ix, &j->facts, &j->tail);
    if (!r) return NULL;
    r->oldest_us = t->oldest_us;
    r->newest_us = t->newest_us;
    if (t->cut_to < r->valid_to) {
        r->valid_to = t->cut_to;
        r->epoch = kb_epochs_at(ix->log->epochs, t->cut_to - 1);
    }
    r->forgotten_to = KW_MAX(r->forgotten_to, KW_MIN(ix->start_seen, r->valid_to));
    return r;
}

static void flushed(struct kb_guid_op *op, struct kb_now now) {
    struct kb_guid_index *ix = op->ix;
    struct kb_guid_job *j = ix->flush;
    kw_err err = op->req.err ? KW_EIO : j->err;
    ix->flush = NULL;
    if (ix->closed) {
        job_free(j);
        return;
    }
    struct kb_guid_table *t = ix->tables[0];
    bool counts = KW_MIN(j->facts.end, t->cut_to) > j->facts.base;
    struct kb_guid_run *r = NULL;
    t->writing = false;
    if (err == KW_OK) ix->dir_made = true;
    if (err == KW_OK && counts && !(r = run_of_table(ix, j, t))) err = KW_ENOMEM;
    if (err == KW_OK) {
        if (r)
            kb_guid_run_insert(ix, ix->run_count, r);
        else
            discard(ix, j);
        ix->counts.flushes++;
        ix->said = false;
        kb_guid_table_drop(ix, 0);
    } else if (!counts) {
        kb_guid_table_drop(ix, 0);
    } else {
        say_failed(ix, "a table", op->req.err ? kb_disk_text(op->req.err) : j->disk_err ? kb_disk_text(j->disk_err) : "out of memory");
        ix->flush_retry_us = now.mono_us + KB_GUID_RETRY_US;
        if (t->cut_to < INT64_MAX) kb_guid_table_pop(t, t->cut_to); /* the table as it would be, had it not been under way */
        t->cut_to = INT64_MAX;
        ix->stop_tried = ix->stopping;
    }
    job_free(j);
    kb_guid_expire(ix, now);
    kb_guid_work(ix, now);
}

static void flush_step(struct kb_guid_index *ix, struct kb_now now) {
    while (ix->table_count > 0 && ix->tables[0]->frozen && !ix->flush && ix->tables[0]->count == 0) kb_guid_table_drop(ix, 0); /* all of it was cut */
    struct kb_guid_table *t = ix->table_count > 0 ? ix->tables[0] : NULL;
    if (!t || !t->frozen || ix->flush || now.mono_us < ix->flush_retry_us || ix->log->written < t->end || ix->log->busy || ix->stop_tried ||
        ix->run_count >= KB_GUID_RUNS_MAX)
        return;
    struct kb_guid_job *j = job_new(ix);
    if (!j) return;
    j->table = t;
    j->count = t->count;
    j->facts.base = t->base;
    j->facts.end = t->end;
    j->facts.oldest_wall_ms = t->oldest_wall_ms;
    j->facts.newest_wall_ms = t->newest_wall_ms;
    j->facts.epoch = kb_epochs_at(ix->log->epochs, t->end - 1);
    if (!job_submit(ix, j, KB_LANE_JOB, kb_guid_flush_run, flushed)) {
        job_free(j);
        return;
    }
    t->writing = true;
    ix->flush = j;
}

/* ---- Runs become one ---- */

static bool may_join(const struct kb_guid_index *ix, size_t from, size_t to) {
    const struct kb_guid_run *a = ix->runs[from], *b = ix->runs[to];
    if (b->valid_to - a->facts.base > UINT32_MAX) return false;
    return b->newest_us - a->oldest_us <= ix->window_us / KB_GUID_SPAN_PARTS;
}

/* The run at i and the one before it: no id can be in both, so however many such runs there are, a find looks at one (UUIDv7). */
static bool apart(const struct kb_guid_index *ix, size_t i) {
    return ix->max[i - 1] < ix->min[i];
}

/* Neighbours, none larger than all after it together, so that what is large is not written again for what is small; of those that are enough the ones
 * that are written soonest. */
static size_t group(const struct kb_guid_index *ix, size_t mixed, size_t all_apart, size_t *from) {
    int64_t least = INT64_MAX;
    size_t count = 0;
    for (size_t last = ix->run_count; last-- > 0;) {
        size_t first = last, wanted = all_apart;
        int64_t sum = ix->runs[last]->facts.entries;
        while (first > 0 && last - first + 1 < KB_MERGE_INPUTS_MAX && ix->runs[first - 1]->facts.entries <= sum && may_join(ix, first - 1, last)) {
            if (!apart(ix, first)) wanted = mixed;
            sum += ix->runs[--first]->facts.entries;
        }
        if (last - first + 1 < wanted || sum >= least) continue;
        least = sum;
        *from = first;
        count = last - first + 1;
    }
    return count;
}

static size_t smallest_pair(const struct kb_guid_index *ix, size_t *from) {
    int64_t least = INT64_MAX;
    for (size_t i = 0; i + 1 < ix->run_count; i++) {
        int64_t sum = ix->runs[i]->facts.entries + ix->runs[i + 1]->facts.entries;
        if (sum >= least || !may_join(ix, i, i + 1)) continue;
        least = sum;
        *from = i;
    }
    return least < INT64_MAX ? 2 : 0;
}

/* Every run costs a find of a random id a look at its filter; those that keep apart cost it nothing, and wait until there are more. The more runs there
 * are, the fewer are enough. */
static size_t pick(const struct kb_guid_index *ix, size_t *from) {
    static const struct {
        size_t above, mixed, apart;
    } enough[] = {{0, 4, KB_MERGE_INPUTS_MAX}, {12, 3, KB_MERGE_INPUTS_MAX}, {12, 2, SIZE_MAX}, {20, 2, 4}, {20, 2, 2}};
    for (size_t i = 0; i < sizeof(enough) / sizeof(enough[0]); i++) {
        size_t n = ix->run_count > enough[i].above ? group(ix, enough[i].mixed, enough[i].apart, from) : 0;
        if (n > 0) return n;
    }
    return ix->run_count > KB_GUID_LIVE_MAX ? smallest_pair(ix, from) : 0;
}

static struct kb_guid_run *run_of_merge(struct kb_guid_index *ix, struct kb_guid_job *j, size_t first, size_t left) {
    struct kb_guid_run *r = kb_guid_run_new(ix, &j->facts, &j->tail);
    if (!r) return NULL;
    r->oldest_us = ix->merging[0]->oldest_us;
    r->newest_us = ix->merging[0]->newest_us;
    for (size_t i = 1; i < j->input_count; i++) {
        r->oldest_us = KW_MIN(r->oldest_us, ix->merging[i]->oldest_us);
        r->newest_us = KW_MAX(r->newest_us, ix->merging[i]->newest_us);
    }
    /* As the last of those that are left is by now. */
    r->valid_to = ix->runs[first + left - 1]->valid_to;
    r->epoch = ix->runs[first + left - 1]->epoch;
    for (size_t i = 0; i < left; i++) r->forgotten_to = KW_MAX(r->forgotten_to, ix->runs[first + i]->forgotten_to);
    return r;
}

/* What was merged takes the places of those that it was made of and are there still: the first may have expired, the last been cut off. */
static void take_merged(struct kb_guid_index *ix, struct kb_guid_job *j) {
    size_t first = 0, left = 0;
    while (first < ix->run_count && ix->runs[first] != ix->merging[0]) first++;
    if (first == ix->run_count) /* the first went: those that follow are in front */
        for (first = 0; first < ix->run_count && left == 0; first += left == 0)
            for (size_t k = 1; k < j->input_count; k++) left = left || ix->runs[first] == ix->merging[k];
    for (left = 0; first + left < ix->run_count; left++) {
        bool ours = false;
        for (size_t k = 0; k < j->input_count; k++) ours = ours || ix->runs[first + left] == ix->merging[k];
        if (!ours) break;
    }
    struct kb_guid_run *r = left > 0 ? run_of_merge(ix, j, first, left) : NULL;
    if (!r) {
        discard(ix, j);
        return;
    }
    for (size_t i = 0; i < left; i++) kb_guid_run_drop(ix, first);
    kb_guid_run_insert(ix, first, r);
    ix->counts.merges++;
}

static void merged(struct kb_guid_op *op, struct kb_now now) {
    struct kb_guid_index *ix = op->ix;
    struct kb_guid_job *j = ix->merge;
    kw_err err = op->req.err ? KW_EIO : j->err;
    ix->merge = NULL;
    struct kb_guid_run *rotten = err != KW_OK && !op->req.err && j->rotten >= 0 ? ix->merging[j->rotten] : NULL;
    if (!ix->closed && err == KW_OK) {
        take_merged(ix, j);
    } else if (!ix->closed && rotten && rotten->live) {
        kb_guid_rotten(ix, rotten, "it cannot be read", now);
    } else if (!ix->closed && err != KW_EBUSY) {
        /* KW_EINVAL: nothing of them is left; they expire by themselves. */
        if (err != KW_EINVAL) say_failed(ix, "a merged run", j->disk_err ? kb_disk_text(j->disk_err) : err == KW_ENOMEM ? "out of memory" : "it failed");
        ix->merge_retry_us = now.mono_us + KB_GUID_RETRY_US * 10;
    }
    for (size_t i = 0; i < j->input_count; i++) kb_guid_run_unref(ix->merging[i]);
    job_free(j);
    if (!ix->closed) kb_guid_work(ix, now);
}

static bool merge_input(struct kb_guid_index *ix, struct kb_guid_job *j, struct kb_guid_run *r) {
    struct kb_merge_input *in = &j->inputs[j->input_count];
    in->path = kw_memdup(r->path, strlen(r->path) + 1);
    if (!in->path) return false;
    in->facts = r->facts;
    in->valid_to = r->valid_to;
    ix->merging[j->input_count++] = r;
    return true;
}

static void merge_step(struct kb_guid_index *ix, struct kb_now now) {
    size_t from = 0, n;
    if (ix->merge || ix->stopping || now.mono_us < ix->merge_retry_us || ix->picked_at == ix->version) return;
    if ((n = pick(ix, &from)) == 0) {
        ix->picked_at = ix->version; /* nothing to be done as long as the runs stay */
        return;
    }
    struct kb_guid_job *j = job_new(ix);
    bool ok = j != NULL;
    for (size_t i = 0; i < n && ok; i++) ok = merge_input(ix, j, ix->runs[from + i]);
    if (ok) {
        const struct kb_guid_run *first = ix->runs[from], *last = ix->runs[from + n - 1];
        j->from = ix->log->start;
        j->facts.base = first->facts.base;
        j->facts.end = last->valid_to;
        j->facts.epoch = last->epoch;
        j->facts.oldest_wall_ms = first->facts.oldest_wall_ms;
        j->facts.newest_wall_ms = last->facts.newest_wall_ms;
        for (size_t i = 0; i < n; i++) {
            j->facts.oldest_wall_ms = KW_MIN(j->facts.oldest_wall_ms, ix->runs[from + i]->facts.oldest_wall_ms);
            j->facts.newest_wall_ms = KW_MAX(j->facts.newest_wall_ms, ix->runs[from + i]->facts.newest_wall_ms);
        }
        ok = job_submit(ix, j, KB_LANE_CLEAN, kb_guid_merge_run, merged);
    }
    if (!ok) {
        job_free(j);
        return;
    }
    for (size_t i = 0; i < n; i++) ix->merging[i]->refs++;
    ix->merge = j;
}

void kb_guid_work(struct kb_guid_index *ix, struct kb_now now) {
    if (ix->closed) return;
    kb_guid_expire(ix, now);
    flush_step(ix, now);
    merge_step(ix, now);
    kb_guid_manifest_step(ix, now);
    kb_guid_stop_step(ix, now);
}
