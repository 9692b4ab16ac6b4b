/* shell_link.c - the connections that a node opens: names looked up beside the loop, connected, requests written, answers read into the
 * core's buffers.
 *
 * Called by main (kb_shell_turn) and libuv (readiness, lookups). Carries out node.h's dials.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shell_parts.h"

enum { READS = 8, READ_BYTES = 2 << 20, IOV_MAX_ = 64, SEND_BYTES = 2 << 20 };

struct out { /* one dial */
    struct kb_shell_link *owner;
    struct kw_list link;
    struct kb_dial *dial; /* NULL: over, and only libuv still has it */
    uv_getaddrinfo_t lookup;
    uv_poll_t poll;
    struct addrinfo *found, *next; /* of a name: the addresses, and the next to be tried */
    int fd, events;                /* fd -1: none */
    bool looking, connected;
    bool retry; /* the last address failed so; the next one once libuv has given its handle back */
    enum kb_link_end how;
    int handles; /* that libuv has of it */
};
struct kb_shell_link {
    struct kb_shell *s;
    struct kw_list outs;
    int held; /* outs that libuv has not given back */
    bool freed;
};

static void out_released(struct out *o) {
    if (o->dial || o->handles > 0) return;
    struct kb_shell_link *n = o->owner;
    uv_freeaddrinfo(o->found);
    free(o);
    if (--n->held == 0 && n->freed) free(n);
}

static void try_next(struct out *o, enum kb_link_end how);

static void poll_closed(uv_handle_t *h) {
    struct out *o = KW_CONTAINER_OF((uv_poll_t *)h, struct out, poll);
    struct kb_shell *s = o->owner->s;
    o->handles--;
    if (!o->dial || !o->retry) {
        out_released(o);
        return;
    }
    o->retry = false;
    s->now = kb_shell_now();
    try_next(o, o->how);
    kb_shell_turn(s); /* no poll comes between this and the loop's next sleep */
}

/* A poll handle goes with its descriptor; another address gets new ones once libuv has given this one back. */
static void drop_socket(struct out *o) {
    if (o->fd < 0) return;
    uv_close((uv_handle_t *)&o->poll, poll_closed);
    close(o->fd);
    o->fd = -1;
    o->events = 0;
}

static void end(struct out *o, enum kb_link_end how) {
    struct kb_dial *d = o->dial;
    if (!d) return;
    o->dial = NULL;
    kw_list_remove(&o->link);
    if (o->looking) uv_cancel((uv_req_t *)&o->lookup);
    drop_socket(o);
    kb_dial_ended(d, how, o->owner->s->now);
    out_released(o);
}

static void happened(uv_poll_t *p, int status, int events);

static void watch(struct out *o, int events) {
    if (o->events == events) return;
    o->events = events;
    uv_poll_start(&o->poll, events, happened);
}

/* ---- Bytes ---- */

static enum kb_link_end reason(int err) {
    return err == ECONNREFUSED ? KB_LINK_REFUSED : err == 0 ? KB_LINK_CLOSED_BY_PEER : KB_LINK_RESET;
}

