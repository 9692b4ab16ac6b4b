/* Connections and requests of the client's core against scripted brokers. */
#include "peer.h"

static struct net *one_broker(const char *const *pairs) {
    struct net *n = net_new(pairs);
    net_broker(n, 1, "b0", 9092);
    return n;
}

static void test_a_request_connects_negotiates_and_is_answered(void **state) {
    (void)state;
    struct net *n = one_broker(NULL);
    struct call c;
    ask_call(&c, n, KC_BROKER_ANY);
    kc_core_send(n->core, &c.rq);
    assert_int_equal(c.done, 0); /* never from inside send */
    net_turn(n);
    assert_int_equal(c.done, 1);
    assert_int_equal(c.err, KC_OK);
    assert_true(c.rq.sent);
    assert_int_equal(c.rq.version, 13);
    assert_int_equal(n->requests[KW_API_API_VERSIONS], 1);
    int16_t min, max;
    assert_true(kc_core_versions(n->core, c.rq.sent_to, KW_API_METADATA, &min, &max));
    assert_int_equal(max, 13);
    net_free(n);
}

static void test_bytes_one_by_one(void **state) {
    (void)state;
    struct net *n = one_broker(NULL);
    n->write_max = 1;
    n->read_max = 1;
    struct call c;
    ask_call(&c, n, KC_BROKER_ANY);
    kc_core_send(n->core, &c.rq);
    net_turn(n);
    assert_int_equal(c.done, 1);
    assert_int_equal(c.err, KC_OK);
    net_free(n);
}

/* PR-04: ApiVersions one version too new is answered with error 35 in the layout of version 0; asked once again, on the same connection. */
static void test_PR_04_falls_back_on_the_same_connection(void **state) {
    (void)state;
    for (int16_t max = 0; max < 5; max++) {
        struct net *n = one_broker(NULL);
        n->api_max[KW_API_API_VERSIONS] = max;
        struct call c;
        ask_call(&c, n, KC_BROKER_ANY);
        kc_core_send(n->core, &c.rq);
        net_turn(n);
        assert_int_equal(c.err, KC_OK);
        assert_int_equal(c.done, 1);
        assert_int_equal(n->requests[KW_API_API_VERSIONS], 2);
        assert_int_equal(n->opened, 1);
        net_free(n);
    }
}

static bool versions_always_35(struct net *n, struct request *rq) {
    (void)n;
    if (rq->head.api_key != KW_API_API_VERSIONS) return false;
    struct kw_api_versions_response m;
    kw_msg_init(&kw_api_versions_response_desc, &m);
    m.error_code = KE_UNSUPPORTED_VERSION;
    rq->head.version = 0;
    net_answer(rq, &m);
    return true;
}

static void test_PR_04_does_not_loop(void **state) {
    (void)state;
    struct net *n = one_broker(NULL);
    n->hook = versions_always_35;
    struct call c;
    ask_call(&c, n, KC_BROKER_ANY);
    c.rq.attempts = kc_attempts_new();
    c.rq.deadline_us = n->now.mono_us + 50000;
    kc_core_send(n->core, &c.rq);
    net_advance(n, 60000);
    assert_int_equal(c.done, 1);
    assert_int_equal(c.err, KC_ALL_BROKERS_DOWN);
    assert_int_equal(n->requests[KW_API_API_VERSIONS], 2); /* the newest, then version 0; the next attempt waits for the backoff */
    kc_attempts_unref(c.rq.attempts);
    net_free(n);
}

