/* test_isr.c - a partition as its leader: the high watermark over its replicas, who is in sync, and how that is changed. Rules of replication by number. */
#include "isr_rig.h"
#include "quorum/store_priv.h"
#include "replica/isr_priv.h"

static const int32_t all3[] = {0, 1, 2}, only0[] = {0}, with1[] = {0, 1};

/* Rule 14: the lowest end of those in sync; consumers see less, replicas all that is written. */
static void test_hw(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 1, 3, 3);
    struct kb_partition *p = lead_part(&l, 0);
    assert_int_equal(p->role, KB_PART_LEADS);
    lead_fill(&l, 0, 3);
    assert_int_equal(p->log->written, 3);
    assert_int_equal(p->hw, 0);
    assert_true(lead_fetch(&l, BY(.id = 1, .offset = 0))->records.len > 0);
    assert_int_equal(lead_fetch(&l, BY(.id = 1, .offset = 3, .last_epoch = 5))->high_watermark, 0);
    assert_int_equal(lead_fetch(&l, BY(.id = 2, .offset = 2, .last_epoch = 5))->high_watermark, 2); /* the fetch that moves it is told */
    rig_fetched *f = rig_fetch_one(l.c, RIG_FETCH(.topic = "t"));
    assert_int_equal(f->high_watermark, 2);
    assert_int_equal(f->last_stable_offset, 2);
    f = rig_fetch_one(l.c, RIG_FETCH(.topic = "t", .offset = 2)); /* between it and the log's end: empty, no error (rule 19) */
    assert_int_equal(f->error_code, KE_NONE);
    assert_int_equal(f->records.len, 0);
    assert_int_equal(rig_fetch_one(l.c, RIG_FETCH(.topic = "t", .offset = 3))->error_code, KE_NONE);
    assert_int_equal(rig_fetch_one(l.c, RIG_FETCH(.topic = "t", .offset = 4))->error_code, KE_OFFSET_OUT_OF_RANGE);
    lead_fetch(&l, BY(.id = 2, .offset = 3, .last_epoch = 5));
    assert_int_equal(p->hw, 3);
    lead_fetch(&l, BY(.id = 2, .offset = 1, .last_epoch = 5)); /* it never goes back */
    assert_int_equal(p->hw, 3);
    lead_down(&l);
}

/* Rule 12, BR-03 at the leader: what does not match the leader epoch, or the log, or comes from an older life or a stranger, does not count. */
static void test_what_counts(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 2, 2, 2);
    struct kb_partition *p = lead_part(&l, 0);
    lead_fill(&l, 0, 3);
    assert_int_equal(lead_fetch(&l, BY(.id = 1, .offset = 3, .leader_epoch = 4))->error_code, KE_FENCED_LEADER_EPOCH);
    assert_int_equal(lead_fetch(&l, BY(.id = 1, .offset = 3, .leader_epoch = 6))->error_code, KE_UNKNOWN_LEADER_EPOCH);
    assert_int_equal(lead_fetch(&l, BY(.id = 2, .offset = 3))->error_code, KE_UNKNOWN_LEADER_EPOCH); /* no replica of it */
    assert_int_equal(lead_fetch(&l, BY(.id = 2, .offset = 3, .leader_epoch = -1))->error_code, KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(lead_fetch(&l, BY(.id = 1, .offset = 3, .broker_epoch = 100))->error_code, KE_NOT_LEADER_OR_FOLLOWER);
    rig_fetched *f = lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 4)); /* its record 1 is of an epoch that ended at 0 here */
    assert_int_equal(f->error_code, KE_NONE);
    assert_int_equal(f->diverging_epoch.epoch, 4);
    assert_int_equal(f->diverging_epoch.end_offset, 0);
    assert_int_equal(f->records.len, 0);
    f = lead_fetch(&l, BY(.id = 1, .offset = 9, .last_epoch = 4)); /* longer than this log: where they part comes before the range */
    assert_int_equal(f->error_code, KE_NONE);
    assert_int_equal(f->diverging_epoch.end_offset, 0);
    assert_int_equal(lead_fetch(&l, BY(.id = 1, .offset = 9))->error_code, KE_OFFSET_OUT_OF_RANGE);
    assert_int_equal(p->hw, 0);
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
    assert_int_equal(p->hw, 2);
    f = lead_fetch(&l, BY(.id = 1, .offset = 3, .last_epoch = 5, .broker_epoch = 160)); /* it lives anew, and the image does not know yet: again, soon */
    assert_int_equal(f->error_code, KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(p->hw, 2);
    lead_broker(&l, (struct lead_broker){.id = 1, .epoch = 160});
    assert_int_equal(lead_fetch(&l, BY(.id = 1, .offset = 3, .last_epoch = 5))->error_code, KE_NOT_LEADER_OR_FOLLOWER); /* late, of the life before */
    assert_int_equal(p->hw, 2);
    lead_fetch(&l, BY(.id = 1, .offset = 3, .last_epoch = 5, .broker_epoch = 160));
    assert_int_equal(p->hw, 3);
    lead_down(&l);
}

