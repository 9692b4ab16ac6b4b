/* test_handle_group.c - members of groups through the public functions, over real sockets and threads: subscribing, events and their
 * acknowledgement, also after the consumer is gone and from other threads, rebalances under load, closing, wrong arguments and patterns. Run under
 * ThreadSanitizer too.
 */
#include <pthread.h>

#include "consume_server.h"
#include "handle_consumer.h"

/* A group of one member. */
static struct {
    _Atomic int64_t offsets[PARTS]; /* committed; -1 none */
    _Atomic int32_t generation;
    _Atomic bool rebalance; /* heartbeats say so, until it joins */
    _Atomic int joins, leaves, beats, beat_code;
    char share[256]; /* the server thread's */
    int32_t share_len;
    struct kw_arena arena;
} group;

static void join(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_join_group_request q;
    struct kw_join_group_response m;
    kw_arena_reset(&group.arena);
    if (kw_decode(&kw_join_group_request_desc, h->version, body, &group.arena, &q) != KW_OK) abort();
    kw_msg_init(&kw_join_group_response_desc, &m);
    struct kw_join_group_response_member one = {
        .member_id = kw_str_of("m"), .group_instance_id = kw_str_null(), .metadata = q.protocols.v[0].metadata};
    m.member_id = m.leader = one.member_id;
    m.protocol_name = q.protocols.v[0].name;
    m.generation_id = atomic_fetch_add(&group.generation, 1) + 1;
    m.members.v = &one;
    m.members.n = 1;
    atomic_fetch_add(&group.joins, 1);
    atomic_store(&group.rebalance, false);
    server_reply(c, h, &m);
}

static void sync_group(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_sync_group_request q;
    struct kw_sync_group_response m;
    kw_arena_reset(&group.arena);
    if (kw_decode(&kw_sync_group_request_desc, h->version, body, &group.arena, &q) != KW_OK || q.assignments.n != 1) abort();
    kw_msg_init(&kw_sync_group_response_desc, &m);
    m.assignment = q.assignments.v[0].assignment;
    server_reply(c, h, &m);
}

static void heartbeat(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_heartbeat_response m;
    kw_msg_init(&kw_heartbeat_response_desc, &m);
    m.error_code = (int16_t)(atomic_load(&group.rebalance) ? KE_REBALANCE_IN_PROGRESS : atomic_load(&group.beat_code));
    atomic_fetch_add(&group.beats, 1);
    server_reply(c, h, &m);
}

static void leave(struct server_conn *c, struct kw_frame_request *h) {
    struct kw_leave_group_response m;
    kw_msg_init(&kw_leave_group_response_desc, &m);
    atomic_fetch_add(&group.leaves, 1);
    server_reply(c, h, &m);
}

static void offset_commit(struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    struct kw_offset_commit_request q;
    struct kw_offset_commit_response m;
    struct kw_offset_commit_response_partition p[PARTS] = {{0}};
    struct kw_offset_commit_response_topic t = {.partitions.v = p};
    kw_arena_reset(&group.arena);
    if (kw_decode(&kw_offset_commit_request_desc, h->version, body, &group.arena, &q) != KW_OK || q.topics.n > 1) abort();
    for (int32_t i = 0; q.topics.n == 1 && i < q.topics.v[0].partitions.n; i++) { /* what was given up meanwhile is not in it */
        const struct kw_offset_commit_request_partition *x = &q.topics.v[0].partitions.v[i];
        p[t.partitions.n++].partition_index = x->partition_index;
        atomic_store(&group.offsets[x->partition_index], x->committed_offset);
    }
    if (q.topics.n == 1) t.name = q.topics.v[0].name, t.topic_id = q.topics.v[0].topic_id;
    kw_msg_init(&kw_offset_commit_response_desc, &m);
    m.topics.v = &t;
    m.topics.n = q.topics.n;
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
        p[t.partitions.n++] = (struct kw_offset_fetch_response_partitions){
            .partition_index = k, .committed_offset = atomic_load(&group.offsets[k]), .committed_leader_epoch = -1, .metadata = kw_str_of("")};
    }
    kw_msg_init(&kw_offset_fetch_response_desc, &m);
    m.groups.v = &g;
    m.groups.n = 1;
    server_reply(c, h, &m);
}

