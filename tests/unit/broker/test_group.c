/* test_group.c - one classic group: rebalances, generations, static members, ids first, what is stored and what hangs on it; cases BG-03,
 * 05, 06, 08, 09, 10. (Random requests: test_group_model.c.)
 */
#include "group_rig.h"

static int16_t beat(int i) {
    return kb_group_heartbeat(r.g, kw_str_of(r.s[i].id), kw_str_null(), r.s[i].generation, r.now);
}

static int16_t leave(int i) {
    return kb_group_leave(r.g, kw_str_of(r.s[i].id), kw_str_null(), kw_str_null(), r.now);
}

/* Seats 0..n-1, stable; seat 0 leads. */
static inline void stable(int n) {
    for (int i = 0; i < n; i++) join(i);
    for (int round = 0; state_() != KB_GROUP_COMPLETING || kb_group_size(r.g) < n; round++) {
        assert_true(round < 4);
        for (int i = 0; i < n; i++)
            if (!r.s[i].waits_join) join(i);
    }
    char text[80] = "";
    for (int i = 0; i < n; i++) snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d=p%d", i ? "," : "", i, i);
    for (int i = 0; i < n; i++) assert_int_equal(r.s[i].code, 0);
    for (int i = 0; i < n; i++) sync_(i, strcmp(r.s[i].id, r.s[i].leader) == 0 ? text : NULL);
    stored(KE_NONE);
    assert_int_equal(state_(), KB_GROUP_STABLE);
}

/* ---- One member ---- */

static void test_one_member(void **state) {
    (void)state;
    join(0); /* completes at once: nobody else is waited for */
    assert_false(r.s[0].waits_join);
    assert_int_equal(r.s[0].code, 0);
    assert_int_equal(r.s[0].generation, 1);
    assert_int_equal(r.s[0].members, 1);
    assert_string_equal(r.s[0].leader, r.s[0].id);
    assert_string_equal(r.s[0].protocol, "range");
    assert_int_equal(strncmp(r.s[0].id, "c0-", 3), 0);
    assert_int_equal(strlen(r.s[0].id), 3 + 36);
    sync_(0, "0=all");
    assert_true(r.s[0].waits_sync); /* not before it is stored */
    assert_int_equal(state_(), KB_GROUP_COMPLETING);
    stored(KE_NONE);
    assert_false(r.s[0].waits_sync);
    assert_string_equal(r.s[0].assignment, "all");
    assert_int_equal(state_(), KB_GROUP_STABLE);
    assert_int_equal(beat(0), 0);
    sync_(0, NULL); /* asked again: the same */
    assert_string_equal(r.s[0].assignment, "all");
    assert_int_equal(leave(0), 0);
    assert_int_equal(state_(), KB_GROUP_EMPTY);
    assert_int_equal(kb_group_generation(r.g), 2);
    assert_int_equal(beat(0), KE_UNKNOWN_MEMBER_ID);
    assert_false(kb_group_is_unused(r.g)); /* that it is empty is being stored */
    stored(KE_NONE);
    assert_true(kb_group_is_unused(r.g));
}

static void test_a_second_member_rebalances(void **state) {
    (void)state;
    stable(1);
    join(1);
    assert_true(r.s[1].waits_join);
    assert_int_equal(state_(), KB_GROUP_PREPARING);
    assert_int_equal(beat(0), KE_REBALANCE_IN_PROGRESS);
    join(0);
    assert_false(r.s[0].waits_join || r.s[1].waits_join);
    assert_int_equal(r.s[0].generation, 2);
    assert_int_equal(r.s[1].generation, 2);
    assert_int_equal(r.s[0].members, 2);
    assert_int_equal(r.s[1].members, 0);
    assert_string_equal(r.s[1].leader, r.s[0].id);
    sync_(1, "0=mine,1=mine"); /* BG-10: only the leader assigns */
    assert_true(r.s[1].waits_sync);
    assert_int_equal(r.store, r.answered);
    sync_(0, "0=a");
    stored(KE_NONE);
    assert_string_equal(r.s[0].assignment, "a");
    assert_string_equal(r.s[1].assignment, ""); /* BG-10: who was left out has nothing, and knows */
    assert_int_equal(r.s[1].code, 0);
}

