/* uuid.h - topic, directory and cluster ids: Kafka's 22-character text form (URL-safe base64), and new random ones from the node's
 * generator. */
#ifndef KB_UUID_H
#define KB_UUID_H

#include "base/rng.h"

void kb_uuid_text(struct kw_uuid id, char text[23]);
bool kb_uuid_parse(const char *text, size_t n, struct kw_uuid *id); /* false: not 22 characters of the alphabet, or bits left over */
/* Version 4; never one of those that Kafka reserves (zero, the metadata topic's, small numbers), never a text that begins with '-'. */
struct kw_uuid kb_uuid_random(struct kw_rng *rng);

#endif
