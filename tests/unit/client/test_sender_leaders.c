/* test_sender_leaders.c - what the sender does when a producer id is not to be had, is forgotten or used up, and when leaders move, topics go and
 * come back. Cases CP-11, CP-13, CP-15, CX-02 (producer part).
 */
#include "produce_peer.h"

#include "core/internal.h"

/* ---- Producer ids and epochs ---- */

static void test_CP_15_producer_id_is_asked_again(void **state) {
    (void)state;
    static const int16_t codes[] = {KE_REQUEST_TIMED_OUT, KE_COORDINATOR_LOAD_IN_PROGRESS, KE_COORDINATOR_NOT_AVAILABLE};
    for (size_t i = 0; i < KW_COUNTOF(codes); i++) {
        struct world *w = world_new(idempotent, 1);
        w->pid_error = codes[i];
        world_send_n(w, 0, 1, 16);
        net_advance(w->net, 3 * SECOND);
        assert_true(w->pid_requests >= 3 && w->pid_requests < 30); /* with a growing backoff */
        assert_int_equal(w->p->accum.fatal, KC_OK);
        assert_int_equal(w->trace_count, 0);
        w->pid_error = 0;
        net_advance(w->net, 2 * SECOND);
        assert_log(w, 0, 1);
        assert_all_ok(w, 1);
        world_free(w);
    }
}

/* The question for an id has failed, and the producer is stopped before it hears of that: it does not wait to ask again, with a timer that would outlive it. */
static void test_stopped_with_a_producer_id_that_failed(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    net_broker_at(w->net, "b0", 9092)->silent = true;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100);
    assert_true(kc_pid_busy(&w->p->sender.pid));
    kc_request_finish(w->net->core, &w->p->sender.pid.rq, KC_TRANSPORT);
    world_free(w);
}

static void test_no_right_to_a_producer_id_is_fatal(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    w->pid_error = KE_CLUSTER_AUTHORIZATION_FAILED;
    world_send_n(w, 0, 2, 16);
    net_advance(w->net, 1 * SECOND);
    world_drain(w);
    assert_int_equal(count_err(w, KE_CLUSTER_AUTHORIZATION_FAILED), 2);
    assert_int_equal(world_send(w, 0, NULL, -1, "x", 1, 9), KE_CLUSTER_AUTHORIZATION_FAILED);
    assert_non_null(w->p->sender.fatal);
    world_free(w);
}

/* Stored, not answered before the records' deadline: the next batch goes on, and the log says that all is well. */
static void test_expired_batch_that_was_stored_needs_no_new_epoch(void **state) {
    (void)state;
    static const char *const pairs[] = {"delivery.timeout.ms", "1000", "request.timeout.ms", "800", NULL};
    struct world *w = world_new(pairs, 1);
    w->script = store_silent_first;
    world_send_n(w, 0, 2, 16);
    net_advance(w->net, 700 * MS);
    w->net->brokers[0].silent = true;
    net_advance(w->net, 2 * SECOND);
    world_drain(w);
    assert_int_equal(count_err(w, KC_EXPIRED), 2);
    assert_int_equal(w->reports[0].outcome, KC_MAYBE_PERSISTED);
    w->net->brokers[0].silent = false;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 900 * MS);
    assert_log(w, 0, 3);
    assert_first_epoch(w);
    world_free(w);
}

static void test_kip360_expired_batch_that_was_not_stored_bumps_the_epoch(void **state) {
    (void)state;
    static const char *const pairs[] = {"delivery.timeout.ms", "1000", "request.timeout.ms", "800", NULL};
    struct world *w = world_new(pairs, 1);
    world_first(w);
    w->script = silent_first;
    world_send_n(w, 0, 2, 16);
    net_advance(w->net, 700 * MS);
    w->net->brokers[0].silent = true;
    net_advance(w->net, 2 * SECOND);
    world_drain(w);
    assert_int_equal(count_err(w, KC_EXPIRED), 2);
    w->net->brokers[0].silent = false;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 900 * MS);
    struct part_log *l = &w->logs[0][0];
    assert_int_equal(l->count, 2);
    assert_int_equal(l->records[1].value, 4);
    assert_int_equal(world_last(w)->h.producer_epoch, 1);
    assert_int_equal(world_last(w)->h.base_sequence, 0);
    world_drain(w);
    assert_int_equal(w->reports[w->report_count - 1].err, KC_OK);
    world_free(w);
}

