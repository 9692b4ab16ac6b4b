/* part.c - the assignment: which partitions, where each stands, what waits to be taken. Any thread, under the consumer's lock.
 *
 * Called by handle_consumer.c and, under the lock, by fetched.c, fetcher.c, fetch_answer.c and offsets.c.
 */
#include "group.h"

#include <stdarg.h>
#include <stdio.h>

struct kc_part *kc_part_find(struct kc_consume *c, int32_t topic, int32_t partition) {
    return kw_map_get_u64(&c->by_id, kc_part_key(topic, partition));
}

void kc_part_look(struct kc_part *p) {
    kw_list_remove(&p->look_link);
    kw_list_push(&p->consume->look, &p->look_link);
}

bool kc_consume_may_queue(const struct kc_consume *c) {
    return atomic_load(&c->queued_bytes) < c->settings->prefetch_bytes_max;
}

void kc_part_ref(struct kc_part *p) {
    p->refs++;
}

static void drop_fetched(struct kc_part *p) {
    struct kw_list *n;
    while ((n = kw_list_shift(&p->chunks)) != NULL) {
        struct kc_chunk *k = KW_CONTAINER_OF(n, struct kc_chunk, link);
        atomic_fetch_sub(&p->consume->queued_bytes, (int64_t)k->size);
        kc_chunk_unref(k);
    }
    p->queued_bytes = 0;
    (void)kc_event_drop(p->kept);
    p->kept = NULL;
}

void kc_part_unref(struct kc_part *p) {
    KW_ASSERT(p->refs > 0);
    if (--p->refs > 0) return;
    KW_ASSERT(kw_list_empty(&p->look_link) && kw_list_empty(&p->session_link));
    drop_fetched(p);
    kw_free(p);
}

/* ---- What was fetched ---- */

struct kc_chunk *kc_chunk_new(void) {
    struct kc_chunk *k = kw_calloc(1, sizeof *k);
    if (!k) return NULL;
    kw_list_init(&k->link);
    atomic_init(&k->refs, 1);
    k->high_watermark = k->end_offset = k->error_offset = k->position_before = -1;
    return k;
}

static void answer_unref(struct kc_answer *a) {
    if (!a || atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) != 1) return;
    kc_purse_give(a->purse, (int64_t)a->size);
    kc_purse_unref(a->purse);
    kw_blk_unref(a->blk);
    kw_free(a);
}

void kc_chunk_unref(struct kc_chunk *k) {
    if (!k || atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) != 1) return;
    answer_unref(k->answer);
    kw_free(k->aborted);
    kc_error_free(k->error);
    kw_free(k);
}

void kc_part_show(struct kc_part *p) {
    bool ready = p->assigned && !p->paused && !p->held && (p->kept || !kw_list_empty(&p->chunks));
    if (ready && kw_list_empty(&p->ready_link)) {
        kw_list_push(&p->consume->ready, &p->ready_link);
        p->consume->notify(p->consume->ctx);
    } else if (!ready) {
        kw_list_remove(&p->ready_link);
    }
}

/* Nothing but records, which can be fetched again. */
static bool may_drop(const struct kc_part *p) {
    if (!p->assigned || !p->paused || (p->queued_bytes == 0 && !p->kept)) return false;
    for (struct kw_list *it = p->chunks.next; it != &p->chunks; it = it->next)
        if (KW_CONTAINER_OF(it, struct kc_chunk, link)->error) return false;
    return true;
}

bool kc_consume_drop_paused(struct kc_consume *c) {
    bool any = false;
    if (!kw_list_empty(&c->ready)) return false;
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (!may_drop(p)) continue;
        kc_part_restart(p, kc_part_position(p), p->position_epoch, p->since_us);
        any = true;
    }
    return any;
}

void kc_part_queue(struct kc_part *p, struct kc_chunk *k) {
    kw_list_push(&p->chunks, &k->link);
    p->queued_bytes += k->size;
    atomic_fetch_add(&p->consume->queued_bytes, (int64_t)k->size);
    kc_part_show(p);
}

