/* test_frame.c - headers by API and version, frames with and without splices, frames that must not be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kw_messages.h"
#include "wire/frame.h"

static void header_versions_follow_the_flexible_version(void **state) {
    (void)state;
    for (size_t i = 0; i < kw_api_count; i++) {
        const struct kw_api *a = &kw_apis[i];
        for (int16_t v = a->min; v <= a->max; v++) {
            bool flexible = v >= a->flexible_min;
            assert_int_equal(kw_request_header_version(a, v), flexible ? 2 : 1);
            assert_int_equal(kw_response_header_version(a, v), flexible && a->key != KW_API_API_VERSIONS ? 1 : 0);
        }
    }
    const struct kw_api shutdown = {.key = 7, .flexible_min = 3};
    assert_int_equal(kw_request_header_version(&shutdown, 0), 0);
    assert_int_equal(kw_request_header_version(&shutdown, 1), 1);
}

static void a_request_frames_and_parses(void **state) {
    (void)state;
    struct kw_out o;
    kw_out_init(&o);
    for (size_t i = 0; i < kw_api_count; i++) {
        const struct kw_api *a = &kw_apis[i];
        for (int16_t v = a->min; v <= a->max; v++) {
            uint64_t msg[64];
            assert_true(a->request->size <= sizeof msg);
            kw_msg_init(a->request, msg);
            size_t at = o.len;
            struct kw_str id = v % 2 ? kw_str_null() : kw_str_of("client");
            assert_int_equal(kw_frame_request(&o, a, v, 1000 + v, id, msg), KW_OK);
            assert_int_equal(kw_load32(o.p + at), o.len - at - 4);
            struct kw_in in;
            struct kw_frame_request r;
            kw_in_init(&in, o.p + at + 4, o.len - at - 4);
            assert_int_equal(kw_frame_parse_request(&in, &r), KW_OK);
            assert_ptr_equal(r.api, a);
            assert_int_equal(r.api_key, a->key);
            assert_int_equal(r.version, v);
            assert_int_equal(r.correlation_id, 1000 + v);
            assert_true(kw_str_eq(r.client_id, id));
            struct kw_arena none;
            kw_arena_init(&none, 1);
            assert_int_equal(kw_decode(a->request, v, &in, &none, msg), KW_OK);
            assert_int_equal(kw_in_left(&in), 0);
        }
    }
    kw_out_deinit(&o);
}

static void an_unknown_key_or_version_still_tells_whom_to_answer(void **state) {
    (void)state;
    struct kw_in in;
    struct kw_frame_request r;
    const uint8_t new_version[] = {0, 18, 0, 99, 0, 0, 0, 7, 0xde, 0xad};
    kw_in_init(&in, new_version, sizeof new_version);
    assert_int_equal(kw_frame_parse_request(&in, &r), KW_EVERSION);
    assert_int_equal(r.api->key, 18);
    assert_int_equal(r.version, 99);
    assert_int_equal(r.correlation_id, 7);
    const uint8_t new_key[] = {0x7f, 0xff, 0, 0, 0, 0, 0, 8};
    kw_in_init(&in, new_key, sizeof new_key);
    assert_int_equal(kw_frame_parse_request(&in, &r), KW_EVERSION);
    assert_null(r.api);
    assert_int_equal(r.api_key, 0x7fff);
    assert_int_equal(r.correlation_id, 8);
    const uint8_t negative[] = {0, 3, 0xff, 0xff, 0, 0, 0, 9, 0, 0};
    kw_in_init(&in, negative, sizeof negative);
    assert_int_equal(kw_frame_parse_request(&in, &r), KW_EVERSION);
    for (size_t n = 0; n < 8; n++) {
        kw_in_init(&in, new_version, n);
        assert_int_equal(kw_frame_parse_request(&in, &r), KW_ESHORT);
    }
    const uint8_t bad_id[] = {0, 3, 0, 1, 0, 0, 0, 9, 0xff, 0xfe};
    kw_in_init(&in, bad_id, sizeof bad_id);
    assert_int_equal(kw_frame_parse_request(&in, &r), KW_EDECODE);
}

static void a_response_header_parses(void **state) {
    (void)state;
    struct kw_out o;
    kw_out_init(&o);
    for (size_t i = 0; i < kw_api_count; i++) {
        const struct kw_api *a = &kw_apis[i];
        for (int16_t v = a->min; v <= a->max; v++) {
            uint64_t msg[64];
            assert_true(a->response->size <= sizeof msg);
            kw_msg_init(a->response, msg);
            kw_out_reset(&o);
            assert_int_equal(kw_frame_response(&o, a, v, 77, msg), KW_OK);
            assert_int_equal(kw_load32(o.p), o.len - 4);
            struct kw_in in;
            int32_t id = 0;
            kw_in_init(&in, o.p + 4, o.len - 4);
            assert_int_equal(kw_frame_parse_response(&in, a, v, &id), KW_OK);
            assert_int_equal(id, 77);
            struct kw_arena none;
            kw_arena_init(&none, 1);
            assert_int_equal(kw_decode(a->response, v, &in, &none, msg), KW_OK);
            assert_int_equal(kw_in_left(&in), 0);
            id = 5;
            kw_in_init(&in, o.p + 4, 3);
            assert_int_equal(kw_frame_parse_response(&in, a, v, &id), KW_ESHORT);
            assert_int_equal(id, 5); /* untouched */
        }
    }
    kw_out_deinit(&o);
}

