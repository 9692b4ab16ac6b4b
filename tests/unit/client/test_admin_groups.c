/* test_admin_groups.c - the administration calls that look at groups, against two scripted brokers: lists, descriptions, committed offsets; coordinators
 * that move, load, are away or old.
 */
#include "group_server.h"

static const char *const two[] = {"b", "z"};

/* ---- Lists ---- */

static void test_list_of_all_brokers(void **state) {
    (void)state;
    begin();
    kc_group_list *l = NULL;
    kc_group_listing g;
    kc_group_list_failure f;
    static const char *const names[] = {"a", "b", "moved", "y", "z"};
    assert_int_equal(kc_admin_list_groups(client, NULL, 0, NULL, 0, 20000000, &l, NULL), KC_OK);
    assert_int_equal(kc_group_list_count(l), 5); /* one of them is told of by both */
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(kc_group_list_get(l, i, &g), KC_OK);
        assert_string_equal(g.group, names[i]);
        assert_int_equal(g.coordinator, i < 2 ? 1 : 2);
        assert_string_equal(g.type, "classic");
    }
    assert_int_equal(kc_group_list_get(l, 0, &g), KC_OK);
    assert_string_equal(g.state, "Empty");
    assert_string_equal(g.protocol_type, "");
    assert_int_equal(kc_group_list_get(l, 5, &g), KC_INVALID);
    assert_int_equal(kc_group_list_failed(l, 0, &f), KC_INVALID);
    kc_group_list_free(l);
    kc_group_list_free(NULL);
    assert_int_equal(SAW(lists[0]), 1);
    assert_int_equal(SAW(lists[1]), 1);
}

static void test_list_filters(void **state) {
    (void)state;
    begin();
    kc_group_list *l = NULL;
    const char *states[] = {"Stable", "Empty"}, *types[] = {"classic"}, *missing[] = {NULL};
    assert_int_equal(kc_admin_list_groups(client, states, 2, types, 1, 20000000, &l, NULL), KC_OK);
    kc_group_list_free(l);
    assert_string_equal(seen(), "Stable,Empty,classic;");
    assert_int_equal(kc_admin_list_groups(client, missing, 1, NULL, 0, 0, &l, NULL), KC_INVALID);
    assert_int_equal(kc_admin_list_groups(client, NULL, 1, NULL, 0, 0, &l, NULL), KC_INVALID);
    assert_int_equal(kc_admin_list_groups(client, NULL, 0, NULL, 0, 0, NULL, NULL), KC_INVALID);
    /* A broker that cannot filter must not tell of all. */
    begin();
    script.max[KW_API_LIST_GROUPS] = 3;
    assert_int_equal(kc_admin_list_groups(client, states, 1, NULL, 0, 20000000, &l, NULL), KC_UNSUPPORTED);
    assert_int_equal(kc_admin_list_groups(client, NULL, 0, NULL, 0, 20000000, &l, NULL), KC_OK);
    kc_group_listing g;
    assert_int_equal(kc_group_list_get(l, 0, &g), KC_OK);
    assert_string_equal(g.state, "");
    kc_group_list_free(l);
}

static void test_list_waits_for_loading(void **state) {
    (void)state;
    begin();
    script.whole[1] = KE_COORDINATOR_LOAD_IN_PROGRESS; /* the second broker, once: then both anew */
    kc_group_list *l = NULL;
    assert_int_equal(kc_admin_list_groups(client, NULL, 0, NULL, 0, 20000000, &l, NULL), KC_OK);
    assert_int_equal(kc_group_list_count(l), 5);
    kc_group_list_free(l);
    assert_int_equal(SAW(lists[0]), 2);
    assert_int_equal(SAW(lists[1]), 2);
}

static void test_list_with_a_broker_away(void **state) {
    (void)state;
    begin();
    script.down = true;
    kc_group_list *l = NULL;
    kc_group_listing g;
    kc_group_list_failure f;
    assert_int_equal(kc_admin_list_groups(client, NULL, 0, NULL, 0, 20000000, &l, NULL), KC_OK);
    assert_int_equal(kc_group_list_count(l), 3);
    assert_int_equal(kc_group_list_get(l, 2, &g), KC_OK);
    assert_int_equal(g.coordinator, 1);
    assert_int_equal(kc_group_list_failed(l, 0, &f), KC_OK);
    assert_int_equal(f.broker, 2);
    assert_int_equal(f.err, KC_TRANSPORT);
    assert_int_equal(kc_group_list_failed(l, 1, &f), KC_INVALID);
    kc_group_list_free(l);
    /* An answer that is refused for good. */
    begin();
    script.whole[0] = KE_GROUP_AUTHORIZATION_FAILED;
    assert_int_equal(kc_admin_list_groups(client, NULL, 0, NULL, 0, 20000000, &l, NULL), KC_OK);
    assert_int_equal(kc_group_list_failed(l, 0, &f), KC_OK);
    assert_int_equal(f.err, KE_GROUP_AUTHORIZATION_FAILED);
    kc_group_list_free(l);
}

