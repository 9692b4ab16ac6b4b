/* test_buf.c - the reader's bounds and varint limits, the writer's growth, splices and faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"

static void reads_stop_at_the_end(void **state) {
    (void)state;
    const uint8_t b[7] = {1, 2, 3, 4, 5, 6, 7};
    struct kw_in in;
    kw_in_init(&in, b, sizeof b);
    assert_int_equal(kw_in_i32(&in), 0x01020304);
    assert_int_equal(kw_in_i32(&in), 0); /* three bytes are left */
    assert_int_equal(in.err, KW_ESHORT);
    assert_int_equal(kw_in_left(&in), 3);
    assert_int_equal(kw_in_i8(&in), 0); /* sticky */
    assert_null(kw_in_take(&in, 0));
    kw_in_fail(&in, KW_EDECODE);
    assert_int_equal(in.err, KW_ESHORT);
    kw_in_init(&in, b, sizeof b);
    assert_null(kw_in_take(&in, SIZE_MAX));
    assert_int_equal(in.err, KW_ESHORT);
    kw_in_init(&in, b, 7);
    assert_ptr_equal(kw_in_take(&in, 7), b);
    assert_int_equal(kw_in_left(&in), 0);
    assert_int_equal(in.err, KW_OK);
    kw_in_init(&in, NULL, 0);
    assert_non_null(kw_in_take(&in, 0));
    assert_int_equal(kw_in_i64(&in), 0);
    assert_int_equal(in.err, KW_ESHORT);
}

static void check_uvarint(const uint8_t *b, size_t n, kw_err err, uint32_t v) {
    struct kw_in in;
    kw_in_init(&in, b, n);
    assert_int_equal(kw_in_uvarint(&in), err ? 0 : v);
    assert_int_equal(in.err, err);
}

static void varints_keep_to_32_and_64_bits(void **state) {
    (void)state;
    check_uvarint((const uint8_t[]){0xff, 0xff, 0xff, 0xff, 0x0f}, 5, KW_OK, UINT32_MAX);
    check_uvarint((const uint8_t[]){0xff, 0xff, 0xff, 0xff, 0x1f}, 5, KW_EDECODE, 0);
    check_uvarint((const uint8_t[]){0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 6, KW_EDECODE, 0);
    check_uvarint((const uint8_t[]){0x81, 0x80, 0x80, 0x80, 0x00}, 5, KW_OK, 1); /* longer than needed, as Java reads it */
    check_uvarint((const uint8_t[]){0x80, 0x80}, 2, KW_ESHORT, 0);
    check_uvarint((const uint8_t[]){0}, 0, KW_ESHORT, 0);
    uint8_t b[10];
    memset(b, 0xff, 9);
    b[9] = 1;
    struct kw_in in;
    kw_in_init(&in, b, 10);
    assert_true(kw_in_uvarlong(&in) == UINT64_MAX);
    b[9] = 2;
    kw_in_init(&in, b, 10);
    assert_true(kw_in_uvarlong(&in) == 0);
    assert_int_equal(in.err, KW_EDECODE);
}

static void numbers_round_trip(void **state) {
    (void)state;
    struct kw_out o;
    kw_out_init(&o);
    for (int i = 0; i < 192; i++) {
        int64_t v = (int64_t)(((uint64_t)1 << (i / 3)) + (uint64_t)(i % 3) - 1);
        kw_out_reset(&o);
        kw_out_varlong(&o, v);
        assert_int_equal(o.len, kw_varint_size(v));
        kw_out_varlong(&o, ~v);
        kw_out_varint(&o, (int32_t)v);
        kw_out_uvarint(&o, (uint32_t)v);
        kw_out_uvarlong(&o, (uint64_t)v);
        kw_out_i8(&o, (int8_t)v);
        kw_out_i16(&o, (int16_t)v);
        kw_out_i32(&o, (int32_t)v);
        kw_out_i64(&o, v);
        assert_int_equal(o.err, KW_OK);
        struct kw_in in;
        kw_in_init(&in, o.p, o.len);
        assert_true(kw_in_varlong(&in) == v);
        assert_true(kw_in_varlong(&in) == ~v);
        assert_true(kw_in_varint(&in) == (int32_t)v);
        assert_true(kw_in_uvarint(&in) == (uint32_t)v);
        assert_true(kw_in_uvarlong(&in) == (uint64_t)v);
        assert_true(kw_in_i8(&in) == (int8_t)v);
        assert_true(kw_in_i16(&in) == (int16_t)v);
        assert_true(kw_in_i32(&in) == (int32_t)v);
        assert_true(kw_in_i64(&in) == v);
        assert_int_equal(in.err, KW_OK);
        assert_int_equal(kw_in_left(&in), 0);
    }
    kw_out_deinit(&o);
}

static void a_fixed_writer_never_grows(void **state) {
    (void)state;
    uint8_t b[6];
    struct kw_out o;
    kw_out_init_fixed(&o, b, sizeof b);
    kw_out_i32(&o, 1);
    kw_out_i16(&o, 2);
    assert_int_equal(o.err, KW_OK);
    kw_out_i8(&o, 3);
    assert_int_equal(o.err, KW_ENOMEM);
    kw_out_i8(&o, 3);
    assert_int_equal(o.len, 6);
    kw_out_deinit(&o);
}

static void splices_are_counted_or_copied(void **state) {
    (void)state;
    static const uint8_t body[] = "payload";
    int file;
    struct kw_out o;
    kw_out_init(&o);
    kw_out_add_splice(&o, body, 7, NULL); /* splice off: copied */
    assert_int_equal(o.len, 7);
    assert_int_equal(o.splice_count, 0);
    kw_out_add_splice(&o, NULL, 7, &file); /* bytes that are not in memory cannot be copied */
    assert_int_equal(o.err, KW_EINVAL);
    kw_out_reset(&o);
    o.splice = true;
    for (size_t i = 0; i < 20; i++) {
        kw_out_i8(&o, 1);
        if (i % 2) kw_out_add_splice(&o, body, 7, NULL);
        else kw_out_add_splice(&o, NULL, 100, &file);
    }
    assert_int_equal(o.err, KW_OK);
    assert_int_equal(o.len, 20);
    assert_int_equal(o.splice_count, 20);
    assert_int_equal(o.splice_bytes, 1070);
    assert_int_equal(o.splices[19].at, 20);
    assert_ptr_equal(o.splices[18].ref, &file);
    kw_out_deinit(&o);
}

static void every_allocation_of_the_writer_may_fail(void **state) {
    (void)state;
    for (int64_t n = 0;; n++) {
        struct kw_out o;
        kw_out_init(&o);
        o.splice = true;
        kw_alloc_fail_after(n);
        for (int i = 0; i < 1000; i++) {
            kw_out_i64(&o, i);
            if (i < 10) kw_out_add_splice(&o, (const uint8_t *)"x", 1, NULL);
        }
        kw_alloc_fail_after(-1);
        kw_err err = o.err;
        kw_out_deinit(&o);
        if (err == KW_OK) {
            assert_true(n > 3);
            break;
        }
        assert_int_equal(err, KW_ENOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_stop_at_the_end),         cmocka_unit_test(varints_keep_to_32_and_64_bits),
        cmocka_unit_test(numbers_round_trip),            cmocka_unit_test(a_fixed_writer_never_grows),
        cmocka_unit_test(splices_are_counted_or_copied), cmocka_unit_test(every_allocation_of_the_writer_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
