/* reassign.h - what reassign.c (plan, begin, list, cancel) and reassign_watch.c (until all is moved) share. Private to them. */
#ifndef KC_CLI_REASSIGN_H
#define KC_CLI_REASSIGN_H

#include "cli.h"
#include "plan.h"

#define CLI_SHIFT_MAX 64 /* replicas of a partition, brokers that are named */
enum cli_shift_state { SHIFT_UNCHANGED, SHIFT_PLANNED, SHIFT_MOVING, SHIFT_MOVED, SHIFT_CANCELLED, SHIFT_FAILED };
struct cli_shift { /* one partition */
    const struct cli_part *part;
    int32_t now[CLI_SHIFT_MAX], then[CLI_SHIFT_MAX];
    size_t now_count, then_count;
    enum cli_shift_state state;
    kc_err err;
    char why[256];
};
struct cli_reassign {
    struct cli_session s;
    const struct cli_command *c;
    const kc_cluster_info *info;
    const kc_reassignment_list *moves; /* under way when it was asked for */
    struct cli_parts parts;
    struct cli_shift *v; /* parts.count of them */
    int32_t to[CLI_SHIFT_MAX];
    size_t to_count;
    const int32_t *told; /* rf brokers of each of told_partitions; NULL: they are to be planned */
    int64_t told_partitions, rf;
    bool dry, no_wait, json;
};

void cli_reassign_fail(struct cli_shift *s, kc_err err, const char *text); /* says so */
/* Until nothing of it moves any more. CLI_OK: all is where it was to go. */
int cli_reassign_watch(struct cli_reassign *r);

#endif
