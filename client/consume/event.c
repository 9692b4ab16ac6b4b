/* event.c - what an application sees of an event: accessors, records as pointers, headers on demand, reference counts. Any thread. */
#include "group.h"

int32_t kc_event_kind(const kc_event *e) {
    return e ? e->kind : 0;
}
int32_t kc_event_topic(const kc_event *e) {
    return e ? e->topic : 0;
}
int32_t kc_event_partition(const kc_event *e) {
    return e ? e->partition : -1;
}
const kc_error *kc_event_error(const kc_event *e) {
    return e ? e->error : NULL;
}
int64_t kc_event_offset(const kc_event *e) {
    return e ? e->offset : -1;
}
int64_t kc_event_position_before(const kc_event *e) {
    return e && e->kind == KC_EVENT_ERROR ? e->position_before : -1;
}
int64_t kc_event_high_watermark(const kc_event *e) {
    return e ? e->high_watermark : -1;
}
size_t kc_event_count(const kc_event *e) {
    return e ? e->count : 0;
}
size_t kc_event_partitions(const kc_event *e, kc_topic_partition *out, size_t stride, size_t max) {
    if (!e || !e->handover || (max > 0 && (!out || stride < sizeof *out))) return 0;
    const struct kc_handover *h = e->handover;
    for (size_t i = 0; i < h->count && i < max; i++) *KW_AT(kc_topic_partition, out, stride, i) = h->parts[i];
    return h->count;
}

const kc_view *kc_event_views(const kc_event *e) {
    return e ? e->views : NULL;
}

const uint8_t *kc_event_span(const kc_event *e, size_t *size) {
    if (size) *size = e ? e->span_size : 0;
    return e ? e->span : NULL;
}

static kc_bytes bytes_at(const kc_event *e, uint32_t where, int32_t size) {
    if (size < 0) return (kc_bytes){NULL, 0};
    if (size == 0) return (kc_bytes){"", 0};
    return (kc_bytes){e->span + where, (size_t)size};
}

kc_err kc_event_message(const kc_event *e, size_t index, kc_message *out) {
    if (!e || !out || index >= e->count) return KC_INVALID;
    const kc_view *v = &e->views[index];
    *out = (kc_message){.topic = e->topic,
                        .partition = e->partition,
                        .offset = v->offset,
                        .timestamp_ms = v->timestamp_ms,
                        .key = bytes_at(e, v->key_at, v->key_size),
                        .value = bytes_at(e, v->value_at, v->value_size),
                        .header_count = v->header_count,
                        .timestamp_type = e->timestamp_type,
                        .leader_epoch = e->leader_epoch};
    return KC_OK;
}

size_t kc_event_headers(const kc_event *e, size_t index, kc_header *out, size_t stride, size_t max) {
    if (!e || index >= e->count || e->legacy || (max > 0 && (!out || stride < sizeof *out))) return 0;
    const kc_view *v = &e->views[index];
    struct kw_in in;
    struct kw_header_view h;
    kw_in_init(&in, e->span + v->headers_at, e->span_size - v->headers_at);
    for (size_t i = 0; i < v->header_count && i < max; i++) {
        if (kw_record_header_next(&in, &h) != 1) return i; /* they were sound when the record was given out */
        kc_header *o = KW_AT(kc_header, out, stride, i);
        *o = (kc_header){.name = h.key.p,
                         .name_size = (size_t)h.key.len,
                         .value = {h.value.len < 0    ? NULL
                                   : h.value.len == 0 ? (const void *)""
                                                      : h.value.p,
                                   h.value.len > 0 ? (size_t)h.value.len : 0}};
    }
    return v->header_count;
}

kc_event *kc_event_ref(kc_event *e) {
    if (e) atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    return e;
}

kc_client *kc_event_drop(kc_event *e) {
    if (!e || atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1) return NULL;
    kc_client *client = e->client;
    if (e->handover && !e->in_child) (void)kc_handover_ack(e->handover);
    kc_handover_unref(e->handover);
    if (e->parent)
        (void)kc_event_drop(e->parent); /* holds nothing of the client itself */
    else
        kw_free(e->views);
    if (e->purse) kc_purse_give(e->purse, (int64_t)e->owned_size);
    kc_purse_unref(e->purse);
    kc_chunk_unref(e->chunk);
    kw_free(e->owned);
    kc_error_free(e->error);
    kw_free(e);
    return client;
}
