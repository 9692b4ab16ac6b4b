/* test_accum.c - requirement C2 at each boundary, and what becomes of records in the accumulator: batch limits, full queues, fair waiting, memory budget,
 * timestamps, ids, partitions. Virtual net; nothing is sent unless the test lets time pass.
 */
#include "produce_peer.h"

static struct kc_batch *open_of(struct world *w, int32_t partition) {
    struct kc_ptopic *t = w->p->accum.topics[w->topic];
    return partition < t->part_cap && t->parts[partition] ? t->parts[partition]->open : NULL;
}
static size_t sealed_count(struct world *w) {
    size_t n = 0;
    for (struct kw_list *l = w->p->accum.sealed.next; l != &w->p->accum.sealed; l = l->next) n++;
    return n;
}
/* Sends without ever giving the sender a turn. */
static kc_err put(struct world *w, int32_t partition, const void *value, int32_t size, bool *wake) {
    struct kw_header_view headers[2];
    struct kc_rec r = {.topic = w->topic, .partition = partition, .key = {NULL, -1}, .value = {value, size}, .headers = headers};
    bool ignored = false;
    kc_err err = kc_accum_prepare(&w->p->accum, &r);
    return err ? err : kc_accum_put(&w->p->accum, &r, &w->net->now, false, wake ? wake : &ignored);
}

static void test_c2_batch_num_messages(void **state) {
    (void)state;
    static const char *const pairs[] = {"batch.num.messages", "3", NULL};
    struct world *w = world_new(pairs, 1);
    for (int i = 0; i < 2; i++) assert_int_equal(put(w, 0, "abc", 3, NULL), KC_OK);
    assert_int_equal(sealed_count(w), 0);
    assert_int_equal(put(w, 0, "abc", 3, NULL), KC_OK); /* full: it can go, lingering or not */
    assert_int_equal(sealed_count(w), 1);
    assert_null(open_of(w, 0));
    assert_int_equal(put(w, 0, "abc", 3, NULL), KC_OK);
    assert_int_equal(open_of(w, 0)->count, 1);
    world_free(w);
}

static void test_c2_batch_size(void **state) {
    (void)state;
    static const char *const pairs[] = {"batch.size", "1000", NULL};
    struct world *w = world_new(pairs, 1);
    static const uint8_t value[2000];
    /* 61 of the batch, 9 a record around its value */
    assert_int_equal(put(w, 0, value, 300, NULL), KC_OK);
    assert_int_equal(open_of(w, 0)->len, 61 + 309);
    assert_int_equal(put(w, 0, value, 300, NULL), KC_OK);
    assert_int_equal(sealed_count(w), 0);
    assert_int_equal(put(w, 0, value, 300, NULL), KC_OK); /* 988: another like it would not fit */
    assert_int_equal(sealed_count(w), 1);
    assert_int_equal(put(w, 0, value, 1500, NULL), KC_OK); /* larger than a batch: one to itself */
    assert_int_equal(sealed_count(w), 2);
    assert_int_equal(put(w, 0, value, 10, NULL), KC_OK);
    assert_int_equal(put(w, 0, value, 940, NULL), KC_OK); /* does not fit behind the other */
    assert_int_equal(sealed_count(w), 4);
    struct kc_batch *last = KW_CONTAINER_OF(w->p->accum.sealed.prev, struct kc_batch, link);
    assert_int_equal(last->count, 1);
    for (struct kw_list *l = w->p->accum.sealed.next; l != &w->p->accum.sealed; l = l->next) {
        const struct kc_batch *b = KW_CONTAINER_OF(l, struct kc_batch, link);
        assert_true(b->len <= 1000 || b->count == 1);
    }
    world_free(w);
}

static void test_c2_max_request_size(void **state) {
    (void)state;
    static const char *const pairs[] = {"max.request.size", "5000", NULL};
    struct world *w = world_new(pairs, 1);
    static const uint8_t value[6000];
    int32_t largest = 0;
    for (int32_t size = 4800; size <= 5000; size++)
        if (put(w, 0, value, size, NULL) == KC_OK) largest = size;
        else assert_int_equal(put(w, 0, value, size, NULL), KC_TOO_LARGE);
    assert_in_range(largest, 4900, 4935);
    assert_int_equal(put(w, 0, value, 6000, NULL), KC_TOO_LARGE);
    net_advance(w->net, 1 * SECOND);
    for (int i = 0; i < w->trace_count; i++) assert_true(w->trace[i].size <= 5000);
    world_free(w);
}

