/* conn_out.c - a connection's writing side: requests encoded behind each other in one buffer, their record bytes left in place as splices,
 * and the ring of requests on the wire. Called by conn, brokers (pump), the shell (kc_conn_out, kc_conn_written). Calls wire/frame's codec.
 */
#include "internal.h"

#include <stdio.h>

enum { FLIGHTS_FIRST = 8, COMPACT_SIZE = 32 * 1024 };

struct kc_flight *kc_conn_flight(struct kc_conn *c, uint32_t i) {
    KW_ASSERT(i < c->flight_count);
    return &c->flights[(c->flight_head + i) % c->flight_cap];
}

static kw_err flights_grow(struct kc_conn *c) {
    uint32_t cap = c->flight_cap ? c->flight_cap * 2 : FLIGHTS_FIRST;
    struct kc_flight *v = kw_malloc(cap * sizeof *v);
    if (!v) return KW_ENOMEM;
    for (uint32_t i = 0; i < c->flight_count; i++) v[i] = *kc_conn_flight(c, i);
    kw_free(c->flights);
    c->flights = v;
    c->flight_cap = cap;
    c->flight_head = 0;
    return KW_OK;
}

void kc_conn_out_deinit(struct kc_conn *c) {
    for (uint32_t i = 0; i < c->flight_count; i++) kw_blk_unref(kc_conn_flight(c, i)->kept);
    kw_free(c->flights);
    c->flights = NULL;
    c->flight_count = c->flight_cap = 0;
    kw_out_deinit(&c->out);
}

bool kc_conn_unwritten(const struct kc_conn *c) {
    return c->stream_written < c->stream_queued;
}

/* Drops the written front of the buffer, so that a connection that is never quite drained does not grow. */
static void compact(struct kc_conn *c) {
    struct kw_out *o = &c->out;
    if (c->out_at < COMPACT_SIZE || c->out_at < o->len / 2) return;
    size_t gone = 0;
    for (size_t i = 0; i < c->splice_at; i++) gone += o->splices[i].len;
    memmove(o->p, o->p + c->out_at, o->len - c->out_at);
    o->len -= c->out_at;
    for (size_t i = c->splice_at; i < o->splice_count; i++) {
        o->splices[i - c->splice_at] = o->splices[i];
        o->splices[i - c->splice_at].at -= c->out_at;
    }
    o->splice_count -= c->splice_at;
    o->splice_bytes -= gone;
    c->splice_at = 0;
    c->out_at = 0;
}

static kw_err encode(struct kc_conn *c, struct kc_request *rq, const struct kw_api *api, int16_t version, int32_t correlation_id,
                     const void *msg) {
    struct kw_out *o = &c->out;
    struct kw_str client_id = kw_str_of(c->core->settings->client_id);
    if (!rq) return kw_frame_request(o, api, version, correlation_id, client_id, msg);
    size_t start = o->len, splices = o->splice_count, bytes = o->splice_bytes;
    struct kw_request_header h = {
        .request_api_key = api->key, .request_api_version = version, .correlation_id = correlation_id, .client_id = client_id};
    kw_out_i32(o, 0);
    kw_err err = kw_encode(&kw_request_header_desc, kw_request_header_version(api, version), &h, o);
    if (err == KW_OK) err = rq->encode(rq, o);
    if (err == KW_OK) err = o->err;
    size_t size = o->len - start - 4 + (o->splice_bytes - bytes);
    if (err == KW_OK && size > INT32_MAX) err = KW_EINVAL;
    if (err == KW_OK) {
        kw_store32(o->p + start, (uint32_t)size);
        return KW_OK;
    }
    o->len = start;
    o->splice_count = splices;
    o->splice_bytes = bytes;
    o->err = KW_OK;
    return err;
}

/* Encodes a request, or (rq NULL) a message of the connection's own, and enters it in the ring. On failure nothing changed. */
kw_err kc_conn_append(struct kc_conn *c, struct kc_request *rq, const struct kw_api *api, int16_t version, const void *msg,
                      int64_t answer_by_us) {
    if (c->flight_count == c->flight_cap) {
        kw_err err = flights_grow(c);
        if (err != KW_OK) return err;
    }
    compact(c);
    size_t before = c->out.len + c->out.splice_bytes;
    int32_t id = c->next_correlation_id;
    kw_err err = encode(c, rq, api, version, id, msg);
    if (err != KW_OK) return err;
    c->next_correlation_id = id == INT32_MAX ? 0 : id + 1;
    uint64_t start = c->stream_queued;
    c->stream_queued += c->out.len + c->out.splice_bytes - before;
    c->flight_count++;
    *kc_conn_flight(c, c->flight_count - 1) = (struct kc_flight){.rq = rq,
                                                                 .api = api,
                                                                 .version = version,
                                                                 .no_answer = rq && rq->no_answer,
                                                                 .correlation_id = id,
                                                                 .answer_by_us = answer_by_us,
                                                                 .start = start,
                                                                 .end = c->stream_queued};
    if (!kw_timer_armed(&c->timer) || c->timer.at_us > answer_by_us) kc_core_arm(c->core, &c->timer, answer_by_us);
    kc_core_want(c, KC_WANT_WRITE);
    return KW_OK;
}

