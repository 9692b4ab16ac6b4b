/* group_reset.c - kc group reset: a group's offsets moved, once it was shown where to. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "group.h"

enum how { HOW_NONE, HOW_EARLIEST, HOW_LATEST, HOW_OFFSET, HOW_TIME, HOW_SHIFT, HOW_FILE };

struct reset {
    struct cli_session s;
    const struct cli_command *c;
    const char *group;
    enum how how;
    int64_t number; /* offset, ms since 1970, shift */
    const char *file;
    bool all, execute, json;
    struct group_words words;
    kc_group_offsets *offsets;
    kc_cluster_info *cluster;
    struct cli_topics topics;
    struct group_parts parts;
    struct group_log log;
    struct cli_progress progress;
    char *lines; /* of the file: topics are views of it */
    kc_admin_result *results; /* of those that were executed, in the order of parts */
    size_t result_count;
};

/* ---- Which partitions ---- */

static int no_such(const struct reset *r, const char *what) {
    fprintf(stderr, "kc: %s: %s\n  nothing was changed\n", r->c->name, what);
    return CLI_FAILURE;
}

/* topic,partition,offset a line, as kafka-consumer-groups --export writes them; empty lines and # comments are skipped. */
static int parse_line(struct reset *r, char *line, int number) {
    char *text = line;
    line[strcspn(line, "\r\n")] = 0;
    for (char *end = line + strlen(line); end > text && isspace((unsigned char)end[-1]);) *--end = 0;
    while (isspace((unsigned char)*text)) text++;
    if (!*text || *text == '#') return CLI_OK;
    int64_t partition, offset;
    char *comma = strchr(text, ','), *second = comma ? strchr(comma + 1, ',') : NULL;
    if (second) *comma = *second = 0;
    if (!second || !*text || !cli_number(comma + 1, 0, INT32_MAX, &partition) || !cli_number(second + 1, 0, INT64_MAX, &offset)) {
        fprintf(stderr, "kc: %s: %s:%d: a line is TOPIC,PARTITION,OFFSET\n  nothing was changed\n", r->c->name, r->file, number);
        return CLI_USAGE;
    }
    struct group_part *p = group_parts_add(&r->parts, text, (int32_t)partition);
    if (!p) return cli_fail(r->c->name, KC_NO_MEMORY, NULL);
    p->at = offset;
    return CLI_OK;
}

#define FILE_MAX (32 << 20) /* a million lines */

/* Whole: topics are views of it. 0, or why it could not be read. */
static int read_all(struct reset *r, FILE *f) {
    size_t size = 0, cap = 0, n;
    do {
        if (cap - size < 4096) {
            cap = cap ? cap * 2 : 65536;
            if (cap > FILE_MAX) return EFBIG;
            char *grown = realloc(r->lines, cap);
            if (!grown) return ENOMEM;
            r->lines = grown;
        }
        n = fread(r->lines + size, 1, cap - size - 1, f);
        size += n;
    } while (n > 0);
    if (ferror(f)) return errno;
    r->lines[size] = 0;
    return strlen(r->lines) < size ? EILSEQ : 0; /* a NUL byte is in it: what is behind it would not be seen */
}

static int read_file(struct reset *r) {
    FILE *f = !strcmp(r->file, "-") ? stdin : fopen(r->file, "r");
    int failed = f ? read_all(r, f) : errno;
    if (f && f != stdin) fclose(f);
    if (failed) {
        fprintf(stderr, "kc: %s: %s cannot be read: %s\n  nothing was changed\n", r->c->name, r->file, strerror(failed));
        return CLI_FAILURE;
    }
    int rc = CLI_OK, number = 0;
    for (char *line = r->lines, *next; rc == CLI_OK && *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = 0;
        rc = parse_line(r, line, ++number);
    }
    size_t named = r->parts.count;
    group_parts_order(&r->parts);
    if (rc == CLI_OK && named == 0) return no_such(r, "the file names no partition");
    return rc == CLI_OK && r->parts.count < named ? no_such(r, "the file names a partition more than once") : rc;
}

static int choose_named(struct reset *r) {
    struct cli_parts named = {0};
    int rc = cli_parts_find(r->c, r->cluster, (const char *const *)r->words.v, r->words.count, &named);
    for (size_t i = 0; rc == CLI_OK && i < named.count; i++)
        if (!group_parts_add(&r->parts, named.v[i].topic, named.v[i].p.partition)) rc = cli_fail(r->c->name, KC_NO_MEMORY, NULL);
    cli_parts_free(&named);
    return rc;
}

