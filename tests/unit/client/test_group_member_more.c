/* test_group_member_more.c - membership of a classic group: patterns, what it waits for, one record at a time, random orders and errors, no memory. */
#include "group_peer.h"

#define SECOND 1000000

/* ---- Patterns ---- */

struct starts_with {
    struct kc_matcher base;
    const char *prefix;
    bool *freed;
};
static bool starts(const struct kc_matcher *m, const char *topic) {
    const struct starts_with *s = (const void *)m;
    return strncmp(topic, s->prefix, strlen(s->prefix)) == 0;
}
static void starts_free(struct kc_matcher *m) {
    *((struct starts_with *)(void *)m)->freed = true;
    free(m);
}
static struct kc_matcher *prefix_matcher(const char *prefix, bool *freed) {
    struct starts_with *s = calloc(1, sizeof *s);
    *s = (struct starts_with){{starts, starts_free}, prefix, freed};
    return &s->base;
}

/* The list of all topics, which the net's default broker does not give. */
static bool list_all(struct cw *w, struct request *rq) {
    struct gw *g = w->ctx;
    if (rq->head.api_key != KW_API_METADATA) return gw_before(w, rq);
    struct kw_metadata_request q;
    struct kw_metadata_response m;
    struct kw_in again = rq->body;
    kw_arena_reset(&w->net->arena);
    request_decode(w->net, rq, &kw_metadata_request_desc, &q);
    rq->body = again;
    if (q.topics.n >= 0) return false;
    assert_false(q.allow_auto_topic_creation);
    g->count[KW_API_METADATA]++;
    fill_metadata(w->net, rq, &m);
    m.topics.v = net_calloc(w->net, w->net->topic_count + 1, sizeof *m.topics.v);
    for (size_t i = 0; i < w->net->topic_count; i++) {
        fill_topic(w->net, &m.topics.v[m.topics.n], kw_str_of(w->net->topics[i].name));
        m.topics.v[m.topics.n++].is_internal = strncmp(w->net->topics[i].name, "log.__", 6) == 0;
    }
    net_answer(rq, &m);
    return true;
}

static void topics_that_match_are_taken_up(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest", "metadata.max.age.ms", "10000"));
    bool freed = false;
    g->w->before = list_all;
    int t = cw_topic(g->w, "log.a", 1, 1);
    (void)cw_topic(g->w, "other", 1, 1);
    (void)cw_topic(g->w, "log.__internal", 1, 1);
    log_fill(&g->w->logs[t][0], 10, 10, 0);
    struct gw_consumer *o = gw_add(g, NULL);
    assert_int_equal(kc_group_subscribe(o->c, NULL, 0, prefix_matcher("log.", &freed)), KC_OK);
    gw_consume(o, SECOND);
    assert_int_equal(gw_parts(o), 1);
    cw_expect(g->w, t, 0, 0, 10);
    assert_int_equal(g->count[KW_API_METADATA], 1);
    int u = cw_topic(g->w, "log.b", 2, 1);
    log_fill(&g->w->logs[u][1], 10, 10, 0);
    gw_consume(o, 15 * SECOND);
    assert_string_equal(g->reason, "other topics match the subscription's pattern");
    assert_int_equal(gw_parts(o), 3);
    cw_expect(g->w, u, 1, 0, 10);
    /* Another pattern. */
    bool freed_too = false;
    assert_int_equal(kc_group_subscribe(o->c, NULL, 0, prefix_matcher("oth", &freed_too)), KC_OK);
    assert_true(freed);
    gw_consume(o, 5 * SECOND);
    assert_int_equal(gw_parts(o), 1);
    gw_free(g);
    assert_true(freed_too);
}

