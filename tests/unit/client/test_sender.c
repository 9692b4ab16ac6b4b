/* test_sender.c - batches into requests, answers into outcomes: order, retries, sequences, throttling, deadlines. Cases CP-01 … CP-05, CX-12
 * (producer part). Producer ids and leaders: test_sender_leaders.c.
 */
#include "produce_peer.h"

/* ---- The plain way ---- */

static void test_one_record(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 3);
    world_send_n(w, 1, 1, 100);
    net_advance(w->net, 100 * MS);
    assert_log(w, 1, 1);
    assert_all_ok(w, 1);
    assert_int_equal(w->reports[0].topic, w->topic);
    assert_int_equal(w->reports[0].partition, 1);
    assert_int_equal(w->reports[0].size, 100);
    assert_int_equal(w->reports[0].timestamp_ms, w->logs[0][1].records[0].timestamp);
    assert_int_equal(w->trace[0].version, 13);
    assert_int_equal(w->trace[0].h.producer_id, 1000);
    assert_int_equal(w->trace[0].h.base_sequence, 0);
    assert_int_equal(w->reports_ready, 1);
    world_free(w);
}

static void test_linger_gathers(void **state) {
    (void)state;
    struct world *w = world_new(plain, 1);
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 50 * MS); /* connected, topic known */
    int before = w->trace_count;
    world_send_n(w, 0, 5, 16);
    net_advance(w->net, 4 * MS);
    assert_int_equal(w->trace_count, before); /* lingers */
    world_send_n(w, 0, 5, 16);
    net_advance(w->net, 2 * MS);
    assert_int_equal(w->trace_count, before + 1);
    assert_int_equal(w->trace[before].h.record_count, 10);
    assert_int_equal(w->trace[before].h.producer_id, -1);
    assert_all_ok(w, 11);
    world_free(w);
}

static void test_many_partitions_in_one_request(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 8);
    for (int32_t i = 0; i < 8; i++) world_send_n(w, i, 2, 16);
    net_advance(w->net, 100 * MS);
    assert_int_equal(w->net->requests[KW_API_PRODUCE], 1);
    assert_int_equal(w->trace_count, 8);
    world_drain(w);
    assert_int_equal(w->report_count, 16);
    world_free(w);
}

static void test_versions_3_to_13(void **state) {
    (void)state;
    for (int16_t v = 3; v <= 13; v++) {
        struct world *w = world_new(idempotent, 2);
        w->net->api_max[KW_API_PRODUCE] = v;
        world_send_n(w, 0, 3, 16);
        net_advance(w->net, 100 * MS);
        assert_int_equal(w->trace[0].version, v);
        assert_log(w, 0, 3);
        assert_all_ok(w, 3);
        world_free(w);
    }
}

static void test_broker_too_old(void **state) {
    (void)state;
    struct world *w = world_new(plain, 1);
    w->net->api_max[KW_API_PRODUCE] = 2;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 1 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, 1);
    assert_int_equal(w->reports[0].err, KC_UNSUPPORTED);
    assert_int_equal(w->reports[0].outcome, KC_NOT_PERSISTED);
    assert_non_null(strstr(w->last_message, "Produce 3"));
    world_free(w);
}

static void test_acks_0(void **state) {
    (void)state;
    static const char *const pairs[] = {"acks", "0", NULL};
    struct world *w = world_new(pairs, 1);
    world_send_n(w, 0, 3, 16);
    net_advance(w->net, 100 * MS);
    assert_log(w, 0, 3);
    world_drain(w);
    assert_int_equal(w->report_count, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(w->reports[i].err, KC_OK);
        assert_int_equal(w->reports[i].offset, -1);
        assert_int_equal(w->reports[i].outcome, KC_MAYBE_PERSISTED);
    }
    world_free(w);
}

/* A connection that only ever took acks=0 was no failure to connect when it breaks after a while: no backoff, no alarm. */
static void test_acks_0_connection_breaks(void **state) {
    (void)state;
    static const char *const pairs[] = {"acks", "0", NULL};
    struct world *w = world_new(pairs, 1);
    for (int i = 0; i < 30; i++) {
        world_send_n(w, 0, 1, 16);
        net_advance(w->net, 100 * MS);
    }
    struct link *l = NULL;
    for (size_t i = 0; i < w->net->link_count; i++)
        if (w->net->links[i].up && (!l || w->net->links[i].written > l->written)) l = &w->net->links[i];
    link_lost(l, KW_EIO, "connection reset by peer");
    assert_int_equal(kc_core_broker_held_until(w->net->core, 1), 0);
    assert_false(net_logged(w->net, 3, "ALL_BROKERS_DOWN"));
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 10 * MS);
    assert_log(w, 0, 31);
    world_free(w);
}

