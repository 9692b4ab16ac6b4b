/* loop.c - see loop.h. Called by handle_*.c and the roles' façades; calls shell.c and the core.
 *
 * `state` is what posters look at without a lock. A poster pushes and then reads the state; the owner writes the state and then reads the
 * posts (both sequentially consistent), so one of them always sees the other.
 */
#include "loop.h"

#include "handle.h"
#include "shell.h"

#include <stdio.h>
#include <time.h>

enum { LEND_US = 1000, TURNS_AT_END_MAX = 1000, HELP_TURNS_MAX = 32 };

static _Thread_local kc_client *mine; /* whose loop this thread owns now */

bool kc_loop_is_mine(kc_client *c) {
    return mine == c;
}

/* ---- Posts ---- */

void kc_post_init(struct kc_post *post, void (*run)(struct kc_post *)) {
    post->next = NULL;
    post->run = run;
    atomic_init(&post->queued, false);
}

static bool push(kc_client *c, struct kc_post *post) {
    if (atomic_exchange(&post->queued, true)) return false;
    struct kc_post *head = atomic_load_explicit(&c->loop.posts, memory_order_relaxed);
    do {
        post->next = head;
    } while (!atomic_compare_exchange_weak(&c->loop.posts, &head, post));
    return true;
}

static bool run_posts(kc_client *c) {
    if (!atomic_load(&c->loop.posts)) return false;
    struct kc_post *last = atomic_exchange(&c->loop.posts, NULL), *first = NULL;
    while (last) { /* oldest first */
        struct kc_post *next = last->next;
        last->next = first;
        first = last;
        last = next;
    }
    while (first) {
        struct kc_post *next = first->next;
        atomic_store(&first->queued, false);
        first->run(first);
        first = next;
    }
    return true;
}

/* Ends the sleep of whoever runs the loop. */
static void rouse(kc_client *c) {
    int sleeping = KC_LOOP_SLEEPING;
    if (atomic_compare_exchange_strong(&c->loop.state, &sleeping, KC_LOOP_RUNNING)) kc_shell_wake(c->shell);
}

/* Nobody runs the loop and there is work. With the lock. */
static void call_for_owner(kc_client *c) {
    struct kc_loop *l = &c->loop;
    if (l->has_thread) {
        l->io_called = true;
        pthread_cond_signal(&l->io_cond);
    } else {
        kc_shell_wake(c->shell); /* makes the public descriptor readable */
    }
    if (atomic_load(&l->waiter_count) > 0) pthread_cond_broadcast(&l->waiters_cond);
}

void kc_client_post(kc_client *c, struct kc_post *post) {
    if (!push(c, post) || mine == c) return;
    struct kc_loop *l = &c->loop;
    if (atomic_load(&l->state) == KC_LOOP_FREE) {
        kc_lock_take(&l->lock);
        if (atomic_load(&l->state) == KC_LOOP_FREE) call_for_owner(c);
        kc_lock_give(&l->lock);
    }
    rouse(c);
}

/* ---- Waiters ---- */

static void broadcast(kc_client *c) {
    struct kc_loop *l = &c->loop;
    if (atomic_load(&l->waiter_count) == 0) return;
    kc_lock_take(&l->lock);
    pthread_cond_broadcast(&l->waiters_cond);
    kc_lock_give(&l->lock);
}

void kc_client_signal(kc_client *c) {
    atomic_fetch_add(&c->loop.changes, 1);
    broadcast(c);
    if (mine != c && atomic_load(&c->loop.driven)) rouse(c); /* the owner waits for something itself */
}

void kc_client_wake_waiter(kc_client *c, _Atomic bool *wake) {
    atomic_store(wake, true);
    atomic_fetch_add(&c->loop.changes, 1);
    kc_shell_wake(c->shell); /* the owner passes it on: a condition variable is not for signal handlers */
}

/* ---- Owning ---- */

static void take(kc_client *c) { /* with the lock, state FREE */
    atomic_store(&c->loop.state, KC_LOOP_RUNNING);
    c->loop.io_called = false; /* whoever owns the loop runs what was posted */
    mine = c;
}

static void release(kc_client *c) { /* with the lock */
    struct kc_loop *l = &c->loop;
    atomic_store(&l->deadline_us, kc_core_deadline(c->core));
    l->released_us = kc_clock_now().mono_us;
    l->releases++;
    mine = NULL;
    atomic_store(&l->state, KC_LOOP_FREE);
    if (atomic_load(&l->posts)) call_for_owner(c); /* posted while we were leaving */
    if (l->io_idle) {
        l->io_idle = false;
        pthread_cond_signal(&l->io_cond);
    }
    if (atomic_load(&l->waiter_count) > 0) pthread_cond_broadcast(&l->waiters_cond);
    if (!l->has_thread && atomic_load(&l->deadline_us) < atomic_load(&l->told_us)) kc_shell_wake(c->shell);
}

