/* Commits with a real kbroker: a manual assignment that commits, goes on where it was in another consumer, and after the broker was killed:
 * what was acknowledged is there. The broker's own limits and errors.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <kclient/admin.h>
#include <kclient/consumer.h>
#include <kclient/kclient_test.h>
#include <kclient/producer.h>

#include "wire/kerror.h"

#define LONG_US 60000000
enum { PARTS = 3, EACH = 50 };

static kc_test_cluster *cluster;

static void broker_restart(void) {
    assert_int_equal(kc_test_node_kill(cluster, 0, NULL), KC_OK);
    assert_int_equal(kc_test_node_start(cluster, 0, NULL), KC_OK);
}

static int setup(void **state) {
    (void)state;
    return kc_test_cluster_start(NULL, 0, &cluster, NULL);
}
static int teardown(void **state) {
    (void)state;
    kc_err err = kc_test_cluster_stop(cluster, NULL);
    kc_test_cluster_free(cluster);
    return err;
}

struct bed {
    kc_client *client;
    kc_consumer *consumer;
    int32_t topic;
};

static kc_config *config_of(const char *group) {
    kc_config *c = kc_config_new();
    static const char *const pairs[][2] = {{"auto.offset.reset", "earliest"}, {"auto.commit.interval.ms", "50"}, {"max.poll.records", "10"}};
    assert_int_equal(kc_config_set(c, "bootstrap.servers", kc_test_cluster_bootstrap(cluster), NULL), KC_OK);
    assert_int_equal(kc_config_set(c, "group.id", group, NULL), KC_OK);
    for (size_t i = 0; i < 3; i++) assert_int_equal(kc_config_set(c, pairs[i][0], pairs[i][1], NULL), KC_OK);
    return c;
}
static struct bed bed_new(const char *group, const char *topic, kc_processed_mode mode) {
    struct bed b = {0};
    kc_config *c = config_of(group);
    assert_int_equal(kc_client_new(c, &b.client, NULL), KC_OK);
    assert_int_equal(kc_consumer_new(b.client, NULL, mode, &b.consumer, NULL), KC_OK);
    kc_config_free(c);
    b.topic = kc_client_topic(b.client, topic);
    return b;
}
static void bed_free(struct bed *b) {
    kc_consumer_free(b->consumer);
    kc_client_free(b->client);
}
static void assign(struct bed *b) {
    kc_topic_partition tp[PARTS];
    for (int32_t p = 0; p < PARTS; p++) tp[p] = (kc_topic_partition){.topic = b->topic, .partition = p, .offset = KC_OFFSET_COMMITTED};
    assert_int_equal(kc_consumer_assign(b->consumer, tp, sizeof tp[0], PARTS, NULL), KC_OK);
}
static int64_t committed(struct bed *b, int32_t partition) {
    kc_topic_partition tp = {.topic = b->topic, .partition = partition};
    kc_error *e = NULL;
    kc_err err = kc_consumer_committed(b->consumer, &tp, sizeof tp, 1, LONG_US, &e);
    if (err != KC_OK) fail_msg("%s", kc_error_message(e));
    return tp.offset;
}

/* The topic with EACH records "PARTITION/OFFSET" in each partition. */
static void fill(const char *topic) {
    struct bed b = bed_new("maker", topic, KC_PROCESSED_BY_POLL);
    kc_topic_new item = {.name = topic, .partitions = PARTS};
    kc_producer *p = NULL;
    assert_int_equal(kc_admin_create_topics(b.client, &item, sizeof item, 1, 0, LONG_US, NULL), KC_OK);
    assert_int_equal(kc_producer_new(b.client, NULL, &p, NULL), KC_OK);
    for (int i = 0; i < PARTS * EACH; i++) {
        char value[32];
        int n = snprintf(value, sizeof value, "%d/%d", i % PARTS, i / PARTS);
        kc_record r = {.topic = b.topic, .partition = i % PARTS, .flags = KC_HAS_PARTITION, .value = {value, (size_t)n}};
        assert_int_equal(kc_producer_send(p, &r, LONG_US), KC_OK);
    }
    assert_int_equal(kc_producer_close(p, LONG_US, NULL), KC_OK);
    kc_producer_free(p);
    bed_free(&b);
}

/* Takes records until at least so many were read in all; next[] counts on. */
static void consume(struct bed *b, int64_t total, int64_t *next) {
    while (next[0] + next[1] + next[2] < total) {
        kc_event *e = NULL;
        kc_err err = kc_consumer_poll(b->consumer, &e, LONG_US);
        assert_int_equal(err, KC_OK);
        if (kc_event_kind(e) != KC_EVENT_RECORDS) fail_msg("%s", kc_error_message(kc_event_error(e)));
        for (size_t i = 0; i < kc_event_count(e); i++) {
            kc_message m;
            char want[32];
            assert_int_equal(kc_event_message(e, i, &m), KC_OK);
            int n = snprintf(want, sizeof want, "%d/%lld", (int)m.partition, (long long)m.offset);
            assert_int_equal(m.offset, next[m.partition]++);
            assert_int_equal(m.value.size, n);
            assert_memory_equal(m.value.p, want, (size_t)n);
        }
        kc_event_free(e);
    }
}

