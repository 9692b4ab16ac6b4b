/* ask.c - requests to the cluster's admin port with JSON both ways; what it refuses becomes an error. Called by the files of the test kit. Calls http.c. */
#include "testkit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

kc_err kt_fail(kc_error **error, kc_err code, const char *fmt, ...) {
    char text[4096];
    if (!error) return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    *error = kc_error_new(code, KC_NOT_PERSISTED, text);
    return code;
}

kc_err kt_bad_answer(kc_error **error, const char *what) {
    return kt_fail(error, KC_BAD_MESSAGE, "the cluster's answer has no %s: is this kbroker of another version?", what);
}

/* What the child was seen to do, where that explains why nobody answers. */
static kc_err no_answer(kc_test_cluster *c, kc_err err, const char *method, const char *path, const char *why, kc_error **error) {
    char fate[40] = "", said[KT_LOG_SHOWN + 2];
    const char *tail = "";
    pthread_mutex_lock(&c->lock);
    bool stopped = c->stopped, ended = false;
    if (!c->attached && !stopped) {
        ended = err == KC_TRANSPORT ? kt_process_ended(&c->process, kt_now_us() + 200000) : c->process.pid == 0;
        kt_process_fate(&c->process, fate, sizeof fate);
        tail = kt_process_said(&c->process, said);
    }
    pthread_mutex_unlock(&c->lock);
    if (stopped) return kt_fail(error, KC_CLOSED, "%s %s: the cluster was stopped", method, path);
    if (ended) return kt_fail(error, KC_TRANSPORT, "%s %s: the cluster has ended (%s)%s", method, path, fate, tail);
    return kt_fail(error, err, "%s %s at %s: %s%s", method, path, c->admin, why, tail);
}

static kc_err ask(kc_test_cluster *c, const char *method, const char *path, const char *body, struct kt_answer *out, kc_error **error) {
    char why[400];
    if (getpid() != c->owner) return kt_fail(error, KC_FORKED, "this process was forked from the one that the cluster belongs to");
    pthread_mutex_lock(&c->lock);
    bool stopped = c->stopped;
    if (!stopped) kt_process_drain(&c->process);
    pthread_mutex_unlock(&c->lock);
    if (stopped) return kt_fail(error, KC_CLOSED, "%s %s: the cluster was stopped", method, path);
    kc_err err = kt_http(&c->at, method, path, body, kt_deadline(c->timeout_us, KT_CALL_DEFAULT_S), out, why, sizeof why);
    return err ? no_answer(c, err, method, path, why, error) : KC_OK;
}

static kc_err refused(const char *method, const char *path, const struct kt_answer *a, const json_t *body, kc_error **error) {
    const char *text = json_string_value(json_object_get(body, "error"));
    kc_err code = a->status == 409 ? KC_UNSUPPORTED : a->status < 500 ? KC_INVALID : KC_TRANSPORT;
    return kt_fail(error, code, "%s %s: %s", method, path, text ? text : a->body);
}

kc_err kt_ask(kc_test_cluster *c, const char *method, const char *path, const json_t *body, json_t **out, kc_error **error) {
    struct kt_answer a = {0};
    json_error_t why;
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    if (body && !text) return kt_fail(error, KC_NO_MEMORY, "%s %s: out of memory", method, path);
    kc_err err = ask(c, method, path, text, &a, error);
    free(text);
    if (err) return err;
    json_t *answer = json_loadb(a.body, a.size, 0, &why);
    if (a.status != 200) err = refused(method, path, &a, answer, error);
    else if (!json_is_object(answer)) err = kt_fail(error, KC_BAD_MESSAGE, "%s %s: the cluster's answer is no JSON object: %.200s", method, path, a.body);
    free(a.body);
    if (!err && out) *out = answer;
    else json_decref(answer);
    return err;
}

kc_err kc_test_request(kc_test_cluster *c, const char *method, const char *path, const char *body, int32_t *status, char **answer, kc_error **error) {
    struct kt_answer a = {0};
    if (!c || !method || !path || *path != '/' || strpbrk(path, " \r\n") || strpbrk(method, " \r\n"))
        return kt_fail(error, KC_INVALID, "a request needs a method, and a path that begins with / and has no blanks");
    kc_err err = ask(c, method, path, body, &a, error);
    if (err) return err;
    if (status) *status = a.status;
    if (answer) *answer = a.body;
    else free(a.body);
    return KC_OK;
}

void kc_test_text_free(char *text) {
    free(text);
}

kc_err kt_ask_nodes(kc_test_cluster *c, const char *method, const char *path, const int32_t *nodes, size_t n, const json_t *body, json_t **out,
                    kc_error **error) {
    if (!c || n > KT_NODES_MAX || (n > 0 && !nodes))
        return kt_fail(error, KC_INVALID, "%s %s: a cluster, and at most %d nodes, are needed", method, path, KT_NODES_MAX);
    size_t cap = strlen(path) + 16 + n * 12, at;
    char *text = malloc(cap);
    if (!text) return kt_fail(error, KC_NO_MEMORY, "%s %s: out of memory", method, path);
    at = (size_t)snprintf(text, cap, "%s%s", path, n ? "?node=" : "");
    for (size_t i = 0; i < n; i++) at += (size_t)snprintf(text + at, cap - at, "%s%d", i ? "," : "", (int)nodes[i]);
    kc_err err = kt_ask(c, method, text, body, out, error);
    free(text);
    return err;
}

json_t *kt_nodes_in(const json_t *answer, kc_error **error) {
    json_t *nodes = json_object_get(answer, "nodes");
    if (json_is_array(nodes)) return nodes;
    kt_bad_answer(error, "list of nodes");
    return NULL;
}

kc_err kt_text_of(json_t *answer, char **out, kc_error **error) {
    char *text = json_dumps(answer, JSON_COMPACT);
    json_decref(answer);
    if (!text) return kt_fail(error, KC_NO_MEMORY, "out of memory");
    *out = text;
    return KC_OK;
}
