/* test_message_set.c - old formats: exact bytes, wrappers and their offsets (PR-09), cut tails (CC-15), the old lz4 checksum (PR-08), every
 * kind of malformed message, limits (SE-06), failing allocation. What Kafka's own code wrote is in test_golden.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "base/rng.h"
#include "wire/message_set.h"

static struct kw_compressor *comp;
static const struct kw_bytes null_bytes = {NULL, -1};
static const struct kw_bytes key = {(const uint8_t *)"key", 3}, value = {(const uint8_t *)"value", 5};

static void recrc(uint8_t *p, size_t size) { kw_store32(p + KW_MESSAGE_CRC, kw_crc32(0, p + KW_MESSAGE_MAGIC, size - KW_MESSAGE_MAGIC)); }

/* Walks the set in memory of its own size; gives the last return value and how many messages came. */
static int32_t walk(const uint8_t *p, size_t n, size_t limit, int *count, struct kw_message_iter *end) {
    struct kw_message_iter it;
    struct kw_message_view m;
    uint8_t *exact = malloc(n ? n : 1);
    memcpy(exact, p, n);
    kw_message_iter_init(&it, exact, n, limit, comp);
    int32_t rc;
    *count = 0;
    while ((rc = kw_message_iter_next(&it, &m)) == 1) ++*count;
    assert_int_equal(kw_message_iter_next(&it, &m), rc); /* an end or a failure stays */
    kw_message_iter_deinit(&it);
    if (end) *end = it;
    free(exact);
    return rc;
}

static void test_exact_bytes(void **state) {
    (void)state;
    struct kw_out out;
    kw_out_init(&out);
    assert_int_equal(kw_message_write(&out, 0, 5, 99, 0, key, value), KW_OK);
    const uint8_t v0[] = {0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 'k', 'e', 'y', 0, 0, 0, 5, 'v', 'a', 'l', 'u', 'e'};
    assert_int_equal(out.len, sizeof(v0));
    assert_int_equal(kw_load32(out.p + KW_MESSAGE_CRC), kw_crc32(0, v0 + 16, sizeof(v0) - 16));
    kw_store32(out.p + KW_MESSAGE_CRC, 0);
    assert_memory_equal(out.p, v0, sizeof(v0));
    kw_out_reset(&out);
    assert_int_equal(kw_message_write(&out, 1, -1, 0x0102030405060708, KW_ATTR_LOG_APPEND_TIME, null_bytes, null_bytes), KW_OK);
    const uint8_t v1[] = {255, 255, 255, 255, 255, 255, 255, 255, 0,   0,   0,   22,  0,   0,   0,   0,   1,
                          8,   1,   2,   3,   4,   5,   6,   7,   8,   255, 255, 255, 255, 255, 255, 255, 255};
    kw_store32(out.p + KW_MESSAGE_CRC, 0);
    assert_int_equal(out.len, sizeof(v1));
    assert_memory_equal(out.p, v1, sizeof(v1));
    kw_out_deinit(&out);
}

static void write_inner(struct kw_out *inner, int8_t magic, int count, int64_t first) {
    kw_out_reset(inner);
    for (int i = 0; i < count; i++)
        assert_int_equal(kw_message_write(inner, magic, first + i, 1000 + i, 0, i % 2 ? key : null_bytes, value), KW_OK);
}

static void assert_offsets(const uint8_t *p, size_t n, int count, int64_t first) {
    struct kw_message_iter it;
    struct kw_message_view m;
    kw_message_iter_init(&it, p, n, 1 << 20, comp);
    for (int i = 0; i < count; i++) {
        assert_int_equal(kw_message_iter_next(&it, &m), 1);
        assert_int_equal(m.offset, first + i);
    }
    assert_int_equal(kw_message_iter_next(&it, &m), 0);
    kw_message_iter_deinit(&it);
}