/* What the group has committed of those that are chosen; all of it is chosen with --all-topics. */
static int add_committed(struct reset *r) {
    struct group_parts committed = {0};
    int rc = CLI_OK;
    if (!group_parts_committed(r->all ? &r->parts : &committed, r->offsets, 0)) rc = cli_fail(r->c->name, KC_NO_MEMORY, NULL);
    group_parts_order(&committed);
    group_parts_order(&r->parts);
    for (size_t i = 0; !r->all && i < r->parts.count; i++) {
        const struct group_part *found = group_parts_find(&committed, r->parts.v[i].topic, r->parts.v[i].partition);
        if (found) r->parts.v[i].committed = found->committed;
    }
    group_parts_free(&committed);
    if (rc == CLI_OK && r->parts.count == 0) return no_such(r, "the group has no committed offsets: name topics in place of --all-topics");
    return rc;
}

/* Topics that the words name and that are not there are an error of the words; one that the group committed for may be gone since. */
static int choose(struct reset *r) {
    int rc = r->how == HOW_FILE ? read_file(r) : r->all ? CLI_OK : choose_named(r);
    return rc == CLI_OK ? add_committed(r) : rc;
}

/* ---- Where to ---- */

static const char *target(const struct reset *r, struct group_part *p, int64_t from_file) {
    int64_t to = p->start;
    switch (r->how) {
    case HOW_LATEST:
        to = p->end;
        break;
    case HOW_OFFSET:
        to = r->number;
        break;
    case HOW_TIME:
        to = p->at >= 0 ? p->at : p->end;
        break;
    case HOW_SHIFT:
        to = p->committed;
        if (__builtin_add_overflow(to, r->number, &to)) to = r->number > 0 ? INT64_MAX : 0;
        break;
    case HOW_FILE:
        to = from_file;
        break;
    default:
        break;
    }
    bool late = r->how == HOW_TIME && p->at < 0;
    p->at = to < p->start ? p->start : to > p->end ? p->end : to;
    if (to < p->start) return "the log begins here";
    if (to > p->end) return "the log ends here";
    return late ? "no record so late: the end" : "";
}

/* Whether each has what its new offset is made of. */
static int check_known(const struct reset *r) {
    int rc = CLI_OK;
    for (size_t i = 0; i < r->parts.count; i++) {
        const struct group_part *p = &r->parts.v[i];
        if (p->log_err != KC_OK) {
            fprintf(stderr, "kc: %s: %s %d: the log cannot be looked at: %s (%s)\n", r->c->name, p->topic, (int)p->partition, kc_err_text(p->log_err),
                    kc_err_name(p->log_err));
            rc = CLI_FAILURE;
        } else if (r->how == HOW_SHIFT && p->committed < 0) {
            fprintf(stderr, "kc: %s: %s %d: the group has no committed offset to be shifted\n", r->c->name, p->topic, (int)p->partition);
            rc = CLI_FAILURE;
        }
    }
    if (rc != CLI_OK) fprintf(stderr, "  nothing was changed; name the partitions that are to be reset\n");
    return rc;
}

/* ---- Printed ---- */

static void print_json(const struct reset *r, const char *const *notes) {
    group_json('{', "group", r->group);
    printf(",\"executed\":%s,\"partitions\":[", r->execute ? "true" : "false");
    for (size_t i = 0; i < r->parts.count; i++) {
        const struct group_part *p = &r->parts.v[i];
        if (i > 0) putchar(',');
        cli_json_part(p->topic, p->partition);
        printf(",\"committed\":%lld,\"new\":%lld,\"log_start\":%lld,\"log_end\":%lld", (long long)p->committed, (long long)p->at, (long long)p->start,
               (long long)p->end);
        if (*notes[i]) group_json(',', "note", notes[i]);
        if (i < r->result_count) group_json_error(r->results[i].err, r->results[i].message);
        putchar('}');
    }
    puts("]}");
}

static void print_table(const struct reset *r, const char *const *notes) {
    static const char *const heads[] = {"topic", "partition", "committed", "new", "start", "end", "note"};
    struct cli_table *table = cli_table_new(heads, sizeof heads / sizeof *heads);
    for (size_t i = 0; i < r->parts.count; i++) {
        const struct group_part *p = &r->parts.v[i];
        bool failed = i < r->result_count && r->results[i].err != KC_OK;
        cli_table_add(table, "%s", p->topic);
        cli_table_add(table, "%d", (int)p->partition);
        cli_table_add(table, p->committed < 0 ? "-" : "%lld", (long long)p->committed);
        cli_table_add(table, "%lld", (long long)p->at);
        cli_table_add(table, "%lld", (long long)p->start);
        cli_table_add(table, "%lld", (long long)p->end);
        cli_table_add(table, "%s", failed ? kc_err_name(r->results[i].err) : notes[i]);
    }
    cli_table_print(table);
}

