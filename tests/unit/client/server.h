/* server.h - a broker on a real loopback socket for tests of the client's thread-safe side: one thread, answers ApiVersions, Metadata and
 * DescribeCluster, and misbehaves when told to. */
#ifndef TESTS_CLIENT_SERVER_H
#define TESTS_CLIENT_SERVER_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "kw_messages.h"
#include "wire/frame.h"

enum server_mode { SERVER_ANSWERS, SERVER_SILENT, SERVER_RESETS, SERVER_HALF_ANSWERS };
enum { SERVER_CONNS = 64 };

struct server_conn {
    int fd;
    uint8_t *p;
    size_t len, cap;
};
struct server;
/* True: the request was dealt with (server_reply). In the server's thread. */
typedef bool (*server_hook)(struct server *s, struct server_conn *c, struct kw_frame_request *h, struct kw_in *body);
struct server {
    server_hook hook;                        /* set before the thread begins */
    _Atomic(void (*)(struct server *)) tick; /* may be NULL; in the server's thread, at least every 20 ms: for answers that were held back */
    int listener, stop_pipe[2];
    uint16_t port;
    pthread_t thread;
    struct server_conn conns[SERVER_CONNS];
    _Atomic int mode, answered, open;
    _Atomic bool drop; /* close every connection now */
};

static inline void server_drop(struct server_conn *c, bool reset) {
    struct linger l = {1, 0};
    if (reset) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    close(c->fd);
    free(c->p);
    *c = (struct server_conn){.fd = -1};
}

static inline void server_write(struct server_conn *c, const uint8_t *p, size_t n) {
    while (n > 0) {
        ssize_t k = send(c->fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) return;
        p += k;
        n -= (size_t)k;
    }
}

static inline void server_reply(struct server_conn *c, struct kw_frame_request *h, const void *msg) {
    struct kw_out out;
    kw_out_init(&out);
    kw_err err = kw_frame_response(&out, h->api, h->version, h->correlation_id, msg);
    if (err == KW_OK)
        server_write(c, out.p, out.len);
    else
        fprintf(stderr, "the test's answer to %s cannot be encoded in version %d\n", h->api->name, h->version);
    kw_out_deinit(&out);
}

static inline void server_answer(struct server *s, struct server_conn *c, struct kw_frame_request *h) {
    struct kw_out out;
    kw_out_init(&out);
    static struct kw_api_versions_response_api_version keys[64];
    if (h->api_key == KW_API_API_VERSIONS) {
        struct kw_api_versions_response m;
        kw_msg_init(&kw_api_versions_response_desc, &m);
        m.api_keys.v = keys;
        for (size_t i = 0; i < kw_api_count && i < 64; i++) {
            keys[i].api_key = kw_apis[i].key;
            keys[i].min_version = kw_apis[i].min;
            keys[i].max_version = kw_apis[i].max;
            m.api_keys.n++;
        }
        (void)!kw_frame_response(&out, h->api, h->version, h->correlation_id, &m);
    } else if (h->api_key == KW_API_METADATA) {
        struct kw_metadata_response m;
        struct kw_metadata_response_broker b = {.node_id = 1, .host = kw_str_of("127.0.0.1"), .port = s->port, .rack = kw_str_null()};
        kw_msg_init(&kw_metadata_response_desc, &m);
        m.brokers.v = &b;
        m.brokers.n = 1;
        m.controller_id = 1;
        (void)!kw_frame_response(&out, h->api, h->version, h->correlation_id, &m);
    } else if (h->api_key == KW_API_DESCRIBE_CLUSTER) {
        struct kw_describe_cluster_response m;
        struct kw_describe_cluster_response_describe_cluster_broker b = {
            .broker_id = 1, .host = kw_str_of("127.0.0.1"), .port = s->port, .rack = kw_str_null()};
        kw_msg_init(&kw_describe_cluster_response_desc, &m);
        m.brokers.v = &b;
        m.brokers.n = 1;
        m.controller_id = 1;
        (void)!kw_frame_response(&out, h->api, h->version, h->correlation_id, &m);
    }
    size_t n = atomic_load(&s->mode) == SERVER_HALF_ANSWERS ? out.len / 2 : out.len;
    atomic_fetch_add(&s->answered, 1);
    server_write(c, out.p, n);
    kw_out_deinit(&out);
}

