/* produce_guid_answer.c - what a producer is told of a batch on a topic with message.guid.dedup (rules 11, 13 and 14 of the specification): where its
 * records are, which of them are duplicates, and up to where everything has to be acknowledgeable first.
 *
 * A client that asked for ranges is told the first copy of every duplicate. Others know one offset a batch, and reckon the others from it: where no such
 * offset is right, an idempotent producer is told DUPLICATE_SEQUENCE_NUMBER, which it takes for success at an unknown offset.
 */
#include "log/log.h"
#include "produce_guid_priv.h"

enum { OTHER_PAYLOAD = 1, OFFSET_UNKNOWN = 2 }; /* flags of a range */

typedef struct kw_produce_response_guid_range range;

struct copy { /* of a record */
    bool duplicate;
    int64_t offset; /* of the first copy; -1: not known any more */
    int8_t flags;
};

/* base: where the batch was, or is, stored. */
static struct copy copy_of(const struct kb_gated *g, size_t i, int64_t base) {
    const struct kb_guid_record *r = &g->d->batch.v[i];
    struct copy c = {.offset = kb_dedup_first(g->d, i, base)};
    if (kb_dedup_mismatch(g->d, i)) c.flags |= OTHER_PAYLOAD;
    c.duplicate = c.offset >= 0;
    if (g->kind != KB_GATED_REPEAT || r->verdict != KB_GUID_ID) return c;
    if (c.offset == base + (int64_t)i) return (struct copy){.offset = c.offset}; /* the one that was stored then */
    c.duplicate = true;
    if (c.offset < 0) c.flags |= OFFSET_UNKNOWN; /* the id is older than the window, or went with its record */
    return c;
}

static bool goes_on(const range *r, size_t i, const struct copy *c) {
    return r->index + r->count == (int32_t)i && r->flags == c->flags && (c->offset < 0 ? r->first_offset < 0 : r->first_offset + r->count == c->offset);
}

/* v NULL: only counts them. */
static size_t make_ranges(const struct kb_gated *g, int64_t base, range *v) {
    range r = {.index = -1};
    size_t n = 0;
    for (size_t i = 0; i < g->d->batch.count; i++) {
        struct copy c = copy_of(g, i, base);
        if (!c.duplicate) continue;
        if (n == 0 || !goes_on(&r, i, &c)) {
            r = (range){.index = (int32_t)i, .first_offset = c.offset, .flags = c.flags};
            n++;
        }
        r.count++;
        if (v) v[n - 1] = r;
    }
    return n;
}

static void tell_ranges(struct kb_gated *g, int64_t base) {
    if (!g->s->req.include_guid_ranges || g->s->req.acks == 0) return;
    kb_produced *a = g->a;
    size_t n = make_ranges(g, base, NULL);
    a->guid.deduped = true;
    if (n == 0) return;
    a->guid.ranges.v = kw_arena_alloc(&g->s->rq->arena, n * sizeof(range));
    if (!a->guid.ranges.v) { /* told less, the duplicates would pass for stored, at offsets where nothing is; a retry finds them again */
        kb_produce_refuse(g->s, a, KE_KAFKA_STORAGE_ERROR, "the broker is out of memory; try again");
        a->guid.deduped = false;
        g->waits_for = 0;
        return;
    }
    a->guid.ranges.n = (int32_t)make_ranges(g, base, a->guid.ranges.v);
}

static void wait_for_copies(struct kb_gated *g, int64_t base) {
    for (size_t i = 0; i < g->d->batch.count; i++) g->waits_for = KW_MAX(g->waits_for, kb_dedup_first(g->d, i, base) + 1);
}

/* No record of it was stored: the offset of the first one's first copy, where it is that of all. */
static void tell_copies(struct kb_gated *g, int64_t base) {
    kb_produced *a = g->a;
    struct copy first = copy_of(g, 0, base);
    bool follow = first.offset >= 0;
    for (size_t i = 1; follow && i < g->d->batch.count; i++) follow = copy_of(g, i, base).offset == first.offset + (int64_t)i;
    a->log_append_time_ms = -1;
    a->log_start_offset = g->p->log->start;
    a->base_offset = first.offset >= 0 ? first.offset : base;
    if (follow || g->s->req.include_guid_ranges || g->c.header.producer_id < 0) return;
    a->base_offset = -1;
    a->error_code = KE_DUPLICATE_SEQUENCE_NUMBER;
    a->error_message = kw_str_of("the records are stored already, at offsets that do not follow one another");
}

void kb_gated_answer_new(struct kb_gated *g, int64_t base) {
    if (g->d->kept == g->d->batch.count) {
        g->a->guid.deduped = g->s->req.include_guid_ranges;
        return;
    }
    if (g->d->kept == 0) tell_copies(g, base);
    wait_for_copies(g, base);
    tell_ranges(g, base);
}

void kb_gated_answer_repeat(struct kb_gated *g) {
    const struct kb_dedup *d = g->d;
    kb_produced *a = g->a;
    int64_t base = g->repeat.first_offset;
    bool stored = false; /* any record of it: by its id where it has one */
    for (size_t i = 0; i < d->batch.count && !stored; i++) stored = !copy_of(g, i, base).duplicate;
    if (stored) {
        a->base_offset = base;
        a->log_append_time_ms = g->p->config.log_append_time ? g->repeat.timestamp : -1;
        a->log_start_offset = g->p->log->start;
    } else {
        tell_copies(g, base);
    }
    g->waits_for = g->repeat.last_offset + 1;
    wait_for_copies(g, base);
    tell_ranges(g, base);
}

bool kb_gated_answer_behind(struct kb_gated *g) {
    const struct kb_guid_batch *b = &g->d->batch;
    for (size_t i = 0; i < b->count; i++)
        if (b->v[i].verdict != KB_GUID_ID || g->d->found[b->v[i].entry].offset < 0) return false;
    tell_copies(g, -1);
    wait_for_copies(g, -1);
    tell_ranges(g, -1);
    return true;
}
