/* test_cleaner.c - compaction on a node: what is due and when, settings that change meanwhile, cleaner-offset-checkpoint kept, lost, damaged and
 * stale; a node without compacted topics does nothing of it. Requirement S4; BL-16.
 */
#include "node_rig.h"

#include "log/log.h"
#include "replica/partitions_priv.h"

static struct rig r;
static struct rig_conn *c;

static int setup(void **state) {
    (void)state;
    rig_init(&r, 3);
    rig_set(&r, "log.segment.bytes", "3000");
    rig_set(&r, "log.cleaner.backoff.ms", "1000");
    rig_start(&r);
    c = rig_connect(&r);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    rig_deinit(&r);
    return 0;
}

static void put(const char *topic, int batches) { /* ten keys, over and over */
    for (int i = 0; i < batches; i++) {
        rig_produced a = rig_produce(c, topic, (struct rig_batch){.count = 10, .value_size = 50});
        assert_int_equal(a.error_code, KE_NONE);
    }
}

static int32_t records(const char *topic) {
    int32_t n = 0;
    struct kb_log *log = rig_partition(&r, topic, 0)->log;
    for (int64_t at = log->start; at < log->leo;) {
        rig_fetched *f = rig_fetch_one(c, RIG_FETCH(.topic = topic, .offset = at));
        assert_int_equal(f->error_code, KE_NONE);
        const uint8_t *p = f->records.p;
        assert_true(f->records.len > 0);
        for (size_t i = 0; i + KW_BATCH_HEADER_SIZE <= (size_t)f->records.len;) {
            struct kw_batch_header h;
            size_t whole = (size_t)kw_batch_size_peek(p + i, (size_t)f->records.len - i);
            if (whole > (size_t)f->records.len - i) break;
            assert_int_equal(kw_batch_parse(p + i, whole, &h), KW_OK);
            n += h.record_count;
            at = h.base_offset + h.last_offset_delta + 1;
            i += whole;
        }
    }
    return n;
}

static int16_t try_alter(const char *topic, const char *name, const char *value) {
    struct kw_incremental_alter_configs_request q;
    struct kw_incremental_alter_configs_response a;
    struct kw_incremental_alter_configs_request_alterable_config kv = {.name = kw_str_of(name), .value = kw_str_of(value)};
    struct kw_incremental_alter_configs_request_alter_configs_resource res = {
        .resource_type = topic ? 2 : 4, .resource_name = kw_str_of(topic ? topic : ""), .configs = {.v = &kv, .n = 1}};
    kw_msg_init(&kw_incremental_alter_configs_request_desc, &q);
    q.resources.v = &res;
    q.resources.n = 1;
    rig_call(c, KW_API_INCREMENTAL_ALTER_CONFIGS, 1, &q, &a);
    rig_settle(&r);
    return a.responses.v[0].error_code;
}

static void alter(const char *topic, const char *name, const char *value) {
    assert_int_equal(try_alter(topic, name, value), KE_NONE);
}

static const char *file(void) {
    static char text[1000];
    size_t n;
    const uint8_t *p = sim_disk_peek(r.disk, "/data/cleaner-offset-checkpoint", &n);
    if (!p) return NULL;
    assert_true(n < sizeof(text));
    memcpy(text, p, n);
    text[n] = 0;
    return text;
}

static int64_t passes(void) {
    return r.node->partitions->cleaner.passes;
}

static void restart(bool clean) {
    if (clean) rig_restart(&r);
    else rig_crash(&r);
    c = rig_connect(&r);
}

static void test_a_compacted_topic(void **state) {
    (void)state;
    assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
    put("t", 40);
    rig_pass(&r, 10000000);
    assert_true(passes() >= 1); /* another one when more was durable */
    int64_t cleaned = rig_partition(&r, "t", 0)->log->cleaned;
    assert_true(cleaned > 300);
    assert_int_equal(records("t"), 10 + 400 - cleaned);
    char text[100];
    snprintf(text, sizeof(text), "0\n1\nt 0 %lld\n", (long long)cleaned);
    assert_string_equal(file(), text);
    for (int clean = 0; clean < 2; clean++) { /* nothing is dirty: nothing is done */
        restart(clean);
        rig_pass(&r, 10000000);
        assert_int_equal(passes(), 0);
        assert_int_equal(rig_partition(&r, "t", 0)->log->cleaned, cleaned);
        assert_int_equal(records("t"), 10 + 400 - cleaned);
    }
    put("t", 60);
    rig_pass(&r, 10000000);
    assert_true(passes() >= 1);
    assert_true(rig_partition(&r, "t", 0)->log->cleaned > cleaned);
}

