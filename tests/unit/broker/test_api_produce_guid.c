/* test_api_produce_guid.c - Produce to a topic with message.guid.dedup: each rule of specs.md, GUID dedup, that concerns what a producer is answered and
 * what is stored, by its number. */
#include "guid_rig.h"

#include "counted_alloc.h"
#include "wire/message_set.h"

/* ---- Rule 1: who is eligible ---- */

static void test_rule_1_wrong_ids(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 1);
    rig_produced a = guid_put(c, true, GUIDS(IDS(1, 2, 3), .id_size = 15));
    guid_expect(a, KE_INVALID_RECORD, -1);
    assert_int_equal(a.record_errors.n, 3);
    assert_int_equal(a.record_errors.v[2].batch_index, 2);
    assert_true(a.record_errors.v[0].batch_index_error_message.len > 0);
    guid_expect(guid_put(c, true, GUIDS(IDS(1), .id_size = 17)), KE_INVALID_RECORD, -1);
    guid_ranges(guid_put(c, true, GUIDS(IDS(1, 2))), "");
    guid_holds(&r, guid_log_of(&r), "0:1 1:2", 2);
    rig_deinit(&r);
}

/* Without the header, or in formats before v2: stored as ever, as often as sent. */
static void test_rule_1_not_eligible(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 2);
    guid_expect(guid_put(c, true, GUIDS(IDS(0, 0))), KE_NONE, 0);
    guid_expect(guid_put(c, true, GUIDS(IDS(0, 0))), KE_NONE, 2);
    for (int16_t v = 0; v <= 2; v++) {
        struct kw_out out;
        kw_out_init(&out);
        assert_int_equal(kw_message_write(&out, v < 2 ? 0 : 1, 0, 5, 0, (struct kw_bytes){NULL, -1}, (struct kw_bytes){(const uint8_t *)"x", 1}), KW_OK);
        for (int i = 0; i < 2; i++) guid_expect(rig_produce_bytes(c, "t", 0, v, -1, out.p, out.len), KE_NONE, 4 + 2 * v + i);
        kw_out_deinit(&out);
    }
    guid_expect(guid_put(c, true, GUIDS(IDS(1))), KE_NONE, 10); /* the index has kept step */
    guid_ranges(guid_put(c, true, GUIDS(IDS(1))), "0+1@10");
    rig_deinit(&r);
}

/* A topic that is not deduped knows nothing of ids. */
static void test_rule_1_other_topics(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = rig_begin(&r, 3, 1);
    guid_ranges(guid_put(c, true, GUIDS(IDS(1, 1))), "-");
    guid_expect(guid_put(c, true, GUIDS(IDS(1))), KE_NONE, 2);
    guid_expect(guid_put(c, true, GUIDS(IDS(1), .id_size = 3)), KE_NONE, 3);
    rig_deinit(&r);
}

/* ---- Rule 2: the order of checks ---- */

static void test_rule_2_order(void **state) {
    (void)state;
    struct rig r;
    size_t n;
    struct rig_conn *c = guid_begin(&r, 4);
    guid_expect(guid_put(c, true, GUIDS(IDS(1), .pid = 5, .epoch = 2, .seq = 0)), KE_NONE, 0);
    /* Structure before everything of the producer: a hole. */
    uint8_t *p = guid_batch(&r, &GUIDS(IDS(1, 2), .pid = 5, .epoch = 1, .seq = 9), &n);
    kw_store32(p + KW_BATCH_LAST_OFFSET_DELTA, 4);
    kw_batch_crc_set(p, n);
    guid_expect(rig_produce_bytes(c, "t", 0, 9, -1, p, n), KE_INVALID_RECORD, -1);
    p = guid_batch(&r, &GUIDS(IDS(1), .pid = 5, .epoch = 1, .seq = 9), &n);
    p[n - 1] ^= 1;
    guid_expect(rig_produce_bytes(c, "t", 0, 9, -1, p, n), KE_CORRUPT_MESSAGE, -1);
    /* The producer's epoch and sequence before ids, wrong or known. */
    guid_expect(guid_put(c, true, GUIDS(IDS(1), .pid = 5, .epoch = 1, .seq = 1, .id_size = 5)), KE_INVALID_PRODUCER_EPOCH, -1);
    guid_expect(guid_put(c, true, GUIDS(IDS(1), .pid = 5, .epoch = 1, .seq = 1)), KE_INVALID_PRODUCER_EPOCH, -1);
    guid_expect(guid_put(c, true, GUIDS(IDS(1), .pid = 5, .epoch = 2, .seq = 7, .id_size = 5)), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1);
    guid_expect(guid_put(c, true, GUIDS(IDS(1), .pid = 5, .epoch = 2, .seq = 7)), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1);
    guid_expect(guid_put(c, true, GUIDS(IDS(1), .pid = 5, .epoch = 2, .seq = 1, .id_size = 5)), KE_INVALID_RECORD, -1);
    guid_holds(&r, guid_log_of(&r), "0:1", 1); /* none of them took a sequence */
    guid_expect(guid_put(c, true, GUIDS(IDS(2), .pid = 5, .epoch = 2, .seq = 1)), KE_NONE, 1);
    rig_deinit(&r);
}

