/* test_api_fetch.c - Fetch: what is read, limits, waiting, errors, old formats (BL-13, BL-14, PR-10, PR-12 without a session). */
#include "node_rig.h"

#include "log/log.h"
#include "wire/message_set.h"

struct fixture {
    struct rig r;
    struct rig_conn *c;
};

static void up(struct fixture *x, uint64_t seed, const char *key, const char *value) {
    rig_init(&x->r, seed);
    rig_start(&x->r);
    x->c = rig_connect(&x->r);
    assert_int_equal(rig_create(x->c, "t", 2, key, value), KE_NONE);
}
static void down(struct fixture *x) {
    rig_deinit(&x->r);
}

static void fill(struct fixture *x, int batches, int32_t count, size_t value_size) {
    for (int i = 0; i < batches; i++)
        assert_int_equal(rig_produce(x->c, "t", (struct rig_batch){.count = count, .value_size = value_size}).error_code, KE_NONE);
}

/* Walks whole batches: the offset after the last, or -1 when the first does not hold `from`. */
static int64_t walk(const rig_fetched *f, int64_t from) {
    const uint8_t *p = f->records.p;
    size_t left = (size_t)f->records.len;
    int64_t next = -1;
    while (left >= KW_BATCH_HEADER_SIZE) {
        struct kw_batch_header h;
        assert_int_equal(kw_batch_parse(p, left, &h), KW_OK);
        size_t size = (size_t)h.length + KW_BATCH_OVERHEAD;
        if (size > left) break;
        assert_true(kw_batch_crc_ok(p, size));
        if (next < 0) assert_true(h.base_offset <= from && from <= h.base_offset + h.last_offset_delta);
        if (next >= 0) assert_int_equal(h.base_offset, next);
        next = h.base_offset + h.last_offset_delta + 1;
        p += size;
        left -= size;
    }
    return next;
}

static void test_versions(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 1, NULL, NULL);
    fill(&x, 10, 3, 100);
    for (int16_t v = 4; v <= 18; v++)
        for (int64_t at = 0; at < 30; at += 7) {
            rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.version = v, .topic = "t", .offset = at));
            assert_int_equal(f->error_code, KE_NONE);
            assert_int_equal(f->high_watermark, 30);
            assert_int_equal(f->last_stable_offset, 30);
            if (v >= 5) assert_int_equal(f->log_start_offset, 0);
            assert_int_equal(walk(f, at), 30);
        }
    down(&x);
}

/* PR-10: no records are 0 bytes, never -1. */
static void test_PR_10(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 2, NULL, NULL);
    for (int16_t v = 0; v <= 18; v++) {
        rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.version = v, .topic = "t"));
        assert_int_equal(f->error_code, KE_NONE);
        assert_int_equal(f->records.len, 0);
        f = rig_fetch_one(x.c, RIG_FETCH(.version = v, .topic = "t", .offset = 99));
        assert_int_equal(f->error_code, KE_OFFSET_OUT_OF_RANGE);
        assert_int_equal(f->records.len, 0);
    }
    down(&x);
}

/* BL-14: a batch larger than every limit is returned whole; the other partitions wait for their turn. */
static void test_BL_14(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 3, "max.message.bytes", "3000000");
    fill(&x, 1, 1, 2 << 20);
    size_t n;
    uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .value_size = 100, .pid = -1, .epoch = -1, .seq = -1}, &n);
    assert_int_equal(rig_produce_bytes(x.c, "t", 1, 9, 1, p, n).error_code, KE_NONE);
    rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.topic = "t", .max_bytes = 1024, .part_max_bytes = 1024));
    assert_int_equal(walk(f, 0), 1);
    struct rig_fetch_msg *m = rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .max_bytes = 1024, .part_max_bytes = 1024));
    struct kw_fetch_request_fetch_partition both[2] = {m->part, m->part};
    both[1].partition = 1;
    m->topic.partitions.v = both;
    m->topic.partitions.n = 2;
    struct kw_fetch_response resp;
    rig_call(x.c, KW_API_FETCH, 11, &m->req, &resp);
    assert_int_equal(resp.responses.v[0].partitions.n, 2);
    assert_int_equal(walk(&resp.responses.v[0].partitions.v[0], 0), 1);
    assert_int_equal(resp.responses.v[0].partitions.v[1].records.len, 0);
    assert_int_equal(resp.responses.v[0].partitions.v[1].error_code, KE_NONE);
    down(&x);
}

