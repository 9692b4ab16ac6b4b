/* entry.h - what one entry of a segment file says of itself: a record batch (v2), or a message or wrapper of formats v0 and v1.
 *
 * Called by everything in log/ that walks bytes: recovery, lookups, checks. Pure. KIP-98, KIP-32.
 */
#ifndef KB_ENTRY_H
#define KB_ENTRY_H

#include "wire/batch.h"

#define KB_ENTRY_PEEK KW_BATCH_HEADER_SIZE /* so many bytes suffice to parse any entry */

struct kb_entry {
    int64_t base, last;     /* offsets; v0/v1 say only their last one, so base is the same */
    int64_t size;           /* bytes, with the 12 of offset and length */
    int64_t max_timestamp;  /* -1: none, or no record in it */
    int32_t epoch;          /* -1 in v0/v1 */
    int32_t record_count;   /* 1 in v0/v1 */
    int16_t attributes;
    int8_t magic;
};

/* KW_ESHORT: more bytes are needed to tell. KW_EDECODE: no entry starts here. */
kw_err kb_entry_parse(const uint8_t *p, size_t n, struct kb_entry *e) KW_CHECK;

/* The checksum of an entry, piece by piece: begin with its first KB_ENTRY_PEEK bytes or more (or all of it), add the rest in order. */
struct kb_entry_sum {
    int64_t left;           /* bytes still to come */
    uint32_t crc, stored;
    int8_t magic;
};
void kb_entry_sum_begin(struct kb_entry_sum *s, const struct kb_entry *e, const uint8_t *p);
size_t kb_entry_sum_add(struct kb_entry_sum *s, const uint8_t *p, size_t n); /* bytes taken */
static inline bool kb_entry_sum_ok(const struct kb_entry_sum *s) { return s->left == 0 && s->crc == s->stored; }
bool kb_entry_crc_ok(const struct kb_entry *e, const uint8_t *p); /* p has the whole entry */

#endif
