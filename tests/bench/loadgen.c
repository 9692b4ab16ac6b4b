/* loadgen - load program on librdkafka's public API: the client to beat, and the same client against both brokers.
 *
 * loadgen MODE -b BOOTSTRAP -t TOPIC [options]; prints one JSON object with the names that `kc bench --json` uses.
 *   produce   as fast as it goes; the clock runs from the first call to the last report, connection and metadata before it
 *   sync      one record in flight (linger 0 unless -l)
 *   first     one acknowledged record as soon as the broker is there; "at" is the wall clock then
 *   consume   all partitions, assigned, from the beginning; the clock runs from the first to the last record
 *   e2e       -r records a second, each carrying its time, read by a consumer in the same process; one second of warm-up
 *   create, delete   the topic: -N partitions -R replication factor, k=v configs as further arguments
 * Options: -s size -n count -a acks -l linger.ms -z codec -I (idempotence) -P rand|json -r rate -T seconds at most
 *   -k keys (records get one of so many, at random)
 *   -q (consume by the batch call) -X property=value -v (the library's log)
 * Called by run.py. Built on Debian's headers, run with the newest librdkafka (tests/interop/judge/cache.py).
 */
#include <librdkafka/rdkafka.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define POOL 1024u   /* different payloads */
#define EXTRA_MAX 64

static struct {
    const char *mode, *bootstrap, *topic, *acks, *linger_ms, *codec, *payload;
    long count, rate, keys;
    size_t size;
    int idempotence, partitions, replication_factor, batch_call, verbose;
    double seconds_max;
    const char *extra[EXTRA_MAX];
    int extra_count;
} o = {.bootstrap = "", .topic = "bench", .acks = "1", .codec = "none", .payload = "rand", .count = 100000, .rate = 5000,
       .size = 1024, .partitions = 1, .replication_factor = 1, .seconds_max = 60};

static char *pool[POOL];
static atomic_long acked, failed;
static int last_error;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "loadgen %s: %s: %s\n", o.mode, what, why);
    exit(1);
}

static void *need(void *p)
{
    if (!p) die("memory", "none left");
    return p;
}

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static double seconds_since(uint64_t start_ns)
{
    return (double)(now_ns() - start_ns) / 1e9;
}

static uint64_t deadline_ns(void)
{
    return now_ns() + (uint64_t)(o.seconds_max * 1e9);
}

