/* print_records.c - what records fields of Produce and Fetch hold: batches and messages with offsets, codec, producer; on demand each record.
 * Called by print_body. Calls wire/batch, message_set, compress. See print.h.
 */
#include <stdio.h>

#include "print.h"
#include "wire/message_set.h"

enum { BODY_MAX = 64 << 20 /* of a batch, decompressed */, GUID_SIZE = 16 };

static void put_int(struct kw_out *out, bool *first, const char *name, int64_t v) {
    kb_json_name(out, first, name);
    kb_json_int(out, v);
}
static void put_str(struct kw_out *out, bool *first, const char *name, const char *text) {
    kb_json_name(out, first, name);
    kb_json_string(out, text, strlen(text));
}

static const char *codec_of(int attributes) {
    const char *name = kw_codec_name(attributes & KW_ATTR_CODEC);
    return name ? name : "unknown";
}

/* ---- Records ---- */

/* As ids of records are written everywhere else. */
static void put_guid(struct kw_out *out, const uint8_t *p) {
    char text[40];
    snprintf(text, sizeof(text), "\"%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\"", p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7],
             p[8], p[9], p[10], p[11], p[12], p[13], p[14], p[15]);
    kb_json_text(out, text);
}

static void put_headers(const struct kb_print *p, const struct kw_record_view *v, struct kw_out *out) {
    struct kw_in in;
    struct kw_header_view h;
    kw_in_init(&in, v->headers, v->headers_size);
    kw_out_i8(out, '[');
    for (bool first = true; kw_record_header_next(&in, &h) > 0; first = false) {
        kb_json_text(out, first ? "{\"key\":" : ",{\"key\":");
        kb_json_string(out, h.key.p, (size_t)h.key.len);
        kb_json_text(out, ",\"value\":");
        if (kw_str_eq(h.key, kw_str_of("guid")) && h.value.len == GUID_SIZE)
            put_guid(out, h.value.p);
        else
            kb_json_value(out, h.value.p, h.value.len, p->bytes_max);
        kw_out_i8(out, '}');
    }
    kw_out_i8(out, ']');
}

static void put_record(const struct kb_print *p, const struct kw_record_view *v, struct kw_out *out) {
    bool first = true;
    kw_out_i8(out, '{');
    put_int(out, &first, "offset", v->offset);
    put_int(out, &first, "timestamp", v->timestamp);
    kb_json_name(out, &first, "key");
    kb_json_value(out, v->key.p, v->key.len, p->bytes_max);
    kb_json_name(out, &first, "value");
    kb_json_value(out, v->value.p, v->value.len, p->bytes_max);
    if (v->header_count > 0) {
        kb_json_name(out, &first, "headers");
        put_headers(p, v, out);
    }
    kw_out_i8(out, '}');
}

static const char *why_not(kw_err err) {
    return err == KW_ELIMIT ? "larger than 64 MB when decompressed" : err == KW_ENOMEM ? "no memory" : err == KW_EUNSUPPORTED ? "this build lacks the codec"
                                                                                                                                : "not in their format";
}

static void put_batch_records(const struct kb_print *p, const struct kw_entry *e, const struct kw_batch_header *h, struct kw_out *out, bool *first) {
    const uint8_t *body;
    size_t size;
    struct kw_record_iter it;
    struct kw_record_view v;
    int32_t x = 1;
    kw_err err = kw_batch_body(e->p, e->size, h, BODY_MAX, p->compressor, &body, &size);
    kb_json_name(out, first, "values");
    kw_out_i8(out, '[');
    if (!err) kw_record_iter_init(&it, h, body, size);
    for (bool any = false; !err && out->len <= KB_PRINT_LINE_MAX && (x = kw_record_next(&it, &v)) > 0; any = true) {
        if (any) kw_out_i8(out, ',');
        put_record(p, &v, out);
    }
    kw_out_i8(out, ']');
    if (err || x < 0) put_str(out, first, "unreadable", why_not(err ? err : x));
}

/* ---- Batches ---- */

