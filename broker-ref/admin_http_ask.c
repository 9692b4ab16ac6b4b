/* admin_http_ask.c - `kbroker fault add|list|clear`: fault rules of nodes that run, over their folders' admin sockets.
 *
 * Called by main.c. Calls cluster_plan (which nodes a cluster's folder has), admin_http_client, shell_command.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin_http.h"
#include "admin_http_client.h"
#include "cluster.h"
#include "shell_command.h"

enum { RULES_MAX = 1 << 20, WAIT_S = 5 };

static const char usage[] = "usage: kbroker fault add RULES --data DIR [--node ID[,ID...]]\n"
                            "       kbroker fault list --data DIR [--node ID[,ID...]]\n"
                            "       kbroker fault clear [NUMBER] --data DIR [--node ID[,ID...]]\n"
                            "\n"
                            "Makes brokers that run misbehave on order. DIR is a broker's data folder, or a\n"
                            "cluster's; --node says which of its nodes (all that run). RULES is JSON, a file\n"
                            "of it, or - for standard input. clear without a number takes all rules away.\n"
                            "\n"
                            "example:\n"
                            "  kbroker fault add '{\"api\": \"Fetch\", \"stall\": true}' --data /tmp/c --node 2\n";

struct ask {
    const char *verb, *dir, *what;
    int32_t nodes[KB_CLUSTER_NODES_MAX];
    size_t node_count;
    char *rules;
};

static int parse(struct ask *a, int argc, char **argv) {
    static const char *const verbs[] = {"add", "list", "clear"};
    for (size_t i = 0; i < KW_COUNTOF(verbs); i++)
        if (strcmp(argv[2], verbs[i]) == 0) a->verb = verbs[i];
    if (!a->verb) return kb_command_wrong("fault", kb_command_nearest(argv[2], verbs, KW_COUNTOF(verbs)), "fault has no command \"%s\"", argv[2]);
    for (int i = 3; i < argc; i++) {
        const char *arg = argv[i], *data = kb_command_value("--data", argc, argv, &i), *node = data ? NULL : kb_command_value("--node", argc, argv, &i);
        if (data || node) {
            if (!*(data ? data : node)) return kb_command_wrong("fault", NULL, "%s needs a value", data ? "--data" : "--node");
            if (data) a->dir = data;
            if (node) a->node_count = kb_command_ids(node, a->nodes, KB_CLUSTER_NODES_MAX);
            if (node && a->node_count == 0) return kb_command_wrong("fault", NULL, "--node wants ID[,ID...], not \"%s\"", node);
        } else if ((arg[0] == '-' && arg[1]) || a->what) {
            return kb_command_wrong("fault", NULL, "what is \"%s\"?", arg);
        } else {
            a->what = arg;
        }
    }
    if (!a->dir) return kb_command_wrong("fault", NULL, "fault %s wants --data DIR: the folder of the broker or cluster that runs", a->verb);
    if (a->verb == verbs[0] && !a->what) return kb_command_wrong("fault", NULL, "fault add wants RULES: JSON, a file of it, or -");
    if (a->verb == verbs[1] && a->what) return kb_command_wrong("fault", NULL, "fault list wants no \"%s\"", a->what);
    if (a->verb == verbs[2] && a->what && strspn(a->what, "0123456789") != strlen(a->what))
        return kb_command_wrong("fault", NULL, "fault clear wants a rule's number, not \"%s\"", a->what);
    return -1;
}

static char *read_all(FILE *f, size_t max) {
    char *p = malloc(max + 1);
    size_t n = p ? fread(p, 1, max + 1, f) : 0;
    if (!p || n > max || ferror(f)) {
        free(p);
        return NULL;
    }
    p[n] = 0;
    return p;
}

static int load_rules(struct ask *a) {
    if (strcmp(a->verb, "add") != 0) return -1;
    if (a->what[0] == '{' || a->what[0] == '[') {
        a->rules = strdup(a->what);
        return a->rules ? -1 : 1;
    }
    bool in = strcmp(a->what, "-") == 0;
    FILE *f = in ? stdin : fopen(a->what, "r");
    a->rules = f ? read_all(f, RULES_MAX) : NULL;
    int err = errno;
    if (f && !in) fclose(f);
    if (a->rules) return -1;
    fprintf(stderr, "kbroker: %s cannot be read: %s\n", in ? "standard input" : a->what, f ? "too large, or no memory" : strerror(err));
    return 1;
}

/* One node. name: how it is called in what is said, "" when there is only the one. 0: done, -1: it does not run, 1: refused, or silent (said so). */
static int ask_node(const struct ask *a, const char *dir, const char *name) {
    char path[60] = "/faults";
    int status = 0;
    bool adds = strcmp(a->verb, "add") == 0, lists = strcmp(a->verb, "list") == 0;
    if (!adds && !lists && a->what) snprintf(path, sizeof(path), "/faults?rule=%.20s", a->what);
    char *answer = kb_http_ask(dir, adds ? "POST" : lists ? "GET" : "DELETE", path, adds ? a->rules : "", WAIT_S, &status);
    if (!answer && errno == EAGAIN) {
        fprintf(stderr, "kbroker: %sno answer within %d s: does it stand still? A paused node goes on with kbroker cluster start-node\n", name, WAIT_S);
        return 1;
    }
    if (!answer && (errno == EACCES || errno == EPERM)) {
        fprintf(stderr, "kbroker: %sit cannot be asked: %s; it is whoever started it that may\n", name, strerror(errno));
        return 1;
    }
    if (!answer) return -1;
    if (status == 200)
        printf("%s%s\n", name, answer);
    else
        fprintf(stderr, "kbroker: %s%s\n", name, answer);
    free(answer);
    return status == 200 ? 0 : 1;
}

