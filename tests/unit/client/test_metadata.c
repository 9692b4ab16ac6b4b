/* The client's metadata: what it asks, when it asks again, what it believes. */
#include "peer.h"

static struct net *two_brokers(const char *const *pairs) {
    struct net *n = net_new(pairs);
    net_broker(n, 0, "b0", 9092);
    net_broker(n, 1, "b1", 9092);
    return n;
}

static struct kc_topic_meta *want(struct net *n, const char *name) {
    int32_t t = kc_metadata_intern(n->core, name, strlen(name));
    assert_true(t > 0);
    kc_metadata_want(n->core, t);
    net_turn(n);
    return kc_metadata_topic(n->core, t);
}

static void test_names_become_numbers(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    char name[300];
    for (int32_t i = 1; i <= 3000; i++) {
        snprintf(name, sizeof name, "topic-%d", i);
        assert_int_equal(kc_metadata_intern(n->core, name, strlen(name)), i);
    }
    for (int32_t i = 1; i <= 3000; i++) {
        snprintf(name, sizeof name, "topic-%d", i);
        assert_int_equal(kc_metadata_intern(n->core, name, strlen(name)), i);
        assert_string_equal(kc_metadata_topic(n->core, i)->name, name);
    }
    assert_null(kc_metadata_topic(n->core, 0));
    assert_null(kc_metadata_topic(n->core, 3001));
    net_free(n);
}

/* PR-15, the client's part: names that no topic can have are refused before anyone is asked. That "a.b" collides with "a_b" only a broker knows. */
static void test_PR_15_illegal_names_are_refused_at_once(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    char name[250];
    memset(name, 'n', sizeof name);
    const char *bad[] = {"", ".", "..", "a/b", "a b", "\xc3\xa4", "a\n"}, *good[] = {"...", "a.b", "a_b", "-", "A-Z_0.9"};
    for (size_t i = 0; i < KW_COUNTOF(bad); i++) assert_int_equal(kc_metadata_intern(n->core, bad[i], strlen(bad[i])), 0);
    assert_int_equal(kc_metadata_intern(n->core, "a\0b", 3), 0);
    assert_int_equal(kc_metadata_intern(n->core, name, 250), 0);
    assert_int_equal(kc_metadata_intern(n->core, name, 249), 1);
    for (size_t i = 0; i < KW_COUNTOF(good); i++) assert_int_equal(kc_metadata_intern(n->core, good[i], strlen(good[i])), 2 + i);
    net_turn(n);
    assert_int_equal(n->opened, 0);
    net_free(n);
}

static int32_t asked_topics;
static bool count_asked(struct net *n, struct request *rq) {
    if (rq->head.api_key != KW_API_METADATA) return false;
    struct kw_in body = rq->body;
    struct kw_metadata_request q;
    assert_int_equal(kw_decode(&kw_metadata_request_desc, rq->head.version, &body, &n->arena, &q), KW_OK);
    asked_topics += q.topics.n;
    return false;
}

static void test_only_wanted_topics_are_asked_for_together(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    n->hook = count_asked;
    asked_topics = 0;
    const char *names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        net_topic(n, names[i], (uint8_t)(i + 1), 2, 1);
        int32_t t = kc_metadata_intern(n->core, names[i], 1);
        if (i < 3) kc_metadata_want(n->core, t);
    }
    net_turn(n);
    assert_int_equal(n->requests[KW_API_METADATA], 1);
    assert_int_equal(asked_topics, 3);
    want(n, "d");
    assert_int_equal(n->requests[KW_API_METADATA], 2);
    assert_int_equal(asked_topics, 4); /* the other three are known */
    want(n, "a");
    assert_int_equal(n->requests[KW_API_METADATA], 2);
    net_free(n);
}

