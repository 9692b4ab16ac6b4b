/* test_rng.c - the published sequence of xoshiro256**, replay, bounds and evenness. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/rng.h"

static void test_known_sequence(void **state) {
    (void)state;
    /* First outputs of the reference implementation for the state 1, 2, 3, 4. */
    struct kw_rng r = {{1, 2, 3, 4}};
    const uint64_t want[] = {11520u, 0u, 1509978240u, 1215971899390074240u};
    for (size_t i = 0; i < KW_COUNTOF(want); i++) assert_true(kw_rng_next(&r) == want[i]);
    /* splitmix64 from 0 starts with this. */
    kw_rng_init(&r, 0);
    assert_true(r.s[0] == 0xe220a8397b1dcdafu);
}

static void test_replay(void **state) {
    (void)state;
    struct kw_rng a, b, c;
    kw_rng_init(&a, 42);
    kw_rng_init(&b, 42);
    kw_rng_init(&c, 43);
    int same = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t x = kw_rng_next(&a);
        assert_true(x == kw_rng_next(&b));
        same += x == kw_rng_next(&c);
    }
    assert_int_equal(same, 0);
}

static void test_below(void **state) {
    (void)state;
    struct kw_rng r;
    kw_rng_init(&r, 1);
    uint32_t seen[10] = {0};
    for (int i = 0; i < 100000; i++) seen[kw_rng_below(&r, 10)]++;
    for (int i = 0; i < 10; i++) assert_in_range(seen[i], 9500, 10500); /* five deviations of the mean */
    for (int i = 0; i < 100; i++) assert_true(kw_rng_below(&r, 1) == 0);
    uint64_t odd = ((uint64_t)1 << 63) + 1; /* half of the draws fall out here */
    uint64_t high = 0;
    for (int i = 0; i < 1000; i++) {
        uint64_t x = kw_rng_below(&r, odd);
        assert_true(x < odd);
        high += x >= odd / 2;
    }
    assert_in_range(high, 400, 600);
}

static void test_chance(void **state) {
    (void)state;
    struct kw_rng r;
    kw_rng_init(&r, 2);
    uint32_t hits = 0;
    for (int i = 0; i < 100000; i++) {
        assert_false(kw_rng_chance(&r, 0));
        assert_true(kw_rng_chance(&r, 1000000));
        hits += kw_rng_chance(&r, 250000);
    }
    assert_in_range(hits, 24300, 25700);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_sequence),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