/* A client that says it is replica 1 knows no broker epoch, or makes one up: it moves no high watermark, reads nothing above it, and does not shut the
 * real one out. */
static void test_forged(void **state) {
    static const int64_t made_up[] = {-1, 1, 102, INT64_MAX, INT64_MIN};
    (void)state;
    struct lead l;
    lead_up(&l, 2, 2, 2);
    struct kb_partition *p = lead_part(&l, 0);
    lead_fill(&l, 0, 3);
    for (size_t i = 0; i < KW_COUNTOF(made_up); i++) {
        rig_fetched *f = lead_fetch(&l, BY(.id = 1, .offset = 3, .last_epoch = 5, .broker_epoch = made_up[i]));
        assert_int_equal(f->error_code, KE_NOT_LEADER_OR_FOLLOWER);
        f = lead_fetch(&l, BY(.id = 1, .offset = 0, .broker_epoch = made_up[i]));
        assert_int_equal(f->error_code, KE_NOT_LEADER_OR_FOLLOWER);
        assert_int_equal(f->records.len, 0);
    }
    struct rig_fetch_msg *m = rig_fetch_msg(&l.r, &RIG_FETCH(.version = 12, .topic = "t", .offset = 3, .leader_epoch = 5)); /* has no field for it */
    struct kw_fetch_response resp;
    m->req.replica_id = 1;
    m->part.last_fetched_epoch = 5;
    rig_call(l.f[1], KW_API_FETCH, 12, &m->req, &resp);
    assert_int_equal(resp.responses.v[0].partitions.v[0].error_code, KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(p->hw, 0);
    assert_int_equal(lead_fetch(&l, BY(.id = 1, .offset = 3, .last_epoch = 5))->error_code, KE_NONE);
    assert_int_equal(p->hw, 3);
    lead_down(&l);
}

/* Rule 12: remote ends are of one leader epoch; and the epoch's start is known before anything is appended in it. */
static void test_new_epoch(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 3, 2, 2);
    struct kb_partition *p = lead_part(&l, 0);
    lead_fill(&l, 0, 2);
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
    assert_int_equal(p->hw, 2);
    lead_send(&l, l.c, 0, -1, 9);
    lead_change(&l, 0, 0, NULL, -1);
    assert_int_equal(p->leader_epoch, 6);
    assert_int_equal(lead_produced(l.c, 9), KE_NOT_LEADER_OR_FOLLOWER); /* the wait is of the old epoch */
    assert_int_equal(p->epoch_start, 3);
    rig_fetched *f = lead_fetch(&l, BY(.id = 1, .offset = 4, .last_epoch = 5, .leader_epoch = 6));
    assert_int_equal(f->diverging_epoch.epoch, 5);
    assert_int_equal(f->diverging_epoch.end_offset, 3);
    assert_int_equal(p->hw, 2);
    lead_fill(&l, 0, 1);
    assert_int_equal(p->hw, 2); /* not by what was told before */
    lead_fetch(&l, BY(.id = 1, .offset = 4, .last_epoch = 6, .leader_epoch = 6));
    assert_int_equal(p->hw, 4);
    lead_down(&l);
}

/* BR-02 at the leader: an epoch that this log has nothing of, and would not know of otherwise: who was led in it is told where the one before ended. */
static void test_epoch_unknown_here(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 20, 2, 2);
    lead_fill(&l, 0, 3);
    lead_change(&l, 0, 1, NULL, -1); /* 1 leads in 6, and appends; this node gets nothing of it */
    lead_change(&l, 0, 0, NULL, -1);
    rig_fetched *f = lead_fetch(&l, BY(.id = 1, .offset = 5, .last_epoch = 6, .leader_epoch = 7));
    assert_int_equal(f->error_code, KE_NONE);
    assert_int_equal(f->diverging_epoch.epoch, 5);
    assert_int_equal(f->diverging_epoch.end_offset, 3);
    lead_down(&l);
}

/* P3: a time, not a number of records: all that there was at its last fetch is enough, however much there is now. */
static void test_burst_keeps_isr(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 4, 2, 2);
    int64_t has = 0;
    for (int round = 0; round < 12; round++) { /* always behind by what came since its last fetch */
        lead_fill(&l, 0, 50);
        lead_fetch(&l, BY(.id = 1, .offset = has, .last_epoch = has ? 5 : -1));
        has = lead_part(&l, 0)->log->written;
        rig_pass(&l.r, LAG_US / 3);
    }
    assert_int_equal(l.asks, 0);
    lead_down(&l);
}

