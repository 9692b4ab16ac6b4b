/* traffic.h - the one client of growth.c: creates topics, then writes a little. Called by growth.c. Calls client/core, client/produce. */
#ifndef SIM_GROWTH_TRAFFIC_H
#define SIM_GROWTH_TRAFFIC_H

#include "client_host.h"

/* Topics 1 to topics, as the client knows them by number, of so many partitions and three replicas each. */
struct grow_topics {
    const char *const *names;
    int count, partitions;
};
struct sim_role *grow_maker_new(struct sim_client *c, const struct grow_topics *t, int at_once); /* at_once: topics of one request */
bool grow_maker_done(const struct sim_role *r);

struct sim_role *grow_writer_new(struct sim_client *c, const struct grow_topics *t, int64_t every_us); /* one record each time */
struct grow_written {
    uint64_t sent, acked, failed;
};
struct grow_written grow_writer_counts(const struct sim_role *r);

#endif
