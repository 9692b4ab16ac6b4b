/* produce.c - kc produce: a record a line (or another delimiter, or a JSON line) from stdin or a file; exits when all are answered, 1 if
 * any failed. */
#include "produce.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"

#define FAILURES_SHOWN 5
#define INTERRUPTED_US 2000000 /* for what was sent already */

/* A record's number, and its id where that is told, behind its opaque. */
static uint64_t opaque_of(const struct produce *k, uint64_t number, const kc_record *r) {
    struct produce_tag *tag = k->report ? malloc(sizeof *tag) : NULL;
    if (!tag) return k->report ? 0 : number;
    *tag = (struct produce_tag){.number = number, .has_id = r->guid != NULL};
    if (r->guid) memcpy(tag->id, r->guid, sizeof tag->id);
    return (uint64_t)(uintptr_t)tag;
}

static void print_report(const kc_report *r, const struct produce_tag *tag) {
    printf("{\"record\":%llu,\"partition\":%d,\"offset\":%lld,\"timestamp\":%lld,\"error\":\"%s\",\"outcome\":\"%s\"",
           (unsigned long long)tag->number, (int)r->partition, (long long)r->offset, (long long)r->timestamp_ms,
           r->err == KC_OK ? "" : kc_err_name(r->err),
           r->outcome == KC_PERSISTED         ? "persisted"
           : r->outcome == KC_MAYBE_PERSISTED ? "maybe persisted"
                                              : "not persisted");
    char text[KC_GUID_TEXT_SIZE];
    if (tag->has_id) printf(",\"guid\":\"%s\"", kc_guid_to_text(tag->id, text));
    if (r->flags & KC_REPORT_DUPLICATE || (tag->has_id && r->flags & KC_REPORT_DEDUPED))
        printf(",\"duplicate\":%s", r->flags & KC_REPORT_DUPLICATE ? "true" : "false");
    if (r->flags & KC_REPORT_OTHER_PAYLOAD) printf(",\"other_payload\":true");
    printf("}\n");
    (void)cli_output_ok();
}

static void show_report(struct produce *k, const kc_report *r, const kc_error *error) {
    struct produce_tag plain = {.number = r->opaque}, *tag = k->report ? (struct produce_tag *)(uintptr_t)r->opaque : &plain;
    const uint64_t number = tag->number;
    if (r->err == KC_OK)
        k->ok++;
    else
        k->failed++;
    if (k->report) {
        print_report(r, tag);
        free(tag);
    }
    if (r->err == KC_OK) produce_ids_report(k, number, r);
    if (r->err == KC_OK || k->shown >= FAILURES_SHOWN) return;
    k->shown++;
    fprintf(stderr, "kc: produce: record %llu: %s (%s, %s)\n", (unsigned long long)number,
            error ? kc_error_message(error) : kc_err_text(r->err), kc_err_name(r->err),
            r->outcome == KC_NOT_PERSISTED ? "not persisted" : "maybe persisted");
    if (k->shown == 1) cli_attempts(error); /* the others share the story, as a rule */
}

/* KC_OK when something was taken, KC_TIMED_OUT, KC_CLOSED. */
static kc_err drain(struct produce *k, int64_t timeout_us) {
    kc_reports *reports = NULL;
    kc_err err = kc_producer_reports(k->producer, &reports, timeout_us);
    if (err != KC_OK) return err;
    kc_report r;
    while (kc_reports_next(reports, &r)) show_report(k, &r, r.err == KC_OK ? NULL : kc_reports_error(reports));
    kc_reports_free(reports);
    cli_progress_show(&k->progress, k->ok, k->bytes);
    cli_session_logs(&k->s);
    return KC_OK;
}

/* -1: go on; else the exit code. */
static int send_one(struct produce *k, kc_record *r) {
    r->topic = k->topic_id;
    const uint64_t number = k->sent + 1;
    r->opaque = opaque_of(k, number, r);
    if (r->opaque == 0) return cli_fail("produce", KC_NO_MEMORY, NULL);
    kc_err err;
    if (k->sync) {
        kc_report report = {.partition = -1, .offset = -1};
        kc_error *error = NULL;
        err = kc_producer_send_wait(k->producer, r, &report, &error);
        report.opaque = r->opaque;
        report.err = err;
        show_report(k, &report, error);
        kc_error_free(error);
        err = KC_OK;
    } else {
        while ((err = kc_producer_send(k->producer, r, 0)) == KC_QUEUE_FULL && !cli_interrupted) (void)drain(k, 100000);
    }
    if (cli_interrupted) return CLI_FAILURE;
    if (err != KC_OK) {
        kc_error *fatal = kc_producer_fatal(k->producer);
        char what[64];
        if (k->report) free((void *)(uintptr_t)r->opaque);
        snprintf(what, sizeof what, "produce: record %llu", (unsigned long long)number);
        return cli_fail(what, err, fatal);
    }
    k->sent++;
    k->bytes += r->key.size + r->value.size;
    if (k->sent % 1024 == 0) (void)drain(k, 0);
    return -1;
}