static void test_stale_metadata_is_asked_for_again_and_unwanted_topics_expire(void **state) {
    (void)state;
    const char *pairs[] = {"metadata.max.age.ms", "10000", "metadata.max.idle.ms", "20000", NULL};
    struct net *n = two_brokers(pairs);
    net_topic(n, "a", 1, 1, 1);
    struct kc_topic_meta *m = want(n, "a");
    net_advance(n, 100000000);
    assert_in_range(n->requests[KW_API_METADATA], 10, 12);
    kc_metadata_unwant(n->core, m->topic);
    net_advance(n, 100000000);
    int before = n->requests[KW_API_METADATA];
    assert_in_range(before, 11, 15);
    net_advance(n, 1000000000);
    assert_int_equal(n->requests[KW_API_METADATA], before);
    assert_false(m->known);
    want(n, "a");
    assert_true(m->known);
    net_free(n);
}

/* CX-11: a topic that does not exist, for a minute, while its users ask for a refresh all the time. */
static void test_CX_11_missing_topic_is_asked_for_seldom(void **state) {
    (void)state;
    for (int impatient = 0; impatient < 2; impatient++) {
        struct net *n = two_brokers(NULL);
        struct kc_topic_meta *m = want(n, "missing");
        assert_true(m->known);
        assert_int_equal(m->err, KE_UNKNOWN_TOPIC_OR_PARTITION);
        int seen = 0;
        for (int i = 0; i < 600; i++) {
            if (impatient) {
                kc_metadata_want(n->core, m->topic);
                kc_metadata_unwant(n->core, m->topic);
            }
            net_advance(n, 100000);
            seen = n->requests[KW_API_METADATA];
        }
        assert_in_range(seen, 8, 30);
        net_topic(n, "missing", 1, 1, 1); /* it appears: found within the longest backoff */
        net_advance(n, 6500000);
        assert_int_equal(m->err, 0);
        net_free(n);
    }
}

static void test_refreshes_are_limited(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    net_topic(n, "a", 1, 1, 1);
    want(n, "a");
    int before = n->requests[KW_API_METADATA];
    for (int i = 0; i < 6000; i++) {
        kc_metadata_refresh(n->core, "not leader"); /* nothing ever changes */
        net_advance(n, 10000);
    }
    int more = n->requests[KW_API_METADATA] - before;
    assert_in_range(more, 40, 90); /* a minute, at most one a second after the first few */
    net_free(n);
}

static void test_the_first_refresh_after_a_change_is_immediate(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    struct model_topic *t = net_topic(n, "a", 1, 1, 1);
    struct kc_topic_meta *m = want(n, "a");
    t->leader[0] = 0;
    t->epoch[0] = 1;
    net_advance(n, 60000000);
    kc_metadata_refresh(n->core, "not leader");
    net_turn(n);
    assert_int_equal(m->partitions[0].leader, 0);
    net_free(n);
}

/* CX-02: deleted and created anew with another leader, epoch 0 where 57 was known. */
static void test_CX_02_recreated_topic(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    struct model_topic *t = net_topic(n, "a", 1, 3, 1);
    for (int i = 0; i < 3; i++) t->epoch[i] = 57;
    struct kc_topic_meta *m = want(n, "a");
    assert_int_equal(m->partitions[0].leader_epoch, 57);
    uint32_t generation = m->generation;
    t->id.b[0] = 2;
    t->partitions = 2;
    for (int i = 0; i < 3; i++) {
        t->epoch[i] = 0;
        t->leader[i] = 0;
    }
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 1000000);
    assert_int_equal(m->partition_count, 2);
    assert_int_equal(m->partitions[1].leader, 0);
    assert_int_equal(m->partitions[1].leader_epoch, 0);
    assert_true(m->generation > generation);
    assert_ptr_equal(kc_metadata_by_id(n->core, t->id), m);
    struct kw_uuid old = {{1}};
    assert_null(kc_metadata_by_id(n->core, old));
    net_free(n);
}

