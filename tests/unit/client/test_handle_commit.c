/* test_handle_commit.c - commits through the public functions, over real sockets and threads: waiting and as operations, what is committed at
 * close and what is not at free, close with a limit while brokers are frozen (CC-12), wrong arguments and configurations. Run under
 * ThreadSanitizer too.
 */
#include "consume_server.h"

static struct {
    _Atomic int64_t offsets[PARTS]; /* committed; -1 none */
    _Atomic int commits, fetches, finds;
    _Atomic int code; /* of all further commits */
    char metadata[PARTS][32]; /* the server thread's while it runs */
    struct kw_arena arena;
} group;

static void offset_commit(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_offset_commit_request q;
    struct kw_offset_commit_response m;
    struct kw_offset_commit_response_partition p[PARTS] = {{0}};
    struct kw_offset_commit_response_topic t = {.partitions.v = p};
    kw_arena_reset(&group.arena);
    if (kw_decode(&kw_offset_commit_request_desc, h->version, body, &group.arena, &q) != KW_OK || q.topics.n > 1) abort();
    for (int32_t i = 0; q.topics.n == 1 && i < q.topics.v[0].partitions.n; i++) {
        const struct kw_offset_commit_request_partition *x = &q.topics.v[0].partitions.v[i];
        p[t.partitions.n++] =
            (struct kw_offset_commit_response_partition){.partition_index = x->partition_index, .error_code = (int16_t)atomic_load(&group.code)};
        if (atomic_load(&group.code)) continue;
        snprintf(group.metadata[x->partition_index], sizeof group.metadata[0], "%.*s", KW_MAX(x->committed_metadata.len, 0), x->committed_metadata.p);
        atomic_store(&group.offsets[x->partition_index], x->committed_offset);
    }
    if (q.topics.n == 1) t.name = q.topics.v[0].name, t.topic_id = q.topics.v[0].topic_id;
    kw_msg_init(&kw_offset_commit_response_desc, &m);
    m.topics.v = &t;
    m.topics.n = q.topics.n;
    atomic_fetch_add(&group.commits, 1);
    server_reply(c, h, &m);
}

static void offset_fetch(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_offset_fetch_request q;
    struct kw_offset_fetch_response m;
    struct kw_offset_fetch_response_partitions p[PARTS];
    struct kw_offset_fetch_response_topics t = {.partitions.v = p};
    struct kw_offset_fetch_response_group g = {.group_id = kw_str_of("g"), .topics.v = &t, .topics.n = 1};
    kw_arena_reset(&group.arena);
    if (kw_decode(&kw_offset_fetch_request_desc, h->version, body, &group.arena, &q) != KW_OK || q.groups.n != 1) abort();
    const struct kw_offset_fetch_request_topics *from = &q.groups.v[0].topics.v[0];
    t.name = from->name;
    t.topic_id = from->topic_id;
    for (int32_t i = 0; i < from->partition_indexes.n; i++) {
        int32_t k = ((int32_t *)from->partition_indexes.v)[i];
        p[t.partitions.n++] = (struct kw_offset_fetch_response_partitions){.partition_index = k,
                                                                           .committed_offset = atomic_load(&group.offsets[k]),
                                                                           .committed_leader_epoch = -1,
                                                                           .metadata = kw_str_of(group.metadata[k])};
    }
    kw_msg_init(&kw_offset_fetch_response_desc, &m);
    m.groups.v = &g;
    m.groups.n = 1;
    atomic_fetch_add(&group.fetches, 1);
    server_reply(c, h, &m);
}

static bool group_hook(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    if (h->api_key == KW_API_FIND_COORDINATOR) {
        atomic_fetch_add(&group.finds, 1);
        find_coordinator(s, c, h);
    } else if (h->api_key == KW_API_OFFSET_COMMIT) {
        offset_commit(c, h, body);
    } else if (h->api_key == KW_API_OFFSET_FETCH) {
        offset_fetch(c, h, body);
    } else {
        return false;
    }
    return true;
}

