/* test_api_groups.c - groups as clients see them, on a whole node: every version of the APIs, __consumer_offsets across restarts and kills,
 * what is refused. Cases BG-01, BG-02, BG-06, BG-07. (One group's own rules: test_group.c.)
 */
#include "node_rig.h"

#include "group/coordinator.h"

static struct rig r;
static struct rig_conn *c;

static int setup(void **state) {
    (void)state;
    rig_init(&r, 11);
    rig_set(&r, "offsets.topic.num.partitions", "4");
    rig_start(&r);
    c = rig_connect(&r);
    assert_int_equal(rig_create(c, "t", 3, NULL, NULL), KE_NONE);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    rig_deinit(&r);
    return 0;
}

/* ---- FindCoordinator ---- */

static int16_t find_group(int16_t version, const char *group) {
    struct kw_find_coordinator_request req;
    struct kw_find_coordinator_response resp;
    struct kw_str keys[] = {kw_str_of("first"), kw_str_of(group)};
    kw_msg_init(&kw_find_coordinator_request_desc, &req);
    req.key = kw_str_of(version <= 3 ? group : "");
    req.coordinator_keys.v = keys;
    req.coordinator_keys.n = version >= 4 ? 2 : 0;
    rig_call(c, KW_API_FIND_COORDINATOR, version, &req, &resp);
    if (version <= 3 && resp.error_code == 0) assert_int_equal(resp.port, 9092);
    if (version <= 3) return resp.error_code;
    assert_int_equal(resp.coordinators.n, 2);
    assert_true(kw_str_eq(resp.coordinators.v[1].key, keys[1]));
    if (resp.coordinators.v[1].error_code == 0) assert_int_equal(resp.coordinators.v[1].port, 9092);
    return resp.coordinators.v[1].error_code;
}

static void test_find_coordinator(void **state) {
    (void)state;
    assert_null(kb_image_topic(&r.node->image, kw_str_of(KB_OFFSETS_TOPIC)));
    for (int16_t v = 0; v <= 6; v++) assert_int_equal(find_group(v, "g"), KE_NONE); /* the first makes the topic */
    const struct kb_image_topic *t = kb_image_topic(&r.node->image, kw_str_of(KB_OFFSETS_TOPIC));
    assert_non_null(t);
    assert_int_equal(t->partition_count, 4);
    assert_true(t->internal);
    assert_string_equal(kb_image_config_get(&r.node->image, 2, kw_str_of(KB_OFFSETS_TOPIC), "cleanup.policy"), "compact");
    assert_int_equal(find_group(2, ""), KE_INVALID_GROUP_ID);
    for (int16_t v = 1; v <= 6; v++) { /* of transactions nothing is known yet, which is said for good */
        struct kw_find_coordinator_request req;
        struct kw_find_coordinator_response resp;
        struct kw_str key = kw_str_of("tx");
        kw_msg_init(&kw_find_coordinator_request_desc, &req);
        req.key_type = 1;
        if (v <= 3) req.key = key;
        req.coordinator_keys.v = &key;
        req.coordinator_keys.n = v >= 4 ? 1 : 0;
        rig_call(c, KW_API_FIND_COORDINATOR, v, &req, &resp);
        assert_int_equal(v <= 3 ? resp.error_code : resp.coordinators.v[0].error_code, KE_UNSUPPORTED_VERSION);
        assert_true((v <= 3 ? resp.error_message : resp.coordinators.v[0].error_message).len > 20);
    }
    rig_produced p = rig_produce(c, KB_OFFSETS_TOPIC, (struct rig_batch){.count = 1});
    assert_int_equal(p.error_code, KE_INVALID_TOPIC_EXCEPTION); /* clients read it, and do not write it */
}

/* As Java's clients and brokers have it. */
static void test_partition_of_a_group(void **state) {
    (void)state;
    char x300[301];
    memset(x300, 'x', 300);
    x300[300] = 0;
    static const char gruen[] = "gr\xc3\xbcn", nihongo[] = "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e", smile[] = "\xf0\x9f\x98\x80 smile";
    const struct {
        const char *id;
        int32_t of50, of7;
    } v[] = {{"g1", 42, 1},    {"a", 47, 6},   {"my-group", 12, 1},          {gruen, 49, 4},
             {nihongo, 43, 5}, {smile, 15, 2}, {"polygenelubricants", 0, 0}, {x300, 14, 4}};
    for (size_t i = 0; i < KW_COUNTOF(v); i++) {
        assert_int_equal(kb_coordinator_partition_of(kw_str_of(v[i].id), 50), v[i].of50);
        assert_int_equal(kb_coordinator_partition_of(kw_str_of(v[i].id), 7), v[i].of7);
    }
}