/* However long it has been a member: what it has is revoked, with all the time there is, not lost. */
static void topics_that_match_later_revoke(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest", "metadata.max.age.ms", "10000", "max.poll.interval.ms", "30000"));
    bool freed = false;
    g->w->before = list_all;
    (void)cw_topic(g->w, "log.a", 1, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    assert_int_equal(kc_group_subscribe(o->c, NULL, 0, prefix_matcher("log.", &freed)), KC_OK);
    gw_consume(o, 60 * SECOND);
    assert_int_equal(gw_parts(o), 1);
    (void)cw_topic(g->w, "log.b", 2, 1);
    gw_consume(o, 15 * SECOND);
    assert_int_equal(gw_parts(o), 3);
    assert_false(net_logged(g->w->net, 4, "partitions are lost"));
    gw_free(g);
}

/* ---- What it waits for ---- */

static void why_tells_what_the_membership_waits_for(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest"));
    kc_why w[8];
    int t = cw_topic(g->w, "t", 2, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    cw_advance(g->w, 1000);
    assert_int_equal(kc_consume_why(o->c, w, sizeof *w, 8), 0);
    g->find_error = KE_COORDINATOR_NOT_AVAILABLE;
    gw_subscribe(o, t);
    cw_advance(g->w, SECOND);
    assert_int_equal(kc_consume_why(o->c, w, sizeof *w, 8), 1);
    assert_int_equal(w[0].topic, 0);
    assert_int_equal(w[0].partition, -1);
    assert_int_equal(w[0].state, 21);
    assert_non_null(strstr(w[0].text, "COORDINATOR_NOT_AVAILABLE"));
    g->find_error = KE_NONE;
    struct gm *f = gw_foreign(g, "f", "range", "t");
    f->idle = true;
    cw_advance(g->w, 2 * SECOND);
    assert_int_equal(kc_consume_why(o->c, w, sizeof *w, 8), 1);
    assert_int_equal(w[0].state, 22);
    assert_int_equal(w[0].broker, 1);
    f->idle = false;
    gw_complete(g);
    gw_until(o, KC_GROUP_STABLE, SECOND);
    assert_int_equal(kc_consume_why(o->c, w, sizeof *w, 8), 2);
    assert_int_equal(w[0].state, 20);
    assert_int_equal(w[1].state, 10);
    gw_drop_event(gw_expect(o, KC_EVENT_ASSIGNED, 1));
    cw_advance(g->w, SECOND);
    assert_int_equal(kc_consume_why(o->c, w, sizeof *w, 8), 2);
    assert_int_equal(w[1].state, 6);
    gw_rebalance(g);
    gw_until(o, KC_GROUP_REVOKE, 5 * SECOND);
    assert_int_equal(kc_consume_why(o->c, w, sizeof *w, 8), 2);
    assert_int_equal(w[0].state, 24);
    assert_int_equal(w[1].state, 11);
    gw_free(g);
}

/* ---- One record at a time ---- */

static void poll_one_is_interrupted_by_a_revocation(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest"));
    int t = cw_topic(g->w, "t", 1, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    log_fill(&g->w->logs[t][0], 100, 100, 0);
    gw_subscribe(o, t);
    gw_until(o, KC_GROUP_STABLE, SECOND);
    kc_event *e = NULL;
    kc_consume_passed(o->c);
    assert_int_equal(kc_consume_one(o->c, &e), KC_OK);
    assert_int_equal(e->kind, KC_EVENT_ASSIGNED);
    gw_drop_event(e);
    cw_advance(g->w, SECOND);
    for (int i = 0; i < 10; i++) {
        e = NULL;
        kc_consume_passed(o->c);
        assert_int_equal(kc_consume_one(o->c, &e), KC_OK);
        assert_null(e);
        assert_int_equal(o->c->one.e->views[o->c->one.at].offset, i);
    }
    gw_rebalance(g);
    gw_until(o, KC_GROUP_REVOKE, 5 * SECOND);
    kc_consume_passed(o->c);
    assert_int_equal(kc_consume_one(o->c, &e), KC_OK);
    assert_non_null(e);
    assert_int_equal(e->kind, KC_EVENT_REVOKED);
    gw_drop_event(e);
    cw_advance(g->w, SECOND);
    assert_int_equal(g->committed[t][0], 10); /* what poll_one has gone past */
    gw_free(g);
}

/* ---- Random orders and errors ---- */

static uint64_t draws;
static uint32_t draw(uint32_t below) {
    draws = draws * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(draws >> 33) % below;
}

static int16_t at_random(struct gw *g, struct request *rq) {
    static const int16_t errors[] = {KE_NOT_COORDINATOR,   KE_COORDINATOR_NOT_AVAILABLE, KE_COORDINATOR_LOAD_IN_PROGRESS, KE_REBALANCE_IN_PROGRESS,
                                     KE_UNKNOWN_MEMBER_ID, KE_ILLEGAL_GENERATION,        KE_UNKNOWN_SERVER_ERROR};
    (void)g;
    int16_t key = rq->head.api_key;
    if (key == KW_API_LEAVE_GROUP || draw(10) != 0) return KE_NONE;
    uint32_t what = draw(12);
    if (what < 2) return GW_DROP;
    if (what == 2) return GW_MUTE;
    if (key == KW_API_OFFSET_FETCH || key == KW_API_OFFSET_COMMIT) return KE_NONE;
    if (key == KW_API_FIND_COORDINATOR) return KE_COORDINATOR_NOT_AVAILABLE;
    return errors[draw(KW_COUNTOF(errors))];
}

/* Members whom nobody hears of any more are put out. */
static void put_out_strays(struct gw *g) {
    for (int i = 0; i < GW_MEMBERS; i++) {
        struct gm *m = &g->members[i];
        bool known = m->foreign;
        for (int k = 0; k < g->consumer_count; k++) {
            char id[64];
            (void)kc_group_member(g->consumers[k].c, NULL, id, sizeof id);
            known |= strcmp(id, m->id) == 0;
        }
        if (m->used && !known) gw_remove(g, m);
    }
}

static void members_of_any_order_and_luck(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        draws = seed * 977;
        bool cooperative = seed & 1;
        struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest", "session.timeout.ms", "6000", "heartbeat.interval.ms", "500",
                                    "max.poll.interval.ms", "20000", "request.timeout.ms", "2000", "partition.assignment.strategy",
                                    cooperative ? "cooperative-sticky" : "range"));
        int t = cw_topic(g->w, "t", 4, 1);
        struct gw_consumer *o[3];
        g->w->frozen = 1; /* no records: what matters here is the group */
        for (int i = 0; i < 3; i++) {
            o[i] = gw_add(g, NULL);
            gw_subscribe(o[i], t);
        }
        g->script = at_random;
        for (int step = 0; step < 150; step++) {
            struct gw_consumer *c = o[draw(3)];
            uint32_t what = draw(20);
            if (what == 0) kc_group_unsubscribe(c->c);
            if (what == 1) gw_subscribe(c, t);
            if (what == 2 && g->phase == GW_STABLE) gw_rebalance(g);
            kc_event *e = what > 4 ? gw_poll(c) : NULL;
            if (e) gw_drop_event(e);
            put_out_strays(g);
            cw_advance(g->w, draw(300) * 1000);
        }
        g->script = NULL;
        for (int i = 0; i < 3; i++) gw_subscribe(o[i], t);
        int64_t end = g->w->net->now.mono_us + 200 * (int64_t)SECOND;
        bool done = false;
        while (!done && g->w->net->now.mono_us < end) {
            for (int i = 0; i < 3; i++) gw_consume(o[i], 20000);
            put_out_strays(g);
            int parts = 0;
            done = g->phase == GW_STABLE && gw_member_count(g) == 3;
            for (int i = 0; i < 3; i++) {
                done &= gw_state(o[i]) == KC_GROUP_STABLE;
                parts += gw_parts(o[i]);
            }
            done &= parts == 4;
        }
        if (!done) fprintf(stderr, "seed %d\n", (int)seed);
        assert_true(done);
        /* Each partition has one owner. */
        for (int32_t p = 0; p < 4; p++) {
            int owners = 0;
            for (int i = 0; i < 3; i++) owners += kc_part_find(o[i]->c, g->w->topic[t], p) != NULL;
            assert_int_equal(owners, 1);
        }
        gw_free(g);
    }
}

