/* test_produce.c - a producer as a whole: flush, purge, close, queues under faults, codecs, topics that are not there, failing allocation. Cases CP-06,
 * CP-07, CP-08, CX-11 (producer part).
 */
#include "produce_peer.h"

struct flushed {
    struct kc_flush f;
    bool done;
};
static void on_flushed(struct kc_flush *f) { KW_CONTAINER_OF(f, struct flushed, f)->done = true; }
static void on_closed(struct kc_produce *p, void *ctx, kc_err err) {
    (void)p;
    struct world *w = ctx;
    assert_false(w->closed);
    w->closed = true;
    w->closed_err = err;
}

/* ---- Flush ---- */

static void test_CP_06_flush_does_not_linger(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "300000", NULL};
    struct world *w = world_new(pairs, 1);
    struct flushed f = {.f.done = on_flushed};
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 5 * SECOND);
    assert_int_equal(w->logs[0][0].count, 0);
    kc_produce_flush(w->p, &f.f);
    net_advance(w->net, 50 * MS);
    assert_true(f.done);
    assert_log(w, 0, 1);
    assert_all_ok(w, 1);
    world_free(w);
}

/* KC_SEND_NOW: also while the topic is not known, and its records wait to be dealt out by their keys. What lingers goes with it. */
static void test_send_now_does_not_linger(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "300000", NULL};
    for (int32_t key_len = -1; key_len <= 3; key_len += 4) {
        struct world *w = world_new(pairs, 1);
        for (int round = 0; round < 2; round++) { /* the topic is not known yet; known */
            assert_int_equal(world_send(w, -1, "key", key_len, "lingers", 7, 1), KC_OK);
            if (round > 0) net_advance(w->net, 5 * SECOND);
            assert_int_equal(w->logs[0][0].count, round * 2);
            struct rec_room room;
            struct kc_rec r = {.topic = w->topic, .partition = -1, .flags = KC_SEND_NOW, .key = {(const uint8_t *)"key", key_len},
                               .value = {(const uint8_t *)"now", 3}, .headers = room.headers, .opaque = 2};
            bool wake = false;
            assert_int_equal(kc_accum_prepare(&w->p->accum, &r), KC_OK);
            assert_int_equal(kc_accum_put(&w->p->accum, &r, &w->net->now, false, &wake), KC_OK);
            assert_true(wake);
            kc_produce_turn(w->p);
            net_advance(w->net, 50 * MS);
            assert_int_equal(w->logs[0][0].count, round * 2 + 2);
        }
        world_free(w);
    }
}

static void test_flush_of_nothing_and_of_many(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "1000", "batch.num.messages", "10", NULL};
    struct world *w = world_new(pairs, 4);
    struct flushed a = {.f.done = on_flushed}, b = {.f.done = on_flushed}, c = {.f.done = on_flushed};
    kc_produce_flush(w->p, &a.f);
    assert_true(a.done); /* nothing there */
    a.done = false;
    for (int i = 0; i < 4; i++) world_send_n(w, i, 25, 16);
    kc_produce_flush(w->p, &a.f);
    assert_false(a.done);
    world_send_n(w, 0, 5, 16); /* after it: not its business, but it leaves at once too */
    kc_produce_flush(w->p, &b.f);
    kc_produce_flush(w->p, &c.f);
    net_advance(w->net, 100 * MS);
    assert_true(a.done && b.done && c.done);
    assert_int_equal(w->p->accum.flushing, 0);
    world_drain(w);
    assert_int_equal(w->report_count, 105);
    world_send_n(w, 0, 1, 16); /* lingers again */
    net_advance(w->net, 100 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 105);
    world_free(w);
}

