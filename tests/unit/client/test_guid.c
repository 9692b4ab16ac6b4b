/* test_guid.c - UUIDv7: layout, order within and across milliseconds, a clock that stands still or goes back, counters that overflow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_ascending_whatever_the_clock_does),
        cmocka_unit_test(test_counters_overflow_into_time),
        cmocka_unit_test(test_absurd_clocks),
        cmocka_unit_test(test_two_seeds_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
