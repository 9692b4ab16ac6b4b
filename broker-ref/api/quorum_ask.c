/* quorum_ask.c - the way of a request of the election to the node's replica of the metadata log, and of its answer back. Called by vote.c,
 * begin_quorum_epoch.c, end_quorum_epoch.c.
 */
#include "quorum_ask.h"

#include "node_priv.h"
#include "quorum/store_priv.h"

static void abandon(struct kb_request *rq) {
    kb_raft_forget(rq->node->parts.store->raft, rq->state);
    kb_request_drop(rq);
}

struct kb_raft *kb_quorum_raft(struct kb_request *rq) {
    struct kb_raft *r = rq->node->parts.store ? rq->node->parts.store->raft : NULL;
    if (!r) kb_request_close(rq, "this node is its quorum's only voter: it elects nobody");
    return r;
}

void kb_quorum_ask(struct kb_request *rq, const struct kb_election_request *q, void (*answer)(struct kb_raft_ask *a)) {
    struct kb_raft *r = kb_quorum_raft(rq);
    if (!r) return;
    struct kb_raft_ask *a = kw_arena_calloc(&rq->arena, 1, sizeof(*a));
    if (!a) {
        kb_request_close(rq, "out of memory");
        return;
    }
    a->rq = rq;
    a->answer = answer;
    rq->state = a;
    rq->abandon = abandon;
    kb_raft_ask(r, q, a, rq->node->now);
}
