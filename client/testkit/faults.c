/* faults.c - fault rules: out of a struct or JSON, onto nodes, and what became of them. Calls ask.c, nodes.c.
 *
 * A rule has a number on each node, which counts for the life of that node's process: the handle knows the processes.
 */
#include "testkit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- From a struct to JSON ---- */

static void put_text(json_t *o, const char *name, const char *text) {
    if (text) json_object_set_new(o, name, json_string(text));
}

static void put_number(json_t *o, const char *name, int64_t n, bool given) {
    if (n != 0 || given) json_object_set_new(o, name, json_integer(n));
}

static void put_flag(json_t *o, const char *name, int32_t flag) {
    if (flag) json_object_set_new(o, name, json_true());
}

/* A name, or a number as text. */
static void put_name_or_number(json_t *o, const char *name, const char *text) {
    char *end;
    if (!text) return;
    long long n = strtoll(text, &end, 10);
    if (*text && !*end) json_object_set_new(o, name, json_integer(n));
    else put_text(o, name, text);
}

static json_t *rule_of(const kc_test_fault *f) {
    json_t *o = json_object();
    put_name_or_number(o, "api", f->api);
    if (f->version_max > 0 || f->version_min > 0 || f->flags & KC_TEST_HAS_VERSIONS)
        json_object_set_new(o, "versions", json_pack("[i, i]", (int)f->version_min, (int)f->version_max));
    put_text(o, "client_id", f->client_id);
    put_text(o, "topic", f->topic);
    put_text(o, "group", f->group);
    put_text(o, "from", f->from);
    put_number(o, "partition", f->partition, f->flags & KC_TEST_HAS_PARTITION);
    put_number(o, "broker", f->broker, f->flags & KC_TEST_HAS_BROKER);
    put_number(o, "after", f->after, false);
    put_number(o, "nth", f->nth, false);
    put_number(o, "every", f->every, false);
    if (f->percent != 0) json_object_set_new(o, "percent", json_real(f->percent));
    put_number(o, "times", f->times, false);
    put_text(o, "disk", f->disk);
    if (f->after_effect) put_text(o, "when", "after");
    put_flag(o, "close", f->close);
    put_flag(o, "stall", f->stall);
    put_number(o, "delay_ms", f->delay_ms, false);
    put_number(o, "throttle_ms", f->throttle_ms, false);
    put_number(o, "drip_bytes_per_s", f->drip_bytes_per_s, false);
    put_name_or_number(o, "error", f->error);
    put_number(o, "corrupt", f->corrupt, f->flags & KC_TEST_HAS_CORRUPT);
    put_text(o, "note", f->note);
    return o;
}

/* ---- Handles ---- */

struct placed { /* on one node */
    int32_t id;
    int64_t pid;        /* of the process that has it */
    int32_t first;      /* number of the first rule */
    int64_t hits;       /* known last */
    bool there;         /* that process ran when it was looked for last */
};
struct kc_test_rule {
    kc_test_cluster *c;
    pthread_mutex_t lock;
    bool removed;
    int32_t rules; /* on each node */
    size_t count;
    struct placed v[];
};

/* Which of its processes still run, and answer. The state of a paused one stays as it was. */
static kc_err look(kc_test_rule *r, kc_error **error) {
    kc_test_info *info = NULL;
    kc_err err = kc_test_describe(r->c, &info, error);
    if (err) return err;
    for (size_t i = 0; i < r->count; i++) {
        kc_test_node node;
        r->v[i].there = false;
        for (size_t k = 0; kc_test_info_node(info, k, &node) == KC_OK; k++)
            if (node.id == r->v[i].id && node.pid == r->v[i].pid && node.pid > 0 && node.state != KC_TEST_NODE_DOWN)
                r->v[i].there = node.state != KC_TEST_NODE_PAUSED;
    }
    kc_test_info_free(info);
    return KC_OK;
}

static kc_test_rule *rule_new(kc_test_cluster *c, const json_t *nodes, int32_t rules) {
    size_t n = json_array_size(nodes);
    kc_test_rule *r = calloc(1, sizeof *r + n * sizeof r->v[0]);
    if (!r) return NULL;
    pthread_mutex_init(&r->lock, NULL);
    r->c = c;
    r->rules = rules;
    r->count = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *node = json_array_get(nodes, i);
        r->v[i].id = (int32_t)json_integer_value(json_object_get(node, "id"));
        r->v[i].first = (int32_t)json_integer_value(json_object_get(node, "first"));
    }
    return r;
}

