/* controller_sessions.c - which brokers live: sessions that heartbeats keep up, and the quick ways to know of a death.
 *
 * Called by controller_brokers.c (heartbeats, registrations), controller.c (office), api/ through controller.h. Calls controller_sweep.c, which
 * carries out in one change what has become due of all brokers. KIP-631; the rules:
 *
 * - A broker that is silent for broker.session.timeout.ms is fenced.
 * - When the connection of its heartbeats has closed it is dialed at once, and every 50 ms of the next second until it is heard of; does nothing listen
 *   there, it counts as dead 50 ms later. A dial that cannot begin is tried again as soon.
 * - A new controller dials who has not been heard of 200 ms after it took over; two refusals, 50 ms apart, confirm a death.
 * - When the first of several suspects is due, all suspects are fenced in one decision, so that brokers that died together stay together in sync;
 *   it waits for those whose connection closed as well and whose dial has not told yet.
 * - A timer that comes much too late means that this process itself stood still: every session begins anew.
 */
#include "controller_priv.h"

enum { GRACE_US = 50000, SILENT_US = 200000, AGAIN_US = 1000000, PENDING_US = 10000 };

static void fire(struct kw_timer *t, void *ctx, int64_t now_us);

void kb_sessions_init(struct kb_controller *k) {
    kw_map_init(&k->sessions);
    kw_timer_init(&k->session_timer, fire, k);
    k->session_timeout_us = kb_config_int(k->o.config, "broker.session.timeout.ms") * 1000;
    k->heartbeat_us = kb_config_int(k->o.config, "broker.heartbeat.interval.ms") * 1000;
    k->session_due_us = KW_NEVER;
}

struct kb_session *kb_session_find(const struct kb_controller *k, int32_t id) {
    return kw_map_get_u64(&k->sessions, (uint32_t)id);
}

void kb_session_renew(struct kb_session *s, int64_t epoch, const void *conn, struct kb_now now) {
    s->epoch = epoch;
    s->conn = conn;
    s->heard_us = now.mono_us;
    s->heard = conn != NULL;
    s->closed = s->dialing = s->weak = false;
    s->refusals = 0;
    s->grace_us = s->redial_us = KW_NEVER;
}

struct kb_session *kb_session_make(struct kb_controller *k, int32_t id) {
    struct kb_session *s = kb_session_find(k, id);
    if (s) return s;
    s = kw_calloc(1, sizeof(*s));
    if (!s) return NULL;
    s->id = id;
    s->served = true;
    s->epoch = s->base_epoch = -1;
    kw_list_init(&s->waiting);
    kb_session_renew(s, -1, NULL, k->now);
    if (kw_map_put_u64(&k->sessions, (uint32_t)id, s)) {
        kw_free(s);
        return NULL;
    }
    return s;
}

static void answer_waiting(struct kb_controller *k, struct kb_session *s, int16_t code) {
    for (struct kw_list *l; (l = kw_list_shift(&s->waiting));) {
        struct kb_heartbeat *h = KW_CONTAINER_OF(l, struct kb_heartbeat, link);
        h->code = code;
        h->done(h, k->now);
    }
}

void kb_sessions_end(struct kb_controller *k) {
    struct kb_session *s;
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));) {
        kw_map_remove_u64(&k->sessions, (uint32_t)s->id);
        answer_waiting(k, s, KE_NOT_CONTROLLER);
        kw_free(s);
    }
    kw_timers_cancel(k->o.timers, &k->session_timer);
    kw_timers_cancel(k->o.timers, &k->balance_timer);
}

void kb_sessions_deinit(struct kb_controller *k) {
    struct kb_session *s;
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));) {
        while (kw_list_shift(&s->waiting)) {
        }
        kw_free(s);
    }
    kw_map_deinit(&k->sessions);
    kw_timers_cancel(k->o.timers, &k->session_timer);
    kw_timers_cancel(k->o.timers, &k->balance_timer);
}

/* ---- What is due ---- */

static bool is_watched(const struct kb_controller *k, const struct kb_session *s) {
    const struct kb_image_broker *b = kb_image_broker(k->o.image, s->id);
    return b && !b->fenced && !((s->want | s->doing) & KB_BROKER_FENCE);
}

