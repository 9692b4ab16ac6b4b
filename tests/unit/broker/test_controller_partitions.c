/* test_controller_partitions.c - in-sync replicas, elections, placement: a test a rule; the failure scenarios 1, 2, 3 and 6 of the
 * requirements as the controller sees them; failing allocations; a random history of brokers with its invariants.
 */
#include "cluster_steps.h"

/* ---- AlterPartition ---- */

static void test_alter_partition(void **state) {
    (void)state;
    struct isr s;
    assert_int_equal(rig_topic(&r, "t", 2, AR, 3), 0);
    assert_int_equal(isr_run(isr_of(&s, "t", 1, "01")), 0);
    STATE(&r, "t", 1, "0 (0,1)");
    assert_int_equal(s.a.now_partition_epoch, 1);
    assert_int_equal(s.a.now_leader_epoch, 0);
    assert_int_equal(s.a.leader, rig_id(0));
    assert_int_equal(s.a.now_isr_count, 2);
    assert_int_equal(rig_partition(&r, "t", 1)->partition_epoch, 1);
    assert_int_equal(rig_partition(&r, "t", 1)->leader_epoch, 0);
    int64_t leo = r.m.store->log->leo;
    assert_int_equal(isr_run(isr_of(&s, "t", 1, "01")), 0); /* as it is: no record */
    assert_int_equal(r.m.store->log->leo, leo);
    assert_int_equal(s.a.now_partition_epoch, 1);
    s.a.topic = kw_str_of("t"); /* by name, as before v2 */
    s.a.broker_epochs = NULL;
    s.ids[2] = rig_id(2);
    s.a.isr_count = 3;
    assert_int_equal(isr_run(&s), 0);
    STATE(&r, "t", 1, "0 (0,1,2)");
    STATE(&r, "t", 0, "0 (0,1,2)");
}

static void test_br07_br08_alter_partition_is_guarded(void **state) {
    (void)state;
    struct isr s;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(set_isr("t", 0, "01"), 0);
    rig_kill(&r, 0);
    rig_run(&r, 100000);
    STATE(&r, "t", 0, "1 (1)");
    rig_up(&r, 0, -2);
    int64_t leo = r.m.store->log->leo;
    isr_of(&s, "t", 0, "12")->q.broker_epoch--;
    assert_int_equal(isr_run(&s), KE_STALE_BROKER_EPOCH);
    assert_true(s.q.stale);
    isr_of(&s, "t", 0, "12")->a.leader_epoch--;
    assert_int_equal(isr_run(&s), KE_FENCED_LEADER_EPOCH);
    isr_of(&s, "t", 0, "12")->a.partition_epoch--;
    assert_int_equal(isr_run(&s), KE_INVALID_UPDATE_VERSION);
    isr_of(&s, "t", 0, "12")->a.leader_epoch++;
    assert_int_equal(isr_run(&s), KE_NOT_CONTROLLER); /* it knows more than this node */
    isr_of(&s, "t", 0, "12")->a.partition_epoch++;
    assert_int_equal(isr_run(&s), KE_NOT_CONTROLLER);
    isr_of(&s, "t", 0, "12")->a.topic_id.b[3]++;
    assert_int_equal(isr_run(&s), KE_UNKNOWN_TOPIC_ID);
    isr_of(&s, "t", 0, "12")->a.partition = 1;
    assert_int_equal(isr_run(&s), KE_UNKNOWN_TOPIC_OR_PARTITION);
    isr_of(&s, "t", 0, "12")->q.broker = rig_id(2);
    s.q.broker_epoch = r.b[2].epoch;
    assert_int_equal(isr_run(&s), KE_INVALID_REQUEST); /* it does not lead */
    assert_int_equal(isr_run(isr_of(&s, "t", 0, "2")), KE_INVALID_REQUEST);   /* without the leader */
    assert_int_equal(isr_run(isr_of(&s, "t", 0, "")), KE_INVALID_REQUEST);    /* never empty */
    assert_int_equal(isr_run(isr_of(&s, "t", 0, "122")), KE_INVALID_REQUEST); /* twice */
    assert_int_equal(isr_run(isr_of(&s, "t", 0, "14")), KE_INVALID_REQUEST);  /* no replica */
    isr_of(&s, "t", 0, "1")->a.recovery_state = 1;
    assert_int_equal(isr_run(&s), KE_INVALID_REQUEST); /* it was not elected uncleanly */
    isr_of(&s, "t", 0, "10")->epochs[1]--; /* BR-08: what the leader heard of was an earlier life */
    assert_int_equal(isr_run(&s), KE_INELIGIBLE_REPLICA);
    assert_int_equal(r.m.store->log->leo, leo);
    rig_kill(&r, 2);
    rig_run(&r, 100000);
    assert_int_equal(set_isr("t", 0, "12"), KE_INELIGIBLE_REPLICA); /* BR-07: fenced */
    struct rig_beat t;
    r.b[0].beats = false;
    (void)rig_beat_start(&r, 0, &t, false, true);
    rig_commit(&r);
    assert_int_equal(set_isr("t", 0, "10"), KE_INELIGIBLE_REPLICA); /* BR-07: gone in order */
    assert_int_equal(set_isr("t", 0, "1"), 0);
}

