/* shell_net.c - sockets: listens, accepts, reads into the core's buffers, writes its replies, file slices by sendfile.
 *
 * Called by main (kb_shell_turn) and libuv (readiness). Calls shell_listen. Sockets are watched, not wrapped: recv goes straight into the block that the log
 * writes from, and sendfile needs the socket itself. Nothing here wakes up while nothing happens.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shell_parts.h"

enum { LISTENERS_MAX = 16, ACCEPTS = 64, READS = 8, READ_BYTES = 2 << 20, IOV_MAX_ = 64, WRITE_BYTES = 1 << 20, SEND_BYTES = 2 << 20,
       COPY_MAX = 16 << 10 /* a file part up to so many bytes is read and goes out with what is around it: sendfile costs more than that */ };

struct listener {
    struct kb_shell_net *net;
    uv_poll_t poll;
    int fd;
};
struct sock {
    struct kb_shell_net *net;
    uv_poll_t poll;
    struct kw_list link;
    int fd, events;
    struct kb_conn *conn;
    struct kw_list replies; /* taken, not yet all sent */
    size_t part, part_sent; /* where the first one stands */
    bool dead;
};
struct kb_shell_net {
    struct kb_shell *s;
    struct listener listeners[LISTENERS_MAX];
    size_t listener_count;
    struct kw_list socks;
    uv_check_t check; /* ends the turn after each poll that brought something */
    int spare_fd; /* given up for a moment to turn a client away when descriptors run out */
    int send_buffer, recv_buffer;
    int64_t said_us;
};

static struct sock *sock_of(struct kw_list *l) {
    return KW_CONTAINER_OF(l, struct sock, link);
}
static struct kb_reply *reply_of(struct kw_list *l) {
    return KW_CONTAINER_OF(l, struct kb_reply, link);
}

/* ---- Life of a connection ---- */

static void sock_freed(uv_handle_t *h) {
    free(KW_CONTAINER_OF((uv_poll_t *)h, struct sock, poll));
}

static void sock_close(struct sock *k) {
    if (k->dead) return;
    k->dead = true;
    kw_list_remove(&k->link);
    for (struct kw_list *l; (l = kw_list_shift(&k->replies));) kb_reply_free(reply_of(l));
    kb_conn_closed(k->conn, k->net->s->now);
    uv_close((uv_handle_t *)&k->poll, sock_freed);
    close(k->fd);
}

static void readable(uv_poll_t *p, int status, int events);

static void watch(struct sock *k, int events) {
    if (k->events == events) return;
    k->events = events;
    if (events == 0)
        uv_poll_stop(&k->poll);
    else
        uv_poll_start(&k->poll, events, readable);
}

/* ---- Sending ---- */

static int fd_of(const struct kb_part *p) {
    return kb_shell_fd(p->file);
}

/* Reads the rest of a small file part to `to`; false: it is not small, or is not there as it should be (send_file says so). */
static bool copy_part(const struct kb_part *p, size_t skip, uint8_t *to, size_t room) {
    size_t len = p->len - skip;
    return len <= room && pread(fd_of(p), to, len, (off_t)p->offset + (off_t)skip) == (ssize_t)len;
}

/* Parts from the first one on, up to a large file part; *more: something follows. */
static size_t gather(const struct sock *k, struct iovec *iov, uint8_t *copies, bool *more) {
    size_t n = 0, bytes = 0, part = k->part, skip = k->part_sent, copied = 0;
    *more = false;
    for (const struct kw_list *l = k->replies.next; l != &k->replies; l = l->next, part = 0) {
        const struct kb_reply *r = KW_CONTAINER_OF(l, const struct kb_reply, link);
        for (; part < r->part_count; part++, skip = 0) {
            const struct kb_part *p = &r->parts[part];
            if (n == IOV_MAX_ || bytes > WRITE_BYTES || (!p->p && !copy_part(p, skip, copies + copied, COPY_MAX - copied))) {
                *more = true;
                return n;
            }
            iov[n++] = (struct iovec){p->p ? (void *)(uintptr_t)(p->p + skip) : copies + copied, p->len - skip};
            if (!p->p) copied += p->len - skip;
            bytes += p->len;
        }
    }
    return n;
}

static void advance(struct sock *k, size_t bytes) {
    kb_conn_sent(k->conn, bytes, k->net->s->now);
    while (!kw_list_empty(&k->replies)) {
        struct kb_reply *r = reply_of(k->replies.next);
        while (k->part < r->part_count && bytes >= r->parts[k->part].len - k->part_sent) {
            bytes -= r->parts[k->part].len - k->part_sent;
            k->part_sent = 0;
            k->part++;
        }
        if (k->part < r->part_count) {
            k->part_sent += bytes;
            return;
        }
        kw_list_remove(&r->link);
        kb_reply_free(r);
        k->part = 0;
    }
}

static ssize_t send_file(const struct sock *k, const struct kb_part *p) {
    off_t at = (off_t)p->offset + (off_t)k->part_sent;
    ssize_t n = sendfile(k->fd, fd_of(p), &at, p->len - k->part_sent);
    if (n == 0) errno = EIO; /* the file is shorter than the log says */
    return n > 0 ? n : -1;
}

