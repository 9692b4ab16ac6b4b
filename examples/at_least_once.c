/* at_least_once.c - each order is processed at least once: some may be done twice, none is ever lost. The rule: act first, then note.
 *
 *   examples/guarantees.sh at_least_once           plays it, with both halves killed again and again, and counts
 *
 * send:     sends orders until all in-sync replicas have them, then notes which those were. Started again it goes on behind the note: what was sent and
 *           not noted is sent again.
 * process:  processes some records, then commits the position behind them. Started again it goes on at the position.
 * --note-before turns both round: what was noted and not sent or done yet never is. That is at_most_once.c.
 *
 * Usage: at_least_once send HOST:PORT TOPIC FOLDER COUNT [--note-before] | at_least_once process HOST:PORT TOPIC FOLDER [--note-before]
 */
#include <fcntl.h>
#include <kclient/admin.h>
#include <kclient/consumer.h>
#include <kclient/kclient.h>
#include <kclient/producer.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK 20     /* so many are noted at a time */
#define WORK_US 300  /* what an order takes to make, and to process */

static bool note_before;

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

static int open_file(const char *folder, const char *name, int flags) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, flags | O_CREAT, 0644);
    if (fd < 0) perror(path);
    return fd;
}

/* Whoever plays this program waits for the word before killing it, so that there is something to disturb. */
static void begin_work(void) {
    static bool told;
    if (!told) puts("working");
    told = true;
    fflush(stdout);
}

/* ---- The way in ---- */

static long read_note(int fd) {
    char text[32] = "";
    return pread(fd, text, sizeof text - 1, 0) > 0 ? atol(text) : 0;
}
static int write_note(int fd, long number) { return dprintf(fd, "%-20ld\n", number) > 0 && lseek(fd, 0, SEEK_SET) == 0 ? 0 : 1; }

/* 0: all are stored. */
static int all_stored(kc_producer *producer, long count) {
    while (count > 0) {
        kc_reports *reports = NULL;
        kc_report r;
        if (kc_producer_reports(producer, &reports, KC_FOREVER) != KC_OK) return 1;
        int rc = 0;
        for (; rc == 0 && kc_reports_next(reports, &r); count--)
            if (r.err != KC_OK) {
                fprintf(stderr, "send: %s\n", kc_error_message(kc_reports_error(reports)));
                rc = 1;
            }
        kc_reports_free(reports);
        if (rc) return rc;
    }
    return 0;
}

static int send_chunk(kc_producer *producer, int32_t topic, long from, long to) {
    for (long n = from; n <= to; n++) {
        char text[32];
        usleep(WORK_US);
        kc_record record = {.topic = topic, .value = {text, (size_t)snprintf(text, sizeof text, "%ld", n)}};
        if (kc_producer_send(producer, &record, KC_FOREVER) != KC_OK) return 1;
    }
    return all_stored(producer, to - from + 1);
}

static int send_all(kc_client *client, const char *topic, const char *folder, long count) {
    kc_error *error = NULL;
    kc_producer *producer = NULL;
    kc_config *config = kc_config_new();
    int rc = 0, note = open_file(folder, "sent", O_RDWR);
    /* acks=-1, retries and idempotence are the defaults: within one life of this program nothing is stored twice. */
    if (kc_config_set(config, "linger.ms", "0", &error) != KC_OK || kc_producer_new(client, config, &producer, &error) != KC_OK)
        rc = fail("producer", error);
    long done = note < 0 ? count : read_note(note);
    while (rc == 0 && done < count) {
        begin_work();
        long next = done + CHUNK < count ? done + CHUNK : count;
        if (note_before) rc = write_note(note, next);
        if (rc == 0) rc = send_chunk(producer, kc_client_topic(client, topic), done + 1, next);
        if (rc == 0 && !note_before) rc = write_note(note, next);
        done = next;
    }
    kc_producer_free(producer);
    kc_config_free(config);
    if (note >= 0) close(note);
    return note < 0 ? 1 : rc;
}

/* ---- The way out ---- */

