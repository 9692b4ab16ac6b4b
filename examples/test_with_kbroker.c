/* test_with_kbroker.c - tests an application against real brokers that fail on order: the application (place_order) sends an order and says whether it is
 * stored; the tests have its leader killed, its answers lost, its replicas too few, and look at what is in the log then.
 *
 *     cc test_with_kbroker.c $(pkg-config --cflags --libs kclient_test) && ./a.out
 *
 * With a test framework each of these functions is a test case; here main calls them in turn, and the first that fails ends the program with a message.
 */
#include <kclient/kclient_test.h>
#include <kclient/producer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The application under test ---- */

/* Stores an order. 1: it is stored, once; 0: it is not, or nobody knows. */
static int place_order(kc_client *client, kc_producer *producer, const char *order) {
    kc_record record = {.topic = kc_client_topic(client, "orders"), .value = {order, strlen(order)}};
    kc_report report;
    return kc_producer_send_wait(producer, &record, &report, NULL) == KC_OK;
}

/* ---- What the tests share ---- */

static void check(kc_err err, kc_error *error, const char *what) {
    if (err == KC_OK) return;
    fprintf(stderr, "FAILED: %s: %s\n", what, error ? kc_error_message(error) : kc_err_text(err));
    exit(1);
}
static void expect(int holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "FAILED: %s\n", what);
    exit(1);
}

struct fixture {
    kc_test_cluster *cluster;
    kc_client *client;
    kc_producer *producer;
};

static struct fixture set_up(int nodes) {
    struct fixture f = {0};
    kc_error *error = NULL;
    kc_test_options options = {.nodes = nodes};
    kc_config_pair two = {.name = "min.insync.replicas", .value = "2"};
    check(kc_test_cluster_start(&options, sizeof options, &f.cluster, &error), error, "start");
    check(kc_test_topic_create(f.cluster, "orders", 1, nodes, &two, nodes > 1, &error), error, "topic");
    kc_config *config = kc_config_new();
    check(kc_config_set(config, "bootstrap.servers", kc_test_cluster_bootstrap(f.cluster), &error), error, "configuration");
    check(kc_config_set(config, "delivery.timeout.ms", "10000", &error), error, "configuration");
    check(kc_config_set(config, "request.timeout.ms", "3000", &error), error, "configuration");
    check(kc_client_new(config, &f.client, &error), error, "client");
    check(kc_producer_new(f.client, NULL, &f.producer, &error), error, "producer");
    kc_config_free(config);
    return f;
}

static void tear_down(struct fixture *f) {
    kc_producer_free(f->producer);
    kc_client_free(f->client);
    kc_test_cluster_free(f->cluster);
}

/* How many records are in the topic. */
static int64_t stored(struct fixture *f) {
    kc_cluster_info *info;
    kc_partition_info partition = {.high_watermark = -1};
    kc_error *error = NULL;
    check(kc_admin_describe(kc_test_cluster_client(f->cluster), "orders", 0, &info, &error), error, "describe");
    (void)kc_cluster_info_partition(info, 0, 0, &partition);
    kc_cluster_info_free(info);
    return partition.high_watermark;
}

/* ---- Tests ---- */

/* The leader dies: another one takes over, and the order goes there. */
static void test_the_leader_dies(void) {
    struct fixture f = set_up(3);
    kc_error *error = NULL;
    int32_t leader;
    expect(place_order(f.client, f.producer, "a book"), "an order in peace");
    check(kc_test_wait_leader(f.cluster, "orders", 0, KC_TEST_ANYBODY, 0, &leader, &error), error, "leader");
    check(kc_test_node_kill(f.cluster, leader, &error), error, "kill");
    expect(place_order(f.client, f.producer, "a lamp"), "an order while the leader is gone");
    expect(stored(&f) == 2, "two orders are stored");
    tear_down(&f);
    puts("the leader dies: ok");
}

/* The broker stores the order and its answer is lost, twice: it is sent again, and stored once. */
static void test_answers_are_lost(void) {
    struct fixture f = set_up(1);
    kc_error *error = NULL;
    kc_test_rule *rule;
    kc_test_fault fault = {.api = "Produce", .after_effect = 1, .close = 1, .times = 2};
    int64_t hits;
    check(kc_test_fault_add(f.cluster, &fault, sizeof fault, NULL, 0, &rule, &error), error, "rule");
    expect(place_order(f.client, f.producer, "a book"), "an order whose answers are lost");
    check(kc_test_rule_hits(rule, &hits, &error), error, "hits");
    expect(hits == 2, "the rule has struck twice");
    expect(stored(&f) == 1, "one order is stored");
    kc_test_rule_free(rule);
    tear_down(&f);
    puts("answers are lost: ok");
}

/* Of three replicas only the leader has the order: nobody is told that it is stored. Once the others are back orders go through. */
static void test_too_few_replicas(void) {
    struct fixture f = set_up(3);
    kc_error *error = NULL;
    int32_t leader, others[2], n = 0;
    check(kc_test_wait_leader(f.cluster, "orders", 0, KC_TEST_ANYBODY, 0, &leader, &error), error, "leader");
    for (int32_t id = 0; id < 3; id++)
        if (id != leader) others[n++] = id;
    check(kc_test_nodes(f.cluster, KC_TEST_STOP, others, 1, &error), error, "stop one");
    expect(place_order(f.client, f.producer, "a book"), "an order with two replicas");
    kc_test_fault fault = {.api = "Fetch", .stall = 1}; /* the other one does not get it, and leaves the replicas in sync after a while */
    check(kc_test_fault_add(f.cluster, &fault, sizeof fault, &leader, 1, NULL, &error), error, "rule");
    expect(!place_order(f.client, f.producer, "a lamp"), "an order that only the leader has is not told to be stored");
    check(kc_test_faults_clear(f.cluster, NULL, 0, &error), error, "clear");
    check(kc_test_nodes(f.cluster, KC_TEST_START, others, 1, &error), error, "start");
    check(kc_test_wait_isr(f.cluster, "orders", 0, (const int32_t[]){0, 1, 2}, 3, 0, &error), error, "in sync");
    expect(place_order(f.client, f.producer, "a chair"), "an order with all replicas");
    tear_down(&f);
    puts("too few replicas: ok");
}

int main(void) {
    test_the_leader_dies();
    test_answers_are_lost();
    test_too_few_replicas();
    return 0;
}
