/* admin_http.c - serves the admin port: libmicrohttpd without a thread of its own, run by the loop when its descriptor is readable.
 *
 * Called by main.c and libuv. Calls node.h (fault rules, status), shell_listen.
 */
#include "admin_http.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "shell_command.h"

enum { BODY_MAX = 1 << 20, CONNECTIONS_MAX = 64, TIMEOUT_S = 10, PORTS = 2 };

struct port {
    struct kb_admin *a;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer;
};
struct kb_admin {
    struct kb_shell *s;
    struct port ports[PORTS];
    int dir_fd;
    int handles; /* that libuv has not given back */
    bool freed;
};
struct body { /* of one request */
    char *p;
    size_t n;
    bool too_large;
};

/* ---- Answers ---- */

static enum MHD_Result reply(struct MHD_Connection *c, unsigned status, const char *json) {
    struct MHD_Response *r = MHD_create_response_from_buffer(strlen(json), (void *)(uintptr_t)json, MHD_RESPMEM_MUST_COPY);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", "application/json");
    enum MHD_Result result = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return result;
}

static enum MHD_Result refuse(struct MHD_Connection *c, unsigned status, const char *why) {
    char out[1200], quoted[1000];
    size_t n = 0;
    for (const char *p = why; *p && n + 2 < sizeof(quoted); p++) {
        if (*p == '"' || *p == '\\') quoted[n++] = '\\';
        quoted[n++] = (unsigned char)*p < ' ' ? ' ' : *p;
    }
    quoted[n] = 0;
    snprintf(out, sizeof(out), "{\"error\":\"%s\"}", quoted);
    return reply(c, status, out);
}

/* What the node wrote, which it gives away; NULL: it had no memory for it. */
static enum MHD_Result reply_made(struct MHD_Connection *c, char *json) {
    enum MHD_Result r = json ? reply(c, MHD_HTTP_OK, json) : refuse(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
    kw_free(json);
    return r;
}

static enum MHD_Result add_rules(struct kb_shell *s, struct MHD_Connection *c, const struct body *b) {
    char text[500] = "out of memory", out[60];
    int32_t first = 0;
    if (b->too_large) return refuse(c, MHD_HTTP_CONTENT_TOO_LARGE, "the rules are larger than 1 MB");
    kw_err err = kb_node_faults_add(s->node, b->p ? b->p : "", &first, text, sizeof(text));
    if (err != KW_OK) return refuse(c, err == KW_ENOMEM ? MHD_HTTP_INTERNAL_SERVER_ERROR : MHD_HTTP_BAD_REQUEST, text);
    snprintf(out, sizeof(out), "{\"first\":%d}", first);
    return reply(c, MHD_HTTP_OK, out);
}

static enum MHD_Result clear_rules(struct kb_shell *s, struct MHD_Connection *c) {
    const char *rule = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "rule");
    char *end = NULL, out[60];
    long number = rule ? strtol(rule, &end, 10) : 0;
    if (rule && (*end || end == rule || number < 1 || number > INT32_MAX)) return refuse(c, MHD_HTTP_BAD_REQUEST, "rule= wants a rule's number");
    s->now = kb_shell_now();
    size_t n = kb_node_faults_clear(s->node, (int32_t)number, s->now);
    if (rule && n == 0) return refuse(c, MHD_HTTP_NOT_FOUND, "there is no rule of this number");
    snprintf(out, sizeof(out), "{\"cleared\":%zu}", n);
    return reply(c, MHD_HTTP_OK, out);
}

/* ---- Requests ---- */

static bool take_body(struct body *b, const char *p, size_t n) {
    char *more = b->n + n > BODY_MAX ? NULL : realloc(b->p, b->n + n + 1);
    if (!more) {
        b->too_large = true;
        return false;
    }
    memcpy(more + b->n, p, n);
    b->p = more;
    b->n += n;
    b->p[b->n] = 0;
    return true;
}

