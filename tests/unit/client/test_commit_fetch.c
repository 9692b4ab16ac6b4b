/* Committed offsets read: where partitions begin, every version of OffsetFetch and its errors, kc_consumer_committed. */
#include "commit_peer.h"

#define AUTO_OFF "enable.auto.commit", "false"
#define EARLIEST "auto.offset.reset", "earliest"

static void begin(struct cg *g, int32_t partition, int n, int64_t from) {
    log_fill(&g->w->logs[0][partition], n, 10, 0);
    assert_int_equal(cw_assign(g->w, 0, partition, from), KC_OK);
}

static void test_every_version(void **state) {
    (void)state;
    for (int16_t v = 1; v <= kw_api_by_key(KW_API_OFFSET_FETCH)->max; v++) {
        struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
        struct cq q;
        g->w->net->api_min[KW_API_OFFSET_FETCH] = g->w->net->api_max[KW_API_OFFSET_FETCH] = v;
        cw_topic(g->w, "u", 4, 1);
        g->stored[1][3] = (struct cg_stored){.present = true, .offset = 9, .epoch = -1};
        cg_put(g, 0, 7, 0);
        cg_put(g, 2, 4, -1);
        memcpy(g->stored[0][2].metadata, "noted", 5);
        g->stored[0][2].metadata_len = 5;
        for (int32_t p = 0; p < 3; p++) begin(g, p, 20, KC_OFFSET_COMMITTED);
        cw_consume(g->w, 500000);
        cw_expect(g->w, 0, 0, 7, 20);
        cw_expect(g->w, 0, 1, 0, 20); /* nothing is committed */
        cw_expect(g->w, 0, 2, 4, 20);
        assert_int_equal(g->fetch_version, v);
        assert_int_equal(g->stable, v >= 7);
        assert_int_equal(g->commits, 0);
        cq_init(&q, g, 5000000);
        cq_add(&q, g->w->topic[1], 3); /* not assigned, its topic never asked for: by name */
        cq_add(&q, g->w->topic[0], 2);
        cq_add(&q, g->w->topic[0], 1);
        cq_add(&q, g->w->topic[0], 2); /* twice */
        cq_add(&q, 99, 0);
        cq_add(&q, g->w->topic[0], -3);
        if (v == 10) { /* this broker insists */
            kc_metadata_want(g->w->net->core, g->w->topic[1]);
            cw_advance(g->w, 100000);
            kc_metadata_unwant(g->w->net->core, g->w->topic[1]);
        }
        kc_commits_query(g->m, &q.q);
        assert_int_equal(q.done, 0);
        cw_advance(g->w, 500000);
        assert_int_equal(q.items[0].at.err, KC_OK);
        assert_int_equal(q.items[0].at.offset, 9);
        for (int i = 1; i < 4; i += 2) {
            assert_int_equal(q.items[i].at.err, KC_OK);
            assert_int_equal(q.items[i].at.offset, 4);
            assert_int_equal(q.items[i].at.metadata.size, 5);
            assert_memory_equal(q.items[i].at.metadata.p, "noted", 5);
        }
        assert_int_equal(q.items[2].at.err, KC_OK);
        assert_int_equal(q.items[2].at.offset, -1);
        assert_int_equal(q.items[2].at.metadata.size, 0);
        assert_int_equal(q.items[4].at.err, KC_INVALID);
        assert_int_equal(q.items[5].at.err, KC_INVALID);
        cq_free(&q);
        cg_free(g);
    }
}

/* All partitions that begin at once are asked for with one request. */
static void test_one_request_for_all(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
    for (int32_t p = 0; p < 4; p++) begin(g, p, 10, KC_OFFSET_COMMITTED);
    cw_consume(g->w, 500000);
    assert_int_equal(g->fetches, 1);
    assert_int_equal(g->fetch_parts, 4);
    assert_int_equal(cw_count(g->w, KC_EVENT_RECORDS, -1), 40);
    for (int32_t p = 0; p < 4; p++) assert_int_equal(cw_assign(g->w, 0, p, KC_OFFSET_COMMITTED), KC_OK); /* kept: where they are */
    cw_consume(g->w, 500000);
    assert_int_equal(g->fetches, 1);
    assert_int_equal(cw_count(g->w, KC_EVENT_RECORDS, -1), 40);
    cg_put(g, 0, 5, -1);
    assert_int_equal(cw_seek(g->w, 0, 0, KC_OFFSET_COMMITTED), KC_OK); /* back to what is committed */
    cw_consume(g->w, 500000);
    assert_int_equal(cw_count(g->w, KC_EVENT_RECORDS, 0), 15);
    cg_free(g);
}

