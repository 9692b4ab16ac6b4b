/* test_group_member.c - membership of a classic group: joining, rebalances as events, acknowledgements, limits in time, leaving. Cases CC-07, CC-08,
 * CC-13, CC-14.
 */
#include "group_peer.h"

#define SECOND 1000000

/* ---- Joining ---- */

static void a_member_joins_and_reads(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest"));
    int t = cw_topic(g->w, "t", 2, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    for (int p = 0; p < 2; p++) log_fill(&g->w->logs[t][p], 20, 10, 0);
    g->committed[t][1] = 15;
    assert_int_equal(kc_group_assigned(o->c), KC_INVALID);
    assert_int_equal(gw_subscribe(o, t), KC_OK);
    assert_int_equal(kc_group_assigned(o->c), KC_BUSY);
    gw_until(o, KC_GROUP_STABLE, SECOND);
    assert_int_equal(kc_group_assigned(o->c), KC_OK);
    assert_int_equal(g->count[KW_API_JOIN_GROUP], 2); /* KIP-394: the second under the name that it was given */
    assert_int_equal(g->count[KW_API_SYNC_GROUP], 1);
    assert_int_equal(g->count[KW_API_FIND_COORDINATOR], 1);
    char id[64];
    int32_t generation;
    assert_int_equal(kc_group_member(o->c, &generation, id, sizeof id), 2);
    assert_string_equal(id, "m0");
    assert_int_equal(generation, 1);
    /* Nothing comes before ASSIGNED is acknowledged. */
    cw_advance(g->w, SECOND);
    assert_int_equal(g->w->fetch_count, 0);
    kc_event *e = gw_expect(o, KC_EVENT_ASSIGNED, 2);
    kc_topic_partition tp[2];
    assert_int_equal(kc_event_partitions(e, tp, sizeof *tp, 2), 2);
    assert_int_equal(tp[0].topic, g->w->topic[t]);
    assert_int_equal(tp[0].partition, 0);
    assert_int_equal(tp[1].partition, 1);
    cw_advance(g->w, SECOND);
    assert_int_equal(g->w->fetch_count, 0);
    assert_int_equal(kc_handover_ack(e->handover), KC_OK);
    assert_int_equal(kc_handover_ack(e->handover), KC_OK); /* once more changes nothing */
    gw_drop_event(e);
    gw_consume(o, SECOND);
    cw_expect(g->w, t, 0, 0, 20);
    cw_expect(g->w, t, 1, 15, 20);
    assert_true(g->count[KW_API_HEARTBEAT] > 0);
    gw_free(g);
}

static void an_acknowledgement_by_poll_and_by_free(void **state) {
    (void)state;
    for (int by_free = 0; by_free < 2; by_free++) {
        struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest"));
        int t = cw_topic(g->w, "t", 1, 1);
        struct gw_consumer *o = gw_add(g, NULL);
        log_fill(&g->w->logs[t][0], 10, 10, 0);
        gw_subscribe(o, t);
        gw_until(o, KC_GROUP_STABLE, SECOND);
        kc_event *e = gw_expect(o, KC_EVENT_ASSIGNED, 1);
        if (by_free)
            gw_drop_event(e);
        else
            assert_null(gw_poll(o));
        cw_advance(g->w, SECOND);
        assert_true(g->w->fetch_count > 0);
        if (!by_free) gw_drop_event(e);
        gw_free(g);
    }
}

static void offsets_kept_elsewhere_are_sought_first(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest"));
    int t = cw_topic(g->w, "t", 2, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    for (int p = 0; p < 2; p++) log_fill(&g->w->logs[t][p], 20, 10, 0);
    gw_subscribe(o, t);
    /* Before the first ASSIGNED: of any partition. */
    kc_topic_partition tp = {.topic = g->w->topic[t], .partition = 1, .offset = 7};
    kc_consume_seek(o->c, &tp, sizeof tp, 1, g->w->net->now.mono_us);
    assert_int_equal(tp.err, KC_OK);
    gw_until(o, KC_GROUP_STABLE, SECOND);
    kc_event *e = gw_expect(o, KC_EVENT_ASSIGNED, 2);
    tp = (kc_topic_partition){.topic = g->w->topic[t], .partition = 0, .offset = 12};
    kc_consume_seek(o->c, &tp, sizeof tp, 1, g->w->net->now.mono_us);
    assert_int_equal(tp.err, KC_OK);
    gw_drop_event(e);
    tp = (kc_topic_partition){.topic = g->w->topic[t], .partition = 5, .offset = 12};
    kc_consume_seek(o->c, &tp, sizeof tp, 1, g->w->net->now.mono_us);
    assert_int_equal(tp.err, KC_NOT_ASSIGNED);
    gw_consume(o, SECOND);
    cw_expect(g->w, t, 0, 12, 20);
    cw_expect(g->w, t, 1, 7, 20);
    gw_free(g);
}

static void nothing_to_share_out_is_told_too(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "allow.auto.create.topics", "false"));
    struct gw_consumer *o = gw_add(g, NULL);
    int32_t missing = kc_metadata_intern(g->w->net->core, "missing", 7);
    assert_int_equal(kc_group_subscribe(o->c, &missing, 1, NULL), KC_OK);
    gw_until(o, KC_GROUP_STABLE, 3 * SECOND);
    gw_drop_event(gw_expect(o, KC_EVENT_ASSIGNED, 0));
    /* It comes to be: taken up, from its beginning (CC-13). */
    int t = cw_topic(g->w, "missing", 2, 1);
    assert_int_equal(g->w->topic[t], missing);
    log_fill(&g->w->logs[t][0], 10, 10, 0);
    gw_consume(o, 20 * SECOND);
    assert_int_equal(gw_parts(o), 2);
    cw_expect(g->w, t, 0, 0, 10);
    gw_free(g);
}

