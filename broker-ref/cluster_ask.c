/* cluster_ask.c - `kbroker cluster stop-node 0,1 --data DIR` and its like: one line to the running parent, its lines back.
 *
 * Called by cluster.c. Calls shell_command. Speaks over DIR/.cluster.sock: the command, a space, the ids; answers are "said TEXT" lines, then "ok" or
 * "error TEXT".
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cluster.h"
#include "shell_command.h"

const char *const kb_cluster_commands[] = {"stop-node", "kill-node", "pause-node", "start-node", "wipe-node", "add-node", "status"};
const size_t kb_cluster_command_count = sizeof(kb_cluster_commands) / sizeof(kb_cluster_commands[0]);

static const char usage[] = "usage: kbroker cluster COMMAND [ID[,ID...]] [--data DIR]\n"
                            "\n"
                            "Acts on nodes of a cluster that runs (kbroker cluster --nodes N --data DIR),\n"
                            "all that are named at the same moment, and returns when it is done.\n"
                            "\n"
                            "  stop-node    stops in order\n"
                            "  kill-node    kill -9\n"
                            "  pause-node   stands still; start-node lets it go on\n"
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

/* The lines of the answer, each as it comes. */
static int listen_to(int fd) {
    FILE *in = fdopen(fd, "r");
    char *line = NULL;
    size_t cap = 0;
    int code = -1;
    while (in && code < 0 && getline(&line, &cap, in) > 0) {
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line, "ok") == 0) code = 0;
        if (strncmp(line, "said ", 5) == 0) {
            puts(line + 5);
            fflush(stdout);
        }
        if (strncmp(line, "error ", 6) == 0) {
            fprintf(stderr, "kbroker: %s\n", line + 6);
            code = 1;
        }
    }
    free(line);
    if (in) fclose(in);
    if (code < 0) fprintf(stderr, "kbroker: the cluster ended before it answered\n");
    return code < 0 ? 1 : code;
}

static int ask(const char *dir, const char *command, const char *ids) {
    struct sockaddr_un a;
    char line[1000];
    int dir_fd = kb_command_socket_address(dir, ".cluster.sock", &a), fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (dir_fd < 0 || fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0) {
        if (errno == EACCES || errno == EPERM)
            fprintf(stderr, "kbroker: the cluster in %s cannot be asked: %s; it is whoever started it that may\n", dir, strerror(errno));
        else
            fprintf(stderr, "kbroker: no cluster runs in %s (%s); start one: kbroker cluster --nodes 3 --data %s\n", dir, strerror(errno), dir);
        if (fd >= 0) close(fd);
        if (dir_fd >= 0) close(dir_fd);
        return 1;
    }
    close(dir_fd);
    int n = snprintf(line, sizeof(line), "%s %s\n", command, ids);
    if (send(fd, line, (size_t)n, MSG_NOSIGNAL) != n) {
        fprintf(stderr, "kbroker: the cluster in %s does not listen: %s\n", dir, strerror(errno));
        close(fd);
        return 1;
    }
    return listen_to(fd);
}

int kb_cluster_ask(int argc, char **argv) {
    const char *command = argv[2], *ids = NULL, *dir = "kbroker-cluster", *value;
    if (kb_command_asks_help(argc, argv)) {
        fputs(usage, stdout);
        return 0;
    }
    int32_t checked[KB_CLUSTER_NODES_MAX];
    for (int i = 3; i < argc; i++) {
        const char *arg = argv[i];
        if ((value = kb_command_value("--data", argc, argv, &i)) && *value) {
            dir = value;
        } else if (!ids && kb_command_ids(arg, checked, KB_CLUSTER_NODES_MAX) > 0) {
            ids = arg;
        } else {
            fprintf(stderr, "kbroker: what is \"%s\"?\n%s", arg, usage);
            return 2;
        }
    }
    bool status = strcmp(command, "status") == 0;
    if ((!ids && !status) || (ids && (status || strlen(ids) > 900))) {
        fprintf(stderr, "kbroker: cluster %s wants %s\n%s", command, status ? "no ID" : "ID[,ID...]", usage);
        return 2;
    }
    return ask(dir, command, ids ? ids : "");
}
