/* test_producer.c - the public functions of a producer over real sockets and threads: concurrent senders, waiting for room, sync sends, flat records,
 * the application's own loop and partitioner, close, free in any order, fork (CX-05), limits of time (CX-08).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <kclient/kclient.h>
#include <kclient/producer.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "bench/mini_broker.h"

struct rig {
    struct mini_broker *broker;
    kc_client *client;
    kc_producer *producer;
    int32_t topic;
};

static kc_config *config(struct mini_broker *b, const char *const *pairs) {
    kc_config *c = kc_config_new();
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", b->port);
    assert_int_equal(kc_config_set(c, "bootstrap.servers", address, NULL), KC_OK);
    for (; pairs && pairs[0]; pairs += 2) assert_int_equal(kc_config_set(c, pairs[0], pairs[1], NULL), KC_OK);
    return c;
}

static struct rig rig_new(const char *const *pairs, int32_t partitions) {
    struct rig r = {.broker = mini_start(partitions)};
    r.broker->check = true;
    kc_config *c = config(r.broker, pairs);
    assert_int_equal(kc_client_new(c, &r.client, NULL), KC_OK);
    assert_int_equal(kc_producer_new(r.client, NULL, &r.producer, NULL), KC_OK);
    kc_config_free(c);
    r.topic = kc_client_topic(r.client, "t");
    assert_true(r.topic > 0);
    return r;
}
static void rig_free(struct rig *r) {
    assert_int_equal(atomic_load(&r->broker->bad), 0);
    kc_producer_free(r->producer);
    kc_client_close(r->client, 5000000, NULL);
    kc_client_free(r->client);
    mini_stop(r->broker);
}

static int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- Many threads ---- */

enum { SENDERS = 4, EACH = 20000 };
struct sender {
    struct rig *rig;
    int index;
    pthread_t thread;
    int refused;
};
static void *send_each(void *arg) {
    struct sender *s = arg;
    char value[100] = {0};
    for (int i = 0; i < EACH; i++) {
        kc_record rec = {.topic = s->rig->topic, .opaque = (uint64_t)(s->index * EACH + i + 1), .value = {value, sizeof value}};
        if (s->index == 3) { /* one that does not wait */
            kc_err err;
            while ((err = kc_producer_send(s->rig->producer, &rec, 0)) == KC_QUEUE_FULL) {
                s->refused++;
                usleep(100);
            }
            if (err) return s;
        } else if (kc_producer_send(s->rig->producer, &rec, KC_FOREVER) != KC_OK) {
            return s;
        }
    }
    return NULL;
}

static void test_concurrent_senders(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "500", "linger.ms", "1", NULL};
    struct rig r = rig_new(pairs, 3);
    struct sender senders[SENDERS];
    char *seen = calloc(SENDERS * EACH + 1, 1);
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){.rig = &r, .index = i};
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_each, &senders[i]), 0);
    }
    for (int got = 0; got < SENDERS * EACH;) {
        kc_reports *reports;
        kc_report one;
        assert_int_equal(kc_producer_reports(r.producer, &reports, 20000000), KC_OK);
        while (kc_reports_next(reports, &one)) {
            assert_int_equal(one.err, KC_OK);
            assert_in_range(one.opaque, 1, SENDERS * EACH);
            assert_false(seen[one.opaque]);
            seen[one.opaque] = 1;
            got++;
        }
        kc_reports_free(reports);
    }
    for (int i = 0; i < SENDERS; i++) {
        void *failed;
        pthread_join(senders[i].thread, &failed);
        assert_null(failed);
    }
    free(seen);
    assert_int_equal(atomic_load(&r.broker->records), SENDERS * EACH);
    kc_producer_stats st;
    assert_int_equal(kc_producer_stats_get(r.producer, &st, sizeof st), KC_OK);
    assert_int_equal(st.queued_records, 0);
    assert_int_equal(st.queued_bytes, 0);
    assert_int_equal(st.records_ok, SENDERS * EACH);
    rig_free(&r);
}

