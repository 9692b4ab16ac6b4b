/* The client's properties: names, aliases, ranges, defaults, what contradicts what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/config.h"
#include "core/outcome.h"
#include "produce/partitioner.h"
#include "wire/compress.h"
#include "wire/kerror.h"

static kc_config *config_of(const char *const *pairs) {
    kc_config *c = kc_config_new();
    kc_error *e = NULL;
    for (; pairs && pairs[0]; pairs += 2) {
        if (kc_config_set(c, pairs[0], pairs[1], &e) != KC_OK) fail_msg("%s", kc_error_message(e));
    }
    return c;
}

static struct kc_settings *settings_of(const char *const *pairs) {
    kc_config *c = config_of(pairs);
    struct kc_settings *s = NULL;
    kc_error *e = NULL;
    if (kc_settings_new(c, NULL, &s, &e) != KC_OK) fail_msg("%s", kc_error_message(e));
    kc_config_free(c);
    return s;
}

#define SETTINGS(...) settings_of((const char *const[]){__VA_ARGS__, NULL})

static void test_defaults_of_requirement_C6(void **state) {
    (void)state;
    struct kc_settings *s = settings_of(NULL);
    assert_false(s->sync);
    assert_int_equal(s->acks, -1);
    assert_true(s->idempotence);
    assert_int_equal(s->linger_us, 5000);
    assert_int_equal(s->queue_records_max, 100000);
    assert_int_equal(s->queue_bytes_max, 64 << 20);
    assert_int_equal(s->enqueue_timeout_us, KC_FOREVER);
    assert_int_equal(s->batch_bytes_max, 1000000);
    assert_int_equal(s->batch_records_max, 10000);
    assert_int_equal(s->delivery_timeout_us, 120000000);
    assert_true(s->check_crcs);
    assert_true(s->own_thread);
    assert_true(s->rebootstrap);
    assert_true(s->report_all);
    assert_int_equal(s->producer_in_flight_max, 5);
    assert_int_equal(s->codec, KW_CODEC_NONE);
    assert_int_equal(s->level, KW_LEVEL_DEFAULT);
    assert_int_equal(s->partitioner, KC_PARTITIONER_MURMUR2_RANDOM);
    assert_true(s->receive_bytes_max > s->fetch_max_bytes + s->fetch_partition_bytes_max);
    kc_settings_free(s);
}

static void test_old_names_keep_their_meaning(void **state) {
    (void)state;
    struct kc_settings *s = SETTINGS(
        "metadata.broker.list", "a:1, [::1]:9093,b", "request.required.acks", "1", "message.send.max.retries", "7", "partition.class",
        "kafka.producer.DefaultPartitioner", "producer.type", "sync", "queue.buffering.max.ms", "250", "queue.buffering.max.messages", "99",
        "queue.buffering.max.kbytes", "10", "queue.enqueue.timeout.ms", "0", "batch.num.messages", "200", "compression.codec", "1",
        "message.timeout.ms", "9000", "socket.timeout.ms", "1234", "fetch.message.max.bytes", "777", "auto.offset.reset", "smallest");
    assert_string_equal(s->bootstrap, "a:1, [::1]:9093,b");
    assert_int_equal(s->acks, 1);
    assert_false(s->idempotence);
    assert_int_equal(s->retries_max, 7);
    assert_true(s->sync);
    assert_int_equal(s->linger_us, 250000);
    assert_int_equal(s->queue_records_max, 99);
    assert_int_equal(s->queue_bytes_max, 10240);
    assert_int_equal(s->enqueue_timeout_us, 0);
    assert_int_equal(s->batch_records_max, 200);
    assert_int_equal(s->codec, KW_CODEC_GZIP);
    assert_int_equal(s->delivery_timeout_us, 9000000);
    assert_int_equal(s->request_timeout_us, 1234000);
    assert_int_equal(s->request_timeout_produce_us, 1234000);
    assert_int_equal(s->fetch_partition_bytes_max, 777);
    assert_int_equal(s->offset_reset, 1);
    kc_settings_free(s);
}

static void test_profiles(void **state) {
    (void)state;
    struct kc_settings *s = SETTINGS("profile", "article");
    assert_int_equal(s->queue_records_max, 10000);
    assert_int_equal(s->linger_us, 5000000);
    assert_int_equal(s->batch_records_max, 200);
    assert_int_equal(s->acks, 0);
    assert_int_equal(s->retries_max, 3);
    assert_int_equal(s->enqueue_timeout_us, KC_FOREVER);
    assert_true(s->sync);
    assert_false(s->idempotence);
    kc_settings_free(s);
    s = SETTINGS("profile", "article", "acks", "all", "linger.ms", "0.5");
    assert_int_equal(s->acks, -1);
    assert_int_equal(s->linger_us, 500);
    kc_settings_free(s);
    s = SETTINGS("profile", "reliable");
    assert_true(s->sync && s->idempotence);
    assert_int_equal(s->acks, -1);
    kc_settings_free(s);
}

static void expect_bad(const char *const *pairs, const char *part) {
    kc_config *c = config_of(pairs);
    struct kc_settings *s = NULL;
    kc_error *e = NULL;
    assert_int_equal(kc_settings_new(c, NULL, &s, &e), KC_CONFIG);
    assert_null(s);
    if (!strstr(kc_error_message(e), part)) fail_msg("no \"%s\" in \"%s\"", part, kc_error_message(e));
    assert_int_equal(kc_error_action(e), KC_ACTION_FIX_CONFIG);
    kc_error_free(e);
    kc_config_free(c);
}
#define EXPECT_BAD(part, ...) expect_bad((const char *const[]){__VA_ARGS__, NULL}, part)

static void test_idempotence_gives_way_or_complains(void **state) {
    (void)state;
    static const char *const turn_off[][2] = {{"acks", "1"}, {"acks", "0"}, {"retries", "0"}, {"max.in.flight", "6"}};
    for (size_t i = 0; i < KW_COUNTOF(turn_off); i++) {
        struct kc_settings *s = SETTINGS(turn_off[i][0], turn_off[i][1]);
        assert_false(s->idempotence);
        kc_settings_free(s);
        EXPECT_BAD("enable.idempotence=true needs", turn_off[i][0], turn_off[i][1], "enable.idempotence", "true");
    }
    struct kc_settings *s = SETTINGS("acks", "-1", "enable.idempotence", "true", "max.in.flight", "5");
    assert_true(s->idempotence);
    kc_settings_free(s);
}

static void test_role_over_client(void **state) {
    (void)state;
    kc_config *client = config_of((const char *const[]){"linger.ms", "1", "acks", "1", "buffer.memory", "1000000", NULL});
    kc_config *role = config_of((const char *const[]){"linger.ms", "2", "queue.buffering.max.kbytes", "3", NULL});
    struct kc_settings *s = NULL;
    assert_int_equal(kc_settings_new(client, role, &s, NULL), KC_OK);
    assert_int_equal(s->linger_us, 2000);
    assert_int_equal(s->acks, 1);
    assert_int_equal(s->queue_bytes_max, 3072); /* the nearer one, whatever its name */
    kc_settings_free(s);
    kc_config_free(client);
    kc_config_free(role);
}

