/* api_versions.c - ApiVersions v0-5: what this broker serves, from dispatch's table, and the cluster's features. Called by dispatch.
 *
 * KIP-35; KIP-511: a version that is too new is answered in version 0 with UNSUPPORTED_VERSION and the list (PR-04); KIP-584 features;
 * KIP-1242 cluster and node.
 */
#include "api.h"
#include "forward.h"
#include "kw_messages.h"
#include "node_priv.h"

static kw_err fill_apis(struct kb_request *rq, struct kw_api_versions_response *resp) {
    resp->api_keys.v = kw_arena_calloc(&rq->arena, kb_api_table_count, sizeof(*resp->api_keys.v));
    if (!resp->api_keys.v) return KW_ENOMEM;
    for (size_t i = 0; i < kb_api_table_count; i++) {
        if (!kb_forward_is_served(rq->node, &kb_api_table[i])) continue;
        struct kw_api_versions_response_api_version *v = &resp->api_keys.v[resp->api_keys.n++];
        v->api_key = kb_api_table[i].key;
        v->min_version = kb_api_table[i].min;
        v->max_version = kb_api_table[i].max;
    }
    return KW_OK;
}

static kw_err fill_features(struct kb_request *rq, struct kw_api_versions_response *resp) {
    struct kb_node *n = rq->node;
    struct kb_image_broker *b = kb_image_broker(&n->image, n->id);
    size_t supported = b ? (size_t)b->feature_count : 0, count = n->image.features.count;
    resp->supported_features.v = kw_arena_calloc(&rq->arena, supported, sizeof(*resp->supported_features.v));
    resp->finalized_features.v = kw_arena_calloc(&rq->arena, count, sizeof(*resp->finalized_features.v));
    if ((supported && !resp->supported_features.v) || (count && !resp->finalized_features.v)) return KW_ENOMEM;
    for (size_t i = 0; i < supported; i++) {
        if (rq->head.version < 4 && b->features[i].min == 0)
            continue; /* older clients take a minimum of 0 for a malformed answer (KIP-1011) */
        resp->supported_features.v[resp->supported_features.n].name = kw_str_of(b->features[i].name);
        resp->supported_features.v[resp->supported_features.n].min_version = b->features[i].min;
        resp->supported_features.v[resp->supported_features.n++].max_version = b->features[i].max;
    }
    struct kb_image_level *l;
    for (size_t it = 0; (l = kw_map_next(&n->image.features, &it));) {
        if (l->level <= 0) continue;
        resp->finalized_features.v[resp->finalized_features.n].name = kw_str_of(l->name);
        resp->finalized_features.v[resp->finalized_features.n].min_version_level = l->level;
        resp->finalized_features.v[resp->finalized_features.n++].max_version_level = l->level;
    }
    resp->finalized_features_epoch = n->image.offset;
    return KW_OK;
}

static bool name_ok(struct kw_str s) { /* KIP-511: what metrics and logs may print */
    if (s.len <= 0) return false;
    for (int32_t i = 0; i < s.len; i++) {
        char c = s.p[i];
        bool alnum = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!alnum && (i == 0 || i == s.len - 1 || (c != '.' && c != '-'))) return false;
    }
    return true;
}

static int16_t check(struct kb_request *rq, const struct kw_api_versions_request *req) {
    struct kb_node *n = rq->node;
    if (rq->head.version >= 3 && (!name_ok(req->client_software_name) || !name_ok(req->client_software_version))) return KE_INVALID_REQUEST;
    if (rq->head.version < 5) return KE_NONE;
    if (req->cluster_id.len >= 0 && !kw_str_eq(req->cluster_id, kw_str_of(kb_store_cluster_id(n->parts.store))))
        return KE_REBOOTSTRAP_REQUIRED;
    if (req->node_id >= 0 && req->node_id != n->id) return KE_REBOOTSTRAP_REQUIRED;
    return KE_NONE;
}

void kb_api_api_versions(struct kb_request *rq) {
    struct kw_api_versions_request req;
    struct kw_api_versions_response resp;
    kw_msg_init(&kw_api_versions_response_desc, &resp);
    bool too_new = rq->head_err == KW_EVERSION;
    if (too_new) {
        resp.error_code = KE_UNSUPPORTED_VERSION;
        rq->head.version = 0;
    } else {
        if (kb_request_decode(rq, &req) != KW_OK) return;
        resp.error_code = check(rq, &req);
    }
    if (fill_apis(rq, &resp) != KW_OK || (!too_new && fill_features(rq, &resp) != KW_OK)) {
        kb_request_close(rq, "out of memory");
        return;
    }
    kb_request_reply(rq, &resp);
}
