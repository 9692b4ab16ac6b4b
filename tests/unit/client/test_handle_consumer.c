/* test_handle_consumer.c - the public functions of a consumer over real sockets and threads: polling both ways, who may do what at the same time,
 * waking, own loop, fork (CX-05), close with a limit while brokers are frozen (CC-12), how long borrowed records live. Run under ThreadSanitizer
 * too.
 */
#include "consume_server.h"

#include <kclient/producer.h>
#include <sys/wait.h>

/* ---- Polling ---- */

static void test_batches_and_single_records(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        struct rig r = rig_new(modes[mode], PAIRS("max.poll.records", "30"));
        for (int32_t p = 0; p < PARTS; p++) append(p, 1000 + p);
        assign_all(&r, KC_OFFSET_BEGINNING);
        read_batches(&r, 300);
        for (int i = 0; i < 300; i++) read_one(&r);
        for (int i = 0; i < 40; i++) { /* in turn: poll goes on behind the record that poll_one gave last */
            for (int k = 0; k < 7; k++) read_one(&r);
            kc_event *e = NULL;
            assert_int_equal(kc_consumer_poll(r.consumer, &e, LONG_US), KC_OK);
            assert_true(check_event(&r, e) <= 30);
            kc_event_free(e);
            kc_topic_partition at[PARTS];
            for (int32_t p = 0; p < PARTS; p++) at[p] = part(&r, p, 0);
            assert_int_equal(kc_consumer_position(r.consumer, at, sizeof at[0], PARTS), KC_OK);
            for (int32_t p = 0; p < PARTS; p++) assert_int_equal(at[p].offset, r.next[p]);
        }
        int64_t left = 0;
        for (int p = 0; p < PARTS; p++) left += atomic_load(&peer.ends[p]) - r.next[p];
        read_batches(&r, (size_t)left);
        nothing_left(&r);
        append(1, 3); /* while a fetch waits */
        for (int i = 0; i < 3; i++) read_one(&r);
        nothing_left(&r);
        assert_int_equal(kc_consumer_close(r.consumer, LONG_US, NULL), KC_OK);
        rig_free(&r);
    }
}

