/* test_consume.c - fetching on the consumer's core: sessions, order, pausing, seeking, leaders, limits, errors. Virtual time, scripted brokers. */
#include "consume_peer.h"

/* ---- The plain way ---- */

static void reads_all_in_order(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[t][0], 1000, 10, 0);
    log_fill(&w->logs[t][1], 500, 7, 0);
    assert_int_equal(cw_assign(w, t, 0, KC_OFFSET_BEGINNING), KC_OK);
    assert_int_equal(cw_assign(w, t, 1, 100), KC_OK);
    assert_int_equal(cw_position(w, t, 0), KC_OFFSET_RESET);
    assert_int_equal(cw_position(w, t, 1), 100);
    cw_consume(w, 2000000);
    cw_expect(w, t, 0, 0, 1000);
    cw_expect(w, t, 1, 100, 500);
    assert_int_equal(cw_position(w, t, 0), 1000);
    log_fill(&w->logs[t][0], 5, 5, 0);
    cw_consume(w, 1000000);
    cw_expect(w, t, 0, 0, 1005);
    assert_true(w->session_fetches > 0);
    assert_true(w->notified > 0);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    cw_free(w);
}

static void works_with(int16_t fetch_max, bool no_sessions) {
    struct cw *w = cw_new(PAIRS("max.partition.fetch.bytes", "2000"));
    w->net->api_max[KW_API_FETCH] = fetch_max;
    w->no_sessions = no_sessions;
    int t = cw_topic(w, "t", 3, 1);
    cw_fill_assign(w, t, 300, 0);
    cw_consume(w, 3000000);
    for (int p = 0; p < 3; p++) cw_expect(w, t, p, 0, 300);
    assert_int_equal(w->session_fetches > 0, fetch_max >= 7 && !no_sessions);
    cw_free(w);
}
static void works_with_every_version(void **state) {
    (void)state;
    for (int16_t v = 4; v <= 18; v++) works_with(v, false);
    works_with(18, true);
    works_with(12, true);
}

static void tells_of_a_broker_without_a_common_version(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    w->net->api_max[KW_API_FETCH] = 3;
    w->net->api_min[KW_API_FETCH] = 0;
    int t = cw_topic(w, "t", 1, 1);
    cw_assign(w, t, 0, 0);
    cw_consume(w, 10000000);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 1);
    assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, KC_UNSUPPORTED);
    cw_free(w);
}

/* ---- CC-01 ---- */

static void endless_partition_does_not_crowd_out_others(bool no_sessions) {
    struct cw *w = cw_new(PAIRS("fetch.max.bytes", "20000", "max.partition.fetch.bytes", "20000"));
    w->no_sessions = no_sessions;
    int t = cw_topic(w, "t", 3, 1);
    log_fill(&w->logs[t][0], 4000, 10, 100);
    for (int p = 0; p < 3; p++) cw_assign(w, t, p, 0);
    cw_consume(w, 20000);
    for (int second = 0; second < 5; second++) {
        int before = w->fetch_count;
        log_fill(&w->logs[t][1], 1, 1, 0);
        log_fill(&w->logs[t][2], 1, 1, 0);
        int n1 = cw_count(w, KC_EVENT_RECORDS, 1), n2 = cw_count(w, KC_EVENT_RECORDS, 2);
        while (w->fetch_count < before + 3) {
            cw_advance(w, 1000);
            cw_take_all(w);
        }
        assert_int_equal(cw_count(w, KC_EVENT_RECORDS, 1), n1 + 1);
        assert_int_equal(cw_count(w, KC_EVENT_RECORDS, 2), n2 + 1);
    }
    cw_free(w);
}
static void cc01_slow_partitions_are_read_within_two_rounds(void **state) {
    (void)state;
    endless_partition_does_not_crowd_out_others(false);
    endless_partition_does_not_crowd_out_others(true);
}

/* Delivery takes turns too: with everything fetched, no partition gets a second event before each had one. */
static void cc01_delivery_takes_turns(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("max.poll.records", "10"));
    int t = cw_topic(w, "t", 3, 1);
    cw_fill_assign(w, t, 50, 0);
    cw_advance(w, 100000);
    for (int i = 0; i < 15; i++) {
        assert_int_equal(cw_take(w), KC_EVENT_RECORDS);
        int least = INT32_MAX, most = 0;
        for (int p = 0; p < 3; p++) {
            int n = cw_count(w, KC_EVENT_RECORDS, p);
            least = KW_MIN(least, n);
            most = KW_MAX(most, n);
        }
        assert_true(most - least <= 10);
    }
    cw_free(w);
}

/* ---- Pause, resume, seek ---- */

static void cc08_resume_of_what_is_not_paused_changes_nothing(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 1, 1);
    cw_fill_assign(w, t, 100, 0);
    cw_advance(w, 50000);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(cw_pause(w, t, 0, false), KC_OK);
        cw_advance(w, 3000);
        cw_take(w);
        log_fill(&w->logs[t][0], 10, 10, 0);
    }
    cw_consume(w, 1000000);
    cw_expect(w, t, 0, 0, 300);
    cw_free(w);
}

