/* The client handle on real sockets and threads: operations, waiting, readiness, the application's own loop, ends in any order. Run under
 * ThreadSanitizer too. */
#include "server.h"

#include "handle.h"

#include <dirent.h>
#include <malloc.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static struct server *srv;

static kc_config *config_with(uint16_t port, const char *const *pairs) {
    kc_config *c = kc_config_new();
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    assert_int_equal(kc_config_set(c, "bootstrap.servers", address, NULL), KC_OK);
    for (; pairs && pairs[0]; pairs += 2) assert_int_equal(kc_config_set(c, pairs[0], pairs[1], NULL), KC_OK);
    return c;
}

static kc_client *client_at(uint16_t port, const char *const *pairs) {
    kc_config *f = config_with(port, pairs);
    kc_client *c = NULL;
    kc_error *e = NULL;
    if (kc_client_new(f, &c, &e) != KC_OK) fail_msg("%s", kc_error_message(e));
    kc_config_free(f);
    return c;
}
static kc_client *client_new(void) {
    return client_at(srv->port, NULL);
}
static const char *const no_thread[] = {"client.thread", "none", NULL};

/* ---- An operation that asks for metadata: the smallest that goes over the wire ---- */

struct ask {
    struct kc_op op;
    struct kc_request rq;
    bool outstanding;
};

static kw_err ask_encode(struct kc_request *rq, struct kw_out *out) {
    struct kw_metadata_request m;
    kw_msg_init(&kw_metadata_request_desc, &m);
    return kw_encode(&kw_metadata_request_desc, rq->version, &m, out);
}
static void ask_done(struct kc_request *rq, kc_err err, struct kw_in *body, struct kw_blk *blk) {
    struct ask *a = KW_CONTAINER_OF(rq, struct ask, rq);
    (void)body;
    (void)blk;
    kc_error *e = NULL;
    if (err != KC_OK) kc_error_make(&e, err, KC_MAYBE_PERSISTED, rq->attempts, "asking failed: %s", kc_err_text(err));
    kc_attempts_unref(rq->attempts);
    a->outstanding = false;
    kc_op_complete(&a->op, err, e);
}
static void ask_start(struct kc_op *op) {
    struct ask *a = KW_CONTAINER_OF(op, struct ask, op);
    kc_request_init(&a->rq, KW_API_METADATA);
    a->rq.encode = ask_encode;
    a->rq.done = ask_done;
    a->rq.attempts = kc_attempts_new();
    a->outstanding = true;
    kc_core_send(op->client->core, &a->rq);
}
static void ask_cancel(struct kc_op *op) {
    struct ask *a = KW_CONTAINER_OF(op, struct ask, op);
    if (a->outstanding)
        kc_core_cancel(op->client->core, &a->rq);
    else
        kc_op_complete(op, KC_CANCELLED, NULL);
}
static struct kc_op *ask_new(kc_client *c, uint64_t opaque) {
    struct kc_op *op = NULL;
    assert_int_equal(kc_op_new(c, sizeof(struct ask), opaque, ask_start, ask_cancel, NULL, &op, NULL), KC_OK);
    return op;
}
static kc_err ask_once(kc_client *c) {
    struct kc_op *op = ask_new(c, 0);
    kc_err err = kc_op_run(op, 10000000, NULL);
    kc_op_free(op);
    return err;
}

static size_t count_dir(const char *path) {
    DIR *d = opendir(path);
    size_t n = 0;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}
static size_t fds_open(void) {
    return count_dir("/proc/self/fd");
}

static void wait_for_at_most(const char *path, size_t n) {
    for (int i = 0; i < 5000 && count_dir(path) > n; i++) usleep(1000);
    assert_true(count_dir(path) <= n);
}
static void wait_for_threads(size_t at_most) {
    wait_for_at_most("/proc/self/task", at_most);
}

/* ---- ---- */

/* A broker must not know how its names are hashed: the first client of a process draws the key of all its maps. Comes before the other tests. */
static void test_the_first_client_seeds_the_maps(void **state) {
    (void)state;
    struct kw_map before, after, later;
    kw_map_init(&before);
    kc_client *c = client_new();
    kw_map_init(&after);
    assert_memory_not_equal(before.key, after.key, sizeof before.key);
    kc_client_free(c);
    kc_client_free(client_new());
    kw_map_init(&later);
    assert_memory_equal(after.key, later.key, sizeof after.key);
}