static void test_unknown_producer_id_goes_on_in_a_new_epoch(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    world_send_batches(w, 0, 2);
    net_advance(w->net, 100 * MS);
    w->logs[0][0].forgets = true;
    world_send_batches(w, 0, 3); /* all in flight */
    net_advance(w->net, 2 * SECOND);
    assert_log(w, 0, 5);
    assert_all_ok(w, 5);
    assert_int_equal(world_last(w)->h.producer_epoch, 1);
    world_free(w);
}

static void test_used_up_epochs_ask_for_a_new_id(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    world_first(w);
    struct kc_part *p = w->p->accum.topics[w->topic]->parts[0];
    p->producer_epoch = INT16_MAX;
    w->logs[0][0].producers[0].epoch = INT16_MAX;
    w->logs[0][0].forgets = true;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 2 * SECOND);
    assert_log(w, 0, 2);
    assert_int_equal(w->pid_requests, 2);
    assert_int_equal(world_last(w)->h.producer_id, 1001);
    world_free(w);
}

/* A connection was given up with two batches on it; the first has expired, the second is tried again on a new connection and is out of order there,
 * since the broker has not read the old connection yet. Which it may do at any moment: so the second must keep its number. */
static void two_on_a_lost_connection(struct world *w) {
    world_first(w);
    w->script = never_answer;
    world_send_within(w, 0, 300 * MS, true);
    world_send_batches(w, 0, 1);
    net_advance(w->net, 400 * MS);
    assert_int_equal(w->trace_count, 3);
    world_drain(w);
    assert_int_equal(w->reports[1].err, KC_EXPIRED);
    assert_int_equal(w->reports[1].outcome, KC_MAYBE_PERSISTED);
    w->script = NULL;
    link_lost(w->net->links[w->net->link_count - 1].conn ? &w->net->links[w->net->link_count - 1] : net_link(w->net, "b0"), KW_EIO, "connection reset");
}

static void arrive(struct world *w, const struct sent *s, uint64_t value) {
    int64_t dup;
    assert_int_equal(judge(&w->logs[0][0], &s->h, &dup), KE_NONE);
    assert_true(dup < 0);
    w->logs[0][0].records[w->logs[0][0].count++] = (struct stored){.value = value};
}
static enum verdict late_arrivals(struct world *w, const struct sent *s, int16_t *code) {
    (void)s, (void)code;
    if (w->step++ == 1) { /* between the answer "out of order" and the next attempt */
        arrive(w, &w->trace[1], 2);
        arrive(w, &w->trace[2], 3);
    }
    return V_SERVE;
}

static void test_a_batch_on_a_lost_connection_keeps_its_number(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    two_on_a_lost_connection(w);
    w->script = late_arrivals;
    net_advance(w->net, 5 * SECOND);
    assert_log(w, 0, 3);
    world_drain(w);
    assert_int_equal(w->report_count, 3);
    assert_int_equal(w->reports[2].err, KC_OK);
    assert_int_equal(w->reports[2].offset, 2);
    assert_first_epoch(w);
    world_free(w);
}

