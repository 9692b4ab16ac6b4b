/* Commits: what is processed, when it is committed, in which order, and what every answer of the coordinator leads to. Each case of
 * bug-cases is named by its id. */
#include "commit_peer.h"

#define AUTO_OFF "enable.auto.commit", "false"
#define EARLIEST "auto.offset.reset", "earliest"

static void begin(struct cg *g, int32_t partition, int n, int64_t from) { /* n records in it, assigned */
    log_fill(&g->w->logs[0][partition], n, 10, 0);
    assert_int_equal(cw_assign(g->w, 0, partition, from), KC_OK);
}

/* ---- What is processed ---- */

static void test_by_poll_commits_what_poll_went_past(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100", "max.poll.records", "4"));
    cg_put(g, 0, 3, -1);
    begin(g, 0, 20, KC_OFFSET_COMMITTED);
    cw_advance(g->w, 300000);
    assert_int_equal(cw_position(g->w, 0, 0), 3);
    assert_int_equal(g->commits, 0); /* nothing was handed out */
    assert_int_equal(cg_poll(g), KC_EVENT_RECORDS);
    cw_expect(g->w, 0, 0, 3, 7);
    cw_advance(g->w, 1000000);
    assert_int_equal(g->commits, 0); /* the application has it in its hands */
    assert_int_equal(cg_poll(g), KC_EVENT_RECORDS);
    cw_advance(g->w, 110000);
    assert_int_equal(cg_stored(g, 0), 7);
    cw_advance(g->w, 1000000);
    assert_int_equal(g->commits, 1); /* nothing more to say */
    cg_poll_until(g, 0, 17);
    cw_advance(g->w, 110000);
    assert_int_equal(cg_stored(g, 0), 18); /* the last two are in hand */
    assert_int_equal(cg_poll(g), 0);
    cw_advance(g->w, 110000);
    assert_int_equal(cg_stored(g, 0), 20);
    assert_int_equal(g->generation, -1);
    assert_string_equal(g->member_id, "");
    assert_false(g->has_instance);
    cg_free(g);
}

static kc_err take_one(struct cg *g) {
    kc_event *e = NULL;
    kc_consume_passed(&g->w->c);
    kc_err err = kc_consume_one(&g->w->c, &e);
    assert_null(e);
    return err;
}

static void test_by_poll_one_record_at_a_time(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100"));
    cg_put(g, 0, 0, -1);
    begin(g, 0, 20, KC_OFFSET_COMMITTED);
    cw_advance(g->w, 300000);
    for (int64_t i = 0; i < 20; i++) {
        assert_int_equal(take_one(g), KC_OK);
        cw_advance(g->w, 110000);
        assert_int_equal(cg_stored(g, 0), i); /* not the one in hand */
        assert_int_equal(g->stored[0][0].epoch, i == 0 ? -1 : 0); /* of the record before */
        if (i == 12) { /* what was fetched is dropped, and the record in hand stays in hand */
            kc_lock_take(&g->w->c.lock);
            struct kc_part *p = cw_part(g->w, 0, 0);
            kc_part_restart(p, kc_part_position(p), p->position_epoch, 0);
            g->w->c.kick(g->w);
            kc_lock_give(&g->w->c.lock);
            cw_advance(g->w, 110000);
            assert_int_equal(cg_stored(g, 0), i);
        }
    }
    assert_int_equal(take_one(g), KC_BUSY);
    cw_advance(g->w, 110000);
    assert_int_equal(cg_stored(g, 0), 20);
    cg_free(g);
}

/* Where auto.offset.reset begins is committed, so that the next start does not skip what comes until then; what a seek says is not, before
 * something from there was processed. */
static void test_where_it_begins(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS("auto.offset.reset", "latest", "auto.commit.interval.ms", "100", "max.poll.records", "5"));
    begin(g, 0, 20, KC_OFFSET_COMMITTED);
    cw_advance(g->w, 300000);
    assert_int_equal(cg_stored(g, 0), 20);
    assert_int_equal(cw_seek(g->w, 0, 0, 4), KC_OK);
    cw_advance(g->w, 300000);
    assert_int_equal(cg_stored(g, 0), 20);
    assert_int_equal(cg_poll(g), KC_EVENT_RECORDS);
    cw_advance(g->w, 300000);
    assert_int_equal(cg_stored(g, 0), 20);
    (void)cg_poll(g);
    cw_advance(g->w, 300000);
    assert_int_equal(cg_stored(g, 0), 9); /* back, as was asked */
    assert_int_equal(cw_seek(g->w, 0, 0, KC_OFFSET_END), KC_OK);
    cw_advance(g->w, 300000);
    assert_int_equal(cg_stored(g, 0), 9);
    assert_int_equal(cw_assign(g->w, 0, 1, 0), KC_OK); /* as does an assignment that says where */
    cw_advance(g->w, 300000);
    assert_int_equal(cg_stored(g, 1), -1);
    cg_free(g);
}

