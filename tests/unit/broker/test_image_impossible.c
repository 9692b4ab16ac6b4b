/* test_image_impossible.c - records that no broker writes and the image refuses: a damaged log, or a tool, may have them; and those that a newer
 * release may write.
 */
#include "advertise.h"
#include "image_rig.h"
#include "meta_rig.h"

/* No broker writes these; a damaged log or a tool may. A zero byte would part a name from the key that it is found by, and a name is a
 * folder's. (fuzz_metadata_replay) */
static void test_impossible_records(void **state) {
    (void)state;
    static const struct kw_str names[] = {{"a\0b", 3}, {"\0", 1}, {"a/b", 3}, {"..", 2}, {".", 1}, {"a b", 3}};
    static const struct kw_str zero = {"x\0y", 3};
    struct kb_image im;
    kb_image_init(&im);
    for (size_t i = 0; i < KW_COUNTOF(names); i++) {
        MSG(topic, t);
        t.name = names[i];
        t.topic_id = id_of(1);
        assert_int_equal(apply(&im, KW_RECORD_TOPIC, &t), KW_EDECODE);
    }
    MSG(config, c);
    c.resource_type = 2;
    for (int i = 0; i < 3; i++) {
        c.resource_name = i == 0 ? zero : kw_str_of("t");
        c.name = i == 1 ? zero : kw_str_of("retention.ms");
        c.value = i == 2 ? zero : kw_str_of("1");
        assert_int_equal(apply(&im, KW_RECORD_CONFIG, &c), KW_EDECODE);
    }
    MSG(feature_level, f);
    f.name = zero;
    f.feature_level = 1;
    assert_int_equal(apply(&im, KW_RECORD_FEATURE_LEVEL, &f), KW_EDECODE);
    struct kw_register_broker_record_broker_endpoint e = {.name = kw_str_of("PLAINTEXT"), .host = zero, .port = 1};
    struct kw_register_broker_record_broker_feature bf = {.name = zero};
    for (int i = 0; i < 3; i++) {
        MSG(register_broker, b);
        b.end_points.v = &e, b.end_points.n = i == 0;
        b.features.v = &bf, b.features.n = i == 1;
        b.rack = i == 2 ? zero : kw_str_null();
        assert_int_equal(apply(&im, KW_RECORD_REGISTER_BROKER, &b), KW_EDECODE);
    }
    assert_int_equal(im.offset, -1);
    assert_int_equal(add_topic(&im, "t", 1), KW_OK);
    for (int i = 0; i < 2; i++) { /* epochs that cannot rise any more */
        MSG(partition, p);
        MSG(partition_change, pc);
        int32_t self = 0;
        p.topic_id = pc.topic_id = id_of(1);
        p.partition_id = pc.partition_id = 0;
        p.replicas.v = &self, p.replicas.n = 1;
        p.leader_epoch = i == 0 ? INT32_MAX : 0;
        p.partition_epoch = i == 1 ? INT32_MAX : 0;
        assert_int_equal(apply(&im, KW_RECORD_PARTITION, &p), KW_OK);
        pc.leader = 0;
        assert_int_equal(apply(&im, KW_RECORD_PARTITION_CHANGE, &pc), KW_EDECODE);
        assert_int_equal(kb_image_partition(&im, kw_str_of("t"), 0)->partition_epoch, p.partition_epoch);
        pc.leader = -2;
        pc.replicas.v = &self, pc.replicas.n = 0; /* nobody has it */
        assert_int_equal(apply(&im, KW_RECORD_PARTITION_CHANGE, &pc), KW_EDECODE);
    }
    kb_image_deinit(&im);
}

/* A batch of one record as the log's next; then its version is made another, where that is above 0. */
static kw_err replay_one(struct kb_replay *r, int16_t type, const void *record, uint8_t version) {
    struct kb_meta_batch b;
    struct kw_blk *blk;
    size_t size, used;
    kb_meta_batch_init(&b);
    assert_int_equal(kb_meta_batch_add(&b, type, 0, record), KW_OK);
    assert_int_equal(kb_meta_batch_finish(&b, false, r->next, 2, 5, &blk, &size), KW_OK);
    if (version) {
        assert_int_equal(blk->data[size - 4], type); /* … frame version, type, version, no tags, no headers */
        blk->data[size - 3] = version;
        kw_batch_crc_set(blk->data, size);
    }
    kw_err err = kb_replay_batches(r, blk->data, size, &used);
    kw_blk_unref(blk);
    kb_meta_batch_deinit(&b);
    return err;
}

