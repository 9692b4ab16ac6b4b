/* test_lifecycle.c - whole nodes in one virtual time, a real quorum among them: brokers register, stay alive, are handed over and come back; and any
 * of them takes an admin's request.
 */
#include "lifecycle_steps.h"

/* ---- Starting ---- */

static void expect_all_alive(int from, int hosts) {
    for (int i = from; i < hosts; i++)
        for (int k = from; k < hosts; k++) {
            const struct kb_image_broker *b = broker_seen_by(i, k);
            assert_non_null(b);
            assert_false(b->fenced);
            assert_int_equal(b->epoch, epoch_of(k));
            assert_int_equal(b->endpoint_count, 1);
            assert_int_equal(b->endpoints[0].port, 9092);
            assert_int_equal(b->endpoints[0].host[1], '0' + k);
            assert_int_equal(b->log_dir_count, 1);
            struct kw_uuid dir = kb_store_directory_id(c.h[k].r.node->parts.store);
            assert_memory_equal(&b->log_dirs[0], &dir, 16);
        }
}

static void test_start(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        begin(3, 3, seed);
        cl_pass(&c, 300000); /* the last to be ready may not have told the others yet */
        expect_all_alive(0, 3);
        int64_t epochs[3] = {epoch_of(0), epoch_of(1), epoch_of(2)};
        cl_pass(&c, 30000000); /* and it stays so */
        for (int i = 0; i < 3; i++) assert_int_equal(epoch_of(i), epochs[i]);
        expect_all_alive(0, 3);
        teardown_hosts();
    }
}

/* A quorum of one, which registers itself as ever, and brokers that join it. */
static void test_brokers_alone(void **state) {
    (void)state;
    begin(3, 1, 20);
    cl_pass(&c, 300000);
    expect_all_alive(0, 3);
    assert_int_equal(controller(), 0);
    assert_int_equal(create(2, "t", 3, 3, 5000), KE_NONE);
    assert_non_null(kb_image_topic(&c.h[2].r.node->image, kw_str_of("t")));
    stop(1, 1000000);
    cl_pass(&c, 100000);
    assert_true(broker_seen_by(0, 1)->fenced);
    up(1);
    until_ready(1, 2, 2000000);
    teardown_hosts();
}

static void test_not_ready_without_a_quorum(void **state) {
    (void)state;
    setup_hosts(3, 3, 21);
    up(0);
    cl_pass(&c, 10000000);
    assert_int_equal(kb_node_state(c.h[0].r.node), KB_NODE_LOADING);
    stop(0, 1000000); /* nothing to hand over */
    for (int i = 0; i < 3; i++) up(i);
    until_ready(0, 3, 5000000);
    teardown_hosts();
}

/* ---- Losing the controller ---- */

static void test_controller_dies(void **state) {
    (void)state;
    for (uint64_t seed = 30; seed < 34; seed++) {
        begin(4, 3, seed);
        int64_t epochs[4];
        for (int i = 0; i < 4; i++) epochs[i] = epoch_of(i);
        int dead = controller();
        cl_kill(&c.h[dead], false);
        for (int t = 0; t < 3000 && controller() < 0; t++) cl_pass(&c, 1000);
        assert_true(controller() >= 0);
        cl_pass(&c, 2000000);
        for (int i = 0; i < 4; i++) { /* nobody else was thought dead, nobody had to register again */
            if (i == dead) continue;
            assert_int_equal(epoch_of(i), epochs[i]);
            for (int k = 0; k < 4; k++)
                if (k != dead) assert_int_equal(broker_seen_by(k, i)->fenced, false);
            assert_true(i == dead || broker_seen_by(i, dead)->fenced);
        }
        up(dead);
        until_ready(dead, dead + 1, 5000000);
        assert_true(epoch_of(dead) > epochs[dead]);
        teardown_hosts();
    }
}

