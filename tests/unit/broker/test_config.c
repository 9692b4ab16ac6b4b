/* test_config.c - the broker's configuration: table, checks, files, listeners, profile, the nearest name, effective values (BL-16). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "kw_messages.h"
#include "quorum/effective.h"

static char text[512];
static char warned[4096];
static int warnings;

static void warn(void *ctx, const char *line) {
    (void)ctx;
    warnings++;
    snprintf(warned, sizeof(warned), "%s", line);
}

static struct kb_config *config(void) {
    struct kb_config *c;
    assert_int_equal(kb_config_new(&c), KW_OK);
    warnings = 0;
    text[0] = warned[0] = 0;
    return c;
}

static kw_err set(struct kb_config *c, const char *name, const char *value) {
    return kb_config_set(c, name, value, text, sizeof(text), warn, NULL);
}

static void accepts(const char *name, const char *value) {
    struct kb_config *c = config();
    if (set(c, name, value) || kb_config_finish(c, text, sizeof(text))) fail_msg("%s=%s: %s", name, value, text);
    kb_config_free(c);
}

static void refuses(const char *name, const char *value, const char *says) {
    struct kb_config *c = config();
    kw_err err = set(c, name, value);
    if (!err) err = kb_config_finish(c, text, sizeof(text));
    assert_int_equal(err, KW_EINVAL);
    if (!strstr(text, says)) fail_msg("%s=%s says \"%s\", without \"%s\"", name, value, text, says);
    kb_config_free(c);
}

/* ---- The table itself ---- */

static void test_table_is_sound(void **state) {
    (void)state;
    char why[256];
    for (size_t i = 0; i < kb_config_def_count; i++) {
        const struct kb_config_def *d = &kb_config_defs[i];
        if (d->def && kb_config_check(d, d->def, why, sizeof(why))) fail_msg("default of %s: %s", d->name, why);
        assert_non_null(d->doc);
        assert_true((d->scope & (KB_C_BROKER | KB_C_TOPIC)) != 0);
        for (size_t k = 0; k < i; k++)
            if (strcmp(kb_config_defs[k].name, d->name) == 0 && (kb_config_defs[k].scope & d->scope & (KB_C_BROKER | KB_C_TOPIC)))
                fail_msg("%s is in the table twice", d->name);
        struct kb_config_synonym s;
        for (size_t k = 0; kb_config_synonym_at(d, k, &s); k++) {
            assert_true(d->scope & KB_C_TOPIC);
            assert_true(s.def->scope & KB_C_BROKER);
            assert_true(s.factor >= 1);
        }
        /* A topic's default and what its synonyms give without a server.properties must agree. */
        if ((d->scope & KB_C_TOPIC) && !(d->scope & KB_C_IGNORED) && kb_config_synonym_at(d, 0, &s) && s.def->def)
            assert_string_equal(d->def, s.def->def);
    }
}

static void test_every_kind_of_value(void **state) {
    (void)state;
    accepts("num.partitions", " 12 ");
    refuses("num.partitions", "0", "between 1 and 2147483647");
    refuses("num.partitions", "2147483648", "between");
    refuses("num.partitions", "99999999999999999999", "between");
    refuses("num.partitions", "many", "whole number");
    refuses("num.partitions", "", "whole number");
    refuses("num.partitions", "1.5", "whole number");
    accepts("log.retention.ms", "-1");
    refuses("log.retention.ms", "-2", "between -1");
    accepts("auto.create.topics.enable", "FALSE");
    refuses("auto.create.topics.enable", "yes", "true or false");
    accepts("log.cleanup.policy", "compact, delete");
    refuses("log.cleanup.policy", "compact,keep", "one of delete,compact");
    refuses("log.cleanup.policy", "delete,delete", "named twice");
    accepts("compression.type", "zstd");
    refuses("compression.type", "brotli", "one of uncompressed");
    refuses("offsets.topic.replication.factor", "40000", "32767");
    accepts("log.cleaner.min.cleanable.ratio", "0.25");
    refuses("log.cleaner.min.cleanable.ratio", "half", "number");
    refuses("num.io.threads", "abc", "whole number"); /* ignored, but not unseen */
}