bool kb_session_lives(const struct kb_controller *k, const struct kb_session *s) {
    int64_t silent = k->now.mono_us - s->heard_us;
    return !s->closed && silent < (s->heard ? k->session_timeout_us : SILENT_US);
}

static int64_t dial_at(const struct kb_controller *k, const struct kb_session *s) {
    if (!k->o.dial || s->dialing || s->id == k->self) return KW_NEVER;
    if (s->redial_us != KW_NEVER) return s->redial_us;
    return s->heard || s->closed ? KW_NEVER : s->heard_us + SILENT_US;
}

static int64_t due_of(const struct kb_controller *k, const struct kb_session *s) {
    return KW_MIN(s->heard_us + k->session_timeout_us, s->grace_us);
}

void kb_sessions_arm(struct kb_controller *k) {
    struct kb_session *s;
    int64_t at = KW_NEVER;
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));) {
        if (!is_watched(k, s)) continue;
        at = KW_MIN(at, KW_MIN(due_of(k, s), dial_at(k, s)));
    }
    k->session_due_us = at;
    (void)!kw_timers_set(k->o.timers, &k->session_timer, at); /* without memory: the next heartbeat arms it */
}

static void dial(struct kb_controller *k, struct kb_session *s) {
    const struct kb_image_broker *b = kb_image_broker(k->o.image, s->id);
    s->redial_us = KW_NEVER;
    if (!k->o.dial || s->dialing || !b) return;
    s->dialing = b->endpoint_count > 0 && k->o.dial(k->o.ctx, s->id, b->endpoints[0].host, (uint16_t)b->endpoints[0].port, k->now) == KW_OK;
    if (!s->dialing) s->redial_us = k->now.mono_us + (s->closed ? GRACE_US : SILENT_US);
}

/* Silent for so long that it may well have died together with one whose session ends now. */
static bool is_suspect(const struct kb_controller *k, const struct kb_session *s) {
    int64_t silent = k->now.mono_us - s->heard_us;
    int64_t long_us = KW_MAX(k->session_timeout_us - 2 * k->heartbeat_us, 2 * k->heartbeat_us);
    return due_of(k, s) <= k->now.mono_us || s->grace_us != KW_NEVER || s->refusals > 0 || silent >= long_us;
}

static void suspect_all(struct kb_controller *k) {
    struct kb_session *s;
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));) {
        if (!is_watched(k, s) || !is_suspect(k, s)) continue;
        s->want = (uint8_t)((s->want & ~KB_BROKER_UNFENCE) | KB_BROKER_FENCE);
        s->suspected = true;
        kb_say(k->o.logger, KB_WARN, "broker %d is taken for dead: %s for %lld ms", (int)s->id,
               s->grace_us != KW_NEVER ? "its connection closed and nothing listens at its address; silent" : "it has been silent",
               (long long)((k->now.mono_us - s->heard_us) / 1000));
    }
    kb_sweep_request(k);
}

static void all_anew(struct kb_controller *k) {
    struct kb_session *s;
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));)
        if (s->grace_us == KW_NEVER) s->heard_us = k->now.mono_us;
}

/* Its connection closed, and whether something listens at its address is not known yet. */
static bool is_pending(const struct kb_controller *k, const struct kb_session *s) {
    return s->closed && s->grace_us == KW_NEVER && (s->dialing || s->redial_us != KW_NEVER) && k->now.mono_us - s->closed_us < AGAIN_US;
}

/* Those whose grace is over wait for it: they may have died together, and then they stay together in sync. */
static void put_off(struct kb_controller *k) {
    struct kb_session *s;
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));)
        if (s->grace_us <= k->now.mono_us) s->grace_us = k->now.mono_us + PENDING_US;
}

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_controller *k = ctx;
    struct kb_session *s;
    bool over = false, graced = false, pending = false;
    (void)t;
    k->now.mono_us = now_us;
    if (!k->active) return;
    if (now_us - k->session_due_us > k->session_timeout_us / 2) all_anew(k);
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));) {
        if (!is_watched(k, s)) continue;
        over = over || s->heard_us + k->session_timeout_us <= now_us;
        graced = graced || s->grace_us <= now_us;
        if (dial_at(k, s) <= now_us) dial(k, s);
        pending = pending || is_pending(k, s);
    }
    if (over || (graced && !pending))
        suspect_all(k);
    else if (graced)
        put_off(k);
    kb_sessions_arm(k);
}

