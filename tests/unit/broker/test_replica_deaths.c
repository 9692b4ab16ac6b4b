/* test_replica_deaths.c - the ways in which a leader's death can go, with three node cores: what its followers have, what is told to producers, what is
 * lost where it may be, and that the replicas end equal. One partition, replicas (0,1,2), all in sync; the test is the controller.
 */
#include "replica_rig.h"

#include "log/epochs.h"

static struct cluster *up(uint64_t seed) {
    struct cluster *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    cl_init(c, 3, seed);
    for (int32_t i = 0; i < 3; i++) cl_add_broker(c, i, 100 + i);
    cl_tell(c, (struct news){.kind = NEWS_TOPIC, .topic = 1});
    cl_tell(c, (struct news){.kind = NEWS_CONFIG, .topic = 1, .key = "min.insync.replicas", .value = "2"});
    cl_add_partition(c, 1, 0, 3, 0);
    for (int i = 0; i < 3; i++) cl_boot(&c->h[i]);
    cl_pass(c, 200000);
    return c;
}
static struct kb_partition *part(struct cluster *c, int host) {
    return cl_partition(&c->h[host], 1, 0);
}

/* Followers' fetches are held, or let go on. */
static void hold(struct cluster *c, bool first, bool second) {
    c->held[1] = first;
    c->held[2] = second;
}

struct sent {
    struct rig_conn *conn;
    rig_produced answer;
};
static void send(struct cluster *c, struct sent *s, int host, int16_t acks, int64_t pid, int32_t seq) {
    struct rig *r = &c->h[host].r;
    struct rig_batch b = {.pid = pid, .epoch = pid < 0 ? -1 : 0, .seq = pid < 0 ? -1 : seq, .count = 1, .value_size = 100};
    size_t n;
    uint8_t *p = rig_batch(r, &b, &n);
    s->conn = rig_connect(r);
    rig_request(s->conn, KW_API_PRODUCE, 9, 1, &rig_produce_msg(r, "t1", 0, acks, p, n)->req);
}
static bool answered(struct sent *s) {
    struct kw_produce_response resp;
    if (!rig_response(s->conn, KW_API_PRODUCE, 9, 1, &resp)) return false;
    s->answer = resp.responses.v[0].partition_responses.v[0];
    return true;
}
static void expect_stored(struct cluster *c, struct sent *s, int64_t offset) {
    for (int i = 0; i < 2000; i++) {
        if (answered(s)) {
            assert_int_equal(s->answer.error_code, KE_NONE);
            assert_int_equal(s->answer.base_offset, offset);
            return;
        }
        cl_pass(c, 1000);
        cl_read_all(c);
    }
    fail_msg("no answer");
}
static void put(struct cluster *c, int host, int16_t acks, int64_t offset) {
    struct sent s;
    send(c, &s, host, acks, -1, -1);
    expect_stored(c, &s, offset);
}

static void leader_dies(struct cluster *c) {
    cl_kill(&c->h[0], false);
    c->dead[0] = true;
    cl_elect(c, 1, 0, 1, 6, false); /* the first of the ISR that lives, not the one with the longest log */
    cl_read_all(c);
}
static void returns(struct cluster *c, int host) {
    c->dead[host] = false;
    cl_add_broker(c, host, 500 + host);
    cl_boot(&c->h[host]);
    cl_read_all(c);
}

static void expect_equal(struct cluster *c, int64_t end, unsigned isr) {
    for (int i = 0; i < 5; i++) {
        cl_pass(c, 1000000);
        cl_read_all(c);
    }
    assert_int_equal(c->parts[1][0].isr, isr);
    size_t n = 0, m;
    uint8_t *first = NULL;
    for (int i = 0; i < 3; i++) {
        if (!(isr & 1u << i)) continue;
        assert_int_equal(part(c, i)->log->leo, end);
        assert_int_equal(part(c, i)->hw, end);
        assert_int_equal(kb_followers_stats(c->h[i].r.node)->unclean_truncations, 0);
        cl_stop(&c->h[i]);
        uint8_t *b = cl_log_bytes(&c->h[i], 0, first ? &m : &n);
        if (first) {
            assert_int_equal(n, m);
            assert_memory_equal(first, b, n);
            free(b);
        } else {
            first = b;
        }
    }
    free(first);
    cl_deinit(c);
    free(c);
}

/* It dies before it has answered, when one follower has the record: the producer sends it again. One copy with idempotence; two without. */
static void test_answer_lost(void **state) {
    (void)state;
    for (int idempotent = 0; idempotent < 2; idempotent++) {
        struct cluster *c = up(1 + (uint64_t)idempotent);
        int64_t pid = idempotent ? 5000 : -1;
        struct sent s;
        put(c, 0, -1, 0);
        hold(c, false, true);
        send(c, &s, 0, -1, pid, 0);
        cl_pass(c, 100000);
        assert_false(answered(&s));
        assert_int_equal(part(c, 1)->log->leo, 2);
        assert_int_equal(part(c, 2)->log->leo, 1);
        assert_int_equal(part(c, 0)->hw, 1);
        leader_dies(c);
        hold(c, false, false);
        send(c, &s, 1, -1, pid, 0);
        expect_stored(c, &s, idempotent ? 1 : 2);
        returns(c, 0);
        expect_equal(c, idempotent ? 2 : 3, 7);
    }
}

