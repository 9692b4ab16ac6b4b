/* group.h - a consumer's membership of a group: what it subscribes to, who shares the partitions out, what is handed to the application.
 *
 *   any thread:    subscribe, unsubscribe, ack                                            group.c, handover.c
 *   loop context:  the member's states, JoinGroup, SyncGroup, Heartbeat, LeaveGroup       group_classic.c, group_join.c, group_lead.c,
 *                  which topics there are                                                 group_heartbeat.c, subscribe.c
 *
 * States (loop context):
 *
 *   IDLE ─ subscribe ─→ START ─→ SEARCH (patterns: which topics match) ─→ REVOKE ─→ DRAIN ─→ JOIN ─→ LEAD (the leader) ─→ SYNC ─→ STABLE
 *                         ↑       eager: all partitions, cooperative: those of topics      │ waits for metadata                     │
 *                         │       no longer subscribed, are acknowledged and committed     └──── an error: BACKOFF ─→ START         │
 *                         └── a rebalance, another subscription, new partitions (cooperative: after REVOKE and DRAIN of what went) ──┘
 *   OUT: poll was not called for max.poll.interval.ms; the next poll leads to START.   LEAVE: LeaveGroup is under way; then IDLE, OUT or closed.
 *   FAILED: nothing that trying again could mend (FENCED_INSTANCE_ID); a new subscription leads to START.
 *
 * Lanes. JoinGroup and SyncGroup wait for other members, minutes perhaps, and a broker answers each connection in order: each member sends them
 * on a lane of its own (kc_core_lane_take), so that neither heartbeats, commits and metadata nor another member in this client wait behind
 * them. Its connection is closed once the group is stable. Heartbeat and LeaveGroup go on the control lane.
 *
 * Fencing by our own clock: when no heartbeat was answered for session.timeout.ms, counted from when the last answered one was sent, the
 * group has given the partitions to others, and they are LOST.
 *
 * A consumer without a subscription has no struct kc_group: no timer, request or draw more than without groups.
 *
 * Called by handle_consumer.c, consumer.c, fetched.c, tests. Calls commit.h, core/coordinator.h, assignor.h. KIP-62, 134, 345, 394, 429, 559, 792, 800, 814.
 */
#ifndef KC_GROUP_H
#define KC_GROUP_H

#include "assignor.h"
#include "commit.h"
#include "consumer.h"

#define KC_GROUP_TOPICS_MAX 100000 /* of one subscription */

/* ---- What is handed to the application ---- */

enum kc_handover_state {
    KC_HANDOVER_OPEN,  /* ASSIGNED, REVOKED: not acknowledged */
    KC_HANDOVER_DONE,  /* acknowledged, or nothing to be */
    KC_HANDOVER_LOST,  /* too late */
};

/* One ASSIGNED, REVOKED, LOST, or an error of the membership. Made in loop context; under the lock but for refs. */
struct kc_handover {
    struct kw_list news_link; /* in consume->news until poll gives it */
    struct kw_list open_link; /* in group->open: a reference */
    _Atomic uint32_t refs;    /* the lists' and the event's */
    int32_t kind;             /* enum kc_event_kind */
    _Atomic int32_t state;    /* enum kc_handover_state; changed under the lock */
    bool told;                /* poll has given it */
    uint64_t number;          /* of this consumer; what its partitions wait for (kc_part.given, .revoked) */
    _Atomic int64_t deadline_us;
    kc_error *error; /* KC_EVENT_ERROR; owned */
    struct kc_tie *tie;
    size_t count, cap;
    kc_topic_partition parts[];
};

/* What stands between events and a consumer that may be gone by the time that they are acknowledged. Its lock comes before consume->lock. */
struct kc_tie {
    _Atomic uint32_t refs;
    struct kc_lock lock; /* KC_RANK_TIE */
    struct kc_consume *consume; /* NULL: gone. Under the lock */
    _Atomic int64_t poll_by_us; /* when the member leaves if poll is not called */
};

struct kc_tie *kc_tie_new(struct kc_consume *c);
void kc_tie_cut(struct kc_tie *t); /* the consumer goes: drops its reference */
kc_err kc_handover_ack(struct kc_handover *h); /* any thread, no lock held: kc_event_ack */
void kc_handover_unref(struct kc_handover *h);
int64_t kc_handover_deadline(const struct kc_handover *h); /* monotonic; 0: over; KW_NEVER: none (any more) */

/* ---- What the application wants ---- */