static int16_t always(struct gw *g, struct request *rq) {
    int16_t key = rq->head.api_key;
    int16_t err = (int16_t)(intptr_t)g->ctx;
    if (err == KE_REBALANCE_IN_PROGRESS) return key == KW_API_SYNC_GROUP ? err : KE_NONE;
    if (key != KW_API_JOIN_GROUP) return KE_NONE;
    if (err != KE_MEMBER_ID_REQUIRED) return err;
    struct gm m = {.link = rq->link, .head = rq->head, .id = "again"};
    gw_answer_join(g, &m, KE_MEMBER_ID_REQUIRED);
    return GW_MUTE;
}

/* A coordinator that says the same for ever is asked now and then. */
static void a_coordinator_of_no_use_is_not_stormed(void **state) {
    (void)state;
    const int16_t errors[] = {KE_UNKNOWN_MEMBER_ID,   KE_ILLEGAL_GENERATION,       KE_MEMBER_ID_REQUIRED,
                              KE_NOT_COORDINATOR,     KE_REBALANCE_IN_PROGRESS,    KE_INCONSISTENT_GROUP_PROTOCOL,
                              KE_UNKNOWN_SERVER_ERROR, KE_GROUP_MAX_SIZE_REACHED};
    for (size_t i = 0; i < KW_COUNTOF(errors); i++) {
        struct gw *g = gw_new(PAIRS("group.id", "g"));
        int t = cw_topic(g->w, "t", 1, 1);
        struct gw_consumer *o = gw_add(g, NULL);
        g->ctx = (void *)(intptr_t)errors[i];
        g->script = always;
        gw_subscribe(o, t);
        gw_consume(o, 60 * SECOND);
        assert_in_range(g->count[KW_API_JOIN_GROUP], 20, 150);
        /* What does not pass by itself is told, once. */
        bool told = errors[i] == KE_INCONSISTENT_GROUP_PROTOCOL || errors[i] == KE_UNKNOWN_SERVER_ERROR || errors[i] == KE_GROUP_MAX_SIZE_REACHED ||
                    errors[i] == KE_MEMBER_ID_REQUIRED;
        assert_int_equal(cw_count(g->w, KC_EVENT_ERROR, -1), told);
        assert_int_equal(kc_group_assigned(o->c), told ? errors[i] : KC_BUSY);
        g->script = NULL;
        gw_consume(o, 5 * SECOND);
        assert_int_equal(gw_state(o), KC_GROUP_STABLE);
        assert_int_equal(kc_group_assigned(o->c), KC_OK);
        gw_free(g);
    }
}

