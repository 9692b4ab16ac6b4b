/* bench_load.c - what the scenarios of kc bench share of topics and producers, and one round of one cell: as many records as asked for, as fast as it goes.
 *
 * Called by bench_scenario and bench_kills. The client's other settings are those of the producer that was published: batches of 16 kB, no linger, five
 * requests under way, records without a key to one partition after another (bench_scenario.c sets them).
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLICE_US = 100000, LOOK_US = 20000, DELETE_US = 10000000, PARTITIONS_MAX = 64, INVALID_RF = 38 };

/* ---- Topics ---- */

static kc_err create(struct bench_run *r, kc_topic_new *item, kc_error **error) {
    kc_op *op = NULL;
    kc_err err = kc_admin_create_topics_start(r->s.client, item, sizeof *item, 1, 0, 0, 0, &op, error);
    if (err == KC_OK) err = cli_wait(&r->s, op, error);
    kc_op_free(op);
    return err;
}

int bench_topic_make(struct bench_run *r, const struct bench_cell *cell, struct bench_topic *t) {
    char min_isr[16];
    snprintf(min_isr, sizeof min_isr, "%d", (int)cell->min_isr);
    kc_config_pair pair = {.name = "min.insync.replicas", .value = min_isr};
    *t = (struct bench_topic){.id = 0};
    snprintf(t->name, sizeof t->name, "kc-bench-%d-%ld-%u", r->scenario->number, (long)getpid(), ++r->topics);
    kc_topic_new item = {.name = t->name, .partitions = cell->partitions, .replication_factor = cell->rf, .configs = &pair, .config_count = 1};
    int64_t until = cli_now_us() + BENCH_SETTLE_US;
    for (;;) {
        kc_error *error = NULL;
        kc_err err = create(r, &item, &error);
        if (err == KC_OK) break;
        bool again = err == INVALID_RF /* one that was killed is not back yet */ && r->own && !cli_interrupted && cli_now_us() < until;
        if (!again) return cli_fail("bench: topic", err, error);
        kc_error_free(error);
        cli_pause(SLICE_US);
    }
    t->id = kc_client_topic(r->s.client, t->name);
    return bench_topic_settle(r, t, cell->partitions, cell->rf, BENCH_SETTLE_US, NULL);
}

void bench_topic_delete(struct bench_run *r, const struct bench_topic *t) {
    if (!*t->name) return;
    kc_admin_item item = {.name = t->name};
    if (r->own && cli_interrupted) return; /* it goes with its cluster */
    (void)kc_admin_delete_topics(r->s.client, &item, sizeof item, 1, DELETE_US, NULL);
}

/* NULL: it is settled; else what is missing. */
static const char *unsettled(const kc_cluster_info *info, int32_t partitions, int32_t in_sync, int64_t *ends) {
    kc_topic_info t;
    if (kc_cluster_info_topic(info, 0, &t) != KC_OK || t.err != KC_OK || t.partition_count != (size_t)partitions) return "not all partitions are there";
    for (int32_t i = 0; i < partitions; i++) {
        kc_partition_info p;
        if (kc_cluster_info_partition(info, 0, (size_t)i, &p) != KC_OK || p.leader < 0) return "a partition has no leader";
        if (p.isr_count < (size_t)in_sync) return "a partition has too few replicas in sync";
        if (p.err != KC_OK || p.log_end < 0) return "a partition's leader does not answer";
        if (p.high_watermark < p.log_end) return "not all that is stored is committed";
        if (ends && p.partition >= 0 && p.partition < partitions) ends[p.partition] = p.high_watermark;
    }
    return NULL;
}

int bench_topic_settle(struct bench_run *r, const struct bench_topic *t, int32_t partitions, int32_t in_sync, int64_t limit_us, int64_t *ends) {
    const char *missing = "";
    for (int64_t until = cli_now_us() + limit_us;;) {
        kc_cluster_info *info = NULL;
        kc_error *error = NULL;
        kc_err err = cli_describe(&r->s, t->name, &info, &error);
        missing = err == KC_OK ? unsettled(info, partitions, in_sync, ends) : "the cluster does not answer";
        kc_cluster_info_free(info);
        bool give_up = cli_interrupted || cli_now_us() > until;
        if (err != KC_OK && give_up) return cli_fail("bench: topic", err, error);
        kc_error_free(error);
        if (err == KC_OK && !missing) return CLI_OK;
        if (give_up) break;
        cli_session_logs(&r->s);
        cli_pause(LOOK_US);
    }
    if (cli_interrupted) return cli_fail("bench", KC_CANCELLED, NULL);
    cli_progress_clear();
    fprintf(stderr, "kc: bench: topic %s is not as it should be after %lld s: %s\n  kc topic describe and kc cluster tell more\n", t->name,
            (long long)(limit_us / 1000000), missing);
    return CLI_FAILURE;
}