static void test_twins_of_another_unit(void **state) {
    (void)state;
    kc_error *e = NULL;
    kc_config *c = config_of((const char *const[]){"queue.buffering.max.kbytes", "10", "buffer.memory", "2048", NULL});
    assert_string_equal(kc_config_get(c, "buffer.memory"), "2048");
    assert_string_equal(kc_config_get(c, "queue.buffering.max.kbytes"), "2");
    assert_int_equal(kc_config_set(c, "queue.buffering.max.kbytes", "5", &e), KC_OK);
    assert_string_equal(kc_config_get(c, "buffer.memory"), "5120");
    kc_config_free(c);
}

static void test_get_shows_the_effective_value(void **state) {
    (void)state;
    kc_config *c = config_of((const char *const[]){"profile", "article", "linger.ms", " 7 ", NULL});
    assert_string_equal(kc_config_get(c, "queue.buffering.max.ms"), "7");
    assert_string_equal(kc_config_get(c, "request.required.acks"), "0");
    assert_string_equal(kc_config_get(c, "connections.max.idle.ms"), "540000");
    assert_null(kc_config_get(c, "bootstrap.servers"));
    assert_null(kc_config_get(c, "no.such"));
    kc_config_free(c);
}

static void expect_refused(const char *name, const char *value, kc_err code, const char *part) {
    kc_config *c = kc_config_new();
    kc_error *e = NULL;
    assert_int_equal(kc_config_set(c, name, value, &e), code);
    if (!strstr(kc_error_message(e), part)) fail_msg("no \"%s\" in \"%s\"", part, kc_error_message(e));
    assert_int_equal(kc_error_code(e), code);
    kc_error_free(e);
    assert_int_equal(kc_config_set(c, name, value, NULL), code);
    kc_config_free(c);
}