/* Sizes are checked as the batch arrives, though less would be stored. */
static void test_rule_6_sizes_on_arrival(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 5);
    rig_set(&r, "log.message.guid.dedup", "true");
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, "max.message.bytes", "200"), KE_NONE);
    guid_expect(guid_put(c, true, GUIDS(IDS(1, 2))), KE_NONE, 0);
    guid_expect(guid_put(c, true, GUIDS(IDS(1, 2, 3, 4, 5))), KE_MESSAGE_TOO_LARGE, -1);
    guid_ranges(guid_put(c, true, GUIDS(IDS(1, 2, 3))), "0+2@0");
    rig_deinit(&r);
}

/* ---- Rule 3: sequences ---- */

static void test_rule_3_repeats(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 6);
    guid_expect(guid_put(c, true, GUIDS(IDS(10, 11))), KE_NONE, 0);
    struct guids mixed = GUIDS(IDS(10, 20, 11, 21), .pid = 5, .seq = 0);
    rig_produced a = guid_put(c, true, mixed);
    guid_expect(a, KE_NONE, 2);
    guid_ranges(a, "0+1@0 2+1@1");
    for (int i = 0; i < 2; i++) { /* its answer was lost: the same again, and nothing is appended */
        a = guid_put(c, true, mixed);
        guid_expect(a, KE_NONE, 2);
        guid_ranges(a, "0+1@0 2+1@1");
    }
    guid_holds(&r, guid_log_of(&r), "0:10 1:11 3:20 5:21", 6);
    /* One that was wholly duplicate has no record of its own. */
    struct guids whole = GUIDS(IDS(10, 11), .pid = 5, .seq = 4);
    for (int i = 0; i < 2; i++) {
        a = guid_put(c, true, whole);
        guid_expect(a, KE_NONE, 0);
        guid_ranges(a, "0+2@0");
    }
    for (int i = 0; i < 2; i++) guid_expect(guid_put(c, false, whole), KE_NONE, 0);
    assert_int_equal(guid_log_of(&r)->leo, 8);
    /* One without ids is what Kafka makes of it. */
    for (int i = 0; i < 2; i++) guid_expect(guid_put(c, false, GUIDS(IDS(0, 0), .pid = 5, .seq = 6)), KE_NONE, 8);
    rig_deinit(&r);
}

/* A repeat whose ids are not known any more: its sequence still says that it was stored. */
static void test_rule_3_repeat_of_forgotten_ids(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 7);
    struct guids g = GUIDS(IDS(1, 2), .pid = 5, .seq = 0);
    guid_expect(guid_put(c, true, g), KE_NONE, 0);
    guid_expect(guid_put(c, true, GUIDS(IDS(3), .pid = 5, .seq = 2)), KE_NONE, 2);
    struct kb_partition *p = rig_partition(&r, "t", 0);
    assert_int_equal(kb_log_raise_start(p->log, 1, p->hw, r.now), KW_OK); /* DeleteRecords: the first one goes, and its id */
    rig_settle(&r);
    rig_produced a = guid_put(c, true, g);
    guid_expect(a, KE_NONE, 0);
    guid_ranges(a, "0+1@-1?");
    assert_int_equal(kb_log_raise_start(p->log, 2, p->hw, r.now), KW_OK);
    rig_settle(&r);
    a = guid_put(c, true, g);
    guid_ranges(a, "0+2@-1?");
    assert_int_equal(a.error_code, KE_NONE);
    guid_expect(guid_put(c, false, g), KE_DUPLICATE_SEQUENCE_NUMBER, -1);
    assert_int_equal(p->log->leo, 3);
    rig_deinit(&r);
}

static void set_dedup(struct rig *r, struct rig_conn *c, const char *value) {
    struct kw_incremental_alter_configs_request q;
    struct kw_incremental_alter_configs_response a;
    struct kw_incremental_alter_configs_request_alterable_config kv = {.name = kw_str_of("message.guid.dedup"), .value = kw_str_of(value)};
    struct kw_incremental_alter_configs_request_alter_configs_resource res = {
        .resource_type = 2, .resource_name = kw_str_of("t"), .configs = {.v = &kv, .n = 1}};
    kw_msg_init(&kw_incremental_alter_configs_request_desc, &q);
    q.resources.v = &res;
    q.resources.n = 1;
    rig_call(c, KW_API_INCREMENTAL_ALTER_CONFIGS, 1, &q, &a);
    assert_int_equal(a.responses.v[0].error_code, KE_NONE);
    rig_pass(r, 100000);
}

