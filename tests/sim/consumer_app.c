/* consumer_app.c - an application that consumes by assignment: polls, seeks, pauses, assigns anew, looks offsets up. Calls client/consume,
 * check_reads. */
#include <stdio.h>
#include <stdlib.h>

#include "consume/consumer.h"
#include "roles.h"

enum { BATCH_MAX = 1100000, PARTS_MAX = SIM_TOPICS_MAX * 16 };

struct lookup_call {
    struct kc_offset_query q;
    struct kc_offset_item *items;
    struct sim_lookup *out;
    size_t n;
    void (*done)(void *ctx, struct sim_lookup *items, size_t n);
    void *ctx;
    struct consumer *c;
};
struct consumer {
    struct sim_role role; /* first */
    struct sim_model *m;
    struct sim_world *w;
    struct sim_consumer_plan plan;
    struct kc_settings *settings;
    struct kc_consume consume;
    struct sim_tracker parts[PARTS_MAX];
    bool paused[PARTS_MAX];
    size_t part_count;
    bool kicked, stopping, gone;
    uint64_t read;
    int number;
    int lookups;
};

static void notify(void *ctx) {
    sim_client_wake(((struct consumer *)ctx)->role.client);
}
static void kick(void *ctx) {
    struct consumer *c = ctx;
    c->kicked = true;
    sim_client_wake(c->role.client);
}

static struct sim_tracker *tracker(struct consumer *c, int topic, int partition) {
    for (size_t i = 0; i < c->part_count; i++)
        if (c->parts[i].topic == topic && c->parts[i].partition == partition) return &c->parts[i];
    return NULL;
}

/* ---- Assignment ---- */

static int64_t now_mono(struct consumer *c) {
    return sim_client_now(c->role.client).mono_us;
}

static void assign(struct consumer *c, bool everything) {
    static struct sim_tracker trackers[PARTS_MAX];
    kc_topic_partition parts[PARTS_MAX];
    struct sim_model *m = c->m;
    size_t n = 0;
    for (int t = 0; t < m->topic_count; t++) {
        for (int p = 0; p < m->topics[t].partitions && n < PARTS_MAX; p++) {
            if (!everything && sim_below(c->w, 3) == 0) continue;
            parts[n] = (kc_topic_partition){.topic = t + 1, .partition = p, .offset = KC_OFFSET_BEGINNING, .leader_epoch = -1};
            trackers[n++] = (struct sim_tracker){t, p, -1, true};
        }
    }
    kc_err err = kc_consume_assign(&c->consume, parts, sizeof *parts, n, now_mono(c));
    if (err == KC_NO_MEMORY) return; /* all is as it was */
    c->part_count = n;
    memcpy(c->parts, trackers, n * sizeof *trackers);
    memset(c->paused, 0, sizeof c->paused);
    if (err != KC_OK) sim_fail(c->w, 30, "assign: %s", kc_err_name(err));
    for (size_t i = 0; i < n; i++) { /* those kept from before are as paused as they were */
        kc_topic_partition one = parts[i];
        kc_consume_pause(&c->consume, &one, sizeof one, 1, false);
        struct sim_log *l = sim_model_log(m, c->parts[i].topic, c->parts[i].partition);
        c->parts[i].next = l->start == 0 ? 0 : -1;
        c->parts[i].may_jump = l->start > 0;
    }
    sim_trace(c->w, "consumer %d: assigned %zu partitions", c->number, n);
}

static void seek(struct consumer *c) {
    if (!c->part_count) return;
    struct sim_tracker *t = &c->parts[sim_below(c->w, c->part_count)];
    struct sim_log *l = sim_model_log(c->m, t->topic, t->partition);
    if (l->count == 0) return;
    int64_t to = l->start + (int64_t)sim_below(c->w, (uint64_t)KW_MAX((int64_t)l->count - l->start, 1));
    kc_topic_partition tp = {.topic = t->topic + 1, .partition = t->partition, .offset = to, .leader_epoch = -1};
    kc_consume_seek(&c->consume, &tp, sizeof tp, 1, now_mono(c));
    if (tp.err != KC_OK) sim_fail(c->w, 30, "seek: %s", kc_err_name(tp.err));
    t->next = to;
    sim_trace(c->w, "consumer %d seeks %d-%d to %lld", c->number, t->topic, t->partition, (long long)to);
}

static void toggle_pause(struct consumer *c) {
    if (!c->part_count) return;
    size_t i = sim_below(c->w, c->part_count);
    kc_topic_partition tp = {.topic = c->parts[i].topic + 1, .partition = c->parts[i].partition};
    c->paused[i] = !c->paused[i];
    kc_consume_pause(&c->consume, &tp, sizeof tp, 1, c->paused[i]);
    sim_trace(c->w, "consumer %d %s %d-%d", c->number, c->paused[i] ? "pauses" : "resumes", c->parts[i].topic, c->parts[i].partition);
}