/* A controller that hangs, connections open: the others elect anew, and heartbeats go there. */
static void test_controller_hangs(void **state) {
    (void)state;
    begin(3, 3, 40);
    int old = controller();
    c.h[old].up = false; /* no turn, no byte; its pipes stay */
    for (int i = 0; i < PIPES_MAX; i++) c.pipes[i].held = c.pipes[i].used && (c.pipes[i].from == &c.h[old] || c.pipes[i].to == &c.h[old]);
    cl_pass(&c, 4000000);
    int now = controller();
    assert_true(now >= 0 && now != old);
    for (int i = 0; i < 3; i++) assert_int_equal(broker_seen_by(now, i)->fenced, i == old);
    c.h[old].up = true; /* and goes on */
    for (int i = 0; i < PIPES_MAX; i++) c.pipes[i].held = false;
    cl_pass(&c, 3000000);
    assert_int_equal(broker_seen_by(now, old)->fenced, false);
    teardown_hosts();
}

/* ---- Stopping ---- */

static int led_by(int seen_by, int32_t id) {
    const struct kb_image_topic *t = kb_image_topic(&c.h[seen_by].r.node->image, kw_str_of("t"));
    int n = 0;
    for (int32_t i = 0; i < t->partition_count; i++) n += t->partitions[i].leader == id;
    return n;
}

static void test_clean_stop_hands_over(void **state) {
    (void)state;
    for (int who = 0; who < 3; who++) { /* the controller is among them */
        begin(3, 3, 50 + (uint64_t)who);
        assert_int_equal(create(0, "t", 9, 3, 5000), KE_NONE);
        cl_pass(&c, 500000);
        int other = (who + 1) % 3;
        assert_int_equal(led_by(other, who), 3);
        struct host *h = &c.h[who];
        h->r.now = c.now;
        kb_node_stop(h->r.node, c.now);
        assert_int_equal(kb_node_state(h->r.node), KB_NODE_READY); /* it serves until nobody needs it */
        int64_t began = c.now.mono_us;
        while (kb_node_state(h->r.node) == KB_NODE_READY && c.now.mono_us - began < 5000000) cl_pass(&c, 1000);
        assert_true(c.now.mono_us - began < 500000);
        assert_int_equal(led_by(other, who), 0);
        stop(who, 2000000);
        int64_t epoch = broker_seen_by(other, who)->epoch;
        up(who);
        until_ready(who, who + 1, 5000000);
        assert_true(epoch_of(who) > epoch);
        teardown_hosts();
    }
}

static void test_stop_without_a_controller(void **state) {
    (void)state;
    begin(3, 3, 60);
    cl_kill(&c.h[0], false);
    cl_kill(&c.h[1], false);
    stop(2, 1500000);
    assert_non_null(strstr(c.h[2].r.lines, "without handing over"));
    teardown_hosts();
}

static void test_stop_without_hand_over(void **state) {
    (void)state;
    begin(3, 3, 61);
    stop(0, 1500000);
    rig_set(&c.h[0].r, "controlled.shutdown.enable", "false");
    up(0);
    until_ready(0, 1, 5000000);
    assert_int_equal(create(0, "t", 9, 3, 5000), KE_NONE);
    cl_pass(&c, 500000);
    assert_int_equal(led_by(1, 0), 3);
    c.h[0].r.now = c.now;
    kb_node_stop(c.h[0].r.node, c.now);
    while (kb_node_state(c.h[0].r.node) == KB_NODE_READY) cl_pass(&c, 1000);
    assert_int_equal(led_by(1, 0), 3); /* nobody was asked to take over */
    stop(0, 1500000);
    teardown_hosts();
}

/* ---- Ids ---- */

/* Two brokers of one id: the later one waits, and takes over as soon as the other has gone; else it gives up and says why. */
static void test_duplicate(void **state) {
    (void)state;
    for (int goes = 0; goes < 2; goes++) {
        setup_hosts(3, 1, 70);
        rig_set(&c.h[2].r, "node.id", "1");
        up(0);
        up(1);
        until_ready(0, 2, 5000000);
        up(2);
        cl_pass(&c, 5000000);
        assert_int_equal(kb_node_state(c.h[2].r.node), KB_NODE_LOADING);
        assert_non_null(strstr(c.h[2].r.lines, "still lives"));
        assert_true(is_ready(1));
        assert_false(broker_seen_by(0, 1)->fenced);
        if (goes) {
            cl_kill(&c.h[1], false);
            until_ready(2, 3, 2000000);
        } else {
            cl_pass(&c, 20000000);
            assert_int_equal(kb_node_state(c.h[2].r.node), KB_NODE_FAILED);
            assert_non_null(strstr(kb_node_failure(c.h[2].r.node), "another broker with node.id=1"));
            assert_true(is_ready(1));
            down(2);
        }
        teardown_hosts();
    }
}

