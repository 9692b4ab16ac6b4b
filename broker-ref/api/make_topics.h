/* make_topics.h - topics that a client's request needs first: made by this node where it is the controller, else asked of the controller.
 *
 * Called by metadata (topics made on first use) and find_coordinator (__consumer_offsets). Calls controller, forward.
 */
#ifndef KB_MAKE_TOPICS_H
#define KB_MAKE_TOPICS_H

#include "admin.h"
#include "forward.h"

struct kb_make_topics { /* in the request's arena */
    /* given */
    struct kb_request *rq;
    struct kb_topic_create *creates; /* without assignments; their results come here */
    int32_t count;
    /* Once: the image has what was made, or result.code says why not: LEADER_NOT_AVAILABLE when nobody could be asked. */
    void (*done)(struct kb_make_topics *m);
    void *ctx;
    /* its own */
    struct kb_forward forward;
};
/* Takes rq->state and rq->abandon. KW_ENOMEM: done does not come. */
kw_err kb_make_topics(struct kb_make_topics *m, int32_t timeout_ms) KW_CHECK;

#endif
