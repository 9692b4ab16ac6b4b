/* dedup.c - verdicts over a batch, and the batch without its duplicates. Contract: dedup.h. */
#include "dedup.h"

#include "hash.h"

enum { TRIM_ABOVE = 16384 };
#define NONE (-1)

struct kb_dedup *kb_dedup_new(struct kw_rng *rng) {
    struct kb_dedup *d = kw_calloc(1, sizeof(*d));
    if (!d) return NULL;
    kw_list_init(&d->link);
    kb_guid_batch_init(&d->batch);
    d->key[0] = kw_rng_next(rng);
    d->key[1] = kw_rng_next(rng);
    return d;
}

void kb_dedup_free(struct kb_dedup *d) {
    if (!d) return;
    kw_list_remove(&d->link);
    kb_guid_batch_deinit(&d->batch);
    kw_free(d->found);
    kw_free(d->slots);
    kw_free(d);
}

void kb_dedup_trim(struct kb_dedup *d) {
    if (d->batch.cap <= TRIM_ABOVE && d->slot_cap <= 4 * TRIM_ABOVE) return;
    kb_guid_batch_deinit(&d->batch);
    kw_free(d->found);
    kw_free(d->slots);
    d->found = NULL;
    d->slots = NULL;
    d->found_cap = d->slot_cap = 0;
}

