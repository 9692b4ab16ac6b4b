/* reports.h - outcomes on their way to the application: a container is the list of the batches that are done, read record by record.
 *
 * Called by sender.c (deliver), handle_producer.c (take, iterate, free). Calls accum, core/outcome.
 */
#ifndef KC_REPORTS_H
#define KC_REPORTS_H

#include "accum.h"

struct kc_reports {
    struct kc_accum *a;
    void *owner;               /* the handle's; held by the container */
    struct kw_list batches;    /* as they were done */
    struct kc_batch *at;       /* the one being read; NULL: none yet */
    uint32_t index;            /* the next record of it */
    size_t count;
    kc_error *error;           /* of the report last given out; made when asked for */
};

/* Takes all there are; KC_TIMED_OUT when there is none. What they took of the queue is free again. */
kc_err kc_reports_collect(struct kc_accum *a, void *owner, struct kc_reports **out);
void kc_reports_give_back(struct kc_reports *r); /* all but the owner */
bool kc_reports_waiting(struct kc_accum *a);
void kc_batch_report(const struct kc_batch *b, uint32_t index, kc_report *out);
void kc_batch_error(const struct kc_batch *b, uint32_t index, kc_error **out);

#endif
