/* isr_priv.h - what isr.c (who is in sync) and isr_change.c (asking the controller for it) share. Private to replica/. */
#ifndef KB_ISR_PRIV_H
#define KB_ISR_PRIV_H

#include "isr.h"
#include "kw_messages.h"

struct kb_remote { /* another replica */
    int32_t id;
    bool behind;          /* is to leave the ISR */
    int64_t end;          /* its log's, by its last fetch in this leader epoch; -1: none yet */
    int64_t log_start;    /* -1: not known */
    int64_t broker_epoch; /* of its last fetch; -1: not known */
    int64_t fetched_us;   /* its last fetch, and this log's end then */
    int64_t leader_end;
    int64_t goal_us, goal_end; /* the same of an earlier one, until it has that: who reads ahead never tells of all that was there at the last fetch */
    int64_t caught_up_us; /* the last time at which it had all that there was; -1: never */
};
struct kb_isr { /* of a partition that leads */
    struct kb_partition *p;
    struct kw_list link;
    struct kb_remote *remotes;
    int32_t remote_count;
    /* The ISR that the controller is asked for, with the lives of its members that it was decided for; NULL: none. */
    struct kw_alter_partition_request_broker_state *wish;
    int32_t wish_count;
    struct kw_list wish_link;
    int64_t again_us;      /* unsent: not before */
    int64_t rest_until_us; /* the last wish was refused */
    bool sent, complained;
};

struct kb_remote *kb_isr_remote(const struct kb_isr *s, int32_t id);
void kb_isrs_watch(struct kb_isrs *all, struct kb_now now); /* arms the timer that looks for those that fell behind */
/* isr_change.c */
void kb_isrs_init_wishes(struct kb_isrs *all);
/* The committed ISR and `joins`; -1: the committed ISR without those that are behind. Nothing where that changes nothing. */
void kb_isr_wish(struct kb_isr *s, int32_t joins, struct kb_now now);
void kb_isr_wish_drop(struct kb_isr *s);

#endif
