/* test_consume_offsets.c - where a consumer starts and whether its position stands: start offsets, resets, times, validation, lookups of the application. */
#include "consume_peer.h"

static struct cw *one_topic(const char *const *pairs, int *t, int n) {
    struct cw *w = cw_new(pairs);
    *t = cw_topic(w, "t", 2, 1);
    log_fill(&w->logs[*t][0], n, 10, 0);
    return w;
}

/* ---- G1: starts and resets ---- */

static void starts_as_asked(void **state) {
    (void)state;
    static const struct {
        const char *reset;
        int64_t offset, from; /* from -1: none, and an error */
    } cases[] = {{"earliest", KC_OFFSET_BEGINNING, 20}, {"latest", KC_OFFSET_BEGINNING, 20}, {"none", KC_OFFSET_BEGINNING, 20},
                 {"earliest", KC_OFFSET_END, 100},      {"none", KC_OFFSET_END, 100},        {"earliest", KC_OFFSET_RESET, 20},
                 {"latest", KC_OFFSET_RESET, 100},      {"none", KC_OFFSET_RESET, -1},       {"none", 50, 50},
                 {"earliest", 100, 100},                {"earliest", 5, 20},                 {"latest", 5, 100},
                 {"none", 5, -1},                       {"earliest", 500, 20},               {"latest", 500, 100},
                 {"none", 500, -1},                     {"error", 500, -1},                  {"none", 101, -1}};
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        int t;
        struct cw *w = one_topic(PAIRS("auto.offset.reset", cases[i].reset), &t, 100);
        w->logs[t][0].start = 20;
        cw_assign(w, t, 0, cases[i].offset);
        cw_consume(w, 1000000);
        log_fill(&w->logs[t][0], 10, 10, 0);
        cw_consume(w, 1000000);
        if (cases[i].from >= 0) {
            cw_expect(w, t, 0, cases[i].from, 110);
            assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
        } else {
            assert_int_equal(cw_count(w, KC_EVENT_RECORDS, -1), 0);
            assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 1);
            assert_int_equal(cw_first(w, KC_EVENT_ERROR)->err, KE_OFFSET_OUT_OF_RANGE);
            int fetches = w->fetch_count;
            cw_consume(w, 5000000);
            assert_int_equal(w->fetch_count, fetches); /* it waits for a seek */
            cw_seek(w, t, 0, 60);
            cw_consume(w, 1000000);
            cw_expect(w, t, 0, 60, 110);
        }
        cw_free(w);
    }
}

static void seeks_to_special_offsets(void **state) {
    (void)state;
    int t;
    struct cw *w = one_topic(NULL, &t, 100);
    cw_assign(w, t, 0, 90);
    cw_consume(w, 100000);
    cw_expect(w, t, 0, 90, 100);
    cw_seek(w, t, 0, KC_OFFSET_BEGINNING);
    w->got_count = 0;
    cw_consume(w, 1500000);
    cw_expect(w, t, 0, 0, 100);
    cw_seek(w, t, 0, KC_OFFSET_END);
    w->got_count = 0;
    cw_consume(w, 1500000);
    log_fill(&w->logs[t][0], 10, 10, 0);
    cw_consume(w, 1500000);
    cw_expect(w, t, 0, 100, 110);
    cw_free(w);
}

/* Out of range while records fetched before wait: they are handed out first, and the broker is not pestered meanwhile. */
static void out_of_range_waits_for_what_was_fetched(void **state) {
    (void)state;
    int t;
    struct cw *w = one_topic(PAIRS("auto.offset.reset", "earliest"), &t, 100);
    cw_assign(w, t, 0, 0);
    cw_advance(w, 20000);
    log_fill(&w->logs[t][0], 100, 10, 0);
    w->logs[t][0].start = 150; /* 100 to 149 were deleted */
    int before = w->fetch_count;
    cw_advance(w, 5000000);
    assert_true(w->fetch_count - before < 20);
    kc_event *e = NULL;
    for (int i = 0; i < 30; i++) assert_int_equal(kc_consume_one(&w->c, &e), KC_OK); /* within an event, too */
    cw_advance(w, 3000000);
    for (int i = 30; i < 100; i++) {
        assert_int_equal(kc_consume_one(&w->c, &e), KC_OK);
        assert_null(e);
        assert_int_equal(w->c.one.e->views[w->c.one.at].offset, i);
    }
    w->got_count = 0;
    cw_consume(w, 5000000);
    assert_int_equal(kc_consume_one(&w->c, &e), KC_BUSY);
    cw_expect(w, t, 0, 150, 200);
    cw_free(w);
}

