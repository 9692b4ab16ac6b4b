/* cluster.c - a cluster's life: its command line, its start, attaching to one that runs, its end; the kit's own client. Calls process.c, find.c, ask.c. */
#include "testkit.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The command line ---- */

struct words {
    char **v; /* up to a NULL */
    size_t count, cap;
    bool failed; /* out of memory */
};

static void word(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void word(struct words *w, const char *fmt, ...) {
    if (w->count + 2 > w->cap) {
        char **more = realloc(w->v, (w->cap = 2 * w->cap + 32) * sizeof *more);
        if (!more) {
            w->failed = true;
            return;
        }
        w->v = more;
    }
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&w->v[w->count], fmt, ap) >= 0) w->count++;
    else w->failed = true;
    va_end(ap);
    w->v[w->count] = NULL;
}

static void words_free(struct words *w) {
    for (size_t i = 0; i < w->count; i++) free(w->v[i]);
    free(w->v);
}

static void option(struct words *w, const char *name, const char *value) {
    if (!value) return;
    word(w, "%s", name);
    word(w, "%s", value);
}

static void command_line(struct words *w, const char *program, const kc_test_options *o) {
    word(w, "%s", program);
    word(w, "cluster");
    word(w, "--nodes");
    word(w, "%d", (int)(o->nodes ? o->nodes : 1));
    if (o->controllers) {
        word(w, "--controllers");
        word(w, "%d", (int)o->controllers);
    }
    option(w, "--base-port", "0");
    option(w, "--admin", "127.0.0.1:0");
    word(w, "--until-eof");
    if (o->data) option(w, "--data", o->data);
    else word(w, "--ephemeral");
    option(w, "--profile", o->profile);
    option(w, "--from", o->from);
    option(w, "--record", o->record);
    option(w, "--faults", o->faults);
    if (o->virtual_clock) option(w, "--clock", "virtual");
    for (size_t i = 0; i < o->config_count; i++) {
        word(w, "--set");
        word(w, "%s=%s", o->configs[i].name, o->configs[i].value);
    }
    for (const char *const *a = o->arguments; a && *a; a++) word(w, "%s", *a);
}

static kc_err check_options(const kc_test_options *o, kc_error **error) {
    if (o->nodes < 0 || o->nodes > KT_NODES_MAX || o->controllers < 0 || o->controllers > KT_NODES_MAX)
        return kt_fail(error, KC_INVALID, "a cluster has 1 to %d nodes", KT_NODES_MAX);
    if (o->timeout_us < KC_FOREVER) return kt_fail(error, KC_INVALID, "timeout_us is 0, KC_FOREVER or a duration");
    if (o->config_count > 0 && !o->configs) return kt_fail(error, KC_INVALID, "config_count without configs");
    for (size_t i = 0; i < o->config_count; i++)
        if (!o->configs[i].name || !*o->configs[i].name || !o->configs[i].value)
            return kt_fail(error, KC_INVALID, "configs[%zu] needs a name and a value", i);
    return KC_OK;
}

/* ---- Start ---- */

static kc_test_cluster *cluster_new(const kc_test_options *o) {
    kc_test_cluster *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    pthread_mutex_init(&c->lock, NULL);
    c->owner = getpid();
    c->timeout_us = o->timeout_us;
    c->ephemeral = !o->data;
    kt_process_init(&c->process);
    return c;
}

static char *after(const char *line, const char *start) {
    size_t n = strlen(start);
    return strncmp(line, start, n) == 0 ? strdup(line + n) : NULL;
}

/* "admin URL", then "ready HOST:PORT,…". */
static kc_err until_ready(kc_test_cluster *c, int64_t deadline_us, kc_error **error) {
    struct kt_process *p = &c->process;
    char fate[40], said[KT_LOG_SHOWN + 2];
    const char *line;
    int got = 1;
    while (!c->bootstrap && (got = kt_process_line(p, deadline_us, &line)) > 0) {
        if (!c->admin) c->admin = after(line, "admin ");
        c->bootstrap = after(line, "ready ");
    }
    if (c->bootstrap && c->admin && kt_address_parse(c->admin, &c->at)) return KC_OK;
    if (c->bootstrap) return kt_fail(error, KC_BAD_MESSAGE, "kbroker cluster did not say where its admin port is: is it of another version?");
    if (got == 0 && kt_process_ended(p, deadline_us))
        return kt_fail(error, KC_TRANSPORT, "kbroker cluster ended before it was ready (%s)%s", kt_process_fate(p, fate, sizeof fate),
                       kt_process_said(p, said));
    return kt_fail(error, KC_TIMED_OUT, "kbroker cluster was not ready within its time%s", kt_process_said(p, said));
}

