/* test_batch.c - building, reading and checking v2 batches: null against empty (PR-06), timestamps (PR-16), every kind of malformed batch
 * that must be refused, plain and compressed; patches in place; failing allocation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "base/rng.h"
#include "wire/batch.h"
#include "wire/record_read.h"

#define B(z) {(const uint8_t *)(z), sizeof(z) - 1}
#define NULL_BYTES {NULL, -1}
#define EMPTY_BYTES {(const uint8_t *)"", 0}

static struct kw_compressor *comp;

/* A batch of `records` at base offset 1000, timestamps from 5000; max_timestamp as given. */
static size_t build(uint8_t *dst, const struct kw_record_in *records, size_t n, int codec) {
    static uint8_t plain[1 << 20];
    uint8_t *p = plain + KW_BATCH_HEADER_SIZE;
    for (size_t i = 0; i < n; i++) {
        size_t size = kw_record_size(&records[i]);
        uint8_t *end = kw_record_write(p, &records[i], size);
        assert_int_equal(end - p, size);
        p = end;
    }
    size_t size = (size_t)(p - plain), out = 0;
    struct kw_batch_header h = {.base_offset = 1000, .length = (int32_t)size - KW_BATCH_OVERHEAD, .leader_epoch = 7, .magic = 2,
                                .last_offset_delta = (int32_t)n - 1, .base_timestamp = 5000, .max_timestamp = 5000, .producer_id = -1,
                                .producer_epoch = -1, .base_sequence = -1, .record_count = (int32_t)n};
    kw_batch_write_header(plain, &h);
    kw_batch_crc_set(plain, size);
    if (codec == KW_CODEC_NONE) {
        memcpy(dst, plain, size);
        return size;
    }
    assert_int_equal(kw_batch_compress(comp, codec, KW_LEVEL_DEFAULT, plain, size, dst, 1 << 20, &out), KW_OK);
    return out;
}

static kw_err check_with(const uint8_t *p, size_t size, bool holes, struct kw_batch_facts *f, const char **why) {
    struct kw_batch_check c = {.allow_holes = holes, .limit = 1 << 20, .compressor = comp};
    *why = NULL;
    uint8_t *exact = malloc(size ? size : 1); /* of the batch's own size: the sanitizer sees reads past it */
    memcpy(exact, p, size);
    kw_err err = kw_batch_check(exact, size, &c, f, why);
    free(exact);
    if (err) assert_non_null(*why);
    return err;
}

static kw_err check(const uint8_t *p, size_t size) {
    struct kw_batch_facts f;
    const char *why;
    return check_with(p, size, false, &f, &why);
}

static void assert_bytes(struct kw_bytes a, struct kw_bytes b) {
    assert_int_equal(a.len, b.len);
    if (a.len > 0) assert_memory_equal(a.p, b.p, (size_t)a.len);
}

static void assert_reads_back(const uint8_t *p, size_t size, const struct kw_record_in *records, size_t n) {
    struct kw_batch_header h;
    assert_int_equal(kw_batch_parse(p, size, &h), KW_OK);
    assert_int_equal(h.record_count, n);
    const uint8_t *body;
    size_t body_size;
    assert_int_equal(kw_batch_body(p, size, &h, 1 << 20, comp, &body, &body_size), KW_OK);
    struct kw_record_iter it;
    struct kw_record_view r;
    kw_record_iter_init(&it, &h, body, body_size);
    size_t wire = 0;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(kw_record_next(&it, &r), 1);
        assert_true(r.offset == h.base_offset + records[i].offset_delta);
        assert_int_equal(r.offset_delta, records[i].offset_delta);
        assert_true(r.timestamp == (int64_t)((uint64_t)h.base_timestamp + (uint64_t)records[i].timestamp_delta));
        assert_bytes(r.key, records[i].key);
        assert_bytes(r.value, records[i].value);
        assert_int_equal(r.header_count, records[i].header_count);
        assert_int_equal(r.wire_size, kw_record_size(&records[i]));
        wire += r.wire_size;
        struct kw_in in;
        struct kw_header_view header;
        kw_in_init(&in, r.headers, r.headers_size);
        for (size_t k = 0; k < records[i].header_count; k++) {
            assert_int_equal(kw_record_header_next(&in, &header), 1);
            assert_true(kw_str_eq(header.key, records[i].headers[k].key));
            assert_bytes(header.value, records[i].headers[k].value);
        }
        assert_int_equal(kw_record_header_next(&in, &header), 0);
    }
    assert_int_equal(wire, body_size);
    assert_int_equal(kw_record_next(&it, &r), 0);
    assert_int_equal(kw_record_next(&it, &r), 0);
}

