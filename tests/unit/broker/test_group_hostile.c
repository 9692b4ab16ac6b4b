/* test_group_hostile.c - groups under requests that nobody would send in good faith, and at sizes and moments that nobody has in mind: on a
 * whole node. What is refused is refused by the protocol's error; nothing crashes, nobody else is disturbed, nothing stays for ever.
 */
#include "node_rig.h"

#include "group/coordinator.h"

static struct rig r;
static struct rig_conn *c;

static void find_coordinator(void) {
    struct kw_find_coordinator_request req;
    struct kw_find_coordinator_response resp;
    kw_msg_init(&kw_find_coordinator_request_desc, &req);
    req.key = kw_str_of("g");
    rig_call(c, KW_API_FIND_COORDINATOR, 2, &req, &resp);
    assert_int_equal(resp.error_code, KE_NONE);
    rig_pass(&r, 100000);
}

static int setup(void **state) {
    (void)state;
    rig_init(&r, 12);
    rig_set(&r, "offsets.topic.num.partitions", "1");
    rig_set(&r, "offsets.retention.minutes", "60");
    rig_start(&r);
    c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 3, NULL, NULL), KE_NONE);
    find_coordinator();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    rig_deinit(&r);
    return 0;
}

static struct kw_str bytes(const char *p, size_t n) {
    return (struct kw_str){p, (int32_t)n};
}

static char *text_of(size_t n) {
    char *p = kw_arena_alloc(&r.arena, n + 1);
    assert_non_null(p);
    memset(p, 'x', n);
    p[n] = 0;
    return p;
}

/* ---- Requests ---- */

static int16_t commit_for(struct kw_str group, int16_t version, const char *topic, int32_t partition, int64_t offset, int64_t retention_ms) {
    struct kw_offset_commit_request req;
    struct kw_offset_commit_response resp;
    struct kw_offset_commit_request_partition p = {.partition_index = partition,
                                                   .committed_offset = offset,
                                                   .committed_leader_epoch = -1,
                                                   .commit_timestamp = -1,
                                                   .committed_metadata = kw_str_of("")};
    struct kw_offset_commit_request_topic t = {.name = kw_str_of(topic), .partitions = {&p, 1}};
    kw_msg_init(&kw_offset_commit_request_desc, &req);
    req.group_id = group;
    req.generation_id_or_member_epoch = -1;
    if (version <= 4) req.retention_time_ms = retention_ms;
    req.topics.v = &t;
    req.topics.n = 1;
    rig_call(c, KW_API_OFFSET_COMMIT, version, &req, &resp);
    return resp.topics.v[0].partitions.v[0].error_code;
}

static int64_t fetched(struct kw_str group, int32_t partition) {
    struct kw_offset_fetch_request req;
    struct kw_offset_fetch_response resp;
    struct kw_offset_fetch_request_topic t = {.name = kw_str_of("t"), .partition_indexes = {&partition, 1}};
    kw_msg_init(&kw_offset_fetch_request_desc, &req);
    req.group_id = group;
    req.topics.v = &t;
    req.topics.n = 1;
    rig_call(c, KW_API_OFFSET_FETCH, 5, &req, &resp);
    return resp.error_code ? -2 - resp.error_code : resp.topics.v[0].partitions.v[0].committed_offset;
}

static int32_t listed(void) {
    struct kw_list_groups_request req;
    struct kw_list_groups_response resp;
    kw_msg_init(&kw_list_groups_request_desc, &req);
    rig_call(c, KW_API_LIST_GROUPS, 4, &req, &resp);
    assert_int_equal(resp.error_code, KE_NONE);
    return resp.groups.n;
}

static void delete_groups(struct kw_str *ids, int32_t n, struct kw_delete_groups_response *resp) {
    struct kw_delete_groups_request req;
    kw_msg_init(&kw_delete_groups_request_desc, &req);
    req.groups_names.v = ids;
    req.groups_names.n = n;
    rig_call(c, KW_API_DELETE_GROUPS, 2, &req, resp);
    assert_int_equal(resp->results.n, n);
}

