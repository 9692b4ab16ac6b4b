/* test_compress.c - round trips of every codec and level, frames of the codec libraries themselves, limits (SE-06), the lz4 checksum
 * of old formats (PR-08), damage, failing allocation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#if KC_WITH_LZ4
#include <lz4frame.h>
#endif
#if KC_WITH_SNAPPY
#include <snappy-c.h>
#endif
#if KC_WITH_ZSTD
#include <zstd.h>
#endif

#include "base/rng.h"
#include "counted_alloc.h"
#include "wire/compress.h"

enum kind { TEXT, NOISE, ZEROS };
static uint8_t *sample(enum kind kind, size_t n) {
    uint8_t *p = malloc(n + 1);
    struct kw_rng r;
    kw_rng_init(&r, n);
    for (size_t i = 0; i < n; i++)
        p[i] = kind == ZEROS ? 0 : kind == NOISE ? (uint8_t)kw_rng_next(&r) : (uint8_t) "the quick brown fox "[(i + kw_rng_next(&r) % 7) % 20];
    return p;
}

static const size_t sizes[] = {0, 1, 2, 60, 100, 1000, 32767, 32768, 32769, 65535, 65536, 65537, 200000, 700000};

static void round_trip(struct kw_compressor *c, int codec, int level, int magic, const uint8_t *src, size_t n) {
    size_t cap = kw_compress_bound(codec, n), len = 0, back_len = 0;
    uint8_t *dst = malloc(cap + 1), *back = NULL;
    assert_int_equal(kw_compress(c, codec, level, magic, src, n, dst, cap, &len), KW_OK);
    assert_true(len <= cap);
    assert_int_equal(kw_decompress(c, codec, magic, dst, len, n, &back, &back_len), KW_OK); /* limit: exactly n */
    assert_int_equal(back_len, n);
    if (n > 0) assert_memory_equal(back, src, n);
    kw_free(back);
    const uint8_t *view = NULL;
    assert_int_equal(kw_decompress_view(c, codec, magic, dst, len, n + 1000, &view, &back_len), KW_OK);
    assert_int_equal(back_len, n);
    if (n > 0) assert_memory_equal(view, src, n);
    if (n > 0) assert_int_equal(kw_decompress(c, codec, magic, dst, len, n - 1, &back, &back_len), KW_ELIMIT);
    if (len > 0) { /* a destination one byte short, and an exact one */
        assert_int_equal(kw_compress(c, codec, level, magic, src, n, dst, len - 1, &back_len), KW_ELIMIT);
        memset(dst, 0xaa, cap + 1);
        kw_err err = kw_compress(c, codec, level, magic, src, n, dst, len, &back_len);
        if (err != KW_ELIMIT) assert_int_equal(err, KW_OK); /* zstd may want a little more than it uses */
        assert_int_equal(dst[len], 0xaa);
    }
    free(dst);
}

static void test_round_trips(void **state) {
    (void)state;
    struct kw_compressor *c = kw_compressor_new();
    for (int codec = 0; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        for (size_t i = 0; i < KW_COUNTOF(sizes); i++)
            for (enum kind kind = TEXT; kind <= ZEROS; kind++) {
                uint8_t *p = sample(kind, sizes[i]);
                round_trip(c, codec, KW_LEVEL_DEFAULT, 2, p, sizes[i]);
                free(p);
            }
        uint8_t *p = sample(TEXT, 50000);
        static const int levels[] = {-5, -1, 0, 1, 2, 3, 4, 9, 12, 17, 22};
        for (size_t i = 0; i < KW_COUNTOF(levels); i++)
            if (kw_codec_level_valid(codec, levels[i])) round_trip(c, codec, levels[i], 2, p, 50000);
        free(p);
    }
    kw_compressor_free(c);
    kw_compressor_free(NULL);
}

