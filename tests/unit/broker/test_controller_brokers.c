/* test_controller_brokers.c - brokers come, live and go: registrations, heartbeats, sessions, the quick path, controlled shutdown, office (specs: a
 * broker's epoch, deaths that are confirmed, brokers that die together).
 */
#include "cluster_rig.h"

static struct rig r;

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
static int setup_bare(void **state) {
    (void)state;
    rig_init(&r, 0);
    return 0;
}

static const int AR[] = {0, 1, 2};

/* ---- Registration ---- */

static void test_registration(void **state) {
    (void)state;
    struct rig_beat t;
    r.b[0].incarnation = 1;
    int64_t end = r.m.store->log->leo;
    assert_int_equal(rig_register(&r, 0, -1), 0);
    assert_int_equal(r.b[0].epoch, end); /* the offset of its record */
    const struct kb_image_broker *b = kb_image_broker(&r.m.image, rig_id(0));
    assert_non_null(b);
    assert_true(b->fenced);
    assert_int_equal(b->epoch, end);
    assert_string_equal(b->endpoints[0].host, "127.0.0.1");
    int64_t leo = r.m.store->log->leo;
    assert_int_equal(rig_register(&r, 0, -1), 0); /* the same incarnation: it did not hear the answer */
    assert_int_equal(r.b[0].epoch, end);
    assert_int_equal(r.m.store->log->leo, leo);
    assert_true(rig_beat_start(&r, 0, &t, true, false)); /* it does not want to be unfenced */
    assert_int_equal(t.h.code, 0);
    assert_true(t.h.fenced);
    t.h.want_fence = false;
    t.h.metadata_offset = end - 1; /* it has not seen its own registration yet */
    assert_true(kb_controller_heartbeat(r.m.controller, &t.h, r.m.now));
    assert_true(t.h.fenced);
    assert_false(t.h.caught_up);
    t.h.metadata_offset = end;
    assert_false(kb_controller_heartbeat(r.m.controller, &t.h, r.m.now));
    rig_commit(&r);
    assert_int_equal(t.done, 1);
    assert_true(t.h.caught_up);
    assert_false(t.h.fenced);
    assert_false(kb_image_broker(&r.m.image, rig_id(0))->fenced);
}