/* ---- a line ---- */

static kc_bytes bytes_of(const struct produce *k, const char *p, size_t n) {
    if (n == 0 && k->null_empty) return (kc_bytes){NULL, 0};
    return (kc_bytes){p, n};
}

static int no_record(const struct produce *k, const char *why) {
    fprintf(stderr, "kc: produce: input line %llu is no record: %s\n", (unsigned long long)k->line, why);
    return CLI_FAILURE;
}

static int send_line(struct produce *k, char *line, size_t n) {
    kc_record r = {.headers = k->headers, .header_count = (uint32_t)k->fixed_headers};
    if (k->partition >= 0) {
        r.partition = (int32_t)k->partition;
        r.flags |= KC_HAS_PARTITION;
    }
    if (k->key) r.key = bytes_of(k, k->key, strlen(k->key));
    kc_bytes id = produce_ids_cut(k, &line, &n);
    char *cut = k->separator_size ? memmem(line, n, k->separator_text, k->separator_size) : NULL;
    if (cut) {
        r.key = bytes_of(k, line, (size_t)(cut - line));
        n -= (size_t)(cut - line) + k->separator_size;
        line = cut + k->separator_size;
    }
    r.value = bytes_of(k, line, n);
    return produce_ids_give(k, &r, id) ? send_one(k, &r) : no_record(k, k->why);
}

/* ---- a JSON line: what kc consume --json prints ---- */

static bool headers_room(struct produce *k, size_t n) {
    if (n <= k->header_cap) return true;
    kc_header *grown = realloc(k->headers, n * sizeof *grown);
    if (!grown) return false;
    k->headers = grown;
    k->header_cap = n;
    return true;
}

static bool refuse(struct produce *k, const char *what, const char *why) {
    snprintf(k->why, sizeof k->why, "%s %s", what, why);
    return false;
}

static bool json_bytes(struct produce *k, const char *what, const json_t *v, kc_bytes *out, uint8_t **scratch) {
    *out = (kc_bytes){NULL, 0};
    if (!v || json_is_null(v)) return true;
    if (!json_is_string(v)) return refuse(k, what, "is neither text nor null");
    const char *p = json_string_value(v);
    size_t n = json_string_length(v);
    if (!k->base64) {
        *out = (kc_bytes){p, n};
        return true;
    }
    int64_t size = cli_base64_decode(p, n, *scratch);
    if (size < 0) return refuse(k, what, "is not base64");
    *out = (kc_bytes){*scratch, (size_t)size};
    *scratch += size;
    return true;
}

/* A member that is not known would be lost without a word. */
static bool json_members(struct produce *k, json_t *o) {
    static const char *const known[] = {"key",       "value",  "headers",       "timestamp", "partition", "guid", /* these are sent */
                                        "topic", "offset", "timestamp_type"}; /* kc consume prints these too */
    const char *name;
    json_t *v;
    json_object_foreach(o, name, v) {
        struct kw_nearest near;
        bool found = false;
        kw_nearest_init(&near, name);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            found |= !strcmp(name, known[i]);
            kw_nearest_offer(&near, known[i]);
        }
        if (found) continue;
        snprintf(k->why, sizeof k->why, "a record has no '%.40s'%s%s%s", name, near.best ? "; did you mean '" : "", near.best ? near.best : "",
                 near.best ? "'?" : ": key, value, headers, timestamp, partition and guid are sent");
        return false;
    }
    return true;
}

static bool json_headers(struct produce *k, const json_t *hs, size_t *count, uint8_t **scratch) {
    size_t n = k->fixed_headers;
    if (hs && !json_is_null(hs) && !json_is_array(hs)) return refuse(k, "headers", "is not [[name, value], …]");
    if (!headers_room(k, n + json_array_size(hs))) return refuse(k, "headers", "are too many: out of memory");
    for (size_t i = 0; i < json_array_size(hs); i++, n++) {
        const json_t *h = json_array_get(hs, i), *name = json_array_get(h, 0);
        if (!json_is_string(name) || json_array_size(h) > 2) return refuse(k, "headers", "is not [[name, value], …]");
        k->headers[n] = (kc_header){.name = json_string_value(name), .name_size = json_string_length(name)};
        if (!json_bytes(k, "a header's value", json_array_get(h, 1), &k->headers[n].value, scratch)) return false;
    }
    *count = n;
    return true;
}

