/* model.h - what the outside knows: every record that was sent and what became of it, and the logs as they were seen.
 *
 * The checkers write and read it; the roles tell it what they did. A record's content follows from the seed and its number alone, and
 * its number is in its bytes, so that whatever is read can be compared with what was written.
 */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include <kclient/producer.h>

#include "client_host.h"
#include "wire/batch.h"

enum sim_record_state { SIM_SENT, SIM_OK, SIM_FAILED, SIM_DROPPED /* its producer died: no report comes */ };
struct sim_record {
    uint8_t state, reports, outcome;
    bool has_timestamp;
    bool old;            /* sent in a message set: no headers */
    bool shared;         /* its bytes, or its id, are another record's too (guid.h) */
    bool placed, staged; /* sent to a partition by its number; sent when the number of partitions was not known yet */
    int8_t topic;
    int16_t partition; /* asked for or reported; -1 not known */
    int32_t producer;  /* in model.producers */
    uint32_t order;    /* of its producer's records */
    int64_t sent_us, sent_mono_us, paused_us, timeout_us;
    int64_t timestamp_ms;
    int64_t offset; /* as acknowledged; -1 */
    kc_err err;
    uint32_t guid1, content; /* the number of its id, + 1 (0: none), and of the record whose bytes it has: where it has an id (guid.h) */
    /* as found in the log at the end */
    uint32_t copies;
    int64_t first_offset;
    int16_t found_partition;
};

struct sim_slot { /* of a log, as read or scanned */
    uint32_t id1; /* record + 1; 0 not seen */
    int32_t epoch;
};
struct sim_loss { /* a power loss took the unsynced end */
    int64_t from, at_us;
    int32_t epoch; /* the leader epoch of what was lost, at most */
    bool acks1;    /* with flush.on.ack: what was acknowledged with acks=1, when it was written, and nobody had read */
};
struct sim_log {
    struct sim_slot *slots;
    size_t count, cap;
    int64_t start; /* lowest that deleted records leave */
    struct sim_loss *losses;
    size_t loss_count, loss_cap;
    bool
        misdirected; /* a write went astray while the broker ran: what it has in its cache it cannot know to be wrong, but the client can */
    bool tainted;    /* its bytes were tampered with: only what is served counts */
    /* check_marks.c */
    int64_t hw, poisoned_at;
    int64_t hw_max; /* nobody has read at or above it */
    int64_t told_end; /* the end that ListOffsets has told; -1 not yet */
    int32_t epoch;
    uint64_t life;
};
struct sim_topic {
    char name[24];
    int32_t partitions; /* as asked for so far */
    bool churned;       /* deleted and made anew: which of the two a record is in, nobody can tell */
    bool append_time;
    int16_t rf;         /* copies; 0 for one */
    bool guid;          /* message.guid.dedup */
    int64_t window_us;
    bool unclean;       /* a replica that is not in sync may lead when no other is left: with loss */
    struct sim_log logs[64];
};
struct sim_producer_facts {
    bool idempotent, ordered; /* ordered: one request in flight */
    int16_t acks;
    int64_t delivery_timeout_us;
    bool alive;
};
struct sim_model {
    struct sim_world *w;
    struct sim_record *records;
    size_t count, cap;
    struct sim_topic topics[SIM_TOPICS_MAX];
    int topic_count;
    struct sim_producer_facts *producers;
    size_t producer_count, producer_cap;
    bool flush_on_ack;
    bool replicated; /* a leader that falls takes with it what only it had: acks=1 promises nothing then */
    bool (*in_files)(void *ctx, int topic, int partition, int64_t offset); /* whether any batch on the disk has the offset */
    void *ctx;
    struct sim_guids *guids; /* NULL: no topic looks ids up */
    uint64_t read, reported, acked;
};

void sim_model_init(struct sim_model *m, struct sim_world *w);
void sim_model_deinit(struct sim_model *m);
/* Of a topic of ours, by its name (or that of a partition's folder); -1: none of ours. Asked for after every turn. */
static inline int sim_topic_number(const char *name) {
    int n = 0;
    if (strncmp(name, "topic-", 6) != 0 || name[6] < '0' || name[6] > '9') return -1;
    for (const char *p = name + 6; *p >= '0' && *p <= '9' && n < SIM_TOPICS_MAX; p++) n = n * 10 + (*p - '0');
    return n < SIM_TOPICS_MAX ? n : -1;
}
struct sim_log *sim_model_log(struct sim_model *m, int topic, int partition); /* NULL: no such */
struct sim_slot *sim_log_slot(struct sim_log *l, int64_t offset);             /* made when missing */
void sim_log_lose(struct sim_model *m, struct sim_log *l, int64_t from, int32_t epoch, bool acks1);
bool sim_log_stale(const struct sim_log *l, int64_t offset,
                   int32_t epoch); /* such a record was there once and is lost; it may still have been on its way */