static bool group_hook(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body) {
    switch (h->api_key) {
    case KW_API_FIND_COORDINATOR:
        find_coordinator(s, c, h);
        return true;
    case KW_API_JOIN_GROUP:
        join(c, h, body);
        return true;
    case KW_API_SYNC_GROUP:
        sync_group(c, h, body);
        return true;
    case KW_API_HEARTBEAT:
        heartbeat(c, h);
        return true;
    case KW_API_LEAVE_GROUP:
        leave(c, h);
        return true;
    case KW_API_OFFSET_COMMIT:
        offset_commit(c, h, body);
        return true;
    case KW_API_OFFSET_FETCH:
        offset_fetch(c, h, body);
        return true;
    default:
        return false;
    }
}

static struct rig group_rig(const char *const *mode, const char *const *pairs) {
    for (int p = 0; p < PARTS; p++) atomic_store(&group.offsets[p], -1);
    atomic_store(&group.generation, 0);
    atomic_store(&group.rebalance, false);
    atomic_store(&group.joins, 0);
    atomic_store(&group.leaves, 0);
    atomic_store(&group.beats, 0);
    atomic_store(&group.beat_code, 0);
    more = group_hook;
    return rig_new(mode, pairs);
}

static kc_err subscribe(struct rig *r) {
    const char *topics[] = {"t"};
    return kc_consumer_subscribe(r->consumer, topics, 1, NULL);
}

/* The next event of this kind; others are freed on the way, records counted. */
static kc_event *wait_for(struct rig *r, int32_t kind, int64_t *records) {
    int64_t end = now_us() + LONG_US;
    for (;;) {
        kc_event *e = NULL;
        kc_err err = kc_consumer_poll(r->consumer, &e, 100000);
        if (err == KC_TIMED_OUT && now_us() < end) continue;
        assert_int_equal(err, KC_OK);
        if (records && kc_event_kind(e) == KC_EVENT_RECORDS) *records += (int64_t)kc_event_count(e);
        if (kc_event_kind(e) == kind) return e;
        kc_event_free(e);
    }
}

static void test_subscribe_and_read(void **state) {
    (void)state;
    for (size_t m = 0; m < KW_COUNTOF(modes); m++) {
        struct rig r = group_rig(modes[m], PAIRS("group.id", "g", "auto.offset.reset", "earliest"));
        append(1, 75);
        atomic_store(&group.offsets[1], 5);
        assert_int_equal(kc_consumer_await_assigned(r.consumer, 0, NULL), KC_INVALID);
        assert_int_equal(subscribe(&r), KC_OK);
        assert_int_equal(kc_consumer_await_assigned(r.consumer, LONG_US, NULL), KC_OK);
        kc_event *e = wait_for(&r, KC_EVENT_ASSIGNED, NULL);
        kc_topic_partition tp[PARTS];
        assert_int_equal(kc_event_partitions(e, tp, sizeof tp[0], PARTS), PARTS);
        assert_int_equal(tp[2].topic, r.topic);
        assert_int_equal(tp[2].partition, 2);
        assert_true(kc_event_deadline_us(e) > 0);
        assert_int_equal(kc_event_ack(e), KC_OK);
        kc_event_free(e);
        int64_t records = 0;
        while (records < 70) kc_event_free(wait_for(&r, KC_EVENT_RECORDS, &records));
        assert_int_equal(records, 70);
        char id[8];
        int32_t generation;
        assert_int_equal(kc_consumer_member(r.consumer, &generation, id, sizeof id), 1);
        assert_string_equal(id, "m");
        assert_int_equal(generation, 1);
        kc_why w[8];
        size_t count;
        assert_int_equal(kc_consumer_why(r.consumer, w, sizeof w[0], 8, &count), KC_OK);
        assert_int_equal(count, 1 + PARTS);
        assert_int_equal(w[0].partition, -1);
        assert_int_equal(w[0].state, 20);
        assert_int_equal(kc_consumer_close(r.consumer, LONG_US, NULL), KC_OK);
        assert_int_equal(atomic_load(&group.leaves), 1);
        assert_int_equal(atomic_load(&group.offsets[1]), 50); /* a batch: the last event was not gone past */
        rig_free(&r);
    }
}

