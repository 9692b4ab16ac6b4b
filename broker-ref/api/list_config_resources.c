/* list_config_resources.c - ListConfigResources v0-1: what can be asked for with DescribeConfigs. v0 knows client metrics only. KIP-714,
 * KIP-1142. */
#include <stdio.h>

#include "admin.h"

enum { TOPIC = 2, BROKER = 4, BROKER_LOGGER = 8, CLIENT_METRICS = 16, GROUP = 32 };
enum { WANT_ALL = TOPIC | BROKER | BROKER_LOGGER | CLIENT_METRICS | GROUP };

static void add(struct kw_list_config_resources_response *res, int8_t type, struct kw_str name) {
    res->config_resources.v[res->config_resources.n++] =
        (struct kw_list_config_resources_response_config_resource){.resource_name = name, .resource_type = type};
}

static kw_err add_brokers(struct kb_request *rq, struct kw_list_config_resources_response *res, int8_t type) {
    struct kb_image_broker *b;
    struct kb_image *im = kb_node_parts(rq->node)->image;
    for (size_t it = 0; (b = kw_map_next(&im->brokers, &it));) {
        char *id = kw_arena_alloc(&rq->arena, 12);
        if (!id) return KW_ENOMEM;
        snprintf(id, 12, "%d", (int)b->id);
        add(res, type, kw_str_of(id));
    }
    return KW_OK;
}

/* There are neither client metrics subscriptions nor group configurations here: their lists are empty. */
static kw_err add_all(struct kb_request *rq, struct kw_list_config_resources_response *res, unsigned want) {
    struct kb_image *im = kb_node_parts(rq->node)->image;
    struct kb_image_topic *t;
    res->config_resources.v =
        kw_arena_alloc(&rq->arena, (im->topics_by_name.count + 2 * im->brokers.count + 1) * sizeof(*res->config_resources.v));
    if (!res->config_resources.v) return KW_ENOMEM;
    for (size_t it = 0; (want & TOPIC) && (t = kw_map_next(&im->topics_by_name, &it));) add(res, TOPIC, kw_str_of(t->name));
    kw_err err = want & BROKER ? add_brokers(rq, res, BROKER) : KW_OK;
    if (!err && (want & BROKER_LOGGER)) err = add_brokers(rq, res, BROKER_LOGGER);
    return err;
}

void kb_api_list_config_resources(struct kb_request *rq) {
    struct kw_list_config_resources_request req;
    struct kw_list_config_resources_response res;
    if (kb_request_decode(rq, &req)) return;
    kw_msg_init(&kw_list_config_resources_response_desc, &res);
    unsigned want = rq->head.version == 0 ? CLIENT_METRICS : req.resource_types.n <= 0 ? WANT_ALL : 0;
    for (int32_t i = 0; i < req.resource_types.n && rq->head.version > 0; i++) {
        unsigned type = (uint8_t)req.resource_types.v[i];
        if (type == 0 || (type & (type - 1)) || !(type & WANT_ALL)) res.error_code = KE_UNSUPPORTED_VERSION;
        want |= type;
    }
    if (!res.error_code && add_all(rq, &res, want))
        kb_admin_no_memory(rq);
    else
        kb_request_reply(rq, &res);
}
