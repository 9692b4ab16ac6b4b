/* bench.c - kc bench produce|consume|latency: one measurement, one JSON object (or a line for people). tests/bench compares them with
 * peers. kc bench scenario: bench_scenario.c. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct bench {
    struct cli_session s;
    const char *topic, *acks, *codec, *payload;
    struct bench_pool pool;
    int64_t size, count, partitions, rf, rate, batch;
    bool json, one_by_one, end_to_end;
    int32_t topic_id;
};
#define SIZE_MAX_BENCH (1 << 30)
#define IDLE_US ((int64_t)10000000) /* a topic that gives nothing for so long has no more */
#define SLICE_US ((int64_t)200000)  /* so often a wait looks for Ctrl-C and log lines */

int64_t bench_cpu_ns(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000000LL + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000LL;
}

static long rss_kb(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_maxrss;
}

/* Random bytes, or text as an event log has it: the same payloads as the peers' load program. */
int bench_pool_make(struct bench_pool *pool, size_t size, bool json) {
    static const char *const names[] = {"login", "purchase", "page_view", "logout", "search", "add_to_cart"};
    static const char *const hosts[] = {"eu-west-1", "us-east-2", "ap-south-1", "sa-east-1"};
    pool->size = size;
    pool->stride = size + 1024;
    pool->p = malloc(pool->stride * BENCH_POOL);
    if (!pool->p) return cli_fail("bench", KC_NO_MEMORY, NULL);
    uint64_t x = 88172645463325252ull;
    for (size_t i = 0; i < BENCH_POOL; i++) {
        uint8_t *p = pool->p + i * pool->stride;
        for (size_t at = 0; at < size;) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            if (!json) {
                p[at++] = (uint8_t)(x >> 24);
            } else {
                at += (size_t)snprintf((char *)p + at, 512,
                                       "{\"id\":%llu,\"user_id\":%u,\"event\":\"%s\",\"region\":\"%s\",\"session\":\"%08x%08x\",\"amount\":"
                                       "%u.%02u,\"currency\":\"EUR\",\"ok\":%s,"
                                       "\"ts\":17%011llu},",
                                       (unsigned long long)(x >> 20), (unsigned)(x % 100000), names[x % 6], hosts[(x >> 9) % 4],
                                       (unsigned)(x >> 32), (unsigned)x, (unsigned)(x >> 11) % 1000, (unsigned)(x >> 17) % 100,
                                       x & 64 ? "true" : "false", (unsigned long long)(x % 100000000000ull));
            }
        }
    }
    return CLI_OK;
}

static int make_pool(struct bench *k) {
    return bench_pool_make(&k->pool, (size_t)k->size, k->payload && strcmp(k->payload, "rand") != 0);
}

static int ensure_topic(struct bench *k) {
    kc_topic_new item = {.name = k->topic, .partitions = (int32_t)k->partitions, .replication_factor = (int32_t)k->rf};
    kc_error *error = NULL;
    kc_op *op = NULL;
    kc_err err = kc_admin_create_topics_start(k->s.client, &item, sizeof item, 1, 0, 0, 0, &op, &error);
    if (err == KC_OK) err = cli_wait(&k->s, op, &error);
    kc_op_free(op);
    k->topic_id = kc_client_topic(k->s.client, k->topic);
    if (err == KC_OK || err == 36 /* TOPIC_ALREADY_EXISTS */) {
        kc_error_free(error);
        return CLI_OK;
    }
    return cli_fail("bench: topic", err, error);
}

static void result(const struct bench *k, const char *mode, uint64_t records, int64_t us, int64_t cpu, const uint32_t *latency, size_t n) {
    double s = (double)us / 1e6, per_s = s > 0 ? (double)records / s : 0;
    uint32_t p[3] = {0};
    if (n) {
        p[0] = latency[n / 2];
        p[1] = latency[n * 99 / 100];
        p[2] = latency[n * 999 / 1000];
    }
    if (k->json) {
        printf("{\"mode\":\"%s\",\"records\":%llu,\"seconds\":%.6f,\"records_per_s\":%.0f,\"mb_per_s\":%.2f,\"cpu_ns_per_record\":%.0f,"
               "\"rss_kb\":%ld",
               mode, (unsigned long long)records, s, per_s, per_s * (double)k->size / 1e6, records ? (double)cpu / (double)records : 0,
               rss_kb());
        if (n) printf(",\"p50_us\":%u,\"p99_us\":%u,\"p999_us\":%u", p[0], p[1], p[2]);
        printf("}\n");
        return;
    }
    printf("%s: %llu records in %.2f s: %.0f/s, %.1f MB/s, %.0f ns of CPU a record, %ld kB resident", mode, (unsigned long long)records, s,
           per_s, per_s * (double)k->size / 1e6, records ? (double)cpu / (double)records : 0, rss_kb());
    if (n) printf("; p50 %u us, p99 %u us, p999 %u us", p[0], p[1], p[2]);
    printf("\n");
}