static void test_rebalance_and_events(void **state) {
    (void)state;
    for (size_t m = 0; m < KW_COUNTOF(modes); m++) {
        struct rig r = group_rig(modes[m], PAIRS("group.id", "g", "auto.offset.reset", "earliest", "heartbeat.interval.ms", "20"));
        append(0, 50);
        assert_int_equal(subscribe(&r), KC_OK);
        int64_t records = 0;
        while (records < 50) kc_event_free(wait_for(&r, KC_EVENT_RECORDS, &records));
        atomic_store(&group.rebalance, true);
        kc_event *e = wait_for(&r, KC_EVENT_REVOKED, NULL);
        assert_int_equal(kc_event_partitions(e, NULL, 0, 0), PARTS);
        assert_true(kc_event_deadline_us(e) > 0);
        kc_topic_partition tp = part(&r, 0, 0);
        assert_int_equal(kc_consumer_position(r.consumer, &tp, sizeof tp, 1), KC_OK); /* still its own */
        assert_int_equal(tp.offset, 50);
        assert_int_equal(kc_event_ack(e), KC_OK);
        assert_int_equal(kc_consumer_position(r.consumer, &tp, sizeof tp, 1), KC_NOT_ASSIGNED);
        kc_event *again = wait_for(&r, KC_EVENT_ASSIGNED, NULL);
        assert_int_equal(atomic_load(&group.offsets[0]), 50); /* committed before it was given up */
        assert_int_equal(atomic_load(&group.joins), 2);
        /* Lost, and told so. */
        atomic_store(&group.beat_code, KE_UNKNOWN_MEMBER_ID);
        kc_event *lost = wait_for(&r, KC_EVENT_LOST, NULL);
        atomic_store(&group.beat_code, 0);
        assert_int_equal(kc_event_partitions(lost, NULL, 0, 0), PARTS);
        assert_int_equal(kc_event_deadline_us(lost), KC_FOREVER);
        assert_int_equal(kc_event_ack(lost), KC_OK);
        kc_event *third = wait_for(&r, KC_EVENT_ASSIGNED, NULL);
        assert_int_equal(kc_consumer_unsubscribe(r.consumer, NULL), KC_OK);
        assert_int_equal(kc_event_ack(third), KC_LOST);
        assert_int_equal(kc_consumer_position(r.consumer, &tp, sizeof tp, 1), KC_NOT_ASSIGNED);
        for (int64_t end = now_us() + LONG_US; atomic_load(&group.leaves) == 0;) {
            kc_event *none = NULL;
            assert_int_equal(kc_consumer_poll(r.consumer, &none, 1000), KC_TIMED_OUT);
            assert_true(now_us() < end);
        }
        kc_consumer *consumer = r.consumer; /* events outlive the consumer */
        kc_consumer_free(consumer);
        r.consumer = NULL;
        assert_int_equal(kc_event_ack(e), KC_OK);
        assert_int_equal(kc_event_ack(third), KC_LOST);
        assert_int_equal(kc_event_partitions(again, NULL, 0, 0), PARTS);
        kc_event_free(e);
        kc_event_free(again);
        kc_event_free(lost);
        kc_event_free(third);
        rig_free(&r);
    }
}

struct acker {
    kc_event *e;
    kc_err err;
};
static void *ack_elsewhere(void *ctx) {
    struct acker *a = ctx;
    a->err = kc_event_ack(a->e);
    kc_event_free(a->e);
    return NULL;
}
static void *look_on(void *ctx) { /* what other threads may do meanwhile */
    struct rig *r = ctx;
    for (int i = 0; i < 300; i++) {
        kc_why w[8];
        size_t count;
        char id[16];
        int32_t generation;
        kc_topic_partition tp = part(r, i % PARTS, 0);
        if (kc_consumer_why(r->consumer, w, sizeof w[0], 8, &count) != KC_OK) break;
        (void)kc_consumer_member(r->consumer, &generation, id, sizeof id);
        (void)kc_consumer_pause(r->consumer, &tp, sizeof tp, 1);
        (void)kc_consumer_resume(r->consumer, &tp, sizeof tp, 1);
        (void)kc_consumer_await_assigned(r->consumer, 1000, NULL);
        (void)kc_consumer_commit(r->consumer, NULL, 0, 0, 1000, NULL);
    }
    return NULL;
}

