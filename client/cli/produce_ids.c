/* produce_ids.c - the ids of what kc produce sends (--guid, --guid-from), and what is told of records that were stored before. See produce.h. */
#include "produce.h"

#include <string.h>

#define DUPLICATES_SHOWN 5

/* ---- Options ---- */

static int from(struct produce *k, const struct cli_command *c) {
    const char *word = k->guid_from;
    if (!strcmp(word, "key")) {
        if (!k->json && !k->separator && !k->key) return cli_usage_error(c, "--guid-from key needs keys: -K SEP, -k KEY or --json");
        k->ids.source = ID_KEY;
    } else if (!strcmp(word, "field")) {
        k->ids.source = ID_FIELD;
    } else if (!strncmp(word, "header:", 7) && word[7]) {
        k->ids.source = ID_HEADER;
        k->ids.header = word + 7;
        if (!k->json && k->fixed_headers == 0) return cli_usage_error(c, "--guid-from header:NAME needs headers: -H NAME=VALUE or --json");
    } else {
        return cli_usage_error(c, "--guid-from takes key, header:NAME or field, not '%s'", word);
    }
    return -1;
}

int produce_ids_prepare(struct produce *k, const struct cli_command *c) {
    if (k->guid && k->guid_from) return cli_usage_error(c, "--guid and --guid-from both say what the id is: give one of them");
    if (k->guid_from) return from(k, c);
    if (!k->guid) return -1;
    k->ids.source = *k->guid ? ID_ONE : ID_MADE;
    if (*k->guid && kc_guid_from_text(k->guid, 0, k->ids.one) != KC_OK)
        return cli_usage_error(c, "--guid: '%s' is no UUID: 32 hexadecimal digits, as in 01890a5d-ac96-774b-bcce-b302099a8057", k->guid);
    return -1;
}

/* ---- Records ---- */

static bool take(struct produce *k, kc_record *r, const char *what, kc_bytes b) {
    if (b.p && b.size == sizeof k->ids.record) {
        memcpy(k->ids.record, b.p, sizeof k->ids.record);
    } else if (!b.p || b.size == 0 || kc_guid_from_text(b.p, b.size, k->ids.record) != KC_OK) {
        bool shown = b.p && b.size > 0;
        snprintf(k->why, sizeof k->why, "its %.60s is no id (a UUID, or 16 bytes)%s%.*s%s", what, shown ? ": '" : ": there is none",
                 shown ? (int)(b.size < 60 ? b.size : 60) : 0, shown ? (const char *)b.p : "", shown ? "'" : "");
        return false;
    }
    r->guid = k->ids.record;
    return true;
}

static bool is_named(const kc_header *h, const char *name) {
    size_t n = h->name_size ? h->name_size : strlen(h->name);
    return n == strlen(name) && !memcmp(h->name, name, n);
}

static bool from_header(struct produce *k, kc_record *r) {
    char what[80];
    snprintf(what, sizeof what, "header %.60s", k->ids.header);
    for (uint32_t i = 0; i < r->header_count; i++) {
        if (!is_named(&r->headers[i], k->ids.header)) continue;
        if (!take(k, r, what, r->headers[i].value)) return false;
        if (!strcmp(k->ids.header, "guid")) produce_ids_drop_header(r, k->headers); /* it comes back as 16 bytes */
        return true;
    }
    return take(k, r, what, (kc_bytes){NULL, 0});
}

bool produce_ids_give(struct produce *k, kc_record *r, kc_bytes field) {
    switch (k->ids.source) {
    case ID_ONE:
        r->guid = k->ids.one;
        return true;
    case ID_KEY:
        return take(k, r, "key", r->key);
    case ID_HEADER:
        return from_header(k, r);
    case ID_FIELD:
        return take(k, r, k->json ? "member guid" : "first field", field);
    default:
        if (field.p) return take(k, r, "member guid", field);
        if (k->ids.source == ID_NONE) return true;
        if (kc_producer_guid_make(k->producer, k->ids.record) != KC_OK) {
            snprintf(k->why, sizeof k->why, "no id could be made");
            return false;
        }
        r->guid = k->ids.record;
        return true;
    }
}

kc_bytes produce_ids_cut(const struct produce *k, char **line, size_t *n) {
    kc_bytes field = {NULL, 0};
    if (k->ids.source != ID_FIELD) return field;
    size_t size = 0;
    while (size < *n && (*line)[size] != ' ' && (*line)[size] != '\t') size++;
    field = (kc_bytes){*line, size};
    size += size < *n; /* the blank */
    *line += size;
    *n -= size;
    return field;
}

void produce_ids_drop_header(kc_record *r, kc_header *headers) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->header_count; i++)
        if (!is_named(&headers[i], "guid")) headers[kept++] = headers[i];
    r->header_count = kept;
}

/* ---- Duplicates ---- */

void produce_ids_report(struct produce *k, uint64_t number, const kc_report *r) {
    if (!(r->flags & KC_REPORT_DUPLICATE) || !(r->flags & KC_REPORT_DEDUPED)) return; /* one of idempotence is no news */
    bool other = r->flags & KC_REPORT_OTHER_PAYLOAD;
    k->duplicates++;
    k->others += other;
    if (k->duplicates_shown >= DUPLICATES_SHOWN) return;
    k->duplicates_shown++;
    fprintf(stderr, "kc: produce: record %llu was stored before", (unsigned long long)number);
    if (r->offset >= 0) fprintf(stderr, ": partition %d, offset %lld", (int)r->partition, (long long)r->offset);
    else fprintf(stderr, " (where is not known any more)");
    if (r->flags & KC_REPORT_PERHAPS_OWN) fprintf(stderr, ", perhaps by an earlier attempt of this very send");
    fprintf(stderr, "%s\n", other ? ", with another key or value, which stays" : "");
}

void produce_ids_sum(const struct produce *k) {
    if (k->duplicates <= DUPLICATES_SHOWN) return;
    fprintf(stderr, "kc: produce: %llu of %llu records were stored before", (unsigned long long)k->duplicates, (unsigned long long)k->sent);
    if (k->others) fprintf(stderr, ", %llu of them with another key or value, which stays", (unsigned long long)k->others);
    fputc('\n', stderr);
}
