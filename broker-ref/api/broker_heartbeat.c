/* broker_heartbeat.c - BrokerHeartbeat v0-2: a broker keeps its session up, and asks to be unfenced, fenced, or let go. v1 adds
 * directories that it cannot use any more. KIP-631, 841, 858.
 *
 * Called by dispatch, sent by lifecycle. The rules are the controller's (controller_brokers.c). The connection that it comes by tells of the
 * broker's death when it closes (conn.c).
 */
#include "admin.h"

#include "conn.h"

static void answer(struct kb_request *rq, const struct kb_heartbeat *h) {
    struct kw_broker_heartbeat_response res;
    kw_msg_init(&kw_broker_heartbeat_response_desc, &res);
    res.error_code = h->code;
    res.is_caught_up = h->caught_up;
    res.is_fenced = h->fenced;
    res.should_shut_down = h->shut_down;
    kb_request_reply(rq, &res);
}

static void done(struct kb_heartbeat *h, struct kb_now now) {
    struct kb_request *rq = h->ctx;
    (void)now;
    rq->abandon = NULL;
    answer(rq, h);
}

static void abandon(struct kb_request *rq) {
    kb_controller_heartbeat_cancel(rq->state);
    kb_request_drop(rq);
}

void kb_api_broker_heartbeat(struct kb_request *rq) {
    struct kw_broker_heartbeat_request req;
    struct kb_heartbeat *h = kw_arena_calloc(&rq->arena, 1, sizeof(*h));
    if (!h) {
        kb_admin_no_memory(rq);
        return;
    }
    if (kb_request_decode(rq, &req)) return;
    *h = (struct kb_heartbeat){.id = req.broker_id,
                               .epoch = req.broker_epoch,
                               .metadata_offset = req.current_metadata_offset,
                               .want_fence = req.want_fence,
                               .want_shut_down = req.want_shut_down,
                               .offline_dirs = req.offline_log_dirs.v,
                               .offline_dir_count = KW_MAX(req.offline_log_dirs.n, 0),
                               .conn = rq->conn,
                               .done = done,
                               .ctx = rq};
    if (rq->conn) rq->conn->of_broker = true;
    rq->state = h;
    rq->abandon = abandon;
    if (!kb_controller_heartbeat(kb_node_parts(rq->node)->controller, h, rq->arrived)) return;
    rq->abandon = NULL;
    answer(rq, h);
}