/* PR-05: the ranges overlap, though the broker has dropped the oldest versions. */
static void test_PR_05_uses_the_highest_common_version(void **state) {
    (void)state;
    struct net *n = one_broker(NULL);
    n->api_min[KW_API_METADATA] = 9;
    n->api_max[KW_API_METADATA] = 40;
    struct call c;
    ask_call(&c, n, KC_BROKER_ANY);
    c.rq.version_max = 12;
    kc_core_send(n->core, &c.rq);
    net_turn(n);
    assert_int_equal(c.err, KC_OK);
    assert_int_equal(c.rq.version, 12);

    ask_call(&c, n, KC_BROKER_ANY); /* no overlap */
    c.rq.version_max = 8;
    c.rq.attempts = kc_attempts_new();
    kc_core_send(n->core, &c.rq);
    net_turn(n);
    assert_int_equal(c.err, KC_UNSUPPORTED);
    assert_false(c.rq.sent);
    kc_error *e = NULL;
    kc_error_make(&e, c.err, KC_NOT_PERSISTED, c.rq.attempts, "x");
    kc_attempt a;
    assert_int_equal(kc_error_attempt(e, 0, &a), KC_OK);
    assert_non_null(strstr(a.detail, "9 to 40"));
    kc_error_free(e);
    kc_attempts_unref(c.rq.attempts);
    net_free(n);
}

static const char *first_bytes;
static bool answers_first_bytes(struct net *n, struct request *rq) {
    (void)n;
    link_feed(rq->link, first_bytes, 64);
    if (rq->link->conn) link_lost(rq->link, KW_OK, NULL);
    return true;
}

/* SE-05: a plain client at a TLS port or a web server. */
static void test_SE_05_nonsense_first_bytes_name_what_sits_there(void **state) {
    (void)state;
    static const struct {
        char bytes[65];
        const char *hint;
    } cases[] = {
        {"\x15\x03\x01\x00\x02\x02\x46", "TLS"},    {"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "HTTP"},
        {"SSH-2.0-OpenSSH_9.2\r\n", "SSH"},         {"\x7f\xff\xff\xff", "2147483647"},
        {"\xff\xff\xff\xff", "not a Kafka broker"}, {"\x00\x00\x00\x03", "not a Kafka broker"},
    };
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        struct net *n = one_broker(NULL);
        first_bytes = cases[i].bytes;
        n->hook = answers_first_bytes;
        struct call c;
        ask_call(&c, n, KC_BROKER_ANY);
        c.rq.deadline_us = n->now.mono_us + 50000;
        c.rq.attempts = kc_attempts_new();
        kc_core_send(n->core, &c.rq);
        net_advance(n, 60000);
        assert_int_equal(c.err, KC_ALL_BROKERS_DOWN);
        kc_error *e = NULL;
        kc_error_make(&e, c.err, KC_NOT_PERSISTED, c.rq.attempts, "x");
        kc_attempt a;
        assert_int_equal(kc_error_attempt(e, 0, &a), KC_OK);
        assert_string_equal(a.phase, "negotiate");
        if (!strstr(a.detail, cases[i].hint)) fail_msg("no \"%s\" in \"%s\"", cases[i].hint, a.detail);
        kc_error_free(e);
        kc_attempts_unref(c.rq.attempts);
        net_free(n);
    }
}

/* CX-17: a peer that sends an endless line, or closes in the middle of its first message. */
static size_t fed;
static bool endless(struct net *n, struct request *rq) {
    (void)n;
    char line[1000];
    memset(line, 'x', sizeof line);
    for (int i = 0; i < 1000 && rq->link->conn; i++) {
        fed += link_feed(rq->link, line, sizeof line);
    }
    return true;
}
static bool cut_off(struct net *n, struct request *rq) {
    (void)n;
    link_feed(rq->link, "\0\0\0\x20\0\0", 6);
    link_lost(rq->link, KW_OK, NULL);
    return true;
}
static void test_CX_17_endless_line_and_early_close(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct net *n = one_broker(NULL);
        n->hook = i ? cut_off : endless;
        fed = 0;
        struct call c;
        ask_call(&c, n, KC_BROKER_ANY);
        c.rq.deadline_us = n->now.mono_us + 2000000;
        kc_core_send(n->core, &c.rq);
        net_advance(n, 3000000);
        assert_int_equal(c.err, KC_ALL_BROKERS_DOWN);
        assert_true(fed <= 1000 * n->opened);          /* the first 1000 bytes were enough to give up */
        assert_true(n->opened >= 3 && n->opened <= 8); /* with backoff */
        net_free(n);
    }
}

/* ---- Large answers and the hard cap ---- */

static size_t answer_size;
static struct kw_blk *answer_blk;
static const uint8_t *answer_p;