static void test_unknown_names(void **state) {
    (void)state;
    refuses("log.retention.hour", "1", "log.retention.hours");
    refuses("num.partition", "1", "num.partitions");
    refuses("default.replication.refactor", "3", "default.replication.factor");
    refuses("zookeeper.connect", "localhost:2181", "no ZooKeeper");
    refuses("port", "9092", "listeners=");
    refuses("xyzzy", "1", "unknown property xyzzy");
    refuses("", "1", "unknown property");
    char longest[600];
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = 0;
    refuses(longest, "1", "unknown property aaa");
}

static void test_names_without_effect(void **state) {
    (void)state;
    struct kb_config *c = config();
    assert_int_equal(set(c, "num.io.threads", "4"), KW_OK);
    assert_int_equal(warnings, 1);
    assert_non_null(strstr(warned, "num.io.threads has no effect"));
    assert_int_equal(set(c, "num.io.threads", "5"), KW_OK);
    assert_int_equal(warnings, 1); /* once */
    assert_int_equal(set(c, "replica.lag.max.messages", "4000"), KW_OK);
    assert_int_equal(warnings, 2);
    assert_non_null(strstr(warned, "not offered"));
    assert_non_null(strstr(warned, "replica.lag.time.max.ms"));
    assert_int_equal(set(c, "listener.name.plaintext.ssl.client.auth", "none"), KW_OK);
    assert_int_equal(warnings, 3);
    assert_int_equal(set(c, "num.partitions", "3"), KW_OK);
    assert_int_equal(warnings, 3);
    assert_int_equal(kb_config_set(c, "num.network.threads", "3", NULL, 0, NULL, NULL), KW_OK); /* nobody listens */
    kb_config_free(c);
}

static void test_defaults(void **state) {
    (void)state;
    struct kb_config *c = config();
    assert_int_equal(kb_config_finish(c, text, sizeof(text)), KW_OK);
    assert_int_equal(kb_config_int(c, "group.initial.rebalance.delay.ms"), 0);
    assert_int_equal(kb_config_int(c, "offsets.topic.replication.factor"), 3);
    assert_int_equal(kb_config_int(c, "default.replication.factor"), 1);
    assert_true(kb_config_bool(c, "auto.create.topics.enable"));
    assert_false(kb_config_bool(c, "flush.on.ack"));
    assert_false(kb_config_bool(c, "unclean.leader.election.enable"));
    assert_string_equal(kb_config_get(c, "listeners"), "PLAINTEXT://127.0.0.1:9092");
    assert_string_equal(kb_config_log_dir(c), "kbroker-data");
    assert_false(kb_config_is_set(c, "num.partitions"));
    assert_null(kb_config_get(c, "no.such.name"));
    assert_int_equal(set(c, "log.dirs", "/data/k"), KW_OK);
    assert_string_equal(kb_config_log_dir(c), "/data/k");
    kb_config_free(c);
}

/* ---- Files ---- */

static void test_properties_file(void **state) {
    (void)state;
    static const char file[] = "# comment\n"
                               "! another\r\n"
                               "\n"
                               "  num.partitions = 4\r\n"
                               "min.insync.replicas:2\n"
                               "auto.create.topics.enable false\n"
                               "log.cleanup.policy=compact,\\\n"
                               "    delete\n"
                               "log.dirs=/tmp/with\\ blank\\u00e9\\t.\n"
                               "broker.rack=\n"
                               "message.max.bytes=77";
    struct kb_config *c = config();
    assert_int_equal(kb_config_load(c, "f", file, sizeof(file) - 1, text, sizeof(text), warn, NULL), KW_OK);
    assert_int_equal(kb_config_int(c, "num.partitions"), 4);
    assert_int_equal(kb_config_int(c, "min.insync.replicas"), 2);
    assert_false(kb_config_bool(c, "auto.create.topics.enable"));
    assert_string_equal(kb_config_get(c, "log.cleanup.policy"), "compact,delete");
    assert_string_equal(kb_config_get(c, "log.dirs"), "/tmp/with blank\xc3\xa9\t.");
    assert_string_equal(kb_config_get(c, "broker.rack"), "");
    assert_int_equal(kb_config_int(c, "message.max.bytes"), 77);
    kb_config_free(c);

    c = config();
    static const char bad[] = "num.partitions=4\n\nnum.partitons=5\n";
    assert_int_equal(kb_config_load(c, "server.properties", bad, sizeof(bad) - 1, text, sizeof(text), warn, NULL), KW_EINVAL);
    assert_non_null(strstr(text, "server.properties:3: unknown property num.partitons"));
    kb_config_free(c);
}

