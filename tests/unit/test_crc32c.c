/* test_crc32c.c - published check values, the lane joints at every length, and incremental use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "base/rng.h"

static void test_known_values(void **state) {
    (void)state;
    uint8_t zeros[32] = {0}, ones[32], up[32];
    memset(ones, 0xff, sizeof(ones));
    for (int i = 0; i < 32; i++) up[i] = (uint8_t)i;
    /* "123456789" is the catalogue's check value; the 32-byte ones are RFC 3720 B.4's. */
    uint32_t (*both[])(uint32_t, const void *, size_t) = {kw_crc32c, kw_crc32c_portable};
    for (size_t i = 0; i < KW_COUNTOF(both); i++) {
        assert_int_equal(both[i](0, "123456789", 9), 0xe3069283u);
        assert_int_equal(both[i](0, zeros, 32), 0x8a9136aau);
        assert_int_equal(both[i](0, ones, 32), 0x62a8ab43u);
        assert_int_equal(both[i](0, up, 32), 0x46dd794eu);
        assert_int_equal(both[i](0, "", 0), 0);
        assert_int_equal(both[i](0x12345678u, NULL, 0), 0x12345678u);
    }
    assert_int_equal(kw_crc32(0, "123456789", 9), 0xcbf43926u);
    assert_int_equal(kw_crc32(0, "", 0), 0);
    assert_int_equal(kw_crc32(0x12345678u, NULL, 0), 0x12345678u);
}

static uint32_t bitwise(uint32_t crc, const uint8_t *p, size_t n, uint32_t poly) {
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int b = 0; b < 8; b++) crc = (crc >> 1) ^ (poly & -(crc & 1));
    }
    return ~crc;
}

#define SIZE_MAX_TESTED ((size_t)100 * 1000)

static uint8_t *random_bytes(size_t n) {
    uint8_t *p = malloc(n);
    struct kw_rng rng;
    kw_rng_init(&rng, 7);
    for (size_t i = 0; i < n; i++) p[i] = (uint8_t)kw_rng_next(&rng);
    return p;
}

static void test_every_length(void **state) {
    (void)state;
    uint8_t *p = random_bytes(SIZE_MAX_TESTED + 16);
    for (size_t n = 0; n < 7000; n++) {
        size_t skew = n % 13;
        uint32_t want = kw_crc32c_portable(5, p + skew, n);
        assert_int_equal(kw_crc32c(5, p + skew, n), want);
        if (n < 600) assert_int_equal(want, bitwise(5, p + skew, n, 0x82f63b78u));
        if (n < 600) assert_int_equal(kw_crc32(5, p + skew, n), bitwise(5, p + skew, n, 0xedb88320u));
    }
    for (size_t n = 24500; n < SIZE_MAX_TESTED; n += 1237)
        assert_int_equal(kw_crc32c(0, p, n), kw_crc32c_portable(0, p, n));
    free(p);
}

static void test_pieces_equal_whole(void **state) {
    (void)state;
    uint8_t *p = random_bytes(SIZE_MAX_TESTED);
    struct kw_rng rng;
    kw_rng_init(&rng, 8);
    uint32_t whole = kw_crc32c(0, p, SIZE_MAX_TESTED), whole32 = kw_crc32(0, p, SIZE_MAX_TESTED);
    for (int round = 0; round < 50; round++) {
        uint32_t crc = 0, crc32 = 0;
        for (size_t at = 0; at < SIZE_MAX_TESTED;) {
            size_t n = (size_t)kw_rng_below(&rng, 9000);
            if (n > SIZE_MAX_TESTED - at) n = SIZE_MAX_TESTED - at;
            crc = kw_crc32c(crc, p + at, n);
            crc32 = kw_crc32(crc32, p + at, n);
            at += n;
        }
        assert_int_equal(crc, whole);
        assert_int_equal(crc32, whole32);
    }
    free(p);
}

static void test_join(void **state) {
    (void)state;
    uint8_t *p = random_bytes(SIZE_MAX_TESTED);
    uint32_t whole = kw_crc32c(0, p, SIZE_MAX_TESTED);
    for (size_t at = 0; at <= SIZE_MAX_TESTED; at += at < 300 || at > SIZE_MAX_TESTED - 300 ? 1 : 997) {
        uint32_t first = kw_crc32c(0, p, at), second = kw_crc32c(0, p + at, SIZE_MAX_TESTED - at);
        assert_int_equal(kw_crc32c_join(first, second, SIZE_MAX_TESTED - at), whole);
        if (at > SIZE_MAX_TESTED - 997 && at < SIZE_MAX_TESTED - 300) at = SIZE_MAX_TESTED - 301;
    }
    /* 4 GiB of zeros behind it: more bits than 32 count */
    static const uint8_t zeros[1 << 20];
    uint32_t far = kw_crc32c(0, "x", 1), none = 0;
    for (int i = 0; i < 4096; i++) {
        far = kw_crc32c(far, zeros, sizeof(zeros));
        none = kw_crc32c(none, zeros, sizeof(zeros));
    }
    assert_int_equal(kw_crc32c_join(kw_crc32c(0, "x", 1), none, (size_t)4096 * sizeof(zeros)), far);
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_every_length),
        cmocka_unit_test(test_pieces_equal_whole),
        cmocka_unit_test(test_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