/* A node that ends this moment has lost the rule. */
static kc_err learn_pids(kc_test_rule *r, kc_error **error) {
    kc_test_info *info = NULL;
    kc_err err = kc_test_describe(r->c, &info, error);
    if (err) return err;
    for (size_t i = 0; i < r->count; i++) {
        kc_test_node node;
        for (size_t k = 0; kc_test_info_node(info, k, &node) == KC_OK; k++)
            if (node.id == r->v[i].id) r->v[i].pid = node.pid;
    }
    kc_test_info_free(info);
    return KC_OK;
}

static int32_t count_rules(const json_t *rules) {
    const json_t *list = json_is_object(rules) ? json_object_get(rules, "rules") : rules;
    return json_is_array(list) ? (int32_t)json_array_size(list) : 1;
}

static kc_err add(kc_test_cluster *c, const json_t *rules, const int32_t *nodes, size_t n, kc_test_rule **rule, kc_error **error) {
    json_t *answer = NULL, *placed = NULL;
    kc_err err = kt_ask_nodes(c, "POST", "/faults", nodes, n, rules, &answer, error);
    if (err) return err;
    if (rule && !(placed = kt_nodes_in(answer, error))) err = KC_BAD_MESSAGE;
    kc_test_rule *r = placed ? rule_new(c, placed, count_rules(rules)) : NULL;
    if (placed) err = r ? learn_pids(r, error) : kt_fail(error, KC_NO_MEMORY, "out of memory");
    json_decref(answer);
    if (err) kc_test_rule_free(r);
    else if (rule) *rule = r;
    return err;
}

kc_err kc_test_fault_add(kc_test_cluster *c, const kc_test_fault *fault, size_t size, const int32_t *nodes, size_t n, kc_test_rule **rule, kc_error **error) {
    kc_test_fault f = {0};
    if (!fault || size < sizeof f.flags) return kt_fail(error, KC_INVALID, "the fault, or its size, is missing");
    memcpy(&f, fault, size < sizeof f ? size : sizeof f);
    json_t *o = rule_of(&f);
    kc_err err = o ? add(c, o, nodes, n, rule, error) : kt_fail(error, KC_NO_MEMORY, "out of memory");
    json_decref(o);
    return err;
}

kc_err kc_test_fault_add_json(kc_test_cluster *c, const char *json, const int32_t *nodes, size_t n, kc_test_rule **rule, kc_error **error) {
    json_error_t why;
    if (!json) return kt_fail(error, KC_INVALID, "the rules are missing");
    json_t *o = json_loads(json, 0, &why);
    if (!o) return kt_fail(error, KC_INVALID, "the rules are no JSON: line %d, column %d: %s", why.line, why.column, why.text);
    kc_err err = add(c, o, nodes, n, rule, error);
    json_decref(o);
    return err;
}

/* ---- What became of them ---- */

static kc_err ask_those_there(const kc_test_rule *r, json_t **answer, kc_error **error) {
    int32_t *ids = malloc((r->count + 1) * sizeof *ids);
    size_t n = 0;
    if (!ids) return kt_fail(error, KC_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < r->count; i++)
        if (r->v[i].there) ids[n++] = r->v[i].id;
    kc_err err = n ? kt_ask_nodes(r->c, "GET", "/faults", ids, n, NULL, answer, error) : KC_OK;
    free(ids);
    return err;
}

static void take_hits(struct placed *p, int32_t rules, const json_t *nodes) {
    size_t i, k;
    const json_t *node, *rule;
    int64_t hits = 0;
    json_array_foreach(nodes, i, node) {
        if (json_integer_value(json_object_get(node, "id")) != p->id) continue;
        json_array_foreach(json_object_get(node, "rules"), k, rule) {
            json_int_t number = json_integer_value(json_object_get(rule, "number"));
            if (number >= p->first && number < p->first + rules) hits += json_integer_value(json_object_get(rule, "hits"));
        }
    }
    if (hits > p->hits) p->hits = hits;
}

static kc_err ask_hits(kc_test_rule *r, kc_error **error) {
    json_t *answer = NULL;
    kc_err err = look(r, error);
    if (err) return err;
    err = ask_those_there(r, &answer, error);
    for (size_t i = 0; !err && i < r->count; i++)
        if (r->v[i].there) take_hits(&r->v[i], r->rules, json_object_get(answer, "nodes"));
    json_decref(answer);
    return err;
}

