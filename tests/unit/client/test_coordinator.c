/* Which broker coordinates a key: found, shared, forgotten, found again; every version of FindCoordinator; what waits for it, and how it ends. */
#include "peer.h"

#include "core/coordinator.h"

enum { CALLS = 1200 };

struct wait { /* a request for the coordinator: a Heartbeat */
    struct kc_request rq;
    struct kc_coordinator *coordinator;
    struct kc_core *core;
    int done;
    kc_err err, code;
    bool again; /* kc_coordinator_failed said so */
    int32_t to;
};
struct bed {
    struct net *net;
    int32_t node;     /* named as the coordinator of every key; -1: not available */
    int16_t code;     /* of the next answers to FindCoordinator, while codes > 0 */
    int codes;
    int16_t beat;     /* of the answers to Heartbeat, while beats > 0 */
    int beats;
    int finds, keys, most_keys, heartbeats[NET_BROKERS];
    bool forgetful, mute; /* the answer names no key; none comes */
    int8_t type;
};

static void find(struct bed *b, struct request *rq) {
    struct net *n = b->net;
    struct kw_find_coordinator_request q;
    struct kw_find_coordinator_response m;
    kw_arena_reset(&n->arena);
    struct kw_in again = rq->body;
    if (kw_decode(&kw_find_coordinator_request_desc, rq->head.version, &rq->body, &n->arena, &q) != KW_OK) {
        rq->body = again; /* an allocation failure that the test planned */
        assert_int_equal(kw_decode(&kw_find_coordinator_request_desc, rq->head.version, &rq->body, &n->arena, &q), KW_OK);
    }
    assert_int_equal(kw_in_left(&rq->body), 0);
    int count = rq->head.version >= 4 ? q.coordinator_keys.n : 1;
    b->finds++;
    b->keys += count;
    b->most_keys = KW_MAX(b->most_keys, count);
    b->type = q.key_type;
    if (b->mute) return;
    assert_true(count > 0);
    int16_t code = b->codes > 0 ? b->code : b->node < 0 ? KE_COORDINATOR_NOT_AVAILABLE : KE_NONE;
    if (b->codes > 0) b->codes--;
    const struct model_broker *mb = NULL;
    for (size_t i = 0; i < n->broker_count; i++)
        if (n->brokers[i].id == b->node) mb = &n->brokers[i];
    kw_msg_init(&kw_find_coordinator_response_desc, &m);
    if (rq->head.version < 4) {
        m.error_code = code;
        m.node_id = code ? -1 : b->node;
        m.host = kw_str_of(code ? "" : mb->host);
        m.port = code ? -1 : mb->port;
        m.error_message = kw_str_of(code ? "as the test wants" : NULL);
    } else if (!b->forgetful) {
        m.coordinators.v = net_calloc(n, (size_t)count, sizeof *m.coordinators.v);
        for (int i = count - 1; i >= 0; i--) /* in another order than asked */
            m.coordinators.v[m.coordinators.n++] =
                (struct kw_find_coordinator_response_coordinator){.key = ((struct kw_str *)q.coordinator_keys.v)[i],
                                                                  .node_id = code ? -1 : b->node,
                                                                  .host = kw_str_of(code ? "" : mb->host),
                                                                  .port = code ? -1 : mb->port,
                                                                  .error_code = code,
                                                                  .error_message = kw_str_of(code ? "as the test wants" : NULL)};
    }
    net_answer(rq, &m);
}

static bool hook(struct net *n, struct request *rq) {
    struct bed *b = n->ctx;
    struct model_broker *mb = net_broker_at(n, rq->link->host, rq->link->port);
    if (mb->silent) return true;
    if (rq->head.api_key == KW_API_FIND_COORDINATOR) {
        find(b, rq);
        return true;
    }
    if (rq->head.api_key != KW_API_HEARTBEAT) return false;
    struct kw_heartbeat_response m;
    kw_msg_init(&kw_heartbeat_response_desc, &m);
    b->heartbeats[mb - n->brokers]++;
    m.error_code = b->beats > 0 ? b->beat : mb->id == b->node ? KE_NONE : KE_NOT_COORDINATOR;
    if (b->beats > 0) b->beats--;
    net_answer(rq, &m);
    return true;
}

static struct bed *bed_new(const char *const *pairs) {
    struct bed *b = calloc(1, sizeof *b);
    b->net = net_new(pairs);
    b->net->hook = hook;
    b->net->ctx = b;
    b->node = 2;
    net_broker(b->net, 1, "b0", 9092);
    net_broker(b->net, 2, "b1", 9092);
    net_broker(b->net, 3, "b2", 9092);
    return b;
}
static void bed_free(struct bed *b) {
    net_free(b->net);
    free(b);
}
static struct kc_coordinator *open_key(struct bed *b, const char *key) {
    struct kc_coordinator *c = kc_coordinator_open(b->net->core, KC_COORDINATOR_GROUP, kw_str_of(key));
    assert_non_null(c);
    return c;
}

