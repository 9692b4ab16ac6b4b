/* testkit_rig.h - what the tests of the test kit share: checks that tell the kit's error, a cluster that one test has to itself, records in and out. */
#ifndef TESTKIT_RIG_H
#define TESTKIT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <kclient/kclient_test.h>
#include <kclient/producer.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS(n) ((n) * INT64_C(1000000))

/* A call that is to succeed; its last argument is &error. */
static kc_error *error;
static inline void succeeded(kc_err err, const char *what, int line) {
    kc_error *e = error;
    error = NULL; /* the next test begins anew */
    if (err != KC_OK) fail_msg("line %d: %s: %s: %s", line, what, kc_err_name(err), e ? kc_error_message(e) : "no error was given");
    assert_null(e);
}
#define GOOD(call) succeeded((call), #call, __LINE__)
/* One that is to fail with this code, and a text that has this in it. */
static inline void failed(kc_err err, kc_err wanted, const char *part, const char *what, int line) {
    kc_error *e = error;
    error = NULL;
    if (err != wanted) fail_msg("line %d: %s: %s, not %s: %s", line, what, kc_err_name(err), kc_err_name(wanted), e ? kc_error_message(e) : "");
    assert_non_null(e);
    assert_int_equal(kc_error_code(e), wanted);
    if (!strstr(kc_error_message(e), part)) fail_msg("line %d: %s: '%s' is not in: %s", line, what, part, kc_error_message(e));
    kc_error_free(e);
}
#define BAD(call, code, part) failed((call), (code), (part), #call, __LINE__)

static inline kc_test_cluster *start(kc_test_options o) {
    kc_test_cluster *c = NULL;
    GOOD(kc_test_cluster_start(&o, sizeof o, &c, &error));
    return c;
}
#define START(...) start((kc_test_options){__VA_ARGS__})

/* Waits; a failure is told by the caller's next check. */
static inline bool comes_true(bool (*holds)(int64_t x), int64_t x) {
    for (int i = 0; i < 6000; i++) {
        if (holds(x)) return true;
        usleep(10000);
    }
    return false;
}
static inline bool process_is_gone(int64_t pid) {
    char path[60], text[300] = "";
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *f = fopen(path, "r");
    if (!f) return true;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    const char *state = n ? strrchr(text, ')') : NULL;
    return !state || state[2] == 'Z'; /* of another parent, which will wait for it */
}
static inline bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

/* What a node is at this moment. */
static inline kc_test_node node_of(kc_test_cluster *c, int32_t id) {
    kc_test_info *info = NULL;
    kc_test_node n = {.id = -1}, out = {.id = -1};
    GOOD(kc_test_describe(c, &info, &error));
    for (size_t i = 0; kc_test_info_node(info, i, &n) == KC_OK; i++)
        if (n.id == id) out = n;
    kc_test_info_free(info);
    out.address = NULL; /* it was the description's */
    return out;
}

/* A client of the test's own. */
static inline kc_client *client_of(const char *bootstrap, const char *name, const char *value) {
    kc_config *config = kc_config_new();
    kc_client *client = NULL;
    GOOD(kc_config_set(config, "bootstrap.servers", bootstrap, &error));
    if (name) GOOD(kc_config_set(config, name, value, &error));
    GOOD(kc_client_new(config, &client, &error));
    kc_config_free(config);
    return client;
}
static inline kc_err send_one(kc_client *client, const char *topic, const char *value, kc_report *report) {
    kc_producer *producer = NULL;
    GOOD(kc_producer_new(client, NULL, &producer, &error));
    kc_record r = {.topic = kc_client_topic(client, topic), .value = {value, strlen(value)}};
    kc_err err = kc_producer_send_wait(producer, &r, report, NULL);
    (void)kc_producer_close(producer, SECONDS(30), NULL);
    kc_producer_free(producer);
    return err;
}
/* How many records partition 0 of a topic has given out, by its leader's high watermark. */
static inline int64_t stored_in(kc_test_cluster *c, const char *topic) {
    kc_cluster_info *info = NULL;
    kc_partition_info p = {.high_watermark = -1};
    GOOD(kc_admin_describe(kc_test_cluster_client(c), topic, SECONDS(30), &info, &error));
    (void)kc_cluster_info_partition(info, 0, 0, &p);
    int64_t n = p.high_watermark;
    kc_cluster_info_free(info);
    return n;
}

#endif
