/* find_time.c - the first record at or after a time (ListOffsets): segment by its newest time, time index, offset index, short scan of batch
 * heads, then the records of one batch. Called by api/list_offsets through log.h; calls cursor, batch and message set reading. KIP-79, KIP-734.
 */
#include "log_priv.h"
#include "wire/message_set.h"

enum { TIME_SEGMENT, TIME_INDEX, TIME_SCAN, TIME_BATCH };
#define BODY_MAX (512u << 20) /* decompressed records of one batch */

static bool worth(const struct kb_log *log, const struct kb_segment *s, int64_t timestamp) {
    return s->written_size > 0 && s->end > log->start && KW_MAX(s->max_timestamp, s->cut_timestamp) >= timestamp;
}

static bool newest_segment(const struct kb_log *log, size_t *at) {
    bool found = false;
    int64_t newest = -1;
    for (size_t i = 0; i < log->priv->seg_count; i++) {
        const struct kb_segment *s = log->priv->segs[i];
        if (!worth(log, s, newest + 1)) continue;
        newest = s->max_timestamp;
        *at = i;
        found = true;
    }
    return found;
}

/* The next segment from seg_index on that may hold the time. */
static int32_t segment(struct kb_cursor *c, struct kb_find_time *f) {
    struct kb_log *log = c->log;
    size_t i = c->seg_index;
    if (f->timestamp == KB_TS_MAX) {
        if (kb_log_active(log)->cut_timestamp >= 0) return KW_EBUSY; /* not known yet: the client asks again */
        if (i > 0 || !newest_segment(log, &i)) return KB_STEP_END;
        c->target = log->priv->segs[i]->max_timestamp;
    } else {
        while (i < log->priv->seg_count && !worth(log, log->priv->segs[i], f->timestamp)) i++;
        if (i == log->priv->seg_count) return KB_STEP_END;
        c->target = f->timestamp;
    }
    kb_cursor_seg_set(c, i);
    c->phase = TIME_INDEX;
    return KB_STEP_DONE;
}

static int32_t by_index(struct kb_cursor *c) {
    int32_t x = kb_cursor_index(c);
    if (x != KB_STEP_DONE) return x;
    struct kb_segment *s = c->seg;
    int64_t time, offset = s->base, position = 0;
    size_t i = kb_times_floor(&s->times, c->target);
    if (i != SIZE_MAX) kb_times_get(&s->times, s->base, i, &time, &offset);
    i = kb_offsets_floor(&s->offsets, s->base, KW_MAX(offset, c->log->start));
    if (i != SIZE_MAX && !c->distrust) kb_offsets_get(&s->offsets, s->base, i, &offset, &position);
    c->from_index = position > 0;
    c->at = position < s->written_size ? position : 0;
    c->previous_last = -1;
    c->phase = TIME_SCAN;
    return KB_STEP_DONE;
}

static int32_t scan(struct kb_cursor *c, const struct kb_find_time *f) {
    while (c->at < c->seg->written_size) {
        int32_t x = kb_cursor_entry(c, c->at, &c->entry);
        if ((x == KW_ECRC || (x == KB_STEP_DONE && c->entry.base <= c->previous_last)) && c->from_index) {
            c->distrust = true;
            c->phase = TIME_INDEX;
            return KB_STEP_DONE;
        }
        if (x != KB_STEP_DONE) return x;
        if (c->entry.base >= f->limit) return KB_STEP_END;
        if (c->entry.max_timestamp >= c->target && c->entry.last >= c->log->start) {
            c->phase = TIME_BATCH;
            return KB_STEP_DONE;
        }
        c->previous_last = c->entry.last;
        c->at += c->entry.size;
    }
    c->seg_index = kb_cursor_next_index(c); /* its time came from elsewhere (empty batches, what was cut): go on */
    c->phase = TIME_SEGMENT;
    return KB_STEP_DONE;
}

/* The first record at or after the time, at or above the log start. 1 found, 0 none, < 0. */
static int32_t look(struct kb_cursor *c, struct kb_find_time *f, int64_t offset, int64_t timestamp) {
    if (timestamp < c->target || offset < c->log->start) return 0;
    if (offset < f->limit) {
        f->offset = offset;
        f->found_timestamp = timestamp;
        f->leader_epoch = c->entry.epoch;
    }
    return 1;
}