/* Which topics a pattern means: the façade's. */
struct kc_matcher {
    bool (*matches)(const struct kc_matcher *m, const char *topic); /* any thread, one at a time */
    void (*free)(struct kc_matcher *m);
};

enum kc_group_state {
    KC_GROUP_IDLE,
    KC_GROUP_START,
    KC_GROUP_SEARCH,
    KC_GROUP_REVOKE,
    KC_GROUP_DRAIN,
    KC_GROUP_JOIN,
    KC_GROUP_LEAD,
    KC_GROUP_SYNC,
    KC_GROUP_STABLE,
    KC_GROUP_BACKOFF,
    KC_GROUP_LEAVE,
    KC_GROUP_OUT,
    KC_GROUP_FAILED,
};

struct kc_numbers { /* topics by the client's numbers, ascending, each once */
    int32_t *v;
    size_t count;
};

struct kc_group {
    struct kc_consume *consume;
    struct kc_tie *tie; /* consume->tie */
    enum kc_assignor assignors[KC_ASSIGNOR_COUNT];
    size_t assignor_count;
    bool cooperative; /* all of them are: partitions stay while the group rebalances */

    /* Under the lock: what the application wants, and what it sees. */
    struct kc_numbers wanted;   /* by name */
    struct kc_matcher *matcher; /* or by pattern; owned */
    bool subscribed, closing;
    uint64_t wishes;            /* calls of subscribe and unsubscribe */
    int64_t close_by_us;
    bool gone;                  /* closed, and out of everything */
    bool joined;                /* has its partitions: kc_consumer_await_assigned */
    kc_err failed;              /* state FAILED: why */
    struct kw_list open;        /* struct kc_handover.open_link */
    struct kc_handover *spare;  /* LOST, made when partitions were assigned, so that it can always be told */
    struct kc_sought {  /* kc_consumer_seek before the first ASSIGNED */
        kc_topic_partition *v;
        size_t count, cap;
        bool open;              /* it has not come yet */
    } sought;
    kc_topic_partition *paused; /* those that were paused when they were given up: paused again if they come back at once */
    size_t paused_count;
    int32_t generation;         /* -1: no member */
    char *member_id;            /* "" none yet; replaced under the lock */

    /* Loop context. */
    enum kc_group_state state, after_leave;
    int64_t since_us;           /* of the state */
    uint64_t wish;              /* the last one taken */
    struct kc_numbers topics;   /* subscribed to now; their metadata is wanted */
    struct kc_numbers joined_topics; /* as last said in JoinGroup */
    bool search_due;            /* patterns: look which topics there are, before anything else */
    const char *why;            /* it joins again; said in JoinGroup (KIP-800) */
    bool rejoin;                /* STABLE: join again */
    int64_t rebalance_since_us; /* when the group began to wait for this member */
    int32_t errors;             /* in a row */
    kc_err last_err, told;
    int64_t not_before_us;      /* BACKOFF */
    struct kc_handover *revoking; /* REVOKE: held, waited for */
    bool revoke_listed;         /* STABLE: the share-out gave partitions to others */
    struct kc_commit_drain drain;
    bool draining, drained;
    enum kc_group_state after_drain; /* JOIN or LEAVE */
    bool stopped;

    enum kc_channel lane;       /* JoinGroup's and SyncGroup's; KC_CHANNEL_CONTROL: none taken */
    bool has_lane;
    struct kc_request rq;       /* JoinGroup, SyncGroup: one at a time */
    bool rq_busy, rq_void;      /* rq_void: its answer does not count any more */
    int64_t rq_sent_us;
    struct kc_request beat;
    bool beat_busy;
    int64_t beat_sent_us, beat_due_us, heard_us; /* heard_us: when the last request was sent that the group has answered well */
    int32_t beat_generation, beat_errors;
    struct kc_request leave;
    bool leave_busy, left;      /* left: it was told, or is being */
    int64_t leave_until_us, leave_again_us; /* not longer; when to tell it again, 0: no more */
    int32_t leave_errors;
    bool leave_static;          /* a static member tells it too: unsubscribed in so many words */
    const char *leave_why;
    struct kc_request search;   /* Metadata of all topics */
    bool search_busy;
    uint64_t wishes_searched;
    int32_t search_errors;
    struct kw_arena arena;      /* of rq's message */
    struct kc_commit_member who; /* as told to commits */
    char *who_id;
    bool published, publish_due; /* a member, and not NULL; could not be told for lack of memory */