static uint8_t batch[1 << 20];

/* PR-06: null and empty, in key and value, all mixes. */
static void test_PR_06_null_and_empty(void **state) {
    (void)state;
    const struct kw_header_view headers[] = {{{"a", 1}, B("x")}, {{"", 0}, NULL_BYTES}, {{"a", 1}, EMPTY_BYTES}};
    const struct kw_record_in records[] = {
        {.offset_delta = 0, .key = NULL_BYTES, .value = NULL_BYTES},
        {.offset_delta = 1, .key = NULL_BYTES, .value = EMPTY_BYTES},
        {.offset_delta = 2, .key = EMPTY_BYTES, .value = NULL_BYTES},
        {.offset_delta = 3, .key = EMPTY_BYTES, .value = EMPTY_BYTES},
        {.offset_delta = 4, .key = B("k"), .value = B("value"), .headers = headers, .header_count = 3},
        {.offset_delta = 5, .key = NULL_BYTES, .value = B("value")},
    };
    for (int codec = 0; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        size_t size = build(batch, records, KW_COUNTOF(records), codec);
        struct kw_batch_facts f;
        const char *why;
        assert_int_equal(check_with(batch, size, false, &f, &why), KW_OK);
        assert_true(f.any_null_key);
        assert_true(f.any_headers);
        assert_reads_back(batch, size, records, KW_COUNTOF(records));
        size = build(batch, records + 2, 0, codec);
        size = build(batch, &records[4], 1, codec); /* delta 4 in a batch of one */
        assert_int_equal(check(batch, size), KW_EDECODE);
    }
    /* null is varint -1 (one byte 0x01), empty is 0 */
    size_t size = build(batch, records, 4, KW_CODEC_NONE);
    const uint8_t want[] = {12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 0, 0, 12, 0, 0, 4, 0, 1, 0, 12, 0, 0, 6, 0, 0, 0};
    assert_int_equal(size, KW_BATCH_HEADER_SIZE + sizeof(want));
    assert_memory_equal(batch + KW_BATCH_HEADER_SIZE, want, sizeof(want));
}

/* PR-16: deltas of timestamps are 64-bit zigzag. */
static void test_PR_16_timestamp_deltas(void **state) {
    (void)state;
    const struct kw_record_in records[] = {
        {.timestamp_delta = 0, .offset_delta = 0, .key = B("k"), .value = B("v")},
        {.timestamp_delta = 1700000000000, .offset_delta = 1, .key = B("k"), .value = B("v")},
        {.timestamp_delta = -1700000000000, .offset_delta = 2, .key = B("k"), .value = B("v")},
        {.timestamp_delta = (int64_t)1 << 33, .offset_delta = 3, .key = B("k"), .value = B("v")},
        {.timestamp_delta = INT64_MAX, .offset_delta = 4, .key = B("k"), .value = B("v")},
        {.timestamp_delta = INT64_MIN, .offset_delta = 5, .key = B("k"), .value = B("v")},
    };
    size_t size = build(batch, records, 4, KW_CODEC_NONE);
    struct kw_batch_facts f;
    const char *why;
    assert_int_equal(check_with(batch, size, false, &f, &why), KW_OK);
    assert_true(f.max_timestamp == 1700000005000);
    assert_int_equal(f.offset_of_max_timestamp, 1);
    assert_false(f.any_null_key);
    assert_false(f.any_headers);
    assert_int_equal(f.body_size, size - KW_BATCH_HEADER_SIZE);
    size = build(batch, records, KW_COUNTOF(records), KW_CODEC_NONE);
    assert_int_equal(check(batch, size), KW_OK);
    assert_reads_back(batch, size, records, KW_COUNTOF(records));
    kw_batch_set_max_timestamp(batch, size, 99, true);
    struct kw_batch_header h;
    struct kw_record_iter it;
    struct kw_record_view r;
    assert_int_equal(kw_batch_parse(batch, size, &h), KW_OK);
    kw_record_iter_init(&it, &h, batch + KW_BATCH_HEADER_SIZE, size - KW_BATCH_HEADER_SIZE);
    while (kw_record_next(&it, &r) == 1) assert_int_equal(r.timestamp, 99);
}

