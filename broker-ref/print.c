/* print.c - an entry of a recording as one line of JSON. Called by shell_print. Calls recording, wire/frame, print_body, print_json. See print.h. */
#include "print.h"

#include "wire/frame.h"
#include "wire/kerror.h"

enum { KEY_API_VERSIONS = 18 };

static void put_head(const struct kb_recording_entry *e, const struct kw_api *api, struct kw_out *out) {
    kb_json_text(out, "{\"at\":");
    kb_json_time(out, e->at_us);
    kb_json_text(out, ",\"at_us\":");
    kb_json_int(out, e->at_us);
    kb_json_text(out, ",\"node\":");
    kb_json_int(out, e->node);
    kb_json_text(out, ",\"connection\":");
    kb_json_int(out, e->connection);
    kb_json_text(out, ",\"peer\":");
    kb_json_string(out, e->peer.p, (size_t)e->peer.len);
    kb_json_text(out, e->response ? ",\"kind\":\"response\",\"api\":" : ",\"kind\":\"request\",\"api\":");
    if (api)
        kb_json_string(out, api->name, strlen(api->name));
    else
        kb_json_int(out, e->api_key);
    kb_json_text(out, ",\"version\":");
    kb_json_int(out, e->version);
    kb_json_text(out, ",\"correlation_id\":");
    kb_json_int(out, e->correlation_id);
    kb_json_text(out, ",\"client_id\":");
    if (e->client_id.len < 0)
        kb_json_text(out, "null");
    else
        kb_json_string(out, e->client_id.p, (size_t)e->client_id.len);
    kb_json_text(out, ",\"size\":");
    kb_json_int(out, e->frame_size);
    if (!e->response) return;
    kb_json_text(out, ",\"took_us\":");
    kb_json_int(out, e->took_us);
}

static void put_error(const struct kb_print *p, const char *why, const uint8_t *frame, size_t n, struct kw_out *out) {
    kb_json_text(out, ",\"body\":null,\"error\":");
    kb_json_string(out, why, strlen(why));
    if (!frame) return;
    kb_json_text(out, ",\"bytes\":");
    kb_json_bytes(out, frame, n, p->bytes_max);
}

static const char *why_not(kw_err err) {
    switch (err) {
    case KW_ESHORT: return "the body ends too early for its format";
    case KW_EVERSION: return "a version that this kbroker does not know";
    case KW_ELIMIT: return "decoded it is longer than a line may be (256 MB)";
    default: return "the body does not follow its format";
    }
}

/* Leaves `in` at the body. An ApiVersions of a version that the broker did not know is answered as of version 0 (KIP-511). */
static kw_err pass_header(const struct kb_recording_entry *e, const struct kw_api *api, int16_t *version, struct kw_in *in) {
    struct kw_frame_request head;
    int32_t id;
    if (!e->response) return kw_frame_parse_request(in, &head);
    if (e->api_key == KEY_API_VERSIONS && (*version < api->min || *version > api->max)) *version = 0;
    if (*version < api->min || *version > api->max) return KW_EVERSION;
    return kw_frame_parse_response(in, api, *version, &id);
}

static void put_body(const struct kb_print *p, const struct kb_recording_entry *e, const struct kw_api *api, const uint8_t *frame, struct kw_out *out) {
    int16_t version = e->version;
    struct kw_in in;
    size_t start = out->len;
    kw_in_init(&in, frame, e->frame_size);
    kw_err err = pass_header(e, api, &version, &in);
    struct kb_print_frame f = {p, e, frame};
    kb_json_text(out, ",\"body\":");
    if (!err) err = kb_print_body(&f, e->response ? api->response : api->request, version, &in, out);
    if (err) {
        if (out->err == KW_OK) out->len = start;
        put_error(p, why_not(err), frame, e->frame_size, out);
    } else if (kw_in_left(&in) > 0) {
        kb_json_text(out, ",\"trailing\":");
        kb_json_bytes(out, in.p, kw_in_left(&in), p->bytes_max);
    }
}

void kb_print_entry(const struct kb_print *p, const struct kb_recording_entry *e, struct kw_out *out) {
    const struct kw_api *api = kw_api_by_key(e->api_key);
    uint8_t *made = NULL;
    const uint8_t *frame = NULL;
    put_head(e, api, out);
    if (e->flags & KB_RECORDING_MASKED) {
        kb_json_text(out, ",\"body\":\"(masked)\"");
    } else if (!(frame = kb_recording_frame(e, &made))) {
        put_error(p, "no memory for a frame of this size", NULL, 0, out);
    } else if (!api) {
        put_error(p, "an API that this kbroker does not know", frame, e->frame_size, out);
    } else {
        put_body(p, e, api, frame, out);
    }
    kw_free(made);
    if (e->data_size < e->frame_size && !(e->flags & KB_RECORDING_MASKED)) {
        kb_json_text(out, ",\"not_recorded\":");
        kb_json_int(out, (int64_t)e->frame_size - (int64_t)e->data_size);
    }
    kw_out_i8(out, '}');
}
