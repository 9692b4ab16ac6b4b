/* kc_peer - libkclient as a peer of the interoperability tests, on its public API and the shared library.
 *
 * Jobs and answers: job.h. With "conf":{"client.thread":"none"} it runs the client's loop itself. Built by judge/cache.py.
 */
#include "job.h"

#include <kclient/consumer.h>
#include <kclient/kclient.h>
#include <kclient/producer.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEADERS_MAX 64
#define CLOSE_US_MAX 10000000

struct run {
    kc_client *client;
    kc_producer *producer;
    int own_loop;
    int32_t topic;
    FILE *out;
    long reported, failed;
    int is_load;
};

static int fail_with(const char *what, kc_err code, kc_error *e)
{
    char why[768];
    snprintf(why, sizeof why, "%s: %s", kc_err_name(code), e ? kc_error_message(e) : kc_err_text(code));
    kc_error_free(e);
    return job_fail(what, why);
}

/* ---- configuration ---- */

static int set(kc_config *c, const char *name, const char *value)
{
    kc_error *e = NULL;
    kc_err err = kc_config_set(c, name, value, &e);
    return err ? fail_with(name, err, e) : 0;
}

static kc_config *conf_of(const json_t *job)
{
    kc_config *c = job_need(kc_config_new());
    const char *name;
    json_t *value;
    set(c, "bootstrap.servers", job_bootstrap);
    json_object_foreach(json_object_get(job, "conf"), name, value) set(c, name, json_string_value(value));
    return c;
}

static kc_client *client_of(const kc_config *c, struct run *run)
{
    kc_error *e = NULL;
    kc_client *client = NULL;
    const char *thread = kc_config_get(c, "client.thread");
    run->own_loop = thread && !strcmp(thread, "none");
    kc_err err = job_failed() ? KC_CONFIG : kc_client_new(c, &client, &e);
    if (err) fail_with("kc_client_new", err, e);
    return client;
}

/* Waits: with a thread inside in the call itself, without one by turning the loop. */
static int64_t wait_us(struct run *run, int64_t timeout_us)
{
    if (!run->own_loop) return timeout_us;
    kc_client_run_once(run->client, timeout_us, 0);
    return 0;
}

/* ---- produce ---- */

static int producer_start(const json_t *job, struct run *run)
{
    char acks[24];
    kc_error *e = NULL;
    kc_config *c = conf_of(job);
    snprintf(acks, sizeof acks, "%ld", job_number(job, "acks", -1));
    set(c, "acks", acks);
    set(c, "compression.type", job_text(job, "codec", "none"));
    set(c, "enable.idempotence", job_is(job, "idempotence") ? "true" : "false");
    set(c, "max.request.size", RECORD_SIZE_MAX);
    run->client = client_of(c, run);
    kc_err err = run->client ? kc_producer_new(run->client, c, &run->producer, &e) : KC_CONFIG;
    kc_config_free(c);
    if (err) return fail_with("kc_producer_new", err, e);
    run->topic = kc_client_topic(run->client, job_text(job, "topic", ""));
    return run->topic ? 0 : job_fail("kc_client_topic", "no id");
}

static void producer_end(struct run *run)
{
    kc_error *e = NULL;
    kc_err err = run->producer ? kc_producer_close(run->producer, CLOSE_US_MAX, &e) : KC_OK;
    if (err) fail_with("kc_producer_close", err, e);
    kc_producer_free(run->producer);
    if (run->client) kc_client_close(run->client, CLOSE_US_MAX, NULL);
    kc_client_free(run->client);
}

static void put_report(struct run *run, const kc_report *r, const kc_error *e)
{
    run->reported++;
    if (run->is_load) {
        fprintf(run->out, "%s %d %lld %llu\n", r->err ? "fail" : "ack", (int)r->partition, (long long)r->offset,
                (unsigned long long)r->opaque);
    } else if (!r->err) {
        fprintf(run->out, "{\"i\":%llu,\"partition\":%d,\"offset\":%lld,\"flags\":%u}\n", (unsigned long long)r->opaque,
                (int)r->partition, (long long)r->offset, (unsigned)r->flags);
    } else {
        job_fail("delivery", e ? kc_error_message(e) : kc_err_name(r->err));
    }
    run->failed += r->err != 0;
}

static void drain(struct run *run, int64_t timeout_us)
{
    kc_reports *reports = NULL;
    kc_report r;
    if (kc_producer_reports(run->producer, &reports, wait_us(run, timeout_us))) return;
    while (kc_reports_next(reports, &r)) put_report(run, &r, kc_reports_error(reports));
    kc_reports_free(reports);
}