static bool json_record(struct produce *k, json_t *o, kc_record *r, uint8_t *scratch) {
    if (!json_is_object(o)) return refuse(k, "the line", "is no object: {\"key\": …, \"value\": …} is wanted, as kc consume --json prints it");
    if (!json_members(k, o) || !json_bytes(k, "key", json_object_get(o, "key"), &r->key, &scratch) ||
        !json_bytes(k, "value", json_object_get(o, "value"), &r->value, &scratch))
        return false;
    const json_t *t = json_object_get(o, "timestamp"), *p = json_object_get(o, "partition");
    if (t && !json_is_null(t) && !json_is_integer(t)) return refuse(k, "timestamp", "is no whole number: milliseconds since 1970 are wanted");
    if (json_is_integer(t) && json_integer_value(t) >= 0) { /* -1: it had none */
        r->timestamp_ms = json_integer_value(t);
        r->flags |= KC_HAS_TIMESTAMP;
    }
    if (p && !json_is_null(p) && (!json_is_integer(p) || json_integer_value(p) < 0 || json_integer_value(p) > INT32_MAX))
        return refuse(k, "partition", "is no whole number from 0 to 2147483647");
    if (json_is_integer(p) && k->partition < 0) {
        r->partition = (int32_t)json_integer_value(p);
        r->flags |= KC_HAS_PARTITION;
    }
    size_t n = 0;
    if (!json_headers(k, json_object_get(o, "headers"), &n, &scratch)) return false;
    r->headers = k->headers;
    r->header_count = (uint32_t)n;
    const json_t *id = json_object_get(o, "guid");
    if (id && !json_is_null(id) && !json_is_string(id)) return refuse(k, "guid", "is no text: a UUID is wanted");
    if (!json_is_string(id)) return produce_ids_give(k, r, (kc_bytes){NULL, 0});
    if (!produce_ids_give(k, r, (kc_bytes){json_string_value(id), json_string_length(id)})) return false;
    produce_ids_drop_header(r, k->headers); /* kc consume --json prints the id both ways */
    return true;
}

static int send_json(struct produce *k, const char *line, size_t n) {
    json_error_t why;
    json_t *o = json_loadb(line, n, JSON_ALLOW_NUL, &why);
    uint8_t *scratch = malloc(n + 1);
    kc_record r = {0};
    if (k->partition >= 0) {
        r.partition = (int32_t)k->partition;
        r.flags |= KC_HAS_PARTITION;
    }
    int rc;
    if (!scratch || !o || !json_record(k, o, &r, scratch)) {
        rc = no_record(k, !scratch ? "out of memory" : o ? k->why : why.text);
    } else {
        rc = send_one(k, &r);
    }
    free(scratch);
    json_decref(o);
    return rc;
}

/* ---- the whole ---- */

/* The next line that is a record; -1: none. */
static ssize_t next_line(struct produce *k, FILE *in, char **line, size_t *cap) {
    ssize_t n;
    do {
        n = getdelim(line, cap, k->delimiter_byte, in);
        if (n < 0) return -1;
        k->line++;
        if (n > 0 && (*line)[n - 1] == k->delimiter_byte) n--;
    } while (k->json && n == 0);
    return n;
}

/* --guid UUID: one record, and nothing is sent where there are more. */
static int pump_one(struct produce *k, FILE *in) {
    char *line = NULL, *more = NULL;
    size_t cap = 0, more_cap = 0;
    ssize_t n = next_line(k, in, &line, &cap);
    const uint64_t at = k->line;
    int rc = -1;
    if (n >= 0 && k->count != 1 && next_line(k, in, &more, &more_cap) >= 0) {
        fprintf(stderr, "kc: produce: the input is more than one record, and --guid names the id of one; nothing was sent\n"
                        "  --guid-from key|header:NAME|field takes each record's id out of itself, --guid alone makes one for each, -D sets what is between\n"
                        "  records, -c 1 sends the first\n");
        rc = CLI_FAILURE;
    } else if (n >= 0) {
        k->line = at; /* looking for another one went on */
        rc = k->json ? send_json(k, line, (size_t)n) : send_line(k, line, (size_t)n);
    }
    if (rc < 0 && ferror(in) && !cli_interrupted) {
        fprintf(stderr, "kc: produce: reading %s: %s\n", k->file ? k->file : "standard input", strerror(errno));
        rc = CLI_FAILURE;
    }
    free(line);
    free(more);
    return rc < 0 ? CLI_OK : rc;
}

