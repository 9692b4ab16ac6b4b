/* test_guid_produce.c - records with ids: their header, their partition, what the broker tells of duplicates, record by record, whatever happened to the
 * batch on its way (retried, split, compressed, its number known already), and what is told where nobody looks at ids. Against produce_peer.h, whose
 * broker has message.guid.dedup.
 */
#include "produce_peer.h"

static void id_of(uint64_t n, uint8_t id[16]) {
    memset(id, 0xab, 16);
    memcpy(id + 8, &n, 8);
}

/* One record with this id (0: none); its value, and opaque, is `value`. */
static kc_err send_id(struct world *w, int32_t partition, const char *key, uint64_t id, uint64_t value) {
    struct rec_room room;
    uint8_t body[16] = {0};
    memcpy(body, &value, 8);
    struct kc_rec r = {.topic = w->topic, .partition = partition, .key = {(const uint8_t *)key, key ? (int32_t)strlen(key) : -1}, .value = {body, sizeof body},
                       .headers = room.headers, .opaque = value, .has_guid = id != 0};
    if (id) id_of(id, r.guid);
    bool wake = false;
    kc_err err = kc_accum_prepare(&w->p->accum, &r);
    if (!err) err = kc_accum_put(&w->p->accum, &r, &w->net->now, false, &wake);
    if (wake) kc_produce_turn(w->p);
    return err;
}

static void send_ids(struct world *w, uint64_t first, int n) {
    for (int i = 0; i < n; i++) assert_int_equal(send_id(w, 0, NULL, first + (uint64_t)i, first + (uint64_t)i), KC_OK);
}

static struct world *dedup_world(const char *const *pairs, int32_t partitions) {
    struct world *w = world_new(pairs, partitions);
    w->net->looks_ids_up = w->dedups = true;
    return w;
}

static const kc_report *report_of(const struct world *w, uint64_t opaque, int from) {
    for (int i = from; i < w->report_count; i++)
        if (w->reports[i].opaque == opaque) return &w->reports[i];
    fail_msg("no report of %llu", (unsigned long long)opaque);
    return NULL;
}

static void assert_report(const kc_report *r, int64_t offset, uint32_t flags) {
    assert_int_equal(r->err, KC_OK);
    assert_int_equal(r->outcome, KC_PERSISTED);
    assert_int_equal(r->offset, offset);
    assert_int_equal(r->flags, flags);
}

static int logged(const struct net *n, const char *part) {
    int count = 0;
    for (size_t i = 0; i < n->log_count && i < NET_LOG; i++) count += strstr(n->log[i], part) != NULL;
    return count;
}

/* ---- Duplicates ---- */

enum { DEDUPED = KC_REPORT_DEDUPED, DUPLICATE = KC_REPORT_DEDUPED | KC_REPORT_DUPLICATE };

static void mixed(const char *const *pairs) {
    struct world *w = dedup_world(pairs, 1);
    send_ids(w, 1, 5); /* offsets 0-4 */
    net_advance(w->net, 100 * MS);
    static const uint64_t again[] = {3, 4, 10, 5, 11, 1, 12, 10}; /* offsets 5-12; the last one repeats its third */
    for (size_t i = 0; i < KW_COUNTOF(again); i++) assert_int_equal(send_id(w, 0, NULL, again[i], i == 7 ? 10 : again[i]), KC_OK);
    net_advance(w->net, 100 * MS);
    world_drain(w);
    assert_int_equal(w->trace_count, 2);
    assert_int_equal(w->report_count, 13);
    for (int i = 0; i < 5; i++) assert_report(&w->reports[i], i, DEDUPED);
    static const int64_t offsets[] = {2, 3, 7, 4, 9, 0, 11, 7};
    for (int i = 0; i < 8; i++) {
        bool kept = again[i] >= 10 && i != 7;
        assert_int_equal(w->reports[5 + i].opaque, again[i]);
        assert_report(&w->reports[5 + i], offsets[i], kept ? DEDUPED : DUPLICATE);
    }
    assert_int_equal(w->p->accum.stats.records_ok, 13);
    assert_int_equal(w->p->accum.stats.records_duplicate, 5);
    assert_int_equal(logged(w->net, "does not dedup"), 0);
    world_free(w);
}

