/* election.c - the election's roles and what moves between them: start, time, the peers' answers, what fetches told. Contract, callers and
 * KIPs: election.h.
 *
 *   unattached, voted --timeout--> prospective --majority--> candidate --majority--> leader --no quorum, stop--> resigned
 *   prospective --refused, leader known--> follower --fetch timeout, leader gone or resigned--> prospective
 *   any --higher epoch--> unattached;  any but the leader --told of the epoch's leader--> follower
 *
 * A quorum of one never leaves `leader` but by a stop. An observer knows unattached and follower alone.
 */
#include "election_priv.h"

#include "wire/kerror.h"

#define BACKOFF_MIN_US 2000 /* whatever is configured: two refused candidates must not spin */
#define BACKOFF_EXPONENT_MAX 10

const char *kb_election_role_text(enum kb_election_role role) {
    static const char *const text[] = {"unattached", "voted", "prospective", "candidate", "leader", "follower", "resigned"};
    return text[role];
}

struct kb_election_peer *kb_elect_peer(struct kb_election *e, int32_t id) {
    for (size_t i = 0; i < e->o.voter_count; i++)
        if (e->peers[i].id == id) return &e->peers[i];
    return NULL;
}

bool kb_election_is_voter(const struct kb_election *e, int32_t id) {
    for (size_t i = 0; i < e->o.voter_count; i++)
        if (e->peers[i].id == id) return true;
    return false;
}

bool kb_elect_unsettled(const struct kb_election *e) {
    return e->state.epoch != e->stored.epoch || e->state.voted_id != e->stored.voted_id ||
           !kw_uuid_eq(e->state.voted_directory, e->stored.voted_directory);
}

bool kb_elect_votes(const struct kb_election *e) {
    return !e->o.observes && kb_election_is_voter(e, e->o.id);
}

bool kb_elect_live(const struct kb_election *e, int64_t now_us) {
    if (e->role == KB_LEADER) return true;
    return e->role == KB_FOLLOWER && !e->leader_dead && e->heard && now_us - e->heard_us < e->o.fetch_timeout_us;
}

enum kb_election_role kb_election_role(const struct kb_election *e) {
    return e->role;
}

struct kb_election_view kb_election_view(const struct kb_election *e) {
    struct kb_election_view v = {.epoch = e->stored.epoch, .leader_id = -1};
    if (kb_elect_unsettled(e)) return v; /* outwardly still in the epoch that is stored, and without a leader */
    v.leads = e->role == KB_LEADER;
    /* While it asks whether another could lead, the leader that it had may still be there: it goes on fetching. */
    bool believes = e->role == KB_FOLLOWER || (e->role == KB_PROSPECTIVE && !e->leader_dead && e->state.leader_id != e->o.id);
    if (v.leads || believes) v.leader_id = e->state.leader_id;
    return v;
}

int16_t kb_election_check(const struct kb_election *e, int32_t epoch) {
    struct kb_election_view v = kb_election_view(e);
    if (epoch >= 0 && epoch < v.epoch) return KE_FENCED_LEADER_EPOCH;
    if (epoch > v.epoch) return KE_UNKNOWN_LEADER_EPOCH;
    return v.leads ? KE_NONE : KE_NOT_LEADER_OR_FOLLOWER;
}

/* ---- Time ---- */

/* One to two election timeouts: voters that lost their leader together do not ask together. */
static int64_t election_wait(struct kb_election *e) {
    return e->o.election_timeout_us + (int64_t)kw_rng_below(e->o.rng, (uint64_t)e->o.election_timeout_us);
}

/* After a lost attempt: a random wait out of a range that doubles with each, so that equals part ways within a few. */
static int64_t backoff(struct kb_election *e) {
    int64_t base = KW_MAX(e->o.retry_backoff_us, BACKOFF_MIN_US);
    uint32_t exponent = KW_MIN(e->failures, BACKOFF_EXPONENT_MAX);
    int64_t range = KW_MAX(KW_MIN(base << exponent, e->o.backoff_max_us), base);
    return base / 2 + (int64_t)kw_rng_below(e->o.rng, (uint64_t)range);
}

/* ---- Transitions ---- */

