/* cluster_options.c - the command line of `kbroker cluster --nodes N`. Called by cluster. */
#include "cluster_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell_command.h"
#include "shell_parts.h"

static int number(const char *name, const char *value, int min, int max, int *out) {
    char *end;
    long n = strtol(value, &end, 10);
    if (end == value || *end || n < min || n > max)
        return kb_command_wrong("cluster", NULL, "%s wants a number from %d to %d, not \"%s\"", name, min, max, value);
    *out = (int)n;
    return -1;
}

static int take(struct kb_cluster *c, const char *name, const char *value) {
    if (strcmp(name, "--nodes") == 0) return number(name, value, 1, KB_CLUSTER_BROKERS_MAX, &c->nodes);
    if (strcmp(name, "--controllers") == 0) return number(name, value, 1, KB_CLUSTER_CONTROLLERS_MAX, &c->controllers);
    if (strcmp(name, "--base-port") == 0) return number(name, value, 0, 65535 - KB_CLUSTER_NODES_MAX, &c->base_port);
    if (strcmp(name, "--data") == 0) {
        if (strlen(value) > 4000) return kb_command_wrong("cluster", NULL, "--data wants a folder of a shorter name");
        c->dir = value;
        c->data_given = true;
    } else if (strcmp(name, "--profile") == 0) {
        c->profile = value;
    } else if (strcmp(name, "--faults") == 0) {
        c->faults = value;
    } else if (strcmp(name, "--record") == 0) {
        c->record = value;
    } else if (strcmp(name, "--clock") == 0) {
        if (!kb_shell_clock_set(value)) return kb_command_wrong("cluster", NULL, "--clock wants real or virtual, not \"%s\"", value);
        c->clock_is_virtual = kb_shell_clock_is_virtual();
        c->ahead_ms = kb_shell_clock_ahead_ms();
    } else if (strcmp(name, "--from") == 0) {
        c->from = value;
    } else if (strcmp(name, "--admin") == 0) {
        c->admin = value;
    } else {
        static const char *const own[] = {"node.id", "broker.id", "process.roles", "controller.quorum.voters", "listeners", "advertised.listeners",
                                          "log.dirs", "log.dir"};
        if (!strchr(value, '=')) return kb_command_wrong("cluster", NULL, "--set wants NAME=VALUE, not \"%s\"", value);
        for (size_t i = 0; i < KW_COUNTOF(own); i++)
            if (strcspn(value, "=") == strlen(own[i]) && strncmp(value, own[i], strlen(own[i])) == 0)
                return kb_command_wrong("cluster", NULL,
                                        "--set %s: each node has its own, which the cluster gives it (--nodes, --controllers, --base-port, --data)", own[i]);
        if (c->set_count == KB_CLUSTER_SETS_MAX) return kb_command_wrong("cluster", NULL, "at most %d of --set", KB_CLUSTER_SETS_MAX);
        c->sets[c->set_count++] = value;
    }
    return -1;
}

static int wrong_word(const char *arg, const char *const *names, size_t count) {
    char name[32];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(arg, "="), arg);
    const char *near = kb_command_nearest(name, names, count);
    if (!near && arg[0] != '-') near = kb_command_nearest(name, kb_cluster_commands, kb_cluster_command_count);
    return kb_command_wrong("cluster", near, "unknown option or command \"%s\"", arg);
}

/* Those without a value. */
static bool take_flag(struct kb_cluster *c, const char *arg) {
    bool *flag = strcmp(arg, "--verbose") == 0     ? &c->verbose
                 : strcmp(arg, "--ephemeral") == 0 ? &c->ephemeral
                 : strcmp(arg, "--until-eof") == 0 ? &c->until_eof
                                                   : NULL;
    if (flag) *flag = true;
    return flag != NULL;
}

/* --set is for all nodes, and a port is one's. */
static bool shares_admin_port(const struct kb_cluster *c) {
    static const char name[] = "admin.listener=";
    for (size_t i = 0; i < c->set_count && c->nodes + c->controllers > 1; i++) {
        const char *port = strrchr(c->sets[i], ':');
        if (strncmp(c->sets[i], name, sizeof(name) - 1) == 0 && port && strcmp(port, ":0") != 0) return true;
    }
    return false;
}

static int check(const struct kb_cluster *c) {
    if (shares_admin_port(c))
        return kb_command_wrong("cluster", NULL,
                                "--set admin.listener: only one node can have that port; say --admin [HOST:]PORT for the cluster's, or port 0 for one each");
    if (c->from && c->controllers) return kb_command_wrong("cluster", NULL, "--from: the snapshot says which nodes there are: leave --controllers out");
    if (!c->ephemeral) return -1;
    if (c->data_given) return kb_command_wrong("cluster", NULL, "--ephemeral makes a folder of its own: leave it or --data out");
    if (c->nodes == 0 && !c->from) return kb_command_wrong("cluster", NULL, "--ephemeral wants --nodes N, or --from SNAPSHOT");
    if (c->from && !strchr(c->from, '/')) return kb_command_wrong("cluster", NULL, "--ephemeral has no snapshots yet: --from wants a path with a /");
    return -1;
}

int kb_cluster_parse(struct kb_cluster *c, int argc, char **argv) {
    static const char *const names[] = {"--nodes", "--controllers", "--base-port", "--data",      "--set",       "--profile",
                                        "--faults", "--admin",       "--from",      "--clock",     "--record",    "--verbose",
                                        "--ephemeral", "--until-eof", "--help"};
    enum { VALUED = 11 }; /* of them, the first */
    for (int i = 2; i < argc; i++) {
        const char *arg = argv[i], *value = NULL;
        size_t k = 0;
        while (k < VALUED && !(value = kb_command_value(names[k], argc, argv, &i))) k++;
        if (value && !*value) return kb_command_wrong("cluster", NULL, "%s needs a value", names[k]);
        int code = value ? take(c, names[k], value) : take_flag(c, arg) ? -1 : wrong_word(arg, names, KW_COUNTOF(names));
        if (code >= 0) return code;
    }
    return check(c);
}
