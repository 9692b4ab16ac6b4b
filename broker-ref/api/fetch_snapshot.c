/* fetch_snapshot.c - FetchSnapshot v0-1: a piece of a snapshot of the metadata log. KIP-630. Called by dispatch; quorum/raft_serve.c answers. */
#include "api.h"
#include "quorum_ask.h"

void kb_api_fetch_snapshot(struct kb_request *rq) {
    struct kw_fetch_snapshot_request *req = kw_arena_alloc(&rq->arena, sizeof(*req));
    if (!req) {
        kb_request_close(rq, "out of memory");
        return;
    }
    if (kb_request_decode(rq, req) != KW_OK || !kb_quorum_raft(rq)) return;
    kb_raft_fetch_snapshot(rq, req);
}