static void a_subscription_is_refused(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g"));
    int t = cw_topic(g->w, "t", 1, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    kc_topic_partition tp = {.topic = g->w->topic[t], .partition = 0, .offset = 0};
    assert_int_equal(kc_consume_assign(o->c, &tp, sizeof tp, 1, g->w->net->now.mono_us), KC_OK);
    assert_int_equal(gw_subscribe(o, t), KC_INVALID);
    assert_int_equal(kc_consume_assign(o->c, NULL, sizeof tp, 0, g->w->net->now.mono_us), KC_OK);
    assert_int_equal(gw_subscribe(o, t), KC_OK);
    assert_int_equal(kc_consume_assign(o->c, &tp, sizeof tp, 1, g->w->net->now.mono_us), KC_INVALID);
    gw_free(g);
}

/* ---- Rebalances ---- */

/* A member with both partitions of a topic, ten records of each taken, ten fetched and not taken. */
static struct gw *with_both(int *t, struct gw_consumer **o, const char *assignor) {
    struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest", "max.poll.records", "10", "partition.assignment.strategy", assignor,
                                "auto.commit.interval.ms", "1000000"));
    *t = cw_topic(g->w, "t", 2, 1);
    *o = gw_add(g, NULL);
    for (int p = 0; p < 2; p++) log_fill(&g->w->logs[*t][p], 20, 10, 0);
    gw_subscribe(*o, *t);
    gw_until(*o, KC_GROUP_STABLE, SECOND);
    gw_drop_event(gw_expect(*o, KC_EVENT_ASSIGNED, 2));
    cw_advance(g->w, SECOND);
    for (int i = 0; i < 2; i++) {
        kc_event *e = gw_expect(*o, KC_EVENT_RECORDS, -1);
        assert_int_equal(e->count, 10);
        cw_note(g->w, e);
        gw_drop_event(e);
    }
    return g;
}