/* Dedup was switched off before a batch came again: where its duplicates' first copies are cannot be told any more, and not that they stand in the holes. */
static void test_rule_3_repeat_when_switched_off(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 8);
    guid_expect(guid_put(c, true, GUIDS(IDS(1))), KE_NONE, 0);
    struct guids all[] = {GUIDS(IDS(1, 2), .pid = 5, .seq = 0), GUIDS(IDS(2, 1), .pid = 5, .seq = 2), GUIDS(IDS(3, 4), .pid = 5, .seq = 4)};
    guid_expect(guid_put(c, true, all[0]), KE_NONE, 1);
    (void)guid_put(c, true, all[1]);
    guid_expect(guid_put(c, true, all[2]), KE_NONE, 5);
    set_dedup(&r, c, "false");
    for (int k = 0; k < 3; k++) {
        for (int told = 0; told < 2; told++) {
            guid_expect(guid_put(c, told, all[0]), KE_DUPLICATE_SEQUENCE_NUMBER, -1);
            guid_expect(guid_put(c, told, all[1]), KE_DUPLICATE_SEQUENCE_NUMBER, -1);
            guid_expect(guid_put(c, told, all[2]), KE_NONE, 5);
        }
        if (k == 0) rig_restart(&r); /* from the snapshot */
        else if (k == 1) rig_crash(&r); /* from the log */
        if (k < 2) c = rig_connect(&r);
    }
    assert_int_equal(guid_log_of(&r)->leo, 7);
    set_dedup(&r, c, "true");
    guid_ranges(guid_put(c, true, all[0]), "0+1@0");
    rig_deinit(&r);
}

static void test_rule_3_behind_the_five(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 8);
    for (int32_t i = 0; i < 8; i++) guid_expect(guid_put(c, true, GUIDS(IDS(100 + (uint64_t)i), .pid = 5, .seq = i)), KE_NONE, i);
    rig_produced a = guid_put(c, true, GUIDS(IDS(101), .pid = 5, .seq = 1));
    guid_expect(a, KE_NONE, 1);
    guid_ranges(a, "0+1@1");
    guid_expect(guid_put(c, false, GUIDS(IDS(100, 101), .pid = 5, .seq = 0)), KE_NONE, 0);
    guid_expect(guid_put(c, true, GUIDS(IDS(100, 999), .pid = 5, .seq = 0)), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1); /* one is not known */
    guid_expect(guid_put(c, true, GUIDS(IDS(100, 0), .pid = 5, .seq = 0)), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1);   /* nor can this be */
    guid_expect(guid_put(c, true, GUIDS(IDS(100), .pid = 5, .seq = 9)), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1);      /* ahead */
    guid_expect(guid_put(c, true, GUIDS(IDS(102, 103), .pid = 5, .seq = 2)), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1); /* reaches into the five */
    guid_expect(guid_put(c, true, GUIDS(IDS(100), .pid = 6, .seq = 3)), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1);      /* of a producer that is not known */
    assert_int_equal(guid_log_of(&r)->leo, 8);
    rig_deinit(&r);
}

/* ---- Rules 4 and 5: what counts, and from when on ---- */

static void test_rule_4_deleted_records_do_not_count(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 9);
    guid_put(c, true, GUIDS(IDS(1, 2, 3)));
    struct kb_partition *p = rig_partition(&r, "t", 0);
    assert_int_equal(kb_log_raise_start(p->log, 2, p->hw, r.now), KW_OK);
    rig_settle(&r);
    rig_produced a = guid_put(c, true, GUIDS(IDS(1, 2, 3)));
    guid_expect(a, KE_NONE, 3);
    guid_ranges(a, "2+1@2");
    guid_holds(&r, p->log, "2:3 3:1 4:2", 6);
    rig_deinit(&r);
}

/* Batches of several producers in one turn, none of which is written yet. */
static void test_rule_5_in_flight(void **state) {
    (void)state;
    struct rig r;
    rig_produced a;
    struct rig_conn *c = guid_begin(&r, 10), *v[3] = {c, rig_connect(&r), rig_connect(&r)};
    guid_put(c, true, GUIDS(IDS(99)));
    guid_send(v[0], -1, 1, GUIDS(IDS(1, 2, 3), .pid = 5, .seq = 0));
    guid_send(v[1], -1, 2, GUIDS(IDS(3, 4, 3, 1), .pid = 6, .seq = 0));
    guid_send(v[2], -1, 3, GUIDS(IDS(4, 2, 1)));
    assert_int_equal(guid_log_of(&r)->written, 1);
    rig_settle(&r);
    assert_true(guid_answer(v[0], 1, &a));
    guid_expect(a, KE_NONE, 1);
    guid_ranges(a, "");
    assert_true(guid_answer(v[1], 2, &a));
    guid_expect(a, KE_NONE, 4);
    guid_ranges(a, "0+1@3 2+1@3 3+1@1");
    assert_true(guid_answer(v[2], 3, &a));
    guid_ranges(a, "0+1@5 1+1@2 2+1@1");
    guid_holds(&r, guid_log_of(&r), "0:99 1:1 2:2 3:3 5:4", 8);
    rig_deinit(&r);
}

static void test_rule_5_within_a_batch(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 11);
    rig_produced a = guid_put(c, true, GUIDS(IDS(7, 7, 8, 7)));
    guid_expect(a, KE_NONE, 0);
    guid_ranges(a, "1+1@0 3+1@0");
    guid_holds(&r, guid_log_of(&r), "0:7 2:8", 4);
    rig_deinit(&r);
}

