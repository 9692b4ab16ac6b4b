/* bench_producer.c - what a record costs a producer: libkclient against a broker inside this process that takes everything (mini_broker.h), so that the
 * figures are the client's and the kernel's alone. CPU of the broker's threads is taken off.
 *
 *   bench_producer [-s SIZE] [-n COUNT] [-p PARTITIONS] [-t THREADS] [-m BATCH] [-k] [-w] [-X name=value]… [-b HOST:PORT -T TOPIC]
 *   -m: kc_producer_send_many, so many at a time  -k: with a key  -w: one by one, each waiting for its outcome  -b: a broker of your own
 * Prints one line of key=value pairs.
 */
#include <kclient/kclient.h>
#include <kclient/producer.h>

#include <getopt.h>
#include <string.h>
#include <sys/resource.h>

#include "bench/mini_broker.h"

enum { POOL = 1024, MANY_MAX = 256 };

static struct {
    int size, threads, many;
    long count;
    int partitions;
    bool keyed, sync;
    const char *boot, *topic;
} opt = {.size = 100, .threads = 1, .many = 1, .count = 3000000, .partitions = 1, .topic = "bench"};
static char *payloads;
static kc_producer *producer;
static int32_t topic;
static _Atomic int64_t send_cpu_ns; /* of the sending threads inside their loops */

