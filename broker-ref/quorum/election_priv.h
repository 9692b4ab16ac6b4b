/* election_priv.h - the election's transitions, as election.c (events), election_ask.c (incoming requests) and election_out.c (what comes
 * out) share them. */
#ifndef KB_ELECTION_PRIV_H
#define KB_ELECTION_PRIV_H

#include "election.h"

#define KB_NEVER INT64_MAX

static inline size_t kb_elect_majority(const struct kb_election *e) {
    return e->o.voter_count / 2 + 1;
}
struct kb_election_peer *kb_elect_peer(struct kb_election *e, int32_t id); /* NULL: no voter */
/* The epoch or the vote is not on the disk yet: nothing that rests on them may leave. */
bool kb_elect_unsettled(const struct kb_election *e);
bool kb_elect_votes(const struct kb_election *e);                /* is a voter, and may vote */
bool kb_elect_live(const struct kb_election *e, int64_t now_us); /* is the leader, or has heard of it itself within the fetch timeout */
int64_t kb_elect_quorum_until(const struct kb_election *e);      /* as the leader: when check-quorum fails, should nobody fetch */

/* Transitions. */
void kb_elect_new_epoch(struct kb_election *e, int32_t epoch, int64_t now_us);
/* What someone told: `direct` when it was the leader itself. Raises the epoch, follows. */
void kb_elect_learn(struct kb_election *e, int32_t leader_id, int32_t epoch, bool direct, int64_t now_us);
void kb_elect_vote_for(struct kb_election *e, int32_t id, struct kw_uuid directory, int64_t now_us);
void kb_elect_leader_ended(struct kb_election *e, int64_t delay_us,
                           int64_t now_us); /* by its own word: ask for an election after delay_us */
void kb_elect_yield(struct kb_election *e, int64_t now_us);

#endif