bool sim_log_lost(const struct sim_model *m, const struct sim_log *l, int64_t offset,
                  const struct sim_record *r); /* a power loss explains that it is not there */

/* ---- Content ---- */
struct sim_content {
    struct kw_bytes key, value;
    struct kw_header_view headers[5];
    size_t header_count;
    int64_t timestamp_back_ms; /* how far before now its timestamp lies, when it is given one; -1: it is given none */
    uint8_t *bytes;
    size_t cap;
    uint8_t guid[16];
};
void sim_content_make(uint64_t seed, uint32_t id, bool old, struct sim_content *c); /* into c->bytes, which grows; old: nothing in headers */
void sim_content_deinit(struct sim_content *c);
void sim_content_of(const struct sim_model *m, uint32_t id, struct sim_content *c); /* of a record, with its id behind its headers */
/* Reads the number of a record; false: it carries none. headers: wire bytes; headers_size SIM_NO_HEADERS: the format has none. */
#define SIM_NO_HEADERS SIZE_MAX
bool sim_content_id(struct kw_bytes key, struct kw_bytes value, const uint8_t *headers, size_t headers_size, uint32_t *id);
/* NULL, or what differs. */
const char *sim_content_differs(const struct sim_content *c, struct kw_bytes key, struct kw_bytes value, const uint8_t *headers,
                                size_t headers_size);

/* ---- Ids: guid_model.c; without a topic that looks them up nothing of it draws or does anything ---- */
/* A record to send now and then again, under the same id. false: none this time. */
bool sim_guid_twin(struct sim_model *m, int topic, int partition, uint32_t *of); /* topic, partition -1: any */
/* Record `id` of a topic of ours gets an id: a new one, or as a twin that of another, with its bytes or with its own. */
void sim_guid_give(struct sim_model *m, uint32_t id);
void sim_guid_give_twin(struct sim_model *m, uint32_t id, uint32_t of, bool other_payload);
bool sim_guid_same(const struct sim_model *m, uint32_t a, uint32_t b); /* records: the same id */
bool sim_guid_payload_same(const struct sim_model *m, uint32_t a, uint32_t b);
/* Where nothing was read, there is nothing: each offset in [from, to) is one that dedup has left empty. */
bool sim_guid_holes(const struct sim_model *m, int topic, int partition, int64_t from, int64_t to);
/* Bytes of the first batch with a record in [from, to); 0: there is none, or it is not known. */
size_t sim_guid_next(const struct sim_model *m, int topic, int partition, int64_t from, int64_t to);
void sim_guid_reported(struct sim_model *m, uint32_t id, const kc_report *r); /* 1, 4 */
void sim_guid_acked(struct sim_model *m, uint32_t id);                        /* the same at the end */

/* ---- check_reports.c: 4, 27, 28 ---- */
uint32_t sim_model_sent(struct sim_model *m, int producer, int topic, int partition, uint32_t order, const struct sim_host *h,
                        int64_t timeout_us);
void sim_model_unsent(struct sim_model *m, uint32_t id); /* it was not accepted after all: the last one */
void sim_check_report(struct sim_model *m, const kc_report *r, const struct sim_host *h);
void sim_check_reports_done(struct sim_model *m, int producer); /* the producer is closed: every record has its report */
void sim_check_reports_late(struct sim_model *m);               /* long after: none is outstanding beyond its limit */
void sim_model_dropped(struct sim_model *m, int producer);      /* it was killed */

/* ---- check_reads.c: 2, 4, 10, 30, 31 ---- */
struct sim_tracker { /* one partition of one consumer's assignment */
    int topic, partition;
    int64_t next;  /* the offset that must come next; -1: any */
    bool may_jump; /* the log's end was lost, or deleted records: it may go elsewhere once */
};
void sim_check_read(struct sim_model *m, struct sim_tracker *t, int64_t offset, int32_t epoch, int timestamp_type, int64_t timestamp_ms,
                    struct kw_bytes key, struct kw_bytes value, const uint8_t *headers, size_t headers_size);
/* The same for a message of magic 0 or 1 (timestamp -1: it has none of its own). */
void sim_check_read_old(struct sim_model *m, struct sim_tracker *t, int64_t offset, int64_t timestamp_ms, struct kw_bytes key,
                        struct kw_bytes value);
/* The same for a record as found on disk. */
void sim_check_content(struct sim_model *m, const char *where, int topic, int partition, int64_t offset, int32_t epoch, int timestamp_type,
                       int64_t timestamp_ms, struct kw_bytes key, struct kw_bytes value, const uint8_t *headers, size_t headers_size,
                       uint32_t *id);

/* ---- check_final.c: 1, 3, 5, 27 ---- */
void sim_check_final(struct sim_model *m);

#endif
