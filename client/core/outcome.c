/* outcome.c - errors with a history, the names and texts of all codes. Called by everyone who fails; calls wire/kerror.
 */
#include "outcome.h"

#include "wire/kerror.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- Codes of the library's own: X(code, retriable, text) ---- */
#define KC_ERRORS(X)                                                                                                                       \
    X(KC_CLOSED, 0, "the handle was closed")                                                                                               \
    X(KC_FORKED, 0, "called in a forked child: only the free functions work there; make a client of the child's own")                      \
    X(KC_REENTRANT, 0, "called from inside a callback that must not call the library")                                                     \
    X(KC_BUSY, 1, "another thread is inside an exclusive call of this handle")                                                             \
    X(KC_WOKEN, 1, "a wake call ended the wait")                                                                                           \
    X(KC_INVALID, 0, "an argument is missing or out of range")                                                                             \
    X(KC_NO_MEMORY, 1, "an allocation failed, or the client's memory budget (memory.max) is used up")                                      \
    X(KC_CONFIG, 0, "a configuration name or value is wrong")                                                                              \
    X(KC_UNSUPPORTED, 0, "the broker, or this build of the library, cannot do it")                                                         \
    X(KC_NOT_ASSIGNED, 0, "the partition is not assigned to this consumer")                                                                \
    X(KC_LOST, 0, "the assignment that the call belongs to is over")                                                                       \
    X(KC_CANCELLED, 0, "it was cancelled, purged or freed before it ended")                                                                \
    X(KC_BAD_GUID, 0, "not one 16-byte id: a UUID that is malformed, two ids on a record, or a header `guid` of another length")               \
    X(KC_TIMED_OUT, 1, "the time given for it passed")                                                                                     \
    X(KC_QUEUE_FULL, 1, "the producer's queue had no room within the time given; the record was not accepted")                             \
    X(KC_EXPIRED, 1, "the record's deadline (delivery.timeout.ms or its own) passed before it was acknowledged")                           \
    X(KC_TOO_LARGE, 0, "the record can never fit: see max.request.size and batch.size")                                                    \
    X(KC_TRANSPORT, 1, "the connection to a broker failed or could not be made")                                                           \
    X(KC_RESOLVE, 1, "a host name could not be resolved")                                                                                  \
    X(KC_ALL_BROKERS_DOWN, 1, "no bootstrap address and no known broker could be reached")                                                 \
    X(KC_TLS, 0, "TLS failed")                                                                                                             \
    X(KC_BAD_MESSAGE, 0, "a broker's answer does not follow the protocol")                                                                 \
    X(KC_CORRUPT, 0, "a fetched batch fails its checksum or does not parse")                                                               \
    X(KC_TOO_BIG_ANSWER, 0, "an answer is larger than receive.message.max.bytes")                                                          \
    X(KC_DATA_LOST, 0, "records that were consumed are no longer in the log: another leader did not have them")

static const struct own_error {
    kc_err code;
    int32_t retriable;
    const char *name, *text;
} own_errors[] = {
#define ROW(code, retriable, text) {code, retriable, #code, text},
    KC_ERRORS(ROW)
#undef ROW
};

static const struct own_error *own_error(kc_err code) {
    for (size_t i = 0; i < KW_COUNTOF(own_errors); i++) {
        if (own_errors[i].code == code) return &own_errors[i];
    }
    return NULL;
}

const char *kc_err_name(kc_err code) {
    const struct own_error *e = own_error(code);
    return e ? e->name : kw_kerror_info(code)->name;
}
const char *kc_err_text(kc_err code) {
    const struct own_error *e = own_error(code);
    return e ? e->text : kw_kerror_info(code)->text;
}
int32_t kc_err_retriable(kc_err code) {
    const struct own_error *e = own_error(code);
    return e ? e->retriable : kw_kerror_info(code)->retriable;
}

kc_err kc_err_from(kw_err err) {
    switch (err) {
    case KW_ENOMEM:
        return KC_NO_MEMORY;
    case KW_EDECODE:
    case KW_ESHORT:
    case KW_ELIMIT:
        return KC_BAD_MESSAGE;
    case KW_ECRC:
        return KC_CORRUPT;
    case KW_EVERSION:
    case KW_EUNSUPPORTED:
        return KC_UNSUPPORTED;
    case KW_EINVAL:
        return KC_INVALID;
    case KW_EIO:
        return KC_TRANSPORT;
    default:
        return err;
    }
}