static void paused_gives_nothing_and_loses_nothing(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("max.poll.records", "10"));
    int t = cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[t][0], 100, 50, 0);
    log_fill(&w->logs[t][1], 100, 50, 0);
    cw_assign(w, t, 0, 0);
    cw_assign(w, t, 1, 0);
    cw_advance(w, 50000);
    assert_int_equal(cw_take(w), KC_EVENT_RECORDS);
    assert_int_equal(cw_pause(w, t, 0, true), KC_OK);
    int before = cw_count(w, KC_EVENT_RECORDS, 0);
    cw_consume(w, 3000000);
    assert_int_equal(cw_count(w, KC_EVENT_RECORDS, 0), before);
    assert_int_equal(cw_count(w, KC_EVENT_RECORDS, 1), 100);
    int traced = w->trace_count;
    cw_consume(w, 2000000);
    for (int i = traced; i < w->trace_count; i++) assert_int_equal(w->trace[i].partition, 1); /* and it is not asked for */
    assert_int_equal(cw_pause(w, t, 0, false), KC_OK);
    cw_consume(w, 1000000);
    cw_expect(w, t, 0, 0, 100);
    cw_expect(w, t, 1, 0, 100);
    assert_int_equal(cw_pause(w, t, 5, true), KC_NOT_ASSIGNED);
    cw_free(w);
}

static void seek_drops_what_was_fetched(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("max.poll.records", "10"));
    int t = cw_topic(w, "t", 1, 1);
    log_fill(&w->logs[t][0], 200, 50, 0);
    cw_assign(w, t, 0, 0);
    cw_advance(w, 50000);
    assert_int_equal(cw_take(w), KC_EVENT_RECORDS); /* 10 of a batch of 50 */
    assert_int_equal(cw_position(w, t, 0), 10);
    assert_int_equal(cw_seek(w, t, 0, 150), KC_OK);
    assert_int_equal(cw_position(w, t, 0), 150);
    assert_int_equal(cw_take(w), 0);
    w->got_count = 0;
    cw_consume(w, 2000000);
    cw_expect(w, t, 0, 150, 200);
    assert_int_equal(cw_seek(w, t, 0, 30), KC_OK);
    w->got_count = 0;
    cw_consume(w, 2000000);
    cw_expect(w, t, 0, 30, 200);
    assert_int_equal(cw_seek(w, t, 0, -7), KC_INVALID);
    assert_int_equal(cw_seek(w, t, 3, 7), KC_NOT_ASSIGNED);
    cw_free(w);
}

/* A seek while its fetch is outstanding: the answer for the old position is not taken for the new one. */
static void seek_while_a_fetch_is_outstanding(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 1, 1);
    cw_fill_assign(w, t, 100, 100);
    cw_advance(w, 100000); /* the fetch at the end waits */
    cw_seek(w, t, 0, 40);
    log_fill(&w->logs[t][0], 10, 10, 0); /* which answers it */
    cw_consume(w, 1000000);
    cw_expect(w, t, 0, 40, 110);
    cw_free(w);
}

static void poll_one_stops_at_a_seek_and_at_an_assign(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[t][0], 100, 50, 0);
    log_fill(&w->logs[t][1], 100, 50, 0);
    cw_assign(w, t, 0, 0);
    cw_advance(w, 50000);
    kc_event *e = NULL;
    struct kc_one *one = &w->c.one;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kc_consume_one(&w->c, &e), KC_OK);
        assert_null(e);
        assert_int_equal(one->e->views[one->at].offset, i);
        assert_int_equal(cw_position(w, t, 0), i + 1);
    }
    cw_seek(w, t, 0, 90);
    assert_int_equal(cw_position(w, t, 0), 90);
    assert_int_equal(kc_consume_one(&w->c, &e), KC_BUSY); /* nothing of the old position */
    cw_advance(w, 1000000);
    assert_int_equal(kc_consume_one(&w->c, &e), KC_OK);
    assert_int_equal(one->e->views[one->at].offset, 90);
    assert_int_equal(cw_assign_alone(w, t, 1, 10), KC_OK);
    assert_int_equal(kc_consume_one(&w->c, &e), KC_BUSY); /* CC-07: nothing of what is no longer assigned */
    cw_advance(w, 1000000);
    assert_int_equal(kc_consume_one(&w->c, &e), KC_OK);
    assert_null(e);
    assert_int_equal(one->e->partition, 1);
    assert_int_equal(one->e->views[one->at].offset, 10);
    cw_free(w);
}

static void poll_one_pauses_within_an_event_and_mixes_with_poll(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[t][0], 60, 60, 0);
    cw_assign(w, t, 0, 0);
    cw_advance(w, 50000);
    log_fill(&w->logs[t][1], 5, 5, 0);
    cw_assign(w, t, 1, 0);
    cw_advance(w, 1000000);
    kc_event *e = NULL;
    struct kc_one *one = &w->c.one;
    for (int i = 0; i < 5; i++) assert_int_equal(kc_consume_one(&w->c, &e), KC_OK);
    cw_pause(w, t, 0, true);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kc_consume_one(&w->c, &e), KC_OK);
        assert_int_equal(one->e->partition, 1);
    }
    assert_int_equal(kc_consume_one(&w->c, &e), KC_BUSY);
    assert_int_equal(cw_position(w, t, 0), 5);
    cw_pause(w, t, 0, false);
    for (int i = 5; i < 20; i++) {
        assert_int_equal(kc_consume_one(&w->c, &e), KC_OK);
        assert_int_equal(one->e->views[one->at].offset, i);
    }
    kc_consume_one_drop(&w->c); /* what kc_consumer_poll does first */
    assert_int_equal(cw_position(w, t, 0), 20);
    cw_take_all(w);
    cw_expect(w, t, 0, 20, 60);
    assert_int_equal(kc_consume_one(&w->c, &e), KC_BUSY);
    cw_free(w);
}

/* ---- CC-07: assignment ---- */

