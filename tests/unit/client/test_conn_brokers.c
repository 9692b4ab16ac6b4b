/* Which broker a request goes to: bootstrap addresses, throttling, all of them down, addresses that do not answer, brokers that move. */
#include "peer.h"

/* CX-12: a throttled broker gets nothing until the time is over; the latest end counts; queued requests do not time out because of it. */
static void test_CX_12_throttling(void **state) {
    (void)state;
    const char *pairs[] = {"request.timeout.ms", "1500", NULL};
    struct net *n = known_broker(pairs);
    n->hook = answer_fetches;
    struct call a, b;
    fetch_call(&a, n);
    kc_core_send(n->core, &a.rq);
    net_turn(n);
    kc_core_broker_throttle(n->core, 1, 2000);
    net_advance(n, 500000);
    kc_core_broker_throttle(n->core, 1, 1000); /* ends earlier: changes nothing */
    fetch_call(&b, n);
    kc_core_send(n->core, &b.rq);
    assert_true(kc_core_broker_held_until(n->core, 1) == n->now.mono_us + 1500000);
    struct call any;
    ask_call(&any, n, KC_BROKER_ANY);
    kc_core_send(n->core, &any.rq); /* the only broker is throttled: it waits as well */
    net_advance(n, 1499000);
    assert_int_equal(n->requests[KW_API_FETCH], 1);
    assert_int_equal(b.done + any.done, 0);
    net_advance(n, 2000);
    assert_int_equal(n->requests[KW_API_FETCH], 2);
    assert_int_equal(b.err, KC_OK);
    assert_int_equal(any.err, KC_OK);
    net_free(n);
}

static void test_CX_12_a_throttled_broker_is_not_chosen(void **state) {
    (void)state;
    struct net *n = known_broker(NULL);
    net_broker(n, 2, "b2", 9092);
    kc_metadata_refresh(n->core, "test");
    net_turn(n);
    kc_core_broker_throttle(n->core, 1, 60000);
    for (int i = 0; i < 20; i++) {
        struct call any;
        ask_call(&any, n, KC_BROKER_ANY);
        kc_core_send(n->core, &any.rq);
        net_turn(n);
        assert_int_equal(any.err, KC_OK);
        assert_int_equal(any.rq.sent_to, 2);
    }
    net_free(n);
}

/* CX-07 (the core's part; the process's CPU is measured in test_handle): all brokers down for a minute. */
static void test_CX_07_all_down_backs_off_and_says_so(void **state) {
    (void)state;
    const char *pairs[] = {"bootstrap.servers", "b0:9092,b1:9092,b2:9092", NULL};
    struct net *n = net_new(pairs);
    struct call any;
    ask_call(&any, n, KC_BROKER_ANY);
    any.rq.attempts = kc_attempts_new();
    any.rq.deadline_us = n->now.mono_us + 60000000;
    kc_core_send(n->core, &any.rq);
    n->ticks = 0;
    net_advance(n, 59000000);
    assert_true(net_logged(n, 3, "ALL_BROKERS_DOWN"));
    assert_int_equal(any.done, 0);
    assert_true(n->opened >= 3 * 8 && n->opened <= 3 * 16); /* 0.1 s doubling to 10 s: about 12 each */
    assert_true(n->ticks < 1000);
    net_advance(n, 2000000);
    assert_int_equal(any.err, KC_ALL_BROKERS_DOWN);
    kc_error *e = NULL;
    kc_error_make(&e, any.err, KC_NOT_PERSISTED, any.rq.attempts, "x");
    assert_int_equal(kc_error_attempt_count(e), 16); /* the first eight and the last eight */
    kc_attempt a;
    for (size_t i = 0; i + 1 < 16; i++) {
        assert_int_equal(kc_error_attempt(e, i, &a), KC_OK);
        assert_int_equal(a.cause, KC_TRANSPORT);
        assert_non_null(strstr(a.detail, "connection refused"));
        int64_t at = a.at_ms;
        assert_int_equal(kc_error_attempt(e, i + 1, &a), KC_OK);
        assert_true(a.at_ms >= at); /* oldest first */
    }
    kc_error_free(e);
    kc_attempts_unref(any.rq.attempts);
    net_free(n);
}