/* A node that ends between the two requests is looked at anew. */
static kc_err learn_hits(kc_test_rule *r, kc_error **error) {
    enum { TRIES = 5 };
    for (int i = 0; !r->removed; i++) {
        kc_error *e = NULL;
        kc_err err = ask_hits(r, &e);
        bool again = err && i < TRIES && (err == KC_UNSUPPORTED || err == KC_TRANSPORT);
        if (again || !error) kc_error_free(e);
        else if (err) *error = e;
        if (!again) return err;
        kt_sleep_ms(20);
    }
    return KC_OK;
}

kc_err kc_test_rule_hits(kc_test_rule *r, int64_t *hits, kc_error **error) {
    int64_t sum = 0;
    if (!r || !hits) return kt_fail(error, KC_INVALID, "the rule, or where its hits go, is missing");
    pthread_mutex_lock(&r->lock);
    kc_err err = learn_hits(r, error);
    for (size_t i = 0; i < r->count; i++) sum += r->v[i].hits;
    pthread_mutex_unlock(&r->lock);
    if (!err) *hits = sum;
    return err;
}

kc_err kc_test_rule_wait(kc_test_rule *r, int64_t wanted, int64_t timeout_us, kc_error **error) {
    int64_t deadline_us = kt_deadline(timeout_us, KT_WAIT_DEFAULT_S), hits = 0;
    for (int64_t ms = 2;; ms = ms < 50 ? 2 * ms : ms) {
        kc_err err = kc_test_rule_hits(r, &hits, error);
        if (err || hits >= wanted) return err;
        if (kt_now_us() >= deadline_us)
            return kt_fail(error, KC_TIMED_OUT, "the rule was to strike %lld times; it has struck %lld times", (long long)wanted, (long long)hits);
        kt_sleep_ms(ms);
    }
}

/* A rule that is not there any more is as good as taken away. */
static kc_err take_away(kc_test_rule *r, const struct placed *p, kc_error **error) {
    for (int32_t k = 0; k < r->rules; k++) {
        char path[80];
        struct kc_error *e = NULL;
        snprintf(path, sizeof path, "/faults?node=%d&rule=%d", (int)p->id, (int)(p->first + k));
        kc_err err = kt_ask(r->c, "DELETE", path, NULL, NULL, &e);
        if (err && err != KC_INVALID) {
            if (error) *error = e;
            else kc_error_free(e);
            return err;
        }
        kc_error_free(e);
    }
    return KC_OK;
}

kc_err kc_test_rule_remove(kc_test_rule *r, kc_error **error) {
    if (!r) return kt_fail(error, KC_INVALID, "the rule is missing");
    pthread_mutex_lock(&r->lock);
    kc_err err = r->removed ? kt_fail(error, KC_CLOSED, "the rule was removed before") : learn_hits(r, error);
    kc_test_info *info = NULL;
    if (!err) err = kc_test_describe(r->c, &info, error);
    for (size_t i = 0; !err && i < r->count; i++) {
        kc_test_node node;
        for (size_t k = 0; !err && kc_test_info_node(info, k, &node) == KC_OK; k++)
            if (node.id == r->v[i].id && node.pid == r->v[i].pid && node.pid > 0) err = take_away(r, &r->v[i], error);
    }
    kc_test_info_free(info);
    if (!err) r->removed = true;
    pthread_mutex_unlock(&r->lock);
    return err;
}

void kc_test_rule_free(kc_test_rule *r) {
    if (!r) return;
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* ---- All rules of nodes ---- */

kc_err kc_test_faults_clear(kc_test_cluster *c, const int32_t *nodes, size_t n, kc_error **error) {
    return kt_ask_nodes(c, "DELETE", "/faults", nodes, n, NULL, NULL, error);
}

kc_err kc_test_faults_list(kc_test_cluster *c, const int32_t *nodes, size_t n, char **json, kc_error **error) {
    json_t *answer = NULL;
    if (!json) return kt_fail(error, KC_INVALID, "where the list goes is missing");
    kc_err err = kt_ask_nodes(c, "GET", "/faults", nodes, n, NULL, &answer, error);
    return err ? err : kt_text_of(answer, json, error);
}
