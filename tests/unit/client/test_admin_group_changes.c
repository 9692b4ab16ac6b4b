/* test_admin_group_changes.c - the administration calls that change groups, against two scripted brokers: offsets altered and deleted, groups deleted,
 * members put out; answers that are lost, coordinators that move.
 */
#include "group_server.h"

static kc_group_offset_item at(const char *topic, int32_t partition, int64_t offset) {
    return (kc_group_offset_item){.topic = topic, .partition = partition, .offset = offset};
}

static void test_alter(void **state) {
    (void)state;
    begin();
    script.codes[1] = KE_OFFSET_METADATA_TOO_LARGE;
    kc_group_offset_item items[3] = {at("t", 0, 5), at("t", 1, 6), at("u", 0, 7)};
    items[0].metadata = "mine";
    items[0].leader_epoch = 3;
    kc_error *e = NULL;
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", items, sizeof items[0], 3, 20000000, &e), KE_OFFSET_METADATA_TOO_LARGE);
    assert_non_null(strstr(kc_error_message(e), "alter the offset of t [1] of group b: "));
    kc_error_free(e);
    assert_int_equal(items[0].err, KC_OK);
    assert_string_equal(items[0].message, "");
    assert_int_equal(items[1].err, KE_OFFSET_METADATA_TOO_LARGE);
    assert_int_equal(items[2].err, KC_OK);
    assert_string_equal(seen(), "b generation -1 member '' 0=5/3/mine 1=6/-1/");
    assert_int_equal(SAW(items[0]), 3);
}

static void test_alter_a_group_that_has_members(void **state) {
    (void)state;
    begin();
    script.codes[0] = KE_UNKNOWN_MEMBER_ID;
    kc_group_offset_item item = at("t", 0, 5);
    kc_error *e = NULL;
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", &item, sizeof item, 1, 20000000, &e), KE_UNKNOWN_MEMBER_ID);
    assert_non_null(strstr(item.message, "active members"));
    assert_non_null(strstr(kc_error_message(e), "active members"));
    kc_error_free(e);
    /* No such topic is the answer: it is not waited for. */
    begin();
    script.codes[0] = KE_UNKNOWN_TOPIC_OR_PARTITION;
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", &item, sizeof item, 1, 20000000, NULL), KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(SAW(requests[0]), 1);
}

static void test_alter_where_the_coordinator_moves(void **state) {
    (void)state;
    begin();
    script.codes[0] = script.codes[1] = KE_NOT_COORDINATOR;
    script.codes[3] = KE_COORDINATOR_LOAD_IN_PROGRESS; /* of the second try: one of two passes */
    kc_group_offset_item items[2] = {at("t", 0, 5), at("t", 1, 6)};
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", items, sizeof items[0], 2, 20000000, NULL), KC_OK);
    assert_int_equal(items[1].err, KC_OK);
    assert_int_equal(SAW(requests[0]), 3);
    assert_int_equal(SAW(items[2]), 1); /* only what is left goes again */
    assert_string_equal(seen(), "b generation -1 member '' 1=6/-1/");
    /* The connection is lost: the same again. */
    begin();
    script.drop = 1;
    assert_int_equal(kc_admin_alter_group_offsets(client, "z", items, sizeof items[0], 2, 20000000, NULL), KC_OK);
    assert_int_equal(SAW(requests[1]), 2);
    /* No coordinator within the limit: each item says so. */
    begin();
    for (int i = 0; i < 8; i++) script.find[i] = KE_COORDINATOR_NOT_AVAILABLE;
    kc_error *e = NULL;
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", items, sizeof items[0], 2, 300000, &e), KE_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(items[1].err, KE_COORDINATOR_NOT_AVAILABLE);
    kc_error_free(e);
}