static void test_bad_arguments(void **state) {
    (void)state;
    struct rig r = rig_new(NULL, NULL);
    kc_consumer *c = NULL;
    kc_error *e = NULL;
    kc_message m;
    kc_topic_partition tp = part(&r, 0, 0);
    size_t count;
    assert_int_equal(kc_consumer_new(r.client, NULL, 0, &c, &e), KC_INVALID);
    assert_non_null(strstr(kc_error_message(e), "consumer"));
    kc_error_free(e);
    assert_int_equal(kc_consumer_new(NULL, NULL, KC_PROCESSED_BY_POLL, &c, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_poll(NULL, NULL, 0), KC_INVALID);
    assert_int_equal(kc_consumer_poll(r.consumer, NULL, 0), KC_INVALID);
    assert_int_equal(kc_consumer_poll_one(r.consumer, &m, NULL, 0), KC_INVALID);
    assert_int_equal(kc_consumer_assign(r.consumer, &tp, 1, 1, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_assign(r.consumer, NULL, sizeof tp, 1, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_seek(r.consumer, &tp, sizeof tp, 1), KC_NOT_ASSIGNED);
    assert_int_equal(tp.err, KC_NOT_ASSIGNED);
    assert_int_equal(kc_consumer_why(r.consumer, NULL, 0, 1, &count), KC_INVALID);
    assert_int_equal(kc_consumer_offsets(r.consumer, &tp, 1, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_offsets_start(r.consumer, &tp, sizeof tp, 1, 0, NULL, NULL), KC_INVALID);
    kc_consumer_wake(NULL);
    kc_consumer_free(NULL);
    kc_event_free(NULL);
    rig_free(&r);
}

/* Without memory nothing is started, and the error says for what there was none. */
static void test_an_offset_lookup_without_memory(void **state) {
    (void)state;
    struct rig r = rig_new(PAIRS("client.thread", "none"), NULL);
    kc_topic_partition tp = part(&r, 0, KC_OFFSET_END);
    kc_op *op = NULL;
    kc_error *e = NULL;
    kw_alloc_fail_after(0);
    assert_int_equal(kc_consumer_offsets_start(r.consumer, &tp, sizeof tp, 1, 0, &op, &e), KC_NO_MEMORY);
    kw_alloc_fail_after(-1);
    assert_null(op);
    assert_non_null(e);
    assert_non_null(strstr(kc_error_message(e), "offset lookup"));
    kc_error_free(e);
    rig_free(&r);
}

/* ---- Two at once ---- */

struct poller {
    struct rig *rig;
    pthread_t thread;
    kc_err err;
    bool one;
};
static void *poll_in_thread(void *arg) {
    struct poller *p = arg;
    kc_event *e = NULL;
    kc_message m;
    do {
        p->err = p->one ? kc_consumer_poll_one(p->rig->consumer, &m, &e, KC_FOREVER) : kc_consumer_poll(p->rig->consumer, &e, KC_FOREVER);
    } while (p->err == KC_BUSY); /* the other thread was inside for a moment */
    kc_event_free(e);
    return NULL;
}
static void begin_poller(struct poller *p, struct rig *r, bool one) {
    *p = (struct poller){.rig = r, .one = one};
    assert_int_equal(pthread_create(&p->thread, NULL, poll_in_thread, p), 0);
    kc_event *e = NULL;
    while (kc_consumer_poll(r->consumer, &e, 0) != KC_BUSY) usleep(1000); /* until it is inside */
}

static void test_a_second_poll_is_busy(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rig r = rig_new(modes[i & 1], NULL);
        struct poller p;
        kc_event *e = NULL;
        kc_message m;
        kc_why why[PARTS];
        size_t count = 0;
        assign_all(&r, 0);
        begin_poller(&p, &r, i >= 2);
        assert_int_equal(kc_consumer_poll(r.consumer, &e, KC_FOREVER), KC_BUSY);
        assert_int_equal(kc_consumer_poll_one(r.consumer, &m, &e, KC_FOREVER), KC_BUSY);
        /* Only polling is exclusive. */
        kc_topic_partition tp = part(&r, 1, 0);
        assert_int_equal(kc_consumer_pause(r.consumer, &tp, sizeof tp, 1), KC_OK);
        assert_int_equal(kc_consumer_resume(r.consumer, &tp, sizeof tp, 1), KC_OK);
        assert_int_equal(kc_consumer_seek(r.consumer, &tp, sizeof tp, 1), KC_OK);
        assert_int_equal(kc_consumer_position(r.consumer, &tp, sizeof tp, 1), KC_OK);
        assert_int_equal(kc_consumer_why(r.consumer, why, sizeof why[0], PARTS, &count), KC_OK);
        assert_int_equal(count, PARTS);
        tp.offset = KC_OFFSET_END;
        assert_int_equal(kc_consumer_offsets(r.consumer, &tp, sizeof tp, 1, LONG_US, NULL), KC_OK);
        assert_int_equal(tp.offset, 0);
        kc_consumer_wake(r.consumer);
        pthread_join(p.thread, NULL);
        assert_int_equal(p.err, KC_WOKEN);
        rig_free(&r);
    }
}

/* Everything at the same time, for the sanitizers; what is delivered stays in order between seeks. */
struct storm {
    struct rig *rig;
    _Atomic bool stop;
    _Atomic int seeks;
};
static void *storm_control(void *arg) {
    struct storm *s = arg;
    struct rig *r = s->rig;
    for (int i = 0; i < 300; i++) {
        kc_topic_partition tp = part(r, i % PARTS, 0), all[PARTS];
        kc_why why[PARTS];
        size_t n;
        (void)kc_consumer_pause(r->consumer, &tp, sizeof tp, 1);
        (void)kc_consumer_position(r->consumer, &tp, sizeof tp, 1);
        (void)kc_consumer_why(r->consumer, why, sizeof why[0], PARTS, &n);
        tp.offset = i % 7 * 100;
        if (i % 3 == 0) (void)kc_consumer_seek(r->consumer, &tp, sizeof tp, 1);
        (void)kc_consumer_resume(r->consumer, &tp, sizeof tp, 1);
        for (int32_t p = 0; p < PARTS; p++) all[p] = part(r, p, KC_OFFSET_RESET);
        if (i % 5 == 0) assert_int_equal(kc_consumer_assign(r->consumer, all, sizeof all[0], (size_t)(1 + i % PARTS), NULL), KC_OK);
        tp.offset = KC_OFFSET_END;
        if (i % 10 == 0) (void)kc_consumer_offsets(r->consumer, &tp, sizeof tp, 1, LONG_US, NULL);
        if (i % 4 == 0) kc_consumer_wake(r->consumer);
        append(i % PARTS, 20);
    }
    atomic_store(&s->stop, true);
    kc_consumer_wake(r->consumer);
    return NULL;
}
static void *storm_free_events(void *arg) {
    kc_event_free(arg);
    return NULL;
}
static void test_everything_at_once(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        struct rig r = rig_new(modes[mode], PAIRS("max.poll.records", "20", "fetch.wait.max.ms", "50", "auto.offset.reset", "earliest"));
        struct storm s = {.rig = &r};
        pthread_t control;
        for (int32_t p = 0; p < PARTS; p++) append(p, 500);
        assign_all(&r, 0);
        assert_int_equal(pthread_create(&control, NULL, storm_control, &s), 0);
        for (int i = 0; !atomic_load(&s.stop); i++) {
            kc_event *e = NULL;
            kc_message m;
            kc_err err = i % 50 < 40 ? kc_consumer_poll_one(r.consumer, &m, &e, 5000) : kc_consumer_poll(r.consumer, &e, 5000);
            assert_true(err == KC_OK || err == KC_WOKEN || err == KC_TIMED_OUT);
            if (err != KC_OK || !e) continue;
            const kc_view *v = kc_event_views(e);
            for (size_t k = 1; k < kc_event_count(e); k++) assert_int_equal(v[k].offset, v[k - 1].offset + 1);
            if (i % 100 == 99) {
                pthread_t t;
                assert_int_equal(pthread_create(&t, NULL, storm_free_events, e), 0);
                pthread_join(t, NULL);
            } else {
                kc_event_free(e);
            }
        }
        pthread_join(control, NULL);
        kc_event *e = NULL;
        while (kc_consumer_poll(r.consumer, &e, 0) == KC_WOKEN) {}
        kc_event_free(e);
        assign_all(&r, 0); /* and it is still sound */
        int64_t all = 0;
        for (int p = 0; p < PARTS; p++) all += atomic_load(&peer.ends[p]);
        read_batches(&r, (size_t)all);
        nothing_left(&r);
        rig_free(&r);
    }
}

/* ---- Inside a callback ---- */

static int reentered;
static int32_t partitioner(void *ctx, int32_t topic, const void *key, size_t key_size, int32_t has_key, int32_t count) {
    struct rig *r = ctx;
    kc_event *e = NULL;
    kc_message m;
    kc_topic_partition tp = part(r, 0, 0);
    kc_why why;
    size_t n;
    kc_op *op = NULL;
    kc_consumer *c = NULL;
    (void)topic;
    (void)key;
    (void)key_size;
    (void)has_key;
    (void)count;
    reentered++;
    assert_int_equal(kc_consumer_poll(r->consumer, &e, KC_FOREVER), KC_REENTRANT);
    assert_int_equal(kc_consumer_poll_one(r->consumer, &m, &e, KC_FOREVER), KC_REENTRANT);
    assert_int_equal(kc_consumer_assign(r->consumer, &tp, sizeof tp, 1, NULL), KC_REENTRANT);
    assert_int_equal(kc_consumer_seek(r->consumer, &tp, sizeof tp, 1), KC_REENTRANT);
    assert_int_equal(kc_consumer_pause(r->consumer, &tp, sizeof tp, 1), KC_REENTRANT);
    assert_int_equal(kc_consumer_resume(r->consumer, &tp, sizeof tp, 1), KC_REENTRANT);
    assert_int_equal(kc_consumer_position(r->consumer, &tp, sizeof tp, 1), KC_REENTRANT);
    assert_int_equal(kc_consumer_why(r->consumer, &why, sizeof why, 1, &n), KC_REENTRANT);
    assert_int_equal(kc_consumer_offsets(r->consumer, &tp, sizeof tp, 1, 0, NULL), KC_REENTRANT);
    assert_int_equal(kc_consumer_offsets_start(r->consumer, &tp, sizeof tp, 1, 0, &op, NULL), KC_REENTRANT);
    assert_int_equal(kc_consumer_close(r->consumer, KC_FOREVER, NULL), KC_REENTRANT);
    assert_int_equal(kc_consumer_close_start(r->consumer, KC_FOREVER, 0, &op, NULL), KC_REENTRANT);
    assert_int_equal(kc_consumer_new(r->client, NULL, KC_PROCESSED_BY_POLL, &c, NULL), KC_REENTRANT);
    return 0;
}
static void test_inside_a_callback(void **state) {
    (void)state;
    struct rig r = rig_new(NULL, NULL);
    kc_producer *p = NULL;
    append(0, 10);
    assign_all(&r, 0);
    assert_int_equal(kc_producer_new(r.client, NULL, &p, NULL), KC_OK);
    assert_int_equal(kc_producer_partitioner_set(p, partitioner, &r), KC_OK);
    kc_record rec = {.topic = r.topic, .value = {"x", 1}};
    reentered = 0;
    assert_int_equal(kc_producer_send(p, &rec, LONG_US), KC_OK); /* once the topic is known, the partitioner is asked */
    assert_true(reentered > 0);
    read_batches(&r, 10); /* nothing of it had an effect */
    kc_producer_free(p);
    rig_free(&r);
}

/* ---- After fork ---- */

/* The client has one, the test's broker none. */
static int timers_open(void) {
    int n = 0;
    for (int fd = 3; fd < 256; fd++) {
        char path[64], to[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        (void)!readlink(path, to, sizeof to - 1);
        n += strstr(to, "timerfd") != NULL;
    }
    return n;
}

static int in_child(struct rig *r, kc_event *e, kc_op *op) {
    kc_event *other = NULL;
    kc_message m;
    kc_topic_partition tp = part(r, 0, 0);
    kc_why why;
    kc_op *made = NULL;
    size_t n;
    alarm(20);
    if (kc_consumer_poll(r->consumer, &other, KC_FOREVER) != KC_FORKED) return 10;
    if (kc_consumer_poll_one(r->consumer, &m, &other, KC_FOREVER) != KC_FORKED) return 11;
    if (kc_consumer_assign(r->consumer, &tp, sizeof tp, 1, NULL) != KC_FORKED) return 12;
    if (kc_consumer_seek(r->consumer, &tp, sizeof tp, 1) != KC_FORKED) return 13;
    if (kc_consumer_pause(r->consumer, &tp, sizeof tp, 1) != KC_FORKED) return 14;
    if (kc_consumer_position(r->consumer, &tp, sizeof tp, 1) != KC_FORKED) return 15;
    if (kc_consumer_why(r->consumer, &why, sizeof why, 1, &n) != KC_FORKED) return 16;
    if (kc_consumer_offsets(r->consumer, &tp, sizeof tp, 1, 0, NULL) != KC_FORKED) return 17;
    if (kc_consumer_offsets_start(r->consumer, &tp, sizeof tp, 1, 0, &made, NULL) != KC_FORKED) return 18;
    if (kc_consumer_close(r->consumer, KC_FOREVER, NULL) != KC_FORKED) return 19;
    kc_consumer_wake(r->consumer);
    if (kc_event_count(e) == 0 || kc_event_message(e, 0, &m) != KC_OK || m.value.size == 0) return 20; /* still readable */
    kc_event_free(e);
    kc_op_free(op);
    if (timers_open() != 1) return 21;
    kc_consumer_free(r->consumer);
    kc_client_free(r->client);
    return timers_open() == 0 ? 0 : 22; /* the client's descriptors are closed, or the parent's connections would stay open with the child */
}
static void test_CX_05_fork(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        struct rig r = rig_new(modes[mode], PAIRS("max.poll.records", "10"));
        append(0, 200);
        assign_all(&r, 0);
        for (int i = 0; i < 5000 && timers_open() != 1; i++) usleep(1000); /* the client of the test before may still be ending */
        assert_int_equal(timers_open(), 1);
        for (int i = 0; i < 5; i++) {
            kc_event *e = NULL;
            kc_op *op = NULL;
            kc_topic_partition tp = part(&r, 0, KC_OFFSET_END);
            assert_int_equal(kc_consumer_poll(r.consumer, &e, LONG_US), KC_OK);
            (void)check_event(&r, e);
            assert_int_equal(kc_consumer_offsets_start(r.consumer, &tp, sizeof tp, 1, 0, &op, NULL), KC_OK);
            fflush(NULL);
            pid_t pid = fork();
            if (pid == 0) _exit(in_child(&r, e, op));
            int status = 0;
            assert_int_equal(waitpid(pid, &status, 0), pid);
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("the child ended with %x", (unsigned)status);
            assert_int_equal(kc_op_wait(op, LONG_US, NULL), KC_OK); /* the parent goes on */
            assert_int_equal(kc_op_result_offsets(op, &tp, sizeof tp, 1), 1);
            assert_int_equal(tp.offset, 200);
            kc_op_free(op);
            kc_event_free(e);
        }
        read_batches(&r, (size_t)(200 - r.next[0]));
        nothing_left(&r);
        rig_free(&r);
    }
}

/* ---- Waking ---- */

static kc_consumer *to_wake;
static _Atomic int signals;
static void on_signal(int number) {
    (void)number;
    kc_consumer_wake(to_wake);
    atomic_fetch_add(&signals, 1);
}
struct signaller {
    pthread_t to, thread;
    bool by_signal;
};
static void *wake_later(void *arg) {
    struct signaller *s = arg;
    usleep(20000);
    if (s->by_signal)
        pthread_kill(s->to, SIGUSR1);
    else
        kc_consumer_wake(to_wake);
    return NULL;
}
static void test_waking(void **state) {
    (void)state;
    struct sigaction act = {.sa_handler = on_signal}, old;
    sigaction(SIGUSR1, &act, &old);
    for (int i = 0; i < 8; i++) {
        struct rig r = rig_new(modes[i & 1], NULL);
        struct signaller s = {.to = pthread_self(), .by_signal = i & 2};
        kc_event *e = NULL;
        kc_message m;
        to_wake = r.consumer;
        assign_all(&r, 0);
        assert_int_equal(pthread_create(&s.thread, NULL, wake_later, &s), 0);
        kc_err err = i & 4 ? kc_consumer_poll_one(r.consumer, &m, &e, KC_FOREVER) : kc_consumer_poll(r.consumer, &e, KC_FOREVER);
        assert_int_equal(err, KC_WOKEN);
        pthread_join(s.thread, NULL);
        assert_int_equal(kc_consumer_poll(r.consumer, &e, 1000), KC_TIMED_OUT); /* once */
        /* Sticky: with nobody inside the next poll ends at once, of whichever kind; several are one. */
        kc_consumer_wake(r.consumer);
        raise(SIGUSR1);
        err = i & 4 ? kc_consumer_poll(r.consumer, &e, KC_FOREVER) : kc_consumer_poll_one(r.consumer, &m, &e, KC_FOREVER);
        assert_int_equal(err, KC_WOKEN);
        assert_int_equal(kc_consumer_poll(r.consumer, &e, 1000), KC_TIMED_OUT);
        append(0, 10); /* and nothing is lost by it */
        read_batches(&r, 10);
        rig_free(&r);
    }
    assert_true(atomic_load(&signals) > 0);
    sigaction(SIGUSR1, &old, NULL);
}

/* A loop that ends with KC_WOKEN ends, however much there is to read. */
static void test_wake_is_seen_under_load(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rig r = rig_new(modes[i & 1], PAIRS("max.poll.records", "10"));
        append(0, 5000);
        assign_all(&r, 0);
        kc_event *e = NULL;
        kc_message m;
        kc_err err = KC_OK;
        for (int k = 0; k < 25; k++) read_one(&r); /* poll_one has some at hand */
        kc_consumer_wake(r.consumer);
        err = i & 2 ? kc_consumer_poll_one(r.consumer, &m, &e, KC_FOREVER) : kc_consumer_poll(r.consumer, &e, KC_FOREVER);
        assert_int_equal(err, KC_WOKEN);
        if (i & 2) read_one(&r);
        read_batches(&r, (size_t)(5000 - r.next[0])); /* nothing is lost or given twice */
        nothing_left(&r);
        rig_free(&r);
    }
}

/* ---- Close ---- */

static void test_CC_12_close_keeps_its_limit_while_brokers_are_frozen(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rig r = rig_new(modes[i & 1], NULL);
        kc_event *e = NULL, *kept = NULL;
        kc_op *op = NULL;
        kc_topic_partition tp = part(&r, 0, KC_OFFSET_END);
        struct poller p;
        append(0, 10);
        assign_all(&r, 0);
        assert_int_equal(kc_consumer_poll(r.consumer, &kept, LONG_US), KC_OK);
        until_a_fetch_waits(&r); /* it is outstanding … */
        atomic_store(&peer.frozen, true);
        assert_int_equal(kc_consumer_offsets_start(r.consumer, &tp, sizeof tp, 1, 0, &op, NULL), KC_OK); /* … and a lookup … */
        if (i & 2) begin_poller(&p, &r, false);                                                          /* … and a poll */
        int64_t before = now_us();
        assert_int_equal(kc_consumer_close(r.consumer, 5000000, NULL), KC_OK);
        assert_true(now_us() - before < 5000000);
        assert_int_equal(kc_op_wait(op, LONG_US, NULL), KC_CLOSED);
        kc_op_free(op);
        if (i & 2) {
            pthread_join(p.thread, NULL);
            assert_int_equal(p.err, KC_CLOSED);
        }
        assert_int_equal(kc_consumer_poll(r.consumer, &e, KC_FOREVER), KC_CLOSED);
        assert_int_equal(kc_consumer_assign(r.consumer, NULL, 0, 0, NULL), KC_CLOSED);
        assert_int_equal(kc_consumer_close(r.consumer, 5000000, NULL), KC_OK); /* again: nothing to do */
        assert_int_equal(check_event(&r, kept), 10);
        kc_event_free(kept);
        rig_free(&r);
    }
}