static struct rig group_rig(const char *const *mode, const char *const *pairs) {
    for (int p = 0; p < PARTS; p++) atomic_store(&group.offsets[p], -1);
    memset(group.metadata, 0, sizeof group.metadata);
    atomic_store(&group.commits, 0);
    atomic_store(&group.fetches, 0);
    atomic_store(&group.code, 0);
    more = group_hook;
    return rig_new(mode, pairs);
}

static kc_offset offset_of(const struct rig *r, int32_t partition, int64_t offset, const char *metadata) {
    return (kc_offset){.topic = r->topic, .partition = partition, .offset = offset, .metadata = {metadata, metadata ? strlen(metadata) : 0}};
}

static void test_commit_and_committed(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        struct rig r = group_rig(modes[mode], PAIRS("group.id", "g", "enable.auto.commit", "false"));
        kc_error *e = NULL;
        kc_offset at[] = {offset_of(&r, 0, 5, "note"), offset_of(&r, 1, 6, NULL), offset_of(&r, 2, -4, NULL)};
        assert_int_equal(kc_consumer_commit(r.consumer, at, sizeof at[0], 2, 0, &e), KC_OK);
        assert_null(e);
        assert_int_equal(atomic_load(&group.offsets[0]), 5);
        assert_int_equal(atomic_load(&group.offsets[1]), 6);
        assert_int_equal(kc_consumer_commit(r.consumer, at, sizeof at[0], 3, LONG_US, &e), KC_INVALID);
        assert_int_equal(at[0].err, KC_OK); /* the others go through */
        assert_int_equal(at[2].err, KC_INVALID);
        assert_non_null(strstr(kc_error_message(e), "commit of offset -4 of t [2] for group g"));
        kc_error_free(e);
        kc_topic_partition tp[] = {part(&r, 0, 0), part(&r, 2, 0)};
        assert_int_equal(kc_consumer_committed(r.consumer, tp, sizeof tp[0], 2, 0, NULL), KC_OK);
        assert_int_equal(tp[0].offset, 5);
        assert_int_equal(tp[0].leader_epoch, -1);
        assert_int_equal(tp[1].offset, -1);
        kc_op *op = NULL;
        assert_int_equal(kc_consumer_committed_start(r.consumer, tp, sizeof tp[0], 2, 7, &op, NULL), KC_OK);
        assert_int_equal(kc_op_wait(op, LONG_US, NULL), KC_OK);
        kc_offset got[2];
        assert_int_equal(kc_op_result_committed(op, got, sizeof got[0], 2), 2);
        assert_int_equal(got[0].offset, 5);
        assert_int_equal(got[0].metadata.size, 4);
        assert_memory_equal(got[0].metadata.p, "note", 4);
        assert_int_equal(got[1].offset, -1);
        assert_int_equal(got[1].metadata.size, 0);
        assert_int_equal(kc_op_result_offsets(op, tp, sizeof tp[0], 2), 2);
        kc_op_free(op);
        assert_int_equal(kc_consumer_commit_start(r.consumer, at, sizeof at[0], 3, 9, &op, NULL), KC_OK);
        memset(at, 0x55, sizeof at); /* copied */
        assert_int_equal(kc_op_wait(op, LONG_US, NULL), KC_INVALID);
        assert_int_equal(kc_op_result_offsets(op, tp, sizeof tp[0], 2), 3);
        assert_int_equal(tp[0].err, KC_OK);
        assert_int_equal(kc_op_result_committed(op, got, sizeof got[0], 2), 0); /* not of that kind */
        kc_op_free(op);
        assert_int_equal(kc_consumer_close(r.consumer, LONG_US, NULL), KC_OK);
        assert_int_equal(kc_consumer_commit(r.consumer, NULL, 0, 0, 0, NULL), KC_CLOSED);
        rig_free(&r);
    }
}

