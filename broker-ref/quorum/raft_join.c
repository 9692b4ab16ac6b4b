/* raft_join.c - how a node becomes a member: which cluster it is of, and whether it may vote.
 *
 * A folder without meta.properties takes the cluster's id from any voter that knows it (DescribeCluster). When none does the cluster is new:
 * the voter of the lowest id makes one, once every other voter has said that it has none.
 *
 * A voter without quorum-state (an empty or foreign folder: a first start, or a disk that was wiped under its old id) may have voted, and
 * acknowledged, what it knows no more. It observes: it gives no vote, and what it fetches counts for nothing, until either
 *   - it has followed a leader up to what that one has committed, and all others have named their epochs, none above the leader's: so whatever it
 *     acknowledged before, this leader has, and it votes in later epochs only. All, as any one of them may be a candidate that has its vote and waits
 *     for more. With one voter wiped and another away nobody can know: the wiped one waits for it, or for the operator; or
 *   - every other voter has said, since this process started, that its log is empty too and that it knows no leader (a pre-vote granted
 *     against an empty log): so nothing was committed, and as its epoch it takes one above all theirs, in which it cannot have voted. So
 *     the first start of a cluster needs all voters, later ones a majority; or
 *   - the operator says so: controller.quorum.rejoin=true.
 *
 * Called by raft.c once the log is open, and by raft_fetch.c. specs.md 2.4; KIP-996.
 */
#include "raft_priv.h"

#include <stdio.h>

#define PROBE_US 10000 /* and less often the longer it waits: an eighth of that time, */
#define PROBE_MAX_US 1000000
#define SAY_US 30000000
#define SAY_FIRST_US 3000000

static void probe_done(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now);
static void next_phase(struct kb_raft *r, struct kb_now now);

static void probe(struct kb_raft_peer *p, struct kb_now now) {
    struct kb_raft *r = p->r;
    int64_t timeout = r->set.request_timeout_us;
    if (p->probed || kb_call_is_under_way(&p->probe)) return;
    p->probe.done = probe_done;
    p->probe.ctx = p;
    if (r->phase == KB_RAFT_NAMELESS) {
        struct kw_describe_cluster_request m;
        kw_msg_init(&kw_describe_cluster_request_desc, &m);
        m.endpoint_type = 2; /* controllers' */
        (void)!kb_raft_call(p, &p->probe, &kw_describe_cluster_request_desc, kw_describe_cluster_request_desc.max, &m, timeout, now);
        return;
    }
    struct kb_log_end end = kb_raft_log_end(r);
    struct kw_vote_request_partition_data part = {.replica_epoch = KW_MAX(r->epoch, r->join_epoch),
                                                  .replica_id = r->id,
                                                  .replica_directory_id = r->s->load.directory_id,
                                                  .last_offset_epoch = end.epoch,
                                                  .last_offset = end.offset,
                                                  .pre_vote = true};
    struct kw_vote_request_topic_data t = {.topic_name = kw_str_of(KB_METADATA_TOPIC), .partitions = {&part, 1}};
    struct kw_vote_request m = {.cluster_id = kw_str_of(r->s->load.cluster_id), .voter_id = p->id, .topics = {&t, 1}};
    (void)!kb_raft_call(p, &p->probe, &kw_vote_request_desc, kw_vote_request_desc.max, &m, timeout, now);
}

static bool asks(const struct kb_raft *r) {
    return r->phase == KB_RAFT_NAMELESS ? !r->naming : r->phase == KB_RAFT_FORGETFUL && !r->storing;
}

/* Only one that has nothing can be of those that start a cluster. */
static bool has_nothing(const struct kb_raft *r) {
    return r->leader < 0 && kb_raft_log_end(r).offset == 0;
}

static void take_name(struct kb_raft *r, struct kb_now now);
static void claim(struct kb_raft *r, struct kb_now now);

static void name_cluster(struct kb_raft *r, struct kb_now now) {
    memcpy(r->s->load.cluster_id, r->s->load.new_cluster_id, sizeof(r->s->load.cluster_id));
    kb_say(r->s->o.env->logger, KB_INFO, "a new cluster: its id is %s", r->s->load.cluster_id);
    take_name(r, now);
}

/* The only voter has nobody to ask: what it knows is all that there is. */
static void alone(struct kb_raft *r, struct kb_now now) {
    if (r->phase == KB_RAFT_NAMELESS)
        name_cluster(r, now);
    else
        claim(r, now);
}

