/* roles.h - what runs on the clients: producers and consumers (as applications would use them), and one administrator.
 *
 * Called by workload.c. Each is a struct sim_role; producer_app.c, consumer_app.c and admin_app.c cannot share private headers of the
 * client (both halves have a kc_part of their own), hence this one.
 */
#ifndef SIM_ROLES_H
#define SIM_ROLES_H

#include "model.h"

/* ---- Producers ---- */
struct sim_producer_plan {
    struct kc_config *config; /* taken */
    uint32_t quota;           /* records */
    int64_t every_us;         /* between bursts */
    uint32_t burst_max;
    int64_t timeout_us; /* of single records now and then; 0: never */
    uint32_t purge_ppm, flush_ppm;
    int64_t start_us;
};
struct sim_role *sim_producer_new(struct sim_client *c, struct sim_model *m, const struct sim_producer_plan *plan);
void sim_producer_close(struct sim_role *r, int64_t timeout_us); /* and fails the run when the close does not keep its limit */
bool sim_producer_closed(const struct sim_role *r);
bool sim_producer_done(const struct sim_role *r);     /* all sent, each with its report */
uint32_t sim_producer_left(const struct sim_role *r); /* of its quota, not sent */
void sim_producer_hurry(struct sim_role *r);          /* healed: the rest without dawdling */
void sim_producer_enough(struct sim_role *r);         /* sends no more; what it has sent awaits its reports */

/* ---- Consumers ---- */
struct sim_consumer_plan {
    struct kc_config *config; /* taken */
    int64_t every_us;         /* between polls */
    uint32_t seek_ppm, pause_ppm, reassign_ppm;
    int events; /* taken at one poll, at most */
    bool all; /* every partition of every topic; else a drawn subset */
    bool from_start;
};
struct sim_role *sim_consumer_new(struct sim_client *c, struct sim_model *m, const struct sim_consumer_plan *plan);
void sim_consumer_lost(struct sim_role *r, int topic, int partition,
                       int64_t from); /* the log's end from there on is lost, or its beginning deleted */
/* How far it has come: -1 nowhere. false: not assigned. */
bool sim_consumer_position(const struct sim_role *r, int topic, int partition, int64_t *position);
void sim_consumer_calm(struct sim_role *r);                              /* no seeks and pauses any more; what is paused goes on */
void sim_consumer_restart(struct sim_role *r);                           /* assigns every partition anew, from the beginning */
void sim_consumer_describe(struct sim_role *r, char *text, size_t size); /* what its first unfinished partition waits for */
/* Offset lookups: timestamps in, offsets out; `done` in a later turn. */
struct sim_lookup {
    int topic, partition;
    int64_t timestamp, offset; /* in: a time, or -1 (end), -2 (start); out */
    kc_err err;
};
bool sim_consumer_lookup(struct sim_role *r, struct sim_lookup *items, size_t n, int64_t timeout_us,
                         void (*done)(void *ctx, struct sim_lookup *items, size_t n), void *ctx);

/* ---- Clients of old days: legacy_app.c ---- */
struct sim_role *sim_legacy_new(struct sim_client *c, struct sim_model *m, uint32_t quota, int64_t every_us);
void sim_legacy_lost(struct sim_role *r, int topic, int partition, int64_t from);

/* ---- Offset lookups all the time: prober.c; invariants 8 and 12 ---- */
struct sim_run;
struct sim_role *sim_prober_new(struct sim_client *c, struct sim_run *run);

/* ---- Administration ---- */
struct sim_role *sim_admin_new(struct sim_client *c, struct sim_model *m);
void sim_admin_create(struct sim_role *r, int topic, const char *const *configs); /* tries until it is there */
bool sim_admin_idle(const struct sim_role *r);
void sim_admin_grow(struct sim_role *r, int topic, int partitions);
void sim_admin_recreate(struct sim_role *r, int topic);
void sim_admin_config(struct sim_role *r, int topic, const char *name, const char *value);
void sim_admin_delete_records(struct sim_role *r, int topic, int partition, int64_t before);
void sim_admin_reassign(struct sim_role *r, int topic, int partition, const int32_t *ids, int32_t n); /* n -1: what is under way is cancelled */
void sim_admin_elect(struct sim_role *r, int topic, int partition, bool unclean);
void sim_admin_unregister(struct sim_role *r, int32_t broker);

#endif