static void test_errors_name_the_nearest_and_the_range(void **state) {
    (void)state;
    expect_refused("lingr.ms", "1", KC_CONFIG, "did you mean \"linger.ms\"");
    expect_refused("request.required.ack", "1", KC_CONFIG, "did you mean \"request.required.acks\"");
    expect_refused("xyzzy", "1", KC_CONFIG, "unknown property");
    expect_refused("acks", "2", KC_CONFIG, "-1, all, 0, 1");
    expect_refused("linger.ms", "-1", KC_CONFIG, "0 to 900000");
    expect_refused("linger.ms", "abc", KC_CONFIG, "0 to 900000");
    expect_refused("linger.ms", "nan", KC_CONFIG, "0 to 900000");
    /* Decimals are plain digits and a point: no other notation, and no comma where the application's locale has one. */
    static const char *const decimals[] = {"0x10", "1e3", ".", "1.2.3", "0,5", "900000.1", "99999999999999999999", "+1", "1 ms"};
    for (size_t i = 0; i < KW_COUNTOF(decimals); i++) expect_refused("linger.ms", decimals[i], KC_CONFIG, "0 to 900000");
    kc_config *c = config_of((const char *const[]){"linger.ms", "0.25000000000000000000000000", NULL});
    kc_config_free(c);
    expect_refused("batch.num.messages", "0", KC_CONFIG, "1 to 1000000");
    expect_refused("batch.num.messages", "10x", KC_CONFIG, "1 to 1000000");
    expect_refused("batch.num.messages", "99999999999999999999", KC_CONFIG, "1 to 1000000");
    expect_refused("enable.idempotence", "perhaps", KC_CONFIG, "true or false");
    expect_refused("compression.type", "brotli", KC_CONFIG, "zstd");
    expect_refused("bootstrap.servers", "host:port", KC_CONFIG, "host:port");
    expect_refused("bootstrap.servers", "[::1:9092", KC_CONFIG, "valid");
    expect_refused("bootstrap.servers", "h:70000", KC_CONFIG, "valid");
    expect_refused("security.protocol", "SSL", KC_UNSUPPORTED, "not in this build yet");
    expect_refused("ssl.ca.location", "/x", KC_UNSUPPORTED, "TLS");
    expect_refused("https.ca.location", "/x", KC_UNSUPPORTED, "TLS");
    expect_refused("sasl.mechanism", "PLAIN", KC_UNSUPPORTED, "SASL");
    expect_refused("transactional.id", "x", KC_UNSUPPORTED, "transactions");
    kc_error *e = NULL;
    assert_int_equal(kc_config_set(NULL, "a", "b", &e), KC_INVALID);
    kc_error_free(e);
}

static void test_known_properties_without_effect_warn_once(void **state) {
    (void)state;
    kc_config *c = config_of((const char *const[]){"statistics.interval.ms", "1000", "statistics.interval.ms", "2000", "socket.nagle.disable", "true",
                                                   "security.protocol", "plaintext", NULL});
    assert_non_null(strstr(kc_config_warning(c, 0), "statistics.interval.ms"));
    assert_non_null(strstr(kc_config_warning(c, 1), "socket.nagle.disable"));
    assert_null(kc_config_warning(c, 2));
    kc_config *d = kc_config_dup(c);
    assert_non_null(kc_config_warning(d, 1));
    kc_config_free(c);
    kc_config_free(d);
}

static void test_receive_cap_follows_the_fetch_size(void **state) {
    (void)state;
    EXPECT_BAD("fetch.max.bytes + 512", "fetch.max.bytes", "1000000", "receive.message.max.bytes", "1000100");
    struct kc_settings *s = SETTINGS("fetch.max.bytes", "200000000");
    assert_int_equal(s->receive_bytes_max, 200000512);
    kc_settings_free(s);
    s = SETTINGS("receive.message.max.bytes", "100000");
    assert_true(s->fetch_max_bytes + 512 <= s->receive_bytes_max);
    kc_settings_free(s);
}