static void cc07_nothing_of_a_partition_that_was_taken_away(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("max.poll.records", "10"));
    int t = cw_topic(w, "t", 2, 1);
    for (int p = 0; p < 2; p++) {
        log_fill(&w->logs[t][p], 100, 20, 0);
        cw_assign(w, t, p, 0);
    }
    cw_advance(w, 50000);
    for (int i = 0; i < 3; i++) cw_take(w);
    int before = cw_count(w, KC_EVENT_RECORDS, 0);
    assert_int_equal(cw_assign_alone(w, t, 1, KC_OFFSET_RESET), KC_OK);
    cw_consume(w, 1000000);
    assert_int_equal(cw_count(w, KC_EVENT_RECORDS, 0), before);
    cw_expect(w, t, 1, 0, 100); /* the one that was kept has lost nothing */
    cw_free(w);
}

/* Taken away and given back while its fetch waits: the session must not forget it afterwards. */
static void assigned_anew_while_its_fetch_is_outstanding(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[t][0], 10, 10, 0);
    cw_assign(w, t, 0, 0);
    cw_assign(w, t, 1, 0);
    cw_consume(w, 700000);
    for (int round = 0; round < 4; round++) {
        assert_int_equal(cw_assign_alone(w, t, 1, KC_OFFSET_RESET), KC_OK);
        if (round & 1) cw_advance(w, 1000);
        cw_assign(w, t, 0, 5);
        w->got_count = 0;
        cw_consume(w, 1500000);
        cw_expect(w, t, 0, 5, 10 + round);
        log_fill(&w->logs[t][0], 1, 1, 0);
        cw_consume(w, 1000000);
        cw_expect(w, t, 0, 5, 11 + round);
    }
    cw_free(w);
}

static void assign_is_all_or_nothing(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[t][0], 10, 10, 0);
    cw_assign(w, t, 0, 0);
    kc_topic_partition bad[2] = {{.topic = w->topic[t], .partition = 1, .offset = 0}, {.topic = 99, .partition = 0, .offset = 0}};
    assert_int_equal(kc_consume_assign(&w->c, bad, sizeof *bad, 2, 0), KC_INVALID);
    bad[1] = (kc_topic_partition){.topic = w->topic[t], .partition = -1};
    assert_int_equal(kc_consume_assign(&w->c, bad, sizeof *bad, 2, 0), KC_INVALID);
    bad[1] = (kc_topic_partition){.topic = w->topic[t], .partition = 0, .offset = -5};
    assert_int_equal(kc_consume_assign(&w->c, bad, sizeof *bad, 2, 0), KC_INVALID);
    assert_int_equal(cw_position(w, t, 1), -9);
    cw_consume(w, 1000000);
    cw_expect(w, t, 0, 0, 10);
    assert_int_equal(kc_consume_assign(&w->c, NULL, sizeof *bad, 0, 0), KC_OK);
    cw_advance(w, 1000000);
    assert_true(kw_list_empty(&w->c.parts));
    cw_free(w);
}

/* ---- Leaders ---- */

static void move_leader(struct cw *w, int t, int32_t p, int32_t to) {
    w->net->topics[t].leader[p] = to;
    cw_epoch(w, t, p, w->net->topics[t].epoch[p] + 1);
}
static struct cw *two_brokers(const char *const *pairs, int *t, int32_t partitions) {
    struct cw *w = cw_new(pairs);
    net_broker(w->net, 2, "b1", 9092);
    *t = cw_topic(w, "t", partitions, 1);
    for (int p = 0; p < partitions; p++) {
        w->logs[*t][p].epoch_count = 1;
        w->logs[*t][p].epochs[0].epoch = 0;
    }
    return w;
}

static void follows_the_leader(void **state) {
    (void)state;
    int t;
    struct cw *w = two_brokers(NULL, &t, 2);
    cw_fill_assign(w, t, 100, 0);
    cw_consume(w, 1000000);
    for (int round = 0; round < 6; round++) {
        move_leader(w, t, 0, round & 1 ? 1 : 2);
        log_fill(&w->logs[t][0], 20, 10, 0);
        log_fill(&w->logs[t][1], 20, 10, 0);
        cw_consume(w, 3000000);
        cw_expect(w, t, 0, 0, 120 + round * 20);
        cw_expect(w, t, 1, 0, 120 + round * 20);
    }
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    assert_true(w->epochs_asked > 0); /* KIP-320 */
    cw_free(w);
}

/* A leader that no longer answers fetches, while another one was elected: metadata is asked, and the partition goes on there, not after request timeouts.
 * The one that still belongs to the frozen broker does not hold it up. */
static void leaves_a_frozen_leader(void **state) {
    (void)state;
    int t;
    struct cw *w = two_brokers(NULL, &t, 2);
    cw_fill_assign(w, t, 100, 0);
    cw_consume(w, 1000000);
    w->frozen = 1;
    move_leader(w, t, 0, 2);
    log_fill(&w->logs[t][0], 20, 10, 0);
    log_fill(&w->logs[t][1], 20, 10, 0);
    cw_consume(w, 4000000);
    cw_expect(w, t, 0, 0, 120);
    cw_expect(w, t, 1, 0, 100);
    w->frozen = 0;
    cw_consume(w, 40000000);
    cw_expect(w, t, 1, 0, 120);
    cw_free(w);
}

static bool drop_epochs(struct cw *w, struct request *rq) {
    return rq->head.api_key == KW_API_OFFSET_FOR_LEADER_EPOCH && w->ctx;
}