static void test_another_cluster(void **state) {
    (void)state;
    setup_hosts(2, 1, 75);
    up(0);
    until_ready(0, 1, 5000000);
    static const char other[] = "version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\ndirectory.id=BBBBBBBBBBBBBBBBBBBBBg\n";
    sim_disk_poke(c.h[1].r.disk, "/data/meta.properties", other, sizeof(other) - 1);
    up(1);
    cl_pass(&c, 5000000);
    assert_int_equal(kb_node_state(c.h[1].r.node), KB_NODE_FAILED);
    assert_non_null(strstr(kb_node_failure(c.h[1].r.node), "luster"));
    down(1);
    teardown_hosts();
}

/* The machine went down, and what was acknowledged may be lost: the broker says so, and leaves the in-sync replicas until it has caught up. After
 * kill -9 alone it stays. */
static void test_unclean_return(void **state) {
    (void)state;
    for (int power = 0; power < 2; power++) {
        begin(3, 3, 80);
        assert_int_equal(create(0, "t", 1, 3, 5000), KE_NONE);
        cl_pass(&c, 500000);
        int who = controller() == 2 ? 1 : 2, other = 0;
        cl_kill(&c.h[who], power);
        if (power) c.h[who].r.boot_id = "boot-2";
        struct kb_image_partition *p = kb_image_partition(&c.h[other].r.node->image, kw_str_of("t"), 0);
        int32_t partition_epoch = p->partition_epoch;
        up(who); /* before anyone has missed it */
        until_ready(who, who + 1, 5000000);
        p = kb_image_partition(&c.h[other].r.node->image, kw_str_of("t"), 0);
        (void)partition_epoch;
        cl_pass(&c, 3000000);
        p = kb_image_partition(&c.h[other].r.node->image, kw_str_of("t"), 0);
        assert_int_equal(p->isr_count, 3); /* in the end */
        assert_int_equal(c.h[who].r.node->start_unclean, power);
        teardown_hosts();
    }
}

/* ---- Any node takes an admin's request ---- */

static bool is_blank(int i, const char *path) {
    size_t n;
    const uint8_t *p = sim_disk_peek(c.h[i].r.disk, path, &n);
    for (size_t k = 0; p && k < n; k++)
        if (p[k]) return false;
    return true;
}

/* A topic is deleted and made anew while a broker is down. Whose a folder is stands in a small file of its own, which the power may take: without it
 * the old records must not become the new topic's. But once any record is synced, the file is. (Simulator, cluster seed 18.) */