/* What poll went past: by the interval, on demand, and at close; not what free finds in hand. */
static void test_automatic_and_at_close(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        struct rig r = group_rig(modes[mode], PAIRS("group.id", "g", "auto.commit.interval.ms", "3600000", "max.poll.records", "10"));
        append(0, 100);
        atomic_store(&group.offsets[0], 20);
        assign_all(&r, KC_OFFSET_COMMITTED);
        r.next[0] = 20;
        kc_topic_partition tp = part(&r, 0, 0);
        assert_int_equal(kc_consumer_lag(r.consumer, &tp, sizeof tp, 1), KC_OK);
        for (int i = 0; i < 15; i++) read_one(&r);
        assert_int_equal(kc_consumer_lag(r.consumer, &tp, sizeof tp, 1), KC_OK);
        assert_int_equal(tp.offset, 65);
        assert_int_equal(kc_consumer_commit(r.consumer, NULL, 0, 0, 0, NULL), KC_OK);
        assert_int_equal(atomic_load(&group.offsets[0]), 34); /* not the one in hand */
        int commits = atomic_load(&group.commits);
        assert_int_equal(kc_consumer_commit(r.consumer, NULL, 0, 0, 0, NULL), KC_OK); /* nothing new */
        assert_int_equal(atomic_load(&group.commits), commits);
        read_batches(&r, 15);
        kc_event *e = NULL;
        assert_int_equal(kc_consumer_poll(r.consumer, &e, LONG_US), KC_OK);
        size_t in_hand = check_event(&r, e);
        assert_int_equal(kc_consumer_close(r.consumer, LONG_US, NULL), KC_OK);
        assert_int_equal(atomic_load(&group.offsets[0]), r.next[0] - (int64_t)in_hand);
        kc_event_free(e);
        rig_free(&r);
    }
    struct rig r = group_rig(NULL, PAIRS("group.id", "g", "auto.commit.interval.ms", "3600000"));
    append(0, 100);
    assign_all(&r, KC_OFFSET_BEGINNING);
    read_batches(&r, 100);
    kc_event *e = NULL;
    assert_int_equal(kc_consumer_poll(r.consumer, &e, 0), KC_TIMED_OUT);
    rig_free(&r); /* without a close */
    assert_int_equal(atomic_load(&group.commits), 0);
}

static void test_explicit(void **state) {
    (void)state;
    struct rig r = group_rig(NULL, PAIRS("group.id", "g", "auto.commit.interval.ms", "10", "enable.auto.offset.store", "true"));
    kc_topic_partition tp = part(&r, 0, 10);
    assert_int_equal(kc_consumer_processed(r.consumer, &tp, sizeof tp, 1), KC_INVALID); /* a consumer by poll */
    kc_consumer_free(r.consumer);
    assert_int_equal(kc_consumer_new(r.client, NULL, KC_PROCESSED_EXPLICIT, &r.consumer, NULL), KC_OK);
    append(0, 100);
    assign_all(&r, KC_OFFSET_BEGINNING);
    read_batches(&r, 100);
    assert_int_equal(kc_consumer_processed(r.consumer, &tp, sizeof tp, 1), KC_OK);
    kc_event *e = NULL;
    while (atomic_load(&group.offsets[0]) != 10) assert_int_equal(kc_consumer_poll(r.consumer, &e, 1000), KC_TIMED_OUT);
    tp.offset = 101;
    assert_int_equal(kc_consumer_processed(r.consumer, &tp, sizeof tp, 1), KC_INVALID);
    assert_int_equal(kc_consumer_processed(r.consumer, NULL, sizeof tp, 1), KC_INVALID);
    rig_free(&r);
}