/* A machine that is gone does not refuse: the other bootstrap addresses are tried beside it, a quarter of a second apart. */
static void test_a_blackholed_bootstrap_address_holds_nobody_up(void **state) {
    (void)state;
    const char *pairs[] = {"bootstrap.servers", "b0:9092,b1:9092,b2:9092", NULL};
    for (int good = 0; good < 3; good++) {
        struct net *n = net_new(pairs);
        static const char *const hosts[] = {"b0", "b1", "b2"};
        for (int i = 0; i < 3; i++) net_broker(n, i, hosts[i], 9092)->hangs = i != good;
        struct call any;
        ask_call(&any, n, KC_BROKER_ANY);
        kc_core_send(n->core, &any.rq);
        net_advance(n, 510000);
        assert_int_equal(any.err, KC_OK);
        assert_int_equal(any.done, 1);
        kc_metadata_refresh(n->core, "test"); /* the attempts that hang end with the bootstrapping */
        net_advance(n, 1000000);
        assert_int_equal(n->opened - n->closed, net_up(n));
        net_free(n);
    }
}

/* The same once the brokers are known; and never more than a few at a time. */
static void test_attempts_to_connect_are_limited(void **state) {
    (void)state;
    char list[200] = "b0:9092";
    static char hosts[NET_BROKERS][16];
    for (int i = 1; i < NET_BROKERS; i++) snprintf(list + strlen(list), sizeof list - strlen(list), ",b%d:9092", i);
    const char *pairs[] = {"bootstrap.servers", list, "socket.connection.setup.timeout.ms", "5000", NULL};
    struct net *n = net_new(pairs);
    for (int i = 0; i < NET_BROKERS; i++) {
        snprintf(hosts[i], sizeof hosts[i], "b%d", i);
        net_broker(n, i, hosts[i], 9092)->hangs = true;
    }
    struct call any[3];
    for (int i = 0; i < 3; i++) {
        ask_call(&any[i], n, KC_BROKER_ANY);
        kc_core_send(n->core, &any[i].rq);
    }
    net_turn(n);
    assert_int_equal(n->opened, 1); /* however many wait */
    net_advance(n, 260000);
    assert_int_equal(n->opened, 2);
    net_advance(n, 4000000);
    assert_int_equal(n->opened, 4);
    net_advance(n, 1000000);
    assert_true(n->opened - n->closed <= 4);
    for (int i = 0; i < NET_BROKERS; i++) n->brokers[i].hangs = false;
    net_advance(n, 10000000);
    for (int i = 0; i < 3; i++) assert_int_equal(any[i].err, KC_OK);
    net_free(n);
}

/* Once brokers are known, a bootstrap connection goes when its last answer is there. */
static struct request held;
static bool hold_pid(struct net *n, struct request *rq) {
    (void)n;
    if (rq->head.api_key != KW_API_INIT_PRODUCER_ID) return false;
    held = *rq;
    return true;
}
static void test_the_bootstrap_connection_goes_after_its_last_answer(void **state) {
    (void)state;
    const char *pairs[] = {"bootstrap.servers", "boot:9092", NULL};
    struct net *n = net_new(pairs);
    net_broker(n, -1, "boot", 9092);
    net_broker(n, 1, "b0", 9092);
    n->hook = hold_pid;
    struct kw_init_producer_id_request ask_pid;
    kw_msg_init(&kw_init_producer_id_request_desc, &ask_pid);
    struct call pid;
    kc_metadata_refresh(n->core, "test");
    kc_core_tick(n->core, n->now); /* the metadata request comes first */
    call_init(&pid, n, KW_API_INIT_PRODUCER_ID, KC_BROKER_ANY, &ask_pid);
    kc_core_send(n->core, &pid.rq);
    net_turn(n);
    net_advance(n, 1000000);
    assert_int_equal(pid.done, 0);
    assert_non_null(net_link(n, "boot"));
    struct kw_init_producer_id_response m;
    kw_msg_init(&kw_init_producer_id_response_desc, &m);
    net_answer(&held, &m);
    net_turn(n);
    assert_int_equal(pid.err, KC_OK);
    assert_null(net_link(n, "boot"));
    net_free(n);
}

static void test_each_address_is_tried(void **state) {
    (void)state;
    struct net *n = net_new(NULL);
    struct model_broker *b = net_broker(n, 1, "b0", 9092);
    b->hangs = true;
    n->addresses = 3;
    struct call any;
    ask_call(&any, n, KC_BROKER_ANY);
    kc_core_send(n->core, &any.rq);
    net_advance(n, 10100000);
    assert_int_equal(n->links[0].address, 1);
    net_advance(n, 10000000);
    assert_int_equal(n->links[0].address, 2);
    assert_int_equal(n->opened, 1);
    b->hangs = false;
    net_advance(n, 11000000);
    assert_int_equal(any.err, KC_OK);
    net_free(n);
}