static void test_nothing_is_committed(void **state) {
    (void)state;
    static const struct {
        const char *policy;
        int records, errors;
    } cases[] = {{"earliest", 10, 0}, {"latest", 0, 0}, {"none", 0, 1}};
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, "auto.offset.reset", cases[i].policy));
        begin(g, 0, 10, KC_OFFSET_COMMITTED);
        cw_consume(g->w, 2000000);
        assert_int_equal(cw_count(g->w, KC_EVENT_RECORDS, 0), cases[i].records);
        assert_int_equal(cw_count(g->w, KC_EVENT_ERROR, 0), cases[i].errors);
        if (cases[i].errors) {
            assert_int_equal(cw_first(g->w, KC_EVENT_ERROR)->err, KE_OFFSET_OUT_OF_RANGE);
            assert_non_null(strstr(g->w->message, "auto.offset.reset=none"));
            assert_int_equal(cw_seek(g->w, 0, 0, 3), KC_OK);
            cw_consume(g->w, 500000);
            cw_expect(g->w, 0, 0, 3, 10);
        }
        assert_int_equal(g->fetches, 1);
        cg_free(g);
    }
}

/* KIP-320: the epoch that was committed with the offset is held against the leader's log before anything is fetched. */
static void test_a_committed_offset_that_the_log_lost(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
    struct cw *w = g->w;
    cw_epoch(w, 0, 0, 3);
    log_fill(&w->logs[0][0], 20, 10, 0);
    cw_epoch(w, 0, 0, 5); /* epoch 3 ended at 20 */
    log_fill(&w->logs[0][0], 20, 10, 0);
    cg_put(g, 0, 30, 3); /* consumed under epoch 3 up to 30, which is no longer in the log */
    assert_int_equal(cw_assign(w, 0, 0, KC_OFFSET_COMMITTED), KC_OK);
    cw_consume(w, 1000000);
    assert_int_equal(w->epochs_asked, 1);
    assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, KC_DATA_LOST);
    assert_int_equal(cw_first(w, KC_EVENT_ERROR)->before, 30);
    cw_expect(w, 0, 0, 20, 40);
    cg_free(g);
}

static void test_passing_errors(void **state) {
    (void)state;
    static const int16_t codes[] = {KE_NOT_COORDINATOR, KE_COORDINATOR_NOT_AVAILABLE, KE_COORDINATOR_LOAD_IN_PROGRESS, KE_UNSTABLE_OFFSET_COMMIT};
    for (size_t i = 0; i < 2 * KW_COUNTOF(codes); i++) {
        struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
        struct cq q;
        g->fetch_code = codes[i / 2];
        g->fetch_of_part = i % 2;
        g->fetch_codes = 3;
        cg_put(g, 0, 5, -1);
        begin(g, 0, 10, KC_OFFSET_COMMITTED);
        cw_consume(g->w, 5000000);
        cw_expect(g->w, 0, 0, 5, 10);
        assert_int_equal(cw_count(g->w, KC_EVENT_ERROR, -1), 0);
        assert_int_equal(g->fetches, 4);
        g->fetch_codes = 3;
        cq_init(&q, g, 30000000);
        cq_add(&q, g->w->topic[0], 0);
        kc_commits_query(g->m, &q.q);
        cw_advance(g->w, 5000000);
        assert_int_equal(q.items[0].at.err, KC_OK);
        assert_int_equal(q.items[0].at.offset, 5);
        cq_free(&q);
        cg_free(g);
    }
}

/* CC-10: a connection that breaks, an answer that does not come or names nothing: asked again; the reset policy is not for this. */
static void test_cc10_only_a_real_answer_moves_it(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
    cg_put(g, 0, 5, -1);
    g->mute = true;
    begin(g, 0, 10, KC_OFFSET_COMMITTED);
    cw_consume(g->w, 500000);
    kc_why why;
    assert_int_equal(kc_consume_why(&g->w->c, &why, sizeof why, 1), 1);
    assert_int_equal(why.state, 9);
    assert_int_equal(why.broker, 2);
    assert_non_null(strstr(why.text, "committed offset is asked for: the coordinator of group g is broker 2"));
    link_lost(net_link(g->w->net, "b1"), KW_EIO, "reset");
    cw_consume(g->w, 3000000);
    g->mute = false;
    g->skip = true;
    link_lost(net_link(g->w->net, "b1"), KW_EIO, "reset");
    cw_consume(g->w, 3000000);
    assert_int_equal(cw_position(g->w, 0, 0), KC_OFFSET_RESET); /* not known */
    g->skip = false;
    cw_consume(g->w, 3000000);
    cw_expect(g->w, 0, 0, 5, 10);
    assert_int_equal(cw_count(g->w, KC_EVENT_ERROR, -1), 0);
    cg_free(g);
}

