/* shell_options.c - kbroker's command line: kbroker run [server.properties] [options]. Called by main; calls config, shell_command. */
#include "shell_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shell_command.h"
#include "shell_parts.h"

enum { FILE_SIZE_MAX = 16 << 20 };

static const char usage[] = "usage: kbroker run [server.properties] [options]\n"
                            "       kbroker cluster --nodes N [options]   (kbroker cluster --help)\n"
                            "       kbroker fault add|list|clear --data DIR   (kbroker fault --help)\n"
                            "       kbroker snapshot save|restore|list|delete (kbroker snapshot --help)\n"
                            "       kbroker print FILE   (what --record FILE has recorded)\n"
                            "       kbroker explain [NAME...]   what properties mean (kbroker explain --help)\n"
                            "\n"
                            "Runs one broker in the foreground. Without arguments: data in ./kbroker-data,\n"
                            "listening on 127.0.0.1:9092, topics created when first used. Prints\n"
                            "\"ready HOST:PORT\" once it serves. SIGTERM or Ctrl-C stops it in order.\n"
                            "\n"
                            "  --data DIR          the data folder (log.dirs)\n"
                            "  --ephemeral         a temporary folder, never synced, removed at the end\n"
                            "  --no-sync           nothing is synced: faster, and a crash of the machine\n"
                            "                      may cost what was stored\n"
                            "  --listen HOST:PORT  where to listen; port 0: a free one; no host: all\n"
                            "  --set NAME=VALUE    a property of server.properties; wins over the file\n"
                            "  --profile reliable  the settings of the high-reliability profile\n"
                            "  --faults FILE       fault rules (JSON): make this broker misbehave on order\n"
                            "  --clock virtual     time that can be advanced (POST /clock on the admin port):\n"
                            "                      retention, sessions and other policies at once;\n"
                            "                      virtual+MS: begin so many ms ahead\n"
                            "  --record FILE       append each request and response (kbroker print FILE)\n"
                            "  --verbose           debug lines too\n"
                            "  --help, --version\n"
                            "\n"
                            "examples:\n"
                            "  kbroker run --ephemeral --listen 127.0.0.1:0\n"
                            "  kbroker run server.properties --data /var/lib/kbroker --set num.partitions=3\n";

static const char *const option_names[] = {"--data",   "--ephemeral", "--no-sync", "--listen",  "--set",  "--profile",
                                           "--faults", "--clock",     "--record",  "--verbose", "--help", "--version"};

static char *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *p = malloc(FILE_SIZE_MAX + 1);
    errno = 0;
    size_t n = p ? fread(p, 1, FILE_SIZE_MAX + 1, f) : 0;
    int err = !p ? ENOMEM : ferror(f) ? (errno ? errno : EIO) : n > FILE_SIZE_MAX ? EFBIG : 0;
    fclose(f);
    if (err != 0) {
        free(p);
        errno = err;
        return NULL;
    }
    p[n] = 0;
    *size = n;
    char *fit = realloc(p, n + 1);
    return fit ? fit : p;
}

static void warn(void *ctx, const char *text) {
    kb_say(ctx, KB_WARN, "%s", text);
}

static int set(struct kb_options *o, const char *name, const char *value, struct kb_logger *logger) {
    char text[512];
    if (kb_config_set(o->config, name, value, text, sizeof(text), warn, logger) == KW_OK) return -1;
    fprintf(stderr, "kbroker: %s\n", text);
    return 2;
}

static int set_pair(struct kb_options *o, const char *pair, struct kb_logger *logger) {
    const char *eq = strchr(pair, '=');
    if (!eq || eq == pair) return kb_command_wrong("run", NULL, "--set wants NAME=VALUE, not \"%s\"", pair);
    char *name = strndup(pair, (size_t)(eq - pair));
    if (!name) return 1;
    int code = set(o, name, eq + 1, logger);
    free(name);
    return code;
}

static int set_listen(struct kb_options *o, const char *address, struct kb_logger *logger) {
    const char *colon = strrchr(address, ':');
    char *value = NULL;
    if (!colon || colon[1] == 0) return kb_command_wrong("run", NULL, "--listen wants HOST:PORT, not \"%s\"", address);
    if (asprintf(&value, "PLAINTEXT://%s", address) < 0) return 1;
    int code = set(o, "listeners", value, logger);
    free(value);
    return code;
}

static int set_faults(struct kb_options *o, const char *path) {
    size_t n;
    free(o->faults_json);
    o->faults_json = read_file(path, &n);
    if (o->faults_json) return -1;
    fprintf(stderr, "kbroker: %s cannot be read: %s\n", path, strerror(errno));
    return 1;
}

static int set_clock(const char *word) {
    if (kb_shell_clock_set(word)) return -1;
    return kb_command_wrong("run", NULL, "--clock wants real, virtual or virtual+MS (MS: how far ahead), not \"%s\"", word);
}

static int set_profile(struct kb_options *o, const char *name) {
    char text[512];
    if (kb_config_profile(o->config, name, text, sizeof(text)) == KW_OK) return -1;
    fprintf(stderr, "kbroker: %s\n", text);
    return 2;
}