static int send_one(void *ctx, const json_t *r, long index)
{
    struct run *run = ctx;
    struct bytes key = job_unbase64(json_object_get(r, "key")), value = job_unbase64(json_object_get(r, "value"));
    struct bytes header_values[HEADERS_MAX];
    kc_header headers[HEADERS_MAX];
    const json_t *pairs = json_object_get(r, "headers");
    size_t n = json_array_size(pairs);
    kc_err err;
    if (n > HEADERS_MAX) return job_fail("record", "more headers than this peer holds");
    for (size_t i = 0; i < n; i++) {
        const json_t *name = json_array_get(json_array_get(pairs, i), 0);
        header_values[i] = job_unbase64(json_array_get(json_array_get(pairs, i), 1));
        headers[i] = (kc_header){.name = json_string_value(name), .name_size = json_string_length(name),
                                 .value = {header_values[i].data, header_values[i].size}};
    }
    kc_record record = {.topic = run->topic, .partition = (int32_t)job_number(r, "partition", 0),
                        .flags = KC_HAS_PARTITION | KC_HAS_TIMESTAMP, .header_count = (uint32_t)n,
                        .key = {key.data, key.size}, .value = {value.data, value.size}, .headers = headers,
                        .timestamp_ms = job_number(r, "timestamp", 0), .opaque = (uint64_t)index};
    while ((err = kc_producer_send(run->producer, &record, 0)) == KC_QUEUE_FULL) drain(run, 10000);
    for (size_t i = 0; i < n; i++) free(header_values[i].data);
    free(key.data);
    free(value.data);
    if (index % 100 == 0) drain(run, 0);
    return err ? fail_with("kc_producer_send", err, NULL) : 0;
}

static long produce(const json_t *job)
{
    struct run run = {.out = fopen(job_text(job, "out", "/dev/null"), "w")};
    if (!run.out) return job_fail("out", strerror(errno));
    long sent = producer_start(job, &run) ? -1 : job_each(job, send_one, &run);
    uint64_t end = job_now_us() + WAIT_US_MAX;
    while (sent > 0 && run.reported < sent && job_now_us() < end) drain(&run, 50000);
    if (sent >= 0 && run.reported < sent) sent = job_fail("produce", "reports are missing after 60 s");
    producer_end(&run);
    fclose(run.out);
    return job_failed() ? -1 : sent;
}

/* ---- consume ---- */

static kc_topic_partition *whole(kc_client *client, json_t *topics, int64_t from, size_t *count)
{
    kc_topic_partition *parts = NULL;
    size_t n = 0;
    const char *topic;
    json_t *partitions;
    json_object_foreach(topics, topic, partitions)
    {
        size_t more = (size_t)json_integer_value(partitions);
        parts = job_need(realloc(parts, (n + more) * sizeof *parts));
        for (size_t p = 0; p < more; p++)
            parts[n++] = (kc_topic_partition){.topic = kc_client_topic(client, topic), .partition = (int32_t)p,
                                              .offset = from, .leader_epoch = -1};
    }
    *count = n;
    return parts;
}

static long put_records(struct run *run, const kc_event *event)
{
    size_t n = kc_event_count(event);
    kc_header headers[HEADERS_MAX];
    for (size_t i = 0; i < n; i++) {
        kc_message m;
        kc_err err = kc_event_message(event, i, &m);
        if (err) return fail_with("kc_event_message", err, NULL);
        size_t count = kc_event_headers(event, i, headers, sizeof headers[0], HEADERS_MAX);
        if (count != m.header_count || count > HEADERS_MAX) return job_fail("consume", "header counts differ");
        job_put_record(run->out, kc_client_topic_name(run->client, m.topic), m.partition, m.offset, m.timestamp_ms, m.key.p,
                       m.key.size, m.value.p, m.value.size);
        for (size_t h = 0; h < count; h++)
            job_put_header(run->out, h, headers[h].name, headers[h].name_size, headers[h].value.p, headers[h].value.size);
        fputs("]}\n", run->out);
    }
    return (long)n;
}

static size_t note_end(const kc_event *event, kc_topic_partition *parts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (parts[i].topic == kc_event_topic(event) && parts[i].partition == kc_event_partition(event) && !parts[i].err) {
            parts[i].err = 1; /* seen */
            return 1;
        }
    return 0;
}

