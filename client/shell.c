/* shell.c - the client's I/O over libuv. Called by loop.c; feeds core/event.h and does what the core wants.
 *
 * Sockets are ours (uv_poll watches them): so answers are read straight into the core's buffers, requests leave by one sendmsg with the
 * record bytes in place, nothing raises SIGPIPE, and a forked child can close them without touching the epoll instance that it shares with
 * its parent. Names that are no addresses are looked up in short-lived threads of our own, not in libuv's pool: a loop with a lookup under
 * way cannot be closed, and a name server may take half a minute.
 */
#include "shell.h"

#include "shell_timer.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

enum {
    IOV_MAX_ = 64,
    READS_MAX = 16,
    SETTLE_ROUNDS_MAX = 64,
    LOOKUPS_MAX = 8,
    LOOKUP_ADDRESSES_MAX = 16,
    LOOKUP_STACK_SIZE = 512 * 1024,
    FORKED_SOCKS_MAX = 100000
};
_Static_assert(sizeof(struct kc_iov) == sizeof(struct iovec) && offsetof(struct kc_iov, len) == offsetof(struct iovec, iov_len),
               "kc_iov is an iovec");
_Static_assert(sizeof(struct sockaddr_storage) <= KC_ADDRESS_MAX, "an address fits");

/* Shared between the shell and its lookup threads; outlives whichever ends first. */
struct resolver {
    pthread_mutex_t lock;
    _Atomic int refs;
    int wake_fd;         /* -1 once the shell is gone */
    struct kw_list done; /* of lookup */
};
struct lookup {
    struct kw_list link;
    struct resolver *resolver;
    struct peer *peer; /* the shell's; NULL: nobody waits any more, and a thread is still at it */
    bool waiting;      /* in kc_shell.lookups */
    char *host;
    uint16_t port;
    int family;
    struct kc_address addresses[LOOKUP_ADDRESSES_MAX];
    size_t count;
    char text[96];
};

struct sock {
    uv_poll_t poll;
    struct kw_list link;
    struct peer *peer; /* NULL once it is being closed */
    struct kc_shell *shell;
    int fd, events;
    bool connecting;
};
struct peer { /* what kc_conn_shell points to */
    struct kw_list link;
    struct kc_conn *conn;
    struct kc_shell *shell;
    struct sock *sock;
    struct lookup *lookup;
};
struct kc_shell {
    uv_loop_t loop;
    struct kc_shell_timer timer;
    uv_poll_t wake;
    int wake_fd;
    const struct kc_settings *settings;
    struct kc_core *core;
    struct kw_list peers, socks;
    struct resolver *resolver;
    struct kw_list lookups; /* waiting for a thread */
    size_t lookups_running;
    _Atomic bool in_event; /* since the last wait began */
    bool dirty;            /* watches changed since the kernel was told */
};

/* ---- Clock and randomness ---- */

struct kc_now kc_clock_now(void) {
    struct timespec mono, wall;
    clock_gettime(CLOCK_MONOTONIC, &mono);
    clock_gettime(CLOCK_REALTIME, &wall);
    return (struct kc_now){(int64_t)mono.tv_sec * 1000000 + mono.tv_nsec / 1000, (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000};
}

uint64_t kc_random_seed(void) {
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed) return seed;
    struct kc_now now = kc_clock_now();
    return (uint64_t)now.mono_us * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)now.wall_ms ^ (uint64_t)getpid() << 32;
}

/* ---- Sockets ---- */

static void on_sock_closed(uv_handle_t *h) {
    struct sock *s = h->data;
    atomic_store(&s->shell->in_event, true);
    kw_list_remove(&s->link);
    kw_free(s);
}

static void sock_drop(struct sock *s) {
    if (s->peer) s->peer->sock = NULL;
    s->peer = NULL;
    uv_close((uv_handle_t *)&s->poll, on_sock_closed);
    close(s->fd);
    s->fd = -1;
}

static void on_event(uv_poll_t *h, int status, int events);

static void watch(struct kc_shell *sh, struct sock *s, int events) {
    if (s->events == events) return;
    s->events = events;
    sh->dirty = true;
    uv_poll_start(&s->poll, events, on_event);
}

static void lookup_free(struct lookup *k) {
    kw_list_remove(&k->link);
    kw_free(k->host);
    kw_free(k);
}

static void peer_free(struct peer *p) {
    if (p->sock) sock_drop(p->sock);
    if (p->lookup) {
        p->lookup->peer = NULL;
        if (p->lookup->waiting) lookup_free(p->lookup); /* or a name server that hangs makes a list of those that have given up */
    }
    kc_conn_shell_set(p->conn, NULL);
    kw_list_remove(&p->link);
    kw_free(p);
}