/* ---- Producers ---- */

int bench_producer_open(struct bench_run *r, int32_t acks, const char *retries, bool idempotent, enum bench_mode mode, kc_producer **p) {
    char text[16];
    kc_error *error = NULL;
    kc_config *config = kc_config_new();
    snprintf(text, sizeof text, "%d", (int)acks);
    kc_err err = config ? kc_config_set(config, "acks", text, &error) : KC_NO_MEMORY;
    if (err == KC_OK) err = kc_config_set(config, "retries", retries, &error);
    if (err == KC_OK) err = kc_config_set(config, "enable.idempotence", idempotent ? "true" : "false", &error);
    if (err == KC_OK) err = kc_config_set(config, "producer.type", mode == BENCH_ONE_BY_ONE ? "sync" : "async", &error);
    if (err == KC_OK) err = kc_producer_new(r->s.client, config, p, &error);
    kc_config_free(config);
    if (err == KC_OK) return CLI_OK;
    cli_fail("bench: producer", err, error);
    return err == KC_CONFIG ? CLI_USAGE : CLI_FAILURE;
}

int bench_warm_up(kc_producer *p, const struct bench_topic *t, int32_t partitions) {
    int64_t until = cli_now_us() + BENCH_SETTLE_US;
    for (int32_t i = 0; i < partitions;) {
        kc_report report;
        kc_error *error = NULL;
        kc_record record = {.topic = t->id, .partition = i, .flags = KC_HAS_PARTITION, .value = {"warm", 4}};
        kc_err err = kc_producer_send_wait(p, &record, &report, &error);
        i += err == KC_OK;
        if (err != KC_OK && (cli_interrupted || !kc_err_retriable(err) || cli_now_us() > until)) return cli_fail("bench: first record", err, error);
        kc_error_free(error);
        if (err != KC_OK) cli_pause(LOOK_US);
    }
    return CLI_OK;
}

kc_record bench_record(struct bench_run *r, const struct bench_topic *t, uint64_t i) {
    uint8_t *payload = r->pool.p + i % BENCH_POOL * r->pool.stride;
    memcpy(payload, &i, sizeof i);
    return (kc_record){.topic = t->id, .value = {payload, r->pool.size}, .opaque = i};
}

/* ---- One round ---- */

struct round {
    struct bench_run *r;
    struct bench_result *out;
    struct bench_topic topic;
    kc_producer *producer;
    uint64_t sent, done, failed;
    int64_t start, end;
};

static bool enough(const struct round *d) {
    if (cli_interrupted) return true;
    return d->r->records > 0 ? d->sent >= (uint64_t)d->r->records : d->sent % 64 == 0 && cli_now_us() - d->start >= d->r->seconds * 1000000;
}

static void show(struct round *d) {
    struct bench_run *r = d->r;
    double share = r->records > 0 ? (double)d->done / (double)r->records : (double)(cli_now_us() - d->start) / (double)(r->seconds * 1000000);
    bench_progress(r, "", share > 1 ? 1 : share);
}

static void took(struct round *d, kc_err err) {
    d->done++;
    if (err == KC_OK) return;
    d->failed++;
    bench_errors_note(&d->out->errors, err, true, true);
}

static void drain(struct round *d, int64_t timeout_us) {
    kc_reports *reports = NULL;
    kc_report v[512];
    if (kc_producer_reports(d->producer, &reports, timeout_us) != KC_OK) return;
    for (size_t n; (n = kc_reports_take(reports, v, sizeof *v, sizeof v / sizeof *v)) > 0;)
        for (size_t i = 0; i < n; i++) took(d, v[i].err);
    kc_reports_free(reports);
}