/* CC-09: the leader changes while a fetch is outstanding at the old one; its answer arrives while the position is being validated. */
static void cc09_answers_during_validation_are_dropped(void **state) {
    (void)state;
    int t;
    struct cw *w = two_brokers(NULL, &t, 2);
    log_fill(&w->logs[t][0], 50, 10, 0);
    cw_assign(w, t, 0, 0);
    cw_assign(w, t, 1, 0); /* keeps the session with broker 1 */
    cw_consume(w, 700000);
    w->before = drop_epochs;
    w->ctx = w; /* validation stays outstanding */
    cw_epoch(w, t, 0, 1); /* same leader */
    kc_metadata_refresh(w->net->core, "test");
    cw_advance(w, 600000);
    assert_int_equal(cw_part(w, t, 0)->state, KC_PART_VALIDATE);
    log_batch(&w->logs[t][0], (struct batch_spec){.base = 50, .n = 10, .epoch = 1}); /* an answer for it */
    cw_consume(w, 100000);
    assert_int_equal(cw_count(w, KC_EVENT_RECORDS, 0), 50);
    w->ctx = NULL;
    cw_consume(w, 40000000);
    cw_expect(w, t, 0, 0, 60);
    cw_free(w);
}

/* PR-12: the epoch of every fetch of a session is the one that metadata names now. */
static void pr12_each_fetch_carries_the_present_epoch(void **state) {
    (void)state;
    int t;
    struct cw *w = two_brokers(NULL, &t, 1);
    cw_fill_assign(w, t, 10, 0);
    cw_consume(w, 700000);
    cw_epoch(w, t, 0, 7); /* the broker fences fetches of epoch 0 */
    log_fill(&w->logs[t][0], 10, 10, 0);
    int traced = w->trace_count;
    cw_consume(w, 3000000);
    cw_expect(w, t, 0, 0, 20);
    bool seen = false;
    for (int i = traced; i < w->trace_count; i++) {
        if (w->trace[i].epoch == 7) seen = true;
        if (seen) assert_int_equal(w->trace[i].epoch, 7);
    }
    assert_true(seen);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    cw_free(w);
}

/* ---- CC-18, KIP-392 ---- */

static int16_t prefers_follower(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d) {
    if (f->broker == 2) return (int16_t)(intptr_t)w->ctx; /* the follower's word */
    if (!w->rack) return KE_NONE;
    d->preferred_read_replica = 2;
    d->high_watermark = w->logs[0][0].hw;
    return KE_NONE;
}
static void cc18_a_follower_out_of_range_sends_us_back_to_the_leader(void **state) {
    (void)state;
    int t;
    struct cw *w = two_brokers(PAIRS("client.rack", "r"), &t, 1);
    cw_fill_assign(w, t, 100, 50);
    w->script = prefers_follower;
    w->ctx = (void *)(intptr_t)KE_OFFSET_OUT_OF_RANGE;
    cw_consume(w, 2000000);
    int at2 = 0, at1 = 0;
    for (int i = 0; i < w->trace_count; i++) w->trace[i].broker == 2 ? at2++ : at1++;
    assert_int_equal(at2, 1); /* and then the leader serves, which prefers the follower still when it is told our rack */
    assert_true(at1 < 20);
    cw_expect(w, t, 0, 50, 100);
    assert_int_equal(w->lists, 0); /* no reset on the follower's word */
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    cw_free(w);
}

/* A leader that sends us away whatever we say, and a follower that does not have it: no spinning between the two. */
static int16_t prefers_always(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d) {
    if (f->broker == 2) return KE_OFFSET_OUT_OF_RANGE;
    d->preferred_read_replica = 2;
    d->high_watermark = w->logs[0][0].hw;
    return KE_NONE;
}
static void cc18_two_that_send_us_back_and_forth_do_not_spin(void **state) {
    (void)state;
    int t;
    struct cw *w = two_brokers(PAIRS("client.rack", "r"), &t, 1);
    cw_fill_assign(w, t, 100, 50);
    w->script = prefers_always;
    cw_consume(w, 10000000);
    assert_in_range(w->fetch_count, 5, 40);
    cw_free(w);
}

static int16_t follower_serves(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d) {
    if (f->broker == 1 && w->rack) {
        d->preferred_read_replica = 2;
        return KE_NONE;
    }
    if (f->broker == 2) { /* serves what the leader has */
        const uint8_t *p;
        size_t size;
        log_entries(&w->logs[0][0], f->offset, w->logs[0][0].hw, (size_t)f->size_max, true, false, &p, &size);
        d->records = (struct kw_records){p, p ? (int32_t)size : -1, NULL};
        d->high_watermark = w->logs[0][0].hw;
    }
    return KE_NONE;
}
static void kip392_reads_from_the_preferred_replica(void **state) {
    (void)state;
    int t;
    struct cw *w = two_brokers(PAIRS("client.rack", "r"), &t, 1);
    cw_fill_assign(w, t, 100, 0);
    w->script = follower_serves;
    cw_consume(w, 1000000);
    cw_expect(w, t, 0, 0, 100);
    assert_int_equal(w->trace[w->trace_count - 1].broker, 2);
    /* The follower goes away: the leader serves again. */
    w->net->brokers[1].refuses = true;
    struct link *l = net_link(w->net, "b1");
    link_lost(l, KW_EIO, "reset");
    log_fill(&w->logs[t][0], 10, 10, 0);
    cw_consume(w, 5000000);
    cw_expect(w, t, 0, 0, 110);
    cw_free(w);
}

/* ---- Sessions ---- */

static void session_errors_do_not_spin(void **state) {
    (void)state;
    int16_t codes[] = {KE_FETCH_SESSION_ID_NOT_FOUND, KE_INVALID_FETCH_SESSION_EPOCH, KE_FETCH_SESSION_TOPIC_ID_ERROR, KE_UNKNOWN_SERVER_ERROR};
    for (size_t i = 0; i < KW_COUNTOF(codes); i++) {
        struct cw *w = cw_new(NULL);
        int t = cw_topic(w, "t", 1, 1);
        cw_fill_assign(w, t, 10, 0);
        w->top_error = codes[i];
        cw_consume(w, 10000000);
        assert_in_range(w->fetch_count, 3, 40);
        w->top_error = 0;
        cw_consume(w, 2000000);
        cw_expect(w, t, 0, 0, 10);
        cw_free(w);
    }
}