static void test_asks_over_the_wire_in_both_modes(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        kc_client *c = client_at(srv->port, i ? no_thread : NULL);
        for (int k = 0; k < 100; k++) assert_int_equal(ask_once(c), KC_OK);
        kc_error *e = NULL;
        assert_int_equal(kc_client_close(c, 1000000, &e), KC_OK);
        assert_int_equal(ask_once(c), KC_CLOSED); /* ends at once, and says why */
        assert_int_equal(kc_client_close(c, 1000000, NULL), KC_CLOSED);
        kc_client_free(c);
    }
}

static void test_names_are_resolved(void **state) {
    (void)state;
    kc_config *f = config_with(srv->port, NULL);
    char list[100];
    snprintf(list, sizeof list, "no.such.host.invalid:1,localhost:%u", srv->port);
    assert_int_equal(kc_config_set(f, "bootstrap.servers", list, NULL), KC_OK);
    kc_client *c = NULL;
    assert_int_equal(kc_client_new(f, &c, NULL), KC_OK);
    kc_config_free(f);
    assert_int_equal(ask_once(c), KC_OK);
    kc_client_free(c);
}

/* Repeated waits run in the caller: the client's own thread sleeps through them. */
static long switches_of(pid_t tid) {
    char path[64], line[128];
    long n = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1) break;
    }
    if (f) fclose(f);
    return n;
}
/* Thread ids of this process; the new client's own thread is the one that was not there before. (Numbers wrap: the highest need not be the
 * newest.) */
enum { TIDS = 64 };
static size_t threads_now(pid_t *tids) {
    DIR *d = opendir("/proc/self/task");
    struct dirent *e;
    size_t n = 0;
    while ((e = readdir(d)) && n < TIDS) {
        if (e->d_name[0] != '.') tids[n++] = atoi(e->d_name);
    }
    closedir(d);
    return n;
}
static kc_client *client_and_thread(pid_t *io) {
    pid_t before[TIDS], after[TIDS];
    size_t n = threads_now(before);
    kc_client *c = client_new();
    size_t m = threads_now(after);
    *io = 0;
    for (size_t i = 0; i < m; i++) {
        bool old = false;
        for (size_t k = 0; k < n; k++) old |= before[k] == after[i];
        if (!old) *io = after[i];
    }
    assert_true(*io > 0);
    return c;
}
static int64_t mono_ms(void) {
    return kc_clock_now().mono_us / 1000;
}

static void test_a_waiting_caller_drives_the_loop(void **state) {
    (void)state;
    pid_t io;
    kc_client *c = client_and_thread(&io);
    assert_int_equal(ask_once(c), KC_OK);
    long before = switches_of(io);
    enum { CALLS = 3000 };
    for (int i = 0; i < CALLS; i++) assert_int_equal(ask_once(c), KC_OK);
    long woken = switches_of(io) - before;
    if (woken >= CALLS) fail_msg("%ld wake-ups of the client's own thread in %d calls: it was woken by the call", woken, CALLS);
    kc_client_free(c);
}

/* ---- Many waiters ---- */

static void *ask_often(void *arg) {
    for (int i = 0; i < 200; i++) {
        struct kc_op *op = ask_new(arg, 0);
        if (i % 3 == 0) {
            kc_op_start(op);
            while (kc_op_wait(op, 1000, NULL) == KC_TIMED_OUT) {
            }
        }
        if (i % 3 == 0)
            assert_int_equal(kc_op_done(op), 1);
        else
            assert_int_equal(kc_op_run(op, KC_FOREVER, NULL), KC_OK);
        kc_op_free(op);
    }
    return NULL;
}

static void test_many_threads_wait_at_once(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        kc_client *c = client_at(srv->port, mode ? no_thread : NULL);
        pthread_t t[8];
        for (int i = 0; i < 8; i++) assert_int_equal(pthread_create(&t[i], NULL, ask_often, c), 0);
        for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
        kc_client_free(c);
    }
}

