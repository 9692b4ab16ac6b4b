/* test_guid.c - UUIDv7: layout, order within and across milliseconds, a clock that stands still or goes back, counters that overflow; UUIDs as text;
 * the header that carries an id. What a producer does with ids: test_guid_produce.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <kclient/kclient.h>

#include "produce/guid.h"

static int64_t ms_of(const uint8_t id[16]) { return (int64_t)(kw_load64(id) >> 16); }

static void assert_v7(const uint8_t id[16]) {
    assert_int_equal(id[6] >> 4, 7);
    assert_int_equal(id[8] >> 6, 2);
}

static void test_layout(void **state) {
    (void)state;
    struct kc_guid g = {0};
    struct kw_rng rng;
    uint8_t id[16];
    kw_rng_init(&rng, 1);
    kc_guid_next(&g, &rng, 0x0123456789ab, id);
    assert_v7(id);
    static const uint8_t time[6] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab};
    assert_memory_equal(id, time, 6);
}

static void test_ascending_whatever_the_clock_does(void **state) {
    (void)state;
    struct kc_guid g = {0};
    struct kw_rng rng, clock;
    uint8_t last[16] = {0}, id[16];
    kw_rng_init(&rng, 2);
    kw_rng_init(&clock, 3);
    int64_t ms = 1700000000000;
    for (int i = 0; i < 200000; i++) {
        switch (kw_rng_below(&clock, 4)) {
        case 0: ms += (int64_t)kw_rng_below(&clock, 5); break;
        case 1: ms -= (int64_t)kw_rng_below(&clock, 3); break;
        default: break;
        }
        kc_guid_next(&g, &rng, ms, id);
        assert_v7(id);
        assert_true(memcmp(id, last, 16) > 0);
        memcpy(last, id, 16);
    }
}

static void test_counters_overflow_into_time(void **state) {
    (void)state;
    struct kc_guid g = {.ms = 1000, .high = 0xfff, .low = ((uint64_t)1 << 62) - 1};
    struct kw_rng rng;
    uint8_t id[16];
    kw_rng_init(&rng, 4);
    kc_guid_next(&g, &rng, 1000, id);
    assert_v7(id);
    assert_int_equal(ms_of(id), 1001);
}

static void test_absurd_clocks(void **state) {
    (void)state;
    struct kc_guid g = {0};
    struct kw_rng rng;
    uint8_t a[16], b[16];
    kw_rng_init(&rng, 5);
    kc_guid_next(&g, &rng, -5, a);
    assert_v7(a);
    assert_int_equal(ms_of(a), 0);
    kc_guid_next(&g, &rng, INT64_MAX, b);
    assert_v7(b);
    assert_int_equal(ms_of(b), ((int64_t)1 << 48) - 1);
    kc_guid_next(&g, &rng, INT64_MAX, a);
    assert_v7(a);
    assert_true(memcmp(a, b, 16) > 0);
}

static void test_two_seeds_differ(void **state) {
    (void)state;
    struct kc_guid g = {0}, h = {0};
    struct kw_rng r, s;
    uint8_t a[16], b[16];
    kw_rng_init(&r, 6);
    kw_rng_init(&s, 7);
    kc_guid_next(&g, &r, 1000, a);
    kc_guid_next(&h, &s, 1000, b);
    assert_memory_not_equal(a, b, 16);
}

static void test_text_and_back(void **state) {
    (void)state;
    static const uint8_t id[16] = {0x01, 0x89, 0x0a, 0x5d, 0xac, 0x96, 0x77, 0x4b, 0xbc, 0xce, 0xb3, 0x02, 0x09, 0x9a, 0x80, 0x57};
    char text[KC_GUID_TEXT_SIZE];
    uint8_t back[16] = {0};
    assert_ptr_equal(kc_guid_to_text(id, text), text);
    assert_string_equal(text, "01890a5d-ac96-774b-bcce-b302099a8057");
    static const char *const forms[] = {"01890a5d-ac96-774b-bcce-b302099a8057", "01890A5D-AC96-774B-BCCE-B302099A8057", "01890a5dac96774bbcceb302099a8057"};
    for (size_t i = 0; i < KW_COUNTOF(forms); i++) {
        memset(back, 0, sizeof back);
        assert_int_equal(kc_guid_from_text(forms[i], 0, back), KC_OK);
        assert_memory_equal(back, id, 16);
        assert_int_equal(kc_guid_from_text(forms[i], strlen(forms[i]), back), KC_OK);
    }
    assert_int_equal(kc_guid_from_text("01890a5d-ac96-774b-bcce-b302099a8057 and more", 36, back), KC_OK); /* no NUL is needed */
    struct kw_rng rng;
    kw_rng_init(&rng, 8);
    for (int i = 0; i < 10000; i++) {
        uint8_t any[16];
        for (int k = 0; k < 16; k++) any[k] = (uint8_t)kw_rng_next(&rng);
        assert_int_equal(kc_guid_from_text(kc_guid_to_text(any, text), 0, back), KC_OK);
        assert_memory_equal(any, back, 16);
    }
}

