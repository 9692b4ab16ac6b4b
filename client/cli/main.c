/* main.c - kc, the command line of libkclient: finds the command and runs it. */
#include "cli.h"

#include <string.h>

static const struct cli_sub commands[] = {
    {"topic", cmd_topic, "create, list, describe, alter, delete topics"},
    {"produce", cmd_produce, "send records from stdin or a file"},
    {"consume", cmd_consume, "print records"},
    {"config", cmd_config, "describe and alter topic and broker configs; explain client properties"},
    {"cluster", cmd_cluster, "show the cluster's brokers, controller and partitions"},
    {"bench", cmd_bench, "measure producing, consuming, latency"},
};

int main(int argc, char **argv) {
    if (argc >= 2 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version"))) {
        printf("kc %s\n", kc_version());
        return CLI_OK;
    }
    return cli_dispatch("kc", commands, sizeof commands / sizeof commands[0], argc, argv);
}
