/* test_replica_cases.c - bug cases of replication, each as it was met elsewhere, with three node cores: BL-01, BL-13, BL-17, BL-19, BR-01, BR-02, BR-03,
 * BR-08, BR-09, BR-17, BR-19. Those of one side alone are in test_follower, test_isr, test_api_replica and test_controller_partitions.
 */
#include "replica_steps.h"

#include "log/epochs.h"

/* Nobody fetches. */
static void hold_all(struct cluster *c, bool held) {
    for (int i = 0; i < 3; i++) c->held[i] = held;
}
/* Steps small enough to stop as soon as a follower has so much. */
static void until_end(struct cluster *c, int host, int64_t end) {
    for (int i = 0; i < 100000 && part(c, host)->log->leo < end; i++)
        if (!cl_turn(c)) cl_pass(c, 50);
    assert_int_equal(part(c, host)->log->leo, end);
}
static void read_some(struct cluster *c, unsigned hosts) {
    for (int i = 0; i < 3; i++)
        if (hosts & 1u << i) cl_read(&c->h[i], c->news_count);
}
/* Stored by the leader alone, while not all hear of the metadata. */
static void put_unread(struct cluster *c, int host, int64_t offset) {
    struct sent s;
    send(c, &s, host, 1, -1, -1);
    for (int i = 0; i < 1000 && !answered(&s); i++) cl_pass(c, 1000);
    assert_int_equal(s.answer.error_code, KE_NONE);
    assert_int_equal(s.answer.base_offset, offset);
}
/* A batch of a producer, its retry maybe: stored there, once. */
static void expect_known(struct cluster *c, int host, int32_t seq, int64_t offset) {
    struct sent s;
    send(c, &s, host, -1, 5000, seq);
    expect_stored(c, &s, offset);
}

/* A follower has a record that was acknowledged, and does not know yet that it is committed. It restarts; before it has fetched again the leader dies,
 * and it leads: the record stays, since nothing is cut by the high watermark. */
static void test_br01_not_cut_to_the_high_watermark(void **state) {
    (void)state;
    for (int killed = 0; killed < 2; killed++) {
        struct cluster *c = up(11 + (uint64_t)killed);
        struct sent s;
        put(c, 0, -1, 0);
        cl_pass(c, 1000000);
        send(c, &s, 0, -1, -1, -1);
        until_end(c, 1, 2);
        until_end(c, 2, 2);
        for (int i = 0; i < 10000 && !answered(&s); i++)
            if (!cl_turn(c)) cl_pass(c, 50);
        assert_int_equal(s.answer.error_code, KE_NONE);
        hold(c, true, true);
        assert_int_equal(part(c, 0)->hw, 2);
        assert_int_equal(part(c, 1)->hw, 1);
        if (killed)
            cl_kill(&c->h[1], false);
        else
            cl_stop(&c->h[1]);
        cl_add_broker(c, 1, 300);
        cl_boot(&c->h[1]);
        cl_pass(c, 100000);
        assert_int_equal(part(c, 1)->log->leo, 2);
        assert_true(part(c, 1)->hw <= 1);
        leader_dies(c);
        assert_int_equal(part(c, 1)->log->leo, 2);
        hold(c, false, false);
        put(c, 1, -1, 2);
        returns(c, 0);
        expect_equal(c, 3, 7);
    }
}

