/* cluster_command.c - POST /nodes of the cluster's admin port: nodes are stopped, killed, paused, resumed, started, wiped, added; whoever asks is
 * answered once it has come about.
 *
 * Called by cluster_http, cluster_children and libuv.
 */
#include "cluster_priv.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell_command.h"
#include "shell_snapshot.h"

enum { WAIT_MS = 60000 };

enum verb { STOP, KILL, PAUSE, RESUME, START, WIPE, ADD, VERBS };
static const char *const verbs[VERBS] = {"stop", "kill", "pause", "resume", "start", "wipe", "add"};

struct kb_order {
    struct kb_cluster *c;
    struct kb_order *next, **at;
    struct kb_http_request *request;
    uv_timer_t *timer;
    enum verb verb;
    int32_t ids[KB_CLUSTER_NODES_MAX];
    size_t count;
};

static void drop(struct kb_order *o) {
    *o->at = o->next;
    if (o->next) o->next->at = o->at;
    uv_close((uv_handle_t *)o->timer, kb_cluster_handle_freed);
    free(o);
}

void kb_cluster_drop_orders(struct kb_cluster *c) {
    while (c->orders) drop(c->orders);
}

/* ---- Until it has come about ---- */

static bool has_come_about(const struct kb_order *o, const struct kb_child *k) {
    switch (o->verb) {
    case PAUSE:
        return kb_child_is_paused(k);
    case RESUME:
        return !k->paused && (k->life != UP || kb_child_is_in_time(k));
    case START:
    case ADD:
        return k->life == UP && !k->paused && kb_child_is_in_time(k);
    default:
        return k->life == DOWN;
    }
}

static void answer_done(struct kb_order *o) {
    char *json = kb_cluster_describe(o->c);
    if (json)
        kb_http_answer(o->request, KB_HTTP_OK, json);
    else
        kb_http_refuse(o->request, KB_HTTP_FAILED, "out of memory");
    free(json);
    drop(o);
}

static void look_at(struct kb_order *o) {
    struct kb_cluster *c = o->c;
    char why[100];
    bool lives = o->verb == PAUSE || o->verb == RESUME || o->verb == START || o->verb == ADD; /* when it has come about */
    for (size_t i = 0; i < o->count; i++) {
        struct kb_child *k = kb_child_of(c, kb_cluster_plan_find(&c->plan, o->ids[i]));
        if (lives && k->life == DOWN) {
            kb_http_refuse(o->request, KB_HTTP_FAILED, "node %d ended while it was to %s (%s): see %s/node-%d.log", o->ids[i], verbs[o->verb],
                           kb_child_end_text(k, why, sizeof(why)), c->dir, o->ids[i]);
            drop(o);
            return;
        }
        if (!has_come_about(o, k)) return;
    }
    answer_done(o);
}

void kb_cluster_look_at_orders(struct kb_cluster *c) {
    for (struct kb_order *o = c->orders, *next; o; o = next) {
        next = o->next;
        look_at(o);
    }
}

static void late(uv_timer_t *t) {
    struct kb_order *o = t->data;
    kb_http_refuse(o->request, KB_HTTP_FAILED, "not done after %d s; it may still come: kbroker cluster status --data %s", WAIT_MS / 1000, o->c->dir);
    drop(o);
}

/* ---- What is to be done ---- */

/* Why it cannot be done to this node; NULL: it can. */
static const char *refuses(enum verb verb, const struct kb_child *k) {
    switch (verb) {
    case STOP:
    case KILL:
        return k->pid ? NULL : "it does not run";
    case PAUSE:
        return !k->pid ? "it does not run" : kb_child_is_paused(k) ? "it is paused already" : NULL;
    case RESUME:
        return !k->pid ? "it does not run: start starts it" : kb_child_is_paused(k) ? NULL : "it is not paused";
    case START:
        return k->pid && !kb_child_is_paused(k) ? "it runs already" : NULL;
    case WIPE:
        return k->pid ? "it runs: stop or kill it first" : NULL;
    default:
        return NULL;
    }
}

static int wipe(struct kb_order *o, int32_t id) {
    char path[4200];
    snprintf(path, sizeof(path), "%s/node-%d", o->c->dir, id);
    if (kb_command_remove_tree(path) == 0 || errno == ENOENT) return 0;
    kb_http_refuse(o->request, KB_HTTP_FAILED, "%.900s cannot be removed: %s", path, strerror(errno));
    return -1;
}

static int act(struct kb_order *o, struct kb_cluster_node *n) {
    struct kb_child *k = kb_child_of(o->c, n);
    switch (o->verb) {
    case STOP:
        kb_child_signal(k, SIGTERM);
        return 0;
    case KILL:
        kb_child_signal(k, SIGKILL);
        return 0;
    case PAUSE:
        k->paused = k->held = false; /* of a snapshot that has just been taken, perhaps: waited for is this stop */
        k->to_pause = true;
        kill(k->pid, SIGSTOP);
        return 0;
    case WIPE:
        return wipe(o, n->id);
    default:
        break;
    }
    if (k->pid != 0) { /* start or resume of a paused one */
        kill(k->pid, SIGCONT);
        k->paused = false; /* from now on it writes: a snapshot that is asked for this moment must not take it for one that stands */
        return 0;
    }
    if (kb_child_start(o->c, n) == 0) return 0;
    kb_http_refuse(o->request, KB_HTTP_FAILED, "node %d cannot be started: %s", n->id, strerror(errno));
    return -1;
}

