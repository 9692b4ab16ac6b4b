/* outcome.h - errors with a history: kc_error and the chain of attempts that led to it.
 *
 * Called by conn.c (notes attempts), produce/, consume/, admin.c (make errors), handle.c (hands them out).
 */
#ifndef KC_OUTCOME_H
#define KC_OUTCOME_H

#include <kclient/kclient.h>
#include "base/base.h"

/* Bounded: the first and the last eight are kept. Reference-counted, since all records of a batch share one. */
struct kc_attempts;
struct kc_attempts *kc_attempts_new(void);
struct kc_attempts *kc_attempts_ref(struct kc_attempts *a);
struct kc_attempts *kc_attempts_dup(const struct kc_attempts *a); /* for whoever goes on alone; NULL: no memory */
void kc_attempts_unref(struct kc_attempts *a);
kc_err kc_attempts_get(const struct kc_attempts *a, size_t index, kc_attempt *out); /* as kc_error_attempt; the text is the chain's */
kc_err kc_attempts_last(const struct kc_attempts *a); /* the last cause noted; KC_OK: none */
void kc_attempts_note(struct kc_attempts *a, int64_t at_ms, int32_t broker, kc_err cause, const char *phase, const char *detail); /* a NULL is fine */

/* out NULL: nothing is made. Without memory for it *out becomes a static error that says so (KC_NO_MEMORY). */
void kc_error_make(kc_error **out, kc_err code, enum kc_outcome outcome, const struct kc_attempts *a, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void kc_error_fatal_set(kc_error *e, int32_t action); /* before anyone else sees it; enum kc_action */
kc_error *kc_error_dup(const kc_error *e);
/* The public code for a result of base and wire: KW_ENOMEM -> KC_NO_MEMORY, KW_EDECODE -> KC_BAD_MESSAGE …; Kafka's and ours stay. */
kc_err kc_err_from(kw_err err);

#endif