/* What contradicts what is under way waits for it. */
static void test_changes_of_one_partition_follow_each_other(void **state) {
    (void)state;
    struct isr a, b;
    struct meta_change c;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    isr_start(isr_of(&a, "t", 0, "01"));
    isr_start(isr_of(&b, "t", 0, "02")); /* by the same epochs */
    struct kb_topic_ref gone = {.name = kw_str_of("t")};
    assert_int_equal(kb_controller_delete_topics(r.m.controller, &gone, 1, meta_change(&c), r.m.now), KW_OK);
    rig_kill(&r, 1); /* and a fencing, which has to be decided before the topic goes, or after */
    rig_run(&r, 200000);
    assert_int_equal(a.a.result.code, 0);
    assert_int_equal(b.a.result.code, KE_INVALID_UPDATE_VERSION);
    assert_int_equal(gone.result.code, 0);
    assert_int_equal(a.c.done + b.c.done + c.done, 3);
    assert_true(rig_fenced(&r, 1));
}

static void test_many_partitions_are_one_batch(void **state) {
    (void)state;
    enum { N = 500 };
    assert_int_equal(rig_topic(&r, "t", N, AR, 3), 0);
    struct isr *s = calloc(N, sizeof(*s));
    struct kb_isr_alter *items = calloc(N, sizeof(*items));
    for (int32_t i = 0; i < N; i++) items[i] = isr_of(&s[i], "t", i, i == 7 ? "0147" : "02")->a;
    struct kb_isr_request q = {.broker = rig_id(0), .broker_epoch = r.b[0].epoch, .items = items};
    struct meta_change c;
    int64_t leo = r.m.store->log->leo;
    assert_int_equal(kb_controller_alter_isr(r.m.controller, &q, N, meta_change(&c), r.m.now), KW_OK);
    assert_int_equal(r.m.store->log->leo, leo + N - 1); /* one of them is refused */
    rig_commit(&r);
    for (int32_t i = 0; i < N; i++) STATE(&r, "t", i, i == 7 ? "0 (0,1,2)" : "0 (0,2)");
    free(items);
    free(s);
}

/* ---- Scenarios ---- */

/* 1: 0 crashes: 1 leads alone; 0 comes back and may be let in again. */
static void test_scenario_1(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(set_isr("t", 0, "01"), 0);
    rig_kill(&r, 0);
    rig_run(&r, 100000);
    STATE(&r, "t", 0, "1 (1)");
    rig_up(&r, 0, -2);
    STATE(&r, "t", 0, "1 (1)");
    assert_int_equal(set_isr("t", 0, "10"), 0);
    STATE(&r, "t", 0, "1 (1,0)");
}

static void crash_0_then_1(void) {
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(set_isr("t", 0, "01"), 0);
    rig_kill(&r, 0);
    rig_run(&r, 100000);
    rig_kill(&r, 1);
    rig_run(&r, 100000);
    STATE(&r, "t", 0, "- (1)");
}

