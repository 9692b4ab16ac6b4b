/* conn.c - one connection's life: resolve, connect (each address in turn), negotiate, ready, closed; its timeouts and failures.
 *
 * Called by the shell (event.h), brokers and metadata; calls conn_in, conn_out, negotiate.
 */
#include "internal.h"

#include <stdio.h>

static void on_timer(struct kw_timer *t, void *ctx, int64_t now_us);

struct kc_conn *kc_conn_open(struct kc_broker *b, enum kc_channel ch) {
    struct kc_core *core = b->core;
    struct kc_lane *lane = kc_lane_at(b, (size_t)ch);
    KW_ASSERT(lane && !lane->conn && !core->stopping);
    size_t host_size = strlen(b->host) + 1;
    struct kc_conn *c = kw_calloc(1, sizeof *c);
    if (!c) return NULL;
    c->host = kw_memdup(b->host, host_size);
    if (!c->host || kw_timers_reserve(&core->timers, core->timers.count + core->timers.late + 1) != KW_OK) {
        kw_free(c->host);
        kw_free(c);
        return NULL;
    }
    kw_list_init(&c->action_link);
    kw_list_init(&c->closing_link);
    kw_timer_init(&c->timer, on_timer, c);
    kw_out_init(&c->out);
    c->out.splice = true;
    c->core = core;
    c->broker = b;
    c->channel = ch;
    c->port = b->port;
    snprintf(c->peer, sizeof c->peer, "%.60s:%u", b->host, b->port);
    c->opened_us = c->since_us = core->now.mono_us;
    c->state = KC_CONN_RESOLVING;
    lane->conn = c;
    kc_core_arm(core, &c->timer, kc_after(c->since_us, core->settings->connect_timeout_us));
    kc_core_want(c, KC_WANT_RESOLVE);
    return c;
}

void kc_conn_release(struct kc_conn *c) {
    if (c->broker) kc_lane_at(c->broker, (size_t)c->channel)->conn = NULL;
    kw_list_remove(&c->action_link);
    kw_list_remove(&c->closing_link);
    kc_core_disarm(c->core, &c->timer);
    kc_conn_out_deinit(c);
    kc_conn_in_deinit(c);
    kw_free(c->versions);
    kw_free(c->addresses);
    kw_free(c->host);
    kw_free(c);
}

static void enter(struct kc_conn *c, enum kc_conn_state state) {
    c->state = (uint8_t)state;
    c->since_us = c->core->now.mono_us;
}

/* Out of its lane; what it held is failed. The lane may open another one at once. */
static void detach(struct kc_conn *c, kc_err err, const char *phase, const char *text) {
    struct kc_broker *b = c->broker;
    kc_conn_flights_fail(c, err == KC_OK ? KC_TRANSPORT : err, phase, text);
    kw_timers_cancel(&c->core->timers, &c->timer);
    if (c->wants) kw_list_remove(&c->action_link);
    c->wants = 0;
    enter(c, KC_CONN_CLOSING);
    kw_list_push(&c->core->closing, &c->closing_link);
    if (b) {
        kc_lane_at(b, (size_t)c->channel)->conn = NULL;
        c->broker = NULL;
        kc_broker_pump(b);
    }
}

void kc_conn_close(struct kc_conn *c, kc_err err, const char *phase, const char *text) {
    if (c->state == KC_CONN_CLOSING) return;
    detach(c, err, phase, text ? text : "");
    kc_core_want(c, KC_WANT_CLOSE);
}

static const char *phase_of(const struct kc_conn *c) {
    switch (c->state) {
    case KC_CONN_RESOLVING:
        return "resolve";
    case KC_CONN_CONNECTING:
        return "connect";
    case KC_CONN_NEGOTIATING:
        return "negotiate";
    default:
        return "await answer";
    }
}

/* It broke. Before it was ready, or so soon after that nothing came of it, that is a failure to connect: backoff, and what waits in the
 * lane learns of it. */