/* ---- Members ---- */

struct member {
    struct rig_conn *c;
    char id[80];
    int32_t generation;
    const char *instance;
    int32_t correlation;
};

static struct kw_join_group_request_protocol range = {.name = {"range", 5},
                                                      .metadata = {(const uint8_t *)"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff", 13}};

static void join_send(struct member *m, int16_t version, int32_t session_ms) {
    struct kw_join_group_request req;
    kw_msg_init(&kw_join_group_request_desc, &req);
    req.group_id = kw_str_of("g");
    req.session_timeout_ms = session_ms;
    req.rebalance_timeout_ms = version >= 1 ? 60000 : -1;
    req.member_id = kw_str_of(m->id);
    req.group_instance_id = version >= 5 ? kw_str_of(m->instance) : kw_str_null();
    req.protocol_type = kw_str_of("consumer");
    req.protocols.v = &range;
    req.protocols.n = 1;
    rig_request(m->c, KW_API_JOIN_GROUP, version, ++m->correlation, &req);
    rig_settle(&r);
}

static bool join_answer(struct member *m, int16_t version, struct kw_join_group_response *resp) {
    rig_pass(&r, 50000);
    if (!rig_response(m->c, KW_API_JOIN_GROUP, version, m->correlation, resp)) return false;
    snprintf(m->id, sizeof(m->id), "%.*s", (int)resp->member_id.len, resp->member_id.p);
    m->generation = resp->generation_id;
    return true;
}

static int16_t join(struct member *m, int16_t version) {
    struct kw_join_group_response resp;
    join_send(m, version, 10000);
    if (!join_answer(m, version, &resp)) fail_msg("no answer to JoinGroup v%d", version);
    if (resp.error_code != KE_MEMBER_ID_REQUIRED) return resp.error_code;
    join_send(m, version, 10000);
    if (!join_answer(m, version, &resp)) fail_msg("no answer to JoinGroup v%d", version);
    return resp.error_code;
}

static int16_t sync_(struct member *m, int16_t version, const char *mine, char got[40]) {
    struct kw_sync_group_request req;
    struct kw_sync_group_response resp;
    struct kw_sync_group_request_assignment a = {.member_id = kw_str_of(m->id),
                                                 .assignment = {(const uint8_t *)mine, mine ? (int32_t)strlen(mine) : 0}};
    kw_msg_init(&kw_sync_group_request_desc, &req);
    req.group_id = kw_str_of("g");
    req.generation_id = m->generation;
    req.member_id = kw_str_of(m->id);
    req.group_instance_id = version >= 3 ? kw_str_of(m->instance) : kw_str_null();
    if (version >= 5) req.protocol_type = kw_str_of("consumer"), req.protocol_name = kw_str_of("range");
    req.assignments.v = &a;
    req.assignments.n = mine ? 1 : 0;
    rig_call(m->c, KW_API_SYNC_GROUP, version, &req, &resp);
    if (got) snprintf(got, 40, "%.*s", (int)resp.assignment.len, (const char *)resp.assignment.p);
    return resp.error_code;
}

static int16_t beat(struct member *m, int16_t version) {
    struct kw_heartbeat_request req;
    struct kw_heartbeat_response resp;
    kw_msg_init(&kw_heartbeat_request_desc, &req);
    req.group_id = kw_str_of("g");
    req.generation_id = m->generation;
    req.member_id = kw_str_of(m->id);
    req.group_instance_id = version >= 3 ? kw_str_of(m->instance) : kw_str_null();
    rig_call(m->c, KW_API_HEARTBEAT, version, &req, &resp);
    return resp.error_code;
}

static int16_t leave(struct member *m, int16_t version) {
    struct kw_leave_group_request req;
    struct kw_leave_group_response resp;
    struct kw_leave_group_request_member_identity one = {
        .member_id = kw_str_of(m->id), .group_instance_id = kw_str_of(m->instance), .reason = kw_str_null()};
    kw_msg_init(&kw_leave_group_request_desc, &req);
    req.group_id = kw_str_of("g");
    if (version <= 2) req.member_id = kw_str_of(m->id);
    req.members.v = &one;
    req.members.n = version >= 3 ? 1 : 0;
    rig_call(m->c, KW_API_LEAVE_GROUP, version, &req, &resp);
    return resp.error_code || version <= 2 ? resp.error_code : resp.members.v[0].error_code;
}