/* acks=1, and it dies before anyone has fetched: told to be stored, and lost. */
static void test_acks_1_lost(void **state) {
    (void)state;
    struct cluster *c = up(3);
    put(c, 0, -1, 0);
    hold(c, true, true);
    put(c, 0, 1, 1);
    assert_int_equal(part(c, 0)->hw, 1);
    leader_dies(c);
    hold(c, false, false);
    put(c, 1, -1, 1); /* another in its place */
    returns(c, 0);
    cl_pass(c, 1000000);
    assert_int_equal(kb_followers_stats(c->h[0].r.node)->truncations, 1);
    expect_equal(c, 2, 7);
}

/* It dies when one follower has record 4, the other 4 and 5: the first leads, the other drops 5. */
static void test_uneven_followers(void **state) {
    (void)state;
    struct cluster *c = up(4);
    for (int64_t i = 0; i < 3; i++) put(c, 0, -1, i);
    hold(c, true, true);
    put(c, 0, 1, 3);
    hold(c, false, true);
    for (int i = 0; i < 100000 && part(c, 1)->log->leo < 4; i++)
        if (!cl_turn(c)) cl_pass(c, 50);
    hold(c, true, true); /* before it has told so */
    put(c, 0, 1, 4);
    hold(c, true, false);
    for (int i = 0; i < 100000 && part(c, 2)->log->leo < 5; i++)
        if (!cl_turn(c)) cl_pass(c, 50);
    hold(c, true, true);
    cl_pass(c, 20000);
    assert_int_equal(part(c, 1)->log->leo, 4);
    assert_int_equal(part(c, 2)->log->leo, 5);
    assert_int_equal(part(c, 0)->hw, 3);
    leader_dies(c);
    hold(c, false, false);
    cl_pass(c, 1000000);
    assert_int_equal(part(c, 2)->log->leo, 4);
    assert_int_equal(part(c, 2)->hw, 4);
    assert_int_equal(kb_followers_stats(c->h[2].r.node)->truncations, 1);
    put(c, 1, -1, 4);
    returns(c, 0);
    expect_equal(c, 5, 7);
}

/* An old leader comes back with a tail that nobody else has: it is cut off, and what the others have instead is fetched. */
static void test_old_leader_returns(void **state) {
    (void)state;
    for (int power = 0; power < 2; power++) {
        struct cluster *c = up(5 + (uint64_t)power);
        for (int64_t i = 0; i < 4; i++) put(c, 0, -1, i);
        hold(c, true, true);
        for (int64_t i = 4; i < 9; i++) put(c, 0, 1, i);
        if (power) {
            cl_kill(&c->h[0], true);
            c->dead[0] = true;
            cl_elect(c, 1, 0, 1, 6, false);
            cl_read_all(c);
        } else {
            leader_dies(c);
        }
        hold(c, false, false);
        for (int64_t i = 4; i < 7; i++) put(c, 1, -1, i);
        returns(c, 0);
        expect_equal(c, 7, 7);
    }
}

/* Too few in sync: what needs more copies is refused, and what acks=1 stores stays unseen until there are enough again. */
static void test_below_min_isr(void **state) {
    (void)state;
    struct cluster *c = up(7);
    put(c, 0, -1, 0);
    cl_pass(c, 100000); /* the followers hear of the high watermark */
    cl_kill(&c->h[0], false);
    cl_kill(&c->h[2], false);
    c->dead[0] = c->dead[2] = true;
    cl_elect(c, 1, 0, 1, 2, false);
    cl_read_all(c);
    struct sent s;
    send(c, &s, 1, -1, -1, -1);
    for (int i = 0; i < 100 && !answered(&s); i++) cl_pass(c, 10000);
    assert_int_equal(s.answer.error_code, KE_NOT_ENOUGH_REPLICAS);
    put(c, 1, 1, 1);
    cl_pass(c, 1000000);
    assert_int_equal(part(c, 1)->hw, 1);
    returns(c, 2);
    for (int i = 0; i < 3; i++) {
        cl_pass(c, 1000000);
        cl_read_all(c);
    }
    assert_int_equal(c->parts[1][0].isr, 6);
    assert_int_equal(part(c, 1)->hw, 2);
    returns(c, 0);
    expect_equal(c, 2, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answer_lost), cmocka_unit_test(test_acks_1_lost),
                                       cmocka_unit_test(test_uneven_followers), cmocka_unit_test(test_old_leader_returns),
                                       cmocka_unit_test(test_below_min_isr)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
