/* test_controller_dirs.c - brokers whose logs or whole disks fail, as the controller takes it: AssignReplicasToDirs, offline directories in heartbeats
 * (KIP-858); who leads and who is in sync then, and once the log is back.
 */
#include "cluster_rig.h"

static struct rig r;
static const int AR[] = {0, 1, 2}, ONLY[] = {0};

static int setup(void **state) {
    (void)state;
    rig_init(&r, 3);
    return 0;
}
static int teardown(void **state) {
    (void)state;
    rig_deinit(&r);
    return 0;
}

static struct kw_uuid dir_of(int i) {
    return (struct kw_uuid){{1, (uint8_t)(i + 1), r.b[i].dir}};
}

/* Broker i says that its replica of a partition is in this directory. */
static int16_t assign(int i, const char *topic, int32_t index, struct kw_uuid dir) {
    struct meta_change c;
    const struct kb_image_topic *t = kb_image_topic(&r.m.image, kw_str_of(topic));
    struct kb_dir_assign a = {.topic_id = t ? t->id : (struct kw_uuid){{7}}, .partition = index, .directory = dir};
    struct kb_dirs_request d = {.broker = rig_id(i), .broker_epoch = r.b[i].epoch, .items = &a};
    assert_int_equal(kb_controller_assign_dirs(r.m.controller, &d, 1, meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(c.done, 1);
    assert_int_equal(d.stale, a.result.code == KE_STALE_BROKER_EPOCH);
    return a.result.code;
}
static int16_t lose(int i, const char *topic) {
    return assign(i, topic, 0, kb_directory_lost);
}
static int16_t mend(int i, const char *topic) {
    return assign(i, topic, 0, dir_of(i));
}

static int16_t set_isr(const char *topic, const char *text) {
    const struct kb_image_partition *p = rig_partition(&r, topic, 0);
    int32_t ids[BROKERS], room[BROKERS], n = 0;
    struct meta_change c;
    for (; *text; text++) ids[n++] = rig_id(*text - '0');
    struct kb_isr_alter a = {.topic = kw_str_of(topic), .leader_epoch = p->leader_epoch, .partition_epoch = p->partition_epoch, .isr = ids,
                             .isr_count = n, .isr_room = room};
    struct kb_isr_request q = {.broker = p->leader, .broker_epoch = r.b[p->leader - ID0].epoch, .items = &a};
    assert_int_equal(kb_controller_alter_isr(r.m.controller, &q, 1, meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(c.done, 1);
    return a.result.code;
}

/* The leader's log fails: another in-sync replica leads, in a new epoch; other partitions of that broker stay as they are. */
static void test_the_leader_hands_over(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(rig_topic(&r, "other", 1, AR, 3), 0);
    assert_int_equal(lose(0, "t"), 0);
    STATE(&r, "t", 0, "1 (1,2)");
    STATE(&r, "other", 0, "0 (0,1,2)");
    const struct kb_image_partition *p = rig_partition(&r, "t", 0);
    assert_int_equal(p->leader_epoch, 1);
    assert_int_equal(p->partition_epoch, 1); /* one record */
    assert_true(kb_elect_is_lost(p, rig_id(0)));
    assert_false(kb_elect_is_lost(p, rig_id(1)));
    assert_non_null(strstr(r.m.lines, "broker 10 cannot use the logs of 1 partitions any more: 1 of them have a new leader, 0 have none"));
    assert_int_equal(lose(0, "t"), 0); /* said twice: as it is */
    assert_int_equal(rig_partition(&r, "t", 0)->partition_epoch, 1);
}

/* A follower's log fails: it leaves the in-sync replicas at once, and nobody lets it in again, until it is mended. */
static void test_a_follower_stays_out(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(lose(1, "t"), 0);
    STATE(&r, "t", 0, "0 (0,2)");
    assert_int_equal(rig_partition(&r, "t", 0)->leader_epoch, 0);
    assert_int_equal(set_isr("t", "012"), KE_INELIGIBLE_REPLICA);
    rig_kill(&r, 1);
    rig_run(&r, 100000);
    rig_up(&r, 1, -2); /* started anew is not enough */
    assert_int_equal(set_isr("t", "012"), KE_INELIGIBLE_REPLICA);
    assert_int_equal(mend(1, "t"), 0);
    STATE(&r, "t", 0, "0 (0,2)"); /* it has to catch up first */
    assert_true(kw_uuid_eq(rig_partition(&r, "t", 0)->directories[1], dir_of(1)));
    assert_int_equal(set_isr("t", "012"), 0);
    STATE(&r, "t", 0, "0 (0,1,2)");
}

/* Deaths of others do not bring it back, nor does a new controller. */
static void test_it_is_not_elected(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 2), 0);
    assert_int_equal(lose(0, "t"), 0);
    STATE(&r, "t", 0, "1 (1)");
    rig_kill(&r, 1);
    rig_run(&r, 100000);
    STATE(&r, "t", 0, "- (1)");
    assert_int_equal(rig_config(&r, 2, "t", "unclean.leader.election.enable", "true"), 0);
    rig_commit(&r);
    STATE(&r, "t", 0, "- (1)"); /* it cannot */
    kb_controller_resign(r.m.controller, r.m.now);
    kb_controller_activate(r.m.controller, r.m.now);
    rig_commit(&r);
    STATE(&r, "t", 0, "- (1)");
    assert_int_equal(mend(0, "t"), 0);
    STATE(&r, "t", 0, "0 (0)"); /* unclean: it can now */
    assert_int_equal(kb_controller_counts(r.m.controller)->unclean_elections, 1);
}

/* The last in-sync replica: nobody leads. What it had acknowledged and not synced may be gone when it comes back, which is said. */
static void test_the_last_in_sync(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 2), 0);
    assert_int_equal(rig_topic(&r, "safe", 1, AR, 2), 0);
    assert_int_equal(rig_config(&r, 2, "safe", "flush.on.ack", "true"), 0);
    assert_int_equal(lose(1, "t") | lose(1, "safe"), 0);
    STATE(&r, "t", 0, "0 (0)");
    assert_int_equal(lose(0, "t") | lose(0, "safe"), 0);
    STATE(&r, "t", 0, "- (0)");
    assert_int_equal(mend(1, "t"), 0);
    STATE(&r, "t", 0, "- (0)"); /* it does not have all */
    assert_int_equal(kb_controller_counts(r.m.controller)->last_known_leaders, 0);
    assert_int_equal(mend(0, "t"), 0);
    STATE(&r, "t", 0, "0 (0)");
    assert_int_equal(kb_controller_counts(r.m.controller)->last_known_leaders, 1);
    assert_int_equal(mend(0, "safe"), 0);
    STATE(&r, "safe", 0, "0 (0)");
    assert_int_equal(kb_controller_counts(r.m.controller)->last_known_leaders, 1); /* all that it acknowledged was on the disk */
}

