/* test_partitioner.c - hashes against vectors of librdkafka 2.0.2 (rd_kafka_msg_partitioner_*) and of the Java client (CP-09); choices without a key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "produce/partitioner.h"

static const struct {
    const char *p;
    size_t size;
} keys[] = {{"", 0}, {"a", 1}, {"wu", 2}, {"foobar", 6}, {"TT0124", 6}, {"21", 2}, {"100:48069", 9}, {"kafka", 5},
            {"giberish123456789", 17}, {"1234", 4}, {"12345", 5}, {"123456", 6}, {"1234567", 7}, {"\xff\x80\x00z", 4},
            {"the quick brown fox jumps over the lazy dog", 43}};
static const uint32_t counts[] = {1, 2, 3, 10, 12, 17, 100, 1000};
static const struct {
    int kind, key; /* -1: null */
    uint32_t partition[8];
} vectors[] = {
    {KC_PARTITIONER_MURMUR2, 0, {0, 1, 0, 1, 9, 11, 81, 681}},
    {KC_PARTITIONER_MURMUR2, 1, {0, 0, 1, 4, 4, 0, 24, 524}},
    {KC_PARTITIONER_MURMUR2, 2, {0, 0, 1, 0, 4, 9, 60, 560}},
    {KC_PARTITIONER_MURMUR2, 3, {0, 0, 0, 6, 6, 9, 66, 166}},
    {KC_PARTITIONER_MURMUR2, 4, {0, 0, 1, 0, 10, 4, 70, 870}},
    {KC_PARTITIONER_MURMUR2, 5, {0, 0, 0, 0, 0, 13, 40, 340}},
    {KC_PARTITIONER_MURMUR2, 6, {0, 1, 0, 7, 9, 13, 57, 857}},
    {KC_PARTITIONER_MURMUR2, 7, {0, 0, 1, 0, 4, 14, 80, 580}},
    {KC_PARTITIONER_MURMUR2, 8, {0, 0, 2, 0, 8, 2, 20, 820}},
    {KC_PARTITIONER_MURMUR2, 9, {0, 0, 0, 0, 0, 1, 40, 940}},
    {KC_PARTITIONER_MURMUR2, 10, {0, 0, 2, 4, 8, 8, 44, 44}},
    {KC_PARTITIONER_MURMUR2, 11, {0, 0, 0, 6, 0, 14, 56, 356}},
    {KC_PARTITIONER_MURMUR2, 12, {0, 0, 0, 2, 6, 4, 22, 222}},
    {KC_PARTITIONER_MURMUR2, 13, {0, 1, 2, 3, 11, 7, 3, 103}},
    {KC_PARTITIONER_MURMUR2, 14, {0, 0, 1, 8, 4, 0, 68, 968}},
    {KC_PARTITIONER_MURMUR2, -1, {0, 1, 0, 1, 9, 11, 81, 681}},
    {KC_PARTITIONER_CONSISTENT, 0, {0, 0, 0, 0, 0, 0, 0, 0}},
    {KC_PARTITIONER_CONSISTENT, 1, {0, 1, 0, 7, 3, 9, 7, 907}},
    {KC_PARTITIONER_CONSISTENT, 2, {0, 1, 2, 1, 5, 4, 61, 261}},
    {KC_PARTITIONER_CONSISTENT, 3, {0, 1, 2, 9, 5, 6, 69, 69}},
    {KC_PARTITIONER_CONSISTENT, 4, {0, 1, 0, 9, 3, 15, 59, 459}},
    {KC_PARTITIONER_CONSISTENT, 5, {0, 0, 1, 2, 4, 10, 32, 532}},
    {KC_PARTITIONER_CONSISTENT, 6, {0, 0, 0, 4, 6, 14, 94, 894}},
    {KC_PARTITIONER_CONSISTENT, 7, {0, 1, 2, 9, 11, 11, 99, 399}},
    {KC_PARTITIONER_CONSISTENT, 8, {0, 1, 2, 1, 11, 12, 71, 71}},
    {KC_PARTITIONER_CONSISTENT, 9, {0, 1, 1, 9, 7, 4, 59, 659}},
    {KC_PARTITIONER_CONSISTENT, 10, {0, 0, 0, 4, 0, 7, 44, 44}},
    {KC_PARTITIONER_CONSISTENT, 11, {0, 1, 2, 1, 5, 6, 61, 161}},
    {KC_PARTITIONER_CONSISTENT, 12, {0, 1, 2, 7, 11, 7, 27, 927}},
    {KC_PARTITIONER_CONSISTENT, 13, {0, 1, 0, 7, 3, 14, 7, 607}},
    {KC_PARTITIONER_CONSISTENT, 14, {0, 0, 1, 4, 4, 13, 84, 684}},
    {KC_PARTITIONER_CONSISTENT, -1, {0, 0, 0, 0, 0, 0, 0, 0}},
    {KC_PARTITIONER_FNV1A, 0, {0, 1, 0, 5, 3, 0, 35, 35}},
    {KC_PARTITIONER_FNV1A, 1, {0, 0, 0, 6, 0, 16, 76, 76}},
    {KC_PARTITIONER_FNV1A, 2, {0, 1, 1, 3, 1, 10, 93, 993}},
    {KC_PARTITIONER_FNV1A, 3, {0, 0, 0, 6, 0, 15, 76, 576}},
    {KC_PARTITIONER_FNV1A, 4, {0, 0, 2, 2, 8, 2, 12, 212}},
    {KC_PARTITIONER_FNV1A, 5, {0, 0, 0, 2, 0, 14, 52, 452}},
    {KC_PARTITIONER_FNV1A, 6, {0, 1, 0, 3, 3, 8, 83, 183}},
    {KC_PARTITIONER_FNV1A, 7, {0, 1, 2, 5, 5, 9, 45, 545}},
    {KC_PARTITIONER_FNV1A, 8, {0, 1, 2, 3, 5, 2, 73, 573}},
    {KC_PARTITIONER_FNV1A, 9, {0, 1, 0, 5, 3, 13, 35, 635}},
    {KC_PARTITIONER_FNV1A, 10, {0, 0, 0, 4, 0, 6, 24, 824}},
    {KC_PARTITIONER_FNV1A, 11, {0, 0, 1, 2, 10, 10, 22, 622}},
    {KC_PARTITIONER_FNV1A, 12, {0, 1, 1, 3, 7, 8, 63, 663}},
    {KC_PARTITIONER_FNV1A, 13, {0, 0, 0, 4, 0, 12, 24, 324}},
    {KC_PARTITIONER_FNV1A, 14, {0, 0, 2, 4, 8, 0, 24, 24}},
    {KC_PARTITIONER_FNV1A, -1, {0, 1, 0, 5, 3, 0, 35, 35}},
};

