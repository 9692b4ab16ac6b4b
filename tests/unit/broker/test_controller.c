/* test_controller.c - changes of topics, partitions and configurations: every rule with its error and text (PR-15), doubles, order and
 * claims, cancelling, validate_only, producer ids; random changes against a plain model, with crashes.
 */
#include "meta_rig.h"

static struct meta m;

static int setup(void **state) {
    (void)state;
    meta_init(&m, 1, NULL);
    meta_start(&m);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    meta_stop(&m);
    meta_deinit(&m);
    return 0;
}

#define SAYS(r, code_, text_)                                                                                                              \
    do {                                                                                                                                   \
        if ((r).code != (code_) || !strstr((r).text, text_)) fail_msg("%d \"%s\", not %d \"%s\"", (r).code, (r).text, (code_), text_);     \
    } while (0)

static void create(struct kb_topic_create *t, int32_t n, bool validate_only) {
    struct meta_change c;
    assert_int_equal(kb_controller_create_topics(m.controller, t, n, validate_only, meta_change(&c), m.now), KW_OK);
    meta_idle(&m);
    assert_int_equal(c.done, 1);
}

static struct kb_topic_create topic(const char *name, int32_t partitions, int16_t rf) {
    return (struct kb_topic_create){.name = kw_str_of(name), .partitions = partitions, .replication_factor = rf};
}

/* PR-15: names. */
static void test_pr_15_names(void **state) {
    (void)state;
    char longest[252];
    memset(longest, 'x', 250);
    longest[250] = 0;
    static const struct {
        const char *name, *says;
    } bad[] = {{"", "empty"},
               {".", ". or .."},
               {"..", ". or .."},
               {"a/b", "ASCII letters"},
               {"t\xc3\xa9", "ASCII letters"},
               {"a b", "ASCII letters"},
               {"a\x01", "ASCII letters"},
               {"__cluster_metadata", "cluster's own"}};
    for (size_t i = 0; i < KW_COUNTOF(bad); i++) {
        struct kb_topic_create t = topic(bad[i].name, 1, 1);
        create(&t, 1, false);
        SAYS(t.result, KE_INVALID_TOPIC_EXCEPTION, bad[i].says);
    }
    struct kb_topic_create t = topic(longest, 1, 1);
    create(&t, 1, false);
    SAYS(t.result, KE_INVALID_TOPIC_EXCEPTION, "249");
    longest[249] = 0;
    t = topic(longest, 1, 1);
    create(&t, 1, false);
    assert_int_equal(t.result.code, 0);
    t = (struct kb_topic_create){.name = {"zero\0inside", 11}, .partitions = 1, .replication_factor = 1};
    create(&t, 1, false);
    SAYS(t.result, KE_INVALID_TOPIC_EXCEPTION, "ASCII letters");
    t = (struct kb_topic_create){.name = kw_str_null(), .partitions = 1, .replication_factor = 1};
    create(&t, 1, false);
    SAYS(t.result, KE_INVALID_TOPIC_EXCEPTION, "empty");
    assert_int_equal(meta_create(&m, "a_b", 1), 0);
    t = topic("a.b", 1, 1);
    create(&t, 1, false);
    SAYS(t.result, KE_INVALID_TOPIC_EXCEPTION, "a_b");
    t = topic("a_b", 1, 1);
    create(&t, 1, false);
    SAYS(t.result, KE_TOPIC_ALREADY_EXISTS, "exists already");
    assert_int_equal(meta_delete(&m, "a_b"), 0);
    assert_int_equal(meta_create(&m, "a.b", 1), 0); /* the other is gone */
    assert_int_equal(m.image.topics_by_name.count, 2);
}