static void test_without_one(void **state) {
    (void)state;
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
    put("t", 40);
    rig_pass(&r, 10000000);
    const struct kb_cleaner *cl = &r.node->partitions->cleaner;
    assert_int_equal(cl->file, KB_CLEANER_UNREAD);
    assert_false(kw_timer_armed(&cl->timer));
    assert_null(file());
    assert_int_equal(records("t"), 400);
}

static void test_settings_that_change(void **state) {
    (void)state;
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
    put("t", 40);
    rig_pass(&r, 5000000);
    alter("t", "min.cleanable.dirty.ratio", "0.99");
    alter("t", "cleanup.policy", "compact");
    rig_pass(&r, 5000000);
    assert_int_equal(passes(), 1); /* all of it is dirty */
    put("t", 60);
    rig_pass(&r, 5000000);
    assert_int_equal(passes(), 1); /* not quite */
    alter("t", "min.cleanable.dirty.ratio", "0.1");
    rig_pass(&r, 5000000);
    assert_int_equal(passes(), 2);
    alter("t", "min.cleanable.dirty.ratio", "1"); /* nothing is ever as dirty */
    put("t", 60);
    rig_pass(&r, 5000000);
    assert_int_equal(passes(), 2);
    alter(NULL, "log.cleaner.max.compaction.lag.ms", "2000"); /* of the broker, for topics that do not say */
    rig_pass(&r, 8000000);
    assert_int_equal(passes(), 3);
    alter("t", "cleanup.policy", "delete");
    put("t", 40);
    rig_pass(&r, 8000000);
    assert_int_equal(passes(), 3);
    assert_false(kw_timer_armed(&r.node->partitions->cleaner.timer)); /* nothing is left to look at */
}

/* KAFKA-9254: the topic's own setting stays in force, whatever the broker's default becomes. */
static void test_bl_16_the_topic_overrides(void **state) {
    (void)state;
    assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
    put("t", 40);
    alter(NULL, "log.cleanup.policy", "delete");
    alter(NULL, "log.retention.ms", "1000");
    alter(NULL, "log.cleanup.policy", "compact,delete");
    rig_pass(&r, 400000000); /* and retention has looked */
    assert_int_equal(rig_partition(&r, "t", 0)->log->start, 0);
    assert_true(records("t") >= 10);
}

static void test_switched_off(void **state) {
    (void)state;
    rig_stop(&r);
    rig_set(&r, "log.cleaner.enable", "false");
    rig_start(&r);
    c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
    put("t", 40);
    rig_pass(&r, 10000000);
    assert_int_equal(passes(), 0);
    assert_null(file());
}

static void test_the_file_is_lost_or_damaged(void **state) {
    (void)state;
    assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
    put("t", 40);
    rig_pass(&r, 10000000);
    rig_stop(&r);
    sim_disk_remove(r.disk, "/data/cleaner-offset-checkpoint");
    rig_start(&r);
    c = rig_connect(&r);
    rig_pass(&r, 10000000);
    assert_int_equal(passes(), 1); /* from the start again */
    int64_t cleaned = rig_partition(&r, "t", 0)->log->cleaned;
    static const char *const damaged[] = {"0\n1\nt 0 3", "1\n1\nt 0 3\n", "rubbish", "", "0\n2\nt 0 3\n"};
    for (size_t i = 0; i < KW_COUNTOF(damaged); i++) {
        rig_stop(&r);
        sim_disk_poke(r.disk, "/data/cleaner-offset-checkpoint", damaged[i], strlen(damaged[i]));
        r.lines[0] = 0;
        rig_start(&r);
        c = rig_connect(&r);
        rig_pass(&r, 10000000);
        assert_non_null(strstr(r.lines, "cleaner-offset-checkpoint"));
        assert_int_equal(passes(), 1);
        assert_int_equal(rig_partition(&r, "t", 0)->log->cleaned, cleaned);
        assert_int_equal(records("t"), 10 + 400 - cleaned);
    }
    rig_stop(&r);
    sim_disk_poke(r.disk, "/data/cleaner-offset-checkpoint", "0\n1\nt 0 99999\n", 14); /* beyond the log's end */
    rig_start(&r);
    c = rig_connect(&r);
    rig_pass(&r, 10000000);
    assert_int_equal(rig_partition(&r, "t", 0)->log->cleaned, cleaned);
}

