/* test_testkit.c - the test kit on real processes: life of a cluster, one that outlives its test for no reason whatever, what goes wrong at its start, nodes,
 * topics, waiting. Faults: test_testkit_faults.c.
 */
#include "testkit_rig.h"

/* ---- Life ---- */

static void test_one_node(void **state) {
    (void)state;
    char data[1000], other[1000];
    kc_report report;
    kc_test_info *info = NULL;
    kc_test_node n;
    kc_test_cluster *c = NULL;
    GOOD(kc_test_cluster_start(NULL, 0, &c, &error));
    assert_non_null(strstr(kc_test_cluster_bootstrap(c), "127.0.0.1:"));
    assert_null(strchr(kc_test_cluster_bootstrap(c), ','));
    assert_int_equal(strncmp(kc_test_cluster_admin(c), "http://127.0.0.1:", 17), 0);
    snprintf(data, sizeof data, "%s", kc_test_cluster_data(c));
    assert_true(exists(data));
    int64_t pid = kc_test_cluster_pid(c);
    assert_true(pid > 0 && !process_is_gone(pid));
    GOOD(kc_test_describe(c, &info, &error));
    assert_int_equal(kc_test_info_node_count(info), 1);
    assert_int_equal(kc_test_info_node(info, 0, &n), KC_OK);
    assert_int_equal(kc_test_info_node(info, 1, &n), KC_INVALID);
    assert_int_equal(n.id, 0);
    assert_int_equal(n.roles, KC_TEST_BROKER | KC_TEST_CONTROLLER);
    assert_int_equal(n.state, KC_TEST_NODE_UP);
    assert_string_equal(n.address, kc_test_cluster_bootstrap(c));
    assert_string_equal(kc_test_info_version(info), kc_version());
    assert_non_null(strstr(kc_test_info_json(info), "\"ephemeral\":true"));
    kc_test_info_free(info);
    kc_client *client = client_of(kc_test_cluster_bootstrap(c), NULL, NULL);
    assert_int_equal(send_one(client, "made-when-used", "hello", &report), KC_OK);
    assert_int_equal(stored_in(c, "made-when-used"), 1);
    kc_client_free(client);
    kc_test_cluster *second = START(.nodes = 1); /* side by side */
    assert_string_not_equal(kc_test_cluster_bootstrap(c), kc_test_cluster_bootstrap(second));
    snprintf(other, sizeof other, "%s", kc_test_cluster_data(second));
    int64_t second_pid = kc_test_cluster_pid(second);
    GOOD(kc_test_cluster_stop(c, &error));
    assert_true(process_is_gone(pid));
    assert_false(exists(data));
    assert_int_equal(kc_test_cluster_pid(c), 0);
    BAD(kc_test_cluster_stop(c, &error), KC_CLOSED, "stopped before");
    BAD(kc_test_describe(c, &info, &error), KC_CLOSED, "stopped");
    assert_null(kc_test_cluster_client(c));
    BAD(kc_test_wait_leader(c, "t", 0, KC_TEST_ANYBODY, 0, NULL, &error), KC_CLOSED, "stopped");
    kc_test_cluster_free(c);
    kc_test_cluster_free(second); /* without a stop: it is killed */
    assert_true(process_is_gone(second_pid));
    assert_false(exists(other));
    kc_test_cluster_free(NULL);
}

