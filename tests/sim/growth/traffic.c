/* traffic.c - see traffic.h. */
#include "traffic.h"

#include <stdlib.h>

#include "kw_messages.h"
#include "produce/produce.h"

enum { TIMEOUT_MS = 60000, TOPICS_MAX = 64 };

/* ---- Creation ---- */

struct maker {
    struct sim_role role; /* first */
    struct grow_topics topics;
    struct kc_request rq;
    int made, asked, at_once;
    bool busy, stopping;
};

static kw_err encode(struct kc_request *rq, struct kw_out *out) {
    struct maker *m = rq->ctx;
    struct kw_create_topics_request_creatable_topic t[TOPICS_MAX];
    struct kw_create_topics_request q = {.topics = {t, m->asked}, .timeout_ms = TIMEOUT_MS};
    for (int i = 0; i < m->asked; i++)
        t[i] = (struct kw_create_topics_request_creatable_topic){
            .name = kw_str_of(m->topics.names[m->made + i]), .num_partitions = m->topics.partitions, .replication_factor = 3};
    return kw_encode(&kw_create_topics_request_desc, rq->version, &q, out);
}

static void done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct maker *m = rq->ctx;
    struct kw_create_topics_response a;
    struct kw_arena arena;
    (void)blk;
    m->busy = false;
    if (m->stopping) return;
    struct sim_world *w = m->role.client->w;
    kw_arena_init(&arena, 0);
    if (err == KC_OK && kw_decode(&kw_create_topics_response_desc, rq->version, body, &arena, &a) != KW_OK) err = KC_BAD_MESSAGE;
    if (err) sim_fail(w, 36, "topics %d to %d are not created: %s", m->made, m->made + m->asked - 1, kc_err_name(err));
    for (int32_t i = 0; i < a.topics.n; i++)
        if (a.topics.v[i].error_code)
            sim_fail(w, 36, "topic %d is not created: %s", m->made + i, kc_err_name(a.topics.v[i].error_code));
    kw_arena_deinit(&arena);
    m->made += m->asked;
    m->role.next_us = w->now_us;
    sim_client_wake(m->role.client);
}

static bool make(struct sim_role *r) {
    struct maker *m = (struct maker *)r;
    r->next_us = SIM_NEVER;
    if (m->busy || m->stopping || m->made == m->topics.count) return false;
    m->asked = KW_MIN(m->at_once, m->topics.count - m->made);
    m->busy = true;
    kc_request_init(&m->rq, KW_API_CREATE_TOPICS);
    m->rq.broker = KC_BROKER_ANY;
    m->rq.encode = encode;
    m->rq.done = done;
    m->rq.ctx = m;
    m->rq.deadline_us = sim_client_now(r->client).mono_us + TIMEOUT_MS * SIM_MS;
    m->rq.answer_timeout_us = TIMEOUT_MS * SIM_MS;
    kc_core_send(r->client->core, &m->rq);
    return true;
}
static void maker_stop(struct sim_role *r) {
    struct maker *m = (struct maker *)r;
    m->stopping = true;
    if (m->busy) kc_core_cancel(r->client->core, &m->rq);
}
static bool maker_stopped(const struct sim_role *r) {
    return !((const struct maker *)r)->busy;
}
static void maker_free(struct sim_role *r) {
    free(r);
}
bool grow_maker_done(const struct sim_role *r) {
    const struct maker *m = (const struct maker *)r;
    return m->made == m->topics.count;
}
struct sim_role *grow_maker_new(struct sim_client *c, const struct grow_topics *t, int at_once) {
    struct maker *m = sim_need(calloc(1, sizeof *m));
    m->role = (struct sim_role){.next_us = c->w->now_us, .work = make, .stop = maker_stop, .stopped = maker_stopped, .free = maker_free};
    m->topics = *t;
    m->at_once = KW_MIN(at_once, (int)TOPICS_MAX);
    sim_client_add(c, &m->role);
    return &m->role;
}

/* ---- Writing ---- */

struct writer {
    struct sim_role role; /* first */
    struct grow_topics topics;
    struct kc_config *config;
    struct kc_settings *settings;
    struct kc_produce produce;
    struct grow_written counts;
    int64_t every_us;
    bool woken, stopping, stopped;
};

