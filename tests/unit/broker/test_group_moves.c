/* test_group_moves.c - groups whose coordinator moves between three node cores: what was stored is there, what was not is said not to be. The
 * test is the controller. Cases BG-03, BG-04, BG-11.
 */
#include "replica_steps.h"

#include "group/coordinator.h"

enum { GROUPS = 2 }; /* the number of the topic; partition 0 is all of it */

static struct cluster *groups_up(uint64_t seed) {
    struct cluster *c = calloc(1, sizeof(*c));
    assert_non_null(c);
    cl_init(c, 3, seed);
    for (int32_t i = 0; i < 3; i++) cl_add_broker(c, i, 100 + i);
    cl_tell(c, (struct news){.kind = NEWS_TOPIC, .topic = 1});
    cl_add_partition(c, 1, 0, 3, 0);
    cl_tell(c, (struct news){.kind = NEWS_TOPIC, .topic = GROUPS, .key = KB_OFFSETS_TOPIC});
    cl_add_partition(c, GROUPS, 0, 3, 0);
    for (int i = 0; i < 3; i++) cl_boot(&c->h[i]);
    cl_pass(c, 500000);
    return c;
}
static void groups_down(struct cluster *c) {
    cl_deinit(c);
    free(c);
}
static struct kb_partition *office(struct cluster *c, int host) {
    return cl_partition(&c->h[host], GROUPS, 0);
}
static void lead(struct cluster *c, int host, unsigned isr) {
    cl_elect(c, GROUPS, 0, host, isr, false);
}

/* ---- Requests ---- */

struct call {
    struct rig_conn *conn;
    int16_t key, version;
};

static void call(struct cluster *c, struct call *k, int host, int16_t key, int16_t version, const void *req) {
    *k = (struct call){rig_connect(&c->h[host].r), key, version};
    rig_request(k->conn, key, version, 1, req);
}
static bool answer(struct call *k, void *resp) {
    return rig_response(k->conn, k->key, k->version, 1, resp);
}
static void wait_for(struct cluster *c, struct call *k, void *resp) {
    for (int i = 0; i < 10000; i++) {
        if (answer(k, resp)) return;
        cl_pass(c, 1000);
    }
    fail_msg("no answer to %s", kw_api_by_key(k->key)->name);
}

static void commit_send(struct cluster *c, struct call *k, int host, int64_t offset) {
    struct kw_offset_commit_request req;
    struct kw_offset_commit_request_partition p = {
        .committed_offset = offset, .committed_leader_epoch = -1, .commit_timestamp = -1, .committed_metadata = kw_str_of("")};
    struct kw_offset_commit_request_topic t = {.name = kw_str_of("t1"), .partitions = {&p, 1}};
    kw_msg_init(&kw_offset_commit_request_desc, &req);
    req.group_id = kw_str_of("g");
    req.generation_id_or_member_epoch = -1;
    req.topics.v = &t;
    req.topics.n = 1;
    call(c, k, host, KW_API_OFFSET_COMMIT, 7, &req);
}
static bool committed(struct call *k, int16_t *code) {
    struct kw_offset_commit_response resp;
    if (!answer(k, &resp)) return false;
    *code = resp.topics.v[0].partitions.v[0].error_code;
    return true;
}
static int16_t commit(struct cluster *c, int host, int64_t offset) {
    struct call k;
    int16_t code;
    commit_send(c, &k, host, offset);
    for (int i = 0; i < 10000; i++) {
        if (committed(&k, &code)) return code;
        cl_pass(c, 1000);
    }
    fail_msg("no answer to a commit");
    return -1;
}
static int64_t fetched(struct cluster *c, int host) {
    struct kw_offset_fetch_request req;
    struct kw_offset_fetch_response resp;
    int32_t index = 0;
    struct kw_offset_fetch_request_topic t = {.name = kw_str_of("t1"), .partition_indexes = {&index, 1}};
    struct call k;
    kw_msg_init(&kw_offset_fetch_request_desc, &req);
    req.group_id = kw_str_of("g");
    req.topics.v = &t;
    req.topics.n = 1;
    call(c, &k, host, KW_API_OFFSET_FETCH, 5, &req);
    wait_for(c, &k, &resp);
    return resp.error_code ? -2 - resp.error_code : resp.topics.v[0].partitions.v[0].committed_offset;
}
/* As a client does while the coordinator reads its log. */
static int64_t fetched_soon(struct cluster *c, int host) {
    for (int i = 0; i < 1000; i++) {
        int64_t v = fetched(c, host);
        if (v != -2 - KE_COORDINATOR_LOAD_IN_PROGRESS) return v;
        cl_pass(c, 10000);
    }
    fail_msg("it does not end loading");
    return -1;
}