static void test_numbers(void **state) {
    (void)state;
    static const struct {
        int32_t partitions;
        int16_t rf, code;
        const char *says;
    } cases[] = {{0, 1, KE_INVALID_PARTITIONS, "above 0"},
                 {-2, 1, KE_INVALID_PARTITIONS, "above 0"},
                 {1, 0, KE_INVALID_REPLICATION_FACTOR, "above 0"},
                 {1, -2, KE_INVALID_REPLICATION_FACTOR, "above 0"},
                 {1, 2, KE_INVALID_REPLICATION_FACTOR, "more than the 1 broker"},
                 {10001, 1, KE_POLICY_VIOLATION, "too many"},
                 {INT32_MAX, 1, KE_POLICY_VIOLATION, "too many"}};
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        struct kb_topic_create t = topic("t", cases[i].partitions, cases[i].rf);
        create(&t, 1, false);
        SAYS(t.result, cases[i].code, cases[i].says);
    }
    meta_set(&m, "num.partitions", "5");
    struct kb_topic_create t = topic("t", -1, -1);
    create(&t, 1, false);
    assert_int_equal(t.result.code, 0);
    assert_int_equal(t.partitions_made, 5);
    assert_int_equal(t.rf_made, 1);
    struct kb_image_topic *made = kb_image_topic(&m.image, kw_str_of("t"));
    assert_true(kw_uuid_eq(made->id, t.id));
    assert_int_equal(made->id.b[6] >> 4, 4); /* a random id, none that Kafka reserves */
    for (int32_t i = 0; i < 5; i++) {
        struct kb_image_partition *p = &made->partitions[i];
        assert_int_equal(p->leader, 1);
        assert_int_equal(p->leader_epoch, 0);
        assert_int_equal(p->isr_count, 1);
        assert_true(kw_uuid_eq(p->directories[0], kb_store_directory_id(m.store)));
    }
    meta_set(&m, "default.replication.factor", "3");
    t = topic("u", -1, -1);
    create(&t, 1, false);
    SAYS(t.result, KE_INVALID_REPLICATION_FACTOR, "replication factor 3");
}

static void test_assignments(void **state) {
    (void)state;
    int32_t self[] = {1}, other[] = {7}, twice[] = {1, 1};
    struct kb_assignment good[] = {{0, self, 1}, {1, self, 1}}, gap[] = {{0, self, 1}, {2, self, 1}}, late[] = {{1, self, 1}},
                         empty[] = {{0, self, 0}}, foreign[] = {{0, other, 1}}, doubled[] = {{0, twice, 2}},
                         uneven[] = {{0, self, 1}, {1, twice, 2}};
    static const char *const none = "";
    struct {
        struct kb_assignment *v;
        int32_t n;
        int16_t code;
        const char *says;
    } cases[] = {{good, 2, 0, none},
                 {gap, 2, KE_INVALID_REPLICA_ASSIGNMENT, "without gaps"},
                 {late, 1, KE_INVALID_REPLICA_ASSIGNMENT, "without gaps"},
                 {empty, 1, KE_INVALID_REPLICA_ASSIGNMENT, "no broker"},
                 {foreign, 1, KE_INVALID_REPLICA_ASSIGNMENT, "broker 7"},
                 {doubled, 1, KE_INVALID_REPLICA_ASSIGNMENT, "twice"},
                 {uneven, 2, KE_INVALID_REPLICA_ASSIGNMENT, "2 replicas"}};
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        char name[32];
        snprintf(name, sizeof(name), "t%zu", i);
        struct kb_topic_create t = topic(name, -1, -1);
        t.assignments = cases[i].v;
        t.assignment_count = cases[i].n;
        create(&t, 1, false);
        SAYS(t.result, cases[i].code, cases[i].says);
    }
    assert_int_equal(kb_image_topic(&m.image, kw_str_of("t0"))->partition_count, 2);
    struct kb_topic_create t = topic("both", 2, -1);
    t.assignments = good;
    t.assignment_count = 2;
    create(&t, 1, false);
    SAYS(t.result, KE_INVALID_REQUEST, "must be -1");
}

static void test_configs_at_creation(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } cases[] = {{"retention.ms", "soon", "whole number"},
                 {"retention.sm", "1", "did you mean retention.ms"},
                 {"cleanup.policy", "burn", "one of delete,compact"},
                 {"retention.ms", NULL, "no value"},
                 {"min.insync.replicas", "0", "between 1"},
                 {"remote.storage.enable", "true", "tiered"},
                 {"log.retention.ms", "5", "there is no topic configuration"}};
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        struct kb_config_kv kv = {.key = kw_str_of(cases[i].key), .value = kw_str_of(cases[i].value)};
        struct kb_topic_create t = topic("t", 1, 1);
        t.configs = &kv;
        t.config_count = 1;
        create(&t, 1, false);
        SAYS(t.result, KE_INVALID_CONFIG, cases[i].says);
    }
    assert_null(kb_image_topic(&m.image, kw_str_of("t")));
    struct kb_config_kv kvs[] = {{.key = kw_str_of("retention.ms"), .value = kw_str_of("7")},
                                 {.key = kw_str_of("preallocate"), .value = kw_str_of("true")}};
    struct kb_topic_create t = topic("t", 1, 1);
    t.configs = kvs;
    t.config_count = 2;
    create(&t, 1, false);
    assert_int_equal(t.result.code, 0);
    assert_int_equal(kb_effective_topic_int(&m.image, m.config, kw_str_of("t"), "retention.ms"), 7);
    assert_non_null(strstr(m.lines, "preallocate is set, but has no effect")); /* nothing is dropped in silence */
}