/* BG-10: asking again is no rebalance. */
static void test_bg10_joins_that_change_nothing(void **state) {
    (void)state;
    stable(2);
    int32_t generation = kb_group_generation(r.g);
    for (int i = 0; i < 5; i++) {
        join(1);
        assert_false(r.s[1].waits_join);
        assert_int_equal(r.s[1].generation, generation);
    }
    assert_int_equal(state_(), KB_GROUP_STABLE);
    join_how(1, (struct how){.data = "other topics"});
    assert_int_equal(state_(), KB_GROUP_PREPARING);
    assert_int_equal(kb_group_generation(r.g), generation); /* grows when it completes */
    join(0);
    assert_int_equal(kb_group_generation(r.g), generation + 1);
}

static void test_the_leader_asks_for_a_rebalance(void **state) {
    (void)state;
    stable(2);
    join(0);
    assert_true(r.s[0].waits_join);
    assert_int_equal(state_(), KB_GROUP_PREPARING);
    join(1);
    assert_int_equal(r.s[0].generation, 3);
}

/* ---- Those who do not answer ---- */

static void test_a_session_ends(void **state) {
    (void)state;
    stable(2);
    wait_ms(6000);
    assert_int_equal(beat(0), 0);
    wait_ms(3999);
    assert_int_equal(kb_group_size(r.g), 2);
    wait_ms(1);
    assert_int_equal(kb_group_size(r.g), 1);
    assert_int_equal(beat(0), KE_REBALANCE_IN_PROGRESS);
    assert_int_equal(beat(1), KE_UNKNOWN_MEMBER_ID);
    join(0);
    assert_int_equal(r.s[0].generation, 3);
}

static void test_the_rebalance_timeout(void **state) {
    (void)state;
    stable(2);
    join_how(2, (struct how){.rebalance_ms = 90000});
    join(0);
    for (int i = 0; i < 14; i++) { /* alive, but it does not join */
        wait_ms(5000);
        assert_int_equal(beat(1), KE_REBALANCE_IN_PROGRESS);
    }
    assert_int_equal(state_(), KB_GROUP_PREPARING);
    wait_ms(5000);
    assert_int_equal(beat(1), KE_REBALANCE_IN_PROGRESS);
    wait_ms(5000);
    wait_ms(5000);
    wait_ms(5000);
    assert_int_equal(kb_group_size(r.g), 2); /* the longest of all: 90 s */
    assert_int_equal(state_(), KB_GROUP_COMPLETING);
    assert_int_equal(r.s[0].generation, 3);
    assert_int_equal(beat(1), KE_UNKNOWN_MEMBER_ID);
}

static void test_one_that_never_asks_for_its_assignment(void **state) {
    (void)state;
    stable(2);
    join(2);
    join(0);
    join(1);
    assert_int_equal(state_(), KB_GROUP_COMPLETING);
    sync_(0, "0=a,1=b,2=c");
    sync_(1, NULL);
    stored(KE_NONE);
    assert_int_equal(state_(), KB_GROUP_STABLE);
    for (int i = 0; i < 12; i++) {
        wait_ms(4999);
        beat(0), beat(1), beat(2);
    }
    wait_ms(20);
    assert_int_equal(kb_group_size(r.g), 2);
    assert_int_equal(beat(2), KE_UNKNOWN_MEMBER_ID);
    assert_int_equal(beat(0), KE_REBALANCE_IN_PROGRESS);
}

static void test_a_leader_that_never_assigns(void **state) {
    (void)state;
    stable(2);
    join(2);
    join(0);
    join(1);
    sync_(1, NULL);
    sync_(2, NULL);
    for (int i = 0; i < 12; i++) {
        wait_ms(4999);
        beat(0);
    }
    assert_true(r.s[1].waits_sync); /* it waits for the group: its session does not end */
    wait_ms(20);
    assert_false(r.s[1].waits_sync || r.s[2].waits_sync);
    assert_int_equal(r.s[1].code, KE_REBALANCE_IN_PROGRESS);
    assert_int_equal(kb_group_size(r.g), 2);
    join(1);
    join(2);
    assert_int_equal(r.s[1].members + r.s[2].members, 2); /* one of them leads now */
    assert_int_equal(r.s[1].code, 0);
}

