/* elect.h - who leads a partition, and who is in sync, once something is known of its brokers: pure functions of what the image says.
 *
 * Called by the controller (controller_sweep.c, controller_isr.c, controller_reassign.c, controller_elect.c) and by store_boot.c, so that a
 * quorum of one and a cluster decide alike. Calls nothing but the image's look-ups. KIP-631, KIP-841, KIP-966; the rules:
 *
 * - The first replica in assignment order leads that is in sync and alive; who leads already goes on leading.
 * - The in-sync replicas become their live members. Is none alive, they stay whole and nobody leads: the last to go are the first to lead.
 * - A replica that may have lost what it acknowledged (its machine went down) leaves the in-sync replicas, unless it is the last of them: then it
 *   leads only as the "last known leader", where that is allowed, and the doubt is told. One on another disk than the partition was put on
 *   has nothing: it never leads where there are other replicas. One whose log failed (its directory is "lost", KIP-858) is not alive until it
 *   has a directory again.
 * - Unclean election, where it is allowed and nobody is left: any live replica in assignment order, those with losses last.
 */
#ifndef KB_ELECT_H
#define KB_ELECT_H

#include "../config.h"
#include "image.h"
#include "kw_messages.h"

/* What is known of one replica's broker. */
enum {
    KB_REPLICA_ALIVE = 1,  /* registered, and not fenced */
    KB_REPLICA_STAYS = 2,  /* and is not about to stop */
    KB_REPLICA_LOST = 4,   /* what it had and not synced may be lost: it comes back from a machine's end */
    KB_REPLICA_WIPED = 8,  /* another disk than the partition was put on */
    KB_REPLICA_WEAK = 16,  /* was LOST when it registered, and has not been in sync since: the last choice of unclean elections */
};

struct kb_elect_rules {
    bool unclean;    /* unclean.leader.election.enable */
    bool last_known; /* last.known.leader.enable */
    bool preferred;  /* the first replica shall lead where it can */
    bool anew;       /* a leader that stays gets a new epoch */
};
/* Arrays are the caller's, with room for all replicas. */
struct kb_elected {
    int32_t leader;
    bool led_anew; /* a new leader epoch is due */
    bool changed;  /* a record is due */
    int32_t *isr, isr_count;
    bool lossy;    /* unclean: the leader was not in sync */
    bool doubtful; /* the last known leader leads though it may have lost something */
    bool gave_up;  /* the last replica, isr[0], may not lead any more: nobody is in sync, and it is remembered as the last known leader */
    bool cleared;  /* eligible and last known replicas of the partition are void */
};

/* states[i] belongs to replicas[i]. */
void kb_elect(const struct kb_image_partition *p, const uint8_t *states, const struct kb_elect_rules *rules, struct kb_elected *e);

extern const struct kw_uuid kb_directory_lost;
/* kbroker's own, of those that Apache Kafka reserves, and in no record: a replica's log is there and lacks something that it had acknowledged. */
extern const struct kw_uuid kb_directory_lacking;
/* Its directory is that: its broker said that its log failed. */
bool kb_elect_is_lost(const struct kb_image_partition *p, int32_t replica);
/* Is the replica's directory, as the partition has it, none of these? Reserved ids (unassigned, lost, migrating) are any. */
bool kb_elect_other_disk(const struct kb_image_partition *p, int32_t replica, const struct kw_uuid *dirs, int32_t dir_count);
bool kb_elect_has(const int32_t *v, int32_t n, int32_t id);
bool kb_elect_same(const int32_t *a, int32_t n, const int32_t *b, int32_t m); /* in the same order */

#endif