static void put_on_wire(struct kc_conn *c, struct kc_request *rq) {
    struct kc_core *core = c->core;
    struct kc_broker *b = c->broker;
    const struct kc_version_range *r = kc_versions_of(c->versions, rq->api);
    if (!kc_version_choose(r, rq->version_min, rq->version_max, &rq->version)) {
        char text[160];
        if (r->max < 0)
            snprintf(text, sizeof text, "the broker does not offer %s", rq->api->name);
        else
            snprintf(text, sizeof text, "the broker offers %s in versions %d to %d, this client %d to %d", rq->api->name, r->min, r->max,
                     rq->version_min, rq->version_max);
        kc_request_note(core, rq, b->id, KC_UNSUPPORTED, "send", text);
        kc_request_finish(core, rq, KC_UNSUPPORTED);
        return;
    }
    int64_t patience = rq->answer_timeout_us > 0 ? rq->answer_timeout_us : core->settings->request_timeout_us;
    kw_err err = kc_conn_append(c, rq, rq->api, rq->version, NULL, kc_after(core->now.mono_us, patience));
    if (err != KW_OK) {
        kc_request_note(core, rq, b->id, kc_err_from(err), "send", "the request could not be encoded");
        kc_request_finish(core, rq, kc_err_from(err));
        return;
    }
    kw_list_remove(&rq->link);
    kc_lane_at(b, (size_t)c->channel)->queued--;
    rq->state = KC_RQ_FLIGHT;
    rq->conn = c;
    rq->sent_to = b->id;
}

void kc_conn_pump(struct kc_conn *c) {
    struct kc_lane *lane = kc_lane_at(c->broker, (size_t)c->channel);
    uint32_t limit = c->channel == KC_CHANNEL_PRODUCE ? KC_FLIGHTS_MAX : (uint32_t)KW_MIN(c->core->settings->in_flight_max, KC_FLIGHTS_MAX);
    while (!kw_list_empty(&lane->queue) && c->flight_count < limit && c->stream_queued - c->stream_written < KC_OUT_BYTES_MAX)
        put_on_wire(c, KW_CONTAINER_OF(lane->queue.next, struct kc_request, link));
}

/* ---- Giving up ---- */

void kc_conn_flights_fail(struct kc_conn *c, kc_err err, const char *phase, const char *text) {
    struct kc_core *core = c->core;
    int64_t now = core->now.mono_us;
    while (c->flight_count > 0) {
        struct kc_flight f = *kc_conn_flight(c, 0);
        c->flight_head = (c->flight_head + 1) % c->flight_cap;
        c->flight_count--;
        kw_blk_unref(f.kept);
        if (!f.rq) continue;
        f.rq->sent = c->stream_written > f.start;
        f.rq->conn = NULL;
        /* Those behind one that timed out have not been late themselves. */
        kc_err own = err == KC_TIMED_OUT && f.answer_by_us > now ? KC_TRANSPORT : err;
        kc_request_note(core, f.rq, f.rq->sent_to, own, f.rq->sent ? phase : "send", text);
        kc_request_finish(core, f.rq, own);
    }
    kw_out_reset(&c->out);
    c->out_at = c->splice_at = c->splice_done = 0;
    c->stream_written = c->stream_queued;
}

/* The request goes away before its bytes are all written, so those that are not copied yet must be: the frame has to be finished. */
static kw_err keep_splices(struct kc_conn *c, struct kc_flight *f) {
    struct kw_out *o = &c->out;
    uint64_t at = c->stream_queued - (o->len + o->splice_bytes);
    uint64_t passed = 0;
    size_t total = 0, first = SIZE_MAX, count = 0;
    for (size_t i = 0; i < o->splice_count; i++) {
        uint64_t pos = at + o->splices[i].at + passed;
        passed += o->splices[i].len;
        if (pos < f->start || pos >= f->end || i < c->splice_at) continue;
        if (first == SIZE_MAX) first = i;
        count++;
        total += o->splices[i].len;
    }
    if (count == 0) return KW_OK;
    f->kept = kw_blk_new(total);
    if (!f->kept) return KW_ENOMEM;
    uint8_t *p = f->kept->data;
    for (size_t i = first; i < first + count; i++) {
        memcpy(p, o->splices[i].p, o->splices[i].len);
        o->splices[i].p = p;
        p += o->splices[i].len;
    }
    return KW_OK;
}