static void test_c2_queue_messages(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "5", "linger.ms", "1000", NULL};
    struct world *w = world_new(pairs, 1);
    for (int i = 0; i < 5; i++) assert_int_equal(put(w, 0, "abcdefgh", 8, NULL), KC_OK);
    assert_int_equal(put(w, 0, "abcdefgh", 8, NULL), KC_QUEUE_FULL);
    kc_produce_turn(w->p);
    net_advance(w->net, 100 * MS); /* the refusal ended the lingering */
    assert_int_equal(w->logs[0][0].count, 5);
    assert_int_equal(put(w, 0, "abcdefgh", 8, NULL), KC_QUEUE_FULL); /* reports that were not taken count */
    world_drain(w);
    assert_int_equal(w->report_count, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(put(w, 0, "abcdefgh", 8, NULL), KC_OK);
    assert_int_equal(put(w, 0, "abcdefgh", 8, NULL), KC_QUEUE_FULL);
    world_free(w);
}

static void test_c2_queue_kbytes(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.kbytes", "10", NULL};
    struct world *w = world_new(pairs, 1);
    static const uint8_t value[12000];
    int n = 0;
    while (put(w, 0, value, 1000, NULL) == KC_OK) n++;
    assert_int_equal(n, 10);
    assert_true(w->p->accum.bytes <= 10240);
    assert_int_equal(put(w, 0, value, 100, NULL), KC_OK); /* a small one still fits */
    assert_int_equal(put(w, 0, value, 11000, NULL), KC_TOO_LARGE); /* that can never fit */
    world_free(w);
}

static void test_space_readiness(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "8", NULL};
    struct world *w = world_new(pairs, 1);
    world_send_batches(w, 0, 8);
    assert_int_equal(world_send(w, 0, NULL, -1, "x", 1, 0), KC_QUEUE_FULL);
    kc_accum_arm_space(&w->p->accum);
    assert_int_equal(w->space_ready, 0);
    net_advance(w->net, 100 * MS);
    assert_int_equal(w->space_ready, 0);
    kc_lock_take(&w->p->accum.lock);
    kc_accum_release(&w->p->accum, 1, 0); /* 7 of 8: above the low-water mark */
    assert_int_equal(w->space_ready, 0);
    kc_accum_release(&w->p->accum, 1, 0);
    assert_int_equal(w->space_ready, 1);
    kc_accum_release(&w->p->accum, 1, 0); /* once */
    assert_int_equal(w->space_ready, 1);
    w->p->accum.records += 3;
    kc_lock_give(&w->p->accum.lock);
    world_free(w);
}

static void test_waiters_are_served_in_order(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "4", NULL};
    struct world *w = world_new(pairs, 1);
    struct kc_accum *a = &w->p->accum;
    world_send_n(w, 0, 4, 16);
    struct kc_space_waiter waiters[6];
    struct kw_header_view headers[6][2];
    struct kc_rec recs[6];
    bool wake = false;
    for (int i = 0; i < 6; i++) {
        recs[i] = (struct kc_rec){.topic = w->topic, .partition = 0, .key = {NULL, -1}, .value = {(const uint8_t *)"x", 1}, .headers = headers[i]};
        assert_int_equal(kc_accum_prepare(a, &recs[i]), KC_OK);
        assert_int_equal(kc_accum_put(a, &recs[i], &w->net->now, false, &wake), KC_QUEUE_FULL);
        kc_accum_wait_add(a, &waiters[i], &recs[i], &wake);
        assert_false(waiters[i].granted);
    }
    assert_true(wake);
    kc_produce_turn(w->p);
    net_advance(w->net, 100 * MS);
    assert_false(waiters[0].granted);
    kc_accum_wait_remove(a, &waiters[1]); /* gave up */
    world_drain(w);                       /* four places */
    static const bool expected[] = {true, false, true, true, true, false};
    for (int i = 0; i < 6; i++) assert_int_equal(waiters[i].granted, expected[i]);
    assert_int_equal(put(w, 0, "y", 1, NULL), KC_QUEUE_FULL); /* nobody gets ahead of those that wait */
    for (int i = 0; i < 5; i++) {
        if (!expected[i]) continue;
        recs[i].reserved = true;
        assert_int_equal(kc_accum_put(a, &recs[i], &w->net->now, false, &wake), KC_OK);
    }
    assert_int_equal(a->records, 4);
    kc_produce_turn(w->p);
    net_advance(w->net, 100 * MS);
    world_drain(w);
    assert_true(waiters[5].granted);
    kc_accum_wait_remove(a, &waiters[5]); /* granted and not used: the place is free again */
    assert_int_equal(a->records, 0);
    world_free(w);
}

