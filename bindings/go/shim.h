/* shim.h - calls of the C API put together so that Go crosses the boundary once where C would call several times. Called by the Go files of this
 * package alone. Nothing here blocks. */
#ifndef KCGO_SHIM_H
#define KCGO_SHIM_H

#include <kclient/admin.h>
#include <kclient/consumer.h>
#include <kclient/kclient.h>
#include <kclient/producer.h>
#include <stdlib.h>
#include <string.h>

struct kcgo_count {
    size_t n;
    kc_err err;
};

/* kc_producer_send_flat that never waits. */
struct kcgo_count kcgo_send(kc_producer *p, const kc_flat *records, size_t n, const void *arena, size_t arena_size);

/* Where reports are taken to: of one producer, used by one thread at a time. */
enum { KCGO_REPORTS_MAX = 1024 };
struct kcgo_reports {
    kc_reports *held;
    kc_report reports[KCGO_REPORTS_MAX];
    const kc_error *error; /* of the last of them, where that failed; borrowed until the next call */
    int32_t tried;         /* 1: the last of them has attempts: kc_reports_attempt(held, …) */
};
struct kcgo_reports *kcgo_reports_new(void);
/* The next ones, up to KCGO_REPORTS_MAX, and not beyond one that failed, or was tried more than once; n 0: none now, err says why (KC_TIMED_OUT, KC_CLOSED). */
struct kcgo_count kcgo_reports_next(kc_producer *p, struct kcgo_reports *r);
void kcgo_reports_free(struct kcgo_reports *r);

/* An event with all that Go wants of it. */
struct kcgo_event {
    kc_event *event;
    const kc_view *views;
    const uint8_t *span;
    size_t span_size, count;
    int64_t offset, high_watermark, position_before;
    int32_t kind, topic, partition, leader_epoch, timestamp_type;
};
/* Polls without waiting, fills *out, and frees the event before (may be NULL) in any case. */
kc_err kcgo_poll(kc_consumer *c, kc_event *before, struct kcgo_event *out);

/* A header of an event's record: places in its span. */
struct kcgo_header {
    uint32_t name_at, name_size, value_at;
    int32_t value_size; /* -1: null */
};
/* The headers of all records of the event, one behind the other; `max`: the sum of the views' header_count. */
size_t kcgo_headers(const kc_event *e, struct kcgo_header *out, size_t max);

/* The partitioner that calls back into Go; handle: a runtime/cgo.Handle. */
kc_err kcgo_partitioner_set(kc_producer *p, uintptr_t handle);

/* The next log line: its level, 0 when there is none. */
int32_t kcgo_log(kc_client *c, int64_t *at_ms, char *text, size_t size);

#endif
