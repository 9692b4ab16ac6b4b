/* allocate_producer_ids.c - AllocateProducerIds v0: a block of producer ids for another broker. KIP-730.
 *
 * Called by dispatch, sent by other brokers. The rules are the controller's (controller.c).
 */
#include "admin.h"

#define WAIT_MS 30000

struct allocation {
    struct kw_allocate_producer_ids_request req;
    struct kb_pid_grant g;
};

static void answer(struct kb_admin_wait *w) {
    const struct allocation *a = w->items;
    struct kw_allocate_producer_ids_response res;
    kw_msg_init(&kw_allocate_producer_ids_response_desc, &res);
    res.error_code = kb_admin_code(w, &a->g.block.result);
    if (res.error_code == 0) {
        res.producer_id_start = a->g.block.first;
        res.producer_id_len = a->g.block.count;
    }
    kb_request_reply(w->rq, &res);
}

void kb_api_allocate_producer_ids(struct kb_request *rq) {
    struct kb_admin_wait *w = kb_admin_open(rq, sizeof(struct allocation), answer);
    if (!w) return;
    struct allocation *a = w->items;
    a->g.broker = a->req.broker_id;
    a->g.broker_epoch = a->req.broker_epoch;
    kw_err err = kb_controller_grant_pids(kb_node_parts(rq->node)->controller, &a->g, &w->change, rq->arrived);
    kb_admin_wait_begin(w, err, WAIT_MS);
}