static void test_close_as_an_operation(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct rig r = rig_new(modes[i & 1], NULL);
        kc_op *op = NULL, *again = NULL;
        kc_event *e = NULL;
        append(0, 10);
        assign_all(&r, 0);
        read_batches(&r, 10);
        until_a_fetch_waits(&r);
        atomic_store(&peer.frozen, true);
        assert_int_equal(kc_consumer_close_start(r.consumer, LONG_US, 5, &op, NULL), KC_OK);
        assert_int_equal(kc_consumer_close_start(r.consumer, KC_FOREVER, 6, &again, NULL), KC_OK);
        if (i & 2) kc_op_cancel(again);
        if (i & 4) { /* freed with the operations under way: they end all the same */
            kc_consumer_free(r.consumer);
            r.consumer = NULL;
        }
        assert_int_equal(kc_op_wait(op, LONG_US, NULL), KC_OK);
        kc_err err = kc_op_wait(again, LONG_US, NULL);
        assert_true(err == KC_OK || ((i & 2) && err == KC_CANCELLED));
        kc_op_free(op);
        kc_op_free(again);
        if (r.consumer) {
            assert_int_equal(kc_consumer_poll(r.consumer, &e, KC_FOREVER), KC_CLOSED);
            assert_int_equal(kc_consumer_close_start(r.consumer, 0, 5, &op, NULL), KC_OK); /* once more: nothing to do */
            assert_int_equal(kc_op_wait(op, LONG_US, NULL), KC_OK);
            kc_op_free(op);
        }
        rig_free(&r);
    }
}

