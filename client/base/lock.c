/* lock.c - locks with ranks, and the check of their order. Called by every thread-safe part of the client. */
#include "lock.h"

kw_err kc_lock_init(struct kc_lock *l, enum kc_rank rank) {
    l->rank = rank;
    return pthread_mutex_init(&l->mutex, NULL) == 0 ? KW_OK : KW_ENOMEM;
}

void kc_lock_deinit(struct kc_lock *l) {
    pthread_mutex_destroy(&l->mutex);
}

static _Thread_local uint32_t held; /* a bit for each rank */

void kc_lock_check_take(enum kc_rank rank) {
    KW_ASSERT(held >> rank == 0); /* none of the same or a higher rank */
    held |= 1u << rank;
}
void kc_lock_check_give(enum kc_rank rank) {
    KW_ASSERT(held & 1u << rank);
    held &= ~(1u << rank);
}
void kc_lock_check_none(void) {
    KW_ASSERT(held == 0);
}