static void test_flush_waits_for_records_without_a_partition(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 0); /* the topic does not exist yet */
    struct flushed f = {.f.done = on_flushed};
    for (uint64_t i = 0; i < 10; i++) assert_int_equal(world_send(w, -1, "key", i & 1 ? 3 : -1, &i, 8, i + 1), KC_OK);
    kc_produce_flush(w->p, &f.f);
    net_advance(w->net, 2 * SECOND);
    assert_false(f.done);
    net_topic(w->net, "t", 1, 3, 1);
    net_advance(w->net, 10 * SECOND);
    assert_true(f.done);
    world_drain(w);
    assert_int_equal(w->report_count, 10);
    world_free(w);
}

/* ---- Records before metadata ---- */

static void test_staged_records_keep_their_order(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 0);
    for (uint64_t i = 1; i <= 200; i++) {
        char key[8];
        int n = snprintf(key, sizeof key, "k%d", (int)(i % 5));
        assert_int_equal(world_send(w, -1, key, n, &i, 8, i), KC_OK);
        if (i % 50 == 0) net_advance(w->net, 20 * MS);
    }
    net_topic(w->net, "t", 1, 4, 1);
    net_advance(w->net, 10 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, 200);
    uint64_t last[5] = {0};
    for (int p = 0; p < 4; p++)
        for (int64_t i = 0; i < w->logs[0][p].count; i++) {
            uint64_t v = w->logs[0][p].records[i].value;
            assert_true(v > last[v % 5]); /* per key */
            last[v % 5] = v;
        }
    for (int i = 0; i < 5; i++) assert_true(last[i] > 190);
    world_free(w);
}

/* CX-11: a topic that does not exist, for a minute: few questions, and an end that says why. */
static void test_CX_11_topic_that_never_comes(void **state) {
    (void)state;
    static const char *const pairs[] = {"delivery.timeout.ms", "60000", NULL};
    for (int which = 1; which <= 3; which++) { /* records with a partition, without one, both */
        struct world *w = world_new(pairs, 0);
        int sent = 0;
        if (which & 2) assert_int_equal(world_send(w, -1, NULL, -1, "x", 1, (uint64_t)++sent), KC_OK);
        if (which & 1) assert_int_equal(world_send(w, 3, NULL, -1, "x", 1, (uint64_t)++sent), KC_OK);
        net_advance(w->net, 59 * SECOND);
        world_drain(w);
        assert_int_equal(w->report_count, 0);
        assert_in_range(w->net->requests[KW_API_METADATA], 8, 30);
        net_advance(w->net, 2 * SECOND);
        world_drain(w);
        assert_int_equal(w->report_count, sent);
        for (int i = 0; i < sent; i++) {
            assert_int_equal(w->reports[i].err, KE_UNKNOWN_TOPIC_OR_PARTITION);
            assert_int_equal(w->reports[i].outcome, KC_NOT_PERSISTED);
        }
        world_free(w);
    }
}

static void test_illegal_topic_fails_at_once(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 1);
    w->net->topics[0].err = KE_INVALID_TOPIC_EXCEPTION;
    assert_int_equal(world_send(w, -1, NULL, -1, "x", 1, 1), KC_OK);
    assert_int_equal(world_send(w, 0, NULL, -1, "x", 1, 2), KC_OK);
    net_advance(w->net, 1 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, 2);
    assert_int_equal(count_err(w, KE_INVALID_TOPIC_EXCEPTION), 2);
    world_free(w);
}

/* What is sent to a refused topic later fails soon as well, and not before the brokers were asked once more: they may have changed their mind. */
static void test_refused_topic_is_asked_for_again(void **state) {
    (void)state;
    for (int32_t partition = -1; partition <= 0; partition++) {
        struct world *w = world_new(NULL, 1);
        w->net->topics[0].err = KE_TOPIC_AUTHORIZATION_FAILED;
        for (int i = 0; i < 3; i++) {
            int before = w->net->requests[KW_API_METADATA];
            uint64_t v = (uint64_t)i;
            assert_int_equal(world_send(w, partition, i % 2 ? "key" : NULL, i % 2 ? 3 : -1, &v, 8, v), KC_OK);
            net_advance(w->net, 3 * SECOND);
            world_drain(w);
            assert_int_equal(w->report_count, i + 1);
            assert_int_equal(count_err(w, KE_TOPIC_AUTHORIZATION_FAILED), i + 1);
            assert_in_range(w->net->requests[KW_API_METADATA] - before, 1, 4);
        }
        int before = w->net->requests[KW_API_METADATA];
        net_advance(w->net, 60 * SECOND); /* nobody wants it: nobody asks */
        assert_int_equal(w->net->requests[KW_API_METADATA], before);
        w->net->topics[0].err = KE_NONE;
        w->next_value = 0;
        world_send_n(w, 0, 1, 16);
        net_advance(w->net, 3 * SECOND);
        assert_log(w, 0, 1);
        world_free(w);
    }
}

