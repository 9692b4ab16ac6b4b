/* test_pool.c - pool.h: blocks come back, are bounded, and go when nothing needs them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pool.h"

enum { KB = 1 << 10, MB = 1 << 20 };

static void test_reuse(void **state) {
    (void)state;
    struct kb_pool p;
    kb_pool_init(&p);
    struct kw_blk *a = kb_pool_take(&p, MB), *b = kb_pool_take(&p, 100);
    assert_non_null(a);
    assert_int_equal(a->cap, kb_pool_round(MB));
    assert_int_equal(p.used_bytes, a->cap + b->cap);
    kw_blk_unref(a);
    assert_int_equal(p.used_bytes, b->cap);
    assert_int_equal(p.free_bytes, kb_pool_round(MB));
    assert_ptr_equal(kb_pool_take(&p, MB - 5), a); /* the same memory */
    assert_int_equal(p.free_bytes, 0);
    kw_blk_unref(a);
    kw_blk_unref(b);
    struct kw_blk *huge = kb_pool_take(&p, 50 * MB); /* of no class: never kept */
    assert_int_equal(huge->cap, 50 * MB);
    kw_blk_unref(huge);
    assert_int_equal(p.free_bytes, kb_pool_round(MB) + kb_pool_round(100));
    kb_pool_deinit(&p);
}

static void test_bound(void **state) {
    (void)state;
    struct kb_pool p;
    struct kw_blk *v[40];
    kb_pool_init(&p);
    for (size_t i = 0; i < KW_COUNTOF(v); i++) assert_non_null(v[i] = kb_pool_take(&p, MB));
    for (size_t i = 0; i < KW_COUNTOF(v); i++) kw_blk_unref(v[i]);
    assert_int_equal(p.used_bytes, 0);
    assert_in_range(p.free_bytes, p.free_bytes_max - kb_pool_round(MB), p.free_bytes_max);
    kb_pool_deinit(&p);
}

/* What a load goes on needing stays; what only its peak needed goes, and all of it once there is none. */
static void test_trim(void **state) {
    (void)state;
    struct kb_pool p;
    struct kw_blk *v[8], *small = NULL;
    kb_pool_init(&p);
    small = kb_pool_take(&p, KB);
    for (size_t i = 0; i < KW_COUNTOF(v); i++) v[i] = kb_pool_take(&p, MB);
    for (size_t i = 0; i < KW_COUNTOF(v); i++) kw_blk_unref(v[i]);
    kw_blk_unref(small);
    kb_pool_trim(&p); /* all of it was needed since the beginning */
    assert_int_equal(p.free_bytes, 8 * kb_pool_round(MB) + kb_pool_round(KB));
    v[0] = kb_pool_take(&p, MB);
    v[1] = kb_pool_take(&p, MB);
    kw_blk_unref(v[0]);
    kw_blk_unref(v[1]);
    kb_pool_trim(&p);
    assert_int_equal(p.free_bytes, 2 * kb_pool_round(MB));
    kb_pool_trim(&p);
    assert_int_equal(p.free_bytes, 0);
    kb_pool_trim(&p);
    assert_int_equal(p.free_bytes, 0);
    kb_pool_deinit(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reuse), cmocka_unit_test(test_bound), cmocka_unit_test(test_trim)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
