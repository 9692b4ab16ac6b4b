/* test_index.c - offset and time index against a plain list: floors, cuts, bytes as Kafka's, sanity of what is loaded. Requirement S3. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "log/index.h"

static void test_random(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 7);
    for (int round = 0; round < 50; round++) {
        struct kb_index o = {0}, t = {0};
        int64_t base = (int64_t)kw_rng_below(&rng, 1000000), off[300], pos[300], ts[300], toff[300];
        size_t n = (size_t)kw_rng_below(&rng, 300), tn = 0;
        int64_t a = base, b = 0, c = 0;
        for (size_t i = 0; i < n; i++) {
            off[i] = a += 1 + (int64_t)kw_rng_below(&rng, 50);
            pos[i] = b += 1 + (int64_t)kw_rng_below(&rng, 5000);
            assert_int_equal(kb_index_reserve(&o, KB_OFFSET_ENTRY), KW_OK);
            assert_int_equal(kb_index_reserve(&t, KB_TIME_ENTRY), KW_OK);
            kb_offsets_add(&o, base, off[i], pos[i]);
            int64_t time = c + (int64_t)kw_rng_below(&rng, 4);
            kb_times_add(&t, base, time, off[i]);
            if (time > (tn ? ts[tn - 1] : -1)) ts[tn] = c = time, toff[tn++] = off[i];
        }
        assert_int_equal(kb_offsets_count(&o), n);
        assert_int_equal(kb_times_count(&t), tn);
        assert_true(kb_offsets_sane(&o, base, b + 1));
        assert_true(kb_times_sane(&t));
        assert_true(n == 0 || !kb_offsets_sane(&o, base, b));
        for (int k = 0; k < 200; k++) {
            int64_t x = base - 5 + (int64_t)kw_rng_below(&rng, (uint64_t)(a - base) + 10), y = (int64_t)kw_rng_below(&rng, (uint64_t)b + 10);
            size_t i = n, j = n, m = tn;
            while (i && off[i - 1] > x) i--;
            while (j && pos[j - 1] > y) j--;
            while (m && ts[m - 1] > x - base) m--;
            assert_int_equal(kb_offsets_floor(&o, base, x), i ? i - 1 : SIZE_MAX);
            assert_int_equal(kb_offsets_floor_position(&o, y), j ? j - 1 : SIZE_MAX);
            assert_int_equal(kb_times_floor(&t, x - base), m ? m - 1 : SIZE_MAX);
        }
        int64_t cut = base + (int64_t)kw_rng_below(&rng, (uint64_t)(a - base) + 1);
        kb_offsets_cut(&o, base, cut);
        kb_times_cut(&t, base, cut);
        size_t i = 0, m = 0;
        while (i < n && off[i] < cut) i++;
        while (m < tn && toff[m] < cut) m++;
        assert_int_equal(kb_offsets_count(&o), i);
        assert_int_equal(kb_times_count(&t), m);
        kb_index_deinit(&o);
        kb_index_deinit(&t);
    }
}

static void test_bytes_and_sanity(void **state) {
    (void)state;
    struct kb_index o = {0}, t = {0};
    assert_int_equal(kb_index_reserve(&o, 16), KW_OK);
    kb_offsets_add(&o, 100, 105, 4200);
    kb_offsets_add(&o, 100, 356, 70000);
    assert_memory_equal(o.p, "\0\0\0\5\0\0\x10\x68\0\0\1\0\0\1\x11\x70", 16);
    assert_int_equal(kb_index_reserve(&t, 24), KW_OK);
    kb_times_add(&t, 100, 258, 101);
    assert_memory_equal(t.p, "\0\0\0\0\0\0\1\2\0\0\0\1", 12);
    assert_int_equal(kb_index_reserve(&o, 80), KW_OK);
    memset(o.p + 16, 0, 80); /* as preallocated */
    o.len = 96;
    assert_true(kb_offsets_sane(&o, 100, 80000));
    assert_int_equal(o.len, 16);
    o.len = 15;
    assert_false(kb_offsets_sane(&o, 100, 80000));
    o.len = 16;
    assert_false(kb_offsets_sane(&o, 100, 70000));
    o.p[11] = 5;
    o.p[10] = 0; /* offsets that stand still */
    assert_false(kb_offsets_sane(&o, 100, 80000));
    kb_index_trim(&o);
    assert_int_equal(o.cap, 16);
    kb_index_deinit(&o);
    kb_index_deinit(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_bytes_and_sanity)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