static void test_patches(void **state) {
    (void)state;
    const struct kw_record_in records[] = {{.key = NULL_BYTES, .value = B("v")}};
    size_t size = build(batch, records, 1, KW_CODEC_NONE);
    uint32_t crc = kw_load32(batch + KW_BATCH_CRC);
    for (size_t to = KW_BATCH_HEADER_SIZE; to <= size; to++) { /* with the CRC of a part of the body known */
        kw_store32(batch + KW_BATCH_CRC, 0);
        kw_batch_crc_finish(batch, size, kw_crc32c(0, batch + KW_BATCH_HEADER_SIZE, to - KW_BATCH_HEADER_SIZE), to);
        assert_int_equal(kw_load32(batch + KW_BATCH_CRC), crc);
    }
    kw_batch_set_base_offset(batch, (int64_t)1 << 40);
    kw_batch_set_leader_epoch(batch, 12);
    assert_true(kw_batch_crc_ok(batch, size));
    struct kw_batch_header h;
    assert_int_equal(kw_batch_parse(batch, size, &h), KW_OK);
    assert_true(h.base_offset == (int64_t)1 << 40);
    assert_int_equal(h.leader_epoch, 12);
    kw_batch_set_max_timestamp(batch, size, 5000, false); /* as it was */
    assert_int_equal(kw_load32(batch + KW_BATCH_CRC), crc);
    kw_batch_set_max_timestamp(batch, size, 6000, true);
    assert_true(kw_batch_crc_ok(batch, size));
    assert_int_equal(kw_batch_parse(batch, size, &h), KW_OK);
    assert_int_equal(h.max_timestamp, 6000);
    assert_int_equal(h.attributes, KW_ATTR_LOG_APPEND_TIME);
    kw_batch_set_max_timestamp(batch, size, 5000, false);
    assert_int_equal(kw_load32(batch + KW_BATCH_CRC), crc);
    assert_int_equal(kw_batch_size_peek(batch, size), size);
    assert_int_equal(kw_batch_size_peek(batch, 11), -1);
    kw_store32(batch + KW_BATCH_LENGTH, (uint32_t)-5);
    assert_int_equal(kw_batch_size_peek(batch, size), 7);
}

static void reseal(uint8_t *p, size_t size) {
    kw_store32(p + KW_BATCH_LENGTH, (uint32_t)(size - KW_BATCH_OVERHEAD));
    kw_batch_crc_set(p, size);
}

