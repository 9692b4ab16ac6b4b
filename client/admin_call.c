/* admin_call.c - sends an administrative request, retries it, ends the operation. Loop context, but for making and starting one. */
#include "admin_call.h"

#define UNSENT_WAIT_US 10000 /* what a broker is asked for that the core has not heard of yet: it asks for metadata at once */

static void finish(struct kc_admin *a, kc_err err, kc_error *error) {
    kw_timers_cancel(kc_core_timers(a->op.client->core), &a->timer);
    kc_op_complete(&a->op, err, error);
}

static void fail(struct kc_admin *a, kc_err err) {
    kc_error *error = NULL;
    kc_error_make(&error, err, KC_MAYBE_PERSISTED, a->attempts, "%s: %s%s%s", a->kind->what, kc_err_text(err),
                  a->last != KC_OK && a->last != err ? "; last: " : "", a->last != KC_OK && a->last != err ? kc_err_text(a->last) : "");
    finish(a, err, error);
}

static void send_step(struct kc_admin *a);

int64_t kc_admin_again_at_us(const struct kc_admin *a) {
    const struct kc_settings *s = a->op.client->settings;
    int64_t wait = s->retry_backoff_us << KW_MIN(a->tries, 6);
    if (a->tries == 0 && !a->rq.sent) wait = KW_MIN(wait, UNSENT_WAIT_US);
    return kc_core_now(a->op.client->core).mono_us + KW_MIN(wait, s->retry_backoff_max_us);
}

static void again(struct kc_admin *a) {
    struct kc_core *core = a->op.client->core;
    int64_t at = kc_admin_again_at_us(a);
    a->tries++;
    if (at >= a->deadline_us)
        fail(a, KC_TIMED_OUT);
    else if (kw_timers_set(kc_core_timers(core), &a->timer, at) != KW_OK)
        fail(a, KC_NO_MEMORY);
}

static void timer_fired(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    send_step(ctx);
}

/* As read or unreachable say. */
static void go_on(struct kc_admin *a, kc_err err, kc_error *error) {
    if (err == ADMIN_NEXT) {
        a->tries = 0;
        send_step(a);
    } else if (err == ADMIN_AGAIN) {
        again(a);
    } else if (err != KC_OK && !error) {
        fail(a, err);
    } else {
        finish(a, err, error);
    }
}

static void answered(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct kc_admin *a = rq->ctx;
    kc_error *error = NULL;
    (void)blk;
    a->outstanding = false;
    if (err == KC_OK) {
        struct kw_arena arena;
        kw_arena_init(&arena, 0);
        err = a->kind->read(a, body, &arena, &error);
        kw_arena_deinit(&arena);
        go_on(a, err, error);
        return;
    }
    a->last = err;
    bool slow = err == KC_TIMED_OUT && (a->partial || (a->step_us > 0 && kc_core_now(a->op.client->core).mono_us < a->deadline_us));
    if (slow || (kc_err_retriable(err) && err != KC_TIMED_OUT)) {
        if (rq->sent && a->kind->unsure) a->kind->unsure(a);
        kc_metadata_refresh(a->op.client->core, "an administrative request failed");
        go_on(a, a->kind->unreachable ? a->kind->unreachable(a, err) : ADMIN_AGAIN, NULL);
    } else if (err == KC_UNSUPPORTED && a->kind->unreachable && a->api != a->kind->api) {
        go_on(a, a->kind->unreachable(a, err), NULL);
    } else {
        fail(a, err);
    }
}

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct kc_admin *a = rq->ctx;
    struct kw_arena arena;
    kw_arena_init(&arena, 0);
    kw_err err = a->kind->encode(a, rq->version, &arena, out);
    kw_arena_deinit(&arena);
    return err;
}

static void send_step(struct kc_admin *a) {
    struct kc_core *core = a->op.client->core;
    kc_request_init(&a->rq, a->api);
    if (a->rq.version_min < a->version_min) a->rq.version_min = a->version_min;
    if (a->rq.version_max > a->version_max) a->rq.version_max = a->version_max;
    a->rq.broker = a->broker;
    a->rq.channel = KC_CHANNEL_CONTROL;
    a->rq.deadline_us = a->deadline_us;
    if (a->step_us > 0) a->rq.deadline_us = KW_MIN(a->deadline_us, kc_core_now(core).mono_us + a->step_us);
    a->rq.encode = encode;
    a->rq.done = answered;
    a->rq.ctx = a;
    a->rq.attempts = a->attempts;
    a->outstanding = true;
    kc_core_send(core, &a->rq);
}

static void op_start(struct kc_op *op) {
    struct kc_admin *a = KW_CONTAINER_OF(op, struct kc_admin, op);
    send_step(a);
}

static void op_cancel(struct kc_op *op) {
    struct kc_admin *a = KW_CONTAINER_OF(op, struct kc_admin, op);
    if (a->outstanding)
        kc_core_cancel(op->client->core, &a->rq); /* ends in answered */
    else
        fail(a, KC_CANCELLED);
}

static void op_deinit(struct kc_op *op) {
    struct kc_admin *a = kc_admin_of(op);
    kc_attempts_unref(a->attempts);
    a->kind->free_call(a->call);
}