/* The first records of a topic from several threads at the same moment: whichever makes the topic known, none is refused. */
enum { NEW_TOPICS = 2000, FIRST_SENDERS = 2 };
struct first {
    struct rig *rig;
    int32_t topics[NEW_TOPICS];
    _Atomic int there; /* a barrier that is spun at: those that leave it meet within some nanoseconds */
};
static void *send_first(void *arg) {
    struct first *f = arg;
    void *failed = NULL;
    for (int i = 0; i < NEW_TOPICS; i++) {
        kc_record rec = {.topic = f->topics[i], .flags = KC_NO_REPORT, .value = {"first", 5}};
        atomic_fetch_add(&f->there, 1);
        while (atomic_load(&f->there) < (i + 1) * FIRST_SENDERS) sched_yield();
        if (kc_producer_send(f->rig->producer, &rec, KC_FOREVER) != KC_OK) failed = f;
    }
    return failed;
}
static void test_first_records_of_a_topic(void **state) {
    (void)state;
    struct rig r = rig_new(NULL, 1);
    struct first f = {.rig = &r};
    pthread_t threads[FIRST_SENDERS];
    for (int i = 0; i < NEW_TOPICS; i++) {
        char name[16];
        snprintf(name, sizeof name, "new-%d", i);
        f.topics[i] = kc_client_topic(r.client, name);
    }
    for (size_t i = 0; i < KW_COUNTOF(threads); i++) assert_int_equal(pthread_create(&threads[i], NULL, send_first, &f), 0);
    for (size_t i = 0; i < KW_COUNTOF(threads); i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(kc_producer_flush(r.producer, 20000000, NULL), KC_OK);
    assert_int_equal(atomic_load(&r.broker->records), NEW_TOPICS * KW_COUNTOF(threads));
    rig_free(&r);
}

static void *send_sync(void *arg) {
    struct sender *s = arg;
    for (int i = 0; i < 300; i++) {
        kc_report report;
        kc_record rec = {.topic = s->rig->topic, .opaque = (uint64_t)i, .value = {"sync", 4}};
        if (kc_producer_send_wait(s->rig->producer, &rec, &report, NULL) != KC_OK) return s;
        if (report.opaque != (uint64_t)i || report.offset < 0) return s;
    }
    return NULL;
}

static void test_concurrent_sync_senders(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "60000", NULL}; /* which does not hold them back */
    struct rig r = rig_new(pairs, 2);
    struct sender senders[SENDERS];
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){.rig = &r, .index = i};
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_sync, &senders[i]), 0);
    }
    for (int i = 0; i < SENDERS; i++) {
        void *failed;
        pthread_join(senders[i].thread, &failed);
        assert_null(failed);
    }
    kc_reports *reports;
    assert_int_equal(kc_producer_reports(r.producer, &reports, 0), KC_TIMED_OUT); /* they had theirs */
    rig_free(&r);
}

/* One thread sends and polls in turn, which makes it do the loop's work within both; others send beside it. When it stops polling, what it sent last
 * is carried on by the client's own thread, however often it goes on sending. */
static void *send_some(void *arg) {
    struct sender *s = arg;
    for (int i = 0; i < 2000; i++) {
        kc_record rec = {.topic = s->rig->topic, .value = {"beside", 6}};
        if (kc_producer_send(s->rig->producer, &rec, KC_FOREVER) != KC_OK) return s;
        if (i % 50 == 0) usleep(500);
    }
    return NULL;
}
static int take_reports(const struct rig *r, int64_t timeout_us) {
    kc_reports *reports;
    if (kc_producer_reports(r->producer, &reports, timeout_us) != KC_OK) return 0;
    kc_report one;
    int n = 0;
    for (; kc_reports_next(reports, &one); n++) assert_int_equal(one.err, KC_OK);
    kc_reports_free(reports);
    return n;
}
static void test_sending_and_polling_in_turn(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "0", NULL};
    struct rig r = rig_new(pairs, 2);
    struct sender beside[2];
    for (int i = 0; i < 2; i++) {
        beside[i] = (struct sender){.rig = &r, .index = i};
        assert_int_equal(pthread_create(&beside[i].thread, NULL, send_some, &beside[i]), 0);
    }
    kc_record rec = {.topic = r.topic, .value = {"in turn", 7}};
    int got = 0, sent = 0;
    for (; sent < 3000; sent++) {
        assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK);
        got += take_reports(&r, sent % 3 ? 200 : 0); /* also shorter than a millisecond */
    }
    for (int i = 0; i < 2; i++) {
        void *failed;
        pthread_join(beside[i].thread, &failed);
        assert_null(failed);
    }
    while (got < sent + 2 * 2000) got += take_reports(&r, 20000000);
    (void)take_reports(&r, 100); /* drives: the loop is lent to this thread from now on */
    kc_producer_stats st = {0};
    for (int64_t start = now_us(); now_us() - start < 20000000 && st.records_ok < 3000 + 2 * 2000 + 20;) {
        sent += kc_producer_send(r.producer, &rec, 0) == KC_OK;
        usleep(300);
        assert_int_equal(kc_producer_stats_get(r.producer, &st, sizeof st), KC_OK);
    }
    assert_true(st.records_ok >= 3000 + 2 * 2000 + 20); /* without a poll */
    rig_free(&r);
}

