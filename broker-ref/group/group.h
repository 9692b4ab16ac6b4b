/* group.h - one classic consumer group: who its members are, how they come to share its partitions, and what is to be stored of it.
 *
 * A state machine without disk, connections or clock: requests come in as calls, the answers that have to wait hang on the caller's
 * kb_group_wait, time comes with each call and by the node's timers, and what is to be stored goes out by env->store, whose end comes back
 * by kb_group_stored. Of what the members do with their partitions (subscriptions, assignments) it understands nothing.
 *
 * Called by coordinator.c (the groups of a node) and by api/join_group, sync_group, heartbeat, leave_group, offset_commit, describe_groups.
 * KIP-62 (rebalance timeout), 345 (static members), 394 (member ids first), 559, 814 (an assignment kept).
 */
#ifndef KB_GROUP_H
#define KB_GROUP_H

#include "base/arena.h"
#include "base/rng.h"
#include "base/timers.h"
#include "event.h"
#include "kw_messages.h"

struct kb_group;
struct kb_member;

enum kb_group_state {
    KB_GROUP_EMPTY,      /* no members; maybe committed offsets */
    KB_GROUP_PREPARING,  /* waits for its members to join again */
    KB_GROUP_COMPLETING, /* all have joined; waits for what the leader assigns */
    KB_GROUP_STABLE,
};
const char *kb_group_state_text(enum kb_group_state s); /* as DescribeGroups names it */

struct kb_group_env { /* what all groups of a node share; outlives them */
    struct kw_timers *timers;
    const struct kb_now *now; /* of the event under way */
    struct kw_rng *rng;       /* member ids */
    const struct kb_logger *logger;
    int32_t members_max;      /* group.max.size */
    int64_t initial_delay_us; /* group.initial.rebalance.delay.ms: how long a group without members waits for more than the first */
    /* The group's state (kb_group_record) is to be stored; what hangs on it waits for kb_group_stored with this number or a higher one.
     * Never asked from within kb_group_stored for the same number; it may be answered later only, never from within. */
    void (*store)(struct kb_group *g, uint64_t number, struct kb_now now);
};

/* A JoinGroup or SyncGroup that waits for its answer. The caller's memory, which has to stay until one of the two is called, exactly once
 * (from within the call that hands it in, too), or kb_group_forget. They must not call the group. */
struct kb_join_answer {
    int16_t code; /* with an error only member_id counts */
    int32_t generation;
    struct kw_str protocol_type, protocol, leader, member_id; /* views, for the call */
    bool skip_assignment;                                     /* KIP-814 */
    const struct kb_group *members_of; /* the leader's answer: all members, each with what it said for `protocol`. NULL: none */
};
struct kb_sync_answer {
    int16_t code;
    struct kw_str protocol_type, protocol;
    struct kw_bytes assignment;
};
struct kb_group_wait {
    struct kb_member *member; /* the group's; NULL: does not wait */
    bool skips;               /* of a join: can do with the assignment that is */
    void (*joined)(struct kb_group_wait *w, const struct kb_join_answer *a);
    void (*synced)(struct kb_group_wait *w, const struct kb_sync_answer *a);
    void *ctx;
};
void kb_group_forget(struct kb_group_wait *w,
                     struct kb_now now); /* the connection closed: nobody waits; the member lives on for its session's length */

/* A group without members. NULL: out of memory. owner: the caller's, as `owner` below. */
struct kb_group *kb_group_new(const struct kb_group_env *env, struct kw_str id, void *owner);
/* A virtual clock was advanced (kb_node_advance): sessions, rebalances and ids given out are as much nearer to their ends. */
void kb_group_advance(struct kb_group *g, int64_t by_us);
void kb_group_free(struct kb_group *g, int16_t code); /* who waits is answered with it: NOT_COORDINATOR, … */

/* ---- Requests. All have passed what needs no group: the id, the session's bounds. ---- */
struct kb_join {
    struct kw_str member_id, instance_id; /* "": a new member; null: not static */
    struct kw_str protocol_type, client_id, client_host;
    int32_t session_timeout_ms, rebalance_timeout_ms;
    const struct kw_join_group_request_protocol *protocols; /* by preference */
    int32_t protocol_count;
    bool id_required; /* a new member gets its id first (KIP-394) */
    bool skips;       /* the client knows skip_assignment */
};
void kb_group_join(struct kb_group *g, const struct kb_join *j, struct kb_group_wait *w, struct kb_now now);

struct kb_sync {
    struct kw_str member_id, instance_id, protocol_type, protocol; /* the last three may be null */
    int32_t generation;
    const struct kw_sync_group_request_assignment *assignments;
    int32_t assignment_count;
};
void kb_group_sync(struct kb_group *g, const struct kb_sync *s, struct kb_group_wait *w, struct kb_now now);

int16_t kb_group_heartbeat(struct kb_group *g, struct kw_str member_id, struct kw_str instance_id, int32_t generation, struct kb_now now);
int16_t kb_group_leave(struct kb_group *g, struct kw_str member_id, struct kw_str instance_id, struct kw_str reason, struct kb_now now);
/* May who says this commit offsets? A commit is a sign of life, too. */
int16_t kb_group_may_commit(struct kb_group *g, struct kw_str member_id, struct kw_str instance_id, int32_t generation, struct kb_now now);

/* ---- What is stored ---- */
/* The group as it is to be stored; views of it and of the arena, until the group is called again. */
kw_err kb_group_record(const struct kb_group *g, struct kw_arena *a, struct kw_group_metadata_value *v) KW_CHECK;
void kb_group_stored(struct kb_group *g, uint64_t number, int16_t code, struct kb_now now); /* KE_NONE, or why not: as members are told */
/* A group without members takes over what was stored of it. Sessions stand still until kb_group_begin. KW_EINVAL: no classic group's
 * record. */
kw_err kb_group_restore(struct kb_group *g, const struct kw_group_metadata_value *v) KW_CHECK;
void kb_group_begin(struct kb_group *g,
                    struct kb_now now); /* its coordinator serves from now on: every member has its whole session time */

/* ---- What it says ---- */
void *kb_group_owner(const struct kb_group *g);
struct kw_str kb_group_id(const struct kb_group *g);
enum kb_group_state kb_group_state(const struct kb_group *g);
int32_t kb_group_generation(const struct kb_group *g);
int32_t kb_group_size(const struct kb_group *g);                /* members */
bool kb_group_is_unused(const struct kb_group *g);              /* no member, nobody about to become one, nothing that waits to be stored */
int64_t kb_group_since_ms(const struct kb_group *g);            /* wall clock of its last change of state; -1: none was ever stored */
struct kw_str kb_group_protocol_type(const struct kb_group *g); /* "": not known */
struct kw_str kb_group_protocol(const struct kb_group *g);      /* null: none agreed on yet */
/* Does a member consume this topic? Of a group of consumers (protocol type "consumer") by their subscriptions; what cannot be read counts
 * as yes. */
bool kb_group_subscribes(const struct kb_group *g, struct kw_str topic);

/* for (const struct kb_member *m = NULL; (m = kb_group_next(g, m));) — in the order of joining. */
const struct kb_member *kb_group_next(const struct kb_group *g, const struct kb_member *m);
struct kb_member_view {
    struct kw_str id, instance_id, client_id, client_host;
    struct kw_bytes metadata; /* for the agreed protocol; empty before there is one */
    struct kw_bytes assignment;
};
void kb_member_view(const struct kb_group *g, const struct kb_member *m, struct kb_member_view *v);

#endif
