/* core.c - the core as a whole: its life, turns, actions, tasks, timers. Called by the shell and the façade (event.h, core.h); calls
 * brokers, metadata. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

enum { TURN_TASKS_MAX = 100000 };
#define STARVED_RETRY_US 100000

int64_t kc_after(int64_t now_us, int64_t duration_us) {
    if (duration_us < 0 || (now_us > 0 && duration_us > INT64_MAX - now_us)) return KW_NEVER;
    return now_us + duration_us;
}

int64_t kc_jittered(struct kc_core *core, int64_t us, unsigned percent) {
    int64_t span = us / 100 * (int64_t)percent;
    if (span <= 0) return us;
    return us - span + (int64_t)kw_rng_below(&core->rng, (uint64_t)(2 * span + 1));
}

int64_t kc_backoff(struct kc_core *core, int64_t first_us, int64_t max_us, uint32_t failures) {
    int64_t us = first_us;
    for (uint32_t i = 1; i < failures && us < max_us; i++) us = us > max_us / 2 ? max_us : us * 2;
    return kc_jittered(core, KW_MIN(us, max_us), 20);
}

void kc_core_log(struct kc_core *core, int level, const char *fmt, ...) {
    if (!core->log || level > core->settings->log_level) return;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    core->log(core->ctx, level, text);
}

static void on_route_timer(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    kc_core_route(ctx);
}

kw_err kc_core_new(const struct kc_core_options *o, struct kc_core **out) {
    struct kc_core *core = kw_calloc(1, sizeof *core);
    if (!core) return KW_ENOMEM;
    core->settings = o->settings;
    core->now = o->now;
    core->log = o->log;
    core->ctx = o->ctx;
    kw_rng_init(&core->rng, o->seed);
    kw_timers_init(&core->timers);
    kw_arena_init(&core->arena, 0);
    kw_map_init(&core->brokers);
    struct kw_list *lists[] = {&core->actions,    &core->tasks,   &core->finished, &core->any,
                               &core->controller, &core->closing, &core->turn_end};
    for (size_t i = 0; i < KW_COUNTOF(lists); i++) kw_list_init(lists[i]);
    kw_timer_init(&core->route_timer, on_route_timer, core);
    kc_task_init(&core->route, kc_core_route_run, core);
    kc_budget_init(&core->budget, o->settings->memory_max);
    core->use_boots = true;
    core->starved_until_us = KW_NEVER;
    kc_coordinators_init(core);
    kw_err err = kc_metadata_init(core); /* first, so that deinit is safe */
    if (err == KW_OK && !(core->trouble = kc_attempts_new())) err = KW_ENOMEM;
    if (err == KW_OK) err = kw_timers_reserve(&core->timers, 64);
    if (err == KW_OK) err = kc_brokers_init(core);
    if (err != KW_OK) goto fail;
    *out = core;
    return KW_OK;
fail:
    core->stopping = true;
    kc_core_free(core);
    return err;
}

void kc_core_free(struct kc_core *core) {
    if (!core) return;
    while (!kw_list_empty(&core->closing)) /* the shell is gone, and its sockets with it */
        kc_conn_release(KW_CONTAINER_OF(kw_list_shift(&core->closing), struct kc_conn, closing_link));
    kc_brokers_deinit(core);
    kc_coordinators_deinit(core);
    kc_metadata_deinit(core);
    kc_attempts_unref(core->trouble);
    kw_map_deinit(&core->brokers);
    kw_arena_deinit(&core->arena);
    if (core->abandoned)
        kw_free(core->timers.heap); /* the timers in it are not to be touched */
    else
        kw_timers_deinit(&core->timers);
    kw_free(core);
}

void kc_core_abandon(struct kc_core *core) {
    if (!core) return;
    core->abandoned = true;
    kc_core_free(core);
}

void kc_core_stop(struct kc_core *core, struct kc_now now) {
    if (core->stopping) return;
    core->now = now;
    core->stopping = true;
    kc_metadata_stop(core);
    struct kw_list *lists[] = {&core->any, &core->controller};
    for (size_t i = 0; i < KW_COUNTOF(lists); i++) {
        while (!kw_list_empty(lists[i])) kc_request_finish(core, KW_CONTAINER_OF(lists[i]->next, struct kc_request, link), KC_CLOSED);
    }
    kc_coordinators_stop(core);
    kc_brokers_sweep(core); /* stopping: closes all */
    kw_timers_cancel(&core->timers, &core->route_timer);
}

