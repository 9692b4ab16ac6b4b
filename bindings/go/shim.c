/* shim.c - see shim.h. */
#include "shim.h"

struct kcgo_count kcgo_send(kc_producer *p, const kc_flat *records, size_t n, const void *arena, size_t arena_size) {
    struct kcgo_count r = {0, KC_OK};
    r.n = kc_producer_send_flat(p, records, sizeof *records, n, arena, arena_size, 0, &r.err);
    return r;
}

struct kcgo_reports *kcgo_reports_new(void) { return calloc(1, sizeof(struct kcgo_reports)); }

struct kcgo_count kcgo_reports_next(kc_producer *p, struct kcgo_reports *r) {
    struct kcgo_count got = {0, KC_OK};
    kc_attempt first;
    r->error = NULL;
    r->tried = 0;
    while (got.n == 0) {
        if (!r->held) got.err = kc_producer_reports(p, &r->held, 0);
        if (got.err != KC_OK) return got;
        while (got.n < KCGO_REPORTS_MAX && kc_reports_next(r->held, &r->reports[got.n])) {
            r->tried = kc_reports_attempt(r->held, 0, &first) == KC_OK;
            if (r->reports[got.n++].err == KC_OK && !r->tried) continue;
            r->error = kc_reports_error(r->held);
            return got;
        }
        if (got.n < KCGO_REPORTS_MAX) { /* it has no more */
            kc_reports_free(r->held);
            r->held = NULL;
        }
    }
    return got;
}

void kcgo_reports_free(struct kcgo_reports *r) {
    if (!r) return;
    kc_reports_free(r->held);
    free(r);
}

kc_err kcgo_poll(kc_consumer *c, kc_event *before, struct kcgo_event *out) {
    kc_event *e = NULL;
    kc_err err = kc_consumer_poll(c, &e, 0);
    kc_event_free(before);
    if (err != KC_OK) return err;
    *out = (struct kcgo_event){
        .event = e,
        .kind = kc_event_kind(e),
        .topic = kc_event_topic(e),
        .partition = kc_event_partition(e),
        .offset = kc_event_offset(e),
        .high_watermark = kc_event_high_watermark(e),
        .position_before = kc_event_position_before(e),
    };
    if (out->kind != KC_EVENT_RECORDS) return KC_OK;
    out->count = kc_event_count(e);
    out->views = kc_event_views(e);
    out->span = kc_event_span(e, &out->span_size);
    kc_message m;
    if (out->count > 0 && kc_event_message(e, 0, &m) == KC_OK) {
        out->leader_epoch = m.leader_epoch;
        out->timestamp_type = m.timestamp_type;
    }
    return KC_OK;
}

/* What is empty may lie anywhere. */
static uint32_t place(const uint8_t *span, const void *p, size_t size) { return size > 0 ? (uint32_t)((const uint8_t *)p - span) : 0; }

size_t kcgo_headers(const kc_event *e, struct kcgo_header *out, size_t max) {
    enum { SOME = 64 };
    kc_header some[SOME];
    size_t size, n = 0, count = kc_event_count(e);
    const uint8_t *span = kc_event_span(e, &size);
    const kc_view *views = kc_event_views(e);
    for (size_t i = 0; i < count; i++) {
        size_t want = views[i].header_count;
        if (want == 0) continue;
        if (want > max - n) break;
        kc_header *h = want <= SOME ? some : calloc(want, sizeof *h);
        size_t got = h ? kc_event_headers(e, i, h, sizeof *h, want) : 0;
        for (size_t k = 0; k < want; k++, n++) {
            if (k >= got) { /* out of memory: empty ones, so that those of the other records keep their places */
                out[n] = (struct kcgo_header){.value_size = -1};
                continue;
            }
            out[n] = (struct kcgo_header){.name_at = place(span, h[k].name, h[k].name_size),
                                          .name_size = (uint32_t)h[k].name_size,
                                          .value_at = place(span, h[k].value.p, h[k].value.size),
                                          .value_size = h[k].value.p ? (int32_t)h[k].value.size : -1};
        }
        if (h != some) free(h);
    }
    return n;
}

extern int32_t kcgoPartition(uintptr_t handle, int32_t topic, void *key, size_t key_size, int32_t has_key, int32_t count);

static int32_t partition(void *ctx, int32_t topic, const void *key, size_t key_size, int32_t has_key, int32_t count) {
    return kcgoPartition((uintptr_t)ctx, topic, (void *)(uintptr_t)key, key_size, has_key, count);
}
kc_err kcgo_partitioner_set(kc_producer *p, uintptr_t handle) { return kc_producer_partitioner_set(p, partition, (void *)handle); }

int32_t kcgo_log(kc_client *c, int64_t *at_ms, char *text, size_t size) {
    int32_t level = 0;
    return kc_client_log(c, &level, at_ms, text, size) ? level : 0;
}
