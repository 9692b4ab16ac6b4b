/* coordinator.c - which broker coordinates a key: FindCoordinator, asked of any broker when somebody needs to know, and what waits for its answer.
 *
 * All keys of a type that are due go with one request. A broker that knows only versions below 4 takes one key a request: then the first one goes,
 * and the others at once after it. Loop context. Called by users of coordinator.h, and by request.c. KIP-699.
 */
#include "coordinator.h"

#include "internal.h"

#include <stdio.h>

enum { VERSION_KEY_TYPE = 1, VERSION_BATCHED = 4, KEYS_MAX = 1000 /* in one request */ };
#define MEMORY_RETRY_US 100000

struct kc_coordinator {
    struct kc_core *core;
    enum kc_coordinator_type type;
    char *key; /* NUL-terminated for texts */
    int32_t key_len;
    uint32_t refs;
    int32_t broker; /* -1: not known */
    bool wanted;    /* kc_coordinator_find, and not found since */
    struct find *find; /* the request that asks for it; NULL */
    int64_t since_us, not_before_us;
    uint32_t failures; /* finds that failed, or whose answer soon proved wrong, in a row */
    kc_err last;
    struct kw_list waiting; /* requests until it is known */
};

struct find { /* one FindCoordinator */
    struct kc_request rq;
    struct kw_list link; /* in coordinators->finds */
    struct kc_core *core;
    enum kc_coordinator_type type;
    size_t count;
    struct kc_coordinator *keys[]; /* NULL: freed meanwhile */
};

static const char *const type_names[] = {"group", "transactional id"};

static struct kw_str key_of(const struct kc_coordinator *c) {
    return (struct kw_str){c->key, c->key_len};
}

static bool is_due(const struct kc_coordinator *c) {
    return c->broker < 0 && !c->find && (c->wanted || !kw_list_empty(&c->waiting));
}

void kc_coordinators_look(struct kc_core *core) {
    kc_core_defer(core, &core->coordinators.find);
}

static void on_timer(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    kc_coordinators_look(ctx);
}

/* ---- What is known ---- */

/* The broker if it is still there. One that the metadata no longer names is none. */
static struct kc_broker *broker_of(const struct kc_coordinator *c) {
    struct kc_broker *b = c->broker < 0 ? NULL : kc_broker_get(c->core, c->broker);
    return b && !b->gone ? b : NULL;
}

/* An answer that held for a while and then proved wrong is asked for anew at once; otherwise with growing waits. */
static void backs_off(struct kc_coordinator *c) {
    const struct kc_settings *s = c->core->settings;
    int64_t now_us = c->core->now.mono_us;
    if (c->broker >= 0 && now_us - c->since_us > s->retry_backoff_max_us) {
        c->failures = 0;
        c->not_before_us = now_us;
        return;
    }
    if (c->failures < UINT32_MAX) c->failures++;
    c->not_before_us = kc_after(now_us, kc_backoff(c->core, s->retry_backoff_us, s->retry_backoff_max_us, c->failures));
}

void kc_coordinator_lost(struct kc_coordinator *c, int32_t broker) {
    if (c->broker < 0 || c->broker != broker) return;
    kc_core_log(c->core, 7, "broker %d no longer counts as the coordinator of %s %s", (int)broker, type_names[c->type], c->key);
    backs_off(c);
    c->broker = -1;
    c->since_us = c->core->now.mono_us;
    kc_coordinators_look(c->core);
}

void kc_coordinator_route(struct kc_request *rq) {
    struct kc_coordinator *c = rq->coordinator;
    struct kc_broker *b = broker_of(c);
    if (b) {
        kc_request_queue(b, rq);
        return;
    }
    kc_coordinator_lost(c, c->broker); /* it went (CX-18) */
    rq->state = KC_RQ_ROUTING;
    rq->to = -1;
    kw_list_push(&c->waiting, &rq->link);
    kc_coordinators_look(c->core);
}

static void found(struct kc_coordinator *c, struct kc_broker *b) {
    struct kw_list *l;
    kc_core_log(c->core, 7, "the coordinator of %s %s is broker %d at %s:%u", type_names[c->type], c->key, (int)b->id, b->host, b->port);
    c->broker = b->id;
    c->since_us = c->core->now.mono_us;
    c->last = KC_OK;
    c->wanted = false;
    while ((l = kw_list_shift(&c->waiting)) != NULL) kc_request_queue(b, KW_CONTAINER_OF(l, struct kc_request, link));
}

