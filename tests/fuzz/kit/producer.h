/* producer.h - an application that produces, for fuzz_client_answers: it counts what was accepted and what was reported. A file of its own,
 * since the producer's and the consumer's private headers do not go together. */
#ifndef FUZZ_PRODUCER_H
#define FUZZ_PRODUCER_H

#include "core/core.h"
#include "kit.h"

struct fuzz_producer;
struct fuzz_producer *fuzz_producer_new(struct kc_core *core, const struct kc_settings *settings, const struct kc_now *now, const int32_t topics[2]);
void fuzz_producer_send(struct fuzz_producer *p, struct fuzz_src *s);
void fuzz_producer_flush(struct fuzz_producer *p);
void fuzz_producer_purge(struct fuzz_producer *p, bool in_flight);
void fuzz_producer_reports(struct fuzz_producer *p); /* takes them; each must be the only one of its record */
void fuzz_producer_close(struct fuzz_producer *p, int64_t limit_us);
bool fuzz_producer_closed(const struct fuzz_producer *p, int64_t *at_us);
void fuzz_producer_stop(struct fuzz_producer *p); /* after the close: every accepted record has had its report */
bool fuzz_producer_stopped(const struct fuzz_producer *p);
void fuzz_producer_free(struct fuzz_producer *p);

#endif