static void test_vectors_of_librdkafka(void **state) {
    (void)state;
    for (size_t i = 0; i < KW_COUNTOF(vectors); i++) {
        int at = vectors[i].key;
        uint32_t hash = 0;
        assert_true(kc_partitioner_hash(vectors[i].kind, at < 0 ? NULL : keys[at].p, at < 0 ? 0 : keys[at].size, &hash));
        for (size_t c = 0; c < KW_COUNTOF(counts); c++) assert_int_equal(hash % counts[c], vectors[i].partition[c]);
    }
}

static void test_CP_09_java_vectors(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t count, partition;
    } v[] = {{"wu", 10, 0}, {"100:48069", 12, 9}, {"TT0124", 15, 10}, {"foobar", 1000, 166}, {"21", 1000, 340}, {"", 10, 1}};
    for (size_t i = 0; i < KW_COUNTOF(v); i++) {
        uint32_t hash = 0;
        assert_true(kc_partitioner_hash(KC_PARTITIONER_MURMUR2_RANDOM, v[i].key, strlen(v[i].key), &hash));
        assert_int_equal(hash % v[i].count, v[i].partition);
    }
    uint32_t untouched = 7;
    assert_false(kc_partitioner_hash(KC_PARTITIONER_MURMUR2_RANDOM, NULL, 0, &untouched)); /* a null key is not hashed */
    assert_int_equal(untouched, 7);
}