/* The same of one that reads ahead: what it tells was there two fetches ago. One that does not get on falls behind all the same. */
static void test_ahead_keeps_isr(void **state) {
    (void)state;
    for (int stuck = 0; stuck < 2; stuck++) {
        struct lead l;
        lead_up(&l, 4, 2, 2);
        int64_t has = 0, sent = 0;
        for (int round = 0; round < 20; round++) {
            lead_fill(&l, 0, 20);
            lead_fetch(&l, BY(.id = 1, .offset = has, .last_epoch = has ? 5 : -1));
            if (!stuck || round < 5) has = sent;
            sent = lead_part(&l, 0)->log->written;
            rig_pass(&l.r, LAG_US / 6);
        }
        assert_int_equal(l.asks > 0, stuck);
        lead_down(&l);
    }
}

/* Rule 17, BR-10: a shrink has no effect before it is committed; then the high watermark moves, and who waited for that is answered. */
static void test_br10_shrink(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 5, 3, 3);
    struct kb_partition *p = lead_part(&l, 0);
    lead_fill(&l, 0, 5);
    for (int i = 0; i < 5; i++) { /* 1 keeps up; 2 fetches, but not from the end */
        lead_fetch(&l, BY(.id = 1, .offset = 5, .last_epoch = 5));
        lead_fetch(&l, BY(.id = 2, .offset = 1, .last_epoch = 5));
        rig_pass(&l.r, LAG_US / 3);
        if (l.call) break;
    }
    assert_int_equal(l.asks, 1);
    assert_string_equal(lead_asked_isr(&l, 0), "0,1:101");
    const struct kw_alter_partition_request_partition_data *q = lead_asked(&l, 0);
    assert_int_equal(q->leader_epoch, 5);
    assert_int_equal(q->partition_epoch, 10);
    assert_int_equal(q->leader_recovery_state, 0);
    assert_int_equal(l.rq.broker_epoch, kb_store_broker_epoch(l.r.node->parts.store));
    assert_int_equal(p->hw, 1);
    lead_send(&l, l.c, 0, -1, 7);
    lead_fetch(&l, BY(.id = 1, .offset = 6, .last_epoch = 5));
    assert_int_equal(p->hw, 1);
    assert_int_equal(lead_produced(l.c, 7), -100);
    lead_commit(&l, 11, with1, 2);
    assert_int_equal(p->isr_count, 2);
    assert_int_equal(p->partition_epoch, 11);
    assert_int_equal(p->hw, 6);
    assert_int_equal(lead_produced(l.c, 7), KE_NONE);
    lead_change(&l, 0, -2, with1, 2); /* the image comes behind, and changes nothing */
    assert_int_equal(p->partition_epoch, 11);
    assert_int_equal(p->isr_count, 2);
    rig_pass(&l.r, 1000000);
    assert_int_equal(l.asks, 1);
    lead_down(&l);
}

/* A silent follower that has everything stays: nobody waits for it. */
static void test_silent_but_whole(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 6, 2, 2);
    lead_fill(&l, 0, 5);
    lead_fetch(&l, BY(.id = 1, .offset = 5, .last_epoch = 5));
    rig_pass(&l.r, 10 * LAG_US);
    assert_int_equal(l.asks, 0);
    lead_fill(&l, 0, 1);
    rig_pass(&l.r, LAG_US);
    assert_string_equal(lead_asked_isr(&l, 0), "0");
    lead_down(&l);
}

/* Rule 16, BR-09, BR-10: too few in sync: those that wait hear of it as soon as that is committed. Rules 14, 15: nothing is visible then until there are
 * enough. */
static void test_below_min(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 7, 2, 2);
    lead_config(&l, "min.insync.replicas", "2");
    struct kb_partition *p = lead_part(&l, 0);
    lead_fill(&l, 0, 1);
    lead_fetch(&l, BY(.id = 1, .offset = 1, .last_epoch = 5));
    assert_int_equal(p->hw, 1);
    lead_send(&l, l.c, 0, -1, 7);
    assert_int_equal(lead_produced(l.c, 7), -100);
    rig_pass(&l.r, LAG_US * 2);
    assert_int_equal(lead_produced(l.c, 7), -100); /* asked for is not committed */
    assert_string_equal(lead_asked_isr(&l, 0), "0");
    lead_commit(&l, 11, only0, 1);
    assert_int_equal(lead_produced(l.c, 7), KE_NOT_ENOUGH_REPLICAS_AFTER_APPEND);
    assert_int_equal(p->hw, 1);
    lead_send(&l, l.c, 0, -1, 8);
    assert_int_equal(lead_produced(l.c, 8), KE_NOT_ENOUGH_REPLICAS); /* before the append */
    assert_int_equal(p->log->leo, 2);
    lead_fill(&l, 0, 2);
    assert_int_equal(p->hw, 1);
    assert_int_equal(rig_fetch_one(l.c, RIG_FETCH(.topic = "t", .offset = 1))->records.len, 0);
    lead_config(&l, "min.insync.replicas", "1");
    assert_int_equal(p->hw, 4);
    lead_send(&l, l.c, 0, -1, 9);
    assert_int_equal(lead_produced(l.c, 9), KE_NONE);
    lead_down(&l);
}

