/* test_blk.c - reference counts, release hooks, failing allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/blk.h"

static int released;
static void on_release(struct kw_blk *b, void *ctx) {
    assert_ptr_equal(ctx, &released);
    released++;
    kw_free(b);
}

static void test_refs(void **state) {
    (void)state;
    struct kw_blk *b = kw_blk_new(100);
    assert_non_null(b);
    assert_int_equal(b->cap, 100);
    memset(b->data, 1, b->cap);
    assert_ptr_equal(kw_blk_ref(b), b);
    kw_blk_unref(b);
    assert_int_equal(b->data[99], 1);
    kw_blk_unref(b);
    kw_blk_unref(NULL);
}

static void test_release_hook(void **state) {
    (void)state;
    struct kw_blk *b = kw_blk_new(0);
    assert_non_null(b);
    b->release = on_release;
    b->ctx = &released;
    kw_blk_ref(b);
    kw_blk_unref(b);
    assert_int_equal(released, 0);
    kw_blk_unref(b);
    assert_int_equal(released, 1);
}

static void test_no_memory(void **state) {
    (void)state;
    kw_alloc_fail_after(0);
    assert_null(kw_blk_new(10));
    kw_alloc_fail_after(-1);
    assert_null(kw_blk_new((size_t)UINT32_MAX + 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refs),
        cmocka_unit_test(test_release_hook),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