static void after_turn(kc_client *c) {
    struct kc_loop *l = &c->loop;
    if (atomic_load(&c->closed) && !atomic_load(&c->core_stopped) && kc_core_stopped(c->core)) {
        atomic_store(&c->core_stopped, true);
        kc_client_signal(c);
    }
    uint64_t changes = atomic_load(&l->changes);
    if (changes != l->announced) {
        l->announced = changes;
        broadcast(c);
    }
}

static void settle(kc_client *c) {
    run_posts(c);
    kc_shell_settle(c->shell);
    after_turn(c);
}

/* One turn that may sleep. `seen`: kc_client_signal's count when the caller last looked at what it waits for. */
static void turn(kc_client *c, int64_t timeout_us, uint64_t seen) {
    struct kc_loop *l = &c->loop;
    if (timeout_us > 0) {
        atomic_store(&l->state, KC_LOOP_SLEEPING);
        if (atomic_load(&l->posts) || atomic_load(&l->changes) != seen) timeout_us = 0;
    }
    kc_shell_wait(c->shell, timeout_us);
    atomic_store(&l->state, KC_LOOP_RUNNING);
    settle(c);
}

static int64_t left_until(int64_t deadline_us) {
    if (deadline_us == KW_NEVER) return KW_NEVER;
    int64_t left = deadline_us - kc_clock_now().mono_us;
    return KW_MAX(left, 0);
}

/* ---- A waiting caller ---- */

struct wait {
    bool (*done)(void *);
    void *ctx;
    int64_t deadline_us;
    _Atomic bool *wake;
};

/* KC_BUSY: go on waiting. */
static kc_err look(const struct wait *w) {
    if (w->done(w->ctx)) return KC_OK;
    if (w->wake && atomic_load(w->wake) && atomic_exchange(w->wake, false)) return KC_WOKEN;
    if (w->deadline_us != KW_NEVER && kc_clock_now().mono_us >= w->deadline_us) return KC_TIMED_OUT;
    return KC_BUSY;
}

static kc_err drive(kc_client *c, const struct wait *w) {
    struct kc_loop *l = &c->loop;
    kc_err r;
    atomic_store(&l->driven, true);
    settle(c);
    for (;;) {
        uint64_t seen = atomic_load(&l->changes);
        r = look(w);
        if (r != KC_BUSY) break;
        turn(c, left_until(w->deadline_us), seen);
    }
    atomic_store(&l->driven, false);
    return r;
}

static void wait_until(struct kc_loop *l, pthread_cond_t *cond, int64_t deadline_us) {
    if (deadline_us == KW_NEVER) {
        pthread_cond_wait(cond, &l->lock.mutex);
        return;
    }
    struct timespec ts = {.tv_sec = deadline_us / 1000000, .tv_nsec = deadline_us % 1000000 * 1000};
    pthread_cond_timedwait(cond, &l->lock.mutex, &ts);
}

/* Waits beside whoever owns the loop until something changed, or the loop was let go. With the lock, given up and taken meanwhile. */
static kc_err wait_beside(kc_client *c, const struct wait *w) {
    struct kc_loop *l = &c->loop;
    uint64_t seen = atomic_load(&l->changes), releases = l->releases;
    kc_lock_give(&l->lock);
    kc_err r = look(w);
    kc_lock_take(&l->lock);
    if (r != KC_BUSY || atomic_load(&l->changes) != seen || l->releases != releases) return r; /* the call for another owner may have come meanwhile */
    wait_until(l, &l->waiters_cond, w->deadline_us);
    return KC_BUSY;
}