static void test_several_in_one_request(void **state) {
    (void)state;
    struct kb_topic_create t[] = {topic("good", 1, 1),  topic("bad/", 1, 1), topic("twice", 1, 1),
                                  topic("twice", 2, 1), topic("x.y", 1, 1),  topic("x_y", 1, 1)};
    create(t, 6, false);
    assert_int_equal(t[0].result.code, 0);
    SAYS(t[1].result, KE_INVALID_TOPIC_EXCEPTION, "ASCII");
    SAYS(t[2].result, KE_INVALID_REQUEST, "more than once");
    SAYS(t[3].result, KE_INVALID_REQUEST, "more than once");
    assert_int_equal(t[4].result.code, 0);
    SAYS(t[5].result, KE_INVALID_TOPIC_EXCEPTION, "x.y of the same request");
    assert_int_equal(m.image.topics_by_name.count, 2);
    struct kb_topic_create many[] = {topic("m1", 6000, 1), topic("m2", 6000, 1)};
    create(many, 2, false);
    assert_int_equal(many[0].result.code, 0);
    SAYS(many[1].result, KE_POLICY_VIOLATION, "split it");
    struct meta_change c; /* a request of nothing is answered too */
    assert_int_equal(kb_controller_create_topics(m.controller, t, 0, false, meta_change(&c), m.now), KW_OK);
    assert_int_equal(c.done, 0);
    meta_idle(&m);
    assert_int_equal(c.done, 1);
}

static void test_validate_only(void **state) {
    (void)state;
    int64_t leo = m.store->log->leo;
    struct kb_topic_create t[] = {topic("a", 3, 1), topic("..", 1, 1)};
    create(t, 2, true);
    assert_int_equal(t[0].result.code, 0);
    assert_int_equal(t[0].partitions_made, 3);
    SAYS(t[1].result, KE_INVALID_TOPIC_EXCEPTION, ". or ..");
    assert_int_equal(m.store->log->leo, leo);
    assert_null(kb_image_topic(&m.image, kw_str_of("a")));
}

/* ---- Delete and grow ---- */

static void test_delete(void **state) {
    (void)state;
    struct meta_change c;
    assert_int_equal(meta_create(&m, "a", 2), 0);
    assert_int_equal(meta_create(&m, "b", 1), 0);
    struct kw_uuid a = kb_image_topic(&m.image, kw_str_of("a"))->id, unknown = {{9}};
    struct kb_topic_ref t[] = {{.name = kw_str_of("a")},
                               {.name = kw_str_null(), .id = a},
                               {.name = kw_str_of("no")},
                               {.name = kw_str_null(), .id = unknown},
                               {.name = kw_str_of("b")}};
    assert_int_equal(kb_controller_delete_topics(m.controller, t, 5, meta_change(&c), m.now), KW_OK);
    meta_idle(&m);
    SAYS(t[0].result, KE_INVALID_REQUEST, "more than once"); /* by name and by id: the same */
    SAYS(t[1].result, KE_INVALID_REQUEST, "more than once");
    SAYS(t[2].result, KE_UNKNOWN_TOPIC_OR_PARTITION, "no topic no");
    SAYS(t[3].result, KE_UNKNOWN_TOPIC_ID, "this id");
    assert_int_equal(t[4].result.code, 0);
    assert_null(kb_image_topic(&m.image, kw_str_of("b")));
    t[0] = (struct kb_topic_ref){.name = kw_str_null(), .id = a};
    assert_int_equal(kb_controller_delete_topics(m.controller, t, 1, meta_change(&c), m.now), KW_OK);
    meta_idle(&m);
    assert_int_equal(t[0].result.code, 0);
    assert_int_equal(m.image.topics_by_name.count, 0);
    assert_int_equal(meta_create(&m, "a", 1), 0);
    assert_false(kw_uuid_eq(kb_image_topic(&m.image, kw_str_of("a"))->id, a)); /* made again it is another topic */
    meta_set(&m, "delete.topic.enable", "false");
    assert_int_equal(meta_delete(&m, "a"), KE_TOPIC_DELETION_DISABLED);
    meta_set(&m, "delete.topic.enable", "true");
}