static bool tell_any(struct kc_part *p, kc_err code, int64_t offset, int64_t position_before, const char *text) {
    struct kc_chunk *k = kc_chunk_new();
    if (!k) return false; /* no memory even to say so: kc_consumer_why has the code, and the next time tells it */
    const struct kc_topic_meta *t = kc_metadata_topic(p->consume->core, p->topic);
    kc_error_make(&k->error, code, KC_NOT_PERSISTED, NULL, "%s [%d]: %s", t ? t->name : "?", (int)p->partition, text);
    k->error_offset = offset;
    k->position_before = position_before;
    kc_part_queue(p, k);
    return true;
}

static void tell(struct kc_part *p, kc_err code, int64_t offset, int64_t position_before, const char *text) {
    if (tell_any(p, code, offset, position_before, text)) p->told = code;
}

void kc_part_tell_commit(struct kc_part *p, kc_err code, int64_t offset, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)tell_any(p, code, offset, -1, text);
}

void kc_part_tell(struct kc_part *p, kc_err code, int64_t offset, const char *fmt, ...) {
    char text[512];
    p->last_error = code;
    if (p->told == code) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tell(p, code, offset, -1, text);
}

void kc_part_tell_lost(struct kc_part *p, int64_t end, int64_t position, int32_t epoch, const char *more) {
    char text[512];
    p->last_error = KC_DATA_LOST; /* told each time: it is not the same loss */
    snprintf(text, sizeof text, "data was lost: offsets %lld to %lld, already consumed, went when leader epoch %d ended%s", (long long)end,
             (long long)position - 1, (int)epoch, more);
    tell(p, KC_DATA_LOST, end, position, text);
}

/* ---- Where it stands ---- */

int64_t kc_part_position(const struct kc_part *p) {
    if (p->consume->one.part == p) return atomic_load_explicit(&p->consume->one.next, memory_order_relaxed);
    return p->kept ? p->kept->views[p->kept_at].offset : p->position;
}

void kc_part_fetch_size(struct kc_part *p, int32_t size) {
    p->consume->large_batches += (size > 0) - (p->fetch_size > 0);
    p->fetch_size = size;
}

/* What was fetched, and what poll_one has at hand. What was asked for is for nobody. */
static void drop_all(struct kc_part *p) {
    struct kc_consume *c = p->consume;
    drop_fetched(p);
    kc_part_show(p);
    if (c->one.part == p) { /* poll_one sees the changes */
        kc_hand_drop(c);
        c->hand = (struct kc_hand){p, atomic_load(&c->one.passed), -1}; /* our reference is the hand's now: not yet gone past */
        c->one.part = NULL;
        if (!c->commits) kc_hand_drop(c);
    }
    atomic_fetch_add(&c->changes, 1);
    p->generation = ++c->generations;
}

void kc_part_restart(struct kc_part *p, int64_t offset, int32_t epoch, int64_t now_us) {
    drop_all(p);
    p->since_us = now_us;
    p->not_before_us = 0;
    p->eof_offset = -1;
    p->answered = false;
    kc_part_fetch_size(p, 0);
    p->empty_us = -1;
    p->empties = 0;
    kc_part_look(p);
    if (offset >= 0) {
        p->state = KC_PART_FETCHING;
        p->position = p->fetch_offset = offset;
        p->position_epoch = p->fetch_epoch = epoch;
    } else {
        p->state = offset == KC_OFFSET_COMMITTED ? KC_PART_COMMITTED : KC_PART_LOOKUP;
        p->start = offset;
        kc_part_anew(p, KC_BEGUN_UNKNOWN);
        p->position = p->fetch_offset = -1;
        p->position_epoch = p->fetch_epoch = -1;
    }
}

/* A start that the application asked for. false: there is no such offset. */
bool kc_part_is_start(const struct kc_consume *c, int64_t offset) {
    return offset >= 0 || offset == KC_OFFSET_BEGINNING || offset == KC_OFFSET_END || offset == KC_OFFSET_RESET ||
           (offset == KC_OFFSET_COMMITTED && c->commits);
}

int64_t kc_part_reset_offset(const struct kc_part *p) {
    int32_t policy = p->consume->settings->offset_reset;
    if (policy == 0) return KC_OFFSET_RESET;
    return policy == 1 || p->added ? KC_OFFSET_BEGINNING : KC_OFFSET_END;
}

