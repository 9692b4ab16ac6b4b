/* admin_http_server.c - contract: admin_http_server.h. A request that is answered later is suspended until then. */
#include "admin_http_server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/base.h"
#include "shell_command.h"
#include "shell_parts.h"

enum { BODY_MAX = 1 << 20, CONNECTIONS_MAX = 64, TIMEOUT_S = 10, PORTS = 2, BACKLOG = 256 };

struct port {
    struct kb_http *h;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer;
};
struct kb_http {
    struct kb_http_options o;
    struct port ports[PORTS];
    struct kb_http_request *waiting; /* those that are suspended, a list */
    int dir_fd;
    int handles; /* that libuv has not given back */
    bool freed;
};
struct kb_http_request {
    struct kb_http *h;
    struct MHD_Connection *connection;
    const char *method, *path;
    char *body;
    size_t size;
    bool too_large, handled, suspended;
    int status; /* of the answer; 0: there is none yet */
    char *json;
    struct kb_http_request *next, **at; /* among those that wait */
};

static void timed(uv_timer_t *t);

/* ---- Answers ---- */

bool kb_http_is(const struct kb_http_request *r, const char *method) {
    return strcmp(r->method, method) == 0;
}
const char *kb_http_path(const struct kb_http_request *r) {
    return r->path;
}
const char *kb_http_query(const struct kb_http_request *r, const char *name) {
    const char *value = MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
    return value ? value : MHD_lookup_connection_value_n(r->connection, MHD_GET_ARGUMENT_KIND, name, strlen(name), NULL, NULL) ? "" : NULL;
}
const char *kb_http_body(const struct kb_http_request *r) {
    return r->body ? r->body : "";
}

void kb_http_answer(struct kb_http_request *r, int status, const char *json) {
    KW_ASSERT(r->status == 0);
    if (asprintf(&r->json, "%s\n", json) < 0) r->json = NULL; /* a line, for whoever reads it in a terminal */
    r->status = r->json ? status : KB_HTTP_FAILED;
    if (!r->suspended) return; /* handle() has not returned yet */
    r->suspended = false;
    *r->at = r->next;
    if (r->next) r->next->at = r->at;
    MHD_resume_connection(r->connection);
    for (size_t i = 0; i < PORTS; i++) /* its descriptor does not tell of it */
        if (r->h->ports[i].daemon) uv_timer_start(&r->h->ports[i].timer, timed, 0, 0);
}

json_t *kb_http_json_text(const char *text) {
    json_t *whole = json_string(text);
    char *plain = whole ? NULL : strdup(text);
    for (char *p = plain; p && *p; p++)
        if ((unsigned char)*p >= 0x80) *p = '?';
    if (plain) whole = json_string(plain);
    free(plain);
    return whole;
}

