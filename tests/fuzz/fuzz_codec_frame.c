/* fuzz_codec_frame.c - any bytes as a request frame behind its length, as a broker reads it, and as a response to every API, as a
 * client does. A request that parses must frame again to bytes that parse the same. */
#include <stdlib.h>

#include "kit/kit.h"
#include "kw_messages.h"
#include "wire/frame.h"

static void check_request(const uint8_t *data, size_t size) {
    struct kw_in in;
    struct kw_frame_request r, again;
    kw_in_init(&in, data, size);
    kw_err err = kw_frame_parse_request(&in, &r);
    KW_ASSERT(err == KW_OK || err == KW_ESHORT || err == KW_EDECODE || err == KW_EVERSION);
    if (err == KW_EVERSION) {
        KW_ASSERT(r.api_key == (int16_t)kw_load16(data) && r.correlation_id == (int32_t)kw_load32(data + 4));
        return;
    }
    if (err != KW_OK) return;
    void *msg = malloc(r.api->request->size);
    if (!msg) abort();
    struct kw_arena a;
    kw_arena_init(&a, 0);
    struct kw_out out;
    kw_out_init(&out);
    err = kw_decode(r.api->request, r.version, &in, &a, msg);
    KW_ASSERT(a.used <= KW_DECODE_EXPANSION_MAX * size);
    if (err == KW_OK) {
        KW_ASSERT(kw_frame_request(&out, r.api, r.version, r.correlation_id, r.client_id, msg) == KW_OK);
        KW_ASSERT(kw_load32(out.p) == out.len - 4);
        kw_in_init(&in, out.p + 4, out.len - 4);
        KW_ASSERT(kw_frame_parse_request(&in, &again) == KW_OK);
        KW_ASSERT(again.api == r.api && again.version == r.version && again.correlation_id == r.correlation_id);
        KW_ASSERT(kw_str_eq(again.client_id, r.client_id));
    }
    kw_out_deinit(&out);
    kw_arena_deinit(&a);
    free(msg);
}

static void check_response(const struct kw_api *api, int16_t version, const uint8_t *data, size_t size) {
    void *msg = malloc(api->response->size);
    if (!msg) abort();
    struct kw_arena a;
    kw_arena_init(&a, KW_DECODE_EXPANSION_MAX * (size + 1));
    struct kw_in in;
    int32_t correlation_id;
    kw_in_init(&in, data, size);
    if (kw_frame_parse_response(&in, api, version, &correlation_id) == KW_OK) {
        kw_err err = kw_decode(api->response, version, &in, &a, msg);
        KW_ASSERT(err != KW_ENOMEM); /* the budget above is what a client would set */
    }
    kw_arena_deinit(&a);
    free(msg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_memory_count();
    fuzz_memory = (struct fuzz_memory){.live_max = (KW_DECODE_EXPANSION_MAX + 40) * size + (96u << 10),
                                       .one_max = (KW_DECODE_EXPANSION_MAX + 8) * size + (66u << 10)};
    check_request(data, size);
    if (size < 2) return 0;
    const struct kw_api *api = &kw_apis[data[0] % kw_api_count];
    check_response(api, (int16_t)(api->min + data[1] % (api->max - api->min + 1)), data + 2, size - 2);
    FUZZ_CHECK(fuzz_memory.live == 0, "%zu bytes are never given back", fuzz_memory.live);
    return 0;
}