/* ---- Rules 6 and 7: what is stored ---- */

static void test_rule_6_codecs(void **state) {
    (void)state;
    static const char *const types[] = {"producer", "uncompressed", "gzip", "lz4", "zstd", "snappy"};
    for (size_t t = 0; t < KW_COUNTOF(types); t++)
        for (int codec = 0; codec < KW_CODEC_COUNT; codec++) {
            struct rig r;
            rig_init(&r, 12);
            rig_set(&r, "log.message.guid.dedup", "true");
            rig_start(&r);
            struct rig_conn *c = rig_connect(&r);
            assert_int_equal(rig_create(c, "t", 1, "compression.type", types[t]), KE_NONE);
            guid_put(c, true, GUIDS(IDS(1, 2, 3), .codec = codec));
            rig_produced a = guid_put(c, true, GUIDS(IDS(9, 2, 8, 1, 7), .codec = codec, .pid = 5, .seq = 0));
            guid_expect(a, KE_NONE, 3);
            guid_ranges(a, "1+1@1 3+1@0");
            guid_expect(guid_put(c, true, GUIDS(IDS(8, 9), .codec = codec, .pid = 5, .seq = 5)), KE_NONE, 5);
            guid_holds(&r, guid_log_of(&r), "0:1 1:2 2:3 3:9 5:8 7:7", 10);
            size_t n;
            const uint8_t *p = sim_disk_peek(r.disk, "/data/t-0/00000000000000000000.log", &n);
            struct kw_batch_header h[3];
            for (size_t i = 0, at = 0; i < 3; at += (size_t)h[i++].length + KW_BATCH_OVERHEAD) assert_int_equal(kw_batch_parse(p + at, n - at, &h[i]), KW_OK);
            int stored = t == 0 ? codec : t == 1 ? KW_CODEC_NONE : kw_codec_by_name(types[t]);
            assert_int_equal(h[1].attributes & KW_ATTR_CODEC, stored);
            assert_int_equal(h[1].record_count, 3);
            assert_int_equal(h[1].last_offset_delta, 4);
            assert_int_equal(h[1].base_sequence, 0);
            assert_int_equal(h[2].attributes, 0);
            assert_int_equal(h[2].record_count, 0);
            assert_int_equal(h[2].length + KW_BATCH_OVERHEAD, 61);
            assert_int_equal(h[2].base_sequence, 5);
            rig_deinit(&r);
        }
}

static void test_rule_6_append_time(void **state) {
    (void)state;
    struct rig r;
    struct guid_log l;
    rig_init(&r, 13);
    rig_set(&r, "log.message.guid.dedup", "true");
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, "message.timestamp.type", "LogAppendTime"), KE_NONE);
    guid_put(c, true, GUIDS(IDS(1), .timestamp = 500));
    rig_pass(&r, 5000000);
    rig_produced a = guid_put(c, true, GUIDS(IDS(1, 2), .timestamp = 500));
    int64_t second = a.log_append_time_ms;
    assert_true(second >= r.now.wall_ms - 1000 && second <= r.now.wall_ms);
    rig_pass(&r, 5000000);
    a = guid_put(c, true, GUIDS(IDS(1, 2), .timestamp = 500, .pid = 5, .seq = 0));
    assert_int_equal(a.log_append_time_ms, -1); /* each has its own */
    guid_read(&r, guid_log_of(&r), &l);
    assert_int_equal(l.count, 2);
    assert_int_equal(l.v[1].timestamp, second);
    assert_true(l.v[0].timestamp < second);
    free(l.v);
    rig_deinit(&r);
}

/* An empty batch uses up the sequence, over restarts too; without a sequence nothing is appended. */
static void test_rule_7_empty(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct rig r;
        struct rig_conn *c = guid_begin(&r, 14);
        guid_expect(guid_put(c, true, GUIDS(IDS(1, 2))), KE_NONE, 0);
        guid_expect(guid_put(c, true, GUIDS(IDS(1, 2))), KE_NONE, 0);
        assert_int_equal(guid_log_of(&r)->leo, 2);
        guid_expect(guid_put(c, true, GUIDS(IDS(1, 2), .pid = 5, .seq = 0)), KE_NONE, 0);
        assert_int_equal(guid_log_of(&r)->leo, 4);
        if (how == 1) rig_restart(&r);
        if (how == 2) rig_crash(&r);
        c = rig_connect(&r);
        guid_expect(guid_put(c, true, GUIDS(IDS(3), .pid = 5, .seq = 0)), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1);
        guid_expect(guid_put(c, true, GUIDS(IDS(1, 2), .pid = 5, .seq = 0)), KE_NONE, 0);
        assert_int_equal(guid_log_of(&r)->leo, 4);
        guid_expect(guid_put(c, true, GUIDS(IDS(3), .pid = 5, .seq = 2)), KE_NONE, 4);
        guid_holds(&r, guid_log_of(&r), "0:1 1:2 4:3", 5);
        rig_deinit(&r);
    }
}

