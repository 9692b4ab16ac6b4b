/* epochs.h - the leader epochs of a log: (epoch, start offset) pairs, ascending in both; `leader-epoch-checkpoint`. KIP-101, KIP-279. */
#ifndef KB_EPOCHS_H
#define KB_EPOCHS_H

#include "base/buf.h"

struct kb_epoch_entry {
    int32_t epoch;
    int64_t start;
};
struct kb_epochs {
    struct kb_epoch_entry *v;
    size_t count, cap;
    bool dirty; /* the file must be written again */
};

void kb_epochs_init(struct kb_epochs *e);
void kb_epochs_deinit(struct kb_epochs *e);
/* No-op when it is the latest; epoch 0 is a real epoch; drops the entries that it contradicts. */
kw_err kb_epochs_assign(struct kb_epochs *e, int32_t epoch, int64_t start) KW_CHECK;
int32_t kb_epochs_latest(const struct kb_epochs *e);                                  /* -1: none */
int32_t kb_epochs_at(const struct kb_epochs *e, int64_t offset);                      /* epoch of the record at offset; -1 */
/* OffsetForLeaderEpoch: the largest known epoch <= asked, and where it ends (leo for the latest). (-1, -1) when unknown. */
void kb_epochs_end_offset(const struct kb_epochs *e, int32_t asked, int64_t leo, int32_t *epoch, int64_t *end);
void kb_epochs_truncate_end(struct kb_epochs *e, int64_t to);      /* drops entries with start >= to */
void kb_epochs_truncate_start(struct kb_epochs *e, int64_t start); /* moves or drops entries below the log start */
kw_err kb_epochs_encode(const struct kb_epochs *e, struct kw_out *out) KW_CHECK;   /* Kafka's text format, version 0 */
kw_err kb_epochs_decode(struct kb_epochs *e, const uint8_t *p, size_t n) KW_CHECK; /* KW_EDECODE: rebuild from the batches */

#endif