static void grow(struct kb_topic_grow *g, int32_t n, bool validate_only) {
    struct meta_change c;
    assert_int_equal(kb_controller_grow_topics(m.controller, g, n, validate_only, meta_change(&c), m.now), KW_OK);
    meta_idle(&m);
    assert_int_equal(c.done, 1);
}

static void test_grow(void **state) {
    (void)state;
    assert_int_equal(meta_create(&m, "t", 2), 0);
    int32_t self[] = {1}, pair[] = {1, 2};
    struct kb_assignment one[] = {{2, self, 1}}, wide[] = {{2, pair, 2}};
    struct {
        struct kb_topic_grow g;
        int16_t code;
        const char *says;
    } cases[] = {
        {{.name = kw_str_of("no"), .total = 3, .assignment_count = -1}, KE_UNKNOWN_TOPIC_OR_PARTITION, "no topic no"},
        {{.name = kw_str_of("t"), .total = 2, .assignment_count = -1}, KE_INVALID_PARTITIONS, "2 partitions already"},
        {{.name = kw_str_of("t"), .total = 1, .assignment_count = -1}, KE_INVALID_PARTITIONS, "cannot be made smaller"},
        {{.name = kw_str_of("t"), .total = -1, .assignment_count = -1}, KE_INVALID_PARTITIONS, "cannot be made smaller"},
        {{.name = kw_str_of("t"), .total = 20000, .assignment_count = -1}, KE_POLICY_VIOLATION, "in steps"},
        {{.name = kw_str_of("t"), .total = 4, .assignments = one, .assignment_count = 1}, KE_INVALID_REPLICA_ASSIGNMENT, "1 are assigned"},
        {{.name = kw_str_of("t"), .total = 3, .assignments = wide, .assignment_count = 1}, KE_INVALID_REPLICA_ASSIGNMENT, "2 replicas"},
        {{.name = kw_str_of("t"), .total = 3, .assignments = one, .assignment_count = 1}, 0, ""},
        {{.name = kw_str_of("t"), .total = 7, .assignment_count = -1}, 0, ""}};
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        grow(&cases[i].g, 1, false);
        SAYS(cases[i].g.result, cases[i].code, cases[i].says);
    }
    assert_int_equal(kb_image_topic(&m.image, kw_str_of("t"))->partition_count, 7);
    struct kw_topic_record bare; /* a topic without a partition: no broker makes one, a damaged log may have it (fuzz_metadata_replay) */
    kw_msg_init(&kw_topic_record_desc, &bare);
    bare.name = kw_str_of("bare");
    bare.topic_id.b[0] = 77;
    struct kb_store_record record = {KW_RECORD_TOPIC, 0, &bare};
    int64_t last;
    assert_int_equal(kb_store_append(m.store, &record, 1, &last, m.now), KW_OK);
    meta_idle(&m);
    struct kb_topic_grow of_bare = {.name = bare.name, .total = 2, .assignment_count = -1};
    grow(&of_bare, 1, false);
    assert_int_equal(of_bare.result.code, KE_INVALID_PARTITIONS);
    struct kb_topic_grow twice[] = {{.name = kw_str_of("t"), .total = 8, .assignment_count = -1},
                                    {.name = kw_str_of("t"), .total = 9, .assignment_count = -1}};
    grow(twice, 2, false);
    SAYS(twice[0].result, KE_INVALID_REQUEST, "more than once");
    SAYS(twice[1].result, KE_INVALID_REQUEST, "more than once");
    twice[0].name = kw_str_of("t");
    grow(twice, 1, true);
    assert_int_equal(twice[0].result.code, 0);
    assert_int_equal(kb_image_topic(&m.image, kw_str_of("t"))->partition_count, 7);
}

/* ---- Configurations ---- */

static struct kb_result alter(int8_t type, const char *name, const char *key, const char *value, int8_t op, bool replace_all) {
    struct meta_change c;
    struct kb_config_kv kv = {.key = kw_str_of(key), .value = kw_str_of(value), .op = op};
    struct kb_config_alter a = {.type = type, .name = kw_str_of(name), .kvs = &kv, .kv_count = key ? 1 : 0, .replace_all = replace_all};
    assert_int_equal(kb_controller_alter_configs(m.controller, &a, 1, false, meta_change(&c), m.now), KW_OK);
    meta_idle(&m);
    assert_int_equal(c.done, 1);
    return a.result;
}

static const char *value_of(int8_t type, const char *name, const char *key) {
    return kb_image_config_get(&m.image, type, kw_str_of(name), key);
}

