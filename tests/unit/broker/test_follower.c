/* test_follower.c - a partition that follows: what it asks of its leader and what it does with each kind of answer. The leader is the test. */
#include "follower_rig.h"

/* The session begins full, goes on with what changed, and an idle one names nothing. */
static void test_session(void **state) {
    (void)state;
    struct lead l;
    up(&l, 1, 3);
    start(&l);
    assert_true(fetched(&l, 100000));
    assert_int_equal(l.rq.session_id, 0);
    assert_int_equal(l.rq.session_epoch, 0);
    for (int32_t joined = 0; (joined += asked_count(&l)) < 3;) { /* logs that are opened later join later */
        if (asked(&l, 0)) expect_asked(&l, 0, 0, 0, -1);
        answer_none(&l);
        assert_true(fetched(&l, 100000));
    }
    int32_t epoch = l.rq.session_epoch;
    give(&l, 0, 0, 2, 0);
    wait_asked(&l, 0);
    assert_int_equal(l.rq.session_id, 77);
    assert_int_equal(l.rq.session_epoch, epoch + 1);
    assert_int_equal(asked_count(&l), 1);
    expect_asked(&l, 0, 2, 0, 0);
    assert_int_equal(log_of(&l, 0)->written, 2);
    assert_int_equal(cl_partition(&l.c.h[0], 1, 0)->hw, 0);
    answer(&l, plain(0, 2));
    assert_true(fetched(&l, 100000));
    assert_int_equal(asked_count(&l), 0);
    assert_int_equal(cl_partition(&l.c.h[0], 1, 0)->hw, 2);
    cl_pass(&l.c, 200000);
    answer_none(&l);
    assert_true(fetched(&l, 100000));
    assert_int_equal(asked_count(&l), 0);
    assert_int_equal(l.rq.forgotten_topics_data.n, 0);
    assert_int_equal(l.rq.max_wait_ms, 500);
    down(&l);
}

/* How far it is behind is known once the leader has told how far it is itself. */
static void test_lag(void **state) {
    (void)state;
    struct lead l;
    up(&l, 1, 1);
    start(&l);
    join_all(&l, 1);
    assert_int_equal(kb_follower_lag(cl_partition(&l.c.h[0], 1, 0)), -1);
    give(&l, 0, 0, 2, 10);
    wait_asked(&l, 0);
    assert_int_equal(kb_follower_lag(cl_partition(&l.c.h[0], 1, 0)), 8);
    give(&l, 2, 0, 8, 10);
    wait_asked(&l, 0);
    assert_int_equal(kb_follower_lag(cl_partition(&l.c.h[0], 1, 0)), 0);
    down(&l);
}

/* A session that the leader does not know any more is begun anew, in full. */
static void test_session_lost(void **state) {
    (void)state;
    struct lead l;
    up(&l, 2, 1);
    start(&l);
    assert_true(fetched(&l, 100000));
    give(&l, 0, 0, 2, 0);
    wait_asked(&l, 0);
    answer_all(&l, NULL, 0, KE_FETCH_SESSION_ID_NOT_FOUND);
    assert_true(fetched(&l, 10000));
    assert_int_equal(l.rq.session_id, 0);
    expect_asked(&l, 0, 2, 0, 0);
    answer_all(&l, NULL, 0, KE_INVALID_FETCH_SESSION_EPOCH);
    assert_false(fetched(&l, 900000)); /* not again and again without a pause */
    assert_true(fetched(&l, 200000));
    l.session = 0; /* no place for one */
    answer_none(&l);
    assert_true(fetched(&l, 10000));
    assert_int_equal(l.rq.session_id, 0);
    assert_int_equal(l.rq.session_epoch, 0);
    assert_int_equal(asked_count(&l), 1);
    down(&l);
}

/* The link ends in the middle of a fetch: dialed again, told all again, nothing twice. */
static void test_link_lost(void **state) {
    (void)state;
    struct lead l;
    up(&l, 3, 1);
    start(&l);
    assert_true(fetched(&l, 100000));
    give(&l, 0, 0, 2, 0);
    wait_asked(&l, 0);
    cl_pipe_close(l.pipe, KB_LINK_RESET);
    l.c.h[1].up = false;
    assert_false(fetched(&l, 3000000));
    l.c.h[1].up = true;
    assert_true(fetched(&l, 1100000));
    assert_int_equal(l.rq.session_id, 0);
    expect_asked(&l, 0, 2, 0, 0);
    give(&l, 2, 0, 3, 2);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 5, 0, 0);
    /* Another epoch of the broker: another process, dialed at once. */
    cl_add_broker(&l.c, 1, 300);
    cl_read_all(&l.c);
    struct pipe *old = l.pipe;
    struct kb_dial *dial = old->dial;
    assert_true(fetched(&l, 10000));
    assert_true(!old->used || old->dial != dial);
    assert_int_equal(l.rq.session_id, 0);
    down(&l);
}