static void test_data_that_stays(void **state) {
    (void)state;
    char dir[] = "/tmp/kclient-test-XXXXXX", data[100], command[200];
    kc_report report;
    const kc_config_pair configs[] = {{.name = "num.partitions", .value = "3"}};
    assert_non_null(mkdtemp(dir));
    snprintf(data, sizeof data, "%s/d", dir);
    kc_test_cluster *c = START(.data = data, .configs = configs, .config_count = 1);
    GOOD(kc_test_topic_create(c, "t", 0, 0, NULL, 0, &error));
    kc_topic_info topic;
    kc_cluster_info *info = NULL;
    GOOD(kc_admin_describe(kc_test_cluster_client(c), "t", 0, &info, &error));
    assert_int_equal(kc_cluster_info_topic(info, 0, &topic), KC_OK);
    assert_int_equal(topic.partition_count, 3);
    kc_cluster_info_free(info);
    GOOD(kc_test_topic_create(c, "one", 1, 1, NULL, 0, &error));
    kc_client *client = client_of(kc_test_cluster_bootstrap(c), NULL, NULL);
    assert_int_equal(send_one(client, "one", "kept", &report), KC_OK);
    kc_client_free(client);
    GOOD(kc_test_cluster_stop(c, &error));
    kc_test_cluster_free(c);
    assert_true(exists(data));
    c = START(.data = data);
    assert_int_equal(stored_in(c, "one"), 1);
    BAD(kc_test_topic_create(c, "one", 1, 1, NULL, 0, &error), 36, "one"); /* TOPIC_ALREADY_EXISTS */
    kc_test_cluster_free(c);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

/* Its child starts a cluster, tells of it, and then ends in one way or another. */
static int64_t pid_from_child(int how) {
    int out[2], status;
    int64_t pid = 0;
    assert_int_equal(pipe(out), 0);
    pid_t child = fork();
    if (child == 0) {
        kc_test_cluster *c = NULL;
        if (kc_test_cluster_start(NULL, 0, &c, NULL) != KC_OK) _exit(9);
        pid = kc_test_cluster_pid(c);
        if (write(out[1], &pid, sizeof pid) != sizeof pid) _exit(8);
        if (how == 0) _exit(0);
        if (how == 1) raise(SIGKILL);
        if (how == 2) raise(SIGINT);
        abort();
    }
    close(out[1]);
    assert_int_equal(read(out[0], &pid, sizeof pid), sizeof pid);
    close(out[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return pid;
}

static void test_it_ends_with_its_test(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        int64_t pid = pid_from_child(how);
        if (!comes_true(process_is_gone, pid)) fail_msg("way %d: it is still there", how);
    }
}

static void test_a_forked_child_lets_it_be(void **state) {
    (void)state;
    int status;
    kc_test_cluster *c = START(.nodes = 1);
    assert_non_null(kc_test_cluster_client(c));
    pid_t child = fork();
    if (child == 0) {
        kc_test_info *info = NULL;
        bool good = kc_test_describe(c, &info, NULL) == KC_FORKED && kc_test_cluster_stop(c, NULL) == KC_FORKED && !kc_test_cluster_client(c);
        kc_test_cluster_free(c);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(node_of(c, 0).state, KC_TEST_NODE_UP);
    GOOD(kc_test_cluster_stop(c, &error));
    kc_test_cluster_free(c);
}

static void test_attached(void **state) {
    (void)state;
    kc_test_cluster *c = START(.nodes = 1), *a = NULL;
    const char *where[] = {kc_test_cluster_admin(c), kc_test_cluster_data(c)};
    for (int i = 0; i < 2; i++) {
        GOOD(kc_test_cluster_attach(where[i], 0, &a, &error));
        assert_string_equal(kc_test_cluster_bootstrap(a), kc_test_cluster_bootstrap(c));
        assert_string_equal(kc_test_cluster_data(a), kc_test_cluster_data(c));
        assert_int_equal(kc_test_cluster_pid(a), 0);
        assert_int_equal(node_of(a, 0).state, KC_TEST_NODE_UP);
        GOOD(kc_test_topic_create(a, i ? "by-folder" : "by-address", 1, 1, NULL, 0, &error));
        BAD(kc_test_cluster_stop(a, &error), KC_INVALID, "who started");
        kc_test_cluster_free(a);
        assert_int_equal(node_of(c, 0).state, KC_TEST_NODE_UP);
    }
    BAD(kc_test_cluster_attach("http://127.0.0.1", 0, &a, &error), KC_INVALID, "neither");
    BAD(kc_test_cluster_attach("http://:80", 0, &a, &error), KC_INVALID, "neither");
    BAD(kc_test_cluster_attach("", 0, &a, &error), KC_INVALID, "neither");
    BAD(kc_test_cluster_attach("/nowhere/at/all", 0, &a, &error), KC_TRANSPORT, "/nowhere/at/all");
    BAD(kc_test_cluster_attach("/tmp", 0, &a, &error), KC_TRANSPORT, "/cluster");
    BAD(kc_test_cluster_attach("http://127.0.0.1:1", 0, &a, &error), KC_TRANSPORT, "127.0.0.1:1");
    kc_test_cluster_free(c);
}

/* ---- Odd surroundings ---- */

static int descriptors(void) {
    int n = 0;
    for (int fd = 0; fd < 1000; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Many, one after the other and side by side: nothing is left of them. */
static void test_many(void **state) {
    (void)state;
    enum { MANY = 20 };
    kc_test_cluster *c[MANY];
    char data[MANY][200];
    int64_t pids[MANY];
    kc_test_cluster_free(START(.nodes = 1)); /* what a first one opens for good */
    int before = descriptors();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            c[i] = START(.nodes = 1);
            pids[i] = kc_test_cluster_pid(c[i]);
            snprintf(data[i], sizeof data[i], "%s", kc_test_cluster_data(c[i]));
            for (int k = 0; k < i; k++) assert_string_not_equal(kc_test_cluster_bootstrap(c[i]), kc_test_cluster_bootstrap(c[k]));
        }
        for (int i = 0; i < MANY; i++) GOOD(kc_test_topic_create(c[i], "t", 1, 1, NULL, 0, &error));
        for (int i = 0; i < MANY; i++) {
            if (i % 2) kc_test_cluster_free(c[i]);
            else GOOD(kc_test_cluster_stop(c[i], &error));
            if (i % 2 == 0) kc_test_cluster_free(c[i]);
            assert_true(process_is_gone(pids[i]));
            assert_false(exists(data[i]));
        }
    }
    assert_int_equal(descriptors(), before);
}

/* A test without standard streams, one that has blocked signals, one that does not want to hear of its children, and one whose own child is still there. */
static int in_odd_surroundings(int which) {
    kc_test_cluster *c = NULL;
    kc_test_info *info = NULL;
    sigset_t all;
    pid_t other = 0;
    if (which == 0) {
        close(0), close(1), close(2);
    } else if (which == 1) {
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        signal(SIGTERM, SIG_IGN);
    } else if (which == 2) {
        signal(SIGCHLD, SIG_IGN);
    }
    if (kc_test_cluster_start(NULL, 0, &c, NULL) != KC_OK) return 1;
    int64_t pid = kc_test_cluster_pid(c);
    if (which == 3 && (other = fork()) == 0) { /* it has the input of the cluster's process open, too */
        for (;;) pause();
    }
    if (kc_test_describe(c, &info, NULL) != KC_OK || kc_test_info_node_count(info) != 1) return 2;
    kc_test_info_free(info);
    if (kc_test_node_kill(c, 0, NULL) != KC_OK || kc_test_node_start(c, 0, NULL) != KC_OK) return 3;
    char data[200];
    snprintf(data, sizeof data, "%s", kc_test_cluster_data(c));
    if (which != 3 && kc_test_cluster_stop(c, NULL) != KC_OK) return 4;
    kc_test_cluster_free(c);
    if (!process_is_gone(pid) || exists(data)) return 5;
    if (other) kill(other, SIGKILL);
    return 0;
}

static void test_odd_surroundings(void **state) {
    (void)state;
    for (int which = 0; which < 4; which++) {
        int status;
        pid_t child = fork();
        if (child == 0) _exit(in_odd_surroundings(which));
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("surroundings %d: status %x", which, (unsigned)status);
    }
}

static void *look_around(void *arg) {
    kc_test_cluster *c = arg;
    for (int i = 0; i < 30; i++) {
        kc_test_info *info = NULL;
        int64_t n;
        if (kc_test_describe(c, &info, NULL) != KC_OK || kc_test_wait_leader(c, "t", 0, 0, 0, NULL, NULL) != KC_OK ||
            kc_test_count(c, "truncations", &n, NULL) != KC_OK || !kc_test_cluster_client(c))
            return "failed";
        kc_test_info_free(info);
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    kc_test_cluster *c = START(.nodes = 1);
    GOOD(kc_test_topic_create(c, "t", 1, 1, NULL, 0, &error));
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, look_around, c), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    kc_test_cluster_free(c);
}

/* ---- Starts that fail ---- */

static void test_no_kbroker(void **state) {
    (void)state;
    kc_test_cluster *c = NULL;
    kc_test_options o = {.kbroker = "/nowhere/kbroker"};
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_INVALID, "/nowhere/kbroker");
    o.kbroker = "no-such-kbroker";
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_INVALID, "/no-such-kbroker");
    o.kbroker = "/tmp"; /* no file */
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_INVALID, "/tmp");
    const char *before = getenv("KBROKER");
    char *kept = before ? strdup(before) : NULL;
    setenv("KBROKER", "/not/there/either", 1);
    BAD(kc_test_cluster_start(NULL, 0, &c, &error), KC_INVALID, "KBROKER=/not/there/either");
    if (kept) setenv("KBROKER", kept, 1);
    else unsetenv("KBROKER");
    free(kept);
    o.kbroker = "false"; /* found on PATH, and no kbroker */
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_TRANSPORT, "exit status 1");
    assert_null(c);
}

