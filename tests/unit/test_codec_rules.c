/* test_codec_rules.c - the codec's rules one by one: versions, defaults, ignorable fields, nulls, tagged fields, splices, tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kw_messages.h"

static struct kw_arena arena;
static struct kw_out out;

static int setup(void **state) {
    (void)state;
    kw_arena_init(&arena, 0);
    kw_out_init(&out);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    kw_arena_deinit(&arena);
    kw_out_deinit(&out);
    return 0;
}

static kw_err encode(const struct kw_desc *d, int16_t v, const void *msg) {
    kw_out_reset(&out);
    return kw_encode(d, v, msg, &out);
}

static kw_err decode(const struct kw_desc *d, int16_t v, const void *p, size_t n, void *msg) {
    struct kw_in in;
    kw_in_init(&in, p, n);
    return kw_decode(d, v, &in, &arena, msg);
}

static void a_version_that_the_schema_lacks_is_refused(void **state) {
    (void)state;
    struct kw_metadata_request m;
    kw_msg_init(&kw_metadata_request_desc, &m);
    assert_int_equal(encode(&kw_metadata_request_desc, 14, &m), KW_EVERSION);
    assert_int_equal(encode(&kw_metadata_request_desc, -1, &m), KW_EVERSION);
    assert_int_equal(decode(&kw_metadata_request_desc, 14, "", 0, &m), KW_EVERSION);
    assert_int_equal(out.len, 0);
}

static void defaults_are_kafkas(void **state) {
    (void)state;
    struct kw_fetch_request m;
    memset(&m, 0xff, sizeof m);
    kw_msg_init(&kw_fetch_request_desc, &m);
    assert_int_equal(m.cluster_id.len, -1);
    assert_int_equal(m.replica_id, -1);
    assert_int_equal(m.replica_state.replica_id, -1);
    assert_true(m.replica_state.replica_epoch == -1);
    assert_int_equal(m.max_bytes, INT32_MAX);
    assert_int_equal(m.session_epoch, -1);
    assert_int_equal(m.topics.n, 0);
    assert_int_equal(m.rack_id.len, 0);
    struct kw_produce_response r;
    kw_msg_init(&kw_produce_response_desc, &r);
    assert_int_equal(r.responses.n, 0);
    struct kw_partition_change_record c;
    kw_msg_init(&kw_partition_change_record_desc, &c);
    assert_int_equal(c.leader, -2);
    assert_int_equal(c.isr.n, -1);
    struct kw_describe_topic_partitions_request q;
    kw_msg_init(&kw_describe_topic_partitions_request_desc, &q);
    assert_null(q.cursor);
    assert_int_equal(q.response_partition_limit, 2000);
}

/* The session id is ignorable, the forgotten topics are not. */
static void a_field_that_the_version_lacks(void **state) {
    (void)state;
    const struct kw_desc *d = &kw_fetch_request_desc;
    struct kw_fetch_request m;
    kw_msg_init(d, &m);
    m.session_id = 5;
    m.rack_id = kw_str_of("r1");
    assert_int_equal(encode(d, 6, &m), KW_OK);
    struct kw_fetch_request_forgotten_topic t = {.topic = kw_str_of("t")};
    m.forgotten_topics_data.v = &t;
    m.forgotten_topics_data.n = 1;
    assert_int_equal(encode(d, 6, &m), KW_EINVAL);
    assert_int_equal(encode(d, 7, &m), KW_OK);
    struct kw_fetch_request got;
    assert_int_equal(decode(d, 7, out.p, out.len, &got), KW_OK);
    assert_int_equal(got.session_id, 5);
    assert_int_equal(got.rack_id.len, 0); /* 11+ */
    m.replica_state.replica_epoch = 3;    /* a struct that is not ignorable, in a version before it */
    assert_int_equal(encode(d, 7, &m), KW_EINVAL);
}