static void test_names_and_levels(void **state) {
    (void)state;
    const char *names[] = {"none", "gzip", "snappy", "lz4", "zstd"};
    for (int codec = 0; codec < KW_CODEC_COUNT; codec++) {
        assert_string_equal(kw_codec_name(codec), names[codec]);
        assert_int_equal(kw_codec_by_name(names[codec]), codec);
        assert_true(kw_codec_level_valid(codec, KW_LEVEL_DEFAULT));
        assert_false(kw_codec_level_valid(codec, 1000));
    }
    assert_null(kw_codec_name(5));
    assert_null(kw_codec_name(-1));
    assert_int_equal(kw_codec_by_name("brotli"), -1);
    assert_false(kw_codec_level_valid(5, KW_LEVEL_DEFAULT));
    assert_false(kw_codec_level_valid(KW_CODEC_GZIP, 10));
    struct kw_compressor *c = kw_compressor_new();
    uint8_t buf[64], *out;
    size_t len;
    assert_int_equal(kw_compress(c, 5, KW_LEVEL_DEFAULT, 2, "a", 1, buf, 64, &len), KW_EINVAL);
    assert_int_equal(kw_compress(c, 7, KW_LEVEL_DEFAULT, 2, "a", 1, buf, 64, &len), KW_EINVAL);
    assert_int_equal(kw_decompress(c, 6, 2, "a", 1, 10, &out, &len), KW_EINVAL);
    assert_int_equal(kw_compress(c, KW_CODEC_GZIP, 10, 2, "a", 1, buf, 64, &len), KW_EINVAL);
    kw_compressor_free(c);
}

static void test_empty_and_cut_input(void **state) {
    (void)state;
    struct kw_compressor *c = kw_compressor_new();
    uint8_t *p = sample(TEXT, 70000), *dst = malloc(200000), *out;
    size_t len = 0, out_len;
    for (int codec = 1; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        assert_int_not_equal(kw_decompress(c, codec, 2, NULL, 0, 1000, &out, &out_len), KW_OK);
        assert_int_equal(kw_compress(c, codec, KW_LEVEL_DEFAULT, 2, p, 70000, dst, 200000, &len), KW_OK);
        for (size_t n = 0; n < len; n += n < 200 || n > len - 200 ? 1 : 97) {
            uint8_t *exact = malloc(n ? n : 1); /* so that the sanitizer sees reads past the cut */
            memcpy(exact, dst, n);
            kw_err err = kw_decompress(c, codec, 2, exact, n, 1 << 20, &out, &out_len);
            if (err == KW_OK) { /* xerial framing has no end mark: a cut between blocks cannot be seen */
                assert_int_equal(codec, KW_CODEC_SNAPPY);
                kw_free(out);
            }
            free(exact);
        }
        dst[len] = 'x'; /* and bytes that are too many */
        assert_int_not_equal(kw_decompress(c, codec, 2, dst, len + 1, 1 << 20, &out, &out_len), KW_OK);
    }
    free(p);
    free(dst);
    kw_compressor_free(c);
}

static void test_concatenated(void **state) {
    (void)state;
    struct kw_compressor *c = kw_compressor_new();
    uint8_t *p = sample(TEXT, 70000), *dst = malloc(400000), *out = NULL;
    for (int codec = 1; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        size_t a = 0, b = 0, len = 0;
        assert_int_equal(kw_compress(c, codec, KW_LEVEL_DEFAULT, 2, p, 70000, dst, 200000, &a), KW_OK);
        assert_int_equal(kw_compress(c, codec, KW_LEVEL_DEFAULT, 2, p, 1000, dst + a, 200000, &b), KW_OK);
        assert_int_equal(kw_decompress(c, codec, 2, dst, a + b, 71000, &out, &len), KW_OK);
        assert_int_equal(len, 71000);
        assert_memory_equal(out, p, 70000);
        assert_memory_equal(out + 70000, p, 1000);
        kw_free(out);
        assert_int_equal(kw_decompress(c, codec, 2, dst, a + b, 70999, &out, &len), KW_ELIMIT);
    }
    free(p);
    free(dst);
    kw_compressor_free(c);
}

