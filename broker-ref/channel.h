/* channel.h - the way to the active controller, wherever it is: another node through a link, or this node itself by an internal request
 * (no socket; it takes the same way through dispatch and API, but fault rules do not strike it).
 *
 * Called by lifecycle, forward, pid_source, replica/isr. Calls quorum/store (who leads), link, dispatch.
 */
#ifndef KB_CHANNEL_H
#define KB_CHANNEL_H

#include "link.h"

struct kb_request;

kw_err kb_channel_new(struct kb_node *n) KW_CHECK;
void kb_channel_free(struct kb_node *n); /* calls under way: done is not called */

/* To the controller that the store knows of now. KW_EBUSY: none is known, or it could not be reached a moment ago: try again on a timer
 * of your own, 20 to 100 ms later. KW_ELIMIT, KW_ENOMEM. The answer, or that there is none (KW_EIO), comes as link.h says. A controller that
 * has just lost its office answers NOT_CONTROLLER: try again likewise. A call that went to one controller is not failed because another
 * takes over. */
kw_err kb_channel_call(struct kb_node *n, struct kb_call *c, const struct kw_desc *request, int16_t version, const void *msg,
                       int64_t timeout_us, struct kb_now now) KW_CHECK;
kw_err kb_channel_relay(struct kb_node *n, struct kb_call *c, int16_t api_key, int16_t version, const uint8_t *body, size_t size,
                        int64_t timeout_us, struct kb_now now) KW_CHECK;

/* A request of this node to itself, whoever leads: its API runs at the end of this turn, its encoded answer comes to the call. */
kw_err kb_channel_to_self(struct kb_node *n, struct kb_call *c, int16_t api_key, int16_t version, const struct kw_desc *request,
                          const void *msg, const uint8_t *body, size_t size, int64_t timeout_us, struct kb_now now) KW_CHECK;

/* Where a node of the quorum, or a broker, is reached by other nodes. false: not known. host has room for 256 bytes. */
bool kb_channel_address(const struct kb_node *n, int32_t id, char host[256], uint16_t *port);

#endif
