/* test_follower_ahead.c - a follower whose leader lets it read ahead: it asks for more before what it has is written, and tells what is written meanwhile. */
#include "follower_rig.h"

/* A leader that knows how is asked for what comes behind while that is being written; what is written is told as soon as it is, in a second fetch, and
 * only that counts. */
static void test_read_ahead(void **state) {
    (void)state;
    struct lead l;
    up(&l, 15, 2);
    l.ahead = true;
    start(&l);
    assert_true(fetched(&l, 100000));
    assert_true(l.rq.reads_ahead);
    for (int32_t joined = 0; (joined += asked_count(&l)) < 2;) {
        answer_none(&l);
        assert_true(fetched(&l, 100000));
    }
    assert_false(l.rq.reads_ahead);
    int32_t epoch = l.rq.session_epoch;
    for (int64_t at = 0; at < 12; at += 4) {
        sim_disk_faults(l.c.h[0].r.disk)->hung_until_us = l.c.now.mono_us + 100000;
        give(&l, at, 0, 4, at);
        assert_true(fetched(&l, 50000)); /* the one that reads ahead */
        assert_int_equal(log_of(&l, 0)->leo, at + 4);
        assert_int_equal(log_of(&l, 0)->written, at);
        assert_int_equal(hw_of(&l), at); /* told to be so, and written */
        expect_asked(&l, 0, at, 0, 0);
        assert_int_equal(asked(&l, 0)->read_from, at + 4);
        assert_int_equal(l.rq.session_epoch, epoch + 1);
        assert_int_equal(l.rq.forgotten_topics_data.n, 0);
        int32_t first = l.correlation;
        assert_true(fetched(&l, 300000)); /* and while that waits, the one that tells */
        assert_int_equal(log_of(&l, 0)->written, at + 4);
        expect_asked(&l, 0, at + 4, 0, 0);
        assert_int_equal(asked(&l, 0)->read_from, 0);
        assert_int_equal(l.rq.session_epoch, epoch += 2);
        int32_t second = l.correlation;
        l.correlation = first;
        answer_none(&l);
        l.correlation = second;
        assert_false(fetched(&l, 400000)); /* all is said */
    }
    assert_int_equal(stats(&l)->batches, 3);
    down(&l);
}

/* While two fetches are under way, an answer that does not count makes the partition leave the session and come back, from what is written. */
static void test_read_ahead_missed(void **state) {
    (void)state;
    for (int how = 0; how < 4; how++) {
        struct lead l;
        up(&l, 16, 1);
        l.ahead = true;
        start(&l);
        assert_true(fetched(&l, 100000));
        answer_none(&l);
        assert_true(fetched(&l, 1000000));
        sim_disk_faults(l.c.h[0].r.disk)->hung_until_us = l.c.now.mono_us + 50000;
        give(&l, 0, 0, 4, 0);
        assert_true(fetched(&l, 40000));
        int32_t first = l.correlation;
        part_answer a = plain(0, 0);
        a.records = batch_at(&l, 4, 0, 4, 20);
        if (how == 0) { /* another epoch of the same leader: it may have cut its log in between */
            cl_elect(&l.c, 1, 0, 1, 3, false);
            cl_read_all(&l.c);
        } else if (how == 1) { /* to be cut, all must be written first */
            a = plain(0, 0);
            a.diverging_epoch.epoch = 0;
            a.diverging_epoch.end_offset = 2;
        } else if (how == 2) {
            ((uint8_t *)(uintptr_t)a.records.p)[a.records.len - 1] ^= 1;
        } else { /* the answer of the second comes without that of the first having been heard */
            assert_true(fetched(&l, 100000));
            cl_elect(&l.c, 1, 0, 1, 3, false);
            cl_read_all(&l.c);
            int32_t second = l.correlation;
            l.correlation = first;
            answer(&l, a);
            l.correlation = second;
            a = plain(0, 0);
        }
        answer(&l, a);
        bool out = false;
        for (int i = 0; i < 100; i++) {
            assert_true(fetched(&l, 2000000));
            out = out || forgot(&l, 0) || l.rq.session_id == 0; /* which begins anew where nobody is left in it */
            if (out && asked(&l, 0)) break;
            answer_none(&l);
        }
        assert_true(out);
        assert_int_equal(log_of(&l, 0)->written, 4);
        assert_int_equal(stats(&l)->batches, 1);
        expect_asked(&l, 0, 4, how == 0 || how == 3, 0);
        assert_int_equal(asked(&l, 0)->read_from, 0);
        give(&l, 4, how == 0 || how == 3, 4, 4);
        cl_pass(&l.c, 100000);
        assert_int_equal(log_of(&l, 0)->leo, 8);
        down(&l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_ahead),
        cmocka_unit_test(test_read_ahead_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
