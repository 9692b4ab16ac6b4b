/* brokers.c - the brokers: bootstrap addresses and those that metadata names; backoff, throttling, moves, and the pump of their lanes.
 *
 * Called by request, conn, metadata; calls conn. KIP-144 (exponential reconnect backoff), KIP-219 (throttling), KIP-899 (bootstrapping
 * again).
 */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

#define LOST_AFTER 2 /* attempts in a row to connect to each broker */

static void pump(struct kc_task *task, void *ctx);

static void on_timer(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    kc_broker_pump(ctx);
}

static struct kc_broker *broker_new(struct kc_core *core, int32_t id, const char *host, size_t host_len, uint16_t port) {
    struct kc_broker *b = kw_calloc(1, sizeof *b);
    if (!b) return NULL;
    b->host = kw_malloc(host_len + 1);
    if (!b->host) {
        kw_free(b);
        return NULL;
    }
    memcpy(b->host, host, host_len);
    b->host[host_len] = 0;
    b->core = core;
    b->id = id;
    b->port = port;
    for (int i = 0; i < KC_CHANNEL_COUNT; i++) kw_list_init(&b->lanes[i].queue);
    kw_timer_init(&b->timer, on_timer, b);
    kc_task_init(&b->pump, pump, b);
    return b;
}

static void broker_free(struct kc_broker *b) {
    for (size_t i = 0; i < kc_lane_count(b); i++) {
        struct kc_lane *lane = kc_lane_at(b, i);
        if (!lane) continue;
        KW_ASSERT(b->core->abandoned || kw_list_empty(&lane->queue));
        if (lane->conn) kc_conn_release(lane->conn);
        if (i >= KC_CHANNEL_COUNT) kw_free(lane);
    }
    kw_free(b->own);
    kc_core_disarm(b->core, &b->timer);
    if (!b->core->abandoned) kc_task_cancel(&b->pump); /* its neighbours are tasks of others */
    kw_free(b->versions);
    kw_free(b->host);
    kw_free(b);
}

/* One address of bootstrap.servers: [protocol://]host[:port], IPv6 in brackets. */
static bool parse_address(const char *p, size_t n, const char **host, size_t *host_len, uint16_t *port) {
    for (size_t i = 0; i + 2 < n; i++) {
        if (memcmp(p + i, "://", 3) == 0) {
            p += i + 3;
            n -= i + 3;
            break;
        }
    }
    size_t port_at = n;
    if (n > 0 && p[0] == '[') {
        const char *end = memchr(p, ']', n);
        if (!end) return false;
        *host = p + 1;
        *host_len = (size_t)(end - p) - 1;
        port_at = (size_t)(end - p) + 1;
    } else {
        size_t colons = 0, last = n;
        for (size_t i = 0; i < n; i++) {
            if (p[i] == ':') {
                colons++;
                last = i;
            }
        }
        if (colons == 1) port_at = last; /* several: a bare IPv6 address without a port */
        *host = p;
        *host_len = port_at;
    }
    *port = 9092;
    if (port_at < n) {
        if (p[port_at] != ':' || port_at + 1 == n) return false;
        uint32_t v = 0;
        for (size_t i = port_at + 1; i < n; i++) {
            if (p[i] < '0' || p[i] > '9') return false;
            v = v * 10 + (uint32_t)(p[i] - '0');
            if (v > 65535) return false;
        }
        if (v == 0) return false;
        *port = (uint16_t)v;
    }
    return *host_len > 0 && *host_len < 256;
}

bool kc_bootstrap_next(const char **list, const char **host, size_t *host_len, uint16_t *port, bool *ok) {
    const char *p = *list;
    while (*p == ',' || *p == ' ' || *p == '\t') p++;
    if (!*p) return false;
    size_t n = strcspn(p, ",");
    *list = p + n;
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t')) n--;
    *ok = parse_address(p, n, host, host_len, port);
    return true;
}