static struct kc_now call_clock(void *ctx) {
    return sim_client_now(((struct writer *)ctx)->role.client);
}
static void call_wake(void *ctx) {
    struct writer *p = ctx;
    p->woken = true;
    sim_client_wake(p->role.client);
}
static void call_signal(void *ctx) {
    (void)ctx;
}
static void call_ready(void *ctx, int32_t kind) {
    (void)kind;
    sim_client_wake(((struct writer *)ctx)->role.client);
}

static void send_one(struct writer *p) {
    static const uint8_t value[100];
    struct sim_world *w = p->role.client->w;
    struct kc_now now = sim_client_now(p->role.client);
    struct kc_rec r = {.topic = 1 + (int32_t)sim_below(w, (uint64_t)p->topics.count),
                       .partition = (int32_t)sim_below(w, (uint64_t)p->topics.partitions),
                       .key = {NULL, -1},
                       .value = {value, sizeof value}};
    bool wake = false;
    kc_err err = kc_accum_prepare(&p->produce.accum, &r);
    if (!err) err = kc_accum_put(&p->produce.accum, &r, &now, false, &wake);
    if (err == KC_INVALID && kc_accum_partition_count(&p->produce.accum, r.topic) < 0) {
        err = kc_accum_add_topic(&p->produce.accum, r.topic);
        if (!err) err = kc_accum_put(&p->produce.accum, &r, &now, false, &wake);
    }
    p->woken |= wake;
    if (err && err != KC_QUEUE_FULL) sim_fail(w, 27, "a record is not accepted: %s", kc_err_name(err));
    p->counts.sent += !err;
}

static void take_reports(struct writer *p) {
    struct kc_reports *r;
    kc_report one;
    if (kc_reports_collect(&p->produce.accum, NULL, &r) != KC_OK) return;
    while (kc_reports_next(r, &one)) one.err ? p->counts.failed++ : p->counts.acked++;
    kc_reports_give_back(r);
}

static bool write_some(struct sim_role *r) {
    struct writer *p = (struct writer *)r;
    struct sim_world *w = r->client->w;
    if (!p->stopping && r->next_us <= w->now_us) {
        send_one(p);
        r->next_us = w->now_us + p->every_us;
    }
    take_reports(p);
    if (!p->woken) return false;
    p->woken = false;
    kc_produce_turn(&p->produce);
    return true;
}

static void on_stopped(struct kc_sender *s) {
    struct writer *p = KW_CONTAINER_OF(s, struct writer, produce.sender);
    kc_produce_detach(&p->produce);
    p->stopped = true;
}
static void writer_stop(struct sim_role *r) {
    struct writer *p = (struct writer *)r;
    p->stopping = true;
    kc_produce_stop(&p->produce, on_stopped);
}
static bool writer_stopped(const struct sim_role *r) {
    return ((const struct writer *)r)->stopped;
}
static void writer_free(struct sim_role *r) {
    struct writer *p = (struct writer *)r;
    kc_produce_deinit(&p->produce);
    kc_settings_free(p->settings);
    kc_config_free(p->config);
    free(p);
}
struct grow_written grow_writer_counts(const struct sim_role *r) {
    return ((const struct writer *)r)->counts;
}
struct sim_role *grow_writer_new(struct sim_client *c, const struct grow_topics *t, int64_t every_us) {
    static const struct kc_accum_calls calls = {.clock = call_clock, .wake = call_wake, .signal = call_signal, .ready = call_ready};
    struct writer *p = sim_need(calloc(1, sizeof *p));
    p->role = (struct sim_role){
        .client = c, .next_us = c->w->now_us, .work = write_some, .stop = writer_stop, .stopped = writer_stopped, .free = writer_free};
    p->topics = *t;
    p->every_us = every_us;
    p->config = sim_config(NULL);
    sim_config_set(p->config, "acks", "-1");
    sim_config_set(p->config, "enable.idempotence", "true");
    p->settings = sim_client_role_settings(c, p->config);
    if (kc_produce_init(&p->produce, c->core, p->settings, &calls, p) != KW_OK) sim_fail(c->w, 37, "a producer cannot be made");
    sim_client_add(c, &p->role);
    return &p->role;
}
