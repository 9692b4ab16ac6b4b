/* compress_impl.h - what compress.c and the four codec files share. Not for others.
 *
 * A codec decodes into a sink: memory that grows by what was really produced and never past the caller's limit.
 */
#ifndef KW_COMPRESS_IMPL_H
#define KW_COMPRESS_IMPL_H

#include "compress.h"

struct kw_gzip;
struct kw_lz4;
struct kw_snappy;
struct kw_zstd;

struct kw_compressor {
    struct kw_gzip *gzip; /* each made at first use */
    struct kw_lz4 *lz4;
    struct kw_snappy *snappy;
    struct kw_zstd *zstd;
    uint8_t *scratch; /* kw_decompress_view's output */
    size_t scratch_cap;
};

struct kw_sink {
    uint8_t *p;
    size_t len, cap, limit;
};

/* What a first allocation may take on the word of a header: more needs output that has really come. */
static inline size_t kw_sink_allowance(size_t input) { return ((size_t)256 << 10) + 64 * input; }

/* Room for n more bytes: KW_ELIMIT past the limit, KW_ENOMEM. */
kw_err kw_sink_reserve(struct kw_sink *s, size_t n) KW_CHECK;
/* Makes the capacity at least cap without keeping what is in the sink. */
kw_err kw_sink_restart(struct kw_sink *s, size_t cap) KW_CHECK;

struct kw_codec_in {
    const uint8_t *p;
    size_t n;
    int level, magic;
};

kw_err kw_gzip_compress(struct kw_compressor *c, const struct kw_codec_in *in, uint8_t *dst, size_t cap, size_t *len) KW_CHECK;
kw_err kw_gzip_decompress(struct kw_compressor *c, const struct kw_codec_in *in, struct kw_sink *out) KW_CHECK;
size_t kw_gzip_bound(size_t n);
void kw_gzip_free(struct kw_gzip *z);

kw_err kw_snappy_compress(struct kw_compressor *c, const struct kw_codec_in *in, uint8_t *dst, size_t cap, size_t *len) KW_CHECK;
kw_err kw_snappy_decompress(struct kw_compressor *c, const struct kw_codec_in *in, struct kw_sink *out) KW_CHECK;
size_t kw_snappy_bound(size_t n);
void kw_snappy_free(struct kw_snappy *s);

kw_err kw_lz4_compress(struct kw_compressor *c, const struct kw_codec_in *in, uint8_t *dst, size_t cap, size_t *len) KW_CHECK;
kw_err kw_lz4_decompress(struct kw_compressor *c, const struct kw_codec_in *in, struct kw_sink *out) KW_CHECK;
size_t kw_lz4_bound(size_t n);
void kw_lz4_free(struct kw_lz4 *l);

kw_err kw_zstd_compress(struct kw_compressor *c, const struct kw_codec_in *in, uint8_t *dst, size_t cap, size_t *len) KW_CHECK;
kw_err kw_zstd_decompress(struct kw_compressor *c, const struct kw_codec_in *in, struct kw_sink *out) KW_CHECK;
size_t kw_zstd_bound(size_t n);
int kw_zstd_level_min(void);
int kw_zstd_level_max(void);
void kw_zstd_free(struct kw_zstd *z);

#endif
