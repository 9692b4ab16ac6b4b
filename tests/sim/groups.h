/* groups.h - groups in the simulated worlds: what was committed for whom, who was told to own what, and the clients that do it.
 *
 * Two kinds of groups: `alone-N` is committed to by client N without members; crews have one member on each client, which share the cells (a
 * cell: what a group has committed for one partition of the topic "watched"). commits_app.c is the clients, and speaks the protocol itself;
 * group_model.c judges what they are told: invariants 33, 34, 36; group_atlas.c says which copies of __consumer_offsets may be lost.
 *
 * Whether a seed has groups is drawn from a generator of its own: the others stay the worlds that they were.
 */
#ifndef SIM_GROUPS_H
#define SIM_GROUPS_H

#include "model.h"

struct sim_run;
struct sim_cluster;
struct sim_broker;
struct sim_role;

enum { SIM_CELLS = 6, SIM_CREWS = 2, SIM_ALONE = SIM_CLIENTS_MAX, SIM_UNSURE_MAX = 48, SIM_OWNERS = 64, SIM_OFFSETS_PARTS = 3, SIM_SHARED_PARTS = 16 };
#define SIM_WATCHED "watched"

struct sim_cell {
    int64_t next;       /* every commit has a value of its own */
    int64_t current;    /* what is stored; -1: nothing */
    int32_t generation; /* in which it was committed; -1: by nobody's member */
    uint64_t version;   /* grows with everything that is known to have changed it */
    bool anything;      /* the disk lost what was not synced: what is there now nobody can tell until it is read */
    int64_t acked_us;
    struct sim_unsure { /* sent, and no answer says what became of it */
        int64_t value;
        int32_t generation;
    } unsure[SIM_UNSURE_MAX];
    int unsure_count;
};
struct sim_group {
    char id[32];
    bool crew;
    struct sim_cell cells[SIM_CELLS];
    /* of a crew */
    int32_t synced;    /* the highest generation in which anybody was told what he owns */
    int64_t synced_us; /* since when that is known */
    int64_t sign_us;   /* a member was known to be in it */
    struct {
        int32_t generation;
        uint64_t of[SIM_CELLS]; /* the members' ids, hashed; 0: nobody's yet */
    } owners[SIM_OWNERS];
};
struct sim_offsets_part { /* of __consumer_offsets, in a cluster */
    int32_t epoch;
    int64_t moved_us;
    bool suspect[SIM_NODES_MAX]; /* it lost its power or its disk, and is not back in the ISR yet */
    int64_t lost_in[SIM_NODES_MAX];
};
struct sim_groups {
    bool on, made; /* made: the topic is there */
    bool brief;    /* offsets are kept for a minute: clocks go right in such a seed */
    int32_t partitions;
    int64_t healed_us;
    struct sim_group alone[SIM_ALONE], crews[SIM_CREWS];
    struct sim_role *apps[SIM_CLIENTS_MAX];
    struct sim_offsets_part offsets[SIM_OFFSETS_PARTS];
    uint64_t losses; /* how often the disk of one node alone lost what was not synced … */
    int64_t lost_us; /* … and when last */
    uint64_t acked, fetched, syncs, handed;
    /* the group of real clients */
    bool members_on;
    uint64_t strategy;
    struct sim_role *members[SIM_CLIENTS_MAX];
    struct sim_shared {
        int64_t passed;    /* all before it was given to somebody */
        int64_t committed; /* as was acknowledged */
        bool loose;        /* its end was lost: nobody can tell any more */
    } shared[SIM_TOPICS_MAX][SIM_SHARED_PARTS];
};

/* ---- commits_app.c ---- */
void sim_groups_draw(struct sim_run *r);
void sim_groups_set_node(struct sim_run *r, struct sim_broker *b);
void sim_commits_new(struct sim_run *r, int client);
/* 36: every group is stable, all of it is owned, and commits come through; when not, what is missing. */
bool sim_commits_through(struct sim_run *r, char *why, size_t size);

/* ---- group_app.c: members by the real client ---- */
void sim_member_new(struct sim_run *r, int client);
void sim_members_lost(struct sim_run *r, int topic, int partition); /* the end of its log is lost */
bool sim_members_through(struct sim_run *r, char *why, size_t size);

/* ---- group_model.c ---- */
enum sim_commit_end { SIM_COMMIT_ACKED, SIM_COMMIT_REFUSED, SIM_COMMIT_UNSURE };
void sim_groups_init(struct sim_groups *g);
int64_t sim_commit_sent(struct sim_cell *c, int32_t generation); /* the value to be committed */
void sim_commit_ended(struct sim_run *r, struct sim_group *g, int cell, int64_t value, int32_t generation, int64_t sent_us, enum sim_commit_end end);
/* What was read; version: the cell's when it was asked for. */
void sim_commit_read(struct sim_run *r, struct sim_group *g, int cell, int64_t value, uint64_t version);
/* A member (a static one by that name) was told what it owns, by who was the coordinator all the while; asked_us: when it asked. */
void sim_group_synced(struct sim_run *r, struct sim_group *g, int32_t generation, const char *member, const uint8_t *cells, int count, int64_t asked_us);
/* One that had been told says that it lives, and who is the coordinator all the while agrees: it may have been told by one that lost its office just then. */
void sim_group_beat(struct sim_run *r, struct sim_group *g, int32_t generation, int64_t asked_us);
void sim_group_sign(struct sim_run *r, struct sim_group *g);
void sim_groups_lost(struct sim_run *r); /* of one node alone: what was not synced may be gone */

/* ---- group_atlas.c: in a cluster ---- */
void sim_offsets_lost(struct sim_cluster *c, int node); /* its power, without flush.on.ack; or its whole disk */
bool sim_offsets_fragile(struct sim_cluster *c);
bool sim_offsets_spare(struct sim_cluster *c, int node);
/* The node that coordinates the group, as the metadata says, and in which epoch; -1: none. */
int32_t sim_offsets_leader(struct sim_run *r, const char *group, int32_t *epoch);

#endif