/* Sends what the socket takes; false: the connection failed. */
static bool send_some(struct sock *k, bool *did) {
    for (size_t sent = 0; sent < SEND_BYTES;) { /* one fast reader of large answers must not keep the loop from the others */
        for (struct kb_reply *r; kw_list_empty(&k->replies) && (r = kb_conn_take_reply(k->conn));) {
            kw_list_push(&k->replies, &r->link);
            if (r->total == 0) advance(k, 0);
        }
        if (kw_list_empty(&k->replies)) return true;
        for (struct kb_reply *r; (r = kb_conn_take_reply(k->conn));) kw_list_push(&k->replies, &r->link);
        struct iovec iov[IOV_MAX_];
        uint8_t copies[COPY_MAX];
        bool more;
        struct msghdr m = {.msg_iov = iov};
        m.msg_iovlen = gather(k, iov, copies, &more);
        ssize_t n = m.msg_iovlen > 0 ? sendmsg(k->fd, &m, MSG_NOSIGNAL | (more ? MSG_MORE : 0))
                                     : send_file(k, &reply_of(k->replies.next)->parts[k->part]);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
        *did = true;
        sent += (size_t)n;
        advance(k, (size_t)n);
    }
    return true; /* what is left goes on when the socket is found writable */
}

/* ---- Receiving ---- */

/* false: the connection is over. */
static bool receive(struct sock *k) {
    size_t bytes = 0;
    for (int i = 0; i < READS && bytes < READ_BYTES; i++) {
        uint8_t *p;
        size_t n;
        kb_conn_recv_buf(k->conn, &p, &n);
        if (n == 0) return true; /* serve() stops watching */
        ssize_t got = recv(k->fd, p, n, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            kb_conn_received(k->conn, 0, k->net->s->now); /* gives the buffer back */
            return true;
        }
        if (got <= 0) return false;
        kb_conn_received(k->conn, (size_t)got, k->net->s->now);
        bytes += (size_t)got;
        if ((size_t)got < n) return true;
    }
    return true;
}

/* Sends, closes, watches as the connection now wants it. True: something was done. */
static bool serve(struct sock *k) {
    bool did = false;
    if (!send_some(k, &did) || (kb_conn_wants_close(k->conn) && kw_list_empty(&k->replies))) {
        sock_close(k);
        return true;
    }
    watch(k, (kb_conn_wants_read(k->conn) ? UV_READABLE : 0) | (kw_list_empty(&k->replies) ? 0 : UV_WRITABLE) | UV_DISCONNECT);
    return did;
}

static void readable(uv_poll_t *p, int status, int events) {
    struct sock *k = p->data;
    k->net->s->brought = true;
    if (k->dead) return;
    k->net->s->now = kb_shell_now();
    bool over = status < 0 || ((events & UV_READABLE) && !receive(k)) || ((events & UV_DISCONNECT) && !(events & UV_READABLE));
    if (over)
        sock_close(k);
    else if (!(events & UV_READABLE) || (events & UV_WRITABLE) || !kb_conn_wants_read(k->conn))
        (void)serve(k);
}

bool kb_shell_net_run(struct kb_shell_net *n) {
    bool did = false;
    for (struct kb_conn *c; (c = kb_node_next_conn(n->s->node));) {
        struct sock *k = kb_conn_shell(c);
        did = serve(k) || did;
    }
    return did;
}

bool kb_shell_net_flushed(const struct kb_shell_net *n) {
    for (const struct kw_list *l = n->socks.next; l != &n->socks; l = l->next)
        if (!kw_list_empty(&KW_CONTAINER_OF(l, const struct sock, link)->replies)) return false;
    return true;
}

/* ---- Accepting ---- */

/* Numeric, without the ::ffff: of an IPv4 client on an IPv6 socket. */
static void address_text(const struct sockaddr_storage *a, char *host, size_t size, uint16_t *port) {
    host[0] = 0;
    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)a;
        inet_ntop(AF_INET, &in->sin_addr, host, (socklen_t)size);
        *port = ntohs(in->sin_port);
        return;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)a;
    *port = ntohs(in6->sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
        inet_ntop(AF_INET, in6->sin6_addr.s6_addr + 12, host, (socklen_t)size);
    else
        inet_ntop(AF_INET6, &in6->sin6_addr, host, (socklen_t)size);
}

static struct kb_conn *tell_core(struct sock *k, const struct sockaddr_storage *from) {
    struct sockaddr_storage here;
    socklen_t len = sizeof(here);
    char host[INET6_ADDRSTRLEN], peer_host[INET6_ADDRSTRLEN], peer[INET6_ADDRSTRLEN + 10];
    struct kb_conn_info info = {.local_host = host, .peer = peer};
    uint16_t peer_port;
    if (getsockname(k->fd, (struct sockaddr *)&here, &len) != 0) return NULL;
    address_text(&here, host, sizeof(host), &info.local_port);
    address_text(from, peer_host, sizeof(peer_host), &peer_port);
    snprintf(peer, sizeof(peer), strchr(peer_host, ':') ? "[%s]:%u" : "%s:%u", peer_host, peer_port);
    k->net->s->now = kb_shell_now();
    return kb_node_accept(k->net->s->node, &info, k, k->net->s->now);
}