static void test_duplicates_among_new_ones(void **state) {
    (void)state;
    static const char *const lz4[] = {"linger.ms", "5", "compression.type", "lz4", NULL};
    mixed(idempotent);
    mixed(plain);
    mixed(lz4);
}

static void test_another_payload_and_forgotten_offsets(void **state) {
    (void)state;
    struct world *w = dedup_world(idempotent, 1);
    send_ids(w, 1, 2);
    net_advance(w->net, 100 * MS);
    assert_int_equal(send_id(w, 0, NULL, 2, 77), KC_OK); /* the same id, another value */
    assert_int_equal(send_id(w, 0, NULL, 1, 1), KC_OK);
    net_advance(w->net, 100 * MS);
    w->forgets_offsets = true;
    assert_int_equal(send_id(w, 0, NULL, 1, 1), KC_OK);
    assert_int_equal(send_id(w, 0, NULL, 2, 78), KC_OK);
    assert_int_equal(send_id(w, 0, NULL, 3, 79), KC_OK);
    net_advance(w->net, 100 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 7);
    assert_report(&w->reports[2], 1, DUPLICATE | KC_REPORT_OTHER_PAYLOAD);
    assert_report(&w->reports[3], 0, DUPLICATE);
    assert_report(&w->reports[4], -1, DUPLICATE | KC_REPORT_OFFSET_UNKNOWN);
    assert_report(&w->reports[5], -1, DUPLICATE | KC_REPORT_OTHER_PAYLOAD | KC_REPORT_OFFSET_UNKNOWN);
    assert_report(&w->reports[6], 6, DEDUPED);
    world_free(w);
}

/* Its first attempt was stored and not answered: by the ids each record is found where that put it. */
static void retried(const char *const *pairs) {
    struct world *w = dedup_world(pairs, 1);
    send_ids(w, 1, 3);
    net_advance(w->net, 100 * MS);
    w->script = lose_first;
    send_ids(w, 2, 6); /* 2 and 3 are known; 4-7 get 5-8 */
    net_advance(w->net, 10 * SECOND);
    world_drain(w);
    assert_int_equal(w->step, 2);
    assert_int_equal(w->report_count, 9);
    for (int i = 0; i < 6; i++) assert_report(&w->reports[3 + i], i < 2 ? 1 + i : 3 + i, DUPLICATE | KC_REPORT_PERHAPS_OWN);
    world_free(w);
}

static void test_a_batch_that_is_retried(void **state) {
    (void)state;
    retried(idempotent);
    retried(plain); /* without numbers the ids alone make it one copy */
}

static enum verdict known_number(struct world *w, const struct sent *s, int16_t *code) {
    (void)s;
    *code = KE_DUPLICATE_SEQUENCE_NUMBER;
    return ++w->step == 2 ? V_STORE_ERROR : V_SERVE;
}

static void test_a_number_that_is_known_already(void **state) {
    (void)state;
    struct world *w = dedup_world(idempotent, 1);
    w->script = known_number;
    send_ids(w, 1, 4);
    net_advance(w->net, 100 * MS);
    assert_int_equal(send_id(w, 0, NULL, 4, 4), KC_OK);
    assert_int_equal(send_id(w, 0, NULL, 1, 9), KC_OK);
    net_advance(w->net, 100 * MS);
    world_drain(w);
    assert_int_equal(w->report_count, 6);
    assert_report(&w->reports[4], 3, DUPLICATE);
    assert_report(&w->reports[5], 0, DUPLICATE | KC_REPORT_OTHER_PAYLOAD);
    w->dedups = false; /* an answer without ranges */
    w->step = 1;
    send_ids(w, 20, 2);
    net_advance(w->net, 100 * MS);
    world_drain(w);
    for (int i = 6; i < 8; i++) assert_report(&w->reports[i], -1, KC_REPORT_DUPLICATE | KC_REPORT_OFFSET_UNKNOWN);
    world_free(w);
}