static int64_t put_batch(const struct kb_print *p, const struct kw_entry *e, struct kw_out *out, bool *first) {
    struct kw_batch_header h;
    if (kw_batch_parse(e->p, e->size, &h) != KW_OK) {
        put_str(out, first, "unreadable", why_not(KW_EDECODE));
        return 0;
    }
    put_int(out, first, "baseOffset", h.base_offset);
    put_int(out, first, "lastOffset", (int64_t)((uint64_t)h.base_offset + (uint64_t)(int64_t)h.last_offset_delta));
    put_int(out, first, "count", h.record_count);
    put_int(out, first, "size", (int64_t)e->size);
    put_str(out, first, "codec", codec_of(h.attributes));
    put_int(out, first, "leaderEpoch", h.leader_epoch);
    put_int(out, first, "producerId", h.producer_id);
    if (h.producer_id >= 0) {
        put_int(out, first, "producerEpoch", h.producer_epoch);
        put_int(out, first, "baseSequence", h.base_sequence);
    }
    put_int(out, first, "baseTimestamp", h.base_timestamp);
    put_int(out, first, "maxTimestamp", h.max_timestamp);
    put_str(out, first, "timestampType", h.attributes & KW_ATTR_LOG_APPEND_TIME ? "LogAppendTime" : "CreateTime");
    if (h.attributes & KW_ATTR_TRANSACTIONAL) kb_json_text(out, ",\"transactional\":true");
    if (h.attributes & KW_ATTR_CONTROL) kb_json_text(out, ",\"control\":true");
    if (!kw_batch_crc_ok(e->p, e->size)) put_str(out, first, "crc", "wrong");
    if (p->records) put_batch_records(p, e, &h, out, first);
    return KW_MAX(h.record_count, 0);
}

/* A message of v0 or v1, or a wrapper around several. */
static int64_t put_message(const struct kb_print *p, const struct kw_entry *e, struct kw_out *out, bool *first) {
    struct kw_message_iter it;
    struct kw_message_view m;
    int64_t count = 0;
    int32_t x;
    bool any = false;
    put_int(out, first, "magic", e->magic);
    put_int(out, first, "offset", (int64_t)kw_load64(e->p));
    put_int(out, first, "size", (int64_t)e->size);
    if (e->size > KW_MESSAGE_ATTRIBUTES) put_str(out, first, "codec", codec_of(e->p[KW_MESSAGE_ATTRIBUTES]));
    if (p->records) {
        kb_json_name(out, first, "values");
        kw_out_i8(out, '[');
    }
    kw_message_iter_init(&it, e->p, e->size, BODY_MAX, p->compressor);
    while ((x = kw_message_iter_next(&it, &m)) > 0 && out->len <= KB_PRINT_LINE_MAX) {
        count++;
        if (!p->records) continue;
        if (any) kw_out_i8(out, ',');
        any = true;
        put_record(p, &(struct kw_record_view){.offset = m.offset, .timestamp = m.timestamp, .key = m.key, .value = m.value}, out);
    }
    kw_message_iter_deinit(&it);
    if (p->records) kw_out_i8(out, ']');
    put_int(out, first, "count", count);
    if (x < 0) put_str(out, first, "unreadable", x == KW_ECRC ? "a checksum is wrong" : why_not(x));
    return count;
}

void kb_print_records(const struct kb_print_frame *f, const uint8_t *p, size_t n, struct kw_out *out) {
    size_t there = f->entry && n > 0 ? kb_recording_stored(f->entry, (size_t)(p - f->frame), n) : n;
    const uint8_t *at = p, *end = p + there;
    struct kw_entry e;
    int64_t count = 0;
    int32_t x = 0;
    bool first = true;
    kb_json_text(out, "{\"size\":");
    kb_json_int(out, (int64_t)n);
    kb_json_text(out, ",\"batches\":[");
    while (out->len <= KB_PRINT_LINE_MAX && (x = kw_entry_next(&at, end, &e)) > 0) {
        bool none = true;
        kb_json_text(out, first ? "{" : ",{");
        first = false;
        count += e.magic == 2 ? put_batch(f->print, &e, out, &none) : put_message(f->print, &e, out, &none);
        kw_out_i8(out, '}');
    }
    kb_json_text(out, "],\"count\":");
    kb_json_int(out, count);
    if (x < 0) kb_json_text(out, ",\"unreadable\":\"what follows is no batch\"");
    if (x == 0 && at < end) { /* a fetch may end amidst one */
        kb_json_text(out, ",\"cutBytes\":");
        kb_json_int(out, end - at);
    }
    if (there < n) {
        kb_json_text(out, ",\"notRecordedBytes\":");
        kb_json_int(out, (int64_t)(n - there));
    }
    kw_out_i8(out, '}');
}