/* Asking failed, or nobody was named. */
static void not_found(struct kc_coordinator *c, const struct find *f, kc_err err, struct kw_str text) {
    char detail[200];
    snprintf(detail, sizeof detail, "%s: %.*s", kc_err_name(err), text.len > 0 ? KW_MIN((int)text.len, 120) : 0, text.len > 0 ? text.p : "");
    backs_off(c);
    c->last = err;
    bool hopeless = !kc_err_retriable(err) && err != KC_BAD_MESSAGE && err != KC_CANCELLED;
    if (hopeless) c->wanted = false;
    for (struct kw_list *l = c->waiting.next, *next; l != &c->waiting; l = next) {
        next = l->next;
        struct kc_request *rq = KW_CONTAINER_OF(l, struct kc_request, link);
        kc_request_note(c->core, rq, f->rq.sent_to, err, "find coordinator", text.len > 0 ? detail : kc_err_text(err));
        if (hopeless) kc_request_finish(c->core, rq, err);
    }
}

/* ---- FindCoordinator ---- */

static void let_go(struct kc_coordinator **slot) {
    if (*slot) (*slot)->find = NULL;
    *slot = NULL;
}

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct find *f = rq->ctx;
    struct kw_find_coordinator_request m;
    struct kw_str keys[KEYS_MAX];
    size_t n = 0;
    kw_msg_init(&kw_find_coordinator_request_desc, &m);
    if (rq->version >= VERSION_KEY_TYPE) m.key_type = (int8_t)f->type;
    bool batched = rq->version >= VERSION_BATCHED;
    for (size_t i = 0; i < f->count; i++) {
        if (!f->keys[i]) continue;
        if (n > 0 && !batched) { /* its turn comes next */
            let_go(&f->keys[i]);
            kc_coordinators_look(f->core);
            continue;
        }
        keys[n++] = key_of(f->keys[i]);
    }
    if (batched) {
        m.coordinator_keys.v = keys;
        m.coordinator_keys.n = (int32_t)n;
    } else if (n > 0) {
        m.key = keys[0];
    }
    return kw_encode(&kw_find_coordinator_request_desc, rq->version, &m, out);
}

static void answer_one(struct kc_coordinator **slot, struct find *f, int16_t code, int32_t node, struct kw_str host, int32_t port,
                       struct kw_str text) {
    struct kc_coordinator *c = *slot;
    kc_err err = code;
    if (err == KC_OK && node < 0) err = KE_COORDINATOR_NOT_AVAILABLE;
    let_go(slot);
    if (err == KC_OK) {
        kw_err made = kc_broker_update(c->core, node, host, port);
        if (made != KW_OK) err = made == KW_EDECODE ? KC_BAD_MESSAGE : kc_err_from(made);
    }
    struct kc_broker *b = err == KC_OK ? kc_broker_get(c->core, node) : NULL;
    if (b)
        found(c, b);
    else
        not_found(c, f, err, text);
}

static struct kc_coordinator **slot_of(struct find *f, struct kw_str key) {
    for (size_t i = 0; i < f->count; i++)
        if (f->keys[i] && kw_str_eq(key_of(f->keys[i]), key)) return &f->keys[i];
    return NULL;
}

static kw_err read_answer(struct find *f, struct kw_in *body) {
    struct kw_find_coordinator_response m;
    struct kw_arena *arena = &f->core->arena;
    kw_arena_reset(arena);
    kw_err err = kw_decode(&kw_find_coordinator_response_desc, f->rq.version, body, arena, &m);
    if (err != KW_OK) return err;
    kc_core_broker_throttle(f->core, f->rq.sent_to, m.throttle_time_ms);
    if (f->rq.version < VERSION_BATCHED) {
        for (size_t i = 0; i < f->count; i++) /* the only one that is left */
            if (f->keys[i]) answer_one(&f->keys[i], f, m.error_code, m.node_id, m.host, m.port, m.error_message);
        return KW_OK;
    }
    for (int32_t i = 0; i < m.coordinators.n; i++) {
        const struct kw_find_coordinator_response_coordinator *a = &m.coordinators.v[i];
        struct kc_coordinator **slot = slot_of(f, a->key);
        if (slot) answer_one(slot, f, a->error_code, a->node_id, a->host, a->port, a->error_message);
    }
    return KW_OK;
}

