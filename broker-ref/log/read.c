/* read.c - serving batches from an offset on: place, bound by the limit, check what this process has not checked, then slices of the file.
 *
 * Called by replica/partition (fetch) and quorum/store through log.h. Calls cursor. Most reads (the tail, where the last read ended, large
 * batches) find everything in memory and are answered at once. KIP-74.
 */
#include "log_priv.h"

enum { COPY_MAX = 16 << 10 }; /* what was written just now, up to so many bytes, is given from memory: cheaper than to read it back */

enum { READ_FIND, READ_BOUND, READ_BOUND_SCAN, READ_SIZE, READ_CHECK, READ_SKIP, READ_MEMORY, READ_FILE };
#define SKIP_MAX KB_IO_MAX /* bytes of batches without records that one read passes over */

static void remember(struct kb_log *log, struct kb_segment *s, int64_t offset, int64_t position) {
    struct kb_log_private *p = log->priv;
    if (offset < 0) return;
    for (size_t i = 0; i < KB_SPOTS; i++)
        if (p->spots[i].seg == s && p->spots[i].offset == offset) return;
    p->spots[p->next_spot++ % KB_SPOTS] = (struct kb_spot){offset, position, s};
}

/* Where in the segment the batches with base >= limit begin. */
static int32_t bound(struct kb_cursor *c, const struct kb_read *r) {
    struct kb_segment *s = c->seg;
    struct kb_log *log = c->log;
    if (r->limit >= s->end || r->limit >= log->written) {
        c->end = s->written_size;
        c->next_offset = KW_MIN(s->end, log->written);
        c->phase = READ_SIZE;
        return KB_STEP_DONE;
    }
    const struct kb_tail_entry *t = kb_tail_find(log, r->limit);
    if (t && t->seg == s && t->base >= r->limit) {
        c->end = t->position;
        c->next_offset = r->limit;
        c->phase = READ_SIZE;
        return KB_STEP_DONE;
    }
    int32_t x = kb_cursor_index(c);
    if (x != KB_STEP_DONE) return x;
    size_t i = c->distrust ? SIZE_MAX : kb_offsets_floor(&s->offsets, s->base, r->limit);
    c->scan_at = c->at;
    if (i != SIZE_MAX) {
        int64_t offset, position;
        kb_offsets_get(&s->offsets, s->base, i, &offset, &position);
        if (offset == r->limit && i) kb_offsets_get(&s->offsets, s->base, i - 1, &offset, &position);
        if (offset < r->limit && position < s->written_size) c->scan_at = KW_MAX(c->at, position);
    }
    c->phase = READ_BOUND_SCAN;
    return KB_STEP_DONE;
}

static int32_t bound_scan(struct kb_cursor *c, const struct kb_read *r) {
    while (c->scan_at < c->seg->written_size) {
        struct kb_entry e;
        int32_t x = kb_cursor_entry(c, c->scan_at, &e);
        if (x == KW_ECRC) break; /* the check stops before it, or reports it */
        if (x != KB_STEP_DONE) return x;
        if (e.base >= r->limit) break;
        c->scan_at += e.size;
    }
    c->end = c->scan_at;
    c->phase = READ_SIZE;
    return KB_STEP_DONE;
}

/* How many bytes: bytes_max, but the first batch whole or not at all. */
static int32_t size(struct kb_cursor *c, const struct kb_read *r) {
    int64_t max = r->bytes_max > INT32_MAX ? INT32_MAX : (int64_t)r->bytes_max;
    c->stop = KW_MIN(c->end, c->at + max);
    if (c->at < c->end && c->stop < c->end && max < c->seg->batch_size_max) {
        if (!c->entry_known) {
            int32_t x = kb_cursor_entry(c, c->at, &c->entry);
            if (x != KB_STEP_DONE) return x;
            c->entry_known = true;
        }
        if (c->entry.size > max) c->stop = r->min_one ? c->at + c->entry.size : c->at;
    }
    if (c->stop < c->end) { /* a part of a batch is worth nothing to who gets it */
        c->next_offset = -1;
        c->stop = kb_tail_whole(c->log, c->seg, c->at, c->stop);
    }
    c->check_at = c->skip_from = c->at;
    c->phase = READ_CHECK;
    return KB_STEP_DONE;
}

/* A batch that nobody has checked yet, with a gap in front of it: its checksum may be good and its place wrong. The index knows of batches behind it with lower
 * offsets, then. */
static bool contradicts_index(const struct kb_cursor *c, const struct kb_entry *e) {
    const struct kb_segment *s = c->seg;
    int64_t follows = c->check_at == c->at ? c->target : c->checked_last + 1, offset, position;
    if (e->base <= follows || c->distrust || s->index_state != KB_PRESENT) return false;
    size_t i = kb_offsets_floor(&s->offsets, s->base, e->last);
    if (i == SIZE_MAX) return false;
    kb_offsets_get(&s->offsets, s->base, i, &offset, &position);
    return position > c->check_at;
}

