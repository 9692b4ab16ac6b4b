/* producer_app.c - an application that produces: sends in bursts, takes reports, flushes, purges, closes. Calls client/produce,
 * check_reports. */
#include <stdio.h>
#include <stdlib.h>

#include "produce/produce.h"
#include "roles.h"

enum { HEADERS = 8, CLOSE_SLACK_US = 500000 };

struct producer {
    struct sim_role role; /* first */
    struct sim_model *m;
    struct sim_world *w;
    struct sim_producer_plan plan;
    struct kc_settings *settings;
    struct kc_produce produce;
    int number; /* in the model */
    uint32_t sent;
    bool woken, flushing, closing, told_closed, closed, stopping, stopped_, full;
    int64_t close_mono_us, close_paused_us;
    uint64_t unreported;
    struct sim_content content;
};

/* ---- What the accumulator calls ---- */

static struct kc_now call_clock(void *ctx) {
    return sim_client_now(((struct producer *)ctx)->role.client);
}
static void call_wake(void *ctx) {
    struct producer *p = ctx;
    p->woken = true;
    sim_client_wake(p->role.client);
}
static void call_signal(void *ctx) {
    (void)ctx;
}
static void call_ready(void *ctx, int32_t kind) {
    struct producer *p = ctx;
    if (kind == KC_READY_SPACE) p->full = false;
    sim_client_wake(p->role.client);
}
static const struct kc_accum_calls calls = {.clock = call_clock, .wake = call_wake, .signal = call_signal, .ready = call_ready};

/* ---- Sending ---- */

static kc_err put(struct producer *p, struct kc_rec *r) {
    struct kc_now now = sim_client_now(p->role.client);
    bool wake = false;
    kc_err err = kc_accum_prepare(&p->produce.accum, r);
    if (err) return err;
    err = kc_accum_put(&p->produce.accum, r, &now, false, &wake);
    if (err == KC_INVALID && kc_accum_partition_count(&p->produce.accum, r->topic) < 0) {
        err = kc_accum_add_topic(&p->produce.accum, r->topic);
        if (!err) err = kc_accum_put(&p->produce.accum, r, &now, false, &wake);
    }
    if (wake) p->woken = true;
    return err;
}

static bool send_one(struct producer *p) {
    struct sim_world *w = p->w;
    struct sim_model *m = p->m;
    struct sim_client *c = p->role.client;
    int topic = (int)sim_below(w, (uint64_t)m->topic_count),
        partition = sim_below(w, 4) ? -1 : (int)sim_below(w, (uint64_t)m->topics[topic].partitions);
    uint32_t of = 0;
    bool twin = m->guids && sim_guid_twin(m, -1, -1, &of);
    if (twin) topic = m->records[of].topic;
    if (twin) partition = m->records[of].partition >= 0 && sim_below(w, 4) ? m->records[of].partition : -1;
    int64_t timeout = p->plan.timeout_us && sim_below(w, 8) == 0 ? p->plan.timeout_us : 0;
    uint32_t id = sim_model_sent(m, p->number, topic, partition, p->sent, &c->host, timeout ? timeout : p->settings->delivery_timeout_us);
    m->records[id].placed = partition >= 0;
    m->records[id].staged = partition < 0 && kc_accum_partition_count(&p->produce.accum, topic + 1) <= 0;
    if (twin) sim_guid_give_twin(m, id, of, sim_below(w, 6) == 0);
    else sim_guid_give(m, id);
    struct kw_header_view headers[HEADERS];
    sim_content_of(m, id, &p->content);
    memcpy(headers, p->content.headers, sizeof p->content.headers);
    struct kc_rec r = {.topic = topic + 1,
                       .partition = partition,
                       .key = p->content.key,
                       .value = p->content.value,
                       .headers = headers,
                       .header_count = p->content.header_count,
                       .timeout_us = timeout,
                       .opaque = id};
    if (m->records[id].has_timestamp) { /* a twin's is the first one's */
        r.has_timestamp = true;
        r.timestamp_ms = m->records[id].timestamp_ms;
    } else if (p->content.timestamp_back_ms >= 0) {
        r.has_timestamp = m->records[id].has_timestamp = true;
        r.timestamp_ms = m->records[id].timestamp_ms = sim_client_now(c).wall_ms - p->content.timestamp_back_ms;
    }
    kc_err err = put(p, &r);
    if (err == KC_OK) {
        p->sent++;
        p->unreported++;
        return true;
    }
    sim_model_unsent(m, id);
    if (err == KC_NO_MEMORY) return false;
    if (err != KC_QUEUE_FULL) sim_fail(w, 27, "producer %d: a record was not accepted: %s", p->number, kc_err_name(err));
    p->full = true;
    kc_accum_arm_space(&p->produce.accum);
    return false;
}

