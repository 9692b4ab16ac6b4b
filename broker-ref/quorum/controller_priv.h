/* controller_priv.h - what the controller's files share: the kinds of change, records being collected, results. */
#ifndef KB_CONTROLLER_PRIV_H
#define KB_CONTROLLER_PRIV_H

#include "base/arena.h"
#include "controller.h"
#include "effective.h"
#include "kw_messages.h"
#include "store.h"
#include "wire/kerror.h"

#define KB_CLAIM_SIZE 264
#define KB_RECORDS_PER_CHANGE_MAX 10000 /* as Kafka's; what one client can make the log swallow at once */

struct kb_change_kind {
    const char *name;
    /* Validates, sets each item's result, and collects records in k->records. */
    kw_err (*run)(struct kb_controller *k, struct kb_change *c);
    /* The i-th item's claim: what no two changes may touch at a time. false: none. */
    bool (*claim)(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n);
    /* What the i-th item names: two items that name the same are both refused. Same form as a claim. */
    bool (*names)(struct kb_controller *k, struct kb_change *c, int32_t i, char key[KB_CLAIM_SIZE], size_t *n);
    struct kb_result *(*result)(struct kb_change *c, int32_t i);
};

struct kb_pending_change { /* appended, not yet applied; outlives its change when that is cancelled */
    struct kw_list link;
    struct kb_change *change; /* NULL: cancelled */
    int64_t commit_offset;
    int32_t claim_count;
    struct {
        char key[KB_CLAIM_SIZE];
        size_t n;
    } claims[];
};

struct kb_controller {
    struct kb_controller_options o;
    struct kw_list queue;    /* not run yet: something that they touch is under way */
    struct kw_list waiting;  /* struct kb_pending_change, by offset */
    struct kw_list finished; /* nothing was to be appended: done comes with the timer */
    struct kw_map claims;    /* key -> struct kb_pending_change */
    struct kw_timer timer;
    struct kb_now now; /* of the last call */
    int64_t next_pid;  /* above all blocks handed out, committed or not, and above what the logs hold */
    bool failed, pumping;
    /* of the change being run */
    struct kw_arena arena;
    struct kw_map seen; /* what its items name */
    struct kb_store_record *records;
    size_t record_count, record_cap;
};

/* Starts a change: it runs now, or when what it touches is free. */
kw_err kb_controller_submit(struct kb_controller *k, struct kb_change *c, const struct kb_change_kind *kind, void *items, int32_t count,
                            bool validate_only, struct kb_now now) KW_CHECK;
/* A zeroed message (defaults set) in the arena, noted as the next record; NULL: out of memory. */
void *kb_controller_record(struct kb_controller *k, int16_t type, int16_t version);
void kb_result_set(struct kb_result *r, int16_t code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool kb_claim_topic(struct kw_str name, char key[KB_CLAIM_SIZE], size_t *n);
bool kb_names_topic(struct kw_str name, char key[KB_CLAIM_SIZE], size_t *n);

/* place.c: replicas for partitions [first, first + count) of a topic. */
struct kb_place {
    const int32_t *brokers; /* live ones, ascending */
    int32_t broker_count, shift;
};
kw_err kb_place_init(struct kb_controller *k, struct kb_place *p) KW_CHECK;
void kb_place_partition(const struct kb_place *p, int32_t partition, int32_t rf, int32_t *out);
/* Given by hand: KE code and text in r, or 0. rf: what all must have, -1 when the first decides. */
bool kb_place_check(struct kb_controller *k, const struct kb_assignment *a, int32_t count, int32_t first, int32_t rf, struct kb_result *r);
kw_err kb_place_record(struct kb_controller *k, struct kw_uuid topic, int32_t partition, const int32_t *replicas, int32_t rf) KW_CHECK;

/* controller_configs.c */
bool kb_config_entry_check(struct kb_controller *k, const struct kb_config_kv *kv, int scope, struct kb_result *r);
kw_err kb_config_record(struct kb_controller *k, int8_t type, struct kw_str resource, struct kw_str name, struct kw_str value) KW_CHECK;

#endif
