/* entry.c - parses the head of a segment's entries and sums their bytes. Called by recover, read, find_time; calls base/crc32c. */
#include "entry.h"

#include "base/crc32c.h"

enum { LEGACY_CRC = 12, LEGACY_MAGIC = 16, LEGACY_ATTRIBUTES = 17, LEGACY_TIMESTAMP = 18, V0_SIZE_MIN = 26, V1_SIZE_MIN = 34 };

static kw_err parse_legacy(const uint8_t *p, size_t n, struct kb_entry *e) {
    int64_t size_min = e->magic == 0 ? V0_SIZE_MIN : V1_SIZE_MIN;
    if (e->size < size_min) return KW_EDECODE;
    if (n < (size_t)size_min) return KW_ESHORT;
    e->last = e->base;
    e->attributes = p[LEGACY_ATTRIBUTES];
    e->max_timestamp = e->magic == 0 ? -1 : (int64_t)kw_load64(p + LEGACY_TIMESTAMP);
    if (e->max_timestamp < -1) return KW_EDECODE;
    e->epoch = -1;
    e->record_count = 1;
    return KW_OK;
}

kw_err kb_entry_parse(const uint8_t *p, size_t n, struct kb_entry *out) {
    if (n < LEGACY_MAGIC + 1) return KW_ESHORT;
    struct kb_entry e = {0};
    e.base = (int64_t)kw_load64(p);
    e.size = (int64_t)(int32_t)kw_load32(p + KW_BATCH_LENGTH) + KW_BATCH_OVERHEAD;
    e.magic = (int8_t)p[KW_BATCH_MAGIC];
    if (e.base < 0 || e.magic < 0 || e.magic > 2) return KW_EDECODE;
    if (e.magic < 2) {
        kw_err err = parse_legacy(p, n, &e);
        if (!err) *out = e;
        return err;
    }
    if (e.size < KW_BATCH_HEADER_SIZE) return KW_EDECODE;
    if (n < KW_BATCH_HEADER_SIZE) return KW_ESHORT;
    int32_t delta = (int32_t)kw_load32(p + KW_BATCH_LAST_OFFSET_DELTA);
    e.record_count = (int32_t)kw_load32(p + KW_BATCH_RECORD_COUNT);
    if (delta < 0 || e.record_count < 0 || e.base > INT64_MAX - delta - 1) return KW_EDECODE;
    e.last = e.base + delta;
    e.epoch = (int32_t)kw_load32(p + KW_BATCH_LEADER_EPOCH);
    e.attributes = (int16_t)kw_load16(p + KW_BATCH_ATTRIBUTES);
    e.max_timestamp = e.record_count ? (int64_t)kw_load64(p + KW_BATCH_MAX_TIMESTAMP) : -1;
    if (e.max_timestamp < -1) e.max_timestamp = -1;
    *out = e;
    return KW_OK;
}

void kb_entry_sum_begin(struct kb_entry_sum *s, const struct kb_entry *e, const uint8_t *p) {
    s->magic = e->magic;
    s->crc = 0;
    s->stored = kw_load32(p + (e->magic == 2 ? KW_BATCH_CRC : LEGACY_CRC));
    s->left = e->size - (e->magic == 2 ? KW_BATCH_ATTRIBUTES : LEGACY_MAGIC);
}

size_t kb_entry_sum_add(struct kb_entry_sum *s, const uint8_t *p, size_t n) {
    if ((int64_t)n > s->left) n = (size_t)s->left;
    s->crc = s->magic == 2 ? kw_crc32c(s->crc, p, n) : kw_crc32(s->crc, p, n);
    s->left -= (int64_t)n;
    return n;
}

bool kb_entry_crc_ok(const struct kb_entry *e, const uint8_t *p) {
    struct kb_entry_sum s;
    kb_entry_sum_begin(&s, e, p);
    size_t skip = (size_t)(e->size - s.left);
    kb_entry_sum_add(&s, p + skip, (size_t)s.left);
    return kb_entry_sum_ok(&s);
}