void kc_conn_fail(struct kc_conn *c, kc_err err, const char *text) {
    if (c->state == KC_CONN_CLOSING) return;
    struct kc_broker *b = c->broker;
    enum kc_channel ch = c->channel;
    const char *phase = phase_of(c);
    char detail[256];
    snprintf(detail, sizeof detail, "%s: %s", c->peer, text ? text : kc_err_text(err));
    bool settled = c->state == KC_CONN_READY && (c->answers > 0 || c->core->now.mono_us - c->ready_us >= KC_SETTLED_US);
    if (settled && c->flight_count > 0)
        kc_core_log(c->core, 4, "connection to %s at %s; %u requests were on it", kc_broker_label(b).text, detail, c->flight_count);
    else if (settled)
        kc_core_log(c->core, 7, "connection to broker %d at %s", kc_broker_shown(b), detail);
    if (settled)
        c->core->metadata.known ? kc_metadata_refresh(c->core, "a connection broke") : (void)0;
    else
        kc_broker_failed(b, err, phase, text);
    detach(c, err, phase, detail);
    if (!settled) kc_lane_fail(b, ch, err, phase, detail);
    kc_core_want(c, KC_WANT_CLOSE);
    if (b->gone) kc_broker_pump(b);
}

/* ---- Events ---- */

const char *kc_conn_host(const struct kc_conn *c) {
    return c->host;
}
uint16_t kc_conn_port(const struct kc_conn *c) {
    return c->port;
}
const struct kc_address *kc_conn_address(const struct kc_conn *c) {
    return &c->addresses[c->address_at];
}
void *kc_conn_shell(const struct kc_conn *c) {
    return c->shell;
}
void kc_conn_shell_set(struct kc_conn *c, void *shell) {
    c->shell = shell;
}

static void connect_address(struct kc_conn *c) {
    enter(c, KC_CONN_CONNECTING);
    kc_core_arm(c->core, &c->timer, kc_after(c->since_us, c->core->settings->connect_timeout_us));
    kc_core_want(c, KC_WANT_CONNECT);
}