kw_err kc_brokers_init(struct kc_core *core) {
    const char *list = core->settings->bootstrap ? core->settings->bootstrap : "";
    const char *host;
    size_t len;
    uint16_t port;
    bool ok;
    while (kc_bootstrap_next(&list, &host, &len, &port, &ok) && core->boot_count < KC_BOOTSTRAP_MAX) {
        if (!ok) continue; /* the configuration has refused such a list */
        struct kc_broker *b = broker_new(core, KC_BOOTSTRAP_ID_FIRST + (int32_t)core->boot_count, host, len, port);
        if (!b) return KW_ENOMEM;
        core->boots[core->boot_count++] = b;
    }
    return KW_OK;
}

void kc_brokers_deinit(struct kc_core *core) {
    struct kc_broker *b;
    for (size_t it = 0; (b = kw_map_next(&core->brokers, &it));) broker_free(b);
    for (size_t i = 0; i < core->boot_count; i++) broker_free(core->boots[i]);
    core->boot_count = 0;
}

struct kc_broker *kc_broker_get(struct kc_core *core, int32_t id) {
    int64_t boot = (int64_t)id - KC_BOOTSTRAP_ID_FIRST;
    if (boot < (int64_t)core->boot_count) return core->boots[boot];
    return id < 0 ? NULL : kw_map_get_u64(&core->brokers, (uint64_t)id);
}

int32_t kc_broker_shown(const struct kc_broker *b) {
    return b->id < 0 ? -1 : b->id;
}

struct kc_broker_label kc_broker_label(const struct kc_broker *b) {
    struct kc_broker_label l = {"the bootstrap broker"};
    if (b->id >= 0) snprintf(l.text, sizeof l.text, "broker %d", (int)b->id);
    return l;
}

size_t kc_broker_load(const struct kc_broker *b) {
    size_t n = 0;
    for (size_t i = 0; i < kc_lane_count(b); i++) {
        const struct kc_lane *lane = kc_lane_at(b, i);
        if (lane) n += lane->queued + (lane->conn ? lane->conn->flight_count : 0);
    }
    return n;
}

/* ---- Lanes of single senders ---- */

enum kc_channel kc_core_lane_take(struct kc_core *core) {
    for (size_t i = 0; i < KC_OWN_LANES_MAX; i++) {
        uint64_t bit = UINT64_C(1) << (i % 64);
        if (core->own_lanes[i / 64] & bit) continue;
        core->own_lanes[i / 64] |= bit;
        return (enum kc_channel)(KC_CHANNEL_COUNT + i);
    }
    return KC_CHANNEL_CONTROL;
}

struct kc_lane *kc_lane_make(struct kc_broker *b, enum kc_channel ch) {
    struct kc_lane *lane = kc_lane_at(b, (size_t)ch);
    if (lane) return lane;
    size_t at = (size_t)ch - KC_CHANNEL_COUNT;
    if (at >= b->own_count) {
        struct kc_lane **grown = kw_realloc(b->own, (at + 1) * sizeof(*grown));
        if (!grown) return NULL;
        memset(grown + b->own_count, 0, (at + 1 - b->own_count) * sizeof(*grown));
        b->own = grown;
        b->own_count = at + 1;
    }
    lane = kw_calloc(1, sizeof(*lane));
    if (!lane) return NULL;
    kw_list_init(&lane->queue);
    return b->own[at] = lane;
}

static void lane_rest(struct kc_broker *b, enum kc_channel ch, bool drop) {
    struct kc_lane *lane = kc_lane_at(b, (size_t)ch);
    if (!lane || lane->queued > 0) return;
    bool awaited = false; /* what was cancelled is not */
    for (uint32_t i = 0; lane->conn && i < lane->conn->flight_count; i++) awaited |= kc_conn_flight(lane->conn, i)->rq != NULL;
    if (lane->conn && !awaited) kc_conn_close(lane->conn, KC_OK, NULL, NULL);
    if (!drop || lane->conn) return;
    b->own[(size_t)ch - KC_CHANNEL_COUNT] = NULL;
    kw_free(lane);
}

