/* consume.h - what kc consume's two ways, by partitions and as a member of a group, share: how records are printed, and what is waited for.
 *
 * Called by consume.c and consume_group.c. Implemented in consume_print.c.
 */
#ifndef KC_CLI_CONSUME_H
#define KC_CLI_CONSUME_H

#include "cli.h"

/* The command line, as both ways have it. */
struct consume_options {
    const char *group, *topic, *offset, *to, *format;
    int64_t partition, count;
    bool exit_at_end, json, base64, quiet, why;
};

struct consume_printer {
    struct cli_format *f; /* NULL with json */
    bool json, base64;
    kc_header *headers; /* room for those of one record */
    size_t header_cap;
    uint64_t records, bytes; /* printed */
};
int consume_printer_make(struct consume_printer *p, const struct cli_command *c, const struct consume_options *o); /* -1, or the exit code */
/* One record. False: no memory. Whether it could be written: cli_output_ok. */
bool consume_print(struct consume_printer *p, const kc_event *e, size_t i, const kc_message *m, const char *topic);
void consume_printer_free(struct consume_printer *p);
/* Tells an ERROR event; false: it ends reading. */
bool consume_tell_error(const struct cli_session *s, const kc_event *e);

/* --why: on stderr, what each partition waits for; at SIGUSR1, and with `on` while no record comes. */
struct consume_why {
    bool on;
    int64_t quiet_since_us, next_us;
};
void consume_why_start(struct consume_why *w, kc_consumer *consumer); /* catches the signal, until _end */
void consume_why_end(void);
void consume_why_tick(struct consume_why *w, struct cli_session *s, kc_consumer *consumer, bool came); /* came: a record did */

int consume_in_group(struct cli_session *s, const struct cli_command *c, const struct consume_options *o, const struct cli_operands *topics);

#endif
