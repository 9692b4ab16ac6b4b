/* test_controller_reassign.c - partitions that move onto other brokers: begun, ended, replaced and cancelled (KIP-455), as the controller does it. */
#include "cluster_steps.h"

/* "0 (0,1) of 0,1 +2 -1" */
static const char *moving(const char *topic, int32_t index) {
    static char text[200];
    const struct kb_image_partition *p = rig_partition(&r, topic, index);
    int n = snprintf(text, sizeof(text), "%s of ", rig_state(&r, topic, index));
    for (int32_t i = 0; i < p->replica_count; i++) n += snprintf(text + n, sizeof(text) - (size_t)n, i ? ",%d" : "%d", p->replicas[i] - ID0);
    for (int32_t i = 0; i < p->adding_count; i++) n += snprintf(text + n, sizeof(text) - (size_t)n, " +%d", p->adding[i] - ID0);
    for (int32_t i = 0; i < p->removing_count; i++) n += snprintf(text + n, sizeof(text) - (size_t)n, " -%d", p->removing[i] - ID0);
    assert_int_equal(p->directory_count, p->replica_count);
    return text;
}
#define MOVING(topic, index, text) assert_string_equal(moving(topic, index), text)

static void test_reassignment(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 2), 0);
    for (int i = 3; i < 5; i++) rig_up(&r, i, -1);
    assert_int_equal(reassign("t", 0, NULL, false), KE_NO_REASSIGNMENT_IN_PROGRESS);
    assert_int_equal(reassign("t", 1, "12", false), KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(reassign("t", 0, "", false), KE_INVALID_REPLICA_ASSIGNMENT);
    assert_int_equal(reassign("t", 0, "11", false), KE_INVALID_REPLICA_ASSIGNMENT);
    assert_int_equal(reassign("t", 0, "17", false), KE_INVALID_REPLICA_ASSIGNMENT);
    assert_int_equal(reassign("t", 0, "123", true), KE_INVALID_REPLICATION_FACTOR);
    int64_t leo = r.m.store->log->leo;
    assert_int_equal(reassign("t", 0, "01", false), 0); /* where it is */
    assert_int_equal(r.m.store->log->leo, leo);
    assert_int_equal(reassign("t", 0, "34", false), 0);
    MOVING("t", 0, "0 (0,1) of 3,4,0,1 +3 +4 -0 -1");
    assert_int_equal(set_isr("t", 0, "013"), 0);
    MOVING("t", 0, "0 (0,1,3) of 3,4,0,1 +3 +4 -0 -1");
    int32_t epoch = rig_partition(&r, "t", 0)->leader_epoch;
    assert_int_equal(set_isr("t", 0, "0134"), KE_NEW_LEADER_ELECTED); /* all are in sync: it is over */
    MOVING("t", 0, "3 (3,4) of 3,4");
    assert_int_equal(rig_partition(&r, "t", 0)->leader_epoch, epoch + 1);
    assert_int_equal(reassign("t", 0, "43", false), 0); /* another order only */
    MOVING("t", 0, "3 (3,4) of 4,3");
    assert_int_equal(reassign("t", 0, "4", false), 0); /* fewer: at once, and the leader moves */
    MOVING("t", 0, "4 (4) of 4");
    assert_int_equal(reassign("t", 0, "4012", false), 0);
    MOVING("t", 0, "4 (4) of 4,0,1,2 +0 +1 +2");
    assert_int_equal(set_isr("t", 0, "4012"), 0);
    MOVING("t", 0, "4 (4,0,1,2) of 4,0,1,2");
}