/* ---- Descriptions ---- */

static void check_members(const kc_group_details *d, size_t group) {
    kc_group_member m;
    assert_int_equal(kc_group_details_member(d, group, 0, &m), KC_OK);
    assert_string_equal(m.id, "m-1");
    assert_null(m.instance_id);
    assert_string_equal(m.host, "/127.0.0.1");
    assert_int_equal(m.topic_count, 2);
    assert_string_equal(m.topics[1], "u");
    assert_int_equal(m.assigned_count, 3);
    assert_string_equal(m.assigned[2].topic, "u");
    assert_int_equal(m.assigned[2].partition, 5);
    assert_int_equal(m.err, KC_OK);
    assert_int_equal(kc_group_details_member(d, group, 1, &m), KC_OK);
    assert_string_equal(m.instance_id, "i-2");
    assert_int_equal(m.assigned_count, 0);
    assert_int_equal(kc_group_details_member(d, group, 2, &m), KC_INVALID);
}

static void test_describe(void **state) {
    (void)state;
    for (int backwards = 0; backwards < 2; backwards++) {
        begin();
        script.backwards = backwards;
        const char *const groups[] = {"z", "a", "b", "y", "a"}; /* one of them twice */
        kc_group_details *d = NULL;
        kc_group_info g;
        assert_int_equal(kc_admin_describe_groups(client, groups, 5, 20000000, &d, NULL), KC_OK);
        assert_int_equal(kc_group_details_count(d), 5);
        for (size_t i = 0; i < 5; i++) {
            assert_int_equal(kc_group_details_get(d, i, &g), KC_OK);
            assert_string_equal(g.group, groups[i]);
            assert_string_equal(g.state, "Stable");
            assert_string_equal(g.protocol, "range");
            assert_string_equal(g.message, "");
            assert_int_equal(g.err, KC_OK);
            assert_int_equal(g.coordinator, *groups[i] < 'm' ? 1 : 2);
            assert_int_equal(g.member_count, 2);
            check_members(d, i);
        }
        assert_int_equal(kc_group_details_get(d, 5, &g), KC_INVALID);
        kc_group_details_free(d);
        assert_int_equal(SAW(find_requests), 1); /* batches */
        assert_int_equal(SAW(requests[0]), 1);
        assert_int_equal(SAW(requests[1]), 1);
    }
    kc_group_details_free(NULL);
}

static void test_describe_errors_of_groups(void **state) {
    (void)state;
    begin();
    script.find[0] = KE_GROUP_AUTHORIZATION_FAILED;
    script.codes[1] = KE_GROUP_ID_NOT_FOUND;
    const char *const groups[] = {"a", "b", "c"};
    kc_group_details *d = NULL;
    kc_group_info g;
    assert_int_equal(kc_admin_describe_groups(client, groups, 3, 20000000, &d, NULL), KC_OK);
    kc_group_details_get(d, 0, &g);
    assert_int_equal(g.err, KE_GROUP_AUTHORIZATION_FAILED);
    assert_string_equal(g.message, kc_err_text(KE_GROUP_AUTHORIZATION_FAILED));
    assert_int_equal(g.coordinator, -1);
    kc_group_details_get(d, 1, &g);
    assert_int_equal(g.err, KC_OK);
    kc_group_details_get(d, 2, &g);
    assert_int_equal(g.err, KE_GROUP_ID_NOT_FOUND);
    assert_string_equal(g.message, "Group is not a classic group.");
    kc_group_details_free(d);
    /* As it is told by older brokers. */
    begin();
    script.max[KW_API_DESCRIBE_GROUPS] = 5;
    script.dead = true;
    assert_int_equal(kc_admin_describe_groups(client, groups, 1, 20000000, &d, NULL), KC_OK);
    kc_group_details_get(d, 0, &g);
    assert_int_equal(g.err, KE_GROUP_ID_NOT_FOUND);
    assert_string_equal(g.state, "Dead");
    kc_group_details_free(d);
    /* Left out by the answer. */
    begin();
    script.leave_out = true;
    assert_int_equal(kc_admin_describe_groups(client, groups, 1, 20000000, &d, NULL), KC_OK);
    kc_group_details_get(d, 0, &g);
    assert_int_equal(g.err, KC_BAD_MESSAGE);
    kc_group_details_free(d);
}

