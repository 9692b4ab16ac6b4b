/* append.c - the write path: batches become pieces of coalesced APPEND requests, an index entry, a note in epochs and producer state; the
 * written mark moves as the requests return. No byte is copied; requests and their arrays are pooled.
 *
 * Called by replica/partition and quorum/store through log.h. Calls segment (roll), index, epochs, pid_state, sync, cut.
 */
#include "log_priv.h"

#define SPARE_WRITES_MAX 32

/* ---- Writes ---- */

static void write_free(struct kb_write *w) {
    struct kb_log *log = w->log;
    for (size_t i = 0; i < w->count; i++) kw_blk_unref(w->blks[i]);
    kb_seg_unref(w->seg);
    struct kb_log_env *env = log->env;
    w->count = 0;
    w->log = NULL;
    w->seg = NULL;
    if (env->spare_write_count < SPARE_WRITES_MAX) {
        kw_list_push(&env->spare_writes, &w->link);
        env->spare_write_count++;
    } else {
        kw_free(w->iov);
        kw_free(w->blks);
        kw_free(w);
    }
    kb_log_unpin(log);
}

void kb_write_spare_free(struct kb_log_env *env) {
    for (struct kw_list *l; (l = kw_list_shift(&env->spare_writes));) {
        struct kb_write *w = KW_CONTAINER_OF(l, struct kb_write, link);
        kw_free(w->iov);
        kw_free(w->blks);
        kw_free(w);
    }
    env->spare_write_count = 0;
}

static kw_err write_room(struct kb_write *w) {
    if (w->count < w->cap) return KW_OK;
    size_t cap = w->cap ? w->cap * 4 : 8;
    if (cap > KB_WRITE_IOV_MAX) cap = KB_WRITE_IOV_MAX;
    struct kb_iov *iov = kw_realloc(w->iov, cap * sizeof(*iov));
    if (!iov) return KW_ENOMEM;
    w->iov = iov;
    struct kw_blk **blks = kw_realloc(w->blks, cap * sizeof(struct kw_blk *));
    if (!blks) return KW_ENOMEM;
    w->blks = blks;
    w->cap = cap;
    return KW_OK;
}

static void write_done(struct kb_disk_req *r, struct kb_now now);

static struct kb_write *write_new(struct kb_log *log, struct kb_segment *seg) {
    struct kb_log_env *env = log->env;
    struct kb_write *w;
    struct kw_list *l = kw_list_shift(&env->spare_writes);
    if (l) {
        w = KW_CONTAINER_OF(l, struct kb_write, link);
        env->spare_write_count--;
    } else {
        w = kw_calloc(1, sizeof(*w));
        if (!w) return NULL;
        kw_list_init(&w->link);
    }
    w->log = log;
    kb_log_pin(log);
    w->seg = kb_seg_ref(seg);
    w->submitted = w->finished = false;
    w->size = 0;
    w->count = 0;
    memset(&w->req, 0, sizeof(w->req));
    w->req.op = KB_DISK_APPEND;
    w->req.lane = KB_LANE_LOG;
    w->req.done = write_done;
    if (write_room(w)) {
        write_free(w);
        return NULL;
    }
    return w;
}

static void write_add(struct kb_write *w, struct kw_blk *blk, const uint8_t *p, size_t n) {
    struct kb_iov *last = w->count ? &w->iov[w->count - 1] : NULL;
    w->size += (int64_t)n;
    if (last && w->blks[w->count - 1] == blk && last->p + last->len == p) {
        last->len += n;
        return;
    }
    w->iov[w->count] = (struct kb_iov){p, n};
    w->blks[w->count++] = kw_blk_ref(blk);
}