static void flushed(struct kc_flush *f) {
    struct {
        struct kc_flush f;
        struct producer *p;
    } *x = (void *)f;
    x->p->flushing = false;
    free(x);
}

static void flush(struct producer *p) {
    struct {
        struct kc_flush f;
        struct producer *p;
    } *x = sim_need(calloc(1, sizeof *x));
    x->f.done = flushed;
    x->p = p;
    p->flushing = true;
    kc_produce_flush(&p->produce, &x->f);
}

static void burst(struct producer *p) {
    struct sim_world *w = p->w;
    uint32_t n = 1 + (uint32_t)sim_below(w, p->plan.burst_max), before = p->sent;
    for (uint32_t i = 0; i < n && p->sent < p->plan.quota && !p->full; i++)
        if (!send_one(p)) break;
    sim_trace(w, "producer %d sends %u, %u of %u", p->number, p->sent - before, p->sent, p->plan.quota);
    if (!p->flushing && sim_chance(w, p->plan.flush_ppm)) flush(p);
    if (!w->healed && sim_chance(w, p->plan.purge_ppm)) {
        sim_fire(w, SIM_F_PURGE);
        kc_produce_purge(&p->produce, KC_PURGE_QUEUED | (sim_below(w, 2) ? KC_PURGE_IN_FLIGHT : 0));
    }
    p->role.next_us =
        p->sent < p->plan.quota ? w->now_us + p->plan.every_us / 2 + (int64_t)sim_below(w, (uint64_t)p->plan.every_us + 1) : SIM_NEVER;
}

/* false: no memory to take them; tried again in a moment. */
static bool take_reports(struct producer *p) {
    struct kc_reports *r;
    kc_report one;
    kc_err err = kc_reports_collect(&p->produce.accum, NULL, &r);
    if (err == KC_NO_MEMORY) sim_host_wake(&p->role.client->host, p->w->now_us + SIM_MS);
    if (err != KC_OK) return err != KC_NO_MEMORY;
    uint32_t ok = 0, failed = 0;
    while (kc_reports_next(r, &one)) {
        one.err ? failed++ : ok++;
        if (one.err) (void)kc_reports_error(r);
        if (!p->unreported--) sim_fail(p->w, 27, "producer %d: more reports than records", p->number);
        sim_check_report(p->m, &one, &p->role.client->host);
    }
    kc_reports_give_back(r);
    sim_trace(p->w, "producer %d: %u ok, %u failed", p->number, ok, failed);
    return true;
}

static void finish_close(struct producer *p) {
    if (!take_reports(p)) return;
    p->closed = true;
    sim_check_reports_done(p->m, p->number);
    if (p->unreported)
        sim_fail(p->w, 27, "producer %d: %llu records have no report after its close", p->number, (unsigned long long)p->unreported);
}

static bool work(struct sim_role *r) {
    struct producer *p = (struct producer *)r;
    if (!p->stopping && !p->closing && r->next_us <= p->w->now_us) burst(p);
    if (p->told_closed && !p->closed)
        finish_close(p);
    else
        (void)take_reports(p);
    if (!p->woken) return false;
    p->woken = false;
    kc_produce_turn(&p->produce);
    return true;
}

/* ---- 29 ---- */

static void check(struct sim_role *r) {
    struct producer *p = (struct producer *)r;
    struct kc_accum *a = &p->produce.accum;
    if (a->records < 0 || a->records > a->records_max)
        sim_fail(p->w, 29, "producer %d: %lld records are queued, %lld allowed", p->number, (long long)a->records,
                 (long long)a->records_max);
    int64_t one = p->settings->request_bytes_max + 1024; /* a record that is let in may pass the bound by itself */
    if (a->bytes < 0 || a->bytes > a->bytes_max + one)
        sim_fail(p->w, 29, "producer %d: %lld bytes are queued, %lld allowed", p->number, (long long)a->bytes, (long long)a->bytes_max);
    struct kc_budget *b = kc_core_budget(r->client->core);
    if (b->used[KC_ROLE_PRODUCE] > b->max)
        sim_fail(p->w, 29, "producing takes %lld bytes of a budget of %lld", (long long)b->used[KC_ROLE_PRODUCE], (long long)b->max);
    if (p->closing && !p->told_closed) {
        int64_t late = sim_client_now(r->client).mono_us - p->close_mono_us - (r->client->host.paused_total_us - p->close_paused_us);
        if (late > CLOSE_SLACK_US) sim_fail(p->w, 28, "producer %d: its close is %lld us late", p->number, (long long)late);
    }
    size_t conns = sim_client_connections(r->client);
    int servers = sim_net_servers(r->client->net);
    if (conns > 3 * 4 * (size_t)servers)
        sim_fail(p->w, 29, "%s has %zu connections to %d broker%s", r->client->host.name, conns, servers, servers > 1 ? "s" : "");
}