static long read_all(struct run *run, kc_consumer *consumer, kc_topic_partition *parts, size_t n)
{
    long count = 0;
    uint64_t quiet_end = job_now_us() + WAIT_US_MAX / 2;
    for (size_t ended = 0; ended < n && !job_failed();) {
        kc_event *event = NULL;
        kc_err err = kc_consumer_poll(consumer, &event, wait_us(run, 200000));
        if (err == KC_TIMED_OUT) {
            if (job_now_us() > quiet_end) job_fail("consume", "nothing came for 30 s, and no end of partition");
            continue;
        }
        if (err) return fail_with("kc_consumer_poll", err, NULL);
        quiet_end = job_now_us() + WAIT_US_MAX / 2;
        if (kc_event_kind(event) == KC_EVENT_RECORDS) count += put_records(run, event);
        if (kc_event_kind(event) == KC_EVENT_PARTITION_END) ended += note_end(event, parts, n);
        if (kc_event_kind(event) == KC_EVENT_ERROR) job_fail("consume", kc_error_message(kc_event_error(event)));
        kc_event_free(event);
    }
    return job_failed() ? -1 : count;
}

/* Reads on, whatever happens to the topic, until the next line comes. */
static long follow_all(struct run *run, kc_consumer *consumer)
{
    long count = 0;
    while (!job_failed() && !job_stop_asked()) {
        kc_event *event = NULL;
        kc_err err = kc_consumer_poll(consumer, &event, wait_us(run, 50000));
        if (err == KC_TIMED_OUT) continue;
        if (err) return fail_with("kc_consumer_poll", err, NULL);
        if (kc_event_kind(event) == KC_EVENT_RECORDS) count += put_records(run, event);
        if (kc_event_kind(event) == KC_EVENT_ERROR)
            fprintf(run->out, "{\"error\":\"%s\",\"partition\":%d}\n", kc_error_name(kc_event_error(event)), (int)kc_event_partition(event));
        kc_event_free(event);
        fflush(run->out);
    }
    return job_failed() ? -1 : count;
}

static long consume_or_follow(const json_t *job, int following)
{
    struct run run = {.out = fopen(job_text(job, "out", "/dev/null"), "w")};
    kc_consumer *consumer = NULL;
    kc_error *e = NULL;
    size_t n = 0;
    long count = -1;
    if (!run.out) return job_fail("out", strerror(errno));
    kc_config *c = conf_of(job);
    if (!following) set(c, "enable.partition.eof", "true");
    if (!following) set(c, "auto.offset.reset", "error");
    set(c, "fetch.wait.max.ms", "20");
    run.client = client_of(c, &run);
    int64_t from = strcmp(job_text(job, "from", "beginning"), "committed") == 0 ? KC_OFFSET_COMMITTED : KC_OFFSET_BEGINNING;
    kc_topic_partition *parts = run.client ? whole(run.client, json_object_get(job, "topics"), from, &n) : NULL;
    kc_err err = run.client ? kc_consumer_new(run.client, c, KC_PROCESSED_BY_POLL, &consumer, &e) : KC_CONFIG;
    if (!err) err = kc_consumer_assign(consumer, parts, sizeof *parts, n, &e);
    if (err) fail_with("consumer", err, e);
    else count = following ? follow_all(&run, consumer) : read_all(&run, consumer, parts, n);
    e = NULL;
    err = consumer ? kc_consumer_close(consumer, CLOSE_US_MAX, &e) : KC_OK;
    if (err) fail_with("kc_consumer_close", err, e);
    kc_consumer_free(consumer);
    if (run.client) kc_client_close(run.client, CLOSE_US_MAX, NULL);
    kc_client_free(run.client);
    kc_config_free(c);
    free(parts);
    fclose(run.out);
    return job_failed() ? -1 : count;
}

static long consume(const json_t *job) { return consume_or_follow(job, 0); }
static long follow(const json_t *job) { return consume_or_follow(job, 1); }

/* ---- commit: "offsets": {partition: [offset, metadata]} of "topic", then all that is committed of it, a line each ---- */

