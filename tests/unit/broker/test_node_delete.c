/* test_node_delete.c - what is left of a partition that was deleted, or whose log is closed, and what a new one of the same name may meet of
 * it: its folder, its points in the checkpoint files. */
#include "node_rig.h"

#include "log/log.h"

static void delete_records(struct rig_conn *c, const char *topic, int64_t to) {
    struct kw_delete_records_request req;
    struct kw_delete_records_response resp;
    struct kw_delete_records_request_delete_records_partition p = {.offset = to};
    struct kw_delete_records_request_delete_records_topic t = {.name = kw_str_of(topic), .partitions = {.v = &p, .n = 1}};
    kw_msg_init(&kw_delete_records_request_desc, &req);
    req.topics.v = &t;
    req.topics.n = 1;
    req.timeout_ms = 10000;
    rig_call(c, KW_API_DELETE_RECORDS, 2, &req, &resp);
    assert_int_equal(resp.topics.v[0].partitions.v[0].error_code, KE_NONE);
    assert_int_equal(resp.topics.v[0].partitions.v[0].low_watermark, to);
}

static int64_t log_start(struct rig *r, const char *topic) {
    return rig_partition(r, topic, 0)->log->start;
}

/* A read of the old one's log is still under way when the new one is made: the old one's folder goes, never the new one's. */
static void test_made_again_while_read(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 1, 1), *d = rig_connect(&r);
    for (int i = 0; i < 3; i++) rig_produce_three(c, "t");
    struct kb_partition *old = rig_partition(&r, "t", 0);
    kb_partition_pin(old);
    rig_delete(c, "t");
    struct kw_create_topics_request req;
    struct kw_create_topics_response resp;
    struct kw_create_topics_request_creatable_topic t = {.name = kw_str_of("t"), .num_partitions = 1, .replication_factor = 1};
    kw_msg_init(&kw_create_topics_request_desc, &req);
    req.topics.v = &t;
    req.topics.n = 1;
    req.timeout_ms = 30000;
    rig_request(d, KW_API_CREATE_TOPICS, 7, 1, &req);
    rig_pass(&r, 1000000);
    kb_partition_unpin(old);
    rig_pass(&r, 1000000);
    assert_true(rig_response(d, KW_API_CREATE_TOPICS, 7, 1, &resp));
    assert_int_equal(resp.topics.v[0].error_code, KE_NONE);
    assert_int_equal(rig_produce_three(c, "t"), 0);
    rig_pass(&r, 120 * 1000000LL);
    assert_int_equal(rig_produce_three(c, "t"), 3);
    rig_crash(&r);
    assert_int_equal(rig_hw(&r, "t"), 6);
    rig_stop(&r);
    char **names;
    size_t n = sim_disk_names(r.disk, "/data", &names);
    for (size_t i = 0; i < n; i++) {
        assert_null(strstr(names[i], "-stray"));
        assert_null(strstr(names[i], "-delete"));
        free(names[i]);
    }
    free(names);
    rig_deinit(&r);
}

/* Deleted and made again many times at once, on a disk that answers in any order. */
static void test_made_again_and_again(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct rig r;
        struct rig_conn *c = rig_begin(&r, seed, 3);
        for (int i = 0; i < 6; i++) {
            rig_produce_three(c, "t");
            rig_delete(c, "t");
            assert_int_equal(rig_create(c, "t", 3, NULL, NULL), KE_NONE);
            assert_int_equal(rig_produce_three(c, "t"), 0);
        }
        rig_crash(&r);
        assert_int_equal(rig_hw(&r, "t"), 3);
        assert_string_equal(r.lines, "");
        rig_deinit(&r);
    }
}