/* 2: 0, then 1. */
static void test_scenario_2_both_return(void **state) {
    (void)state;
    crash_0_then_1();
    rig_up(&r, 0, -2);
    STATE(&r, "t", 0, "- (1)"); /* it failed first */
    rig_up(&r, 1, -2);
    STATE(&r, "t", 0, "1 (1)");
    assert_int_equal(set_isr("t", 0, "10"), 0);
    assert_int_equal(kb_controller_counts(r.m.controller)->unclean_elections, 0);
}
static void test_scenario_2_only_0_returns(void **state) {
    (void)state;
    static const int other[] = {2, 1};
    assert_int_equal(rig_topic(&r, "strict", 1, other, 2), 0);
    assert_int_equal(rig_config(&r, 2, "strict", "unclean.leader.election.enable", "false"), 0);
    crash_0_then_1();
    rig_up(&r, 0, -2);
    assert_int_equal(kb_controller_counts(r.m.controller)->unclean_elections, 0);
    assert_int_equal(rig_config(&r, 2, "t", "unclean.leader.election.enable", "true"), 0); /* elects at once */
    rig_commit(&r);
    STATE(&r, "t", 0, "0 (0)");
    assert_int_equal(rig_partition(&r, "t", 0)->recovery_state, 1);
    assert_int_equal(kb_controller_counts(r.m.controller)->unclean_elections, 1);
    assert_non_null(strstr(r.m.lines, "unclean election: t-0 is led by broker 10, which was not in sync (in sync: 11)"));
    assert_int_equal(set_isr("t", 0, "0"), 0); /* recovered */
    assert_int_equal(rig_partition(&r, "t", 0)->recovery_state, 0);
    rig_up(&r, 1, -2); /* who led last comes too late */
    STATE(&r, "t", 0, "0 (0)");
}
static void test_scenario_2_neither_returns(void **state) {
    (void)state;
    crash_0_then_1();
    assert_int_equal(rig_config(&r, 4, "", "unclean.leader.election.enable", "true"), 0); /* the brokers' default */
    rig_commit(&r);
    STATE(&r, "t", 0, "2 (2)");
    assert_int_equal(kb_controller_counts(r.m.controller)->unclean_elections, 1);
}

/* 3: both at once. */
static void test_scenario_3(void **state) {
    (void)state;
    for (int first = 0; first < 2; first++) {
        char name[16];
        snprintf(name, sizeof(name), "t%d", first);
        assert_int_equal(rig_topic(&r, name, 1, AR, 3), 0);
        assert_int_equal(set_isr(name, 0, "01"), 0);
        rig_kill(&r, 0);
        rig_kill(&r, 1);
        rig_run(&r, 100000);
        STATE(&r, name, 0, "- (0,1)");
        rig_up(&r, first, -2);
        assert_int_equal(rig_partition(&r, name, 0)->leader, rig_id(first));
        assert_int_equal(rig_partition(&r, name, 0)->isr_count, 1);
        rig_up(&r, !first, -2);
    }
}

/* 6: the only one in sync comes back with an emptied disk. */
static void test_scenario_6(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(set_isr("t", 0, "0"), 0);
    rig_kill(&r, 0);
    rig_run(&r, 100000);
    STATE(&r, "t", 0, "- (0)");
    r.b[0].dir++;
    rig_up(&r, 0, -1);
    STATE(&r, "t", 0, "- (0)");
    assert_int_equal(rig_config(&r, 2, "t", "unclean.leader.election.enable", "true"), 0);
    rig_commit(&r);
    STATE(&r, "t", 0, "1 (1)");
    assert_int_equal(set_isr("t", 0, "10"), 0); /* caught up: it has the partition on the disk that it has now */
    rig_kill(&r, 1);
    rig_run(&r, 100000);
    STATE(&r, "t", 0, "0 (0)");
    assert_int_equal(kb_controller_counts(r.m.controller)->unclean_elections, 1);
}