/* Batches that are not sound are refused: what came before them stays. */
static void test_corrupt(void **state) {
    (void)state;
    struct lead l;
    up(&l, 4, 2);
    start(&l);
    join_all(&l, 2);
    struct kw_records good = batch_at(&l, 0, 0, 2, 20), bad = batch_at(&l, 2, 0, 2, 20);
    ((uint8_t *)(uintptr_t)bad.p)[bad.len - 3] ^= 4;
    part_answer a = plain(0, 0);
    a.records = joined(&l, good, bad);
    answer(&l, a);
    cl_pass(&l.c, 20000);
    assert_int_equal(log_of(&l, 0)->leo, 2);
    assert_int_equal(stats(&l)->corrupt, 1);
    assert_non_null(strstr(l.c.h[0].r.lines, "is not appended"));
    assert_true(fetched(&l, 100000)); /* without it */
    assert_int_equal(asked_count(&l), 0);
    assert_true(forgot(&l, 0));
    cl_pass(&l.c, 500000);
    answer_none(&l);
    assert_true(fetched(&l, 100000));
    assert_int_equal(asked_count(&l), 0);
    cl_pass(&l.c, 500000);
    answer_none(&l);
    assert_true(fetched(&l, 100000));
    expect_asked(&l, 0, 2, 0, 0);
    struct { int64_t base; int32_t epoch; } odd[] = {{1, 0}, {2, 1}, {2, -1}}; /* below the end; of a later epoch than the leader's; of none */
    for (size_t i = 0; i < KW_COUNTOF(odd); i++) {
        a.records = batch_at(&l, odd[i].base, odd[i].epoch, 2, 20);
        answer(&l, a);
        cl_pass(&l.c, 1100000);
        assert_int_equal(log_of(&l, 0)->leo, 2);
        assert_int_equal(stats(&l)->corrupt, 2 + (int)i);
        wait_asked(&l, 0);
    }
    down(&l);
}

/* BR-02. Own log: epochs 0 (0..3), 1 (4..5), 2 (6..9). The leader parted from it in epoch 1, and has epoch 3. */
static void test_br02_diverging(void **state) {
    (void)state;
    struct lead l;
    up(&l, 5, 1);
    for (int i = 0; i < 2; i++) cl_elect(&l.c, 1, 0, 1, 3, false);
    start(&l);
    assert_true(fetched(&l, 100000));
    expect_asked(&l, 0, 0, 2, -1);
    give(&l, 0, 0, 4, 4);
    wait_asked(&l, 0);
    give(&l, 4, 1, 2, 4);
    wait_asked(&l, 0);
    give(&l, 6, 2, 2, 4); /* a batch begins where the leader's epoch 1 ends */
    wait_asked(&l, 0);
    give(&l, 8, 2, 2, 4);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 10, 2, 2);
    cl_elect(&l.c, 1, 0, 1, 3, false);
    cl_read_all(&l.c);
    cl_pass(&l.c, 5000);
    give(&l, 10, 2, 1, 11); /* of the epoch that has ended: ignored */
    wait_asked(&l, 0);
    assert_int_equal(log_of(&l, 0)->leo, 10);
    expect_asked(&l, 0, 10, 3, 2);
    part_answer a = plain(0, 4);
    a.diverging_epoch.epoch = 1;
    a.diverging_epoch.end_offset = 8; /* its epoch 1 is longer than ours */
    answer(&l, a);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 6, 3, 1);
    assert_int_equal(log_of(&l, 0)->leo, 6);
    a.diverging_epoch.epoch = 0;
    a.diverging_epoch.end_offset = 4;
    answer(&l, a);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 4, 3, 0);
    assert_int_equal(stats(&l)->truncations, 2);
    give(&l, 4, 3, 2, 6);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 6, 3, 3);
    assert_int_equal(cl_partition(&l.c.h[0], 1, 0)->hw, 6);
    assert_int_equal(kb_epochs_at(log_of(&l, 0)->epochs, 3), 0);
    assert_int_equal(kb_epochs_at(log_of(&l, 0)->epochs, 4), 3);
    down(&l);
}

