/* conn_in.c - a connection's reading side: bytes become frames, frames are matched with the requests on the wire.
 *
 * Small answers are read many at a time into one buffer. One that does not fit gets an exact block and is read straight into it, so that
 * fetched data is not copied again. Sizes are checked before anything is allocated (SE-05, PR-11).
 */
#include "internal.h"

#include <stdio.h>

void kc_conn_in_deinit(struct kc_conn *c) {
    kw_blk_unref(c->small);
    kw_blk_unref(c->big);
    c->small = c->big = NULL;
}

/* A block whose bytes someone holds views of is left to them. */
static kw_err small_renew(struct kc_conn *c) {
    uint32_t left = c->small ? c->small_len - c->small_at : 0;
    if (c->small && atomic_load_explicit(&c->small->refs, memory_order_acquire) == 1) {
        memmove(c->small->data, c->small->data + c->small_at, left);
    } else {
        struct kw_blk *b = kw_blk_new(KC_SMALL_SIZE);
        if (!b) return KW_ENOMEM;
        if (left) memcpy(b->data, c->small->data + c->small_at, left);
        kw_blk_unref(c->small);
        c->small = b;
    }
    c->small_at = 0;
    c->small_len = left;
    return KW_OK;
}

void kc_conn_recv_buf(struct kc_conn *c, uint8_t **p, size_t *n) {
    *n = 0;
    *p = NULL;
    if (c->state != KC_CONN_NEGOTIATING && c->state != KC_CONN_READY) return;
    if (c->big) {
        *p = c->big->data + c->big_len;
        *n = c->big->cap - c->big_len;
        return;
    }
    if (c->small && c->small_at == c->small_len && atomic_load_explicit(&c->small->refs, memory_order_acquire) == 1)
        c->small_at = c->small_len = 0;
    /* Bytes behind a held view are still free; less than half of the buffer is not enough for the largest frame that is read here. */
    if ((!c->small || c->small_len > KC_SMALL_SIZE / 2) && small_renew(c) != KW_OK) {
        kc_conn_fail(c, KC_NO_MEMORY, "no memory to read into");
        return;
    }
    *p = c->small->data + c->small_len;
    *n = c->small->cap - c->small_len;
}

bool kc_conn_wants_read(const struct kc_conn *c) {
    return c->state == KC_CONN_NEGOTIATING || c->state == KC_CONN_READY;
}

static void bad_answer(struct kc_conn *c, const char *text) {
    kc_core_log(c->core, c->broker->failures == 0 ? 3 : 7, "%s: %s", c->peer, text); /* at a wrong port every attempt would say it again */
    kc_conn_fail(c, KC_BAD_MESSAGE, text);
}

/* What sits at the other end, when the first bytes are no frame. */
static void nonsense(struct kc_conn *c, const uint8_t *p, int64_t size) {
    char text[200];
    if (p[0] == 0x15 && p[1] == 0x03)
        snprintf(text, sizeof text, "the peer answered with a TLS alert: this is a TLS port, and security.protocol here is plaintext");
    else if (memcmp(p, "HTTP", 4) == 0)
        snprintf(text, sizeof text, "the peer answered in HTTP: this is a web server's port, not a Kafka broker's");
    else if (memcmp(p, "SSH-", 4) == 0)
        snprintf(text, sizeof text, "the peer answered in SSH: not a Kafka broker's port");
    else
        snprintf(text, sizeof text, "an answer claims %lld bytes (first bytes %02x %02x %02x %02x): not a Kafka broker, or a TLS port",
                 (long long)size, p[0], p[1], p[2], p[3]);
    bad_answer(c, text);
}

/* -1: the connection has been failed. */
static int64_t frame_size(struct kc_conn *c, const uint8_t *p) {
    int64_t size = (int32_t)kw_load32(p);
    int64_t max = c->state == KC_CONN_READY ? c->core->settings->receive_bytes_max : KC_SETUP_ANSWER_SIZE_MAX;
    if (size >= 4 && size <= max) return size;
    if (c->state != KC_CONN_READY || size < 4) {
        nonsense(c, p, size);
    } else {
        char text[160];
        snprintf(text, sizeof text, "an answer of %lld bytes passes receive.message.max.bytes=%lld", (long long)size, (long long)max);
        kc_core_log(c->core, 3, "%s: %s", c->peer, text);
        kc_conn_fail(c, KC_TOO_BIG_ANSWER, text);
    }
    return -1;
}

