/* guid.h - topics with message.guid.dedup, in either world and in a share of the seeds: what their records' ids are, which copies of an id each log
 * holds, and what follows for reports, logs and lookups (invariants 1, 3, 4, 6, 14). Drawn apart, so that the other seeds are as they would be without.
 *
 * An id is the number of the record that it was first given to. A record of another number may carry it too: a twin, with the same payload (its bytes
 * are then those of the first one, and nobody can tell the two apart) or with a payload of its own.
 *
 * guid_model.c: drawing, ids, contents, who sent what. check_guid.c: the logs, after each turn of a node, and the indexes at rest. guid_app.c: producers
 * that write the protocol themselves, lookups, and a consumer that knows of batches without records only what old ones know. guid_faults.c: files of the
 * index that are gone, cut, zeroed or rotten at a start. guid_switch.c: dedup that is switched off and on again, windows that change. Called by workload.c,
 * cluster.c, producer_app.c, check_*.c.
 */
#ifndef SIM_GUID_H
#define SIM_GUID_H

#include "cluster.h"
#include "workload.h"

enum { SIM_GUID_PARTS = 16, SIM_GUID_SENT_MAX = 16, SIM_GUID_CHANGES_MAX = 24 };
#define SIM_GUID_NONE UINT32_MAX

enum sim_retention { SIM_KEEP_ALL, SIM_KEEP_WINDOW, SIM_KEEP_BYTES };

struct sim_guid_record { /* as it stands in a copy of a log */
    uint32_t guid, prev; /* guid: SIM_GUID_NONE: it has none; prev: where the same id stands before it in this copy, + 1 */
    uint32_t content;    /* its bytes are this record's */
    int64_t offset;
    int64_t at_us;       /* when a leader appended it */
    int64_t jumped_ms;   /* how far the node's wall clock had jumped forward by then, all in all */
};
struct sim_guid_batch {
    int64_t base, last, segment, at_us, jumped_ms;
    size_t position, size, first; /* first: of its records */
    uint32_t crc;
    int32_t epoch;
};
struct sim_guid_mark { /* the log's end, and when it was there first */
    int64_t leo, at_us;
};
struct sim_guid_span { /* in which a node had the same settings of a topic, as far as it was seen */
    int64_t from_us, to_us, window_us;
    uint64_t life;
    bool off;
};
struct sim_guid_copy { /* of a partition, on one node, as far as it is written */
    const struct kb_log *log;
    uint64_t life;
    bool led;
    int64_t end, start, leo, written;
    int64_t short_us; /* where it leads: since when fewer are in sync than must be; INT64_MAX: enough are */
    struct sim_guid_batch *v;
    size_t count, cap;
    struct sim_guid_record *e;
    size_t e_count, e_cap;
    uint32_t *newest; /* [id] where it stands last in e, + 1 */
    size_t newest_count, newest_cap;
    struct sim_guid_mark *marks;
    size_t mark_count, mark_cap;
    struct sim_guid_span *spans; /* where settings change */
    size_t span_count, span_cap;
    int64_t looked_us; /* the last look at it */
};
struct sim_guid_birth { /* a batch that was seen for the first time */
    int64_t base, at_us;
    size_t size, first, count; /* size: uncompressed; of its records, in the part's offsets */
    int32_t epoch;
    uint32_t crc;
};
struct sim_guid_part {
    struct sim_guid_copy copies[SIM_NODES_MAX];
    struct sim_guid_birth *births;
    size_t birth_count, birth_cap;
    int64_t *offsets;
    size_t offset_count, offset_cap;
    bool blind[SIM_NODES_MAX]; /* the node's log was mended under its index, which had passed over what could not be read, and may keep the gap */
    int64_t start_judged; /* where settings change: what lies below has gone, or was free to go, when the node that let it go first had it so */
};
struct sim_guid_sent { /* a batch as an application of ours wrote it */
    int64_t base_timestamp, pid;
    int32_t sequence;
    int8_t topic;
    int16_t partition;
    uint8_t count;
    uint32_t guids[SIM_GUID_SENT_MAX];
};
enum sim_guid_change_kind { SIM_GUID_SWITCH_OFF, SIM_GUID_SWITCH_ON, SIM_GUID_WINDOW };
struct sim_guid_change {
    int64_t at_us; /* from the faults' start on */
    int64_t window_ms;
    int topic;
    enum sim_guid_change_kind kind;
};
struct sim_guids {
    struct sim_run *run;
    int shape;         /* of the ids */
    uint32_t twins;    /* of so many records one is a twin */
    uint32_t damage_ppm;
    enum sim_retention retention;
    char window[24], keep[24], memory[24];
    struct sim_guid_part parts[SIM_TOPICS_MAX][SIM_GUID_PARTS];
    struct sim_guid_sent *sent;
    size_t sent_count, sent_cap;
    struct kw_compressor *compressor;
    struct sim_guid_change changes[SIM_GUID_CHANGES_MAX]; /* none in most seeds */
    size_t change_count;
    bool switches;              /* dedup is off now and then */
    bool off[SIM_TOPICS_MAX];   /* as the administrator wants it by now */
    int64_t windows[SIM_TOPICS_MAX][SIM_GUID_CHANGES_MAX + 1]; /* ms, one after the other */
    size_t window_count[SIM_TOPICS_MAX];
    uint64_t holes, lookups, mismatches, expired; /* what the seed has come to */
};

