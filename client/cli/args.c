/* args.c - command lines: options before, between and after operands, letters and long names, help, and errors that name the nearest right
 * word. */
#include "cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/nearest.h"

enum { WIDTH = 80, INDENT = 31 };

/* Words behind what the line has already (at), broken at WIDTH, the next lines indented. A newline in the text starts a line as well. */
void cli_print_wrapped(FILE *f, const char *text, size_t at, size_t indent) {
    bool first = true;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, " \n");
        if (!first && at + 1 + n > WIDTH) {
            fprintf(f, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        at += (size_t)fprintf(f, "%s%.*s", first ? "" : " ", (int)n, p);
        first = false;
        p += n;
        if (*p == '\n') {
            fprintf(f, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        if (*p) p++;
    }
    fputc('\n', f);
}

static void print_options(FILE *f, const struct cli_command *c) {
    for (size_t i = 0; i < c->option_count; i++) {
        const struct cli_option *o = &c->options[i];
        char left[64];
        snprintf(left, sizeof left, "%c%c%s--%s%s%s", o->letter ? '-' : ' ', o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
                 o->value ? " " : "", o->value ? o->value : "");
        size_t at = (size_t)fprintf(f, "  %-28s ", left);
        cli_print_wrapped(f, o->help, at, INDENT);
    }
}

static void print_help(FILE *f, const struct cli_command *c) {
    fprintf(f, "usage: kc %s%s%s [options]\n%s\n\n", c->name, *c->operands ? " " : "", c->operands, c->summary);
    print_options(f, c);
    if (c->notes) {
        fputc('\n', f);
        cli_print_wrapped(f, c->notes, 0, 0);
    }
    if (c->examples) fprintf(f, "\nexamples:\n%s", c->examples);
}

int cli_usage_error(const struct cli_command *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "kc %s: ", c->name);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n  try: kc %s --help\n", c->name);
    va_end(ap);
    return CLI_USAGE;
}

static const struct cli_option *by_letter(const struct cli_command *c, char letter) {
    for (size_t i = 0; i < c->option_count; i++)
        if (c->options[i].letter == letter) return &c->options[i];
    return NULL;
}

static const struct cli_option *by_name(const struct cli_command *c, const char *name, size_t n) {
    for (size_t i = 0; i < c->option_count; i++)
        if (strlen(c->options[i].name) == n && !memcmp(c->options[i].name, name, n)) return &c->options[i];
    return NULL;
}

static int unknown_option(const struct cli_command *c, const char *name) {
    struct kw_nearest n;
    kw_nearest_init(&n, name);
    for (size_t i = 0; i < c->option_count; i++) kw_nearest_offer(&n, c->options[i].name);
    if (n.best) return cli_usage_error(c, "no option '--%s'; did you mean '--%s'?", name, n.best);
    return cli_usage_error(c, "no option '%s%s'", strlen(name) == 1 ? "-" : "--", name);
}

static int take(const struct cli_command *c, const struct cli_option *o, const char *value) {
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->out = true;
        return -1;
    case CLI_TEXT:
    case CLI_MAYBE:
        *(const char **)o->out = value;
        return -1;
    case CLI_INDEX:
    case CLI_COUNT:
        if (!cli_number(value, o->kind == CLI_COUNT, INT32_MAX, o->out))
            return cli_usage_error(c, "--%s takes a whole number from %d to %d, not '%s'", o->name, o->kind == CLI_COUNT, INT32_MAX, value);
        return -1;
    case CLI_TOTAL:
        if (!cli_number(value, 1, INT64_MAX, o->out))
            return cli_usage_error(c, "--%s takes a whole number from 1, not '%s'", o->name, value);
        return -1;
    case CLI_MANY: {
        struct cli_many *m = o->out;
        if (m->count == CLI_MANY_MAX) return cli_usage_error(c, "--%s was given more than %d times", o->name, CLI_MANY_MAX);
        m->v[m->count++] = value;
        return -1;
    }
    }
    return -1;
}