/* False: the connection is gone. */
static inline bool server_read(struct server *s, struct server_conn *c) {
    if (c->cap - c->len < 4096) {
        c->cap = c->cap * 2 + 8192;
        c->p = realloc(c->p, c->cap);
    }
    ssize_t n = recv(c->fd, c->p + c->len, c->cap - c->len, 0);
    if (n <= 0) return false;
    c->len += (size_t)n;
    if (atomic_load(&s->mode) == SERVER_RESETS) return false;
    while (c->len >= 4 && c->len >= 4 + (size_t)kw_load32(c->p)) {
        size_t size = kw_load32(c->p);
        struct kw_in in;
        struct kw_frame_request h;
        kw_in_init(&in, c->p + 4, size);
        kw_err err = kw_frame_parse_request(&in, &h);
        if (err != KW_OK) return false;
        if (s->hook && s->hook(s, c, &h, &in))
            (void)0;
        else if (atomic_load(&s->mode) != SERVER_SILENT || h.api_key == KW_API_API_VERSIONS)
            server_answer(s, c, &h);
        memmove(c->p, c->p + 4 + size, c->len - 4 - size);
        c->len -= 4 + size;
    }
    return true;
}

static inline void *server_main(void *arg) {
    struct server *s = arg;
    for (;;) {
        struct pollfd fds[SERVER_CONNS + 2] = {{s->listener, POLLIN, 0}, {s->stop_pipe[0], POLLIN, 0}};
        for (int i = 0; i < SERVER_CONNS; i++) fds[i + 2] = (struct pollfd){s->conns[i].fd, POLLIN, 0};
        if (poll(fds, SERVER_CONNS + 2, 20) < 0) continue;
        if (fds[1].revents) break;
        int open = 0;
        bool drop = atomic_exchange(&s->drop, false);
        for (int i = 0; i < SERVER_CONNS; i++) {
            struct server_conn *c = &s->conns[i];
            if (c->fd >= 0 && (drop || (fds[i + 2].revents && !server_read(s, c))))
                server_drop(c, atomic_load(&s->mode) == SERVER_RESETS || drop);
        }
        void (*tick)(struct server *) = atomic_load(&s->tick);
        if (tick) tick(s);
        if (fds[0].revents) {
            int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
            int at = 0;
            while (at < SERVER_CONNS && s->conns[at].fd >= 0) at++;
            if (fd >= 0 && at < SERVER_CONNS)
                s->conns[at].fd = fd;
            else if (fd >= 0)
                close(fd);
        }
        for (int i = 0; i < SERVER_CONNS; i++) open += s->conns[i].fd >= 0;
        atomic_store(&s->open, open);
    }
    for (int i = 0; i < SERVER_CONNS; i++) {
        if (s->conns[i].fd >= 0) server_drop(&s->conns[i], false);
    }
    return NULL;
}

static inline struct server *server_new_with(server_hook hook) {
    struct server *s = calloc(1, sizeof *s);
    s->hook = hook;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    for (int i = 0; i < SERVER_CONNS; i++) s->conns[i].fd = -1;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(s->listener, 64), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&a, &n), 0);
    s->port = ntohs(a.sin_port);
    assert_int_equal(pipe2(s->stop_pipe, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, server_main, s), 0);
    return s;
}

static inline struct server *server_new(void) {
    return server_new_with(NULL);
}

static inline void server_free(struct server *s) {
    assert_int_equal(write(s->stop_pipe[1], "x", 1), 1);
    pthread_join(s->thread, NULL);
    close(s->stop_pipe[0]);
    close(s->stop_pipe[1]);
    close(s->listener);
    free(s);
}

#endif