struct joins {
    struct kw_str group, member, instance, type, protocol, client;
    int32_t metadata_size;
};
static const struct joins plain = {
    {"g", 1}, {"", 0}, {NULL, -1}, {"consumer", 8}, {"range", 5}, {"rig", 3}, 0,
};

/* Version 5: static ids, and member ids first. */
static void join(struct joins j, struct kw_join_group_response *resp) {
    static int32_t id = 5000;
    struct kw_join_group_request req;
    struct kw_join_group_request_protocol p = {.name = j.protocol, .metadata = {(const uint8_t *)text_of((size_t)j.metadata_size), j.metadata_size}};
    struct kw_out out;
    kw_msg_init(&kw_join_group_request_desc, &req);
    req.group_id = j.group;
    req.session_timeout_ms = 10000;
    req.rebalance_timeout_ms = 60000;
    req.member_id = j.member;
    req.group_instance_id = j.instance;
    req.protocol_type = j.type;
    req.protocols.v = &p;
    req.protocols.n = 1;
    kw_out_init(&out);
    assert_int_equal(kw_frame_request(&out, kw_api_by_key(KW_API_JOIN_GROUP), 5, ++id, j.client, &req), KW_OK);
    assert_int_equal(rig_send(c, out.p, out.len), out.len);
    kw_out_deinit(&out);
    rig_pass(&r, 100000);
    if (!rig_response(c, KW_API_JOIN_GROUP, 5, id, resp)) fail_msg("no answer%s", c->conn ? "" : ": the connection was closed");
}

static int16_t join_code(struct joins j) {
    struct kw_join_group_response resp;
    join(j, &resp);
    return resp.error_code;
}

static int16_t sync_leader(struct kw_str member, int32_t generation) {
    struct kw_sync_group_request req;
    struct kw_sync_group_response resp;
    struct kw_sync_group_request_assignment a = {.member_id = member, .assignment = {(const uint8_t *)"mine", 4}};
    kw_msg_init(&kw_sync_group_request_desc, &req);
    req.group_id = kw_str_of("g");
    req.generation_id = generation;
    req.member_id = member;
    req.assignments.v = &a;
    req.assignments.n = 1;
    rig_call(c, KW_API_SYNC_GROUP, 3, &req, &resp);
    return resp.error_code;
}

/* ---- Names ---- */

/* The core keeps ids as C strings: one with a NUL in it would be two groups at once. */
static void test_a_nul_in_a_name(void **state) {
    (void)state;
    struct kw_str ids[] = {bytes("a\0b", 3), bytes("\0", 1)};
    struct kw_delete_groups_response resp;
    for (size_t i = 0; i < KW_COUNTOF(ids); i++) {
        struct joins j = plain;
        j.group = ids[i];
        assert_int_equal(commit_for(ids[i], 5, "none", 0, 1, -1), KE_INVALID_GROUP_ID); /* a group of which nothing would come */
        assert_int_equal(commit_for(ids[i], 5, "t", 0, 1, -1), KE_INVALID_GROUP_ID);
        assert_int_equal(join_code(j), KE_INVALID_GROUP_ID);
        assert_int_equal(fetched(ids[i], 0), -2 - KE_INVALID_GROUP_ID);
        delete_groups(&ids[i], 1, &resp);
        assert_int_equal(resp.results.v[0].error_code, KE_INVALID_GROUP_ID);
        assert_int_equal(listed(), 0);
    }
    struct joins j = plain;
    j.instance = bytes("i\0j", 3);
    assert_int_equal(join_code(j), KE_INVALID_REQUEST);
    j = plain;
    j.type = bytes("con\0", 4);
    assert_int_equal(join_code(j), KE_INCONSISTENT_GROUP_PROTOCOL);
    j = plain;
    j.protocol = bytes("r\0", 2);
    assert_int_equal(join_code(j), KE_INCONSISTENT_GROUP_PROTOCOL);
    rig_pass(&r, 100000);
    assert_int_equal(listed(), 0);
}

