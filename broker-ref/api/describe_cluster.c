/* describe_cluster.c - DescribeCluster v0-2: the brokers, the controller, what may be done. KIP-700, KIP-919 (endpoint types), KIP-1073
 * (fenced brokers). */
#include "admin.h"

enum { ENDPOINT_BROKERS = 1, ENDPOINT_CONTROLLERS = 2 };

static kw_err add_brokers(struct kb_request *rq, const struct kw_describe_cluster_request *req, struct kw_describe_cluster_response *res) {
    struct kb_image *im = kb_node_parts(rq->node)->image;
    res->brokers.v = kw_arena_calloc(&rq->arena, im->brokers.count + 1, sizeof(*res->brokers.v));
    if (!res->brokers.v) return KW_ENOMEM;
    struct kb_image_broker *b;
    for (size_t it = 0; (b = kw_map_next(&im->brokers, &it));) {
        struct kw_describe_cluster_response_describe_cluster_broker *out = &res->brokers.v[res->brokers.n];
        if ((b->fenced && !req->include_fenced_brokers) || !kb_admin_address(rq, b, &out->host, &out->port)) continue;
        out->broker_id = b->id;
        out->rack = kw_str_of(b->rack);
        out->is_fenced = b->fenced;
        res->brokers.n++;
    }
    return KW_OK;
}

static kw_err add_voters(struct kb_request *rq, struct kw_describe_cluster_response *res) {
    struct kb_voter v[KB_VOTERS_MAX];
    size_t n = KW_MIN(kb_config_voters(kb_node_parts(rq->node)->config, v, KB_VOTERS_MAX), (size_t)KB_VOTERS_MAX);
    res->brokers.v = kw_arena_calloc(&rq->arena, n + 1, sizeof(*res->brokers.v));
    if (!res->brokers.v) return KW_ENOMEM;
    for (size_t i = 0; i < n; i++)
        res->brokers.v[res->brokers.n++] = (struct kw_describe_cluster_response_describe_cluster_broker){
            .broker_id = v[i].id, .host = v[i].host, .port = v[i].port, .rack = kw_str_null()};
    return KW_OK;
}

static kw_err add_counts(struct kb_request *rq, struct kw_describe_cluster_response *res) {
    struct kb_node_count c[KB_NODE_COUNTS];
    size_t n = kb_node_counts(rq->node, c);
    res->counts.v = kw_arena_calloc(&rq->arena, n, sizeof(*res->counts.v));
    if (!res->counts.v) return KW_ENOMEM;
    for (; (size_t)res->counts.n < n; res->counts.n++)
        res->counts.v[res->counts.n] = (struct kw_describe_cluster_response_node_count){kw_str_of(c[res->counts.n].name), c[res->counts.n].value};
    return KW_OK;
}

/* NULL: this node can answer. Brokers' listeners are for brokers' clients, controllers' for the rest; one that is both, in a quorum of several, has
 * one listener for all. */
static const char *wrong_endpoint(struct kb_request *rq, int8_t type) {
    const struct kb_parts *p = kb_node_parts(rq->node);
    if (type != ENDPOINT_BROKERS && type != ENDPOINT_CONTROLLERS) return "endpoint types 1 (brokers) and 2 (controllers) are known here";
    if (type == ENDPOINT_BROKERS)
        return kb_config_roles(p->config) & KB_ROLE_BROKER ? NULL : "this is a controller's listener: ask with endpoint type 2";
    return (kb_config_roles(p->config) & KB_ROLE_CONTROLLER) && !kb_store_is_single(p->store)
               ? NULL
               : "this is a listener for brokers' clients: ask with endpoint type 1";
}

void kb_api_describe_cluster(struct kb_request *rq) {
    struct kb_parts *p = kb_node_parts(rq->node);
    struct kw_describe_cluster_request req;
    struct kw_describe_cluster_response res;
    if (kb_request_decode(rq, &req)) return;
    kw_msg_init(&kw_describe_cluster_response_desc, &res);
    res.cluster_id = kw_str_of(kb_store_cluster_id(p->store));
    if (req.endpoint_type != ENDPOINT_CONTROLLERS && kb_node_state(rq->node) != KB_NODE_READY) {
        kb_request_close(rq, "this broker is not ready yet");
        return;
    }
    const char *wrong = wrong_endpoint(rq, req.endpoint_type); /* nodes of the quorum ask for the cluster's id so, and take it from any answer */
    if (wrong) {
        bool known = req.endpoint_type == ENDPOINT_BROKERS || req.endpoint_type == ENDPOINT_CONTROLLERS;
        res.error_code = known ? KE_MISMATCHED_ENDPOINT_TYPE : KE_UNSUPPORTED_ENDPOINT_TYPE;
        res.error_message = kw_str_of(wrong);
        kb_request_reply(rq, &res);
        return;
    }
    bool brokers = req.endpoint_type == ENDPOINT_BROKERS;
    res.endpoint_type = req.endpoint_type;
    res.controller_id = brokers ? kb_admin_controller(p) : kb_store_leader(p->store, NULL);
    if (req.include_cluster_authorized_operations) res.cluster_authorized_operations = KB_CLUSTER_OPERATIONS;
    if ((brokers ? add_brokers(rq, &req, &res) : add_voters(rq, &res)) || (req.include_counts && add_counts(rq, &res)))
        kb_admin_no_memory(rq);
    else
        kb_request_reply(rq, &res);
}
