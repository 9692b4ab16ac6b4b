/* The administration calls against a scripted broker on a real socket: items and their errors, retries, the controller, leaders, answers.
 */
#include "admin_server.h"

#include <time.h>

/* One of the script's numbers, as the server left it. */
#define SAW(field) (pthread_mutex_lock(&script_lock), saw = script.field, pthread_mutex_unlock(&script_lock), saw)
static int32_t saw;

static void begin(void) {
    pthread_mutex_lock(&script_lock);
    memset(&script, 0, sizeof script);
    script.controller = 1;
    pthread_mutex_unlock(&script_lock);
}

static void test_create_topics(void **state) {
    (void)state;
    begin();
    script.codes[0] = KE_TOPIC_ALREADY_EXISTS;
    script.codes[1] = 37;
    const kc_config_pair config = {.name = "retention.ms", .value = "5"};
    kc_topic_new t[3] = {
        {.name = "good", .partitions = 3, .configs = &config, .config_count = 1}, {.name = "there"}, {.name = "few", .partitions = 1}};
    kc_error *e = NULL;
    assert_int_equal(kc_admin_create_topics(client, t, sizeof t[0], 3, 0, 10000000, &e), KE_TOPIC_ALREADY_EXISTS);
    assert_int_equal(t[0].err, KC_OK);
    assert_string_equal(t[0].message, "");
    assert_int_equal(t[1].err, KE_TOPIC_ALREADY_EXISTS);
    assert_non_null(strstr(t[1].message, "exists"));
    assert_int_equal(t[2].err, 37);
    assert_string_equal(t[2].message, "the broker's own words");
    assert_non_null(strstr(kc_error_message(e), "create topic there"));
    kc_error_free(e);
}

static void test_create_topics_where_they_are_to_be(void **state) {
    (void)state;
    begin();
    const int32_t replicas[] = {1, 2, 2, 3};
    kc_topic_new t = {.name = "good", .partitions = 2, .replication_factor = 2, .replicas = replicas};
    assert_int_equal(kc_admin_create_topics(client, &t, sizeof t, 1, 0, 10000000, NULL), KC_OK);
    assert_int_equal(SAW(placed), 7912923);
    t.partitions = 0; /* whose they are cannot be told then */
    assert_int_equal(kc_admin_create_topics(client, &t, sizeof t, 1, 0, 10000000, NULL), KC_INVALID);
}

/* The controller moved: asked again, with fresh metadata; items that have their answer are not sent again. */
static void test_not_controller_is_followed(void **state) {
    (void)state;
    begin();
    script.codes[0] = script.codes[1] = KE_NOT_CONTROLLER;
    kc_topic_new t[2] = {{.name = "good"}, {.name = "late"}};
    assert_int_equal(kc_admin_create_topics(client, t, sizeof t[0], 2, 0, 20000000, NULL), KC_OK);
    assert_int_equal(SAW(count), 3);
    assert_int_equal(SAW(last_topics), 1);
    assert_true(SAW(metadata_requests) >= 1);
    assert_int_equal(t[0].err + t[1].err, KC_OK);
}

static void test_time_runs_out(void **state) {
    (void)state;
    begin();
    for (int i = 0; i < 8; i++) script.codes[i] = KE_NOT_CONTROLLER;
    kc_topic_new t[2] = {{.name = "good"}, {.name = "late"}};
    kc_error *e = NULL;
    assert_int_equal(kc_admin_create_topics(client, t, sizeof t[0], 2, 0, 1000000, &e), KC_TIMED_OUT);
    assert_int_equal(t[0].err, KC_OK);
    assert_int_equal(t[1].err, KC_TIMED_OUT);
    assert_non_null(strstr(kc_error_message(e), "controller")); /* what it last met */
    kc_error_free(e);
}

static void test_a_broken_connection_is_retried(void **state) {
    (void)state;
    begin();
    script.drop = 2;
    kc_topic_new t = {.name = "x"};
    assert_int_equal(kc_admin_create_topics(client, &t, sizeof t, 1, 0, 20000000, NULL), KC_OK);
    assert_int_equal(SAW(drop), 0);
}

