/* nodes.c - what nodes a cluster has, what is done to them, and what they write to their logs. Calls ask.c. */
#include "testkit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Orders ---- */

static const char *const actions[] = {[KC_TEST_STOP] = "stop",   [KC_TEST_KILL] = "kill", [KC_TEST_PAUSE] = "pause", [KC_TEST_RESUME] = "resume",
                                      [KC_TEST_START] = "start", [KC_TEST_WIPE] = "wipe", [KC_TEST_ADD] = "add"};

kc_err kc_test_nodes(kc_test_cluster *c, int32_t action, const int32_t *ids, size_t n, kc_error **error) {
    if (!c || action < KC_TEST_STOP || action > KC_TEST_ADD) return kt_fail(error, KC_INVALID, "%d is none of enum kc_test_action", (int)action);
    if (!ids || n == 0 || n > KT_NODES_MAX) return kt_fail(error, KC_INVALID, "%s: 1 to %d nodes have to be named", actions[action], KT_NODES_MAX);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer(ids[i]));
    json_t *body = json_pack("{s:s, s:o}", "do", actions[action], "ids", list);
    if (!body) return kt_fail(error, KC_NO_MEMORY, "out of memory");
    kc_err err = kt_ask(c, "POST", "/nodes", body, NULL, error);
    json_decref(body);
    return err;
}

kc_err kc_test_node_stop(kc_test_cluster *c, int32_t id, kc_error **error) {
    return kc_test_nodes(c, KC_TEST_STOP, &id, 1, error);
}
kc_err kc_test_node_kill(kc_test_cluster *c, int32_t id, kc_error **error) {
    return kc_test_nodes(c, KC_TEST_KILL, &id, 1, error);
}
kc_err kc_test_node_pause(kc_test_cluster *c, int32_t id, kc_error **error) {
    return kc_test_nodes(c, KC_TEST_PAUSE, &id, 1, error);
}
kc_err kc_test_node_resume(kc_test_cluster *c, int32_t id, kc_error **error) {
    return kc_test_nodes(c, KC_TEST_RESUME, &id, 1, error);
}
kc_err kc_test_node_start(kc_test_cluster *c, int32_t id, kc_error **error) {
    return kc_test_nodes(c, KC_TEST_START, &id, 1, error);
}
kc_err kc_test_node_wipe(kc_test_cluster *c, int32_t id, kc_error **error) {
    return kc_test_nodes(c, KC_TEST_WIPE, &id, 1, error);
}
kc_err kc_test_node_add(kc_test_cluster *c, int32_t id, kc_error **error) {
    return kc_test_nodes(c, KC_TEST_ADD, &id, 1, error);
}

/* ---- Description ---- */

struct kc_test_info {
    json_t *answer; /* the strings are its */
    char *json;
    const char *version;
    size_t count;
    kc_test_node nodes[];
};

static int32_t roles_of(const json_t *node) {
    int32_t roles = 0;
    size_t i;
    const json_t *r;
    json_array_foreach(json_object_get(node, "roles"), i, r) {
        const char *name = json_string_value(r);
        if (name && !strcmp(name, "broker")) roles |= KC_TEST_BROKER;
        if (name && !strcmp(name, "controller")) roles |= KC_TEST_CONTROLLER;
    }
    return roles;
}

static bool state_of(const json_t *node, int32_t *state) {
    static const char *const names[] = {
        [KC_TEST_NODE_DOWN] = "down", [KC_TEST_NODE_STARTING] = "starting", [KC_TEST_NODE_UP] = "up", [KC_TEST_NODE_PAUSED] = "paused"};
    const char *name = json_string_value(json_object_get(node, "state"));
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *state = (int32_t)i;
        return true;
    }
    return false;
}

static bool read_node(const json_t *node, kc_test_node *out) {
    const json_t *id = json_object_get(node, "id");
    const char *address = json_string_value(json_object_get(node, "address"));
    if (!json_is_integer(id) || !address || !state_of(node, &out->state)) return false;
    out->id = (int32_t)json_integer_value(id);
    out->roles = roles_of(node);
    out->pid = json_integer_value(json_object_get(node, "pid"));
    out->address = address;
    return true;
}

kc_err kc_test_describe(kc_test_cluster *c, kc_test_info **out, kc_error **error) {
    json_t *answer = NULL;
    if (!c || !out) return kt_fail(error, KC_INVALID, "the cluster, or where its description goes, is missing");
    kc_err err = kt_ask(c, "GET", "/cluster", NULL, &answer, error);
    if (err) return err;
    json_t *nodes = kt_nodes_in(answer, error);
    const char *version = json_string_value(json_object_get(answer, "version"));
    size_t n = json_array_size(nodes);
    kc_test_info *i = nodes ? calloc(1, sizeof *i + n * sizeof i->nodes[0]) : NULL;
    if (!i) {
        json_decref(answer);
        return nodes ? kt_fail(error, KC_NO_MEMORY, "out of memory") : KC_BAD_MESSAGE;
    }
    *i = (kc_test_info){.answer = answer, .json = json_dumps(answer, JSON_COMPACT), .version = version, .count = n};
    for (size_t k = 0; k < n && version; k++)
        if (!read_node(json_array_get(nodes, k), &i->nodes[k])) version = NULL;
    if (version && i->json) {
        *out = i;
        return KC_OK;
    }
    err = version ? kt_fail(error, KC_NO_MEMORY, "out of memory") : kt_bad_answer(error, "version, or nodes that can be read");
    kc_test_info_free(i);
    return err;
}

size_t kc_test_info_node_count(const kc_test_info *i) {
    return i ? i->count : 0;
}

kc_err kc_test_info_node(const kc_test_info *i, size_t index, kc_test_node *out) {
    if (!i || !out || index >= i->count) return KC_INVALID;
    *out = i->nodes[index];
    return KC_OK;
}

const char *kc_test_info_version(const kc_test_info *i) {
    return i ? i->version : NULL;
}

const char *kc_test_info_json(const kc_test_info *i) {
    return i ? i->json : NULL;
}

void kc_test_info_free(kc_test_info *i) {
    if (!i) return;
    json_decref(i->answer);
    free(i->json);
    free(i);
}

/* ---- Logs ---- */

/* The file's last `max` bytes, from a line's begin on. */
static char *tail_of(FILE *f, size_t max) {
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    if (size < 0) return NULL;
    size_t n = max > 0 && (size_t)size > max ? max : (size_t)size;
    char *text = malloc(n + 1), *line;
    if (!text || fseek(f, size - (long)n, SEEK_SET) != 0) {
        free(text);
        return NULL;
    }
    text[fread(text, 1, n, f)] = 0;
    if (n < (size_t)size && (line = strchr(text, '\n'))) memmove(text, line + 1, strlen(line));
    return text;
}

kc_err kc_test_node_log(kc_test_cluster *c, int32_t id, size_t max_bytes, char **text, kc_error **error) {
    char path[4200];
    if (!c || !text) return kt_fail(error, KC_INVALID, "the cluster, or where the log goes, is missing");
    snprintf(path, sizeof path, "%s/node-%d.log", c->data, (int)id);
    FILE *f = fopen(path, "re");
    if (!f) return kt_fail(error, KC_INVALID, "%s: %s", path, strerror(errno));
    char *tail = tail_of(f, max_bytes);
    fclose(f);
    if (!tail) return kt_fail(error, KC_TRANSPORT, "%s cannot be read: %s", path, strerror(errno));
    *text = tail;
    return KC_OK;
}