/* ---- What is heard of a broker ---- */

void kb_controller_conn_closed(struct kb_controller *k, const void *conn, struct kb_now now) {
    struct kb_session *s;
    bool again = false;
    k->now = now;
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));) {
        if (s->conn != conn) continue;
        s->conn = NULL;
        s->closed = true;
        s->closed_us = now.mono_us;
        if (!k->active || !is_watched(k, s)) continue;
        dial(k, s);
        again = again || s->redial_us != KW_NEVER;
    }
    if (again) kb_sessions_arm(k);
}

void kb_controller_dialed(struct kb_controller *k, int32_t broker, bool refused, struct kb_now now) {
    struct kb_session *s = kb_session_find(k, broker);
    k->now = now;
    if (!s || !s->dialing) return;
    s->dialing = false;
    s->redial_us = KW_NEVER;
    if (!k->active || s->conn || (s->heard && !s->closed)) {
        s->refusals = 0;
        return;
    }
    s->refusals = refused ? s->refusals + 1 : 0;
    if (!refused && s->closed) /* a process that is being killed may listen for a moment longer than its connections last */
        s->redial_us = now.mono_us - s->closed_us < AGAIN_US ? now.mono_us + GRACE_US : KW_NEVER;
    else if (!refused)
        s->redial_us = now.mono_us + SILENT_US;
    else if (s->closed)
        s->grace_us = now.mono_us + GRACE_US;
    else if (s->refusals == 1)
        s->redial_us = now.mono_us + GRACE_US;
    else
        s->grace_us = now.mono_us;
    kb_sessions_arm(k);
}

/* ---- Office ---- */

kw_err kb_sessions_begin(struct kb_controller *k) {
    struct kb_image_broker *b;
    for (size_t it = 0; (b = kw_map_next(&k->o.image->brokers, &it));) {
        if (k->single && b->id == k->self) continue; /* it lives as long as this controller does */
        struct kb_session *s = kb_session_make(k, b->id);
        if (!s) return KW_ENOMEM;
        kb_session_renew(s, b->epoch, NULL, k->now);
        s->served = true;
    }
    kb_sessions_arm(k);
    return KW_OK;
}

/* The broker is not registered any more. */
static void forget(struct kb_controller *k, struct kb_session *s, struct kw_list *woken) {
    kw_map_remove_u64(&k->sessions, (uint32_t)s->id);
    for (struct kw_list *l; (l = kw_list_shift(&s->waiting));) kw_list_push(woken, l);
    kw_free(s);
}

void kb_sessions_swept(struct kb_controller *k, bool done) {
    struct kb_session *s;
    struct kw_list woken; /* an answer may bring a request that makes a session: no walk is under way then */
    kw_list_init(&woken);
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));) {
        uint8_t doing = s->doing;
        s->doing = 0;
        if (!doing) continue;
        if (!done) {
            s->want |= doing;
            continue;
        }
        if (doing & KB_BROKER_GONE) {
            forget(k, s, &woken);
            continue;
        }
        if (doing & KB_BROKER_UNFENCE) {
            s->served = true;
            s->weak = s->lost;
            s->lost = false;
        }
        if (doing & KB_BROKER_FENCE) {
            s->suspected = false;
            s->grace_us = s->redial_us = KW_NEVER;
            s->refusals = 0;
        }
    }
    if (!done) return;
    kb_sessions_arm(k);
    for (size_t it = 0; (s = kw_map_next(&k->sessions, &it));)
        for (struct kw_list *l; !s->want && (l = kw_list_shift(&s->waiting));) kw_list_push(&woken, l);
    for (struct kw_list *l; (l = kw_list_shift(&woken));) {
        struct kb_heartbeat *h = KW_CONTAINER_OF(l, struct kb_heartbeat, link);
        if (kb_controller_heartbeat(k, h, k->now)) h->done(h, k->now);
    }
}
