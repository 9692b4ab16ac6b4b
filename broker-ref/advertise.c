/* advertise.c - contract: advertise.h. */
#include "advertise.h"

const struct kb_advertised_feature kb_advertised_features[] = {
    {"metadata.version", KB_METADATA_VERSION_MIN, KB_METADATA_VERSION},
    {"kraft.version", 0, 0},
};
const size_t kb_advertised_feature_count = KW_COUNTOF(kb_advertised_features);

size_t kb_advertise_endpoints(const struct kb_config *c, uint16_t port, struct kb_listener out[KB_ENDPOINTS_MAX]) {
    size_t n = kb_config_listeners(c, true, out, KB_ENDPOINTS_MAX);
    if (n == 0) n = kb_config_listeners(c, false, out, KB_ENDPOINTS_MAX);
    n = KW_MIN(n, (size_t)KB_ENDPOINTS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct kw_str h = out[i].host;
        if (h.len == 0 || kw_str_eq(h, kw_str_of("0.0.0.0")) || kw_str_eq(h, kw_str_of("::"))) out[i].host = kw_str_of("localhost");
        if (out[i].port == 0) out[i].port = port;
    }
    return n;
}