/* false: the connection is over. */
static bool send_some(struct out *o, bool *did, bool *left) {
    *left = true;
    for (size_t sent = 0; sent < SEND_BYTES;) {
        struct kb_iov iov[IOV_MAX_];
        struct msghdr m = {.msg_iov = (struct iovec *)iov, .msg_iovlen = kb_dial_send(o->dial, iov, IOV_MAX_)};
        if (m.msg_iovlen == 0) {
            *left = false;
            return true;
        }
        ssize_t n = sendmsg(o->fd, &m, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        if (n < 0) {
            end(o, reason(errno));
            return false;
        }
        *did = true;
        sent += (size_t)n;
        kb_dial_sent(o->dial, (size_t)n, o->owner->s->now);
    }
    return true;
}

static bool receive(struct out *o) {
    size_t bytes = 0;
    for (int i = 0; i < READS && bytes < READ_BYTES && o->dial; i++) {
        uint8_t *p;
        size_t n;
        kb_dial_recv_buf(o->dial, &p, &n);
        if (n == 0) return true;
        ssize_t got = recv(o->fd, p, n, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            kb_dial_received(o->dial, 0, o->owner->s->now);
            return true;
        }
        if (got <= 0) {
            end(o, got == 0 ? KB_LINK_CLOSED_BY_PEER : reason(errno));
            return false;
        }
        bytes += (size_t)got;
        kb_dial_received(o->dial, (size_t)got, o->owner->s->now);
        if ((size_t)got < n) return true;
    }
    return true;
}

/* ---- Connecting ---- */

static bool try_address(struct out *o, const struct sockaddr *a, socklen_t len, int family) {
    int on = 1;
    o->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (o->fd < 0) return false;
    setsockopt(o->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    int err = connect(o->fd, a, len) == 0 ? 0 : errno;
    if ((err != 0 && err != EINPROGRESS && err != EINTR) || uv_poll_init_socket(o->owner->s->loop, &o->poll, o->fd) != 0) {
        close(o->fd);
        o->fd = -1;
        errno = err;
        return false;
    }
    o->poll.data = o;
    o->handles++;
    watch(o, UV_WRITABLE | UV_DISCONNECT); /* connected already, or not: the poll tells */
    return true;
}

/* The next address of the name; the last one's failure is what is told. */
static void try_next(struct out *o, enum kb_link_end how) {
    o->how = how;
    if (o->handles > 0 && o->next) {
        o->retry = true;
        return;
    }
    while (o->next) {
        const struct addrinfo *a = o->next;
        o->next = a->ai_next;
        if (try_address(o, a->ai_addr, a->ai_addrlen, a->ai_family)) return;
        how = errno == ECONNREFUSED ? KB_LINK_REFUSED : KB_LINK_UNREACHABLE;
    }
    end(o, how);
}

static void looked_up(uv_getaddrinfo_t *r, int status, struct addrinfo *found) {
    struct out *o = KW_CONTAINER_OF(r, struct out, lookup);
    o->handles--;
    o->looking = false;
    o->found = found;
    if (!o->dial) {
        out_released(o);
        return;
    }
    o->owner->s->brought = true;
    o->owner->s->now = kb_shell_now();
    o->next = status == 0 ? found : NULL;
    try_next(o, KB_LINK_UNREACHABLE);
}

/* false: it is a name. */
static bool connect_literal(struct out *o, const char *host, uint16_t port) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool v4 = inet_pton(AF_INET, host, &in.sin_addr) == 1;
    if (!v4 && inet_pton(AF_INET6, host, &in6.sin6_addr) != 1) return false;
    bool ok = v4 ? try_address(o, (struct sockaddr *)&in, sizeof(in), AF_INET) : try_address(o, (struct sockaddr *)&in6, sizeof(in6), AF_INET6);
    if (!ok) end(o, errno == ECONNREFUSED ? KB_LINK_REFUSED : KB_LINK_UNREACHABLE);
    return true;
}

static void begin(struct kb_shell_link *n, struct kb_dial *d) {
    const char *host;
    uint16_t port;
    char service[8];
    kb_dial_address(d, &host, &port);
    struct out *o = calloc(1, sizeof(*o));
    if (!o) {
        kb_dial_ended(d, KB_LINK_UNREACHABLE, n->s->now);
        return;
    }
    n->held++;
    o->owner = n;
    o->dial = d;
    o->fd = -1;
    kw_list_init(&o->link);
    kw_list_push(&n->outs, &o->link);
    kb_dial_set_shell(d, o);
    if (connect_literal(o, host, port)) return;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    snprintf(service, sizeof(service), "%u", port);
    if (uv_getaddrinfo(n->s->loop, &o->lookup, looked_up, host, service, &hints) != 0) {
        end(o, KB_LINK_UNREACHABLE);
        return;
    }
    o->handles++;
    o->looking = true;
}

/* ---- Events ---- */

/* Sends and closes as the dial now wants it; true: something was done. */
static bool serve(struct out *o) {
    bool did = false, left;
    if (kb_dial_wants_close(o->dial)) {
        end(o, KB_LINK_CLOSED);
        return true;
    }
    if (!o->connected) return false;
    if (send_some(o, &did, &left)) watch(o, UV_READABLE | UV_DISCONNECT | (left ? UV_WRITABLE : 0));
    return did || !o->dial;
}

static void is_connected(struct out *o) {
    int err = 0;
    socklen_t len = sizeof(err);
    if (getsockopt(o->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0) err = errno;
    if (err != 0) {
        drop_socket(o);
        try_next(o, err == ECONNREFUSED ? KB_LINK_REFUSED : KB_LINK_UNREACHABLE);
        return;
    }
    o->connected = true;
    kb_dial_connected(o->dial, o->owner->s->now);
    watch(o, UV_READABLE | UV_DISCONNECT);
}

static void happened(uv_poll_t *p, int status, int events) {
    struct out *o = p->data;
    o->owner->s->brought = true;
    if (!o->dial) return;
    o->owner->s->now = kb_shell_now();
    if (!o->connected) {
        is_connected(o);
        return;
    }
    if (status < 0) {
        end(o, KB_LINK_RESET);
        return;
    }
    if ((events & UV_READABLE) && !receive(o)) return;
    if (!o->dial) return;
    if ((events & UV_DISCONNECT) && !(events & UV_READABLE)) {
        end(o, KB_LINK_CLOSED_BY_PEER);
        return;
    }
    if (events & UV_WRITABLE) (void)serve(o);
}

bool kb_shell_link_run(struct kb_shell_link *n) {
    bool did = false;
    for (struct kb_dial *d; (d = kb_node_next_dial(n->s->node));) {
        struct out *o = kb_dial_shell(d);
        if (!o) {
            begin(n, d);
            did = true; /* it may have failed at once */
        } else {
            did = serve(o) || did;
        }
    }
    return did;
}

/* ---- Life ---- */

int kb_shell_link_new(struct kb_shell *s, struct kb_shell_link **out) {
    struct kb_shell_link *n = calloc(1, sizeof(*n));
    if (!n) return ENOMEM;
    n->s = s;
    kw_list_init(&n->outs);
    *out = n;
    return 0;
}

void kb_shell_link_free(struct kb_shell_link *n) {
    if (!n) return;
    n->held++; /* it stays while it is walked */
    while (!kw_list_empty(&n->outs)) {
        struct out *o = KW_CONTAINER_OF(n->outs.next, struct out, link);
        kw_list_remove(&o->link);
        o->dial = NULL; /* forgotten: the node is about to go */
        if (o->looking) uv_cancel((uv_req_t *)&o->lookup);
        drop_socket(o);
        out_released(o);
    }
    n->freed = true;
    if (--n->held == 0) free(n);
}