/* PR-09: offsets inside v1 wrappers; the wrapper left at 0 by the producer; a wrapper with nothing inside. */
static void test_PR_09_wrapper_offsets(void **state) {
    (void)state;
    struct kw_out out, inner;
    kw_out_init(&out);
    kw_out_init(&inner);
    for (int codec = KW_CODEC_GZIP; codec <= KW_CODEC_LZ4; codec++) {
        if (!kw_codec_built(codec)) continue;
        write_inner(&inner, 1, 4, 0);
        kw_out_reset(&out); /* as a broker stores it: the wrapper has the last one's offset */
        assert_int_equal(kw_message_write_wrapper(&out, 1, codec, KW_LEVEL_DEFAULT, 503, 1003, false, inner.p, inner.len, comp), KW_OK);
        assert_offsets(out.p, out.len, 4, 500);
        kw_store64(out.p, 0); /* as some producers send it; the offset is outside the checksum */
        assert_offsets(out.p, out.len, 4, 0);
        write_inner(&inner, 1, 4, 7); /* inner offsets that do not start at 0, as compaction leaves them: the last one rules */
        kw_out_reset(&out);
        assert_int_equal(kw_message_write_wrapper(&out, 1, codec, KW_LEVEL_DEFAULT, 510, 1003, false, inner.p, inner.len, comp), KW_OK);
        assert_offsets(out.p, out.len, 4, 507);
        kw_store64(out.p, 0);
        assert_offsets(out.p, out.len, 4, 7);
        write_inner(&inner, 0, 4, 500); /* v0: absolute inside */
        kw_out_reset(&out);
        assert_int_equal(kw_message_write_wrapper(&out, 0, codec, KW_LEVEL_DEFAULT, 503, -1, false, inner.p, inner.len, comp), KW_OK);
        assert_offsets(out.p, out.len, 4, 500);

        for (int8_t magic = 0; magic <= 1; magic++) { /* nothing inside: corrupt, and not an endless loop */
            kw_out_reset(&out);
            assert_int_equal(kw_message_write_wrapper(&out, magic, codec, KW_LEVEL_DEFAULT, 5, 0, false, "", 0, comp), KW_OK);
            int count;
            assert_int_equal(walk(out.p, out.len, 1 << 20, &count, NULL), KW_EDECODE);
            assert_int_equal(count, 0);
            uint8_t *batch;
            size_t size;
            const char *why = NULL;
            assert_int_equal(kw_message_set_to_batch(out.p, out.len, 1 << 20, comp, &batch, &size, &why), KW_EDECODE);
            assert_non_null(why);
        }
    }
    kw_out_deinit(&out);
    kw_out_deinit(&inner);
}

/* CC-15: an old broker cuts the set at the fetch limit; the cut entry's size tells how much the next fetch must ask for. */
static void test_CC_15_cut_tail(void **state) {
    (void)state;
    struct kw_out out;
    kw_out_init(&out);
    uint8_t *big = calloc(1, 1 << 20);
    for (int8_t magic = 0; magic <= 1; magic++) {
        kw_out_reset(&out);
        assert_int_equal(kw_message_write(&out, magic, 0, 0, 0, key, value), KW_OK);
        size_t first = out.len;
        assert_int_equal(kw_message_write(&out, magic, 1, 0, 0, key, (struct kw_bytes){big, 1 << 20}), KW_OK);
        size_t whole = out.len - first;
        for (size_t n = first; n < first + 100; n++) {
            int count;
            struct kw_message_iter it;
            assert_int_equal(walk(out.p, n, 1 << 20, &count, &it), 0);
            assert_int_equal(count, 1);
            assert_int_equal(it.left, n - first);
            assert_int_equal(it.cut_size, n - first >= KW_BATCH_OVERHEAD ? whole : 0);
        }
        int count;
        struct kw_message_iter it;
        assert_int_equal(walk(out.p, 1024, 1 << 20, &count, &it), 0); /* a fetch of 1 KiB */
        assert_int_equal(it.cut_size, whole);
        assert_int_equal(walk(out.p + first, it.cut_size, 1 << 20, &count, &it), 0); /* the next asks for that much */
        assert_int_equal(count, 1);
        assert_int_equal(it.cut_size, 0);
    }
    /* The same for a v2 batch. */
    struct kw_batch_header h = {.length = 5000, .magic = 2};
    struct kw_entry e;
    kw_batch_write_header(big, &h);
    for (size_t n = 0; n < 100; n++) {
        const uint8_t *p = big;
        assert_int_equal(kw_entry_next(&p, big + n, &e), 0);
        assert_ptr_equal(p, big);
        assert_int_equal(e.size, n >= KW_BATCH_OVERHEAD ? 5012 : 0);
    }
    free(big);
    kw_out_deinit(&out);
}

