/* embed_app.h - the application of embed_epoll.c and embed_libuv.c: it sends numbered orders, and reads them as a member of a group, in one thread, and never
 * waits. The loop around it is theirs; here is what it does when its turn comes, and how it holds back:
 *
 * - Sending: kc_producer_send with a limit of 0 takes a record or refuses it with KC_QUEUE_FULL. Then nothing more is made until KC_READY_SPACE.
 *   Reports are taken as they come: until then their records hold their places in the queue.
 * - Reading: of an event a few records are worked off a turn, so that all else has its turn, too. As long as one is being worked off no other is asked for,
 *   and the client fetches no more than its memory budget (fetch.message.max.bytes and others) allows.
 * - Ending: the close of the consumer (which commits, and leaves its group) and of the producer are operations; the loop goes on until both are over.
 */
#ifndef EMBED_APP_H
#define EMBED_APP_H

#include <kclient/consumer.h>
#include <kclient/kclient.h>
#include <kclient/producer.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENT_A_TURN = 500, WORKED_A_TURN = 100, RUN_US = 5000 /* of the client's work a turn */ };

struct app {
    kc_client *client;
    kc_producer *producer;
    kc_consumer *consumer;
    int32_t topic;
    long total, sent, stored, failed, read; /* orders */
    long times_full;
    bool full, reports, events; /* what readiness said last */
    kc_event *event;            /* being worked off */
    size_t at;                  /* its next record */
    kc_op *closes[2];           /* NULL: not begun */
};

static inline void app_check(kc_err err, kc_error *error, const char *what) {
    if (err == KC_OK) return;
    fprintf(stderr, "%s: %s\n", what, error ? kc_error_message(error) : kc_err_text(err));
    exit(1);
}

static inline void app_start(struct app *a, const char *bootstrap, const char *topic, long total) {
    static const char *const settings[][2] = {{"client.thread", "none"},    {"group.id", "embed"},      {"auto.offset.reset", "earliest"},
                                              {"queue.buffering.max.messages", "1000"}, {"linger.ms", "2"}};
    kc_error *error = NULL;
    kc_config *config = kc_config_new();
    *a = (struct app){.total = total, .reports = true, .events = true};
    app_check(kc_config_set(config, "bootstrap.servers", bootstrap, &error), error, "bootstrap.servers");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        app_check(kc_config_set(config, settings[i][0], settings[i][1], &error), error, settings[i][0]);
    app_check(kc_client_new(config, &a->client, &error), error, "client");
    app_check(kc_producer_new(a->client, NULL, &a->producer, &error), error, "producer");
    app_check(kc_consumer_new(a->client, NULL, KC_PROCESSED_BY_POLL, &a->consumer, &error), error, "consumer");
    app_check(kc_consumer_subscribe(a->consumer, &topic, 1, &error), error, "subscribe");
    a->topic = kc_client_topic(a->client, topic);
    kc_config_free(config);
}

/* ---- What is ready ---- */

static inline void app_readiness(struct app *a) {
    kc_ready ready[16];
    size_t n;
    do {
        n = kc_client_ready(a->client, ready, sizeof ready[0], 16);
        for (size_t i = 0; i < n; i++) {
            if (ready[i].kind == KC_READY_SPACE) a->full = false;
            if (ready[i].kind == KC_READY_REPORTS) a->reports = true;
            if (ready[i].kind == KC_READY_EVENT) a->events = true;
        }
    } while (n == 16);
}

/* The client's warnings: why nothing comes, for example. */
static inline void app_log(struct app *a) {
    int32_t level;
    int64_t at_ms;
    char text[512];
    while (kc_client_log(a->client, &level, &at_ms, text, sizeof text) == 1)
        if (level <= 4) fprintf(stderr, "%s\n", text);
}

/* ---- Sending ---- */