/* BR-05: an answer says where the logs part and a high watermark above that. First the cut, then the watermark, and never above what is left; the same
 * when the answer has one of the two alone. */
static void test_br05_parted_below_the_high_watermark_told(void **state) {
    (void)state;
    for (int told = 0; told < 2; told++) {
        struct lead l;
        up(&l, 11, 1);
        start(&l);
        assert_true(fetched(&l, 100000));
        give(&l, 0, 0, 5, 5);
        wait_asked(&l, 0);
        give(&l, 5, 0, 5, 5); /* 9 is what the next leader will not have */
        wait_asked(&l, 0);
        give(&l, 10, 0, 2, 5);
        wait_asked(&l, 0);
        assert_int_equal(log_of(&l, 0)->leo, 12);
        assert_int_equal(hw_of(&l), 5);
        cl_elect(&l.c, 1, 0, 1, 3, false);
        cl_read_all(&l.c);
        cl_pass(&l.c, 1000);
        answer_none(&l);
        wait_asked(&l, 0);
        expect_asked(&l, 0, 12, 1, 0);
        part_answer a = plain(0, told ? 120 : -1);
        a.diverging_epoch.epoch = 0;
        a.diverging_epoch.end_offset = 10;
        answer(&l, a);
        for (int i = 0; i < 2000; i++) {
            cl_turn(&l.c);
            assert_true(hw_of(&l) <= 10);
            l.c.now.mono_us += 5;
        }
        assert_int_equal(log_of(&l, 0)->leo, 10);
        wait_asked(&l, 0);
        expect_asked(&l, 0, 10, 1, 0);
        assert_true(hw_of(&l) <= 10);
        answer(&l, plain(0, 120)); /* and no record with it */
        for (int i = 0; i < 2000 && hw_of(&l) < 10; i++) cl_pass(&l.c, 100);
        assert_int_equal(hw_of(&l), 10);
        assert_true(fetched(&l, 100000));
        give(&l, 10, 1, 3, 120);
        wait_asked(&l, 0);
        assert_int_equal(hw_of(&l), 13);
        down(&l);
    }
}

/* Never below the high watermark, unless an election was unclean. */
static void test_below_hw(void **state) {
    (void)state;
    for (int unclean = 0; unclean < 3; unclean++) {
        struct lead l;
        up(&l, 6, 1);
        start(&l);
        assert_true(fetched(&l, 100000));
        give(&l, 0, 0, 6, 6);
        wait_asked(&l, 0);
        answer(&l, plain(0, 6));
        assert_true(fetched(&l, 100000));
        assert_int_equal(cl_partition(&l.c.h[0], 1, 0)->hw, 6);
        cl_elect(&l.c, 1, 0, 1, unclean == 2 ? 2 : 3, unclean == 1);
        cl_read_all(&l.c);
        cl_pass(&l.c, 1000);
        answer_none(&l);
        wait_asked(&l, 0);
        part_answer a = plain(0, 0);
        a.diverging_epoch.epoch = 0;
        a.diverging_epoch.end_offset = 0;
        answer(&l, a);
        cl_pass(&l.c, 100000);
        assert_int_equal(log_of(&l, 0)->leo, unclean ? 0 : 6);
        assert_int_equal(cl_partition(&l.c.h[0], 1, 0)->hw, unclean ? 0 : 6);
        assert_int_equal(stats(&l)->unclean_truncations, unclean != 0);
        assert_int_equal(stats(&l)->unclean_records, unclean ? 6 : 0);
        assert_non_null(strstr(l.c.h[0].r.lines, unclean ? "6 records that were committed are lost" : "no unclean election"));
        down(&l);
    }
}

