/* cluster_faults.h - what the files of a cluster's faults share: cluster_faults.c (lives, network, clients, the rates), cluster_disks.c (disks),
 * cluster_admin.c (what an administrator does).
 */
#ifndef SIM_CLUSTER_FAULTS_H
#define SIM_CLUSTER_FAULTS_H

#include "cluster.h"

/* cluster_faults.c */
struct sim_broker *sim_any_node(struct sim_cluster *c);
void sim_start_later(struct sim_cluster *c, struct sim_broker *b, int64_t most_us);
void sim_steady(struct sim_cluster *c); /* what a node holds is about to be lost: nothing that waits to strike another does */
void sim_net_deaths_are_seen(struct sim_cluster *c, int64_t for_us);
bool sim_node_broken(struct sim_broker *b); /* a log of it has failed, until its next start */

void sim_cluster_join_later(struct sim_cluster *c, int node);

/* cluster_disks.c */
void sim_disks_wipe(struct sim_cluster *c);
void sim_disks_old_image(struct sim_cluster *c);
bool sim_disks_kill_all_rotten(struct sim_cluster *c); /* false: it was not the moment */
void sim_disks_hang(struct sim_cluster *c);
void sim_disks_full(struct sim_cluster *c);
void sim_disks_eio(struct sim_cluster *c);
void sim_disks_bad_sector(struct sim_cluster *c);
void sim_disks_slow(struct sim_cluster *c);
void sim_disks_before_start(struct sim_cluster *c, struct sim_broker *b);
void sim_disks_ready(struct sim_cluster *c, struct sim_broker *b);
void sim_disks_forget_damage(struct sim_cluster *c);
void sim_disks_after_death(struct sim_cluster *c, struct sim_broker *b);
void sim_disks_heal(struct sim_cluster *c, struct sim_broker *b);

/* cluster_forge.c */
void sim_cluster_forge(void *cluster, struct sim_attacker *a);

/* cluster_admin.c */
void sim_admins_config(struct sim_cluster *c);
void sim_admins_grow(struct sim_cluster *c);
void sim_admins_delete_records(struct sim_cluster *c);
void sim_admins_recreate(struct sim_cluster *c);
void sim_admins_reassign(struct sim_cluster *c);
void sim_admins_elect(struct sim_cluster *c);
void sim_admins_leave(struct sim_cluster *c);
void sim_admins_unregister(struct sim_cluster *c);

#endif
