/* unregister_broker.c - UnregisterBroker v0: a broker is gone for good, whether it lives or not; its leaderships move on first. KIP-631.
 *
 * Called by dispatch. The rules are the controller's (controller_brokers.c).
 */
#include "admin.h"

#define WAIT_MS 30000

struct unregistration {
    struct kw_unregister_broker_request req;
    struct kb_broker_unregister u;
};

static void answer(struct kb_admin_wait *w) {
    const struct unregistration *g = w->items;
    struct kw_unregister_broker_response res;
    kw_msg_init(&kw_unregister_broker_response_desc, &res);
    res.error_code = kb_admin_code(w, &g->u.result);
    res.error_message = kb_admin_text(w, &g->u.result);
    kb_request_reply(w->rq, &res);
}

void kb_api_unregister_broker(struct kb_request *rq) {
    struct kb_admin_wait *w = kb_admin_open(rq, sizeof(struct unregistration), answer);
    if (!w) return;
    struct unregistration *g = w->items;
    g->u.id = g->req.broker_id;
    kw_err err = kb_controller_unregister_broker(kb_node_parts(rq->node)->controller, &g->u, &w->change, rq->arrived);
    kb_admin_wait_begin(w, err, WAIT_MS);
}
