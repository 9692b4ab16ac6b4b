/* consume.c - prints the records of one partition from its beginning to its end. Usage: consume HOST:PORT TOPIC PARTITION */
#include <kclient/consumer.h>
#include <kclient/kclient.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what, kc_error *error) {
    fprintf(stderr, "%s: %s\n", what, error ? kc_error_message(error) : "failed");
    kc_error_free(error);
    return 1;
}

/* The client's warnings: why nothing comes, for example. */
static void show_log(kc_client *client) {
    int32_t level;
    int64_t at_ms;
    char text[512];
    while (kc_client_log(client, &level, &at_ms, text, sizeof text) == 1)
        if (level <= 4) fprintf(stderr, "%s\n", text);
}

/* Polls until the end of the partition; 0, or 1 after an error. */
static int print_all(kc_client *client, kc_consumer *consumer) {
    for (;;) {
        kc_event *event = NULL;
        kc_err err = kc_consumer_poll(consumer, &event, 10 * 1000000); /* microseconds */
        show_log(client);
        if (err != KC_OK) {
            fprintf(stderr, "poll: %s\n", kc_err_text(err));
            return 1;
        }
        int32_t kind = kc_event_kind(event);
        kc_message m;
        for (size_t i = 0; kind == KC_EVENT_RECORDS && kc_event_message(event, i, &m) == KC_OK; i++)
            printf("%lld: %.*s\n", (long long)m.offset, (int)m.value.size, (const char *)m.value.p);
        if (kind == KC_EVENT_ERROR) fprintf(stderr, "%s\n", kc_error_message(kc_event_error(event)));
        kc_event_free(event);
        if (kind == KC_EVENT_PARTITION_END) return 0;
        if (kind == KC_EVENT_ERROR) return 1; /* the consumer would go on, should the topic appear, say; this program need not */
    }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s HOST:PORT TOPIC PARTITION\n", argv[0]);
        return 2;
    }
    kc_error *error = NULL;
    kc_client *client = NULL;
    kc_consumer *consumer = NULL;
    kc_config *config = kc_config_new();
    int rc;
    if (kc_config_set(config, "bootstrap.servers", argv[1], &error) != KC_OK || kc_config_set(config, "enable.partition.eof", "true", &error) != KC_OK ||
        kc_client_new(config, &client, &error) != KC_OK || kc_consumer_new(client, NULL, KC_PROCESSED_BY_POLL, &consumer, &error) != KC_OK) {
        rc = fail("client", error);
    } else {
        kc_topic_partition part = {.topic = kc_client_topic(client, argv[2]), .partition = atoi(argv[3]), .offset = KC_OFFSET_BEGINNING, .leader_epoch = -1};
        rc = kc_consumer_assign(consumer, &part, sizeof part, 1, &error) == KC_OK ? print_all(client, consumer) : fail("assign", error);
    }
    kc_consumer_free(consumer);
    kc_client_free(client);
    kc_config_free(config);
    return rc;
}
