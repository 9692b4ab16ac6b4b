/* raft_priv.h - the replica of the metadata log itself, as the raft*.c see it. */
#ifndef KB_RAFT_PRIV_H
#define KB_RAFT_PRIV_H

#include "link.h"
#include "node_priv.h"
#include "raft.h"
#include "store_priv.h"

#define KB_RAFT_OBSERVERS_MAX 1000
#define KB_RAFT_TEMPORARY_US 100000 /* until what lacked memory or room is tried again */

struct kb_raft_peer { /* another voter */
    struct kb_raft *r;
    int32_t id;
    char host[256];
    uint16_t port;
    struct kb_link *link; /* for all but a follower's fetches */
    struct kb_call ask;   /* of the election */
    struct kb_election_send sent;
    bool ask_failed; /* could not be begun: told in a later turn */
    struct kb_call find; /* is there a leader? */
    struct kb_call probe; /* raft_join.c */
    bool probed, answered; /* has said what was hoped for; has said anything; in this phase */
    bool refused;         /* says that this node is of another cluster */
    bool said;            /* that it cannot be reached has been said */
};

struct kb_raft_replica { /* one that fetches from this leader */
    int32_t id;
    struct kw_uuid directory;
    int64_t end;       /* everything below is synced there; -1: not known in this epoch */
    int64_t fetched_us, fetched_ms, caught_up_ms;
    int64_t end_then;  /* this log's end at its last fetch */
    int64_t contested_until_us; /* another process fetches under its id */
};

struct kb_raft_follow { /* raft_fetch.c */
    int32_t leader; /* -1: none */
    struct kb_link *link;
    struct kb_call call;
    struct kw_timer timer; /* a pause */
    bool lost;             /* the leader closed the connection: a refused dial says that it is dead */
    bool cutting;
    int64_t cut_to;
    int64_t heard_hw; /* -1: none in this epoch */
    int64_t said_us;
};

struct kb_raft_install { /* a snapshot being taken over, raft_install.c */
    enum { KB_INSTALL_NONE, KB_INSTALL_FETCH, KB_INSTALL_WAIT, KB_INSTALL_WRITE, KB_INSTALL_RESET } step;
    int64_t end;
    int32_t epoch;
    struct kw_out bytes;
    struct kb_image image; /* of bytes, once they are whole */
    bool has_image;
    struct kb_disk_req req;
    struct kb_iov iov;
    char *path;
    struct kb_disk_req unlinks[2]; /* those before it */
    char *old_paths[2];
    bool unlinking[2];
};

struct kb_raft {
    struct kb_store *s;
    struct kb_node *node;
    int32_t id;
    bool voter, stopped;
    size_t voter_count;
    int32_t voters[KB_VOTERS_MAX];
    struct kb_raft_peer peers[KB_VOTERS_MAX];
    size_t peer_count;
    struct kb_raft_replica replicas[KB_VOTERS_MAX]; /* the voters, as `voters`; what this node's own says is not used */
    struct kw_map observers;                        /* id -> struct kb_raft_replica */
    struct kw_arena arena;                          /* of one answer */
    /* membership: raft_join.c */
    enum kb_raft_phase {
        KB_RAFT_DOWN,
        KB_RAFT_NAMELESS,  /* which cluster this is, is not known yet */
        KB_RAFT_FORGETFUL, /* a voter that knows nothing of its votes: observes */
        KB_RAFT_MEMBER     /* votes, or observes for good */
    } phase;
    struct kw_timer join_timer;
    int64_t join_say_us; /* when it is said whom it waits for */
    int32_t join_epoch; /* the highest that another voter named */
    int64_t doubt_say_us, self_since_us; /* raft_doubt.c; since when others name this voter as a leader that it is not, 0: they do not */
    int32_t compared_epoch;              /* whose leader's voters were compared last */
    bool naming;        /* meta.properties is being written */
    struct kb_disk_req properties;
    struct kw_out properties_bytes;
    struct kb_iov properties_iov;
    char *properties_path;
    /* the election */
    struct kb_election election;
    bool draining;
    struct kw_timer timer;
    struct kb_disk_req state_req; /* quorum-state */
    struct kw_out state_bytes;
    struct kb_iov state_iov;
    char *state_path;
    bool storing;
    void (*stored)(struct kb_raft *r, struct kb_now now);
    void (*resigned)(void *ctx, struct kb_now now);
    void *resigned_ctx;
    /* the view, as last taken */
    int32_t epoch, leader;
    bool leading, leads; /* leads: told so */
    int64_t hw;
    int64_t ready_at; /* ready once the image holds what is below; -1: not known yet */
    /* the leader: raft_lead.c, raft_serve.c */
    int64_t epoch_start; /* offset of the epoch's first record; -1: not appended */
    int64_t lead_end;    /* leads once everything below is applied */
    struct kw_timer lead_timer;
    struct kw_list waiting; /* struct fetch */
    struct kw_list pieces;  /* struct piece: of a snapshot, being read */
    struct kb_raft_follow follow;
    struct kb_raft_install install;
};

