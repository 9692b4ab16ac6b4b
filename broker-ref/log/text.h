/* text.h - a cursor over the lines of Kafka's small text files (checkpoints, properties). Bounded, no allocation. */
#ifndef KB_TEXT_H
#define KB_TEXT_H

#include "base/buf.h"

struct kb_text {
    const uint8_t *p, *end;
};
/* The next line without its end; false when none is left. */
bool kb_text_line(struct kb_text *t, const char **line, size_t *n);
/* Cuts the next field (up to a space or the end) from a line. */
bool kb_text_field(const char **line, size_t *n, const char **field, size_t *field_n);
/* A whole decimal integer, nothing around it. */
bool kb_text_int(const char *p, size_t n, int64_t min, int64_t max, int64_t *v);
void kb_text_add(struct kw_out *out, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* at most 600 bytes */

#endif