static void test_describe_a_malformed_assignment(void **state) {
    (void)state;
    begin();
    script.malformed = true;
    kc_group_details *d = NULL;
    kc_group_member m;
    assert_int_equal(kc_admin_describe_groups(client, two, 1, 20000000, &d, NULL), KC_OK);
    assert_int_equal(kc_group_details_member(d, 0, 0, &m), KC_OK);
    assert_int_equal(m.err, KC_BAD_MESSAGE);
    assert_int_equal(m.assigned_count, 0);
    assert_true(m.assignment.size > 0 && m.metadata.size > 0); /* as they came */
    assert_int_equal(kc_group_details_member(d, 0, 1, &m), KC_OK);
    assert_int_equal(m.err, KC_OK);
    kc_group_details_free(d);
}

static void test_describe_finds_the_coordinator_again(void **state) {
    (void)state;
    begin();
    script.find[0] = KE_COORDINATOR_NOT_AVAILABLE;
    script.codes[0] = KE_NOT_COORDINATOR;
    script.codes[1] = KE_COORDINATOR_LOAD_IN_PROGRESS;
    kc_group_details *d = NULL;
    kc_group_info g;
    assert_int_equal(kc_admin_describe_groups(client, two, 2, 20000000, &d, NULL), KC_OK);
    for (size_t i = 0; i < 2; i++) {
        kc_group_details_get(d, i, &g);
        assert_int_equal(g.err, KC_OK);
        assert_int_equal(g.member_count, 2);
    }
    kc_group_details_free(d);
    /* It moves between two calls; and what it answers to the first request is lost. */
    SCRIPT(swapped = true);
    SCRIPT(drop = 1);
    assert_int_equal(kc_admin_describe_groups(client, two, 2, 20000000, &d, NULL), KC_OK);
    kc_group_details_get(d, 0, &g);
    assert_int_equal(g.err, KC_OK);
    assert_int_equal(g.coordinator, 2);
    kc_group_details_free(d);
}

static void test_describe_until_the_limit(void **state) {
    (void)state;
    begin();
    script.down = true; /* broker 2 coordinates z, and nobody is there */
    kc_group_details *d = NULL;
    kc_group_info g;
    assert_int_equal(kc_admin_describe_groups(client, two, 2, 700000, &d, NULL), KC_OK);
    kc_group_details_get(d, 0, &g);
    assert_int_equal(g.err, KC_OK);
    kc_group_details_get(d, 1, &g);
    assert_true(g.err == KC_TRANSPORT || g.err == KC_TIMED_OUT);
    assert_int_equal(g.coordinator, 2);
    assert_true(strlen(g.message) > 0);
    kc_group_details_free(d);
    /* Never a coordinator. */
    begin();
    for (int i = 0; i < 8; i++) script.find[i] = KE_COORDINATOR_NOT_AVAILABLE;
    assert_int_equal(kc_admin_describe_groups(client, two, 1, 300000, &d, NULL), KC_OK);
    kc_group_details_get(d, 0, &g);
    assert_int_equal(g.err, KE_COORDINATOR_NOT_AVAILABLE);
    kc_group_details_free(d);
}

static void test_describe_many(void **state) {
    (void)state;
    begin();
    enum { N = 2500 };
    static char names[N][16];
    const char *groups[N];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%c-%d", i % 2 ? 'a' : 'z', i);
        groups[i] = names[i];
    }
    SCRIPT(backwards = true);
    kc_group_details *d = NULL;
    kc_group_info g;
    assert_int_equal(kc_admin_describe_groups(client, groups, N, 60000000, &d, NULL), KC_OK);
    for (size_t i = 0; i < N; i++) {
        kc_group_details_get(d, i, &g);
        assert_int_equal(g.err, KC_OK);
        assert_string_equal(g.group, groups[i]);
        assert_int_equal(g.coordinator, i % 2 ? 1 : 2);
    }
    kc_group_details_free(d);
    assert_int_equal(SAW(find_requests), 3);
    assert_int_equal(SAW(requests[0]), 2);
    assert_int_equal(SAW(requests[1]), 2);
}

/* ---- Offsets ---- */

