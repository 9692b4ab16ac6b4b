/* follower_priv.h - what the files of the follower share: a partition that follows, and the broker that it fetches from. Private to replica/.
 *
 * follower.c: who follows whom; links and their timers. follower_fetch.c: requests. follower_answer.c: what came back. follower_cut.c: a log is
 * cut, or emptied.
 */
#ifndef KB_FOLLOWER_PRIV_H
#define KB_FOLLOWER_PRIV_H

#include "base/arena.h"
#include "follower.h"
#include "kw_messages.h"
#include "channel.h"
#include "partitions_priv.h"

/* Why a partition is left out for a while: the leader and we have not heard the same of the metadata yet; or something is wrong. */
enum kb_delay { KB_DELAY_METADATA, KB_DELAY_TROUBLE, KB_DELAY_COUNT };

struct kb_peer;
struct kb_follower { /* made when the partition first follows; stays as long as the partition */
    struct kb_partition *p;
    struct kb_peer *peer;   /* NULL: it follows nobody now */
    struct kw_list link;    /* in the peer's followers: the order of a full request */
    struct kw_list changed;    /* in the peer's changed */
    struct kw_list delayed; /* in one of the peer's delays until until_us */
    int64_t until_us;
    int32_t leader_epoch;
    uint32_t generation; /* grows with each follow and leave: what was begun before has no say */
    int32_t refusals;    /* for metadata's sake, in a row */
    int16_t said;        /* the trouble that was last told; 0: none */
    bool writing;        /* the log's end is not written (or synced, where that counts) yet: it cannot be named */
    bool cutting;        /* see follower_cut.c */
    bool cut_again;      /* the log ended lower than it was cut to */
    /* the leader's session */
    bool in_session; /* has the partition, as was sent last */
    bool asked;      /* and that is still what we want: its answers count */
    bool missed;     /* one did not: what it told (a high watermark) the session does not tell again. So it leaves the session, and comes back */
    uint64_t since;  /* the fetch from which on they do */
    int64_t sent_offset, sent_start, sent_mark; /* the log's end, start and mark */
    /* as the leader said last; -1: nothing yet */
    int64_t leader_hw, leader_start;
    /* a cut under way */
    int64_t cut_to;
    bool cut_reset;
    uint32_t cut_generation;
    struct kw_blk *held; /* what the log is to begin with after the cut; NULL: nothing */
    struct kw_records held_records;
    struct kb_point_waiter point;
    int64_t recovery_max;
};

struct kb_forgotten { /* the leader's session has it, and is to drop it */
    struct kw_uuid topic_id;
    int32_t index;
};

struct kb_peer_call { /* one fetch */
    struct kb_call call;
    struct kb_peer *peer;
    uint32_t serial; /* an answer of another session is worth nothing */
    uint64_t number;
};
#define KB_PEER_CALLS 2 /* the second tells what was written while the first waits for records */

struct kb_peer { /* a broker that leads something that we follow */
    struct kb_followers *fs;
    int32_t id;
    struct kw_list dirty; /* in kb_followers.dirty: to be looked at by the end of the turn */
    /* where it is; moved: look again */
    bool moved, known;
    int64_t broker_epoch;
    char host[KB_HOST_SIZE];
    uint16_t port;
    struct kb_link *link;
    struct kb_peer_call calls[KB_PEER_CALLS];
    uint64_t fetches; /* sent */
    struct kw_timer timer;
    int64_t not_before_us;    /* dial or fetch */
    int64_t patience_until_us; /* what is being written is waited for so long: then the others go on without it */
    int32_t failures;         /* of the link or its sessions, in a row */
    bool said;
    struct kw_list followers;
    size_t count, writing;
    uint64_t appended_turn; /* when something last came */
    struct kw_list changed; /* those that the next request has to name, or to forget */
    struct kw_list delays[KB_DELAY_COUNT]; /* each in the order of until_us */
    /* the session, KIP-227 */
    int32_t session_id, session_epoch;
    size_t session_count; /* partitions that the leader has in it */
    uint32_t session_serial;
    bool reads_ahead; /* the leader knows readFrom: what is being written is not waited for */
    bool progress;    /* something was written that it has not been told of */
    struct kw_list soon; /* in kb_followers.soon: to be looked at in the next turn */
    struct kb_forgotten *forgotten;
    size_t forgotten_count, forgotten_cap;
};

struct kb_followers {
    struct kb_node *node;
    struct { /* of the configuration, looked up once */
        int64_t wait_ms, timeout_us, backoff_us;
        int32_t bytes_max, bytes_min, response_bytes_max;
    } set;
    struct kw_arena arena; /* of one request being built, or one answer being taken */
    struct kw_map peers; /* broker id -> struct kb_peer */
    struct kw_list dirty, soon;
    uint64_t turn;
    struct kw_timer timer; /* tries again what found no memory */
    bool starved, stopped;
    int64_t moved_us; /* when a partition last began to follow */
    struct kb_follower_stats stats;
};

/* What a fetch may name: what is written here, or synced where the topic asks for it. */
static inline int64_t kb_follower_mark(const struct kb_follower *f) {
    return f->p->log_config.flush_on_ack ? f->p->log->synced : f->p->log->written;
}

/* Of one that is being written more may be asked for: it stays in the session. Not where acknowledged is what is synced. */
static inline bool kb_peer_goes_ahead(const struct kb_peer *peer) { return peer->reads_ahead && peer->session_id != 0; }
size_t kb_peer_calls(const struct kb_peer *peer); /* under way */

/* follower.c */
void kb_peer_touch(struct kb_peer *peer); /* to be looked at by the end of the turn */
void kb_follower_changed(struct kb_follower *f);
void kb_follower_set_writing(struct kb_follower *f, bool writing);
void kb_follower_set_session(struct kb_follower *f, bool in_session);
void kb_follower_delay(struct kb_follower *f, enum kb_delay why);
void kb_peer_session_reset(struct kb_peer *peer);
/* follower_fetch.c */
bool kb_follower_is_ready(const struct kb_follower *f); /* can be fetched for */
bool kb_follower_is_behind(const struct kb_follower *f); /* its log's end cannot be named yet */
bool kb_follower_is_usable(const struct kb_follower *f); /* but for that */
kw_err kb_peer_fetch(struct kb_peer *peer, struct kb_now now) KW_CHECK;
/* follower_answer.c */
void kb_peer_answered(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now);
void kb_follower_append(struct kb_follower *f, const struct kw_records *records, struct kw_blk *blk, struct kb_now now);
void kb_follower_raise_hw(struct kb_follower *f, struct kb_now now);
/* follower_cut.c */
void kb_follower_diverged(struct kb_follower *f, int32_t epoch, int64_t end, struct kb_now now);
void kb_follower_out_of_range(struct kb_follower *f, int64_t leader_start, struct kb_now now);
/* The leader's log begins inside of a batch, which is sent whole: this log, which is empty, is to begin where that does, with these records (a
 * fetch from there would be out of the leader's range). */
void kb_follower_begin_lower(struct kb_follower *f, int64_t base, const struct kw_records *records, struct kw_blk *blk, struct kb_now now);
void kb_follower_cut_left(struct kb_follower *f); /* the partition has left, or moved on */

#endif
