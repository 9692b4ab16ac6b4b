/* shell_explain.c - kbroker explain: what the properties of brokers and topics mean, out of the one table (config.h).
 *
 * Called by main; calls config, shell_command. cmake/docs makes the reference and the man pages of its JSON.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "shell_command.h"

enum { COLUMNS = 80, INDENT = 4 };

static const char usage[] = "usage: kbroker explain [NAME...] [options]\n"
                            "\n"
                            "Says what the properties of brokers (server.properties) and of topics mean: all\n"
                            "that have an effect, or those named. kc config describe shows what a broker\n"
                            "that runs has; kc config explain is the same for clients.\n"
                            "\n"
                            "  --json  print JSON, a line a property; also those that Apache Kafka knows and\n"
                            "          that have no effect here\n"
                            "  --help\n"
                            "\n"
                            "examples:\n"
                            "  kbroker explain min.insync.replicas\n"
                            "  kbroker explain --json\n";

static const char *type_name(const struct kb_config_def *d) {
    switch ((enum kb_config_type)d->type) {
    case KB_C_BOOL: return "boolean";
    case KB_C_INT:
    case KB_C_LONG:
    case KB_C_SHORT: return "integer";
    case KB_C_DOUBLE: return "decimal";
    case KB_C_LIST: return "list";
    case KB_C_ENUM: return "choice";
    case KB_C_CLASS: return "class";
    case KB_C_STRING:
    case KB_C_PASSWORD: break;
    }
    return "text";
}

static int64_t type_max(const struct kb_config_def *d) {
    return d->type == KB_C_LONG ? INT64_MAX : d->type == KB_C_SHORT ? INT16_MAX : INT32_MAX;
}

/* "1 to 9", "at least 1", the words to choose from; "" where anything goes. */
static void range_of(const struct kb_config_def *d, char *out, size_t size) {
    bool number = !strcmp(type_name(d), "integer") || d->type == KB_C_DOUBLE;
    out[0] = 0;
    if (d->values) {
        snprintf(out, size, "%s", d->values);
    } else if (number && !(d->scope & KB_C_IGNORED)) {
        bool low = d->min > INT64_MIN, high = d->max < type_max(d);
        if (low && high) snprintf(out, size, "%lld to %lld", (long long)d->min, (long long)d->max);
        if (low && !high) snprintf(out, size, "%lld or more", (long long)d->min);
        if (!low && high) snprintf(out, size, "%lld or less", (long long)d->max);
    }
}

static const char *scope_name(const struct kb_config_def *d) {
    return d->scope & KB_C_TOPIC ? "topic" : "broker";
}

static int print_json(const struct kb_config_def *d) {
    char range[512];
    range_of(d, range, sizeof(range));
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s?, s:b, s:b, s:s?, s:s}", "name", d->name, "scope", scope_name(d), "type", type_name(d), "range", range,
                          "default", d->def, "dynamic", (d->scope & (KB_C_DYNAMIC | KB_C_TOPIC)) != 0, "ignored", (d->scope & KB_C_IGNORED) != 0, "synonyms",
                          d->broker_synonym, "text", d->doc);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!text) {
        fprintf(stderr, "kbroker: explain: no memory\n");
        return 1;
    }
    puts(text);
    free(text);
    return 0;
}

/* The text in lines of at most COLUMNS, indented. */
static void print_wrapped(const char *text) {
    int column = printf("%*s", INDENT, "");
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (column > INDENT && column + 1 + n > COLUMNS) column = printf("\n%*s", INDENT, "") - 1;
        column += printf("%s%.*s", column > INDENT ? " " : "", n, text);
        text += n + (text[n] == ' ');
    }
    putchar('\n');
}

static void print_text(const struct kb_config_def *d) {
    char range[512], head[1024];
    range_of(d, range, sizeof(range));
    printf("%s\n", d->name);
    snprintf(head, sizeof(head), "(%s, %s%s%s; default %s%s%s%s)", scope_name(d), type_name(d), *range ? ", " : "", range,
             !d->def || !*d->def ? "none" : d->def, d->broker_synonym ? "; of the broker's " : "", d->broker_synonym ? d->broker_synonym : "",
             d->scope & KB_C_DYNAMIC ? "; may be changed while it runs" : "");
    print_wrapped(head);
    print_wrapped(d->doc);
}

static int explain_named(const char *name, bool json) {
    int rc = 0;
    bool found = false;
    for (size_t i = 0; i < kb_config_def_count && rc == 0; i++) {
        if (strcmp(kb_config_defs[i].name, name) != 0) continue;
        found = true;
        if (json)
            rc = print_json(&kb_config_defs[i]);
        else
            print_text(&kb_config_defs[i]);
    }
    if (found) return rc;
    const char *near = kb_config_nearest(name, KB_C_BROKER | KB_C_TOPIC);
    fprintf(stderr, "kbroker: explain: no property '%s'", name);
    if (near) fprintf(stderr, "; did you mean '%s'?", near);
    fprintf(stderr, "\n");
    return 1;
}

int kb_explain_main(int argc, char **argv) {
    static const char *const option_names[] = {"--json", "--help"};
    bool json = false, names = false;
    if (kb_command_asks_help(argc, argv)) {
        fputs(usage, stdout);
        return 0;
    }
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--json"))
            json = true;
        else if (argv[i][0] == '-')
            return kb_command_wrong("explain", kb_command_nearest(argv[i], option_names, 2), "no option '%s'", argv[i]);
        else
            names = true;
    }
    int rc = 0;
    for (int i = 2; i < argc; i++)
        if (argv[i][0] != '-' && explain_named(argv[i], json) != 0) rc = 1;
    for (size_t i = 0; !names && i < kb_config_def_count && rc == 0; i++) {
        if (json)
            rc = print_json(&kb_config_defs[i]);
        else if (!(kb_config_defs[i].scope & KB_C_IGNORED))
            print_text(&kb_config_defs[i]);
    }
    return rc;
}
