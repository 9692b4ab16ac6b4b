/* cursor.c - finds the batch that holds an offset (caches, index, short scan) and brings bytes into memory, in steps: each function goes as
 * far as it can and says KB_STEP_WAIT when it had to ask the disk; the owner's step is called again when the answer is there.
 *
 * A probe is a cursor on the stack that starts nothing: what it cannot do at once, it leaves to a real one.
 * Called by read, find_time, cut. Calls segment, index, entry, the disk.
 */
#include "log_priv.h"

void kb_cursor_init(struct kb_cursor *c, struct kb_log *log, bool probe) {
    memset(c, 0, sizeof(*c));
    c->log = log;
    c->probe = probe;
    c->at = c->end = c->stop = -1;
    c->win_at = -1;
    c->next_offset = -1;
    kw_list_init(&c->link);
    kw_list_init(&c->wait.link);
}

static void woken(struct kb_seg_waiter *w, struct kb_now now) {
    struct kb_cursor *c = KW_CONTAINER_OF(w, struct kb_cursor, wait);
    c->waiting = false;
    c->step(c, now);
}

struct kb_cursor *kb_cursor_new(struct kb_log *log, void (*step)(struct kb_cursor *c, struct kb_now now), void *owner) {
    struct kb_cursor *c = kw_malloc(sizeof(*c));
    if (!c) return NULL;
    kb_cursor_init(c, log, false);
    c->wait.wake = woken;
    c->step = step;
    c->owner = owner;
    kb_log_pin(log);
    kw_list_push(&log->priv->cursors, &c->link);
    return c;
}

void kb_cursor_free(struct kb_cursor *c) {
    KW_ASSERT(!c->in_flight && !c->probe);
    if (c->waiting) kw_list_remove(&c->wait.link);
    kw_list_remove(&c->link);
    if (c->seg) kb_seg_unref(c->seg);
    kw_blk_unref(c->blk);
    kw_free(c->win);
    struct kb_log *log = c->log;
    kw_free(c);
    kb_log_unpin(log);
}

void kb_cursor_cancel(struct kb_cursor *c) {
    c->cancelled = true;
    if (!c->in_flight) kb_cursor_free(c);
}

void kb_cursor_restart(struct kb_cursor *c) {
    if (c->seg && !c->probe) kb_seg_unref(c->seg);
    c->seg = NULL;
    c->find = KB_FIND_SEGMENT;
    c->phase = 0;
    c->win_len = 0;
    c->at = c->end = c->stop = -1;
    c->next_offset = -1;
    c->entry_known = c->from_index = c->distrust = c->summing = false;
    kw_blk_unref(c->blk);
    c->blk = NULL;
}

void kb_cursor_seg_set(struct kb_cursor *c, size_t i) {
    struct kb_segment *s = c->log->priv->segs[i];
    if (!c->probe) {
        kb_seg_ref(s);
        if (c->seg) kb_seg_unref(c->seg);
    }
    c->seg = s;
    c->seg_index = i;
    c->generation = s->generation;
    c->win_len = 0;
    c->distrust = false;
}

bool kb_cursor_stale(const struct kb_cursor *c) { return c->seg && (c->seg->gone || c->seg->generation != c->generation); }

static int32_t wait_for_segment(struct kb_cursor *c) {
    kb_seg_wait(c->seg, &c->wait);
    c->waiting = true;
    return KB_STEP_WAIT;
}

int32_t kb_cursor_file(struct kb_cursor *c) {
    kw_err err;
    if (c->probe && c->seg->file_state != KB_PRESENT) return KB_STEP_WAIT;
    if (kb_seg_file_want(c->seg, &err)) return KB_STEP_DONE;
    return err ? err : wait_for_segment(c);
}

int32_t kb_cursor_index(struct kb_cursor *c) {
    kw_err err;
    if (c->probe && c->seg->index_state != KB_PRESENT) return KB_STEP_WAIT;
    if (kb_seg_index_want(c->seg, &err)) return KB_STEP_DONE;
    return err ? err : wait_for_segment(c);
}