/* Rule 18, 14: it joins once it has reached the high watermark; wished for, it holds the high watermark already; it is in when that is committed. */
static void test_expand(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 8, 2, 1);
    struct kb_partition *p = lead_part(&l, 0);
    lead_fill(&l, 0, 4);
    assert_int_equal(p->hw, 4);
    lead_fetch(&l, BY(.id = 1, .offset = 3, .last_epoch = 5));
    assert_int_equal(l.asks, 0);
    lead_fetch(&l, BY(.id = 1, .offset = 4, .last_epoch = 5));
    assert_int_equal(l.asks, 1);
    assert_string_equal(lead_asked_isr(&l, 0), "0,1:101");
    assert_int_equal(p->isr_count, 1);
    lead_fill(&l, 0, 1);
    assert_int_equal(p->hw, 4);
    lead_fetch(&l, BY(.id = 1, .offset = 5, .last_epoch = 5));
    assert_int_equal(p->hw, 5);
    assert_int_equal(l.asks, 1); /* one at a time */
    lead_commit(&l, 11, with1, 2);
    assert_int_equal(p->isr_count, 2);
    lead_down(&l);
}

/* Rule 18: not in an earlier life (BR-08), not fenced, not on its way out (BR-07), and not before the epoch's start, though that be above the high
 * watermark (BR-04). */
static void test_br04_br07_br08_not_eligible(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 9, 2, 1);
    lead_fill(&l, 0, 2);
    lead_broker(&l, (struct lead_broker){.id = 1, .epoch = 101, .fenced = true});
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
    lead_broker(&l, (struct lead_broker){.id = 1, .epoch = 101, .leaving = true});
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
    lead_broker(&l, (struct lead_broker){.id = 1, .epoch = 101});
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5, .broker_epoch = 150)); /* a life that the image does not know yet */
    assert_int_equal(l.asks, 0);
    lead_config(&l, "min.insync.replicas", "2"); /* the high watermark stays */
    lead_fill(&l, 0, 2);
    lead_change(&l, 0, 0, NULL, -1); /* the epoch begins at 4, the high watermark is 2 */
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5, .leader_epoch = 6));
    assert_int_equal(l.asks, 0);
    lead_fetch(&l, BY(.id = 1, .offset = 4, .last_epoch = 5, .leader_epoch = 6));
    assert_int_equal(l.asks, 1);
    lead_down(&l);
}

/* One that keeps up under load is waited for, or it would never reach the high watermark. */
static void test_joins_under_load(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 10, 2, 1);
    struct kb_partition *p = lead_part(&l, 0);
    lead_fill(&l, 0, 10);
    lead_fetch(&l, BY(.id = 1, .offset = 8, .last_epoch = 5));
    lead_fill(&l, 0, 1);
    lead_fetch(&l, BY(.id = 1, .offset = 10, .last_epoch = 5)); /* all that there was at its last fetch */
    assert_int_equal(p->hw, 11);
    lead_fill(&l, 0, 1);
    assert_int_equal(p->hw, 11); /* waits */
    lead_fetch(&l, BY(.id = 1, .offset = 11, .last_epoch = 5));
    assert_int_equal(l.asks, 1);
    lead_down(&l);
}