static kc_err say(struct cg *g, int32_t partition, int64_t offset) {
    kc_topic_partition tp = {.topic = g->w->topic[0], .partition = partition, .offset = offset};
    kc_consume_processed(&g->w->c, &tp, sizeof tp, 1, true);
    return tp.err;
}

static void test_explicit_commits_what_the_application_says(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_EXPLICIT, PAIRS(EARLIEST, "auto.commit.interval.ms", "100", "max.poll.records", "5"));
    cg_put(g, 0, 0, -1);
    begin(g, 0, 20, KC_OFFSET_COMMITTED);
    assert_int_equal(say(g, 0, 1), KC_INVALID); /* nothing is delivered yet */
    cg_poll_until(g, 0, 10);
    cw_advance(g->w, 300000);
    assert_int_equal(g->commits, 0); /* poll says nothing */
    assert_int_equal(say(g, 0, 4), KC_OK);
    assert_int_equal(say(g, 0, 3), KC_OK); /* never goes back */
    assert_int_equal(say(g, 0, 11), KC_INVALID);
    assert_int_equal(say(g, 0, -1), KC_INVALID);
    assert_int_equal(say(g, 1, 1), KC_NOT_ASSIGNED);
    cw_advance(g->w, 110000);
    assert_int_equal(cg_stored(g, 0), 4);
    assert_int_equal(say(g, 0, 10), KC_OK);
    assert_int_equal(cw_seek(g->w, 0, 0, 6), KC_OK); /* a seek begins anew */
    cw_advance(g->w, 110000);
    assert_int_equal(cg_stored(g, 0), 4);
    assert_int_equal(say(g, 0, 10), KC_INVALID); /* late news of before the seek */
    cg_poll_until(g, 0, 15);
    assert_int_equal(say(g, 0, 7), KC_OK);
    cw_advance(g->w, 110000);
    assert_int_equal(cg_stored(g, 0), 7);
    kc_topic_partition tp = {.topic = g->w->topic[0], .partition = 0, .offset = 8};
    kc_consume_processed(&g->w->c, &tp, sizeof tp, 1, false); /* of a consumer by poll */
    assert_int_equal(tp.err, KC_INVALID);
    cg_free(g);
}

/* CC-03: what has no records to deliver moves the committed offset too. */
static void test_cc03_the_committed_offset_passes_markers(void **state) {
    (void)state;
    for (kc_processed_mode mode = KC_PROCESSED_BY_POLL; mode <= KC_PROCESSED_EXPLICIT; mode++) {
        struct cg *g = cg_new(mode, PAIRS(EARLIEST, "auto.commit.interval.ms", "100"));
        cg_put(g, 0, 0, -1);
        begin(g, 0, 10, KC_OFFSET_COMMITTED);
        cg_poll_until(g, 0, 10);
        assert_int_equal(say(g, 0, 10), KC_OK);
        (void)cg_poll(g);
        cw_advance(g->w, 110000);
        assert_int_equal(cg_stored(g, 0), 10);
        log_marker(&g->w->logs[0][0], 7, true);
        for (int i = 0; i < 200; i++) {
            assert_int_equal(cg_poll(g), 0);
            cw_advance(g->w, 5000);
        }
        assert_int_equal(cg_stored(g, 0), 11);
        kc_topic_partition tp = {.topic = g->w->topic[0], .partition = 0};
        kc_consume_lag(&g->w->c, &tp, sizeof tp, 1);
        assert_int_equal(tp.err, KC_OK);
        assert_int_equal(tp.offset, 0);
        cg_free(g);
    }
}

static void test_lag(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "max.poll.records", "5"));
    kc_topic_partition tp[2] = {{.topic = g->w->topic[0], .partition = 0}, {.topic = g->w->topic[0], .partition = 1}};
    begin(g, 0, 20, KC_OFFSET_COMMITTED);
    kc_consume_lag(&g->w->c, tp, sizeof tp[0], 2);
    assert_int_equal(tp[0].offset, -1); /* not known yet */
    assert_int_equal(tp[1].err, KC_NOT_ASSIGNED);
    cg_poll_until(g, 0, 5);
    kc_consume_lag(&g->w->c, tp, sizeof tp[0], 1);
    assert_int_equal(tp[0].err, KC_OK);
    assert_int_equal(tp[0].offset, 15);
    cg_free(g);
}

