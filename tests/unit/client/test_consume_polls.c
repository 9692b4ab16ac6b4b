/* test_consume_polls.c - what a consumer's core asks for beside a long poll, what an answer costs, what an encoder may still see. Virtual time,
 * scripted brokers. */
#include "consume_peer.h"

/* ---- A long poll is no hindrance ---- */

#define POLLS_LONG PAIRS("fetch.wait.max.ms", "60000")

/* What is sought while a long poll is outstanding comes now, not when the poll ends; again and again, forwards and backwards. */
static void a_seek_does_not_wait_for_the_long_poll(void **state) {
    (void)state;
    struct cw *w = cw_new(POLLS_LONG);
    int t = cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[t][0], 100, 10, 0);
    cw_assign(w, t, 0, 100);
    cw_assign(w, t, 1, 0);
    cw_consume(w, 1000000);
    for (int i = 0; i < 5; i++) {
        w->got_count = 0;
        cw_seek(w, t, 0, 15 * i);
        cw_consume(w, 500000);
        cw_expect(w, t, 0, 15 * i, 100);
    }
    w->got_count = 0;
    log_fill(&w->logs[t][0], 10, 10, 0);
    log_fill(&w->logs[t][1], 10, 10, 0); /* ends the poll */
    cw_consume(w, 2000000);
    cw_expect(w, t, 0, 100, 110);
    cw_expect(w, t, 1, 0, 10);
    cw_free(w);
}

/* Likewise one that is assigned, or resumed, meanwhile. */
static void an_assignment_does_not_wait_for_the_long_poll(void **state) {
    (void)state;
    struct cw *w = cw_new(POLLS_LONG);
    int t = cw_topic(w, "t", 3, 1);
    for (int p = 0; p < 3; p++) log_fill(&w->logs[t][p], 100, 10, 0);
    cw_assign(w, t, 0, 100);
    cw_assign(w, t, 2, 0);
    cw_pause(w, t, 2, true);
    cw_consume(w, 1000000);
    cw_assign(w, t, 1, KC_OFFSET_BEGINNING);
    cw_pause(w, t, 2, false);
    cw_consume(w, 500000);
    cw_expect(w, t, 1, 0, 100);
    cw_expect(w, t, 2, 0, 100);
    log_fill(&w->logs[t][1], 10, 10, 0); /* at its end, and still not in the poll */
    cw_consume(w, 1500000);
    cw_expect(w, t, 1, 0, 110);
    cw_free(w);
}

/* A partition with much to read is left out while enough of it waits to be taken. The poll that goes on without it must not stop it. */
static void an_idle_partition_does_not_slow_down_a_busy_one(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("fetch.wait.max.ms", "60000", "max.partition.fetch.bytes", "5000"));
    int t = cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[t][0], 5000, 10, 100);
    cw_assign(w, t, 0, 0);
    cw_assign(w, t, 1, 0);
    for (int i = 0; i < 2000 && cw_count(w, KC_EVENT_RECORDS, 0) < 5000; i++) {
        cw_advance(w, 10000); /* the application takes its time: what it has not taken fills the queue */
        cw_take(w);
    }
    cw_expect(w, t, 0, 0, 5000);
    cw_free(w);
}

/* Beside a poll, what has nothing new is asked for now and then, not all the time. */
static void what_is_asked_for_beside_a_poll_is_not_asked_for_often(void **state) {
    (void)state;
    struct cw *w = cw_new(POLLS_LONG);
    int t = cw_topic(w, "t", 2, 1);
    cw_assign(w, t, 0, 0);
    cw_consume(w, 1000000);
    int before = w->fetch_count;
    cw_assign(w, t, 1, 0);
    cw_consume(w, 10000000);
    assert_in_range(w->fetch_count - before, 5, 40);
    cw_free(w);
}

/* ---- Costs ---- */

/* An answer costs what is in it, however many partitions are assigned. */
static void an_answer_costs_what_is_in_it(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t[6];
    static const char *const names[6] = {"t0", "t1", "t2", "t3", "t4", "t5"};
    for (int i = 0; i < 6; i++) {
        t[i] = cw_topic(w, names[i], CW_PARTS, 1);
        for (int p = 0; p < CW_PARTS; p++) assert_int_equal(cw_assign(w, t[i], p, 0), KC_OK);
    }
    cw_consume(w, 2000000);
    uint64_t before = w->c.looks;
    int fetches = w->fetch_count;
    for (int i = 0; i < 50; i++) {
        log_fill(&w->logs[t[3]][5], 1, 1, 0);
        cw_consume(w, 20000);
    }
    cw_expect(w, t[3], 5, 0, 50);
    assert_true(w->fetch_count - fetches >= 50);
    assert_true(w->c.looks - before <= 2 * (uint64_t)(w->fetch_count - fetches));
    before = w->c.looks;
    cw_consume(w, 10000000); /* and one without anything costs nothing */
    assert_true(w->c.looks - before <= 2 * 6 * CW_PARTS);
    cw_free(w);
}

