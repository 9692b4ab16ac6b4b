/* test_map.c - put, get, remove, order of iteration, removal during a walk, failing allocation, a random run against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/map.h"
#include "base/rng.h"

static int values[4096];

static void test_strings_and_numbers(void **state) {
    (void)state;
    struct kw_map m;
    kw_map_init(&m);
    assert_null(kw_map_get(&m, "a", 1));
    assert_null(kw_map_remove(&m, "a", 1));
    assert_null(kw_map_get_u64(&m, 1));
    char key[] = "topic-a";
    assert_int_equal(kw_map_put(&m, key, 7, &values[0]), KW_OK);
    key[6] = 'b'; /* the map has its own copy */
    assert_ptr_equal(kw_map_get(&m, "topic-a", 7), &values[0]);
    assert_null(kw_map_get(&m, "topic-b", 7));
    assert_null(kw_map_get(&m, "topic-", 6));
    assert_int_equal(kw_map_put(&m, "", 0, &values[1]), KW_OK);
    assert_ptr_equal(kw_map_get(&m, NULL, 0), &values[1]);
    assert_ptr_equal(kw_map_get_str(&m, kw_str_null()), &values[1]);
    assert_int_equal(kw_map_put_u64(&m, 7, &values[2]), KW_OK);
    assert_int_equal(kw_map_put_u64(&m, UINT64_MAX, &values[3]), KW_OK);
    assert_ptr_equal(kw_map_get_u64(&m, 7), &values[2]);
    assert_ptr_equal(kw_map_get_u64(&m, UINT64_MAX), &values[3]);
    assert_int_equal(kw_map_put(&m, "topic-a", 7, &values[4]), KW_OK);
    assert_int_equal(m.count, 4);
    assert_ptr_equal(kw_map_remove(&m, "topic-a", 7), &values[4]);
    assert_null(kw_map_remove(&m, "topic-a", 7));
    assert_int_equal(m.count, 3);
    kw_map_deinit(&m);
    assert_null(kw_map_get_u64(&m, 7));
}

static void test_iteration_keeps_insertion_order(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 3; seed++) {
        kw_map_seed(seed * 77, seed * 99); /* the order may not depend on the hash */
        struct kw_map m;
        kw_map_init(&m);
        char key[16];
        for (int i = 0; i < 1000; i++) {
            int n = snprintf(key, sizeof(key), "k%d", i);
            assert_int_equal(kw_map_put(&m, key, (size_t)n, &values[i]), KW_OK);
        }
        assert_int_equal(kw_map_put(&m, "k0", 2, &values[0]), KW_OK); /* replacing keeps the place */
        int expect = 0;
        int *v;
        for (size_t it = 0; (v = kw_map_next(&m, &it));) {
            assert_ptr_equal(v, &values[expect]);
            if (expect % 3 != 0) { /* removal during the walk, of this and of the last entry */
                int n = snprintf(key, sizeof(key), "k%d", expect);
                assert_ptr_equal(kw_map_remove(&m, key, (size_t)n), v);
            }
            expect++;
        }
        assert_int_equal(expect, 1000);
        assert_int_equal(m.count, 334);
        for (int i = 1000; i < 1600; i++) { /* squeezes the tombstones out */
            int n = snprintf(key, sizeof(key), "k%d", i);
            assert_int_equal(kw_map_put(&m, key, (size_t)n, &values[i]), KW_OK);
        }
        expect = 0;
        for (size_t it = 0; (v = kw_map_next(&m, &it));) {
            assert_ptr_equal(v, &values[expect]);
            expect += expect < 999 ? 3 : 1;
        }
        kw_map_deinit(&m);
    }
    kw_map_seed(1, 2);
}

/* A map keeps the hash key that it was made with, so that seeding late, or for another client of the process, breaks none. */
static void test_seeding_leaves_maps_that_exist_alone(void **state) {
    (void)state;
    struct kw_map old, fresh;
    kw_map_seed(1, 2);
    kw_map_init(&old);
    for (uint64_t i = 0; i < 100; i++) assert_int_equal(kw_map_put_u64(&old, i, &values[i]), KW_OK);
    assert_int_equal(kw_map_put(&old, "name", 4, &values[100]), KW_OK);
    kw_map_seed(3, 4);
    kw_map_init(&fresh);
    assert_int_equal(kw_map_put(&fresh, "name", 4, &values[101]), KW_OK);
    kw_map_seed(1, 2);
    for (uint64_t i = 0; i < 100; i++) assert_ptr_equal(kw_map_get_u64(&old, i), &values[i]);
    assert_ptr_equal(kw_map_get(&old, "name", 4), &values[100]);
    assert_ptr_equal(kw_map_get(&fresh, "name", 4), &values[101]);
    kw_map_deinit(&old);
    kw_map_deinit(&fresh);
}

static void test_random_against_array(void **state) {
    (void)state;
    struct kw_rng r;
    kw_rng_init(&r, 5);
    struct kw_map m;
    kw_map_init(&m);
    int *model[512] = {0};
    size_t count = 0;
    for (int i = 0; i < 200000; i++) {
        /* few distinct low bits, so that runs in the index get long and wrap around */
        uint64_t id = kw_rng_below(&r, 512), key = id << (id % 40);
        key = key ^ (id << 54);
        if (kw_rng_chance(&r, i / 20000 % 2 ? 700000 : 300000)) {
            int *v = &values[kw_rng_below(&r, 4096)];
            assert_int_equal(kw_map_put_u64(&m, key, v), KW_OK);
            count += model[id] == NULL;
            model[id] = v;
        } else {
            assert_ptr_equal(kw_map_remove_u64(&m, key), model[id]);
            count -= model[id] != NULL;
            model[id] = NULL;
        }
        assert_int_equal(m.count, count);
        uint64_t other = kw_rng_below(&r, 512);
        assert_ptr_equal(kw_map_get_u64(&m, (other << (other % 40)) ^ (other << 54)), model[other]);
    }
    assert_true(m.slot_cap <= 1024); /* removed entries do not make it grow */
    kw_map_deinit(&m);
}

static void test_no_memory(void **state) {
    (void)state;
    for (int64_t fail = 0; fail < 40; fail++) {
        struct kw_map m;
        kw_map_init(&m);
        kw_alloc_fail_after(fail);
        size_t put = 0;
        char key[4] = "k  ";
        for (int i = 0; i < 30; i++) {
            key[1] = (char)('a' + i);
            kw_err err = kw_map_put(&m, key, 3, &values[i]);
            if (err) {
                assert_int_equal(err, KW_ENOMEM);
                assert_null(kw_map_get(&m, key, 3));
                assert_int_equal(kw_map_put(&m, key, 3, &values[i]), KW_OK); /* and can be tried again */
            }
            put++;
            assert_int_equal(m.count, put);
            assert_ptr_equal(kw_map_get(&m, key, 3), &values[i]);
        }
        kw_alloc_fail_after(-1);
        kw_map_deinit(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings_and_numbers),
        cmocka_unit_test(test_iteration_keeps_insertion_order),
        cmocka_unit_test(test_seeding_leaves_maps_that_exist_alone),
        cmocka_unit_test(test_random_against_array),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
