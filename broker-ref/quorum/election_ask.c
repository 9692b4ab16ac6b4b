/* election_ask.c - what a node answers to Vote, BeginQuorumEpoch and EndQuorumEpoch. Called by api/vote.c and its siblings through
 * election.h; the answers leave by election_out.c. KIP-595, KIP-853, KIP-996. */
#include "election_priv.h"

#include "wire/kerror.h"

static void fill(const struct kb_election *e, struct kb_election_reply *reply, int64_t now_us) {
    reply->epoch = e->state.epoch;
    /* A leader that this node knows by hearsay is not passed on: two that both lost it would keep each other believing. */
    reply->leader_id = kb_elect_live(e, now_us) ? e->state.leader_id : -1;
}

static int16_t bad_cluster(const struct kb_election *e, const struct kb_election_request *r) {
    if (r->cluster_id.len >= 0 && !kw_str_eq(r->cluster_id, kw_str_of(e->o.cluster_id))) return KE_INCONSISTENT_CLUSTER_ID;
    return KE_NONE;
}

static int16_t bad_request(const struct kb_election *e, const struct kb_election_request *r) {
    if ((r->voter_id >= 0 && r->voter_id != e->o.id) ||
        (!kw_uuid_is_zero(r->voter_directory) && !kw_uuid_eq(r->voter_directory, e->o.directory)))
        return KE_INVALID_VOTER_KEY;
    /* From this node's own id: another process has it too, or a message went astray. Neither may be believed. */
    if (r->epoch < 0 || r->epoch > KB_EPOCH_MAX || r->from < 0 || r->from == e->o.id) return KE_INVALID_REQUEST;
    if (r->kind == KB_VOTE && (r->log_end.epoch < 0 || r->log_end.offset < 0 || r->log_end.epoch > r->epoch - !r->pre_vote))
        return KE_INVALID_REQUEST;
    if (!kb_election_is_voter(e, e->o.id) || !kb_election_is_voter(e, r->from)) return KE_INCONSISTENT_VOTER_SET;
    if (r->epoch < e->state.epoch) return KE_FENCED_LEADER_EPOCH;
    return KE_NONE;
}

/* < 0: a is behind b. The epoch of the last batch comes first: a longer log of an older epoch may lack what was committed since. */
static int compare(struct kb_log_end a, struct kb_log_end b) {
    if (a.epoch != b.epoch) return a.epoch < b.epoch ? -1 : 1;
    return (a.offset > b.offset) - (a.offset < b.offset);
}

static bool pre_vote(struct kb_election *e, const struct kb_election_request *r, int rank, int64_t now_us) {
    if (rank < 0 || kb_elect_live(e, now_us)) return false;
    if (rank > 0 || r->from < e->o.id) kb_elect_yield(e, now_us);
    return true;
}

static bool vote(struct kb_election *e, const struct kb_election_request *r, int rank, int64_t now_us) {
    if (e->state.leader_id >= 0) return false;
    if (e->state.voted_id >= 0) { /* again to the same, whose answer may have been lost */
        struct kw_uuid a = e->state.voted_directory, b = r->from_directory;
        return e->state.voted_id == r->from && (kw_uuid_is_zero(a) || kw_uuid_is_zero(b) || kw_uuid_eq(a, b));
    }
    if (rank < 0) return false;
    kb_elect_vote_for(e, r->from, r->from_directory, now_us);
    return true;
}

static void ask_vote(struct kb_election *e, const struct kb_election_request *r, struct kb_election_reply *reply, int64_t now_us) {
    /* A pre-vote raises the epoch too: who asks in a higher one has no other way back in. It gives no vote away. */
    if (r->epoch > e->state.epoch) kb_elect_new_epoch(e, r->epoch, now_us);
    if (!kb_elect_votes(e)) return;
    int rank = compare(r->log_end, e->o.log_end(e->o.ctx));
    reply->granted = r->pre_vote ? pre_vote(e, r, rank, now_us) : vote(e, r, rank, now_us);
}

/* How long this node leaves the election to those that the leader put before it. */
static int64_t place_delay(const struct kb_election *e, const struct kb_election_request *r) {
    size_t at = 0, n = KW_MIN(r->successor_count, (size_t)KB_VOTERS_MAX);
    while (at < n && r->successors[at] != e->o.id) at++;
    return (int64_t)at * (e->o.election_timeout_us / 10);
}

static void ask_epoch(struct kb_election *e, const struct kb_election_request *r, struct kb_election_reply *reply, int64_t now_us) {
    if (r->epoch == e->state.epoch && e->state.leader_id >= 0 && e->state.leader_id != r->from) {
        reply->error = KE_INVALID_REQUEST; /* an epoch has one leader */
        return;
    }
    bool ended = r->kind == KB_END_EPOCH;
    bool known = r->epoch == e->state.epoch && e->state.leader_id == r->from && e->leader_dead;
    if (ended && known) return; /* told again */
    kb_elect_learn(e, r->from, r->epoch, true, now_us);
    if (ended && e->role == KB_FOLLOWER) kb_elect_leader_ended(e, place_delay(e, r), now_us);
}

void kb_election_ask(struct kb_election *e, const struct kb_election_request *r, struct kb_election_reply *reply, int64_t now_us) {
    KW_ASSERT(e->started);
    kw_list_init(&reply->link);
    reply->granted = false;
    reply->error = KE_NONE;
    reply->top_error = bad_cluster(e, r);
    if (!reply->top_error) reply->error = bad_request(e, r);
    if (!reply->top_error && !reply->error) {
        struct kb_election_peer *p = kb_elect_peer(e, r->from); /* is there: what waits for another try at it need not wait on */
        p->next_us = KW_MIN(p->next_us, now_us);
        if (r->kind == KB_VOTE)
            ask_vote(e, r, reply, now_us);
        else
            ask_epoch(e, r, reply, now_us);
    }
    fill(e, reply, now_us);
    kw_list_push(&e->held, &reply->link);
}

void kb_election_forget(struct kb_election *e, struct kb_election_reply *reply) {
    (void)e;
    kw_list_remove(&reply->link);
}
