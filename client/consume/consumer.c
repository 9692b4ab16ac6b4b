/* consumer.c - the consumer's loop side: looks at whatever may have to be done, keeps its topics known, its timer set; starts and stops.
 *
 * A turn looks at those partitions with which something has happened, or whose time has come (kc_part.look_link): an answer costs what is
 * in it, however many partitions are assigned. New metadata has it look at all of them.
 *
 * Loop context. Called by handle_consumer.c's post, by answers, by new metadata, by its timer. Calls offsets.c, fetcher.c.
 */
#include "group.h"

#define MEMORY_RETRY_US 100000

static void timer_fired(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    kc_consume_run(ctx);
}

static void metadata_changed(struct kc_metadata_listener *l) {
    struct kc_consume *c = KW_CONTAINER_OF(l, struct kc_consume, listener);
    c->look_all = true;
    kc_group_metadata(c);
    kc_consume_run(c);
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
    kw_list_init(&c->look);
    kw_list_init(&c->turn);
    kw_list_init(&c->waiting);
    kw_list_init(&c->held);
    c->waiting_until_us = KW_NEVER;
    atomic_init(&c->session_by_us, KW_NEVER);
    kw_list_init(&c->fetchers);
    kw_list_init(&c->queries);
    kw_list_init(&c->asks);
    kw_list_init(&c->news);
    kw_list_init(&c->listener.link);
    kw_map_init(&c->by_id);
    kw_timer_init(&c->timer, timer_fired, c);
    c->listener.changed = metadata_changed;
    c->compressor = kw_compressor_new();
    c->purse = kc_purse_new(kc_core_budget(core));
    kw_err err = c->compressor && c->purse ? kc_lock_init(&c->lock, KC_RANK_ROLE) : KW_ENOMEM;
    if (err == KW_OK) return KW_OK;
    kw_compressor_free(c->compressor);
    kc_purse_unref(c->purse);
    return err;
}

void kc_consume_start(struct kc_consume *c) {
    kc_metadata_listen(c->core, &c->listener);
    kc_purse_open(c->purse);
    c->started = true;
    if (c->commits) kc_commits_start(c->commits);
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

static void move_all(struct kw_list *from, struct kw_list *to) {
    struct kw_list *n;
    while ((n = kw_list_shift(from)) != NULL) kw_list_push(to, n);
}

/* Whatever is to be looked at now. */
static void begin_turn(struct kc_consume *c, int64_t now_us) {
    if (c->look_all || c->stopped)
        for (struct kw_list *it = c->parts.next; it != &c->parts; it = it->next) kc_part_look(KW_CONTAINER_OF(it, struct kc_part, link));
    for (struct kw_list *it = c->fetchers.next; it != &c->fetchers && c->look_all; it = it->next)
        KW_CONTAINER_OF(it, struct kc_fetcher, link)->nameless = false; /* found out anew */
    c->look_all = false;
    if (c->waiting_until_us <= now_us) {
        move_all(&c->waiting, &c->look);
        c->waiting_until_us = KW_NEVER;
    }
    if (kc_consume_may_queue(c)) move_all(&c->held, &c->look);
    move_all(&c->look, &c->turn);
}

/* Partitions that left the assignment go out of their session, and out of the list once no request names them; the others' topics are kept
 * known. */
static void sort_out(struct kc_consume *c) {
    for (struct kw_list *it = c->turn.next, *next; it != &c->turn; it = next) {
        next = it->next;
        struct kc_part *p = KW_CONTAINER_OF(it, struct kc_part, look_link);
        c->looks++;
        p->look_at_us = KW_NEVER;
        p->full = false;
        if (p->assigned && !c->stopped) {
            want(c, p);
            continue;
        }
        unwant(c, p);
        kc_fetchers_forget(p);
        kw_list_remove(&p->look_link);
        if (p->assigned || p->lookups > 0) continue;
        kw_list_remove(&p->link);
        kc_part_unref(p);
    }
}

/* Those whose time is known wait for it. What is left to do for the others comes with an answer, metadata, or a call. */
static void end_turn(struct kc_consume *c, int64_t now_us) {
    struct kw_list *n;
    while ((n = kw_list_shift(&c->turn)) != NULL) {
        struct kc_part *p = KW_CONTAINER_OF(n, struct kc_part, look_link);
        if (c->short_of_memory) p->look_at_us = KW_MIN(p->look_at_us, now_us + MEMORY_RETRY_US);
        if (p->look_at_us == KW_NEVER) continue;
        kw_list_push(&c->waiting, n);
        c->waiting_until_us = KW_MIN(c->waiting_until_us, p->look_at_us);
    }
    if (!kw_list_empty(&c->held) && !kc_consume_may_queue(c)) (void)kc_consume_drop_paused(c);
    if (!kw_list_empty(&c->look)) c->kick(c->ctx); /* something changed on the way */
}

static void tell_when_stopped(struct kc_consume *c) {
    if (!kc_consume_stopped(c) || c->told_stopped) return;
    c->told_stopped = true;
    kc_group_release(c);
    if (c->channel != KC_CHANNEL_CONTROL) kc_core_fetch_give(c->core, c->channel);
    c->channel = KC_CHANNEL_CONTROL;
    c->kick(c->ctx);
}

void kc_consume_run(struct kc_consume *c) {
    if (!c->started) return;
    int64_t now_us = kc_core_now(c->core).mono_us, next_us = KW_NEVER;
    c->short_of_memory = false;
    kc_group_run(c, now_us);
    kc_lock_take(&c->lock);
    kc_offsets_settle(c, now_us, &next_us);
    begin_turn(c, now_us);
    sort_out(c);
    if (c->commits) kc_commits_ask(c->commits, now_us);
    kc_offsets_ask(c, false, now_us, &next_us);
    kc_fetchers_place(c, now_us);
    kc_offsets_ask(c, true, now_us, &next_us);
    kc_fetchers_run(c, now_us, &next_us);
    end_turn(c, now_us);
    next_us = KW_MIN(next_us, c->waiting_until_us);
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
    kc_purse_close(c->purse);
    kc_group_stop(c);
    if (c->commits) kc_commits_stop(c->commits);
    kc_consume_run(c);
    tell_when_stopped(c);
}

bool kc_consume_stopped(const struct kc_consume *c) {
    return c->stopped && c->requests == 0 && kw_list_empty(&c->queries) && (!c->commits || kc_commits_stopped(c->commits));
}

void kc_consume_deinit(struct kc_consume *c) {
    struct kw_list *n;
    (void)kc_event_drop(c->one.e);
    if (c->one.part) kc_part_unref(c->one.part);
    kc_hand_drop(c);
    kc_commits_free(c->commits);
    c->commits = NULL;
    kc_fetchers_free(c);
    kc_group_deinit(c);
    while ((n = kw_list_shift(&c->parts)) != NULL) {
        kw_list_remove(&KW_CONTAINER_OF(n, struct kc_part, link)->ready_link);
        kw_list_remove(&KW_CONTAINER_OF(n, struct kc_part, link)->look_link);
        kc_part_unref(KW_CONTAINER_OF(n, struct kc_part, link));
    }
    kw_map_deinit(&c->by_id);
    kw_compressor_free(c->compressor);
    kc_purse_unref(c->purse);
    kc_lock_deinit(&c->lock);
}