static void test_a_batch_that_is_split(void **state) {
    (void)state;
    struct world *w = dedup_world(idempotent, 1);
    send_ids(w, 101, 20); /* even ones will be duplicates */
    net_advance(w->net, 100 * MS);
    w->max_bytes = 400; /* some eight records */
    for (uint64_t i = 0; i < 40; i++) assert_int_equal(send_id(w, 0, NULL, i % 2 ? 200 + i : 101 + i / 2, i % 2 ? 200 + i : 101 + i / 2), KC_OK);
    net_advance(w->net, 10 * SECOND);
    world_drain(w);
    assert_true(w->trace_count > 6);
    assert_int_equal(w->report_count, 60);
    for (uint64_t i = 0; i < 40; i++) {
        const kc_report *r = report_of(w, i % 2 ? 200 + i : 101 + i / 2, 20);
        assert_report(r, i % 2 ? 20 + (int64_t)i : (int64_t)i / 2, i % 2 ? DEDUPED : DUPLICATE);
        assert_int_equal(w->logs[0][0].records[r->offset].value, r->opaque);
    }
    world_free(w);
}

static void log_append_time(struct world *w) {
    send_ids(w, 1, 1);
    net_advance(w->net, 100 * MS);
    int64_t sent_ms = w->net->now.wall_ms;
    send_ids(w, 1, 2);
    net_advance(w->net, 100 * MS);
    world_drain(w);
    assert_int_equal(w->reports[1].timestamp_ms, sent_ms); /* of a duplicate only what was sent is known */
    assert_int_equal(w->reports[2].timestamp_ms, 77);
}

static void test_timestamps(void **state) {
    (void)state;
    struct world *w = dedup_world(idempotent, 1);
    w->log_append_time = true;
    log_append_time(w);
    world_free(w);
}

/* Another life of the application, with the same client. */
static void restart(struct world *w) {
    kc_produce_stop(w->p, world_stopped);
    net_turn(w->net);
    net_advance(w->net, 1);
    assert_true(w->stopped);
    w->stopped = false;
    world_drain(w);
    kc_produce_detach(w->p);
    kc_produce_deinit(w->p);
    assert_int_equal(kc_produce_init(w->p, w->net->core, w->net->settings, &world_calls, w), KW_OK);
    assert_int_equal(kc_accum_add_topic(&w->p->accum, w->topic), KC_OK);
}

static void test_a_restart_with_the_same_ids(void **state) {
    (void)state;
    struct world *w = dedup_world(idempotent, 8);
    w->script = store_silent_first;
    for (uint64_t i = 1; i <= 100; i++) assert_int_equal(send_id(w, -1, NULL, i, i), KC_OK);
    net_advance(w->net, 50 * MS); /* some are stored, and never answered */
    int before = 0;
    for (int p = 0; p < 8; p++) before += (int)w->logs[0][p].count;
    assert_true(before > 0);
    w->script = NULL;
    restart(w);
    w->report_count = 0;
    for (uint64_t i = 1; i <= 100; i++) assert_int_equal(send_id(w, -1, NULL, i, i), KC_OK);
    net_advance(w->net, 10 * SECOND);
    world_drain(w);
    assert_int_equal(w->report_count, 100);
    int kept = 0, duplicates = 0;
    for (int p = 0; p < 8; p++)
        for (int64_t i = 0; i < w->logs[0][p].count; i++) kept += !w->logs[0][p].records[i].hole;
    assert_int_equal(kept, 100); /* each in the one partition of its id */
    for (int i = 0; i < 100; i++) {
        duplicates += (w->reports[i].flags & KC_REPORT_DUPLICATE) != 0;
        assert_int_equal(w->logs[0][w->reports[i].partition].records[w->reports[i].offset].value, w->reports[i].opaque);
    }
    assert_int_equal(duplicates, before);
    world_free(w);
}