/* ---- Calls ---- */

static void test_every_version_of_a_commit(void **state) {
    (void)state;
    for (int16_t v = 2; v <= kw_api_by_key(KW_API_OFFSET_COMMIT)->max; v++) {
        struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
        struct ct c;
        g->w->net->api_min[KW_API_OFFSET_COMMIT] = g->w->net->api_max[KW_API_OFFSET_COMMIT] = v;
        begin(g, 0, 20, 0);
        cw_advance(g->w, 100000);
        ct_init(&c, g, 5000000);
        ct_add(&c, 0, 7, "h\xc3\xa9")->at.leader_epoch = 3;
        (void)ct_add(&c, 2, 9, NULL); /* not assigned: a manual assignment may commit any */
        (void)ct_add(&c, 1, 8, NULL);
        ct_begin(&c);
        assert_int_equal(c.done, 0); /* not from inside */
        cw_advance(g->w, 100000);
        ct_end(&c);
        for (size_t i = 0; i < 3; i++) assert_int_equal(c.items[i].at.err, KC_OK);
        assert_int_equal(g->version, v);
        assert_int_equal(g->commits, 1);
        assert_int_equal(cg_stored(g, 0), 7);
        assert_int_equal(cg_stored(g, 1), 8);
        assert_int_equal(cg_stored(g, 2), 9);
        assert_int_equal(g->stored[0][0].epoch, v >= 6 ? 3 : -1);
        assert_int_equal(g->stored[0][1].epoch, -1);
        assert_memory_equal(g->stored[0][0].metadata, "h\xc3\xa9", 3);
        assert_int_equal(g->generation, -1);
        cg_free(g);
    }
}

/* Topics without an id go by name, also to brokers that know ids. */
static void test_a_topic_without_an_id(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct ct c;
    ct_commit(&c, g, 0, 5); /* its metadata was never asked for */
    cw_advance(g->w, 100000);
    ct_expect(&c, KC_OK);
    assert_int_equal(g->version, 9);
    assert_int_equal(cg_stored(g, 0), 5);
    cg_free(g);
}

/* One at a time; what is superseded before it was sent is not sent, and ends as the newer one does. */
static void test_the_newest_wins(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct ct c[6];
    g->hold = true;
    ct_commit(&c[0], g, 0, 10);
    cw_advance(g->w, 100000);
    assert_int_equal(g->commits, 1);
    ct_commit(&c[1], g, 0, 20);
    ct_commit(&c[2], g, 0, 30);
    ct_commit(&c[3], g, 0, 25); /* back, as was asked */
    ct_commit(&c[4], g, 1, 5);
    cw_advance(g->w, 100000);
    assert_int_equal(g->commits, 1);
    for (int i = 0; i < 5; i++) assert_int_equal(c[i].done, 0);
    cg_release(g);
    cw_advance(g->w, 100000);
    for (int i = 0; i < 5; i++) ct_expect(&c[i], KC_OK);
    assert_int_equal(g->commits, 2);
    assert_int_equal(g->history_count, 3);
    assert_int_equal(g->history[0].offset, 10);
    assert_int_equal(cg_stored(g, 0), 25);
    assert_int_equal(cg_stored(g, 1), 5);
    g->hold = true;
    ct_commit(&c[0], g, 0, 40);
    cw_advance(g->w, 1000);
    ct_commit(&c[1], g, 0, 40); /* the same again: the answer under way answers it too */
    cg_release(g);
    cw_advance(g->w, 1000);
    ct_expect(&c[0], KC_OK);
    ct_expect(&c[1], KC_OK);
    assert_int_equal(g->commits, 3);
    ct_init(&c[0], g, -1); /* nothing to commit */
    ct_begin(&c[0]);
    cw_advance(g->w, 1000);
    ct_end(&c[0]);
    cg_free(g);
}

static void test_a_call_begun_from_a_calls_end(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct ct c, d;
    ct_init(&d, g, -1);
    (void)ct_add(&d, 0, 11, NULL);
    ct_init(&c, g, -1);
    (void)ct_add(&c, 0, 10, NULL);
    c.then = &d;
    ct_begin(&c);
    cw_advance(g->w, 100000);
    ct_expect(&c, KC_OK);
    ct_expect(&d, KC_OK);
    assert_int_equal(cg_stored(g, 0), 11);
    cg_free(g);
}