static void test_every_version(void **state) {
    (void)state;
    struct member m = {.c = c};
    find_group(2, "g");
    for (int16_t v = 0; v <= 9; v++) {
        char got[40];
        m.id[0] = 0;
        assert_int_equal(join(&m, v), KE_NONE);
        assert_int_equal(sync_(&m, KW_MIN(v, 5), "mine", got), KE_NONE);
        assert_string_equal(got, "mine");
        assert_int_equal(beat(&m, KW_MIN(v, 4)), KE_NONE);
        m.generation--;
        assert_int_equal(beat(&m, KW_MIN(v, 4)), KE_ILLEGAL_GENERATION);
        assert_int_equal(leave(&m, KW_MIN(v, 5)), KE_NONE);
        assert_int_equal(leave(&m, KW_MIN(v, 5)), KE_UNKNOWN_MEMBER_ID);
        assert_int_equal(beat(&m, KW_MIN(v, 4)), KE_UNKNOWN_MEMBER_ID);
    }
}

static int16_t join_code(struct member *m, int16_t version, int32_t session_ms, const char *group) {
    struct kw_join_group_request req;
    struct kw_join_group_response resp;
    kw_msg_init(&kw_join_group_request_desc, &req);
    req.group_id = kw_str_of(group);
    req.session_timeout_ms = session_ms;
    req.member_id = kw_str_of(m->id);
    req.protocol_type = kw_str_of("consumer");
    req.protocols.v = &range;
    req.protocols.n = 1;
    rig_call(m->c, KW_API_JOIN_GROUP, version, &req, &resp);
    return resp.error_code;
}

static void test_refused_joins(void **state) {
    (void)state;
    struct member m = {.c = c};
    assert_int_equal(join_code(&m, 9, 10000, "g"), KE_NOT_COORDINATOR); /* nobody has asked for the coordinator yet */
    find_group(2, "g");
    assert_int_equal(join_code(&m, 9, 10000, ""), KE_INVALID_GROUP_ID);
    assert_int_equal(join_code(&m, 9, 5999, "g"), KE_INVALID_SESSION_TIMEOUT);
    assert_int_equal(join_code(&m, 9, 1800001, "g"), KE_INVALID_SESSION_TIMEOUT);
    snprintf(m.id, sizeof(m.id), "invented");
    assert_int_equal(join_code(&m, 9, 10000, "g"), KE_UNKNOWN_MEMBER_ID);
    assert_int_equal(beat(&m, 4), KE_UNKNOWN_MEMBER_ID);
    assert_int_equal(sync_(&m, 5, NULL, NULL), KE_UNKNOWN_MEMBER_ID);
    assert_int_equal(leave(&m, 5), KE_UNKNOWN_MEMBER_ID);
}

/* BG-06: the leader is of an old version, the other member is static: what the old one does not know is left out. */
static void test_bg06_an_old_leader_and_a_static_member(void **state) {
    (void)state;
    struct member old = {.c = c}, new_ = {.c = rig_connect(&r), .instance = "static-1"};
    struct kw_join_group_response resp;
    find_group(2, "g");
    assert_int_equal(join(&old, 2), KE_NONE);
    assert_int_equal(sync_(&old, 1, "a", NULL), KE_NONE);
    join_send(&new_, 9, 10000);
    assert_false(join_answer(&new_, 9, &resp));
    assert_int_equal(beat(&old, 1), KE_REBALANCE_IN_PROGRESS);
    join_send(&old, 2, 10000);
    assert_true(join_answer(&old, 2, &resp));
    assert_int_equal(resp.error_code, KE_NONE);
    assert_int_equal(resp.members.n, 2);
    assert_true(join_answer(&new_, 9, &resp));
    assert_int_equal(resp.error_code, KE_NONE);
    assert_int_equal(resp.members.n, 0);
}

static void test_a_connection_that_closes(void **state) {
    (void)state;
    struct member a = {.c = c}, b = {.c = rig_connect(&r)};
    struct kw_join_group_response resp;
    find_group(2, "g");
    assert_int_equal(join(&a, 3), KE_NONE);
    assert_int_equal(sync_(&a, 2, "a", NULL), KE_NONE);
    join_send(&b, 3, 10000);
    assert_false(join_answer(&b, 3, &resp));
    kb_conn_closed(b.c->conn, r.now);
    b.c->conn = NULL;
    for (int i = 0; i < 3; i++) {
        rig_pass(&r, 4000000);
        beat(&a, 3);
    }
    join_send(&a, 3, 10000);
    assert_true(join_answer(&a, 3, &resp));
    assert_int_equal(resp.members.n, 1);
}