static void test_alter_one_by_one(void **state) {
    (void)state;
    assert_int_equal(meta_create(&m, "t", 1), 0);
    assert_int_equal(alter(2, "t", "retention.ms", " 42 ", 0, false).code, 0);
    assert_string_equal(value_of(2, "t", "retention.ms"), "42");                    /* blanks fall away */
    assert_int_equal(alter(2, "t", "cleanup.policy", "compact", 2, false).code, 0); /* appended to what is in effect */
    assert_string_equal(value_of(2, "t", "cleanup.policy"), "delete,compact");
    assert_int_equal(alter(2, "t", "cleanup.policy", "compact", 2, false).code, 0);
    assert_string_equal(value_of(2, "t", "cleanup.policy"), "delete,compact"); /* once */
    assert_int_equal(alter(2, "t", "cleanup.policy", "delete", 3, false).code, 0);
    assert_string_equal(value_of(2, "t", "cleanup.policy"), "compact");
    SAYS(alter(2, "t", "cleanup.policy", "burn", 2, false), KE_INVALID_CONFIG, "one of delete,compact");
    SAYS(alter(2, "t", "retention.ms", "1", 2, false), KE_INVALID_CONFIG, "not a list");
    SAYS(alter(2, "t", "retention.ms", "1", 7, false), KE_INVALID_REQUEST, "operation 7");
    SAYS(alter(2, "t", "retention.ms", NULL, 0, false), KE_INVALID_REQUEST, "a value");
    SAYS(alter(2, "t", "retention.ms", "soon", 0, false), KE_INVALID_CONFIG, "whole number");
    SAYS(alter(2, "t", "retension.ms", "1", 0, false), KE_INVALID_CONFIG, "did you mean retention.ms");
    SAYS(alter(2, "t", "", "1", 0, false), KE_INVALID_REQUEST, "between 1 and 255");
    SAYS(alter(2, "no", "retention.ms", "1", 0, false), KE_UNKNOWN_TOPIC_OR_PARTITION, "no topic no");
    assert_string_equal(value_of(2, "t", "retention.ms"), "42");
    int64_t leo = m.store->log->leo;
    assert_int_equal(alter(2, "t", "segment.ms", NULL, 1, false).code, 0); /* deleting what is not set writes nothing */
    assert_int_equal(m.store->log->leo, leo);
    assert_int_equal(alter(2, "t", "retention.ms", NULL, 1, false).code, 0);
    assert_null(value_of(2, "t", "retention.ms"));
}

static void test_alter_brokers(void **state) {
    (void)state;
    assert_int_equal(alter(4, "", "log.retention.ms", "5000", 0, false).code, 0);
    assert_int_equal(alter(4, "1", "log.retention.ms", "6000", 0, false).code, 0);
    assert_int_equal(kb_effective_topic_int(&m.image, m.config, kw_str_of("any"), "retention.ms"), 6000);
    assert_int_equal(alter(4, "1", "log.cleanup.policy", "compact", 2, false).code, 0);
    assert_string_equal(value_of(4, "1", "log.cleanup.policy"), "delete,compact");
    SAYS(alter(4, "1", "num.partitions", "6", 0, false), KE_INVALID_CONFIG, "server.properties and restart");
    SAYS(alter(4, "2", "log.retention.ms", "6000", 0, false), KE_INVALID_REQUEST, "no broker 2");
    SAYS(alter(4, "one", "log.retention.ms", "6000", 0, false), KE_INVALID_REQUEST, "no broker one");
    SAYS(alter(4, "1", "retention.ms", "1", 0, false), KE_INVALID_CONFIG, "there is no broker configuration");
    SAYS(alter(8, "1", "root", "DEBUG", 0, false), KE_INVALID_REQUEST, "--verbose");
    SAYS(alter(16, "x", "metrics", "1", 0, false), KE_INVALID_REQUEST, "client metrics");
    SAYS(alter(32, "g", "consumer.session.timeout.ms", "1", 0, false), KE_INVALID_REQUEST, "group");
    SAYS(alter(3, "x", "y", "1", 0, false), KE_INVALID_REQUEST, "type 3");
}

static void test_replace_all(void **state) {
    (void)state;
    assert_int_equal(meta_create(&m, "t", 1), 0);
    assert_int_equal(alter(2, "t", "retention.ms", "1", 0, false).code, 0);
    assert_int_equal(alter(2, "t", "segment.ms", "2", 0, false).code, 0);
    assert_int_equal(alter(2, "t", "segment.ms", "3", 0, true).code, 0);
    assert_null(value_of(2, "t", "retention.ms")); /* not named: back to the default */
    assert_string_equal(value_of(2, "t", "segment.ms"), "3");
    SAYS(alter(2, "t", "flush.ms", "x", 0, true), KE_INVALID_CONFIG, "whole number");
    assert_string_equal(value_of(2, "t", "segment.ms"), "3"); /* whole or not at all */
    assert_int_equal(alter(2, "t", NULL, NULL, 0, true).code, 0);
    assert_null(value_of(2, "t", "segment.ms"));
}