/* BG-05: a new member's connection closes while it joins, and its session ends while the rebalance completes. */
static void test_bg05_a_new_member_goes_while_it_joins(void **state) {
    (void)state;
    stable(1);
    join(1);
    kb_group_forget(&r.s[1].w, r.now);
    r.s[1].waits_join = false;
    wait_ms(5000);
    join(0); /* completes with a member that nobody hears from */
    assert_int_equal(r.s[0].members, 2);
    sync_(0, "0=a");
    stored(KE_NONE);
    wait_ms(4999);
    assert_int_equal(beat(0), 0);
    wait_ms(1);
    assert_int_equal(kb_group_size(r.g), 1);
    join(0);
    assert_int_equal(r.s[0].generation, 3);
    assert_int_equal(r.s[0].members, 1);
    for (int i = 1; i < 4; i++) { /* all at one moment */
        join(i);
        kb_group_forget(&r.s[i].w, r.now);
        r.s[i].waits_join = false;
    }
    wait_ms(10000);
    assert_int_equal(kb_group_size(r.g), 0);
    assert_int_equal(state_(), KB_GROUP_EMPTY);
}

/* Its connection closed while it joined, and it is there again: it waits as long as the others take. */
static void test_a_new_member_that_joins_again(void **state) {
    (void)state;
    stable(1);
    join_how(1, (struct how){.id_required = true});
    assert_int_equal(r.s[1].code, KE_MEMBER_ID_REQUIRED);
    join_how(1, (struct how){.id_required = true});
    kb_group_forget(&r.s[1].w, r.now);
    r.s[1].waits_join = false;
    wait_ms(5000);
    assert_int_equal(beat(0), KE_REBALANCE_IN_PROGRESS);
    join_how(1, (struct how){.id_required = true});
    for (int i = 0; i < 5; i++) {
        wait_ms(9000);
        assert_int_equal(beat(0), KE_REBALANCE_IN_PROGRESS);
        assert_true(r.s[1].waits_join);
    }
    join(0);
    assert_int_equal(r.s[1].code, 0);
    assert_int_equal(r.s[0].members, 2);
}

/* BG-09 */
static void test_bg09_all_go_while_it_rebalances(void **state) {
    (void)state;
    stable(2);
    join(2);
    kb_group_forget(&r.s[2].w, r.now);
    r.s[2].waits_join = false;
    sync_(1, NULL);
    assert_int_equal(r.s[1].code, KE_REBALANCE_IN_PROGRESS);
    wait_ms(10000);
    assert_int_equal(state_(), KB_GROUP_EMPTY);
    sync_(1, NULL);
    assert_int_equal(r.s[1].code, KE_UNKNOWN_MEMBER_ID);
    stored(KE_NONE);
    assert_true(kb_group_is_unused(r.g));
}

/* BG-08: the wall clock is of no account. */
static void test_bg08_the_wall_clock_goes_back(void **state) {
    (void)state;
    stable(2);
    r.now.wall_ms -= 3600000;
    wait_ms(9999);
    assert_int_equal(kb_group_size(r.g), 2);
    wait_ms(1);
    assert_int_equal(kb_group_size(r.g), 0);
    assert_int_equal(state_(), KB_GROUP_EMPTY);
}

/* ---- Ids first (KIP-394) ---- */

static void test_ids_first(void **state) {
    (void)state;
    join_how(0, (struct how){.id_required = true});
    assert_int_equal(r.s[0].code, KE_MEMBER_ID_REQUIRED);
    assert_int_equal(kb_group_size(r.g), 0);
    assert_false(kb_group_is_unused(r.g));
    join_how(0, (struct how){.id_required = true});
    assert_int_equal(r.s[0].code, 0);
    assert_int_equal(r.s[0].generation, 1);
    join_how(1, (struct how){.id_required = true, .session_ms = 6000});
    join(2); /* an old client, which needs none */
    join(0);
    assert_int_equal(state_(), KB_GROUP_PREPARING); /* 1 was promised a place */
    wait_ms(6000);
    assert_int_equal(state_(), KB_GROUP_COMPLETING); /* but only for its session's length */
    assert_int_equal(r.s[0].members, 2);
    join_how(1, (struct how){.id_required = true});
    assert_int_equal(r.s[1].code, KE_UNKNOWN_MEMBER_ID);
    r.s[1].id[0] = 0;
    join_how(1, (struct how){.id_required = true});
    assert_int_equal(leave(1), 0); /* of one that has not joined yet */
    assert_int_equal(leave(1), KE_UNKNOWN_MEMBER_ID);
    snprintf(r.s[3].id, sizeof(r.s[3].id), "invented");
    join(3);
    assert_int_equal(r.s[3].code, KE_UNKNOWN_MEMBER_ID);
}