static void test_properties_file_of_any_bytes(void **state) {
    (void)state;
    static char big[20000];
    memset(big, 'x', sizeof(big));
    struct kb_config *c = config();
    assert_int_equal(kb_config_load(c, "f", big, sizeof(big), text, sizeof(text), warn, NULL), KW_EINVAL);
    assert_non_null(strstr(text, "longer than"));
    uint32_t seed = 1;
    for (int round = 0; round < 3000; round++) {
        static const char alphabet[] = "ab=:\\\n\r #!u0f\t.";
        size_t n = (size_t)(round % 60);
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1664525 + 1013904223;
            big[i] = alphabet[seed >> 16 & 15];
        }
        (void)!kb_config_load(c, "f", big, n, text, sizeof(text), warn, NULL); /* no crash, no over-read */
    }
    kb_config_free(c);
}

/* ---- Across entries ---- */

static void test_listeners(void **state) {
    (void)state;
    struct kb_config *c = config();
    struct kb_listener l[4];
    assert_int_equal(set(c, "listeners", "PLAINTEXT://:9092, INTERNAL://[::1]:0,CONTROLLER://localhost:9093"), KW_OK);
    assert_int_equal(set(c, "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"), KW_OK);
    assert_int_equal(set(c, "advertised.listeners", "INTERNAL://my-host:1234"), KW_OK);
    if (kb_config_finish(c, text, sizeof(text))) fail_msg("%s", text);
    assert_int_equal(kb_config_listeners(c, false, l, 4), 2);
    assert_int_equal(l[0].host.len, 0);
    assert_int_equal(l[0].port, 9092);
    assert_true(kw_str_eq(l[1].name, kw_str_of("INTERNAL")));
    assert_true(kw_str_eq(l[1].host, kw_str_of("::1")));
    assert_int_equal(l[1].port, 0);
    assert_int_equal(kb_config_listeners(c, true, l, 4), 1);
    assert_true(kw_str_eq(l[0].host, kw_str_of("my-host")));
    assert_int_equal(kb_config_listeners(c, false, l, 1), 2); /* counts what does not fit */
    kb_config_free(c);
    refuses("listeners", "127.0.0.1:9092", "NAME://HOST:PORT");
    refuses("listeners", "PLAINTEXT://h:65536", "NAME://HOST:PORT");
    refuses("listeners", "PLAINTEXT://h:", "NAME://HOST:PORT");
    refuses("listeners", "PLAINTEXT://::1:9092", "NAME://HOST:PORT");
    refuses("listeners", "://h:1", "NAME://HOST:PORT");
    refuses("listeners", "PLAINTEXT://h:1,PLAINTEXT://h:2", "named twice");
    refuses("listeners", "SSL://h:1", "not a PLAINTEXT listener");
    refuses("listeners", "OTHER://h:1", "not a PLAINTEXT listener");
    refuses("listeners", "CONTROLLER://h:1", "listeners for clients");
    refuses("listeners", "", "NAME://HOST:PORT");
    refuses("advertised.listeners", "OTHER://h:1", "not a PLAINTEXT");
    refuses("advertised.listeners", "PLAINTEXT://0.0.0.0:1", "no address");
    refuses("log.dirs", "/a,/b", "several folders are not offered: name one");
    refuses("file.delete.delay.ms", "1", "topic's property: the broker's default for all topics is log.segment.delete.delay.ms");
    refuses("retention.ms", "1", "the broker's default for all topics is log.retention.ms");
}

