/* channel.h - the way to the active controller, wherever it is: another node through a link, or this node itself by an internal request
 * (no socket; it takes the same way through dispatch and API, but fault rules do not strike it).
 *
 * Called by lifecycle, forward, pid_source, replica/isr. Calls quorum/store (who leads), link, dispatch.
 */
#ifndef KB_CHANNEL_H
#define KB_CHANNEL_H

#include "link.h"

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

/* A connection to a voter that is kept, made when something is to be sent; zeroed and then init. After one that did not come about there is a pause of
 * 50 ms, after one that ended pause_us. */
struct kb_voter_link {
    struct kb_node *node;
    struct kb_link *link; /* NULL: none was wanted yet */
    int32_t id;
    int64_t pause_us;
    void (*ended)(void *ctx, enum kb_link_end how, struct kb_now now); /* its calls have failed; may be NULL */
    void *ctx;
    bool opened;
    int64_t pause_until_us;
};
/* Connected, or about to be: calls may be made. KW_EBUSY: its address is not known, or it is to be left alone for a moment. KW_ENOMEM. */
kw_err kb_voter_link_want(struct kb_voter_link *v, struct kb_now now) KW_CHECK;
void kb_voter_link_drop(struct kb_voter_link *v); /* it ends, without a word; another may be wanted at once */

/* A request of this node to itself, whoever leads: its API runs at the end of this turn, its encoded answer comes to the call. */
struct kb_call_body {
    int16_t api_key, version;
    const void *msg;      /* the message, or */
    const uint8_t *bytes; /* its encoding */
    size_t size;
};
kw_err kb_channel_to_self(struct kb_node *n, struct kb_call *c, const struct kb_call_body *b, int64_t timeout_us,
                          struct kb_now now) KW_CHECK;

/* Where other nodes reach a voter (controller.quorum.voters), or a broker (its registration: the listener that inter.broker.listener.name
 * says, else its first). false: not known. */
#define KB_HOST_SIZE 256
bool kb_channel_voter_address(const struct kb_node *n, int32_t id, char host[KB_HOST_SIZE], uint16_t *port);
bool kb_channel_broker_address(const struct kb_node *n, int32_t id, char host[KB_HOST_SIZE], uint16_t *port);

/* request.c: such a request is answered (msg), or will not be (NULL). It goes after this. */
struct kb_inner;
void kb_inner_answered(struct kb_inner *in, const void *msg);

#endif