static kw_err beat_encode(struct kc_request *rq, struct kw_out *out) {
    struct kw_heartbeat_request m;
    kw_msg_init(&kw_heartbeat_request_desc, &m);
    m.group_id = kw_str_of("g");
    return kw_encode(&kw_heartbeat_request_desc, rq->version, &m, out);
}
static void beat_done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct wait *c = rq->ctx;
    struct kw_heartbeat_response m;
    (void)blk;
    c->done++;
    c->err = err;
    c->to = rq->sent_to;
    c->code = err;
    struct kw_arena none;
    kw_arena_init(&none, 1);
    if (err == KC_OK && kw_decode(&kw_heartbeat_response_desc, rq->version, body, &none, &m) == KW_OK) c->code = m.error_code;
    c->again = kc_coordinator_failed(c->coordinator, rq, c->code);
}
static void call_send(struct bed *b, struct wait *c, struct kc_coordinator *of, int64_t timeout_us) {
    *c = (struct wait){.coordinator = of, .core = b->net->core};
    kc_request_init(&c->rq, KW_API_HEARTBEAT);
    kc_coordinator_aim(of, &c->rq);
    assert_int_equal(c->rq.channel, KC_CHANNEL_CONTROL);
    c->rq.deadline_us = timeout_us < 0 ? KW_NEVER : b->net->now.mono_us + timeout_us;
    c->rq.encode = beat_encode;
    c->rq.done = beat_done;
    c->rq.attempts = kc_attempts_new();
    c->rq.ctx = c;
    kc_core_send(b->net->core, &c->rq);
}
static void call_end(struct wait *c) {
    assert_int_equal(c->done, 1);
    kc_attempts_unref(c->rq.attempts);
}
/* Sent, answered well by `broker`. */
static void served_by(struct bed *b, struct kc_coordinator *of, int32_t broker, int64_t within_us) {
    struct wait c;
    call_send(b, &c, of, -1);
    net_advance(b->net, within_us);
    call_end(&c);
    assert_int_equal(c.err, KC_OK);
    assert_int_equal(c.code, KE_NONE);
    assert_false(c.again);
    assert_int_equal(c.to, broker);
    assert_int_equal(kc_coordinator_broker(of), broker);
}

static void test_found_once_and_shared(void **state) {
    (void)state;
    struct bed *b = bed_new(NULL);
    struct kc_coordinator *c = open_key(b, "g"), *same = open_key(b, "g"), *other = open_key(b, "h");
    char text[300];
    assert_ptr_equal(c, same);
    assert_ptr_not_equal(c, other);
    net_advance(b->net, 1000000);
    assert_int_equal(b->finds, 0); /* nobody needs it */
    assert_int_equal(kc_coordinator_broker(c), -1);
    served_by(b, c, 2, 100000);
    served_by(b, same, 2, 100000);
    assert_int_equal(b->finds, 1);
    assert_int_equal(b->type, KC_COORDINATOR_GROUP);
    kc_coordinator_status(c, text, sizeof text);
    assert_non_null(strstr(text, "the coordinator of group g is broker 2: connected to b1:9092"));
    kc_coordinator_status(other, text, sizeof text);
    assert_non_null(strstr(text, "the coordinator of group h is looked for"));
    kc_coordinator_unref(same);
    served_by(b, c, 2, 100000);
    kc_coordinator_find(c); /* known */
    kc_coordinator_find(other);
    net_advance(b->net, 100000);
    assert_int_equal(kc_coordinator_broker(other), 2);
    assert_int_equal(b->finds, 2);
    kc_coordinator_unref(c);
    kc_coordinator_unref(other);
    kc_coordinator_unref(NULL);
    bed_free(b);
}