static void test_entries(void **state) {
    (void)state;
    const struct {
        int32_t length;
        uint8_t magic;
        int32_t rc;
    } cases[] = {{14, 0, 1}, {13, 0, KW_EDECODE}, {22, 1, 1}, {21, 1, KW_EDECODE}, {49, 2, 1}, {48, 2, KW_EDECODE}, {-1, 2, KW_EDECODE},
                 {-12, 0, KW_EDECODE}, {-13, 0, KW_EDECODE}, {INT32_MIN, 0, KW_EDECODE}, {INT32_MAX, 1, 0}, {60, 3, KW_EVERSION}, {60, 0xff, KW_EVERSION}};
    for (size_t i = 0; i < KW_COUNTOF(cases); i++) {
        uint8_t buf[100] = {0};
        struct kw_entry e;
        kw_store32(buf + KW_BATCH_LENGTH, (uint32_t)cases[i].length);
        buf[KW_BATCH_MAGIC] = cases[i].magic;
        const uint8_t *p = buf;
        assert_int_equal(kw_entry_next(&p, buf + 100, &e), cases[i].rc);
        if (cases[i].rc != 1) continue;
        assert_int_equal(e.size, cases[i].length + 12);
        assert_ptr_equal(p, buf + e.size);
    }
}

static void test_malformed(void **state) {
    (void)state;
    struct kw_out out;
    kw_out_init(&out);
    int count;
    for (int8_t magic = 0; magic <= 1; magic++) {
        kw_out_reset(&out);
        assert_int_equal(kw_message_write(&out, magic, 0, 0, 0, key, value), KW_OK);
        size_t n = out.len, at = KW_MESSAGE_TIMESTAMP + (magic ? 8 : 0);
        assert_int_equal(walk(out.p, n, 100, &count, NULL), 0);
        for (size_t i = KW_MESSAGE_CRC; i < n; i++) {
            if (i == KW_MESSAGE_MAGIC) continue; /* may become another format's cut entry */
            out.p[i] ^= 0x10;
            assert_int_equal(walk(out.p, n, 100, &count, NULL), KW_ECRC);
            out.p[i] ^= 0x10;
        }
        const struct {
            size_t at;
            int32_t value;
        } bad[] = {{at, -2}, {at, 4}, {at, 2}, {at, INT32_MAX}, {at, INT32_MIN}, {at + 7, 4}, {at + 7, 6}, {at + 7, -1}, {at + 7, INT32_MAX}};
        for (size_t i = 0; i < KW_COUNTOF(bad); i++) {
            uint32_t was = kw_load32(out.p + bad[i].at);
            kw_store32(out.p + bad[i].at, (uint32_t)bad[i].value);
            recrc(out.p, n);
            assert_int_equal(walk(out.p, n, 100, &count, NULL), KW_EDECODE);
            kw_store32(out.p + bad[i].at, was);
            recrc(out.p, n);
        }
        for (int codec = 1; codec < 8; codec++) { /* a wrapper whose value is no set, or of a codec that these formats lack */
            out.p[KW_MESSAGE_ATTRIBUTES] = (uint8_t)codec;
            recrc(out.p, n);
            kw_err err = walk(out.p, n, 1 << 20, &count, NULL);
            assert_true(err == KW_EDECODE || (err == KW_EUNSUPPORTED && codec <= KW_CODEC_LZ4 && !kw_codec_built(codec)));
        }
    }
    kw_out_deinit(&out);
}

static void assert_inner(struct kw_out *out, int8_t magic, const struct kw_out *inner, kw_err want) {
    int count;
    for (int codec = KW_CODEC_GZIP; codec <= KW_CODEC_LZ4; codec++) {
        if (!kw_codec_built(codec)) continue;
        kw_out_reset(out);
        assert_int_equal(kw_message_write_wrapper(out, magic, codec, KW_LEVEL_DEFAULT, 5, 0, false, inner->p, inner->len, comp), KW_OK);
        assert_int_equal(walk(out->p, out->len, 1 << 20, &count, NULL), want);
    }
}

