/* test_guid_fuse.c - the filter over a block of hashes: all that are in it are found, of others one in 4096; a seed that does not do is followed by
 * another, and where none does everything may be in it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "guid/fuse.h"

static void test_all_sizes(void **state) {
    (void)state;
    struct kb_fuse_maker m;
    struct kw_rng rng;
    uint64_t *keys = malloc(KB_FUSE_KEYS_MAX * sizeof(*keys));
    uint8_t *bits = malloc(KB_FUSE_KEYS_MAX * 3);
    assert_int_equal(kb_fuse_maker_init(&m), KW_OK);
    kw_rng_init(&rng, 5);
    double worst = 0;
    for (size_t n = 1; n <= KB_FUSE_KEYS_MAX; n = n < 40 ? n + 1 : n + n / 2 + 1) {
        if (n > KB_FUSE_KEYS_MAX / 2 && n < KB_FUSE_KEYS_MAX) n = KB_FUSE_KEYS_MAX;
        struct kb_fuse f;
        for (size_t i = 0; i < n; i++) keys[i] = kw_rng_next(&rng);
        kb_fuse_make(&m, &f, keys, n, n, 64, bits);
        assert_int_not_equal(f.segments, 0);
        assert_true(kb_fuse_valid(&f));
        for (size_t i = 0; i < n; i++) assert_true(kb_fuse_has(&f, keys[i]));
        size_t wrong = 0;
        for (int i = 0; i < 400000; i++) wrong += kb_fuse_has(&f, kw_rng_next(&rng));
        worst = KW_MAX(worst, (double)wrong / 400000);
        if (n == KB_FUSE_KEYS_MAX)
            print_message("fuse: %zu keys, %.2f bits a key, 1 in %.0f of the others\n", n, 8.0 * (double)kb_fuse_size(&f) / (double)n,
                          400000.0 / (double)(wrong ? wrong : 1));
    }
    assert_true(worst < 2.0 / 4096);
    kb_fuse_maker_deinit(&m);
    free(bits);
    free(keys);
}

static void test_seeds(void **state) {
    (void)state;
    struct kb_fuse_maker m;
    struct kb_fuse f;
    uint64_t keys[300];
    uint8_t bits[3000];
    struct kw_rng rng;
    kw_rng_init(&rng, 9);
    assert_int_equal(kb_fuse_maker_init(&m), KW_OK);
    int first = 0, later = 0;
    for (uint64_t seed = 0; seed < 4000; seed++) {
        size_t n = 2 + seed % 60;
        for (size_t i = 0; i < n; i++) keys[i] = kw_rng_next(&rng);
        kb_fuse_make(&m, &f, keys, n, seed, 1, bits);
        if (f.segments) {
            first++;
            continue;
        }
        for (size_t i = 0; i < n; i++) assert_true(kb_fuse_has(&f, keys[i])); /* without a filter: all may be in it */
        assert_int_equal(kb_fuse_size(&f), 0);
        kb_fuse_make(&m, &f, keys, n, seed, 64, bits);
        assert_int_not_equal(f.segments, 0);
        for (size_t i = 0; i < n; i++) assert_true(kb_fuse_has(&f, keys[i]));
        later++;
    }
    assert_true(first > 0 && later > 0);
    for (size_t i = 0; i < 300; i++) keys[i] = 77; /* what no seed can do (its callers never ask for it) */
    kb_fuse_make(&m, &f, keys, 300, 1, 5, bits);
    assert_int_equal(f.segments, 0);
    assert_true(kb_fuse_has(&f, 77) && kb_fuse_has(&f, 78));
    kb_fuse_maker_deinit(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_sizes), cmocka_unit_test(test_seeds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