/* CC-12: the brokers are frozen while a commit is outstanding. */
static void test_cc12_close_keeps_its_limit(void **state) {
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        struct rig r = group_rig(modes[mode], PAIRS("group.id", "g", "auto.commit.interval.ms", "3600000"));
        append(0, 100);
        assign_all(&r, KC_OFFSET_BEGINNING);
        read_batches(&r, 100);
        kc_event *e = NULL;
        assert_int_equal(kc_consumer_poll(r.consumer, &e, 0), KC_TIMED_OUT);
        kc_offset at = offset_of(&r, 1, 3, NULL);
        assert_int_equal(kc_consumer_commit(r.consumer, &at, sizeof at, 1, 0, NULL), KC_OK);
        atomic_store(&peer.frozen, true);
        kc_op *op = NULL;
        at.offset = 4;
        assert_int_equal(kc_consumer_commit_start(r.consumer, &at, sizeof at, 1, 0, &op, NULL), KC_OK);
        kc_error *error = NULL;
        assert_int_equal(kc_consumer_commit(r.consumer, &at, sizeof at, 1, 50000, &error), KC_TIMED_OUT);
        assert_int_equal(kc_error_outcome(error), KC_MAYBE_PERSISTED);
        kc_error_free(error);
        int64_t began = now_us();
        kc_err err = kc_consumer_close(r.consumer, 300000, NULL);
        assert_true(now_us() - began >= 250000); /* it did wait for the commit */
        assert_true(err == KC_TIMED_OUT || err == KC_OK); /* at the limit it lets go of what is left: then it is closed */
        kc_consumer_free(r.consumer);
        r.consumer = NULL;
        assert_int_equal(kc_op_wait(op, LONG_US, NULL), KC_CLOSED);
        kc_op_free(op);
        rig_free(&r);
    }
}

/* A commit that was begun before the close is not refused by it. */
static void test_a_commit_just_before_the_close(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct rig r = group_rig(modes[i & 1], PAIRS("group.id", "g", "auto.commit.interval.ms", "3600000"));
        append(0, 50);
        assign_all(&r, KC_OFFSET_BEGINNING);
        read_batches(&r, 50);
        kc_event *e = NULL;
        kc_op *op = NULL;
        assert_int_equal(kc_consumer_poll(r.consumer, &e, 0), KC_TIMED_OUT);
        assert_int_equal(kc_consumer_commit_start(r.consumer, NULL, 0, 0, 0, &op, NULL), KC_OK);
        assert_int_equal(kc_consumer_close(r.consumer, LONG_US, NULL), KC_OK);
        assert_int_equal(kc_op_wait(op, LONG_US, NULL), KC_OK);
        assert_int_equal(atomic_load(&group.offsets[0]), 50);
        kc_op_free(op);
        rig_free(&r);
    }
}

static void test_a_cancelled_commit(void **state) {
    (void)state;
    struct rig r = group_rig(NULL, PAIRS("group.id", "g", "enable.auto.commit", "false"));
    atomic_store(&group.code, KE_COORDINATOR_LOAD_IN_PROGRESS);
    kc_offset at = offset_of(&r, 1, 3, NULL);
    kc_op *op = NULL, *left = NULL, *query = NULL;
    assert_int_equal(kc_consumer_commit_start(r.consumer, &at, sizeof at, 1, 0, &op, NULL), KC_OK);
    assert_int_equal(kc_consumer_commit_start(r.consumer, &at, sizeof at, 1, 0, &left, NULL), KC_OK);
    assert_int_equal(kc_op_wait(op, 20000, NULL), KC_TIMED_OUT);
    kc_op_cancel(op);
    assert_int_equal(kc_op_wait(op, LONG_US, NULL), KC_CANCELLED);
    kc_op_free(op);
    kc_op_free(left); /* detached: it goes on */
    kc_topic_partition tp = part(&r, 0, 0);
    assert_int_equal(kc_consumer_committed_start(r.consumer, &tp, sizeof tp, 1, 0, &query, NULL), KC_OK);
    kc_op_cancel(query);
    kc_err err = kc_op_wait(query, LONG_US, NULL);
    assert_true(err == KC_OK || err == KC_CANCELLED);
    kc_op_free(query);
    atomic_store(&group.code, 0);
    while (atomic_load(&group.offsets[1]) != 3) usleep(1000);
    rig_free(&r);
}

