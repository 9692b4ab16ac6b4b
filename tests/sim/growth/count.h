/* count.h - what nodes do, counted: the same seed gives the same numbers on every machine. Called by growth.c.
 *
 * A step is one stretch of code without a branch: kbcore and kwire are compiled for this program with a call at each of them (-fsanitize-coverage=trace-pc).
 * Steps, allocations and bytes belong to the host whose turn it is; frames to the kind of request.
 */
#ifndef SIM_GROWTH_COUNT_H
#define SIM_GROWTH_COUNT_H

#include "net.h"

struct grow_work {
    uint64_t steps, allocs, turns;
    int64_t held, held_max; /* bytes */
    int64_t cpu_ns;         /* of this machine: told, never judged */
};
enum { GROW_KEYS_MAX = 128 };
struct grow_api { /* requests of nodes to nodes */
    uint64_t requests, bytes, answer_bytes;
};
struct grow_apis {
    struct grow_api of[GROW_KEYS_MAX];
};

void grow_count_init(struct sim_net *net, struct grow_apis *apis);
void grow_count_deinit(void);
/* What runs from now on is this one's; NULL nobody's. Returns whose it was. */
struct grow_work *grow_count_for(struct grow_work *w);

#endif
