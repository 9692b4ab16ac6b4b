/* produce.c - sends one record and waits for its place in the log. Usage: produce HOST:PORT TOPIC TEXT */
#include <kclient/kclient.h>
#include <kclient/producer.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what, kc_error *error) {
    fprintf(stderr, "%s: %s\n", what, error ? kc_error_message(error) : "failed");
    kc_error_free(error);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s HOST:PORT TOPIC TEXT\n", argv[0]);
        return 2;
    }
    kc_error *error = NULL;
    kc_client *client = NULL;
    kc_producer *producer = NULL;
    kc_report report;
    kc_config *config = kc_config_new();
    int rc = 1;
    if (kc_config_set(config, "bootstrap.servers", argv[1], &error) != KC_OK || kc_client_new(config, &client, &error) != KC_OK ||
        kc_producer_new(client, NULL, &producer, &error) != KC_OK) {
        rc = fail("client", error);
    } else {
        kc_record record = {.topic = kc_client_topic(client, argv[2]), .value = {argv[3], strlen(argv[3])}};
        if (record.topic == 0) {
            rc = fail("this is no topic name", NULL);
        } else if (kc_producer_send_wait(producer, &record, &report, &error) != KC_OK) {
            rc = fail("send", error);
        } else {
            printf("partition %d, offset %lld\n", (int)report.partition, (long long)report.offset);
            rc = 0;
        }
    }
    kc_producer_free(producer);
    kc_client_free(client);
    kc_config_free(config);
    return rc;
}