static void test_offsets_of_groups(void **state) {
    (void)state;
    begin();
    const char *const groups[] = {"b", "a", "z"};
    kc_group_offsets *o = NULL;
    kc_group_offset at;
    assert_int_equal(kc_admin_group_offsets(client, groups, 3, NULL, 0, 0, 0, 20000000, &o, NULL), KC_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(kc_group_offsets_err(o, i), KC_OK);
        assert_int_equal(kc_group_offsets_count(o, i), 2);
        for (size_t k = 0; k < 2; k++) { /* by partition, though told otherwise */
            assert_int_equal(kc_group_offsets_get(o, i, k, &at), KC_OK);
            assert_string_equal(at.topic, "t");
            assert_int_equal(at.partition, k);
            assert_int_equal(at.offset, 100 + k);
            assert_int_equal(at.leader_epoch, 7);
            assert_string_equal(at.metadata, k ? "" : "note");
        }
    }
    assert_int_equal(kc_group_offsets_get(o, 0, 2, &at), KC_INVALID);
    assert_int_equal(kc_group_offsets_err(o, 3), KC_INVALID);
    kc_group_offsets_free(o);
    assert_int_equal(SAW(requests[0]), 1);
    /* Of some partitions; one of them an error. */
    begin();
    script.codes[1] = KE_UNKNOWN_TOPIC_OR_PARTITION;
    const kc_group_partition parts[] = {{"u", 3}, {"u", 1}, {"t", 0}};
    assert_int_equal(kc_admin_group_offsets(client, groups, 1, parts, sizeof parts[0], 3, 1, 20000000, &o, NULL), KC_OK);
    assert_string_equal(seen(), "stable b:2 ");
    assert_int_equal(kc_group_offsets_count(o, 0), 3);
    kc_group_offsets_get(o, 0, 1, &at);
    assert_string_equal(at.topic, "u");
    assert_int_equal(at.partition, 1);
    assert_int_equal(at.offset, -1);
    assert_int_equal(at.err, KE_UNKNOWN_TOPIC_OR_PARTITION);
    kc_group_offsets_free(o);
    kc_group_offsets_free(NULL);
}

static void test_offsets_of_old_brokers(void **state) {
    (void)state;
    begin();
    script.max[KW_API_OFFSET_FETCH] = 4;
    script.max[KW_API_FIND_COORDINATOR] = 3;
    script.whole[0] = KE_NOT_COORDINATOR;
    kc_group_offsets *o = NULL;
    kc_group_offset at;
    assert_int_equal(kc_admin_group_offsets(client, two, 2, NULL, 0, 0, 0, 20000000, &o, NULL), KC_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(kc_group_offsets_count(o, i), 2);
        kc_group_offsets_get(o, i, 1, &at);
        assert_int_equal(at.offset, 101);
        assert_int_equal(at.leader_epoch, -1);
    }
    kc_group_offsets_free(o);
    assert_int_equal(SAW(find_requests), 3); /* one at a time */
    /* Stable ones alone are more than it can say. */
    assert_int_equal(kc_admin_group_offsets(client, two, 1, NULL, 0, 0, 1, 20000000, &o, NULL), KC_OK);
    assert_int_equal(kc_group_offsets_err(o, 0), KC_UNSUPPORTED);
    kc_group_offsets_free(o);
}

static void test_offsets_that_are_not_stable_yet(void **state) {
    (void)state;
    begin();
    script.codes[1] = KE_UNSTABLE_OFFSET_COMMIT;
    script.whole[1] = KE_GROUP_ID_NOT_FOUND; /* the other group has none */
    kc_group_offsets *o = NULL;
    assert_int_equal(kc_admin_group_offsets(client, two, 2, NULL, 0, 0, 1, 20000000, &o, NULL), KC_OK);
    assert_int_equal(kc_group_offsets_count(o, 0), 2);
    assert_int_equal(kc_group_offsets_err(o, 1), KC_OK);
    assert_int_equal(kc_group_offsets_count(o, 1), 0);
    kc_group_offsets_free(o);
    assert_int_equal(SAW(requests[0]), 2);
    begin();
    script.leave_out = true;
    SCRIPT(leave_out = false);
    SCRIPT(whole[0] = KE_GROUP_AUTHORIZATION_FAILED);
    assert_int_equal(kc_admin_group_offsets(client, two, 1, NULL, 0, 0, 0, 20000000, &o, NULL), KC_OK);
    assert_int_equal(kc_group_offsets_err(o, 0), KE_GROUP_AUTHORIZATION_FAILED);
    kc_group_offsets_free(o);
}

