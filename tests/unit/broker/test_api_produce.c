/* test_api_produce.c - Produce: what is stored, what is refused with which error, acks, idempotence (BL-17, BL-18, BL-19), old formats,
 * SE-06. */
#include "node_rig.h"

#include "counted_alloc.h"
#include "wire/compress.h"
#include "wire/message_set.h"

struct fixture {
    struct rig r;
    struct rig_conn *c;
};

static void up(struct fixture *x, uint64_t seed, const char *key, const char *value) {
    rig_init(&x->r, seed);
    rig_start(&x->r);
    x->c = rig_connect(&x->r);
    assert_int_equal(rig_create(x->c, "t", 1, key, value), KE_NONE);
}
static void down(struct fixture *x) {
    rig_deinit(&x->r);
}

static rig_produced put(struct fixture *x, int64_t pid, int16_t epoch, int32_t seq, int32_t count) {
    return rig_produce(x->c, "t", (struct rig_batch){.pid = pid, .epoch = epoch, .seq = seq, .count = count, .value_size = 20});
}

static void expect(rig_produced a, int16_t code, int64_t offset) {
    if (a.error_code != code)
        fail_msg("%s, expected %s: %.*s", kw_kerror_name(a.error_code), kw_kerror_name(code), KW_MAX(a.error_message.len, 0),
                 a.error_message.p);
    assert_int_equal(a.base_offset, offset);
}

static int64_t end_of(struct fixture *x) {
    return rig_fetch_one(x->c, RIG_FETCH(.topic = "t"))->high_watermark;
}

/* Every version is answered with what was stored; v13 names the topic by id. */
static void test_versions(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 1, NULL, NULL);
    int64_t offset = 0;
    for (int16_t v = 3; v <= 13; v++)
        for (int16_t acks = -1; acks <= 1; acks += 2) {
            size_t n;
            uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 2, .pid = -1, .epoch = -1, .seq = -1}, &n);
            struct rig_produce *m = rig_produce_msg(&x.r, "t", 0, acks, p, n);
            struct kw_produce_response resp;
            if (v >= 13) m->topic.topic_id = kb_image_topic(&x.r.node->image, kw_str_of("t"))->id;
            rig_call(x.c, KW_API_PRODUCE, v, &m->req, &resp);
            expect(resp.responses.v[0].partition_responses.v[0], KE_NONE, offset);
            offset += 2;
        }
    assert_int_equal(end_of(&x), offset);
    down(&x);
}

static void test_acks_0(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 2, NULL, NULL);
    size_t n;
    uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 2, .pid = -1, .epoch = -1, .seq = -1}, &n);
    struct rig_conn *c = rig_connect(&x.r);
    rig_request(c, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&x.r, "t", 0, 0, p, n)->req);
    rig_settle(&x.r);
    assert_int_equal(c->in_len, 0);
    assert_non_null(c->conn);
    assert_int_equal(end_of(&x), 2);
    p = rig_batch(&x.r, &(struct rig_batch){.count = 2, .pid = -1, .epoch = -1, .seq = -1}, &n);
    rig_request(c, KW_API_PRODUCE, 9, 2, &rig_produce_msg(&x.r, "nowhere", 0, 0, p, n)->req);
    rig_settle(&x.r);
    assert_null(c->conn); /* only so can the producer hear of it */
    assert_int_equal(c->in_len, 0);
    down(&x);
}