static void answered(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct find *f = rq->ctx;
    struct kc_core *core = f->core;
    (void)blk;
    if (err == KC_OK) err = kc_err_from(read_answer(f, body));
    for (size_t i = 0; i < f->count; i++) { /* those that the answer passed over */
        struct kc_coordinator *c = f->keys[i];
        if (!c) continue;
        let_go(&f->keys[i]);
        if (err != KC_CLOSED) not_found(c, f, err == KC_OK ? KC_BAD_MESSAGE : err, kw_str_null());
    }
    kw_list_remove(&f->link);
    kw_free(f);
    kc_coordinators_look(core);
}

static void find_send(struct kc_core *core, struct find *f) {
    kc_request_init(&f->rq, KW_API_FIND_COORDINATOR);
    f->rq.version_min = f->type == KC_COORDINATOR_GROUP ? 0 : VERSION_KEY_TYPE;
    f->rq.channel = KC_CHANNEL_CONTROL;
    f->rq.deadline_us = kc_after(core->now.mono_us, core->settings->request_timeout_us);
    f->rq.encode = encode;
    f->rq.done = answered;
    f->rq.ctx = f;
    kw_list_push(&core->coordinators.finds, &f->link);
    kc_core_send(core, &f->rq);
}

/* Those of one type that are due; *next_us: when the next one is. NULL: none, or no memory. */
static struct find *gather(struct kc_core *core, enum kc_coordinator_type type, int64_t *next_us) {
    struct kw_map *map = &core->coordinators.by_key[type];
    struct kc_coordinator *c;
    size_t n = 0;
    for (size_t it = 0; (c = kw_map_next(map, &it));) {
        if (!is_due(c)) continue;
        if (c->not_before_us > core->now.mono_us)
            *next_us = KW_MIN(*next_us, c->not_before_us);
        else
            n++;
    }
    if (n == 0) return NULL;
    n = KW_MIN(n, (size_t)KEYS_MAX);
    struct find *f = kw_calloc(1, sizeof *f + n * sizeof *f->keys);
    if (!f) {
        *next_us = KW_MIN(*next_us, kc_after(core->now.mono_us, MEMORY_RETRY_US));
        return NULL;
    }
    f->core = core;
    f->type = type;
    kw_list_init(&f->link);
    for (size_t it = 0; f->count < n && (c = kw_map_next(map, &it));) {
        if (!is_due(c) || c->not_before_us > core->now.mono_us) continue;
        c->find = f;
        f->keys[f->count++] = c;
    }
    return f;
}

static void find_due(struct kc_task *task, void *ctx) {
    (void)task;
    struct kc_core *core = ctx;
    int64_t next_us = KW_NEVER;
    if (core->stopping) return;
    for (int type = KC_COORDINATOR_GROUP; type <= KC_COORDINATOR_TRANSACTION; type++) {
        struct find *f;
        while ((f = gather(core, (enum kc_coordinator_type)type, &next_us)) != NULL) find_send(core, f);
    }
    kc_core_arm(core, &core->coordinators.timer, next_us);
}

/* ---- Life ---- */

void kc_coordinators_init(struct kc_core *core) {
    struct kc_coordinators *cs = &core->coordinators;
    for (size_t i = 0; i < KW_COUNTOF(cs->by_key); i++) kw_map_init(&cs->by_key[i]);
    kw_list_init(&cs->finds);
    kc_task_init(&cs->find, find_due, core);
    kw_timer_init(&cs->timer, on_timer, core);
}

static void coordinator_free(struct kc_coordinator *c) {
    kw_free(c->key);
    kw_free(c);
}

void kc_coordinators_deinit(struct kc_core *core) {
    struct kc_coordinators *cs = &core->coordinators;
    struct kc_coordinator *c;
    struct kw_list *l;
    kc_core_disarm(core, &cs->timer);
    while (!core->abandoned && (l = kw_list_shift(&cs->finds)) != NULL) kw_free(KW_CONTAINER_OF(l, struct find, link));
    for (size_t i = 0; i < KW_COUNTOF(cs->by_key); i++) {
        for (size_t it = 0; (c = kw_map_next(&cs->by_key[i], &it));) coordinator_free(c);
        kw_map_deinit(&cs->by_key[i]);
    }
}