static kc_err pipelined(struct round *d) {
    while (!enough(d)) {
        kc_record record = bench_record(d->r, &d->topic, d->sent);
        kc_err err = kc_producer_send(d->producer, &record, 0);
        if (err != KC_OK && err != KC_QUEUE_FULL) return err;
        d->sent += err == KC_OK;
        if (err == KC_QUEUE_FULL || d->sent % 4096 == 0) {
            drain(d, err == KC_OK ? 0 : SLICE_US);
            cli_session_logs(&d->r->s);
            show(d);
        }
    }
    kc_op *op = NULL;
    kc_err err = kc_producer_flush_start(d->producer, 0, &op, NULL);
    while (err == KC_OK && d->done < d->sent && !cli_interrupted) drain(d, SLICE_US);
    kc_op_free(op);
    return err;
}

static kc_err one_by_one(struct round *d) {
    while (!enough(d)) {
        kc_record record = bench_record(d->r, &d->topic, d->sent++);
        kc_report report;
        took(d, kc_producer_send_wait(d->producer, &record, &report, NULL));
        if (d->sent % 64 == 0) {
            cli_session_logs(&d->r->s);
            show(d);
        }
    }
    return KC_OK;
}

static void tell_failed(const struct round *d) {
    if (d->failed == 0) return;
    cli_progress_clear();
    fprintf(stderr, "kc: bench: %llu of %llu records failed:", (unsigned long long)d->failed, (unsigned long long)d->done);
    for (size_t i = 0; i < d->out->errors.count; i++) fprintf(stderr, "%s %s", i ? "," : "", kc_err_name(d->out->errors.v[i].code));
    fprintf(stderr, "\n");
}

/* What arrived, the records that warmed up not counted. With acks 0 nobody waited for that. */
static int count_stored(struct round *d, const struct bench_cell *cell) {
    int64_t ends[PARTITIONS_MAX] = {0}, limit_us = d->failed ? BENCH_SETTLE_US / 6 : BENCH_SETTLE_US;
    for (int64_t until = cli_now_us() + BENCH_SETTLE_US / 4;;) {
        int rc = bench_topic_settle(d->r, &d->topic, cell->partitions, 1, limit_us, ends);
        if (rc != CLI_OK) return rc;
        uint64_t stored = 0;
        for (int32_t i = 0; i < cell->partitions; i++) stored += (uint64_t)ends[i];
        stored -= (uint64_t)cell->partitions < stored ? (uint64_t)cell->partitions : stored;
        if (stored >= d->sent - d->failed || cell->acks != 0 || cli_now_us() > until || cli_interrupted) {
            d->out->stored += stored;
            return CLI_OK;
        }
        cli_pause(LOOK_US);
    }
}

static int measure(struct round *d, enum bench_mode mode, const struct bench_cell *cell) {
    struct bench_run *r = d->r;
    int rc = bench_topic_make(r, cell, &d->topic);
    if (rc == CLI_OK) rc = bench_producer_open(r, cell->acks, "0", false, mode, &d->producer);
    if (rc == CLI_OK) rc = bench_warm_up(d->producer, &d->topic, cell->partitions);
    if (rc != CLI_OK) return rc;
    int64_t cpu = bench_cpu_ns();
    d->start = cli_now_us();
    kc_err err = mode == BENCH_PIPELINED ? pipelined(d) : one_by_one(d);
    d->end = cli_now_us();
    d->out->cpu_ns += bench_cpu_ns() - cpu;
    if (err != KC_OK || cli_interrupted) return cli_fail("bench: send", err, NULL);
    kc_producer_stats stats = {0};
    (void)kc_producer_close(d->producer, 5000000, NULL);
    (void)kc_producer_stats_get(d->producer, &stats, sizeof stats);
    d->out->batches += stats.batches_sent > (uint64_t)cell->partitions ? stats.batches_sent - (uint64_t)cell->partitions : 0; /* those that warmed up */
    tell_failed(d);
    return count_stored(d, cell);
}

int bench_load(struct bench_run *r, enum bench_mode mode, size_t cell) {
    struct round d = {.r = r, .out = &r->results[mode][cell]};
    int rc = measure(&d, mode, &r->scenario->cells[cell]);
    kc_producer_free(d.producer);
    bench_topic_delete(r, &d.topic);
    if (rc != CLI_OK) return rc;
    double s = (double)(d.end - d.start) / 1e6;
    d.out->rate[d.out->rounds++] = s > 0 ? (double)(d.done - d.failed) / s : 0;
    d.out->records += d.done;
    d.out->failed += d.failed;
    bench_result_settle(d.out);
    return CLI_OK;
}