static void test_log_append_time(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    w->log_append_time = true;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100 * MS);
    world_drain(w);
    assert_int_equal(w->reports[0].timestamp_ms, 77);
    world_free(w);
}

/* ---- Retries and order ---- */

static void test_CP_01_a_failed_batch_stays_ahead(void **state) {
    (void)state;
    static const char *const pairs[] = {"enable.idempotence", "false", "max.in.flight.requests.per.connection", "1", NULL};
    struct world *w = world_new(pairs, 1);
    w->script = fail_first;
    world_send_batches(w, 0, 4);
    net_advance(w->net, 5 * SECOND);
    assert_log(w, 0, 4);
    assert_all_ok(w, 4);
    assert_true(w->trace[1].at_us - w->trace[0].at_us >= 80 * MS); /* retry.backoff.ms less a fifth */
    world_free(w);
}

/* While the number of partitions is unknown, keyed records wait for theirs: those with a partition given must not overtake them. */
static void test_given_partitions_keep_their_place_behind_keys(void **state) {
    (void)state;
    static const char *const none[] = {NULL};
    for (int waiter = 0; waiter < 2; waiter++) {
        struct world *w = world_new(none, 3);
        int32_t at = (int32_t)((kc_murmur2("key", 3) & 0x7fffffff) % 3);
        for (uint64_t v = 1; v <= 6; v++) {
            int32_t partition = v == 1 || v % 2 == 0 ? at : -1; /* 1 goes straight to its partition, 2 as well; 3 waits, and 4 … behind it */
            if (v == 2) partition = -1;
            w->next_value = v;
            assert_int_equal(world_send(w, partition, partition < 0 ? "key" : NULL, partition < 0 ? 3 : -1, &v, 8, v), KC_OK);
            if (waiter && v == 4) {
                kc_lock_take(&w->p->accum.lock);
                kc_accum_seal_all(&w->p->accum);
                kc_lock_give(&w->p->accum.lock);
            }
        }
        net_advance(w->net, 1 * SECOND);
        assert_log(w, at, 6);
        assert_all_ok(w, 6);
        for (int i = 0; i < 6; i++) assert_int_equal(w->reports[i].partition, at);
        for (int i = 0; i < 6; i++) assert_int_equal(w->reports[i].size, i == 0 || i == 3 || i == 5 ? 8 : 11);
        world_free(w);
    }
}

/* One that fails before the count is known still says which partition it was for. */
static void test_given_partitions_are_reported(void **state) {
    (void)state;
    static const char *const pairs[] = {"delivery.timeout.ms", "500", NULL};
    struct world *w = world_new(pairs, 0);
    uint64_t v = 1;
    assert_int_equal(world_send(w, -1, "key", 3, &v, 8, v), KC_OK);
    v = 2;
    assert_int_equal(world_send(w, 7, NULL, -1, &v, 8, v), KC_OK);
    net_advance(w->net, 1 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, 2);
    assert_int_equal(w->reports[0].partition, -1);
    assert_int_equal(w->reports[1].partition, 7);
    assert_int_equal(w->reports[1].size, 8);
    assert_int_equal(w->reports[1].timestamp_ms, 1700000000000);
    world_free(w);
}

/* CP-02: the broker has stored a large batch and its answer is lost; what is queued meanwhile must not change the retry: the same bytes. */
static void test_CP_02_same_bytes_on_retry(void **state) {
    (void)state;
    static const char *const codecs[] = {"none", "zstd"};
    for (size_t c = 0; c < KW_COUNTOF(codecs); c++) {
        const char *pairs[] = {"compression.type", codecs[c], NULL};
        struct world *w = world_new(pairs, 1);
        w->keep_bytes = true;
        world_send_n(w, 0, 500, 1000);
        w->script = lose_first;
        net_advance(w->net, 20 * MS); /* lost by now, and in its backoff */
        assert_int_equal(w->trace_count, 1);
        assert_int_equal(w->logs[0][0].count, 500);
        for (int i = 0; i < 3; i++) {
            world_send_n(w, 0, 50, 300);
            net_advance(w->net, 20 * MS);
        }
        net_advance(w->net, 10 * SECOND);
        const struct sent *first = &w->trace[0], *again = &w->trace[1];
        assert_int_equal(again->h.base_sequence, first->h.base_sequence);
        assert_int_equal(again->h.record_count, 500);
        assert_int_equal(again->size, first->size);
        assert_memory_equal(again->bytes, first->bytes, first->size);
        assert_int_equal(again->code, KE_NONE); /* known again, at its first place */
        assert_log(w, 0, 650);
        assert_all_ok(w, 650);
        assert_int_equal(w->p->accum.fatal, KC_OK);
        world_free(w);
    }
}