void kb_http_refuse(struct kb_http_request *r, int status, const char *fmt, ...) {
    char text[2000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    json_t *root = json_pack("{s:o}", "error", kb_http_json_text(text));
    char *json = root ? json_dumps(root, JSON_COMPACT) : NULL;
    kb_http_answer(r, status, json ? json : "{\"error\":\"out of memory\"}");
    free(json);
    json_decref(root);
}

static enum MHD_Result send_answer(struct kb_http_request *r) {
    const char *json = r->json ? r->json : "{\"error\":\"out of memory\"}\n";
    struct MHD_Response *out = MHD_create_response_from_buffer(strlen(json), (void *)(uintptr_t)json, MHD_RESPMEM_MUST_COPY);
    if (!out) return MHD_NO;
    MHD_add_response_header(out, "Content-Type", "application/json");
    MHD_add_response_header(out, "Connection", "close"); /* one that is kept, and ends just as the next order is sent, is an order of which nobody knows */
    enum MHD_Result result = MHD_queue_response(r->connection, (unsigned)r->status, out);
    MHD_destroy_response(out);
    return result;
}

/* ---- Requests ---- */

static void take_body(struct kb_http_request *r, const char *p, size_t n) {
    char *more = r->too_large || r->size + n > BODY_MAX ? NULL : realloc(r->body, r->size + n + 1);
    if (!more) {
        r->too_large = true;
        return;
    }
    memcpy(more + r->size, p, n);
    r->body = more;
    r->size += n;
    r->body[r->size] = 0;
}

/* Sent by a browser for a page of somebody else's: such a page must not stop nodes. Only browsers name an origin, and of what
 * changes nothing not always: a page whose own name leads here could read. */
static bool is_from_elsewhere(const struct kb_http_request *r) {
    const char *origin = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Origin");
    const char *host = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Host");
    if (!origin) return false;
    bool same = host && strncmp(origin, "http://", 7) == 0 && strcmp(origin + 7, host) == 0;
    bool address = host && (host[0] == '[' || strspn(host, "0123456789.:") == strlen(host) || strncmp(host, "localhost:", 10) == 0);
    return !same || !address; /* a name may be made to lead here */
}

static enum MHD_Result handle(struct kb_http_request *r) {
    struct kb_http *h = r->h;
    r->handled = true;
    if (r->too_large)
        kb_http_refuse(r, KB_HTTP_TOO_LARGE, "what was sent is larger than 1 MB");
    else if (r->body && strlen(r->body) != r->size)
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "what was sent has a zero byte in it");
    else if (is_from_elsewhere(r))
        kb_http_refuse(r, KB_HTTP_FORBIDDEN, "a page of another origin may not use this port");
    else
        h->o.handle(h->o.ctx, r);
    if (r->status != 0) return send_answer(r);
    r->suspended = true;
    r->next = h->waiting;
    r->at = &h->waiting;
    if (r->next) r->next->at = &r->next;
    h->waiting = r;
    MHD_suspend_connection(r->connection);
    return MHD_YES;
}

