/* consume_print.c - see consume.h. */
#include "consume.h"

#include <stdlib.h>
#include <string.h>

int consume_printer_make(struct consume_printer *p, const struct cli_command *c, const struct consume_options *o) {
    char why[256];
    *p = (struct consume_printer){.json = o->json, .base64 = o->base64};
    if (o->json) return -1;
    char *format = strdup(o->format ? o->format : "%s\\n");
    if (!format) return cli_fail(c->name, KC_NO_MEMORY, NULL);
    p->f = cli_format_new(format, why, sizeof why);
    free(format);
    return p->f ? -1 : cli_usage_error(c, "-f: %s", why);
}

bool consume_print(struct consume_printer *p, const kc_event *e, size_t i, const kc_message *m, const char *topic) {
    if (m->header_count > p->header_cap) {
        kc_header *grown = realloc(p->headers, m->header_count * sizeof *grown);
        if (!grown) return false;
        p->headers = grown;
        p->header_cap = m->header_count;
    }
    size_t n = m->header_count ? kc_event_headers(e, i, p->headers, sizeof *p->headers, p->header_cap) : 0;
    if (p->json)
        cli_json_message(stdout, topic, m, p->headers, n, p->base64);
    else
        cli_format_print(p->f, stdout, topic, m, p->headers, n);
    if (!cli_output_ok()) return true;
    p->records++;
    p->bytes += m->key.size + m->value.size;
    return true;
}

void consume_printer_free(struct consume_printer *p) {
    cli_format_free(p->f);
    free(p->headers);
    *p = (struct consume_printer){0};
}

/* What was lost is told, and reading goes on, unless the user wants to decide. */
static bool waits_for_seek(const struct cli_session *s) {
    const char *reset = kc_config_get(s->config, "auto.offset.reset");
    return reset && (!strcmp(reset, "none") || !strcmp(reset, "error"));
}

bool consume_tell_error(const struct cli_session *s, const kc_event *e) {
    const kc_error *error = kc_event_error(e);
    fflush(stdout);
    fprintf(stderr, "kc: consume: %s (%s)\n", kc_error_message(error), kc_error_name(error)); /* it names the partition */
    if (kc_error_code(error) == KC_DATA_LOST && !waits_for_seek(s)) return true;
    return !kc_error_fatal(error) && kc_error_retriable(error);
}

/* ---- What is waited for ---- */

#define QUIET_US 2000000 /* nothing came for so long: then it is told, and again after each so long */
#define AGAIN_US 10000000

static volatile sig_atomic_t asked; /* SIGUSR1 came */
static kc_consumer *asked_of;

static void on_usr1(int number) {
    (void)number;
    asked = 1;
    if (asked_of) kc_consumer_wake(asked_of);
}

void consume_why_start(struct consume_why *w, kc_consumer *consumer) {
    asked = 0;
    asked_of = consumer;
    w->quiet_since_us = cli_now_us();
    w->next_us = w->quiet_since_us + QUIET_US;
    struct sigaction a = {.sa_handler = on_usr1};
    sigaction(SIGUSR1, &a, NULL);
}

void consume_why_end(void) {
    signal(SIGUSR1, SIG_IGN); /* one that comes late must not end what is being closed */
    asked_of = NULL;
}

static void tell(struct cli_session *s, kc_consumer *consumer) {
    size_t n = 0, count = 0;
    kc_why *v = NULL;
    do { /* as many as there are now */
        n = count + 16;
        kc_why *grown = realloc(v, n * sizeof *grown);
        if (!grown) break;
        v = grown;
        if (kc_consumer_why(consumer, v, sizeof *v, n, &count) != KC_OK) count = 0;
    } while (count > n);
    for (size_t i = 0; v && i < count && i < n; i++) {
        const char *topic = kc_client_topic_name(s->client, v[i].topic);
        if (topic)
            fprintf(stderr, "kc: why: %s %d: ", topic, (int)v[i].partition);
        else
            fputs("kc: why: ", stderr); /* of the membership, which names the group */
        fprintf(stderr, "%s (since %.1f s)\n", v[i].text, (double)v[i].since_us / 1e6);
    }
    if (v && count == 0) fprintf(stderr, "kc: why: nothing is assigned\n");
    free(v);
}

void consume_why_tick(struct consume_why *w, struct cli_session *s, kc_consumer *consumer, bool came) {
    int64_t now_us = cli_now_us();
    if (came) {
        w->quiet_since_us = now_us;
        w->next_us = now_us + QUIET_US;
    }
    bool due = w->on && now_us >= w->next_us;
    if (!asked && !due) return;
    asked = 0;
    w->next_us = now_us + AGAIN_US;
    fflush(stdout);
    tell(s, consumer);
}