/* The leader's log begins behind our end. */
static void test_out_of_range(void **state) {
    (void)state;
    struct lead l;
    up(&l, 7, 1);
    start(&l);
    assert_true(fetched(&l, 100000));
    give(&l, 0, 0, 6, 6);
    wait_asked(&l, 0);
    part_answer a = plain(0, -1);
    a.error_code = KE_OFFSET_OUT_OF_RANGE;
    a.log_start_offset = 50;
    answer(&l, a);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 50, 0, -1);
    assert_int_equal(asked(&l, 0)->log_start_offset, 50);
    assert_int_equal(log_of(&l, 0)->start, 50);
    assert_int_equal(cl_partition(&l.c.h[0], 1, 0)->hw, 50);
    assert_non_null(strstr(l.c.h[0].r.lines, "begins anew at 50"));
    give(&l, 50, 0, 3, 53);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 53, 0, 0);
    /* Its start goes up: ours follows, to the high watermark. */
    a = plain(0, 53);
    a.log_start_offset = 53;
    answer(&l, a);
    assert_true(fetched(&l, 100000));
    assert_int_equal(log_of(&l, 0)->start, 53);
    expect_asked(&l, 0, 53, 0, -1);
    down(&l);
}

/* The leader's log begins inside of a batch: records up to there were deleted. What it sends begins below our empty log, which takes it whole. */
static void test_start_inside_batch(void **state) {
    (void)state;
    struct lead l;
    up(&l, 7, 1);
    start(&l);
    assert_true(fetched(&l, 100000));
    give(&l, 0, 0, 6, 6);
    wait_asked(&l, 0);
    part_answer a = plain(0, -1);
    a.error_code = KE_OFFSET_OUT_OF_RANGE;
    a.log_start_offset = 50;
    answer(&l, a);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 50, 0, -1);
    a = plain(0, 52);
    a.log_start_offset = 50;
    a.records = batch_at(&l, 48, 0, 4, 20);
    answer(&l, a);
    wait_asked(&l, 0); /* a fetch from 48 would be out of the leader's range */
    expect_asked(&l, 0, 52, 0, 0);
    answer(&l, plain_from(0, 52, 50));
    cl_pass(&l.c, 10000);
    assert_int_equal(cl_partition(&l.c.h[0], 1, 0)->hw, 52);
    assert_int_equal(log_of(&l, 0)->start, 50);
    down(&l);
}

/* What the metadata is about to settle is tried again soon; what is wrong, after a while. The others go on meanwhile. */
static void test_errors(void **state) {
    (void)state;
    static const struct { int16_t code; bool soon; } cases[] = {{KE_NOT_LEADER_OR_FOLLOWER, true},  {KE_FENCED_LEADER_EPOCH, true},
                                                                {KE_UNKNOWN_LEADER_EPOCH, true},    {KE_UNKNOWN_TOPIC_ID, true},
                                                                {KE_KAFKA_STORAGE_ERROR, false},    {KE_UNKNOWN_SERVER_ERROR, false}};
    struct lead l;
    up(&l, 8, 2);
    start(&l);
    join_all(&l, 2);
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        part_answer a = plain(0, -1);
        a.error_code = cases[i].code;
        int64_t at = l.c.now.mono_us;
        answer(&l, a);
        assert_true(fetched(&l, 10000));
        assert_true(forgot(&l, 0));
        assert_null(asked(&l, 0));
        assert_true(l.rq.max_wait_ms <= (cases[i].soon ? 51 : 500));
        while (!asked(&l, 0)) {
            cl_pass(&l.c, l.rq.max_wait_ms * 1000LL);
            answer_none(&l);
            assert_true(fetched(&l, 10000));
        }
        int64_t took = l.c.now.mono_us - at;
        assert_true(cases[i].soon ? took < 110000 : took >= 1000000 && took < 1600000);
    }
    assert_non_null(strstr(l.c.h[0].r.lines, "KAFKA_STORAGE_ERROR"));
    down(&l);
}

/* With flush.on.ack a fetch names only what is durable; the others are not held up by that. */
static void test_flush_on_ack(void **state) {
    (void)state;
    struct lead l;
    up(&l, 9, 2);
    cl_tell(&l.c, (struct news){.kind = NEWS_TOPIC, .topic = 2});
    cl_tell(&l.c, (struct news){.kind = NEWS_CONFIG, .topic = 1, .key = "flush.on.ack", .value = "true"});
    start(&l);
    join_all(&l, 2);
    sim_disk_faults(l.c.h[0].r.disk)->hung_until_us = l.c.now.mono_us + 300000;
    give(&l, 0, 0, 4, 4);
    int64_t before = stats(&l)->fetches;
    wait_asked(&l, 0);
    assert_true(stats(&l)->fetches - before > 10); /* for the sake of others; each waits for little time only */
    expect_asked(&l, 0, 4, 0, 0);
    assert_int_equal(log_of(&l, 0)->synced, 4);
    assert_int_equal(cl_partition(&l.c.h[0], 1, 0)->hw, 4);
    down(&l);
}

