/* fetch_cover.h - what a consumer gets where only batches without records are left. Called by fetch (v4 on). Calls wire/batch. */
#ifndef KB_FETCH_COVER_H
#define KB_FETCH_COVER_H

#include "log/log.h"

/* A read that gave nothing but skipped_to becomes one slice: a control batch from `offset` up to there. Every consumer passes
 * over control batches; of an answer without records some take it that the next batch did not fit, and ask for more and more bytes. */
kw_err kb_fetch_cover(struct kb_read *r, int64_t offset, int32_t epoch) KW_CHECK;

#endif