static bool sized_answer(struct net *n, struct request *rq) {
    (void)n;
    if (rq->head.api_key != KW_API_FETCH) return false;
    uint8_t *p = malloc(answer_size + 4);
    memset(p, 0xab, answer_size + 4);
    kw_store32(p, (uint32_t)answer_size);
    kw_store32(p + 4, (uint32_t)rq->head.correlation_id);
    p[8] = 0; /* tagged fields of the header */
    link_feed(rq->link, p, answer_size + 4);
    free(p);
    return true;
}
static void keep_block(struct call *c, struct kw_in *body, struct kw_blk *blk) {
    (void)c;
    if (!body) return;
    assert_true(body->p >= blk->data && body->end <= blk->data + blk->cap);
    answer_p = body->p;
    answer_blk = kw_blk_ref(blk);
}

static void fetch_of(struct net *n, size_t size, struct call *c) {
    static struct kw_fetch_request m;
    kw_msg_init(&kw_fetch_request_desc, &m);
    n->hook = sized_answer;
    answer_size = size;
    answer_blk = NULL;
    call_init(c, n, KW_API_FETCH, 1, &m);
    c->rq.channel = KC_CHANNEL_FETCH;
    c->then = keep_block;
    kc_core_send(n->core, &c->rq);
    net_turn(n);
}

static void test_answers_of_any_size_keep_their_bytes(void **state) {
    (void)state;
    size_t sizes[] = {20, 100, 8000, 8190, 8192, 8193, 16379, 16380, 16381, 16384, 20000, 300000};
    for (size_t chunk = 0; chunk < 3; chunk++) {
        struct net *n = known_broker(NULL);
        n->read_max = chunk == 0 ? 0 : chunk == 1 ? 7 : 4096;
        struct kw_blk *held[KW_COUNTOF(sizes)];
        const uint8_t *at[KW_COUNTOF(sizes)];
        for (size_t i = 0; i < KW_COUNTOF(sizes); i++) {
            struct call c;
            fetch_of(n, sizes[i], &c);
            assert_int_equal(c.err, KC_OK);
            assert_int_equal(c.done, 1);
            held[i] = answer_blk;
            at[i] = answer_p;
            if (sizes[i] > 16384) assert_int_equal(answer_blk->cap, sizes[i]); /* a block of exactly its size */
        }
        for (size_t i = 0; i < KW_COUNTOF(sizes); i++) { /* what is held was not written over by later answers */
            for (size_t k = 0; k < sizes[i] - 5; k++) assert_int_equal(at[i][k], 0xab);
            kw_blk_unref(held[i]);
        }
        net_free(n);
    }
}

/* PR-11: exactly the hard cap passes, one more closes the connection before anything is allocated. */
static void test_PR_11_hard_cap(void **state) {
    (void)state;
    const char *pairs[] = {"receive.message.max.bytes", "50000", NULL};
    struct net *n = known_broker(pairs);
    struct call c;
    fetch_of(n, 50000, &c);
    assert_int_equal(c.err, KC_OK);
    kw_blk_unref(answer_blk);
    fetch_of(n, 50001, &c);
    assert_int_equal(c.err, KC_TOO_BIG_ANSWER);
    assert_true(c.rq.sent);
    assert_null(answer_blk);
    assert_true(net_logged(n, 3, "receive.message.max.bytes=50000"));
    net_free(n);
    assert_true(100000000 > 52428800 + 1048576); /* the defaults leave room above fetch.max.bytes for one more batch */
}

static bool wrong_correlation(struct net *n, struct request *rq) {
    if (rq->head.api_key != KW_API_FETCH) return false;
    rq->head.correlation_id++;
    (void)n;
    struct kw_fetch_response m;
    kw_msg_init(&kw_fetch_response_desc, &m);
    net_answer(rq, &m);
    return true;
}
static void test_wrong_correlation_id_closes(void **state) {
    (void)state;
    struct net *n = known_broker(NULL);
    struct call c;
    static struct kw_fetch_request m;
    kw_msg_init(&kw_fetch_request_desc, &m);
    n->hook = wrong_correlation;
    call_init(&c, n, KW_API_FETCH, 1, &m);
    kc_core_send(n->core, &c.rq);
    net_turn(n);
    assert_int_equal(c.err, KC_BAD_MESSAGE);
    assert_true(c.rq.sent);
    net_free(n);
}