/* ---- Ends in any order ---- */

static void test_ends_in_any_order(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        for (int order = 0; order < 6; order++) {
            atomic_store(&srv->mode, order & 1 ? SERVER_SILENT : SERVER_ANSWERS);
            kc_client *c = client_at(srv->port, mode ? no_thread : NULL);
            struct kc_op *op = ask_new(c, 5);
            kc_op_start(op);
            if (order >= 4) (void)kc_op_wait(op, 20000, NULL);
            if (order >= 2) {
                kc_client_free(c); /* the operation holds it */
                assert_int_equal(kc_op_opaque(op), 5);
                if (order & 1) {
                    kc_op_cancel(op);
                    assert_int_equal(kc_op_wait(op, 10000000, NULL), KC_CANCELLED);
                } else {
                    assert_int_equal(kc_op_wait(op, 10000000, NULL), KC_OK);
                }
                kc_op_free(op);
            } else {
                kc_op_free(op); /* goes on by itself */
                kc_client_close(c, 1000000, NULL);
                kc_client_free(c);
            }
        }
    }
    atomic_store(&srv->mode, SERVER_ANSWERS);
    kc_client_free(NULL);
    kc_op_free(NULL);
    kc_op_cancel(NULL);
}

static void test_close_fails_what_is_under_way(void **state) {
    (void)state;
    atomic_store(&srv->mode, SERVER_SILENT);
    kc_client *c = client_new();
    struct kc_op *op = ask_new(c, 0);
    kc_op_start(op);
    assert_int_equal(kc_op_wait(op, 50000, NULL), KC_TIMED_OUT);
    assert_int_equal(kc_client_close(c, 5000000, NULL), KC_OK);
    kc_error *e = NULL;
    assert_int_equal(kc_op_wait(op, 5000000, &e), KC_CLOSED);
    assert_int_equal(kc_error_code(e), KC_CLOSED);
    kc_error_free(e);
    kc_op_free(op);
    kc_client_free(c);
    atomic_store(&srv->mode, SERVER_ANSWERS);
}

/* ---- Readiness and the application's own loop ---- */

static bool is_readable(int fd, int timeout_ms) {
    struct pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, timeout_ms) == 1;
}

static void test_readiness_with_a_thread(void **state) {
    (void)state;
    kc_client *c = client_new();
    kc_ready r[8];
    assert_false(is_readable(kc_client_fd(c), 0));
    struct kc_op *a = ask_new(c, 11), *b = ask_new(c, 12);
    kc_op_start(a);
    kc_op_start(b);
    size_t n = 0;
    uint64_t seen = 0;
    while (n < 2) {
        assert_true(is_readable(kc_client_fd(c), 10000));
        size_t k = kc_client_ready(c, r, sizeof r[0], 1);
        if (k && r[0].kind == KC_READY_OP) {
            n++;
            seen += r[0].opaque;
        }
    }
    assert_int_equal(seen, 23);
    assert_int_equal(kc_client_ready(c, r, sizeof r[0], 8), 0);
    assert_false(is_readable(kc_client_fd(c), 0));
    kc_op_free(a);
    kc_op_free(b);
    kc_client_free(c);
}

static void test_log_lines_are_pulled(void **state) {
    (void)state;
    const char *pairs[] = {"log_level", "7", "statistics.interval.ms", "1", NULL};
    kc_client *c = client_at(srv->port, pairs);
    assert_int_equal(ask_once(c), KC_OK);
    assert_true(is_readable(kc_client_fd(c), 1000));
    kc_ready r;
    assert_int_equal(kc_client_ready(c, &r, sizeof r, 1), 1);
    assert_int_equal(r.kind, KC_READY_LOG);
    int32_t level;
    int64_t at;
    char text[200];
    assert_int_equal(kc_client_log(c, &level, &at, text, sizeof text), 1);
    assert_int_equal(level, 4);
    assert_non_null(strstr(text, "statistics.interval.ms has no effect"));
    int lines = 0;
    while (kc_client_log(c, &level, &at, text, 20)) {
        assert_true(strlen(text) < 20);
        lines++;
    }
    assert_true(lines >= 1);
    assert_false(is_readable(kc_client_fd(c), 0));
    for (int i = 0; i < 2 * KC_LOG_LINES_MAX; i++) kc_client_logf(c, 6, "line %d", i);
    assert_int_equal(kc_client_log(c, &level, &at, text, sizeof text), 1);
    assert_non_null(strstr(text, "256 log lines were lost"));
    assert_int_equal(kc_client_log(c, &level, &at, text, sizeof text), 1);
    assert_string_equal(text, "line 256");
    kc_client_free(c);
}