static int interrupted(uint64_t records) {
    fprintf(stderr, "kc: bench: interrupted after %llu records: no figures\n", (unsigned long long)records);
    return CLI_FAILURE;
}

/* ---- produce ---- */

struct tally {
    uint64_t done, failed;
    kc_err last;
};

static void drain(kc_producer *p, struct tally *t, int64_t timeout_us) {
    kc_reports *reports = NULL;
    if (kc_producer_reports(p, &reports, timeout_us) != KC_OK) return;
    kc_report r[512];
    size_t n;
    while ((n = kc_reports_take(reports, r, sizeof *r, sizeof r / sizeof *r)) > 0) {
        for (size_t i = 0; i < n; i++) {
            if (r[i].err == KC_OK) continue;
            t->failed++;
            t->last = r[i].err;
        }
        t->done += n;
    }
    kc_reports_free(reports);
}

static kc_err warm_up(struct bench *k, kc_producer *p) { /* connections, metadata and producer id before the clock starts */
    kc_report report;
    kc_record r = {.topic = k->topic_id, .value = {k->pool.p, (size_t)k->size}};
    return kc_producer_send_wait(p, &r, &report, NULL);
}

static int bench_produce(struct bench *k) {
    kc_producer *p = NULL;
    if (make_pool(k) != CLI_OK || ensure_topic(k) != CLI_OK) return CLI_FAILURE;
    if (cli_producer_open(&k->s, "bench: producer", k->acks, k->codec, &p) != CLI_OK) return CLI_FAILURE;
    kc_err err = warm_up(k, p);
    if (err != KC_OK) {
        kc_producer_free(p);
        return cli_fail("bench: first record", err, NULL);
    }
    struct tally t = {0};
    struct cli_progress progress;
    cli_progress_start(&progress, "produced", (uint64_t)k->count);
    int64_t start = cli_now_us(), cpu = bench_cpu_ns();
    uint64_t sent = 0;
    while (sent < (uint64_t)k->count && !cli_interrupted) {
        kc_record r = {.topic = k->topic_id, .value = {k->pool.p + sent % BENCH_POOL * k->pool.stride, (size_t)k->size}};
        err = kc_producer_send(p, &r, 0);
        if (err == KC_QUEUE_FULL) {
            err = KC_OK;
            drain(p, &t, 100000);
            cli_session_logs(&k->s);
            continue;
        }
        if (err != KC_OK) break;
        if (++sent % 4096 == 0) {
            drain(p, &t, 0);
            cli_progress_show(&progress, t.done, t.done * (uint64_t)k->size);
        }
        cli_pace(start, sent, k->rate);
    }
    kc_op *op = NULL;
    if (kc_producer_flush_start(p, 0, &op, NULL) == KC_OK)
        while (t.done < sent && !cli_interrupted) {
            drain(p, &t, 100000);
            cli_session_logs(&k->s);
        }
    kc_op_free(op);
    int64_t us = cli_now_us() - start;
    cpu = bench_cpu_ns() - cpu;
    cli_progress_end(&progress);
    (void)kc_producer_close(p, 5000000, NULL);
    kc_producer_free(p);
    if (err != KC_OK) return cli_fail("bench: send", err, NULL);
    if (cli_interrupted) return interrupted(t.done);
    if (t.failed) {
        fprintf(stderr, "kc: bench: %llu records failed, the last with %s\n", (unsigned long long)t.failed, kc_err_name(t.last));
        return CLI_FAILURE;
    }
    result(k, "produce", t.done, us, cpu, NULL, 0);
    return CLI_OK;
}

/* ---- consume ---- */

