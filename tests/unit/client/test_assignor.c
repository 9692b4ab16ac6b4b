/* test_assignor.c - who gets which partitions: the shares of range and roundrobin as Apache Kafka's assignors give them, what sticky ones
 * promise on random groups (each partition once, to one who wants it; even; little moves; nothing to two at a time), the bytes of
 * subscriptions (CC-16).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "consume/assignor.h"

#define MEMBERS 12
#define TOPICS 6

static struct {
    struct kw_arena arena;
    struct kc_member_in m[MEMBERS];
    struct kw_str wants[MEMBERS][TOPICS];
    struct kc_share shares[MEMBERS];
    size_t count;
    int32_t partitions[26]; /* of topics "a" to "z" */
} r;

static int setup(void **state) {
    (void)state;
    memset(&r, 0, sizeof(r));
    kw_arena_init(&r.arena, 0);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    kw_arena_deinit(&r.arena);
    return 0;
}

static int32_t partitions(void *ctx, struct kw_str topic) {
    (void)ctx;
    return topic.len == 1 && topic.p[0] >= 'a' && topic.p[0] <= 'z' ? r.partitions[topic.p[0] - 'a'] : 0;
}

/* id, and a letter a topic that it wants */
static void member(const char *id, const char *instance, const char *wants) {
    size_t at = r.count++;
    int32_t n = 0;
    for (; wants[n]; n++) r.wants[at][n] = (struct kw_str){&wants[n], 1};
    r.m[at] = (struct kc_member_in){.id = kw_str_of(id),
                                    .instance_id = kw_str_of(instance),
                                    .said = {.topics = r.wants[at], .topic_count = n, .generation = -1, .rack = kw_str_null()}};
}

static void assign(enum kc_assignor how) {
    assert_int_equal(kc_assign(how, r.m, r.count, partitions, NULL, &r.arena, r.shares), KW_OK);
}

/* "a0,a1,b0" */
static void expect(size_t at, const char *want) {
    char got[400] = "";
    for (int32_t i = 0; i < r.shares[at].topic_count; i++)
        for (int32_t k = 0; k < r.shares[at].topics[i].partitions.n; k++)
            snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%c%d", got[0] ? "," : "", r.shares[at].topics[i].topic.p[0],
                     (int)r.shares[at].topics[i].partitions.v[k]);
    if (strcmp(got, want) != 0) fail_msg("member %zu has %s, not %s", at, got, want);
}

static void test_range(void **state) {
    (void)state;
    r.partitions[0] = 3, r.partitions[1] = 3;
    member("c0", NULL, "ab");
    member("c1", NULL, "ab");
    assign(KC_ASSIGN_RANGE);
    expect(0, "a0,a1,b0,b1");
    expect(1, "a2,b2");
    r.count = 0;
    r.partitions[1] = 2, r.partitions[2] = 0;
    member("c2", NULL, "ac");
    member("c1", NULL, "ab");
    member("c3", NULL, "b");
    assign(KC_ASSIGN_RANGE);
    expect(1, "a0,a1,b0"); /* by id, not as they come */
    expect(0, "a2");
    expect(2, "b1");
    r.count = 0;
    member("c1", NULL, "a");
    member("c2", "z-static", "a");
    assign(KC_ASSIGN_RANGE);
    expect(1, "a0,a1"); /* static ones first */
    expect(0, "a2");
    r.count = 0;
    for (int i = 0; i < 5; i++) {
        static const char *const ids[] = {"1", "2", "3", "4", "5"};
        member(ids[i], NULL, "a");
    }
    assign(KC_ASSIGN_RANGE); /* more members than partitions */
    expect(2, "a2");
    expect(3, "");
    expect(4, "");
}

static void test_roundrobin(void **state) {
    (void)state;
    r.partitions[0] = 3, r.partitions[1] = 3;
    member("c0", NULL, "ab");
    member("c1", NULL, "ab");
    assign(KC_ASSIGN_ROUNDROBIN);
    expect(0, "a0,a2,b1");
    expect(1, "a1,b0,b2");
    r.count = 0;
    r.partitions[0] = 1, r.partitions[1] = 2, r.partitions[2] = 3; /* CC-16: members of different subscriptions */
    member("c0", NULL, "a");
    member("c1", NULL, "ab");
    member("c2", NULL, "abc");
    assign(KC_ASSIGN_ROUNDROBIN);
    expect(0, "a0");
    expect(1, "b0");
    expect(2, "b1,c0,c1,c2");
}

/* What everybody says next time is what it was given. */
static void take_shares(int32_t generation) {
    for (size_t i = 0; i < r.count; i++) {
        r.m[i].said.owned = r.shares[i];
        r.m[i].said.generation = generation;
    }
}

