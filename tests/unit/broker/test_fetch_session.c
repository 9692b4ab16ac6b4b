/* test_fetch_session.c - incremental fetch sessions (KIP-227): epochs, news only, forgetting, rotation, the cache's bound (PR-12). */
#include "node_rig.h"

#include "api/fetch_session.h"

struct fixture {
    struct rig r;
    struct rig_conn *c;
};

static void up(struct fixture *x, uint64_t seed, const char *slots) {
    rig_init(&x->r, seed);
    if (slots) rig_set(&x->r, "max.incremental.fetch.session.cache.slots", slots);
    rig_start(&x->r);
    x->c = rig_connect(&x->r);
    assert_int_equal(rig_create(x->c, "t", 3, NULL, NULL), KE_NONE);
}
static void down(struct fixture *x) {
    rig_deinit(&x->r);
}

struct ask {
    int16_t version;
    int32_t id, epoch;
    int32_t parts[4], part_count;
    int32_t forget[4], forget_count;
    int64_t offsets[4];
    int32_t leader_epochs[4];
    int32_t max_bytes;
};

static struct kw_fetch_response ask(struct rig_conn *c, struct ask a) {
    struct rig_fetch_msg *m = rig_fetch_msg(c->rig, &RIG_FETCH(.version = a.version ? a.version : 11, .topic = "t", .session_id = a.id,
                                                               .session_epoch = a.epoch, .max_bytes = a.max_bytes ? a.max_bytes : 1 << 20));
    struct kw_fetch_request_fetch_partition parts[4];
    struct kw_fetch_request_forgotten_topic forgotten = {.topic = kw_str_of("t"), .topic_id = m->topic.topic_id};
    for (int32_t i = 0; i < a.part_count; i++) {
        parts[i] = m->part;
        parts[i].partition = a.parts[i];
        parts[i].fetch_offset = a.offsets[i];
        parts[i].current_leader_epoch = a.leader_epochs[i] ? a.leader_epochs[i] : -1;
    }
    m->topic.partitions.v = parts;
    m->topic.partitions.n = a.part_count;
    m->req.topics.n = a.part_count > 0;
    forgotten.partitions.v = a.forget;
    forgotten.partitions.n = a.forget_count;
    m->req.forgotten_topics_data.v = &forgotten;
    m->req.forgotten_topics_data.n = a.forget_count > 0;
    struct kw_fetch_response resp;
    rig_call(c, KW_API_FETCH, a.version ? a.version : 11, &m->req, &resp);
    return resp;
}

static int32_t told(const struct kw_fetch_response *r) {
    int32_t n = 0;
    for (int32_t i = 0; i < r->responses.n; i++) n += r->responses.v[i].partitions.n;
    return n;
}

static void put(struct fixture *x, int32_t index) {
    size_t n;
    uint8_t *p = rig_batch(&x->r, &(struct rig_batch){.count = 1, .value_size = 500, .pid = -1, .epoch = -1, .seq = -1}, &n);
    assert_int_equal(rig_produce_bytes(x->c, "t", index, 9, 1, p, n).error_code, KE_NONE);
}

static void test_news_only(void **state) {
    (void)state;
    for (int16_t v = 7; v <= 18; v++) {
        struct fixture x;
        up(&x, 1, NULL);
        struct kw_fetch_response r = ask(x.c, (struct ask){.version = v, .parts = {0, 1, 2}, .part_count = 3});
        assert_int_equal(r.error_code, KE_NONE);
        assert_true(r.session_id > 0);
        assert_int_equal(told(&r), 3); /* a full fetch tells everything */
        int32_t id = r.session_id;
        r = ask(x.c, (struct ask){.version = v, .id = id, .epoch = 1});
        assert_int_equal(r.session_id, id);
        assert_int_equal(told(&r), 0); /* nothing new */
        put(&x, 1);
        r = ask(x.c, (struct ask){.version = v, .id = id, .epoch = 2});
        assert_int_equal(told(&r), 1);
        assert_int_equal(r.responses.v[0].partitions.v[0].partition_index, 1);
        assert_true(r.responses.v[0].partitions.v[0].records.len > 500);
        r = ask(x.c, (struct ask){.version = v, .id = id, .epoch = 3, .parts = {1}, .part_count = 1, .offsets = {1}}); /* moves on */
        assert_int_equal(told(&r), 0);
        put(&x, 2);
        r = ask(x.c, (struct ask){.version = v, .id = id, .epoch = 4, .forget = {2}, .forget_count = 1});
        assert_int_equal(told(&r), 0); /* forgotten */
        down(&x);
    }
}

