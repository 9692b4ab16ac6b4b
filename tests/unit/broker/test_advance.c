/* test_advance.c - a virtual clock is advanced (kb_node_advance): for each policy, on a whole node, that it is over at once, and not sooner; that the
 * machinery does not notice; what is refused. Groups: test_group_advance.c. A cluster: tests/scenario/test_clock.py.
 */
#include "guid_rig.h"

#include "log/pid_state.h"
#include "replica/partitions_priv.h"

#define SECOND INT64_C(1000)
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)

static void advance(struct rig *r, int64_t ms) {
    r->now.wall_ms += ms;
    assert_int_equal(kb_node_advance(r->node, ms, r->now), KW_OK);
    rig_pass(r, 500000); /* what goes over the disk */
}

static struct rig_conn *begin(struct rig *r, uint64_t seed, const char *name, const char *value) {
    rig_init(r, seed);
    rig_set(r, "log.segment.bytes", "1000");
    rig_start(r);
    struct rig_conn *c = rig_connect(r);
    assert_int_equal(rig_create(c, "t", 1, name, value), KE_NONE);
    return c;
}

/* Records of a client whose clock is the system's, not this one: `behind` it. */
static int64_t put(struct rig *r, struct rig_conn *c, int64_t behind, int batches) {
    int64_t first = -1;
    for (int i = 0; i < batches; i++) {
        rig_produced a = rig_produce(c, "t", (struct rig_batch){.count = 1, .value_size = 400, .timestamp = r->now.wall_ms - behind});
        assert_int_equal(a.error_code, KE_NONE);
        if (i == 0) first = a.base_offset;
    }
    rig_settle(r);
    return first;
}

static struct kb_log *log_of(struct rig *r) {
    return rig_partition(r, "t", 0)->log;
}

/* ---- The log ---- */

static void test_retention(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = begin(&r, 1, "retention.ms", "3600000");
    put(&r, c, 0, 6);
    advance(&r, HOUR - 5 * SECOND);
    assert_int_equal(log_of(&r)->start, 0);
    int64_t mono_us = r.now.mono_us;
    advance(&r, 6 * SECOND);
    assert_int_equal(log_of(&r)->start, 6);
    assert_true(r.now.mono_us - mono_us < 2000000); /* at once, not when it would be looked at next */
    rig_deinit(&r);
}

/* What came after an advance is not as old as its client's clock, which was not advanced, makes it. */
static void test_retention_of_what_came_after(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = begin(&r, 2, "retention.ms", "3600000");
    put(&r, c, 0, 2);
    advance(&r, DAY);
    assert_int_equal(log_of(&r)->start, 2);
    int64_t first = put(&r, c, DAY, 4);
    advance(&r, 0);
    advance(&r, HOUR - 5 * SECOND);
    assert_int_equal(log_of(&r)->start, first);
    advance(&r, 6 * SECOND);
    assert_int_equal(log_of(&r)->start, first + 4);
    first = put(&r, c, 0, 4); /* stamped by a clock that is as far ahead, or by the broker */
    advance(&r, HOUR - 5 * SECOND);
    assert_int_equal(log_of(&r)->start, first);
    advance(&r, 6 * SECOND);
    assert_int_equal(log_of(&r)->start, first + 4);
    rig_deinit(&r);
}

/* No time is later than a record's may be, whatever is added to it. */
static void test_retention_of_the_latest_time(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = begin(&r, 11, "message.timestamp.after.max.ms", "9223372036854775807");
    advance(&r, HOUR);
    rig_produced a = rig_produce(c, "t", (struct rig_batch){.count = 1, .value_size = 400, .timestamp = INT64_MAX});
    assert_int_equal(a.error_code, KE_NONE);
    advance(&r, 30 * DAY); /* log.retention.hours are a week */
    assert_int_equal(log_of(&r)->start, 0);
    rig_deinit(&r);
}

static void test_roll(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = begin(&r, 3, "segment.ms", "3600000");
    put(&r, c, 0, 1);
    advance(&r, HOUR - 5 * SECOND);
    put(&r, c, HOUR - 5 * SECOND, 1);
    assert_int_equal(kb_log_segment_count(log_of(&r)), 1);
    advance(&r, 6 * SECOND);
    put(&r, c, HOUR + SECOND, 1);
    assert_int_equal(kb_log_segment_count(log_of(&r)), 2);
    put(&r, c, HOUR + SECOND, 1); /* the new one is young */
    assert_int_equal(kb_log_segment_count(log_of(&r)), 2);
    rig_deinit(&r);
}

/* By the broker's timestamps an hour is an hour, before and after. */
static void test_roll_log_append_time(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = begin(&r, 4, "message.timestamp.type", "LogAppendTime");
    advance(&r, DAY);
    put(&r, c, DAY, 1);
    advance(&r, 6 * DAY); /* of log.roll.hours' seven */
    put(&r, c, 7 * DAY, 1);
    assert_int_equal(kb_log_segment_count(log_of(&r)), 1);
    advance(&r, DAY + SECOND);
    put(&r, c, 8 * DAY, 1);
    assert_int_equal(kb_log_segment_count(log_of(&r)), 2);
    rig_deinit(&r);
}

