/* guid - produce and look up by GUID without any client behind it: raw requests, ids that follow from their number. For run.py's section `guid`.
 *
 *   guid produce HOST PORT TOPIC PARTS KIND FROM COUNT SIZE BATCH   ids FROM.. of records with SIZE bytes of value, BATCH to a request, five requests
 *                                                                   in flight, the partitions in turn; acks=1
 *   guid get HOST PORT TOPIC KIND STORED COUNT                      LookupGuid of one of the ids below STORED and an empty Metadata in turn: latencies
 *   guid stats HOST PORT TOPIC PARTS                                what the partitions' indexes say of themselves, summed
 *   guid ready HOST PORT TOPIC KIND STORED                          waits for a broker that is being started until partition 0 finds the last of STORED
 *                                                                   ids, takes it for a duplicate, and stores the next id; STORED records are in it
 * KIND: v7 or v4. Each prints one line of JSON.
 */
#include "raw.h"

#include <nmmintrin.h>
#include <sys/resource.h>

enum { PRODUCE = 0, METADATA = 3, LOOKUP_GUID = 10000, NOT_WHOLE = 5, HEADER = 61, FLIGHT = 5, ID = 16 };
static struct out o;
static int v4;

/* ---- Ids ---- */

static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}
static void store(uint8_t *p, uint64_t v, int n) {
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * (n - 1 - i));
}
static void id_of(uint64_t n, uint8_t id[ID]) {
    uint64_t time_ms = 1760000000000 + n / 1024, high = v4 ? (mixed(2 * n) & ~UINT64_C(0xf000)) | 0x4000 : time_ms << 16 | 0x7000 | (n % 1024) << 2;
    store(id, high, 8);
    store(id + 8, (mixed(2 * n + 1) & ~UINT64_C(0) >> 2) | UINT64_C(1) << 63, 8);
}

/* ---- Batches: all of one shape, so that only their ids and what follows from them are written anew ---- */

static struct {
    struct out frame;
    size_t partition_at, batch_at, *id_at;
    long count;
} b;

static void put_varint(struct out *to, int64_t v) {
    uint64_t z = (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
    for (; z > 127; z >>= 7) put(to, &(uint8_t){(uint8_t)(z | 128)}, 1);
    put(to, &(uint8_t){(uint8_t)z}, 1);
}
static uint32_t crc32c(const uint8_t *p, size_t n) {
    uint64_t c = 0xffffffff, v;
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&v, p, 8);
        c = _mm_crc32_u64(c, v);
    }
    for (; n > 0; n--) c = _mm_crc32_u8((uint32_t)c, *p++);
    return (uint32_t)c ^ 0xffffffff;
}