/* What is under way or was asked for before now no longer counts. */
static void drop_attempt(struct kb_election *e) {
    e->attempt++;
    e->backing_off = false;
    for (size_t i = 0; i < e->o.voter_count; i++) {
        struct kb_election_peer *p = &e->peers[i];
        p->due = p->granted = p->refused = p->acknowledged = false;
    }
}

static void ask_all(struct kb_election *e, int64_t now_us) {
    drop_attempt(e);
    for (size_t i = 0; i < e->o.voter_count; i++) {
        struct kb_election_peer *p = &e->peers[i];
        p->granted = p->acknowledged = p->id == e->o.id;
        p->due = p->id != e->o.id;
        p->next_us = now_us;
        p->failures = 0;
    }
}

static bool seeks(const struct kb_election *e) {
    return e->role == KB_PROSPECTIVE || e->role == KB_CANDIDATE;
}

void kb_elect_new_epoch(struct kb_election *e, int32_t epoch, int64_t now_us) {
    KW_ASSERT(epoch > e->state.epoch && epoch <= KB_EPOCH_MAX);
    /* One that was about to be elected, or led until now, goes on soon: its log may be the only one that can win. */
    bool soon = seeks(e) || e->role == KB_LEADER;
    kb_election_none(&e->state);
    e->state.epoch = epoch;
    e->role = KB_UNATTACHED;
    e->leader_dead = e->heard = false;
    drop_attempt(e);
    if (!kb_elect_votes(e)) {
        e->timer_us = KB_NEVER;
        e->find_us = now_us;
        return;
    }
    if (soon) e->failures++;
    e->timer_us = now_us + (soon ? backoff(e) : election_wait(e));
}

static void follow(struct kb_election *e, int32_t leader_id, int64_t now_us) {
    if (e->state.leader_id != leader_id) e->heard = false;
    e->state.leader_id = leader_id;
    e->role = KB_FOLLOWER;
    e->leader_dead = false;
    drop_attempt(e);
    e->timer_us = now_us + e->o.fetch_timeout_us;
}

static void hear_leader(struct kb_election *e, int64_t now_us) {
    e->heard = true;
    e->heard_us = now_us;
    e->failures = e->finds = 0;
    e->timer_us = now_us + e->o.fetch_timeout_us;
}

void kb_elect_learn(struct kb_election *e, int32_t leader_id, int32_t epoch, bool direct, int64_t now_us) {
    if (epoch > KB_EPOCH_MAX || epoch < e->state.epoch) return;
    if (epoch > e->state.epoch) kb_elect_new_epoch(e, epoch, now_us);
    if (leader_id < 0 || leader_id == e->o.id || !kb_election_is_voter(e, leader_id)) return;
    if (e->state.leader_id >= 0 && e->state.leader_id != leader_id)
        return; /* no epoch has two: someone is wrong, and not for us to say who */
    if (e->role == KB_LEADER || e->role == KB_RESIGNED) return;
    /* That the leader is gone we saw ourselves: only its own word counts against it. */
    if (e->role != KB_FOLLOWER && (direct || e->state.leader_id < 0 || !e->leader_dead)) follow(e, leader_id, now_us);
    if (direct && e->role == KB_FOLLOWER) hear_leader(e, now_us);
}

void kb_elect_vote_for(struct kb_election *e, int32_t id, struct kw_uuid directory, int64_t now_us) {
    e->state.voted_id = id;
    e->state.voted_directory = directory;
    e->role = KB_VOTED;
    drop_attempt(e);
    e->timer_us = now_us + election_wait(e);
}

static void lead(struct kb_election *e, int64_t now_us) {
    KW_ASSERT(!kb_elect_unsettled(e) && e->state.voted_id == e->o.id);
    e->state.leader_id = e->o.id;
    e->role = KB_LEADER;
    e->failures = 0;
    e->timer_us = KB_NEVER;
    ask_all(e, now_us);
    for (size_t i = 0; i < e->o.voter_count; i++) {
        e->peers[i].fetched_us = now_us;
        e->peers[i].end_offset = -1;
    }
}

