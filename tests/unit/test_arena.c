/* test_arena.c - alignment, budget, reuse and faults of the arena; the allocator table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/arena.h"

static void blocks_are_aligned_and_apart(void **state) {
    (void)state;
    struct kw_arena a;
    kw_arena_init(&a, 0);
    uint8_t *p[600];
    for (size_t i = 0; i < 600; i++) {
        p[i] = kw_arena_alloc(&a, i);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 8, 0);
        memset(p[i], (int)(i & 0xff), i);
    }
    for (size_t i = 0; i < 600; i++)
        for (size_t k = 0; k < i; k++) assert_int_equal(p[i][k], i & 0xff);
    uint8_t *z = kw_arena_calloc(&a, 1000, 9);
    for (size_t i = 0; i < 9000; i++) assert_int_equal(z[i], 0);
    assert_null(kw_arena_calloc(&a, SIZE_MAX / 2, 3));
    assert_null(kw_arena_alloc(&a, SIZE_MAX - 3));
    assert_memory_equal(kw_arena_dup(&a, "abc", 4), "abc", 4);
    kw_arena_deinit(&a);
}

static void budget_is_kept(void **state) {
    (void)state;
    struct kw_arena a;
    kw_arena_init(&a, 100);
    assert_non_null(kw_arena_alloc(&a, 90)); /* counts as 96 */
    assert_null(kw_arena_alloc(&a, 5));
    assert_non_null(kw_arena_alloc(&a, 0));
    assert_int_equal(a.used, 96);
    kw_arena_reset(&a);
    assert_non_null(kw_arena_alloc(&a, 96));
    assert_null(kw_arena_alloc(&a, 1 << 20));
    kw_arena_deinit(&a);
}

static void reset_keeps_one_small_chunk(void **state) {
    (void)state;
    struct kw_arena a;
    kw_arena_init(&a, 0);
    void *first = kw_arena_alloc(&a, 8);
    for (int i = 0; i < 100; i++) assert_non_null(kw_arena_alloc(&a, 4000));
    kw_arena_reset(&a);
    assert_int_equal(a.used, 0);
    assert_ptr_equal(kw_arena_alloc(&a, 8), first);
    kw_arena_deinit(&a);
    assert_non_null(kw_arena_alloc(&a, 1 << 20)); /* usable again; a large first chunk is not kept */
    kw_arena_reset(&a);
    assert_null(a.chunks);
    kw_arena_deinit(&a);
}

static void a_failed_allocation_is_null(void **state) {
    (void)state;
    struct kw_arena a;
    kw_arena_init(&a, 0);
    kw_alloc_fail_after(1);
    assert_non_null(kw_arena_alloc(&a, 4096));
    assert_null(kw_arena_alloc(&a, 1));
    assert_non_null(kw_arena_alloc(&a, 1)); /* only the n-th fails */
    kw_alloc_fail_after(-1);
    kw_arena_deinit(&a);
}

static size_t live;
static void *count_malloc(size_t n, void *ctx) {
    ++*(size_t *)ctx;
    return malloc(n);
}
static void *count_realloc(void *p, size_t n, void *ctx) {
    if (!p) ++*(size_t *)ctx;
    return realloc(p, n);
}
static void count_free(void *p, void *ctx) {
    --*(size_t *)ctx;
    free(p);
}

static void the_allocator_table_is_used(void **state) {
    (void)state;
    kw_allocator_set(&(struct kw_allocator){count_malloc, count_realloc, count_free, &live});
    uint8_t *z = kw_calloc(3, 5);
    for (int i = 0; i < 15; i++) assert_int_equal(z[i], 0);
    void *m = kw_malloc(0), *d = kw_memdup("ab", 3), *r = kw_realloc(NULL, 10);
    assert_true(m && d && r);
    assert_int_equal(live, 4);
    assert_null(kw_calloc(SIZE_MAX, 2));
    kw_free(z);
    kw_free(m);
    kw_free(d);
    kw_free(r);
    kw_free(NULL);
    assert_int_equal(live, 0);
}

static void strings_compare_by_content_and_null(void **state) {
    (void)state;
    assert_int_equal(kw_str_of(NULL).len, -1);
    assert_true(kw_str_eq(kw_str_of("ab"), (struct kw_str){"abc", 2}));
    assert_false(kw_str_eq(kw_str_of(""), kw_str_null()));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_apart), cmocka_unit_test(budget_is_kept),
        cmocka_unit_test(reset_keeps_one_small_chunk),  cmocka_unit_test(a_failed_allocation_is_null),
        cmocka_unit_test(the_allocator_table_is_used),  cmocka_unit_test(strings_compare_by_content_and_null),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