static void put_record(long i, const uint8_t *value, size_t size) {
    struct out r = {0};
    put(&r, "", 1);
    put_varint(&r, 0);
    put_varint(&r, i);
    put_varint(&r, -1);
    put_varint(&r, (int64_t)size);
    put(&r, value, size);
    put_varint(&r, 1);
    put_varint(&r, 4);
    put(&r, "guid", 4);
    put_varint(&r, ID);
    put_varint(&b.frame, (int64_t)r.n + ID);
    put(&b.frame, r.p, r.n);
    b.id_at[i] = b.frame.n;
    put(&b.frame, (uint8_t[ID]){0}, ID);
    free(r.p);
}
static void shape(const char *topic, long count, size_t size) {
    uint8_t *value = malloc(size + 1);
    b.frame.n = 0;
    b.count = count;
    if (!(b.id_at = realloc(b.id_at, (size_t)count * sizeof *b.id_at)) || !value) die("memory");
    for (size_t i = 0; i < size; i++) value[i] = (uint8_t)mixed(i);
    begin(&b.frame, PRODUCE, 3);
    put_str(&b.frame, NULL);
    put16(&b.frame, 1);
    put32(&b.frame, 30000);
    put32(&b.frame, 1);
    put_str(&b.frame, topic);
    put32(&b.frame, 1);
    b.partition_at = b.frame.n;
    put32(&b.frame, 0);
    put32(&b.frame, 0);
    b.batch_at = b.frame.n;
    for (int i = 0; i < HEADER; i++) put(&b.frame, "", 1);
    for (long i = 0; i < count; i++) put_record(i, value, size);
    free(value);
    uint8_t *p = b.frame.p + b.batch_at;
    store(b.frame.p + b.batch_at - 4, b.frame.n - b.batch_at, 4);
    store(p + 8, b.frame.n - b.batch_at - 12, 4);
    p[16] = 2;
    store(p + 23, (uint64_t)count - 1, 4);
    memset(p + 43, 0xff, 14); /* no producer */
    store(p + 57, (uint64_t)count, 4);
}
static void fill(uint64_t first, int partition) {
    uint8_t *p = b.frame.p + b.batch_at;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    for (int i = 0; i < 2; i++) store(p + 27 + 8 * i, (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000, 8);
    for (long i = 0; i < b.count; i++) id_of(first + (uint64_t)i, b.frame.p + b.id_at[i]);
    store(b.frame.p + b.partition_at, (uint64_t)partition, 4);
    store(p + 17, crc32c(p + 21, b.frame.n - b.batch_at - 21), 4);
}
/* Its error code; *base: the offset that it names. */
static int produced(int fd, int64_t *base) {
    const uint8_t *p = answer(fd) + 4;
    get_str(&p, NULL, 0);
    p += 4 + 4;
    int code = get16(&p);
    *base = (int64_t)((uint64_t)(uint32_t)get32(&p) << 32);
    *base |= (uint32_t)get32(&p);
    return code;
}

static void produce(const char *topic, int parts, uint64_t from, long count, size_t size, long batch) {
    struct rusage u;
    int fd = dial(), partition = 0;
    double start = now_ms();
    int64_t base;
    long sent = 0, answered = 0;
    for (long flight = 0; answered * batch < count;) {
        if (sent * batch >= count || flight == FLIGHT) {
            int code = produced(fd, &base);
            if (code) {
                fprintf(stderr, "guid: Produce: error %d\n", code);
                exit(1);
            }
            answered++;
            flight--;
            continue;
        }
        long n = count - sent * batch < batch ? count - sent * batch : batch;
        if (n != b.count) shape(topic, n, size);
        fill(from + (uint64_t)(sent * batch), partition);
        send_all(fd, &b.frame);
        partition = (partition + 1) % parts;
        sent++;
        flight++;
    }
    double took = now_ms() - start;
    getrusage(RUSAGE_SELF, &u);
    double cpu = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e9 + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e3;
    printf("{\"records\": %ld, \"seconds\": %.4f, \"records_per_s\": %.0f, \"cpu_ns_per_record\": %.1f}\n", count, took / 1000, (double)count / took * 1000,
           cpu / (double)count);
}

/* ---- Lookups ---- */

static void put_length(size_t n) { /* of a compact string or array */
    n++;
    for (; n > 127; n >>= 7) put(&o, &(uint8_t){(uint8_t)(n | 128)}, 1);
    put(&o, &(uint8_t){(uint8_t)n}, 1);
}
static void lookup_send(int fd, const char *topic, int partition, const uint8_t *id, int stats) {
    begin(&o, LOOKUP_GUID, 0);
    put(&o, "", 1);
    put_length(1);
    put_length(strlen(topic));
    put(&o, topic, strlen(topic));
    put(&o, (uint8_t[16]){0}, 16);
    put_length(1);
    put32(&o, partition);
    put32(&o, -1);
    put_length(id ? 1 : 0);
    if (id) {
        put_length(ID);
        put(&o, id, ID);
    }
    put(&o, "\0\0", 2);
    put(&o, &(uint8_t){(uint8_t)stats}, 1);
    put(&o, "", 1);
    send_all(fd, &o);
}

enum { FROM, END, ENTRIES, RUNS, DISK_BYTES, MEMORY_BYTES, WINDOW_MS, FINDS, RUN_READS, HITS, FLUSHES, MERGES, FORGOTTEN, ROTTEN, STATS };
struct found {
    int code, state;
    int64_t offset, stats[STATS];
};
static int64_t get64(const uint8_t **p) {
    int64_t high = get32(p);
    return (int64_t)((uint64_t)high << 32 | (uint32_t)get32(p));
}
static struct found lookup_take(int fd) {
    const uint8_t *p = answer(fd) + 1 + 4 + 1;
    struct found f = {.offset = -1};
    p += *p; /* the topic's name: its length, plus one, and itself */
    p += 16 + 1 + 4;
    f.code = get16(&p);
    p += *p ? *p : 1; /* a message of less than 127 bytes, or null */
    p += 4 + 8;
    if (*p++ > 1) {
        f.state = *p++;
        f.offset = get64(&p);
        p += 4 + 1;
    }
    if ((int8_t)*p++ != 1) return f;
    for (int i = 0; i < STATS; i++) f.stats[i] = get64(&p);
    return f;
}

static void ping(int fd) {
    begin(&o, METADATA, 1);
    put32(&o, 0);
    send_all(fd, &o);
    answer(fd);
}
static void get(const char *topic, uint64_t stored, long count) {
    uint8_t id[ID];
    int fd = dial();
    long warm = count / 5;
    double *found = calloc((size_t)count, sizeof *found), *pong = calloc((size_t)count, sizeof *pong), *unknown = calloc((size_t)count, sizeof *unknown);
    for (long i = -warm; i < count; i++) {
        uint64_t n = mixed((uint64_t)i ^ 77) % stored;
        double at = now_ms();
        ping(fd);
        double between = now_ms();
        id_of(n, id);
        lookup_send(fd, topic, 0, id, 0);
        struct found f = lookup_take(fd);
        double done = now_ms();
        if (f.code || f.state != 1 || f.offset != (int64_t)n) {
            fprintf(stderr, "guid: LookupGuid of id %llu: error %d, state %d, offset %lld\n", (unsigned long long)n, f.code, f.state, (long long)f.offset);
            exit(1);
        }
        id_of(stored + (uint64_t)(i + warm) + ((uint64_t)1 << 40), id);
        double again = now_ms();
        lookup_send(fd, topic, 0, id, 0);
        if (lookup_take(fd).state != 0) die("an id that was never sent is known");
        if (i < 0) continue;
        pong[i] = (between - at) * 1000;
        found[i] = (done - between) * 1000;
        unknown[i] = (now_ms() - again) * 1000;
    }
    qsort(found, (size_t)count, sizeof *found, by_value);
    qsort(pong, (size_t)count, sizeof *pong, by_value);
    qsort(unknown, (size_t)count, sizeof *unknown, by_value);
    printf("{\"records\": %ld, \"p50_us\": %.1f, \"p99_us\": %.1f, \"ping_p50_us\": %.1f, \"ping_p99_us\": %.1f, \"unknown_p50_us\": %.1f}\n", count,
           found[count / 2], found[count * 99 / 100], pong[count / 2], pong[count * 99 / 100], unknown[count / 2]);
}

static void stats(const char *topic, int parts) {
    static const char *const names[STATS] = {"from", "end",  "entries", "runs",    "disk_bytes", "memory_bytes", "window_ms",
                                             "finds", "run_reads", "hits", "flushes", "merges",     "forgotten",    "rotten"};
    int64_t sum[STATS] = {0}, most = 0;
    int fd = dial();
    for (int i = 0; i < parts; i++) {
        struct found f;
        for (int tries = 0; tries < 20000; tries++, usleep(500)) { /* an index that catches up with its log says nothing of itself */
            lookup_send(fd, topic, i, NULL, 1);
            f = lookup_take(fd);
            if (f.code != NOT_WHOLE) break;
        }
        if (f.code) {
            fprintf(stderr, "guid: LookupGuid: error %d of partition %d\n", f.code, i);
            exit(1);
        }
        for (int k = 0; k < STATS; k++) sum[k] += f.stats[k];
        most = f.stats[MEMORY_BYTES] > most ? f.stats[MEMORY_BYTES] : most;
    }
    printf("{\"records\": %lld, \"memory_bytes_most\": %lld", (long long)sum[ENTRIES], (long long)most);
    for (int k = 0; k < STATS; k++) printf(", \"%s\": %lld", names[k], (long long)sum[k]);
    puts("}");
}

/* ---- A start ---- */

static int dial_patiently(void) {
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
        if (fd < 0) die("socket");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
        close(fd);
        usleep(200);
    }
}
/* One record with id number n; the offset that the answer names. A broker whose partition is not there yet is asked again. */
static int64_t produce_one(int fd, uint64_t n) {
    for (;; usleep(500)) {
        int64_t base;
        fill(n, 0);
        send_all(fd, &b.frame);
        int code = produced(fd, &base);
        if (code == 0) return base;
        if (code != 3 && code != 5 && code != 6) die("Produce was refused");
    }
}
static void ready(const char *topic, uint64_t stored) {
    uint8_t id[ID];
    shape(topic, 1, 2);
    id_of(stored - 1, id);
    puts("waiting");
    fflush(stdout);
    int fd = dial_patiently();
    double dialled = now_ms();
    struct found f;
    for (;; usleep(500)) {
        lookup_send(fd, topic, 0, id, 0);
        f = lookup_take(fd);
        if (f.code == 0) break;
    }
    double looked_up = now_ms();
    int64_t twice = produce_one(fd, stored - 1), once = produce_one(fd, stored);
    double done = now_ms();
    if (f.state != 1 || f.offset != (int64_t)stored - 1 || twice != (int64_t)stored - 1 || once != (int64_t)stored) {
        fprintf(stderr, "guid: of %llu stored: state %d, offset %lld; sent again: %lld; the next: %lld\n", (unsigned long long)stored, f.state,
                (long long)f.offset, (long long)twice, (long long)once);
        exit(1);
    }
    printf("{\"records\": 1, \"dialled_ms\": %.3f, \"looked_up_ms\": %.3f, \"at_ms\": %.3f}\n", dialled, looked_up, done);
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    address_set(argv[2], argv[3]);
    const char *mode = argv[1], *topic = argv[4];
    int kind = strcmp(mode, "produce") == 0 ? 6 : 5;
    v4 = argc > kind && strcmp(argv[kind], "v4") == 0;
    if (strcmp(mode, "produce") == 0 && argc == 11)
        produce(topic, atoi(argv[5]), strtoull(argv[7], NULL, 10), atol(argv[8]), (size_t)atol(argv[9]), atol(argv[10]));
    else if (strcmp(mode, "get") == 0 && argc == 8)
        get(topic, strtoull(argv[6], NULL, 10), atol(argv[7]));
    else if (strcmp(mode, "stats") == 0)
        stats(topic, atoi(argv[5]));
    else if (strcmp(mode, "ready") == 0 && argc == 7)
        ready(topic, strtoull(argv[6], NULL, 10));
    else
        return 2;
    return 0;
}