static void eager_revokes_all_first(void **state) {
    (void)state;
    int t;
    struct gw_consumer *o;
    struct gw *g = with_both(&t, &o, "range");
    (void)gw_foreign(g, "f", "range", "t");
    gw_until(o, KC_GROUP_REVOKE, 5 * SECOND);
    assert_int_equal(gw_member_count(g), 2);
    /* REVOKED is in front of what was fetched, which is dropped (CC-07). */
    kc_event *e = gw_expect(o, KC_EVENT_REVOKED, 2);
    assert_true(kc_handover_deadline(e->handover) < g->w->net->now.mono_us + 300 * SECOND);
    cw_advance(g->w, SECOND);
    assert_int_equal(g->phase, GW_PREPARING); /* the group waits for the acknowledgement */
    assert_int_equal(gw_parts(o), 2);
    assert_int_equal(kc_handover_ack(e->handover), KC_OK);
    assert_int_equal(gw_parts(o), 0);
    gw_drop_event(e);
    gw_until(o, KC_GROUP_STABLE, SECOND);
    /* What was processed is committed before: both events were passed by the polls behind them. */
    assert_int_equal(g->committed[t][0], 10);
    assert_int_equal(g->committed[t][1], 10);
    assert_int_equal(g->generation, 2);
    assert_string_equal(g->reason, "the group rebalances");
    gw_drop_event(gw_expect(o, KC_EVENT_ASSIGNED, 1));
    gw_consume(o, SECOND);
    int32_t kept = cw_part(g->w, t, 0) ? 0 : 1;
    cw_expect(g->w, t, kept, 0, 20);
    cw_expect(g->w, t, 1 - kept, 0, 10);
    gw_free(g);
}

static void cooperative_keeps_what_stays(void **state) {
    (void)state;
    int t;
    struct gw_consumer *o;
    struct gw *g = with_both(&t, &o, "cooperative-sticky");
    (void)gw_foreign(g, "f", "cooperative-sticky", "t");
    gw_until(o, KC_GROUP_REVOKE, 5 * SECOND); /* of the generation that leaves one partition to nobody */
    assert_int_equal(g->generation, 2);
    kc_event *e = gw_expect(o, KC_EVENT_REVOKED, 1);
    kc_topic_partition gone;
    (void)kc_event_partitions(e, &gone, sizeof gone, 1);
    int32_t kept = 1 - gone.partition;
    /* The other goes on, also before the acknowledgement. */
    assert_false(cw_part(g->w, t, kept)->held);
    assert_int_equal(cw_part(g->w, t, kept)->position, 10);
    assert_int_equal(kc_handover_ack(e->handover), KC_OK);
    gw_drop_event(e);
    assert_null(kc_part_find(o->c, gone.topic, gone.partition));
    gw_consume(o, SECOND);
    assert_int_equal(g->committed[t][gone.partition], 10);
    assert_int_equal(g->generation, 3);
    assert_int_equal(gw_state(o), KC_GROUP_STABLE);
    assert_int_equal(cw_count(g->w, KC_EVENT_ASSIGNED, -1), 0); /* nothing new */
    cw_expect(g->w, t, kept, 0, 20);
    cw_expect(g->w, t, gone.partition, 0, 10);
    assert_int_equal(gw_parts(o), 1);
    gw_free(g);
}

/* CC-08: a partition that stays is not delivered twice when the subscription changes, nor when it is resumed without having been paused. */
static void cc_08_another_subscription_moves_no_position(void **state) {
    (void)state;
    int t;
    struct gw_consumer *o;
    struct gw *g = with_both(&t, &o, "cooperative-sticky");
    int u = cw_topic(g->w, "u", 1, 1);
    log_fill(&g->w->logs[u][0], 10, 10, 0);
    assert_int_equal(cw_pause(g->w, t, 0, false), KC_OK);
    int32_t both[] = {g->w->topic[t], g->w->topic[u]};
    assert_int_equal(kc_group_subscribe(o->c, both, 2, NULL), KC_OK);
    gw_consume(o, 2 * SECOND);
    assert_string_equal(g->reason, "the subscription changed");
    assert_int_equal(gw_parts(o), 3);
    cw_expect(g->w, t, 0, 0, 20);
    cw_expect(g->w, t, 1, 0, 20);
    cw_expect(g->w, u, 0, 0, 10);
    /* And one topic fewer: its partitions are revoked before the group is joined. */
    assert_int_equal(kc_group_subscribe(o->c, &both[1], 1, NULL), KC_OK);
    cw_advance(g->w, SECOND);
    gw_drop_event(gw_expect(o, KC_EVENT_REVOKED, 2));
    gw_consume(o, SECOND);
    assert_int_equal(gw_parts(o), 1);
    gw_free(g);
}

