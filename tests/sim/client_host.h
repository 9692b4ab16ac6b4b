/* client_host.h - a client's process in the simulated world: a real client core with its roles (producers, consumers, administration).
 *
 * Called by workload.c, faults.c, checkers. Calls client/core/event.h, net. A role's own code is in producer_app.c, consumer_app.c, admin_app.c.
 */
#ifndef SIM_CLIENT_HOST_H
#define SIM_CLIENT_HOST_H

#include "core/core.h"
#include "net.h"

struct sim_client;
struct sim_role { /* embedded, first, in what a role is */
    struct sim_client *client;
    int64_t next_us;                        /* the world's time of its next own doing; SIM_NEVER */
    bool (*work)(struct sim_role *r);       /* once a round, in loop context; true: there may be more at once */
    void (*stop)(struct sim_role *r);       /* ends it without a word to anyone; may take turns */
    bool (*stopped)(const struct sim_role *r);
    void (*free)(struct sim_role *r);
    void (*check)(struct sim_role *r);      /* limits, after each turn; may be NULL */
};

enum { SIM_ROLES_MAX = 8, SIM_TOPICS_MAX = 5 };
struct sim_client {
    struct sim_host host; /* first */
    struct sim_world *w;
    struct sim_net *net;
    int index;
    struct kc_config *config;     /* given; the client's own properties */
    struct kc_settings *settings; /* parsed anew in each life */
    struct kc_core *core;         /* NULL: not alive */
    struct kw_list peers;
    struct sim_role *roles[SIM_ROLES_MAX];
    size_t role_count;
    bool dying;                   /* stopping: nothing goes out any more */
    uint64_t lives;
};

void sim_client_init(struct sim_client *c, struct sim_world *w, struct sim_net *net, int index);
void sim_client_deinit(struct sim_client *c); /* kills it first */
void sim_client_set(struct sim_client *c, const char *name, const char *value);
void sim_client_start(struct sim_client *c, const char *const *topics, size_t n); /* topic i gets the client's number i + 1 */
void sim_client_add(struct sim_client *c, struct sim_role *r);
void sim_client_kill(struct sim_client *c); /* at once; all its roles are gone afterwards */
struct kc_settings *sim_client_role_settings(struct sim_client *c, struct kc_config *role);
static inline struct kc_now sim_client_now(const struct sim_client *c) {
    struct sim_clock k = sim_host_now(&c->host);
    return (struct kc_now){k.mono_us, k.wall_ms};
}
static inline void sim_client_wake(struct sim_client *c) { sim_host_wake(&c->host, c->w->now_us); }
size_t sim_client_connections(const struct sim_client *c);
struct kc_config *sim_config(const char *const *pairs); /* name, value, …, NULL */
void sim_config_set(struct kc_config *c, const char *name, const char *value);

#endif
