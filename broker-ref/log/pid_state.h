/* pid_state.h - what a log knows of its idempotent producers: epoch, the last five batches, coordinator epoch; Kafka's `.snapshot` format.
 *
 * Entries appear at offset assignment, so batches in flight meet them. KIP-98, KIP-360.
 */
#ifndef KB_PID_STATE_H
#define KB_PID_STATE_H

#include "base/buf.h"
#include "base/map.h"
#include "wire/batch.h"

#define KB_PID_BATCHES 5
struct kb_pid_batch {
    int32_t first_seq, last_seq;
    int64_t first_offset, last_offset, timestamp;
    bool holes; /* not all of its records stand at its offsets (message.guid.dedup, or compaction before a replay) */
};
struct kb_pid_entry {
    int64_t pid;
    int16_t epoch;
    int32_t coordinator_epoch;
    int64_t last_timestamp;       /* wall ms of the last append: expiry */
    int64_t txn_first_offset;     /* -1 none */
    uint8_t batch_count;
    struct kb_pid_batch batches[KB_PID_BATCHES]; /* oldest first */
};
struct kb_pid_state {
    struct kw_map by_pid;
    bool forgetful; /* producers have been dropped (expiry, or state lost with old segments): an unknown one may be an old one */
};

void kb_pid_state_init(struct kb_pid_state *s);
void kb_pid_state_deinit(struct kb_pid_state *s);

enum kb_pid_verdict { KB_PID_APPEND, KB_PID_DUPLICATE, KB_PID_OUT_OF_ORDER, KB_PID_FENCED, KB_PID_UNKNOWN };
/* Judges a client's batch (producer_id >= 0) by Kafka's rules: of an unknown producer only sequence 0 is welcome (BL-17), else OUT_OF_ORDER
 * (UNKNOWN when the state is forgetful); a newer epoch must start at 0; an older epoch is FENCED; a batch that equals one of
 * the last five is a DUPLICATE (dup filled); sequences wrap from 2^31-1 to 0 (CP-04). */
enum kb_pid_verdict kb_pid_check(const struct kb_pid_state *s, const struct kw_batch_header *h, struct kb_pid_batch *dup);
/* Notes an appended batch; those without a producer id, and markers' sequences, change nothing. Nothing has changed on KW_ENOMEM. */
kw_err kb_pid_update(struct kb_pid_state *s, const struct kw_batch_header *h, int64_t first_offset, int64_t last_offset, int64_t now_wall_ms) KW_CHECK;
const struct kb_pid_entry *kb_pid_get(const struct kb_pid_state *s, int64_t pid);
/* After a cut at `to`: s was read back from the log; what memory knew (`old`) and the cut did not touch is at least as good, and replaces it. */
kw_err kb_pid_merge(struct kb_pid_state *s, const struct kb_pid_state *old, int64_t to) KW_CHECK;
size_t kb_pid_expire(struct kb_pid_state *s, int64_t older_than_wall_ms);
void kb_pid_clear(struct kb_pid_state *s);
/* The highest id that a broker may have handed out, one after the other from 0; -1: none. Ids that no counting reaches are a client's invention. */
#define KB_PID_HANDED_OUT_MAX (INT64_C(1) << 56)
int64_t kb_pid_highest(const struct kb_pid_state *s);
/* Version 1 with CRC, which keeps a producer's last batch only; the other four follow it in a trailer of ours, under the same CRC, which Kafka
 * does not look at (BL-19: known after a restart too). */
kw_err kb_pid_encode(const struct kb_pid_state *s, struct kw_out *out) KW_CHECK;
kw_err kb_pid_decode(struct kb_pid_state *s, const uint8_t *p, size_t n) KW_CHECK;

#endif
