/* find_coordinator.c - FindCoordinator v0-6. This broker has no group, transaction or share coordinator yet and says so. Called by
 * dispatch.
 *
 * Groups: COORDINATOR_NOT_AVAILABLE, which is retriable. Transactions and share groups: UNSUPPORTED_VERSION, which clients take as final,
 * so that a transactional producer fails at once and shows the text, where it would wait in vain otherwise. KIP-699 (several keys), 932.
 */
#include "api.h"
#include "kw_messages.h"
#include "node_priv.h"

static const char *text_of(int8_t key_type) {
    switch (key_type) {
    case 0:
        return "this kbroker has no group coordinator yet: assign partitions to the consumer instead of subscribing it";
    case 1:
        return "this kbroker has no transaction coordinator yet: produce without a transactional.id";
    default:
        return "this kbroker has no share coordinator yet";
    }
}

void kb_api_find_coordinator(struct kb_request *rq) {
    struct kw_find_coordinator_request req;
    struct kw_find_coordinator_response resp;
    if (kb_request_decode(rq, &req) != KW_OK) return;
    kw_msg_init(&kw_find_coordinator_response_desc, &resp);
    bool type_ok = req.key_type >= 0 && req.key_type <= 2;
    int16_t code = !type_ok ? KE_INVALID_REQUEST : req.key_type == 0 ? KE_COORDINATOR_NOT_AVAILABLE : KE_UNSUPPORTED_VERSION;
    struct kw_str text = kw_str_of(type_ok ? text_of(req.key_type) : "a coordinator's key type is 0 (group), 1 (transaction) or 2 (share)");
    struct kw_str nowhere = kw_str_of("");
    if (rq->head.version <= 3) {
        resp.error_code = code;
        resp.error_message = text;
        resp.node_id = -1;
        resp.host = nowhere;
        resp.port = -1;
        kb_request_reply(rq, &resp);
        return;
    }
    resp.coordinators.n = req.coordinator_keys.n;
    resp.coordinators.v = kw_arena_calloc(&rq->arena, (size_t)req.coordinator_keys.n, sizeof(*resp.coordinators.v));
    if (!resp.coordinators.v) {
        kb_request_close(rq, "out of memory");
        return;
    }
    for (int32_t i = 0; i < req.coordinator_keys.n; i++) {
        resp.coordinators.v[i].key = req.coordinator_keys.v[i];
        resp.coordinators.v[i].node_id = -1;
        resp.coordinators.v[i].host = nowhere;
        resp.coordinators.v[i].port = -1;
        resp.coordinators.v[i].error_code = code;
        resp.coordinators.v[i].error_message = text;
    }
    kb_request_reply(rq, &resp);
}