static int pump(struct produce *k, FILE *in) {
    if (k->ids.source == ID_ONE) return pump_one(k, in);
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = -1;
    while (rc < 0 && !cli_interrupted && (k->count <= 0 || k->sent < (uint64_t)k->count) &&
           (n = next_line(k, in, &line, &cap)) >= 0) {
        rc = k->json ? send_json(k, line, (size_t)n) : send_line(k, line, (size_t)n);
        cli_pace(k->progress.started_us, k->sent, k->rate);
    }
    if (rc < 0 && ferror(in) && !cli_interrupted) {
        fprintf(stderr, "kc: produce: reading %s: %s\n", k->file ? k->file : "standard input", strerror(errno));
        rc = CLI_FAILURE;
    }
    if (rc >= 0 && !cli_interrupted) fprintf(stderr, "kc: produce: stopped there: nothing behind input line %llu was sent\n", (unsigned long long)k->line);
    free(line);
    return rc < 0 ? CLI_OK : rc;
}

static int finish(struct produce *k, int rc) {
    kc_error *error = NULL;
    kc_op *op = NULL;
    kc_err err = kc_producer_close_start(k->producer, cli_interrupted ? INTERRUPTED_US : KC_FOREVER, 0, &op, &error);
    if (err != KC_OK) return cli_fail("close", err, error);
    int64_t until_us = 0; /* from an interruption on that comes now */
    while (drain(k, 200000) != KC_CLOSED) {
        cli_session_logs(&k->s);
        if (cli_interrupted && kc_op_done(op)) break;
        if (!cli_interrupted) continue;
        if (until_us == 0) until_us = cli_now_us() + INTERRUPTED_US;
        if (cli_now_us() >= until_us) (void)kc_producer_purge(k->producer, KC_PURGE_QUEUED | KC_PURGE_IN_FLIGHT);
    }
    kc_op_free(op);
    cli_progress_end(&k->progress);
    produce_ids_sum(k);
    if (k->failed) {
        fprintf(stderr, "kc: produce: %llu of %llu records failed\n", (unsigned long long)k->failed, (unsigned long long)k->sent);
        rc = CLI_FAILURE;
    } else if (cli_interrupted) {
        fprintf(stderr, "kc: produce: interrupted after %llu records\n", (unsigned long long)k->sent);
        rc = CLI_FAILURE;
    }
    if (k->progress.on && rc == CLI_OK) fprintf(stderr, "%llu records produced\n", (unsigned long long)k->ok);
    return rc;
}

static int open_producer(struct produce *k) {
    k->topic_id = kc_client_topic(k->s.client, k->topic);
    if (k->topic_id == 0) {
        fprintf(stderr, "kc: produce: '%s' is no topic name: 1 to 249 of a-z A-Z 0-9 . _ -\n", k->topic);
        return CLI_USAGE;
    }
    return cli_producer_open(&k->s, "producer", k->acks, k->codec, &k->producer);
}

static int produce(struct produce *k) {
    FILE *in = stdin;
    if (k->file && !(in = fopen(k->file, "rb"))) {
        fprintf(stderr, "kc: produce: cannot open %s: %s\n", k->file, strerror(errno));
        return CLI_FAILURE;
    }
    int rc = cli_session_open(&k->s);
    if (rc == CLI_OK) rc = open_producer(k);
    if (rc == CLI_OK) {
        const char *type = kc_config_get(k->s.config, "producer.type");
        k->sync = type && !strcmp(type, "sync");
        cli_catch_signals(NULL, NULL);
        cli_progress_start(&k->progress, "produced", k->count > 0 ? (uint64_t)k->count : 0);
        rc = finish(k, pump(k, in));
    }
    (void)cli_output_ok();
    kc_producer_free(k->producer);
    cli_session_close(&k->s);
    if (in != stdin) fclose(in);
    free(k->headers);
    return rc;
}

