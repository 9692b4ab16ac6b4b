/* test_testkit_state.c - what the test kit says of a cluster, and does to its state, on real processes: logs of nodes, snapshots, the virtual clock, a
 * recording. */
#include "testkit_rig.h"

static void test_logs(void **state) {
    (void)state;
    char *all = NULL, *end = NULL;
    kc_test_cluster *c = START(.nodes = 1);
    kc_test_fault f = {.api = "Heartbeat", .close = 1, .times = 1};
    GOOD(kc_test_fault_add(c, &f, sizeof f, NULL, 0, NULL, &error));
    GOOD(kc_test_topic_create(c, "seen-in-the-log", 1, 1, NULL, 0, &error));
    GOOD(kc_test_node_stop(c, 0, &error));
    GOOD(kc_test_node_log(c, 0, 0, &all, &error));
    assert_true(strlen(all) > 100);
    GOOD(kc_test_node_log(c, 0, 100, &end, &error));
    size_t n = strlen(end);
    assert_in_range(n, 1, 100);
    assert_string_equal(end, all + strlen(all) - n);
    assert_int_equal(all[strlen(all) - n - 1], '\n'); /* from a line's begin on */
    kc_test_text_free(all);
    kc_test_text_free(end);
    BAD(kc_test_node_log(c, 5, 0, &all, &error), KC_INVALID, "node-5.log");
    kc_test_cluster_free(c);
}

