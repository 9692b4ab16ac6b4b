/* compress.c - picks the codec, and owns the memory into which codecs decode. Called by batch, message_set, produce and consume;
 * calls compress_{gzip,snappy,lz4,zstd}.c.
 */
#include "compress_impl.h"

#define SCRATCH_KEPT_MAX ((size_t)2 << 20) /* a larger scratch is freed after use, so that one huge batch does not stay in memory */

struct codec {
    const char *name;
    size_t (*bound)(size_t n);
    kw_err (*compress)(struct kw_compressor *c, const struct kw_codec_in *in, uint8_t *dst, size_t cap, size_t *len);
    kw_err (*decompress)(struct kw_compressor *c, const struct kw_codec_in *in, struct kw_sink *out);
};

static kw_err none_compress(struct kw_compressor *c, const struct kw_codec_in *in, uint8_t *dst, size_t cap, size_t *len) {
    (void)c;
    if (in->n > cap) return KW_ELIMIT;
    if (in->n > 0) memcpy(dst, in->p, in->n);
    *len = in->n;
    return KW_OK;
}

static kw_err none_decompress(struct kw_compressor *c, const struct kw_codec_in *in, struct kw_sink *out) {
    (void)c;
    kw_err err = kw_sink_reserve(out, in->n);
    if (err) return err;
    if (in->n > 0) memcpy(out->p, in->p, in->n);
    out->len = in->n;
    return KW_OK;
}

static size_t none_bound(size_t n) { return n; }

static const struct codec codecs[KW_CODEC_COUNT] = {
    [KW_CODEC_NONE] = {"none", none_bound, none_compress, none_decompress},
#if KC_WITH_GZIP
    [KW_CODEC_GZIP] = {"gzip", kw_gzip_bound, kw_gzip_compress, kw_gzip_decompress},
#else
    [KW_CODEC_GZIP] = {.name = "gzip"},
#endif
#if KC_WITH_SNAPPY
    [KW_CODEC_SNAPPY] = {"snappy", kw_snappy_bound, kw_snappy_compress, kw_snappy_decompress},
#else
    [KW_CODEC_SNAPPY] = {.name = "snappy"},
#endif
#if KC_WITH_LZ4
    [KW_CODEC_LZ4] = {"lz4", kw_lz4_bound, kw_lz4_compress, kw_lz4_decompress},
#else
    [KW_CODEC_LZ4] = {.name = "lz4"},
#endif
#if KC_WITH_ZSTD
    [KW_CODEC_ZSTD] = {"zstd", kw_zstd_bound, kw_zstd_compress, kw_zstd_decompress},
#else
    [KW_CODEC_ZSTD] = {.name = "zstd"},
#endif
};

static bool known(int codec) { return codec >= 0 && codec < KW_CODEC_COUNT; }

const char *kw_codec_name(int codec) { return known(codec) ? codecs[codec].name : NULL; }

int kw_codec_by_name(const char *name) {
    for (int i = 0; i < KW_CODEC_COUNT; i++)
        if (strcmp(codecs[i].name, name) == 0) return i;
    return -1;
}

bool kw_codec_built(int codec) { return known(codec) && codecs[codec].compress; }

bool kw_codec_level_valid(int codec, int level) {
    if (!known(codec)) return false;
    if (level == KW_LEVEL_DEFAULT) return true;
    switch (codec) {
    case KW_CODEC_GZIP: return level >= -1 && level <= 9;
    case KW_CODEC_LZ4: return level >= 0 && level <= 17;
#if KC_WITH_ZSTD
    case KW_CODEC_ZSTD: return level >= kw_zstd_level_min() && level <= kw_zstd_level_max();
#endif
    default: return level == 0;
    }
}

struct kw_compressor *kw_compressor_new(void) { return kw_calloc(1, sizeof(struct kw_compressor)); }

void kw_compressor_free(struct kw_compressor *c) {
    if (!c) return;
#if KC_WITH_GZIP
    kw_gzip_free(c->gzip);
#endif
#if KC_WITH_SNAPPY
    kw_snappy_free(c->snappy);
#endif
#if KC_WITH_LZ4
    kw_lz4_free(c->lz4);
#endif
#if KC_WITH_ZSTD
    kw_zstd_free(c->zstd);
#endif
    kw_free(c->scratch);
    kw_free(c);
}