/* ---- Room ---- */

static void test_c2_enqueue_timeouts(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "10", NULL};
    struct rig r = rig_new(pairs, 1);
    kc_record rec = {.topic = r.topic, .value = {"x", 1}};
    for (int i = 0; i < 10; i++) assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK);
    assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_QUEUE_FULL); /* 0: at once */
    int64_t start = now_us();
    assert_int_equal(kc_producer_send(r.producer, &rec, 100000), KC_QUEUE_FULL); /* N: not before N */
    assert_true(now_us() - start >= 99000);
    assert_int_equal(kc_producer_flush(r.producer, 20000000, NULL), KC_OK);
    assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_QUEUE_FULL); /* the reports still hold their places */
    kc_ready ready[4];
    while (kc_client_ready(r.client, ready, sizeof ready[0], 4) > 0) { /* drained, to see the next */
    }
    kc_reports *reports;
    assert_int_equal(kc_producer_reports(r.producer, &reports, 0), KC_OK);
    assert_int_equal(kc_reports_count(reports), 10);
    kc_reports_free(reports);
    bool space = false;
    for (size_t n; (n = kc_client_ready(r.client, ready, sizeof ready[0], 4)) > 0;)
        for (size_t i = 0; i < n; i++) space |= ready[i].kind == KC_READY_SPACE && ready[i].role == r.producer;
    assert_true(space);
    assert_int_equal(kc_producer_send(r.producer, &rec, KC_FOREVER), KC_OK);
    assert_int_equal(kc_producer_send(r.producer, &rec, INT64_MAX), KC_OK); /* CX-08 */
    rig_free(&r);
}

/* A sender that waits for room is let go by a close, with an error. */
static void *send_forever(void *arg) {
    struct rig *r = arg;
    kc_record rec = {.topic = r->topic, .value = {"x", 1}};
    kc_err err;
    while ((err = kc_producer_send(r->producer, &rec, KC_FOREVER)) == KC_OK) {
    }
    return (void *)(intptr_t)err;
}
static pthread_t sender_that_waits(struct rig *r) { /* of a queue of ten, full: their reports hold the places */
    pthread_t t;
    kc_producer_stats st = {0};
    assert_int_equal(pthread_create(&t, NULL, send_forever, r), 0);
    while (st.records_ok < 10) {
        assert_int_equal(kc_producer_stats_get(r->producer, &st, sizeof st), KC_OK);
        usleep(1000);
    }
    usleep(50000); /* inside its wait by now, most likely: if not, it must be let go as well */
    return t;
}
static void join_let_go(pthread_t t) {
    void *result;
    pthread_join(t, &result);
    assert_int_equal((intptr_t)result, KC_CLOSED);
}
/* Ten are told, then that the end has come. */
static void reports_of_ten(struct rig *r, int64_t timeout_us) {
    kc_reports *reports;
    int told = 0;
    kc_err err;
    while ((err = kc_producer_reports(r->producer, &reports, timeout_us)) == KC_OK) {
        told += (int)kc_reports_count(reports);
        kc_reports_free(reports);
    }
    assert_int_equal(err, KC_CLOSED);
    assert_int_equal(told, 10);
}
static void test_close_lets_waiting_senders_go(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "10", NULL};
    struct rig r = rig_new(pairs, 1);
    pthread_t t = sender_that_waits(&r);
    assert_int_equal(kc_producer_close(r.producer, 20000000, NULL), KC_OK);
    join_let_go(t);
    reports_of_ten(&r, 0);
    assert_int_equal(kc_producer_close(r.producer, 0, NULL), KC_CLOSED);
    kc_record rec = {.topic = r.topic, .value = {"x", 1}};
    assert_int_equal(kc_producer_send_wait(r.producer, &rec, NULL, NULL), KC_CLOSED);
    rig_free(&r);
}

/* The same when the client is closed under its producer; and nobody waits for reports that will not come. */
static void test_client_close_lets_everybody_go(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "10", NULL};
    struct rig r = rig_new(pairs, 1);
    pthread_t t = sender_that_waits(&r);
    assert_int_equal(kc_client_close(r.client, 20000000, NULL), KC_OK);
    join_let_go(t);
    reports_of_ten(&r, KC_FOREVER);
    rig_free(&r);
}

/* CC-12, the producer's part (a consumer has no commit to wait for yet): every broker is frozen, as after SIGSTOP: the kernel still accepts, nobody answers.
 * A close keeps its limit, and everything is freed. */