/* Free alone, with everything outstanding, in every order with the client. */
static void test_freed_in_any_order(void **state) {
    (void)state;
    for (int i = 0; i < 16; i++) {
        struct rig r = rig_new(modes[i & 1], NULL);
        kc_op *op = NULL;
        kc_event *e = NULL;
        kc_topic_partition tp = part(&r, 0, KC_OFFSET_END);
        append(1, 30);
        assign_all(&r, 0);
        if (i & 2) assert_int_equal(kc_consumer_poll(r.consumer, &e, LONG_US), KC_OK);
        if (i & 4) assert_int_equal(kc_consumer_offsets_start(r.consumer, &tp, sizeof tp, 1, 0, &op, NULL), KC_OK);
        if (i & 8) {
            kc_client_free(r.client);
            r.client = NULL;
        }
        kc_consumer_free(r.consumer);
        r.consumer = NULL;
        if (op && !(i & 1)) { /* without a thread nobody would run it */
            kc_err err = kc_op_wait(op, LONG_US, NULL);
            assert_true(err == KC_OK || err == KC_CLOSED); /* answered before, or closed */
        }
        if (e) assert_int_equal(check_event(&r, e), 30);
        kc_event_free(e);
        kc_op_free(op);
        rig_free(&r);
    }
}

/* ---- Pause and resume ---- */

