/* handle_consumer.c - the public consumer: waits for what consume/ has, wakes, operations, life and death.
 *
 * Calls handle.h, loop.h (threads, posts, waiting), consume/ (everything else).
 */
#include "handle_consumer.h"

#include "consume/group.h"

#define CLOSE_TIMED_OUT "consumer close: requests were still outstanding when the time was up; they are dropped"

void kc_event_free(kc_event *e) {
    if (e && e->handover && e->client && kc_client_is_forked(e->client)) e->in_child = true;
    kc_client *held = kc_event_drop(e);
    if (held) kc_client_unref(held);
}

/* ---- Loop context ---- */

struct close_op {
    struct kc_op op;
    kc_consumer *consumer; /* this operation is in its list, which keeps it alive */
    struct kw_list link;
    struct kw_timer timer;
    int64_t deadline_us;
};

static void close_end(struct close_op *o, kc_err err) {
    kc_error *error = NULL;
    kw_timers_cancel(kc_core_timers(o->op.client->core), &o->timer);
    kw_list_remove(&o->link);
    if (err == KC_TIMED_OUT) kc_error_make(&error, err, KC_NOT_PERSISTED, NULL, CLOSE_TIMED_OUT);
    kc_op_complete(&o->op, err, error);
}

static void last_rites(kc_consumer *c) {
    kc_client *client = c->client;
    kc_ready_drop(client, &c->ready);
    kc_consume_deinit(&c->consume);
    kc_settings_free(c->settings);
    kw_free(c);
    kc_client_unref(client);
}

static void in_loop(struct kc_post *post) {
    kc_consumer *c = KW_CONTAINER_OF(post, kc_consumer, post);
    struct kc_consume *k = &c->consume;
    if (k->told_stopped) {
        atomic_store(&c->gone, true);
        kc_client_signal(c->client);
        while (!kw_list_empty(&c->closers)) close_end(KW_CONTAINER_OF(c->closers.next, struct close_op, link), KC_OK);
        if (c->freed) last_rites(c);
    } else if (atomic_load(&c->closed)) {
        if (!kc_consumer_left(c) || !kc_consumer_drained(c)) return; /* comes again */
        if (!k->stopped) kc_consume_stop(k); /* ends in another kick once nothing is outstanding */
    } else if (!k->started) {
        kc_consume_start(k);
    } else {
        kc_consume_run(k);
    }
}

static void freed_in_loop(struct kc_post *post) {
    kc_consumer *c = KW_CONTAINER_OF(post, kc_consumer, free_post);
    c->freed = true;
    if (atomic_load(&c->gone))
        last_rites(c);
    else if (!c->consume.stopped)
        kc_consume_stop(&c->consume);
}

static void notify(void *ctx) {
    kc_consumer *c = ctx;
    kc_ready_raise(c->client, &c->ready);
    kc_client_signal(c->client);
}

static void kick(void *ctx) {
    kc_consumer *c = ctx;
    kc_client_post(c->client, &c->post);
}

static int32_t intern(void *ctx, const char *name, size_t len) {
    kc_client *client = ((kc_consumer *)ctx)->client;
    kc_lock_take(&client->lock);
    int32_t topic = kc_metadata_intern(client->core, name, len);
    kc_lock_give(&client->lock);
    return topic;
}

/* ---- Life ---- */

kc_err kc_consumer_new(kc_client *client, const kc_config *config, kc_processed_mode mode, kc_consumer **consumer, kc_error **error) {
    kc_err err = kc_client_enter(client);
    if (err == KC_OK && (!consumer || (mode != KC_PROCESSED_BY_POLL && mode != KC_PROCESSED_EXPLICIT))) err = KC_INVALID;
    if (err != KC_OK) {
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "consumer: %s", kc_err_text(err));
        return err;
    }
    struct kc_settings *settings = NULL;
    err = kc_settings_new(client->config, config, &settings, error);
    if (err != KC_OK) return err;
    kc_consumer *c = kw_calloc(1, sizeof *c);
    if (!c || kc_consume_init(&c->consume, client->core, settings, notify, kick, c) != KW_OK) {
        kw_free(c);
        kc_settings_free(settings);
        kc_error_make(error, KC_NO_MEMORY, KC_NOT_PERSISTED, NULL, "consumer: no memory");
        return KC_NO_MEMORY;
    }
    c->settings = settings;
    c->mode = mode;
    c->consume.intern = intern;
    err = kc_consumer_group_new(c, error);
    if (err != KC_OK) {
        kc_consume_deinit(&c->consume);
        kw_free(c);
        kc_settings_free(settings);
        return err;
    }
    c->client = kc_client_ref(client);
    kw_list_init(&c->closers);
    kc_post_init(&c->post, in_loop);
    kc_post_init(&c->free_post, freed_in_loop);
    kc_ready_init(&c->ready, KC_READY_EVENT, c, settings->opaque);
    kc_client_post(client, &c->post);
    *consumer = c;
    return KC_OK;
}

