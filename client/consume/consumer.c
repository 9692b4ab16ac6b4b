/* consumer.c - the consumer's loop side: looks at everything that may have to be done, keeps its topics known, its timer set; starts and
 * stops.
 *
 * Loop context. Called by handle_consumer.c's post, by answers, by new metadata, by its timer. Calls offsets.c, fetcher.c.
 */
#include "consumer.h"

#define MEMORY_RETRY_US 100000

static void timer_fired(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    kc_consume_run(ctx);
}

static void metadata_changed(struct kc_metadata_listener *l) {
    kc_consume_run(KW_CONTAINER_OF(l, struct kc_consume, listener));
}

kw_err kc_consume_init(struct kc_consume *c, struct kc_core *core, const struct kc_settings *s, void (*notify)(void *),
                       void (*kick)(void *), void *ctx) {
    memset(c, 0, sizeof *c);
    c->core = core;
    c->settings = s;
    c->notify = notify;
    c->kick = kick;
    c->ctx = ctx;
    kw_list_init(&c->parts);
    kw_list_init(&c->ready);
    kw_list_init(&c->fetchers);
    kw_list_init(&c->queries);
    kw_list_init(&c->asks);
    kw_list_init(&c->listener.link);
    kw_map_init(&c->by_id);
    kw_timer_init(&c->timer, timer_fired, c);
    c->listener.changed = metadata_changed;
    c->compressor = kw_compressor_new();
    if (!c->compressor) return KW_ENOMEM;
    kw_err err = kc_lock_init(&c->lock, KC_RANK_ROLE);
    if (err != KW_OK) kw_compressor_free(c->compressor);
    return err;
}

void kc_consume_start(struct kc_consume *c) {
    kc_metadata_listen(c->core, &c->listener);
    c->started = true;
    kc_consume_run(c);
}

static void want(struct kc_consume *c, struct kc_part *p) {
    if (p->wanted) return;
    p->wanted = true;
    kc_metadata_want(c->core, p->topic);
}

static void unwant(struct kc_consume *c, struct kc_part *p) {
    if (!p->wanted) return;
    p->wanted = false;
    kc_metadata_unwant(c->core, p->topic);
}

/* Partitions that left the assignment go out of their session, and out of the list once no request names them; the others' topics are kept
 * known. */
static void sort_out(struct kc_consume *c) {
    for (struct kw_list *it = c->parts.next, *next; it != &c->parts; it = next) {
        next = it->next;
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (p->assigned && !c->stopped) {
            want(c, p);
            continue;
        }
        unwant(c, p);
        kc_fetchers_forget(p);
        if (p->assigned || p->lookups > 0) continue;
        kw_list_remove(&p->link);
        kc_part_unref(p);
    }
}

static void tell_when_stopped(struct kc_consume *c) {
    if (!kc_consume_stopped(c) || c->told_stopped) return;
    c->told_stopped = true;
    c->kick(c->ctx);
}

void kc_consume_run(struct kc_consume *c) {
    if (!c->started) return;
    int64_t now_us = kc_core_now(c->core).mono_us, next_us = KW_NEVER;
    c->short_of_memory = false;
    kc_lock_take(&c->lock);
    sort_out(c);
    kc_offsets_run(c, now_us, &next_us);
    kc_fetchers_run(c, now_us, &next_us);
    kc_lock_give(&c->lock);
    if (c->short_of_memory) next_us = KW_MIN(next_us, now_us + MEMORY_RETRY_US);
    if (c->stopped)
        kw_timers_cancel(kc_core_timers(c->core), &c->timer);
    else
        kc_core_arm(c->core, &c->timer, next_us); /* without memory the core has us look again soon, as new metadata does */
    tell_when_stopped(c);
}

void kc_consume_stop(struct kc_consume *c) {
    c->stopped = true;
    if (c->started) kc_metadata_unlisten(&c->listener);
    kc_consume_run(c);
    tell_when_stopped(c);
}

bool kc_consume_stopped(const struct kc_consume *c) {
    return c->stopped && c->requests == 0 && kw_list_empty(&c->queries);
}

void kc_consume_deinit(struct kc_consume *c) {
    struct kw_list *n;
    (void)kc_event_drop(c->one.e);
    if (c->one.part) kc_part_unref(c->one.part);
    kc_fetchers_free(c);
    while ((n = kw_list_shift(&c->parts)) != NULL) {
        kw_list_remove(&KW_CONTAINER_OF(n, struct kc_part, link)->ready_link);
        kc_part_unref(KW_CONTAINER_OF(n, struct kc_part, link));
    }
    kw_map_deinit(&c->by_id);
    kw_compressor_free(c->compressor);
    kc_lock_deinit(&c->lock);
}
