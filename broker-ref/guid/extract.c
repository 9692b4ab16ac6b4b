/* extract.c - ids and payload checksums out of a batch. Contract: extract.h. */
#include "extract.h"

#include "base/crc32c.h"
#include "wire/record_read.h"

void kb_guid_batch_init(struct kb_guid_batch *b) {
    memset(b, 0, sizeof(*b));
}

void kb_guid_batch_deinit(struct kb_guid_batch *b) {
    kw_free(b->v);
    kw_free(b->entries);
    kb_guid_batch_init(b);
}

/* The lengths are what it begins with: the same bytes otherwise shared out have another one. */
uint32_t kb_guid_payload(struct kw_bytes key, struct kw_bytes value) {
    uint32_t crc = (uint32_t)key.len * 0x9e3779b1u ^ (uint32_t)value.len;
    if (key.len > 0) crc = kw_crc32c(crc, key.p, (size_t)key.len);
    if (value.len > 0) crc = kw_crc32c(crc, value.p, (size_t)value.len);
    return crc;
}

/* The headers of a record that was read are sound. */
static kw_err judge(const struct kw_record_raw *r, enum kb_guid_verdict *verdict, const uint8_t **id) {
    struct kw_in in;
    struct kw_header_view h;
    int32_t more = 0;
    *verdict = KB_GUID_NONE;
    kw_in_init(&in, r->headers, (size_t)(r->end - r->headers));
    for (int32_t i = 0; i < r->header_count && (more = kw_record_header_next(&in, &h)) > 0; i++) {
        if (h.key.len != sizeof(KB_GUID_HEADER) - 1 || memcmp(h.key.p, KB_GUID_HEADER, sizeof(KB_GUID_HEADER) - 1) != 0) continue;
        if (*verdict != KB_GUID_NONE) {
            *verdict = KB_GUID_TWICE;
            break;
        }
        *verdict = h.value.len == KB_GUID_SIZE ? KB_GUID_ID : KB_GUID_LENGTH;
        *id = h.value.p;
    }
    return more < 0 ? more : KW_OK;
}

/* The usual record has the one header, at its end: that is seen at a glance, and shows that the record is sound as far as its headers go. */
static inline kw_err read_record(const uint8_t *p, const uint8_t *end, struct kw_record_raw *r, enum kb_guid_verdict *verdict, const uint8_t **id) {
    static const uint8_t glance[] = {8, 'g', 'u', 'i', 'd', 2 * KB_GUID_SIZE}; /* lengths as varints */
    if (KW_LIKELY(kw_record_head_fast(p, end, r) && r->header_count == 1 && r->end - r->headers == sizeof(glance) + KB_GUID_SIZE &&
                  memcmp(r->headers, glance, sizeof(glance)) == 0)) {
        *id = r->headers + sizeof(glance);
        *verdict = KB_GUID_ID;
        return KW_OK;
    }
    struct kw_record_raw other;
    kw_err err = kw_record_read(p, end, &other);
    if (err != KW_OK) return err;
    *r = other;
    return judge(r, verdict, id);
}

/* For so many of each. */
static kw_err room(struct kb_guid_batch *b, size_t n) {
    size_t cap = KW_MAX(b->cap, (size_t)64);
    while (cap < n) cap *= 2;
    if (b->cap < cap) {
        struct kb_guid_record *v = kw_realloc(b->v, cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        b->v = v;
        b->cap = cap;
    }
    if (b->entry_cap < cap) {
        struct kb_guid_entry *v = kw_realloc(b->entries, cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        b->entries = v;
        b->entry_cap = cap;
    }
    return KW_OK;
}

/* Added as unsigned: a hostile base may overflow, which is then just a wrong number. */
static int64_t sum(int64_t base, int64_t delta) { return (int64_t)((uint64_t)base + (uint64_t)delta); }

kw_err kb_guid_extract(const uint8_t *batch, size_t size, const struct kw_batch_header *h, struct kw_compressor *compressor, size_t limit,
                       struct kb_guid_batch *out) {
    out->count = out->entry_count = out->bad_count = out->body_size = 0;
    out->body = NULL;
    if (h->record_count <= 0 || (h->attributes & KW_ATTR_CONTROL)) return KW_OK;
    kw_err err = kw_batch_body(batch, size, h, limit, compressor, &out->body, &out->body_size);
    if (err != KW_OK) return err;
    if ((size_t)h->record_count > out->body_size / KW_RECORD_SIZE_MIN) return KW_EDECODE;
    if ((err = room(out, (size_t)h->record_count)) != KW_OK) return err;
    const uint8_t *p = out->body, *end = p + out->body_size;
    for (int32_t i = 0; i < h->record_count; i++) {
        struct kw_record_raw r;
        enum kb_guid_verdict verdict;
        const uint8_t *id = NULL;
        if ((err = read_record(p, end, &r, &verdict, &id)) != KW_OK) return err;
        out->v[out->count++] = (struct kb_guid_record){
            .verdict = verdict,
            .offset_delta = r.offset_delta,
            .at = (uint32_t)(p - out->body),
            .size = (uint32_t)(r.end - p),
            .entry = (uint32_t)out->entry_count,
            .timestamp = h->attributes & KW_ATTR_LOG_APPEND_TIME ? h->max_timestamp : sum(h->base_timestamp, r.timestamp_delta)};
        p = r.end;
        out->bad_count += verdict > KB_GUID_ID;
        if (verdict != KB_GUID_ID) continue;
        struct kb_guid_entry *e = &out->entries[out->entry_count++];
        memcpy(e->id, id, KB_GUID_SIZE);
        e->offset = sum(h->base_offset, r.offset_delta);
        e->payload = kb_guid_payload(r.key, r.value);
    }
    return p == end ? KW_OK : KW_EDECODE;
}
