/* election.h - who leads the metadata quorum: KRaft's leader election as a pure state machine over static voters. KIP-595 (votes, epochs,
 * begin and end of an epoch, check-quorum), KIP-996 (pre-vote), KIP-853 (directory ids of voters).
 *
 * No I/O, no allocation, no clock, no random source but the one handed in. Used by quorum/raft (messages, the metadata log) and the store
 * (quorum-state). The pattern: one event in (a call with the time), then what follows from it out:
 *
 *     kb_election_ask(e, &request, &reply, now_us);
 *     while (kb_election_next(e, &act, now_us)) switch (act.kind) ...
 *
 * drained after every call that takes now_us. What comes out is worked out from the state at that moment, not queued: a request that has
 * lost its sense before it could leave never leaves. Answers and requests are held back until the epoch and vote that they rest on are
 * stored (kb_election_stored); memory is ahead of the disk only inside this machine. */
#ifndef KB_ELECTION_H
#define KB_ELECTION_H

#include "base/base.h"
#include "base/rng.h"
#include "config.h"

#define KB_EPOCH_MAX (INT32_MAX - 1) /* no epoch comes behind it; a greater one on the wire is refused */

/* quorum-state. Nobody: -1 (and a zero directory id). */
struct kb_election_state {
    int32_t epoch, leader_id, voted_id;
    struct kw_uuid voted_directory;
};

struct kb_log_end { /* of the metadata log: what comes next goes to `offset`; epoch of the last batch (or snapshot), 0: none */
    int32_t epoch;
    int64_t offset;
};

enum kb_election_role {
    KB_UNATTACHED,  /* knows an epoch, no leader */
    KB_VOTED,       /* the same, and this epoch's vote is given away */
    KB_PROSPECTIVE, /* asks whether it would be elected (pre-vote): raises no epoch, stores nothing */
    KB_CANDIDATE,
    KB_LEADER,
    KB_FOLLOWER,
    KB_RESIGNED /* led this epoch, does no more, and tells the others */
};
const char *
kb_election_role_text(enum kb_election_role role); /* as Kafka's metric current-state names them; "observer" is not among them */

struct kb_election_options {
    int32_t id;
    struct kw_uuid directory;
    const char *cluster_id; /* kept by the caller */
    int32_t voters[KB_VOTERS_MAX];
    size_t voter_count;
    bool observes; /* no voter, or one that must not vote (an empty folder under a voter's id): never grants, never stands */
    int64_t fetch_timeout_us, election_timeout_us, backoff_max_us, request_timeout_us, retry_backoff_us;
    struct kw_rng *rng;                      /* not drawn from by a quorum of one */
    struct kb_log_end (*log_end)(void *ctx); /* what has been appended, synced or not; called from within events */
    void *ctx;
};

/* A Vote, BeginQuorumEpoch or EndQuorumEpoch request, incoming or (as an action's) outgoing. */
enum kb_election_kind { KB_VOTE, KB_BEGIN_EPOCH, KB_END_EPOCH };
struct kb_election_request {
    enum kb_election_kind kind;
    struct kw_str cluster_id;          /* null: not told */
    int32_t voter_id;                  /* whom it is for; -1: not told */
    struct kw_uuid voter_directory;    /* zero: not told, as it always is in ours, who know voters by their ids */
    int32_t epoch;                     /* VOTE: the one to be elected for; with pre_vote the candidate's present one */
    int32_t from;                      /* candidate or leader */
    struct kw_uuid from_directory;     /* VOTE */
    bool pre_vote;                     /* VOTE */
    struct kb_log_end log_end;         /* VOTE */
    int32_t successors[KB_VOTERS_MAX]; /* END_EPOCH: best first. The ids of preferred_candidates, else preferred_successors */
    size_t successor_count;            /* the caller cuts a longer list */
};

/* The answer. As memory it is the asker's (inside its kb_request): linked in here until it comes out of kb_election_next as KB_ELECT_REPLY,
 * or kb_election_forget. */
struct kb_election_reply {
    struct kw_list link; /* the machine's */
    int16_t top_error;   /* INCONSISTENT_CLUSTER_ID, INVALID_REQUEST: the answer names no topic then */
    int16_t error;       /* of the partition: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, INCONSISTENT_VOTER_SET, INVALID_VOTER_KEY, ... */
    int32_t leader_id, epoch;
    bool granted; /* VOTE */
};

/* ---- What comes out ---- */
enum kb_election_act {
    KB_ELECT_STORE, /* write `state` (atomic, synced), then kb_election_stored. One at a time; the next comes after that. While the epoch or
                       the vote is not stored nothing below leaves; a leader's id alone holds nothing up. A failed write is the end of the
                       node: call nothing more */
    KB_ELECT_VIEW,  /* the leader or the epoch is another than last told: kb_election_view. Leadership that ended is told at once, even
                       before the new epoch is stored; a new one after that */
    KB_ELECT_REPLY, /* `reply` may leave */
    KB_ELECT_SEND,  /* send `send.request` to voter `to`, with send.timeout_us; then exactly one of kb_election_answered and
                       kb_election_unanswered, in a later turn. At most one is under way to a peer */
    KB_ELECT_FIND,  /* an observer without a leader: ask `to`, a voter, with a Fetch, and tell by kb_election_heard what it said */
};
struct kb_election_send {
    struct kb_election_request request;
    int32_t to;
    int64_t timeout_us;
};
struct kb_election_action {
    enum kb_election_act kind;
    struct kb_election_state state;
    struct kb_election_reply *reply;
    int32_t to;
    struct kb_election_send send;
};

