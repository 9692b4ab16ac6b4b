/* produce_priv.h - a Produce request under way, as produce.c and produce_guid.c share it. */
#ifndef KB_PRODUCE_PRIV_H
#define KB_PRODUCE_PRIV_H

#include "log/pid_state.h"
#include "produce_check.h"
#include "replica/purgatory.h"

typedef struct kw_produce_response_partition_produce_response kb_produced;

struct kb_gated;
struct kb_produce_wait { /* one partition whose answer waits */
    struct kb_partition *p; /* NULL: no more */
    struct kb_wait_hook *hook;
    kb_produced *answer;
    struct kb_gated *gated; /* it waits to be decided on (produce_guid.c); NULL: for its offsets to be acknowledgeable */
    int64_t end;            /* offset after the last record */
    int32_t leader_epoch;
};
struct kb_produce {
    struct kb_request *rq;
    struct kw_produce_request req;
    struct kw_produce_response resp;
    struct kb_waiter waiter;
    struct kb_produce_wait *waits;
    size_t wait_count, pending;
    bool gated;    /* some of its partitions came to wait to be decided on */
    bool starting; /* its partitions are being begun: not answered yet, whatever is done */
    bool failed;   /* any partition: what acks=0 closes for */
    int16_t failed_code;
};

void kb_produce_refuse(struct kb_produce *s, kb_produced *a, int16_t code, const char *text);
/* Whether the producer may write to it now. KE_NONE: yes. */
int16_t kb_produce_may_write(const struct kb_produce *s, const struct kb_partition *p);
/* By the checks that are made of every batch; refused: false, and out holds nothing. */
bool kb_produce_take(struct kb_produce *s, struct kb_partition *p, const struct kw_produce_request_partition_produce_data *d, kb_produced *a,
                     struct kb_checked *out);
/* What a sequence that does not fit is answered with. */
/* Of a batch that was stored before, where nobody looks ids up: what is to be waited for is up to dup->last_offset. */
void kb_produce_answer_repeat(const struct kb_partition *p, const struct kb_pid_batch *dup, kb_produced *a);
void kb_produce_refuse_sequence(struct kb_produce *s, kb_produced *a, enum kb_pid_verdict verdict);
/* Appends it; false: refused. */
bool kb_produce_append(struct kb_produce *s, struct kb_partition *p, const struct kb_checked *c, kb_produced *a, int64_t *base, int64_t *end);
/* The answer waits for all below `end` to be acknowledgeable. w: the place that it has already, where it has one. */
void kb_produce_await(struct kb_produce *s, struct kb_partition *p, kb_produced *a, int64_t end, struct kb_produce_wait *w);
/* One more place, which hangs on p. */
struct kb_produce_wait *kb_produce_place(struct kb_produce *s, struct kb_partition *p, kb_produced *a);
void kb_produce_place_done(struct kb_produce *s, struct kb_produce_wait *w);
void kb_produce_maybe_answer(struct kb_produce *s); /* may be its end */

#endif
