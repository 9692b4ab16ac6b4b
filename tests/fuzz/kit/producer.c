/* producer.c - see producer.h. */
#include "producer.h"

#include <stdlib.h>

#include "produce/produce.h"

enum { RECORDS_MAX = 600 };

struct fuzz_producer {
    struct kc_produce produce;
    const struct kc_settings *settings;
    const struct kc_now *now;
    int32_t topics[2];
    size_t sent;
    uint8_t seen[RECORDS_MAX]; /* reports of a record */
    int64_t closed_us;
    bool closed, stopped;
};

static struct kc_now call_clock(void *ctx) { return *((struct fuzz_producer *)ctx)->now; }
static void call_wake(void *ctx) { kc_produce_turn(&((struct fuzz_producer *)ctx)->produce); }
static void call_signal(void *ctx) { (void)ctx; }
static void call_ready(void *ctx, int32_t kind) { (void)ctx, (void)kind; }
static const struct kc_accum_calls calls = {.clock = call_clock, .wake = call_wake, .signal = call_signal, .ready = call_ready};

struct fuzz_producer *fuzz_producer_new(struct kc_core *core, const struct kc_settings *settings, const struct kc_now *now, const int32_t topics[2]) {
    struct fuzz_producer *p = calloc(1, sizeof *p);
    if (!p) abort();
    p->settings = settings;
    p->now = now;
    memcpy(p->topics, topics, sizeof p->topics);
    FUZZ_CHECK(kc_produce_init(&p->produce, core, settings, &calls, p) == KW_OK, "a producer cannot be made");
    for (int t = 0; t < 2; t++) FUZZ_CHECK(kc_accum_add_topic(&p->produce.accum, topics[t]) == KC_OK, "a topic cannot be added");
    return p;
}

void fuzz_producer_send(struct fuzz_producer *p, struct fuzz_src *s) {
    struct kw_header_view headers[16];
    uint8_t value[256], c = fuzz_u8(s);
    if (p->sent == RECORDS_MAX) return;
    memset(value, c, sizeof value);
    headers[0] = (struct kw_header_view){kw_str_of("h"), {value, 3}};
    struct kc_rec r = {.topic = p->topics[c & 1],
                       .partition = c & 2 ? c >> 2 & 1 : -1,
                       .key = {value, c & 8 ? 5 : -1},
                       .value = {value, c & 16 ? 200 : c >> 5},
                       .headers = headers,
                       .header_count = c >> 6 & 1,
                       .opaque = p->sent};
    if (c == 0xff) r.partition = 7; /* there is none */
    if (c == 0xfe) r.timeout_us = 1000000;
    bool wake = false;
    if (kc_accum_prepare(&p->produce.accum, &r) != KC_OK) return;
    if (kc_accum_put(&p->produce.accum, &r, p->now, false, &wake) == KC_OK) p->sent++;
    if (wake) kc_produce_turn(&p->produce);
}

static void flushed(struct kc_flush *f) { kw_free(f); }

void fuzz_producer_flush(struct fuzz_producer *p) {
    struct kc_flush *f = kw_calloc(1, sizeof *f);
    if (!f) abort();
    f->done = flushed;
    kc_produce_flush(&p->produce, f);
}

void fuzz_producer_purge(struct fuzz_producer *p, bool in_flight) {
    kc_produce_purge(&p->produce, KC_PURGE_QUEUED | (in_flight ? KC_PURGE_IN_FLIGHT : 0));
}

void fuzz_producer_reports(struct fuzz_producer *p) {
    struct kc_reports *r;
    kc_report one;
    while (kc_reports_collect(&p->produce.accum, NULL, &r) == KC_OK) {
        while (kc_reports_next(r, &one)) {
            FUZZ_CHECK(one.opaque < p->sent, "a report of record %llu, which was not sent", (unsigned long long)one.opaque);
            FUZZ_CHECK(p->seen[one.opaque]++ == 0, "record %llu has two reports", (unsigned long long)one.opaque);
            FUZZ_CHECK(one.err == KC_OK ? one.outcome == KC_PERSISTED || p->settings->acks == 0 : kc_reports_error(r) != NULL,
                       "a report says %s with outcome %d", kc_err_name(one.err), one.outcome);
        }
        kc_reports_give_back(r);
    }
}

static void on_closed(struct kc_produce *produce, void *ctx, kc_err err) {
    (void)produce, (void)err;
    struct fuzz_producer *p = ctx;
    p->closed = true;
    p->closed_us = p->now->mono_us;
    fuzz_producer_reports(p);
}

void fuzz_producer_close(struct fuzz_producer *p, int64_t limit_us) {
    FUZZ_CHECK(kc_produce_close(&p->produce, limit_us, on_closed, p) == KC_OK, "the close is refused");
}
bool fuzz_producer_closed(const struct fuzz_producer *p, int64_t *at_us) {
    *at_us = p->closed_us;
    return p->closed;
}

static void on_stopped(struct kc_sender *s) {
    struct kc_produce *produce = KW_CONTAINER_OF(s, struct kc_produce, sender);
    ((struct fuzz_producer *)produce->accum.ctx)->stopped = true;
}

void fuzz_producer_stop(struct fuzz_producer *p) {
    for (size_t i = 0; i < p->sent; i++) FUZZ_CHECK(p->seen[i] == 1, "record %zu of %zu has %d reports", i, p->sent, p->seen[i]);
    kc_produce_stop(&p->produce, on_stopped);
}
bool fuzz_producer_stopped(const struct fuzz_producer *p) { return p->stopped; }

void fuzz_producer_free(struct fuzz_producer *p) {
    kc_produce_detach(&p->produce);
    FUZZ_CHECK(p->produce.accum.records == 0 && p->produce.accum.bytes == 0, "a place in the queue is not given back");
    kc_produce_deinit(&p->produce);
    free(p);
}