static void test_epochs_never_go_back_under_one_id(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    struct model_topic *t = net_topic(n, "a", 1, 1, 1);
    t->epoch[0] = 10;
    struct kc_topic_meta *m = want(n, "a");
    t->epoch[0] = 9; /* a broker that lags behind */
    t->leader[0] = 0;
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 300000);
    assert_int_equal(m->partitions[0].leader, 1);
    assert_int_equal(m->partitions[0].leader_epoch, 10);
    t->epoch[0] = 11;
    net_advance(n, 3000000); /* asked again by itself */
    assert_int_equal(m->partitions[0].leader, 0);
    net_free(n);
}

/* CX-02 at a broker that names no topic ids (before Kafka 2.8): the lower epoch that stays is no view that lags behind, but another topic. */
static void test_CX_02_recreated_topic_without_ids(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    struct model_topic *t = net_topic(n, "a", 0, 1, 1);
    n->api_max[KW_API_METADATA] = 9;
    t->epoch[0] = 57;
    struct kc_topic_meta *m = want(n, "a");
    assert_int_equal(m->partitions[0].leader_epoch, 57);
    t->epoch[0] = 0;
    t->leader[0] = 0;
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 1000000);
    assert_int_equal(m->partitions[0].leader, 1); /* it may be one that lags */
    net_advance(n, 10000000);
    assert_int_equal(m->partitions[0].leader, 0);
    assert_int_equal(m->partitions[0].leader_epoch, 0);
    net_free(n);
}

/* Epochs in answers before version 9 may be old ones (KAFKA-9212): they are not relied on. */
static void test_epochs_of_old_versions_are_not_relied_on(void **state) {
    (void)state;
    for (int16_t v = 7; v <= 9; v++) {
        struct net *n = two_brokers(NULL);
        struct model_topic *t = net_topic(n, "a", 0, 1, 1);
        n->api_max[KW_API_METADATA] = v;
        t->epoch[0] = 5;
        struct kc_topic_meta *m = want(n, "a");
        assert_int_equal(m->partitions[0].leader_epoch, v < 9 ? -1 : 5);
        assert_int_equal(m->partitions[0].leader, 1);
        net_free(n);
    }
}

static void test_partitions_grow_and_never_shrink(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    struct model_topic *t = net_topic(n, "a", 1, 2, 1);
    struct kc_topic_meta *m = want(n, "a");
    t->partitions = 5;
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 1000000);
    assert_int_equal(m->partition_count, 5);
    assert_int_equal(m->partitions[4].leader, 1);
    t->partitions = 3;
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 1000000);
    assert_int_equal(m->partition_count, 5);
    net_free(n);
}

static void test_leader_not_available_is_asked_again(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    struct model_topic *t = net_topic(n, "a", 1, 2, 1);
    t->partition_err[1] = KE_LEADER_NOT_AVAILABLE;
    t->leader[1] = -1;
    struct kc_topic_meta *m = want(n, "a");
    assert_int_equal(m->partitions[0].leader, 1);
    assert_int_equal(m->partitions[1].leader, -1);
    t->partition_err[1] = 0;
    t->leader[1] = 0;
    net_advance(n, 200000);
    assert_int_equal(m->partitions[1].leader, 0);
    net_free(n);
}

static void test_a_leader_that_no_broker_is(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    struct model_topic *t = net_topic(n, "a", 1, 1, 77);
    struct kc_topic_meta *m = want(n, "a");
    assert_int_equal(m->partitions[0].leader, -1);
    t->leader[0] = 1;
    net_advance(n, 200000);
    assert_int_equal(m->partitions[0].leader, 1);
    net_free(n);
}

struct ear {
    struct kc_metadata_listener l;
    int heard;
    bool leaves;
};
static void on_change(struct kc_metadata_listener *l) {
    struct ear *e = KW_CONTAINER_OF(l, struct ear, l);
    e->heard++;
    if (e->leaves) kc_metadata_unlisten(l);
}