static int add_nodes(struct kb_order *o) {
    struct kb_cluster_plan plan = o->c->plan;
    char text[400];
    for (size_t i = 0; i < o->count; i++) {
        if (kb_cluster_plan_add(&plan, o->ids[i], text, sizeof(text)) == 0) continue;
        kb_http_refuse(o->request, KB_HTTP_CONFLICT, "%s; nothing was done", text);
        return -1;
    }
    if (kb_cluster_plan_write(&plan, o->c->dir, text, sizeof(text)) != 0) {
        kb_http_refuse(o->request, KB_HTTP_FAILED, "%s; nothing was done", text);
        return -1;
    }
    o->c->plan = plan;
    return 0;
}

/* All or none, as far as it can be known before. -1: refused. */
static int carry_out(struct kb_order *o) {
    struct kb_cluster *c = o->c;
    if ((o->verb == START || o->verb == ADD) && kb_restore_is_unfinished(c->dir)) {
        kb_http_refuse(o->request, KB_HTTP_CONFLICT, "a restore is not finished: mend what it said, and end the cluster and start it again; nothing was done");
        return -1;
    }
    if (o->verb == ADD && add_nodes(o) != 0) return -1;
    for (size_t i = 0; i < o->count; i++) {
        const struct kb_cluster_node *n = kb_cluster_plan_find(&c->plan, o->ids[i]);
        const char *why = n ? refuses(o->verb, kb_child_of(c, n)) : "there is none of this id";
        if (!why) continue;
        kb_http_refuse(o->request, n ? KB_HTTP_CONFLICT : KB_HTTP_NOT_FOUND, "node %d: %s; nothing was done", o->ids[i], why);
        return -1;
    }
    for (size_t i = 0; i < o->count; i++)
        if (act(o, kb_cluster_plan_find(&c->plan, o->ids[i])) != 0) return -1;
    return 0;
}

/* ---- What is asked ---- */

static int take_ids(struct kb_order *o, const json_t *ids) {
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX || o->count == KB_CLUSTER_NODES_MAX) {
            kb_http_refuse(o->request, KB_HTTP_BAD_REQUEST, "ids wants numbers of nodes, at most %d", KB_CLUSTER_NODES_MAX);
            return -1;
        }
        for (size_t k = 0; k < o->count; k++) {
            if (o->ids[k] != json_integer_value(id)) continue;
            kb_http_refuse(o->request, KB_HTTP_BAD_REQUEST, "node %d: it is named twice; nothing was done", o->ids[k]);
            return -1;
        }
        o->ids[o->count++] = (int32_t)json_integer_value(id);
    }
    if (o->count > 0) return 0;
    kb_http_refuse(o->request, KB_HTTP_BAD_REQUEST, "ids is missing: the nodes' numbers, as in {\"do\": \"kill\", \"ids\": [0, 1]}");
    return -1;
}

static int take(struct kb_order *o, const json_t *root) {
    const char *word = json_string_value(json_object_get(root, "do")), *near;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)root, name, value) {
        if (strcmp(name, "do") == 0 || strcmp(name, "ids") == 0) continue;
        kb_http_refuse(o->request, KB_HTTP_BAD_REQUEST, "unknown field \"%.100s\": there are do and ids", name);
        return -1;
    }
    o->verb = 0;
    while (word && o->verb < VERBS && strcmp(verbs[o->verb], word) != 0) o->verb++;
    if (word && o->verb < VERBS) return take_ids(o, json_object_get(root, "ids"));
    near = word ? kb_command_nearest(word, verbs, VERBS) : NULL;
    kb_http_refuse(o->request, KB_HTTP_BAD_REQUEST, "do is %s%.100s%s: it is one of stop, kill, pause, resume, start, wipe, add%s%s", word ? "\"" : "",
                   word ? word : "missing", word ? "\"" : "", near ? "; did you mean " : "", near ? near : "");
    return -1;
}

static int parse(struct kb_order *o) {
    json_error_t e;
    json_t *root = json_loads(kb_http_body(o->request), JSON_REJECT_DUPLICATES, &e);
    int err = -1;
    if (json_is_object(root))
        err = take(o, root);
    else
        kb_http_refuse(o->request, KB_HTTP_BAD_REQUEST, "%s: wanted {\"do\": \"kill\", \"ids\": [0, 1]}", root ? "this is no object" : e.text);
    json_decref(root);
    return err;
}

void kb_cluster_order(struct kb_cluster *c, struct kb_http_request *r) {
    struct kb_order *o = calloc(1, sizeof(*o));
    uv_timer_t *timer = calloc(1, sizeof(*timer));
    if (!o || !timer) {
        free(o);
        free(timer);
        kb_http_refuse(r, KB_HTTP_FAILED, "out of memory");
        return;
    }
    *o = (struct kb_order){.c = c, .request = r, .timer = timer, .next = c->orders, .at = &c->orders};
    if (o->next) o->next->at = &o->next;
    c->orders = o;
    uv_timer_init(&c->loop, timer);
    timer->data = o;
    if (c->stopping) {
        kb_http_refuse(r, KB_HTTP_CONFLICT, "the cluster is stopping");
        drop(o);
    } else if (c->snapshot) {
        kb_http_refuse(r, KB_HTTP_CONFLICT, "a snapshot is being saved or restored: wait for its end");
        drop(o);
    } else if (parse(o) != 0 || carry_out(o) != 0) {
        drop(o);
    } else {
        uv_timer_start(timer, late, WAIT_MS, 0);
        look_at(o);
    }
}
