/* main.c - kc, the command line of libkclient: finds the command and runs it. */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const struct cli_sub commands[] = {
    {"topic", cmd_topic, "create, list, describe, alter, delete topics"},
    {"produce", cmd_produce, "send records from stdin or a file"},
    {"consume", cmd_consume, "print records"},
    {"group", cmd_group, "list, describe, reset, delete consumer groups"},
    {"config", cmd_config, "describe and alter topic and broker configs; explain client properties"},
    {"guid", cmd_guid, "find records by their ids; show what the indexes of ids hold"},
    {"cluster", cmd_cluster, "show the cluster's brokers, controller and partitions"},
    {"elect", cmd_elect, "choose leaders of partitions anew"},
    {"reassign", cmd_reassign, "move partitions onto other brokers"},
    {"unregister", cmd_unregister, "remove a broker that will not come back"},
    {"bench", cmd_bench, "measure producing, consuming, latency; the published benchmark"},
};

/* A standard descriptor that is closed would go to the next socket, and what is printed with it. Its place is taken by one that
 * refuses, so that the loss is told. */
static void hold_standard_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) /* open gives the lowest that is free */
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
}

static int finish(int rc) {
    if (fflush(stdout) == 0 && cli_output_ok()) return rc;
    fprintf(stderr, "kc: standard output cannot be written: %s\n", strerror(cli_output_errno ? cli_output_errno : errno));
    return CLI_FAILURE;
}

int main(int argc, char **argv) {
    hold_standard_descriptors();
    if (argc >= 2 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version"))) {
        printf("kc %s\n", kc_version());
        return finish(CLI_OK);
    }
    return finish(cli_dispatch("kc", commands, sizeof commands / sizeof commands[0], argc, argv));
}
