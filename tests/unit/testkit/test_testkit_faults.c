/* test_testkit_faults.c - fault rules of the test kit on real processes: as structs and as JSON, on all nodes and on some, their hits, their removal, and what
 * becomes of them when a node starts anew. The rest of the kit: test_testkit.c.
 */
#include "testkit_rig.h"

static int64_t hits_of(kc_test_rule *rule) {
    int64_t n = -1;
    GOOD(kc_test_rule_hits(rule, &n, &error));
    return n;
}
static char *list_of(kc_test_cluster *c) {
    static char text[4000];
    char *json = NULL;
    GOOD(kc_test_faults_list(c, NULL, 0, &json, &error));
    snprintf(text, sizeof text, "%s", json);
    kc_test_text_free(json);
    return text;
}
static void holds(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("%s is not in %s", part, text);
}
static kc_test_rule *add(kc_test_cluster *c, kc_test_fault f) {
    kc_test_rule *rule = NULL;
    GOOD(kc_test_fault_add(c, &f, sizeof f, NULL, 0, &rule, &error));
    return rule;
}
#define ADD(c, ...) add(c, (kc_test_fault){__VA_ARGS__})

static void test_a_rule_strikes(void **state) {
    (void)state;
    kc_report report;
    kc_test_cluster *c = START(.nodes = 1);
    GOOD(kc_test_topic_create(c, "t", 1, 1, NULL, 0, &error));
    kc_client *client = client_of(kc_test_cluster_bootstrap(c), NULL, NULL);
    kc_test_rule *rule = ADD(c, .api = "Produce", .topic = "t", .times = 2, .error = "NOT_LEADER_OR_FOLLOWER");
    BAD(kc_test_rule_wait(rule, 1, 100000, &error), KC_TIMED_OUT, "struck 0 times");
    assert_int_equal(send_one(client, "t", "retried twice", &report), KC_OK);
    assert_int_equal(hits_of(rule), 2);
    GOOD(kc_test_rule_wait(rule, 2, 0, &error));
    GOOD(kc_test_rule_remove(rule, &error));
    assert_int_equal(hits_of(rule), 2); /* as it was known last */
    BAD(kc_test_rule_remove(rule, &error), KC_CLOSED, "removed before");
    kc_test_rule_free(rule);
    assert_null(strstr(list_of(c), "Produce"));
    rule = ADD(c, .api = "0", .error = "87"); /* INVALID_RECORD, by numbers */
    assert_int_equal(send_one(client, "t", "refused", &report), 87);
    assert_int_equal(hits_of(rule), 1);
    GOOD(kc_test_rule_remove(rule, &error));
    kc_test_rule_free(rule);
    assert_int_equal(send_one(client, "t", "stored", &report), KC_OK);
    assert_int_equal(stored_in(c, "t"), 2);
    kc_client_free(client);
    kc_test_cluster_free(c);
}

/* Each member comes to be what kbroker calls it; 0 where it is meant. */
static void test_every_member(void **state) {
    (void)state;
    kc_test_cluster *c = START(.nodes = 1);
    kc_test_rule_free(ADD(c, .api = "Fetch", .version_min = 4, .version_max = 11, .client_id = "old", .topic = "orders", .partition = 3, .broker = 2,
                          .after = 5, .nth = 7, .after_effect = 1, .delay_ms = 10, .close = 1, .note = "a note"));
    kc_test_rule_free(ADD(c, .flags = KC_TEST_HAS_VERSIONS | KC_TEST_HAS_PARTITION | KC_TEST_HAS_BROKER | KC_TEST_HAS_CORRUPT, .api = "Metadata",
                          .topic = "u"));
    kc_test_rule_free(ADD(c, .api = "Produce", .every = 3, .throttle_ms = 100, .drip_bytes_per_s = 1000, .corrupt = -10));
    kc_test_rule_free(ADD(c, .disk = "write", .topic = "v", .percent = 12.5, .times = 4, .error = "ENOSPC"));
    kc_test_rule_free(ADD(c, .api = "ListOffsets", .from = "nodes", .stall = 1));
    kc_test_rule_free(ADD(c, .api = "OffsetCommit", .group = "billing", .delay_ms = 1));
    const char *text = list_of(c);
    static const char *const parts[] = {
        "\"versions\":[4,11]", "\"client_id\":\"old\"", "\"topic\":\"orders\"", "\"partition\":3",   "\"broker\":2",          "\"after\":5",
        "\"nth\":7",           "\"when\":\"after\"",    "\"delay_ms\":10",       "\"close\":true",   "\"note\":\"a note\"",   "\"versions\":[0,0]",
        "\"partition\":0",     "\"broker\":0",          "\"corrupt\":0",         "\"every\":3",      "\"throttle_ms\":100",   "\"drip_bytes_per_s\":1000",
        "\"corrupt\":-10",     "\"disk\":\"write\"",    "\"percent\":12.5",      "\"times\":4",      "\"error\":\"ENOSPC\"",  "\"stall\":true",
        "\"from\":\"nodes\"",  "\"group\":\"billing\"",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) holds(text, parts[i]);
    GOOD(kc_test_faults_clear(c, NULL, 0, &error));
    holds(list_of(c), "\"rules\":[]");
    kc_test_cluster_free(c);
}

