/* handle_client.c - kc_client: made, closed, shared, freed; readiness, log lines, topic numbers, fork. Called by applications and the
 * roles' façades. */
#include "handle.h"

#include "shell.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Fork: a page that the kernel empties in a child, so that the check costs one load ---- */

static struct {
    pthread_mutex_t lock;
    _Atomic uint64_t *page; /* 0 in a fresh child */
    uint64_t last;          /* generation given out; inherited by children */
    _Atomic bool by_pid;    /* no such page to be had: the process id decides */
} fork_mark = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t fork_generation(void) {
    if (atomic_load(&fork_mark.by_pid)) return (uint64_t)getpid();
    return atomic_load_explicit(fork_mark.page, memory_order_relaxed);
}

/* The present generation, made where there is none. */
static uint64_t fork_generation_begin(void) {
    pthread_mutex_lock(&fork_mark.lock);
    if (!fork_mark.page && !atomic_load(&fork_mark.by_pid)) {
        void *p = mmap(NULL, (size_t)getpagesize(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED && madvise(p, (size_t)getpagesize(), MADV_WIPEONFORK) == 0) {
            fork_mark.page = p;
        } else {
            if (p != MAP_FAILED) munmap(p, (size_t)getpagesize());
            atomic_store(&fork_mark.by_pid, true);
        }
    }
    if (!atomic_load(&fork_mark.by_pid) && atomic_load(fork_mark.page) == 0) atomic_store(fork_mark.page, ++fork_mark.last);
    uint64_t g = fork_generation();
    pthread_mutex_unlock(&fork_mark.lock);
    return g;
}

bool kc_client_is_forked(const kc_client *c) {
    return fork_generation() != c->fork_generation;
}

/* ---- Entering ---- */

static _Thread_local int callback_depth;

void kc_callback_enter(void) {
    callback_depth++;
}
void kc_callback_leave(void) {
    callback_depth--;
}

kc_err kc_client_enter(kc_client *c) {
    if (!c) return KC_INVALID;
    if (kc_client_is_forked(c)) return KC_FORKED;
    if (callback_depth > 0) return KC_REENTRANT;
    if (atomic_load_explicit(&c->closed, memory_order_relaxed)) return KC_CLOSED;
    return KC_OK;
}

kc_client *kc_client_ref(kc_client *c) {
    atomic_fetch_add_explicit(&c->refs, 1, memory_order_relaxed);
    return c;
}

int64_t kc_deadline_after(int64_t timeout_us) {
    if (timeout_us == KC_FOREVER) return KW_NEVER;
    int64_t now = kc_clock_now().mono_us;
    if (timeout_us < 0) return now;
    return timeout_us > INT64_MAX - now ? KW_NEVER : now + timeout_us;
}

/* ---- Log lines ---- */

static void log_line(kc_client *c, int level, const char *text) {
    size_t n = strlen(text);
    char *copy = kw_memdup(text, n + 1);
    kc_lock_take(&c->log_lock);
    if (!copy || c->log_count == KC_LOG_LINES_MAX) c->log_dropped++;
    if (copy) {
        if (c->log_count == KC_LOG_LINES_MAX) { /* the oldest goes */
            kw_free(c->log[c->log_head].text);
            c->log_head = (c->log_head + 1) % KC_LOG_LINES_MAX;
            c->log_count--;
        }
        c->log[(c->log_head + c->log_count++) % KC_LOG_LINES_MAX] = (struct kc_log_line){kc_clock_now().wall_ms, level, copy};
    }
    kc_lock_give(&c->log_lock);
    if (copy) kc_ready_raise(c, &c->log_ready);
}

static void core_log(void *ctx, int level, const char *text) {
    log_line(ctx, level, text);
}

void kc_client_logf(kc_client *c, int level, const char *fmt, ...) {
    if (level > c->settings->log_level) return;
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    log_line(c, level, text);
}

int32_t kc_client_log(kc_client *c, int32_t *level, int64_t *at_ms, char *text, size_t size) {
    if (!c || kc_client_is_forked(c)) return 0;
    kc_lock_take(&c->log_lock);
    bool any = c->log_count > 0;
    struct kc_log_line line = {0};
    uint64_t dropped = c->log_dropped;
    if (dropped > 0) { /* first of all, that some are missing */
        c->log_dropped = 0;
    } else if (any) {
        line = c->log[c->log_head];
        c->log_head = (c->log_head + 1) % KC_LOG_LINES_MAX;
        c->log_count--;
    }
    kc_lock_give(&c->log_lock);
    if (!any && dropped == 0) {
        kc_ready_rearm(c, &c->log_ready);
        kc_lock_take(&c->log_lock);
        any = c->log_count > 0;
        kc_lock_give(&c->log_lock);
        if (any) kc_ready_raise(c, &c->log_ready); /* it came just before */
        return 0;
    }
    if (level) *level = dropped ? 4 : line.level;
    if (at_ms) *at_ms = dropped ? kc_clock_now().wall_ms : line.at_ms;
    if (text && size > 0) {
        if (dropped)
            snprintf(text, size, "%llu log lines were lost: nobody took them in time", (unsigned long long)dropped);
        else
            snprintf(text, size, "%s", line.text);
    }
    kw_free(line.text);
    return 1;
}

/* ---- Making one ---- */

static kc_err make_public_fd(kc_client *c) {
    c->ready_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (c->ready_fd < 0) return KC_TRANSPORT;
    c->public_fd = c->ready_fd;
    if (c->settings->own_thread) return KC_OK;
    /* Both in one: something became ready, or the loop has work. */
    c->public_fd = epoll_create1(EPOLL_CLOEXEC);
    if (c->public_fd < 0) return KC_TRANSPORT;
    int fds[] = {c->ready_fd, kc_shell_fd(c->shell)};
    for (size_t i = 0; i < 2; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fds[i]};
        if (epoll_ctl(c->public_fd, EPOLL_CTL_ADD, fds[i], &e) != 0) return KC_TRANSPORT;
    }
    return KC_OK;
}