/* As an application's loop does it: wait on the descriptor until the next deadline, run once, drain. */
static void test_own_loop(void **state) {
    (void)state;
    kc_client *c = client_at(srv->port, no_thread);
    int done = 0;
    for (int i = 0; i < 50; i++) {
        struct kc_op *op = ask_new(c, 0);
        kc_op_start(op);
        int turns = 0;
        while (!kc_op_done(op)) {
            int64_t next = kc_client_next_deadline_us(c);
            assert_true(is_readable(kc_client_fd(c), next < 0 ? 10000 : (int)(next / 1000) + 1) || next >= 0);
            assert_int_equal(kc_client_run_once(c, 0, 0), KC_OK);
            assert_true(++turns < 100);
        }
        kc_ready r[4];
        done += (int)kc_client_ready(c, r, sizeof r[0], 4);
        kc_op_free(op);
    }
    assert_int_equal(done, 50);
    /* At rest it asks for nothing: no readable descriptor, no near deadline. */
    for (int i = 0; i < 10; i++) assert_int_equal(kc_client_run_once(c, 0, 0), KC_OK);
    assert_false(is_readable(kc_client_fd(c), 50));
    assert_true(kc_client_next_deadline_us(c) > 10000000);
    /* A bounded wait ends by itself, by a wake, and at once where there is work. */
    int64_t start = mono_ms();
    assert_int_equal(kc_client_run_once(c, 30000, 0), KC_OK);
    assert_true(mono_ms() - start >= 25);
    kc_client_wake(c);
    assert_true(is_readable(kc_client_fd(c), 0));
    assert_int_equal(kc_client_run_once(c, KC_FOREVER, 0), KC_OK);
    kc_client_free(c);
    c = client_new();
    assert_int_equal(kc_client_run_once(c, 0, 0), KC_INVALID);
    kc_client_free(c);
}

/* CX-08: 0 never blocks, -1 waits, big values wait. */
static void *answer_later(void *arg) {
    (void)arg;
    usleep(50000);
    atomic_store(&srv->mode, SERVER_ANSWERS);
    atomic_store(&srv->drop, true); /* the client comes back and asks again */
    return NULL;
}
static void test_CX_08_timeouts(void **state) {
    (void)state;
    int64_t big[] = {KC_FOREVER, INT64_MAX, INT64_C(36) * 3600 * 1000000 * 10, (int64_t)INT32_MAX * 1000};
    kc_client *c = client_new();
    for (size_t i = 0; i < KW_COUNTOF(big); i++) {
        atomic_store(&srv->mode, SERVER_SILENT);
        struct kc_op *op = ask_new(c, 0);
        kc_op_start(op);
        for (int k = 0; k < 100; k++) assert_int_equal(kc_op_wait(op, 0, NULL), KC_TIMED_OUT);
        assert_int_equal(kc_op_wait(op, -5, NULL), KC_TIMED_OUT);
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, answer_later, NULL), 0);
        kc_err err = kc_op_wait(op, big[i], NULL);
        assert_true(err == KC_TRANSPORT || err == KC_OK); /* the answer, or the end of the connection: not the time */
        pthread_join(t, NULL);
        kc_op_free(op);
    }
    kc_client_free(c);
}