/* One batch further, over as many windows as it takes. KW_ECRC: it is not what was written. */
static int32_t check_one(struct kb_cursor *c) {
    const uint8_t *p;
    size_t n;
    struct kb_segment *s = c->seg;
    if (!c->summing) {
        size_t wish = (size_t)KW_MIN(KW_MAX(c->stop - c->check_at, KB_ENTRY_PEEK), KB_IO_MAX);
        int32_t x = kb_cursor_window(c, c->check_at, KB_ENTRY_PEEK, wish, &p, &n);
        if (x != KB_STEP_DONE) return x;
        struct kb_entry e;
        if (kb_entry_parse(p, n, &e) || e.size > s->written_size - c->check_at || e.last < s->base || e.last >= s->end || contradicts_index(c, &e))
            return KW_ECRC;
        if (c->check_at + e.size > c->stop) { /* cut in the middle: whole ones only */
            c->stop = c->check_at;
            return KB_STEP_DONE;
        }
        if (e.record_count == 0) s->empties = true;
        c->checking = e;
        kb_entry_sum_begin(&c->sum, &e, p);
        c->summing = true;
    }
    while (c->sum.left) {
        int64_t at = c->check_at + c->checking.size - c->sum.left;
        size_t wish = (size_t)KW_MIN(KW_MAX(c->sum.left, c->stop - at), KB_IO_MAX);
        int32_t x = kb_cursor_window(c, at, 1, wish, &p, &n);
        if (x != KB_STEP_DONE) return x;
        kb_entry_sum_add(&c->sum, p, n);
    }
    c->summing = false;
    if (!kb_entry_sum_ok(&c->sum)) return KW_ECRC;
    c->check_at += c->checking.size;
    c->checked_last = c->checking.last;
    return KB_STEP_DONE;
}

static int32_t check(struct kb_cursor *c, const struct kb_read *r) {
    struct kb_segment *s = c->seg;
    while (c->check_at < c->stop && !kb_seg_checked(s, c->check_at, c->stop)) {
        int32_t x = check_one(c);
        if (x == KW_ECRC) {
            if (c->from_index && !s->index_proven && c->check_at == c->at) { /* the index may be what is wrong: find it again without */
                c->distrust = true;
                c->from_index = false;
                c->find = KB_FIND_PLACE;
                c->phase = READ_FIND;
                return KB_STEP_DONE;
            }
            if (c->distrust) s->index_proven = true;
            kb_say(c->log->env->logger, KB_ERROR, "%s/%020lld.log: the batch at position %lld is corrupt; it is not served", c->log->dir, (long long)s->base,
                   (long long)c->check_at);
            if (c->check_at == c->at) return KW_ECRC;
            c->stop = c->check_at;
            break;
        }
        if (x != KB_STEP_DONE) return x;
        kb_seg_check_add(s, c->at, c->check_at);
    }
    if (c->check_at > c->at && c->check_at == c->stop) c->next_offset = c->checked_last + 1;
    else if (c->stop < c->end) c->next_offset = -1;
    c->phase = r->skip_empty && s->empties ? READ_SKIP : r->into_memory ? READ_MEMORY : READ_FILE;
    return KB_STEP_DONE;
}

/* Past the batches without records in front of what was checked; from the first other one on all is reckoned anew. */
static int32_t skip(struct kb_cursor *c, struct kb_read *r) {
    struct kb_entry e = c->entry;
    for (; c->at < c->stop; c->at += e.size) {
        int32_t x = c->entry_known ? KB_STEP_DONE : kb_cursor_entry(c, c->at, &e);
        if (x != KB_STEP_DONE) return x;
        if (e.record_count > 0) break;
        c->entry_known = false;
        r->skipped_to = e.last + 1;
    }
    if (c->at == c->skip_from) {
        c->phase = r->into_memory ? READ_MEMORY : READ_FILE;
        return KB_STEP_DONE;
    }
    c->skipped_bytes += c->at - c->skip_from;
    c->from_index = false;
    if (c->at < c->stop) {
        c->entry = e;
        c->entry_known = true;
    } else if (c->skipped_bytes >= SKIP_MAX) {
        return KB_STEP_END;
    }
    c->find = KB_FIND_PLACE;
    c->phase = c->at < c->end ? READ_BOUND : READ_FIND;
    return KB_STEP_DONE;
}

