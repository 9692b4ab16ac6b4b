/* session.c - the client behind a command: configuration from -b and --set, errors as a person reads them, signals. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

volatile sig_atomic_t cli_interrupted;
int cli_output_errno;
static void (*signal_wake)(void *);
static void *signal_ctx;

static void on_signal(int number) {
    if (cli_interrupted) _Exit(128 + number); /* the second one is meant */
    cli_interrupted = 1;
    if (signal_wake) signal_wake(signal_ctx);
}

bool cli_output_ok(void) {
    if (!ferror(stdout)) return true;
    if (!cli_output_errno) cli_output_errno = errno;
    return false;
}

void cli_catch_signals(void (*wake)(void *), void *ctx) {
    signal_wake = wake;
    signal_ctx = ctx;
    struct sigaction a = {.sa_handler = on_signal};
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    signal(SIGPIPE, SIG_DFL); /* `kc consume | head` ends quietly */
}

static bool same_attempt(const kc_attempt *a, const kc_attempt *b) {
    return a->broker == b->broker && a->cause == b->cause && !strcmp(a->phase, b->phase) && !strcmp(a->detail, b->detail);
}

void cli_attempts(const kc_error *error) {
    kc_attempt a, next;
    size_t times = 1;
    for (size_t i = 0; error && kc_error_attempt(error, i, &a) == KC_OK; i++) {
        if (kc_error_attempt(error, i + 1, &next) == KC_OK && same_attempt(&a, &next)) {
            times++;
            continue;
        }
        fprintf(stderr, "  tried: %s", a.phase);
        if (a.broker >= 0) fprintf(stderr, ", broker %d", (int)a.broker);
        if (*a.detail) fprintf(stderr, ", %s", a.detail);
        fprintf(stderr, ": %s", kc_err_name(a.cause));
        if (times > 1) fprintf(stderr, " (%zu times)", times);
        fputc('\n', stderr);
        times = 1;
    }
}

/* What to do, where it is not in the message already. */
static const char *advice(kc_err code, const kc_error *error) {
    kc_attempt a;
    if (code == KC_TOO_LARGE) return "--set max.request.size=BYTES lets it out; the topic's max.message.bytes has to let it in, too";
    if (code == 7 /* REQUEST_TIMED_OUT */) return "kc cluster shows whether a majority of the metadata quorum is there: without it nothing changes";
    if (code == 3 /* UNKNOWN_TOPIC_OR_PARTITION */) return "kc topic list shows which topics there are, kc topic create makes one";
    for (size_t i = 0; error && kc_error_attempt(error, i, &a) == KC_OK; i++)
        if (a.broker >= 0 || !strcmp(a.phase, "send") || strstr(a.phase, "answer")) return NULL; /* somebody was there */
    if (!error || kc_error_attempt_count(error) == 0) return NULL;
    return "does a broker listen there? -b HOST:PORT names another; kbroker run starts one here";
}

int cli_fail(const char *what, kc_err code, kc_error *error) {
    fflush(stdout);
    cli_progress_clear();
    if (cli_interrupted) {
        fprintf(stderr, "kc: %s: interrupted\n", what);
    } else {
        fprintf(stderr, "kc: %s: %s\n", what, error ? kc_error_message(error) : kc_err_text(code));
        fprintf(stderr, "  error: %s\n", error ? kc_error_name(error) : kc_err_name(code));
        cli_attempts(error);
        const char *text = advice(code, error);
        if (text) fprintf(stderr, "  %s\n", text);
    }
    kc_error_free(error);
    return CLI_FAILURE;
}

kc_err cli_wait(struct cli_session *s, kc_op *op, kc_error **error) {
    for (;;) {
        bool done = kc_op_done(op);
        kc_err err = kc_op_wait(op, done ? 0 : 100000, done ? error : NULL);
        if (done) return err;
        cli_session_logs(s);
        if (cli_interrupted) kc_op_cancel(op);
    }
}

/* The call failed, no item has a result of its own: those that it did not get to have its error. */
static bool is_of_the_call(const kc_admin_result *r, size_t n, kc_err err) {
    for (size_t i = 0; i < n; i++)
        if (r[i].err != err || strcmp(r[i].message, kc_err_text(err)) != 0) return false;
    return err != KC_OK;
}

int cli_wait_results(struct cli_session *s, const char *what, kc_err err, kc_op *op, kc_error *error, kc_admin_result **results, size_t *count) {
    if (err == KC_OK) err = cli_wait(s, op, &error);
    *count = kc_op_result_items(op, NULL, 0, 0);
    *results = calloc(*count + 1, sizeof **results);
    if (!*results && err == KC_OK) err = KC_NO_MEMORY;
    *count = *results ? kc_op_result_items(op, *results, sizeof **results, *count) : 0;
    if (is_of_the_call(*results, *count, err)) {
        *count = 0;
        return cli_fail(what, err, error);
    }
    kc_error_free(error);
    return CLI_OK;
}

