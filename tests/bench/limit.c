/* limit - what the machine itself allows: loopback TCP, CRC-32C, write() into the page cache; no Kafka in it.
 *
 *   limit stream tcp|crc|write|all MBYTES FILE   a sender process and this receiver: tcp always; +crc; +write; both.
 *                                                write-warm and all-warm rewrite a file that is already in the page cache
 *   limit crc MBYTES                             CRC-32C alone over a block of 1 MB, one lane and three
 *   limit copy FILE FROM...                      reads the files one after the other and writes all of it to FILE, and syncs
 *   limit pingpong COUNT REQUEST RESPONSE        blocking requests over loopback TCP, in bytes
 * Prints one JSON object. Called by run.py, interleaved with what it is the limit of. 1 MB is 1,048,576 bytes in arguments and
 * 1,000,000 in results, as in the other programs' mb_per_s. x86-64 (SSE 4.2) only.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BLOCK (1u << 20)

static volatile uint32_t sink; /* keeps results alive */

static void die(const char *what)
{
    fprintf(stderr, "limit: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double cpu_s(int who)
{
    struct rusage r;
    getrusage(who, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static uint8_t *block_new(void)
{
    uint8_t *b = aligned_alloc(64, BLOCK);
    if (!b) die("memory");
    for (size_t i = 0; i < BLOCK; i++) b[i] = (uint8_t)(i * 131 >> 3);
    return b;
}

/* ---- CRC-32C by the processor's instruction ---- */

static uint32_t crc_lane(const uint8_t *p, size_t n)
{
    uint64_t c = ~0u;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        c = _mm_crc32_u64(c, v);
    }
    return (uint32_t)c;
}

/* Three independent lanes, as an optimised implementation keeps the unit busy. */
static uint32_t crc_lanes(const uint8_t *p, size_t n)
{
    size_t lane = n / 3 / 8;
    uint64_t c[3] = {~0u, 0, 0};
    for (size_t i = 0; i < lane; i++)
        for (size_t k = 0; k < 3; k++) {
            uint64_t v;
            memcpy(&v, p + (k * lane + i) * 8, 8);
            c[k] = _mm_crc32_u64(c[k], v);
        }
    return (uint32_t)(c[0] ^ c[1] ^ c[2]);
}

static void mode_crc(long blocks)
{
    uint8_t *b = block_new();
    double mb = (double)blocks * BLOCK / 1e6;
    uint64_t t = now_ns();
    for (long i = 0; i < blocks; i++) sink += crc_lane(b, BLOCK);
    double one = (double)(now_ns() - t) / 1e9;
    t = now_ns();
    for (long i = 0; i < blocks; i++) sink += crc_lanes(b, BLOCK);
    double three = (double)(now_ns() - t) / 1e9;
    printf("{\"mode\":\"crc\",\"lane1_mb_per_s\":%.0f,\"lane3_mb_per_s\":%.0f}\n", mb / one, mb / three);
    free(b);
}

/* ---- sockets ---- */

static int listen_loopback(in_port_t *port)
{
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    if (s < 0 || bind(s, (struct sockaddr *)&a, size) || listen(s, 1) || getsockname(s, (struct sockaddr *)&a, &size)) die("listen");
    *port = a.sin_port;
    return s;
}

static void no_delay(int s)
{
    int one = 1;
    if (setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) die("TCP_NODELAY");
}

static int dial(in_port_t port)
{
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = port};
    if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof a)) die("connect");
    no_delay(s);
    return s;
}

static int read_all(int fd, void *b, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = read(fd, (char *)b + at, n - at);
        if (k <= 0) return -1;
        at += (size_t)k;
    }
    return 0;
}

static int write_all(int fd, const void *b, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = write(fd, (const char *)b + at, n - at);
        if (k <= 0) return -1;
        at += (size_t)k;
    }
    return 0;
}

static int accept_one(int listener)
{
    int s = accept(listener, NULL, NULL);
    if (s < 0) die("accept");
    return s;
}

/* ---- stream ---- */

static void send_blocks(in_port_t port, long blocks)
{
    int s = dial(port);
    uint8_t *b = block_new();
    char end;
    for (long i = 0; i < blocks; i++)
        if (write_all(s, b, BLOCK)) _exit(1);
    shutdown(s, SHUT_WR);
    while (read(s, &end, 1) > 0) {}
    _exit(0);
}

static long receive_blocks(int s, uint8_t *b, int crc, int file)
{
    long n = 0;
    for (; !read_all(s, b, BLOCK); n++) {
        if (crc) sink += crc_lane(b, BLOCK);
        if (file >= 0 && write_all(file, b, BLOCK)) die("write");
    }
    return n;
}

