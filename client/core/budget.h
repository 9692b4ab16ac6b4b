/* budget.h - one memory budget a client, over what is queued, in flight and fetched; nobody goes without because of the others.
 *
 * Each side, producing and fetching, has a floor that the other can never take. The floor of the fetching side is shared out among the
 * client's consumers, in purses: what a consumer takes beyond its share of it must leave the others theirs. So whatever one of them holds -
 * long polls with nothing in sight, records that its application does not take, events that it keeps - the others can ask, and a consumer
 * alone may use all that there is.
 *
 * Called by produce/pool.c, consume/{fetcher,fetch_answer,fetched,event,part}.c. Calls nobody.
 */
#ifndef KC_BUDGET_H
#define KC_BUDGET_H

#include "base/base.h"

enum kc_role { KC_ROLE_PRODUCE, KC_ROLE_FETCH };

struct kc_budget {
    _Atomic int64_t used[2]; /* KC_ROLE_PRODUCE, KC_ROLE_FETCH */
    int64_t max, floor[2];
    _Atomic int64_t purse_floor; /* kc_purse_floor */
    struct kw_list purses;       /* struct kc_purse.link; loop context */
    size_t purse_count;
};
void kc_budget_init(struct kc_budget *b, int64_t max);
/* Any thread. */
bool kc_budget_take(struct kc_budget *b, enum kc_role role, size_t n); /* false: over */
void kc_budget_give(struct kc_budget *b, enum kc_role role, size_t n);

/* What one consumer holds of the fetching side. Events may outlive their consumer: it is counted by references. */
struct kc_purse {
    struct kw_list link; /* in budget->purses while the consumer is at work */
    _Atomic uint32_t refs;
    _Atomic int64_t used;
    struct kc_budget *budget;
};
struct kc_purse *kc_purse_new(struct kc_budget *b); /* NULL: no memory */
/* Loop context. Closed, it is promised nothing; what it holds still counts. */
void kc_purse_open(struct kc_purse *p);
void kc_purse_close(struct kc_purse *p);
int64_t kc_purse_floor(const struct kc_purse *p); /* what it can count on; 0: it is the only one, and has the side's */
int64_t kc_purse_room(const struct kc_purse *p); /* how much may be taken now; may be negative */
bool kc_purse_take(struct kc_purse *p, int64_t n); /* false: there is not so much room */
/* Any thread. */
struct kc_purse *kc_purse_ref(struct kc_purse *p);
void kc_purse_unref(struct kc_purse *p);
void kc_purse_add(struct kc_purse *p, int64_t n); /* what is there already: counted, never refused */
void kc_purse_give(struct kc_purse *p, int64_t n);

#endif