/* A program that never says that it is ready, and one that says something else. */
static void test_strange_programs(void **state) {
    (void)state;
    char path[] = "/tmp/kclient-test-XXXXXX";
    static const char *const scripts[] = {"#!/bin/sh\necho one two >&2\nexec sleep 100\n", "#!/bin/sh\necho ready 127.0.0.1:1\nexec sleep 100\n",
                                          "#!/bin/sh\necho admin http://127.0.0.1:1\necho ready 127.0.0.1:1\nexec sleep 100\n",
                                          "#!/bin/sh\nhead -c 9000 /dev/zero | tr '\\0' x\necho\nkill -9 $$\n"};
    static const struct {
        kc_err err;
        const char *part;
    } wanted[] = {{KC_TIMED_OUT, "one two"}, {KC_BAD_MESSAGE, "admin port"}, {KC_TRANSPORT, "GET /cluster"}, {KC_TRANSPORT, "killed by signal 9"}};
    close(mkstemp(path));
    chmod(path, 0700);
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        kc_test_cluster *c = NULL;
        kc_test_options o = {.kbroker = path, .timeout_us = i == 0 ? SECONDS(2) : SECONDS(60)};
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(scripts[i], f);
        fclose(f);
        BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), wanted[i].err, wanted[i].part);
        assert_null(c);
    }
    unlink(path);
}