/* ---- Rule 11: what an answer waits for ---- */

static void lead_guids(struct lead *l, uint64_t seed, int32_t rf, int32_t isr) {
    lead_up(l, seed, rf, isr);
    lead_config(l, "message.guid.dedup", "true");
    rig_settle(&l->r);
}

/* A duplicate of what is not committed is no more than that: acks=all waits with the first copy, and fails with it. */
static void test_rule_11_first_copy_not_committed(void **state) {
    (void)state;
    struct lead l;
    rig_produced a;
    lead_guids(&l, 20, 2, 2);
    struct rig_conn *d = rig_connect(&l.r);
    guid_send(l.c, -1, 1, GUIDS(IDS(1, 2)));
    guid_send(d, -1, 2, GUIDS(IDS(2)));
    rig_settle(&l.r);
    assert_false(guid_answer(l.c, 1, &a));
    assert_false(guid_answer(d, 2, &a));
    assert_int_equal(lead_part(&l, 0)->log->leo, 2);
    lead_fetch(&l, BY(.id = 1, .offset = 1, .last_epoch = 5)); /* the first is committed, the second is not */
    rig_settle(&l.r);
    assert_false(guid_answer(d, 2, &a));
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
    rig_settle(&l.r);
    assert_true(guid_answer(d, 2, &a));
    guid_expect(a, KE_NONE, 1);
    assert_true(guid_answer(l.c, 1, &a));
    guid_send(d, -1, 3, GUIDS(IDS(1)));
    rig_settle(&l.r);
    assert_true(guid_answer(d, 3, &a)); /* long committed */
    guid_expect(a, KE_NONE, 0);
    lead_down(&l);
}

static void test_rule_11_too_few_in_sync(void **state) {
    (void)state;
    struct lead l;
    rig_produced a;
    static const int32_t only0[] = {0};
    lead_guids(&l, 21, 2, 2);
    lead_config(&l, "min.insync.replicas", "2");
    guid_send(l.c, -1, 1, GUIDS(IDS(1)));
    rig_settle(&l.r);
    struct rig_conn *d = rig_connect(&l.r);
    guid_send(d, -1, 2, GUIDS(IDS(1)));
    rig_settle(&l.r);
    lead_change(&l, 0, -2, only0, 1);
    assert_true(guid_answer(d, 2, &a));
    guid_expect(a, KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1);
    guid_send(d, -1, 3, GUIDS(IDS(1)));
    rig_settle(&l.r);
    assert_true(guid_answer(d, 3, &a)); /* before anything else is looked at (rule 2) */
    guid_expect(a, KE_NOT_ENOUGH_REPLICAS, -1);
    guid_send(d, 1, 4, GUIDS(IDS(1)));
    rig_settle(&l.r);
    assert_true(guid_answer(d, 4, &a));
    guid_expect(a, KE_NONE, 0);
    lead_down(&l);
}

/* Another epoch may have another log: whoever waited asks again, and is judged afresh. */
static void test_rule_11_another_epoch(void **state) {
    (void)state;
    struct lead l;
    rig_produced a;
    static const int32_t both[] = {0, 1};
    lead_guids(&l, 22, 2, 2);
    guid_send(l.c, -1, 1, GUIDS(IDS(1)));
    struct rig_conn *d = rig_connect(&l.r);
    guid_send(d, -1, 2, GUIDS(IDS(1)));
    rig_settle(&l.r);
    lead_change(&l, 0, 0, both, 2);
    assert_true(guid_answer(d, 2, &a));
    guid_expect(a, KE_NOT_LEADER_OR_FOLLOWER, -1);
    guid_send(d, -1, 3, GUIDS(IDS(1)));
    rig_settle(&l.r);
    assert_false(guid_answer(d, 3, &a)); /* it is here, but not committed */
    lead_fetch(&l, BY(.id = 1, .offset = 1, .last_epoch = 5, .leader_epoch = 6));
    rig_settle(&l.r);
    assert_true(guid_answer(d, 3, &a));
    guid_expect(a, KE_NONE, 0);
    lead_down(&l);
}

/* acks=1 is answered when all of it is written, the first copy too; acks=0 never. */
static void test_rule_11_acks(void **state) {
    (void)state;
    struct rig r;
    rig_produced a;
    struct rig_conn *c = guid_begin(&r, 23), *d = rig_connect(&r), *e = rig_connect(&r);
    guid_put(c, true, GUIDS(IDS(50)));
    guid_send(c, 1, 1, GUIDS(IDS(1)));
    guid_send(d, 1, 2, GUIDS(IDS(1)));
    guid_send(e, 0, 3, GUIDS(IDS(1, 2)));
    for (int i = 0; i < 1000 && guid_log_of(&r)->written < 2; i++) {
        assert_false(guid_answer(d, 2, &a));
        rig_pass(&r, 10);
    }
    rig_settle(&r);
    assert_true(guid_answer(d, 2, &a));
    guid_expect(a, KE_NONE, 1);
    rig_settle(&r);
    assert_int_equal(e->in_len, 0);
    assert_non_null(e->conn);
    guid_holds(&r, guid_log_of(&r), "0:50 1:1 3:2", 4);
    guid_send(e, 0, 4, GUIDS(IDS(3), .id_size = 4));
    rig_settle(&r);
    assert_null(e->conn); /* only so can the producer hear of it */
    rig_deinit(&r);
}

