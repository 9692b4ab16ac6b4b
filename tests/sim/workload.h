/* workload.h - one seed as a whole: what is drawn, who takes part, the two phases. Called by main.c. */
#ifndef SIM_WORKLOAD_H
#define SIM_WORKLOAD_H

#include "attacker.h"
#include "broker_host.h"
#include "groups.h"
#include "roles.h"

struct sim_plan { /* drawn from the seed */
    int clients;
    uint32_t records; /* all producers together */
    int64_t calm_us;  /* before anything breaks */
    /* the network */
    struct sim_net_faults net;
    uint32_t cut_s; /* partitions: one about every so many seconds; 0 never. So the others. */
    uint32_t kill_s, power_s, stop_s, pause_broker_s, pause_client_s, jump_s, client_kill_s, client_close_s, hang_s, eio_s, full_s,
        config_s, grow_s, recreate_s, delete_s, misdirect_s, alloc_s, attack_s;
    uint32_t tamper_ppm; /* at a restart: an index, a checkpoint or a snapshot is missing, cut or zeroed */
    uint32_t rot_ppm;    /* at a restart: a bit of a log is not what it was */
    uint32_t meta_rot_ppm; /* at a restart: a bit of the metadata is not what it was */
    bool drift, moves, image; /* moves: the broker is elsewhere after a restart; image: once it starts on an old image of its disk */
    /* the disk */
    struct sim_disk_options disk;
    uint32_t slow_ppm;
};
/* What was committed to the metadata log when its process died. */
struct sim_meta_claim {
    bool there;
    struct kw_uuid id;
    int32_t partitions;
};
struct sim_meta {
    bool known;
    int64_t offset;
    struct sim_meta_claim topics[SIM_TOPICS_MAX];
};
struct sim_meta_rot {
    bool there;
    int node;
    bool clean; /* only the clean stop before vouches for what it hit */
    char file[160];
    size_t at;
    uint8_t mask, rotten; /* rotten: the byte then */
};
struct sim_cluster;
struct sim_compact;
struct sim_guids;
struct sim_run {
    struct sim_world w;
    struct sim_net net;
    struct sim_broker nodes[SIM_NODES_MAX]; /* one, or those of a cluster */
    int node_count;
    struct sim_model model;
    struct sim_plan plan;
    struct sim_attacker attacker;
    struct sim_client clients[SIM_CLIENTS_MAX]; /* [0] the administrator's, which also verifies; begins anew only with an old image */
    struct sim_role *producers[SIM_CLIENTS_MAX], *consumers[SIM_CLIENTS_MAX], *legacy[SIM_CLIENTS_MAX], *admin, *verifier;
    struct sim_groups groups;
    struct sim_meta meta, meta_image;
    struct sim_meta_rot meta_rot;
    struct sim_disk_image *image; /* taken, not used yet */
    uint32_t left[SIM_CLIENTS_MAX]; /* records that a killed client's next life is to send */
    const char *names[SIM_TOPICS_MAX];
    const char *configs[SIM_TOPICS_MAX][36];
    char values[SIM_TOPICS_MAX][12][24];
    struct sim_cluster *cluster; /* NULL: one node alone */
    struct sim_compact *compact; /* NULL: without a compacted topic */
    struct sim_guids *guids;     /* NULL: without a topic that looks ids up */
    bool ending; /* nobody starts the broker any more */
};
uint32_t sim_often(struct sim_world *w, uint32_t chance, uint32_t lo_s, uint32_t hi_s); /* one about every so many seconds; 0 never */
uint32_t sim_ppm(struct sim_world *w, uint32_t chance, uint32_t most);
void sim_plan_draw(struct sim_run *r);
void sim_plan_draw_topics(struct sim_run *r);
void sim_client_setup(struct sim_client *c, bool moves);
void sim_run_seed(struct sim_run *r, uint64_t seed, bool loud);
void sim_run_deinit(struct sim_run *r);
void sim_client_new_life(struct sim_run *r, int i); /* workload.c */
void sim_client_first_life(struct sim_run *r);      /* of the administrator's client: makes sure that all topics are there */

/* faults.c */
void sim_faults_start(struct sim_run *r);
void sim_faults_heal(struct sim_run *r);
void sim_faults_dead(struct sim_run *r); /* the broker's process is gone: it is to come back */

void sim_fault_pause_client(struct sim_run *r);
void sim_fault_kill_client(struct sim_run *r);
void sim_fault_close_client(struct sim_run *r);

/* faults_disk.c */
void sim_faults_before_start(struct sim_run *r);
void sim_fault_rot_meta(struct sim_run *r, struct sim_broker *b);
void sim_fault_meta_ready(struct sim_run *r, struct sim_broker *b);
void sim_fault_meta_dead(struct sim_run *r, struct sim_broker *b);
void sim_fault_tamper(struct sim_world *w, struct sim_broker *b, bool meta); /* meta: also of the metadata's log */
bool sim_fault_segment(struct sim_world *w, struct sim_broker *b, bool meta, char *path, size_t n, size_t *size);
void sim_fault_hang(struct sim_run *r);
void sim_fault_eio(struct sim_run *r);
void sim_fault_full(struct sim_run *r);
void sim_fault_misdirect(struct sim_run *r);
struct sim_log *sim_log_of_path(struct sim_run *r, const char *path); /* NULL: none of ours */

/* check_meta.c: 24, 25 */
void sim_check_meta_death(struct sim_broker *b); /* notes what is committed */
void sim_check_meta_ready(struct sim_broker *b);

/* check_disk.c: 6, 10, 11, 12, and replays for 14 */
void sim_check_disk_death(struct sim_broker *b, enum sim_death how); /* notes what is there */
void sim_check_disk_dead(struct sim_broker *b, enum sim_death how);
void sim_check_disk_ready(struct sim_broker *b); /* a start is through: what is there now is a beginning of what was */
void sim_check_disk_image(struct sim_broker *b);    /* an image is taken: what it holds is noted */
void sim_check_disk_restored(struct sim_run *r);    /* the disk is that image: what came later is lost */
void sim_check_disk_final(struct sim_run *r);
bool sim_check_disk_has(void *run, int topic, int partition, int64_t offset);
void sim_check_disk_deinit(void);
/* check_marks.c: 7, 8, 15 */
void sim_check_marks(struct sim_broker *b);
void sim_check_marks_broken(struct sim_broker *b, struct kb_file *f, bool sync);
/* check_lookup.c: 12 */
void sim_check_lookups(struct sim_run *r);
/* check_live.c: 36 */
void sim_check_live(struct sim_run *r);

#endif