static void take_client(struct kb_shell_net *n, int fd, const struct sockaddr_storage *from) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (n->send_buffer > 0) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n->send_buffer, sizeof(n->send_buffer));
    if (n->recv_buffer > 0) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &n->recv_buffer, sizeof(n->recv_buffer));
    struct sock *k = calloc(1, sizeof(*k));
    if (!k || uv_poll_init_socket(n->s->loop, &k->poll, fd) != 0) {
        free(k);
        close(fd);
        return;
    }
    k->net = n;
    k->fd = fd;
    k->poll.data = k;
    kw_list_init(&k->link);
    kw_list_init(&k->replies);
    k->conn = tell_core(k, from);
    if (!k->conn) {
        k->dead = true;
        uv_close((uv_handle_t *)&k->poll, sock_freed);
        close(fd);
        return;
    }
    kw_list_push(&n->socks, &k->link);
    watch(k, UV_READABLE | UV_DISCONNECT);
}

static void out_of_descriptors(struct kb_shell_net *n, int listen_fd) {
    int64_t now = kb_shell_now().mono_us;
    if (now - n->said_us > 1000000)
        kb_say(n->s->logger, KB_ERROR,
               "no file descriptor is left for another connection: raise the limit (ulimit -n), or set max.connections");
    n->said_us = now;
    close(n->spare_fd);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
    n->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void acceptable(uv_poll_t *p, int status, int events) {
    (void)events;
    struct listener *l = p->data;
    if (status < 0) return;
    l->net->s->brought = true;
    for (int i = 0; i < ACCEPTS; i++) {
        struct sockaddr_storage from;
        socklen_t len = sizeof(from);
        int fd = accept4(l->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take_client(l->net, fd, &from);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE) out_of_descriptors(l->net, l->fd);
        if (errno != ECONNABORTED && errno != EINTR) return;
    }
}

/* What to do about it. */
static const char *listen_advice(int err) {
    switch (err) {
    case EADDRINUSE:
        return "; stop that program, or choose another with --listen HOST:PORT (port 0: any free one)";
    case EADDRNOTAVAIL:
        return "; this machine has no such address: choose one of its own with --listen HOST:PORT (no host: all of them)";
    case EACCES:
        return "; this user may not take the port: choose one from 1024 on with --listen HOST:PORT";
    default:
        return "";
    }
}

int kb_shell_net_listen(struct kb_shell_net *n, const char *host, uint16_t port, int backlog, uint16_t *got, char *text, size_t size) {
    char why[400];
    if (n->listener_count == LISTENERS_MAX) {
        snprintf(text, size, "at most %d listeners", LISTENERS_MAX);
        return -1;
    }
    int fd = kb_shell_listen(host, port, backlog, got, why, sizeof(why)), err = errno;
    struct listener *l = &n->listeners[n->listener_count];
    if (fd >= 0 && uv_poll_init_socket(n->s->loop, &l->poll, fd) == 0) {
        l->net = n;
        l->fd = fd;
        l->poll.data = l;
        n->listener_count++;
        return 0;
    }
    snprintf(text, size, "cannot listen on %s:%u: %s%s", host, port, fd < 0 ? why : "out of memory", fd < 0 ? listen_advice(err) : "");
    if (fd >= 0) close(fd);
    return -1;
}

/* ---- Life ---- */

static void checked(uv_check_t *c) {
    struct kb_shell_net *n = c->data;
    if (!n->s->brought) return;
    n->s->brought = false;
    kb_shell_turn(n->s);
}

int kb_shell_net_new(struct kb_shell *s, struct kb_shell_net **out) {
    struct kb_shell_net *n = calloc(1, sizeof(*n));
    if (!n) return ENOMEM;
    n->s = s;
    kw_list_init(&n->socks);
    n->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uv_check_init(s->loop, &n->check);
    n->check.data = n;
    uv_check_start(&n->check, checked);
    *out = n;
    return 0;
}

void kb_shell_net_accept(struct kb_shell_net *n, int send_buffer, int recv_buffer) {
    n->send_buffer = send_buffer;
    n->recv_buffer = recv_buffer;
    for (size_t i = 0; i < n->listener_count; i++) uv_poll_start(&n->listeners[i].poll, UV_READABLE, acceptable);
}

static void net_freed(uv_handle_t *h) {
    free(h->data);
}

void kb_shell_net_free(struct kb_shell_net *n) {
    if (!n) return;
    while (!kw_list_empty(&n->socks)) sock_close(sock_of(n->socks.next));
    for (size_t i = 0; i < n->listener_count; i++) {
        uv_close((uv_handle_t *)&n->listeners[i].poll, NULL);
        close(n->listeners[i].fd);
    }
    if (n->spare_fd >= 0) close(n->spare_fd);
    uv_close((uv_handle_t *)&n->check, net_freed);
}