static void read_done(struct kb_disk_req *r, struct kb_now now) {
    struct kb_cursor *c = KW_CONTAINER_OF(r, struct kb_cursor, req);
    struct kb_log *log = c->log;
    kb_log_pin(log);
    if (!c->cancelled && !kb_cursor_stale(c)) {
        if (r->err) {
            kb_log_poison(log, now, "read", log->dir, r->os_errno);
            c->err = KW_EIO;
        } else if (r->result < r->length) {
            kb_log_poison(log, now, "read (a segment is shorter than what was written to it)", log->dir, 0);
            c->err = KW_EIO;
        } else if (c->blk && r->buf >= c->blk->data && r->buf < c->blk->data + c->blk->cap) {
            c->blk_have += r->result;
        } else {
            c->win_at = r->offset;
            c->win_len = (size_t)r->result;
        }
    }
    c->in_flight = false;
    if (c->cancelled) /* before, or by who was told that the log has failed */
        kb_cursor_free(c);
    else
        c->step(c, now);
    kb_log_unpin(log);
}

static int32_t submit_read(struct kb_cursor *c, int64_t at, uint8_t *buf, size_t n) {
    memset(&c->req, 0, sizeof(c->req));
    c->req.op = KB_DISK_READ;
    c->req.lane = KB_LANE_READ;
    c->req.file = c->seg->file;
    c->req.offset = at;
    c->req.length = (int64_t)n;
    c->req.buf = buf;
    c->req.done = read_done;
    c->in_flight = true;
    kb_disk_submit(c->log->env->disk, &c->req);
    return KB_STEP_WAIT;
}

int32_t kb_cursor_window(struct kb_cursor *c, int64_t at, size_t need, size_t wish, const uint8_t **p, size_t *n) {
    int64_t left = c->seg->written_size - at;
    KW_ASSERT(left >= 0);
    if ((int64_t)need > left) need = (size_t)left;
    if (c->win_len && at >= c->win_at && at + (int64_t)need <= c->win_at + (int64_t)c->win_len) {
        *p = c->win + (at - c->win_at);
        *n = (size_t)(c->win_at + (int64_t)c->win_len - at);
        return KB_STEP_DONE;
    }
    if (c->probe) return KB_STEP_WAIT;
    int32_t r = kb_cursor_file(c);
    if (r != KB_STEP_DONE) return r;
    if (wish < need) wish = need;
    if ((int64_t)wish > left) wish = (size_t)left;
    KW_ASSERT(wish <= KB_IO_MAX);
    if (c->win_cap < wish) {
        uint8_t *w = kw_malloc(wish);
        if (!w) return KW_ENOMEM;
        kw_free(c->win);
        c->win = w;
        c->win_cap = wish;
    }
    c->win_len = 0;
    return submit_read(c, at, c->win, wish);
}

int32_t kb_cursor_entry(struct kb_cursor *c, int64_t at, struct kb_entry *e) {
    const uint8_t *p;
    size_t n;
    int32_t r = kb_cursor_window(c, at, KB_ENTRY_PEEK, KB_WINDOW, &p, &n);
    if (r != KB_STEP_DONE) return r;
    if (kb_entry_parse(p, n, e) || e->size > c->seg->written_size - at || e->last < c->seg->base || e->last >= c->seg->end) return KW_ECRC;
    return KB_STEP_DONE;
}

int32_t kb_cursor_load(struct kb_cursor *c, int64_t from, int64_t to) {
    if (!c->blk || c->blk_from != from || c->blk_to != to) {
        if (c->probe) return KB_STEP_WAIT;
        kw_blk_unref(c->blk);
        c->blk = kw_blk_new((size_t)(to - from));
        if (!c->blk) return KW_ENOMEM;
        c->blk_from = from;
        c->blk_to = to;
        c->blk_have = 0;
    }
    int64_t left = to - from - c->blk_have;
    if (!left) return KB_STEP_DONE;
    int32_t r = kb_cursor_file(c);
    if (r != KB_STEP_DONE) return r;
    return submit_read(c, from + c->blk_have, c->blk->data + c->blk_have, (size_t)KW_MIN(left, KB_IO_MAX));
}

/* ---- Finding ---- */

static void found(struct kb_cursor *c, int64_t at) {
    c->at = at;
    c->entry_known = false;
    c->find = KB_FIND_FOUND;
}

