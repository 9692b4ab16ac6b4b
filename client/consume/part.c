/* part.c - the assignment: which partitions, where each stands, what waits to be taken. Any thread, under the consumer's lock.
 *
 * Called by handle_consumer.c and, under the lock, by fetcher.c and offsets.c.
 */
#include "consumer.h"

#define STRIDE_AT(base, stride, i) ((void *)((char *)(base) + (stride) * (i)))

static uint64_t part_key(int32_t topic, int32_t partition) {
    return (uint64_t)(uint32_t)topic << 32 | (uint32_t)partition;
}

struct kc_part *kc_part_find(struct kc_consume *c, int32_t topic, int32_t partition) {
    return kw_map_get_u64(&c->by_id, part_key(topic, partition));
}

void kc_part_ref(struct kc_part *p) {
    p->refs++;
}

void kc_part_unref(struct kc_part *p) {
    KW_ASSERT(p->refs > 0);
    if (--p->refs > 0) return;
    kc_part_drop_chunks(p);
    kw_free(p);
}

struct kc_chunk *kc_chunk_new(void) {
    struct kc_chunk *k = kw_calloc(1, sizeof *k);
    if (!k) return NULL;
    kw_list_init(&k->link);
    atomic_init(&k->refs, 1);
    k->high_watermark = k->last_stable = k->end_offset = k->error_offset = -1;
    return k;
}

void kc_chunk_unref(struct kc_chunk *k) {
    if (!k || atomic_fetch_sub_explicit(&k->refs, 1, memory_order_acq_rel) != 1) return;
    if (k->budget) kc_budget_give(k->budget, KC_ROLE_FETCH, k->size);
    kw_blk_unref(k->blk);
    kw_free(k->aborted);
    kc_error_free(k->error);
    kw_free(k);
}

void kc_part_queue(struct kc_part *p, struct kc_chunk *k) {
    bool was_ready = !kw_list_empty(&p->chunks);
    kw_list_push(&p->chunks, &k->link);
    p->queued_bytes += k->size;
    atomic_fetch_add(&p->consume->queued_bytes, (int64_t)k->size);
    if (!was_ready && !p->paused) p->consume->notify(p->consume->ctx);
}

void kc_part_queue_error(struct kc_part *p, kc_error *error, int64_t offset) {
    struct kc_chunk *k = error ? kc_chunk_new() : NULL;
    if (!k) { /* no memory even to say so: the state keeps the code for kc_consumer_why */
        kc_error_free(error);
        return;
    }
    k->error = error;
    k->error_offset = offset;
    kc_part_queue(p, k);
}

void kc_part_drop_chunks(struct kc_part *p) {
    struct kw_list *n;
    while ((n = kw_list_shift(&p->chunks)) != NULL) {
        struct kc_chunk *k = KW_CONTAINER_OF(n, struct kc_chunk, link);
        atomic_fetch_sub(&p->consume->queued_bytes, (int64_t)k->size);
        kc_chunk_unref(k);
    }
    p->queued_bytes = 0;
}

void kc_part_restart(struct kc_part *p, int64_t offset, int64_t now_us) {
    kc_part_drop_chunks(p);
    p->generation++;
    p->since_us = now_us;
    p->not_before_us = 0;
    p->eof_offset = -1;
    p->fetch_epoch = -1;
    p->last_error = KC_OK;
    if (offset >= 0) {
        p->state = KC_PART_FETCHING;
        p->position = p->fetch_offset = offset;
    } else {
        p->state = KC_PART_LOOKUP;
        p->start = offset;
        p->position = p->fetch_offset = -1;
    }
}

/* What a start means: special offsets stay, "as configured" becomes one of them; -2 … are the only negative ones. false: no such offset. */
static bool resolve_start(const struct kc_settings *s, int64_t *offset) {
    if (*offset == KC_OFFSET_RESET) *offset = s->offset_reset == 1 ? KC_OFFSET_BEGINNING : KC_OFFSET_END;
    return *offset >= 0 || *offset == KC_OFFSET_BEGINNING || *offset == KC_OFFSET_END;
}

static struct kc_part *part_new(struct kc_consume *c, int32_t topic, int32_t partition) {
    struct kc_part *p = kw_calloc(1, sizeof *p);
    if (!p) return NULL;
    kw_list_init(&p->link);
    kw_list_init(&p->chunks);
    p->consume = c;
    p->refs = 1;
    p->topic = topic;
    p->partition = partition;
    p->assigned = true;
    p->position = p->fetch_offset = p->eof_offset = p->high_watermark = -1;
    p->fetch_epoch = p->validated_epoch = p->replica = -1;
    return p;
}

static void part_remove(struct kc_part *p) {
    struct kc_consume *c = p->consume;
    (void)kw_map_remove_u64(&c->by_id, part_key(p->topic, p->partition));
    kc_part_drop_chunks(p);
    p->assigned = false; /* loop context takes it out of its session at its next look, then lets go of it */
}

/* Makes the parts that are not there yet; all or nothing. `fresh` gets them. */
static kc_err assign_new(struct kc_consume *c, const kc_topic_partition *parts, size_t stride, size_t n, struct kw_list *fresh) {
    for (size_t i = 0; i < n; i++) {
        const kc_topic_partition *tp = STRIDE_AT(parts, stride, i);
        int64_t offset = tp->offset;
        if (tp->topic <= 0 || tp->partition < 0 || !resolve_start(c->settings, &offset)) return KC_INVALID;
        if (kc_part_find(c, tp->topic, tp->partition)) continue;
        struct kc_part *p = part_new(c, tp->topic, tp->partition);
        if (!p || kw_map_put_u64(&c->by_id, part_key(tp->topic, tp->partition), p) != KW_OK) {
            kw_free(p);
            return KC_NO_MEMORY;
        }
        kw_list_push(fresh, &p->link);
    }
    return KC_OK;
}