/* Rule 17: sent again, the same, whatever happened to it; the image may know first. */
static void test_sent_again(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 11, 2, 1);
    struct kb_partition *p = lead_part(&l, 0);
    l.no_controller = true;
    lead_fetch(&l, BY(.id = 1));
    rig_pass(&l.r, 200000);
    assert_int_equal(l.asks, 0);
    l.no_controller = false;
    rig_pass(&l.r, 100000);
    assert_int_equal(l.asks, 1);
    lead_broker(&l, (struct lead_broker){.id = 1, .epoch = 160}); /* it lives anew: the wish is not about that life */
    lead_answer(&l, KW_EIO, (struct lead_answer){0});
    assert_null(l.call);
    rig_pass(&l.r, 100000);
    assert_int_equal(l.asks, 2);
    assert_string_equal(lead_asked_isr(&l, 0), "0,1:101");
    const int16_t codes[] = {KE_NOT_CONTROLLER, KE_STALE_BROKER_EPOCH};
    for (size_t i = 0; i < 2; i++) {
        lead_answer(&l, KW_OK, (struct lead_answer){.top = codes[i]});
        rig_pass(&l.r, 100000);
        assert_int_equal(l.asks, 3 + (int)i);
        assert_string_equal(lead_asked_isr(&l, 0), "0,1:101");
    }
    lead_answer(&l, KW_OK, (struct lead_answer){.code = KE_INVALID_UPDATE_VERSION}); /* it was carried out before: the image will say so */
    lead_change(&l, 0, -2, with1, 2);
    assert_int_equal(p->isr_count, 2);
    rig_pass(&l.r, 5000000);
    assert_int_equal(l.asks, 4);
    lead_down(&l);
}

static void test_other_codes_are_tried_again(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 12, 2, 1);
    lead_fetch(&l, BY(.id = 1));
    const int16_t codes[] = {KE_INVALID_UPDATE_VERSION, KE_INVALID_REQUEST, KE_FENCED_LEADER_EPOCH, KE_UNKNOWN_TOPIC_ID, KE_NEW_LEADER_ELECTED};
    for (size_t i = 0; i < KW_COUNTOF(codes); i++) {
        assert_int_equal(l.asks, 1 + (int)i);
        lead_answer(&l, KW_OK, (struct lead_answer){.code = codes[i]});
        rig_pass(&l.r, 500000);
        assert_int_equal(l.asks, 1 + (int)i); /* not at once */
        rig_pass(&l.r, 600000);
        assert_int_equal(l.asks, 2 + (int)i);
        assert_string_equal(lead_asked_isr(&l, 0), "0,1:101");
    }
    lead_down(&l);
}

/* Rule 17, BR-07: taken back only when it was refused for what it is; then those in sync are the ones that were committed last. */
static void test_br07_refused(void **state) {
    (void)state;
    const int16_t codes[] = {KE_INELIGIBLE_REPLICA, KE_OPERATION_NOT_ATTEMPTED};
    for (size_t i = 0; i < 2; i++) {
        struct lead l;
        lead_up(&l, 13, 2, 1);
        struct kb_partition *p = lead_part(&l, 0);
        lead_fill(&l, 0, 1);
        lead_fetch(&l, BY(.id = 1, .offset = 1, .last_epoch = 5));
        lead_broker(&l, (struct lead_broker){.id = 1, .epoch = 101, .fenced = true});
        lead_fill(&l, 0, 1);
        assert_int_equal(p->hw, 1);
        lead_answer(&l, KW_OK, (struct lead_answer){.code = codes[i]});
        assert_int_equal(p->hw, 2); /* nobody is waited for any more */
        lead_broker(&l, (struct lead_broker){.id = 1, .epoch = 101});
        lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
        rig_pass(&l.r, 50000);
        assert_int_equal(l.asks, 1); /* not in the same breath */
        rig_pass(&l.r, 300000);
        lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
        assert_int_equal(l.asks, 2);
        lead_down(&l);
    }
}

/* Rule 17: only what is newer than what is known. */
static void test_old_answer(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 14, 3, 3);
    struct kb_partition *p = lead_part(&l, 0);
    lead_fill(&l, 0, 1);
    rig_pass(&l.r, 2 * LAG_US);
    assert_string_equal(lead_asked_isr(&l, 0), "0");
    lead_change(&l, 0, -2, with1, 2); /* the controller fenced 2 meanwhile: epoch 11 */
    lead_commit(&l, 11, only0, 1);    /* not what the image of that epoch says */
    assert_int_equal(p->isr_count, 2);
    assert_int_equal(p->isr[1], 1);
    lead_change(&l, 0, 0, NULL, -1); /* a new leader epoch: what is under way is void */
    assert_int_equal(p->leader_epoch, 6);
    lead_down(&l);
    lead_up(&l, 21, 3, 3);
    p = lead_part(&l, 0);
    rig_pass(&l.r, 2 * LAG_US);
    lead_commit(&l, 10, only0, 1); /* no newer than what is known */
    assert_int_equal(p->isr_count, 3);
    rig_pass(&l.r, 2000000);
    lead_commit(&l, 12, only0, 1);
    assert_int_equal(p->isr_count, 1);
    lead_change(&l, 0, -2, with1, 2); /* the image is at 11 now */
    assert_int_equal(p->isr_count, 1);
    lead_change(&l, 0, -2, only0, 1);
    assert_int_equal(p->isr_count, 1);
    assert_int_equal(p->partition_epoch, 12);
    lead_change(&l, 0, -2, with1, 2);
    assert_int_equal(p->isr_count, 2);
    lead_down(&l);
}

