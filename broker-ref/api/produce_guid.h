/* produce_guid.h - Produce to a topic with message.guid.dedup: batches wait in order until the partition's index can be asked, are decided on one
 * by one, and stored without what is stored already.
 *
 * Called by produce. Calls guid/dedup, replica/guids, log/pid_state.
 */
#ifndef KB_PRODUCE_GUID_H
#define KB_PRODUCE_GUID_H

#include "produce_priv.h"

/* Whether a batch for it goes this way: those that wait are not overtaken, even when the topic is deduped no more. */
static inline bool kb_produce_is_gated(const struct kb_partition *p) { return p->config.guid_dedup || !kw_list_empty(&p->guid_gate); }
/* In place of the plain way, once the partition was found. */
void kb_produce_guid(struct kb_produce *s, struct kb_partition *p, const struct kw_produce_request_partition_produce_data *d, kb_produced *a);
/* The partition moved, or its index did. May end the request. */
void kb_produce_guid_moved(struct kb_gated *g, struct kb_now now);
/* Those of a request that ends leave: with an answer, if time ran out (code), or without. Others go on behind them. */
void kb_produce_guid_leave(struct kb_produce *s, int16_t code, struct kb_now now);
/* The request's memory goes: whatever of it still waits is let go of. */
void kb_produce_guid_drop(struct kb_produce *s);

/* Of a node. */
struct kb_produce_guids; /* n->produce_guids; NULL until the first batch of a deduped topic */
struct kb_produce_guid_counts {
    int64_t duplicates, mismatches; /* records that were not stored again; those whose payload was another than the first copy's */
};
struct kb_produce_guid_counts kb_produce_guid_counts(const struct kb_node *n);
void kb_produce_guids_free(struct kb_node *n);

#endif