static void test_wrong_rules(void **state) {
    (void)state;
    kc_test_rule *rule = NULL;
    kc_test_cluster *c = START(.nodes = 1);
    kc_test_fault f = {.api = "Produse", .close = 1};
    BAD(kc_test_fault_add(c, &f, sizeof f, NULL, 0, &rule, &error), KC_INVALID, "Produce"); /* did you mean */
    f = (kc_test_fault){.api = "Produce", .delay_ms = -1};
    BAD(kc_test_fault_add(c, &f, sizeof f, NULL, 0, &rule, &error), KC_INVALID, "delay_ms");
    f = (kc_test_fault){.api = "Produce"};
    BAD(kc_test_fault_add(c, &f, sizeof f, NULL, 0, &rule, &error), KC_INVALID, "rule");
    BAD(kc_test_fault_add(c, NULL, 0, NULL, 0, &rule, &error), KC_INVALID, "missing");
    BAD(kc_test_fault_add_json(c, "{\"api\": ", NULL, 0, &rule, &error), KC_INVALID, "line 1");
    const char *second = "[{\"api\": \"Fetch\", \"close\": true}, {\"api\": \"Fetch\", \"closed\": true}]";
    BAD(kc_test_fault_add_json(c, second, NULL, 0, &rule, &error), KC_INVALID, "rule 2");
    f.close = 1;
    BAD(kc_test_fault_add(c, &f, sizeof f, (const int32_t[]){0, 4}, 2, &rule, &error), KC_INVALID, "4");
    assert_null(rule);
    holds(list_of(c), "\"rules\":[]"); /* all or none */
    kc_test_cluster_free(c);
}

/* On some nodes, and on one that starts anew: it has no rule then, and another one with the same number is left alone. */
static void test_several_nodes(void **state) {
    (void)state;
    kc_test_rule *both = NULL, *later = NULL;
    kc_report report;
    const int32_t two[] = {0, 1};
    kc_test_cluster *c = START(.nodes = 3);
    GOOD(kc_test_topic_create(c, "t", 3, 1, NULL, 0, &error));
    GOOD(kc_test_fault_add_json(c, "{\"rules\": [{\"api\": \"Heartbeat\", \"close\": true}, {\"api\": \"Produce\", \"delay_ms\": 1}]}", two, 2, &both, &error));
    kc_client *client = client_of(kc_test_cluster_bootstrap(c), "partitioner", "round_robin");
    for (int i = 0; i < 9; i++) assert_int_equal(send_one(client, "t", "x", &report), KC_OK);
    int64_t before = hits_of(both);
    assert_in_range(before, 1, 8); /* node 2 has none of it */
    GOOD(kc_test_node_pause(c, 0, &error));
    assert_int_equal(hits_of(both), before); /* who cannot be asked now is told as last known */
    BAD(kc_test_rule_remove(both, &error), KC_UNSUPPORTED, "paused");
    GOOD(kc_test_node_resume(c, 0, &error));
    GOOD(kc_test_node_kill(c, 0, &error));
    assert_int_equal(hits_of(both), before);
    GOOD(kc_test_node_start(c, 0, &error));
    GOOD(kc_test_wait_leader(c, "t", 0, KC_TEST_ANYBODY, 0, NULL, &error));
    GOOD(kc_test_fault_add_json(c, "[{\"api\": \"Heartbeat\", \"stall\": true}, {\"api\": \"LeaveGroup\", \"stall\": true}]", two, 1, &later, &error));
    assert_true(hits_of(both) >= before);
    GOOD(kc_test_rule_remove(both, &error));
    holds(list_of(c), "LeaveGroup"); /* of the same number, on another process */
    assert_null(strstr(list_of(c), "delay_ms"));
    GOOD(kc_test_rule_remove(later, &error));
    assert_null(strstr(list_of(c), "LeaveGroup"));
    kc_test_rule_free(both);
    kc_test_rule_free(later);
    kc_test_rule_free(NULL);
    kc_client_free(client);
    kc_test_cluster_free(c);
}

