/* test_kc_plan.c - where kc reassign would put replicas: random clusters against the rules of cli/plan.h, and cases that a person can check. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cli/plan.h"

enum { BROKERS = 9, PARTITIONS = 60, RF = 5 };
static struct cli_move moves[PARTITIONS];
static int32_t now[PARTITIONS][RF], then[PARTITIONS][RF];

static size_t count_of(int32_t id, bool first, size_t n) {
    size_t c = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < (first ? 1 : moves[i].want); k++) c += moves[i].then[k] == id;
    return c;
}

static void set(size_t i, const int32_t *v, size_t n, size_t want) {
    memcpy(now[i], v, n * sizeof *v);
    moves[i] = (struct cli_move){.now = now[i], .now_count = n, .then = then[i], .want = want};
}

static size_t copies(size_t n) { /* replicas that lie elsewhere than before */
    size_t c = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < moves[i].want; k++) {
            bool was = false;
            for (size_t j = 0; j < moves[i].now_count; j++) was = was || moves[i].now[j] == moves[i].then[k];
            c += !was;
        }
    return c;
}

/* A fourth broker gets its share, three of twelve replicas, and no more is copied. */
static void test_a_broker_more(void **state) {
    (void)state;
    struct cli_plan_broker b[] = {{0, NULL}, {1, NULL}, {2, NULL}, {3, NULL}};
    for (size_t i = 0; i < 4; i++) set(i, (int32_t[]){(int32_t)(i % 3), (int32_t)((i + 1) % 3), (int32_t)((i + 2) % 3)}, 3, 3);
    assert_int_equal(cli_plan(moves, 4, b, 4), 0);
    for (int32_t id = 0; id < 4; id++) assert_int_equal(count_of(id, false, 4), 3);
    for (int32_t id = 0; id < 4; id++) assert_int_equal(count_of(id, true, 4), 1);
    assert_int_equal(copies(4), 3);
}

/* Broker 1 goes: what it had is copied, nothing else. */
static void test_a_broker_less(void **state) {
    (void)state;
    struct cli_plan_broker b[] = {{0, NULL}, {2, NULL}, {3, NULL}};
    for (size_t i = 0; i < 4; i++) set(i, (int32_t[]){(int32_t)i, (int32_t)((i + 1) % 4)}, 2, 2);
    assert_int_equal(cli_plan(moves, 4, b, 3), 0);
    assert_int_equal(copies(4), 2);
    assert_int_equal(count_of(1, false, 4), 0);
}

static void test_what_is_even_stays(void **state) {
    (void)state;
    struct cli_plan_broker b[] = {{0, NULL}, {1, NULL}, {2, NULL}};
    for (size_t i = 0; i < 3; i++) set(i, (int32_t[]){(int32_t)i, (int32_t)((i + 1) % 3)}, 2, 2);
    assert_int_equal(cli_plan(moves, 3, b, 3), 0);
    for (size_t i = 0; i < 3; i++) assert_memory_equal(moves[i].then, moves[i].now, 2 * sizeof(int32_t));
}

/* More and fewer replicas than there are. */
static void test_another_factor(void **state) {
    (void)state;
    struct cli_plan_broker b[] = {{4, NULL}, {5, NULL}, {6, NULL}};
    set(0, (int32_t[]){5}, 1, 3);
    set(1, (int32_t[]){6, 5, 4}, 3, 1);
    assert_int_equal(cli_plan(moves, 2, b, 3), 0);
    assert_int_equal(moves[0].then[0], 5);
    assert_int_equal(moves[1].then[0], 6);
    assert_int_equal(copies(2), 2);
}

static void test_racks(void **state) {
    (void)state;
    struct cli_plan_broker b[] = {{0, "a"}, {1, "a"}, {2, "b"}, {3, "b"}};
    for (size_t i = 0; i < 8; i++) set(i, (int32_t[]){0}, 1, 2);
    assert_int_equal(cli_plan(moves, 8, b, 4), 0);
    for (size_t i = 0; i < 8; i++) assert_true((moves[i].then[0] < 2) != (moves[i].then[1] < 2));
    for (int32_t id = 0; id < 4; id++) assert_int_equal(count_of(id, false, 8), 4);
}

static void random_case(struct kw_rng *rng) {
    struct cli_plan_broker b[BROKERS];
    size_t brokers = 1 + kw_rng_below(rng, BROKERS), n = kw_rng_below(rng, PARTITIONS + 1), total = 0;
    for (size_t i = 0; i < brokers; i++) b[i] = (struct cli_plan_broker){.id = (int32_t)(i * 3 + 1)};
    for (size_t i = 0; i < n; i++) {
        int32_t v[RF];
        size_t count = 0, have = 1 + kw_rng_below(rng, RF), want = 1 + kw_rng_below(rng, brokers < RF ? brokers : RF);
        while (count < have) {
            bool twice = false;
            v[count] = (int32_t)kw_rng_below(rng, BROKERS * 3);
            for (size_t k = 0; k < count; k++) twice = twice || v[k] == v[count];
            count += !twice;
        }
        set(i, v, have, want);
        total += want;
    }
    assert_int_equal(cli_plan(moves, n, b, brokers), 0);
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < moves[i].want; k++) {
            assert_true(moves[i].then[k] % 3 == 1 && moves[i].then[k] < (int32_t)(brokers * 3));
            for (size_t j = 0; j < k; j++) assert_int_not_equal(moves[i].then[j], moves[i].then[k]);
        }
    }
    for (size_t i = 0; i < brokers; i++) {
        size_t load = count_of(b[i].id, false, n);
        assert_true(load >= total / brokers && load <= (total + brokers - 1) / brokers);
    }
}

static void test_random(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 4711);
    for (int i = 0; i < 2000; i++) random_case(&rng);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_broker_more), cmocka_unit_test(test_a_broker_less), cmocka_unit_test(test_what_is_even_stays),
                                       cmocka_unit_test(test_another_factor), cmocka_unit_test(test_racks), cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