/* A member asks to leave behind its JoinGroup, on the same connection, as clients do that are closed meanwhile: when the one is answered the other
 * begins, and must not find the group in the middle of telling its members.
 */
static void test_a_request_behind_a_join(void **state) {
    (void)state;
    struct member m[4] = {{.c = c}, {.c = rig_connect(&r)}, {.c = rig_connect(&r)}, {.c = rig_connect(&r)}};
    struct kw_join_group_response resp;
    struct kw_leave_group_request req;
    struct kw_leave_group_response left;
    find_group(2, "g");
    assert_int_equal(join(&m[0], 4), KE_NONE);
    assert_int_equal(sync_(&m[0], 3, "mine", NULL), KE_NONE);
    for (int i = 1; i < 4; i++) { /* each gets its id, and waits for the first one */
        join_send(&m[i], 4, 10000);
        assert_true(join_answer(&m[i], 4, &resp));
        assert_int_equal(resp.error_code, KE_MEMBER_ID_REQUIRED);
        join_send(&m[i], 4, 10000);
    }
    for (int i = 1; i < 3; i++) {
        kw_msg_init(&kw_leave_group_request_desc, &req);
        req.group_id = kw_str_of("g");
        req.member_id = kw_str_of(m[i].id);
        rig_request(m[i].c, KW_API_LEAVE_GROUP, 2, m[i].correlation + 100, &req);
    }
    rig_settle(&r);
    join_send(&m[0], 4, 10000);
    for (int i = 0; i < 4; i++) {
        assert_true(join_answer(&m[i], 4, &resp));
        assert_int_equal(resp.error_code, KE_NONE);
        assert_int_equal(resp.generation_id, 2);
        assert_int_equal(resp.members.n, i == 0 ? 4 : 0); /* told of all, before anybody left */
    }
    for (int i = 1; i < 3; i++) {
        assert_true(rig_response(m[i].c, KW_API_LEAVE_GROUP, 2, m[i].correlation + 100, &left));
        assert_int_equal(left.error_code, KE_NONE);
    }
    assert_int_equal(beat(&m[3], 3), KE_REBALANCE_IN_PROGRESS);
    join_send(&m[0], 4, 10000);
    join_send(&m[3], 4, 10000);
    assert_true(join_answer(&m[3], 4, &resp));
    assert_true(join_answer(&m[0], 4, &resp));
    assert_int_equal(resp.members.n, 2);
    assert_int_equal(resp.generation_id, 3);
}

/* ---- Offsets ---- */

static int16_t commit_as(int16_t version, const char *topic, int32_t partition, int64_t offset, const char *metadata,
                         const struct member *m) {
    struct kw_offset_commit_request req;
    struct kw_offset_commit_response resp;
    struct kw_offset_commit_request_partition p = {.partition_index = partition,
                                                   .committed_offset = offset,
                                                   .committed_leader_epoch = -1,
                                                   .commit_timestamp = -1,
                                                   .committed_metadata = kw_str_of(metadata)};
    struct kw_offset_commit_request_topic t = {.name = kw_str_of(version < 10 ? topic : ""), .partitions = {&p, 1}};
    const struct kb_image_topic *it = kb_image_topic(&r.node->image, kw_str_of(topic));
    if (version >= 10) t.topic_id = it ? it->id : (struct kw_uuid){{9}};
    kw_msg_init(&kw_offset_commit_request_desc, &req);
    req.group_id = kw_str_of("g");
    req.generation_id_or_member_epoch = m ? m->generation : -1;
    req.member_id = kw_str_of(m ? m->id : "");
    req.topics.v = &t;
    req.topics.n = 1;
    rig_call(c, KW_API_OFFSET_COMMIT, version, &req, &resp);
    return resp.topics.v[0].partitions.v[0].error_code;
}

static int16_t commit(int16_t version, int64_t offset) {
    return commit_as(version, "t", 1, offset, "note", NULL);
}