/* Its log is there and lacks something that it acknowledged: it counts for nothing, whatever its topic syncs, until it has caught up. */
static void test_a_log_that_lacks_something(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(rig_topic(&r, "safe", 1, AR, 3), 0);
    assert_int_equal(rig_config(&r, 2, "safe", "flush.on.ack", "true"), 0);
    assert_int_equal(assign(3, "t", 0, kb_directory_lacking), KE_STALE_BROKER_EPOCH);
    for (int i = 0; i < 3; i++) rig_kill(&r, i);
    rig_run(&r, 100000);
    STATE(&r, "t", 0, "- (0,1,2)");
    r.b[0].incarnation++;
    r.dial_refused[0] = false;
    assert_int_equal(rig_register(&r, 0, -2), 0);
    assert_int_equal(assign(0, "t", 0, kb_directory_lacking) | assign(0, "safe", 0, kb_directory_lacking), 0);
    STATE(&r, "t", 0, "- (1,2)");
    STATE(&r, "safe", 0, "- (1,2)");
    assert_true(kw_uuid_eq(rig_partition(&r, "t", 0)->directories[0], dir_of(0)));
    assert_non_null(strstr(r.m.lines, "t-0: the log of broker 10 lacks something that was acknowledged: it is not in sync any more"));
    int32_t epoch = rig_partition(&r, "t", 0)->partition_epoch;
    assert_int_equal(assign(0, "t", 0, kb_directory_lacking), 0); /* again: as it is */
    assert_int_equal(rig_partition(&r, "t", 0)->partition_epoch, epoch);
    rig_unfence(&r, 0);
    STATE(&r, "t", 0, "- (1,2)");
    rig_up(&r, 2, -2);
    STATE(&r, "t", 0, "2 (2)");
    assert_int_equal(set_isr("t", "20"), 0); /* it has caught up */
    assert_int_equal(kb_controller_counts(r.m.controller)->unclean_elections + kb_controller_counts(r.m.controller)->last_known_leaders, 0);
}