struct member {
    char id[80];
    int32_t generation;
};
static void join_send(struct cluster *c, struct call *k, int host, const struct member *m) {
    struct kw_join_group_request req;
    struct kw_join_group_request_protocol p = {.name = kw_str_of("range"), .metadata = {(const uint8_t *)"", 0}};
    kw_msg_init(&kw_join_group_request_desc, &req);
    req.group_id = kw_str_of("g");
    req.session_timeout_ms = 10000;
    req.rebalance_timeout_ms = 60000;
    req.member_id = kw_str_of(m->id);
    req.protocol_type = kw_str_of("consumer");
    req.protocols.v = &p;
    req.protocols.n = 1;
    call(c, k, host, KW_API_JOIN_GROUP, 3, &req);
}
static int16_t joined(struct cluster *c, struct call *k, struct member *m) {
    struct kw_join_group_response resp;
    wait_for(c, k, &resp);
    snprintf(m->id, sizeof(m->id), "%.*s", (int)resp.member_id.len, resp.member_id.p);
    m->generation = resp.generation_id;
    return resp.error_code;
}
static void sync_send(struct cluster *c, struct call *k, int host, const struct member *m, bool leads) {
    struct kw_sync_group_request req;
    struct kw_sync_group_request_assignment a = {.member_id = kw_str_of(m->id), .assignment = {(const uint8_t *)"mine", 4}};
    kw_msg_init(&kw_sync_group_request_desc, &req);
    req.group_id = kw_str_of("g");
    req.generation_id = m->generation;
    req.member_id = kw_str_of(m->id);
    req.assignments.v = &a;
    req.assignments.n = leads ? 1 : 0;
    call(c, k, host, KW_API_SYNC_GROUP, 2, &req);
}
static int16_t synced(struct cluster *c, struct call *k, bool *mine) {
    struct kw_sync_group_response resp;
    wait_for(c, k, &resp);
    if (mine) *mine = resp.assignment.len == 4;
    return resp.error_code;
}
static int16_t beat(struct cluster *c, int host, const struct member *m) {
    struct kw_heartbeat_request req;
    struct kw_heartbeat_response resp;
    struct call k;
    kw_msg_init(&kw_heartbeat_request_desc, &req);
    req.group_id = kw_str_of("g");
    req.generation_id = m->generation;
    req.member_id = kw_str_of(m->id);
    call(c, &k, host, KW_API_HEARTBEAT, 2, &req);
    wait_for(c, &k, &resp);
    return resp.error_code;
}
static void stable(struct cluster *c, int host, struct member *m) {
    struct call k;
    *m = (struct member){{0}, 0};
    join_send(c, &k, host, m);
    assert_int_equal(joined(c, &k, m), KE_NONE);
    sync_send(c, &k, host, m, true);
    assert_int_equal(synced(c, &k, NULL), KE_NONE);
}

/* ---- The cases ---- */

/* BG-03: a stable group, idle; its coordinator moves, by a death or in order. */
static void test_bg03_a_stable_group_moves(void **state) {
    (void)state;
    for (int kill = 0; kill < 2; kill++) {
        struct cluster *c = groups_up(31 + (uint64_t)kill);
        struct member m;
        struct call k;
        bool mine = false;
        stable(c, 0, &m);
        assert_int_equal(commit(c, 0, 5), KE_UNKNOWN_MEMBER_ID); /* it has a member */
        cl_pass(c, 1000000);
        if (kill) {
            cl_kill(&c->h[0], false);
            c->dead[0] = true;
        }
        lead(c, 1, kill ? 6 : 7);
        cl_read_all(c);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(beat(c, 1, &m), KE_NONE); /* while it loads, too */
            cl_pass(c, 9000000);
        }
        sync_send(c, &k, 1, &m, false);
        assert_int_equal(synced(c, &k, &mine), KE_NONE);
        assert_true(mine);
        if (!kill) assert_int_equal(beat(c, 0, &m), KE_NOT_COORDINATOR);
        groups_down(c);
    }
}