void kb_log_submit_writes(struct kb_log *log, struct kb_now now) {
    (void)now;
    struct kb_log_private *p = log->priv;
    if (log->poisoned || log->priv->closed || (log->busy && (p->cut.phase != KB_CUT_DRAIN || p->cut.disk_full))) return;
    for (struct kw_list *l = p->writes.next; l != &p->writes; l = l->next) {
        struct kb_write *w = KW_CONTAINER_OF(l, struct kb_write, link);
        if (w->submitted) continue;
        /* A second segment is begun only when the folder can be known for ours: else recovery would take a lost tail for a gap that another tool left. */
        if (p->young && w->seg != p->segs[0] && !log->env->ephemeral) {
            if (!p->sync.failed) { /* else a timer tries again: no endless loop on a full disk */
                p->sync.wanted = true;
                kb_sync_step(log);
            }
            break;
        }
        kw_err err;
        if (!kb_seg_file_want(w->seg, &err)) {
            if (err == KW_ENOMEM) {
                p->flush_again = true;
                kb_log_again(log);
            }
            break;
        }
        w->req.file = w->seg->file;
        w->req.offset = w->position;
        w->req.iov = w->iov;
        w->req.iov_count = w->count;
        w->submitted = true;
        w->seg->submitted_size = w->position + w->size;
        p->submitted = w->end_offset;
        if (p->open_write == w) p->open_write = NULL;
        kb_disk_submit(log->env->disk, &w->req);
    }
}

void kb_log_drop_writes(struct kb_log *log) {
    struct kb_log_private *p = log->priv;
    p->open_write = NULL;
    for (struct kw_list *l = p->writes.next, *next; l != &p->writes; l = next) {
        next = l->next;
        struct kb_write *w = KW_CONTAINER_OF(l, struct kb_write, link);
        if (w->submitted) continue;
        kw_list_remove(l);
        write_free(w);
    }
}

void kb_log_disk_full(struct kb_log *log, struct kb_now now, const char *what) {
    if (log->poisoned || (log->busy && log->priv->cut.disk_full)) return;
    log->read_only = true;
    kb_say(log->env->logger, KB_ERROR, "%s: %s; appends from offset %lld on are refused until there is some", log->dir, what,
           (long long)log->written);
    if (log->priv->cut.phase != KB_CUT_IDLE) { /* a truncation waits for these writes: it cuts below them anyway */
        log->priv->cut.to = KW_MIN(log->priv->cut.to, log->written);
        log->priv->cut.disk_full = true;
        kb_log_drop_writes(log);
        return;
    }
    if (kb_cut_start(log, log->written, -1, true, NULL, NULL, now)) kb_log_poison(log, now, "cut back (out of memory)", log->dir, 0);
}

static void drop_fresh(struct kb_log_private *p) {
    for (struct kw_list *l; (l = kw_list_shift(&p->fresh));) write_free(KW_CONTAINER_OF(l, struct kb_write, link));
}

bool kb_write_copy(const struct kb_log *log, const struct kb_segment *seg, int64_t from, int64_t to, uint8_t *out) {
    for (const struct kw_list *l = log->priv->fresh.next; l != &log->priv->fresh; l = l->next) {
        const struct kb_write *w = KW_CONTAINER_OF(l, const struct kb_write, link);
        if (w->seg != seg || from < w->position || to > w->position + w->size) continue;
        int64_t at = w->position;
        for (size_t i = 0; i < w->count && at < to; at += (int64_t)w->iov[i++].len) {
            int64_t a = KW_MAX(at, from), b = KW_MIN(at + (int64_t)w->iov[i].len, to);
            if (a < b) memcpy(out + (a - from), w->iov[i].p + (a - at), (size_t)(b - a));
        }
        return true;
    }
    return false;
}

static void advance(struct kb_log *log, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    bool moved = false;
    while (!kw_list_empty(&p->writes)) {
        struct kb_write *w = KW_CONTAINER_OF(p->writes.next, struct kb_write, link);
        if (!w->finished || w->req.err) break;
        if (w->end_offset > log->written) { /* the first pieces of a large batch are not a batch yet */
            int64_t end = w->position + w->size;
            kb_seg_check_add(w->seg, w->seg->written_size, end);
            w->seg->written_size = end;
            log->written = w->end_offset;
            moved = true;
        }
        kw_list_remove(&w->link);
        kw_list_push(&p->fresh, &w->link);
    }
    if (moved) {
        log->read_only = false;
        if (log->env->ephemeral) log->synced = log->recovery_point = log->written;
        kb_log_tell(log, now); /* whoever waits for these bytes has them from memory */
    }
    drop_fresh(p);
}