static void test_bad_headers(void **state) {
    (void)state;
    const struct kw_record_in records[] = {{.offset_delta = 0, .key = NULL_BYTES, .value = B("v")},
                                           {.offset_delta = 1, .key = NULL_BYTES, .value = B("v")}};
    static uint8_t good[1000];
    size_t size = build(good, records, 2, KW_CODEC_NONE);
    assert_int_equal(check(good, size), KW_OK);
    assert_int_equal(check(good, size - 1), KW_ESHORT);
    for (size_t n = 0; n < KW_BATCH_HEADER_SIZE; n++) assert_int_equal(check(good, n), KW_ESHORT);
    good[size] = 0;
    assert_int_equal(check(good, size + 1), KW_EDECODE);
    const struct {
        int at, bytes;
        uint64_t value;
        kw_err err;
        bool resealed;
    } cases[] = {
        {KW_BATCH_MAGIC, 1, 1, KW_EVERSION, true},
        {KW_BATCH_MAGIC, 1, 3, KW_EVERSION, true},
        {KW_BATCH_LENGTH, 4, 48, KW_EDECODE, false},
        {KW_BATCH_LENGTH, 4, 0xffffffff, KW_EDECODE, false},
        {KW_BATCH_LENGTH, 4, 0x7fffffff, KW_ESHORT, false},
        {KW_BATCH_CRC, 4, 0, KW_ECRC, false},
        {KW_BATCH_RECORD_COUNT, 4, 1, KW_EDECODE, true},
        {KW_BATCH_RECORD_COUNT, 4, 3, KW_EDECODE, true},
        {KW_BATCH_RECORD_COUNT, 4, 0xffffffff, KW_EDECODE, true},
        {KW_BATCH_RECORD_COUNT, 4, 0x7fffffff, KW_EDECODE, true},
        {KW_BATCH_LAST_OFFSET_DELTA, 4, 0, KW_EDECODE, true},
        {KW_BATCH_LAST_OFFSET_DELTA, 4, 2, KW_EDECODE, true},
        {KW_BATCH_LAST_OFFSET_DELTA, 4, 0xffffffff, KW_EDECODE, true},
        {KW_BATCH_ATTRIBUTES, 2, 5, KW_EDECODE, true},
        {KW_BATCH_ATTRIBUTES, 2, 7, KW_EDECODE, true},
        {KW_BATCH_BASE_OFFSET, 8, INT64_MAX, KW_EDECODE, true},
        {KW_BATCH_ATTRIBUTES, 2, KW_ATTR_CONTROL | KW_ATTR_TRANSACTIONAL, KW_OK, true}, /* the caller's matter */
    };
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        memcpy(batch, good, size);
        for (int b = 0; b < cases[i].bytes; b++) batch[cases[i].at + b] = (uint8_t)(cases[i].value >> (8 * (cases[i].bytes - 1 - b)));
        if (cases[i].resealed) reseal(batch, size);
        assert_int_equal(check(batch, size), cases[i].err);
    }
    for (size_t i = KW_BATCH_CRC; i < size; i++) { /* any flipped bit in the checksum's range */
        memcpy(batch, good, size);
        batch[i] ^= 4;
        assert_int_equal(check(batch, size), KW_ECRC);
    }
}

/* A body of our own bytes under a sound header, plain and compressed. */
static void assert_body(kw_err want, const uint8_t *body, size_t n, int32_t count) {
    for (int codec = 0; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        static uint8_t plain[4096], out[8192];
        struct kw_batch_header h = {.length = (int32_t)(n + KW_BATCH_HEADER_SIZE - KW_BATCH_OVERHEAD), .last_offset_delta = count - 1,
                                    .producer_id = -1, .producer_epoch = -1, .base_sequence = -1, .record_count = count};
        kw_batch_write_header(plain, &h);
        memcpy(plain + KW_BATCH_HEADER_SIZE, body, n);
        size_t size = KW_BATCH_HEADER_SIZE + n;
        kw_batch_crc_set(plain, size);
        memcpy(out, plain, size);
        if (codec > 0) assert_int_equal(kw_batch_compress(comp, codec, KW_LEVEL_DEFAULT, plain, size, out, sizeof(out), &size), KW_OK);
        assert_int_equal(check(out, size), want);
        /* The iterator agrees on everything but the deltas, and never runs away. */
        struct kw_record_iter it;
        struct kw_record_view r;
        uint8_t *exact = malloc(n ? n : 1);
        memcpy(exact, body, n);
        kw_record_iter_init(&it, &h, exact, n);
        int32_t rc, steps = 0;
        while ((rc = kw_record_next(&it, &r)) == 1) assert_true(++steps <= count);
        if (want == KW_OK) assert_int_equal(rc, 0);
        free(exact);
    }
}
#define BODY(want, count, ...)                                                                                                             \
    do {                                                                                                                                   \
        const uint8_t body_[] = {__VA_ARGS__};                                                                                             \
        assert_body(want, body_, sizeof(body_), count);                                                                                    \
    } while (0)