static void test_a_folder_without_its_topic(void **state) {
    (void)state;
    for (int synced = 0; synced < 2; synced++) {
        setup_hosts(4, 3, 95);
        for (int i = 0; i < 4; i++) rig_set(&c.h[i].r, "flush.on.ack", synced ? "true" : "false");
        for (int i = 0; i < 4; i++) up(i);
        until_ready(0, 4, 5000000);
        assert_int_equal(create(0, "t", 1, 4, 5000), KE_NONE);
        const int32_t leader = seen_by(0, 0)->leader;
        for (int64_t i = 0; i < 5; i++) put(leader, 0, i);
        cl_pass(&c, 500000);
        cl_kill(&c.h[3], true);
        c.h[3].r.boot_id = "boot-2";
        if (synced)
            assert_false(is_blank(3, "/data/t-0/partition.metadata"));
        else
            sim_disk_poke(c.h[3].r.disk, "/data/t-0/partition.metadata", "\0\0\0\0", 4);
        struct kw_delete_topics_request q;
        struct kw_delete_topics_response res;
        struct kw_delete_topics_request_delete_topic_state t = {.name = kw_str_of("t")};
        kw_msg_init(&kw_delete_topics_request_desc, &q);
        q.topics.v = &t;
        q.topics.n = 1;
        q.timeout_ms = 5000;
        ask(0, KW_API_DELETE_TOPICS, 6, &q, &res);
        assert_int_equal(res.responses.v[0].error_code, KE_NONE);
        cl_pass(&c, 4000000); /* the dead is fenced */
        assert_int_equal(create(0, "t", 1, 3, 5000), KE_NONE);
        assert_int_equal(create(0, "u", 1, 3, 5000), KE_NONE);
        up(3);
        until_ready(3, 4, 10000000);
        struct kw_alter_partition_reassignments_request_reassignable_partition x = {.replicas = {(int32_t[]){3}, 1}};
        struct kw_alter_partition_reassignments_request_reassignable_topic move = {.name = kw_str_of("t"), .partitions = {&x, 1}};
        struct kw_alter_partition_reassignments_request m = {.timeout_ms = 5000, .allow_replication_factor_change = true, .topics = {&move, 1}};
        struct kw_alter_partition_reassignments_response answer;
        ask(0, KW_API_ALTER_PARTITION_REASSIGNMENTS, 1, &m, &answer);
        assert_int_equal(answer.error_code, KE_NONE);
        for (int i = 0; seen_by(0, 0)->leader != 3; i++) {
            assert_true(i < 10000);
            cl_pass(&c, 1000);
        }
        cl_pass(&c, 500000);
        const struct kb_partition *p = copy_at(3, 0);
        assert_int_equal(p->state, KB_PART_ONLINE);
        assert_int_equal(p->log->leo, 0); /* the new topic is empty */
        assert_non_null(strstr(c.h[3].r.lines, synced ? "belonged to another topic of that name" : "does not say which topic it belongs to"));
        put(3, 0, 0);
        teardown_hosts();
    }
}

/* A voter's snapshot is younger than the file of its log's epochs, which nothing waits for: after kill -9 the log's end, which was acknowledged, is
 * still there, and its epochs are those of the batches. (Simulator, cluster seed 1.) */
static void test_epochs_older_than_the_snapshot(void **state) {
    (void)state;
    setup_hosts(3, 3, 97);
    for (int i = 0; i < 3; i++) rig_set(&c.h[i].r, "metadata.log.max.record.bytes.between.snapshots", "4000");
    for (int i = 0; i < 3; i++) rig_set(&c.h[i].r, "metadata.log.segment.bytes", "1024"); /* the epoch begins in a sealed one */
    for (int i = 0; i < 3; i++) up(i);
    until_ready(0, 3, 5000000);
    int first = controller(), voter = (first + 1) % 3;
    cl_kill(&c.h[first], false);
    cl_pass(&c, 5000000);
    up(first);
    until_ready(0, 3, 10000000);
    char name[16];
    struct kb_store *s = c.h[voter].r.node->parts.store;
    for (int i = 0; i < 60 && (s->snapshot_epoch < kb_epochs_latest(s->log->epochs) || s->snapshot_end >= s->log->leo); i++) {
        snprintf(name, sizeof(name), "t%d", i);
        assert_int_equal(create(controller(), name, 2, 3, 5000), KE_NONE);
        cl_pass(&c, 200000);
    }
    assert_true(s->snapshot_epoch > 0 && s->snapshot_end < s->log->leo);
    const int64_t end = s->log->leo;
    const size_t count = s->log->epochs->count;
    const struct kb_epoch_entry last = s->log->epochs->v[count - 1], before = s->log->epochs->v[count - 2];
    assert_true(last.start < s->snapshot_end);
    cl_kill(&c.h[voter], false);
    char text[64];
    int n = snprintf(text, sizeof(text), "0\n1\n%d %lld\n", (int)before.epoch, (long long)before.start);
    sim_disk_poke(c.h[voter].r.disk, "/data/__cluster_metadata-0/leader-epoch-checkpoint", text, (size_t)n);
    up(voter);
    until_ready(voter, voter + 1, 10000000);
    s = c.h[voter].r.node->parts.store;
    assert_null(strstr(c.h[voter].r.lines, "it starts anew there"));
    assert_true(s->log->start < s->snapshot_end && s->log->leo >= end);
    assert_int_equal(kb_epochs_at(s->log->epochs, last.start), last.epoch);
    assert_int_equal(kb_epochs_at(s->log->epochs, last.start - 1), before.epoch);
    teardown_hosts();
}