void kc_part_begin(struct kc_part *p, const kc_topic_partition *tp, int64_t now_us) {
    int64_t offset = tp->offset;
    if (offset == KC_OFFSET_RESET) offset = kc_part_reset_offset(p);
    bool no_policy = offset == KC_OFFSET_RESET;
    if (no_policy) offset = KC_OFFSET_END;
    kc_part_restart(p, offset, tp->leader_epoch > 0 ? tp->leader_epoch : -1, now_us);
    kc_part_anew(p, offset >= 0 ? offset : KC_BEGUN_UNKNOWN);
    p->last_error = p->told = KC_OK;
    p->corrupt_at = -1;
    p->corrupt_count = 0;
    p->errors_in_row = 0;
    if (!no_policy) return;
    p->state = KC_PART_FAILED;
    kc_part_tell(p, KE_OFFSET_OUT_OF_RANGE, -1, "no offset to begin at was given, and auto.offset.reset=none: seek to go on");
}

static struct kc_part *part_new(struct kc_consume *c, int32_t topic, int32_t partition) {
    struct kc_part *p = kw_calloc(1, sizeof *p);
    if (!p) return NULL;
    kw_list_init(&p->link);
    kw_list_init(&p->ready_link);
    kw_list_init(&p->look_link);
    kw_list_init(&p->session_link);
    kw_list_init(&p->asked_link);
    kw_list_init(&p->leave_link);
    kw_list_init(&p->chunks);
    p->consume = c;
    p->refs = 1;
    p->topic = topic;
    p->partition = partition;
    p->assigned = true;
    p->assignment = ++c->assignments;
    p->begun_at = KC_BEGUN_UNKNOWN;
    p->processed = p->delivered = p->submitted = p->asked = p->acked = -1;
    p->state = KC_PART_FAILED; /* until its start is set */
    p->position = p->fetch_offset = p->eof_offset = p->high_watermark = p->corrupt_at = p->empty_us = -1;
    p->position_epoch = p->fetch_epoch = p->validated_epoch = p->replica = -1;
    return p;
}

kc_err kc_part_make(struct kc_consume *c, int32_t topic, int32_t partition, struct kw_list *fresh) {
    struct kc_part *p = part_new(c, topic, partition);
    if (!p || kw_map_put_u64(&c->by_id, kc_part_key(topic, partition), p) != KW_OK) {
        kw_free(p);
        return KC_NO_MEMORY;
    }
    kw_list_push(fresh, &p->link);
    return KC_OK;
}

void kc_parts_unmake(struct kc_consume *c, struct kw_list *fresh) {
    struct kw_list *it;
    while ((it = kw_list_shift(fresh)) != NULL) {
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        (void)kw_map_remove_u64(&c->by_id, kc_part_key(p->topic, p->partition));
        kc_part_unref(p);
    }
}

void kc_part_still(struct kc_part *p) {
    p->position = kc_part_position(p);
    drop_all(p);
    p->state = KC_PART_FAILED;
    kc_part_look(p);
}

void kc_part_remove(struct kc_part *p) {
    struct kc_consume *c = p->consume;
    (void)kw_map_remove_u64(&c->by_id, kc_part_key(p->topic, p->partition));
    p->assigned = false; /* loop context takes it out of its session at its next look, then lets go of it */
    kc_part_restart(p, p->position, -1, 0);
    kc_part_anew(p, KC_BEGUN_UNKNOWN);
}

/* Makes the parts that are not there yet; all or nothing. `fresh` gets them. */
static kc_err assign_new(struct kc_consume *c, const kc_topic_partition *parts, size_t stride, size_t n, struct kw_list *fresh) {
    for (size_t i = 0; i < n; i++) {
        const kc_topic_partition *tp = KW_AT(const kc_topic_partition, parts, stride, i);
        if (!kc_metadata_topic(c->core, tp->topic) || tp->partition < 0 || !kc_part_is_start(c, tp->offset)) return KC_INVALID;
        if (kc_part_find(c, tp->topic, tp->partition)) continue;
        if (kc_part_make(c, tp->topic, tp->partition, fresh) != KC_OK) return KC_NO_MEMORY;
    }
    return KC_OK;
}