static void print_end(const struct reset *r, size_t done) {
    const char *s = r->parts.count == 1 ? "" : "s";
    if (!r->execute)
        printf("group %s: %zu offset%s would be set; --execute does it\n", r->group, r->parts.count, s);
    else if (done == r->parts.count)
        printf("group %s: %zu offset%s set\n", r->group, done, s);
    else
        printf("group %s: %zu of %zu offset%s set\n", r->group, done, r->parts.count, s);
}

/* ---- Done ---- */

/* The op's strings live as long as it does, so it is the caller's to free. */
static int execute(struct reset *r, kc_op **op) {
    kc_group_offset_item *items = calloc(r->parts.count, sizeof *items);
    if (!items) return cli_fail(r->c->name, KC_NO_MEMORY, NULL);
    for (size_t i = 0; i < r->parts.count; i++)
        items[i] = (kc_group_offset_item){.topic = r->parts.v[i].topic, .partition = r->parts.v[i].partition, .offset = r->parts.v[i].at};
    kc_error *error = NULL;
    cli_progress_say(&r->progress, "setting %zu offsets", r->parts.count);
    kc_err err = kc_admin_alter_group_offsets_start(r->s.client, r->group, items, sizeof *items, r->parts.count, 0, 0, op, &error);
    free(items);
    int rc = cli_wait_results(&r->s, r->c->name, err, *op, error, &r->results, &r->result_count);
    cli_progress_end(&r->progress);
    return rc;
}

static int finish(struct reset *r) {
    const char **notes = calloc(r->parts.count + 1, sizeof *notes);
    kc_op *op = NULL;
    if (!notes) return cli_fail(r->c->name, KC_NO_MEMORY, NULL);
    for (size_t i = 0; i < r->parts.count; i++) notes[i] = target(r, &r->parts.v[i], r->parts.v[i].at);
    int rc = r->execute ? execute(r, &op) : CLI_OK;
    if (rc == CLI_OK) {
        size_t done = 0;
        for (size_t i = 0; i < r->result_count; i++) done += r->results[i].err == KC_OK;
        if (r->json) {
            print_json(r, notes);
        } else {
            print_table(r, notes);
            print_end(r, done);
        }
        fflush(stdout);
        for (size_t i = 0; i < r->result_count; i++) {
            if (r->results[i].err == KC_OK) continue;
            fprintf(stderr, "kc: %s: %s %d: %s (%s)\n", r->c->name, r->results[i].name, (int)r->results[i].partition, r->results[i].message,
                    kc_err_name(r->results[i].err));
            rc = CLI_FAILURE;
        }
    }
    free(notes);
    free(r->results);
    kc_op_free(op);
    return rc;
}

/* Members would commit over what is set here, or not notice it. */
static int check_idle(struct reset *r) {
    kc_group_details *d = NULL;
    kc_error *error = NULL;
    kc_group_info g;
    kc_err err = group_describe_all(&r->s, &r->group, 1, &d, &error);
    if (err == KC_OK) err = kc_group_details_get(d, 0, &g);
    int rc = CLI_OK;
    if (err != KC_OK) {
        rc = cli_fail(r->c->name, err, error);
    } else if (g.err != KC_OK && g.err != KE_GROUP_ID_NOT_FOUND /* it is made */) {
        fprintf(stderr, "kc: %s: %s: %s (%s)\n", r->c->name, r->group, g.message, kc_err_name(g.err));
        rc = CLI_FAILURE;
    } else if (g.member_count > 0) {
        fprintf(stderr, "kc: %s: group %s has %zu active member%s (state %s), who would commit over it: nothing was changed\n", r->c->name, r->group,
                g.member_count, g.member_count == 1 ? "" : "s", g.state);
        fprintf(stderr, "  stop them first: kc group describe %s shows them\n", r->group);
        rc = CLI_FAILURE;
    }
    kc_group_details_free(d);
    return rc;
}

static int run(struct reset *r) {
    kc_error *error = NULL;
    cli_progress_start(&r->progress, "", 0);
    int rc = check_idle(r);
    if (rc != CLI_OK) return rc;
    kc_err err = group_offsets_all(&r->s, &r->group, 1, &r->offsets, &error);
    if (err == KC_OK) err = kc_group_offsets_err(r->offsets, 0);
    if (err == KC_OK) err = cli_describe(&r->s, NULL, &r->cluster, &error);
    if (err == KC_OK && !cli_topics_make(&r->topics, r->cluster)) err = KC_NO_MEMORY;
    if (err != KC_OK) return cli_fail(r->c->name, err, error);
    if ((rc = choose(r)) != CLI_OK) return rc;
    cli_progress_say(&r->progress, "looking at the logs of %zu partitions", r->parts.count);
    err = group_log_ask(&r->s, &r->log, &r->topics, &r->parts, r->how == HOW_TIME ? r->number : -1, 0, &error);
    cli_progress_end(&r->progress);
    if (err != KC_OK) return cli_fail(r->c->name, err, error);
    rc = check_known(r);
    return rc == CLI_OK ? finish(r) : rc;
}