static void test_sticky(void **state) {
    (void)state;
    r.partitions[0] = 6;
    member("c0", NULL, "a");
    member("c1", NULL, "a");
    assign(KC_ASSIGN_STICKY);
    expect(0, "a0,a2,a4");
    expect(1, "a1,a3,a5");
    take_shares(1);
    member("c2", NULL, "a");
    assign(KC_ASSIGN_STICKY); /* each gives one away */
    expect(0, "a0,a2");
    expect(1, "a1,a3");
    expect(2, "a4,a5");
    take_shares(2);
    r.m[0] = r.m[2]; /* c0 goes */
    r.count = 2;
    assign(KC_ASSIGN_STICKY);
    expect(0, "a2,a4,a5");
    expect(1, "a0,a1,a3");
}

static void test_of_two_claims_the_later_counts(void **state) {
    (void)state;
    r.partitions[0] = 2;
    member("c0", NULL, "a");
    member("c1", NULL, "a");
    int32_t both[] = {0, 1}, one[] = {1};
    struct kw_consumer_protocol_assignment_topic_partition old = {.topic = {"a", 1}, .partitions = {both, 2}},
                                                           new_ = {.topic = {"a", 1}, .partitions = {one, 1}};
    r.m[0].said.owned = (struct kc_share){&old, 1};
    r.m[0].said.generation = 3; /* it slept through a rebalance */
    r.m[1].said.owned = (struct kc_share){&new_, 1};
    r.m[1].said.generation = 4;
    assign(KC_ASSIGN_COOPERATIVE_STICKY);
    expect(0, "a0");
    expect(1, "a1");
    r.m[0].said.generation = 4; /* of one generation: whose it is nobody knows */
    assign(KC_ASSIGN_COOPERATIVE_STICKY);
    expect(0, "a0");
    expect(1, "a1");
    r.m[1].said.owned = (struct kc_share){0};
    r.m[0].said.generation = 2;
    r.partitions[0] = 2;
    assign(KC_ASSIGN_COOPERATIVE_STICKY); /* what moves is first given up */
    expect(0, "a0");
    expect(1, "");
    take_shares(5);
    assign(KC_ASSIGN_COOPERATIVE_STICKY);
    expect(1, "a1");
}

/* ---- Random groups ---- */

static int owner_of(char topic, int32_t p) {
    int owner = -1;
    for (size_t i = 0; i < r.count; i++)
        for (int32_t t = 0; t < r.shares[i].topic_count; t++)
            for (int32_t k = 0; r.shares[i].topics[t].topic.p[0] == topic && k < r.shares[i].topics[t].partitions.n; k++)
                if (r.shares[i].topics[t].partitions.v[k] == p) {
                    assert_int_equal(owner, -1); /* one owner */
                    owner = (int)i;
                }
    return owner;
}

static bool wants(size_t i, char topic) {
    for (int32_t k = 0; k < r.m[i].said.topic_count; k++)
        if (r.m[i].said.topics[k].p[0] == topic) return true;
    return false;
}

static int32_t size_of(size_t i) {
    int32_t n = 0;
    for (int32_t t = 0; t < r.shares[i].topic_count; t++) n += r.shares[i].topics[t].partitions.n;
    return n;
}

/* whole: nothing is held back. */
static void check(bool even, bool whole) {
    for (char topic = 'a'; topic < 'a' + TOPICS; topic++)
        for (int32_t p = 0; p < r.partitions[topic - 'a']; p++) {
            int o = owner_of(topic, p);
            bool any = false;
            for (size_t i = 0; i < r.count; i++) any = any || wants(i, topic);
            if (whole) assert_int_equal(o >= 0, any);
            if (o < 0) continue;
            assert_true(wants((size_t)o, topic));
            for (size_t i = 0; even && whole && i < r.count; i++)
                if (wants(i, topic) && size_of((size_t)o) > size_of(i) + 1)
                    fail_msg("%c%d: member %d has %d, member %zu has %d", topic, (int)p, o, (int)size_of((size_t)o), i, (int)size_of(i));
        }
}

static void random_group(struct kw_rng *rng, bool alike) {
    static char ids[MEMBERS][24], lists[MEMBERS][TOPICS + 1];
    r.count = 0;
    for (int t = 0; t < TOPICS; t++) r.partitions[t] = (int32_t)kw_rng_below(rng, 12);
    size_t n = 1 + (size_t)kw_rng_below(rng, MEMBERS);
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        for (int t = 0; t < TOPICS; t++)
            if (alike ? t % 2 == 0 : kw_rng_below(rng, 2) == 0) lists[i][k++] = (char)('a' + t);
        lists[i][k] = 0;
        snprintf(ids[i], sizeof(ids[i]), "m%02zu", i);
        member(ids[i], kw_rng_below(rng, 4) ? NULL : ids[i], lists[i]);
    }
}