static enum MHD_Result answer(void *ctx, struct MHD_Connection *c, const char *url, const char *method, const char *version, const char *data,
                              size_t *size, void **state) {
    struct kb_admin *a = ctx;
    struct body *b = *state;
    (void)version;
    if (!b) {
        *state = calloc(1, sizeof(*b));
        return *state ? MHD_YES : MHD_NO;
    }
    if (*size > 0) {
        (void)take_body(b, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (strcmp(url, "/status") == 0) {
        if (strcmp(method, MHD_HTTP_METHOD_GET) == 0) return reply_made(c, kb_node_status(a->s->node));
        return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET tells what this node is and what it has counted");
    }
    if (strcmp(url, "/faults") != 0) return refuse(c, MHD_HTTP_NOT_FOUND, "there is nothing here; try /status or /faults");
    if (strcmp(method, MHD_HTTP_METHOD_GET) == 0) return reply_made(c, kb_node_faults_list(a->s->node));
    if (strcmp(method, MHD_HTTP_METHOD_POST) == 0) return add_rules(a->s, c, b);
    if (strcmp(method, MHD_HTTP_METHOD_DELETE) == 0) return clear_rules(a->s, c);
    return refuse(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET lists the rules, POST adds, DELETE takes away");
}

static void completed(void *ctx, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode how) {
    (void)ctx, (void)c, (void)how;
    struct body *b = *state;
    if (b) free(b->p);
    free(b);
    *state = NULL;
}

/* ---- The loop ---- */

static void timed(uv_timer_t *t);

static void run(struct port *p) {
    MHD_UNSIGNED_LONG_LONG ms;
    MHD_run(p->daemon);
    if (MHD_get_timeout(p->daemon, &ms) == MHD_YES)
        uv_timer_start(&p->timer, timed, ms, 0);
    else
        uv_timer_stop(&p->timer);
    kb_shell_turn(p->a->s);
}

static void readable(uv_poll_t *h, int status, int events) {
    (void)status, (void)events;
    run(KW_CONTAINER_OF(h, struct port, poll));
}

static void timed(uv_timer_t *t) {
    run(KW_CONTAINER_OF(t, struct port, timer));
}

static int start_port(struct kb_admin *a, struct port *p, int fd) {
    p->a = a;
    p->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, answer, a, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, completed,
                                 NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S,
                                 MHD_OPTION_END);
    const union MHD_DaemonInfo *info = p->daemon ? MHD_get_daemon_info(p->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info || uv_poll_init(a->s->loop, &p->poll, info->epoll_fd) != 0) {
        if (p->daemon)
            MHD_stop_daemon(p->daemon);
        else
            close(fd);
        p->daemon = NULL;
        errno = ENOMEM;
        return -1;
    }
    uv_timer_init(a->s->loop, &p->timer);
    a->handles += 2;
    uv_poll_start(&p->poll, UV_READABLE, readable);
    return 0;
}

/* ---- Where it listens ---- */

static int listen_unix(struct kb_admin *a, const char *dir) {
    struct sockaddr_un at;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    a->dir_fd = kb_command_socket_address(dir, KB_ADMIN_SOCKET, &at);
    if (fd < 0 || a->dir_fd < 0) goto fail;
    unlinkat(a->dir_fd, KB_ADMIN_SOCKET, 0); /* of one that was killed: the folder's lock says that none lives */
    mode_t mask = umask(0177);               /* rules are for who runs the broker */
    int bound = bind(fd, (struct sockaddr *)&at, sizeof(at));
    umask(mask);
    if (bound == 0 && listen(fd, 16) == 0) return fd;
fail:
    if (fd >= 0) close(fd);
    return -1;
}

static int listen_tcp(const char *address, char *why, size_t size) {
    char host[256], *end;
    uint16_t got;
    const char *colon = strrchr(address, ':');
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || end == colon + 1 || *end || port < 0 || port > UINT16_MAX || (size_t)(colon - address) >= sizeof(host)) {
        snprintf(why, size, "it is not HOST:PORT");
        return -1;
    }
    bool bracketed = address[0] == '[' && colon - address > 1 && colon[-1] == ']'; /* IPv6 */
    snprintf(host, sizeof(host), "%.*s", (int)(colon - address) - (bracketed ? 2 : 0), address + bracketed);
    return kb_shell_listen(host, (uint16_t)port, 16, &got, why, size);
}

static void say_port(const struct kb_admin *a, int fd) {
    struct sockaddr_storage at;
    socklen_t n = sizeof(at);
    char host[64], port[8];
    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0 &&
        getnameinfo((struct sockaddr *)&at, n, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        kb_say(a->s->logger, KB_INFO, strchr(host, ':') ? "admin port: http://[%s]:%s/faults" : "admin port: http://%s:%s/faults", host, port);
}

int kb_admin_new(struct kb_shell *s, const char *dir, const char *address, struct kb_admin **out, char *text, size_t size) {
    struct kb_admin *a = calloc(1, sizeof(*a));
    char why[300] = "out of memory";
    if (!a) {
        snprintf(text, size, "out of memory");
        return -1;
    }
    a->s = s;
    a->dir_fd = -1;
    *out = a;
    int fd = listen_unix(a, dir);
    if (fd < 0 || start_port(a, &a->ports[0], fd) != 0)
        kb_say(s->logger, KB_WARN, "%s/%s cannot be made (%s): kbroker fault cannot reach this node", dir, KB_ADMIN_SOCKET, strerror(errno));
    if (!address || !address[0]) return 0;
    fd = listen_tcp(address, why, sizeof(why));
    if (fd >= 0) say_port(a, fd);
    if (fd >= 0 && start_port(a, &a->ports[1], fd) == 0) return 0;
    snprintf(text, size, "admin.listener=%s: %s; choose another, or leave it out", address, why);
    return -1;
}

static void handle_closed(uv_handle_t *h) {
    struct port *p = h->type == UV_TIMER ? KW_CONTAINER_OF((uv_timer_t *)h, struct port, timer) : KW_CONTAINER_OF((uv_poll_t *)h, struct port, poll);
    struct kb_admin *a = p->a;
    if (--a->handles == 0 && a->freed) free(a);
}

void kb_admin_free(struct kb_admin *a) {
    if (!a) return;
    a->freed = true;
    for (size_t i = 0; i < PORTS; i++) {
        struct port *p = &a->ports[i];
        if (!p->daemon) continue;
        uv_close((uv_handle_t *)&p->poll, handle_closed);
        uv_close((uv_handle_t *)&p->timer, handle_closed);
        MHD_stop_daemon(p->daemon);
    }
    if (a->dir_fd >= 0) {
        unlinkat(a->dir_fd, KB_ADMIN_SOCKET, 0);
        close(a->dir_fd);
    }
    if (a->handles == 0) free(a);
}
