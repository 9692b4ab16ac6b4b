/* purgatory.h - requests that wait on partitions: produce for its offsets to be acknowledgeable, fetch for enough bytes. One place, one
 * timer each.
 *
 * A waiter hangs on one or more partitions. When a partition's written mark, high watermark, leadership or state moves, its waiters are
 * asked
 * (`check`); a waiter that is satisfied completes and unhooks itself; its deadline completes it with what there is.
 */
#ifndef KB_PURGATORY_H
#define KB_PURGATORY_H

#include "partition.h"

struct kb_waiter;
struct kb_wait_hook { /* one per partition waited on, in the request's arena */
    struct kw_list link;
    struct kb_waiter *waiter;
    struct kb_partition *partition; /* NULL once unhooked */
    void *of;                       /* the waiter's own, NULL at first: which of the things that it waits for */
};
struct kb_waiter {
    struct kw_timer timer;
    struct kb_node *node;
    struct kb_wait_hook *hooks;
    size_t hook_count, hook_count_max;
    struct kb_wait_hook *asked; /* during check: the hook by which */
    void (*check)(struct kb_waiter *w, struct kb_partition *moved, struct kb_now now);
    void (*expire)(struct kb_waiter *w, struct kb_now now);
    void *ctx;
};

void kb_waiter_init(struct kb_waiter *w, struct kb_wait_hook *hooks, size_t hook_count_max);
kw_err kb_waiter_arm(struct kb_waiter *w, struct kb_node *n, int64_t deadline_us) KW_CHECK;
struct kb_wait_hook *kb_waiter_hook(struct kb_waiter *w, struct kb_partition *p);
void kb_waiter_unhook(struct kb_wait_hook *h);                      /* this partition is asked no more */
void kb_waiter_done(struct kb_waiter *w, struct kb_node *n);        /* unhooks everywhere, cancels the timer */
void kb_purgatory_moved(struct kb_partition *p, struct kb_now now); /* asks p's waiters; safe when they unhook meanwhile */

#endif