static void test_wrong_options(void **state) {
    (void)state;
    kc_test_cluster *c = NULL;
    kc_test_options o = {.nodes = -1};
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_INVALID, "nodes");
    o = (kc_test_options){.nodes = 1, .timeout_us = -2};
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_INVALID, "timeout_us");
    o = (kc_test_options){.config_count = 1};
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_INVALID, "configs");
    const kc_config_pair nameless = {.name = "", .value = "1"}, unknown = {.name = "num.partition", .value = "3"};
    o = (kc_test_options){.configs = &nameless, .config_count = 1};
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_INVALID, "configs[0]");
    BAD(kc_test_cluster_start(&o, 0, &c, &error), KC_INVALID, "size");
    BAD(kc_test_cluster_start(NULL, 0, NULL, &error), KC_INVALID, "missing");
    o = (kc_test_options){.configs = &unknown, .config_count = 1}; /* what kbroker says is told */
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_TRANSPORT, "num.partitions");
    o = (kc_test_options){.profile = "reliabel"};
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_TRANSPORT, "reliabel");
    const char *const more[] = {"--no-such-option", NULL};
    o = (kc_test_options){.arguments = more};
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_TRANSPORT, "--no-such-option");
    assert_null(c);
    assert_int_equal(kc_test_cluster_start(&o, sizeof o, &c, NULL), KC_TRANSPORT); /* nobody asks why */
}

