/* test_consume_several.c - several consumers of one client: none goes without memory, or waits, because of what the others hold or wait for.
 *
 * The brokers keep no fetch sessions here: those of the rig are one a broker.
 */
#include "consume_peer.h"

#define MS 1000
#define SECOND 1000000

enum { SEVERAL_MAX = 12 };

struct one { /* of the consumers */
    struct cw *w;
    struct kc_consume c;
    struct kc_task run;
    int records;
    kc_event *kept[4096];
    int kept_count;
};

static void kick(void *ctx) {
    struct one *o = ctx;
    kc_core_defer(o->w->net->core, &o->run);
}
static void notify(void *ctx) {
    (void)ctx;
}

static struct one *add(struct cw *w) {
    struct one *o = calloc(1, sizeof *o);
    o->w = w;
    kc_task_init(&o->run, cw_run, &o->c);
    assert_int_equal(kc_consume_init(&o->c, w->net->core, w->net->settings, notify, kick, o), KW_OK);
    kc_consume_start(&o->c);
    return o;
}
static void end(struct one *o) {
    for (int i = 0; i < o->kept_count; i++) assert_null(kc_event_drop(o->kept[i]));
    kc_consume_stop(&o->c);
    net_turn(o->w->net);
    assert_true(kc_consume_stopped(&o->c));
    kc_task_cancel(&o->run);
    kc_consume_deinit(&o->c);
    free(o);
}

static struct cw *brokers(const char *const *pairs, int count) {
    static const char *const hosts[] = {"b0", "b1", "b2", "b3"};
    struct cw *w = cw_new(pairs);
    w->no_sessions = true;
    for (int i = 1; i < count; i++) net_broker(w->net, i + 1, hosts[i], 9092);
    cw_stop(w); /* the rig's own consumer is none of them */
    return w;
}

/* All partitions of the topics from `first` on. */
static void assign(struct one *o, int first, int topics, int64_t from) {
    kc_topic_partition tp[NET_TOPICS * CW_PARTS];
    size_t n = 0;
    for (int t = first; t < first + topics; t++)
        for (int32_t p = 0; p < o->w->net->topics[t].partitions; p++)
            tp[n++] = (kc_topic_partition){.topic = o->w->topic[t], .partition = p, .offset = from};
    assert_int_equal(kc_consume_assign(&o->c, tp, sizeof *tp, n, o->w->net->now.mono_us), KC_OK);
}

static void take(struct one *o, bool keep) {
    kc_event *e = NULL;
    while (kc_consume_take(&o->c, &e) == KC_OK) {
        if (kc_event_kind(e) == KC_EVENT_RECORDS) o->records += (int)kc_event_count(e);
        if (keep && o->kept_count < (int)KW_COUNTOF(o->kept))
            o->kept[o->kept_count++] = e;
        else
            assert_null(kc_event_drop(e));
    }
}

/* Until it has so many records; how long that took. */
static int64_t until(struct one *o, int records, int64_t limit_us) {
    struct net *n = o->w->net;
    int64_t start_us = n->now.mono_us;
    while (o->records < records && n->now.mono_us < start_us + limit_us) {
        cw_advance(o->w, MS);
        take(o, false);
    }
    assert_int_equal(o->records, records);
    return n->now.mono_us - start_us;
}

/* ---- Memory ---- */

/* One consumer waits at three brokers for what does not come. */
static void idle_long_polls_leave_the_others_their_part(void **state) {
    (void)state;
    for (int others = 1; others < SEVERAL_MAX; others += 5) {
        struct cw *w = brokers(PAIRS("memory.max.bytes", "2000000"), 3);
        for (int i = 0; i < 3; i++) (void)cw_topic(w, (const char *[]){"a", "b", "c"}[i], 8, i + 1);
        int t = cw_topic(w, "data", 1, 1);
        struct one *idle = add(w), *o[SEVERAL_MAX];
        for (int i = 0; i < others; i++) o[i] = add(w);
        assign(idle, 0, 3, 0);
        cw_advance(w, SECOND);
        log_fill(&w->logs[t][0], 2000, 10, 100);
        for (int i = 0; i < others; i++) assign(o[i], t, 1, 0);
        for (int i = 0; i < others; i++) (void)until(o[i], 2000, 2 * SECOND);
        for (int i = 0; i < others; i++) end(o[i]);
        end(idle);
        cw_free(w);
    }
}

/* One has endless data, and its application takes nothing, or keeps all that it takes. */
static void what_one_holds_leaves_the_others_their_part(void **state) {
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct cw *w = brokers(PAIRS("memory.max.bytes", "2000000"), 1);
        int t = cw_topic(w, "much", 8, 1), u = cw_topic(w, "data", 1, 1);
        for (int p = 0; p < 8; p++) log_fill(&w->logs[t][p], 8000, 50, 100);
        struct one *greedy = add(w), *o = add(w);
        assign(greedy, t, 1, 0);
        for (int i = 0; i < 300; i++) {
            cw_advance(w, 10 * MS);
            if (keep) take(greedy, true);
        }
        int64_t used = atomic_load(&greedy->c.purse->used);
        assert_true(used > 800000); /* more than its floor: as much as the others do not count on */
        log_fill(&w->logs[u][0], 5000, 50, 100);
        assign(o, u, 1, 0);
        (void)until(o, 5000, 5 * SECOND);
        assert_true(atomic_load(&greedy->c.purse->used) >= used);
        end(greedy);
        end(o);
        cw_free(w);
    }
}