static void test_lasting_errors_are_told_once(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
    struct cq q;
    g->fetch_code = KE_GROUP_AUTHORIZATION_FAILED;
    g->fetch_codes = 1000;
    cg_put(g, 0, 5, -1);
    begin(g, 0, 10, KC_OFFSET_COMMITTED);
    cw_consume(g->w, 5000000);
    assert_int_equal(cw_count(g->w, KC_EVENT_ERROR, -1), 1);
    assert_int_equal(cw_first(g->w, KC_EVENT_ERROR)->err, KE_GROUP_AUTHORIZATION_FAILED);
    assert_in_range(g->fetches, 3, 20);
    cq_init(&q, g, 30000000);
    cq_add(&q, g->w->topic[0], 0);
    kc_commits_query(g->m, &q.q);
    cw_advance(g->w, 1000000);
    assert_int_equal(q.items[0].at.err, KE_GROUP_AUTHORIZATION_FAILED);
    cq_free(&q);
    g->fetch_codes = 0; /* it is allowed now */
    cw_consume(g->w, 3000000);
    cw_expect(g->w, 0, 0, 5, 10);
    g->fetch_code = KE_UNKNOWN_TOPIC_OR_PARTITION;
    g->fetch_codes = 1;
    g->fetch_of_part = true;
    cq_init(&q, g, 30000000);
    cq_add(&q, g->w->topic[0], 0);
    kc_commits_query(g->m, &q.q);
    cw_advance(g->w, 1000000);
    assert_int_equal(q.items[0].at.err, KE_UNKNOWN_TOPIC_OR_PARTITION);
    cq_free(&q);
    cg_free(g);
}

/* What changes while the answer is on its way: sought, taken away, given again. */
static void test_an_answer_to_an_old_question(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
    for (int32_t p = 0; p < 3; p++) {
        cg_put(g, p, 5, -1);
        log_fill(&g->w->logs[0][p], 20, 10, 0);
    }
    g->w->net->brokers[1].silent = true; /* until all is changed */
    for (int32_t p = 0; p < 3; p++) assert_int_equal(cw_assign(g->w, 0, p, KC_OFFSET_COMMITTED), KC_OK);
    cw_consume(g->w, 500000);
    assert_int_equal(cw_seek(g->w, 0, 0, 12), KC_OK);
    kc_topic_partition tp[2] = {{.topic = g->w->topic[0], .partition = 0, .offset = KC_OFFSET_RESET},
                                {.topic = g->w->topic[0], .partition = 1, .offset = KC_OFFSET_RESET}};
    assert_int_equal(kc_consume_assign(&g->w->c, tp, sizeof tp[0], 2, 0), KC_OK); /* 2 goes */
    cw_consume(g->w, 100000);
    assert_int_equal(cw_assign(g->w, 0, 2, KC_OFFSET_COMMITTED), KC_OK); /* and comes */
    g->w->net->brokers[1].silent = false;
    for (int32_t p = 0; p < 3; p++) cg_put(g, p, 8, -1);
    link_lost(net_link(g->w->net, "b1"), KW_EIO, "reset");
    cw_consume(g->w, 3000000);
    cw_expect(g->w, 0, 0, 12, 20);
    cw_expect(g->w, 0, 1, 8, 20);
    cw_expect(g->w, 0, 2, 8, 20);
    cg_free(g);
}

static void test_the_limit_of_a_query(void **state) {
    (void)state;
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct cq q, r, none;
    g->node = -1;
    cq_init(&q, g, 2000000);
    cq_add(&q, g->w->topic[0], 0);
    kc_commits_query(g->m, &q.q);
    cq_init(&r, g, -1);
    cq_add(&r, g->w->topic[0], 0);
    kc_commits_query(g->m, &r.q);
    cq_init(&none, g, -1);
    kc_commits_query(g->m, &none.q);
    cw_advance(g->w, 1999000);
    cq_free(&none);
    assert_int_equal(q.done, 0);
    cw_advance(g->w, 2000);
    assert_int_equal(q.items[0].at.err, KC_TIMED_OUT);
    assert_int_equal(kc_attempts_last(q.q.attempts), KE_COORDINATOR_NOT_AVAILABLE);
    cq_free(&q);
    kc_commits_query_cancel(g->m, &r.q, KC_CANCELLED);
    kc_commits_query_cancel(g->m, &r.q, KC_CANCELLED);
    cw_advance(g->w, 1000);
    assert_int_equal(r.items[0].at.err, KC_CANCELLED);
    cq_free(&r);
    g->node = 2;
    g->mute = true; /* it was sent */
    cq_init(&q, g, 2000000);
    cq_add(&q, g->w->topic[0], 0);
    kc_commits_query(g->m, &q.q);
    cw_advance(g->w, 3000000);
    assert_int_equal(q.items[0].at.err, KC_TIMED_OUT);
    cq_free(&q);
    g->mute = false;
    cw_advance(g->w, 40000000);
    cq_init(&q, g, 5000000);
    cq_add(&q, g->w->topic[0], 0);
    kc_commits_query(g->m, &q.q);
    cw_advance(g->w, 5100000);
    assert_int_equal(q.items[0].at.err, KC_OK);
    cq_free(&q);
    cg_free(g);
}