/* What foreign members and leaders send. */
static int16_t spoil(struct gw *g, struct request *rq) {
    if (rq->head.api_key != KW_API_SYNC_GROUP || !g->ctx) return KE_NONE;
    struct gm m = {.link = rq->link, .head = rq->head, .share_len = 40};
    memset(m.share, 0x7f, 40);
    gw_answer_sync(g, &m, KE_NONE);
    return GW_MUTE;
}

static void malformed_bytes_of_other_members(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest", "partition.assignment.strategy", "range"));
    int t = cw_topic(g->w, "t", 2, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    gw_subscribe(o, t);
    gw_consume(o, SECOND);
    assert_int_equal(gw_parts(o), 2);
    /* A subscription that cannot be read: its member gets nothing, the others what is theirs. */
    struct gm *f = gw_foreign(g, "f", "range", "t");
    memset(f->said[0], 0x7f, 20);
    f->said_len[0] = 20;
    gw_consume(o, 5 * SECOND);
    assert_int_equal(gw_state(o), KC_GROUP_STABLE);
    assert_int_equal(gw_parts(o), 2);
    assert_true(net_logged(g->w->net, 4, "cannot be read"));
    /* An assignment that cannot be read: told, and tried again. */
    g->ctx = g;
    g->script = spoil;
    gw_rebalance(g);
    gw_consume(o, 5 * SECOND);
    assert_int_equal(gw_parts(o), 0);
    assert_int_equal(cw_count(g->w, KC_EVENT_ERROR, -1), 1);
    g->ctx = NULL;
    gw_consume(o, 5 * SECOND);
    assert_int_equal(gw_parts(o), 2);
    gw_free(g);
}

/* 0 to 3 bytes, and a list of topics that ends in the middle: that member has nothing, and it is said. */
static void PR_14_a_foreign_members_metadata_is_cut_off(void **state) {
    (void)state;
    const char *const strategies[] = {"range", "roundrobin", "sticky", "cooperative-sticky"};
    for (int n = 0; n < 12 * 4; n++) {
        struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest", "partition.assignment.strategy", strategies[n % 4]));
        int t = cw_topic(g->w, "t", 2, 1);
        struct gw_consumer *o = gw_add(g, NULL);
        gw_subscribe(o, t);
        gw_consume(o, SECOND);
        struct gm *f = gw_foreign(g, "f", strategies[n % 4], "t");
        int32_t whole = f->said_len[0];
        f->said_len[0] = KW_MIN(n / 4, whole - 1);
        if (n / 4 == 3) memcpy(f->said[0], "\x7f\x80\xff", 3);
        gw_consume(o, 5 * SECOND);
        assert_int_equal(gw_state(o), KC_GROUP_STABLE);
        assert_int_equal(gw_parts(o), 2);
        assert_true(net_logged(g->w->net, 4, "cannot be read"));
        gw_free(g);
    }
}

/* Each allocation on the way from subscribe to the first record fails once: it is done again. */
static void without_memory_it_joins_all_the_same(void **state) {
    (void)state;
    for (int64_t fail = 0; fail < 400; fail++) {
        struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest", "partition.assignment.strategy",
                                    fail & 1 ? "cooperative-sticky" : "range,sticky"));
        int t = cw_topic(g->w, "t", 2, 1);
        struct gw_consumer *o = gw_add(g, NULL);
        for (int p = 0; p < 2; p++) log_fill(&g->w->logs[t][p], 10, 10, 0);
        cw_advance(g->w, 1000);
        kw_alloc_fail_after(fail);
        while (gw_subscribe(o, t) != KC_OK) continue;
        cw_advance(g->w, SECOND);
        kc_event *e = NULL;
        while (gw_state(o) != KC_GROUP_STABLE || gw_parts(o) != 2) cw_advance(g->w, 100000);
        while (!(kc_consume_take(o->c, &e) == KC_OK && e->kind == KC_EVENT_ASSIGNED)) {
            if (e) gw_drop_event(e);
            e = NULL;
            cw_advance(g->w, 1000);
        }
        gw_drop_event(e);
        (void)gw_foreign(g, "f", fail & 1 ? "cooperative-sticky" : "range", "t");
        int64_t end = g->w->net->now.mono_us + 10 * SECOND;
        while (g->w->net->now.mono_us < end) {
            if (kc_consume_take(o->c, &e) == KC_OK) gw_drop_event(e);
            cw_advance(g->w, 50000);
        }
        kw_alloc_fail_after(-1);
        assert_int_equal(gw_state(o), KC_GROUP_STABLE);
        assert_int_equal(gw_parts(o), 1);
        gw_free(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topics_that_match_are_taken_up),
        cmocka_unit_test(topics_that_match_later_revoke),
        cmocka_unit_test(why_tells_what_the_membership_waits_for),
        cmocka_unit_test(poll_one_is_interrupted_by_a_revocation),
        cmocka_unit_test(members_of_any_order_and_luck),
        cmocka_unit_test(a_coordinator_of_no_use_is_not_stormed),
        cmocka_unit_test(malformed_bytes_of_other_members),
        cmocka_unit_test(PR_14_a_foreign_members_metadata_is_cut_off),
        cmocka_unit_test(without_memory_it_joins_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