/* -1: none; -2 - code: an error. */
static int64_t fetched_of(int16_t version, const char *topic, int32_t partition) {
    struct kw_offset_fetch_request req;
    struct kw_offset_fetch_response resp;
    int32_t index = partition;
    const struct kb_image_topic *it = kb_image_topic(&r.node->image, kw_str_of(topic));
    struct kw_offset_fetch_request_topic t = {.name = kw_str_of(topic), .partition_indexes = {&index, 1}};
    struct kw_offset_fetch_request_topics t8 = {.name = kw_str_of(version < 10 ? topic : ""), .partition_indexes = {&index, 1}};
    if (version >= 10) t8.topic_id = it ? it->id : (struct kw_uuid){{9}};
    struct kw_offset_fetch_request_group g = {
        .group_id = kw_str_of("g"), .member_id = kw_str_null(), .member_epoch = -1, .topics = {&t8, 1}};
    kw_msg_init(&kw_offset_fetch_request_desc, &req);
    if (version <= 7) {
        req.group_id = kw_str_of("g");
        req.topics.v = &t;
        req.topics.n = 1;
    } else {
        req.groups.v = &g;
        req.groups.n = 1;
    }
    rig_call(c, KW_API_OFFSET_FETCH, version, &req, &resp);
    if (version <= 7) {
        int16_t code = resp.error_code ? resp.error_code : resp.topics.v[0].partitions.v[0].error_code;
        return code ? -2 - code : resp.topics.v[0].partitions.v[0].committed_offset;
    }
    int16_t code = resp.groups.v[0].error_code ? resp.groups.v[0].error_code : resp.groups.v[0].topics.v[0].partitions.v[0].error_code;
    return code ? -2 - code : resp.groups.v[0].topics.v[0].partitions.v[0].committed_offset;
}

static int64_t fetched(int16_t version) {
    return fetched_of(version, "t", 1);
}

/* How many offsets of how many topics a fetch of all gives. */
static int32_t fetched_all(int16_t version, int32_t *topics) {
    struct kw_offset_fetch_request req;
    struct kw_offset_fetch_response resp;
    struct kw_offset_fetch_request_group g = {
        .group_id = kw_str_of("g"), .member_id = kw_str_null(), .member_epoch = -1, .topics = {NULL, -1}};
    int32_t n = 0;
    kw_msg_init(&kw_offset_fetch_request_desc, &req);
    req.group_id = kw_str_of(version <= 7 ? "g" : "");
    req.topics.n = version <= 7 ? -1 : 0;
    req.groups.v = &g;
    req.groups.n = version >= 8 ? 1 : 0;
    rig_call(c, KW_API_OFFSET_FETCH, version, &req, &resp);
    if (version <= 7) {
        assert_int_equal(resp.error_code, 0);
        *topics = resp.topics.n;
        for (int32_t i = 0; i < resp.topics.n; i++) n += resp.topics.v[i].partitions.n;
        return n;
    }
    assert_int_equal(resp.groups.v[0].error_code, 0);
    *topics = resp.groups.v[0].topics.n;
    for (int32_t i = 0; i < resp.groups.v[0].topics.n; i++) n += resp.groups.v[0].topics.v[i].partitions.n;
    return n;
}

static void again(bool kill) {
    if (kill)
        rig_crash(&r);
    else
        rig_restart(&r);
    c = rig_connect(&r);
}

static void test_offsets_of_every_version(void **state) {
    (void)state;
    int32_t topics;
    assert_int_equal(fetched(9), -2 - KE_NOT_COORDINATOR);
    find_group(2, "g");
    for (int16_t v = 1; v <= 10; v++) assert_int_equal(fetched(v), -1);
    for (int16_t v = 2; v <= 10; v++) {
        assert_int_equal(commit(v, 100 + v), KE_NONE);
        for (int16_t k = 1; k <= 10; k++) assert_int_equal(fetched(k), 100 + v);
    }
    assert_int_equal(commit_as(8, "t", 0, 7, NULL, NULL), KE_NONE);
    for (int16_t v = 2; v <= 10; v++) {
        assert_int_equal(fetched_all(v, &topics), 2);
        assert_int_equal(topics, 1);
    }
    for (int kill = 0; kill < 2; kill++) {
        again(kill);
        assert_int_equal(fetched(9), 110);
        assert_int_equal(fetched_of(9, "t", 0), 7);
        assert_int_equal(fetched_of(9, "t", 2), -1);
    }
}