static void test_refusals(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 3, "max.message.bytes", "2000");
    size_t n;
    struct rig_batch small = {.count = 2, .value_size = 10, .pid = -1, .epoch = -1, .seq = -1};
    uint8_t *p = rig_batch(&x.r, &small, &n);
    expect(rig_produce_bytes(x.c, "nowhere", 0, 9, 1, p, n), KE_UNKNOWN_TOPIC_OR_PARTITION, -1);
    expect(rig_produce_bytes(x.c, "t", 1, 9, 1, p, n), KE_UNKNOWN_TOPIC_OR_PARTITION, -1);
    expect(rig_produce_bytes(x.c, "t", -1, 9, 1, p, n), KE_UNKNOWN_TOPIC_OR_PARTITION, -1);
    expect(rig_produce_bytes(x.c, "t", 0, 9, 2, p, n), KE_INVALID_REQUIRED_ACKS, -1);
    expect(rig_produce_bytes(x.c, "t", 0, 9, 1, p, n - 1), KE_CORRUPT_MESSAGE, -1);
    expect(rig_produce_bytes(x.c, "t", 0, 9, 1, NULL, 0), KE_INVALID_RECORD, -1);
    for (size_t i = KW_BATCH_ATTRIBUTES; i < n; i += 3) { /* a flipped bit anywhere under the CRC */
        p = rig_batch(&x.r, &small, &n);
        p[i] ^= 0x10;
        rig_produced a = rig_produce_bytes(x.c, "t", 0, 9, 1, p, n);
        assert_true(a.error_code == KE_CORRUPT_MESSAGE || a.error_code == KE_INVALID_RECORD || a.error_code == KE_INVALID_TXN_STATE);
    }
    expect(rig_produce(x.c, "t", (struct rig_batch){.count = 30, .value_size = 100}), KE_MESSAGE_TOO_LARGE, -1);
    uint8_t two[1000];
    p = rig_batch(&x.r, &small, &n);
    memcpy(two, p, n);
    memcpy(two + n, p, n);
    expect(rig_produce_bytes(x.c, "t", 0, 9, 1, two, 2 * n), KE_INVALID_RECORD, -1); /* exactly one batch */
    kw_store64(p, 5);
    expect(rig_produce_bytes(x.c, "t", 0, 9, 1, p, n), KE_INVALID_RECORD, -1); /* base offset 0 */
    p = rig_batch(&x.r, &small, &n);
    kw_store32(p + KW_BATCH_RECORD_COUNT, 1);
    kw_batch_crc_set(p, n);
    expect(rig_produce_bytes(x.c, "t", 0, 9, 1, p, n), KE_INVALID_RECORD, -1); /* count against last offset delta */
    static const int16_t attributes[] = {KW_ATTR_CONTROL, KW_ATTR_TRANSACTIONAL, KW_ATTR_DELETE_HORIZON, KW_ATTR_LOG_APPEND_TIME, 5};
    static const int16_t codes[] = {KE_INVALID_RECORD, KE_INVALID_TXN_STATE, KE_INVALID_RECORD, KE_INVALID_TIMESTAMP, KE_INVALID_RECORD};
    for (size_t i = 0; i < KW_COUNTOF(attributes); i++) {
        rig_produced a = rig_produce(x.c, "t", (struct rig_batch){.count = 1, .attributes = attributes[i]});
        if (attributes[i] != 5) expect(a, codes[i], -1);
        assert_int_not_equal(a.error_code, KE_NONE);
    }
    expect(put(&x, 7, 0, -1, 1), KE_INVALID_RECORD, -1);
    expect(put(&x, 7, -1, 0, 1), KE_INVALID_RECORD, -1);
    assert_int_equal(end_of(&x), 0); /* nothing of all that was stored */
    expect(rig_produce(x.c, "t", small), KE_NONE, 0);
    down(&x);
}

static void test_segment_bytes(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 4, "segment.bytes", "1000");
    expect(rig_produce(x.c, "t", (struct rig_batch){.count = 1, .value_size = 1000}), KE_RECORD_LIST_TOO_LARGE, -1);
    expect(rig_produce(x.c, "t", (struct rig_batch){.count = 1, .value_size = 900}), KE_NONE, 0);
    expect(rig_produce(x.c, "t", (struct rig_batch){.count = 1, .value_size = 900}), KE_NONE, 1); /* rolls */
    down(&x);
}

static void test_timestamps(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 5, "message.timestamp.before.max.ms", "60000");
    int64_t now = x.r.now.wall_ms;
    expect(rig_produce(x.c, "t", (struct rig_batch){.count = 1, .timestamp = now - 50000}), KE_NONE, 0);
    rig_produced a = rig_produce(x.c, "t", (struct rig_batch){.count = 3, .timestamp = now - 70000});
    expect(a, KE_INVALID_TIMESTAMP, -1);
    assert_int_equal(a.record_errors.n, 3);
    assert_int_equal(a.record_errors.v[2].batch_index, 2);
    assert_true(a.record_errors.v[2].batch_index_error_message.len > 10);
    expect(rig_produce(x.c, "t", (struct rig_batch){.count = 1, .timestamp = now + 3600000 + 60000}), KE_INVALID_TIMESTAMP, -1);
    assert_int_equal(end_of(&x), 1);
    down(&x);
}

