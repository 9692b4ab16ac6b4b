/* fuzz_codec.c - any bytes as any message of any version: the first two name the message (a hash, so that new messages do not shift
 * the corpus), the third the version. What decodes must encode, decode again and encode to the same bytes, within the memory that
 * the input's size allows. */
#include <stdlib.h>

#include "kit/kit.h"
#include "kw_messages.h"

static uint16_t name_hash(const char *name) {
    uint32_t h = 2166136261u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 16777619u;
    return (uint16_t)(h ^ h >> 16);
}

static const struct kw_desc *choose(uint16_t hash) {
    for (size_t i = 0; i < kw_message_count; i++) {
        if (name_hash(kw_messages[i]->name) == hash) return kw_messages[i];
    }
    return kw_messages[hash % kw_message_count];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    const struct kw_desc *d = choose(kw_load16(data));
    int16_t version = (int16_t)(d->min + data[2] % (d->max - d->min + 1));
    void *msg = malloc(d->size);
    if (!msg) return 0;
    fuzz_memory_count(); /* the arena's chunks at their ends, and two encodings that grow by doubling */
    fuzz_memory = (struct fuzz_memory){.live_max = (KW_DECODE_EXPANSION_MAX + 40) * size + (96u << 10),
                                       .one_max = (KW_DECODE_EXPANSION_MAX + 8) * size + (66u << 10)};
    struct kw_arena a;
    kw_arena_init(&a, 0);
    struct kw_out first, second;
    kw_out_init(&first);
    kw_out_init(&second);
    struct kw_in in;
    kw_in_init(&in, data + 3, size - 3);
    kw_err err = kw_decode(d, version, &in, &a, msg);
    KW_ASSERT(err == KW_OK || err == KW_ESHORT || err == KW_EDECODE);
    KW_ASSERT(a.used <= KW_DECODE_EXPANSION_MAX * (size - 3));
    if (err == KW_OK) {
        KW_ASSERT(kw_encode(d, version, msg, &first) == KW_OK);
        kw_arena_reset(&a);
        kw_in_init(&in, first.p, first.len);
        KW_ASSERT(kw_decode(d, version, &in, &a, msg) == KW_OK);
        KW_ASSERT(kw_in_left(&in) == 0);
        KW_ASSERT(kw_encode(d, version, msg, &second) == KW_OK);
        KW_ASSERT(first.len == second.len && (first.len == 0 || memcmp(first.p, second.p, first.len) == 0));
    }
    kw_out_deinit(&first);
    kw_out_deinit(&second);
    kw_arena_deinit(&a);
    free(msg);
    FUZZ_CHECK(fuzz_memory.live == 0, "%zu bytes are never given back", fuzz_memory.live);
    return 0;
}