/* The connection is dead: the shell forgets it, then tells. */
static void peer_closed(struct peer *p, kw_err err, const char *text) {
    struct kc_conn *c = p->conn;
    peer_free(p);
    kc_conn_closed(c, err, text, kc_clock_now());
}

static void set_options(struct kc_shell *sh, int fd) {
    int one = 1, size;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    if ((size = sh->settings->send_buffer_bytes) > 0) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if ((size = sh->settings->receive_buffer_bytes) > 0) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

/* NULL on success, else the system's words. */
static const char *start_connect(struct kc_shell *sh, struct peer *p) {
    const struct kc_address *a = kc_conn_address(p->conn);
    struct sockaddr_storage ss;
    memcpy(&ss, a->bytes, sizeof ss);
    int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return uv_strerror(-errno);
    set_options(sh, fd);
    const char *text = NULL;
    struct sock *s = NULL;
    if (connect(fd, (struct sockaddr *)&ss, (socklen_t)a->size) != 0 && errno != EINPROGRESS && errno != EINTR) {
        text = uv_strerror(-errno);
        goto fail;
    }
    s = kw_calloc(1, sizeof *s);
    text = "out of memory";
    if (!s) goto fail;
    int r = uv_poll_init(&sh->loop, &s->poll, fd);
    if (r != 0) {
        text = uv_strerror(r);
        goto fail;
    }
    s->poll.data = s;
    s->fd = fd;
    s->peer = p;
    s->shell = sh;
    s->connecting = true;
    p->sock = s;
    kw_list_push(&sh->socks, &s->link);
    watch(sh, s, UV_WRITABLE);
    return NULL;
fail:
    kw_free(s);
    close(fd);
    return text;
}

static void do_connect(struct kc_shell *sh, struct peer *p) {
    if (p->sock) sock_drop(p->sock); /* the address before did not answer in time */
    const char *text = start_connect(sh, p);
    if (text) kc_conn_connected(p->conn, KW_EIO, text, kc_clock_now());
}

/* The socket's own error, which libuv reports as EBADF whatever it is. NULL: none. */
static const char *sock_error(struct sock *s, int status) {
    int e = 0;
    socklen_t n = sizeof e;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &e, &n) != 0) e = errno;
    if (e != 0) return uv_strerror(-e);
    return status < 0 ? uv_strerror(status) : NULL;
}

static void on_connected(struct kc_shell *sh, struct sock *s, int status) {
    struct peer *p = s->peer;
    const char *text = sock_error(s, status);
    if (text) {
        sock_drop(s);
        kc_conn_connected(p->conn, KW_EIO, text, kc_clock_now());
        return;
    }
    s->connecting = false;
    watch(sh, s, UV_READABLE);
    kc_conn_connected(p->conn, KW_OK, NULL, kc_clock_now());
}

/* Writes until all is written or the socket is full. False: the connection died. */
static bool do_write(struct kc_shell *sh, struct peer *p) {
    struct sock *s = p->sock;
    struct kc_iov iov[IOV_MAX_];
    size_t count;
    while ((count = kc_conn_out(p->conn, iov, IOV_MAX_)) > 0) {
        struct msghdr m = {.msg_iov = (struct iovec *)(void *)iov, .msg_iovlen = count};
        ssize_t n = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) {
            watch(sh, s, UV_READABLE | UV_WRITABLE);
            return true;
        }
        if (n < 0) {
            peer_closed(p, KW_EIO, uv_strerror(-errno));
            return false;
        }
        kc_conn_written(p->conn, (size_t)n, kc_clock_now());
    }
    watch(sh, s, UV_READABLE);
    return true;
}