kc_err kc_consume_assign(struct kc_consume *c, const kc_topic_partition *parts, size_t stride, size_t n, int64_t now_us) {
    struct kw_list fresh, *it, *next;
    kw_list_init(&fresh);
    kc_lock_take(&c->lock);
    kc_err err = kc_group_gave(c) ? KC_INVALID : assign_new(c, parts, stride, n, &fresh);
    if (err != KC_OK) {
        kc_parts_unmake(c, &fresh);
        kc_lock_give(&c->lock);
        return err;
    }
    for (size_t i = 0; i < n; i++) {
        const kc_topic_partition *tp = KW_AT(const kc_topic_partition, parts, stride, i);
        kc_part_find(c, tp->topic, tp->partition)->listed = true;
    }
    for (it = c->parts.next; it != &c->parts; it = next) { /* what is no longer named goes; loop context frees it */
        next = it->next;
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (p->assigned && !p->listed) {
            kc_part_leave(p);
            kc_part_remove(p);
        }
        p->listed = false;
    }
    while ((it = kw_list_shift(&fresh)) != NULL) {
        KW_CONTAINER_OF(it, struct kc_part, link)->listed = false;
        kw_list_push(&c->parts, it);
    }
    for (size_t i = 0; i < n; i++) {
        const kc_topic_partition *tp = KW_AT(const kc_topic_partition, parts, stride, i);
        struct kc_part *p = kc_part_find(c, tp->topic, tp->partition);
        if (p->generation > 0 && (tp->offset == KC_OFFSET_RESET || tp->offset == KC_OFFSET_COMMITTED)) continue; /* kept: goes on where it is */
        kc_part_begin(p, tp, now_us);
    }
    c->kick(c->ctx);
    kc_lock_give(&c->lock);
    return KC_OK;
}

void kc_consume_seek(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n, int64_t now_us) {
    kc_lock_take(&c->lock);
    for (size_t i = 0; i < n; i++) {
        kc_topic_partition *tp = KW_AT(kc_topic_partition, parts, stride, i);
        struct kc_part *p = kc_part_find(c, tp->topic, tp->partition);
        tp->err = !kc_part_is_start(c, tp->offset) ? KC_INVALID : p ? KC_OK : kc_group_seek(c, tp);
        if (p && tp->err == KC_OK) kc_part_begin(p, tp, now_us);
    }
    c->kick(c->ctx);
    kc_lock_give(&c->lock);
}

void kc_consume_pause(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n, bool pause) {
    kc_lock_take(&c->lock);
    for (size_t i = 0; i < n; i++) {
        kc_topic_partition *tp = KW_AT(kc_topic_partition, parts, stride, i);
        struct kc_part *p = kc_part_find(c, tp->topic, tp->partition);
        tp->err = p ? KC_OK : KC_NOT_ASSIGNED;
        if (!p || p->paused == pause) continue;
        p->paused = pause;
        kc_part_look(p);
        atomic_fetch_add(&c->changes, 1);
        kc_part_show(p);
    }
    c->kick(c->ctx);
    kc_lock_give(&c->lock);
}

void kc_consume_position(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n) {
    kc_lock_take(&c->lock);
    for (size_t i = 0; i < n; i++) {
        kc_topic_partition *tp = KW_AT(kc_topic_partition, parts, stride, i);
        const struct kc_part *p = kc_part_find(c, tp->topic, tp->partition);
        tp->err = p ? KC_OK : KC_NOT_ASSIGNED;
        if (!p) continue;
        int64_t position = kc_part_position(p);
        tp->offset = position >= 0 ? position : KC_OFFSET_RESET;
        tp->leader_epoch = p->position_epoch;
    }
    kc_lock_give(&c->lock);
}

void kc_consume_lag(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n) {
    kc_lock_take(&c->lock);
    for (size_t i = 0; i < n; i++) {
        kc_topic_partition *tp = KW_AT(kc_topic_partition, parts, stride, i);
        const struct kc_part *p = kc_part_find(c, tp->topic, tp->partition);
        tp->err = p ? KC_OK : KC_NOT_ASSIGNED;
        if (!p) continue;
        int64_t position = kc_part_position(p);
        tp->offset = position < 0 || p->high_watermark < 0 ? -1 : KW_MAX(p->high_watermark - position, 0);
    }
    kc_lock_give(&c->lock);
}