static void test_CC_08_resume_of_what_is_not_paused(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        struct rig r = rig_new(modes[mode], PAIRS("max.poll.records", "7"));
        kc_topic_partition tp[PARTS];
        for (int32_t p = 0; p < PARTS; p++) {
            append(p, 300);
            tp[p] = part(&r, p, 0);
        }
        assign_all(&r, 0);
        for (int i = 0; i < 900; i++) {
            if (i % 5 == 0) assert_int_equal(kc_consumer_resume(r.consumer, tp, sizeof tp[0], PARTS), KC_OK);
            read_one(&r);
        }
        nothing_left(&r);
        append(2, 10);
        assert_int_equal(kc_consumer_resume(r.consumer, tp, sizeof tp[0], PARTS), KC_OK);
        read_batches(&r, 10);
        nothing_left(&r);
        rig_free(&r);
    }
}

static void test_paused_gives_nothing_and_loses_nothing(void **state) {
    (void)state;
    struct rig r = rig_new(NULL, PAIRS("max.poll.records", "10", "fetch.wait.max.ms", "50"));
    kc_topic_partition tp[PARTS];
    kc_event *e = NULL;
    kc_message m;
    for (int32_t p = 0; p < PARTS; p++) {
        append(p, 200);
        tp[p] = part(&r, p, 0);
    }
    assign_all(&r, 0);
    for (int i = 0; i < 3; i++) read_one(&r); /* paused with some of it at hand in poll_one … */
    assert_int_equal(kc_consumer_pause(r.consumer, tp, sizeof tp[0], PARTS), KC_OK);
    assert_int_equal(kc_consumer_poll_one(r.consumer, &m, &e, 100000), KC_TIMED_OUT);
    assert_int_equal(kc_consumer_poll(r.consumer, &e, 100000), KC_TIMED_OUT);
    assert_int_equal(kc_consumer_resume(r.consumer, &tp[1], sizeof tp[0], 1), KC_OK);
    int64_t others = r.next[0] + r.next[2];
    read_batches(&r, (size_t)(200 - r.next[1])); /* … the others wait, this one goes on */
    assert_int_equal(r.next[0] + r.next[2], others);
    assert_int_equal(kc_consumer_resume(r.consumer, tp, sizeof tp[0], PARTS), KC_OK);
    read_batches(&r, (size_t)(400 - others));
    nothing_left(&r);
    rig_free(&r);
}