/* ---- All of them ---- */

static void test_bad_arguments(void **state) {
    (void)state;
    begin();
    kc_group_details *d = NULL;
    kc_group_offsets *o = NULL;
    kc_error *e = NULL;
    const char *const missing[] = {"a", NULL};
    const kc_group_partition negative = {"t", -1}, nameless = {NULL, 0};
    assert_int_equal(kc_admin_describe_groups(client, missing, 2, 0, &d, &e), KC_INVALID);
    assert_non_null(strstr(kc_error_message(e), "describe groups"));
    kc_error_free(e);
    assert_int_equal(kc_admin_describe_groups(client, missing, 0, 0, &d, NULL), KC_INVALID);
    assert_int_equal(kc_admin_describe_groups(client, NULL, 1, 0, &d, NULL), KC_INVALID);
    assert_int_equal(kc_admin_describe_groups(client, two, 1, 0, NULL, NULL), KC_INVALID);
    assert_int_equal(kc_admin_group_offsets(client, missing, 2, NULL, 0, 0, 0, 0, &o, NULL), KC_INVALID);
    assert_int_equal(kc_admin_group_offsets(client, two, 0, NULL, 0, 0, 0, 0, &o, NULL), KC_INVALID);
    assert_int_equal(kc_admin_group_offsets(client, two, 1, &negative, sizeof negative, 1, 0, 0, &o, NULL), KC_INVALID);
    assert_int_equal(kc_admin_group_offsets(client, two, 1, &nameless, sizeof nameless, 1, 0, 0, &o, NULL), KC_INVALID);
    assert_int_equal(kc_admin_group_offsets(client, two, 1, &negative, 4, 1, 0, 0, &o, NULL), KC_INVALID);
    assert_int_equal(SAW(find_requests), 0);
    assert_null(d);
    assert_null(o);
}

static void test_started(void **state) {
    (void)state;
    begin();
    kc_op *ops[3] = {NULL};
    char *name = strdup("b"), *topic = strdup("t"), *filter = strdup("Stable");
    const char *groups[] = {name}, *states[] = {filter};
    kc_group_partition part = {topic, 0};
    assert_int_equal(kc_admin_list_groups_start(client, states, 1, NULL, 0, 0, 1, &ops[0], NULL), KC_OK);
    assert_int_equal(kc_admin_describe_groups_start(client, groups, 1, 0, 2, &ops[1], NULL), KC_OK);
    assert_int_equal(kc_admin_group_offsets_start(client, groups, 1, &part, sizeof part, 1, 0, 0, 3, &ops[2], NULL), KC_OK);
    free(name);
    free(topic);
    free(filter);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kc_op_wait(ops[i], 20000000, NULL), KC_OK);
        assert_int_equal(kc_op_opaque(ops[i]), i + 1);
    }
    kc_group_list *l = kc_op_result_groups(ops[0]);
    kc_group_details *d = kc_op_result_group_details(ops[1]);
    kc_group_offsets *o = kc_op_result_group_offsets(ops[2]);
    assert_null(kc_op_result_groups(ops[0])); /* taken */
    assert_null(kc_op_result_group_details(ops[2])); /* of another kind */
    for (int i = 0; i < 3; i++) kc_op_free(ops[i]);
    assert_int_equal(kc_group_list_count(l), 5);
    kc_group_info g;
    assert_int_equal(kc_group_details_get(d, 0, &g), KC_OK);
    assert_string_equal(g.group, "b");
    assert_int_equal(kc_group_offsets_count(o, 0), 1);
    kc_group_list_free(l);
    kc_group_details_free(d);
    kc_group_offsets_free(o);
    assert_int_equal(kc_admin_list_groups_start(client, NULL, 0, NULL, 0, 0, 0, NULL, NULL), KC_INVALID);
    assert_int_equal(kc_admin_describe_groups_start(client, two, 1, 0, 0, NULL, NULL), KC_INVALID);
    assert_int_equal(kc_admin_group_offsets_start(client, two, 1, NULL, 0, 0, 0, 0, 0, NULL, NULL), KC_INVALID);
    /* Cancelled while nobody answers it. */
    SCRIPT(down = true);
    assert_int_equal(kc_admin_describe_groups_start(client, &two[1], 1, KC_FOREVER, 0, &ops[0], NULL), KC_OK);
    kc_op_cancel(ops[0]);
    kc_err err = kc_op_wait(ops[0], 20000000, NULL);
    assert_true(err == KC_CANCELLED || err == KC_OK);
    kc_op_free(ops[0]);
}