/* A name whose first address is dead (IPv6 that leads nowhere, say) costs its time once, not with every connection. */
static void test_the_address_that_worked_is_tried_first(void **state) {
    (void)state;
    const char *pairs[] = {"socket.connection.setup.timeout.ms", "3000", NULL};
    struct net *n = net_new(pairs);
    struct model_broker *b = net_broker(n, 1, "b0", 9092);
    b->hanging_addresses = 1;
    n->addresses = 3;
    n->hook = answer_fetches;
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 3100000);
    assert_non_null(net_link(n, "b0"));
    for (int i = 0; i < 3; i++) {
        struct call c;
        fetch_call(&c, n); /* another lane, a new connection each time */
        kc_core_send(n->core, &c.rq);
        net_turn(n);
        assert_int_equal(c.err, KC_OK);
        assert_int_equal(c.done, 1);
        assert_int_equal(net_link(n, "b0")->address, 1);
        link_lost(net_link(n, "b0"), KW_EIO, "connection reset by peer");
    }
    b->hanging_addresses = 2; /* it dies, and the others live: each has its turn */
    struct call c;
    fetch_call(&c, n);
    kc_core_send(n->core, &c.rq);
    net_advance(n, 3100000);
    assert_int_equal(c.err, KC_OK);
    assert_int_equal(net_link(n, "b0")->address, 0);
    net_free(n);
}

/* CX-01: the broker moves to another host under the same id. */
static void test_CX_01_broker_moves(void **state) {
    (void)state;
    for (int hangs = 0; hangs < 2; hangs++) {
        const char *pairs[] = {"request.timeout.ms", "2000", "socket.connection.setup.timeout.ms", "1000", NULL};
        struct net *n = net_new(pairs);
        net_broker(n, 0, "b0", 9092);
        struct model_broker *old = net_broker(n, 1, "a", 9092);
        net_topic(n, "t", 1, 1, 1);
        int32_t t = kc_metadata_intern(n->core, "t", 1);
        kc_metadata_want(n->core, t);
        net_turn(n);
        n->hook = answer_fetches;
        struct call a;
        fetch_call(&a, n);
        kc_core_send(n->core, &a.rq);
        net_turn(n);
        assert_int_equal(n->requests[KW_API_FETCH], 1);
        struct link *l = net_link(n, "a");
        assert_non_null(l);
        /* The machine goes; it comes back elsewhere. */
        old->host = "b";
        net_broker(n, -1, "a", 9092);
        n->brokers[2].refuses = !hangs;
        n->brokers[2].hangs = hangs;
        link_lost(l, KW_EIO, "connection reset by peer");
        fetch_call(&a, n);
        kc_core_send(n->core, &a.rq);
        for (int i = 0; i < 50 && (!a.done || a.err != KC_OK); i++) {
            net_advance(n, 100000);
            if (a.done && a.err != KC_OK) { /* as its sender does */
                fetch_call(&a, n);
                kc_core_send(n->core, &a.rq);
            }
        }
        assert_int_equal(a.err, KC_OK);
        assert_int_equal(n->requests[KW_API_FETCH], 2);
        assert_null(net_link(n, "a"));
        assert_non_null(net_link(n, "b"));
        net_free(n);
    }
}

static void test_CX_01_the_old_socket_is_closed_when_metadata_says_so(void **state) {
    (void)state;
    struct net *n = net_new(NULL);
    net_broker(n, 0, "b0", 9092);
    struct model_broker *b = net_broker(n, 1, "a", 9092);
    kc_metadata_refresh(n->core, "test");
    net_turn(n);
    n->hook = never_fetch;
    struct call a;
    fetch_call(&a, n);
    kc_core_send(n->core, &a.rq);
    net_turn(n);
    assert_non_null(net_link(n, "a"));
    b->host = "b";
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 2000000);
    assert_null(net_link(n, "a"));
    assert_int_equal(a.err, KC_TRANSPORT);
    assert_true(a.rq.sent);
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_CX_12_throttling),
        cmocka_unit_test(test_CX_12_a_throttled_broker_is_not_chosen),
        cmocka_unit_test(test_CX_07_all_down_backs_off_and_says_so),
        cmocka_unit_test(test_a_blackholed_bootstrap_address_holds_nobody_up),
        cmocka_unit_test(test_attempts_to_connect_are_limited),
        cmocka_unit_test(test_the_bootstrap_connection_goes_after_its_last_answer),
        cmocka_unit_test(test_each_address_is_tried),
        cmocka_unit_test(test_the_address_that_worked_is_tried_first),
        cmocka_unit_test(test_CX_01_broker_moves),
        cmocka_unit_test(test_CX_01_the_old_socket_is_closed_when_metadata_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
