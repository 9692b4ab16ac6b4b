/* replicate.h - what every follower does with its log, of a partition or of the metadata: appends what a leader sent, and finds where the two
 * logs part.
 *
 * Called by replica/follower_answer and quorum/ (the metadata log). Calls log/, wire/batch. KIP-101, 279, 320, 595.
 */
#ifndef KB_REPLICATE_H
#define KB_REPLICATE_H

#include "log/log.h"

/* What a fetch names next to its offset, which is the log's end: the leader epoch of the last batch. -1: the log has no batch. */
int32_t kb_replicate_last_epoch(const struct kb_log *log);

struct kb_replicated {
    int64_t batches, bytes; /* appended; also when an error stopped it */
    const char *why;        /* after KW_ECRC and its like: static text */
    int64_t at;             /* the offset where it stopped */
};
/* Checks each batch of a fetch's records as a leader checks a producer's, but for holes, and appends it as it is, from blk without a copy (NULL: the
 * log copies). A batch that the answer cut off at its end is left, and so is what comes behind a batch that has to wait for a sync (kb_log_append):
 * it is to be fetched again. leader_epoch: of the fetch; no batch may be of a later one, nor of an earlier
 * one than the log's last. Nothing is written before kb_log_flush.
 * KW_OK, KW_ECRC (a batch is not sound, or does not follow on the log's end: it and what comes behind is not appended), KW_ENOMEM, KW_EBUSY
 * (nothing was appended) and KW_EIO (of the log). */
kw_err kb_replicate_append(struct kb_log *log, const uint8_t *records, size_t size, struct kw_blk *blk, int32_t leader_epoch,
                           struct kw_compressor *compressor, struct kb_replicated *r, struct kb_now now) KW_CHECK;

/* The leader has another end for the epoch that the fetch named: `epoch` is the largest that it has up to that one, and ends there at `end`. Where
 * this log is to be cut, after which the fetch is tried again: the lower one of both logs' ends of that epoch; always below the log's end, or -1:
 * the leader's answer makes no sense. It may lie below the log's start: then nothing of the log is shared. */
int64_t kb_replicate_cut_at(const struct kb_log *log, int32_t epoch, int64_t end);

#endif
