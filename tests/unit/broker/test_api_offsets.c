/* test_api_offsets.c - ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeProducers, DescribeLogDirs,
 * InitProducerId (BL-15). */
#include "node_rig.h"

#include "log/log.h"

struct fixture {
    struct rig r;
    struct rig_conn *c;
};

static void up(struct fixture *x, uint64_t seed, const char *key, const char *value) {
    rig_init(&x->r, seed);
    rig_start(&x->r);
    x->c = rig_connect(&x->r);
    assert_int_equal(rig_create(x->c, "t", 1, key, value), KE_NONE);
}
static void down(struct fixture *x) {
    rig_deinit(&x->r);
}

typedef struct kw_list_offsets_response_list_offsets_partition_response offset_answer;
static offset_answer *offset_at(struct fixture *x, int16_t version, int64_t timestamp, int32_t max) {
    struct kw_list_offsets_request req;
    struct kw_list_offsets_response *resp = kw_arena_alloc(&x->r.arena, sizeof(*resp));
    struct kw_list_offsets_request_list_offsets_partition part = {
        .current_leader_epoch = -1, .timestamp = timestamp, .max_num_offsets = version == 0 ? max : 1};
    struct kw_list_offsets_request_list_offsets_topic topic = {.name = kw_str_of("t"), .partitions = {&part, 1}};
    kw_msg_init(&kw_list_offsets_request_desc, &req);
    req.replica_id = -1;
    req.topics.v = &topic;
    req.topics.n = 1;
    rig_call(x->c, KW_API_LIST_OFFSETS, version, &req, resp);
    return &resp->topics.v[0].partitions.v[0];
}

static void expect_offset(struct fixture *x, int64_t timestamp, int64_t offset, int64_t found) {
    for (int16_t v = 1; v <= 11; v++) {
        if (timestamp < -2 && v < (timestamp == -3 ? 7 : timestamp == -4 ? 8 : timestamp == -5 ? 9 : 11)) {
            assert_int_equal(offset_at(x, v, timestamp, 1)->error_code, KE_UNSUPPORTED_VERSION);
            continue;
        }
        offset_answer *a = offset_at(x, v, timestamp, 1);
        assert_int_equal(a->error_code, KE_NONE);
        assert_int_equal(a->offset, offset);
        assert_int_equal(a->timestamp, found);
    }
}

/* BL-15: timestamps 2,4,6,8 at offsets 0..3; the timestamp told is that of the record told; also on an empty log. */
static void test_BL_15(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 1, NULL, NULL);
    expect_offset(&x, -1, 0, -1);
    expect_offset(&x, -2, 0, -1);
    expect_offset(&x, -3, -1, -1);
    expect_offset(&x, 5, -1, -1);
    for (int64_t ts = 2; ts <= 8; ts += 2)
        assert_int_equal(rig_produce(x.c, "t", (struct rig_batch){.count = 1, .timestamp = ts}).error_code, KE_NONE);
    static const int64_t cases[][3] = {{1, 0, 2},   {2, 0, 2},  {3, 1, 4},   {8, 3, 8},    {9, -1, -1}, {-1, 4, -1},
                                       {-2, 0, -1}, {-3, 3, 8}, {-4, 0, -1}, {-5, -1, -1}, {-6, -1, -1}};
    for (int restart = 0; restart < 2; restart++) {
        for (size_t i = 0; i < KW_COUNTOF(cases); i++) expect_offset(&x, cases[i][0], cases[i][1], cases[i][2]);
        if (restart == 0) {
            rig_stop(&x.r);
            rig_start(&x.r);
            x.c = rig_connect(&x.r);
        }
    }
    assert_int_equal(offset_at(&x, 5, -7, 1)->error_code, KE_UNSUPPORTED_VERSION);
    down(&x);
}