static void test_which_keys_decide(void **state) {
    (void)state;
    uint32_t hash;
    assert_false(kc_partitioner_hash(KC_PARTITIONER_CONSISTENT_RANDOM, NULL, 0, &hash));
    assert_false(kc_partitioner_hash(KC_PARTITIONER_CONSISTENT_RANDOM, "", 0, &hash)); /* librdkafka: empty as null */
    assert_true(kc_partitioner_hash(KC_PARTITIONER_CONSISTENT_RANDOM, "k", 1, &hash));
    assert_false(kc_partitioner_hash(KC_PARTITIONER_FNV1A_RANDOM, NULL, 0, &hash));
    assert_true(kc_partitioner_hash(KC_PARTITIONER_FNV1A_RANDOM, "", 0, &hash));
    assert_false(kc_partitioner_hash(KC_PARTITIONER_RANDOM, "k", 1, &hash));
    assert_false(kc_partitioner_hash(KC_PARTITIONER_STICKY, "k", 1, &hash));
    assert_false(kc_partitioner_hash(KC_PARTITIONER_ROUND_ROBIN, "k", 1, &hash));
    uint8_t id[16] = {1, 2, 3};
    assert_int_equal(kc_partitioner_hash_id(id), kc_murmur2(id, 16) & 0x7fffffff);
}

static void test_names(void **state) {
    (void)state;
    for (int i = 0; i < KC_PARTITIONER_COUNT; i++) assert_int_equal(kc_partitioner_by_name(kc_partitioner_name(i)), i);
    assert_int_equal(kc_partitioner_by_name("org.apache.kafka.clients.producer.RoundRobinPartitioner"), KC_PARTITIONER_ROUND_ROBIN);
    assert_int_equal(kc_partitioner_by_name("org.apache.kafka.clients.producer.internals.DefaultPartitioner"),
                     KC_PARTITIONER_MURMUR2_RANDOM);
    assert_int_equal(kc_partitioner_by_name("Default"), KC_PARTITIONER_MURMUR2_RANDOM);
    assert_int_equal(kc_partitioner_by_name("murmur"), -1);
    assert_null(kc_partitioner_name(-1));
    assert_null(kc_partitioner_name(KC_PARTITIONER_COUNT));
}

static void test_random_is_even_and_keeps_to_the_available(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 5);
    int32_t available[] = {1, 4, 6};
    struct kc_choice c = {.count = 8, .available = available, .available_count = 3};
    int seen[8] = {0};
    for (int i = 0; i < 9000; i++) seen[kc_choose_random(&c, &rng)]++;
    for (int i = 0; i < 8; i++) {
        bool is_available = i == 1 || i == 4 || i == 6;
        assert_true(is_available ? seen[i] > 2800 && seen[i] < 3200 : seen[i] == 0);
    }
    c.available_count = 0; /* no leader anywhere: all are as good */
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < 8000; i++) seen[kc_choose_random(&c, &rng)]++;
    for (int i = 0; i < 8; i++) assert_in_range(seen[i], 850, 1150);
}

static void test_adaptive_avoids_long_queues(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 6);
    uint32_t queued[] = {0, 3, 1}; /* shares 4, 1, 3 of 8 (KIP-794's own example) */
    struct kc_choice c = {.count = 3, .queued = queued};
    int seen[3] = {0};
    for (int i = 0; i < 8000; i++) seen[kc_choose_random(&c, &rng)]++;
    assert_in_range(seen[0], 3800, 4200);
    assert_in_range(seen[1], 850, 1150);
    assert_in_range(seen[2], 2800, 3200);
}

static void test_round_robin(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 7);
    struct kc_sticky s;
    kc_sticky_init(&s);
    struct kc_choice c = {.count = 5};
    int32_t first = kc_choose_next(&s, &c, &rng);
    for (int32_t i = 1; i < 20; i++) assert_int_equal(kc_choose_next(&s, &c, &rng), (first + i) % 5);
    c.count = 2; /* fewer than before: still in range */
    for (int i = 0; i < 4; i++) assert_in_range(kc_choose_next(&s, &c, &rng), 0, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_librdkafka),
        cmocka_unit_test(test_CP_09_java_vectors),
        cmocka_unit_test(test_which_keys_decide),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_random_is_even_and_keeps_to_the_available),
        cmocka_unit_test(test_adaptive_avoids_long_queues),
        cmocka_unit_test(test_round_robin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
