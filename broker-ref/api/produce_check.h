/* produce_check.h - from the bytes of a produced partition to one batch that may be appended, or the error that the client gets. */
#ifndef KB_PRODUCE_CHECK_H
#define KB_PRODUCE_CHECK_H

#include "kw_messages.h"
#include "replica/partition.h"
#include "request.h"
#include "wire/batch.h"

struct kb_verdict {
    int16_t code;
    const char *text; /* static or in the request's arena; NULL */
    /* INVALID_RECORD, INVALID_TIMESTAMP: which records (KIP-467), in the arena */
    struct kw_produce_response_batch_index_and_error_message *record_errors;
    int32_t record_error_count;
};
struct kb_checked {
    struct kw_blk *blk; /* one reference: the request's block, or one of its own when the batch was made anew */
    uint8_t *batch;
    size_t size;
    struct kw_batch_header header;
    int64_t max_timestamp;
};

/* code 0: *out is filled, and the caller drops out->blk. */
struct kb_verdict kb_produce_check(struct kb_request *rq, const struct kb_partition *p, struct kw_records records, struct kb_checked *out);

#endif