/* A member's id is made of the client's: of one that is as long as can be, too, it can be sent, and stored with the group. */
static void test_the_longest_client_id(void **state) {
    (void)state;
    struct joins j = plain;
    struct kw_join_group_response resp;
    j.client = bytes(text_of(INT16_MAX), INT16_MAX);
    join(j, &resp);
    assert_int_equal(resp.error_code, KE_MEMBER_ID_REQUIRED);
    j.member = resp.member_id;
    join(j, &resp);
    assert_int_equal(resp.error_code, KE_NONE);
    assert_int_equal(sync_leader(resp.member_id, resp.generation_id), KE_NONE);
    char *odd = text_of(32000); /* cut between letters only: a client that reads it as text would not know its id again */
    for (int i = 1; i + 1 < 32000; i += 2) memcpy(odd + i, "\xc3\xbc", 2);
    for (int from = 0; from < 2; from++) {
        j = plain;
        j.group = kw_str_of("other");
        j.client = bytes(odd + from, 31000);
        join(j, &resp);
        assert_int_equal(resp.error_code, KE_MEMBER_ID_REQUIRED);
        assert_int_equal((uint8_t)resp.member_id.p[resp.member_id.len - 38], 0xbc);
    }
}

/* ---- Deleting ---- */

/* The same group twice in one request, while nothing of it is stored yet. */
static void test_deleted_twice_at_once(void **state) {
    (void)state;
    struct kw_str ids[] = {kw_str_of("g"), kw_str_of("g"), kw_str_of("h"), kw_str_of("g")};
    struct kw_delete_groups_response resp;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(commit_for(ids[0], 5, "t", 0, 7, -1), KE_NONE);
        assert_int_equal(commit_for(ids[2], 5, "t", 0, 8, -1), KE_NONE);
        delete_groups(ids, 4, &resp);
        for (int32_t k = 0; k < 4; k++) assert_int_equal(resp.results.v[k].error_code, KE_NONE);
        rig_pass(&r, 100000);
        assert_int_equal(listed(), 0);
        assert_int_equal(fetched(ids[0], 0), -1);
    }
}

/* Removals are as large as the log takes, whatever the length of a group's name. */
static void test_names_as_long_as_can_be(void **state) {
    (void)state;
    struct kw_delete_groups_response resp;
    struct kw_str a = bytes(text_of(32760), 32760), b = bytes(text_of(32761), 32761);
    assert_int_equal(rig_create(c, "wide", 80, NULL, NULL), KE_NONE);
    for (int32_t i = 0; i < 80; i++) {
        assert_int_equal(commit_for(a, 5, "wide", i, i, -1), KE_NONE);
        assert_int_equal(commit_for(b, 5, "wide", i, i, -1), KE_NONE);
    }
    assert_int_equal(listed(), 2);
    delete_groups(&a, 1, &resp);
    assert_int_equal(resp.results.v[0].error_code, KE_NONE);
    assert_int_equal(listed(), 1);
    rig_pass(&r, INT64_C(120) * 60000000); /* by age */
    c = rig_connect(&r);
    assert_int_equal(listed(), 0);
    rig_crash(&r);
    c = rig_connect(&r);
    rig_pass(&r, 1000000);
    assert_int_equal(listed(), 0);
}

/* ---- Age ---- */

static void test_a_commit_that_never_ages(void **state) {
    (void)state;
    assert_int_equal(commit_for(kw_str_of("g"), 2, "t", 0, 7, INT64_MAX), KE_NONE);
    assert_int_equal(commit_for(kw_str_of("g"), 2, "t", 1, 8, INT64_MAX - r.now.wall_ms), KE_NONE);
    assert_int_equal(commit_for(kw_str_of("g"), 2, "t", 2, 9, 1000), KE_NONE);
    rig_pass(&r, INT64_C(300) * 60000000);
    c = rig_connect(&r);
    assert_int_equal(fetched(kw_str_of("g"), 0), 7);
    assert_int_equal(fetched(kw_str_of("g"), 1), 8);
    assert_int_equal(fetched(kw_str_of("g"), 2), -1);
}