static int32_t records_v2(struct kb_cursor *c, struct kb_find_time *f, const uint8_t *p, size_t n) {
    struct kw_batch_header h;
    kw_err err = kw_batch_parse(p, n, &h);
    if (err) return err;
    uint8_t *body = NULL;
    size_t size = n - KW_BATCH_HEADER_SIZE;
    int codec = h.attributes & KW_ATTR_CODEC;
    if (codec) {
        err = kw_decompress(c->log->env->compressor, codec, 2, p + KW_BATCH_HEADER_SIZE, size, BODY_MAX, &body, &size);
        if (err) return err;
    }
    struct kw_record_iter it;
    struct kw_record_view v;
    kw_record_iter_init(&it, &h, body ? body : p + KW_BATCH_HEADER_SIZE, size);
    int32_t r = 0;
    while (r == 0 && (r = kw_record_next(&it, &v)) == 1) r = look(c, f, v.offset, v.timestamp);
    kw_free(body);
    return r;
}

static int32_t records_legacy(struct kb_cursor *c, struct kb_find_time *f, const uint8_t *p, size_t n) {
    struct kw_message_iter it;
    struct kw_message_view v;
    kw_message_iter_init(&it, p, n, BODY_MAX, c->log->env->compressor);
    int32_t r = 0;
    while (r == 0 && (r = kw_message_iter_next(&it, &v)) == 1) r = look(c, f, v.offset, v.timestamp);
    kw_message_iter_deinit(&it);
    return r;
}

static int32_t batch(struct kb_cursor *c, struct kb_find_time *f) {
    int32_t x = kb_cursor_load(c, c->at, c->at + c->entry.size);
    if (x != KB_STEP_DONE) return x;
    const uint8_t *p = c->blk->data;
    size_t n = (size_t)c->entry.size;
    if (!kb_seg_checked(c->seg, c->at, c->at + c->entry.size) && !kb_entry_crc_ok(&c->entry, p)) return KW_ECRC;
    x = c->entry.magic == 2 ? records_v2(c, f, p, n) : records_legacy(c, f, p, n);
    if (x < 0) return x;
    if (x == 1) return KB_STEP_END;
    c->at += c->entry.size; /* all that is late enough in it lies below the log start */
    c->phase = TIME_SCAN;
    return KB_STEP_DONE;
}

static int32_t run(struct kb_cursor *c, struct kb_find_time *f) {
    for (;;) {
        if (c->err || c->log->poisoned || c->log->priv->closed) {
            f->err = KW_EIO;
            return 1;
        }
        if (kb_cursor_stale(c)) {
            kb_cursor_restart(c);
            c->seg_index = 0;
        }
        f->limit = KW_MIN(f->limit, c->log->written);
        int32_t x;
        if (c->phase == TIME_SEGMENT) x = segment(c, f);
        else if (c->phase == TIME_INDEX) x = by_index(c);
        else if (c->phase == TIME_SCAN) x = scan(c, f);
        else x = batch(c, f);
        if (x == KB_STEP_DONE) continue;
        if (x == KB_STEP_WAIT) return 0;
        if (x < 0) f->err = x;
        return 1;
    }
}

static void time_step(struct kb_cursor *c, struct kb_now now) {
    struct kb_find_time *f = c->owner;
    if (!run(c, f)) return;
    f->priv = NULL;
    kb_cursor_free(c);
    f->done(f, now);
}

int32_t kb_log_find_time(struct kb_find_time *f, struct kb_now now) {
    (void)now;
    f->err = KW_OK;
    f->offset = f->found_timestamp = -1;
    f->leader_epoch = -1;
    f->priv = NULL;
    if (f->log->poisoned) return KW_EIO;
    if (f->timestamp < 0 && f->timestamp != KB_TS_MAX) return KW_EINVAL;
    struct kb_cursor *c = kb_cursor_new(f->log, time_step, f);
    if (!c) return KW_ENOMEM;
    if (run(c, f)) {
        kb_cursor_free(c);
        return f->err ? f->err : 1;
    }
    f->priv = c;
    return 0;
}

void kb_find_time_cancel(struct kb_find_time *f) {
    struct kb_cursor *c = f->priv;
    f->priv = NULL;
    if (c) kb_cursor_cancel(c);
}
