/* cluster.h - the simulator's second world: several nodes, a metadata quorum, replicated topics; the same clients, network and disks.
 *
 * What must hold of the replicas is kept here as the outside would know it: the metadata's history as it was committed (an image of the
 * simulator's own), of each partition what was committed and every copy as its files say. Checkers look into the nodes after each turn, compare,
 * and change nothing.
 *
 * cluster.c draws and runs; cluster_faults.c breaks; cluster_atlas.c says what may be broken so that every loss is a bug; check_copies.c looks at
 * logs, check_leaders.c at who leads and what is committed, check_quorum.c at the metadata, check_cluster.c at the whole after healing. Called by
 * workload.c.
 */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "quorum/image.h"
#include "quorum/meta_batch.h"
#include "replica/partition.h"
#include "workload.h"

enum { SIM_PARTS_MAX = 16 }; /* of a topic, in a cluster */

struct sim_batch_id { /* one batch of a log */
    int64_t base, last, segment; /* segment: its base */
    size_t position, size;
    uint32_t crc;
    int32_t epoch;
};
struct sim_batches {
    struct sim_batch_id *v;
    size_t count, cap;
};
struct sim_look { /* what a look at a copy depends on: while it stays the same the next turn has nothing new to show */
    const struct kb_log *log;
    uint64_t life;
    int64_t start, written, synced, leo, hw, committed;
    int32_t leader_epoch, role, partition_epoch, isr_count, wish_count, isr_min;
    bool known, suspect;
};
struct sim_copy { /* a partition on one node */
    struct sim_batches have; /* what is written, as far as it was looked at; stays when the process dies */
    int64_t end;             /* of `have` */
    size_t agreed;           /* so many batches of it are what was committed */
    uint64_t life;           /* of the node's; 0: not seen yet */
    bool suspect;            /* the power, or its whole disk, was lost since it was last in sync: what was committed may be missing */
    bool out;                /* and it has been out of the ISR since */
    bool was_cut;            /* its end was being cut off at the last look, or its log had failed, maybe at that */
    bool powerless;          /* the power was lost since the last look */
    int64_t failed_at;       /* so many were written when a write or a sync failed; -1: none has, in this life */
    int32_t leader_epoch;    /* as the node knew it last */
    int64_t hw, synced;
    int32_t hw_epoch;
    int32_t named_epoch; /* the last in which the metadata named the node as the leader */
    int32_t enough_epoch; /* the last partition epoch in which it did so with as many in sync as must be */
    /* At the last look: */
    bool led, enough;            /* enough: as many were in sync as must be */
    int32_t looked_epoch;        /* the node's leader epoch; INT32_MAX: not looked at in this life */
    int32_t view[SIM_NODES_MAX]; /* whom it waits for, where it leads: the members of the ISR, and those that it wishes into it */
    int view_count;
    bool again;                  /* it was no replica for a while: what comes may be a log begun anew */
    int64_t lost_in; /* the broker epoch in which it became suspect */
    int64_t unread;  /* the end of a batch that rot hid from a start of its node, and that is mended since: its producer may be known without; 0: none */
    struct sim_look look; /* the last one */
};
struct sim_stamp { /* a batch that some node has appended: no other may stand there in the same epoch */
    int32_t epoch, prev_epoch;
    uint32_t crc;
    int64_t prev_base;
    int32_t next; /* of the same base offset, + 1 */
};
struct sim_part { /* a partition; and the metadata's log */
    char name[32]; /* of its folder */
    struct kw_uuid id; /* its topic's, as the metadata says; zero: not known yet */
    bool known;
    struct sim_batches committed; /* what has been below a leader's high watermark */
    int64_t end;                  /* of it */
    struct sim_copy copies[SIM_NODES_MAX];
    int32_t *leaders; /* [epoch] a node + 1, as seen to lead */
    size_t leader_count, leader_cap;
    struct sim_stamp *stamps;
    size_t stamp_count, stamp_cap;
    int32_t *heads; /* [base offset] its first stamp + 1 */
    size_t head_count, head_cap;
    /* as the metadata said last */
    int32_t leader, leader_epoch, partition_epoch, isr[SIM_NODES_MAX], replicas[SIM_NODES_MAX], adding[SIM_NODES_MAX];
    int isr_count, replica_count, adding_count;
    int64_t moved_us; /* when the leader last changed */
};
struct sim_ballot { /* a node's vote of an epoch */
    int32_t epoch, voted;
};
struct sim_meta_node { /* a node as a member of the quorum */
    int64_t offset; /* of its image */
    int32_t epoch;
    struct sim_ballot *ballots;
    size_t ballot_count, ballot_cap;
    uint64_t life;
    bool wiped; /* it lost its disk, and with it its right to vote */
};
struct sim_hash_at {
    int64_t offset;
    uint64_t hash;
};
struct sim_cluster_plan {
    int voters, rest; /* rest: brokers that do not vote */
    bool apart;       /* the voters are controllers only */
    uint32_t kill_s, kill_leader_s, kill_controller_s, kill_all_s, power_s, stop_s, pause_s, cut_s, mesh_s, isolate_s, wipe_s, image_s, jump_s,
        pause_client_s, client_kill_s, client_close_s, cut_client_s, hang_s, full_s, config_s, grow_s, delete_s, alloc_s, eio_s,
        bad_sector_s, slow_s, recreate_s, reassign_s, elect_s, unregister_s, attack_s, leave_s, spike_s;
    uint32_t tamper_ppm; /* at a start: an index, a checkpoint or a snapshot is missing, cut or zeroed */
    uint32_t meta_rot_ppm, state_ppm, rot_ppm; /* a bit of the metadata is not what it was; quorum-state is cut or zeroed */
    uint32_t misdirect_ppm;                    /* a write of the last life turns out to have gone elsewhere in its file */
    bool drift, joins;
};
struct sim_damage { /* bytes of a file that are not what was written */
    size_t at, size;
    uint8_t *was, *is; /* one block */
};
struct sim_cluster {
    struct sim_run *run;
    struct sim_cluster_plan plan;
    int32_t ids[SIM_NODES_MAX]; /* node.id of each node */
    bool broker[SIM_NODES_MAX], voter[SIM_NODES_MAX];
    struct sim_part meta;
    struct sim_part parts[SIM_TOPICS_MAX][SIM_PARTS_MAX];
    /* the metadata */
    struct kb_image image; /* what was committed */
    struct kb_replay replay;
    struct kw_compressor *compressor;
    struct sim_hash_at *hashes;
    size_t hash_count, hash_cap;
    int32_t *controllers; /* [epoch] a node + 1, as seen or said to lead */
    size_t controller_count, controller_cap;
    struct sim_meta_node nodes[SIM_NODES_MAX];
    struct sim_disk_image *old[SIM_NODES_MAX]; /* an image of its disk, to be started on */
    uint64_t controller_elections, leader_elections;
    int64_t trouble_us; /* until then something is out of order, or was */
    struct { /* a voter on an old image: what it had synced, and the epoch it knew; -1 nothing */
        int64_t offset;
        int32_t epoch;
    } owes[SIM_NODES_MAX];
    bool left_out[SIM_NODES_MAX]; /* of the core that is healed first */
    bool late[SIM_NODES_MAX], gone[SIM_NODES_MAX]; /* late: not started yet, for the first time; gone: for ever */
    struct { /* a copy is damaged: a bit has turned, or a write went astray; mended when its node is ready and has not found it */
        struct sim_part *part; /* NULL: none is */
        int node, count;
        char file[160];
        struct sim_damage v[2];
    } rot;
    struct { /* the file that says whom a node has voted for is damaged; as it was, and what was left of it */
        int node; /* -1: none's is */
        uint64_t ready_lives;
        size_t size, left_size;
        uint8_t was[1024], left[1024];
    } state;
    bool ending;
};
int sim_cluster_node(const struct sim_cluster *c, int32_t id); /* by its node.id; -1: none */
static inline bool sim_part_has_replica(const struct sim_part *p, int node) {
    for (int i = 0; i < p->replica_count; i++)
        if (p->replicas[i] == node) return true;
    return false;
}
static inline bool sim_part_in_isr(const struct sim_part *p, int node) {
    for (int i = 0; i < p->isr_count; i++)
        if (p->isr[i] == node) return true;
    return false;
}
static inline bool sim_copy_awaits(const struct sim_copy *y, int node) {
    for (int i = 0; i < y->view_count; i++)
        if (y->view[i] == node) return true;
    return false;
}
/* What is in it nobody can tell: its topic was made anew, or it had an unclean election. */
static inline bool sim_part_is_open(const struct sim_cluster *c, int topic, int partition) {
    return c->run->model.topics[topic].churned || c->run->model.topics[topic].logs[partition].tainted;
}
void sim_batches_add(struct sim_batches *v, const struct sim_batch_id *b);

