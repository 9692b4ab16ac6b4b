/* extract.c - ids and payload checksums out of a batch. Contract: extract.h. */
#include "extract.h"

#include "base/crc32c.h"

void kb_guid_batch_init(struct kb_guid_batch *b) {
    memset(b, 0, sizeof(*b));
}

void kb_guid_batch_deinit(struct kb_guid_batch *b) {
    kw_free(b->v);
    kw_free(b->entries);
    kb_guid_batch_init(b);
}

uint32_t kb_guid_payload(struct kw_bytes key, struct kw_bytes value) {
    uint8_t lengths[8];
    kw_store32(lengths, (uint32_t)key.len);
    kw_store32(lengths + 4, (uint32_t)value.len);
    uint32_t crc = kw_crc32c(0, lengths, sizeof(lengths));
    if (key.len > 0) crc = kw_crc32c(crc, key.p, (size_t)key.len);
    if (value.len > 0) crc = kw_crc32c(crc, value.p, (size_t)value.len);
    return crc;
}

/* The headers of a record that the iterator gave out are sound. */
static kw_err judge(const struct kw_record_view *r, struct kb_guid_record *out, struct kb_guid_entry *e) {
    struct kw_in in;
    struct kw_header_view h;
    int32_t more = 0;
    out->verdict = KB_GUID_NONE;
    if (r->header_count == 0) return KW_OK;
    kw_in_init(&in, r->headers, r->headers_size);
    for (int32_t i = 0; i < r->header_count && (more = kw_record_header_next(&in, &h)) > 0; i++) {
        if (h.key.len != sizeof(KB_GUID_HEADER) - 1 || memcmp(h.key.p, KB_GUID_HEADER, sizeof(KB_GUID_HEADER) - 1) != 0) continue;
        if (out->verdict != KB_GUID_NONE) {
            out->verdict = KB_GUID_TWICE;
            break;
        }
        out->verdict = h.value.len == KB_GUID_SIZE ? KB_GUID_ID : KB_GUID_LENGTH;
        if (out->verdict == KB_GUID_ID) memcpy(e->id, h.value.p, KB_GUID_SIZE);
    }
    if (out->verdict == KB_GUID_ID) {
        e->offset = r->offset;
        e->payload = kb_guid_payload(r->key, r->value);
    }
    return more < 0 ? more : KW_OK;
}

/* For one more of each. */
static kw_err room(struct kb_guid_batch *b) {
    if (b->count == b->cap) {
        size_t cap = KW_MAX(2 * b->cap, (size_t)64);
        struct kb_guid_record *v = kw_realloc(b->v, cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        b->v = v;
        b->cap = cap;
    }
    if (b->entry_count == b->entry_cap) {
        size_t cap = KW_MAX(2 * b->entry_cap, (size_t)64);
        struct kb_guid_entry *v = kw_realloc(b->entries, cap * sizeof(*v));
        if (!v) return KW_ENOMEM;
        b->entries = v;
        b->entry_cap = cap;
    }
    return KW_OK;
}

kw_err kb_guid_extract(const uint8_t *batch, size_t size, const struct kw_batch_header *h, struct kw_compressor *compressor, size_t limit,
                       struct kb_guid_batch *out) {
    struct kw_record_iter it;
    struct kw_record_view r;
    out->count = out->entry_count = out->bad_count = out->body_size = 0;
    out->body = NULL;
    if (h->record_count <= 0 || (h->attributes & KW_ATTR_CONTROL)) return KW_OK;
    kw_err err = kw_batch_body(batch, size, h, limit, compressor, &out->body, &out->body_size);
    if (err != KW_OK) return err;
    kw_record_iter_init(&it, h, out->body, out->body_size);
    size_t at = 0;
    int32_t more;
    while ((more = kw_record_next(&it, &r)) > 0) {
        if ((err = room(out)) != KW_OK) return err;
        struct kb_guid_record *g = &out->v[out->count++];
        g->offset_delta = r.offset_delta;
        g->entry = (uint32_t)out->entry_count;
        g->at = (uint32_t)at;
        g->size = (uint32_t)r.wire_size;
        g->timestamp = r.timestamp;
        if ((err = judge(&r, g, &out->entries[out->entry_count])) != KW_OK) return err;
        out->entry_count += g->verdict == KB_GUID_ID;
        out->bad_count += g->verdict > KB_GUID_ID;
        at += r.wire_size;
    }
    return more < 0 ? more : KW_OK;
}
