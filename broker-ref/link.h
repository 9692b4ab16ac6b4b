/* link.h - a connection that this node opens to another one, made for one purpose: requests out, answers in their order. No I/O: what a
 * link wants of the shell goes through its dial (node.h).
 *
 * Called by channel, lifecycle, quorum/, replica/follower. Calls wire/frame. Requests between nodes are sent at fixed versions (all nodes
 * of a cluster are of one release), with the client id kbroker-<id of the sender> (and KB_NODE_ASKS where forward.h says so). Reconnecting is
 * the user's business.
 */
#ifndef KB_LINK_H
#define KB_LINK_H

#include "node.h"
#include "wire/codec.h"

/* One request under way. The memory is the caller's, and stays until `done` or kb_call_cancel; zero it before its first use. */
struct kb_call {
    /* Once, never from within the function that began the call: KW_OK and the answer's body (views into blk, whose bytes stay while a reference to it is
     * held: kw_blk_ref); or KW_EIO (the connection failed or ended, or the time was up): whether the request had its effect is not known
     * then. The call may be used again from here, and link and call may be freed. */
    void (*done)(struct kb_call *c, kw_err err, struct kw_in *body, struct kw_blk *blk, struct kb_now now);
    void *ctx;
    /* whoever carries it */
    void (*cancel)(struct kb_call *c); /* NULL: not under way */
    void *carrier;
};
static inline bool kb_call_is_under_way(const struct kb_call *c) { return c->cancel != NULL; }
void kb_call_cancel(struct kb_call *c); /* done will not be called: the answer is thrown away. Nothing where the call is not under way */

struct kb_link;
struct kb_link_options {
    struct kb_node *node;
    const char *host; /* copied; a name or a literal address */
    uint16_t port;
    void (*opened)(void *ctx, struct kb_link *l, struct kb_now now); /* connected; may be NULL */
    /* The connection, or the attempt at one, is over, and all its calls have been failed. May be NULL. The link may be dialed again (mind
     * a pause) or freed from here. */
    void (*ended)(void *ctx, struct kb_link *l, enum kb_link_end how, struct kb_now now);
    void *ctx;
};
kw_err kb_link_new(const struct kb_link_options *o, struct kb_link **l) KW_CHECK;
void kb_link_free(struct kb_link *l); /* NULL is fine. Nothing is called any more, done of calls under way neither; the connection closes */
/* Where there is no connection (KW_EBUSY otherwise). It may take 1 s to come about. KW_ENOMEM. */
kw_err kb_link_dial(struct kb_link *l, struct kb_now now) KW_CHECK;
void kb_link_close(struct kb_link *l, struct kb_now now); /* calls fail, `ended` comes (KB_LINK_CLOSED), both by the end of the turn */
bool kb_link_is_open(const struct kb_link *l);            /* connected */
bool kb_link_is_idle(const struct kb_link *l);            /* neither connected nor about to be */
/* Encodes and queues; also while the connection is not there yet. KW_EBUSY: idle, or closing. KW_ELIMIT: too many calls or bytes are under way.
 * timeout_us from now on; when it is over the connection ends (KB_LINK_TIMED_OUT), since the answers that come after would be late too. */
kw_err kb_link_call(struct kb_link *l, struct kb_call *c, const struct kw_desc *request, int16_t version, const void *msg,
                    int64_t timeout_us, struct kb_now now) KW_CHECK;
/* The same for a body that is encoded already (copied). */
kw_err kb_link_relay(struct kb_link *l, struct kb_call *c, int16_t api_key, int16_t version, const uint8_t *body, size_t n,
                     int64_t timeout_us, struct kb_now now) KW_CHECK;
size_t kb_link_call_count(const struct kb_link *l); /* calls that wait for their answers, those cancelled with them */

/* ---- The node's own ---- */

struct kb_links { /* of a node: what the shell has to look at, and what it holds */
    struct kw_list dials, ready, closing;
    char client_id[24], asking_id[40]; /* kbroker-<id>; of what this node asks of the controller for itself or others */
};
void kb_links_end_of_turn(struct kb_node *n);
void kb_links_init(struct kb_links *ls, int32_t id);
void kb_links_deinit(struct kb_links *ls); /* every link is free; the shell has closed its sockets */
/* A request's whole frame, as this node sends it: msg, or a body that is encoded already. */
kw_err kb_link_frame(struct kb_node *n, struct kw_out *out, const struct kw_api *api, int16_t version, int32_t correlation, const void *msg,
                     const uint8_t *body, size_t size) KW_CHECK;

#endif