static void null_where_a_version_cannot_say_it(void **state) {
    (void)state;
    struct kw_metadata_request m;
    kw_msg_init(&kw_metadata_request_desc, &m);
    m.topics.n = -1;
    assert_int_equal(encode(&kw_metadata_request_desc, 0, &m), KW_EINVAL);
    assert_int_equal(encode(&kw_metadata_request_desc, 1, &m), KW_OK);
    assert_memory_equal(out.p, "\xff\xff\xff\xff", 4);
    m.topics.n = -2;
    assert_int_equal(encode(&kw_metadata_request_desc, 1, &m), KW_EINVAL);
    m.topics.n = 1; /* a count without elements is our caller's mistake */
    m.topics.v = NULL;
    assert_int_equal(encode(&kw_metadata_request_desc, 1, &m), KW_EINVAL);
    assert_int_equal(decode(&kw_metadata_request_desc, 1, "\xff\xff\xff\xfe", 4, &m), KW_EDECODE);
}

static void strings_keep_to_32767_bytes(void **state) {
    (void)state;
    static char text[32768];
    memset(text, 'x', sizeof text);
    struct kw_find_coordinator_request m, got;
    for (int16_t v = 2; v <= 3; v++) {
        kw_msg_init(&kw_find_coordinator_request_desc, &m);
        m.key = (struct kw_str){text, 32767};
        assert_int_equal(encode(&kw_find_coordinator_request_desc, v, &m), KW_OK);
        assert_int_equal(decode(&kw_find_coordinator_request_desc, v, out.p, out.len, &got), KW_OK);
        assert_int_equal(got.key.len, 32767);
        m.key.len = 32768;
        assert_int_equal(encode(&kw_find_coordinator_request_desc, v, &m), KW_EINVAL);
    }
    kw_out_reset(&out);
    kw_out_uvarint(&out, 32769);
    kw_out_bytes(&out, text, 32768);
    kw_out_i16(&out, 0);
    assert_int_equal(decode(&kw_find_coordinator_request_desc, 3, out.p, out.len, &got), KW_EDECODE);
}

static void default_tagged_fields_are_left_out(void **state) {
    (void)state;
    struct kw_partition_change_record m;
    kw_msg_init(&kw_partition_change_record_desc, &m);
    m.partition_id = 1;
    assert_int_equal(encode(&kw_partition_change_record_desc, 0, &m), KW_OK);
    assert_int_equal(out.len, 4 + 16 + 1);
    assert_int_equal(out.p[20], 0);
    m.leader = -1;
    m.isr.n = 0; /* null is the default: empty is written */
    assert_int_equal(encode(&kw_partition_change_record_desc, 0, &m), KW_OK);
    assert_int_equal(out.len, 21 + 3 + 6);
    assert_memory_equal(out.p + 20, "\x02\x00\x01\x01\x01\x04\xff\xff\xff\xff", 10);
}

static void tagged_sizes_of_one_to_three_bytes(void **state) {
    (void)state;
    static int32_t isr[10000];
    static const int32_t counts[] = {0, 1, 31, 32, 33, 4094, 4095, 4096, 10000};
    for (size_t i = 0; i < KW_COUNTOF(counts); i++) {
        struct kw_partition_change_record m, got;
        kw_msg_init(&kw_partition_change_record_desc, &m);
        for (int32_t k = 0; k < counts[i]; k++) isr[k] = k;
        m.isr.v = isr;
        m.isr.n = counts[i];
        m.leader = 77; /* behind the field whose size moves it */
        assert_int_equal(encode(&kw_partition_change_record_desc, 0, &m), KW_OK);
        assert_int_equal(decode(&kw_partition_change_record_desc, 0, out.p, out.len, &got), KW_OK);
        assert_int_equal(got.isr.n, counts[i]);
        if (counts[i]) assert_memory_equal(got.isr.v, isr, (size_t)counts[i] * 4);
        assert_int_equal(got.leader, 77);
    }
    struct kw_arena small; /* no memory inside a tagged field is not a malformed field */
    kw_arena_init(&small, 1000);
    struct kw_in in;
    struct kw_partition_change_record got;
    kw_in_init(&in, out.p, out.len);
    assert_int_equal(kw_decode(&kw_partition_change_record_desc, 0, &in, &small, &got), KW_ENOMEM);
    kw_arena_deinit(&small);
}