kc_err kc_consumer_enter(kc_consumer *c) {
    if (!c) return KC_INVALID;
    kc_err err = kc_client_enter(c->client);
    return err == KC_OK && atomic_load(&c->closed) ? KC_CLOSED : err;
}

static bool is_gone(void *ctx) {
    return atomic_load(&((kc_consumer *)ctx)->gone);
}

kc_err kc_consumer_close(kc_consumer *c, int64_t timeout_us, kc_error **error) {
    if (!c) return KC_INVALID;
    if (kc_client_is_forked(c->client)) return KC_FORKED;
    kc_err err = kc_client_enter(c->client);
    if (err == KC_REENTRANT) return err;
    int64_t deadline_us = kc_deadline_after(timeout_us);
    if (!atomic_load(&c->closed)) atomic_store(&c->close_by_us, deadline_us);
    atomic_store(&c->closed, true);
    kc_client_signal(c->client); /* a poll under way ends */
    err = kc_drive_until(c->client, &c->post, is_gone, c, deadline_us, NULL);
    if (err == KC_TIMED_OUT)
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, CLOSE_TIMED_OUT);
    return err;
}

static void close_late(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    (void)now_us;
    close_end(ctx, KC_TIMED_OUT);
}

static void close_begin(struct kc_op *op) {
    struct close_op *o = KW_CONTAINER_OF(op, struct close_op, op);
    kc_consumer *c = o->consumer;
    if (atomic_load(&c->gone)) {
        kc_op_complete(op, KC_OK, NULL);
        return;
    }
    kw_list_push(&c->closers, &o->link);
    if (!atomic_load(&c->closed)) atomic_store(&c->close_by_us, o->deadline_us);
    atomic_store(&c->closed, true);
    kc_client_signal(c->client); /* a poll under way ends */
    if (kw_timers_set(kc_core_timers(c->client->core), &o->timer, o->deadline_us) != KW_OK)
        close_end(o, KC_NO_MEMORY);
    kc_client_post(c->client, &c->post);
}

static void close_cancel(struct kc_op *op) { /* the waiting, not the closing */
    close_end(KW_CONTAINER_OF(op, struct close_op, op), KC_CANCELLED);
}

kc_err kc_consumer_close_start(kc_consumer *c, int64_t timeout_us, uint64_t opaque, kc_op **op, kc_error **error) {
    if (!c || !op) return KC_INVALID;
    kc_err err = kc_client_enter(c->client);
    if (err != KC_OK && err != KC_CLOSED) return err;
    err = kc_op_new(c->client, sizeof(struct close_op), opaque, close_begin, close_cancel, NULL, op, error);
    if (err != KC_OK) return err;
    struct close_op *o = KW_CONTAINER_OF(*op, struct close_op, op);
    o->consumer = c;
    o->deadline_us = kc_deadline_after(timeout_us);
    kw_list_init(&o->link);
    kw_timer_init(&o->timer, close_late, o);
    kc_op_start(*op);
    return KC_OK;
}

void kc_consumer_free(kc_consumer *c) {
    if (!c) return;
    if (kc_client_is_forked(c->client)) { /* a child leaves what the parent's threads may have held half-way, but not the client's descriptors */
        kc_client_unref(c->client);
        return;
    }
    atomic_store(&c->closed, true);
    kc_client *client = kc_client_ref(c->client);
    kc_client_post(client, &c->free_post);
    kc_loop_help(client);
    kc_client_unref(client);
}

/* ---- Assignment ---- */

kc_err kc_consumer_enter_each(kc_consumer *c, const void *parts, size_t stride, size_t size, size_t n) {
    kc_err err = kc_consumer_enter(c);
    return err == KC_OK && n > 0 && (!parts || stride < size) ? KC_INVALID : err;
}