static void test_list_v0(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 2, NULL, NULL);
    for (int i = 0; i < 3; i++) rig_produce(x.c, "t", (struct rig_batch){.count = 2});
    offset_answer *a = offset_at(&x, 0, -1, 1);
    assert_int_equal(a->old_style_offsets.n, 1);
    assert_int_equal(a->old_style_offsets.v[0], 6);
    a = offset_at(&x, 0, -1, 10);
    assert_int_equal(a->old_style_offsets.n, 2);
    assert_int_equal(a->old_style_offsets.v[1], 0);
    a = offset_at(&x, 0, -2, 10);
    assert_int_equal(a->old_style_offsets.n, 1);
    assert_int_equal(a->old_style_offsets.v[0], 0);
    assert_int_equal(offset_at(&x, 0, -1, 0)->old_style_offsets.n, 0);
    down(&x);
}

static void test_leader_epochs(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 3, NULL, NULL);
    rig_produce(x.c, "t", (struct rig_batch){.count = 3});
    rig_kill(&x.r);
    rig_start(&x.r);
    x.c = rig_connect(&x.r);
    rig_produce(x.c, "t", (struct rig_batch){.count = 2});
    int32_t now = kb_image_partition(&x.r.node->image, kw_str_of("t"), 0)->leader_epoch;
    struct kw_offset_for_leader_epoch_request req;
    struct kw_offset_for_leader_epoch_request_offset_for_leader_partition part = {.current_leader_epoch = -1};
    struct kw_offset_for_leader_epoch_request_offset_for_leader_topic topic = {.topic = kw_str_of("t"), .partitions = {&part, 1}};
    const struct {
        int32_t asked, current, epoch;
        int64_t end;
        int16_t code;
    } cases[] = {{0, -1, 0, 3, KE_NONE},
                 {now, -1, now, 5, KE_NONE},
                 {now + 1, -1, -1, -1, KE_NONE},
                 {now, now, now, 5, KE_NONE},
                 {0, now + 1, -1, -1, KE_UNKNOWN_LEADER_EPOCH},
                 {0, now - 1, -1, -1, KE_FENCED_LEADER_EPOCH}};
    for (int16_t v = 0; v <= 4; v++)
        for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
            if (v < 2 && cases[i].current >= 0) continue;
            struct kw_offset_for_leader_epoch_response resp;
            kw_msg_init(&kw_offset_for_leader_epoch_request_desc, &req);
            req.topics.v = &topic;
            req.topics.n = 1;
            part.leader_epoch = cases[i].asked;
            part.current_leader_epoch = v >= 2 ? cases[i].current : -1;
            rig_call(x.c, KW_API_OFFSET_FOR_LEADER_EPOCH, v, &req, &resp);
            assert_int_equal(resp.topics.v[0].partitions.v[0].error_code, cases[i].code);
            assert_int_equal(resp.topics.v[0].partitions.v[0].end_offset, cases[i].end);
            if (v >= 1) assert_int_equal(resp.topics.v[0].partitions.v[0].leader_epoch, cases[i].epoch);
        }
    down(&x);
}

static struct kw_delete_records_response_delete_records_partition_result delete_to(struct fixture *x, const char *topic, int64_t offset) {
    struct kw_delete_records_request req;
    struct kw_delete_records_response resp;
    struct kw_delete_records_request_delete_records_partition part = {.offset = offset};
    struct kw_delete_records_request_delete_records_topic t = {.name = kw_str_of(topic), .partitions = {&part, 1}};
    kw_msg_init(&kw_delete_records_request_desc, &req);
    req.topics.v = &t;
    req.topics.n = 1;
    req.timeout_ms = 5000;
    rig_call(x->c, KW_API_DELETE_RECORDS, 2, &req, &resp);
    return resp.topics.v[0].partitions.v[0];
}