static void test_created_is_known_here(void **state) {
    (void)state;
    begin(4, 3, 90);
    for (int round = 0; round < 24; round++) {
        int i = round % 4;
        char name[16];
        snprintf(name, sizeof(name), "t%d", round);
        assert_int_equal(create(i, name, 4, 3, 5000), KE_NONE);
        const struct kb_image_topic *t = kb_image_topic(&c.h[i].r.node->image, kw_str_of(name)); /* the next Metadata here knows it */
        assert_non_null(t);
        assert_int_equal(t->partition_count, 4);
        assert_int_equal(create(i, name, 4, 3, 5000), KE_TOPIC_ALREADY_EXISTS);
        cl_pass(&c, (round % 5) * 7000);
    }
    teardown_hosts();
}

static void test_producer_ids(void **state) {
    (void)state;
    begin(4, 3, 91);
    int64_t seen[4000];
    int n = 0;
    for (int round = 0; round < 40; round++) {
        struct kw_init_producer_id_request q;
        struct kw_init_producer_id_response res;
        kw_msg_init(&kw_init_producer_id_request_desc, &q);
        q.transactional_id = kw_str_null();
        ask(round % 4, KW_API_INIT_PRODUCER_ID, 4, &q, &res);
        assert_int_equal(res.error_code, KE_NONE);
        for (int k = 0; k < n; k++) assert_true(seen[k] != res.producer_id);
        seen[n++] = res.producer_id;
        if (round == 20) { /* a broker that starts anew gets a block of its own */
            cl_kill(&c.h[3], false);
            up(3);
            until_ready(3, 4, 5000000);
        }
    }
    teardown_hosts();
}

/* While there is no controller the request waits; the change happens once. */
static void test_forwarded_through_a_failover(void **state) {
    (void)state;
    for (uint64_t seed = 100; seed < 106; seed++) {
        begin(4, 3, seed);
        cl_kill(&c.h[controller()], false);
        assert_int_equal(create(3, "t", 2, 2, 10000), KE_NONE);
        assert_non_null(kb_image_topic(&c.h[3].r.node->image, kw_str_of("t")));
        for (int i = 0; i < 3; i++)
            if (c.h[i].up && i != controller()) cl_kill(&c.h[i], false); /* one voter of three is left */
        int64_t began = c.now.mono_us;
        assert_int_equal(create(3, "u", 2, 2, 1500), KE_REQUEST_TIMED_OUT);
        assert_in_range(c.now.mono_us - began, 1400000, 3000000);
        teardown_hosts();
    }
}

static void test_drop_anywhere(void **state) {
    (void)state;
    for (int64_t us = 0; us < 600000; us += 23000) {
        setup_hosts(3, 3, 120);
        for (int i = 0; i < 3; i++) up(i);
        cl_pass(&c, us);
        for (int i = 0; i < 3; i++) cl_kill(&c.h[i], false);
        teardown_hosts();
    }
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_brokers_alone),
        cmocka_unit_test(test_not_ready_without_a_quorum),
        cmocka_unit_test(test_controller_dies),
        cmocka_unit_test(test_controller_hangs),
        cmocka_unit_test(test_clean_stop_hands_over),
        cmocka_unit_test(test_stop_without_a_controller),
        cmocka_unit_test(test_stop_without_hand_over),
        cmocka_unit_test(test_duplicate),
        cmocka_unit_test(test_another_cluster),
        cmocka_unit_test(test_unclean_return),
        cmocka_unit_test(test_a_folder_without_its_topic),
        cmocka_unit_test(test_epochs_older_than_the_snapshot),
        cmocka_unit_test(test_created_is_known_here),
        cmocka_unit_test(test_producer_ids),
        cmocka_unit_test(test_forwarded_through_a_failover),
        cmocka_unit_test(test_drop_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