static void test_log_append_time(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 6, "message.timestamp.type", "LogAppendTime");
    rig_produced a = rig_produce(x.c, "t", (struct rig_batch){.count = 2, .timestamp = 5});
    expect(a, KE_NONE, 0);
    assert_true(a.log_append_time_ms >= 1700000000000);
    rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.topic = "t"));
    struct kw_batch_header h;
    assert_int_equal(kw_batch_parse(f->records.p, (size_t)f->records.len, &h), KW_OK);
    assert_true(h.attributes & KW_ATTR_LOG_APPEND_TIME);
    assert_int_equal(h.max_timestamp, a.log_append_time_ms);
    assert_true(kw_batch_crc_ok(f->records.p, (size_t)h.length + KW_BATCH_OVERHEAD));
    down(&x);
}

static void test_compacted_topic_needs_keys(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 7, "cleanup.policy", "compact");
    rig_produced a = rig_produce(x.c, "t", (struct rig_batch){.count = 2, .null_key = true});
    expect(a, KE_INVALID_RECORD, -1);
    assert_int_equal(a.record_errors.n, 2);
    expect(rig_produce(x.c, "t", (struct rig_batch){.count = 2}), KE_NONE, 0);
    down(&x);
}

static void test_topic_codec(void **state) {
    (void)state;
    static const char *const names[] = {"zstd", "lz4", "snappy", "gzip", "uncompressed"};
    static const int codecs[] = {KW_CODEC_ZSTD, KW_CODEC_LZ4, KW_CODEC_SNAPPY, KW_CODEC_GZIP, KW_CODEC_NONE};
    for (size_t i = 0; i < KW_COUNTOF(names); i++) {
        struct fixture x;
        if (!kw_codec_built(codecs[i])) continue;
        up(&x, 8, "compression.type", names[i]);
        expect(rig_produce(x.c, "t", (struct rig_batch){.count = 50, .value_size = 100}), KE_NONE, 0);
        rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.topic = "t"));
        struct kw_batch_header h;
        assert_int_equal(kw_batch_parse(f->records.p, (size_t)f->records.len, &h), KW_OK);
        assert_int_equal(h.attributes & KW_ATTR_CODEC, codecs[i]);
        assert_int_equal(h.record_count, 50);
        struct kw_compressor *c = kw_compressor_new();
        struct kw_batch_check check = {.limit = 1 << 20, .compressor = c};
        struct kw_batch_facts facts;
        const char *why;
        assert_int_equal(kw_batch_check(f->records.p, (size_t)f->records.len, &check, &facts, &why), KW_OK);
        assert_int_equal(h.length < 3000, codecs[i] != KW_CODEC_NONE);
        kw_compressor_free(c);
        down(&x);
    }
}

/* A batch that says of its one record that this codec made it; the head is written here, what follows it is the caller's. */
static rig_produced produce_coded(struct fixture *x, uint8_t *batch, size_t size, int codec) {
    struct kw_batch_header h = {.length = (int32_t)(size - KW_BATCH_OVERHEAD),
                                .leader_epoch = -1,
                                .magic = 2,
                                .attributes = (int16_t)codec,
                                .base_timestamp = x->r.now.wall_ms,
                                .max_timestamp = x->r.now.wall_ms,
                                .producer_id = -1,
                                .producer_epoch = -1,
                                .base_sequence = -1,
                                .record_count = 1};
    kw_batch_write_header(batch, &h);
    kw_batch_crc_set(batch, size);
    return rig_produce_bytes(x->c, "t", 0, 9, 1, batch, size);
}

/* SE-06: a small batch that claims, or yields, gigabytes is one error, and the memory stays flat. */
static void test_SE_06(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 9, "max.decompressed.message.bytes", "1000000");
    struct kw_compressor *c = kw_compressor_new();
    size_t plain_size = 64u << 20;
    uint8_t *plain = calloc(1, plain_size);
    for (int codec = KW_CODEC_GZIP; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        size_t cap = kw_compress_bound(codec, plain_size), made;
        uint8_t *bomb = malloc(KW_BATCH_HEADER_SIZE + cap);
        assert_int_equal(kw_compress(c, codec, KW_LEVEL_DEFAULT, 2, plain, plain_size, bomb + KW_BATCH_HEADER_SIZE, cap, &made), KW_OK);
        size_t size = KW_BATCH_HEADER_SIZE + made;
        if (size < 1000000) expect(produce_coded(&x, bomb, size, codec), KE_MESSAGE_TOO_LARGE, -1);
        free(bomb);
    }
    free(plain);
    kw_compressor_free(c);
    expect(rig_produce(x.c, "t", (struct rig_batch){.count = 2}), KE_NONE, 0);
    down(&x);
}