static void test_who_the_node_is(void **state) {
    (void)state;
    struct kb_config *c = config();
    assert_int_equal(set(c, "broker.id", "7"), KW_OK);
    assert_int_equal(kb_config_finish(c, text, sizeof(text)), KW_OK);
    assert_int_equal(kb_config_int(c, "node.id"), 7);
    kb_config_free(c);
    c = config();
    assert_int_equal(set(c, "broker.id", "7"), KW_OK);
    assert_int_equal(set(c, "node.id", "8"), KW_OK);
    assert_int_equal(kb_config_finish(c, text, sizeof(text)), KW_EINVAL);
    kb_config_free(c);
    c = config();
    assert_int_equal(set(c, "node.id", "8"), KW_OK);
    assert_int_equal(set(c, "controller.quorum.voters", "8@localhost:9093"), KW_OK);
    assert_int_equal(kb_config_finish(c, text, sizeof(text)), KW_OK);
    assert_int_equal(kb_config_roles(c), KB_ROLE_BROKER | KB_ROLE_CONTROLLER);
    assert_int_equal(set(c, "controller.quorum.voters", "8@localhost:9093,9@[::1]:9094"), KW_OK);
    assert_int_equal(kb_config_finish(c, text, sizeof(text)), KW_OK);
    struct kb_voter v[KB_VOTERS_MAX];
    assert_int_equal(kb_config_voters(c, v, KB_VOTERS_MAX), 2);
    assert_int_equal(v[1].id, 9);
    assert_int_equal(v[1].port, 9094);
    assert_true(kw_str_eq(v[0].host, kw_str_of("localhost")) && kw_str_eq(v[1].host, kw_str_of("::1")));
    assert_int_equal(set(c, "process.roles", "controller"), KW_OK);
    assert_int_equal(kb_config_finish(c, text, sizeof(text)), KW_EINVAL);
    assert_non_null(strstr(text, "a controller alone listens on controller listeners"));
    assert_int_equal(set(c, "listeners", "CONTROLLER://:9093"), KW_OK);
    assert_int_equal(kb_config_finish(c, text, sizeof(text)), KW_OK);
    struct kb_listener l;
    assert_int_equal(kb_config_listeners(c, false, &l, 1), 0);
    assert_int_equal(kb_config_controller_listeners(c, &l, 1), 1);
    assert_int_equal(l.port, 9093);
    kb_config_free(c);
    refuses("controller.quorum.voters", "8@localhost:9093", "not among them");
    refuses("controller.quorum.voters", "0@localhost", "not ID@HOST:PORT");
    refuses("controller.quorum.voters", "0@localhost:9093,0@localhost:9094", "twice");
    refuses("process.roles", "broker", "has to name the controllers");
    refuses("process.roles", "observer", "one of broker,controller");
}

static void test_profile_reliable(void **state) {
    (void)state;
    struct kb_config *c = config();
    assert_int_equal(kb_config_profile(c, "fast", text, sizeof(text)), KW_EINVAL);
    assert_int_equal(kb_config_profile(c, "reliable", text, sizeof(text)), KW_OK);
    assert_int_equal(kb_config_finish(c, text, sizeof(text)), KW_OK);
    assert_int_equal(kb_config_int(c, "default.replication.factor"), 3);
    assert_int_equal(kb_config_int(c, "min.insync.replicas"), 2);
    kb_config_free(c);
    static const struct {
        const char *name, *value, *says;
    } broken[] = {{"default.replication.factor", "2", "at least 3"},
                  {"min.insync.replicas", "1", "at least 2"},
                  {"min.insync.replicas", "4", "not pass"},
                  {"unclean.leader.election.enable", "true", "must be false"}};
    for (size_t i = 0; i < KW_COUNTOF(broken); i++) {
        c = config();
        assert_int_equal(set(c, broken[i].name, broken[i].value), KW_OK);
        assert_int_equal(kb_config_profile(c, "reliable", text, sizeof(text)), KW_OK);
        assert_int_equal(kb_config_finish(c, text, sizeof(text)), KW_EINVAL);
        assert_non_null(strstr(text, broken[i].says));
        kb_config_free(c);
    }
    c = config(); /* explicit and better stays */
    assert_int_equal(set(c, "min.insync.replicas", "3"), KW_OK);
    assert_int_equal(kb_config_profile(c, "reliable", text, sizeof(text)), KW_OK);
    assert_int_equal(kb_config_finish(c, text, sizeof(text)), KW_OK);
    assert_int_equal(kb_config_int(c, "min.insync.replicas"), 3);
    kb_config_free(c);
}

/* ---- Effective values ---- */