static void test_every_damaged_byte(void **state) {
    (void)state;
    struct kw_compressor *c = kw_compressor_new();
    uint8_t *p = sample(TEXT, 3000), dst[8000], *out;
    size_t len = 0, out_len;
    for (int codec = 1; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        assert_int_equal(kw_compress(c, codec, KW_LEVEL_DEFAULT, 2, p, 3000, dst, sizeof(dst), &len), KW_OK);
        for (size_t i = 0; i < len; i++)
            for (int bit = 0; bit < 8; bit++) {
                dst[i] ^= (uint8_t)(1 << bit);
                kw_err err = kw_decompress(c, codec, 2, dst, len, 5000, &out, &out_len);
                if (err == KW_OK) {
                    assert_true(out_len <= 5000);
                    kw_free(out);
                }
                dst[i] ^= (uint8_t)(1 << bit);
            }
    }
    free(p);
    kw_compressor_free(c);
}

/* SE-06: a batch of 1 KiB that claims or yields up to 4 GiB: refused with KW_ELIMIT, memory flat. */
__attribute__((unused)) static void expect_refused(struct kw_compressor *c, int codec, const uint8_t *p, size_t n, size_t limit) {
    uint8_t *out;
    const uint8_t *view;
    size_t len;
    assert_true(n <= 1100);
    counted_install();
    counted.most = counted.sum = 0;
    assert_int_equal(kw_decompress(c, codec, 2, p, n, limit, &out, &len), KW_ELIMIT);
    assert_true(counted.most <= KW_MIN(limit, (size_t)1 << 20));
    assert_true(counted.sum <= (size_t)2 << 20);
    assert_int_equal(kw_decompress_view(c, codec, 2, p, n, limit, &view, &len), KW_ELIMIT);
    assert_true(counted.sum <= (size_t)4 << 20);
}

__attribute__((unused)) static void put_le(uint8_t *p, uint64_t v, size_t n) { /* unused without any codec */
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(v >> (8 * i));
}

static void test_SE_06_claims(void **state) {
    (void)state;
    struct kw_compressor *c = kw_compressor_new();
    uint8_t p[1024] = {0};
    size_t limit = (size_t)100 << 20;
    (void)p, (void)limit;
#if KC_WITH_SNAPPY
    put_le(p, 0x0fffffffffu, 5); /* varint 2^32 - 1 */
    expect_refused(c, KW_CODEC_SNAPPY, p, sizeof(p), limit);
    const uint8_t frame[] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0x03, 0xec, 0xff, 0xff, 0xff, 0xff, 0x0f};
    memcpy(p, frame, sizeof(frame));
    expect_refused(c, KW_CODEC_SNAPPY, p, sizeof(p), limit);
    uint8_t *out;
    size_t len;
    memcpy(p, "\x80\x80\x80\x20", 4); /* 64 MiB is under the limit, but 1 KiB cannot yield it */
    counted.most = 0;
    assert_int_equal(kw_decompress(c, KW_CODEC_SNAPPY, 2, p, sizeof(p), limit, &out, &len), KW_EDECODE);
    assert_int_equal(counted.most, 0);
#endif
#if KC_WITH_ZSTD
    memset(p, 0, sizeof(p));
    put_le(p, 0xfd2fb528u, 4);
    p[4] = 0xe0; /* single segment, content size in 8 bytes */
    put_le(p + 5, (uint64_t)1 << 32, 8);
    expect_refused(c, KW_CODEC_ZSTD, p, sizeof(p), limit);
#endif
#if KC_WITH_GZIP
    size_t n = 0;
    assert_int_equal(kw_compress(c, KW_CODEC_GZIP, KW_LEVEL_DEFAULT, 2, "abc", 3, p, sizeof(p), &n), KW_OK);
    put_le(p + n - 4, 0xffffffffu, 4);
    expect_refused(c, KW_CODEC_GZIP, p, n, limit);