/* ---- Time ---- */

static void test_no_answer_in_time_closes_the_connection(void **state) {
    (void)state;
    const char *pairs[] = {"request.timeout.ms", "5000", NULL};
    struct net *n = known_broker(pairs);
    n->hook = never_fetch;
    struct call a, b, other;
    fetch_call(&a, n);
    kc_core_send(n->core, &a.rq);
    net_advance(n, 1000000);
    fetch_call(&b, n);
    kc_core_send(n->core, &b.rq);
    net_advance(n, 3999000);
    assert_int_equal(a.done + b.done, 0);
    net_advance(n, 2000);
    assert_int_equal(a.err, KC_TIMED_OUT);
    assert_int_equal(b.err, KC_TRANSPORT); /* not late itself: collateral */
    assert_int_equal(b.done, 1);
    assert_true(a.rq.sent && b.rq.sent);
    ask_call(&other, n, 1); /* another lane lives on */
    kc_core_send(n->core, &other.rq);
    net_turn(n);
    assert_int_equal(other.err, KC_OK);
    net_free(n);
}

/* CX-03: the wall clock jumps while everything waits. */
static void test_CX_03_wall_clock_jumps(void **state) {
    (void)state;
    const char *pairs[] = {"request.timeout.ms", "5000", NULL};
    for (int sign = -1; sign <= 1; sign += 2) {
        struct net *n = known_broker(pairs);
        n->hook = never_fetch;
        struct call a;
        fetch_call(&a, n);
        kc_core_send(n->core, &a.rq);
        net_advance(n, 4000000);
        n->now.wall_ms += sign * INT64_C(3600000);
        net_advance(n, 999000);
        assert_int_equal(a.done, 0);
        net_advance(n, 2000);
        assert_int_equal(a.err, KC_TIMED_OUT);
        net_free(n);
    }
}

/* CX-08: limits of 36 hours, of INT64_MAX, and of now. */
static void test_CX_08_huge_deadlines_do_not_wrap(void **state) {
    (void)state;
    struct net *n = known_broker(NULL);
    n->brokers[0].silent = true;
    int64_t limits[] = {n->now.mono_us + INT64_C(36) * 3600 * 1000000 * 2, INT64_MAX - 1, KW_NEVER};
    for (size_t i = 0; i < KW_COUNTOF(limits); i++) {
        struct call a;
        fetch_call(&a, n);
        a.rq.deadline_us = limits[i];
        a.rq.answer_timeout_us = INT64_MAX;
        kc_core_send(n->core, &a.rq);
        net_advance(n, 1000000);
        assert_int_equal(a.done, 0);
        kc_core_cancel(n->core, &a.rq);
        net_turn(n);
        assert_int_equal(a.err, KC_CANCELLED);
    }
    struct call a;
    fetch_call(&a, n);
    a.rq.deadline_us = n->now.mono_us;
    kc_core_send(n->core, &a.rq);
    net_turn(n);
    assert_int_equal(a.err, KC_TIMED_OUT);
    net_free(n);
}

static void test_idle_connections_close_quietly(void **state) {
    (void)state;
    const char *pairs[] = {"connections.max.idle.ms", "60000", "metadata.max.age.ms", "-1", NULL};
    struct net *n = known_broker(pairs);
    struct call a;
    fetch_call(&a, n);
    static struct kw_fetch_response ok;
    kw_msg_init(&kw_fetch_response_desc, &ok);
    assert_int_equal(net_up(n), 1);
    net_advance(n, 59000000);
    assert_int_equal(net_up(n), 1);
    net_advance(n, 2000000);
    assert_int_equal(net_up(n), 0);
    assert_int_equal(kc_core_deadline(n->core), KW_NEVER); /* an idle client has no timer at all */
    ask_call(&a, n, 1);
    kc_core_send(n->core, &a.rq);
    net_turn(n);
    assert_int_equal(a.err, KC_OK);
    net_free(n);
}