static bool is_same(const struct kc_address *a, const struct kc_address *b) {
    return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

/* To the front, where it is among those that the name has now. */
static void prefer(struct kc_conn *c, const struct kc_address *good) {
    for (size_t i = 1; i < c->address_count && good->size > 0; i++) {
        if (!is_same(&c->addresses[i], good)) continue;
        memmove(&c->addresses[1], &c->addresses[0], i * sizeof *c->addresses);
        c->addresses[0] = *good;
        return;
    }
}

void kc_conn_resolved(struct kc_conn *c, const struct kc_address *addresses, size_t count, const char *text, struct kc_now now) {
    c->core->now = now;
    if (c->state != KC_CONN_RESOLVING) return;
    count = KW_MIN(count, (size_t)KC_ADDRESSES_MAX);
    if (count == 0) {
        kc_conn_fail(c, KC_RESOLVE, text ? text : "the name has no address");
        return;
    }
    c->addresses = kw_memdup(addresses, count * sizeof *addresses);
    if (!c->addresses) {
        kc_conn_fail(c, KC_NO_MEMORY, NULL);
        return;
    }
    c->address_count = count;
    prefer(c, &c->broker->good);
    connect_address(c);
}

static void next_address(struct kc_conn *c, kc_err err, const char *text) {
    if (c->address_at + 1 >= c->address_count) {
        kc_conn_fail(c, err, text);
        return;
    }
    kc_attempts_note(c->core->trouble, c->core->now.wall_ms, kc_broker_shown(c->broker), err, "connect", text);
    kc_core_log(c->core, 7, "broker %d at %s: %s; trying its next address", kc_broker_shown(c->broker), c->peer, text);
    c->address_at++;
    connect_address(c);
}

void kc_conn_connected(struct kc_conn *c, kw_err err, const char *text, struct kc_now now) {
    c->core->now = now;
    if (c->state != KC_CONN_CONNECTING) return;
    if (err != KW_OK) {
        next_address(c, KC_TRANSPORT, text ? text : "connecting failed");
        return;
    }
    c->broker->good = c->addresses[c->address_at];
    enter(c, KC_CONN_NEGOTIATING);
    kw_err e = kc_negotiate_start(c, INT16_MAX);
    if (e != KW_OK) kc_conn_fail(c, kc_err_from(e), NULL);
}

void kc_conn_closed(struct kc_conn *c, kw_err err, const char *text, struct kc_now now) {
    c->core->now = now;
    if (c->state != KC_CONN_CLOSING) {
        const char *why = text ? text : "the broker closed the connection";
        if (c->state == KC_CONN_NEGOTIATING && err == KW_OK)
            why = "the peer closed the connection when asked for its versions: it wants TLS or SASL, is older than Kafka 0.10, or is no "
                  "Kafka broker";
        kc_conn_fail(c, KC_TRANSPORT, why);
    }
    kc_conn_release(c);
}

/* ---- Time ---- */

static void on_ready_timer(struct kc_conn *c, int64_t now_us) {
    struct kc_core *core = c->core;
    int64_t first = KW_NEVER;
    struct kc_flight *late = NULL;
    for (uint32_t i = 0; i < c->flight_count; i++) {
        struct kc_flight *f = kc_conn_flight(c, i);
        if (f->answer_by_us <= now_us && !late) late = f;
        first = KW_MIN(first, f->answer_by_us);
    }
    if (late) {
        char text[160];
        snprintf(text, sizeof text, "no answer to %s in time; the connection is given up, since answers come in order", late->api->name);
        kc_conn_fail(c, KC_TIMED_OUT, text);
        return;
    }
    struct kc_broker *b = c->broker;
    int64_t idle_at = kc_after(c->since_us, core->settings->connections_idle_us);
    if (c->flight_count == 0 && kc_lane_at(b, (size_t)c->channel)->queued == 0) {
        if (idle_at <= now_us) {
            kc_core_log(core, 7, "closing the idle connection to broker %d at %s", kc_broker_shown(b), c->peer);
            kc_conn_close(c, KC_OK, NULL, NULL);
            return;
        }
        first = KW_MIN(first, idle_at);
    } else {
        first = KW_MIN(first, kc_after(now_us, core->settings->connections_idle_us));
    }
    kc_core_arm(core, &c->timer, first);
}

static void on_timer(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    struct kc_conn *c = ctx;
    char text[120];
    switch (c->state) {
    case KC_CONN_RESOLVING:
        kc_conn_fail(c, KC_RESOLVE, "the name server did not answer in time");
        break;
    case KC_CONN_CONNECTING:
        snprintf(text, sizeof text, "no connection within %lld ms (socket.connection.setup.timeout.ms)",
                 (long long)(c->core->settings->connect_timeout_us / 1000));
        next_address(c, KC_TIMED_OUT, text);
        break;
    case KC_CONN_NEGOTIATING:
        kc_conn_fail(c, KC_TIMED_OUT, "the peer accepted the connection and did not answer to ApiVersions: no Kafka broker, or it hangs");
        break;
    case KC_CONN_READY:
        on_ready_timer(c, now_us);
        break;
    default:
        break;
    }
}

/* Versions are known: the lane may use it. */
void kc_conn_ready(struct kc_conn *c) {
    struct kc_core *core = c->core;
    enter(c, KC_CONN_READY);
    c->ready_us = c->since_us;
    kc_core_arm(core, &c->timer, kc_after(c->since_us, core->settings->connections_idle_us));
    kc_core_log(core, 7, "connected to broker %d at %s", kc_broker_shown(c->broker), c->peer);
    kc_broker_up(c->broker);
}