static void test_snapshots(void **state) {
    (void)state;
    kc_report report;
    int64_t bytes = 0;
    char *list = NULL, dir[] = "/tmp/kclient-test-XXXXXX", path[100], command[200];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/kept", dir);
    kc_test_cluster *c = START(.nodes = 3);
    GOOD(kc_test_topic_create(c, "t", 1, 3, NULL, 0, &error));
    kc_client *client = client_of(kc_test_cluster_bootstrap(c), NULL, NULL);
    assert_int_equal(send_one(client, "t", "one", &report), KC_OK);
    GOOD(kc_test_wait_isr(c, "t", 0, (const int32_t[]){0, 1, 2}, 3, 0, &error));
    GOOD(kc_test_snapshot_save(c, "with one", 0, &bytes, &error));
    assert_true(bytes > 0);
    BAD(kc_test_snapshot_save(c, "with one", 0, NULL, &error), KC_UNSUPPORTED, "with one");
    GOOD(kc_test_snapshot_save(c, "with one", 1, NULL, &error));
    assert_int_equal(send_one(client, "t", "two", &report), KC_OK);
    GOOD(kc_test_snapshot_save(c, path, 0, NULL, &error));
    assert_int_equal(send_one(client, "t", "three", &report), KC_OK);
    assert_int_equal(stored_in(c, "t"), 3);
    kc_client_free(client);
    GOOD(kc_test_snapshot_restore(c, "with one", &error));
    for (int32_t id = 0; id < 3; id++) assert_int_equal(node_of(c, id).state, KC_TEST_NODE_UP);
    GOOD(kc_test_wait_leader(c, "t", 0, KC_TEST_ANYBODY, 0, NULL, &error));
    assert_int_equal(stored_in(c, "t"), 1);
    GOOD(kc_test_snapshot_list(c, &list, &error));
    assert_non_null(strstr(list, "\"with one\""));
    kc_test_text_free(list);
    GOOD(kc_test_snapshot_delete(c, "with one", &error));
    BAD(kc_test_snapshot_delete(c, "with one", &error), KC_INVALID, "with one");
    BAD(kc_test_snapshot_restore(c, "with one", &error), KC_INVALID, "with one");
    BAD(kc_test_snapshot_save(c, "", 0, NULL, &error), KC_INVALID, "name");
    BAD(kc_test_snapshot_save(c, "..", 0, NULL, &error), KC_INVALID, "..");
    GOOD(kc_test_cluster_stop(c, &error));
    kc_test_cluster_free(c);
    c = START(.nodes = 3, .from = path); /* another cluster begins with it */
    GOOD(kc_test_wait_leader(c, "t", 0, KC_TEST_ANYBODY, 0, NULL, &error));
    assert_int_equal(stored_in(c, "t"), 2);
    kc_test_cluster_free(c);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

/* How many records a topic has lost to retention. */
static bool is_empty(kc_test_cluster *c, const char *topic) {
    kc_cluster_info *info = NULL;
    kc_partition_info p = {.log_start = -1, .high_watermark = -2};
    GOOD(kc_admin_describe(kc_test_cluster_client(c), topic, SECONDS(30), &info, &error));
    (void)kc_cluster_info_partition(info, 0, 0, &p);
    kc_cluster_info_free(info);
    return p.log_start == p.high_watermark;
}

static void test_a_clock_that_jumps(void **state) {
    (void)state;
    enum { DAY_MS = 86400000 };
    kc_report report;
    int64_t before = 0, after = 0, advanced = -1;
    const kc_config_pair day = {.name = "retention.ms", .value = "86400000"};
    kc_test_cluster *c = START(.nodes = 1, .virtual_clock = 1);
    GOOD(kc_test_topic_create(c, "t", 1, 1, &day, 1, &error));
    kc_client *client = client_of(kc_test_cluster_bootstrap(c), NULL, NULL);
    assert_int_equal(send_one(client, "t", "of today", &report), KC_OK);
    GOOD(kc_test_clock(c, &before, &advanced, &error));
    assert_int_equal(advanced, 0);
    assert_false(is_empty(c, "t"));
    BAD(kc_test_advance(c, 0, &error), KC_INVALID, "1 ms");
    GOOD(kc_test_advance(c, 2 * DAY_MS, &error));
    GOOD(kc_test_clock(c, &after, &advanced, &error));
    assert_int_equal(advanced, 2 * DAY_MS);
    assert_in_range(after - before, 2 * DAY_MS, 2 * DAY_MS + 300000);
    for (int i = 0; i < 6000 && !is_empty(c, "t"); i++) usleep(10000);
    assert_true(is_empty(c, "t"));
    kc_client_free(client);
    kc_test_cluster_free(c);
    c = START(.nodes = 1);
    BAD(kc_test_advance(c, 1000, &error), KC_UNSUPPORTED, "clock");
    kc_test_cluster_free(c);
}

static void test_a_recording(void **state) {
    (void)state;
    kc_report report;
    char path[] = "/tmp/kclient-test-XXXXXX", line[65536], exe[1000], command[1200];
    close(mkstemp(path));
    kc_test_cluster *c = START(.nodes = 2, .record = path);
    snprintf(exe, sizeof exe, "/proc/%lld/exe", (long long)kc_test_cluster_pid(c));
    ssize_t n = readlink(exe, line, sizeof line - 1); /* the kbroker that was found */
    assert_true(n > 0);
    snprintf(command, sizeof command, "'%.*s' print --api Produce '%s'", (int)n, line, path);
    GOOD(kc_test_topic_create(c, "seen", 1, 2, NULL, 0, &error));
    kc_client *client = client_of(kc_test_cluster_bootstrap(c), "client.id", "recorded");
    assert_int_equal(send_one(client, "seen", "x", &report), KC_OK);
    kc_client_free(client);
    GOOD(kc_test_cluster_stop(c, &error));
    kc_test_cluster_free(c);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    int requests = 0, responses = 0;
    while (fgets(line, sizeof line, f)) {
        requests += strstr(line, "\"kind\":\"request\"") && strstr(line, "recorded");
        responses += strstr(line, "\"kind\":\"response\"") != NULL;
    }
    assert_int_equal(pclose(f), 0);
    assert_int_equal(requests, 1);
    assert_int_equal(responses, 1);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_logs), cmocka_unit_test(test_snapshots), cmocka_unit_test(test_a_clock_that_jumps),
                                       cmocka_unit_test(test_a_recording)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