static kc_err each(kc_consumer *c, const kc_topic_partition *parts, size_t stride, size_t n) {
    return kc_consumer_enter_each(c, parts, stride, sizeof *parts, n);
}

kc_err kc_consumer_assign(kc_consumer *c, const kc_topic_partition *parts, size_t stride, size_t n, kc_error **error) {
    kc_err err = each(c, parts, stride, n);
    if (err == KC_OK) err = kc_consume_assign(&c->consume, parts, stride, n, kc_clock_now().mono_us);
    if (err != KC_OK)
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "assign: %s",
                      err == KC_INVALID ? "a topic, partition or offset is not valid" : kc_err_text(err));
    return err;
}

kc_err kc_consumer_first_error(const kc_topic_partition *parts, size_t stride, size_t n) {
    for (size_t i = 0; i < n; i++) {
        kc_err err = KW_AT(const kc_topic_partition, parts, stride, i)->err;
        if (err != KC_OK) return err;
    }
    return KC_OK;
}

kc_err kc_consumer_seek(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n) {
    kc_err err = each(c, parts, stride, n);
    if (err != KC_OK) return err;
    kc_consume_seek(&c->consume, parts, stride, n, kc_clock_now().mono_us);
    return kc_consumer_first_error(parts, stride, n);
}

kc_err kc_consumer_pause(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n) {
    kc_err err = each(c, parts, stride, n);
    if (err != KC_OK) return err;
    kc_consume_pause(&c->consume, parts, stride, n, true);
    return kc_consumer_first_error(parts, stride, n);
}

kc_err kc_consumer_resume(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n) {
    kc_err err = each(c, parts, stride, n);
    if (err != KC_OK) return err;
    kc_consume_pause(&c->consume, parts, stride, n, false);
    return kc_consumer_first_error(parts, stride, n);
}

kc_err kc_consumer_position(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n) {
    kc_err err = each(c, parts, stride, n);
    if (err != KC_OK) return err;
    kc_consume_position(&c->consume, parts, stride, n);
    return kc_consumer_first_error(parts, stride, n);
}

struct why_call {
    struct kc_post post;
    kc_consumer *c;
    kc_why *out;
    size_t stride, max, count;
    _Atomic bool done;
};

static void why_in_loop(struct kc_post *post) {
    struct why_call *w = KW_CONTAINER_OF(post, struct why_call, post);
    kc_client *client = w->c->client;
    w->count = kc_consume_why(&w->c->consume, w->out, w->stride, w->max);
    atomic_store(&w->done, true); /* from here on *w may be gone */
    kc_client_signal(client);
}

static bool why_done(void *ctx) {
    return atomic_load(&((struct why_call *)ctx)->done);
}

kc_err kc_consumer_why(kc_consumer *c, kc_why *out, size_t stride, size_t max, size_t *count) {
    kc_err err = kc_consumer_enter(c);
    if (err == KC_OK && ((max > 0 && (!out || stride < sizeof *out)) || !count)) err = KC_INVALID;
    if (err != KC_OK) return err;
    struct why_call w = {.c = c, .out = out, .stride = stride, .max = max};
    kc_post_init(&w.post, why_in_loop);
    (void)kc_drive_until(c->client, &w.post, why_done, &w, KW_NEVER, NULL); /* the loop comes round in any case */
    *count = w.count;
    return KC_OK;
}

/* ---- Polling ---- */

static bool ended(const kc_consumer *c) {
    return atomic_load(&c->closed) || atomic_load(&c->client->closed);
}

/* The session is over by the clock, and the loop has not looked yet. A consumer that is no member reads no clock for it. */
static bool lapsed(kc_consumer *c) {
    return atomic_load(&c->consume.session_by_us) != KW_NEVER && kc_group_lapsed(&c->consume, kc_clock_now().mono_us);
}

/* While it is over nothing is there to take: whoever waits must have the loop look. */
static bool something(void *ctx) {
    kc_consumer *c = ctx;
    return ended(c) || (kc_consume_ready(&c->consume) && !lapsed(c));
}

/* Before anything is taken: a loop that KC_WOKEN ends must end under load too. */
static kc_err woken(kc_consumer *c) {
    return KW_UNLIKELY(atomic_load(&c->wake)) && atomic_exchange(&c->wake, false) ? KC_WOKEN : KC_OK;
}