static void test_CC_12_close_with_frozen_brokers(void **state) {
    (void)state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int frozen = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(frozen, (struct sockaddr *)&a, n), 0);
    assert_int_equal(listen(frozen, 16), 0);
    assert_int_equal(getsockname(frozen, (struct sockaddr *)&a, &n), 0);
    for (int own = 0; own < 2; own++) {
        struct mini_broker at = {.port = ntohs(a.sin_port)};
        const char *pairs[] = {"client.thread", own ? "none" : "own", NULL};
        kc_config *c = config(&at, pairs);
        kc_client *client;
        kc_producer *producer;
        assert_int_equal(kc_client_new(c, &client, NULL), KC_OK);
        assert_int_equal(kc_producer_new(client, NULL, &producer, NULL), KC_OK);
        kc_config_free(c);
        kc_record rec = {.topic = kc_client_topic(client, "t"), .value = {"x", 1}};
        for (int i = 0; i < 5; i++) assert_int_equal(kc_producer_send(producer, &rec, 0), KC_OK);
        kc_error *e = NULL;
        int64_t start = now_us();
        assert_int_equal(kc_producer_close(producer, 300000, &e), KC_TIMED_OUT);
        assert_true(now_us() - start >= 290000);
        kc_error_free(e);
        kc_reports *reports;
        kc_report one;
        assert_int_equal(kc_producer_reports(producer, &reports, 0), KC_OK);
        assert_int_equal(kc_reports_count(reports), 5);
        while (kc_reports_next(reports, &one)) {
            assert_int_equal(one.err, KC_CLOSED);
            assert_int_equal(one.outcome, KC_NOT_PERSISTED);
        }
        kc_reports_free(reports);
        assert_int_equal(kc_client_close(client, 5000000, NULL), KC_OK);
        kc_producer_free(producer);
        kc_client_free(client);
    }
    close(frozen);
}

/* CX-10, as far as this library has such things: one thread reads statistics, one starts and stops timers (batches that linger and are flushed), while
 * connections break. Run under ThreadSanitizer too. */
static _Atomic bool enough;
static void *read_stats(void *arg) {
    struct rig *r = arg;
    kc_producer_stats st;
    while (!atomic_load(&enough))
        if (kc_producer_stats_get(r->producer, &st, sizeof st) != KC_OK) return r;
    return NULL;
}
static void *break_connections(void *arg) {
    struct rig *r = arg;
    for (int k = 0; k < 15 && !atomic_load(&enough); k++) { /* at most 3 connections each time: the broker takes 64 in all */
        for (int i = 0; i < atomic_load(&r->broker->count); i++) shutdown(r->broker->fds[i], SHUT_RDWR);
        usleep(20000);
    }
    return NULL;
}
static void test_CX_10_statistics_timers_and_failures_at_once(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "1", "reconnect.backoff.ms", "1", "reconnect.backoff.max.ms", "5", "retry.backoff.ms", "1",
                                        "retry.backoff.max.ms", "5", NULL};
    struct rig r = rig_new(pairs, 2);
    pthread_t threads[FIRST_SENDERS];
    atomic_store(&enough, false);
    assert_int_equal(pthread_create(&threads[0], NULL, read_stats, &r), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, break_connections, &r), 0);
    int sent = 0, told = 0;
    kc_reports *reports;
    for (int i = 0; i < 100; i++) {
        kc_record rec = {.topic = r.topic, .value = {"x", 1}};
        for (int k = 0; k < 10; k++) sent += kc_producer_send(r.producer, &rec, KC_FOREVER) == KC_OK;
        if (i % 3) (void)kc_producer_flush(r.producer, 2000, NULL);
        while (kc_producer_reports(r.producer, &reports, 0) == KC_OK) {
            told += (int)kc_reports_count(reports);
            kc_reports_free(reports);
        }
    }
    atomic_store(&enough, true);
    for (int i = 0; i < 2; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(kc_producer_close(r.producer, KC_FOREVER, NULL), KC_OK);
    while (kc_producer_reports(r.producer, &reports, 0) == KC_OK) {
        told += (int)kc_reports_count(reports);
        kc_reports_free(reports);
    }
    assert_int_equal(sent, 1000);
    assert_int_equal(told, 1000); /* one report each */
    rig_free(&r);
}

/* ---- Arrays ---- */