static void lanes_rest(struct kc_core *core, enum kc_channel ch, bool drop) {
    struct kc_broker *b;
    for (size_t it = 0; (b = kw_map_next(&core->brokers, &it));) lane_rest(b, ch, drop);
    for (size_t i = 0; i < core->boot_count; i++) lane_rest(core->boots[i], ch, drop);
}

void kc_core_lane_rest(struct kc_core *core, enum kc_channel lane) {
    if ((size_t)lane >= KC_CHANNEL_COUNT) lanes_rest(core, lane, false);
}

void kc_core_lane_give(struct kc_core *core, enum kc_channel lane) {
    if ((size_t)lane < KC_CHANNEL_COUNT) return;
    lanes_rest(core, lane, true);
    size_t i = (size_t)lane - KC_CHANNEL_COUNT;
    core->own_lanes[i / 64] &= ~(UINT64_C(1) << (i % 64));
}

enum kc_channel kc_core_fetch_take(struct kc_core *core) {
    enum kc_channel lane = core->fetch_users > 0 ? kc_core_lane_take(core) : KC_CHANNEL_CONTROL;
    if (lane != KC_CHANNEL_CONTROL) return lane;
    core->fetch_users++;
    return KC_CHANNEL_FETCH;
}

/* The next consumer's requests must not wait behind a long poll that was cancelled. */
void kc_core_fetch_give(struct kc_core *core, enum kc_channel channel) {
    if (channel == KC_CHANNEL_FETCH) {
        core->fetch_users--;
        lanes_rest(core, channel, false);
    } else {
        kc_core_lane_give(core, channel);
    }
}

/* ---- What metadata says ---- */

static void close_lanes(struct kc_broker *b, kc_err err, const char *why) {
    for (size_t i = 0; i < kc_lane_count(b); i++) {
        struct kc_lane *lane = kc_lane_at(b, i);
        if (lane && lane->conn) kc_conn_close(lane->conn, err, "await answer", why);
    }
}

/* The bootstrap connection becomes the broker's own where both are the same address: one connection and one negotiation fewer. */
static void adopt_bootstrap(struct kc_core *core, struct kc_broker *b) {
    for (size_t i = 0; i < core->boot_count; i++) {
        struct kc_broker *boot = core->boots[i];
        if (boot->port != b->port || strcmp(boot->host, b->host) != 0) continue;
        for (int ch = 0; ch < KC_CHANNEL_COUNT; ch++) {
            struct kc_conn *c = boot->lanes[ch].conn;
            if (!c || b->lanes[ch].conn || c->state != KC_CONN_READY) continue;
            boot->lanes[ch].conn = NULL;
            b->lanes[ch].conn = c;
            c->broker = b;
            b->failures = 0;
            b->retry_at_us = 0;
            kc_broker_pump(b); /* it may have waited for a better time to connect */
        }
        b->throttled_until_us = KW_MAX(b->throttled_until_us, boot->throttled_until_us);
        if (b->good.size == 0) b->good = boot->good;
        if (boot->versions && !b->versions) {
            b->versions = boot->versions;
            boot->versions = NULL;
        }
    }
}