/* A full disk takes the first copy back: its duplicate fails with it, and whoever sends it again stores it. */
static void test_rule_2_undone(void **state) {
    (void)state;
    struct rig r;
    rig_produced a;
    struct rig_conn *c = guid_begin(&r, 24), *d = rig_connect(&r);
    guid_put(c, true, GUIDS(IDS(50)));
    sim_disk_faults(r.disk)->enospc_ppm = 1000000;
    guid_send(c, -1, 1, GUIDS(IDS(1, 2), .pid = 5, .seq = 0));
    guid_send(d, -1, 2, GUIDS(IDS(50, 2)));
    guid_send(d, -1, 3, GUIDS(IDS(1)));
    rig_pass(&r, 1000000);
    assert_true(guid_answer(c, 1, &a));
    guid_expect(a, KE_KAFKA_STORAGE_ERROR, -1);
    assert_true(guid_answer(d, 2, &a));
    guid_expect(a, KE_KAFKA_STORAGE_ERROR, -1);
    assert_true(guid_answer(d, 3, &a));
    guid_expect(a, KE_KAFKA_STORAGE_ERROR, -1);
    sim_disk_faults(r.disk)->enospc_ppm = 0;
    a = guid_put(d, true, GUIDS(IDS(50, 2)));
    guid_expect(a, KE_NONE, 1);
    guid_ranges(a, "0+1@0");
    a = guid_put(c, true, GUIDS(IDS(1, 2), .pid = 5, .seq = 0));
    guid_expect(a, KE_NONE, 3);
    guid_ranges(a, "1+1@2");
    guid_holds(&r, guid_log_of(&r), "0:50 2:2 3:1", 5);
    rig_deinit(&r);
}

/* While a batch waits for what a file says, a full disk takes back the one before it: its sequence follows nothing any more. */
static void test_rule_2_undone_while_finding(void **state) {
    (void)state;
    struct rig r;
    rig_produced a;
    rig_init(&r, 26);
    rig_set(&r, "guid.index.memory.bytes", "1");
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, "message.guid.dedup", "true"), KE_NONE);
    guid_put(c, true, GUIDS(IDS(50)));
    rig_pass(&r, 1000000); /* it is in a file */
    struct sim_disk_faults *f = sim_disk_faults(r.disk);
    struct guids first = GUIDS(IDS(1, 2), .pid = 5, .seq = 0), second = GUIDS(IDS(50, 3), .pid = 5, .seq = 2);
    f->enospc_ppm = 1000000;
    guid_send(c, -1, 1, first);
    rig_turn(&r);
    f->slow_ppm = 1000000;
    f->slow_us = 500000;
    guid_send(c, -1, 2, second);
    rig_turn(&r);
    f->slow_ppm = 0;
    bool told = false;
    for (int i = 0; i < 10000 && !told; i++) {
        told = guid_answer(c, 1, &a);
        if (!rig_turn(&r)) r.now.mono_us += 10;
    }
    assert_true(told);
    guid_expect(a, KE_KAFKA_STORAGE_ERROR, -1);
    assert_false(guid_answer(c, 2, &a));
    f->enospc_ppm = 0;
    rig_pass(&r, 2000000);
    assert_true(guid_answer(c, 2, &a));
    guid_expect(a, KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1);
    guid_expect(guid_put(c, true, first), KE_NONE, 1); /* both again, in order */
    guid_expect(guid_put(c, true, second), KE_NONE, 3);
    guid_holds(&r, guid_log_of(&r), "0:50 1:1 2:2 4:3", 5);
    rig_deinit(&r);
}

/* Rule 12: nothing is decided before the index has come up to the log's end, of which a part, or all, is gone; what is sent meanwhile waits, in order. */
static void test_rule_12_waits_for_the_index(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct rig r;
        rig_produced a;
        struct rig_conn *c = guid_begin(&r, 25);
        for (uint64_t i = 0; i < 50; i++) guid_put(c, true, GUIDS(IDS(10 * i + 1, 10 * i + 2)));
        if (how >= 2) rig_restart(&r); /* files hold a part */
        c = rig_connect(&r);
        guid_put(c, true, GUIDS(IDS(7001, 7002)));
        if (how % 2) rig_kill(&r);
        else rig_stop(&r);
        if (how == 0) sim_disk_remove(r.disk, "/data/t-0/guid");
        rig_start(&r);
        c = rig_connect(&r);
        guid_send(c, -1, 1, GUIDS(IDS(491, 8001), .pid = 9, .seq = 0));
        guid_send(c, -1, 2, GUIDS(IDS(8001, 7002), .pid = 9, .seq = 2));
        guid_send(c, -1, 3, GUIDS(IDS(11, 12)));
        rig_pass(&r, 1000000);
        assert_true(guid_answer(c, 1, &a));
        guid_expect(a, KE_NONE, 102);
        guid_ranges(a, "0+1@98");
        assert_true(guid_answer(c, 2, &a));
        guid_ranges(a, "0+1@103 1+1@101");
        assert_true(guid_answer(c, 3, &a));
        guid_expect(a, KE_NONE, 2);
        assert_int_equal(guid_log_of(&r)->leo, 106);
        rig_deinit(&r);
    }
}