/* The checkpoint files speak of the old one: the new one starts at 0, and a kill right then loses nothing of it. */
static void test_points_of_the_old_one(void **state) {
    (void)state;
    for (int restart = 0; restart < 2; restart++) {
        struct rig r;
        struct rig_conn *c = rig_begin(&r, 2, 1);
        for (int i = 0; i < 3; i++) rig_produce_three(c, "t");
        delete_records(c, "t", 6);
        if (restart) {
            rig_restart(&r);
            c = rig_connect(&r);
            assert_int_equal(log_start(&r, "t"), 6);
        }
        rig_delete(c, "t");
        assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
        assert_int_equal(rig_produce_three(c, "t"), 0);
        rig_crash(&r);
        assert_int_equal(log_start(&r, "t"), 0);
        assert_int_equal(rig_hw(&r, "t"), 3);
        rig_deinit(&r);
    }
}

/* The same when the process ended between the deletion and the next write of those files. */
static void test_points_of_one_long_gone(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 3);
    rig_start(&r);
    static const char stale[] = "0\n1\nt 0 6\n";
    rig_stop(&r);
    sim_disk_poke(r.disk, "/data/log-start-offset-checkpoint", stale, sizeof(stale) - 1);
    sim_disk_poke(r.disk, "/data/recovery-point-offset-checkpoint", stale, sizeof(stale) - 1);
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
    assert_int_equal(rig_produce_three(c, "t"), 0);
    rig_crash(&r);
    assert_int_equal(rig_hw(&r, "t"), 3);
    rig_deinit(&r);
}

/* BR-17: a folder of another topic is set aside; what the files say of that one is forgotten before the new one has a log. */
static void test_br17_points_of_one_set_aside(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 4, 1);
    for (int i = 0; i < 3; i++) rig_produce_three(c, "t");
    delete_records(c, "t", 6);
    rig_stop(&r);
    static const char other[] = "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg";
    sim_disk_poke(r.disk, "/data/t-0/partition.metadata", other, sizeof(other) - 1);
    rig_start(&r);
    assert_int_equal(rig_produce_three(rig_connect(&r), "t"), 0);
    rig_crash(&r);
    assert_int_equal(rig_hw(&r, "t"), 3);
    rig_deinit(&r);
}

/* A partition that cannot be opened keeps its points: DeleteRecords lasts, whatever happens to the disk meanwhile. */
static void test_points_of_one_offline(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 5, 1);
    rig_create(c, "u", 1, NULL, NULL);
    for (int i = 0; i < 3; i++) rig_produce_three(c, "t"), rig_produce_three(c, "u");
    delete_records(c, "t", 6);
    rig_settle(&r);
    size_t n;
    const uint8_t *p = sim_disk_peek(r.disk, "/data/t-0/partition.metadata", &n);
    uint8_t *kept = kw_arena_dup(&r.arena, p, n);
    rig_stop(&r);
    sim_disk_poke(r.disk, "/data/t-0/partition.metadata", "garbage", 7);
    rig_start(&r);
    c = rig_connect(&r);
    assert_non_null(strstr(r.lines, "t-0 is offline"));
    rig_produce_three(c, "u");
    delete_records(c, "u", 3);
    rig_pass(&r, 120 * 1000000LL);
    rig_kill(&r);
    sim_disk_poke(r.disk, "/data/t-0/partition.metadata", kept, n);
    rig_start(&r);
    assert_int_equal(log_start(&r, "u"), 3);
    assert_int_equal(log_start(&r, "t"), 6);
    rig_deinit(&r);
}

/* Deleting a topic whose log could not be opened removes its folder too. */
static void test_delete_offline(void **state) {
    (void)state;
    struct rig r;
    rig_begin(&r, 6, 1);
    rig_stop(&r);
    sim_disk_poke(r.disk, "/data/t-0/partition.metadata", "garbage", 7);
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    rig_delete(c, "t");
    assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
    assert_int_equal(rig_produce_three(c, "t"), 0);
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_again_while_read),   cmocka_unit_test(test_made_again_and_again),
        cmocka_unit_test(test_points_of_the_old_one),   cmocka_unit_test(test_points_of_one_long_gone),
        cmocka_unit_test(test_br17_points_of_one_set_aside), cmocka_unit_test(test_points_of_one_offline),
        cmocka_unit_test(test_delete_offline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