#endif
#if KC_WITH_LZ4
    LZ4F_preferences_t prefs = {.frameInfo = {.contentSize = (uint64_t)1 << 32}};
    LZ4F_cctx *lz4;
    LZ4F_createCompressionContext(&lz4, LZ4F_VERSION);
    memset(p, 0, sizeof(p));
    assert_int_equal(LZ4F_compressBegin(lz4, p, sizeof(p), &prefs), 15);
    LZ4F_freeCompressionContext(lz4);
    expect_refused(c, KW_CODEC_LZ4, p, sizeof(p), limit);
#endif
    kw_compressor_free(c);
}

static void test_SE_06_yields(void **state) {
    (void)state;
    struct kw_compressor *c = kw_compressor_new();
    size_t big = (size_t)64 << 20, cap = kw_compress_bound(KW_CODEC_SNAPPY, big), n = 0;
    uint8_t *zeros = calloc(1, big), *dst = malloc(cap);
    for (int codec = 1; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        size_t take = codec == KW_CODEC_ZSTD ? (size_t)16 << 20 : codec == KW_CODEC_GZIP ? (size_t)800 << 10
                      : codec == KW_CODEC_LZ4 ? (size_t)200 << 10
                                              : (size_t)20 << 10; /* what about 1 KiB of the codec holds at most */
        assert_int_equal(kw_compress(c, codec, KW_LEVEL_DEFAULT, 2, zeros, take, dst, cap, &n), KW_OK);
        expect_refused(c, codec, dst, n, take / 2);
        expect_refused(c, codec, dst, n, take - 1);
    }
#if KC_WITH_ZSTD
    /* A frame that does not say its size: runs of 128 KiB, four bytes each; 250 of them give 31 MiB. */
    put_le(dst, 0xfd2fb528u, 4);
    dst[4] = 0;
    dst[5] = (uint8_t)((27 - 10) << 3); /* asks for a window of 128 MiB */
    for (n = 6; n < 1000; n += 4) put_le(dst + n, (128u << 10) << 3 | 1 << 1 | (n + 4 >= 1000), 4);
    expect_refused(c, KW_CODEC_ZSTD, dst, n, 1 << 20);
    const uint8_t *view;
    size_t len = 0;
    assert_int_equal(kw_decompress_view(c, KW_CODEC_ZSTD, 2, dst, n, big, &view, &len), KW_OK);
    assert_int_equal(len, (n - 6) / 4 * (128u << 10));
#endif
    free(zeros);
    free(dst);
    kw_compressor_free(c);
}

#if KC_WITH_LZ4
/* PR-08: the header checksum that message format v0 had is taken in v0 and v1, and refused in v2. */
static void test_PR_08_lz4_header_checksum(void **state) {
    (void)state;
    struct kw_compressor *c = kw_compressor_new();
    uint8_t old[200], now[200], *out = NULL;
    size_t old_len = 0, now_len = 0, len = 0;
    assert_int_equal(kw_compress(c, KW_CODEC_LZ4, KW_LEVEL_DEFAULT, 0, "hello hello hello", 17, old, 200, &old_len), KW_OK);
    assert_int_equal(kw_compress(c, KW_CODEC_LZ4, KW_LEVEL_DEFAULT, 1, "hello hello hello", 17, now, 200, &now_len), KW_OK);
    assert_int_equal(old_len, now_len);
    assert_int_equal(now[6], 0x82); /* the right one for 64 kB, independent blocks: as in the format's description */
    assert_int_not_equal(old[6], now[6]);
    assert_memory_equal(old, now, 6);
    assert_memory_equal(old + 7, now + 7, old_len - 7);
    for (int magic = 0; magic <= 2; magic++) {
        assert_int_equal(kw_decompress(c, KW_CODEC_LZ4, magic, now, now_len, 100, &out, &len), KW_OK);
        kw_free(out);
        kw_err err = kw_decompress(c, KW_CODEC_LZ4, magic, old, old_len, 100, &out, &len);
        assert_int_equal(err, magic < 2 ? KW_OK : KW_ECRC);
        if (err == KW_OK) kw_free(out);
        uint8_t was = now[6];
        now[6] ^= 1;
        assert_int_equal(kw_decompress(c, KW_CODEC_LZ4, magic, now, now_len, 100, &out, &len), KW_ECRC);
        now[6] = was;
    }
    kw_compressor_free(c);
}