/* Many partitions, one request; those that come while it is under way go with the next. */
static void test_batched(void **state) {
    (void)state;
    struct lead l;
    lead_init(&l, 15);
    lead_start(&l);
    lead_topic(&l);
    for (int32_t i = 0; i < 6; i++) lead_partition(&l, i, 2, 2);
    for (int32_t i = 0; i < 5; i++) lead_fill(&l, i, 1);
    lead_fetch(&l, BY(.id = 1, .index = 5));
    rig_pass(&l.r, 2 * LAG_US);
    assert_int_equal(l.asks, 1);
    assert_int_equal(l.rq.topics.n, 1);
    assert_int_equal(l.rq.topics.v[0].partitions.n, 5);
    lead_fill(&l, 5, 1);
    rig_pass(&l.r, 2 * LAG_US);
    assert_int_equal(l.asks, 1);
    lead_commit(&l, 11, only0, 1);
    assert_int_equal(l.asks, 2);
    assert_int_equal(l.rq.topics.v[0].partitions.n, 1);
    assert_non_null(lead_asked(&l, 5));
    lead_commit(&l, 11, only0, 1);
    for (int32_t i = 0; i < 6; i++) assert_int_equal(lead_part(&l, i)->hw, 1);
    lead_down(&l);
}

/* Reassignment within the leader epoch: known replicas stay known, others come and go; one that this node is not in goes with its log. */
static void test_replicas_change(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 16, 2, 2);
    struct kb_partition *p = lead_part(&l, 0);
    lead_fill(&l, 0, 2);
    lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
    struct kw_partition_change_record c;
    kw_msg_init(&kw_partition_change_record_desc, &c);
    c.topic_id = lead_topic_id();
    c.partition_id = 0;
    c.replicas.v = (int32_t *)(uintptr_t)all3;
    c.replicas.n = 3;
    lead_tell(&l, KW_RECORD_PARTITION_CHANGE, &c);
    assert_int_equal(p->replica_count, 3);
    lead_fill(&l, 0, 1);
    lead_fetch(&l, BY(.id = 1, .offset = 3, .last_epoch = 5));
    assert_int_equal(p->hw, 3);
    lead_fetch(&l, BY(.id = 2, .offset = 3, .last_epoch = 5));
    assert_string_equal(lead_asked_isr(&l, 0), "0,1:101,2:102");
    lead_commit(&l, 12, all3, 3);
    lead_send(&l, l.c, 0, -1, 9);
    int32_t others[] = {1, 2};
    c.replicas.v = c.isr.v = others;
    c.replicas.n = c.isr.n = 2;
    c.leader = 1;
    lead_tell(&l, KW_RECORD_PARTITION_CHANGE, &c);
    rig_pass(&l.r, 1000);
    assert_null(lead_part(&l, 0));
    assert_int_equal(lead_produced(l.c, 9), KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(rig_fetch_one(l.c, RIG_FETCH(.topic = "t"))->error_code, KE_NOT_LEADER_OR_FOLLOWER);
    lead_down(&l);
}

/* Rule 17: the record that ends a reassignment changes ISR and replicas in one partition epoch. The answer tells the ISR, and the next is asked for; then
 * comes the image with the replicas of that epoch. What was asked for may be carried out, so it is waited for still; but not for one that is no replica. */
static void test_replicas_of_the_same_epoch(void **state) {
    static const int32_t all4[] = {0, 1, 2, 3};
    (void)state;
    for (int32_t who = 2; who <= 3; who++) { /* 2 stays, 3 goes */
        struct lead l;
        lead_up(&l, 24 + (uint64_t)who, 4, 1);
        lead_broker(&l, (struct lead_broker){.id = 3, .epoch = 103});
        struct kb_partition *p = lead_part(&l, 0);
        lead_fill(&l, 0, 2);
        lead_fetch(&l, BY(.id = 1, .offset = 2, .last_epoch = 5));
        assert_string_equal(lead_asked_isr(&l, 0), "0,1:101");
        lead_commit(&l, 11, with1, 2);
        lead_fetch(&l, BY(.id = who, .offset = 2, .last_epoch = 5));
        assert_string_equal(lead_asked_isr(&l, 0), who == 2 ? "0,1:101,2:102" : "0,1:101,3:103");
        struct kw_partition_change_record c;
        kw_msg_init(&kw_partition_change_record_desc, &c);
        c.topic_id = lead_topic_id();
        c.partition_id = 0;
        c.replicas.v = (int32_t *)(uintptr_t)all4;
        c.replicas.n = 3;
        c.isr.v = (int32_t *)(uintptr_t)with1;
        c.isr.n = 2;
        lead_tell(&l, KW_RECORD_PARTITION_CHANGE, &c);
        assert_int_equal(p->partition_epoch, 11);
        assert_int_equal(p->replica_count, 3);
        assert_int_equal(p->in_sync->wish_count, who == 2 ? 3 : 0); /* else no other could be wished for until it is answered */
        rig_pass(&l.r, 2 * LAG_US); /* long enough that it does not count as one that keeps up */
        lead_fill(&l, 0, 1);
        lead_fetch(&l, BY(.id = 1, .offset = 3, .last_epoch = 5));
        assert_int_equal(p->hw, who == 2 ? 2 : 3);
        lead_down(&l);
    }
}

