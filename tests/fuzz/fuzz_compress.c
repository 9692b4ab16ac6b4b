/* fuzz_compress.c - the codecs' readers on arbitrary bytes, and round trips of them. The first byte chooses the codec (bits 0-2), the
 * message format (3-4) and the limit (5-7). Output past the limit, and memory far past what input and limit allow, is a bug. */
#include <stdlib.h>

#include "wire/compress.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t alloc_max;
static void *count_malloc(size_t n, void *ctx) {
    (void)ctx;
    if (n > alloc_max) alloc_max = n;
    return malloc(n);
}
static void *count_realloc(void *p, size_t n, void *ctx) {
    (void)ctx;
    if (n > alloc_max) alloc_max = n;
    return realloc(p, n);
}
static void count_free(void *p, void *ctx) {
    (void)ctx;
    free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct kw_allocator counting = {count_malloc, count_realloc, count_free, NULL};
    kw_allocator_set(&counting);
    if (size < 1) return 0;
    int codec = data[0] & 7, magic = KW_MIN(data[0] >> 3 & 3, 2);
    size_t n = size - 1, limit = (size_t)16 << 2 * (data[0] >> 5);
    uint8_t *p = malloc(n ? n : 1), *out = NULL;
    struct kw_compressor *c = kw_compressor_new();
    KW_ASSERT(p && c);
    memcpy(p, data + 1, n);
    size_t len = 0;
    const uint8_t *view;
    alloc_max = 0;
    kw_err err = kw_decompress(c, codec, magic, p, n, limit, &out, &len);
    KW_ASSERT(alloc_max <= KW_MAX(limit, (size_t)300 << 10)); /* 300 kB: the codecs' own state */
    size_t view_len = 0;
    kw_err again = kw_decompress_view(c, codec, magic, p, n, limit, &view, &view_len);
    KW_ASSERT(err == again);
    if (err == KW_OK) {
        KW_ASSERT(len <= limit && view_len == len && memcmp(view, out, len) == 0);
        kw_free(out);
    }
    if (kw_codec_built(codec) && n < 100000) {
        size_t cap = kw_compress_bound(codec, n), packed = 0;
        uint8_t *dst = malloc(cap ? cap : 1);
        KW_ASSERT(dst && kw_compress(c, codec, KW_LEVEL_DEFAULT, magic, p, n, dst, cap, &packed) == KW_OK);
        KW_ASSERT(kw_decompress_view(c, codec, magic, dst, packed, n, &view, &len) == KW_OK);
        KW_ASSERT(len == n && (n == 0 || memcmp(view, p, n) == 0));
        free(dst);
    }
    kw_compressor_free(c);
    free(p);
    return 0;
}