/* CP-03: sequence 0 times out, nobody knows whether it was stored; sequence 1, in flight behind it, comes back out of order. Both are sent again under
 * their numbers: stored and known again, or not stored and taken now. */
static enum verdict time_out_first(struct world *w, const struct sent *s, int16_t *code) {
    (void)s;
    *code = KE_REQUEST_TIMED_OUT;
    return w->step++ == 0 ? (w->stored ? V_STORE_ERROR : V_ERROR) : V_SERVE;
}
static enum verdict refuse_second_too(struct world *w, const struct sent *s, int16_t *code) {
    if (w->step == 1) { /* as a broker that has not stored the first: also when it has, and answers from a replica's old state */
        w->step++;
        *code = KE_OUT_OF_ORDER_SEQUENCE_NUMBER;
        return V_ERROR;
    }
    return time_out_first(w, s, code);
}
static enum verdict duplicate_by_error(struct world *w, const struct sent *s, int16_t *code) {
    if (w->step == 2) {
        w->step++;
        *code = KE_DUPLICATE_SEQUENCE_NUMBER;
        return V_ERROR;
    }
    return refuse_second_too(w, s, code);
}
static void test_CP_03_out_of_order_behind_an_unknown_outcome(void **state) {
    (void)state;
    static const struct {
        enum verdict (*script)(struct world *w, const struct sent *s, int16_t *code);
        bool stored, by_error;
    } cases[] = {{time_out_first, false, false}, {refuse_second_too, true, false}, {duplicate_by_error, true, true}};
    for (size_t c = 0; c < KW_COUNTOF(cases); c++) {
        struct world *w = world_new(idempotent, 1);
        w->script = cases[c].script;
        w->stored = cases[c].stored;
        world_send_batches(w, 0, 2);
        net_advance(w->net, 5 * SECOND);
        static const int32_t sequences[] = {0, 1, 0, 1};
        assert_int_equal(w->trace_count, 4);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(w->trace[i].h.base_sequence, sequences[i]);
            assert_int_equal(w->trace[i].h.producer_epoch, 0);
        }
        assert_int_equal(w->trace[0].code, KE_REQUEST_TIMED_OUT);
        assert_int_equal(w->trace[1].code, KE_OUT_OF_ORDER_SEQUENCE_NUMBER);
        assert_log(w, 0, 2);
        assert_all_ok(w, 2);
        assert_int_equal(w->reports[0].flags & KC_REPORT_DUPLICATE, cases[c].by_error ? KC_REPORT_DUPLICATE : 0);
        assert_int_equal(w->p->accum.fatal, KC_OK);
        world_free(w);
    }
}

static enum verdict store_then_duplicate(struct world *w, const struct sent *s, int16_t *code) {
    (void)s;
    *code = w->step == 0 ? KE_REQUEST_TIMED_OUT : KE_DUPLICATE_SEQUENCE_NUMBER;
    return w->step++ == 0 ? V_STORE_ERROR : V_ERROR;
}
static void test_duplicate_sequence_counts_as_delivered(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    w->script = store_then_duplicate;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 5 * SECOND);
    assert_log(w, 0, 1);
    world_drain(w);
    assert_int_equal(w->report_count, 1);
    assert_int_equal(w->reports[0].err, KC_OK);
    assert_int_equal(w->reports[0].outcome, KC_PERSISTED);
    assert_int_equal(w->reports[0].offset, -1);
    assert_true(w->reports[0].flags & KC_REPORT_DUPLICATE);
    world_free(w);
}