/* Leaders change faster than logs follow: one has epochs 1 and 2, of which the next leader never heard. It goes back to where they agree, no further. */
static void test_br02_epochs_that_the_leader_never_had(void **state) {
    (void)state;
    struct cluster *c = up(13);
    for (int64_t i = 0; i < 4; i++) put(c, 0, -1, i);
    cl_pass(c, 1000000);
    hold_all(c, true);
    for (int64_t i = 4; i < 7; i++) put(c, 0, 1, i); /* epoch 0: 4 to 6 on 0 alone */
    cl_elect(c, 1, 0, 1, 7, false);
    read_some(c, 2);
    for (int64_t i = 4; i < 6; i++) put(c, 1, 1, i); /* epoch 1: 4, 5 */
    cl_elect(c, 1, 0, 1, 7, false);
    read_some(c, 2);
    put(c, 1, 1, 6); /* epoch 2: 6, and so as long as 0's */
    cl_elect(c, 1, 0, 0, 7, false);
    cl_read_all(c);
    put(c, 0, 1, 7); /* epoch 3 */
    assert_int_equal(kb_epochs_at(part(c, 1)->log->epochs, 6), 2);
    hold_all(c, false);
    cl_pass(c, 1000000);
    assert_int_equal(kb_followers_stats(c->h[1].r.node)->truncations, 1);
    assert_int_equal(kb_epochs_at(part(c, 1)->log->epochs, 6), 0);
    assert_int_equal(kb_epochs_at(part(c, 1)->log->epochs, 7), 3);
    expect_equal(c, 8, 7);
}

/* 1 goes on fetching from 0 at its end and misses that 2 led for a while, and wrote something else over what 1 has. Its fetches are of an old epoch: they
 * bring nothing and make it no member; when it has heard of it all, it goes back before anything is appended. */
static void test_br03_leader_changes_that_were_not_seen(void **state) {
    (void)state;
    struct cluster *c = up(14);
    for (int64_t i = 0; i < 4; i++) put(c, 0, -1, i);
    cl_pass(c, 1000000);
    hold(c, false, true);
    for (int64_t i = 4; i < 9; i++) put(c, 0, 1, i);
    until_end(c, 1, 9);
    cl_pass(c, 1000000); /* its next fetch waits at the leader */
    hold_all(c, true);
    cl_elect(c, 1, 0, 2, 5, false);
    read_some(c, 5);
    put_unread(c, 2, 4);
    put_unread(c, 2, 5);
    c->held[0] = false;
    for (int i = 0; i < 1000 && kb_epochs_at(part(c, 0)->log->epochs, 5) != 1; i++) cl_pass(c, 1000);
    assert_int_equal(part(c, 0)->log->leo, 6);
    cl_elect(c, 1, 0, 0, 5, false);
    read_some(c, 5);
    c->held[0] = c->held[2] = c->held[1] = false;
    for (int64_t i = 6; i < 12; i++) put_unread(c, 0, i);
    for (int i = 0; i < 30; i++) {
        cl_pass(c, 100000);
        read_some(c, 5);
        assert_int_equal(part(c, 1)->log->leo, 9);
        assert_int_equal(c->parts[1][0].isr, 5);
    }
    assert_int_equal(kb_epochs_at(part(c, 1)->log->epochs, 5), 0); /* what it has there is of the lost epoch */
    assert_true(part(c, 1)->hw <= 4);
    assert_int_equal(kb_followers_stats(c->h[1].r.node)->truncations, 0);
    cl_read_all(c);
    cl_pass(c, 2000000);
    assert_int_equal(kb_followers_stats(c->h[1].r.node)->truncations, 1);
    assert_int_equal(kb_epochs_at(part(c, 1)->log->epochs, 5), 1);
    expect_equal(c, 12, 7);
}

/* 1 has caught up and is to be let in; before the leader's request arrives it comes back with an empty disk. The request is about a life that has ended:
 * it is refused, and 1 is in sync only when it has it all again. */