static double now_s(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
static void die(const char *what, const char *why) {
    fprintf(stderr, "bench_producer: %s: %s\n", what, why);
    exit(1);
}

static kc_record record(long i, char key[24]) {
    kc_record r = {.topic = topic, .opaque = (uint64_t)i, .value = {payloads + (i & (POOL - 1)) * opt.size, (size_t)opt.size}};
    if (opt.keyed) r.key = (kc_bytes){key, (size_t)snprintf(key, 24, "key-%ld", i % 10000)};
    return r;
}

static void *send_all(void *arg) {
    long n = *(long *)arg;
    double cpu = now_s(CLOCK_THREAD_CPUTIME_ID);
    static _Thread_local char keys[MANY_MAX][24];
    for (long i = 0; i < n;) {
        kc_err err;
        if (opt.many > 1) {
            kc_record recs[MANY_MAX];
            long k = KW_MIN(n - i, (long)opt.many);
            for (long j = 0; j < k; j++) recs[j] = record(i + j, keys[j]);
            i += (long)kc_producer_send_many(producer, recs, 0, (size_t)k, KC_FOREVER, &err);
        } else {
            kc_record rec = record(i, keys[0]);
            err = kc_producer_send(producer, &rec, KC_FOREVER);
            i += err == KC_OK;
        }
        if (err) die("send", kc_err_name(err));
    }
    atomic_fetch_add(&send_cpu_ns, (int64_t)((now_s(CLOCK_THREAD_CPUTIME_ID) - cpu) * 1e9));
    return NULL;
}

static void *drain(void *arg) {
    long left = *(long *)arg;
    while (left > 0) {
        kc_reports *r;
        kc_report one;
        kc_err err = kc_producer_reports(producer, &r, KC_FOREVER);
        if (err) die("reports", kc_err_name(err));
        while (kc_reports_next(r, &one)) {
            if (one.err) die("record", kc_error_message(kc_reports_error(r)));
            left--;
        }
        kc_reports_free(r);
    }
    return NULL;
}

static int by_value(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}
static void run_sync(void) {
    double *took = calloc((size_t)opt.count, sizeof *took);
    char key[24];
    for (long i = 0; i < opt.count; i++) {
        kc_record rec = record(i, key);
        double start = now_s(CLOCK_MONOTONIC);
        kc_err err = kc_producer_send_wait(producer, &rec, NULL, NULL);
        if (err) die("send_wait", kc_err_name(err));
        took[i] = now_s(CLOCK_MONOTONIC) - start;
    }
    qsort(took, (size_t)opt.count, sizeof *took, by_value);
    printf("p50_us=%.1f p99_us=%.1f p999_us=%.1f ", took[opt.count / 2] * 1e6, took[opt.count * 99 / 100] * 1e6, took[opt.count * 999 / 1000] * 1e6);
    free(took);
}

static void run_async(void) {
    pthread_t threads[64], drainer;
    long each = opt.count / opt.threads;
    opt.count = each * opt.threads;
    if (pthread_create(&drainer, NULL, drain, &opt.count)) die("thread", strerror(errno));
    for (int i = 0; i < opt.threads; i++)
        if (pthread_create(&threads[i], NULL, send_all, &each)) die("thread", strerror(errno));
    for (int i = 0; i < opt.threads; i++) pthread_join(threads[i], NULL);
    pthread_join(drainer, NULL);
}

static void options(int argc, char **argv, kc_config *config) {
    kc_error *e = NULL;
    for (int o; (o = getopt(argc, argv, "s:n:p:t:m:kwX:b:T:")) != -1;) switch (o) {
        case 's': opt.size = atoi(optarg); break;
        case 'n': opt.count = atol(optarg); break;
        case 'p': opt.partitions = atoi(optarg); break;
        case 't': opt.threads = atoi(optarg); break;
        case 'm': opt.many = atoi(optarg); break;
        case 'k': opt.keyed = true; break;
        case 'w': opt.sync = true; break;
        case 'b': opt.boot = optarg; break;
        case 'T': opt.topic = optarg; break;
        case 'X': {
            char pair[256];
            snprintf(pair, sizeof pair, "%s", optarg);
            char *value = strchr(pair, '=');
            if (!value) die("-X", "name=value");
            *value++ = 0;
            if (kc_config_set(config, pair, value, &e)) die("-X", kc_error_message(e));
            break;
        }
        default: exit(2);
        }
    if (opt.size < 0 || opt.count < 1 || opt.threads < 1 || opt.threads > 64 || opt.many > MANY_MAX || opt.many < 1) die("options", "out of range");
}

int main(int argc, char **argv) {
    kc_config *config = kc_config_new();
    kc_client *client;
    kc_error *e = NULL;
    options(argc, argv, config);
    struct mini_broker *broker = opt.boot ? NULL : mini_start(opt.partitions);
    char address[64];
    if (broker) snprintf(address, sizeof address, "127.0.0.1:%d", broker->port);
    if (kc_config_set(config, "bootstrap.servers", opt.boot ? opt.boot : address, &e)) die("bootstrap.servers", kc_error_message(e));
    if (kc_client_new(config, &client, &e) || kc_producer_new(client, NULL, &producer, &e)) die("client", kc_error_message(e));
    topic = kc_client_topic(client, opt.topic);
    payloads = malloc((size_t)POOL * (size_t)opt.size + 1);
    uint64_t x = 88172645463325252ULL;
    for (long i = 0; i < (long)POOL * opt.size; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        payloads[i] = (char)(x >> 24);
    }
    kc_record first = {.topic = topic, .value = {"first", 5}};
    if (kc_producer_send_wait(producer, &first, NULL, &e)) die("first record", kc_error_message(e));
    int64_t broker_cpu = broker ? atomic_load(&broker->cpu_ns) : 0;
    double cpu = now_s(CLOCK_PROCESS_CPUTIME_ID), start = now_s(CLOCK_MONOTONIC);
    if (opt.sync) run_sync();
    else run_async();
    double took = now_s(CLOCK_MONOTONIC) - start;
    cpu = now_s(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    double theirs = broker ? (double)(atomic_load(&broker->cpu_ns) - broker_cpu) / 1e9 : 0;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    kc_producer_stats stats;
    (void)kc_producer_stats_get(producer, &stats, sizeof stats);
    printf("records=%ld size=%d seconds=%.3f records_per_s=%.0f cpu_ns_per_record=%.1f send_ns_per_record=%.1f batches=%llu rss_kb=%ld\n", opt.count, opt.size,
           took, (double)opt.count / took, (cpu - theirs) * 1e9 / (double)opt.count, (double)atomic_load(&send_cpu_ns) / (double)opt.count,
           (unsigned long long)stats.batches_sent, usage.ru_maxrss);
    kc_producer_close(producer, 5000000, NULL);
    kc_producer_free(producer);
    kc_client_close(client, 5000000, NULL);
    kc_client_free(client);
    kc_config_free(config);
    if (broker) mini_stop(broker);
    free(payloads);
    return 0;
}
