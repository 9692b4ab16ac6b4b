/* purgatory.c - the one place where requests wait on partitions. Called by api/produce, api/fetch, api/delete_records and partition. */
#include "purgatory.h"

#include "../node_priv.h"

static void fire(struct kw_timer *t, void *ctx, int64_t now_us) {
    (void)t;
    struct kb_waiter *w = ctx;
    struct kb_now now = w->node->now;
    now.mono_us = KW_MAX(now.mono_us, now_us);
    w->expire(w, now);
}

void kb_waiter_init(struct kb_waiter *w, struct kb_wait_hook *hooks, size_t hook_count_max) {
    memset(w, 0, sizeof(*w));
    kw_timer_init(&w->timer, fire, w);
    w->hooks = hooks;
    w->hook_count_max = hook_count_max;
}

kw_err kb_waiter_arm(struct kb_waiter *w, struct kb_node *n, int64_t deadline_us) {
    w->node = n;
    return kw_timers_set(&n->parts.timers, &w->timer, deadline_us);
}

struct kb_wait_hook *kb_waiter_hook(struct kb_waiter *w, struct kb_partition *p) {
    KW_ASSERT(w->hook_count < w->hook_count_max);
    struct kb_wait_hook *h = &w->hooks[w->hook_count++];
    h->waiter = w;
    h->partition = p;
    h->of = NULL;
    kw_list_init(&h->link);
    kw_list_push(&p->waiters, &h->link);
    return h;
}

void kb_waiter_unhook(struct kb_wait_hook *h) {
    kw_list_remove(&h->link);
    h->partition = NULL;
}

void kb_waiter_done(struct kb_waiter *w, struct kb_node *n) {
    for (size_t i = 0; i < w->hook_count; i++) {
        kw_list_remove(&w->hooks[i].link);
        w->hooks[i].partition = NULL;
    }
    w->hook_count = 0;
    kw_timers_cancel(&n->parts.timers, &w->timer);
}

/* A waiter may unhook itself, or others, while it is asked: the ones to ask are moved to a list of their own first, so that each is asked
 * once and new ones are left for the next time. */
void kb_purgatory_moved(struct kb_partition *p, struct kb_now now) {
    if (kw_list_empty(&p->waiters)) return;
    struct kw_list asked;
    kw_list_init(&asked);
    asked.next = p->waiters.next;
    asked.prev = p->waiters.prev;
    asked.next->prev = asked.prev->next = &asked;
    kw_list_init(&p->waiters);
    struct kw_list *l;
    while ((l = kw_list_shift(&asked))) {
        struct kb_wait_hook *h = KW_CONTAINER_OF(l, struct kb_wait_hook, link);
        kw_list_push(&p->waiters, &h->link);
        h->waiter->asked = h;
        h->waiter->check(h->waiter, p, now);
    }
}
