/* compress.h - Kafka's codecs over the system's libraries: gzip (zlib), snappy (raw and xerial framing), lz4 (frame format, and
 * the broken header checksum of message format v0/v1), zstd. Each can be left out at build time (KW_EUNSUPPORTED then).
 *
 * Output never passes the caller's limit while decoding (SE-06), whatever the input claims. KIP-110 (zstd), KIP-57 (lz4 framing),
 * KIP-390 (levels).
 */
#ifndef KW_COMPRESS_H
#define KW_COMPRESS_H

#include "../base/base.h"

enum kw_codec { KW_CODEC_NONE = 0, KW_CODEC_GZIP = 1, KW_CODEC_SNAPPY = 2, KW_CODEC_LZ4 = 3, KW_CODEC_ZSTD = 4 };
#define KW_CODEC_COUNT 5
#define KW_LEVEL_DEFAULT INT32_MIN

const char *kw_codec_name(int codec);  /* "none" … ; NULL: unknown */
int kw_codec_by_name(const char *name); /* -1: unknown */
bool kw_codec_built(int codec);
/* gzip -1 (default), 0..9; lz4 0..17 (0..2 the fast compressor, above the high compressor, from 12 on its best); zstd its library's
 * range (negative ones too); none and snappy 0. KW_LEVEL_DEFAULT is always valid: gzip 6, lz4 fast, zstd 3. */
bool kw_codec_level_valid(int codec, int level);

/* Reusable state of one thread (zstd and lz4 contexts, scratch). Lazily filled. */
struct kw_compressor;
struct kw_compressor *kw_compressor_new(void);
void kw_compressor_free(struct kw_compressor *c);

/* Bytes that the compressed form of n bytes can never pass (snappy in xerial framing as Java reads it). */
size_t kw_compress_bound(int codec, size_t n);
/* Compresses src into dst; lz4 with magic 0 writes the historic wrong header checksum. KW_ELIMIT when dst is too small (cap may be below
 * the bound: a caller that wants to give up when nothing is saved passes n). KW_EINVAL: unknown codec, invalid level, n over INT32_MAX. */
kw_err kw_compress(struct kw_compressor *c, int codec, int level, int magic, const void *src, size_t n, void *dst, size_t cap,
                   size_t *out_len) KW_CHECK;
/* Decompresses into a buffer of kw_malloc, at most `limit` bytes (KW_ELIMIT past it, without allocating past it). Concatenated
 * frames/members are read to the end of the input. Grows from what the input can justify, never from what a header claims alone.
 * KW_EDECODE, KW_ESHORT: not this codec's format; KW_ECRC: a checksum of the format itself; KW_EINVAL: unknown codec. */
kw_err kw_decompress(struct kw_compressor *c, int codec, int magic, const void *src, size_t n, size_t limit, uint8_t **out,
                     size_t *out_len) KW_CHECK;
/* The same without an allocation in the steady state: *out is the compressor's own, until the next call of this function or its end;
 * with KW_CODEC_NONE it is src. */
kw_err kw_decompress_view(struct kw_compressor *c, int codec, int magic, const void *src, size_t n, size_t limit, const uint8_t **out,
                          size_t *out_len) KW_CHECK;

#endif