/* CP-04: next sequence 2^31 - 3, six batches of one record, then one of five that straddles the wrap. */
static void wrap_at(struct world *w, int32_t next) { /* the producer and the broker, as if that many records had been sent */
    w->p->accum.topics[w->topic]->parts[0]->next_sequence = next;
    w->logs[0][0].producers[0].last_sequence = next - 1;
    w->logs[0][0].producers[0].recent_count = 0;
}
static void test_CP_04_sequences_wrap(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    world_send_n(w, 0, 1, 16); /* makes the partition's state */
    net_advance(w->net, 100 * MS);
    wrap_at(w, INT32_MAX - 2);
    world_send_batches(w, 0, 6);
    net_advance(w->net, 1 * SECOND);
    static const int32_t expected[] = {0, INT32_MAX - 2, INT32_MAX - 1, INT32_MAX, 0, 1, 2};
    assert_int_equal(w->trace_count, 7);
    for (int i = 0; i < 7; i++) assert_int_equal(w->trace[i].h.base_sequence, expected[i]);
    /* Its answer is lost: still known as a duplicate. */
    wrap_at(w, INT32_MAX - 1);
    w->script = lose_first;
    world_send_n(w, 0, 5, 16);
    net_advance(w->net, 5 * SECOND);
    assert_int_equal(w->trace_count, 9);
    assert_int_equal(w->trace[7].h.base_sequence, INT32_MAX - 1);
    assert_int_equal(w->trace[8].h.base_sequence, INT32_MAX - 1);
    assert_int_equal(w->trace[8].h.record_count, 5);
    assert_int_equal(w->p->accum.topics[w->topic]->parts[0]->next_sequence, 3);
    /* One that straddles it and is too large: its halves keep the numbers. */
    wrap_at(w, INT32_MAX - 1);
    w->max_bytes = 150;
    world_send_n(w, 0, 6, 16);
    net_advance(w->net, 5 * SECOND);
    assert_int_equal(w->p->accum.topics[w->topic]->parts[0]->next_sequence, 4);
    for (int i = 9; i < w->trace_count; i++) assert_int_equal(w->trace[i].h.producer_epoch, 0);
    assert_log(w, 0, 18);
    assert_all_ok(w, 18);
    world_free(w);
}

static void test_CP_05_leader_dies_with_a_torn_request(void **state) {
    (void)state;
    for (int idem = 0; idem < 2; idem++) {
        struct world *w = world_new(idem ? idempotent : plain, 2);
        net_broker(w->net, 2, "b1", 9092);
        world_send_n(w, 0, 1, 16);
        net_advance(w->net, 100 * MS);
        uint8_t value[2000] = {0};
        for (uint64_t v = 2; v <= 20; v++) {
            memcpy(value, &v, 8);
            assert_int_equal(world_send(w, 0, NULL, -1, value, sizeof value, v), KC_OK);
        }
        uint64_t before = net_link(w->net, "b0")->written;
        w->net->write_max = 100; /* the socket takes a little at a time: the request is torn */
        w->net->now.mono_us += 6 * MS;
        for (int i = 0; i < 8; i++) {
            uint32_t wants;
            kc_core_tick(w->net->core, w->net->now);
            struct kc_conn *c = kc_core_next_action(w->net->core, &wants);
            if (c) net_act(w->net, c, wants);
        }
        assert_true(net_link(w->net, "b0")->written > before);
        assert_true(net_link(w->net, "b0")->written < before + 2000);
        w->net->topics[0].leader[0] = w->net->topics[0].leader[1] = 2;
        w->net->topics[0].epoch[0] = w->net->topics[0].epoch[1] = 1;
        w->net->brokers[0].refuses = true;
        for (size_t i = 0; i < w->net->link_count; i++)
            if (w->net->links[i].conn && strcmp(w->net->links[i].host, "b0") == 0) link_lost(&w->net->links[i], KW_EIO, "connection reset");
        w->net->write_max = 0;
        net_advance(w->net, 10 * SECOND);
        assert_log(w, 0, 20);
        assert_all_ok(w, 20);
        world_free(w);
    }
}

