/* test_lifecycle_disks.c - whole nodes in one virtual time whose disks lose, fail or rot: who may lead then, and that nothing acknowledged goes. */
#include "lifecycle_steps.h"

/* Makes a topic of three replicas on four nodes; the partition of it that node 0 has no replica of, all in sync. */
static int32_t not_on_the_controllers_node(void) {
    assert_int_equal(create(0, "t", 4, 3, 5000), KE_NONE);
    int32_t index = 0;
    for (bool found = false; !found; index += !found) {
        assert_true(index < 4);
        const struct kb_image_partition *p = seen_by(0, index);
        found = p->replicas[0] && p->replicas[1] && p->replicas[2];
    }
    until_in_sync(0, index, 3);
    return index;
}

/* BR-15: records are acknowledged by two, and not synced; the third has fallen behind. The two die together, and one of them loses its tail with the
 * power. It and the third come back, a majority of the replicas, and neither may lead: who has the records is waited for. */
static void test_br15_a_majority_of_the_weak(void **state) {
    (void)state;
    begin(4, 1, 85);
    int32_t index = not_on_the_controllers_node();
    cl_pass(&c, 500000); /* its leader hears of it, too */
    int leader = seen_by(0, index)->leader, behind = leader % 3 + 1, weak = behind % 3 + 1;
    for (int64_t i = 0; i < 3; i++) put(leader, index, i);
    cl_kill(&c.h[behind], false);
    until_in_sync(0, index, 2);
    for (int64_t i = 3; i < 8; i++) put(leader, index, i);
    cl_kill(&c.h[leader], false);
    cl_kill(&c.h[weak], true);
    c.h[weak].r.boot_id = "boot-2";
    cl_pass(&c, 5000000);
    assert_int_equal(seen_by(0, index)->leader, -1);
    assert_int_equal(seen_by(0, index)->isr_count, 2);
    up(behind);
    up(weak);
    until_ready(behind, behind + 1, 10000000);
    until_ready(weak, weak + 1, 10000000);
    cl_pass(&c, 15000000);
    assert_true(copy_at(weak, index)->log->leo < 8 && copy_at(behind, index)->log->leo < 8);
    assert_int_equal(seen_by(0, index)->leader, -1);
    assert_int_equal(seen_by(0, index)->isr_count, 1);
    assert_int_equal(seen_by(0, index)->isr[0], leader);
    up(leader);
    until_ready(leader, leader + 1, 10000000);
    until_in_sync(0, index, 3);
    put(seen_by(0, index)->leader, index, 8);
    cl_pass(&c, 2000000);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(copy_at(i, index)->log->leo, 9);
        assert_int_equal(copy_at(i, index)->hw, 9);
    }
    teardown_hosts();
}

/* ---- Disks that fail ---- */

static int64_t leo_of(int i, int32_t index) {
    return copy_at(i, index)->log->leo;
}
static int16_t try_put(int i, int32_t index) {
    struct rig *r = &c.h[i].r;
    struct kw_produce_response res;
    size_t n;
    uint8_t *p = rig_batch(r, &(struct rig_batch){.pid = -1, .epoch = -1, .seq = -1, .count = 1, .value_size = 100}, &n);
    ask(i, KW_API_PRODUCE, 9, &rig_produce_msg(r, "t", index, -1, p, n)->req, &res);
    return res.responses.v[0].partition_responses.v[0].error_code;
}
static int64_t until_led_by_another(int by, int32_t index, int was) {
    int64_t began = c.now.mono_us;
    for (int t = 0; seen_by(by, index)->leader == was; t++) {
        if (t > 10000) fail_msg("%d goes on leading", was);
        cl_pass(&c, 1000);
    }
    return c.now.mono_us - began;
}

/* The leader's log fails, by a write or by an fsync: another in-sync replica leads within a second, and what it has is all there is. The failed one
 * stays out for as long as its node runs; other partitions of that node go on. Started anew, with a disk that works, it catches up and is in. */