/* While the cursor waited, segments in front of its own may have gone (retention, compaction): its number is looked up, not remembered. */
size_t kb_cursor_next_index(const struct kb_cursor *c) { return kb_log_seg_at(c->log, c->seg->base) + 1; }

static void next_segment(struct kb_cursor *c) {
    size_t next = kb_cursor_next_index(c);
    if (next >= c->log->priv->seg_count) {
        c->find = KB_FIND_END;
        return;
    }
    kb_cursor_seg_set(c, next);
    c->find = KB_FIND_PLACE;
}

static bool place_cached(struct kb_cursor *c) {
    const struct kb_tail_entry *t = kb_tail_find(c->log, c->target);
    if (t && t->seg == c->seg && t->position + t->size <= c->seg->written_size) {
        found(c, t->position);
        c->entry.size = t->size;
        c->entry.base = t->base;
        c->entry.last = t->end - 1;
        c->entry.record_count = t->record_count;
        c->entry_known = true;
        return true;
    }
    for (size_t i = 0; i < KB_SPOTS; i++) {
        const struct kb_spot *k = &c->log->priv->spots[i];
        if (k->seg != c->seg || k->offset != c->target || k->position >= c->seg->written_size) continue;
        found(c, k->position);
        return true;
    }
    if (c->target > c->seg->base) return false;
    found(c, 0);
    return true;
}

/* Entry i says: a batch at position p ends with offset o. */
static int32_t place_by_index(struct kb_cursor *c) {
    int32_t r = kb_cursor_index(c);
    if (r != KB_STEP_DONE) return r;
    struct kb_segment *s = c->seg;
    int64_t offset = -1, position = 0;
    size_t i = kb_offsets_floor(&s->offsets, s->base, c->target);
    if (i != SIZE_MAX) kb_offsets_get(&s->offsets, s->base, i, &offset, &position);
    bool exact = i != SIZE_MAX && offset == c->target;
    if (!exact && s->dense && i != SIZE_MAX && i + 1 < kb_offsets_count(&s->offsets)) {
        kb_offsets_get(&s->offsets, s->base, i + 1, &offset, &position);
        exact = true;
    }
    if (exact && position < s->written_size && !c->distrust && kb_seg_checked(s, position, position + 1)) { /* else look before we believe */
        found(c, position);
        return KB_STEP_DONE;
    }
    c->from_index = position > 0 && !c->distrust; /* it is distrusted once, not for ever */
    c->at = position < s->written_size && !c->distrust ? position : 0;
    c->previous_last = -1;
    c->find = KB_FIND_SCAN;
    return KB_STEP_DONE;
}

static int32_t scan(struct kb_cursor *c) {
    struct kb_segment *s = c->seg;
    for (;;) {
        if (c->at >= s->written_size) {
            next_segment(c);
            return KB_STEP_DONE;
        }
        int32_t r = kb_cursor_entry(c, c->at, &c->entry);
        if (r == KW_ECRC || (r == KB_STEP_DONE && c->entry.base <= c->previous_last)) {
            if (!c->from_index) return KW_ECRC;
            c->distrust = true; /* the index may be what is wrong: once more without it */
            c->from_index = false;
            c->at = 0;
            c->previous_last = -1;
            continue;
        }
        if (r != KB_STEP_DONE) return r;
        if (c->entry.last >= c->target) {
            found(c, c->at);
            c->entry_known = true;
            return KB_STEP_DONE;
        }
        c->previous_last = c->entry.last;
        c->at += c->entry.size;
    }
}

int32_t kb_cursor_find(struct kb_cursor *c) {
    for (;;) {
        int32_t r = KB_STEP_DONE;
        switch (c->find) {
        case KB_FIND_SEGMENT:
            kb_cursor_seg_set(c, kb_log_seg_at(c->log, c->target));
            c->find = KB_FIND_PLACE;
            break;
        case KB_FIND_PLACE:
            if (c->target >= c->seg->end || c->seg->written_size == 0) next_segment(c);
            else if (!place_cached(c)) r = place_by_index(c);
            break;
        case KB_FIND_SCAN:
            r = scan(c);
            break;
        case KB_FIND_FOUND:
            return KB_STEP_DONE;
        case KB_FIND_END:
            return KB_STEP_END;
        }
        if (r != KB_STEP_DONE) return r;
    }
}