/* From a file: there from the first request on, and again when a node starts anew. */
static void test_rules_from_the_start(void **state) {
    (void)state;
    kc_report report;
    char path[] = "/tmp/kclient-test-XXXXXX";
    int fd = mkstemp(path);
    static const char rules[] = "{\"rules\": [{\"api\": \"Produce\", \"error\": \"INVALID_RECORD\"}]}";
    assert_int_equal(write(fd, rules, sizeof rules - 1), sizeof rules - 1);
    close(fd);
    kc_test_cluster *c = START(.nodes = 1, .faults = path);
    GOOD(kc_test_topic_create(c, "t", 1, 1, NULL, 0, &error));
    kc_client *client = client_of(kc_test_cluster_bootstrap(c), NULL, NULL);
    assert_int_equal(send_one(client, "t", "x", &report), 87);
    GOOD(kc_test_node_kill(c, 0, &error));
    GOOD(kc_test_node_start(c, 0, &error));
    assert_int_equal(send_one(client, "t", "x", &report), 87);
    GOOD(kc_test_faults_clear(c, NULL, 0, &error));
    assert_int_equal(send_one(client, "t", "x", &report), KC_OK);
    kc_client_free(client);
    kc_test_cluster_free(c);
    kc_test_options o = {.faults = "/nowhere.json"};
    c = NULL;
    BAD(kc_test_cluster_start(&o, sizeof o, &c, &error), KC_TRANSPORT, "/nowhere.json");
    unlink(path);
}

/* Who was stalled goes on when the rule goes. */
static void test_stalled_and_let_go(void **state) {
    (void)state;
    kc_producer *producer = NULL;
    kc_reports *reports = NULL;
    kc_report report;
    kc_test_cluster *c = START(.nodes = 1);
    GOOD(kc_test_topic_create(c, "t", 1, 1, NULL, 0, &error));
    kc_client *client = client_of(kc_test_cluster_bootstrap(c), NULL, NULL);
    GOOD(kc_producer_new(client, NULL, &producer, &error));
    kc_test_rule *rule = ADD(c, .api = "Produce", .stall = 1, .after_effect = 1);
    kc_record r = {.topic = kc_client_topic(client, "t"), .value = {"x", 1}};
    assert_int_equal(kc_producer_send(producer, &r, 0), KC_OK);
    GOOD(kc_test_rule_wait(rule, 1, 0, &error));
    assert_int_equal(kc_producer_reports(producer, &reports, 100000), KC_TIMED_OUT);
    GOOD(kc_test_rule_remove(rule, &error));
    assert_int_equal(kc_producer_reports(producer, &reports, SECONDS(60)), KC_OK);
    assert_int_equal(kc_reports_next(reports, &report), 1);
    assert_int_equal(report.err, KC_OK);
    kc_reports_free(reports);
    kc_test_rule_free(rule);
    kc_producer_free(producer);
    kc_client_free(client);
    kc_test_cluster_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_rule_strikes), cmocka_unit_test(test_every_member), cmocka_unit_test(test_wrong_rules),
                                       cmocka_unit_test(test_several_nodes), cmocka_unit_test(test_stalled_and_let_go),
                                       cmocka_unit_test(test_rules_from_the_start)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