static void test_every_version(void **state) {
    (void)state;
    for (int16_t v = 0; v <= kw_api_by_key(KW_API_FIND_COORDINATOR)->max; v++) {
        struct bed *b = bed_new(NULL);
        char key[16];
        struct kc_coordinator *c[5];
        struct wait call[5];
        b->net->api_min[KW_API_FIND_COORDINATOR] = b->net->api_max[KW_API_FIND_COORDINATOR] = v;
        for (int i = 0; i < 5; i++) {
            snprintf(key, sizeof key, "g%d", i);
            c[i] = open_key(b, key);
            call_send(b, &call[i], c[i], 5000000);
        }
        net_advance(b->net, 100000);
        for (int i = 0; i < 5; i++) {
            call_end(&call[i]);
            assert_int_equal(call[i].code, KE_NONE);
            assert_int_equal(call[i].to, 2);
        }
        assert_int_equal(b->keys, 5);
        assert_int_equal(b->finds, v >= 4 ? 1 : 5); /* many keys in one request, or one a request */
        assert_int_equal(b->most_keys, v >= 4 ? 5 : 1);
        for (int i = 0; i < 5; i++) kc_coordinator_unref(c[i]);
        bed_free(b);
    }
}

static void test_a_transactional_id_is_a_key_of_its_own(void **state) {
    (void)state;
    struct bed *b = bed_new(NULL);
    struct kc_coordinator *g = open_key(b, "x");
    struct kc_coordinator *t = kc_coordinator_open(b->net->core, KC_COORDINATOR_TRANSACTION, kw_str_of("x"));
    assert_ptr_not_equal(g, t);
    served_by(b, t, 2, 100000);
    assert_int_equal(b->type, KC_COORDINATOR_TRANSACTION);
    assert_int_equal(kc_coordinator_broker(g), -1);
    kc_coordinator_unref(g);
    kc_coordinator_unref(t);
    b->net->api_max[KW_API_FIND_COORDINATOR] = 0; /* which cannot say what kind of key it is */
    for (size_t i = 0; i < b->net->link_count; i++)
        if (b->net->links[i].up) link_lost(&b->net->links[i], KW_EIO, "reset");
    t = kc_coordinator_open(b->net->core, KC_COORDINATOR_TRANSACTION, kw_str_of("x"));
    struct wait call;
    call_send(b, &call, t, 5000000);
    net_advance(b->net, 3000000);
    call_end(&call);
    assert_int_equal(call.err, KC_UNSUPPORTED);
    kc_coordinator_unref(t);
    bed_free(b);
}

/* NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, a lost connection, no answer: it is looked for anew; a load under way is waited for. */
static void test_forgotten_when_it_proves_wrong(void **state) {
    (void)state;
    static const int16_t codes[] = {KE_NOT_COORDINATOR, KE_COORDINATOR_NOT_AVAILABLE, KE_COORDINATOR_LOAD_IN_PROGRESS, KE_REBALANCE_IN_PROGRESS};
    struct bed *b = bed_new(NULL);
    struct kc_coordinator *c = open_key(b, "g");
    struct wait call;
    served_by(b, c, 2, 2000000);
    for (size_t i = 0; i < KW_COUNTOF(codes); i++) {
        int finds = b->finds;
        bool forgets = i < 2;
        net_advance(b->net, 2000000);
        b->beat = codes[i];
        b->beats = 1;
        call_send(b, &call, c, 5000000);
        net_advance(b->net, 1000);
        call_end(&call);
        assert_int_equal(call.code, codes[i]);
        assert_int_equal(call.again, codes[i] != KE_REBALANCE_IN_PROGRESS); /* its own sender knows better */
        assert_int_equal(kc_coordinator_broker(c), forgets ? -1 : 2);
        served_by(b, c, 2, 2000000);
        assert_int_equal(b->finds, finds + forgets);
    }
    b->node = 3; /* it moves */
    call_send(b, &call, c, 5000000);
    net_advance(b->net, 1000);
    call_end(&call);
    assert_int_equal(call.code, KE_NOT_COORDINATOR);
    served_by(b, c, 3, 1000);
    b->net->brokers[2].silent = true; /* and its next one freezes */
    call_send(b, &call, c, -1);
    net_advance(b->net, 31000000);
    call_end(&call);
    assert_int_equal(call.err, KC_TIMED_OUT);
    assert_true(call.again);
    assert_int_equal(kc_coordinator_broker(c), -1);
    b->node = 1;
    served_by(b, c, 1, 2000000);
    struct wait two[2]; /* both were on their way; what the second tells must not make it forget the new one */
    b->net->brokers[0].silent = true;
    call_send(b, &two[0], c, -1);
    net_advance(b->net, 1000);
    call_send(b, &two[1], c, -1);
    net_advance(b->net, 1000);
    for (size_t i = 0; i < b->net->link_count; i++)
        if (b->net->links[i].up && strcmp(b->net->links[i].host, "b0") == 0) link_lost(&b->net->links[i], KW_EIO, "reset");
    b->net->brokers[0].silent = false;
    b->node = 2;
    net_advance(b->net, 2000000);
    for (int i = 0; i < 2; i++) {
        call_end(&two[i]);
        assert_int_equal(two[i].err, KC_TRANSPORT);
        assert_true(two[i].again);
    }
    served_by(b, c, 2, 2000000);
    kc_coordinator_unref(c);
    bed_free(b);
}