static void test_listeners_and_leader_hints(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    struct model_topic *t = net_topic(n, "a", 1, 1, 1);
    t->epoch[0] = 5;
    struct ear ears[3] = {0};
    ears[1].leaves = true;
    for (int i = 0; i < 3; i++) {
        ears[i].l.changed = on_change;
        kc_metadata_listen(n->core, &ears[i].l);
    }
    struct kc_topic_meta *m = want(n, "a");
    for (int i = 0; i < 3; i++) assert_int_equal(ears[i].heard, 1);
    assert_true(kc_metadata_leader_hint(n->core, m->topic, 0, 1, 9, 6, kw_str_of("b9"), 9099)); /* KIP-951: a broker not heard of before */
    assert_int_equal(ears[0].heard, 1); /* not from inside */
    net_turn(n);
    assert_int_equal(ears[0].heard, 2);
    assert_int_equal(ears[1].heard, 1);
    assert_int_equal(m->partitions[0].leader, 9);
    assert_false(kc_metadata_leader_hint(n->core, m->topic, 0, 9, 0, 6, kw_str_null(), -1)); /* not newer */
    assert_true(kc_metadata_leader_hint(n->core, m->topic, 0, 1, 0, 6, kw_str_null(), -1)); /* nor is it, but broker 1 does not lead */
    assert_int_equal(m->partitions[0].leader, 9);
    assert_true(kc_metadata_leader_hint(n->core, m->topic, 0, 9, 0, 7, kw_str_null(), -1));
    assert_int_equal(m->partitions[0].leader, 0);
    assert_false(kc_metadata_leader_hint(n->core, m->topic, 5, 9, 0, 7, kw_str_null(), -1)); /* no such partition */
    assert_false(kc_metadata_leader_hint(n->core, 99, 0, 9, 0, 7, kw_str_null(), -1));
    net_turn(n);
    for (int i = 0; i < 3; i++) kc_metadata_unlisten(&ears[i].l);
    net_free(n);
}

/* PR-03: unknown tagged fields on every level of the answer, of sizes that need one, two and three bytes. */
static size_t tag_size;
static void tags(struct kw_out *o) {
    static uint8_t zeros[70000];
    kw_out_uvarint(o, 2);
    kw_out_uvarint(o, 70);
    kw_out_uvarint(o, (uint32_t)tag_size);
    kw_out_bytes(o, zeros, tag_size);
    kw_out_uvarint(o, 5000);
    kw_out_uvarint(o, 0);
}
static void compact_string(struct kw_out *o, const char *s) {
    kw_out_uvarint(o, (uint32_t)strlen(s) + 1);
    kw_out_bytes(o, s, strlen(s));
}
static bool tagged_answer(struct net *n, struct request *rq) {
    (void)n;
    if (rq->head.api_key != KW_API_METADATA) return false;
    struct kw_out o;
    kw_out_init(&o);
    kw_out_i32(&o, 0);
    kw_out_i32(&o, rq->head.correlation_id);
    tags(&o); /* of the header */
    kw_out_i32(&o, 0);
    kw_out_uvarint(&o, 2);
    kw_out_i32(&o, 1);
    compact_string(&o, "b0");
    kw_out_i32(&o, 9092);
    kw_out_uvarint(&o, 0);
    tags(&o); /* of the broker */
    compact_string(&o, "cluster");
    kw_out_i32(&o, 1);
    kw_out_uvarint(&o, 2);
    kw_out_i16(&o, 0);
    compact_string(&o, "a");
    static const uint8_t id[16] = {7};
    kw_out_bytes(&o, id, 16);
    kw_out_i8(&o, 0);
    kw_out_uvarint(&o, 2);
    kw_out_i16(&o, 0);
    kw_out_i32(&o, 0);
    kw_out_i32(&o, 1);
    kw_out_i32(&o, 3);
    for (int i = 0; i < 3; i++) kw_out_uvarint(&o, 1);
    tags(&o); /* of the partition */
    kw_out_i32(&o, INT32_MIN);
    tags(&o); /* of the topic */
    if (rq->head.version >= 13) kw_out_i16(&o, 0);
    tags(&o); /* of the answer */
    kw_store32(o.p, (uint32_t)o.len - 4);
    link_feed(rq->link, o.p, o.len);
    kw_out_deinit(&o);
    return true;
}
static void test_PR_03_unknown_tags_everywhere(void **state) {
    (void)state;
    size_t sizes[] = {0, 1, 127, 128, 70000};
    for (size_t i = 0; i < KW_COUNTOF(sizes); i++) {
        struct net *n = two_brokers(NULL);
        n->hook = tagged_answer;
        tag_size = sizes[i];
        struct kc_topic_meta *m = want(n, "a");
        assert_int_equal(m->err, 0);
        assert_int_equal(m->partition_count, 1);
        assert_int_equal(m->partitions[0].leader, 1);
        assert_int_equal(m->partitions[0].leader_epoch, 3);
        assert_int_equal(m->id.b[0], 7);
        net_free(n);
    }
}