/* ---- Static members (KIP-345) ---- */

static void static_pair(void) {
    join_how(0, (struct how){.instance = "a"});
    join_how(1, (struct how){.instance = "b"});
    join_how(0, (struct how){.instance = "a"});
    sync_as(0, "a", 2, "0=x,1=y");
    sync_as(1, "b", 2, NULL);
    stored(KE_NONE);
    assert_string_equal(r.s[1].assignment, "y");
}

static void test_static_member_comes_back(void **state) {
    (void)state;
    static_pair();
    char old[80];
    memcpy(old, r.s[1].id, sizeof(old));
    assert_int_equal(strncmp(old, "b-", 2), 0);
    r.s[1].id[0] = 0; /* its process began anew */
    join_how(1, (struct how){.instance = "b"});
    assert_true(r.s[1].waits_join); /* until the new id is stored */
    stored(KE_NONE);
    assert_int_equal(r.s[1].code, 0);
    assert_int_equal(r.s[1].generation, 2); /* no rebalance */
    assert_string_not_equal(r.s[1].id, old);
    assert_int_equal(state_(), KB_GROUP_STABLE);
    sync_as(1, "b", 2, NULL);
    assert_string_equal(r.s[1].assignment, "y");
    assert_int_equal(kb_group_heartbeat(r.g, kw_str_of(old), kw_str_of("b"), 2, r.now), KE_FENCED_INSTANCE_ID);
    assert_int_equal(kb_group_heartbeat(r.g, kw_str_of(old), kw_str_null(), 2, r.now), KE_UNKNOWN_MEMBER_ID);
    assert_int_equal(kb_group_heartbeat(r.g, kw_str_of(r.s[1].id), kw_str_of("b"), 2, r.now), 0);
    assert_int_equal(kb_group_heartbeat(r.g, kw_str_of(r.s[1].id), kw_str_of("z"), 2, r.now), KE_UNKNOWN_MEMBER_ID);
    assert_int_equal(kb_group_may_commit(r.g, kw_str_of(old), kw_str_of("b"), 2, r.now), KE_FENCED_INSTANCE_ID);
}

static void test_static_leader_comes_back(void **state) {
    (void)state;
    static_pair();
    char old[80];
    memcpy(old, r.s[0].id, sizeof(old));
    r.s[0].id[0] = 0;
    join_how(0, (struct how){.instance = "a"}); /* BG-06: an old client, which would assign anew if it thought that it leads */
    stored(KE_NONE);
    assert_string_equal(r.s[0].leader, old);
    assert_string_not_equal(r.s[0].id, old);
    assert_int_equal(r.s[0].members, 0);
    assert_false(r.s[0].skip);
    r.s[0].id[0] = 0;
    join_how(0, (struct how){.instance = "a", .skips = true});
    stored(KE_NONE);
    assert_string_equal(r.s[0].leader, r.s[0].id);
    assert_true(r.s[0].skip);
    assert_int_equal(r.s[0].members, 2);
    assert_int_equal(r.s[0].generation, 2);
}

