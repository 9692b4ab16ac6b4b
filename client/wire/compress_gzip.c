/* compress_gzip.c - gzip members by zlib. Called by compress.c. */
#include "compress_impl.h"

#if KC_WITH_GZIP
#include <zlib.h>

#define GZIP_WINDOW_BITS (15 + 16) /* zlib's way to ask for gzip instead of zlib framing */
#define LEVEL_NONE INT32_MIN       /* no deflater yet */

struct kw_gzip {
    z_stream deflater, inflater;
    int level;
    bool inflating;
};

static voidpf z_alloc(voidpf ctx, uInt count, uInt size) {
    (void)ctx;
    return kw_calloc(count, size); /* zeroed: deflate's longest match reads past what was written, harmlessly */
}

static void z_free(voidpf ctx, voidpf p) {
    (void)ctx;
    kw_free(p);
}

static kw_err state(struct kw_compressor *c, struct kw_gzip **z) {
    if (!c->gzip) {
        c->gzip = kw_calloc(1, sizeof(*c->gzip));
        if (!c->gzip) return KW_ENOMEM;
        c->gzip->level = LEVEL_NONE;
    }
    *z = c->gzip;
    return KW_OK;
}

void kw_gzip_free(struct kw_gzip *z) {
    if (!z) return;
    if (z->level != LEVEL_NONE) deflateEnd(&z->deflater);
    if (z->inflating) inflateEnd(&z->inflater);
    kw_free(z);
}

size_t kw_gzip_bound(size_t n) { return (size_t)deflateBound(NULL, (uLong)n) + 18; }

/* A fresh deflater of this level; one of another level is thrown away, since changing it in place may flush. */
static kw_err deflater_ready(struct kw_gzip *z, int level) {
    if (z->level == level) return deflateReset(&z->deflater) == Z_OK ? KW_OK : KW_EINVAL;
    if (z->level != LEVEL_NONE) deflateEnd(&z->deflater);
    z->level = LEVEL_NONE;
    z->deflater = (z_stream){.zalloc = z_alloc, .zfree = z_free};
    int rc = deflateInit2(&z->deflater, level, Z_DEFLATED, GZIP_WINDOW_BITS, 8, Z_DEFAULT_STRATEGY);
    if (rc != Z_OK) return rc == Z_MEM_ERROR ? KW_ENOMEM : KW_EINVAL;
    z->level = level;
    return KW_OK;
}

kw_err kw_gzip_compress(struct kw_compressor *c, const struct kw_codec_in *in, uint8_t *dst, size_t cap, size_t *len) {
    struct kw_gzip *z;
    kw_err err = state(c, &z);
    if (err) return err;
    err = deflater_ready(z, in->level == KW_LEVEL_DEFAULT ? Z_DEFAULT_COMPRESSION : in->level);
    if (err) return err;
    z_stream *s = &z->deflater;
    cap = KW_MIN(cap, (size_t)UINT32_MAX);
    if (cap == 0) return KW_ELIMIT;
    s->next_in = (z_const Bytef *)(uintptr_t)in->p; /* zlib does not write there; its type says so only if asked to */
    s->avail_in = (uInt)in->n;
    s->next_out = dst;
    s->avail_out = (uInt)cap;
    int rc = deflate(s, Z_FINISH);
    if (rc == Z_OK || rc == Z_BUF_ERROR) return KW_ELIMIT;
    if (rc != Z_STREAM_END) return KW_EINVAL;
    *len = cap - s->avail_out;
    return KW_OK;
}

static kw_err inflater_ready(struct kw_gzip *z) {
    if (z->inflating) return inflateReset(&z->inflater) == Z_OK ? KW_OK : KW_EINVAL;
    z->inflater = (z_stream){.zalloc = z_alloc, .zfree = z_free};
    int rc = inflateInit2(&z->inflater, GZIP_WINDOW_BITS);
    if (rc != Z_OK) return rc == Z_MEM_ERROR ? KW_ENOMEM : KW_EINVAL;
    z->inflating = true;
    return KW_OK;
}

static uint32_t load32le(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Room for more output. At the limit one spare byte tells a stream that ends there from one that goes on. */
static kw_err output_room(z_stream *s, struct kw_sink *out, uint8_t *spare) {
    if (out->len == out->limit) {
        s->next_out = spare;
        s->avail_out = 1;
        return KW_OK;
    }
    if (out->len == out->cap) {
        kw_err err = kw_sink_reserve(out, KW_MIN(out->limit - out->len, KW_MAX(out->len, (size_t)512)));
        if (err) return err;
    }
    s->next_out = out->p + out->len;
    s->avail_out = (uInt)KW_MIN(KW_MIN(out->cap, out->limit) - out->len, (size_t)UINT32_MAX);
    return KW_OK;
}

/* One member. */
static kw_err inflate_member(z_stream *s, struct kw_sink *out) {
    for (;;) {
        uint8_t spare;
        kw_err err = output_room(s, out, &spare);
        if (err) return err;
        uInt room = s->avail_out, input = s->avail_in;
        int rc = inflate(s, Z_NO_FLUSH);
        size_t got = room - s->avail_out;
        if (got > out->limit - out->len) return KW_ELIMIT;
        out->len += got;
        if (rc == Z_STREAM_END) return KW_OK;
        if (rc == Z_MEM_ERROR) return KW_ENOMEM;
        if (rc != Z_OK && rc != Z_BUF_ERROR) return KW_EDECODE;
        if (s->avail_in == 0 && s->avail_out > 0) return KW_ESHORT;
        if (got == 0 && s->avail_in == input && s->avail_out > 0) return KW_EDECODE; /* neither side moved */
    }
}

kw_err kw_gzip_decompress(struct kw_compressor *c, const struct kw_codec_in *in, struct kw_sink *out) {
    struct kw_gzip *z;
    kw_err err = state(c, &z);
    if (err) return err;
    if (in->n < 18) return KW_ESHORT; /* header and trailer */
    size_t claim = load32le(in->p + in->n - 4);
    if (claim > out->limit) return KW_ELIMIT; /* the last member's size: either true, or the member is broken */
    err = kw_sink_restart(out, KW_MIN(claim, kw_sink_allowance(in->n)));
    if (err) return err;
    z_stream *s = &z->inflater;
    const uint8_t *p = in->p, *end = in->p + in->n;
    do {
        err = inflater_ready(z);
        if (err) return err;
        s->next_in = (z_const Bytef *)(uintptr_t)p;
        s->avail_in = (uInt)(end - p);
        err = inflate_member(s, out);
        if (err) return err;
        p = end - s->avail_in;
    } while (p < end);
    return KW_OK;
}
#else
typedef int kw_gzip_left_out;
#endif