static void test_bad_records(void **state) {
    (void)state;
    BODY(KW_OK, 1, 12, 0, 0, 0, 1, 1, 0);
    BODY(KW_OK, 2, 12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0);
    BODY(KW_EDECODE, 2, 12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 0, 1, 1, 0);  /* delta repeated */
    BODY(KW_EDECODE, 2, 12, 0, 0, 2, 1, 1, 0, 12, 0, 0, 0, 1, 1, 0);  /* backward */
    BODY(KW_EDECODE, 2, 12, 0, 0, 0, 1, 1, 0, 14, 0, 0, 0xd0, 0x0f, 1, 1, 0); /* huge */
    BODY(KW_EDECODE, 1, 12, 0, 0, 1, 1, 1, 0);                        /* -1 */
    BODY(KW_EDECODE, 1, 14, 0, 0, 0, 1, 1, 0);                        /* record length too large: ends after the batch */
    BODY(KW_EDECODE, 2, 14, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0);  /* takes the next one's byte */
    BODY(KW_EDECODE, 1, 10, 0, 0, 0, 1, 1, 0);                        /* too small */
    BODY(KW_EDECODE, 1, 14, 0, 0, 0, 1, 1, 0, 0);                     /* a byte too many inside */
    BODY(KW_EDECODE, 1, 12, 0, 0, 0, 1, 1, 0, 0);                     /* after the last record */
    BODY(KW_EDECODE, 2, 12, 0, 0, 0, 1, 1, 0);                        /* a record missing */
    BODY(KW_EDECODE, 1, 11, 0, 0, 0, 1, 1, 0);                        /* length negative */
    BODY(KW_EDECODE, 1, 12, 0, 0, 0, 3, 1, 0);                        /* key length -2 */
    BODY(KW_EDECODE, 1, 12, 0, 0, 0, 1, 3, 0);                        /* value length -2 */
    BODY(KW_EDECODE, 1, 12, 0, 0, 0, 4, 1, 0);                        /* key of 2 eats value and header count */
    BODY(KW_EDECODE, 1, 12, 0, 0, 0, 1, 20, 0);                       /* value past the end */
    BODY(KW_EDECODE, 1, 12, 0, 0, 0, 1, 1, 1);                        /* header count -1 */
    BODY(KW_EDECODE, 1, 12, 0, 0, 0, 1, 1, 2);                        /* a header that is not there */
    BODY(KW_OK, 1, 18, 0, 0, 0, 1, 1, 2, 2, 'a', 1);                  /* one with a null value */
    BODY(KW_EDECODE, 1, 16, 0, 0, 0, 1, 1, 2, 1, 1);                  /* a header key that is null */
    BODY(KW_EDECODE, 1, 18, 0, 0, 0, 1, 1, 2, 0, 0, 0);               /* bytes after the headers */
    BODY(KW_EDECODE, 1, 20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f); /* 2^31 - 1 headers */
    BODY(KW_OK, 1, 20, 0, 0x80, 0x80, 0x80, 0x80, 0, 0, 1, 1, 0);     /* a delta in more bytes than needed */
    BODY(KW_EDECODE, 1, 22, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 1, 1, 0); /* six bytes for 32 bits */
    BODY(KW_EDECODE, 1, 20, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0x1f, 1, 1, 0);    /* 33 bits */
    BODY(KW_OK, 1, 30, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, 1, 0); /* timestamp delta of 64 bits */
    BODY(KW_EDECODE, 1, 30, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 1, 1, 0); /* 65 */
    BODY(KW_EDECODE, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 1, 1, 0); /* length 2^31 - 1 */
    BODY(KW_EDECODE, 1, 0x80);
}

static void test_holes_and_empty(void **state) {
    (void)state;
    const struct kw_record_in records[] = {{.offset_delta = 2, .key = NULL_BYTES, .value = B("v")},
                                           {.offset_delta = 5, .key = NULL_BYTES, .value = B("v"), .timestamp_delta = 3}};
    for (int codec = 0; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        struct kw_batch_facts f;
        const char *why;
        size_t size = build(batch, records, 2, codec);
        kw_store32(batch + KW_BATCH_LAST_OFFSET_DELTA, 7);
        reseal(batch, size);
        assert_int_equal(check(batch, size), KW_EDECODE);
        assert_int_equal(check_with(batch, size, true, &f, &why), KW_OK);
        assert_int_equal(f.max_timestamp, 5003);
        assert_int_equal(f.offset_of_max_timestamp, 5);
        kw_store32(batch + KW_BATCH_LAST_OFFSET_DELTA, 4); /* a record lies behind it */
        reseal(batch, size);
        assert_int_equal(check_with(batch, size, true, &f, &why), KW_EDECODE);
        kw_store32(batch + KW_BATCH_LAST_OFFSET_DELTA, 0); /* less than the count */
        reseal(batch, size);
        assert_int_equal(check_with(batch, size, true, &f, &why), KW_EDECODE);
    }
    /* Empty, as compaction and dedup leave it. */
    size_t size = build(batch, records, 0, KW_CODEC_NONE);
    kw_store32(batch + KW_BATCH_LAST_OFFSET_DELTA, 9);
    reseal(batch, size);
    struct kw_batch_facts f;
    const char *why;
    assert_int_equal(size, KW_BATCH_HEADER_SIZE);
    assert_int_equal(check_with(batch, size, true, &f, &why), KW_OK);
    assert_true(f.max_timestamp == INT64_MIN);
    assert_int_equal(check(batch, size), KW_EDECODE);
    kw_store32(batch + KW_BATCH_LAST_OFFSET_DELTA, UINT32_MAX); /* count 0 = delta -1 + 1 */
    reseal(batch, size);
    assert_int_equal(check(batch, size), KW_EDECODE);
    assert_int_equal(check_with(batch, size, true, &f, &why), KW_EDECODE);
}