static bool listed(const kc_topic_partition *parts, size_t stride, size_t n, const struct kc_part *p) {
    for (size_t i = 0; i < n; i++) {
        const kc_topic_partition *tp = STRIDE_AT(parts, stride, i);
        if (tp->topic == p->topic && tp->partition == p->partition) return true;
    }
    return false;
}

kc_err kc_consume_assign(struct kc_consume *c, const kc_topic_partition *parts, size_t stride, size_t n, int64_t now_us) {
    struct kw_list fresh, *it, *next;
    kw_list_init(&fresh);
    kc_lock_take(&c->lock);
    kc_err err = assign_new(c, parts, stride, n, &fresh);
    if (err != KC_OK) {
        while ((it = kw_list_shift(&fresh)) != NULL) {
            struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
            (void)kw_map_remove_u64(&c->by_id, part_key(p->topic, p->partition));
            kc_part_unref(p);
        }
        kc_lock_give(&c->lock);
        return err;
    }
    for (it = c->parts.next; it != &c->parts; it = next) { /* what is no longer named goes; loop context frees it */
        next = it->next;
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (p->assigned && !listed(parts, stride, n, p)) part_remove(p);
    }
    while ((it = kw_list_shift(&fresh)) != NULL) {
        kw_list_push(&c->parts, it);
        KW_CONTAINER_OF(it, struct kc_part, link)->state = KC_PART_FAILED; /* until its start is set below */
    }
    for (size_t i = 0; i < n; i++) {
        const kc_topic_partition *tp = STRIDE_AT(parts, stride, i);
        struct kc_part *p = kc_part_find(c, tp->topic, tp->partition);
        bool kept = p->state != KC_PART_FAILED || p->generation > 0;
        int64_t offset = tp->offset;
        if (kept && offset == KC_OFFSET_RESET) continue; /* goes on where it is */
        (void)resolve_start(c->settings, &offset);
        kc_part_restart(p, offset, now_us);
    }
    c->kick(c->ctx);
    kc_lock_give(&c->lock);
    return KC_OK;
}

void kc_consume_seek(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n, int64_t now_us) {
    kc_lock_take(&c->lock);
    for (size_t i = 0; i < n; i++) {
        kc_topic_partition *tp = STRIDE_AT(parts, stride, i);
        struct kc_part *p = kc_part_find(c, tp->topic, tp->partition);
        int64_t offset = tp->offset;
        tp->err = !p ? KC_NOT_ASSIGNED : resolve_start(c->settings, &offset) ? KC_OK : KC_INVALID;
        if (tp->err != KC_OK) continue;
        kc_part_restart(p, offset, now_us);
        if (offset >= 0) p->fetch_epoch = tp->leader_epoch;
    }
    c->kick(c->ctx);
    kc_lock_give(&c->lock);
}

void kc_consume_pause(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n, bool pause) {
    kc_lock_take(&c->lock);
    for (size_t i = 0; i < n; i++) {
        kc_topic_partition *tp = STRIDE_AT(parts, stride, i);
        struct kc_part *p = kc_part_find(c, tp->topic, tp->partition);
        tp->err = p ? KC_OK : KC_NOT_ASSIGNED;
        if (!p || p->paused == pause) continue;
        p->paused = pause;
        if (!pause && !kw_list_empty(&p->chunks)) c->notify(c->ctx);
    }
    c->kick(c->ctx);
    kc_lock_give(&c->lock);
}

void kc_consume_position(struct kc_consume *c, kc_topic_partition *parts, size_t stride, size_t n) {
    kc_lock_take(&c->lock);
    for (size_t i = 0; i < n; i++) {
        kc_topic_partition *tp = STRIDE_AT(parts, stride, i);
        const struct kc_part *p = kc_part_find(c, tp->topic, tp->partition);
        tp->err = p ? KC_OK : KC_NOT_ASSIGNED;
        if (!p) continue;
        tp->offset = p->position >= 0 ? p->position : KC_OFFSET_RESET;
        tp->leader_epoch = p->fetch_epoch;
    }
    kc_lock_give(&c->lock);
}

static void why_one(const struct kc_part *p, kc_why *w, int64_t now_us) {
    w->topic = p->topic;
    w->partition = p->partition;
    w->broker = p->fetcher ? p->fetcher->broker : -1;
    w->since_us = p->since_us > 0 && now_us > p->since_us ? now_us - p->since_us : 0;
    w->last_error = p->last_error;
    w->text = "";
    if (!kw_list_empty(&p->chunks) && !p->paused)
        w->state = 0;
    else if (p->paused)
        w->state = 1;
    else if (p->not_before_us > now_us)
        w->state = 7;
    else if (p->state == KC_PART_LOOKUP || p->state == KC_PART_VALIDATE)
        w->state = 2;
    else if (p->state == KC_PART_FAILED)
        w->state = 7;
    else if (p->in_request)
        w->state = p->high_watermark >= 0 && p->fetch_offset >= p->high_watermark ? 6 : 5;
    else if (atomic_load(&p->consume->starved))
        w->state = 8;
    else
        w->state = 3;
}

size_t kc_consume_why(struct kc_consume *c, kc_why *out, size_t stride, size_t max, int64_t now_us) {
    size_t n = 0;
    kc_lock_take(&c->lock);
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) {
        const struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (!p->assigned) continue;
        if (n < max) why_one(p, STRIDE_AT(out, stride, n), now_us);
        n++;
    }
    kc_lock_give(&c->lock);
    return n;
}