kc_err kc_admin_make(kc_client *c, const struct kc_admin_kind *kind, void *call, int64_t timeout_us, uint64_t opaque, kc_op **op,
                     kc_error **error) {
    kc_err err = kc_client_enter(c);
    struct kc_op *made = NULL;
    if (err == KC_OK && !call) err = KC_NO_MEMORY;
    if (err != KC_OK)
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "%s: %s", kind->what, kc_err_text(err));
    else
        err = kc_op_new(c, sizeof(struct kc_admin), opaque, op_start, op_cancel, op_deinit, &made, error);
    if (err != KC_OK) {
        if (call) kind->free_call(call);
        return err;
    }
    struct kc_admin *a = kc_admin_of(made);
    kw_timer_init(&a->timer, timer_fired, a);
    a->attempts = kc_attempts_new(); /* without it the error just tells less */
    a->deadline_us = kc_deadline_after(timeout_us != 0 ? timeout_us : c->settings->api_timeout_us);
    a->kind = kind;
    kc_admin_step(a, kind->api, kind->version_min, kind->broker);
    a->call = call;
    *op = made;
    return KC_OK;
}

void *kc_admin_done_call(const kc_op *op, const struct kc_admin_kind *kind) {
    return op && op->start == op_start && kc_op_done(op) && kc_admin_of(op)->kind == kind ? kc_admin_of(op)->call : NULL;
}

void *kc_admin_done_freed_by(const kc_op *op, void (*free_call)(void *)) {
    return op && op->start == op_start && kc_op_done(op) && kc_admin_of(op)->kind->free_call == free_call ? kc_admin_of(op)->call : NULL;
}

kc_err kc_admin_run(kc_client *c, const struct kc_admin_kind *kind, void *call, int64_t timeout_us, kc_op **op, kc_error **error) {
    kc_err err = kc_admin_make(c, kind, call, timeout_us, 0, op, error);
    return err == KC_OK ? kc_op_run(*op, KC_FOREVER, error) : err; /* the call keeps its own limit */
}

kc_err kc_admin_begin(kc_err made, kc_op *op, kc_op **out) {
    if (made != KC_OK) return made;
    kc_op_start(op);
    *out = op;
    return KC_OK;
}

kc_err kc_admin_invalid(const struct kc_admin_kind *kind, kc_error **error) {
    kc_error_make(error, KC_INVALID, KC_NOT_PERSISTED, NULL, "%s: the arguments, the items or their stride are not valid", kind->what);
    return KC_INVALID;
}

kc_err kc_admin_decode(struct kc_admin *a, const struct kw_desc *d, struct kw_in *body, struct kw_arena *arena, void *m,
                       int32_t *throttle_ms) {
    kw_err err = kw_decode(d, a->rq.version, body, arena, m);
    if (err != KW_OK) return kc_err_from(err);
    kc_core_broker_throttle(a->op.client->core, a->rq.sent_to, *throttle_ms);
    return KC_OK;
}

kc_err kc_admin_whole(struct kc_admin *a, int16_t code, struct kw_str text, kc_error **error) {
    char message[256];
    if (code == KE_NONE) return KC_OK;
    bool open = a->kind->unsure && kc_admin_leaves_open(code);
    if (open) a->kind->unsure(a);
    if (kc_admin_again(a, code)) return ADMIN_AGAIN;
    kc_admin_message(message, sizeof message, text, code);
    kc_error_make(error, code, open ? KC_MAYBE_PERSISTED : KC_NOT_PERSISTED, a->attempts, "%s: %s", a->kind->what, message);
    return code;
}

bool kc_admin_again(struct kc_admin *a, int16_t code) {
    const struct kw_kerror_info *info = kw_kerror_info(code);
    if (!info->retriable) return false;
    a->last = code;
    if (info->refresh_metadata || code == KE_NOT_CONTROLLER) kc_metadata_refresh(a->op.client->core, info->name);
    return kc_admin_time_left_ms(a) > 0;
}

/* A controller that lost its office while the change waited to be committed says NOT_CONTROLLER, as one that never began: its successor may find
 * the change in its own log. */
bool kc_admin_leaves_open(int16_t code) {
    return code == KE_REQUEST_TIMED_OUT || code == KE_NOT_CONTROLLER;
}

int32_t kc_admin_time_left_ms(const struct kc_admin *a) {
    int64_t left = a->deadline_us == KW_NEVER ? INT32_MAX : (a->deadline_us - kc_core_now(a->op.client->core).mono_us) / 1000;
    return left < 0 ? 0 : (int32_t)KW_MIN(left, INT32_MAX);
}

void kc_admin_message(char *out, size_t size, struct kw_str text, int16_t code) {
    const char *p = text.len > 0 ? text.p : code == KE_NONE ? "" : kc_err_text(code);
    size_t n = text.len > 0 ? (size_t)text.len : strlen(p);
    if (n >= size) n = size - 1;
    memcpy(out, p, n);
    out[n] = 0;
}

int kc_admin_name_order(struct kw_str x, struct kw_str y) {
    int32_t n = KW_MAX(x.len, 0), m = KW_MAX(y.len, 0);
    if (n != m) return n < m ? -1 : 1;
    return n > 0 ? memcmp(x.p, y.p, (size_t)n) : 0;
}

const char *kc_admin_keep_str(struct kw_arena *a, struct kw_str s) {
    size_t n = (size_t)KW_MAX(s.len, 0);
    char *z = kw_arena_alloc(a, n + 1);
    if (!z) return NULL;
    if (n > 0) memcpy(z, s.p, n);
    z[n] = 0;
    return z;
}

const int32_t *kc_admin_keep_ids(struct kw_arena *a, const int32_t *v, int32_t n, size_t *count, bool *ok) {
    *count = n > 0 ? (size_t)n : 0;
    const int32_t *kept = kw_arena_dup(a, v, *count * sizeof *v);
    if (*count > 0 && !kept) *ok = false;
    return kept;
}