void kc_coordinators_stop(struct kc_core *core) {
    struct kc_coordinators *cs = &core->coordinators;
    struct kc_coordinator *c;
    for (size_t i = 0; i < KW_COUNTOF(cs->by_key); i++)
        for (size_t it = 0; (c = kw_map_next(&cs->by_key[i], &it));)
            while (!kw_list_empty(&c->waiting)) kc_request_finish(core, KW_CONTAINER_OF(c->waiting.next, struct kc_request, link), KC_CLOSED);
    kw_timers_cancel(&core->timers, &cs->timer);
    kc_task_cancel(&cs->find);
}

struct kc_coordinator *kc_coordinator_open(struct kc_core *core, enum kc_coordinator_type type, struct kw_str key) {
    KW_ASSERT(key.len > 0 && key.len <= INT16_MAX);
    struct kw_map *map = &core->coordinators.by_key[type];
    struct kc_coordinator *c = kw_map_get(map, key.p, (size_t)key.len);
    if (c) {
        c->refs++;
        return c;
    }
    if (map->count >= KC_COORDINATORS_MAX) return NULL;
    c = kw_calloc(1, sizeof *c);
    if (!c) return NULL;
    c->core = core;
    c->type = type;
    c->refs = 1;
    c->broker = -1;
    c->since_us = core->now.mono_us;
    kw_list_init(&c->waiting);
    c->key = kw_malloc((size_t)key.len + 1);
    if (!c->key || kw_map_put(map, key.p, (size_t)key.len, c) != KW_OK) {
        coordinator_free(c);
        return NULL;
    }
    memcpy(c->key, key.p, (size_t)key.len);
    c->key[key.len] = 0;
    c->key_len = key.len;
    return c;
}

void kc_coordinator_unref(struct kc_coordinator *c) {
    if (!c || --c->refs > 0) return;
    KW_ASSERT(kw_list_empty(&c->waiting));
    struct find *f = c->find;
    if (f) {
        size_t left = 0;
        for (size_t i = 0; i < f->count; i++) {
            if (f->keys[i] == c) f->keys[i] = NULL;
            left += f->keys[i] != NULL;
        }
        if (left == 0) kc_core_cancel(c->core, &f->rq);
    }
    kw_map_remove(&c->core->coordinators.by_key[c->type], c->key, (size_t)c->key_len);
    coordinator_free(c);
}

/* ---- For its users ---- */

void kc_coordinator_aim(struct kc_coordinator *c, struct kc_request *rq) {
    rq->broker = KC_BROKER_COORDINATOR;
    rq->coordinator = c;
    rq->channel = KC_CHANNEL_CONTROL;
}

bool kc_coordinator_failed(struct kc_coordinator *c, const struct kc_request *rq, kc_err err) {
    switch (err) {
    case KC_OK: c->failures = 0; return false;
    case KC_CLOSED:
    case KC_CANCELLED: return false;
    case KE_NOT_COORDINATOR:
    case KE_COORDINATOR_NOT_AVAILABLE:
    case KC_TRANSPORT:
    case KC_TIMED_OUT: /* it may be frozen, and another one elected */
    case KC_BAD_MESSAGE:
        if (rq->sent_to >= 0) {
            if (c->broker == rq->sent_to) c->last = err;
            kc_coordinator_lost(c, rq->sent_to);
        }
        return true;
    default: return kc_err_retriable(err);
    }
}

void kc_coordinator_find(struct kc_coordinator *c) {
    if (broker_of(c)) return;
    kc_coordinator_lost(c, c->broker);
    c->wanted = true;
    kc_coordinators_look(c->core);
}

int32_t kc_coordinator_broker(const struct kc_coordinator *c) {
    return broker_of(c) ? c->broker : -1;
}
kc_err kc_coordinator_last(const struct kc_coordinator *c) {
    return c->last;
}

void kc_coordinator_status(struct kc_coordinator *c, char *text, size_t size) {
    int32_t broker = kc_coordinator_broker(c);
    double seconds = (double)(c->core->now.mono_us - c->since_us) / 1e6;
    if (broker >= 0) {
        int n = snprintf(text, size, "the coordinator of %s %.60s is broker %d: ", type_names[c->type], c->key, (int)broker);
        if (n > 0 && (size_t)n < size) kc_core_broker_status(c->core, broker, text + n, size - (size_t)n);
    } else {
        snprintf(text, size, "the coordinator of %s %.60s is looked for since %.1f s%s%s", type_names[c->type], c->key, seconds,
                 c->last != KC_OK ? ": " : "", c->last != KC_OK ? kc_err_name(c->last) : "");
    }
}
