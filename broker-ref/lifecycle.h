/* lifecycle.h - a broker's standing with the controller: registered, kept alive by heartbeats, unfenced, and handed over at a clean stop.
 *
 * Only where the controller may be another node: a quorum of one registers itself (quorum/store_boot). Called by node. Calls link (one connection of
 * its own to the active controller, which takes its end for a hint of death), channel (itself as the controller), store, image.
 * KIP-631, 841, 966; specs of the design §2.7-2.9, 2.20.
 */
#ifndef KB_LIFECYCLE_H
#define KB_LIFECYCLE_H

#include "node.h"

struct kb_lifecycle;

kw_err kb_lifecycle_new(struct kb_node *n) KW_CHECK; /* n->lifecycle stays NULL where there is nothing for it to do */
void kb_lifecycle_free(struct kb_node *n);
/* The image has reached what the leader had committed: registers. Fenced until kb_lifecycle_opened says that the logs are open. */
void kb_lifecycle_start(struct kb_node *n, struct kb_now now);
void kb_lifecycle_opened(struct kb_node *n, struct kb_now now);
/* The image moved: the node may have become known as unfenced (kb_node_unfenced is told once), or the next heartbeat has news. */
void kb_lifecycle_applied(struct kb_node *n, struct kb_now now);
void kb_lifecycle_turn(struct kb_node *n, struct kb_now now); /* once a turn: another controller is told at once that this broker lives */
/* The controller has not answered for so long that it may have fenced this broker: others may lead what this one leads. */
bool kb_lifecycle_may_be_fenced(const struct kb_node *n, struct kb_now now);
/* No log of this node works any more. The controller is told in a last heartbeat (KIP-858), for about half a second at most; then the node fails. */
void kb_lifecycle_disk_failed(struct kb_node *n, struct kb_now now);
/* A clean stop: leaderships are handed over while the node serves on; then done, in a later turn. At most 5 s, and no longer than a controller is
 * reachable. false: there is nothing to hand over, done is not called. */
bool kb_lifecycle_leave(struct kb_node *n, void (*done)(struct kb_node *n, struct kb_now now), struct kb_now now);

#endif