static void test_resources_whole_or_not(void **state) {
    (void)state;
    struct meta_change c;
    assert_int_equal(meta_create(&m, "t", 1), 0);
    assert_int_equal(meta_create(&m, "u", 1), 0);
    struct kb_config_kv mixed[] = {{.key = kw_str_of("retention.ms"), .value = kw_str_of("1")},
                                   {.key = kw_str_of("segment.ms"), .value = kw_str_of("x")}},
                        doubled[] = {{.key = kw_str_of("retention.ms"), .value = kw_str_of("1")},
                                     {.key = kw_str_of("retention.ms"), .value = kw_str_of("2")}},
                        fine = {.key = kw_str_of("retention.ms"), .value = kw_str_of("9")};
    struct kb_config_alter a[] = {{.type = 2, .name = kw_str_of("t"), .kvs = mixed, .kv_count = 2},
                                  {.type = 2, .name = kw_str_of("u"), .kvs = &fine, .kv_count = 1},
                                  {.type = 4, .name = kw_str_of("1"), .kvs = doubled, .kv_count = 2},
                                  {.type = 4, .name = kw_str_of(""), .kvs = &fine, .kv_count = 1},
                                  {.type = 4, .name = kw_str_of(""), .kvs = &fine, .kv_count = 1}};
    assert_int_equal(kb_controller_alter_configs(m.controller, a, 5, false, meta_change(&c), m.now), KW_OK);
    meta_idle(&m);
    SAYS(a[0].result, KE_INVALID_CONFIG, "segment.ms");
    assert_null(value_of(2, "t", "retention.ms"));
    assert_int_equal(a[1].result.code, 0);
    assert_string_equal(value_of(2, "u", "retention.ms"), "9");
    SAYS(a[2].result, KE_INVALID_REQUEST, "more than once");
    SAYS(a[3].result, KE_INVALID_REQUEST, "more than once");
    SAYS(a[4].result, KE_INVALID_REQUEST, "more than once");
}

/* ---- Order, cancelling, producer ids ---- */

static void test_changes_of_one_topic_wait_for_each_other(void **state) {
    (void)state;
    struct meta_change c[5];
    struct kb_topic_create first = topic("t", 1, 1), second = topic("t", 1, 1), alike = topic("t", 1, 1), other = topic("free", 1, 1);
    struct kb_topic_ref gone = {.name = kw_str_of("t")};
    int64_t leo = m.store->log->leo;
    assert_int_equal(kb_controller_create_topics(m.controller, &other, 1, false, meta_change(&c[0]), m.now), KW_OK);
    assert_int_equal(kb_controller_create_topics(m.controller, &first, 1, false, meta_change(&c[1]), m.now), KW_OK);
    assert_int_equal(m.store->log->leo, leo + 4); /* different topics go together */
    assert_int_equal(kb_controller_create_topics(m.controller, &second, 1, false, meta_change(&c[2]), m.now), KW_OK);
    assert_int_equal(kb_controller_delete_topics(m.controller, &gone, 1, meta_change(&c[3]), m.now), KW_OK);
    assert_int_equal(kb_controller_create_topics(m.controller, &alike, 1, false, meta_change(&c[4]), m.now), KW_OK);
    assert_int_equal(m.store->log->leo, leo + 4); /* the rest waits for what the first does */
    meta_idle(&m);
    for (int i = 0; i < 5; i++) assert_int_equal(c[i].done, 1);
    assert_int_equal(first.result.code, 0);
    SAYS(second.result, KE_TOPIC_ALREADY_EXISTS, "exists already");
    assert_int_equal(gone.result.code, 0);
    assert_int_equal(alike.result.code, 0);
    assert_true(kw_uuid_eq(kb_image_topic(&m.image, kw_str_of("t"))->id, alike.id));
}