static void test_malformed_inner(void **state) {
    (void)state;
    struct kw_out out, inner, deep;
    kw_out_init(&out);
    kw_out_init(&inner);
    kw_out_init(&deep);
    for (int8_t magic = 0; magic <= 1; magic++) {
        write_inner(&inner, magic, 3, 0);
        assert_inner(&out, magic, &inner, 0);
        assert_inner(&out, 1 - magic, &inner, KW_EDECODE); /* another format inside */
        inner.p[inner.len - 1] ^= 1;
        assert_inner(&out, magic, &inner, KW_ECRC);
        inner.p[inner.len - 1] ^= 1;
        inner.len -= 1; /* cut inside */
        assert_inner(&out, magic, &inner, KW_EDECODE);
        inner.len += 1;
        if (kw_codec_built(KW_CODEC_GZIP)) { /* a wrapper in a wrapper */
            kw_out_reset(&deep);
            assert_int_equal(kw_message_write_wrapper(&deep, magic, KW_CODEC_GZIP, KW_LEVEL_DEFAULT, 5, 0, false, inner.p, inner.len, comp), KW_OK);
            assert_inner(&out, magic, &deep, KW_EDECODE);
        }
    }
    assert_int_equal(kw_message_write_wrapper(&out, 1, KW_CODEC_ZSTD, KW_LEVEL_DEFAULT, 5, 0, false, inner.p, inner.len, comp), KW_EUNSUPPORTED);
    kw_out_deinit(&out);
    kw_out_deinit(&inner);
    kw_out_deinit(&deep);
}

static void test_log_append_time(void **state) {
    (void)state;
    struct kw_out out, inner;
    kw_out_init(&out);
    kw_out_init(&inner);
    write_inner(&inner, 1, 3, 0);
    int codec = KW_CODEC_NONE;
    for (int c = KW_CODEC_GZIP; c <= KW_CODEC_LZ4; c++)
        if (kw_codec_built(c)) codec = c;
    for (int append = 0; append <= 1 && codec; append++) {
        kw_out_reset(&out);
        assert_int_equal(kw_message_write_wrapper(&out, 1, codec, KW_LEVEL_DEFAULT, 2, 7777, append, inner.p, inner.len, comp), KW_OK);
        struct kw_message_iter it;
        struct kw_message_view m;
        kw_message_iter_init(&it, out.p, out.len, 1 << 20, comp);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(kw_message_iter_next(&it, &m), 1);
            assert_int_equal(m.timestamp, append ? 7777 : 1000 + i);
            assert_int_equal(!!(m.attributes & KW_ATTR_LOG_APPEND_TIME), append);
        }
        kw_message_iter_deinit(&it);
    }
    kw_out_deinit(&out);
    kw_out_deinit(&inner);
}

#if KC_WITH_LZ4
/* PR-08 within messages: v0 and v1 take the historic checksum and the right one; v0 is written with the historic one. */
static void test_PR_08_in_messages(void **state) {
    (void)state;
    struct kw_out out, inner;
    kw_out_init(&out);
    kw_out_init(&inner);
    uint8_t sums[2] = {0};
    for (int round = 0; round < 4; round++) {
        int8_t magic = (int8_t)(round % 2);
        write_inner(&inner, magic, 3, 0);
        kw_out_reset(&out);
        assert_int_equal(kw_message_write_wrapper(&out, magic, KW_CODEC_LZ4, KW_LEVEL_DEFAULT, 2, 0, false, inner.p, inner.len, comp), KW_OK);
        uint8_t *frame = out.p + KW_MESSAGE_TIMESTAMP + 8 * magic + 8;
        assert_int_equal(kw_load32(frame), 0x04224d18);
        if (round < 2) {
            sums[magic] = frame[6];
        } else {
            frame[6] = sums[1 - magic]; /* the other one's */
            recrc(out.p, out.len);
        }
        int count;
        assert_int_equal(walk(out.p, out.len, 1 << 20, &count, NULL), 0);
        assert_int_equal(count, 3);
    }
    assert_int_not_equal(sums[0], sums[1]);
    kw_out_deinit(&out);
    kw_out_deinit(&inner);
}
#endif