struct kb_election_peer { /* a voter, this node among them */
    int32_t id;
    bool under_way;                          /* a request, not answered yet */
    bool due;                                /* a request is wanted: not before next_us */
    bool granted, refused;                   /* in this attempt */
    bool acknowledged;                       /* the epoch's begin or end; or it has fetched */
    uint32_t attempt;                        /* that the request under way belongs to */
    uint32_t failures;                       /* to reach it, in a row */
    int64_t next_us, fetched_us, end_offset; /* of its last valid fetch in this leader's epoch; fetched_us starts as the epoch's start */
};

struct kb_election { /* the machine's own; embed it, read it through the functions below */
    struct kb_election_options o;
    enum kb_election_role role;
    struct kb_election_state state, stored, storing; /* in memory, on the disk, on its way there */
    bool started, stopping, store_under_way;
    bool leader_dead; /* the epoch's leader is gone or has resigned: it is not believed in until it says so itself */
    bool heard;       /* of the epoch's leader, from itself, at heard_us */
    bool backing_off; /* prospective, and not asking now: the timer ends that */
    bool told_leads;
    int32_t told_epoch, told_leader;
    struct kw_list held; /* replies */
    struct kb_election_peer peers[KB_VOTERS_MAX];
    int64_t timer_us; /* what it is for depends on the role */
    int64_t heard_us, find_us;
    uint32_t attempt, failures; /* failed ones in a row: the backoff's exponent */
    uint32_t finds;
    size_t find_at;
};

/* ---- Start ---- */

/* The epoch that a start of a quorum of one leads in: above the stored one and `known` (the epochs of the snapshot, the log), with its own
 * vote and itself as the leader. To be stored before kb_election_start. KW_ELIMIT: no epoch is left. */
kw_err kb_election_claim(const struct kb_election_options *o, struct kb_election_state *state, int32_t known) KW_CHECK;
void kb_election_none(struct kb_election_state *state); /* of a new folder: epoch 0, nobody */
void kb_election_init(struct kb_election *e, const struct kb_election_options *o);
/* `stored` is what quorum-state holds. A quorum of one leads from here on (KB_ELECT_VIEW, nothing else; kb_election_claim came before:
 * asserted). Others begin without a leader and ask soon. KW_EINVAL: a state that cannot be (negative epoch). */
kw_err kb_election_start(struct kb_election *e, const struct kb_election_state *stored, int64_t now_us) KW_CHECK;

/* ---- Events ---- */

int64_t kb_election_deadline(const struct kb_election *e);    /* when kb_election_tick is due; INT64_MAX: never */
void kb_election_tick(struct kb_election *e, int64_t now_us); /* early and late ones are fine */
void kb_election_stored(struct kb_election *e, int64_t now_us);
/* An incoming request. The reply comes out of kb_election_next, mostly in the same turn. */
void kb_election_ask(struct kb_election *e, const struct kb_election_request *r, struct kb_election_reply *reply, int64_t now_us);
void kb_election_forget(struct kb_election *e, struct kb_election_reply *reply); /* its connection is gone; also when it has come out */
/* The peer's answer to what KB_ELECT_SEND said; or none: it could not be reached, the connection failed, the time ran out. */
void kb_election_answered(struct kb_election *e, const struct kb_election_send *sent, const struct kb_election_reply *answer,
                          int64_t now_us);
void kb_election_unanswered(struct kb_election *e, const struct kb_election_send *sent, int64_t now_us);
/* As a follower: the leader has answered a fetch (of log or snapshot) in this epoch, without an error or with a diverging epoch. */
void kb_election_leader_answered(struct kb_election *e, int32_t leader_id, int32_t epoch, int64_t now_us);
/* Any other answer of node `from` that names an epoch and a leader (-1: it knows none), a fetch refused with an error above all. */
void kb_election_heard(struct kb_election *e, int32_t from, int32_t leader_id, int32_t epoch, int64_t now_us);
/* As the leader: voter `id` sent a valid fetch of the log from end_offset, or of a snapshot (end_offset -1). */
void kb_election_fetched(struct kb_election *e, int32_t id, int64_t end_offset, int64_t now_us);
/* Its connection was closed from its side and a dial was refused: the process is gone. A voter whose leader that is asks at once. */
void kb_election_peer_dead(struct kb_election *e, int32_t id, int64_t now_us);
/* A stop: a leader hands over (EndQuorumEpoch, until all have acknowledged or the time is up); from here on this node never stands, but
 * goes on answering, as its vote may be needed. */
void kb_election_resign(struct kb_election *e, int64_t now_us);
bool kb_election_resigned(const struct kb_election *e); /* after kb_election_resign: the rest of the stop may go on */

/* ---- Out ---- */

bool kb_election_next(struct kb_election *e, struct kb_election_action *act, int64_t now_us); /* false: nothing more */

struct kb_election_view {
    int32_t epoch, leader_id; /* -1: none known */
    bool leads;
};
struct kb_election_view kb_election_view(const struct kb_election *e); /* as of now, though it may not have been told yet */
enum kb_election_role kb_election_role(const struct kb_election *e);
bool kb_election_is_voter(const struct kb_election *e, int32_t id);
/* For a Fetch, FetchSnapshot or DescribeQuorum of this epoch (-1: not checked): KE_NONE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
 * NOT_LEADER_OR_FOLLOWER. */
int16_t kb_election_check(const struct kb_election *e, int32_t epoch);

#endif