static int16_t always_out(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d) {
    (void)w;
    (void)f;
    (void)d;
    return KE_OFFSET_OUT_OF_RANGE;
}
static void out_of_range_again_and_again_does_not_spin(void **state) {
    (void)state;
    int t;
    struct cw *w = one_topic(PAIRS("auto.offset.reset", "earliest"), &t, 100);
    w->script = always_out;
    cw_assign(w, t, 0, 0);
    cw_consume(w, 10000000);
    assert_in_range(w->fetch_count, 4, 40);
    assert_in_range(w->lists, 4, 40);
    w->script = NULL;
    cw_consume(w, 3000000);
    cw_expect(w, t, 0, 0, 100);
    cw_free(w);
}

/* ---- Lookups of starts that fail ---- */

static int16_t list_says(struct cw *w, int32_t broker, int32_t topic, int32_t partition, int64_t timestamp) {
    (void)broker;
    (void)topic;
    (void)partition;
    (void)timestamp;
    return (int16_t)(intptr_t)w->ctx;
}
static void lookup_errors_are_retried_with_backoff(void **state) {
    (void)state;
    int16_t codes[] = {KE_LEADER_NOT_AVAILABLE, KE_OFFSET_NOT_AVAILABLE, KE_NOT_LEADER_OR_FOLLOWER, KE_TOPIC_AUTHORIZATION_FAILED, KE_UNKNOWN_SERVER_ERROR};
    for (size_t i = 0; i < KW_COUNTOF(codes); i++) {
        int t;
        struct cw *w = one_topic(NULL, &t, 100);
        w->list_script = list_says;
        w->ctx = (void *)(intptr_t)codes[i];
        cw_assign(w, t, 0, KC_OFFSET_BEGINNING);
        cw_consume(w, 10000000);
        assert_in_range(w->lists, 5, 30);
        assert_int_equal(w->fetch_count, 0);
        assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), !kc_err_retriable(codes[i]));
        w->ctx = NULL;
        cw_consume(w, 3000000);
        cw_expect(w, t, 0, 0, 100);
        cw_free(w);
    }
}

static bool bad_lists(struct cw *w, struct request *rq) {
    if (rq->head.api_key != KW_API_LIST_OFFSETS || !w->ctx) return false;
    int kind = (int)(intptr_t)w->ctx;
    w->lists++;
    struct kw_list_offsets_response m;
    struct kw_list_offsets_response_list_offsets_partition_response p[2] = {{.partition_index = 0, .offset = 30, .timestamp = -1, .leader_epoch = -1},
                                                                           {.partition_index = 0, .offset = 70, .timestamp = -1, .leader_epoch = -1}};
    struct kw_list_offsets_response_list_offsets_topic_response t = {.name = kw_str_of("t"), .partitions = {.v = p, .n = 1}};
    kw_msg_init(&kw_list_offsets_response_desc, &m);
    m.topics.v = &t;
    m.topics.n = 1;
    switch (kind) {
    case 1: p[0].offset = -1; break;
    case 2: p[0].partition_index = 5; break;
    case 3: t.name = kw_str_of("other"); break;
    case 4: m.topics.n = 0; break;
    case 5: p[0].offset = -7; break;
    default: t.partitions.n = 2; break; /* named twice: the first counts */
    }
    net_answer(rq, &m);
    return true;
}
static void strange_answers_to_lookups(void **state) {
    (void)state;
    for (int kind = 1; kind <= 6; kind++) {
        int t;
        struct cw *w = one_topic(NULL, &t, 100);
        w->before = bad_lists;
        w->ctx = (void *)(intptr_t)kind;
        cw_assign(w, t, 0, KC_OFFSET_BEGINNING);
        cw_consume(w, 5000000);
        if (kind == 6) {
            cw_expect(w, t, 0, 30, 100);
        } else {
            assert_in_range(w->lists, 3, 20);
            w->ctx = NULL;
            cw_consume(w, 3000000);
            cw_expect(w, t, 0, 0, 100);
        }
        cw_free(w);
    }
}

