/* raft.h - the metadata log as one of several replicas: what the store and the APIs ask of it. KIP-595, 630, 996.
 *
 * Called by store.c (life, marks, commits) and api/ (vote, begin and end of epochs, fetches of the metadata log, snapshots, DescribeQuorum).
 * raft.c wires election.h to disk and links, raft_join.c makes a node with an empty folder a member, raft_fetch.c follows a leader,
 * raft_install.c takes over its snapshot, raft_lead.c is the leader's side, raft_serve.c answers fetches.
 */
#ifndef KB_RAFT_H
#define KB_RAFT_H

#include "../request.h"
#include "election.h"
#include "kw_messages.h"

#define KB_METADATA_TOPIC "__cluster_metadata"
extern const struct kw_uuid kb_metadata_topic_id;

struct kb_store;
struct kb_raft;

/* ---- For the store ---- */
kw_err kb_raft_new(struct kb_store *s, struct kb_raft **r) KW_CHECK;
void kb_raft_free(struct kb_raft *r);                             /* NULL is fine */
void kb_raft_loaded(struct kb_raft *r, struct kb_now now);        /* snapshot and log are open, their names durable */
void kb_raft_marks_moved(struct kb_raft *r, struct kb_now now);   /* the log's */
void kb_raft_cut_back(struct kb_raft *r, struct kb_now now);      /* the disk was full: the log ends lower */
void kb_raft_applied(struct kb_raft *r, struct kb_now now);       /* the image moved */
void kb_raft_stop(struct kb_raft *r, struct kb_now now);          /* no request and no link any more; before the log is shut down */
int64_t kb_raft_high_watermark(const struct kb_raft *r);          /* exclusive; what is below is committed, as far as is known here */
int32_t kb_raft_leader(const struct kb_raft *r);                  /* -1: none known */
bool kb_raft_leads(const struct kb_raft *r);                      /* and its epoch's first record is committed and applied */
bool kb_raft_is_up(const struct kb_raft *r);                      /* loaded: requests can be answered */
/* A stop begins: a leader hands over, and nobody here stands any more. done comes once, in a later turn. */
void kb_raft_resign(struct kb_raft *r, void (*done)(void *ctx, struct kb_now now), void *ctx, struct kb_now now);

/* ---- For the APIs ---- */

/* One request of the election under way; in the request's arena. answer is called once, maybe before kb_raft_ask returns. */
struct kb_raft_ask {
    struct kb_election_reply reply;
    struct kb_request *rq;
    void (*answer)(struct kb_raft_ask *a);
};
void kb_raft_ask(struct kb_raft *r, const struct kb_election_request *q, struct kb_raft_ask *a, struct kb_now now);
void kb_raft_forget(struct kb_raft *r, struct kb_raft_ask *a);
/* A decoded Fetch whose only topic is the metadata's: answers rq, now or later. */
bool kb_raft_is_metadata_fetch(const struct kw_fetch_request *req, int16_t version);
void kb_raft_fetch(struct kb_request *rq, const struct kw_fetch_request *req);
void kb_raft_fetch_snapshot(struct kb_request *rq, const struct kw_fetch_snapshot_request *req);
/* Fills the one partition of the answer; arrays in the request's arena. */
kw_err kb_raft_describe(struct kb_request *rq, struct kw_describe_quorum_response_partition_data *out) KW_CHECK;
/* KE code for a request that names this cluster id (null: none). */
int16_t kb_raft_cluster_code(const struct kb_store *s, struct kw_str cluster_id);

#endif