/* CX-03, the shell's part: deadlines are told by the monotonic clock; the wall clock is read for attempts and records alone. */
static void test_CX_03_deadlines_are_monotonic(void **state) {
    (void)state;
    int64_t a = kc_clock_now().mono_us, b = kc_deadline_after(1000000);
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    int64_t now = (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
    assert_in_range(b - a, 1000000, 1000000 + (now - a) + 1000);
    assert_int_equal(kc_deadline_after(KC_FOREVER), KW_NEVER);
    assert_int_equal(kc_deadline_after(INT64_MAX), KW_NEVER);
}

/* CX-04: resets while writing, with SIGPIPE at its default: the process survives. */
static void test_CX_04_peer_resets(void **state) {
    (void)state;
    struct sigaction old, dfl = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &dfl, &old);
    kc_client *c = client_new();
    for (int i = 0; i < 20; i++) {
        atomic_store(&srv->mode, SERVER_ANSWERS);
        (void)ask_once(c);
        atomic_store(&srv->mode, SERVER_RESETS);
        struct kc_op *op = ask_new(c, 0);
        kc_error *e = NULL;
        kc_op_start(op);
        kc_err err = kc_op_wait(op, 200000, &e);
        assert_true(err == KC_TRANSPORT || err == KC_TIMED_OUT);
        kc_error_free(e);
        kc_op_cancel(op);
        kc_op_free(op);
    }
    atomic_store(&srv->mode, SERVER_ANSWERS);
    for (int i = 0; i < 100 && ask_once(c) != KC_OK; i++) usleep(10000);
    assert_int_equal(ask_once(c), KC_OK);
    kc_client_free(c);
    sigaction(SIGPIPE, &old, NULL);
}

/* CX-05: in a forked child calls fail fast and frees free; the parent goes on. */
static int in_child(kc_client *c, struct kc_op *op, int mode) {
    kc_error *e = NULL;
    kc_ready r;
    int32_t level;
    int64_t at;
    char text[20];
    alarm(20);
    if (kc_client_enter(c) != KC_FORKED) return 10;
    if (kc_op_wait(op, KC_FOREVER, &e) != KC_FORKED) return 11;
    if (kc_client_close(c, KC_FOREVER, &e) != KC_FORKED) return 12;
    if (kc_error_code(e) != KC_FORKED) return 13;
    kc_error_free(e);
    if (kc_client_ready(c, &r, sizeof r, 1) != 0) return 14;
    if (kc_client_log(c, &level, &at, text, sizeof text) != 0) return 15;
    if (kc_client_topic(c, "t") != 0) return 16;
    if (mode && kc_client_run_once(c, KC_FOREVER, 0) != KC_FORKED) return 17;
    kc_op_cancel(op);
    kc_client_wake(c);
    size_t before = fds_open();
    kc_client_free(c);
    kc_op_free(op);
    if (fds_open() + 4 > before) return 18; /* epoll, events, socket: closed */
#if !defined(__SANITIZE_THREAD__)           /* which does not follow threads made after a fork */
    c = client_at(srv->port, NULL);         /* a client of its own works */
    if (ask_once(c) != KC_OK) return 19;
    kc_client_free(c);
#endif
    return 0;
}

static void test_CX_05_fork(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        for (int i = 0; i < 5; i++) {
            kc_client *c = client_at(srv->port, mode ? no_thread : NULL);
            assert_int_equal(ask_once(c), KC_OK);
            struct kc_op *op = ask_new(c, 0);
            kc_op_start(op);
            if (i & 1) assert_int_equal(kc_op_wait(op, 10000000, NULL), KC_OK);
            fflush(NULL);
            pid_t pid = fork();
            if (pid == 0) _exit(in_child(c, op, mode));
            int status = 0;
            assert_int_equal(waitpid(pid, &status, 0), pid);
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("the child ended with %x", (unsigned)status);
            assert_int_equal(kc_op_wait(op, 10000000, NULL), KC_OK);
            for (int k = 0; k < 10; k++) assert_int_equal(ask_once(c), KC_OK);
            kc_op_free(op);
            kc_client_free(c);
        }
    }
}