static inline void app_send(struct app *a) {
    for (int i = 0; i < SENT_A_TURN && !a->full && a->sent < a->total; i++) {
        char order[32];
        int n = snprintf(order, sizeof order, "%ld", a->sent + 1);
        kc_record record = {.topic = a->topic, .value = {order, (size_t)n}};
        kc_err err = kc_producer_send(a->producer, &record, 0);
        if (err == KC_QUEUE_FULL) {
            a->full = true; /* until KC_READY_SPACE */
            a->times_full++;
            return;
        }
        app_check(err, NULL, "send");
        a->sent++;
    }
}

static inline void app_take_reports(struct app *a) {
    kc_reports *reports;
    kc_report report;
    while (a->reports) {
        if (kc_producer_reports(a->producer, &reports, 0) != KC_OK) {
            a->reports = false; /* until KC_READY_REPORTS */
            return;
        }
        while (kc_reports_next(reports, &report)) {
            if (report.err == KC_OK) a->stored++;
            else if (a->failed++ == 0) fprintf(stderr, "an order was not stored: %s\n", kc_error_message(kc_reports_error(reports)));
        }
        kc_reports_free(reports);
    }
}

/* ---- Reading ---- */

static inline void app_next_event(struct app *a) {
    kc_err err = kc_consumer_poll(a->consumer, &a->event, 0); /* what came before it counts as processed, and an ASSIGNED as acknowledged */
    a->at = 0;
    if (err != KC_OK) {
        a->event = NULL;
        a->events = false; /* until KC_READY_EVENT */
    } else if (kc_event_kind(a->event) == KC_EVENT_ERROR) {
        fprintf(stderr, "%s\n", kc_error_message(kc_event_error(a->event)));
    }
}

static inline void app_work(struct app *a) {
    kc_message order;
    if (!a->event && a->events) app_next_event(a);
    for (int i = 0; a->event && i < WORKED_A_TURN; i++) {
        if (kc_event_kind(a->event) != KC_EVENT_RECORDS || kc_event_message(a->event, a->at, &order) != KC_OK) {
            kc_event_free(a->event);
            a->event = NULL;
            return;
        }
        a->at++;
        a->read++; /* here an application would do what the order asks for */
    }
}

/* ---- Turns ---- */

/* All is sent, answered and worked off, and a poll behind the last event has said so: only then does the close commit it. */
static inline bool app_is_done(const struct app *a) {
    return a->stored + a->failed == a->total && a->read >= a->stored && !a->event && !a->events;
}

/* All that can be done without waiting. true: there is more to do at once. */
static inline bool app_turn(struct app *a) {
    app_check(kc_client_run_once(a->client, 0, RUN_US), NULL, "run");
    app_readiness(a);
    app_log(a);
    app_take_reports(a);
    app_send(a);
    app_work(a);
    return a->event || a->events || (!a->full && a->sent < a->total);
}

/* true: all is over. The first call begins it; the loop goes on meanwhile. */
static inline bool app_end(struct app *a) {
    kc_error *error = NULL;
    if (!a->closes[0]) {
        app_check(kc_consumer_close_start(a->consumer, 10 * 1000000, 0, &a->closes[0], &error), error, "close");
        app_check(kc_producer_close_start(a->producer, 10 * 1000000, 0, &a->closes[1], &error), error, "close");
    }
    app_check(kc_client_run_once(a->client, 0, RUN_US), NULL, "run");
    app_readiness(a); /* what became ready is drained, else the descriptor stays readable */
    return kc_op_done(a->closes[0]) && kc_op_done(a->closes[1]);
}

static inline int app_free(struct app *a) {
    printf("sent %ld, stored %ld, read %ld; the queue was full %s\n", a->sent, a->stored, a->read, a->times_full ? "at times" : "never");
    for (int i = 0; i < 2; i++) kc_op_free(a->closes[i]);
    kc_event_free(a->event);
    kc_consumer_free(a->consumer);
    kc_producer_free(a->producer);
    kc_client_free(a->client);
    return a->failed ? 1 : 0;
}

#endif