static void test_lz4_frames_of_the_library(void **state) {
    (void)state;
    struct kw_compressor *c = kw_compressor_new();
    uint8_t *p = sample(TEXT, 700000), *out = NULL;
    for (int options = 0; options < 32; options++) {
        LZ4F_preferences_t prefs = {.frameInfo = {.blockMode = options & 1 ? LZ4F_blockIndependent : LZ4F_blockLinked,
                                                  .contentChecksumFlag = options & 2 ? LZ4F_contentChecksumEnabled : 0,
                                                  .blockChecksumFlag = options & 4 ? LZ4F_blockChecksumEnabled : 0,
                                                  .contentSize = options & 8 ? 700000 : 0,
                                                  .blockSizeID = options & 16 ? LZ4F_max64KB : LZ4F_max1MB}};
        size_t cap = LZ4F_compressFrameBound(700000, &prefs), len = 0;
        uint8_t *dst = malloc(cap);
        size_t n = LZ4F_compressFrame(dst, cap, p, 700000, &prefs);
        assert_false(LZ4F_isError(n));
        assert_int_equal(kw_decompress(c, KW_CODEC_LZ4, 2, dst, n, 700000, &out, &len), KW_OK);
        assert_int_equal(len, 700000);
        assert_memory_equal(out, p, 700000);
        kw_free(out);
        if (options & 6) { /* with a checksum every damaged byte of a block is found */
            dst[n / 2] ^= 1;
            assert_int_not_equal(kw_decompress(c, KW_CODEC_LZ4, 2, dst, n, 700000, &out, &len), KW_OK);
        }
        free(dst);
    }
    /* And the library reads ours. */
    size_t cap = kw_compress_bound(KW_CODEC_LZ4, 700000), n = 0;
    uint8_t *dst = malloc(cap), *back = malloc(700000);
    assert_int_equal(kw_compress(c, KW_CODEC_LZ4, KW_LEVEL_DEFAULT, 2, p, 700000, dst, cap, &n), KW_OK);
    LZ4F_dctx *d;
    LZ4F_createDecompressionContext(&d, LZ4F_VERSION);
    size_t got = 700000, used = n;
    assert_int_equal(LZ4F_decompress(d, back, &got, dst, &used, NULL), 0);
    assert_int_equal(got, 700000);
    assert_memory_equal(back, p, 700000);
    LZ4F_freeDecompressionContext(d);
    free(dst);
    free(back);
    free(p);
    kw_compressor_free(c);
}
#endif

#if KC_WITH_ZSTD
static void test_zstd_without_content_size(void **state) {
    (void)state;
    struct kw_compressor *c = kw_compressor_new();
    for (size_t i = 0; i < KW_COUNTOF(sizes); i++)
        for (enum kind kind = TEXT; kind <= ZEROS; kind++) {
            uint8_t *p = sample(kind, sizes[i]), *out = NULL;
            size_t cap = ZSTD_compressBound(sizes[i]) + 100, len = 0;
            uint8_t *dst = malloc(cap);
            ZSTD_CCtx *z = ZSTD_createCCtx();
            ZSTD_CCtx_setParameter(z, ZSTD_c_checksumFlag, 1);
            ZSTD_outBuffer to = {dst, cap, 0};
            ZSTD_inBuffer from = {p, sizes[i] / 2, 0}; /* two steps, so that the size is not known at the start */
            assert_false(ZSTD_isError(ZSTD_compressStream2(z, &to, &from, ZSTD_e_flush)));
            from = (ZSTD_inBuffer){p, sizes[i], sizes[i] / 2};
            assert_int_equal(ZSTD_compressStream2(z, &to, &from, ZSTD_e_end), 0);
            assert_true(ZSTD_getFrameContentSize(dst, to.pos) == ZSTD_CONTENTSIZE_UNKNOWN);
            assert_int_equal(kw_decompress(c, KW_CODEC_ZSTD, 2, dst, to.pos, sizes[i], &out, &len), KW_OK);
            assert_int_equal(len, sizes[i]);
            if (len > 0) assert_memory_equal(out, p, len);
            kw_free(out);
            if (len > 0) assert_int_equal(kw_decompress(c, KW_CODEC_ZSTD, 2, dst, to.pos, sizes[i] - 1, &out, &len), KW_ELIMIT);
            ZSTD_freeCCtx(z);
            free(dst);
            free(p);
        }
    kw_compressor_free(c);
}
#endif