static void test_delete_records(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 4, NULL, NULL);
    for (int i = 0; i < 5; i++) rig_produce(x.c, "t", (struct rig_batch){.count = 2});
    assert_int_equal(delete_to(&x, "t", 11).error_code, KE_OFFSET_OUT_OF_RANGE);
    assert_int_equal(delete_to(&x, "t", -2).error_code, KE_OFFSET_OUT_OF_RANGE);
    assert_int_equal(delete_to(&x, "no", 1).error_code, KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(delete_to(&x, "t", 5).low_watermark, 5);
    assert_int_equal(delete_to(&x, "t", 3).low_watermark, 5); /* never back */
    assert_int_equal(rig_fetch_one(x.c, RIG_FETCH(.topic = "t", .offset = 4))->error_code, KE_OFFSET_OUT_OF_RANGE);
    assert_int_equal(rig_fetch_one(x.c, RIG_FETCH(.topic = "t", .offset = 5))->log_start_offset, 5);
    assert_int_equal(offset_at(&x, 5, -2, 1)->offset, 5);
    rig_kill(&x.r); /* it was stored before it was answered */
    rig_start(&x.r);
    x.c = rig_connect(&x.r);
    assert_int_equal(offset_at(&x, 5, -2, 1)->offset, 5);
    assert_int_equal(delete_to(&x, "t", -1).low_watermark, 10); /* -1: the high watermark */
    assert_int_equal(rig_produce(x.c, "t", (struct rig_batch){.count = 1}).base_offset, 10);
    sim_disk_faults(x.r.disk)->free_bytes = 0;
    assert_int_equal(delete_to(&x, "t", 11).error_code, KE_KAFKA_STORAGE_ERROR);
    sim_disk_faults(x.r.disk)->free_bytes = -1;
    down(&x);
}

static void test_delete_records_of_compacted_topic(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 5, "cleanup.policy", "compact");
    rig_produce(x.c, "t", (struct rig_batch){.count = 2});
    assert_int_equal(delete_to(&x, "t", 1).error_code, KE_POLICY_VIOLATION);
    down(&x);
}

static void test_describe_producers(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 6, NULL, NULL);
    rig_produce(x.c, "t", (struct rig_batch){.count = 3, .pid = 11, .epoch = 0, .seq = 0});
    rig_produce(x.c, "t", (struct rig_batch){.count = 2, .pid = 11, .epoch = 0, .seq = 3});
    rig_produce(x.c, "t", (struct rig_batch){.count = 1, .pid = 12, .epoch = 4, .seq = 0});
    struct kw_describe_producers_request req;
    struct kw_describe_producers_response resp;
    int32_t indexes[] = {0, 1};
    struct kw_describe_producers_request_topic_request t = {.name = kw_str_of("t"), .partition_indexes = {indexes, 2}};
    kw_msg_init(&kw_describe_producers_request_desc, &req);
    req.topics.v = &t;
    req.topics.n = 1;
    rig_call(x.c, KW_API_DESCRIBE_PRODUCERS, 0, &req, &resp);
    assert_int_equal(resp.topics.v[0].partitions.v[1].error_code, KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(resp.topics.v[0].partitions.v[0].active_producers.n, 2);
    assert_int_equal(resp.topics.v[0].partitions.v[0].active_producers.v[0].producer_id, 11);
    assert_int_equal(resp.topics.v[0].partitions.v[0].active_producers.v[0].last_sequence, 4);
    assert_int_equal(resp.topics.v[0].partitions.v[0].active_producers.v[1].producer_epoch, 4);
    assert_int_equal(resp.topics.v[0].partitions.v[0].active_producers.v[1].current_txn_start_offset, -1);
    down(&x);
}

static void test_describe_log_dirs(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 7, NULL, NULL);
    rig_produce(x.c, "t", (struct rig_batch){.count = 3, .value_size = 1000});
    for (int16_t v = 0; v <= 5; v++) {
        struct kw_describe_log_dirs_request req;
        struct kw_describe_log_dirs_response resp;
        kw_msg_init(&kw_describe_log_dirs_request_desc, &req);
        req.topics.n = -1;
        rig_call(x.c, KW_API_DESCRIBE_LOG_DIRS, v, &req, &resp);
        assert_int_equal(resp.results.n, 1);
        assert_true(kw_str_eq(resp.results.v[0].log_dir, kw_str_of("/data")));
        assert_int_equal(resp.results.v[0].topics.n, 1);
        assert_true(resp.results.v[0].topics.v[0].partitions.v[0].partition_size > 3000);
        int32_t indexes[] = {0, 7};
        struct kw_describe_log_dirs_request_describable_log_dir_topic t[] = {{.topic = kw_str_of("t"), .partitions = {indexes, 2}},
                                                                             {.topic = kw_str_of("no"), .partitions = {indexes, 1}}};
        req.topics.v = t;
        req.topics.n = 2;
        rig_call(x.c, KW_API_DESCRIBE_LOG_DIRS, v, &req, &resp);
        assert_int_equal(resp.results.v[0].topics.n, 1);
        assert_int_equal(resp.results.v[0].topics.v[0].partitions.n, 1);
    }
    struct rig_conn *gone = rig_connect(&x.r); /* goes while the disk is asked */
    struct kw_describe_log_dirs_request req;
    kw_msg_init(&kw_describe_log_dirs_request_desc, &req);
    req.topics.n = -1;
    rig_request(gone, KW_API_DESCRIBE_LOG_DIRS, 1, 1, &req);
    rig_close_conns(&x.r);
    rig_settle(&x.r);
    assert_true(kw_list_empty(&x.r.node->net.orphans));
    down(&x);
}

