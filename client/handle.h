/* handle.h - the thread-safe side of the library: what stands behind kc_client and kc_op, and what a role (producer, consumer) builds on.
 *
 * Included by handle_*.c, loop.c, admin.c, and the façades of the roles. The cores never include it.
 *
 * Life of a role:
 *  - new: kc_client_enter; allocate; kc_client_ref; hand the core part to loop context by a post (kc_client_post) or kc_drive_until.
 *  - public call: kc_client_enter first (KC_FORKED, KC_CLOSED, KC_REENTRANT), then the role's own locks. Loop context is reached by a post alone.
 *  - free (never blocks): in a forked child (kc_client_is_forked) only give memory back. Else mark it dead, kc_client_post its last post, kc_loop_help. That
 *    post, in loop context, takes the role off the core (cancelling its requests) and, when the last of them is done, frees it and calls kc_client_unref.
 *  - client gone: kc_core_stop has failed every request with KC_CLOSED before the core is freed; sending later ends in KC_CLOSED too.
 *
 * Locks: lock.h has the order. Loop context: loop.h.
 */
#ifndef KC_HANDLE_H
#define KC_HANDLE_H

#include "core/config.h"
#include "core/core.h"
#include "base/lock.h"
#include "loop.h"

/* ---- Readiness: kc_client_fd and kc_client_ready. One source per kind and role. ---- */
struct kc_ready_source {
    struct kw_list link;   /* in the client's ready list */
    int32_t kind;          /* enum kc_ready_kind */
    void *role;
    uint64_t opaque;
    _Atomic bool raised;   /* since it was last re-armed */
    bool dropped;          /* under the client's lock */
};
void kc_ready_init(struct kc_ready_source *s, int32_t kind, void *role, uint64_t opaque);
/* Something became ready. Once raised it stays so, and further raises cost one atomic load, until the role re-arms it. Any thread. */
void kc_ready_raise(kc_client *c, struct kc_ready_source *s);
/* The application has drained it (or, for SPACE, a send was refused): the next raise counts again. Look for work once more after it, since a raise just
 * before was swallowed. */
void kc_ready_rearm(kc_client *c, struct kc_ready_source *s);
void kc_ready_drop(kc_client *c, struct kc_ready_source *s); /* before its role is freed */

/* ---- The client ---- */
#define KC_LOG_LINES_MAX 256
struct kc_log_line {
    int64_t at_ms;
    int32_t level;
    char *text;
};

struct kc_client {
    struct kc_config *config;        /* a copy; read-only */
    struct kc_settings *settings;    /* parsed; read-only */
    struct kc_core *core;            /* loop context only */
    struct kc_shell *shell;          /* loop context only */
    struct kc_loop loop;
    uint64_t fork_generation;
    _Atomic int32_t refs;            /* the handle's, one for each role, operation, event */
    _Atomic bool closed;             /* kc_client_close was called */
    struct kc_lock lock;             /* KC_RANK_CLIENT: ready, name table of the core */
    struct kw_list ready;
    int ready_fd;                    /* eventfd: readable while `ready` is not empty */
    int public_fd;                   /* kc_client_fd */
    struct kc_lock log_lock;         /* KC_RANK_LOG */
    struct kc_log_line log[KC_LOG_LINES_MAX];
    uint32_t log_head, log_count;
    uint64_t log_dropped;
    struct kc_ready_source log_ready;
    struct kc_post close_post;
    _Atomic bool core_stopped;       /* every connection is closed */
};

/* KC_FORKED in a child of fork, KC_REENTRANT inside a callback of this thread, KC_CLOSED after kc_client_close, else KC_OK. NULL: KC_INVALID. */
kc_err kc_client_enter(kc_client *c);
bool kc_client_is_forked(const kc_client *c); /* one load */
kc_client *kc_client_ref(kc_client *c);
/* From any thread, and from loop context. The last one ends the client. */
void kc_client_unref(kc_client *c);
void kc_client_end(kc_client *c); /* loop.c: nobody holds it any more */
/* Around a call of the application's code: calls into the library from inside answer KC_REENTRANT. Nestable. */
void kc_callback_enter(void);
void kc_callback_leave(void);
/* Level 3 error, 4 warning, 6 info, 7 debug; from any thread. Raises KC_READY_LOG. */
void kc_client_logf(kc_client *c, int level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- Time ---- */
struct kc_now kc_clock_now(void);
/* now + timeout, saturating; KC_FOREVER and anything too big: KW_NEVER. Negative ones other than KC_FOREVER count as 0. */
int64_t kc_deadline_after(int64_t timeout_us);

/* ---- Operations ---- */
struct kc_op {
    kc_client *client;               /* held */
    _Atomic int32_t refs;            /* the caller's, and loop context's until it is done */
    _Atomic bool done, cancel_asked;
    uint64_t opaque;
    bool quiet;                      /* waited for by its maker: no KC_READY_OP */
    kc_err err;                      /* valid once done */
    kc_error *error;                 /* owned; may be NULL when err is KC_OK */
    struct kc_ready_source ready;
    struct kc_post start_post, cancel_post;
    /* Of the kind of operation: */
    void (*start)(struct kc_op *op);  /* in loop context; ends, then or later, in kc_op_complete */
    void (*cancel)(struct kc_op *op); /* in loop context, not done yet: stop and kc_op_complete(KC_CANCELLED); may be NULL */
    void (*deinit)(struct kc_op *op); /* frees what the kind added; any thread; may be NULL */
    size_t (*offsets)(const struct kc_op *op, kc_topic_partition *out, size_t stride, size_t max); /* kc_op_result_offsets; NULL: it has none */
};
/* Allocates `size` (>= sizeof(struct kc_op), first member struct kc_op), zeroed. Two references: the caller's and loop context's. */
kc_err kc_op_new(kc_client *c, size_t size, uint64_t opaque, void (*start)(struct kc_op *), void (*cancel)(struct kc_op *),
                 void (*deinit)(struct kc_op *), struct kc_op **op, kc_error **error);
void kc_op_start(struct kc_op *op); /* posts it */
/* Start and wait in one, without waking a thread where this one can drive. The operation stays the caller's. */
kc_err kc_op_run(struct kc_op *op, int64_t timeout_us, kc_error **error);
/* In loop context, once. Takes `error` (may be NULL), wakes waiters, raises KC_READY_OP, drops loop context's reference. */
void kc_op_complete(struct kc_op *op, kc_err err, kc_error *error);

#endif