#if KC_WITH_SNAPPY
static void test_snappy_raw(void **state) {
    (void)state;
    struct kw_compressor *c = kw_compressor_new();
    for (size_t i = 0; i < KW_COUNTOF(sizes); i++) {
        uint8_t *p = sample(TEXT, sizes[i]), *out = NULL;
        size_t n = snappy_max_compressed_length(sizes[i]), len = 0;
        uint8_t *dst = malloc(n);
        assert_int_equal(snappy_compress((char *)p, sizes[i], (char *)dst, &n), SNAPPY_OK);
        assert_int_equal(kw_decompress(c, KW_CODEC_SNAPPY, 2, dst, n, sizes[i], &out, &len), KW_OK);
        assert_int_equal(len, sizes[i]);
        if (len > 0) assert_memory_equal(out, p, len);
        kw_free(out);
        free(dst);
        free(p);
    }
    kw_compressor_free(c);
}
#endif

static void test_no_memory(void **state) {
    (void)state;
    uint8_t *p = sample(ZEROS, 900000), *dst = malloc(1100000), *out = NULL;
    for (int codec = 0; codec < KW_CODEC_COUNT; codec++) {
        if (!kw_codec_built(codec)) continue;
        bool done = false;
        for (int64_t fail = 0; !done; fail++) {
            assert_true(fail < 100);
            kw_alloc_fail_after(fail);
            struct kw_compressor *c = kw_compressor_new();
            size_t len = 0, out_len = 0;
            kw_err err = KW_ENOMEM, last = KW_OK;
            /* a destination below snappy's bound, and two levels of lz4, to reach every allocation */
            if (c) err = kw_compress(c, codec, codec == KW_CODEC_LZ4 ? 5 : KW_LEVEL_DEFAULT, 2, p, 900000, dst, 900000, &len);
            if (err == KW_OK) err = kw_decompress(c, codec, 2, dst, len, 900000, &out, &out_len);
            if (err == KW_OK) {
                const uint8_t *view;
                assert_int_equal(out_len, 900000);
                kw_free(out);
                last = kw_decompress_view(c, codec, 2, dst, len, 900000, &view, &out_len);
            }
            kw_alloc_fail_after(-1);
            if (err == KW_OK && last == KW_OK) done = true;
            if (err) assert_int_equal(err, KW_ENOMEM);
            if (last) assert_int_equal(last, KW_ENOMEM);
            if (c && err) { /* the same compressor works once there is memory again */
                assert_int_equal(kw_compress(c, codec, KW_LEVEL_DEFAULT, 2, p, 900000, dst, 1100000, &len), KW_OK);
                assert_int_equal(kw_decompress(c, codec, 2, dst, len, 900000, &out, &out_len), KW_OK);
                kw_free(out);
            }
            kw_compressor_free(c);
        }
    }
    free(p);
    free(dst);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_names_and_levels),
        cmocka_unit_test(test_empty_and_cut_input),
        cmocka_unit_test(test_concatenated),
        cmocka_unit_test(test_every_damaged_byte),
        cmocka_unit_test(test_SE_06_claims),
        cmocka_unit_test(test_SE_06_yields),
#if KC_WITH_LZ4
        cmocka_unit_test(test_PR_08_lz4_header_checksum),
        cmocka_unit_test(test_lz4_frames_of_the_library),
#endif
#if KC_WITH_ZSTD
        cmocka_unit_test(test_zstd_without_content_size),
#endif
#if KC_WITH_SNAPPY
        cmocka_unit_test(test_snappy_raw),
#endif
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
