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

void kb_api_describe_cluster(struct kb_request *rq) {
    struct kb_parts *p = kb_node_parts(rq->node);
    struct kw_describe_cluster_request req;
    struct kw_describe_cluster_response res;
    if (kb_request_decode(rq, &req)) return;
    kw_msg_init(&kw_describe_cluster_response_desc, &res);
    res.cluster_id = kw_str_of(kb_store_cluster_id(p->store));
    if (req.endpoint_type != ENDPOINT_BROKERS) {
        bool known = req.endpoint_type == ENDPOINT_CONTROLLERS;
        res.error_code = known ? KE_MISMATCHED_ENDPOINT_TYPE : KE_UNSUPPORTED_ENDPOINT_TYPE;
        res.error_message = kw_str_of(known ? "this is a listener for brokers' clients: ask with endpoint type 1"
                                            : "endpoint type 1 (brokers) is known here");
        kb_request_reply(rq, &res);
        return;
    }
    res.controller_id = kb_admin_self(p);
    if (req.include_cluster_authorized_operations) res.cluster_authorized_operations = KB_CLUSTER_OPERATIONS;
    if (add_brokers(rq, &req, &res))
        kb_admin_no_memory(rq);
    else
        kb_request_reply(rq, &res);
}