const char *kc_version(void) {
    return "0.1.0";
}

/* ---- Attempts ---- */

enum { KEEP_FIRST = 8, KEEP_LAST = 8, DETAIL_SIZE = 192 };

struct note {
    int64_t at_ms;
    int32_t broker;
    kc_err cause;
    const char *phase; /* static */
    char *detail;      /* owned; NULL: "" */
};
/* Written in loop context only. An error takes a copy, so that it is immutable whoever holds it. */
struct kc_attempts {
    _Atomic uint32_t refs;
    size_t count; /* ever noted */
    struct note notes[KEEP_FIRST + KEEP_LAST];
};

struct kc_attempts *kc_attempts_new(void) {
    struct kc_attempts *a = kw_calloc(1, sizeof *a);
    if (a) atomic_init(&a->refs, 1);
    return a;
}

struct kc_attempts *kc_attempts_ref(struct kc_attempts *a) {
    if (a) atomic_fetch_add_explicit(&a->refs, 1, memory_order_relaxed);
    return a;
}

void kc_attempts_unref(struct kc_attempts *a) {
    if (!a || atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) != 1) return;
    for (size_t i = 0; i < KW_COUNTOF(a->notes); i++) kw_free(a->notes[i].detail);
    kw_free(a);
}

void kc_attempts_note(struct kc_attempts *a, int64_t at_ms, int32_t broker, kc_err cause, const char *phase, const char *detail) {
    if (!a) return;
    size_t at = a->count < KEEP_FIRST ? a->count : KEEP_FIRST + (a->count - KEEP_FIRST) % KEEP_LAST;
    a->count++;
    struct note *n = &a->notes[at];
    kw_free(n->detail);
    *n = (struct note){at_ms, broker, cause, phase ? phase : "", NULL};
    size_t len = detail ? strnlen(detail, DETAIL_SIZE) : 0;
    if (len > 0 && (n->detail = kw_malloc(len + 1))) { /* without memory the note goes without its detail */
        memcpy(n->detail, detail, len);
        n->detail[len] = 0;
    }
}

static const struct note *note_at(const struct kc_attempts *a, size_t i) {
    if (i < KEEP_FIRST || a->count <= KEEP_FIRST + KEEP_LAST) return &a->notes[i];
    return &a->notes[KEEP_FIRST + (a->count - KEEP_FIRST - KEEP_LAST + i - KEEP_FIRST) % KEEP_LAST];
}

static size_t kept(const struct kc_attempts *a) {
    return KW_MIN(a->count, (size_t)(KEEP_FIRST + KEEP_LAST));
}

kc_err kc_attempts_last(const struct kc_attempts *a) {
    return a && a->count > 0 ? note_at(a, kept(a) - 1)->cause : KC_OK;
}

struct kc_attempts *kc_attempts_dup(const struct kc_attempts *a) {
    struct kc_attempts *d = kc_attempts_new();
    if (!d) return NULL;
    d->count = a->count;
    for (size_t i = 0; i < kept(a); i++) {
        d->notes[i] = a->notes[i];
        if (a->notes[i].detail) d->notes[i].detail = kw_memdup(a->notes[i].detail, strlen(a->notes[i].detail) + 1);
    }
    return d;
}

static kc_attempt attempt_of(const struct note *n) {
    return (kc_attempt){n->at_ms, n->broker, n->cause, n->phase, n->detail ? n->detail : ""};
}

kc_err kc_attempts_get(const struct kc_attempts *a, size_t index, kc_attempt *out) {
    if (!a || !out || index >= kept(a)) return KC_INVALID;
    *out = attempt_of(note_at(a, index));
    return KC_OK;
}

/* ---- Errors ---- */

struct kc_error {
    kc_err code;
    enum kc_outcome outcome;
    bool fatal, is_static;
    int32_t action;
    char *message;
    size_t attempt_count;
    struct note attempts[]; /* details are owned */
};

