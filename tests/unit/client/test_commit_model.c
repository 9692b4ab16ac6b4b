/* Random orders of calls, answers, errors, lost connections, moves of the coordinator and rebalances, held against a model:
 * - what was acknowledged is never older than what is committed from then on; nothing older is stored after something newer;
 * - nothing that was asked for before a partition was lost is stored after it came back;
 * - every call ends once, and by its limit;
 * - automatic commits store nothing that poll has not gone past, never go back, and all that is processed in the end.
 */
#include "commit_peer.h"

enum { MODEL_CALLS = 400, MODEL_STEPS = 300, MODEL_SEEDS = 25, MODEL_PARTS = 4 };

static const int16_t codes[] = {KE_NOT_COORDINATOR,          KE_COORDINATOR_NOT_AVAILABLE, KE_COORDINATOR_LOAD_IN_PROGRESS, KE_REQUEST_TIMED_OUT,
                                KE_REBALANCE_IN_PROGRESS,    KE_ILLEGAL_GENERATION,        KE_UNKNOWN_MEMBER_ID,            KE_UNKNOWN_TOPIC_ID,
                                KE_GROUP_AUTHORIZATION_FAILED};

struct model {
    struct cg *g;
    struct kw_rng rng;
    struct ct calls[MODEL_CALLS];
    int64_t limit_us[MODEL_CALLS]; /* of the call; KW_NEVER */
    int count;
    int64_t order;                   /* of the asks, from 1 */
    int64_t stored[MODEL_PARTS];     /* order of what is stored; 0: another member's, or nothing */
    int64_t acked[MODEL_PARTS];      /* of the newest ask that was acknowledged */
    int64_t floor[MODEL_PARTS];      /* asks up to here are of an earlier assignment */
    int seen;                        /* of the history */
    int32_t generation;
    bool automatic;
};

static uint64_t below(struct model *m, uint64_t n) {
    return kw_rng_below(&m->rng, n);
}
/* Offsets say which ask they are, and are in no order: the application may go back. */
static int64_t offset_of(int64_t order) {
    return order * 7919 % 1000003;
}
static int64_t order_of(int64_t offset) { /* by the inverse of 7919 */
    int64_t inverse = 1, base = 7919;
    for (int64_t e = 1000001; e > 0; e >>= 1, base = base * base % 1000003)
        if (e & 1) inverse = inverse * base % 1000003;
    return offset * inverse % 1000003;
}

static void check(struct model *m) {
    struct cg *g = m->g;
    for (; m->seen < g->history_count; m->seen++) {
        const struct cg_write *w = &g->history[m->seen];
        if (m->automatic) {
            assert_true(w->offset >= m->stored[w->partition]); /* never back */
            m->stored[w->partition] = w->offset;
            continue;
        }
        int64_t order = order_of(w->offset);
        assert_true(order >= m->stored[w->partition]);
        assert_true(order > m->floor[w->partition]);
        m->stored[w->partition] = order;
    }
    for (int i = 0; i < m->count; i++) {
        struct ct *c = &m->calls[i];
        assert_true(c->done <= 1);
        if (m->limit_us[i] <= g->w->net->now.mono_us) assert_int_equal(c->done, 1);
        for (size_t k = 0; c->done && k < c->call.count; k++) {
            const kc_offset *at = &c->items[k].at;
            if (at->err != KC_OK || c->items[k].assignment == 0) continue;
            m->acked[at->partition] = KW_MAX(m->acked[at->partition], order_of(at->offset));
            c->items[k].assignment = 0; /* counted */
        }
        if (c->done && c->call.attempts) {
            kc_attempts_unref(c->call.attempts);
            c->call.attempts = NULL;
        }
    }
    for (int p = 0; p < MODEL_PARTS; p++)
        if (!m->automatic && m->acked[p] > m->floor[p]) assert_true(m->stored[p] >= m->acked[p]);
}

static void call(struct model *m) {
    if (m->automatic || m->count == MODEL_CALLS) return;
    struct ct *c = &m->calls[m->count];
    int64_t timeout_us = below(m, 3) ? -1 : (int64_t)(1000 + below(m, 20000000));
    m->limit_us[m->count++] = timeout_us < 0 ? KW_NEVER : m->g->w->net->now.mono_us + timeout_us;
    ct_init(c, m->g, timeout_us);
    m->order++;
    for (int32_t p = 0; p < MODEL_PARTS; p++)
        if (below(m, 2)) (void)ct_add(c, p, offset_of(m->order), below(m, 4) ? NULL : "meta");
    ct_begin(c);
}

/* A partition goes, another member has it for a while, and it comes back. */
static void lose(struct model *m, int32_t partition) {
    struct cg *g = m->g;
    kc_lock_take(&g->w->c.lock);
    struct kc_part *p = cw_part(g->w, 0, partition);
    if (p) kc_part_remove(p);
    g->w->c.kick(g->w);
    kc_lock_give(&g->w->c.lock);
}
static void on_refused(struct cg *g, kc_err err) {
    struct model *m = g->model;
    if (err == KE_REBALANCE_IN_PROGRESS || below(m, 2)) return; /* waits for the answer to JoinGroup */
    for (int32_t p = 0; p < MODEL_PARTS; p++)
        if (below(m, 2)) lose(m, p);
    kc_commits_member(g->m, NULL);
}

