/* replicate.c - a follower's appends, and the place where its log parts from the leader's. Called by follower_answer and quorum/. Calls log/,
 * wire/batch. KIP-101, 279, 320, 595.
 */
#include "replicate.h"

#include "log/epochs.h"

/* Of a batch's records, unpacked. The leader has held them to the topic's bound, which may have been lowered since: this one is against nonsense. */
#define BODY_SIZE_MAX ((size_t)1 << 30)

int32_t kb_replicate_last_epoch(const struct kb_log *log) {
    return log->leo > log->start ? kb_epochs_at(log->epochs, log->leo - 1) : -1;
}

/* Why a batch cannot stand at the log's end; NULL: it can. */
static const char *misfit(const struct kb_log *log, const struct kw_batch_header *h, int32_t leader_epoch) {
    if (h->base_offset < log->leo) return "it begins below the end of the log";
    if (h->leader_epoch < 0) return "it has no leader epoch";
    if (h->leader_epoch > leader_epoch) return "its leader epoch is later than its sender's";
    if (h->leader_epoch < kb_replicate_last_epoch(log)) return "its leader epoch is earlier than the one before it";
    return NULL;
}

static kw_err append_one(struct kb_log *log, const struct kw_entry *e, struct kw_blk *blk, int32_t leader_epoch, struct kw_compressor *compressor,
                         struct kb_replicated *r, struct kb_now now) {
    struct kw_batch_header h;
    struct kw_batch_facts facts;
    const struct kw_batch_check check = {.allow_holes = true, .limit = BODY_SIZE_MAX, .compressor = compressor};
    const char *why = "it is not a record batch of format v2";
    kw_err err = e->magic == 2 ? kw_batch_parse(e->p, e->size, &h) : KW_EVERSION;
    if (err == KW_OK) {
        why = misfit(log, &h, leader_epoch);
        err = why ? KW_EINVAL : kw_batch_check(e->p, e->size, &check, &facts, &why);
    }
    if (err == KW_ENOMEM) return err;
    if (err != KW_OK) {
        r->why = why ? why : "it is not sound";
        return KW_ECRC;
    }
    struct kb_log_append a = {.blk = blk,
                              .batch = (uint8_t *)(uintptr_t)e->p, /* offsets are kept: not written to */
                              .size = e->size,
                              .keep_offsets = true,
                              .max_timestamp = KW_MAX(h.max_timestamp, -1)};
    err = kb_log_append(log, &a, now);
    if (err == KW_OK) {
        r->batches++;
        r->bytes += (int64_t)e->size;
        return KW_OK;
    }
    if (err == KW_ENOMEM || err == KW_EBUSY || err == KW_EIO) return err;
    r->why = "the log refuses it";
    return KW_ECRC;
}

kw_err kb_replicate_append(struct kb_log *log, const uint8_t *records, size_t size, struct kw_blk *blk, int32_t leader_epoch,
                           struct kw_compressor *compressor, struct kb_replicated *r, struct kb_now now) {
    const uint8_t *p = records, *end = records + size;
    struct kw_entry e;
    *r = (struct kb_replicated){.at = log->leo};
    for (;;) {
        int32_t more = size > 0 ? kw_entry_next(&p, end, &e) : 0;
        if (more == 0) return KW_OK;
        kw_err err = KW_ECRC;
        if (more < 0)
            r->why = "what stands there is no batch";
        else
            err = append_one(log, &e, blk, leader_epoch, compressor, r, now);
        r->at = log->leo;
        if (err == KW_EBUSY && r->batches > 0) return KW_OK; /* an epoch begins here, and what is in front of it is not synced yet */
        if (err != KW_OK) return err;
    }
}

int64_t kb_replicate_cut_at(const struct kb_log *log, int32_t epoch, int64_t end) {
    if (epoch < 0 || end < 0) return -1;
    int32_t own;
    int64_t own_end;
    kb_epochs_end_offset(log->epochs, epoch, log->leo, &own, &own_end);
    int64_t to = own_end < 0 ? end : KW_MIN(end, own_end);
    return to < log->leo ? to : -1;
}
