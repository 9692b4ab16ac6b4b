/* print.h - recorded frames as JSON: one line an entry, its body decoded by the message descriptors, fields by their Kafka names.
 *
 * Called by shell_print, fuzz targets. print.c: the line; print_body.c: any message; print_records.c: batches and message sets; print_json.c: text. No I/O.
 */
#ifndef KB_PRINT_H
#define KB_PRINT_H

#include "base/buf.h"
#include "recording.h"
#include "wire/codec.h"
#include "wire/compress.h"

enum { KB_PRINT_LINE_MAX = 256 << 20 /* bytes of a line: a small frame may ask for a long one */, KB_PRINT_BYTES_MAX = 64 };

struct kb_print {
    bool records;     /* each record, not only what batches there are */
    size_t bytes_max; /* of a bytes field, a key or a value that are shown; KB_PRINT_BYTES_MAX unless asked otherwise */
    struct kw_compressor *compressor;
};
/* Appends a line without its newline. What cannot be decoded is told in the line: "error", with the bytes' beginning. out->err: KW_ENOMEM. */
void kb_print_entry(const struct kb_print *p, const struct kb_recording_entry *e, struct kw_out *out);

/* print_body.c. Appends the message that `in` stands at as an object. Not KW_OK: out holds the beginning of one, which the caller takes back. */
struct kb_print_frame { /* what a body is part of */
    const struct kb_print *print;
    const struct kb_recording_entry *entry; /* tells what of the frame was stored; NULL: all */
    const uint8_t *frame;
};
kw_err kb_print_body(const struct kb_print_frame *f, const struct kw_desc *d, int16_t version, struct kw_in *in, struct kw_out *out) KW_CHECK;

/* print_records.c. A records field that is not null. */
void kb_print_records(const struct kb_print_frame *f, const uint8_t *p, size_t n, struct kw_out *out);

/* print_json.c */
void kb_json_text(struct kw_out *out, const char *text); /* as it is */
void kb_json_int(struct kw_out *out, int64_t v);
void kb_json_string(struct kw_out *out, const char *p, size_t n); /* quoted; what is no UTF-8 as U+FFFD */
void kb_json_name(struct kw_out *out, bool *first, const char *name); /* a comma unless it is the first, and "name": */
void kb_json_bytes(struct kw_out *out, const uint8_t *p, size_t n, size_t max); /* hexadecimal, quoted; "…(+N bytes)" for what is beyond max */
/* Text where it is UTF-8 without control characters, else {"hex":"…"}; both cut at max, likewise. n < 0: null. */
void kb_json_value(struct kw_out *out, const uint8_t *p, int32_t n, size_t max);
void kb_json_uuid(struct kw_out *out, struct kw_uuid id);
void kb_json_time(struct kw_out *out, int64_t at_us); /* "2026-11-30T15:28:44.123456Z" */

#endif
