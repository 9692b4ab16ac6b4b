/* The writing side of the client's connections: splices, short writes, cancelled requests, acks 0. */
#include "peer.h"

/* ---- Writing ---- */

static char big_value[50000];
static kw_err splice_encode(struct kc_request *rq, struct kw_out *out) {
    (void)rq;
    kw_out_i32(out, -1);
    kw_out_add_splice(out, (const uint8_t *)big_value, sizeof big_value, NULL);
    kw_out_i32(out, -2);
    return KW_OK;
}
static uint64_t splices_seen;
static bool take_splice(struct net *n, struct request *rq) {
    (void)n;
    if (rq->head.api_key != KW_API_FETCH) return false;
    assert_int_equal(kw_in_left(&rq->body), sizeof big_value + 8);
    assert_int_equal(kw_in_i32(&rq->body), -1);
    const uint8_t *p = kw_in_take(&rq->body, sizeof big_value);
    for (size_t i = 0; i < sizeof big_value; i++) assert_int_equal(p[i], 'v');
    assert_int_equal(kw_in_i32(&rq->body), -2);
    splices_seen++;
    struct kw_fetch_response m;
    kw_msg_init(&kw_fetch_response_desc, &m);
    net_answer(rq, &m);
    return true;
}

static void test_splices_arrive_in_place_in_writes_of_any_size(void **state) {
    (void)state;
    size_t steps[] = {0, 1, 13, 1000, 49999, 50000, 50001, 70000};
    memset(big_value, 'v', sizeof big_value);
    for (size_t i = 0; i < KW_COUNTOF(steps); i++) {
        struct net *n = known_broker(NULL);
        n->hook = take_splice;
        n->write_max = steps[i];
        splices_seen = 0;
        struct call c[20];
        if (steps[i] == 1) n->write_max = 997; /* one byte a write would be 10^6 turns: the header's bytes are tested one by one above */
        for (size_t k = 0; k < 20; k++) {
            fetch_call(&c[k], n);
            c[k].rq.encode = splice_encode;
            kc_core_send(n->core, &c[k].rq);
        }
        for (int t = 0; t < 20; t++) {
            if (splices_seen < 20) net_advance(n, 1000);
        }
        assert_int_equal(splices_seen, 20);
        for (size_t k = 0; k < 20; k++) assert_int_equal(c[k].err, KC_OK);
        net_free(n);
    }
}

/* A request cancelled while half of it is written, or nothing yet: its memory may go at once, and the frame is still finished, so the broker may well
 * act on it. */
static void test_cancel_in_the_middle_of_writing(void **state) {
    (void)state;
    for (size_t part = 0; part < 60000; part += 9973) {
        struct net *n = known_broker(NULL);
        struct call warm;
        n->hook = take_splice;
        memset(big_value, 'v', sizeof big_value);
        splices_seen = 0;
        fetch_call(&warm, n);
        warm.rq.encode = splice_encode;
        kc_core_send(n->core, &warm.rq);
        net_turn(n);
        struct call a, b;
        fetch_call(&a, n);
        a.rq.encode = splice_encode;
        fetch_call(&b, n);
        kc_core_send(n->core, &a.rq);
        n->hold_writes = true;
        net_turn(n); /* encoded, nothing written */
        struct link *l = net_link(n, "b0");
        for (size_t i = n->link_count; i-- > 0;) {
            if (n->links[i].conn && kc_conn_out(n->links[i].conn, (struct kc_iov[4]){0}, 4) > 0) l = &n->links[i];
        }
        n->hold_writes = false;
        n->write_max = part;
        if (part) act_write(n, l);
        n->write_max = 0;
        kc_core_cancel(n->core, &a.rq);
        net_turn(n);
        if (a.done == 1 && a.err == KC_CANCELLED) memset(big_value, 'x', sizeof big_value); /* the sender's memory is his again */
        assert_int_equal(a.done, 1);
        assert_true(a.rq.sent);
        memset(big_value, 'v', sizeof big_value);
        kc_core_send(n->core, &b.rq); /* the connection is still in step */
        n->hook = NULL;
        net_turn(n);
        n->hook = answer_fetches;
        act_write(n, l);
        net_advance(n, 1000);
        assert_int_equal(n->opened - n->closed, 2);
        kc_core_cancel(n->core, &b.rq);
        net_free(n);
    }
}

static void test_acks_0_is_done_when_written(void **state) {
    (void)state;
    struct net *n = known_broker(NULL);
    n->hook = never_fetch;
    struct call a;
    fetch_call(&a, n);
    a.rq.no_answer = true;
    kc_core_send(n->core, &a.rq);
    net_turn(n);
    assert_int_equal(a.done, 1);
    assert_int_equal(a.err, KC_OK);
    assert_int_equal(kc_core_in_flight(n->core, 1, KC_CHANNEL_FETCH), 0);
    net_advance(n, 60000000); /* and nothing times out */
    assert_non_null(net_link(n, "b0"));
    net_free(n);
}

static void test_unwritten_requests_are_not_sent(void **state) {
    (void)state;
    struct net *n = known_broker(NULL);
    n->hook = never_fetch;
    struct call a;
    fetch_call(&a, n);
    kc_core_send(n->core, &a.rq);
    net_turn(n);
    struct call b;
    fetch_call(&b, n);
    kc_core_send(n->core, &b.rq);
    n->hold_writes = true;
    net_turn(n);
    for (size_t i = 0; i < n->link_count; i++) {
        if (n->links[i].conn && n->links[i].up) link_lost(&n->links[i], KW_EIO, "reset");
    }
    net_turn(n);
    assert_int_equal(a.err, KC_TRANSPORT);
    assert_int_equal(b.err, KC_TRANSPORT);
    assert_true(a.rq.sent);
    assert_false(b.rq.sent);
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splices_arrive_in_place_in_writes_of_any_size),
        cmocka_unit_test(test_cancel_in_the_middle_of_writing),
        cmocka_unit_test(test_acks_0_is_done_when_written),
        cmocka_unit_test(test_unwritten_requests_are_not_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