static double cpu_s(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static long rss_kb(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_maxrss;
}

/* ---- results ---- */

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void result(long records, double seconds, double cpu, uint32_t *latency_us, long latencies)
{
    double per_s = seconds > 0 ? (double)records / seconds : 0;
    printf("{\"mode\":\"%s\",\"records\":%ld,\"failed\":%ld,\"seconds\":%.6f,\"records_per_s\":%.0f,\"mb_per_s\":%.2f,"
           "\"cpu_ns_per_record\":%.1f,\"cpu_s\":%.3f,\"rss_kb\":%ld",
           o.mode, records, (long)failed, seconds, per_s, per_s * (double)o.size / 1e6, records ? cpu * 1e9 / (double)records : 0.0,
           cpu, rss_kb());
    if (failed) printf(",\"last_error\":\"%s\"", rd_kafka_err2name((rd_kafka_resp_err_t)last_error));
    if (latencies) {
        qsort(latency_us, (size_t)latencies, sizeof *latency_us, by_value);
        printf(",\"p50_us\":%u,\"p99_us\":%u,\"p999_us\":%u,\"max_us\":%u", latency_us[latencies / 2], latency_us[latencies * 99 / 100],
               latency_us[latencies * 999 / 1000], latency_us[latencies - 1]);
    }
    puts("}");
    fflush(stdout);
}

/* ---- payloads: noise, or text as an event log has it ---- */

static uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static void pool_fill(void)
{
    static const char *const events[] = {"login", "purchase", "page_view", "logout", "search", "add_to_cart"};
    static const char *const hosts[] = {"eu-west-1", "us-east-2", "ap-south-1", "sa-east-1"};
    uint64_t state = 88172645463325252u;
    int json = !strcmp(o.payload, "json");
    for (unsigned i = 0; i < POOL; i++) {
        char *p = pool[i] = need(malloc(o.size + 1024));
        for (size_t at = 0; at < o.size;) {
            uint64_t x = next_random(&state);
            if (json)
                at += (size_t)snprintf(p + at, 512,
                                       "{\"id\":%llu,\"user_id\":%u,\"event\":\"%s\",\"region\":\"%s\",\"session\":\"%08x%08x\","
                                       "\"amount\":%u.%02u,\"currency\":\"EUR\",\"ok\":%s,\"ts\":17%011llu},",
                                       (unsigned long long)(x >> 20), (unsigned)(x % 100000), events[x % 6], hosts[(x >> 9) % 4],
                                       (unsigned)(x >> 32), (unsigned)x, (unsigned)(x >> 11) % 1000, (unsigned)(x >> 17) % 100,
                                       x & 64 ? "true" : "false", (unsigned long long)(x % 100000000000u));
            else
                p[at++] = (char)(x >> 24);
        }
    }
}

/* ---- librdkafka handles ---- */

static void set(rd_kafka_conf_t *c, const char *name, const char *value)
{
    char why[512];
    if (rd_kafka_conf_set(c, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) die(name, why);
}

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    (void)rk;
    (void)opaque;
    if (m->err) {
        failed++;
        last_error = m->err;
        return;
    }
    atomic_fetch_add_explicit(&acked, 1, memory_order_relaxed);
    if (m->_private) *(uint64_t *)m->_private = now_ns();
}

static void on_log(const rd_kafka_t *rk, int level, const char *facility, const char *line)
{
    (void)rk;
    if (o.verbose) fprintf(stderr, "%d %s %s\n", level, facility, line);
}

static rd_kafka_conf_t *conf(void)
{
    rd_kafka_conf_t *c = rd_kafka_conf_new();
    set(c, "bootstrap.servers", o.bootstrap);
    rd_kafka_conf_set_log_cb(c, on_log);
    return c;
}

static void extra(rd_kafka_conf_t *c, int of_consumer)
{
    for (int i = 0; i < o.extra_count; i++) {
        char pair[256];
        snprintf(pair, sizeof pair, "%s", o.extra[i]);
        char *value = strchr(pair, '=');
        if (!value) die("-X", "not property=value");
        *value++ = 0;
        if (strcmp(o.mode, "e2e") || (!strncmp(pair, "fetch.", 6)) == of_consumer) set(c, pair, value);
    }
}

static rd_kafka_t *open_handle(rd_kafka_type_t type, rd_kafka_conf_t *c)
{
    char why[512];
    rd_kafka_t *rk = rd_kafka_new(type, c, why, sizeof why);
    if (!rk) die("rd_kafka_new", why);
    return rk;
}

static rd_kafka_t *producer(void)
{
    rd_kafka_conf_t *c = conf();
    set(c, "acks", o.acks);
    if (o.linger_ms) set(c, "linger.ms", o.linger_ms);
    set(c, "compression.codec", o.codec);
    if (o.idempotence) set(c, "enable.idempotence", "true");
    rd_kafka_conf_set_dr_msg_cb(c, on_report);
    extra(c, 0);
    return open_handle(RD_KAFKA_PRODUCER, c);
}

static rd_kafka_t *consumer(void)
{
    rd_kafka_conf_t *c = conf();
    set(c, "group.id", "loadgen");
    set(c, "enable.auto.commit", "false");
    set(c, "auto.offset.reset", "earliest");
    extra(c, 1);
    rd_kafka_t *rk = open_handle(RD_KAFKA_CONSUMER, c);
    rd_kafka_poll_set_consumer(rk);
    return rk;
}

static const struct rd_kafka_metadata *metadata(rd_kafka_t *rk, rd_kafka_topic_t *topic)
{
    const struct rd_kafka_metadata *md;
    rd_kafka_resp_err_t err = rd_kafka_metadata(rk, 0, topic, &md, 10000);
    if (err) die("metadata", rd_kafka_err2str(err));
    if (md->topic_cnt != 1 || !md->topics[0].partition_cnt) die("metadata", "the topic is not there");
    return md;
}

static void assign_all(rd_kafka_t *rk, int64_t offset)
{
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, o.topic, NULL);
    const struct rd_kafka_metadata *md = metadata(rk, topic);
    rd_kafka_topic_partition_list_t *l = rd_kafka_topic_partition_list_new(md->topics[0].partition_cnt);
    for (int i = 0; i < md->topics[0].partition_cnt; i++)
        rd_kafka_topic_partition_list_add(l, o.topic, md->topics[0].partitions[i].id)->offset = offset;
    rd_kafka_metadata_destroy(md);
    rd_kafka_topic_destroy(topic);
    rd_kafka_resp_err_t err = rd_kafka_assign(rk, l);
    if (err) die("assign", rd_kafka_err2str(err));
    rd_kafka_topic_partition_list_destroy(l);
}

