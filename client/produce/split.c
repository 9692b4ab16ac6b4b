/* split.c - a batch that a broker found too large becomes two, in its place. Called by answer.c. Calls accum, wire/batch, wire/compress. */
#include "sender.h"

kc_err kc_rec_read(struct kc_rec *r, const struct kw_record_view *v, struct kc_rec_scratch *scratch) {
    size_t count = (size_t)v->header_count;
    if (count > scratch->cap) {
        if (count > SIZE_MAX / sizeof *scratch->headers) return KC_NO_MEMORY;
        struct kw_header_view *n = kw_realloc(scratch->headers, count * sizeof *n);
        if (!n) return KC_NO_MEMORY;
        scratch->headers = n;
        scratch->cap = count;
    }
    struct kw_in in;
    kw_in_init(&in, v->headers, v->headers_size);
    *r = (struct kc_rec){.partition = -1,
                         .key = v->key,
                         .value = v->value,
                         .headers = scratch->headers,
                         .header_count = count,
                         .has_timestamp = true,
                         .timestamp_ms = v->timestamp};
    for (size_t i = 0; i < count; i++) {
        int32_t got = kw_record_header_next(&in, &scratch->headers[i]);
        KW_ASSERT(got == 1); /* we wrote it */
    }
    const uint8_t *id;
    if (kc_guid_headers(scratch->headers, count, &id) > 0 && id) {
        memcpy(r->guid, id, sizeof r->guid);
        r->has_guid = true;
    }
    r->payload = (uint32_t)KW_MAX(v->key.len, 0) + (uint32_t)KW_MAX(v->value.len, 0);
    r->tail = kw_varint_size(v->key.len) + kw_varint_size(v->value.len) + kw_uvarint_size(2 * (uint64_t)count) + v->headers_size + r->payload;
    return KC_OK;
}

/* An empty batch like `from`, with room. NULL: no memory. */
static struct kc_batch *like(struct kc_sender *s, const struct kc_batch *from, size_t size, uint32_t count) {
    struct kc_accum *a = s->a;
    bool over;
    kc_lock_take(&a->lock);
    struct kc_batch *b = kc_batch_new(a, from->part);
    if (b) {
        b->blk = kc_pool_blk(&a->pool, size, &over);
        if (b->blk) b->items = kc_pool_take(&a->pool, count * sizeof *b->items, &b->items_bytes, &over);
        if (!b->items) {
            kw_blk_unref(b->blk);
            b->blk = NULL;
            a->gen_pending--;
            kc_batch_free(a, b);
            b = NULL;
        } else {
            kc_accum_join_gen(a, b, from->gen);
        }
    }
    kc_lock_give(&a->lock);
    if (!b) return NULL;
    b->item_cap = (uint32_t)(b->items_bytes / sizeof *b->items);
    b->base_timestamp = from->base_timestamp;
    b->max_timestamp = from->base_timestamp;
    b->opened_us = from->opened_us;
    b->deadline_us = from->deadline_us;
    b->timeout_us = from->timeout_us;
    b->producer_id = from->producer_id;
    b->producer_epoch = from->producer_epoch;
    b->maybe = from->maybe;
    b->loose = from->loose;
    b->loose_us = from->loose_us;
    b->split = true;
    b->state = KC_BATCH_SEALED;
    b->tries = from->tries;
    if (from->attempts) b->attempts = kc_attempts_dup(from->attempts); /* one half is read by the application while the other is still tried */
    return b;
}

