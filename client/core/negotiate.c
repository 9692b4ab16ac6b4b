/* negotiate.c - the first exchange on a connection: which versions the broker speaks. KIP-35, KIP-511, KIP-584.
 *
 * Asked in the newest version that we know. A broker that lacks it answers in version 0 with UNSUPPORTED_VERSION and its list; then the
 * highest common version is asked for on the same connection, once.
 */
#include "internal.h"

#include <stdio.h>

const struct kc_version_range *kc_versions_of(const struct kc_version_range *v, const struct kw_api *api) {
    static const struct kc_version_range none = {0, -1};
    return v ? &v[api - kw_apis] : &none;
}

bool kc_version_choose(const struct kc_version_range *r, int16_t min, int16_t max, int16_t *version) {
    int16_t v = KW_MIN(r->max, max);
    if (r->max < 0 || v < r->min || v < min) return false;
    *version = v;
    return true;
}

kw_err kc_negotiate_start(struct kc_conn *c, int16_t version) {
    const struct kw_api *api = kw_api_by_key(KW_API_API_VERSIONS);
    version = KW_MIN(version, api->max);
    struct kw_api_versions_request m;
    kw_msg_init(&kw_api_versions_request_desc, &m);
    m.client_software_name = kw_str_of("libkclient");
    m.client_software_version = kw_str_of(kc_version());
    return kc_conn_append(c, NULL, api, version, &m, kc_after(c->core->now.mono_us, c->core->settings->request_timeout_us));
}

static kw_err versions_store(struct kc_conn *c, const struct kw_api_versions_response *m) {
    struct kc_version_range *v = kw_malloc(kw_api_count * sizeof *v);
    struct kc_version_range *copy = kw_malloc(kw_api_count * sizeof *v);
    if (!v || !copy) {
        kw_free(v);
        kw_free(copy);
        return KW_ENOMEM;
    }
    for (size_t i = 0; i < kw_api_count; i++) v[i] = (struct kc_version_range){0, -1};
    for (int32_t i = 0; i < m->api_keys.n; i++) {
        const struct kw_api *api = kw_api_by_key(m->api_keys.v[i].api_key);
        if (api) v[api - kw_apis] = (struct kc_version_range){m->api_keys.v[i].min_version, m->api_keys.v[i].max_version};
    }
    memcpy(copy, v, kw_api_count * sizeof *v);
    kw_free(c->versions);
    c->versions = v;
    kw_free(c->broker->versions);
    c->broker->versions = copy;
    return KW_OK;
}

/* Asks again, in a version that the broker has. */
static void fall_back(struct kc_conn *c, const struct kw_api_versions_response *m, int16_t asked) {
    const struct kw_api *api = kw_api_by_key(KW_API_API_VERSIONS);
    int16_t version = 0;
    for (int32_t i = 0; i < m->api_keys.n; i++) {
        if (m->api_keys.v[i].api_key == api->key) version = KW_MIN(m->api_keys.v[i].max_version, api->max);
    }
    if (version < 0 || version >= asked) {
        kc_conn_fail(c, KC_UNSUPPORTED, "the broker answers UNSUPPORTED_VERSION to every version of ApiVersions");
        return;
    }
    kw_err err = kc_negotiate_start(c, version);
    if (err != KW_OK) kc_conn_fail(c, kc_err_from(err), NULL);
}

void kc_negotiate_answer(struct kc_conn *c, struct kw_in *in, int16_t version) {
    struct kw_in peek = *in;
    int16_t code = kw_in_i16(&peek); /* leads in every version; error 35 comes in the layout of version 0 */
    struct kw_api_versions_response m;
    kw_arena_reset(&c->core->arena);
    kw_err err = kw_decode(&kw_api_versions_response_desc, code == KE_UNSUPPORTED_VERSION ? 0 : version, in, &c->core->arena, &m);
    if (err != KW_OK) {
        /* Some brokers answer error 35 with no list at all. */
        if (code == KE_UNSUPPORTED_VERSION && err != KW_ENOMEM && version > 0) {
            m.api_keys.n = 0;
            fall_back(c, &m, version);
            return;
        }
        kc_conn_fail(c, err == KW_ENOMEM ? KC_NO_MEMORY : KC_BAD_MESSAGE, "the answer to ApiVersions does not follow the protocol");
        return;
    }
    if (m.error_code == KE_UNSUPPORTED_VERSION) {
        fall_back(c, &m, version);
        return;
    }
    if (m.error_code != KE_NONE) {
        char text[160];
        snprintf(text, sizeof text, "the broker answers %s to ApiVersions", kw_kerror_name(m.error_code));
        kc_conn_fail(c, m.error_code, text);
        return;
    }
    err = versions_store(c, &m);
    if (err != KW_OK) {
        kc_conn_fail(c, kc_err_from(err), NULL);
        return;
    }
    kc_conn_ready(c);
    kc_core_broker_throttle(c->core, c->broker->id, m.throttle_time_ms);
}