/* The same partition twice in a call, and items that cannot be. */
static void test_items_that_cannot_be(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct ct c;
    static char large[40000], medium[100];
    memset(large, 'x', sizeof large - 1);
    memset(medium, 'x', sizeof medium - 1);
    ct_init(&c, g, 5000000);
    (void)ct_add(&c, 0, 5, NULL);
    (void)ct_add(&c, 1, -1, NULL);
    (void)ct_add(&c, -1, 1, NULL);
    ct_add(&c, 1, 1, NULL)->at.topic = 77;
    (void)ct_add(&c, 1, 1, "\xff");
    (void)ct_add(&c, 1, 1, "\xed\xa0\x80");
    (void)ct_add(&c, 1, 1, large);
    (void)ct_add(&c, 2, 1, medium); /* the broker's limit */
    (void)ct_add(&c, 7, 1, NULL);   /* no such partition */
    (void)ct_add(&c, 0, 6, "ok");
    ct_add(&c, 3, 1, NULL)->at.metadata = (kc_bytes){NULL, 4};
    ct_begin(&c);
    cw_advance(g->w, 1000000);
    ct_end(&c);
    static const kc_err want[] = {KC_OK,      KC_INVALID, KC_INVALID, KC_INVALID, KC_INVALID, KC_INVALID, KE_OFFSET_METADATA_TOO_LARGE,
                                  KE_OFFSET_METADATA_TOO_LARGE, KE_UNKNOWN_TOPIC_OR_PARTITION, KC_OK, KC_INVALID};
    for (size_t i = 0; i < KW_COUNTOF(want); i++) assert_int_equal(c.items[i].at.err, want[i]);
    assert_int_equal(cg_stored(g, 0), 6);
    assert_int_equal(cg_stored(g, 1), -1);
    assert_int_equal(g->commits, 1);
    cg_free(g);
}

/* ---- Errors that pass ---- */

static void test_passing_errors_are_tried_again(void **state) {
    (void)state;
    static const int16_t codes[] = {KE_NOT_COORDINATOR, KE_COORDINATOR_NOT_AVAILABLE, KE_COORDINATOR_LOAD_IN_PROGRESS, KE_REQUEST_TIMED_OUT,
                                    KE_UNKNOWN_TOPIC_ID};
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct ct c;
    for (size_t i = 0; i < KW_COUNTOF(codes); i++) {
        g->code = codes[i];
        g->codes = 3;
        ct_commit(&c, g, 0, (int64_t)i + 1);
        cw_advance(g->w, 5000000);
        ct_expect(&c, KC_OK);
        assert_int_equal(cg_stored(g, 0), i + 1);
    }
    g->lose = true; /* stored, and nobody said so */
    ct_commit(&c, g, 0, 50);
    cw_advance(g->w, 5000000);
    ct_expect(&c, KC_OK);
    g->skip = true; /* an answer that names nothing */
    ct_commit(&c, g, 0, 51);
    cw_advance(g->w, 2000000);
    assert_int_equal(c.done, 0);
    g->skip = false;
    cw_advance(g->w, 5000000);
    ct_expect(&c, KC_OK);
    g->mute = true; /* no answer in time */
    ct_commit(&c, g, 0, 52);
    cw_advance(g->w, 20000000);
    g->mute = false;
    cw_advance(g->w, 20000000);
    ct_expect(&c, KC_OK);
    assert_int_equal(cg_stored(g, 0), 52);
    g->node = 1; /* the coordinator moves */
    ct_commit(&c, g, 0, 53);
    cw_advance(g->w, 5000000);
    ct_expect(&c, KC_OK);
    assert_int_equal(cg_stored(g, 0), 53);
    cg_free(g);
}

/* An answer may name what nobody asked about; one that goes on for ever with it is no answer. */
static void test_an_answer_full_of_strangers(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct ct c;
    g->strays = 1;
    ct_commit(&c, g, 0, 1);
    cw_advance(g->w, 1000000);
    ct_expect(&c, KC_OK);
    assert_int_equal(g->commits, 1);
    g->strays = 100000;
    ct_commit(&c, g, 0, 2);
    cw_advance(g->w, 1000000);
    assert_int_equal(c.done, 0);
    g->strays = 0;
    cw_advance(g->w, 3000000);
    ct_expect(&c, KC_OK);
    cg_free(g);
}

