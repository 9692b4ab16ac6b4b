/* request.h - one request on its way through the broker: dispatch -> api/X -> (purgatory) -> reply.
 *
 * An API file is `void kb_api_x(struct kb_request *rq)`: decode, act, answer — now, or later from a callback. Every request is answered
 * exactly once: kb_request_reply, or kb_request_drop (acks=0), or kb_request_close. Replies leave in request order per connection; dispatch
 * sees to that.
 */
#ifndef KB_REQUEST_H
#define KB_REQUEST_H

#include "node.h"
#include "base/arena.h"
#include "wire/codec.h"
#include "wire/frame.h"
#include "wire/kerror.h"

struct kb_inner;
struct kb_request {
    struct kw_list link; /* in its connection, in order of arrival */
    struct kb_node *node;
    struct kb_conn *conn; /* NULL once the connection has gone: answers are discarded */
    struct kw_frame_request head;
    struct kw_blk *blk; /* the block that holds the frame (referenced) */
    struct kw_in body;
    struct kw_arena arena; /* decoded body and anything else until the answer */
    struct kb_now arrived;
    void *state;                            /* the API's own, in the arena */
    void (*abandon)(struct kb_request *rq); /* set while waiting (purgatory, controller): called when the connection goes; the API unhooks
                                               itself and drops */
    void (*cleanup)(struct kb_request *rq); /* set where the API holds more than the arena: called last */
    void (*hurry)(struct kb_request *rq);   /* set where it waits for what another request of its connection tells: that one is here. Called once */
    /* conn, dispatch and fault: the way of the request through the node */
    size_t frame_size;
    kw_err head_err;
    bool started, answered;
    bool later;                 /* KB_API_OF_GROUP */
    bool closes;                /* its turn to answer ends the connection */
    struct kb_reply *reply;     /* the answer, until the earlier ones of the connection are out; NULL: none is due */
    struct kb_inner *inner;     /* asked by this node itself (channel.c): the answer goes there. NULL: by a connection, or given up */
    struct kb_fault_hit *fault; /* the rule that struck, NULL: none */
    struct kw_timer timer;      /* a fault rule's delay */
};

/* Encodes the response (version and header as the request's) and queues it. Records fields with a ref are a struct kb_read * whose slices
 * are sent, and taken over, in place of bytes; other records bytes are copied. */
void kb_request_reply(struct kb_request *rq, const void *msg);
/* The same for a body that another node has encoded, in the request's version; blk holds it. */
void kb_request_relay(struct kb_request *rq, const uint8_t *body, size_t size, struct kw_blk *blk);
void kb_request_drop(struct kb_request *rq);                   /* no answer is due */
void kb_request_close(struct kb_request *rq, const char *why); /* logs and closes the connection: protocol violations */
/* Decodes the body into *msg; on failure logs, closes the connection and returns the error: the API just returns. */
kw_err kb_request_decode(struct kb_request *rq, void *msg) KW_CHECK;

typedef void kb_api_fn(struct kb_request *rq);
struct kb_api_entry { /* dispatch's table: what this broker serves; ApiVersions answers from it */
    int16_t key, min, max;
    kb_api_fn *fn;
    unsigned traits;
};
enum kb_api_trait {
    KB_API_EARLY = 1,         /* of the quorum and its brokers: served before the node is READY */
    KB_API_ON_BROKER = 2,     /* by a node of that role */
    KB_API_ON_CONTROLLER = 4,
    KB_API_FORWARDED = 8,     /* only the active controller can: asked of any other node it is passed on */
    KB_API_CHANGES = 16,      /* the metadata: an answer that was passed on waits until this node's image has it */
    KB_API_OF_GROUP = 32,     /* answered from amidst a group: what follows on its connection begins when nobody is in the group's code any more */
};
extern const struct kb_api_entry kb_api_table[];
extern const size_t kb_api_table_count;
const struct kb_api_entry *kb_api_entry(int16_t key); /* NULL: not served at all */

#endif