/* ---- modes ---- */

static int send_one(rd_kafka_topic_t *topic, const void *payload, void *opaque)
{
    static uint64_t state = 1;
    char key[16];
    size_t n = 0;
    if (o.keys) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        n = (size_t)snprintf(key, sizeof key, "%010lu", (unsigned long)((state >> 33) % (unsigned long)o.keys));
    }
    return rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, (void *)(uintptr_t)payload, o.size, n ? key : NULL, n, opaque);
}

static void mode_produce(void)
{
    pool_fill();
    rd_kafka_t *rk = producer();
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, o.topic, NULL);
    rd_kafka_metadata_destroy(metadata(rk, topic));
    double cpu = cpu_s();
    uint64_t start = now_ns(), end = deadline_ns();
    long sent = 0;
    while (sent < o.count && now_ns() < end) {
        for (int i = 0; i < 128 && sent < o.count; i++, sent++)
            while (send_one(topic, pool[(unsigned long)sent % POOL], NULL) == -1) {
                if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(rd_kafka_last_error()));
                rd_kafka_poll(rk, 10);
            }
        rd_kafka_poll(rk, 0);
    }
    while (acked + failed < sent && now_ns() < end + 10000000000u) rd_kafka_poll(rk, 100);
    result(acked, seconds_since(start), cpu_s() - cpu, NULL, 0);
}

static void mode_sync(void)
{
    pool_fill();
    if (!o.linger_ms) o.linger_ms = "0";
    rd_kafka_t *rk = producer();
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, o.topic, NULL);
    uint32_t *latency = need(calloc((size_t)o.count + 1, sizeof *latency));
    long n = 0, warm = o.count / 10 > 500 ? 500 : o.count / 10;
    double cpu = 0;
    uint64_t start = 0, end = deadline_ns();
    for (long i = 0; i < o.count + warm && now_ns() < end; i++) {
        if (i == warm) {
            cpu = cpu_s();
            start = now_ns();
        }
        volatile uint64_t done = 0;
        uint64_t before = now_ns();
        long failed_before = failed;
        if (send_one(topic, pool[(unsigned long)i % POOL], (void *)(uintptr_t)&done) == -1)
            die("produce", rd_kafka_err2str(rd_kafka_last_error()));
        while (!done && failed == failed_before) rd_kafka_poll(rk, 100);
        if (done && i >= warm) latency[n++] = (uint32_t)((done - before) / 1000);
    }
    result(n, seconds_since(start), cpu_s() - cpu, latency, n);
}

static void mode_first(void)
{
    pool_fill();
    if (!o.linger_ms) o.linger_ms = "0";
    uint64_t start = now_ns(), end = deadline_ns();
    rd_kafka_t *rk = producer();
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, o.topic, NULL);
    rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, pool[0], o.size, NULL, 0, NULL);
    while (!acked && !failed && now_ns() < end) rd_kafka_poll(rk, 20);
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    printf("{\"mode\":\"first\",\"records\":%ld,\"seconds\":%.6f,\"at\":%.6f}\n", (long)acked, seconds_since(start),
           (double)ts.tv_sec + (double)ts.tv_nsec / 1e9);
    if (!acked) die("first", "no acknowledgement");
}

struct taken {
    long count;
    uint64_t bytes, first_ns;
    double cpu_at_first;
};

static void take(struct taken *t, rd_kafka_message_t *m)
{
    if (!m->err) {
        if (!t->count++) {
            t->first_ns = now_ns();
            t->cpu_at_first = cpu_s();
        }
        t->bytes += m->len;
    }
    rd_kafka_message_destroy(m);
}