/* It never arrives: after request.timeout.ms nobody knows, and those behind go on. */
static void test_a_batch_on_a_lost_connection_ends_in_doubt(void **state) {
    (void)state;
    static const char *const pairs[] = {"request.timeout.ms", "2000", NULL};
    struct world *w = world_new(pairs, 1);
    two_on_a_lost_connection(w);
    int64_t start = w->net->now.mono_us;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 1500 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 2);
    net_advance(w->net, 4 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, 4);
    assert_int_equal(w->reports[2].opaque, 3);
    assert_int_equal(w->reports[2].err, KE_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(w->reports[2].outcome, KC_MAYBE_PERSISTED);
    assert_int_equal(w->reports[3].err, KC_OK);
    assert_int_equal(w->logs[0][0].count, 2);
    assert_int_equal(w->logs[0][0].records[1].value, 4);
    assert_true(world_last(w)->at_us - start < 4 * SECOND);
    world_free(w);
}

/* ---- Leaders ---- */

static void test_CP_11_topic_unknown_once(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    world_send_n(w, 0, 100, 16);
    net_advance(w->net, 100 * MS);
    w->net->topics[0].err = KE_UNKNOWN_TOPIC_OR_PARTITION; /* a broker that has just come up */
    kc_metadata_refresh(w->net->core, "test");
    net_advance(w->net, 150 * MS);
    world_send_n(w, 0, 1, 16);
    w->net->topics[0].err = KE_NONE;
    net_advance(w->net, 5 * SECOND);
    assert_log(w, 0, 101);
    assert_all_ok(w, 101);
    assert_int_equal(world_last(w)->h.base_sequence, 100);
    assert_int_equal(world_last(w)->h.producer_epoch, 0);
    world_free(w);
}

static void test_CP_13_leader_moves_to_and_fro(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "1", "request.timeout.ms", "1000", NULL};
    struct world *w = world_new(pairs, 1);
    net_broker(w->net, 2, "b1", 9092);
    int n = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 20; i++) {
            world_send_n(w, 0, 1, 16);
            n++;
            net_advance(w->net, 10 * MS);
            if (i == 10) {
                w->step = 0;
                w->script = round % 3 == 0 ? lose_first : round % 3 == 1 ? store_silent_first : NULL;
            }
        }
        world_move(w, 1 + round % 2, false);
    }
    net_advance(w->net, 20 * SECOND);
    assert_log(w, 0, n);
    assert_all_ok(w, n);
    assert_first_epoch(w);
    world_free(w);
}

static void test_kip951_hint_saves_the_backoff(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    net_broker(w->net, 2, "b1", 9092);
    world_first(w);
    w->hint_leader = true;
    world_move(w, 2, false);
    int metadata = w->net->requests[KW_API_METADATA];
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 20 * MS); /* far less than the backoff */
    assert_log(w, 0, 2);
    assert_int_equal(w->net->requests[KW_API_METADATA], metadata);
    world_free(w);
}

static void test_CX_02_topic_made_anew(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    net_broker(w->net, 2, "b1", 9092);
    w->net->topics[0].epoch[0] = 57;
    world_send_n(w, 0, 5, 16);
    net_advance(w->net, 100 * MS);
    w->net->topics[0].id.b[0] = 9;
    w->net->topics[0].epoch[0] = 0;
    w->net->topics[0].leader[0] = 2;
    struct part_log *l = &w->logs[0][0];
    l->count = 0;
    l->producer_count = 0;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 5 * SECOND);
    assert_int_equal(l->count, 1);
    assert_int_equal(l->records[0].value, 6);
    const struct sent *last = world_last(w);
    assert_int_equal(last->broker, 2);
    assert_int_equal(last->h.base_sequence, 0);
    assert_int_equal(last->h.producer_epoch, 1);
    world_drain(w);
    assert_int_equal(w->report_count, 6);
    assert_int_equal(w->reports[5].offset, 0);
    world_free(w);
}

