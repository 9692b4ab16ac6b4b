/* raw.h - requests without any client behind them: frames, one connection's blocking send and receive. For groups.c and guid.c. */
#ifndef BENCH_RAW_H
#define BENCH_RAW_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUF = 1 << 20 };
static struct sockaddr_in address;
static uint8_t in[BUF]; /* the answer at hand, without its length */
static size_t in_size;

static void die(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
    exit(1);
}
static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- Frames ---- */

struct out {
    uint8_t *p;
    size_t n, cap;
};
static void put(struct out *o, const void *p, size_t n) {
    if (o->n + n > o->cap) {
        o->cap = (o->n + n) * 2;
        if (!(o->p = realloc(o->p, o->cap))) die("memory");
    }
    memcpy(o->p + o->n, p, n);
    o->n += n;
}
static void put16(struct out *o, int v) { put(o, &(uint16_t){htons((uint16_t)v)}, 2); }
static void put32(struct out *o, int32_t v) { put(o, &(uint32_t){htonl((uint32_t)v)}, 4); }
static inline void put64(struct out *o, int64_t v) {
    put32(o, (int32_t)(v >> 32));
    put32(o, (int32_t)v);
}
static void put_str(struct out *o, const char *s) {
    put16(o, s ? (int)strlen(s) : -1);
    if (s) put(o, s, strlen(s));
}
static void begin(struct out *o, int api, int version) {
    o->n = 0;
    put32(o, 0);
    put16(o, api);
    put16(o, version);
    put32(o, 1);
    put_str(o, "bench");
}
static void send_all(int fd, struct out *o) {
    uint32_t n = htonl((uint32_t)(o->n - 4));
    memcpy(o->p, &n, 4);
    for (size_t at = 0; at < o->n;) {
        ssize_t k = send(fd, o->p + at, o->n - at, MSG_NOSIGNAL);
        if (k <= 0) die("send");
        at += (size_t)k;
    }
}
static void receive(int fd, void *to, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t k = recv(fd, (uint8_t *)to + at, n - at, 0);
        if (k <= 0) die("the broker has closed the connection");
        at += (size_t)k;
    }
}
/* Returns the place behind the correlation id. */
static const uint8_t *answer(int fd) {
    uint32_t n;
    receive(fd, &n, 4);
    in_size = ntohl(n);
    if (in_size < 4 || in_size > BUF) die("an answer too large");
    receive(fd, in, in_size);
    return in + 4;
}
static int get16(const uint8_t **p) {
    int v = (int16_t)((*p)[0] << 8 | (*p)[1]);
    *p += 2;
    return v;
}
static int32_t get32(const uint8_t **p) {
    uint32_t v;
    memcpy(&v, *p, 4);
    *p += 4;
    return (int32_t)ntohl(v);
}
static inline void get_str(const uint8_t **p, char *to, size_t size) {
    int n = get16(p);
    if (to) snprintf(to, size, "%.*s", n > 0 ? n : 0, (const char *)*p);
    *p += n > 0 ? n : 0;
}
static int dial(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static void address_set(const char *host, const char *port) {
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    inet_pton(AF_INET, host, &address.sin_addr);
}

#endif