/* Many at once: a few requests at a time, each query ends. */
static void test_many_queries(void **state) {
    (void)state;
    enum { N = 500 };
    struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF));
    struct cq *q = calloc(N, sizeof *q);
    cg_put(g, 1, 5, -1);
    g->mute = true;
    for (int i = 0; i < N; i++) {
        cq_init(&q[i], g, -1);
        cq_add(&q[i], g->w->topic[0], i % 2);
        kc_commits_query(g->m, &q[i].q);
    }
    cw_advance(g->w, 1000000);
    assert_int_equal(g->m->fetch_count, 32);
    g->mute = false;
    link_lost(net_link(g->w->net, "b1"), KW_EIO, "reset");
    cw_advance(g->w, 5000000);
    for (int i = 0; i < N; i++) {
        assert_int_equal(q[i].items[0].at.err, KC_OK);
        assert_int_equal(q[i].items[0].at.offset, i % 2 ? 5 : -1);
        cq_free(&q[i]);
    }
    free(q);
    cg_free(g);
}

static void test_without_memory(void **state) {
    (void)state;
    for (int n = 0; n < 120; n++) {
        struct cg *g = cg_new(KC_PROCESSED_BY_POLL, PAIRS(AUTO_OFF, EARLIEST));
        struct cq q;
        for (int32_t p = 0; p < 2; p++) {
            cg_put(g, p, 5, -1);
            log_fill(&g->w->logs[0][p], 10, 10, 0);
        }
        memcpy(g->stored[0][1].metadata, "noted", 5);
        g->stored[0][1].metadata_len = 5;
        assert_int_equal(cw_assign(g->w, 0, 0, KC_OFFSET_COMMITTED), KC_OK);
        cq_init(&q, g, -1);
        cq_add(&q, g->w->topic[0], 1);
        kw_alloc_fail_after(n);
        kc_commits_query(g->m, &q.q);
        cw_advance(g->w, 5000000);
        kw_alloc_fail_after(-1);
        cw_advance(g->w, 5000000);
        assert_true(q.items[0].at.err == KC_NO_MEMORY || (q.items[0].at.err == KC_OK && q.items[0].at.offset == 5));
        cq_free(&q);
        cw_consume(g->w, 1000000);
        cw_expect(g->w, 0, 0, 5, 10);
        cg_free(g);
    }
}

/* Without group.id there is nothing of all this. */
static void test_without_a_group(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS(EARLIEST));
    cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[0][0], 10, 10, 0);
    assert_int_equal(cw_assign(w, 0, 0, KC_OFFSET_COMMITTED), KC_INVALID);
    assert_int_equal(cw_assign(w, 0, 0, KC_OFFSET_RESET), KC_OK);
    assert_int_equal(cw_seek(w, 0, 0, KC_OFFSET_COMMITTED), KC_INVALID);
    cw_consume(w, 10000000);
    cw_expect(w, 0, 0, 0, 10);
    assert_int_equal(w->net->requests[KW_API_FIND_COORDINATOR], 0);
    assert_int_equal(w->net->requests[KW_API_OFFSET_COMMIT], 0);
    assert_int_equal(w->net->requests[KW_API_OFFSET_FETCH], 0);
    cw_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_version),
        cmocka_unit_test(test_one_request_for_all),
        cmocka_unit_test(test_nothing_is_committed),
        cmocka_unit_test(test_a_committed_offset_that_the_log_lost),
        cmocka_unit_test(test_passing_errors),
        cmocka_unit_test(test_cc10_only_a_real_answer_moves_it),
        cmocka_unit_test(test_lasting_errors_are_told_once),
        cmocka_unit_test(test_an_answer_to_an_old_question),
        cmocka_unit_test(test_the_limit_of_a_query),
        cmocka_unit_test(test_many_queries),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_without_a_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