    /* the leader */
    bool leading;
    enum kc_assignor how;
    struct kw_blk *join_blk;    /* JoinGroup's answer, while it is shared out */
    struct kc_member_in *members;
    struct kc_share *shares;
    size_t member_count;
    bool skip_assignment;       /* KIP-814 */
    struct kc_numbers led;      /* topics of all members; their metadata is wanted */
    int32_t *led_counts;        /* partitions when they were shared out, or, where that was skipped, when it came back */
    bool metadata_changed;
    struct kc_request survey;   /* DescribeGroups: whether what it skipped to share out is all there is */
    bool survey_due, survey_busy;
    int64_t survey_at_us;
    int32_t survey_generation, survey_errors;

    struct kc_share last_share; /* of the last generation, in share_arena: what the sticky assignor says that it had */
    int32_t last_generation;
    struct kw_arena share_arena;
    struct kc_counts {          /* of each topic, ascending, the partitions when this member first saw it: later ones were added (CC-13) */
        int32_t topic, partitions;
    } *first_counts;
    size_t first_count, first_cap;

    struct kw_timer timer;
    int64_t search_at_us;       /* the next search */
    uint32_t polls, polls_out;  /* consume->polls as last seen; when it went OUT */
    int64_t polled_us;
};

/* ---- Any thread ---- */

/* Whether the properties make sense: KC_CONFIG with a text. settings->group_id given. */
kc_err kc_group_check(const struct kc_settings *s, kc_error **error);
/* Topics by number. matcher: instead of them; taken, freed on failure too. KC_CONFIG: no group.id; KC_INVALID: a manual assignment; KC_NO_MEMORY. */
kc_err kc_group_subscribe(struct kc_consume *c, const int32_t *topics, size_t count, struct kc_matcher *matcher);
void kc_group_unsubscribe(struct kc_consume *c);
/* Under the lock. A subscription is in force, so no manual assignment is. */
bool kc_group_gave(const struct kc_consume *c);
/* Whether the group has given partitions (KC_OK), not yet (KC_BUSY), or never will (what failed; KC_INVALID: no subscription). */
kc_err kc_group_assigned(struct kc_consume *c);
size_t kc_group_member(struct kc_consume *c, int32_t *generation, char *id, size_t size);
/* Under the lock. kc_consumer_seek of a partition that is not assigned: KC_OK: remembered for the first ASSIGNED; else KC_NOT_ASSIGNED. */
kc_err kc_group_seek(struct kc_consume *c, const kc_topic_partition *tp);

/* ---- The polling thread ---- */
/* The session is over by the clock, and loop context has not looked yet, since the process was frozen: what was fetched may be somebody else's by now.
 * Poll is to wait; it is told when there is LOST to take, or the session goes on. */
bool kc_group_lapsed(struct kc_consume *c, int64_t now_us);
/* Under the lock: poll was called: what it gave last is acknowledged. */
void kc_group_passed(struct kc_consume *c);
/* Under the lock. The next event of the group, in front of all records; NULL: none, or (*err) no memory. */
kc_event *kc_group_take(struct kc_consume *c, kc_err *err);

/* ---- Loop context ---- */
void kc_group_run(struct kc_consume *c, int64_t now_us); /* no lock held; does nothing without a subscription */
/* Gives everything up, commits and leaves by close_by_us at the latest; kick is called when kc_group_gone. commit false: freed without a close. */
void kc_group_close(struct kc_consume *c, int64_t close_by_us);
bool kc_group_gone(const struct kc_consume *c); /* closed, or there never was one */
void kc_group_stop(struct kc_consume *c);       /* cancels: the consumer is stopped */
void kc_group_release(struct kc_consume *c);    /* nothing of the consumer is outstanding any more */
void kc_group_metadata(struct kc_consume *c);   /* there is new metadata */
void kc_group_deinit(struct kc_consume *c);
/* kc_commits_options.refused. ctx: the consumer */
void kc_group_refused(void *ctx, const struct kc_commit_member *as, kc_err err);
/* kc_consumer_why: the membership itself. false: no subscription. */
bool kc_group_why(struct kc_consume *c, kc_why *w);