static void test_br08_wiped_before_it_was_let_in(void **state) {
    (void)state;
    static const char *const files[] = {"/data/recovery-point-offset-checkpoint", "/data/replication-offset-checkpoint",
                                        "/data/log-start-offset-checkpoint"};
    for (int heard = 0; heard < 2; heard++) { /* the leader, of that broker's new life, before its request is answered */
        struct cluster *c = up(15);
        hold(c, true, false);
        put(c, 0, 1, 0);
        cl_pass(c, 25000000); /* replica.lag.time.max.ms, and more */
        cl_read_all(c);
        assert_int_equal(c->parts[1][0].isr, 5);
        for (int64_t i = 1; i < 6; i++) put(c, 0, -1, i);
        c->isr_stays = true; /* what the leader asks does not arrive */
        hold(c, false, false);
        until_end(c, 1, 6);
        cl_pass(c, 500000);
        assert_int_equal(c->parts[1][0].isr, 5);
        cl_kill(&c->h[1], false);
        sim_disk_remove(c->h[1].r.disk, "/data/t1-0");
        for (size_t i = 0, n; i < KW_COUNTOF(files); i++)
            if (sim_disk_peek(c->h[1].r.disk, files[i], &n)) sim_disk_remove(c->h[1].r.disk, files[i]);
        rig_set(&c->h[1].r, "replica.fetch.max.bytes", "100"); /* a record at a time */
        cl_add_broker(c, 1, 501);
        hold(c, true, false);
        cl_boot(&c->h[1]);
        assert_int_equal(part(c, 1)->log->leo, 0);
        if (heard) cl_read_all(c);
        c->isr_stays = false; /* now it does */
        cl_pass(c, 1000000);
        assert_int_equal(c->parts[1][0].isr, 5);
        cl_read_all(c);
        cl_pass(c, 1000000);
        assert_int_equal(c->parts[1][0].isr, 5);
        hold(c, false, false);
        for (int i = 0; i < 100000 && part(c, 1)->log->leo == 0; i++)
            if (!cl_turn(c)) c->now.mono_us += 20;
        hold(c, true, false);
        assert_in_range(part(c, 1)->log->leo, 1, 5);
        cl_pass(c, 1000000);
        assert_int_equal(c->parts[1][0].isr, 5); /* it has a part of it only */
        hold(c, false, false);
        cl_pass(c, 1000000);
        assert_int_equal(c->parts[1][0].isr, 7);
        expect_equal(c, 6, 7);
    }
}

/* One is left of those in sync, and min.insync.replicas is two. What it takes with acks=1 is shown to nobody, and so nobody misses what of it is lost
 * with the machine; what could be read before is there: it was synced, in time or with flush.on.ack. (With neither it is lost, too, and the last known
 * leader says so.) */
static void test_br09_alone_below_min_isr(void **state) {
    (void)state;
    for (int on_ack = 0; on_ack < 2; on_ack++) {
        struct cluster *c = up(16 + 100 * (uint64_t)on_ack);
        cl_tell(c, (struct news){.kind = NEWS_CONFIG, .topic = 1, .key = "flush.on.ack", .value = on_ack ? "true" : "false"});
        cl_read_all(c);
        for (int64_t i = 0; i < 3; i++) put(c, 0, -1, i);
        cl_pass(c, 1000000);
        assert_int_equal(part(c, 0)->hw, 3);
        if (!on_ack) assert_int_equal(kb_log_sync(part(c, 0)->log), KW_OK);
        cl_pass(c, 1000000);
        assert_int_equal(part(c, 0)->log->synced, 3);
        cl_kill(&c->h[1], false);
        cl_kill(&c->h[2], false);
        c->dead[1] = c->dead[2] = true;
        cl_elect(c, 1, 0, CL_SAME_LEADER, 1, false);
        cl_read_all(c);
        for (int64_t i = 3; i < 8; i++) put(c, 0, 1, i);
        cl_pass(c, 25000000); /* nobody is waited for any more */
        put(c, 0, 1, 8);
        assert_int_equal(part(c, 0)->hw, 3);
        cl_kill(&c->h[0], true);
        c->dead[0] = true;
        cl_elect(c, 1, 0, -1, 1, false);
        for (int k = 1; k <= 3; k++) returns(c, k % 3);
        int64_t end = part(c, 0)->log->leo;
        assert_true(on_ack ? end >= 3 : end == 3);
        cl_elect(c, 1, 0, 0, 1, true);
        cl_read_all(c);
        cl_pass(c, 2000000);
        cl_read_all(c);
        assert_int_equal(part(c, 0)->hw, end);
        put(c, 0, -1, end);
        expect_equal(c, end + 1, 7);
    }
}

