/* attacker.h - somebody on the network who means harm: random bytes, impossible lengths, requests of others cut short or changed.
 *
 * What it sends can never be a valid request that changes something: those of others that do are only ever sent cut short. Called by
 * workload.c and faults.c, cluster.c and cluster_faults.c. Calls net; in a cluster cluster_forge.c.
 */
#ifndef SIM_ATTACKER_H
#define SIM_ATTACKER_H

#include "net.h"

enum { SIM_LOOT_MAX = 48 };
struct sim_attacker {
    struct sim_host host; /* first */
    struct sim_world *w;
    struct sim_net *net;
    struct sim_conn *conn;
    uint8_t *out; /* what is to be sent */
    size_t out_size, out_sent, out_cap, poison; /* poison: where an impossible length ends in it; 0: nowhere */
    int64_t leave_us;
    int servers, target; /* of so many nodes, this one */
    void (*forge)(void *ctx, struct sim_attacker *a); /* adds a request that only nodes send, or none; NULL: there is one node alone */
    void *forge_ctx;
    bool over;   /* nothing more goes out: it waits for the end */
    bool forged; /* this time it forges */
    struct { /* requests of others, whole, as they were seen */
        uint8_t *p;
        size_t size;
    } loot[SIM_LOOT_MAX];
    size_t loot_count;
    struct { /* the one being seen */
        uint64_t conn;
        uint8_t *p;
        size_t size, want;
    } seen;
};
void sim_attacker_init(struct sim_attacker *a, struct sim_world *w, struct sim_net *net);
void sim_attacker_deinit(struct sim_attacker *a);
void sim_attacker_strike(struct sim_attacker *a); /* a connection's worth of harm, unless it is at it already */

void sim_attacker_add(struct sim_attacker *a, const void *p, size_t n); /* for forge */

#endif