/* CC-10: the socket drops, the name does not resolve, the broker hangs up in mid-answer; the policy does not run for any of it. */
static void cc10_lookups_survive_broken_connections(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        int t;
        struct cw *w = one_topic(PAIRS("auto.offset.reset", "latest"), &t, 100);
        cw_assign(w, t, 1, 0); /* makes the connections */
        cw_consume(w, 600000);
        w->list_script = list_says;
        w->ctx = (void *)(intptr_t)KE_LEADER_NOT_AVAILABLE;
        cw_assign(w, t, 0, KC_OFFSET_BEGINNING);
        cw_consume(w, 300000);
        for (int i = 0; i < 3; i++) {
            struct link *l;
            while ((l = net_link(w->net, "b0")) != NULL) link_lost(l, kind == 0 ? KW_EIO : KW_OK, kind == 0 ? "connection reset by peer" : NULL);
            if (kind == 2) w->net->addresses = 0;
            cw_consume(w, 1000000);
            w->net->addresses = 1;
        }
        w->ctx = NULL;
        cw_consume(w, 15000000);
        cw_expect(w, t, 0, 0, 100);
        assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
        cw_free(w);
    }
}

static bool swallow_lists(struct cw *w, struct request *rq) {
    return rq->head.api_key == KW_API_LIST_OFFSETS && broker_of(w->net, rq->link) == 1;
}
/* CC-17: the leader dies with the lookup outstanding; the new one is known after 1 s, and has the question within 2 s. */
static void cc17_lookup_goes_to_the_new_leader(void **state) {
    (void)state;
    for (int frozen = 0; frozen < 2; frozen++) {
        int t;
        struct cw *w = one_topic(NULL, &t, 100);
        net_broker(w->net, 2, "b1", 9092);
        w->before = swallow_lists;
        cw_assign(w, t, 0, KC_OFFSET_BEGINNING);
        cw_consume(w, 1000000);
        assert_int_equal(w->lists, 0);
        if (!frozen) {
            w->net->brokers[0].refuses = true;
            struct link *l;
            while ((l = net_link(w->net, "b0")) != NULL) link_lost(l, KW_EIO, "connection reset by peer");
            cw_consume(w, 1000000);
        }
        w->net->topics[t].leader[0] = 2;
        w->net->topics[t].epoch[0] = 1;
        cw_consume(w, 2000000);
        assert_int_equal(w->lists, 1);
        cw_expect(w, t, 0, 0, 100);
        cw_free(w);
    }
}

/* ---- Validation (KIP-320) ---- */

static void new_epoch(struct cw *w, int t, int32_t epoch) {
    struct cw_log *l = &w->logs[t][0];
    if (l->epoch_count == 0) l->epoch_count = 1; /* epoch 0 from 0 */
    cw_epoch(w, t, 0, epoch);
    kc_metadata_refresh(w->net->core, "test");
}
/* The log loses everything from `at` on, under a new epoch, and grows to n again. */
static void truncate_log(struct cw *w, int t, int64_t at, int n) {
    struct cw_log *l = &w->logs[t][0];
    log_reset(l);
    log_fill(l, (int)at, 10, 0);
    new_epoch(w, t, 1);
    log_fill(l, n, 10, 0);
}