/* Two tries: the first one's answer is lost on the way (0), or has this code; the second one's has that. */
static void begin_with(int16_t first, int16_t second) {
    begin();
    script.drop = first == 0;
    script.codes[0] = first == 0 ? second : first;
    script.codes[1] = first == 0 ? KE_NONE : second;
}

/* A request had its effect, and its answer was lost on the way, or the broker gave up waiting for it, or lost its office before the change was
 * committed (the next controller found it in its log): the repeated one finds the work done. */
static void test_its_own_first_try_is_no_failure(void **state) {
    (void)state;
    static const int16_t firsts[] = {0, KE_REQUEST_TIMED_OUT, KE_NOT_CONTROLLER};
    for (size_t i = 0; i < KW_COUNTOF(firsts); i++) {
        begin_with(firsts[i], KE_TOPIC_ALREADY_EXISTS);
        script.lags = 2;
        kc_topic_new t = {.name = "t", .partitions = 2, .replication_factor = 1};
        assert_int_equal(kc_admin_create_topics(client, &t, sizeof t, 1, 0, 20000000, NULL), KC_OK);
        assert_int_equal(t.err, KC_OK);
        assert_string_equal(t.message, "");
        assert_int_equal(SAW(lags), 0); /* looked until it was seen */
        begin_with(firsts[i], KE_TOPIC_ALREADY_EXISTS); /* one of another shape is somebody else's */
        t.partitions = 3;
        assert_int_equal(kc_admin_create_topics(client, &t, sizeof t, 1, 0, 20000000, NULL), KE_TOPIC_ALREADY_EXISTS);
        assert_non_null(strstr(t.message, "exists"));
        begin_with(firsts[i], KE_UNKNOWN_TOPIC_OR_PARTITION);
        kc_admin_item item = {.name = "gone"};
        assert_int_equal(kc_admin_delete_topics(client, &item, sizeof item, 1, 20000000, NULL), KC_OK);
        for (int32_t count = 1; count <= 2; count++) {
            begin_with(firsts[i], KE_INVALID_PARTITIONS);
            item = (kc_admin_item){.name = "t", .count = count};
            assert_int_equal(kc_admin_create_partitions(client, &item, sizeof item, 1, 20000000, NULL),
                             count == 2 ? KC_OK : KE_INVALID_PARTITIONS);
            assert_string_equal(item.message, count == 2 ? "" : "the topic has so many");
        }
    }
    /* At the first try it is what it says; and a trial changes nothing. */
    begin();
    script.codes[0] = script.codes[1] = KE_TOPIC_ALREADY_EXISTS;
    script.codes[2] = KE_UNKNOWN_TOPIC_OR_PARTITION;
    script.codes[3] = KE_INVALID_PARTITIONS;
    kc_topic_new t = {.name = "t", .partitions = 2};
    assert_int_equal(kc_admin_create_topics(client, &t, sizeof t, 1, 0, 20000000, NULL), KE_TOPIC_ALREADY_EXISTS);
    pthread_mutex_lock(&script_lock);
    script.drop = 1;
    pthread_mutex_unlock(&script_lock);
    assert_int_equal(kc_admin_create_topics(client, &t, sizeof t, 1, 1, 20000000, NULL), KE_TOPIC_ALREADY_EXISTS);
    kc_admin_item item = {.name = "t", .count = 2};
    assert_int_equal(kc_admin_delete_topics(client, &item, sizeof item, 1, 20000000, NULL), KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(kc_admin_create_partitions(client, &item, sizeof item, 1, 20000000, NULL), KE_INVALID_PARTITIONS);
}

/* ---- Operations: what they are given may go at once ---- */

static kc_op *await(kc_op *op, uint64_t opaque, kc_err want) {
    kc_ready r;
    struct pollfd f = {kc_client_fd(client), POLLIN, 0};
    bool told = false;
    while (!told) {
        assert_int_equal(poll(&f, 1, 20000), 1);
        while (kc_client_ready(client, &r, sizeof r, 1)) told |= r.kind == KC_READY_OP && r.opaque == opaque;
    }
    assert_int_equal(kc_op_opaque(op), opaque);
    assert_int_equal(kc_op_wait(op, 0, NULL), want);
    return op;
}

static void test_started_create_topics(void **state) {
    (void)state;
    begin();
    script.codes[0] = KE_NOT_CONTROLLER;
    script.codes[1] = 37;
    kc_op *op = NULL;
    kc_admin_result r[3];
    char *name = strdup("few"), *key = strdup("retention.ms"), *value = strdup("5");
    kc_config_pair *config = malloc(sizeof *config);
    kc_topic_new *t = calloc(2, sizeof *t);
    *config = (kc_config_pair){.name = key, .value = value};
    t[0] = (kc_topic_new){.name = name, .partitions = 1, .configs = config, .config_count = 1};
    t[1] = (kc_topic_new){.name = "good"};
    assert_int_equal(kc_admin_create_topics_start(client, t, sizeof *t, 2, 0, 20000000, 11, &op, NULL), KC_OK);
    free(t);
    free(config);
    free(name);
    free(key);
    free(value);
    assert_int_equal(kc_op_result_offsets(op, NULL, 0, 0), 0);
    assert_int_equal(kc_op_result_items(await(op, 11, 37), r, sizeof r[0], 1), 2);
    assert_int_equal(kc_op_result_items(op, r, sizeof r[0], 3), 2);
    assert_string_equal(r[0].name, "few");
    assert_int_equal(r[0].err, 37);
    assert_string_equal(r[0].message, "the broker's own words");
    assert_string_equal(r[1].name, "good");
    assert_int_equal(r[1].err, KC_OK);
    assert_string_equal(r[1].message, "");
    assert_null(kc_op_result_configs(op)); /* of another kind */
    assert_null(kc_op_result_cluster(op));
    kc_op_free(op);
    kc_topic_new bad = {.name = NULL};
    assert_int_equal(kc_admin_create_topics_start(client, &bad, sizeof bad, 1, 0, 0, 0, &op, NULL), KC_INVALID);
    bad.name = "x";
    assert_int_equal(kc_admin_create_topics_start(client, &bad, sizeof bad, 1, 0, 0, 0, NULL, NULL), KC_INVALID);
}

static void test_started_calls_of_items(void **state) {
    (void)state;
    begin();
    script.codes[1] = KE_INVALID_PARTITIONS;
    kc_op *op = NULL;
    kc_admin_result r;
    kc_admin_item item = {.name = "t", .count = 9};
    assert_int_equal(kc_admin_delete_topics_start(client, &item, sizeof item, 1, 0, 12, &op, NULL), KC_OK);
    assert_int_equal(kc_op_result_items(await(op, 12, KC_OK), &r, sizeof r, 1), 1);
    assert_int_equal(r.err, KC_OK);
    kc_op_free(op);
    assert_int_equal(kc_admin_create_partitions_start(client, &item, sizeof item, 1, 0, 13, &op, NULL), KC_OK);
    assert_int_equal(kc_op_result_items(await(op, 13, KE_INVALID_PARTITIONS), &r, sizeof r, 1), 1);
    assert_string_equal(r.message, "the topic has so many");
    kc_op_free(op);
    const kc_config_pair unset = {.name = "a", .value = NULL};
    kc_config_alter alter = {.resource = KC_RESOURCE_TOPIC, .name = "t", .pairs = &unset, .pair_count = 1};
    assert_int_equal(kc_admin_alter_configs_start(client, &alter, sizeof alter, 1, 0, 14, &op, NULL), KC_OK);
    assert_int_equal(kc_op_result_items(await(op, 14, KC_OK), &r, sizeof r, 1), 1);
    assert_int_equal(r.err, KC_OK);
    kc_op_free(op);
    kc_topic_partition tp = {.topic = kc_client_topic(client, "t"), .partition = 0, .offset = 5};
    assert_int_equal(kc_admin_delete_records_start(client, &tp, sizeof tp, 1, 0, 15, &op, NULL), KC_OK);
    tp.offset = 0;
    assert_int_equal(kc_op_result_offsets(await(op, 15, KC_OK), &tp, sizeof tp, 1), 1);
    assert_int_equal(tp.offset, 5);
    assert_int_equal(kc_op_result_items(op, &r, sizeof r, 1), 0);
    kc_op_free(op);
}

static void test_started_descriptions(void **state) {
    (void)state;
    begin();
    kc_op *op = NULL;
    char *name = strdup("t");
    assert_int_equal(kc_admin_describe_configs_start(client, KC_RESOURCE_TOPIC, name, 0, 16, &op, NULL), KC_OK);
    memset(name, 'x', 1);
    kc_config_list *l = kc_op_result_configs(await(op, 16, KC_OK));
    assert_int_equal(kc_config_list_count(l), 2);
    assert_null(kc_op_result_configs(op)); /* taken */
    kc_op_free(op);
    kc_config_list_free(l);
    name[0] = 't';
    assert_int_equal(kc_admin_describe_start(client, name, 0, 17, &op, NULL), KC_OK);
    free(name);
    (void)await(op, 17, KC_OK);
    kc_op *other = NULL;
    assert_int_equal(kc_admin_describe_start(client, NULL, 0, 18, &other, NULL), KC_OK);
    kc_cluster_info *i = kc_op_result_cluster(op);
    kc_op_free(op);
    assert_int_equal(kc_cluster_info_topic_count(i), 1);
    kc_cluster_info_free(i);
    (void)await(other, 18, KC_OK);
    kc_op_free(other); /* with its result */
    assert_int_equal(kc_admin_describe_configs_start(client, KC_RESOURCE_BROKER, "1x", 0, 0, &op, NULL), KC_INVALID);
}

/* Cancelled, or freed while it is under way: what it was given is its own. */
static void test_started_and_dropped(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        begin();
        kc_op *op = NULL;
        kc_admin_result r;
        kc_topic_new t = {.name = "good"};
        assert_int_equal(kc_admin_create_topics_start(client, &t, sizeof t, 1, 0, 20000000, 0, &op, NULL), KC_OK);
        if (i & 1) kc_op_cancel(op);
        if (i & 2) {
            kc_err err = kc_op_wait(op, 20000000, NULL);
            assert_true(err == KC_OK || (err == KC_CANCELLED && (i & 1)));
            assert_int_equal(kc_op_result_items(op, &r, sizeof r, 1), 1);
            assert_int_equal(r.err, err);
        }
        kc_op_free(op);
    }
}