static void test_a_leaders_log_fails(void **state) {
    (void)state;
    for (int by_sync = 0; by_sync < 2; by_sync++) {
        begin(3, 3, 86);
        assert_int_equal(create(0, "t", 3, 3, 5000), KE_NONE);
        cl_pass(&c, 500000);
        int was = seen_by(0, 0)->leader, other = (was + 1) % 3;
        for (int64_t i = 0; i < 3; i++) put(was, 0, i);
        if (by_sync) {
            struct kb_partition *p = seen_by(was, 0)->local;
            sim_disk_faults(c.h[was].r.disk)->eio_sync_at = 0;
            assert_int_equal(kb_log_sync(p->log), KW_OK);
        } else {
            sim_disk_faults(c.h[was].r.disk)->eio_write_at = 0;
            assert_int_equal(try_put(was, 0), KE_KAFKA_STORAGE_ERROR);
        }
        assert_true(until_led_by_another(other, 0, was) < 1000000);
        assert_int_equal(copy_at(was, 0)->state, KB_PART_OFFLINE);
        int now = seen_by(other, 0)->leader;
        put(now, 0, 3);
        cl_pass(&c, 15000000); /* longer than any lag */
        assert_int_equal(seen_by(other, 0)->isr_count, 2);
        assert_true(kb_elect_is_lost(seen_by(other, 0), was));
        assert_int_equal(kb_node_state(c.h[was].r.node), KB_NODE_READY);
        for (int32_t i = 1; i < 3; i++) {
            assert_int_equal(seen_by(other, i)->isr_count, 3);
            put(seen_by(other, i)->leader, i, 0);
        }
        cl_kill(&c.h[was], false);
        until_in_sync(other, 1, 2);
        up(was);
        until_ready(was, was + 1, 10000000);
        until_in_sync(other, 0, 3);
        assert_false(kb_elect_is_lost(seen_by(other, 0), was));
        put(seen_by(other, 0)->leader, 0, 4);
        cl_pass(&c, 2000000);
        for (int i = 0; i < 3; i++) assert_int_equal(leo_of(i, 0), 5);
        teardown_hosts();
    }
}

/* A follower's: it leaves the in-sync replicas at once, not after replica.lag.time.max.ms. */
static void test_a_followers_log_fails(void **state) {
    (void)state;
    begin(3, 3, 87);
    assert_int_equal(create(0, "t", 2, 3, 5000), KE_NONE);
    cl_pass(&c, 500000);
    int leader = seen_by(0, 0)->leader, who = (leader + 1) % 3;
    put(leader, 0, 0);
    sim_disk_faults(c.h[who].r.disk)->eio_write_at = 0;
    int64_t began = c.now.mono_us;
    put(leader, 0, 1); /* waits until it is out */
    assert_true(c.now.mono_us - began < 1000000);
    assert_int_equal(seen_by(leader, 0)->isr_count, 2);
    assert_int_equal(seen_by(leader, 0)->leader, leader);
    assert_int_equal(seen_by(leader, 1)->isr_count, 3);
    teardown_hosts();
}

/* All logs of a node: it is the disk. The node tells the controller so, and stops with an error that names the folder. */
static void test_a_disk_fails(void **state) {
    (void)state;
    begin(4, 3, 88);
    assert_int_equal(create(0, "t", 2, 4, 5000), KE_NONE);
    cl_pass(&c, 500000);
    for (int32_t i = 0; i < 2; i++) { /* the metadata log is spared: its end would be the node's too */
        sim_disk_faults(c.h[3].r.disk)->eio_write_at = 0;
        (void)try_put(seen_by(0, i)->leader, i);
        if (i == 0) cl_pass(&c, 500000);
        if (i == 0) assert_int_equal(kb_node_state(c.h[3].r.node), KB_NODE_READY);
    }
    for (int t = 0; kb_node_state(c.h[3].r.node) != KB_NODE_FAILED; t++) {
        if (t > 3000) fail_msg("node 3 goes on");
        cl_pass(&c, 1000);
    }
    assert_non_null(strstr(kb_node_failure(c.h[3].r.node), "/data: the logs of all partitions failed"));
    assert_true(broker_seen_by(0, 3)->fenced);
    for (int32_t i = 0; i < 2; i++) {
        until_in_sync(0, i, 3);
        assert_true(seen_by(0, i)->leader >= 0 && seen_by(0, i)->leader != 3);
    }
    down(3);
    teardown_hosts();
}

