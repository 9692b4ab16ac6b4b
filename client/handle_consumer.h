/* handle_consumer.h - what stands behind kc_consumer, for the files that implement its calls: handle_consumer.c (life, polling, assignment),
 * handle_commit.c (commits), handle_group.c (subscriptions).
 */
#ifndef KC_HANDLE_CONSUMER_H
#define KC_HANDLE_CONSUMER_H

#include "consume/commit.h"
#include "consume/consumer.h"
#include "handle.h"

struct kc_consumer {
    kc_client *client; /* held */
    struct kc_settings *settings;
    struct kc_consume consume; /* and, with group.id, consume.commits */
    _Atomic bool closed, polling, wake, gone; /* gone: nothing is outstanding in loop context */
    struct kc_post post;                      /* kc_consume_start, run, stop */
    struct kc_post free_post;                 /* after it no call of the application comes */
    bool freed;                               /* loop context */
    struct kw_list closers;                   /* struct close_op.link; loop context */
    struct kc_ready_source ready;
    kc_processed_mode mode;
    /* closing, with group.id */
    _Atomic int64_t close_by_us; /* the deadline of the first close; until then what is processed is committed */
    bool draining, drained;      /* loop context */
    struct kc_commit_drain drain;
};

/* KC_OK, or why no call may go on. */
kc_err kc_consumer_enter(kc_consumer *c);
/* The same, of a call over an array. */
kc_err kc_consumer_enter_each(kc_consumer *c, const void *parts, size_t stride, size_t size, size_t n);
/* handle_commit.c: what group.id asks for. The error is made. */
kc_err kc_consumer_group_new(kc_consumer *c, kc_error **error);
/* Loop context: before the consumer ends, what is processed is committed: false while that is under way; its end posts c->post. */
bool kc_consumer_drained(kc_consumer *c);
/* handle_group.c. Loop context: before the consumer ends, it gives its partitions up and leaves the group: false while that is under way; its end
 * posts c->post. */
bool kc_consumer_left(kc_consumer *c);
/* The first item's error, for callers that look no further. */
kc_err kc_consumer_first_error(const kc_topic_partition *parts, size_t stride, size_t n);

#endif