/* CX-07: nobody can be reached: it does not spin, and the log says so. The core's own pace is in test_conn; this is the loop's. */
static double cpu_seconds(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}
static void test_CX_07_all_down_does_not_spin(void **state) {
    (void)state;
    struct server *dead = server_new();
    uint16_t port = dead->port;
    server_free(dead);
    kc_client *c = client_at(port, NULL);
    struct kc_op *op = ask_new(c, 0);
    kc_op_start(op);
    assert_int_equal(kc_op_wait(op, 1000000, NULL), KC_TIMED_OUT);
    double before = cpu_seconds();
    assert_int_equal(kc_op_wait(op, 4000000, NULL), KC_TIMED_OUT); /* waiting in the caller … */
    usleep(2000000);                                               /* … and in the thread */
    assert_true(cpu_seconds() - before < 1); /* of 6 s: it does not spin, nor try without pause; what it costs tests/bench says */
    int32_t level = 0;
    int64_t at;
    char text[300];
    bool said = false;
    while (kc_client_log(c, &level, &at, text, sizeof text)) said |= level == 3 && strstr(text, "ALL_BROKERS_DOWN");
    assert_true(said);
    kc_op_cancel(op);
    kc_error *e = NULL;
    assert_int_equal(kc_op_wait(op, 5000000, &e), KC_CANCELLED);
    assert_true(kc_error_attempt_count(e) >= 4);
    kc_attempt a;
    assert_int_equal(kc_error_attempt(e, 0, &a), KC_OK);
    assert_non_null(strstr(a.detail, "connection refused"));
    assert_string_equal(a.phase, "connect");
    kc_error_free(e);
    kc_op_free(op);
    kc_client_free(c);
}

/* CX-14: the connection is killed from outside: its descriptor goes, no thread was ever its own. */
static void test_CX_14_killed_connection_leaves_nothing(void **state) {
    (void)state;
    kc_client *c = client_new();
    assert_int_equal(ask_once(c), KC_OK);
    size_t fds = fds_open(), threads = count_dir("/proc/self/task");
    for (int i = 0; i < 20; i++) {
        atomic_store(&srv->drop, true);
        for (int k = 0; k < 2000 && atomic_load(&srv->drop); k++) usleep(1000);
        for (int k = 0; k < 200 && ask_once(c) != KC_OK; k++) usleep(5000);
    }
    wait_for_at_most("/proc/self/fd", fds + 2);
    wait_for_threads(threads);
    kc_client_free(c);
}

/* CX-17 on a real socket: half an answer, then nothing. */
static void test_CX_17_half_an_answer(void **state) {
    (void)state;
    const char *pairs[] = {"request.timeout.ms", "100", "log_level", "7", NULL};
    atomic_store(&srv->mode, SERVER_HALF_ANSWERS);
    kc_client *c = client_at(srv->port, pairs);
    struct kc_op *op = ask_new(c, 0);
    kc_op_start(op);
    assert_int_equal(kc_op_wait(op, 400000, NULL), KC_TIMED_OUT);
    atomic_store(&srv->mode, SERVER_ANSWERS);
    assert_int_equal(kc_op_wait(op, 20000000, NULL), KC_OK);
    kc_op_free(op);
    kc_client_free(c);
}

static int64_t heap_used(void) {
    return (int64_t)mallinfo2().uordblks;
}

/* CX-15: what a failed constructor was given stays the caller's. */
static void test_CX_15_failed_constructor(void **state) {
    (void)state;
    kc_config *f = kc_config_new();
    kc_client *c = (kc_client *)(uintptr_t)1;
    kc_error *e = NULL;
    assert_int_equal(kc_client_new(f, &c, &e), KC_CONFIG); /* no bootstrap.servers */
    assert_ptr_equal(c, (kc_client *)(uintptr_t)1);
    assert_non_null(strstr(kc_error_message(e), "bootstrap.servers"));
    kc_error_free(e);
    e = NULL;
    assert_int_equal(kc_config_set(f, "bootstrap.servers", "127.0.0.1:1", NULL), KC_OK);
    assert_int_equal(kc_config_set(f, "acks", "1", NULL), KC_OK);
    assert_int_equal(kc_config_set(f, "enable.idempotence", "true", NULL), KC_OK);
    assert_int_equal(kc_client_new(f, &c, &e), KC_CONFIG);
    kc_error_free(e);
    assert_int_equal(kc_config_set(f, "acks", "all", NULL), KC_OK); /* still the caller's to use */
    for (int64_t at = 0; at < 200; at++) {                          /* memory runs out at every place in turn */
        e = NULL;
        c = NULL;
        kw_alloc_fail_after(at);
        kc_err err = kc_client_new(f, &c, &e);
        kw_alloc_fail_after(-1);
        if (err == KC_OK) {
            kc_client_free(c);
            break;
        }
        assert_int_equal(err, KC_NO_MEMORY);
        assert_null(c);
        kc_error_free(e);
        assert_true(at < 199);
    }
    kc_config_free(f);
}