static void test_text_that_is_no_uuid(void **state) {
    (void)state;
    static const char *const bad[] = {"", "x", "01890a5d-ac96-774b-bcce-b302099a805", "01890a5d-ac96-774b-bcce-b302099a80577",
                                      "01890a5d-ac96-774b-bcce-b302099a805g",
                                      "01890a5dac96-774b-bcce-b302099a8057-", "01890a5d-ac96-774b-bcceb-302099a8057", "{01890a5d-ac96-774b-bcce-b302099a8057}",
                                      "01890a5d ac96 774b bcce b302099a8057", "+1890a5d-ac96-774b-bcce-b302099a8057", "01890a5dac96774bbcceb302099a805", "-"};
    for (size_t i = 0; i < KW_COUNTOF(bad); i++) {
        uint8_t id[16] = {7};
        assert_int_equal(kc_guid_from_text(bad[i], 0, id), KC_BAD_GUID);
        assert_int_equal(id[0], 7); /* untouched */
    }
    uint8_t id[16];
    assert_int_equal(kc_guid_from_text("01890a5d-ac96-774b-bcce-b302099a8057", 35, id), KC_BAD_GUID);
    assert_int_equal(kc_guid_from_text(NULL, 0, id), KC_INVALID);
    assert_int_equal(kc_guid_from_text("x", 0, NULL), KC_INVALID);
    assert_string_equal(kc_err_name(KC_BAD_GUID), "KC_BAD_GUID");
    assert_non_null(strstr(kc_err_text(KC_BAD_GUID), "16-byte id"));
    assert_int_equal(kc_err_retriable(KC_BAD_GUID), 0);
}

static struct kw_header_view header(const char *name, const void *value, int32_t size) {
    return (struct kw_header_view){.key = kw_str_of(name), .value = {value, size}};
}

static void test_the_header_that_is_the_id(void **state) {
    (void)state;
    static const uint8_t a[16] = {1}, b[16] = {2};
    const uint8_t *id = a;
    struct kw_header_view h[3] = {header("guix", a, 16), header("guid", b, 16), header("guids", a, 16)};
    assert_int_equal(kc_guid_headers(h, 3, &id), 1);
    assert_ptr_equal(id, b);
    assert_int_equal(kc_guid_headers(h, 1, &id), 0);
    assert_null(id);
    h[0] = header("guid", a, 16); /* two: neither is */
    assert_int_equal(kc_guid_headers(h, 3, &id), 2);
    assert_null(id);
    for (int32_t size = -1; size < 40; size++) {
        h[1] = header("guid", size < 0 ? NULL : b, size);
        assert_int_equal(kc_guid_headers(h + 1, 1, &id), 1);
        assert_true((id != NULL) == (size == 16));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_ascending_whatever_the_clock_does),
        cmocka_unit_test(test_counters_overflow_into_time),
        cmocka_unit_test(test_absurd_clocks),
        cmocka_unit_test(test_two_seeds_differ),
        cmocka_unit_test(test_text_and_back),
        cmocka_unit_test(test_text_that_is_no_uuid),
        cmocka_unit_test(test_the_header_that_is_the_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