/* Rebalances again and again, acknowledged by other threads, while records flow. */
static void test_threads(void **state) {
    (void)state;
    struct rig r = group_rig(modes[0], PAIRS("group.id", "g", "auto.offset.reset", "earliest", "heartbeat.interval.ms", "5",
                                             "auto.commit.interval.ms", "5"));
    pthread_t looker;
    int64_t records = 0;
    int rebalances = 0;
    assert_int_equal(subscribe(&r), KC_OK);
    assert_int_equal(pthread_create(&looker, NULL, look_on, &r), 0);
    for (int64_t end = now_us() + LONG_US; rebalances < 20;) {
        kc_event *e = NULL;
        kc_err err = kc_consumer_poll(r.consumer, &e, 20000);
        assert_true(now_us() < end);
        append(rebalances % PARTS, 10);
        if (err == KC_TIMED_OUT) continue;
        assert_int_equal(err, KC_OK);
        if (kc_event_kind(e) == KC_EVENT_RECORDS) {
            records += (int64_t)kc_event_count(e);
            kc_event_free(e);
            atomic_store(&group.rebalance, true); /* once something flows */
        } else if (kc_event_kind(e) == KC_EVENT_ASSIGNED || kc_event_kind(e) == KC_EVENT_REVOKED) {
            rebalances += kc_event_kind(e) == KC_EVENT_ASSIGNED;
            struct acker a = {.e = e};
            pthread_t t;
            assert_int_equal(pthread_create(&t, NULL, ack_elsewhere, &a), 0);
            assert_int_equal(pthread_join(t, NULL), 0);
            assert_int_equal(a.err, KC_OK);
        } else {
            kc_event_free(e);
        }
    }
    assert_true(records > 0);
    assert_int_equal(pthread_join(looker, NULL), 0);
    assert_int_equal(kc_consumer_close(r.consumer, LONG_US, NULL), KC_OK);
    rig_free(&r);
}

/* CX-13. All connections drop again and again while heartbeats, polls, commits and acknowledgements of several threads are under way. Locks have ranks,
 * and a build with assertions ends at the first that is taken out of order, deadlock or not: that both paths have run is what counts here. */
static void test_cx13_connections_drop(void **state) {
    (void)state;
    struct rig r = group_rig(modes[0], PAIRS("group.id", "g", "auto.offset.reset", "earliest", "heartbeat.interval.ms", "5",
                                             "auto.commit.interval.ms", "5", "reconnect.backoff.ms", "1", "reconnect.backoff.max.ms", "2",
                                             "retry.backoff.ms", "1", "retry.backoff.max.ms", "2"));
    pthread_t looker;
    int64_t records = 0;
    int drops = 0, assigned = 0;
    assert_int_equal(subscribe(&r), KC_OK);
    assert_int_equal(pthread_create(&looker, NULL, look_on, &r), 0);
    for (int64_t end = now_us() + LONG_US; drops < 200 || assigned < 10;) {
        kc_event *e = NULL;
        int beats = atomic_load(&group.beats);
        kc_err err = kc_consumer_poll(r.consumer, &e, 2000);
        assert_true(now_us() < end);
        append(drops % PARTS, 3);
        if (atomic_load(&group.beats) > beats) { /* it is a member: in the middle of it */
            atomic_store(&r.server->drop, true);
            if (++drops % 10 == 0) atomic_store(&group.rebalance, true);
        }
        if (err == KC_TIMED_OUT) continue;
        assert_int_equal(err, KC_OK);
        int32_t kind = kc_event_kind(e);
        if (kind == KC_EVENT_RECORDS) records += (int64_t)kc_event_count(e);
        assigned += kind == KC_EVENT_ASSIGNED;
        if (kind == KC_EVENT_ASSIGNED || kind == KC_EVENT_REVOKED) {
            struct acker a = {.e = e};
            pthread_t t;
            assert_int_equal(pthread_create(&t, NULL, ack_elsewhere, &a), 0);
            assert_int_equal(pthread_join(t, NULL), 0);
            assert_true(a.err == KC_OK || a.err == KC_LOST);
        } else {
            kc_event_free(e);
        }
    }
    assert_true(records > 0);
    assert_int_equal(pthread_join(looker, NULL), 0);
    assert_int_equal(kc_consumer_close(r.consumer, LONG_US, NULL), KC_OK);
    rig_free(&r);
}