static void a_lost_session_is_begun_anew_at_once(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 1, 1);
    cw_fill_assign(w, t, 10, 0);
    cw_consume(w, 1000000);
    w->sessions[1].id = 0; /* the broker restarted, as it were */
    for (int i = 0; i < CW_WAITING; i++) w->waiting[i].until_us = 0;
    log_fill(&w->logs[t][0], 10, 10, 0);
    cw_consume(w, 30000);
    cw_expect(w, t, 0, 0, 20);
    cw_free(w);
}

/* The broker's session has a partition that ours has not, and answers with an error for it at once, every time. */
static bool stray(struct cw *w, struct request *rq) {
    if (rq->head.api_key != KW_API_FETCH || !w->ctx || w->net->requests[KW_API_FETCH] < 4) return false;
    struct kw_in body = rq->body;
    struct kw_fetch_request q;
    kw_arena_reset(&w->net->arena);
    assert_int_equal(kw_decode(&kw_fetch_request_desc, rq->head.version, &body, &w->net->arena, &q), KW_OK);
    if (q.session_id == 0) {
        w->ctx = NULL; /* a fresh session has no strays */
        return false;
    }
    struct kw_fetch_response m;
    struct kw_fetch_response_partition_data d;
    data_init(&d, 7);
    d.error_code = KE_UNKNOWN_TOPIC_ID;
    struct kw_fetch_response_fetchable_topic_response t = {.partitions = {.v = &d, .n = 1}};
    t.topic_id.b[5] = 77;
    kw_msg_init(&kw_fetch_response_desc, &m);
    m.session_id = q.session_id;
    m.responses.v = &t;
    m.responses.n = 1;
    w->fetch_count++;
    net_answer(rq, &m);
    return true;
}
static void strays_in_a_session_do_not_spin(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 1, 1);
    cw_fill_assign(w, t, 10, 0);
    w->ctx = w;
    w->before = stray;
    cw_consume(w, 10000000);
    assert_null(w->ctx);
    assert_true(w->fetch_count < 40);
    log_fill(&w->logs[t][0], 10, 10, 0);
    cw_consume(w, 1000000);
    cw_expect(w, t, 0, 0, 20);
    cw_free(w);
}

/* ---- Errors of partitions ---- */

static int16_t says_ctx(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d) {
    (void)f;
    (void)d;
    return (int16_t)(intptr_t)w->ctx;
}
static void errors_are_told_once_backed_off_and_got_over(void **state) {
    (void)state;
    int16_t codes[] = {KE_TOPIC_AUTHORIZATION_FAILED, KE_UNKNOWN_SERVER_ERROR,  KE_CORRUPT_MESSAGE,       KE_NOT_LEADER_OR_FOLLOWER,
                       KE_UNKNOWN_LEADER_EPOCH,       KE_FENCED_LEADER_EPOCH,   KE_UNKNOWN_TOPIC_ID,      KE_REPLICA_NOT_AVAILABLE,
                       KE_KAFKA_STORAGE_ERROR,        KE_OFFSET_NOT_AVAILABLE,  9999};
    for (size_t i = 0; i < KW_COUNTOF(codes); i++) {
        struct cw *w = cw_new(NULL);
        int t = cw_topic(w, "t", 1, 1);
        cw_fill_assign(w, t, 10, 0);
        w->script = says_ctx;
        w->ctx = (void *)(intptr_t)codes[i];
        cw_consume(w, 3000000);
        assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), !kc_err_retriable(codes[i])); /* what may pass is not told at once */
        cw_consume(w, 27000000);
        assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 1);
        assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, codes[i]);
        assert_in_range(w->fetch_count, 5, 60);
        w->script = NULL;
        cw_consume(w, 5000000);
        cw_expect(w, t, 0, 0, 10);
        cw_free(w);
    }
}

/* CC-10: connections that break, names that do not resolve: retried, and no reset. */
static void cc10_broken_connections_do_not_reset(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("auto.offset.reset", "earliest"));
    int t = cw_topic(w, "t", 1, 1);
    cw_fill_assign(w, t, 100, 60);
    cw_consume(w, 700000);
    for (int i = 0; i < 5; i++) {
        struct link *l;
        while ((l = net_link(w->net, "b0")) != NULL) link_lost(l, KW_EIO, "connection reset by peer");
        w->net->addresses = i & 1 ? 0 : 1;
        cw_consume(w, 500000);
        w->net->addresses = 1;
        log_fill(&w->logs[t][0], 10, 10, 0);
        cw_consume(w, 12000000);
    }
    cw_expect(w, t, 0, 60, 150);
    assert_int_equal(w->lists, 0);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    cw_free(w);
}

/* ---- CC-15, PR-11: sizes ---- */

static void cc15_a_cut_batch_is_asked_for_whole(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("max.partition.fetch.bytes", "1024"));
    w->net->api_max[KW_API_FETCH] = 6;
    w->cut = true;
    int t = cw_topic(w, "t", 1, 1);
    log_batch(&w->logs[t][0], (struct batch_spec){.base = 0, .n = 1, .value_size = 1 << 20});
    log_fill(&w->logs[t][0], 2, 1, 0);
    cw_assign(w, t, 0, 0);
    cw_advance(w, 10000);
    cw_take(w);
    cw_expect(w, t, 0, 0, 1);
    assert_in_range(w->fetch_count, 2, 3);
    assert_true(w->trace[1].size_max >= 1 << 20);
    cw_consume(w, 1000000);
    cw_expect(w, t, 0, 0, 3);
    assert_int_equal(w->trace[w->trace_count - 1].size_max, 1024); /* back to what was configured */
    cw_free(w);
}

