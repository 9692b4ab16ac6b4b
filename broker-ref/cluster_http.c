/* cluster_http.c - the cluster's admin port: what the cluster is, orders to its nodes (cluster_command), and what is passed on to the nodes' own admin
 * ports (cluster_relay): their status and their fault rules.
 *
 * Called by cluster, admin_http_server and libuv. Served on DIR/.admin.sock always, and where --admin says. README.md, "Admin port", is the contract.
 */
#include "cluster_priv.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell_command.h"

enum { WAIT_S = 15 }; /* a busy machine is no reason to give a node up */

/* A request that is passed on. */
struct passed {
    struct kb_http_request *request;
    const char *under; /* a node's answer goes under this name; NULL: its fields beside the id */
    bool all;          /* no node was named */
    bool changes;      /* what is asked does something */
    bool deletes;      /* a rule that one node does not have may be another's */
};

static void answer_taken(struct kb_http_request *r, char *json) {
    if (json)
        kb_http_answer(r, KB_HTTP_OK, json);
    else
        kb_http_refuse(r, KB_HTTP_FAILED, "out of memory");
    free(json);
}

/* ---- /cluster ---- */

char *kb_cluster_bootstrap(const struct kb_cluster *c) {
    char *text = malloc(c->plan.count * 24 + 1), *at = text;
    if (!text) return NULL;
    *text = 0;
    for (size_t i = 0; i < c->plan.count; i++)
        if (c->plan.nodes[i].broker) at += sprintf(at, "%s127.0.0.1:%u", at == text ? "" : ",", c->plan.nodes[i].port);
    return text;
}

static json_t *describe_node(const struct kb_cluster_node *n, const struct kb_child *k) {
    static const char *const lives[] = {"down", "starting", "up"};
    char address[32];
    json_t *roles = json_array();
    if (n->broker) json_array_append_new(roles, json_string("broker"));
    if (n->controller) json_array_append_new(roles, json_string("controller"));
    snprintf(address, sizeof(address), "127.0.0.1:%u", n->port);
    return json_pack("{s:i, s:o, s:s, s:s, s:i}", "id", (int)n->id, "roles", roles, "address", address, "state",
                     kb_child_is_paused(k) ? "paused" : lives[k->life], "pid", (int)k->pid);
}

char *kb_cluster_describe(struct kb_cluster *c) {
    char *bootstrap = kb_cluster_bootstrap(c), *data = realpath(c->dir, NULL);
    json_t *nodes = json_array();
    for (size_t i = 0; i < c->plan.count; i++) json_array_append_new(nodes, describe_node(&c->plan.nodes[i], &c->children[i]));
    json_t *root = json_pack("{s:s, s:s, s:o, s:b, s:s, s:o}", "version", KB_VERSION, "bootstrap", bootstrap ? bootstrap : "", "data",
                             kb_http_json_text(data ? data : c->dir), "ephemeral", c->ephemeral, "clock", c->clock_is_virtual ? "virtual" : "real", "nodes",
                             nodes);
    char *json = root && bootstrap ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    free(bootstrap);
    free(data);
    return json;
}

/* ---- Passed on ---- */

static json_t *node_answer(const struct passed *p, const struct kb_relay_answer *a) {
    json_t *body = json_loads(a->body, 0, NULL), *node = json_pack("{s:i}", "id", (int)a->id);
    if (p->under)
        json_object_set_new(node, p->under, body);
    else if (body)
        json_object_update_missing(node, body);
    if (!p->under) json_decref(body);
    return node;
}

/* The node of the id is named in what it refused, unless all refuse the same. */
static void answer_refused(const struct passed *p, const struct kb_relay_answer *a, bool named) {
    json_t *body = json_loads(a->body, 0, NULL);
    const char *text = json_string_value(json_object_get(body, "error"));
    char *with = NULL;
    if (named && text && asprintf(&with, "node %d: %s", a->id, text) >= 0) json_object_set_new(body, "error", json_string(with));
    char *json = json_is_object(body) ? json_dumps(body, JSON_COMPACT) : NULL;
    if (json)
        kb_http_answer(p->request, a->status, json);
    else
        kb_http_refuse(p->request, KB_HTTP_FAILED, "node %d answered what cannot be read", a->id);
    free(json);
    free(with);
    json_decref(body);
}