/* One kilobyte of a codec whose own header claims 4 GiB (or the most that it can). */
static size_t claim_of(int codec, uint8_t out[1024]) {
    static const uint8_t zstd[] = {0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0x58, 0, 0, 0, 0, 1, 0, 0, 0, 0x03, 0x00, 0x10, 'x'};
    static const uint8_t lz4[] = {0x04, 0x22, 0x4d, 0x18, 0x68, 0x70, 0, 0, 0, 0, 1, 0, 0, 0, 0x7a};
    static const uint8_t raw[] = {0xff, 0xff, 0xff, 0xff, 0x0f, 0xf0, 0xff};
    static const uint8_t xerial[] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 3, 0xec, 0xff, 0xff, 0xff, 0xff, 0x0f};
    static const uint8_t gzip[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    const uint8_t *p = codec == KW_CODEC_ZSTD ? zstd : codec == KW_CODEC_LZ4 ? lz4 : codec == KW_CODEC_SNAPPY ? raw : codec < 0 ? xerial : gzip;
    size_t n = codec == KW_CODEC_ZSTD     ? sizeof(zstd)
               : codec == KW_CODEC_LZ4    ? sizeof(lz4)
               : codec == KW_CODEC_SNAPPY ? sizeof(raw)
               : codec < 0                ? sizeof(xerial)
                                          : sizeof(gzip);
    memset(out, codec == KW_CODEC_GZIP ? 0xff : 0, 1024); /* gzip: the length at the end says 4 GiB - 1 */
    memcpy(out, p, n);
    return 1024;
}

/* SE-06, the claim: whatever the limit, nothing is allocated on the word of a header; one error, and the connection serves on. */
static void test_SE_06_claims(void **state) {
    (void)state;
    static const char *const limits[] = {"1000000", "2147483639"};
    for (size_t l = 0; l < KW_COUNTOF(limits); l++) {
        struct fixture x;
        up(&x, 19, "max.decompressed.message.bytes", limits[l]);
        for (int codec = -1; codec < KW_CODEC_COUNT; codec++) { /* -1: snappy in its other framing */
            uint8_t bomb[KW_BATCH_HEADER_SIZE + 1024];
            int as = codec < 0 ? KW_CODEC_SNAPPY : codec;
            if (codec == KW_CODEC_NONE || !kw_codec_built(as)) continue;
            size_t size = KW_BATCH_HEADER_SIZE + claim_of(codec, bomb + KW_BATCH_HEADER_SIZE);
            counted.most = 0;
            rig_produced a = produce_coded(&x, bomb, size, as);
            if (a.error_code != KE_MESSAGE_TOO_LARGE && a.error_code != KE_INVALID_RECORD && a.error_code != KE_CORRUPT_MESSAGE)
                fail_msg("codec %d: %s", codec, kw_kerror_name(a.error_code));
            if (counted.most > 8u << 20) fail_msg("codec %d, limit %s: %zu bytes were allocated", codec, limits[l], counted.most);
        }
        expect(rig_produce(x.c, "t", (struct rig_batch){.count = 2}), KE_NONE, 0);
        down(&x);
    }
}

/* ---- Idempotence ---- */

/* BL-17: of a producer that the partition does not know only sequence 0 is stored; the later one of two in flight is refused until then. */
static void test_BL_17(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 10, NULL, NULL);
    expect(put(&x, 5, 0, 17, 5), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1); /* B: A got not-leader elsewhere */
    expect(put(&x, 5, 0, 0, 17), KE_NONE, 0);                          /* A again */
    expect(put(&x, 5, 0, 17, 5), KE_NONE, 17);
    assert_int_equal(end_of(&x), 22);
    down(&x);
}