static void what_was_consumed_and_lost(void **state) {
    (void)state;
    for (int none = 0; none < 2; none++) {
        int t;
        struct cw *w = one_topic(PAIRS("auto.offset.reset", none ? "none" : "earliest"), &t, 100);
        cw_assign(w, t, 0, 0);
        cw_consume(w, 600000);
        truncate_log(w, t, 60, 20);
        w->got_count = 0;
        cw_consume(w, 3000000);
        assert_true(w->epochs_asked > 0);
        assert_int_equal(w->got[0].kind, KC_EVENT_ERROR); /* before any record of the new log */
        assert_int_equal(w->got[0].err, KC_DATA_LOST);
        assert_int_equal(w->got[0].offset, 60);
        assert_int_equal(w->got[0].before, 100);
        assert_non_null(strstr(w->message, "t [0]: data was lost: offsets 60 to 99, already consumed"));
        assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 1);
        if (none) {
            assert_int_equal(cw_count(w, KC_EVENT_RECORDS, -1), 0);
            assert_non_null(strstr(w->message, "seek to go on"));
            cw_seek(w, t, 0, 60);
            cw_consume(w, 2000000);
        } else {
            assert_non_null(strstr(w->message, "going on at offset 60"));
        }
        cw_expect(w, t, 0, 60, 80);
        cw_free(w);
    }
}

/* What was fetched ahead and not handed out is lost, too: nobody has seen it, and what the application has not seen yet is not skipped. */
static void what_was_only_fetched_and_lost(void **state) {
    (void)state;
    int t;
    struct cw *w = one_topic(PAIRS("max.poll.records", "10"), &t, 100);
    cw_assign(w, t, 0, 0);
    cw_advance(w, 600000);
    cw_take(w); /* 10 of them */
    truncate_log(w, t, 60, 20);
    cw_advance(w, 1000000);
    cw_consume(w, 2000000);
    cw_expect(w, t, 0, 0, 80);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    cw_free(w);
}

/* The same within an event that poll_one has begun. */
static void lost_within_an_event(void **state) {
    (void)state;
    int t;
    struct cw *w = one_topic(NULL, &t, 100);
    cw_assign(w, t, 0, 0);
    cw_advance(w, 600000);
    kc_event *e = NULL;
    for (int i = 0; i < 25; i++) assert_int_equal(kc_consume_one(&w->c, &e), KC_OK);
    truncate_log(w, t, 60, 20);
    cw_advance(w, 2000000);
    for (int i = 25; i < 80; i++) {
        kc_err err;
        for (int k = 0; (err = kc_consume_one(&w->c, &e)) == KC_BUSY && k < 100; k++) cw_advance(w, 20000);
        assert_int_equal(err, KC_OK);
        assert_int_equal(w->c.one.e->views[w->c.one.at].offset, i);
    }
    cw_free(w);
}

static void nothing_lost_goes_on(void **state) {
    (void)state;
    int t;
    struct cw *w = one_topic(NULL, &t, 100);
    cw_assign(w, t, 0, 0);
    cw_consume(w, 600000);
    new_epoch(w, t, 5);
    log_fill(&w->logs[t][0], 10, 10, 0);
    cw_consume(w, 2000000);
    cw_expect(w, t, 0, 0, 110);
    assert_int_equal(w->epochs_asked, 1);
    cw_free(w);
}

/* A leader that keeps no epochs (-1), and one that does not know the API. */
static void leaders_without_epochs(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        int t;
        struct cw *w = one_topic(NULL, &t, 100);
        if (kind == 1) w->net->api_max[KW_API_OFFSET_FOR_LEADER_EPOCH] = -1;
        cw_assign(w, t, 0, 0);
        cw_consume(w, 600000);
        new_epoch(w, t, 5);
        w->logs[t][0].epoch_count = 0;
        log_fill(&w->logs[t][0], 10, 10, 0);
        cw_consume(w, 2000000);
        cw_expect(w, t, 0, 0, 110);
        cw_free(w);
    }
}

