/* reports.c - outcomes, handed on a batch at a time and read a record at a time. Called by sender.c and handle_producer.c. Calls accum, outcome.
 * Nothing is allocated or copied for a record: its report is worked out from the batch when it is read.
 */
#include "reports.h"

#include "sender.h"

/* ---- From the sender ---- */

static uint32_t duplicate_of(const struct kc_batch *b) { return KC_REPORT_DUPLICATE | (b->maybe ? (uint32_t)KC_REPORT_PERHAPS_OWN : 0); }

/* What the broker said of the record by its id. */
static void report_by_id(const struct kc_batch *b, uint32_t index, kc_report *out) {
    const struct kc_dup *d = NULL;
    if (b->deduped) out->flags |= KC_REPORT_DEDUPED;
    for (uint32_t low = 0, high = b->dup_count; low < high;) { /* the last that begins at or before it */
        uint32_t middle = low + (high - low) / 2;
        if (b->dups[middle].index <= index) {
            d = &b->dups[middle];
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (b->unplaced) {
        out->flags |= KC_REPORT_OFFSET_UNKNOWN;
        out->offset = -1;
    } else if (d && index - d->index < d->count) {
        out->flags = (out->flags & ~(uint32_t)KC_REPORT_OFFSET_UNKNOWN) | duplicate_of(b) | d->flags;
        out->offset = d->offset < 0 ? -1 : d->offset + (index - d->index);
        out->timestamp_ms = b->base_timestamp + b->items[index].ts_delta;
    }
}

void kc_batch_report(const struct kc_batch *b, uint32_t index, kc_report *out) {
    const struct kc_item *it = &b->items[index];
    *out = (kc_report){.opaque = it->opaque,
                       .topic = b->part->topic->topic,
                       .partition = b->part->index,
                       .offset = b->base_offset < 0 ? -1 : b->base_offset + index,
                       .timestamp_ms = b->log_append_ms >= 0 ? b->log_append_ms : b->base_timestamp + it->ts_delta,
                       .err = b->err,
                       .outcome = b->outcome,
                       .flags = b->duplicate ? duplicate_of(b) | (b->base_offset < 0 ? (uint32_t)KC_REPORT_OFFSET_UNKNOWN : 0) : 0,
                       .size = it->size & KC_ITEM_SIZE_MAX};
    if (KW_UNLIKELY(b->deduped || b->dup_count > 0 || b->unplaced)) report_by_id(b, index, out);
    if (KW_UNLIKELY(b->part->index < 0) && (it->size & KC_ITEM_PLACED)) { /* it failed before the partition count was known */
        out->partition = it->ts_delta;
        out->timestamp_ms = b->base_timestamp;
    }
}

void kc_batch_error(const struct kc_batch *b, uint32_t index, kc_error **out) {
    const char *text = b->detail ? b->detail : "";
    enum kc_outcome outcome = (enum kc_outcome)b->outcome;
    if (b->bad_index >= 0 && (uint32_t)b->bad_index != index)
        kc_error_make(out, b->err, outcome, b->attempts, "partition %d: record %d of the same batch was refused, and so the batch: %s", (int)b->part->index,
                      (int)b->bad_index, text);
    else
        kc_error_make(out, b->err, outcome, b->attempts, "partition %d: %s%s%s", (int)b->part->index, kc_err_text(b->err), *text ? ": " : "", text);
}

static uint64_t duplicates_of(const struct kc_batch *b) {
    uint64_t n = 0;
    if (b->duplicate) return b->count;
    for (uint32_t i = 0; i < b->dup_count; i++) n += b->dups[i].count;
    return n;
}

/* Threads in send_wait get theirs at once, whatever happens to the rest. */
static void tell_waiters(struct kc_accum *a, struct kc_batch *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        if (!(b->items[i].size & KC_ITEM_WAITER)) continue;
        struct kc_report_waiter *w = (struct kc_report_waiter *)(uintptr_t)b->items[i].opaque;
        kc_batch_report(b, i, &w->report);
        w->report.opaque = w->opaque;
        if (b->err) kc_batch_error(b, i, &w->error);
        atomic_store(&w->done, true); /* from here on *w is gone */
    }
    a->calls.signal(a->ctx);
}

static void forget_gen(struct kc_accum *a, struct kc_batch *b, struct kw_list *flushed) {
    kc_accum_leave_gen(a, b);
    while (!kw_list_empty(&a->flushes)) { /* in order: a later flush waits for the earlier ones' batches too */
        struct kc_flush *f = KW_CONTAINER_OF(a->flushes.next, struct kc_flush, link);
        if (f->pending > 0) break;
        kw_list_remove(&f->link);
        kw_list_push(flushed, &f->link);
        a->flushing--;
    }
}

void kc_sender_deliver(struct kc_sender *s) {
    struct kc_accum *a = s->a;
    struct kw_list flushed, *n;
    if (kw_list_empty(&s->done)) return;
    kw_list_init(&flushed);
    for (n = s->done.next; n != &s->done; n = n->next) {
        struct kc_batch *b = KW_CONTAINER_OF(n, struct kc_batch, link);
        if (b->waiters) tell_waiters(a, b);
    }
    bool any = false;
    kc_lock_take(&a->lock);
    a->stats.batches_sent += s->batches_sent;
    a->stats.bytes_sent += s->bytes_sent;
    a->stats.retries += s->retries;
    s->batches_sent = s->bytes_sent = s->retries = 0;
    while ((n = kw_list_shift(&s->done))) {
        struct kc_batch *b = KW_CONTAINER_OF(n, struct kc_batch, link);
        b->part->waiting_bytes -= (uint32_t)b->bytes;
        if (b->err) a->stats.records_failed += b->count;
        else a->stats.records_ok += b->count;
        a->stats.records_duplicate += duplicates_of(b);
        forget_gen(a, b, &flushed);
        if (b->err || s->settings->report_all ? b->count > b->waiters + (b->err ? 0 : b->silent) : false) {
            kw_list_push(&a->reports, n);
            any = true;
        } else { /* nobody wants to know */
            kc_accum_release(a, b->count, b->bytes);
            kc_batch_free(a, b);
        }
    }
    kc_accum_poke(a); /* the blocks of what is done are free */
    kc_lock_give(&a->lock);
    if (any) {
        a->calls.ready(a->ctx, KC_READY_REPORTS);
        a->calls.signal(a->ctx);
    }
    while ((n = kw_list_shift(&flushed))) {
        struct kc_flush *f = KW_CONTAINER_OF(n, struct kc_flush, link);
        f->done(f);
    }
}

/* ---- To the application ---- */

bool kc_reports_waiting(struct kc_accum *a) {
    kc_lock_take(&a->lock);
    bool any = !kw_list_empty(&a->reports);
    kc_lock_give(&a->lock);
    return any;
}

kc_err kc_reports_collect(struct kc_accum *a, void *owner, struct kc_reports **out) {
    kc_err err = KC_TIMED_OUT;
    kc_lock_take(&a->lock);
    if (!kw_list_empty(&a->reports)) {
        struct kc_reports *r = kw_malloc(sizeof *r);
        err = r ? KC_OK : KC_NO_MEMORY;
        if (r) {
            *r = (struct kc_reports){.a = a, .owner = owner};
            kw_list_init(&r->batches);
            int64_t records = 0, bytes = 0;
            struct kw_list *n;
            while ((n = kw_list_shift(&a->reports))) {
                struct kc_batch *b = KW_CONTAINER_OF(n, struct kc_batch, link);
                kw_list_push(&r->batches, n);
                records += b->count;
                bytes += b->bytes;
                r->count += b->count - b->waiters - (b->err ? 0 : b->silent);
            }
            kc_accum_release(a, records, bytes);
            *out = r;
        }
    }
    kc_lock_give(&a->lock);
    return err;
}

size_t kc_reports_count(const kc_reports *r) { return r ? r->count : 0; }

static bool tells(const struct kc_batch *b, uint32_t index) {
    uint32_t flags = b->items[index].size;
    return !(flags & KC_ITEM_WAITER) && (b->err || !(flags & KC_ITEM_SILENT));
}

int32_t kc_reports_next(kc_reports *r, kc_report *out) {
    if (!r || !out) return 0;
    if (r->error) {
        kc_error_free(r->error);
        r->error = NULL;
    }
    for (;;) {
        struct kc_batch *b = r->at;
        for (; b && r->index < b->count; r->index++) {
            if (!tells(b, r->index)) continue;
            kc_batch_report(b, r->index++, out);
            return 1;
        }
        struct kw_list *next = b ? b->link.next : r->batches.next;
        if (next == &r->batches) return 0;
        r->at = KW_CONTAINER_OF(next, struct kc_batch, link);
        r->index = 0;
    }
}

size_t kc_reports_take(kc_reports *r, kc_report *out, size_t stride, size_t max) {
    if (stride == 0) stride = sizeof *out;
    size_t n = 0;
    for (kc_report one; n < max && kc_reports_next(r, &one); n++) memcpy((char *)out + n * stride, &one, KW_MIN(stride, sizeof one));
    return n;
}

const kc_error *kc_reports_error(const kc_reports *r) {
    if (!r || !r->at || r->index == 0 || !r->at->err) return NULL;
    if (!r->error) kc_batch_error(r->at, r->index - 1, &((kc_reports *)(uintptr_t)r)->error); /* made when asked for */
    return r->error;
}

kc_err kc_reports_attempt(const kc_reports *r, size_t index, kc_attempt *out) {
    if (!r || !r->at || r->index == 0) return KC_INVALID;
    return kc_attempts_get(r->at->attempts, index, out);
}

void kc_reports_give_back(struct kc_reports *r) {
    struct kw_list *n;
    kc_error_free(r->error);
    kc_lock_take(&r->a->lock);
    while ((n = kw_list_shift(&r->batches))) kc_batch_free(r->a, KW_CONTAINER_OF(n, struct kc_batch, link));
    kc_lock_give(&r->a->lock);
    kw_free(r);
}
