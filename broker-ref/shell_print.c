/* shell_print.c - kbroker print FILE: a recording (--record) as JSON, a line a frame. Called by main. Calls recording, print, shell_command.
 *
 * What is no entry is passed over, and told with its place on stderr; what is sound behind it is printed all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "print.h"
#include "shell_command.h"
#include "wire/codec.h"

enum { READ_SIZE = 1 << 20, FOLLOW_US = 100000, APIS_MAX = 32 };

static const char usage[] = "usage: kbroker print FILE [options]\n"
                            "\n"
                            "Prints a recording (kbroker run --record FILE) as JSON: a line for each request\n"
                            "and each response, its fields by their Kafka names. FILE - is standard input.\n"
                            "\n"
                            "  --api NAME    only this API (Produce, Fetch, ...); several: --api A --api B\n"
                            "  --node ID     only what this node took\n"
                            "  --records     each record of Produce and Fetch, not only the batches\n"
                            "  --bytes N     show at most N bytes of each bytes field, key and value (64)\n"
                            "  --follow      go on, as the file grows, until interrupted\n"
                            "  --help\n"
                            "\n"
                            "Exit code 1: parts of the file are damaged or cut off; they are told on stderr.\n"
                            "\n"
                            "examples:\n"
                            "  kbroker print frames.rec --api Produce --records\n"
                            "  kbroker print frames.rec --follow | jq 'select(.took_us > 100000)'\n";

struct printing {
    const char *path;
    const struct kw_api *apis[APIS_MAX];
    size_t api_count;
    int32_t node; /* -1: any */
    bool follow, damaged, closed;
    struct kb_print print;
    int fd;
    uint8_t *buf;
    size_t begin, end, cap; /* [begin, end) is to be looked at */
    int64_t at;             /* begin's place in the file */
    int64_t bad_at, bad_size; /* what is being passed over; size 0: nothing */
    const char *bad_why;
    struct kw_out line;
};

/* ---- The command line ---- */

static int wrong_api(const char *name) {
    const char **names = calloc(kw_api_count, sizeof(*names)), *near = NULL;
    for (size_t i = 0; names && i < kw_api_count; i++) names[i] = kw_apis[i].name;
    if (names) near = kb_command_nearest(name, names, kw_api_count);
    int code = kb_command_wrong("print", near, "--api %s: there is no such API", name);
    free(names);
    return code;
}

static int number(const char *option, const char *value, long max, long *out) {
    char *end;
    *out = strtol(value, &end, 10);
    if (*value && !*end && *out >= 0 && *out <= max) return -1;
    return kb_command_wrong("print", NULL, "%s wants a number from 0 to %ld, not \"%s\"", option, max, value);
}

static int take_value(struct printing *p, const char *option, const char *value) {
    long n = 0;
    int code;
    if (!*value) return kb_command_wrong("print", NULL, "%s needs a value", option);
    if (strcmp(option, "--api") == 0) {
        const struct kw_api *api = kw_api_by_name(value);
        if (!api) return wrong_api(value);
        if (p->api_count == APIS_MAX) return kb_command_wrong("print", NULL, "at most %d of --api", APIS_MAX);
        p->apis[p->api_count++] = api;
        return -1;
    }
    bool is_node = strcmp(option, "--node") == 0;
    if ((code = number(option, value, is_node ? INT32_MAX : KB_PRINT_LINE_MAX / 8, &n)) >= 0) return code;
    if (is_node)
        p->node = (int32_t)n;
    else
        p->print.bytes_max = (size_t)n;
    return -1;
}

static int parse(struct printing *p, int argc, char **argv) {
    static const char *const options[] = {"--api", "--node", "--bytes", "--records", "--follow", "--help"};
    enum { VALUED = 3 };
    for (int i = 2; i < argc; i++) {
        const char *arg = argv[i], *value = NULL;
        size_t k = 0;
        while (k < VALUED && !(value = kb_command_value(options[k], argc, argv, &i))) k++;
        if (value) {
            int code = take_value(p, options[k], value);
            if (code >= 0) return code;
        } else if (strcmp(arg, "--records") == 0) {
            p->print.records = true;
        } else if (strcmp(arg, "--follow") == 0) {
            p->follow = true;
        } else if (arg[0] == '-' && arg[1]) {
            return kb_command_wrong("print", kb_command_nearest(arg, options, KW_COUNTOF(options)), "unknown option %s", arg);
        } else if (p->path) {
            return kb_command_wrong("print", NULL, "only one file is read; what is \"%s\"?", arg);
        } else {
            p->path = arg;
        }
    }
    return p->path ? -1 : kb_command_wrong("print", NULL, "which FILE? (that of kbroker run --record FILE)");
}

/* ---- Damage ---- */

static void tell_damage(struct printing *p) {
    if (p->bad_size == 0) return;
    fflush(stdout);
    fprintf(stderr, "kbroker: %s: %lld bytes at byte %lld are no sound entry (%s): passed over\n", p->path, (long long)p->bad_size, (long long)p->bad_at,
            p->bad_why);
    p->bad_size = 0;
    p->damaged = true;
}