/* ---- Paused ---- */

/* What was fetched for paused partitions waits, but not at the expense of the others: it is fetched again if they need the room. */
static void paused_partitions_take_no_room_from_others(const char *const *pairs, bool eof) {
    struct cw *w = cw_new(pairs);
    int t = cw_topic(w, "t", 4, 1);
    for (int p = 0; p < 4; p++) log_fill(&w->logs[t][p], 3000, 10, 100);
    for (int p = 0; p < 3; p++) cw_assign(w, t, p, 0);
    cw_advance(w, 100000);
    for (int i = 0; i < 3; i++) cw_take(w); /* of some a part is taken, and the rest kept */
    int before[3];
    for (int p = 0; p < 3; p++) {
        before[p] = cw_count(w, KC_EVENT_RECORDS, p);
        cw_pause(w, t, p, true);
    }
    cw_assign(w, t, 3, 0);
    cw_consume(w, 5000000);
    cw_expect(w, t, 3, 0, 3000);
    for (int p = 0; p < 3; p++) assert_int_equal(cw_count(w, KC_EVENT_RECORDS, p), before[p]);
    for (int p = 0; p < 3; p++) cw_pause(w, t, p, false);
    cw_consume(w, 5000000);
    for (int p = 0; p < 4; p++) cw_expect(w, t, p, 0, 3000);
    if (eof) assert_int_equal(cw_count(w, KC_EVENT_PARTITION_END, -1), 4);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    cw_free(w);
}
static void paused_partitions_do_not_fill_the_queue(void **state) {
    (void)state;
    paused_partitions_take_no_room_from_others(
        PAIRS("queued.max.messages.kbytes", "64", "max.partition.fetch.bytes", "60000", "max.poll.records", "7", "enable.partition.eof", "true"), true);
}
static void paused_partitions_do_not_use_up_the_memory(void **state) {
    (void)state;
    paused_partitions_take_no_room_from_others(PAIRS("memory.max.bytes", "1048576", "max.partition.fetch.bytes", "500000", "max.poll.records", "7"), false);
}

/* A seek that comes between choosing and encoding: the request does not ask for the offset that is still to be looked up, whose answer, an
 * error, would count for the new position. */
static void quiet_kick(void *ctx) {
    (void)ctx;
}
static bool seek_to_the_end_while_it_connects(struct cw *w, struct request *rq) {
    struct kc_fetcher *f = kw_list_empty(&w->c.fetchers) ? NULL : KW_CONTAINER_OF(w->c.fetchers.next, struct kc_fetcher, link);
    if (rq->head.api_key != KW_API_API_VERSIONS || !f || !f->outstanding || f->encoded || w->ctx) return false;
    w->ctx = w;
    w->c.kick = quiet_kick; /* loop context has not heard of it yet */
    cw_seek(w, 0, 0, KC_OFFSET_END);
    return false;
}
static void a_seek_just_before_encoding(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("auto.offset.reset", "earliest"));
    int t = cw_topic(w, "t", 1, 1);
    w->before = seek_to_the_end_while_it_connects;
    cw_fill_assign(w, t, 100, 50);
    for (int i = 0; i < 100 && w->fetch_count == 0; i++) cw_advance(w, 1000);
    assert_ptr_equal(w->ctx, w);
    for (int i = 0; i < w->trace_count; i++) assert_true(w->trace[i].offset >= 0);
    w->c.kick = cw_kick;
    cw_kick(w);
    cw_consume(w, 2000000);
    log_fill(&w->logs[t][0], 10, 10, 0);
    cw_consume(w, 2000000);
    cw_expect(w, t, 0, 100, 110);
    cw_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seek_does_not_wait_for_the_long_poll),
        cmocka_unit_test(an_assignment_does_not_wait_for_the_long_poll),
        cmocka_unit_test(an_idle_partition_does_not_slow_down_a_busy_one),
        cmocka_unit_test(what_is_asked_for_beside_a_poll_is_not_asked_for_often),
        cmocka_unit_test(an_answer_costs_what_is_in_it),
        cmocka_unit_test(paused_partitions_do_not_fill_the_queue),
        cmocka_unit_test(paused_partitions_do_not_use_up_the_memory),
        cmocka_unit_test(a_seek_just_before_encoding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
