/* produce_check.c - what a produced batch must be before it is appended: form, size, CRC and records, timestamps, keys; conversion of old
 * formats, the topic's codec, the broker's time. Called by produce. Calls wire/batch, message_set, compress. KIP-32, 98, 110, 467, 937
 * (timestamp bounds).
 */
#include "produce_check.h"

#include <stdarg.h>
#include <stdio.h>

#include "node_priv.h"
#include "quorum/effective.h"
#include "wire/message_set.h"

enum { RECORD_ERRORS_MAX = 100 };

static struct kb_verdict verdict(int16_t code, const char *text) {
    return (struct kb_verdict){.code = code, .text = text};
}

static const char *say(struct kb_request *rq, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static const char *say(struct kb_request *rq, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : kw_arena_dup(&rq->arena, text, KW_MIN((size_t)n, sizeof(text) - 1) + 1);
}

static struct kb_verdict of_error(struct kb_request *rq, kw_err err, const char *why) {
    switch (err) {
    case KW_ECRC:
        return verdict(KE_CORRUPT_MESSAGE, why ? why : "the CRC does not match the bytes");
    case KW_ELIMIT:
        return verdict(KE_MESSAGE_TOO_LARGE, "the records decompress to more than max.decompressed.message.bytes");
    case KW_EUNSUPPORTED:
        return verdict(KE_UNSUPPORTED_COMPRESSION_TYPE, "this broker was built without the batch's codec");
    case KW_ENOMEM:
        return verdict(KE_KAFKA_STORAGE_ERROR, "the broker is out of memory; try again");
    default:
        return verdict(KE_INVALID_RECORD, say(rq, "the batch does not follow its format: %s", why ? why : "malformed"));
    }
}

/* ---- Form: one v2 batch, or a message set made into one ---- */

static struct kb_verdict take_v2(struct kb_request *rq, const struct kb_partition *p, struct kw_records r, struct kb_checked *out) {
    int64_t size = kw_batch_size_peek(r.p, (size_t)r.len);
    if (size < 0 || size > r.len || r.len < KW_BATCH_HEADER_SIZE)
        return verdict(KE_CORRUPT_MESSAGE, say(rq, "the batch's length field does not fit the %d bytes that were sent", r.len));
    if (r.p[KW_BATCH_MAGIC] != 2) return verdict(KE_INVALID_RECORD, "Produce v3 and later carry record batches of magic 2 only");
    if (size < r.len) return verdict(KE_INVALID_RECORD, "Produce v3 and later carry exactly one record batch a partition");
    if (size > p->config.max_message_bytes)
        return verdict(KE_MESSAGE_TOO_LARGE, say(rq, "the batch has %lld bytes, max.message.bytes of %s is %d", (long long)size, p->topic,
                                                 p->config.max_message_bytes));
    out->blk = kw_blk_ref(rq->blk);
    out->batch = (uint8_t *)(uintptr_t)r.p; /* in the block, which is ours to patch */
    out->size = (size_t)size;
    return verdict(KE_NONE, NULL);
}

static struct kb_verdict take_memory(const struct kb_partition *p, struct kb_request *rq, const uint8_t *batch, size_t size,
                                     struct kb_checked *out) {
    if (size > (size_t)p->config.max_message_bytes)
        return verdict(KE_MESSAGE_TOO_LARGE, say(rq, "as one batch the messages have %zu bytes, max.message.bytes of %s is %d", size,
                                                 p->topic, p->config.max_message_bytes));
    out->blk = kw_blk_new(size);
    if (!out->blk) return of_error(rq, KW_ENOMEM, NULL);
    memcpy(out->blk->data, batch, size);
    out->batch = out->blk->data;
    out->size = size;
    return verdict(KE_NONE, NULL);
}

static struct kb_verdict take_message_set(struct kb_request *rq, const struct kb_partition *p, struct kw_records r,
                                          struct kb_checked *out) {
    uint8_t *batch;
    size_t size;
    const char *why = NULL;
    if (r.len >= KW_BATCH_MAGIC + 1 && r.p[KW_BATCH_MAGIC] > 1)
        return verdict(KE_CORRUPT_MESSAGE, "Produce v0 to v2 carry messages of magic 0 and 1 only");
    kw_err err =
        kw_message_set_to_batch(r.p, (size_t)r.len, (size_t)p->config.max_decompressed_bytes, rq->node->compressor, &batch, &size, &why);
    if (err == KW_EDECODE || err == KW_ESHORT || err == KW_EVERSION) err = KW_ECRC; /* old clients know CORRUPT_MESSAGE only */
    if (err != KW_OK) return of_error(rq, err, why);
    struct kb_verdict v = take_memory(p, rq, batch, size, out);
    kw_free(batch);
    return v;
}

/* ---- Who may write what ---- */

static struct kb_verdict check_header(struct kb_request *rq, const struct kb_partition *p, const struct kw_batch_header *h) {
    if (h->base_offset != 0)
        return verdict(KE_INVALID_RECORD, say(rq, "the base offset of a produced batch must be 0, it is %lld", (long long)h->base_offset));
    if (h->attributes & KW_ATTR_CONTROL) return verdict(KE_INVALID_RECORD, "clients may not write control records");
    if (h->attributes & KW_ATTR_DELETE_HORIZON) return verdict(KE_INVALID_RECORD, "clients may not set a delete horizon");
    if (h->attributes & KW_ATTR_TRANSACTIONAL)
        return verdict(KE_INVALID_TXN_STATE,
                       "this broker has no transactions: no transaction can be open, produce without a transactional.id");
    if (h->producer_id >= 0 && (h->base_sequence < 0 || h->producer_epoch < 0))
        return verdict(KE_INVALID_RECORD, "a batch with a producer id needs an epoch and a sequence of at least 0");
    if ((h->attributes & KW_ATTR_LOG_APPEND_TIME) && !p->config.log_append_time)
        return verdict(KE_INVALID_TIMESTAMP, "a producer may not mark its timestamps as the broker's (LogAppendTime)");
    if ((h->attributes & KW_ATTR_CODEC) == KW_CODEC_ZSTD && rq->head.version >= 3 && rq->head.version < 7)
        return verdict(KE_UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or later");
    return verdict(KE_NONE, NULL);
}

/* ---- Records that are refused one by one (KIP-467): walked only when there are any, or may be ---- */

struct walk {
    uint8_t *owned; /* decompressed */
    struct kw_record_iter it;
};

static kw_err walk_start(struct kb_request *rq, const struct kb_partition *p, const struct kb_checked *c, struct walk *w) {
    const uint8_t *body = c->batch + KW_BATCH_HEADER_SIZE;
    size_t size = c->size - KW_BATCH_HEADER_SIZE;
    int codec = c->header.attributes & KW_ATTR_CODEC;
    w->owned = NULL;
    if (codec != KW_CODEC_NONE) {
        kw_err err = kw_decompress(rq->node->compressor, codec, 2, body, size, (size_t)p->config.max_decompressed_bytes, &w->owned, &size);
        if (err != KW_OK) return err;
        body = w->owned;
    }
    kw_record_iter_init(&w->it, &c->header, body, size);
    return KW_OK;
}

static const char *fault_of(struct kb_request *rq, const struct kb_partition *p, const struct kw_record_view *r, int16_t *code) {
    int64_t now = rq->node->now.wall_ms, before = p->config.timestamp_before_max_ms, after = p->config.timestamp_after_max_ms;
    if (p->config.compact && r->key.len < 0) {
        *code = KE_INVALID_RECORD;
        return "a compacted topic needs a key in every record";
    }
    if (p->config.log_append_time) return NULL;
    bool old = before < INT64_MAX / 2 && r->timestamp < now - before, young = after < INT64_MAX / 2 && r->timestamp > now + after;
    if (!old && !young) return NULL;
    if (*code == KE_NONE) *code = KE_INVALID_TIMESTAMP;
    return say(rq, "timestamp %lld lies more than message.timestamp.%s.max.ms=%lld %s the broker's time %lld", (long long)r->timestamp,
               old ? "before" : "after", (long long)(old ? before : after), old ? "before" : "after", (long long)now);
}

static struct kb_verdict walk_records(struct kb_request *rq, const struct kb_partition *p, const struct kb_checked *c) {
    struct walk w;
    kw_err err = walk_start(rq, p, c, &w);
    if (err != KW_OK) return of_error(rq, err, NULL);
    struct kb_verdict v = {0};
    struct kw_record_view r;
    for (int32_t i = 0; kw_record_next(&w.it, &r) > 0; i++) {
        const char *text = fault_of(rq, p, &r, &v.code);
        if (!text || v.record_error_count == RECORD_ERRORS_MAX) continue;
        if (!v.record_errors) v.record_errors = kw_arena_calloc(&rq->arena, RECORD_ERRORS_MAX, sizeof(*v.record_errors));
        if (!v.record_errors) break;
        v.record_errors[v.record_error_count].batch_index = i;
        v.record_errors[v.record_error_count++].batch_index_error_message = kw_str_of(text);
    }
    kw_free(w.owned);
    if (v.code == KE_INVALID_RECORD) v.text = "one or more records have been rejected: a compacted topic needs keys";
    if (v.code == KE_INVALID_TIMESTAMP) v.text = "one or more records have been rejected due to invalid timestamps";
    return v;
}

static struct kb_verdict check_records(struct kb_request *rq, const struct kb_partition *p, struct kb_checked *c) {
    struct kw_batch_check check = {.limit = (size_t)p->config.max_decompressed_bytes, .compressor = rq->node->compressor};
    struct kw_batch_facts facts;
    const char *why = NULL;
    kw_err err = kw_batch_check(c->batch, c->size, &check, &facts, &why);
    if (err != KW_OK) return of_error(rq, err, why);
    const struct kb_topic_config *t = &p->config;
    bool doubtful = t->compact && facts.any_null_key;
    if (!t->log_append_time) {
        doubtful = doubtful || t->timestamp_before_max_ms < INT64_MAX / 2; /* the oldest is not known without a walk */
        doubtful = doubtful ||
                   (t->timestamp_after_max_ms < INT64_MAX / 2 && facts.max_timestamp > rq->node->now.wall_ms + t->timestamp_after_max_ms);
    }
    c->max_timestamp = facts.max_timestamp;
    return doubtful ? walk_records(rq, p, c) : verdict(KE_NONE, NULL);
}

/* ---- What the broker changes ---- */

static struct kb_verdict recompress(struct kb_request *rq, const struct kb_partition *p, struct kb_checked *c) {
    static const char *const level_names[KW_CODEC_COUNT] = {NULL, "compression.gzip.level", NULL, "compression.lz4.level",
                                                            "compression.zstd.level"};
    struct kb_node *n = rq->node;
    int from = c->header.attributes & KW_ATTR_CODEC, to = p->config.compression;
    const uint8_t *body = c->batch + KW_BATCH_HEADER_SIZE;
    size_t size = c->size - KW_BATCH_HEADER_SIZE;
    uint8_t *plain = NULL;
    struct kw_blk *blk = NULL;
    kw_err err = KW_OK;
    if (from != KW_CODEC_NONE) {
        err = kw_decompress(n->compressor, from, 2, body, size, (size_t)p->config.max_decompressed_bytes, &plain, &size);
        if (err != KW_OK) goto fail;
        body = plain;
    }
    size_t bound = to == KW_CODEC_NONE ? size : kw_compress_bound(to, size), made = size;
    blk = kw_blk_new(KW_BATCH_HEADER_SIZE + bound);
    err = blk ? KW_OK : KW_ENOMEM;
    if (err == KW_OK && to == KW_CODEC_NONE) memcpy(blk->data + KW_BATCH_HEADER_SIZE, body, size);
    if (err == KW_OK && to != KW_CODEC_NONE) {
        int level = level_names[to] ? (int)kb_effective_topic_int(&n->image, n->parts.config, kw_str_of(p->topic), level_names[to])
                                    : KW_LEVEL_DEFAULT;
        err = kw_compress(n->compressor, to, level, 2, body, size, blk->data + KW_BATCH_HEADER_SIZE, bound, &made);
    }
    if (err != KW_OK) goto fail;
    kw_free(plain);
    c->size = KW_BATCH_HEADER_SIZE + made;
    c->header.length = (int32_t)(c->size - KW_BATCH_OVERHEAD);
    c->header.attributes = (int16_t)((c->header.attributes & ~KW_ATTR_CODEC) | to);
    kw_batch_write_header(blk->data, &c->header);
    kw_batch_crc_set(blk->data, c->size);
    kw_blk_unref(c->blk);
    c->blk = blk;
    c->batch = blk->data;
    return verdict(KE_NONE, NULL);
fail:
    kw_free(plain);
    kw_blk_unref(blk);
    return of_error(rq, err, "the topic's codec failed");
}

static void patch_time(struct kb_request *rq, const struct kb_partition *p, struct kb_checked *c) {
    struct kw_batch_header *h = &c->header;
    if (p->config.log_append_time) {
        c->max_timestamp = rq->node->now.wall_ms;
        h->attributes |= KW_ATTR_LOG_APPEND_TIME;
    } else if (h->max_timestamp == c->max_timestamp) {
        return;
    }
    h->max_timestamp = c->max_timestamp; /* the records say it, whatever the header said */
    kw_store16(c->batch + KW_BATCH_ATTRIBUTES, (uint16_t)h->attributes);
    kw_store64(c->batch + KW_BATCH_MAX_TIMESTAMP, (uint64_t)h->max_timestamp);
    kw_batch_crc_set(c->batch, c->size);
}

struct kb_verdict kb_produce_check(struct kb_request *rq, const struct kb_partition *p, struct kw_records records, struct kb_checked *out) {
    *out = (struct kb_checked){0};
    bool v2 = rq->head.version >= 3;
    if (records.len <= 0 || !records.p)
        return v2 ? verdict(KE_INVALID_RECORD, "Produce v3 and later carry exactly one record batch a partition")
                  : verdict(KE_CORRUPT_MESSAGE, "no messages were sent");
    struct kb_verdict v = v2 ? take_v2(rq, p, records, out) : take_message_set(rq, p, records, out);
    if (v.code != KE_NONE) return v;
    kw_err err = kw_batch_parse(out->batch, out->size, &out->header);
    if (err != KW_OK)
        v = of_error(rq, KW_ECRC, "the batch's header does not follow its format");
    else
        v = check_header(rq, p, &out->header);
    if (v.code == KE_NONE && (int64_t)out->size > p->log_config.segment_bytes)
        v = verdict(KE_RECORD_LIST_TOO_LARGE, say(rq, "the batch has %zu bytes, segment.bytes of %s is %lld", out->size, p->topic,
                                                  (long long)p->log_config.segment_bytes));
    if (v.code == KE_NONE) v = check_records(rq, p, out);
    if (v.code == KE_NONE && p->config.compression >= 0 && p->config.compression != (out->header.attributes & KW_ATTR_CODEC))
        v = recompress(rq, p, out);
    if (v.code != KE_NONE) {
        kw_blk_unref(out->blk);
        out->blk = NULL;
        return v;
    }
    patch_time(rq, p, out);
    return v;
}