static void stand(struct kb_election *e, int64_t now_us) {
    kb_election_none(&e->state);
    e->state.epoch = e->stored.epoch + 1;
    e->state.voted_id = e->o.id;
    e->state.voted_directory = e->o.directory;
    e->role = KB_CANDIDATE;
    e->leader_dead = e->heard = false;
    ask_all(e, now_us);
    e->timer_us = now_us + election_wait(e);
}

/* A vote given to oneself counts once it is stored. */
static void count_votes(struct kb_election *e, int64_t now_us);

static void seek(struct kb_election *e, int64_t now_us) {
    if (!kb_elect_votes(e) || e->stopping || e->state.epoch >= KB_EPOCH_MAX) { /* never stands */
        if (e->role != KB_RESIGNED) e->role = KB_UNATTACHED;
        drop_attempt(e);
        e->timer_us = KB_NEVER;
        e->find_us = KW_MAX(e->find_us, now_us);
        return;
    }
    e->role = KB_PROSPECTIVE;
    ask_all(e, now_us);
    e->timer_us = now_us + election_wait(e);
    count_votes(e, now_us);
}

static void back_off(struct kb_election *e, int64_t delay_us, int64_t now_us) {
    e->role = KB_PROSPECTIVE;
    drop_attempt(e);
    e->backing_off = true;
    e->timer_us = now_us + delay_us;
}

static void lose(struct kb_election *e, int64_t now_us) {
    /* The others refuse since they hear of the leader, most likely: so try it again. */
    if (e->role == KB_PROSPECTIVE && e->state.leader_id >= 0 && e->state.leader_id != e->o.id && !e->leader_dead) {
        follow(e, e->state.leader_id, now_us);
        return;
    }
    back_off(e, backoff(e), now_us);
    e->failures++;
}

static void count_votes(struct kb_election *e, int64_t now_us) {
    size_t granted = 0, refused = 0, away = 0;
    if (!seeks(e) || e->backing_off || kb_elect_unsettled(e)) return;
    for (size_t i = 0; i < e->o.voter_count; i++) {
        granted += e->peers[i].granted;
        refused += e->peers[i].refused;
        away += !e->peers[i].granted && !e->peers[i].refused && e->peers[i].failures > 0;
    }
    /* Those that are there have all answered, and not all for it: that may soon be otherwise, the rest coming back may take long. */
    bool heard_all = refused > 0 && granted + refused + away == e->o.voter_count;
    if (granted >= kb_elect_majority(e)) {
        if (e->role == KB_CANDIDATE)
            lead(e, now_us);
        else
            stand(e, now_us);
    } else if (heard_all || refused > e->o.voter_count - kb_elect_majority(e)) {
        lose(e, now_us);
    }
}

void kb_elect_leader_ended(struct kb_election *e, int64_t delay_us, int64_t now_us) {
    e->leader_dead = kb_elect_votes(e); /* an observer believes what it is told next */
    if (delay_us == 0 || !kb_elect_votes(e) || e->stopping)
        seek(e, now_us);
    else
        back_off(e, delay_us, now_us);
}

/* Two that lost their leader in the same moment would both win the pre-vote and split the votes. The one that ranks lower lets the other
 * go first: once, as that one may be able to ask and unable to hear. */
void kb_elect_yield(struct kb_election *e, int64_t now_us) {
    if (e->role != KB_PROSPECTIVE || e->backing_off || e->failures > 0) return;
    e->failures++;
    back_off(e, backoff(e), now_us);
}

static void resign(struct kb_election *e, int64_t now_us) {
    e->role = KB_RESIGNED;
    ask_all(e, now_us);
    e->timer_us = now_us + election_wait(e);
}

/* ---- Start ---- */

void kb_election_none(struct kb_election_state *state) {
    *state = (struct kb_election_state){.leader_id = -1, .voted_id = -1};
}

kw_err kb_election_claim(const struct kb_election_options *o, struct kb_election_state *state, int32_t known) {
    int32_t last = KW_MAX(state->epoch, known);
    if (last >= KB_EPOCH_MAX) return KW_ELIMIT;
    *state = (struct kb_election_state){.epoch = last + 1, .leader_id = o->id, .voted_id = o->id, .voted_directory = o->directory};
    return KW_OK;
}