/* ---- Among its files; loop context ---- */
void kc_group_enter(struct kc_group *g, enum kc_group_state state); /* group_classic.c */
void kc_group_retry(struct kc_group *g, kc_err err);                /* BACKOFF after an error, then START */
void kc_group_fenced(struct kc_group *g); /* another member has its group.instance.id: FAILED */
/* The partitions are somebody else's, perhaps; the generation is over. id_too: the member id as well. Then START. */
void kc_group_lose(struct kc_group *g, bool id_too, const char *why);
void kc_group_again(struct kc_group *g); /* START, or after a while when that was tried in vain */
void kc_group_forget(struct kc_group *g, bool id_too);
void kc_group_tell_error(struct kc_group *g, kc_err err, const char *text);
kw_err kc_group_member_set(struct kc_group *g, struct kw_str id) KW_CHECK; /* takes the lock */
void kc_group_publish(struct kc_group *g, bool member); /* tells commits who it is now */
void kc_group_rest(struct kc_group *g);                 /* cancels what is outstanding of a join */
void kc_group_rebalance(struct kc_group *g, int64_t now_us); /* the group waits for it to join again */
size_t kc_group_counts_at(const struct kc_group *g, int32_t topic);     /* in first_counts: where the topic is, or belongs */
kw_err kc_group_note_counts(struct kc_group *g, const kc_topic_partition *v, size_t n) KW_CHECK; /* partitions, as first seen */
void kc_group_settled(struct kc_group *g, bool gone);   /* SyncGroup was answered: a member. gone: partitions are to be given up */
bool kc_group_is_in(const struct kc_group *g);          /* the group, or on its way into it */
void kc_group_init_loop(struct kc_group *g);
bool kc_group_is_static(const struct kc_group *g);
struct kw_str kc_group_instance(const struct kc_group *g); /* null: none */
struct kw_str kc_group_id(const struct kc_group *g);

void kc_group_join(struct kc_group *g);              /* group_join.c: sends JoinGroup */
void kc_group_lead(struct kc_group *g);              /* group_lead.c: shares out, once metadata is there */
void kc_group_lead_over(struct kc_group *g);         /* frees what the share-out needed */
bool kc_group_led_changed(struct kc_group *g);       /* the leader: topics have other partitions than when they were shared out */
void kc_group_survey(struct kc_group *g, int64_t now_us); /* whether they had when it was told to skip the share-out */
kw_err kc_group_read_members(struct kc_group *g, const struct kw_join_group_response *m) KW_CHECK;
void kc_group_sync(struct kc_group *g);              /* group_join.c: sends SyncGroup */
void kc_group_beat(struct kc_group *g, int64_t now_us); /* group_heartbeat.c */
void kc_group_send_leave(struct kc_group *g, int64_t until_us);

/* handover.c. Under the lock. */
struct kc_handover *kc_handover_new(struct kc_group *g, int32_t kind, size_t cap); /* NULL: no memory */
void kc_handover_tell(struct kc_group *g, struct kc_handover *h, bool in_front);   /* takes the reference */
/* Begins to take these parts away: all, or those whose `listed` is set. KC_NO_MEMORY: nothing changed. *h: held; NULL: nothing was to be asked. */
kc_err kc_group_revoke(struct kc_group *g, bool all, int64_t deadline_us, struct kc_handover **h);
void kc_group_give_up(struct kc_group *g);  /* the application's own wish: all parts leave at once */
bool kc_group_drop_all(struct kc_group *g); /* LOST; whether there was anything */
/* Of the share's partitions those that are not there are given; those there that the share does not have are marked `listed`. KC_NO_MEMORY: nothing
 * changed. *gone: how many are listed. tell_none: an ASSIGNED comes though it has no partition. */
kc_err kc_group_give(struct kc_group *g, const kc_topic_partition *share, size_t count, bool tell_none, int64_t now_us, size_t *gone);

/* subscribe.c */
void kc_numbers_free(struct kc_numbers *n);
kw_err kc_numbers_set(struct kc_numbers *n, const int32_t *v, size_t count) KW_CHECK; /* sorted, each once */
bool kc_numbers_same(const struct kc_numbers *a, const struct kc_numbers *b);
const int32_t *kc_numbers_find(const struct kc_numbers *n, int32_t topic); /* its place in n->v; NULL: not there */
bool kc_numbers_have(const struct kc_numbers *n, int32_t topic);
/* In place of what was wanted before; takes `now`. */
void kc_group_want(struct kc_group *g, struct kc_numbers *was, struct kc_numbers *now);
void kc_group_search(struct kc_group *g); /* asks for all topics */
int32_t kc_group_intern(struct kc_group *g, struct kw_str name);

#endif