static void on_close(struct kc_post *post) {
    kc_client *c = KW_CONTAINER_OF(post, kc_client, close_post);
    kc_core_stop(c->core, kc_clock_now());
}

/* Whether loop context was at rest when this child was forked: what a thread was changing at that moment stays as it is. */
static bool is_whole(const kc_client *c) {
    int state = atomic_load(&c->loop.state);
    return state == KC_LOOP_FREE || (state == KC_LOOP_SLEEPING && !kc_shell_in_event(c->shell));
}

static void client_free(kc_client *c, bool forked) {
    bool whole = !forked || is_whole(c);
    if (forked) {
        kc_shell_free_forked(c->shell, whole);
        if (whole) kc_core_abandon(c->core);
    } else {
        kc_core_free(c->core);
        kc_shell_free(c->shell);
    }
    if (c->public_fd >= 0 && c->public_fd != c->ready_fd) close(c->public_fd);
    if (c->ready_fd >= 0) close(c->ready_fd);
    /* A forked child leaves the lines: a thread may have been at them. */
    for (uint32_t i = 0; i < c->log_count && !forked; i++)
        kw_free(c->log[(c->log_head + i) % KC_LOG_LINES_MAX].text);
    if (!forked) {
        kc_lock_deinit(&c->lock);
        kc_lock_deinit(&c->log_lock);
    }
    if (!whole) return;
    kc_settings_free(c->settings);
    kc_config_free(c->config);
    kw_free(c);
}

/* Once a process: brokers choose names and numbers that end up in our maps. */
static void seed_maps(void) {
    kw_map_seed(kc_random_seed(), kc_random_seed());
}

