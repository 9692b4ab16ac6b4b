/* test_consume_cluster.c - a consumer while its cluster fails: leaders that move and say so, fenced and unknown epochs, logs that lost their end more than
 * once, brokers that are all replaced. Every record once, in order; what was lost is told. KIP-320, 899, 951.
 */
#include "consume_peer.h"

#define MS 1000
#define SECOND 1000000

static void move_leader(struct cw *w, int t, int32_t p, int32_t to) {
    w->net->topics[t].leader[p] = to;
    cw_epoch(w, t, p, w->net->topics[t].epoch[p] + 1);
}
static struct cw *cluster(const char *const *pairs, int *t, int brokers) {
    static const char *const hosts[] = {"b0", "b1", "b2"};
    struct cw *w = cw_new(pairs);
    for (int i = 1; i < brokers; i++) net_broker(w->net, i + 1, hosts[i], 9092);
    *t = cw_topic(w, "t", 1, 1);
    w->logs[*t][0].epoch_count = 1;
    w->logs[*t][0].epochs[0].epoch = 0;
    return w;
}

/* ---- Leaders that say who leads ---- */

/* No metadata is asked and no backoff waited out; also when nothing was known yet of the broker that is named. */
static void test_kip951_a_hint_is_followed_at_once(void **state) {
    (void)state;
    for (int unknown = 0; unknown < 2; unknown++) {
        int t;
        struct cw *w = cluster(NULL, &t, unknown ? 1 : 2);
        cw_fill_assign(w, t, 100, 0);
        cw_consume(w, SECOND);
        if (unknown) net_broker(w->net, 7, "new", 9092);
        w->hint_leader = true;
        int metadata = w->net->requests[KW_API_METADATA];
        move_leader(w, t, 0, unknown ? 7 : 2);
        log_fill(&w->logs[t][0], 20, 10, 0);
        cw_consume(w, 30 * MS);
        cw_expect(w, t, 0, 0, 120);
        assert_int_equal(w->net->requests[KW_API_METADATA], metadata);
        assert_true(w->epochs_asked > 0); /* and the position was held against the new leader's log */
        assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
        cw_free(w);
    }
}

/* The leader that metadata names lags behind the cluster and takes the one before it for the leader. */
static int16_t lags_behind(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d) {
    const int64_t *until_us = w->ctx;
    if (f->broker != 1 || w->net->now.mono_us >= *until_us) return KE_NONE;
    d->current_leader.leader_id = 2;
    d->current_leader.leader_epoch = w->net->topics[f->topic].epoch[f->partition] - 1;
    return KE_NOT_LEADER_OR_FOLLOWER;
}
static void test_a_stale_hint_is_no_reason_to_hurry(void **state) {
    (void)state;
    int t;
    struct cw *w = cluster(NULL, &t, 2);
    move_leader(w, t, 0, 1);
    cw_fill_assign(w, t, 100, 0);
    cw_consume(w, SECOND);
    int64_t until_us = w->net->now.mono_us + 3 * SECOND;
    int fetches = w->fetch_count, metadata = w->net->requests[KW_API_METADATA];
    w->ctx = &until_us;
    w->script = lags_behind;
    w->hint_leader = true;
    log_fill(&w->logs[t][0], 20, 10, 0);
    cw_consume(w, 3 * SECOND);
    assert_in_range(w->fetch_count - fetches, 2, 40);
    assert_true(w->net->requests[KW_API_METADATA] > metadata);
    cw_consume(w, 3 * SECOND);
    cw_expect(w, t, 0, 0, 120);
    cw_free(w);
}

/* Fenced: the client is behind, and asks who leads. Unknown: the broker is behind, and is asked again. Neither is an error of the application's. */
static int16_t epochs_differ(struct cw *w, const struct cw_fetched *f, struct kw_fetch_response_partition_data *d) {
    static const int16_t codes[] = {KE_FENCED_LEADER_EPOCH, KE_UNKNOWN_LEADER_EPOCH, KE_LEADER_NOT_AVAILABLE, KE_OFFSET_NOT_AVAILABLE};
    const int64_t *until_us = w->ctx;
    (void)d;
    return w->net->now.mono_us < *until_us ? codes[f->fetch % 4] : KE_NONE;
}
static void test_fenced_and_unknown_epochs_pass(void **state) {
    (void)state;
    int t;
    struct cw *w = cluster(NULL, &t, 1);
    cw_fill_assign(w, t, 100, 0);
    cw_consume(w, SECOND);
    int64_t until_us = w->net->now.mono_us + 2 * SECOND;
    w->ctx = &until_us;
    w->script = epochs_differ;
    int fetches = w->fetch_count, metadata = w->net->requests[KW_API_METADATA];
    log_fill(&w->logs[t][0], 20, 10, 0);
    cw_consume(w, 2 * SECOND);
    assert_in_range(w->fetch_count - fetches, 3, 40);
    assert_true(w->net->requests[KW_API_METADATA] > metadata);
    cw_consume(w, 3 * SECOND);
    cw_expect(w, t, 0, 0, 120);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    cw_free(w);
}