/* Whom it waits for, after a while and then again now and then. */
static void say_waiting(struct kb_raft *r, int64_t now_us) {
    char text[KB_VOTERS_MAX * 300] = "";
    size_t at = 0;
    if (now_us < r->join_say_us || !asks(r)) return;
    r->join_say_us = now_us + SAY_US;
    for (size_t i = 0; i < r->peer_count && at < sizeof(text); i++) {
        const struct kb_raft_peer *p = &r->peers[i];
        if (p->probed || (r->phase == KB_RAFT_NAMELESS && p->answered) || (r->leader >= 0 && (p->answered || p->id == r->leader))) continue;
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d at %s:%u%s", at ? ", " : "", (int)p->id, p->host, (unsigned)p->port,
                               p->answered ? " (not empty)" : "");
    }
    if (!text[0]) return;
    const struct kb_logger *log = r->s->o.env->logger;
    if (r->phase == KB_RAFT_NAMELESS)
        kb_say(log, KB_WARN, "the cluster's id is not known here; waiting for voters: %s (for a cluster's first start all voters are needed)", text);
    else if (r->leader < 0)
        kb_say(log, KB_WARN,
               "this voter's folder is empty, so it gives no vote yet; waiting for a leader, or for voters: %s (for a cluster's first start all voters are "
               "needed; should one be lost for good: controller.quorum.rejoin=true)",
               text);
    else
        kb_say(log, KB_WARN,
               "this voter's folder was empty: it follows leader %d, and votes once every other voter has answered; waiting for voters: %s (start them; "
               "should one be lost for good: controller.quorum.rejoin=true here)",
               (int)r->leader, text);
}

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    struct kb_raft *r = ctx;
    struct kb_now now = kb_raft_now(r, now_us);
    (void)t;
    say_waiting(r, now_us);
    if (r->peer_count == 0 && r->voter && asks(r)) alone(r, now);
    for (size_t i = 0; i < r->peer_count && asks(r); i++) probe(&r->peers[i], now);
    if (r->phase == KB_RAFT_NAMELESS || r->phase == KB_RAFT_FORGETFUL) 
        kb_raft_arm(r, &r->join_timer, now_us + KW_MIN(KW_MAX((now_us - r->join_began_us) / 8, (int64_t)PROBE_US), (int64_t)PROBE_MAX_US));
}

static void begin_probes(struct kb_raft *r, struct kb_now now) {
    r->join_began_us = now.mono_us;
    r->join_say_us = now.mono_us + SAY_FIRST_US;
    for (size_t i = 0; i < r->peer_count; i++) {
        kb_call_cancel(&r->peers[i].probe);
        r->peers[i].probed = r->peers[i].answered = false;
    }
    kb_raft_arm(r, &r->join_timer, now.mono_us);
}

static bool all_probed(const struct kb_raft *r) {
    for (size_t i = 0; i < r->peer_count; i++)
        if (!r->peers[i].probed) return false;
    return true;
}

void kb_raft_leave_join(struct kb_raft *r) {
    for (size_t i = 0; i < r->peer_count; i++) kb_call_cancel(&r->peers[i].probe);
    kw_timers_cancel(r->s->o.env->timers, &r->join_timer);
}

/* ---- The cluster's id ---- */

static void named(struct kb_disk_req *q, struct kb_now now) {
    struct kb_raft *r = q->ctx;
    r->naming = false;
    if (q->err) {
        kb_store_fail(r->s, now, "%s cannot be written (%s)", r->properties_path, kb_os_text(q->os_errno));
        return;
    }
    if (!r->stopped) next_phase(r, now);
}

static void take_name(struct kb_raft *r, struct kb_now now) {
    kw_out_reset(&r->properties_bytes);
    if (kb_store_properties_write(&r->properties_bytes, r->id, r->s->load.cluster_id, r->s->load.directory_id)) {
        kb_store_fail(r->s, now, "%s: out of memory", r->properties_path);
        return;
    }
    r->naming = true;
    kb_store_write_file(r->s, &r->properties_file, r->properties_path, &r->properties_bytes, named, r);
}

static bool is_lowest(const struct kb_raft *r) {
    for (size_t i = 0; i < r->peer_count; i++)
        if (r->peers[i].id < r->id) return false;
    return r->voter;
}

static void hear_name(struct kb_raft_peer *p, struct kw_in *body, struct kb_now now) {
    struct kb_raft *r = p->r;
    struct kw_describe_cluster_response m;
    if (kb_raft_read(r, &kw_describe_cluster_response_desc, body, &m)) return;
    struct kw_str id = m.cluster_id;
    if (id.len > KB_CLUSTER_ID_MAX || (id.len > 0 && memchr(id.p, 0, (size_t)id.len)) || (id.len > 0 && memchr(id.p, '\n', (size_t)id.len))) return;
    if (id.len > 0) {
        memcpy(r->s->load.cluster_id, id.p, (size_t)id.len);
        r->s->load.cluster_id[id.len] = 0;
        take_name(r, now);
        return;
    }
    p->answered = true;
    p->probed = is_lowest(r); /* the others wait until someone knows */
    if (!is_lowest(r) || !all_probed(r)) return;
    name_cluster(r, now);
}

/* ---- May it vote ---- */

/* quorum-state is there: from now on this voter counts. */
static void member(struct kb_raft *r, struct kb_now now) {
    struct kb_election_view before = kb_election_view(&r->election);
    r->phase = KB_RAFT_MEMBER;
    r->s->load.has_vote = true;
    kb_raft_leave_join(r);
    kb_raft_start_election(r, &r->s->load.vote, false, now);
    /* What was heard while that was being stored stays known: a vote in an epoch below could contradict what was acknowledged since. */
    kb_election_heard(&r->election, before.leader_id < 0 ? r->id : before.leader_id, before.leader_id, before.epoch, now.mono_us);
    kb_raft_drain(r, now);
}