static void mode_consume(void)
{
    static rd_kafka_message_t *batch[1000];
    struct taken t = {0};
    rd_kafka_t *rk = consumer();
    assign_all(rk, RD_KAFKA_OFFSET_BEGINNING);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
    uint64_t end = deadline_ns();
    while (t.count < o.count && now_ns() < end) {
        if (o.batch_call) {
            ssize_t n = rd_kafka_consume_batch_queue(queue, 100, batch, 1000);
            for (ssize_t i = 0; i < n; i++) take(&t, batch[i]);
            continue;
        }
        for (int i = 0; i < 64 && t.count < o.count; i++) {
            rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, 100);
            if (m) take(&t, m);
        }
    }
    if (t.count) o.size = (size_t)(t.bytes / (uint64_t)t.count);
    result(t.count, t.count ? seconds_since(t.first_ns) : 0, cpu_s() - t.cpu_at_first, NULL, 0);
    if (t.count < o.count) die("consume", "the topic has fewer records");
}

/* End to end: the consumer runs in its own thread. */
static struct {
    atomic_int ready, stop;
    uint32_t *latency;
    long n, warm;
} e2e;

static void *e2e_consumer(void *arg)
{
    (void)arg;
    rd_kafka_t *rk = consumer();
    assign_all(rk, RD_KAFKA_OFFSET_END);
    uint64_t start = now_ns();
    long seen = 0;
    while (!e2e.stop) {
        rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, 50);
        if (!e2e.ready && now_ns() - start > 1500000000u) e2e.ready = 1;
        if (!m) continue;
        if (!m->err && m->len >= sizeof(uint64_t)) {
            uint64_t sent_ns;
            memcpy(&sent_ns, m->payload, sizeof sent_ns);
            if (seen++ >= e2e.warm && e2e.n < o.count) e2e.latency[e2e.n++] = (uint32_t)((now_ns() - sent_ns) / 1000);
        }
        rd_kafka_message_destroy(m);
    }
    return NULL;
}

static void sleep_until(uint64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) {}
}

static void mode_e2e(void)
{
    if (o.size < sizeof(uint64_t)) die("-s", "a record must hold its time: 8 bytes at least");
    pool_fill();
    e2e.latency = need(calloc((size_t)o.count + 1, sizeof *e2e.latency));
    e2e.warm = o.rate;
    pthread_t thread;
    if (pthread_create(&thread, NULL, e2e_consumer, NULL)) die("thread", strerror(errno));
    while (!e2e.ready) usleep(10000);
    rd_kafka_t *rk = producer();
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, o.topic, NULL);
    char *payload = need(malloc(o.size));
    memcpy(payload, pool[0], o.size);
    double cpu = cpu_s();
    uint64_t start = now_ns(), step = 1000000000u / (uint64_t)o.rate, end = deadline_ns();
    long total = o.count + e2e.warm, sent = 0;
    for (; sent < total && now_ns() < end; sent++) {
        sleep_until(start + (uint64_t)sent * step);
        uint64_t now = now_ns();
        memcpy(payload, &now, sizeof now);
        if (send_one(topic, payload, NULL) == -1) failed++;
        if ((sent & 15) == 0) rd_kafka_poll(rk, 0);
    }
    double seconds = seconds_since(start);
    cpu = cpu_s() - cpu;
    rd_kafka_flush(rk, 5000);
    usleep(300000);
    e2e.stop = 1;
    pthread_join(thread, NULL);
    result(sent, seconds, cpu, e2e.latency, e2e.n);
}

/* ---- topics ---- */

static void topic_ready(rd_kafka_t *rk)
{
    for (int i = 0; i < 400; i++) { /* until every partition has a leader */
        const struct rd_kafka_metadata *md;
        rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, o.topic, NULL);
        int ready = 0;
        if (!rd_kafka_metadata(rk, 0, topic, &md, 5000)) {
            ready = md->topic_cnt == 1 && md->topics[0].partition_cnt == o.partitions && !md->topics[0].err;
            for (int p = 0; ready && p < o.partitions; p++) ready = md->topics[0].partitions[p].leader >= 0;
            rd_kafka_metadata_destroy(md);
        }
        rd_kafka_topic_destroy(topic);
        if (ready) return;
        usleep(50000);
    }
    die("create", "no leader after 20 s");
}