static void test_close_keeps_its_limit(void **state) {
    (void)state;
    for (size_t m = 0; m < KW_COUNTOF(modes); m++) {
        struct rig r = group_rig(modes[m], PAIRS("group.id", "g", "auto.offset.reset", "earliest"));
        append(0, 50);
        assert_int_equal(subscribe(&r), KC_OK);
        int64_t records = 0;
        while (records < 50) kc_event_free(wait_for(&r, KC_EVENT_RECORDS, &records));
        kc_event *none = NULL;
        (void)kc_consumer_poll(r.consumer, &none, 0);
        atomic_store(&peer.frozen, true);
        kc_err err = kc_consumer_close(r.consumer, 300000, NULL);
        assert_true(err == KC_OK || err == KC_TIMED_OUT);
        atomic_store(&peer.frozen, false);
        rig_free(&r);
    }
}

static void test_wrong_arguments(void **state) {
    (void)state;
    const char *bad[] = {"t", "no topic"}, *pattern[] = {"^t", "a("}, *topics[] = {"t"};
    kc_error *e = NULL;
    struct rig r = group_rig(modes[0], NULL);
    assert_int_equal(kc_consumer_subscribe(r.consumer, topics, 1, &e), KC_CONFIG);
    assert_non_null(strstr(kc_error_message(e), "group.id"));
    kc_error_free(e);
    rig_free(&r);
    r = group_rig(modes[0], PAIRS("group.id", "g"));
    e = NULL;
    assert_int_equal(kc_consumer_subscribe(r.consumer, bad, 2, &e), KC_INVALID);
    assert_non_null(strstr(kc_error_message(e), "no topic"));
    kc_error_free(e);
    e = NULL;
    assert_int_equal(kc_consumer_subscribe_regex(r.consumer, pattern, 2, &e), KC_INVALID);
    assert_non_null(strstr(kc_error_message(e), "a("));
    kc_error_free(e);
    assert_int_equal(kc_consumer_subscribe(r.consumer, NULL, 1, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_subscribe(NULL, topics, 1, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_unsubscribe(r.consumer, NULL), KC_OK); /* there is none: nothing happens */
    kc_topic_partition tp = part(&r, 0, 0);
    assert_int_equal(kc_consumer_assign(r.consumer, &tp, sizeof tp, 1, NULL), KC_OK);
    assert_int_equal(kc_consumer_subscribe(r.consumer, topics, 1, NULL), KC_INVALID);
    assert_int_equal(kc_consumer_assign(r.consumer, NULL, sizeof tp, 0, NULL), KC_OK);
    assert_int_equal(kc_consumer_subscribe(r.consumer, topics, 1, NULL), KC_OK);
    assert_int_equal(kc_consumer_assign(r.consumer, &tp, sizeof tp, 1, NULL), KC_INVALID);
    assert_int_equal(kc_event_ack(NULL), KC_INVALID);
    assert_int_equal(kc_event_partitions(NULL, NULL, 0, 0), 0);
    assert_int_equal(kc_consumer_member(NULL, NULL, NULL, 0), 0);
    rig_free(&r);
    kc_config *c = kc_config_new();
    kc_client *client;
    kc_consumer *consumer = NULL;
    assert_int_equal(kc_config_set(c, "bootstrap.servers", "127.0.0.1:1", NULL), KC_OK);
    assert_int_equal(kc_client_new(c, &client, NULL), KC_OK);
    assert_int_equal(kc_config_set(c, "group.id", "g", NULL), KC_OK);
    assert_int_equal(kc_config_set(c, "partition.assignment.strategy", "range,best", NULL), KC_OK);
    e = NULL;
    assert_int_equal(kc_consumer_new(client, c, KC_PROCESSED_BY_POLL, &consumer, &e), KC_CONFIG);
    assert_non_null(strstr(kc_error_message(e), "\"best\""));
    kc_error_free(e);
    assert_int_equal(kc_config_set(c, "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor, range", NULL),
                     KC_OK);
    assert_int_equal(kc_consumer_new(client, c, KC_PROCESSED_BY_POLL, &consumer, NULL), KC_OK);
    kc_consumer_free(consumer);
    kc_client_free(client);
    kc_config_free(c);
}

static void test_patterns(void **state) {
    (void)state;
    const char *pattern[] = {"^(t|u)$"}, *other[] = {"^x"};
    struct rig r = group_rig(modes[0], PAIRS("group.id", "g", "auto.offset.reset", "earliest", "heartbeat.interval.ms", "20"));
    append(2, 20);
    assert_int_equal(kc_consumer_subscribe_regex(r.consumer, pattern, 1, NULL), KC_OK);
    int64_t records = 0;
    while (records < 20) kc_event_free(wait_for(&r, KC_EVENT_RECORDS, &records));
    assert_int_equal(kc_consumer_subscribe_regex(r.consumer, other, 1, NULL), KC_OK);
    kc_event_free(wait_for(&r, KC_EVENT_REVOKED, NULL));
    kc_event *e = wait_for(&r, KC_EVENT_ASSIGNED, NULL);
    assert_int_equal(kc_event_partitions(e, NULL, 0, 0), 0);
    kc_event_free(e);
    rig_free(&r);
    r = group_rig(modes[0], PAIRS("group.id", "g", "topic.blacklist", "^z,^t$"));
    assert_int_equal(kc_consumer_subscribe_regex(r.consumer, pattern, 1, NULL), KC_OK);
    e = wait_for(&r, KC_EVENT_ASSIGNED, NULL);
    assert_int_equal(kc_event_partitions(e, NULL, 0, 0), 0);
    kc_event_free(e);
    rig_free(&r);
}

/* The application's own loop, and the session over by the clock before the loop has looked: nothing that is there may be handed out, and poll neither
 * waits for longer than it may nor without running the loop. */
static void test_poll_waits_for_a_look_at_the_session(void **state) {
    (void)state;
    struct rig r = group_rig(modes[1], PAIRS("group.id", "g", "auto.offset.reset", "earliest"));
    append(0, 10);
    assert_int_equal(subscribe(&r), KC_OK);
    kc_event_free(wait_for(&r, KC_EVENT_ASSIGNED, NULL));
    kc_event *e = NULL;
    assert_int_equal(kc_consumer_poll(r.consumer, &e, 0), KC_TIMED_OUT); /* acknowledges it */
    for (int i = 0; i < 2; i++) {
        while (!kc_consume_ready(&r.consumer->consume)) assert_int_equal(kc_client_run_once(r.client, 10000, 0), KC_OK);
        atomic_store(&r.consumer->consume.session_by_us, 1);
        assert_int_equal(kc_consumer_poll(r.consumer, &e, 0), KC_TIMED_OUT);
        if (i == 1) assert_int_equal(kc_client_run_once(r.client, 0, 0), KC_OK);
        assert_int_equal(kc_consumer_poll(r.consumer, &e, i == 1 ? 0 : LONG_US), KC_OK);
        assert_int_equal(kc_event_kind(e), KC_EVENT_RECORDS);
        kc_event_free(e);
        append(1, 10);
    }
    rig_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_subscribe_and_read), cmocka_unit_test(test_rebalance_and_events),
        cmocka_unit_test(test_threads),            cmocka_unit_test(test_cx13_connections_drop),
        cmocka_unit_test(test_close_keeps_its_limit), cmocka_unit_test(test_poll_waits_for_a_look_at_the_session),
        cmocka_unit_test(test_wrong_arguments),    cmocka_unit_test(test_patterns),
    };
    kw_arena_init(&group.arena, 0);
    kw_arena_init(&peer.arena, 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kw_arena_deinit(&group.arena);
    kw_arena_deinit(&peer.arena);
    return failed;
}