/* PR-01, the client's side: null where the schema has an array or a string, and counts that the bytes cannot hold. */
static const char *bad_body;
static size_t bad_size;
static bool bad_answer(struct net *n, struct request *rq) {
    (void)n;
    if (rq->head.api_key != KW_API_METADATA) return false;
    uint8_t p[128];
    kw_store32(p, (uint32_t)(bad_size + 5));
    kw_store32(p + 4, (uint32_t)rq->head.correlation_id);
    p[8] = 0;
    memcpy(p + 9, bad_body, bad_size);
    link_feed(rq->link, p, bad_size + 9);
    return true;
}
static void test_PR_01_null_and_absurd_arrays(void **state) {
    (void)state;
    static const struct {
        const char *p;
        size_t n;
    } cases[] = {
        {"\0\0\0\0\0", 5},                              /* brokers: null */
        {"\0\0\0\0\xff\xff\xff\xff\x0f", 9},            /* brokers: 2^32 - 2 of them */
        {"\0\0\0\0\x02\0\0\0\1\0\0\0\x23\x84\0\0", 17}, /* a broker whose host is null */
        {"\0\0\0\0\1\0\0\0\0\1\0", 11},                 /* topics: null */
        {"", 0},
    };
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        struct net *n = two_brokers(NULL);
        n->hook = bad_answer;
        bad_body = cases[i].p;
        bad_size = cases[i].n;
        struct kc_topic_meta *m = want(n, "a");
        net_advance(n, 1000000);
        assert_false(m->known);
        assert_true(net_logged(n, 3, "cannot be read"));
        n->hook = NULL;
        net_topic(n, "a", 1, 1, 1);
        net_advance(n, 3000000);
        assert_true(m->known); /* and it goes on */
        net_free(n);
    }
}

static void test_old_brokers_without_ids_and_epochs(void **state) {
    (void)state;
    for (int16_t v = 1; v < 13; v++) {
        struct net *n = two_brokers(NULL);
        n->api_max[KW_API_METADATA] = v;
        struct model_topic *t = net_topic(n, "a", 1, 2, 1);
        struct kc_topic_meta *m = want(n, "a");
        assert_int_equal(m->err, 0);
        assert_int_equal(m->partition_count, 2);
        assert_int_equal(m->partitions[1].leader, 1);
        assert_int_equal(m->partitions[1].leader_epoch, v >= 9 ? 0 : -1);
        t->leader[1] = 0;
        kc_metadata_refresh(n->core, "test");
        net_advance(n, 1000000);
        assert_int_equal(m->partitions[1].leader, 0);
        net_free(n);
    }
}

/* A client that knows broker 1 by the bootstrap name "entry"; then the broker is at "new", and its connections are gone. */
static struct net *moved_cluster(const char *trigger_ms, const char *strategy) {
    const char *pairs[] = {"metadata.recovery.rebootstrap.trigger.ms", trigger_ms, "bootstrap.servers", "entry:9092", "metadata.recovery.strategy",
                           strategy, NULL};
    struct net *n = net_new(pairs);
    net_broker(n, -1, "entry", 9092);
    struct model_broker *b = net_broker(n, 1, "old", 9092);
    net_topic(n, "a", 1, 1, 1);
    struct kc_topic_meta *m = want(n, "a");
    assert_int_equal(m->partitions[0].leader, 1);
    b->host = "new";
    for (size_t i = 0; i < n->link_count; i++) {
        if (n->links[i].up) link_lost(&n->links[i], KW_EIO, "reset");
    }
    return n;
}
static void finds_the_new_one(struct net *n) {
    struct call c;
    static struct kw_metadata_request q;
    kw_msg_init(&kw_metadata_request_desc, &q);
    call_init(&c, n, KW_API_METADATA, 1, &q);
    kc_core_send(n->core, &c.rq);
    net_advance(n, 1000000);
    assert_int_equal(c.err, KC_OK);
    assert_non_null(net_link(n, "new"));
    net_free(n);
}