/* A single replica: nobody else can lead, and its clients are told why. */
static void test_a_single_replicas_log_fails(void **state) {
    (void)state;
    begin(3, 3, 89);
    assert_int_equal(create(0, "t", 2, 1, 5000), KE_NONE);
    cl_pass(&c, 500000);
    int leader = seen_by(0, 0)->leader;
    sim_disk_faults(c.h[leader].r.disk)->eio_write_at = 0;
    assert_int_equal(try_put(leader, 0), KE_KAFKA_STORAGE_ERROR);
    cl_pass(&c, 5000000);
    assert_int_equal(try_put(leader, 0), KE_KAFKA_STORAGE_ERROR);
    assert_int_equal(seen_by(leader, 0)->leader, leader);
    assert_int_equal(kb_node_state(c.h[leader].r.node), KB_NODE_READY);
    teardown_hosts();
}
static void reassign_first(int32_t *to, int32_t n) { /* n -1: not any more */
    struct kw_alter_partition_reassignments_request_reassignable_partition x = {.replicas = {to, n}};
    struct kw_alter_partition_reassignments_request_reassignable_topic t = {.name = kw_str_of("t"), .partitions = {&x, 1}};
    struct kw_alter_partition_reassignments_request m = {.timeout_ms = 5000, .allow_replication_factor_change = true, .topics = {&t, 1}};
    struct kw_alter_partition_reassignments_response answer;
    ask(0, KW_API_ALTER_PARTITION_REASSIGNMENTS, 1, &m, &answer);
    assert_int_equal(answer.error_code, KE_NONE);
    assert_int_equal(answer.responses.v[0].partitions.v[0].error_code, KE_NONE);
}

/* It is to have a second one, so that the controller hears that its log failed; and then it is to be alone again. When its log is back it must lead again
 * (simulator, cluster seed 1071). */
static void test_a_single_replica_that_was_told_is_back(void **state) {
    (void)state;
    begin(3, 3, 97);
    assert_int_equal(create(0, "t", 2, 1, 5000), KE_NONE);
    cl_pass(&c, 500000);
    int was = seen_by(0, 0)->leader, other = (was + 1) % 3;
    put(was, 0, 0);
    sim_disk_faults(c.h[was].r.disk)->eio_write_at = 0;
    assert_int_equal(try_put(was, 0), KE_KAFKA_STORAGE_ERROR);
    reassign_first((int32_t[]){was, other}, 2);
    until_led_by_another(other, 0, was);
    reassign_first(NULL, -1);
    cl_pass(&c, 500000);
    assert_int_equal(seen_by(other, 0)->replica_count, 1);
    assert_true(kb_elect_is_lost(seen_by(other, 0), was));
    cl_kill(&c.h[was], false);
    cl_pass(&c, 500000);
    up(was);
    until_ready(was, was + 1, 10000000);
    cl_pass(&c, 2000000);
    assert_int_equal(seen_by(other, 0)->leader, was);
    assert_false(kb_elect_is_lost(seen_by(other, 0), was));
    put(was, 0, 1);
    teardown_hosts();
}

/* ---- Logs that lack something ---- */

/* Three copies of what was acknowledged, on 1, 2 and 3; all are killed at once, and a bit of the last batch of one turns: nothing of it need have been
 * synced, so recovery takes its log to end in front of it. That one comes back first, in sync by the metadata. It must not lead, however often its start is
 * cut short: what it lacks is with the others, and is waited for. With flush.on.ack likewise; and where the bit is one of the batch's offset, so that the log
 * seems to end far above what it holds. */
