/* exactly_once.c - each order is processed once: none is lost, none is done twice. On the way in each order has an id, made when the order was made and kept
 * with it (an outbox), and the topic stores an id once (message.guid.dedup=true). On the way out the position is stored in one transaction with the result.
 *
 *   examples/guarantees.sh exactly_once            plays it, with both halves killed again and again, and counts
 *
 * send:     sends what the outbox has not marked as sent, under its ids; marks what is stored. Started again it sends the rest again, under the same ids.
 * process:  reads from the position in its database on; stores results and position together. Started again it goes on exactly there.
 * --no-ids sends without ids: what was stored and not marked is stored twice. --note-apart stores the position in a transaction of its own: what was done
 * before it is done twice.
 *
 * Usage: exactly_once send HOST:PORT TOPIC FOLDER COUNT [--no-ids] | exactly_once process HOST:PORT TOPIC FOLDER [--note-apart]
 */
#include <kclient/admin.h>
#include <kclient/consumer.h>
#include <kclient/kclient.h>
#include <kclient/producer.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK 20     /* so many go together */
#define WORK_US 300  /* what an order takes to make, and to process */

static bool no_ids, note_apart;

static int fail(const char *what, kc_error *error) {
    fprintf(stderr, "%s%s%s\n", what, error ? ": " : "", error ? kc_error_message(error) : "");
    kc_error_free(error);
    return 1;
}

static kc_client *client_to(const char *brokers, kc_error **error) {
    kc_client *client = NULL;
    kc_config *config = kc_config_new();
    if (kc_config_set(config, "bootstrap.servers", brokers, error) == KC_OK) (void)kc_client_new(config, &client, error);
    kc_config_free(config);
    return client;
}

/* Without a broker there is nothing to wait for. */
static int look_for_brokers(kc_client *client, const char *brokers) {
    kc_error *error = NULL;
    kc_cluster_info *info = NULL;
    kc_err err = kc_admin_describe(client, NULL, 10 * 1000000, &info, &error);
    kc_cluster_info_free(info);
    return err == KC_OK ? 0 : fail(brokers, error);
}

/* Whoever plays this program waits for the word before killing it, so that there is something to disturb. */
static void begin_work(void) {
    static bool told;
    if (!told) puts("working");
    told = true;
    fflush(stdout);
}

/* ---- The database ---- */

static int run(sqlite3 *db, const char *sql) {
    char *why = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &why) == SQLITE_OK) return 0;
    fprintf(stderr, "%s: %s\n", sql, why ? why : "failed");
    sqlite3_free(why);
    return 1;
}

static sqlite3 *open_database(const char *folder, const char *name, const char *tables) {
    char path[512];
    sqlite3 *db = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (sqlite3_open(path, &db) != SQLITE_OK || run(db, "PRAGMA journal_mode=WAL") || run(db, tables)) {
        fprintf(stderr, "%s: cannot be opened\n", path);
        sqlite3_close(db);
        return NULL;
    }
    return db;
}

/* One statement with up to two numbers and one blob, in the order ?1 ?2 ?3. 0: done. */
static int put(sqlite3 *db, const char *sql, int64_t a, int64_t b, const void *blob, int size) {
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) return fail(sqlite3_errmsg(db), NULL);
    sqlite3_bind_int64(s, 1, a);
    sqlite3_bind_int64(s, 2, b);
    if (blob) sqlite3_bind_blob(s, 3, blob, size, SQLITE_STATIC);
    int rc = sqlite3_step(s) == SQLITE_DONE ? 0 : fail(sqlite3_errmsg(db), NULL);
    sqlite3_finalize(s);
    return rc;
}

/* ---- The way in ---- */

/* The orders, each with its id, as an application would enter them in the same transaction that makes them. */
static int fill_outbox(sqlite3 *db, long count) {
    if (run(db, "BEGIN")) return 1;
    for (long n = 1; n <= count; n++) {
        uint8_t id[16];
        if (kc_guid_make(id) != KC_OK) return 1;
        if (put(db, "INSERT OR IGNORE INTO outbox (number, sent, id) VALUES (?1, ?2, ?3)", n, 0, id, sizeof id)) return 1;
    }
    return run(db, "COMMIT");
}