/* ---- Logs that lost their end ---- */

static void truncate_log(struct cw *w, int t, int64_t at, int n, int32_t leader) {
    struct cw_log *l = &w->logs[t][0];
    int epochs = l->epoch_count;
    log_reset(l);
    log_fill(l, (int)at, 10, 0);
    l->epoch_count = epochs;
    while (l->epoch_count > 1 && l->epochs[l->epoch_count - 1].start >= at) l->epoch_count--; /* those that began behind it never were */
    move_leader(w, t, 0, leader);
    log_fill(l, n, 10, w->net->topics[t].epoch[0]);
}

/* Twice in a row, with nothing good in between: each loss is told, with where it was and where it goes on. */
static void test_KIP_320_every_loss_is_told(void **state) {
    (void)state;
    int t;
    struct cw *w = cluster(PAIRS("auto.offset.reset", "latest"), &t, 3);
    cw_fill_assign(w, t, 100, 0);
    cw_consume(w, SECOND);
    cw_expect(w, t, 0, 0, 100);
    w->got_count = 0;
    w->hint_leader = true;
    truncate_log(w, t, 80, 0, 2);
    cw_consume(w, 2 * SECOND);
    truncate_log(w, t, 50, 30, 3);
    cw_consume(w, 2 * SECOND);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 2);
    assert_int_equal(w->got[0].err, KC_DATA_LOST);
    assert_int_equal(w->got[0].before, 100);
    assert_int_equal(w->got[0].offset, 80);
    assert_int_equal(w->got[1].err, KC_DATA_LOST);
    assert_int_equal(w->got[1].before, 80);
    assert_int_equal(w->got[1].offset, 50);
    cw_expect(w, t, 0, 50, 80); /* from where the logs part: not from the policy's offset */
    cw_free(w);
}

/* A move on which nothing was lost says nothing, however often. */
static void test_KIP_320_moves_without_a_loss_say_nothing(void **state) {
    (void)state;
    int t;
    struct cw *w = cluster(NULL, &t, 3);
    cw_fill_assign(w, t, 100, 0);
    cw_consume(w, SECOND);
    w->hint_leader = true;
    for (int i = 0; i < 6; i++) {
        move_leader(w, t, 0, 1 + (i + 1) % 3);
        log_fill(&w->logs[t][0], 10, 10, w->net->topics[t].epoch[0]);
        cw_consume(w, 500 * MS);
    }
    cw_expect(w, t, 0, 0, 160);
    assert_int_equal(cw_count(w, KC_EVENT_ERROR, -1), 0);
    cw_free(w);
}

/* ---- All brokers replaced ---- */

static void test_KIP_899_all_brokers_are_replaced(void **state) {
    (void)state;
    int t;
    struct cw *w = cluster(PAIRS("bootstrap.servers", "entry:9092"), &t, 1);
    net_broker(w->net, -1, "entry", 9092);
    cw_fill_assign(w, t, 100, 0);
    cw_consume(w, SECOND);
    cw_expect(w, t, 0, 0, 100);
    w->net->brokers[0].host = "n0";
    memset(w->sessions, 0, sizeof w->sessions);
    for (size_t i = 0; i < w->net->link_count; i++)
        if (w->net->links[i].up) link_lost(&w->net->links[i], KW_EIO, "reset");
    log_fill(&w->logs[t][0], 20, 10, 0);
    cw_consume(w, 20 * SECOND);
    cw_expect(w, t, 0, 0, 120);
    assert_true(net_logged(w->net, 4, "starting again from bootstrap.servers"));
    cw_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kip951_a_hint_is_followed_at_once),
        cmocka_unit_test(test_a_stale_hint_is_no_reason_to_hurry),
        cmocka_unit_test(test_fenced_and_unknown_epochs_pass),
        cmocka_unit_test(test_KIP_320_every_loss_is_told),
        cmocka_unit_test(test_KIP_320_moves_without_a_loss_say_nothing),
        cmocka_unit_test(test_KIP_899_all_brokers_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