static void test_refused_registrations(void **state) {
    (void)state;
    struct meta_change c;
    struct kw_register_broker_record_broker_endpoint e = {.name = kw_str_of("PLAINTEXT"), .host = kw_str_of("127.0.0.1"), .port = 9005};
    struct kw_uuid dir = {{1, 99}}, copied = {{1, 1}};
    struct kb_broker_register good = {.id = 99,
                                      .incarnation = {{9}},
                                      .cluster_id = kw_str_of(kb_store_cluster_id(r.m.store)),
                                      .endpoints = &e,
                                      .endpoint_count = 1,
                                      .rack = kw_str_null(),
                                      .log_dirs = &dir,
                                      .log_dir_count = 1,
                                      .previous_epoch = -1};
    struct kb_broker_register bad[6];
    static const int16_t codes[] = {KE_INCONSISTENT_CLUSTER_ID, KE_INVALID_REGISTRATION, KE_INVALID_REGISTRATION, KE_INVALID_REGISTRATION,
                                    KE_DUPLICATE_BROKER_REGISTRATION, KE_DUPLICATE_BROKER_REGISTRATION};
    for (int i = 0; i < 6; i++) bad[i] = good;
    bad[0].cluster_id = kw_str_of("another");
    bad[1].endpoint_count = 0;
    bad[2].log_dir_count = 0;
    bad[3].log_dirs = &copied; /* broker 0's */
    copied.b[2] = r.b[0].dir;
    bad[4].id = rig_id(0); /* which lives */
    bad[5].id = 1;         /* the node itself */
    for (int i = 0; i < 6; i++) {
        int64_t leo = r.m.store->log->leo;
        assert_int_equal(kb_controller_register_broker(r.m.controller, &bad[i], meta_change(&c), r.m.now), KW_OK);
        rig_commit(&r);
        assert_int_equal(c.done, 1);
        assert_int_equal(bad[i].result.code, codes[i]);
        assert_int_equal(r.m.store->log->leo, leo);
    }
    /* Nor is anything done beforehand to the broker whose id it takes, which may have lost its connection alone. */
    kb_controller_conn_closed(r.m.controller, &r.b[0].conn, r.m.now);
    for (int i = 0; i < 3; i++) {
        bad[i].id = rig_id(0);
        assert_int_equal(kb_controller_register_broker(r.m.controller, &bad[i], meta_change(&c), r.m.now), KW_OK);
        rig_commit(&r);
        assert_int_equal(bad[i].result.code, codes[i]);
        assert_false(rig_fenced(&r, 0));
    }
    bad[0].id = 99;
    bad[0].cluster_id = kw_str_of(""); /* a node has asked for it before it registers */
    assert_int_equal(kb_controller_register_broker(r.m.controller, &bad[0], meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(bad[0].result.code, KE_INCONSISTENT_CLUSTER_ID);
    assert_int_equal(kb_controller_register_broker(r.m.controller, &good, meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(good.result.code, 0);
}

/* A new incarnation while the old one's connection is open is another process under the same id; once it has closed it confirms the old one's death. */
static void test_a_second_process_and_a_successor(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    STATE(&r, "t", 0, "0 (0,1,2)");
    int64_t old = r.b[0].epoch;
    r.b[0].incarnation = 77;
    assert_int_equal(rig_register(&r, 0, -2), KE_DUPLICATE_BROKER_REGISTRATION);
    STATE(&r, "t", 0, "0 (0,1,2)");
    r.b[0].beats = false;
    kb_controller_conn_closed(r.m.controller, &r.b[0].conn, r.m.now);
    assert_int_equal(rig_register(&r, 0, -2), 0); /* at once, not when the session ends */
    assert_true(r.b[0].epoch > old);
    STATE(&r, "t", 0, "1 (1,2)");
    struct rig_beat t;
    r.b[0].epoch = old; /* the old one's heartbeats are stale */
    assert_true(rig_beat_start(&r, 0, &t, false, false));
    assert_int_equal(t.h.code, KE_STALE_BROKER_EPOCH);
    t.h.id = 98;
    assert_true(kb_controller_heartbeat(r.m.controller, &t.h, r.m.now));
    assert_int_equal(t.h.code, KE_BROKER_ID_NOT_REGISTERED);
}

/* ---- Sessions ---- */

static void test_a_silent_broker_is_fenced_when_its_session_ends(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    rig_mute(&r, 0);
    rig_run(&r, 2400000);
    assert_false(rig_fenced(&r, 0));
    STATE(&r, "t", 0, "0 (0,1,2)");
    rig_run(&r, 700000);
    assert_true(rig_fenced(&r, 0));
    STATE(&r, "t", 0, "1 (1,2)");
    assert_int_equal(rig_partition(&r, "t", 0)->leader_epoch, 1);
    assert_int_equal(rig_partition(&r, "t", 0)->partition_epoch, 1);
    assert_int_equal(kb_controller_counts(r.m.controller)->brokers_fenced, 1);
    rig_unfence(&r, 0); /* it was there all the time: the same incarnation goes on */
    STATE(&r, "t", 0, "1 (1,2)");
    rig_run(&r, 10000000);
    assert_false(rig_fenced(&r, 0));
    assert_false(rig_fenced(&r, 1));
    assert_int_equal(r.dials[0] + r.dials[1] + r.dials[2], 0);
}

static void test_a_killed_broker_is_fenced_after_50_ms(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    rig_kill(&r, 0);
    rig_run(&r, 45000);
    assert_int_equal(r.dials[0], 1);
    STATE(&r, "t", 0, "0 (0,1,2)");
    rig_run(&r, 30000);
    STATE(&r, "t", 0, "1 (1,2)");
}

/* Another dial to it may still be under way, or there is no memory for one: it is tried again soon, not when the session ends. */
static void test_a_dial_that_cannot_begin(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    rig_run(&r, 400000);
    r.dial_fails[0] = 2;
    rig_kill(&r, 0);
    rig_run(&r, 95000);
    assert_int_equal(r.dials[0], 2);
    STATE(&r, "t", 0, "0 (0,1,2)");
    rig_run(&r, 100000);
    assert_int_equal(r.dials[0], 3);
    STATE(&r, "t", 0, "1 (1,2)");
}

/* The first dial may find the listener of a process that is just going. */
static void test_a_killed_broker_that_still_listens_for_a_moment(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    rig_kill(&r, 0);
    r.dial_refused[0] = false;
    rig_run(&r, 10000);
    assert_int_equal(r.dials[0], 1);
    r.dial_refused[0] = true;
    rig_run(&r, 120000);
    STATE(&r, "t", 0, "1 (1,2)");
}

/* Its connection closed, and it says nothing, but something listens there: the session decides. */
static void test_a_broker_that_listens_and_is_silent(void **state) {
    (void)state;
    rig_kill(&r, 0);
    r.dial_refused[0] = false;
    rig_run(&r, 2400000);
    assert_false(rig_fenced(&r, 0));
    assert_in_range(r.dials[0], 10, 25);
    rig_run(&r, 700000);
    assert_true(rig_fenced(&r, 0));
}

/* Its connection closed, but something listens there, or it is back before the grace is over: nothing happens. */
static void test_a_lost_connection_is_no_death(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    kb_controller_conn_closed(r.m.controller, &r.b[0].conn, r.m.now);
    rig_run(&r, 1000000);
    assert_in_range(r.dials[0], 1, 10);
    STATE(&r, "t", 0, "0 (0,1,2)");
    kb_controller_conn_closed(r.m.controller, &r.b[0].conn, r.m.now);
    r.dial_refused[0] = true;
    rig_run(&r, 20000);
    struct rig_beat t;
    assert_true(rig_beat_start(&r, 0, &t, false, false));
    rig_run(&r, 1000000);
    STATE(&r, "t", 0, "0 (0,1,2)");
    rig_run(&r, 5000000);
    assert_false(rig_fenced(&r, 0));
}

/* One by one the in-sync replicas would shrink to the last of the dead. */
static void test_brokers_that_die_together_are_fenced_in_one_decision(void **state) {
    (void)state;
    static const int both[] = {0, 1};
    assert_int_equal(rig_topic(&r, "t", 1, both, 2), 0);
    rig_kill(&r, 0);
    rig_run(&r, 30000);
    rig_kill(&r, 1);
    rig_run(&r, 100000);
    assert_true(rig_fenced(&r, 0));
    assert_true(rig_fenced(&r, 1));
    STATE(&r, "t", 0, "- (0,1)");
    rig_up(&r, 1, -2); /* either one leads when it is back, and the new in-sync replicas are its live members */
    STATE(&r, "t", 0, "1 (1)");
    rig_up(&r, 0, -2);
    STATE(&r, "t", 0, "1 (1)");
}

/* One of them listens for a moment longer than the other: the decision waits until that is clear. */
static void test_brokers_that_die_together_and_not_at_once(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    rig_kill(&r, 0);
    rig_kill(&r, 1);
    rig_kill(&r, 2);
    r.dial_refused[0] = r.dial_refused[2] = false;
    rig_run(&r, 40000);
    r.dial_refused[0] = true;
    rig_run(&r, 80000);
    r.dial_refused[2] = true;
    rig_run(&r, 300000);
    for (int i = 0; i < 3; i++) assert_true(rig_fenced(&r, i));
    STATE(&r, "t", 0, "- (0,1,2)");
}

static void test_brokers_that_fall_silent_together(void **state) {
    (void)state;
    static const int both[] = {0, 1};
    assert_int_equal(rig_topic(&r, "t", 1, both, 2), 0);
    rig_mute(&r, 0);
    rig_run(&r, 400000); /* the other was heard of a little later */
    rig_mute(&r, 1);
    rig_run(&r, 4000000);
    STATE(&r, "t", 0, "- (0,1)");
    assert_false(rig_fenced(&r, 2));
}

/* The process stood still: what it missed says nothing of the brokers. */
static void test_a_controller_that_stood_still_fences_nobody(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    r.m.now.mono_us += 20000000;
    rig_run(&r, 1000000);
    for (int i = 0; i < 3; i++) assert_false(rig_fenced(&r, i));
    STATE(&r, "t", 0, "0 (0,1,2)");
}

/* ---- Controlled shutdown ---- */

static void test_controlled_shutdown(void **state) {
    (void)state;
    static const int alone[] = {0};
    struct rig_beat t;
    assert_int_equal(rig_topic(&r, "t", 3, AR, 3), 0);
    assert_int_equal(rig_topic(&r, "single", 1, alone, 1), 0);
    r.b[0].beats = false;
    assert_false(rig_beat_start(&r, 0, &t, false, true));
    rig_commit(&r);
    assert_int_equal(t.done, 1);
    assert_true(t.h.shut_down);
    assert_true(t.h.fenced);
    for (int i = 0; i < 3; i++) STATE(&r, "t", i, "1 (1,2)");
    STATE(&r, "single", 0, "- (0)"); /* nobody else can */
    assert_int_equal(rig_partition(&r, "single", 0)->leader_epoch, 1);
    assert_true(kb_image_broker(&r.m.image, rig_id(0))->in_controlled_shutdown);
    assert_true(rig_beat_start(&r, 0, &t, false, true)); /* asked again */
    assert_true(t.h.shut_down);
    assert_true(rig_beat_start(&r, 0, &t, false, false)); /* nor does it come back without a new start */
    assert_true(t.h.fenced);
    kb_controller_conn_closed(r.m.controller, &r.b[0].conn, r.m.now);
    rig_up(&r, 0, -2);
    STATE(&r, "single", 0, "0 (0)");
    assert_int_equal(rig_partition(&r, "single", 0)->leader_epoch, 2);
}

/* All of them stop at the same time: the last in-sync one is remembered. */
static void test_controlled_shutdown_of_all(void **state) {
    (void)state;
    struct rig_beat t[3];
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    for (int i = 0; i < 3; i++) r.b[i].beats = false;
    for (int i = 0; i < 3; i++) (void)rig_beat_start(&r, i, &t[i], false, true);
    rig_run(&r, 100000);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t[i].done, 1);
        assert_true(t[i].h.shut_down);
    }
    const struct kb_image_partition *p = rig_partition(&r, "t", 0);
    assert_int_equal(p->leader, -1);
    assert_true(p->isr_count > 0);
}

/* ---- Unregistering ---- */

static int16_t unregister(int i) {
    struct meta_change c;
    struct kb_broker_unregister u = {.id = rig_id(i)};
    assert_int_equal(kb_controller_unregister_broker(r.m.controller, &u, meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(c.done, 1);
    return u.result.code;
}

static void test_unregister(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(unregister(5), KE_BROKER_ID_NOT_REGISTERED);
    assert_int_equal(unregister(-9), KE_INVALID_REQUEST); /* the node itself */
    rig_kill(&r, 0);
    assert_int_equal(unregister(0), 0);
    assert_null(kb_image_broker(&r.m.image, rig_id(0)));
    STATE(&r, "t", 0, "1 (1,2)");
    rig_run(&r, 10000000);
}

/* It goes at once, as at Apache Kafka: its partitions are led by others, and it is told that it is not registered any more. */
static void test_unregister_a_broker_that_lives(void **state) {
    (void)state;
    struct rig_beat t;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    assert_int_equal(unregister(0), 0);
    assert_null(kb_image_broker(&r.m.image, rig_id(0)));
    STATE(&r, "t", 0, "1 (1,2)");
    assert_true(rig_beat_start(&r, 0, &t, false, false));
    assert_int_equal(t.h.code, KE_BROKER_ID_NOT_REGISTERED);
    r.b[0].incarnation++;
    assert_int_equal(rig_register(&r, 0, -2), 0); /* it may come again */
}

/* Though it is about to be unfenced, and goes on asking for it. */
static void test_unregister_a_broker_that_comes_back(void **state) {
    (void)state;
    struct meta_change c;
    struct rig_beat t, u[3];
    struct kb_broker_unregister q = {.id = rig_id(0)};
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    rig_kill(&r, 0);
    rig_run(&r, 100000);
    assert_true(rig_fenced(&r, 0));
    r.b[0].open = true;
    assert_false(rig_beat_start(&r, 0, &t, false, false)); /* its unfencing is in the log */
    assert_int_equal(kb_controller_unregister_broker(r.m.controller, &q, meta_change(&c), r.m.now), KW_OK);
    for (int i = 0; i < 3; i++) assert_false(rig_beat_start(&r, 0, &u[i], false, false));
    rig_commit(&r);
    assert_int_equal(c.done, 1);
    assert_int_equal(q.result.code, 0);
    assert_null(kb_image_broker(&r.m.image, rig_id(0)));
    STATE(&r, "t", 0, "1 (1,2)");
    assert_int_equal(t.done, 1);
    for (int i = 0; i < 3; i++) assert_int_equal(u[i].h.code, KE_BROKER_ID_NOT_REGISTERED);
    assert_int_equal(unregister(0), KE_BROKER_ID_NOT_REGISTERED);
}

/* What could not be carried out is answered so, and is not forgotten: the broker's next heartbeats do not bring it back halfway. */
static void test_unregister_while_the_disk_is_full(void **state) {
    (void)state;
    struct meta_change c;
    struct kb_broker_unregister u = {.id = rig_id(0)};
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    sim_disk_faults(r.m.sim)->free_bytes = 0;
    assert_int_equal(kb_controller_unregister_broker(r.m.controller, &u, meta_change(&c), r.m.now), KW_OK);
    rig_commit(&r);
    assert_int_equal(c.done, 1);
    assert_int_not_equal(u.result.code, 0);
    assert_non_null(kb_image_broker(&r.m.image, rig_id(0)));
    sim_disk_faults(r.m.sim)->free_bytes = -1;
    rig_run(&r, 1000000);
    assert_null(kb_image_broker(&r.m.image, rig_id(0)));
    STATE(&r, "t", 0, "1 (1,2)");
}

/* What is tried again and again counts once, when it has come to be. */
static void test_counts_while_the_disk_is_full(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    sim_disk_faults(r.m.sim)->free_bytes = 0;
    rig_kill(&r, 0);
    rig_run(&r, 2000000);
    assert_false(rig_fenced(&r, 0));
    assert_int_equal(kb_controller_counts(r.m.controller)->brokers_fenced, 0);
    sim_disk_faults(r.m.sim)->free_bytes = -1;
    rig_run(&r, 1000000);
    assert_true(rig_fenced(&r, 0));
    assert_int_equal(kb_controller_counts(r.m.controller)->brokers_fenced, 1);
}

/* ---- Office ---- */

static void test_elsewhere_nothing_is_done(void **state) {
    (void)state;
    struct rig_beat t;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    struct meta_change c;
    struct kb_topic_create late = {.name = kw_str_of("late"), .partitions = 1, .replication_factor = 1};
    assert_int_equal(kb_controller_create_topics(r.m.controller, &late, 1, false, meta_change(&c), r.m.now), KW_OK);
    kb_controller_resign(r.m.controller, r.m.now);
    assert_int_equal(c.done, 1);
    assert_int_equal(late.result.code, KE_NOT_CONTROLLER);
    assert_true(rig_beat_start(&r, 0, &t, false, false));
    assert_int_equal(t.h.code, KE_NOT_CONTROLLER);
    assert_int_equal(rig_topic(&r, "u", 1, AR, 3), KE_NOT_CONTROLLER);
    r.b[0].incarnation++;
    assert_int_equal(rig_register(&r, 0, -2), KE_NOT_CONTROLLER);
    rig_run(&r, 10000000);
    STATE(&r, "t", 0, "0 (0,1,2)"); /* no session ends here */
}

/* Sessions begin anew, in full; who does not come back is dialed after 200 ms, and two refusals 50 ms apart are a death. */
static void test_a_new_controller(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    rig_mute(&r, 0);
    rig_run(&r, 2500000);
    kb_controller_resign(r.m.controller, r.m.now);
    kb_controller_activate(r.m.controller, r.m.now);
    rig_run(&r, 2500000);
    assert_false(rig_fenced(&r, 0)); /* silent for 5 s in all, but something listens there */
    assert_in_range(r.dials[0], 5, 15); /* again and again, but not all the time */
    rig_run(&r, 700000);
    assert_true(rig_fenced(&r, 0));
    rig_unfence(&r, 0);
    kb_controller_resign(r.m.controller, r.m.now);
    rig_kill(&r, 1);
    rig_kill(&r, 2);
    kb_controller_activate(r.m.controller, r.m.now);
    rig_run(&r, 195000);
    assert_false(rig_fenced(&r, 1));
    rig_run(&r, 40000);
    assert_false(rig_fenced(&r, 1)); /* one refusal is not enough */
    rig_run(&r, 60000);
    assert_true(rig_fenced(&r, 1));
    assert_true(rig_fenced(&r, 2));
    STATE(&r, "t", 0, "- (1,2)"); /* both at once */
}

/* What the last controller left half done, the next one does. */
static void test_a_new_controller_mends(void **state) {
    (void)state;
    assert_int_equal(rig_topic(&r, "t", 1, AR, 3), 0);
    struct kw_broker_registration_change_record fence;
    kw_msg_init(&kw_broker_registration_change_record_desc, &fence);
    fence.broker_id = rig_id(0);
    fence.broker_epoch = r.b[0].epoch;
    fence.fenced = 1;
    r.b[0].beats = false;
    struct kb_store_record record = {KW_RECORD_BROKER_REGISTRATION_CHANGE, 0, &fence};
    int64_t last;
    assert_int_equal(kb_store_append(r.m.store, &record, 1, &last, r.m.now), KW_OK);
    rig_commit(&r);
    STATE(&r, "t", 0, "0 (0,1,2)");
    kb_controller_resign(r.m.controller, r.m.now);
    kb_controller_activate(r.m.controller, r.m.now);
    rig_commit(&r);
    STATE(&r, "t", 0, "1 (1,2)");
}

/* ---- A wide fencing: bounded batches ---- */

static void test_a_broker_that_leads_much(void **state) {
    (void)state;
    enum { N = 5000 };
    static const int order[3][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}};
    for (int k = 0; k < 3; k++) {
        char name[16];
        snprintf(name, sizeof(name), "w%d", k);
        assert_int_equal(rig_topic(&r, name, N, order[k], 3), 0);
    }
    rig_kill(&r, 0);
    rig_run(&r, 150000);
    for (int32_t i = 0; i < N; i++) {
        STATE(&r, "w0", i, "1 (1,2)");
        STATE(&r, "w1", i, "2 (2,1)");
        STATE(&r, "w2", i, "1 (1,2)");
    }
    assert_int_equal(rig_partition(&r, "w2", 7)->leader_epoch, 0); /* it went on leading */
    assert_int_equal(rig_partition(&r, "w2", 7)->partition_epoch, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_registration, setup_bare, teardown),
        TEST(test_refused_registrations),
        TEST(test_a_second_process_and_a_successor),
        TEST(test_a_silent_broker_is_fenced_when_its_session_ends),
        TEST(test_a_killed_broker_is_fenced_after_50_ms),
        TEST(test_a_killed_broker_that_still_listens_for_a_moment),
        TEST(test_a_broker_that_listens_and_is_silent),
        TEST(test_a_lost_connection_is_no_death),
        TEST(test_brokers_that_die_together_are_fenced_in_one_decision),
        TEST(test_brokers_that_die_together_and_not_at_once),
        TEST(test_brokers_that_fall_silent_together),
        TEST(test_a_controller_that_stood_still_fences_nobody),
        TEST(test_a_dial_that_cannot_begin),
        TEST(test_controlled_shutdown),
        TEST(test_controlled_shutdown_of_all),
        TEST(test_unregister),
        TEST(test_unregister_a_broker_that_lives),
        TEST(test_unregister_a_broker_that_comes_back),
        TEST(test_unregister_while_the_disk_is_full),
        TEST(test_counts_while_the_disk_is_full),
        TEST(test_elsewhere_nothing_is_done),
        TEST(test_a_new_controller),
        TEST(test_a_new_controller_mends),
        TEST(test_a_broker_that_leads_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