bool kc_core_stopping(const struct kc_core *core) {
    return core->stopping;
}
bool kc_core_stopped(const struct kc_core *core) {
    return core->stopping && kw_list_empty(&core->closing) && kw_list_empty(&core->finished);
}
struct kc_now kc_core_now(const struct kc_core *core) {
    return core->now;
}
struct kc_budget *kc_core_budget(struct kc_core *core) {
    return &core->budget;
}
struct kw_timers *kc_core_timers(struct kc_core *core) {
    return &core->timers;
}
struct kw_rng *kc_core_rng(struct kc_core *core) {
    return &core->rng;
}
struct kc_attempts *kc_core_trouble(struct kc_core *core) {
    return core->trouble;
}

void kc_core_disarm(struct kc_core *core, struct kw_timer *t) {
    if (!core->abandoned) kw_timers_cancel(&core->timers, t);
}

void kc_core_arm(struct kc_core *core, struct kw_timer *t, int64_t at_us) {
    if (kw_timers_set(&core->timers, t, at_us) == KW_OK) return;
    core->starved_until_us = kc_after(core->now.mono_us, STARVED_RETRY_US);
}

/* ---- Actions ---- */

void kc_core_want(struct kc_conn *c, uint32_t want) {
    if (c->wants == 0) kw_list_push(&c->core->actions, &c->action_link);
    c->wants |= want;
}

struct kc_conn *kc_core_next_action(struct kc_core *core, uint32_t *wants) {
    struct kw_list *l = kw_list_shift(&core->actions);
    if (!l) return NULL;
    struct kc_conn *c = KW_CONTAINER_OF(l, struct kc_conn, action_link);
    *wants = c->wants;
    c->wants = 0;
    return c;
}

/* ---- Tasks and turns ---- */

void kc_task_init(struct kc_task *task, void (*run)(struct kc_task *, void *), void *ctx) {
    kw_list_init(&task->link);
    task->run = run;
    task->ctx = ctx;
}

void kc_core_defer(struct kc_core *core, struct kc_task *task) {
    if (kw_list_empty(&task->link)) kw_list_push(&core->tasks, &task->link);
}

void kc_task_cancel(struct kc_task *task) {
    kw_list_remove(&task->link);
}

static void run_finished(struct kc_core *core) {
    struct kw_list batch, *l;
    kw_list_init(&batch);
    while ((l = kw_list_shift(&core->finished))) kw_list_push(&batch, l);
    /* What a done sends and what fails at once waits for the next turn, so that a turn ends. */
    while ((l = kw_list_shift(&batch))) {
        struct kc_request *rq = KW_CONTAINER_OF(l, struct kc_request, link);
        rq->state = KC_RQ_IDLE;
        rq->done(rq, rq->err, NULL, NULL);
    }
}

static void run_tasks(struct kc_core *core) {
    struct kw_list *end = &core->turn_end; /* a mark: what is deferred from here on waits */
    kw_list_push(&core->tasks, end);
    for (size_t i = 0; i < TURN_TASKS_MAX; i++) {
        struct kw_list *l = kw_list_shift(&core->tasks);
        if (l == end) return;
        struct kc_task *t = KW_CONTAINER_OF(l, struct kc_task, link);
        t->run(t, t->ctx);
    }
    kw_list_remove(end);
}

static void after_starvation(struct kc_core *core) {
    core->starved_until_us = KW_NEVER;
    struct kc_broker *b;
    for (size_t it = 0; (b = kw_map_next(&core->brokers, &it));) kc_broker_pump(b);
    for (size_t i = 0; i < core->boot_count; i++) kc_broker_pump(core->boots[i]);
    kc_core_route(core);
    kc_coordinators_look(core);
    kc_core_defer(core, &core->metadata.send);
    kc_core_defer(core, &core->metadata.announce);
}

void kc_core_tick(struct kc_core *core, struct kc_now now) {
    core->now = now;
    if (core->starved_until_us <= now.mono_us) after_starvation(core);
    kw_timers_run(&core->timers, now.mono_us);
    run_finished(core);
    run_tasks(core);
}

int64_t kc_core_deadline(const struct kc_core *core) {
    if (!kw_list_empty(&core->finished) || !kw_list_empty(&core->tasks) || !kw_list_empty(&core->actions)) return core->now.mono_us;
    return KW_MIN(kw_timers_next(&core->timers), core->starved_until_us);
}