static void test_limit_of_the_body(void **state) {
    (void)state;
    static uint8_t big[200000];
    const struct kw_record_in records[] = {{.key = NULL_BYTES, .value = {big, sizeof(big)}}};
    for (int codec = 1; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        size_t size = build(batch, records, 1, codec);
        struct kw_batch_check c = {.limit = sizeof(big), .compressor = comp};
        struct kw_batch_facts f;
        const char *why = NULL;
        assert_int_equal(kw_batch_check(batch, size, &c, &f, &why), KW_ELIMIT);
        c.limit += 20;
        assert_int_equal(kw_batch_check(batch, size, &c, &f, &why), KW_OK);
        /* Damage inside the codec under a right checksum of the batch. */
        memset(batch + KW_BATCH_HEADER_SIZE + 8, 0xff, size - KW_BATCH_HEADER_SIZE - 8);
        kw_batch_crc_set(batch, size);
        kw_err err = kw_batch_check(batch, size, &c, &f, &why);
        assert_true(err == KW_EDECODE || err == KW_ELIMIT);
    }
}

static void test_record_sizes(void **state) {
    (void)state;
    /* Around every size at which a varint grows, the length prefix included. */
    static uint8_t value[70000], dst[70100];
    for (int32_t n = 0; n < 70000; n += n < 200 || (n > 8100 && n < 8300) ? 1 : n < 60000 ? 61 : 997) {
        struct kw_record_in r = {.key = {value, n % 70}, .value = {value, n}, .offset_delta = n, .timestamp_delta = -n};
        size_t size = kw_record_size(&r);
        assert_ptr_equal(kw_record_write(dst, &r, size), dst + size);
        assert_int_equal((dst[size - 1]), 0);
    }
    const struct kw_header_view headers[] = {{{"k", 1}, {value, INT32_MAX}}, {{"k", 1}, {value, INT32_MAX}}};
    struct kw_record_in huge = {.key = NULL_BYTES, .value = {value, INT32_MAX}};
    assert_true(kw_record_size(&huge) == SIZE_MAX);
    huge.value.len = INT32_MAX - 20;
    assert_true(kw_record_size(&huge) == (size_t)INT32_MAX - 20 + 15);
    huge.headers = headers;
    huge.header_count = 2;
    assert_true(kw_record_size(&huge) == SIZE_MAX);
}

static void test_random_round_trips(void **state) {
    (void)state;
    struct kw_rng rng;
    kw_rng_init(&rng, 11);
    static uint8_t bytes[5000];
    for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)kw_rng_next(&rng);
    for (int round = 0; round < 400; round++) {
        struct kw_record_in records[40];
        struct kw_header_view headers[4];
        size_t n = 1 + kw_rng_below(&rng, 40);
        for (int k = 0; k < 4; k++) {
            headers[k].key = (struct kw_str){(const char *)bytes, (int32_t)kw_rng_below(&rng, 100)};
            headers[k].value = (struct kw_bytes){bytes + 7, (int32_t)kw_rng_below(&rng, 300) - 1};
        }
        for (size_t i = 0; i < n; i++) {
            int shift = (int)kw_rng_below(&rng, 64);
            records[i] = (struct kw_record_in){.timestamp_delta = (int64_t)kw_rng_next(&rng) >> shift, .offset_delta = (int32_t)i,
                                               .key = {bytes + 1, (int32_t)kw_rng_below(&rng, 200) - 1},
                                               .value = {bytes + 2, (int32_t)kw_rng_below(&rng, 1 + kw_rng_below(&rng, 4000)) - 1},
                                               .headers = headers, .header_count = kw_rng_chance(&rng, 300000) ? kw_rng_below(&rng, 5) : 0};
        }
        int codec = (int)kw_rng_below(&rng, KW_CODEC_COUNT);
        if (!kw_codec_built(codec)) codec = 0;
        size_t size = build(batch, records, n, codec);
        assert_int_equal(check(batch, size), KW_OK);
        assert_reads_back(batch, size, records, n);
    }
}