/* One of those that stay is away: without it the end would leave fewer in sync than min.insync.replicas, and drop two that are. */
static void test_a_reassignment_waits_for_all_that_stay(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(rig_config(&r, 2, "t", "min.insync.replicas", "2"), 0);
    rig_up(&r, 3, -1);
    rig_kill(&r, 1);
    rig_run(&r, 100000);
    assert_int_equal(reassign("t", 0, "13", false), 0);
    assert_int_equal(set_isr("t", 0, "023"), 0);
    MOVING("t", 0, "0 (0,2,3) of 1,3,0,2 +3 -0 -2");
    rig_up(&r, 1, -2);
    MOVING("t", 0, "0 (0,2,3) of 1,3,0,2 +3 -0 -2");
    assert_int_equal(set_isr("t", 0, "0231"), KE_NEW_LEADER_ELECTED);
    MOVING("t", 0, "1 (3,1) of 1,3");
    assert_int_equal(reassign("t", 0, "013", false), 0);
    assert_int_equal(set_isr("t", 0, "13"), 0); /* as it is */
    rig_kill(&r, 3);
    rig_run(&r, 100000);
    assert_int_equal(set_isr("t", 0, "10"), 0); /* what it adds is there, and one that was there is not */
    MOVING("t", 0, "1 (1,0) of 0,1,3 +0");
    rig_up(&r, 3, -2);
    assert_int_equal(set_isr("t", 0, "103"), 0);
    MOVING("t", 0, "1 (1,0,3) of 0,1,3");
}

static void test_reassignments_cancelled_and_replaced(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 2), 0);
    for (int i = 3; i < 5; i++) rig_up(&r, i, -1);
    assert_int_equal(reassign("t", 0, "34", false), 0);
    assert_int_equal(set_isr("t", 0, "013"), 0);
    assert_int_equal(reassign("t", 0, NULL, false), 0);
    MOVING("t", 0, "0 (0,1) of 0,1");
    assert_int_equal(reassign("t", 0, "34", false), 0);
    assert_int_equal(set_isr("t", 0, "013"), 0);
    assert_int_equal(reassign("t", 0, "23", false), 0); /* 4 is not wanted any more, 3 still is */
    MOVING("t", 0, "0 (0,1,3) of 2,3,0,1 +2 +3 -0 -1");
    assert_int_equal(set_isr("t", 0, "0132"), KE_NEW_LEADER_ELECTED);
    MOVING("t", 0, "2 (3,2) of 2,3");
    assert_int_equal(reassign("t", 0, "01", false), 0);
    assert_int_equal(set_isr("t", 0, "230"), 0);
    rig_kill(&r, 2);
    rig_kill(&r, 3);
    rig_run(&r, 100000);
    MOVING("t", 0, "0 (0) of 0,1,2,3 +0 +1 -2 -3");
    assert_int_equal(reassign("t", 0, NULL, false), KE_INVALID_REPLICA_ASSIGNMENT); /* none of those is in sync */
    assert_int_equal(rig_config(&r, 2, "t", "unclean.leader.election.enable", "true"), 0);
    assert_int_equal(reassign("t", 0, NULL, false), KE_INVALID_REPLICA_ASSIGNMENT); /* nor alive: nobody would be (simulator, cluster seed 371) */
    MOVING("t", 0, "0 (0) of 0,1,2,3 +0 +1 -2 -3");
    rig_up(&r, 3, -2);
    assert_int_equal(reassign("t", 0, NULL, false), 0);
    MOVING("t", 0, "3 (3) of 2,3");
    assert_int_equal(kb_controller_counts(r.m.controller)->unclean_elections, 1);
}

/* A cancellation that comes with the last member's joining: the end of the reassignment is answered with an error (another broker leads), and a change
 * all the same: the other waits for it. (Simulator, cluster seed 466: it was computed from what the partition had been before, and went back to replicas
 * of which none was in sync.) */
static void test_a_cancellation_waits_for_the_end(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 2), 0);
    for (int i = 3; i < 5; i++) rig_up(&r, i, -1);
    assert_int_equal(reassign("t", 0, "34", false), 0);
    assert_int_equal(set_isr("t", 0, "013"), 0);
    struct isr s;
    struct meta_change c;
    struct kb_reassign a = {.topic = kw_str_of("t")};
    isr_of(&s, "t", 0, "0134");
    isr_start(&s);
    assert_int_equal(kb_controller_reassign(r.m.controller, &a, 1, meta_change(&c), r.m.now), KW_OK);
    while (!s.c.done || !c.done) rig_commit(&r);
    assert_int_equal(s.a.result.code, KE_NEW_LEADER_ELECTED);
    assert_int_equal(a.result.code, KE_NO_REASSIGNMENT_IN_PROGRESS);
    MOVING("t", 0, "3 (3,4) of 3,4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_reassignment),
        TEST(test_a_reassignment_waits_for_all_that_stay),
        TEST(test_reassignments_cancelled_and_replaced),
        TEST(test_a_cancellation_waits_for_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
