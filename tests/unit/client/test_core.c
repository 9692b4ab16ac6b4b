/* The core's turns: tasks, deadlines, the router's queues, addresses of bootstrap.servers, and a run that repeats from its seed. */
#include "peer.h"

struct job {
    struct kc_task task;
    struct kc_core *core;
    int runs, again;
    struct job *other; /* deferred, or cancelled when `cancels`, while this one runs */
    bool cancels;
};
static void run_job(struct kc_task *task, void *ctx) {
    struct job *j = ctx;
    j->runs++;
    if (j->again > 0) {
        j->again--;
        kc_core_defer(j->core, task);
    }
    if (j->other && j->cancels)
        kc_task_cancel(&j->other->task);
    else if (j->other)
        kc_core_defer(j->core, &j->other->task);
}
static void job_init(struct job *j, struct net *n) {
    *j = (struct job){.core = n->core};
    kc_task_init(&j->task, run_job, j);
}

static void test_tasks_run_once_a_turn(void **state) {
    (void)state;
    struct net *n = net_new(NULL);
    struct job a, b;
    job_init(&a, n);
    job_init(&b, n);
    kc_core_defer(n->core, &a.task);
    kc_core_defer(n->core, &a.task); /* deferred already */
    assert_int_equal(kc_core_deadline(n->core), n->now.mono_us);
    kc_core_tick(n->core, n->now);
    assert_int_equal(a.runs, 1);
    assert_int_equal(kc_core_deadline(n->core), KW_NEVER);

    a.again = 3; /* one that always comes back does not keep the turn from ending */
    kc_core_defer(n->core, &a.task);
    for (int i = 0; i < 4; i++) {
        kc_core_tick(n->core, n->now);
        assert_int_equal(a.runs, 2 + i);
    }
    a.other = &b; /* deferred while tasks run: next turn */
    kc_core_defer(n->core, &a.task);
    kc_core_tick(n->core, n->now);
    assert_int_equal(b.runs, 0);
    kc_core_tick(n->core, n->now);
    assert_int_equal(b.runs, 1);
    a.cancels = true; /* taken off by one that runs before it */
    kc_core_defer(n->core, &a.task);
    kc_core_defer(n->core, &b.task);
    kc_core_tick(n->core, n->now);
    assert_int_equal(b.runs, 1);
    net_free(n);
}

static void test_bootstrap_addresses(void **state) {
    (void)state;
    static const struct {
        const char *list, *host;
        int port;
        bool ok;
    } cases[] = {
        {"a", "a", 9092, true},
        {"a:1", "a", 1, true},
        {" a:1 , b:2", "a", 1, true},
        {"[::1]:9093", "::1", 9093, true},
        {"[fe80::1]", "fe80::1", 9092, true},
        {"::1", "::1", 9092, true},
        {"PLAINTEXT://h:7", "h", 7, true},
        {"h:0", "", 0, false},
        {"h:65536", "", 0, false},
        {"h:", "", 0, false},
        {":9092", "", 0, false},
        {"[::1]x", "", 0, false},
        {"h:12a", "", 0, false},
    };
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        const char *list = cases[i].list, *host = NULL;
        size_t len = 0;
        uint16_t port = 0;
        bool ok = false;
        assert_true(kc_bootstrap_next(&list, &host, &len, &port, &ok));
        if (ok != cases[i].ok) fail_msg("%s", cases[i].list);
        if (!ok) continue;
        assert_int_equal(len, strlen(cases[i].host));
        assert_memory_equal(host, cases[i].host, len);
        assert_int_equal(port, cases[i].port);
    }
    const char *list = " , ,, ", *host;
    size_t len;
    uint16_t port;
    bool ok;
    assert_false(kc_bootstrap_next(&list, &host, &len, &port, &ok));
}

/* Several bootstrap addresses: each is tried until one answers, and load goes to the least busy broker. */
static struct kw_metadata_request ask;
static bool hold_metadata(struct net *n, struct request *rq) {
    (void)n;
    return rq->head.api_key == KW_API_DESCRIBE_CLUSTER;
}
static void test_any_goes_to_the_least_loaded(void **state) {
    (void)state;
    const char *pairs[] = {"bootstrap.servers", "dead1:9092,dead2:9092,b1:9092", NULL};
    struct net *n = net_new(pairs);
    kw_msg_init(&kw_metadata_request_desc, &ask);
    net_broker(n, 1, "b1", 9092);
    net_broker(n, 2, "b2", 9092);
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 1000000);
    static struct kw_describe_cluster_request held;
    kw_msg_init(&kw_describe_cluster_request_desc, &held);
    n->hook = hold_metadata;
    struct call busy, first, any[2];
    call_init(&first, n, KW_API_METADATA, 2, &ask); /* both are connected */
    kc_core_send(n->core, &first.rq);
    call_init(&busy, n, KW_API_DESCRIBE_CLUSTER, 1, &held);
    kc_core_send(n->core, &busy.rq);
    net_turn(n);
    assert_int_equal(first.err, KC_OK);
    for (int i = 0; i < 2; i++) {
        call_init(&any[i], n, KW_API_METADATA, KC_BROKER_ANY, &ask);
        kc_core_send(n->core, &any[i].rq);
        net_turn(n);
        assert_int_equal(any[i].err, KC_OK);
        assert_int_equal(any[i].rq.sent_to, 2);
    }
    net_free(n);
}