/* ---- Rules 13 and 14: what is told ---- */

static void test_rule_13_base_offset(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 30);
    guid_put(c, true, GUIDS(IDS(1, 2, 3, 4, 5)));
    for (int ranges = 0; ranges < 2; ranges++) {
        guid_expect(guid_put(c, ranges, GUIDS(IDS(2, 3, 4))), KE_NONE, 1);                        /* one after the other */
        guid_expect(guid_put(c, ranges, GUIDS(IDS(4, 2))), KE_NONE, 3);                           /* scattered: the first one's */
        guid_expect(guid_put(c, ranges, GUIDS(IDS(2, 3), .pid = 5 + ranges, .seq = 0)), KE_NONE, 1);
        int64_t leo = guid_log_of(&r)->leo;
        rig_produced a = guid_put(c, ranges, GUIDS(IDS(5, 1), .pid = 5 + ranges, .seq = 2)); /* scattered, and idempotent */
        guid_expect(a, ranges ? KE_NONE : KE_DUPLICATE_SEQUENCE_NUMBER, ranges ? 4 : -1);
        assert_int_equal(guid_log_of(&r)->leo, leo + 2); /* stored all the same, as an empty batch */
        guid_expect(guid_put(c, ranges, GUIDS(IDS(5, 1), .pid = 5 + ranges, .seq = 2)), ranges ? KE_NONE : KE_DUPLICATE_SEQUENCE_NUMBER, ranges ? 4 : -1);
        leo = guid_log_of(&r)->leo;
        guid_expect(guid_put(c, ranges, GUIDS(IDS(1, 100 + (uint64_t)ranges), .pid = 5 + ranges, .seq = 4)), KE_NONE, leo); /* any record stored: its batch */
    }
    rig_deinit(&r);
}

static void test_rule_14_ranges(void **state) {
    (void)state;
    struct rig r;
    struct rig_conn *c = guid_begin(&r, 31);
    guid_ranges(guid_put(c, false, GUIDS(IDS(1, 2, 3, 4, 5))), "-"); /* who did not ask is not told */
    guid_ranges(guid_put(c, true, GUIDS(IDS(1, 2, 9, 4, 5, 3))), "0+2@0 3+2@3 5+1@2");
    guid_ranges(guid_put(c, true, GUIDS(IDS(1, 2), .value = "other")), "0+2@0!");
    guid_ranges(guid_put(c, true, GUIDS(IDS(6, 6), .value = "same")), "1+1@11");
    rig_produced a = guid_put(c, true, GUIDS(IDS(1, 2, 0, 3, 77)));
    guid_ranges(a, "0+2@0 3+1@2");
    struct kb_node_count counts[KB_NODE_COUNTS];
    size_t n = kb_node_counts(r.node, counts), found = 0;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(counts[i].name, "guid_duplicates") == 0) found += counts[i].value == 5 + 2 + 1 + 3;
        if (strcmp(counts[i].name, "guid_mismatches") == 0) found += counts[i].value == 2;
    }
    assert_int_equal(found, 2);
    rig_deinit(&r);
}

/* ---- Rule 15: the broker's clock alone ---- */

/* UUIDv7 of the year 10889, of 1970, and one of now: by what is in an id it is known neither longer nor shorter, nor do others suffer. */
static void test_rule_15_ids_of_other_times(void **state) {
    (void)state;
    enum { WINDOW_US = 64000000 };
    for (int in_files = 0; in_files < 2; in_files++) {
        struct rig r;
        rig_init(&r, 32);
        rig_set(&r, "log.message.guid.dedup", "true");
        rig_set(&r, "log.message.guid.window.ms", "64000");
        if (in_files) rig_set(&r, "guid.index.memory.bytes", "1");
        rig_start(&r);
        struct rig_conn *c = rig_connect(&r);
        assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
        for (int round = 0; round < 6; round++) { /* sent thrice within the window, then once it is over again */
            size_t n;
            uint8_t *p = guid_batch(&r, &GUIDS(IDS(1, 2, 3)), &n), id[16];
            for (uint64_t k = 1; k <= 3; k++) {
                guid_of(id, k);
                uint8_t *at = memmem(p, n, id, sizeof(id));
                assert_non_null(at);
                uint64_t ms = k == 1 ? 0xffffffffffff : k == 2 ? 0 : 1700000000000;
                kw_store64(at, ms << 16 | 0x7000);
            }
            kw_batch_crc_set(p, n);
            guid_expect(rig_produce_bytes(c, "t", 0, 9, -1, p, n), KE_NONE, round / 3 * 3);
            assert_int_equal(guid_log_of(&r)->leo, round / 3 * 3 + 3);
            rig_pass(&r, round == 2 ? WINDOW_US : 3 * WINDOW_US / 8);
        }
        rig_deinit(&r);
    }
}