static void test_leader_gone_and_back(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    w->net->topics[0].leader[0] = -1;
    w->net->topics[0].partition_err[0] = KE_LEADER_NOT_AVAILABLE;
    world_send_n(w, 0, 3, 16);
    net_advance(w->net, 3 * SECOND);
    assert_int_equal(w->trace_count, 0);
    assert_true(w->net->requests[KW_API_METADATA] < 30);
    w->net->topics[0].leader[0] = 1;
    w->net->topics[0].partition_err[0] = 0;
    net_advance(w->net, 3 * SECOND);
    assert_log(w, 0, 3);
    assert_all_ok(w, 3);
    world_free(w);
}

/* A connection attempt that hangs must not hold records when another broker leads meanwhile. */
static void test_unsent_request_follows_the_leader(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    net_broker(w->net, 2, "b1", 9092)->hangs = true;
    w->net->topics[0].leader[0] = 2;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 500 * MS);
    assert_int_equal(w->trace_count, 0);
    world_move(w, 1, true);
    net_advance(w->net, 1 * SECOND);
    assert_log(w, 0, 1);
    assert_all_ok(w, 1);
    world_free(w);
}

/* A hung leader: with idempotence what it has not answered goes to the next one at once. */
static void test_sent_request_follows_the_leader(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    net_broker(w->net, 2, "b1", 9092);
    world_first(w);
    w->script = never_answer;
    world_send_batches(w, 0, 3);
    net_advance(w->net, 100 * MS);
    w->script = NULL;
    world_move(w, 2, true);
    net_advance(w->net, 2 * SECOND); /* the request's own timeout is 30 s */
    assert_log(w, 0, 4);
    assert_all_ok(w, 4);
    assert_int_equal(world_last(w)->broker, 2);
    world_free(w);
}

/* Without idempotence what the old leader has got may be in its log: only its answer tells, and a second copy sent on a change of leaders would stay. */
static void test_a_sent_request_without_idempotence_waits_for_its_answer(void **state) {
    (void)state;
    struct world *w = world_new(plain, 1);
    net_broker(w->net, 2, "b1", 9092);
    world_first(w);
    w->script = store_silent_first;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100 * MS);
    world_move(w, 2, true);
    net_advance(w->net, 5 * SECOND);
    assert_int_equal(w->trace_count, 2);
    assert_log(w, 0, 2);
    world_free(w);
}

/* A request holds batches of several partitions: a leader that moves takes along its own alone. */
static void test_partitions_that_stay_are_not_sent_twice(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 2);
    net_broker(w->net, 2, "b1", 9092);
    world_send_n(w, 0, 1, 16);
    world_send_n(w, 1, 1, 16);
    net_advance(w->net, 100 * MS);
    w->script = never_answer;
    world_send_n(w, 0, 1, 16);
    world_send_n(w, 1, 1, 16);
    net_advance(w->net, 100 * MS);
    assert_int_equal(w->trace_count, 4);
    w->script = NULL;
    world_move(w, 2, true);
    net_advance(w->net, 2 * SECOND);
    assert_int_equal(w->trace_count, 5);
    assert_int_equal(w->trace[4].partition, 0);
    assert_int_equal(w->trace[4].broker, 2);
    world_free(w);
}

/* Memory runs out at any one moment while leaders move, connections and answers are lost, batches are too large and the broker forgets its producer:
 * one report for each accepted record, each stored once at most, and what was reported as stored is. */