/* KIP-899: every known broker is gone; the bootstrap name leads to new ones. */
static void test_KIP_899_bootstraps_again(void **state) {
    (void)state;
    struct net *n = moved_cluster("300000", "rebootstrap");
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 3000000);
    assert_true(net_logged(n, 4, "starting again from bootstrap.servers"));
    finds_the_new_one(n);
    n = moved_cluster("300000", "none");
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 400000000);
    assert_false(net_logged(n, 4, "starting again from bootstrap.servers"));
    net_free(n);
}

/* The old address still lets one connect, and never answers: after the time for which metadata may be missing (KIP-1102). */
static void test_KIP_1102_no_metadata_for_long(void **state) {
    (void)state;
    struct net *n = moved_cluster("20000", "rebootstrap");
    net_broker(n, -1, "old", 9092)->silent = true;
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 19000000);
    assert_false(net_logged(n, 4, "starting again from bootstrap.servers"));
    net_advance(n, 3000000);
    assert_true(net_logged(n, 4, "starting again from bootstrap.servers"));
    finds_the_new_one(n);
}

/* A broker that serves no longer for this client says so: REBOOTSTRAP_REQUIRED (KIP-1102). */
static bool sends_away(struct net *n, struct request *rq) {
    if (rq->head.api_key != KW_API_METADATA || strcmp(rq->link->host, "old") != 0) return false;
    struct kw_metadata_response m;
    kw_msg_init(&kw_metadata_response_desc, &m);
    m.error_code = KE_REBOOTSTRAP_REQUIRED;
    (void)n;
    net_answer(rq, &m);
    return true;
}
static void test_KIP_1102_a_broker_sends_the_client_away(void **state) {
    (void)state;
    struct net *n = moved_cluster("300000", "rebootstrap");
    net_broker(n, -1, "old", 9092);
    n->hook = sends_away;
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 3000000);
    assert_true(net_logged(n, 4, "starting again from bootstrap.servers: the broker asks for it"));
    finds_the_new_one(n);
}

static void test_controller_requests(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    n->controller = 1;
    struct call c;
    static struct kw_metadata_request q;
    kw_msg_init(&kw_metadata_request_desc, &q);
    call_init(&c, n, KW_API_METADATA, KC_BROKER_CONTROLLER, &q);
    kc_core_send(n->core, &c.rq);
    net_turn(n);
    assert_int_equal(c.err, KC_OK);
    assert_int_equal(c.rq.sent_to, 1);
    n->controller = -1; /* none known: anyone will do */
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 1000000);
    call_init(&c, n, KW_API_METADATA, KC_BROKER_CONTROLLER, &q);
    kc_core_send(n->core, &c.rq);
    net_turn(n);
    assert_int_equal(c.err, KC_OK);
    net_free(n);
}

static void test_the_bootstrap_connection_becomes_the_brokers(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    net_topic(n, "a", 1, 1, 0);
    want(n, "a");
    struct call c;
    static struct kw_metadata_request q;
    kw_msg_init(&kw_metadata_request_desc, &q);
    call_init(&c, n, KW_API_METADATA, 0, &q);
    kc_core_send(n->core, &c.rq);
    net_turn(n);
    assert_int_equal(c.err, KC_OK);
    assert_int_equal(n->opened, 1);
    net_free(n);
}