/* None of it counts any more: an earlier one failed. */
static void drop_finished(struct kb_log *log) {
    for (struct kw_list *l = log->priv->writes.next, *next; l != &log->priv->writes; l = next) {
        next = l->next;
        struct kb_write *w = KW_CONTAINER_OF(l, struct kb_write, link);
        if (!w->finished) continue;
        kw_list_remove(l);
        write_free(w);
    }
}

static void write_done(struct kb_disk_req *r, struct kb_now now) {
    struct kb_write *w = KW_CONTAINER_OF(r, struct kb_write, req);
    struct kb_log *log = w->log;
    kb_log_pin(log);
    w->finished = true;
    if (r->err == KB_DISK_ENOSPC) kb_log_disk_full(log, now, "no space left on the disk");
    else if (r->err) kb_log_poison(log, now, "write", log->dir, r->os_errno);
    if (log->poisoned || log->priv->cut.disk_full) drop_finished(log);
    else advance(log, now);
    kb_cut_step(log, now);
    kb_sync_step(log);
    if (KW_UNLIKELY(log->priv->young)) kb_sync_names(log);
    kb_stop_step(log, now);
    kb_log_unpin(log);
}

/* ---- The tail ---- */

static struct kb_tail_entry *tail_at(const struct kb_tail *t, uint32_t i) { return &t->v[(t->head + i) & (t->cap - 1)]; }

static void tail_push(struct kb_tail *t, struct kb_tail_entry e) {
    if (t->count == t->cap && t->cap < KB_TAIL_MAX) {
        uint32_t cap = t->cap ? t->cap * 4 : 16;
        struct kb_tail_entry *v = kw_malloc(cap * sizeof(*v));
        if (v) { /* without it the oldest goes: only a cache */
            for (uint32_t i = 0; i < t->count; i++) v[i] = *tail_at(t, i);
            kw_free(t->v);
            t->v = v;
            t->head = 0;
            t->cap = cap;
        }
    }
    if (!t->cap) return;
    if (t->count == t->cap) {
        t->head = (t->head + 1) & (t->cap - 1);
        t->count--;
    }
    *tail_at(t, t->count++) = e;
}

void kb_tail_cut(struct kb_log *log, int64_t to) {
    struct kb_tail *t = &log->priv->tail;
    while (t->count && tail_at(t, t->count - 1)->end > to) t->count--;
}

void kb_tail_drop_segment(struct kb_log *log, const struct kb_segment *s) {
    struct kb_tail *t = &log->priv->tail;
    while (t->count && tail_at(t, t->count - 1)->seg == s) t->count--;
    uint32_t n = t->count; /* what is older goes with it: they are one piece */
    while (n && tail_at(t, n - 1)->seg != s) n--;
    if (!n) return;
    t->head = (t->head + n) & (t->cap - 1);
    t->count -= n;
}

const struct kb_tail_entry *kb_tail_find(const struct kb_log *log, int64_t offset) {
    const struct kb_tail *t = &log->priv->tail;
    if (!t->count || offset < tail_at(t, 0)->base || offset >= tail_at(t, t->count - 1)->end) return NULL;
    uint32_t lo = 0, hi = t->count; /* entries below lo end at or below offset */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (tail_at(t, mid)->end <= offset) lo = mid + 1;
        else hi = mid;
    }
    return tail_at(t, lo);
}

int64_t kb_tail_whole(const struct kb_log *log, const struct kb_segment *s, int64_t from, int64_t to) {
    const struct kb_tail *t = &log->priv->tail;
    uint32_t lo = 0, hi = t->count; /* entries below lo begin at or below `to` */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct kb_tail_entry *e = tail_at(t, mid);
        if (e->seg->base < s->base || (e->seg == s && e->position <= to)) lo = mid + 1;
        else hi = mid;
    }
    const struct kb_tail_entry *last = lo > 0 ? tail_at(t, lo - 1) : NULL;
    return last && last->seg == s && last->position > from ? last->position : to;
}

