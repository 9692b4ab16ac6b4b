/* consumer.c - the consumer's loop side: looks at everything that may have to be done, keeps its topics known, its timer set; starts and
 * stops.
 *
 * Loop context. Called by handle_consumer.c's post, by answers, by new metadata, by its timer. Calls offsets.c, fetcher.c.
 */
#include "consumer.h"

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
    kw_list_init(&c->fetchers);
    kw_list_init(&c->queries);
    kw_list_init(&c->asks);
    kw_list_init(&c->listener.link);
    kw_map_init(&c->by_id);
    kw_map_init(&c->wanted);
    kw_timer_init(&c->timer, timer_fired, c);
    c->listener.changed = metadata_changed;
    c->compressor = kw_compressor_new();
    if (!c->compressor) return KW_ENOMEM;
    kw_err err = kc_lock_init(&c->lock, KC_RANK_ROLE);
    if (err != KW_OK) kw_compressor_free(c->compressor);
    return err;
}

kw_err kc_consume_start(struct kc_consume *c) {
    kw_err err = kw_timers_reserve(kc_core_timers(c->core), kc_core_timers(c->core)->count + 1);
    if (err != KW_OK) return err;
    kc_metadata_listen(c->core, &c->listener);
    c->started = true;
    kc_consume_run(c);
    return KW_OK;
}

/* A partition that left the assignment: out of its session, then out of the list once no request names it. */
static void let_go(struct kc_consume *c, struct kc_part *p) {
    if (p->fetcher && !p->in_request) kc_fetchers_forget(p);
    if (p->fetcher || p->lookups > 0) return;
    kw_list_remove(&p->link);
    int32_t topic = p->topic;
    bool last = true;
    for (struct kw_list *it = c->parts.next; it != &c->parts && last; it = it->next)
        last = KW_CONTAINER_OF(it, struct kc_part, link)->topic != topic;
    if (last && kw_map_remove_u64(&c->wanted, (uint64_t)topic)) kc_metadata_unwant(c->core, topic);
    kc_part_unref(p);
}

/* Every topic with a partition here is wanted once. */
static void want_topics(struct kc_consume *c) {
    for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) {
        int32_t topic = KW_CONTAINER_OF(it, struct kc_part, link)->topic;
        if (!kw_map_get_u64(&c->wanted, (uint64_t)topic) && kw_map_put_u64(&c->wanted, (uint64_t)topic, c) == KW_OK)
            kc_metadata_want(c->core, topic);
    }
    for (struct kw_list *it = c->queries.next; it != &c->queries; it = it->next) {
        struct kc_offset_query *q = KW_CONTAINER_OF(it, struct kc_offset_query, link);
        for (size_t i = 0; i < q->count; i++) {
            int32_t topic = q->items[i].tp.topic;
            if (topic > 0 && !kw_map_get_u64(&c->wanted, (uint64_t)topic) && kw_map_put_u64(&c->wanted, (uint64_t)topic, c) == KW_OK)
                kc_metadata_want(c->core, topic);
        }
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
    kc_lock_take(&c->lock);
    for (struct kw_list *it = c->parts.next, *next; it != &c->parts; it = next) {
        next = it->next;
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, link);
        if (!p->assigned) let_go(c, p);
    }
    want_topics(c);
    kc_offsets_run(c, now_us, &next_us);
    kc_fetchers_run(c, now_us, &next_us);
    kc_lock_give(&c->lock);
    if (next_us == KW_NEVER || c->stopped)
        kw_timers_cancel(kc_core_timers(c->core), &c->timer);
    else if (kw_timers_set(kc_core_timers(c->core), &c->timer, next_us) != KW_OK)
        kc_core_log(c->core, 3, "consumer: no memory for a timer");
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
    kc_fetchers_free(c);
    while ((n = kw_list_shift(&c->parts)) != NULL) kc_part_unref(KW_CONTAINER_OF(n, struct kc_part, link));
    kw_map_deinit(&c->by_id);
    kw_map_deinit(&c->wanted);
    kw_compressor_free(c->compressor);
    kc_lock_deinit(&c->lock);
}
