/* compress_snappy.c - snappy blocks, and the framing of snappy-java ("xerial") that Kafka's Java client writes. Called by compress.c.
 *
 * Framing: 8 bytes of magic, version and lowest compatible version (4 bytes each), then blocks: length (4 bytes, big-endian), raw snappy.
 * Written always; read with or without, since other clients send one raw block.
 */
#include "compress_impl.h"

#if KC_WITH_SNAPPY
#include <snappy-c.h>

#define FRAME_HEADER_SIZE 16
#define BLOCK_SIZE ((size_t)64 << 10) /* snappy's own block; snappy-java writes 32 kB and reads any */

static const uint8_t frame_header[FRAME_HEADER_SIZE] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};

struct kw_snappy {
    char block[BLOCK_SIZE + BLOCK_SIZE / 6 + 32]; /* snappy's bound for one block */
};

void kw_snappy_free(struct kw_snappy *s) { kw_free(s); }

size_t kw_snappy_bound(size_t n) {
    size_t whole = n / BLOCK_SIZE, rest = n % BLOCK_SIZE;
    size_t bound = FRAME_HEADER_SIZE + whole * (4 + snappy_max_compressed_length(BLOCK_SIZE));
    return rest > 0 ? bound + 4 + snappy_max_compressed_length(rest) : bound;
}

/* One block to dst when snappy's worst case fits there, else by way of a buffer of our own. */
static kw_err compress_block(struct kw_compressor *c, const char *src, size_t n, uint8_t *dst, size_t cap, size_t *len) {
    size_t size = snappy_max_compressed_length(n);
    if (size <= cap) {
        if (snappy_compress(src, n, (char *)dst, &size) != SNAPPY_OK) return KW_EINVAL;
        *len = size;
        return KW_OK;
    }
    if (!c->snappy) c->snappy = kw_malloc(sizeof(*c->snappy));
    if (!c->snappy) return KW_ENOMEM;
    size = sizeof(c->snappy->block);
    if (snappy_compress(src, n, c->snappy->block, &size) != SNAPPY_OK) return KW_EINVAL;
    if (size > cap) return KW_ELIMIT;
    memcpy(dst, c->snappy->block, size);
    *len = size;
    return KW_OK;
}

kw_err kw_snappy_compress(struct kw_compressor *c, const struct kw_codec_in *in, uint8_t *dst, size_t cap, size_t *len) {
    if (cap < FRAME_HEADER_SIZE) return KW_ELIMIT;
    memcpy(dst, frame_header, FRAME_HEADER_SIZE);
    size_t at = FRAME_HEADER_SIZE;
    for (size_t done = 0; done < in->n;) {
        size_t n = KW_MIN(in->n - done, BLOCK_SIZE), got = 0;
        if (cap - at < 4) return KW_ELIMIT;
        kw_err err = compress_block(c, (const char *)in->p + done, n, dst + at + 4, cap - at - 4, &got);
        if (err) return err;
        kw_store32(dst + at, (uint32_t)got);
        at += 4 + got;
        done += n;
    }
    *len = at;
    return KW_OK;
}

/* What a block says it holds. The longest output for its bytes is a copy of 64 bytes from 3; a claim above that is a lie. */
static kw_err block_claim(const uint8_t *p, size_t n, size_t limit, size_t *claim) {
    size_t size;
    if (snappy_uncompressed_length((const char *)p, n, &size) != SNAPPY_OK) return KW_EDECODE;
    if (size > limit) return KW_ELIMIT;
    if (size > n * 64 / 3) return KW_EDECODE;
    *claim = size;
    return KW_OK;
}

static kw_err block_decode(const uint8_t *p, size_t n, struct kw_sink *out) {
    size_t size = out->cap - out->len;
    if (snappy_uncompress((const char *)p, n, (char *)out->p + out->len, &size) != SNAPPY_OK) return KW_EDECODE;
    out->len += size;
    return KW_OK;
}

static bool starts_frame(const uint8_t *p, size_t n) { return n >= FRAME_HEADER_SIZE && memcmp(p, frame_header, 8) == 0; }

/* Steps over a frame header if one is here (frames may follow each other), then to the next block. 1, 0 at the end. */
static int32_t next_block(const uint8_t **p, const uint8_t *end, const uint8_t **block, size_t *n) {
    while (starts_frame(*p, (size_t)(end - *p))) *p += FRAME_HEADER_SIZE;
    if (*p == end) return 0;
    if (end - *p < 4) return KW_ESHORT;
    size_t size = kw_load32(*p);
    if (size == 0 || size > INT32_MAX) return KW_EDECODE;
    if (size > (size_t)(end - *p) - 4) return KW_ESHORT;
    *block = *p + 4;
    *n = size;
    *p += 4 + size;
    return 1;
}

static kw_err decompress_framed(const struct kw_codec_in *in, struct kw_sink *out) {
    const uint8_t *end = in->p + in->n, *block = NULL;
    size_t n = 0, total = 0, claim = 0;
    int32_t rc;
    for (const uint8_t *p = in->p; (rc = next_block(&p, end, &block, &n)) == 1;) {
        kw_err err = block_claim(block, n, out->limit - total, &claim);
        if (err) return err;
        total += claim;
    }
    if (rc < 0) return rc;
    kw_err err = kw_sink_restart(out, total);
    if (err) return err;
    for (const uint8_t *p = in->p; next_block(&p, end, &block, &n) == 1;) {
        err = block_decode(block, n, out);
        if (err) return err;
    }
    return KW_OK;
}

kw_err kw_snappy_decompress(struct kw_compressor *c, const struct kw_codec_in *in, struct kw_sink *out) {
    (void)c;
    if (starts_frame(in->p, in->n)) return decompress_framed(in, out);
    size_t claim;
    kw_err err = block_claim(in->p, in->n, out->limit, &claim);
    if (err) return err;
    err = kw_sink_restart(out, claim);
    return err ? err : block_decode(in->p, in->n, out);
}
#else
typedef int kw_snappy_left_out;
#endif