/* Rule 23: with flush.on.ack this node's own end is what is synced. */
static void test_flush_on_ack(void **state) {
    (void)state;
    struct lead l;
    lead_init(&l, 17);
    rig_set(&l.r, "flush.on.ack", "true");
    lead_start(&l);
    lead_topic(&l);
    lead_partition(&l, 0, 2, 2);
    struct kb_partition *p = lead_part(&l, 0);
    lead_fill(&l, 0, 1);
    lead_fetch(&l, BY(.id = 1, .offset = 1, .last_epoch = 5));
    assert_int_equal(p->hw, 1);
    assert_int_equal(p->log->synced, 1);
    lead_down(&l);
}

/* In a cluster: what the metadata says of an earlier life of this node does not make it lead; its registration does, once it is applied. */
static void test_leads_in_this_life(void **state) {
    (void)state;
    struct lead l;
    lead_init(&l, 18);
    lead_start(&l);
    struct kb_store *s = l.r.node->parts.store;
    int64_t own = kb_store_broker_epoch(s);
    s->single = false;
    kb_store_set_broker_epoch(s, -1);
    lead_topic(&l);
    lead_partition(&l, 0, 2, 1);
    lead_partition(&l, 1, 1, 1);
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(lead_part(&l, i)->state, KB_PART_ONLINE);
        assert_int_equal(lead_part(&l, i)->role, KB_PART_IDLE);
        lead_send(&l, l.c, i, 1, 1);
        assert_int_equal(lead_produced(l.c, 1), KE_NOT_LEADER_OR_FOLLOWER);
    }
    kb_store_set_broker_epoch(s, 500); /* the controller's answer; the image is behind */
    lead_change(&l, 0, 0, NULL, -1);
    assert_int_equal(lead_part(&l, 0)->role, KB_PART_IDLE);
    lead_broker(&l, (struct lead_broker){.id = 0, .epoch = 500});
    for (int32_t i = 0; i < 2; i++) {
        assert_int_equal(lead_part(&l, i)->role, KB_PART_LEADS);
        lead_fill(&l, i, 1);
        assert_int_equal(lead_part(&l, i)->hw, 1);
    }
    s->single = true;
    kb_store_set_broker_epoch(s, own);
    lead_down(&l);
}

/* A request that is refused as a whole is asked again ever more seldom, and said once; until one is taken. */
static void test_refused_as_a_whole(void **state) {
    (void)state;
    struct lead l;
    lead_up(&l, 20, 2, 1);
    lead_fetch(&l, BY(.id = 1));
    for (int64_t t = 0; t < 10000000; t += 10000) {
        if (l.call) lead_answer(&l, KW_OK, (struct lead_answer){.top = KE_STALE_BROKER_EPOCH});
        rig_pass(&l.r, 10000);
    }
    assert_in_range(l.asks, 5, 12);
    const char *line = strstr(l.r.lines, "STALE_BROKER_EPOCH");
    assert_non_null(line);
    assert_null(strstr(line + 1, "STALE_BROKER_EPOCH"));
    for (int i = 0; i < 3 && !l.call; i++) rig_pass(&l.r, 1000000);
    lead_commit(&l, 11, with1, 2);
    assert_int_equal(lead_part(&l, 0)->isr_count, 2);
    lead_down(&l);
}

static uint64_t allocations; /* the table stays when its test is over: it is malloc with a count */
static void *counting_malloc(size_t n, void *ctx) {
    (void)ctx;
    allocations++;
    return malloc(n);
}
static void *counting_realloc(void *p, size_t n, void *ctx) {
    (void)ctx;
    allocations++;
    return realloc(p, n);
}
static void counting_free(void *p, void *ctx) {
    (void)ctx;
    free(p);
}