/* CX-18: the coordinator that is known leaves the metadata while something waits for it. */
static void test_cx18_a_coordinator_that_left_is_looked_for_again(void **state) {
    (void)state;
    struct bed *b = bed_new(NULL);
    struct kc_coordinator *c = open_key(b, "g");
    struct wait call;
    served_by(b, c, 2, 2000000);
    for (size_t i = 0; i < b->net->link_count; i++)
        if (b->net->links[i].up && strcmp(b->net->links[i].host, "b1") == 0) link_lost(&b->net->links[i], KW_EIO, "reset");
    b->net->brokers[1].hangs = true;
    call_send(b, &call, c, 60000000);
    net_advance(b->net, 100000);
    assert_int_equal(call.done, 0); /* it waits for a connection */
    b->net->brokers[1].id = -1;
    b->node = 3;
    kc_metadata_refresh(b->net->core, "the test says so");
    net_advance(b->net, 1500000);
    call_end(&call);
    assert_int_equal(call.code, KE_NONE);
    assert_int_equal(call.to, 3);
    kc_coordinator_unref(c);
    bed_free(b);
}

/* One that cannot be connected to: asked for again, with growing waits, until it can or another one is named. */
static void test_a_dead_coordinator_is_asked_for_with_backoff(void **state) {
    (void)state;
    struct bed *b = bed_new(NULL);
    struct kc_coordinator *c = open_key(b, "g");
    struct wait call;
    b->net->brokers[1].refuses = true;
    call_send(b, &call, c, 60000000);
    net_advance(b->net, 20000000);
    assert_int_equal(call.done, 0);
    assert_in_range(b->finds, 5, 40);
    b->node = 3;
    net_advance(b->net, 15000000);
    call_end(&call);
    assert_int_equal(call.to, 3);
    kc_coordinator_unref(c);
    bed_free(b);
}

static void test_nobody_coordinates_yet(void **state) {
    (void)state;
    struct bed *b = bed_new(NULL);
    struct kc_coordinator *c = open_key(b, "g");
    struct wait soon, late;
    char text[200];
    b->node = -1;
    call_send(b, &soon, c, 2000000);
    call_send(b, &late, c, 60000000);
    net_advance(b->net, 3000000);
    call_end(&soon);
    assert_int_equal(soon.err, KC_TIMED_OUT);
    assert_int_equal(soon.to, -1);
    assert_int_equal(kc_coordinator_last(c), KE_COORDINATOR_NOT_AVAILABLE);
    kc_coordinator_status(c, text, sizeof text);
    assert_non_null(strstr(text, "COORDINATOR_NOT_AVAILABLE"));
    assert_in_range(b->finds, 3, 12); /* backs off */
    b->node = 1;
    net_advance(b->net, 2000000);
    assert_int_equal(kc_attempts_last(late.rq.attempts), KE_COORDINATOR_NOT_AVAILABLE);
    call_end(&late);
    assert_int_equal(late.to, 1);
    kc_coordinator_unref(c);
    bed_free(b);
}

/* What waiting cannot mend ends what waits, at once; it is asked again for the next request. */
static void test_it_may_not_be_looked_for(void **state) {
    (void)state;
    for (int16_t v = 3; v <= 4; v++) {
        struct bed *b = bed_new(NULL);
        struct kc_coordinator *c = open_key(b, "g");
        struct wait call;
        b->net->api_max[KW_API_FIND_COORDINATOR] = v;
        b->code = KE_GROUP_AUTHORIZATION_FAILED;
        b->codes = 1;
        call_send(b, &call, c, -1);
        kc_coordinator_find(c);
        net_advance(b->net, 10000);
        assert_int_equal(kc_attempts_last(call.rq.attempts), KE_GROUP_AUTHORIZATION_FAILED);
        call_end(&call);
        assert_int_equal(call.err, KE_GROUP_AUTHORIZATION_FAILED);
        assert_false(call.again);
        net_advance(b->net, 10000000);
        assert_int_equal(b->finds, 1); /* nobody waits any more */
        served_by(b, c, 2, 1000000);
        kc_coordinator_unref(c);
        bed_free(b);
    }
}

static void test_an_answer_that_names_nobody(void **state) {
    (void)state;
    struct bed *b = bed_new(NULL);
    struct kc_coordinator *c = open_key(b, "g");
    struct wait call;
    b->forgetful = true;
    call_send(b, &call, c, 3000000);
    net_advance(b->net, 4000000);
    call_end(&call);
    assert_int_equal(call.err, KC_TIMED_OUT);
    assert_in_range(b->finds, 3, 15);
    b->forgetful = false;
    served_by(b, c, 2, 2000000);
    kc_coordinator_unref(c);
    bed_free(b);
}