static void test_send_many(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "1000", NULL};
    struct rig r = rig_new(pairs, 1);
    struct { /* a later version's struct may be longer */
        kc_record rec;
        uint64_t more;
    } recs[1200];
    memset(recs, 0, sizeof recs);
    kc_header headers[200];
    for (size_t i = 0; i < 200; i++) headers[i] = (kc_header){.name = "name", .value = {"v", 1}};
    for (size_t i = 0; i < 1200; i++) {
        recs[i].rec = (kc_record){.topic = r.topic, .opaque = i, .value = {"value", 5}, .headers = headers, .header_count = i == 500 ? 200 : (uint32_t)(i % 3)};
        recs[i].more = UINT64_MAX;
    }
    kc_err err = KC_OK;
    assert_int_equal(kc_producer_send_many(r.producer, &recs[0].rec, sizeof recs[0], 1200, 0, &err), 1000);
    assert_int_equal(err, KC_QUEUE_FULL);
    assert_int_equal(kc_producer_flush(r.producer, 20000000, NULL), KC_OK);
    kc_reports *reports;
    assert_int_equal(kc_producer_reports(r.producer, &reports, 0), KC_OK);
    struct {
        kc_report report;
        uint64_t more;
    } out[1200];
    memset(out, 0xff, sizeof out);
    assert_int_equal(kc_reports_take(reports, &out[0].report, sizeof out[0], 1200), 1000);
    for (size_t i = 0; i < 1000; i++) {
        assert_int_equal(out[i].report.opaque, i);
        assert_int_equal(out[i].report.offset, i);
        assert_int_equal(out[i].more, UINT64_MAX);
    }
    kc_reports_free(reports);
    recs[3].rec.topic = 0; /* a bad one ends the prefix */
    assert_int_equal(kc_producer_send_many(r.producer, &recs[0].rec, sizeof recs[0], 10, 0, &err), 3);
    assert_int_equal(err, KC_INVALID);
    recs[0].rec.value = (kc_bytes){NULL, 5};
    assert_int_equal(kc_producer_send_many(r.producer, &recs[0].rec, sizeof recs[0], 10, 0, &err), 0);
    assert_int_equal(err, KC_INVALID);
    assert_int_equal(kc_producer_send_many(r.producer, &recs[1].rec, sizeof(kc_record) - 8, 2, 0, &err), 0); /* they would overlap */
    assert_int_equal(err, KC_INVALID);
    assert_int_equal(kc_producer_send_many(r.producer, NULL, 0, 0, 0, &err), 0);
    assert_int_equal(err, KC_OK);
    rig_free(&r);
}

static void test_send_flat(void **state) {
    (void)state;
    struct rig r = rig_new(NULL, 2);
    uint8_t arena[256];
    memset(arena, 7, sizeof arena);
    int32_t sizes[2] = {4, 3};
    memcpy(arena + 101, sizes, 8); /* unaligned */
    memcpy(arena + 109, "nameval", 7);
    kc_flat good = {.topic = r.topic, .key_size = -1, .value_at = 10, .value_size = 20, .headers_at = 101, .header_count = 1, .guid_at = 200, .opaque = 1};
    kc_err err;
    assert_int_equal(kc_producer_send_flat(r.producer, &good, 0, 1, arena, sizeof arena, 0, &err), 1);
    assert_int_equal(err, KC_OK);
    kc_flat bad[] = {good, good, good, good, good, good, good, good, good};
    bad[0].value_at = 240, bad[0].value_size = 17;       /* past the end by one */
    bad[1].key_at = UINT32_MAX, bad[1].key_size = INT32_MAX;
    bad[2].value_size = -2;
    bad[3].headers_at = 250;
    bad[4].header_count = UINT32_MAX;
    bad[5].guid_at = 242;                                /* 16 bytes from 241: one too many */
    bad[6].headers_at = 0, bad[6].header_count = 1;      /* sizes of 0x07070707 */
    bad[7].partition = -4, bad[7].flags = KC_HAS_PARTITION;
    bad[8].topic = -1;
    for (size_t i = 0; i < KW_COUNTOF(bad); i++) {
        assert_int_equal(kc_producer_send_flat(r.producer, &bad[i], sizeof bad[i], 1, arena, sizeof arena, 0, &err), 0);
        assert_int_equal(err, KC_INVALID);
    }
    bad[0].value_size = 16; /* up to the end is fine */
    bad[5].guid_at = 241;
    assert_int_equal(kc_producer_send_flat(r.producer, &bad[0], 0, 1, arena, sizeof arena, 0, &err), 1);
    assert_int_equal(kc_producer_send_flat(r.producer, &bad[5], 0, 1, arena, sizeof arena, 0, &err), 1);
    kc_flat none = {.topic = r.topic, .key_size = -1, .value_size = -1};
    assert_int_equal(kc_producer_send_flat(r.producer, &none, 0, 1, NULL, 0, 0, &err), 1);
    assert_int_equal(kc_producer_flush(r.producer, 20000000, NULL), KC_OK);
    assert_int_equal(atomic_load(&r.broker->records), 4);
    rig_free(&r);
}

