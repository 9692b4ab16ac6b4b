/* compress_lz4.c - the LZ4 frame format over liblz4's block functions. Called by compress.c. KIP-57.
 *
 * The frame is read and written here, not by liblz4's frame functions: blocks then go straight between the caller's memory and the
 * codec, and the header checksum of message format v0 can be what it was. That checksum was by mistake taken over the frame's
 * magic number too (KAFKA-3160); it is accepted in formats v0 and v1 only.
 */
#include "compress_impl.h"

#if KC_WITH_LZ4
#include <lz4.h>
#include <lz4hc.h>

#define FRAME_MAGIC 0x184d2204u
#define SKIPPABLE_MAGIC 0x184d2a50u /* and the next 15 */
#define BLOCK_SIZE ((size_t)64 << 10)
#define BLOCK_STORED 0x80000000u
#define LEVEL_HIGH_MIN 3
#define HISTORY_SIZE ((size_t)64 << 10) /* how far a linked block may look back */

enum { FLAG_VERSION = 0x40, FLAG_INDEPENDENT = 0x20, FLAG_BLOCK_CHECKSUM = 0x10, FLAG_CONTENT_SIZE = 0x08, FLAG_CONTENT_CHECKSUM = 0x04,
       FLAG_RESERVED = 0x02, FLAG_DICTIONARY = 0x01 };

struct kw_lz4 {
    void *fast, *high; /* liblz4's working memory */
};

void kw_lz4_free(struct kw_lz4 *l) {
    if (!l) return;
    kw_free(l->fast);
    kw_free(l->high);
    kw_free(l);
}