static void rotten_tail(bool flushed, bool killed_again, bool offset, uint64_t seed) {
    char path[80];
    size_t n;
    setup_hosts(4, 1, seed);
    for (int i = 0; flushed && i < 4; i++) rig_set(&c.h[i].r, "flush.on.ack", "true");
    for (int i = 0; i < 4; i++) up(i);
    until_ready(0, 4, 5000000);
    int32_t index = not_on_the_controllers_node();
    cl_pass(&c, 500000); /* its leader hears of it, too */
    int first = seen_by(0, index)->leader;
    for (int64_t i = 0; i < 8; i++) put(first, index, i);
    for (int i = 1; i < 4; i++) cl_kill(&c.h[i], false);
    cl_pass(&c, 5000000);
    assert_int_equal(seen_by(0, index)->leader, -1);
    assert_int_equal(seen_by(0, index)->isr_count, 3);
    snprintf(path, sizeof(path), "/data/t-%d/00000000000000000000.log", index);
    assert_non_null(sim_disk_peek(c.h[first].r.disk, path, &n));
    assert_int_equal(n % 8, 0);
    sim_disk_rot(c.h[first].r.disk, path, offset ? n / 8 * 7 + 5 : n - 20, 4);
    up(first);
    for (int k = 1; killed_again && k < 40; k++) {
        cl_pass(&c, k * 1500);
        cl_kill(&c.h[first], false);
        up(first);
    }
    until_ready(first, first + 1, 20000000);
    cl_pass(&c, 5000000);
    assert_int_equal(copy_at(first, index)->log->leo, 7);
    assert_int_equal(seen_by(0, index)->leader, -1);
    assert_int_equal(seen_by(0, index)->isr_count, 2);
    for (int i = 1; i < 4; i++)
        if (i != first) up(i);
    until_ready(1, 4, 10000000);
    until_in_sync(0, index, 3);
    cl_pass(&c, 500000);
    put(seen_by(0, index)->leader, index, 8);
    cl_pass(&c, 2000000);
    for (int i = 1; i < 4; i++) {
        assert_int_equal(copy_at(i, index)->log->leo, 9);
        assert_int_equal(copy_at(i, index)->hw, 9);
    }
    teardown_hosts();
}
static void test_a_rotten_tail_does_not_lead(void **state) {
    (void)state;
    for (int offset = 0; offset < 2; offset++) {
        rotten_tail(false, false, offset, 90);
        rotten_tail(true, false, offset, 91);
        rotten_tail(false, true, offset, 92);
    }
}

/* A bit of a batch amidst a log turns that was synced long ago. Its replica must not stay in sync with it, since it could come to lead and not serve it: it
 * fetches it from the leader. */
static void test_rot_amidst_a_log_is_fetched_anew(void **state) {
    char path[80];
    size_t n, m;
    const uint8_t *p;
    (void)state;
    setup_hosts(4, 1, 95);
    for (int i = 0; i < 4; i++) {
        rig_set(&c.h[i].r, "log.flush.interval.ms", "1000");
        up(i);
    }
    until_ready(0, 4, 5000000);
    int32_t index = not_on_the_controllers_node();
    cl_pass(&c, 500000);
    int first = seen_by(0, index)->leader;
    for (int64_t i = 0; i < 8; i++) put(first, index, i);
    cl_pass(&c, 130000000);
    assert_non_null(p = sim_disk_peek(c.h[first].r.disk, "/data/recovery-point-offset-checkpoint", &n));
    snprintf(path, sizeof(path), "t %d 8\n", index);
    assert_non_null(memmem(p, n, path, strlen(path)));
    cl_kill(&c.h[first], false);
    cl_pass(&c, 2000000);
    assert_true(seen_by(0, index)->leader >= 0);
    snprintf(path, sizeof(path), "/data/t-%d/00000000000000000000.log", index);
    assert_non_null(p = sim_disk_peek(c.h[first].r.disk, path, &n));
    uint8_t *whole = malloc(n);
    memcpy(whole, p, n);
    sim_disk_rot(c.h[first].r.disk, path, n / 8 * 3 + KW_BATCH_HEADER_SIZE + 3, 4);
    up(first);
    until_ready(first, first + 1, 20000000);
    until_in_sync(0, index, 3);
    p = sim_disk_peek(c.h[first].r.disk, path, &m);
    assert_true(m >= n && memcmp(p, whole, n) == 0);
    free(whole);
    teardown_hosts();
}