/* ---- Answers that cannot be ---- */

static int spoiled;
static void spoil(struct kw_produce_response_guid_result *g) {
    static struct kw_produce_response_guid_range r[2];
    static const struct kw_produce_response_guid_range bad[][2] = {
        {{.index = 0, .count = 5}, {.index = 5, .count = 1}}, /* past the end by one */
        {{.index = -1, .count = 1}, {.index = 2, .count = 1}},
        {{.index = 0, .count = 0}, {.index = 2, .count = 1}},
        {{.index = 0, .count = 2}, {.index = 1, .count = 1}}, /* one record twice */
        {{.index = 3, .count = 1}, {.index = 0, .count = 1}}, /* backwards */
        {{.index = 0, .count = INT32_MAX}, {.index = INT32_MAX, .count = INT32_MAX}},
        {{.index = 0, .count = 1, .first_offset = -2}, {.index = 1, .count = 1}},
    };
    if (spoiled == (int)KW_COUNTOF(bad)) return;
    memcpy(r, bad[spoiled++], sizeof r);
    g->ranges.v = r;
    g->ranges.n = 2;
}

static void test_ranges_that_make_no_sense(void **state) {
    (void)state;
    struct world *w = dedup_world(idempotent, 1);
    spoiled = 0;
    w->spoil = spoil;
    send_ids(w, 1, 5);
    net_advance(w->net, 60 * SECOND);
    world_drain(w);
    assert_int_equal(spoiled, 7);
    assert_int_equal(w->report_count, 5);
    for (int i = 0; i < 5; i++) assert_report(&w->reports[i], i, DUPLICATE | KC_REPORT_PERHAPS_OWN); /* by its own first attempt */
    assert_int_equal(w->logs[0][0].count, 5);
    world_free(w);
}

/* ---- Ids on their way out ---- */

static void test_ranges_are_asked_for_where_there_are_ids(void **state) {
    (void)state;
    struct world *w = dedup_world(idempotent, 1);
    assert_int_equal(send_id(w, 0, NULL, 0, 1), KC_OK);
    net_advance(w->net, 100 * MS);
    assert_int_equal(w->announced, 0); /* nothing is told of them, nor does it cost anything */
    assert_int_equal(send_id(w, 0, NULL, 0, 2), KC_OK);
    assert_int_equal(send_id(w, 0, NULL, 1, 3), KC_OK);
    net_advance(w->net, 100 * MS);
    assert_int_equal(w->announced, 1);
    assert_int_equal(logged(w->net, "does not dedup"), 0);
    world_free(w);
    w = dedup_world(idempotent, 1);
    w->net->api_max[KW_API_PRODUCE] = 8; /* not flexible: it cannot be said */
    send_ids(w, 1, 2);
    net_advance(w->net, 100 * MS);
    world_drain(w);
    assert_int_equal(w->announced, 0);
    assert_int_equal(w->report_count, 2);
    /* What is told is what is known: nothing about the topic. */
    assert_int_equal(logged(w->net, "whether topic t dedups by id is not known: Produce 8, the newest version that broker 1 takes, does not tell (9 does)"), 1);
    assert_int_equal(logged(w->net, "does not dedup"), 0);
    assert_int_equal(logged(w->net, "message.guid.dedup=true is not set"), 0);
    world_free(w);
}