static void test_cancelled_changes(void **state) {
    (void)state;
    struct meta_change c[4];
    struct kb_topic_create first = topic("t", 1, 1), queued = topic("t.", 1, 1), refused = topic("..", 1, 1);
    struct kb_topic_create *gone = kw_malloc(sizeof(*gone)); /* its memory goes with the request */
    struct meta_change *late = kw_malloc(sizeof(*late));
    *gone = topic("late", 1, 1);
    assert_int_equal(kb_controller_create_topics(m.controller, gone, 1, false, meta_change(late), m.now), KW_OK);
    kb_controller_cancel(m.controller, &late->change);
    kw_free(gone);
    kw_free(late);
    assert_int_equal(kb_controller_create_topics(m.controller, &first, 1, false, meta_change(&c[0]), m.now), KW_OK);
    queued.name = kw_str_of("t");
    assert_int_equal(kb_controller_create_topics(m.controller, &queued, 1, false, meta_change(&c[1]), m.now), KW_OK);
    kb_controller_cancel(m.controller, &c[1].change); /* had not begun */
    assert_int_equal(kb_controller_create_topics(m.controller, &refused, 1, false, meta_change(&c[2]), m.now), KW_OK);
    kb_controller_cancel(m.controller, &c[2].change); /* was finished, not yet told */
    meta_idle(&m);
    assert_int_equal(c[0].done, 1);
    assert_int_equal(c[1].done, 0);
    assert_int_equal(c[2].done, 0);
    assert_non_null(kb_image_topic(&m.image, kw_str_of("late"))); /* what was appended happens */
    assert_int_equal(meta_delete(&m, "late"), 0);
}

static void test_producer_ids(void **state) {
    (void)state;
    struct meta_change c[3];
    struct kb_pid_block b[3];
    for (int i = 0; i < 3; i++) assert_int_equal(kb_controller_allocate_pids(m.controller, &b[i], meta_change(&c[i]), m.now), KW_OK);
    meta_idle(&m);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c[i].done, 1);
        assert_int_equal(b[i].result.code, 0);
        assert_int_equal(b[i].first, i * 1000);
        assert_int_equal(b[i].count, 1000);
    }
    assert_int_equal(m.image.next_producer_id, 3000);
    meta_crash(&m, true);
    meta_start(&m);
    assert_int_equal(kb_controller_allocate_pids(m.controller, &b[0], meta_change(&c[0]), m.now), KW_OK);
    meta_idle(&m);
    assert_int_equal(b[0].first, 3000); /* never one twice */
}

static void test_too_many_items(void **state) {
    (void)state;
    int32_t n = 10001;
    struct kb_topic_create *t = calloc((size_t)n, sizeof(*t));
    for (int32_t i = 0; i < n; i++) t[i] = topic("t", 1, 1);
    create(t, n, false);
    SAYS(t[0].result, KE_POLICY_VIOLATION, "split it");
    SAYS(t[n - 1].result, KE_POLICY_VIOLATION, "split it");
    free(t);
}

/* ---- A random history against a model: names, partition counts, one configuration each ---- */

#define MODEL 12
struct model_topic {
    bool present;
    int32_t partitions;
    int retention; /* 0: not set */
};

static void check_model(const struct model_topic *mo) {
    for (int i = 0; i < MODEL; i++) {
        char name[32];
        snprintf(name, sizeof(name), "m%d", i);
        const struct kb_image_topic *t = kb_image_topic(&m.image, kw_str_of(name));
        assert_true((t != NULL) == mo[i].present);
        if (!t) continue;
        assert_int_equal(t->partition_count, mo[i].partitions);
        const char *v = value_of(2, name, "retention.ms");
        assert_int_equal(v ? atoi(v) : 0, mo[i].retention);
    }
}

static void random_change(struct model_topic *mo) {
    int i = (int)kw_rng_below(&m.rng, MODEL);
    char name[16], value[16];
    snprintf(name, sizeof(name), "m%d", i);
    switch (kw_rng_below(&m.rng, 5)) {
    case 0: {
        int32_t n = 1 + (int32_t)kw_rng_below(&m.rng, 4);
        assert_int_equal(meta_create(&m, name, n), mo[i].present ? KE_TOPIC_ALREADY_EXISTS : 0);
        if (!mo[i].present) mo[i] = (struct model_topic){true, n, 0};
        break;
    }
    case 1:
        assert_int_equal(meta_delete(&m, name), mo[i].present ? 0 : KE_UNKNOWN_TOPIC_OR_PARTITION);
        mo[i] = (struct model_topic){0};
        break;
    case 2: {
        struct kb_topic_grow g = {.name = kw_str_of(name), .total = 1 + (int32_t)kw_rng_below(&m.rng, 8), .assignment_count = -1};
        grow(&g, 1, false);
        bool grows = mo[i].present && g.total > mo[i].partitions;
        assert_int_equal(g.result.code, grows ? 0 : mo[i].present ? KE_INVALID_PARTITIONS : KE_UNKNOWN_TOPIC_OR_PARTITION);
        if (grows) mo[i].partitions = g.total;
        break;
    }
    default: {
        int v = kw_rng_below(&m.rng, 3) ? 1 + (int)kw_rng_below(&m.rng, 1000) : 0;
        snprintf(value, sizeof(value), "%d", v);
        int16_t code = alter(2, name, "retention.ms", v ? value : NULL, v ? 0 : 1, false).code;
        assert_int_equal(code, mo[i].present ? 0 : KE_UNKNOWN_TOPIC_OR_PARTITION);
        if (mo[i].present) mo[i].retention = v;
    }
    }
}

