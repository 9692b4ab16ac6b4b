/* fetch_cover.c - contract: fetch_cover.h. */
#include "fetch_cover.h"

kw_err kb_fetch_cover(struct kb_read *r, int64_t offset, int32_t epoch) {
    struct kw_blk *blk = kw_blk_new(KW_BATCH_HEADER_SIZE);
    if (!blk) return KW_ENOMEM;
    int64_t delta = KW_MIN(r->skipped_to - 1 - offset, INT32_MAX);
    struct kw_batch_header h = {.base_offset = offset,
                                .length = KW_BATCH_HEADER_SIZE - KW_BATCH_OVERHEAD,
                                .leader_epoch = epoch,
                                .magic = 2,
                                .attributes = KW_ATTR_CONTROL,
                                .last_offset_delta = (int32_t)delta,
                                .base_timestamp = -1,
                                .max_timestamp = -1,
                                .producer_id = -1,
                                .producer_epoch = -1,
                                .base_sequence = -1};
    kw_batch_write_header(blk->data, &h);
    kw_batch_crc_set(blk->data, KW_BATCH_HEADER_SIZE);
    r->slices[0] = (struct kb_slice){.blk = blk, .p = blk->data, .len = KW_BATCH_HEADER_SIZE};
    r->slice_count = 1;
    r->bytes = KW_BATCH_HEADER_SIZE;
    r->next_offset_hint = offset + delta + 1;
    return KW_OK;
}
