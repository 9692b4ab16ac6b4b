/* admin_http.c - what a node's admin port serves: its status, its fault rules.
 *
 * Called by main.c. Calls admin_http_server, node.h.
 */
#include "admin_http.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "admin_http_server.h"
#include "shell_snapshot.h"

struct kb_admin {
    struct kb_shell *s;
    struct kb_http *http;
    const char *dir;
};

/* What the node wrote, which it gives away; NULL: it had no memory for it. */
static void answer_made(struct kb_http_request *r, char *json) {
    if (json)
        kb_http_answer(r, KB_HTTP_OK, json);
    else
        kb_http_refuse(r, KB_HTTP_FAILED, "out of memory");
    kw_free(json);
}

/* ---- /status ---- */

static void serve_status(struct kb_shell *s, struct kb_http_request *r) {
    if (kb_http_is(r, "GET"))
        answer_made(r, kb_node_status(s->node));
    else
        kb_http_refuse(r, KB_HTTP_NOT_ALLOWED, "GET tells what this node is and what it has counted");
}

/* ---- /faults ---- */

/* {"error":"rule 1: …","rule":1,"field":"delay_ms"}; field null: it is the rule as a whole; neither: what came is no list of rules. */
static void refuse_rules(struct kb_http_request *r, const struct kb_fault_wrong *wrong) {
    json_t *o = json_pack("{s:s}", "error", wrong->text);
    if (wrong->rule > 0) json_object_update_new(o, json_pack("{s:i, s:s?}", "rule", (int)wrong->rule, "field", wrong->field[0] ? wrong->field : NULL));
    char *json = o ? json_dumps(o, JSON_COMPACT) : NULL;
    if (json)
        kb_http_answer(r, KB_HTTP_BAD_REQUEST, json);
    else
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "%s", wrong->text);
    free(json);
    json_decref(o);
}

static void add_rules(struct kb_shell *s, struct kb_http_request *r) {
    struct kb_fault_wrong wrong;
    char out[60];
    int32_t first = 0;
    kw_err err = kb_node_faults_add(s->node, kb_http_body(r), &first, &wrong);
    if (err == KW_ENOMEM) {
        kb_http_refuse(r, KB_HTTP_FAILED, "out of memory");
        return;
    }
    if (err != KW_OK) {
        refuse_rules(r, &wrong);
        return;
    }
    snprintf(out, sizeof(out), "{\"first\":%d}", first);
    kb_http_answer(r, KB_HTTP_OK, out);
}

static void clear_rules(struct kb_shell *s, struct kb_http_request *r) {
    const char *rule = kb_http_query(r, "rule");
    char *end = NULL, out[60];
    long number = rule ? strtol(rule, &end, 10) : 0;
    if (rule && (*end || end == rule || number < 1 || number > INT32_MAX)) {
        kb_http_refuse(r, KB_HTTP_BAD_REQUEST, "rule= wants a rule's number");
        return;
    }
    s->now = kb_shell_now();
    size_t n = kb_node_faults_clear(s->node, (int32_t)number, s->now);
    if (rule && n == 0) {
        kb_http_refuse(r, KB_HTTP_NOT_FOUND, "there is no rule of this number");
        return;
    }
    snprintf(out, sizeof(out), "{\"cleared\":%zu}", n);
    kb_http_answer(r, KB_HTTP_OK, out);
}

static void serve_faults(struct kb_shell *s, struct kb_http_request *r) {
    if (kb_http_is(r, "GET"))
        answer_made(r, kb_node_faults_list(s->node));
    else if (kb_http_is(r, "POST"))
        add_rules(s, r);
    else if (kb_http_is(r, "DELETE"))
        clear_rules(s, r);
    else
        kb_http_refuse(r, KB_HTTP_NOT_ALLOWED, "GET lists the rules, POST adds, DELETE takes away");
}

/* ---- /restore ---- */

/* kbroker snapshot restore has decided it. */
static void serve_restore(const struct kb_admin *a, struct kb_http_request *r) {
    if (!kb_http_is(r, "POST")) {
        kb_http_refuse(r, KB_HTTP_NOT_ALLOWED, "POST: begins again with what kbroker snapshot restore has put beside the data");
    } else if (!kb_restore_is_decided(a->dir)) {
        kb_http_refuse(r, KB_HTTP_CONFLICT, "nothing is to be restored: kbroker snapshot restore NAME --data DIR");
    } else {
        kb_http_answer(r, KB_HTTP_OK, "{}");
        kb_shell_restart(a->s);
    }
}

/* ---- The port ---- */

static void serve(void *ctx, struct kb_http_request *r) {
    struct kb_admin *a = ctx;
    if (strcmp(kb_http_path(r), "/status") == 0)
        serve_status(a->s, r);
    else if (strcmp(kb_http_path(r), "/faults") == 0)
        serve_faults(a->s, r);
    else if (strcmp(kb_http_path(r), "/clock") == 0)
        kb_admin_clock(a->s, r);
    else if (strcmp(kb_http_path(r), "/restore") == 0)
        serve_restore(a, r);
    else
        kb_http_refuse(r, KB_HTTP_NOT_FOUND, "there is nothing here; try /status, /faults or /clock");
}

static void served(void *ctx) {
    struct kb_admin *a = ctx;
    kb_shell_turn(a->s);
}

int kb_admin_new(struct kb_shell *s, const char *dir, const char *address, struct kb_admin **out, char *text, size_t size) {
    struct kb_admin *a = calloc(1, sizeof(*a));
    char why[400], url[100];
    if (a) a->http = kb_http_new(&(struct kb_http_options){.loop = s->loop, .handle = serve, .after = served, .ctx = a});
    if (!a || !a->http) {
        free(a);
        snprintf(text, size, "out of memory");
        return -1;
    }
    a->s = s;
    a->dir = dir;
    *out = a;
    if (kb_http_listen_unix(a->http, dir) != 0)
        kb_say(s->logger, KB_WARN, "%s/%s cannot be made (%s): kbroker fault cannot reach this node", dir, KB_ADMIN_SOCKET, strerror(errno));
    if (!address || !address[0]) return 0;
    if (kb_http_listen_tcp(a->http, address, url, sizeof(url), why, sizeof(why)) == 0) {
        kb_say(s->logger, KB_INFO, "admin port: %s/faults", url);
        return 0;
    }
    snprintf(text, size, "admin.listener=%s: %s; choose another, or leave it out", address, why);
    return -1;
}

void kb_admin_free(struct kb_admin *a) {
    if (!a) return;
    kb_http_free(a->http);
    free(a);
}