/* ---- Ids ---- */

static void test_ids(void **state) {
    (void)state;
    struct rig r = rig_new(NULL, 1);
    uint8_t id[16], other[16];
    assert_int_equal(kc_guid_make(NULL), KC_INVALID);
    assert_int_equal(kc_guid_make(id), KC_OK);
    assert_int_equal(kc_guid_make(other), KC_OK);
    assert_memory_not_equal(id, other, 16);
    assert_int_equal(id[6] >> 4, 7);
    assert_int_equal(id[8] >> 6, 2);
    int64_t made_ms = (int64_t)(kw_load64(id) >> 16);
    assert_true(made_ms / 1000 <= time(NULL) && made_ms / 1000 > time(NULL) - 60);
    kc_header headers[2] = {{.name = "guid", .value = {id, 16}}, {.name = "guid", .value = {other, 16}}};
    kc_record rec = {.topic = r.topic, .value = {"x", 1}, .guid = id};
    assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK);
    rec.headers = headers;
    rec.header_count = 1;
    assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_BAD_GUID); /* two */
    rec.guid = NULL;
    assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK); /* the header is the id */
    kc_err err;
    kc_record many[3] = {rec, rec, rec};
    many[1].guid = other;
    assert_int_equal(kc_producer_send_many(r.producer, many, 0, 3, 0, &err), 1);
    assert_int_equal(err, KC_BAD_GUID);
    kc_error *e = NULL;
    assert_int_equal(kc_producer_send_wait(r.producer, &many[1], NULL, &e), KC_BAD_GUID);
    assert_non_null(strstr(kc_error_message(e), "16-byte id"));
    assert_int_equal(kc_error_outcome(e), KC_NOT_PERSISTED);
    kc_error_free(e);
    uint8_t arena[64] = {0};
    int32_t sizes[2] = {4, 3};
    memcpy(arena + 16, sizes, 8);
    memcpy(arena + 24, "guidabc", 7);
    kc_flat flat = {.topic = r.topic, .key_size = -1, .value_size = -1, .headers_at = 16, .header_count = 1, .guid_at = 1};
    assert_int_equal(kc_producer_send_flat(r.producer, &flat, 0, 1, arena, sizeof arena, 0, &err), 0);
    assert_int_equal(err, KC_BAD_GUID);
    assert_int_equal(kc_producer_flush(r.producer, 20000000, NULL), KC_OK);
    assert_int_equal(atomic_load(&r.broker->records), 3);
    rig_free(&r);
}

/* ---- Partitioner ---- */

static int calls;
static int32_t third(void *ctx, int32_t topic, const void *key, size_t key_size, int32_t has_key, int32_t count) {
    struct rig *r = ctx;
    (void)topic;
    calls++;
    kc_record rec = {.topic = r->topic, .value = {"x", 1}};
    assert_int_equal(kc_producer_send(r->producer, &rec, 0), KC_REENTRANT);
    assert_int_equal(count, 5);
    if (has_key && key_size == 3 && memcmp(key, "bad", 3) == 0) return 5;
    return has_key ? 3 : -1;
}
static void test_own_partitioner(void **state) {
    (void)state;
    struct rig r = rig_new(NULL, 5);
    calls = 0;
    assert_int_equal(kc_producer_partitioner_set(r.producer, third, &r), KC_OK);
    kc_report report;
    kc_record rec = {.topic = r.topic, .key = {"key", 3}, .value = {"x", 1}};
    assert_int_equal(kc_producer_send_wait(r.producer, &rec, &report, NULL), KC_OK);
    assert_int_equal(report.partition, 3);
    rec.key = (kc_bytes){NULL, 0};
    assert_int_equal(kc_producer_send_wait(r.producer, &rec, &report, NULL), KC_OK);
    assert_int_equal(calls, 2);
    rec.partition = 4; /* given: not asked */
    assert_int_equal(kc_producer_send_wait(r.producer, &rec, &report, NULL), KC_OK);
    assert_int_equal(report.partition, 4);
    assert_int_equal(calls, 2);
    rec.partition = 0;
    rec.key = (kc_bytes){"bad", 3};
    assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_INVALID);
    rig_free(&r);
}

/* ---- The application's own loop ---- */