void kb_election_init(struct kb_election *e, const struct kb_election_options *o) {
    KW_ASSERT(o->voter_count > 0 && o->voter_count <= KB_VOTERS_MAX && o->id >= 0);
    KW_ASSERT(o->fetch_timeout_us > 0 && o->election_timeout_us > 0 && o->retry_backoff_us >= 0 && o->backoff_max_us >= 0);
    *e = (struct kb_election){.o = *o, .role = KB_UNATTACHED, .timer_us = KB_NEVER, .told_leader = -1};
    kb_election_none(&e->state);
    e->stored = e->state;
    kw_list_init(&e->held);
    for (size_t i = 0; i < o->voter_count; i++) e->peers[i] = (struct kb_election_peer){.id = o->voters[i], .end_offset = -1};
}

kw_err kb_election_start(struct kb_election *e, const struct kb_election_state *stored, int64_t now_us) {
    if (stored->epoch < 0 || stored->epoch > KB_EPOCH_MAX || stored->leader_id < -1 || stored->voted_id < -1) return KW_EINVAL;
    int32_t known = e->o.log_end(e->o.ctx).epoch;
    if (known > KB_EPOCH_MAX) return KW_EINVAL;
    e->started = true;
    e->state = e->stored = *stored;
    e->told_epoch = stored->epoch;
    if (kb_elect_votes(e) && e->o.voter_count == 1) {
        KW_ASSERT(stored->leader_id == e->o.id && stored->voted_id == e->o.id && stored->epoch > known);
        lead(e, now_us);
        return KW_OK;
    }
    if (known > stored->epoch) kb_elect_new_epoch(e, known, now_us);
    if (!kb_elect_votes(e)) {
        e->role = KB_UNATTACHED;
        e->find_us = now_us;
        e->find_at = (size_t)kw_rng_below(e->o.rng, e->o.voter_count);
        return KW_OK;
    }
    e->role = e->state.voted_id >= 0 ? KB_VOTED : KB_UNATTACHED;
    /* Asking does no harm, and is how a leader is found: so soon, but in turn, that a cluster that starts whole agrees at once. */
    int64_t step = KW_MAX(e->o.retry_backoff_us / 2, BACKOFF_MIN_US);
    e->timer_us = now_us + (int64_t)kw_rng_below(e->o.rng, (uint64_t)step);
    for (size_t i = 0; i < e->o.voter_count && e->o.voters[i] != e->o.id; i++) e->timer_us += step;
    return KW_OK;
}

/* ---- Events ---- */

int64_t kb_elect_quorum_until(const struct kb_election *e) {
    int64_t at[KB_VOTERS_MAX];
    size_t n = 0, need = kb_elect_majority(e) - 1; /* of the others */
    if (need == 0) return KB_NEVER;
    for (size_t i = 0; i < e->o.voter_count; i++) {
        if (e->peers[i].id == e->o.id) continue;
        size_t k = n++;
        for (; k > 0 && at[k - 1] < e->peers[i].fetched_us; k--) at[k] = at[k - 1];
        at[k] = e->peers[i].fetched_us;
    }
    return at[need - 1] + e->o.fetch_timeout_us + e->o.fetch_timeout_us / 2;
}

void kb_election_tick(struct kb_election *e, int64_t now_us) {
    if (!e->started) return;
    if (e->role == KB_LEADER) {
        if (now_us >= kb_elect_quorum_until(e)) resign(e, now_us);
        return;
    }
    if (now_us < e->timer_us) return;
    switch (e->role) {
    case KB_CANDIDATE:
        lose(e, now_us);
        break;
    case KB_PROSPECTIVE:
        if (!e->backing_off) e->failures++;
        seek(e, now_us);
        break;
    default:
        seek(e, now_us);
        break;
    }
}

void kb_election_stored(struct kb_election *e, int64_t now_us) {
    KW_ASSERT(e->store_under_way);
    e->store_under_way = false;
    e->stored = e->storing;
    count_votes(e, now_us);
}

/* The next try at a peer that could not be asked: soon while there is no leader, seldom to remind one that is away. */
static void ask_later(struct kb_election *e, struct kb_election_peer *p, int64_t now_us) {
    int64_t base = KW_MAX(e->o.retry_backoff_us, BACKOFF_MIN_US);
    int64_t most = e->role == KB_LEADER ? e->o.fetch_timeout_us / 2 : base * 4;
    p->due = true;
    p->next_us = now_us + KW_MAX(base, KW_MIN(base << KW_MIN(p->failures, BACKOFF_EXPONENT_MAX), most));
    p->failures++;
}

