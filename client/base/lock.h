/* lock.h - a mutex with a rank: locks are only taken in rising rank, which debug and sanitizer builds assert on every take.
 *
 * For the client's thread-safe side and the sending path (produce/accum), which runs in the callers' threads; the simulator runs it uncontended.
 *
 * The order, outermost first. Owning the loop (loop.h) is not a lock but comes before all of them: whoever runs the loop may take any; nobody waits
 * for the loop while holding one.
 *   KC_RANK_TIE        consume/group.h: between an event and a consumer that may be gone
 *   KC_RANK_ROLE       a producer's or consumer's own lock
 *   KC_RANK_PARTITION  the open batch of one partition
 *   KC_RANK_LOOP       loop.h: who runs the loop, who waits
 *   KC_RANK_CLIENT     handle.h: ready list, topic names, operations' results
 *   KC_RANK_LOG        the ring of log lines
 * So a role may post, raise readiness and log under its own locks.
 */
#ifndef KC_BASE_LOCK_H
#define KC_BASE_LOCK_H

#include <pthread.h>

#include "base.h"

enum kc_rank { KC_RANK_TIE, KC_RANK_ROLE, KC_RANK_PARTITION, KC_RANK_LOOP, KC_RANK_CLIENT, KC_RANK_LOG };

struct kc_lock {
    pthread_mutex_t mutex;
    enum kc_rank rank;
};
kw_err kc_lock_init(struct kc_lock *l, enum kc_rank rank) KW_CHECK;
void kc_lock_deinit(struct kc_lock *l);

#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KC_LOCK_CHECKED 1
#endif
/* Called by the inline functions in checked builds. */
void kc_lock_check_take(enum kc_rank rank);
void kc_lock_check_give(enum kc_rank rank);
void kc_lock_check_none(void); /* asserts that this thread holds no lock of ours: before it may block */

static inline void kc_lock_take(struct kc_lock *l) {
#ifdef KC_LOCK_CHECKED
    kc_lock_check_take(l->rank);
#endif
    pthread_mutex_lock(&l->mutex);
}
static inline void kc_lock_give(struct kc_lock *l) {
    pthread_mutex_unlock(&l->mutex);
#ifdef KC_LOCK_CHECKED
    kc_lock_check_give(l->rank);
#endif
}

#endif