static kc_consumer *open_consumer(struct bench *k, int64_t offset) {
    kc_consumer *c = NULL;
    kc_error *error = NULL;
    kc_cluster_info *info = NULL;
    kc_topic_info t = {0};
    k->topic_id = kc_client_topic(k->s.client, k->topic);
    kc_err err = cli_describe_topic(&k->s, k->topic, &info, &t, &error);
    if (err == KC_OK) err = kc_consumer_new(k->s.client, NULL, KC_PROCESSED_EXPLICIT, &c, &error);
    kc_topic_partition *parts = calloc(t.partition_count + 1, sizeof *parts);
    if (err == KC_OK && !parts) err = KC_NO_MEMORY;
    if (err == KC_OK) {
        for (size_t i = 0; i < t.partition_count; i++)
            parts[i] = (kc_topic_partition){.topic = k->topic_id, .partition = (int32_t)i, .offset = offset, .leader_epoch = -1};
        err = kc_consumer_assign(c, parts, sizeof *parts, t.partition_count, &error);
    }
    free(parts);
    kc_cluster_info_free(info);
    if (err == KC_OK) return c;
    cli_fail("bench: consumer", err, error);
    kc_consumer_free(c);
    return NULL;
}

/* Nothing came for a slice: false when it is time to give up. */
static bool wait_on(struct bench *k, int64_t *idle_us) {
    cli_session_logs(&k->s);
    *idle_us += SLICE_US;
    return *idle_us < IDLE_US;
}

static void show_event_error(const kc_event *e) {
    if (kc_event_kind(e) == KC_EVENT_ERROR) fprintf(stderr, "kc: bench: %s\n", kc_error_message(kc_event_error(e)));
}

static uint64_t take_batches(struct bench *k, kc_consumer *c, int64_t *start, int64_t *cpu, uint64_t *sum) {
    uint64_t n = 0;
    int64_t idle_us = 0;
    while (n < (uint64_t)k->count && !cli_interrupted) {
        kc_event *e = NULL;
        kc_err err = kc_consumer_poll(c, &e, SLICE_US);
        if (err == KC_TIMED_OUT && wait_on(k, &idle_us)) continue;
        if (err != KC_OK) break;
        show_event_error(e);
        if (kc_event_kind(e) == KC_EVENT_RECORDS) {
            idle_us = 0;
            if (!*start) *start = cli_now_us(), *cpu = bench_cpu_ns();
            size_t size, count = kc_event_count(e);
            const kc_view *v = kc_event_views(e);
            const uint8_t *span = kc_event_span(e, &size);
            for (size_t i = 0; i < count; i++) *sum += v[i].value_size > 0 ? span[v[i].value_at] : 0; /* each record is looked at */
            n += count;
        }
        kc_event_free(e);
    }
    return n;
}

static uint64_t take_singly(struct bench *k, kc_consumer *c, int64_t *start, int64_t *cpu, uint64_t *sum) {
    uint64_t n = 0;
    int64_t idle_us = 0;
    while (n < (uint64_t)k->count && !cli_interrupted) {
        kc_event *e = NULL;
        kc_message m;
        kc_err err = kc_consumer_poll_one(c, &m, &e, SLICE_US);
        if (err == KC_TIMED_OUT && wait_on(k, &idle_us)) continue;
        if (err != KC_OK) break;
        if (e) {
            show_event_error(e);
            kc_event_free(e);
            continue;
        }
        idle_us = 0;
        if (!*start) *start = cli_now_us(), *cpu = bench_cpu_ns();
        *sum += m.value.size ? *(const uint8_t *)m.value.p : 0;
        n++;
    }
    return n;
}

static int bench_consume(struct bench *k) {
    kc_consumer *c = open_consumer(k, KC_OFFSET_BEGINNING);
    if (!c) return CLI_FAILURE;
    int64_t start = 0, cpu = 0;
    volatile uint64_t sink; /* keeps the reading from being optimised away */
    uint64_t sum = 0;
    uint64_t n = k->one_by_one ? take_singly(k, c, &start, &cpu, &sum) : take_batches(k, c, &start, &cpu, &sum);
    sink = sum;
    (void)sink;
    int64_t us = cli_now_us() - start;
    cpu = bench_cpu_ns() - cpu;
    (void)kc_consumer_close(c, 2000000, NULL);
    kc_consumer_free(c);
    if (cli_interrupted) return interrupted(n);
    if (n < (uint64_t)k->count) {
        fprintf(stderr, "kc: bench: only %llu of %lld records came, and then none for %d s: has the topic more? --count N takes fewer\n",
                (unsigned long long)n, (long long)k->count, (int)(IDLE_US / 1000000));
        return CLI_FAILURE;
    }
    result(k, k->one_by_one ? "consume one by one" : "consume", n, us, cpu, NULL, 0);
    return CLI_OK;
}