static void test_refused_commits(void **state) {
    (void)state;
    char big[5000];
    memset(big, 'm', sizeof(big) - 1);
    big[sizeof(big) - 1] = 0;
    struct member m = {.c = c, .id = "nobody", .generation = 3};
    assert_int_equal(commit(9, 1), KE_NOT_COORDINATOR);
    find_group(2, "g");
    assert_int_equal(commit_as(9, "t", 1, 1, NULL, &m), KE_ILLEGAL_GENERATION); /* there is no such group */
    assert_int_equal(commit_as(9, "t", 3, 1, NULL, NULL), KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(commit_as(9, "none", 0, 1, NULL, NULL), KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(commit_as(10, "none", 0, 1, NULL, NULL), KE_UNKNOWN_TOPIC_ID);
    assert_int_equal(fetched_of(10, "none", 0), -2 - KE_UNKNOWN_TOPIC_ID);
    assert_int_equal(commit_as(9, "t", 1, 1, big, NULL), KE_OFFSET_METADATA_TOO_LARGE);
    assert_int_equal(fetched(9), -1);
    m = (struct member){.c = c};
    assert_int_equal(join(&m, 9), KE_NONE);
    assert_int_equal(commit_as(9, "t", 1, 5, NULL, &m), KE_REBALANCE_IN_PROGRESS);
    assert_int_equal(sync_(&m, 5, "a", NULL), KE_NONE);
    assert_int_equal(commit_as(9, "t", 1, 5, NULL, &m), KE_NONE);
    assert_int_equal(commit(9, 6), KE_UNKNOWN_MEMBER_ID); /* the group has members */
    m.generation--;
    assert_int_equal(commit_as(9, "t", 1, 7, NULL, &m), KE_ILLEGAL_GENERATION);
    assert_int_equal(fetched(9), 5);
}

/* Stored for an earlier topic of the name: none. And with a topic go its offsets. */
static void test_a_topic_made_anew(void **state) {
    (void)state;
    int32_t topics;
    find_group(2, "g");
    assert_int_equal(commit(9, 5), KE_NONE);
    rig_delete(c, "t");
    rig_pass(&r, 100000);
    assert_int_equal(fetched_all(9, &topics), 0);
    assert_int_equal(rig_create(c, "t", 3, NULL, NULL), KE_NONE);
    assert_int_equal(fetched(9), -1);
    again(true);
    assert_int_equal(fetched(9), -1);
}

/* ---- What a group is told to be ---- */

static struct kw_describe_groups_response_described_group *describe(int16_t version) {
    struct kw_describe_groups_request req;
    struct kw_describe_groups_response *resp = kw_arena_alloc(&r.arena, sizeof(*resp));
    struct kw_str id = kw_str_of("g");
    kw_msg_init(&kw_describe_groups_request_desc, &req);
    req.groups.v = &id;
    req.groups.n = 1;
    rig_call(c, KW_API_DESCRIBE_GROUPS, version, &req, resp);
    assert_int_equal(resp->groups.n, 1);
    return &resp->groups.v[0];
}

static int32_t listed(int16_t version, const char *state) {
    struct kw_list_groups_request req;
    struct kw_list_groups_response resp;
    struct kw_str s = kw_str_of(state);
    kw_msg_init(&kw_list_groups_request_desc, &req);
    req.states_filter.v = &s;
    req.states_filter.n = state && version >= 4 ? 1 : 0;
    rig_call(c, KW_API_LIST_GROUPS, version, &req, &resp);
    assert_int_equal(resp.error_code, KE_NONE);
    return resp.groups.n;
}

static void test_describe_and_list(void **state) {
    (void)state;
    find_group(2, "g");
    for (int16_t v = 0; v <= 6; v++) {
        assert_true(kw_str_eq(describe(v)->group_state, kw_str_of("Dead")));
        assert_int_equal(describe(v)->error_code, v >= 6 ? KE_GROUP_ID_NOT_FOUND : KE_NONE);
    }
    struct member m = {.c = c};
    assert_int_equal(join(&m, 9), KE_NONE);
    assert_true(kw_str_eq(describe(5)->group_state, kw_str_of("CompletingRebalance")));
    assert_int_equal(sync_(&m, 5, "mine", NULL), KE_NONE);
    for (int16_t v = 0; v <= 6; v++) {
        struct kw_describe_groups_response_described_group *g = describe(v);
        assert_int_equal(g->error_code, KE_NONE);
        assert_true(kw_str_eq(g->group_state, kw_str_of("Stable")));
        assert_true(kw_str_eq(g->protocol_type, kw_str_of("consumer")));
        assert_true(kw_str_eq(g->protocol_data, kw_str_of("range")));
        assert_int_equal(g->members.n, 1);
        assert_true(kw_str_eq(g->members.v[0].member_id, kw_str_of(m.id)));
        assert_true(kw_str_eq(g->members.v[0].client_host, kw_str_of("/127.0.0.1")));
        assert_true(kw_str_eq(g->members.v[0].client_id, kw_str_of("rig")));
        assert_int_equal(g->members.v[0].member_assignment.len, 4);
    }
    for (int16_t v = 0; v <= 5; v++) assert_int_equal(listed(v, NULL), 1);
    assert_int_equal(listed(4, "stable"), 1);
    assert_int_equal(listed(4, "Empty"), 0);
    again(true); /* the member is alive, and does not know that anything happened */
    m.c = c;
    assert_int_equal(beat(&m, 4), KE_NONE);
    assert_true(kw_str_eq(describe(5)->group_state, kw_str_of("Stable")));
    char got[40];
    assert_int_equal(sync_(&m, 5, NULL, got), KE_NONE);
    assert_string_equal(got, "mine");
}

/* ---- Forgetting ---- */

static int16_t delete_group(int16_t version, const char *id) {
    struct kw_delete_groups_request req;
    struct kw_delete_groups_response resp;
    struct kw_str ids = kw_str_of(id);
    kw_msg_init(&kw_delete_groups_request_desc, &req);
    req.groups_names.v = &ids;
    req.groups_names.n = 1;
    rig_call(c, KW_API_DELETE_GROUPS, version, &req, &resp);
    return resp.results.v[0].error_code;
}

/* BG-02: a group that was deleted stays gone, its offsets, too. */
static void test_bg02_a_deleted_group(void **state) {
    (void)state;
    find_group(2, "g");
    for (int16_t v = 0; v <= 3; v++) {
        assert_int_equal(delete_group(v, "g"), KE_GROUP_ID_NOT_FOUND);
        struct member m = {.c = c};
        assert_int_equal(join(&m, 9), KE_NONE);
        assert_int_equal(sync_(&m, 5, "a", NULL), KE_NONE);
        assert_int_equal(commit_as(9, "t", 1, 50, NULL, &m), KE_NONE);
        assert_int_equal(delete_group(v, "g"), KE_NON_EMPTY_GROUP);
        assert_int_equal(leave(&m, 5), KE_NONE);
        assert_int_equal(delete_group(v, "g"), KE_NONE);
        assert_int_equal(listed(0, NULL), 0);
        again(v % 2);
        assert_int_equal(listed(0, NULL), 0);
        assert_int_equal(fetched(9), -1);
    }
}

static int16_t delete_offset(const char *topic, int32_t partition, int16_t *top) {
    struct kw_offset_delete_request req;
    struct kw_offset_delete_response resp;
    struct kw_offset_delete_request_partition p = {.partition_index = partition};
    struct kw_offset_delete_request_topic t = {.name = kw_str_of(topic), .partitions = {&p, 1}};
    kw_msg_init(&kw_offset_delete_request_desc, &req);
    req.group_id = kw_str_of("g");
    req.topics.v = &t;
    req.topics.n = 1;
    rig_call(c, KW_API_OFFSET_DELETE, 0, &req, &resp);
    *top = resp.error_code;
    return resp.error_code ? KE_NONE : resp.topics.v[0].partitions.v[0].error_code;
}

static void test_offset_delete(void **state) {
    (void)state;
    int16_t top;
    find_group(2, "g");
    delete_offset("t", 1, &top);
    assert_int_equal(top, KE_GROUP_ID_NOT_FOUND);
    assert_int_equal(rig_create(c, "other", 1, NULL, NULL), KE_NONE);
    assert_int_equal(commit(9, 5), KE_NONE);
    assert_int_equal(commit_as(9, "other", 0, 6, NULL, NULL), KE_NONE);
    struct member m = {.c = c}; /* it consumes t */
    assert_int_equal(join(&m, 9), KE_NONE);
    assert_int_equal(sync_(&m, 5, "a", NULL), KE_NONE);
    assert_int_equal(delete_offset("t", 1, &top), KE_GROUP_SUBSCRIBED_TO_TOPIC);
    assert_int_equal(delete_offset("other", 0, &top), KE_NONE);
    assert_int_equal(delete_offset("other", 0, &top), KE_NONE); /* nothing is there any more */
    assert_int_equal(delete_offset("other", 1, &top), KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(fetched_of(9, "other", 0), -1);
    assert_int_equal(fetched(9), 5);
    again(true);
    assert_int_equal(fetched_of(9, "other", 0), -1);
    assert_int_equal(fetched(9), 5);
}

/* BG-01: the clock of a group's offsets runs from when it lost its last member. */
static void test_bg01_expiry(void **state) {
    (void)state;
    rig_set(&r, "offsets.retention.minutes", "60");
    again(false);
    find_group(2, "g");
    struct member m = {.c = c};
    assert_int_equal(join(&m, 9), KE_NONE);
    assert_int_equal(sync_(&m, 5, "a", NULL), KE_NONE);
    assert_int_equal(commit_as(9, "t", 1, 50, NULL, &m), KE_NONE);
    for (int i = 0; i < 3 * 3600 / 9; i++) { /* three hours, without a commit */
        rig_pass(&r, 9000000);
        assert_int_equal(beat(&m, 4), KE_NONE);
    }
    assert_int_equal(fetched(9), 50);
    assert_int_equal(leave(&m, 5), KE_NONE);
    rig_pass(&r, INT64_C(50) * 60000000);
    c = rig_connect(&r); /* the other was idle for too long */
    assert_int_equal(fetched(9), 50);
    rig_pass(&r, INT64_C(25) * 60000000);
    c = rig_connect(&r);
    assert_int_equal(fetched(9), -1);
    rig_pass(&r, INT64_C(25) * 60000000);
    c = rig_connect(&r);
    assert_int_equal(listed(0, NULL), 0);
    again(true);
    assert_int_equal(listed(0, NULL), 0);
}

/* ---- When the disk is full ---- */

static void test_a_full_disk(void **state) {
    (void)state;
    find_group(2, "g");
    assert_int_equal(commit(9, 5), KE_NONE);
    sim_disk_faults(r.disk)->free_bytes = 0;
    assert_int_equal(commit(9, 6), KE_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(fetched(9), 5);
    sim_disk_faults(r.disk)->free_bytes = -1;
    rig_pass(&r, 5000000);
    assert_int_equal(commit(9, 7), KE_NONE);
    assert_int_equal(fetched(9), 7);
    again(true);
    assert_int_equal(fetched(9), 7);
}

/* ---- What compaction leaves ---- */

/* BG-07: nothing between the last batch and the log's end, and the last segment is empty. */
static void test_bg07_a_hole_before_the_end(void **state) {
    (void)state;
    find_group(2, "g");
    for (int i = 1; i <= 2; i++) {
        char path[200];
        int32_t index = kb_coordinator_partition_of(kw_str_of("g"), 4);
        assert_int_equal(commit(9, 5 + i), KE_NONE);
        rig_stop(&r);
        snprintf(path, sizeof(path), "/data/__consumer_offsets-%d/%020d.log", (int)index, 1000 * i);
        sim_disk_poke(r.disk, path, "", 0);
        rig_start(&r);
        c = rig_connect(&r);
        assert_int_equal(rig_partition(&r, KB_OFFSETS_TOPIC, index)->log->leo, 1000 * i);
        rig_pass(&r, 100000);
        assert_int_equal(fetched(9), 5 + i);
    }
    assert_int_equal(commit(9, 8), KE_NONE);
    again(false);
    assert_int_equal(fetched(9), 8);
}

/* ---- A log that cannot be understood ---- */

static void test_a_damaged_log(void **state) {
    (void)state;
    char path[200];
    size_t n;
    find_group(2, "g");
    assert_int_equal(commit(9, 5), KE_NONE);
    assert_int_equal(commit(9, 6), KE_NONE);
    rig_stop(&r);
    snprintf(path, sizeof(path), "/data/__consumer_offsets-%d/00000000000000000000.log",
             (int)kb_coordinator_partition_of(kw_str_of("g"), 4));
    assert_non_null(sim_disk_peek(r.disk, path, &n));
    sim_disk_rot(r.disk, path, KW_BATCH_HEADER_SIZE + 5, 0x10);
    rig_start(&r);
    c = rig_connect(&r);
    rig_pass(&r, 1000000);
    assert_int_equal(fetched(9), -2 - KE_COORDINATOR_NOT_AVAILABLE); /* never an older one */
    assert_non_null(strstr(r.lines, "fails its checksum"));
}

int main(void) {
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_find_coordinator),
        T(test_partition_of_a_group),
        T(test_every_version),
        T(test_refused_joins),
        T(test_bg06_an_old_leader_and_a_static_member),
        T(test_a_connection_that_closes),
        T(test_a_request_behind_a_join),
        T(test_offsets_of_every_version),
        T(test_refused_commits),
        T(test_a_topic_made_anew),
        T(test_describe_and_list),
        T(test_bg02_a_deleted_group),
        T(test_offset_delete),
        T(test_bg01_expiry),
        T(test_a_full_disk),
        T(test_bg07_a_hole_before_the_end),
        T(test_a_damaged_log),
    };
    return cmocka_run_group_tests_name("api_groups", tests, NULL, NULL);
}