static enum verdict mixed_trouble(struct world *w, const struct sent *s, int16_t *code) {
    (void)s;
    static const enum verdict turns[] = {V_SERVE, V_LOSE, V_ERROR, V_STORE_ERROR, V_BREAK};
    *code = KE_REQUEST_TIMED_OUT;
    return turns[w->step++ % (int)KW_COUNTOF(turns)];
}
static void check_each_once(struct world *w, int accepted) {
    assert_int_equal(w->report_count, accepted);
    char *seen = calloc((size_t)accepted + 2, 1);
    for (int p = 0; p < 3; p++)
        for (int64_t i = 0; i < w->logs[0][p].count; i++) {
            uint64_t v = w->logs[0][p].records[i].value;
            assert_in_range(v, 1, accepted);
            assert_false(seen[v]);
            seen[v] = 1;
        }
    for (int i = 0; i < w->report_count; i++) {
        const kc_report *r = &w->reports[i];
        if (r->err == KC_OK) assert_true(seen[r->opaque]);
        else if (r->outcome == KC_NOT_PERSISTED) assert_false(seen[r->opaque]);
    }
    free(seen);
}
static void test_failing_allocations_in_the_midst_of_trouble(void **state) {
    (void)state;
    static const char *const pairs[] = {"request.timeout.ms", "1000", "retry.backoff.ms", "10", "compression.type", "lz4", "batch.num.messages", "20", NULL};
    for (int64_t n = 0; n < 700; n += 1 + n / 60) {
        struct world *w = world_new(pairs, 3);
        net_broker(w->net, 2, "b1", 9092);
        int accepted = 0;
        uint8_t value[200] = {0};
        for (int round = 0; round < 6; round++) {
            if (round == 1) kw_alloc_fail_after(n);
            for (int i = 0; i < 25; i++) {
                uint64_t v = (uint64_t)accepted + 1;
                memcpy(value, &v, 8);
                for (size_t k = 8; k < sizeof value; k++) value[k] = (uint8_t)((v * 31 + k * k * v) >> 3);
                kc_err err = world_send(w, i % 3 == 0 ? i % 2 : -1, i % 3 == 1 ? "key" : NULL, i % 3 == 1 ? 3 : -1, value, sizeof value, v);
                if (err == KC_OK) accepted++;
                else assert_int_equal(err, KC_NO_MEMORY);
            }
            net_advance(w->net, 10 * MS);
            w->script = round > 0 ? mixed_trouble : NULL;
            if (round == 2) w->max_bytes = 1500;
            if (round == 3) w->logs[0][0].forgets = true;
            for (int p = 0; p < 3; p++) {
                w->net->topics[0].leader[p] = 1 + (round + p) % 2;
                w->net->topics[0].epoch[p]++;
            }
            net_advance(w->net, 300 * MS);
        }
        w->script = NULL;
        net_advance(w->net, 130 * SECOND);
        world_drain(w);
        kw_alloc_fail_after(-1);
        world_drain(w);
        check_each_once(w, accepted);
        world_free(w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_CP_15_producer_id_is_asked_again),
        cmocka_unit_test(test_stopped_with_a_producer_id_that_failed),
        cmocka_unit_test(test_no_right_to_a_producer_id_is_fatal),
        cmocka_unit_test(test_expired_batch_that_was_stored_needs_no_new_epoch),
        cmocka_unit_test(test_kip360_expired_batch_that_was_not_stored_bumps_the_epoch),
        cmocka_unit_test(test_unknown_producer_id_goes_on_in_a_new_epoch),
        cmocka_unit_test(test_used_up_epochs_ask_for_a_new_id),
        cmocka_unit_test(test_a_batch_on_a_lost_connection_keeps_its_number),
        cmocka_unit_test(test_a_batch_on_a_lost_connection_ends_in_doubt),
        cmocka_unit_test(test_CP_11_topic_unknown_once),
        cmocka_unit_test(test_CP_13_leader_moves_to_and_fro),
        cmocka_unit_test(test_kip951_hint_saves_the_backoff),
        cmocka_unit_test(test_CX_02_topic_made_anew),
        cmocka_unit_test(test_leader_gone_and_back),
        cmocka_unit_test(test_unsent_request_follows_the_leader),
        cmocka_unit_test(test_sent_request_follows_the_leader),
        cmocka_unit_test(test_a_sent_request_without_idempotence_waits_for_its_answer),
        cmocka_unit_test(test_partitions_that_stay_are_not_sent_twice),
        cmocka_unit_test(test_failing_allocations_in_the_midst_of_trouble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