/* A place that was granted to one who then cannot use it goes to the next one, also when nothing is queued whose end could do that. */
static void test_an_unused_place_is_passed_on(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "1", NULL};
    struct world *w = world_new(pairs, 5);
    struct kc_accum *a = &w->p->accum;
    struct kc_space_waiter waiters[2];
    struct kw_header_view headers[2][2];
    struct kc_rec recs[2];
    bool wake = false;
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100 * MS);
    for (int i = 0; i < 2; i++) {
        recs[i] = (struct kc_rec){.topic = w->topic, .partition = 3 - i, .key = {NULL, -1}, .value = {(const uint8_t *)"x", 1}, .headers = headers[i]};
        assert_int_equal(kc_accum_prepare(a, &recs[i]), KC_OK);
        kc_accum_wait_add(a, &waiters[i], &recs[i], &wake);
    }
    world_drain(w);
    assert_true(waiters[0].granted && !waiters[1].granted);
    recs[0].reserved = true;
    kw_alloc_fail_after(0); /* for what is kept of partition 3 */
    assert_int_equal(kc_accum_put(a, &recs[0], &w->net->now, false, &wake), KC_NO_MEMORY);
    kw_alloc_fail_after(-1);
    assert_true(waiters[1].granted);
    recs[1].reserved = true;
    assert_int_equal(kc_accum_put(a, &recs[1], &w->net->now, false, &wake), KC_OK);
    net_advance(w->net, 100 * MS);
    world_free(w);
}

/* The same with the memory budget, of which fetched data hold most: with nothing queued nobody may wait for memory that no end of a batch gives back. */
static void test_nobody_waits_for_memory_that_nothing_gives_back(void **state) {
    (void)state;
    static const char *const pairs[] = {"queue.buffering.max.messages", "2", "memory.max.bytes", "1048576", NULL};
    struct world *w = world_new(pairs, 1);
    struct kc_accum *a = &w->p->accum;
    struct kc_budget *budget = kc_core_budget(w->net->core);
    struct kc_space_waiter waiters[2];
    struct kw_header_view headers[2][2];
    struct kc_rec recs[2];
    static uint8_t big[300000];
    bool wake = false;
    world_send_n(w, 0, 2, 16);
    net_advance(w->net, 100 * MS);
    for (int i = 0; i < 2; i++) {
        recs[i] = (struct kc_rec){.topic = w->topic, .partition = 0, .key = {NULL, -1}, .value = {big, sizeof big}, .headers = headers[i]};
        assert_int_equal(kc_accum_prepare(a, &recs[i]), KC_OK);
        kc_accum_wait_add(a, &waiters[i], &recs[i], &wake);
    }
    world_drain(w);
    assert_true(waiters[0].granted && waiters[1].granted);
    assert_true(kc_budget_take(budget, KC_ROLE_FETCH, 750000));
    recs[0].reserved = recs[1].reserved = true;
    assert_int_equal(kc_accum_put(a, &recs[0], &w->net->now, false, &wake), KC_QUEUE_FULL); /* the other one's end may help */
    kc_accum_wait_add(a, &waiters[0], &recs[0], &wake);
    assert_int_equal(kc_accum_put(a, &recs[1], &w->net->now, false, &wake), KC_NO_MEMORY);
    assert_true(waiters[0].granted);
    recs[0].reserved = true;
    assert_int_equal(kc_accum_put(a, &recs[0], &w->net->now, false, &wake), KC_NO_MEMORY);
    kc_budget_give(budget, KC_ROLE_FETCH, 750000);
    assert_int_equal(kc_accum_put(a, &recs[0], &w->net->now, false, &wake), KC_OK);
    kc_produce_turn(w->p);
    net_advance(w->net, 100 * MS);
    world_free(w);
}