static long put_committed(struct run *run, kc_consumer *consumer, long partitions)
{
    kc_topic_partition parts[64];
    kc_offset got[64];
    kc_op *op = NULL;
    kc_error *e = NULL;
    size_t n = (size_t)(partitions < 64 ? partitions : 64);
    for (size_t i = 0; i < n; i++) parts[i] = (kc_topic_partition){.topic = run->topic, .partition = (int32_t)i};
    kc_err err = kc_consumer_committed_start(consumer, parts, sizeof parts[0], n, 0, &op, &e);
    if (!err) err = kc_op_wait(op, WAIT_US_MAX, &e);
    if (err) fail_with("committed", err, e);
    n = err ? 0 : kc_op_result_committed(op, got, sizeof got[0], 64);
    for (size_t i = 0; i < n; i++)
        fprintf(run->out, "{\"partition\":%d,\"offset\":%lld,\"metadata\":\"%.*s\"}\n", (int)got[i].partition, (long long)got[i].offset,
                (int)got[i].metadata.size, got[i].metadata.size ? (const char *)got[i].metadata.p : "");
    kc_op_free(op);
    return err ? -1 : (long)n;
}

static kc_err commit_all(kc_consumer *consumer, int32_t topic, json_t *offsets, kc_error **e)
{
    kc_offset at[64];
    size_t n = 0;
    const char *partition;
    json_t *value;
    json_object_foreach(offsets, partition, value)
    {
        const char *metadata = json_string_value(json_array_get(value, 1));
        if (n == 64) break;
        at[n++] = (kc_offset){.topic = topic, .partition = atoi(partition), .offset = json_integer_value(json_array_get(value, 0)),
                              .metadata = {metadata, metadata ? strlen(metadata) : 0}};
    }
    return n ? kc_consumer_commit(consumer, at, sizeof at[0], n, 0, e) : KC_OK;
}

static long commit(const json_t *job)
{
    struct run run = {.out = fopen(job_text(job, "out", "/dev/null"), "w")};
    kc_consumer *consumer = NULL;
    kc_error *e = NULL;
    long count = -1;
    if (!run.out) return job_fail("out", strerror(errno));
    kc_config *c = conf_of(job);
    run.client = client_of(c, &run);
    kc_err err = run.client ? kc_consumer_new(run.client, c, KC_PROCESSED_EXPLICIT, &consumer, &e) : KC_CONFIG;
    if (!err) run.topic = kc_client_topic(run.client, job_text(job, "topic", ""));
    if (!err) err = commit_all(consumer, run.topic, json_object_get(job, "offsets"), &e);
    if (err) fail_with("commit", err, e);
    else count = put_committed(&run, consumer, job_number(job, "partitions", 1));
    if (consumer) kc_consumer_close(consumer, CLOSE_US_MAX, NULL);
    kc_consumer_free(consumer);
    if (run.client) kc_client_close(run.client, CLOSE_US_MAX, NULL);
    kc_client_free(run.client);
    kc_config_free(c);
    fclose(run.out);
    return job_failed() ? -1 : count;
}

/* ---- load: numbered records at a rate, every acknowledgement logged ---- */

static long load(const json_t *job)
{
    struct run run = {.out = fopen(job_text(job, "log", "/dev/null"), "w"), .is_load = 1};
    long partitions = job_number(job, "partitions", 1), rate = job_number(job, "rate", 2000), sent = 0;
    char buf[1024];
    if (!run.out) return job_fail("log", strerror(errno));
    int up = !producer_start(job, &run);
    uint64_t start = job_now_us();
    while (up && !job_stop_asked()) {
        for (long due = (long)((job_now_us() - start) / 1000u) * rate / 1000; sent < due; sent++) {
            kc_record record = {.topic = run.topic, .partition = (int32_t)(sent % partitions), .flags = KC_HAS_PARTITION,
                                .value = {buf, job_load_value(buf, sizeof buf, (uint64_t)sent)}, .opaque = (uint64_t)sent};
            if (kc_producer_send(run.producer, &record, 0)) break; /* queue full while the broker is away: later */
        }
        drain(&run, 2000);
    }
    uint64_t end = job_now_us() + WAIT_US_MAX;
    while (up && run.reported < sent && job_now_us() < end) drain(&run, 50000);
    producer_end(&run);
    fclose(run.out);
    job_load_failed = run.failed;
    job_load_acked = run.reported - run.failed;
    if (up && run.reported != sent) return job_fail("load", "not every record has its report");
    return up ? sent : -1;
}

int main(int argc, char **argv)
{
    static const struct job_op ops[] = {{"produce", produce}, {"consume", consume}, {"follow", follow}, {"commit", commit}, {"load", load}, {NULL, NULL}};
    char version[64];
    snprintf(version, sizeof version, "libkclient %s", kc_version());
    return job_main(argc, argv, version, ops);
}
