/* test_quorum_rules.c - what a voter's word and log count for while something is under way: a snapshot taken over, a folder that forgot, a fetch
 * that tells of no epoch, a leader that has nothing to say.
 */
#include "quorum_rig.h"

/* A follower far behind, at the step of its snapshot in which its log is emptied; NULL: it was too quick. */
static struct host *begin_reset(struct quorum *q, uint64_t seed) {
    q_init(q, 3, 3, seed);
    set_all(q, "metadata.log.max.record.bytes.between.snapshots", "2000");
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    q_agree(q, SECOND);
    struct host *behind = &q->h[(l->id + 1) % 3];
    q_kill(behind, false);
    for (int i = 0; i < 12; i++) append_some(q, l, 20);
    q_pass(q, SECOND);
    q_boot(behind);
    for (int i = 0; i < 20000; i++) {
        q_step(q, q->now.mono_us + 1000);
        if (q_store(behind) && q_store(behind)->raft && q_store(behind)->raft->install.step == KB_INSTALL_RESET) return behind;
    }
    return NULL;
}

/* What was committed and lies in the snapshot is not forgotten while the log is empty: one with less gets no vote. */
static void test_snapshot_counts_while_the_log_is_emptied(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    struct host *behind = begin_reset(q, 1);
    assert_non_null(behind);
    struct kb_raft *r = q_store(behind)->raft;
    int64_t end = r->install.end;
    assert_true(end > 20);
    struct kb_election_request ask = {.kind = KB_VOTE,
                                      .cluster_id = kw_str_null(),
                                      .voter_id = -1,
                                      .epoch = r->epoch + 1,
                                      .from = (behind->id + 1) % 3,
                                      .log_end = {.epoch = r->install.epoch, .offset = end - 1}};
    struct kb_election_reply reply;
    assert_int_equal(kb_raft_log_end(r).offset, end);
    assert_int_equal(kb_raft_log_end(r).epoch, r->install.epoch);
    kb_election_ask(&r->election, &ask, &reply, q->now.mono_us);
    assert_int_equal(reply.error, KE_NONE);
    assert_false(reply.granted);
    kb_election_forget(&r->election, &reply);
    q_agree(q, 10 * SECOND);
    q_deinit(q);
    free(q);
}

/* Elected while its log is being emptied it opens its epoch when that is done, and is not waited out. */
static void test_elected_while_the_log_is_emptied(void **state) {
    (void)state;
    int elected = 0;
    for (uint64_t seed = 1; seed <= 60 && elected < 3; seed++) {
        struct quorum *q = malloc(sizeof(*q));
        struct host *behind = begin_reset(q, seed);
        if (behind) {
            struct kb_raft *r = q_store(behind)->raft;
            sim_disk_faults(behind->r.disk)->slow_ppm = 0;
            q_kill(q_leader(q), false);
            for (int i = 0; i < 20000 && r->install.step == KB_INSTALL_RESET; i++) q_step(q, q->now.mono_us + 1000);
            if (r->leading) {
                elected++;
                q_turn(q);
                assert_true(r->epoch_start >= 0);
            }
            q_boot_all(q);
            q_agree(q, 20 * SECOND);
        }
        q_deinit(q);
        free(q);
    }
    assert_true(elected > 0);
}

/* Of five voters one was wiped and another is away: that one may stand by a vote that the first gave and knows no more, so it is waited for. */
static void test_wiped_voter_asks_all_others(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 5, 5, 1);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    append_some(q, l, 5);
    q_agree(q, SECOND);
    struct host *wiped = &q->h[(l->id + 1) % 5], *away = &q->h[(l->id + 2) % 5];
    q_kill(wiped, false);
    q_kill(away, false);
    q_wipe(wiped);
    q_boot(wiped);
    q_pass(q, 5 * SECOND);
    assert_int_equal(q_store(wiped)->raft->phase, KB_RAFT_FORGETFUL);
    assert_int_equal(wiped->r.node->image.offset, l->r.node->image.offset); /* it follows all the same */
    char text[64];
    snprintf(text, sizeof(text), "%d at h%d:9093", away->id, away->id);
    assert_true(said(wiped, text) && said(wiped, "it follows leader"));
    q_boot(away);
    q_agree(q, 5 * SECOND);
    assert_int_equal(q_store(wiped)->raft->phase, KB_RAFT_MEMBER);
    q_deinit(q);
    free(q);
}

