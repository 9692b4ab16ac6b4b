/* segment.c - one segment: its lazily opened file, its indexes loaded on demand, what of it is checked; rolling to the next.
 *
 * Called by append, read, sync, cut, retention, log. Calls index, pid_state, recover (to rebuild an index), the disk.
 */
#include "log_priv.h"
#include "scan.h"

#include <stdio.h>

#define INDEX_FILE_MAX (64 << 20)

/* ---- Requests ---- */

static void op_done(struct kb_disk_req *r, struct kb_now now) {
    struct kb_op *op = KW_CONTAINER_OF(r, struct kb_op, req);
    op->fn(op, now);
    if (KW_UNLIKELY(op->log->priv->compact != NULL)) kb_compact_step(op->log, now); /* these may have waited for it */
    kb_cut_step(op->log, now);
    kb_stop_step(op->log, now);
    kb_op_free(op);
}

struct kb_op *kb_op_new(struct kb_log *log, struct kb_segment *seg, enum kb_disk_op what, enum kb_lane lane,
                        void (*fn)(struct kb_op *op, struct kb_now now)) {
    struct kb_op *op = kw_calloc(1, sizeof(*op));
    if (!op) return NULL;
    op->req.op = what;
    op->req.lane = lane;
    op->req.done = op_done;
    op->log = log;
    kb_log_pin(log);
    op->seg = seg ? kb_seg_ref(seg) : NULL;
    op->fn = fn;
    return op;
}

void kb_op_submit(struct kb_op *op) {
    op->req.path = op->path;
    op->req.path2 = op->path2;
    if (op->req.op == KB_DISK_WRITE_ATOMIC) {
        op->req.iov = &op->iov;
        op->req.iov_count = 1;
    }
    kb_disk_submit(op->log->env->disk, &op->req);
}

void kb_op_free(struct kb_op *op) {
    if (!op) return;
    kw_free(op->req.data);
    kw_free(op->bytes);
    kw_free(op->path);
    kw_free(op->path2);
    if (op->seg) kb_seg_unref(op->seg);
    struct kb_log *log = op->log;
    kw_free(op);
    kb_log_unpin(log);
}

/* ---- Life ---- */

struct kb_segment *kb_seg_new(struct kb_log *log, int64_t base, struct kb_now now) {
    struct kb_segment *s = kw_calloc(1, sizeof(*s));
    if (!s) return NULL;
    s->refs = 1;
    s->log = log;
    s->base = s->end = base;
    s->first_timestamp = s->max_timestamp = s->max_timestamp_offset = s->cut_timestamp = -1;
    s->created_wall_ms = s->appended_wall_ms = now.wall_ms;
    s->first_wall_ms = now.wall_ms;
    s->first_ahead_ms = s->appended_ahead_ms = log->env->ahead_ms;
    s->appended_us = INT64_MIN;
    s->dense = s->fresh = true;
    s->index_state = KB_PRESENT;
    kw_list_init(&s->file_lru);
    kw_list_init(&s->index_lru);
    kw_list_init(&s->waiters);
    return s;
}

struct kb_segment *kb_seg_ref(struct kb_segment *s) {
    KW_ASSERT(s->refs > 0);
    s->refs++;
    return s;
}

void kb_seg_unref(struct kb_segment *s) {
    KW_ASSERT(s->refs > 0);
    if (--s->refs > 0) return;
    KW_ASSERT(kw_list_empty(&s->waiters));
    kb_seg_drop_file(s);
    kb_seg_drop_index(s);
    kw_free(s);
}

void kb_seg_mark_gone(struct kb_segment *s) {
    s->gone = true;
    s->generation++;
    kb_tail_drop_segment(s->log, s);
    for (size_t i = 0; i < KB_SPOTS; i++)
        if (s->log->priv->spots[i].seg == s) s->log->priv->spots[i].seg = NULL;
}

void kb_seg_wait(struct kb_segment *s, struct kb_seg_waiter *w) { kw_list_push(&s->waiters, &w->link); }

