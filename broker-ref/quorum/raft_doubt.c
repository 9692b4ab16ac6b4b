/* raft_doubt.c - what cannot be in a quorum that was set up as one: nodes with another list of voters, two processes that are one voter. Nobody is
 * believed then, and each says what it sees, with what to do.
 *
 * Called by raft.c, raft_join.c (answers of voters), raft_lead.c (fetches) and raft_applied (the leader's list, which each LeaderChange record has).
 * KIP-595, KIP-853 (directory ids).
 */
#include "raft_priv.h"

#include <stdio.h>

#define SAY_US 30000000
#define SELF_US 3000000

/* "0,1,2" */
static const char *text_of(char text[KB_VOTERS_MAX * 12], const int32_t *ids, size_t count) {
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < count; i++) at += (size_t)snprintf(text + at, KB_VOTERS_MAX * 12 - at, i ? ",%d" : "%d", (int)ids[i]);
    return text;
}

static bool may_say(struct kb_raft *r, struct kb_now now) {
    if (now.mono_us < r->doubt_say_us) return false;
    r->doubt_say_us = now.mono_us + SAY_US;
    return true;
}

/* ---- Other lists ---- */

/* A voter names a leader that is none of the voters here. */
static void stranger(struct kb_raft *r, const struct kb_raft_peer *p, int32_t leader, struct kb_now now) {
    char text[KB_VOTERS_MAX * 12];
    if (leader < 0 || kb_election_is_voter(&r->election, leader) || !may_say(r, now)) return;
    kb_say(r->s->o.env->logger, KB_ERROR,
           "voter %d at %s:%u says that node %d leads the metadata quorum, which controller.quorum.voters does not name here (%s): this node waits; "
           "name the same voters on all nodes",
           (int)p->id, p->host, (unsigned)p->port, (int)leader, text_of(text, r->voters, r->voter_count));
}

/* A voter says that this one is none. */
static void unknown_here(struct kb_raft *r, const struct kb_raft_peer *p, struct kb_now now) {
    char text[KB_VOTERS_MAX * 12];
    if (!may_say(r, now)) return;
    kb_say(r->s->o.env->logger, KB_ERROR,
           "voter %d at %s:%u does not count node %d among the voters, or not itself: its controller.quorum.voters is another one than here (%s); name "
           "the same voters on all nodes",
           (int)p->id, p->host, (unsigned)p->port, (int)r->id, text_of(text, r->voters, r->voter_count));
}

/* Others hear from a leader of this node's id, and it is not this process. One that was just killed is forgotten within the fetch timeout. */
static void self(struct kb_raft *r, const struct kb_raft_peer *p, int32_t leader, int32_t epoch, struct kb_now now) {
    bool it_is = leader == r->id && !r->leading && r->phase == KB_RAFT_FORGETFUL;
    if (!it_is) {
        r->self_since_us = 0;
        return;
    }
    if (r->self_since_us == 0) r->self_since_us = now.mono_us;
    if (now.mono_us - r->self_since_us < KW_MAX((int64_t)SELF_US, 3 * r->set.fetch_timeout_us)) return;
    kb_store_fail(r->s, now,
                  "another process is voter %d of this quorum: voter %d at %s:%u hears from it as the leader of epoch %d; stop that one, or give this "
                  "node a node.id of its own",
                  (int)r->id, (int)p->id, p->host, (unsigned)p->port, (int)epoch);
}

bool kb_raft_doubts(struct kb_raft *r, const struct kb_raft_peer *p, int16_t error, int32_t leader, int32_t epoch, struct kb_now now) {
    if (error == KE_INCONSISTENT_VOTER_SET) {
        unknown_here(r, p, now);
        return true;
    }
    stranger(r, p, leader, now);
    self(r, p, leader, epoch, now);
    return r->s->state == KB_STORE_FAILED;
}

static bool same(const struct kb_raft *r, const struct kb_led_by *l) {
    size_t known = 0;
    for (size_t i = 0; i < r->voter_count; i++)
        for (size_t k = 0; k < KW_MIN(l->count, (size_t)KB_VOTERS_MAX); k++) known += r->voters[i] == l->voters[k];
    return known == r->voter_count && l->count == r->voter_count;
}

void kb_raft_compare_voters(struct kb_raft *r, struct kb_now now) {
    const struct kb_led_by *l = &r->s->replay.led_by;
    char mine[KB_VOTERS_MAX * 12], its[KB_VOTERS_MAX * 12];
    if (l->count == 0 || l->epoch != r->epoch || l->epoch == r->compared_epoch) return;
    r->compared_epoch = l->epoch;
    if (same(r, l)) return;
    text_of(mine, r->voters, r->voter_count);
    text_of(its, l->voters, KW_MIN(l->count, (size_t)KB_VOTERS_MAX));
    if (r->voter)
        kb_store_fail(r->s, now,
                      "controller.quorum.voters names %s here, and %s where node %d is configured, which leads epoch %d: a quorum whose voters disagree "
                      "could have two leaders; name the same voters on all nodes",
                      mine, its, (int)r->leader, (int)l->epoch);
    else
        kb_say(r->s->o.env->logger, KB_ERROR,
               "controller.quorum.voters names %s here, and %s where node %d is configured, which leads epoch %d: name the same voters on all nodes",
               mine, its, (int)r->leader, (int)l->epoch);
}

/* ---- Two processes ---- */

/* Votes are asked of one of them, so neither's acknowledgements count while both fetch: each has a folder of its own. */
bool kb_raft_contested(struct kb_raft *r, struct kb_raft_replica *o, struct kw_uuid directory, struct kb_now now) {
    int64_t timeout = r->set.fetch_timeout_us;
    bool both = o->fetched_us >= 0 && now.mono_us - o->fetched_us < timeout && !kw_uuid_is_zero(o->directory) && !kw_uuid_eq(o->directory, directory);
    if (both) o->contested_until_us = now.mono_us + timeout;
    o->directory = directory;
    if (now.mono_us >= o->contested_until_us) return false;
    o->fetched_us = now.mono_us;
    o->end = -1;
    if (may_say(r, now))
        kb_say(r->s->o.env->logger, KB_ERROR,
               "two data folders fetch metadata as voter %d: what it acknowledges does not count; stop one of these processes, or give it a node.id of its "
               "own",
               (int)o->id);
    return true;
}