/* Levels of metadata.version say how records are meant: above the highest known one they may mean something else. */
static void test_records_of_a_newer_release(void **state) {
    (void)state;
    struct kb_image im;
    struct kb_replay r;
    kb_image_init(&im);
    kb_replay_init(&r, &im, NULL, 1, 0);
    MSG(no_op, n);
    MSG(feature_level, f);
    assert_int_equal(replay_one(&r, KW_RECORD_NO_OP, &n, 0), KW_OK);
    assert_int_equal(replay_one(&r, KW_RECORD_NO_OP, &n, 7), KW_EVERSION);
    assert_non_null(strstr(r.why, "type 20 version 7 (NoOpRecord)"));
    f.name = kw_str_of("metadata.version");
    f.feature_level = KB_METADATA_VERSION;
    assert_int_equal(replay_one(&r, KW_RECORD_FEATURE_LEVEL, &f, 0), KW_OK);
    f.feature_level = KB_METADATA_VERSION + 1;
    assert_int_equal(replay_one(&r, KW_RECORD_FEATURE_LEVEL, &f, 0), KW_EVERSION);
    assert_non_null(strstr(r.why, "metadata.version 34"));
    assert_non_null(strstr(r.why, "up to 33"));
    f.name = kw_str_of("another.version"); /* says nothing of records */
    assert_int_equal(replay_one(&r, KW_RECORD_FEATURE_LEVEL, &f, 0), KW_OK);
    kb_replay_deinit(&r);
    kb_image_deinit(&im);
}

static void refuses_to_start(struct meta *m, const char *says) {
    assert_int_equal(meta_boot(m), KW_OK);
    meta_idle(m);
    assert_int_equal(m->ready_err, KW_EIO);
    const char *why = kb_store_failure(m->store);
    assert_non_null(why);
    if (!strstr(why, says)) fail_msg("it says \"%s\", without \"%s\"", why, says);
    meta_drop(m);
}

/* A batch of one record behind the log's end; its type or version is then made another. */
static void append_changed(struct meta *m, const uint8_t *log, size_t size, int64_t end, int32_t epoch, size_t from_end, uint8_t to) {
    struct kb_meta_batch b;
    struct kw_no_op_record no_op;
    struct kw_blk *blk;
    size_t n;
    kb_meta_batch_init(&b);
    kw_msg_init(&kw_no_op_record_desc, &no_op);
    assert_int_equal(kb_meta_batch_add(&b, KW_RECORD_NO_OP, 0, &no_op), KW_OK);
    assert_int_equal(kb_meta_batch_finish(&b, false, end, epoch, 5, &blk, &n), KW_OK);
    assert_int_equal(blk->data[n - 4], KW_RECORD_NO_OP);
    blk->data[n - from_end] = to;
    kw_batch_crc_set(blk->data, n);
    uint8_t *all = malloc(size + n);
    memcpy(all, log, size);
    memcpy(all + size, blk->data, n);
    sim_disk_poke(m->sim, META_LOG "/00000000000000000000.log", all, size + n);
    free(all);
    kw_blk_unref(blk);
    kb_meta_batch_deinit(&b);
}

/* What a newer release wrote is not half understood: the node does not serve, says which record it is, and starts again once that is gone. */
static void test_a_log_of_a_newer_release(void **state) {
    (void)state;
    struct meta m;
    size_t size;
    meta_init(&m, 8, NULL);
    meta_start(&m);
    assert_int_equal(meta_create(&m, "t", 2), 0);
    int64_t end = kb_store_end(m.store);
    int32_t epoch = kb_store_epoch(m.store);
    meta_crash(&m, false);
    const uint8_t *log = sim_disk_peek(m.sim, META_LOG "/00000000000000000000.log", &size);
    assert_non_null(log);
    uint8_t *kept = malloc(size);
    memcpy(kept, log, size);
    append_changed(&m, kept, size, end, epoch, 4, 18);
    refuses_to_start(&m, "type 18 version 0");
    append_changed(&m, kept, size, end, epoch, 3, 9);
    refuses_to_start(&m, "type 20 version 9 (NoOpRecord)");
    sim_disk_poke(m.sim, META_LOG "/00000000000000000000.log", kept, size);
    meta_start(&m);
    assert_non_null(kb_image_topic(&m.image, kw_str_of("t")));
    free(kept);
    meta_deinit(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_impossible_records), cmocka_unit_test(test_records_of_a_newer_release),
                                       cmocka_unit_test(test_a_log_of_a_newer_release)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