void kb_seg_wake(struct kb_segment *s, struct kb_now now) {
    struct kw_list all; /* who waits again waits for the next time */
    kw_list_init(&all);
    for (struct kw_list *l; (l = kw_list_shift(&s->waiters));) kw_list_push(&all, l);
    for (struct kw_list *l; (l = kw_list_shift(&all));) {
        struct kb_seg_waiter *w = KW_CONTAINER_OF(l, struct kb_seg_waiter, link);
        w->wake(w, now);
    }
}

/* ---- The file ---- */

void kb_seg_drop_file(struct kb_segment *s) {
    if (!kw_list_empty(&s->file_lru)) {
        kw_list_remove(&s->file_lru);
        s->log->env->open_files--;
    }
    if (s->file_state != KB_PRESENT) return;
    kb_file_unref(s->file);
    s->file = NULL;
    s->file_state = KB_ABSENT;
}

/* Sealed segments' handles are a cache over all logs; one that still needs its sync stays. */
static void touch_file(struct kb_segment *s) {
    struct kb_log_env *env = s->log->env;
    if (!s->sealed || s->pinned || s->file_state != KB_PRESENT) return;
    if (kw_list_empty(&s->file_lru)) env->open_files++;
    else kw_list_remove(&s->file_lru);
    kw_list_push(&env->file_lru, &s->file_lru);
    for (struct kw_list *l = env->file_lru.next, *next; env->open_files > env->open_files_max && l != &s->file_lru; l = next) {
        next = l->next;
        struct kb_segment *old = KW_CONTAINER_OF(l, struct kb_segment, file_lru);
        if (env->ephemeral || old->synced_size >= old->size) kb_seg_drop_file(old);
    }
}

static void index_file_made(struct kb_op *op, struct kb_now now) { /* an empty file until the roll; recovery makes do without it */
    kb_file_unref(op->req.file);
    op->log->priv->stores--;
    kb_cut_step(op->log, now);
    kb_stop_step(op->log, now);
}

static void make_index_files(struct kb_segment *s) {
    static const char *const suffixes[] = {".index", ".timeindex"};
    for (size_t i = 0; i < KW_COUNTOF(suffixes); i++) {
        struct kb_op *op = kb_op_new(s->log, s, KB_DISK_OPEN, KB_LANE_LOG, index_file_made);
        struct kb_file *f = kb_file_new(s->log->env->disk);
        if (op) op->path = kb_seg_path(s->log, s->base, suffixes[i]);
        if (!op || !f || !op->path) {
            kb_file_unref(f);
            kb_op_free(op);
            return;
        }
        op->req.file = f;
        op->req.flags = KB_DISK_CREATE;
        s->log->priv->stores++;
        kb_op_submit(op);
    }
}

/* Retention waits for its name, and no write that would go on with what else waits. */
static void named_alone(struct kb_log *log, struct kb_now now) {
    log->priv->sync.wanted = true;
    kb_cut_step(log, now);
    kb_stop_step(log, now);
}

static void open_done(struct kb_op *op, struct kb_now now) {
    struct kb_segment *s = op->seg;
    struct kb_log *log = op->log;
    if (s->fresh) log->priv->stores--;
    if (op->req.err) {
        kb_file_unref(s->file);
        s->file = NULL;
        s->file_state = KB_ABSENT;
        s->file_err = op->req.err == KB_DISK_ENOMEM ? KW_ENOMEM : KW_EIO;
        /* Who waits for one that is gone looks again, and elsewhere; a new one that could not be made is tried again by the next append. */
        if (s->fresh && (op->req.err == KB_DISK_ENOSPC || op->req.err == KB_DISK_ENOMEM)) s->file_err = KW_OK;
        if (s->gone) s->file_err = KW_OK;
        else if (op->req.err == KB_DISK_ENOSPC && s->fresh) kb_log_disk_full(log, now, "no space left on the disk");
        else if (op->req.err == KB_DISK_ENOMEM && s->fresh) kb_log_disk_full(log, now, "no descriptor or memory left to make a segment (ulimit -n)");
        else if (op->req.err == KB_DISK_EIO || op->req.err == KB_DISK_ENOENT || s->fresh) kb_log_poison(log, now, "open", op->path, op->req.os_errno);
        else kb_log_again(log); /* a sync may wait for it */
        kb_seg_wake(s, now);
        kb_cut_step(log, now); /* no write is in flight that would: the file is not there */
        kb_stop_step(log, now);
        return;
    }
    s->file_state = KB_PRESENT;
    if (s->fresh) {
        s->fresh = false;
        s->name_at = ++log->priv->names_made;
        log->priv->dir_unsynced = true;
        if (!s->gone) make_index_files(s);
        if (log->leo == s->base) named_alone(log, now);
    }
    touch_file(s);
    kb_seg_wake(s, now);
    kb_log_submit_writes(log, now);
    kb_sync_step(log);
}

