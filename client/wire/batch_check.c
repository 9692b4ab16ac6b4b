/* batch_check.c - whether a v2 batch is whole, record by record. Called by the broker's produce path, its followers and recovery.
 *
 * Stricter than Apache Kafka, which stores some batches (wrong record lengths inside compressed ones, offset deltas that repeat, go back
 * or leap) on which consumers then stall.
 */
#include "record_read.h"

static kw_err refuse(kw_err err, const char *text, const char **why) {
    if (why) *why = text;
    return err;
}

static kw_err check_header(const uint8_t *p, size_t size, const struct kw_batch_check *c, struct kw_batch_header *h, const char **why) {
    kw_err err = kw_batch_parse(p, size, h);
    if (err == KW_EVERSION) return refuse(err, "not a record batch of format 2", why);
    if (err == KW_ESHORT) return refuse(err, "ends before its header does", why);
    if (err) return refuse(err, "length is smaller than a batch header", why);
    if ((uint64_t)h->length + KW_BATCH_OVERHEAD > size) return refuse(KW_ESHORT, "ends before the length that it states", why);
    if ((uint64_t)h->length + KW_BATCH_OVERHEAD < size) return refuse(KW_EDECODE, "bytes follow the length that it states", why);
    if (!c->skip_crc && !kw_batch_crc_ok(p, size)) return refuse(KW_ECRC, "checksum does not match", why);
    if ((h->attributes & KW_ATTR_CODEC) >= KW_CODEC_COUNT) return refuse(KW_EDECODE, "unknown codec", why);
    if (h->record_count < 0) return refuse(KW_EDECODE, "negative record count", why);
    if (h->last_offset_delta < 0) return refuse(KW_EDECODE, "negative last offset delta", why);
    if (c->allow_holes ? h->record_count - 1 > h->last_offset_delta : h->record_count - 1 != h->last_offset_delta)
        return refuse(KW_EDECODE, "record count does not fit the last offset delta", why);
    if (h->base_offset > INT64_MAX - h->last_offset_delta) return refuse(KW_EDECODE, "offsets overflow", why);
    return KW_OK;
}

static kw_err body_error(kw_err err, const char **why) {
    switch (err) {
    case KW_ELIMIT: return refuse(err, "decompressed records are over the limit", why);
    case KW_EUNSUPPORTED: return refuse(err, "codec is not built in", why);
    case KW_ENOMEM: return refuse(err, "out of memory", why);
    default: return refuse(KW_EDECODE, "compressed records are damaged", why);
    }
}

static kw_err walk(const uint8_t *p, const uint8_t *end, const struct kw_batch_header *h, bool holes, struct kw_batch_facts *f,
                   const char **why) {
    int64_t least = 0, max_delta = INT64_MIN, max_at = 0;
    uint32_t null_keys = 0, headers = 0;
    for (int32_t i = 0; i < h->record_count; i++) {
        struct kw_record_raw r;
        kw_err err = kw_record_read(p, end, &r);
        if (KW_UNLIKELY(err == KW_ESHORT)) return refuse(KW_EDECODE, "fewer records than the header states", why);
        if (KW_UNLIKELY(err)) return refuse(KW_EDECODE, "a record's fields do not fit its length", why);
        if (KW_UNLIKELY(holes ? r.offset_delta < least || r.offset_delta > h->last_offset_delta : r.offset_delta != i))
            return refuse(KW_EDECODE, "offset deltas are not in order", why);
        p = r.end;
        least = (int64_t)r.offset_delta + 1;
        int64_t timestamp = (int64_t)((uint64_t)h->base_timestamp + (uint64_t)r.timestamp_delta);
        if (timestamp > max_delta || i == 0) {
            max_delta = timestamp;
            max_at = r.offset_delta;
        }
        null_keys |= r.key.len < 0;
        headers |= (uint32_t)r.header_count;
    }
    if (p != end) return refuse(KW_EDECODE, "bytes follow the last record", why);
    f->max_timestamp = max_delta;
    f->offset_of_max_timestamp = (int32_t)max_at;
    f->any_null_key = null_keys != 0;
    f->any_headers = headers != 0;
    return KW_OK;
}

kw_err kw_batch_check(const uint8_t *p, size_t size, const struct kw_batch_check *c, struct kw_batch_facts *f, const char **why) {
    struct kw_batch_header h;
    kw_err err = check_header(p, size, c, &h, why);
    if (err) return err;
    const uint8_t *body;
    size_t body_size;
    err = kw_batch_body(p, size, &h, c->limit, c->compressor, &body, &body_size);
    if (err) return body_error(err, why);
    struct kw_batch_facts facts;
    err = walk(body, body + body_size, &h, c->allow_holes, &facts, why);
    if (err) return err;
    facts.body_size = body_size;
    *f = facts;
    return KW_OK;
}