static void copy_record(struct kc_batch *to, const struct kc_item *item, const struct kc_rec *r) {
    const struct kw_record_in in = {.timestamp_delta = r->timestamp_ms - to->base_timestamp,
                                    .offset_delta = (int32_t)to->count,
                                    .key = r->key,
                                    .value = r->value,
                                    .headers = r->headers,
                                    .header_count = r->header_count};
    size_t size = kw_record_size(&in);
    KW_ASSERT(to->len + size <= to->blk->cap && to->count < to->item_cap);
    kw_record_write(to->blk->data + to->len, &in, size);
    to->len += (uint32_t)size;
    to->max_timestamp = KW_MAX(to->max_timestamp, r->timestamp_ms);
    to->ids |= r->has_guid;
    if (item->size & KC_ITEM_WAITER) to->waiters++;
    else if (item->size & KC_ITEM_SILENT) to->silent++;
    to->items[to->count++] = *item;
}

static void drop(struct kc_sender *s, struct kc_batch *b) {
    if (!b) return;
    kw_blk_unref(b->blk);
    b->blk = NULL;
    kc_lock_take(&s->a->lock);
    kc_accum_leave_gen(s->a, b);
    kc_batch_free(s->a, b);
    kc_lock_give(&s->a->lock);
}

/* One more number behind a batch's own. */
static void make_place(struct kc_part *p, uint64_t number) {
    struct kw_list *lists[] = {&p->queue, &p->flight};
    for (size_t i = 0; i < KW_COUNTOF(lists); i++)
        for (struct kw_list *n = lists[i]->next; n != lists[i]; n = n->next) {
            struct kc_batch *b = KW_CONTAINER_OF(n, struct kc_batch, link);
            if (b->base_sequence != KC_NO_SEQUENCE && b->number > number) b->number++;
        }
    p->next_number++;
}

kc_err kc_sender_split(struct kc_sender *s, struct kc_batch *b) {
    struct kw_batch_header h;
    const uint8_t *body;
    size_t body_size;
    kw_err err = kw_batch_parse(b->blk->data, b->len, &h);
    if (!err) err = kw_batch_body(b->blk->data, b->len, &h, INT32_MAX, s->compressor, &body, &body_size);
    if (err) return kc_err_from(err);
    uint32_t first = b->count / 2;
    struct kc_batch *half[2] = {like(s, b, KW_BATCH_HEADER_SIZE + body_size, first), like(s, b, KW_BATCH_HEADER_SIZE + body_size, b->count - first)};
    struct kc_rec_scratch scratch = {0};
    struct kw_record_iter it;
    struct kw_record_view v;
    struct kc_rec r;
    kc_err result = half[0] && half[1] ? KC_OK : KC_NO_MEMORY;
    kw_record_iter_init(&it, &h, body, body_size);
    for (uint32_t i = 0; !result && i < b->count; i++) {
        if (kw_record_next(&it, &v) != 1) result = KC_BAD_MESSAGE;
        else result = kc_rec_read(&r, &v, &scratch);
        if (!result) copy_record(half[i >= first], &b->items[i], &r);
    }
    kw_free(scratch.headers);
    if (result) {
        drop(s, half[0]);
        drop(s, half[1]);
        return result;
    }
    struct kc_part *p = b->part;
    half[0]->bytes = b->bytes * first / b->count;
    half[1]->bytes = b->bytes - half[0]->bytes;
    half[0]->serial = b->serial;
    half[1]->serial = b->serial + first;
    half[0]->base_sequence = b->base_sequence;
    half[0]->number = b->number;
    half[1]->number = b->number + 1;
    if (b->base_sequence != KC_NO_SEQUENCE) half[1]->base_sequence = kc_sequence_add(b->base_sequence, first);
    kc_lock_take(&s->a->lock); /* later ones are to fit from the start */
    int64_t size = KW_MAX(half[0]->len, half[1]->len);
    if (p->size_limit == 0 || size < p->size_limit) p->size_limit = size;
    kc_lock_give(&s->a->lock);
    kc_sender_detach(s, b);
    if (b->base_sequence != KC_NO_SEQUENCE) make_place(p, b->number);
    kc_sender_queue(s, p, half[0]);
    kc_sender_queue(s, p, half[1]);
    drop(s, b);
    kc_sender_activate(s, p);
    kc_sender_wake(s);
    return KC_OK;
}