bool kb_seg_file_want(struct kb_segment *s, kw_err *err) {
    *err = KW_OK;
    if (s->file_state == KB_PRESENT) {
        touch_file(s);
        return true;
    }
    if (s->file_state == KB_LOADING) return false;
    if (s->file_err) {
        *err = s->file_err;
        s->file_err = KW_OK;
        return false;
    }
    struct kb_op *op = kb_op_new(s->log, s, KB_DISK_OPEN, s->sealed ? KB_LANE_READ : KB_LANE_LOG, open_done);
    struct kb_file *f = kb_file_new(s->log->env->disk);
    if (op) op->path = kb_seg_path(s->log, s->base, ".log");
    if (!op || !f || !op->path) {
        kb_file_unref(f);
        kb_op_free(op);
        *err = KW_ENOMEM;
        return false;
    }
    s->file = op->req.file = f;
    s->file_state = KB_LOADING;
    op->req.flags = s->fresh ? KB_DISK_CREATE : 0;
    if (s->fresh) s->log->priv->stores++; /* a cut waits for it: else the file would appear behind its back */
    kb_op_submit(op);
    return false;
}

/* ---- The indexes ---- */

static int64_t index_cost(const struct kb_segment *s) { return (int64_t)(s->offsets.cap + s->times.cap); }

void kb_seg_drop_index(struct kb_segment *s) {
    if (!kw_list_empty(&s->index_lru)) {
        kw_list_remove(&s->index_lru);
        s->log->env->index_memory_used -= index_cost(s);
    }
    kb_index_deinit(&s->offsets);
    kb_index_deinit(&s->times);
    if (s->index_state == KB_PRESENT) s->index_state = KB_ABSENT;
}

static void touch_index(struct kb_segment *s) {
    struct kb_log_env *env = s->log->env;
    if (!s->sealed || s->pinned || s->index_state != KB_PRESENT) return;
    if (kw_list_empty(&s->index_lru)) env->index_memory_used += index_cost(s);
    else kw_list_remove(&s->index_lru);
    kw_list_push(&env->index_lru, &s->index_lru);
    for (struct kw_list *l = env->index_lru.next, *next; env->index_memory_used > env->index_memory_max && l != &s->index_lru; l = next) {
        next = l->next;
        struct kb_segment *old = KW_CONTAINER_OF(l, struct kb_segment, index_lru);
        if (old->index_stored && !old->index_ops) kb_seg_drop_index(old);
    }
}

static uint32_t index_sum(const struct kb_segment *s) { return kb_index_sum(&s->offsets, &s->times); }

static void index_stored(struct kb_op *op, struct kb_now now) {
    struct kb_segment *s = op->seg;
    struct kb_log *log = op->log;
    s->index_ops--;
    log->priv->stores--;
    if (op->req.err) { /* stays in memory; the next start rebuilds it */
        s->index_stored = false;
        kb_say(log->env->logger, KB_WARN, "%s: the index could not be stored (%s); it is kept in memory and tried again", op->path,
               kb_os_text(op->req.os_errno));
    }
    if (s->index_ops) return;
    s->index_durable = s->index_stored;
    touch_index(s);
    kb_recovery_point_step(log, now);
}

static kw_err store_one(struct kb_segment *s, const struct kb_index *x, const char *suffix) {
    struct kb_op *op = kb_op_new(s->log, s, KB_DISK_WRITE_ATOMIC, KB_LANE_ATOMIC, index_stored);
    if (op) op->path = kb_seg_path(s->log, s->base, suffix);
    if (!op || !op->path) {
        kb_op_free(op);
        return KW_ENOMEM;
    }
    op->iov = (struct kb_iov){x->p, x->len}; /* unchanged until done: a cut waits for it */
    op->req.flags = s->log->env->ephemeral ? 0 : KB_DISK_SYNC_FLAG;
    s->index_ops++;
    s->log->priv->stores++;
    kb_op_submit(op);
    return KW_OK;
}