static void a_pause_lasts(void **state) {
    (void)state;
    for (int cooperative = 0; cooperative < 2; cooperative++) {
        int t;
        struct gw_consumer *o;
        struct gw *g = with_both(&t, &o, cooperative ? "cooperative-sticky" : "range");
        for (int p = 0; p < 2; p++) assert_int_equal(cw_pause(g->w, t, p, true), KC_OK);
        struct gm *f = gw_foreign(g, "f", cooperative ? "cooperative-sticky" : "range", "t");
        gw_consume(o, 5 * SECOND);
        assert_int_equal(gw_state(o), KC_GROUP_STABLE);
        assert_int_equal(gw_parts(o), 1);
        int32_t kept = cw_part(g->w, t, 0) ? 0 : 1;
        assert_true(cw_part(g->w, t, kept)->paused);
        cw_expect(g->w, t, kept, 0, 10);
        gw_remove(g, f);
        gw_consume(o, 5 * SECOND);
        assert_int_equal(gw_parts(o), 2);
        assert_true(cw_part(g->w, t, kept)->paused);
        assert_false(cw_part(g->w, t, 1 - kept)->paused); /* it was somebody else's meanwhile */
        gw_free(g);
    }
}

/* Two members in one client: neither waits behind the other. */
static void two_members_of_one_client(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest"));
    int t = cw_topic(g->w, "t", 2, 1);
    struct gw_consumer *a = gw_add(g, NULL), *b = gw_add(g, NULL);
    for (int p = 0; p < 2; p++) log_fill(&g->w->logs[t][p], 10, 10, 0);
    gw_subscribe(a, t);
    gw_until(a, KC_GROUP_STABLE, SECOND);
    gw_drop_event(gw_expect(a, KC_EVENT_ASSIGNED, 2));
    gw_subscribe(b, t);
    gw_until(b, KC_GROUP_JOIN, SECOND);
    gw_until(a, KC_GROUP_REVOKE, 5 * SECOND);
    gw_drop_event(gw_expect(a, KC_EVENT_REVOKED, 2));
    gw_until(a, KC_GROUP_STABLE, SECOND);
    gw_until(b, KC_GROUP_STABLE, SECOND);
    gw_drop_event(gw_expect(a, KC_EVENT_ASSIGNED, 1));
    gw_drop_event(gw_expect(b, KC_EVENT_ASSIGNED, 1));
    assert_int_equal(gw_member_count(g), 2);
    /* One leaves. */
    kc_group_unsubscribe(b->c);
    assert_int_equal(gw_parts(b), 0);
    gw_until(b, KC_GROUP_IDLE, SECOND);
    assert_string_equal(g->left, "m1");
    gw_consume(a, 5 * SECOND);
    assert_int_equal(gw_parts(a), 2);
    gw_free(g);
}

/* ---- What is lost ---- */

static int16_t refuse_beats(struct gw *g, struct request *rq) {
    return rq->head.api_key == KW_API_HEARTBEAT ? (int16_t)(intptr_t)g->ctx : KE_NONE;
}

static void a_member_that_was_put_out_loses_all(void **state) {
    (void)state;
    const int16_t errors[] = {KE_UNKNOWN_MEMBER_ID, KE_ILLEGAL_GENERATION};
    for (size_t i = 0; i < KW_COUNTOF(errors); i++) {
        int t;
        struct gw_consumer *o;
        struct gw *g = with_both(&t, &o, "cooperative-sticky");
        g->ctx = (void *)(intptr_t)errors[i];
        g->script = refuse_beats;
        for (int k = 0; k < 5000 && kw_list_empty(&o->c->news); k++) cw_advance(g->w, 1000);
        g->script = NULL;
        if (errors[i] == KE_UNKNOWN_MEMBER_ID) gw_remove(g, gw_member(g, kw_str_of("m0")));
        kc_event *e = gw_expect(o, KC_EVENT_LOST, 2);
        assert_int_equal(kc_handover_ack(e->handover), KC_OK); /* needs none */
        gw_drop_event(e);
        gw_until(o, KC_GROUP_STABLE, 5 * SECOND);
        gw_drop_event(gw_expect(o, KC_EVENT_ASSIGNED, 2));
        char id[16];
        (void)kc_group_member(o->c, NULL, id, sizeof id);
        assert_string_equal(id, errors[i] == KE_UNKNOWN_MEMBER_ID ? "m1" : "m0");
        assert_int_equal(g->committed[t][0], -1); /* what is lost is not committed */
        gw_free(g);
    }
}