void kc_conn_abandon(struct kc_conn *c, struct kc_request *rq) {
    for (uint32_t i = 0; i < c->flight_count; i++) {
        struct kc_flight *f = kc_conn_flight(c, i);
        if (f->rq != rq) continue;
        f->rq = NULL;
        rq->conn = NULL;
        rq->sent = true; /* if not yet, it will be: others are encoded behind it */
        if (c->stream_written >= f->end || keep_splices(c, f) == KW_OK) return;
        rq->sent = c->stream_written > f->start;
        kc_conn_close(c, KC_NO_MEMORY, "send", "no memory to finish a cancelled request");
        return;
    }
    KW_ASSERT(false && "a request in flight is in its connection's ring");
}

/* ---- For the shell ---- */

size_t kc_conn_out(struct kc_conn *c, struct kc_iov *iov, size_t max) {
    const struct kw_out *o = &c->out;
    size_t at = c->out_at, n = 0, done = c->splice_done;
    for (size_t s = c->splice_at; n < max && (at < o->len || s < o->splice_count);) {
        size_t end = s < o->splice_count ? o->splices[s].at : o->len;
        if (at < end) {
            iov[n++] = (struct kc_iov){o->p + at, end - at};
            at = end;
        } else {
            if (o->splices[s].len > done) iov[n++] = (struct kc_iov){o->splices[s].p + done, o->splices[s].len - done};
            done = 0;
            s++;
        }
    }
    return n;
}

static void advance(struct kc_conn *c, size_t n) {
    struct kw_out *o = &c->out;
    while (n > 0 ||
           (c->splice_at < o->splice_count && o->splices[c->splice_at].at == c->out_at && o->splices[c->splice_at].len == c->splice_done)) {
        size_t end = c->splice_at < o->splice_count ? o->splices[c->splice_at].at : o->len;
        if (c->out_at < end) {
            size_t k = KW_MIN(n, end - c->out_at);
            c->out_at += k;
            n -= k;
            continue;
        }
        KW_ASSERT(c->splice_at < o->splice_count);
        size_t k = KW_MIN(n, o->splices[c->splice_at].len - c->splice_done);
        c->splice_done += k;
        n -= k;
        if (c->splice_done == o->splices[c->splice_at].len) {
            c->splice_done = 0;
            c->splice_at++;
        }
    }
}

static void drained(struct kc_conn *c) {
    c->out_at = c->splice_at = c->splice_done = 0;
    if (c->out.cap <= KC_OUT_KEEP_SIZE) {
        kw_out_reset(&c->out);
        return;
    }
    kw_out_deinit(&c->out);
    kw_out_init(&c->out);
    c->out.splice = true;
}

void kc_conn_written(struct kc_conn *c, size_t n, struct kc_now now) {
    c->core->now = now;
    if (c->state == KC_CONN_CLOSING) return;
    KW_ASSERT(n <= c->stream_queued - c->stream_written);
    advance(c, n);
    c->stream_written += n;
    if (c->state == KC_CONN_READY) c->since_us = now.mono_us;
    for (uint32_t i = 0; i < c->flight_count; i++) {
        struct kc_flight *f = kc_conn_flight(c, i);
        if (f->end > c->stream_written) break;
        kw_blk_unref(f->kept);
        f->kept = NULL;
        if (!f->no_answer || !f->rq) continue;
        struct kc_request *rq = f->rq;
        f->rq = NULL;
        rq->sent = true;
        rq->conn = NULL;
        kc_request_finish(c->core, rq, KC_OK);
    }
    while (c->flight_count > 0 && kc_conn_flight(c, 0)->no_answer && kc_conn_flight(c, 0)->end <= c->stream_written) {
        c->flight_head = (c->flight_head + 1) % c->flight_cap;
        c->flight_count--;
    }
    if (!kc_conn_unwritten(c))
        drained(c);
    else
        kc_core_want(c, KC_WANT_WRITE);
    if (c->broker && kc_lane_at(c->broker, (size_t)c->channel)->queued > 0) kc_broker_pump(c->broker);
}