static kc_err fill(kc_client *c, char *why, size_t size) {
    static pthread_once_t seeded = PTHREAD_ONCE_INIT;
    pthread_once(&seeded, seed_maps);
    struct kc_core_options o = {.settings = c->settings, .seed = kc_random_seed(), .now = kc_clock_now(), .log = core_log, .ctx = c};
    kw_err err = kc_shell_new(c->settings, &c->shell, why, size);
    if (err != KW_OK) return err == KW_ENOMEM ? KC_NO_MEMORY : KC_TRANSPORT;
    snprintf(why, size, "out of memory");
    if (kc_core_new(&o, &c->core) != KW_OK) return KC_NO_MEMORY;
    kc_shell_attach(c->shell, c->core);
    if (make_public_fd(c) != KC_OK) {
        snprintf(why, size, "no descriptor could be had: %s", strerror(errno));
        return KC_TRANSPORT;
    }
    return kc_loop_init(c, c->settings->own_thread, why, size);
}

kc_err kc_client_new(const kc_config *config, kc_client **out, kc_error **error) {
    char why[200] = "out of memory";
    kc_err err = KC_NO_MEMORY;
    if (!out) return KC_INVALID;
    kc_client *c = kw_calloc(1, sizeof *c);
    if (!c) goto no_client;
    c->ready_fd = c->public_fd = -1;
    atomic_init(&c->refs, 1);
    kw_list_init(&c->ready);
    kc_ready_init(&c->log_ready, KC_READY_LOG, NULL, 0);
    kc_post_init(&c->close_post, on_close);
    if (kc_lock_init(&c->lock, KC_RANK_CLIENT) != KW_OK) goto no_lock;
    if (kc_lock_init(&c->log_lock, KC_RANK_LOG) != KW_OK) goto no_log_lock;
    c->config = kc_config_dup(config);
    if (!c->config) goto fail;
    err = kc_settings_new(config, NULL, &c->settings, error);
    if (err != KC_OK) {
        error = NULL; /* has it already */
        goto fail;
    }
    if (!c->settings->bootstrap[0]) {
        err = KC_CONFIG;
        snprintf(why, sizeof why, "bootstrap.servers is not set: give the address of a broker, as in 127.0.0.1:9092");
        goto fail;
    }
    c->fork_generation = fork_generation_begin();
    err = fill(c, why, sizeof why);
    if (err != KC_OK) goto fail;
    const char *w;
    for (size_t i = 0; (w = kc_config_warning(config, i)); i++) kc_client_logf(c, 4, "%s", w);
    *out = c;
    return KC_OK;
fail:
    client_free(c, false);
    goto no_client;
no_log_lock:
    kc_lock_deinit(&c->lock);
no_lock:
    kw_free(c);
no_client:
    kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "the client could not be made: %s", why);
    return err;
}

/* ---- Ending ---- */

void kc_client_end(kc_client *c) {
    if (kc_client_is_forked(c)) {
        client_free(c, true);
        return;
    }
    kc_loop_stop(c);
    kc_loop_finish(c);
    kc_loop_deinit(c, false);
    client_free(c, false);
}

void kc_client_unref(kc_client *c) {
    if (!c || atomic_fetch_sub_explicit(&c->refs, 1, memory_order_acq_rel) != 1) return;
    if (kc_loop_is_mine(c))
        c->loop.orphan = true; /* the owner ends it when it leaves the loop */
    else
        kc_client_end(c);
}

static bool is_stopped(void *ctx) {
    return atomic_load(&((kc_client *)ctx)->core_stopped);
}

kc_err kc_client_close(kc_client *c, int64_t timeout_us, kc_error **error) {
    kc_err err = kc_client_enter(c);
    if (err == KC_OK) {
        atomic_store(&c->closed, true);
        err = kc_drive_until(c, &c->close_post, is_stopped, c, kc_deadline_after(timeout_us), NULL);
    }
    if (err != KC_OK) kc_error_make(error, err, KC_NOT_PERSISTED, NULL, "closing the client: %s", kc_err_text(err));
    return err;
}

void kc_client_free(kc_client *c) {
    if (!c) return;
    if (!kc_client_is_forked(c)) kc_loop_help(c);
    kc_client_unref(c);
}

/* ---- Topics ---- */

int32_t kc_client_topic(kc_client *c, const char *name) {
    if (!c || !name || kc_client_is_forked(c)) return 0;
    kc_lock_take(&c->lock);
    int32_t topic = kc_metadata_intern(c->core, name, strlen(name));
    kc_lock_give(&c->lock);
    return topic;
}