/* ---- Full queues ---- */

static void test_CP_07_full_queue_with_all_brokers_down(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "100", NULL};
    struct world *w = world_new(pairs, 2);
    w->net->brokers[0].refuses = true;
    int accepted = 0, refused = 0;
    for (int i = 0; i < 150; i++) {
        uint64_t v = ++w->next_value;
        kc_err err = world_send(w, 0, NULL, -1, &v, 8, v);
        if (err == KC_OK) accepted++;
        else {
            assert_int_equal(err, KC_QUEUE_FULL);
            w->next_value--;
            refused++;
        }
        net_advance(w->net, 20 * MS);
        world_drain(w);
    }
    assert_int_equal(accepted, 100);
    assert_int_equal(refused, 50);
    assert_int_equal(w->report_count, 0);
    w->net->brokers[0].refuses = false;
    net_advance(w->net, 30 * SECOND);
    assert_log(w, 0, 100);
    assert_all_ok(w, 100);
    world_send_n(w, 0, 50, 16); /* and on, without a restart */
    net_advance(w->net, 1 * SECOND);
    assert_log(w, 0, 150);
    assert_all_ok(w, 150);
    world_free(w);
}

static enum verdict always_busy(struct world *w, const struct sent *s, int16_t *code) {
    (void)w, (void)s;
    *code = KE_NOT_ENOUGH_REPLICAS;
    return V_ERROR;
}
static void test_CP_08_every_answer_retriable_then_close(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "20", "batch.num.messages", "2", "retry.backoff.ms", "5", "retry.backoff.max.ms", "20",
                                        NULL};
    struct world *w = world_new(pairs, 4);
    w->script = always_busy;
    int accepted = 0;
    for (int i = 0; i < 2000; i++) {
        uint64_t v = ++w->next_value;
        kc_err err = world_send(w, i % 4, NULL, -1, &v, 8, v);
        if (err == KC_OK) accepted++;
        net_advance(w->net, 1 * MS);
        world_drain(w);
        assert_true(w->p->accum.records <= 20);
        assert_true(w->p->accum.pool.used <= 1 << 20);
        if (w->trace_count > TRACE_MAX - 100) w->trace_count = 0;
    }
    assert_int_equal(kc_produce_close(w->p, w->net->now.mono_us + 300 * MS, on_closed, w), KC_OK);
    net_advance(w->net, 290 * MS);
    assert_false(w->closed);
    net_advance(w->net, 11 * MS);
    assert_true(w->closed);
    assert_int_equal(w->closed_err, KC_TIMED_OUT);
    world_drain(w);
    assert_int_equal(w->report_count, accepted);
    assert_int_equal(count_err(w, KC_CLOSED), accepted);
    for (int i = 0; i < w->report_count; i++) assert_int_equal(w->reports[i].outcome, KC_NOT_PERSISTED);
    world_free(w);
}

/* ---- Close and purge ---- */

static void test_close_sends_the_rest(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "100000", NULL};
    struct world *w = world_new(pairs, 3);
    for (int i = 0; i < 3; i++) world_send_n(w, i, 10, 16);
    assert_int_equal(kc_produce_close(w->p, KW_NEVER, on_closed, w), KC_OK);
    assert_int_equal(world_send(w, 0, NULL, -1, "x", 1, 99), KC_CLOSED);
    net_advance(w->net, 200 * MS);
    assert_true(w->closed);
    assert_int_equal(w->closed_err, KC_OK);
    world_drain(w);
    assert_int_equal(w->report_count, 30);
    assert_int_equal(count_err(w, KC_OK), 30);
    world_free(w);
}