static void an_acknowledgement_that_comes_too_late(void **state) {
    (void)state;
    int t;
    struct gw_consumer *o;
    struct gw *g = with_both(&t, &o, "range");
    (void)gw_foreign(g, "f", "range", "t");
    gw_until(o, KC_GROUP_REVOKE, 5 * SECOND);
    cw_advance(g->w, 250 * (int64_t)SECOND);
    kc_event *e = gw_expect(o, KC_EVENT_REVOKED, 2);
    cw_advance(g->w, 60 * SECOND);
    assert_int_equal(kc_handover_ack(e->handover), KC_LOST);
    gw_drop_event(e);
    gw_drop_event(gw_expect(o, KC_EVENT_LOST, 2));
    gw_until(o, KC_GROUP_STABLE, 5 * SECOND); /* it has joined again by itself: the application is there */
    gw_drop_event(gw_expect(o, KC_EVENT_ASSIGNED, 1));
    assert_int_equal(g->committed[t][0], -1);
    gw_free(g);
}

static void a_consumer_that_is_not_polled_leaves(void **state) {
    (void)state;
    int t;
    struct gw_consumer *o;
    struct gw *g = with_both(&t, &o, "range");
    cw_advance(g->w, 290 * (int64_t)SECOND);
    assert_int_equal(gw_parts(o), 2);
    cw_advance(g->w, 20 * SECOND);
    assert_int_equal(gw_state(o), KC_GROUP_OUT);
    assert_int_equal(gw_parts(o), 0);
    assert_string_equal(g->left, "m0");
    int joins = g->count[KW_API_JOIN_GROUP];
    cw_advance(g->w, 400 * (int64_t)SECOND);
    assert_int_equal(g->count[KW_API_JOIN_GROUP], joins);
    gw_drop_event(gw_expect(o, KC_EVENT_LOST, 2));
    gw_until(o, KC_GROUP_STABLE, 5 * SECOND);
    gw_drop_event(gw_expect(o, KC_EVENT_ASSIGNED, 2));
    assert_string_equal(g->reason, "poll is called again");
    /* Polled often enough it stays. */
    for (int i = 0; i < 10; i++) {
        cw_advance(g->w, 100 * (int64_t)SECOND);
        kc_event *e = gw_poll(o);
        if (e) gw_drop_event(e);
    }
    assert_int_equal(gw_state(o), KC_GROUP_STABLE);
    gw_free(g);
}

static void silence_ends_the_session(void **state) {
    (void)state;
    int t;
    struct gw_consumer *o;
    struct gw *g = with_both(&t, &o, "cooperative-sticky");
    g->w->net->brokers[0].silent = true;
    cw_advance(g->w, 40 * SECOND);
    assert_int_equal(gw_parts(o), 2);
    cw_advance(g->w, 10 * SECOND);
    assert_int_equal(gw_parts(o), 0);
    gw_drop_event(gw_expect(o, KC_EVENT_LOST, 2));
    g->w->net->brokers[0].silent = false;
    gw_consume(o, 60 * SECOND);
    assert_int_equal(gw_state(o), KC_GROUP_STABLE);
    assert_int_equal(gw_parts(o), 2);
    gw_free(g);
}