static void test_a_broker_that_left_the_cluster(void **state) {
    (void)state;
    struct net *n = two_brokers(NULL);
    net_topic(n, "a", 1, 1, 0);
    want(n, "a");
    n->broker_count = 1;
    kc_metadata_refresh(n->core, "test");
    net_advance(n, 1000000);
    struct call c;
    static struct kw_metadata_request q;
    kw_msg_init(&kw_metadata_request_desc, &q);
    call_init(&c, n, KW_API_METADATA, 1, &q);
    kc_core_send(n->core, &c.rq);
    net_turn(n);
    assert_int_equal(c.err, KC_TRANSPORT);
    assert_false(c.rq.sent);
    net_free(n);
}

static void ignore(struct kw_timer *t, void *ctx, int64_t now_us) { (void)t, (void)ctx, (void)now_us; }

/* No memory for the timer of a refresh that has to wait: it goes out all the same. */
static void test_a_refresh_survives_the_loss_of_its_timer(void **state) {
    (void)state;
    const char *pairs[] = {"metadata.max.age.ms", "-1", "connections.max.idle.ms", "-1", NULL};
    struct net *n = net_new(pairs);
    net_broker(n, 1, "b0", 9092);
    for (int i = 0; i < 3; i++) { /* until one that changes nothing makes the next one wait */
        net_advance(n, 5000000);
        kc_metadata_refresh(n->core, "test");
        net_turn(n);
    }
    int before = n->requests[KW_API_METADATA];
    static struct kw_timer filler[1000];
    struct kw_timers *ts = kc_core_timers(n->core);
    size_t used = 0;
    for (; ts->count + ts->late < ts->cap; used++) {
        kw_timer_init(&filler[used], ignore, NULL);
        assert_int_equal(kw_timers_set(ts, &filler[used], KW_NEVER - 1), KW_OK);
    }
    kw_alloc_fail_after(0);
    kc_metadata_refresh(n->core, "test");
    kw_alloc_fail_after(-1);
    for (size_t i = 0; i < used; i++) kw_timers_cancel(ts, &filler[i]);
    net_advance(n, 5000000);
    assert_int_equal(n->requests[KW_API_METADATA], before + 1);
    net_free(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_become_numbers),
        cmocka_unit_test(test_PR_15_illegal_names_are_refused_at_once),
        cmocka_unit_test(test_only_wanted_topics_are_asked_for_together),
        cmocka_unit_test(test_stale_metadata_is_asked_for_again_and_unwanted_topics_expire),
        cmocka_unit_test(test_CX_11_missing_topic_is_asked_for_seldom),
        cmocka_unit_test(test_refreshes_are_limited),
        cmocka_unit_test(test_the_first_refresh_after_a_change_is_immediate),
        cmocka_unit_test(test_CX_02_recreated_topic),
        cmocka_unit_test(test_epochs_never_go_back_under_one_id),
        cmocka_unit_test(test_CX_02_recreated_topic_without_ids),
        cmocka_unit_test(test_epochs_of_old_versions_are_not_relied_on),
        cmocka_unit_test(test_partitions_grow_and_never_shrink),
        cmocka_unit_test(test_leader_not_available_is_asked_again),
        cmocka_unit_test(test_a_leader_that_no_broker_is),
        cmocka_unit_test(test_listeners_and_leader_hints),
        cmocka_unit_test(test_PR_03_unknown_tags_everywhere),
        cmocka_unit_test(test_PR_01_null_and_absurd_arrays),
        cmocka_unit_test(test_old_brokers_without_ids_and_epochs),
        cmocka_unit_test(test_KIP_899_bootstraps_again),
        cmocka_unit_test(test_KIP_1102_no_metadata_for_long),
        cmocka_unit_test(test_KIP_1102_a_broker_sends_the_client_away),
        cmocka_unit_test(test_controller_requests),
        cmocka_unit_test(test_the_bootstrap_connection_becomes_the_brokers),
        cmocka_unit_test(test_a_broker_that_left_the_cluster),
        cmocka_unit_test(test_a_refresh_survives_the_loss_of_its_timer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