static void test_levels(void **state) {
    (void)state;
    struct kc_settings *s = SETTINGS("compression.type", "zstd", "compression.zstd.level", "7", "compression.gzip.level", "2");
    assert_int_equal(s->level, 7);
    kc_settings_free(s);
    s = SETTINGS("compression.type", "gzip", "compression.level", "3");
    assert_int_equal(s->level, 3);
    kc_settings_free(s);
    EXPECT_BAD("level", "compression.type", "gzip", "compression.level", "15");
}

/* CX-08 for durations: -1, 0 and the largest value. */
static void test_durations(void **state) {
    (void)state;
    struct kc_settings *s = SETTINGS("connections.max.idle.ms", "0", "metadata.max.age.ms", "-1", "delivery.timeout.ms", "2147483647",
                                     "queue.enqueue.timeout.ms", "2147483647");
    assert_int_equal(s->connections_idle_us, KC_FOREVER);
    assert_int_equal(s->metadata_age_max_us, KC_FOREVER);
    assert_int_equal(s->delivery_timeout_us, INT64_C(2147483647000));
    assert_int_equal(s->enqueue_timeout_us, INT64_C(2147483647000));
    kc_settings_free(s);
}

static void test_the_table_explains_itself(void **state) {
    (void)state;
    kc_config_entry e;
    size_t n = 0;
    kc_config *c = kc_config_new();
    for (; kc_config_describe(n, &e) == KC_OK; n++) {
        assert_true(e.name[0] && e.text[0] && e.type[0] && e.range[0]);
        assert_true(strcmp(e.scope, "client") == 0 || strcmp(e.scope, "producer") == 0 || strcmp(e.scope, "consumer") == 0);
        if (e.def[0] && kc_config_set(c, e.name, e.def, NULL) != KC_OK) fail_msg("the default of %s is not valid", e.name);
    }
    assert_true(n > 50);
    assert_int_equal(kc_config_describe(n, &e), KC_INVALID);
    kc_config_free(c);
}

static void test_every_partitioner_can_be_named(void **state) {
    (void)state;
    for (int k = 0; k < KC_PARTITIONER_COUNT; k++) {
        struct kc_settings *s = SETTINGS("partitioner", kc_partitioner_name(k));
        assert_int_equal(s->partitioner, k);
        kc_settings_free(s);
    }
}

static void test_codes_have_names_and_texts(void **state) {
    (void)state;
    for (kc_err c = -1402; c <= 136; c++) {
        assert_non_null(kc_err_name(c));
        assert_non_null(kc_err_text(c));
        (void)kc_err_retriable(c);
    }
    assert_string_equal(kc_err_name(KC_QUEUE_FULL), "KC_QUEUE_FULL");
    assert_string_equal(kc_err_name(6), "NOT_LEADER_OR_FOLLOWER");
    assert_int_equal(kc_err_retriable(6), 1);
    assert_int_equal(kc_err_retriable(KC_CLOSED), 0);
    assert_int_equal(kc_err_from(KW_ENOMEM), KC_NO_MEMORY);
    assert_int_equal(kc_err_from(KE_NOT_CONTROLLER), KE_NOT_CONTROLLER);
}