/* The epoch that the application kept with an offset is held against the log before the first fetch; 0 and -1 mean that it has none. */
static void an_epoch_given_with_the_offset(void **state) {
    (void)state;
    for (int32_t epoch = -1; epoch <= 2; epoch++) {
        int t;
        struct cw *w = one_topic(PAIRS("auto.offset.reset", "earliest"), &t, 0);
        struct cw_log *l = &w->logs[t][0];
        l->epoch_count = 1;
        log_fill(l, 40, 10, 0);
        new_epoch(w, t, 1);
        log_fill(l, 20, 10, 0);
        new_epoch(w, t, 2);
        log_fill(l, 40, 10, 0);
        kc_topic_partition tp = {.topic = w->topic[t], .partition = 0, .offset = 80, .leader_epoch = epoch};
        assert_int_equal(kc_consume_assign(&w->c, &tp, sizeof tp, 1, w->net->now.mono_us), KC_OK);
        cw_consume(w, 2000000);
        cw_expect(w, t, 0, epoch == 1 ? 60 : 80, 100); /* offset 80 was not of epoch 1 */
        assert_int_equal(w->epochs_asked, epoch == 1);
        cw_free(w);
    }
}

/* ---- kc_consumer_offsets ---- */

struct asked {
    struct kc_offset_query q;
    struct kc_offset_item items[8];
    int done;
    int64_t done_us;
    struct cw *w;
};
static void asked_done(struct kc_offset_query *q) {
    struct asked *a = KW_CONTAINER_OF(q, struct asked, q);
    a->done++;
    a->done_us = a->w->net->now.mono_us;
}
static void ask_begin(struct asked *a, struct cw *w, int64_t limit_us, size_t n, const kc_topic_partition *parts) {
    *a = (struct asked){.w = w};
    for (size_t i = 0; i < n; i++) a->items[i].tp = parts[i];
    a->q.items = a->items;
    a->q.count = n;
    a->q.deadline_us = w->net->now.mono_us + limit_us;
    a->q.done = asked_done;
    kw_list_init(&a->q.link);
    kc_consume_query(&w->c, &a->q);
}

static void offsets_for_times(void **state) {
    (void)state;
    struct cw *w = cw_new(NULL);
    net_broker(w->net, 2, "b1", 9092);
    int t = cw_topic(w, "t", 2, 1);
    w->net->topics[t].leader[1] = 2;
    for (int i = 0; i < 10; i++)
        log_batch(&w->logs[t][0], (struct batch_spec){.base = i * 10, .n = 10, .timestamp = 1000 + i * 100});
    w->logs[t][0].start = 5;
    int32_t n = w->topic[t];
    kc_topic_partition parts[] = {{.topic = n, .partition = 0, .offset = KC_OFFSET_BEGINNING}, {.topic = n, .partition = 0, .offset = KC_OFFSET_END},
                                  {.topic = n, .partition = 0, .offset = 1000},  {.topic = n, .partition = 0, .offset = 1305},
                                  {.topic = n, .partition = 0, .offset = 1350},  {.topic = n, .partition = 0, .offset = 9999999},
                                  {.topic = n, .partition = 1, .offset = KC_OFFSET_END}, {.topic = n, .partition = 1, .offset = 0}};
    int64_t want[] = {5, 100, 0, 35, 40, -1, 0, -1};
    struct asked a;
    /* One partition may be asked about only once in a request: brokers take the last one or refuse. */
    for (size_t i = 0; i < KW_COUNTOF(parts); i++) {
        ask_begin(&a, w, 5000000, 1, &parts[i]);
        cw_advance(w, 500000);
        assert_int_equal(a.done, 1);
        assert_int_equal(a.items[0].tp.err, KC_OK);
        assert_int_equal(a.items[0].tp.offset, want[i]);
    }
    kc_topic_partition both[] = {parts[0], parts[6]};
    ask_begin(&a, w, 5000000, 2, both);
    cw_advance(w, 500000);
    assert_int_equal(a.items[0].tp.offset, 5);
    assert_int_equal(a.items[1].tp.offset, 0);
    cw_free(w);
}