static int commit(kc_consumer *consumer, const kc_message *last) {
    kc_error *error = NULL;
    kc_offset next = {.topic = last->topic, .partition = last->partition, .offset = last->offset + 1, .leader_epoch = last->leader_epoch};
    return kc_consumer_commit(consumer, &next, sizeof next, 1, 0, &error) == KC_OK ? 0 : fail("commit", error);
}

static int process(int results, const kc_event *event, size_t from, size_t to) {
    kc_message m;
    for (size_t i = from; i < to && kc_event_message(event, i, &m) == KC_OK; i++) {
        usleep(WORK_US);
        if (dprintf(results, "%.*s\n", (int)m.value.size, (const char *)m.value.p) < 0) return 1;
    }
    return 0;
}

static int take(kc_consumer *consumer, int results, const kc_event *event) {
    size_t count = kc_event_count(event);
    int rc = 0;
    for (size_t from = 0; from < count && rc == 0; from += CHUNK) {
        begin_work();
        size_t to = from + CHUNK < count ? from + CHUNK : count;
        kc_message last;
        (void)kc_event_message(event, to - 1, &last);
        if (note_before) rc = commit(consumer, &last);
        if (rc == 0) rc = process(results, event, from, to);
        if (rc == 0 && !note_before) rc = commit(consumer, &last);
    }
    return rc;
}

/* Until the end of all partitions; 0, or 1 after an error. */
static int take_all(kc_consumer *consumer, int results) {
    size_t assigned = 1;
    uint64_t ended = 0; /* a bit a partition */
    int rc = 0;
    while (rc == 0 && (size_t)__builtin_popcountll(ended) < assigned) {
        kc_event *event = NULL;
        kc_err err = kc_consumer_poll(consumer, &event, 10 * 1000000);
        if (err == KC_TIMED_OUT) continue;
        if (err != KC_OK) return fail(kc_err_text(err), NULL);
        int32_t kind = kc_event_kind(event);
        if (kind == KC_EVENT_ASSIGNED) assigned = kc_event_partitions(event, NULL, sizeof(kc_topic_partition), 0);
        if (kind == KC_EVENT_PARTITION_END) ended |= (uint64_t)1 << (kc_event_partition(event) & 63);
        if (kind == KC_EVENT_RECORDS) rc = take(consumer, results, event);
        if (kind == KC_EVENT_ERROR) fprintf(stderr, "%s\n", kc_error_message(kc_event_error(event)));
        kc_event_free(event);
    }
    return rc;
}

static int process_all(kc_client *client, const char *topic, const char *folder) {
    kc_error *error = NULL;
    kc_consumer *consumer = NULL;
    kc_config *config = kc_config_new();
    /* A static member: started again it has its partitions at once, without waiting for the one that was killed to be missed. */
    const char *const pairs[][2] = {{"group.id", topic},
                                    {"group.instance.id", "one"},
                                    {"enable.auto.commit", "false"},
                                    {"auto.offset.reset", "earliest"},
                                    {"enable.partition.eof", "true"}};
    int rc = 0, results = open_file(folder, "results", O_WRONLY | O_APPEND);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && rc == 0; i++)
        if (kc_config_set(config, pairs[i][0], pairs[i][1], &error) != KC_OK) rc = fail("config", error);
    if (rc == 0 && kc_consumer_new(client, config, KC_PROCESSED_EXPLICIT, &consumer, &error) != KC_OK) rc = fail("consumer", error);
    if (rc == 0 && kc_consumer_subscribe(consumer, &topic, 1, &error) != KC_OK) rc = fail("subscribe", error);
    if (rc == 0) rc = results < 0 || take_all(consumer, results);
    if (consumer) (void)kc_consumer_close(consumer, 2000000, NULL);
    kc_consumer_free(consumer);
    kc_config_free(config);
    if (results >= 0) close(results);
    return rc;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[argc - 1], "--note-before")) {
        note_before = true;
        argc--;
    }
    bool sends = argc == 6 && !strcmp(argv[1], "send") && atol(argv[5]) > 0, processes = argc == 5 && !strcmp(argv[1], "process");
    if (!sends && !processes) {
        fprintf(stderr, "usage: %s send HOST:PORT TOPIC FOLDER COUNT | process HOST:PORT TOPIC FOLDER  [--note-before]\n", argv[0]);
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