/* 0: all of them are stored, once. */
static int all_stored(kc_producer *producer, long count) {
    while (count > 0) {
        kc_reports *reports = NULL;
        kc_report r;
        if (kc_producer_reports(producer, &reports, KC_FOREVER) != KC_OK) return 1;
        int rc = 0;
        for (; rc == 0 && kc_reports_next(reports, &r); count--) {
            if (r.err != KC_OK) rc = fail(kc_error_message(kc_reports_error(reports)), NULL);
            else if (!no_ids && !(r.flags & KC_REPORT_DEDUPED)) rc = fail("this topic does not look ids up: it needs message.guid.dedup=true", NULL);
        }
        kc_reports_free(reports);
        if (rc) return rc;
    }
    return 0;
}

/* The next unsent ones; -1: an error, else how many. */
static long send_chunk(sqlite3 *db, kc_producer *producer, int32_t topic) {
    sqlite3_stmt *s = NULL;
    long n = 0, numbers[CHUNK];
    begin_work();
    int rc = sqlite3_prepare_v2(db, "SELECT number, id FROM outbox WHERE sent = 0 ORDER BY number LIMIT ?1", -1, &s, NULL) != SQLITE_OK;
    if (rc == 0) sqlite3_bind_int64(s, 1, CHUNK);
    while (rc == 0 && sqlite3_step(s) == SQLITE_ROW) {
        char text[32];
        numbers[n] = sqlite3_column_int64(s, 0);
        usleep(WORK_US);
        kc_record record = {.topic = topic, .value = {text, (size_t)snprintf(text, sizeof text, "%ld", numbers[n])}};
        if (!no_ids) record.guid = sqlite3_column_blob(s, 1); /* 16 bytes */
        rc = kc_producer_send(producer, &record, KC_FOREVER) != KC_OK;
        n++;
    }
    sqlite3_finalize(s);
    if (rc == 0) rc = all_stored(producer, n);
    if (rc == 0) rc = run(db, "BEGIN");
    for (long i = 0; i < n && rc == 0; i++) rc = put(db, "UPDATE outbox SET sent = ?2 WHERE number = ?1", numbers[i], 1, NULL, 0);
    if (rc == 0) rc = run(db, "COMMIT");
    return rc == 0 ? n : -1;
}

static int send_all(kc_client *client, const char *topic, const char *folder, long count) {
    kc_error *error = NULL;
    kc_producer *producer = NULL;
    kc_config *config = kc_config_new();
    int rc = 1;
    sqlite3 *db = open_database(folder, "orders.db", "CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY, sent INTEGER, id BLOB)");
    if (db && fill_outbox(db, count) == 0) {
        if (kc_config_set(config, "linger.ms", "0", &error) != KC_OK || kc_producer_new(client, config, &producer, &error) != KC_OK) {
            rc = fail("producer", error);
        } else {
            long n;
            while ((n = send_chunk(db, producer, kc_client_topic(client, topic))) > 0) {
            }
            rc = n < 0;
        }
    }
    kc_producer_free(producer);
    kc_config_free(config);
    sqlite3_close(db);
    return rc;
}

/* ---- The way out ---- */

static int store_position(sqlite3 *db, int32_t partition, int64_t next) {
    return put(db, "INSERT OR REPLACE INTO positions (partition, next) VALUES (?1, ?2)", partition, next, NULL, 0);
}

/* Some records and the position behind them: both, or neither. */
static int take_chunk(sqlite3 *db, const kc_event *event, size_t from, size_t to) {
    kc_message m = {0};
    begin_work();
    int rc = note_apart ? 0 : run(db, "BEGIN");
    for (size_t i = from; i < to && rc == 0 && kc_event_message(event, i, &m) == KC_OK; i++) {
        char text[32];
        usleep(WORK_US);
        snprintf(text, sizeof text, "%.*s", (int)m.value.size, (const char *)m.value.p);
        rc = put(db, "INSERT INTO results (number, at) VALUES (?1, ?2)", atol(text), m.offset, NULL, 0);
    }
    if (rc == 0) rc = store_position(db, m.partition, m.offset + 1);
    return rc == 0 && !note_apart ? run(db, "COMMIT") : rc;
}