static void test_close_of_nothing(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 1);
    assert_int_equal(kc_produce_close(w->p, w->net->now.mono_us, on_closed, w), KC_OK);
    assert_true(w->closed);
    assert_int_equal(w->closed_err, KC_OK);
    world_free(w);
}

static void test_close_with_answers_missing(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 2);
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100 * MS);
    w->script = never_answer;
    world_send_batches(w, 0, 7); /* five in flight, two queued */
    net_advance(w->net, 10 * MS);
    world_send_n(w, 1, 1, 16); /* lingers */
    int64_t start = w->net->now.mono_us;
    assert_int_equal(kc_produce_close(w->p, start + 500 * MS, on_closed, w), KC_OK);
    net_advance(w->net, 501 * MS);
    assert_true(w->closed);
    assert_int_equal(w->closed_err, KC_TIMED_OUT);
    world_drain(w);
    assert_int_equal(w->report_count, 9);
    int maybe = 0, not = 0;
    for (int i = 1; i < 9; i++) {
        assert_int_equal(w->reports[i].err, KC_CLOSED);
        maybe += w->reports[i].outcome == KC_MAYBE_PERSISTED;
        not += w->reports[i].outcome == KC_NOT_PERSISTED;
    }
    assert_int_equal(maybe, 5);
    assert_int_equal(not, 3);
    world_free(w);
}

/* A second close while the first one is under way must not take the first one's end away. */
static void test_close_twice(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 1);
    w->script = never_answer;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100 * MS);
    assert_int_equal(kc_produce_close(w->p, w->net->now.mono_us + 500 * MS, on_closed, w), KC_OK);
    assert_int_equal(kc_produce_close(w->p, KW_NEVER, on_closed, NULL), KC_BUSY);
    net_advance(w->net, 501 * MS);
    assert_true(w->closed);
    assert_int_equal(w->closed_err, KC_TIMED_OUT);
    world_free(w);
}

/* A queue full of reports that nobody takes, and threads that wait for room: what ends the producer must reach them. */
static void test_waiting_senders_learn_of_the_end(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "1", NULL};
    for (int how = 0; how < 3; how++) {
        struct world *w = world_new(pairs, 1);
        struct kc_accum *a = &w->p->accum;
        world_send_n(w, 0, 1, 16);
        net_advance(w->net, 100 * MS);
        struct kw_header_view headers[2];
        struct kc_rec r = {.topic = w->topic, .partition = 0, .key = {NULL, -1}, .value = {(const uint8_t *)"x", 1}, .headers = headers};
        struct kc_space_waiter waiter;
        bool wake = false;
        assert_int_equal(kc_accum_prepare(a, &r), KC_OK);
        assert_int_equal(kc_accum_put(a, &r, &w->net->now, false, &wake), KC_QUEUE_FULL);
        kc_accum_wait_add(a, &waiter, &r, &wake);
        kc_accum_arm_space(a);
        kc_produce_turn(w->p);
        net_advance(w->net, 100 * MS);
        assert_false(kc_accum_wait_over(a, &waiter));
        assert_false(kc_accum_is_ended(a));
        int signals = w->signals, reports = w->reports_ready;
        assert_int_equal(w->space_ready, 0);
        if (how == 0) kc_sender_fatal(&w->p->sender, KE_CLUSTER_AUTHORIZATION_FAILED, "test");
        else if (how == 1) assert_int_equal(kc_produce_close(w->p, KW_NEVER, on_closed, w), KC_OK);
        else kc_core_stop(w->net->core, w->net->now);
        net_advance(w->net, 10 * MS);
        assert_true(kc_accum_wait_over(a, &waiter));
        assert_true(w->signals > signals);
        assert_int_equal(w->space_ready, 1);
        assert_int_equal(kc_accum_is_ended(a), how > 0);
        if (how == 2) assert_true(w->reports_ready > reports);
        kc_accum_wait_remove(a, &waiter);
        assert_int_equal(kc_accum_put(a, &r, &w->net->now, false, &wake), how ? KC_CLOSED : KE_CLUSTER_AUTHORIZATION_FAILED);
        world_free(w);
    }
}