void sim_consumer_calm(struct sim_role *r) {
    struct consumer *c = (struct consumer *)r;
    c->plan.seek_ppm = c->plan.pause_ppm = c->plan.reassign_ppm = 0;
    c->plan.every_us = KW_MIN(c->plan.every_us, 50 * SIM_MS);
    c->plan.events = 16;
    for (size_t i = 0; i < c->part_count; i++) {
        kc_topic_partition tp = {.topic = c->parts[i].topic + 1, .partition = c->parts[i].partition};
        if (c->paused[i]) kc_consume_pause(&c->consume, &tp, sizeof tp, 1, false);
        c->paused[i] = false;
    }
    r->next_us = c->w->now_us;
    sim_client_wake(r->client);
}

void sim_consumer_restart(struct sim_role *r) {
    assign((struct consumer *)r, true);
}

void sim_consumer_lost(struct sim_role *r, int topic, int partition, int64_t from) {
    struct consumer *c = (struct consumer *)r;
    struct sim_tracker *t = tracker(c, topic, partition);
    if (t && (t->next < 0 || t->next > from)) t->may_jump = true;
}

bool sim_consumer_position(const struct sim_role *r, int topic, int partition, int64_t *position) {
    struct consumer *c = (struct consumer *)(uintptr_t)r;
    struct sim_tracker *t = tracker(c, topic, partition);
    if (!t) return false;
    kc_topic_partition tp = {.topic = topic + 1, .partition = partition};
    kc_consume_position(&c->consume, &tp, sizeof tp, 1);
    *position = tp.offset;
    return true;
}

void sim_consumer_describe(struct sim_role *r, char *text, size_t size) {
    struct consumer *c = (struct consumer *)r;
    kc_why why[PARTS_MAX];
    size_t n = kc_consume_why(&c->consume, why, sizeof *why, PARTS_MAX), at = 0;
    text[0] = 0;
    for (size_t i = 0; i < n && i < PARTS_MAX && at + 80 < size; i++)
        if (why[i].state != 6)
            at += (size_t)snprintf(text + at, size - at, " [%d-%d state %d, broker %d, %lld us, %s, %s]", why[i].topic - 1, why[i].partition,
                                   why[i].state, why[i].broker, (long long)why[i].since_us, kc_err_name(why[i].last_error), why[i].text);
}

/* ---- Polling ---- */

static void take_records(struct consumer *c, kc_event *e) {
    struct sim_tracker *t = tracker(c, kc_event_topic(e) - 1, kc_event_partition(e));
    const kc_view *v = kc_event_views(e);
    size_t span_size, n = kc_event_count(e);
    const uint8_t *span = kc_event_span(e, &span_size);
    if (!t)
        sim_fail(c->w, 30, "consumer %d: records of %d-%d, which is not assigned", c->number, kc_event_topic(e) - 1, kc_event_partition(e));
    size_t i = 0;
    while (i < c->part_count && &c->parts[i] != t) i++;
    if (c->paused[i]) sim_fail(c->w, 30, "consumer %d: records of %d-%d, which is paused", c->number, t->topic, t->partition);
    sim_trace(c->w, "consumer %d: %zu records of %d-%d at %lld", c->number, n, t->topic, t->partition, n ? (long long)v[0].offset : -1);
    for (i = 0; i < n; i++) {
        struct kw_bytes key = {span + v[i].key_at, v[i].key_size}, value = {span + v[i].value_at, v[i].value_size};
        struct kw_in in;
        size_t left = span_size - v[i].headers_at, size = 0;
        kw_in_init(&in, span + v[i].headers_at, left); /* the view says where they begin and how many they are */
        struct kw_header_view h;
        for (uint32_t k = 0; k < v[i].header_count; k++)
            if (kw_record_header_next(&in, &h) != 1)
                sim_fail(c->w, 10, "%d-%d offset %lld: its headers do not parse", t->topic, t->partition, (long long)v[i].offset);
        size = left - kw_in_left(&in);
        if (key.len < 0) key.p = NULL;
        if (value.len < 0) value.p = NULL;
        sim_check_read(c->m, t, v[i].offset, e->leader_epoch, e->timestamp_type, v[i].timestamp_ms, key, value, span + v[i].headers_at,
                       size);
    }
    c->read += n;
}

static void take_event(struct consumer *c, kc_event *e) {
    switch (kc_event_kind(e)) {
    case KC_EVENT_RECORDS:
        take_records(c, e);
        break;
    case KC_EVENT_ERROR: {
        kc_err code = kc_error_code(kc_event_error(e));
        sim_trace(c->w, "consumer %d: %d-%d: %s", c->number, kc_event_topic(e) - 1, kc_event_partition(e), kc_err_name(code));
        struct sim_log *l = sim_model_log(c->m, kc_event_topic(e) - 1, kc_event_partition(e));
        if (code == KC_CORRUPT && !(l && l->misdirected))
            sim_fail(c->w, 10, "consumer %d was served corrupt data: %s%s", c->number, kc_error_message(kc_event_error(e)),
                     l && l->tainted ? " (tampered)" : "");
        break;
    }
    default:
        break;
    }
    (void)kc_event_drop(e);
}