kw_err kc_broker_update(struct kc_core *core, int32_t id, struct kw_str host, int32_t port) {
    if (id < 0 || host.len <= 0 || host.len > 255 || port <= 0 || port > 65535) return KW_EDECODE;
    struct kc_broker *b = kc_broker_get(core, id);
    if (!b) {
        if (core->brokers.count >= KC_BROKERS_MAX) return KW_ELIMIT;
        b = broker_new(core, id, host.p, (size_t)host.len, (uint16_t)port);
        if (!b) return KW_ENOMEM;
        kw_err err = kw_map_put_u64(&core->brokers, (uint64_t)id, b);
        if (err != KW_OK) {
            broker_free(b);
            return err;
        }
        kc_core_log(core, 7, "broker %d is at %s:%u", id, b->host, b->port);
    } else if (b->port != port || strlen(b->host) != (size_t)host.len || memcmp(b->host, host.p, (size_t)host.len) != 0) {
        char *copy = kw_malloc((size_t)host.len + 1);
        if (!copy) return KW_ENOMEM;
        memcpy(copy, host.p, (size_t)host.len);
        copy[host.len] = 0;
        kc_core_log(core, 6, "broker %d moved from %s:%u to %s:%d", id, b->host, b->port, copy, port);
        kw_free(b->host);
        b->host = copy;
        b->port = (uint16_t)port;
        b->failures = 0;
        b->retry_at_us = 0;
        close_lanes(b, KC_TRANSPORT, "the broker moved to another address");
        kc_broker_pump(b);
    }
    b->gone = false;
    adopt_bootstrap(core, b);
    return KW_OK;
}

void kc_broker_forget(struct kc_core *core, struct kc_broker *b) {
    (void)core;
    if (b->gone) return;
    b->gone = true;
    for (size_t i = 0; i < kc_lane_count(b); i++)
        kc_lane_fail(b, (enum kc_channel)i, KC_TRANSPORT, "queue", "the broker has left the cluster's metadata");
}

static bool is_idle(const struct kc_broker *b) {
    for (size_t i = 0; i < kc_lane_count(b); i++) {
        const struct kc_lane *lane = kc_lane_at(b, i);
        if (lane && (lane->queued > 0 || (lane->conn && lane->conn->flight_count > 0))) return false;
    }
    return true;
}

/* Closes connections of brokers that are gone, and of bootstrap addresses once real brokers are known, when nothing is under way on them.
 */
void kc_brokers_sweep(struct kc_core *core) {
    struct kc_broker *b;
    for (size_t it = 0; (b = kw_map_next(&core->brokers, &it));) {
        if (core->stopping) {
            close_lanes(b, KC_CLOSED, "the client was closed");
            for (size_t i = 0; i < kc_lane_count(b); i++) kc_lane_fail(b, (enum kc_channel)i, KC_CLOSED, "queue", "the client was closed");
        } else if (b->gone && is_idle(b)) {
            close_lanes(b, KC_OK, NULL);
            kw_map_remove_u64(&core->brokers, (uint64_t)b->id);
            broker_free(b);
        }
    }
    for (size_t i = 0; i < core->boot_count; i++) {
        b = core->boots[i];
        if (core->stopping) {
            close_lanes(b, KC_CLOSED, "the client was closed");
            for (size_t k = 0; k < kc_lane_count(b); k++) kc_lane_fail(b, (enum kc_channel)k, KC_CLOSED, "queue", "the client was closed");
        } else if (!core->use_boots && is_idle(b)) {
            close_lanes(b, KC_OK, NULL);
        }
    }
}

void kc_brokers_known(struct kc_core *core) {
    if (!core->use_boots) return;
    core->use_boots = false;
    for (size_t i = 0; i < core->boot_count; i++) {
        for (size_t k = 0; k < kc_lane_count(core->boots[i]); k++) {
            struct kc_lane *lane = kc_lane_at(core->boots[i], k);
            struct kw_list *l;
            while (lane && (l = kw_list_shift(&lane->queue))) {
                lane->queued--;
                kc_request_reroute(core, KW_CONTAINER_OF(l, struct kc_request, link));
            }
        }
    }
}

void kc_brokers_rebootstrap(struct kc_core *core, const char *why) {
    if (core->stopping || core->use_boots) return;
    kc_core_log(core, 4, "starting again from bootstrap.servers: %s", why);
    core->use_boots = true;
    core->metadata.known = false;
    core->metadata.controller = -1;
    struct kc_broker *b;
    for (size_t it = 0; (b = kw_map_next(&core->brokers, &it));) kc_broker_forget(core, b);
    for (size_t i = 0; i < core->boot_count; i++) {
        core->boots[i]->retry_at_us = 0;
        core->boots[i]->failures = 0;
    }
    kc_brokers_sweep(core);
    kc_core_route(core);
}