static uint32_t load32le(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store32le(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}

/* XXH32 with seed 0, the frame format's checksum. */
static uint32_t xxh32(const uint8_t *p, size_t n) {
    const uint32_t p1 = 2654435761u, p2 = 2246822519u, p3 = 3266489917u, p4 = 668265263u, p5 = 374761393u;
#define ROTL(x, r) (((x) << (r)) | ((x) >> (32 - (r))))
    const uint8_t *end = p + n;
    uint32_t h = p5;
    if (n >= 16) {
        uint32_t lane[4] = {p1 + p2, p2, 0, 0u - p1};
        for (; end - p >= 16; p += 16)
            for (int i = 0; i < 4; i++) lane[i] = ROTL(lane[i] + load32le(p + 4 * i) * p2, 13) * p1;
        h = ROTL(lane[0], 1) + ROTL(lane[1], 7) + ROTL(lane[2], 12) + ROTL(lane[3], 18);
    }
    h += (uint32_t)n;
    for (; end - p >= 4; p += 4) h = ROTL(h + load32le(p) * p3, 17) * p4;
    for (; p < end; p++) h = ROTL(h + *p * p5, 11) * p1;
#undef ROTL
    h = (h ^ (h >> 15)) * p2;
    h = (h ^ (h >> 13)) * p3;
    return h ^ (h >> 16);
}

size_t kw_lz4_bound(size_t n) { return 7 + 4 + n + 4 * (n / BLOCK_SIZE + 1); } /* a block that does not shrink is stored */

/* The working memory for the level. */
static kw_err state(struct kw_compressor *c, bool high, void **memory) {
    if (!c->lz4) c->lz4 = kw_calloc(1, sizeof(*c->lz4));
    if (!c->lz4) return KW_ENOMEM;
    void **slot = high ? &c->lz4->high : &c->lz4->fast;
    if (!*slot) *slot = kw_malloc((size_t)(high ? LZ4_sizeofStateHC() : LZ4_sizeofState()));
    *memory = *slot;
    return *slot ? KW_OK : KW_ENOMEM;
}

static size_t write_header(uint8_t *dst, int magic) {
    store32le(dst, FRAME_MAGIC);
    dst[4] = FLAG_VERSION | FLAG_INDEPENDENT;
    dst[5] = 4 << 4; /* blocks of 64 kB */
    dst[6] = (uint8_t)((magic == 0 ? xxh32(dst, 6) : xxh32(dst + 4, 2)) >> 8);
    return 7;
}

kw_err kw_lz4_compress(struct kw_compressor *c, const struct kw_codec_in *in, uint8_t *dst, size_t cap, size_t *len) {
    bool high = in->level != KW_LEVEL_DEFAULT && in->level >= LEVEL_HIGH_MIN;
    void *memory;
    kw_err err = state(c, high, &memory);
    if (err) return err;
    if (cap < 7 + 4) return KW_ELIMIT;
    size_t at = write_header(dst, in->magic);
    for (size_t done = 0; done < in->n;) {
        size_t n = KW_MIN(in->n - done, BLOCK_SIZE);
        if (cap - at < 4) return KW_ELIMIT;
        const char *src = (const char *)in->p + done;
        char *to = (char *)dst + at + 4;
        int room = (int)KW_MIN(cap - at - 4, n - 1); /* a block must shrink or be stored */
        int got = high ? LZ4_compress_HC_extStateHC(memory, src, to, (int)n, room, KW_MIN(in->level, LZ4HC_CLEVEL_MAX))
                       : LZ4_compress_fast_extState(memory, src, to, (int)n, room, 1);
        if (got > 0) {
            store32le(dst + at, (uint32_t)got);
            at += 4 + (size_t)got;
        } else {
            if (cap - at - 4 < n) return KW_ELIMIT;
            store32le(dst + at, (uint32_t)n | BLOCK_STORED);
            memcpy(to, src, n);
            at += 4 + n;
        }
        done += n;
    }
    if (cap - at < 4) return KW_ELIMIT;
    store32le(dst + at, 0); /* end mark */
    *len = at + 4;
    return KW_OK;
}

struct frame {
    uint8_t flags;
    uint64_t content; /* with FLAG_CONTENT_SIZE */
    size_t block_max, start; /* start: of the frame's output in the sink */
};

static kw_err read_header(const uint8_t **pp, const uint8_t *end, int magic, struct frame *f) {
    const uint8_t *p = *pp;
    if (end - p < 7) return KW_ESHORT;
    f->flags = p[4];
    if ((f->flags & 0xc0) != FLAG_VERSION || (f->flags & FLAG_RESERVED) || (p[5] & 0x8f)) return KW_EDECODE;
    if (f->flags & FLAG_DICTIONARY) return KW_EDECODE;
    int size_id = p[5] >> 4;
    if (size_id < 4) return KW_EDECODE;
    f->block_max = (size_t)1 << (8 + 2 * size_id); /* 64 kB, 256 kB, 1 MB, 4 MB */
    size_t size = f->flags & FLAG_CONTENT_SIZE ? 14 : 6;
    if ((size_t)(end - p) < size + 1) return KW_ESHORT;
    uint8_t sum = p[size];
    if (sum != (uint8_t)(xxh32(p + 4, size - 4) >> 8) && (magic >= 2 || sum != (uint8_t)(xxh32(p, size) >> 8))) return KW_ECRC;
    if (f->flags & FLAG_CONTENT_SIZE) f->content = load32le(p + 6) | (uint64_t)load32le(p + 10) << 32;
    *pp = p + size + 1;
    return KW_OK;
}

static kw_err read_block(const uint8_t *p, size_t n, bool stored, const struct frame *f, struct kw_sink *out) {
    if (stored) {
        if (n > f->block_max) return KW_EDECODE;
        kw_err err = kw_sink_reserve(out, n);
        if (err) return err;
        memcpy(out->p + out->len, p, n);
        out->len += n;
        return KW_OK;
    }
    size_t most = KW_MIN(f->block_max, n * 255), room = out->limit - out->len; /* a byte yields at most 255 */
    if (out->cap - out->len < KW_MIN(most, room)) {
        kw_err err = kw_sink_reserve(out, KW_MIN(most, room));
        if (err) return err;
    }
    char *to = (char *)out->p + out->len;
    size_t history = f->flags & FLAG_INDEPENDENT ? 0 : KW_MIN(out->len - f->start, HISTORY_SIZE);
    int got = LZ4_decompress_safe_usingDict((const char *)p, to, (int)n, (int)KW_MIN(most, room), to - history, (int)history);
    if (got < 0) return room < most ? KW_ELIMIT : KW_EDECODE; /* the library does not say which: too long or broken */
    out->len += (size_t)got;
    return KW_OK;
}

static kw_err read_frame(const uint8_t **pp, const uint8_t *end, int magic, struct kw_sink *out) {
    struct frame f = {.start = out->len};
    kw_err err = read_header(pp, end, magic, &f);
    if (err) return err;
    if (f.content > out->limit - out->len) return KW_ELIMIT;
    const uint8_t *p = *pp;
    for (;;) {
        if (end - p < 4) return KW_ESHORT;
        uint32_t size = load32le(p);
        p += 4;
        if (size == 0) break;
        size_t n = size & ~BLOCK_STORED, check = f.flags & FLAG_BLOCK_CHECKSUM ? 4 : 0;
        if (n == 0 || n > INT32_MAX) return KW_EDECODE;
        if ((size_t)(end - p) < n + check) return KW_ESHORT;
        if (check && load32le(p + n) != xxh32(p, n)) return KW_ECRC;
        err = read_block(p, n, size & BLOCK_STORED, &f, out);
        if (err) return err;
        p += n + check;
    }
    if ((f.flags & FLAG_CONTENT_SIZE) && out->len - f.start != f.content) return KW_EDECODE;
    if (f.flags & FLAG_CONTENT_CHECKSUM) {
        if (end - p < 4) return KW_ESHORT;
        if (load32le(p) != xxh32(out->p + f.start, out->len - f.start)) return KW_ECRC;
        p += 4;
    }
    *pp = p;
    return KW_OK;
}

kw_err kw_lz4_decompress(struct kw_compressor *c, const struct kw_codec_in *in, struct kw_sink *out) {
    (void)c;
    const uint8_t *p = in->p, *end = in->p + in->n;
    if (in->n == 0) return KW_ESHORT;
    kw_err err = kw_sink_restart(out, KW_MIN(out->limit, 4 * in->n));
    while (err == KW_OK && p < end) {
        if (end - p < 7) return KW_ESHORT;
        uint32_t magic = load32le(p);
        if ((magic & ~15u) == SKIPPABLE_MAGIC && end - p >= 8) {
            size_t size = load32le(p + 4);
            if (size > (size_t)(end - p) - 8) return KW_ESHORT;
            p += 8 + size;
        } else if (magic == FRAME_MAGIC) {
            err = read_frame(&p, end, in->magic, out);
        } else {
            return KW_EDECODE;
        }
    }
    return err;
}
#else
typedef int kw_lz4_left_out;
#endif