/* CX-06: the thread cannot be had, 1000 times. */
static _Atomic bool no_threads;
extern int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg) {
    return atomic_load(&no_threads) ? EAGAIN : __real_pthread_create(t, a, f, arg);
}
static void test_CX_06_no_thread_to_be_had(void **state) {
    (void)state;
    kc_config *f = config_with(srv->port, NULL);
    kc_client *c = NULL;
    size_t fds = 0;
    int64_t heap = 0;
    atomic_store(&no_threads, true);
    for (int i = 0; i < 1000; i++) {
        kc_error *e = NULL;
        assert_int_equal(kc_client_new(f, &c, &e), KC_TRANSPORT);
        assert_non_null(strstr(kc_error_message(e), "thread"));
        kc_error_free(e);
        if (i == 10) {
            fds = fds_open();
            heap = heap_used();
        }
    }
    assert_true(fds_open() <= fds); /* the server may have closed one of its own */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(heap_used() <= heap + 4096);
#endif
    (void)heap;
    atomic_store(&no_threads, false);
    assert_int_equal(kc_client_new(f, &c, NULL), KC_OK); /* the limit is lifted */
    assert_int_equal(ask_once(c), KC_OK);
    /* Nor for a name lookup: said as a failure of that address, tried again later. */
    kc_client_free(c);
    char list[40];
    snprintf(list, sizeof list, "localhost:%u", srv->port);
    assert_int_equal(kc_config_set(f, "bootstrap.servers", list, NULL), KC_OK);
    assert_int_equal(kc_client_new(f, &c, NULL), KC_OK);
    atomic_store(&no_threads, true);
    struct kc_op *op = ask_new(c, 0);
    kc_op_start(op);
    assert_int_equal(kc_op_wait(op, 100000, NULL), KC_TIMED_OUT);
    atomic_store(&no_threads, false);
    assert_int_equal(kc_op_wait(op, 10000000, NULL), KC_OK);
    kc_op_free(op);
    kc_client_free(c);
    kc_config_free(f);
}

/* A name server that hangs, and lookups that give up and are made again all the time: those that no thread ever took are gone with their connections. */
static _Atomic bool names_hang;
extern int __real_getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **list) {
    while (!(hints->ai_flags & AI_NUMERICHOST) && atomic_load(&names_hang)) usleep(1000);
    return __real_getaddrinfo(host, port, hints, list);
}
static void test_lookups_that_gave_up_do_not_pile_up(void **state) {
    (void)state;
    char list[400] = "";
    for (int i = 0; i < 16; i++) snprintf(list + strlen(list), sizeof list - strlen(list), "localhost:%u,", srv->port);
    const char *pairs[] = {"bootstrap.servers",    list, "socket.connection.setup.timeout.ms", "2",
                           "reconnect.backoff.ms", "1",  "reconnect.backoff.max.ms",           "1", NULL};
    atomic_store(&names_hang, true);
    kc_client *c = client_at(srv->port, pairs);
    struct kc_op *op = ask_new(c, 0);
    kc_op_start(op);
    assert_int_equal(kc_op_wait(op, 100000, NULL), KC_TIMED_OUT);
    int64_t heap = heap_used();
    assert_int_equal(kc_op_wait(op, 500000, NULL), KC_TIMED_OUT); /* hundreds of attempts, of 2 kB each */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(heap_used() <= heap + 100000);
#endif
    (void)heap;
    atomic_store(&names_hang, false);
    assert_true(kc_op_wait(op, 20000000, NULL) != KC_TIMED_OUT);
    kc_op_free(op);
    kc_client_free(c);
}