/* ---- Nodes, leaders, replicas ---- */

static void test_nodes(void **state) {
    (void)state;
    int32_t leader = -1;
    kc_report report;
    kc_test_cluster *c = START(.nodes = 3, .profile = "reliable");
    const kc_config_pair two = {.name = "min.insync.replicas", .value = "2"};
    GOOD(kc_test_topic_create(c, "orders", 1, 3, &two, 1, &error));
    GOOD(kc_test_wait_isr(c, "orders", 0, (const int32_t[]){2, 0, 1}, 3, 0, &error));
    GOOD(kc_test_wait_leader(c, "orders", 0, KC_TEST_ANYBODY, 0, &leader, &error));
    assert_in_range(leader, 0, 2);
    kc_client *client = client_of(kc_test_cluster_bootstrap(c), "request.timeout.ms", "2000"); /* it will ask a node that hangs */
    assert_int_equal(send_one(client, "orders", "before", &report), KC_OK);
    int64_t pid = node_of(c, leader).pid;
    GOOD(kc_test_node_kill(c, leader, &error));
    assert_true(process_is_gone(pid));
    assert_int_equal(node_of(c, leader).state, KC_TEST_NODE_DOWN);
    int32_t rest[2] = {leader == 0, leader == 2 ? 1 : 2}, next = -1;
    GOOD(kc_test_wait_isr(c, "orders", 0, rest, 2, 0, &error));
    GOOD(kc_test_wait_leader(c, "orders", 0, KC_TEST_ANYBODY, 0, &next, &error));
    assert_int_not_equal(next, leader);
    assert_int_equal(send_one(client, "orders", "between", &report), KC_OK);
    BAD(kc_test_wait_leader(c, "orders", 0, leader, SECONDS(2), NULL, &error), KC_TIMED_OUT, "in sync");
    BAD(kc_test_node_kill(c, leader, &error), KC_UNSUPPORTED, "run");
    GOOD(kc_test_node_start(c, leader, &error));
    GOOD(kc_test_wait_isr(c, "orders", 0, (const int32_t[]){0, 1, 2}, 3, 0, &error));
    GOOD(kc_test_node_pause(c, next, &error)); /* a machine that hangs loses its office, too */
    assert_int_equal(node_of(c, next).state, KC_TEST_NODE_PAUSED);
    GOOD(kc_test_wait_isr(c, "orders", 0, (const int32_t[]){next == 0, next == 2 ? 1 : 2}, 2, 0, &error));
    assert_int_equal(send_one(client, "orders", "after", &report), KC_OK);
    GOOD(kc_test_node_resume(c, next, &error));
    GOOD(kc_test_wait_isr(c, "orders", 0, (const int32_t[]){0, 1, 2}, 3, 0, &error));
    assert_int_equal(stored_in(c, "orders"), 3);
    kc_client_free(client);
    GOOD(kc_test_cluster_stop(c, &error));
    kc_test_cluster_free(c);
}