kw_err kb_dedup_take(struct kb_dedup *d, const uint8_t *p, size_t size, const struct kw_batch_header *h, struct kw_compressor *c, size_t limit) {
    d->kept = d->mismatches = 0;
    d->batch.count = d->batch.entry_count = 0;
    d->none_found = false;
    if (h->record_count > KB_DEDUP_RECORDS_MAX) return KW_ELIMIT;
    kw_err err = kb_guid_extract(p, size, h, c, limit, &d->batch);
    if (err != KW_OK) return err;
    if (d->batch.entry_count > d->found_cap) {
        struct kb_guid_entry *v = kw_malloc(d->batch.entry_cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        kw_free(d->found);
        d->found = v;
        d->found_cap = d->batch.entry_cap;
    }
    return KW_OK;
}

/* ---- Repeats within a batch ---- */

/* A producer that counts its ids up, as ours does, repeats none. */
static bool ascending(const struct kb_guid_batch *b) {
    kb_id128 last = b->entry_count > 0 ? kb_id_number(b->entries[0].id) : 0;
    for (size_t i = 1; i < b->entry_count; i++) {
        kb_id128 x = kb_id_number(b->entries[i].id);
        if (x <= last) return false;
        last = x;
    }
    return true;
}

static size_t slot_of(const struct kb_dedup *d, const uint8_t id[KB_GUID_SIZE]) { return (size_t)kb_guid_hash(d->key, id) & (d->slot_cap - 1); }

static kw_err clear_slots(struct kb_dedup *d) {
    size_t cap = 64;
    while (cap < 2 * d->batch.entry_count) cap *= 2;
    if (cap > d->slot_cap || cap < d->slot_cap / 16) {
        uint32_t *v = kw_malloc(cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        kw_free(d->slots);
        d->slots = v;
        d->slot_cap = cap;
    }
    memset(d->slots, 0xff, d->slot_cap * sizeof(*d->slots));
    return KW_OK;
}

/* Of the entries that the index does not know: the earlier one with the same id, else this one is noted. */
static size_t earlier(struct kb_dedup *d, size_t i) {
    const struct kb_guid_entry *v = d->batch.entries;
    for (size_t at = slot_of(d, v[i].id);; at = (at + 1) & (d->slot_cap - 1)) {
        uint32_t other = d->slots[at];
        if (other == UINT32_MAX) {
            d->slots[at] = (uint32_t)i;
            return i;
        }
        if (memcmp(v[other].id, v[i].id, KB_GUID_SIZE) == 0) return other;
    }
}

/* A first copy within the batch has no offset yet: its delta is kept, as a number below NONE. */
static int64_t here(int64_t delta) { return NONE - 1 - delta; }

static kw_err meet_repeats(struct kb_dedup *d) {
    const struct kb_guid_batch *b = &d->batch;
    kw_err err = clear_slots(d);
    if (err != KW_OK) return err;
    for (size_t i = 0; i < b->entry_count; i++) {
        if (d->found[i].offset != NONE) continue;
        size_t first = earlier(d, i);
        if (first == i) continue;
        d->found[i].offset = here(b->entries[first].offset);
        d->found[i].payload = b->entries[first].payload;
    }
    return KW_OK;
}

/* ---- Verdicts ---- */

static bool is_kept(const struct kb_dedup *d, const struct kb_guid_record *r) {
    return r->verdict != KB_GUID_ID || d->found[r->entry].offset == NONE;
}

kw_err kb_dedup_judge(struct kb_dedup *d) {
    const struct kb_guid_batch *b = &d->batch;
    d->kept = d->mismatches = 0;
    if (!ascending(b)) {
        kw_err err = meet_repeats(d);
        if (err != KW_OK) return err;
    } else if (d->none_found) {
        d->kept = b->count; /* as it came: nobody asks for the time of what is left */
        return KW_OK;
    }
    d->max_timestamp = INT64_MIN;
    for (size_t i = 0; i < b->count; i++) {
        const struct kb_guid_record *r = &b->v[i];
        if (is_kept(d, r)) {
            d->kept++;
            d->max_timestamp = KW_MAX(d->max_timestamp, r->timestamp);
        } else {
            d->mismatches += d->found[r->entry].payload != b->entries[r->entry].payload;
        }
    }
    return KW_OK;
}

int64_t kb_dedup_first(const struct kb_dedup *d, size_t i, int64_t base) {
    const struct kb_guid_record *r = &d->batch.v[i];
    if (is_kept(d, r)) return NONE;
    int64_t offset = d->found[r->entry].offset;
    return offset < NONE ? base + here(offset) : offset;
}

bool kb_dedup_mismatch(const struct kb_dedup *d, size_t i) {
    const struct kb_guid_record *r = &d->batch.v[i];
    return !is_kept(d, r) && d->found[r->entry].payload != d->batch.entries[r->entry].payload;
}

/* ---- The batch anew ---- */

static size_t kept_size(const struct kb_dedup *d) {
    size_t n = 0;
    for (size_t i = 0; i < d->batch.count; i++)
        if (is_kept(d, &d->batch.v[i])) n += d->batch.v[i].size;
    return n;
}

/* Neighbours together. */
static void copy_kept(const struct kb_dedup *d, const uint8_t *body, uint8_t *to) {
    const struct kb_guid_batch *b = &d->batch;
    for (size_t i = 0, j; i < b->count; i = j + 1) {
        for (j = i; j < b->count && is_kept(d, &b->v[j]);) j++;
        if (j == i) continue;
        size_t n = b->v[j - 1].at + b->v[j - 1].size - b->v[i].at;
        memcpy(to, body + b->v[i].at, n);
        to += n;
    }
}

/* What is kept, behind the room for a header. */
static kw_err make_body(const struct kb_dedup *d, const uint8_t *body, int codec, struct kw_compressor *c, int level, struct kw_blk **blk, size_t *n) {
    size_t plain = kept_size(d);
    *n = plain;
    if (codec == KW_CODEC_NONE || plain == 0) {
        *blk = kw_blk_new(KW_BATCH_HEADER_SIZE + plain);
        if (!*blk) return KW_ENOMEM;
        copy_kept(d, body, (*blk)->data + KW_BATCH_HEADER_SIZE);
        return KW_OK;
    }
    size_t bound = kw_compress_bound(codec, plain);
    uint8_t *p = kw_malloc(plain);
    struct kw_blk *b = kw_blk_new(KW_BATCH_HEADER_SIZE + bound);
    kw_err err = p && b ? KW_OK : KW_ENOMEM;
    if (err == KW_OK) {
        copy_kept(d, body, p);
        err = kw_compress(c, codec, level, 2, p, plain, b->data + KW_BATCH_HEADER_SIZE, bound, n);
    }
    kw_free(p);
    if (err != KW_OK) kw_blk_unref(b);
    else *blk = b;
    return err;
}

kw_err kb_dedup_rewrite(struct kb_dedup *d, const uint8_t *p, size_t size, const struct kw_batch_header *h, struct kw_compressor *c, int level,
                        size_t limit, struct kw_blk **blk, size_t *out_size) {
    struct kw_batch_header to = *h;
    struct kw_blk *made;
    const uint8_t *body;
    size_t n;
    kw_err err = kw_batch_body(p, size, h, limit, c, &body, &n); /* the compressor may have been used for another since */
    if (err == KW_OK) err = make_body(d, body, h->attributes & KW_ATTR_CODEC, c, level, &made, &n);
    if (err != KW_OK) return err;
    to.record_count = (int32_t)d->kept;
    to.length = (int32_t)(KW_BATCH_HEADER_SIZE + n - KW_BATCH_OVERHEAD);
    if (d->kept == 0) to.attributes &= (int16_t)~KW_ATTR_CODEC;
    else if (!(h->attributes & KW_ATTR_LOG_APPEND_TIME)) to.max_timestamp = d->max_timestamp;
    kw_batch_write_header(made->data, &to);
    kw_batch_crc_set(made->data, KW_BATCH_HEADER_SIZE + n);
    *blk = made;
    *out_size = KW_BATCH_HEADER_SIZE + n;
    return KW_OK;
}

size_t kb_dedup_stored(struct kb_dedup *d, int64_t base) {
    struct kb_guid_entry *v = d->batch.entries;
    bool whole = d->kept == d->batch.count;
    size_t n = 0;
    for (size_t i = 0; i < d->batch.entry_count; i++) {
        if (!whole && d->found[i].offset != NONE) continue;
        if (n != i) v[n] = v[i];
        v[n++].offset += base;
    }
    return n;
}
