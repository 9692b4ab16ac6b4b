/* compress_zstd.c - zstd frames. Called by compress.c. KIP-110; format: RFC 8878.
 *
 * Decoding goes straight into the sink, so that no window is ever allocated, whatever window a frame asks for. The size of the sink comes
 * from a walk over the block headers; should it be too small, decoding starts over with four times as much.
 */
#include "compress_impl.h"

#if KC_WITH_ZSTD
#include <zstd.h>
#include <zstd_errors.h>

struct kw_zstd {
    ZSTD_CCtx *cctx;
    ZSTD_DCtx *dctx;
    int level;
};

#define FRAME_MAGIC 0xfd2fb528u
#define SKIPPABLE_MAGIC 0x184d2a50u /* and the next 15 */
#define BLOCK_SIZE_MAX ((uint64_t)128 << 10)

static kw_err state(struct kw_compressor *c, struct kw_zstd **z) {
    if (!c->zstd) c->zstd = kw_calloc(1, sizeof(*c->zstd));
    *z = c->zstd;
    return c->zstd ? KW_OK : KW_ENOMEM;
}

void kw_zstd_free(struct kw_zstd *z) {
    if (!z) return;
    ZSTD_freeCCtx(z->cctx);
    ZSTD_freeDCtx(z->dctx);
    kw_free(z);
}

size_t kw_zstd_bound(size_t n) { return ZSTD_compressBound(n); }
int kw_zstd_level_min(void) { return ZSTD_minCLevel(); }
int kw_zstd_level_max(void) { return ZSTD_maxCLevel(); }

static kw_err result(size_t rc) {
    switch (ZSTD_getErrorCode(rc)) {
    case ZSTD_error_no_error: return KW_OK;
    case ZSTD_error_memory_allocation: return KW_ENOMEM;
    case ZSTD_error_dstSize_tooSmall: return KW_ELIMIT;
    case ZSTD_error_srcSize_wrong: return KW_ESHORT;
    case ZSTD_error_checksum_wrong: return KW_ECRC;
    default: return KW_EDECODE;
    }
}

kw_err kw_zstd_compress(struct kw_compressor *c, const struct kw_codec_in *in, uint8_t *dst, size_t cap, size_t *len) {
    struct kw_zstd *z;
    kw_err err = state(c, &z);
    if (err) return err;
    int level = in->level == KW_LEVEL_DEFAULT ? ZSTD_CLEVEL_DEFAULT : in->level;
    if (!z->cctx) {
        z->cctx = ZSTD_createCCtx();
        if (!z->cctx) return KW_ENOMEM;
        z->level = ZSTD_CLEVEL_DEFAULT;
    }
    if (level != z->level) {
        size_t rc = ZSTD_CCtx_setParameter(z->cctx, ZSTD_c_compressionLevel, level);
        if (ZSTD_isError(rc)) return KW_EINVAL;
        z->level = level;
    }
    size_t rc = ZSTD_compress2(z->cctx, dst, cap, in->p, in->n);
    if (ZSTD_isError(rc)) return result(rc);
    *len = rc;
    return KW_OK;
}

static uint64_t load_le(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

struct size_walk {
    const uint8_t *p, *end;
    uint64_t claimed;  /* sum of the frames' content sizes, as far as they are stated */
    uint64_t possible; /* what all blocks can yield at most */
};

static kw_err walk_blocks(struct size_walk *w, uint64_t block_max) {
    for (;;) {
        if (w->end - w->p < 3) return KW_ESHORT;
        uint32_t head = (uint32_t)load_le(w->p, 3), type = head >> 1 & 3, size = head >> 3;
        w->p += 3;
        if (type == 3) return KW_EDECODE;
        size_t stored = type == 1 ? 1 : size; /* a run is stored as its one byte */
        if (stored > (size_t)(w->end - w->p)) return KW_ESHORT;
        w->p += stored;
        w->possible += type == 2 ? block_max : KW_MIN(size, block_max);
        if (head & 1) return KW_OK;
    }
}

static kw_err walk_frame(struct size_walk *w) {
    static const uint8_t dict_id_size[4] = {0, 1, 2, 4}, content_size_size[4] = {0, 2, 4, 8};
    const uint8_t *p = w->p;
    if (w->end - p < 6) return KW_ESHORT;
    uint8_t flags = p[4];
    bool single_segment = flags & 0x20;
    size_t n = content_size_size[flags >> 6];
    if (n == 0 && single_segment) n = 1;
    size_t header = (single_segment ? 5u : 6u) + dict_id_size[flags & 3] + n;
    if ((size_t)(w->end - p) < header) return KW_ESHORT;
    uint64_t content = load_le(p + header - n, n) + (n == 2 ? 256 : 0);
    uint64_t window = content;
    if (!single_segment) window = ((uint64_t)1 << (10 + (p[5] >> 3))) / 8 * (8 + (p[5] & 7));
    if (n > 0) w->claimed = content > UINT64_MAX - w->claimed ? UINT64_MAX : w->claimed + content;
    w->p += header;
    uint64_t before = w->possible;
    kw_err err = walk_blocks(w, KW_MIN(window, BLOCK_SIZE_MAX));
    if (err) return err;
    if (n > 0 && w->possible - before > content) w->possible = before + content;
    if (!(flags & 4)) return KW_OK;
    if (w->end - w->p < 4) return KW_ESHORT;
    w->p += 4; /* checksum */
    return KW_OK;
}

/* Also keeps out the formats older than RFC 8878 that the library may have been built with. */
static kw_err walk(struct size_walk *w) {
    while (w->p < w->end) {
        size_t left = (size_t)(w->end - w->p);
        if (left < 8) return KW_ESHORT;
        uint32_t magic = (uint32_t)load_le(w->p, 4);
        if ((magic & ~15u) == SKIPPABLE_MAGIC) {
            size_t size = (size_t)load_le(w->p + 4, 4);
            if (size > left - 8) return KW_ESHORT;
            w->p += 8 + size;
            continue;
        }
        if (magic != FRAME_MAGIC) return KW_EDECODE;
        kw_err err = walk_frame(w);
        if (err) return err;
    }
    return KW_OK;
}

kw_err kw_zstd_decompress(struct kw_compressor *c, const struct kw_codec_in *in, struct kw_sink *out) {
    struct kw_zstd *z;
    kw_err err = state(c, &z);
    if (err) return err;
    if (in->n == 0) return KW_ESHORT;
    struct size_walk w = {.p = in->p, .end = in->p + in->n};
    err = walk(&w);
    if (w.claimed > out->limit) return KW_ELIMIT; /* said even when the rest is broken: the larger complaint */
    if (err) return err;
    if (!z->dctx) z->dctx = ZSTD_createDCtx();
    if (!z->dctx) return KW_ENOMEM;
    size_t enough = (size_t)KW_MIN(w.possible, (uint64_t)out->limit);
    size_t cap = KW_MIN(enough, kw_sink_allowance(in->n));
    for (;;) {
        err = kw_sink_restart(out, cap);
        if (err) return err;
        size_t room = KW_MIN(out->cap, out->limit);
        size_t rc = ZSTD_decompressDCtx(z->dctx, out->p, room, in->p, in->n);
        if (!ZSTD_isError(rc)) {
            out->len = rc;
            return KW_OK;
        }
        err = result(rc);
        if (err != KW_ELIMIT) return err;
        if (room >= enough) return w.possible > out->limit ? KW_ELIMIT : KW_EDECODE;
        cap = KW_MIN(enough, 4 * room);
    }
}
#else
typedef int kw_zstd_left_out;
#endif