/* One of two logs that lack something is refused by the controller for a while: the other one does not wait for it. */
static void (*told)(struct kb_call *k, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now);
static int32_t refused; /* index of a partition; -1: none */

static void refuse(struct kb_call *k, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct kw_assign_replicas_to_dirs_response m;
    struct kw_arena arena;
    struct kw_out out;
    struct kw_in changed;
    kw_arena_init(&arena, 0);
    kw_out_init(&out);
    assert_int_equal(err, KW_OK);
    assert_int_equal(kw_decode(&kw_assign_replicas_to_dirs_response_desc, 0, body, &arena, &m), KW_OK);
    for (int32_t i = 0; i < m.directories.n; i++)
        for (int32_t j = 0; j < m.directories.v[i].topics.n; j++)
            for (int32_t n = 0; n < m.directories.v[i].topics.v[j].partitions.n; n++)
                if (m.directories.v[i].topics.v[j].partitions.v[n].partition_index == refused)
                    m.directories.v[i].topics.v[j].partitions.v[n].error_code = KE_INELIGIBLE_REPLICA;
    assert_int_equal(kw_encode(&kw_assign_replicas_to_dirs_response_desc, 0, &m, &out), KW_OK);
    kw_in_init(&changed, out.p, out.len);
    k->done = told;
    told(k, KW_OK, &changed, blk, now);
    kw_out_deinit(&out);
    kw_arena_deinit(&arena);
}
static kw_err ask_refused(struct kb_node *n, struct kb_call *k, const struct kw_desc *request, int16_t version, const void *msg, int64_t timeout_us,
                          struct kb_now now) {
    if (k->done != refuse) told = k->done;
    k->done = refuse;
    return kb_channel_call(n, k, request, version, msg, timeout_us, now);
}

static void test_one_that_is_refused_keeps_no_other_waiting(void **state) {
    char path[80];
    size_t n;
    (void)state;
    begin(4, 1, 96);
    int32_t one = not_on_the_controllers_node(), other = 0;
    cl_pass(&c, 500000);
    int first = seen_by(0, one)->leader;
    while (other == one || !copy_at(first, other)) other++;
    until_in_sync(0, other, 3);
    for (int64_t i = 0; i < 4; i++) put(first, one, i), put(seen_by(0, other)->leader, other, i);
    cl_pass(&c, 1000000);
    cl_kill(&c.h[first], false);
    cl_pass(&c, 2000000);
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof(path), "/data/t-%d/00000000000000000000.log", k ? other : one);
        assert_non_null(sim_disk_peek(c.h[first].r.disk, path, &n));
        sim_disk_rot(c.h[first].r.disk, path, n - 20, 4);
    }
    refused = one;
    up(first);
    c.h[first].r.node->partitions->dirs.ask = ask_refused;
    cl_pass(&c, 20000000);
    assert_int_equal(copy_at(first, one)->state, KB_PART_LOADING);
    assert_int_equal(copy_at(first, other)->state, KB_PART_ONLINE);
    assert_non_null(strstr(c.h[first].r.lines, "INELIGIBLE_REPLICA"));
    refused = -1;
    until_ready(first, first + 1, 20000000);
    until_in_sync(0, one, 3);
    until_in_sync(0, other, 3);
    teardown_hosts();
}

