/* checkpoint.h - Kafka's small text files: `recovery-point-offset-checkpoint`, `replication-offset-checkpoint`, `log-start-offset-checkpoint` (one
 * offset a partition, version 0), and `partition.metadata` (the topic's id). Called by the node; pure: bytes in, bytes out.
 */
#ifndef KB_CHECKPOINT_H
#define KB_CHECKPOINT_H

#include "base/buf.h"

struct kb_checkpoint_entry {
    struct kw_str topic; /* a view */
    int32_t partition;
    int64_t offset;
};
struct kb_checkpoint {
    struct kb_checkpoint_entry *v;
    size_t count, cap;
};
void kb_checkpoint_init(struct kb_checkpoint *c);
void kb_checkpoint_deinit(struct kb_checkpoint *c);
kw_err kb_checkpoint_add(struct kb_checkpoint *c, struct kw_str topic, int32_t partition, int64_t offset) KW_CHECK;
kw_err kb_checkpoint_encode(const struct kb_checkpoint *c, struct kw_out *out) KW_CHECK;
/* Topics are views of p. Sorted by topic and partition. KW_EDECODE: the whole file is not to be believed (*c is empty). */
kw_err kb_checkpoint_decode(struct kb_checkpoint *c, const uint8_t *p, size_t n) KW_CHECK;
int64_t kb_checkpoint_find(const struct kb_checkpoint *c, struct kw_str topic, int32_t partition); /* of a decoded one; -1: none */

/* version: 0, topic_id: the 22 characters of Kafka's text form (uuid.h). */
kw_err kb_partition_metadata_encode(const char *topic_id, struct kw_out *out) KW_CHECK;
kw_err kb_partition_metadata_decode(const uint8_t *p, size_t n, char topic_id[23]) KW_CHECK;

#endif
