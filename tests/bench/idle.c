/* idle - what a client costs while it does nothing: holds still until stdin ends, so that run.py can read its memory.
 *
 *   idle BOOTSTRAP TOPIC      a client with a producer that has sent one record and a consumer that is assigned
 * Prints "ready" when it holds still. run.py compares it with cat, which links nothing.
 */
#include <kclient/consumer.h>
#include <kclient/kclient.h>
#include <kclient/producer.h>
#include <stdio.h>

static int fail(const char *what, kc_err err)
{
    fprintf(stderr, "idle: %s: %s\n", what, kc_err_name(err));
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    kc_config *c = kc_config_new();
    kc_client *client = NULL;
    kc_producer *producer = NULL;
    kc_consumer *consumer = NULL;
    kc_err err = kc_config_set(c, "bootstrap.servers", argv[1], NULL);
    if (!err) err = kc_client_new(c, &client, NULL);
    if (!err) err = kc_producer_new(client, c, &producer, NULL);
    if (!err) err = kc_consumer_new(client, c, KC_PROCESSED_BY_POLL, &consumer, NULL);
    if (err) return fail("new", err);
    int32_t topic = kc_client_topic(client, argv[2]);
    kc_record record = {.topic = topic, .value = {"x", 1}};
    kc_report report;
    err = kc_producer_send_wait(producer, &record, &report, NULL);
    if (err) return fail("send", err);
    kc_topic_partition part = {.topic = topic, .offset = KC_OFFSET_BEGINNING, .leader_epoch = -1};
    err = kc_consumer_assign(consumer, &part, sizeof part, 1, NULL);
    kc_event *event = NULL;
    if (!err) err = kc_consumer_poll(consumer, &event, 5000000);
    kc_event_free(event);
    if (err) return fail("poll", err);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