static void apply_config(struct kb_image *im, int8_t type, const char *resource, const char *name, const char *value) {
    struct kw_config_record r;
    kw_msg_init(&kw_config_record_desc, &r);
    r.resource_type = type;
    r.resource_name = kw_str_of(resource);
    r.name = kw_str_of(name);
    r.value = kw_str_of(value);
    assert_int_equal(kb_image_apply(im, im->offset + 1, 1, KW_RECORD_CONFIG, &r), KW_OK);
}

static int64_t topic_int(struct kb_image *im, struct kb_config *c, const char *name) {
    return kb_effective_topic_int(im, c, kw_str_of("t"), name);
}

static void test_precedence(void **state) {
    (void)state;
    struct kb_image im;
    struct kb_effective e;
    struct kb_config *c = config();
    kb_image_init(&im);
    assert_int_equal(set(c, "node.id", "3"), KW_OK);
    assert_int_equal(topic_int(&im, c, "retention.ms"), 7LL * 24 * 3600 * 1000);
    assert_int_equal(set(c, "log.retention.hours", "2"), KW_OK);
    assert_int_equal(topic_int(&im, c, "retention.ms"), 2 * 3600 * 1000);
    assert_int_equal(set(c, "log.retention.minutes", "3"), KW_OK); /* minutes before hours */
    assert_int_equal(topic_int(&im, c, "retention.ms"), 3 * 60 * 1000);
    kb_effective_topic(&im, c, kw_str_of("t"), kb_config_def("retention.ms", KB_C_TOPIC), &e);
    assert_int_equal(e.source, KB_SOURCE_STATIC);
    assert_string_equal(e.name, "log.retention.minutes");
    assert_int_equal(set(c, "log.retention.minutes", "-1"), KW_OK);
    assert_int_equal(topic_int(&im, c, "retention.ms"), -1);
    assert_int_equal(set(c, "log.retention.ms", "4000"), KW_OK); /* ms before all */
    assert_int_equal(topic_int(&im, c, "retention.ms"), 4000);
    apply_config(&im, 4, "", "log.retention.ms", "5000"); /* dynamic default over static */
    assert_int_equal(topic_int(&im, c, "retention.ms"), 5000);
    apply_config(&im, 4, "4", "log.retention.ms", "1"); /* another broker's */
    assert_int_equal(topic_int(&im, c, "retention.ms"), 5000);
    apply_config(&im, 4, "3", "log.retention.ms", "6000"); /* this broker's over the default */
    assert_int_equal(topic_int(&im, c, "retention.ms"), 6000);
    assert_int_equal(kb_effective_broker_int(&im, c, "log.retention.ms"), 6000);
    apply_config(&im, 2, "t", "retention.ms", "7000"); /* the topic's over all */
    assert_int_equal(topic_int(&im, c, "retention.ms"), 7000);
    assert_int_equal(kb_effective_topic_int(&im, c, kw_str_of("other"), "retention.ms"), 6000);
    kb_effective_topic(&im, c, kw_str_of("t"), kb_config_def("retention.ms", KB_C_TOPIC), &e);
    assert_int_equal(e.source, KB_SOURCE_TOPIC);
    apply_config(&im, 2, "t", "retention.ms", NULL);
    apply_config(&im, 4, "3", "log.retention.ms", NULL);
    apply_config(&im, 4, "", "log.retention.ms", NULL);
    assert_int_equal(topic_int(&im, c, "retention.ms"), 4000);
    apply_config(&im, 4, "", "num.partitions", "9"); /* not dynamic: a stray record has no effect */
    assert_int_equal(kb_effective_broker_int(&im, c, "num.partitions"), 1);
    kb_image_deinit(&im);
    kb_config_free(c);
}