/* A node whose log lacks something starts; one of its links is held from a while after that on. Whether its metadata told it of its registration before the
 * answer did, which is yet to come: it gets ready all the same, and whole. */
static bool registered_with_a_link_held(int link, int turns) {
    char path[80];
    size_t n;
    begin(4, 1, 94);
    int32_t index = not_on_the_controllers_node();
    cl_pass(&c, 500000);
    int first = seen_by(0, index)->leader;
    for (int64_t i = 0; i < 4; i++) put(first, index, i);
    int64_t epoch = epoch_of(first);
    cl_kill(&c.h[first], false);
    cl_pass(&c, 1000000);
    snprintf(path, sizeof(path), "/data/t-%d/00000000000000000000.log", index);
    assert_non_null(sim_disk_peek(c.h[first].r.disk, path, &n));
    sim_disk_rot(c.h[first].r.disk, path, n - 20, 4);
    up(first);
    for (int t = 0; t < turns; t++)
        if (!cl_turn(&c)) cl_pass(&c, 50);
    for (int i = 0, mine = 0; i < PIPES_MAX; i++)
        if (c.pipes[i].used && c.pipes[i].from == &c.h[first]) c.pipes[i].held = mine++ == link;
    cl_pass(&c, 200000);
    const struct kb_image_broker *b = broker_seen_by(first, first);
    bool met = b && b->epoch > epoch && epoch_of(first) < b->epoch;
    for (int i = 0; i < PIPES_MAX; i++) c.pipes[i].held = false;
    until_ready(first, first + 1, 20000000);
    until_in_sync(0, index, 3);
    assert_int_equal(copy_at(first, index)->log->leo, 4);
    teardown_hosts();
    return met;
}
static void test_registered_in_any_order(void **state) {
    (void)state;
    int met = 0;
    for (int link = 0; link < 4; link++)
        for (int turns = 100; turns < 300; turns += 4) met += registered_with_a_link_held(link, turns);
    assert_true(met > 0); /* else this shows nothing */
}

/* One that is the last in sync leads, as nobody else has more, and that is said. */
static void test_a_rotten_tail_of_the_last(void **state) {
    char path[80];
    size_t n;
    (void)state;
    begin(4, 1, 93);
    int32_t index = not_on_the_controllers_node();
    cl_pass(&c, 500000);
    int last = seen_by(0, index)->leader;
    for (int64_t i = 0; i < 4; i++) put(last, index, i);
    for (int i = 1; i < 4; i++)
        if (i != last) cl_kill(&c.h[i], false);
    until_in_sync(0, index, 1);
    cl_pass(&c, 500000);
    for (int64_t i = 4; i < 8; i++) put(last, index, i);
    cl_kill(&c.h[last], false);
    cl_pass(&c, 5000000);
    snprintf(path, sizeof(path), "/data/t-%d/00000000000000000000.log", index);
    assert_non_null(sim_disk_peek(c.h[last].r.disk, path, &n));
    sim_disk_rot(c.h[last].r.disk, path, n - 20, 4);
    up(last);
    until_ready(last, last + 1, 20000000);
    cl_pass(&c, 1000000);
    assert_int_equal(seen_by(0, index)->leader, last);
    put(last, index, 7);
    teardown_hosts();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_br15_a_majority_of_the_weak),
        cmocka_unit_test(test_a_leaders_log_fails),
        cmocka_unit_test(test_a_followers_log_fails),
        cmocka_unit_test(test_a_disk_fails),
        cmocka_unit_test(test_a_single_replicas_log_fails),
        cmocka_unit_test(test_a_single_replica_that_was_told_is_back),
        cmocka_unit_test(test_a_rotten_tail_does_not_lead),
        cmocka_unit_test(test_a_rotten_tail_of_the_last),
        cmocka_unit_test(test_rot_amidst_a_log_is_fetched_anew),
        cmocka_unit_test(test_one_that_is_refused_keeps_no_other_waiting),
        cmocka_unit_test(test_registered_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