static void test_memory_budget(void **state) {
    (void)state;
    static const char *const pairs[] = {"memory.max.bytes", "1048576", "queue.buffering.max.kbytes", "65536", "max.request.size", "900000", NULL};
    struct world *w = world_new(pairs, 8);
    static uint8_t value[100000];
    int n = 0;
    kc_err err;
    while ((err = put(w, n % 8, value, sizeof value, NULL)) == KC_OK) n++;
    assert_int_equal(err, KC_QUEUE_FULL);
    assert_in_range(n, 3, 10);
    struct kc_budget *b = kc_core_budget(w->net->core);
    assert_true(b->used[KC_ROLE_PRODUCE] <= 1048576);
    assert_true(w->p->accum.starved);
    for (int i = 0; i < 20; i++) { /* it goes on as memory comes back */
        kc_produce_turn(w->p);
        net_advance(w->net, 50 * MS);
        world_drain(w);
        assert_int_equal(put(w, i % 8, value, sizeof value, NULL), KC_OK);
        assert_true(b->used[KC_ROLE_PRODUCE] <= 1048576);
    }
    kc_produce_turn(w->p);
    net_advance(w->net, 3 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, n + 20);
    net_advance(w->net, 2 * SECOND);
    assert_int_equal(b->used[KC_ROLE_PRODUCE], 0); /* an idle producer keeps nothing */
    world_free(w);
}

/* The loop is woken once a batch or linger period, not once a record. */
static void test_wakes_are_rare(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 1);
    world_send_n(w, 0, 1, 16);
    net_advance(w->net, 100 * MS);
    int wakes = 0;
    static const uint8_t value[100];
    for (int i = 0; i < 50000; i++) {
        bool wake = false;
        assert_int_equal(put(w, 0, value, sizeof value, &wake), KC_OK);
        if (wake) {
            wakes++;
            kc_produce_turn(w->p);
            net_turn(w->net);
        }
    }
    assert_in_range(wakes, 5, 8); /* batches of about 9,000 */
    world_free(w);
}

static void test_timestamps(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 1);
    static const int64_t stamps[] = {0, 1700000000000, -5, 1700000000001, (int64_t)1 << 60};
    struct kw_header_view headers[2];
    bool wake = false;
    for (uint64_t i = 0; i < KW_COUNTOF(stamps); i++) {
        uint64_t v = i + 1;
        struct kc_rec r = {.topic = w->topic, .partition = 0, .key = {NULL, -1}, .value = {(const uint8_t *)&v, 8}, .headers = headers, .opaque = v,
                           .has_timestamp = true, .timestamp_ms = stamps[i]};
        assert_int_equal(kc_accum_prepare(&w->p->accum, &r), KC_OK);
        assert_int_equal(kc_accum_put(&w->p->accum, &r, &w->net->now, false, &wake), KC_OK);
    }
    kc_produce_turn(w->p);
    net_advance(w->net, 1 * SECOND);
    assert_log(w, 0, 5);
    assert_all_ok(w, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(w->logs[0][0].records[i].timestamp, stamps[i]);
        assert_int_equal(w->reports[i].timestamp_ms, stamps[i]);
    }
    world_free(w);
}

static void test_PR_06_null_and_empty(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(world_send(w, 0, i & 1 ? "" : NULL, i & 1 ? 0 : -1, i & 2 ? "" : NULL, i & 2 ? 0 : -1, (uint64_t)i), KC_OK);
    net_advance(w->net, 100 * MS);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(w->logs[0][0].records[i].key_len, i & 1 ? 0 : -1);
        assert_int_equal(w->logs[0][0].records[i].value_len, i & 2 ? 0 : -1);
    }
    world_free(w);
}

static void test_ids(void **state) {
    (void)state;
    static const char *const pairs[] = {"enable.guid", "true", NULL};
    struct world *w = world_new(pairs, 8);
    world_send_n(w, 0, 1, 16); /* the partition count becomes known */
    net_advance(w->net, 100 * MS);
    struct kw_header_view headers[4];
    bool wake = false;
    uint8_t given[16] = {9, 8, 7};
    int32_t expected = (int32_t)(kc_partitioner_hash_id(given) % 8);
    for (uint64_t i = 0; i < 3; i++) { /* the same id goes to the same partition, whoever sends it */
        uint64_t v = 100 + i;
        struct kc_rec r = {.topic = w->topic, .partition = -1, .key = {NULL, -1}, .value = {(const uint8_t *)&v, 8}, .headers = headers, .has_guid = true};
        memcpy(r.guid, given, 16);
        assert_int_equal(kc_accum_prepare(&w->p->accum, &r), KC_OK);
        assert_int_equal(kc_accum_put(&w->p->accum, &r, &w->net->now, false, &wake), KC_OK);
    }
    for (int i = 0; i < 200; i++) assert_int_equal(world_send(w, -1, NULL, -1, "made", 4, 0), KC_OK);
    kc_produce_turn(w->p);
    net_advance(w->net, 1 * SECOND);
    int found = 0, made = 0;
    for (int p = 0; p < 8; p++)
        for (int64_t i = 0; i < w->logs[0][p].count; i++) {
            const struct stored *s = &w->logs[0][p].records[i];
            assert_int_equal(s->header_count, 1);
            if (memcmp(s->guid, given, 16) == 0) {
                assert_int_equal(p, expected);
                found++;
            } else if (s->value_len == 4) {
                assert_int_equal(s->guid[6] >> 4, 7);
                assert_int_equal(kc_partitioner_hash_id(s->guid) % 8, p);
                made++;
            }
        }
    assert_int_equal(found, 3);
    assert_int_equal(made, 200);
    world_free(w);
}