/* The emptied disk of one among several in sync, while the others are away. */
static void test_a_wiped_disk_leaves_the_others_in_sync(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 2), 0);
    rig_kill(&r, 0);
    rig_kill(&r, 1);
    rig_run(&r, 100000);
    STATE(&r, "t", 0, "- (0,1)");
    r.b[0].dir++;
    rig_up(&r, 0, -2); /* whatever it says of its last epoch */
    STATE(&r, "t", 0, "- (1)");
    rig_up(&r, 1, -2);
    STATE(&r, "t", 0, "1 (1)");
}

/* ---- Machines that went down ---- */

/* BR-15: the acknowledged records are where power stayed on, and nobody else leads. */
static void test_br15_an_unclean_return(void **state) {
    (void)state;
    static const int only[] = {0};
    assert_int_equal(rig_topic(&r, "t", 1, AR, 2), 0);
    assert_int_equal(rig_topic(&r, "single", 1, only, 1), 0);
    assert_int_equal(rig_topic(&r, "safe", 1, AR, 2), 0);
    assert_int_equal(rig_config(&r, 2, "safe", "flush.on.ack", "true"), 0);
    rig_kill(&r, 0);
    rig_kill(&r, 1);
    rig_run(&r, 100000);
    STATE(&r, "t", 0, "- (0,1)");
    r.b[0].incarnation++;
    r.dial_refused[0] = false;
    assert_int_equal(rig_register(&r, 0, -1), 0);
    STATE(&r, "t", 0, "- (1)");      /* before it is registered, let alone unfenced */
    STATE(&r, "safe", 0, "- (0,1)"); /* all that it acknowledged was on the disk */
    STATE(&r, "single", 0, "- (0)"); /* the last */
    rig_unfence(&r, 0);
    STATE(&r, "t", 0, "- (1)");
    STATE(&r, "safe", 0, "0 (0)");
    STATE(&r, "single", 0, "0 (0)");
    assert_int_equal(kb_controller_counts(r.m.controller)->last_known_leaders, 1);
    assert_non_null(strstr(r.m.lines, "single-0 is led by its last known leader, broker 10"));
    assert_int_equal(set_isr("safe", 0, "0"), 0);
    rig_up(&r, 1, -1); /* the last of t, and lost too */
    STATE(&r, "t", 0, "1 (1)");
    assert_int_equal(kb_controller_counts(r.m.controller)->last_known_leaders, 2);
}

static void test_a_last_known_leader_that_may_not(void **state) {
    (void)state;
    static const int only[] = {0};
    meta_set(&r.m, "last.known.leader.enable", "false");
    assert_int_equal(rig_topic(&r, "single", 1, only, 1), 0);
    rig_kill(&r, 0);
    rig_run(&r, 100000);
    rig_up(&r, 0, -1);
    STATE(&r, "single", 0, "- ()");
    assert_int_equal(rig_partition(&r, "single", 0)->last_known_elr[0], rig_id(0));
    meta_set(&r.m, "last.known.leader.enable", "true");
    kb_controller_resign(r.m.controller, r.m.now);
    kb_controller_activate(r.m.controller, r.m.now);
    rig_commit(&r);
    STATE(&r, "single", 0, "0 (0)");
    assert_int_equal(rig_partition(&r, "single", 0)->last_known_elr_count, 0);
}

/* Killed before it was unfenced, again and again: what it had is still there. */
static void test_starts_that_did_not_get_far(void **state) {
    (void)state;
    static const int only[] = {0};
    assert_int_equal(rig_topic(&r, "single", 1, only, 1), 0);
    int64_t served = r.b[0].epoch;
    for (int i = 0; i < 3; i++) {
        rig_kill(&r, 0);
        rig_run(&r, 100000);
        r.b[0].incarnation++;
        assert_int_equal(rig_register(&r, 0, served), 0);
    }
    rig_unfence(&r, 0);
    STATE(&r, "single", 0, "0 (0)");
    assert_int_equal(kb_controller_counts(r.m.controller)->last_known_leaders, 0);
    rig_kill(&r, 0);
    rig_run(&r, 100000);
    r.b[0].incarnation++;
    assert_int_equal(rig_register(&r, 0, served), 0); /* a copy of an earlier day: it has served since */
    rig_unfence(&r, 0);
    assert_int_equal(kb_controller_counts(r.m.controller)->last_known_leaders, 1);
}