static void answer_silent(const struct passed *p, const struct kb_relay_answer *a) {
    if (a->err == ETIMEDOUT)
        kb_http_refuse(p->request, KB_HTTP_FAILED,
                       "node %d did not answer within %d s: does it stand still? What was asked may have been done on others", a->id, WAIT_S);
    else
        kb_http_refuse(p->request, KB_HTTP_FAILED, "node %d did not answer (%s): does it start, or end, this moment? Try again", a->id, strerror(a->err));
}

static bool not_there(const struct passed *p, const struct kb_relay_answer *a) {
    return p->all && a->status == 0 && (a->err == ECONNREFUSED || a->err == ENOENT || a->err == ECONNRESET || a->err == EPIPE);
}

static size_t with_status(const struct kb_relay_answer *answers, size_t count, int status) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++) n += answers[i].status == status;
    return n;
}

static void passed_on(void *ctx, const struct kb_relay_answer *answers, size_t count) {
    struct passed *p = ctx;
    const struct kb_relay_answer *silent = NULL, *refused = NULL;
    bool may_lack = p->deletes && with_status(answers, count, KB_HTTP_OK) > 0; /* a rule's number that is another node's */
    json_t *nodes = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct kb_relay_answer *a = &answers[i];
        if (a->status == KB_HTTP_OK)
            json_array_append_new(nodes, node_answer(p, a));
        else if (a->status == KB_HTTP_NOT_FOUND && may_lack)
            json_array_append_new(nodes, json_pack("{s:i, s:i}", "id", (int)a->id, "cleared", 0));
        else if (a->status != 0)
            refused = a;
        else if (!not_there(p, a))
            silent = a;
    }
    json_t *root = json_pack("{s:o}", "nodes", nodes);
    if (silent)
        answer_silent(p, silent);
    else if (refused)
        answer_refused(p, refused, with_status(answers, count, refused->status) < count);
    else if (p->changes && json_array_size(nodes) == 0)
        kb_http_refuse(p->request, KB_HTTP_CONFLICT, "no node serves: those that run are starting, or ending, this moment; nothing was done");
    else
        answer_taken(p->request, root ? json_dumps(root, JSON_COMPACT) : NULL);
    json_decref(root);
    free(p);
}

/* Why a node that was named cannot be asked; NULL: it can. */
static const char *unreachable(struct kb_cluster *c, int32_t id, int *status) {
    const struct kb_cluster_node *n = kb_cluster_plan_find(&c->plan, id);
    const struct kb_child *k = n ? kb_child_of(c, n) : NULL;
    *status = n ? KB_HTTP_CONFLICT : KB_HTTP_NOT_FOUND;
    return !n ? "there is none of this id" : k->pid == 0 ? "it does not run" : kb_child_is_paused(k) ? "it is paused: resume it first" : NULL;
}

/* The nodes that ?node= names, or all that run. -1: refused. */
static int nodes_of(struct kb_cluster *c, struct kb_http_request *r, int32_t *ids, size_t *count, bool *all) {
    const char *node = kb_http_query(r, "node");
    *all = !node;
    *count = node ? kb_command_ids(node, ids, KB_CLUSTER_NODES_MAX) : 0;
    if (node && *count == 0) {
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "node= wants ID[,ID...]");
        return -1;
    }
    for (size_t i = 0; i < c->plan.count && !node; i++)
        if (c->children[i].pid != 0 && !kb_child_is_paused(&c->children[i])) ids[(*count)++] = c->plan.nodes[i].id;
    for (size_t i = 0; i < *count; i++) {
        int status;
        const char *why = unreachable(c, ids[i], &status);
        for (size_t k = 0; !why && k < i; k++)
            if (ids[k] == ids[i]) why = "it is named twice", status = KB_HTTP_BAD_REQUEST;
        if (!why) continue;
        kb_http_refuse(r, status, "node %d: %s; nothing was done", ids[i], why);
        return -1;
    }
    if (*count > 0 || kb_http_is(r, "GET")) return 0;
    kb_http_refuse(r, KB_HTTP_CONFLICT, "no node runs");
    return -1;
}