static void test_alter_many(void **state) {
    (void)state;
    begin();
    enum { N = 4500 };
    static kc_group_offset_item items[N];
    for (int i = 0; i < N; i++) items[i] = at("t", i, i);
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", items, sizeof items[0], N, 60000000, NULL), KC_OK);
    for (int i = 0; i < N; i++) assert_int_equal(items[i].err, KC_OK);
    assert_int_equal(SAW(requests[0]), 3);
    assert_int_equal(SAW(items[0]), 2000);
    assert_int_equal(SAW(items[2]), 500);
    /* Some of the first chunk have to wait: what is behind it goes later, all of it once. */
    begin();
    script.codes[7] = KE_NOT_COORDINATOR;
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", items, sizeof items[0], N, 60000000, NULL), KC_OK);
    for (int i = 0; i < N; i++) assert_int_equal(items[i].err, KC_OK);
    assert_int_equal(SAW(asked), N + 1);
}

static void test_delete_offsets(void **state) {
    (void)state;
    begin();
    script.whole[0] = KE_COORDINATOR_LOAD_IN_PROGRESS;
    script.codes[1] = KE_GROUP_SUBSCRIBED_TO_TOPIC;
    kc_group_offset_item items[2] = {at("t", 0, -1), at("u", 0, 0)};
    items[0].metadata = (const char *)(uintptr_t)1; /* not looked at */
    kc_error *e = NULL;
    assert_int_equal(kc_admin_delete_group_offsets(client, "b", items, sizeof items[0], 2, 20000000, &e), KE_GROUP_SUBSCRIBED_TO_TOPIC);
    assert_non_null(strstr(kc_error_message(e), "delete the offset of u [0] of group b: "));
    kc_error_free(e);
    assert_int_equal(items[0].err, KC_OK);
    assert_int_equal(items[1].err, KE_GROUP_SUBSCRIBED_TO_TOPIC);
    begin();
    script.whole[0] = KE_GROUP_ID_NOT_FOUND;
    assert_int_equal(kc_admin_delete_group_offsets(client, "b", items, sizeof items[0], 2, 20000000, NULL), KE_GROUP_ID_NOT_FOUND);
    assert_int_equal(items[0].err, KE_GROUP_ID_NOT_FOUND);
    assert_int_equal(items[1].err, KE_GROUP_ID_NOT_FOUND);
}

static void test_delete_groups(void **state) {
    (void)state;
    begin();
    script.codes[1] = KE_NON_EMPTY_GROUP;
    script.codes[2] = KE_NOT_COORDINATOR; /* of broker 2 */
    kc_admin_item items[4] = {{.name = "a"}, {.name = "z"}, {.name = "b"}, {.name = "y"}};
    kc_error *e = NULL;
    assert_int_equal(kc_admin_delete_groups(client, items, sizeof items[0], 4, 20000000, &e), KE_NON_EMPTY_GROUP);
    assert_non_null(strstr(kc_error_message(e), "delete group b: "));
    kc_error_free(e);
    assert_int_equal(items[0].err, KC_OK);
    assert_int_equal(items[1].err, KC_OK);
    assert_int_equal(items[2].err, KE_NON_EMPTY_GROUP);
    assert_int_equal(items[3].err, KC_OK);
    assert_int_equal(SAW(requests[0]), 1);
    assert_int_equal(SAW(requests[1]), 2); /* z alone once more */
    assert_int_equal(SAW(items[2]), 1);
    assert_int_equal(SAW(find_requests), 2);
}

/* The first request had its effect, its answer was lost: the second finds the group gone. */
static void test_delete_groups_twice(void **state) {
    (void)state;
    begin();
    script.drop = 1;
    script.codes[0] = script.codes[1] = KE_GROUP_ID_NOT_FOUND;
    kc_admin_item items[2] = {{.name = "a"}, {.name = "a"}};
    assert_int_equal(kc_admin_delete_groups(client, items, sizeof items[0], 1, 20000000, NULL), KC_OK);
    assert_int_equal(items[0].err, KC_OK);
    begin();
    script.codes[0] = KE_GROUP_ID_NOT_FOUND;
    assert_int_equal(kc_admin_delete_groups(client, items, sizeof items[0], 1, 20000000, NULL), KE_GROUP_ID_NOT_FOUND);
    begin();
    assert_int_equal(kc_admin_delete_groups(client, items, sizeof items[0], 2, 20000000, NULL), KC_OK); /* named twice */
    assert_int_equal(items[1].err, KC_OK);
}