/* CX-14: the kernel kills the connection; the object goes. */
static void test_CX_14_killed_connection_is_released(void **state) {
    (void)state;
    struct net *n = known_broker(NULL);
    n->hook = never_fetch;
    for (int i = 0; i < 50; i++) {
        struct call a;
        fetch_call(&a, n);
        kc_core_send(n->core, &a.rq);
        net_advance(n, 1000000);
        assert_non_null(net_link(n, "b0"));
        link_lost(net_link(n, "b0"), KW_EIO, "connection reset by peer");
        net_turn(n);
        assert_int_equal(a.done, 1);
        assert_int_equal(a.err, KC_TRANSPORT);
        assert_true(n->opened - n->closed <= 1);
    }
    net_free(n);
}

static void test_stop_fails_everything_once(void **state) {
    (void)state;
    struct net *n = known_broker(NULL);
    n->hook = never_fetch;
    struct call c[4];
    for (size_t i = 0; i < 4; i++) {
        fetch_call(&c[i], n);
        if (i == 2) c[i].rq.broker = KC_BROKER_ANY;
        if (i == 3) c[i].rq.broker = KC_BROKER_CONTROLLER;
        kc_core_send(n->core, &c[i].rq);
        if (i == 0) net_turn(n);
    }
    kc_core_stop(n->core, n->now);
    net_turn(n);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(c[i].done, 1);
        assert_int_equal(c[i].err, KC_CLOSED);
    }
    kc_core_send(n->core, &c[0].rq);
    net_turn(n);
    assert_int_equal(c[0].done, 2);
    assert_int_equal(c[0].err, KC_CLOSED);
    net_free(n);
}

/* Memory runs out at every allocation in turn: nothing is lost, leaked or done twice, and the client recovers. */
static void test_allocation_failures(void **state) {
    (void)state;
    for (int64_t at = 0; at < 120; at++) {
        struct net *n = net_new(NULL);
        net_broker(n, 1, "b0", 9092);
        net_topic(n, "t", 1, 3, 1);
        struct call c;
        ask_call(&c, n, KC_BROKER_ANY);
        kw_alloc_fail_after(at);
        int32_t t = kc_metadata_intern(n->core, "t", 1);
        if (t) kc_metadata_want(n->core, t);
        kc_core_send(n->core, &c.rq);
        kc_core_tick(n->core, n->now);
        net_turn(n);
        kw_alloc_fail_after(-1);
        net_advance(n, 30000000);
        assert_int_equal(c.done, 1);
        if (!t) t = kc_metadata_intern(n->core, "t", 1);
        kc_metadata_want(n->core, t);
        net_advance(n, 30000000);
        struct kc_topic_meta *m = kc_metadata_topic(n->core, t);
        assert_true(m->known && m->err == 0 && m->partition_count == 3 && m->partitions[2].leader == 1);
        net_free(n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request_connects_negotiates_and_is_answered),
        cmocka_unit_test(test_bytes_one_by_one),
        cmocka_unit_test(test_PR_04_falls_back_on_the_same_connection),
        cmocka_unit_test(test_PR_04_does_not_loop),
        cmocka_unit_test(test_PR_05_uses_the_highest_common_version),
        cmocka_unit_test(test_SE_05_nonsense_first_bytes_name_what_sits_there),
        cmocka_unit_test(test_CX_17_endless_line_and_early_close),
        cmocka_unit_test(test_answers_of_any_size_keep_their_bytes),
        cmocka_unit_test(test_PR_11_hard_cap),
        cmocka_unit_test(test_wrong_correlation_id_closes),
        cmocka_unit_test(test_no_answer_in_time_closes_the_connection),
        cmocka_unit_test(test_CX_03_wall_clock_jumps),
        cmocka_unit_test(test_CX_08_huge_deadlines_do_not_wrap),
        cmocka_unit_test(test_idle_connections_close_quietly),
        cmocka_unit_test(test_CX_14_killed_connection_is_released),
        cmocka_unit_test(test_stop_fails_everything_once),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
