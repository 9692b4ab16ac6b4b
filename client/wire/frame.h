/* frame.h - size-delimited Kafka frames: request and response headers around a message.
 *
 * Called by client/core/conn and broker-ref/dispatch.
 */
#ifndef KW_FRAME_H
#define KW_FRAME_H

#include "codec.h"

struct kw_frame_request {
    const struct kw_api *api; /* NULL: api_key unknown */
    int16_t api_key, version;
    int32_t correlation_id;
    struct kw_str client_id; /* null allowed */
};

/* Parses a request header (the 4 length bytes already taken off). Leaves `in` at the body. An unknown key or a version that
 * we do not know yields KW_EVERSION with key, version and correlation id filled (ApiVersions must still be answered). */
kw_err kw_frame_parse_request(struct kw_in *in, struct kw_frame_request *r) KW_CHECK;

/* Appends length + request header + body. On failure `out` is cut back to where it was, and can be used on. */
kw_err kw_frame_request(struct kw_out *out, const struct kw_api *api, int16_t version, int32_t correlation_id,
                        struct kw_str client_id, const void *msg) KW_CHECK;
/* Appends length + response header + body; the length counts splices. On failure as above. */
kw_err kw_frame_response(struct kw_out *out, const struct kw_api *api, int16_t version, int32_t correlation_id,
                         const void *msg) KW_CHECK;
/* Reads a response header of the API and version; leaves `in` at the body. */
kw_err kw_frame_parse_response(struct kw_in *in, const struct kw_api *api, int16_t version, int32_t *correlation_id) KW_CHECK;

#endif