static int16_t always_cut(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d) {
    (void)f;
    const struct kw_out *o = &w->logs[0][0].bytes;
    d->records = (struct kw_records){o->p, 40, NULL};
    d->high_watermark = w->logs[0][0].hw;
    return KE_NONE;
}
static void a_batch_that_stays_cut_does_not_spin(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 1, 1);
    log_fill(&w->logs[t][0], 100, 100, 100);
    w->script = always_cut;
    cw_assign(w, t, 0, 0);
    cw_consume(w, 10000000);
    assert_in_range(w->fetch_count, 5, 40);
    w->script = NULL;
    cw_consume(w, 3000000);
    cw_expect(w, t, 0, 0, 100);
    cw_free(w);
}

/* The scripted broker sees to it that no more is asked for at least than at most. */
static void least_size_above_the_largest(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("fetch.min.bytes", "5000", "fetch.max.bytes", "1000", "max.partition.fetch.bytes", "1000"));
    int t = cw_topic(w, "t", 1, 1);
    log_fill(&w->logs[t][0], 20, 2, 100);
    cw_assign(w, t, 0, 0);
    cw_consume(w, 5000000);
    cw_expect(w, t, 0, 0, 20);
    cw_free(w);
}

/* PR-11: one batch over the limit of the request is fine; an answer of exactly the hard cap too; one byte more closes the connection, is told once, and
 * the partition goes on once the batch has been passed. */
static void pr11_the_hard_cap(int over, bool exceeds) {
    struct cw *w = cw_new(PAIRS("receive.message.max.bytes", "100000", "fetch.max.bytes", "10000", "max.partition.fetch.bytes", "10000"));
    w->net->api_max[KW_API_FETCH] = 6; /* fixed fields: the frame's size is the records' plus a constant */
    int t = cw_topic(w, "t", 1, 1);
    int32_t value = 100000 - 139 + over;
    log_batch(&w->logs[t][0], (struct batch_spec){.base = 0, .n = 1, .value_size = value});
    log_fill(&w->logs[t][0], 1, 1, 0);
    cw_assign(w, t, 0, 0);
    cw_consume(w, 5000000);
    if (!exceeds) {
        cw_expect(w, t, 0, 0, 2);
        assert_false(net_logged(w->net, 3, "passes receive.message.max.bytes"));
    } else {
        assert_int_equal(cw_count(w, KC_EVENT_RECORDS, -1), 0);
        assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 1);
        assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, KC_TOO_BIG_ANSWER);
        assert_true(net_logged(w->net, 3, "passes receive.message.max.bytes"));
        cw_seek(w, t, 0, 1);
        cw_consume(w, 15000000);
        cw_expect(w, t, 0, 1, 2);
    }
    cw_free(w);
}
static void pr11_answers_of_the_cap_and_one_more(void **state) {
    (void)state;
    pr11_the_hard_cap(-50000, false);
    int cap = -100; /* the frame around the records is a constant: found once, so that the test says "exactly" */
    for (int over = -100; over < 100; over++) {
        size_t records;
        free(batch_build(&(struct batch_spec){.n = 1, .value_size = 100000 - 139 + over}, &records));
        if (records + 4 /* correlation id */ + 4 /* throttle */ + 4 + 2 + 1 /* topics, name */ + 4 + 4 + 2 + 8 + 8 + 8 + 4 + 4 == 100000) cap = over;
    }
    assert_int_not_equal(cap, -100);
    pr11_the_hard_cap(cap, false);
    pr11_the_hard_cap(cap + 1, true);
}

/* ---- PR-10 ---- */

static int16_t null_records(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d) {
    (void)f;
    if (w->fetch_count > 20) return KE_NONE;
    d->records = (struct kw_records){NULL, -1, NULL};
    d->high_watermark = 10;
    return KE_NONE;
}
static void pr10_null_records_are_none(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 1, 1);
    cw_fill_assign(w, t, 10, 0);
    w->script = null_records;
    cw_consume(w, 30000000);
    cw_expect(w, t, 0, 0, 10);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    cw_free(w);
}

/* ---- Held back ---- */

static void what_is_not_taken_holds_the_fetch_back(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("max.partition.fetch.bytes", "20000"));
    int t = cw_topic(w, "t", 1, 1);
    log_fill(&w->logs[t][0], 5000, 10, 100);
    cw_assign(w, t, 0, 0);
    cw_advance(w, 3000000);
    int held = w->fetch_count;
    assert_true(held < 10);
    cw_advance(w, 3000000);
    assert_int_equal(w->fetch_count, held);
    cw_consume(w, 2000000);
    cw_expect(w, t, 0, 0, 5000);
    cw_free(w);
}