/* A topic's first records are purged before the loop has come to them: later ones are sent all the same (simulator, cluster seed 860). */
static void test_purge_of_the_first(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 2);
    world_send_n(w, 0, 3, 16);
    kc_produce_purge(w->p, KC_PURGE_QUEUED);
    world_send_n(w, 0, 2, 16);
    net_advance(w->net, 200 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 5);
    assert_int_equal(count_err(w, KC_CANCELLED), 3);
    assert_int_equal(count_err(w, KC_OK), 2);
    world_free(w);
}

static void test_purge(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 2);
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100 * MS);
    w->script = never_answer;
    world_send_batches(w, 0, 7);
    net_advance(w->net, 10 * MS);
    world_send_n(w, 1, 1, 16);
    kc_produce_purge(w->p, KC_PURGE_QUEUED);
    net_advance(w->net, 1 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 1 + 3);
    assert_int_equal(count_err(w, KC_CANCELLED), 3);
    for (int i = 1; i < 4; i++) assert_int_equal(w->reports[i].outcome, KC_NOT_PERSISTED);
    kc_produce_purge(w->p, KC_PURGE_IN_FLIGHT);
    net_advance(w->net, 1 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 1 + 8);
    for (int i = 4; i < 9; i++) assert_int_equal(w->reports[i].outcome, KC_MAYBE_PERSISTED);
    w->script = NULL; /* what comes now is stored, whatever became of those */
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 40 * SECOND);
    world_drain(w);
    assert_int_equal(w->reports[9].err, KC_OK);
    assert_int_equal(w->logs[0][0].records[w->logs[0][0].count - 1].value, w->next_value);
    world_free(w);
}

static void test_free_without_close(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 2);
    w->script = never_answer;
    world_send_batches(w, 0, 3);
    net_advance(w->net, 10 * MS);
    world_send_n(w, 1, 10, 16);
    assert_int_equal(world_send(w, -1, NULL, -1, "staged?", 7, 1), KC_OK);
    world_free(w); /* asserts that nothing is left */
    w = world_new(NULL, 0);
    assert_int_equal(world_send(w, -1, NULL, -1, "staged", 6, 1), KC_OK);
    world_free(w);
    w = world_new(NULL, 1);
    world_send_n(w, 0, 1, 16); /* the producer id and the topic are being asked for */
    world_free(w);
}

/* The client ends before its producer: what is left fails, at once. */
static void test_client_stops_first(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 2);
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100 * MS);
    w->script = never_answer;
    world_send_batches(w, 0, 2);
    net_advance(w->net, 10 * MS);
    w->net->topics[0].leader[1] = -1;
    kc_metadata_refresh(w->net->core, "test");
    net_advance(w->net, 200 * MS);
    world_send_n(w, 1, 1, 16); /* parked */
    assert_int_equal(world_send(w, 0, NULL, -1, "lingers", 7, 5), KC_OK);
    net_advance(w->net, 10 * MS);
    kc_core_stop(w->net->core, w->net->now);
    net_advance(w->net, 1 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 5);
    assert_int_equal(count_err(w, KC_CLOSED), 4);
    world_free(w);
    w = world_new(NULL, 0);
    assert_int_equal(world_send(w, -1, NULL, -1, "staged", 6, 1), KC_OK);
    net_advance(w->net, 1 * SECOND);
    kc_core_stop(w->net->core, w->net->now);
    net_advance(w->net, 1 * MS);
    world_drain(w);
    assert_int_equal(count_err(w, KC_CLOSED), 1);
    world_free(w);
}

/* ---- Reports ---- */