static void test_random_history_with_restarts(void **state) {
    (void)state;
    struct model_topic mo[MODEL] = {{0}};
    meta_set(&m, "metadata.log.max.record.bytes.between.snapshots", "3000");
    meta_set(&m, "metadata.log.segment.bytes", "1024");
    for (int round = 0; round < 40; round++) {
        for (int i = (int)kw_rng_below(&m.rng, 40); i > 0; i--) random_change(mo);
        check_model(mo);
        switch (kw_rng_below(&m.rng, 3)) {
        case 0:
            meta_stop(&m);
            break;
        case 1:
            meta_crash(&m, false);
            break;
        default:
            meta_crash(&m, true);
        }
        meta_start(&m);
        check_model(mo);
    }
}

static void test_failing_allocation(void **state) {
    (void)state;
    assert_int_equal(meta_create(&m, "grows", 1), 0);
    int32_t total = 1;
    bool all = false;
    for (int64_t n = 0; !all; n++) {
        struct meta_change c[4];
        struct kb_config_kv kv = {.key = kw_str_of("retention.ms"), .value = kw_str_of("7")};
        struct kb_topic_create t = topic("made", 2, 1);
        struct kb_topic_grow g = {.name = kw_str_of("grows"), .total = total + 1, .assignment_count = -1};
        struct kb_config_alter a = {.type = 4, .name = kw_str_of(""), .kvs = &kv, .kv_count = 1};
        kv.key = kw_str_of("log.retention.ms");
        struct kb_pid_block b;
        kw_alloc_fail_after(n);
        kw_err e[4];
        e[0] = kb_controller_create_topics(m.controller, &t, 1, false, meta_change(&c[0]), m.now);
        e[1] = kb_controller_grow_topics(m.controller, &g, 1, false, meta_change(&c[1]), m.now);
        e[2] = kb_controller_alter_configs(m.controller, &a, 1, false, meta_change(&c[2]), m.now);
        e[3] = kb_controller_allocate_pids(m.controller, &b, meta_change(&c[3]), m.now);
        bool fired = false;
        for (int i = 0; i < 4; i++) fired |= e[i] != KW_OK;
        kw_alloc_fail_after(-1); /* what commits must be applied, or the node stops: test_store has that */
        meta_idle(&m);
        for (int i = 0; i < 4; i++) assert_int_equal(c[i].done, e[i] == KW_OK);
        int16_t codes[] = {e[0] ? 0 : t.result.code, e[1] ? 0 : g.result.code, e[2] ? 0 : a.result.code, e[3] ? 0 : b.result.code};
        for (int i = 0; i < 4; i++) {
            assert_true(codes[i] == 0 || codes[i] == KE_UNKNOWN_SERVER_ERROR);
            fired |= codes[i] != 0;
        }
        assert_true((kb_image_topic(&m.image, kw_str_of("made")) != NULL) == (!e[0] && !codes[0]));
        total = kb_image_topic(&m.image, kw_str_of("grows"))->partition_count;
        if (!e[0] && !codes[0]) assert_int_equal(meta_delete(&m, "made"), 0);
        all = !fired;
        assert_in_range(n, 0, 1000);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_pr_15_names),
        TEST(test_numbers),
        TEST(test_assignments),
        TEST(test_configs_at_creation),
        TEST(test_several_in_one_request),
        TEST(test_validate_only),
        TEST(test_delete),
        TEST(test_grow),
        TEST(test_alter_one_by_one),
        TEST(test_alter_brokers),
        TEST(test_replace_all),
        TEST(test_resources_whole_or_not),
        TEST(test_changes_of_one_topic_wait_for_each_other),
        TEST(test_cancelled_changes),
        TEST(test_producer_ids),
        TEST(test_too_many_items),
        TEST(test_random_history_with_restarts),
        TEST(test_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