/* ---- Seeking ---- */

/* While a long poll is outstanding: the records come without waiting for its end, and none of the old position. */
static void test_seek_while_a_fetch_is_outstanding(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        struct rig r = rig_new(modes[mode], PAIRS("fetch.wait.max.ms", "60000"));
        append(0, 300);
        assign_all(&r, 0);
        read_batches(&r, 300);
        until_a_fetch_waits(&r);
        for (int round = 0; round < 3; round++) {
            kc_topic_partition tp = part(&r, 0, 120 + round);
            assert_int_equal(kc_consumer_seek(r.consumer, &tp, sizeof tp, 1), KC_OK);
            assert_int_equal(kc_consumer_position(r.consumer, &tp, sizeof tp, 1), KC_OK);
            assert_int_equal(tp.offset, 120 + round);
            r.next[0] = 120 + round;
            read_batches(&r, (size_t)(180 - round));
            nothing_left(&r);
        }
        rig_free(&r);
    }
}

/* In the middle of what poll_one has at hand, and of what waits. */
static void test_seek_drops_what_is_at_hand(void **state) {
    (void)state;
    struct rig r = rig_new(NULL, PAIRS("fetch.wait.max.ms", "50"));
    append(0, 300);
    assign_all(&r, 0);
    for (int i = 0; i < 30; i++) read_one(&r);
    for (int round = 0; round < 50; round++) {
        kc_topic_partition tp = part(&r, 0, round * 5);
        assert_int_equal(kc_consumer_seek(r.consumer, &tp, sizeof tp, 1), KC_OK);
        r.next[0] = round * 5;
        for (int i = 0; i < 3; i++) read_one(&r);
    }
    assert_int_equal(kc_consumer_assign(r.consumer, NULL, 0, 0, NULL), KC_OK); /* nor anything of what is no longer assigned */
    kc_event *e = NULL;
    kc_message m;
    assert_int_equal(kc_consumer_poll_one(r.consumer, &m, &e, 20000), KC_TIMED_OUT);
    assert_int_equal(kc_consumer_poll(r.consumer, &e, 20000), KC_TIMED_OUT);
    rig_free(&r);
}

