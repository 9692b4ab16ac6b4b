/* group_record.h - records of __consumer_offsets in Apache Kafka's form: read one by one, and written in batches.
 *
 * A key says what it is about by a leading int16; a value has its version in front, and no value removes what the key names.
 * Called by coordinator_load.c and coordinator_append.c.
 */
#ifndef KB_GROUP_RECORD_H
#define KB_GROUP_RECORD_H

#include "base/blk.h"
#include "group.h"
#include "offsets.h"
#include "wire/batch.h"

struct kb_group_key {                                                          /* views of the record */
    enum { KB_GROUP_KEY_OTHER, KB_GROUP_KEY_OFFSET, KB_GROUP_KEY_GROUP } kind; /* OTHER: of what this broker does not coordinate */
    struct kw_str group, topic;
    int32_t partition;
};
kw_err kb_group_key_read(struct kw_bytes key, struct kb_group_key *k) KW_CHECK; /* KW_EDECODE */
/* The value of an OFFSET; its metadata is a copy of the caller's. KW_EDECODE, KW_EVERSION, KW_ENOMEM. */
kw_err kb_group_value_offset(struct kw_bytes value, struct kw_arena *a, struct kb_offset *v) KW_CHECK;
/* The value of a GROUP; views of it and of the arena. The same errors. */
kw_err kb_group_value_group(struct kw_bytes value, struct kw_arena *a, struct kw_group_metadata_value *v) KW_CHECK;

struct kb_group_batch { /* one being built */
    struct kw_out body, key, value;
    int32_t count;
};
void kb_group_batch_init(struct kb_group_batch *b);
void kb_group_batch_deinit(struct kb_group_batch *b);
size_t kb_group_batch_size(const struct kb_group_batch *b); /* as it would be finished now */
/* v NULL: the removal. KW_ENOMEM, KW_EINVAL: the batch is as it was. */
kw_err kb_group_batch_offset(struct kb_group_batch *b, struct kw_str group, struct kw_str topic, int32_t partition,
                             const struct kb_offset *v) KW_CHECK;
kw_err kb_group_batch_group(struct kb_group_batch *b, struct kw_str group, const struct kw_group_metadata_value *v) KW_CHECK;
void kb_group_batch_cut(struct kb_group_batch *b, size_t size, int32_t count); /* back to how it was with these of `size` and `count` */
/* In a block of its own (one reference, the caller's), CRC set, offsets from 0; the builder is empty afterwards. */
kw_err kb_group_batch_finish(struct kb_group_batch *b, int64_t wall_ms, struct kw_blk **blk, size_t *size) KW_CHECK;

#endif