/* ---- guid_model.c ---- */
void sim_guids_draw(struct sim_run *r);  /* after everything else was drawn, before any node is set up */
void sim_guids_broker(struct sim_run *r, struct sim_broker *b); /* its settings */
void sim_guids_deinit(struct sim_run *r);
void sim_guid_bytes(const struct sim_guids *g, uint32_t id, uint8_t out[16]);
uint32_t sim_guid_number(const struct sim_guids *g, const uint8_t in[16]); /* SIM_GUID_NONE: nobody has given such an id */
/* The id that a record carries as it stands in a log; SIM_GUID_NONE: none. */
uint32_t sim_guid_of(const struct sim_guids *g, const uint8_t *headers, size_t headers_size);
struct sim_guid_birth *sim_guid_birth(const struct sim_guid_part *p, int64_t base, int32_t epoch, uint32_t crc); /* NULL: not seen yet */
struct sim_guid_sent *sim_guid_sent_new(struct sim_guids *g);

/* ---- check_guid.c ---- */
void sim_check_guids(struct sim_broker *b); /* after each turn */
/* What a node said of an id when it was asked at asked_us, in the life in which it said so: state as in LookupGuid. */
void sim_check_guid_lookup(struct sim_run *r, int node, int topic, int partition, uint32_t guid, int64_t asked_us, uint64_t life, int32_t epoch, int state,
                            int64_t offset);
/* It acknowledged with acks=-1 what it was asked for at asked_us: as many were in sync as must be, at some time since. */
void sim_check_guid_acked(struct sim_run *r, int node, int topic, int partition, int64_t asked_us, uint64_t life);
void sim_check_guids_final(struct sim_run *r); /* all have come to rest, and are up */

/* ---- guid_switch.c ---- */
void sim_guids_draw_changes(struct sim_guids *g);
void sim_guids_changes_start(struct sim_run *r);
void sim_guids_admin_again(struct sim_run *r); /* the disk is an old one: what was set last is set again */
/* After each turn: the settings that a node has. */
void sim_guid_saw(struct sim_guids *g, struct sim_guid_copy *c, const struct sim_broker *b, const struct kb_partition *x, int topic);
bool sim_guid_was_off(const struct sim_guid_copy *c, int64_t since_us);
/* How long an id is to be known yet at a time, at least; by a node that may have been asked since since_us. early_us: taken off its window. */
int64_t sim_guid_left_us(const struct sim_guid_copy *c, int64_t appended_us, int64_t early_us, int64_t since_us, int64_t at_us);

/* ---- guid_app.c ---- */
struct sim_role *sim_guid_app_new(struct sim_client *c, struct sim_run *r);

/* ---- guid_faults.c ---- */
void sim_guids_faults_start(struct sim_run *r);
void sim_guids_before_start(struct sim_run *r, struct sim_broker *b);

#endif