/* ---- The command line ---- */

struct ways {
    bool earliest, latest;
    const char *offset, *time, *shift, *file;
};

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int parse_ways(struct reset *r, const struct ways *w) {
    int n = w->earliest + w->latest + (w->offset != NULL) + (w->time != NULL) + (w->shift != NULL) + (w->file != NULL);
    if (n != 1) return cli_usage_error(r->c, "give one of --to-earliest, --to-latest, --to-offset, --to-time, --shift-by, --from-file");
    r->how = w->earliest ? HOW_EARLIEST : w->latest ? HOW_LATEST : w->offset ? HOW_OFFSET : w->time ? HOW_TIME : w->shift ? HOW_SHIFT : HOW_FILE;
    r->file = w->file;
    if (w->offset && !cli_number(w->offset, 0, INT64_MAX, &r->number))
        return cli_usage_error(r->c, "--to-offset takes a whole number from 0, not '%s'", w->offset);
    if (w->shift && !cli_number(w->shift, -INT64_MAX, INT64_MAX, &r->number))
        return cli_usage_error(r->c, "--shift-by takes a whole number, such as 10 or -10, not '%s'", w->shift);
    if (w->time && !cli_time(w->time, now_ms(), &r->number))
        return cli_usage_error(r->c,
                               "--to-time takes 2026-11-30T04:00[:00.000][Z|+01:00] (UTC by default), @MILLISECONDS since 1970, or an age such as "
                               "90m, 2h, 7d; not '%s'",
                               w->time);
    return -1;
}

static int check_operands(struct reset *r, const struct cli_operands *o) {
    r->group = o->v[0];
    bool topics = o->count > 1;
    if (r->file && (topics || r->all)) return cli_usage_error(r->c, "the file says which partitions: --from-file goes without topics");
    if (r->file) return -1;
    if (topics == r->all) return cli_usage_error(r->c, topics ? "--all-topics goes without topics" : "say which: TOPIC, TOPIC:PARTITION,... or --all-topics");
    return group_words_make(r->c, o->v + 1, o->count - 1, &r->words);
}

int group_reset(int argc, char **argv) {
    struct reset r = {0};
    struct ways w = {0};
    const struct cli_option options[] = {
        CLI_SESSION_OPTIONS(&r.s),
        {0, "to-earliest", NULL, "to where the log begins", CLI_FLAG, &w.earliest},
        {0, "to-latest", NULL, "to where the log ends", CLI_FLAG, &w.latest},
        {0, "to-offset", "N", "to this offset", CLI_TEXT, &w.offset},
        {0, "to-time", "TIME", "to the first record from then on: 2026-11-30T04:00, @MS since 1970, or an age as 2h", CLI_TEXT, &w.time},
        {0, "shift-by", "N", "so many records on, or, below 0, back", CLI_TEXT, &w.shift},
        {0, "from-file", "FILE", "as lines of TOPIC,PARTITION,OFFSET say; '-': stdin", CLI_TEXT, &w.file},
        {0, "all-topics", NULL, "all partitions that the group has committed offsets of", CLI_FLAG, &r.all},
        {0, "execute", NULL, "do it; without, it is only shown", CLI_FLAG, &r.execute},
        {0, "json", NULL, "print JSON", CLI_FLAG, &r.json},
    };
    const struct cli_command c = {"group reset",
                                  "GROUP [TOPIC[:PARTITION,...]...]",
                                  "Moves the committed offsets of a group that has no active members.",
                                  "Without --execute it shows what it would do, and changes nothing. Offsets outside of the log become its begin or its end. A "
                                  "group that is not there is made.",
                                  1,
                                  CLI_OPERANDS_MAX,
                                  options,
                                  sizeof options / sizeof *options,
                                  "  kc group reset billing orders --to-earliest\n"
                                  "  kc group reset billing orders:0,3 --to-time 2h --execute\n"
                                  "  kc group reset billing --all-topics --shift-by -100\n"};
    struct cli_operands o;
    int rc = cli_parse(&c, argc, argv, &o);
    if (rc >= 0) return rc;
    r.c = &c;
    rc = parse_ways(&r, &w);
    if (rc < 0) rc = check_operands(&r, &o);
    if (rc < 0 && (rc = cli_session_open(&r.s)) == CLI_OK) {
        cli_catch_signals(NULL, NULL);
        rc = run(&r);
    }
    group_log_close(&r.log);
    group_words_free(&r.words);
    group_parts_free(&r.parts);
    cli_topics_free(&r.topics);
    kc_cluster_info_free(r.cluster);
    kc_group_offsets_free(r.offsets);
    free(r.lines);
    cli_session_close(&r.s);
    return rc;
}
