/* test_kerror.c - the error table: no gap, no name twice, flags of the codes on which clients hang their behaviour. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "wire/kerror.h"

static const int32_t codes[] = {
#define CODE(code, name, retriable, refresh, text) (code),
    KW_KERRORS(CODE)
#undef CODE
};

static void test_codes_and_names(void **state) {
    (void)state;
    for (size_t i = 0; i < KW_COUNTOF(codes); i++) {
        const struct kw_kerror_info *e = kw_kerror_info(codes[i]);
        assert_int_equal(e->code, codes[i]);
        assert_ptr_equal(kw_kerror_by_name(e->name), e); /* hence no name twice */
        assert_string_equal(kw_kerror_name(codes[i]), e->name);
        assert_true(strlen(e->text) > 5);
        if (e->refresh_metadata) assert_true(e->retriable);
    }
    for (int32_t c = -1; c <= 136; c++) assert_int_equal(kw_kerror_info(c)->code, c);
}

static void test_unknown(void **state) {
    (void)state;
    const int32_t unknown[] = {137, 1000, INT32_MAX, -2, -999, INT32_MIN};
    for (size_t i = 0; i < KW_COUNTOF(unknown); i++) {
        assert_int_equal(kw_kerror_info(unknown[i])->code, KE_UNKNOWN_SERVER_ERROR);
        assert_string_equal(kw_kerror_name(unknown[i]), "UNKNOWN");
        assert_false(kw_kerror_info(unknown[i])->retriable);
    }
    assert_null(kw_kerror_by_name("UNKNOWN"));
    assert_null(kw_kerror_by_name(""));
}

static void test_flags(void **state) {
    (void)state;
    assert_int_equal(KE_NOT_LEADER_OR_FOLLOWER, 6);
    assert_true(kw_kerror_info(KE_NOT_LEADER_OR_FOLLOWER)->refresh_metadata);
    assert_true(kw_kerror_info(KE_FENCED_LEADER_EPOCH)->refresh_metadata);
    assert_true(kw_kerror_info(KE_NOT_ENOUGH_REPLICAS)->retriable);
    assert_false(kw_kerror_info(KE_NOT_ENOUGH_REPLICAS)->refresh_metadata);
    assert_true(kw_kerror_info(KE_CORRUPT_MESSAGE)->retriable);
    assert_false(kw_kerror_info(KE_MESSAGE_TOO_LARGE)->retriable);
    assert_false(kw_kerror_info(KE_NONE)->retriable);
    assert_false(kw_kerror_info(KE_UNKNOWN_SERVER_ERROR)->retriable);
    assert_int_equal(KE_CHECKSUM_MISMATCH, KW_ECRC);
    assert_string_equal(kw_kerror_name(KW_ENOMEM), "OUT_OF_MEMORY");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_and_names),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