/* A log that failed is a directory of its own, with the error; the one beside it is as it was. */
static void test_describe_log_dirs_of_a_failed_log(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 7, NULL, NULL);
    assert_int_equal(rig_create(x.c, "u", 2, NULL, NULL), KE_NONE);
    rig_produce(x.c, "t", (struct rig_batch){.count = 3, .value_size = 1000});
    sim_disk_faults(x.r.disk)->eio_write_at = 0;
    struct rig_batch b = {.count = 3, .value_size = 1000};
    size_t n;
    uint8_t *batch = rig_batch(&x.r, &b, &n);
    struct kw_produce_response pr;
    rig_call(x.c, KW_API_PRODUCE, 9, &rig_produce_msg(&x.r, "u", 1, 1, batch, n)->req, &pr);
    assert_int_equal(pr.responses.v[0].partition_responses.v[0].error_code, KE_KAFKA_STORAGE_ERROR);
    for (int16_t v = 0; v <= 5; v++) {
        struct kw_describe_log_dirs_request req;
        struct kw_describe_log_dirs_response resp;
        int32_t indexes[] = {0, 1};
        struct kw_describe_log_dirs_request_describable_log_dir_topic t = {.topic = kw_str_of("u"), .partitions = {indexes, 2}};
        kw_msg_init(&kw_describe_log_dirs_request_desc, &req);
        for (int all = 0; all < 2; all++) {
            req.topics.v = &t;
            req.topics.n = all ? -1 : 1;
            rig_call(x.c, KW_API_DESCRIBE_LOG_DIRS, v, &req, &resp);
            assert_int_equal(resp.results.n, 2);
            assert_true(kw_str_eq(resp.results.v[0].log_dir, kw_str_of("/data")));
            assert_int_equal(resp.results.v[0].error_code, KE_NONE);
            assert_int_equal(resp.results.v[0].topics.n, 1 + all);
            assert_true(kw_str_eq(resp.results.v[1].log_dir, kw_str_of("/data/u-1")));
            assert_int_equal(resp.results.v[1].error_code, KE_KAFKA_STORAGE_ERROR);
            assert_int_equal(resp.results.v[1].topics.v[0].partitions.v[0].partition_index, 1);
        }
    }
    sim_disk_faults(x.r.disk)->free_bytes = 0; /* the other finds no room: likewise, but it says how much there is */
    struct rig_batch more = {.count = 3, .value_size = 1000, .pid = -1, .epoch = -1, .seq = -1};
    batch = rig_batch(&x.r, &more, &n);
    rig_call(x.c, KW_API_PRODUCE, 9, &rig_produce_msg(&x.r, "u", 0, 1, batch, n)->req, &pr);
    assert_int_equal(pr.responses.v[0].partition_responses.v[0].error_code, KE_KAFKA_STORAGE_ERROR);
    struct kw_describe_log_dirs_request req;
    struct kw_describe_log_dirs_response resp;
    kw_msg_init(&kw_describe_log_dirs_request_desc, &req);
    req.topics.n = -1;
    rig_call(x.c, KW_API_DESCRIBE_LOG_DIRS, 4, &req, &resp);
    assert_int_equal(resp.results.n, 3);
    for (int32_t i = 1; i < 3; i++) {
        assert_int_equal(resp.results.v[i].error_code, KE_KAFKA_STORAGE_ERROR);
        assert_int_equal(resp.results.v[i].usable_bytes, kw_str_eq(resp.results.v[i].log_dir, kw_str_of("/data/u-0")) ? 0 : -1);
    }
    sim_disk_faults(x.r.disk)->free_bytes = -1;
    batch = rig_batch(&x.r, &more, &n);
    rig_call(x.c, KW_API_PRODUCE, 9, &rig_produce_msg(&x.r, "u", 0, 1, batch, n)->req, &pr);
    assert_int_equal(pr.responses.v[0].partition_responses.v[0].error_code, KE_NONE);
    rig_call(x.c, KW_API_DESCRIBE_LOG_DIRS, 4, &req, &resp);
    assert_int_equal(resp.results.n, 2);
    down(&x);
}