/* The last in sync: nobody else has more. */
static void test_the_last_lacks_something(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 2), 0);
    assert_int_equal(set_isr("t", "0"), 0);
    rig_kill(&r, 0);
    rig_run(&r, 100000);
    r.b[0].incarnation++;
    r.dial_refused[0] = false;
    assert_int_equal(rig_register(&r, 0, -2), 0);
    assert_int_equal(assign(0, "t", 0, kb_directory_lacking), 0);
    STATE(&r, "t", 0, "- (0)");
    assert_non_null(strstr(r.m.lines, "it was the last in sync"));
    rig_unfence(&r, 0);
    STATE(&r, "t", 0, "0 (0)");
}

/* The last choice of an unclean election is who may have lost something before it registered: not a broker that was new then, with nothing to lose, but one
 * that comes back without its id's past, be it that the id was given up meanwhile. */
static void test_a_new_broker_is_not_weak(void **state) {
    (void)state;
    static const int OTHERS[] = {1, 0, 2};
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(rig_topic(&r, "u", 1, OTHERS, 3), 0);
    rig_kill(&r, 1);
    rig_run(&r, 100000);
    rig_up(&r, 1, -1); /* its machine went down */
    assert_int_equal(set_isr("t", "2") | set_isr("u", "2"), KE_INVALID_REQUEST); /* the leader stays */
    assert_int_equal(assign(0, "t", 0, kb_directory_lacking) | assign(0, "u", 0, kb_directory_lacking), 0);
    STATE(&r, "t", 0, "2 (2)");
    STATE(&r, "u", 0, "2 (2)");
    assert_int_equal(rig_config(&r, 2, "t", "unclean.leader.election.enable", "true"), 0);
    assert_int_equal(rig_config(&r, 2, "u", "unclean.leader.election.enable", "true"), 0);
    rig_kill(&r, 2);
    rig_run(&r, 100000);
    STATE(&r, "t", 0, "0 (0)");
    STATE(&r, "u", 0, "0 (0)"); /* though 1 comes first */
}

