/* produce.h - kc produce: what its files share. produce.c reads lines and sends them; produce_ids.c gives them ids, and tells of duplicates. */
#ifndef KC_CLI_PRODUCE_H
#define KC_CLI_PRODUCE_H

#include "cli.h"

enum produce_id_source { ID_NONE, ID_ONE, ID_MADE, ID_KEY, ID_HEADER, ID_FIELD };
struct produce_ids {
    enum produce_id_source source;
    const char *header;         /* ID_HEADER: its name */
    uint8_t one[16];            /* ID_ONE */
    uint8_t record[16];         /* of the record at hand */
};
/* What stands behind an opaque while its report is awaited, where reports are printed. */
struct produce_tag {
    uint64_t number;
    bool has_id;
    uint8_t id[16];
};
struct produce {
    struct cli_session s;
    const char *topic, *separator, *delimiter, *key, *codec, *file, *acks;
    struct cli_many header_words;
    int64_t partition, rate, count;
    const char *guid, *guid_from; /* --guid: "" alone */
    bool null_empty, json, base64, report, sync;
    /* working */
    char separator_text[64], delimiter_byte;
    size_t separator_size;
    int32_t topic_id;
    kc_producer *producer;
    kc_header *headers; /* those of -H, then the record's own */
    size_t fixed_headers, header_cap;
    uint64_t sent, ok, failed, bytes, shown, line;
    uint64_t duplicates, others, duplicates_shown; /* others: with another key or value */
    struct produce_ids ids;
    char why[200]; /* a line is no record */
    struct cli_progress progress;
};

/* Checks --guid and --guid-from; -1 or the exit code. */
int produce_ids_prepare(struct produce *k, const struct cli_command *c);
/* Gives the record its id, out of where the options say: false: k->why says what is wrong with it. field: what was cut off the line, or its
 * JSON member guid; p NULL: there is none. */
bool produce_ids_give(struct produce *k, kc_record *r, kc_bytes field);
/* Cuts the first field off a line, up to a blank or a tab, where ids come from there. */
kc_bytes produce_ids_cut(const struct produce *k, char **line, size_t *n);
/* The headers named guid make room for the id that the record is given besides. */
void produce_ids_drop_header(kc_record *r, kc_header *headers);
void produce_ids_report(struct produce *k, uint64_t number, const kc_report *r); /* of a record that succeeded */
void produce_ids_sum(const struct produce *k);                                   /* at the end */

#endif