/* BL-18: stored, the answer lost, sent again: success with the offset of the first time, and nothing is stored twice. */
static void test_BL_18(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 11, NULL, NULL);
    expect(put(&x, 5, 0, 0, 3), KE_NONE, 0);
    expect(put(&x, 6, 0, 0, 4), KE_NONE, 3);
    expect(put(&x, 5, 0, 0, 3), KE_NONE, 0);
    rig_kill(&x.r); /* also when the broker was killed before it could answer */
    rig_start(&x.r);
    x.c = rig_connect(&x.r);
    expect(put(&x, 5, 0, 0, 3), KE_NONE, 0);
    expect(put(&x, 6, 0, 0, 4), KE_NONE, 3);
    assert_int_equal(end_of(&x), 7);
    expect(put(&x, 5, 0, 3, 1), KE_NONE, 7);
    down(&x);
}

/* BL-19: the last five batches are recognised, in order or only the oldest, after a restart too; the sixth is not. */
static void test_BL_19(void **state) {
    (void)state;
    for (int restart = 0; restart < 3; restart++) {
        struct fixture x;
        up(&x, (uint64_t)(12 + restart), NULL, NULL);
        for (int32_t i = 0; i < 6; i++) expect(put(&x, 5, 0, 2 * i, 2), KE_NONE, 2 * i);
        if (restart == 1) rig_kill(&x.r);
        if (restart == 2) rig_stop(&x.r);
        if (restart > 0) {
            rig_start(&x.r);
            x.c = rig_connect(&x.r);
        }
        for (int32_t i = 1; i < 6; i++) expect(put(&x, 5, 0, 2 * i, 2), KE_NONE, 2 * i);
        expect(put(&x, 5, 0, 2, 2), KE_NONE, 2); /* only the oldest */
        expect(put(&x, 5, 0, 0, 2), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1);
        assert_int_equal(end_of(&x), 12);
        down(&x);
    }
}

/* A duplicate of a batch that is still on its way to the disk is answered with it, not before. */
static void test_duplicate_in_flight(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 16, NULL, NULL);
    struct rig_conn *d = rig_connect(&x.r);
    size_t n;
    struct rig_batch b = {.pid = 5, .epoch = 0, .seq = 0, .count = 3};
    uint8_t *p = rig_batch(&x.r, &b, &n);
    rig_request(x.c, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&x.r, "t", 0, -1, p, n)->req);
    p = rig_batch(&x.r, &b, &n);
    rig_request(d, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&x.r, "t", 0, -1, p, n)->req);
    kb_node_tick(x.r.node, x.r.now);
    assert_int_equal(d->in_len, 0);
    rig_settle(&x.r);
    struct kw_produce_response a, again;
    assert_true(rig_response(x.c, KW_API_PRODUCE, 9, 1, &a));
    assert_true(rig_response(d, KW_API_PRODUCE, 9, 1, &again));
    expect(a.responses.v[0].partition_responses.v[0], KE_NONE, 0);
    expect(again.responses.v[0].partition_responses.v[0], KE_NONE, 0);
    assert_int_equal(end_of(&x), 3);
    down(&x);
}

static void test_producer_epochs(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 17, NULL, NULL);
    expect(put(&x, 5, 0, 0, 2), KE_NONE, 0);
    expect(put(&x, 5, 1, 2, 2), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1); /* a new epoch begins at 0 */
    expect(put(&x, 5, 1, 0, 2), KE_NONE, 2);
    expect(put(&x, 5, 0, 2, 2), KE_INVALID_PRODUCER_EPOCH, -1);
    expect(put(&x, 5, 1, 5, 2), KE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1);
    down(&x);
}

/* ---- Waiting ---- */

static void test_timeout(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 18, NULL, NULL);
    sim_disk_faults(x.r.disk)->hung_until_us = x.r.now.mono_us + 5000000;
    size_t n;
    uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
    struct rig_produce *m = rig_produce_msg(&x.r, "t", 0, -1, p, n);
    m->req.timeout_ms = 1000;
    rig_request(x.c, KW_API_PRODUCE, 9, 1, &m->req);
    int64_t begin = x.r.now.mono_us;
    struct kw_produce_response resp;
    while (!rig_response(x.c, KW_API_PRODUCE, 9, 1, &resp)) {
        x.r.now.mono_us += 10000;
        rig_turn(&x.r);
    }
    assert_int_equal(resp.responses.v[0].partition_responses.v[0].error_code, KE_REQUEST_TIMED_OUT);
    assert_in_range(x.r.now.mono_us - begin, 1000000, 1100000);
    rig_pass(&x.r, 6000000);
    assert_int_equal(end_of(&x), 1); /* it was appended all the same */
    down(&x);
}