/* A topic that is made anew has nothing to do with what its predecessor's log had come to. */
static void test_a_topic_made_anew(void **state) {
    (void)state;
    assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
    put("t", 40);
    rig_pass(&r, 10000000);
    restart(true);
    rig_delete(c, "t");
    assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
    rig_pass(&r, 5000000);
    assert_string_equal(file(), "0\n0\n");
    put("t", 40);
    assert_int_equal(rig_partition(&r, "t", 0)->log->cleaned, 0);
    rig_pass(&r, 10000000);
    int64_t cleaned = rig_partition(&r, "t", 0)->log->cleaned;
    assert_true(cleaned > 300);
    assert_int_equal(records("t"), 10 + 400 - cleaned);
}

static void step_once(void) {
    if (rig_turn(&r)) return;
    int64_t next = KW_MIN(sim_disk_next(r.disk), kb_node_deadline(r.node));
    if (next == KW_NEVER || next <= r.now.mono_us) return;
    r.now.wall_ms += (next - r.now.mono_us + 999) / 1000;
    r.now.mono_us = next;
}

/* Deleted, stopped, killed, while a pass is under way: at each of its moments. */
static void test_in_the_middle(void **state) {
    for (int what = 0; what < 3; what++)
        for (int step = 0; step < 25; step++) {
            teardown(state);
            setup(state);
            assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
            put("t", 40);
            struct kb_cleaner *cl = &r.node->partitions->cleaner;
            for (int i = 0; !cl->current; i++) {
                assert_true(i < 100000);
                step_once();
            }
            for (int i = 0; i < step; i++) step_once();
            if (what == 0) {
                rig_delete(c, "t");
                rig_pass(&r, 100000);
                assert_null(cl->current);
                assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
                assert_int_equal(rig_partition(&r, "t", 0)->log->leo, 0);
                put("t", 40);
            } else {
                restart(what == 1);
            }
            rig_pass(&r, 10000000);
            int64_t cleaned = rig_partition(&r, "t", 0)->log->cleaned;
            assert_true(cleaned > 300);
            assert_int_equal(records("t"), 10 + 400 - cleaned);
        }
}

static void test_values_that_cannot_be(void **state) {
    (void)state;
    static const char *const wrong[][2] = {{"min.cleanable.dirty.ratio", "1.5"}, {"min.cleanable.dirty.ratio", "-0.1"}, {"min.cleanable.dirty.ratio", "half"},
                                           {"max.compaction.lag.ms", "0"},       {"min.compaction.lag.ms", "-1"},       {"delete.retention.ms", "-1"}};
    assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
    for (size_t i = 0; i < KW_COUNTOF(wrong); i++) assert_int_equal(try_alter("t", wrong[i][0], wrong[i][1]), KE_INVALID_CONFIG);
    assert_int_equal(try_alter(NULL, "log.cleaner.min.cleanable.ratio", "2"), KE_INVALID_CONFIG);
    assert_int_equal(try_alter(NULL, "log.cleaner.dedupe.buffer.size", "1000000"), KE_NONE);
}

static void test_keys_are_needed(void **state) {
    (void)state;
    assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
    rig_produced a = rig_produce(c, "t", (struct rig_batch){.count = 3, .value_size = 5, .null_key = true});
    assert_int_equal(a.error_code, KE_INVALID_RECORD);
    assert_int_equal(rig_partition(&r, "t", 0)->log->leo, 0);
}

int main(void) {
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_a_compacted_topic),           T(test_without_one),       T(test_settings_that_change), T(test_bl_16_the_topic_overrides),
        T(test_switched_off),                T(test_the_file_is_lost_or_damaged), T(test_a_topic_made_anew), T(test_in_the_middle),
        T(test_keys_are_needed),             T(test_values_that_cannot_be),
    };
    return cmocka_run_group_tests_name("cleaner", tests, NULL, NULL);
}