static void test_limits(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 4, "segment.bytes", "5000"); /* many segments: a read crosses them */
    fill(&x, 40, 2, 300);
    rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.topic = "t", .part_max_bytes = 2000));
    assert_in_range(f->records.len, 1000, 2000);
    f = rig_fetch_one(x.c, RIG_FETCH(.topic = "t", .max_bytes = 3000));
    assert_in_range(f->records.len, 2000, 3000);
    int64_t at = 0;
    while (at < 80) {
        f = rig_fetch_one(x.c, RIG_FETCH(.topic = "t", .offset = at));
        int64_t next = walk(f, at);
        assert_true(next > at); /* BL-10 for segment borders: never empty below the high watermark */
        at = next;
    }
    assert_int_equal(at, 80);
    down(&x);
}

static void test_waiting(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 5, NULL, NULL);
    struct rig_conn *w = rig_connect(&x.r);
    struct kw_fetch_response resp;
    int64_t begin = x.r.now.mono_us;
    rig_request(w, KW_API_FETCH, 11, 1, &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .max_wait_ms = 700))->req);
    while (!rig_response(w, KW_API_FETCH, 11, 1, &resp)) rig_pass(&x.r, 10000);
    assert_in_range(x.r.now.mono_us - begin, 700000, 730000); /* not before, not long after */
    assert_int_equal(resp.responses.v[0].partitions.v[0].records.len, 0);
    rig_request(w, KW_API_FETCH, 11, 2, &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .max_wait_ms = 60000))->req);
    rig_settle(&x.r);
    assert_false(rig_response(w, KW_API_FETCH, 11, 2, &resp));
    fill(&x, 1, 3, 10);
    assert_true(rig_response(w, KW_API_FETCH, 11, 2, &resp)); /* as soon as there is something */
    assert_int_equal(walk(&resp.responses.v[0].partitions.v[0], 0), 3);
    rig_request(w, KW_API_FETCH, 11, 3,
                &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .offset = 3, .max_wait_ms = 60000, .min_bytes = 5000))->req);
    for (int i = 0; i < 4; i++) {
        fill(&x, 1, 1, 1100);
        assert_false(rig_response(w, KW_API_FETCH, 11, 3, &resp));
    }
    fill(&x, 1, 1, 1100);
    assert_true(rig_response(w, KW_API_FETCH, 11, 3, &resp)); /* min.bytes reached */
    assert_int_equal(walk(&resp.responses.v[0].partitions.v[0], 3), 8);
    rig_request(w, KW_API_FETCH, 11, 4,
                &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .offset = 8, .max_wait_ms = 500, .min_bytes = 5000))->req);
    fill(&x, 1, 1, 1100);
    rig_pass(&x.r, 600000);
    assert_true(rig_response(w, KW_API_FETCH, 11, 4, &resp)); /* time is up: what there is */
    assert_int_equal(walk(&resp.responses.v[0].partitions.v[0], 8), 9);
    rig_request(w, KW_API_FETCH, 11, 5, &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .offset = 9, .max_wait_ms = 60000))->req);
    rig_settle(&x.r);
    kb_conn_closed(w->conn, x.r.now); /* gone while it waits */
    w->conn = NULL;
    fill(&x, 1, 1, 10);
    down(&x);
}