static void test_gone_while_waiting(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 19, NULL, NULL);
    size_t n;
    uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
    rig_request(x.c, KW_API_PRODUCE, 9, 1, &rig_produce_msg(&x.r, "t", 0, -1, p, n)->req);
    rig_close_conns(&x.r);
    rig_settle(&x.r);
    x.c = rig_connect(&x.r);
    assert_int_equal(end_of(&x), 1);
    assert_true(kw_list_empty(&x.r.node->net.orphans));
    down(&x);
}

static void test_min_insync(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 20, "min.insync.replicas", "2");
    expect(rig_produce(x.c, "t", (struct rig_batch){.count = 1}), KE_NONE, 0); /* the effective value is at most the number of replicas */
    down(&x);
}

/* flush.on.ack: acks=-1 waits for the sync; acks=1 for the write. */
static void test_flush_on_ack(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 21, "flush.on.ack", "true");
    expect(rig_produce(x.c, "t", (struct rig_batch){.count = 1}), KE_NONE, 0);
    rig_close_conns(&x.r);
    sim_disk_power_loss(x.r.disk, x.r.now);
    rig_free_node(&x.r);
    sim_disk_restart(x.r.disk);
    rig_start(&x.r);
    x.c = rig_connect(&x.r);
    rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.topic = "t"));
    assert_int_equal(f->high_watermark, 1);
    assert_true(f->records.len > 0);
    down(&x);
}

/* ---- Formats v0 and v1 ---- */

static void test_old_formats(void **state) {
    (void)state;
    struct fixture x;
    up(&x, 22, NULL, NULL);
    int64_t offset = 0;
    for (int16_t v = 0; v <= 2; v++) {
        struct kw_out out;
        kw_out_init(&out);
        for (int64_t i = 0; i < 3; i++)
            assert_int_equal(kw_message_write(&out, v == 2 ? 1 : 0, i, v == 2 ? x.r.now.wall_ms : -1, 0,
                                              (struct kw_bytes){(const uint8_t *)"k", 1}, (struct kw_bytes){(const uint8_t *)"value", 5}),
                             KW_OK);
        expect(rig_produce_bytes(x.c, "t", 0, v, 1, out.p, out.len), KE_NONE, offset);
        offset += 3;
        out.p[out.len - 1] ^= 1;
        expect(rig_produce_bytes(x.c, "t", 0, v, 1, out.p, out.len), KE_CORRUPT_MESSAGE, -1);
        kw_out_deinit(&out);
        expect(rig_produce_bytes(x.c, "t", 0, v, 1, NULL, 0), KE_CORRUPT_MESSAGE, -1);
    }
    rig_fetched *f = rig_fetch_one(x.c, RIG_FETCH(.topic = "t"));
    struct kw_batch_header h;
    assert_int_equal(kw_batch_parse(f->records.p, (size_t)f->records.len, &h), KW_OK);
    assert_int_equal(h.magic, 2);
    assert_int_equal(h.record_count, 3);
    assert_int_equal(f->high_watermark, 9);
    size_t n;
    uint8_t *p = rig_batch(&x.r, &(struct rig_batch){.count = 1, .pid = -1, .epoch = -1, .seq = -1}, &n);
    expect(rig_produce_bytes(x.c, "t", 0, 2, 1, p, n), KE_CORRUPT_MESSAGE, -1);
    down(&x);
}

int main(void) {
    counted_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_acks_0),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_segment_bytes),
        cmocka_unit_test(test_timestamps),
        cmocka_unit_test(test_log_append_time),
        cmocka_unit_test(test_compacted_topic_needs_keys),
        cmocka_unit_test(test_topic_codec),
        cmocka_unit_test(test_SE_06),
        cmocka_unit_test(test_SE_06_claims),
        cmocka_unit_test(test_BL_17),
        cmocka_unit_test(test_BL_18),
        cmocka_unit_test(test_BL_19),
        cmocka_unit_test(test_duplicate_in_flight),
        cmocka_unit_test(test_producer_epochs),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_gone_while_waiting),
        cmocka_unit_test(test_min_insync),
        cmocka_unit_test(test_flush_on_ack),
        cmocka_unit_test(test_old_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