/* ---- The application's own loop ---- */

static void test_own_loop(void **state) {
    (void)state;
    struct rig r = rig_new(modes[1], PAIRS("fetch.wait.max.ms", "100", "opaque", "77"));
    size_t left = 3000, events = 0, turns = 0;
    for (int32_t p = 0; p < PARTS; p++) append(p, 1000);
    assign_all(&r, 0);
    while (left > 0) {
        kc_ready ready[4];
        int64_t until_us = kc_client_next_deadline_us(r.client);
        struct pollfd f = {kc_client_fd(r.client), POLLIN, 0};
        assert_true(poll(&f, 1, until_us < 0 || until_us > LONG_US ? LONG_US / 1000 : (int)(until_us / 1000 + 1)) >= 0);
        assert_int_equal(kc_client_run_once(r.client, 0, 1000), KC_OK);
        turns++;
        for (size_t i = 0, n = kc_client_ready(r.client, ready, sizeof ready[0], 4); i < n; i++) {
            if (ready[i].kind != KC_READY_EVENT) continue;
            assert_ptr_equal(ready[i].role, r.consumer);
            events++;
            kc_event *e = NULL;
            kc_err err;
            while ((err = kc_consumer_poll(r.consumer, &e, 0)) == KC_OK) { /* until drained: then it is armed again */
                left -= check_event(&r, e);
                kc_event_free(e);
            }
            assert_int_equal(err, KC_TIMED_OUT);
        }
    }
    assert_true(events > 1 && turns > 1);
    assert_int_equal(kc_consumer_close(r.consumer, LONG_US, NULL), KC_OK);
    rig_free(&r);
}