/* A voter's fetch that names no epoch proves nothing about its log, wherever it begins: it acknowledges nothing. */
static void test_fetch_without_an_epoch_acknowledges_nothing(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 1);
    q_boot_all(q);
    struct host *l = q_wait_leader(q, 5 * SECOND);
    assert_non_null(l);
    append_some(q, l, 5);
    q_agree(q, SECOND);
    struct kw_uuid folder = q_store(&q->h[(l->id + 1) % 3])->load.directory_id;
    for (int i = 0; i < 3; i++)
        if (i != l->id) q_kill(&q->h[i], false);
    struct kb_raft *r = q_store(l)->raft;
    int64_t offset;
    assert_true(q_append(l, &offset));
    q_pass(q, 100000);
    struct kw_fetch_request_fetch_partition part = {.current_leader_epoch = r->epoch,
                                                    .fetch_offset = offset + 1,
                                                    .last_fetched_epoch = -1,
                                                    .log_start_offset = -1,
                                                    .partition_max_bytes = 1000,
                                                    .replica_directory_id = folder,
                                                    .high_watermark = -1};
    struct kw_fetch_request_fetch_topic topic = {.topic_id = kb_metadata_topic_id, .partitions = {&part, 1}};
    struct kw_fetch_request req;
    struct kw_fetch_response res;
    kw_msg_init(&kw_fetch_request_desc, &req);
    req.replica_state.replica_id = (l->id + 1) % 3;
    req.max_bytes = 1000;
    req.topics.v = &topic;
    req.topics.n = 1;
    struct rig_conn *c = rig_connect(&l->r);
    rig_request(c, kw_fetch_request_desc.api_key, kw_fetch_request_desc.max, 1, &req);
    for (int i = 0; i < 1000 && !rig_response(c, kw_fetch_request_desc.api_key, kw_fetch_request_desc.max, 1, &res); i++) q_pass(q, 1000);
    assert_true(r->hw <= offset);
    q_boot_all(q);
    q_agree(q, 5 * SECOND);
    q_deinit(q);
    free(q);
}

/* A leader with nothing to tell is heard of in time, however short the followers' patience is. */
static void test_idle_leader_is_heard_of(void **state) {
    static const char *const patience_ms[] = {"60", "300", "501", "1000"};
    (void)state;
    for (size_t i = 0; i < KW_COUNTOF(patience_ms); i++) {
        struct quorum *q = malloc(sizeof(*q));
        q_init(q, 3, 4, 1 + i);
        set_all(q, "controller.quorum.fetch.timeout.ms", patience_ms[i]);
        q_boot_all(q);
        struct host *l = q_wait_leader(q, 5 * SECOND);
        assert_non_null(l);
        q_agree(q, SECOND);
        int32_t epoch = q_store(l)->epoch;
        for (int k = 0; k < 100; k++) {
            q_pass(q, SECOND / 10);
            for (int h = 0; h < 4; h++) assert_int_equal(q_store(&q->h[h])->raft->leader, l->id);
        }
        assert_int_equal(q_store(l)->epoch, epoch);
        q_deinit(q);
        free(q);
    }
}

/* Two of three wait for the third: ever less often, and for ever. */
static void test_one_that_is_away_is_asked_seldom(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 1);
    q_boot(&q->h[1]);
    q_boot(&q->h[2]);
    q_pass(q, 20 * SECOND);
    uint32_t before = q->refused;
    q_pass(q, 60 * SECOND);
    assert_in_range(q->refused - before, 60, 2 * 75);
    q_boot(&q->h[0]);
    assert_non_null(q_wait_leader(q, 5 * SECOND));
    q_agree(q, 5 * SECOND);
    q_deinit(q);
    free(q);
}