static void test_silent_records(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 1);
    struct kw_header_view headers[2];
    bool wake = false;
    for (uint64_t i = 0; i < 10; i++) {
        struct kc_rec r = {.topic = w->topic, .partition = 0, .key = {NULL, -1}, .value = {(const uint8_t *)&i, 8}, .headers = headers, .opaque = i,
                           .flags = i < 7 ? KC_NO_REPORT : 0};
        assert_int_equal(kc_accum_prepare(&w->p->accum, &r), KC_OK);
        assert_int_equal(kc_accum_put(&w->p->accum, &r, &w->net->now, i == 4, &wake), KC_OK);
    }
    kc_produce_turn(w->p);
    net_advance(w->net, 100 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 3); /* a batch of silent ones, and one of both */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(w->reports[i].opaque, 7 + i);
        assert_int_equal(w->reports[i].offset, 7 + i);
    }
    assert_int_equal(w->p->accum.records, 0);
    w->script = always_busy;
    for (uint64_t i = 0; i < 2; i++) {
        struct kc_rec r = {.topic = w->topic, .partition = 0, .key = {NULL, -1}, .value = {(const uint8_t *)&i, 8}, .headers = headers, .opaque = i,
                           .flags = i < 1 ? KC_NO_REPORT : 0, .timeout_us = 1 * SECOND};
        assert_int_equal(kc_accum_prepare(&w->p->accum, &r), KC_OK);
        assert_int_equal(kc_accum_put(&w->p->accum, &r, &w->net->now, false, &wake), KC_OK);
    }
    kc_produce_turn(w->p);
    net_advance(w->net, 2 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, 5); /* a failure is told in any case */
    world_free(w);
}

static void test_only_errors(void **state) {
    (void)state;
    static const char *const pairs[] = {"delivery.report.only.error", "true", "queue.buffering.max.messages", "10", NULL};
    struct world *w = world_new(pairs, 1);
    for (int i = 0; i < 10; i++) {
        world_send_n(w, 0, 5, 16);
        net_advance(w->net, 100 * MS); /* nobody takes reports, and the queue does not fill */
    }
    assert_log(w, 0, 50);
    world_drain(w);
    assert_int_equal(w->report_count, 0);
    world_free(w);
}

static void test_waiters_get_their_own(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 1);
    struct kw_header_view headers[2];
    bool wake = false;
    struct kc_report_waiter wait[2] = {{.opaque = 77}, {.opaque = 78}};
    uint64_t v = 5;
    world_send_n(w, 0, 2, 16);
    for (int i = 0; i < 2; i++) {
        struct kc_rec r = {.topic = w->topic, .partition = 0, .key = {NULL, -1}, .value = {(const uint8_t *)&v, 8}, .headers = headers, .waiter = &wait[i]};
        assert_int_equal(kc_accum_prepare(&w->p->accum, &r), KC_OK);
        if (i == 1) {
            net_advance(w->net, 100 * MS);
            w->script = always_busy;
            r.timeout_us = 500 * MS;
        }
        assert_int_equal(kc_accum_put(&w->p->accum, &r, &w->net->now, true, &wake), KC_OK);
        assert_true(wake);
        kc_produce_turn(w->p);
    }
    assert_true(wait[0].done);
    assert_int_equal(wait[0].report.err, KC_OK);
    assert_int_equal(wait[0].report.opaque, 77);
    assert_int_equal(wait[0].report.offset, 2); /* behind the two that were queued: their lingering ended with it */
    assert_null(wait[0].error);
    net_advance(w->net, 1 * SECOND);
    assert_true(wait[1].done);
    assert_int_equal(wait[1].report.err, KC_EXPIRED);
    assert_non_null(wait[1].error);
    assert_true(kc_error_attempt_count(wait[1].error) >= 2);
    kc_attempt at;
    assert_int_equal(kc_error_attempt(wait[1].error, 0, &at), KC_OK);
    assert_int_equal(at.cause, KE_NOT_ENOUGH_REPLICAS);
    assert_int_equal(at.broker, 1);
    assert_string_equal(at.phase, "answer");
    kc_error_free(wait[1].error);
    world_drain(w);
    assert_int_equal(w->report_count, 2);
    world_free(w);
}