static enum MHD_Result received(void *ctx, struct MHD_Connection *c, const char *url, const char *method, const char *version, const char *data,
                                size_t *size, void **state) {
    struct kb_http_request *r = *state;
    (void)version;
    if (!r) {
        r = *state = calloc(1, sizeof(*r));
        if (r) *r = (struct kb_http_request){.h = ctx, .connection = c, .method = method, .path = url};
        return r ? MHD_YES : MHD_NO;
    }
    if (*size > 0) {
        take_body(r, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (!r->handled) return handle(r);
    return r->status != 0 ? send_answer(r) : MHD_NO; /* MHD_NO: the server ends */
}

static void completed(void *ctx, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode how) {
    (void)ctx, (void)c, (void)how;
    struct kb_http_request *r = *state;
    if (!r) return;
    free(r->body);
    free(r->json);
    free(r);
    *state = NULL;
}

/* ---- The loop ---- */

static unsigned connections(const struct port *p) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(p->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    return info ? info->num_connections : 0;
}

/* While it has as many connections as it may have, the server does not listen; it does again at the beginning of the run after the one in which some went, of
 * which no descriptor tells: so again until nothing comes or goes. */
static void run(struct port *p) {
    MHD_UNSIGNED_LONG_LONG ms;
    struct kb_http *h = p->h;
    for (unsigned before = UINT_MAX, now = connections(p); now != before; now = connections(p)) {
        before = now;
        MHD_run(p->daemon);
    }
    if (MHD_get_timeout(p->daemon, &ms) == MHD_YES)
        uv_timer_start(&p->timer, timed, ms, 0);
    else
        uv_timer_stop(&p->timer);
    if (h->o.after) h->o.after(h->o.ctx);
}

static void readable(uv_poll_t *h, int status, int events) {
    (void)status, (void)events;
    run(KW_CONTAINER_OF(h, struct port, poll));
}

static void timed(uv_timer_t *t) {
    run(KW_CONTAINER_OF(t, struct port, timer));
}

/* Takes fd over. */
static int start_port(struct kb_http *h, struct port *p, int fd) {
    p->h = h;
    p->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, received, h, MHD_OPTION_LISTEN_SOCKET, fd,
                                 MHD_OPTION_NOTIFY_COMPLETED, completed, NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_END);
    const union MHD_DaemonInfo *info = p->daemon ? MHD_get_daemon_info(p->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (!info || uv_poll_init(h->o.loop, &p->poll, info->epoll_fd) != 0) {
        if (p->daemon)
            MHD_stop_daemon(p->daemon);
        else
            close(fd);
        p->daemon = NULL;
        errno = ENOMEM;
        return -1;
    }
    uv_timer_init(h->o.loop, &p->timer);
    h->handles += 2;
    uv_poll_start(&p->poll, UV_READABLE, readable);
    return 0;
}

struct kb_http *kb_http_new(const struct kb_http_options *o) {
    struct kb_http *h = calloc(1, sizeof(*h));
    if (!h) return NULL;
    h->o = *o;
    h->dir_fd = -1;
    return h;
}

static void handle_closed(uv_handle_t *closed) {
    struct port *p = closed->type == UV_TIMER ? KW_CONTAINER_OF((uv_timer_t *)closed, struct port, timer)
                                              : KW_CONTAINER_OF((uv_poll_t *)closed, struct port, poll);
    struct kb_http *h = p->h;
    if (--h->handles == 0 && h->freed) free(h);
}

void kb_http_free(struct kb_http *h) {
    if (!h) return;
    h->freed = true;
    for (struct kb_http_request *r = h->waiting; r; r = r->next) MHD_resume_connection(r->connection);
    for (size_t i = 0; i < PORTS; i++) {
        struct port *p = &h->ports[i];
        if (!p->daemon) continue;
        uv_close((uv_handle_t *)&p->poll, handle_closed);
        uv_close((uv_handle_t *)&p->timer, handle_closed);
        MHD_stop_daemon(p->daemon);
    }
    if (h->dir_fd >= 0) {
        unlinkat(h->dir_fd, KB_ADMIN_SOCKET, 0);
        close(h->dir_fd);
    }
    if (h->handles == 0) free(h);
}

/* ---- Where it listens ---- */

int kb_http_listen_unix(struct kb_http *h, const char *dir) {
    struct sockaddr_un at;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    h->dir_fd = kb_command_socket_address(dir, KB_ADMIN_SOCKET, &at);
    if (fd < 0 || h->dir_fd < 0) goto fail;
    unlinkat(h->dir_fd, KB_ADMIN_SOCKET, 0); /* of one that was killed: the folder's lock says that none lives */
    mode_t mask = umask(0177);               /* rules are for who runs the broker */
    int bound = bind(fd, (struct sockaddr *)&at, sizeof(at));
    umask(mask);
    if (bound == 0 && listen(fd, BACKLOG) == 0) return start_port(h, &h->ports[0], fd);
fail:
    if (fd >= 0) close(fd);
    return -1;
}

static void tell_url(int fd, char *url, size_t size) {
    struct sockaddr_storage at;
    socklen_t n = sizeof(at);
    char host[64] = "?", port[8] = "?";
    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0)
        (void)!getnameinfo((struct sockaddr *)&at, n, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(url, size, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host, port);
}

int kb_http_listen_tcp(struct kb_http *h, const char *address, char *url, size_t url_size, char *why, size_t why_size) {
    char host[256], *end;
    uint16_t got;
    const char *colon = strrchr(address, ':');
    long port = colon ? strtol(colon + 1, &end, 10) : -1;
    if (!colon || end == colon + 1 || *end || port < 0 || port > UINT16_MAX || (size_t)(colon - address) >= sizeof(host)) {
        snprintf(why, why_size, "it is not HOST:PORT");
        return -1;
    }
    bool bracketed = address[0] == '[' && colon - address > 1 && colon[-1] == ']'; /* IPv6 */
    snprintf(host, sizeof(host), "%.*s", (int)(colon - address) - (bracketed ? 2 : 0), address + bracketed);
    int fd = kb_shell_listen(host, (uint16_t)port, BACKLOG, &got, why, why_size);
    if (fd < 0) return -1;
    tell_url(fd, url, url_size);
    if (start_port(h, &h->ports[1], fd) == 0) return 0;
    snprintf(why, why_size, "out of memory");
    return -1;
}
