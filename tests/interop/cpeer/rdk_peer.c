/* rdk_peer - librdkafka as a peer of the interoperability tests, on its public API.
 *
 * Jobs and answers: job.h. Built twice by judge/cache.py: on Debian's librdkafka, and on the newest one.
 */
#include "job.h"

#include <librdkafka/rdkafka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct produce_run {
    rd_kafka_t *rk;
    const char *topic;
    FILE *out;
    long reported, failed;
};

/* ---- configuration ---- */

static int set(rd_kafka_conf_t *c, const char *name, const char *value)
{
    char why[512];
    return rd_kafka_conf_set(c, name, value, why, sizeof why) == RD_KAFKA_CONF_OK ? 0 : job_fail(name, why);
}

static void quiet(const rd_kafka_t *rk, int level, const char *facility, const char *line)
{
    (void)rk;
    if (getenv("KC_VERBOSE")) fprintf(stderr, "%d %s %s\n", level, facility, line);
}

static rd_kafka_conf_t *conf_of(const json_t *job)
{
    rd_kafka_conf_t *c = rd_kafka_conf_new();
    const char *name;
    json_t *value;
    rd_kafka_conf_set_log_cb(c, quiet);
    set(c, "bootstrap.servers", job_bootstrap);
    set(c, "message.max.bytes", RECORD_SIZE_MAX);
    json_object_foreach(json_object_get(job, "conf"), name, value) set(c, name, json_string_value(value));
    return c;
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *c)
{
    char why[512];
    rd_kafka_t *rk = job_failed() ? NULL : rd_kafka_new(type, c, why, sizeof why);
    if (!rk) {
        job_fail("rd_kafka_new", why);
        rd_kafka_conf_destroy(c);
    }
    return rk;
}

static rd_kafka_t *producer(const json_t *job, void (*report)(rd_kafka_t *, const rd_kafka_message_t *, void *), void *opaque)
{
    char acks[24];
    rd_kafka_conf_t *c = conf_of(job);
    snprintf(acks, sizeof acks, "%ld", job_number(job, "acks", -1));
    set(c, "acks", acks);
    set(c, "compression.codec", job_text(job, "codec", "none"));
    set(c, "enable.idempotence", job_is(job, "idempotence") ? "true" : "false");
    rd_kafka_conf_set_dr_msg_cb(c, report);
    rd_kafka_conf_set_opaque(c, opaque);
    return client(RD_KAFKA_PRODUCER, c);
}

/* ---- produce ---- */

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    struct produce_run *run = opaque;
    (void)rk;
    run->reported++;
    if (m->err) {
        run->failed++;
        job_fail("delivery", rd_kafka_err2str(m->err));
        return;
    }
    fprintf(run->out, "{\"i\":%ld,\"partition\":%d,\"offset\":%lld}\n", (long)(intptr_t)m->_private, (int)m->partition,
            (long long)m->offset);
}

static rd_kafka_headers_t *headers_of(const json_t *record)
{
    const json_t *pairs = json_object_get(record, "headers");
    size_t n = json_array_size(pairs);
    rd_kafka_headers_t *h = rd_kafka_headers_new(n);
    for (size_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(pairs, i), *name = json_array_get(pair, 0);
        struct bytes v = job_unbase64(json_array_get(pair, 1));
        rd_kafka_header_add(h, json_string_value(name), (ssize_t)json_string_length(name), v.data, (ssize_t)v.size);
        free(v.data);
    }
    return h;
}

static int send_one(void *ctx, const json_t *r, long index)
{
    struct produce_run *run = ctx;
    struct bytes key = job_unbase64(json_object_get(r, "key")), value = job_unbase64(json_object_get(r, "value"));
    rd_kafka_headers_t *h = headers_of(r);
    rd_kafka_resp_err_t err;
    while ((err = rd_kafka_producev(
                run->rk, RD_KAFKA_V_TOPIC(run->topic), RD_KAFKA_V_PARTITION((int32_t)job_number(r, "partition", 0)),
                RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key.data, key.size),
                RD_KAFKA_V_VALUE(value.data, value.size), RD_KAFKA_V_TIMESTAMP((int64_t)job_number(r, "timestamp", 0)),
                RD_KAFKA_V_HEADERS(h), RD_KAFKA_V_OPAQUE((void *)(intptr_t)index), RD_KAFKA_V_END)) ==
           RD_KAFKA_RESP_ERR__QUEUE_FULL)
        rd_kafka_poll(run->rk, 10);
    if (err) rd_kafka_headers_destroy(h); /* not taken over */
    free(key.data);
    free(value.data);
    if (index % 100 == 0) rd_kafka_poll(run->rk, 0);
    return err ? job_fail("produce", rd_kafka_err2str(err)) : 0;
}

static long produce(const json_t *job)
{
    struct produce_run run = {.topic = job_text(job, "topic", ""), .out = fopen(job_text(job, "out", "/dev/null"), "w")};
    if (!run.out) return job_fail("out", strerror(errno));
    run.rk = producer(job, on_report, &run);
    long sent = run.rk ? job_each(job, send_one, &run) : -1;
    uint64_t end = job_now_us() + WAIT_US_MAX;
    while (sent > 0 && run.reported < sent && job_now_us() < end) rd_kafka_poll(run.rk, 50);
    if (sent >= 0 && run.reported < sent) sent = job_fail("produce", "reports are missing after 60 s");
    if (run.rk) rd_kafka_destroy(run.rk);
    fclose(run.out);
    return run.failed ? -1 : sent;
}

