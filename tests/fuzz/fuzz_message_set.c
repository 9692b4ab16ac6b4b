/* fuzz_message_set.c - message sets of v0 and v1: iterating, converting up and down again. The first byte chooses: 1: mend the CRCs, so that
 * the fields are reached; 2: put the input into a wrapper, with the codec in bits 4-5 and the format in bit 3. No allocation is above what the limit of
 * decompressed bytes, the input and the codecs' own state allow. */
#include <stdlib.h>

#include "base/crc32c.h"
#include "kit/kit.h"
#include "wire/message_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 1 << 18, CODEC_STATE = 2 << 20 };

static void mend(uint8_t *p, size_t n) {
    for (size_t at = 0; n - at >= KW_MESSAGE_SIZE_MIN;) {
        int64_t size = kw_batch_size_peek(p + at, n - at);
        if (size < KW_MESSAGE_SIZE_MIN || (size_t)size > n - at) return;
        kw_store32(p + at + KW_MESSAGE_CRC, kw_crc32(0, p + at + KW_MESSAGE_MAGIC, (size_t)size - KW_MESSAGE_MAGIC));
        at += (size_t)size;
    }
}

static void read_and_convert(const uint8_t *p, size_t n, struct kw_compressor *c) {
    struct kw_message_iter it;
    struct kw_message_view m;
    int32_t rc, count = 0;
    kw_message_iter_init(&it, p, n, LIMIT, c);
    while ((rc = kw_message_iter_next(&it, &m)) == 1) {
        KW_ASSERT(m.key.len >= -1 && m.value.len >= -1 && (m.magic == 0 || m.magic == 1));
        uint8_t sum = 0; /* the views must be readable */
        for (int32_t i = 0; i < m.value.len; i++) sum ^= m.value.p[i];
        if (m.key.len > 0) sum ^= m.key.p[m.key.len - 1];
        (void)*(volatile uint8_t *)&sum;
        count++;
    }
    bool whole = rc == 0 && it.left == 0 && count > 0;
    kw_message_iter_deinit(&it);
    uint8_t *batch = NULL;
    size_t size = 0;
    const char *why = NULL;
    kw_err err = kw_message_set_to_batch(p, n, LIMIT, c, &batch, &size, &why);
    KW_ASSERT((err == KW_OK) == (why == NULL));
    KW_ASSERT(whole || err != KW_OK);
    if (err) return;
    struct kw_batch_check check = {.limit = LIMIT, .compressor = c};
    struct kw_batch_facts f;
    err = kw_batch_check(batch, size, &check, &f, &why);
    KW_ASSERT(err == KW_OK && kw_load32(batch + KW_BATCH_RECORD_COUNT) == (uint32_t)count);
    struct kw_out out;
    kw_out_init(&out);
    KW_ASSERT(kw_batch_to_message_set(batch, size, 1, 0, LIMIT, c, &out) == KW_OK);
    kw_out_deinit(&out);
    kw_free(batch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    uint8_t mode = data[0];
    size_t n = size - 1;
    uint8_t *p = malloc(n ? n : 1);
    fuzz_memory_count();
    fuzz_memory = (struct fuzz_memory){.live_max = 8 * (LIMIT + n) + CODEC_STATE, .one_max = 4 * (LIMIT + n) + CODEC_STATE};
    struct kw_compressor *c = kw_compressor_new();
    KW_ASSERT(p && c);
    memcpy(p, data + 1, n);
    if (mode & 1) mend(p, n);
    read_and_convert(p, n, c);
    if (mode & 2) {
        struct kw_out out;
        kw_out_init(&out);
        int codec = mode >> 4 & 3;
        if (codec > 0 && kw_codec_built(codec)) {
            KW_ASSERT(kw_message_write_wrapper(&out, mode >> 3 & 1, codec, KW_LEVEL_DEFAULT, mode >> 6, 5, mode & 4, p, n, c) == KW_OK);
            read_and_convert(out.p, out.len, c);
        }
        kw_out_deinit(&out);
    }
    kw_compressor_free(c);
    free(p);
    FUZZ_CHECK(fuzz_memory.live == 0, "%zu bytes are never given back", fuzz_memory.live);
    return 0;
}