size_t kw_compress_bound(int codec, size_t n) { return kw_codec_built(codec) ? codecs[codec].bound(n) : n; }

kw_err kw_compress(struct kw_compressor *c, int codec, int level, int magic, const void *src, size_t n, void *dst, size_t cap,
                   size_t *out_len) {
    if (!kw_codec_level_valid(codec, level) || n > INT32_MAX) return KW_EINVAL;
    if (!codecs[codec].compress) return KW_EUNSUPPORTED;
    struct kw_codec_in in = {.p = src, .n = n, .level = level, .magic = magic};
    size_t len = 0;
    kw_err err = codecs[codec].compress(c, &in, dst, cap, &len);
    if (err == KW_OK) *out_len = len;
    return err;
}

kw_err kw_sink_reserve(struct kw_sink *s, size_t n) {
    if (n > s->limit - s->len) return KW_ELIMIT;
    size_t need = s->len + n;
    if (need <= s->cap && s->p) return KW_OK;
    size_t cap = KW_MAX(need, KW_MIN(2 * s->cap, s->limit));
    uint8_t *p = kw_realloc(s->p, cap > 0 ? cap : 1);
    if (!p) return KW_ENOMEM;
    s->p = p;
    s->cap = cap;
    return KW_OK;
}

kw_err kw_sink_restart(struct kw_sink *s, size_t cap) {
    s->len = 0;
    if (cap <= s->cap && s->p) return KW_OK;
    kw_free(s->p); /* nothing to keep, so a realloc would copy in vain */
    s->cap = 0;
    s->p = kw_malloc(cap > 0 ? cap : 1);
    if (!s->p) return KW_ENOMEM;
    s->cap = cap;
    return KW_OK;
}

static kw_err decompress(struct kw_compressor *c, int codec, int magic, const void *src, size_t n, struct kw_sink *sink) {
    if (!known(codec) || n > INT32_MAX) return KW_EINVAL;
    if (!codecs[codec].decompress) return KW_EUNSUPPORTED;
    struct kw_codec_in in = {.p = src, .n = n, .magic = magic};
    return codecs[codec].decompress(c, &in, sink);
}

kw_err kw_decompress(struct kw_compressor *c, int codec, int magic, const void *src, size_t n, size_t limit, uint8_t **out,
                     size_t *out_len) {
    struct kw_sink sink = {.limit = limit};
    kw_err err = decompress(c, codec, magic, src, n, &sink);
    if (err == KW_OK) err = kw_sink_reserve(&sink, 0); /* even nothing is returned in a buffer */
    if (err) {
        kw_free(sink.p);
        return err;
    }
    if (sink.cap - sink.len > sink.len / 4) { /* the caller may keep it for long */
        uint8_t *p = kw_realloc(sink.p, sink.len > 0 ? sink.len : 1);
        if (p) sink.p = p;
    }
    *out = sink.p;
    *out_len = sink.len;
    return KW_OK;
}

kw_err kw_decompress_view(struct kw_compressor *c, int codec, int magic, const void *src, size_t n, size_t limit, const uint8_t **out,
                          size_t *out_len) {
    if (codec == KW_CODEC_NONE) {
        if (n > limit) return KW_ELIMIT;
        *out = src;
        *out_len = n;
        return KW_OK;
    }
    if (c->scratch_cap > SCRATCH_KEPT_MAX) {
        kw_free(c->scratch);
        c->scratch = NULL;
        c->scratch_cap = 0;
    }
    struct kw_sink sink = {.p = c->scratch, .cap = c->scratch_cap, .limit = limit};
    kw_err err = decompress(c, codec, magic, src, n, &sink);
    c->scratch = sink.p;
    c->scratch_cap = sink.p ? sink.cap : 0;
    if (err) return err;
    *out = sink.p;
    *out_len = sink.len;
    return KW_OK;
}