/* Threads of ours take no signals; descriptors of ours do not survive exec. */
static void test_signals_and_descriptors_stay_the_applications(void **state) {
    (void)state;
    pid_t io;
    kc_client *c = client_and_thread(&io);
    assert_int_equal(ask_once(c), KC_OK);
    char path[64], line[128];
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", io);
    FILE *f = fopen(path, "re");
    while (fgets(line, sizeof line, f)) (void)!sscanf(line, "SigBlk: %llx", &blocked);
    fclose(f);
    int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM, SIGPIPE};
    for (size_t i = 0; i < KW_COUNTOF(signals); i++) assert_true(blocked >> (signals[i] - 1) & 1);
    for (int fd = 3; fd < 256; fd++) {
        int flags = fcntl(fd, F_GETFD);
        char link[64], to[128] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (flags < 0) continue;
        (void)!readlink(link, to, sizeof to - 1);
        bool ours = strstr(to, "eventpoll") || strstr(to, "eventfd") || strstr(to, "socket");
        if (ours) assert_true(flags & FD_CLOEXEC);
    }
    kc_client_free(c);
}

static _Atomic int32_t first_number;
static void *intern_all(void *arg) {
    char name[32];
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "t%d", i);
        int32_t t = kc_client_topic(arg, name);
        assert_true(t > 0);
        assert_string_equal(kc_client_topic_name(arg, t), name);
        if (i == 0) atomic_store(&first_number, t);
    }
    return NULL;
}
static void test_topics_from_many_threads(void **state) {
    (void)state;
    kc_client *c = client_new();
    pthread_t t[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, intern_all, c), 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    assert_int_equal(kc_client_topic(c, "one more"), 0);
    assert_int_equal(kc_client_topic(c, "one-more"), 501);
    assert_null(kc_client_topic_name(c, 502));
    assert_null(kc_client_topic_name(c, 0));
    kc_client_free(c);
}

static void test_no_calls_from_callbacks(void **state) {
    (void)state;
    kc_client *c = client_new();
    kc_callback_enter();
    assert_int_equal(kc_client_close(c, 0, NULL), KC_REENTRANT);
    kc_callback_leave();
    assert_int_equal(kc_client_close(c, 1000000, NULL), KC_OK);
    kc_client_free(c);
}

static size_t threads_before;
static int setup(void **state) {
    (void)state;
    srv = server_new();
    threads_before = count_dir("/proc/self/task") - 1; /* without the server's */
    return 0;
}
static int teardown(void **state) {
    (void)state;
    server_free(srv);
    wait_for_threads(threads_before); /* every thread of ours has ended */
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_client_seeds_the_maps),
        cmocka_unit_test(test_asks_over_the_wire_in_both_modes),
        cmocka_unit_test(test_names_are_resolved),
        cmocka_unit_test(test_a_waiting_caller_drives_the_loop),
        cmocka_unit_test(test_many_threads_wait_at_once),
        cmocka_unit_test(test_ends_in_any_order),
        cmocka_unit_test(test_close_fails_what_is_under_way),
        cmocka_unit_test(test_readiness_with_a_thread),
        cmocka_unit_test(test_log_lines_are_pulled),
        cmocka_unit_test(test_own_loop),
        cmocka_unit_test(test_CX_08_timeouts),
        cmocka_unit_test(test_CX_03_deadlines_are_monotonic),
        cmocka_unit_test(test_CX_04_peer_resets),
        cmocka_unit_test(test_CX_05_fork),
        cmocka_unit_test(test_CX_07_all_down_does_not_spin),
        cmocka_unit_test(test_CX_14_killed_connection_leaves_nothing),
        cmocka_unit_test(test_CX_17_half_an_answer),
        cmocka_unit_test(test_CX_15_failed_constructor),
        cmocka_unit_test(test_CX_06_no_thread_to_be_had),
        cmocka_unit_test(test_lookups_that_gave_up_do_not_pile_up),
        cmocka_unit_test(test_signals_and_descriptors_stay_the_applications),
        cmocka_unit_test(test_topics_from_many_threads),
        cmocka_unit_test(test_no_calls_from_callbacks),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