static int ask_cluster(const struct ask *a, struct kb_cluster_plan *plan) {
    int code = 0, asked = 0;
    for (size_t i = 0; i < (a->node_count ? a->node_count : plan->count); i++) {
        char dir[4200], name[30];
        int32_t id = a->node_count ? a->nodes[i] : plan->nodes[i].id;
        if (!kb_cluster_plan_find(plan, id)) {
            fprintf(stderr, "kbroker: the cluster in %s has no node %d\n", a->dir, id);
            return 1;
        }
        snprintf(dir, sizeof(dir), "%s/node-%d", a->dir, id);
        snprintf(name, sizeof(name), "node %d: ", id);
        int r = ask_node(a, dir, name);
        if (r < 0 && a->node_count) fprintf(stderr, "kbroker: node %d does not run\n", id);
        if (r > 0 || (r < 0 && a->node_count)) code = 1;
        asked += r >= 0;
    }
    if (asked == 0 && code == 0) fprintf(stderr, "kbroker: no node of %s runs\n", a->dir);
    return asked == 0 ? 1 : code;
}

int kb_admin_ask_main(int argc, char **argv) {
    struct ask a = {0};
    struct kb_cluster_plan plan;
    char text[4400];
    if (kb_command_asks_help(argc, argv)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc < 3) {
        fputs(usage, stderr);
        return 2;
    }
    int code = parse(&a, argc, argv);
    if (code < 0) code = load_rules(&a);
    if (code >= 0) return code;
    int known = kb_cluster_plan_read(&plan, a.dir, text, sizeof(text));
    if (known < 0) {
        fprintf(stderr, "kbroker: %s\n", text);
        code = 1;
    } else if (known == 1) {
        code = ask_cluster(&a, &plan);
    } else {
        code = ask_node(&a, a.dir, "");
        if (code < 0) fprintf(stderr, "kbroker: no broker runs in %s (%s); start one: kbroker run --data %s\n", a.dir, strerror(errno), a.dir);
        if (code < 0) code = 1;
    }
    free(a.rules);
    return code;
}