static void test_static_member_is_not_stored(void **state) {
    (void)state;
    static_pair();
    char old[80];
    memcpy(old, r.s[1].id, sizeof(old));
    r.s[1].id[0] = 0;
    join_how(1, (struct how){.instance = "b"});
    stored(KE_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(r.s[1].code, KE_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(kb_group_heartbeat(r.g, kw_str_of(old), kw_str_of("b"), 2, r.now), 0); /* as it was */
}

static void test_static_members_stay(void **state) {
    (void)state;
    static_pair();
    wait_ms(5000);
    join(2); /* a dynamic one: rebalance; neither of the two joins */
    for (int i = 0; i < 12; i++) {
        wait_ms(4999);
        kb_group_heartbeat(r.g, kw_str_of(r.s[0].id), kw_str_of("a"), 2, r.now);
        kb_group_heartbeat(r.g, kw_str_of(r.s[1].id), kw_str_of("b"), 2, r.now);
    }
    wait_ms(20);
    assert_int_equal(state_(), KB_GROUP_COMPLETING);
    assert_int_equal(r.s[2].code, 0);
    assert_int_equal(r.s[2].members, 3); /* it leads, and assigns to them, too */
    assert_int_equal(kb_group_leave(r.g, kw_str_of(""), kw_str_of("a"), kw_str_of("admin"), r.now), 0);
    assert_int_equal(kb_group_leave(r.g, kw_str_of(""), kw_str_of("a"), kw_str_of("admin"), r.now), KE_UNKNOWN_MEMBER_ID);
}

static void test_two_with_one_static_id(void **state) {
    (void)state;
    join_how(0, (struct how){.instance = "a"});
    join_how(1, (struct how){.instance = "b"}); /* waits for 0 */
    join_how(2, (struct how){.instance = "b"}); /* the same id once more */
    assert_int_equal(r.s[1].code, KE_FENCED_INSTANCE_ID);
    assert_true(r.s[2].waits_join);
    join_how(0, (struct how){.instance = "a"});
    assert_int_equal(r.s[2].code, 0);
    assert_int_equal(r.s[0].members, 2);
    sync_as(2, "b", 2, NULL);
    join_how(3, (struct how){.instance = "b"}); /* and while it waits for its assignment */
    assert_int_equal(r.s[2].code, KE_FENCED_INSTANCE_ID);
    assert_true(r.s[3].waits_join);
}

/* ---- Protocols ---- */

static void test_protocols(void **state) {
    (void)state;
    join_how(0, (struct how){.protocols = "range,sticky"});
    join_how(1, (struct how){.protocols = "sticky,other"});
    join_how(2, (struct how){.protocols = "other"});
    assert_int_equal(r.s[2].code, KE_INCONSISTENT_GROUP_PROTOCOL); /* not all know it */
    join_how(2, (struct how){.protocols = "range,sticky", .type = "connect"});
    assert_int_equal(r.s[2].code, KE_INCONSISTENT_GROUP_PROTOCOL);
    r.s[2].id[0] = 0;
    join_how(2, (struct how){.protocols = "range,sticky"});
    join_how(0, (struct how){.protocols = "range,sticky"});
    assert_string_equal(r.s[0].protocol, "sticky"); /* two would rather have another, which one does not know */
    assert_string_equal(r.s[1].protocol, "sticky");
    struct kb_sync q = {.member_id = kw_str_of(r.s[1].id),
                        .instance_id = kw_str_null(),
                        .protocol_type = kw_str_of("consumer"),
                        .protocol = kw_str_of("range"),
                        .generation = 2};
    r.s[1].waits_sync = true;
    kb_group_sync(r.g, &q, &r.s[1].w, r.now);
    assert_int_equal(r.s[1].code, KE_INCONSISTENT_GROUP_PROTOCOL);
}

static void test_votes(void **state) {
    (void)state;
    join_how(0, (struct how){.protocols = "a,b,c"});
    join_how(1, (struct how){.protocols = "b,a,c"});
    join_how(2, (struct how){.protocols = "b,c,a"});
    join_how(0, (struct how){.protocols = "a,b,c"});
    assert_string_equal(r.s[0].protocol, "b");
}

static void test_no_protocol(void **state) {
    (void)state;
    join_how(0, (struct how){.protocols = ","});
    assert_int_equal(r.s[0].code, KE_INCONSISTENT_GROUP_PROTOCOL);
}

/* ---- Bounds, and a delay ---- */

static void test_group_max_size(void **state) {
    (void)state;
    r.env.members_max = 2;
    stable(2);
    join(2);
    assert_int_equal(r.s[2].code, KE_GROUP_MAX_SIZE_REACHED);
    assert_int_equal(state_(), KB_GROUP_STABLE);
    assert_int_equal(leave(1), 0);
    join(0);
    r.s[2].id[0] = 0;
    join(2);
    join(0);
    assert_int_equal(r.s[2].code, 0);
}

/* A static member that comes back makes a full group no larger. */
static void test_a_full_group_and_a_static_member(void **state) {
    (void)state;
    static_pair();
    r.env.members_max = 2;
    r.s[2].id[0] = 0;
    join_how(2, (struct how){.instance = "b"});
    if (r.s[2].waits_join) stored(KE_NONE);
    assert_int_equal(r.s[2].code, 0);
    assert_int_equal(kb_group_size(r.g), 2);
    join_how(3, (struct how){.instance = "c"});
    assert_int_equal(r.s[3].code, KE_GROUP_MAX_SIZE_REACHED);
}

static void test_the_first_is_delayed(void **state) {
    (void)state;
    r.env.initial_delay_us = 3000000;
    join(0);
    assert_true(r.s[0].waits_join);
    wait_ms(2000);
    join(1);
    wait_ms(1000);
    assert_true(r.s[0].waits_join); /* somebody came: once more */
    wait_ms(2999);
    assert_true(r.s[0].waits_join);
    wait_ms(1);
    assert_false(r.s[0].waits_join);
    assert_int_equal(r.s[0].generation, 1);
    assert_int_equal(r.s[0].members, 2);
}

/* ---- What is stored ---- */

static void test_an_assignment_that_is_not_stored(void **state) {
    (void)state;
    stable(1);
    join(1);
    join(0);
    sync_(0, "0=a,1=b");
    sync_(1, NULL);
    stored(KE_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(r.s[0].code, KE_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(r.s[1].code, KE_COORDINATOR_NOT_AVAILABLE);
    assert_int_equal(state_(), KB_GROUP_PREPARING);
    join(0);
    join(1);
    assert_int_equal(r.s[0].generation, 3);
}

static void test_a_rebalance_overtakes_the_disk(void **state) {
    (void)state;
    stable(1);
    join(1);
    join(0);
    sync_(0, "0=a,1=b");
    assert_int_equal(leave(1), 0);
    assert_int_equal(r.s[0].code, KE_REBALANCE_IN_PROGRESS);
    stored(KE_NONE); /* of a generation that is over */
    assert_int_equal(state_(), KB_GROUP_PREPARING);
    join(0);
    assert_int_equal(r.s[0].generation, 3);
    assert_int_equal(state_(), KB_GROUP_COMPLETING);
}

/* BG-03: another coordinator takes the group over; nobody notices. */
static void test_bg03_restored(void **state) {
    (void)state;
    stable(3);
    struct kw_arena a;
    kw_arena_init(&a, 4096);
    struct kw_group_metadata_value v;
    assert_int_equal(kb_group_record(r.g, &a, &v), 0);
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kw_encode(&kw_group_metadata_value_desc, 3, &v, &out), 0);
    kb_group_free(r.g, KE_NOT_COORDINATOR);
    r.g = kb_group_new(&r.env, kw_str_of("g"), NULL);
    struct kw_in in;
    kw_in_init(&in, out.p, out.len);
    assert_int_equal(kw_decode(&kw_group_metadata_value_desc, 3, &in, &a, &v), 0);
    assert_int_equal(kb_group_restore(r.g, &v), 0);
    r.store = r.answered = 0;
    wait_ms(600000); /* it takes its time to load, and until enough replicas are there */
    kb_group_begin(r.g, r.now);
    assert_int_equal(state_(), KB_GROUP_STABLE);
    wait_ms(9000);
    for (int i = 0; i < 3; i++) assert_int_equal(beat(i), 0);
    sync_(2, NULL);
    assert_string_equal(r.s[2].assignment, "p2");
    assert_string_equal(kb_group_protocol(r.g).p, "range");
    wait_ms(9999);
    assert_int_equal(beat(0), 0);
    wait_ms(2);
    assert_int_equal(kb_group_size(r.g), 1);
    kw_out_deinit(&out);
    kw_arena_deinit(&a);
}

static void test_restoring_nonsense(void **state) {
    (void)state;
    struct kw_group_metadata_value_member_metadata m[2] = {{.member_id = kw_str_of("x"), .group_instance_id = kw_str_null()},
                                                           {.member_id = kw_str_of("x"), .group_instance_id = kw_str_null()}};
    struct kw_group_metadata_value v = {.protocol_type = kw_str_of("consumer"),
                                        .generation = 3,
                                        .protocol = kw_str_of("range"),
                                        .leader = kw_str_of("gone"),
                                        .members = {m, 2}};
    assert_int_equal(kb_group_restore(r.g, &v), KW_EINVAL); /* two of one id */
    kb_group_free(r.g, KE_NONE);
    r.g = kb_group_new(&r.env, kw_str_of("g"), NULL);
    v.members.n = 1;
    assert_int_equal(kb_group_restore(r.g, &v), 0); /* a leader that is none: somebody else leads */
    kb_group_free(r.g, KE_NONE);
    r.g = kb_group_new(&r.env, kw_str_of("g"), NULL);
    v.generation = -1;
    assert_int_equal(kb_group_restore(r.g, &v), KW_EINVAL);
}

static void test_commits(void **state) {
    (void)state;
    struct kw_str none = kw_str_null(), empty = kw_str_of("");
    assert_int_equal(kb_group_may_commit(r.g, empty, none, -1, r.now), 0); /* no group in use */
    stable(2);
    struct kw_str id = kw_str_of(r.s[0].id);
    assert_int_equal(kb_group_may_commit(r.g, empty, none, -1, r.now), KE_UNKNOWN_MEMBER_ID);
    assert_int_equal(kb_group_may_commit(r.g, id, none, 2, r.now), 0);
    assert_int_equal(kb_group_may_commit(r.g, id, none, 1, r.now), KE_ILLEGAL_GENERATION);
    join(2);
    assert_int_equal(kb_group_may_commit(r.g, id, none, 2, r.now), 0); /* what it has done before it gives its partitions away */
    join(0);
    join(1);
    assert_int_equal(kb_group_may_commit(r.g, kw_str_of(r.s[0].id), none, 3, r.now), KE_REBALANCE_IN_PROGRESS);
    wait_ms(9999);
    assert_int_equal(kb_group_size(r.g), 3);
}

static void test_subscriptions(void **state) {
    (void)state;
    char v0[] = "\0\0\0\0\0\2\0\3one\0\3two\xff\xff\xff\xff";
    struct kw_join_group_request_protocol p = {.name = kw_str_of("range"), .metadata = {(const uint8_t *)v0, sizeof(v0) - 1}};
    struct kb_join j = {.member_id = kw_str_of(""),
                        .instance_id = kw_str_null(),
                        .protocol_type = kw_str_of("consumer"),
                        .client_id = kw_str_of("c"),
                        .client_host = kw_str_of("/h"),
                        .session_timeout_ms = 6000,
                        .rebalance_timeout_ms = 6000,
                        .protocols = &p,
                        .protocol_count = 1};
    struct seat *s = &r.s[0];
    s->w = (struct kb_group_wait){.joined = joined, .synced = synced, .ctx = s};
    s->waits_join = true;
    kb_group_join(r.g, &j, &s->w, r.now);
    assert_true(kb_group_subscribes(r.g, kw_str_of("one")));
    assert_true(kb_group_subscribes(r.g, kw_str_of("two")));
    assert_false(kb_group_subscribes(r.g, kw_str_of("three")));
    join_how(1, (struct how){.data = "x"}); /* malformed: nobody knows */
    assert_true(kb_group_subscribes(r.g, kw_str_of("three")));
}

/* ---- Out of memory ---- */

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    for (int64_t at = 0; at < 200; at++) {
        teardown(NULL);
        setup(NULL);
        kw_alloc_fail_after(at);
        join(0);
        kw_alloc_fail_after(-1);
        if (r.s[0].waits_join) wait_ms(2000); /* for the name of the protocol: the group tries again */
        assert_false(r.s[0].waits_join);
        if (r.s[0].code == 0 && at > 20) return;
        if (r.s[0].code != 0) assert_int_equal(r.s[0].code, KE_COORDINATOR_NOT_AVAILABLE);
    }
    fail();
}

int main(void) {
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_one_member),
        T(test_a_second_member_rebalances),
        T(test_bg10_joins_that_change_nothing),
        T(test_the_leader_asks_for_a_rebalance),
        T(test_a_session_ends),
        T(test_the_rebalance_timeout),
        T(test_one_that_never_asks_for_its_assignment),
        T(test_a_leader_that_never_assigns),
        T(test_bg05_a_new_member_goes_while_it_joins),
        T(test_a_new_member_that_joins_again),
        T(test_bg09_all_go_while_it_rebalances),
        T(test_bg08_the_wall_clock_goes_back),
        T(test_ids_first),
        T(test_static_member_comes_back),
        T(test_static_leader_comes_back),
        T(test_static_member_is_not_stored),
        T(test_static_members_stay),
        T(test_two_with_one_static_id),
        T(test_protocols),
        T(test_votes),
        T(test_no_protocol),
        T(test_group_max_size),
        T(test_a_full_group_and_a_static_member),
        T(test_the_first_is_delayed),
        T(test_an_assignment_that_is_not_stored),
        T(test_a_rebalance_overtakes_the_disk),
        T(test_bg03_restored),
        T(test_restoring_nonsense),
        T(test_commits),
        T(test_subscriptions),
        T(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
