/* compact.h - a compacted topic in either world: who writes and reads it (compact_app.c), and what must be there of it (check_compact.c, invariant 13,
 * and what 6, 12 and 14 say of logs with holes). A share of the seeds has one; it is drawn apart, so that the others are as they would be without.
 */
#ifndef SIM_COMPACT_H
#define SIM_COMPACT_H

#include "cluster.h"
#include "workload.h"

#define SIM_COMPACT_TOPIC "compacted"
enum { SIM_COMPACT_PARTS = 2, SIM_COMPACT_KEYS = 40 };

enum { SIM_COMPACT_UNKNOWN = -1, SIM_COMPACT_LOST = -2 };
struct sim_compact_record { /* by its number, which is in its header */
    int16_t partition;
    uint8_t key;
    bool tombstone;
    int64_t acked;       /* its offset; or whether it is there is not known, or it was lost with the power */
    int64_t seen;        /* where it was found; UNKNOWN, LOST */
    int64_t acked_us;
};
struct sim_compact {
    bool on;
    bool lossy[SIM_COMPACT_PARTS]; /* the power went, and the log was not looked at since */
    uint32_t losses;               /* how often it went */
    bool steady_clocks;  /* no clock jumps or drifts: times can be told */
    bool enough;         /* nothing more is written */
    int rf;
    int retention_ms;    /* delete.retention.ms: in a cluster longer than any replica is behind, or it would never hear of a deletion (as in Apache Kafka) */
    struct sim_compact_record *v;
    size_t count, cap;
    uint32_t *by_offset[SIM_COMPACT_PARTS]; /* number + 1 of the record that is, or was, there */
    size_t by_offset_count[SIM_COMPACT_PARTS], by_offset_cap[SIM_COMPACT_PARTS];
    char numbers[4][24];
    uint64_t read;
};

void sim_compact_draw(struct sim_run *r);  /* after everything else was drawn, before any node is set up */
void sim_compact_broker(struct sim_run *r, struct sim_broker *b); /* its settings */
struct sim_role *sim_compact_new(struct sim_client *c, struct sim_run *r);
void sim_compact_deinit(struct sim_run *r);

/* A record as it was read or scanned: it is one of ours, as it was sent, and has one offset. The number is in *id. */
void sim_compact_content(struct sim_run *r, const char *where, int partition, int64_t offset, const struct kw_record_view *v, uint32_t *id);
void sim_compact_acked(struct sim_run *r, uint32_t id, int64_t offset, bool stale); /* stale: the power went since it was sent */
/* Offsets [from, to) were read, and hold none of ours but those that were told: nothing that must be there was passed over. */
void sim_compact_passed(struct sim_run *r, int partition, int64_t from, int64_t to);

void sim_check_compact_dead(struct sim_run *r, enum sim_death how);
void sim_check_compact_ready(struct sim_run *r, struct sim_broker *b); /* one node alone: after each start */
void sim_check_compact_final(struct sim_run *r);                       /* all have come to rest, and are up */
void sim_check_compact_files(struct sim_run *r);                       /* and were stopped */

#endif