static void do_read(struct peer *p) {
    struct sock *s = p->sock;
    for (int i = 0; i < READS_MAX; i++) { /* others have their turn too */
        uint8_t *buf;
        size_t size;
        kc_conn_recv_buf(p->conn, &buf, &size);
        if (size == 0) return; /* it is being closed */
        ssize_t n = recv(s->fd, buf, size, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (n <= 0) {
            peer_closed(p, n == 0 ? KW_OK : KW_EIO, n == 0 ? NULL : uv_strerror(-errno));
            return;
        }
        kc_conn_received(p->conn, (size_t)n, kc_clock_now());
        if ((size_t)n < size) return;
    }
}

static void on_event(uv_poll_t *h, int status, int events) {
    struct sock *s = h->data;
    struct peer *p = s->peer;
    if (!p) return;
    struct kc_shell *sh = p->shell;
    atomic_store(&sh->in_event, true);
    if (s->connecting) {
        on_connected(sh, s, status);
        return;
    }
    if (status < 0) {
        peer_closed(p, KW_EIO, sock_error(s, status));
        return;
    }
    if ((events & UV_WRITABLE) && !do_write(sh, p)) return;
    if (events & UV_READABLE) do_read(p);
}

/* ---- Names ---- */

static void resolver_unref(struct resolver *r) {
    if (atomic_fetch_sub(&r->refs, 1) != 1) return;
    struct kw_list *l;
    while ((l = kw_list_shift(&r->done))) lookup_free(KW_CONTAINER_OF(l, struct lookup, link));
    pthread_mutex_destroy(&r->lock);
    kw_free(r);
}

static void look_up(struct lookup *k, int flags) {
    struct addrinfo hints = {.ai_family = k->family, .ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list = NULL;
    char port[8];
    snprintf(port, sizeof port, "%u", k->port);
    int e = getaddrinfo(k->host, port, &hints, &list);
    if (e != 0) snprintf(k->text, sizeof k->text, "%s", e == EAI_SYSTEM ? uv_strerror(-errno) : gai_strerror(e));
    for (struct addrinfo *a = list; a && k->count < LOOKUP_ADDRESSES_MAX; a = a->ai_next) {
        if (a->ai_addrlen > KC_ADDRESS_MAX) continue;
        k->addresses[k->count].size = (uint32_t)a->ai_addrlen;
        memcpy(k->addresses[k->count++].bytes, a->ai_addr, a->ai_addrlen);
    }
    if (list) freeaddrinfo(list);
}

static void *lookup_main(void *arg) {
    struct lookup *k = arg;
    struct resolver *r = k->resolver;
    look_up(k, AI_ADDRCONFIG);
    if (k->count == 0) { /* AI_ADDRCONFIG does not count loopback: a machine without a network still has names for it */
        k->text[0] = 0;
        look_up(k, 0);
    }
    pthread_mutex_lock(&r->lock);
    kw_list_push(&r->done, &k->link);
    if (r->wake_fd >= 0) (void)!write(r->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    pthread_mutex_unlock(&r->lock);
    resolver_unref(r);
    return NULL;
}

/* A thread that takes no signal of the application's. */
int kc_thread_start(pthread_t *thread, bool detached, size_t stack_size, void *(*main)(void *), void *arg) {
    sigset_t all, old;
    pthread_attr_t attr;
    int e = pthread_attr_init(&attr);
    if (e != 0) return e;
    if (detached) pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (stack_size) pthread_attr_setstacksize(&attr, stack_size);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    e = pthread_create(thread, &attr, main, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return e;
}

static void lookup_end(struct lookup *k) {
    struct peer *p = k->peer;
    if (p) {
        p->lookup = NULL;
        kc_conn_resolved(p->conn, k->addresses, k->count, k->count ? NULL : k->text, kc_clock_now());
    }
    lookup_free(k);
}

static void lookups_start(struct kc_shell *sh) {
    struct kw_list *l;
    while (sh->lookups_running < LOOKUPS_MAX && (l = kw_list_shift(&sh->lookups))) {
        struct lookup *k = KW_CONTAINER_OF(l, struct lookup, link);
        k->waiting = false;
        pthread_t t;
        atomic_fetch_add(&sh->resolver->refs, 1);
        int e = kc_thread_start(&t, true, LOOKUP_STACK_SIZE, lookup_main, k);
        if (e == 0) {
            sh->lookups_running++;
            continue;
        }
        resolver_unref(sh->resolver);
        snprintf(k->text, sizeof k->text, "no thread to look the name up: %s", uv_strerror(-e));
        lookup_end(k);
    }
}

static void lookups_done(struct kc_shell *sh) {
    struct kw_list done, *l;
    kw_list_init(&done);
    pthread_mutex_lock(&sh->resolver->lock);
    while ((l = kw_list_shift(&sh->resolver->done))) kw_list_push(&done, l);
    pthread_mutex_unlock(&sh->resolver->lock);
    while ((l = kw_list_shift(&done))) {
        sh->lookups_running--;
        lookup_end(KW_CONTAINER_OF(l, struct lookup, link));
    }
    lookups_start(sh);
}

static void do_resolve(struct kc_shell *sh, struct peer *p) {
    struct lookup *k = kw_calloc(1, sizeof *k);
    if (k) k->host = kw_memdup(kc_conn_host(p->conn), strlen(kc_conn_host(p->conn)) + 1);
    if (!k || !k->host) {
        kw_free(k);
        kc_conn_resolved(p->conn, NULL, 0, "out of memory", kc_clock_now());
        return;
    }
    k->resolver = sh->resolver;
    k->port = kc_conn_port(p->conn);
    int32_t f = sh->settings->address_family;
    k->family = f == 4 ? AF_INET : f == 6 ? AF_INET6 : AF_UNSPEC;
    k->peer = p;
    p->lookup = k;
    kw_list_init(&k->link);
    look_up(k, AI_NUMERICHOST | AI_NUMERICSERV);
    if (k->count > 0) {
        lookup_end(k);
        return;
    }
    k->text[0] = 0;
    k->waiting = true;
    kw_list_push(&sh->lookups, &k->link);
    lookups_start(sh);
}

/* ---- Turns ---- */

static struct peer *peer_of(struct kc_shell *sh, struct kc_conn *c) {
    struct peer *p = kc_conn_shell(c);
    if (p) return p;
    p = kw_calloc(1, sizeof *p);
    if (!p) return NULL;
    p->conn = c;
    p->shell = sh;
    kw_list_push(&sh->peers, &p->link);
    kc_conn_shell_set(c, p);
    return p;
}

static void act(struct kc_shell *sh, struct kc_conn *c, uint32_t wants) {
    struct peer *p = (wants & KC_WANT_CLOSE) ? kc_conn_shell(c) : peer_of(sh, c);
    if (wants & KC_WANT_CLOSE) {
        if (p) peer_free(p);
        kc_conn_closed(c, KW_OK, NULL, kc_clock_now());
        return;
    }
    if (!p) {
        if (wants & KC_WANT_RESOLVE) kc_conn_resolved(c, NULL, 0, "out of memory", kc_clock_now());
        return;
    }
    if (wants & KC_WANT_RESOLVE) do_resolve(sh, p);
    if (wants & KC_WANT_CONNECT) do_connect(sh, p);
    if ((wants & KC_WANT_WRITE) && p->sock && !p->sock->connecting && !(p->sock->events & UV_WRITABLE)) do_write(sh, p);
}

void kc_shell_settle(struct kc_shell *sh) {
    for (int i = 0; i < SETTLE_ROUNDS_MAX; i++) {
        struct kc_now now = kc_clock_now();
        kc_core_tick(sh->core, now);
        struct kc_conn *c;
        uint32_t wants;
        while ((c = kc_core_next_action(sh->core, &wants))) act(sh, c, wants);
        if (kc_core_deadline(sh->core) > now.mono_us) return;
    }
}

void kc_shell_wait(struct kc_shell *sh, int64_t timeout_us) {
    int64_t deadline = kc_core_deadline(sh->core);
    sh->dirty = false;
    atomic_store(&sh->in_event, false);
    if (timeout_us > 0 && (timeout_us != KW_NEVER || deadline != KW_NEVER)) {
        int64_t now = kc_clock_now().mono_us;
        if (timeout_us < KW_NEVER - now) deadline = KW_MIN(deadline, now + timeout_us);
        if (deadline <= now) timeout_us = 0;
        else kc_shell_timer_at(&sh->timer, deadline);
    }
    uv_run(&sh->loop, timeout_us > 0 ? UV_RUN_ONCE : UV_RUN_NOWAIT);
}

static void on_wake(uv_poll_t *h, int status, int events) {
    (void)status;
    (void)events;
    struct kc_shell *sh = h->data;
    uint64_t n;
    atomic_store(&sh->in_event, true);
    (void)!read(sh->wake_fd, &n, sizeof n);
    lookups_done(sh);
}

void kc_shell_wake(struct kc_shell *sh) {
    int saved = errno; /* may run in a signal handler */
    (void)!write(sh->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    errno = saved;
}

int kc_shell_fd(struct kc_shell *sh) {
    return uv_backend_fd(&sh->loop);
}

bool kc_shell_flush(struct kc_shell *sh) {
    if (!sh->dirty) return false;
    sh->dirty = false;
    uv_run(&sh->loop, UV_RUN_NOWAIT);
    return true;
}

/* ---- Life ---- */

static struct resolver *resolver_new(int wake_fd) {
    struct resolver *r = kw_calloc(1, sizeof *r);
    if (!r) return NULL;
    if (pthread_mutex_init(&r->lock, NULL) != 0) {
        kw_free(r);
        return NULL;
    }
    atomic_init(&r->refs, 1);
    r->wake_fd = wake_fd;
    kw_list_init(&r->done);
    return r;
}

kw_err kc_shell_new(const struct kc_settings *settings, struct kc_shell **out, char *why, size_t size) {
    kw_err err = KW_ENOMEM;
    struct kc_shell *sh = kw_calloc(1, sizeof *sh);
    snprintf(why, size, "out of memory");
    if (!sh) return KW_ENOMEM;
    sh->settings = settings;
    kw_list_init(&sh->peers);
    kw_list_init(&sh->socks);
    kw_list_init(&sh->lookups);
    sh->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (sh->wake_fd < 0) {
        snprintf(why, size, "eventfd: %s", uv_strerror(-errno));
        err = KW_EIO;
        goto fail_fd;
    }
    sh->resolver = resolver_new(sh->wake_fd);
    if (!sh->resolver) goto fail_resolver;
    int r = uv_loop_init(&sh->loop);
    if (r != 0) {
        snprintf(why, size, "uv_loop_init: %s", uv_strerror(r));
        err = r == UV_ENOMEM ? KW_ENOMEM : KW_EIO;
        goto fail_loop;
    }
    r = kc_shell_timer_init(&sh->timer, &sh->loop, NULL, NULL);
    if (r != 0) {
        snprintf(why, size, "timerfd: %s", uv_strerror(r));
        err = KW_EIO;
        goto fail_timer;
    }
    r = uv_poll_init(&sh->loop, &sh->wake, sh->wake_fd);
    if (r != 0) {
        snprintf(why, size, "uv_poll_init: %s", uv_strerror(r));
        err = KW_EIO;
        goto fail_poll;
    }
    sh->wake.data = sh;
    uv_poll_start(&sh->wake, UV_READABLE, on_wake);
    sh->dirty = true;
    *out = sh;
    return KW_OK;
fail_poll:
    kc_shell_timer_close(&sh->timer);
fail_timer:
    uv_run(&sh->loop, UV_RUN_NOWAIT);
    uv_loop_close(&sh->loop);
fail_loop:
    resolver_unref(sh->resolver);
fail_resolver:
    close(sh->wake_fd);
fail_fd:
    kw_free(sh);
    return err;
}

void kc_shell_attach(struct kc_shell *sh, struct kc_core *core) {
    sh->core = core;
}

static void free_lists(struct kc_shell *sh) {
    struct kw_list *l;
    while ((l = kw_list_shift(&sh->lookups))) lookup_free(KW_CONTAINER_OF(l, struct lookup, link));
    while ((l = kw_list_shift(&sh->peers))) kw_free(KW_CONTAINER_OF(l, struct peer, link));
}

/* The loop's own descriptors are closed by hand and its few hundred bytes of lists are left: closing it properly would take our watches out
 * of the epoll instance, which is the parent's too. */
void kc_shell_free_forked(struct kc_shell *sh, bool whole) {
    if (!sh) return;
    struct kw_list *l = sh->socks.next;
    for (int i = 0; l != &sh->socks && i < FORKED_SOCKS_MAX; i++) { /* forwards a list is always whole */
        struct sock *s = KW_CONTAINER_OF(l, struct sock, link);
        l = l->next;
        if (s->fd >= 0) close(s->fd);
        if (whole) kw_free(s);
    }
    if (whole) free_lists(sh);
    close(sh->loop.backend_fd);
    close(sh->loop.async_io_watcher.fd);
    if (sh->loop.signal_pipefd[0] >= 0) close(sh->loop.signal_pipefd[0]);
    if (sh->loop.signal_pipefd[1] >= 0) close(sh->loop.signal_pipefd[1]);
    close(sh->timer.fd);
    close(sh->wake_fd);
    if (whole) kw_free(sh);
}

bool kc_shell_in_event(const struct kc_shell *sh) {
    return atomic_load(&sh->in_event);
}

void kc_shell_free(struct kc_shell *sh) {
    if (!sh) return;
    struct kw_list *l;
    for (l = sh->socks.next; l != &sh->socks; l = l->next) {
        struct sock *s = KW_CONTAINER_OF(l, struct sock, link);
        if (s->fd >= 0) sock_drop(s);
    }
    free_lists(sh);
    kc_shell_timer_close(&sh->timer);
    uv_close((uv_handle_t *)&sh->wake, NULL);
    for (int i = 0; i < SETTLE_ROUNDS_MAX && uv_run(&sh->loop, UV_RUN_NOWAIT) != 0; i++) {
    }
    int r = uv_loop_close(&sh->loop);
    KW_ASSERT(r == 0);
    pthread_mutex_lock(&sh->resolver->lock);
    sh->resolver->wake_fd = -1;
    pthread_mutex_unlock(&sh->resolver->lock);
    resolver_unref(sh->resolver);
    close(sh->wake_fd);
    kw_free(sh);
}