static int parse_long(const struct cli_command *c, int argc, char **argv, int *i) {
    const char *word = argv[*i] + 2, *eq = strchr(word, '=');
    size_t n = eq ? (size_t)(eq - word) : strlen(word);
    const struct cli_option *o = by_name(c, word, n);
    if (!o) {
        char name[80];
        snprintf(name, sizeof name, "%.*s", (int)n, word);
        return unknown_option(c, name);
    }
    if (o->kind == CLI_FLAG) return eq ? cli_usage_error(c, "--%s takes no value", o->name) : take(c, o, NULL);
    if (eq) return take(c, o, eq + 1);
    if (o->kind == CLI_MAYBE && (*i + 1 >= argc || argv[*i + 1][0] == '-')) return take(c, o, "");
    if (*i + 1 >= argc) return cli_usage_error(c, "--%s needs %s", o->name, o->value);
    return take(c, o, argv[++*i]);
}

static int parse_letters(const struct cli_command *c, int argc, char **argv, int *i) {
    for (const char *p = argv[*i] + 1; *p; p++) {
        const struct cli_option *o = by_letter(c, *p);
        if (!o) return unknown_option(c, (char[]){*p, 0});
        if (o->kind == CLI_FLAG) {
            int rc = take(c, o, NULL);
            if (rc >= 0) return rc;
            continue;
        }
        if (p[1]) return take(c, o, p + 1);
        if (*i + 1 >= argc) return cli_usage_error(c, "-%c needs %s", o->letter, o->value);
        return take(c, o, argv[++*i]);
    }
    return -1;
}

int cli_parse(const struct cli_command *c, int argc, char **argv, struct cli_operands *operands) {
    operands->count = 0;
    bool only_operands = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        int rc = -1;
        if (!only_operands && !strcmp(word, "--")) {
            only_operands = true;
        } else if (!only_operands && (!strcmp(word, "--help") || !strcmp(word, "-h"))) {
            print_help(stdout, c);
            return CLI_OK;
        } else if (!only_operands && !strncmp(word, "--", 2)) {
            rc = parse_long(c, argc, argv, &i);
        } else if (!only_operands && word[0] == '-' && word[1]) {
            rc = parse_letters(c, argc, argv, &i);
        } else if (operands->count < c->operands_max && operands->count < CLI_OPERANDS_MAX) {
            operands->v[operands->count++] = word;
        } else {
            rc = cli_usage_error(c, "'%s' is one word too many", word);
        }
        if (rc >= 0) return rc;
    }
    if (operands->count < c->operands_min) return cli_usage_error(c, "needs %s", c->operands);
    return -1;
}

int cli_dispatch(const char *program, const struct cli_sub *subs, size_t count, int argc, char **argv) {
    const char *word = argc >= 2 ? argv[1] : NULL;
    for (size_t i = 0; word && i < count; i++)
        if (!strcmp(word, subs[i].name)) return subs[i].run(argc - 1, argv + 1);
    bool help = word && (!strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "help"));
    FILE *f = help ? stdout : stderr;
    if (word && !help) {
        struct kw_nearest n;
        kw_nearest_init(&n, word);
        for (size_t i = 0; i < count; i++) kw_nearest_offer(&n, subs[i].name);
        fprintf(f, "%s: no command '%s'", program, word);
        if (n.best) fprintf(f, "; did you mean '%s'?", n.best);
        fprintf(f, "\n");
    }
    fprintf(f, "usage: %s COMMAND [options]\n\n", program);
    for (size_t i = 0; i < count; i++) cli_print_wrapped(f, subs[i].summary, (size_t)fprintf(f, "  %-10s ", subs[i].name), 13);
    fprintf(f, "\n%s COMMAND --help tells more.\n", program);
    return help ? CLI_OK : CLI_USAGE;
}