static void test_without_a_thread(void **state) {
    (void)state;
    static const char *const pairs[] = {"client.thread", "none", "linger.ms", "2", NULL};
    struct rig r = rig_new(pairs, 2);
    kc_record rec = {.topic = r.topic, .value = {"x", 1}};
    for (int i = 0; i < 100; i++) assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK);
    int got = 0;
    struct pollfd p = {.fd = kc_client_fd(r.client), .events = POLLIN};
    for (int turn = 0; got < 100 && turn < 10000; turn++) {
        int64_t wait = kc_client_next_deadline_us(r.client);
        assert_true(poll(&p, 1, wait < 0 || wait > 1000000 ? 1000 : (int)(wait / 1000)) >= 0);
        assert_int_equal(kc_client_run_once(r.client, 0, 0), KC_OK);
        kc_ready ready[8];
        size_t n = kc_client_ready(r.client, ready, sizeof ready[0], 8);
        for (size_t i = 0; i < n; i++) {
            if (ready[i].kind != KC_READY_REPORTS) continue;
            kc_reports *reports;
            if (kc_producer_reports(r.producer, &reports, 0) != KC_OK) continue;
            got += (int)kc_reports_count(reports);
            kc_reports_free(reports);
        }
    }
    assert_int_equal(got, 100);
    kc_report report;
    assert_int_equal(kc_producer_send_wait(r.producer, &rec, &report, NULL), KC_OK); /* drives the loop itself */
    assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK);
    assert_int_equal(kc_producer_close(r.producer, 20000000, NULL), KC_OK);
    rig_free(&r);
}

/* ---- Operations and ends ---- */

static void test_operations(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "60000", NULL};
    struct rig r = rig_new(pairs, 1);
    kc_record rec = {.topic = r.topic, .value = {"x", 1}};
    kc_op *op;
    assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK);
    assert_int_equal(kc_producer_flush_start(r.producer, 42, &op, NULL), KC_OK);
    assert_int_equal(kc_op_opaque(op), 42);
    assert_int_equal(kc_op_wait(op, 20000000, NULL), KC_OK);
    kc_op_free(op);
    assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK);
    assert_int_equal(kc_producer_purge(r.producer, KC_PURGE_QUEUED), KC_OK);
    assert_int_equal(kc_producer_purge(r.producer, 8), KC_INVALID);
    kc_reports *reports;
    kc_report one;
    int ok = 0, cancelled = 0;
    while (kc_producer_reports(r.producer, &reports, ok + cancelled < 2 ? 20000000 : 0) == KC_OK) {
        while (kc_reports_next(reports, &one)) {
            ok += one.err == KC_OK;
            cancelled += one.err == KC_CANCELLED;
            assert_true((one.err == KC_OK) == (kc_reports_error(reports) == NULL));
        }
        kc_reports_free(reports);
    }
    assert_int_equal(ok, 1);
    assert_int_equal(cancelled, 1);
    assert_null(kc_producer_fatal(r.producer));
    uint8_t a[16], b[16];
    assert_int_equal(kc_producer_guid_make(r.producer, a), KC_OK);
    assert_int_equal(kc_producer_guid_make(r.producer, b), KC_OK);
    assert_true(memcmp(a, b, 16) < 0);
    assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK);
    assert_int_equal(kc_producer_close_start(r.producer, 20000000, 1, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, KC_FOREVER, NULL), KC_OK);
    kc_op_free(op);
    rig_free(&r);
}

static void test_two_closes_at_once(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "60000", NULL};
    struct rig r = rig_new(pairs, 1);
    kc_record rec = {.topic = r.topic, .value = {"x", 1}};
    for (int i = 0; i < 20; i++) {
        kc_op *op[2];
        assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK);
        assert_int_equal(kc_producer_close_start(r.producer, KC_FOREVER, 1, &op[0], NULL), KC_OK);
        kc_err second = kc_producer_close_start(r.producer, KC_FOREVER, 2, &op[1], NULL);
        assert_int_equal(kc_op_wait(op[0], KC_FOREVER, NULL), KC_OK);
        if (second == KC_OK) { /* else the first one was faster */
            second = kc_op_wait(op[1], KC_FOREVER, NULL);
            assert_true(second == KC_BUSY || second == KC_OK);
            kc_op_free(op[1]);
        } else {
            assert_int_equal(second, KC_CLOSED);
        }
        kc_op_free(op[0]);
        kc_producer_free(r.producer);
        assert_int_equal(kc_producer_new(r.client, NULL, &r.producer, NULL), KC_OK);
    }
    rig_free(&r);
}