/* ---- Compression ---- */

/* What a retry was for is told of a record that was stored in the end, too. */
static void test_attempts_of_what_succeeded(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 1);
    w->script = fail_first;
    world_send_n(w, 0, 2, 16);
    net_advance(w->net, 5 * SECOND);
    struct kc_reports *r;
    kc_report one;
    kc_attempt at;
    assert_int_equal(kc_reports_collect(&w->p->accum, NULL, &r), KC_OK);
    assert_int_equal(kc_reports_attempt(r, 0, &at), KC_INVALID); /* of no report yet */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kc_reports_next(r, &one), 1);
        assert_int_equal(one.err, KC_OK);
        assert_null(kc_reports_error(r));
        assert_int_equal(kc_reports_attempt(r, 0, &at), KC_OK);
        assert_int_equal(at.cause, KE_NOT_ENOUGH_REPLICAS);
        assert_int_equal(at.broker, 1);
        assert_string_equal(at.phase, "answer");
        assert_int_equal(kc_reports_attempt(r, 1, &at), KC_INVALID);
        assert_int_equal(kc_reports_attempt(r, 0, NULL), KC_INVALID);
    }
    kc_reports_give_back(r);
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 5 * SECOND);
    assert_int_equal(kc_reports_collect(&w->p->accum, NULL, &r), KC_OK);
    assert_int_equal(kc_reports_next(r, &one), 1);
    assert_int_equal(kc_reports_attempt(r, 0, &at), KC_INVALID); /* at the first try */
    kc_reports_give_back(r);
    assert_int_equal(kc_reports_attempt(NULL, 0, &at), KC_INVALID);
    world_free(w);
}