/* BL-16: a topic that overrides cleanup keeps its override, however often the broker's default changes at run time. */
static void test_bl_16_topic_override_survives_default_changes(void **state) {
    (void)state;
    struct kb_image im;
    struct kb_log_config log;
    struct kb_topic_config topic;
    struct kb_config *c = config();
    kb_image_init(&im);
    apply_config(&im, 2, "t", "cleanup.policy", "compact");
    static const char *const changes[] = {"delete", "compact,delete", NULL, "delete"};
    for (size_t i = 0; i < KW_COUNTOF(changes); i++) {
        apply_config(&im, 4, "", "log.cleanup.policy", changes[i]);
        apply_config(&im, 4, "", "log.retention.ms", i % 2 ? "1" : "2");
        kb_effective_log(&im, c, kw_str_of("t"), &log);
        kb_effective_partition(&im, c, kw_str_of("t"), &topic);
        assert_false(log.delete_policy); /* nothing goes by time */
        assert_true(topic.compact);
        kb_effective_log(&im, c, kw_str_of("u"), &log);
        assert_true(log.delete_policy);
        assert_int_equal(log.retention_ms, i % 2 ? 1 : 2);
    }
    kb_image_deinit(&im);
    kb_config_free(c);
}

static void test_filled_structs(void **state) {
    (void)state;
    struct kb_image im;
    struct kb_log_config log;
    struct kb_topic_config topic;
    struct kb_config *c = config();
    kb_image_init(&im);
    kb_effective_log(&im, c, kw_str_of("t"), &log);
    assert_int_equal(log.segment_bytes, 1 << 30);
    assert_int_equal(log.segment_ms, 604800000);
    assert_int_equal(log.index_interval_bytes, 4096);
    assert_int_equal(log.retention_bytes, -1);
    assert_int_equal(log.file_delete_delay_ms, 60000);
    assert_true(log.delete_policy);
    assert_int_equal(log.flush_messages, INT64_MAX);
    assert_int_equal(log.flush_ms, INT64_MAX);
    assert_int_equal(log.producer_expiration_ms, 86400000);
    kb_effective_partition(&im, c, kw_str_of("t"), &topic);
    assert_int_equal(topic.max_message_bytes, 1048588);
    assert_int_equal(topic.compression, -1);
    assert_int_equal(topic.timestamp_before_max_ms, INT64_MAX);
    assert_int_equal(topic.timestamp_after_max_ms, 3600000);
    assert_false(topic.log_append_time);
    assert_false(topic.compact);
    assert_int_equal(set(c, "flush.on.ack", "true"), KW_OK);
    assert_int_equal(set(c, "log.roll.hours", "1"), KW_OK);
    apply_config(&im, 2, "t", "compression.type", "uncompressed");
    apply_config(&im, 2, "t", "message.timestamp.type", "LogAppendTime");
    kb_effective_log(&im, c, kw_str_of("t"), &log);
    kb_effective_partition(&im, c, kw_str_of("t"), &topic);
    assert_true(log.flush_on_ack);
    assert_int_equal(log.segment_ms, 3600000);
    assert_int_equal(topic.compression, 0);
    assert_true(topic.log_append_time);
    apply_config(&im, 2, "t", "compression.type", "zstd");
    kb_effective_partition(&im, c, kw_str_of("t"), &topic);
    assert_int_equal(topic.compression, 4);
    kb_image_deinit(&im);
    kb_config_free(c);
}

static void test_failing_allocation(void **state) {
    (void)state;
    static const char file[] = "num.partitions=4\nbroker.id=3\nnum.io.threads=1\n";
    bool done = false;
    for (int64_t n = 0; !done; n++) {
        assert_in_range(n, 0, 3000);
        struct kb_config *c = NULL;
        kw_alloc_fail_after(n);
        kw_err err = kb_config_new(&c);
        if (!err) err = kb_config_load(c, "f", file, sizeof(file) - 1, text, sizeof(text), NULL, NULL);
        if (!err) err = kb_config_profile(c, "reliable", text, sizeof(text));
        if (!err) err = kb_config_finish(c, text, sizeof(text));
        kw_alloc_fail_after(-1);
        assert_true(err == KW_OK || err == KW_ENOMEM);
        done = err == KW_OK;
        kb_config_free(c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_sound),
        cmocka_unit_test(test_every_kind_of_value),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_names_without_effect),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_properties_file),
        cmocka_unit_test(test_properties_file_of_any_bytes),
        cmocka_unit_test(test_listeners),
        cmocka_unit_test(test_who_the_node_is),
        cmocka_unit_test(test_profile_reliable),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_bl_16_topic_override_survives_default_changes),
        cmocka_unit_test(test_filled_structs),
        cmocka_unit_test(test_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