int cli_wait_items(struct cli_session *s, const char *what, kc_err err, kc_op *op, kc_error *error, bool *done, size_t n) {
    kc_admin_result *r;
    size_t got;
    int rc = cli_wait_results(s, what, err, op, error, &r, &got);
    for (size_t i = 0; i < got && i < n; i++) {
        if (done) done[i] = r[i].err == KC_OK;
        if (r[i].err == KC_OK) continue;
        fprintf(stderr, "kc: %s: %s: %s (%s)\n", what, *r[i].name ? r[i].name : "''", *r[i].message ? r[i].message : kc_err_text(r[i].err),
                kc_err_name(r[i].err));
        rc = CLI_FAILURE;
    }
    free(r);
    kc_op_free(op);
    return rc;
}

int cli_pairs_make(const struct cli_command *c, const struct cli_many *set, const struct cli_many *unset, struct cli_pairs *out) {
    out->count = 0;
    for (int i = 0; i < set->count; i++) {
        kc_config_pair *p = &out->v[out->count++];
        *p = (kc_config_pair){.name = out->names[i]};
        if (!cli_split_pair(set->v[i], out->names[i], sizeof out->names[i], &p->value))
            return cli_usage_error(c, "--config takes NAME=VALUE, not '%s'", set->v[i]);
    }
    for (int i = 0; unset && i < unset->count; i++) out->v[out->count++] = (kc_config_pair){.name = unset->v[i], .op = 1};
    return -1;
}

int cli_alter_configs(struct cli_session *s, const char *what, int32_t resource, const char *name, const struct cli_pairs *pairs) {
    kc_config_alter item = {.resource = resource, .name = name, .pairs = pairs->v, .pair_count = pairs->count};
    kc_error *error = NULL;
    kc_op *op = NULL;
    kc_err err = kc_admin_alter_configs_start(s->client, &item, sizeof item, 1, 0, 0, &op, &error);
    return cli_wait_items(s, what, err, op, error, NULL, 1);
}

kc_err cli_describe(struct cli_session *s, const char *topic, kc_cluster_info **info, kc_error **error) {
    kc_op *op = NULL;
    kc_err err = kc_admin_describe_start(s->client, topic, 0, 0, &op, error);
    if (err == KC_OK) err = cli_wait(s, op, error);
    if (err == KC_OK && !(*info = kc_op_result_cluster(op))) err = KC_NO_MEMORY;
    kc_op_free(op);
    return err;
}

kc_err cli_describe_topic(struct cli_session *s, const char *topic, kc_cluster_info **info, kc_topic_info *t, kc_error **error) {
    kc_err err = cli_describe(s, topic, info, error);
    if (err == KC_OK) err = kc_cluster_info_topic(*info, 0, t);
    return err == KC_OK ? t->err : err;
}

int cli_producer_open(struct cli_session *s, const char *what, const char *acks, const char *codec, kc_producer **p) {
    kc_error *error = NULL;
    kc_config *config = kc_config_new();
    kc_err err = config ? KC_OK : KC_NO_MEMORY;
    if (err == KC_OK && acks) err = kc_config_set(config, "acks", acks, &error);
    if (err == KC_OK && codec) err = kc_config_set(config, "compression.type", codec, &error);
    if (err == KC_OK) err = kc_producer_new(s->client, config, p, &error);
    kc_config_free(config);
    if (err == KC_OK) return CLI_OK;
    cli_fail(what, err, error);
    return err == KC_CONFIG ? CLI_USAGE : CLI_FAILURE;
}

int cli_session_open(struct cli_session *s) {
    kc_error *error = NULL;
    s->config = kc_config_new();
    if (!s->config) return cli_fail("configuration", KC_NO_MEMORY, NULL);
    kc_err err = kc_config_set(s->config, "bootstrap.servers", s->brokers ? s->brokers : "127.0.0.1:9092", &error);
    if (err == KC_OK) err = kc_config_set(s->config, "default.api.timeout.ms", CLI_TIMEOUT_MS, &error);
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
        if (s->verbose || level <= 4) {
            cli_progress_clear();
            fprintf(stderr, "kc: %s%s\n", level <= 3 ? "error: " : level == 4 ? "warning: " : "", text);
        }
}

void cli_session_close(struct cli_session *s) {
    cli_session_logs(s);
    if (s->client) (void)kc_client_close(s->client, 1000000, NULL);
    kc_client_free(s->client);
    kc_config_free(s->config);
    s->client = NULL;
    s->config = NULL;
}
