/* quorum_ask.h - what Vote, BeginQuorumEpoch and EndQuorumEpoch share: the way to the election and back. */
#ifndef KB_QUORUM_ASK_H
#define KB_QUORUM_ASK_H

#include "kw_messages.h"
#include "quorum/raft.h"

/* answer comes once, unless the connection goes before. */
void kb_quorum_ask(struct kb_request *rq, const struct kb_election_request *q, void (*answer)(struct kb_raft_ask *a));
/* The replica of the metadata log; NULL: the quorum is this node alone (and the request is closed). */
struct kb_raft *kb_quorum_raft(struct kb_request *rq);

#endif
