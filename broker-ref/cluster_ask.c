/* cluster_ask.c - `kbroker cluster stop-node 0,1 --data DIR` and its like: asked of the running parent over its admin socket.
 *
 * Called by cluster.c. Calls admin_http_client, shell_command.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin_http_client.h"
#include "admin_http_server.h"
#include "cluster.h"
#include "shell_command.h"

enum { WAIT_S = 90 };

const char *const kb_cluster_commands[] = {"stop-node",  "kill-node", "pause-node", "resume-node",
                                           "start-node", "wipe-node", "add-node",   "status"};
const size_t kb_cluster_command_count = sizeof(kb_cluster_commands) / sizeof(kb_cluster_commands[0]);

static const char usage[] = "usage: kbroker cluster COMMAND [ID[,ID...]] [--data DIR]\n"
                            "\n"
                            "Acts on nodes of a cluster that runs (kbroker cluster --nodes N --data DIR),\n"
                            "all that are named at the same moment, and returns when it is done.\n"
                            "\n"
                            "  stop-node    stops in order\n"
                            "  kill-node    kill -9\n"
                            "  pause-node   stands still; resume-node or start-node lets it go on\n"
                            "  resume-node  goes on after pause-node\n"
                            "  start-node   starts what was stopped or killed; waits until it serves\n"
                            "  wipe-node    removes the data of one that does not run\n"
                            "  add-node     one more broker, of this new id\n"
                            "  status       what each node is and does (no ID)\n"
                            "\n"
                            "  --data DIR   the cluster's folder (./kbroker-cluster)\n";

bool kb_cluster_is_command(const char *word) {
    for (size_t i = 0; i < kb_cluster_command_count; i++)
        if (strcmp(word, kb_cluster_commands[i]) == 0) return true;
    return false;
}

static void print_status(const json_t *root) {
    size_t i;
    json_t *n;
    json_array_foreach(json_object_get(root, "nodes"), i, n) {
        const json_t *roles = json_object_get(n, "roles");
        printf("node %d %s%s%s %s %s pid %d\n", (int)json_integer_value(json_object_get(n, "id")), json_string_value(json_array_get(roles, 0)),
               json_array_size(roles) > 1 ? "," : "", json_array_size(roles) > 1 ? json_string_value(json_array_get(roles, 1)) : "",
               json_string_value(json_object_get(n, "address")), json_string_value(json_object_get(n, "state")),
               (int)json_integer_value(json_object_get(n, "pid")));
    }
}

static int say_unanswered(const char *dir) {
    if (errno == EACCES || errno == EPERM)
        fprintf(stderr, "kbroker: the cluster in %s cannot be asked: %s; it is whoever started it that may\n", dir, strerror(errno));
    else if (errno == EAGAIN)
        fprintf(stderr, "kbroker: the cluster in %s did not answer within %d s\n", dir, WAIT_S);
    else if (errno == ECONNRESET)
        fprintf(stderr, "kbroker: the cluster ended before it answered\n");
    else
        fprintf(stderr, "kbroker: no cluster runs in %s (%s); start one: kbroker cluster --nodes 3 --data %s\n", dir, strerror(errno), dir);
    return 1;
}

static int ask(const char *dir, const char *command, const int32_t *ids, size_t count) {
    char body[100 + 12 * KB_CLUSTER_NODES_MAX];
    int status = 0, n = snprintf(body, sizeof(body), "{\"do\":\"%.*s\",\"ids\":[", (int)strcspn(command, "-"), command);
    bool asks = strcmp(command, "status") == 0;
    for (size_t i = 0; i < count; i++) n += snprintf(body + n, sizeof(body) - (size_t)n, "%s%d", i > 0 ? "," : "", ids[i]);
    snprintf(body + n, sizeof(body) - (size_t)n, "]}");
    char *answer = kb_http_ask(dir, asks ? "GET" : "POST", asks ? "/cluster" : "/nodes", asks ? "" : body, WAIT_S, &status);
    if (!answer) return say_unanswered(dir);
    if (status == KB_HTTP_OK && asks) {
        json_t *root = json_loads(answer, 0, NULL);
        print_status(root);
        json_decref(root);
    } else if (status != KB_HTTP_OK) {
        char *text = kb_http_error_text(answer);
        fprintf(stderr, "kbroker: %s\n", text ? text : answer);
        free(text);
    }
    free(answer);
    return status == KB_HTTP_OK ? 0 : 1;
}

int kb_cluster_ask(int argc, char **argv) {
    const char *command = argv[2], *dir = "kbroker-cluster", *value;
    if (kb_command_asks_help(argc, argv)) {
        fputs(usage, stdout);
        return 0;
    }
    int32_t ids[KB_CLUSTER_NODES_MAX];
    size_t count = 0;
    for (int i = 3; i < argc; i++) {
        const char *arg = argv[i];
        if ((value = kb_command_value("--data", argc, argv, &i)) && *value) {
            dir = value;
        } else if (count > 0 || (count = kb_command_ids(arg, ids, KB_CLUSTER_NODES_MAX)) == 0) {
            fprintf(stderr, "kbroker: what is \"%s\"?\n%s", arg, usage);
            return 2;
        }
    }
    bool status = strcmp(command, "status") == 0;
    if ((count > 0) == status) {
        fprintf(stderr, "kbroker: cluster %s wants %s\n%s", command, status ? "no ID" : "ID[,ID...]", usage);
        return 2;
    }
    return ask(dir, command, ids, count);
}
