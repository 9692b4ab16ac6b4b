/* meta_rig.h - store, image and controller of one node on the simulated disk, in virtual time: start, change, stop, crash, compare. */
#ifndef META_RIG_H
#define META_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kw_messages.h"
#include "quorum/controller.h"
#include "quorum/effective.h"
#include "quorum/store_priv.h"
#include "sim_disk.h"
#include "wire/kerror.h"

#define META_DIR "/data"
#define META_LOG META_DIR "/__cluster_metadata-0"

struct meta {
    struct sim_disk *sim;
    struct kb_disk queue;
    struct kw_timers timers;
    struct kw_compressor *compressor;
    struct kb_logger logger;
    struct kb_log_env env;
    struct kb_config *config;
    struct kw_rng rng;
    struct kb_image image;
    struct kb_store *store;
    struct kb_controller *controller;
    struct kb_now now;
    bool ready, stopped, up, clean;
    kw_err ready_err;
    int applied, refused;
    kw_err (*dial)(void *ctx, int32_t broker, const char *host, uint16_t port, struct kb_now now);
    void *dial_ctx;
    char lines[8192]; /* what was said at KB_WARN and above */
};

static inline void meta_say(void *ctx, enum kb_level level, const char *text) {
    struct meta *m = ctx;
    if (getenv("RIG_LOG")) fprintf(stderr, "[%d] %s\n", (int)level, text);
    size_t n = strlen(m->lines);
    if (level >= KB_WARN) snprintf(m->lines + n, sizeof(m->lines) - n, "%s\n", text);
}

static inline void meta_set(struct meta *m, const char *name, const char *value) {
    char text[400];
    if (kb_config_set(m->config, name, value, text, sizeof(text), NULL, NULL)) fail_msg("%s", text);
}

static inline void meta_init(struct meta *m, uint64_t seed, const struct sim_disk_options *o) {
    memset(m, 0, sizeof(*m));
    m->sim = sim_disk_new(seed, o);
    sim_disk_poke(m->sim, META_DIR "/.keep", "", 0);
    m->compressor = kw_compressor_new();
    m->logger = (struct kb_logger){meta_say, m, KB_INFO};
    assert_int_equal(kb_config_new(&m->config), KW_OK);
    meta_set(m, "log.dirs", META_DIR);
    meta_set(m, "node.id", "1");
    kw_rng_init(&m->rng, seed);
    m->now = (struct kb_now){1000000, 1700000000000};
}

static inline void meta_applied(void *ctx, struct kb_now now) {
    struct meta *m = ctx;
    m->applied++;
    if (m->controller) kb_controller_replayed(m->controller, now);
    if (m->controller) kb_controller_applied(m->controller, now);
}
static inline void meta_ready(void *ctx, kw_err err, struct kb_now now) {
    struct meta *m = ctx;
    assert_true(!m->ready || err); /* once; a failure may follow */
    m->ready = true;
    m->ready_err = err;
    if (err && m->controller) kb_controller_failed(m->controller, now);
}
static inline void meta_role(void *ctx, bool leads, struct kb_now now) {
    struct meta *m = ctx;
    if (leads)
        kb_controller_activate(m->controller, now);
    else
        kb_controller_resign(m->controller, now);
}
static inline void meta_refused(void *ctx, int64_t from, struct kb_now now) {
    struct meta *m = ctx;
    m->refused++;
    kb_controller_refused(m->controller, from, now);
}

/* The end of a turn, as kb_node_tick has it. */
static inline void meta_turn(struct meta *m) {
    kw_timers_run(&m->timers, m->now.mono_us);
    if (m->store) kb_store_flush(m->store, m->now);
    sim_disk_take(m->sim, &m->queue, m->now);
}
static inline bool meta_step(struct meta *m) {
    meta_turn(m);
    struct kb_disk_req *q = sim_disk_pop(m->sim, m->now);
    if (q) {
        kb_disk_complete(&m->queue, q, m->now);
        meta_turn(m);
        return true;
    }
    int64_t next = KW_MIN(sim_disk_next(m->sim), kw_timers_next(&m->timers));
    if (next == INT64_MAX) return false;
    int64_t to = next > m->now.mono_us ? next : m->now.mono_us + 1;
    m->now.wall_ms += (to - m->now.mono_us) / 1000 + 1;
    m->now.mono_us = to;
    return true;
}
static inline void meta_idle(struct meta *m) {
    for (int i = 0; meta_step(m); i++) assert_true(i < 1000000); /* a busy loop is a bug */
}

/* The disk's answers only: the process they were for is gone, its timers with it. */
static inline void meta_drain(struct meta *m) {
    for (int i = 0; i < 100000; i++) {
        sim_disk_take(m->sim, &m->queue, m->now);
        struct kb_disk_req *q = sim_disk_pop(m->sim, m->now);
        if (q) {
            kb_disk_complete(&m->queue, q, m->now);
            continue;
        }
        if (sim_disk_next(m->sim) == INT64_MAX) return;
        m->now.mono_us = KW_MAX(m->now.mono_us + 1, sim_disk_next(m->sim));
    }
    fail_msg("the disk is never idle");
}