static int64_t passes(struct rig *r) {
    return r->node->partitions->cleaner.passes;
}

static struct rig_conn *begin_compacted(struct rig *r, uint64_t seed, const char *lag, const char *ms) {
    rig_init(r, seed);
    rig_set(r, "log.segment.bytes", "1000");
    rig_set(r, "log.cleaner.backoff.ms", "600000000");
    rig_set(r, "log.cleaner.min.cleanable.ratio", strcmp(lag, "log.cleaner.min.compaction.lag.ms") == 0 ? "0.01" : "1");
    rig_set(r, "log.flush.interval.messages", "1"); /* what is not durable is not compacted */
    rig_set(r, lag, ms);
    rig_start(r);
    struct rig_conn *c = rig_connect(r);
    assert_int_equal(rig_create(c, "t", 1, "cleanup.policy", "compact"), KE_NONE);
    return c;
}

static void test_compaction_lags(void **state) {
    (void)state;
    static const char *const lags[] = {"log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"};
    for (size_t i = 0; i < KW_COUNTOF(lags); i++) {
        struct rig r;
        struct rig_conn *c = begin_compacted(&r, 5 + i, lags[i], "3600000");
        advance(&r, DAY); /* clients' clocks lag behind from now on */
        put(&r, c, DAY, 6);
        advance(&r, HOUR - 10 * SECOND);
        rig_pass(&r, 1000000);
        assert_int_equal(passes(&r), 0);
        advance(&r, 20 * SECOND);
        rig_pass(&r, 1000000);
        assert_true(passes(&r) > 0);
        rig_deinit(&r);
    }
}

static void test_deleted_folders(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = begin(&r, 7, NULL, NULL);
    put(&r, c, 0, 1);
    rig_delete(c, "t");
    rig_settle(&r);
    assert_false(kw_list_empty(&r.node->parts.log_env.doomed)); /* file.delete.delay.ms: 60 s */
    advance(&r, 50 * SECOND);
    assert_false(kw_list_empty(&r.node->parts.log_env.doomed));
    advance(&r, 11 * SECOND);
    assert_true(kw_list_empty(&r.node->parts.log_env.doomed));
    rig_deinit(&r);
}

/* ---- Producers ---- */

static void test_producer_ids(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = begin(&r, 8, NULL, NULL);
    assert_int_equal(rig_produce(c, "t", (struct rig_batch){.pid = 77, .count = 1, .value_size = 10}).error_code, KE_NONE);
    advance(&r, DAY - 5 * SECOND); /* producer.id.expiration.ms */
    assert_non_null(kb_pid_get(log_of(&r)->pids, 77));
    advance(&r, 6 * SECOND);
    assert_null(kb_pid_get(log_of(&r)->pids, 77));
    rig_deinit(&r);
}

static void test_guid_window(void **state) {
    (void)state;
    for (int flushed = 0; flushed < 2; flushed++) { /* in memory; in a file, read again at a start */
        struct rig r;
        struct rig_conn *c = guid_begin(&r, (uint64_t)(9 + flushed));
        guid_expect(guid_put(c, true, GUIDS(IDS(1, 2))), KE_NONE, 0);
        if (flushed) {
            rig_restart(&r);
            c = rig_connect(&r);
        }
        advance(&r, HOUR - 10 * SECOND);
        guid_ranges(guid_put(c, true, GUIDS(IDS(1, 2))), "0+2@0");
        guid_expect(guid_put(c, true, GUIDS(IDS(3))), KE_NONE, 2);
        advance(&r, HOUR / 16 + 20 * SECOND); /* a window is 17/16 of one at most */
        guid_expect(guid_put(c, true, GUIDS(IDS(1, 2))), KE_NONE, 3);
        guid_ranges(guid_put(c, true, GUIDS(IDS(3))), "0+1@2"); /* that one is young */
        rig_deinit(&r);
    }
}

/* ---- Groups ---- */

static int64_t committed(struct rig_conn *c) {
    struct kw_offset_fetch_request q;
    struct kw_offset_fetch_response a;
    struct kw_offset_fetch_request_topic t = {.name = kw_str_of("t")};
    int32_t zero = 0;
    kw_msg_init(&kw_offset_fetch_request_desc, &q);
    q.group_id = kw_str_of("g");
    t.partition_indexes.v = &zero;
    t.partition_indexes.n = 1;
    q.topics.v = (void *)&t;
    q.topics.n = 1;
    rig_call(c, KW_API_OFFSET_FETCH, 1, &q, &a);
    assert_int_equal(a.topics.n, 1);
    return a.topics.v[0].partitions.v[0].committed_offset;
}