static void pass_over(struct printing *p, size_t n, const char *why) {
    if (p->bad_size == 0) {
        p->bad_at = p->at;
        p->bad_why = why;
    }
    p->bad_size += (int64_t)n;
}

/* ---- Entries ---- */

static bool is_wanted(const struct printing *p, const struct kb_recording_entry *e) {
    bool any = p->api_count == 0;
    for (size_t i = 0; i < p->api_count; i++) any = any || p->apis[i]->key == e->api_key;
    return any && (p->node < 0 || p->node == e->node);
}

static void print_entry(struct printing *p, const struct kb_recording_entry *e) {
    if (!is_wanted(p, e)) return;
    kw_out_reset(&p->line);
    kb_print_entry(&p->print, e, &p->line);
    if (p->line.err != KW_OK) {
        fprintf(stderr, "kbroker: %s: no memory to print the frame of %u bytes at byte %lld: left out\n", p->path, (unsigned)e->frame_size, (long long)p->at);
        kw_out_deinit(&p->line);
        kw_out_init(&p->line);
        p->damaged = true;
        return;
    }
    kw_out_i8(&p->line, '\n');
    if (fwrite(p->line.p, 1, p->line.len, stdout) != p->line.len) p->closed = true;
}

/* All that can be told from what was read; `at_end`: nothing follows. */
static void print_some(struct printing *p, bool at_end) {
    while (!p->closed) {
        struct kb_recording_entry e;
        size_t used;
        const char *why = "";
        enum kb_recording_found found = kb_recording_next(p->buf + p->begin, p->end - p->begin, at_end, &e, &used, &why);
        if (found == KB_RECORDING_MORE) break;
        if (found == KB_RECORDING_ENTRY) {
            tell_damage(p);
            print_entry(p, &e);
        } else {
            pass_over(p, used, why);
        }
        p->begin += used;
        p->at += (int64_t)used;
    }
    if (at_end) tell_damage(p);
}

/* ---- The file ---- */

/* More of it; 0: its end, for now; -1: it cannot be read. */
static ssize_t read_more(struct printing *p) {
    if (p->begin > 0) memmove(p->buf, p->buf + p->begin, p->end - p->begin);
    p->end -= p->begin;
    p->begin = 0;
    if (p->cap - p->end < READ_SIZE) {
        uint8_t *more = realloc(p->buf, p->end + 2 * (size_t)READ_SIZE);
        if (!more) {
            errno = ENOMEM;
            return -1;
        }
        p->buf = more;
        p->cap = p->end + 2 * (size_t)READ_SIZE;
    }
    ssize_t n;
    do n = read(p->fd, p->buf + p->end, p->cap - p->end);
    while (n < 0 && errno == EINTR);
    if (n > 0) p->end += (size_t)n;
    return n;
}

static int print_file(struct printing *p) {
    ssize_t n;
    while ((n = read_more(p)) >= 0 && !p->closed) {
        if (n == 0 && !p->follow) break;
        print_some(p, false);
        if (n > 0) continue;
        fflush(stdout);
        usleep(FOLLOW_US);
    }
    if (n >= 0) print_some(p, true);
    int err = errno;
    if (fflush(stdout) != 0) p->closed = true;
    if (n >= 0 && !p->closed) return p->damaged;
    if (p->closed)
        fprintf(stderr, "kbroker: the output cannot be written: %s\n", strerror(errno));
    else
        fprintf(stderr, "kbroker: %s cannot be read: %s\n", p->path, strerror(err));
    return 1;
}

static bool open_file(struct printing *p) {
    struct stat st;
    p->fd = strcmp(p->path, "-") == 0 ? dup(STDIN_FILENO) : open(p->path, O_RDONLY | O_CLOEXEC);
    if (p->fd >= 0 && fstat(p->fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(p->fd);
        p->fd = -1;
        errno = EISDIR;
    }
    if (p->fd >= 0) return true;
    fprintf(stderr, "kbroker: %s cannot be opened: %s\n", p->path, strerror(errno));
    return false;
}

int kb_print_main(int argc, char **argv) {
    struct printing p = {.node = -1, .fd = -1, .print = {.bytes_max = KB_PRINT_BYTES_MAX}};
    if (kb_command_asks_help(argc, argv)) {
        fputs(usage, stdout);
        return 0;
    }
    int code = parse(&p, argc, argv);
    if (code >= 0) return code;
    if (!open_file(&p)) return 1;
    kw_out_init(&p.line);
    p.print.compressor = kw_compressor_new();
    if (p.print.compressor) {
        code = print_file(&p);
    } else {
        fprintf(stderr, "kbroker: out of memory\n");
        code = 1;
    }
    kw_compressor_free(p.print.compressor);
    kw_out_deinit(&p.line);
    free(p.buf);
    close(p.fd);
    return code;
}
