/* election_out.c - what an election has to say: the next thing to store, to tell, to send, and when time itself is the next event. Worked
 * out from the state, so that nothing overtaken is ever sent. Contract: election.h. */
#include "election_priv.h"

#define FIND_EXPONENT_MAX 3

static bool same(const struct kb_election_state *a, const struct kb_election_state *b) {
    return a->epoch == b->epoch && a->leader_id == b->leader_id && a->voted_id == b->voted_id &&
           kw_uuid_eq(a->voted_directory, b->voted_directory);
}

static bool next_view(struct kb_election *e, struct kb_election_action *act) {
    struct kb_election_view v = kb_election_view(e);
    if (v.epoch == e->told_epoch && v.leader_id == e->told_leader && v.leads == e->told_leads) return false;
    e->told_epoch = v.epoch;
    e->told_leader = v.leader_id;
    e->told_leads = v.leads;
    act->kind = KB_ELECT_VIEW;
    return true;
}

static bool next_store(struct kb_election *e, struct kb_election_action *act) {
    if (e->store_under_way || same(&e->state, &e->stored)) return false;
    e->store_under_way = true;
    e->storing = e->state;
    act->kind = KB_ELECT_STORE;
    act->state = e->state;
    return true;
}

/* The followers by their logs' ends: the first to ask should be one that the others can elect. */
static void successors(const struct kb_election *e, struct kb_election_request *r) {
    const struct kb_election_peer *by[KB_VOTERS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < e->o.voter_count; i++) {
        const struct kb_election_peer *p = &e->peers[i];
        if (p->id == e->o.id) continue;
        size_t k = n++;
        for (; k > 0 && by[k - 1]->end_offset < p->end_offset; k--) by[k] = by[k - 1];
        by[k] = p;
    }
    for (size_t i = 0; i < n; i++) r->successors[i] = by[i]->id;
    r->successor_count = n;
}

static void request(const struct kb_election *e, struct kb_election_peer *p, struct kb_election_send *s) {
    *s = (struct kb_election_send){.to = p->id, .timeout_us = KW_MIN(e->o.request_timeout_us, e->o.election_timeout_us)};
    struct kb_election_request *r = &s->request;
    r->cluster_id = kw_str_of(e->o.cluster_id);
    r->voter_id = p->id;
    r->epoch = e->state.epoch;
    r->from = e->o.id;
    r->from_directory = e->o.directory;
    if (e->role == KB_LEADER) {
        r->kind = KB_BEGIN_EPOCH;
    } else if (e->role == KB_RESIGNED) {
        r->kind = KB_END_EPOCH;
        successors(e, r);
    } else {
        r->kind = KB_VOTE;
        r->pre_vote = e->role == KB_PROSPECTIVE;
        r->log_end = e->o.log_end(e->o.ctx);
    }
}

static bool next_send(struct kb_election *e, struct kb_election_action *act, int64_t now_us) {
    for (size_t i = 0; i < e->o.voter_count; i++) {
        struct kb_election_peer *p = &e->peers[i];
        if (!p->due || p->under_way || p->next_us > now_us) continue;
        p->due = false;
        p->under_way = true;
        p->attempt = e->attempt;
        act->kind = KB_ELECT_SEND;
        act->to = p->id;
        request(e, p, &act->send);
        return true;
    }
    return false;
}

static bool finds(const struct kb_election *e) {
    return e->role == KB_UNATTACHED && !kb_elect_votes(e);
}

static bool next_find(struct kb_election *e, struct kb_election_action *act, int64_t now_us) {
    if (!finds(e) || now_us < e->find_us) return false;
    for (size_t i = 0; i < e->o.voter_count; i++) {
        int32_t id = e->o.voters[e->find_at++ % e->o.voter_count];
        if (id == e->o.id) continue;
        int64_t base = KW_MAX(e->o.retry_backoff_us, 1000);
        e->find_us = now_us + KW_MAX(base, KW_MIN(base << KW_MIN(e->finds, FIND_EXPONENT_MAX), e->o.fetch_timeout_us / 2));
        e->finds++;
        act->kind = KB_ELECT_FIND;
        act->to = id;
        return true;
    }
    e->find_us = KB_NEVER; /* the only voter is this node, which must not vote */
    return false;
}

bool kb_election_next(struct kb_election *e, struct kb_election_action *act, int64_t now_us) {
    if (!e->started) return false;
    if (next_view(e, act) || next_store(e, act)) return true;
    if (kb_elect_unsettled(e)) return false;
    struct kw_list *l = kw_list_shift(&e->held);
    if (l) {
        act->kind = KB_ELECT_REPLY;
        act->reply = KW_CONTAINER_OF(l, struct kb_election_reply, link);
        return true;
    }
    return next_send(e, act, now_us) || next_find(e, act, now_us);
}

int64_t kb_election_deadline(const struct kb_election *e) {
    if (!e->started) return KB_NEVER;
    int64_t at = e->role == KB_LEADER ? kb_elect_quorum_until(e) : e->timer_us;
    if (kb_elect_unsettled(e)) return at; /* what is due to leave waits for the store */
    for (size_t i = 0; i < e->o.voter_count; i++)
        if (e->peers[i].due && !e->peers[i].under_way) at = KW_MIN(at, e->peers[i].next_us);
    return finds(e) ? KW_MIN(at, e->find_us) : at;
}