/* A least size that the largest one does not let an answer have: the answer goes out when it is full, and not when its time is up. */
static void test_full(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 15, NULL, NULL);
    fill(&x, 5, 1, 1000);
    size_t n;
    uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .value_size = 1000, .pid = -1, .epoch = -1, .seq = -1}, &n);
    for (int i = 0; i < 2; i++) assert_int_equal(rig_produce_bytes(x.c, "t", 1, 9, 1, p, n).error_code, KE_NONE);
    struct rig_conn *w = rig_connect(&x.r);
    struct kw_fetch_response resp;
    rig_request(w, KW_API_FETCH, 11, 1,
                &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .max_wait_ms = 60000, .min_bytes = 5000, .max_bytes = 3000))->req);
    rig_settle(&x.r);
    assert_true(rig_response(w, KW_API_FETCH, 11, 1, &resp));
    assert_int_equal(walk(&resp.responses.v[0].partitions.v[0], 0), 2);
    /* The first partition leaves room for some bytes, but not for the second one's batch. */
    struct rig_fetch_msg *m =
        rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .offset = 4, .max_wait_ms = 60000, .min_bytes = 5000, .max_bytes = 1500));
    struct kw_fetch_request_fetch_partition both[2] = {m->part, m->part};
    both[1].partition = 1;
    both[1].fetch_offset = 0;
    m->topic.partitions.v = both;
    m->topic.partitions.n = 2;
    rig_request(w, KW_API_FETCH, 11, 2, &m->req);
    rig_settle(&x.r);
    assert_true(rig_response(w, KW_API_FETCH, 11, 2, &resp));
    assert_int_equal(walk(&resp.responses.v[0].partitions.v[0], 4), 5);
    assert_int_equal(resp.responses.v[0].partitions.v[1].records.len, 0);
    /* A partition's own largest size: it has more, and may not give it. */
    rig_request(w, KW_API_FETCH, 11, 4,
                &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .max_wait_ms = 60000, .min_bytes = 5000, .part_max_bytes = 3000))->req);
    rig_settle(&x.r);
    assert_true(rig_response(w, KW_API_FETCH, 11, 4, &resp));
    assert_int_equal(walk(&resp.responses.v[0].partitions.v[0], 0), 2);
    /* What is less than both still waits. */
    rig_request(w, KW_API_FETCH, 11, 3,
                &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .offset = 4, .max_wait_ms = 60000, .min_bytes = 5000, .max_bytes = 3000))->req);
    rig_settle(&x.r);
    assert_false(rig_response(w, KW_API_FETCH, 11, 3, &resp));
    down(&x);
}

static void test_errors(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 6, NULL, NULL);
    fill(&x, 1, 3, 10);
    int32_t epoch = kb_image_partition(&x.r.node->image, kw_str_of("t"), 0)->leader_epoch;
    static const struct {
        const char *topic;
        int32_t index, epoch_delta;
        int64_t offset;
        int16_t code;
    } cases[] = {{"t", 0, 0, 0, KE_NONE},
                 {"t", 0, 0, 3, KE_NONE},
                 {"t", 0, 0, 4, KE_OFFSET_OUT_OF_RANGE},
                 {"t", 0, 0, -1, KE_OFFSET_OUT_OF_RANGE},
                 {"no", 0, 0, 0, KE_UNKNOWN_TOPIC_OR_PARTITION},
                 {"t", 2, 0, 0, KE_UNKNOWN_TOPIC_OR_PARTITION},
                 {"t", 0, -1, 0, KE_FENCED_LEADER_EPOCH},
                 {"t", 0, 1, 0, KE_UNKNOWN_LEADER_EPOCH}};
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        int32_t e = epoch + cases[i].epoch_delta;
        if (e < 0) continue;
        int64_t before = x.r.now.mono_us;
        rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.topic = cases[i].topic, .index = cases[i].index, .offset = cases[i].offset,
                                                      .leader_epoch = e, .max_wait_ms = cases[i].code == KE_NONE ? 0 : 60000));
        assert_int_equal(f->error_code, cases[i].code);
        assert_true(x.r.now.mono_us - before < 1000000); /* an error is told at once */
    }
    struct rig_fetch_msg *m = rig_fetch_msg(&x.r, &RIG_FETCH(.version = 13, .topic = "t"));
    struct kw_fetch_response resp;
    memset(m->topic.topic_id.b, 7, 16);
    rig_call(x.c, KW_API_FETCH, 13, &m->req, &resp);
    assert_int_equal(resp.responses.v[0].partitions.v[0].error_code, KE_UNKNOWN_TOPIC_ID);
    m = rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t"));
    m->req.replica_id = 3;
    rig_call(x.c, KW_API_FETCH, 11, &m->req, &resp);
    assert_int_equal(resp.responses.v[0].partitions.v[0].error_code, KE_NOT_LEADER_OR_FOLLOWER);
    down(&x);
}