/* raft.c */
void kb_raft_drain(struct kb_raft *r, struct kb_now now);
void kb_raft_store_state(struct kb_raft *r, const struct kb_election_state *st, void (*done)(struct kb_raft *r, struct kb_now now), struct kb_now now);
void kb_raft_start_election(struct kb_raft *r, const struct kb_election_state *st, bool observes, struct kb_now now);
struct kb_raft_peer *kb_raft_peer(struct kb_raft *r, int32_t id);
/* Over the peer's link, which is dialed where need be. */
kw_err kb_raft_call(struct kb_raft_peer *p, struct kb_call *c, const struct kw_desc *d, int16_t version, const void *msg, int64_t timeout_us,
                    struct kb_now now) KW_CHECK;
void kb_raft_refused(struct kb_raft *r, int32_t peer, struct kb_now now); /* INCONSISTENT_CLUSTER_ID was its answer */
struct kb_log_end kb_raft_log_end(const struct kb_raft *r);
int64_t kb_raft_config_us(const struct kb_raft *r, const char *name);
struct kb_now kb_raft_now(const struct kb_raft *r, int64_t now_us);
/* A timer that cannot be set without memory is set all the same: room was reserved. */
void kb_raft_arm(struct kb_raft *r, struct kw_timer *t, int64_t at_us);
/* raft_wire.c */
kw_err kb_raft_send(struct kb_raft_peer *p, const struct kb_election_send *send, struct kb_now now) KW_CHECK;
/* An answer's body at the highest version; what m points to lies in r's arena, until the next. */
kw_err kb_raft_read(struct kb_raft *r, const struct kw_desc *d, struct kw_in *body, void *m) KW_CHECK;
kw_err kb_raft_read_answer(struct kb_raft *r, enum kb_election_kind kind, struct kw_in *body, struct kb_election_reply *reply) KW_CHECK;
struct kb_raft_fetch_request { /* one with what it points to */
    struct kw_fetch_request req;
    struct kw_fetch_request_fetch_topic topic;
    struct kw_fetch_request_fetch_partition partition;
};
struct kw_uuid kb_raft_directory(const struct kb_raft *r);
void kb_raft_fetch_init(const struct kb_raft *r, struct kb_raft_fetch_request *f);
/* The one partition of an answer, in r's arena; KW_EDECODE: there is not one. */
kw_err kb_raft_read_fetch(struct kb_raft *r, struct kw_in *body, int16_t *top_error, struct kw_fetch_response_partition_data **p) KW_CHECK;
/* raft_join.c */
void kb_raft_join_init(struct kb_raft *r);
void kb_raft_join(struct kb_raft *r, struct kb_now now);
void kb_raft_joined(struct kb_raft *r, struct kb_now now); /* has it caught up with a leader? then it votes */
void kb_raft_leave_join(struct kb_raft *r);
/* raft_doubt.c */
/* What a voter answered: true, it is not to be counted on (its list of voters is another), or the store failed. */
bool kb_raft_doubts(struct kb_raft *r, const struct kb_raft_peer *p, int16_t error, int32_t leader, int32_t epoch, struct kb_now now);
void kb_raft_compare_voters(struct kb_raft *r, struct kb_now now); /* with those of the epoch's LeaderChange record, once it is applied */
/* A voter's fetch, from this data folder: true, another one fetches as the same voter, and neither counts. Notes the folder. */
bool kb_raft_contested(struct kb_raft *r, struct kb_raft_replica *o, struct kw_uuid directory, struct kb_now now);
/* raft_fetch.c */
void kb_raft_follow_init(struct kb_raft *r);
void kb_raft_follow(struct kb_raft *r, int32_t leader, struct kb_now now); /* -1: none any more */
void kb_raft_follow_step(struct kb_raft *r, struct kb_now now);
void kb_raft_follow_pause(struct kb_raft *r, int64_t us, struct kb_now now);
void kb_raft_follow_error(struct kb_raft *r, int16_t code, int32_t leader, int32_t epoch, struct kb_now now);
void kb_raft_hear_hw(struct kb_raft *r, int64_t hw, struct kb_now now);
/* raft_install.c */
void kb_raft_install(struct kb_raft *r, int64_t end, int32_t epoch, struct kb_now now);
void kb_raft_install_step(struct kb_raft *r, struct kb_now now);
void kb_raft_install_forget(struct kb_raft *r);                  /* unless it is on its way to the disk */
void kb_raft_install_deinit(struct kb_raft *r);
/* raft_lead.c */
void kb_raft_lead_init(struct kb_raft *r);
void kb_raft_lead(struct kb_raft *r, struct kb_now now);
void kb_raft_stop_leading(struct kb_raft *r, struct kb_now now);
void kb_raft_lead_step(struct kb_raft *r, struct kb_now now);
void kb_raft_advance(struct kb_raft *r, struct kb_now now);
/* A fetch that agrees with this log, from offset; -1: any other that shows that the replica lives. A voter's counts only with a directory. */
void kb_raft_note_fetch(struct kb_raft *r, int32_t id, struct kw_uuid directory, int64_t offset, struct kb_now now);
int64_t kb_raft_told_hw(const struct kb_raft *r); /* -1 before this epoch has committed anything */
/* raft_serve.c */
void kb_raft_serve_moved(struct kb_raft *r, struct kb_now now); /* the log grew, the high watermark moved, or the office was lost */
void kb_raft_serve_end(struct kb_raft *r);

#endif