static void test_remove_members(void **state) {
    (void)state;
    begin();
    script.codes[1] = KE_UNKNOWN_MEMBER_ID;
    kc_group_member_item items[2] = {{.name = "m-1"}, {.name = "i-2", .is_static = 1}};
    kc_error *e = NULL;
    assert_int_equal(kc_admin_remove_group_members(client, "b", "maintenance", items, sizeof items[0], 2, 20000000, &e), KE_UNKNOWN_MEMBER_ID);
    assert_non_null(strstr(kc_error_message(e), "remove member i-2 of group b: "));
    kc_error_free(e);
    assert_int_equal(items[0].err, KC_OK);
    assert_int_equal(items[1].err, KE_UNKNOWN_MEMBER_ID);
    assert_string_equal(seen(), "m-1//maintenance /i-2/maintenance ");
    /* The answer was lost: who is gone at the second try went at the first. */
    begin();
    script.drop = 1;
    script.codes[0] = KE_UNKNOWN_MEMBER_ID;
    assert_int_equal(kc_admin_remove_group_members(client, "b", NULL, items, sizeof items[0], 1, 20000000, NULL), KC_OK);
    /* Too old to do it. */
    begin();
    script.max[KW_API_LEAVE_GROUP] = 2;
    assert_int_equal(kc_admin_remove_group_members(client, "b", NULL, items, sizeof items[0], 1, 20000000, NULL), KC_UNSUPPORTED);
}

static void test_remove_all_members(void **state) {
    (void)state;
    begin();
    script.whole[0] = KE_NOT_COORDINATOR; /* between the description and the removal */
    kc_op *op = NULL;
    kc_admin_result r[3];
    assert_int_equal(kc_admin_remove_group_members_start(client, "b", NULL, NULL, 0, 0, 20000000, 9, &op, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, 20000000, NULL), KC_OK);
    assert_int_equal(kc_op_result_items(op, r, sizeof r[0], 3), 2);
    assert_string_equal(r[0].name, "m-1");
    assert_string_equal(r[1].name, "i-2");
    assert_int_equal(r[1].err, KC_OK);
    kc_op_free(op);
    assert_string_equal(seen(), "m-1// /i-2/ ");
    assert_int_equal(SAW(requests[0]), 3);
    /* None there; no such group; never a coordinator. */
    begin();
    script.no_members = true;
    assert_int_equal(kc_admin_remove_group_members(client, "b", NULL, NULL, 0, 0, 20000000, NULL), KC_OK);
    assert_int_equal(SAW(requests[0]), 1);
    begin();
    script.codes[0] = KE_GROUP_ID_NOT_FOUND;
    kc_error *e = NULL;
    assert_int_equal(kc_admin_remove_group_members(client, "b", NULL, NULL, 0, 0, 20000000, &e), KE_GROUP_ID_NOT_FOUND);
    assert_non_null(strstr(kc_error_message(e), "group b"));
    kc_error_free(e);
    begin();
    for (int i = 0; i < 8; i++) script.find[i] = KE_COORDINATOR_NOT_AVAILABLE;
    assert_int_equal(kc_admin_remove_group_members(client, "b", NULL, NULL, 0, 0, 300000, NULL), KE_COORDINATOR_NOT_AVAILABLE);
    begin();
    script.find[0] = KE_GROUP_AUTHORIZATION_FAILED;
    assert_int_equal(kc_admin_remove_group_members(client, "b", NULL, NULL, 0, 0, 20000000, NULL), KE_GROUP_AUTHORIZATION_FAILED);
}

static void test_left_out(void **state) {
    (void)state;
    begin();
    script.leave_out = true;
    kc_group_offset_item item = at("t", 0, 1);
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", &item, sizeof item, 1, 20000000, NULL), KC_BAD_MESSAGE); /* by FindCoordinator */
    begin();
    script.leave_out = true;
    script.max[KW_API_FIND_COORDINATOR] = 3;
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", &item, sizeof item, 1, 20000000, NULL), KC_BAD_MESSAGE);
    assert_string_equal(item.message, "the answer does not name it");
}