/* Away while its topic was deleted and made again under the same name: it comes back with the folder of the old one, which is set aside. */
static void test_br17_made_again_while_away(void **state) {
    (void)state;
    struct cluster *c = up(17);
    for (int64_t i = 0; i < 5; i++) put(c, 0, -1, i);
    cl_pass(c, 1000000);
    cl_kill(&c->h[2], false);
    c->dead[2] = true;
    cl_elect(c, 1, 0, CL_SAME_LEADER, 3, false);
    cl_tell(c, (struct news){.kind = NEWS_GONE, .topic = 1});
    cl_read_all(c);
    cl_pass(c, 1000000);
    cl_tell(c, (struct news){.kind = NEWS_TOPIC, .topic = 2, .id = 1}); /* t1 */
    cl_add_partition(c, 2, 0, 3, 0);
    cl_elect(c, 2, 0, CL_SAME_LEADER, 3, false);
    cl_read_all(c);
    cl_pass(c, 1000000);
    put(c, 0, -1, 0);
    put(c, 0, -1, 1);
    returns(c, 2);
    for (int i = 0; i < 3; i++) {
        cl_pass(c, 1000000);
        cl_read_all(c);
    }
    assert_non_null(strstr(c->h[2].r.lines, "set aside"));
    assert_int_equal(c->parts[2][0].isr, 7);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cl_partition(&c->h[i], 2, 0)->log->leo, 2);
        assert_int_equal(cl_partition(&c->h[i], 2, 0)->hw, 2);
    }
    size_t n, m;
    for (int i = 0; i < 3; i++) cl_stop(&c->h[i]);
    uint8_t *a = cl_log_bytes(&c->h[0], 0, &n), *b = cl_log_bytes(&c->h[2], 0, &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
    cl_deinit(c);
    free(c);
}

/* A batch larger than a follower asks for of a partition, and of all: it comes whole. */
static void test_br19_larger_than_a_replica_fetch(void **state) {
    (void)state;
    static const char *const small[] = {"replica.fetch.max.bytes", "1000", "replica.fetch.response.max.bytes", "1000", NULL};
    struct cluster *c = up_with(18, small);
    for (int64_t i = 0; i < 3; i++) {
        struct sent s;
        struct rig *r = &c->h[0].r;
        struct rig_batch b = {.pid = -1, .epoch = -1, .seq = -1, .count = 1, .value_size = i == 1 ? 900000 : 100};
        size_t n;
        uint8_t *p = rig_batch(r, &b, &n);
        s.conn = rig_connect(r);
        rig_request(s.conn, KW_API_PRODUCE, 9, 1, &rig_produce_msg(r, "t1", 0, -1, p, n)->req);
        expect_stored(c, &s, i);
    }
    expect_equal(c, 3, 7);
}

/* Five batches are stored and their answers lost with the leader: the next one knows them all, sent again in order, or the oldest alone. */
static void test_bl19_known_to_a_new_leader(void **state) {
    (void)state;
    for (int all = 0; all < 2; all++) {
        struct cluster *c = up(19 + (uint64_t)all);
        struct sent s;
        for (int32_t i = 0; i < 5; i++) send(c, &s, 0, -1, 5000, i);
        until_end(c, 1, 5);
        until_end(c, 2, 5);
        leader_dies(c);
        for (int32_t i = 0; i < (all ? 5 : 1); i++) expect_known(c, 1, i, i);
        send(c, &s, 1, -1, 5000, 5);
        expect_stored(c, &s, 5);
        returns(c, 0);
        expect_equal(c, 6, 7);
    }
}

static int16_t answer_to(struct cluster *c, int host, int32_t seq) {
    struct sent s;
    send(c, &s, host, -1, 5000, seq);
    for (int i = 0; !answered(&s); i++) {
        assert_true(i < 2000);
        cl_pass(c, 1000);
    }
    return s.answer.error_code;
}

/* Two requests of a new producer are under way to a leader that has not heard yet that it leads: the first is refused, the second arrives when it has.
 * It is refused too, or the first one would be lost. */