kc_err kc_drive_until(kc_client *c, struct kc_post *post, bool (*done)(void *), void *ctx, int64_t deadline_us, _Atomic bool *wake) {
    struct kc_loop *l = &c->loop;
    struct wait w = {done, ctx, deadline_us, wake};
    kc_err r = KC_BUSY;
    KW_ASSERT(mine != c);
#ifdef KC_LOCK_CHECKED
    kc_lock_check_none();
#endif
    bool pushed = post && push(c, post);
    if (!pushed) { /* what is there already needs no loop */
        r = look(&w);
        if (r != KC_BUSY) return r;
    }
    kc_lock_take(&l->lock);
    int32_t before = atomic_fetch_add(&l->waiter_count, 1);
    while (r == KC_BUSY) {
        bool may_drive =
            !l->has_thread || atomic_load(&l->waiter_count) == 1; /* several waiters are better served by the client's own thread */
        if (atomic_load(&l->state) == KC_LOOP_FREE && may_drive) {
            atomic_fetch_sub(&l->waiter_count, 1);
            take(c);
            kc_lock_give(&l->lock);
            r = drive(c, &w);
            kc_lock_take(&l->lock);
            atomic_store(&l->driver, (uintptr_t)&mine);
            release(c);
            kc_lock_give(&l->lock);
            return r;
        }
        if (atomic_load(&l->state) == KC_LOOP_FREE)
            call_for_owner(c);
        else if (before == 0 && l->has_thread && !atomic_load(&l->driven))
            atomic_store(&l->wanted, true);
        rouse(c);
        r = wait_beside(c, &w);
    }
    atomic_fetch_sub(&l->waiter_count, 1);
    kc_lock_give(&l->lock);
    return r;
}

static bool try_take(kc_client *c) {
    struct kc_loop *l = &c->loop;
    kc_lock_take(&l->lock);
    bool free_now = atomic_load(&l->state) == KC_LOOP_FREE;
    if (free_now) take(c);
    kc_lock_give(&l->lock);
    return free_now;
}

static void give_back(kc_client *c) {
    kc_lock_take(&c->loop.lock);
    release(c);
    kc_lock_give(&c->loop.lock);
}

void kc_client_post_soon(kc_client *c, struct kc_post *post) {
    struct kc_loop *l = &c->loop;
    if (mine == c || !l->has_thread || atomic_load_explicit(&l->driver, memory_order_relaxed) != (uintptr_t)&mine) {
        kc_client_post(c, post);
        return;
    }
    if (!push(c, post)) return;
    kc_lock_take(&l->lock);
    bool is_free = atomic_load(&l->state) == KC_LOOP_FREE, here = is_free && !l->io_called && kc_clock_now().mono_us < l->released_us + LEND_US;
    int64_t released_us = l->released_us;
    if (here) take(c);
    else if (is_free) call_for_owner(c);
    kc_lock_give(&l->lock);
    if (!here) {
        rouse(c);
        return;
    }
    settle(c);
    if (kc_shell_flush(c->shell)) settle(c);
    kc_lock_take(&l->lock);
    release(c);
    l->released_us = released_us; /* lent no longer than before, or a caller that only sends would keep the thread away */
    kc_lock_give(&l->lock);
}

void kc_loop_help(kc_client *c) {
    struct kc_loop *l = &c->loop;
    if (l->has_thread || mine == c || !try_take(c)) return;
    for (int i = 0; i == 0 || (i < HELP_TURNS_MAX && atomic_load(&l->posts)); i++) settle(c); /* what others go on posting is not ours to run for ever */
    if (kc_shell_flush(c->shell)) settle(c);
    bool orphan = l->orphan;
    give_back(c);
    if (orphan) kc_client_end(c);
}

/* ---- The application's own loop ---- */

kc_err kc_loop_run_once(kc_client *c, int64_t timeout_us, int64_t budget_us) {
    struct kc_loop *l = &c->loop;
    if (l->has_thread) return KC_INVALID;
    if (mine == c) return KC_REENTRANT;
    if (!try_take(c)) return KC_BUSY;
    int64_t start = kc_clock_now().mono_us;
    uint64_t seen = atomic_load(&l->changes);
    settle(c);
    turn(c, timeout_us < 0 ? KW_NEVER : timeout_us, seen);
    /* More that is due at once, within the budget. */
    while (budget_us > 0 && kc_core_deadline(c->core) <= kc_clock_now().mono_us && kc_clock_now().mono_us - start < budget_us) settle(c);
    if (kc_shell_flush(c->shell)) settle(c);
    atomic_store(&l->told_us, INT64_MIN);
    give_back(c);
    return KC_OK;
}

int64_t kc_loop_next_deadline(kc_client *c) {
    struct kc_loop *l = &c->loop;
    if (atomic_load(&l->posts)) return 0;
    int64_t at = atomic_load(&l->deadline_us);
    atomic_store(&l->told_us, at);
    return at == KW_NEVER ? KC_FOREVER : left_until(at);
}

/* ---- The client's own thread ---- */