static void mode_stream(const char *what, long blocks, const char *path)
{
    int all = !strncmp(what, "all", 3), crc = all || !strcmp(what, "crc"), writes = all || !strncmp(what, "write", 5);
    in_port_t port;
    int listener = listen_loopback(&port);
    pid_t sender = fork();
    if (sender < 0) die("fork");
    if (!sender) send_blocks(port, blocks);
    int s = accept_one(listener), file = -1;
    uint8_t *b = block_new();
    if (writes && (file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600)) < 0) die(path);
    if (writes && strstr(what, "-warm")) {
        for (long i = 0; i < blocks; i++)
            if (write_all(file, b, BLOCK)) die("write");
        if (lseek(file, 0, SEEK_SET)) die("lseek");
    }
    double cpu = cpu_s(RUSAGE_SELF);
    uint64_t start = now_ns();
    long n = receive_blocks(s, b, crc, file);
    double seconds = (double)(now_ns() - start) / 1e9, gb = (double)n * BLOCK / 1e9;
    cpu = cpu_s(RUSAGE_SELF) - cpu;
    close(s);
    waitpid(sender, NULL, 0);
    if (writes) unlink(path);
    if (n != blocks) die("stream ended early");
    double sender_cpu = cpu_s(RUSAGE_CHILDREN);
    printf("{\"mode\":\"stream %s\",\"seconds\":%.6f,\"mb_per_s\":%.1f,\"sender_cpu_ns_per_kb\":%.1f,\"receiver_cpu_ns_per_kb\":%.1f}\n",
           what, seconds, gb * 1000 / seconds, sender_cpu / gb * 1024, cpu / gb * 1024);
    free(b);
}

/* ---- pingpong ---- */

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void echo(int listener, char *b, size_t request, size_t response)
{
    int s = accept_one(listener);
    no_delay(s);
    while (!read_all(s, b, request))
        if (write_all(s, b, response)) break;
    _exit(0);
}

static void mode_pingpong(long count, size_t request, size_t response)
{
    in_port_t port;
    int listener = listen_loopback(&port);
    char *b = calloc(1, request + response + 1);
    uint32_t *latency_ns = calloc((size_t)count, sizeof *latency_ns);
    if (!b || !latency_ns) die("memory");
    pid_t other = fork();
    if (other < 0) die("fork");
    if (!other) echo(listener, b, request, response);
    int s = dial(port);
    for (long i = -1000; i < count; i++) { /* the first thousand warm up */
        uint64_t t = now_ns();
        if (write_all(s, b, request) || read_all(s, b, response)) die("pingpong");
        if (i >= 0) latency_ns[i] = (uint32_t)(now_ns() - t);
    }
    close(s);
    waitpid(other, NULL, 0);
    qsort(latency_ns, (size_t)count, sizeof *latency_ns, by_value);
    printf("{\"mode\":\"pingpong\",\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f}\n", latency_ns[count / 2] / 1e3,
           latency_ns[count * 99 / 100] / 1e3, latency_ns[count * 999 / 1000] / 1e3);
    free(latency_ns);
    free(b);
}

/* ---- what compaction is compared with ---- */

static void mode_copy(const char *to, char **from, int count)
{
    uint8_t *b = block_new();
    uint64_t start = now_ns();
    double bytes = 0;
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (out < 0) die(to);
    for (int i = 0; i < count; i++) {
        int in = open(from[i], O_RDONLY);
        if (in < 0) die(from[i]);
        for (ssize_t n; (n = read(in, b, BLOCK)) != 0; bytes += (double)n)
            if (n < 0 || write(out, b, (size_t)n) != n) die("copy");
        close(in);
    }
    if (fsync(out)) die("fsync");
    close(out);
    double s = (double)(now_ns() - start) / 1e9;
    printf("{\"mode\":\"copy\",\"mb\":%.3f,\"seconds\":%.6f,\"mb_per_s\":%.3f}\n", bytes / 1e6, s, bytes / 1e6 / s);
    free(b);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    long n = argc > 3 && !strcmp(mode, "stream") ? atol(argv[3]) : argc > 2 ? atol(argv[2]) : 0;
    if (!strcmp(mode, "copy") && argc > 3) mode_copy(argv[2], argv + 3, argc - 3);
    else if (n > 0 && !strcmp(mode, "crc")) mode_crc(n);
    else if (n > 0 && !strcmp(mode, "stream") && argc == 5) mode_stream(argv[2], n, argv[4]);
    else if (n > 0 && !strcmp(mode, "pingpong") && argc == 5) mode_pingpong(n, strtoul(argv[3], NULL, 10), strtoul(argv[4], NULL, 10));
    else {
        fprintf(stderr, "usage: limit stream tcp|crc|write|all|write-warm|all-warm MBYTES FILE | copy FILE FROM... | crc MBYTES |"
                        " pingpong COUNT REQUEST RESPONSE\n");
        return 2;
    }
    return 0;
}