/* CX-18: the coordinator leaves the metadata while a commit waits for it. */
static void test_cx18_the_coordinator_goes_while_a_commit_waits(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct ct c;
    ct_commit(&c, g, 0, 1);
    cw_advance(g->w, 1000000);
    ct_expect(&c, KC_OK);
    link_lost(net_link(g->w->net, "b1"), KW_EIO, "reset");
    g->w->net->brokers[1].hangs = true;
    ct_init(&c, g, 60000000);
    (void)ct_add(&c, 0, 2, NULL);
    ct_begin(&c);
    cw_advance(g->w, 500000);
    assert_int_equal(c.done, 0);
    g->w->net->brokers[1].id = -1;
    g->node = 1;
    kc_metadata_refresh(g->w->net->core, "the test says so");
    cw_advance(g->w, 3000000);
    ct_expect(&c, KC_OK);
    assert_int_equal(cg_stored(g, 0), 2);
    cg_free(g);
}

static void test_the_limit_of_a_call(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct ct c, d, e;
    g->node = -1;
    ct_init(&c, g, 2000000);
    (void)ct_add(&c, 0, 1, NULL);
    ct_begin(&c);
    cw_advance(g->w, 1999000);
    assert_int_equal(c.done, 0);
    cw_advance(g->w, 2000);
    assert_int_equal(c.items[0].at.err, KC_TIMED_OUT);
    assert_false(c.items[0].sent);
    assert_non_null(c.call.attempts);
    assert_int_equal(kc_attempts_last(c.call.attempts), KE_COORDINATOR_NOT_AVAILABLE);
    ct_end(&c);
    g->node = 2;
    cw_advance(g->w, 5000000);
    assert_int_equal(cg_stored(g, 0), -1); /* what nobody waits for is not committed behind his back */
    g->hold = true;
    ct_init(&c, g, 1000000);
    (void)ct_add(&c, 0, 3, NULL);
    ct_begin(&c);
    cw_advance(g->w, 500000);
    ct_commit(&d, g, 0, 4);
    ct_commit(&e, g, 1, 4);
    cw_advance(g->w, 600000);
    ct_end(&c);
    assert_int_equal(c.items[0].at.err, KC_TIMED_OUT);
    assert_true(c.items[0].sent); /* who knows */
    kc_commits_call_cancel(g->m, &e.call, KC_CANCELLED);
    cg_release(g);
    cw_advance(g->w, 500000);
    ct_expect(&d, KC_OK);
    ct_expect(&e, KC_CANCELLED);
    assert_int_equal(cg_stored(g, 0), 4);
    assert_int_equal(cg_stored(g, 1), -1);
    g->hold = true; /* it gives up while the answer that has it tried again is on its way */
    g->code = KE_COORDINATOR_LOAD_IN_PROGRESS;
    g->codes = 1;
    ct_init(&c, g, 100000);
    (void)ct_add(&c, 1, 3, NULL);
    ct_begin(&c);
    cw_advance(g->w, 200000);
    ct_expect(&c, KC_TIMED_OUT);
    int commits = g->commits;
    cg_release(g);
    cw_advance(g->w, 5000000);
    assert_int_equal(g->commits, commits);
    cg_free(g);
}

/* CX-16: ten thousand commits are under way when the connection to the coordinator breaks: each ends once. */
static void test_cx16_ten_thousand_commits(void **state) {
    (void)state;
    enum { N = 10000 };
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct ct *c = calloc(N, sizeof *c);
    g->mute = true;
    for (int i = 0; i < N; i++) {
        ct_commit(&c[i], g, i % 4, i);
        if (i % 1000 == 500) cw_advance(g->w, 1000);
    }
    cw_advance(g->w, 1000000);
    g->mute = false;
    link_lost(net_link(g->w->net, "b1"), KW_EIO, "reset");
    cw_advance(g->w, 3000000);
    for (int i = 0; i < N; i++) ct_expect(&c[i], KC_OK);
    for (int p = 0; p < 4; p++) assert_int_equal(cg_stored(g, p), N - 4 + p);
    assert_in_range(g->commits, 2, 12);
    free(c);
    cg_free(g);
}

/* ---- Errors that stay ---- */

static int16_t judge_auth(struct cg *g, int topic, int32_t partition, const struct kw_offset_commit_request_partition *p) {
    (void)g, (void)topic, (void)p;
    return partition == 1 ? KE_TOPIC_AUTHORIZATION_FAILED : KE_NONE;
}

