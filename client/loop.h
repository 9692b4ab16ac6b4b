/* loop.h - who runs a client's loop: its own thread, a waiting caller, or the application (client.thread=none). Never two at once.
 *
 * The core and everything in "loop context" (cores, posts, done callbacks, metadata listeners, timers, tasks) belong to the present owner of the
 * loop, and need no lock among themselves.
 *
 * A caller that has to wait takes the loop over and runs it itself (kc_drive_until): the answer that it waits for wakes it directly, with no second
 * thread in between. The client's own thread lends the loop for that and takes it back once nobody has driven it for a millisecond, or at
 * once when work is posted meanwhile. So repeated synchronous calls wake no thread at all.
 *
 * Called by handle*.c, admin.c. Calls shell.h.
 */
#ifndef KC_LOOP_H
#define KC_LOOP_H

#include "core/core.h"
#include "base/lock.h"

typedef struct kc_client kc_client;
struct kc_shell;

/* Work for the loop, from any thread. Embedded in its owner, who must keep it until it has run. Posting what is queued already does nothing, so one
 * post is also a "look at me" flag: state written before kc_client_post is seen by run. */
struct kc_post {
    struct kc_post *next;
    void (*run)(struct kc_post *post); /* in loop context; may post again and may free the owner */
    _Atomic bool queued;
};
void kc_post_init(struct kc_post *post, void (*run)(struct kc_post *));
/* Any thread, any locks of ours held up to KC_RANK_PARTITION. Wakes whoever runs the loop if it sleeps. Never fails. */
void kc_client_post(kc_client *c, struct kc_post *post);
/* The same, and holding no lock of ours. A caller that drove the loop less than a millisecond ago does the work itself, as it will drive again to see
 * what comes of it: sending and polling in turn wakes no second thread. */
void kc_client_post_soon(kc_client *c, struct kc_post *post);

/* Waits until done(ctx) or the deadline (monotonic us, KW_NEVER none), running the loop in this thread where possible. `post` (may be NULL) is posted
 * first, without waking another thread when this one runs the loop. done is called with no lock of ours held, in this thread only; it may take locks and
 * reads state that loop context or another thread changes (atomics or a lock). Whoever makes it true outside of loop context calls kc_client_signal.
 * KC_OK: done said true; KC_TIMED_OUT; KC_WOKEN: `wake` (may be NULL) was set: it is exchanged to false. Hold no lock. Not in loop context. */
kc_err kc_drive_until(kc_client *c, struct kc_post *post, bool (*done)(void *ctx), void *ctx, int64_t deadline_us, _Atomic bool *wake);
/* Makes waiters in kc_drive_until look at their condition again: after a change made in loop context or by any other thread (the turn of the
 * loop's owner is followed by a look anyway). Cheap when nobody waits. Ranks as kc_client_post. */
void kc_client_signal(kc_client *c);
/* For kc_consumer_wake: sets *wake and ends the wait of whoever waits with it. Safe in a signal handler. */
void kc_client_wake_waiter(kc_client *c, _Atomic bool *wake);

/* After a free: with no thread inside, runs the posts so far without blocking if nobody else runs the loop. With a thread: nothing. */
void kc_loop_help(kc_client *c);
/* Whether this thread is in loop context of c now (assertions; choosing between a post and a direct call). */
bool kc_loop_is_mine(kc_client *c);

enum kc_loop_state { KC_LOOP_FREE, KC_LOOP_RUNNING, KC_LOOP_SLEEPING };
struct kc_loop {
    struct kc_lock lock;            /* KC_RANK_LOOP: taking and releasing the loop, waiting for it, quit, io_*, released_us */
    pthread_cond_t waiters_cond;    /* waiters that do not own the loop */
    pthread_cond_t io_cond;         /* the client's own thread, while the loop is lent */
    _Atomic int state;              /* enum kc_loop_state; FREE: nobody owns it */
    _Atomic(struct kc_post *) posts; /* last in, first out; the owner turns it round */
    _Atomic uint64_t changes;       /* counts kc_client_signal: a waiter that saw an old number does not sleep */
    _Atomic int32_t waiter_count;   /* of those that do not own the loop */
    _Atomic bool wanted;            /* a caller would like to drive: the thread lends at the end of its turn */
    _Atomic bool driven;            /* the owner is a caller that waits for something */
    _Atomic bool stop;
    _Atomic int64_t deadline_us;    /* of the core, when the loop was last released */
    _Atomic int64_t told_us;        /* by kc_client_next_deadline_us: an earlier one makes the descriptor readable */
    uint64_t announced;             /* the owner's: changes that waiters have been told of */
    pthread_t thread;
    int64_t released_us;            /* when the last owner left */
    uint64_t releases;              /* how often one did */
    _Atomic uintptr_t driver;       /* the caller that drove it last: the address of something of its thread's */
    bool has_thread, quit, io_called, io_idle;
    bool orphan;                    /* the owner's: the last holder let go in loop context */
};

kc_err kc_loop_init(kc_client *c, bool own_thread, char *why, size_t size);
void kc_loop_stop(kc_client *c);   /* ends the thread and waits for it to leave its turn; not in loop context */
void kc_loop_finish(kc_client *c); /* after that: stops the core and runs what is left */
void kc_loop_deinit(kc_client *c, bool forked);
kc_err kc_loop_run_once(kc_client *c, int64_t timeout_us, int64_t budget_us);
int64_t kc_loop_next_deadline(kc_client *c);

#endif