static void test_bad_arguments(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 1);
    struct kw_header_view headers[2];
    bool wake = false;
    struct kc_rec r = {.topic = 99, .partition = 0, .key = {NULL, -1}, .value = {(const uint8_t *)"x", 1}, .headers = headers};
    assert_int_equal(kc_accum_prepare(&w->p->accum, &r), KC_OK);
    assert_int_equal(kc_accum_put(&w->p->accum, &r, NULL, false, &wake), KC_INVALID);
    r.topic = -1;
    assert_int_equal(kc_accum_put(&w->p->accum, &r, NULL, false, &wake), KC_INVALID);
    r.topic = 0;
    assert_int_equal(kc_accum_put(&w->p->accum, &r, NULL, false, &wake), KC_INVALID);
    world_free(w);
}

static void test_partition_of_highest_number(void **state) {
    (void)state;
    struct world *w = world_new(NULL, 1);
    assert_int_equal(world_send(w, KC_PARTITION_MAX, NULL, -1, "x", 1, 1), KC_OK);
    net_advance(w->net, 2 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, 1);
    assert_int_equal(w->reports[0].err, KE_UNKNOWN_TOPIC_OR_PARTITION);
    assert_int_equal(w->reports[0].outcome, KC_NOT_PERSISTED);
    world_free(w);
}

/* ---- Choosing ---- */

static void count_partitions(struct world *w, int64_t count[8]) {
    for (int p = 0; p < 8; p++) count[p] = w->logs[0][p].count;
}

static void test_keys_decide(void **state) {
    (void)state;
    static const char *const names[] = {"murmur2", "consistent_random", "fnv1a"};
    for (size_t k = 0; k < KW_COUNTOF(names); k++) {
        const char *pairs[] = {"partitioner", names[k], NULL};
        struct world *w = world_new(pairs, 8);
        int kind = kc_partitioner_by_name(names[k]);
        for (uint64_t round = 0; round < 2; round++) { /* staged at first, then with the count known */
            for (uint64_t i = 0; i < 100; i++) {
                char key[16];
                int32_t n = snprintf(key, sizeof key, "key-%d", (int)i);
                assert_int_equal(world_send(w, -1, key, n, &i, 8, i), KC_OK);
            }
            net_advance(w->net, 1 * SECOND);
        }
        world_drain(w);
        assert_int_equal(w->report_count, 200);
        for (int i = 0; i < 200; i++) {
            char key[16];
            uint32_t hash = 0;
            int n = snprintf(key, sizeof key, "key-%d", (int)w->reports[i].opaque);
            assert_true(kc_partitioner_hash(kind, key, (size_t)n, &hash));
            assert_int_equal(w->reports[i].partition, hash % 8);
        }
        world_free(w);
    }
}

static void test_round_robin_and_random(void **state) {
    (void)state;
    static const char *const names[] = {"round_robin", "random"};
    for (size_t k = 0; k < 2; k++) {
        const char *pairs[] = {"partitioner", names[k], NULL};
        struct world *w = world_new(pairs, 8);
        for (int round = 0; round < 2; round++) {
            for (uint64_t i = 0; i < 800; i++) assert_int_equal(world_send(w, -1, "same", 4, &i, 8, i), KC_OK);
            net_advance(w->net, 1 * SECOND);
        }
        int64_t count[8];
        count_partitions(w, count);
        for (int p = 0; p < 8; p++) {
            if (k == 0) assert_int_equal(count[p], 200);
            else assert_in_range(count[p], 130, 270);
        }
        world_free(w);
    }
}

