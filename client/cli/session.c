/* session.c - the client behind a command: configuration from -b and --set, errors as a person reads them, signals. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

volatile sig_atomic_t cli_interrupted;
static void (*signal_wake)(void *);
static void *signal_ctx;

static void on_signal(int number) {
    if (cli_interrupted) _Exit(128 + number); /* the second one is meant */
    cli_interrupted = 1;
    if (signal_wake) signal_wake(signal_ctx);
}

void cli_catch_signals(void (*wake)(void *), void *ctx) {
    signal_wake = wake;
    signal_ctx = ctx;
    struct sigaction a = {.sa_handler = on_signal};
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    signal(SIGPIPE, SIG_DFL); /* `kc consume | head` ends quietly */
}

void cli_attempts(const kc_error *error) {
    for (size_t i = 0; error && i < kc_error_attempt_count(error); i++) {
        kc_attempt a;
        if (kc_error_attempt(error, i, &a) != KC_OK) break;
        fprintf(stderr, "  tried: %s", a.phase);
        if (a.broker >= 0) fprintf(stderr, ", broker %d", (int)a.broker);
        if (*a.detail) fprintf(stderr, ", %s", a.detail);
        fprintf(stderr, ": %s\n", kc_err_name(a.cause));
    }
}

int cli_fail(const char *what, kc_err code, kc_error *error) {
    fflush(stdout);
    fprintf(stderr, "kc: %s: %s\n", what, error ? kc_error_message(error) : kc_err_text(code));
    fprintf(stderr, "  error: %s\n", error ? kc_error_name(error) : kc_err_name(code));
    cli_attempts(error);
    kc_error_free(error);
    return CLI_FAILURE;
}

int cli_session_open(struct cli_session *s) {
    kc_error *error = NULL;
    s->config = kc_config_new();
    if (!s->config) return cli_fail("configuration", KC_NO_MEMORY, NULL);
    kc_err err = kc_config_set(s->config, "bootstrap.servers", s->brokers ? s->brokers : "127.0.0.1:9092", &error);
    for (int i = 0; err == KC_OK && i < s->set.count; i++) {
        char name[128];
        const char *value;
        if (!cli_split_pair(s->set.v[i], name, sizeof name, &value)) {
            fprintf(stderr, "kc: --set takes NAME=VALUE, not '%s'\n", s->set.v[i]);
            return CLI_USAGE;
        }
        err = kc_config_set(s->config, name, value, &error);
    }
    if (err != KC_OK) {
        cli_fail("configuration", err, error);
        return CLI_USAGE;
    }
    err = kc_client_new(s->config, &s->client, &error);
    if (err == KC_CONFIG) {
        cli_fail("configuration", err, error);
        return CLI_USAGE;
    }
    return err == KC_OK ? CLI_OK : cli_fail("client", err, error);
}

void cli_session_logs(struct cli_session *s) {
    char text[512];
    int32_t level;
    int64_t at_ms;
    while (s->client && kc_client_log(s->client, &level, &at_ms, text, sizeof text) == 1)
        if (s->verbose || level <= 4) fprintf(stderr, "kc: %s%s\n", level <= 3 ? "error: " : level == 4 ? "warning: " : "", text);
}

void cli_session_close(struct cli_session *s) {
    cli_session_logs(s);
    if (s->client) (void)kc_client_close(s->client, 1000000, NULL);
    kc_client_free(s->client);
    kc_config_free(s->config);
    s->client = NULL;
    s->config = NULL;
}