/* KIP-595's fields also serve clients: a last fetched epoch that the log does not know like that is told where it parts. */
static void test_divergence(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 7, NULL, NULL);
    fill(&x, 1, 3, 10);
    rig_kill(&x.r); /* a new epoch from here on */
    rig_start(&x.r);
    x.c = rig_connect(&x.r);
    fill(&x, 1, 2, 10);
    int32_t epoch = kb_image_partition(&x.r.node->image, kw_str_of("t"), 0)->leader_epoch;
    struct rig_fetch_msg *m = rig_fetch_msg(&x.r, &RIG_FETCH(.version = 12, .topic = "t", .offset = 4));
    struct kw_fetch_response resp;
    m->part.last_fetched_epoch = epoch;
    rig_call(x.c, KW_API_FETCH, 12, &m->req, &resp);
    assert_int_equal(resp.responses.v[0].partitions.v[0].diverging_epoch.epoch, -1);
    assert_true(resp.responses.v[0].partitions.v[0].records.len > 0);
    m->part.last_fetched_epoch = 0; /* that epoch ended at 3: offset 4 was never its */
    rig_call(x.c, KW_API_FETCH, 12, &m->req, &resp);
    assert_int_equal(resp.responses.v[0].partitions.v[0].diverging_epoch.epoch, 0);
    assert_int_equal(resp.responses.v[0].partitions.v[0].diverging_epoch.end_offset, 3);
    assert_int_equal(resp.responses.v[0].partitions.v[0].records.len, 0);
    down(&x);
}

/* A follower cuts its log and takes nothing else from such an answer, so its session tells the marks again (simulator, cluster seed 199: a copy whose high
 * watermark stood still). */
static void test_marks_are_news_after_a_divergence(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 9, NULL, NULL);
    fill(&x, 1, 3, 10);
    rig_kill(&x.r);
    rig_start(&x.r);
    x.c = rig_connect(&x.r);
    fill(&x, 1, 2, 10);
    struct rig_fetch_msg *m = rig_fetch_msg(&x.r, &RIG_FETCH(.version = 12, .topic = "t", .offset = 5));
    struct kw_fetch_response resp;
    m->req.session_epoch = 0; /* a session begins */
    m->part.last_fetched_epoch = 0;
    rig_call(x.c, KW_API_FETCH, 12, &m->req, &resp);
    assert_true(resp.session_id != 0);
    assert_int_equal(resp.responses.v[0].partitions.v[0].diverging_epoch.end_offset, 3);
    m->req.session_id = resp.session_id;
    m->req.session_epoch = 1;
    m->part.last_fetched_epoch = kb_image_partition(&x.r.node->image, kw_str_of("t"), 0)->leader_epoch;
    for (int i = 0; i < 2; i++) {
        rig_call(x.c, KW_API_FETCH, 12, &m->req, &resp);
        assert_int_equal(resp.responses.n, i == 0);
        if (i == 0) assert_int_equal(resp.responses.v[0].partitions.v[0].high_watermark, 5);
        m->req.session_epoch++;
        m->req.topics.n = 0;
    }
    down(&x);
}

/* BL-13: a flipped bit in the middle of the log: an error at that offset, a line that says where, everything before and after it is served.
 */
static void test_BL_13(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 8, NULL, NULL);
    fill(&x, 20, 2, 200);
    rig_stop(&x.r); /* bit rot happens while nobody looks */
    size_t n;
    const uint8_t *log = sim_disk_peek(x.r.disk, "/data/t-0/00000000000000000000.log", &n);
    size_t at = 0;
    while (kw_load64(log + at) < 20) at += kw_load32(log + at + 8) + 12;
    sim_disk_rot(x.r.disk, "/data/t-0/00000000000000000000.log", at + 100, 0x04);
    rig_start(&x.r);
    x.c = rig_connect(&x.r);
    bool told = false;
    for (int64_t o = 0; o < 40;) {
        rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.topic = "t", .offset = o));
        if (f->error_code == KE_CORRUPT_MESSAGE) {
            assert_in_range(o, 20, 21);
            assert_int_equal(f->records.len, 0);
            told = true;
            o = 22;
            continue;
        }
        assert_int_equal(f->error_code, KE_NONE);
        assert_int_equal(f->high_watermark, 40); /* never a silent cut */
        int64_t next = walk(f, o);
        assert_true(next > o && (next <= 20 || o >= 22));
        o = next;
    }
    assert_true(told);
    assert_non_null(strstr(x.r.lines, "t-0 at offset 20"));
    assert_int_equal(rig_produce(x.c, "t", (struct rig_batch){.count = 1}).base_offset, 40);
    down(&x);
}

static int count_messages(struct fixture *x, const rig_fetched *f, int8_t magic, int64_t from) {
    struct kw_message_iter it;
    struct kw_message_view m;
    struct kw_compressor *c = kw_compressor_new();
    int n = 0;
    (void)x;
    kw_message_iter_init(&it, f->records.p, (size_t)f->records.len, 1 << 20, c);
    while (kw_message_iter_next(&it, &m) > 0) {
        assert_int_equal(m.magic, magic);
        assert_int_equal(m.offset, from + n);
        n++;
    }
    kw_message_iter_deinit(&it);
    kw_compressor_free(c);
    return n;
}