/* With the lock: until the loop is this thread's to run (true) or the client ends. */
static bool wait_for_loop(kc_client *c) {
    struct kc_loop *l = &c->loop;
    uint64_t releases = l->releases;
    while (!l->quit) {
        if (atomic_load(&l->state) != KC_LOOP_FREE) {
            bool in_turns = l->releases != releases; /* driven, left, driven again: a look now and then costs less than a wake each time */
            releases = l->releases;
            l->io_idle = !in_turns;
            wait_until(l, &l->io_cond, in_turns ? kc_clock_now().mono_us + LEND_US : KW_NEVER);
            l->io_idle = false;
            continue;
        }
        if (l->io_called || kc_clock_now().mono_us >= l->released_us + LEND_US) return true;
        wait_until(l, &l->io_cond, l->released_us + LEND_US);
    }
    return false;
}

static void run_until_wanted(kc_client *c) {
    struct kc_loop *l = &c->loop;
    settle(c);
    while (!atomic_load(&l->stop) && !l->orphan && !atomic_load(&l->wanted)) turn(c, KW_NEVER, atomic_load(&l->changes));
}

static void *thread_main(void *arg) {
    kc_client *c = arg;
    struct kc_loop *l = &c->loop;
    kc_lock_take(&l->lock);
    while (wait_for_loop(c)) {
        take(c);
        kc_lock_give(&l->lock);
        run_until_wanted(c);
        bool orphan = l->orphan;
        kc_lock_take(&l->lock);
        atomic_store(&l->wanted, false);
        release(c);
        if (!orphan) continue;
        /* The last holder let go in loop context: nobody is there to join this thread. */
        kc_lock_give(&l->lock);
        pthread_detach(l->thread);
        l->has_thread = false;
        kc_client_end(c);
        return NULL;
    }
    kc_lock_give(&l->lock);
    return NULL;
}

/* ---- Life ---- */

static bool conds_init(struct kc_loop *l) {
    pthread_condattr_t a;
    if (pthread_condattr_init(&a) != 0) return false;
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    bool ok = pthread_cond_init(&l->waiters_cond, &a) == 0;
    if (ok && pthread_cond_init(&l->io_cond, &a) != 0) {
        pthread_cond_destroy(&l->waiters_cond);
        ok = false;
    }
    pthread_condattr_destroy(&a);
    return ok;
}

int kc_thread_start(pthread_t *thread, bool detached, size_t stack_size, void *(*main)(void *), void *arg);

kc_err kc_loop_init(kc_client *c, bool own_thread, char *why, size_t size) {
    struct kc_loop *l = &c->loop;
    snprintf(why, size, "out of memory");
    if (kc_lock_init(&l->lock, KC_RANK_LOOP) != KW_OK) return KC_NO_MEMORY;
    if (!conds_init(l)) {
        kc_lock_deinit(&l->lock);
        return KC_NO_MEMORY;
    }
    atomic_store(&l->deadline_us, KW_NEVER);
    atomic_store(&l->told_us, INT64_MIN);
    if (!own_thread) return KC_OK;
    l->has_thread = true;
    l->io_called = true;
    int e = kc_thread_start(&l->thread, false, 512 * 1024, thread_main, c);
    if (e == 0) return KC_OK;
    snprintf(why, size, "no thread could be started: %s", strerror(e));
    l->has_thread = false;
    kc_loop_deinit(c, false);
    return KC_TRANSPORT;
}

void kc_loop_stop(kc_client *c) {
    struct kc_loop *l = &c->loop;
    if (!l->has_thread) return;
    kc_lock_take(&l->lock);
    l->quit = true;
    atomic_store(&l->stop, true);
    pthread_cond_signal(&l->io_cond);
    kc_lock_give(&l->lock);
    kc_shell_wake(c->shell);
    pthread_join(l->thread, NULL);
    l->has_thread = false;
}

void kc_loop_finish(kc_client *c) {
    mine = c;
    atomic_store(&c->loop.state, KC_LOOP_RUNNING);
    for (int i = 0; i < TURNS_AT_END_MAX; i++) {
        settle(c);
        if (i == 0) kc_core_stop(c->core, kc_clock_now());
        if (kc_core_stopped(c->core) && !atomic_load(&c->loop.posts)) break;
    }
    mine = NULL;
}

void kc_loop_deinit(kc_client *c, bool forked) {
    if (forked) return; /* the conditions may have waiters that exist in the parent alone */
    pthread_cond_destroy(&c->loop.waiters_cond);
    pthread_cond_destroy(&c->loop.io_cond);
    kc_lock_deinit(&c->loop.lock);
}
