/* leader_hint.h - KIP-951: whoever asks the wrong node is told who leads, and where that is, and need not ask for metadata then.
 *
 * Called by api/produce and api/fetch. Calls image, admin (addresses).
 */
#ifndef KB_LEADER_HINT_H
#define KB_LEADER_HINT_H

#include "quorum/image.h"
#include "request.h"

struct kb_leader_hints { /* of one answer; zeroed */
    const struct kb_image_broker **brokers; /* each once; in the request's arena */
    int32_t count;
};
/* Who leads that partition, and in which epoch, if that helps: not where nobody is known to, and this node only for those that have its epoch wrong.
 * False: *leader and *epoch stay. */
bool kb_leader_hint(struct kb_request *rq, struct kb_leader_hints *h, struct kw_str topic, struct kw_uuid topic_id, int32_t index,
                    bool epoch_is_wrong, int32_t *leader, int32_t *epoch);
struct kb_leader_place {
    int32_t id, port;
    struct kw_str host, rack;
};
/* The i-th broker; false: no address of it is known. */
bool kb_leader_place(struct kb_request *rq, const struct kb_leader_hints *h, int32_t i, struct kb_leader_place *p);

#endif
