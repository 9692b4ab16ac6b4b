/* fetch_old.h - batches as the clients before record batch v2 read them: message sets of magic 0 or 1. Called by fetch. Calls
 * wire/message_set. */
#ifndef KB_FETCH_OLD_H
#define KB_FETCH_OLD_H

#include "log/log.h"

/* Turns what was read (memory slices) into one slice of messages of this magic, those below first_offset left out; a batch cut off at the
 * end is dropped. *next: the offset behind the last whole batch. bytes may become 0 (control batches, empty ones). On failure the read
 * keeps its slices. */
kw_err kb_fetch_old_convert(struct kb_read *r, int8_t magic, int64_t first_offset, struct kw_compressor *c, int64_t *next) KW_CHECK;

#endif