static void a_fenced_instance_is_told_and_fatal(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest", "group.instance.id", "i1"));
    int t = cw_topic(g->w, "t", 1, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    gw_subscribe(o, t);
    gw_until(o, KC_GROUP_STABLE, SECOND);
    assert_int_equal(g->count[KW_API_JOIN_GROUP], 1); /* a static member is known by its name at once */
    gw_drop_event(gw_expect(o, KC_EVENT_ASSIGNED, 1));
    g->ctx = (void *)(intptr_t)KE_FENCED_INSTANCE_ID;
    g->script = refuse_beats;
    cw_advance(g->w, 5 * SECOND);
    assert_int_equal(gw_state(o), KC_GROUP_FAILED);
    gw_drop_event(gw_expect(o, KC_EVENT_LOST, 1));
    kc_event *e = gw_expect(o, KC_EVENT_ERROR, 0);
    assert_int_equal(kc_error_code(kc_event_error(e)), KE_FENCED_INSTANCE_ID);
    assert_int_equal(kc_error_fatal(kc_event_error(e)), 1);
    gw_drop_event(e);
    assert_int_equal(kc_group_assigned(o->c), KE_FENCED_INSTANCE_ID);
    int joins = g->count[KW_API_JOIN_GROUP];
    gw_consume(o, 100 * (int64_t)SECOND);
    assert_int_equal(g->count[KW_API_JOIN_GROUP], joins);
    gw_free(g);
}

/* ---- Leaving ---- */

static void closing_commits_and_leaves(void **state) {
    (void)state;
    for (int is_static = 0; is_static < 2; is_static++) {
        struct gw *g = gw_new(is_static ? PAIRS("group.id", "g", "auto.offset.reset", "earliest", "group.instance.id", "i1")
                                        : PAIRS("group.id", "g", "auto.offset.reset", "earliest"));
        int t = cw_topic(g->w, "t", 1, 1);
        struct gw_consumer *o = gw_add(g, NULL);
        log_fill(&g->w->logs[t][0], 10, 10, 0);
        gw_subscribe(o, t);
        gw_consume(o, SECOND);
        kc_group_close(o->c, g->w->net->now.mono_us + 5 * SECOND);
        assert_int_equal(gw_parts(o), 0);
        cw_advance(g->w, SECOND);
        assert_true(kc_group_gone(o->c));
        assert_int_equal(g->count[KW_API_LEAVE_GROUP], !is_static);
        assert_int_equal(g->committed[t][0], 10);
        gw_free(g);
    }
}

static int16_t leave_code; /* of the next so many answers to LeaveGroup */
static int leave_codes;
static int16_t refuse_leaving(struct gw *g, struct request *rq) {
    (void)g;
    return rq->head.api_key == KW_API_LEAVE_GROUP && leave_codes > 0 && leave_codes-- ? leave_code : KE_NONE;
}

/* The coordinator moves, or loads, just then: it is told again; not for ever. */
static void leaving_is_told_again(void **state) {
    (void)state;
    static const int16_t codes[] = {KE_NOT_COORDINATOR, KE_COORDINATOR_NOT_AVAILABLE, KE_COORDINATOR_LOAD_IN_PROGRESS, KE_GROUP_AUTHORIZATION_FAILED};
    for (size_t i = 0; i < KW_COUNTOF(codes); i++) {
        for (int ever = 0; ever < 2; ever++) {
            struct gw *g = gw_new(PAIRS("group.id", "g", "auto.offset.reset", "earliest"));
            int t = cw_topic(g->w, "t", 1, 1);
            struct gw_consumer *o = gw_add(g, NULL);
            gw_subscribe(o, t);
            gw_consume(o, SECOND);
            leave_code = codes[i];
            leave_codes = ever ? 1000000 : 2;
            g->script = refuse_leaving;
            bool lasting = codes[i] == KE_GROUP_AUTHORIZATION_FAILED;
            kc_group_close(o->c, g->w->net->now.mono_us + 5 * SECOND);
            cw_advance(g->w, 3 * SECOND);
            assert_int_equal(kc_group_gone(o->c), !ever || lasting);
            cw_advance(g->w, 3 * SECOND);
            assert_true(kc_group_gone(o->c));
            int told = g->count[KW_API_LEAVE_GROUP];
            assert_in_range(told, lasting ? 1 : 3, lasting ? 1 : ever ? 30 : 3);
            assert_int_equal(*g->left != 0, !ever && !lasting);
            gw_free(g);
        }
    }
}

static void closing_keeps_its_deadline(void **state) {
    (void)state;
    int t;
    struct gw_consumer *o;
    struct gw *g = with_both(&t, &o, "range");
    g->w->net->brokers[0].silent = true;
    kc_group_close(o->c, g->w->net->now.mono_us + 5 * SECOND);
    cw_advance(g->w, 4900000);
    assert_false(kc_group_gone(o->c));
    cw_advance(g->w, 200000);
    assert_true(kc_group_gone(o->c));
    gw_free(g);
}

/* ---- Coordinators ---- */

static void another_coordinator_is_no_rebalance(void **state) {
    (void)state;
    int t;
    struct gw_consumer *o;
    struct gw *g = with_both(&t, &o, "range");
    net_broker(g->w->net, 2, "b1", 9093);
    kc_metadata_refresh(g->w->net->core, "test");
    cw_advance(g->w, SECOND);
    g->coordinator = 2;
    int joins = g->count[KW_API_JOIN_GROUP];
    gw_consume(o, 20 * SECOND);
    assert_int_equal(g->count[KW_API_JOIN_GROUP], joins);
    assert_int_equal(gw_state(o), KC_GROUP_STABLE);
    assert_int_equal(g->count[KW_API_FIND_COORDINATOR], 2);
    gw_free(g);
}

/* CC-14: limits beyond what the protocol can carry saturate. */
static void cc_14_limits_saturate(void **state) {
    (void)state;
    struct gw *g = gw_new(PAIRS("group.id", "g", "max.poll.interval.ms", "2147483647"));
    int t = cw_topic(g->w, "t", 1, 1);
    struct gw_consumer *o = gw_add(g, NULL);
    gw_subscribe(o, t);
    (void)gw_foreign(g, "f", "range", "t");
    g->members[0].idle = true;
    cw_advance(g->w, SECOND);
    assert_int_equal(gw_state(o), KC_GROUP_JOIN);
    cw_advance(g->w, 1000 * (int64_t)SECOND); /* the answer is waited for, whatever request.timeout.ms is */
    assert_int_equal(gw_state(o), KC_GROUP_JOIN);
    g->members[0].idle = false;
    gw_complete(g);
    gw_until(o, KC_GROUP_STABLE, SECOND);
    gw_free(g);
}

/* CC-13: what was added since the member joined is read from its beginning, though auto.offset.reset says latest. */
static void cc_13_added_partitions_begin_at_their_beginning(void **state) {
    (void)state;
    for (int policy = 0; policy < 2; policy++) {
        struct gw *g = gw_new(policy ? PAIRS("group.id", "g", "auto.offset.reset", "latest", "added.partitions.reset", "policy", "metadata.max.age.ms", "10000")
                                     : PAIRS("group.id", "g", "auto.offset.reset", "latest", "metadata.max.age.ms", "10000"));
        int t = cw_topic(g->w, "t", 2, 1);
        struct gw_consumer *o = gw_add(g, NULL);
        log_fill(&g->w->logs[t][0], 10, 10, 0);
        gw_subscribe(o, t);
        gw_consume(o, SECOND);
        assert_int_equal(gw_parts(o), 2);
        g->w->net->topics[t].partitions = 3;
        log_fill(&g->w->logs[t][2], 100, 10, 0);
        gw_consume(o, 15 * SECOND); /* metadata.max.age.ms, and a rebalance */
        assert_int_equal(gw_parts(o), 3);
        cw_expect(g->w, t, 0, 0, 0);
        cw_expect(g->w, t, 2, 0, policy ? 0 : 100);
        gw_free(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_member_joins_and_reads),
        cmocka_unit_test(an_acknowledgement_by_poll_and_by_free),
        cmocka_unit_test(offsets_kept_elsewhere_are_sought_first),
        cmocka_unit_test(nothing_to_share_out_is_told_too),
        cmocka_unit_test(a_subscription_is_refused),
        cmocka_unit_test(eager_revokes_all_first),
        cmocka_unit_test(cooperative_keeps_what_stays),
        cmocka_unit_test(cc_08_another_subscription_moves_no_position),
        cmocka_unit_test(a_pause_lasts),
        cmocka_unit_test(two_members_of_one_client),
        cmocka_unit_test(a_member_that_was_put_out_loses_all),
        cmocka_unit_test(an_acknowledgement_that_comes_too_late),
        cmocka_unit_test(a_consumer_that_is_not_polled_leaves),
        cmocka_unit_test(silence_ends_the_session),
        cmocka_unit_test(a_fenced_instance_is_told_and_fatal),
        cmocka_unit_test(closing_commits_and_leaves),
        cmocka_unit_test(leaving_is_told_again),
        cmocka_unit_test(closing_keeps_its_deadline),
        cmocka_unit_test(another_coordinator_is_no_rebalance),
        cmocka_unit_test(cc_14_limits_saturate),
        cmocka_unit_test(cc_13_added_partitions_begin_at_their_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