/* The last hold goes while it is asked for; the client stops while something waits; a request is taken back. */
static void test_ends(void **state) {
    (void)state;
    struct bed *b = bed_new(NULL);
    b->mute = true;
    struct kc_coordinator *c = open_key(b, "g"), *d = open_key(b, "h");
    kc_coordinator_find(c);
    kc_coordinator_find(d);
    net_advance(b->net, 100000);
    assert_int_equal(b->finds, 1);
    kc_coordinator_unref(c);
    kc_coordinator_unref(d); /* the request goes with it */
    net_advance(b->net, 100000);
    struct wait call, back;
    c = open_key(b, "g");
    call_send(b, &call, c, -1);
    call_send(b, &back, c, -1);
    net_advance(b->net, 100000);
    kc_core_cancel(b->net->core, &back.rq);
    net_advance(b->net, 0);
    call_end(&back);
    assert_int_equal(back.err, KC_CANCELLED);
    assert_false(back.again);
    kc_core_stop(b->net->core, b->net->now);
    net_turn(b->net);
    call_end(&call);
    assert_int_equal(call.err, KC_CLOSED);
    call_send(b, &call, c, -1);
    net_turn(b->net);
    call_end(&call);
    assert_int_equal(call.err, KC_CLOSED);
    kc_coordinator_unref(c);
    bed_free(b);
}

/* Each allocation in turn fails, once: everything is found all the same. */
static void test_without_memory(void **state) {
    (void)state;
    int failed = 0;
    for (int n = 0; n < 120; n++) {
        struct bed *b = bed_new(NULL);
        struct wait call;
        kw_alloc_fail_after(n);
        struct kc_coordinator *c = kc_coordinator_open(b->net->core, KC_COORDINATOR_GROUP, kw_str_of("g"));
        if (!c) c = kc_coordinator_open(b->net->core, KC_COORDINATOR_GROUP, kw_str_of("g"));
        assert_non_null(c);
        call_send(b, &call, c, 30000000);
        net_advance(b->net, 5000000);
        kw_alloc_fail_after(-1);
        call_end(&call);
        failed += call.err != KC_OK;
        assert_true(call.err == KC_OK || call.err == KC_NO_MEMORY); /* its own timer, or its own encoding */
        kc_coordinator_unref(c);
        bed_free(b);
    }
    assert_in_range(failed, 0, 12);
}

/* Many keys: bounded requests; many requests for one key: all go when it is known. */
static void test_many(void **state) {
    (void)state;
    struct bed *b = bed_new(NULL);
    struct wait *calls = calloc(CALLS, sizeof *calls);
    struct kc_coordinator **c = calloc(CALLS, sizeof *c);
    for (int i = 0; i < CALLS; i++) {
        char key[16];
        snprintf(key, sizeof key, "g%d", i);
        c[i] = open_key(b, key);
        call_send(b, &calls[i], c[i], 60000000);
    }
    net_advance(b->net, 5000000);
    assert_int_equal(b->keys, CALLS);
    assert_true(b->most_keys <= 1000);
    assert_int_equal(b->finds, 2);
    for (int i = 0; i < CALLS; i++) {
        call_end(&calls[i]);
        assert_int_equal(calls[i].code, KE_NONE);
        if (i > 0) kc_coordinator_unref(c[i]);
    }
    for (int i = 0; i < CALLS; i++) call_send(b, &calls[i], c[0], 60000000);
    net_advance(b->net, 5000000);
    for (int i = 0; i < CALLS; i++) {
        call_end(&calls[i]);
        assert_int_equal(calls[i].code, KE_NONE);
    }
    assert_int_equal(b->finds, 2);
    kc_coordinator_unref(c[0]);
    free(c);
    free(calls);
    bed_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found_once_and_shared),
        cmocka_unit_test(test_every_version),
        cmocka_unit_test(test_a_transactional_id_is_a_key_of_its_own),
        cmocka_unit_test(test_forgotten_when_it_proves_wrong),
        cmocka_unit_test(test_cx18_a_coordinator_that_left_is_looked_for_again),
        cmocka_unit_test(test_a_dead_coordinator_is_asked_for_with_backoff),
        cmocka_unit_test(test_nobody_coordinates_yet),
        cmocka_unit_test(test_it_may_not_be_looked_for),
        cmocka_unit_test(test_an_answer_that_names_nobody),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_without_memory),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