static void test_errors_and_attempts(void **state) {
    (void)state;
    struct kc_attempts *a = kc_attempts_new();
    char detail[32];
    for (int i = 0; i < 100; i++) {
        snprintf(detail, sizeof detail, "try %d", i);
        kc_attempts_note(a, i, i, KC_TRANSPORT, "connect", detail);
    }
    kc_error *e = NULL;
    kc_error_make(&e, KC_TIMED_OUT, KC_MAYBE_PERSISTED, a, "after %d tries", 100);
    struct kc_attempts *other = kc_attempts_dup(a); /* goes its own way */
    kc_attempts_note(a, 100, 0, KC_EXPIRED, "queue", NULL);
    kc_attempts_unref(a);
    for (size_t i = 0; i < 16; i++) {
        kc_attempt t;
        assert_int_equal(kc_attempts_get(other, i, &t), KC_OK);
        assert_int_equal(t.at_ms, i < 8 ? (int)i : 84 + (int)i);
        snprintf(detail, sizeof detail, "try %d", (int)t.at_ms);
        assert_string_equal(t.detail, detail);
    }
    kc_attempts_note(other, 100, 0, KC_EXPIRED, "queue", NULL);
    assert_int_equal(kc_attempts_last(other), KC_EXPIRED);
    kc_attempts_unref(other);
    assert_int_equal(kc_error_attempt_count(e), 16);
    for (size_t i = 0; i < 16; i++) {
        kc_attempt t;
        assert_int_equal(kc_error_attempt(e, i, &t), KC_OK);
        assert_int_equal(t.at_ms, i < 8 ? (int)i : 84 + (int)i); /* the first eight and the last eight */
    }
    kc_attempt t;
    assert_int_equal(kc_error_attempt(e, 16, &t), KC_INVALID);
    kc_error *d = kc_error_dup(e);
    kc_error_free(e);
    assert_string_equal(kc_error_message(d), "after 100 tries");
    assert_string_equal(kc_error_name(d), "KC_TIMED_OUT");
    assert_int_equal(kc_error_outcome(d), KC_MAYBE_PERSISTED);
    assert_int_equal(kc_error_attempt_count(d), 16);
    kc_error_free(d);
    assert_int_equal(kc_error_code(NULL), KC_OK);
    kc_error_free(NULL);
}

/* Those of a library above this one. */
static void test_errors_of_others(void **state) {
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    kc_error *e = kc_error_new(KC_TRANSPORT, KC_MAYBE_PERSISTED, text);
    assert_int_equal(kc_error_code(e), KC_TRANSPORT);
    assert_int_equal(kc_error_outcome(e), KC_MAYBE_PERSISTED);
    assert_int_equal(kc_error_retriable(e), 1);
    assert_int_equal(kc_error_action(e), KC_ACTION_RETRY);
    assert_string_equal(kc_error_message(e), text); /* whole */
    assert_int_equal(kc_error_attempt_count(e), 0);
    kc_error_free(e);
    e = kc_error_new(KC_CONFIG, 77, NULL);
    assert_string_equal(kc_error_message(e), kc_err_text(KC_CONFIG));
    assert_int_equal(kc_error_outcome(e), KC_NOT_PERSISTED);
    assert_int_equal(kc_error_action(e), KC_ACTION_FIX_CONFIG);
    kc_error_free(e);
    kw_alloc_fail_after(0);
    e = kc_error_new(KC_CONFIG, KC_NOT_PERSISTED, "x");
    kw_alloc_fail_after(-1);
    assert_int_equal(kc_error_code(e), KC_NO_MEMORY);
    kc_error_free(e);
}

static void test_without_memory(void **state) {
    (void)state;
    for (int64_t at = 0; at < 40; at++) {
        kw_alloc_fail_after(at);
        kc_config *c = kc_config_new();
        kc_error *e = NULL;
        struct kc_settings *s = NULL;
        if (c) {
            (void)kc_config_set(c, "linger.ms", "7", &e);
            kc_error_free(e);
            e = NULL;
            (void)kc_config_set(c, "group.id", "7", &e);
            kc_error_free(e);
            e = NULL;
            kc_config *d = kc_config_dup(c);
            kc_config_free(d);
            if (kc_settings_new(c, NULL, &s, &e) != KC_OK) assert_int_equal(kc_error_code(e), KC_NO_MEMORY);
            kc_error_free(e);
        }
        kw_alloc_fail_after(-1);
        kc_settings_free(s);
        kc_config_free(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_of_requirement_C6),
        cmocka_unit_test(test_old_names_keep_their_meaning),
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_idempotence_gives_way_or_complains),
        cmocka_unit_test(test_role_over_client),
        cmocka_unit_test(test_twins_of_another_unit),
        cmocka_unit_test(test_get_shows_the_effective_value),
        cmocka_unit_test(test_errors_name_the_nearest_and_the_range),
        cmocka_unit_test(test_known_properties_without_effect_warn_once),
        cmocka_unit_test(test_receive_cap_follows_the_fetch_size),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_the_table_explains_itself),
        cmocka_unit_test(test_every_partitioner_can_be_named),
        cmocka_unit_test(test_codes_have_names_and_texts),
        cmocka_unit_test(test_errors_and_attempts),
        cmocka_unit_test(test_errors_of_others),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