static void the_same_partition_several_times(void **state) {
    (void)state;
    int t;
    struct cw *w = one_topic(NULL, &t, 100);
    int32_t n = w->topic[t];
    kc_topic_partition parts[] = {{.topic = n, .offset = KC_OFFSET_END}, {.topic = n, .offset = KC_OFFSET_BEGINNING}, {.topic = n, .offset = 5}};
    struct asked a;
    ask_begin(&a, w, 5000000, 3, parts);
    cw_assign(w, t, 0, KC_OFFSET_END);
    cw_advance(w, 1000000);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.items[0].tp.offset, 100);
    assert_int_equal(a.items[1].tp.offset, 0);
    assert_int_equal(a.items[2].tp.offset, 5); /* times count up from 0 here */
    assert_int_equal(cw_position(w, t, 0), 100);
    cw_free(w);
}

static void items_that_are_not_valid_or_not_there(void **state) {
    (void)state;
    int t;
    struct cw *w = one_topic(NULL, &t, 100);
    int missing = cw_topic(w, "missing", 1, 1);
    w->net->topics[missing].err = KE_UNKNOWN_TOPIC_OR_PARTITION;
    kc_topic_partition parts[] = {{.topic = w->topic[t], .offset = KC_OFFSET_END}, {.topic = 0, .offset = 1},
                                  {.topic = w->topic[t], .partition = -1},         {.topic = w->topic[t], .offset = -3},
                                  {.topic = w->topic[t], .partition = 7},          {.topic = w->topic[missing], .offset = 3}};
    struct asked a;
    ask_begin(&a, w, 3000000, KW_COUNTOF(parts), parts);
    cw_advance(w, 2900000);
    assert_int_equal(a.done, 0); /* they may still come */
    cw_advance(w, 200000);
    kc_err want[] = {KC_OK, KC_INVALID, KC_INVALID, KC_INVALID, KE_UNKNOWN_TOPIC_OR_PARTITION, KE_UNKNOWN_TOPIC_OR_PARTITION};
    assert_int_equal(a.done, 1);
    for (size_t i = 0; i < KW_COUNTOF(parts); i++) assert_int_equal(a.items[i].tp.err, want[i]);
    assert_int_equal(a.items[0].tp.offset, 100);
    ask_begin(&a, w, 3000000, 3, parts + 1); /* nothing to ask */
    assert_int_equal(a.done, 1);
    ask_begin(&a, w, 3000000, 0, parts);
    assert_int_equal(a.done, 1);
    cw_free(w);
}

static void errors_of_a_query(void **state) {
    (void)state;
    int t;
    struct cw *w = one_topic(NULL, &t, 100);
    w->list_script = list_says;
    kc_topic_partition tp = {.topic = w->topic[t], .offset = KC_OFFSET_END};
    struct asked a;
    w->ctx = (void *)(intptr_t)KE_TOPIC_AUTHORIZATION_FAILED;
    ask_begin(&a, w, 5000000, 1, &tp);
    cw_advance(w, 100000);
    assert_int_equal(a.done, 1); /* at once: trying again helps nobody */
    assert_int_equal(a.items[0].tp.err, KE_TOPIC_AUTHORIZATION_FAILED);
    w->ctx = (void *)(intptr_t)KE_OFFSET_NOT_AVAILABLE;
    w->lists = 0;
    ask_begin(&a, w, 5000000, 1, &tp);
    cw_advance(w, 4900000);
    assert_int_equal(a.done, 0);
    assert_in_range(w->lists, 4, 20);
    cw_advance(w, 200000);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.items[0].tp.err, KE_OFFSET_NOT_AVAILABLE); /* the reason, not just that time is up */
    w->net->api_max[KW_API_LIST_OFFSETS] = 0;
    struct link *l;
    while ((l = net_link(w->net, "b0")) != NULL) link_lost(l, KW_EIO, "reset");
    ask_begin(&a, w, 30000000, 1, &tp);
    cw_advance(w, 20000000);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.items[0].tp.err, KC_UNSUPPORTED);
    cw_free(w);
}