/* The tagged part of a PartitionChangeRecord: tag 1 (leader, int32), tag 5 (recovery state, int8). */
static kw_err decode_tags(const char *tags, size_t n) {
    uint8_t b[128] = {0};
    memcpy(b + 20, tags, n);
    struct kw_partition_change_record got;
    return decode(&kw_partition_change_record_desc, 0, b, 20 + n, &got);
}
#define TAGS(s) decode_tags(s, sizeof(s) - 1)

static void malformed_tagged_fields_are_refused(void **state) {
    (void)state;
    assert_int_equal(TAGS("\x00"), KW_OK);
    assert_int_equal(TAGS("\x02\x01\x04\x00\x00\x00\x01\x05\x01\x01"), KW_OK);
    assert_int_equal(TAGS("\x03\x01\x04\x00\x00\x00\x01\x02\x01\x00\x05\x01\x01"), KW_OK);
    assert_int_equal(TAGS("\x02\x05\x01\x01\x01\x04\x00\x00\x00\x01"), KW_EDECODE);                 /* falling */
    assert_int_equal(TAGS("\x02\x01\x04\x00\x00\x00\x01\x01\x04\x00\x00\x00\x01"), KW_EDECODE);     /* twice */
    assert_int_equal(TAGS("\x02\x7f\x00\x7f\x00"), KW_EDECODE);                                     /* twice, unknown */
    assert_int_equal(TAGS("\x01\x01\x03\x00\x00\x00"), KW_EDECODE);                                 /* too short for its type */
    assert_int_equal(TAGS("\x01\x01\x05\x00\x00\x00\x01\x00"), KW_EDECODE);                         /* too long */
    assert_int_equal(TAGS("\x01\x01\x05\x00\x00\x00\x01"), KW_ESHORT);                              /* past the end */
    assert_int_equal(TAGS("\x01\x00\x01\x05"), KW_EDECODE);             /* an array of 4 inside a field of one byte */
    assert_int_equal(TAGS("\xff\xff\xff\xff\x0f"), KW_ESHORT);          /* 2^32-1 fields */
    assert_int_equal(TAGS("\x01\xff\xff\xff\xff\x0f\xff\xff\xff\xff\x0f"), KW_ESHORT);
    assert_int_equal(TAGS("\x01\xff\xff\xff\xff\x0f\x00"), KW_OK);      /* the highest tag, unknown */
    assert_int_equal(TAGS("\x01\x08\x01\x05"), KW_OK); /* directories, 1+: unknown in version 0, so not looked into */
}

static void a_nullable_struct_is_marked(void **state) {
    (void)state;
    const struct kw_desc *d = &kw_describe_topic_partitions_request_desc;
    struct kw_describe_topic_partitions_request m, got;
    struct kw_describe_topic_partitions_request_cursor cursor = {.topic_name = kw_str_of("t"), .partition_index = 3};
    kw_msg_init(d, &m);
    assert_int_equal(encode(d, 0, &m), KW_OK);
    assert_memory_equal(out.p, "\x01\x00\x00\x07\xd0\xff\x00", 7);
    assert_int_equal(decode(d, 0, out.p, out.len, &got), KW_OK);
    assert_null(got.cursor);
    m.cursor = &cursor;
    assert_int_equal(encode(d, 0, &m), KW_OK);
    assert_memory_equal(out.p, "\x01\x00\x00\x07\xd0\x01\x02t\x00\x00\x00\x03\x00\x00", 14);
    assert_int_equal(decode(d, 0, out.p, out.len, &got), KW_OK);
    assert_int_equal(got.cursor->partition_index, 3);
    out.p[5] = 2;
    assert_int_equal(decode(d, 0, out.p, out.len, &got), KW_EDECODE);
}

static void the_client_id_keeps_its_classic_form(void **state) {
    (void)state;
    struct kw_request_header h, got;
    kw_msg_init(&kw_request_header_desc, &h);
    h.request_api_key = 3;
    h.request_api_version = 12;
    h.correlation_id = 9;
    h.client_id = kw_str_of("me");
    assert_int_equal(encode(&kw_request_header_desc, 2, &h), KW_OK);
    assert_int_equal(out.len, 13);
    assert_memory_equal(out.p, "\x00\x03\x00\x0c\x00\x00\x00\x09\x00\x02me\x00", 13);
    assert_int_equal(encode(&kw_request_header_desc, 0, &h), KW_OK); /* ignorable before 1 */
    assert_int_equal(out.len, 8);
    h.client_id = kw_str_null();
    assert_int_equal(encode(&kw_request_header_desc, 2, &h), KW_OK);
    assert_int_equal(decode(&kw_request_header_desc, 2, out.p, out.len, &got), KW_OK);
    assert_int_equal(got.client_id.len, -1);
}