/* Of an answer with two epochs the second is fetched again, once the first is synced: by that, recovery tells rot from a torn write (cluster seed 541). */
static void test_flush_on_ack_epochs(void **state) {
    (void)state;
    struct lead l;
    up(&l, 10, 1);
    cl_elect(&l.c, 1, 0, 1, 3, false);
    cl_tell(&l.c, (struct news){.kind = NEWS_CONFIG, .topic = 1, .key = "flush.on.ack", .value = "true"});
    start(&l);
    join_all(&l, 1);
    part_answer a = plain(0, 6);
    a.records = joined(&l, batch_at(&l, 0, 0, 4, 20), batch_at(&l, 4, 1, 2, 20));
    answer(&l, a);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 4, 1, 0);
    assert_int_equal(log_of(&l, 0)->synced, 4);
    assert_int_equal(stats(&l)->corrupt, 0);
    give(&l, 4, 1, 2, 6);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 6, 1, 1);
    down(&l);
}

/* What is written at once is asked for at once. */
static void test_quick_write(void **state) {
    (void)state;
    struct lead l;
    up(&l, 15, 1);
    start(&l);
    join_all(&l, 1);
    for (int64_t at = 0; at < 40; at += 2) {
        give(&l, at, 0, 2, at);
        int64_t given = l.c.now.mono_us;
        while (log_of(&l, 0)->written == at) cl_pass(&l.c, 10);
        if (l.c.now.mono_us - given > 1900) { /* that was not quick */
            wait_asked(&l, 0);
            continue;
        }
        assert_true(fetched(&l, 0));
        expect_asked(&l, 0, at + 2, 0, 0);
        assert_int_equal(l.rq.forgotten_topics_data.n, 0);
    }
    down(&l);
}

/* What is still being written is not asked for again: the others' fetches go on without that partition. */
static void test_slow_write(void **state) {
    (void)state;
    struct lead l;
    up(&l, 14, 2);
    start(&l);
    join_all(&l, 2);
    sim_disk_faults(l.c.h[0].r.disk)->hung_until_us = l.c.now.mono_us + 100000;
    give(&l, 0, 0, 4, 4);
    assert_true(fetched(&l, 50000));
    assert_int_equal(log_of(&l, 0)->leo, 4);
    assert_int_equal(log_of(&l, 0)->written, 0);
    assert_int_equal(hw_of(&l), 0); /* told to be 4: of what is not written here nothing is committed here */
    assert_true(forgot(&l, 0)); /* else the leader sends the same once more, for nothing */
    answer_none(&l);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 4, 0, 0);
    assert_int_equal(stats(&l)->batches, 1);
    down(&l);
}

/* A full disk: refused, left alone for a while, tried again. */
static void test_disk_full(void **state) {
    (void)state;
    struct lead l;
    up(&l, 10, 2);
    start(&l);
    join_all(&l, 2);
    give(&l, 0, 0, 2, 2);
    wait_asked(&l, 0);
    sim_disk_faults(l.c.h[0].r.disk)->free_bytes = 0;
    give(&l, 2, 0, 2, 2);
    cl_pass(&l.c, 100000);
    assert_int_equal(log_of(&l, 0)->leo, 2);
    sim_disk_faults(l.c.h[0].r.disk)->free_bytes = -1;
    int64_t at = l.c.now.mono_us;
    assert_true(wait_asked(&l, 0));
    assert_true(l.c.now.mono_us - at > 800000);
    expect_asked(&l, 0, 2, 0, 0);
    give(&l, 2, 0, 2, 2);
    wait_asked(&l, 0);
    expect_asked(&l, 0, 4, 0, 0);
    /* And one that fails. */
    sim_disk_faults(l.c.h[0].r.disk)->eio_write_at = 0;
    give(&l, 4, 0, 2, 2);
    cl_pass(&l.c, 100000);
    assert_int_equal(cl_partition(&l.c.h[0], 1, 0)->state, KB_PART_OFFLINE);
    assert_non_null(strstr(l.c.h[0].r.lines, "is offline"));
    down(&l);
}