static void test_old_formats(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 9, NULL, NULL);
    fill(&x, 5, 4, 50);
    for (int16_t v = 0; v <= 3; v++)
        for (int64_t at = 0; at < 20; at += 3) { /* also from the middle of a batch: what lies before is left out */
            rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.version = v, .topic = "t", .offset = at));
            assert_int_equal(f->error_code, KE_NONE);
            assert_int_equal(count_messages(&x, f, v <= 1 ? 0 : 1, at), 20 - at);
        }
    down(&x);
}

/* A batch that this process wrote goes out unchecked, for its reader checks it. A converted one has a checksum of its own, so its source is. */
static void test_old_formats_of_damage(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 11, NULL, NULL);
    fill(&x, 3, 2, 200);
    size_t n;
    const uint8_t *log = sim_disk_peek(x.r.disk, "/data/t-0/00000000000000000000.log", &n);
    size_t at = 0;
    while (kw_load64(log + at) < 2) at += kw_load32(log + at + 8) + 12;
    sim_disk_rot(x.r.disk, "/data/t-0/00000000000000000000.log", at + 100, 0x04);
    for (int16_t v = 0; v <= 3; v++)
        for (int64_t o = 0; o < 6; o++) {
            rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.version = v, .topic = "t", .offset = o));
            bool damaged = o == 2 || o == 3;
            assert_int_equal(f->error_code, damaged ? KE_CORRUPT_MESSAGE : KE_NONE);
            assert_int_equal(damaged ? f->records.len : count_messages(&x, f, v <= 1 ? 0 : 1, o), damaged ? 0 : (o < 2 ? 2 : 6) - o);
        }
    down(&x);
}

static void test_zstd_and_old_versions(void **state) {
    (void)state;
    struct fixture x;
    if (!kw_codec_built(KW_CODEC_ZSTD)) return;
    up(&x, 10, "compression.type", "zstd");
    fill(&x, 1, 10, 100);
    for (int16_t v = 0; v < 10; v++)
        assert_int_equal(rig_fetch_one(x.c, RIG_FETCH(.version = v, .topic = "t"))->error_code, KE_UNSUPPORTED_COMPRESSION_TYPE);
    assert_int_equal(walk(rig_fetch_one(x.c, RIG_FETCH(.version = 10, .topic = "t")), 0), 10);
    down(&x);
}

/* Reads that have to wait for the disk, with clients that go, topics that go, and a stop in between. */
static void test_slow_disk(void **state) {
    (void)state;
    for (uint64_t seed = 100; seed < 140; seed++) {
        struct fixture x;
        up(&x, seed, "segment.bytes", "4000");
        fill(&x, 20, 2, 300);
        rig_stop(&x.r);
        rig_start(&x.r);
        x.c = rig_connect(&x.r);
        sim_disk_faults(x.r.disk)->slow_ppm = 500000;
        sim_disk_faults(x.r.disk)->slow_us = 20000;
        for (int i = 0; i < 5; i++)
            rig_request(rig_connect(&x.r), KW_API_FETCH, 11, 1,
                        &rig_fetch_msg(&x.r, &RIG_FETCH(.topic = "t", .offset = 7 * i, .max_wait_ms = 100, .min_bytes = 1 << 20))->req);
        for (uint64_t i = 0; i < seed % 17; i++) {
            rig_turn(&x.r);
            x.r.now.mono_us += 1000;
        }
        if (seed % 3 == 0) {
            rig_delete(x.c, "t");
        } else if (seed % 3 == 1) {
            rig_close_conns(&x.r);
        }
        rig_pass(&x.r, (int64_t)(seed % 5) * 30000);
        if (seed % 2 == 0) {
            rig_kill(&x.r);
            rig_start(&x.r);
        }
        down(&x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),    cmocka_unit_test(test_PR_10),
        cmocka_unit_test(test_BL_14),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_waiting),     cmocka_unit_test(test_errors),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_marks_are_news_after_a_divergence),  cmocka_unit_test(test_BL_13),
        cmocka_unit_test(test_old_formats), cmocka_unit_test(test_old_formats_of_damage), cmocka_unit_test(test_zstd_and_old_versions),
        cmocka_unit_test(test_slow_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
