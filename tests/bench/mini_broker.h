/* mini_broker.h - a broker on loopback inside the test's own process that takes whatever is produced: for benchmarks of the client alone, and for tests that
 * need real sockets and threads. One thread a connection; every topic exists, with `partitions` partitions that it leads.
 */
#ifndef TESTS_MINI_BROKER_H
#define TESTS_MINI_BROKER_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "kw_messages.h"
#include "wire/batch.h"
#include "wire/frame.h"

enum { MINI_CONNS = 64, MINI_FRAME_MAX = 64 << 20 };

struct mini_broker {
    int listener;
    int port;
    int32_t partitions;
    bool check;              /* every batch: CRC and structure */
    _Atomic int64_t records, bytes, requests;
    _Atomic int64_t cpu_ns;  /* of connection threads that ended, and what mini_cpu_ns adds of those that run */
    _Atomic bool stop;
    _Atomic int64_t offsets[64];
    _Atomic int bad;         /* batches that failed the check */
    pthread_t acceptor, threads[MINI_CONNS];
    int fds[MINI_CONNS];
    _Atomic int count;
};
struct mini_conn {
    struct mini_broker *b;
    int fd;
};

static inline bool mini_read(int fd, uint8_t *p, size_t n) {
    while (n > 0) {
        ssize_t k = recv(fd, p, n, MSG_WAITALL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static inline bool mini_reply(int fd, const struct kw_frame_request *h, int16_t version, const void *msg) {
    struct kw_out out;
    kw_out_init(&out);
    bool ok = kw_frame_response(&out, h->api, version, h->correlation_id, msg) == KW_OK;
    for (size_t at = 0; ok && at < out.len;) {
        ssize_t k = send(fd, out.p + at, out.len - at, MSG_NOSIGNAL);
        if (k <= 0) ok = false;
        else at += (size_t)k;
    }
    kw_out_deinit(&out);
    return ok;
}

static inline bool mini_versions(int fd, const struct kw_frame_request *h) {
    static const int16_t keys[] = {KW_API_PRODUCE, KW_API_METADATA, KW_API_API_VERSIONS, KW_API_INIT_PRODUCER_ID};
    struct kw_api_versions_response m;
    struct kw_api_versions_response_api_version v[KW_COUNTOF(keys)];
    kw_msg_init(&kw_api_versions_response_desc, &m);
    m.api_keys.v = v;
    for (size_t i = 0; i < KW_COUNTOF(keys); i++) {
        const struct kw_api *a = kw_api_by_key(keys[i]);
        v[m.api_keys.n++] = (struct kw_api_versions_response_api_version){.api_key = keys[i], .min_version = a->min, .max_version = a->max};
    }
    return mini_reply(fd, h, h->version, &m);
}

static inline bool mini_metadata(struct mini_broker *b, int fd, const struct kw_frame_request *h, struct kw_in *body, struct kw_arena *a) {
    struct kw_metadata_request q;
    struct kw_metadata_response m;
    if (kw_decode(&kw_metadata_request_desc, h->version, body, a, &q)) return false;
    kw_msg_init(&kw_metadata_response_desc, &m);
    struct kw_metadata_response_broker broker = {.node_id = 1, .host = kw_str_of("127.0.0.1"), .port = b->port, .rack = kw_str_null()};
    m.brokers.v = &broker;
    m.brokers.n = 1;
    m.controller_id = 1;
    int32_t n = KW_MAX(q.topics.n, 0);
    m.topics.v = kw_arena_calloc(a, (size_t)n + 1, sizeof *m.topics.v);
    m.topics.n = n;
    for (int32_t i = 0; i < n; i++) {
        struct kw_metadata_response_topic *t = &m.topics.v[i];
        *t = (struct kw_metadata_response_topic){.name = q.topics.v[i].name, .topic_authorized_operations = INT32_MIN};
        t->topic_id.b[0] = (uint8_t)(i + 1);
        t->partitions.v = kw_arena_calloc(a, (size_t)b->partitions, sizeof *t->partitions.v);
        t->partitions.n = b->partitions;
        for (int32_t p = 0; p < b->partitions; p++) {
            t->partitions.v[p].partition_index = p;
            t->partitions.v[p].leader_id = 1;
        }
    }
    return mini_reply(fd, h, h->version, &m);
}

static inline bool mini_produce(struct mini_broker *b, int fd, const struct kw_frame_request *h, struct kw_in *body, struct kw_arena *a,
                                struct kw_compressor *c) {
    struct kw_produce_request q;
    struct kw_produce_response m;
    if (kw_decode(&kw_produce_request_desc, h->version, body, a, &q)) return false;
    kw_msg_init(&kw_produce_response_desc, &m);
    m.responses.v = kw_arena_calloc(a, (size_t)q.topic_data.n, sizeof *m.responses.v);
    m.responses.n = q.topic_data.n;
    for (int32_t i = 0; i < q.topic_data.n; i++) {
        struct kw_produce_response_topic_produce_response *t = &m.responses.v[i];
        t->name = q.topic_data.v[i].name;
        t->topic_id = q.topic_data.v[i].topic_id;
        t->partition_responses.n = q.topic_data.v[i].partition_data.n;
        t->partition_responses.v = kw_arena_calloc(a, (size_t)t->partition_responses.n, sizeof *t->partition_responses.v);
        for (int32_t k = 0; k < t->partition_responses.n; k++) {
            struct kw_produce_response_partition_produce_response *p = &t->partition_responses.v[k];
            const struct kw_records *rec = &q.topic_data.v[i].partition_data.v[k].records;
            struct kw_batch_header bh;
            kw_msg_init(kw_produce_response_desc.fields[0].desc->fields[2].desc, p);
            p->index = q.topic_data.v[i].partition_data.v[k].index;
            if (kw_batch_parse(rec->p, (size_t)rec->len, &bh)) return false;
            p->base_offset = atomic_fetch_add(&b->offsets[p->index & 63], bh.record_count);
            atomic_fetch_add(&b->records, bh.record_count);
            atomic_fetch_add(&b->bytes, rec->len);
            if (b->check) {
                struct kw_batch_check check = {.limit = 64 << 20, .compressor = c};
                struct kw_batch_facts facts;
                const char *why;
                if (kw_batch_check(rec->p, (size_t)rec->len, &check, &facts, &why)) atomic_fetch_add(&b->bad, 1);
            }
        }
    }
    atomic_fetch_add(&b->requests, 1);
    return q.acks == 0 || mini_reply(fd, h, h->version, &m);
}

static inline int64_t mini_thread_cpu(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void *mini_serve(void *arg) {
    struct mini_conn conn = *(struct mini_conn *)arg;
    struct kw_compressor *c = kw_compressor_new();
    struct kw_arena arena;
    uint8_t *frame = malloc(MINI_FRAME_MAX);
    int64_t cpu = 0;
    free(arg);
    kw_arena_init(&arena, 0);
    while (frame) {
        uint8_t size_bytes[4];
        struct kw_in in;
        struct kw_frame_request h;
        if (!mini_read(conn.fd, size_bytes, 4)) break;
        size_t size = kw_load32(size_bytes);
        if (size > MINI_FRAME_MAX || !mini_read(conn.fd, frame, size)) break;
        kw_in_init(&in, frame, size);
        if (kw_frame_parse_request(&in, &h)) break;
        kw_arena_reset(&arena);
        bool ok = false;
        if (h.api_key == KW_API_API_VERSIONS) ok = mini_versions(conn.fd, &h);
        else if (h.api_key == KW_API_METADATA) ok = mini_metadata(conn.b, conn.fd, &h, &in, &arena);
        else if (h.api_key == KW_API_PRODUCE) ok = mini_produce(conn.b, conn.fd, &h, &in, &arena, c);
        else if (h.api_key == KW_API_INIT_PRODUCER_ID) {
            struct kw_init_producer_id_response m;
            kw_msg_init(&kw_init_producer_id_response_desc, &m);
            m.producer_id = 7;
            ok = mini_reply(conn.fd, &h, h.version, &m);
        }
        int64_t now = mini_thread_cpu();
        atomic_fetch_add(&conn.b->cpu_ns, now - cpu);
        cpu = now;
        if (!ok) break;
    }
    shutdown(conn.fd, SHUT_RDWR);
    kw_arena_deinit(&arena);
    kw_compressor_free(c);
    free(frame);
    return NULL;
}

static inline void *mini_accept(void *arg) {
    struct mini_broker *b = arg;
    while (!atomic_load(&b->stop)) {
        int fd = accept(b->listener, NULL, NULL), one = 1;
        if (fd < 0) break;
        int at = atomic_load(&b->count);
        if (atomic_load(&b->stop) || at == MINI_CONNS) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct mini_conn *c = malloc(sizeof *c);
        *c = (struct mini_conn){b, fd};
        b->fds[at] = fd;
        if (pthread_create(&b->threads[at], NULL, mini_serve, c) == 0) atomic_store(&b->count, at + 1);
        else close(fd);
    }
    return NULL;
}

static inline struct mini_broker *mini_start(int32_t partitions) {
    struct mini_broker *b = calloc(1, sizeof *b);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    b->partitions = partitions;
    b->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(b->listener, (struct sockaddr *)&a, size) || listen(b->listener, 16) || getsockname(b->listener, (struct sockaddr *)&a, &size)) abort();
    b->port = ntohs(a.sin_port);
    if (pthread_create(&b->acceptor, NULL, mini_accept, b)) abort();
    return b;
}

static inline void mini_stop(struct mini_broker *b) {
    atomic_store(&b->stop, true);
    shutdown(b->listener, SHUT_RDWR);
    pthread_join(b->acceptor, NULL);
    for (int i = 0; i < atomic_load(&b->count); i++) {
        shutdown(b->fds[i], SHUT_RDWR);
        pthread_join(b->threads[i], NULL);
        close(b->fds[i]);
    }
    close(b->listener);
    free(b);
}

#endif
