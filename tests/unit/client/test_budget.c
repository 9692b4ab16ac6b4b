/* test_budget.c - the memory budget: what each side and each consumer can count on, whatever the others hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/budget.h"

static void test_each_side_keeps_its_floor(void **state) {
    (void)state;
    struct kc_budget b;
    kc_budget_init(&b, 100);
    assert_true(kc_budget_take(&b, KC_ROLE_FETCH, 75));
    assert_false(kc_budget_take(&b, KC_ROLE_FETCH, 1)); /* the producer's quarter stays */
    assert_true(kc_budget_take(&b, KC_ROLE_PRODUCE, 25));
    assert_false(kc_budget_take(&b, KC_ROLE_PRODUCE, 1));
    kc_budget_give(&b, KC_ROLE_FETCH, 75);
    assert_true(kc_budget_take(&b, KC_ROLE_PRODUCE, 50));
    assert_false(kc_budget_take(&b, KC_ROLE_PRODUCE, 1));
    assert_true(kc_budget_take(&b, KC_ROLE_FETCH, 25));
    assert_false(kc_budget_take(&b, KC_ROLE_FETCH, SIZE_MAX));
}

static void test_a_consumer_alone_has_it_all(void **state) {
    (void)state;
    struct kc_budget b;
    kc_budget_init(&b, 1000);
    struct kc_purse *p = kc_purse_new(&b);
    kc_purse_open(p);
    assert_int_equal(kc_purse_room(p), 750);
    assert_true(kc_budget_take(&b, KC_ROLE_PRODUCE, 400));
    assert_int_equal(kc_purse_room(p), 600);
    assert_true(kc_purse_take(p, 600));
    assert_false(kc_purse_take(p, 1));
    assert_false(kc_budget_take(&b, KC_ROLE_PRODUCE, 1));
    kc_purse_give(p, 600);
    assert_true(kc_budget_take(&b, KC_ROLE_PRODUCE, 350));
    assert_int_equal(kc_purse_room(p), 250);
    assert_int_equal(b.used[KC_ROLE_FETCH], 0);
    kc_purse_close(p);
    kc_purse_unref(p);
}

/* Whatever the others hold. */
static void test_each_consumer_keeps_its_floor(void **state) {
    (void)state;
    struct kc_budget b;
    struct kc_purse *p[5];
    kc_budget_init(&b, 1000);
    for (int i = 0; i < 5; i++) kc_purse_open(p[i] = kc_purse_new(&b));
    assert_int_equal(kc_purse_room(p[0]), 550); /* 50 each are the others' */
    assert_false(kc_purse_take(p[0], 551));
    assert_true(kc_purse_take(p[0], 550));
    assert_false(kc_purse_take(p[0], 1));
    assert_int_equal(kc_purse_room(p[1]), 50);
    assert_true(kc_purse_take(p[1], 30));
    assert_int_equal(kc_purse_room(p[1]), 20);
    assert_false(kc_purse_take(p[1], 21));
    assert_true(kc_purse_take(p[1], 20));
    assert_int_equal(kc_purse_room(p[2]), 50);
    kc_purse_give(p[0], 100); /* anybody's who comes first, over their floors */
    assert_int_equal(kc_purse_room(p[1]), 100);
    assert_int_equal(kc_purse_room(p[2]), 150);
    assert_int_equal(kc_purse_room(p[0]), 100);
    /* An answer larger than what was reserved for it takes nothing from the others. */
    kc_purse_add(p[0], 400);
    assert_true(kc_purse_room(p[0]) <= 0);
    assert_true(kc_purse_room(p[1]) <= 0);
    assert_false(kc_purse_take(p[1], 1));
    for (int i = 2; i < 5; i++) assert_true(kc_purse_take(p[i], 50));
    kc_purse_give(p[0], 850);
    /* Who has gone is promised nothing. */
    for (int i = 2; i < 5; i++) {
        kc_purse_give(p[i], 50);
        kc_purse_close(p[i]);
        kc_purse_close(p[i]);
    }
    assert_int_equal(kc_purse_room(p[0]), 750 - 125);
    kc_purse_close(p[1]);
    assert_int_equal(kc_purse_room(p[0]), 750 - 50); /* but what it holds still counts */
    kc_purse_give(p[1], 50);
    kc_purse_close(p[0]);
    assert_int_equal(b.used[KC_ROLE_FETCH], 0);
    for (int i = 0; i < 5; i++) kc_purse_unref(p[i]);
}

/* Consumers and producers that want all there is: neither side's floor moves, and no consumer's. */
static void test_producers_leave_room_for_a_consumer_that_goes_without(void **state) {
    (void)state;
    struct kc_budget b;
    kc_budget_init(&b, 1000);
    struct kc_purse *p = kc_purse_new(&b), *q = kc_purse_new(&b);
    kc_purse_open(p);
    kc_purse_open(q);
    assert_true(kc_purse_take(p, 750 - 125));
    assert_true(kc_budget_take(&b, KC_ROLE_PRODUCE, 250));
    assert_false(kc_budget_take(&b, KC_ROLE_PRODUCE, 1));
    assert_true(kc_purse_take(q, 125));
    kc_purse_give(p, 625);
    assert_true(kc_budget_take(&b, KC_ROLE_PRODUCE, 500));
    assert_false(kc_budget_take(&b, KC_ROLE_PRODUCE, 1));
    assert_int_equal(kc_purse_room(p), 125);
    assert_true(kc_purse_take(p, 125));
    assert_int_equal(b.used[KC_ROLE_FETCH] + b.used[KC_ROLE_PRODUCE], b.max);
    kc_purse_give(p, 125);
    kc_purse_give(q, 125);
    kc_purse_close(p);
    kc_purse_close(q);
    kc_purse_unref(p);
    kc_purse_unref(q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_side_keeps_its_floor),
        cmocka_unit_test(test_a_consumer_alone_has_it_all),
        cmocka_unit_test(test_each_consumer_keeps_its_floor),
        cmocka_unit_test(test_producers_leave_room_for_a_consumer_that_goes_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