/* SE-06 for wrappers: the limit holds for one wrapper, and in conversion for all together. */
static void test_SE_06_limit(void **state) {
    (void)state;
    struct kw_out out, inner;
    kw_out_init(&out);
    kw_out_init(&inner);
    uint8_t *zeros = calloc(1, 100000), *batch;
    size_t size;
    const char *why = NULL;
    assert_int_equal(kw_message_write(&inner, 1, 0, 0, 0, null_bytes, (struct kw_bytes){zeros, 100000}), KW_OK);
    for (int codec = KW_CODEC_GZIP; codec <= KW_CODEC_LZ4; codec++) {
        if (!kw_codec_built(codec)) continue;
        kw_out_reset(&out);
        for (int i = 0; i < 5; i++)
            assert_int_equal(kw_message_write_wrapper(&out, 1, codec, KW_LEVEL_DEFAULT, i, 0, false, inner.p, inner.len, comp), KW_OK);
        int count;
        assert_int_equal(walk(out.p, out.len, 50000, &count, NULL), KW_ELIMIT);
        assert_int_equal(walk(out.p, out.len, 200000, &count, NULL), 0);
        assert_int_equal(count, 5);
        assert_int_equal(kw_message_set_to_batch(out.p, out.len, 200000, comp, &batch, &size, &why), KW_ELIMIT);
        assert_int_equal(kw_message_set_to_batch(out.p, out.len, 600000, comp, &batch, &size, &why), KW_OK);
        kw_out_reset(&out);
        assert_int_equal(kw_batch_to_message_set(batch, size, 1, 0, 50000, comp, &out), KW_ELIMIT);
        assert_int_equal(out.len, 0);
        kw_free(batch);
    }
    free(zeros);
    kw_out_deinit(&out);
    kw_out_deinit(&inner);
}

static void test_no_memory(void **state) {
    (void)state;
    struct kw_out inner;
    kw_out_init(&inner);
    write_inner(&inner, 1, 50, 0);
    for (int codec = KW_CODEC_NONE; codec <= KW_CODEC_LZ4; codec++) {
        if (!kw_codec_built(codec)) continue;
        kw_err err = KW_ENOMEM;
        for (int64_t fail = 0; err; fail++) {
            assert_true(fail < 100);
            struct kw_compressor *fresh = kw_compressor_new();
            struct kw_out set, down;
            uint8_t *batch = NULL;
            size_t size = 0;
            const char *why = NULL;
            kw_out_init(&set);
            kw_out_init(&down);
            kw_alloc_fail_after(fail);
            err = codec ? kw_message_write_wrapper(&set, 1, codec, KW_LEVEL_DEFAULT, 49, 0, false, inner.p, inner.len, fresh)
                        : kw_message_write(&set, 1, 0, 0, 0, key, value);
            if (err == KW_OK) err = kw_message_set_to_batch(set.p, set.len, 1 << 20, fresh, &batch, &size, &why);
            if (err == KW_OK) err = kw_batch_to_message_set(batch, size, 0, 0, 1 << 20, fresh, &down);
            kw_alloc_fail_after(-1);
            if (err) {
                assert_int_equal(err, KW_ENOMEM);
                assert_int_equal(down.len, 0);
            }
            kw_free(batch);
            kw_out_deinit(&set);
            kw_out_deinit(&down);
            kw_compressor_free(fresh);
        }
    }
    kw_out_deinit(&inner);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact_bytes),
        cmocka_unit_test(test_PR_09_wrapper_offsets),
        cmocka_unit_test(test_CC_15_cut_tail),
        cmocka_unit_test(test_entries),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_malformed_inner),
        cmocka_unit_test(test_log_append_time),
#if KC_WITH_LZ4
        cmocka_unit_test(test_PR_08_in_messages),
#endif
        cmocka_unit_test(test_SE_06_limit),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