static enum verdict always_not_enough(struct world *w, const struct sent *s, int16_t *code) {
    (void)w, (void)s;
    *code = KE_NOT_ENOUGH_REPLICAS;
    return V_ERROR;
}
static enum verdict always_not_enough_after(struct world *w, const struct sent *s, int16_t *code) {
    (void)w, (void)s;
    *code = KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND;
    return V_ERROR;
}
static void test_retries_are_counted(void **state) {
    (void)state;
    static const char *const pairs[] = {"enable.idempotence", "false", "retries", "2", NULL};
    for (int after = 0; after < 2; after++) {
        struct world *w = world_new(pairs, 1);
        w->script = after ? always_not_enough_after : always_not_enough;
        world_send_n(w, 0, 1, 16);
        net_advance(w->net, 10 * SECOND);
        assert_int_equal(w->trace_count, 3);
        assert_true(w->trace[2].at_us - w->trace[1].at_us > w->trace[1].at_us - w->trace[0].at_us); /* the backoff grows */
        world_drain(w);
        assert_int_equal(w->report_count, 1);
        assert_int_equal(w->reports[0].err, after ? KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND : KE_NOT_ENOUGH_REPLICAS);
        assert_int_equal(w->reports[0].outcome, after ? KC_MAYBE_PERSISTED : KC_NOT_PERSISTED);
        world_free(w);
    }
}

static enum verdict invalid_record(struct world *w, const struct sent *s, int16_t *code) {
    (void)w, (void)s;
    *code = KE_INVALID_RECORD;
    return V_ERROR;
}
static void test_record_errors(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    w->script = invalid_record;
    w->bad_index = 1;
    world_send_n(w, 0, 3, 16);
    net_advance(w->net, 100 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 3);
    assert_int_equal(count_err(w, KE_INVALID_RECORD), 3);
    assert_int_equal(w->trace_count, 1); /* not tried again */
    assert_non_null(strstr(w->last_message, "record 1 of the same batch"));
    assert_non_null(strstr(w->last_message, "this one is bad"));
    w->script = NULL; /* the numbers of the refused batch are used again */
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100 * MS);
    assert_int_equal(w->trace[1].h.base_sequence, 0);
    assert_int_equal(w->logs[0][0].count, 1);
    world_free(w);
}

static void test_too_large_is_split(void **state) {
    (void)state;
    static const char *const codecs[] = {"none", "lz4"};
    for (size_t c = 0; c < KW_COUNTOF(codecs); c++) {
        const char *pairs[] = {"compression.type", codecs[c], NULL};
        struct world *w = world_new(pairs, 1);
        w->max_bytes = c ? 60 : 3000;
        world_send_n(w, 0, 50, 200);
        if (c == 1) w->max_bytes = 200;
        net_advance(w->net, 10 * SECOND);
        assert_log(w, 0, 50);
        assert_all_ok(w, 50);
        assert_first_epoch(w);
        if (c == 0) { /* later ones fit from the start */
            int before = w->trace_count;
            world_send_n(w, 0, 50, 200);
            net_advance(w->net, 1 * SECOND);
            for (int i = before; i < w->trace_count; i++) assert_true(w->trace[i].size <= 3000);
            assert_log(w, 0, 100);
        }
        world_free(w);
    }
    struct world *w = world_new(idempotent, 1); /* a record alone cannot be split */
    w->max_bytes = 100;
    world_send_n(w, 0, 1, 200);
    net_advance(w->net, 1 * SECOND);
    world_drain(w);
    assert_int_equal(w->reports[0].err, KE_MESSAGE_TOO_LARGE);
    assert_int_equal(w->reports[0].outcome, KC_NOT_PERSISTED);
    world_free(w);
}

/* ---- Throttling and deadlines ---- */

static void test_CX_12_throttled_broker_is_left_alone(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    w->throttle_ms = 2000;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100 * MS);
    assert_int_equal(w->trace_count, 1);
    w->throttle_ms = 0;
    for (int i = 0; i < 10; i++) {
        world_send_n(w, 0, 1, 16);
        net_advance(w->net, 100 * MS);
    }
    assert_int_equal(w->trace_count, 1);
    net_advance(w->net, 2 * SECOND);
    assert_true(w->trace[1].at_us - w->trace[0].at_us >= 1990 * MS);
    assert_int_equal(w->trace[1].h.record_count, 10); /* the batch grew meanwhile */
    assert_all_ok(w, 11);
    world_free(w);
}

static void test_expiry_in_the_queue(void **state) {
    (void)state;
    static const char *const pairs[] = {"delivery.timeout.ms", "3000", "request.timeout.ms", "2000", NULL};
    struct world *w = world_new(pairs, 1);
    world_first(w);
    w->net->brokers[0].refuses = true;
    struct link *l;
    while ((l = net_link(w->net, "b0"))) link_lost(l, KW_EIO, "connection reset");
    int64_t start = w->net->now.mono_us;
    world_send_n(w, 0, 3, 16);
    net_advance(w->net, 2900 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 1);
    net_advance(w->net, 110 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 4);
    assert_int_equal(count_err(w, KC_EXPIRED), 3);
    assert_int_equal(w->reports[3].outcome, KC_NOT_PERSISTED);
    assert_non_null(strstr(w->last_message, "refused")); /* never "timed out" alone */
    assert_true(w->net->now.mono_us - start < 3100 * MS);
    world_free(w);
}

