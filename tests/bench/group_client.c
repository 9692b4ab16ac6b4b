/* group_client - libkclient as a member of a group, beside itself with a manual assignment. For run.py's section `groups`.
 *
 *   group_client first BOOTSTRAP TOPIC GROUP                from subscribe to the first record, and until that was known to be assigned
 *   group_client subscribed BOOTSTRAP TOPIC COUNT           consumes COUNT records from the beginning, of all partitions
 *   group_client assigned BOOTSTRAP TOPIC COUNT PARTITIONS  the same
 *   group_client idle BOOTSTRAP TOPIC GROUP SECONDS         a member that has come to the end, and its CPU meanwhile
 * Each prints one line of JSON.
 */
#include <kclient/consumer.h>
#include <kclient/kclient.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PARTS_MAX = 1000 };

static double ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}
static void must(kc_err err, const char *what) {
    if (!err) return;
    fprintf(stderr, "group_client: %s: %s\n", what, kc_err_name(err));
    exit(1);
}
static void set(kc_config *c, const char *name, const char *value) {
    must(kc_config_set(c, name, value, NULL), name);
}

/* Records taken until `count` are there, or (count 0) one is. */
static unsigned long take(kc_consumer *c, unsigned long count, double until_ms) {
    unsigned long n = 0;
    kc_event *e;
    while (n < count && ms(CLOCK_MONOTONIC) < until_ms) {
        kc_err err = kc_consumer_poll(c, &e, 1000000);
        if (err == KC_TIMED_OUT) continue;
        must(err, "poll");
        if (kc_event_kind(e) == KC_EVENT_RECORDS) n += kc_event_count(e);
        kc_event_free(e);
    }
    return n;
}

static void subscribe(kc_consumer *c, const char *topic) {
    must(kc_consumer_subscribe(c, &topic, 1, NULL), "subscribe");
}
static void assign(kc_client *client, kc_consumer *c, const char *topic, int n) {
    static kc_topic_partition parts[PARTS_MAX];
    int32_t number = kc_client_topic(client, topic);
    for (int32_t i = 0; i < n && i < PARTS_MAX; i++)
        parts[i] = (kc_topic_partition){.topic = number, .partition = i, .offset = KC_OFFSET_BEGINNING, .leader_epoch = -1};
    must(kc_consumer_assign(c, parts, sizeof *parts, (size_t)n, NULL), "assign");
}

int main(int argc, char **argv) {
    char group[64];
    if (argc < 5) return 2;
    int first = strcmp(argv[1], "first") == 0, still = strcmp(argv[1], "idle") == 0, assigned = strcmp(argv[1], "assigned") == 0;
    kc_config *config = kc_config_new();
    kc_client *client = NULL;
    kc_consumer *c = NULL;
    snprintf(group, sizeof group, "bench-%ld-%.0f", (long)time(NULL), ms(CLOCK_MONOTONIC));
    set(config, "bootstrap.servers", argv[2]);
    if (!assigned) set(config, "group.id", first || still ? argv[4] : group);
    set(config, "auto.offset.reset", "earliest");
    must(kc_client_new(config, &client, NULL), "client");
    must(kc_consumer_new(client, config, KC_PROCESSED_BY_POLL, &c, NULL), "consumer");
    double start = ms(CLOCK_MONOTONIC), cpu = ms(CLOCK_PROCESS_CPUTIME_ID);
    if (assigned)
        assign(client, c, argv[3], argc > 5 ? atoi(argv[5]) : 1);
    else
        subscribe(c, argv[3]);
    unsigned long want = first || still ? 1 : strtoul(argv[4], NULL, 10), n = take(c, want, start + 600000);
    double took = ms(CLOCK_MONOTONIC) - start;
    if (n < want) must(KC_TIMED_OUT, "records");
    if (still) {
        take(c, ~0UL, ms(CLOCK_MONOTONIC) + 2000);
        start = ms(CLOCK_MONOTONIC), cpu = ms(CLOCK_PROCESS_CPUTIME_ID);
        take(c, ~0UL, start + atof(argc > 5 ? argv[5] : "5") * 1000);
        took = ms(CLOCK_MONOTONIC) - start;
    }
    cpu = ms(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("{\"records\": %lu, \"ms\": %.3f, \"records_per_s\": %.0f, \"cpu_percent\": %.3f}\n", n, took, (double)n / took * 1000, cpu / took * 100);
    (void)!kc_consumer_close(c, 5000000, NULL);
    kc_consumer_free(c);
    kc_client_free(client);
    kc_config_free(config);
    return 0;
}