static void test_epochs(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 2, NULL);
    int32_t id = ask(x.c, (struct ask){.parts = {0}, .part_count = 1}).session_id;
    assert_int_equal(ask(x.c, (struct ask){.id = id, .epoch = 2}).error_code, KE_INVALID_FETCH_SESSION_EPOCH);
    assert_int_equal(ask(x.c, (struct ask){.id = id + 1, .epoch = 1}).error_code, KE_FETCH_SESSION_ID_NOT_FOUND);
    assert_int_equal(ask(x.c, (struct ask){.id = id, .epoch = 1}).error_code, KE_NONE);
    assert_int_equal(ask(x.c, (struct ask){.id = id, .epoch = 1}).error_code, KE_INVALID_FETCH_SESSION_EPOCH); /* an old answer was lost */
    assert_int_equal(ask(x.c, (struct ask){.version = 13, .id = id, .epoch = 2}).error_code, KE_FETCH_SESSION_TOPIC_ID_ERROR);
    struct kb_session *s;
    enum kb_session_kind kind;
    struct kw_fetch_request req; /* epochs wrap to 1, not to 0 */
    kw_msg_init(&kw_fetch_request_desc, &req);
    req.session_id = id;
    req.session_epoch = 2;
    assert_int_equal(kb_session_take(x.r.node, &req, 11, &kind, &s), KE_NONE);
    s->epoch = INT32_MAX;
    kb_session_unref(s);
    assert_int_equal(ask(x.c, (struct ask){.id = id, .epoch = INT32_MAX}).error_code, KE_NONE);
    assert_int_equal(ask(x.c, (struct ask){.id = id, .epoch = 1}).error_code, KE_NONE);
    struct kw_fetch_response r =
        ask(x.c, (struct ask){.id = id, .epoch = 0, .parts = {0}, .part_count = 1}); /* full again: a new one for the old */
    assert_int_not_equal(r.session_id, id);
    assert_int_equal(kb_fetch_cache_count(x.r.node), 1);
    r = ask(x.c, (struct ask){.id = r.session_id, .epoch = -1, .parts = {0}, .part_count = 1}); /* closes */
    assert_int_equal(r.error_code, KE_NONE);
    assert_int_equal(r.session_id, 0);
    assert_int_equal(told(&r), 1);
    assert_int_equal(kb_fetch_cache_count(x.r.node), 0);
    id = ask(x.c, (struct ask){.parts = {0}, .part_count = 1}).session_id;
    r = ask(x.c, (struct ask){.id = id, .epoch = 1, .forget = {0}, .forget_count = 1}); /* nothing left: it ends */
    assert_int_equal(r.session_id, 0);
    assert_int_equal(kb_fetch_cache_count(x.r.node), 0);
    down(&x);
}

/* PR-12: the leader epoch that the session was told is checked on every fetch, also when it changed after the full one. */
static void test_PR_12(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 3, NULL);
    int32_t epoch = kb_image_partition(&x.r.node->image, kw_str_of("t"), 0)->leader_epoch + 1;
    struct kb_partition *p = rig_partition(&x.r, "t", 0);
    p->leader_epoch = epoch; /* as after a leader change */
    struct kw_fetch_response r = ask(x.c, (struct ask){.parts = {0}, .part_count = 1, .leader_epochs = {epoch}});
    assert_int_equal(r.responses.v[0].partitions.v[0].error_code, KE_NONE);
    p->leader_epoch = epoch + 1;
    put(&x, 0);
    r = ask(x.c, (struct ask){.id = r.session_id, .epoch = 1});
    assert_int_equal(told(&r), 1);
    assert_int_equal(r.responses.v[0].partitions.v[0].error_code, KE_FENCED_LEADER_EPOCH);
    assert_int_equal(r.responses.v[0].partitions.v[0].records.len, 0);
    r = ask(x.c, (struct ask){.id = r.session_id, .epoch = 2}); /* and again: an error is told each time */
    assert_int_equal(told(&r), 1);
    r = ask(x.c, (struct ask){.id = r.session_id, .epoch = 3, .parts = {0}, .part_count = 1, .leader_epochs = {epoch + 1}});
    assert_int_equal(r.responses.v[0].partitions.v[0].error_code, KE_NONE);
    assert_true(r.responses.v[0].partitions.v[0].records.len > 0);
    down(&x);
}