static void test_random_groups(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 3);
    for (int round = 0; round < 3000; round++) {
        random_group(&rng, round % 3 == 0);
        for (int how = 0; how < KC_ASSIGNOR_COUNT; how++) {
            assign((enum kc_assignor)how);
            check(how >= KC_ASSIGN_STICKY, true);
        }
        take_shares(1);
        struct kc_share before[MEMBERS];
        assign(KC_ASSIGN_STICKY);
        memcpy(before, r.shares, sizeof(before));
        take_shares(2);
        assign(KC_ASSIGN_STICKY); /* nothing changed: nothing moves */
        for (size_t i = 0; i < r.count; i++)
            for (int32_t t = 0; t < before[i].topic_count; t++)
                for (int32_t k = 0; k < before[i].topics[t].partitions.n; k++)
                    assert_int_equal(owner_of(before[i].topics[t].topic.p[0], before[i].topics[t].partitions.v[k]), i);
        r.count -= r.count > 1 ? (size_t)kw_rng_below(&rng, 2) : 0; /* now a member goes, and a topic grows */
        r.partitions[0] += round % 2 ? 3 : 0;
        assign(KC_ASSIGN_STICKY);
        check(true, true);
        assign(KC_ASSIGN_COOPERATIVE_STICKY);
        check(true, false);
        for (int k = 3; k < 5; k++) { /* settled after one more rebalance */
            take_shares(k);
            assign(KC_ASSIGN_COOPERATIVE_STICKY);
        }
        check(true, true);
        kw_arena_reset(&r.arena);
    }
}

/* One member comes to a group of equal subscriptions: no more moves than it needs. */
static void test_little_moves(void **state) {
    (void)state;
    r.partitions[0] = 100;
    static const char *const ids[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    for (int i = 0; i < 9; i++) member(ids[i], NULL, "a");
    assign(KC_ASSIGN_STICKY);
    struct kc_share before[MEMBERS];
    memcpy(before, r.shares, sizeof(before));
    take_shares(1);
    member(ids[9], NULL, "a");
    assign(KC_ASSIGN_STICKY);
    check(true, true);
    int32_t moved = 0;
    for (size_t i = 0; i < 9; i++)
        for (int32_t k = 0; k < before[i].topics[0].partitions.n; k++)
            moved += owner_of('a', before[i].topics[0].partitions.v[k]) != (int)i;
    assert_int_equal(moved, 10);
}

/* ---- Bytes ---- */

static void round_trip(enum kc_assignor how) {
    struct kw_str topics[] = {kw_str_of("one"), kw_str_of("two")};
    int32_t p[] = {1, 5};
    struct kw_consumer_protocol_assignment_topic_partition owned = {.topic = topics[1], .partitions = {p, 2}};
    struct kc_subscription s = {.topics = topics, .topic_count = 2, .owned = {&owned, 1}, .generation = 7, .rack = kw_str_of("rack-1")},
                           got;
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kc_subscription_write(how, &s, &out), KW_OK);
    assert_int_equal(kc_subscription_read(how, (struct kw_bytes){out.p, (int32_t)out.len}, &r.arena, &got), KW_OK);
    assert_int_equal(got.topic_count, 2);
    assert_true(kw_str_eq(got.topics[0], topics[0]));
    assert_int_equal(got.owned.topic_count, 1);
    assert_int_equal(got.owned.topics[0].partitions.v[1], 5);
    assert_int_equal(got.generation, 7);
    assert_true(kw_str_eq(got.rack, kw_str_of("rack-1")));
    for (size_t n = 0; n < out.len; n++) /* cut off anywhere: refused, or a shorter truth, never beyond its end */
        (void)!kc_subscription_read(how, (struct kw_bytes){out.p, (int32_t)n}, &r.arena, &got);
    kw_out_deinit(&out);
}

static void test_bytes(void **state) {
    (void)state;
    for (int how = 0; how < KC_ASSIGNOR_COUNT; how++) {
        enum kc_assignor back;
        round_trip((enum kc_assignor)how);
        assert_true(kc_assignor_by_name(kw_str_of(kc_assignor_name((enum kc_assignor)how)), &back));
        assert_int_equal(back, how);
    }
    struct kc_subscription s;
    struct kc_share share;
    static const uint8_t v9[] = {0, 9, 0, 0, 0, 1, 0, 1, 't', 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 3, 255, 255, 'n', 'e', 'w'};
    assert_int_equal(kc_subscription_read(KC_ASSIGN_RANGE, (struct kw_bytes){v9, sizeof(v9)}, &r.arena, &s), KW_OK); /* a newer version */
    assert_int_equal(s.generation, 3);
    assert_int_equal(kc_subscription_read(KC_ASSIGN_RANGE, (struct kw_bytes){NULL, 0}, &r.arena, &s), KW_EDECODE);
    static const uint8_t huge[] = {0, 1, 127, 255, 255, 255};
    assert_int_equal(kc_subscription_read(KC_ASSIGN_RANGE, (struct kw_bytes){huge, sizeof(huge)}, &r.arena, &s), KW_EDECODE);
    assert_int_equal(kc_share_read((struct kw_bytes){huge, sizeof(huge)}, &r.arena, &share), KW_EDECODE);
    assert_int_equal(kc_share_read((struct kw_bytes){NULL, 0}, &r.arena, &share), KW_OK);
    assert_int_equal(share.topic_count, 0);
}

int main(void) {
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_range),         T(test_roundrobin),   T(test_sticky), T(test_of_two_claims_the_later_counts),
        T(test_random_groups), T(test_little_moves), T(test_bytes),
    };
    return cmocka_run_group_tests_name("assignor", tests, NULL, NULL);
}