/* ---- latency ---- */

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* One record in flight, each waited for. */
static size_t round_trips(struct bench *k, kc_producer *p, uint32_t *latency, kc_err *err) {
    int64_t start = cli_now_us();
    size_t i = 0;
    for (; i < (size_t)k->count && !cli_interrupted; i++) {
        kc_record r = {.topic = k->topic_id, .value = {k->pool.p + i % BENCH_POOL * k->pool.stride, (size_t)k->size}};
        kc_report report;
        cli_pace(start, i, k->rate);
        int64_t t = cli_now_us();
        if ((*err = kc_producer_send_wait(p, &r, &report, NULL)) != KC_OK) return i;
        latency[i] = (uint32_t)(cli_now_us() - t);
    }
    return i;
}

/* Records carry the time they were handed over; a consumer in the same process reads them. Producer and consumer take turns in this thread:
 * while nothing is due, the consumer's poll waits. */
static size_t end_to_end(struct bench *k, kc_producer *p, uint32_t *latency, kc_err *err) {
    kc_consumer *c = open_consumer(k, KC_OFFSET_END);
    if (!c) {
        *err = KC_INVALID;
        return 0;
    }
    kc_event *e = NULL;
    (void)kc_consumer_poll(c, &e, 500000); /* positions are looked up before the first record */
    kc_event_free(e);
    struct tally t = {0};
    size_t got = 0;
    int64_t start = cli_now_us(), idle_us = 0;
    for (uint64_t sent = 0; got < (size_t)k->count && !cli_interrupted && *err == KC_OK;) {
        int64_t now = cli_now_us(), due = start + (int64_t)((double)sent * 1e6 / (double)k->rate);
        if (sent < (uint64_t)k->count && now >= due) {
            uint8_t *payload = k->pool.p + sent % BENCH_POOL * k->pool.stride;
            memcpy(payload, &now, sizeof now);
            kc_record r = {.topic = k->topic_id, .value = {payload, (size_t)k->size}};
            *err = kc_producer_send(p, &r, 0);
            sent += *err == KC_OK;
            if (sent % 256 == 0) drain(p, &t, 0);
            continue;
        }
        int64_t wait = sent < (uint64_t)k->count ? due - now : SLICE_US;
        if (kc_consumer_poll(c, &e, wait < SLICE_US ? wait : SLICE_US) != KC_OK) {
            if (sent < (uint64_t)k->count || wait_on(k, &idle_us)) continue;
            break;
        }
        show_event_error(e);
        idle_us = 0;
        size_t size, count = kc_event_kind(e) == KC_EVENT_RECORDS ? kc_event_count(e) : 0;
        const kc_view *v = kc_event_views(e);
        const uint8_t *span = kc_event_span(e, &size);
        now = cli_now_us();
        for (size_t i = 0; i < count && got < (size_t)k->count; i++) {
            int64_t at;
            memcpy(&at, span + v[i].value_at, sizeof at);
            latency[got++] = (uint32_t)(now - at);
        }
        kc_event_free(e);
    }
    (void)kc_consumer_close(c, 1000000, NULL);
    kc_consumer_free(c);
    return got;
}

static int bench_latency(struct bench *k) {
    kc_producer *p = NULL;
    if (make_pool(k) != CLI_OK || ensure_topic(k) != CLI_OK) return CLI_FAILURE;
    if (cli_producer_open(&k->s, "bench: producer", k->acks, k->codec, &p) != CLI_OK) return CLI_FAILURE;
    uint32_t *latency = calloc((size_t)k->count, sizeof *latency);
    kc_err err = latency ? KC_OK : KC_NO_MEMORY;
    for (int i = 0; i < 100 && err == KC_OK; i++) err = warm_up(k, p);
    int64_t start = cli_now_us(), cpu = bench_cpu_ns();
    size_t n = err != KC_OK ? 0 : k->end_to_end ? end_to_end(k, p, latency, &err) : round_trips(k, p, latency, &err);
    int64_t us = cli_now_us() - start;
    cpu = bench_cpu_ns() - cpu;
    (void)kc_producer_close(p, 2000000, NULL);
    kc_producer_free(p);
    int rc = CLI_OK;
    if (cli_interrupted) {
        rc = interrupted(n);
    } else if (err != KC_OK) {
        rc = cli_fail("bench: latency", err, NULL);
    } else if (n < (size_t)k->count) {
        fprintf(stderr, "kc: bench: only %zu of %lld records came back\n", n, (long long)k->count);
        rc = CLI_FAILURE;
    } else {
        qsort(latency, n, sizeof *latency, by_value);
        result(k, k->end_to_end ? "end to end" : "latency", n, us, cpu, latency, n);
    }
    free(latency);
    return rc;
}