/* Waits for something to take. KC_OK: look again. */
static kc_err await_event(kc_consumer *c, int64_t deadline_us) {
    if (ended(c)) return KC_CLOSED;
    kc_ready_rearm(c->client, &c->ready);
    if (something(c)) return KC_OK;
    kc_polls_add(&c->consume, 1); /* whoever waits in poll has called it */
    kc_err err = kc_drive_until(c->client, NULL, something, c, deadline_us, &c->wake);
    kc_polls_add(&c->consume, 1);
    return err;
}

static int64_t poll_deadline(int64_t timeout_us) {
    return timeout_us == 0 ? 0 : kc_deadline_after(timeout_us);
}

static void hand_out(kc_consumer *c, kc_event *e, kc_event **event) {
    e->client = kc_client_ref(c->client);
    *event = e;
}

static kc_err take(kc_consumer *c, bool one, kc_event **event) {
    if (lapsed(c)) return KC_BUSY;
    return one ? kc_consume_one(&c->consume, event) : kc_consume_take(&c->consume, event);
}

kc_err kc_consumer_poll(kc_consumer *c, kc_event **event, int64_t timeout_us) {
    kc_err err = kc_consumer_enter(c);
    if (err != KC_OK || !event) return err != KC_OK ? err : KC_INVALID;
    if (atomic_exchange(&c->polling, true)) return KC_BUSY;
    kc_consume_passed(&c->consume);
    if (c->consume.one.e) kc_consume_one_drop(&c->consume);
    int64_t deadline_us = poll_deadline(timeout_us);
    kc_event *e = NULL;
    err = woken(c);
    while (err == KC_OK && (err = take(c, false, &e)) == KC_BUSY) err = await_event(c, deadline_us);
    if (err == KC_OK) hand_out(c, e, event);
    atomic_store(&c->polling, false);
    return err;
}

/* Beyond the event at hand, or with something changed since it was begun. */
static kc_err next_one(kc_consumer *c, kc_event **event, int64_t timeout_us) {
    int64_t deadline_us = poll_deadline(timeout_us);
    kc_event *e = NULL;
    kc_consume_passed(&c->consume);
    kc_err err = woken(c);
    while (err == KC_OK && (err = take(c, true, &e)) == KC_BUSY) err = await_event(c, deadline_us);
    if (err == KC_OK && e)
        hand_out(c, e, event);
    else if (err == KC_OK)
        *event = NULL;
    return err;
}

kc_err kc_consumer_poll_one(kc_consumer *c, kc_message *out, kc_event **event, int64_t timeout_us) {
    kc_err err = kc_consumer_enter(c);
    if (KW_UNLIKELY(err != KC_OK || !out || !event)) return err != KC_OK ? err : KC_INVALID;
    if (KW_UNLIKELY(atomic_exchange_explicit(&c->polling, true, memory_order_acquire))) return KC_BUSY;
    struct kc_one *one = &c->consume.one;
    if (KW_LIKELY(one->e && one->at + 1 < one->e->count &&
                  atomic_load_explicit(&c->consume.changes, memory_order_acquire) == one->changes)) { /* no lock, no search */
        one->at++;
        atomic_store_explicit(&one->passed, one->e->views[one->at].offset, memory_order_relaxed);
        atomic_store_explicit(&one->next, kc_one_next(one), memory_order_relaxed);
        kc_polls_add(&c->consume, 2);
        *event = NULL;
    } else {
        err = next_one(c, event, timeout_us);
    }
    if (err == KC_OK && !*event) err = kc_event_message(one->e, one->at, out);
    atomic_store_explicit(&c->polling, false, memory_order_release);
    return err;
}

size_t kc_consumer_headers(kc_consumer *c, kc_header *out, size_t stride, size_t max) {
    return c && c->consume.one.e ? kc_event_headers(c->consume.one.e, c->consume.one.at, out, stride, max) : 0;
}

void kc_consumer_wake(kc_consumer *c) {
    if (!c || kc_client_is_forked(c->client)) return;
    kc_client_wake_waiter(c->client, &c->wake);
    atomic_fetch_add(&c->consume.changes, 1); /* poll_one looks up from the event at hand */
}

/* ---- Offset lookups ---- */

struct offsets_op {
    struct kc_op op;
    kc_consumer *consumer; /* its core part: the operation is in its list of queries, which keeps it alive */
    struct kc_offset_query query;
};