/* What only the cluster knows. */
static kc_err look_up(kc_test_cluster *c, kc_error **error) {
    json_t *answer = NULL;
    kc_err err = kt_ask(c, "GET", "/cluster", NULL, &answer, error);
    if (err) return err;
    const char *data = json_string_value(json_object_get(answer, "data")), *bootstrap = json_string_value(json_object_get(answer, "bootstrap"));
    if (!data || !bootstrap) {
        err = kt_bad_answer(error, "data and bootstrap");
    } else {
        if (!c->bootstrap) c->bootstrap = strdup(bootstrap);
        c->data = strdup(data);
        if (!c->data || !c->bootstrap) err = kt_fail(error, KC_NO_MEMORY, "out of memory");
    }
    json_decref(answer);
    return err;
}

static kc_err launch(kc_test_cluster *c, const kc_test_options *o, kc_error **error) {
    struct words w = {0};
    int64_t deadline_us = kt_deadline(o->timeout_us, KT_CALL_DEFAULT_S);
    char *program = kt_find_kbroker(o->kbroker, error);
    if (!program) return KC_INVALID;
    command_line(&w, program, o);
    int failed = w.failed ? ENOMEM : kt_process_start(&c->process, (const char *const *)(uintptr_t)w.v, o->show_log != 0);
    kc_err err = failed ? kt_fail(error, failed == ENOMEM ? KC_NO_MEMORY : KC_TRANSPORT, "%s cannot be started: %s", program, strerror(failed)) : KC_OK;
    words_free(&w);
    free(program);
    if (!err) err = until_ready(c, deadline_us, error);
    return err ? err : look_up(c, error);
}

kc_err kc_test_cluster_start(const kc_test_options *options, size_t size, kc_test_cluster **cluster, kc_error **error) {
    kc_test_options o = {0};
    if (!cluster || (options && size < sizeof o.nodes)) return kt_fail(error, KC_INVALID, "where the cluster goes, or the size of its options, is missing");
    if (options) memcpy(&o, options, size < sizeof o ? size : sizeof o);
    kc_err err = check_options(&o, error);
    if (err) return err;
    kc_test_cluster *c = cluster_new(&o);
    if (!c) return kt_fail(error, KC_NO_MEMORY, "out of memory");
    err = launch(c, &o, error);
    if (err) kc_test_cluster_free(c);
    else *cluster = c;
    return err;
}

kc_err kc_test_cluster_attach(const char *where, int64_t timeout_us, kc_test_cluster **cluster, kc_error **error) {
    struct kt_address at;
    if (!where || !cluster) return kt_fail(error, KC_INVALID, "where the cluster is, or where the handle goes, is missing");
    if (!kt_address_parse(where, &at)) return kt_fail(error, KC_INVALID, "'%s' is neither http://HOST:PORT nor a folder", where);
    if (timeout_us < KC_FOREVER) return kt_fail(error, KC_INVALID, "timeout_us is 0, KC_FOREVER or a duration");
    kc_test_cluster *c = cluster_new(&(kc_test_options){.timeout_us = timeout_us});
    if (!c) return kt_fail(error, KC_NO_MEMORY, "out of memory");
    c->attached = true;
    c->at = at;
    c->admin = strdup(where);
    kc_err err = c->admin ? look_up(c, error) : kt_fail(error, KC_NO_MEMORY, "out of memory");
    if (err) kc_test_cluster_free(c);
    else *cluster = c;
    return err;
}

/* ---- End ---- */

static kc_err stop(kc_test_cluster *c, kc_error **error) {
    struct kt_process *p = &c->process;
    char fate[40], said[KT_LOG_SHOWN + 2];
    if (c->stopped) return kt_fail(error, KC_CLOSED, "the cluster was stopped before");
    bool ended = kt_process_ended(p, 0);
    if (!ended) {
        kill(p->pid, SIGTERM);
        if (!kt_process_ended(p, kt_deadline(c->timeout_us, KT_CALL_DEFAULT_S)))
            return kt_fail(error, KC_TIMED_OUT, "the cluster does not end%s", kt_process_said(p, said));
    }
    c->stopped = true;
    if (!ended && p->status == 0) return KC_OK;
    return kt_fail(error, KC_TRANSPORT, "the cluster %s (%s)%s", ended ? "had ended before it was stopped" : "did not end cleanly",
                   kt_process_fate(p, fate, sizeof fate), kt_process_said(p, said));
}