static void test_a_topic_that_does_not_dedup_is_told_once(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) { /* by the topic, by the brokers, without idempotence, without acknowledgements */
        static const char *const none[] = {"enable.idempotence", "false", "acks", "0", "linger.ms", "5", NULL};
        struct world *w = world_new(i == 2 ? plain : i == 3 ? none : idempotent, 1);
        w->net->looks_ids_up = i == 0;
        assert_int_equal(send_id(w, 0, NULL, 0, 1), KC_OK);
        net_advance(w->net, 100 * MS);
        assert_int_equal(logged(w->net, "does not dedup"), 0);
        for (uint64_t k = 2; k < 6; k++) {
            send_ids(w, k, 1);
            net_advance(w->net, 100 * MS);
        }
        assert_int_equal(w->announced > 0, i == 0);
        assert_int_equal(logged(w->net, "topic t does not dedup by id"), 1);
        assert_int_equal(logged(w->net, i == 0 ? "message.guid.dedup=true is not set" : "LookupGuid"), 1);
        assert_int_equal(logged(w->net, i < 2 ? "idempotence alone" : "enable.idempotence is off"), 1);
        world_drain(w);
        for (int k = 0; k < w->report_count; k++) assert_int_equal(w->reports[k].flags, 0);
        assert_int_equal(w->report_count, 5);
        world_free(w);
    }
}

static int32_t partition_of(const char *partitioner, bool ignore_keys, bool known, const char *key) {
    const char *const pairs[] = {"partitioner", partitioner, "partitioner.ignore.keys", ignore_keys ? "true" : "false", "linger.ms", "5", NULL};
    struct world *w = dedup_world(pairs, 8);
    if (known) {
        world_send_n(w, 0, 1, 16);
        net_advance(w->net, 100 * MS);
    }
    assert_int_equal(send_id(w, -1, key, 4711, 4711), KC_OK);
    net_advance(w->net, 1 * SECOND);
    world_drain(w);
    int32_t partition = report_of(w, 4711, 0)->partition;
    uint8_t id[16];
    id_of(4711, id);
    assert_memory_equal(w->logs[0][partition].records[w->logs[0][partition].count - 1].guid, id, 16);
    world_free(w);
    return partition;
}

static void test_the_same_partition_with_every_producer(void **state) {
    (void)state;
    static const char *const names[] = {"murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random",
                                        "fnv1a",          "random",  "sticky",            "round_robin"};
    uint8_t id[16];
    id_of(4711, id);
    int32_t expected = (int32_t)(kc_partitioner_hash_id(id) % 8);
    assert_int_equal(expected, 5); /* and with every version of the library: a change would store retried ids twice */
    for (size_t i = 0; i < KW_COUNTOF(names); i++)
        for (int k = 0; k < 2; k++) {
            assert_int_equal(partition_of(names[i], false, k, NULL), expected);
            assert_int_equal(partition_of(names[i], true, k, "key"), expected); /* a key that decides nothing */
            bool decides = i < 6;
            int32_t by_key = partition_of(names[i], false, k, "key");
            if (decides) {
                uint32_t hash;
                assert_true(kc_partitioner_hash((int)i, "key", 3, &hash));
                assert_int_equal(by_key, hash % 8);
            } else {
                assert_int_equal(by_key, expected);
            }
        }
    assert_int_equal(partition_of("consistent_random", false, true, ""), expected); /* librdkafka's empty key is none */
}

/* ---- Headers of the application's own ---- */

static kc_err send_header(struct world *w, const struct kw_header_view *own, size_t n, bool id, uint64_t value) {
    struct kw_header_view headers[8];
    memcpy(headers, own, n * sizeof *own);
    struct kc_rec r = {.topic = w->topic, .partition = -1, .key = {NULL, -1}, .value = {(const uint8_t *)&value, 8}, .headers = headers,
                       .header_count = n, .opaque = value, .has_guid = id};
    if (id) id_of(99, r.guid);
    bool wake = false;
    kc_err err = kc_accum_prepare(&w->p->accum, &r);
    if (!err) err = kc_accum_put(&w->p->accum, &r, &w->net->now, false, &wake);
    if (wake) kc_produce_turn(w->p);
    return err;
}