/* ---- The end ---- */

static void on_closed(struct kc_produce *produce, void *ctx, kc_err err) {
    (void)produce;
    struct producer *p = ctx;
    sim_trace(p->w, "producer %d is closed: %s", p->number, kc_err_name(err));
    p->told_closed = true;
    finish_close(p);
}

void sim_producer_close(struct sim_role *r, int64_t timeout_us) {
    struct producer *p = (struct producer *)r;
    if (p->closing) return;
    p->closing = true;
    p->role.next_us = SIM_NEVER;
    p->close_mono_us = sim_client_now(r->client).mono_us + timeout_us;
    p->close_paused_us = r->client->host.paused_total_us;
    if (kc_produce_close(&p->produce, p->close_mono_us, on_closed, p) != KC_OK)
        sim_fail(p->w, 27, "producer %d cannot be closed", p->number);
    sim_client_wake(r->client);
}

bool sim_producer_closed(const struct sim_role *r) {
    return ((const struct producer *)r)->closed;
}
bool sim_producer_done(const struct sim_role *r) {
    const struct producer *p = (const struct producer *)r;
    return p->closed || (p->sent == p->plan.quota && p->unreported == 0);
}
uint32_t sim_producer_left(const struct sim_role *r) {
    return ((const struct producer *)r)->plan.quota - ((const struct producer *)r)->sent;
}

void sim_producer_hurry(struct sim_role *r) {
    struct producer *p = (struct producer *)r;
    p->plan.every_us = KW_MIN(p->plan.every_us, 20 * SIM_MS);
    p->plan.burst_max = KW_MAX(p->plan.burst_max, 50u);
    if (p->closing || p->sent == p->plan.quota) return;
    r->next_us = p->w->now_us;
    sim_client_wake(r->client);
}

void sim_producer_enough(struct sim_role *r) {
    struct producer *p = (struct producer *)r;
    if (p->sent == p->plan.quota) return;
    sim_trace(p->w, "producer %d sends no more, at %u of %u", p->number, p->sent, p->plan.quota);
    p->plan.quota = p->sent;
    p->role.next_us = SIM_NEVER;
}

static void on_stopped(struct kc_sender *s) {
    struct producer *p = KW_CONTAINER_OF(s, struct producer, produce.sender);
    kc_produce_detach(&p->produce);
    p->stopped_ = true;
}
static void stop(struct sim_role *r) {
    struct producer *p = (struct producer *)r;
    p->stopping = true;
    if (!p->closed) sim_model_dropped(p->m, p->number);
    kc_produce_stop(&p->produce, on_stopped);
}
static bool stopped(const struct sim_role *r) {
    return ((const struct producer *)r)->stopped_;
}
static void free_role(struct sim_role *r) {
    struct producer *p = (struct producer *)r;
    kc_produce_deinit(&p->produce);
    kc_settings_free(p->settings);
    kc_config_free(p->plan.config);
    sim_content_deinit(&p->content);
    p->m->producers[p->number].alive = false;
    free(p);
}

struct sim_role *sim_producer_new(struct sim_client *c, struct sim_model *m, const struct sim_producer_plan *plan) {
    struct producer *p = sim_need(calloc(1, sizeof *p));
    p->role =
        (struct sim_role){.next_us = plan->start_us, .work = work, .stop = stop, .stopped = stopped, .free = free_role, .check = check};
    p->m = m;
    p->w = c->w;
    p->plan = *plan;
    p->settings = sim_client_role_settings(c, plan->config);
    p->number = (int)m->producer_count;
    m->producers = sim_grow(m->producers, m->producer_count, &m->producer_cap, sizeof *m->producers);
    const struct kc_settings *s = p->settings;
    m->producers[m->producer_count++] =
        (struct sim_producer_facts){s->idempotence, s->producer_in_flight_max == 1, s->acks, s->delivery_timeout_us, true};
    p->role.client = c;
    if (kc_produce_init(&p->produce, c->core, s, &calls, p) != KW_OK) sim_fail(c->w, 37, "a producer cannot be made");
    sim_trace(c->w, "producer %d on %s: acks %d, idempotence %d, in flight %d, codec %d", p->number, c->host.name, s->acks, s->idempotence,
              s->producer_in_flight_max, s->codec);
    sim_client_add(c, &p->role);
    return &p->role;
}