/* Copies and unescapes the words that are bytes; -1 or the exit code. */
static int prepare(struct produce *k, const struct cli_command *c) {
    char text[64];
    k->delimiter_byte = '\n';
    if (k->separator) {
        if (strlen(k->separator) >= sizeof k->separator_text)
            return cli_usage_error(c, "-K takes at most %zu bytes", sizeof k->separator_text - 1);
        strcpy(k->separator_text, k->separator);
        k->separator_size = cli_unescape(k->separator_text);
        if (!k->separator_size) return cli_usage_error(c, "-K needs a separator");
    }
    if (k->delimiter) {
        if (strlen(k->delimiter) >= sizeof text) return cli_usage_error(c, "-D takes one byte");
        strcpy(text, k->delimiter);
        if (cli_unescape(text) != 1) return cli_usage_error(c, "-D takes one byte");
        k->delimiter_byte = text[0];
    }
    if (!headers_room(k, (size_t)k->header_words.count)) return cli_fail("produce", KC_NO_MEMORY, NULL);
    for (int i = 0; i < k->header_words.count; i++) {
        const char *eq = strchr(k->header_words.v[i], '=');
        if (eq == k->header_words.v[i]) return cli_usage_error(c, "-H takes NAME=VALUE, not '%s'", k->header_words.v[i]);
        size_t n = eq ? (size_t)(eq - k->header_words.v[i]) : strlen(k->header_words.v[i]);
        k->headers[k->fixed_headers++] = (kc_header){
            .name = k->header_words.v[i], .name_size = n, .value = eq ? (kc_bytes){eq + 1, strlen(eq + 1)} : (kc_bytes){NULL, 0}};
    }
    if (k->base64 && !k->json) return cli_usage_error(c, "--base64 goes with --json");
    if (k->json && (k->separator || k->key || k->null_empty))
        return cli_usage_error(c, "-K, -k and -Z do not go with --json: a line has its own key, and null");
    return produce_ids_prepare(k, c);
}

int cmd_produce(int argc, char **argv) {
    static struct produce k = {.partition = -1};
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&k.s),
        {'t', "topic", "TOPIC", "the topic", CLI_TEXT, &k.topic},
        {'p', "partition", "N", "the partition (default: by the key)", CLI_INDEX, &k.partition},
        {'K', "key-separator", "SEP", "a line is KEY SEP VALUE", CLI_TEXT, &k.separator},
        {'k', "key", "KEY", "one key for all records", CLI_TEXT, &k.key},
        {'Z', "null", NULL, "empty keys and values are null", CLI_FLAG, &k.null_empty},
        {'D', "delimiter", "BYTE", "between records (default \\n)", CLI_TEXT, &k.delimiter},
        {'H', "header", "NAME=VALUE", "a header of each record; may be repeated; without '=': null", CLI_MANY, &k.header_words},
        {'z', "compression", "CODEC", "none, gzip, snappy, lz4, zstd", CLI_TEXT, &k.codec},
        {'a', "acks", "0|1|-1", "acknowledgements to wait for (default -1)", CLI_TEXT, &k.acks},
        {'l', "file", "FILE", "read this file, not stdin", CLI_TEXT, &k.file},
        {'c', "count", "N", "stop after N records", CLI_TOTAL, &k.count},
        {0, "rate", "N", "at most N records a second", CLI_TOTAL, &k.rate},
        {'J', "json", NULL, "lines are JSON, as kc consume --json prints them", CLI_FLAG, &k.json},
        {0, "base64", NULL, "with --json: keys, values and header values are base64", CLI_FLAG, &k.base64},
        {0, "reports", NULL, "print a JSON line a record: partition, offset, error, outcome, id, duplicate or not", CLI_FLAG, &k.report},
        {0, "guid", "[UUID]", "one record, under this id; without UUID: an id is made for each record", CLI_MAYBE, &k.guid},
        {0, "guid-from", "WHERE", "each record's id: key, header:NAME, or field", CLI_TEXT, &k.guid_from},
    };
    const struct cli_command c = {"produce", "", "Sends records: a line each.",
                                  "Ids: a topic with message.guid.dedup=true stores a record with an id once, however often it is sent; one that was "
                                  "there is told on stderr, and is no failure. An id is a UUID, or 16 bytes. --guid-from field: what stands before the "
                                  "first blank of a line, or, with --json, its member guid; header:guid: what -H guid=UUID says, which is "
                                  "16 bytes then.",
                                  0, 0, options, sizeof options / sizeof *options,
                                  "  seq 10 | kc produce -t numbers\n"
                                  "  kc produce -t users -K : -l users.txt -H source=import\n"
                                  "  kc consume -t numbers -o beginning -e --json --base64 |\n"
                                  "    kc produce -t copy --json --base64\n"
                                  "  echo paid | kc produce -t payments --guid 01890a5d-ac96-774b-bcce-b302099a8057\n"};
    struct cli_operands none;
    int rc = cli_parse(&c, argc, argv, &none);
    if (rc >= 0) return rc;
    if (!k.topic) return cli_usage_error(&c, "needs -t TOPIC");
    if ((rc = prepare(&k, &c)) >= 0) return rc;
    return produce(&k);
}
