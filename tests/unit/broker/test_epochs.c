/* test_epochs.c - leader epochs: assignment, end offsets (KIP-101, KIP-279), truncation, the checkpoint's text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "log/epochs.h"
#include "replica/checkpoint.h"

static void ask(const struct kb_epochs *e, int32_t epoch, int64_t leo, int32_t want_epoch, int64_t want_end) {
    int32_t got;
    int64_t end;
    kb_epochs_end_offset(e, epoch, leo, &got, &end);
    assert_int_equal(got, want_epoch);
    assert_int_equal(end, want_end);
}

static void test_end_offsets(void **state) {
    (void)state;
    struct kb_epochs e;
    kb_epochs_init(&e);
    ask(&e, 0, 10, -1, -1);
    assert_int_equal(kb_epochs_latest(&e), -1);
    assert_int_equal(kb_epochs_assign(&e, 0, 0), KW_OK); /* BR-18: 0 is an epoch */
    assert_int_equal(kb_epochs_assign(&e, 2, 5), KW_OK);
    assert_int_equal(kb_epochs_assign(&e, 2, 7), KW_OK); /* the same goes on */
    assert_int_equal(kb_epochs_assign(&e, 4, 9), KW_OK);
    assert_int_equal(e.count, 3);
    ask(&e, 4, 12, 4, 12);
    ask(&e, 3, 12, 2, 9);
    ask(&e, 2, 12, 2, 9);
    ask(&e, 1, 12, 0, 5);
    ask(&e, 0, 12, 0, 5);
    ask(&e, 5, 12, -1, -1);
    ask(&e, -1, 12, -1, -1);
    assert_int_equal(kb_epochs_at(&e, 4), 0);
    assert_int_equal(kb_epochs_at(&e, 5), 2);
    assert_int_equal(kb_epochs_at(&e, 100), 4);
    kb_epochs_truncate_start(&e, 6);
    ask(&e, 1, 12, 1, 6); /* below the first that is known */
    assert_int_equal(e.v[0].epoch, 2);
    assert_int_equal(e.v[0].start, 6);
    kb_epochs_truncate_end(&e, 9);
    assert_int_equal(kb_epochs_latest(&e), 2);
    assert_int_equal(kb_epochs_assign(&e, 1, 8), KW_OK); /* contradicts: what it contradicts goes */
    assert_int_equal(e.count, 1);
    assert_int_equal(e.v[0].epoch, 1);
    kb_epochs_truncate_end(&e, 0);
    assert_int_equal(e.count, 0);
    assert_int_equal(kb_epochs_assign(&e, -1, 8), KW_EINVAL);
    kb_epochs_deinit(&e);
}

/* A leader whose epoch had no batch follows one that goes on with an earlier epoch. */
static void test_begun_in_vain(void **state) {
    (void)state;
    struct kb_epochs e;
    kb_epochs_init(&e);
    assert_int_equal(kb_epochs_assign(&e, 0, 0), KW_OK);
    assert_int_equal(kb_epochs_assign(&e, 1, 19), KW_OK);
    assert_int_equal(kb_epochs_assign(&e, 2, 35), KW_OK);
    assert_int_equal(kb_epochs_assign(&e, 1, 35), KW_OK);
    assert_int_equal(e.count, 2);
    assert_int_equal(e.v[1].epoch, 1);
    assert_int_equal(e.v[1].start, 19);
    ask(&e, 1, 40, 1, 40);
    kb_epochs_deinit(&e);
}

static void test_text(void **state) {
    (void)state;
    struct kb_epochs e, d;
    kb_epochs_init(&e);
    kb_epochs_init(&d);
    for (int32_t i = 0; i < 100; i++) assert_int_equal(kb_epochs_assign(&e, i * 3, (int64_t)i * 10000000000), KW_OK);
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kb_epochs_encode(&e, &out), KW_OK);
    assert_memory_equal(out.p, "0\n100\n0 0\n3 10000000000\n", 24);
    assert_int_equal(kb_epochs_decode(&d, out.p, out.len), KW_OK);
    assert_int_equal(d.count, 100);
    for (size_t i = 0; i < 100; i++) { /* not as bytes: there are some between the fields */
        assert_int_equal(d.v[i].epoch, e.v[i].epoch);
        assert_int_equal(d.v[i].start, e.v[i].start);
    }
    assert_false(d.dirty);
    for (size_t n = 0; n + 1 < out.len; n++) { /* cut anywhere: not believed, and what was there stays */
        if (n && memcmp(out.p + n, "\n", 1) == 0) continue;
        if (kb_epochs_decode(&d, out.p, n) == KW_OK) assert_true(n + 20 > out.len); /* only digits of the last offset can be missing unseen */
    }
    for (int64_t n = 0; n < 12; n++) {
        kw_alloc_fail_after(n);
        kw_err err = kb_epochs_decode(&d, out.p, out.len);
        kw_alloc_fail_after(-1);
        assert_true(err == KW_OK || err == KW_ENOMEM);
    }
    kw_out_deinit(&out);
    kb_epochs_deinit(&e);
    kb_epochs_deinit(&d);
}

/* A file that was cut anywhere is never taken for a whole one: half a number is a number too. */
static void test_cut_files(void **state) {
    (void)state;
    static const char epochs[] = "0\n2\n0 0\n1 57\n", points[] = "0\n2\nt 0 123\nt 1 4567\n";
    struct kb_epochs e;
    struct kb_checkpoint c;
    kb_epochs_init(&e);
    assert_int_equal(kb_epochs_decode(&e, (const uint8_t *)epochs, sizeof(epochs) - 1), KW_OK);
    for (size_t n = 0; n < sizeof(epochs) - 1; n++) {
        uint8_t *cut = malloc(n + 1);
        memcpy(cut, epochs, n);
        assert_int_not_equal(kb_epochs_decode(&e, cut, n), KW_OK);
        free(cut);
    }
    kb_epochs_deinit(&e);
    assert_int_equal(kb_checkpoint_decode(&c, (const uint8_t *)points, sizeof(points) - 1), KW_OK);
    assert_int_equal(kb_checkpoint_get(&c, "t", 1), 4567);
    kb_checkpoint_deinit(&c);
    for (size_t n = 0; n < sizeof(points) - 1; n++) assert_int_not_equal(kb_checkpoint_decode(&c, (const uint8_t *)points, n), KW_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cut_files), cmocka_unit_test(test_end_offsets), cmocka_unit_test(test_begun_in_vain),
                                       cmocka_unit_test(test_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