/* Somebody sets the offsets of a group that has had no members for long: they are not old on the day they are set. */
static void test_offsets_set_in_an_old_group(void **state) {
    (void)state;
    struct joins j = plain;
    struct kw_join_group_response resp;
    j.instance = kw_str_of("one");
    join(j, &resp);
    assert_int_equal(resp.error_code, KE_NONE);
    assert_int_equal(sync_leader(resp.member_id, resp.generation_id), KE_NONE);
    rig_pass(&r, INT64_C(20) * 1000000); /* its session ends */
    c = rig_connect(&r);
    assert_int_equal(commit_for(kw_str_of("g"), 5, "t", 0, 1, -1), KE_NONE);
    for (int i = 0; i < 4; i++) { /* 50 minutes each: retention is an hour, looked at every ten minutes */
        rig_pass(&r, INT64_C(50) * 60000000);
        c = rig_connect(&r);
        assert_int_equal(fetched(kw_str_of("g"), 0), 1 + i);
        assert_int_equal(commit_for(kw_str_of("g"), 5, "t", 0, 2 + i, -1), KE_NONE);
    }
    rig_pass(&r, INT64_C(75) * 60000000);
    c = rig_connect(&r);
    assert_int_equal(fetched(kw_str_of("g"), 0), -1);
}

/* ---- Sizes ---- */

/* More than a record of the log may hold: said for good, where a coordinator that is not available would be asked for ever. */
static void test_a_group_too_large_to_store(void **state) {
    (void)state;
    struct joins j = plain;
    struct kw_join_group_response resp;
    j.instance = kw_str_of("one");
    j.metadata_size = 2 << 20;
    join(j, &resp);
    assert_int_equal(resp.error_code, KE_NONE);
    assert_int_equal(sync_leader(resp.member_id, resp.generation_id), KE_UNKNOWN_SERVER_ERROR);
    assert_non_null(strstr(r.lines, "max.message.bytes"));
    assert_int_equal(commit_for(kw_str_of("other"), 5, "t", 0, 1, -1), KE_NONE); /* nobody else is disturbed */
}

/* ---- __consumer_offsets itself goes ---- */

static void test_its_topic_is_deleted(void **state) {
    (void)state;
    struct joins j = plain;
    struct kw_join_group_response resp;
    j.instance = kw_str_of("one");
    join(j, &resp);
    assert_int_equal(sync_leader(resp.member_id, resp.generation_id), KE_NONE);
    assert_int_equal(commit_for(kw_str_of("h"), 5, "t", 0, 5, -1), KE_NONE);
    rig_delete(c, KB_OFFSETS_TOPIC);
    assert_int_equal(commit_for(kw_str_of("h"), 5, "t", 0, 6, -1), KE_NOT_COORDINATOR);
    rig_pass(&r, 1000000);
    find_coordinator(); /* makes it anew */
    assert_int_equal(fetched(kw_str_of("h"), 0), -1);
    assert_int_equal(listed(), 0);
    assert_int_equal(commit_for(kw_str_of("h"), 5, "t", 0, 7, -1), KE_NONE);
    assert_int_equal(fetched(kw_str_of("h"), 0), 7);
}

int main(void) {
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_a_nul_in_a_name),
        T(test_the_longest_client_id),
        T(test_deleted_twice_at_once),
        T(test_names_as_long_as_can_be),
        T(test_a_commit_that_never_ages),
        T(test_offsets_set_in_an_old_group),
        T(test_a_group_too_large_to_store),
        T(test_its_topic_is_deleted),
    };
    return cmocka_run_group_tests_name("group_hostile", tests, NULL, NULL);
}
