/* produce_guid_priv.h - a batch on its way through the gate, as produce_guid.c and produce_guid_answer.c share it. */
#ifndef KB_PRODUCE_GUID_PRIV_H
#define KB_PRODUCE_GUID_PRIV_H

#include "guid/dedup.h"
#include "produce_priv.h"
#include "replica/guids.h"

enum kb_gated_kind {
    KB_GATED_NEW,
    KB_GATED_REPEAT, /* its sequence is one of the producer's last five: it was stored */
    KB_GATED_BEHIND, /* its sequence is older than those */
};
struct kb_gated { /* in the request's arena */
    struct kw_list link; /* in the partition's guid_gate, in order of arrival */
    struct kb_produce *s;
    struct kb_partition *p;
    const struct kw_produce_request_partition_produce_data *data;
    kb_produced *a;
    struct kb_produce_wait *w; /* NULL: it never waited */
    int32_t leader_epoch;
    bool busy;    /* it is being decided on */
    bool finding; /* the index has been asked */
    enum kb_gated_kind kind;
    struct kb_pid_batch repeat; /* KB_GATED_REPEAT: as it was stored */
    struct kb_checked c;
    struct kb_dedup *d;
    struct kb_guid_find find;
    struct kb_guid_user user; /* while finding */
    int64_t waits_for; /* the answer promises all below; 0: it was refused */
};

/* The answers. They set waits_for, and what the client is told. */
void kb_gated_answer_new(struct kb_gated *g, int64_t base); /* judged; base -1: nothing was appended */
void kb_gated_answer_repeat(struct kb_gated *g);
bool kb_gated_answer_behind(struct kb_gated *g); /* false: not every record is known */

#endif
