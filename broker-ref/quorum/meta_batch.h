/* meta_batch.h - batches of metadata records: building them, and replaying them into an image. The log and its snapshots have the same
 * form.
 *
 * A record's value is: frame version 1, type and version as unsigned varints, then the message (KIP-595, KIP-631). Control batches carry
 * LeaderChange, snapshot header and footer. Called by the store and its snapshots.
 */
#ifndef KB_META_BATCH_H
#define KB_META_BATCH_H

#include "config.h"
#include "image.h"
#include "base/blk.h"
#include "wire/batch.h"

#define KB_META_BATCH_MAX (8u << 20) /* Kafka's internal.metadata.max.batch.size.in.bytes */
enum {
    KB_CONTROL_LEADER_CHANGE = 2,
    KB_CONTROL_SNAPSHOT_HEADER = 3,
    KB_CONTROL_SNAPSHOT_FOOTER = 4,
    KB_CONTROL_KRAFT_VERSION = 5,
    KB_CONTROL_VOTERS = 6
};

struct kb_meta_batch { /* one being built */
    struct kw_out body, value;
    int32_t count;
};
void kb_meta_batch_init(struct kb_meta_batch *b);
void kb_meta_batch_deinit(struct kb_meta_batch *b);
/* KW_ELIMIT: the batch would pass KB_META_BATCH_MAX; it is as it was. */
kw_err kb_meta_batch_add(struct kb_meta_batch *b, int16_t type, int16_t version, const void *message) KW_CHECK;
kw_err kb_meta_batch_add_control(struct kb_meta_batch *b, int16_t type, const struct kw_desc *d, int16_t version,
                                 const void *message) KW_CHECK;
/* The batch in a block of its own (one reference, the caller's), CRC set; the builder is empty afterwards and can go on. */
kw_err kb_meta_batch_finish(struct kb_meta_batch *b, bool control, int64_t base_offset, int32_t epoch, int64_t wall_ms, struct kw_blk **blk,
                            size_t *size) KW_CHECK;

struct kb_led_by { /* the last LeaderChange: the voters as its leader knows them. count 0: none yet; above KB_VOTERS_MAX: more than can be */
    int32_t epoch;
    size_t count;
    int32_t voters[KB_VOTERS_MAX];
};

/* Replay, batch by batch. Records between BeginTransaction and EndTransaction are held back and applied together (KIP-868). */
struct kb_replay {
    struct kb_image *image;
    struct kw_compressor *compressor;
    int32_t node_id;        /* the only voter there may be; -1: the quorum is of several */
    int64_t next;           /* the offset that comes next; records below are skipped, a gap is an error */
    int64_t last_timestamp; /* of the last batch; -1 */
    bool in_transaction;
    struct kw_out held;
    struct kw_arena arena;
    struct kb_led_by led_by;
    int32_t control_seen; /* bit per control record type */
    bool footer_last;     /* the last record was a snapshot's footer */
    char why[200];        /* after a failure */
};
void kb_replay_init(struct kb_replay *r, struct kb_image *image, struct kw_compressor *compressor, int32_t node_id, int64_t next);
void kb_replay_deinit(struct kb_replay *r);
/* The whole batches at the start of p; *used tells how far they go. KW_ECRC, KW_EDECODE, KW_ENOMEM, KW_EVERSION. */
kw_err kb_replay_batches(struct kb_replay *r, const uint8_t *p, size_t n, size_t *used) KW_CHECK;

#endif