static void test_several_at_once(void **state) {
    (void)state;
    const int32_t both[] = {0, 1};
    kc_test_cluster *c = START(.nodes = 2, .controllers = 1, .show_log = 1);
    assert_int_equal(node_of(c, 1000).roles, KC_TEST_CONTROLLER);
    assert_int_equal(node_of(c, 0).roles, KC_TEST_BROKER);
    GOOD(kc_test_topic_create(c, "t", 1, 2, NULL, 0, &error));
    GOOD(kc_test_wait_isr(c, "t", 0, both, 2, 0, &error));
    GOOD(kc_test_nodes(c, KC_TEST_STOP, both, 2, &error));
    assert_int_equal(node_of(c, 0).state, KC_TEST_NODE_DOWN);
    assert_int_equal(node_of(c, 1).state, KC_TEST_NODE_DOWN);
    BAD(kc_test_wait_leader(c, "t", 0, 0, SECONDS(1), NULL, &error), KC_TIMED_OUT, "no broker tells");
    GOOD(kc_test_nodes(c, KC_TEST_START, both, 2, &error));
    GOOD(kc_test_wait_isr(c, "t", 0, both, 2, 0, &error));
    BAD(kc_test_node_wipe(c, 1, &error), KC_UNSUPPORTED, "run");
    GOOD(kc_test_node_kill(c, 1, &error));
    GOOD(kc_test_wait_isr(c, "t", 0, both, 1, 0, &error));
    GOOD(kc_test_node_wipe(c, 1, &error));
    assert_int_equal(node_of(c, 1).state, KC_TEST_NODE_DOWN);
    GOOD(kc_test_node_start(c, 1, &error));
    GOOD(kc_test_wait_isr(c, "t", 0, both, 2, 0, &error)); /* what was wiped is copied again */
    GOOD(kc_test_node_add(c, 2, &error));
    assert_int_equal(node_of(c, 2).state, KC_TEST_NODE_UP);
    GOOD(kc_test_topic_create(c, "wider", 1, 3, NULL, 0, &error));
    GOOD(kc_test_wait_isr(c, "wider", 0, (const int32_t[]){0, 1, 2}, 3, 0, &error));
    GOOD(kc_test_node_kill(c, 2, &error));
    GOOD(kc_test_nodes(c, KC_TEST_KILL, both, 2, &error));
    GOOD(kc_test_node_start(c, 2, &error)); /* alone it does not lead what 0 and 1 had last */
    GOOD(kc_test_wait_leader(c, "t", 0, KC_TEST_NOBODY, 0, NULL, &error));
    kc_test_cluster_free(c);
}

static void test_wrong_orders(void **state) {
    (void)state;
    kc_test_cluster *c = START(.nodes = 1);
    const int32_t none[] = {7};
    BAD(kc_test_node_kill(c, 7, &error), KC_INVALID, "7");
    BAD(kc_test_nodes(c, 99, none, 1, &error), KC_INVALID, "99");
    BAD(kc_test_nodes(c, KC_TEST_KILL, none, 0, &error), KC_INVALID, "named");
    BAD(kc_test_nodes(c, KC_TEST_KILL, NULL, 1, &error), KC_INVALID, "named");
    BAD(kc_test_node_start(c, 0, &error), KC_UNSUPPORTED, "0");
    BAD(kc_test_status(c, none, 1, &(char *){NULL}, &error), KC_INVALID, "7");
    BAD(kc_test_wait_leader(c, "nowhere", 0, KC_TEST_ANYBODY, SECONDS(1), NULL, &error), KC_TIMED_OUT, "there is no topic nowhere");
    GOOD(kc_test_topic_create(c, "t", 2, 1, NULL, 0, &error));
    BAD(kc_test_wait_leader(c, "t", 5, KC_TEST_ANYBODY, SECONDS(1), NULL, &error), KC_TIMED_OUT, "has no partition 5, only 2");
    BAD(kc_test_wait_isr(c, "t", 0, (const int32_t[]){0, 1}, 2, SECONDS(1), &error), KC_TIMED_OUT, "t-0 is led by 0");
    BAD(kc_test_wait_leader(c, "t", -1, 0, 0, NULL, &error), KC_INVALID, "partition");
    BAD(kc_test_wait_leader(c, NULL, 0, 0, 0, NULL, &error), KC_INVALID, "topic");
    GOOD(kc_test_wait_isr(c, "t", 1, (const int32_t[]){0}, 1, KC_FOREVER, &error));
    kc_test_cluster_free(c);
}