static void test_free_in_any_order(void **state) {
    (void)state;
    static const char *const pairs[] = {"linger.ms", "1", NULL};
    for (int order = 0; order < 4; order++) {
        struct rig r = rig_new(pairs, 1);
        kc_record rec = {.topic = r.topic, .value = {"x", 1}};
        for (int i = 0; i < 100; i++) assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK);
        kc_reports *reports;
        assert_int_equal(kc_producer_reports(r.producer, &reports, 20000000), KC_OK);
        kc_op *op;
        assert_int_equal(kc_producer_flush_start(r.producer, 0, &op, NULL), KC_OK);
        if (order & 1) kc_client_free(r.client);
        kc_producer_free(r.producer);
        if (order & 2) kc_op_free(op);
        kc_report one;
        while (kc_reports_next(reports, &one)) assert_int_equal(one.err, KC_OK);
        kc_reports_free(reports);
        if (!(order & 2)) kc_op_free(op);
        if (!(order & 1)) kc_client_free(r.client);
        mini_stop(r.broker);
    }
    kc_producer_free(NULL);
    kc_reports_free(NULL);
}

static int inherited[256]; /* what the child has from the test's broker */
static bool is_clients(int fd) { return !inherited[fd] && fcntl(fd, F_GETFD) >= 0; }

static void test_CX_05_fork(void **state) {
    (void)state;
    struct rig r = rig_new(NULL, 1);
    kc_record rec = {.topic = r.topic, .value = {"x", 1}};
    kc_report report;
    assert_int_equal(kc_producer_send_wait(r.producer, &rec, &report, NULL), KC_OK);
    assert_int_equal(kc_producer_send(r.producer, &rec, 0), KC_OK);
    kc_reports *taken;
    kc_op *op;
    assert_int_equal(kc_producer_reports(r.producer, &taken, 20000000), KC_OK);
    assert_int_equal(kc_producer_flush_start(r.producer, 0, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, 20000000, NULL), KC_OK);
    for (int fd = 0; fd < 256; fd++) inherited[fd] = 1;
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in a;
        socklen_t n = sizeof a;
        char path[64], to[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        (void)!readlink(path, to, sizeof to - 1);
        bool socket = getpeername(fd, (struct sockaddr *)&a, &n) == 0 && ntohs(a.sin_port) == r.broker->port;
        if (socket || strstr(to, "eventpoll") || strstr(to, "eventfd")) inherited[fd] = 0;
    }
    pid_t child = fork();
    if (child == 0) {
        kc_reports *reports;
        bool good = kc_producer_send(r.producer, &rec, KC_FOREVER) == KC_FORKED;
        good &= kc_producer_send_wait(r.producer, &rec, &report, NULL) == KC_FORKED;
        good &= kc_producer_reports(r.producer, &reports, KC_FOREVER) == KC_FORKED;
        good &= kc_producer_flush(r.producer, KC_FOREVER, NULL) == KC_FORKED;
        good &= kc_producer_close(r.producer, KC_FOREVER, NULL) == KC_FORKED;
        int before = 0, after = 0; /* descriptors of sockets and of the loop */
        for (int fd = 3; fd < 256; fd++) before += is_clients(fd);
        kc_producer_free(r.producer);
        kc_client_free(r.client);
        kc_op_free(op);
        kc_reports_free(taken); /* in any order */
        for (int fd = 3; fd < 256; fd++) after += is_clients(fd);
        _exit(good && after == 0 && before > 2 ? 0 : 1);
    }
    kc_reports_free(taken);
    kc_op_free(op);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(kc_producer_send_wait(r.producer, &rec, &report, NULL), KC_OK); /* the parent has not noticed */
    assert_int_equal(kc_producer_close(r.producer, 20000000, NULL), KC_OK);
    rig_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_concurrent_senders),
        cmocka_unit_test(test_first_records_of_a_topic),
        cmocka_unit_test(test_concurrent_sync_senders),
        cmocka_unit_test(test_sending_and_polling_in_turn),
        cmocka_unit_test(test_c2_enqueue_timeouts),
        cmocka_unit_test(test_close_lets_waiting_senders_go),
        cmocka_unit_test(test_client_close_lets_everybody_go),
        cmocka_unit_test(test_CC_12_close_with_frozen_brokers),
        cmocka_unit_test(test_CX_10_statistics_timers_and_failures_at_once),
        cmocka_unit_test(test_send_many),
        cmocka_unit_test(test_send_flat),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_own_partitioner),
        cmocka_unit_test(test_without_a_thread),
        cmocka_unit_test(test_operations),
        cmocka_unit_test(test_two_closes_at_once),
        cmocka_unit_test(test_free_in_any_order),
        cmocka_unit_test(test_CX_05_fork),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