const char *kc_client_topic_name(kc_client *c, int32_t topic) {
    if (!c) return NULL;
    struct kc_topic_meta *m = kc_metadata_topic(c->core, topic); /* the name never changes */
    return m ? m->name : NULL;
}

/* ---- Readiness ---- */

void kc_ready_init(struct kc_ready_source *s, int32_t kind, void *role, uint64_t opaque) {
    kw_list_init(&s->link);
    s->kind = kind;
    s->role = role;
    s->opaque = opaque;
    atomic_init(&s->raised, false);
    s->dropped = false;
}

void kc_ready_raise(kc_client *c, struct kc_ready_source *s) {
    if (atomic_load(&s->raised) || atomic_exchange(&s->raised, true)) return;
    kc_lock_take(&c->lock);
    bool was_empty = kw_list_empty(&c->ready);
    bool joins = !s->dropped && kw_list_empty(&s->link);
    if (joins) kw_list_push(&c->ready, &s->link);
    if (was_empty && joins && c->ready_fd >= 0) (void)!write(c->ready_fd, &(uint64_t){1}, sizeof(uint64_t));
    kc_lock_give(&c->lock);
}

void kc_ready_rearm(kc_client *c, struct kc_ready_source *s) {
    (void)c;
    atomic_store(&s->raised, false);
}

static void settle_fd(kc_client *c) {
    uint64_t n;
    if (kw_list_empty(&c->ready)) (void)!read(c->ready_fd, &n, sizeof n);
}

void kc_ready_drop(kc_client *c, struct kc_ready_source *s) {
    if (kc_client_is_forked(c)) return;
    kc_lock_take(&c->lock);
    s->dropped = true; /* also for a raise that waits for the lock */
    if (!kw_list_empty(&s->link)) {
        kw_list_remove(&s->link);
        settle_fd(c);
    }
    kc_lock_give(&c->lock);
}

int kc_client_fd(kc_client *c) {
    return c ? c->public_fd : -1;
}

size_t kc_client_ready(kc_client *c, kc_ready *out, size_t stride, size_t max) {
    if (!c || !out || stride < sizeof(kc_ready) || kc_client_is_forked(c)) return 0;
    size_t n = 0;
    struct kw_list *l;
    kc_lock_take(&c->lock);
    while (n < max && (l = kw_list_shift(&c->ready))) {
        struct kc_ready_source *s = KW_CONTAINER_OF(l, struct kc_ready_source, link);
        kc_ready r = {.kind = s->kind, .opaque = s->opaque, .role = s->role};
        memcpy((uint8_t *)out + n++ * stride, &r, sizeof r);
    }
    settle_fd(c);
    kc_lock_give(&c->lock);
    return n;
}

/* ---- The application's own loop ---- */

kc_err kc_client_run_once(kc_client *c, int64_t timeout_us, int64_t budget_us) {
    kc_err err = kc_client_enter(c);
    if (err != KC_OK && err != KC_CLOSED) return err; /* a closed client may have reports and operations left to finish */
    return kc_loop_run_once(c, timeout_us, budget_us);
}

int64_t kc_client_next_deadline_us(kc_client *c) {
    return !c || kc_client_is_forked(c) ? KC_FOREVER : kc_loop_next_deadline(c);
}

void kc_client_wake(kc_client *c) {
    if (c && !kc_client_is_forked(c)) kc_shell_wake(c->shell);
}

kc_err kc_allocator_set(void *(*malloc_fn)(size_t, void *), void *(*realloc_fn)(void *, size_t, void *), void (*free_fn)(void *, void *),
                        void *ctx) {
    static _Atomic bool set;
    if (!malloc_fn || !realloc_fn || !free_fn || fork_mark.last > 0 || atomic_exchange(&set, true)) return KC_INVALID;
    kw_allocator_set(&(struct kw_allocator){malloc_fn, realloc_fn, free_fn, ctx});
    return KC_OK;
}