static int32_t phase(struct kb_cursor *c, struct kb_read *r) {
    int32_t x;
    switch (c->phase) {
    case READ_FIND:
        x = kb_cursor_find(c);
        if (x == KB_STEP_DONE) c->phase = READ_BOUND;
        return x;
    case READ_BOUND:
        return bound(c, r);
    case READ_BOUND_SCAN:
        return bound_scan(c, r);
    case READ_SIZE:
        return size(c, r);
    case READ_CHECK:
        return check(c, r);
    case READ_SKIP:
        return skip(c, r);
    case READ_MEMORY:
        x = c->stop > c->at ? kb_cursor_load(c, c->at, c->stop) : KB_STEP_DONE;
        return x == KB_STEP_DONE ? KB_STEP_END : x;
    default:
        x = c->stop > c->at ? kb_cursor_file(c) : KB_STEP_DONE;
        return x == KB_STEP_DONE ? KB_STEP_END : x;
    }
}

/* A copy: a reference would keep the block that they were received into, which is larger, until the answer is sent. */
static bool from_memory(const struct kb_cursor *c, struct kb_slice *s) {
    const struct kb_log_private *p = c->log->priv;
    if (kw_list_empty(&p->fresh) || s->len > COPY_MAX) return false;
    struct kw_blk *b = kw_blk_new(s->len);
    if (!b || !kb_write_copy(c->log, c->seg, c->at, c->stop, b->data)) {
        kw_blk_unref(b);
        return false;
    }
    s->blk = b;
    s->p = b->data;
    return true;
}

static void fill(struct kb_cursor *c, struct kb_read *r) {
    if (c->stop <= c->at) return;
    struct kb_slice *s = &r->slices[0];
    s->len = r->bytes = (size_t)(c->stop - c->at);
    r->slice_count = 1;
    if (r->into_memory) {
        s->blk = c->blk;
        s->p = c->blk->data;
        c->blk = NULL;
    } else if (!from_memory(c, s)) {
        s->file = kb_file_ref(c->seg->file);
        s->offset = c->at;
    }
    r->next_offset_hint = c->next_offset;
    if (!c->distrust) remember(c->log, c->seg, c->next_offset, c->stop); /* else what comes there need not be what comes next */
}

/* 1: r is filled (or failed); 0: waiting. */
static int32_t run(struct kb_cursor *c, struct kb_read *r) {
    for (;;) {
        if (c->err || c->log->poisoned || c->log->priv->closed) {
            r->err = KW_EIO;
            return 1;
        }
        if (kb_cursor_stale(c)) {
            kb_cursor_restart(c);
            r->skipped_to = -1; /* it may have been cut off */
        }
        if (c->phase == READ_FIND) {
            r->limit = KW_MIN(r->limit, c->log->written);
            c->target = KW_MAX(KW_MAX(r->offset, r->skipped_to), c->log->start);
            if (c->target >= r->limit) return 1; /* nothing (any more): an empty answer */
        }
        int32_t x = phase(c, r);
        if (x == KB_STEP_DONE) continue;
        if (x == KB_STEP_WAIT) return 0;
        if (x == KB_STEP_END) fill(c, r);
        else if (x != KW_ECRC || r->skipped_to < 0) r->err = x; /* what lies in front of damage is given first */
        return 1;
    }
}

static void read_step(struct kb_cursor *c, struct kb_now now) {
    struct kb_read *r = c->owner;
    if (!run(c, r)) return;
    r->priv = NULL;
    kb_cursor_free(c);
    r->done(r, now);
}

int32_t kb_log_read(struct kb_read *r, struct kb_now now) {
    (void)now;
    struct kb_log *log = r->log;
    r->err = KW_OK;
    r->slice_count = r->bytes = 0;
    memset(r->slices, 0, sizeof(r->slices));
    r->next_offset_hint = r->skipped_to = -1;
    r->priv = NULL;
    if (log->poisoned) return KW_EIO;
    if (r->offset < log->start || r->offset > log->leo) return KW_EINVAL;
    struct kb_cursor probe;
    kb_cursor_init(&probe, log, true);
    if (run(&probe, r)) return r->err ? r->err : 1;
    struct kb_cursor *c = kb_cursor_new(log, read_step, r);
    if (!c) return KW_ENOMEM;
    if (run(c, r)) {
        kb_cursor_free(c);
        return r->err ? r->err : 1;
    }
    r->priv = c;
    return 0;
}

void kb_read_release(struct kb_read *r) {
    for (size_t i = 0; i < r->slice_count; i++) {
        kb_file_unref(r->slices[i].file);
        kw_blk_unref(r->slices[i].blk);
    }
    r->slice_count = 0;
}

void kb_read_cancel(struct kb_read *r) {
    struct kb_cursor *c = r->priv;
    r->priv = NULL;
    if (c) kb_cursor_cancel(c);
}