static int run_bench(const char *name, const char *summary, const char *examples, int (*run)(struct bench *), int argc, char **argv) {
    struct bench k = {.size = 1024, .count = 100000, .partitions = 1, .rf = 1};
    const struct cli_option all[] = {
        CLI_SESSION_OPTIONS(&k.s),
        {'t', "topic", "TOPIC", "the topic; made when it does not exist", CLI_TEXT, &k.topic},
        {0, "size", "BYTES", "value size (default 1024)", CLI_INDEX, &k.size},
        {0, "count", "N", "records (default 100000)", CLI_TOTAL, &k.count},
        {0, "acks", "0|1|-1", "acknowledgements to wait for", CLI_TEXT, &k.acks},
        {0, "partitions", "N", "of the topic when it is made", CLI_INDEX, &k.partitions},
        {0, "rf", "N", "its replication factor", CLI_INDEX, &k.rf},
        {0, "rate", "N", "records a second (default: as fast as it goes)", CLI_TOTAL, &k.rate},
        {0, "payload", "rand|json", "what values look like", CLI_TEXT, &k.payload},
        {'z', "compression", "CODEC", "none, gzip, snappy, lz4, zstd", CLI_TEXT, &k.codec},
        {0, "one", NULL, "one record a call", CLI_FLAG, &k.one_by_one},
        {0, "e2e", NULL, "from send to poll, at --rate (default 5000)", CLI_FLAG, &k.end_to_end},
        {0, "json", NULL, "print one JSON object", CLI_FLAG, &k.json},
    };
    struct cli_option options[sizeof all / sizeof *all];
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) { /* only what has an effect, so that no word is ignored */
        if (run != bench_consume && all[i].out == &k.one_by_one) continue;
        if (run != bench_latency && all[i].out == &k.end_to_end) continue;
        if (run == bench_consume && (all[i].out == &k.rate || all[i].out == &k.payload || all[i].out == &k.codec)) continue;
        options[n++] = all[i];
    }
    const struct cli_command c = {name, "", summary, NULL, 0, 0, options, n, examples};
    struct cli_operands none;
    int rc = cli_parse(&c, argc, argv, &none);
    if (rc >= 0) return rc;
    if (!k.topic) return cli_usage_error(&c, "needs -t TOPIC");
    if (k.size > SIZE_MAX_BENCH) return cli_usage_error(&c, "--size is at most %d", SIZE_MAX_BENCH);
    if (k.rf > INT16_MAX) return cli_usage_error(&c, "--rf is at most %d", INT16_MAX);
    if (k.payload && strcmp(k.payload, "rand") != 0 && strcmp(k.payload, "json") != 0)
        return cli_usage_error(&c, "--payload takes rand or json, not '%s'", k.payload);
    if (k.end_to_end && k.size < 8) return cli_usage_error(&c, "--e2e needs --size 8 or more: the record carries its time");
    if (k.end_to_end && k.rate <= 0) k.rate = 5000;
    cli_catch_signals(NULL, NULL);
    rc = cli_session_open(&k.s);
    if (rc == CLI_OK) rc = run(&k);
    cli_session_close(&k.s);
    free(k.pool.p);
    return rc;
}

static int produce_command(int argc, char **argv) {
    return run_bench("bench produce", "Produces as fast as it can.", "  kc bench produce -t bench --size 100 --count 1000000\n", bench_produce, argc, argv);
}
static int consume_command(int argc, char **argv) {
    return run_bench("bench consume", "Consumes a topic from its beginning.",
                     "  kc bench consume -t bench --size 100 --count 1000000\n", bench_consume, argc, argv);
}
static int latency_command(int argc, char **argv) {
    return run_bench("bench latency", "One record at a time, or end to end.",
                     "  kc bench latency -t bench --count 10000\n  kc bench latency -t bench --e2e --rate 1000 --count 2000\n", bench_latency, argc, argv);
}

int cmd_bench(int argc, char **argv) {
    static const struct cli_sub subs[] = {
        {"produce", produce_command, "records a second in"},
        {"consume", consume_command, "records a second out"},
        {"latency", latency_command, "round trips, or end to end"},
        {"scenario", cmd_bench_scenario, "the published benchmark, beside its figures"},
    };
    return cli_dispatch("kc bench", subs, sizeof subs / sizeof *subs, argc, argv);
}