/* New parts over the same disk, as a new process has them. KW_OK: started, ready comes later. */
static inline kw_err meta_boot(struct meta *m) {
    kb_disk_init(&m->queue);
    kw_timers_init(&m->timers);
    kb_log_env_init(&m->env, &m->queue, &m->timers, m->compressor, &m->logger);
    kb_image_init(&m->image);
    m->ready = m->stopped = false;
    m->ready_err = KW_OK;
    m->store = NULL;
    m->controller = NULL;
    m->up = true;
    struct kb_store_options so = {.env = &m->env,
                                  .config = m->config,
                                  .rng = &m->rng,
                                  .image = &m->image,
                                  .port = 9092,
                                  .clean = m->clean,
                                  .applied = meta_applied,
                                  .ready = meta_ready,
                                  .role = meta_role,
                                  .refused = meta_refused,
                                  .ctx = m};
    m->clean = false;
    kw_err err = kb_store_new(&so, &m->store);
    struct kb_controller_options ko = {.store = m->store,
                                       .image = &m->image,
                                       .config = m->config,
                                       .rng = &m->rng,
                                       .logger = &m->logger,
                                       .timers = &m->timers,
                                       .dial = m->dial,
                                       .ctx = m->dial_ctx};
    if (!err) err = kb_controller_new(&ko, &m->controller);
    if (!err) err = kb_store_start(m->store, m->now);
    return err;
}
static inline void meta_start(struct meta *m) {
    assert_int_equal(meta_boot(m), KW_OK);
    meta_idle(m);
    assert_true(m->ready);
    if (m->ready_err) fail_msg("%s", kb_store_failure(m->store));
}
/* Frees everything as kill -9 leaves it: nothing is written any more. */
static inline void meta_drop(struct meta *m) {
    if (!m->up) return;
    kw_timers_deinit(&m->timers);
    kb_controller_free(m->controller);
    kb_store_free(m->store);
    m->store = NULL;
    m->controller = NULL;
    meta_drain(m); /* closes and what was under way run out */
    kb_log_env_deinit(&m->env);
    kb_image_deinit(&m->image);
    m->up = false;
}
static inline void meta_stopped(void *ctx, struct kb_now now) {
    (void)now;
    struct meta *m = ctx;
    assert_false(m->stopped);
    m->stopped = true;
}
static inline void meta_stop(struct meta *m) {
    kb_store_stop(m->store, meta_stopped, m, m->now);
    meta_idle(m);
    assert_true(m->stopped);
    m->clean = kb_store_failure(m->store) == NULL;
    meta_drop(m);
}
/* Requests still with the disk come back as failures; the core is freed without having seen the rest. */
static inline void meta_crash(struct meta *m, bool power) {
    if (power)
        sim_disk_power_loss(m->sim, m->now);
    else
        sim_disk_kill9(m->sim, m->now);
    meta_drain(m);
    meta_drop(m);
    sim_disk_restart(m->sim);
    m->clean = false;
}
static inline void meta_deinit(struct meta *m) {
    meta_drop(m);
    sim_disk_free(m->sim);
    kw_compressor_free(m->compressor);
    kb_config_free(m->config);
}

/* ---- Changes ---- */

struct meta_change {
    struct kb_change change;
    int done;
};
static inline void meta_changed(struct kb_change *c, struct kb_now now) {
    (void)now;
    ((struct meta_change *)c->ctx)->done++;
}
static inline struct kb_change *meta_change(struct meta_change *c) {
    *c = (struct meta_change){.change = {.done = meta_changed, .ctx = c}};
    return &c->change;
}
static inline int16_t meta_create(struct meta *m, const char *name, int32_t partitions) {
    struct meta_change c;
    struct kb_topic_create t = {.name = kw_str_of(name), .partitions = partitions, .replication_factor = -1};
    assert_int_equal(kb_controller_create_topics(m->controller, &t, 1, false, meta_change(&c), m->now), KW_OK);
    assert_int_equal(c.done, 0); /* in a later turn */
    meta_idle(m);
    assert_int_equal(c.done, 1);
    return t.result.code;
}
static inline int16_t meta_delete(struct meta *m, const char *name) {
    struct meta_change c;
    struct kb_topic_ref t = {.name = kw_str_of(name)};
    assert_int_equal(kb_controller_delete_topics(m->controller, &t, 1, meta_change(&c), m->now), KW_OK);
    meta_idle(m);
    assert_int_equal(c.done, 1);
    return t.result.code;
}
static inline int16_t meta_config(struct meta *m, int8_t type, const char *name, const char *key, const char *value, int8_t op) {
    struct meta_change c;
    struct kb_config_kv kv = {.key = kw_str_of(key), .value = kw_str_of(value), .op = op};
    struct kb_config_alter a = {.type = type, .name = kw_str_of(name), .kvs = &kv, .kv_count = 1};
    assert_int_equal(kb_controller_alter_configs(m->controller, &a, 1, false, meta_change(&c), m->now), KW_OK);
    meta_idle(m);
    assert_int_equal(c.done, 1);
    return a.result.code;
}

/* What the image says, as bytes; equal bytes, equal images. */
static inline struct kw_out meta_bytes(const struct kb_image *im) {
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kb_snapshot_encode(im, 0, 0, &out), KW_OK);
    return out;
}

#endif