/* With more than fits into one answer, the partition that was served goes to the end. */
static void test_rotation(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 4, NULL);
    for (int32_t i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) put(&x, i);
    struct kw_fetch_response r = ask(x.c, (struct ask){.parts = {0, 1, 2}, .part_count = 3, .max_bytes = 600});
    int32_t id = r.session_id, seen[3] = {0};
    for (int32_t epoch = 1; epoch <= 3; epoch++) {
        int32_t served = -1;
        for (int32_t i = 0; i < r.responses.n; i++)
            for (int32_t j = 0; j < r.responses.v[i].partitions.n; j++)
                if (r.responses.v[i].partitions.v[j].records.len > 0) {
                    assert_int_equal(served, -1);
                    served = r.responses.v[i].partitions.v[j].partition_index;
                }
        assert_int_not_equal(served, -1);
        seen[served]++;
        r = ask(x.c, (struct ask){.id = id, .epoch = epoch, .max_bytes = 600});
    }
    for (int i = 0; i < 3; i++) assert_int_equal(seen[i], 1);
    down(&x);
}

static void test_cache_bound(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 5, "3");
    int32_t ids[3];
    for (int i = 0; i < 3; i++) ids[i] = ask(x.c, (struct ask){.parts = {0, 1}, .part_count = 2}).session_id;
    struct kw_fetch_response r = ask(x.c, (struct ask){.parts = {0, 1, 2}, .part_count = 3});
    assert_int_equal(r.session_id, 0); /* none may go yet: this fetch has no session, and works */
    assert_int_equal(told(&r), 3);
    rig_pass(&x.r, 100 * 1000000LL);
    assert_int_equal(ask(x.c, (struct ask){.id = ids[0], .epoch = 1}).error_code, KE_NONE);
    rig_pass(&x.r, 30 * 1000000LL); /* the others are unused for more than two minutes now */
    assert_true(ask(x.c, (struct ask){.parts = {0}, .part_count = 1}).session_id > 0);
    assert_int_equal(ask(x.c, (struct ask){.id = ids[1], .epoch = 1}).error_code, KE_FETCH_SESSION_ID_NOT_FOUND);
    assert_int_equal(ask(x.c, (struct ask){.id = ids[0], .epoch = 2}).error_code, KE_NONE);
    assert_int_equal(ask(x.c, (struct ask){.id = ids[2], .epoch = 1}).error_code, KE_NONE);
    assert_int_equal(ask(x.c, (struct ask){.parts = {0}, .part_count = 1}).session_id, 0); /* not larger than any */
    r = ask(x.c, (struct ask){.parts = {0, 1, 2}, .part_count = 3});                       /* larger than one that is old enough */
    assert_true(r.session_id > 0);
    assert_int_equal(kb_fetch_cache_count(x.r.node), 3);
    down(&x);
}

/* A session may go while a fetch of it waits. */
static void test_evicted_while_waiting(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 6, NULL);
    int32_t id = ask(x.c, (struct ask){.parts = {0}, .part_count = 1}).session_id;
    struct rig_conn *w = rig_connect(&x.r);
    rig_request(
        w, KW_API_FETCH, 11, 9,
        &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .session_id = id, .session_epoch = 1, .empty = true, .max_wait_ms = 5000))->req);
    rig_settle(&x.r);
    ask(x.c, (struct ask){.id = id, .epoch = -1});
    assert_int_equal(kb_fetch_cache_count(x.r.node), 0);
    put(&x, 0);
    struct kw_fetch_response r;
    assert_true(rig_response(w, KW_API_FETCH, 11, 9, &r));
    assert_int_equal(told(&r), 1);
    down(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_news_only), cmocka_unit_test(test_epochs),      cmocka_unit_test(test_PR_12),
        cmocka_unit_test(test_rotation),  cmocka_unit_test(test_cache_bound), cmocka_unit_test(test_evicted_while_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
