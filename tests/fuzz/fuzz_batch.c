/* fuzz_batch.c - record batch v2: splitting, checking, iterating, converting down. The first byte chooses: 1: mend length and CRC, so that
 * the records are reached; 2: allow holes. What the check passes, the iterator must read to its end, and nothing may leave the input. No
 * allocation is above what the limit of decompressed bytes, the input and the codecs' own state allow. */
#include <stdlib.h>

#include "kit/kit.h"
#include "wire/message_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 1 << 18, CODEC_STATE = 2 << 20 };

static void read_all(const uint8_t *p, size_t n, struct kw_compressor *c, bool sound) {
    struct kw_batch_header h;
    const uint8_t *body;
    size_t body_size;
    if (kw_batch_parse(p, n, &h) || kw_batch_body(p, n, &h, LIMIT, c, &body, &body_size)) {
        KW_ASSERT(!sound);
        return;
    }
    struct kw_record_iter it;
    struct kw_record_view r;
    int32_t rc, count = 0;
    size_t wire = 0;
    kw_record_iter_init(&it, &h, body, body_size);
    while ((rc = kw_record_next(&it, &r)) == 1) {
        struct kw_in in;
        struct kw_header_view header;
        int32_t headers = 0, header_rc;
        kw_in_init(&in, r.headers, r.headers_size);
        while ((header_rc = kw_record_header_next(&in, &header)) == 1) headers++;
        KW_ASSERT(header_rc == 0 && headers == r.header_count);
        KW_ASSERT(r.key.len >= -1 && r.value.len >= -1);
        wire += r.wire_size;
        count++;
    }
    KW_ASSERT(wire <= body_size && count <= KW_MAX(h.record_count, 0));
    if (sound) KW_ASSERT(rc == 0 && count == h.record_count && wire == body_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    uint8_t mode = data[0];
    size_t n = size - 1;
    uint8_t *p = malloc(n ? n : 1);
    fuzz_memory_count();
    fuzz_memory = (struct fuzz_memory){.live_max = 6 * (LIMIT + n) + CODEC_STATE, .one_max = 3 * (LIMIT + n) + CODEC_STATE};
    struct kw_compressor *c = kw_compressor_new();
    KW_ASSERT(p && c);
    memcpy(p, data + 1, n);
    struct kw_entry e;
    for (const uint8_t *q = p; kw_entry_next(&q, p + n, &e) == 1;) KW_ASSERT(e.p >= p && e.p + e.size <= p + n);
    if ((mode & 1) && n >= KW_BATCH_HEADER_SIZE) {
        p[KW_BATCH_MAGIC] = 2;
        kw_store32(p + KW_BATCH_LENGTH, (uint32_t)(n - KW_BATCH_OVERHEAD));
        kw_batch_crc_set(p, n);
    }
    struct kw_batch_check check = {.allow_holes = mode & 2, .limit = LIMIT, .compressor = c};
    struct kw_batch_facts f;
    const char *why = NULL;
    kw_err err = kw_batch_check(p, n, &check, &f, &why);
    KW_ASSERT((err == KW_OK) == (why == NULL));
    read_all(p, n, c, err == KW_OK);
    for (int8_t magic = 0; magic <= 1; magic++) {
        struct kw_out out;
        kw_out_init(&out);
        kw_err down = kw_batch_to_message_set(p, n, magic, mode & 4 ? 3 : INT64_MIN, LIMIT, c, &out);
        KW_ASSERT(down == KW_OK || out.len == 0);
        if (err == KW_OK) KW_ASSERT(down == KW_OK || down == KW_EUNSUPPORTED);
        kw_out_deinit(&out);
    }
    kw_compressor_free(c);
    free(p);
    FUZZ_CHECK(fuzz_memory.live == 0, "%zu bytes are never given back", fuzz_memory.live);
    return 0;
}
