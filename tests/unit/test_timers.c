/* test_timers.c - order, ties, moving and cancelling while firing, re-arming for now, failing allocation, a random run against a
 * plain list. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/rng.h"
#include "base/timers.h"

static int fired[64];
static int fired_count;

struct item {
    struct kw_timer t;
    int id;
    struct kw_timers *ts;
    struct item *other;
};

static void note(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct item *it = ctx;
    assert_ptr_equal(t, &it->t);
    assert_true(t->at_us <= now_us);
    assert_false(kw_timer_armed(t));
    fired[fired_count++ % 64] = it->id;
}

static void item_init(struct item *it, struct kw_timers *ts, int id,
                      void (*fire)(struct kw_timer *, void *, int64_t)) {
    it->id = id;
    it->ts = ts;
    it->other = NULL;
    kw_timer_init(&it->t, fire, it);
}

static void test_order_and_ties(void **state) {
    (void)state;
    struct kw_timers ts;
    struct item it[6];
    kw_timers_init(&ts);
    assert_true(kw_timers_next(&ts) == KW_NEVER);
    const int64_t at[] = {30, 10, 20, 10, 30, 10};
    for (int i = 0; i < 6; i++) {
        item_init(&it[i], &ts, i, note);
        assert_int_equal(kw_timers_set(&ts, &it[i].t, at[i]), KW_OK);
    }
    assert_int_equal(kw_timers_set(&ts, &it[1].t, 10), KW_OK); /* set again: now the last of its time */
    fired_count = 0;
    kw_timers_run(&ts, 9);
    assert_int_equal(fired_count, 0);
    assert_int_equal(kw_timers_next(&ts), 10);
    kw_timers_run(&ts, 20);
    assert_int_equal(fired_count, 4);
    const int want[] = {3, 5, 1, 2};
    for (int i = 0; i < 4; i++) assert_int_equal(fired[i], want[i]);
    assert_int_equal(kw_timers_set(&ts, &it[0].t, KW_NEVER), KW_OK);
    assert_false(kw_timer_armed(&it[0].t));
    kw_timers_cancel(&ts, &it[0].t); /* an idle timer: nothing */
    kw_timers_run(&ts, INT64_MAX);
    assert_int_equal(fired[4], 4);
    assert_true(kw_timers_next(&ts) == KW_NEVER);
    kw_timers_deinit(&ts);
}

static void rearm(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct item *it = ctx;
    note(t, ctx, now_us);
    assert_int_equal(kw_timers_set(it->ts, t, now_us), KW_OK);
    if (it->other) kw_timers_cancel(it->ts, &it->other->t);
}

static void test_hasten(void **state) {
    (void)state;
    struct kw_timers ts;
    struct item it[3];
    kw_timers_init(&ts);
    for (int i = 0; i < 3; i++) item_init(&it[i], &ts, i, note);
    for (int i = 0; i < 2; i++) assert_int_equal(kw_timers_set(&ts, &it[i].t, 100 + i), KW_OK);
    kw_timers_hasten(&ts, &it[1].t, 60);
    kw_timers_hasten(&ts, &it[2].t, 60); /* idle: stays so */
    assert_true(kw_timers_next(&ts) == 41);
    fired_count = 0;
    kw_timers_run(&ts, 99);
    assert_int_equal(fired_count, 1);
    assert_int_equal(fired[0], 1);
    assert_false(kw_timer_armed(&it[2].t));
    kw_timers_deinit(&ts);
}

static void test_set_while_firing(void **state) {
    (void)state;
    struct kw_timers ts;
    struct item it[20];
    kw_timers_init(&ts);
    for (int i = 0; i < 20; i++) {
        item_init(&it[i], &ts, i, i < 2 ? rearm : note);
        assert_int_equal(kw_timers_set(&ts, &it[i].t, i), KW_OK);
    }
    it[1].other = &it[3]; /* due, but cancelled by the one before it */
    fired_count = 0;
    kw_timers_run(&ts, 4);
    assert_int_equal(fired_count, 4);
    assert_int_equal(fired[3], 4);
    assert_int_equal(kw_timers_next(&ts), 4); /* both re-armed for "now": the next run's */
    it[1].other = &it[0]; /* in the next run 0 is late again when 1 cancels it */
    kw_timers_run(&ts, 4);
    assert_int_equal(fired_count, 6);
    assert_false(kw_timer_armed(&it[0].t));
    it[1].other = NULL;
    kw_timers_run(&ts, 100);
    assert_int_equal(fired_count, 6 + 1 + 15);
    kw_timers_deinit(&ts);
    assert_false(kw_timer_armed(&it[1].t));
}

