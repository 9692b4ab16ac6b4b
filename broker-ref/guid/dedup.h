/* dedup.h - one produced batch against the GUID index: which of its records are stored already, and the batch without those.
 *
 * Called by api/produce_guid. Calls extract, wire/batch, compress. Pure: it asks neither index nor log. Batches of producers begin at offset 0
 * and have no holes, so that a record's index is its offset delta.
 */
#ifndef KB_DEDUP_H
#define KB_DEDUP_H

#include "base/rng.h"
#include "extract.h"

#define KB_DEDUP_RECORDS_MAX (1 << 20) /* of a batch: what is known of each takes memory, however well it compresses */

struct kb_dedup { /* of one batch at a time; reused: no allocation once it is large enough */
    struct kw_list link; /* the owner's */
    uint64_t key[2];     /* of the hash by which repeats within a batch are met */
    struct kb_guid_batch batch;
    /* Of each of the batch's entries: the first copy, as the index has it (offset -1: none), and once judged one within the batch too. */
    struct kb_guid_entry *found;
    size_t found_cap;
    bool none_found; /* the index knows none of them. May be set by who filled `found` */
    uint32_t *slots;
    size_t slot_cap;
    /* Once judged. */
    size_t kept, mismatches; /* mismatches: duplicates whose payload is another than the first copy's */
    int64_t max_timestamp;   /* of those kept */
};

struct kb_dedup *kb_dedup_new(struct kw_rng *rng); /* NULL: out of memory */
void kb_dedup_free(struct kb_dedup *d);
void kb_dedup_trim(struct kb_dedup *d); /* a large batch's memory goes back */

/* Takes the batch's ids; found has room for batch.entry_count entries, and is to be filled. KW_ELIMIT: over KB_DEDUP_RECORDS_MAX; else as
 * kb_guid_extract. */
kw_err kb_dedup_take(struct kb_dedup *d, const uint8_t *p, size_t size, const struct kw_batch_header *h, struct kw_compressor *c, size_t limit) KW_CHECK;
/* found is filled: counts what is kept, and meets repeats within the batch. */
kw_err kb_dedup_judge(struct kb_dedup *d) KW_CHECK;
/* Where the first copy of record i is; -1: it has none, and is kept. base: the offset that this batch gets. */
int64_t kb_dedup_first(const struct kb_dedup *d, size_t i, int64_t base);
bool kb_dedup_mismatch(const struct kb_dedup *d, size_t i); /* the first copy's payload is another */
/* The batch with the records that are kept, byte for byte as they were sent, in the shape that compaction leaves: of the header only count, length,
 * checksum and the largest timestamp change; without a record it has no codec either, and the timestamp stays. *blk holds it. */
kw_err kb_dedup_rewrite(struct kb_dedup *d, const uint8_t *p, size_t size, const struct kw_batch_header *h, struct kw_compressor *c, int level,
                        size_t limit, struct kw_blk **blk, size_t *out_size) KW_CHECK;
/* What was stored of it from `base` on: the entries of the records that are kept, with their offsets, in front in batch.entries. How many. It is judged
 * no more. */
size_t kb_dedup_stored(struct kb_dedup *d, int64_t base);

#endif