static void test_wrong_arguments(void **state) {
    (void)state;
    struct rig r = group_rig(NULL, NULL);
    kc_error *e = NULL;
    kc_op *op = NULL;
    kc_offset at = offset_of(&r, 0, 3, NULL);
    kc_topic_partition tp = part(&r, 0, KC_OFFSET_COMMITTED);
    assert_int_equal(kc_consumer_commit(r.consumer, &at, sizeof at, 1, 0, &e), KC_CONFIG); /* no group */
    assert_non_null(strstr(kc_error_message(e), "group.id"));
    kc_error_free(e);
    assert_int_equal(kc_consumer_commit(r.consumer, NULL, 0, 0, 0, NULL), KC_CONFIG);
    assert_int_equal(kc_consumer_committed(r.consumer, &tp, sizeof tp, 1, 0, NULL), KC_CONFIG);
    assert_int_equal(kc_consumer_assign(r.consumer, &tp, sizeof tp, 1, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_lag(r.consumer, &tp, sizeof tp, 1), KC_NOT_ASSIGNED);
    rig_free(&r);
    r = group_rig(NULL, PAIRS("group.id", "g", "enable.auto.commit", "false"));
    assert_int_equal(kc_consumer_commit(NULL, &at, sizeof at, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_commit(r.consumer, &at, 8, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_commit(r.consumer, NULL, sizeof at, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_commit_start(r.consumer, &at, sizeof at, 1, 0, NULL, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_committed_start(r.consumer, &tp, sizeof tp, 1, 0, NULL, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_committed(r.consumer, &tp, 4, 1, 0, NULL), KC_INVALID);
    assert_int_equal(kc_op_result_committed(NULL, NULL, 0, 0), 0);
    static char large[40000];
    memset(large, 'x', sizeof large - 1);
    at = offset_of(&r, 0, 3, large);
    assert_int_equal(kc_consumer_commit(r.consumer, &at, sizeof at, 1, 0, NULL), KE_OFFSET_METADATA_TOO_LARGE);
    at.metadata = (kc_bytes){NULL, 4};
    assert_int_equal(kc_consumer_commit(r.consumer, &at, sizeof at, 1, 0, NULL), KC_INVALID);
    at = offset_of(&r, 0, 3, NULL);
    for (int n = 0; n < 4; n++) { /* without memory nothing is begun */
        kw_alloc_fail_after(n);
        kc_err err = kc_consumer_commit_start(r.consumer, &at, sizeof at, 1, 0, &op, NULL);
        kw_alloc_fail_after(-1);
        if (err == KC_OK) kc_op_free(op);
        else assert_int_equal(err, KC_NO_MEMORY);
    }
    kc_config *config = kc_config_new();
    kc_consumer *other = NULL;
    assert_int_equal(kc_config_set(config, "enable.auto.offset.store", "false", NULL), KC_OK);
    assert_int_equal(kc_consumer_new(r.client, config, KC_PROCESSED_BY_POLL, &other, &e), KC_CONFIG);
    assert_non_null(strstr(kc_error_message(e), "KC_PROCESSED_EXPLICIT"));
    kc_error_free(e);
    assert_int_equal(kc_consumer_new(r.client, config, KC_PROCESSED_EXPLICIT, &other, &e), KC_OK);
    kc_consumer_free(other);
    assert_int_equal(kc_config_set(config, "group.id", large, NULL), KC_OK);
    assert_int_equal(kc_consumer_new(r.client, config, KC_PROCESSED_EXPLICIT, &other, &e), KC_CONFIG);
    kc_error_free(e);
    kc_config_free(config);
    rig_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commit_and_committed), cmocka_unit_test(test_automatic_and_at_close), cmocka_unit_test(test_explicit),
        cmocka_unit_test(test_cc12_close_keeps_its_limit), cmocka_unit_test(test_a_commit_just_before_the_close),
        cmocka_unit_test(test_a_cancelled_commit), cmocka_unit_test(test_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