/* The application keeps every event: the budget holds, fetching stops, and goes on when some are freed. */
static void the_budget_holds_and_nothing_stalls(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("memory.max.bytes", "1048576", "max.partition.fetch.bytes", "100000"));
    int t = cw_topic(w, "t", 3, 1);
    for (int p = 0; p < 3; p++) {
        log_fill(&w->logs[t][p], 8000, 50, 100);
        cw_assign(w, t, p, 0);
    }
    static kc_event *held[20000];
    int n = 0;
    struct kc_budget *b = kc_core_budget(w->net->core);
    int64_t most = 0;
    int quiet = 0;
    while (quiet < 50) {
        int before = n;
        while (kc_consume_take(&w->c, &held[n]) == KC_OK) cw_note(w, held[n++]);
        most = KW_MAX(most, atomic_load(&b->used[KC_ROLE_FETCH]));
        quiet = n == before ? quiet + 1 : 0;
        cw_advance(w, 20000);
    }
    assert_true(w->got_count < 24000); /* it did stop */
    assert_true(most <= 1048576 + 100000);
    uint64_t ticks = w->net->ticks;
    cw_advance(w, 10000000);
    assert_true(w->net->ticks - ticks < 30000); /* and does not spin (the test's own steps are 10000) */
    for (int i = 0; i < n; i++) assert_null(kc_event_drop(held[i]));
    cw_consume(w, 5000000);
    for (int p = 0; p < 3; p++) cw_expect(w, t, p, 0, 8000);
    cw_free(w);
}

/* ---- Ends ---- */

static void the_end_is_told_once_each_time(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("enable.partition.eof", "true"));
    int t = cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[t][0], 20, 10, 0);
    cw_assign(w, t, 0, 0);
    cw_assign(w, t, 1, KC_OFFSET_END);
    cw_advance(w, 10000);
    cw_take_all(w); /* at once, also of the empty one */
    assert_int_equal(cw_count(w, KC_EVENT_PARTITION_END, 0), 1);
    assert_int_equal(cw_count(w, KC_EVENT_PARTITION_END, 1), 1);
    cw_consume(w, 5000000);
    assert_int_equal(cw_count(w, KC_EVENT_PARTITION_END, 0), 1);
    log_fill(&w->logs[t][0], 10, 10, 0);
    cw_consume(w, 1000000);
    assert_int_equal(cw_count(w, KC_EVENT_PARTITION_END, 0), 2);
    assert_int_equal(w->got[w->got_count - 1].offset, 30);
    int before = w->fetch_count;
    cw_seek(w, t, 0, KC_OFFSET_END); /* told anew, though nothing changed for the broker */
    cw_consume(w, 2000000);
    assert_int_equal(cw_count(w, KC_EVENT_PARTITION_END, 0), 3);
    assert_true(w->fetch_count - before < 12);
    cw_free(w);
}

/* ---- CX-09, CX-02: topics come and go ---- */

static void cx09_topic_deleted_with_records_queued(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 1, 1);
    cw_fill_assign(w, t, 100, 0);
    cw_advance(w, 100000);
    w->net->topics[t].err = KE_UNKNOWN_TOPIC_OR_PARTITION;
    kc_metadata_refresh(w->net->core, "test");
    cw_advance(w, 10000000);
    assert_int_equal(kw_list_empty(&cw_part(w, t, 0)->chunks), 0);
    cw_free(w); /* with the records still queued */
}

static void a_missing_topic_is_told_and_found_when_it_comes(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 1, 1);
    w->net->topics[t].err = KE_UNKNOWN_TOPIC_OR_PARTITION;
    cw_assign(w, t, 0, 0);
    cw_assign(w, t, 3, 0);
    cw_consume(w, 1000000);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0); /* it may be in the making */
    cw_consume(w, 60000000);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, 0), 1);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, 3), 1);
    assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_true(w->net->requests[KW_API_METADATA] <= 30); /* CX-11 */
    w->net->topics[t].err = KE_NONE;
    log_fill(&w->logs[t][0], 5, 5, 0);
    cw_consume(w, 10000000);
    cw_expect(w, t, 0, 0, 5);
    cw_free(w);
}

static void recreate(struct cw *w, int t, int32_t leader, int32_t partitions) {
    w->net->topics[t].id.b[3]++;
    w->net->topics[t].partitions = partitions;
    for (int p = 0; p < CW_PARTS; p++) {
        w->net->topics[t].leader[p] = leader;
        w->net->topics[t].epoch[p] = 0;
        log_reset(&w->logs[t][p]);
    }
}
static int16_t old_id_gone(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d) {
    (void)w;
    (void)d;
    return f->epoch > 0 ? KE_UNKNOWN_TOPIC_ID : KE_NONE;
}
static void cx02_a_topic_created_anew_is_read_from_its_beginning(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        const char *names[] = {"none", "earliest", "latest"};
        int policy = i % 3, leader = 1 + i / 3; /* the old one: no request is left whose end would make the consumer look again */
        struct cw *w = cw_new(PAIRS("auto.offset.reset", names[policy]));
        net_broker(w->net, 2, "b1", 9092);
        int t = cw_topic(w, "t", 3, 1);
        for (int p = 0; p < 3; p++) {
            w->net->topics[t].epoch[p] = 57;
            log_batch(&w->logs[t][p], (struct batch_spec){.base = 0, .n = 50, .epoch = 57});
            cw_assign(w, t, p, 0);
        }
        cw_consume(w, 1000000);
        recreate(w, t, leader, 1); /* fewer partitions, epoch 0 */
        w->script = old_id_gone;
        log_fill(&w->logs[t][0], 7, 7, 0);
        w->got_count = 0;
        kc_metadata_refresh(w->net->core, "test");
        cw_consume(w, 10000000);
        assert_true(cw_count(w, KC_EVENT_ERROR, 0) >= 1);
        if (policy == 0) {
            assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, KE_OFFSET_OUT_OF_RANGE);
            assert_int_equal(cw_count(w, KC_EVENT_RECORDS, 0), 0);
            cw_seek(w, t, 0, 2);
            cw_consume(w, 2000000);
            cw_expect(w, t, 0, 2, 7);
        } else {
            assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, KE_INCONSISTENT_TOPIC_ID);
            cw_expect(w, t, 0, 0, 7);
        }
        cw_free(w);
    }
}