/* It is moved away from, and other moves do not mend it. */
static void test_reassigned(void **state) {
    (void)state;
    struct meta_change c;
    int32_t to[] = {rig_id(0), rig_id(2)};
    assert_int_equal(rig_topic(&r, "t", 1, AR, 2), 0);
    assert_int_equal(lose(0, "t"), 0);
    struct kb_reassign a = {.topic = kw_str_of("t"), .replicas = to, .replica_count = 2};
    assert_int_equal(kb_controller_reassign(r.m.controller, &a, 1, meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(a.result.code, 0);
    assert_true(kb_elect_is_lost(rig_partition(&r, "t", 0), rig_id(0)));
    assert_int_equal(set_isr("t", "12"), 0); /* what is added is in sync, what is to stay is not: the move goes on */
    STATE(&r, "t", 0, "1 (1,2)");
    assert_int_equal(rig_partition(&r, "t", 0)->removing_count, 1);
    assert_true(kb_elect_is_lost(rig_partition(&r, "t", 0), rig_id(0)));
    int32_t away[] = {rig_id(2)};
    a = (struct kb_reassign){.topic = kw_str_of("t"), .replicas = away, .replica_count = 1};
    assert_int_equal(kb_controller_reassign(r.m.controller, &a, 1, meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(rig_partition(&r, "t", 0)->replica_count, 1);
    assert_int_equal(rig_partition(&r, "t", 0)->directory_count, 1);
    assert_true(kw_uuid_eq(rig_partition(&r, "t", 0)->directories[0], dir_of(2)));
}

static void test_refused(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 2), 0);
    assert_int_equal(lose(2, "t"), KE_NOT_LEADER_OR_FOLLOWER);
    assert_int_equal(assign(0, "t", 1, kb_directory_lost), KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(assign(0, "t", -1, kb_directory_lost), KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(assign(0, "u", 0, kb_directory_lost), KE_UNKNOWN_TOPIC_ID);
    assert_int_equal(assign(0, "t", 0, dir_of(1)), KE_INVALID_REQUEST);
    assert_int_equal(assign(0, "t", 0, (struct kw_uuid){{0}}), KE_INVALID_REQUEST);
    r.b[0].epoch--;
    assert_int_equal(lose(0, "t"), KE_STALE_BROKER_EPOCH);
    r.b[0].epoch++;
    STATE(&r, "t", 0, "0 (0,1)");
    assert_int_equal(rig_partition(&r, "t", 0)->partition_epoch, 0);
    kb_controller_resign(r.m.controller, r.m.now);
    assert_int_equal(lose(0, "t"), KE_NOT_CONTROLLER);
}

/* The only one in sync comes back with an emptied disk: its word alone does not make it whole. */
static void test_a_wiped_disk_is_not_mended_by_words(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 2), 0);
    assert_int_equal(set_isr("t", "0"), 0);
    rig_kill(&r, 0);
    rig_run(&r, 100000);
    r.b[0].dir++;
    rig_up(&r, 0, -1);
    assert_int_equal(mend(0, "t"), KE_INELIGIBLE_REPLICA);
    STATE(&r, "t", 0, "- (0)");
}

/* One that is alone: nobody else can lead. */
static void test_a_single_replica(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, ONLY, 1), 0);
    assert_int_equal(lose(0, "t"), 0);
    STATE(&r, "t", 0, "- (0)");
    assert_int_equal(mend(0, "t"), 0);
    STATE(&r, "t", 0, "0 (0)");
}

/* ---- Heartbeats ---- */

static struct rig_beat beat(int i, const struct kw_uuid *offline, int32_t n) {
    struct rig_beat t = {.h = {.id = rig_id(i), .epoch = r.b[i].epoch, .metadata_offset = r.m.image.offset, .offline_dirs = offline,
                               .offline_dir_count = n, .conn = &r.b[i].conn, .done = rig_beat_done}};
    t.h.ctx = &t;
    if (!kb_controller_heartbeat(r.m.controller, &t.h, r.m.now)) {
        rig_commit(&r);
        assert_int_equal(t.done, 1);
    }
    assert_int_equal(t.h.code, 0);
    return t;
}

/* All its directories are offline: it is fenced, and what it led is led elsewhere. */
static void test_a_disk_goes_offline(void **state) {
    (void)state;
    struct kw_uuid dirs[] = {{{77}}, dir_of(0)};
    assert_int_equal(rig_topic(&r, "t", 2, AR, 3), 0);
    r.b[0].beats = false;
    assert_false(beat(0, dirs, 1).h.fenced); /* one that it never had */
    STATE(&r, "t", 0, "0 (0,1,2)");
    assert_true(beat(0, dirs, 2).h.fenced);
    STATE(&r, "t", 0, "1 (1,2)");
    STATE(&r, "t", 1, "1 (1,2)");
    assert_non_null(strstr(r.m.lines, "broker 10 has lost its data folder"));
    assert_true(beat(0, dirs, 2).h.fenced); /* as long as it says so */
    assert_true(rig_fenced(&r, 0));
    assert_false(beat(0, NULL, 0).h.fenced);
    assert_false(rig_fenced(&r, 0));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_the_leader_hands_over), TEST(test_a_follower_stays_out),
        TEST(test_it_is_not_elected),     TEST(test_the_last_in_sync),
        TEST(test_reassigned),            TEST(test_refused),
        TEST(test_a_log_that_lacks_something), TEST(test_the_last_lacks_something),
        TEST(test_a_wiped_disk_is_not_mended_by_words), TEST(test_a_single_replica),
        TEST(test_a_disk_goes_offline), TEST(test_a_new_broker_is_not_weak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
