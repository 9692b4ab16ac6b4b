/* crc32c.c - CRC-32C and CRC-32. Called by wire/batch, wire/message_set and the log; calls zlib for CRC-32 where gzip is built in.
 *
 * x86: the crc32 instruction takes 8 bytes a cycle but answers after 3, so three lanes run interleaved. Their results are joined by
 * carry-less multiplication: moving a CRC over n bits is multiplying it by x^n mod P. PCLMULQDQ multiplies reflected values and
 * yields the product times x; feeding that to the crc32 instruction multiplies it by x^32 and reduces it; so the factor is
 * x^(n-33) mod P. ARMv8 (when the compiler targets its CRC extension) joins long lanes in plain C. Elsewhere: slicing by 8.
 */
#include "crc32c.h"

#if KC_WITH_GZIP
#include <zlib.h>
#endif

#define POLY_CRC32C 0x82f63b78u /* reflected */

static uint32_t slice[8][256];

static void slice_init(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = (c >> 1) ^ (POLY_CRC32C & -(c & 1));
        slice[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 8; t++) slice[t][i] = (slice[t - 1][i] >> 8) ^ slice[0][slice[t - 1][i] & 0xff];
}

static inline uint32_t load32le(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint32_t crc_slices(uint32_t crc, const uint8_t *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        uint32_t a = crc ^ load32le(p), b = load32le(p + 4);
        crc = slice[7][a & 0xff] ^ slice[6][(a >> 8) & 0xff] ^ slice[5][(a >> 16) & 0xff] ^ slice[4][a >> 24] ^
              slice[3][b & 0xff] ^ slice[2][(b >> 8) & 0xff] ^ slice[1][(b >> 16) & 0xff] ^ slice[0][b >> 24];
    }
    for (; n > 0; p++, n--) crc = (crc >> 8) ^ slice[0][(crc ^ *p) & 0xff];
    return crc;
}

/* a * b mod P over reflected values (bit 31 is x^0). */
static uint32_t multiply_mod(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 31; i >= 0; i--) {
        if (a >> i & 1) product ^= b;
        b = (b >> 1) ^ (POLY_CRC32C & -(b & 1));
    }
    return product;
}

static uint32_t square[64]; /* x^(2^i) mod P */

static void squares_init(void) {
    square[0] = 1u << 30;
    for (size_t i = 1; i < KW_COUNTOF(square); i++) square[i] = multiply_mod(square[i - 1], square[i - 1]);
}

static uint32_t x_power(uint64_t n) { /* x^n mod P */
    uint32_t result = 1u << 31;
    for (size_t i = 0; n > 0; n >>= 1, i++)
        if (n & 1) result = multiply_mod(result, square[i]);
    return result;
}

#if defined(__x86_64__) || (defined(__aarch64__) && defined(__ARM_FEATURE_CRC32))

/* Lanes of 1..LANE_MAX words of 8 bytes, and of LANE_LONG words for long inputs. */
#define LANE_MAX 128
#define LANE_LONG 1024
struct lane_factors {
    uint32_t by_one, by_two; /* for the middle lane (moved over one lane) and the first (over two) */
};
static struct lane_factors factors[LANE_MAX + 1], factors_long;

static void factors_init(uint32_t less) {
    uint32_t word = x_power(64), one = x_power(64 - less), two = 0;
    for (uint32_t i = 1; i <= LANE_MAX; i++) {
        two = i == 1 ? x_power(128 - less) : multiply_mod(two, multiply_mod(word, word));
        factors[i] = (struct lane_factors){one, two};
        one = multiply_mod(one, word);
    }
    factors_long = (struct lane_factors){x_power(64 * LANE_LONG - less), x_power(128 * LANE_LONG - less)};
}
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#define HW __attribute__((target("sse4.2,pclmul")))

static inline uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

HW static inline uint64_t clmul(uint64_t a, uint32_t b) {
    return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)a), _mm_cvtsi32_si128((int32_t)b), 0));
}

/* Three neighbouring lanes of `words` words each. */
HW static inline uint64_t three_lanes(uint64_t crc, const uint8_t *p, size_t words, struct lane_factors f) {
    const uint8_t *q = p + 8 * words, *r = q + 8 * words, *last = q - 8;
    uint64_t a = crc, b = 0, c = 0;
    for (; p < last; p += 8, q += 8, r += 8) {
        a = _mm_crc32_u64(a, load64(p));
        b = _mm_crc32_u64(b, load64(q));
        c = _mm_crc32_u64(c, load64(r));
    }
    a = _mm_crc32_u64(a, load64(p));
    b = _mm_crc32_u64(b, load64(q));
    /* The last word of the last lane takes the moved CRCs of the others with it. */
    return _mm_crc32_u64(c, load64(r) ^ clmul(a, f.by_two) ^ clmul(b, f.by_one));
}