static void poll(struct consumer *c) {
    struct sim_world *w = c->w;
    if (sim_chance(w, c->plan.seek_ppm)) seek(c);
    if (sim_chance(w, c->plan.pause_ppm)) toggle_pause(c);
    if (sim_chance(w, c->plan.reassign_ppm)) assign(c, c->plan.all);
    for (int i = 0; i < c->plan.events; i++) {
        kc_event *e = NULL;
        if (kc_consume_take(&c->consume, &e) != KC_OK) break;
        take_event(c, e);
    }
    c->role.next_us = w->now_us + c->plan.every_us / 2 + (int64_t)sim_below(w, (uint64_t)c->plan.every_us + 1);
}

static bool work(struct sim_role *r) {
    struct consumer *c = (struct consumer *)r;
    if (!c->stopping && r->next_us <= c->w->now_us) poll(c);
    if (!c->kicked) return false;
    c->kicked = false;
    if (c->consume.told_stopped)
        c->gone = true;
    else if (!c->stopping)
        kc_consume_run(&c->consume);
    return true;
}

static void check(struct sim_role *r) {
    struct consumer *c = (struct consumer *)r;
    struct kc_budget *b = kc_core_budget(r->client->core);
    /* What is decompressed and handed out is counted, never refused; an answer may be larger than asked for by the batch that it begins
     * with (KIP-74). */
    int64_t slack = (int64_t)c->settings->fetch_max_bytes + 2 * c->settings->fetch_partition_bytes_max + BATCH_MAX;
    if (b->used[KC_ROLE_FETCH] > b->max + slack)
        sim_fail(c->w, 29, "fetching takes %lld bytes of a budget of %lld", (long long)b->used[KC_ROLE_FETCH], (long long)b->max);
    int64_t queued = c->consume.queued_bytes;
    if (queued < 0 || queued > c->settings->prefetch_bytes_max + slack)
        sim_fail(c->w, 29, "consumer %d holds %lld fetched bytes, %lld allowed", c->number, (long long)queued,
                 (long long)c->settings->prefetch_bytes_max);
}

/* ---- Lookups ---- */

static void lookup_done(struct kc_offset_query *q) {
    struct lookup_call *l = KW_CONTAINER_OF(q, struct lookup_call, q);
    for (size_t i = 0; i < l->n; i++) {
        l->out[i].offset = l->items[i].tp.offset;
        l->out[i].err = l->items[i].tp.err;
    }
    l->c->lookups--;
    if (!l->c->stopping && l->done) l->done(l->ctx, l->out, l->n);
    free(l->items);
    free(l);
}

bool sim_consumer_lookup(struct sim_role *r, struct sim_lookup *items, size_t n, int64_t timeout_us,
                         void (*done)(void *, struct sim_lookup *, size_t), void *ctx) {
    struct consumer *c = (struct consumer *)r;
    if (c->stopping) return false;
    struct lookup_call *l = sim_need(calloc(1, sizeof *l));
    l->items = sim_need(calloc(n, sizeof *l->items));
    for (size_t i = 0; i < n; i++)
        l->items[i].tp = (kc_topic_partition){
            .topic = items[i].topic + 1, .partition = items[i].partition, .offset = items[i].timestamp, .leader_epoch = -1};
    l->out = items;
    l->n = n;
    l->done = done;
    l->ctx = ctx;
    l->c = c;
    l->q.items = l->items;
    l->q.count = l->q.left = n;
    l->q.deadline_us = now_mono(c) + timeout_us;
    l->q.done = lookup_done;
    kw_list_init(&l->q.link);
    c->lookups++;
    kc_consume_query(&c->consume, &l->q);
    sim_client_wake(r->client);
    return true;
}

/* ---- Life ---- */

static void stop(struct sim_role *r) {
    struct consumer *c = (struct consumer *)r;
    c->stopping = true;
    kc_consume_stop(&c->consume);
}
static bool stopped(const struct sim_role *r) {
    return kc_consume_stopped(&((const struct consumer *)r)->consume);
}
static void free_role(struct sim_role *r) {
    struct consumer *c = (struct consumer *)r;
    kc_consume_deinit(&c->consume);
    kc_settings_free(c->settings);
    kc_config_free(c->plan.config);
    free(c);
}

struct sim_role *sim_consumer_new(struct sim_client *cl, struct sim_model *m, const struct sim_consumer_plan *plan) {
    static int numbers;
    struct consumer *c = sim_need(calloc(1, sizeof *c));
    c->role =
        (struct sim_role){.next_us = cl->w->now_us, .work = work, .stop = stop, .stopped = stopped, .free = free_role, .check = check};
    c->role.client = cl;
    c->m = m;
    c->w = cl->w;
    c->plan = *plan;
    c->number = numbers++;
    c->settings = sim_client_role_settings(cl, plan->config);
    if (kc_consume_init(&c->consume, cl->core, c->settings, notify, kick, c) != KW_OK) sim_fail(cl->w, 37, "a consumer cannot be made");
    kc_consume_start(&c->consume);
    sim_client_add(cl, &c->role);
    if (plan->from_start) assign(c, plan->all);
    return &c->role;
}