static struct kw_init_producer_id_response new_pid(struct fixture *x, int16_t version, const char *transactional) {
    struct kw_init_producer_id_request req;
    struct kw_init_producer_id_response resp;
    kw_msg_init(&kw_init_producer_id_request_desc, &req);
    req.transactional_id = kw_str_of(transactional);
    req.transaction_timeout_ms = 60000;
    rig_call(x->c, KW_API_INIT_PRODUCER_ID, version, &req, &resp);
    return resp;
}

static void test_init_producer_id(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 8, NULL, NULL);
    int64_t last = -1;
    for (int i = 0; i < 2500; i++) { /* over several blocks, and never one twice, also not after a kill */
        struct kw_init_producer_id_response r = new_pid(&x, (int16_t)(i % 6), NULL);
        assert_int_equal(r.error_code, KE_NONE);
        assert_true(r.producer_id > last);
        assert_int_equal(r.producer_epoch, 0);
        last = r.producer_id;
        if (i % 700 == 699) {
            rig_kill(&x.r);
            rig_start(&x.r);
            x.c = rig_connect(&x.r);
        }
        kw_arena_reset(&x.r.arena);
    }
    assert_int_equal(new_pid(&x, 4, "tx").error_code, KE_UNSUPPORTED_VERSION);
    assert_int_equal(new_pid(&x, 4, "").error_code, KE_INVALID_REQUEST);
    down(&x);
}

/* A log that another broker wrote holds producers whose ids the metadata here never gave out: none of them is given to a new producer, who
 * would be told that its first sequence is out of order. An id that no counting reaches moves nothing. */
static void test_ids_of_a_foreign_log(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 18, NULL, NULL);
    int64_t first = new_pid(&x, 4, NULL).producer_id;
    const int64_t foreign[] = {0, first + 1, first + 1500, INT64_MAX - 1};
    for (size_t i = 0; i < KW_COUNTOF(foreign); i++)
        for (int32_t seq = foreign[i] ? 0 : 7; seq < (foreign[i] ? 2 : 7); seq++)
            assert_int_equal(rig_produce(x.c, "t", (struct rig_batch){.pid = foreign[i], .seq = seq, .count = 1}).error_code, KE_NONE);
    for (int clean = 0; clean < 2; clean++) {
        if (clean)
            rig_stop(&x.r);
        else
            rig_kill(&x.r);
        rig_start(&x.r);
        x.c = rig_connect(&x.r);
        struct kw_init_producer_id_response r = new_pid(&x, 4, NULL);
        assert_int_equal(r.error_code, KE_NONE);
        assert_true(r.producer_id > first + 1500);
        assert_true(r.producer_id < first + 10000);
        assert_int_equal(rig_produce(x.c, "t", (struct rig_batch){.pid = r.producer_id, .count = 1}).error_code, KE_NONE);
    }
    down(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_BL_15),
        cmocka_unit_test(test_list_v0),
        cmocka_unit_test(test_leader_epochs),
        cmocka_unit_test(test_delete_records),
        cmocka_unit_test(test_delete_records_of_compacted_topic),
        cmocka_unit_test(test_describe_producers),
        cmocka_unit_test(test_describe_log_dirs), cmocka_unit_test(test_describe_log_dirs_of_a_failed_log),
        cmocka_unit_test(test_init_producer_id),
        cmocka_unit_test(test_ids_of_a_foreign_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