/* A frozen broker does not hold a query beyond its limit, nor a cancel, nor the consumer's end. */
static void limits_are_kept_with_a_frozen_broker(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        int t;
        struct cw *w = one_topic(NULL, &t, 100);
        cw_assign(w, t, 0, 0);
        cw_consume(w, 600000);
        w->net->brokers[0].silent = true;
        kc_topic_partition tp = {.topic = w->topic[t], .offset = KC_OFFSET_END};
        struct asked a;
        int64_t start = w->net->now.mono_us;
        ask_begin(&a, w, 2000000, 1, &tp);
        cw_advance(w, 500000);
        assert_int_equal(a.done, 0);
        if (kind == 0) {
            cw_advance(w, 3000000);
            assert_int_equal(a.done_us, start + 2000000);
            assert_int_equal(a.items[0].tp.err, KC_TIMED_OUT);
        } else if (kind == 1) {
            kc_consume_query_cancel(&w->c, &a.q);
            assert_int_equal(a.done, 1);
            assert_int_equal(a.items[0].tp.err, KC_CANCELLED);
        } else {
            cw_stop(w);
            assert_int_equal(a.done, 1);
            assert_int_equal(a.items[0].tp.err, KC_CLOSED);
        }
        assert_int_equal(a.done, 1);
        w->net->brokers[0].silent = false;
        cw_advance(w, 1000000);
        cw_free(w);
    }
}

/* A second lookup does not wait for the first, whose partition was sought meanwhile. */
static void a_new_lookup_does_not_wait_for_the_old(void **state) {
    (void)state;
    int t;
    struct cw *w = one_topic(NULL, &t, 100);
    cw_assign(w, t, 1, 0);
    cw_consume(w, 600000);
    w->before = swallow_lists;
    cw_assign(w, t, 0, KC_OFFSET_BEGINNING);
    cw_advance(w, 100000);
    w->before = NULL;
    cw_seek(w, t, 0, KC_OFFSET_END);
    cw_seek(w, t, 0, KC_OFFSET_BEGINNING);
    cw_consume(w, 100000);
    assert_int_equal(w->lists, 1);
    cw_free(w);
}

/* The stable offset is the end for those who read committed records alone. */
static void read_committed_ends_at_the_stable_offset(void **state) {
    (void)state;
    int t;
    struct cw *w = one_topic(PAIRS("isolation.level", "read_committed", "enable.partition.eof", "true"), &t, 100);
    w->logs[t][0].lso = 70;
    cw_assign(w, t, 0, 60);
    cw_consume(w, 1000000);
    cw_expect(w, t, 0, 60, 70);
    assert_int_equal(cw_first(w, KC_EVENT_PARTITION_END)->offset, 70);
    kc_topic_partition tp = {.topic = w->topic[t], .offset = KC_OFFSET_END};
    struct asked a;
    ask_begin(&a, w, 2000000, 1, &tp);
    cw_advance(w, 500000);
    assert_int_equal(a.items[0].tp.offset, 70);
    w->logs[t][0].lso = 100;
    cw_consume(w, 1000000);
    cw_expect(w, t, 0, 60, 100);
    cw_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_as_asked),
        cmocka_unit_test(seeks_to_special_offsets),
        cmocka_unit_test(out_of_range_waits_for_what_was_fetched),
        cmocka_unit_test(out_of_range_again_and_again_does_not_spin),
        cmocka_unit_test(lookup_errors_are_retried_with_backoff),
        cmocka_unit_test(strange_answers_to_lookups),
        cmocka_unit_test(cc10_lookups_survive_broken_connections),
        cmocka_unit_test(cc17_lookup_goes_to_the_new_leader),
        cmocka_unit_test(what_was_consumed_and_lost),
        cmocka_unit_test(what_was_only_fetched_and_lost),
        cmocka_unit_test(lost_within_an_event),
        cmocka_unit_test(nothing_lost_goes_on),
        cmocka_unit_test(leaders_without_epochs),
        cmocka_unit_test(an_epoch_given_with_the_offset),
        cmocka_unit_test(offsets_for_times),
        cmocka_unit_test(the_same_partition_several_times),
        cmocka_unit_test(items_that_are_not_valid_or_not_there),
        cmocka_unit_test(errors_of_a_query),
        cmocka_unit_test(limits_are_kept_with_a_frozen_broker),
        cmocka_unit_test(a_new_lookup_does_not_wait_for_the_old),
        cmocka_unit_test(read_committed_ends_at_the_stable_offset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