static void test_lasting_errors_are_told(void **state) {
    (void)state;
    static const int16_t codes[] = {KE_GROUP_AUTHORIZATION_FAILED, KE_INVALID_GROUP_ID, KE_UNKNOWN_MEMBER_ID, KE_ILLEGAL_GENERATION,
                                    KE_GROUP_ID_NOT_FOUND};
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct ct c;
    for (size_t i = 0; i < KW_COUNTOF(codes); i++) {
        g->code = codes[i];
        g->codes = 1;
        ct_commit(&c, g, 0, 5);
        cw_advance(g->w, 1000000);
        ct_expect(&c, codes[i]);
        assert_int_equal(cg_stored(g, 0), -1);
    }
    assert_int_equal(g->refusals, 0); /* there is no membership */
    g->judge = judge_auth;
    ct_init(&c, g, -1);
    for (int32_t p = 0; p < 3; p++) (void)ct_add(&c, p, 6, NULL);
    ct_begin(&c);
    cw_advance(g->w, 1000000);
    ct_end(&c);
    for (int32_t p = 0; p < 3; p++) assert_int_equal(c.items[p].at.err, p == 1 ? KE_TOPIC_AUTHORIZATION_FAILED : KC_OK);
    g->w->net->api_max[KW_API_OFFSET_COMMIT] = 1; /* a broker of long ago */
    link_lost(net_link(g->w->net, "b1"), KW_EIO, "reset");
    ct_commit(&c, g, 0, 7);
    cw_advance(g->w, 3000000);
    ct_expect(&c, KC_UNSUPPORTED);
    cg_free(g);
}

/* An automatic commit that fails for good is told once, and tried again at each interval; then it is told again if it fails again. */
static void test_automatic_failures_are_told_once(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100"));
    for (int32_t p = 0; p < 3; p++) begin(g, p, 10, KC_OFFSET_COMMITTED);
    g->code = KE_GROUP_AUTHORIZATION_FAILED;
    g->codes = 1000;
    for (int32_t p = 0; p < 3; p++) cg_poll_until(g, p, 10);
    (void)cg_poll(g);
    cw_advance(g->w, 1000000);
    assert_in_range(g->commits, 5, 15);
    while (cg_poll(g)) {
    }
    assert_int_equal(cw_count(g->w, KC_EVENT_ERROR, -1), 1);
    assert_int_equal(cw_first(g->w, KC_EVENT_ERROR)->err, KE_GROUP_AUTHORIZATION_FAILED);
    assert_non_null(strstr(g->w->message, "group g"));
    assert_true(net_logged(g->w->net, 4, "GROUP_AUTHORIZATION_FAILED"));
    g->codes = 0;
    cw_advance(g->w, 300000);
    for (int32_t p = 0; p < 3; p++) assert_int_equal(cg_stored(g, p), 10);
    g->judge = judge_auth;
    for (int32_t p = 0; p < 3; p++) log_fill(&g->w->logs[0][p], 10, 10, 0);
    for (int32_t p = 0; p < 3; p++) cg_poll_until(g, p, 20);
    (void)cg_poll(g);
    cw_advance(g->w, 1000000);
    while (cg_poll(g)) {
    }
    assert_int_equal(cw_count(g->w, KC_EVENT_ERROR, -1), 2);
    assert_int_equal(cw_count(g->w, KC_EVENT_ERROR, 1), cw_first(g->w, KC_EVENT_ERROR)->partition == 1 ? 2 : 1);
    assert_int_equal(cg_stored(g, 0), 20);
    cg_free(g);
}

/* ---- Automatic beside the application's own ---- */

static void test_automatic_does_not_undo_the_applications(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100", "max.poll.records", "5"));
    struct ct c;
    cg_put(g, 0, 0, -1);
    begin(g, 0, 40, KC_OFFSET_COMMITTED);
    cg_poll_until(g, 0, 15);
    ct_commit(&c, g, 0, 15); /* ahead of what poll went past */
    cw_advance(g->w, 500000);
    ct_expect(&c, KC_OK);
    assert_int_equal(cg_stored(g, 0), 15);
    assert_int_equal(g->history_count, 1);
    ct_commit(&c, g, 0, 30); /* ahead of everything */
    cg_poll_until(g, 0, 25);
    cw_advance(g->w, 500000);
    ct_expect(&c, KC_OK);
    assert_int_equal(cg_stored(g, 0), 30); /* not back to 20 */
    cg_poll_until(g, 0, 40);
    cw_advance(g->w, 500000);
    assert_int_equal(cg_stored(g, 0), 35);
    ct_commit(&c, g, 0, 2); /* far back: he knows why */
    cw_advance(g->w, 500000);
    ct_expect(&c, KC_OK);
    assert_int_equal(cg_stored(g, 0), 2);
    (void)cg_poll(g);
    cw_advance(g->w, 500000);
    assert_int_equal(cg_stored(g, 0), 40); /* progress */
    cg_free(g);
}