/* CP-10: three brokers, one of them serves a tenth of the time only; each partition gets the same share of bytes, and the queue stays within its limit. */
static enum verdict slow_third(struct world *w, const struct sent *s, int16_t *code) {
    *code = KE_REQUEST_TIMED_OUT;
    return s->broker == 3 && w->step % 10 != 0 ? V_ERROR : V_SERVE;
}
static void test_CP_10_sticky_is_uniform(void **state) {
    (void)state;
    static const char *const pairs[] = {"batch.size", "4000", "linger.ms", "2", "queue.buffering.max.messages", "5000",
                                        "sticky.partitioning.linger.ms", "0", NULL};
    struct world *w = world_new(pairs, 3);
    net_broker(w->net, 2, "b1", 9092);
    net_broker(w->net, 3, "b2", 9092);
    w->net->topics[0].leader[1] = 2;
    w->net->topics[0].leader[2] = 3;
    w->script = slow_third;
    int64_t bytes[3] = {0}, refused = 0;
    uint8_t value[100] = {0};
    for (int i = 0; i < 60000;) {
        kc_err err = world_send(w, -1, NULL, -1, value, sizeof value, (uint64_t)i);
        assert_true(err == KC_OK || err == KC_QUEUE_FULL);
        if (err == KC_OK) i++;
        else refused++;
        if (err || i % 100 == 99) {
            w->step++;
            net_advance(w->net, 1 * MS);
            world_drain(w);
            w->report_count = 0;
            assert_true(w->p->accum.records <= 5000);
        }
    }
    assert_true(refused > 0); /* the slow one did fill the queue */
    w->script = NULL;
    net_advance(w->net, 2 * SECOND);
    world_drain(w);
    for (int p = 0; p < 3; p++) bytes[p] = w->logs[0][p].count;
    assert_int_equal(bytes[0] + bytes[1] + bytes[2], 60000);
    for (int p = 0; p < 3; p++) assert_in_range(bytes[p], 18000, 22000);
    world_free(w);
}

static void test_m2_new_partitions_are_taken_up(void **state) {
    (void)state;
    static const char *const pairs[] = {"sticky.partitioning.linger.ms", "1", NULL};
    struct world *w = world_new(pairs, 1);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(world_send(w, -1, NULL, -1, "12345678", 8, 0), KC_OK);
        net_advance(w->net, 10 * MS);
    }
    assert_int_equal(w->logs[0][0].count, 50);
    w->net->topics[0].partitions = 4;
    kc_metadata_refresh(w->net->core, "test");
    net_advance(w->net, 1 * SECOND);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(world_send(w, -1, NULL, -1, "12345678", 8, 0), KC_OK);
        net_advance(w->net, 10 * MS);
    }
    for (int p = 0; p < 4; p++) assert_true(w->logs[0][p].count > 20);
    world_free(w);
}

static void test_partitions_without_leader_are_left_out(void **state) {
    (void)state;
    static const char *const pairs[] = {"sticky.partitioning.linger.ms", "1", NULL};
    struct world *w = world_new(pairs, 4);
    w->net->topics[0].leader[2] = -1;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(world_send(w, -1, NULL, -1, "12345678", 8, 0), KC_OK);
        net_advance(w->net, 10 * MS);
    }
    world_drain(w);
    assert_int_equal(w->report_count, 200);
    assert_int_equal(w->logs[0][2].count, 0);
    world_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_unused_place_is_passed_on),
        cmocka_unit_test(test_nobody_waits_for_memory_that_nothing_gives_back),
        cmocka_unit_test(test_c2_batch_num_messages),
        cmocka_unit_test(test_c2_batch_size),
        cmocka_unit_test(test_c2_max_request_size),
        cmocka_unit_test(test_c2_queue_messages),
        cmocka_unit_test(test_c2_queue_kbytes),
        cmocka_unit_test(test_space_readiness),
        cmocka_unit_test(test_waiters_are_served_in_order),
        cmocka_unit_test(test_memory_budget),
        cmocka_unit_test(test_wakes_are_rare),
        cmocka_unit_test(test_timestamps),
        cmocka_unit_test(test_PR_06_null_and_empty),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_partition_of_highest_number),
        cmocka_unit_test(test_keys_decide),
        cmocka_unit_test(test_round_robin_and_random),
        cmocka_unit_test(test_CP_10_sticky_is_uniform),
        cmocka_unit_test(test_m2_new_partitions_are_taken_up),
        cmocka_unit_test(test_partitions_without_leader_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
