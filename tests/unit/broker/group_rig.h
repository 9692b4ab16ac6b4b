/* group_rig.h - one classic group in virtual time, with members as their clients are: for its tests and its model. */
#ifndef GROUP_RIG_H
#define GROUP_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "group/group.h"
#include "wire/kerror.h"

#define SEATS 8

struct seat { /* a member as its client is */
    struct kb_group_wait w;
    char id[80], leader[80], assignment[40], protocol[40];
    bool waits_join, waits_sync, skip;
    int16_t code;
    int32_t generation;
    int members, answers;
};
static struct {
    struct kw_timers timers;
    struct kw_rng rng;
    struct kb_logger logger;
    struct kb_group_env env;
    struct kb_now now;
    struct kb_group *g;
    struct seat s[SEATS];
    uint64_t store, answered; /* asked for last; told last */
    struct kb_group_wait *ended;
} r;

static inline void say(void *ctx, enum kb_level level, const char *text) {
    (void)ctx;
    (void)level;
    (void)text;
}

static inline void store(struct kb_group *g, uint64_t number, struct kb_now now) {
    (void)now;
    assert_ptr_equal(g, r.g);
    assert_true(number == r.store + 1);
    r.store = number;
}

static inline int setup(void **state) {
    (void)state;
    memset(&r, 0, sizeof(r));
    r.now = (struct kb_now){.mono_us = 1000000, .wall_ms = 1700000000000};
    kw_timers_init(&r.timers);
    kw_rng_init(&r.rng, 7);
    r.logger = (struct kb_logger){.fn = say, .level = KB_DEBUG};
    r.env = (struct kb_group_env){
        .timers = &r.timers, .now = &r.now, .rng = &r.rng, .logger = &r.logger, .members_max = INT32_MAX, .store = store};
    r.g = kb_group_new(&r.env, kw_str_of("g"), NULL);
    assert_non_null(r.g);
    return 0;
}

static inline int teardown(void **state) {
    (void)state;
    if (r.g) kb_group_free(r.g, KE_NOT_COORDINATOR);
    assert_int_equal(r.timers.count, 0);
    kw_timers_deinit(&r.timers);
    return 0;
}

static inline void copy(char *to, size_t size, struct kw_str s) {
    snprintf(to, size, "%.*s", s.len < 0 ? 0 : (int)s.len, s.len > 0 ? s.p : "");
}

static inline void joined(struct kb_group_wait *w, const struct kb_join_answer *a) {
    struct seat *s = w->ctx;
    assert_true(s->waits_join);
    s->waits_join = false;
    s->answers++;
    s->code = a->code;
    s->generation = a->generation;
    s->skip = a->skip_assignment;
    s->members = 0;
    for (const struct kb_member *m = NULL; a->members_of && (m = kb_group_next(a->members_of, m));) s->members++;
    copy(s->id, sizeof(s->id), a->member_id);
    copy(s->leader, sizeof(s->leader), a->leader);
    copy(s->protocol, sizeof(s->protocol), a->protocol);
}

static inline void synced(struct kb_group_wait *w, const struct kb_sync_answer *a) {
    struct seat *s = w->ctx;
    assert_true(s->waits_sync);
    s->waits_sync = false;
    s->answers++;
    s->code = a->code;
    copy(s->assignment, sizeof(s->assignment), (struct kw_str){(const char *)a->assignment.p, a->assignment.len});
}

struct how {                                 /* what a join says beside the usual */
    const char *instance, *protocols, *type; /* "range,sticky" */
    const char *data;                        /* its subscription */
    int32_t session_ms, rebalance_ms;
    bool id_required, skips;
};

static inline void join_how(int i, struct how h) {
    struct seat *s = &r.s[i];
    struct kw_join_group_request_protocol p[4];
    char names[80], client[16];
    int32_t n = 0;
    snprintf(names, sizeof(names), "%s", h.protocols ? h.protocols : "range");
    for (char *save, *t = strtok_r(names, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
        const char *data = h.data ? h.data : "topics";
        p[n++] = (struct kw_join_group_request_protocol){.name = kw_str_of(t), .metadata = {(const uint8_t *)data, (int32_t)strlen(data)}};
    }
    snprintf(client, sizeof(client), "c%d", i);
    struct kb_join j = {.member_id = kw_str_of(s->id),
                        .instance_id = kw_str_of(h.instance),
                        .protocol_type = kw_str_of(h.type ? h.type : "consumer"),
                        .client_id = kw_str_of(client),
                        .client_host = kw_str_of("/127.0.0.1"),
                        .session_timeout_ms = h.session_ms ? h.session_ms : 10000,
                        .rebalance_timeout_ms = h.rebalance_ms ? h.rebalance_ms : 60000,
                        .protocols = p,
                        .protocol_count = n,
                        .id_required = h.id_required,
                        .skips = h.skips};
    s->w = (struct kb_group_wait){.joined = joined, .synced = synced, .ctx = s};
    s->waits_join = true;
    kb_group_join(r.g, &j, &s->w, r.now);
}

static inline void join(int i) {
    join_how(i, (struct how){0});
}

/* assign: "0=a,1=b" by seats; NULL: nothing */
static inline void sync_as(int i, const char *instance, int32_t generation, const char *assign) {
    struct seat *s = &r.s[i];
    struct kw_sync_group_request_assignment a[SEATS];
    char text[80];
    int32_t n = 0;
    snprintf(text, sizeof(text), "%s", assign ? assign : "");
    for (char *save, *t = strtok_r(text, ",", &save); t; t = strtok_r(NULL, ",", &save))
        a[n++] = (struct kw_sync_group_request_assignment){.member_id = kw_str_of(r.s[t[0] - '0'].id),
                                                           .assignment = {(const uint8_t *)t + 2, (int32_t)strlen(t + 2)}};
    struct kb_sync q = {.member_id = kw_str_of(s->id),
                        .instance_id = kw_str_of(instance),
                        .protocol_type = kw_str_null(),
                        .protocol = kw_str_null(),
                        .generation = generation,
                        .assignments = a,
                        .assignment_count = n};
    s->w = (struct kb_group_wait){.joined = joined, .synced = synced, .ctx = s};
    s->waits_sync = true;
    kb_group_sync(r.g, &q, &s->w, r.now);
}

static inline void sync_(int i, const char *assign) {
    sync_as(i, NULL, r.s[i].generation, assign);
}

static inline void stored(int16_t code) {
    assert_true(r.answered < r.store);
    r.answered = r.store;
    kb_group_stored(r.g, r.store, code, r.now);
}

static inline void wait_ms(int64_t ms) {
    for (int64_t end = r.now.mono_us + ms * 1000; r.now.mono_us < end;) {
        int64_t next = KW_MIN(end, KW_MAX(kw_timers_next(&r.timers), r.now.mono_us + 1));
        r.now.wall_ms += (next - r.now.mono_us) / 1000;
        r.now.mono_us = next;
        kw_timers_run(&r.timers, r.now.mono_us);
    }
}

static inline enum kb_group_state state_(void) {
    return kb_group_state(r.g);
}

#endif