/* ---- Append ---- */

struct placing { /* what an append has taken and must give back if it fails */
    struct kw_list fresh; /* new writes */
    struct kb_write *grow; /* or the open one that has room */
};

static void placing_undo(struct placing *pl) {
    for (struct kw_list *l; (l = kw_list_shift(&pl->fresh));) write_free(KW_CONTAINER_OF(l, struct kb_write, link));
}

static kw_err place(struct kb_log *log, struct kb_segment *seg, size_t size, struct placing *pl) {
    struct kb_write *w = log->priv->open_write;
    kw_list_init(&pl->fresh);
    pl->grow = NULL;
    if (w && w->size + (int64_t)size <= KB_IO_MAX && (w->count < w->cap || (w->cap < KB_WRITE_IOV_MAX && write_room(w) == KW_OK))) {
        pl->grow = w;
        return KW_OK;
    }
    for (size_t n = 0; n < size; n += KB_IO_MAX) {
        w = write_new(log, seg);
        if (!w) {
            placing_undo(pl);
            return KW_ENOMEM;
        }
        kw_list_push(&pl->fresh, &w->link);
    }
    return KW_OK;
}

static void place_commit(struct kb_log *log, struct placing *pl, struct kw_blk *blk, const uint8_t *p, size_t size, int64_t position, int64_t end) {
    struct kb_log_private *lp = log->priv;
    if (pl->grow) {
        write_add(pl->grow, blk, p, size);
        pl->grow->end_offset = end;
        return;
    }
    for (struct kw_list *l; (l = kw_list_shift(&pl->fresh));) {
        struct kb_write *w = KW_CONTAINER_OF(l, struct kb_write, link);
        size_t n = KW_MIN(size, (size_t)KB_IO_MAX);
        write_add(w, blk, p, n);
        w->position = position;
        p += n;
        position += (int64_t)n;
        size -= n;
        w->end_offset = size ? log->leo : end; /* the first pieces of a large batch move no mark */
        kw_list_push(&lp->writes, &w->link);
        lp->open_write = w;
    }
}

/* Kafka's LogSegment.append: an entry when more than the interval has gone by since the last, before the batch's own bytes count. */
static void index_batch(struct kb_segment *s, int64_t last, int64_t size, int64_t max_timestamp) {
    if (max_timestamp > s->max_timestamp) {
        s->max_timestamp = max_timestamp;
        s->max_timestamp_offset = last;
    }
    if (s->since_index > s->log->config->index_interval_bytes) {
        kb_offsets_add(&s->offsets, s->base, last, s->size);
        if (s->max_timestamp >= 0) kb_times_add(&s->times, s->base, s->max_timestamp, s->max_timestamp_offset);
        s->since_index = 0;
    } else if (s->size) {
        s->dense = false;
    }
    s->since_index += size;
}

static kw_err check(const struct kb_log *log, const struct kb_log_append *a, struct kw_batch_header *h) {
    if (log->poisoned) return KW_EIO;
    if (log->busy) return KW_EBUSY;
    kw_err err = kw_batch_parse(a->batch, a->size, h);
    if (err) return err == KW_EVERSION ? KW_EINVAL : err;
    if ((size_t)h->length + KW_BATCH_OVERHEAD != a->size || a->size > INT32_MAX || h->last_offset_delta < 0) return KW_EINVAL;
    int64_t base = a->keep_offsets ? h->base_offset : log->leo;
    if (base < log->leo || base > INT64_MAX - h->last_offset_delta - 1) return KW_EINVAL; /* BL-01: never below what is there */
    return KW_OK;
}

/* By the beginning of an epoch recovery tells rot in front of it from a torn write, where acknowledged is what is synced (recover.c, synced_once). */
static kw_err wait_for_sync(struct kb_log *log, int32_t epoch) {
    if (!log->config->flush_on_ack || log->env->ephemeral || log->epochs->count == 0 || log->synced >= log->leo) return KW_OK;
    const struct kb_epoch_entry *latest = &log->epochs->v[log->epochs->count - 1]; /* a leader's is known before its first record */
    if (epoch <= latest->epoch && latest->start < log->leo) return KW_OK;
    kw_err err = kb_log_sync(log);
    return err ? err : KW_EBUSY;
}