static void test_in_flight_limit(void **state) {
    (void)state;
    const char *pairs[] = {"max.in.flight", "2", NULL};
    struct net *n = net_new(pairs);
    net_broker(n, 1, "b0", 9092);
    kc_metadata_refresh(n->core, "test");
    net_turn(n);
    static struct kw_describe_cluster_request held;
    kw_msg_init(&kw_describe_cluster_request_desc, &held);
    n->hook = hold_metadata;
    struct call c[5];
    for (int i = 0; i < 5; i++) {
        call_init(&c[i], n, KW_API_DESCRIBE_CLUSTER, 1, &held);
        kc_core_send(n->core, &c[i].rq);
    }
    net_turn(n);
    assert_int_equal(kc_core_in_flight(n->core, 1, KC_CHANNEL_CONTROL), 2);
    assert_int_equal(n->requests[KW_API_DESCRIBE_CLUSTER], 2);
    kc_core_cancel(n->core, &c[0].rq); /* its answer is still due: the place on the wire is not free */
    net_turn(n);
    assert_int_equal(c[0].err, KC_CANCELLED);
    assert_int_equal(n->requests[KW_API_DESCRIBE_CLUSTER], 2);
    net_free(n);
}

static void test_status_says_what_goes_on(void **state) {
    (void)state;
    struct net *n = net_new(NULL);
    struct model_broker *b = net_broker(n, 1, "b0", 9092);
    char text[300];
    b->refuses = true;
    struct call c;
    kw_msg_init(&kw_metadata_request_desc, &ask);
    call_init(&c, n, KW_API_METADATA, KC_BROKER_ANY, &ask);
    kc_core_send(n->core, &c.rq);
    net_advance(n, 2000000);
    kc_core_broker_status(n->core, KC_BROKER_ANY, text, sizeof text);
    assert_non_null(strstr(text, "connection refused"));
    assert_non_null(strstr(text, "attempts failed"));
    b->refuses = false;
    net_advance(n, 5000000);
    assert_int_equal(c.err, KC_OK);
    kc_core_broker_status(n->core, 77, text, sizeof text);
    assert_string_equal(text, "no broker 77 is known");
    net_free(n);
}

/* Same seed, same run: every connection, request and log line at the same moment. */
static uint64_t run_hash(void) {
    const char *pairs[] = {"bootstrap.servers", "dead:9092,b0:9092,b1:9092", NULL};
    struct net *n = net_new(pairs);
    net_broker(n, 1, "b0", 9092);
    struct model_broker *b = net_broker(n, 2, "b1", 9092);
    net_topic(n, "t", 1, 4, 2);
    kc_metadata_want(n->core, kc_metadata_intern(n->core, "t", 1));
    kc_metadata_want(n->core, kc_metadata_intern(n->core, "missing", 7));
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < 40; i++) {
        b->refuses = i % 7 == 3;
        for (size_t k = 0; k < n->link_count; k++) {
            if (i % 5 == 4 && n->links[k].up) link_lost(&n->links[k], KW_EIO, "reset");
        }
        kc_metadata_refresh(n->core, "test");
        net_advance(n, 700000);
        h = (h ^ (uint64_t)n->opened ^ (uint64_t)n->requests[KW_API_METADATA] << 20 ^ n->ticks << 40) * 1099511628211u;
    }
    net_free(n);
    return h;
}
static void test_a_run_repeats(void **state) {
    (void)state;
    assert_true(run_hash() == run_hash());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tasks_run_once_a_turn),        cmocka_unit_test(test_bootstrap_addresses),
        cmocka_unit_test(test_any_goes_to_the_least_loaded), cmocka_unit_test(test_in_flight_limit),
        cmocka_unit_test(test_status_says_what_goes_on),     cmocka_unit_test(test_a_run_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