/* The producers have all that the consumers do not count on, and one consumer what the producers left. */
static void producers_leave_a_consumer_its_part(void **state) {
    (void)state;
    struct cw *w = brokers(PAIRS("memory.max.bytes", "2000000"), 1);
    int t = cw_topic(w, "idle", 8, 1), u = cw_topic(w, "data", 1, 1);
    struct kc_budget *b = kc_core_budget(w->net->core);
    struct one *idle = add(w), *o = add(w);
    assign(idle, t, 1, 0);
    cw_advance(w, SECOND);
    size_t n = 0;
    while (kc_budget_take(b, KC_ROLE_PRODUCE, 1000)) n += 1000;
    log_fill(&w->logs[u][0], 2000, 10, 100);
    assign(o, u, 1, 0);
    (void)until(o, 2000, 2 * SECOND);
    while (kc_budget_take(b, KC_ROLE_PRODUCE, 1000)) n += 1000;
    log_fill(&w->logs[u][0], 2000, 10, 100);
    (void)until(o, 4000, 2 * SECOND);
    kc_budget_give(b, KC_ROLE_PRODUCE, n);
    end(o);
    end(idle);
    cw_free(w);
}

static int64_t reserved(const struct one *o, int32_t broker) {
    int64_t n = 0;
    for (const struct kw_list *it = o->c.fetchers.next; it != &o->c.fetchers; it = it->next) {
        const struct kc_fetcher *f = KW_CONTAINER_OF(it, struct kc_fetcher, link);
        if (f->broker == broker) n += f->reserved;
    }
    return n;
}

/* With the default budget one consumer asks each of three brokers for fetch.max.bytes, as it did when budgets had no purses. */
static void a_consumer_alone_asks_for_all_it_may(void **state) {
    (void)state;
    struct cw *w = brokers(PAIRS("max.partition.fetch.bytes", "10000000"), 3);
    for (int i = 0; i < 3; i++) (void)cw_topic(w, (const char *[]){"a", "b", "c"}[i], 8, i + 1);
    struct one *o = add(w);
    assign(o, 0, 3, 0);
    cw_advance(w, 100 * MS);
    for (int i = 0; i < 3; i++) assert_int_equal(reserved(o, i + 1), 52428800);
    end(o);
    cw_free(w);
}

/* One consumer that waits at three brokers with little memory asks each for the same, and has room for one more. */
static void long_polls_of_one_consumer_share_its_part(void **state) {
    (void)state;
    struct cw *w = brokers(PAIRS("memory.max.bytes", "2000000"), 4);
    for (int i = 0; i < 4; i++) (void)cw_topic(w, (const char *[]){"a", "b", "c", "d"}[i], 8, i + 1);
    struct one *o = add(w);
    assign(o, 0, 3, 0);
    cw_advance(w, 2 * SECOND);
    for (int i = 0; i < 3; i++) assert_true(reserved(o, i + 1) == (1500000 - 65536) / 3);
    log_fill(&w->logs[3][0], 100, 10, 100);
    assign(o, 0, 4, 0);
    assert_true(until(o, 100, 2 * SECOND) < 100 * MS); /* before any of the others is answered */
    end(o);
    cw_free(w);
}

/* ---- Connections ---- */

/* A broker answers each connection in order: the rig fails the test when a fetch comes behind one that waits. */
static void a_long_poll_of_one_is_not_in_the_way_of_another(void **state) {
    (void)state;
    struct cw *w = brokers(PAIRS("fetch.wait.max.ms", "30000"), 1);
    int t = cw_topic(w, "idle", 1, 1), u = cw_topic(w, "data", 1, 1);
    struct one *idle = add(w), *o = add(w), *third = add(w);
    assign(idle, t, 1, 0);
    assign(third, t, 1, 0);
    cw_advance(w, SECOND);
    assign(o, u, 1, 0);
    cw_advance(w, SECOND);
    for (int i = 1; i <= 20; i++) {
        log_fill(&w->logs[u][0], 10, 10, 100);
        assert_true(until(o, i * 10, SECOND) < 50 * MS);
    }
    /* The first one's connection is the next one's once it is gone; the others keep theirs. */
    assert_int_equal(idle->c.channel, KC_CHANNEL_FETCH);
    end(idle);
    struct one *fourth = add(w);
    assign(fourth, u, 1, 0);
    assert_true(until(fourth, 200, SECOND) < 50 * MS);
    assert_int_equal(fourth->c.channel, KC_CHANNEL_FETCH);
    assert_true(o->c.channel >= KC_CHANNEL_COUNT && third->c.channel >= KC_CHANNEL_COUNT && o->c.channel != third->c.channel);
    size_t up = net_up(w->net);
    end(third);
    cw_advance(w, MS);
    assert_int_equal(net_up(w->net), up - 1); /* a connection of its own closes with it */
    end(fourth);
    end(o);
    cw_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(idle_long_polls_leave_the_others_their_part),
        cmocka_unit_test(what_one_holds_leaves_the_others_their_part),
        cmocka_unit_test(producers_leave_a_consumer_its_part),
        cmocka_unit_test(a_consumer_alone_asks_for_all_it_may),
        cmocka_unit_test(long_polls_of_one_consumer_share_its_part),
        cmocka_unit_test(a_long_poll_of_one_is_not_in_the_way_of_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