kw_err kb_log_append(struct kb_log *log, struct kb_log_append *a, struct kb_now now) {
    struct kw_batch_header h;
    kw_err err = check(log, a, &h);
    int32_t epoch = a->keep_offsets ? h.leader_epoch : a->leader_epoch;
    if (!err) err = wait_for_sync(log, epoch);
    if (err) return err;
    int64_t base = a->keep_offsets ? h.base_offset : log->leo, last = base + h.last_offset_delta, size = (int64_t)a->size;
    int64_t max_timestamp = h.record_count ? a->max_timestamp : -1;
    struct kb_segment *seg = kb_log_active(log);
    if (kb_seg_roll_due(seg, last, size, max_timestamp, now)) {
        /* The new one begins where the log ends, so that recovery can tell a lost tail from a gap; unless the gap is what its offsets cannot span. */
        err = kb_log_roll(log, last - log->leo > INT32_MAX ? base : log->leo, now);
        if (err) return err;
        seg = kb_log_active(log);
    }
    struct kw_blk *blk = a->blk ? kw_blk_ref(a->blk) : kw_blk_new(a->size);
    if (!blk) return KW_ENOMEM;
    uint8_t *p = a->batch;
    if (!a->blk) p = memcpy(blk->data, a->batch, a->size);
    struct placing pl;
    err = kb_index_reserve(&seg->offsets, KB_OFFSET_ENTRY);
    if (!err) err = kb_index_reserve(&seg->times, 2 * KB_TIME_ENTRY); /* one for the seal */
    if (!err) err = place(log, seg, a->size, &pl);
    if (err) goto fail;
    if (epoch >= 0 && epoch != kb_epochs_latest(log->epochs)) {
        err = kb_epochs_assign(log->epochs, epoch, base);
        kb_epochs_later(log, now);
    }
    if (!err) err = kb_pid_update(log->pids, &h, base, last, now.wall_ms);
    if (err) {
        placing_undo(&pl);
        goto fail;
    }
    if (!a->keep_offsets) {
        kw_store64(p + KW_BATCH_BASE_OFFSET, (uint64_t)base); /* the CRC covers neither */
        kw_store32(p + KW_BATCH_LEADER_EPOCH, (uint32_t)epoch);
    }
    place_commit(log, &pl, blk, p, a->size, seg->size, last + 1);
    kw_blk_unref(blk);
    if (h.producer_id >= 0) log->priv->last_pid_offset = last;
    tail_push(&log->priv->tail, (struct kb_tail_entry){base, last + 1, seg->size, seg, size, h.record_count});
    if (h.record_count == 0) seg->empties = true;
    index_batch(seg, last, size, max_timestamp);
    if (seg->size == 0) {
        seg->first_timestamp = max_timestamp;
        seg->first_wall_ms = now.wall_ms;
        seg->first_ahead_ms = log->env->ahead_ms;
    }
    seg->batch_size_max = KW_MAX(seg->batch_size_max, size);
    seg->appended_wall_ms = now.wall_ms;
    seg->appended_ahead_ms = log->env->ahead_ms;
    seg->appended_us = now.mono_us;
    seg->size += size;
    seg->end = log->leo = last + 1;
    log->size_bytes += size;
    if (log->priv->unsynced_since_us == KW_NEVER) log->priv->unsynced_since_us = now.mono_us;
    a->base_offset = base;
    a->last_offset = last;
    return KW_OK;
fail:
    kw_blk_unref(blk);
    return err;
}

void kb_log_flush(struct kb_log *log, struct kb_now now) {
    struct kb_log_private *p = log->priv;
    p->flush_again = false;
    kb_log_submit_writes(log, now);
    const struct kb_log_config *c = log->config;
    bool many = c->flush_messages > 0 && log->leo - log->synced >= c->flush_messages;
    if (log->leo > log->synced && (c->flush_on_ack || many)) p->sync.wanted = true; /* what waits for its file too */
    kb_sync_step(log);
}
