/* table.c - ids in memory. Contract: table.h. */
#include "table.h"

#define INDEX_BITS 19 /* of a slot: an entry's index plus one */
#define INDEX_MASK ((1u << INDEX_BITS) - 1)
#define CAP_MIN 32
#define CHUNK 16 /* ids whose hashes are made together, so that their slots are on their way from memory */

static inline uint32_t tag_of(uint64_t hash) {
    return (uint32_t)(hash >> 32) & ~INDEX_MASK;
}

kw_err kb_guid_table_init(struct kb_guid_table *t, const uint64_t key[2], int64_t base, size_t expected) {
    *t = (struct kb_guid_table){.base = base, .end = base, .cut_to = INT64_MAX, .slots_from = INT64_MIN, .key = {key[0], key[1]}, .cap = CAP_MIN};
    while (t->cap < expected && t->cap < KB_GUID_TABLE_MAX) t->cap *= 2;
    t->v = kw_malloc(t->cap * sizeof(*t->v));
    if (t->v) return KW_OK;
    kb_guid_table_deinit(t);
    return KW_ENOMEM;
}

void kb_guid_table_deinit(struct kb_guid_table *t) {
    kw_free(t->v);
    kw_free(t->slots);
    t->v = NULL;
    t->slots = NULL;
    t->count = t->cap = t->slot_cap = 0;
}

/* The slot of this id, or the free one where it would be. */
static inline uint32_t *slot_of(const struct kb_guid_table *t, const uint8_t *id, uint64_t hash) {
    uint32_t tag = tag_of(hash);
    for (size_t i = (size_t)hash;; i++) {
        uint32_t *s = &t->slots[i & (t->slot_cap - 1)];
        if (*s == 0 || ((*s & ~INDEX_MASK) == tag && kb_guid_eq(t->v[(*s & INDEX_MASK) - 1].id, id))) return s;
    }
}

static void put(struct kb_guid_table *t, size_t i, uint64_t hash) {
    if (t->base + t->v[i].delta < t->slots_from) return; /* the log begins above it */
    uint32_t *s = slot_of(t, t->v[i].id, hash);
    if (*s)
        t->repeats = true;
    else
        *s = tag_of(hash) | (uint32_t)(i + 1);
}

static void fill_slots(struct kb_guid_table *t, int64_t from) {
    memset(t->slots, 0, t->slot_cap * sizeof(*t->slots));
    t->slots_from = from;
    size_t i = kb_guid_table_below(t, from);
    while (i < t->count) {
        uint64_t hash[CHUNK];
        size_t n = KW_MIN(t->count - i, (size_t)CHUNK);
        for (size_t k = 0; k < n; k++) {
            hash[k] = kb_guid_hash(t->key, t->v[i + k].id);
            kb_guid_table_prefetch(t, hash[k]);
        }
        for (size_t k = 0; k < n; k++) put(t, i++, hash[k]);
    }
}

static kw_err make_slots(struct kb_guid_table *t, size_t count) {
    uint32_t *slots = kw_malloc(count * sizeof(*slots));
    if (!slots) return KW_ENOMEM;
    kw_free(t->slots);
    t->slots = slots;
    t->slot_cap = count;
    fill_slots(t, t->slots_from);
    return KW_OK;
}

static kw_err grow(struct kb_guid_table *t, size_t count) {
    size_t cap = t->cap;
    while (cap < count) cap *= 2;
    struct kb_guid_slot_entry *v = kw_realloc(t->v, cap * sizeof(*v));
    if (!v) return KW_ENOMEM;
    t->v = v;
    kw_err err = t->slots ? make_slots(t, 2 * cap) : KW_OK;
    if (err == KW_OK) t->cap = cap;
    return err;
}

static void append(struct kb_guid_table *t, const struct kb_guid_entry *e) {
    struct kb_guid_slot_entry *s = &t->v[t->count++];
    memcpy(s->id, e->id, KB_GUID_SIZE);
    s->delta = (uint32_t)(e->offset - t->base);
    s->payload = e->payload;
}

/* As long as they ascend. How many. */
static size_t append_ascending(struct kb_guid_table *t, const struct kb_guid_entry *v, size_t n) {
    kb_id128 highest = t->highest;
    size_t i = 0;
    for (; i < n; i++) {
        kb_id128 x = kb_id_number(v[i].id);
        if (x <= highest && t->count > 0) break;
        highest = x;
        append(t, &v[i]);
    }
    t->highest = highest;
    return i;
}

static void append_hashed(struct kb_guid_table *t, const struct kb_guid_entry *v, size_t n) {
    uint64_t hash[CHUNK];
    for (size_t k = 0; k < n; k++) {
        hash[k] = kb_guid_hash(t->key, v[k].id);
        kb_guid_table_prefetch(t, hash[k]);
    }
    for (size_t k = 0; k < n; k++) {
        t->highest = KW_MAX(t->highest, kb_id_number(v[k].id));
        append(t, &v[k]);
        put(t, t->count - 1, hash[k]);
    }
}