kc_err kc_test_cluster_stop(kc_test_cluster *c, kc_error **error) {
    if (!c || c->attached) return kt_fail(error, KC_INVALID, "only who started a cluster can stop it");
    if (getpid() != c->owner) return kt_fail(error, KC_FORKED, "this process was forked from the one that the cluster belongs to");
    pthread_mutex_lock(&c->lock);
    kc_err err = stop(c, error);
    pthread_mutex_unlock(&c->lock);
    return err;
}

void kc_test_cluster_free(kc_test_cluster *c) {
    if (!c) return;
    bool forked = getpid() != c->owner;
    kc_client_free(c->client);
    for (size_t i = 0; i < c->watcher_count; i++) kc_client_free(c->watchers[i]);
    free(c->watchers);
    free(c->watched);
    if (!forked) {
        if (c->ephemeral) { /* it kills its nodes then, and takes its folder away */
            kt_process_end_input(&c->process);
            (void)kt_process_ended(&c->process, kt_deadline(0, c->data ? KT_END_S : KT_END_UNREADY_S));
        }
        kt_process_kill(&c->process);
        pthread_mutex_destroy(&c->lock);
    }
    kt_process_close(&c->process);
    free(c->bootstrap);
    free(c->admin);
    free(c->data);
    free(c);
}

/* ---- What it is ---- */

const char *kc_test_cluster_bootstrap(const kc_test_cluster *c) {
    return c ? c->bootstrap : NULL;
}

const char *kc_test_cluster_admin(const kc_test_cluster *c) {
    return c ? c->admin : NULL;
}

const char *kc_test_cluster_data(const kc_test_cluster *c) {
    return c ? c->data : NULL;
}

int64_t kc_test_cluster_pid(const kc_test_cluster *c) {
    if (!c || getpid() != c->owner) return 0;
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&c->lock; /* another thread may be stopping it */
    pthread_mutex_lock(lock);
    int64_t pid = c->process.pid;
    pthread_mutex_unlock(lock);
    return pid;
}

static kc_client *make_client(const char *bootstrap) {
    kc_client *client = NULL;
    kc_config *config = kc_config_new();
    bool set = config && !kc_config_set(config, "bootstrap.servers", bootstrap, NULL) && !kc_config_set(config, "client.id", "kclient_test", NULL) &&
               !kc_config_set(config, "request.timeout.ms", "5000", NULL) && !kc_config_set(config, "log_level", "0", NULL);
    if (set) (void)kc_client_new(config, &client, NULL);
    kc_config_free(config);
    return client;
}

kc_client *kc_test_cluster_client(kc_test_cluster *c) {
    if (!c || getpid() != c->owner) return NULL;
    pthread_mutex_lock(&c->lock);
    if (!c->client && !c->stopped) c->client = make_client(c->bootstrap);
    kc_client *client = c->stopped ? NULL : c->client;
    pthread_mutex_unlock(&c->lock);
    return client;
}

/* With the lock: the one for these addresses. NULL: no memory. */
static kc_client *watcher_for(kc_test_cluster *c, const char *bootstrap) {
    if (c->watched && strcmp(c->watched, bootstrap) == 0) return c->watchers[c->watcher_count - 1];
    char *watched = strdup(bootstrap);
    kc_client **more = realloc(c->watchers, (c->watcher_count + 1) * sizeof *more);
    if (more) c->watchers = more;
    kc_client *client = more && watched ? make_client(bootstrap) : NULL;
    if (!client) {
        free(watched);
        return NULL;
    }
    free(c->watched);
    c->watched = watched;
    return c->watchers[c->watcher_count++] = client;
}

kc_err kt_watcher(kc_test_cluster *c, kc_client **out, kc_error **error) {
    json_t *answer = NULL;
    kc_err err = kt_ask(c, "GET", "/cluster", NULL, &answer, error);
    if (err) return err;
    const char *bootstrap = json_string_value(json_object_get(answer, "bootstrap"));
    pthread_mutex_lock(&c->lock);
    kc_client *client = bootstrap && !c->stopped ? watcher_for(c, bootstrap) : NULL;
    bool stopped = c->stopped;
    pthread_mutex_unlock(&c->lock);
    json_decref(answer);
    if (stopped) return kt_fail(error, KC_CLOSED, "the cluster was stopped");
    if (!client) return bootstrap ? kt_fail(error, KC_NO_MEMORY, "out of memory") : kt_bad_answer(error, "bootstrap");
    *out = client;
    return KC_OK;
}