/* ---- The gate ---- */

static void test_gate_keeps_the_order(void **state) {
    (void)state;
    struct rig r;
    rig_produced a;
    rig_init(&r, 40);
    rig_start(&r);
    struct rig_conn *c = rig_connect(&r), *d = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 1, "message.guid.dedup", "true"), KE_NONE);
    for (int32_t i = 0; i < 5; i++) guid_send(c, -1, i, GUIDS(IDS(10 + (uint64_t)i, 7), .pid = 5, .seq = 2 * i)); /* before there is an index */
    guid_send(d, 0, 9, GUIDS(IDS(30)));
    guid_send(d, 1, 10, GUIDS(IDS(12, 31)));
    rig_settle(&r);
    for (int32_t i = 0; i < 5; i++) {
        assert_true(guid_answer(c, i, &a));
        guid_expect(a, KE_NONE, 2 * i);
        guid_ranges(a, i ? "1+1@1" : "");
    }
    assert_true(guid_answer(d, 10, &a));
    guid_ranges(a, "0+1@4");
    guid_holds(&r, guid_log_of(&r), "0:10 1:7 2:11 4:12 6:13 8:14 10:30 12:31", 13);
    rig_deinit(&r);
}

/* While the disk sleeps nothing is decided: the wait ends with the request's time, its connection, or the partition. Nothing was appended. */
static void test_gate_ends(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct rig r;
        rig_produced a;
        rig_init(&r, 41);
        rig_start(&r);
        struct rig_conn *c = rig_connect(&r), *d = rig_connect(&r), *e = rig_connect(&r);
        assert_int_equal(rig_create(c, "t", 1, NULL, NULL), KE_NONE);
        guid_expect(guid_put(c, true, GUIDS(IDS(1))), KE_NONE, 0);
        struct kb_partition *p = rig_partition(&r, "t", 0);
        r.node->partitions->stopping = true; /* nobody opens an index yet */
        p->config.guid_dedup = true;
        guid_send(c, -1, 1, GUIDS(IDS(1)));
        guid_send(d, 0, 2, GUIDS(IDS(2)));
        guid_send(d, -1, 3, GUIDS(IDS(3)));
        assert_null(p->guids);
        rig_turn(&r);
        assert_int_equal(p->log->leo, 1);
        assert_null(p->guids);
        if (how == 0) rig_pass(&r, 31000000);
        r.node->partitions->stopping = false;
        if (how == 0) {
            assert_true(guid_answer(c, 1, &a));
            guid_expect(a, KE_REQUEST_TIMED_OUT, -1);
            assert_int_equal(p->log->leo, 1);
        } else if (how == 1) {
            rig_delete(e, "t");
            assert_true(guid_answer(c, 1, &a));
            guid_expect(a, KE_UNKNOWN_TOPIC_OR_PARTITION, -1);
        } else if (how == 2) {
            rig_close_conns(&r); /* acks=0 is not waited for by its client: it goes on */
            p->config.guid_dedup = false;
            kb_purgatory_moved(p, r.now);
            rig_settle(&r);
            guid_holds(&r, p->log, "0:1 1:2", 2);
        } else {
            p->config.guid_dedup = false; /* the topic is deduped no more: all is stored, in order */
            kb_purgatory_moved(p, r.now);
            rig_settle(&r);
            assert_true(guid_answer(c, 1, &a));
            guid_expect(a, KE_NONE, 1);
            assert_true(guid_answer(d, 3, &a));
            guid_expect(a, KE_NONE, 3);
        }
        rig_deinit(&r);
    }
}

#define TEST(f) cmocka_unit_test(f)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_rule_1_wrong_ids), TEST(test_rule_1_not_eligible), TEST(test_rule_1_other_topics), TEST(test_rule_2_order),
        TEST(test_rule_2_undone), TEST(test_rule_2_undone_while_finding),
        TEST(test_rule_3_repeats), TEST(test_rule_3_repeat_of_forgotten_ids),
        TEST(test_rule_3_repeat_when_switched_off), TEST(test_rule_3_behind_the_five),
        TEST(test_rule_4_deleted_records_do_not_count), TEST(test_rule_5_in_flight), TEST(test_rule_5_within_a_batch), TEST(test_rule_6_codecs),
        TEST(test_rule_6_append_time), TEST(test_rule_6_sizes_on_arrival), TEST(test_rule_7_empty), TEST(test_rule_11_first_copy_not_committed),
        TEST(test_rule_11_too_few_in_sync), TEST(test_rule_11_another_epoch), TEST(test_rule_11_acks), TEST(test_rule_12_waits_for_the_index),
        TEST(test_rule_13_base_offset),
        TEST(test_rule_14_ranges), TEST(test_rule_15_ids_of_other_times), TEST(test_gate_keeps_the_order), TEST(test_gate_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