/* Leaving, deleting and coming back while a fetch, a write or a cut is under way. */
static void test_leave_at_any_time(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct lead l;
        up(&l, 100 + seed, 1);
        cl_elect(&l.c, 1, 0, 1, 3, false);
        start(&l);
        assert_true(fetched(&l, 100000));
        give(&l, 0, 0, 4, 2);
        wait_asked(&l, 0);
        give(&l, 4, 1, 4, 2);
        if (seed % 3 > 0) { /* diverging: a cut under way, with a lowered checkpoint before it */
            assert_true(fetched(&l, 100000));
            if (seed % 3 == 2) {
                assert_int_equal(kb_log_sync(log_of(&l, 0)), KW_OK);
                cl_pass(&l.c, 2000000);
            }
            part_answer a = plain(0, 2);
            a.diverging_epoch.epoch = 0;
            a.diverging_epoch.end_offset = 4;
            answer(&l, a);
        }
        cl_pass(&l.c, (int64_t)(seed / 3) * 397);
        switch (seed % 4) {
        case 0:
            cl_tell(&l.c, (struct news){.kind = NEWS_GONE, .topic = 1});
            break;
        case 1:
            cl_elect(&l.c, 1, 0, 0, 3, false); /* it leads */
            break;
        case 2:
            cl_elect(&l.c, 1, 0, 1, 3, false);
            break;
        case 3:
            cl_elect(&l.c, 1, 0, -1, 3, false);
            break;
        }
        cl_read_all(&l.c);
        cl_pass(&l.c, 500000);
        struct kb_partition *p = cl_partition(&l.c.h[0], 1, 0);
        if (seed % 4 == 0) {
            assert_null(p);
        } else {
            assert_int_equal(p->state, KB_PART_ONLINE);
            assert_false(p->log->busy);
            assert_int_equal(kb_follower_recovery_max(p), INT64_MAX);
            assert_int_equal(p->role, seed % 4 == 1 ? KB_PART_LEADS : seed % 4 == 2 ? KB_PART_FOLLOWS : KB_PART_IDLE);
        }
        if (seed % 2) /* killed, or stopped in order */
            down(&l);
        else {
            cl_kill(&l.c.h[0], false);
            down(&l);
        }
    }
}

/* The nth allocation fails: nothing is lost, all is tried again. */
static void test_no_memory(void **state) {
    (void)state;
    for (int64_t n = 0; n < 60; n++) {
        struct lead l;
        up(&l, 1000, 1);
        start(&l);
        assert_true(fetched(&l, 100000));
        give(&l, 0, 0, 4, 2);
        wait_asked(&l, 0);
        part_answer a = plain(0, 4);
        if (n % 2)
            a.records = batch_at(&l, 4, 0, 3, 20);
        else
            a.diverging_epoch.epoch = 0, a.diverging_epoch.end_offset = 3;
        cl_elect(&l.c, 1, 0, 1, 3, false);
        cl_elect(&l.c, 1, 0, 1, 3, false);
        struct kb_partition *p = cl_partition(&l.c.h[0], 1, 0);
        answer(&l, a); /* received without a failure: what is done with it is what is looked at */
        kw_alloc_fail_after(n / 2);
        cl_turn(&l.c);
        kw_alloc_fail_after(-1);
        if (p->state == KB_PART_ONLINE) {
            for (int i = 0; i < 20 && p->log->leo != 7; i++) {
                if (!fetched(&l, 2000000)) break;
                const part_request *q = asked(&l, 0);
                if (q && q->fetch_offset < 7) {
                    int64_t at = q->fetch_offset;
                    give(&l, at, 0, (int32_t)(7 - at), 4);
                } else {
                    answer_none(&l);
                }
            }
            assert_int_equal(p->log->leo, 7);
        }
        down(&l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session),      cmocka_unit_test(test_lag),          cmocka_unit_test(test_session_lost), cmocka_unit_test(test_link_lost),
        cmocka_unit_test(test_corrupt),      cmocka_unit_test(test_br02_diverging),    cmocka_unit_test(test_below_hw),
        cmocka_unit_test(test_br05_parted_below_the_high_watermark_told),
        cmocka_unit_test(test_start_inside_batch),
        cmocka_unit_test(test_out_of_range), cmocka_unit_test(test_errors),       cmocka_unit_test(test_flush_on_ack),
        cmocka_unit_test(test_flush_on_ack_epochs),
        cmocka_unit_test(test_slow_write), cmocka_unit_test(test_quick_write),   cmocka_unit_test(test_disk_full),
        cmocka_unit_test(test_leave_at_any_time), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