/* ---- consume ---- */

static void put_message(FILE *out, const rd_kafka_message_t *m)
{
    rd_kafka_headers_t *h = NULL;
    const char *name;
    const void *value;
    size_t size;
    job_put_record(out, rd_kafka_topic_name(m->rkt), m->partition, m->offset, rd_kafka_message_timestamp(m, NULL), m->key,
                   m->key_len, m->payload, m->len);
    rd_kafka_message_headers(m, &h);
    for (size_t i = 0; h && !rd_kafka_header_get_all(h, i, &name, &value, &size); i++)
        job_put_header(out, i, name, strlen(name), value, size);
    fputs("]}\n", out);
}

/* Until each assigned partition has told its end once. */
static long read_all(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *assigned, FILE *out)
{
    long count = 0;
    uint64_t quiet_end = job_now_us() + WAIT_US_MAX / 2;
    for (int ended = 0; ended < assigned->cnt && count >= 0;) {
        rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, 200);
        if (!m) {
            if (job_now_us() > quiet_end) count = job_fail("consume", "nothing came for 30 s, and no end of partition");
            continue;
        }
        quiet_end = job_now_us() + WAIT_US_MAX / 2;
        if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            rd_kafka_topic_partition_t *p =
                rd_kafka_topic_partition_list_find(assigned, rd_kafka_topic_name(m->rkt), m->partition);
            if (p && !p->opaque) ended++;
            if (p) p->opaque = assigned;
        } else if (m->err && m->err != RD_KAFKA_RESP_ERR__TRANSPORT && m->err != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
            count = job_fail("consume", rd_kafka_message_errstr(m));
        } else if (!m->err) {
            put_message(out, m);
            count++;
        }
        rd_kafka_message_destroy(m);
    }
    return count;
}

static rd_kafka_topic_partition_list_t *whole(json_t *topics)
{
    rd_kafka_topic_partition_list_t *l = rd_kafka_topic_partition_list_new(16);
    const char *topic;
    json_t *partitions;
    json_object_foreach(topics, topic, partitions)
        for (int32_t p = 0; p < json_integer_value(partitions); p++)
            rd_kafka_topic_partition_list_add(l, topic, p)->offset = RD_KAFKA_OFFSET_BEGINNING;
    return l;
}

static long consume(const json_t *job)
{
    long count = -1;
    FILE *out = fopen(job_text(job, "out", "/dev/null"), "w");
    if (!out) return job_fail("out", strerror(errno));
    rd_kafka_conf_t *c = conf_of(job);
    set(c, "group.id", "rdk-peer");
    set(c, "enable.auto.commit", "false");
    set(c, "auto.offset.reset", "error");
    set(c, "enable.partition.eof", "true");
    set(c, "check.crcs", "true");
    set(c, "fetch.wait.max.ms", "20");
    rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, c);
    if (rk) {
        rd_kafka_poll_set_consumer(rk);
        rd_kafka_topic_partition_list_t *assigned = whole(json_object_get(job, "topics"));
        rd_kafka_resp_err_t err = rd_kafka_assign(rk, assigned);
        count = err ? job_fail("assign", rd_kafka_err2str(err)) : read_all(rk, assigned, out);
        rd_kafka_topic_partition_list_destroy(assigned);
        rd_kafka_assign(rk, NULL);
        rd_kafka_destroy(rk);
    }
    fclose(out);
    return count;
}

/* ---- load: numbered records at a rate, every acknowledgement logged ---- */

static void on_load_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    FILE *log = opaque;
    (void)rk;
    if (m->err) job_load_failed++;
    else job_load_acked++;
    fprintf(log, "%s %d %lld %llu\n", m->err ? "fail" : "ack", (int)m->partition, (long long)m->offset,
            (unsigned long long)(uintptr_t)m->_private);
}

static long load(const json_t *job)
{
    const char *topic = job_text(job, "topic", "");
    long partitions = job_number(job, "partitions", 1), rate = job_number(job, "rate", 2000), sent = 0;
    char buf[1024];
    FILE *log = fopen(job_text(job, "log", "/dev/null"), "w");
    if (!log) return job_fail("log", strerror(errno));
    job_load_acked = job_load_failed = 0;
    rd_kafka_t *rk = producer(job, on_load_report, log);
    uint64_t start = job_now_us();
    while (rk && !job_stop_asked()) {
        for (long due = (long)((job_now_us() - start) / 1000u) * rate / 1000; sent < due; sent++) {
            size_t size = job_load_value(buf, sizeof buf, (uint64_t)sent);
            rd_kafka_resp_err_t err = rd_kafka_producev(
                rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION((int32_t)(sent % partitions)),
                RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_VALUE(buf, size),
                RD_KAFKA_V_OPAQUE((void *)(uintptr_t)sent), RD_KAFKA_V_END);
            if (err) break; /* queue full while the broker is away: later */
        }
        rd_kafka_poll(rk, 2);
    }
    if (rk) {
        rd_kafka_flush(rk, 60000);
        rd_kafka_destroy(rk);
    }
    fclose(log);
    if (rk && job_load_acked + job_load_failed != sent) return job_fail("load", "not every record has its report");
    return rk ? sent : -1;
}

int main(int argc, char **argv)
{
    static const struct job_op ops[] = {{"produce", produce}, {"consume", consume}, {"load", load}, {NULL, NULL}};
    char version[64];
    snprintf(version, sizeof version, "librdkafka %s", rd_kafka_version_str());
    return job_main(argc, argv, version, ops);
}
