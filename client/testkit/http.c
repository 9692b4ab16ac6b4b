/* http.c - one HTTP request over one connection, to a TCP port or the admin socket of a folder. Called by ask.c and cluster.c. Contract: testkit.h.
 *
 * The peer is kbroker: answers have a length, and end with their connection.
 */
#include "testkit.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_MAX = 256 << 20, READ_MIN = 16384 };
static const char socket_name[] = ".admin.sock";

struct call {
    const struct kt_address *at;
    int64_t deadline_us;
    int fd;
    char *why;
    size_t why_size;
};

static kc_err fail(struct call *k, kc_err code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static kc_err fail(struct call *k, kc_err code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(k->why, k->why_size, fmt, ap);
    va_end(ap);
    return code;
}

bool kt_address_parse(const char *where, struct kt_address *out) {
    memset(out, 0, sizeof *out);
    if (strncmp(where, "http://", 7) != 0) {
        out->is_unix = true;
        return *where && (size_t)snprintf(out->host, sizeof out->host, "%s", where) < sizeof out->host;
    }
    const char *host = where + 7, *end = host + strcspn(host, "/"), *colon = memrchr(host, ':', (size_t)(end - host));
    if (!colon || colon == host || (*end && end[1])) return false;
    bool bracketed = *host == '[' && colon - host > 2 && colon[-1] == ']'; /* IPv6 */
    int n = (int)(colon - host) - (bracketed ? 2 : 0), port = (int)(end - colon) - 1;
    if (n >= (int)sizeof out->host || port < 1 || port > 5 || strspn(colon + 1, "0123456789") != (size_t)port) return false;
    snprintf(out->host, sizeof out->host, "%.*s", n, host + bracketed);
    snprintf(out->port, sizeof out->port, "%.*s", port, colon + 1);
    return true;
}

/* ---- The connection ---- */

static kc_err await(struct call *k, short events, const char *doing) {
    for (;;) {
        struct pollfd p = {.fd = k->fd, .events = events};
        int n = poll(&p, 1, kt_poll_ms(k->deadline_us));
        if (n > 0) return KC_OK;
        if (n == 0 && kt_now_us() < k->deadline_us) continue;
        if (n == 0) return fail(k, KC_TIMED_OUT, "%s", doing);
        if (errno != EINTR) return fail(k, KC_TRANSPORT, "poll: %s", strerror(errno));
    }
}

static kc_err connect_to(struct call *k, const struct sockaddr *sa, socklen_t size) {
    k->fd = socket(sa->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (k->fd < 0) return fail(k, KC_TRANSPORT, "socket: %s", strerror(errno));
    int err = connect(k->fd, sa, size) == 0 ? 0 : errno;
    for (; err == EAGAIN; err = connect(k->fd, sa, size) == 0 ? 0 : errno) { /* a unix socket whose queue is full */
        if (kt_now_us() >= k->deadline_us) return fail(k, KC_TIMED_OUT, "no connection was taken");
        kt_sleep_ms(5);
    }
    if (err == EINPROGRESS) {
        kc_err timed = await(k, POLLOUT, "no connection was taken");
        if (timed) return timed;
        socklen_t n = sizeof err;
        if (getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &err, &n) != 0) err = errno;
    }
    return err ? fail(k, KC_TRANSPORT, "%s", strerror(err)) : KC_OK;
}

/* A folder's path may be longer than an address of a socket: the way to it is then its descriptor. */
static kc_err connect_unix(struct call *k) {
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int dir = open(k->at->host, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) return fail(k, KC_TRANSPORT, "%s", strerror(errno));
    snprintf(sa.sun_path, sizeof sa.sun_path, "/proc/self/fd/%d/%s", dir, socket_name);
    kc_err err = connect_to(k, (const struct sockaddr *)&sa, sizeof sa);
    close(dir);
    return err;
}

static kc_err connect_tcp(struct call *k) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all, *a;
    int err = getaddrinfo(k->at->host, k->at->port, &hints, &all);
    if (err) return fail(k, KC_RESOLVE, "%s: %s", k->at->host, gai_strerror(err));
    kc_err result = KC_RESOLVE;
    for (a = all; a && result != KC_OK; a = a->ai_next) {
        if (k->fd >= 0) close(k->fd);
        result = connect_to(k, a->ai_addr, a->ai_addrlen);
    }
    freeaddrinfo(all);
    return result;
}