static void free_self(struct kw_timer *t, void *ctx, int64_t now_us) {
    note(t, ctx, now_us);
    free(ctx);
}

static void test_owner_freed_while_firing(void **state) {
    (void)state;
    struct kw_timers ts;
    kw_timers_init(&ts);
    struct item *it = malloc(sizeof(*it));
    item_init(it, &ts, 1, free_self);
    assert_int_equal(kw_timers_set(&ts, &it->t, 1), KW_OK);
    kw_timers_run(&ts, 1);
    kw_timers_deinit(&ts);
}

static void test_no_memory(void **state) {
    (void)state;
    struct kw_timers ts;
    struct item it[40];
    kw_timers_init(&ts);
    item_init(&it[0], &ts, 0, note);
    kw_alloc_fail_after(0);
    assert_int_equal(kw_timers_set(&ts, &it[0].t, 1), KW_ENOMEM);
    assert_false(kw_timer_armed(&it[0].t));
    kw_alloc_fail_after(0);
    assert_int_equal(kw_timers_reserve(&ts, 40), KW_ENOMEM);
    kw_alloc_fail_after(-1);
    assert_int_equal(kw_timers_reserve(&ts, 40), KW_OK);
    kw_alloc_fail_after(0);
    for (int i = 0; i < 40; i++) {
        item_init(&it[i], &ts, i, note);
        assert_int_equal(kw_timers_set(&ts, &it[i].t, 100 - i), KW_OK);
    }
    kw_alloc_fail_after(-1);
    assert_int_equal(kw_timers_next(&ts), 61);
    kw_timers_deinit(&ts);
}

#define N 200
static struct item many[N];
static int64_t model_at[N];
static uint64_t model_order[N], model_next;
static struct kw_rng rng;

static void check_is_earliest(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct item *it = ctx;
    (void)t;
    for (int i = 0; i < N; i++) {
        if (model_at[i] > now_us || i == it->id || model_order[i] == UINT64_MAX) continue;
        assert_true(model_at[i] > model_at[it->id] ||
                    (model_at[i] == model_at[it->id] && model_order[i] > model_order[it->id]));
    }
    model_at[it->id] = KW_NEVER;
    fired_count++;
    int j = (int)kw_rng_below(&rng, N); /* disturb another one: cancel it or move it beyond this run */
    if (kw_rng_chance(&rng, 500000)) {
        kw_timers_cancel(it->ts, &many[j].t);
        model_at[j] = KW_NEVER;
    } else {
        model_at[j] = now_us + 1 + (int64_t)kw_rng_below(&rng, 50);
        model_order[j] = model_next++;
        assert_int_equal(kw_timers_set(it->ts, &many[j].t, model_at[j]), KW_OK);
    }
}

static void test_random_against_model(void **state) {
    (void)state;
    struct kw_timers ts;
    kw_timers_init(&ts);
    kw_rng_init(&rng, 3);
    for (int i = 0; i < N; i++) {
        item_init(&many[i], &ts, i, check_is_earliest);
        model_at[i] = KW_NEVER;
    }
    fired_count = 0;
    for (int64_t now = 0; now < 3000; now++) {
        for (int k = 0; k < 5; k++) {
            int j = (int)kw_rng_below(&rng, N);
            model_at[j] = now + (int64_t)kw_rng_below(&rng, 100);
            model_order[j] = model_next++;
            assert_int_equal(kw_timers_set(&ts, &many[j].t, model_at[j]), KW_OK);
        }
        kw_timers_run(&ts, now);
        int64_t next = KW_NEVER;
        for (int i = 0; i < N; i++) {
            assert_int_equal(kw_timer_armed(&many[i].t), model_at[i] != KW_NEVER);
            next = KW_MIN(next, model_at[i]);
        }
        assert_true(next > now);
        assert_true(kw_timers_next(&ts) == next);
    }
    assert_true(fired_count > 1000);
    kw_timers_deinit(&ts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_ties),
        cmocka_unit_test(test_hasten),
        cmocka_unit_test(test_set_while_firing),
        cmocka_unit_test(test_owner_freed_while_firing),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_random_against_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