/* The peer that this was sent to, when it is the request under way that it has. */
static struct kb_election_peer *sent_to(struct kb_election *e, const struct kb_election_send *sent) {
    struct kb_election_peer *p = kb_elect_peer(e, sent->to);
    KW_ASSERT(p && p->under_way);
    p->under_way = false;
    return p;
}

void kb_election_answered(struct kb_election *e, const struct kb_election_send *sent, const struct kb_election_reply *answer,
                          int64_t now_us) {
    struct kb_election_peer *p = sent_to(e, sent);
    if (answer->top_error == KE_NONE) kb_elect_learn(e, answer->leader_id, answer->epoch, answer->leader_id == sent->to, now_us);
    if (p->attempt != e->attempt) return;
    bool good = answer->top_error == KE_NONE && answer->error == KE_NONE && answer->epoch == e->state.epoch;
    if (sent->request.kind != KB_VOTE) {
        p->acknowledged = p->acknowledged || good;
        if (!p->acknowledged) ask_later(e, p, now_us);
        return;
    }
    p->granted = good && answer->granted;
    p->refused = !p->granted;
    count_votes(e, now_us);
}

void kb_election_unanswered(struct kb_election *e, const struct kb_election_send *sent, int64_t now_us) {
    struct kb_election_peer *p = sent_to(e, sent);
    if (p->attempt != e->attempt || p->acknowledged) return;
    ask_later(e, p, now_us);
    count_votes(e, now_us);
}

void kb_election_leader_answered(struct kb_election *e, int32_t leader_id, int32_t epoch, int64_t now_us) {
    if (e->started) kb_elect_learn(e, leader_id, epoch, true, now_us);
}

void kb_election_heard(struct kb_election *e, int32_t from, int32_t leader_id, int32_t epoch, int64_t now_us) {
    if (!e->started) return;
    bool its_end = leader_id < 0 && epoch == e->state.epoch && from == e->state.leader_id && !e->leader_dead &&
                   (e->role == KB_FOLLOWER || e->role == KB_PROSPECTIVE);
    if (its_end)
        kb_elect_leader_ended(e, kb_elect_votes(e) ? backoff(e) : 0, now_us);
    else
        kb_elect_learn(e, leader_id, epoch, leader_id == from, now_us);
}

void kb_election_fetched(struct kb_election *e, int32_t id, int64_t end_offset, int64_t now_us) {
    struct kb_election_peer *p = kb_elect_peer(e, id);
    if (!p || e->role != KB_LEADER || id == e->o.id) return;
    p->fetched_us = now_us;
    if (end_offset >= 0) p->end_offset = end_offset;
    p->acknowledged = true;
    p->due = false;
}

void kb_election_peer_dead(struct kb_election *e, int32_t id, int64_t now_us) {
    if (!e->started || id != e->state.leader_id || e->leader_dead) return;
    if (e->role != KB_FOLLOWER && e->role != KB_PROSPECTIVE) return;
    kb_elect_leader_ended(e, 0, now_us);
}

void kb_election_resign(struct kb_election *e, int64_t now_us) {
    if (e->stopping) return;
    e->stopping = true;
    if (e->role == KB_LEADER && e->o.voter_count > 1) {
        resign(e, now_us);
        e->timer_us = now_us + e->o.election_timeout_us;
    } else if (e->role == KB_LEADER) {
        e->role = KB_RESIGNED;
        drop_attempt(e);
    } else if (seeks(e) || e->role == KB_RESIGNED) {
        seek(e, now_us);
    }
}

/* Two failed tries are enough of one that may be gone: its successor's election does not need it. */
bool kb_election_resigned(const struct kb_election *e) {
    if (!e->stopping) return false;
    if (e->role != KB_RESIGNED || e->timer_us == KB_NEVER) return true;
    for (size_t i = 0; i < e->o.voter_count; i++)
        if (!e->peers[i].acknowledged && e->peers[i].failures < 2) return false;
    return true;
}
