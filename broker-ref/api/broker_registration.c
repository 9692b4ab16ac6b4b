/* broker_registration.c - BrokerRegistration v0-4: a broker makes itself known, and gets its epoch. v2 adds its folders, v3 the epoch that it had.
 *
 * KIP-631, 858, 966. Called by dispatch, sent by lifecycle. The rules are the controller's (controller_brokers.c).
 */
#include "admin.h"

#include "conn.h"

#define WAIT_MS 30000 /* the request has no timeout of its own; its sender's is shorter */

struct registration {
    struct kw_broker_registration_request req;
    struct kb_broker_register r;
};

static void answer(struct kb_admin_wait *w) {
    const struct registration *g = w->items;
    struct kw_broker_registration_response res;
    kw_msg_init(&kw_broker_registration_response_desc, &res);
    res.error_code = kb_admin_code(w, &g->r.result);
    if (res.error_code == 0) res.broker_epoch = g->r.epoch;
    if (res.error_code != 0 && res.error_code != KE_NOT_CONTROLLER)
        kb_say(kb_node_parts(w->rq->node)->logger, KB_WARN, "the registration of broker %d is refused: %s", (int)g->r.id,
               w->timed_out ? "it was not committed in time" : g->r.result.text);
    kb_request_reply(w->rq, &res);
}

static kw_err copy(struct kb_request *rq, struct registration *g) {
    const struct kw_broker_registration_request *q = &g->req;
    int32_t endpoints = KW_MAX(q->listeners.n, 0), features = KW_MAX(q->features.n, 0);
    struct kw_register_broker_record_broker_endpoint *e = kw_arena_calloc(&rq->arena, (size_t)endpoints + 1, sizeof(*e));
    struct kw_register_broker_record_broker_feature *f = kw_arena_calloc(&rq->arena, (size_t)features + 1, sizeof(*f));
    if (!e || !f) return KW_ENOMEM;
    for (int32_t i = 0; i < endpoints; i++) {
        e[i].name = q->listeners.v[i].name;
        e[i].host = q->listeners.v[i].host;
        e[i].port = q->listeners.v[i].port;
        e[i].security_protocol = q->listeners.v[i].security_protocol;
    }
    for (int32_t i = 0; i < features; i++) {
        f[i].name = q->features.v[i].name;
        f[i].min_supported_version = q->features.v[i].min_supported_version;
        f[i].max_supported_version = q->features.v[i].max_supported_version;
    }
    g->r = (struct kb_broker_register){.id = q->broker_id,
                                       .incarnation = q->incarnation_id,
                                       .cluster_id = q->cluster_id,
                                       .endpoints = e,
                                       .endpoint_count = endpoints,
                                       .features = f,
                                       .feature_count = features,
                                       .rack = q->rack,
                                       .log_dirs = q->log_dirs.v,
                                       .log_dir_count = KW_MAX(q->log_dirs.n, 0),
                                       .previous_epoch = q->previous_broker_epoch,
                                       .conn = rq->conn};
    return KW_OK;
}

void kb_api_broker_registration(struct kb_request *rq) {
    struct kb_admin_wait *w = kb_admin_open(rq, sizeof(struct registration), answer);
    if (!w) return;
    struct registration *g = w->items;
    kw_err err = copy(rq, g);
    if (!err && rq->conn) rq->conn->of_broker = true;
    if (!err) err = kb_controller_register_broker(kb_node_parts(rq->node)->controller, &g->r, &w->change, rq->arrived);
    kb_admin_wait_begin(w, err, WAIT_MS);
}