/* Given when there is no memory for one. */
static kc_error no_memory = {.code = KC_NO_MEMORY,
                             .is_static = true,
                             .outcome = KC_MAYBE_PERSISTED,
                             .action = KC_ACTION_NONE,
                             .message = (char *)(uintptr_t) "out of memory"};

static kc_error *error_new(size_t count, const char *message) {
    kc_error *e = kw_calloc(1, sizeof *e + count * sizeof *e->attempts);
    size_t size = strlen(message) + 1;
    if (e) e->message = kw_memdup(message, size);
    if (e && e->message) return e;
    kw_free(e);
    return NULL;
}

static void attempts_copy(kc_error *e, const struct note *n) {
    struct note *to = &e->attempts[e->attempt_count++];
    *to = *n;
    if (n->detail) to->detail = kw_memdup(n->detail, strlen(n->detail) + 1);
}

/* Code and outcome of one that has just been made. */
static void characterise(kc_error *e, kc_err code, enum kc_outcome outcome) {
    e->code = code;
    e->outcome = outcome;
    e->action = kc_err_retriable(code) ? KC_ACTION_RETRY : code == KC_CONFIG ? KC_ACTION_FIX_CONFIG : KC_ACTION_NONE;
}

kc_error *kc_error_new(kc_err code, int32_t outcome, const char *message) {
    kc_error *e = error_new(0, message ? message : kc_err_text(code));
    if (!e) return &no_memory;
    characterise(e, code, outcome >= KC_NOT_PERSISTED && outcome <= KC_PERSISTED ? (enum kc_outcome)outcome : KC_NOT_PERSISTED);
    return e;
}

void kc_error_make(kc_error **out, kc_err code, enum kc_outcome outcome, const struct kc_attempts *a, const char *fmt, ...) {
    if (!out) return;
    char message[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    size_t count = a ? kept(a) : 0;
    kc_error *e = error_new(count, message);
    if (!e) {
        *out = &no_memory;
        return;
    }
    characterise(e, code, outcome);
    for (size_t i = 0; i < count; i++) attempts_copy(e, note_at(a, i));
    *out = e;
}

void kc_error_fatal_set(kc_error *e, int32_t action) {
    if (!e || e->is_static) return;
    e->fatal = true;
    e->action = action;
}

kc_error *kc_error_dup(const kc_error *e) {
    if (!e) return NULL;
    kc_error *d = e->is_static ? NULL : error_new(e->attempt_count, e->message);
    if (!d) return &no_memory;
    d->code = e->code;
    d->outcome = e->outcome;
    d->fatal = e->fatal;
    d->action = e->action;
    for (size_t i = 0; i < e->attempt_count; i++) attempts_copy(d, &e->attempts[i]);
    return d;
}

kc_err kc_error_code(const kc_error *e) {
    return e ? e->code : KC_OK;
}
const char *kc_error_name(const kc_error *e) {
    return kc_err_name(kc_error_code(e));
}
const char *kc_error_message(const kc_error *e) {
    return e ? e->message : "";
}
int32_t kc_error_retriable(const kc_error *e) {
    return e && !e->fatal ? kc_err_retriable(e->code) : 0;
}
int32_t kc_error_fatal(const kc_error *e) {
    return e ? e->fatal : 0;
}
int32_t kc_error_outcome(const kc_error *e) {
    return e ? (int32_t)e->outcome : KC_NOT_PERSISTED;
}
int32_t kc_error_action(const kc_error *e) {
    return e ? e->action : KC_ACTION_NONE;
}
size_t kc_error_attempt_count(const kc_error *e) {
    return e ? e->attempt_count : 0;
}

kc_err kc_error_attempt(const kc_error *e, size_t index, kc_attempt *out) {
    if (!e || !out || index >= e->attempt_count) return KC_INVALID;
    *out = attempt_of(&e->attempts[index]);
    return KC_OK;
}

void kc_error_free(kc_error *e) {
    if (!e || e->is_static) return;
    for (size_t i = 0; i < e->attempt_count; i++) kw_free(e->attempts[i].detail);
    kw_free(e->message);
    kw_free(e);
}