static void commit(struct rig_conn *c, int64_t offset) {
    struct kw_offset_commit_request q;
    struct kw_offset_commit_response a;
    struct kw_offset_commit_request_partition p = {.partition_index = 0, .committed_offset = offset, .committed_leader_epoch = -1, .commit_timestamp = -1};
    struct kw_offset_commit_request_topic t = {.name = kw_str_of("t"), .partitions = {.v = &p, .n = 1}};
    kw_msg_init(&kw_offset_commit_request_desc, &q);
    q.group_id = kw_str_of("g");
    q.generation_id_or_member_epoch = -1;
    q.topics.v = (void *)&t;
    q.topics.n = 1;
    rig_call(c, KW_API_OFFSET_COMMIT, 7, &q, &a);
    assert_int_equal(a.topics.v[0].partitions.v[0].error_code, KE_NONE);
}

static void test_offsets_retention(void **state) {
    (void)state;
    struct rig r;
    struct kw_find_coordinator_request q;
    struct kw_find_coordinator_response a;
    struct rig_conn *c = begin(&r, 11, NULL, NULL);
    kw_msg_init(&kw_find_coordinator_request_desc, &q);
    q.key = kw_str_of("g");
    rig_call(c, KW_API_FIND_COORDINATOR, 2, &q, &a);
    rig_pass(&r, 1000000);
    commit(c, 5);
    advance(&r, 7 * DAY - 10 * SECOND);
    assert_int_equal(committed(c), 5);
    advance(&r, 20 * SECOND);
    assert_int_equal(committed(c), -1);
    rig_deinit(&r);
}

/* ---- The machinery ---- */

static void test_waits_go_on(void **state) {
    (void)state;
    struct rig r;
    struct kw_fetch_response a;
    struct rig_conn *c = begin(&r, 12, NULL, NULL), *waiting = rig_connect(&r), *idle = rig_connect(&r);
    rig_request(waiting, KW_API_FETCH, 11, 5, &rig_fetch_msg(&r, &RIG_FETCH(.topic = "t", .max_wait_ms = 5000))->req);
    rig_settle(&r);
    advance(&r, 30 * DAY);
    assert_false(rig_response(waiting, KW_API_FETCH, 11, 5, &a));
    assert_non_null(idle->conn); /* connections.max.idle.ms */
    rig_pass(&r, 4400000);
    assert_false(rig_response(waiting, KW_API_FETCH, 11, 5, &a));
    put(&r, c, 30 * DAY, 1);
    assert_true(rig_response(waiting, KW_API_FETCH, 11, 5, &a));
    assert_int_equal(kb_node_state(r.node), KB_NODE_READY);
    rig_deinit(&r);
}

static void test_refused(void **state) {
    (void)state;
    struct rig r;
    begin(&r, 13, NULL, NULL);
    int64_t due = kb_node_deadline(r.node);
    assert_int_equal(kb_node_advance(r.node, -1, r.now), KW_EINVAL);
    assert_int_equal(kb_node_advance(r.node, INT64_MIN, r.now), KW_EINVAL);
    assert_int_equal(kb_node_advance(r.node, INT64_MAX, r.now), KW_EINVAL);
    assert_int_equal(kb_node_advance(r.node, KB_AHEAD_MS_MAX + 1, r.now), KW_EINVAL);
    assert_int_equal(kb_node_ahead_ms(r.node), 0);
    assert_int_equal(kb_node_deadline(r.node), due);
    advance(&r, KB_AHEAD_MS_MAX); /* all at once is fine, once */
    assert_int_equal(kb_node_advance(r.node, 1, r.now), KW_EINVAL);
    rig_pass(&r, 60000000);
    assert_int_equal(kb_node_state(r.node), KB_NODE_READY);
    rig_restart(&r);
    rig_deinit(&r);
}

/* A node that starts where the others are already: what it appends counts as new. */
static void test_started_ahead(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 14);
    rig_set(&r, "log.segment.bytes", "1000");
    r.now.wall_ms += DAY;
    r.ahead_ms = DAY;
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(kb_node_ahead_ms(r.node), DAY);
    assert_int_equal(rig_create(c, "t", 1, "retention.ms", "3600000"), KE_NONE);
    put(&r, c, DAY, 4);
    advance(&r, HOUR - 5 * SECOND);
    assert_int_equal(log_of(&r)->start, 0);
    advance(&r, 6 * SECOND);
    assert_int_equal(log_of(&r)->start, 4);
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_retention),         cmocka_unit_test(test_retention_of_what_came_after),
        cmocka_unit_test(test_retention_of_the_latest_time),
        cmocka_unit_test(test_roll),              cmocka_unit_test(test_roll_log_append_time),
        cmocka_unit_test(test_compaction_lags),   cmocka_unit_test(test_deleted_folders),
        cmocka_unit_test(test_producer_ids),      cmocka_unit_test(test_guid_window),
        cmocka_unit_test(test_offsets_retention), cmocka_unit_test(test_waits_go_on),
        cmocka_unit_test(test_refused),           cmocka_unit_test(test_started_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