static void records_become_splices_or_copies(void **state) {
    (void)state;
    static const uint8_t bytes[] = "record batch";
    int file;
    struct kw_produce_request_partition_produce_data p[3] = {
        {.index = 0, .records = {bytes, 12, NULL}}, {.index = 1, .records = {NULL, 5000, &file}}, {.index = 2, .records = {bytes, 0, NULL}}};
    struct kw_produce_request_topic_produce_data t = {.name = kw_str_of("t")};
    struct kw_produce_request m;
    kw_msg_init(&kw_produce_request_desc, &m);
    t.partition_data.v = p;
    t.partition_data.n = 3;
    m.topic_data.v = &t;
    m.topic_data.n = 1;
    assert_int_equal(encode(&kw_produce_request_desc, 9, &m), KW_EINVAL); /* a file slice, and nowhere to put it */
    out.splice = true;
    assert_int_equal(encode(&kw_produce_request_desc, 9, &m), KW_OK);
    assert_int_equal(out.splice_count, 2);
    assert_int_equal(out.splice_bytes, 5012);
    size_t without = out.len, second = out.splices[1].at;
    assert_ptr_equal(out.splices[0].p, bytes);
    assert_ptr_equal(out.splices[1].ref, &file);
    assert_memory_equal(out.p + second - 2, "\x89\x27", 2); /* 5001 in front of the slice */
    out.splice = false;
    p[1].records = (struct kw_records){bytes, 1, NULL};
    assert_int_equal(encode(&kw_produce_request_desc, 9, &m), KW_OK);
    assert_int_equal(out.len, without - 1 + 12 + 1); /* 5001 took one byte more than 2 does */
    struct kw_produce_request got;
    assert_int_equal(decode(&kw_produce_request_desc, 9, out.p, out.len, &got), KW_OK);
    assert_memory_equal(got.topic_data.v[0].partition_data.v[0].records.p, bytes, 12);
}

static void tables_answer_by_key_name_and_type(void **state) {
    (void)state;
    for (size_t i = 0; i < kw_api_count; i++) {
        if (i) assert_true(kw_apis[i - 1].key < kw_apis[i].key);
        assert_ptr_equal(kw_api_by_key(kw_apis[i].key), &kw_apis[i]);
        assert_ptr_equal(kw_api_by_name(kw_apis[i].name), &kw_apis[i]);
        assert_int_equal(kw_apis[i].request->api_key, kw_apis[i].key);
    }
    assert_null(kw_api_by_key(-1));
    assert_null(kw_api_by_key(INT16_MAX));
    assert_null(kw_api_by_name("produce"));
    assert_ptr_equal(kw_metadata_record_by_type(KW_RECORD_TOPIC), &kw_topic_record_desc);
    for (size_t i = 0; i < kw_metadata_record_count; i++) {
        assert_ptr_equal(kw_metadata_record_by_type(kw_metadata_records[i]->api_key), kw_metadata_records[i]);
    }
    assert_null(kw_metadata_record_by_type(-1));
    assert_null(kw_metadata_record_by_type(9999));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_that_the_schema_lacks_is_refused),
        cmocka_unit_test(defaults_are_kafkas),
        cmocka_unit_test(a_field_that_the_version_lacks),
        cmocka_unit_test(null_where_a_version_cannot_say_it),
        cmocka_unit_test(strings_keep_to_32767_bytes),
        cmocka_unit_test(default_tagged_fields_are_left_out),
        cmocka_unit_test(tagged_sizes_of_one_to_three_bytes),
        cmocka_unit_test(malformed_tagged_fields_are_refused),
        cmocka_unit_test(a_nullable_struct_is_marked),
        cmocka_unit_test(the_client_id_keeps_its_classic_form),
        cmocka_unit_test(records_become_splices_or_copies),
        cmocka_unit_test(tables_answer_by_key_name_and_type),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