static void pass_on(struct kb_cluster *c, struct kb_http_request *r, const char *method, const char *path, const char *under) {
    int32_t ids[KB_CLUSTER_NODES_MAX];
    size_t count;
    bool all;
    if (nodes_of(c, r, ids, &count, &all) != 0) return;
    struct passed *p = calloc(1, sizeof(*p));
    if (!p) {
        kb_http_refuse(r, KB_HTTP_FAILED, "out of memory");
        return;
    }
    *p = (struct passed){.request = r, .under = under, .all = all, .changes = strcmp(method, "GET") != 0, .deletes = strcmp(method, "DELETE") == 0};
    struct kb_relay_call call = {.ids = ids, .count = count, .method = method, .path = path, .body = kb_http_body(r), .wait_ms = WAIT_S * 1000,
                                 .done = passed_on, .ctx = p};
    kb_cluster_relay(c, &call);
}

static void pass_on_faults(struct kb_cluster *c, struct kb_http_request *r) {
    const char *rule = kb_http_query(r, "rule");
    char path[60] = "/faults";
    if (kb_http_is(r, "GET") || kb_http_is(r, "POST")) {
        pass_on(c, r, kb_http_is(r, "GET") ? "GET" : "POST", path, NULL);
    } else if (!kb_http_is(r, "DELETE")) {
        kb_http_refuse(r, KB_HTTP_NOT_ALLOWED, "GET lists the rules, POST adds, DELETE takes away");
    } else if (rule && (!*rule || strlen(rule) > 20 || strspn(rule, "0123456789") != strlen(rule))) {
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "rule= wants a rule's number");
    } else {
        if (rule) snprintf(path, sizeof(path), "/faults?rule=%s", rule);
        pass_on(c, r, "DELETE", path, NULL);
    }
}

/* ---- The port ---- */

static void serve(void *ctx, struct kb_http_request *r) {
    struct kb_cluster *c = ctx;
    const char *path = kb_http_path(r);
    if (strcmp(path, "/cluster") == 0) {
        if (kb_http_is(r, "GET"))
            answer_taken(r, kb_cluster_describe(c));
        else
            kb_http_refuse(r, KB_HTTP_NOT_ALLOWED, "GET tells what the cluster is; POST /nodes changes it");
    } else if (strcmp(path, "/nodes") == 0) {
        if (kb_http_is(r, "POST"))
            kb_cluster_order(c, r);
        else
            kb_http_refuse(r, KB_HTTP_NOT_ALLOWED, "POST {\"do\": …, \"ids\": […]}; GET /cluster tells what nodes there are");
    } else if (strcmp(path, "/status") == 0) {
        if (kb_http_is(r, "GET"))
            pass_on(c, r, "GET", "/status", "status");
        else
            kb_http_refuse(r, KB_HTTP_NOT_ALLOWED, "GET tells what the nodes are and what they have counted");
    } else if (strcmp(path, "/faults") == 0) {
        pass_on_faults(c, r);
    } else if (strcmp(path, "/clock") == 0) {
        kb_cluster_serve_clock(c, r);
    } else if (strcmp(path, "/snapshots") == 0) {
        kb_cluster_serve_snapshots(c, r);
    } else {
        kb_http_refuse(r, KB_HTTP_NOT_FOUND, "there is nothing here; try /cluster, /nodes, /status, /faults, /clock or /snapshots");
    }
}

bool kb_cluster_serve(struct kb_cluster *c) {
    char url[100], why[400], address[300];
    c->http = kb_http_new(&(struct kb_http_options){.loop = &c->loop, .handle = serve, .ctx = c});
    if (!c->http || kb_http_listen_unix(c->http, c->dir) != 0) {
        kb_cluster_say("%s/%s cannot be made: %s", c->dir, KB_ADMIN_SOCKET, strerror(errno));
        return false;
    }
    if (!c->admin) return true;
    snprintf(address, sizeof(address), "%s%s", strchr(c->admin, ':') ? "" : "127.0.0.1:", c->admin);
    if (kb_http_listen_tcp(c->http, address, url, sizeof(url), why, sizeof(why)) != 0) {
        kb_cluster_say("--admin %s: %s; choose another port (0: a free one)", c->admin, why);
        return false;
    }
    printf("admin %s\n", url);
    fflush(stdout);
    return true;
}

void kb_cluster_serve_no_more(struct kb_cluster *c) {
    kb_cluster_drop_orders(c);
    kb_cluster_drop_clock(c);
    kb_cluster_drop_relays(c);
    kb_http_free(c->http);
    c->http = NULL;
}