static void test_no_memory(void **state) {
    (void)state;
    static uint8_t big[300000];
    const struct kw_record_in records[] = {{.key = NULL_BYTES, .value = {big, sizeof(big)}}};
    for (int codec = 1; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        size_t size = build(batch, records, 1, codec);
        kw_err err = KW_ENOMEM;
        for (int64_t fail = 0; err; fail++) {
            assert_true(fail < 50);
            struct kw_compressor *fresh = kw_compressor_new();
            struct kw_batch_check c = {.limit = 1 << 20, .compressor = fresh};
            struct kw_batch_facts f;
            const char *why = NULL;
            kw_alloc_fail_after(fail);
            err = kw_batch_check(batch, size, &c, &f, &why);
            kw_alloc_fail_after(-1);
            if (err) assert_int_equal(err, KW_ENOMEM);
            kw_compressor_free(fresh);
        }
    }
}

static int setup(void **state) {
    (void)state;
    comp = kw_compressor_new();
    return comp ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    kw_compressor_free(comp);
    return 0;
}

/* The fast way of reading a record takes nothing that the slow one refuses, and reads the same. */
static void test_fast_and_slow(void **state) {
    (void)state;
    struct kw_rng rng;
    size_t taken = 0;
    kw_rng_init(&rng, 7);
    for (int round = 0; round < 200000; round++) {
        uint8_t p[400] = {0}, bytes[200];
        struct kw_header_view h[3];
        struct kw_record_in in = {.timestamp_delta = (int64_t)kw_rng_below(&rng, 300), .offset_delta = (int32_t)kw_rng_below(&rng, 300),
                                  .key = {bytes, (int32_t)kw_rng_below(&rng, 20) - 1}, .value = {bytes, (int32_t)kw_rng_below(&rng, 100) - 1},
                                  .headers = h, .header_count = kw_rng_below(&rng, 4)};
        for (size_t i = 0; i < sizeof(bytes); i++) bytes[i] = (uint8_t)kw_rng_next(&rng);
        for (size_t i = 0; i < in.header_count; i++)
            h[i] = (struct kw_header_view){{(const char *)bytes, (int32_t)kw_rng_below(&rng, 20)}, {bytes, (int32_t)kw_rng_below(&rng, 20) - 1}};
        size_t size = kw_record_size(&in);
        kw_record_write(p, &in, size);
        if (round % 2) p[kw_rng_below(&rng, size)] = (uint8_t)kw_rng_next(&rng);
        size_t room = size + (round % 3 ? 24 : 0);
        struct kw_record_raw a, b;
        if (!kw_record_read_fast(p, p + room, &a)) continue;
        taken++;
        assert_int_equal(kw_record_read_slow(p, p + room, &b), KW_OK);
        assert_int_equal(a.timestamp_delta, b.timestamp_delta);
        assert_int_equal(a.offset_delta, b.offset_delta);
        assert_int_equal(a.header_count, b.header_count);
        assert_int_equal(a.key.len, b.key.len);
        assert_int_equal(a.value.len, b.value.len);
        assert_true(a.key.len <= 0 || a.key.p == b.key.p);
        assert_true(a.value.len <= 0 || a.value.p == b.value.p);
        assert_ptr_equal(a.headers, b.headers);
        assert_ptr_equal(a.end, b.end);
    }
    assert_true(taken > 60000);
}


int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_PR_06_null_and_empty),
        cmocka_unit_test(test_PR_16_timestamp_deltas),
        cmocka_unit_test(test_patches),
        cmocka_unit_test(test_bad_headers),
        cmocka_unit_test(test_bad_records),
        cmocka_unit_test(test_holes_and_empty),
        cmocka_unit_test(test_limit_of_the_body),
        cmocka_unit_test(test_record_sizes),
        cmocka_unit_test(test_random_round_trips),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_fast_and_slow),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