static void test_c5_codecs(void **state) {
    (void)state;
    static const char *const names[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    for (int codec = 0; codec < KW_CODEC_COUNT; codec++) {
        const char *pairs[] = {"compression.type", names[codec], NULL};
        struct world *w = world_new(pairs, 1);
        world_send_n(w, 0, 300, 500); /* mostly zeros */
        net_advance(w->net, 100 * MS);
        assert_log(w, 0, 300);
        assert_all_ok(w, 300);
        assert_int_equal(w->trace[0].h.attributes & KW_ATTR_CODEC, codec);
        if (codec) assert_true(w->trace[0].size < 50000);
        /* what does not shrink is sent as it is */
        struct kw_rng rng;
        uint8_t noise[64];
        kw_rng_init(&rng, 1);
        for (size_t i = 0; i < sizeof noise; i += 8) kw_store64(noise + i, kw_rng_next(&rng));
        assert_int_equal(world_send(w, 0, NULL, -1, noise, sizeof noise, 1), KC_OK);
        net_advance(w->net, 100 * MS);
        assert_int_equal(world_last(w)->h.attributes & KW_ATTR_CODEC, 0);
        world_free(w);
    }
}

static void test_zstd_needs_produce_7(void **state) {
    (void)state;
    static const char *const pairs[] = {"compression.type", "zstd", NULL};
    for (int16_t v = 6; v <= 7; v++) {
        struct world *w = world_new(pairs, 1);
        w->net->api_max[KW_API_PRODUCE] = v;
        world_send_n(w, 0, 100, 500);
        net_advance(w->net, 100 * MS);
        assert_log(w, 0, 100);
        assert_int_equal(w->trace[0].h.attributes & KW_ATTR_CODEC, v >= 7 ? KW_CODEC_ZSTD : KW_CODEC_NONE);
        world_free(w);
    }
}

static enum verdict lose_some(struct world *w, const struct sent *s, int16_t *code) {
    (void)s;
    *code = KE_NOT_ENOUGH_REPLICAS;
    w->step++;
    return w->step % 7 == 3 ? V_LOSE : w->step % 5 == 1 ? V_ERROR : V_SERVE;
}
static void test_compressed_retries_keep_order(void **state) {
    (void)state;
    static const char *const pairs[] = {"compression.type", "lz4", "batch.num.messages", "50", NULL};
    struct world *w = world_new(pairs, 2);
    w->script = lose_some;
    world_send_n(w, 0, 2000, 100);
    net_advance(w->net, 60 * SECOND);
    assert_log(w, 0, 2000);
    assert_all_ok(w, 2000);
    world_free(w);
}

/* ---- Memory ---- */

/* The n-th allocation fails, once for each n: every accepted record has exactly one report, and what is told to be stored is. */
static void test_failing_allocations(void **state) {
    (void)state;
    static const char *const pairs[] = {"compression.type", "lz4", "batch.num.messages", "20", "retry.backoff.ms", "10", NULL};
    for (int64_t n = 0; n < 400; n += 1 + n / 40) {
        struct world *w = world_new(pairs, 3);
        kw_alloc_fail_after(n);
        int accepted = 0;
        for (uint64_t i = 0; i < 60; i++) {
            uint64_t v = i + 1;
            kc_err err = world_send(w, -1, i % 3 ? "key" : NULL, i % 3 ? 3 : -1, &v, 8, v);
            if (err == KC_OK) accepted++;
            else assert_int_equal(err, KC_NO_MEMORY);
            if (i == 30) net_advance(w->net, 100 * MS);
        }
        net_advance(w->net, 200 * SECOND);
        world_drain(w);
        kw_alloc_fail_after(-1);
        world_drain(w);
        assert_int_equal(w->report_count, accepted);
        int64_t stored = 0, ok = 0;
        for (int p = 0; p < 3; p++) stored += w->logs[0][p].count;
        for (int i = 0; i < w->report_count; i++) {
            if (w->reports[i].err == KC_OK) {
                ok++;
                assert_int_equal(w->logs[0][w->reports[i].partition].records[w->reports[i].offset].value, w->reports[i].opaque);
            } else {
                assert_int_not_equal(w->reports[i].outcome, KC_PERSISTED);
            }
        }
        assert_true(stored >= ok);
        if (ok < accepted - 40) fprintf(stderr, "n %d: %d accepted, %d ok, %s\n", (int)n, accepted, (int)ok, w->last_message);
        assert_true(ok >= accepted - 40); /* one failure costs a staged batch at most */
        world_free(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_CP_06_flush_does_not_linger),
        cmocka_unit_test(test_send_now_does_not_linger),
        cmocka_unit_test(test_flush_of_nothing_and_of_many),
        cmocka_unit_test(test_flush_waits_for_records_without_a_partition),
        cmocka_unit_test(test_staged_records_keep_their_order),
        cmocka_unit_test(test_CX_11_topic_that_never_comes),
        cmocka_unit_test(test_illegal_topic_fails_at_once),
        cmocka_unit_test(test_refused_topic_is_asked_for_again),
        cmocka_unit_test(test_CP_07_full_queue_with_all_brokers_down),
        cmocka_unit_test(test_CP_08_every_answer_retriable_then_close),
        cmocka_unit_test(test_close_sends_the_rest),
        cmocka_unit_test(test_close_of_nothing),
        cmocka_unit_test(test_close_with_answers_missing),
        cmocka_unit_test(test_close_twice),
        cmocka_unit_test(test_waiting_senders_learn_of_the_end),
        cmocka_unit_test(test_purge_of_the_first), cmocka_unit_test(test_purge),
        cmocka_unit_test(test_free_without_close),
        cmocka_unit_test(test_client_stops_first),
        cmocka_unit_test(test_silent_records),
        cmocka_unit_test(test_only_errors),
        cmocka_unit_test(test_waiters_get_their_own),
        cmocka_unit_test(test_attempts_of_what_succeeded),
        cmocka_unit_test(test_c5_codecs),
        cmocka_unit_test(test_zstd_needs_produce_7),
        cmocka_unit_test(test_compressed_retries_keep_order),
        cmocka_unit_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