/* A seek back while a commit is on its way: its answer says nothing of what is processed from there. */
static void test_a_seek_while_a_commit_is_under_way(void **state) {
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "1000000", "max.poll.records", "5"));
        struct kc_commit_item *items = NULL;
        size_t n;
        struct ct c;
        cg_put(g, 0, 0, -1);
        begin(g, 0, 20, KC_OFFSET_COMMITTED);
        cg_poll_until(g, 0, 15);
        g->hold = true;
        g->code = KE_GROUP_AUTHORIZATION_FAILED;
        g->codes = fails;
        ct_commit(&c, g, 0, 15);
        cw_advance(g->w, 1000);
        assert_int_equal(cw_seek(g->w, 0, 0, 2), KC_OK);
        cg_poll_until(g, 0, 18);
        (void)cg_poll(g);
        cg_release(g);
        cw_advance(g->w, 1000);
        ct_expect(&c, fails ? KE_GROUP_AUTHORIZATION_FAILED : KC_OK);
        assert_int_equal(kc_commits_gather(g->m, &items, &n), KC_OK);
        assert_int_equal(n, 1);
        assert_int_equal(items[0].at.offset, 7);
        kw_free(items);
        cg_free(g);
    }
}

/* kc_consumer_commit without items: all that is processed and not known to be committed, what is under way included. */
static void test_commit_of_all_that_is_processed(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100"));
    struct kc_commit_item *items = NULL;
    size_t n = 9;
    for (int32_t p = 0; p < 2; p++) {
        cg_put(g, p, 0, -1);
        begin(g, p, 10, KC_OFFSET_COMMITTED);
    }
    assert_int_equal(kc_commits_gather(g->m, &items, &n), KC_OK);
    assert_int_equal(n, 0);
    kw_free(items);
    g->hold = true;
    for (int32_t p = 0; p < 2; p++) cg_poll_until(g, p, 10);
    (void)cg_poll(g);
    cw_advance(g->w, 200000);
    assert_int_equal(g->commits, 1); /* the automatic one is under way */
    assert_int_equal(kc_commits_gather(g->m, &items, &n), KC_OK);
    assert_int_equal(n, 2);
    struct ct c;
    ct_init(&c, g, -1);
    memcpy(c.items, items, n * sizeof *items);
    c.call.count = n;
    kc_commits_call(g->m, &c.call);
    cw_advance(g->w, 200000);
    assert_int_equal(c.done, 0);
    cg_release(g);
    cw_advance(g->w, 200000);
    ct_expect(&c, KC_OK);
    assert_int_equal(g->commits, 1); /* its answer was this one's too */
    kw_free(items);
    assert_int_equal(kc_commits_gather(g->m, &items, &n), KC_OK);
    assert_int_equal(n, 0);
    kw_free(items);
    cg_free(g);
}

static void drained(struct kc_commit_drain *d, kc_err err) {
    *(kc_err *)d->ctx = err;
}

/* A commit of the application's that came to nothing is made up for by the next automatic one, without anything new to be processed. */
static void test_automatic_makes_up_for_a_call_that_failed(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "1000000"));
    struct kc_commit_item *items = NULL;
    size_t n;
    struct ct c;
    begin(g, 0, 10, KC_OFFSET_COMMITTED);
    cg_poll_until(g, 0, 10);
    (void)cg_poll(g);
    g->node = -1;
    link_lost(net_link(g->w->net, "b1"), KW_EIO, "reset");
    assert_int_equal(kc_commits_gather(g->m, &items, &n), KC_OK);
    assert_int_equal(n, 1);
    ct_init(&c, g, 1000000);
    c.items[0] = items[0];
    c.call.count = 1;
    kw_free(items);
    g->w->net->brokers[1].refuses = true;
    kc_commits_call(g->m, &c.call);
    cw_advance(g->w, 2000000);
    ct_expect(&c, KC_TIMED_OUT);
    g->node = 2;
    g->w->net->brokers[1].refuses = false;
    cw_advance(g->w, 5000000);
    assert_int_equal(cg_stored(g, 0), -1);
    kc_err err = KC_BUSY;
    struct kc_commit_drain d = {.deadline_us = g->w->net->now.mono_us + 30000000, .done = drained, .ctx = &err};
    kc_commits_drain(g->m, &d);
    cw_advance(g->w, 20000000);
    assert_int_equal(err, KC_OK);
    assert_int_equal(cg_stored(g, 0), 10);
    cg_free(g);
}

