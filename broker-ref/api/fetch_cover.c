/* fetch_cover.c - contract: fetch_cover.h. */
#include "fetch_cover.h"

/* A transaction's commit marker, of no producer: of all that is no record of data it is what every client has met. It stands at the last offset:
 * kafkajs, alone, does not go on from a batch but from the records in it. */
static const uint8_t marker_key[] = {0, 0, 0, 1}, marker_value[6];

kw_err kb_fetch_cover(struct kb_read *r, int64_t offset, int32_t epoch) {
    int64_t delta = KW_MIN(r->skipped_to - 1 - offset, INT32_MAX);
    struct kw_record_in rec = {.offset_delta = (int32_t)delta, .key = {marker_key, sizeof(marker_key)}, .value = {marker_value, sizeof(marker_value)}};
    size_t record_size = kw_record_size(&rec), size = KW_BATCH_HEADER_SIZE + record_size;
    struct kw_blk *blk = kw_blk_new(size);
    if (!blk) return KW_ENOMEM;
    struct kw_batch_header h = {.base_offset = offset,
                                .length = (int32_t)(size - KW_BATCH_OVERHEAD),
                                .leader_epoch = epoch,
                                .magic = 2,
                                .attributes = KW_ATTR_CONTROL,
                                .last_offset_delta = (int32_t)delta,
                                .base_timestamp = -1,
                                .max_timestamp = -1,
                                .producer_id = -1,
                                .producer_epoch = -1,
                                .base_sequence = -1,
                                .record_count = 1};
    kw_batch_write_header(blk->data, &h);
    kw_record_write(blk->data + KW_BATCH_HEADER_SIZE, &rec, record_size);
    kw_batch_crc_set(blk->data, size);
    r->slices[0] = (struct kb_slice){.blk = blk, .p = blk->data, .len = size};
    r->slice_count = 1;
    r->bytes = size;
    r->next_offset_hint = offset + delta + 1;
    return KW_OK;
}