static void test_allocation_failures(void **state) {
    (void)state;
    begin();
    for (int at = 0; at < 150; at++) {
        kc_group_list *l = NULL;
        kc_group_details *d = NULL;
        kc_group_offsets *o = NULL;
        kw_alloc_fail_after(at);
        kc_err err = at % 3 == 0   ? kc_admin_list_groups(client, NULL, 0, NULL, 0, 3000000, &l, NULL)
                     : at % 3 == 1 ? kc_admin_describe_groups(client, two, 2, 3000000, &d, NULL)
                                   : kc_admin_group_offsets(client, two, 2, NULL, 0, 0, 0, 3000000, &o, NULL);
        kw_alloc_fail_after(-1);
        assert_true(err == KC_OK || err == KC_NO_MEMORY || err == KC_TRANSPORT || err == KC_BAD_MESSAGE || err == KC_TIMED_OUT);
        assert_true(err == KC_OK || (!l && !d && !o));
        kc_group_list_free(l);
        kc_group_details_free(d);
        kc_group_offsets_free(o);
    }
}

/* Bytes of answers are changed at random: each call ends, in time, and what it gives can be read. */
static void test_hostile_answers(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        if (seed % 40 == 1) begin();
        SCRIPT(topics = true);
        SCRIPT(mutate = seed * 0x9e3779b97f4a7c15u);
        kc_group_list *l = NULL;
        kc_group_details *d = NULL;
        kc_group_offsets *o = NULL;
        kc_group_listing g;
        kc_group_info info;
        kc_group_member m;
        kc_group_offset at;
        size_t size = 0;
        kc_group_offset_item item = {.topic = "t", .offset = 1};
        kc_admin_item group = {.name = "b"};
        switch (seed % 6) {
        case 0:
            (void)kc_admin_list_groups(client, NULL, 0, NULL, 0, 100000, &l, NULL);
            break;
        case 1:
            (void)kc_admin_describe_groups(client, two, 2, 200000, &d, NULL);
            break;
        case 2:
            (void)kc_admin_group_offsets(client, two, 2, NULL, 0, 0, 0, 200000, &o, NULL);
            break;
        case 3:
            (void)kc_admin_alter_group_offsets(client, "b", &item, sizeof item, 1, 200000, NULL);
            break;
        case 4:
            (void)kc_admin_delete_groups(client, &group, sizeof group, 1, 200000, NULL);
            break;
        default:
            (void)kc_admin_remove_group_members(client, "b", NULL, NULL, 0, 0, 200000, NULL);
        }
        for (size_t i = 0; kc_group_list_get(l, i, &g) == KC_OK; i++) size += strlen(g.group) + strlen(g.state);
        for (size_t i = 0; kc_group_details_get(d, i, &info) == KC_OK; i++) {
            size += strlen(info.state) + strlen(info.message);
            for (size_t k = 0; kc_group_details_member(d, i, k, &m) == KC_OK; k++) {
                size += strlen(m.id) + strlen(m.host);
                for (size_t n = 0; n < m.topic_count; n++) size += strlen(m.topics[n]);
                for (size_t n = 0; n < m.assigned_count; n++) size += strlen(m.assigned[n].topic);
            }
        }
        for (size_t i = 0; i < 2; i++)
            for (size_t k = 0; kc_group_offsets_get(o, i, k, &at) == KC_OK; k++) size += strlen(at.topic) + strlen(at.metadata);
        assert_true(size < 1 << 20);
        kc_group_list_free(l);
        kc_group_details_free(d);
        kc_group_offsets_free(o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list_of_all_brokers),
        cmocka_unit_test(test_list_filters),
        cmocka_unit_test(test_list_waits_for_loading),
        cmocka_unit_test(test_list_with_a_broker_away),
        cmocka_unit_test(test_describe),
        cmocka_unit_test(test_describe_errors_of_groups),
        cmocka_unit_test(test_describe_a_malformed_assignment),
        cmocka_unit_test(test_describe_finds_the_coordinator_again),
        cmocka_unit_test(test_describe_until_the_limit),
        cmocka_unit_test(test_describe_many),
        cmocka_unit_test(test_offsets_of_groups),
        cmocka_unit_test(test_offsets_of_old_brokers),
        cmocka_unit_test(test_offsets_that_are_not_stable_yet),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_started),
        cmocka_unit_test(test_hostile_answers),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