static void test_records_own_deadline(void **state) {
    (void)state;
    struct world *w = world_new(idempotent, 1);
    w->net->topics[0].leader[0] = -1;
    static const int64_t timeouts[] = {500 * MS, 0, 500 * MS, -1};
    for (int i = 0; i < 4; i++) world_send_within(w, 0, timeouts[i], false);
    net_advance(w->net, 600 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 2);
    assert_int_equal(w->reports[0].opaque, 1);
    assert_int_equal(w->reports[1].opaque, 3);
    net_advance(w->net, 130 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, 3);
    assert_int_equal(w->reports[2].opaque, 2);
    w->net->topics[0].leader[0] = 1; /* the one without a limit is still there */
    net_advance(w->net, 60 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, 4);
    assert_int_equal(w->reports[3].err, KC_OK);
    world_free(w);
}

/* CX-08: absurd limits neither wrap nor end early. */
static void test_CX_08_absurd_deadlines(void **state) {
    (void)state;
    static const int64_t timeouts[] = {INT64_MAX, INT64_MAX / 2, (int64_t)36 * 3600 * SECOND, -1};
    struct world *w = world_new(idempotent, 1);
    w->net->topics[0].leader[0] = -1;
    for (int i = 0; i < 4; i++) world_send_within(w, 0, timeouts[i], false);
    net_advance(w->net, 200 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, 0);
    w->net->topics[0].leader[0] = 1;
    net_advance(w->net, 10 * SECOND);
    assert_log(w, 0, 4);
    assert_all_ok(w, 4);
    world_free(w);
}

static void test_lost_answer_without_idempotence_may_store_twice(void **state) {
    (void)state;
    struct world *w = world_new(plain, 1);
    w->script = lose_first;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 5 * SECOND);
    assert_int_equal(w->logs[0][0].count, 2); /* at least once: this is what idempotence is for */
    world_drain(w);
    assert_int_equal(w->report_count, 1);
    assert_int_equal(w->reports[0].err, KC_OK);
    world_free(w);
    static const char *const once[] = {"enable.idempotence", "false", "retries", "0", NULL};
    w = world_new(once, 1);
    w->script = break_first;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 5 * SECOND);
    world_drain(w);
    assert_int_equal(w->reports[0].err, KC_TRANSPORT);
    assert_int_equal(w->reports[0].outcome, KC_MAYBE_PERSISTED);
    world_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_record),
        cmocka_unit_test(test_linger_gathers),
        cmocka_unit_test(test_many_partitions_in_one_request),
        cmocka_unit_test(test_versions_3_to_13),
        cmocka_unit_test(test_broker_too_old),
        cmocka_unit_test(test_acks_0),
        cmocka_unit_test(test_acks_0_connection_breaks),
        cmocka_unit_test(test_log_append_time),
        cmocka_unit_test(test_CP_01_a_failed_batch_stays_ahead),
        cmocka_unit_test(test_given_partitions_keep_their_place_behind_keys),
        cmocka_unit_test(test_given_partitions_are_reported),
        cmocka_unit_test(test_CP_02_same_bytes_on_retry),
        cmocka_unit_test(test_CP_03_out_of_order_behind_an_unknown_outcome),
        cmocka_unit_test(test_duplicate_sequence_counts_as_delivered),
        cmocka_unit_test(test_CP_04_sequences_wrap),
        cmocka_unit_test(test_CP_05_leader_dies_with_a_torn_request),
        cmocka_unit_test(test_retries_are_counted),
        cmocka_unit_test(test_record_errors),
        cmocka_unit_test(test_too_large_is_split),
        cmocka_unit_test(test_CX_12_throttled_broker_is_left_alone),
        cmocka_unit_test(test_expiry_in_the_queue),
        cmocka_unit_test(test_records_own_deadline),
        cmocka_unit_test(test_CX_08_absurd_deadlines),
        cmocka_unit_test(test_lost_answer_without_idempotence_may_store_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
