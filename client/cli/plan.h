/* plan.h - where the replicas of partitions are to go, when it is only said onto which brokers: few moves, even shares. Called by reassign. */
#ifndef KC_CLI_PLAN_H
#define KC_CLI_PLAN_H

#include <stddef.h>
#include <stdint.h>

#define CLI_PLAN_BROKERS_MAX 1000
struct cli_plan_broker {
    int32_t id;
    const char *rack; /* NULL: none */
};
struct cli_move { /* of one partition */
    const int32_t *now;
    size_t now_count;
    int32_t *then; /* out, room for `want` of them: the preferred leader first */
    size_t want;   /* replicas; at most as many as there are brokers */
};
/* Replicas on these brokers stay, but for what has to go to others so that each holds its share (they differ by one at most) and is the first in
 * its share. Replicas of a partition come to lie in no fewer racks. -1: no memory. */
int cli_plan(struct cli_move *v, size_t n, const struct cli_plan_broker *brokers, size_t broker_count);

#endif
