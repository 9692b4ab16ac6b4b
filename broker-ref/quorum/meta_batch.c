/* meta_batch.c - builds batches of metadata records. Contract: meta_batch.h. */
#include "meta_batch.h"

#include "kw_messages.h"

void kb_meta_batch_init(struct kb_meta_batch *b) {
    *b = (struct kb_meta_batch){0};
    kw_out_init(&b->body);
    kw_out_init(&b->value);
}

void kb_meta_batch_deinit(struct kb_meta_batch *b) {
    kw_out_deinit(&b->body);
    kw_out_deinit(&b->value);
}

/* Appends one record whose value is in b->value. */
static kw_err add_record(struct kb_meta_batch *b, struct kw_bytes key) {
    if (b->value.err) return b->value.err;
    struct kw_record_in r = {.offset_delta = b->count, .key = key, .value = {b->value.p, (int32_t)b->value.len}};
    size_t size = b->value.len > KB_META_BATCH_MAX ? SIZE_MAX : kw_record_size(&r);
    if (size > KB_META_BATCH_MAX || b->body.len + size > KB_META_BATCH_MAX - KW_BATCH_HEADER_SIZE) return KW_ELIMIT;
    uint8_t *dst = kw_out_reserve(&b->body, size);
    if (!dst) return KW_ENOMEM;
    kw_record_write(dst, &r, size);
    b->count++;
    return KW_OK;
}

kw_err kb_meta_batch_add(struct kb_meta_batch *b, int16_t type, int16_t version, const void *message) {
    const struct kw_desc *d = kw_metadata_record_by_type(type);
    KW_ASSERT(d);
    kw_out_reset(&b->value);
    kw_out_uvarint(&b->value, 1); /* frame version */
    kw_out_uvarint(&b->value, (uint16_t)type);
    kw_out_uvarint(&b->value, (uint16_t)version);
    kw_err err = kw_encode(d, version, message, &b->value);
    return err ? err : add_record(b, (struct kw_bytes){NULL, -1});
}

kw_err kb_meta_batch_add_control(struct kb_meta_batch *b, int16_t type, const struct kw_desc *d, int16_t version, const void *message) {
    uint8_t key[4] = {0};
    kw_store16(key + 2, (uint16_t)type);
    kw_out_reset(&b->value);
    kw_err err = kw_encode(d, version, message, &b->value);
    return err ? err : add_record(b, (struct kw_bytes){key, sizeof(key)});
}

kw_err kb_meta_batch_finish(struct kb_meta_batch *b, bool control, int64_t base_offset, int32_t epoch, int64_t wall_ms, struct kw_blk **blk,
                            size_t *size) {
    KW_ASSERT(b->count > 0);
    size_t total = KW_BATCH_HEADER_SIZE + b->body.len;
    struct kw_blk *made = kw_blk_new(total);
    if (!made) return KW_ENOMEM;
    struct kw_batch_header h = {
        .base_offset = base_offset,
        .length = (int32_t)(total - KW_BATCH_OVERHEAD),
        .leader_epoch = epoch,
        .magic = 2,
        .attributes = control ? KW_ATTR_CONTROL : 0,
        .last_offset_delta = b->count - 1,
        .base_timestamp = wall_ms,
        .max_timestamp = wall_ms,
        .producer_id = -1,
        .producer_epoch = -1,
        .base_sequence = -1,
        .record_count = b->count,
    };
    kw_batch_write_header(made->data, &h);
    memcpy(made->data + KW_BATCH_HEADER_SIZE, b->body.p, b->body.len);
    kw_batch_crc_set(made->data, total);
    kw_out_reset(&b->body);
    b->count = 0;
    *blk = made;
    *size = total;
    return KW_OK;
}