kw_err kb_guid_table_add(struct kb_guid_table *t, const struct kb_guid_entry *v, size_t n) {
    size_t done = 0;
    if (n == 0) return KW_OK;
    KW_ASSERT(!t->frozen && n <= KB_GUID_TABLE_MAX - t->count && v[0].offset >= t->base && v[n - 1].offset - t->base <= UINT32_MAX);
    if (t->count + n > t->cap) {
        kw_err err = grow(t, t->count + n);
        if (err != KW_OK) return err;
    }
    if (!t->slots && (done = append_ascending(t, v, n)) > 0) t->end = v[done - 1].offset + 1;
    if (done == n) return KW_OK;
    if (!t->slots) {
        kw_err err = make_slots(t, 2 * t->cap);
        if (err != KW_OK) return err;
    }
    for (size_t k; done < n; done += k) {
        k = KW_MIN(n - done, (size_t)CHUNK);
        append_hashed(t, v + done, k);
    }
    t->end = v[n - 1].offset + 1;
    return KW_OK;
}

/* Of those that ascend. */
static const struct kb_guid_slot_entry *halve(const struct kb_guid_table *t, const uint8_t *id) {
    kb_id128 x = kb_id_number(id);
    size_t lo = 0, hi = t->count; /* ids below lo are less */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (kb_id_number(t->v[mid].id) < x)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < t->count && kb_guid_eq(t->v[lo].id, id) ? &t->v[lo] : NULL;
}

bool kb_guid_table_find(struct kb_guid_table *t, const uint8_t id[KB_GUID_SIZE], uint64_t hash, int64_t from, int64_t to, struct kb_guid_entry *out) {
    const struct kb_guid_slot_entry *e;
    if (t->count == 0 || kb_id_number(id) > t->highest) return false;
    if (t->slots) {
        /* The log begins later by now: of ids that came twice the slots may have a copy that has gone. Once for each such move, not for each question. */
        if (KW_UNLIKELY(t->repeats && from > t->base && from > t->slots_from)) fill_slots(t, from);
        uint32_t s = *slot_of(t, id, hash);
        e = s ? &t->v[(s & INDEX_MASK) - 1] : NULL;
    } else {
        e = halve(t, id);
    }
    if (!e) return false;
    int64_t offset = t->base + e->delta;
    if (offset < from || offset >= to || offset >= t->cut_to) return false;
    memcpy(out->id, e->id, KB_GUID_SIZE);
    out->offset = offset;
    out->payload = e->payload;
    return true;
}

size_t kb_guid_table_below(const struct kb_guid_table *t, int64_t offset) {
    if (offset <= t->base) return 0;
    size_t lo = 0, hi = t->count; /* entries below lo are */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (t->base + t->v[mid].delta < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void kb_guid_table_pop(struct kb_guid_table *t, int64_t to) {
    if (to >= t->end) return;
    t->end = KW_MAX(to, t->base);
    size_t count = kb_guid_table_below(t, to);
    if (count == t->count) return;
    t->count = count;
    t->forgotten = KW_MIN(t->forgotten, count);
    if (t->slots)
        fill_slots(t, t->slots_from);
    else
        t->highest = count > 0 ? kb_id_number(t->v[count - 1].id) : 0;
}

/* ---- As a run ---- */

#define DIGIT_BITS 11
#define DIGITS (1u << DIGIT_BITS)

static bool is_before(const struct kb_guid_table *t, const struct kb_guid_place *x, const struct kb_guid_place *y) {
    if (x->hash != y->hash) return x->hash < y->hash;
    int c = memcmp(t->v[x->index].id, t->v[y->index].id, KB_GUID_SIZE);
    return c ? c < 0 : x->index < y->index; /* which is the order of the offsets */
}

static void make_starts(uint32_t *counts) {
    for (uint32_t d = 0, sum = 0; d < DIGITS; d++) {
        uint32_t n = counts[d];
        counts[d] = sum;
        sum += n;
    }
}

/* By the hash's first 22 bits in two passes, by which few stay where they do not belong; those go home by hand. One id all over is in order already. */
void kb_guid_table_sort(const struct kb_guid_table *t, size_t count, struct kb_guid_place *v, struct kb_guid_place *spare) {
    uint32_t high[DIGITS] = {0}, low[DIGITS] = {0};
    for (size_t i = 0; i < count; i++) {
        uint64_t hash = kb_guid_hash(t->key, t->v[i].id);
        v[i] = (struct kb_guid_place){hash, (uint32_t)i};
        high[hash >> (64 - DIGIT_BITS)]++;
        low[hash >> (64 - 2 * DIGIT_BITS) & (DIGITS - 1)]++;
    }
    make_starts(high);
    make_starts(low);
    for (size_t i = 0; i < count; i++) spare[low[v[i].hash >> (64 - 2 * DIGIT_BITS) & (DIGITS - 1)]++] = v[i];
    for (size_t i = 0; i < count; i++) v[high[spare[i].hash >> (64 - DIGIT_BITS)]++] = spare[i];
    for (size_t i = 1; i < count; i++) {
        struct kb_guid_place x = v[i];
        size_t at = i;
        for (; at > 0 && is_before(t, &x, &v[at - 1]); at--) v[at] = v[at - 1];
        v[at] = x;
    }
}