/* ---- How long borrowed things live ---- */

static void *check_and_free(void *arg) {
    kc_event *e = arg;
    for (size_t i = 0; i < kc_event_count(e); i++) {
        kc_message m;
        char want[32];
        int len = snprintf(want, sizeof want, "%d/%lld", (int)kc_event_partition(e), (long long)kc_event_views(e)[i].offset);
        if (kc_event_message(e, i, &m) != KC_OK || m.value.size != (size_t)len || memcmp(m.value.p, want, (size_t)len)) return e;
    }
    kc_event_free(e);
    return NULL;
}
static void test_records_outlive_everything_but_their_event(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        struct rig r = rig_new(modes[mode], PAIRS("max.poll.records", "20"));
        kc_event *kept[30];
        size_t n = 0;
        for (int32_t p = 0; p < PARTS; p++) append(p, 500);
        assign_all(&r, 0);
        for (; n < 20; n++) {
            assert_int_equal(kc_consumer_poll(r.consumer, &kept[n], LONG_US), KC_OK);
            (void)check_event(&r, kept[n]);
        }
        kc_message one;
        kc_event *e = NULL;
        assert_int_equal(kc_consumer_poll_one(r.consumer, &one, &e, LONG_US), KC_OK);
        char copy[32];
        size_t size = one.value.size;
        memcpy(copy, one.value.p, size);
        kc_topic_partition tp[PARTS]; /* poll_one's record stays until the next poll, whatever happens to its partition */
        for (int32_t p = 0; p < PARTS; p++) tp[p] = part(&r, p, 0);
        assert_int_equal(kc_consumer_seek(r.consumer, tp, sizeof tp[0], PARTS), KC_OK);
        assert_memory_equal(one.value.p, copy, size);
        assert_int_equal(kc_consumer_assign(r.consumer, NULL, 0, 0, NULL), KC_OK);
        assert_memory_equal(one.value.p, copy, size);
        kc_header h;
        assert_int_equal(kc_consumer_headers(r.consumer, &h, sizeof h, 1), 1);
        assert_memory_equal(h.value.p, copy, size);
        assert_ptr_equal(kc_event_ref(kept[0]), kept[0]);
        kc_event_free(kept[0]); /* one reference of two */
        assert_int_equal(kc_consumer_close(r.consumer, LONG_US, NULL), KC_OK);
        assert_memory_equal(one.value.p, copy, size);
        kc_consumer_free(r.consumer);
        kc_client_close(r.client, LONG_US, NULL);
        kc_client_free(r.client);
        r.consumer = NULL;
        r.client = NULL;
        for (size_t i = 0; i < n; i++) { /* each in a thread of its own, the last one ends the client */
            pthread_t t;
            void *bad = NULL;
            assert_int_equal(pthread_create(&t, NULL, check_and_free, kept[i]), 0);
            pthread_join(t, &bad);
            assert_null(bad);
        }
        rig_free(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_and_single_records),
        cmocka_unit_test(test_an_offset_lookup_without_memory),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_a_second_poll_is_busy),
        cmocka_unit_test(test_everything_at_once),
        cmocka_unit_test(test_inside_a_callback),
        cmocka_unit_test(test_CX_05_fork),
        cmocka_unit_test(test_waking),
        cmocka_unit_test(test_wake_is_seen_under_load),
        cmocka_unit_test(test_CC_12_close_keeps_its_limit_while_brokers_are_frozen),
        cmocka_unit_test(test_close_as_an_operation),
        cmocka_unit_test(test_freed_in_any_order),
        cmocka_unit_test(test_CC_08_resume_of_what_is_not_paused),
        cmocka_unit_test(test_paused_gives_nothing_and_loses_nothing),
        cmocka_unit_test(test_seek_while_a_fetch_is_outstanding),
        cmocka_unit_test(test_seek_drops_what_is_at_hand),
        cmocka_unit_test(test_own_loop),
        cmocka_unit_test(test_records_outlive_everything_but_their_event),
    };
    kw_arena_init(&peer.arena, 0);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    kw_arena_deinit(&peer.arena);
    return rc;
}
