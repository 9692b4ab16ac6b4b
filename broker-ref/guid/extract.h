/* extract.h - what a record batch (v2) says to the GUID index: of each record its id, a checksum of its payload, and where its bytes lie.
 *
 * Called by replica/guids (followers, catching up) and guid/dedup (produce). Calls wire/batch, compress. Pure.
 */
#ifndef KB_GUID_EXTRACT_H
#define KB_GUID_EXTRACT_H

#include "index.h"

#define KB_GUID_HEADER "guid" /* the record header that carries the 16 bytes */

enum kb_guid_verdict {
    KB_GUID_NONE,   /* no such header */
    KB_GUID_ID,     /* exactly one, of 16 bytes */
    KB_GUID_LENGTH, /* one, of another length, or null */
    KB_GUID_TWICE,  /* two or more */
};
struct kb_guid_record {
    enum kb_guid_verdict verdict;
    int32_t offset_delta;
    uint32_t at, size; /* of its bytes in the body, with their length prefix */
    uint32_t entry;    /* of KB_GUID_ID: which of the batch's entries */
    int64_t timestamp;
};
struct kb_guid_batch { /* reused from batch to batch: no allocation once it is large enough */
    struct kb_guid_record *v;
    size_t count, cap;
    struct kb_guid_entry *entries; /* of the records that are KB_GUID_ID, in their order; offset: the header's base offset + delta */
    size_t entry_count, entry_cap;
    size_t bad_count;           /* records whose id is wrong */
    const uint8_t *body;        /* uncompressed: of the batch, or of the compressor until its next use */
    size_t body_size;
};
void kb_guid_batch_init(struct kb_guid_batch *b);
void kb_guid_batch_deinit(struct kb_guid_batch *b);
/* `limit`: of the decompressed body. A batch without records, or a control batch, gives count 0. KW_ENOMEM; what wire/batch.h says of bodies and records. */
kw_err kb_guid_extract(const uint8_t *batch, size_t size, const struct kw_batch_header *h, struct kw_compressor *compressor, size_t limit,
                       struct kb_guid_batch *out) KW_CHECK;
/* CRC-32C of key and value, begun with their lengths: the same payload, or not. */
uint32_t kb_guid_payload(struct kw_bytes key, struct kw_bytes value);

#endif