static void test_goes_on_where_it_was(void **state) {
    (void)state;
    fill("on");
    int64_t next[PARTS] = {0};
    for (int round = 0; round < 3; round++) {
        struct bed b = bed_new("on", "on", KC_PROCESSED_BY_POLL);
        kc_event *e = NULL;
        assign(&b);
        consume(&b, round < 2 ? 60 * (round + 1) : PARTS * EACH, next);
        kc_err err = kc_consumer_poll(b.consumer, &e, 0); /* goes past the last event; what it gives itself is not processed */
        assert_true(err == KC_OK || err == KC_TIMED_OUT);
        kc_event_free(e);
        if (round == 1) { /* without a close: until the interval's commit was acknowledged */
            kc_error *error = NULL;
            if (kc_consumer_commit(b.consumer, NULL, 0, 0, LONG_US, &error) != KC_OK) fail_msg("%s", kc_error_message(error));
            broker_restart();
        } else {
            assert_int_equal(kc_consumer_close(b.consumer, LONG_US, NULL), KC_OK);
        }
        bed_free(&b);
        b = bed_new("on", "on", KC_PROCESSED_BY_POLL);
        for (int32_t p = 0; p < PARTS; p++) assert_int_equal(committed(&b, p), next[p]);
        bed_free(&b);
    }
    for (int32_t p = 0; p < PARTS; p++) assert_int_equal(next[p], EACH);
}

static void test_a_broker_that_is_killed_while_it_commits(void **state) {
    (void)state;
    fill("killed");
    struct bed b = bed_new("killed", "killed", KC_PROCESSED_EXPLICIT);
    int64_t acked = -1;
    for (int i = 1; i <= 40; i++) {
        kc_offset at = {.topic = b.topic, .partition = 1, .offset = i};
        kc_op *op = NULL;
        kc_error *error = NULL;
        assert_int_equal(kc_consumer_commit_start(b.consumer, &at, sizeof at, 1, 0, &op, NULL), KC_OK);
        if (i % 10 == 5) {
            broker_restart();
        }
        if (kc_op_wait(op, LONG_US, &error) != KC_OK) fail_msg("%s", kc_error_message(error));
        kc_op_free(op);
        acked = i;
        if (i % 10 == 7) assert_int_equal(committed(&b, 1), acked);
    }
    broker_restart();
    assert_int_equal(committed(&b, 1), acked);
    assert_int_equal(committed(&b, 0), -1);
    assert_int_equal(kc_consumer_close(b.consumer, LONG_US, NULL), KC_OK);
    bed_free(&b);
}

static void test_the_brokers_limits(void **state) {
    (void)state;
    fill("limits");
    struct bed b = bed_new("limits", "limits", KC_PROCESSED_EXPLICIT);
    static char large[5000];
    memset(large, 'm', sizeof large - 1);
    kc_offset at[] = {{.topic = b.topic, .partition = 0, .offset = 4, .metadata = {"short", 5}},
                      {.topic = b.topic, .partition = 1, .offset = 4, .metadata = {large, sizeof large - 1}},
                      {.topic = b.topic, .partition = 9, .offset = 4}};
    kc_error *e = NULL;
    assert_int_equal(kc_consumer_commit(b.consumer, at, sizeof at[0], 3, LONG_US, &e), KE_OFFSET_METADATA_TOO_LARGE);
    assert_int_equal(at[0].err, KC_OK);
    assert_int_equal(at[1].err, KE_OFFSET_METADATA_TOO_LARGE);
    assert_int_equal(at[2].err, KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_non_null(strstr(kc_error_message(e), "limits [1]"));
    kc_error_free(e);
    assert_int_equal(committed(&b, 0), 4);
    assert_int_equal(committed(&b, 1), -1);
    kc_topic_partition tp[2] = {{.topic = b.topic, .partition = 0}, {.topic = b.topic, .partition = 1}};
    kc_op *op = NULL;
    kc_offset got[2];
    assert_int_equal(kc_consumer_committed_start(b.consumer, tp, sizeof tp[0], 2, 0, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, LONG_US, NULL), KC_OK);
    assert_int_equal(kc_op_result_committed(op, got, sizeof got[0], 2), 2);
    assert_int_equal(got[0].metadata.size, 5);
    assert_memory_equal(got[0].metadata.p, "short", 5);
    kc_op_free(op);
    bed_free(&b);
}

/* Bytes of any value, none, and as many as offset.metadata.max.bytes allows. */
static void test_PR_13_metadata_comes_back_byte_for_byte(void **state) {
    (void)state;
    fill("bytes");
    struct bed b = bed_new("bytes", "bytes", KC_PROCESSED_EXPLICIT);
    static char most[4096];
    for (size_t i = 0; i < sizeof most; i++) most[i] = (char)(i % 128);
    const kc_bytes metadata[] = {{"a\0b\0", 4}, {"", 0}, {most, sizeof most}};
    for (size_t i = 0; i < sizeof metadata / sizeof metadata[0]; i++) {
        kc_offset at = {.topic = b.topic, .partition = 0, .offset = 4, .metadata = metadata[i]}, got;
        assert_int_equal(kc_consumer_commit(b.consumer, &at, sizeof at, 1, LONG_US, NULL), KC_OK);
        kc_topic_partition tp = {.topic = b.topic, .partition = 0};
        kc_op *op = NULL;
        assert_int_equal(kc_consumer_committed_start(b.consumer, &tp, sizeof tp, 1, 0, &op, NULL), KC_OK);
        assert_int_equal(kc_op_wait(op, LONG_US, NULL), KC_OK);
        assert_int_equal(kc_op_result_committed(op, &got, sizeof got, 1), 1);
        assert_int_equal(got.metadata.size, metadata[i].size);
        assert_memory_equal(got.metadata.p, metadata[i].p, (size_t)metadata[i].size);
        kc_op_free(op);
    }
    bed_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_PR_13_metadata_comes_back_byte_for_byte),
        cmocka_unit_test(test_goes_on_where_it_was),
        cmocka_unit_test(test_a_broker_that_is_killed_while_it_commits),
        cmocka_unit_test(test_the_brokers_limits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