static int load(struct kb_options *o, const char *path, struct kb_logger *logger) {
    size_t n;
    char text[512], *p = read_file(path, &n);
    if (!p) {
        fprintf(stderr, "kbroker: %s cannot be read: %s\n", path, strerror(errno));
        return 1;
    }
    kw_err err = kb_config_load(o->config, path, p, n, text, sizeof(text), warn, logger);
    free(p);
    if (err == KW_OK) return -1;
    fprintf(stderr, "kbroker: %s\n", text);
    return 2;
}

static int with_value(struct kb_options *o, const char *name, const char *value, struct kb_logger *logger) {
    if (!value[0]) return kb_command_wrong("run", NULL, "%s needs a value", name);
    if (strcmp(name, "--data") == 0) return set(o, "log.dirs", value, logger);
    if (strcmp(name, "--listen") == 0) return set_listen(o, value, logger);
    if (strcmp(name, "--set") == 0) return set_pair(o, value, logger);
    if (strcmp(name, "--faults") == 0) return set_faults(o, value);
    if (strcmp(name, "--clock") == 0) return set_clock(value);
    if (strcmp(name, "--record") == 0) {
        o->record = value;
        return -1;
    }
    return set_profile(o, value);
}

static bool takes_value(const char *name) {
    return strcmp(name, "--ephemeral") != 0 && strcmp(name, "--no-sync") != 0 && strcmp(name, "--help") != 0 && strcmp(name, "--version") != 0 &&
           strcmp(name, "--verbose") != 0;
}

static bool is_option(const char *arg, size_t n) {
    for (size_t i = 0; i < KW_COUNTOF(option_names); i++)
        if (strlen(option_names[i]) == n && memcmp(arg, option_names[i], n) == 0) return true;
    return false;
}

/* One argument of `run`, at i; moves i over its value. */
static int take(struct kb_options *o, int argc, char **argv, int *i, struct kb_logger *logger) {
    const char *arg = argv[*i], *eq = strchr(arg, '=');
    size_t n = eq ? (size_t)(eq - arg) : strlen(arg);
    if (arg[0] != '-') return -1; /* the file: read first of all, when all names were checked too */
    char name[16];
    snprintf(name, sizeof(name), "%.*s", (int)n, arg);
    if (!takes_value(name)) {
        if (eq) return kb_command_wrong("run", NULL, "%s takes no value", name);
        if (strcmp(name, "--ephemeral") == 0) o->ephemeral = o->no_sync = true;
        if (strcmp(name, "--no-sync") == 0) o->no_sync = true;
        if (strcmp(name, "--verbose") == 0) logger->level = KB_DEBUG;
        return -1;
    }
    if (!eq && *i + 1 >= argc) return kb_command_wrong("run", NULL, "%s needs a value", name);
    return with_value(o, name, eq ? eq + 1 : argv[++*i], logger);
}

static int load_file(struct kb_options *o, int argc, char **argv, struct kb_logger *logger) {
    bool seen = false;
    for (int i = 2; i < argc; i++) {
        const char *arg = argv[i];
        if (arg[0] == '-') {
            size_t n = strcspn(arg, "=");
            if (!is_option(arg, n))
                return kb_command_wrong("run", kb_command_nearest(arg, option_names, KW_COUNTOF(option_names)), "unknown option %s", arg);
            if (!arg[n] && takes_value(arg)) i++;
            continue;
        }
        if (seen) return kb_command_wrong("run", NULL, "only one properties file is read; what is \"%s\"?", arg);
        seen = true;
        int code = load(o, arg, logger);
        if (code >= 0) return code;
    }
    return -1;
}

int kb_options_parse(struct kb_options *o, int argc, char **argv, struct kb_logger *logger) {
    static const char *const commands[] = {"run", "cluster", "fault", "print", "snapshot", "explain"};
    o->inline_write_max = -1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("kbroker %s\n", KB_VERSION);
            return 0;
        }
    }
    if (argc < 2) {
        fputs(usage, stderr);
        return 2;
    }
    if (strcmp(argv[1], "run") != 0)
        return kb_command_wrong("run", kb_command_nearest(argv[1], commands, KW_COUNTOF(commands)), "unknown command \"%s\"", argv[1]);
    if (kb_config_new(&o->config) != KW_OK) return 1;
    int code = load_file(o, argc, argv, logger);
    for (int i = 2; code < 0 && i < argc; i++) code = take(o, argc, argv, &i, logger);
    if (code >= 0) return code;
    if (o->ephemeral) return -1; /* finished once its folder is known */
    char text[512];
    if (kb_config_finish(o->config, text, sizeof(text)) == KW_OK) return -1;
    fprintf(stderr, "kbroker: %s\n", text);
    return 2;
}

bool kb_options_make_temporary(struct kb_options *o, const struct kb_logger *logger) {
    char text[512];
    if (!o->temporary) o->temporary = kb_command_make_temporary(text, sizeof(text));
    if (!o->temporary) {
        kb_say(logger, KB_ERROR, "%s", text);
        return false;
    }
    if (kb_config_set(o->config, "log.dirs", o->temporary, text, sizeof(text), NULL, NULL) == KW_OK &&
        kb_config_finish(o->config, text, sizeof(text)) == KW_OK)
        return true;
    kb_say(logger, KB_ERROR, "%s", text);
    return false;
}

void kb_options_deinit(struct kb_options *o) {
    if (o->temporary) kb_command_remove_tree(o->temporary);
    free(o->temporary);
    free(o->faults_json);
    kb_config_free(o->config);
    memset(o, 0, sizeof(*o));
}