/* ---- Elections on demand ---- */

static int16_t elect(const char *topic, int32_t partition, int8_t type) {
    struct meta_change c;
    struct kb_leader_elect l = {.topic = kw_str_of(topic), .partition = partition, .type = type};
    assert_int_equal(kb_controller_elect_leaders(r.m.controller, &l, 1, meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(c.done, 1);
    return l.result.code;
}

static void test_elect_leaders(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(elect("t", 0, KB_ELECT_PREFERRED), KE_ELECTION_NOT_NEEDED);
    assert_int_equal(elect("t", 0, KB_ELECT_UNCLEAN), KE_ELECTION_NOT_NEEDED);
    assert_int_equal(elect("t", 1, KB_ELECT_PREFERRED), KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(elect("no", 0, KB_ELECT_PREFERRED), KE_UNKNOWN_TOPIC_OR_PARTITION);
    rig_kill(&r, 0);
    rig_run(&r, 100000);
    STATE(&r, "t", 0, "1 (1,2)");
    assert_int_equal(elect("t", 0, KB_ELECT_PREFERRED), KE_PREFERRED_LEADER_NOT_AVAILABLE);
    rig_up(&r, 0, -2);
    assert_int_equal(elect("t", 0, KB_ELECT_PREFERRED), KE_PREFERRED_LEADER_NOT_AVAILABLE); /* not in sync */
    assert_int_equal(set_isr("t", 0, "120"), 0);
    int32_t epoch = rig_partition(&r, "t", 0)->leader_epoch;
    assert_int_equal(elect("t", 0, KB_ELECT_PREFERRED), 0);
    STATE(&r, "t", 0, "0 (1,2,0)");
    assert_int_equal(rig_partition(&r, "t", 0)->leader_epoch, epoch + 1);
    assert_int_equal(set_isr("t", 0, "0"), 0);
    for (int i = 2; i >= 0; i--) {
        rig_kill(&r, i);
        rig_run(&r, 100000);
    }
    STATE(&r, "t", 0, "- (0)");
    assert_int_equal(elect("t", 0, KB_ELECT_UNCLEAN), KE_ELIGIBLE_LEADERS_NOT_AVAILABLE);
    rig_up(&r, 2, -2);
    STATE(&r, "t", 0, "- (0)");
    assert_int_equal(elect("t", 0, KB_ELECT_UNCLEAN), 0);
    STATE(&r, "t", 0, "2 (2)");
}

static void test_leaderships_go_back_by_themselves(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 3, AR, 3), 0);
    rig_kill(&r, 0);
    rig_run(&r, 100000);
    rig_up(&r, 0, -2);
    for (int i = 0; i < 3; i++) assert_int_equal(set_isr("t", i, i == 2 ? "12" : "120"), 0);
    STATE(&r, "t", 0, "1 (1,2,0)");
    rig_run(&r, 300000000);
    STATE(&r, "t", 0, "0 (1,2,0)");
    STATE(&r, "t", 1, "0 (1,2,0)");
    STATE(&r, "t", 2, "1 (1,2)");
}

/* ---- Placement ---- */

static struct kb_topic_create create(const char *name, int32_t partitions, int16_t rf) {
    struct meta_change c;
    struct kb_topic_create t = {.name = kw_str_of(name), .partitions = partitions, .replication_factor = rf};
    assert_int_equal(kb_controller_create_topics(r.m.controller, &t, 1, false, meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(c.done, 1);
    return t;
}

/* The node itself is a broker too, without a rack: 7 brokers in all, on 3 racks and that. */
static void test_placement_on_racks(void **state) {
    (void)state;
    static const char *const racks[] = {"a", "a", "b", "b", "c", "c"};
    for (int i = 0; i < 6; i++) {
        if (i < 3) rig_kill(&r, i);
        rig_run(&r, 100000);
        r.b[i].rack = racks[i];
        rig_up(&r, i, -2);
    }
    struct kb_topic_create t = create("t", 700, 3);
    assert_int_equal(t.result.code, 0);
    int leads[20] = {0}, holds[20] = {0};
    for (int32_t i = 0; i < 700; i++) {
        const struct kb_image_partition *p = rig_partition(&r, "t", i);
        assert_int_equal(p->replica_count, 3);
        assert_int_equal(p->isr_count, 3);
        assert_int_equal(p->leader, p->replicas[0]);
        leads[p->leader]++;
        for (int32_t a = 0; a < 3; a++) {
            holds[p->replicas[a]]++;
            for (int32_t b = 0; b < a; b++) {
                const char *x = kb_image_broker(&r.m.image, p->replicas[a])->rack, *y = kb_image_broker(&r.m.image, p->replicas[b])->rack;
                assert_false(x && y && strcmp(x, y) == 0);
            }
        }
    }
    assert_int_equal(leads[1], 100);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(leads[rig_id(i)], 100);
        assert_in_range(holds[rig_id(i)], 150, 450); /* half of its share, or as much more */
    }
    t = create("wide", 1, 7); /* more than there are racks */
    assert_int_equal(t.result.code, 0);
    t = create("wider", 1, 8);
    assert_int_equal(t.result.code, KE_INVALID_REPLICATION_FACTOR);
    assert_non_null(strstr(t.result.text, "the 7 brokers"));
}

static void test_placement_with_dead_brokers(void **state) {
    (void)state;
    rig_kill(&r, 0);
    rig_kill(&r, 1);
    rig_run(&r, 100000);
    struct kb_topic_create t = create("t", 20, 2); /* the node's own broker and the third live */
    assert_int_equal(t.result.code, 0);
    for (int32_t i = 0; i < 20; i++) assert_int_equal(rig_partition(&r, "t", i)->isr_count, 2);
    t = create("wide", 20, 4);
    assert_int_equal(t.result.code, 0);
    for (int32_t i = 0; i < 20; i++) {
        const struct kb_image_partition *p = rig_partition(&r, "wide", i);
        assert_int_equal(p->replica_count, 4);
        assert_int_equal(p->isr_count, 2);
        assert_true(p->leader == 1 || p->leader == rig_id(2));
    }
    assert_int_equal(rig_topic(&r, "hand", 1, AR, 3), 0); /* by hand: the live ones are in sync */
    STATE(&r, "hand", 0, "2 (2)");
    assert_int_equal(rig_topic(&r, "dead", 1, AR, 2), KE_INVALID_REPLICA_ASSIGNMENT);
    assert_null(kb_image_topic(&r.m.image, kw_str_of("dead")));
    struct meta_change c;
    struct kb_topic_grow g = {.name = kw_str_of("wide"), .total = 25, .assignment_count = -1};
    assert_int_equal(kb_controller_grow_topics(r.m.controller, &g, 1, false, meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(g.result.code, 0);
    assert_int_equal(rig_partition(&r, "wide", 24)->isr_count, 2);
}

/* ---- Producer ids ---- */

static void test_producer_ids_for_brokers(void **state) {
    (void)state;
    struct meta_change c[3];
    struct kb_pid_grant g[3];
    for (int i = 0; i < 3; i++) {
        g[i] = (struct kb_pid_grant){.broker = rig_id(i), .broker_epoch = r.b[i].epoch - (i == 2)};
        assert_int_equal(kb_controller_grant_pids(r.m.controller, &g[i], meta_change(&c[i]), r.m.now), KW_OK);
    }
    rig_commit(&r);
    assert_int_equal(g[0].block.first, 0);
    assert_int_equal(g[1].block.first, 1000);
    assert_int_equal(g[1].block.count, 1000);
    assert_int_equal(g[2].block.result.code, KE_STALE_BROKER_EPOCH);
    g[0].broker = 55;
    assert_int_equal(kb_controller_grant_pids(r.m.controller, &g[0], meta_change(&c[0]), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(g[0].block.result.code, KE_BROKER_ID_NOT_REGISTERED);
}

/* ---- Failing allocations ---- */

/* Whatever fails, in the end the dead broker is fenced, and nothing is half done. */
static void test_failing_allocation(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 3, AR, 3), 0);
    assert_int_equal(rig_topic(&r, "u", 1, AR, 3), 0);
    for (int64_t n = 0; n < 60; n++) {
        struct isr s;
        struct meta_change c[3];
        int32_t ids[] = {rig_id(0), rig_id(2)};
        struct kb_reassign move = {.topic = kw_str_of("u"), .replicas = ids, .replica_count = 2};
        struct kb_leader_elect l = {.topic = kw_str_of("u"), .type = KB_ELECT_PREFERRED};
        (void)isr_of(&s, "t", 1, "01");
        rig_kill(&r, 2);
        rig_run(&r, 49000);
        kw_alloc_fail_after(n);
        kw_err e[3];
        e[0] = kb_controller_alter_isr(r.m.controller, &s.q, 1, meta_change(&c[0]), r.m.now);
        e[1] = kb_controller_reassign(r.m.controller, &move, 1, meta_change(&c[1]), r.m.now);
        e[2] = kb_controller_elect_leaders(r.m.controller, &l, 1, meta_change(&c[2]), r.m.now);
        r.m.now.mono_us += 5000;
        kw_timers_run(&r.m.timers, r.m.now.mono_us); /* the sweep begins; what commits must be applied, or the node stops */
        kw_alloc_fail_after(-1);
        rig_run(&r, 500000);
        for (int i = 0; i < 3; i++) assert_int_equal(c[i].done, e[i] == KW_OK);
        assert_true(rig_fenced(&r, 2));
        for (int i = 0; i < 3; i++) assert_false(kb_elect_has(rig_partition(&r, "t", i)->isr, rig_partition(&r, "t", i)->isr_count, rig_id(2)));
        rig_up(&r, 2, -2);
        for (int i = 0; i < 3; i++) assert_int_equal(set_isr("t", i, "012"), 0);
        assert_int_equal(reassign("u", 0, "012", false), 0);
        (void)set_isr("u", 0, "012");
    }
    for (int64_t n = 0; n < 40; n++) { /* registrations and heartbeats */
        rig_kill(&r, 1);
        rig_run(&r, 200000);
        struct rig_broker *b = &r.b[1];
        struct kw_register_broker_record_broker_endpoint ep = {.name = kw_str_of("P"), .host = kw_str_of("127.0.0.1"), .port = 9001};
        struct kw_uuid dir = {{1, 2, b->dir}};
        b->incarnation++;
        struct kb_broker_register q = {.id = rig_id(1),
                                       .incarnation = {{2, 2, b->incarnation}},
                                       .cluster_id = kw_str_of(kb_store_cluster_id(r.m.store)),
                                       .endpoints = &ep,
                                       .endpoint_count = 1,
                                       .rack = kw_str_null(),
                                       .log_dirs = &dir,
                                       .log_dir_count = 1,
                                       .previous_epoch = b->epoch,
                                       .conn = &b->conn};
        struct meta_change c;
        kw_alloc_fail_after(n);
        kw_err err = kb_controller_register_broker(r.m.controller, &q, meta_change(&c), r.m.now);
        kw_alloc_fail_after(-1);
        rig_run(&r, 200000);
        assert_int_equal(c.done, err == KW_OK);
        if (err || q.result.code) {
            assert_int_equal(rig_register(&r, 1, -2), 0);
        } else {
            b->epoch = q.epoch;
            b->open = true;
        }
        struct rig_beat t;
        kw_alloc_fail_after(n);
        bool at_once = rig_beat_start(&r, 1, &t, false, false);
        kw_alloc_fail_after(-1);
        rig_run(&r, 300000);
        assert_true(at_once ? t.h.code != 0 : t.done == 1);
        r.dial_refused[1] = false;
        rig_unfence(&r, 1);
    }
}

/* ---- A random history ---- */

static void check_all(void) {
    const struct kb_image_topic *t;
    for (size_t it = 0; (t = kw_map_next(&r.m.image.topics_by_name, &it));)
        for (int32_t i = 0; i < t->partition_count; i++) {
            const struct kb_image_partition *p = &t->partitions[i];
            assert_true(p->isr_count > 0);
            int live = 0;
            for (int32_t k = 0; k < p->isr_count; k++) {
                const struct kb_image_broker *b = kb_image_broker(&r.m.image, p->isr[k]);
                assert_true(kb_elect_has(p->replicas, p->replica_count, p->isr[k]));
                live += b && !b->fenced;
            }
            if (p->leader >= 0) {
                assert_true(kb_elect_has(p->isr, p->isr_count, p->leader));
                assert_int_equal(live, p->isr_count); /* who is fenced is not in sync where somebody leads */
            } else {
                assert_int_equal(live, 0);
            }
        }
}

static void test_random_history(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 11);
    for (int i = 3; i < 5; i++) rig_up(&r, i, -1);
    assert_int_equal(create("a", 20, 3).result.code, 0);
    assert_int_equal(rig_topic(&r, "b", 5, AR, 3), 0);
    assert_int_equal(rig_topic(&r, "c", 5, AR, 2), 0);
    bool up[5] = {true, true, true, true, true};
    for (int step = 0; step < 1500; step++) {
        int i = (int)kw_rng_below(&rng, 5);
        switch (kw_rng_below(&rng, 8)) {
        case 0:
            if (up[i]) rig_kill(&r, i);
            up[i] = false;
            break;
        case 1:
            if (up[i]) rig_mute(&r, i);
            if (up[i]) kb_controller_conn_closed(r.m.controller, &r.b[i].conn, r.m.now);
            up[i] = false;
            break;
        case 2:
        case 3:
            if (!up[i]) {
                rig_run(&r, 300000); /* a controller that is new takes it for alive for so long */
                rig_up(&r, i, -2);
            }
            up[i] = true;
            break;
        case 4: {
            const struct kb_image_partition *p = rig_partition(&r, "b", (int32_t)kw_rng_below(&rng, 5));
            if (p->leader >= ID0) {
                struct isr s;
                isr_of(&s, "b", p->index, "");
                for (int k = 0; k < 3; k++)
                    if (up[k] || rig_id(k) == p->leader) {
                        s.ids[s.a.isr_count] = rig_id(k);
                        s.epochs[s.a.isr_count++] = r.b[k].epoch;
                    }
                (void)isr_run(&s);
            }
            break;
        }
        case 5: {
            char to[4];
            int n = 1 + (int)kw_rng_below(&rng, 3), from = (int)kw_rng_below(&rng, 3);
            for (int k = 0; k < n; k++) to[k] = (char)('0' + (from + k) % 5);
            to[n] = 0;
            (void)reassign("c", (int32_t)kw_rng_below(&rng, 5), kw_rng_below(&rng, 3) ? to : NULL, false);
            break;
        }
        case 6:
            kb_controller_resign(r.m.controller, r.m.now);
            kb_controller_activate(r.m.controller, r.m.now);
            break;
        default:
            rig_run(&r, (int64_t)kw_rng_below(&rng, 600000));
        }
        if (step % 10 == 0) {
            rig_run(&r, 4000000);
            check_all();
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_alter_partition),
        TEST(test_br07_br08_alter_partition_is_guarded),
        TEST(test_changes_of_one_partition_follow_each_other),
        TEST(test_many_partitions_are_one_batch),
        TEST(test_scenario_1),
        TEST(test_scenario_2_both_return),
        TEST(test_scenario_2_only_0_returns),
        TEST(test_scenario_2_neither_returns),
        TEST(test_scenario_3),
        TEST(test_scenario_6),
        TEST(test_a_wiped_disk_leaves_the_others_in_sync),
        TEST(test_br15_an_unclean_return),
        TEST(test_a_last_known_leader_that_may_not),
        TEST(test_starts_that_did_not_get_far),
        TEST(test_elect_leaders),
        TEST(test_leaderships_go_back_by_themselves),
        TEST(test_placement_on_racks),
        TEST(test_placement_with_dead_brokers),
        TEST(test_producer_ids_for_brokers),
        TEST(test_failing_allocation),
        TEST(test_random_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