/* ---- Stopping ---- */

static void stops_at_once_whatever_is_outstanding(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        struct cw *w = cw_new(NULL);
        int t = cw_topic(w, "t", 2, 1);
        log_fill(&w->logs[t][0], 100, 10, 0);
        cw_assign(w, t, 0, KC_OFFSET_BEGINNING);
        cw_assign(w, t, 1, KC_OFFSET_END);
        if (i & 1) w->net->brokers[0].hangs = true;
        for (int k = 0; k < i / 2; k++) {
            kc_core_tick(w->net->core, w->net->now);
            struct kc_conn *c;
            uint32_t wants;
            if ((c = kc_core_next_action(w->net->core, &wants))) net_act(w->net, c, wants);
            if (k == 20) w->net->brokers[0].silent = true;
            if (k > 6) cw_advance(w, 100);
        }
        w->net->brokers[0].silent = true;
        cw_stop(w);
        cw_free(w);
    }
}

static void the_client_stops_first(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    int t = cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[t][0], 100, 10, 0);
    cw_assign(w, t, 0, 0);
    cw_assign(w, t, 1, KC_OFFSET_END);
    cw_advance(w, 100000);
    kc_core_stop(w->net->core, w->net->now);
    uint64_t ticks = w->net->ticks;
    cw_advance(w, 5000000);
    assert_true(w->net->ticks - ticks < 16000); /* the test's own steps */
    cw_take_all(w);                             /* what was fetched is still there */
    cw_expect(w, t, 0, 0, 100);
    cw_stop(w);
    cw_free(w);
}

static void events_outlive_their_consumer(void **state) {
    (void)state;
    struct cw *w = cw_new(PAIRS("max.poll.records", "10"));
    int t = cw_topic(w, "t", 1, 1);
    log_fill(&w->logs[t][0], 100, 50, 0);
    cw_assign(w, t, 0, 0);
    cw_advance(w, 100000);
    kc_event *held[3];
    for (int i = 0; i < 3; i++) assert_int_equal(kc_consume_take(&w->c, &held[i]), KC_OK);
    cw_stop(w);
    kc_consume_deinit(&w->c);
    for (int i = 2; i >= 0; i--) {
        cw_note(w, held[i]);
        assert_int_equal(w->got[w->got_count - 10].offset, i * 10);
        assert_null(kc_event_drop(held[i]));
    }
    assert_int_equal(kc_consume_init(&w->c, w->net->core, w->net->settings, cw_notify, cw_kick, w), KW_OK); /* for cw_free */
    kc_consume_start(&w->c);
    cw_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_all_in_order),
        cmocka_unit_test(works_with_every_version),
        cmocka_unit_test(tells_of_a_broker_without_a_common_version),
        cmocka_unit_test(cc01_slow_partitions_are_read_within_two_rounds),
        cmocka_unit_test(cc01_delivery_takes_turns),
        cmocka_unit_test(cc08_resume_of_what_is_not_paused_changes_nothing),
        cmocka_unit_test(paused_gives_nothing_and_loses_nothing),
        cmocka_unit_test(seek_drops_what_was_fetched),
        cmocka_unit_test(seek_while_a_fetch_is_outstanding),
        cmocka_unit_test(poll_one_stops_at_a_seek_and_at_an_assign),
        cmocka_unit_test(poll_one_pauses_within_an_event_and_mixes_with_poll),
        cmocka_unit_test(cc07_nothing_of_a_partition_that_was_taken_away),
        cmocka_unit_test(assigned_anew_while_its_fetch_is_outstanding),
        cmocka_unit_test(assign_is_all_or_nothing),
        cmocka_unit_test(follows_the_leader),
        cmocka_unit_test(leaves_a_frozen_leader),
        cmocka_unit_test(cc09_answers_during_validation_are_dropped),
        cmocka_unit_test(pr12_each_fetch_carries_the_present_epoch),
        cmocka_unit_test(cc18_a_follower_out_of_range_sends_us_back_to_the_leader),
        cmocka_unit_test(cc18_two_that_send_us_back_and_forth_do_not_spin),
        cmocka_unit_test(kip392_reads_from_the_preferred_replica),
        cmocka_unit_test(session_errors_do_not_spin),
        cmocka_unit_test(a_lost_session_is_begun_anew_at_once),
        cmocka_unit_test(strays_in_a_session_do_not_spin),
        cmocka_unit_test(errors_are_told_once_backed_off_and_got_over),
        cmocka_unit_test(cc10_broken_connections_do_not_reset),
        cmocka_unit_test(cc15_a_cut_batch_is_asked_for_whole),
        cmocka_unit_test(a_batch_that_stays_cut_does_not_spin),
        cmocka_unit_test(least_size_above_the_largest),
        cmocka_unit_test(pr11_answers_of_the_cap_and_one_more),
        cmocka_unit_test(pr10_null_records_are_none),
        cmocka_unit_test(what_is_not_taken_holds_the_fetch_back),
        cmocka_unit_test(the_budget_holds_and_nothing_stalls),
        cmocka_unit_test(the_end_is_told_once_each_time),
        cmocka_unit_test(cx09_topic_deleted_with_records_queued),
        cmocka_unit_test(a_missing_topic_is_told_and_found_when_it_comes),
        cmocka_unit_test(cx02_a_topic_created_anew_is_read_from_its_beginning),
        cmocka_unit_test(stops_at_once_whatever_is_outstanding),
        cmocka_unit_test(the_client_stops_first),
        cmocka_unit_test(events_outlive_their_consumer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
