/* group_priv.h - what a group is inside: for classic.c (members, generations), classic_join.c and classic_sync.c (requests). */
#ifndef KB_GROUP_PRIV_H
#define KB_GROUP_PRIV_H

#include "base/map.h"
#include "group.h"
#include "wire/kerror.h"

#define KB_GROUP_NEW_MEMBER_US                                                                                                             \
    300000000                     /* how long one that waits for its first rebalance is kept, as Kafka does: its client may have given up */
#define KB_GROUP_PROTOCOLS_MAX 64 /* assignors that a member may name */
#define KB_GROUP_PENDING_MAX 10000 /* ids given out, not yet used */

struct kb_member {
    struct kw_list link; /* in group->members */
    struct kb_group *group;
    char *id, *instance_id;        /* instance_id NULL: not static */
    char *client_id, *client_host; /* these and the protocols lie in `said` */
    void *said;
    int32_t session_timeout_ms, rebalance_timeout_ms;
    struct kb_member_protocol {
        struct kw_str name;
        struct kw_bytes metadata;
    } * protocols;
    int32_t protocol_count;
    uint8_t *assignment;
    int32_t assignment_size;
    bool is_new;         /* has not been through a rebalance */
    bool joined, synced; /* in the rebalance under way; without a wait: its connection closed meanwhile */
    struct kb_group_wait *join_wait, *sync_wait;
    struct kw_timer timer;    /* always armed; fires early, and looks at */
    int64_t deadline_us;      /* its session's end */
    uint64_t replaced_number; /* a static member that came back under another id: what has to be stored before it is answered; 0 */
    char *replaced_id;        /* as it was called before */
    bool replaced_leader;
};

struct kb_pending { /* an id that a new member was told to join with */
    struct kb_group *group;
    struct kw_timer timer;
    char id[];
};

struct kb_group {
    const struct kb_group_env *env;
    void *owner;
    char *id;
    enum kb_group_state state;
    int32_t generation, count, joined, synced;
    int64_t since_ms;
    char *protocol_type, *protocol; /* NULL: none */
    struct kb_member *leader;
    struct kw_list members;
    struct kw_map by_id, by_instance, pending;
    struct kw_timer timer; /* always armed */
    int64_t deadline_us;   /* PREPARING: when it goes on without those who have not joined. COMPLETING, STABLE: without those who have not
                              asked. Else KW_NEVER */
    bool delaying, newcomer;
    int64_t delay_left_us;
    uint64_t number, sync_number, stored; /* given out; of the leader's assignment, 0: none under way; confirmed */
};

/* classic.c */
void kb_group_state_set(struct kb_group *g, enum kb_group_state s, struct kb_now now);
uint64_t kb_group_store(struct kb_group *g, struct kb_now now);
struct kb_member *kb_group_member(const struct kb_group *g, struct kw_str id);
/* Who says it is this member: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, or none. */
int16_t kb_group_check_member(const struct kb_group *g, struct kw_str id, struct kw_str instance_id, struct kb_member **m);
kw_err kb_member_say(struct kb_member *m, const struct kb_join *j) KW_CHECK; /* takes over what a join says; unchanged on an error */
kw_err kb_group_add(struct kb_group *g, const struct kb_join *j, struct kw_str id, struct kb_now now, struct kb_member **m) KW_CHECK;
void kb_group_drop(struct kb_member *m, int16_t code, struct kb_now now); /* and what follows from it */
kw_err kb_member_rename(struct kb_member *m, struct kw_str id, char **old) KW_CHECK;
void kb_member_alive(struct kb_member *m, struct kb_now now);
bool kb_member_matches(const struct kb_member *m, const struct kb_join *j);
bool kb_group_supports(const struct kb_group *g, const struct kb_join *j);
struct kw_str kb_group_select(const struct kb_group *g); /* the protocol that all know and most like best; null without members */

/* classic_join.c */
void kb_group_prepare(struct kb_group *g, struct kb_now now); /* a rebalance begins */
void kb_group_maybe_complete(struct kb_group *g, struct kb_now now);
void kb_group_complete(struct kb_group *g, struct kb_now now); /* it goes on with those who have joined */
void kb_group_join_error(struct kb_group_wait *w, int16_t code, struct kw_str member_id);
void kb_group_replaced(struct kb_group *g, int16_t code, struct kb_now now); /* what was under way was stored, or not */
kw_err kb_group_pend(struct kb_group *g, struct kw_str id, int64_t until_us) KW_CHECK;
bool kb_group_unpend(struct kb_group *g, struct kw_str id);

/* classic_sync.c */
void kb_group_reset_sync(struct kb_group *g, int16_t code, struct kb_now now); /* who waits for an assignment is told; nobody has one */
void kb_group_sync_error(struct kb_member *m, int16_t code, struct kb_now now);
void kb_group_sync_stored(struct kb_group *g, int16_t code, struct kb_now now);

#endif