/* Each broker that is known was tried in vain, more than once: one that is just being started again is waited for. */
bool kc_brokers_all_lost(struct kc_core *core) {
    if (core->stopping || core->use_boots || !core->settings->rebootstrap) return false;
    struct kc_broker *b;
    bool any = false;
    for (size_t it = 0; (b = kw_map_next(&core->brokers, &it));) {
        if (b->gone) continue;
        if (b->failures < LOST_AFTER) return false;
        any = true;
    }
    return any;
}

/* ---- Connecting ---- */

static void check_all_down(struct kc_core *core, const struct kc_broker *last) {
    if (core->all_down) return;
    struct kc_broker *b;
    if (core->use_boots) {
        for (size_t i = 0; i < core->boot_count; i++) {
            if (core->boots[i]->failures == 0) return;
        }
    } else {
        for (size_t it = 0; (b = kw_map_next(&core->brokers, &it));) {
            if (!b->gone && b->failures == 0) return;
        }
    }
    core->all_down = true;
    kc_core_log(
        core, 3,
        "ALL_BROKERS_DOWN: no broker can be reached; the last tried was %s:%u: %s. Trying on with backoff up to reconnect.backoff.max.ms",
        last->host, last->port, last->last_text);
}

void kc_broker_failed(struct kc_broker *b, kc_err err, const char *phase, const char *text) {
    struct kc_core *core = b->core;
    b->failures++;
    b->last_err = err;
    b->failed_at_us = core->now.mono_us;
    snprintf(b->last_text, sizeof b->last_text, "%s", text ? text : kc_err_text(err));
    int64_t wait = kc_backoff(core, core->settings->reconnect_min_us, core->settings->reconnect_max_us, b->failures);
    b->retry_at_us = kc_after(core->now.mono_us, wait);
    char detail[300];
    snprintf(detail, sizeof detail, "%s:%u: %s", b->host, b->port, b->last_text);
    kc_attempts_note(core->trouble, core->now.wall_ms, kc_broker_shown(b), err, phase, detail);
    if (b->failures == 1)
        kc_core_log(core, 4, "%s at %s (%s failed)", kc_broker_label(b).text, detail, phase);
    else
        kc_core_log(core, 7, "broker %d at %s: %s failed %u times; next attempt in %lld ms", kc_broker_shown(b), detail, phase, b->failures,
                    (long long)(wait / 1000));
    struct kw_list *waiting[] = {&core->any, &core->controller}; /* for whom it may have been the way on */
    for (size_t i = 0; i < KW_COUNTOF(waiting); i++)
        for (struct kw_list *l = waiting[i]->next; l != waiting[i]; l = l->next)
            kc_request_note(core, KW_CONTAINER_OF(l, struct kc_request, link), b->id, err, phase, detail);
    check_all_down(core, b);
    if (kc_brokers_all_lost(core)) kc_core_defer(core, &core->metadata.rebootstrap);
    if (b->id >= 0 && !b->gone && !core->use_boots) kc_metadata_refresh(core, "a broker could not be reached"); /* it may have moved (CX-01) */
    kc_core_route(core);
}

void kc_broker_up(struct kc_broker *b) {
    struct kc_core *core = b->core;
    if (b->failures > 0) kc_core_log(core, 6, "broker %d at %s:%u can be reached again", kc_broker_shown(b), b->host, b->port);
    b->failures = 0;
    b->retry_at_us = 0;
    core->all_down = false;
    kc_core_route(core);
    kc_broker_pump(b);
}

/* ---- The pump ---- */

void kc_broker_pump(struct kc_broker *b) {
    kc_core_defer(b->core, &b->pump);
}

