/* test_log.c - appending, marks, rolling and reading of one log on the simulated disk. */
#include "log_rig.h"

static void test_open_append_read(void **state) {
    (void)state;
    struct rig r;
    rig_init(&r, 1, NULL);
    rig_open(&r);
    assert_int_equal(r.log->leo, 0);
    struct rig_batch b = RIG_BATCH;
    b.count = 3;
    assert_int_equal(rig_append(&r, &b), 0);
    assert_int_equal(r.log->leo, 3);
    assert_int_equal(r.log->written, 0);
    b.fill = 'y';
    assert_int_equal(rig_append(&r, &b), 3);
    rig_flush(&r);
    assert_int_equal(r.log->written, 6);
    assert_int_equal(r.log->synced, 0);
    assert_true(r.moved >= 1);
    bool async;
    struct rig_bytes x = rig_read_full(&r, 0, 6, 1 << 20, true, false, &async);
    assert_false(async); /* the tail needs no disk read */
    struct kw_batch_header h = rig_first(&x);
    assert_int_equal(h.base_offset, 0);
    assert_int_equal(x.next, 6);
    free(x.p);
    x = rig_read_full(&r, 4, 6, 1 << 20, true, false, &async);
    assert_false(async);
    assert_int_equal(rig_first(&x).base_offset, 3);
    free(x.p);
    x = rig_read_full(&r, 6, 6, 1 << 20, true, false, &async);
    assert_int_equal(x.n, 0);
    assert_int_equal(x.err, KW_OK);
    free(x.p);
    x = rig_read_full(&r, 0, 3, 1 << 20, true, true, &async);
    assert_int_equal(rig_first(&x).base_offset, 0);
    assert_int_equal(x.n, rig_first(&x).length + KW_BATCH_OVERHEAD); /* nothing at or above the limit */
    free(x.p);
    rig_sync(&r);
    assert_int_equal(r.log->recovery_point, 6);
    rig_stop(&r);
    rig_open(&r);
    assert_int_equal(r.log->leo, 6);
    assert_int_equal(r.log->synced, 6);
    x = rig_read(&r, 5, 1 << 20);
    assert_int_equal(rig_first(&x).base_offset, 3);
    free(x.p);
    rig_deinit(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_append_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