static void a_length_counts_splices(void **state) {
    (void)state;
    const struct kw_api *fetch = kw_api_by_key(KW_API_FETCH);
    int file;
    struct kw_fetch_response m;
    struct kw_fetch_response_fetchable_topic_response t = {.topic = kw_str_of("t")};
    struct kw_fetch_response_partition_data p;
    kw_msg_init(fetch->response, &m);
    kw_msg_init(fetch->response->fields[3].desc->fields[2].desc, &p);
    p.records = (struct kw_records){NULL, 1 << 20, &file};
    t.partitions.v = &p;
    m.responses.v = &t;
    t.partitions.n = m.responses.n = 1;
    struct kw_out o;
    kw_out_init(&o);
    o.splice = true;
    for (int i = 0; i < 3; i++) { /* the second frame's length leaves the first one's splices out */
        size_t at = o.len;
        assert_int_equal(kw_frame_response(&o, fetch, 12, i, &m), KW_OK);
        assert_int_equal(kw_load32(o.p + at), o.len - at - 4 + (1 << 20));
    }
    assert_int_equal(o.splice_count, 3);
    p.records.len = INT32_MAX; /* with the header more than a frame's length can say */
    size_t len = o.len, bytes = o.splice_bytes;
    assert_int_equal(kw_frame_response(&o, fetch, 12, 4, &m), KW_EINVAL);
    assert_int_equal(o.len, len);
    assert_int_equal(o.splice_count, 3);
    assert_int_equal(o.splice_bytes, bytes);
    assert_int_equal(o.err, KW_OK);
    kw_out_deinit(&o);
}

static void a_failed_frame_leaves_no_trace(void **state) {
    (void)state;
    const struct kw_api *metadata = kw_api_by_key(KW_API_METADATA);
    struct kw_metadata_request m;
    kw_msg_init(metadata->request, &m);
    struct kw_out o;
    kw_out_init(&o);
    kw_out_i8(&o, 42);
    m.topics.n = -1;
    assert_int_equal(kw_frame_request(&o, metadata, 0, 1, kw_str_null(), &m), KW_EINVAL);
    assert_int_equal(kw_frame_request(&o, metadata, 99, 1, kw_str_null(), &m), KW_EVERSION);
    assert_int_equal(o.len, 1);
    assert_int_equal(kw_frame_request(&o, metadata, 1, 1, kw_str_null(), &m), KW_OK);
    assert_int_equal(o.p[0], 42);
    kw_out_fail(&o, KW_ENOMEM); /* what failed before stays failed */
    assert_int_equal(kw_frame_request(&o, metadata, 1, 1, kw_str_null(), &m), KW_ENOMEM);
    assert_int_equal(o.err, KW_ENOMEM);
    kw_out_deinit(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_versions_follow_the_flexible_version),
        cmocka_unit_test(a_request_frames_and_parses),
        cmocka_unit_test(an_unknown_key_or_version_still_tells_whom_to_answer),
        cmocka_unit_test(a_response_header_parses),
        cmocka_unit_test(a_length_counts_splices),
        cmocka_unit_test(a_failed_frame_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