static void pump(struct kc_task *task, void *ctx) {
    (void)task;
    struct kc_broker *b = ctx;
    struct kc_core *core = b->core;
    if (core->stopping) return;
    int64_t now = core->now.mono_us;
    int64_t wake_us = KW_NEVER;
    for (size_t i = 0; i < kc_lane_count(b); i++) {
        struct kc_lane *lane = kc_lane_at(b, i);
        if (!lane || lane->queued == 0) continue;
        if (!lane->conn) {
            if (b->retry_at_us > now)
                wake_us = KW_MIN(wake_us, b->retry_at_us);
            else if (!kc_conn_open(b, (enum kc_channel)i))
                wake_us = KW_MIN(wake_us, kc_after(now, 100000));
        } else if (lane->conn->state == KC_CONN_READY) {
            if (b->throttled_until_us > now)
                wake_us = KW_MIN(wake_us, b->throttled_until_us);
            else
                kc_conn_pump(lane->conn);
        }
    }
    if (wake_us != KW_NEVER) kc_core_arm(core, &b->timer, wake_us);
    if (b->gone || (b->id < 0 && !core->use_boots)) kc_brokers_sweep(core); /* may free b: last */
}

/* ---- For the senders ---- */

int64_t kc_core_broker_held_until(struct kc_core *core, int32_t broker) {
    struct kc_broker *b = kc_broker_get(core, broker);
    if (!b) return 0;
    int64_t until = KW_MAX(b->throttled_until_us, b->retry_at_us);
    return until > core->now.mono_us ? until : 0;
}

void kc_core_broker_throttle(struct kc_core *core, int32_t broker, int32_t throttle_ms) {
    struct kc_broker *b = kc_broker_get(core, broker);
    if (!b || throttle_ms <= 0) return;
    int64_t until = kc_after(core->now.mono_us, (int64_t)throttle_ms * 1000);
    if (until <= b->throttled_until_us) return;
    b->throttled_until_us = until;
    kc_core_log(core, 7, "broker %d throttles for %d ms", kc_broker_shown(b), throttle_ms);
    kc_broker_pump(b);
}

static const char *const state_texts[] = {"resolving the name of", "connecting to", "negotiating versions with", "connected to",
                                          "closing the connection to"};

void kc_core_broker_status(struct kc_core *core, int32_t broker, char *text, size_t size) {
    struct kc_broker *b = kc_broker_get(core, broker);
    if (broker == KC_BROKER_ANY || broker == KC_BROKER_CONTROLLER) {
        for (size_t i = 0; i < core->boot_count && !b; i++) b = core->boots[i];
        for (size_t it = 0; !core->use_boots && (b = kw_map_next(&core->brokers, &it));) break;
    }
    int n = 0;
    if (!b) {
        n = snprintf(text, size, "no broker %d is known", broker);
        for (size_t i = 0; core->use_boots && i < core->boot_count; i++)
            if (core->boots[i]->failures > (b ? b->failures : 0)) b = core->boots[i];
        if (b && n > 0 && (size_t)n < size) n += snprintf(text + n, size - (size_t)n, "; "); /* why: nobody to ask */
    }
    if (!b || n < 0 || (size_t)n >= size) return;
    text += n;
    size -= (size_t)n;
    double now = (double)core->now.mono_us;
    const struct kc_conn *c = NULL;
    for (size_t i = 0; i < KC_CHANNEL_COUNT && !c; i++) c = b->lanes[i].conn;
    n = c ? snprintf(text, size, "%s %s:%u since %.1f s", state_texts[c->state], b->host, b->port, (now - (double)c->since_us) / 1e6)
              : snprintf(text, size, "not connected to %s:%u", b->host, b->port);
    if (b->failures > 0 && n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, "; %u attempts failed, the last %.1f s ago: %s", b->failures,
                 (now - (double)b->failed_at_us) / 1e6, b->last_text);
}