static void mode_topic(int create, int count, char **configs)
{
    char why[512];
    rd_kafka_conf_t *c = conf();
    extra(c, 0);
    rd_kafka_t *rk = open_handle(RD_KAFKA_PRODUCER, c);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_AdminOptions_t *options = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_ANY);
    rd_kafka_AdminOptions_set_request_timeout(options, 20000, why, sizeof why);
    if (create) {
        rd_kafka_NewTopic_t *t = rd_kafka_NewTopic_new(o.topic, o.partitions, o.replication_factor, why, sizeof why);
        for (int i = 0; i < count; i++) {
            char *value = strchr(configs[i], '=');
            if (!value) die(configs[i], "not name=value");
            *value++ = 0;
            rd_kafka_NewTopic_set_config(t, configs[i], value);
        }
        rd_kafka_CreateTopics(rk, &t, 1, options, queue);
    } else {
        rd_kafka_DeleteTopic_t *t = rd_kafka_DeleteTopic_new(o.topic);
        rd_kafka_DeleteTopics(rk, &t, 1, options, queue);
    }
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 25000);
    if (!event) die("admin", "no answer");
    if (rd_kafka_event_error(event)) die("admin", rd_kafka_event_error_string(event));
    size_t n = 0;
    const rd_kafka_topic_result_t **r = create ? rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &n)
                                               : rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &n);
    if (n != 1) die("admin", "no result");
    if (rd_kafka_topic_result_error(r[0])) die(o.topic, rd_kafka_err2str(rd_kafka_topic_result_error(r[0])));
    if (create) topic_ready(rk);
}

static int options(int argc, char **argv)
{
    int letter;
    optind = 2;
    while ((letter = getopt(argc, argv, "b:t:s:n:a:l:z:IP:T:X:r:N:R:k:qv")) != -1) switch (letter) {
        case 'b': o.bootstrap = optarg; break;
        case 't': o.topic = optarg; break;
        case 's': o.size = strtoul(optarg, NULL, 10); break;
        case 'n': o.count = atol(optarg); break;
        case 'a': o.acks = optarg; break;
        case 'l': o.linger_ms = optarg; break;
        case 'z': o.codec = optarg; break;
        case 'I': o.idempotence = 1; break;
        case 'P': o.payload = optarg; break;
        case 'T': o.seconds_max = atof(optarg); break;
        case 'X':
            if (o.extra_count == EXTRA_MAX) die("-X", "too many");
            o.extra[o.extra_count++] = optarg;
            break;
        case 'r': o.rate = atol(optarg); break;
        case 'N': o.partitions = atoi(optarg); break;
        case 'R': o.replication_factor = atoi(optarg); break;
        case 'k': o.keys = atol(optarg); break;
        case 'q': o.batch_call = 1; break;
        case 'v': o.verbose = 1; break;
        default: return -1;
        }
    return o.count > 0 && o.rate > 0 && o.partitions > 0 ? 0 : -1;
}

int main(int argc, char **argv)
{
    o.mode = argc < 2 ? "" : argv[1];
    signal(SIGPIPE, SIG_IGN);
    if (!strcmp(o.mode, "version")) {
        printf("librdkafka %s\n", rd_kafka_version_str());
        return 0;
    }
    if (argc < 2 || options(argc, argv)) {
        fprintf(stderr, "usage: loadgen produce|sync|first|consume|e2e|create|delete -b BOOTSTRAP -t TOPIC [options]\n");
        return 2;
    }
    if (!strcmp(o.mode, "produce")) mode_produce();
    else if (!strcmp(o.mode, "sync")) mode_sync();
    else if (!strcmp(o.mode, "first")) mode_first();
    else if (!strcmp(o.mode, "consume")) mode_consume();
    else if (!strcmp(o.mode, "e2e")) mode_e2e();
    else if (!strcmp(o.mode, "create")) mode_topic(1, argc - optind, argv + optind);
    else if (!strcmp(o.mode, "delete")) mode_topic(0, 0, NULL);
    else die("mode", "unknown");
    fflush(stdout);
    _exit(0); /* the library's tear-down is not part of the measurement */
}