HW static uint32_t crc_hardware(uint32_t crc32, const uint8_t *p, size_t n) {
    uint64_t crc = crc32;
    while (n >= 24 * LANE_LONG) {
        crc = three_lanes(crc, p, LANE_LONG, factors_long);
        p += 24 * LANE_LONG;
        n -= 24 * LANE_LONG;
    }
    while (n >= 96) { /* below, joining costs more than lanes save */
        size_t words = KW_MIN(n / 24, (size_t)LANE_MAX);
        crc = three_lanes(crc, p, words, factors[words]);
        p += 24 * words;
        n -= 24 * words;
    }
    for (; n >= 8; p += 8, n -= 8) crc = _mm_crc32_u64(crc, load64(p));
    if (n & 4) {
        crc = _mm_crc32_u32((uint32_t)crc, load32le(p));
        p += 4;
    }
    if (n & 2) {
        crc = _mm_crc32_u16((uint32_t)crc, (uint16_t)(p[0] | p[1] << 8));
        p += 2;
    }
    if (n & 1) crc = _mm_crc32_u8((uint32_t)crc, *p);
    return (uint32_t)crc;
}

static bool hardware_init(void) {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return false;
    factors_init(33);
    return true;
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>

static inline uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static uint32_t crc_hardware(uint32_t crc, const uint8_t *p, size_t n) {
    while (n >= 24 * LANE_MAX) { /* joining takes about 64 steps here: long lanes only */
        bool is_long = n >= 24 * LANE_LONG;
        size_t lane = 8 * (is_long ? (size_t)LANE_LONG : LANE_MAX);
        struct lane_factors f = is_long ? factors_long : factors[LANE_MAX];
        uint32_t b = 0, c = 0;
        for (size_t i = 0; i < lane; i += 8) {
            crc = __crc32cd(crc, load64(p + i));
            b = __crc32cd(b, load64(p + lane + i));
            c = __crc32cd(c, load64(p + 2 * lane + i));
        }
        crc = multiply_mod(crc, f.by_two) ^ multiply_mod(b, f.by_one) ^ c;
        p += 3 * lane;
        n -= 3 * lane;
    }
    for (; n >= 8; p += 8, n -= 8) crc = __crc32cd(crc, load64(p));
    for (; n > 0; p++, n--) crc = __crc32cb(crc, *p);
    return crc;
}

static bool hardware_init(void) {
    factors_init(0);
    return true;
}

#else
static uint32_t crc_hardware(uint32_t crc, const uint8_t *p, size_t n) { return crc_slices(crc, p, n); }
static bool hardware_init(void) { return false; }
#endif

static bool ready, hardware;

/* Before main, hence before any thread: the tables need no lock. Another constructor that runs earlier still gets here by `ready`. */
__attribute__((constructor)) static void crc_init(void) {
    if (ready) return;
    slice_init();
    squares_init();
    hardware = hardware_init();
    ready = true;
}

uint32_t kw_crc32c(uint32_t crc, const void *p, size_t n) {
    if (KW_LIKELY(hardware)) return ~crc_hardware(~crc, p, n);
    return kw_crc32c_portable(crc, p, n);
}

uint32_t kw_crc32c_portable(uint32_t crc, const void *p, size_t n) {
    if (KW_UNLIKELY(!ready)) crc_init();
    return ~crc_slices(~crc, p, n);
}

uint32_t kw_crc32c_join(uint32_t first, uint32_t second, size_t n) {
    if (KW_UNLIKELY(!ready)) crc_init();
    return multiply_mod(first, x_power(8 * (uint64_t)n)) ^ second;
}

bool kw_crc32c_is_hardware(void) { return hardware; }

#if KC_WITH_GZIP
uint32_t kw_crc32(uint32_t crc, const void *p, size_t n) {
    if (n == 0) return crc; /* zlib takes a null pointer for the question of the first value */
    return (uint32_t)crc32_z(crc, p, n);
}
#else
uint32_t kw_crc32(uint32_t crc, const void *p, size_t n) {
    static const uint32_t nibble[16] = {/* CRC-32 of the sixteen half bytes */
                                        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    const uint8_t *b = p;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= b[i];
        crc = (crc >> 4) ^ nibble[crc & 15];
        crc = (crc >> 4) ^ nibble[crc & 15];
    }
    return ~crc;
}
#endif
