/* coordinator.h - which broker coordinates a key (a group, later a transactional id), and requests to that broker.
 *
 * A coordinator is one key of a client: found when somebody first needs it, remembered, forgotten when it proves wrong, and shared by all
 * users of the key: one learns of a move from what another was told. A request for it is an ordinary kc_request:
 *
 *   kc_coordinator_aim(c, &rq);             rq.broker = KC_BROKER_COORDINATOR, rq.coordinator = c, the control lane
 *   kc_core_send(core, &rq);                waits until a broker is known and connected, at most until rq.deadline_us
 *   done: err == KC_OK: decode; for each error code in the answer (and for err itself):
 *         if (kc_coordinator_failed(c, &rq, code)) send it again after a backoff of your own
 *
 * What the request waits for is retried here, with backoff: FindCoordinator that fails or names nobody, a coordinator that cannot be
 * connected to or has left the metadata (it is looked for anew, CX-18). It fails early only for what waiting cannot mend: the coordinator may not
 * be looked for (GROUP_AUTHORIZATION_FAILED, INVALID_GROUP_ID), KC_UNSUPPORTED. The deadline gives what KC_BROKER_ANY gives, with the
 * attempts in between noted. Written to a broker, it is not sent again by itself: it may have taken effect, and `done` decides.
 *
 * A coordinator lives while somebody holds it; at the last unref no request may be aimed at it any more.
 *
 * Loop context. Called by consume/group*, consume/commit*. Implemented by coordinator.c with request.c, which queues what waits. KIP-699
 * (several keys in one request, from version 4 on; before, a key a request).
 */
#ifndef KC_COORDINATOR_H
#define KC_COORDINATOR_H

#include "core.h"

enum kc_coordinator_type { KC_COORDINATOR_GROUP = 0, KC_COORDINATOR_TRANSACTION = 1 }; /* FindCoordinator's key types */
#define KC_COORDINATORS_MAX 10000 /* keys of one client */

struct kc_coordinator;

/* The client's one for this key, made if need be: a hold. The key is copied; 1 to 32767 bytes. NULL: no memory, or KC_COORDINATORS_MAX. */
struct kc_coordinator *kc_coordinator_open(struct kc_core *core, enum kc_coordinator_type type, struct kw_str key);
void kc_coordinator_unref(struct kc_coordinator *c); /* NULL is fine. Also after kc_core_stop, not after kc_core_free */

/* Makes rq (initialised, idle) one for the coordinator, on the control lane. Requests whose answers wait for others, such as JoinGroup, choose
 * a lane of their own afterwards. */
void kc_coordinator_aim(struct kc_coordinator *c, struct kc_request *rq);
/* In `done`: what an error says of the coordinator. err: rq's own, or a code in its answer; KC_OK: it served. NOT_COORDINATOR,
 * COORDINATOR_NOT_AVAILABLE, a lost connection and no answer in time make it forget the broker that rq went to, unless another one is known by now.
 * True: the same request may succeed when it is sent again (the sender waits out its backoff first): those, COORDINATOR_LOAD_IN_PROGRESS, and
 * whatever else is retriable by its code. */
bool kc_coordinator_failed(struct kc_coordinator *c, const struct kc_request *rq, kc_err err);
/* Looks for it now if it is not known, so that a request later need not wait. */
void kc_coordinator_find(struct kc_coordinator *c);

int32_t kc_coordinator_broker(const struct kc_coordinator *c);  /* node id, -1: not known now */
kc_err kc_coordinator_last(const struct kc_coordinator *c);     /* why it is not known; KC_OK: it is, or nobody asked, or the answer is awaited */
/* For kc_consumer_why and error texts: "the coordinator of group g is broker 2: connected to …", "… is looked for since 1.2 s: COORDINATOR_NOT_AVAILABLE". */
void kc_coordinator_status(struct kc_coordinator *c, char *text, size_t size);

#endif
