/* checkpoint.h - Kafka's offset checkpoint files: version 0, a count, then "topic partition offset" a line. Called by partitions. Calls
 * log/text. */
#ifndef KB_CHECKPOINT_H
#define KB_CHECKPOINT_H

#include "base/buf.h"
#include "base/map.h"

struct kb_checkpoint { /* "topic-N" -> offset, as read */
    struct kw_map by_name;
};
/* KW_EDECODE: not such a file; nothing is kept then, since a file that lies in one line may lie in all. */
kw_err kb_checkpoint_decode(struct kb_checkpoint *c, const uint8_t *p, size_t n) KW_CHECK;
int64_t kb_checkpoint_get(const struct kb_checkpoint *c, const char *topic, int32_t index); /* -1: not in it */
void kb_checkpoint_deinit(struct kb_checkpoint *c);

void kb_checkpoint_begin(struct kw_out *out, size_t count);
void kb_checkpoint_add(struct kw_out *out, const char *topic, int32_t index, int64_t offset);

#endif