static void test_headers_named_guid(void **state) {
    (void)state;
    uint8_t id[16];
    id_of(4711, id);
    const struct kw_header_view good = {kw_str_of("guid"), {id, 16}}, text = {kw_str_of("guid"), {(const uint8_t *)"4711", 4}},
                                other = {kw_str_of("trace"), {(const uint8_t *)"x", 1}};
    const struct kw_header_view two[] = {good, other, good}, one[] = {other, good}, wrong[] = {text};
    static const char *const making[] = {"enable.guid", "true", "linger.ms", "5", NULL};
    for (int made = 0; made < 2; made++)
        for (int known = 0; known < 2; known++) {
            struct world *w = dedup_world(made ? making : idempotent, 8);
            if (known) {
                world_send_n(w, 0, 1, 16);
                net_advance(w->net, 100 * MS);
            }
            assert_int_equal(send_header(w, one, 2, true, 100), KC_BAD_GUID); /* a second id, in whichever form */
            assert_int_equal(send_header(w, wrong, 1, true, 100), KC_BAD_GUID);
            assert_int_equal(send_header(w, two, 3, false, 100), made ? KC_BAD_GUID : KC_OK);
            assert_int_equal(send_header(w, wrong, 1, false, 101), made ? KC_BAD_GUID : KC_OK); /* no id, where nobody asked for ids */
            assert_int_equal(send_header(w, one, 2, false, 102), KC_OK);
            net_advance(w->net, 1 * SECOND);
            world_drain(w);
            const kc_report *r = report_of(w, 102, 0);
            const struct part_log *l = &w->logs[0][r->partition];
            assert_int_equal(r->partition, 5); /* the id's own */
            assert_int_equal(l->records[r->offset].header_count, 2);
            assert_memory_equal(l->records[r->offset].guid, id, 16);
            world_free(w);
        }
}

/* ---- No memory ---- */

static void test_memory_ends_anywhere(void **state) {
    (void)state;
    int unplaced = 0;
    for (int64_t n = 0; n < 60; n++) {
        struct world *w = dedup_world(idempotent, 1);
        send_ids(w, 1, 4);
        net_advance(w->net, 100 * MS);
        send_ids(w, 3, 4);
        kw_alloc_fail_after(n);
        net_advance(w->net, 30 * SECOND);
        kw_alloc_fail_after(-1);
        net_advance(w->net, 30 * SECOND);
        world_drain(w);
        assert_int_equal(w->report_count, 8);
        for (int i = 0; i < 4; i++) {
            const kc_report *r = &w->reports[4 + i];
            assert_int_equal(r->err, KC_OK);
            assert_true(r->flags & KC_REPORT_DEDUPED);
            if (r->offset >= 0) assert_int_equal(w->logs[0][0].records[r->offset].value, r->opaque); /* never a wrong one */
            else assert_true(r->flags & KC_REPORT_OFFSET_UNKNOWN);
            unplaced += r->offset < 0;
        }
        world_free(w);
    }
    assert_true(unplaced > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_duplicates_among_new_ones),
        cmocka_unit_test(test_another_payload_and_forgotten_offsets),
        cmocka_unit_test(test_a_batch_that_is_retried),
        cmocka_unit_test(test_a_number_that_is_known_already),
        cmocka_unit_test(test_a_batch_that_is_split),
        cmocka_unit_test(test_timestamps),
        cmocka_unit_test(test_a_restart_with_the_same_ids),
        cmocka_unit_test(test_ranges_that_make_no_sense),
        cmocka_unit_test(test_ranges_are_asked_for_where_there_are_ids),
        cmocka_unit_test(test_a_topic_that_does_not_dedup_is_told_once),
        cmocka_unit_test(test_the_same_partition_with_every_producer),
        cmocka_unit_test(test_headers_named_guid),
        cmocka_unit_test(test_memory_ends_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