kw_err kb_seg_store_index(struct kb_segment *s) {
    s->index_crc = index_sum(s);
    s->index_crc_known = true;
    s->index_stored = true;
    s->index_durable = false;
    kw_err err = store_one(s, &s->offsets, ".index");
    if (!err) err = store_one(s, &s->times, ".timeindex");
    if (err) s->index_stored = false; /* should one be under way */
    return err;
}

void kb_seg_store_again(struct kb_segment *s) {
    if (s->index_state != KB_PRESENT || s->index_stored || s->index_ops) return;
    if (kb_seg_store_index(s)) kb_say(s->log->env->logger, KB_WARN, "%s: out of memory to store a segment's index", s->log->dir);
}

static void index_settled(struct kb_segment *s, struct kb_now now) {
    touch_index(s);
    kb_seg_wake(s, now);
}

struct rebuild {
    struct kb_index_job job;
    struct kb_op *op;
};

static void rebuild_run(void *arg, struct kb_fs *fs) { kb_index_job_run(&((struct rebuild *)arg)->job, fs); }

static void rebuilt(struct kb_op *op, struct kb_now now) {
    struct kb_segment *s = op->seg;
    struct rebuild *r = op->ctx;
    s->index_ops--;
    s->index_state = KB_ABSENT;
    if (!r->job.err && !s->gone) {
        s->offsets = r->job.offsets;
        s->times = r->job.times;
        s->index_state = KB_PRESENT;
        if (kb_seg_store_index(s)) kb_say(op->log->env->logger, KB_WARN, "%s: out of memory to store the rebuilt index", r->job.path);
    } else {
        kb_index_deinit(&r->job.offsets);
        kb_index_deinit(&r->job.times);
        s->index_err = r->job.err;
        if (r->job.err == KW_EIO && !s->gone) kb_log_poison(op->log, now, "read", r->job.path, r->job.os_errno);
    }
    kw_free(r->job.path);
    kw_free(r);
    index_settled(s, now);
}

static void rebuild_index(struct kb_segment *s, struct kb_now now) {
    struct rebuild *r = kw_calloc(1, sizeof(*r));
    struct kb_op *op = kb_op_new(s->log, s, KB_DISK_JOB, KB_LANE_JOB, rebuilt);
    if (r) r->job.path = kb_seg_path(s->log, s->base, ".log");
    if (!r || !op || !r->job.path) {
        if (r) kw_free(r->job.path);
        kw_free(r);
        kb_op_free(op);
        s->index_state = KB_ABSENT;
        s->index_err = KW_ENOMEM;
        index_settled(s, now);
        return;
    }
    kb_say(s->log->env->logger, KB_WARN, "%s: its index is missing or not sane; rebuilding it", r->job.path);
    r->job.base = s->base;
    r->job.size = s->written_size;
    r->job.interval = s->log->config->index_interval_bytes;
    op->ctx = r;
    op->req.job = rebuild_run;
    op->req.job_arg = r;
    s->index_ops++;
    kb_op_submit(op);
}

static void take_bytes(struct kb_disk_req *r, struct kb_index *x) {
    kb_index_deinit(x);
    if (r->err) return;
    x->p = r->data;
    x->len = x->cap = (size_t)r->result;
    r->data = NULL;
}

static void index_read(struct kb_op *op, struct kb_now now) {
    struct kb_segment *s = op->seg;
    s->index_ops--;
    take_bytes(&op->req, op->tag ? &s->times : &s->offsets);
    if (op->req.err) s->index_err = KW_EIO;
    if (s->index_ops) return;
    bool bad = s->index_err != KW_OK;
    s->index_err = KW_OK;
    bad = bad || !kb_offsets_sane(&s->offsets, s->base, s->written_size) || !kb_times_sane(&s->times);
    bad = bad || (s->index_crc_known && index_sum(s) != s->index_crc);
    if (bad && !s->gone && !op->log->priv->closed) {
        kb_index_deinit(&s->offsets);
        kb_index_deinit(&s->times);
        s->index_durable = false;
        rebuild_index(s, now);
        return;
    }
    s->index_stored = true;
    s->index_state = KB_PRESENT;
    index_settled(s, now);
}