/* A leader's log begins at its snapshot, which ends just where this node has all that is committed, and what this log has above that is of an epoch that
 * the leader does not know: that goes. A snapshot below that is no news, and said to be none. */
static void test_snapshot_at_what_is_committed(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 1);
    q_boot_all(q);
    struct host *old = q_wait_leader(q, 5 * SECOND);
    assert_non_null(old);
    append_some(q, old, 5);
    q_agree(q, SECOND);
    for (int i = 0; i < 3; i++)
        if (i != old->id) q->cut[old->id][i] = q->cut[i][old->id] = true;
    int64_t offset;
    for (int i = 0; i < 7; i++) assert_true(q_append(old, &offset));
    q_pass(q, 4 * SECOND);
    assert_false(q_leads(old));
    struct kb_raft *r = q_store(old)->raft;
    int64_t hw = r->hw;
    int32_t epoch = kb_epochs_at(q_store(old)->log->epochs, hw - 1);
    assert_true(q_store(old)->log->leo > hw);
    kb_raft_install(r, hw - 1, epoch, q->now);
    assert_int_equal(r->install.step, KB_INSTALL_NONE);
    assert_false(r->follow.cutting);
    assert_true(said(old, "is committed here"));
    kb_raft_install(r, hw, epoch, q->now);
    assert_true(r->follow.cutting);
    q_pass(q, SECOND / 10);
    assert_int_equal(q_store(old)->log->leo, hw);
    memset(q->cut, 0, sizeof(q->cut));
    q_agree(q, 10 * SECOND);
    q_deinit(q);
    free(q);
}

/* A high watermark within a batch, and a cut just there: batches go whole, so what counts as committed would be gone (fuzz_broker_quorum). */
static void test_cut_within_a_batch(void **state) {
    (void)state;
    struct quorum *q = malloc(sizeof(*q));
    q_init(q, 3, 3, 1);
    q_boot_all(q);
    struct host *old = q_wait_leader(q, 5 * SECOND);
    assert_non_null(old);
    append_some(q, old, 5);
    q_agree(q, SECOND);
    for (int i = 0; i < 3; i++)
        if (i != old->id) q->cut[old->id][i] = q->cut[i][old->id] = true;
    struct kw_config_record c;
    kw_msg_init(&kw_config_record_desc, &c);
    c.resource_type = 32;
    c.resource_name = c.name = c.value = kw_str_of("x");
    struct kb_store_record three[3];
    for (int i = 0; i < 3; i++) three[i] = (struct kb_store_record){.type = KW_RECORD_CONFIG, .version = 0, .message = &c};
    int64_t last;
    assert_int_equal(kb_store_append(q_store(old), three, 3, &last, q->now), KW_OK);
    q_pass(q, 4 * SECOND);
    assert_false(q_leads(old));
    struct kb_raft *r = q_store(old)->raft;
    r->hw = last; /* as a leader might tell that is none */
    kb_raft_cut(r, last, q->now);
    q_pass(q, SECOND / 10);
    assert_true(old->failed);
    assert_true(said(old, "in the middle of a batch"));
    q_deinit(q);
    free(q);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snapshot_counts_while_the_log_is_emptied),
        cmocka_unit_test(test_elected_while_the_log_is_emptied),
        cmocka_unit_test(test_wiped_voter_asks_all_others),
        cmocka_unit_test(test_fetch_without_an_epoch_acknowledges_nothing),
        cmocka_unit_test(test_idle_leader_is_heard_of),
        cmocka_unit_test(test_one_that_is_away_is_asked_seldom),
        cmocka_unit_test(test_snapshot_at_what_is_committed),
        cmocka_unit_test(test_cut_within_a_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
