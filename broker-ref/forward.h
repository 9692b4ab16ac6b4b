/* forward.h - what only the active controller can do, asked of any node: relayed to it, and its answer given back as if it were this node's.
 * Which node serves which API at all.
 *
 * Called by dispatch (requests of clients), api/metadata (topics made on first use), api_versions. Calls channel, request, image. KIP-590 in
 * spirit: the frame goes on as it is, without an envelope, since there are no principals yet.
 *
 * While no controller is known, or it cannot be reached, or has just lost its office, the request is sent again until its own timeout is over. An
 * answer is held back until this node's image has reached what was committed at the controller by then (at most 1 s), so that the client's next
 * request here finds what it has just made.
 */
#ifndef KB_FORWARD_H
#define KB_FORWARD_H

#include "link.h"
#include "request.h"

bool kb_forward_is_served(const struct kb_node *n, const struct kb_api_entry *e); /* by a node of these roles */
bool kb_forward_passes_on(int16_t api_key); /* the controller's to answer, whoever is asked */
/* Ends the client id of what a node asks of another that it takes for the controller: such a request is not passed on once more, so that two nodes
 * which take each other for it do not play ball. A client of a user may be called kbroker-1 as well. */
#define KB_NODE_ASKS " (node)"
bool kb_forward_is_due(const struct kb_request *rq);                 /* the controller's to answer, and this node is not the controller */
void kb_forward_request(struct kb_request *rq);

/* The same for a request that a request of a client leads to. Lies in the client's request's arena, as its body does. */
struct kb_forward {
    /* given */
    struct kb_request *rq;
    int16_t api_key, version;
    const uint8_t *body;
    size_t size;
    int64_t deadline_us;
    /* Once, never from within kb_forward_begin: KE_NONE and the answer's body (views into blk), or REQUEST_TIMED_OUT. The request's
     * `abandon` is free again. Never where the request is closed for want of memory. */
    void (*done)(struct kb_forward *f, int16_t code, struct kw_in *body, struct kw_blk *blk);
    /* its own */
    struct kw_list link; /* while it waits for the image */
    struct kw_timer timer;
    struct kb_call call;
    bool waiting; /* for the image */
    struct kw_blk *blk;
    struct kw_in answer;
    int64_t offset;
};
void kb_forward_begin(struct kb_forward *f, struct kb_now now); /* takes rq->state and rq->abandon */

void kb_forward_applied(struct kb_node *n, struct kb_now now); /* the image moved, or the logs that it asks for are open */

#endif