/* BG-04: a commit waits for the replicas; its coordinator becomes a follower, its end is cut off, others are committed in its place. */
static void test_bg04_a_commit_that_is_cut_off(void **state) {
    (void)state;
    struct cluster *c = groups_up(33);
    struct call lost;
    int16_t code = -1;
    assert_int_equal(commit(c, 0, 5), KE_NONE);
    cl_pass(c, 1000000);
    hold(c, true, true);
    commit_send(c, &lost, 0, 6);
    cl_pass(c, 100000);
    assert_false(committed(&lost, &code));
    lead(c, 1, 7);
    cl_read(&c->h[1], c->news_count);
    cl_read(&c->h[2], c->news_count);
    hold(c, false, false);
    cl_pass(c, 100000);
    assert_int_equal(office(c, 1)->log->leo, 1);
    assert_false(committed(&lost, &code)); /* it has not heard of it */
    cl_read(&c->h[0], c->news_count);
    cl_pass(c, 1);
    assert_true(committed(&lost, &code));
    assert_int_equal(code, KE_NOT_COORDINATOR);
    assert_int_equal(fetched_soon(c, 1), 5);
    for (int64_t i = 7; i < 12; i++) assert_int_equal(commit(c, 1, i), KE_NONE);
    cl_pass(c, 1000000);
    assert_true(office(c, 0)->hw >= 6);
    lead(c, 0, 7);
    cl_read_all(c);
    assert_int_equal(fetched_soon(c, 0), 11);
    groups_down(c);
}

/* BG-04: it leads again, in a later epoch: what was under way may have been cut off in between. */
static void test_bg04_led_again_in_another_epoch(void **state) {
    (void)state;
    struct cluster *c = groups_up(34);
    struct call lost;
    int16_t code = -1;
    assert_int_equal(commit(c, 0, 5), KE_NONE);
    hold(c, true, true);
    commit_send(c, &lost, 0, 6);
    cl_pass(c, 100000);
    lead(c, 1, 7);
    lead(c, 0, 7);
    cl_read(&c->h[0], c->news_count);
    cl_pass(c, 1);
    assert_true(committed(&lost, &code));
    assert_int_equal(code, KE_NOT_COORDINATOR);
    assert_int_equal(fetched(c, 0), -2 - KE_COORDINATOR_LOAD_IN_PROGRESS); /* until all that it has is committed */
    hold(c, false, false);
    cl_read_all(c);
    assert_int_equal(fetched_soon(c, 0), 6); /* it came to be stored after all */
    groups_down(c);
}

/* BG-11: it moves twice; the old one says so at once, and one without members of its group commits on. */
static void test_bg11_moved_twice(void **state) {
    (void)state;
    struct cluster *c = groups_up(35);
    for (int host = 0; host < 3; host++) {
        if (host > 0) {
            lead(c, host, 7);
            cl_read_all(c);
            int64_t before = c->now.mono_us;
            assert_int_equal(commit(c, host - 1, 100), KE_NOT_COORDINATOR);
            assert_true(c->now.mono_us - before < 10000);
            assert_int_equal(fetched_soon(c, host), host - 1);
        }
        assert_int_equal(commit(c, host, host), KE_NONE);
        assert_int_equal(fetched(c, host), host);
    }
    groups_down(c);
}

/* Who waits for the others of the group is told that they meet elsewhere. */
static void test_waiters_when_it_moves(void **state) {
    (void)state;
    struct cluster *c = groups_up(36);
    struct member a, b = {{0}, 0};
    struct call join, sync;
    stable(c, 0, &a);
    join_send(c, &join, 0, &b);
    cl_pass(c, 100000);
    lead(c, 1, 7);
    cl_read_all(c);
    assert_int_equal(joined(c, &join, &b), KE_NOT_COORDINATOR);
    b.id[0] = 0;
    assert_int_equal(fetched_soon(c, 1), -1);
    join_send(c, &join, 1, &b);
    cl_pass(c, 100000);
    assert_int_equal(beat(c, 1, &a), KE_REBALANCE_IN_PROGRESS);
    struct call again;
    join_send(c, &again, 1, &a);
    assert_int_equal(joined(c, &again, &a), KE_NONE);
    assert_int_equal(joined(c, &join, &b), KE_NONE);
    assert_int_equal(a.generation, 2);
    sync_send(c, &sync, 1, &b, false);
    cl_pass(c, 100000);
    lead(c, 2, 7);
    cl_read_all(c);
    assert_int_equal(synced(c, &sync, NULL), KE_NOT_COORDINATOR);
    groups_down(c);
}