/* cluster.c */
void sim_cluster_run(struct sim_run *r, uint64_t seed, bool loud);
void sim_cluster_deinit(struct sim_run *r);

/* cluster_faults.c */
void sim_cluster_faults_start(struct sim_run *r);
void sim_cluster_faults_heal(struct sim_run *r);
void sim_cluster_dead(struct sim_broker *b, enum sim_death how);

/* cluster_atlas.c */
bool sim_atlas_may_lose(struct sim_cluster *c, int node, bool disk); /* its power, or its whole disk */
bool sim_atlas_may_rot(struct sim_cluster *c, const struct sim_part *p, int node); /* a bit of its copy */
bool sim_atlas_fragile(struct sim_cluster *c); /* a copy is suspect and still counts: nothing else may break now */

/* check_copies.c: 6, 7, 8, 11, 14, 15, 21, 22, and what a node's files hold */
void sim_check_copies(struct sim_broker *b);
void sim_check_copies_death(struct sim_broker *b);
void sim_check_copies_broken(struct sim_broker *b, struct kb_file *f, bool sync); /* 15 */
void sim_check_copies_lost(struct sim_cluster *c, int node, bool all); /* the power, or all */
void sim_copy_look(struct sim_cluster *c, struct sim_part *p, struct sim_broker *b, const struct kb_log *g);
void sim_copy_follow(struct sim_cluster *c, struct sim_part *p, int node, int64_t written);
void sim_copy_gone(struct sim_part *p, int node); /* it is no replica any more */
bool sim_copy_agrees(struct sim_part *p, int node); /* it has all that was committed */
struct kb_partition *sim_node_partition(struct sim_broker *b, const char *topic, int partition); /* NULL: down, or not there */

/* check_leaders.c: 2, 16 to 20, 23, 26 */
void sim_check_leader(struct sim_cluster *c, struct sim_part *p, struct sim_broker *b, struct kb_partition *x, int topic);
void sim_check_leader_failed(struct sim_cluster *c, struct sim_part *p, struct sim_broker *b, struct kb_partition *x, int topic);
void sim_check_returned(struct sim_cluster *c); /* after the metadata moved, and where a copy that was lost is seen again */
kw_err sim_check_partition_record(void *cluster, struct kb_image_topic *t, struct kb_image_partition *p);

/* check_quorum.c: 16, 22, 24, 25 for the metadata */
void sim_check_quorum(struct sim_broker *b);
void sim_check_quorum_death(struct sim_broker *b);
void sim_check_quorum_wiped(struct sim_cluster *c, int node);

/* check_cluster.c: 36; and at the end 1, 2, 9, 10 over all copies */
void sim_check_cluster_live(struct sim_run *r, bool whole);
bool sim_cluster_has(void *run, int topic, int partition, int64_t offset); /* it was committed */
void sim_check_cluster_final(struct sim_run *r);

#endif