/* ---- Status, requests of one's own ---- */

static void test_status(void **state) {
    (void)state;
    char *text = NULL;
    int64_t n = -1;
    int32_t status = 0;
    kc_test_cluster *c = START(.nodes = 1);
    GOOD(kc_test_status(c, NULL, 0, &text, &error));
    assert_non_null(strstr(text, "\"state\":\"ready\""));
    kc_test_text_free(text);
    GOOD(kc_test_count(c, "unclean_elections", &n, &error));
    assert_int_equal(n, 0);
    BAD(kc_test_count(c, "unclean_election", &n, &error), KC_INVALID, "unclean_election");
    GOOD(kc_test_request(c, "GET", "/cluster", NULL, &status, &text, &error));
    assert_int_equal(status, 200);
    assert_non_null(strstr(text, "\"nodes\""));
    kc_test_text_free(text);
    GOOD(kc_test_request(c, "POST", "/nodes", "{\"do\":", &status, &text, &error));
    assert_int_equal(status, 400);
    assert_non_null(strstr(text, "error"));
    kc_test_text_free(text);
    GOOD(kc_test_request(c, "GET", "/nothing", NULL, &status, NULL, &error));
    assert_int_equal(status, 404);
    BAD(kc_test_request(c, "GET", "cluster", NULL, NULL, NULL, &error), KC_INVALID, "path");
    BAD(kc_test_request(c, "GET", "/a b", NULL, NULL, NULL, &error), KC_INVALID, "blanks");
    GOOD(kc_test_request(c, "GET", "/cluster", NULL, NULL, NULL, &error));
    /* A cluster that dies on its own: what it was is told. */
    kill((pid_t)kc_test_cluster_pid(c), SIGKILL);
    BAD(kc_test_status(c, NULL, 0, &text, &error), KC_TRANSPORT, "has ended (killed by signal 9)");
    BAD(kc_test_cluster_stop(c, &error), KC_TRANSPORT, "had ended");
    kc_test_cluster_free(c);
}

/* ---- Consumers ---- */

static void test_assigned(void **state) {
    (void)state;
    kc_consumer *first = NULL, *second = NULL;
    const char *topic = "t";
    kc_test_cluster *c = START(.nodes = 1);
    GOOD(kc_test_topic_create(c, topic, 4, 1, NULL, 0, &error));
    kc_client *client = client_of(kc_test_cluster_bootstrap(c), "group.id", "g");
    GOOD(kc_consumer_new(client, NULL, KC_PROCESSED_BY_POLL, &first, &error));
    BAD(kc_test_wait_assigned(first, SECONDS(1), &error), KC_INVALID, "subscri");
    GOOD(kc_consumer_subscribe(first, &topic, 1, &error));
    GOOD(kc_test_wait_assigned(first, 0, &error));
    GOOD(kc_test_fault_add_json(c, "{\"api\": \"JoinGroup\", \"stall\": true}", NULL, 0, NULL, &error));
    GOOD(kc_consumer_new(client, NULL, KC_PROCESSED_BY_POLL, &second, &error));
    GOOD(kc_consumer_subscribe(second, &topic, 1, &error));
    BAD(kc_test_wait_assigned(second, SECONDS(3), &error), KC_TIMED_OUT, "join");
    kc_consumer_free(first);
    kc_consumer_free(second);
    kc_client_free(client);
    kc_test_cluster_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_node),       cmocka_unit_test(test_data_that_stays),  cmocka_unit_test(test_it_ends_with_its_test),
        cmocka_unit_test(test_a_forked_child_lets_it_be), cmocka_unit_test(test_attached), cmocka_unit_test(test_no_kbroker),
        cmocka_unit_test(test_many),           cmocka_unit_test(test_odd_surroundings), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_strange_programs), cmocka_unit_test(test_wrong_options), cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_several_at_once), cmocka_unit_test(test_wrong_orders),    cmocka_unit_test(test_status),
        cmocka_unit_test(test_assigned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