static void on_frame(struct kc_conn *c, const uint8_t *p, size_t size, struct kw_blk *blk) {
    struct kw_in in;
    kw_in_init(&in, p, size);
    if (c->flight_count == 0) {
        bad_answer(c, "an answer came that nothing asked for");
        return;
    }
    struct kc_flight f = *kc_conn_flight(c, 0);
    int32_t id = 0;
    if (f.end > c->stream_written || kw_frame_parse_response(&in, f.api, f.version, &id) != KW_OK || id != f.correlation_id) {
        char text[160];
        snprintf(text, sizeof text, "the answer to %s has correlation id %d where %d was due", f.api->name, id, f.correlation_id);
        bad_answer(c, text);
        return;
    }
    c->flight_head = (c->flight_head + 1) % c->flight_cap;
    c->flight_count--;
    if (c->state == KC_CONN_NEGOTIATING) {
        kc_negotiate_answer(c, &in, f.version);
        return;
    }
    c->answers++;
    struct kc_request *rq = f.rq;
    if (!rq) return;
    KW_ASSERT(rq->state == KC_RQ_FLIGHT);
    kw_timers_cancel(&c->core->timers, &rq->timer);
    rq->state = KC_RQ_IDLE;
    rq->conn = NULL;
    rq->sent = true;
    rq->done(rq, KC_OK, &in, blk);
}

static bool is_alive(const struct kc_conn *c) {
    return c->state == KC_CONN_NEGOTIATING || c->state == KC_CONN_READY;
}

static void received_big(struct kc_conn *c, size_t n) {
    KW_ASSERT(n <= c->big->cap - c->big_len);
    c->big_len += (uint32_t)n;
    if (c->big_len < c->big->cap) return;
    struct kw_blk *b = c->big;
    c->big = NULL;
    c->big_len = 0;
    on_frame(c, b->data, b->cap, b);
    kw_blk_unref(b);
}

static void begin_big(struct kc_conn *c, size_t size) {
    struct kw_blk *b = kw_blk_new(size);
    if (!b) {
        kc_conn_fail(c, KC_NO_MEMORY, "no memory for a large answer");
        return;
    }
    uint32_t have = c->small_len - c->small_at - 4;
    memcpy(b->data, c->small->data + c->small_at + 4, have);
    c->small_at = c->small_len;
    c->big = b;
    c->big_len = have;
}

static void received_small(struct kc_conn *c, size_t n) {
    KW_ASSERT(n <= c->small->cap - c->small_len);
    c->small_len += (uint32_t)n;
    while (is_alive(c) && c->small_len - c->small_at >= 4) {
        const uint8_t *p = c->small->data + c->small_at;
        int64_t size = frame_size(c, p);
        if (size < 0) return;
        uint32_t have = c->small_len - c->small_at - 4;
        if (have >= size) {
            c->small_at += 4 + (uint32_t)size;
            on_frame(c, p + 4, (size_t)size, c->small); /* small itself stays: it is only replaced in recv_buf */
        } else if (size + 4 > KC_SMALL_SIZE / 2) {
            begin_big(c, (size_t)size);
            return;
        } else {
            return; /* fits: recv_buf makes room */
        }
    }
}

void kc_conn_received(struct kc_conn *c, size_t n, struct kc_now now) {
    c->core->now = now;
    if (!is_alive(c) || n == 0) return;
    c->heard = true;
    if (c->state == KC_CONN_READY) c->since_us = now.mono_us;
    if (c->big)
        received_big(c, n);
    else
        received_small(c, n);
    struct kc_broker *b = c->broker;
    bool leaving = b && c->flight_count == 0 && (b->gone || (b->id < 0 && !c->core->use_boots)); /* it was kept for its answers */
    if (b && (leaving || kc_lane_at(b, (size_t)c->channel)->queued > 0)) kc_broker_pump(b);
}