/* ---- Ends ---- */

static void test_stop_ends_everything(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100"));
    struct ct c, d, e;
    struct cq q;
    begin(g, 0, 10, KC_OFFSET_COMMITTED);
    cg_poll_until(g, 0, 10);
    g->mute = true;
    (void)cg_poll(g);
    ct_commit(&c, g, 0, 1);
    cw_advance(g->w, 500000);
    ct_commit(&d, g, 1, 1);
    cq_init(&q, g, -1);
    cq_add(&q, g->w->topic[0], 0);
    kc_commits_query(g->m, &q.q);
    kc_consume_stop(&g->w->c);
    cw_advance(g->w, 1000);
    ct_expect(&c, KC_CLOSED);
    ct_expect(&d, KC_CLOSED);
    assert_int_equal(q.items[0].at.err, KC_CLOSED);
    cq_free(&q);
    assert_true(kc_consume_stopped(&g->w->c));
    ct_commit(&e, g, 0, 3); /* too late */
    ct_expect(&e, KC_CLOSED);
    cq_init(&q, g, -1);
    cq_add(&q, g->w->topic[0], 0);
    kc_commits_query(g->m, &q.q);
    cq_free(&q);
    cg_free(g);
}

static void test_the_client_goes_first(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct ct c, d;
    g->mute = true;
    ct_commit(&c, g, 0, 1);
    cw_advance(g->w, 500000);
    ct_commit(&d, g, 1, 1);
    kc_core_stop(g->w->net->core, g->w->net->now);
    net_turn(g->w->net);
    ct_expect(&c, KC_CLOSED);
    ct_expect(&d, KC_CLOSED);
    cg_free(g);
}

/* Each allocation in turn fails, once: every call ends, with KC_NO_MEMORY or done, and what is processed is committed in the end. */
static void test_without_memory(void **state) {
    (void)state;
    for (int n = 0; n < 150; n++) {
        struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(EARLIEST, "auto.commit.interval.ms", "100"));
        struct ct c;
        begin(g, 0, 10, KC_OFFSET_COMMITTED);
        cg_poll_until(g, 0, 10);
        ct_init(&c, g, -1);
        (void)ct_add(&c, 1, 5, "meta");
        (void)ct_add(&c, 2, 5, NULL);
        kw_alloc_fail_after(n);
        kc_consume_passed(&g->w->c);
        ct_begin(&c);
        cw_advance(g->w, 3000000);
        kw_alloc_fail_after(-1);
        cw_advance(g->w, 3000000);
        ct_end(&c);
        for (int i = 0; i < 2; i++) {
            kc_err err = c.items[i].at.err;
            assert_true(err == KC_OK || err == KC_NO_MEMORY);
            assert_int_equal(cg_stored(g, 1 + i), err == KC_OK ? 5 : -1);
        }
        assert_int_equal(cg_stored(g, 0), 10);
        cg_free(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_poll_commits_what_poll_went_past),
        cmocka_unit_test(test_by_poll_one_record_at_a_time),
        cmocka_unit_test(test_where_it_begins),
        cmocka_unit_test(test_explicit_commits_what_the_application_says),
        cmocka_unit_test(test_cc03_the_committed_offset_passes_markers),
        cmocka_unit_test(test_lag),
        cmocka_unit_test(test_every_version_of_a_commit),
        cmocka_unit_test(test_a_topic_without_an_id),
        cmocka_unit_test(test_the_newest_wins),
        cmocka_unit_test(test_a_call_begun_from_a_calls_end),
        cmocka_unit_test(test_items_that_cannot_be),
        cmocka_unit_test(test_passing_errors_are_tried_again),
        cmocka_unit_test(test_an_answer_full_of_strangers),
        cmocka_unit_test(test_cx18_the_coordinator_goes_while_a_commit_waits),
        cmocka_unit_test(test_the_limit_of_a_call),
        cmocka_unit_test(test_cx16_ten_thousand_commits),
        cmocka_unit_test(test_lasting_errors_are_told),
        cmocka_unit_test(test_automatic_failures_are_told_once),
        cmocka_unit_test(test_automatic_does_not_undo_the_applications),
        cmocka_unit_test(test_a_seek_while_a_commit_is_under_way),
        cmocka_unit_test(test_commit_of_all_that_is_processed),
        cmocka_unit_test(test_automatic_makes_up_for_a_call_that_failed),
        cmocka_unit_test(test_stop_ends_everything),
        cmocka_unit_test(test_the_client_goes_first),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
