/* index.h - a segment's sparse indexes in memory, in the very bytes of Kafka's `.index` (relative offset, position) and `.timeindex`
 * (timestamp, relative offset) files. Called by segment, append, read, recover. Pure. KIP-33.
 */
#ifndef KB_INDEX_H
#define KB_INDEX_H

#include "base/base.h"

enum { KB_OFFSET_ENTRY = 8, KB_TIME_ENTRY = 12 };

struct kb_index {
    uint8_t *p;
    size_t len, cap;
};

void kb_index_deinit(struct kb_index *x);
kw_err kb_index_reserve(struct kb_index *x, size_t bytes) KW_CHECK; /* afterwards so many more bytes can be added */
void kb_index_trim(struct kb_index *x);                                                 /* gives back what it does not use */
uint32_t kb_index_sum(const struct kb_index *offsets, const struct kb_index *times);  /* of both their bytes */

/* Offset index. add: after a reserve. Positions and offsets ascend (asserted). */
static inline size_t kb_offsets_count(const struct kb_index *x) { return x->len / KB_OFFSET_ENTRY; }
void kb_offsets_add(struct kb_index *x, int64_t base, int64_t offset, int64_t position);
void kb_offsets_get(const struct kb_index *x, int64_t base, size_t i, int64_t *offset, int64_t *position);
/* The last entry with offset <= target; SIZE_MAX when there is none. */
size_t kb_offsets_floor(const struct kb_index *x, int64_t base, int64_t target);
size_t kb_offsets_floor_position(const struct kb_index *x, int64_t position); /* the last entry with position <= position */
void kb_offsets_cut(struct kb_index *x, int64_t base, int64_t to);            /* drops entries with offset >= to */
/* Drops the zeroed tail that a preallocated file has; false when what stays cannot be an index of a segment of `size` bytes. */
bool kb_offsets_sane(struct kb_index *x, int64_t base, int64_t size);

/* Time index. add: Kafka's maybeAppend: only when the timestamp is above the last entry's. */
static inline size_t kb_times_count(const struct kb_index *x) { return x->len / KB_TIME_ENTRY; }
void kb_times_add(struct kb_index *x, int64_t base, int64_t timestamp, int64_t offset);
void kb_times_get(const struct kb_index *x, int64_t base, size_t i, int64_t *timestamp, int64_t *offset);
size_t kb_times_floor(const struct kb_index *x, int64_t timestamp); /* the last entry with timestamp <= this; SIZE_MAX */
void kb_times_cut(struct kb_index *x, int64_t base, int64_t to);    /* drops entries with offset >= to */
bool kb_times_sane(struct kb_index *x);

#endif