bool kb_seg_index_want(struct kb_segment *s, kw_err *err) {
    *err = KW_OK;
    if (s->index_state == KB_PRESENT) {
        touch_index(s);
        return true;
    }
    if (s->index_state == KB_LOADING) return false;
    if (s->index_err) {
        *err = s->index_err;
        s->index_err = KW_OK;
        return false;
    }
    struct kb_op *ops[2] = {0};
    for (int i = 0; i < 2; i++) {
        ops[i] = kb_op_new(s->log, s, KB_DISK_READ_FILE, KB_LANE_READ, index_read);
        if (ops[i]) ops[i]->path = kb_seg_path(s->log, s->base, i ? ".timeindex" : ".index");
        if (!ops[i] || !ops[i]->path) {
            kb_op_free(ops[0]);
            kb_op_free(ops[1]);
            *err = KW_ENOMEM;
            return false;
        }
        ops[i]->tag = i;
        ops[i]->req.length = INDEX_FILE_MAX;
    }
    s->index_state = KB_LOADING;
    s->index_ops += 2;
    for (int i = 0; i < 2; i++) kb_op_submit(ops[i]);
    return false;
}

/* Out of the caches: the log has no use for it any more. What is in flight keeps what it needs. */
void kb_seg_forget(struct kb_segment *s) {
    kb_seg_drop_file(s);
    if (!s->index_ops) {
        kb_seg_drop_index(s);
    } else if (!kw_list_empty(&s->index_lru)) {
        kw_list_remove(&s->index_lru);
        s->log->env->index_memory_used -= index_cost(s);
    }
}

/* ---- What is checked ---- */

bool kb_seg_checked(const struct kb_segment *s, int64_t from, int64_t to) {
    if (from >= to) return true;
    for (size_t i = 0; i < s->checked_count; i++)
        if (s->checked[i].from <= from && to <= s->checked[i].to) return true;
    return false;
}

void kb_seg_check_add(struct kb_segment *s, int64_t from, int64_t to) {
    if (from >= to) return;
    size_t n = 0;
    for (size_t i = 0; i < s->checked_count; i++) { /* melt what touches */
        struct kb_range r = s->checked[i];
        if (r.to < from || r.from > to) s->checked[n++] = r;
        else from = KW_MIN(from, r.from), to = KW_MAX(to, r.to);
    }
    if (n == KB_RANGES_MAX) { /* forget the shortest: it is only checked again */
        size_t least = 0;
        for (size_t i = 1; i < n; i++)
            if (s->checked[i].to - s->checked[i].from < s->checked[least].to - s->checked[least].from) least = i;
        s->checked[least] = s->checked[--n];
    }
    s->checked[n++] = (struct kb_range){from, to};
    s->checked_count = n;
}

void kb_seg_check_cut(struct kb_segment *s, int64_t size) {
    size_t n = 0;
    for (size_t i = 0; i < s->checked_count; i++) {
        struct kb_range r = s->checked[i];
        if (r.to > size) r.to = size;
        if (r.from < r.to) s->checked[n++] = r;
    }
    s->checked_count = n;
}

/* ---- How old it is ---- */

int64_t kb_seg_time(const struct kb_segment *s, int64_t timestamp, int64_t ahead_ms) {
    return timestamp < 0 || ahead_ms == 0 ? timestamp : KW_MAX(timestamp, KW_MIN(KW_MIN(timestamp, INT64_MAX - ahead_ms) + ahead_ms, s->appended_wall_ms));
}

int64_t kb_seg_newest(const struct kb_segment *s) {
    return s->max_timestamp >= 0 ? kb_seg_time(s, s->max_timestamp, s->appended_ahead_ms) : s->appended_wall_ms;
}