static void begin_new(struct kb_raft *r, struct kb_now now) {
    r->s->load.vote = (struct kb_election_state){.epoch = KW_MAX(r->epoch, r->join_epoch) + 1, .leader_id = -1, .voted_id = -1};
    kb_raft_store_state(r, &r->s->load.vote, member, now);
}

/* The only voter leads from its start on, in an epoch of its own, which is stored first. */
static void claim(struct kb_raft *r, struct kb_now now) {
    struct kb_election_options o = {.id = r->id, .directory = r->s->load.directory_id};
    if (kb_election_claim(&o, &r->s->load.vote, KW_MAX(r->epoch, kb_raft_log_end(r).epoch)))
        kb_store_fail(r->s, now, "%s: no epoch is left after %d", r->state_path, (int)r->s->load.vote.epoch);
    else
        kb_raft_store_state(r, &r->s->load.vote, member, now);
}

void kb_raft_joined(struct kb_raft *r, struct kb_now now) {
    size_t answered = 0;
    if (r->phase != KB_RAFT_FORGETFUL || r->storing || r->join_epoch > r->epoch || r->follow.leader < 0) return;
    if (r->follow.heard_hw < 0 || r->s->log->synced < r->follow.heard_hw) return;
    for (size_t i = 0; i < r->peer_count; i++) answered += r->peers[i].answered || r->peers[i].id == r->leader;
    /* All of them: any one may stand by a vote that this voter gave in the life that it forgot. */
    if (answered < r->peer_count) return;
    kb_say(r->s->o.env->logger, KB_INFO, "voter %d has caught up with leader %d at offset %lld: it votes from now on", (int)r->id, (int)r->leader,
           (long long)r->hw);
    /* It knows the leader of this epoch, so it gives no vote away in it. */
    r->s->load.vote = (struct kb_election_state){.epoch = r->epoch, .leader_id = r->leader, .voted_id = -1};
    kb_raft_store_state(r, &r->s->load.vote, member, now);
}

static void hear_epoch(struct kb_raft_peer *p, struct kw_in *body, struct kb_now now) {
    struct kb_raft *r = p->r;
    struct kb_election_reply reply;
    if (kb_raft_read_answer(r, KB_VOTE, body, &reply)) return;
    if (reply.top_error == KE_INCONSISTENT_CLUSTER_ID) kb_raft_refused(r, p->id, now);
    if (reply.top_error || reply.epoch < 0 || reply.epoch >= KB_EPOCH_MAX) return;
    p->refused = false;
    if (kb_raft_doubts(r, p, reply.error, reply.leader_id, reply.epoch, now)) return;
    p->answered = true;
    r->join_epoch = KW_MAX(r->join_epoch, reply.epoch);
    p->probed = reply.granted && !reply.error && has_nothing(r);
    kb_election_heard(&r->election, p->id, reply.leader_id, reply.epoch, now.mono_us);
    kb_raft_drain(r, now);
    if (!asks(r)) return;
    if (has_nothing(r) && all_probed(r))
        begin_new(r, now);
    else
        kb_raft_joined(r, now);
}

static void probe_done(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now) {
    struct kb_raft_peer *p = c->ctx;
    (void)blk;
    if (err || !asks(p->r)) return; /* the timer asks again */
    if (p->r->phase == KB_RAFT_NAMELESS)
        hear_name(p, body, now);
    else
        hear_epoch(p, body, now);
}

/* ---- Phases ---- */

static void next_phase(struct kb_raft *r, struct kb_now now) {
    struct kb_store_load *l = &r->s->load;
    if (!l->cluster_id[0]) {
        r->phase = KB_RAFT_NAMELESS;
        begin_probes(r, now);
        return;
    }
    if (r->voter && r->peer_count == 0) {
        r->phase = KB_RAFT_FORGETFUL; /* until the epoch is stored */
        begin_probes(r, now);
    } else if (r->voter && !l->has_vote && !kb_config_bool(r->s->o.config, "controller.quorum.rejoin")) {
        r->phase = KB_RAFT_FORGETFUL;
        kb_say(r->s->o.env->logger, KB_INFO,
               "voter %d has no quorum-state in %s: it gives no vote until it has caught up with a leader, or all other voters have none either",
               (int)r->id, l->meta_dir);
        begin_probes(r, now);
    } else {
        r->phase = KB_RAFT_MEMBER;
        kb_raft_leave_join(r);
    }
    kb_raft_start_election(r, &l->vote, !r->voter || r->phase == KB_RAFT_FORGETFUL, now);
    kb_raft_drain(r, now);
}

void kb_raft_join_init(struct kb_raft *r) {
    kw_timer_init(&r->join_timer, fire, r);
}

void kb_raft_join(struct kb_raft *r, struct kb_now now) {
    next_phase(r, now);
}