/* ---- Request and answer ---- */

static kc_err send_all(struct call *k, const char *p, size_t n) {
    while (n > 0) {
        ssize_t sent = send(k->fd, p, n, MSG_NOSIGNAL);
        if (sent > 0) {
            p += sent;
            n -= (size_t)sent;
        } else if (errno == EAGAIN) {
            kc_err err = await(k, POLLOUT, "the request was not taken");
            if (err) return err;
        } else if (errno != EINTR) {
            return fail(k, KC_TRANSPORT, "%s", strerror(errno));
        }
    }
    return KC_OK;
}

static kc_err send_request(struct call *k, const char *method, const char *path, const char *body) {
    char *text = NULL;
    int n = asprintf(&text, "%s %s HTTP/1.1\r\nHost: %s%s%s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", method,
                     path, k->at->is_unix ? "localhost" : k->at->host, k->at->is_unix ? "" : ":", k->at->port, body ? strlen(body) : 0, body ? body : "");
    if (n < 0) return fail(k, KC_NO_MEMORY, "out of memory");
    kc_err err = send_all(k, text, (size_t)n);
    free(text);
    return err;
}

/* All that comes, until the peer has closed. Zero-terminated. */
static kc_err take_all(struct call *k, char **out, size_t *out_size) {
    char *text = NULL;
    size_t size = 0, cap = 0;
    kc_err err;
    for (;;) {
        if (cap - size < 2) {
            char *more = cap >= ANSWER_MAX ? NULL : realloc(text, cap = cap ? 2 * cap : READ_MIN);
            if (!more) {
                err = fail(k, cap >= ANSWER_MAX ? KC_BAD_MESSAGE : KC_NO_MEMORY, "its answer is too large");
                break;
            }
            text = more;
        }
        ssize_t n = recv(k->fd, text + size, cap - size - 1, 0);
        if (n > 0) {
            size += (size_t)n;
            continue;
        }
        if (n == 0) {
            text[size] = 0;
            *out = text;
            *out_size = size;
            return KC_OK;
        }
        err = errno == EINTR ? KC_OK : errno == EAGAIN ? await(k, POLLIN, "no answer came") : fail(k, KC_TRANSPORT, "%s", strerror(errno));
        if (err) break;
    }
    free(text);
    return err;
}

/* The value of a line of the head; -1: there is none. */
static int64_t length_in(const char *head, const char *end) {
    static const char name[] = "content-length:";
    for (const char *line = head; line && line < end; line = strstr(line, "\r\n")) {
        line += line == head ? 0 : 2;
        if (strncasecmp(line, name, sizeof name - 1) == 0) return strtoll(line + sizeof name - 1, NULL, 10);
    }
    return -1;
}

static kc_err read_answer(struct call *k, char *text, size_t size, struct kt_answer *out) {
    char *end = strstr(text, "\r\n\r\n");
    int status = 0;
    if (size == 0) return fail(k, KC_TRANSPORT, "the connection was closed without an answer");
    if (!end || sscanf(text, "HTTP/1.%*d %d", &status) != 1 || status < 100 || status > 599) return fail(k, KC_BAD_MESSAGE, "its answer is no HTTP");
    size_t body = size - (size_t)(end + 4 - text);
    int64_t length = length_in(text, end);
    if (length >= 0 && (size_t)length != body)
        return fail(k, KC_TRANSPORT, "the connection was closed after %zu bytes of an answer of %lld", body, (long long)length);
    memmove(text, end + 4, body + 1);
    *out = (struct kt_answer){.status = status, .body = text, .size = body};
    return KC_OK;
}

kc_err kt_http(const struct kt_address *at, const char *method, const char *path, const char *body, int64_t deadline_us, struct kt_answer *out, char *why,
               size_t why_size) {
    struct call k = {.at = at, .deadline_us = deadline_us, .fd = -1, .why = why, .why_size = why_size};
    char *text = NULL;
    size_t size = 0;
    *why = 0;
    kc_err err = at->is_unix ? connect_unix(&k) : connect_tcp(&k);
    if (!err) err = send_request(&k, method, path, body);
    if (!err) err = take_all(&k, &text, &size);
    if (!err) err = read_answer(&k, text, size, out);
    if (err) free(text);
    if (k.fd >= 0) close(k.fd);
    return err;
}
