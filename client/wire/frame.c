/* frame.c - size-delimited frames: length, header, message. Called by client/core/conn and broker-ref/dispatch. Calls codec. */
#include "frame.h"

#include "kw_messages.h"

enum { KEY_API_VERSIONS = 18, KEY_CONTROLLED_SHUTDOWN = 7 };

int16_t kw_request_header_version(const struct kw_api *api, int16_t version) {
    if (api->key == KEY_CONTROLLED_SHUTDOWN && version == 0) return 0;
    return version >= api->flexible_min ? 2 : 1;
}

/* An old client must be able to read the answer to an ApiVersions request that the broker did not understand (KIP-511). */
int16_t kw_response_header_version(const struct kw_api *api, int16_t version) {
    if (api->key == KEY_API_VERSIONS) return 0;
    return version >= api->flexible_min ? 1 : 0;
}

kw_err kw_frame_parse_request(struct kw_in *in, struct kw_frame_request *r) {
    struct kw_in fixed = *in; /* key, version and correlation id lead every header version */
    *r = (struct kw_frame_request){.client_id = kw_str_null()};
    r->api_key = kw_in_i16(&fixed);
    r->version = kw_in_i16(&fixed);
    r->correlation_id = kw_in_i32(&fixed);
    if (fixed.err != KW_OK) {
        kw_in_fail(in, fixed.err);
        return in->err;
    }
    r->api = kw_api_by_key(r->api_key);
    if (!r->api || r->version < r->api->min || r->version > r->api->max) return KW_EVERSION;
    struct kw_request_header h;
    struct kw_arena none; /* a header has no arrays: nothing is allocated */
    kw_arena_init(&none, 1);
    kw_err err = kw_decode(&kw_request_header_desc, kw_request_header_version(r->api, r->version), in, &none, &h);
    if (err != KW_OK) return err;
    r->client_id = h.client_id;
    return KW_OK;
}

kw_err kw_frame_parse_response(struct kw_in *in, const struct kw_api *api, int16_t version, int32_t *correlation_id) {
    struct kw_response_header h;
    struct kw_arena none;
    kw_arena_init(&none, 1);
    kw_err err = kw_decode(&kw_response_header_desc, kw_response_header_version(api, version), in, &none, &h);
    if (err != KW_OK) return err;
    *correlation_id = h.correlation_id;
    return KW_OK;
}

static kw_err append(struct kw_out *out, const struct kw_desc *header_desc, int16_t header_version, const void *header,
                     const struct kw_desc *desc, int16_t version, const void *msg) {
    if (out->err != KW_OK) return out->err;
    size_t start = out->len, splice_count = out->splice_count, splice_bytes = out->splice_bytes;
    kw_out_i32(out, 0);
    kw_err err = kw_encode(header_desc, header_version, header, out);
    if (err == KW_OK) err = kw_encode(desc, version, msg, out);
    if (err != KW_OK) goto fail;
    size_t size = out->len - start - 4 + (out->splice_bytes - splice_bytes);
    if (size > INT32_MAX) {
        err = KW_EINVAL;
        goto fail;
    }
    kw_store32(out->p + start, (uint32_t)size);
    return KW_OK;
fail:
    out->len = start;
    out->splice_count = splice_count;
    out->splice_bytes = splice_bytes;
    out->err = KW_OK;
    return err;
}

kw_err kw_frame_request(struct kw_out *out, const struct kw_api *api, int16_t version, int32_t correlation_id, struct kw_str client_id,
                        const void *msg) {
    struct kw_request_header h = {.request_api_key = api->key,
                                  .request_api_version = version,
                                  .correlation_id = correlation_id,
                                  .client_id = client_id};
    return append(out, &kw_request_header_desc, kw_request_header_version(api, version), &h, api->request, version, msg);
}

kw_err kw_frame_response(struct kw_out *out, const struct kw_api *api, int16_t version, int32_t correlation_id, const void *msg) {
    struct kw_response_header h = {.correlation_id = correlation_id};
    return append(out, &kw_response_header_desc, kw_response_header_version(api, version), &h, api->response, version, msg);
}
