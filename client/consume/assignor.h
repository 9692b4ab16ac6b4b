/* assignor.h - how a group's leader shares partitions out among its members: range, roundrobin, sticky, cooperative-sticky. Pure functions.
 *
 * What the members say and are given has Apache Kafka's form (ConsumerProtocol, and the user data of its sticky assignors), so that members
 * of any client can be in one group, and any of them may lead. Called by group_classic. Calls wire/codec, base/. KIP-54 (sticky), 341, 429,
 * 792.
 */
#ifndef KC_ASSIGNOR_H
#define KC_ASSIGNOR_H

#include "base/arena.h"
#include "kw_messages.h"

enum kc_assignor { KC_ASSIGN_RANGE, KC_ASSIGN_ROUNDROBIN, KC_ASSIGN_STICKY, KC_ASSIGN_COOPERATIVE_STICKY, KC_ASSIGNOR_COUNT };
const char *kc_assignor_name(enum kc_assignor how); /* as members agree on it: "cooperative-sticky" */
bool kc_assignor_by_name(struct kw_str name, enum kc_assignor *how);
bool kc_assignor_is_cooperative(enum kc_assignor how); /* partitions that stay are kept over a rebalance (KIP-429) */

struct kc_share { /* a member's, as given or as it has it: topics by name, each once, partitions ascending */
    struct kw_consumer_protocol_assignment_topic_partition *topics;
    int32_t topic_count;
};

/* What a member says in JoinGroup. */
struct kc_subscription {
    const struct kw_str *topics;
    int32_t topic_count;
    struct kc_share owned;
    int32_t generation; /* that gave it `owned`; -1 none */
    struct kw_str rack; /* null: none */
};
/* Appends it as `how` has members say it. */
kw_err kc_subscription_write(enum kc_assignor how, const struct kc_subscription *s, struct kw_out *out) KW_CHECK;
/* The same as any client may have said it. Views of the bytes and the arena. KW_EDECODE: malformed; what a newer version may have behind it
 * is ignored. */
kw_err kc_subscription_read(enum kc_assignor how, struct kw_bytes b, struct kw_arena *a, struct kc_subscription *s) KW_CHECK;

/* What a member is given in SyncGroup. Empty bytes: nothing. */
kw_err kc_share_write(const struct kc_share *s, struct kw_out *out) KW_CHECK;
kw_err kc_share_read(struct kw_bytes b, struct kw_arena *a, struct kc_share *s) KW_CHECK;

struct kc_member_in {
    struct kw_str id, instance_id; /* instance_id null: not static */
    struct kc_subscription said;
};
/* Shares the partitions out: shares[i] is member i's, in the arena. partitions tells how many a topic has, 0: there is none. With
 * cooperative-sticky what moves is given to nobody in this rebalance, so that it is given up first; the next one gives it. */
kw_err kc_assign(enum kc_assignor how, const struct kc_member_in *members, size_t count,
                 int32_t (*partitions)(void *ctx, struct kw_str topic), void *ctx, struct kw_arena *a, struct kc_share *shares) KW_CHECK;

#endif