static void offsets_done(struct kc_offset_query *q) {
    struct offsets_op *o = q->ctx;
    kc_err err = KC_OK;
    kc_error *error = NULL;
    for (size_t i = 0; i < q->count && err == KC_OK; i++) {
        err = q->items[i].tp.err;
        if (err == KC_OK) continue;
        const char *name = kc_client_topic_name(o->op.client, q->items[i].tp.topic);
        kc_error_make(&error, err, KC_NOT_PERSISTED, NULL, "offset lookup of %s [%d]: %s", name ? name : "?", (int)q->items[i].tp.partition,
                      kc_err_text(err));
    }
    kc_op_complete(&o->op, err, error);
}

static void offsets_begin(struct kc_op *op) {
    struct offsets_op *o = KW_CONTAINER_OF(op, struct offsets_op, op);
    o->query.done = offsets_done;
    o->query.ctx = o;
    if (atomic_load(&o->consumer->closed)) {
        kc_op_complete(op, KC_CLOSED, NULL);
        return;
    }
    kc_consume_query(&o->consumer->consume, &o->query);
}

static void offsets_cancel(struct kc_op *op) {
    struct offsets_op *o = KW_CONTAINER_OF(op, struct offsets_op, op);
    kc_consume_query_cancel(&o->consumer->consume, &o->query);
}

static size_t offsets_result(const struct kc_op *op, kc_topic_partition *out, size_t stride, size_t max) {
    const struct offsets_op *o = KW_CONTAINER_OF(op, struct offsets_op, op);
    for (size_t i = 0; i < o->query.count && i < max; i++) *KW_AT(kc_topic_partition, out, stride, i) = o->query.items[i].tp;
    return o->query.count;
}

static void offsets_deinit(struct kc_op *op) {
    kw_free(KW_CONTAINER_OF(op, struct offsets_op, op)->query.items);
}

static kc_err offsets_make(kc_consumer *c, const kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, uint64_t opaque,
                           kc_op **op, kc_error **error) {
    kc_err err = each(c, parts, stride, n);
    if (err == KC_OK && !op) err = KC_INVALID;
    struct kc_offset_item *items = err == KC_OK ? kw_calloc(n ? n : 1, sizeof *items) : NULL;
    if (err == KC_OK && !items) err = KC_NO_MEMORY;
    if (err != KC_OK) {
        kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "offset lookup: %s", kc_err_text(err));
        return err;
    }
    struct kc_op *made = NULL;
    err = kc_op_new(c->client, sizeof(struct offsets_op), opaque, offsets_begin, offsets_cancel, offsets_deinit, &made, error);
    if (err != KC_OK) {
        kw_free(items);
        return err;
    }
    for (size_t i = 0; i < n; i++) items[i].tp = *KW_AT(const kc_topic_partition, parts, stride, i);
    struct offsets_op *o = KW_CONTAINER_OF(made, struct offsets_op, op);
    made->offsets = offsets_result;
    o->consumer = c;
    kw_list_init(&o->query.link);
    o->query.items = items;
    o->query.count = n;
    o->query.deadline_us = kc_deadline_after(timeout_us != 0 ? timeout_us : c->settings->api_timeout_us);
    *op = made;
    return KC_OK;
}

kc_err kc_consumer_offsets_start(kc_consumer *c, const kc_topic_partition *parts, size_t stride, size_t n, uint64_t opaque, kc_op **op,
                                 kc_error **error) {
    kc_op *made = NULL;
    if (!op) return KC_INVALID;
    kc_err err = offsets_make(c, parts, stride, n, 0, opaque, &made, error);
    if (err != KC_OK) return err;
    kc_op_start(made);
    *op = made;
    return KC_OK;
}

kc_err kc_consumer_offsets(kc_consumer *c, kc_topic_partition *parts, size_t stride, size_t n, int64_t timeout_us, kc_error **error) {
    kc_op *op = NULL;
    kc_err err = offsets_make(c, parts, stride, n, timeout_us, 0, &op, error);
    if (err != KC_OK) return err;
    err = kc_op_run(op, KC_FOREVER, error); /* the lookup keeps the limit itself, and says what it was waiting for */
    if (kc_op_done(op)) (void)kc_op_result_offsets(op, parts, stride, n);
    kc_op_free(op);
    return err;
}
