/* cluster_relay.c - a request to the admin sockets of several nodes at a time, without waiting for any: one that stands still holds nobody up, and is told
 * once the time is over.
 *
 * Called by cluster_http and libuv. Calls admin_http_client (the format).
 */
#include "cluster_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "admin_http_client.h"
#include "shell_command.h"

enum { ANSWER_MAX = 8 << 20, READ_SIZE = 1 << 16 };

struct leg { /* to one node */
    struct kb_relay *relay;
    int fd; /* -1: over */
    uv_poll_t *poll;
    size_t sent, size;
    char *answer;
};
struct kb_relay {
    struct kb_cluster *c;
    struct kb_relay *next, **at;
    char *request;
    size_t request_size;
    uv_timer_t *timer;
    struct leg legs[KB_CLUSTER_NODES_MAX];
    struct kb_relay_answer answers[KB_CLUSTER_NODES_MAX];
    size_t count, open;
    void (*done)(void *ctx, const struct kb_relay_answer *answers, size_t count);
    void *ctx;
};

static void leg_close(struct leg *g, int err) {
    struct kb_relay *r = g->relay;
    if (g->fd < 0) return;
    struct kb_relay_answer *a = &r->answers[g - r->legs];
    if (err == 0) a->body = g->answer ? kb_http_answer_body(g->answer, &a->status) : NULL;
    if (!a->body) a->status = 0;
    a->err = err ? err : a->body ? 0 : ECONNRESET;
    if (g->poll) uv_close((uv_handle_t *)g->poll, kb_cluster_handle_freed);
    g->poll = NULL;
    close(g->fd);
    g->fd = -1;
    r->open--;
}

static void drop(struct kb_relay *r) {
    for (size_t i = 0; i < r->count; i++) {
        leg_close(&r->legs[i], ECANCELED);
        free(r->legs[i].answer);
    }
    if (r->timer) uv_close((uv_handle_t *)r->timer, kb_cluster_handle_freed);
    if (r->at) *r->at = r->next;
    if (r->at && r->next) r->next->at = r->at;
    free(r->request);
    free(r);
}

static void look_at(struct kb_relay *r) {
    if (r->open > 0) return;
    r->done(r->ctx, r->answers, r->count);
    drop(r);
}

static void late(uv_timer_t *t) {
    struct kb_relay *r = t->data;
    for (size_t i = 0; i < r->count; i++) leg_close(&r->legs[i], ETIMEDOUT);
    look_at(r);
}

/* False: the leg is over. */
static bool leg_send(struct leg *g) {
    struct kb_relay *r = g->relay;
    while (g->sent < r->request_size) {
        ssize_t n = send(g->fd, r->request + g->sent, r->request_size - g->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return true;
        if (n < 0) {
            leg_close(g, errno);
            return false;
        }
        g->sent += (size_t)n;
    }
    return true;
}

static void leg_receive(struct leg *g) {
    for (;;) {
        char *more = g->size > ANSWER_MAX ? NULL : realloc(g->answer, g->size + READ_SIZE + 1);
        if (!more) {
            leg_close(g, ENOMEM);
            return;
        }
        g->answer = more;
        ssize_t n = read(g->fd, g->answer + g->size, READ_SIZE);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n > 0) g->size += (size_t)n;
        g->answer[g->size] = 0;
        if (n > 0) continue;
        leg_close(g, n < 0 ? errno : 0);
        return;
    }
}

static void leg_ready(uv_poll_t *p, int status, int events) {
    struct leg *g = p->data;
    struct kb_relay *r = g->relay;
    if (status < 0)
        leg_close(g, -status);
    else if (leg_send(g)) {
        if (events & UV_READABLE) leg_receive(g);
        if (g->fd >= 0) uv_poll_start(p, g->sent < r->request_size ? UV_READABLE | UV_WRITABLE : UV_READABLE, leg_ready);
    }
    look_at(r);
}

static void leg_open(struct leg *g, int32_t id) {
    struct kb_cluster *c = g->relay->c;
    char dir[4200];
    struct sockaddr_un at;
    snprintf(dir, sizeof(dir), "%s/node-%d", c->dir, id);
    int dir_fd = kb_command_socket_address(dir, KB_ADMIN_SOCKET, &at);
    g->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int err = dir_fd < 0 || g->fd < 0 || connect(g->fd, (struct sockaddr *)&at, sizeof(at)) != 0 ? errno : 0;
    if (dir_fd >= 0) close(dir_fd);
    g->relay->open += g->fd >= 0;
    g->relay->answers[g - g->relay->legs] = (struct kb_relay_answer){.id = id, .err = err};
    if (err == 0) {
        g->poll = calloc(1, sizeof(*g->poll));
        if (!g->poll || uv_poll_init(&c->loop, g->poll, g->fd) != 0) {
            free(g->poll);
            g->poll = NULL;
            err = ENOMEM;
        }
    }
    if (err != 0) {
        leg_close(g, err);
        return;
    }
    g->poll->data = g;
    uv_poll_start(g->poll, UV_READABLE | UV_WRITABLE, leg_ready);
}

void kb_cluster_relay(struct kb_cluster *c, const struct kb_relay_call *call) {
    struct kb_relay *r = calloc(1, sizeof(*r));
    if (r) r->request = kb_http_request_text(call->method, call->path, call->body, &r->request_size);
    if (r) r->timer = calloc(1, sizeof(*r->timer));
    if (!r || !r->request || !r->timer) {
        struct kb_relay_answer none = {.id = call->count ? call->ids[0] : 0, .err = ENOMEM};
        if (r) free(r->request);
        if (r) free(r->timer);
        free(r);
        call->done(call->ctx, &none, 1);
        return;
    }
    r->c = c;
    r->done = call->done;
    r->ctx = call->ctx;
    r->count = call->count;
    r->next = c->relays;
    r->at = &c->relays;
    if (r->next) r->next->at = &r->next;
    c->relays = r;
    uv_timer_init(&c->loop, r->timer);
    r->timer->data = r;
    uv_timer_start(r->timer, late, (uint64_t)call->wait_ms, 0);
    for (size_t i = 0; i < r->count; i++) r->legs[i] = (struct leg){.relay = r, .fd = -1};
    for (size_t i = 0; i < r->count; i++) leg_open(&r->legs[i], call->ids[i]);
    look_at(r);
}

void kb_cluster_drop_relays(struct kb_cluster *c) {
    while (c->relays) {
        free(c->relays->ctx);
        drop(c->relays);
    }
}