static int take_all(sqlite3 *db, kc_consumer *consumer, size_t partitions) {
    uint64_t ended = 0; /* a bit a partition */
    int rc = 0;
    while (rc == 0 && (size_t)__builtin_popcountll(ended) < partitions) {
        kc_event *event = NULL;
        kc_err err = kc_consumer_poll(consumer, &event, 10 * 1000000);
        if (err == KC_TIMED_OUT) continue;
        if (err != KC_OK) return fail(kc_err_text(err), NULL);
        int32_t kind = kc_event_kind(event);
        if (kind == KC_EVENT_PARTITION_END) ended |= (uint64_t)1 << (kc_event_partition(event) & 63);
        for (size_t i = 0; kind == KC_EVENT_RECORDS && i < kc_event_count(event) && rc == 0; i += CHUNK)
            rc = take_chunk(db, event, i, i + CHUNK < kc_event_count(event) ? i + CHUNK : kc_event_count(event));
        if (kind == KC_EVENT_ERROR) fprintf(stderr, "%s\n", kc_error_message(kc_event_error(event)));
        kc_event_free(event);
    }
    return rc;
}

static int64_t position_of(sqlite3 *db, int32_t partition) {
    sqlite3_stmt *s = NULL;
    int64_t next = KC_OFFSET_BEGINNING;
    if (sqlite3_prepare_v2(db, "SELECT next FROM positions WHERE partition = ?1", -1, &s, NULL) != SQLITE_OK) return next;
    sqlite3_bind_int64(s, 1, partition);
    if (sqlite3_step(s) == SQLITE_ROW) next = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    return next;
}

/* All partitions, each from where the database says. */
static int assign(kc_client *client, sqlite3 *db, kc_consumer *consumer, const char *topic, size_t *count) {
    kc_topic_partition parts[64];
    kc_error *error = NULL;
    kc_cluster_info *info = NULL;
    kc_topic_info t = {0};
    if (kc_admin_describe(client, topic, 0, &info, &error) != KC_OK) return fail("describe", error);
    kc_err err = kc_cluster_info_topic(info, 0, &t);
    if (err == KC_OK) err = t.err;
    kc_cluster_info_free(info);
    if (err != KC_OK || t.partition_count > 64) return fail(err ? kc_err_text(err) : "more than 64 partitions", NULL);
    *count = t.partition_count;
    for (size_t i = 0; i < *count; i++)
        parts[i] = (kc_topic_partition){
            .topic = kc_client_topic(client, topic), .partition = (int32_t)i, .offset = position_of(db, (int32_t)i), .leader_epoch = -1};
    return kc_consumer_assign(consumer, parts, sizeof *parts, *count, &error) == KC_OK ? 0 : fail("assign", error);
}

static int process_all(kc_client *client, const char *topic, const char *folder) {
    kc_error *error = NULL;
    kc_consumer *consumer = NULL;
    kc_config *config = kc_config_new();
    size_t partitions = 0;
    int rc = 1;
    sqlite3 *db = open_database(folder, "results.db", "CREATE TABLE IF NOT EXISTS results (number INTEGER, at INTEGER);"
                                                      "CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, next INTEGER)");
    if (!db) rc = 1;
    else if (kc_config_set(config, "enable.partition.eof", "true", &error) != KC_OK || kc_config_set(config, "auto.offset.reset", "error", &error) != KC_OK ||
             kc_consumer_new(client, config, KC_PROCESSED_EXPLICIT, &consumer, &error) != KC_OK)
        rc = fail("consumer", error);
    else if (assign(client, db, consumer, topic, &partitions) == 0)
        rc = take_all(db, consumer, partitions);
    kc_consumer_free(consumer);
    kc_config_free(config);
    sqlite3_close(db);
    return rc;
}

int main(int argc, char **argv) {
    for (; argc > 1; argc--) {
        if (!strcmp(argv[argc - 1], "--no-ids")) no_ids = true;
        else if (!strcmp(argv[argc - 1], "--note-apart")) note_apart = true;
        else break;
    }
    bool sends = argc == 6 && !strcmp(argv[1], "send") && atol(argv[5]) > 0, processes = argc == 5 && !strcmp(argv[1], "process");
    if (!sends && !processes) {
        fprintf(stderr, "usage: %s send HOST:PORT TOPIC FOLDER COUNT [--no-ids] | process HOST:PORT TOPIC FOLDER [--note-apart]\n", argv[0]);
        return 2;
    }
    kc_error *error = NULL;
    kc_client *client = client_to(argv[2], &error);
    if (!client) return fail("client", error);
    int rc = look_for_brokers(client, argv[2]);
    if (rc == 0) rc = sends ? send_all(client, argv[3], argv[4], atol(argv[5])) : process_all(client, argv[3], argv[4]);
    kc_client_free(client);
    return rc;
}