/* Nothing is allocated for partitions of which nobody has fallen behind. */
static void test_the_watch_needs_no_memory(void **state) {
    (void)state;
    static const struct kw_allocator counting = {.malloc_fn = counting_malloc, .realloc_fn = counting_realloc, .free_fn = counting_free};
    struct lead l;
    lead_up(&l, 21, 2, 2);
    for (int32_t i = 1; i < 8; i++) lead_partition(&l, i, 2, 2);
    for (int32_t i = 0; i < 8; i++) {
        lead_fill(&l, i, 1);
        lead_fetch(&l, BY(.id = 1, .index = i, .offset = 1, .last_epoch = 5));
    }
    rig_pass(&l.r, 100000000); /* checkpoints are written */
    kw_allocator_set(&counting);
    allocations = 0;
    rig_pass(&l.r, 10 * LAG_US);
    uint64_t seen = allocations;
    assert_int_equal(seen, 0);
    assert_int_equal(l.asks, 0);
    lead_down(&l);
}

/* DeleteRecords waits for live replicas, in sync or not; one that is fenced meanwhile, out of sync, is not waited for any longer. */
static void test_delete_records_and_a_replica_that_goes(void **state) {
    (void)state;
    struct lead l;
    struct kw_delete_records_request req;
    struct kw_delete_records_response resp;
    struct kw_delete_records_request_delete_records_partition part = {.offset = 3};
    struct kw_delete_records_request_delete_records_topic t = {.name = kw_str_of("t"), .partitions = {&part, 1}};
    lead_up(&l, 22, 3, 2);
    lead_fill(&l, 0, 5);
    lead_fetch(&l, BY(.id = 1, .offset = 5, .last_epoch = 5));
    lead_fetch(&l, BY(.id = 2, .offset = 1, .last_epoch = 5));
    kw_msg_init(&kw_delete_records_request_desc, &req);
    req.topics.v = &t;
    req.topics.n = 1;
    req.timeout_ms = 30000;
    rig_request(l.c, KW_API_DELETE_RECORDS, 2, 77, &req);
    rig_settle(&l.r);
    lead_fetch(&l, BY(.id = 1, .offset = 5, .last_epoch = 5, .log_start = 3));
    rig_pass(&l.r, 1000000);
    assert_false(rig_response(l.c, KW_API_DELETE_RECORDS, 2, 77, &resp)); /* 2 lives, and has not told */
    struct kw_broker_registration_change_record fenced = {.broker_id = 2, .broker_epoch = 102, .fenced = 1};
    lead_tell(&l, KW_RECORD_BROKER_REGISTRATION_CHANGE, &fenced);
    assert_true(rig_response(l.c, KW_API_DELETE_RECORDS, 2, 77, &resp));
    assert_int_equal(resp.topics.v[0].partitions.v[0].error_code, KE_NONE);
    assert_int_equal(resp.topics.v[0].partitions.v[0].low_watermark, 3);
    lead_down(&l);
}

/* Without memory nothing is lost: it is tried again. */
static void test_no_memory(void **state) {
    (void)state;
    for (int64_t n = 0; n < 3; n++) { /* the wish, and the two halves of the request */
        struct lead l;
        lead_up(&l, 19, 2, 2);
        lead_fill(&l, 0, 1);
        rig_pass(&l.r, LAG_US - 1000);
        kw_alloc_fail_after(n);
        for (int i = 0; i < 100 && !l.call; i++) rig_pass(&l.r, LAG_US / 10);
        kw_alloc_fail_after(-1);
        assert_string_equal(lead_asked_isr(&l, 0), "0");
        lead_commit(&l, 11, only0, 1);
        assert_int_equal(lead_part(&l, 0)->hw, 1);
        lead_down(&l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hw),
        cmocka_unit_test(test_what_counts),
        cmocka_unit_test(test_forged),
        cmocka_unit_test(test_new_epoch),
        cmocka_unit_test(test_epoch_unknown_here),
        cmocka_unit_test(test_burst_keeps_isr),
        cmocka_unit_test(test_ahead_keeps_isr),
        cmocka_unit_test(test_br10_shrink),
        cmocka_unit_test(test_silent_but_whole),
        cmocka_unit_test(test_below_min),
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_br04_br07_br08_not_eligible),
        cmocka_unit_test(test_joins_under_load),
        cmocka_unit_test(test_sent_again),
        cmocka_unit_test(test_other_codes_are_tried_again),
        cmocka_unit_test(test_br07_refused),
        cmocka_unit_test(test_old_answer),
        cmocka_unit_test(test_batched),
        cmocka_unit_test(test_replicas_change),
        cmocka_unit_test(test_replicas_of_the_same_epoch),
        cmocka_unit_test(test_flush_on_ack),
        cmocka_unit_test(test_leads_in_this_life),
        cmocka_unit_test(test_refused_as_a_whole),
        cmocka_unit_test(test_the_watch_needs_no_memory),
        cmocka_unit_test(test_delete_records_and_a_replica_that_goes),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