/* Too few are in sync: nobody is told of what another coordinator would not know, however long that is; and it serves once they are back. */
static void test_too_few_to_serve(void **state) {
    (void)state;
    struct cluster *c = groups_up(37);
    struct member m;
    stable(c, 0, &m);
    hold(c, true, true);
    assert_int_equal(office(c, 1)->log->leo, 1); /* 1 has it all, and has not heard that it is committed */
    assert_int_equal(office(c, 1)->hw, 0);
    cl_tell(c, (struct news){.kind = NEWS_CONFIG, .topic = GROUPS, .key = "min.insync.replicas", .value = "2"});
    cl_read_all(c);
    c->dead[0] = c->dead[2] = true;
    cl_kill(&c->h[0], false);
    cl_kill(&c->h[2], false);
    hold(c, false, false);
    lead(c, 1, 2);
    cl_read_all(c);
    for (int i = 0; i < 60; i++) {
        cl_pass(c, 10000000); /* ten minutes: more than any session */
        assert_int_equal(beat(c, 1, &m), KE_NONE);
        assert_int_equal(fetched(c, 1), -2 - KE_COORDINATOR_LOAD_IN_PROGRESS);
    }
    c->dead[0] = c->dead[2] = false;
    for (int i = 0; i < 3; i += 2) {
        cl_add_broker(c, i, 300 + i);
        cl_boot(&c->h[i]);
    }
    for (int i = 0; i < 50; i++) {
        cl_pass(c, 100000);
        cl_read_all(c);
    }
    assert_int_equal(fetched_soon(c, 1), -1);
    assert_int_equal(beat(c, 1, &m), KE_NONE);
    assert_int_equal(commit(c, 1, 1), KE_UNKNOWN_MEMBER_ID);
    groups_down(c);
}

/* The topic is deleted while the log of its partition is being read; and while commits wait. */
static void test_gone_while_it_loads(void **state) {
    (void)state;
    struct cluster *c = groups_up(38);
    struct call k, waits;
    int16_t code = -1;
    for (int64_t i = 0; i < 5; i++) assert_int_equal(commit(c, 0, i), KE_NONE);
    cl_pass(c, 1000000);
    cl_stop(&c->h[1]); /* what it reads lies on its disk */
    cl_add_broker(c, 1, 301);
    cl_boot(&c->h[1]);
    cl_read_all(c);
    cl_pass(c, 1000000);
    lead(c, 1, 7);
    sim_disk_faults(c->h[1].r.disk)->hung_until_us = c->now.mono_us + 1000000;
    cl_read_all(c);
    cl_pass(c, 100000);
    assert_int_equal(fetched(c, 1), -2 - KE_COORDINATOR_LOAD_IN_PROGRESS);
    assert_int_equal(office(c, 1)->pins, 1); /* it reads */
    commit_send(c, &waits, 1, 9);
    cl_tell(c, (struct news){.kind = NEWS_GONE, .topic = GROUPS});
    cl_read_all(c);
    commit_send(c, &k, 1, 10);
    cl_pass(c, 5000000);
    assert_true(committed(&waits, &code));
    assert_int_equal(code, KE_COORDINATOR_LOAD_IN_PROGRESS);
    assert_true(committed(&k, &code));
    assert_int_equal(code, KE_NOT_COORDINATOR);
    groups_down(c);
}

/* The read fails by which it loads: the log has failed, and who loads is told of it from within that read. */
static void test_its_disk_fails_while_it_loads(void **state) {
    (void)state;
    struct cluster *c = groups_up(39);
    for (int64_t i = 0; i < 5; i++) assert_int_equal(commit(c, 0, i), KE_NONE);
    cl_pass(c, 1000000);
    cl_stop(&c->h[1]);
    cl_add_broker(c, 1, 301);
    cl_boot(&c->h[1]);
    cl_read_all(c);
    cl_pass(c, 1000000);
    lead(c, 1, 7);
    sim_disk_faults(c->h[1].r.disk)->eio_read_at = 0;
    cl_read_all(c);
    cl_pass(c, 1000000);
    assert_int_equal(office(c, 1)->state, KB_PART_OFFLINE);
    assert_int_equal(fetched(c, 1), -2 - KE_NOT_COORDINATOR);
    lead(c, 2, 5);
    cl_read_all(c);
    assert_int_equal(fetched_soon(c, 2), 4);
    groups_down(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bg03_a_stable_group_moves),       cmocka_unit_test(test_bg04_a_commit_that_is_cut_off),
        cmocka_unit_test(test_bg04_led_again_in_another_epoch), cmocka_unit_test(test_bg11_moved_twice),
        cmocka_unit_test(test_waiters_when_it_moves),           cmocka_unit_test(test_too_few_to_serve),
        cmocka_unit_test(test_gone_while_it_loads),             cmocka_unit_test(test_its_disk_fails_while_it_loads),
    };
    return cmocka_run_group_tests_name("group_moves", tests, NULL, NULL);
}