static void rejoin(struct model *m) {
    struct cg *g = m->g;
    if (m->generation == 0) return; /* a manual assignment */
    for (int32_t p = 0; p < MODEL_PARTS; p++)
        if (below(m, 3) == 0) lose(m, p);
    g->live_generation = ++m->generation; /* from here on the coordinator knows no older one */
    if (below(m, 2)) cw_advance(g->w, (int64_t)below(m, 300000)); /* it may be told so */
    kc_commits_member(g->m, NULL);
    cg_release(g);
    cw_advance(g->w, (int64_t)below(m, 300000));
    check(m);
    for (int32_t p = 0; p < MODEL_PARTS; p++) {
        if (cw_part(g->w, 0, p)) continue;
        m->floor[p] = m->order;
        m->stored[p] = m->automatic ? m->stored[p] : 0;
        assert_int_equal(cw_assign(g->w, 0, p, KC_OFFSET_COMMITTED), KC_OK);
    }
    struct kc_commit_member who = {m->generation, kw_str_of("m"), kw_str_null()};
    kc_commits_member(g->m, &who);
}

static void step(struct model *m) {
    struct cg *g = m->g;
    switch (below(m, 16)) {
    case 0:
        g->code = codes[below(m, KW_COUNTOF(codes))];
        g->codes = 1 + (int)below(m, 3);
        break;
    case 1: g->lose = true; break;
    case 2: g->node = 1 + (int32_t)below(m, 2); break;
    case 3: {
        struct link *l = net_link(g->w->net, g->node == 1 ? "b0" : "b1");
        if (l) link_lost(l, KW_EIO, "reset");
        break;
    }
    case 4: g->hold = !g->has_held; break;
    case 5: cg_release(g); break;
    case 6: rejoin(m); break;
    case 7:
        if (m->count > 0) {
            struct ct *c = &m->calls[below(m, (uint64_t)m->count)];
            if (!c->done && c->call.left > 0) kc_commits_call_cancel(g->m, &c->call, KC_CANCELLED);
        }
        break;
    case 8:
    case 9: log_fill(&g->w->logs[0][below(m, MODEL_PARTS)], 10, 5, 0); break;
    case 10:
    case 11: (void)cg_poll(g); break;
    default: call(m); break;
    }
    cw_advance(g->w, (int64_t)below(m, below(m, 8) ? 20000 : 2000000));
    check(m);
}

static void heal(struct model *m) {
    struct cg *g = m->g;
    cg_release(g);
    g->codes = 0;
    g->lose = false;
    g->node = 2;
    if (m->generation > 0) {
        rejoin(m);
        struct kc_commit_member who = {m->generation, kw_str_of("m"), kw_str_null()};
        kc_commits_member(g->m, &who);
    }
    cw_advance(g->w, 30000000);
    check(m);
    for (int i = 0; i < m->count; i++) assert_int_equal(m->calls[i].done, 1);
}

static void play(uint64_t seed, bool member, bool automatic) {
    struct model *m = calloc(1, sizeof *m);
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL,
                          PAIRS("auto.offset.reset", "earliest", "enable.auto.commit", automatic ? "true" : "false", "auto.commit.interval.ms", "50",
                                "max.poll.records", "3", "request.timeout.ms", "2000"));
    m->g = g;
    m->automatic = automatic;
    m->generation = member ? 1 : 0;
    kw_rng_init(&m->rng, seed);
    g->model = m;
    g->on_refused = on_refused;
    if (member) {
        struct kc_commit_member who = {1, kw_str_of("m"), kw_str_null()};
        g->live_generation = 1;
        kc_commits_member(g->m, &who);
    }
    for (int32_t p = 0; p < MODEL_PARTS; p++) assert_int_equal(cw_assign(g->w, 0, p, KC_OFFSET_COMMITTED), KC_OK);
    for (int i = 0; i < MODEL_STEPS; i++) step(m);
    heal(m);
    if (automatic) { /* all that can be read is read and gone past */
        for (int i = 0; i < 3000; i++) {
            if (!cg_poll(g)) cw_advance(g->w, 1000);
        }
        cw_advance(g->w, 10000000);
        check(m);
        for (int32_t p = 0; p < MODEL_PARTS; p++) assert_int_equal(g->stored[0][p].present ? g->stored[0][p].offset : 0, g->w->logs[0][p].hw);
    }
    cg_free(g);
    for (int i = 0; i < m->count; i++) kc_attempts_unref(m->calls[i].call.attempts);
    free(m);
}

static void test_a_manual_assignments_calls(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= MODEL_SEEDS; seed++) play(seed, false, false);
}
static void test_a_members_calls(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= MODEL_SEEDS; seed++) play(seed, true, false);
}
static void test_automatic_commits(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= MODEL_SEEDS; seed++) play(seed, seed % 2, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_manual_assignments_calls),
        cmocka_unit_test(test_a_members_calls),
        cmocka_unit_test(test_automatic_commits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
