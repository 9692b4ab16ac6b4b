/* state.c - status and counts, the virtual clock, snapshots. Calls ask.c. */
#include "testkit.h"

#include <stdlib.h>
#include <string.h>

/* ---- Status ---- */

kc_err kc_test_status(kc_test_cluster *c, const int32_t *nodes, size_t n, char **json, kc_error **error) {
    json_t *answer = NULL;
    if (!json) return kt_fail(error, KC_INVALID, "where the status goes is missing");
    kc_err err = kt_ask_nodes(c, "GET", "/status", nodes, n, NULL, &answer, error);
    return err ? err : kt_text_of(answer, json, error);
}

kc_err kc_test_count(kc_test_cluster *c, const char *name, int64_t *sum, kc_error **error) {
    json_t *answer = NULL;
    size_t i, found = 0;
    const json_t *node;
    int64_t n = 0;
    if (!name || !sum) return kt_fail(error, KC_INVALID, "the count's name, or where it goes, is missing");
    kc_err err = kt_ask_nodes(c, "GET", "/status", NULL, 0, NULL, &answer, error);
    if (err) return err;
    const json_t *nodes = kt_nodes_in(answer, error);
    json_array_foreach(nodes, i, node) {
        const json_t *count = json_object_get(json_object_get(json_object_get(node, "status"), "counts"), name);
        found += json_is_integer(count);
        n += json_integer_value(count);
    }
    if (!nodes) err = KC_BAD_MESSAGE;
    else if (found == 0) err = kt_fail(error, KC_INVALID, "no node that runs counts '%s'; kc_test_status shows what there is", name);
    else *sum = n;
    json_decref(answer);
    return err;
}

/* ---- The clock ---- */

kc_err kc_test_advance(kc_test_cluster *c, int64_t advance_ms, kc_error **error) {
    if (!c || advance_ms < 1) return kt_fail(error, KC_INVALID, "a clock is advanced by 1 ms or more");
    json_t *body = json_pack("{s:I}", "advance_ms", (json_int_t)advance_ms);
    if (!body) return kt_fail(error, KC_NO_MEMORY, "out of memory");
    kc_err err = kt_ask(c, "POST", "/clock", body, NULL, error);
    json_decref(body);
    return err;
}

kc_err kc_test_clock(kc_test_cluster *c, int64_t *wall_ms, int64_t *advanced_ms, kc_error **error) {
    json_t *answer = NULL;
    if (!c) return kt_fail(error, KC_INVALID, "the cluster is missing");
    kc_err err = kt_ask(c, "GET", "/clock", NULL, &answer, error);
    if (err) return err;
    const json_t *wall = json_object_get(answer, "wall_ms"), *advanced = json_object_get(answer, "advanced_ms");
    if (!json_is_integer(wall)) {
        err = kt_bad_answer(error, "wall_ms");
    } else {
        if (wall_ms) *wall_ms = json_integer_value(wall);
        if (advanced_ms) *advanced_ms = json_integer_value(advanced);
    }
    json_decref(answer);
    return err;
}

/* ---- Snapshots ---- */

static kc_err snapshot(kc_test_cluster *c, const char *what, const char *name, int32_t replace, int64_t *bytes, kc_error **error) {
    json_t *answer = NULL;
    if (!c || !name || !*name) return kt_fail(error, KC_INVALID, "a snapshot needs a name");
    json_t *body = json_pack("{s:s}", what, name);
    if (!body) return kt_fail(error, KC_INVALID, "a snapshot's name is text in UTF-8");
    if (replace) json_object_set_new(body, "replace", json_true());
    kc_err err = kt_ask(c, "POST", "/snapshots", body, &answer, error);
    if (!err && bytes) *bytes = json_integer_value(json_object_get(answer, "bytes"));
    json_decref(answer);
    json_decref(body);
    return err;
}

kc_err kc_test_snapshot_save(kc_test_cluster *c, const char *name, int32_t replace, int64_t *bytes, kc_error **error) {
    return snapshot(c, "save", name, replace, bytes, error);
}

kc_err kc_test_snapshot_restore(kc_test_cluster *c, const char *name, kc_error **error) {
    return snapshot(c, "restore", name, 0, NULL, error);
}

/* The name as a part of a query. */
static char *escaped(const char *name) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~", hex[] = "0123456789ABCDEF", path[] = "/snapshots?name=";
    char *text = malloc(sizeof path + 3 * strlen(name)), *at = text;
    if (!text) return NULL;
    at = stpcpy(text, path);
    for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
        if (strchr(plain, *p)) {
            *at++ = (char)*p;
        } else {
            *at++ = '%';
            *at++ = hex[*p >> 4];
            *at++ = hex[*p & 15];
        }
    }
    *at = 0;
    return text;
}

kc_err kc_test_snapshot_delete(kc_test_cluster *c, const char *name, kc_error **error) {
    if (!c || !name || !*name) return kt_fail(error, KC_INVALID, "a snapshot needs a name");
    char *path = escaped(name);
    if (!path) return kt_fail(error, KC_NO_MEMORY, "out of memory");
    kc_err err = kt_ask(c, "DELETE", path, NULL, NULL, error);
    free(path);
    return err;
}

kc_err kc_test_snapshot_list(kc_test_cluster *c, char **json, kc_error **error) {
    json_t *answer = NULL;
    if (!c || !json) return kt_fail(error, KC_INVALID, "the cluster, or where the list goes, is missing");
    kc_err err = kt_ask(c, "GET", "/snapshots", NULL, &answer, error);
    return err ? err : kt_text_of(answer, json, error);
}