static void test_bl17_the_second_before_the_first(void **state) {
    (void)state;
    struct cluster *c = up(20);
    cl_elect(c, 1, 0, 1, 7, false);
    assert_int_equal(answer_to(c, 1, 0), KE_NOT_LEADER_OR_FOLLOWER);
    cl_read_all(c);
    assert_int_equal(answer_to(c, 1, 1), KE_OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_int_equal(part(c, 1)->log->leo, 0);
    expect_known(c, 1, 0, 0);
    expect_known(c, 1, 1, 1);
    expect_equal(c, 2, 7);
}

/* The power goes, and each of three has another end afterwards. Whoever leads, the logs end equal, and every offset stands above the one before. */
static void test_bl01_three_ends_after_a_power_loss(void **state) {
    (void)state;
    for (int leader = 0; leader < 3; leader++) {
        static const int64_t synced[] = {4, 7, 2};
        struct cluster *c = up(21 + (uint64_t)leader);
        for (int64_t i = 0; i < 9; i++) {
            put(c, 0, -1, i);
            for (int k = 0; k < 3; k++)
                if (i + 1 == synced[k]) {
                    until_end(c, k, i + 1);
                    for (int t = 0; t < 10000 && part(c, k)->log->written < i + 1; t++) cl_pass(c, 50);
                    assert_int_equal(kb_log_sync(part(c, k)->log), KW_OK);
                    cl_pass(c, 1000000);
                    assert_true(part(c, k)->log->synced >= i + 1);
                }
        }
        for (int k = 0; k < 3; k++) {
            cl_kill(&c->h[k], true);
            c->dead[k] = true;
        }
        cl_elect(c, 1, 0, -1, 1u << leader, false);
        for (int k = 0; k < 3; k++) returns(c, k);
        int64_t end = part(c, leader)->log->leo;
        assert_true(end >= synced[leader]);
        assert_true(part(c, 0)->log->leo != part(c, 1)->log->leo || part(c, 1)->log->leo != part(c, 2)->log->leo);
        cl_elect(c, 1, 0, leader, 1u << leader, true);
        cl_read_all(c);
        cl_pass(c, 2000000);
        cl_read_all(c);
        put(c, leader, -1, end);
        for (int i = 0; i < 3; i++) {
            cl_pass(c, 1000000);
            cl_read_all(c);
        }
        for (int k = 0; k < 3; k++) {
            assert_int_equal(part(c, k)->log->leo, end + 1);
            assert_int_equal(part(c, k)->hw, end + 1);
            cl_stop(&c->h[k]);
            size_t n;
            int64_t next = 0;
            uint8_t *bytes = cl_log_bytes(&c->h[k], 0, &n);
            const uint8_t *at = bytes;
            struct kw_entry e;
            while (kw_entry_next(&at, bytes + n, &e) > 0) {
                struct kw_batch_header h;
                assert_int_equal(kw_batch_parse(e.p, e.size, &h), KW_OK);
                assert_int_equal(h.base_offset, next);
                next = h.base_offset + h.last_offset_delta + 1;
            }
            assert_int_equal(next, end + 1);
            free(bytes);
        }
        cl_deinit(c);
        free(c);
    }
}

/* The error of a consumer's fetch; *first: offset of the first batch that came, -1: none. */
static int16_t fetch_at(struct cluster *c, int host, int64_t offset, int64_t *first) {
    struct kw_fetch_response resp;
    struct rig *r = &c->h[host].r;
    struct rig_conn *k = rig_connect(r);
    rig_request(k, KW_API_FETCH, 11, 1, &rig_fetch_msg(r, &RIG_FETCH(.version = 11, .topic = "t1", .offset = offset))->req);
    for (int i = 0; !rig_response(k, KW_API_FETCH, 11, 1, &resp); i++) {
        assert_true(i < 1000);
        cl_pass(c, 1000);
    }
    rig_fetched *f = &resp.responses.v[0].partitions.v[0];
    *first = -1;
    struct kw_batch_header h;
    if (f->records.len > 0) {
        assert_int_equal(kw_batch_parse(f->records.p, (size_t)f->records.len, &h), KW_OK);
        int64_t size = kw_batch_size_peek(f->records.p, (size_t)f->records.len);
        assert_in_range(size, KW_BATCH_HEADER_SIZE, f->records.len);
        assert_true(kw_batch_crc_ok(f->records.p, (size_t)size));
        *first = h.base_offset;
    }
    return f->error_code;
}

/* A bit of one replica's log flips. Whether it leads or is asked by an empty replica: what is damaged goes to nobody and is not cut, the rest is there;
 * and with another leader all is. */
static void test_bl13_rot_on_one_of_three(void **state) {
    (void)state;
    struct cluster *c = up(31);
    int64_t first;
    for (int64_t i = 0; i < 10; i++) put(c, 0, -1, i);
    cl_pass(c, 6000000); /* the high watermark is stored */
    cl_kill(&c->h[1], false);
    size_t n;
    uint8_t *bytes = cl_log_bytes(&c->h[1], 0, &n);
    free(bytes);
    sim_disk_rot(c->h[1].r.disk, "/data/t1-0/00000000000000000000.log", 5 * (n / 10) + KW_BATCH_HEADER_SIZE + 20, 0x10);
    c->h[1].clean = true; /* not looked at when it starts */
    cl_add_broker(c, 1, 301);
    cl_boot(&c->h[1]);
    cl_read_all(c);
    cl_pass(c, 2000000);
    cl_read_all(c);
    assert_int_equal(part(c, 1)->log->leo, 10);
    assert_int_equal(c->parts[1][0].isr, 7);
    cl_kill(&c->h[2], false);
    c->dead[2] = true;
    sim_disk_remove(c->h[2].r.disk, "/data/t1-0");
    leader_dies(c); /* 1 leads */
    cl_elect(c, 1, 0, CL_SAME_LEADER, 2, false);
    returns(c, 2);
    for (int i = 0; i < 3; i++) {
        cl_pass(c, 2000000);
        cl_read_all(c);
    }
    assert_int_equal(c->parts[1][0].isr, 2);
    assert_int_equal(part(c, 2)->log->leo, 5); /* up to there, and no further */
    assert_int_equal(kb_followers_stats(c->h[2].r.node)->corrupt, 0);
    assert_int_equal(part(c, 1)->log->leo, 10);
    assert_int_equal(fetch_at(c, 1, 0, &first), KE_NONE);
    assert_int_equal(first, 0);
    assert_int_equal(fetch_at(c, 1, 5, &first), KE_CORRUPT_MESSAGE);
    assert_int_equal(first, -1);
    assert_int_equal(fetch_at(c, 1, 6, &first), KE_NONE);
    assert_non_null(strstr(c->h[1].r.lines, "bit rot"));
    returns(c, 0);
    cl_elect(c, 1, 0, 0, 3, false);
    cl_read_all(c);
    cl_pass(c, 2000000);
    cl_read_all(c);
    for (int64_t i = 0; i < 10; i++) {
        assert_int_equal(fetch_at(c, 0, i, &first), KE_NONE);
        assert_int_equal(first, i);
    }
    put(c, 0, -1, 10);
    cl_pass(c, 2000000);
    cl_read_all(c);
    assert_int_equal(c->parts[1][0].isr, 7);
    assert_int_equal(part(c, 2)->log->leo, 11);
    size_t m;
    for (int i = 0; i < 3; i++) cl_stop(&c->h[i]);
    bytes = cl_log_bytes(&c->h[0], 0, &n);
    uint8_t *b = cl_log_bytes(&c->h[2], 0, &m);
    assert_int_equal(n, m);
    assert_memory_equal(bytes, b, n);
    free(bytes);
    free(b);
    cl_deinit(c);
    free(c);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_br01_not_cut_to_the_high_watermark), cmocka_unit_test(test_br02_epochs_that_the_leader_never_had),
        cmocka_unit_test(test_br03_leader_changes_that_were_not_seen), cmocka_unit_test(test_br08_wiped_before_it_was_let_in),
        cmocka_unit_test(test_br09_alone_below_min_isr), cmocka_unit_test(test_br17_made_again_while_away),
        cmocka_unit_test(test_br19_larger_than_a_replica_fetch), cmocka_unit_test(test_bl19_known_to_a_new_leader),
        cmocka_unit_test(test_bl17_the_second_before_the_first),
        cmocka_unit_test(test_bl01_three_ends_after_a_power_loss), cmocka_unit_test(test_bl13_rot_on_one_of_three),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