static void test_bad_arguments(void **state) {
    (void)state;
    begin();
    kc_group_offset_item item = at("t", 0, -1), nameless = at(NULL, 0, 1), negative = at("t", -1, 1);
    kc_group_member_item member = {.name = "m", .is_static = 2}, empty = {.name = ""};
    kc_admin_item group = {.name = NULL};
    kc_error *e = NULL;
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", &item, sizeof item, 1, 0, &e), KC_INVALID);
    kc_error_free(e);
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", &nameless, sizeof item, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", &negative, sizeof item, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_alter_group_offsets(client, NULL, &item, sizeof item, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_alter_group_offsets(client, "b", &item, sizeof item, 0, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_delete_group_offsets(client, "b", &negative, sizeof item, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_delete_group_offsets(client, "b", &item, 8, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_delete_groups(client, &group, sizeof group, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_delete_groups(client, &group, sizeof group, 0, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_delete_groups_start(client, &group, sizeof group, 1, 0, 0, NULL, NULL), KC_INVALID);
    assert_int_equal(kc_admin_remove_group_members(client, "b", NULL, &member, sizeof member, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_remove_group_members(client, "b", NULL, &empty, sizeof empty, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_admin_remove_group_members(client, NULL, NULL, NULL, 0, 0, 0, NULL), KC_INVALID);
    assert_int_equal(SAW(find_requests), 0);
}

static void test_started(void **state) {
    (void)state;
    begin();
    kc_op *ops[2] = {NULL};
    kc_admin_result r;
    char *group = strdup("b"), *topic = strdup("t"), *metadata = strdup("m");
    kc_group_offset_item item = at(topic, 4, 5);
    item.metadata = metadata;
    assert_int_equal(kc_admin_alter_group_offsets_start(client, group, &item, sizeof item, 1, 0, 1, &ops[0], NULL), KC_OK);
    kc_admin_item name = {.name = group};
    assert_int_equal(kc_admin_delete_groups_start(client, &name, sizeof name, 1, 0, 2, &ops[1], NULL), KC_OK);
    free(group);
    free(topic);
    free(metadata);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kc_op_wait(ops[i], 20000000, NULL), KC_OK);
        assert_int_equal(kc_op_result_items(ops[i], &r, sizeof r, 1), 1);
        assert_string_equal(r.name, i ? "b" : "t");
        assert_int_equal(r.partition, i ? -1 : 4);
        kc_op_free(ops[i]);
    }
}

static void test_allocation_failures(void **state) {
    (void)state;
    begin();
    for (int n = 0; n < 160; n++) {
        kc_group_offset_item items[2] = {at("t", 0, 5), at("u", 1, 6)};
        kc_admin_item groups[2] = {{.name = "a"}, {.name = "z"}};
        kw_alloc_fail_after(n);
        kc_err err = n % 4 == 0   ? kc_admin_alter_group_offsets(client, "b", items, sizeof items[0], 2, 3000000, NULL)
                     : n % 4 == 1 ? kc_admin_delete_group_offsets(client, "b", items, sizeof items[0], 2, 3000000, NULL)
                     : n % 4 == 2 ? kc_admin_delete_groups(client, groups, sizeof groups[0], 2, 3000000, NULL)
                                  : kc_admin_remove_group_members(client, "b", "r", NULL, 0, 0, 3000000, NULL);
        kw_alloc_fail_after(-1);
        assert_true(err == KC_OK || err == KC_NO_MEMORY || err == KC_TRANSPORT || err == KC_BAD_MESSAGE || err == KC_TIMED_OUT);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alter),
        cmocka_unit_test(test_alter_a_group_that_has_members),
        cmocka_unit_test(test_alter_where_the_coordinator_moves),
        cmocka_unit_test(test_alter_many),
        cmocka_unit_test(test_delete_offsets),
        cmocka_unit_test(test_delete_groups),
        cmocka_unit_test(test_delete_groups_twice),
        cmocka_unit_test(test_remove_members),
        cmocka_unit_test(test_remove_all_members),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_started),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