/* By its records' timestamps, as Kafka has it; where the clock was advanced since its first, by that clock too: its clients' was not. */
static int64_t age_of(const struct kb_segment *s, int64_t max_timestamp, struct kb_now now) {
    if (s->first_timestamp < 0) return now.wall_ms - s->created_wall_ms;
    int64_t age = max_timestamp < 0 ? 0 : max_timestamp - s->first_timestamp;
    return s->log->env->ahead_ms == s->first_ahead_ms ? age : KW_MAX(age, now.wall_ms - s->first_wall_ms);
}

/* ---- Rolling ---- */

/* Kafka's LogSegment.shouldRoll, for one batch. An empty segment takes any batch that its offsets can express. */
bool kb_seg_roll_due(const struct kb_segment *s, int64_t last, int64_t size, int64_t max_timestamp, struct kb_now now) {
    const struct kb_log_config *c = s->log->config;
    if (last - s->base > INT32_MAX) return true;
    if (s->size == 0) return false;
    if (s->size > c->segment_bytes - size || s->size > INT32_MAX - size) return true;
    if (age_of(s, max_timestamp, now) > c->segment_ms) return true;
    size_t room = (size_t)c->segment_index_bytes;
    return kb_offsets_count(&s->offsets) >= room / KB_OFFSET_ENTRY || kb_times_count(&s->times) + 1 >= room / KB_TIME_ENTRY;
}

static void snapshot_stored(struct kb_op *op, struct kb_now now) {
    (void)now;
    struct kb_log *log = op->log;
    log->priv->stores--;
    if (op->req.err) /* an older one and the batches say the same */
        kb_say(log->env->logger, KB_WARN, "%s: the producer snapshot could not be stored (%s)", op->path, kb_os_text(op->req.os_errno));
}

kw_err kb_log_snapshot(struct kb_log *log, int64_t offset) {
    struct kw_out out;
    kw_out_init(&out);
    kw_err err = kb_pid_encode(log->pids, &out);
    struct kb_op *op = err ? NULL : kb_op_new(log, NULL, KB_DISK_WRITE_ATOMIC, KB_LANE_ATOMIC, snapshot_stored);
    if (op) op->path = kb_seg_path(log, offset, ".snapshot");
    if (err || !op || !op->path) {
        kw_out_deinit(&out);
        kb_op_free(op);
        return err ? err : KW_ENOMEM;
    }
    op->bytes = out.p;
    op->iov = (struct kb_iov){out.p, out.len};
    op->req.flags = log->env->ephemeral ? 0 : KB_DISK_SYNC_FLAG;
    log->priv->stores++;
    kb_op_submit(op);
    return KW_OK;
}

/* The last word in the time index. */
void kb_seg_last_time(struct kb_segment *s) {
    if (s->max_timestamp < 0 || kb_index_reserve(&s->times, KB_TIME_ENTRY)) return;
    kb_times_add(&s->times, s->base, s->max_timestamp, s->max_timestamp_offset);
}

void kb_seg_seal(struct kb_segment *s) {
    kb_seg_last_time(s);
    kb_index_trim(&s->offsets);
    kb_index_trim(&s->times);
    s->sealed = true;
}

kw_err kb_log_roll(struct kb_log *log, int64_t base, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    struct kb_segment *old = kb_log_active(log);
    if (p->seg_count == p->seg_cap) {
        size_t cap = p->seg_cap * 2;
        struct kb_segment **v = kw_realloc(p->segs, cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        p->segs = v;
        p->seg_cap = cap;
    }
    struct kb_segment *s = kb_seg_new(log, base, now);
    if (!s) return KW_ENOMEM;
    if (old->size == 0 && old->fresh && old->file_state == KB_ABSENT) { /* was never on the disk: move it instead */
        old->base = old->end = base;
        kb_seg_unref(s);
        return KW_OK;
    }
    kb_seg_seal(old);
    if (kb_seg_store_index(old)) kb_say(log->env->logger, KB_WARN, "%s: out of memory to store a segment's index", log->dir);
    if (kb_log_snapshot(log, base)) kb_say(log->env->logger, KB_WARN, "%s: out of memory to store the producer snapshot", log->dir);
    touch_file(old);
    p->segs[p->seg_count++] = s;
    p->open_write = NULL;
    p->sync.wanted = true;
    return KW_OK;
}