static void test_an_answer_that_leaves_the_item_out(void **state) {
    (void)state;
    begin();
    script.leave_out = true;
    kc_topic_new t = {.name = "x"};
    assert_int_equal(kc_admin_create_topics(client, &t, sizeof t, 1, 0, 5000000, NULL), KC_BAD_MESSAGE);
    assert_int_equal(t.err, KC_BAD_MESSAGE);
}

static void test_bad_arguments(void **state) {
    (void)state;
    begin();
    kc_topic_new t = {.name = NULL};
    kc_error *e = NULL;
    assert_int_equal(kc_admin_create_topics(client, &t, sizeof t, 1, 0, 0, &e), KC_INVALID);
    kc_error_free(e);
    t.name = "x";
    assert_int_equal(kc_admin_create_topics(client, &t, 8, 1, 0, 0, NULL), KC_INVALID);
    t.partitions = -1;
    assert_int_equal(kc_admin_create_topics(client, &t, sizeof t, 1, 0, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_delete_topics(client, NULL, sizeof(kc_admin_item), 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_describe(client, NULL, 0, NULL, NULL), KC_INVALID);
    kc_topic_partition tp = {.topic = 999};
    assert_int_equal(kc_admin_delete_records(client, &tp, sizeof tp, 1, 0, NULL), KC_INVALID);
    assert_int_equal(SAW(count), 0);
}

static void test_delete_records_asks_the_leader(void **state) {
    (void)state;
    begin();
    script.codes[0] = KE_NOT_LEADER_OR_FOLLOWER; /* the first partition once more */
    script.codes[1] = KE_OFFSET_OUT_OF_RANGE;
    int32_t topic = kc_client_topic(client, "t");
    kc_topic_partition tp[3] = {{.topic = topic, .partition = 0, .offset = 5},
                                {.topic = topic, .partition = 1, .offset = 6},
                                {.topic = topic, .partition = 7, .offset = 6}};
    assert_int_equal(kc_admin_delete_records(client, tp, sizeof tp[0], 3, 20000000, NULL), KE_OFFSET_OUT_OF_RANGE);
    assert_int_equal(tp[0].err, KC_OK);
    assert_int_equal(tp[0].offset, 5);
    assert_int_equal(tp[1].err, KE_OFFSET_OUT_OF_RANGE);
    assert_int_equal(tp[2].err, KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(SAW(count), 3);
    assert_int_equal(SAW(last_topics), 1);
}

static void test_alter_configs(void **state) {
    (void)state;
    begin();
    const kc_config_pair unset = {.name = "a", .value = NULL}, set = {.name = "a", .value = "1"};
    kc_config_alter items[2] = {{.resource = KC_RESOURCE_TOPIC, .name = "t", .pairs = &unset, .pair_count = 1},
                                {.resource = KC_RESOURCE_BROKER, .name = "t", .pairs = &set, .pair_count = 1}};
    assert_int_equal(kc_admin_alter_configs(client, items, sizeof items[0], 2, 5000000, NULL), KE_INVALID_CONFIG);
    assert_int_equal(items[0].err, KC_OK); /* a null value deletes */
    assert_int_equal(items[1].err, KE_INVALID_CONFIG);
}

static void test_describe_configs(void **state) {
    (void)state;
    begin();
    script.codes[0] = KE_COORDINATOR_LOAD_IN_PROGRESS; /* some passing error */
    kc_config_list *l = NULL;
    assert_int_equal(kc_admin_describe_configs(client, KC_RESOURCE_TOPIC, "t", 5000000, &l, NULL), KC_OK);
    assert_int_equal(SAW(count), 2);
    assert_int_equal(kc_config_list_count(l), 2);
    kc_config_item i;
    assert_int_equal(kc_config_list_get(l, 0, &i), KC_OK);
    assert_string_equal(i.name, "retention.ms");
    assert_string_equal(i.value, "1000");
    assert_string_equal(i.source, "topic");
    assert_string_equal(i.doc, "how long");
    assert_int_equal(kc_config_list_get(l, 1, &i), KC_OK);
    assert_null(i.value);
    assert_true(i.sensitive && i.read_only);
    assert_string_equal(i.doc, "");
    assert_int_equal(kc_config_list_get(l, 2, &i), KC_INVALID);
    kc_config_list_free(l);
    kc_error *e = NULL;
    script.count = 0;
    script.codes[0] = KE_UNKNOWN_TOPIC_OR_PARTITION;
    assert_int_equal(kc_admin_describe_configs(client, KC_RESOURCE_TOPIC, "nix", 5000000, &l, &e), KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_non_null(strstr(kc_error_message(e), "nix"));
    kc_error_free(e);
}

static void test_describe(void **state) {
    (void)state;
    begin();
    kc_cluster_info *i = NULL;
    assert_int_equal(kc_admin_describe(client, "t", 5000000, &i, NULL), KC_OK);
    assert_string_equal(kc_cluster_info_id(i), "the-cluster");
    assert_int_equal(kc_cluster_info_controller(i), 1);
    kc_broker_info b;
    assert_int_equal(kc_cluster_info_broker(i, 0, &b), KC_OK);
    assert_int_equal(b.port, srv->port);
    assert_string_equal(b.rack, "r1");
    kc_topic_info t;
    assert_int_equal(kc_cluster_info_topic_count(i), 1);
    assert_int_equal(kc_cluster_info_topic(i, 0, &t), KC_OK);
    assert_string_equal(t.name, "t");
    assert_int_equal(t.id[0], 9);
    assert_int_equal(t.partition_count, 2);
    for (size_t p = 0; p < 2; p++) { /* by number, whatever the answer's order */
        kc_partition_info o;
        assert_int_equal(kc_cluster_info_partition(i, 0, p, &o), KC_OK);
        assert_int_equal(o.partition, p);
        assert_int_equal(o.leader_epoch, 3 + (int)p);
        assert_int_equal(o.log_start, 10 + (int)p);
        assert_int_equal(o.high_watermark, 20 + (int)p);
        assert_int_equal(o.log_end, 30 + (int)p);
        assert_int_equal(o.replica_count, 1);
        assert_int_equal(o.replicas[0], 1);
    }
    kc_cluster_info_free(i);
    assert_int_equal(kc_admin_describe(client, "nix", 5000000, &i, NULL), KC_OK);
    assert_int_equal(kc_cluster_info_topic(i, 0, &t), KC_OK);
    assert_int_equal(t.err, KE_UNKNOWN_TOPIC_OR_PARTITION);
    kc_cluster_info_free(i);
    assert_int_equal(kc_admin_describe(client, NULL, 5000000, &i, NULL), KC_OK);
    assert_int_equal(kc_cluster_info_topic_count(i), 1);
    kc_cluster_info_free(i);
}

static kc_client *client_new(void) {
    kc_client *c = NULL;
    char address[40];
    snprintf(address, sizeof address, "127.0.0.1:%u", srv->port);
    kc_config *f = kc_config_new();
    (void)kc_config_set(f, "bootstrap.servers", address, NULL);
    (void)kc_config_set(f, "retry.backoff.ms", "10", NULL);
    (void)kc_client_new(f, &c, NULL);
    kc_config_free(f);
    return c;
}

/* Before Metadata v4 asking for a topic may create it: an old broker is refused, not asked. */
static void test_deleting_records_creates_no_topic(void **state) {
    (void)state;
    begin();
    pthread_mutex_lock(&script_lock);
    script.metadata_max = 3;
    pthread_mutex_unlock(&script_lock);
    kc_client *old = client_new();
    kc_topic_partition tp = {.topic = kc_client_topic(old, "t"), .offset = 5};
    assert_int_equal(kc_admin_delete_records(old, &tp, sizeof tp, 1, 10000000, NULL), KC_UNSUPPORTED);
    assert_int_equal(tp.err, KC_UNSUPPORTED);
    kc_client_free(old);
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static kc_err throttled_call(int which) {
    kc_config_list *l = NULL;
    kc_cluster_info *i = NULL;
    kc_topic_partition tp = {.topic = kc_client_topic(client, "t"), .offset = 5};
    kc_err err = which == 0   ? kc_admin_describe_configs(client, KC_RESOURCE_TOPIC, "t", 10000000, &l, NULL)
                 : which == 1 ? kc_admin_delete_records(client, &tp, sizeof tp, 1, 10000000, NULL)
                              : kc_admin_describe(client, "t", 10000000, &i, NULL);
    kc_config_list_free(l);
    kc_cluster_info_free(i);
    return err;
}

/* CX-12: whatever the call, a broker that throttles gets nothing until the time is over. */
static void test_CX_12_throttle_times_are_kept(void **state) {
    (void)state;
    for (int which = 0; which < 3; which++) {
        begin();
        pthread_mutex_lock(&script_lock);
        script.throttle_ms = 200;
        pthread_mutex_unlock(&script_lock);
        int64_t start = now_ms();
        assert_int_equal(throttled_call(which), KC_OK);
        pthread_mutex_lock(&script_lock);
        script.throttle_ms = 0;
        pthread_mutex_unlock(&script_lock);
        assert_int_equal(throttled_call(0), KC_OK);
        assert_true(now_ms() - start >= 200);
    }
}

/* One leader that is down does not hide what is known of the others; records are deleted once there is another. */
static void test_a_leader_is_away(void **state) {
    (void)state;
    struct server *dead = server_new();
    uint16_t port = dead->port;
    server_free(dead);
    begin();
    script.away = port;
    kc_cluster_info *i = NULL;
    kc_partition_info p;
    assert_int_equal(kc_admin_describe(client, "t", 20000000, &i, NULL), KC_OK);
    assert_int_equal(kc_cluster_info_partition(i, 0, 0, &p), KC_OK);
    assert_int_equal(p.err, KC_OK);
    assert_int_equal(p.high_watermark, 20);
    assert_int_equal(kc_cluster_info_partition(i, 0, 1, &p), KC_OK);
    assert_int_equal(p.leader, 2);
    assert_int_equal(p.high_watermark, -1);
    assert_int_not_equal(p.err, KC_OK);
    kc_cluster_info_free(i);
    kc_op *op = NULL;
    kc_topic_partition tp = {.topic = kc_client_topic(client, "t"), .partition = 1, .offset = 6};
    assert_int_equal(kc_admin_delete_records_start(client, &tp, sizeof tp, 1, 20000000, 0, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, 300000, NULL), KC_TIMED_OUT);
    pthread_mutex_lock(&script_lock);
    script.away = 0;
    pthread_mutex_unlock(&script_lock);
    assert_int_equal(kc_op_wait(op, 20000000, NULL), KC_OK);
    kc_op_free(op);
}

/* Memory runs out at each allocation in turn: an error or success, never a leak or a hang. */
static void test_allocation_failures(void **state) {
    (void)state;
    for (int64_t at = 0; at < 60; at++) {
        begin();
        kc_topic_new t = {.name = "x"};
        kc_cluster_info *i = NULL;
        kc_error *e = NULL;
        kw_alloc_fail_after(at);
        kc_err a = kc_admin_create_topics(client, &t, sizeof t, 1, 0, 5000000, &e);
        kw_alloc_fail_after(-1);
        kc_error_free(e);
        assert_true(a == KC_OK || a == KC_NO_MEMORY || a == KC_TRANSPORT || a == KC_BAD_MESSAGE ||
                    a == KC_TIMED_OUT); /* the scripted broker had none, and did not answer */
        kc_err b = kc_admin_describe(client, "t", 10000000, &i, NULL);
        if (a == KC_TIMED_OUT && b == KC_BAD_MESSAGE) /* the answer that it swallowed is missed when the next one comes */
            b = kc_admin_describe(client, "t", 10000000, &i, NULL);
        assert_int_equal(b, KC_OK);
        kc_cluster_info_free(i);
    }
}

static int setup(void **state) {
    (void)state;
    kw_arena_init(&arena, 0);
    begin();
    srv = server_new_with(hook);
    client = client_new();
    return client ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    kc_client_free(client);
    server_free(srv);
    kw_arena_deinit(&arena);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create_topics),
        cmocka_unit_test(test_create_topics_where_they_are_to_be),
        cmocka_unit_test(test_not_controller_is_followed),
        cmocka_unit_test(test_time_runs_out),
        cmocka_unit_test(test_a_broken_connection_is_retried),
        cmocka_unit_test(test_an_answer_that_leaves_the_item_out),
        cmocka_unit_test(test_its_own_first_try_is_no_failure),
        cmocka_unit_test(test_started_create_topics),
        cmocka_unit_test(test_started_calls_of_items),
        cmocka_unit_test(test_started_descriptions),
        cmocka_unit_test(test_started_and_dropped),
        cmocka_unit_test(test_a_leader_is_away),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_delete_records_asks_the_leader),
        cmocka_unit_test(test_alter_configs),
        cmocka_unit_test(test_describe_configs),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_deleting_records_creates_no_topic),
        cmocka_unit_test(test_CX_12_throttle_times_are_kept),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
